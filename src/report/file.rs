//! Report files: replaced as a whole, or written to where they are devices or pipes.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf, is_separator};

use anyhow::Context;

use crate::os;

/// Where a report goes: to `asked` itself or, where that ends in `/`, to a file named `own_name` in it.
pub fn target(asked: &Path, own_name: &str) -> PathBuf {
    let last = asked.as_os_str().as_encoded_bytes().last();
    if last.is_some_and(|&last| is_separator(last.into())) {
        asked.join(own_name)
    } else {
        asked.to_owned()
    }
}

/// Writes a report. Readers see the old one or the whole new one.
///
/// # Errors
/// The folder cannot be made or the file cannot be written.
pub fn write(target: &Path, content: &[u8]) -> anyhow::Result<()> {
    let place = || target.display().to_string();
    match fs::metadata(target) {
        Ok(found) if !found.is_file() && !found.is_dir() => {
            let mut file = os::open_device(target).with_context(place)?;
            return file.write_all(content).with_context(place);
        }
        _ => {}
    }
    let folder =
        target.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    fs::create_dir_all(folder).with_context(place)?;
    let mut builder = tempfile::Builder::new();
    if let Some(mode) = os::mode(0o666) {
        builder.permissions(mode);
    }
    let mut file = builder.prefix(".dtlto-bridge-").tempfile_in(folder).with_context(place)?;
    file.write_all(content).with_context(place)?;
    file.persist(target).with_context(place)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trailing_slash_means_a_folder() {
        assert_eq!(target(Path::new("x/"), "app-7.json"), Path::new("x/app-7.json"));
        assert_eq!(target(Path::new("x"), "app-7.json"), Path::new("x"));
    }

    #[test]
    fn a_file_is_replaced_and_its_folder_made() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b.json");
        write(&path, b"old").unwrap();
        write(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn a_pipe_without_a_reader_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        assert!(write(&path, b"x").is_err());
    }

    #[test]
    fn a_device_is_written_to() {
        write(Path::new("/dev/null"), b"x").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }
}
