//! The owner's log: one JSON object a line for each request, since the daemons' own logs call everything
//! a success. What comes from requests is claimed, not proved, and cannot break a line. It is bounded: a full
//! file becomes `<name>.1`. A log that cannot be written is no reason to refuse a job.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Bytes of a file that is full.
const FULL: u64 = 16 << 20;
/// Letters of a text that are kept.
const LETTERS: usize = 300;
/// Facility "daemon", severity "info".
const SYSLOG_PRIORITY: &str = "<30>";

/// What became of one request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Entry {
    /// When, in UTC.
    pub time: String,
    /// One word: `ran`, `refused`, ...
    pub result: String,
    /// Exit code or signal, or why not.
    pub detail: String,
    /// The host that the request says it comes from.
    pub host: String,
    /// The user that it says.
    pub user: String,
    /// The link's id.
    pub link: String,
    /// The job's number in that link.
    pub job: Option<usize>,
    /// The primary module's name in that link.
    pub module: String,
    /// The compiler's version.
    pub compiler: String,
    /// Whether it was locked in.
    pub locked: bool,
    /// The whole time in milliseconds.
    pub ms: u64,
    /// Bytes of the request.
    pub bytes_in: u64,
    /// Bytes of the response.
    pub bytes_out: u64,
    /// The compiler's peak of memory in KiB.
    pub peak_kb: u64,
}

impl Entry {
    /// The line of the log, with its end.
    fn line(mut self) -> String {
        for text in [
            &mut self.detail,
            &mut self.host,
            &mut self.user,
            &mut self.link,
            &mut self.module,
            &mut self.compiler,
        ] {
            *text = harmless(text);
        }
        serde_json::to_string(&self).unwrap_or_default() + "\n"
    }
}

/// Without what could deceive a terminal, and not too long.
fn harmless(text: &str) -> String {
    let shown = |letter: char| match letter {
        ' ' => letter,
        // Control characters, line separators, and marks that turn the direction of writing.
        _ if letter.is_control() || letter.is_whitespace() => '?',
        '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' => '?',
        _ => letter,
    };
    text.chars().take(LETTERS).map(shown).collect()
}

/// Where lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Log {
    /// A file.
    File(PathBuf),
    /// The system's log.
    Syslog,
}

impl Log {
    /// As the settings say; `log` in `scratch` if they say nothing.
    pub fn new(setting: Option<&Path>, scratch: &Path) -> Log {
        match setting {
            Some(place) if place == Path::new("syslog") => Log::Syslog,
            place => Log::File(place.map_or_else(|| scratch.join("log"), Path::to_owned)),
        }
    }

    /// Adds a line.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn add(&self, entry: Entry) -> io::Result<()> {
        let line = entry.line();
        match self {
            Log::File(path) => append(path, &line, FULL),
            Log::Syslog => {
                let pid = rustix::process::getpid();
                let text = format!("{SYSLOG_PRIORITY}dtlto-worker[{pid}]: {}", line.trim_end());
                UnixDatagram::unbound()?.send_to(text.as_bytes(), "/dev/log").map(drop)
            }
        }
    }

    /// Totals of the file and of the one before it.
    ///
    /// # Errors
    /// There is no such file, or it is the system's log.
    pub fn totals(&self) -> io::Result<Totals> {
        let Log::File(path) = self else {
            return Err(io::Error::other("the log is the system's: look there"));
        };
        let mut totals = Totals::default();
        let current = File::open(path)?;
        for file in File::open(older(path)).into_iter().chain([current]) {
            for line in BufReader::new(file).lines().map_while(Result::ok) {
                if let Ok(entry) = serde_json::from_str(&line) {
                    totals.add(&entry);
                }
            }
        }
        Ok(totals)
    }
}

fn older(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".1");
    name.into()
}

