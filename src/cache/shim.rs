//! A cache's tool as a store of files: it is made to cache the runs of a "compiler" that only copies a file. The
//! text that it compiles is a key, so the object that it keeps is an entry. It does not know which tool that is.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf, absolute};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use super::{About, Key, Trouble};
use crate::os;
use crate::process::{Command, Groups};

/// The compiler. Its bytes are part of what sccache makes its keys of: another text is another cache.
///
/// Asked what it is, it is clang. Else it copies what lies beside the key's file to the output, if anything does.
/// A tool calls it with the file last; one that gives up, because its server has died, say, runs the command as it
/// got it, with the file before `-o`: then it makes nothing, lest that pass for an answer.
const TEXT: &str = r#"#!/bin/sh
key= out= last=
while [ $# -gt 0 ]; do
    last=$1
    case $1 in
    -E) printf 'compiler_id=clang\ncompiler_version="dtlto-bridge 1"\n'; exit 0 ;;
    -o) [ $# -gt 1 ] || exit 76; out=$2; shift ;;
    *.dtlto.ii) key=$1 ;;
    esac
    shift
done
case $last in *.dtlto.ii) ;; *) exit 76 ;; esac
[ -e "$key.put" ] || exit 77
exec cat <"$key.put" >"$out"
"#;
/// Nothing lies beside the key: the tool asked because it has no entry.
const ABSENT: i32 = 77;
/// The tool did not call it as it calls compilers.
const NOT_TAKEN: i32 = 76;
/// What a tool says of its trouble is cut here.
const WORDS: usize = 200;

/// How a call ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Called {
    /// The output is there.
    Made,
    /// The tool has no entry.
    Absent,
    /// The tool let the compiler run without a look at its cache.
    NotTaken,
}

/// Calls of one tool.
#[derive(Debug)]
pub(super) struct Calls {
    tool: PathBuf,
    shim: String,
    private: PathBuf,
    groups: Arc<Groups>,
    /// Start from an empty environment.
    pub(super) clear: bool,
    /// Variables of all calls.
    pub(super) set: BTreeMap<String, String>,
    /// Variables that no call has.
    pub(super) unset: Vec<String>,
    /// The variable that has the tool forget an older entry; users set it too.
    afresh: &'static str,
}

/// What a call is told of [`Calls::afresh`].
#[derive(Clone, Copy, PartialEq, Eq)]
enum Afresh {
    AsTheUserHasIt,
    Yes,
    No,
}

impl Calls {
    /// Calls of `about`'s tool, by a shim that is there from now on.
    pub(super) fn new(about: &About, afresh: &'static str) -> Result<Self, Trouble> {
        let shim = install(about.kept.as_deref())
            .map_err(|error| Trouble::Failed(format!("the shim: {error:#}")))?;
        Ok(Calls {
            tool: about.tool.clone(),
            shim: text(&shim)?,
            private: about.private.clone(),
            groups: about.groups.clone(),
            clear: false,
            set: BTreeMap::new(),
            unset: Vec::new(),
            afresh,
        })
    }

    /// Asks for the entry of `key`, which goes to `into`.
    pub(super) fn get(&self, key: &Key, into: &Path, deadline: Instant) -> Result<Called, Trouble> {
        let desk = Desk::new(&self.private, key)?;
        self.call(&desk, into, Afresh::AsTheUserHasIt, deadline)
    }

    /// Has the tool keep `entry` in place of an older one, and asks for it again: tools are silent on what they could
    /// not keep.
    pub(super) fn put(
        &self,
        key: &Key,
        entry: &Path,
        deadline: Instant,
    ) -> Result<Called, Trouble> {
        let desk = Desk::new(&self.private, key)?;
        let beside = desk.beside();
        let made = absolute(entry).and_then(|entry| os::symlink(entry, &beside));
        made.map_err(|error| failed(&beside, &error))?;
        let copy = desk.folder.path().join("copy.o");
        match self.call(&desk, &copy, Afresh::Yes, deadline)? {
            Called::Made => {}
            Called::Absent => {
                return Err(Trouble::Failed("it does not give the entry to its compiler".into()));
            }
            Called::NotTaken => return Ok(Called::NotTaken),
        }
        fs::remove_file(&beside).map_err(|error| failed(&beside, &error))?;
        let back = desk.folder.path().join("back.o");
        let called = self.call(&desk, &back, Afresh::No, deadline)?;
        let size = |path: &Path| fs::metadata(path).map(|found| found.len()).ok();
        match called {
            Called::Made if size(&back) != size(entry) => {
                Err(Trouble::Failed("it gave back another entry than it was given".into()))
            }
            called => Ok(called),
        }
    }

