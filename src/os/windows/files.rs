//! Files: what tells one from another, how they are opened with care, and who may write to them.

use std::borrow::Cow;
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::mem::zeroed;
use std::os::windows::fs::{FileExt, OpenOptionsExt};
use std::os::windows::io::AsRawHandle;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use windows_sys::Win32::Foundation::{
    ERROR_ACCESS_DENIED, ERROR_DIR_NOT_EMPTY, ERROR_LOCK_VIOLATION, ERROR_SHARING_VIOLATION,
    ERROR_USER_MAPPED_FILE, LocalFree,
};
use windows_sys::Win32::Security::Authorization::{GetNamedSecurityInfoW, SE_FILE_OBJECT};
use windows_sys::Win32::Security::{
    IsWellKnownSid, OWNER_SECURITY_INFORMATION, PSID, WinBuiltinAdministratorsSid,
    WinLocalSystemSid,
};
use windows_sys::Win32::Storage::FileSystem::{
    BY_HANDLE_FILE_INFORMATION, FILE_ATTRIBUTE_DEVICE, FILE_ATTRIBUTE_DIRECTORY,
    FILE_FLAG_BACKUP_SEMANTICS, FILE_FLAG_OPEN_REPARSE_POINT, GetFileInformationByHandle,
    LOCKFILE_EXCLUSIVE_LOCK, LOCKFILE_FAIL_IMMEDIATELY, LockFileEx,
};
use windows_sys::Win32::System::IO::OVERLAPPED;

use super::{done, not_here, wide};

/// The administrator's file of overrides.
pub const OVERRIDE_FILE: &str = r"C:\ProgramData\dtlto-bridge\override.json";

/// How long a file may stay in the hands of a virus scanner, an indexer, or a program that is being ended.
const PATIENCE: Duration = Duration::from_secs(2);
/// 100 ns between 1601, where the system's times begin, and 1970.
const SINCE_1601: i128 = 116_444_736_000_000_000;

/// What tells a file from all others of this machine, and its content from an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The volume it lies on.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
    /// Bytes.
    pub size: u64,
    /// When it was written, in nanoseconds since 1970.
    pub modified_ns: i128,
    /// The same: the system keeps no time of other changes.
    pub changed_ns: i128,
    /// It is a regular file.
    pub is_file: bool,
}

impl Stat {
    /// Of an open file.
    ///
    /// # Errors
    /// Those of the system.
    pub fn of(file: &File) -> io::Result<Self> {
        // SAFETY: plain numbers, which the call fills; the handle is open as long as `file` is.
        let found = unsafe {
            let mut found: BY_HANDLE_FILE_INFORMATION = zeroed();
            done(GetFileInformationByHandle(file.as_raw_handle(), &mut found))?;
            found
        };
        let both = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        let written = found.ftLastWriteTime;
        let written = i128::from(both(written.dwHighDateTime, written.dwLowDateTime));
        let modified_ns = (written - SINCE_1601) * 100;
        let other = FILE_ATTRIBUTE_DIRECTORY | FILE_ATTRIBUTE_DEVICE;
        Ok(Stat {
            device: found.dwVolumeSerialNumber.into(),
            inode: both(found.nFileIndexHigh, found.nFileIndexLow),
            size: both(found.nFileSizeHigh, found.nFileSizeLow),
            modified_ns,
            changed_ns: modified_ns,
            is_file: found.dwFileAttributes & other == 0,
        })
    }
}

/// Of a file, or of what a symbolic link leads to.
///
/// # Errors
/// Those of the system.
pub fn stat(path: &Path) -> io::Result<Stat> {
    look(path, FILE_FLAG_BACKUP_SEMANTICS)
}

/// Of a file, or of a symbolic link itself.
///
/// # Errors
/// Those of the system.
pub fn lstat(path: &Path) -> io::Result<Stat> {
    look(path, FILE_FLAG_BACKUP_SEMANTICS | FILE_FLAG_OPEN_REPARSE_POINT)
}

/// Opened for its attributes alone, a file hinders nobody.
fn look(path: &Path, flags: u32) -> io::Result<Stat> {
    Stat::of(&OpenOptions::new().access_mode(0).custom_flags(flags).open(path)?)
}

/// How files are opened with care.
pub trait Careful {
    /// A symbolic link is not followed.
    fn no_follow(&mut self) -> &mut Self;
    /// A pipe does not hold us up; here none has the name of a file.
    fn no_wait(&mut self) -> &mut Self;
    /// Both.
    fn no_follow_no_wait(&mut self) -> &mut Self;
    /// If it is made, for this user alone; here its folder sees to that.
    fn private(&mut self) -> &mut Self;
}

impl Careful for OpenOptions {
    fn no_follow(&mut self) -> &mut Self {
        self.custom_flags(FILE_FLAG_OPEN_REPARSE_POINT)
    }

    fn no_wait(&mut self) -> &mut Self {
        self
    }

    fn no_follow_no_wait(&mut self) -> &mut Self {
        self.no_follow()
    }

    fn private(&mut self) -> &mut Self {
        self
    }
}

/// Opens a device or pipe for writing.
///
/// # Errors
/// Those of the system.
pub fn open_device(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).open(path)
}

/// Fills `buffer` with what stands at `offset`.
///
/// # Errors
/// The file is shorter, or cannot be read.
pub fn read_exact_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    let mut read = 0;
    while read < buffer.len() {
        match file.seek_read(&mut buffer[read..], offset + read as u64)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            more => read += more,
        }
    }
    Ok(())
}

