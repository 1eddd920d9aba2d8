//! Unix, and of it Linux above all.

mod files;
mod pipes;
mod processes;
mod watch;

pub use files::*;
pub use pipes::*;
pub use processes::*;
pub use watch::*;

use std::borrow::Cow;
use std::path::PathBuf;

/// The variable that names the folder of users' settings, and where that is in a home otherwise.
pub const CONFIG: (&str, &str) = ("XDG_CONFIG_HOME", ".config");
/// The same for what can be made again.
pub const CACHE: (&str, &str) = ("XDG_CACHE_HOME", ".cache");
/// A terminal of which `TERM` says nothing cannot move its cursor.
pub const TERM_IS_TOLD: bool = true;
/// Farms are used whose clients take bundles or are kept from compiling here, and caches; workers can be run.
pub const FARMS: bool = true;

/// Shells here split command lines by the rules of Windows.
pub const WINDOWS_LINES: bool = false;

/// What a compiler printed, as standard error takes it.
pub fn printable(text: &[u8]) -> Cow<'_, [u8]> {
    text.into()
}

/// This user may do everything.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A user and a host as they are called here.
pub fn user_and_host() -> (String, String) {
    let uid = rustix::process::getuid().as_raw();
    let host = rustix::system::uname();
    (format!("uid {uid}"), host.nodename().to_string_lossy().into_owned())
}

/// A program of Incredibuild that is not on `PATH`; here they all are.
pub fn find_incredibuild(_: &str) -> Option<PathBuf> {
    None
}
