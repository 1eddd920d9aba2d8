//! Entries in sccache, whichever storage the team has given it. A miss holds nothing of sccache's while the job
//! runs: asking and storing are calls of their own. It knows sccache's words; how its server lives is told elsewhere.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use super::server::Server;
use super::shim::{Called, Calls, check_version, version};
use super::{About, Key, NO_START, Store, Trouble};
use crate::process::Groups;

/// The oldest one that takes a preprocessed file for what it is.
const OLDEST: (u32, u32) = (0, 14);
/// Has a call forget what the cache holds; users set it too.
const AFRESH: &str = "SCCACHE_RECACHE";
/// Of the user's variables, clients get these, which mean single calls.
const FOR_CALLS: [&str; 2] = [AFRESH, "SCCACHE_NO_CACHE"];
/// sccache as a store.
#[derive(Debug)]
pub(super) struct Sccache {
    calls: Calls,
    server: Server,
    groups: Arc<Groups>,
}

impl Sccache {
    /// Finds or starts the server.
    pub(super) fn open(about: &About) -> Result<Self, Trouble> {
        check_version(&version(about)?, OLDEST)?;
        let server = Server::new(about)?;
        server.find_or_start(&about.groups, about.deadline)?;
        let mut calls = Calls::new(about, AFRESH)?;
        // A client passes its environment on: no secret belongs into it.
        calls.clear = true;
        calls.set = client(&about.environment);
        calls.set.extend([server.variable()]);
        Ok(Sccache { calls, server, groups: about.groups.clone() })
    }

    /// `call`, and once more if the server had died. Another call may have started it again by then.
    fn served(
        &self,
        deadline: Instant,
        call: impl Fn() -> Result<Called, Trouble>,
    ) -> Result<Called, Trouble> {
        let before = self.server.starts();
        let died = || !self.server.answers() || self.server.starts() != before;
        match call() {
            Err(Trouble::Failed(_)) | Ok(Called::NotTaken) if died() => {
                self.server.find_or_start(&self.groups, deadline)?;
                call()
            }
            called => called,
        }
    }
}

/// The environment of a client, but for the server's address.
fn client(user: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let path = user.get("PATH").map_or("/usr/bin:/bin", String::as_str);
    // Without a home it would ask the system for one; and the user's file is the server's.
    let fixed = [("PATH", path), ("HOME", "/"), ("SCCACHE_CONF", "/dev/null"), NO_START];
    let fixed = fixed.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let of_the_user = user.iter().filter(|(name, _)| FOR_CALLS.contains(&name.as_str()));
    fixed
        .into_iter()
        .chain(of_the_user.map(|(name, value)| (name.clone(), value.clone())))
        .collect()
}

/// What the tool did not do, though all its parts are there.
const NOT_TAKEN: &str = "it did not take the call: its server died, or it is too old";

impl Store for Sccache {
    fn get(&self, key: &Key, into: &Path, deadline: Instant) -> Result<bool, Trouble> {
        match self.served(deadline, || self.calls.get(key, into, deadline))? {
            Called::Made => Ok(true),
            Called::Absent => Ok(false),
            Called::NotTaken => Err(Trouble::Failed(NOT_TAKEN.into())),
        }
    }

    fn put(&self, key: &Key, entry: &Path, deadline: Instant) -> Result<(), Trouble> {
        match self.served(deadline, || self.calls.put(key, entry, deadline))? {
            Called::Made => Ok(()),
            Called::Absent => Err(Trouble::Failed(super::NOT_KEPT.into())),
            Called::NotTaken => Err(Trouble::Failed(NOT_TAKEN.into())),
        }
    }

    fn describe(&self, deadline: Instant) -> Result<Vec<String>, Trouble> {
        let printed = self.calls.ask(&["--show-stats", "--stats-format=json"], deadline)?;
        let told: serde_json::Value = serde_json::from_str(&printed)
            .map_err(|error| Trouble::Failed(format!("its statistics: {error}")))?;
        let text = |name: &str| told[name].as_str().unwrap_or("?").to_owned();
        let count = |name: &str| told["stats"][name].as_u64().unwrap_or(0);
        Ok(vec![
            self.server.shown(),
            format!("storage: {}", text("cache_location")),
            format!(
                "since the server of sccache {} started: {} calls, {} errors of reading, {} of writing",
                text("version"),
                count("compile_requests"),
                count("cache_read_errors"),
                count("cache_write_errors")
            ),
        ])
    }
}
