//! Bytes of a fixed number that are written as lower-case hex digits: digests and nonces. Does not know
//! what they are digests of.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::str::FromStr;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// `N` bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hex<const N: usize>(pub [u8; N]);

/// A blake3 digest.
pub type Digest = Hex<32>;

/// A number that no other request has.
pub type Nonce = Hex<16>;

impl Digest {
    /// The digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        blake3::hash(bytes).into()
    }
}

impl From<blake3::Hash> for Digest {
    fn from(hash: blake3::Hash) -> Self {
        Hex(*hash.as_bytes())
    }
}

impl Nonce {
    /// Of an answer to what could not be read.
    pub const NONE: Nonce = Hex([0; 16]);

    /// A new one. The standard library seeds its hashers with the system's random numbers.
    pub fn fresh() -> Self {
        let random = || RandomState::new().hash_one(()).to_le_bytes();
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&random());
        bytes[8..].copy_from_slice(&random());
        Hex(bytes)
    }
}

impl<const N: usize> fmt::Display for Hex<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl<const N: usize> fmt::Debug for Hex<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<const N: usize> FromStr for Hex<N> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        let bytes: Option<Vec<u8>> =
            pairs.iter().map(|&[high, low]| Some(digit(high)? << 4 | digit(low)?)).collect();
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok()).filter(|_| rest.is_empty());
        bytes.map(Hex).ok_or_else(|| format!("expected {} lower-case hex digits", 2 * N))
    }
}

impl<const N: usize> Serialize for Hex<N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de, const N: usize> Deserialize<'de> for Hex<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back_and_nothing_else_does() {
        let digest = Digest::of(b"x");
        assert_eq!(digest.to_string().parse(), Ok(digest));
        assert_eq!(digest.to_string(), blake3::hash(b"x").to_hex().as_str());
        let text = digest.to_string();
        for bad in [&text[1..], &format!("{text}0"), &text.to_uppercase(), &"ä".repeat(32), ""] {
            assert!(bad.parse::<Digest>().is_err(), "{bad}");
        }
    }

    #[test]
    fn nonces_differ() {
        let (one, two) = (Nonce::fresh(), Nonce::fresh());
        assert!(one != two && one.0[..8] != one.0[8..] && one != Nonce::NONE);
    }
}
