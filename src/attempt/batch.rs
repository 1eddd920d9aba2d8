//! One call of a batch tool for many jobs: a task file, the call, and a verdict on each job by its own outputs and by
//! what the log says of it, never by the call's exit code alone. It decides nothing.

use std::fs;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Instant;

use anyhow::Context;

use super::{
    Here, Report, Setup, Verdict, Which, add_digests, client, describe, names, refused, start,
};
use crate::adapter::{Meaning, Place};
use crate::cli::Fallback;
use crate::collect;
use crate::outcome::Outcome;
use crate::parcel;
use crate::plan::{Names, Naming};
use crate::process::{Command, Groups, OnStart};
use crate::taskfile::log::{Log, Ran, Told};
use crate::taskfile::{self, Task};

/// Hears of each job whose task has ended, while the call lasts.
pub type OnTask<'a> = &'a mut dyn FnMut(usize);

/// Makes call number `call` for `jobs`; the reports are in their order.
pub fn attempt(
    setup: &Setup,
    groups: &Groups,
    (jobs, call): (&[Which], usize),
    on_start: OnStart<'_>,
    on_task: OnTask<'_>,
) -> Vec<Report> {
    let began = Instant::now();
    let mut reports = Vec::with_capacity(jobs.len());
    let mut tasks = Vec::with_capacity(jobs.len());
    for &which in jobs {
        let mut report = Report::not_started(which, began, String::new());
        match task(setup, which, &mut report) {
            Ok(task) => {
                report.outcome = Outcome::Done;
                tasks.push(task);
            }
            Err(error) => (report.outcome, report.reason) = refused(error),
        }
        reports.push(report);
    }
    let folder = Path::new(&setup.private).join(format!("call{call}"));
    let mut log = Log::new(&parcel::claims(None).1);
    let end = match tasks.is_empty() {
        true => None,
        false => tell(setup, &folder, &tasks).map_or_else(
            |error| Some((Outcome::FarmDown, format!("{error:#}"))),
            |command| run(setup, groups, &command, &mut log, (on_start, on_task)),
        ),
    };
    match end {
        // It is made again and again while another build runs.
        Some((Outcome::FarmBusy, _)) => drop(fs::remove_dir_all(&folder)),
        _ => keep_log(&folder, &log),
    }
    for report in reports.iter_mut().filter(|report| report.outcome == Outcome::Done) {
        report.took = began.elapsed();
        let told = log.tasks.remove(&report.which.job);
        (report.outcome, report.reason) = verdict(setup, report, told, end.as_ref());
        add_digests(setup, report);
        remove_unwanted(setup, report);
    }
    reports
}

/// The task of a job whose files are ready.
fn task(setup: &Setup, which: Which, report: &mut Report) -> anyhow::Result<Task> {
    let job = &setup.plan.file.jobs[which.job];
    let fresh = |own: &str| setup.scratch.fresh(own, which.job, which.number);
    let object = setup.plan.object_name(which.job, fresh);
    let names = names(setup, which, &object)?;
    let mut outputs = vec![object.clone()];
    outputs.extend(job.other_outputs.iter().map(|output| output.to_string()));
    if setup.plan.naming[which.job] == Naming::Own {
        // Its options make files that the linker does not know of, and that are named after the object.
        outputs.push(Path::new(&object).with_extension("*").to_string_lossy().into_owned());
    }
    report.made.push((object, job.object.clone()));
    let args = setup.plan.compiler_args(which.job, &names);
    Ok(Task { number: which.job, caption: job.primary.to_string(), args, outputs })
}

/// Writes the task file; the command that hands it over.
fn tell(setup: &Setup, folder: &Path, tasks: &[Task]) -> anyhow::Result<Command> {
    let plan = &setup.plan;
    let kind = plan.adapter.batch.as_ref().context("the adapter has no batch")?;
    fs::create_dir(folder).with_context(|| folder.display().to_string())?;
    let here = std::path::absolute(".").context("the current folder")?;
    let batch = taskfile::Batch {
        title: &plan.file.linker_output,
        compiler: setup.compiler.to_str().context("the compiler's path is not UTF-8")?,
        folder: here.to_str().context("the current folder is not UTF-8")?,
        responses: folder,
        seconds: plan.limits.farm_time.as_secs(),
    };
    let path = folder.join("tasks.xml");
    taskfile::write(kind.task_file, &batch, tasks, &path)?;
    let request = path.to_str().context("the scratch folder is not UTF-8")?.to_owned();
    let names = Names { request, ..setup.names() };
    let mut command = client(setup, tasks[0].number, Place::Farm, &names)?;
    if plan.limits.fallback == Fallback::Never {
        command.args.extend(kind.never_here.iter().cloned());
    }
    Ok(command)
}

