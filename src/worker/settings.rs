//! The owner's settings: which compilers may run here, where, under which limits. A worker without
//! readable settings refuses every job, and says which files it looked for. Nothing in a request
//! changes them.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde::Deserialize;
use serde_json::Value;

/// Marks the root of an icecream environment of ours, and holds the worker's settings there.
pub const ENVIRONMENT_FILE: &str = "/dtlto-environment.json";
/// Where a host's settings lie if they are nowhere else.
const SYSTEM_FILE: &str = "/etc/dtlto-worker.json";
/// Settings are short.
const LONGEST: u64 = 1 << 20;
/// A year. No clock can be asked for much more.
const LONGEST_TIME: u64 = 365 * 24 * 3600;
/// icecream's clients give up after 12 minutes, the upload not counted.
const ENVIRONMENT_TIME: Duration = Duration::from_secs(11 * 60);

/// The settings of a worker.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// What may run.
    pub compilers: Vec<Allowed>,
    /// Where jobs get their folders.
    pub scratch: Option<PathBuf>,
    /// Where pieces of requests are kept for later ones; else nowhere.
    pub store: Option<PathBuf>,
    /// How large that store may grow.
    pub store_limit: Option<Size>,
    /// Whether a job may run without Landlock.
    pub landlock: Option<Landlock>,
    /// What a job may use.
    pub limits: Limits,
    /// The log file, or `syslog`.
    pub log: Option<PathBuf>,
    /// Folders of the compiler's libraries, where its loader would not find them: in a chroot without
    /// `/proc` no path can be relative to the program.
    pub library_path: Vec<PathBuf>,
}

/// A compiler that may run.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub enum Allowed {
    /// clang itself; its version and files are compared with those that a request was made for.
    Clang(PathBuf),
    /// Any program, a script too, as long as it has these very bytes.
    Program(Program),
}

/// A program that is allowed by its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Where it is.
    pub path: PathBuf,
    /// The digest of its bytes, 64 hex digits.
    pub blake3: String,
    /// Files and folders that it reads and programs that it starts, besides the system's own.
    #[serde(default)]
    pub needs: Vec<PathBuf>,
}

impl TryFrom<Value> for Allowed {
    type Error = serde_json::Error;

    fn try_from(value: Value) -> Result<Self, Self::Error> {
        match value {
            Value::Object(_) => Program::deserialize(value).map(Allowed::Program),
            _ => PathBuf::deserialize(value).map(Allowed::Clang),
        }
    }
}

impl Allowed {
    /// Where it is.
    pub fn path(&self) -> &Path {
        match self {
            Allowed::Clang(path) | Allowed::Program(Program { path, .. }) => path,
        }
    }
}

/// Whether the kernel must be able to lock a compiler in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Landlock {
    /// Without it no job runs.
    Require,
    /// A job runs without it where it cannot be had.
    Try,
}

/// What a job may use.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Memory of one job.
    pub memory: Option<Size>,
    /// Memory of all jobs at once.
    pub total_memory: Option<Size>,
    /// Seconds.
    pub time: Option<u64>,
    /// One output file.
    pub output: Option<Size>,
    /// All files of a request.
    pub request: Option<Size>,
}

/// Bytes: a number, or text such as `"512M"` or `"4G"` (powers of 1024).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub struct Size(pub u64);

impl TryFrom<Value> for Size {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let number = || match &value {
            Value::String(text) => {
                let digits = text.trim_end_matches(['K', 'M', 'G', 'T']);
                let shift = match &text[digits.len()..] {
                    "" => 0,
                    "K" => 10,
                    "M" => 20,
                    "G" => 30,
                    "T" => 40,
                    _ => return None,
                };
                digits.parse::<u64>().ok()?.checked_mul(1 << shift)
            }
            other => other.as_u64(),
        };
        number().map(Size).ok_or_else(|| format!("{value} is no size such as 4294967296 or \"4G\""))
    }
}

