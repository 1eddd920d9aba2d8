//! Who may use a core of this machine: a make or ninja job server where there is one, else locks that all
//! links of this user share and that die with their holder. It does not know what a slot is used for.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};

/// Between two looks for a free slot; only one waiter of all links looks at a time.
const LOOK: Duration = Duration::from_millis(5);

/// The right to run one program; given back when dropped.
#[derive(Debug)]
pub struct Slot(Kind);

#[derive(Debug)]
enum Kind {
    /// The core that the linker itself leaves idle while it waits for us.
    Linker,
    Token {
        _token: jobserver::Acquired,
    },
    Lock {
        number: usize,
        _file: File,
    },
    /// Sharing is not possible here.
    Free,
}

/// The job server that `MAKEFLAGS` names, if it was handed down to us. To be called first of all: a file
/// opened earlier could have taken a number that `MAKEFLAGS` names.
#[allow(unsafe_code, reason = "adopting inherited descriptors is what the protocol asks for")]
pub fn inherited_server() -> Option<jobserver::Client> {
    // SAFETY: nothing of ours is open yet, and the crate checks that the numbers are pipes.
    unsafe { jobserver::Client::from_env_ext(true) }.client.ok()
}

impl Slot {
    /// A slot of a machine on which nothing can be shared.
    pub fn unshared() -> Self {
        Slot(Kind::Free)
    }
}

/// Where slots come from.
#[derive(Debug)]
pub struct Slots(Source);

#[derive(Debug)]
enum Source {
    Server { helper: jobserver::HelperThread, linker: bool },
    Locks { pool: Pool, ask: mpsc::Sender<()> },
    Free,
}

impl Slots {
    /// Tokens of a job server. `arrived` gets each slot that was asked for.
    ///
    /// # Errors
    /// The thread that waits for tokens cannot be started.
    pub fn server(
        client: jobserver::Client,
        arrived: impl Fn(io::Result<Slot>) + Send + 'static,
    ) -> anyhow::Result<Self> {
        let helper = client.into_helper_thread(move |token| {
            arrived(token.map(|token| Slot(Kind::Token { _token: token })));
        })?;
        Ok(Slots(Source::Server { helper, linker: true }))
    }

    /// The locks of this user, `count` of them, in a folder that is made if need be. `arrived` gets each
    /// slot that was asked for.
    ///
    /// # Errors
    /// The folder cannot be used, or is not this user's own.
    pub fn locks(
        count: usize,
        arrived: impl Fn(io::Result<Slot>) + Send + 'static,
    ) -> anyhow::Result<Self> {
        let pool = Pool { folder: own_folder()?, count };
        let (ask, asked) = mpsc::channel::<()>();
        let waiter = pool.clone();
        thread::Builder::new()
            .name("slots".into())
            .spawn(move || asked.iter().for_each(|()| arrived(waiter.wait())))?;
        Ok(Slots(Source::Locks { pool, ask }))
    }

    /// Slots without end, for a machine on which nothing can be shared.
    pub fn unshared() -> Self {
        Slots(Source::Free)
    }

    /// A slot, if one is free now.
    pub fn take(&mut self) -> Option<Slot> {
        match &mut self.0 {
            Source::Server { linker, .. } => std::mem::take(linker).then_some(Slot(Kind::Linker)),
            Source::Locks { pool, .. } => pool.take(),
            Source::Free => Some(Slot::unshared()),
        }
    }

    /// Asks for a slot that is not free now; it arrives later.
    pub fn ask(&mut self) {
        match &mut self.0 {
            Source::Server { helper, .. } => helper.request_token(),
            // The waiter lives as long as we do.
            Source::Locks { ask, .. } => drop(ask.send(())),
            Source::Free => {}
        }
    }

    /// Gives a slot back.
    pub fn give_back(&mut self, slot: Slot) {
        if let (Source::Server { linker, .. }, Kind::Linker) = (&mut self.0, &slot.0) {
            *linker = true;
        }
    }

    /// Somebody else waits for `slot`: give it back rather than use it again. A job server's tokens are
    /// wanted by programs that we cannot see.
    pub fn wanted(&self, slot: &Slot) -> bool {
        match (&self.0, &slot.0) {
            (Source::Locks { pool, .. }, Kind::Lock { number, .. }) => {
                pool.turn().is_ok_and(|turn| *number < waited_for(&turn))
            }
            _ => false,
        }
    }
}

/// Lock files `0`, `1`, ..., and `turn`, which the one holds who waits for a free one: without it a busy
/// link would take its own slot again before a waiting one has seen it free. It tells how many slots that
/// one shares: a link that may run more jobs at once is not held up by one that may run fewer.
#[derive(Clone, Debug)]
struct Pool {
    folder: PathBuf,
    count: usize,
}

impl Pool {
    fn open(&self, name: &str) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32);
        options.open(self.folder.join(name))
    }

    fn turn(&self) -> io::Result<File> {
        self.open("turn")
    }

    /// A free slot, but for the first `reserved`.
    fn free(&self, reserved: usize) -> io::Result<Option<Slot>> {
        for number in reserved..self.count {
            let file = self.open(&number.to_string())?;
            match file.try_lock() {
                Ok(()) => return Ok(Some(Slot(Kind::Lock { number, _file: file }))),
                Err(fs::TryLockError::WouldBlock) => {}
                Err(fs::TryLockError::Error(error)) => return Err(error),
            }
        }
        Ok(None)
    }

    fn take(&self) -> Option<Slot> {
        let turn = self.turn().ok()?;
        self.free(waited_for(&turn)).ok()?
    }

    fn wait(&self) -> io::Result<Slot> {
        let turn = self.turn()?;
        turn.lock()?;
        turn.write_all_at(&u32::try_from(self.count).unwrap_or(u32::MAX).to_le_bytes(), 0)?;
        loop {
            if let Some(slot) = self.free(0)? {
                return Ok(slot);
            }
            thread::sleep(LOOK);
        }
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

/// `/run/user/UID/dtlto-bridge` or `/tmp/dtlto-bridge-UID`, whatever `TMPDIR` says: all links of a user must
/// agree on it.
fn own_folder() -> anyhow::Result<PathBuf> {
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
        let pool = Pool { folder: folder.path().to_owned(), count };
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
        while pool.turn().unwrap().try_lock().is_ok() {
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
