//! Somebody else's cache as a store of finished objects: asked before a job runs, fed after it. It knows keys and
//! files; it does not know jobs' fates, queues or how many calls are in flight.

mod breaker;
mod ccache;
pub mod client;
pub mod dist;
pub mod entry;
pub mod key;
pub mod last;
mod sccache;
mod server;
mod shim;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

pub use client::{Answer, Client, Feed, Hit, Mode, NotFed, Opener};

use crate::cli::Cache;
use crate::os;
use crate::process::Groups;

/// The content of a job, as a name: two jobs of the same key make the same objects.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key([u8; 32]);

impl Key {
    /// The key of this BLAKE3 digest.
    pub const fn new(digest: [u8; 32]) -> Self {
        Key(digest)
    }

    /// The digest.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// 64 hex digits, lower case.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
    }
}

/// What a cache's tool did not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It was not ready by its deadline, and was ended.
    TimedOut,
    /// It failed, in words for people.
    Failed(String),
    /// The link is given up: not the cache's fault.
    Cancelled,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::TimedOut => f.write_str("it did not answer in time"),
            Trouble::Failed(words) => f.write_str(words),
            Trouble::Cancelled => f.write_str("the link was given up"),
        }
    }
}

impl std::error::Error for Trouble {}

/// Somebody else's cache, as a store of files by key. Each call ends by its deadline and ends what it started for
/// itself; many threads call at once.
pub trait Store: Send + Sync + fmt::Debug {
    /// Puts the entry into the new file `into`; `false` is a miss.
    ///
    /// # Errors
    /// The cache did not say whether it has the entry, or did not give it. Whatever `into` holds then is nothing.
    fn get(&self, key: &Key, into: &Path, deadline: Instant) -> Result<bool, Trouble>;

    /// Stores the file `entry`, which is left as it is. What the cache has of this key is replaced: it may be damaged.
    ///
    /// # Errors
    /// The cache did not take it, as far as it tells.
    fn put(&self, key: &Key, entry: &Path, deadline: Instant) -> Result<(), Trouble>;

    /// Where the entries are and what else there is to know, a line each, for people.
    ///
    /// # Errors
    /// The cache did not tell.
    fn describe(&self, deadline: Instant) -> Result<Vec<String>, Trouble> {
        let _ = deadline;
        Ok(Vec::new())
    }
}

/// Which tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// sccache 0.14 or newer.
    Sccache,
    /// ccache 4.13 or newer.
    Ccache,
}

impl Kind {
    /// The one that an option names.
    pub fn of(option: Cache) -> Option<Self> {
        match option {
            Cache::None => None,
            Cache::Sccache => Some(Kind::Sccache),
            Cache::Ccache => Some(Kind::Ccache),
        }
    }
}

impl Kind {
    /// Whether it can be used on this system.
    ///
    /// # Errors
    /// It cannot: what stands in for a compiler is a shell script.
    pub fn fits_here(self) -> anyhow::Result<()> {
        anyhow::ensure!(
            os::FARMS,
            "--cache={self} has a shell script for its tool, which needs Linux"
        );
        Ok(())
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Sccache => "sccache",
            Kind::Ccache => "ccache",
        })
    }
}

/// What a store is opened with.
#[derive(Clone, Debug)]
pub struct About {
    /// The tool, absolute.
    pub tool: PathBuf,
    /// An existing folder of this link alone, absolute; it is removed with the link.
    pub private: PathBuf,
    /// The bridge's own folder in the user's cache folder, which need not exist, if the user has a home.
    pub kept: Option<PathBuf>,
    /// The user's variables that tools of this kind read, and where their files are: `SCCACHE_*`, `CCACHE_*`, `HOME`,
    /// `XDG_*`. Programs started by [`Groups::run`] have all of the user's environment anyway.
    pub environment: BTreeMap<String, String>,
    /// The only way to start programs.
    pub groups: Arc<Groups>,
    /// When the store must have been opened, or have failed.
    pub deadline: Instant,
}

/// Opens the store.
///
/// # Errors
/// The tool is too old, or its cache cannot be reached.
pub fn open(kind: Kind, about: &About) -> Result<Box<dyn Store>, Trouble> {
    Ok(match kind {
        Kind::Sccache => Box::new(sccache::Sccache::open(about)?),
        Kind::Ccache => Box::new(ccache::Ccache::open(about)?),
    })
}

/// What a client of sccache gets that would start a server by itself, on an address that others are about to use too:
/// it needs a temporary folder for that, and finds none.
const NO_START: (&str, &str) = ("TMPDIR", "/dev/null/no-server-is-started-by-clients");

/// What is said of an entry that was given to a tool and is not there afterwards.
const NOT_KEPT: &str = "it did not keep the entry: its storage is full, broken or may only be read";
