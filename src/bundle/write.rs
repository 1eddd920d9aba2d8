//! Writes a bundle: header, compressed frame, archive. Equal content gives equal bytes. Memory does not
//! grow with the content. Does not know what the entries mean.

use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};

use serde::Serialize;

use super::header::{self, Header, Kind};
use super::{Content, Digest, FORMAT, MANIFEST, MANIFEST_LIMIT, Nonce, OLDEST_READER};

/// Of zstd: the fastest level that still makes bitcode about as small as it gets.
const LEVEL: i32 = 3;
/// `zstd -d` and `tar --zstd` refuse larger windows unless they are told not to. Bits.
const WINDOW_LOG: u32 = 27;
const BLOCK: u64 = 512;

/// Bytes that an entry of `length` takes in the archive.
pub(super) fn in_archive(length: u64) -> u64 {
    length.div_ceil(BLOCK).saturating_add(1).saturating_mul(BLOCK)
}

/// Bytes at the end of an archive.
pub(super) const END: u64 = 2 * BLOCK;

/// A bundle that is being written.
pub(super) struct Writer<W: Write + Seek> {
    tar: tar::Builder<zstd::Encoder<'static, Hashed<BufWriter<W>>>>,
    header: Header,
}

impl<W: Write + Seek> Writer<W> {
    /// Begins with the manifest; `lengths` are those of all further entries.
    pub(super) fn new(
        mut out: W,
        (kind, nonce): (Kind, Nonce),
        manifest: &impl Serialize,
        lengths: impl Iterator<Item = u64>,
    ) -> io::Result<Self> {
        let manifest = serde_json::to_vec(manifest)?;
        if manifest.len() as u64 > MANIFEST_LIMIT {
            let why = "the list of its files and arguments is too long";
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
        }
        let archive =
            lengths.map(in_archive).sum::<u64>() + in_archive(manifest.len() as u64) + END;
        header::reserve(&mut out)?;
        let mut zstd = zstd::Encoder::new(Hashed::new(BufWriter::new(out)), LEVEL)?;
        zstd.window_log(WINDOW_LOG)?;
        zstd.long_distance_matching(true)?;
        zstd.include_checksum(true)?;
        // Known beforehand, it keeps the window of a small bundle small.
        zstd.set_pledged_src_size(Some(archive))?;
        let header = Header {
            kind,
            format: FORMAT,
            oldest: OLDEST_READER,
            length: 0,
            blake3: Digest::of(b""),
            nonce,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let mut writer = Writer { tar: tar::Builder::new(zstd), header };
        writer.entry(MANIFEST, Content::of(&manifest), &mut &manifest[..])?;
        Ok(writer)
    }

    /// Adds an entry. Whether `input` held just that `content` is the answer; after a `false` the bundle
    /// is useless.
    pub(super) fn entry(
        &mut self,
        name: &str,
        content: Content,
        input: &mut dyn Read,
    ) -> io::Result<bool> {
        let mut about = tar::Header::new_ustar();
        about.set_path(name)?;
        about.set_size(content.length);
        about.set_mode(0o644);
        about.set_mtime(0);
        about.set_uid(0);
        about.set_gid(0);
        about.set_entry_type(tar::EntryType::Regular);
        about.set_cksum();
        let mut hasher = blake3::Hasher::new();
        let mut within = input.take(content.length);
        self.tar.append(&about, Tee { input: &mut within, hasher: &mut hasher })?;
        let is_whole = within.limit() == 0;
        let is_at_end = input.read(&mut [0])? == 0;
        Ok(is_whole && is_at_end && content.blake3 == hasher.finalize().into())
    }

    /// Writes what is left, then the header into its place. Returns the bytes of the whole bundle.
    pub(super) fn finish(mut self, kind: Option<(Kind, u16, u16)>) -> io::Result<u64> {
        let Hashed { mut inner, hasher, length } = self.tar.into_inner()?.finish()?;
        self.header.length = length;
        self.header.blake3 = hasher.finalize().into();
        if let Some((kind, format, oldest)) = kind {
            (self.header.kind, self.header.format, self.header.oldest) = (kind, format, oldest);
        }
        inner.seek(SeekFrom::Start(0))?;
        inner.write_all(&self.header.bytes())?;
        inner.flush()?;
        Ok(header::LENGTH as u64 + length)
    }
}

struct Tee<'a, R> {
    input: R,
    hasher: &'a mut blake3::Hasher,
}

impl<R: Read> Read for Tee<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        self.hasher.update(&buffer[..count]);
        Ok(count)
    }
}

struct Hashed<W> {
    inner: W,
    hasher: blake3::Hasher,
    length: u64,
}

impl<W> Hashed<W> {
    fn new(inner: W) -> Self {
        Hashed { inner, hasher: blake3::Hasher::new(), length: 0 }
    }
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.hasher.update(&bytes[..count]);
        self.length += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
