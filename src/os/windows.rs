//! Windows. Whatever is unsafe is a call of the system, and lies below here.

#![allow(unsafe_code, reason = "the standard library lacks these calls of the system")]

mod files;
mod machine;
mod pipes;
mod processes;
mod watch;

pub use files::*;
pub use machine::*;
pub use pipes::*;
pub use processes::*;
pub use watch::*;

use std::ffi::OsStr;
use std::io;
use std::os::windows::ffi::OsStrExt;

/// The variable that names the folder of users' settings, and where that is in a home otherwise.
pub const CONFIG: (&str, &str) = ("APPDATA", r"AppData\Roaming");
/// The same for what can be made again.
pub const CACHE: (&str, &str) = ("LOCALAPPDATA", r"AppData\Local");
/// A terminal of which `TERM` says nothing cannot move its cursor; here none says anything.
pub const TERM_IS_TOLD: bool = false;
/// Farms are used whose clients take bundles or are kept from compiling here, and caches; workers can be run.
pub const FARMS: bool = false;
/// Shells here split command lines by the rules of Windows.
pub const WINDOWS_LINES: bool = true;

/// What only those ask for who were refused before.
fn not_here() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "this needs Linux")
}

/// A text as the system takes it.
fn wide(text: impl AsRef<OsStr>) -> Vec<u16> {
    text.as_ref().encode_wide().chain([0]).collect()
}

/// The result of a call that returns 0 when it failed.
fn done(result: i32) -> io::Result<()> {
    if result == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
