//! What the bridge keeps in a cache: a job's outputs and where they were made, in one file that proves itself. Readers
//! believe nothing: any other bytes are [`Damage`], and cost no more than the sizes that they claim.
//!
//! ```text
//!  0  8  "dtlto-en"
//!  8  4  format: 1
//! 12  4  bytes of the head
//! 16 32  blake3 of the head
//! 48     the head: JSON
//!        one frame of zstd: the outputs, one after the other, in the order of `Job::outputs`
//! ```
//! Numbers are little endian. The head has the entry's own key: a store that mixes up its files is found out.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};
use zstd::stream::{read::Decoder, write::Encoder};

use super::Key;
use crate::bundle::Digest;
use crate::parcel::one_line;

const MAGIC: &[u8; 8] = b"dtlto-en";
const FORMAT: u32 = 1;
/// Bytes before the head.
const FIXED: usize = 48;
/// Bytes of a head.
const HEAD_LIMIT: usize = 1 << 20;
/// Bytes of what a compiler printed; with more there is no entry.
const PRINTED_LIMIT: usize = 64 << 10;
/// Outputs of a job.
const OUTPUTS_LIMIT: usize = 1000;
/// Bytes of all outputs.
pub const TOTAL_LIMIT: u64 = 1 << 30;
/// Stores compress too; this much is for the way there.
const LEVEL: i32 = 1;
/// 128 MiB: what zstd itself writes on any usual level.
const WINDOW_LOG: u32 = 27;

/// Where and when outputs were made, as their maker says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Made {
    /// The host.
    pub host: String,
    /// The version of the bridge that stored them.
    pub bridge: String,
    /// The compiler, by its version.
    pub compiler: String,
    /// When they were stored, in UTC.
    pub at: String,
    /// What the compiler printed.
    pub printed: String,
}

/// An output of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Output {
    /// Bytes.
    pub length: u64,
    /// The digest of its content.
    pub blake3: Digest,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    key: Digest,
    made: Made,
    outputs: Vec<Output>,
}

/// An entry that is not what it should be, in words for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage(String);

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Damage {}

/// What stands between an entry and its outputs here.
#[derive(Debug)]
pub enum Unread {
    /// The entry's fault.
    Damaged(Damage),
    /// This machine's: no space for an output, say.
    Failed(io::Error),
}

fn damaged<T>(what: impl Into<String>) -> Result<T, Unread> {
    Err(Unread::Damaged(Damage(one_line(&what.into()))))
}

/// Writes the entry of `outputs`, a job's files in its own order, into the new file `to`.
///
/// # Errors
/// A file cannot be read or written or changes meanwhile, or the outputs are more than an entry takes.
pub fn write(to: &Path, key: &Key, made: &Made, outputs: &[&Path]) -> anyhow::Result<()> {
    let printed = made.printed.len();
    ensure!(printed <= PRINTED_LIMIT, "its compiler printed {printed} bytes, which is too much");
    ensure!(outputs.len() <= OUTPUTS_LIMIT, "it has {} outputs, which is too many", outputs.len());
    let read =
        |path: &&Path| copy(path, &mut io::sink()).with_context(|| path.display().to_string());
    let stated: Vec<Output> = outputs.iter().map(read).collect::<anyhow::Result<_>>()?;
    let total: u64 = stated.iter().map(|output| output.length).sum();
    ensure!(
        total <= TOTAL_LIMIT,
        "its outputs have {total} bytes, and an entry takes {TOTAL_LIMIT}"
    );
    let head = Head { key: bundle_digest(key), made: made.clone(), outputs: stated };
    let text = serde_json::to_vec(&head)?;
    let file = File::create_new(to).with_context(|| to.display().to_string())?;
    let mut out = BufWriter::new(file);
    for part in [
        MAGIC,
        &FORMAT.to_le_bytes()[..],
        &u32::try_from(text.len()).context("the head")?.to_le_bytes(),
        blake3::hash(&text).as_bytes(),
        &text,
    ] {
        out.write_all(part)?;
    }
    let mut frame = Encoder::new(out, LEVEL)?;
    for (path, stated) in outputs.iter().zip(&head.outputs) {
        let again = copy(path, &mut frame).with_context(|| path.display().to_string())?;
        ensure!(again == *stated, "{}: it changed while it was read", path.display());
    }
    frame.finish()?.flush()?;
    Ok(())
}

fn bundle_digest(key: &Key) -> Digest {
    crate::bundle::Hex(*key.bytes())
}

fn copy(path: &Path, to: &mut impl Write) -> io::Result<Output> {
    pass(File::open(path)?, to)
}

