//! A job in one file, and its answer in another: what both farms, and any that takes one file there and
//! gives one back, stand on. A bundle is a frozen [`Header`] in a skippable frame of zstd, then one frame
//! that holds a tar with `manifest.json` first: `tar --zstd -tf` lists both kinds.
//! Does not run anything, and does not judge arguments.

mod args;
mod body;
mod fault;
mod header;
mod hex;
mod library;
mod name;
mod names;
mod prepare;
mod request;
mod response;
#[cfg(test)]
mod tests;
mod write;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use args::INDEX;
pub use fault::{Fault, NotPacked};
pub use header::{Header, Kind};
pub use hex::{Digest, Hex, Nonce};
pub use library::{Content, Library};
pub use names::Names;
pub use prepare::{About, LeaveOut, Prepared, pieces, prepare, probe};
pub use request::{Opened, open};
pub use response::{Expected, Received, answer, cannot_read, receive};

use crate::toolchain::Identity;

/// The format of the bundles that this program writes, and the newest that it reads.
pub const FORMAT: u16 = 1;
/// The oldest format that this program reads.
pub const OLDEST_READ: u16 = 1;
/// The oldest format whose readers understand what this program writes.
const OLDEST_READER: u16 = 1;

/// Bytes of a manifest: enough for [`FILES_LIMIT`].
const MANIFEST_LIMIT: u64 = 8 << 20;
/// Bytes of standard output, and as many of standard error, that a response holds.
pub const STREAM_LIMIT: usize = 16 << 20;
/// Files that a request makes, and as many that its job makes.
const FILES_LIMIT: usize = 50_000;
const MANIFEST: &str = "manifest.json";

/// What a bundle may unpack to. Both sides keep to it.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of all files together.
    pub total: u64,
    /// Bytes of files for each byte of the bundle; not looked at up to 64 MiB.
    pub ratio: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { total: 1 << 30, ratio: 1000 }
    }
}

impl Limits {
    /// Up to here any ratio is fine: it is quickly done with.
    const SMALL: u64 = 64 << 20;

    fn allows_ratio(&self, unpacked: u64, packed: u64) -> bool {
        unpacked <= Self::SMALL || unpacked / self.ratio.max(1) <= packed
    }
}

/// A job, as it travels.
///
/// clang runs in a folder where the files have the names of `files`, and makes `outputs` there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Comes back in the answer. New for each attempt.
    pub nonce: Nonce,
    /// The version of the bridge that packed it.
    pub bridge: String,
    /// The id of the link.
    pub link: String,
    /// Who links; a claim.
    pub user: String,
    /// Where; a claim.
    pub host: String,
    /// The job's number in its link.
    pub job: usize,
    /// The module's name in the link, for logs.
    pub module: String,
    /// The command after the compiler.
    pub args: Vec<String>,
    /// Everything the job reads.
    pub files: Vec<File>,
    /// Everything the job makes, the object first.
    pub outputs: Vec<String>,
    /// The compiler whose bytes are wanted.
    pub compiler: Identity,
    /// Seconds that the compiler may take.
    pub time_limit_s: u64,
    /// Slots that the job takes of a host.
    pub weight: u32,
    /// The files of the environment that the job runs in, where it runs in one that the bridge has sent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub environment: Vec<Shipped>,
    /// Those held pieces that the host may not have yet: another request that is on its way there carries
    /// them. The worker waits a little for these.
    #[serde(default)]
    pub in_flight: Vec<Digest>,
}

impl Request {
    /// It asks only whether a host would do jobs like those of its link: there is nothing to read or make.
    pub fn is_probe(&self) -> bool {
        self.files.is_empty() && self.outputs.is_empty()
    }
}

/// A file that a job reads: its pieces, one after the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// Its name in the folder that clang runs in.
    pub name: String,
    /// Its content.
    pub pieces: Vec<Piece>,
}

impl File {
    fn length(&self) -> u64 {
        self.pieces.iter().fold(0, |sum, piece| sum.saturating_add(piece.length))
    }
}

