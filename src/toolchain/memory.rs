//! Digests of files, remembered from one link to the next in a small JSON file, so that a compiler of 270 MB is
//! read once. A file is known by device, inode, size and the times of its last changes, on this machine alone. It
//! does not know what the files are.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::ask::Banner;
use crate::os::{self, Careful, Stat};

/// A file that changed so recently could change again within one tick of the file system's clock.
const SETTLED: Duration = Duration::from_secs(2);
/// The largest remembered state that is read back, in bytes.
const LIMIT: u64 = 1 << 20;
/// A clang of many small libraries has 250; the oldest are forgotten first.
const MAX_FILES: usize = 1024;
const MAX_BANNERS: usize = 64;

/// What `stat` tells of a file: equal stamps are equal contents, for files of one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stamp(Stat);

impl From<Stat> for Stamp {
    fn from(found: Stat) -> Self {
        Stamp(found)
    }
}

impl Stamp {
    fn key(&self) -> String {
        let Stat { device, inode, size, modified_ns, changed_ns, .. } = self.0;
        format!("{device}:{inode}:{size}:{modified_ns}:{changed_ns}")
    }

    fn settled(&self, now: SystemTime, age: Duration) -> bool {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let latest = self.0.modified_ns.max(self.0.changed_ns);
        latest + (age.as_nanos() as i128) <= now.as_nanos() as i128
    }
}

/// A file's stamp and the BLAKE3 of its bytes, in hex.
pub(super) type Seen = (Stamp, String);

/// Reads a file.
pub(super) fn digest(path: &Path) -> Result<Seen> {
    let once = || open(path).and_then(|(file, stamp)| read(&file, &stamp));
    // Somebody may have made a link to it meanwhile, which changes no byte.
    once().or_else(|_| once()).with_context(|| path.display().to_string())
}

fn open(path: &Path) -> Result<(File, Stamp)> {
    // A pipe of that name must not hold us up.
    let file = OpenOptions::new().read(true).no_wait().open(path)?;
    let found = Stat::of(&file)?;
    ensure!(found.is_file, "is no regular file");
    Ok((file, found.into()))
}

