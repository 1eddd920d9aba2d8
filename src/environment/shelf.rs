//! Archives in the user's cache folder, each under the name of its content: made by one program while others wait,
//! whole or not there at all, and removed when nobody has used them for long. It does not know what is in them.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};

use crate::os::{self, Careful};

/// icecream knows the format by the ending.
pub const ENDING: &str = ".tar.zst";
/// What a killed program leaves begins so.
const UNFINISHED: &str = "new-";
/// An archive that was not used for so long goes.
const KEPT: Duration = Duration::from_secs(30 * 24 * 3600);

pub(super) struct Shelf(PathBuf);

impl Shelf {
    /// Takes the folder, and makes it if need be.
    pub(super) fn open(folder: PathBuf) -> Result<Shelf> {
        fs::create_dir_all(&folder).with_context(|| {
            format!("{}: cannot be made (XDG_CACHE_HOME names another place)", folder.display())
        })?;
        Ok(Shelf(folder))
    }

    /// The archive of this name, its length in bytes, and whether it had to be made by `write`.
    pub(super) fn take(
        &self,
        name: &str,
        write: impl FnOnce(&mut File) -> Result<()>,
    ) -> Result<(PathBuf, u64, bool)> {
        let path = self.0.join(format!("{name}{ENDING}"));
        if let Some(length) = used(&path) {
            return Ok((path, length, false));
        }
        let made = self.make(&path, write);
        let (length, made) = made.with_context(|| path.display().to_string())?;
        Ok((path, length, made))
    }

    fn make(
        &self,
        path: &Path,
        write: impl FnOnce(&mut File) -> Result<()>,
    ) -> Result<(u64, bool)> {
        let mut options = OpenOptions::new();
        let lock = options.write(true).create(true).truncate(false).private();
        let lock = lock.open(self.0.join("lock"))?;
        os::lock(&lock)?;
        // Another link may have made it meanwhile.
        if let Some(length) = used(path) {
            return Ok((length, false));
        }
        // Before there is a new one: a full disk is the likeliest trouble.
        self.tidy();
        let mut new = tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(&self.0)?;
        write(new.as_file_mut())?;
        let file = new.as_file();
        if let Some(mode) = os::mode(0o644) {
            file.set_permissions(mode)?;
        }
        // Its name says that it is whole, after a crash of the machine as well.
        file.sync_all()?;
        let length = file.metadata()?.len();
        new.persist(path)?;
        Ok((length, true))
    }

    /// Removes what killed programs left, and what is out of use. Only under the lock.
    fn tidy(&self) {
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            let old = || is_old(&entry).unwrap_or(false);
            if name.starts_with(UNFINISHED) || (name.ends_with(ENDING) && old()) {
                // Another one may be gone already; this one may stay a while longer.
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

fn is_old(entry: &fs::DirEntry) -> io::Result<bool> {
    let used = entry.metadata()?.modified()?;
    Ok(SystemTime::now().duration_since(used).is_ok_and(|age| age > KEPT))
}

/// The length of an archive that is there; from now on it is used.
fn used(path: &Path) -> Option<u64> {
    // icecream refuses links.
    let about = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file)?;
    match OpenOptions::new().write(true).open(path) {
        Ok(file) => file.set_modified(SystemTime::now()).ok()?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        // Made by an administrator, who looks after it.
        Err(_) => {}
    }
    Some(about.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn shelf() -> (tempfile::TempDir, Shelf) {
        let folder = tempfile::tempdir().unwrap();
        let shelf = Shelf::open(folder.path().join("icecc")).unwrap();
        (folder, shelf)
    }

    fn names(shelf: &Shelf) -> Vec<String> {
        let entries = fs::read_dir(&shelf.0).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = entries.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn text(to: &mut File) -> Result<()> {
        to.write_all(b"archive").map_err(Into::into)
    }

    #[test]
    fn links_at_once_make_an_archive_once() {
        let (_folder, shelf) = shelf();
        let count = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let write = |to: &mut File| {
                        count.fetch_add(1, Ordering::Relaxed);
                        std::thread::sleep(Duration::from_millis(50));
                        text(to)
                    };
                    assert_eq!(shelf.take("a", write).unwrap().1, 7);
                });
            }
        });
        assert_eq!(count.into_inner(), 1);
        assert_eq!(names(&shelf), ["a.tar.zst", "lock"]);
    }

    #[test]
    fn a_failure_leaves_nothing_and_what_a_killed_program_left_goes() {
        let (_folder, shelf) = shelf();
        fs::write(shelf.0.join("new-left"), "half").unwrap();
        let failed = |to: &mut File| {
            text(to)?;
            anyhow::bail!("no luck")
        };
        let error = format!("{:#}", shelf.take("a", failed).unwrap_err());
        assert!(error.ends_with("a.tar.zst: no luck"), "{error}");
        assert_eq!(names(&shelf), ["lock"]);
    }

    #[test]
    fn what_nobody_uses_for_a_month_goes_and_a_use_counts() {
        let (_folder, shelf) = shelf();
        let age = |name: &str, days: u64| {
            let file = OpenOptions::new().write(true).open(shelf.0.join(name)).unwrap();
            let then = SystemTime::now() - Duration::from_secs(days * 24 * 3600);
            file.set_modified(then).unwrap();
        };
        for name in ["a", "b", "c"] {
            assert!(shelf.take(name, text).unwrap().2);
        }
        age("a.tar.zst", 31);
        age("b.tar.zst", 29);
        age("c.tar.zst", 31);
        assert!(!shelf.take("c", text).unwrap().2);
        shelf.take("d", text).unwrap();
        assert_eq!(names(&shelf), ["b.tar.zst", "c.tar.zst", "d.tar.zst", "lock"]);
    }

    #[test]
    fn a_link_in_an_archives_place_is_replaced() {
        let (folder, shelf) = shelf();
        let other = folder.path().join("other");
        fs::write(&other, "other").unwrap();
        std::os::unix::fs::symlink(&other, shelf.0.join("a.tar.zst")).unwrap();
        let (path, ..) = shelf.take("a", text).unwrap();
        assert_eq!(fs::read(path).unwrap(), b"archive");
        assert_eq!(fs::read(other).unwrap(), b"other");
    }
}