    /// What the tool prints for `args`, under the environment of all calls.
    pub(super) fn ask(&self, args: &[&str], deadline: Instant) -> Result<String, Trouble> {
        let command = Command {
            program: self.tool.clone(),
            args: strings(args),
            clear: self.clear,
            set: self.set.clone().into_iter().collect(),
            unset: self.unset.clone(),
        };
        let (_, output) = finish(&self.groups, &command, deadline)?;
        Ok(String::from_utf8_lossy(&output).into_owned())
    }

    fn call(
        &self,
        desk: &Desk,
        output: &Path,
        afresh: Afresh,
        deadline: Instant,
    ) -> Result<Called, Trouble> {
        let output = absolute(output).map_err(|error| failed(output, &error))?;
        let words = [self.shim.clone(), "-c".into(), text(&desk.key)?, "-o".into(), text(&output)?];
        let (mut set, mut unset) = (self.set.clone(), self.unset.clone());
        match afresh {
            Afresh::AsTheUserHasIt => {}
            Afresh::Yes => drop(set.insert(self.afresh.into(), "1".into())),
            Afresh::No => {
                set.remove(self.afresh);
                unset.push(self.afresh.into());
            }
        }
        let command = Command {
            program: self.tool.clone(),
            args: words.into(),
            clear: self.clear,
            set: set.into_iter().collect(),
            unset,
        };
        let (code, said) = run(&self.groups, &command, deadline)?;
        match code {
            Some(0) if output.is_file() => Ok(Called::Made),
            Some(0) => Err(Trouble::Failed("it said that all is well and made no file".into())),
            Some(ABSENT) => Ok(Called::Absent),
            Some(NOT_TAKEN) => Ok(Called::NotTaken),
            _ => Err(Trouble::Failed(said)),
        }
    }
}

/// The folder of one call: the file of the key, and what is made beside it.
struct Desk {
    folder: tempfile::TempDir,
    key: PathBuf,
}

impl Desk {
    fn new(private: &Path, key: &Key) -> Result<Self, Trouble> {
        let make = || -> io::Result<Desk> {
            let folder = tempfile::Builder::new().prefix("call-").tempdir_in(private)?;
            let file = folder.path().join(format!("{key}.dtlto.ii"));
            fs::write(&file, key.to_string())?;
            Ok(Desk { folder, key: file })
        };
        make().map_err(|error| failed(private, &error))
    }

    /// Where the shim looks for an entry.
    fn beside(&self) -> PathBuf {
        let mut name = self.key.clone().into_os_string();
        name.push(".put");
        name.into()
    }
}

/// Runs a tool by `deadline`: its exit code, and what it said last in the way of an error.
pub(super) fn run(
    groups: &Groups,
    command: &Command,
    deadline: Instant,
) -> Result<(Option<i32>, String), Trouble> {
    let (status, output) = finish(groups, command, deadline)?;
    let said = String::from_utf8_lossy(&output);
    let lines = || said.lines().map(str::trim).filter(|line| !line.is_empty());
    let worst = lines().find(|line| line.contains("error")).or_else(|| lines().next());
    let said = worst.map(|line| line.chars().filter(|c| !c.is_control()).take(WORDS).collect());
    Ok((status.code(), said.unwrap_or_else(|| format!("it ended with {status}"))))
}

/// What a tool prints, with the user's variables.
pub(super) fn ask(about: &About, args: &[&str]) -> Result<String, Trouble> {
    let set = about.environment.clone().into_iter().collect();
    printed(about, Command { args: strings(args), set, ..Command::default() })
}

/// The first line of what a tool prints for `--version`; no variable of the user's makes it say more.
pub(super) fn version(about: &About) -> Result<String, Trouble> {
    let printed = printed(
        about,
        Command { args: strings(&["--version"]), clear: true, ..Command::default() },
    )?;
    Ok(printed.lines().next().unwrap_or_default().to_owned())
}

fn strings(args: &[&str]) -> Vec<String> {
    args.iter().map(|arg| (*arg).to_owned()).collect()
}

/// What the tool prints for `command`, whose program is set here.
pub(super) fn printed(about: &About, command: Command) -> Result<String, Trouble> {
    let command = Command { program: about.tool.clone(), ..command };
    let (_, output) = finish(&about.groups, &command, about.deadline)?;
    Ok(String::from_utf8_lossy(&output).into_owned())
}

