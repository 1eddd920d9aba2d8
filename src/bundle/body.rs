//! Reads what follows the header of a bundle, believing nothing of it: length and digest first, then
//! entry by entry in the one order that the manifest allows. Memory does not grow with the content.
//! Does not know what the entries mean.

use std::io::{self, BufReader, Read, Seek, SeekFrom, Take};

use serde::de::DeserializeOwned;

use super::fault::shown;
use super::header::{self, Header};
use super::write::{END, in_archive};
use super::{Content, Fault, MANIFEST, MANIFEST_LIMIT};

/// `tar` fills up its archives to this many bytes.
const FILL: u64 = 20 * 512;
/// Of zstd: the largest window that is decompressed. Bits; so at most 128 MiB of memory.
const WINDOW_LOG: u32 = 27;
const BLOCK: usize = 512;

/// The archive in a bundle, up to the next entry.
pub(super) struct Body<R: Read> {
    input: zstd::Decoder<'static, BufReader<Take<R>>>,
    /// Bytes that may still come out of it.
    allowed: u64,
    padding: u64,
}

impl<R: Read + Seek> Body<R> {
    /// Makes sure that what follows `header` in `input` is whole, then opens it.
    pub(super) fn open(mut input: R, header: &Header) -> Result<Self, Fault> {
        let reading = || Fault::here("reading the bundle");
        let start = header::LENGTH as u64;
        let found = input.seek(SeekFrom::End(0)).map_err(reading())?.saturating_sub(start);
        if found < header.length {
            return Err(Fault::CutOff { expected: header.length, found });
        }
        if found > header.length {
            return Err(Fault::Surplus { bytes: found - header.length });
        }
        input.seek(SeekFrom::Start(start)).map_err(reading())?;
        let content = Content::read((&mut input).take(header.length)).map_err(reading())?;
        if content != (Content { blake3: header.blake3, length: header.length }) {
            return Err(Fault::Damaged);
        }
        input.seek(SeekFrom::Start(start)).map_err(reading())?;
        let input = BufReader::new(input.take(header.length));
        let mut input =
            zstd::Decoder::with_buffer(input).map_err(Fault::here("zstd"))?.single_frame();
        input.window_log_max(WINDOW_LOG).map_err(Fault::here("zstd"))?;
        let allowed = in_archive(MANIFEST_LIMIT);
        Ok(Body { input, allowed, padding: 0 })
    }
}

impl<R: Read> Body<R> {
    /// Reads the manifest, which is the first entry.
    pub(super) fn manifest<T: DeserializeOwned>(&mut self) -> Result<T, Fault> {
        let length = self.entry(MANIFEST, None)?;
        if length > MANIFEST_LIMIT {
            return Err(Fault::Manifest(format!("{length} bytes are too long")));
        }
        let mut bytes = Vec::new();
        self.content(length, &mut |chunk| {
            bytes.extend_from_slice(chunk);
            Ok(())
        })?;
        serde_json::from_slice(&bytes).map_err(|error| Fault::Manifest(shown(&error.to_string())))
    }

    /// No more than entries of these lengths may follow, whatever the compressed stream holds.
    pub(super) fn allow(&mut self, lengths: impl Iterator<Item = u64>) {
        let entries = lengths.map(in_archive).fold(0, u64::saturating_add);
        self.allowed = entries.saturating_add(self.padding).saturating_add(END + FILL);
    }

    /// Reads an entry: exactly this one, a plain file of the announced length.
    pub(super) fn read(
        &mut self,
        name: &str,
        length: u64,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.entry(name, Some(length))?;
        self.content(length, sink)
    }

