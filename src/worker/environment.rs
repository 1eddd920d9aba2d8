//! Whether the icecream environment that a job runs in is still the one that its bridge has sent: every job of
//! the farm can write there. All bytes are read once, and remembered; sizes, build ids and times of change are
//! looked at each time. What a job alters on purpose, and forges the memory of, is not found out: nothing that runs
//! as the same user could. It does not know what the files are.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::scratch::open_lock;
use super::settings::Settings;
use crate::bundle::Shipped;
use crate::toolchain::{Elf, Memory};

/// By what is in here a loader would take other libraries than those that were sent. No environment has it.
const LOADERS_OWN: &str = "etc";

/// Compares what is below `root` with what was `shipped`. Digests are remembered in `memory`, a folder.
///
/// # Errors
/// The first difference.
pub(super) fn compare(
    root: &Path,
    shipped: &[Shipped],
    settings: &Settings,
    memory: &Path,
) -> Result<()> {
    let known: BTreeSet<PathBuf> = shipped.iter().map(|file| root.join(&file.path)).collect();
    if root.join(LOADERS_OWN).exists() {
        no_others(root, &root.join(LOADERS_OWN), &known)?;
    }
    for folder in folders(settings) {
        no_others(root, &below(root, folder)?, &known)?;
    }
    // Of jobs that begin at once one reads, the others wait for what it remembers.
    let turn = open_lock(&memory.join("reading"))?;
    turn.lock()?;
    let mut digests = Memory::of_environment(memory);
    let compared = shipped.iter().try_for_each(|file| {
        let path = below(root, Path::new(&file.path))?;
        same(file, &path, &mut digests).with_context(|| file.path.clone())
    });
    digests.keep();
    compared
}

/// The folders in which a compiler and its loader look for more than they are told of.
fn folders(settings: &Settings) -> impl Iterator<Item = &Path> {
    let compilers = settings.compilers.iter().filter_map(|allowed| allowed.path().parent());
    compilers.chain(settings.library_path.iter().map(PathBuf::as_path))
}

fn no_others(root: &Path, folder: &Path, known: &BTreeSet<PathBuf>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    for entry in entries {
        let path = entry?.path();
        let shown = path.strip_prefix(root).unwrap_or(&path);
        ensure!(known.contains(&path), "{} was not sent", shown.display());
    }
    Ok(())
}

fn same(shipped: &Shipped, path: &Path, digests: &mut Memory) -> Result<()> {
    let about = fs::symlink_metadata(path)?;
    ensure!(about.is_file(), "it is no file");
    ensure!(about.len() == shipped.length, "{} bytes, not {}", about.len(), shipped.length);
    let build_id = Elf::read(&File::open(path)?).ok().and_then(|elf| elf.build_id);
    ensure!(build_id == shipped.build_id, "it has another build id");
    ensure!(digests.digest(path)? == shipped.blake3.to_string(), "it has other bytes");
    Ok(())
}

/// A path of a request or of the settings, below the root.
fn below(root: &Path, path: &Path) -> Result<PathBuf> {
    let path = path.strip_prefix("/").unwrap_or(path);
    let plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    ensure!(plain, "{path:?} is no path in an environment");
    Ok(root.join(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::Digest;
    use crate::worker::settings::Allowed;
    use std::os::unix::fs::{MetadataExt, symlink};

    struct Unpacked {
        root: tempfile::TempDir,
        shipped: Vec<Shipped>,
        settings: Settings,
    }

    fn unpacked() -> Unpacked {
        let root = tempfile::tempdir().unwrap();
        let files = [("opt/bin/clang", "compiler"), ("opt/lib/libz.so.1", "library")];
        let shipped = files.map(|(path, content)| {
            fs::create_dir_all(root.path().join(path).parent().unwrap()).unwrap();
            fs::write(root.path().join(path), content).unwrap();
            let (length, blake3) = (content.len() as u64, Digest::of(content.as_bytes()));
            Shipped { path: path.to_owned(), length, build_id: None, blake3 }
        });
        fs::create_dir(root.path().join("tmp")).unwrap();
        let settings = Settings {
            compilers: vec![Allowed::Clang("/opt/bin/clang".into())],
            library_path: vec!["/opt/lib".into()],
            ..Settings::default()
        };
        Unpacked { root, shipped: shipped.into(), settings }
    }

    impl Unpacked {
        fn path(&self, name: &str) -> PathBuf {
            self.root.path().join(name)
        }

        fn compare(&self) -> Result<(), String> {
            let (root, memory) = (self.root.path(), self.path("tmp"));
            let compared = compare(root, &self.shipped, &self.settings, &memory);
            compared.map_err(|error| format!("{error:#}"))
        }
    }

    #[test]
    fn what_was_sent_is_found_and_read_once() {
        let unpacked = unpacked();
        assert_eq!(unpacked.compare(), Ok(()));
        let memory = || {
            let files = fs::read_dir(unpacked.path("tmp")).unwrap().map(|entry| entry.unwrap());
            let mut files = files.filter(|file| file.file_name() != "reading");
            files.next().unwrap().metadata().unwrap().ino()
        };
        let before = memory();
        assert_eq!(unpacked.compare(), Ok(()));
        assert_eq!(memory(), before, "something was read again");
    }

    #[test]
    fn a_change_is_seen_and_named_even_of_the_same_size_and_after_a_good_look() {
        for (content, what) in [("Library", "other bytes"), ("libraries", "9 bytes, not 7")] {
            let unpacked = unpacked();
            assert_eq!(unpacked.compare(), Ok(()));
            fs::write(unpacked.path("opt/lib/libz.so.1"), content).unwrap();
            let said = unpacked.compare().unwrap_err();
            assert!(said.starts_with("opt/lib/libz.so.1: ") && said.contains(what), "{said}");
        }
    }

    #[test]
    fn another_build_id_is_seen_without_reading_all() {
        let mut unpacked = unpacked();
        unpacked.shipped[0].build_id = Some("ab".to_owned());
        assert_eq!(unpacked.compare().unwrap_err(), "opt/bin/clang: it has another build id");
    }

    #[test]
    fn what_is_missing_or_a_link_is_no_file_of_it() {
        let unpacked = unpacked();
        let library = unpacked.path("opt/lib/libz.so.1");
        fs::rename(&library, unpacked.path("tmp/z")).unwrap();
        assert!(unpacked.compare().unwrap_err().contains("opt/lib/libz.so.1"));
        symlink(unpacked.path("tmp/z"), &library).unwrap();
        assert_eq!(unpacked.compare().unwrap_err(), "opt/lib/libz.so.1: it is no file");
    }

    #[test]
    fn what_a_loader_or_a_compiler_would_find_besides_counts() {
        for stranger in ["opt/lib/glibc-hwcaps", "opt/bin/clang.cfg", "etc/ld.so.preload"] {
            let unpacked = unpacked();
            fs::create_dir_all(unpacked.path(stranger)).unwrap();
            assert_eq!(unpacked.compare().unwrap_err(), format!("{stranger} was not sent"));
        }
    }

    #[test]
    fn no_path_of_a_request_leads_out() {
        let mut unpacked = unpacked();
        unpacked.shipped[0].path = "opt/../../etc/passwd".to_owned();
        assert!(unpacked.compare().unwrap_err().contains("opt/bin/clang was not sent"));
        unpacked.settings.compilers.clear();
        assert!(unpacked.compare().unwrap_err().contains("no path in an environment"));
    }
}
