//! The reading side of a request: the manifest first, so that a worker can refuse before it unpacks, then
//! the files into a fresh folder. Everything here is hostile until proved otherwise. Does not judge the
//! arguments.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Seek};
use std::path::Path;

use super::body::Body;
use super::prepare::{entry_name, inline};
use super::{
    Content, Digest, FILES_LIMIT, Fault, File, Header, Kind, Limits, Piece, Request, name,
};
use crate::os::{self, Careful};

/// Where a held piece is put before it is looked at. No name of a request begins with a dot.
const HELD: &str = ".held";

/// A request of which the manifest was read and found good.
pub struct Opened<R: Read> {
    /// The manifest.
    pub request: Request,
    body: Body<R>,
}

/// Reads a request up to its manifest, and makes sure that all of it is there and undamaged.
///
/// # Errors
/// All of [`Fault`] but those of single files. [`Fault::Format`] can be answered with
/// [`cannot_read`](super::cannot_read).
pub fn open<R: Read + Seek>(mut input: R, limits: &Limits) -> Result<Opened<R>, Fault> {
    input.rewind().map_err(Fault::here("reading the bundle"))?;
    let header = Header::read(&mut input)?;
    header.expect(Kind::Request)?;
    let mut body = Body::open(input, &header)?;
    let request: Request = body.manifest()?;
    if request.nonce != header.nonce {
        return Err(Fault::Manifest("its nonce is not that of the header".to_owned()));
    }
    check(&request, limits, header.length)?;
    body.allow(inline(&request).iter().map(|(_, piece)| piece.length));
    Ok(Opened { request, body })
}

fn check(request: &Request, limits: &Limits, packed: u64) -> Result<(), Fault> {
    if request.outputs.is_empty() && !request.is_probe() {
        return Err(Fault::Manifest("there is no output".to_owned()));
    }
    let count = request.files.len().max(request.outputs.len());
    if count > FILES_LIMIT {
        return Err(Fault::TooLarge(format!("{count} files, {FILES_LIMIT} allowed")));
    }
    let files = request.files.iter().map(|file| &file.name);
    name::check(files.chain(&request.outputs).map(String::as_str))?;
    let mut lengths = BTreeMap::new();
    for piece in pieces(request) {
        let first = lengths.entry(piece.blake3).or_insert((piece.length, piece.held));
        if *first != (piece.length, piece.held) {
            return Err(Fault::Manifest(format!("two entries for piece {}", piece.blake3)));
        }
    }
    let total = request.files.iter().fold(0, |sum: u64, file| sum.saturating_add(file.length()));
    if total > limits.total {
        return Err(Fault::TooLarge(format!("{total} bytes of files, {} allowed", limits.total)));
    }
    let inline = inline(request).iter().fold(0, |sum: u64, (_, p)| sum.saturating_add(p.length));
    if !limits.allows_ratio(inline, packed) {
        return Err(Fault::TooLarge(format!(
            "{inline} bytes of files from {packed} of the bundle"
        )));
    }
    Ok(())
}

fn pieces(request: &Request) -> impl Iterator<Item = &Piece> {
    request.files.iter().flat_map(|file| &file.pieces)
}

impl<R: Read> Opened<R> {
    /// Makes the files of the request in `folder`, which must be fresh and the caller's alone, and the
    /// folders of its outputs. A held piece is asked of `store`: put the piece into the new file named, or
    /// say that it is not there.
    ///
    /// # Errors
    /// [`Fault::MissingPieces`] before anything is unpacked; else the first file that is not as announced.
    /// What was made until then stays.
    pub fn unpack(
        mut self,
        folder: &Path,
        store: &mut dyn FnMut(&Digest, &Path) -> io::Result<bool>,
    ) -> Result<Request, Fault> {
        let request = self.request;
        let places = Places::make(folder, &request)?;
        places.fill_held(&request, store)?;
        for (_, piece) in inline(&request) {
            let mut to = places.open_first(piece)?;
            let mut hasher = blake3::Hasher::new();
            let sink = &mut |chunk: &[u8]| {
                hasher.update(chunk);
                to.write(chunk)
            };
            self.body.read(&entry_name(piece), piece.length, sink)?;
            if Digest::from(hasher.finalize()) != piece.blake3 {
                return Err(Fault::Content { name: entry_name(piece) });
            }
            places.repeat(piece)?;
        }
        self.body.end()?;
        Ok(request)
    }
}

