//! Pieces of requests, kept by content for later ones, so that each travels to this host once. A piece is
//! copied in and out and its digest compared both times: clang only reads its inputs, but a hostile compiler
//! may write to those in its folder, and through a hard link it would write to the store; a reflink would
//! spare the writing, but not the reading for the digest. All workers of this user share the folder, and any
//! may be killed at any time. It does not know what pieces hold.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context;
use rustix::fs::OFlags;

use super::scratch::open_lock;
use crate::bundle::{self, Digest, Piece, Request};
use crate::os;

#[cfg(test)]
mod tests;

/// Locked, shared by those who put something in, exclusively by the one who makes room.
const TURN: &str = "turn";
/// Holds, in decimal digits, at least the bytes of all that is kept; locked while that changes. So no put has to
/// look through the store.
const SIZE: &str = "size";
/// Where pieces are until they are whole.
const NEW: &str = "new";
/// Bytes that a file takes at least, and in steps of.
const BLOCK: u64 = 4096;
/// How long a worker waits, from its start, for pieces that other requests carry, and how often it looks.
const PATIENCE: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(10);

/// The pieces that this user's workers keep.
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
    limit: u64,
}

impl Store {
    /// Takes `dtlto-store-<uid>` in `place`, and makes it if need be. It takes at most `limit` bytes.
    ///
    /// # Errors
    /// It cannot be made, or is not this user's own.
    pub fn open(place: &Path, limit: u64) -> anyhow::Result<Store> {
        let uid = rustix::process::geteuid().as_raw();
        let folder = place.join(format!("dtlto-store-{uid}"));
        os::own_as(&folder, uid).context("the worker's store")?;
        make_folder(&folder.join(NEW)).context("the worker's store")?;
        Ok(Store { folder, limit })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.folder
    }

    /// About the bytes that are kept, and those that may be.
    pub fn usage(&self) -> (u64, u64) {
        let size = open_lock(&self.folder.join(SIZE)).ok().and_then(|file| read_size(&file));
        (size.unwrap_or(0), self.limit)
    }

    /// Whether it holds `piece`, without a look at its content.
    pub fn has(&self, piece: &Piece) -> bool {
        let found = fs::symlink_metadata(self.place(&piece.blake3));
        found.is_ok_and(|found| found.is_file() && found.len() == piece.length)
    }

    /// Keeps `piece`, which lies at `offset` in `file`. False if it has other content, or is too large a part
    /// of what the store may hold.
    ///
    /// # Errors
    /// The file cannot be read or the store not written.
    pub fn put(&self, piece: &Piece, file: &Path, offset: u64) -> io::Result<bool> {
        if self.has(piece)
            && let Ok(kept) = open_plain(&self.place(&piece.blake3))
        {
            touch(&kept);
            return Ok(true);
        }
        let bytes = taken(piece.length);
        if bytes > self.limit - self.goal() {
            return Ok(false);
        }
        let turn = open_lock(&self.folder.join(TURN))?;
        Ok(self.take_room(bytes, &turn)? && self.write(piece, file, offset)?)
    }

    /// Takes `turn`, and the room for `bytes`, if it can be made.
    fn take_room(&self, bytes: u64, turn: &File) -> io::Result<bool> {
        turn.lock_shared()?;
        if self.reserve(bytes)? {
            return Ok(true);
        }
        turn.unlock()?;
        turn.lock()?;
        // Another worker may have made room meanwhile.
        if self.reserve(bytes)? {
            return Ok(true);
        }
        self.make_room()?;
        self.reserve(bytes)
    }

    fn write(&self, piece: &Piece, file: &Path, offset: u64) -> io::Result<bool> {
        let mut from = open_plain(file)?;
        from.seek(SeekFrom::Start(offset))?;
        let mut new = tempfile::NamedTempFile::new_in(self.folder.join(NEW))?;
        if copy(&mut from.take(piece.length), &mut new)? != Some(piece.blake3) {
            return Ok(false);
        }
        let place = self.place(&piece.blake3);
        make_folder(place.parent().expect("a folder of the store"))?;
        // Not synced: what a crash of the host cuts off does not have its digest.
        new.persist(place)?;
        Ok(true)
    }

    /// Copies a piece into the new file `to`, if it is here. A damaged one is removed, and was not here.
    ///
    /// # Errors
    /// The new file cannot be made or written.
    pub fn get(&self, digest: &Digest, to: &Path) -> io::Result<bool> {
        let place = self.place(digest);
        let mut from = match open_plain(&place) {
            Ok(from) => from,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(_) => return Ok(self.forget(&place)),
        };
        let mut new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
        if copy(&mut from, &mut new)? != Some(*digest) {
            fs::remove_file(to)?;
            return Ok(self.forget(&place));
        }
        touch(&from);
        Ok(true)
    }

    /// The same, but waits for the piece until `end`.
    ///
    /// # Errors
    /// See [`Store::get`].
    pub fn get_until(&self, end: Instant, digest: &Digest, to: &Path) -> io::Result<bool> {
        loop {
            let now = Instant::now();
            if self.get(digest, to)? {
                return Ok(true);
            }
            if now >= end {
                return Ok(false);
            }
            thread::sleep(POLL.min(end - now));
        }
    }

    fn forget(&self, place: &Path) -> bool {
        // Its bytes still count, until somebody makes room.
        let _ = fs::remove_file(place);
        false
    }

