//! sccache-dist as a farm, by a server of sccache that is the bridge's own: what its scheduler says, and, from the
//! server's log, where each object was made. sccache tells that nowhere else, and runs a job on this machine without
//! a word where the farm has no room. It does not know jobs.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;

use super::server::Server;
use super::shim::{check_version, printed, version};
use super::{About, Trouble};
use crate::process::{Command, Groups};

/// The oldest one whose hosts take a file that needs no preprocessing.
const OLDEST: (u32, u32) = (0, 14);
/// A log that nobody reads is emptied once it has so many bytes.
const LOG_LIMIT: u64 = 32 << 20;

/// Hosts keep a compiler that they were sent, as long as there is room.
const STAYS_WARM: Duration = Duration::from_secs(24 * 3600);

/// Where an object was made, as the server's log has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// It was in the storage.
    Cache,
    /// A host of the farm has sent it.
    Farm,
    /// Neither is to be read there: on this machine, then.
    Here,
}

/// What the jobs of a link share on sccache-dist.
#[derive(Debug)]
pub struct Dist {
    /// What decides about the compiler's objects: part of what sccache knows jobs by.
    pub compiler: String,
    /// Jobs that the farm may take now.
    pub slots: usize,
    /// The farm has the compiler already.
    pub warm: bool,
    server: Server,
    address: String,
    log: Mutex<Log>,
    /// Says by its time when the farm last had that compiler.
    marker: PathBuf,
}

impl Dist {
    /// Finds or starts the server and asks for the scheduler.
    ///
    /// # Errors
    /// The tool is too old, the server does not start, or there is no scheduler that answers.
    pub fn open(about: &About, compiler: &str) -> Result<Self, Trouble> {
        check_version(&version(about)?, OLDEST)?;
        let server = Server::for_farm(about)?;
        server.find_or_start(&about.groups, about.deadline)?;
        let (name, address) = server.variable();
        let status = Command {
            program: about.tool.clone(),
            args: vec!["--dist-status".into()],
            clear: true,
            set: [
                (&*name, &*address),
                ("HOME", "/"),
                ("SCCACHE_CONF", "/dev/null"),
                super::NO_START,
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
            ..Command::default()
        };
        let slots = slots(&printed(about, status)?)?;
        let marker = server.file(&format!("{}.warm", compiler.get(..16).unwrap_or(compiler)));
        let age = fs::metadata(&marker).and_then(|found| found.modified());
        let age = age.ok().and_then(|noted| SystemTime::now().duration_since(noted).ok());
        let warm = age.is_some_and(|age| age < STAYS_WARM);
        let log = Mutex::new(Log::open(&server.file("log"))?);
        Ok(Dist { compiler: compiler.to_owned(), slots, warm, server, address, log, marker })
    }

    /// The address of the server.
    pub fn server(&self) -> &str {
        &self.address
    }

    /// Starts the server again if it has died.
    ///
    /// # Errors
    /// It does not start.
    pub fn revive(&self, groups: &Groups, deadline: Instant) -> Result<(), Trouble> {
        self.server.find_or_start(groups, deadline)
    }

    /// Where the object was made whose path ends in `name`, which no other one of this server has.
    pub fn told(&self, name: &str) -> Told {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        // A log that cannot be read proves nothing.
        let _ = log.read();
        log.told.remove(name).unwrap_or(Told::Here)
    }

    /// Notes that the farm has the compiler now.
    pub fn is_warm(&self) {
        let _ = File::create(&self.marker);
    }
}

/// How many jobs the scheduler's hosts may take, by `sccache --dist-status`.
fn slots(status: &str) -> Result<usize, Trouble> {
    let no = |why: &str| Trouble::Failed(format!("sccache has no farm: {why}"));
    let status: Value = serde_json::from_str(status).map_err(|_| no(status.trim()))?;
    let Some(known) = status.get("SchedulerStatus").map(|answer| &answer[1]) else {
        let why = status.as_object().and_then(|object| object.iter().next());
        let why = why.map_or_else(|| status.to_string(), |(name, value)| format!("{name} {value}"));
        return Err(no(&format!("{why}; its settings need [dist] with scheduler_url and auth")));
    };
    let count = |name: &str| known[name].as_u64().and_then(|n| usize::try_from(n).ok());
    let (hosts, cores) = (count("num_servers").unwrap_or(0), count("num_cpus").unwrap_or(0));
    if hosts == 0 {
        return Err(no("no host has come to its scheduler"));
    }
    // A host takes one job more than it has cores, and nobody waits: beyond that sccache runs jobs here.
    Ok(cores.saturating_sub(count("in_progress").unwrap_or(0)).max(1))
}

/// The server's log, as far as it was read.
#[derive(Debug)]
struct Log {
    file: File,
    at: u64,
    /// A line that is not whole yet.
    rest: Vec<u8>,
    told: HashMap<String, Told>,
}

impl Log {
    fn open(path: &Path) -> Result<Self, Trouble> {
        let open = || {
            let file = File::options().read(true).write(true).open(path)?;
            if file.metadata()?.len() > LOG_LIMIT && file.try_lock().is_ok() {
                file.set_len(0)?;
            }
            // As long as a link reads it.
            file.lock_shared()?;
            let at = file.metadata()?.len();
            Ok(Log { file, at, rest: Vec::new(), told: HashMap::new() })
        };
        open().map_err(|error: std::io::Error| super::shim::failed(path, &error))
    }