/// Writes at `offset`.
///
/// # Errors
/// Those of the system.
pub fn write_all_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    let mut written = 0;
    while written < bytes.len() {
        written += file.seek_write(&bytes[written..], offset + written as u64)?;
    }
    Ok(())
}

/// Locks a file as a whole, which keeps nobody from reading it. Waits for who holds it.
///
/// # Errors
/// Those of the system.
pub fn lock(file: &File) -> io::Result<()> {
    lock_with(file, LOCKFILE_EXCLUSIVE_LOCK)
}

/// The same without waiting; tells whether we hold it now.
///
/// # Errors
/// Those of the system.
pub fn try_lock(file: &File) -> io::Result<bool> {
    match lock_with(file, LOCKFILE_EXCLUSIVE_LOCK | LOCKFILE_FAIL_IMMEDIATELY) {
        Err(error) if error.raw_os_error() == Some(ERROR_LOCK_VIOLATION.cast_signed()) => Ok(false),
        locked => locked.map(|()| true),
    }
}

/// What is locked cannot be read by others: so it is a byte far behind the file's end.
fn lock_with(file: &File, flags: u32) -> io::Result<()> {
    // SAFETY: plain numbers; the call returns when it is done, since the file is not asynchronous.
    unsafe {
        let mut at: OVERLAPPED = zeroed();
        at.Anonymous.Anonymous.OffsetHigh = 1 << 30;
        done(LockFileEx(file.as_raw_handle(), flags, 0, 1, 0, &mut at))
    }
}

/// Makes a symbolic link to a file.
///
/// # Errors
/// Those of the system, which few users may ask for it.
pub fn symlink(to: impl AsRef<Path>, link: &Path) -> io::Result<()> {
    std::os::windows::fs::symlink_file(to, link)
}

/// Permissions in the words of Unix, where there are any.
pub fn mode(_: u32) -> Option<Permissions> {
    None
}

/// It is a program that somebody may run.
pub fn is_executable(found: &Metadata) -> bool {
    found.is_file()
}

/// The same, and everybody may; here that is no matter of single files.
pub fn is_executable_by_all(found: &Metadata) -> bool {
    is_executable(found)
}

/// Whose it is, as a number; here users have none.
///
/// # Errors
/// Always.
pub fn owner(_: &Path) -> io::Result<u32> {
    Err(not_here())
}

/// It belongs to this user: their folder sees to that here.
pub fn is_mine(_: &File) -> bool {
    true
}

/// Makes sure that only an administrator can have written a file.
///
/// # Errors
/// Its owner is another.
pub fn is_administrators(path: &Path, _: &Metadata) -> anyhow::Result<()> {
    let name = wide(path);
    let (mut owner, mut kept): (PSID, _) = (null_mut(), null_mut());
    // SAFETY: `name` ends with 0; `owner` points into `kept`, which is freed once it was looked at.
    let trusted = unsafe {
        let (wanted, none) = (OWNER_SECURITY_INFORMATION, null_mut());
        let failed = GetNamedSecurityInfoW(
            name.as_ptr(),
            SE_FILE_OBJECT,
            wanted,
            &mut owner,
            none,
            null_mut(),
            null_mut(),
            &mut kept,
        );
        let known = [WinBuiltinAdministratorsSid, WinLocalSystemSid];
        let trusted = failed == 0 && known.iter().any(|&sid| IsWellKnownSid(owner, sid) != 0);
        LocalFree(kept);
        trusted
    };
    ensure!(trusted, "it does not belong to the administrators");
    Ok(())
}

/// A path as bytes, for a pipe.
pub fn path_bytes(path: &Path) -> Cow<'_, [u8]> {
    match path.to_string_lossy() {
        Cow::Borrowed(text) => text.as_bytes().into(),
        Cow::Owned(text) => text.into_bytes().into(),
    }
}

/// A path that came as bytes.
pub fn path_from(bytes: &[u8]) -> PathBuf {
    String::from_utf8_lossy(bytes).into_owned().into()
}

/// Does what may fail while another program has a file open: again and again, for a while.
///
/// # Errors
/// Those of the action.
pub fn patiently<T>(mut action: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    const PASSING: [u32; 4] =
        [ERROR_ACCESS_DENIED, ERROR_DIR_NOT_EMPTY, ERROR_SHARING_VIOLATION, ERROR_USER_MAPPED_FILE];
    let (until, mut pause) = (Instant::now() + PATIENCE, Duration::from_millis(1));
    loop {
        let done = action();
        let code = done.as_ref().err().and_then(io::Error::raw_os_error);
        let passing = code.is_some_and(|code| PASSING.contains(&code.cast_unsigned()));
        if !passing || Instant::now() > until {
            return done;
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(100));
    }
}

/// `%USERPROFILE%\AppData\Local\dtlto-bridge`: all programs of a user must agree on it, and a profile is its
/// user's alone. It is made if need be.
///
/// # Errors
/// It cannot be made.
#[allow(clippy::disallowed_methods, reason = "the system's own word on where a user's folder is")]
pub fn own_folder() -> anyhow::Result<PathBuf> {
    let home = std::env::home_dir().context("this user has no profile folder")?;
    let folder = home.join(super::CACHE.1).join("dtlto-bridge");
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    Ok(folder)
}

/// Makes sure that there is a folder of this user alone; here the folder around it sees to that.
///
/// # Errors
/// It cannot be made.
pub fn own(folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())
}

/// Makes a folder, and those above it, for this user alone; here the folder around them sees to that.
///
/// # Errors
/// Those of the system.
pub fn private_folders(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)
}
