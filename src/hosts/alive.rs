//! Whether a host's port still answers while a long job runs there: distcc has no keepalive. It does not know
//! what the host does. distccd writes four lines to its log for each look.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// Between two looks, and from the start of a job to the first.
pub const EVERY: Duration = Duration::from_secs(10);
/// So many looks in vain, one after the other, and the host is lost.
const LOST: u32 = 3;

/// The addresses of a host. This asks the name service, which can take long: to be called in a thread that may
/// wait.
///
/// # Errors
/// The name is not known.
pub fn addresses(address: &(String, u16)) -> io::Result<Vec<SocketAddr>> {
    Ok((&*address.0, address.1).to_socket_addrs()?.collect())
}

/// Connects to one of `addresses` and hangs up. A daemon all of whose slots are taken still answers: the
/// system does it.
///
/// # Errors
/// None of them answers within `timeout`.
pub fn answers(addresses: &[SocketAddr], timeout: Duration) -> io::Result<()> {
    let until = Instant::now() + timeout;
    let mut result = Err(io::ErrorKind::AddrNotAvailable.into());
    for address in addresses {
        // Zero would be an error of its own.
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        result = TcpStream::connect_timeout(address, left).map(drop);
        if result.is_ok() {
            break;
        }
    }
    result
}

/// The looks at one host during one job.
#[derive(Clone, Copy, Debug)]
pub struct Pulse {
    next: Instant,
    in_vain: u32,
}

impl Pulse {
    /// Of a job that starts now.
    pub fn new(now: Instant) -> Self {
        Pulse { next: now + EVERY, in_vain: 0 }
    }

    /// When to look.
    pub fn next(&self) -> Instant {
        self.next
    }

    /// A look is under way; another one is not due before this has a result.
    pub fn put_off(&mut self, now: Instant) {
        self.next = now + EVERY;
    }

    /// Takes the result of a look; `true`: the host is lost.
    pub fn looked(&mut self, now: Instant, answers: bool) -> bool {
        self.next = now + EVERY;
        self.in_vain = if answers { 0 } else { self.in_vain + 1 };
        self.in_vain >= LOST
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_port_answers_as_long_as_somebody_listens() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let found = addresses(&("127.0.0.1".into(), port)).unwrap();
        assert!(answers(&found, Duration::from_secs(5)).is_ok());
        drop(listener);
        assert!(answers(&found, Duration::from_secs(5)).is_err());
        assert!(answers(&[], Duration::from_secs(5)).is_err());
    }

    #[test]
    fn the_next_address_is_tried() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let good = listener.local_addr().unwrap();
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert!(answers(&[closed, good], Duration::from_secs(5)).is_ok());
    }

    #[test]
    fn three_looks_in_vain_in_a_row_mean_lost() {
        let now = Instant::now();
        let mut pulse = Pulse::new(now);
        assert_eq!(pulse.next(), now + EVERY);
        let looks = [false, false, true, false, false, false];
        let lost: Vec<bool> = looks.iter().map(|&answers| pulse.looked(now, answers)).collect();
        assert_eq!(lost, [false, false, false, false, false, true]);
    }
}
