//! A temporary folder of one test. It does not know what is put into it.

use std::fs;
use std::path::{Path, PathBuf};

/// A folder that goes with its test. With `KEEP` in the environment that of a failed test stays.
pub(crate) struct Folder(Option<tempfile::TempDir>);

impl Folder {
    pub(crate) fn new() -> Self {
        Folder(Some(tempfile::Builder::new().prefix("dtlto-bridge-test-").tempdir().unwrap()))
    }

    /// The absolute path of `name` in here; of the folder itself for `""`.
    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        let root = self.0.as_ref().unwrap().path();
        if name.as_ref().as_os_str().is_empty() { root.to_owned() } else { root.join(name) }
    }

    /// Writes a file, and the folders above it.
    pub(crate) fn write(&self, name: impl AsRef<Path>, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        path
    }

    /// Writes a program that a shell runs; `script` needs no first line.
    pub(crate) fn script(&self, name: &str, script: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let path = self.write(name, format!("#!/bin/sh\n{script}\n"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// Makes a folder, and those above it.
    pub(crate) fn mkdir(&self, name: impl AsRef<Path>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(&path).unwrap();
        path
    }

    pub(crate) fn read(&self, name: impl AsRef<Path>) -> Vec<u8> {
        let path = self.path(name);
        fs::read(&path)
            .unwrap_or_else(|e| panic!("{}: {e}; here are {:#?}", path.display(), self.list("")))
    }

    /// A file's content where it must be text.
    pub(crate) fn text(&self, name: impl AsRef<Path>) -> String {
        String::from_utf8(self.read(name)).unwrap()
    }

    /// All files below `name`, as sorted paths relative to it; empty folders too, as `made/`.
    pub(crate) fn list(&self, name: impl AsRef<Path>) -> Vec<String> {
        fn walk(root: &Path, at: &Path, found: &mut Vec<String>) {
            let mut entries = fs::read_dir(at).unwrap().peekable();
            let name = at.strip_prefix(root).unwrap().display();
            if entries.peek().is_none() && at != root {
                found.push(format!("{name}/"));
            }
            for entry in entries.map(Result::unwrap) {
                if entry.file_type().unwrap().is_dir() {
                    walk(root, &entry.path(), found);
                } else {
                    found.push(entry.path().strip_prefix(root).unwrap().display().to_string());
                }
            }
        }
        let (root, mut found) = (self.path(name), Vec::new());
        walk(&root, &root, &mut found);
        found.sort();
        found
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if std::thread::panicking() && std::env::var_os("KEEP").is_some() {
            let kept = self.0.take().map(tempfile::TempDir::keep);
            eprintln!("kept: {}", kept.unwrap_or_default().display());
        }
    }
}

/// Lets other users pass through a folder.
pub(crate) fn open_to_all(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
}