/// Copies all of `from`, and says what it was.
fn pass(mut from: impl Read, to: &mut impl Write) -> io::Result<Output> {
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let read = from.read(&mut buffer)?;
        if read == 0 {
            return Ok(Output { length: hasher.count(), blake3: hasher.finalize().into() });
        }
        hasher.update(&buffer[..read]);
        to.write_all(&buffer[..read])?;
    }
}

/// Reads the entry `from` of `key`, and makes its outputs as the new files `places`, all of them or none, and no more
/// than `limit` bytes.
///
/// # Errors
/// See [`Unread`].
pub fn read(
    from: impl Read,
    key: &Key,
    places: &[PathBuf],
    limit: u64,
) -> Result<(Made, Vec<Output>), Unread> {
    let mut from = BufReader::new(from);
    let head = head(&mut from, key, limit)?;
    if head.outputs.len() != places.len() {
        let (has, wants) = (head.outputs.len(), places.len());
        return damaged(format!("it has {has} outputs, the job has {wants}"));
    }
    let made = contents(from, &head.outputs, places);
    if let Err(unread) = made {
        places.iter().for_each(|place| drop(fs::remove_file(place)));
        return Err(unread);
    }
    Ok((head.made, head.outputs))
}

fn head(from: &mut impl Read, key: &Key, limit: u64) -> Result<Head, Unread> {
    let mut fixed = [0; FIXED];
    read_all(from, &mut fixed)?;
    let number =
        |at: usize| u32::from_le_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
    if &fixed[..8] != MAGIC {
        return damaged("it is no entry of dtlto-bridge");
    }
    let (format, length) = (number(8), number(12) as usize);
    if format != FORMAT {
        return damaged(format!("it has format {format}, this version reads {FORMAT}"));
    }
    if length > HEAD_LIMIT {
        return damaged("its head is too long");
    }
    let mut text = vec![0; length];
    read_all(from, &mut text)?;
    if fixed[16..] != *blake3::hash(&text).as_bytes() {
        return damaged("its head is not what was written");
    }
    let head: Head = match serde_json::from_slice(&text) {
        Ok(head) => head,
        Err(error) => return damaged(format!("its head cannot be read: {error}")),
    };
    let total = head.outputs.iter().try_fold(0u64, |sum, output| sum.checked_add(output.length));
    if head.key != bundle_digest(key) {
        return damaged("it belongs to another key");
    }
    if total.is_none_or(|total| total > limit) {
        return damaged("its outputs are too large");
    }
    Ok(head)
}

fn read_all(from: &mut impl Read, bytes: &mut [u8]) -> Result<(), Unread> {
    from.read_exact(bytes).or_else(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => damaged("it is cut off"),
        _ => Err(Unread::Failed(error)),
    })
}

/// An error of the file we write is told from one of the frame we read.
struct Place(File, Option<io::Error>);

