//! One attempt at one job, in a thread of its own: look at the inputs, run the command, look at what it
//! made. It tells what happened and decides nothing.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::adapter::{Meaning, Place};
use crate::cli;
use crate::collect::{self, Scratch};
use crate::inputs::{self, Inputs};
use crate::outcome::Outcome;
use crate::plan::{Names, Naming, Plan};
use crate::process::{Command, Ended, Groups, OnStart};
use crate::report::stats::Output;

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
    /// Digests of the outputs are wanted.
    pub digests: bool,
}

/// Which attempt.
#[derive(Clone, Copy, Debug)]
pub struct Which {
    /// The job's number.
    pub job: usize,
    /// Where it is made.
    pub place: Place,
    /// Counts the attempts at this job, from 1.
    pub number: usize,
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
    /// What the command printed.
    pub printed: Vec<u8>,
    /// Where the object lies, to be moved into place.
    pub object: String,
    /// The outputs, if digests are wanted and all is well.
    pub outputs: Vec<Output>,
    /// When it began.
    pub began: Instant,
    /// How long it took.
    pub took: Duration,
}

impl Report {
    /// The report of an attempt for which not even a thread could be had.
    pub fn not_started(which: Which, began: Instant, reason: String) -> Self {
        Report {
            which,
            outcome: Outcome::NotStarted,
            reason,
            printed: Vec::new(),
            object: String::new(),
            outputs: Vec::new(),
            began,
            took: began.elapsed(),
        }
    }
}

/// Makes the attempt. `on_start` hears of the process as soon as there is one.
pub fn attempt(setup: &Setup, groups: &Groups, which: Which, on_start: OnStart<'_>) -> Report {
    let Setup { plan, scratch, .. } = setup;
    let began = Instant::now();
    let object = plan.object_name(which.job, |own| scratch.fresh(own, which.job, which.number));
    let mut printed = Vec::new();
    let (outcome, reason) = tried(setup, groups, which, &object, &mut printed, on_start);
    let mut report =
        Report { outcome, printed, object, ..Report::not_started(which, began, reason) };
    if outcome == Outcome::Done && setup.digests {
        match digests(setup, &report) {
            Ok(outputs) => report.outputs = outputs,
            Err(error) => {
                report.outcome = Outcome::Missing;
                report.reason = format!("{error:#}");
            }
        }
    }
    if report.outcome != Outcome::Done {
        remove_leavings(setup, &report);
    }
    report.took = began.elapsed();
    report
}

fn tried(
    setup: &Setup,
    groups: &Groups,
    which: Which,
    object: &str,
    printed: &mut Vec<u8>,
    on_start: OnStart<'_>,
) -> (Outcome, String) {
    let command = match prepare(setup, which, object) {
        Ok(command) => command,
        Err(error) => return (Outcome::Refused, format!("{error:#}")),
    };
    let ended = match groups.run(&command, on_start) {
        Ok(ended) => ended,
        Err(error) if error.kind() == ErrorKind::Interrupted => {
            return (Outcome::Cancelled, error.to_string());
        }
        Err(error) => {
            let text = format!("{} cannot be started: {error}", command.program.display());
            return (Outcome::NotStarted, text);
        }
    };
    let Ended { status, output } = ended;
    *printed = output;
    // Told before anything else: it is the cause of whatever followed from it.
    if let Err(error) = setup.inputs.check(&setup.plan.file.jobs[which.job]) {
        return (Outcome::Refused, format!("{error:#}"));
    }
    if !status.success() {
        return failed(setup, which.place, status);
    }
    if let Some(words) = collect::false_success(printed) {
        return (Outcome::Missing, format!("the compiler exited with 0 but said {words:?}"));
    }
    match collect::check(&setup.plan.file.jobs[which.job], object) {
        Ok(()) => (Outcome::Done, String::new()),
        Err(error) => (Outcome::Missing, format!("the compiler exited with 0 but {error:#}")),
    }
}

/// Everything that comes before the start: nothing that was there earlier may pass for the job's output.
fn prepare(setup: &Setup, which: Which, object: &str) -> anyhow::Result<Command> {
    let plan = &setup.plan;
    let job = &plan.file.jobs[which.job];
    setup.inputs.check(job)?;
    let index = repair_index(setup, which, object)?;
    collect::remove_old(job)?;
    let names = Names {
        object: object.to_owned(),
        index,
        tool: setup.tool.clone(),
        link: setup.link.clone(),
        request: format!("{object}.request"),
        response: format!("{object}.response"),
    };
    let mut argv = plan.argv(which.job, which.place, &names).into_iter();
    let first = argv.next().context("the adapter's command is empty")?;
    let program = if *first == *plan.file.compiler {
        setup.compiler.clone()
    } else if Path::new(&first).is_absolute() {
        PathBuf::from(first)
    } else {
        cli::find_program(&first)?
    };
    let (set, unset) = plan.env(which.job, which.place, &names);
    Ok(Command { program, args: argv.collect(), set, unset, ..Command::default() })
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
    if let Some(code) = status.code() {
        return format!("exited with {code}");
    }
    let signal = status.signal().unwrap_or(0);
    match signal_hook::low_level::signal_name(signal) {
        Some(name) => format!("was killed by {name}"),
        None => format!("was killed by signal {signal}"),
    }
}

fn digests(setup: &Setup, report: &Report) -> anyhow::Result<Vec<Output>> {
    let job = &setup.plan.file.jobs[report.which.job];
    let others = job.other_outputs.iter().map(|other| (&**other, other));
    [(report.object.as_str(), &job.object)]
        .into_iter()
        .chain(others)
        .map(|(from, path)| {
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
    } else {
        let _ = fs::remove_file(&report.object);
    }
    collect::remove_leavings(&report.object);
}
