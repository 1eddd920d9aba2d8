//! The command line, and the only place that reads the environment. Every option has a variable,
//! made from its name, so LLD users can set options one by one. It knows nothing of job files or adapters.

mod environment;

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

use environment::variable;
pub use environment::{Environment, Icecream, TOOLCHAIN, WorkerVariables, is_harmless};

use crate::exit::{Exit, Failure};
use crate::os;

/// Names the file in which a bridge that runs under a wrapping tool tells the outer one how it ended.
pub const WRAPPED: &str = "_DTLTO_BRIDGE_WRAPPED";
const PREFIX: &str = "DTLTO_BRIDGE_";

const ABOUT: &str = "\
Runs the backend compiles of a Distributed ThinLTO link. LLD starts it: add to the link line

  clang      -flto=thin -fuse-ld=lld -fthinlto-distributor=/path/to/dtlto-bridge
             -Xthinlto-distributor=--adapter=local
  ld.lld     --thinlto-distributor=/path/to/dtlto-bridge --thinlto-remote-compiler=/path/to/clang
  lld-link   /thinlto-distributor:... /thinlto-remote-compiler:...

The job file is always the last argument.";

const AFTER_HELP: &str = "\
Each option has a variable: DTLTO_BRIDGE_ADAPTER, DTLTO_BRIDGE_LOCAL_JOBS, ... An option beats
its variable; flags take 1 or 0 there. DTLTO_BRIDGE_OVERRIDE (\"adapter=local fallback=local\", say)
and /etc/dtlto-bridge/override.json beat both.

Exit codes: 0 all objects made; 1 a job failed; 2 usage; 3 the job file or an input cannot be
used; 4 the farm cannot be used and --fallback is never; 70 a bug. A signal is raised again.";

const ICECC_ENV: &str = "\
An environment is an archive that becomes the root of a job on a node: the worker, clang, and
exactly the libraries that clang loads. Links make it themselves and find it again in the user's
cache folder; this makes it beforehand, and shows what an administrator needs to know.

A node knows an environment by its name, which is made from its content, and checks no bytes;
every job of the farm can write there. The worker compares what it runs with what the link has
sent. Where that finds an altered environment, another --env-salt leaves it behind on all nodes.

The worker is this program, if it is linked statically as released, or a dtlto-worker that is.
As root this also runs the archive's clang in a root of its own, as a node does.";

/// The whole command line.
#[derive(Parser, Debug)]
#[command(
    name = "dtlto-bridge",
    version,
    about = ABOUT,
    after_help = AFTER_HELP,
    args_override_self = true,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true
)]
pub struct CommandLine {
    /// What else there is to do than a link.
    #[command(subcommand)]
    pub task: Option<Task>,
    /// Options of a link.
    #[command(flatten)]
    pub options: Options,
    /// The job file that LLD wrote; always the last argument, whatever its name
    #[arg(value_name = "JOBS.json")]
    pub job_file: Option<PathBuf>,
}

