//! The two ends of a job: a request becomes a file that can be read twice, a response gets into the place
//! that the daemon looks at. It does not know what is in them.

use std::fs::{self, File};
use std::io::{self, Cursor, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::call::Input;
use crate::bundle::{Fault, Header};

/// Bytes that are read before anything else is decided: more than a header.
const BEGINNING: u64 = 4096;

/// A request that was begun to be read.
pub(super) struct Incoming {
    beginning: Vec<u8>,
    rest: Source,
}

enum Source {
    File(File),
    Stdin,
}

impl Incoming {
    /// Opens it, and reads its first bytes.
    pub(super) fn open(input: &Input) -> io::Result<Incoming> {
        let mut beginning = Vec::new();
        let rest = match input {
            Input::File(path) => Source::File(File::open(path)?),
            Input::Stdin => Source::Stdin,
        };
        match &rest {
            Source::File(file) => file.take(BEGINNING).read_to_end(&mut beginning)?,
            Source::Stdin => io::stdin().take(BEGINNING).read_to_end(&mut beginning)?,
        };
        Ok(Incoming { beginning, rest })
    }

    /// Its header.
    pub(super) fn header(&self) -> Result<Header, Fault> {
        Header::read(&mut &self.beginning[..])
    }

    /// All of it, as a file that is positioned at its beginning; `None` if it has more than `limit` bytes.
    /// What comes by a pipe is kept in `folder`, without a name.
    pub(super) fn into_file(self, folder: &Path, limit: u64) -> io::Result<Option<(File, u64)>> {
        let Incoming { beginning, rest } = self;
        let (mut file, length) = match rest {
            Source::File(file) => {
                let length = file.metadata()?.len();
                (file, length)
            }
            Source::Stdin => {
                let mut file = tempfile::tempfile_in(folder)?;
                file.write_all(&beginning)?;
                let left = limit.saturating_add(1).saturating_sub(beginning.len() as u64);
                let more = io::copy(&mut io::stdin().take(left), &mut file)?;
                (file, beginning.len() as u64 + more)
            }
        };
        file.seek(SeekFrom::Start(0))?;
        Ok((length <= limit).then_some((file, length)))
    }
}

/// Lets `write` write a response, and puts it into `output`; returns its length. With a `folder` it is written
/// there and moved, so that `output` is never half of it; without one it is short. After an error there is no
/// `output`: icecream takes an empty file for an object.
pub(super) fn deliver(
    output: &Path,
    folder: Option<&Path>,
    write: impl FnOnce(&mut dyn Place) -> io::Result<u64>,
) -> io::Result<u64> {
    let put = put(output, folder, write);
    if put.is_err() && fs::symlink_metadata(output).is_ok_and(|there| there.is_file()) {
        fs::remove_file(output)?;
    }
    put
}

fn put(
    output: &Path,
    folder: Option<&Path>,
    write: impl FnOnce(&mut dyn Place) -> io::Result<u64>,
) -> io::Result<u64> {
    let Some(folder) = folder else {
        let mut bytes = Cursor::new(Vec::new());
        let length = write(&mut bytes)?;
        fs::write(output, bytes.into_inner())?;
        return Ok(length);
    };
    let path = folder.join("response");
    let mut options = fs::OpenOptions::new();
    let mut file = options.read(true).write(true).create_new(true).mode(0o666).open(&path)?;
    let length = write(&mut file)?;
    let there = fs::symlink_metadata(output).ok();
    if let Some(there) = there.as_ref().filter(|there| there.is_file()) {
        // distccd made it for its user alone.
        file.set_permissions(there.permissions())?;
    }
    let replaceable = there.is_none_or(|there| there.is_file());
    if !replaceable || fs::rename(&path, output).is_err() {
        file.seek(SeekFrom::Start(0))?;
        io::copy(&mut file, &mut File::create(output)?)?;
    }
    Ok(length)
}

/// What a response is written to.
pub(super) trait Place: Write + Seek {}

impl<T: Write + Seek> Place for T {}

/// Those of `outputs` that lie in `folder`: a hostile compiler could have put a link in a folder's place.
pub(super) fn within(folder: &Path, outputs: &[String]) -> Vec<String> {
    let real = |path: &Path| path.canonicalize().ok();
    let Some(root) = real(folder) else { return Vec::new() };
    let parent = |name: &String| folder.join(name).parent().map(Path::to_owned);
    let inside = |place: PathBuf| real(&place).is_some_and(|place| place.starts_with(&root));
    outputs.iter().filter(|name| parent(name).is_some_and(inside)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn text(place: &mut dyn Place) -> io::Result<u64> {
        place.write_all(b"response").map(|()| 8)
    }

    #[test]
    fn a_response_replaces_what_is_there_and_keeps_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("out");
        for folder in [None, Some(folder.path())] {
            fs::write(&output, "something longer than that").unwrap();
            fs::set_permissions(&output, fs::Permissions::from_mode(0o600)).unwrap();
            assert_eq!(deliver(&output, folder, text).unwrap(), 8);
            assert_eq!(fs::read(&output).unwrap(), b"response");
            assert_eq!(fs::metadata(&output).unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn of_a_response_that_cannot_be_written_nothing_stays() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("out");
        let half = |place: &mut dyn Place| {
            place.write_all(b"half")?;
            Err(io::Error::from(io::ErrorKind::StorageFull))
        };
        for folder in [None, Some(folder.path())] {
            fs::write(&output, "").unwrap();
            assert!(deliver(&output, folder, half).is_err());
            assert!(!output.exists());
        }
    }

    #[test]
    fn a_device_is_written_to_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("null");
        symlink("/dev/null", &link).unwrap();
        deliver(&link, Some(folder.path()), text).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }

    #[test]
    fn a_request_has_a_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("in");
        fs::write(&path, vec![b'x'; 10_000]).unwrap();
        let open = || Incoming::open(&Input::File(path.clone())).unwrap();
        assert!(open().into_file(folder.path(), 9_999).unwrap().is_none());
        let (mut file, length) = open().into_file(folder.path(), 10_000).unwrap().unwrap();
        let mut bytes = Vec::new();
        assert_eq!((file.read_to_end(&mut bytes).unwrap(), length), (10_000, 10_000));
    }

    #[test]
    fn outputs_behind_a_link_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        symlink("/etc", folder.path().join("etc")).unwrap();
        fs::create_dir(folder.path().join("sub")).unwrap();
        let names = ["out.o", "etc/passwd", "sub/x", "none/x"].map(String::from);
        assert_eq!(within(folder.path(), &names), ["out.o", "sub/x"]);
    }
}
