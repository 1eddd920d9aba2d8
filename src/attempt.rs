//! One attempt at one job, in a thread of its own: look at the inputs, run the command, look at what it
//! made. It tells what happened and decides nothing.

pub mod batch;
mod bundled;
mod declared;
mod fifo;

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::Context;

pub use declared::stable_name;

use crate::adapter::{Meaning, Place};
use crate::bundle::{Digest, Library};
use crate::cache::dist::{Dist, Told};
use crate::cli;
use crate::collect::{self, Scratch};
use crate::hosts::list::Host;
use crate::hosts::placement::HostId;
use crate::inputs::{self, Inputs};
use crate::jobfile::Text;
use crate::os;
use crate::outcome::Outcome;
use crate::parcel::Parcels;
use crate::plan::{Names, Naming, Plan};
use crate::process::{self, Command, Ended, Groups, OnStart};
use crate::report::stats::Output;
use crate::toolchain::Toolchain;

pub use bundled::ask;

/// What the attempts of a link share.
#[derive(Debug)]
pub struct Setup {
    /// What is to be done.
    pub plan: Plan,
    /// The inputs as they were at the start.
    pub inputs: Inputs,
    /// Where attempts write.
    pub scratch: Scratch,
    /// The compiler, absolute.
    pub compiler: PathBuf,
    /// The adapter's tool, absolute; empty if it has none.
    pub tool: String,
    /// The link's id.
    pub link: String,
    /// What the bundles of the link share, if its adapter ships any.
    pub parcels: Option<Parcels>,
    /// A folder for what the adapter's tool keeps while it runs; absolute.
    pub private: String,
    /// `PATH` of the adapter's tool, if that is not ours.
    pub path: Option<String>,
    /// What is shipped to hosts, as the adapter's tool wants it named, once it is known.
    pub environment: OnceLock<String>,
    /// The farm's hosts, where the bridge chooses among them.
    pub hosts: Vec<Host>,
    /// What the jobs of the link share on sccache-dist, if its adapter uses that.
    pub dist: Option<Dist>,
    /// The compiler as it was when the link began, if it was looked through.
    pub toolchain: Option<Toolchain>,
    /// What was read of the inputs.
    pub library: Arc<Library>,
    /// The variables that the adapter's tool inherits, where that is not all of them.
    pub inherited: Option<Vec<(String, String)>>,
    /// The link itself was started by the adapter's tool.
    pub inside_farm: bool,
    /// Digests of the outputs are wanted.
    pub digests: bool,
}

impl Setup {
    /// The names that all attempts have in common.
    pub fn names(&self) -> Names {
        Names {
            object: String::new(),
            index: None,
            tool: self.tool.clone(),
            link: self.link.clone(),
            host: String::new(),
            private: self.private.clone(),
            request: String::new(),
            response: String::new(),
            server: self.dist.as_ref().map_or(String::new(), |dist| dist.server().to_owned()),
            declared: String::new(),
            identity: self.dist.as_ref().map_or(String::new(), |dist| dist.compiler.clone()),
            environment: self.environment.get().cloned().unwrap_or_default(),
        }
    }
}

/// Who hears of an attempt that is under way.
pub struct Hears<'a> {
    /// Hears of the process as soon as there is one.
    pub started: OnStart<'a>,
    /// Hears that a farm has taken the job, where that can be seen.
    pub taken: &'a (dyn Fn() + Sync),
}

/// Which attempt.
#[derive(Clone, Copy, Debug)]
pub struct Which {
    /// The job's number.
    pub job: usize,
    /// Where it is made.
    pub place: Place,
    /// By which of the hosts, where the bridge chooses.
    pub host: Option<HostId>,
    /// Counts the attempts at this job, from 1.
    pub number: usize,
}

/// Pieces that the request of an attempt does without.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Without {
    /// The host holds them.
    pub held: Vec<Digest>,
    /// They are on their way to the host.
    pub in_flight: Vec<Digest>,
}

/// How we know that a farm's tool ran a job on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Here {
    /// It says so.
    Told,
    /// It names no other machine.
    NotElsewhere,
}

/// What came of it.
#[derive(Debug)]
pub struct Report {
    /// Which attempt it was.
    pub which: Which,
    /// What happened.
    pub outcome: Outcome,
    /// The same for people.
    pub reason: String,
    /// The farm's tool ran it on this machine, by itself.
    pub here: Option<Here>,
    /// What the command printed.
    pub printed: Vec<u8>,
    /// What was made under other names, and where it belongs.
    pub made: Vec<(String, Text)>,
    /// The host, where that is proved.
    pub host: Option<String>,
    /// The version of the worker.
    pub worker: Option<String>,
    /// Pieces of the request that the host holds now.
    pub holds: Vec<Digest>,
    /// Pieces that the host lacked.
    pub missing: Vec<Digest>,
    /// Bytes of the bundle that was given to the client.
    pub sent: u64,
    /// Bytes of the pieces in it that jobs can share, before they were compressed.
    pub pieces: u64,
    /// Bytes of the bundle that came back.
    pub received: u64,
    /// Where the tool's log says that the object was made, if it keeps one.
    pub told: Option<Told>,
    /// The outputs, if digests are wanted and all is well.
    pub outputs: Vec<Output>,
    /// When it began.
    pub began: Instant,
    /// How long it took.
    pub took: Duration,
}