/// The sub-commands.
#[derive(Subcommand, Debug)]
#[allow(clippy::large_enum_variant, reason = "a process has one")]
pub enum Task {
    /// List the adapters, or check the named ones
    Adapters {
        /// Names, or manifests to check
        #[arg(value_name = "NAME|FILE.json")]
        names: Vec<String>,
    },
    /// Check what an adapter needs on this machine
    Doctor {
        /// The adapter to look at
        #[arg(long, default_value = "local", value_name = "NAME|FILE.json")]
        adapter: String,
        /// Ask hosts for this compiler [default: the first of clang, clang-23, clang-22, clang-21 that is here]
        #[arg(long, value_name = "PATH")]
        compiler: Option<String>,
        /// The cache to look at: an entry is stored and asked for
        #[arg(long, value_enum, default_value = "none")]
        cache: Cache,
    },
    /// Make, check and name the environment that icecream sends to its nodes
    #[command(after_help = ICECC_ENV)]
    IceccEnv {
        /// The environment of this compiler [default: the first of clang, clang-23, clang-22, clang-21 that is here]
        #[arg(long, value_name = "PATH")]
        compiler: Option<String>,
        /// Makes another name of the same content, to leave an altered environment behind
        #[arg(long, value_name = "TEXT", env = "DTLTO_BRIDGE_ENV_SALT", hide_env_values = true)]
        env_salt: Option<String>,
        /// Check this archive, and make none
        #[arg(long, value_name = "FILE", conflicts_with = "compiler")]
        check: Option<PathBuf>,
    },
    /// Run the jobs again that a link kept with --save
    Replay {
        /// The folder that --save filled
        folder: PathBuf,
        /// Use this compiler instead of the saved link's
        #[arg(long, value_name = "PATH")]
        compiler: Option<String>,
        /// Options of the run.
        #[command(flatten)]
        options: Box<Options>,
    },
    /// Run the job in a request, as farms do: `worker IN OUT`, `worker -c IN -o OUT`; `worker --check` tells whether
    /// this host would, `worker --status` what it did
    Worker {
        /// Read before all else, by the worker itself.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
        arguments: Vec<OsString>,
    },
    /// The helper that ends a killed link's processes; started by a link, not by people
    #[command(hide = true)]
    Guard {
        /// The mark in the environment of that link's processes
        mark: String,
    },
}

/// Where a job may run that its farm could not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Fallback {
    /// On this machine
    Local,
    /// Nowhere: the link fails
    Never,
}

/// What to do while another build holds a farm that takes one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WhenBusy {
    /// Run jobs on this machine, and ask again
    Work,
    /// Only ask again
    Wait,
}

/// The caches that can be asked before the adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Cache {
    /// No cache
    None,
    /// sccache, with the storage that it is set up for
    Sccache,
    /// ccache 4.13 or newer
    Ccache,
}

/// What a cache is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CacheMode {
    /// It is asked and not fed
    Read,
    /// It is fed and not asked
    Write,
    /// Both
    Readwrite,
}

/// Which objects a cache is fed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CacheFeed {
    /// Those of the farm too, whichever compiler it has
    All,
    /// Those that the job's own compiler made on this machine
    Local,
}

/// Whether last-bit differences of folded mathematics count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Math {
    /// They do: such a host is left out
    Strict,
    /// They do not
    Any,
}

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Progress {
    /// A bar on a terminal, else plain lines
    Auto,
    /// One line that is redrawn
    Bar,
    /// A line now and then
    Plain,
    /// Nothing but troubles and the summary
    None,
}

