//! Where the scheduler is: as the user says, where this machine's daemon is connected to, or as its configuration
//! says. It asks nobody.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::owner;
use crate::cli::Icecream;

/// The scheduler's port, unless it was started with another one.
const PORT: u16 = 8765;
/// Files of the daemon's own settings, on Debian and Fedora, and on openSUSE.
const CONFIGURATION: [&str; 2] = ["/etc/icecc/icecc.conf", "/etc/sysconfig/icecream"];
/// The keys for the scheduler there.
const KEYS: [&str; 2] = ["ICECC_SCHEDULER_HOST", "ICECREAM_SCHEDULER_HOST"];
/// What the kernel calls a connection that stands.
const ESTABLISHED: &str = "01";

/// A host and the port on which its scheduler takes daemons.
pub type Address = (String, u16);

/// Where a scheduler may be, the likeliest first.
pub fn candidates(variables: &Icecream) -> Vec<Address> {
    if let Some(named) = &variables.scheduler {
        return vec![address(named)];
    }
    let mut found = Vec::new();
    if let Some(owner) = owner(variables) {
        for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
            let text = fs::read_to_string(table).unwrap_or_default();
            found.extend(connections(&text, owner));
        }
    }
    // The usual port first: a daemon is connected to other daemons as well.
    found.sort_by_key(|(_, port)| *port != PORT);
    let files = CONFIGURATION.iter().filter_map(|file| fs::read_to_string(file).ok());
    found.extend(files.filter_map(|text| configured(&text)));
    found.dedup();
    found
}

/// `HOST` or `HOST:PORT`.
fn address(text: &str) -> Address {
    let port = text.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
    port.map_or((text.to_owned(), PORT), |(host, port)| (host.to_owned(), port))
}

/// The far ends of connections that the user with this number has, from a table of the kernel's.
fn connections(table: &str, owner: u32) -> Vec<Address> {
    let connection = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, _, remote, state, _, _, _, uid, ..] = fields[..] else { return None };
        if state != ESTABLISHED || uid.parse() != Ok(owner) {
            return None;
        }
        let (ip, port) = remote.split_once(':')?;
        Some((ip_of(ip)?.to_string(), u16::from_str_radix(port, 16).ok()?))
    };
    table.lines().skip(1).filter_map(connection).collect()
}

/// An address as the kernel writes it: words of 32 bits, each in this machine's own byte order.
fn ip_of(hex: &str) -> Option<IpAddr> {
    let word = |at: usize| {
        let digits = hex.get(at * 8..at * 8 + 8)?;
        Some(u32::from_str_radix(digits, 16).ok()?.to_ne_bytes())
    };
    match hex.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?];
            let bytes: [u8; 16] = words.concat().try_into().ok()?;
            Some(Ipv6Addr::from(bytes).to_canonical())
        }
        _ => None,
    }
}

/// The scheduler that a file of shell assignments names.
fn configured(text: &str) -> Option<Address> {
    text.lines().find_map(|line| {
        let (key, value) = line.trim().split_once('=')?;
        let value = value.trim_matches(['"', '\'', ' ']);
        (KEYS.contains(&key) && !value.is_empty()).then(|| address(value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout
   0: 0100007F:4A4D 00000000:0000 0A 00000000:00000000 00:00000000 00000000   103        0 1
   1: 0100007F:8A14 0105A8C0:223D 01 00000000:00000000 00:00000000 00000000   103        0 2
   2: 0100007F:8A14 0205A8C0:223D 01 00000000:00000000 00:00000000 00000000  1000        0 3
   3: short";

    #[cfg(target_endian = "little")]
    #[test]
    fn the_daemons_own_connections_are_found() {
        assert_eq!(connections(TABLE, 103), [("192.168.5.1".to_owned(), 8765)]);
        let mapped = TABLE.replace("0105A8C0", "0000000000000000FFFF00000105A8C0");
        assert_eq!(connections(&mapped, 103), [("192.168.5.1".to_owned(), 8765)]);
        assert_eq!(connections("", 103), []);
    }

    #[test]
    fn a_scheduler_may_have_a_port_of_its_own() {
        assert_eq!(address("build"), ("build".to_owned(), 8765));
        assert_eq!(address("10.0.0.1:18765"), ("10.0.0.1".to_owned(), 18765));
        assert_eq!(address("a:b"), ("a:b".to_owned(), 8765));
    }

    #[test]
    fn a_daemons_configuration_names_one() {
        let text = "# ICECC_SCHEDULER_HOST=\"no\"\nICECC_SCHEDULER_HOST=\"\"\n";
        assert_eq!(configured(text), None);
        let text = format!("{text}ICECREAM_SCHEDULER_HOST='build'\n");
        assert_eq!(configured(&text), Some(("build".to_owned(), 8765)));
    }
}