/// Runs the tool; `None` if its end leaves it to each job what became of it.
fn run(
    setup: &Setup,
    groups: &Groups,
    command: &Command,
    log: &mut Log,
    (on_start, on_task): (OnStart<'_>, OnTask<'_>),
) -> Option<Verdict> {
    let run = || groups.run_heard(command, on_start, &mut |bytes| log.push(bytes, on_task));
    let ended = start(command, run);
    log.finish(on_task);
    match ended {
        Ok(ended) => failed(setup, ended.status, log),
        Err(verdict) => Some(verdict),
    }
}

fn failed(setup: &Setup, status: ExitStatus, log: &Log) -> Option<Verdict> {
    let name = &setup.plan.adapter.name;
    let how = describe(status);
    let Some(code) = status.code() else {
        return Some((Outcome::FarmFault, format!("{name} {how}")));
    };
    let (means, say) = setup.plan.adapter.failure(code)?;
    let outcome = match means {
        // Some task failed; which, its own outputs tell.
        Meaning::CompilerError => return None,
        Meaning::Busy => Outcome::FarmBusy,
        Meaning::Unreachable => Outcome::FarmFault,
        Meaning::NoCompiler => Outcome::FarmUnfit,
        Meaning::NoHosts => Outcome::FarmDown,
    };
    let say = say.map_or(String::new(), |say| format!(" ({say})"));
    let reason = format!("{name} {how}{say}");
    let own = String::from_utf8_lossy(&log.own_words);
    let last = own.lines().rfind(|line| !line.trim().is_empty());
    Some(match last.filter(|_| means != Meaning::Busy) {
        Some(line) => (outcome, format!("{reason}: {}", line.trim())),
        None => (outcome, reason),
    })
}

/// What became of one job.
fn verdict(
    setup: &Setup,
    report: &mut Report,
    told: Option<Told>,
    end: Option<&Verdict>,
) -> Verdict {
    let job = &setup.plan.file.jobs[report.which.job];
    let name = &setup.plan.adapter.name;
    // Told before anything else: it is the cause of whatever followed from it.
    if let Err(error) = setup.inputs.check(job) {
        return refused(error);
    }
    let was_run = told.is_some();
    let mut ran = Ran::Unknown;
    if let Some(told) = told {
        ran = told.ran;
        report.printed = told.words;
        if let Some(took) = told.took {
            // Each job's own time, not the call's.
            report.took = took;
            report.began =
                told.ended.checked_sub(took).map_or(report.began, |t| t.max(report.began));
        }
    }
    if let Ran::On(host) = &ran {
        report.host = Some(host.clone());
    }
    let checked = match collect::false_success(&report.printed) {
        Some(words) => Err(format!("{name}: the compiler said {words:?}")),
        None => collect::check(job, &report.made[0].0).map_err(|error| match was_run {
            true => format!("{name}: {error:#}"),
            false => format!("{name} does not speak of it, and {error:#}"),
        }),
    };
    match (checked, end) {
        // A tool that broke has perhaps not brought back all of a file, unless it had said that the task ended.
        (Ok(()), end) if end.is_none() || was_run => placed(setup, report, &ran),
        (_, Some(end)) => end.clone(),
        (Err(_), None) if is_compilers_error(&report.printed) => {
            (Outcome::CompilerError, format!("{name}: the compiler failed"))
        }
        (checked, None) => (Outcome::Missing, checked.err().unwrap_or_default()),
    }
}

/// A job whose outputs are good; where it ran is what the log says.
fn placed(setup: &Setup, report: &mut Report, ran: &Ran) -> Verdict {
    let name = &setup.plan.adapter.name;
    let why = match ran {
        Ran::On(_) => return (Outcome::Done, String::new()),
        Ran::Here => "ran it on this machine",
        Ran::Unknown => "does not say where it ran",
    };
    report.here = Some(if *ran == Ran::Here { Here::Told } else { Here::NotElsewhere });
    match setup.plan.limits.fallback {
        Fallback::Local => (Outcome::Done, String::new()),
        Fallback::Never => (Outcome::ToolLocal, format!("{name} {why}")),
    }
}

/// In clang's words. What is no such error is the farm's fault.
fn is_compilers_error(words: &[u8]) -> bool {
    let text = String::from_utf8_lossy(words);
    [": error:", ": fatal error:", "LLVM ERROR:", "PLEASE submit a bug report"]
        .iter()
        .any(|error| text.contains(error))
}

/// What the tool said stays with the task file, for `--save`.
fn keep_log(folder: &Path, log: &Log) {
    let _ = fs::write(folder.join("log.txt"), &log.own_words);
}

/// What a job that is not done left; its scratch folder goes anyway when the link ends.
fn remove_unwanted(setup: &Setup, report: &Report) {
    if report.outcome == Outcome::Done {
        return;
    }
    if setup.plan.naming[report.which.job] == Naming::Own {
        super::remove_leavings(setup, report);
    }
    for (made, _) in &report.made {
        let _ = fs::remove_file(made);
    }
}
