//! The archive itself: the same bytes for the same content, on every machine. It does not know what its files
//! mean.

use std::fs::File;
use std::io::{self, Read, Write};

use anyhow::{Context, Result, ensure};
use tar::{Builder, EntryType, Header};

use super::layout::{Contents, Entry, Known, Source};
use crate::bundle::Digest;

/// Higher levels cost every link of a new compiler more time than they save on the way.
const LEVEL: i32 = 3;
/// Any number but none makes the same bytes.
const THREADS: u32 = 4;

/// Writes an archive of `contents`.
///
/// # Errors
/// `to` cannot be written, or a file cannot be read or is not what its digest says.
pub(super) fn write(contents: &Contents, to: &mut File) -> Result<()> {
    let mut packed = zstd::Encoder::new(to, LEVEL)?;
    packed.multithread(THREADS)?;
    let mut archive = Builder::new(packed);
    for (place, entry) in &contents.0 {
        append(&mut archive, place, entry).with_context(|| format!("packing {place}"))?;
    }
    archive.into_inner()?.finish()?;
    Ok(())
}

fn append<W: Write>(archive: &mut Builder<W>, place: &str, entry: &Entry<Known>) -> Result<()> {
    let mut header = Header::new_gnu();
    let mut about = |kind, mode, length| {
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(length);
        header.set_mtime(0);
        header.set_uid(0);
        header.set_gid(0);
    };
    match entry {
        Entry::Folder { mode } => {
            about(EntryType::Directory, *mode, 0);
            archive.append_data(&mut header, format!("{place}/"), io::empty())?;
        }
        Entry::Link { to } => {
            about(EntryType::Symlink, 0o777, 0);
            archive.append_link(&mut header, place, to)?;
        }
        Entry::File { mode, from: Known { source, blake3 } } => {
            let (length, bytes): (u64, &mut dyn Read) = match source {
                Source::Bytes(bytes) => (bytes.len() as u64, &mut &bytes[..]),
                Source::Path(path) => {
                    let file = File::open(path).with_context(|| path.display().to_string())?;
                    (file.metadata()?.len(), &mut { file })
                }
            };
            about(EntryType::Regular, *mode, length);
            let mut bytes = Hashed::of(bytes.take(length));
            archive.append_data(&mut header, place, &mut bytes)?;
            let same = bytes.digest() == *blake3;
            ensure!(same, "it changed meanwhile: link again when the compiler is whole");
        }
    }
    Ok(())
}

/// Digests what is read.
pub(super) struct Hashed<R> {
    from: R,
    hasher: blake3::Hasher,
}

impl<R: Read> Hashed<R> {
    pub(super) fn of(from: R) -> Self {
        Hashed { from, hasher: blake3::Hasher::new() }
    }

    /// Of all that was read.
    pub(super) fn digest(&self) -> Digest {
        self.hasher.finalize().into()
    }
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(buffer)?;
        self.hasher.update(&buffer[..count]);
        Ok(count)
    }
}