impl Report {
    /// The report of a job that no host is left for; `last` is the reason why the last one could not do it.
    pub fn no_host(job: usize, last: Option<&str>) -> Self {
        let which = Which { job, place: Place::Farm, host: None, number: 0 };
        let why = last.map_or(String::new(), |last| format!(" ({last})"));
        let reason = format!("no host is left for it{why}");
        Report { outcome: Outcome::FarmUnfit, ..Report::not_started(which, Instant::now(), reason) }
    }

    /// The report of an attempt for which not even a thread could be had.
    pub fn not_started(which: Which, began: Instant, reason: String) -> Self {
        Report {
            which,
            outcome: Outcome::NotStarted,
            reason,
            here: None,
            printed: Vec::new(),
            made: Vec::new(),
            host: None,
            worker: None,
            holds: Vec::new(),
            missing: Vec::new(),
            sent: 0,
            pieces: 0,
            received: 0,
            told: None,
            outputs: Vec::new(),
            began,
            took: began.elapsed(),
        }
    }
}

/// Makes the attempt.
pub fn attempt(
    setup: &Setup,
    groups: &Groups,
    which: Which,
    without: &Without,
    hears: &Hears<'_>,
) -> Report {
    let began = Instant::now();
    let mut report = Report::not_started(which, began, String::new());
    let run = |command: &Command| start(command, || groups.run(command, hears.started));
    process::be_nicer(setup.plan.manifest(which.place).nice);
    let (outcome, reason) = match &setup.parcels {
        Some(parcels) if which.place == Place::Farm => {
            bundled::tried(setup, (parcels, without), &mut report, (&run, hears.taken))
        }
        _ => match &setup.dist {
            Some(dist) if which.place == Place::Farm => {
                declared::tried(setup, (dist, groups), &mut report, &run)
            }
            _ => direct(setup, &mut report, &run),
        },
    };
    (report.outcome, report.reason) = (outcome, reason);
    add_digests(setup, &mut report);
    if report.outcome != Outcome::Done {
        remove_leavings(setup, &report);
    }
    report.took = began.elapsed();
    report
}

fn add_digests(setup: &Setup, report: &mut Report) {
    if report.outcome == Outcome::Done && setup.digests {
        match digests(setup, report) {
            Ok(outputs) => report.outputs = outputs,
            Err(error) => {
                report.outcome = Outcome::Missing;
                report.reason = format!("{error:#}");
            }
        }
    }
}

/// What stands instead of an end: the outcome and its reason.
type Verdict = (Outcome, String);
/// Runs a command to its end.
type RunCommand<'a> = &'a dyn Fn(&Command) -> Result<Ended, Verdict>;

fn start(command: &Command, run: impl FnOnce() -> io::Result<Ended>) -> Result<Ended, Verdict> {
    run().map_err(|error| match error.kind() {
        ErrorKind::Interrupted => (Outcome::Cancelled, error.to_string()),
        _ => {
            let text = format!("{} cannot be started: {error}", command.program.display());
            (Outcome::NotStarted, text)
        }
    })
}

fn refused(error: anyhow::Error) -> Verdict {
    (Outcome::Refused, format!("{error:#}"))
}

/// Runs the job's command on the job's own files.
fn direct(setup: &Setup, report: &mut Report, run: RunCommand<'_>) -> Verdict {
    let which = report.which;
    let job = &setup.plan.file.jobs[which.job];
    let fresh = |own: &str| setup.scratch.fresh(own, which.job, which.number);
    let object = setup.plan.object_name(which.job, fresh);
    let command = match prepare(setup, which, &object) {
        Ok(command) => command,
        Err(error) => return refused(error),
    };
    report.made.push((object.clone(), job.object.clone()));
    let Ended { status, output } = match run(&command) {
        Ok(ended) => ended,
        Err(verdict) => return verdict,
    };
    report.printed = output;
    // Told before anything else: it is the cause of whatever followed from it.
    if let Err(error) = setup.inputs.check(job) {
        return refused(error);
    }
    if !status.success() {
        return failed(setup, which.place, status);
    }
    judge(&report.printed, collect::check(job, &object))
}

/// An attempt whose compiler exited with 0.
fn judge(printed: &[u8], checked: anyhow::Result<()>) -> Verdict {
    if let Some(words) = collect::false_success(printed) {
        return (Outcome::Missing, format!("the compiler exited with 0 but said {words:?}"));
    }
    match checked {
        Ok(()) => (Outcome::Done, String::new()),
        Err(error) => (Outcome::Missing, format!("the compiler exited with 0 but {error:#}")),
    }
}

