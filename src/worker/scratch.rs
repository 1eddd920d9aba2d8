//! The folders that jobs run in. Each holds a locked file, so that a later worker can tell the folder of a
//! running job from one whose worker was killed, and what memory the running ones were promised. It knows
//! nothing of what is in them.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use rustix::fs::OFlags;

use crate::os;

const LOCK: &str = "lock";
const PREFIX: &str = "job-";
/// How often, and with which pauses, a folder is removed in which a dying compiler still writes.
const REMOVALS: u32 = 50;
const PAUSE: Duration = Duration::from_millis(10);

/// The folder of all of this user's jobs.
#[derive(Clone, Debug)]
pub struct Scratch(PathBuf);

/// The folder of one job; removed when dropped.
#[derive(Debug)]
pub struct JobFolder {
    path: PathBuf,
    /// Locked as long as this process lives.
    _lock: File,
}

/// The folder of a job that does not run, and its lock: two workers must not remove it at once.
type LeftBehind = (PathBuf, Option<File>);

/// Why a job got no folder.
#[derive(Debug)]
pub enum NoFolder {
    /// The running jobs were promised this many bytes of memory: too many for one more.
    Full(u64),
    /// It cannot be made.
    Failed(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for NoFolder {
    fn from(error: E) -> Self {
        NoFolder::Failed(error.into())
    }
}

impl Scratch {
    /// Takes `dtlto-worker-<uid>` in `place`, and makes it if need be.
    ///
    /// # Errors
    /// It cannot be made, or is not this user's own.
    pub fn open(place: &Path) -> anyhow::Result<Scratch> {
        let uid = rustix::process::geteuid().as_raw();
        let folder = place.join(format!("dtlto-worker-{uid}"));
        os::own_as(&folder, uid).context("the worker's scratch folder")?;
        Ok(Scratch(folder))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Makes a job's folder, and removes those that killed workers left. The job is promised `memory`
    /// bytes; all that run at once get no more than `all`.
    ///
    /// # Errors
    /// There is not enough memory left to promise, or no folder can be made.
    pub fn job(&self, memory: u64, all: u64) -> Result<JobFolder, NoFolder> {
        // Between a folder's making and its locking nobody else may look.
        let turn = open_lock(&self.0.join("turn"))?;
        turn.lock()?;
        let (promised, left_behind) = self.look()?;
        let made = if promised.saturating_add(memory) > all {
            Err(NoFolder::Full(promised))
        } else {
            self.make(memory)
        };
        drop(turn);
        for (folder, _lock) in left_behind {
            remove(&folder);
        }
        made
    }

    /// The bytes that running jobs were promised, and the folders of jobs that do not run.
    fn look(&self) -> io::Result<(u64, Vec<LeftBehind>)> {
        let (mut promised, mut left_behind) = (0_u64, Vec::new());
        for entry in fs::read_dir(&self.0)?.flatten() {
            if !entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes()) {
                continue;
            }
            let folder = entry.path();
            let Ok(mut lock) = open_lock(&folder.join(LOCK)) else {
                left_behind.push((folder, None));
                continue;
            };
            match lock.try_lock() {
                Err(TryLockError::WouldBlock) => {
                    let mut text = String::new();
                    lock.read_to_string(&mut text)?;
                    promised = promised.saturating_add(text.parse().unwrap_or(0));
                }
                _ => left_behind.push((folder, Some(lock))),
            }
        }
        Ok((promised, left_behind))
    }

    fn make(&self, memory: u64) -> Result<JobFolder, NoFolder> {
        let own = fs::Permissions::from_mode(0o700);
        let mut builder = tempfile::Builder::new();
        let path = builder.prefix(PREFIX).permissions(own).tempdir_in(&self.0)?.keep();
        let locked = || -> io::Result<File> {
            let mut lock = open_lock(&path.join(LOCK))?;
            lock.lock()?;
            write!(lock, "{memory}")?;
            fs::DirBuilder::new().mode(0o700).create(path.join("work"))?;
            Ok(lock)
        };
        match locked() {
            Ok(lock) => Ok(JobFolder { path, _lock: lock }),
            Err(error) => {
                remove(&path);
                Err(error.into())
            }
        }
    }
}

/// Opens a file to be locked, made if need be.
pub(super) fn open_lock(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.custom_flags(OFlags::NOFOLLOW.bits() as i32).open(path)
}

impl JobFolder {
    /// All of it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The part in which the compiler may write.
    pub fn work(&self) -> PathBuf {
        self.path.join("work")
    }
}

impl Drop for JobFolder {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Removes a job's folder, patiently: its compiler may have been killed just now.
pub fn remove(folder: &Path) {
    for _ in 0..REMOVALS {
        match fs::remove_dir_all(folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => thread::sleep(PAUSE),
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch() -> (tempfile::TempDir, Scratch) {
        let place = tempfile::tempdir().unwrap();
        let scratch = Scratch::open(place.path()).unwrap();
        (place, scratch)
    }

    fn folders(scratch: &Scratch) -> usize {
        let entries = fs::read_dir(scratch.path()).unwrap().map(Result::unwrap);
        entries.filter(|entry| entry.file_type().unwrap().is_dir()).count()
    }

    #[test]
    fn a_job_has_a_folder_of_its_own_which_goes_with_it() {
        let (_place, scratch) = scratch();
        let job = scratch.job(1, 10).unwrap();
        assert_eq!(fs::metadata(job.path()).unwrap().permissions().mode() & 0o777, 0o700);
        fs::write(job.work().join("x"), "").unwrap();
        drop(job);
        assert_eq!(folders(&scratch), 0);
    }

    #[test]
    fn what_a_killed_worker_left_goes_with_the_next_job_and_running_ones_stay() {
        let (_place, scratch) = scratch();
        let running = scratch.job(1, 10).unwrap();
        fs::create_dir_all(scratch.path().join("job-old/work/deep")).unwrap();
        fs::write(scratch.path().join("job-old/lock"), "5").unwrap();
        fs::create_dir(scratch.path().join("job-older")).unwrap();
        let next = scratch.job(1, 10).unwrap();
        assert_eq!(folders(&scratch), 2);
        assert!(running.work().is_dir() && next.work().is_dir());
    }

    #[test]
    fn memory_is_promised_once() {
        let (_place, scratch) = scratch();
        let first = scratch.job(6, 10).unwrap();
        assert!(matches!(scratch.job(5, 10), Err(NoFolder::Full(6))));
        assert!(scratch.job(4, 10).is_ok());
        drop(first);
        assert!(scratch.job(10, 10).is_ok());
    }

    #[test]
    fn a_link_in_the_folders_place_is_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let uid = rustix::process::geteuid().as_raw();
        std::os::unix::fs::symlink("/tmp", place.path().join(format!("dtlto-worker-{uid}")))
            .unwrap();
        assert!(Scratch::open(place.path()).is_err());
    }
}
