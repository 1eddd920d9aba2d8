//! An attempt by bundle: one file there, one file back, and what the answer says. A job is on the farm if
//! the answer proves it, never because a client exited with 0.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::{Report, RunCommand, Setup, Verdict, command, failed, judge, refused};
use crate::bundle::NotPacked;
use crate::collect;
use crate::outcome::Outcome;
use crate::parcel::{Answered, Parcels};
use crate::plan::Names;
use crate::process::Ended;

pub(super) fn tried(
    setup: &Setup,
    parcels: &Parcels,
    report: &mut Report,
    run: RunCommand<'_>,
) -> Verdict {
    let which = report.which;
    let job = &setup.plan.file.jobs[which.job];
    let bundles = match prepare(setup, report) {
        Ok(bundles) => bundles,
        Err(error) => return refused(error),
    };
    let packed = match parcels.pack(job, which.job, &bundles.request) {
        Ok(packed) => packed,
        Err(error) => return not_packed(error),
    };
    report.sent = packed.length;
    let places: Vec<PathBuf> = report.made.iter().map(|(made, _)| PathBuf::from(made)).collect();
    let ended = bundles.command(setup, report).map_err(refused).and_then(|command| run(&command));
    let Ended { status, output } = match ended {
        Ok(ended) => ended,
        Err(verdict) => return verdict,
    };
    if let Err(error) = setup.inputs.check(job) {
        return refused(error);
    }
    if !status.success() {
        report.printed = output;
        return failed(setup, which.place, status);
    }
    let Answered { outcome, reason, printed, host, worker, length } =
        parcels.open(&bundles.response, &packed, &places);
    report.received = length;
    (report.host, report.worker, report.printed) = (host, worker, printed);
    if outcome != Outcome::Done {
        return (outcome, reason);
    }
    let made = report.made.iter().map(|(made, place)| (made.as_str(), place));
    judge(&report.printed, collect::check_made(made))
}

/// The two files; gone when the attempt is over.
struct Bundles {
    request: PathBuf,
    response: PathBuf,
}

impl Drop for Bundles {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.request);
        let _ = fs::remove_file(&self.response);
    }
}

fn prepare(setup: &Setup, report: &mut Report) -> anyhow::Result<Bundles> {
    let which = report.which;
    let job = &setup.plan.file.jobs[which.job];
    setup.inputs.check(job)?;
    collect::remove_old(job)?;
    for (n, output) in job.outputs().enumerate() {
        let fresh = setup.scratch.fresh(output, which.job, which.number);
        report.made.push((if n == 0 { fresh } else { format!("{fresh}.{n}") }, output.clone()));
    }
    // A suffix that distcc and icecream ship unread; their clients need the whole path.
    let stem = std::path::absolute(setup.scratch.fresh(&job.object, which.job, which.number))
        .context("the output folder")?;
    let stem = stem.with_file_name(format!("j{}a{}", which.job, which.number));
    Ok(Bundles { request: stem.with_extension("i"), response: stem.with_extension("out") })
}

impl Bundles {
    fn command(&self, setup: &Setup, report: &Report) -> anyhow::Result<crate::process::Command> {
        let text = |path: &Path| {
            path.to_str().map(str::to_owned).with_context(|| format!("{path:?} is not UTF-8"))
        };
        let names = Names {
            object: String::new(),
            index: None,
            tool: setup.tool.clone(),
            link: setup.link.clone(),
            request: text(&self.request)?,
            response: text(&self.response)?,
        };
        command(setup, report.which, &names)
    }
}

fn not_packed(error: NotPacked) -> Verdict {
    let reason = error.to_string();
    match error {
        NotPacked::Changed(_) => (Outcome::Refused, reason),
        // Others that are under way will make room.
        NotPacked::NoSpace(_) => (Outcome::FarmFault, reason),
        NotPacked::StaysHere(_) => (Outcome::StaysHere, reason),
        NotPacked::Failed { .. } => (Outcome::FarmUnfit, reason),
    }
}