fn finish(
    groups: &Groups,
    command: &Command,
    deadline: Instant,
) -> Result<(ExitStatus, Vec<u8>), Trouble> {
    if deadline <= Instant::now() {
        return Err(Trouble::TimedOut);
    }
    let ended = groups.run_by(command, deadline).map_err(|error| match error.kind() {
        ErrorKind::Interrupted => Trouble::Cancelled,
        _ => failed(&command.program, &error),
    })?;
    let ended = ended.ok_or(Trouble::TimedOut)?;
    Ok((ended.status, ended.output))
}

/// Refuses a tool that is older than `oldest`, by the version in what it prints.
pub(super) fn check_version(printed: &str, oldest: (u32, u32)) -> Result<(), Trouble> {
    let number = |word: &str| -> Option<(u32, u32)> {
        let mut parts = word.trim_start_matches('v').split('.');
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    };
    let (major, minor) = oldest;
    match printed.split_whitespace().find_map(number) {
        Some(version) if version >= oldest => Ok(()),
        Some(_) => Err(Trouble::Failed(format!(
            "{printed:?} is too old: install {major}.{minor} or newer"
        ))),
        None => Err(Trouble::Failed(format!("its version cannot be told from {printed:?}"))),
    }
}

pub(super) fn failed(place: &Path, error: &io::Error) -> Trouble {
    Trouble::Failed(format!("{}: {error}", place.display()))
}

pub(super) fn text(path: &Path) -> Result<String, Trouble> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| Trouble::Failed(format!("{}: not UTF-8", path.display())))
}

/// Makes sure that the shim is there, below `kept` or, for a user without a home, in the folder of this user's
/// slots. Tools remember compilers by path and time: it is written once, and always has the same time.
fn install(kept: Option<&Path>) -> anyhow::Result<PathBuf> {
    let kept = kept.map_or_else(os::own_folder, |kept| Ok(kept.to_owned()))?;
    let name = blake3::hash(TEXT.as_bytes()).to_hex();
    let folder = kept.join("shim").join(&name[..16]);
    os::private_folders(&folder)?;
    os::own(&folder)?;
    let shim = folder.join("clang");
    let as_it_should_be = fs::read(&shim).is_ok_and(|found| found == TEXT.as_bytes())
        && fs::metadata(&shim).is_ok_and(|found| os::is_executable_by_all(&found));
    if !as_it_should_be {
        let mut file = tempfile::NamedTempFile::new_in(&folder)?;
        file.write_all(TEXT.as_bytes())?;
        if let Some(mode) = os::mode(0o755) {
            file.as_file().set_permissions(mode)?;
        }
        file.as_file().set_modified(SystemTime::UNIX_EPOCH)?;
        file.persist(&shim)?;
    }
    Ok(shim)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    #[test]
    fn the_shim_is_frozen() {
        let digest = blake3::hash(TEXT.as_bytes()).to_string();
        let frozen = "4afa0618a80c7a02f60f1e997a49db8f10805d824d98f2c53dbc4097fe441639";
        assert_eq!(digest, frozen, "another text leaves every team's entries behind");
    }

    #[test]
    fn the_shim_is_written_once_and_put_right_when_it_was_changed() {
        let kept = tempfile::tempdir().unwrap();
        let shim = install(Some(kept.path())).unwrap();
        let first = fs::metadata(&shim).unwrap();
        assert_eq!((first.mode() & 0o777, first.mtime()), (0o755, 0));
        assert_eq!(install(Some(kept.path())).unwrap(), shim);
        assert_eq!(fs::metadata(&shim).unwrap().ino(), first.ino());
        fs::write(&shim, "exit 0").unwrap();
        install(Some(kept.path())).unwrap();
        assert_eq!(fs::read_to_string(&shim).unwrap(), TEXT);
        let folder = shim.parent().unwrap();
        fs::set_permissions(folder, Permissions::from_mode(0o777)).unwrap();
        assert!(install(Some(kept.path())).is_err(), "others could change it");
    }

    #[test]
    fn a_tools_version_is_read_from_what_it_prints() {
        assert!(check_version("sccache 0.16.0", (0, 14)).is_ok());
        assert!(check_version("ccache version 4.13", (4, 13)).is_ok());
        assert!(check_version("ccache version 4.7.5", (4, 13)).is_err());
        assert!(check_version("sccache 1.0", (0, 14)).is_ok());
        assert!(check_version("Usage: nothing", (0, 14)).is_err());
    }
}