/// Settings, and where they come from.
#[derive(Clone, Debug)]
pub struct Found {
    /// The file.
    pub file: PathBuf,
    /// What it says.
    pub settings: Settings,
    /// This worker runs inside an icecream environment.
    pub environment: bool,
}

/// Reads the settings: those of the icecream environment this process is in; else `named`, the file that
/// the daemon's environment names; else `dtlto-worker.json` beside the worker's own `binary`; else the system's.
///
/// # Errors
/// There are none, or they cannot be used. The text says which files were looked for.
pub fn find(named: Option<&Path>, binary: Option<&Path>) -> anyhow::Result<Found> {
    let environment = Path::new(ENVIRONMENT_FILE);
    let beside = binary.map(|binary| binary.with_file_name("dtlto-worker.json"));
    let places: Vec<&Path> = match named {
        _ if environment.exists() => vec![environment],
        Some(named) => vec![named],
        None => beside.iter().map(PathBuf::as_path).chain([Path::new(SYSTEM_FILE)]).collect(),
    };
    for place in &places {
        match File::open(place) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            opened => {
                let settings = opened.map_err(Into::into).and_then(read);
                let settings = settings.with_context(|| {
                    format!("the worker's settings {} cannot be used", place.display())
                })?;
                let file = place.to_path_buf();
                return Ok(Found { file, settings, environment: *place == environment });
            }
        }
    }
    let tried: Vec<_> = places.iter().map(|place| place.display().to_string()).collect();
    bail!("this worker has no settings: there is no {}", tried.join(" and no "))
}

fn read(file: File) -> anyhow::Result<Settings> {
    let found = file.metadata()?;
    ensure!(found.is_file(), "it is not a regular file");
    let own = [0, rustix::process::geteuid().as_raw()];
    ensure!(own.contains(&found.uid()), "it belongs to neither root nor this worker's user");
    ensure!(found.mode() & 0o022 == 0, "others may write to it: chmod go-w");
    let mut text = String::new();
    file.take(LONGEST).read_to_string(&mut text)?;
    parse(&text)
}

fn parse(text: &str) -> anyhow::Result<Settings> {
    let mut json = serde_json::Deserializer::from_str(text);
    let settings: Settings = serde_path_to_error::deserialize(&mut json)?;
    json.end()?;
    let paths = settings.compilers.iter().map(Allowed::path);
    let folders = settings.scratch.iter().chain(&settings.store).chain(&settings.library_path);
    let log = settings.log.iter().filter(|log| *log != Path::new("syslog"));
    for path in paths.chain(folders.chain(log).map(PathBuf::as_path)) {
        ensure!(path.is_absolute(), "{}: an absolute path is expected", path.display());
    }
    ensure!(!settings.compilers.is_empty(), "compilers: no compiler is allowed");
    let time = settings.limits.time.unwrap_or(1);
    ensure!(time > 0, "limits.time: no time is left");
    ensure!(time <= LONGEST_TIME, "limits.time: {time} seconds are more than a year");
    Ok(settings)
}

impl Found {
    /// Whether a job may run without Landlock. In an icecream environment the chroot is the boundary.
    pub fn landlock(&self) -> Landlock {
        let default = if self.environment { Landlock::Try } else { Landlock::Require };
        self.settings.landlock.unwrap_or(default)
    }

    /// The longest that a job may take.
    pub fn time(&self) -> Duration {
        let set = Duration::from_secs(self.settings.limits.time.unwrap_or(3600));
        if self.environment { set.min(ENVIRONMENT_TIME) } else { set }
    }

    /// Bytes of one output file.
    pub fn output(&self) -> u64 {
        self.settings.limits.output.map_or(1 << 30, |size| size.0)
    }

    /// Bytes that the store may take.
    pub fn store_limit(&self) -> u64 {
        self.settings.store_limit.map_or(2 << 30, |size| size.0)
    }

