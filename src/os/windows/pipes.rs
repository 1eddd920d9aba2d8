//! Pipes and sockets that have names among the files: there are none here, nor what needs them.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use super::not_here;

/// Makes a pipe.
///
/// # Errors
/// Always.
pub fn make_pipe(_: &Path) -> io::Result<()> {
    Err(not_here())
}

/// Opens a pipe for writing.
///
/// # Errors
/// Always.
pub fn open_pipe(_: &Path) -> io::Result<Option<File>> {
    Err(not_here())
}

/// Waits until such a pipe takes something.
pub fn wait_for_room(_: &File, _: Duration) {}

/// Connects to a socket, and hangs up.
///
/// # Errors
/// Always.
pub fn try_socket(_: &Path) -> io::Result<()> {
    Err(not_here())
}

/// The same for a name of Linux's that is no file's.
///
/// # Errors
/// Always.
pub fn try_abstract_socket(_: &str) -> io::Result<()> {
    Err(not_here())
}