/// Where each piece belongs: all the files, and the offsets in them.
struct Places<'a> {
    folder: &'a Path,
    of: BTreeMap<Digest, Vec<(&'a File, u64)>>,
}

struct Place {
    file: fs::File,
    name: String,
    at: u64,
}

impl Place {
    fn write(&mut self, chunk: &[u8]) -> Result<(), Fault> {
        os::write_all_at(&self.file, chunk, self.at).map_err(Fault::here(&*self.name))?;
        self.at += chunk.len() as u64;
        Ok(())
    }
}

impl<'a> Places<'a> {
    /// Makes all files, empty, and all folders.
    fn make(folder: &'a Path, request: &'a Request) -> Result<Self, Fault> {
        let mut of: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for file in &request.files {
            make_folders(folder, &file.name)?;
            let mut new = fs::OpenOptions::new();
            new.write(true).create_new(true).private().no_follow();
            new.open(folder.join(&file.name)).map_err(Fault::here(&*file.name))?;
            let mut offset = 0;
            for piece in &file.pieces {
                of.entry(piece.blake3).or_default().push((file, offset));
                offset += piece.length;
            }
        }
        request.outputs.iter().try_for_each(|output| make_folders(folder, output))?;
        Ok(Places { folder, of })
    }

    fn open(&self, &(file, at): &(&File, u64)) -> Result<Place, Fault> {
        let name = file.name.clone();
        let mut old = fs::OpenOptions::new();
        old.read(true).write(true).no_follow();
        let file = old.open(self.folder.join(&name)).map_err(Fault::here(&*name))?;
        Ok(Place { file, name, at })
    }

    fn open_first(&self, piece: &Piece) -> Result<Place, Fault> {
        self.open(&self.of[&piece.blake3][0])
    }

    /// Copies a piece from its first place to all others.
    fn repeat(&self, piece: &Piece) -> Result<(), Fault> {
        let [first, others @ ..] = &self.of[&piece.blake3][..] else { return Ok(()) };
        for other in others {
            let (mut from, mut to) = (self.open(first)?, self.open(other)?);
            copy(&mut from, piece.length, &mut to)?;
        }
        Ok(())
    }

    fn fill_held(
        &self,
        request: &Request,
        store: &mut dyn FnMut(&Digest, &Path) -> io::Result<bool>,
    ) -> Result<(), Fault> {
        let held: BTreeMap<_, _> =
            pieces(request).filter(|piece| piece.held).map(|piece| (piece.blake3, piece)).collect();
        let mut missing = Vec::new();
        for (digest, piece) in held {
            let name = format!("held piece {digest}");
            let path = self.folder.join(HELD);
            if !store(&digest, &path).map_err(Fault::here(&*name))? {
                missing.push(digest);
                continue;
            }
            let mut old = fs::OpenOptions::new();
            old.read(true).no_follow_no_wait();
            let file = old.open(&path).map_err(Fault::here(&*name))?;
            let content = Content::read((&file).take(piece.length.saturating_add(1)));
            let content = content.map_err(Fault::here(&*name))?;
            if content != (Content { blake3: digest, length: piece.length }) {
                return Err(Fault::Content { name });
            }
            let mut from = Place { file, name, at: 0 };
            copy(&mut from, piece.length, &mut self.open_first(piece)?)?;
            self.repeat(piece)?;
            fs::remove_file(&path).map_err(Fault::here(from.name))?;
        }
        if missing.is_empty() { Ok(()) } else { Err(Fault::MissingPieces(missing)) }
    }
}

fn copy(from: &mut Place, length: u64, to: &mut Place) -> Result<(), Fault> {
    let mut buffer = [0; 1 << 16];
    let mut left = length;
    while left > 0 {
        let chunk = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let read = os::read_exact_at(&from.file, &mut buffer[..chunk], from.at);
        read.map_err(Fault::here(&*from.name))?;
        from.at += chunk as u64;
        to.write(&buffer[..chunk])?;
        left -= chunk as u64;
    }
    Ok(())
}

/// Makes the folders that a good name asks for.
fn make_folders(folder: &Path, name: &str) -> Result<(), Fault> {
    for (at, _) in name.match_indices('/') {
        match fs::create_dir(folder.join(&name[..at])) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(Fault::here(name)(error));
            }
            _ => {}
        }
    }
    Ok(())
}