fn read(file: &File, stamp: &Stamp) -> Result<Seen> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(file)?;
    ensure!(Stamp::from(Stat::of(file)?) == *stamp, "changed while it was read; try again");
    Ok((stamp.clone(), hasher.finalize().to_hex().to_string()))
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Kept {
    schema: u32,
    machine: String,
    files: HashMap<String, Entry<String>>,
    banners: HashMap<String, Entry<Banner>>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Entry<T> {
    value: T,
    /// When it was put in, in seconds since 1970.
    since: u64,
}

/// What was remembered, and what is to be.
#[derive(Debug)]
pub struct Memory {
    /// None: nothing is remembered.
    file: Option<PathBuf>,
    kept: Kept,
    changed: bool,
    /// How old a file's last change must be.
    settled: Duration,
}

impl Memory {
    /// Recalls what `folder` holds; what is damaged, or of another machine or user, is as good as nothing.
    pub fn recall(folder: Option<&Path>) -> Self {
        Memory::of(folder, folder.and_then(|_| machine()), SETTLED)
    }

    /// Recalls what `folder` holds, inside an environment that was unpacked on this machine: its files were
    /// all made at one time, nobody installs anything there, and no machine has a name.
    pub fn of_environment(folder: &Path) -> Self {
        let machine = blake3::hash(b"environment").to_hex().to_string();
        Memory::of(Some(folder), Some(machine), Duration::ZERO)
    }

    fn of(folder: Option<&Path>, machine: Option<String>, settled: Duration) -> Self {
        let file = folder.zip(machine.as_deref()).map(|(folder, machine)| {
            // Of its own per machine: a home is often shared by many.
            folder.join(format!("toolchain-{}.json", &machine[..16]))
        });
        let machine = machine.unwrap_or_default();
        let kept = file.as_deref().and_then(load).filter(|kept| kept.machine == machine);
        let kept = kept.unwrap_or(Kept { schema: 1, machine, ..Kept::default() });
        Memory { file, kept, changed: false, settled }
    }

    /// The BLAKE3 of a file's bytes, in hex, remembered or read.
    ///
    /// # Errors
    /// It is no regular file, or cannot be read.
    pub fn digest(&mut self, path: &Path) -> Result<String> {
        Ok(self.seen(path)?.1)
    }

    /// A file's stamp and digest, remembered or read.
    pub(super) fn seen(&mut self, path: &Path) -> Result<Seen> {
        let (file, stamp) = open(path).with_context(|| path.display().to_string())?;
        let key = stamp.key();
        if let Some(entry) = self.kept.files.get(&key) {
            return Ok((stamp, entry.value.clone()));
        }
        let seen = read(&file, &stamp).with_context(|| path.display().to_string())?;
        if stamp.settled(SystemTime::now(), self.settled) {
            self.changed = true;
            insert(&mut self.kept.files, MAX_FILES, key, seen.1.clone());
        }
        Ok(seen)
    }

    /// The banner remembered for `key`, which stands for all that it depends on, or that of `ask`.
    pub(super) fn banner(
        &mut self,
        key: String,
        ask: impl FnOnce() -> Result<Banner>,
    ) -> Result<Banner> {
        if let Some(entry) = self.kept.banners.get(&key) {
            return Ok(entry.value.clone());
        }
        let banner = ask()?;
        self.changed = true;
        insert(&mut self.kept.banners, MAX_BANNERS, key, banner.clone());
        Ok(banner)
    }

    /// Writes what is new. Of processes that do so at once the last one wins, which costs the others' links
    /// some reading and nothing else; neither does a folder that cannot be written.
    pub fn keep(self) {
        if let Some(file) = self.file.filter(|_| self.changed) {
            let _ = store(&file, &self.kept);
        }
    }
}

fn insert<T>(map: &mut HashMap<String, Entry<T>>, limit: usize, key: String, value: T) {
    while map.len() >= limit {
        let oldest = map.iter().min_by_key(|(_, entry)| entry.since).map(|(key, _)| key.clone());
        oldest.and_then(|key| map.remove(&key));
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    map.insert(key, Entry { value, since });
}

fn load(path: &Path) -> Option<Kept> {
    let (file, stamp) = open(path).ok()?;
    let ours = os::is_mine(&file);
    let mut text = Vec::new();
    file.take(LIMIT).read_to_end(&mut text).ok()?;
    let kept: Kept = serde_json::from_slice(&text).ok()?;
    let is_digest = |text: &str| text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit());
    let sound = kept.files.values().all(|entry| is_digest(&entry.value));
    (ours && stamp.0.size <= LIMIT && kept.schema == 1 && sound).then_some(kept)
}

fn store(path: &Path, kept: &Kept) -> Result<()> {
    let folder = path.parent().context("a file lies in a folder")?;
    fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(&serde_json::to_vec(kept)?)?;
    file.persist(path)?;
    Ok(())
}

/// This machine, as a digest of its id: that itself is nobody's business.
fn machine() -> Option<String> {
    let id = ["/etc/machine-id", "/proc/sys/kernel/random/boot_id"].iter().find_map(|path| {
        let id = fs::read_to_string(path).ok()?.trim().to_owned();
        (id.len() >= 32).then_some(id)
    })?;
    Some(blake3::hash(format!("dtlto-bridge {id}").as_bytes()).to_hex().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn old(path: &Path, content: &str) {
        fs::write(path, content).unwrap();
    }

    /// A folder with a file that is old enough to be remembered, and what was remembered of it.
    fn remembered() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("binary");
        old(&path, "content");
        std::thread::sleep(SETTLED + Duration::from_millis(20));
        let cache = folder.path().join("cache");
        let mut memory = Memory::recall(Some(&cache));
        memory.digest(&path).unwrap();
        let file = memory.file.clone().unwrap();
        memory.keep();
        (folder, path, file)
    }

    /// Replaces all remembered digests by one that no file has.
    fn poison(file: &Path) {
        let mut kept = load(file).unwrap();
        assert_eq!(kept.files.len(), 1);
        kept.files.values_mut().for_each(|entry| entry.value = "a".repeat(64));
        store(file, &kept).unwrap();
    }

    fn recalled(file: &Path, path: &Path) -> String {
        Memory::recall(file.parent()).digest(path).unwrap()
    }

    #[test]
    fn a_digest_is_remembered_until_its_file_changes() {
        let (_folder, path, file) = remembered();
        let right = digest(&path).unwrap().1;
        assert_eq!(recalled(&file, &path), right);
        poison(&file);
        assert_eq!(recalled(&file, &path), "a".repeat(64));
        let modified = path.metadata().unwrap().modified().unwrap();
        fs::write(&path, "CONTENT").unwrap();
        File::options().append(true).open(&path).unwrap().set_modified(modified).unwrap();
        assert_eq!(recalled(&file, &path), blake3::hash(b"CONTENT").to_hex().to_string());
    }

    #[test]
    fn a_young_file_is_not_remembered() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("binary");
        fs::write(&path, "content").unwrap();
        let mut memory = Memory::recall(Some(folder.path()));
        memory.digest(&path).unwrap();
        assert!(memory.kept.files.is_empty() && !memory.changed);
    }

    #[test]
    fn what_is_damaged_or_foreign_is_ignored_and_written_anew() {
        let (_folder, path, file) = remembered();
        let right = digest(&path).unwrap().1;
        let good = fs::read_to_string(&file).unwrap();
        let foreign = good.replace("\"machine\":\"", "\"machine\":\"0");
        let no_digest = good.replace(&right, "short");
        let newer = good.replace("\"schema\":1", "\"schema\":2");
        for bad in [&good[..good.len() / 2], "", "[]", &foreign, &no_digest, &newer] {
            fs::write(&file, bad).unwrap();
            let mut memory = Memory::recall(file.parent());
            assert_eq!(memory.digest(&path).unwrap(), right, "{bad}");
            memory.keep();
            assert_eq!(load(&file).unwrap().files.len(), 1, "{bad}");
        }
    }

    #[test]
    fn the_oldest_is_forgotten_when_there_are_too_many() {
        let mut map = HashMap::new();
        for (key, since) in [("b", 2), ("a", 1), ("c", 3)] {
            map.insert(key.to_owned(), Entry { value: (), since });
        }
        insert(&mut map, 3, "d".into(), ());
        assert_eq!(map.len(), 3);
        assert!(!map.contains_key("a"));
    }

    #[test]
    fn processes_at_once_leave_a_whole_file() {
        let (_folder, path, file) = remembered();
        std::thread::scope(|scope| {
            for name in 0..8 {
                let (path, folder) = (&path, file.parent());
                scope.spawn(move || {
                    for round in 0..20 {
                        let mut memory = Memory::recall(folder);
                        assert_eq!(memory.kept.files.len(), 1);
                        memory.digest(path).unwrap();
                        let banner = Banner {
                            version: "clang version 1".into(),
                            target: "t".into(),
                            config_folders: Vec::new(),
                        };
                        memory.banner(format!("{name} {round}"), || Ok(banner)).unwrap();
                        memory.keep();
                    }
                });
            }
        });
        assert!(!load(&file).unwrap().banners.is_empty());
        let files = fs::read_dir(file.parent().unwrap()).unwrap().count();
        assert_eq!(files, 1, "temporary files are left");
    }

    #[test]
    fn a_pipe_or_a_folder_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RWXU,
            0,
        )
        .unwrap();
        for path in [pipe.as_path(), folder.path()] {
            assert!(format!("{:#}", digest(path).unwrap_err()).contains("no regular file"));
        }
    }
}
