//! Files: what tells one from another, how they are opened with care, and who may write to them.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use rustix::fs::OFlags;

/// The administrator's file of overrides.
pub const OVERRIDE_FILE: &str = "/etc/dtlto-bridge/override.json";

/// What tells a file from all others of this machine, and its content from an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The device it lies on.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
    /// Bytes.
    pub size: u64,
    /// When it was written, in nanoseconds since 1970.
    pub modified_ns: i128,
    /// When anything about it was changed, in nanoseconds since 1970.
    pub changed_ns: i128,
    /// It is a regular file.
    pub is_file: bool,
}

impl Stat {
    fn from(found: &Metadata) -> Self {
        let ns = |seconds: i64, ns: i64| i128::from(seconds) * 1_000_000_000 + i128::from(ns);
        Stat {
            device: found.dev(),
            inode: found.ino(),
            size: found.size(),
            modified_ns: ns(found.mtime(), found.mtime_nsec()),
            changed_ns: ns(found.ctime(), found.ctime_nsec()),
            is_file: found.is_file(),
        }
    }

    /// Of an open file.
    ///
    /// # Errors
    /// Those of the system.
    pub fn of(file: &File) -> io::Result<Self> {
        file.metadata().map(|found| Stat::from(&found))
    }
}

/// Of a file, or of what a symbolic link leads to.
///
/// # Errors
/// Those of the system.
pub fn stat(path: &Path) -> io::Result<Stat> {
    fs::metadata(path).map(|found| Stat::from(&found))
}

/// Of a file, or of a symbolic link itself.
///
/// # Errors
/// Those of the system.
pub fn lstat(path: &Path) -> io::Result<Stat> {
    fs::symlink_metadata(path).map(|found| Stat::from(&found))
}

/// How files are opened with care.
pub trait Careful {
    /// A symbolic link is an error.
    fn no_follow(&mut self) -> &mut Self;
    /// A pipe does not hold us up.
    fn no_wait(&mut self) -> &mut Self;
    /// Both.
    fn no_follow_no_wait(&mut self) -> &mut Self;
    /// If it is made, for this user alone.
    fn private(&mut self) -> &mut Self;
}

impl Careful for OpenOptions {
    fn no_follow(&mut self) -> &mut Self {
        self.custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
    }

    fn no_wait(&mut self) -> &mut Self {
        self.custom_flags(OFlags::NONBLOCK.bits().cast_signed())
    }

    fn no_follow_no_wait(&mut self) -> &mut Self {
        self.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed())
    }

    fn private(&mut self) -> &mut Self {
        self.mode(0o600)
    }
}

/// Opens a device or pipe for writing. A pipe that nobody reads is an error here, not a wait for ever.
///
/// # Errors
/// Those of the system.
pub fn open_device(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().write(true).no_wait().open(path)?;
    rustix::fs::fcntl_setfl(&file, OFlags::empty())?;
    Ok(file)
}

/// Fills `buffer` with what stands at `offset`.
///
/// # Errors
/// The file is shorter, or cannot be read.
pub fn read_exact_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    file.read_exact_at(buffer, offset)
}

/// Writes at `offset`.
///
/// # Errors
/// Those of the system.
pub fn write_all_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    file.write_all_at(bytes, offset)
}

/// Locks a file as a whole, which keeps nobody from reading it. Waits for who holds it.
///
/// # Errors
/// Those of the system.
pub fn lock(file: &File) -> io::Result<()> {
    file.lock()
}

/// The same without waiting; tells whether we hold it now.
///
/// # Errors
/// Those of the system.
pub fn try_lock(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(fs::TryLockError::WouldBlock) => Ok(false),
        Err(fs::TryLockError::Error(error)) => Err(error),
    }
}

/// Makes a symbolic link to a file.
///
/// # Errors
/// Those of the system.
pub fn symlink(to: impl AsRef<Path>, link: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(to, link)
}

/// Permissions in the words of Unix, where there are any.
pub fn mode(mode: u32) -> Option<Permissions> {
    Some(Permissions::from_mode(mode))
}

/// It is a program that somebody may run.
pub fn is_executable(found: &Metadata) -> bool {
    found.is_file() && found.permissions().mode() & 0o111 != 0
}

/// The same, and everybody may.
pub fn is_executable_by_all(found: &Metadata) -> bool {
    found.is_file() && found.permissions().mode() & 0o111 == 0o111
}

/// Whose it is.
///
/// # Errors
/// Those of the system.
pub fn owner(path: &Path) -> io::Result<u32> {
    fs::metadata(path).map(|found| found.uid())
}

/// It belongs to this user.
pub fn is_mine(file: &File) -> bool {
    file.metadata().is_ok_and(|found| found.uid() == rustix::process::geteuid().as_raw())
}

/// Makes sure that only an administrator can have written a file.
///
/// # Errors
/// Somebody else can.
pub fn is_administrators(_: &Path, found: &Metadata) -> anyhow::Result<()> {
    ensure!(found.uid() == 0, "it does not belong to root");
    ensure!(found.mode() & 0o022 == 0, "others than root may write to it");
    Ok(())
}

/// A path as bytes, for a pipe.
pub fn path_bytes(path: &Path) -> Cow<'_, [u8]> {
    path.as_os_str().as_bytes().into()
}

/// A path that came as bytes.
pub fn path_from(bytes: &[u8]) -> PathBuf {
    OsStr::from_bytes(bytes).into()
}

/// Does what may fail while another program has a file open; that is no matter here.
///
/// # Errors
/// Those of the action.
pub fn patiently<T>(mut action: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    action()
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
    own_as(&folder, uid)?;
    Ok(folder)
}

/// Makes sure that `folder`, made if need be, is one that only this user writes to.
///
/// # Errors
/// It cannot be made, or belongs to somebody else.
pub fn own(folder: &Path) -> anyhow::Result<()> {
    own_as(folder, rustix::process::getuid().as_raw())
}

/// The same for the user `uid`.
///
/// # Errors
/// It cannot be made, or belongs to somebody else.
pub fn own_as(folder: &Path, uid: u32) -> anyhow::Result<()> {
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

/// Makes a folder, and those above it, for this user alone.
///
/// # Errors
/// Those of the system.
pub fn private_folders(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_others_may_write_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
        assert!(own(folder.path()).is_err());
        assert!(own(&folder.path().join("new")).is_ok());
        std::os::unix::fs::symlink(folder.path().join("new"), folder.path().join("link")).unwrap();
        assert!(own(&folder.path().join("link")).is_err());
    }
}