    /// Reads the head of an entry, and its length if that is not known.
    pub(super) fn entry(&mut self, name: &str, length: Option<u64>) -> Result<u64, Fault> {
        let unexpected = |found| Fault::Entry { expected: name.to_owned(), found };
        let malformed = |error: io::Error| Fault::Malformed(shown(&error.to_string()));
        let Some(head) = self.head()? else { return Err(unexpected(String::new())) };
        let found = String::from_utf8_lossy(&head.path_bytes()).into_owned();
        let sum = head.as_bytes().iter().map(|&byte| u32::from(byte)).sum::<u32>();
        let own = head.as_old().cksum.iter().map(|&byte| u32::from(byte)).sum::<u32>();
        if sum - own + 8 * u32::from(b' ') != head.cksum().map_err(malformed)? {
            return Err(Fault::Malformed(format!("the head of {found:?} is damaged")));
        }
        let kind = head.as_old().linkflag[0];
        if kind != b'0' || head.as_ustar().is_none() {
            return Err(unexpected(format!("{found} ({})", kind_name(kind))));
        }
        if found != name {
            return Err(unexpected(found));
        }
        let size = head.entry_size().map_err(malformed)?;
        if length.is_some_and(|length| length != size) {
            return Err(Fault::Malformed(format!("{name} has {size} bytes, not those announced")));
        }
        Ok(size)
    }

    /// Reads what belongs to the entry whose head was read last.
    pub(super) fn content(
        &mut self,
        length: u64,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let mut buffer = [0; 1 << 16];
        let mut left = length;
        while left > 0 {
            let chunk = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            self.exactly(&mut buffer[..chunk])?;
            sink(&buffer[..chunk])?;
            left -= chunk as u64;
        }
        self.padding = in_archive(length) - BLOCK as u64 - length;
        Ok(())
    }

    /// Makes sure that nothing follows the last entry: in the archive, in the frame, in the file.
    pub(super) fn end(mut self) -> Result<(), Fault> {
        if let Some(head) = self.head()? {
            let found = String::from_utf8_lossy(&head.path_bytes()).into_owned();
            return Err(Fault::Entry { expected: String::new(), found });
        }
        let mut buffer = [0; BLOCK];
        loop {
            let count = self.some(&mut buffer)?;
            if count == 0 {
                break;
            }
            if buffer[..count].iter().any(|&byte| byte != 0) {
                return Err(Fault::Malformed(
                    "something follows the end of the archive".to_owned(),
                ));
            }
        }
        let mut rest = self.input.finish();
        match rest.read(&mut buffer) {
            Ok(0) => Ok(()),
            Ok(_) => Err(Fault::Malformed("something follows the compressed frame".to_owned())),
            Err(error) => Err(Fault::Malformed(error.to_string())),
        }
    }

    /// The next head, or `None` for the block of zeros that ends an archive.
    fn head(&mut self) -> Result<Option<tar::Header>, Fault> {
        let mut block = [0; BLOCK];
        let padding = usize::try_from(self.padding).expect("less than a block");
        self.exactly(&mut block[..padding])?;
        self.padding = 0;
        self.exactly(&mut block)?;
        let is_end = block.iter().all(|&byte| byte == 0);
        Ok((!is_end).then(|| tar::Header::from_byte_slice(&block).clone()))
    }

    fn exactly(&mut self, mut buffer: &mut [u8]) -> Result<(), Fault> {
        while !buffer.is_empty() {
            match self.some(buffer)? {
                0 => return Err(Fault::Malformed("the archive ends early".to_owned())),
                count => buffer = &mut buffer[count..],
            }
        }
        Ok(())
    }

    fn some(&mut self, buffer: &mut [u8]) -> Result<usize, Fault> {
        let count = loop {
            match self.input.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read.map_err(|error| Fault::Malformed(error.to_string()))?,
            }
        };
        self.allowed = self.allowed.checked_sub(count as u64).ok_or(Fault::Overrun)?;
        Ok(count)
    }
}

fn kind_name(code: u8) -> &'static str {
    match code {
        b'0' | 0 => "a plain file of an old archive",
        b'1' => "a hard link",
        b'2' => "a symbolic link",
        b'3' | b'4' => "a device",
        b'5' => "a folder",
        b'6' => "a pipe",
        b'L' | b'K' | b'x' | b'g' => "an extended head",
        b'S' => "a sparse file",
        _ => "of an unknown kind",
    }
}