fn prepare(setup: &Setup, which: Which, object: &str) -> anyhow::Result<Command> {
    let names = names(setup, which, object)?;
    client(setup, which.job, which.place, &names)
}

/// Everything that comes before the start: nothing that was there earlier may pass for the job's output.
fn names(setup: &Setup, which: Which, object: &str) -> anyhow::Result<Names> {
    let job = &setup.plan.file.jobs[which.job];
    setup.inputs.check(job)?;
    let index = repair_index(setup, which, object)?;
    collect::remove_old(job)?;
    Ok(Names { object: object.to_owned(), index, ..setup.names() })
}

/// The adapter's command.
///
/// # Errors
/// Its program cannot be found.
pub fn client(setup: &Setup, job: usize, place: Place, names: &Names) -> anyhow::Result<Command> {
    let plan = &setup.plan;
    let mut argv = plan.argv(job, place, names).into_iter();
    let first = argv.next().context("the adapter's command is empty")?;
    let program = if *first == *plan.file.compiler {
        setup.compiler.clone()
    } else if Path::new(&first).is_absolute() {
        PathBuf::from(first)
    } else {
        cli::find_program(&first)?
    };
    let (mut set, unset) = plan.env(job, place, names);
    if let (Place::Farm, Some(path)) = (place, &setup.path) {
        set.push(("PATH".into(), path.clone()));
    }
    let mut clear = false;
    if let (Place::Farm, Some(inherited)) = (place, &setup.inherited) {
        clear = true;
        set.splice(0..0, inherited.iter().cloned());
    }
    Ok(Command { program, args: argv.collect(), clear, set, unset })
}

/// Writes an index that LLD damaged anew, beside the attempt's object.
fn repair_index(setup: &Setup, which: Which, object: &str) -> anyhow::Result<Option<String>> {
    let plan = &setup.plan;
    let job = &plan.file.jobs[which.job];
    let Some(repaired) = inputs::repaired_index(job)? else { return Ok(None) };
    let path = match plan.naming[which.job] {
        Naming::Fresh(_) => format!("{object}.thinlto.bc"),
        Naming::Own => setup.scratch.fresh(&job.object, which.job, which.number) + ".thinlto.bc",
    };
    fs::write(&path, repaired).with_context(|| format!("{path}: the repaired index"))?;
    Ok(Some(path))
}

fn failed(setup: &Setup, place: Place, status: ExitStatus) -> (Outcome, String) {
    let how = describe(status);
    let manifest = setup.plan.manifest(place);
    if place == Place::Local {
        return (Outcome::CompilerError, format!("the compiler {how}"));
    }
    if let Some(tripwire) = &manifest.tripwire
        && status.code() == Some(tripwire.code.into())
    {
        return (
            Outcome::ToolLocal,
            format!("{} would have run it on this machine", manifest.name),
        );
    }
    let Some(code) = status.code() else {
        return (Outcome::FarmFault, format!("the client {how}"));
    };
    let Some((means, say)) = manifest.failure(code) else {
        return (Outcome::FarmFault, format!("the client {how}"));
    };
    let outcome = match means {
        Meaning::CompilerError => Outcome::CompilerError,
        Meaning::Busy | Meaning::Unreachable => Outcome::FarmFault,
        Meaning::NoCompiler => Outcome::FarmUnfit,
        Meaning::NoHosts => Outcome::FarmDown,
    };
    let say = say.map_or(String::new(), |say| format!(" ({say})"));
    (outcome, format!("the client {how}: {means}{say}"))
}

/// `exited with 1`, `was killed by SIGSEGV`.
pub fn describe(status: ExitStatus) -> String {
    match (os::killed_by(status), status.code()) {
        (None, Some(code)) => format!("exited with {code}"),
        (what, _) => format!("was killed by {}", what.unwrap_or_default()),
    }
}

fn digests(setup: &Setup, report: &Report) -> anyhow::Result<Vec<Output>> {
    let job = &setup.plan.file.jobs[report.which.job];
    job.outputs()
        .map(|path| {
            let made = report.made.iter().find(|(_, place)| place == path);
            let from = made.map_or(&**path, |(from, _)| from);
            let file = fs::File::open(from).with_context(|| from.to_owned())?;
            let mut hasher = blake3::Hasher::new();
            hasher.update_reader(file).with_context(|| from.to_owned())?;
            Ok(Output {
                path: path.to_string(),
                bytes: hasher.count(),
                blake3: hasher.finalize().to_string(),
            })
        })
        .collect()
}

/// A failed attempt's files are of no use to anybody.
fn remove_leavings(setup: &Setup, report: &Report) {
    if setup.plan.naming[report.which.job] == Naming::Own {
        let _ = collect::remove_old(&setup.plan.file.jobs[report.which.job]);
    }
    for (made, _) in &report.made {
        let _ = fs::remove_file(made);
        collect::remove_leavings(made);
    }
}
