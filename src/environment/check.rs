//! Looks through an archive that somebody wants to send: it is unpacked as a node would do it, and must hold what
//! icecream and the worker ask for, and nothing that would leave its folder. It runs nothing.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::path::{Component, Path};

use anyhow::{Context, Result, bail, ensure};
use tar::{Archive, EntryType};

use super::archive::Hashed;
use super::layout::{Contents, Entry, Known, Source, WORKER};
use crate::os::{self, Careful};
use crate::toolchain::Elf;

/// Bytes of all files: far more than any compiler has.
const LIMIT: u64 = 8 << 30;
/// icecream refuses an archive without them.
const NEEDED: [&str; 3] = [WORKER, "usr/bin/as", "bin/true"];

/// What an archive holds.
#[derive(Debug)]
pub struct Checked {
    /// The name that its content has, with the salt that was given.
    pub name: String,
    /// What its worker runs on.
    pub platform: String,
    /// Bytes of all its files.
    pub unpacked: u64,
}

/// Unpacks `archive` into the empty folder `into`, and checks it on the way.
///
/// # Errors
/// It is no environment, is damaged, or cannot be unpacked there.
pub fn check(archive: &Path, salt: &str, into: &Path) -> Result<Checked> {
    let about = fs::symlink_metadata(archive)?;
    ensure!(about.is_file(), "it is no regular file, and icecream refuses links");
    let mut entries = BTreeMap::new();
    let mut unpacked = 0;
    let mut archive = Archive::new(zstd::Decoder::new(File::open(archive)?)?);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let place = entry.path()?.to_str().context("a name is not UTF-8")?.to_owned();
        let place = place.trim_end_matches('/').to_owned();
        unpacked += entry.size();
        ensure!(unpacked <= LIMIT, "it holds more than {LIMIT} bytes");
        let found = unpack(&mut entry, &place, into).with_context(|| place.clone())?;
        ensure!(entries.insert(place.clone(), found).is_none(), "{place} is there twice");
    }
    for needed in NEEDED {
        let found = into.join(needed).metadata();
        let executable = found.is_ok_and(|found| os::is_executable(&found));
        ensure!(executable, "there is no program {needed}");
    }
    let worker = Elf::read(&File::open(into.join(WORKER))?).context(WORKER)?;
    ensure!(worker.loader.is_none(), "{WORKER} is not linked statically");
    let platform = worker.platform().context("its worker is for an unknown machine")?;
    let name = Contents(entries).name(salt);
    Ok(Checked { name, platform: platform.to_owned(), unpacked })
}

fn unpack<R: Read>(
    entry: &mut tar::Entry<'_, R>,
    place: &str,
    into: &Path,
) -> Result<Entry<Known>> {
    let plain = Path::new(place).components().all(|part| matches!(part, Component::Normal(_)));
    ensure!(plain && !place.is_empty(), "this name leads out of the folder");
    let path = into.join(place);
    let mode = entry.header().mode()? & 0o7777;
    match entry.header().entry_type() {
        EntryType::Directory => {
            fs::create_dir(&path)?;
            if let Some(mode) = os::mode(mode) {
                fs::set_permissions(&path, mode)?;
            }
            Ok(Entry::Folder { mode })
        }
        EntryType::Regular => {
            let mut options = OpenOptions::new();
            let mut file = options.write(true).create_new(true).private().open(&path)?;
            let mut bytes = Hashed::of(entry);
            io::copy(&mut bytes, &mut file)?;
            if let Some(mode) = os::mode(mode) {
                file.set_permissions(mode)?;
            }
            let known = Known { source: Source::Path(path), blake3: bytes.digest() };
            Ok(Entry::File { mode, from: known })
        }
        EntryType::Symlink => {
            let to = entry.link_name()?.and_then(|to| Some(to.to_str()?.to_owned()));
            let to = to.context("a link to nowhere")?;
            ensure!(stays(place, &to), "a link to {to}, out of the folder");
            os::symlink(&to, &path)?;
            Ok(Entry::Link { to })
        }
        EntryType::Link => bail!("a hard link, which is lost on nodes"),
        other => bail!("an entry of the kind {other:?}"),
    }
}

/// Whether a link at `place` to `to` stays in its folder.
fn stays(place: &str, to: &str) -> bool {
    let mut depth = place.matches('/').count();
    Path::new(to).components().all(|part| match part {
        Component::Normal(_) => {
            depth += 1;
            true
        }
        Component::ParentDir if depth > 0 => {
            depth -= 1;
            true
        }
        Component::CurDir => true,
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tar::{Builder, Header};

    /// An archive of one entry of that kind, under a name that nobody looks at.
    fn of_one(name: &str, kind: EntryType, to: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.tar.zst");
        let mut header = Header::new_gnu();
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.as_old_mut().linkname[..to.len()].copy_from_slice(to.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(0o755);
        header.set_size(0);
        header.set_cksum();
        let packed = zstd::Encoder::new(File::create(&file).unwrap(), 1).unwrap();
        let mut builder = Builder::new(packed);
        builder.append(&header, io::empty()).unwrap();
        builder.into_inner().unwrap().finish().unwrap();
        let into = folder.path().join("root");
        fs::create_dir(&into).unwrap();
        let error = check(&file, "", &into).unwrap_err();
        assert!(!folder.path().join("evil").exists());
        format!("{error:#}")
    }

    #[test]
    fn what_would_leave_the_folder_or_get_lost_is_refused() {
        assert!(of_one("../evil", EntryType::Regular, "").contains("leads out"));
        assert!(of_one("/evil", EntryType::Regular, "").contains("leads out"));
        assert!(of_one("a", EntryType::Link, "b").contains("hard link"));
        assert!(of_one("a", EntryType::Symlink, "/etc").contains("out of the folder"));
        assert!(of_one("b/a", EntryType::Symlink, "../../evil").contains("out of the folder"));
        assert!(of_one("a", EntryType::Fifo, "").contains("kind Fifo"));
        assert!(of_one("a", EntryType::Regular, "").contains("no program usr/bin/clang"));
    }

    #[test]
    fn links_may_go_up_as_far_as_they_are_deep() {
        assert!(stays("bin/true", "../usr/bin/clang") && stays("usr/bin/as", "clang"));
        assert!(!stays("bin/true", "../../x") && !stays("true", "../x") && !stays("a/b", "/x"));
        assert!(!stays("a/b", "x/../../../y"));
    }

    #[test]
    fn what_is_no_archive_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        fs::write(&file, "text").unwrap();
        assert!(check(&file, "", folder.path()).is_err());
        os::symlink(&file, &folder.path().join("b")).unwrap();
        let error = check(&folder.path().join("b"), "", folder.path()).unwrap_err();
        assert!(format!("{error:#}").contains("icecream refuses links"));
    }
}
