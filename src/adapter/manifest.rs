//! A manifest that has passed every check, and what can be asked of it. Knows neither JSON nor where
//! manifests are kept.

use std::fmt;
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use super::template::{Argv, Scalar, Template};
use super::words::words;
use crate::os;

words! {
    /// Where a job is when the exit code 0 says that it is done.
    pub enum Place {
        /// This machine.
        Local = "local",
        /// Another machine.
        Farm = "farm",
    }
}

words! {
    /// How jobs are handed over.
    pub enum HandOver {
        /// A process for each job.
        Each = "each",
        /// One task file and one call for all jobs.
        Batch = "batch",
        /// The tool runs the bridge once more, which runs the jobs as on this machine.
        Wrap = "wrap",
    }
}

words! {
    /// The format of the file that a batch is handed over in.
    pub enum TaskFile {
        /// Incredibuild's XML job file.
        BuildSet = "buildset",
    }
}

words! {
    /// How the files of a job get to where it runs.
    pub enum Shipping {
        /// They are there: the job runs on files that it sees as we do.
        Direct = "direct",
        /// One file there, one file back, for a worker that unpacks, compiles and packs.
        Bundle = "bundle",
        /// The tool ships the module, and beside it the files that it is told of.
        Declared = "declared",
    }
}

words! {
    /// How the hosts of a farm are known, where the bridge chooses the host of each job itself.
    pub enum HostList {
        /// By distcc's client: `distcc --show-hosts`.
        Distcc = "distcc",
    }
}

words! {
    /// What the request is that the tool gets.
    pub enum Delivery {
        /// A file, whole before the tool is started.
        File = "file",
        /// A named pipe, which the tool opens as soon as it has a host for the job; nothing is packed before.
        Fifo = "fifo",
    }
}

words! {
    /// The file that brings worker and compiler to hosts that have neither.
    pub enum Chroot {
        /// An environment of icecream.
        Icecream = "icecream",
    }
}

words! {
    /// Who assigns hosts to jobs, where the tool does that.
    pub enum Scheduler {
        /// icecream's scheduler.
        Icecream = "icecream",
        /// sccache-dist's, through a server of sccache that is the bridge's own.
        Sccache = "sccache",
    }
}

words! {
    /// What an exit code other than 0 says.
    pub enum Meaning {
        /// The compiler ran and failed; it would fail everywhere.
        CompilerError = "compiler error",
        /// No room at the moment; trying again can help.
        Busy = "busy",
        /// The connection or the host was lost; trying again can help.
        Unreachable = "unreachable",
        /// This host or farm cannot run the compiler: no retry, the job goes home.
        NoCompiler = "no compiler",
        /// The farm as a whole cannot be used.
        NoHosts = "no hosts",
    }
}

/// In which words one tool is talked to.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// What `--adapter` calls it: `[a-z0-9_-]+`.
    pub name: String,
    /// One line for people.
    pub summary: String,
    /// Where to read about the tool.
    pub homepage: Option<String>,
    /// Where a job is when the exit code 0 says that it is done.
    pub place: Place,
    /// How jobs are handed over.
    pub hand_over: HandOver,
    /// How the files of a job get to where it runs.
    pub shipping: Shipping,
    /// The program behind `{tool}`; there if, and only if, a template uses it.
    pub tool: Option<Tool>,
    /// The command of one job.
    pub command: Argv,
    /// What is changed in the environment of a command.
    pub env: Env,
    /// What the request is that the tool gets.
    pub request: Delivery,
    /// What is shipped to hosts beside requests, if they need that.
    pub environment: Option<Chroot>,
    /// What a batch is; there if, and only if, jobs are handed over so.
    pub batch: Option<Batch>,
    /// How the hosts are known, if the bridge places jobs itself.
    pub hosts: Option<HostList>,
    /// Who assigns hosts, if that is known.
    pub scheduler: Option<Scheduler>,
    /// By how much the tool is nicer than the bridge, 0 to 19.
    pub nice: u8,
    /// What shows that the tool has started a job on this machine.
    pub tripwire: Option<Tripwire>,
    /// Jobs in flight that the bridge starts itself, unless the user says otherwise; there if, and only if, the
    /// place is a farm of which neither hosts nor scheduler are known, or the tool wraps the bridge.
    pub slots: Option<NonZeroU32>,
    /// What exit codes mean; see [`Manifest::failure`].
    pub exit: Vec<ExitRule>,
    /// Commands that show whether the tool can be used.
    pub probes: Vec<Probe>,
    /// Further lines for people.
    pub notes: Vec<String>,
    /// Where the manifest comes from.
    pub source: Source,
}