    /// Bytes of all files of a request.
    pub fn request(&self) -> u64 {
        self.settings.limits.request.map_or(1 << 30, |size| size.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn error(text: &str) -> String {
        format!("{:#}", parse(text).unwrap_err())
    }

    #[test]
    fn all_keys_are_read() {
        let settings = parse(
            r#"{"compilers": ["/usr/bin/clang-22", {"path": "/w", "blake3": "ab", "needs": ["/x"]}],
                "scratch": "/s", "store": "/t", "store_limit": "4G", "landlock": "try",
                "limits": {"memory": 7, "total_memory": "512M", "time": 60, "output": "1K"},
                "log": "syslog"}"#,
        )
        .unwrap();
        let paths: Vec<&Path> = settings.compilers.iter().map(Allowed::path).collect();
        assert_eq!(paths, [Path::new("/usr/bin/clang-22"), Path::new("/w")]);
        assert_eq!(settings.store_limit, Some(Size(4 << 30)));
        assert_eq!(settings.limits.total_memory, Some(Size(512 << 20)));
        assert_eq!(settings.landlock, Some(Landlock::Try));
    }

    #[test]
    fn what_is_not_understood_is_named() {
        let unknown = error(r#"{"compilers": ["/a"], "compiler": 1}"#);
        assert!(unknown.contains("unknown field `compiler`"), "{unknown}");
        let deep = error(r#"{"compilers": ["/a"], "limits": {"memory": "4X"}}"#);
        assert!(deep.contains("limits.memory") && deep.contains("\"4G\""), "{deep}");
        let program = error(r#"{"compilers": [{"path": "/a", "sha": ""}]}"#);
        assert!(program.contains("unknown field `sha`"), "{program}");
        assert!(error(r#"{"compilers": ["clang"]}"#).contains("clang: an absolute path"));
        assert!(error(r#"{"scratch": "/s"}"#).contains("no compiler is allowed"));
        assert!(error(r#"{"compilers": ["/a"], "compilers": ["/b"]}"#).contains("duplicate"));
        assert!(error(r#"{"compilers": ["/a"]} x"#).contains("trailing"));
        assert!(error(r#"{"compilers": ["/a"], "landlock": "off"}"#).contains("landlock"));
        let ever = format!(r#"{{"compilers": ["/a"], "limits": {{"time": {}}}}}"#, u64::MAX);
        assert!(error(&ever).contains("more than a year"));
    }

    #[test]
    fn a_named_file_is_the_only_place_and_must_be_ours() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("w.json");
        let text = format!("{:#}", find(Some(&file), None).unwrap_err());
        assert_eq!(text, format!("this worker has no settings: there is no {}", file.display()));
        fs::write(&file, r#"{"compilers": ["/a"]}"#).unwrap();
        assert!(find(Some(&file), None).is_ok());
        fs::set_permissions(&file, fs::Permissions::from_mode(0o664)).unwrap();
        let text = format!("{:#}", find(Some(&file), None).unwrap_err());
        assert!(text.contains("others may write to it"), "{text}");
    }

    #[test]
    fn else_it_is_beside_the_binary() {
        let folder = tempfile::tempdir().unwrap();
        let binary = folder.path().join("dtlto-bridge");
        let text = format!("{:#}", find(None, Some(&binary)).unwrap_err());
        assert!(text.contains("dtlto-worker.json and no /etc/dtlto-worker.json"), "{text}");
        fs::write(folder.path().join("dtlto-worker.json"), r#"{"compilers": ["/a"]}"#).unwrap();
        let found = find(None, Some(&binary)).unwrap();
        assert_eq!(found.file, folder.path().join("dtlto-worker.json"));
        assert_eq!((found.landlock(), found.time().as_secs()), (Landlock::Require, 3600));
    }

    #[test]
    fn an_environment_of_icecream_has_less_time_and_a_boundary() {
        let settings = parse(r#"{"compilers": ["/a"]}"#).unwrap();
        let found = Found { file: ENVIRONMENT_FILE.into(), settings, environment: true };
        assert_eq!((found.landlock(), found.time().as_secs()), (Landlock::Try, 660));
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(text: String, number: u64, letter: char) {
            let _ = parse(&text);
            let _ = Size::try_from(Value::String(format!("{number}{letter}")));
        }
    }
}
