//! The first 136 bytes of a bundle: a skippable frame of zstd, so that decompressors pass it over. Frozen
//! for ever: every version of this program, old or new, can read every other's. Does not look at what follows.
//!
//! ```text
//!   0  8  frame: magic 0x184D2A50, length 128
//!   8 12  "dtlto-bridge"
//!  20  1  kind: 1 request, 2 response, 3 "I cannot read your request"
//!  21  1  zero
//!  22  2  format (of kind 3: the newest that the worker reads)
//!  24  2  oldest format whose readers understand it (of kind 3: the oldest that the worker reads)
//!  26  6  zero
//!  32  8  bytes that follow the header
//!  40 32  their blake3
//!  72 16  nonce of the request
//!  88 24  version of the writing program, padded with zeros
//! 112 16  zero
//! 128  8  the first bytes of the blake3 of bytes 0 to 127
//! ```
//! Numbers are little endian. Readers ignore the zeros.

use std::fmt;
use std::io::{self, Read};

use super::{Digest, FORMAT, Fault, Hex, Nonce, OLDEST_READ};

/// Bytes of the whole header.
pub(super) const LENGTH: usize = 136;
const FRAME: [u8; 8] = [0x50, 0x2A, 0x4D, 0x18, 128, 0, 0, 0];
const MAGIC: &[u8; 12] = b"dtlto-bridge";
const CHECKED: usize = 128;

/// What a bundle is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A job.
    Request,
    /// What came of it.
    Response,
    /// A worker's answer to a request whose format it does not read. The header says everything.
    CannotRead,
    /// What only newer versions know.
    Other(u8),
}

impl Kind {
    fn code(self) -> u8 {
        match self {
            Kind::Request => 1,
            Kind::Response => 2,
            Kind::CannotRead => 3,
            Kind::Other(code) => code,
        }
    }
}

impl From<u8> for Kind {
    fn from(code: u8) -> Self {
        match code {
            1 => Kind::Request,
            2 => Kind::Response,
            3 => Kind::CannotRead,
            code => Kind::Other(code),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Request => write!(f, "request"),
            Kind::Response => write!(f, "response"),
            Kind::CannotRead => write!(f, "notice that a request cannot be read"),
            Kind::Other(code) => write!(f, "bundle of the unknown kind {code}"),
        }
    }
}

/// The header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the bundle is.
    pub kind: Kind,
    /// The format it is written in; of [`Kind::CannotRead`]: the newest that the worker reads.
    pub format: u16,
    /// The oldest format whose readers understand it; of [`Kind::CannotRead`]: the oldest that the
    /// worker reads.
    pub oldest: u16,
    /// Bytes behind the header.
    pub length: u64,
    /// Their digest.
    pub blake3: Digest,
    /// That of the request.
    pub nonce: Nonce,
    /// The version of the program that wrote it.
    pub version: String,
}

impl Header {
    /// Reads the header that `input` begins with.
    ///
    /// # Errors
    /// [`Fault::NotABundle`], [`Fault::NoHeader`], [`Fault::DamagedHeader`], or reading failed. Never
    /// for its kind or format.
    pub fn read(input: &mut impl Read) -> Result<Header, Fault> {
        let mut bytes = Vec::with_capacity(LENGTH);
        let mut input = input.take(LENGTH as u64);
        input.read_to_end(&mut bytes).map_err(Fault::here("reading the bundle"))?;
        let known = |at: usize, expected: &[u8]| {
            let end = bytes.len().min(at + expected.len()).max(at);
            bytes.get(at..end).is_none_or(|found| expected.starts_with(found))
        };
        if !known(0, &FRAME) || !known(8, MAGIC) {
            return Err(Fault::NotABundle);
        }
        let bytes: [u8; LENGTH] = bytes.try_into().map_err(|_| Fault::NoHeader)?;
        if bytes[CHECKED..] != check(&bytes) {
            return Err(Fault::DamagedHeader);
        }
        let version = bytes[88..112].split(|&byte| byte == 0).next().unwrap_or_default();
        Ok(Header {
            kind: bytes[20].into(),
            format: u16::from_le_bytes(part(&bytes, 22)),
            oldest: u16::from_le_bytes(part(&bytes, 24)),
            length: u64::from_le_bytes(part(&bytes, 32)),
            blake3: Hex(part(&bytes, 40)),
            nonce: Hex(part(&bytes, 72)),
            version: String::from_utf8_lossy(version).into_owned(),
        })
    }

    /// The header as it stands in a file.
    pub(super) fn bytes(&self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
        put(0, &FRAME);
        put(8, MAGIC);
        put(20, &[self.kind.code()]);
        put(22, &self.format.to_le_bytes());
        put(24, &self.oldest.to_le_bytes());
        put(32, &self.length.to_le_bytes());
        put(40, &self.blake3.0);
        put(72, &self.nonce.0);
        put(88, &self.version.as_bytes()[..self.version.len().min(24)]);
        let check = check(&bytes);
        bytes[CHECKED..].copy_from_slice(&check);
        bytes
    }

    /// Makes sure that the bundle is of this kind and in a format that this program reads.
    ///
    /// # Errors
    /// [`Fault::OtherKind`] or [`Fault::Format`].
    pub(super) fn expect(&self, kind: Kind) -> Result<(), Fault> {
        if self.kind != kind {
            return Err(Fault::OtherKind { expected: kind, found: self.kind });
        }
        if self.oldest > FORMAT || self.format < OLDEST_READ {
            return Err(Fault::Format(self.clone()));
        }
        Ok(())
    }
}

fn part<const N: usize>(bytes: &[u8; LENGTH], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("N bytes were asked for")
}

fn check(bytes: &[u8; LENGTH]) -> [u8; LENGTH - CHECKED] {
    let digest = Digest::of(&bytes[..CHECKED]);
    digest.0[..LENGTH - CHECKED].try_into().expect("a digest is longer")
}

/// Keeps the place of a header free.
pub(super) fn reserve(out: &mut impl io::Write) -> io::Result<()> {
    out.write_all(&[0; LENGTH])
}
