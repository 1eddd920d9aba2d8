//! xgConsole's command line, read strictly. The options, that their case does not matter, and the words of the errors
//! are documented or seen in public logs; that an unknown one is refused, and with which code, is seen in public logs.

use std::collections::BTreeMap;

/// Options that stand alone.
const FLAGS: [&str; 16] = [
    "build",
    "rebuild",
    "clean",
    "stoponerrors",
    "nowait",
    "openmonitor",
    "useidemonitor",
    "nologo",
    "silent",
    "showcmd",
    "showagent",
    "showtime",
    "no_watchdog_thread",
    "virtualizedirectx",
    "querylicense",
    "buildcachecluster",
];
/// Options with a value.
const VALUES: [&str; 21] = [
    "command",
    "profile",
    "allowremote",
    "allowintercept",
    "monitordirs",
    "title",
    "log",
    "out",
    "mon",
    "loglevel",
    "avoidlocal",
    "maxcpus",
    "minwinver",
    "maxwinver",
    "setenv",
    "usecloudhelpers",
    "buildcachelocal",
    "buildcacheprofile",
    "buildcacheremoteserver",
    "stop",
    "exitcodebase",
];

/// What was asked for.
#[derive(Debug, Default)]
pub(crate) struct Options {
    /// The XML job file.
    pub(crate) file: Option<String>,
    given: BTreeMap<String, String>,
}

impl Options {
    /// Reads the arguments; the error is what xgConsole says before it exits with 3.
    pub(crate) fn read(arguments: impl Iterator<Item = String>) -> Result<Options, String> {
        let mut options = Options::default();
        for argument in arguments {
            if let Some(file) = argument.strip_prefix('@') {
                let text =
                    std::fs::read_to_string(file).map_err(|e| invalid(&format!("{file}: {e}")))?;
                for line in text.lines().filter(|line| !line.trim().is_empty()) {
                    options.take(line.trim())?;
                }
            } else {
                options.take(&argument)?;
            }
        }
        match (options.file.is_some(), options.has("command")) {
            (true, true) => Err(invalid("a job file and /COMMAND")),
            (false, false) if !options.has("stop") && !options.has("querylicense") => {
                match options.given.is_empty() {
                    true => Err("General Options:\n  /Rebuild /NoWait ...".into()),
                    false => Err("Missing filename or command of job to execute".into()),
                }
            }
            _ => Ok(options),
        }
    }

    fn take(&mut self, argument: &str) -> Result<(), String> {
        // A path on a host whose paths begin with a slash is told by its ending.
        let is_file = argument.to_lowercase().ends_with(".xml") && !argument.contains('=');
        let Some(option) = argument.strip_prefix('/').filter(|_| !is_file) else {
            return match self.file.replace(argument.to_owned()) {
                None => Ok(()),
                Some(other) => Err(invalid(&format!("{other} and {argument}"))),
            };
        };
        let (name, value) = option.split_once('=').map_or((option, None), |(n, v)| (n, Some(v)));
        let name = name.to_lowercase();
        let known = match value {
            None => FLAGS.contains(&&*name) || name == "exitcodebase",
            Some(_) => VALUES.contains(&&*name),
        };
        if !known {
            return Err(invalid(argument));
        }
        self.given.insert(name, value.unwrap_or_default().trim_matches('"').to_owned());
        Ok(())
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.given.contains_key(name)
    }

    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        self.given.get(name).map(String::as_str)
    }
}

fn invalid(what: &str) -> String {
    format!("Fatal Error: Invalid/conflicting options specified: {what}")
}
