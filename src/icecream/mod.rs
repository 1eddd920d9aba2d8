//! What can be learnt of a farm of icecream from this machine: where its daemon and its scheduler are, and what
//! the scheduler says of its nodes. It changes nothing, and does not know what is sent there.

pub mod scheduler;
mod seen;
pub mod text;

pub use seen::{Seen, look};

use std::path::PathBuf;

use crate::cli::Icecream;
use crate::os;

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
        match os::try_socket(&socket) {
            Ok(()) => return Ok(socket),
            Err(error) => tried.push(format!("{}: {error}", socket.display())),
        }
    }
    Err(tried.join("; "))
}

/// Whose daemon it is.
fn owner(variables: &Icecream) -> Option<u32> {
    sockets(variables).iter().find_map(|socket| os::owner(socket).ok())
}