impl Write for Place {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).inspect_err(|error| {
            self.1 = Some(
                error.raw_os_error().map_or(error.kind().into(), io::Error::from_raw_os_error),
            );
        })
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn contents(from: impl BufRead, stated: &[Output], places: &[PathBuf]) -> Result<(), Unread> {
    let mut frame = Decoder::with_buffer(from).map_err(Unread::Failed)?.single_frame();
    frame.window_log_max(WINDOW_LOG).map_err(Unread::Failed)?;
    for (output, place) in stated.iter().zip(places) {
        let file = File::create_new(place).map_err(Unread::Failed)?;
        let mut place = Place(file, None);
        match pass(frame.by_ref().take(output.length), &mut place) {
            Ok(found) if found == *output => {}
            Ok(_) => return damaged("an output is not what was stored"),
            Err(error) => match place.1 {
                Some(error) => return Err(Unread::Failed(error)),
                None => return damaged(format!("its outputs cannot be unpacked: {error}")),
            },
        }
    }
    let mut more = [0];
    let rest = frame.read(&mut more).map_or(1, |read| read);
    let rest = rest + frame.finish().read(&mut more).map_or(1, |read| read);
    if rest > 0 { damaged("something stands behind its outputs") } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEY: Key = Key([7; 32]);

    fn made() -> Made {
        let text = str::to_owned;
        Made {
            host: text("h"),
            bridge: text("0.1.0"),
            compiler: text("clang version 22.1.8"),
            at: text("2026-11-30T20:00:00Z"),
            printed: text("warning: x\n"),
        }
    }

    /// An entry of these outputs, and the folder it is in.
    fn entry(outputs: &[&[u8]]) -> (tempfile::TempDir, Vec<u8>) {
        let folder = tempfile::tempdir().unwrap();
        let paths: Vec<_> =
            (0..outputs.len()).map(|n| folder.path().join(format!("{n}"))).collect();
        for (path, content) in paths.iter().zip(outputs) {
            fs::write(path, content).unwrap();
        }
        let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
        let to = folder.path().join("entry");
        write(&to, &KEY, &made(), &paths).unwrap();
        let bytes = fs::read(to).unwrap();
        (folder, bytes)
    }

    /// What is read, with the contents of the outputs; nothing else is left behind.
    fn taken(bytes: &[u8], outputs: usize) -> Result<Vec<Vec<u8>>, String> {
        let folder = tempfile::tempdir().unwrap();
        let places: Vec<_> = (0..outputs).map(|n| folder.path().join(format!("o{n}"))).collect();
        match read(bytes, &KEY, &places, TOTAL_LIMIT) {
            Ok((found, _)) => {
                assert_eq!(found, made());
                Ok(places.iter().map(|place| fs::read(place).unwrap()).collect())
            }
            Err(unread) => {
                assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "something stays");
                match unread {
                    Unread::Damaged(damage) => Err(damage.to_string()),
                    Unread::Failed(error) => panic!("{error}"),
                }
            }
        }
    }

    #[test]
    fn what_is_stored_comes_back() {
        let (object, other) = (vec![3; 300_000], b"remarks".to_vec());
        let (_folder, bytes) = entry(&[&object, &other, b""]);
        assert_eq!(taken(&bytes, 3).unwrap(), [object, other, vec![]]);
        assert!(bytes.len() < 2000, "{}", bytes.len());
    }

    #[test]
    fn an_entry_of_another_key_or_job_is_damage() {
        let (_folder, bytes) = entry(&[b"object"]);
        let refused = read(&*bytes, &Key([8; 32]), &["/nowhere/o".into()], TOTAL_LIMIT);
        let Err(Unread::Damaged(damage)) = refused else { panic!("{refused:?}") };
        assert_eq!(damage.to_string(), "it belongs to another key");
        assert!(taken(&bytes, 2).unwrap_err().contains("the job has 2"));
    }

    #[test]
    fn one_flipped_bit_anywhere_is_damage() {
        let (_folder, bytes) = entry(&[&[5; 1000], b"other"]);
        for at in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1 << (at % 8);
            // zstd ignores a bit or two of its own header: then all is as it was.
            if let Ok(outputs) = taken(&bytes, 2) {
                assert_eq!(outputs, [vec![5; 1000], b"other".to_vec()], "byte {at}");
            }
        }
    }

    #[test]
    fn an_entry_cut_off_or_followed_by_more_is_damage() {
        let (_folder, bytes) = entry(&[&[5; 1000]]);
        for length in 0..bytes.len() {
            assert!(taken(&bytes[..length], 1).is_err(), "{length}");
        }
        assert!(taken(&[&bytes[..], b"x"].concat(), 1).is_err());
        assert!(taken(&[&bytes[..], &bytes].concat(), 1).is_err());
    }

    #[test]
    fn what_this_machine_cannot_do_is_not_damage() {
        let (_folder, bytes) = entry(&[b"object"]);
        let refused = read(&*bytes, &KEY, &["/nowhere/o".into()], TOTAL_LIMIT);
        assert!(matches!(refused, Err(Unread::Failed(_))), "{refused:?}");
    }

    #[test]
    fn sizes_that_lie_cost_nothing() {
        let output = |length| Output { length, blake3: Digest::of(b"") };
        for outputs in [vec![output(u64::MAX)], vec![output(TOTAL_LIMIT), output(1)]] {
            let count = outputs.len();
            let head = Head { key: bundle_digest(&KEY), made: made(), outputs };
            let text = serde_json::to_vec(&head).unwrap();
            let length = u32::try_from(text.len()).unwrap().to_le_bytes();
            let digest = blake3::hash(&text);
            let parts: [&[u8]; 5] =
                [MAGIC, &FORMAT.to_le_bytes(), &length, digest.as_bytes(), &text];
            assert_eq!(taken(&parts.concat(), count).unwrap_err(), "its outputs are too large");
        }
        let parts: [&[u8]; 4] = [MAGIC, &FORMAT.to_le_bytes(), &[0xff; 4], &[0; 32]];
        assert_eq!(taken(&parts.concat(), 1).unwrap_err(), "its head is too long");
    }

    #[test]
    fn a_compiler_that_printed_too_much_has_no_entry() {
        let folder = tempfile::tempdir().unwrap();
        let made = Made { printed: "x".repeat(PRINTED_LIMIT + 1), ..made() };
        let to = folder.path().join("entry");
        assert!(write(&to, &KEY, &made, &[]).is_err() && !to.exists());
    }

    proptest! {
        #[test]
        fn no_bytes_do_harm(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(taken(&bytes, 1).is_err());
            prop_assert!(taken(&[&MAGIC[..], &FORMAT.to_le_bytes(), &bytes].concat(), 1).is_err());
        }
    }
}