/// The options of a link.
#[derive(Args, Clone, Debug)]
#[allow(missing_docs, reason = "the help texts say it")]
pub struct Options {
    /// Who runs the jobs: an adapter's name, or a manifest of your own
    #[arg(long, value_name = "NAME|FILE.json", default_value = "local")]
    pub adapter: String,
    /// The shared cache that is asked before the adapter and fed after it
    #[arg(long, value_enum, default_value = "none")]
    pub cache: Cache,
    /// Whether the cache is asked, fed, or both: build servers may write, and users read
    #[arg(long, value_enum, default_value = "readwrite")]
    pub cache_mode: CacheMode,
    /// Objects that are stored [default: those made on this machine, and on a farm whose hosts prove
    /// which compiler they have, as those of distcc do]
    #[arg(long, value_enum)]
    pub cache_feed: Option<CacheFeed>,
    /// Part of every key: change it in the whole team to leave behind what is in the cache
    #[arg(long, value_name = "TEXT")]
    pub cache_salt: Option<String>,
    /// Jobs at once on this machine [default: the cores that cgroup and affinity leave; a make or
    /// ninja job server is honoured, else all your links here share them]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub local_jobs: Option<u32>,
    /// Jobs at once on the farm [default: the adapter's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16384))]
    pub farm_jobs: Option<u32>,
    /// Further attempts on the farm for a job that the farm failed
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(..=100))]
    pub retries: u32,
    /// Seconds for one attempt, from its start [default: 1800 on a farm, none here]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    pub timeout: Option<u64>,
    /// Where a job runs that the farm could not do
    #[arg(long, value_enum, default_value = "local")]
    pub fallback: Fallback,
    /// What to do while another build holds a farm that takes one at a time, as Incredibuild does
    #[arg(long, value_enum, default_value = "work")]
    pub when_busy: WhenBusy,
    /// Whether a host with another libm or CPU math class may do jobs: LLVM folds sin, exp, pow, ...
    /// with the host's, and the last bit can differ
    #[arg(long, value_enum, default_value = "strict")]
    pub math: Math,
    /// Any text: another one gives icecream's environment another name, and so leaves behind one that was
    /// altered on nodes
    #[arg(long, value_name = "TEXT")]
    pub env_salt: Option<String>,
    /// Where bundles lie while they are used [default: beside the output]
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
    /// Write what became of each job; a name that ends in / is a folder with one file a link
    #[arg(long, value_name = "FILE.json")]
    pub stats: Option<PathBuf>,
    /// Write a timeline for chrome://tracing or ui.perfetto.dev; a folder as with --stats
    #[arg(long, value_name = "FILE.json")]
    pub trace: Option<PathBuf>,
    /// Keep all that is needed to run the jobs again (`dtlto-bridge replay DIR`); a name that ends in / gets a folder a link
    #[arg(long, value_name = "DIR")]
    pub save: Option<PathBuf>,
    /// How progress is shown, on stderr
    #[arg(long, value_enum, default_value = "auto")]
    pub progress: Progress,
    /// Print each command, ready to be pasted into a shell
    #[arg(short, long, overrides_with = "quiet")]
    pub verbose: bool,
    /// Print nothing but errors
    #[arg(short, long, overrides_with = "verbose")]
    pub quiet: bool,
    /// Print the plan on stderr, check the inputs, run nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Hosts that an override forbids; no option of its own.
    #[arg(skip)]
    pub never_hosts: Vec<String>,
}

impl Options {
    /// The limit of one attempt, if it was given.
    pub fn time_limit(&self) -> Option<Duration> {
        self.timeout.map(Duration::from_secs)
    }
}

/// Finds a program as a shell would: by `PATH` for a bare name, else relative to this folder. One that is not on
/// `PATH` may be where its installer said.
///
/// # Errors
/// There is no such executable.
pub fn find_program(name: &str) -> anyhow::Result<PathBuf> {
    let installed = |_| os::find_incredibuild(name).ok_or(());
    let found = which::which(name).or_else(installed).map_err(|()| {
        match name.contains(std::path::is_separator) {
            true => anyhow!("{name}: no such executable file"),
            false => anyhow!("{name}: no such program on PATH"),
        }
    })?;
    std::path::absolute(&found).with_context(|| format!("{name}: cannot be made absolute"))
}

/// The variable, the long name and whether it is a flag, of each option.
fn option_variables() -> Vec<(String, String, bool)> {
    Options::augment_args(clap::Command::new("options"))
        .get_arguments()
        .filter_map(|arg| {
            let long = arg.get_long()?;
            let variable = format!("{PREFIX}{}", long.to_uppercase().replace('-', "_"));
            Some((variable, long.to_owned(), !arg.get_action().takes_values()))
        })
        .collect()
}

/// The options that variables ask for, in front of those of the command line, which beat them.
fn variables_as_arguments() -> Result<Vec<OsString>, clap::Error> {
    let mut arguments = Vec::new();
    for (name, long, flag) in option_variables() {
        let Some(value) = variable(&name) else { continue };
        let argument = match (flag, value.to_str()) {
            (true, Some("0")) => continue,
            (true, Some("1")) => OsString::from(format!("--{long}")),
            (true, _) => {
                let text = format!("{name} is a flag: set it to 1 or 0, not to {value:?}\n");
                return Err(clap::Error::raw(clap::error::ErrorKind::InvalidValue, text));
            }
            (false, _) => {
                let mut argument = OsString::from(format!("--{long}="));
                argument.push(&value);
                argument
            }
        };
        // Parsed alone first: an error then names the variable that it comes from.
        let alone = [OsString::from("dtlto-bridge"), argument.clone()];
        if let Err(error) = CommandLine::command().try_get_matches_from(alone) {
            let text = format!("in the variable {name}: {error}");
            return Err(clap::Error::raw(error.kind(), text));
        }
        arguments.push(argument);
    }
    Ok(arguments)
}