impl Manifest {
    /// Whether what it asks for is to be had on this system.
    ///
    /// # Errors
    /// It is not: on Windows, that is what farms of Unix need.
    pub fn fits_here(&self) -> Result<()> {
        let asks_for = match self {
            Manifest { shipping: Shipping::Bundle, .. } => "sends bundles to workers",
            Manifest { tripwire: Some(_), .. } => "has a tripwire, which is a shell script",
            Manifest { scheduler: Some(_), .. } => "asks a farm's scheduler for room",
            Manifest { hosts: Some(_), .. } => "has the bridge choose among distcc's hosts",
            _ => return Ok(()),
        };
        ensure!(os::FARMS, "adapter {}: it {asks_for}, which needs Linux", self.name);
        Ok(())
    }

    /// What the exit code of a job's command says, with the manifest's words for people; `None` is success.
    ///
    /// The code 0 is always success. One that no rule lists is the compiler's own; with a bundle, which
    /// carries the compiler's result, and with a batch it is the tool's.
    pub fn failure(&self, code: i32) -> Option<(Meaning, Option<&str>)> {
        if code == 0 {
            return None;
        }
        let rule = u8::try_from(code)
            .ok()
            .and_then(|code| self.exit.iter().find(|rule| rule.codes.contains(&code)));
        let unlisted = match (self.hand_over, self.shipping) {
            (HandOver::Each, Shipping::Direct | Shipping::Declared) => Meaning::CompilerError,
            _ => Meaning::Unreachable,
        };
        Some(rule.map_or((unlisted, None), |rule| (rule.means, rule.say.as_deref())))
    }
}

/// The program behind `{tool}`, still to be found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tool {
    /// A name to be searched on `PATH`.
    OnPath(String),
    /// Several such names of one tool; the first that is found.
    FirstOnPath(Vec<String>),
    /// An absolute path; the file need not be there.
    At(PathBuf),
}

impl Tool {
    /// The name or the absolute path, as a search on `PATH` takes it; of several, the first.
    pub fn as_path(&self) -> &Path {
        self.candidates().next().unwrap_or(Path::new(""))
    }

    /// All names or paths, in the order in which they are to be looked for.
    pub fn candidates(&self) -> impl Iterator<Item = &Path> {
        let (names, path) = match self {
            Tool::OnPath(name) => (std::slice::from_ref(name), None),
            Tool::FirstOnPath(names) => (names.as_slice(), None),
            Tool::At(path) => ([].as_slice(), Some(path.as_path())),
        };
        names.iter().map(Path::new).chain(path)
    }
}

/// How the tool of a batch is talked to, beyond its command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The format of the task file.
    pub task_file: TaskFile,
    /// Further arguments where no job may run on this machine.
    pub never_here: Vec<String>,
    /// A variable that the tool sets for what it runs: its tool must not be started once more in there.
    pub inside: Option<String>,
    /// What to look at if the tool ran every job on this machine.
    pub all_here: Option<String>,
}

/// A program of this name stands first on the tool's `PATH` and does nothing but exit with this code: where
/// the tool would run a job on this machine, it runs that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tripwire {
    /// The name by which the tool would find its compiler here.
    pub program: String,
    /// A code that nothing else exits with.
    pub code: u8,
}

/// What is changed in the environment of a command.
#[derive(Clone, Debug, Default)]
pub struct Env {
    /// Names of variables that are inherited; all of them if there is no such list.
    pub only: Option<Vec<String>>,
    /// Variables to set, with their values.
    pub set: Vec<(String, Template)>,
    /// Variables to remove.
    pub unset: Vec<String>,
}

/// What some exit codes mean.
#[derive(Clone, Debug)]
pub struct ExitRule {
    /// The codes, within 1..=255.
    pub codes: RangeInclusive<u8>,
    /// What they say.
    pub means: Meaning,
    /// The same in words for people.
    pub say: Option<String>,
}

/// A command that shows whether the tool can be used: it exits with 0 and prints what is expected.
#[derive(Clone, Debug)]
pub struct Probe {
    pub(super) command: Vec<Template>,
    /// Text that the command's output must hold.
    pub expect: Option<String>,
    /// What to do if the probe fails.
    pub help: String,
}

impl Probe {
    /// The arguments, the program first; `tool` and `compiler` are all that a probe may ask for.
    pub fn argv(&self, tool: &str, compiler: &str) -> Vec<String> {
        let value = |scalar| if scalar == Scalar::Tool { tool } else { compiler };
        self.command.iter().map(|template| template.expand_with(value)).collect()
    }

    /// Whether the command needs a compiler to be known.
    pub fn needs_compiler(&self) -> bool {
        self.command.iter().flat_map(Template::scalars).any(|scalar| scalar == Scalar::Compiler)
    }
}

/// Where a manifest comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Embedded in this program.
    BuiltIn,
    /// A file.
    File(PathBuf),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::BuiltIn => f.write_str("built-in"),
            Source::File(path) => path.display().fmt(f),
        }
    }
}