    fn place(&self, digest: &Digest) -> PathBuf {
        let name = digest.to_string();
        self.folder.join(&name[..2]).join(name)
    }

    /// What is left after room was made. Not all of it is made at once: a look through the store must pay.
    fn goal(&self) -> u64 {
        self.limit - self.limit / 4
    }

    /// Counts `bytes` that are to come, if they fit.
    fn reserve(&self, bytes: u64) -> io::Result<bool> {
        let file = open_lock(&self.folder.join(SIZE))?;
        file.lock()?;
        let size = read_size(&file).and_then(|size| size.checked_add(bytes));
        let Some(size) = size.filter(|&size| size <= self.limit) else { return Ok(false) };
        write_size(&file, size)?;
        Ok(true)
    }

    /// Removes what was used least recently, and what killed workers left; then knows the size exactly.
    /// Nobody else may put anything in meanwhile.
    fn make_room(&self) -> io::Result<()> {
        for left in fs::read_dir(self.folder.join(NEW))?.flatten() {
            let _ = fs::remove_file(left.path());
        }
        let mut pieces = self.list()?;
        pieces.sort_unstable();
        let mut size: u64 = pieces.iter().map(|(_, bytes, _)| bytes).sum();
        for (_, bytes, digest) in pieces {
            if size <= self.goal() {
                break;
            }
            match fs::remove_file(self.place(&digest)) {
                Err(error) if error.kind() != ErrorKind::NotFound => {}
                _ => size -= bytes,
            }
        }
        let file = open_lock(&self.folder.join(SIZE))?;
        file.lock()?;
        write_size(&file, size)
    }

    /// When each piece was last used, and the bytes that it takes.
    fn list(&self) -> io::Result<Vec<(SystemTime, u64, Digest)>> {
        let mut found = Vec::new();
        for folder in fs::read_dir(&self.folder)?.flatten() {
            if folder.file_name().len() != 2 {
                continue;
            }
            for entry in fs::read_dir(folder.path())?.flatten() {
                let digest = entry.file_name().to_str().and_then(|name| name.parse().ok());
                let (Some(digest), Ok(about)) = (digest, entry.metadata()) else { continue };
                found.push((about.modified()?, taken(about.len()), digest));
            }
        }
        Ok(found)
    }
}

/// What requests have to do with a store.
impl Store {
    /// Fetches the held pieces of `request`, with which the worker began at `begun`. Those in flight are
    /// waited for, unless the request lacks others anyhow.
    pub fn fetch<'a>(
        &'a self,
        request: &Request,
        begun: Instant,
    ) -> impl FnMut(&Digest, &Path) -> io::Result<bool> + use<'a> {
        let in_flight: BTreeSet<Digest> = request.in_flight.iter().copied().collect();
        let here =
            |piece: &Piece| !piece.held || in_flight.contains(&piece.blake3) || self.has(piece);
        let waits = request.files.iter().flat_map(|file| &file.pieces).all(here);
        let end = if waits { begun + PATIENCE } else { begun };
        move |digest, to| {
            let end = if in_flight.contains(digest) { end } else { begun };
            self.get_until(end, digest, to)
        }
    }

    /// Keeps the pieces that came with `request`, whose files were made in `folder`. Not its index, which
    /// no other job has.
    ///
    /// # Errors
    /// One could not be put; those before it are kept.
    pub fn keep(&self, request: &Request, folder: &Path) -> io::Result<()> {
        let mut seen = BTreeSet::new();
        for file in request.files.iter().filter(|file| file.name != bundle::INDEX) {
            let mut offset = 0;
            for piece in &file.pieces {
                if !piece.held && seen.insert(piece.blake3) {
                    self.put(piece, &folder.join(&file.name), offset)?;
                }
                offset += piece.length;
            }
        }
        Ok(())
    }

    /// The pieces of `request` that are here, each once.
    pub fn held(&self, request: &Request) -> Vec<Digest> {
        let pieces = request.files.iter().flat_map(|file| &file.pieces);
        let here = pieces.filter(|piece| self.has(piece)).map(|piece| piece.blake3);
        here.collect::<BTreeSet<_>>().into_iter().collect()
    }
}

/// Makes a folder that may be there.
fn make_folder(folder: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

fn open_plain(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// Makes it the most recently used. Access times are often not kept.
fn touch(piece: &File) {
    let _ = piece.set_modified(SystemTime::now());
}

/// Bytes of the disk that a file of this length takes.
fn taken(length: u64) -> u64 {
    length.max(1).checked_next_multiple_of(BLOCK).unwrap_or(u64::MAX)
}

/// Copies, and returns the digest; `None` if `from` cannot be read.
fn copy(from: &mut impl Read, to: &mut impl Write) -> io::Result<Option<Digest>> {
    let mut hasher = blake3::Hasher::new();
    let mut buffer = [0; 1 << 16];
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => return Ok(Some(hasher.finalize().into())),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => return Ok(None),
        };
        to.write_all(&buffer[..count])?;
        hasher.update(&buffer[..count]);
    }
}

/// `None` if it is not known.
fn read_size(file: &File) -> Option<u64> {
    let mut digits = [0; 20];
    file.read_exact_at(&mut digits, 0).ok()?;
    str::from_utf8(&digits).ok()?.parse().ok()
}

/// All sizes have as many digits, so that one takes the other's place.
fn write_size(file: &File, size: u64) -> io::Result<()> {
    file.write_all_at(format!("{size:020}").as_bytes(), 0)
}