fn append(path: &Path, line: &str, full: u64) -> io::Result<()> {
    let open = || {
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(0o640);
        options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32).open(path)
    };
    let mut file = open()?;
    if file.metadata()?.len() + line.len() as u64 > full {
        // Whoever holds the lock of the file that still has the name may rename it.
        file.lock()?;
        let same = |now: fs::Metadata| file.metadata().is_ok_and(|own| own.ino() == now.ino());
        if fs::symlink_metadata(path).is_ok_and(same) {
            fs::rename(path, older(path))?;
        }
        file = open()?;
    }
    file.write_all(line.as_bytes())
}

/// Sums over a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Time of the first request.
    pub since: String,
    /// Requests.
    pub requests: u64,
    /// Requests of each result.
    pub results: BTreeMap<String, u64>,
    /// Bytes of all requests.
    pub bytes_in: u64,
    /// Bytes of all responses.
    pub bytes_out: u64,
    /// Milliseconds of the jobs that ran.
    pub ms: u64,
    /// The highest peak of memory, in KiB.
    pub peak_kb: u64,
}

impl Totals {
    fn add(&mut self, entry: &Entry) {
        if self.requests == 0 {
            self.since = harmless(&entry.time);
        }
        self.requests += 1;
        *self.results.entry(harmless(&entry.result)).or_default() += 1;
        self.bytes_in = self.bytes_in.saturating_add(entry.bytes_in);
        self.bytes_out = self.bytes_out.saturating_add(entry.bytes_out);
        if entry.result == RAN {
            self.ms = self.ms.saturating_add(entry.ms);
        }
        self.peak_kb = self.peak_kb.max(entry.peak_kb);
    }

    /// Milliseconds of a job that ran, on average.
    pub fn mean_ms(&self) -> u64 {
        self.results.get(RAN).map_or(0, |ran| self.ms / ran)
    }
}

/// The result of a request whose compiler ran to its end, whatever that was.
pub const RAN: &str = "ran";

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(result: &str, ms: u64) -> Entry {
        Entry { result: result.into(), ms, bytes_in: 10, bytes_out: 1, ..Entry::default() }
    }

    #[test]
    fn a_line_stays_a_line_whatever_a_request_claims() {
        let module = "a\nb\u{1b}[2Jc\u{202e}d\u{2028}e\u{7f} \u{9b}é".to_owned();
        let line = Entry { module, ..entry("ran", 1) }.line();
        assert!(line.contains(r#""module":"a?b?[2Jc?d?e? ?é""#), "{line}");
        assert_eq!(line.lines().count(), 1);
        let long = Entry { user: "x".repeat(100_000), ..entry("ran", 1) }.line();
        assert!(long.len() < 1000);
    }

    #[test]
    fn totals_count_both_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let log = Log::File(path.clone());
        assert!(log.totals().is_err());
        log.add(entry("ran", 10)).unwrap();
        fs::rename(&path, folder.path().join("log.1")).unwrap();
        log.add(entry("ran", 20)).unwrap();
        log.add(entry("refused", 500)).unwrap();
        fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"torn {\n").unwrap();
        let totals = log.totals().unwrap();
        assert_eq!((totals.requests, totals.mean_ms(), totals.bytes_in), (3, 15, 30));
        assert_eq!(totals.results, BTreeMap::from([("ran".into(), 2), ("refused".into(), 1)]));
    }

    #[test]
    fn a_full_log_is_put_aside() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        for n in 0..10 {
            append(&path, &format!("line {n}\n"), 30).unwrap();
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "line 8\nline 9\n");
        assert!(fs::metadata(folder.path().join("log.1")).unwrap().len() <= 30);
    }

    #[test]
    fn the_log_is_where_the_settings_say() {
        let scratch = Path::new("/s");
        assert_eq!(Log::new(None, scratch), Log::File("/s/log".into()));
        assert_eq!(Log::new(Some(Path::new("syslog")), scratch), Log::Syslog);
        assert_eq!(Log::new(Some(Path::new("/l")), scratch), Log::File("/l".into()));
    }
}
