//! What links remember of hosts for each other, in one small file of the user's cache folder. It is a help and
//! no more: damaged, missing or from the future, it counts as empty. What is remembered knows no clock but the
//! caller's.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use super::probe::Verdict;

/// Seconds that a good host needs no further probe.
const GOOD: u64 = 300;
/// Seconds that a bad host is left out: a repair shows soon, a host that is down costs little.
const BAD: u64 = 60;
/// Seconds for which a dead farm is left alone; doubled by each further time, up to the second number.
const DEAD: (u64, u64) = (60, 600);
/// Seconds after which an entry is dropped.
const FORGET: u64 = 7 * 24 * 3600;
/// A file larger than this is none of ours.
const LARGEST: u64 = 4 << 20;
const SCHEMA: u32 = 1;
/// How often and how long to wait for another link that writes.
const TRIES: (usize, Duration) = (20, Duration::from_millis(5));

/// What is remembered. Times are seconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Remembered {
    schema: u32,
    /// By the host's name.
    hosts: BTreeMap<String, Host>,
    /// By the names of all its hosts.
    farms: BTreeMap<String, Farm>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Host {
    at: u64,
    probe: Option<Probe>,
    seconds_per_byte: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Probe {
    at: u64,
    /// For which compiler: another link may be made by another clang.
    compiler: String,
    verdict: Verdict,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Farm {
    at: u64,
    seconds: u64,
    reason: String,
}

/// A farm is known by its hosts.
pub fn farm_key<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut names: Vec<&str> = names.into_iter().collect();
    names.sort_unstable();
    blake3::hash(names.join(" ").as_bytes()).to_hex()[..16].to_owned()
}

/// `at` is past, and by less than `seconds`. A time in the future comes from a clock that was set back.
fn fresh(now: u64, at: u64, seconds: u64) -> bool {
    now.checked_sub(at).is_some_and(|age| age < seconds)
}

impl Remembered {
    /// The result of a host's last probe for the compiler with this digest, if it still counts.
    pub fn verdict(&self, now: u64, host: &str, compiler: &str) -> Option<&Verdict> {
        let probe = self.hosts.get(host)?.probe.as_ref()?;
        let counts = if probe.verdict.is_good() { GOOD } else { BAD };
        (probe.compiler == compiler && fresh(now, probe.at, counts)).then_some(&probe.verdict)
    }

    /// Notes the result of a probe, or that a job showed the same.
    pub fn note_verdict(&mut self, now: u64, host: &str, compiler: &str, verdict: Verdict) {
        let host = self.hosts.entry(host.to_owned()).or_default();
        host.at = now;
        host.probe = Some(Probe { at: now, compiler: compiler.to_owned(), verdict });
    }

    /// A host's speed, as [`super::placement::Known`] wants it.
    pub fn seconds_per_byte(&self, host: &str) -> Option<f64> {
        self.hosts.get(host)?.seconds_per_byte.filter(|speed| speed.is_finite() && *speed > 0.0)
    }

    /// Notes a host's speed.
    pub fn note_speed(&mut self, now: u64, host: &str, seconds_per_byte: f64) {
        let host = self.hosts.entry(host.to_owned()).or_default();
        host.at = now;
        host.seconds_per_byte = Some(seconds_per_byte);
    }

    /// Why the whole farm is to be left alone, and for how many seconds more.
    pub fn dead_farm(&self, now: u64, farm: &str) -> Option<(&str, u64)> {
        let farm = self.farms.get(farm)?;
        let dead = fresh(now, farm.at, farm.seconds);
        dead.then(|| (&*farm.reason, farm.at + farm.seconds - now))
    }

    /// Notes that no host of a farm can be used: it is not asked again for a minute, then for two, ...
    pub fn note_dead_farm(&mut self, now: u64, farm: &str, reason: &str) {
        let before = self.farms.get(farm).map_or(0, |farm| farm.seconds);
        let farm = self.farms.entry(farm.to_owned()).or_insert_with(|| Farm {
            at: now,
            seconds: 0,
            reason: String::new(),
        });
        // Links that began together say the same thing at the same time.
        if farm.seconds == 0 || !fresh(now, farm.at, farm.seconds) {
            farm.seconds = (before * 2).clamp(DEAD.0, DEAD.1);
            farm.at = now;
        }
        farm.reason = reason.to_owned();
    }

    /// Notes that a host of the farm has done a job.
    pub fn note_farm_works(&mut self, farm: &str) {
        self.farms.remove(farm);
    }

    fn read(file: &Path) -> Self {
        let read = || -> Option<Self> {
            let mut text = String::new();
            File::open(file).ok()?.take(LARGEST).read_to_string(&mut text).ok()?;
            serde_json::from_str(&text).ok().filter(|found: &Self| found.schema == SCHEMA)
        };
        read().unwrap_or_default()
    }

    fn drop_old(&mut self, now: u64) {
        self.hosts.retain(|_, host| fresh(now, host.at, FORGET));
        self.farms.retain(|_, farm| fresh(now, farm.at, FORGET));
    }
}

/// The file.
#[derive(Clone, Debug)]
pub struct Memory {
    file: PathBuf,
}

impl Memory {
    /// In `folder`, the bridge's own in the user's cache folder; it is made with the first note.
    pub fn new(folder: &Path) -> Self {
        Memory { file: folder.join("hosts.json") }
    }

    /// What is remembered.
    pub fn read(&self) -> Remembered {
        Remembered::read(&self.file)
    }

    /// Changes what is remembered, one link at a time; readers see the old file or the new one.
    ///
    /// # Errors
    /// The folder cannot be written to, or others write all the time. The link can go on.
    pub fn update(&self, now: u64, change: impl FnOnce(&mut Remembered)) -> anyhow::Result<()> {
        let name = self.file.display();
        let folder = self.file.parent().context("the cache folder has no name")?;
        fs::create_dir_all(folder).with_context(|| format!("{}", folder.display()))?;
        let lock = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(self.file.with_extension("lock"))
            .with_context(|| format!("{name}: its lock"))?;
        let mut tries = 0..TRIES.0;
        while lock.try_lock().is_err() {
            if tries.next().is_none() {
                bail!("{name} is locked by other links; nothing is remembered this time");
            }
            thread::sleep(TRIES.1);
        }
        let mut remembered = self.read();
        change(&mut remembered);
        remembered.drop_old(now);
        remembered.schema = SCHEMA;
        let mut new = tempfile::NamedTempFile::new_in(folder)?;
        new.write_all(&serde_json::to_vec(&remembered)?)?;
        new.persist(&self.file).with_context(|| format!("{name} cannot be replaced"))?;
        Ok(())
    }
}

/// Seconds since 1970.
pub fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// What is remembered of one farm as a whole, where its hosts are not known.
#[derive(Clone, Debug)]
pub struct FarmMemory {
    memory: Memory,
    farm: String,
}

impl FarmMemory {
    /// The farm with the key `farm`, in the bridge's own `folder` of the user's cache folder.
    pub fn new(folder: &Path, farm: String) -> Self {
        FarmMemory { memory: Memory::new(folder), farm }
    }

    /// Why the farm is to be left alone, if it is.
    pub fn dead(&self) -> Option<String> {
        let all = self.memory.read();
        let (reason, seconds) = all.dead_farm(unix_now(), &self.farm)?;
        Some(format!("{reason} (not asked again for {seconds} s)"))
    }

    /// Lets the next links know that it is of no use.
    pub fn note_dead(&self, reason: &str) {
        // What cannot be remembered is found out again.
        let now = unix_now();
        let _ = self.memory.update(now, |all| all.note_dead_farm(now, &self.farm, reason));
    }

    /// Lets the next links know that it works, if they were told otherwise.
    pub fn note_works(&self) {
        if self.memory.read().farms.contains_key(&self.farm) {
            let _ = self.memory.update(unix_now(), |all| all.note_farm_works(&self.farm));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000;

    fn memory() -> (tempfile::TempDir, Memory) {
        let folder = tempfile::tempdir().unwrap();
        let memory = Memory::new(&folder.path().join("made/later"));
        (folder, memory)
    }

    #[test]
    fn a_probe_counts_for_a_while_and_for_its_compiler() {
        let mut all = Remembered::default();
        all.note_verdict(NOW, "a", "x", Verdict::Good { stores: true });
        all.note_verdict(NOW, "b", "x", Verdict::NotAllowed);
        assert_eq!(all.verdict(NOW + GOOD - 1, "a", "x"), Some(&Verdict::Good { stores: true }));
        assert_eq!(all.verdict(NOW + GOOD, "a", "x"), None);
        assert_eq!(all.verdict(NOW + BAD - 1, "b", "x"), Some(&Verdict::NotAllowed));
        assert_eq!(all.verdict(NOW + BAD, "b", "x"), None);
        assert_eq!(all.verdict(NOW, "a", "y"), None);
        assert_eq!(all.verdict(NOW - 1, "a", "x"), None, "the clock was set back");
    }

    #[test]
    fn a_dead_farm_is_left_alone_twice_as_long_each_time() {
        let (mut all, mut now) = (Remembered::default(), NOW);
        for seconds in [60, 120, 240, 480, 600, 600] {
            all.note_dead_farm(now, "farm", "nobody answers");
            all.note_dead_farm(now + 1, "farm", "nobody answers");
            assert_eq!(all.dead_farm(now, "farm"), Some(("nobody answers", seconds)));
            assert_eq!(all.dead_farm(now + seconds, "farm"), None);
            now += seconds;
        }
        all.note_farm_works("farm");
        all.note_dead_farm(now, "farm", "again");
        assert_eq!(all.dead_farm(now, "farm"), Some(("again", 60)));
    }

    #[test]
    fn a_farm_that_works_again_is_used_again() {
        let folder = tempfile::tempdir().unwrap();
        let farm = FarmMemory::new(folder.path(), farm_key(["icecc", "x"]));
        assert_eq!(farm.dead(), None);
        farm.note_dead("no scheduler");
        let words = farm.dead().unwrap();
        assert!(words.starts_with("no scheduler (not asked again for "), "{words}");
        assert_eq!(FarmMemory::new(folder.path(), farm_key(["icecc", "y"])).dead(), None);
        farm.note_works();
        assert_eq!(farm.dead(), None);
    }

    #[test]
    fn a_farm_is_its_hosts_in_any_order() {
        assert_eq!(farm_key(["a", "b"]), farm_key(["b", "a"]));
        assert_ne!(farm_key(["a", "b"]), farm_key(["a", "c"]));
    }

    #[test]
    fn what_is_written_is_read_and_old_hosts_are_forgotten() {
        let (_folder, memory) = memory();
        let verdict = Verdict::Down("refused".into());
        memory
            .update(NOW, |all| {
                all.note_speed(NOW - FORGET, "old", 1e-6);
                all.note_speed(NOW, "a", 2.5e-6);
                all.note_verdict(NOW, "a", "x", verdict.clone());
            })
            .unwrap();
        let all = memory.read();
        assert_eq!((all.seconds_per_byte("a"), all.seconds_per_byte("old")), (Some(2.5e-6), None));
        assert_eq!(all.verdict(NOW, "a", "x"), Some(&verdict));
    }

    #[test]
    fn a_damaged_file_counts_as_empty_and_is_replaced() {
        let (_folder, memory) = memory();
        memory.update(NOW, |all| all.note_speed(NOW, "a", 1e-6)).unwrap();
        let good = fs::read(&memory.file).unwrap();
        for bad in
            [&good[..good.len() / 2], b"", b"{\"schema\":2,\"hosts\":{},\"farms\":{}}", b"\xff"]
        {
            fs::write(&memory.file, bad).unwrap();
            assert_eq!(memory.read(), Remembered::default());
        }
        memory.update(NOW, |all| all.note_speed(NOW, "b", 1e-6)).unwrap();
        assert!(memory.read().seconds_per_byte("b").is_some());
    }

    #[test]
    fn links_that_write_at_once_lose_nothing() {
        let (_folder, memory) = memory();
        thread::scope(|scope| {
            for n in 0..4 {
                let memory = &memory;
                let note = move |all: &mut Remembered| all.note_speed(NOW, &format!("h{n}"), 1e-6);
                scope.spawn(move || while memory.update(NOW, note).is_err() {});
            }
        });
        assert_eq!(memory.read().hosts.len(), 4);
    }

    #[test]
    fn a_folder_that_cannot_be_used_is_an_error_that_names_it() {
        let text =
            format!("{:#}", Memory::new(Path::new("/dev/null/x")).update(NOW, |_| ()).unwrap_err());
        assert!(text.contains("/dev/null/x"), "{text}");
    }
}
