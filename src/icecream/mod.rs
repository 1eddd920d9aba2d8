//! What can be learnt of a farm of icecream from this machine: where its daemon and its scheduler are, and what
//! the scheduler says of its nodes. It changes nothing, and does not know what is sent there.

pub mod scheduler;
mod seen;
pub mod text;

pub use seen::{Seen, look};

use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::{fs, io};

use crate::cli::Icecream;

/// Where a daemon of the system listens.
const SOCKET: &str = "/var/run/icecc/iceccd.socket";

/// Where the daemon of this machine may listen, in the order in which icecream's client tries.
pub fn sockets(variables: &Icecream) -> Vec<PathBuf> {
    match &variables.socket {
        Some(socket) => vec![socket.clone()],
        None => {
            let own = variables.home.as_ref().map(|home| home.join(".iceccd.socket"));
            [PathBuf::from(SOCKET)].into_iter().chain(own).collect()
        }
    }
}

/// The socket of a daemon that takes connections.
///
/// # Errors
/// There is none; the text names the sockets that were tried.
pub fn daemon(variables: &Icecream) -> Result<PathBuf, String> {
    let mut tried = Vec::new();
    for socket in sockets(variables) {
        match UnixStream::connect(&socket) {
            Ok(_) => return Ok(socket),
            Err(error) => tried.push(format!("{}: {error}", socket.display())),
        }
    }
    Err(tried.join("; "))
}

/// Whose daemon it is.
fn owner(variables: &Icecream) -> Option<u32> {
    let found = |socket: PathBuf| -> io::Result<u32> { Ok(fs::metadata(socket)?.uid()) };
    sockets(variables).into_iter().find_map(|socket| found(socket).ok())
}
