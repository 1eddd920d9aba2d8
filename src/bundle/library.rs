//! The inputs of a link, as bundles and cache keys see them: each is read and hashed once, by the first job that needs
//! it, however many import it. Holds no content. Does not know jobs.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::Digest;
use crate::bitcode;
use crate::jobfile::Text;

/// What is in the bitcode of a module with the debug information of Windows, which holds clang's command
/// line and working directory.
const CODEVIEW: &[u8] = b"CodeView";

/// What a file held when it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// The digest of its bytes.
    pub blake3: Digest,
    /// Their number.
    pub length: u64,
}

impl Content {
    pub(super) fn of(bytes: &[u8]) -> Self {
        Content { blake3: Digest::of(bytes), length: bytes.len() as u64 }
    }

    /// What comes out of `input` up to its end.
    pub(super) fn read(mut input: impl Read) -> io::Result<Self> {
        let mut hasher = blake3::Hasher::new();
        let length = io::copy(&mut input, &mut hasher)?;
        Ok(Content { blake3: hasher.finalize().into(), length })
    }
}

/// All inputs of a link; shared by its threads.
#[derive(Debug, Default)]
pub struct Library {
    known: Mutex<HashMap<Text, Arc<Known>>>,
}

/// Errors are kept as text: each job that needs the file gets a copy.
#[derive(Debug, Default)]
struct Known {
    content: OnceLock<Result<Content, String>>,
    hash: OnceLock<Result<Option<[u32; 5]>, String>>,
    codeview: OnceLock<Result<bool, String>>,
}

impl Library {
    /// The digest and length of the file at `path`. Waits where another thread is reading it.
    ///
    /// # Errors
    /// The file cannot be read; the text names it.
    pub fn content(&self, path: &Text) -> Result<Content, String> {
        let read = || fs::File::open(Path::new(&**path)).and_then(Content::read);
        let read = || read().map_err(|error| format!("{path}: {error}"));
        self.known(path).content.get_or_init(read).clone()
    }

    /// The same without waiting: none unless the file was read.
    pub fn if_read(&self, path: &Text) -> Option<Result<Content, String>> {
        self.known(path).content.get().cloned()
    }

    /// The hash that the module at `path` carries of itself.
    ///
    /// # Errors
    /// The file cannot be read or is no ThinLTO module; the text names it.
    pub(super) fn module_hash(&self, path: &Text) -> Result<Option<[u32; 5]>, String> {
        let read = || {
            let bytes = fs::read(Path::new(&**path)).map_err(|error| format!("{path}: {error}"))?;
            bitcode::module_hash(&bytes).map_err(|refusal| format!("{path}: {refusal}"))
        };
        self.known(path).hash.get_or_init(read).clone()
    }

    /// Whether the module at `path` has the debug information of Windows.
    ///
    /// # Errors
    /// The file cannot be read; the text names it.
    pub fn has_codeview(&self, path: &Text) -> Result<bool, String> {
        let read = || {
            let bytes = fs::read(Path::new(&**path)).map_err(|error| format!("{path}: {error}"))?;
            Ok(bytes.windows(CODEVIEW.len()).any(|part| part == CODEVIEW))
        };
        self.known(path).codeview.get_or_init(read).clone()
    }

    fn known(&self, path: &Text) -> Arc<Known> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.get(path) {
            return found.clone();
        }
        known.entry(path.clone()).or_default().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_once_by_however_many_threads() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::write(&path, "one").unwrap();
        let text: Text = path.to_str().unwrap().into();
        let library = Library::default();
        let expected = Ok(Content::of(b"one"));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| assert_eq!(library.content(&text), expected));
            }
        });
        fs::write(&path, "other").unwrap();
        assert_eq!(library.content(&text), expected, "it was read again");
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named() {
        let found = Library::default().content(&"/nowhere/a.o".into()).unwrap_err();
        assert!(found.starts_with("/nowhere/a.o: "), "{found}");
    }
}
