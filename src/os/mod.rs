//! What Unix and Windows do differently, behind the same functions on both: files, processes, signals and what
//! is known of this machine. It does not know links. The only code with conditions on the system.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub use unix::*;
#[cfg(windows)]
pub use windows::*;
