//! Entries in ccache, with the user's settings and storage. ccache knows a job of distributed ThinLTO itself, but not
//! under LLD's names, and not with the contents of imports; as a store it keeps what this program's key says. It
//! has no server.

use std::path::Path;
use std::time::Instant;

use super::shim::{Called, Calls, ask, check_version, version};
use super::{About, Key, Store, Trouble};

/// The oldest one that knows ThinLTO; older ones are of no use to those who compile by it either.
const OLDEST: (u32, u32) = (4, 13);
/// Has a call forget what the cache holds; users set it too.
const AFRESH: &str = "CCACHE_RECACHE";
/// What the key says needs no looking at; what a user has set for real compilers must not touch the shim. An empty
/// value beats the same setting in a file.
const SET: [(&str, &str); 11] = [
    ("CCACHE_COMPILERCHECK", "string:dtlto-bridge"),
    ("CCACHE_COMPILERTYPE", "clang"),
    ("CCACHE_BASEDIR", ""),
    ("CCACHE_COMPILER", ""),
    ("CCACHE_EXTRAFILES", ""),
    ("CCACHE_IGNOREOPTIONS", ""),
    ("CCACHE_LOGFILE", ""),
    ("CCACHE_NODEBUG", "1"),
    ("CCACHE_NOHARDLINK", "1"),
    ("CCACHE_PREFIX", ""),
    ("CCACHE_PREFIX_CPP", ""),
];
/// The opposites of some of these.
const UNSET: [&str; 3] = ["CCACHE_DEBUG", "CCACHE_HARDLINK", "CCACHE_PATH"];

/// ccache as a store.
#[derive(Debug)]
pub(super) struct Ccache {
    calls: Calls,
    /// It only reads: by the user's will a miss is the end of its work.
    read_only: bool,
}

impl Ccache {
    /// Asks ccache for its settings.
    pub(super) fn open(about: &About) -> Result<Self, Trouble> {
        check_version(&version(about)?, OLDEST)?;
        let settings = ask(about, &["--show-config"])?;
        let is = |name: &str, value: &str| setting(&settings, name) == Some(value);
        if is("disable", "true") {
            return Err(Trouble::Failed("it is switched off by its setting disable".into()));
        }
        let mut calls = Calls::new(about, AFRESH)?;
        calls.set = about.environment.clone();
        calls.set.extend(SET.map(|(name, value)| (name.to_owned(), value.to_owned())));
        UNSET.iter().for_each(|name| drop(calls.set.remove(*name)));
        calls.unset = UNSET.map(str::to_owned).into();
        Ok(Ccache { calls, read_only: is("read_only", "true") })
    }
}

/// The value of `name` among lines `(where) name = value`.
fn setting<'a>(settings: &'a str, name: &str) -> Option<&'a str> {
    settings.lines().find_map(|line| {
        let line = line.split_once(") ").map_or(line, |(_, line)| line);
        line.split_once(" =").filter(|(found, _)| *found == name).map(|(_, value)| value.trim())
    })
}

impl Store for Ccache {
    fn get(&self, key: &Key, into: &Path, deadline: Instant) -> Result<bool, Trouble> {
        match self.calls.get(key, into, deadline)? {
            Called::Made => Ok(true),
            Called::Absent => Ok(false),
            Called::NotTaken if self.read_only => Ok(false),
            Called::NotTaken => Err(Trouble::Failed("it could not use its cache".into())),
        }
    }

    fn put(&self, key: &Key, entry: &Path, deadline: Instant) -> Result<(), Trouble> {
        match self.calls.put(key, entry, deadline)? {
            Called::Made => Ok(()),
            Called::Absent | Called::NotTaken => Err(Trouble::Failed(super::NOT_KEPT.into())),
        }
    }

    fn describe(&self, deadline: Instant) -> Result<Vec<String>, Trouble> {
        let settings = self.calls.ask(&["--show-config"], deadline)?;
        let value = |name: &str| setting(&settings, name).filter(|value| !value.is_empty());
        let shown = ["cache_dir", "max_size", "remote_storage", "remote_only", "namespace"];
        let lines = shown.into_iter().filter_map(|name| Some(format!("{name}: {}", value(name)?)));
        Ok(lines.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::setting;

    #[test]
    fn a_setting_is_read_wherever_it_comes_from() {
        let printed = "(default) disable = false\n(/etc/ccache (1).conf) read_only = true\n(default) path = \n";
        assert_eq!(setting(printed, "disable"), Some("false"));
        assert_eq!(setting(printed, "path"), Some(""));
        assert_eq!(setting(printed, "able"), None);
    }
}
