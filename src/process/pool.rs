//! Slots as lock files, which all programs of a user share and which die with their holder. It does not know
//! what a slot is a right to.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use crate::os::{self, Careful};

pub use crate::os::own_folder;

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
        options.read(true).write(true).create(true).truncate(false);
        options.private().no_follow().open(self.folder.join(name))
    }

    /// The file `turn`, locked, if nobody holds it now.
    ///
    /// # Errors
    /// The folder cannot be used.
    pub fn turn(&self) -> io::Result<Option<File>> {
        let turn = self.open("turn")?;
        let ours = os::try_lock(&turn)?;
        if ours {
            self.write_count(&turn)?;
        }
        Ok(ours.then_some(turn))
    }

    fn write_count(&self, turn: &File) -> io::Result<()> {
        let count = u32::try_from(self.count).unwrap_or(u32::MAX);
        os::write_all_at(turn, &count.to_le_bytes(), 0)
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
            if os::try_lock(&file)? {
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
        os::lock(&turn)?;
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
    if os::try_lock(turn).is_ok_and(|ours| ours) {
        return 0;
    }
    let mut count = [0xff; 4];
    let read = os::read_exact_at(turn, &mut count, 0);
    read.map_or(usize::MAX, |()| u32::from_le_bytes(count) as usize)
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
}
