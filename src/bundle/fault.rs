//! What can be wrong with a bundle, and why one is not made. Each fault has a text of its own. Does not
//! know what follows from it.

use std::{fmt, io};

use super::{Digest, Header, Kind};

/// Why a bundle is not accepted.
#[derive(Debug)]
pub enum Fault {
    /// The file does not begin as a bundle does.
    NotABundle,
    /// The file ends within the header.
    NoHeader,
    /// The header's own check does not hold.
    DamagedHeader,
    /// A response where a request is due, or the other way round.
    OtherKind {
        /// What is due.
        expected: Kind,
        /// What it is.
        found: Kind,
    },
    /// The format is not one that this program reads. The header can be answered.
    Format(Header),
    /// The file ends early.
    CutOff {
        /// Bytes behind the header, as announced.
        expected: u64,
        /// Bytes there are.
        found: u64,
    },
    /// More bytes follow than are announced.
    Surplus {
        /// How many more.
        bytes: u64,
    },
    /// The bytes are not those that were written.
    Damaged,
    /// The compressed stream or the archive in it is not well made.
    Malformed(String),
    /// The manifest is not one.
    Manifest(String),
    /// The manifest has a name that must not be.
    Name {
        /// The name.
        name: String,
        /// Why not.
        why: &'static str,
    },
    /// Another entry than the manifest announces at this place.
    Entry {
        /// What is due; empty for the end.
        expected: String,
        /// What there is, with its kind if that is no plain file; empty for the end.
        found: String,
    },
    /// A piece or an output has other content than its digest says.
    Content {
        /// Its name or digest.
        name: String,
    },
    /// It would unpack to more than is allowed.
    TooLarge(String),
    /// More comes out of it than the manifest announces.
    Overrun,
    /// Pieces that were left out are not here.
    MissingPieces(Vec<Digest>),
    /// An answer to another request: of this link, or a stale one.
    OtherRequest {
        /// The link it belongs to; empty if it does not say.
        link: String,
        /// The job it belongs to.
        job: usize,
        /// The link is the expected one.
        same_link: bool,
    },
    /// The worker could not read which request it had.
    Unaddressed(String),
    /// The compiler succeeded, but this output is not there.
    NoOutput(String),
    /// Something failed here, through no fault of the bundle.
    Here {
        /// At what.
        what: String,
        /// How.
        error: io::Error,
    },
}

impl Fault {
    /// What the system refused, while doing `what`.
    pub(super) fn here(what: impl Into<String>) -> impl FnOnce(io::Error) -> Fault {
        let what = what.into();
        |error| Fault::Here { what, error }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end =
            |name: &str| if name.is_empty() { "the end".to_owned() } else { format!("{name:?}") };
        match self {
            Fault::NotABundle => write!(f, "this is no bundle of dtlto-bridge"),
            Fault::NoHeader => write!(f, "the bundle is cut off within its header"),
            Fault::DamagedHeader => write!(f, "the header of the bundle is damaged"),
            Fault::OtherKind { expected, found } => {
                write!(f, "expected a {expected}, found a {found}")
            }
            Fault::Format(header) => write!(
                f,
                "version {} wrote this {} in format {}, which takes a reader of format {} or newer; \
                 this is version {}, which reads {} to {}",
                header.version,
                header.kind,
                header.format,
                header.oldest,
                env!("CARGO_PKG_VERSION"),
                super::OLDEST_READ,
                super::FORMAT
            ),
            Fault::CutOff { expected, found } => {
                write!(f, "the bundle is cut off: {found} of {expected} bytes are there")
            }
            Fault::Surplus { bytes } => write!(f, "{bytes} bytes follow the end of the bundle"),
            Fault::Damaged => write!(f, "the bundle is damaged: its digest differs"),
            Fault::Malformed(why) => write!(f, "the bundle is malformed: {why}"),
            Fault::Manifest(why) => write!(f, "manifest of the bundle: {why}"),
            Fault::Name { name, why } => write!(f, "the bundle names {name:?}: {why}"),
            Fault::Entry { expected, found } => {
                write!(f, "the bundle holds {} where {} is due", end(found), end(expected))
            }
            Fault::Content { name } => write!(f, "{name}: the content differs from its digest"),
            Fault::TooLarge(why) => write!(f, "the bundle is too large: {why}"),
            Fault::Overrun => write!(f, "the bundle holds more than its manifest announces"),
            Fault::MissingPieces(pieces) => {
                write!(f, "{} pieces that the bundle leaves out are not here", pieces.len())
            }
            Fault::OtherRequest { link, job, same_link: true } => {
                write!(
                    f,
                    "swapped: this is the answer for jobs[{job}] of link {link}, or an earlier try"
                )
            }
            Fault::OtherRequest { link, .. } if link.is_empty() => {
                write!(f, "stale or swapped: this answers another request")
            }
            Fault::OtherRequest { link, job, same_link: false } => {
                write!(f, "stale: this answers jobs[{job}] of another link, {link:?}")
            }
            Fault::Unaddressed(reason) => {
                write!(f, "the worker could not read what it was sent: {reason}")
            }
            Fault::NoOutput(name) => {
                write!(f, "the compiler succeeded on the host, but {name} is not in its answer")
            }
            Fault::Here { what, error } => write!(f, "{what}: {error}"),
        }
    }
}

impl std::error::Error for Fault {}

/// A text that nobody vouches for, so that it fits into a message: cut, and without control characters.
pub(super) fn shown(text: &str) -> String {
    text.chars().take(200).flat_map(char::escape_debug).collect()
}

/// Why a bundle was not made.
#[derive(Debug)]
pub enum NotPacked {
    /// The job must run here; the text says why, as a clause.
    StaysHere(String),
    /// No space is left for it: with fewer in flight there may be.
    NoSpace(String),
    /// An input is not what it was: what the link makes cannot be right.
    Changed(String),
    /// Something else failed.
    Failed {
        /// At what.
        what: String,
        /// How.
        error: io::Error,
    },
}

impl NotPacked {
    /// Sorts out what an error of the system means.
    pub(super) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> NotPacked {
        let what = what.into();
        |error| match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                NotPacked::NoSpace(format!("{what}: {error}"))
            }
            io::ErrorKind::FileTooLarge => NotPacked::StaysHere(format!("{what}: {error}")),
            _ => NotPacked::Failed { what, error },
        }
    }
}

impl fmt::Display for NotPacked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotPacked::StaysHere(why) | NotPacked::NoSpace(why) | NotPacked::Changed(why) => {
                f.write_str(why)
            }
            NotPacked::Failed { what, error } => write!(f, "{what}: {error}"),
        }
    }
}

impl std::error::Error for NotPacked {}
