//! The switch for the night when the farm is sick: what a variable and the administrator's file force beats
//! every option. A broken one is a notice, never a failed link. It does not know how options are used.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use serde::Deserialize;

use crate::cli::{Cache, Fallback, Options};

/// The administrator's file.
pub const FILE: &str = "/etc/dtlto-bridge/override.json";
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

/// Changes `options` as the variable's text and the file ask for; of the two the file is the stronger.
/// Returns the lines that say so, at the end of the link, and notices on what cannot be used.
pub fn apply(
    options: &mut Options,
    variable: Option<&str>,
    file: &Path,
) -> (Vec<String>, Vec<String>) {
    let (mut said, mut notices) = (Vec::new(), Vec::new());
    let mut take = |source: &str, read: anyhow::Result<Option<Overrides>>| match read {
        Ok(Some(overrides)) => said.extend(overrides.apply(options, source)),
        Ok(None) => {}
        Err(error) => notices.push(format!("{source} is not followed: {error:#}")),
    };
    take("DTLTO_BRIDGE_OVERRIDE", variable.map(parse_variable).transpose());
    take(&file.display().to_string(), read_file(file));
    (said, notices)
}

impl Overrides {
    fn apply(&self, options: &mut Options, source: &str) -> Option<String> {
        let mut forced = Vec::new();
        if self.adapter == Some(OnlyLocal::Local) {
            options.adapter = "local".into();
            forced.push("adapter=local".to_owned());
        }
        if self.cache == Some(OnlyNone::None) {
            options.cache = Cache::None;
            forced.push("cache=none".to_owned());
        }
        if let Some(place) = self.fallback {
            let (fallback, word) = match place {
                Where::Local => (Fallback::Local, "local"),
                Where::Never => (Fallback::Never, "never"),
            };
            options.fallback = fallback;
            forced.push(format!("fallback={word}"));
        }
        if !self.never_hosts.is_empty() {
            options.never_hosts.extend(self.never_hosts.iter().cloned());
            forced.push(format!("never-hosts={}", self.never_hosts.join(",")));
        }
        (!forced.is_empty()).then(|| format!("overridden by {source}: {}", forced.join(" ")))
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
    ensure!(found.uid() == 0, "it does not belong to root");
    ensure!(found.mode() & 0o022 == 0, "others than root may write to it");
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
        let text = "adapter=local fallback=local never-hosts=a,b";
        let (said, notices) = apply(&mut options, Some(text), Path::new("/none/override.json"));
        assert_eq!((options.adapter.as_str(), options.fallback), ("local", Fallback::Local));
        assert_eq!(options.never_hosts, ["a", "b"]);
        assert_eq!(said, [format!("overridden by DTLTO_BRIDGE_OVERRIDE: {text}")]);
        assert_eq!(notices, [""; 0]);
    }

    #[test]
    fn a_broken_variable_is_a_notice_and_changes_nothing() {
        let mut options = options(&["--adapter=distcc"]);
        let broken = Some("fallback=never adapter=icecc");
        let (said, notices) = apply(&mut options, broken, Path::new("/none"));
        assert_eq!((options.adapter.as_str(), options.fallback), ("distcc", Fallback::Local));
        assert!(said.is_empty());
        assert!(notices[0].contains("\"adapter=icecc\" is not one of"), "{notices:?}");
    }

    #[test]
    fn a_file_that_others_may_write_is_not_followed() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("override.json");
        fs::write(&path, r#"{"adapter":"local"}"#).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        let notices = apply(&mut options(&[]), None, &path).1;
        assert!(notices[0].contains("is not followed"), "{notices:?}");
    }
}
