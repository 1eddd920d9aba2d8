//! Slots as lock files, which all programs of a user share and which die with their holder. It does not know
//! what a slot is a right to.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};

/// Between two looks for a free slot; only one waiter looks at a time.
pub const LOOK: Duration = Duration::from_millis(5);

/// A lock that is held; given up when dropped.
#[derive(Debug)]
pub struct Lock {
    number: usize,
    _file: File,
}

/// Lock files `0`, `1`, ..., and `turn`, which the one holds who waits for a free one: without it a busy
/// program would take its own slot again before a waiting one has seen it free. It tells how many slots that
/// one shares: a program that may use more of them is not held up by one that may use fewer.
#[derive(Clone, Debug)]
pub struct Pool {
    folder: PathBuf,
    count: usize,
}

impl Pool {
    /// `count` slots in a folder that exists.
    pub fn new(folder: PathBuf, count: usize) -> Self {
        Pool { folder, count }
    }

    fn open(&self, name: &str) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32);
        options.open(self.folder.join(name))
    }

    /// The file `turn`, locked, if nobody holds it now.
    ///
    /// # Errors
    /// The folder cannot be used.
    pub fn turn(&self) -> io::Result<Option<File>> {
        let turn = self.open("turn")?;
        let ours = locked(&turn)?;
        if ours {
            self.write_count(&turn)?;
        }
        Ok(ours.then_some(turn))
    }

    fn write_count(&self, turn: &File) -> io::Result<()> {
        turn.write_all_at(&u32::try_from(self.count).unwrap_or(u32::MAX).to_le_bytes(), 0)
    }

    /// Locks on `wanted` free slots, but for the first `reserved`; fewer where no more are free.
    ///
    /// # Errors
    /// The folder cannot be used.
    pub fn free(&self, reserved: usize, wanted: usize) -> io::Result<Vec<Lock>> {
        let mut found = Vec::new();
        for number in reserved..self.count {
            if found.len() == wanted {
                break;
            }
            let file = self.open(&number.to_string())?;
            if locked(&file)? {
                found.push(Lock { number, _file: file });
            }
        }
        Ok(found)
    }

    /// A slot, if one is free and nobody waits for it.
    pub fn take(&self) -> Option<Lock> {
        let turn = self.open("turn").ok()?;
        self.free(waited_for(&turn), 1).ok()?.pop()
    }

    /// Waits for a slot.
    ///
    /// # Errors
    /// The folder cannot be used.
    pub fn wait(&self) -> io::Result<Lock> {
        let turn = self.open("turn")?;
        turn.lock()?;
        self.write_count(&turn)?;
        loop {
            if let Some(slot) = self.free(0, 1)?.pop() {
                return Ok(slot);
            }
            thread::sleep(LOOK);
        }
    }

    /// Somebody waits for this slot.
    pub fn wanted(&self, lock: &Lock) -> bool {
        self.open("turn").is_ok_and(|turn| lock.number < waited_for(&turn))
    }
}

/// For how many slots, counted from the first, somebody waits. Takes the turn if nobody does.
fn waited_for(turn: &File) -> usize {
    if turn.try_lock().is_ok() {
        return 0;
    }
    let mut count = [0xff; 4];
    let read = turn.read_exact_at(&mut count, 0);
    read.map_or(usize::MAX, |()| u32::from_le_bytes(count) as usize)
}

fn locked(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(fs::TryLockError::WouldBlock) => Ok(false),
        Err(fs::TryLockError::Error(error)) => Err(error),
    }
}

/// `/run/user/UID/dtlto-bridge` or `/tmp/dtlto-bridge-UID`, whatever `TMPDIR` says: all programs of a user
/// must agree on it. It is made if need be.
///
/// # Errors
/// It cannot be made, or is not this user's alone.
pub fn own_folder() -> anyhow::Result<PathBuf> {
    let uid = rustix::process::getuid().as_raw();
    let session = PathBuf::from(format!("/run/user/{uid}"));
    let folder = match fs::metadata(&session) {
        Ok(found) if found.uid() == uid => session.join("dtlto-bridge"),
        _ => PathBuf::from(format!("/tmp/dtlto-bridge-{uid}")),
    };
    own(&folder, uid)?;
    Ok(folder)
}

/// Makes sure that `folder`, made if need be, is one that only the user `uid` writes to.
///
/// # Errors
/// It cannot be made, or belongs to somebody else.
pub fn own(folder: &Path, uid: u32) -> anyhow::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(error).with_context(|| format!("{} cannot be made", folder.display()));
        }
        _ => {}
    }
    let found = fs::symlink_metadata(folder)?;
    if !found.is_dir() || found.uid() != uid || found.mode() & 0o022 != 0 {
        bail!("{} is not a folder of this user alone", folder.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(count: usize) -> (tempfile::TempDir, Pool) {
        let folder = tempfile::tempdir().unwrap();
        let pool = Pool::new(folder.path().to_owned(), count);
        (folder, pool)
    }

    #[test]
    fn there_are_as_many_slots_as_said() {
        let (_folder, pool) = pool(2);
        let (first, second) = (pool.take(), pool.take());
        assert!(first.is_some() && second.is_some() && pool.take().is_none());
        drop(first);
        assert!(pool.take().is_some());
    }

    #[test]
    fn a_waiter_is_served_before_one_who_comes_again() {
        let (_folder, pool) = pool(1);
        let held = pool.take().unwrap();
        let waiter = pool.clone();
        let waiting = thread::spawn(move || waiter.wait().unwrap());
        while pool.turn().unwrap().is_some() {
            thread::yield_now();
        }
        drop(held);
        assert!(pool.take().is_none(), "the waiter has the turn or the slot");
        drop(waiting.join().unwrap());
        assert!(pool.take().is_some());
    }

    #[test]
    fn a_folder_that_others_may_write_is_not_used() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let uid = rustix::process::getuid().as_raw();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(own(folder.path(), uid).is_err());
        assert!(own(&folder.path().join("new"), uid).is_ok());
        std::os::unix::fs::symlink(folder.path().join("new"), folder.path().join("link")).unwrap();
        assert!(own(&folder.path().join("link"), uid).is_err());
    }
}