/// Reads the command line; the first argument is the program's own name.
///
/// # Errors
/// A usage error, or a request for help or the version, for clap to print.
pub fn parse(arguments: Vec<OsString>) -> Result<CommandLine, clap::Error> {
    let mut command = CommandLine::command();
    let given = arguments.get(1..).unwrap_or_default();
    let sub_command = given
        .first()
        .is_some_and(|first| command.get_subcommands().any(|known| first == known.get_name()));
    let asks = |a: &OsString| ["-h", "--help", "-V", "--version"].iter().any(|known| a == known);
    let mut line = vec![OsString::from("dtlto-bridge")];
    match given.split_last() {
        None => {
            let text = format!(
                "no job file given: LLD passes it as the last argument\n\n{}\n\nFor more information, try '--help'.\n",
                command.render_usage()
            );
            return Err(clap::Error::raw(clap::error::ErrorKind::MissingRequiredArgument, text));
        }
        Some((last, _)) if sub_command || asks(last) => line.extend(given.iter().cloned()),
        // LLD makes a job file whose name begins with `-` for an output of that kind.
        Some((last, options)) => {
            line.extend(variables_as_arguments()?);
            line.extend(options.iter().cloned());
            line.push("--".into());
            line.push(last.clone());
        }
    }
    if sub_command && given[0] == OsStr::new("replay") {
        line.splice(2..2, variables_as_arguments()?);
    }
    CommandLine::from_arg_matches(&command.try_get_matches_from_mut(line)?)
}

/// What to say of a job file that cannot be read, where its name tells of a slip.
pub fn slip(job_file: &OsStr) -> Option<String> {
    let name = job_file.to_str()?;
    if CommandLine::command().get_subcommands().any(|known| known.get_name() == name) {
        return Some(format!("to use the sub-command {name}, put it first"));
    }
    name.starts_with('-').then(|| "the last argument is always the job file".to_owned())
}

/// A usage failure that clap did not see.
pub fn usage(error: anyhow::Error) -> Failure {
    Failure::new(Exit::Usage, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<CommandLine, clap::Error> {
        parse(["dtlto-bridge"].iter().chain(arguments).map(OsString::from).collect())
    }

    #[test]
    fn the_command_line_is_well_formed() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn the_last_argument_is_the_job_file_even_with_a_dash() {
        let line = parsed(&["--retries=1", "-.6934.dist-file.json"]).unwrap();
        assert_eq!(line.job_file.unwrap(), PathBuf::from("-.6934.dist-file.json"));
        assert_eq!(line.options.retries, 1);
    }

    #[test]
    fn the_last_of_two_equal_options_wins() {
        let line = parsed(&["--adapter=a", "--adapter", "b", "jobs.json"]).unwrap();
        assert_eq!(line.options.adapter, "b");
    }

    #[test]
    fn a_word_before_the_job_file_is_an_error() {
        assert!(parsed(&["stray", "jobs.json"]).is_err());
        assert!(parsed(&["--adapter", "jobs.json"]).is_err());
        assert!(parsed(&[]).is_err());
    }

    #[test]
    fn a_sub_command_comes_first() {
        let line = parsed(&["replay", "--retries=7", "saved"]).unwrap();
        let Some(Task::Replay { folder, options, .. }) = line.task else { panic!("{line:?}") };
        assert_eq!((folder, options.retries), (PathBuf::from("saved"), 7));
        let late = parsed(&["-v", "adapters"]).unwrap();
        assert!(late.task.is_none());
        assert!(slip(late.job_file.unwrap().as_os_str()).unwrap().contains("put it first"));
    }

    #[test]
    fn each_option_has_a_variable() {
        let names: Vec<String> = option_variables().into_iter().map(|(name, ..)| name).collect();
        assert!(names.contains(&"DTLTO_BRIDGE_LOCAL_JOBS".to_owned()), "{names:?}");
        assert!(names.contains(&"DTLTO_BRIDGE_DRY_RUN".to_owned()), "{names:?}");
    }
}
