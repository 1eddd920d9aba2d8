//! The switch for the night when the farm is sick: what a variable and the administrator's file force beats
//! every option. A broken one is a notice, never a failed link. It does not know how options are used.

use std::fmt;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::Path;

use anyhow::{Context, bail, ensure};
use serde::Deserialize;

use crate::cli::{Cache, Fallback, Options};
use crate::os;

/// The administrator's file.
pub const FILE: &str = os::OVERRIDE_FILE;
/// Bytes; a larger one is not what it should be.
const FILE_LIMIT: u64 = 64 << 10;

/// What is forced. Only what makes a link depend on less can be.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Overrides {
    adapter: Option<OnlyLocal>,
    cache: Option<OnlyNone>,
    fallback: Option<Where>,
    never_hosts: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum OnlyLocal {
    Local,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum OnlyNone {
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Where {
    Local,
    Never,
}

/// What the variable and the file ask for, the stronger last, each with the line that says so; and notices
/// on what cannot be used.
pub fn look(variable: Option<&str>, file: &Path) -> (Vec<(Overrides, String)>, Vec<String>) {
    let (mut found, mut notices) = (Vec::new(), Vec::new());
    let mut take = |source: &str, read: anyhow::Result<Option<Overrides>>| match read {
        Ok(Some(overrides)) => {
            let line = format!("overridden by {source}: {overrides}");
            found.push((overrides, line));
        }
        Ok(None) => {}
        Err(error) => notices.push(format!("{source} is not followed: {error:#}")),
    };
    take("DTLTO_BRIDGE_OVERRIDE", variable.map(parse_variable).transpose());
    take(&file.display().to_string(), read_file(file));
    (found, notices)
}

impl Overrides {
    /// Changes `options` as asked for.
    pub fn apply(&self, options: &mut Options) {
        if let Some(OnlyLocal::Local) = self.adapter {
            options.adapter = "local".into();
        }
        if let Some(OnlyNone::None) = self.cache {
            options.cache = Cache::None;
        }
        match self.fallback {
            Some(Where::Local) => options.fallback = Fallback::Local,
            Some(Where::Never) => options.fallback = Fallback::Never,
            None => {}
        }
        options.never_hosts.extend(self.never_hosts.iter().cloned());
    }

    /// Hosts that no job may go to.
    pub fn never_hosts(&self) -> &[String] {
        &self.never_hosts
    }
}

impl fmt::Display for Overrides {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = [
            self.adapter.map(|OnlyLocal::Local| "adapter=local".to_owned()),
            self.cache.map(|OnlyNone::None| "cache=none".to_owned()),
            self.fallback.map(|place| format!("fallback={place:?}").to_lowercase()),
            (!self.never_hosts.is_empty())
                .then(|| format!("never-hosts={}", self.never_hosts.join(","))),
        ];
        f.write_str(&words.into_iter().flatten().collect::<Vec<_>>().join(" "))
    }
}

/// `adapter=local cache=none fallback=local never-hosts=a,b`, any of them.
fn parse_variable(text: &str) -> anyhow::Result<Overrides> {
    let mut overrides = Overrides::default();
    for word in text.split_whitespace() {
        match word.split_once('=') {
            Some(("adapter", "local")) => overrides.adapter = Some(OnlyLocal::Local),
            Some(("cache", "none")) => overrides.cache = Some(OnlyNone::None),
            Some(("fallback", "local")) => overrides.fallback = Some(Where::Local),
            Some(("fallback", "never")) => overrides.fallback = Some(Where::Never),
            Some(("never-hosts", hosts)) => {
                let hosts = hosts.split(',').filter(|host| !host.is_empty());
                overrides.never_hosts.extend(hosts.map(str::to_owned));
            }
            _ => bail!(
                "{word:?} is not one of adapter=local, cache=none, fallback=local|never, \
                 never-hosts=HOST,HOST"
            ),
        }
    }
    Ok(overrides)
}

fn read_file(path: &Path) -> anyhow::Result<Option<Overrides>> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        found => found?,
    };
    ensure!(found.is_file(), "it is not a regular file");
    os::is_administrators(path, &found)?;
    let mut text = String::new();
    File::open(path)?.take(FILE_LIMIT).read_to_string(&mut text)?;
    serde_json::from_str(&text).map(Some).context("expected {\"adapter\":\"local\"} or the like")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn options(arguments: &[&str]) -> Options {
        let line = [&["dtlto-bridge"], arguments, &["jobs.json"]].concat();
        crate::cli::CommandLine::parse_from(line).options
    }

    #[test]
    fn the_variable_beats_options() {
        let mut options = options(&["--adapter=distcc", "--fallback=never"]);
        let text = "adapter=local cache=none fallback=local never-hosts=a,b";
        let (found, notices) = look(Some(text), Path::new("/none/override.json"));
        let [(overrides, line)] = found.as_slice() else { panic!("{found:?}") };
        overrides.apply(&mut options);
        assert_eq!((options.adapter.as_str(), options.fallback), ("local", Fallback::Local));
        assert_eq!(options.never_hosts, ["a", "b"]);
        assert_eq!(*line, format!("overridden by DTLTO_BRIDGE_OVERRIDE: {text}"));
        assert_eq!(notices, [""; 0]);
    }

    #[test]
    fn a_broken_variable_is_a_notice_and_changes_nothing() {
        let (found, notices) = look(Some("fallback=never adapter=icecc"), Path::new("/none"));
        assert!(found.is_empty());
        assert!(notices[0].contains("\"adapter=icecc\" is not one of"), "{notices:?}");
    }

    #[test]
    fn only_a_file_of_roots_own_is_followed() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("override.json");
        fs::write(&path, r#"{"adapter":"local"}"#).unwrap();
        let look_with = |mode| {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            look(None, &path)
        };
        let (found, notices) = look_with(0o666);
        assert!(found.is_empty() && notices[0].contains("is not followed"), "{notices:?}");
        let (found, notices) = look_with(0o644);
        match rustix::process::getuid().is_root() {
            true => assert!(found[0].1.ends_with("override.json: adapter=local"), "{found:?}"),
            false => assert!(notices[0].contains("does not belong to root"), "{notices:?}"),
        }
    }
}