/// A file of an environment, by which it is known again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shipped {
    /// Its path below the environment's root, as in `opt/llvm/bin/clang`.
    pub path: String,
    /// Bytes.
    pub length: u64,
    /// The build id of its ELF header, in hex, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_id: Option<String>,
    /// The digest of its content.
    pub blake3: Digest,
}

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// The digest of its content.
    pub blake3: Digest,
    /// Bytes.
    pub length: u64,
    /// Not in the bundle: the far side is believed to have it, or to get it from another request.
    #[serde(default)]
    pub held: bool,
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Response {
    /// That of the request; zeros if none could be read.
    pub nonce: Nonce,
    /// The version of the worker.
    pub worker: String,
    /// The host it ran on.
    pub host: String,
    /// The link of the request.
    pub link: String,
    /// The job of the request.
    pub job: usize,
    /// What it has to say.
    pub answer: Answer,
    /// The outputs that are in the response.
    #[serde(default)]
    pub outputs: Vec<Output>,
    /// How long the compiler took, in milliseconds.
    #[serde(default)]
    pub ms: u64,
    /// The most memory the compiler had, in KiB.
    #[serde(default)]
    pub peak_kb: u64,
    /// The request's pieces that the host holds now.
    #[serde(default)]
    pub holds: Vec<Digest>,
    /// The host keeps pieces.
    #[serde(default)]
    pub stores: bool,
}

/// A worker's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Answer {
    /// The compiler ran to its end.
    Ran {
        /// Its exit code,
        code: Option<i32>,
        /// or the signal it died of.
        signal: Option<i32>,
    },
    /// The worker's rules forbid it.
    Refused {
        /// Which, and what to change.
        reason: String,
    },
    /// The request's format is not one that the worker reads.
    CannotRead {
        /// The newest it reads.
        newest: u16,
        /// The oldest it reads.
        oldest: u16,
    },
    /// The files here are not those that the request says were sent.
    Altered {
        /// Which.
        reason: String,
    },
    /// The compiler here would make other bytes.
    OtherCompiler {
        /// What differs.
        reason: String,
    },
    /// Pieces said to be held are not.
    MissingPieces {
        /// Which.
        pieces: Vec<Digest>,
    },
    /// There is no such compiler here.
    MissingCompiler {
        /// What there is.
        reason: String,
    },
    /// Not now.
    Busy {
        /// What is short.
        reason: String,
    },
    /// This host cannot do this job.
    Unfit {
        /// Why.
        reason: String,
    },
    /// The compiler was stopped at the request's time limit.
    TimedOut,
    /// The worker failed.
    Failed {
        /// At what.
        reason: String,
    },
    /// An answer that only newer workers know.
    #[serde(other)]
    Unknown,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let because = |f: &mut fmt::Formatter<'_>, what: &str, reason: &str| {
            write!(f, "{what}: {}", fault::shown(reason))
        };
        match self {
            Answer::Ran { code: Some(code), .. } => write!(f, "the compiler exited with {code}"),
            Answer::Ran { signal: Some(signal), .. } => {
                write!(f, "the compiler was killed by signal {signal}")
            }
            Answer::Ran { .. } => write!(f, "the compiler ended"),
            Answer::Refused { reason } => because(f, "refused", reason),
            Answer::CannotRead { newest, oldest } => {
                write!(f, "the worker reads formats {oldest} to {newest}, this is {FORMAT}")
            }
            Answer::Altered { reason } => because(f, "environment altered", reason),
            Answer::OtherCompiler { reason } => because(f, "another compiler", reason),
            Answer::MissingPieces { pieces } => {
                write!(f, "{} pieces are not on the host", pieces.len())
            }
            Answer::MissingCompiler { reason } => because(f, "no such compiler", reason),
            Answer::Busy { reason } => because(f, "busy", reason),
            Answer::Unfit { reason } => because(f, "host unfit", reason),
            Answer::TimedOut => write!(f, "the compiler was stopped at the time limit"),
            Answer::Failed { reason } => because(f, "the worker failed", reason),
            Answer::Unknown => write!(f, "an answer that only newer versions know"),
        }
    }
}

/// An output in a response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// Its name in [`Request::outputs`].
    pub name: String,
    /// Bytes.
    pub length: u64,
    /// The digest of its content.
    pub blake3: Digest,
}