    fn read(&mut self) -> std::io::Result<()> {
        self.file.seek(SeekFrom::Start(self.at))?;
        let mut new = std::mem::take(&mut self.rest);
        self.at += (&self.file).take(LOG_LIMIT).read_to_end(&mut new)? as u64;
        let whole = new.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        self.rest = new.split_off(whole);
        String::from_utf8_lossy(&new).lines().for_each(|line| learn(line, &mut self.told));
        Ok(())
    }
}

/// What a line of sccache's log (0.14 to 0.19) says of the place of an object.
fn learn(line: &str, told: &mut HashMap<String, Told>) {
    // `[TIME LEVEL MODULE] [OBJECT]: words`
    if let Some((_, after)) = line.split_once("] [")
        && let Some((name, words)) = after.split_once("]: ")
    {
        if words.starts_with("Cache hit in ") {
            told.insert(name.to_owned(), Told::Cache);
        } else if words.starts_with("Could not perform distributed compile") {
            told.insert(name.to_owned(), Told::Here);
        }
    // `[TIME LEVEL MODULE] fetched [("/PATH/OBJECT", "Size: 1016->400")]`
    } else if let Some((_, files)) = line.split_once("] fetched [(\"")
        && let Some((path, _)) = files.split_once('"')
        && let Some(name) = path.rsplit('/').next()
    {
        told.insert(name.to_owned(), Told::Farm);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of sccache 0.16.0.
    const LOG: &str = r#"[2026-11-30T21:05:43Z DEBUG sccache::compiler::compiler] [p8.o]: Cache miss in 0.000 s
[2026-11-30T21:05:43Z DEBUG sccache::compiler::compiler] [p8.o]: Attempting distributed compilation
[2026-11-30T21:05:43Z WARN  sccache::compiler::compiler] [p8.o]: Could not perform distributed compile, falling back to local: Insufficient capacity across 1 available servers: Failed to allocate job
[2026-11-30T21:05:43Z DEBUG sccache::compiler::compiler] [p4.o]: Running job
[2026-11-30T21:05:44Z DEBUG sccache::compiler::compiler] fetched [("/tmp/d/p4.o", "Size: 1720->720")]
[2026-11-30T21:05:44Z DEBUG sccache::compiler::compiler] [p8.o]: Compiled in 0.830 s, storing in cache
[2026-11-30T21:05:44Z DEBUG sccache::compiler::compiler] [o3.o]: Cache hit in 0.000 s
"#;

    #[test]
    fn the_log_tells_hits_the_farm_and_nothing_else() {
        let mut told = HashMap::new();
        LOG.lines().for_each(|line| learn(line, &mut told));
        let expected = [("p8.o", Told::Here), ("p4.o", Told::Farm), ("o3.o", Told::Cache)];
        assert_eq!(told, expected.map(|(name, place)| (name.to_owned(), place)).into());
    }

    #[test]
    fn a_log_is_read_as_it_grows() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        fs::write(&path, LOG).unwrap();
        let mut log = Log::open(&path).unwrap();
        log.read().unwrap();
        assert!(log.told.is_empty(), "what was there before is of other links");
        let mut writer = File::options().append(true).open(&path).unwrap();
        for part in [&LOG[..700], &LOG[700..]] {
            std::io::Write::write_all(&mut writer, part.as_bytes()).unwrap();
            log.read().unwrap();
        }
        assert_eq!(log.told.len(), 3);
    }

    #[test]
    fn the_scheduler_says_how_many_jobs_it_takes() {
        let status = |in_progress| {
            slots(&format!(
                r#"{{"SchedulerStatus":["http://h:1/",{{"num_servers":2,"num_cpus":64,"in_progress":{in_progress}}}]}}"#
            ))
        };
        assert_eq!((status(0), status(60), status(70)), (Ok(64), Ok(4), Ok(1)));
        let none = r#"{"SchedulerStatus":["x",{"num_servers":0,"num_cpus":0,"in_progress":0}]}"#;
        for text in [none, r#"{"Disabled":"disabled"}"#, r#"{"NotConnected":["x","y"]}"#, "error"] {
            assert!(slots(text).unwrap_err().to_string().starts_with("sccache has no farm"));
        }
    }
}
