//! Pipes and sockets that have names among the files.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use rustix::io::Errno;

/// Makes a pipe for this user alone.
///
/// # Errors
/// Those of the system.
pub fn make_pipe(path: &Path) -> io::Result<()> {
    Ok(mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?)
}

/// Opens a pipe for writing, and never waits, neither here nor later; `None` while nobody has it open for reading.
///
/// # Errors
/// Those of the system.
pub fn open_pipe(path: &Path) -> io::Result<Option<File>> {
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(end) => Ok(Some(end.into())),
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Waits until such a pipe takes something, or has no reader any more, or the time is over.
pub fn wait_for_room(pipe: &File, limit: Duration) {
    let limit = Timespec::try_from(limit).ok();
    // Whatever it says, the next write tells.
    let _ = poll(&mut [PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::OUT)], limit.as_ref());
}

/// Connects to a socket, and hangs up: somebody listens there.
///
/// # Errors
/// Nobody does.
pub fn try_socket(path: &Path) -> io::Result<()> {
    UnixStream::connect(path).map(drop)
}

/// The same for a name of Linux's that is no file's.
///
/// # Errors
/// Nobody listens there.
pub fn try_abstract_socket(name: &str) -> io::Result<()> {
    let address = SocketAddr::from_abstract_name(name)?;
    UnixStream::connect_addr(&address).map(drop)
}
