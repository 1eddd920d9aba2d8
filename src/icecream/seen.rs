//! Whether a farm has anybody to send a job to, which icecream's client does not tell: it would work here and say
//! nothing. It asks once, and decides nothing.

use super::{daemon, scheduler, text};
use crate::cli::Icecream;

/// Schedulers that are asked before the default has to do.
const ASKED: usize = 4;

/// What can be seen of a farm from this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Other machines take jobs.
    Nodes {
        /// Jobs that may be in flight.
        in_flight: usize,
    },
    /// Nobody can be given a job, for this reason.
    Nobody(String),
    /// No scheduler answers: there may be none, or it may be out of reach.
    Silent,
}

/// Looks for a daemon on this machine, for its scheduler, and there for nodes that run programs of `platform`. Takes
/// seconds where somebody does not answer.
pub fn look(variables: &Icecream, platform: &str) -> Seen {
    if let Err(why) = daemon(variables) {
        return Seen::Nobody(format!("no iceccd takes jobs here, {why}"));
    }
    let mut candidates = scheduler::candidates(variables).into_iter().take(ASKED);
    let found = candidates.find_map(|address| Some((text::nodes(&address).ok()?, address)));
    let Some((nodes, (host, port))) = found else { return Seen::Silent };
    if nodes.iter().any(|node| node.is_of_use(platform)) {
        return Seen::Nodes { in_flight: text::in_flight(&nodes, platform) };
    }
    let but = if nodes.iter().any(|node| node.here) { " but this machine" } else { "" };
    Seen::Nobody(format!(
        "the scheduler {host}:{port} knows no node that takes jobs for {platform}{but}"
    ))
}
