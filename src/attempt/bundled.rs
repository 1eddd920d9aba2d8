//! An attempt by bundle: one file there, one file back, and what the answer says. A job is on the farm if
//! the answer proves it, never because a client exited with 0.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use anyhow::Context;

use super::fifo::{self, Fed};
use super::{Report, RunCommand, Setup, Verdict, Which, Without, client, failed, judge, refused};
use crate::adapter::{Delivery, Place};
use crate::bundle::{LeaveOut, NotPacked};
use crate::collect;
use crate::hosts::probe;
use crate::outcome::Outcome;
use crate::parcel::{Answered, Packed, Parcels};
use crate::plan::Names;
use crate::process::{self, Command, Ended, Groups};

pub(super) fn tried(
    setup: &Setup,
    (parcels, without): (&Parcels, &Without),
    report: &mut Report,
    (run, taken): (RunCommand<'_>, &(dyn Fn() + Sync)),
) -> Verdict {
    let which = report.which;
    let job = &setup.plan.file.jobs[which.job];
    report.host = which.host.map(|id| setup.hosts[id.0].name.clone());
    let bundles = match prepare(setup, report) {
        Ok(bundles) => bundles,
        Err(error) => return refused(error),
    };
    let leave_out = LeaveOut { held: &without.held, in_flight: &without.in_flight };
    let delivery = setup.plan.adapter.request;
    if delivery == Delivery::Fifo
        && let Err(error) = fifo::make(&bundles.request)
    {
        let folder = bundles.request.parent().unwrap_or(Path::new("")).display();
        let why = format!("no pipe can be made in {folder}: {error}; try another --scratch");
        return (Outcome::NotStarted, why);
    }
    let pack = |to: &Path| parcels.pack(job, which.job, &leave_out, to);
    let start =
        || bundles.command(setup, Some(which)).map_err(refused).and_then(|command| run(&command));
    let (fed, ended) = match delivery {
        Delivery::File => match pack(&bundles.request) {
            Ok(packed) => (Fed::Whole(packed), Some(start())),
            Err(error) => return not_packed(error),
        },
        Delivery::Fifo => fifo::feed(&bundles.request, &pack, taken, start),
    };
    let (packed, Ended { status, output }) = match delivered(fed, ended) {
        Ok(delivered) => delivered,
        Err(verdict) => return verdict,
    };
    (report.sent, report.pieces) =
        packed.as_ref().map_or((0, 0), |packed| (packed.length, packed.pieces));
    if let Err(error) = setup.inputs.check(job) {
        return refused(error);
    }
    if !status.success() {
        let (outcome, reason) = client_failed(setup, report, status, output);
        if outcome == Outcome::ToolLocal && packed.is_some() {
            return (outcome, format!("{reason}, since the host that had taken it was lost"));
        }
        return (outcome, reason);
    }
    let Some(packed) = packed else {
        let why = "the client exited with 0 and had not even opened the request";
        return (Outcome::FarmFault, why.to_owned());
    };
    let places: Vec<PathBuf> = report.made.iter().map(|(made, _)| PathBuf::from(made)).collect();
    let Answered { outcome, reason, printed, host, worker, length, holds, missing } =
        parcels.open(&bundles.response, &packed, &places, report.host.as_deref());
    (report.holds, report.missing) = (holds, missing);
    report.received = length;
    (report.worker, report.printed) = (worker, printed);
    // Where we chose the host, it is known by the name that we chose it by.
    report.host = report.host.take().or(host);
    if outcome == Outcome::MissingPieces && *without == Without::default() {
        return (Outcome::FarmFault, format!("{reason}, but nothing was left out"));
    }
    if outcome != Outcome::Done {
        return (outcome, reason);
    }
    let made = report.made.iter().map(|(made, place)| (made.as_str(), place));
    judge(&report.printed, collect::check_made(made))
}

/// What was packed, if the client wanted it, and how the client ended.
fn delivered(
    fed: Fed<Packed, NotPacked>,
    ended: Option<Result<Ended, Verdict>>,
) -> Result<(Option<Packed>, Ended), Verdict> {
    let packed = match fed {
        Fed::Whole(packed) | Fed::Cut(packed) => Some(packed),
        Fed::Unopened => None,
        Fed::NotPacked(error) => return Err(not_packed(error)),
        Fed::Failed(error) => {
            return Err((Outcome::NotStarted, format!("the pipe to the client: {error}")));
        }
    };
    match ended {
        Some(ended) => Ok((packed, ended?)),
        None => Err((Outcome::NotStarted, "the client was not started".to_owned())),
    }
}

/// A client that failed; where we chose the host, the reason names it and what the client said of it.
fn client_failed(setup: &Setup, report: &mut Report, status: ExitStatus, said: Vec<u8>) -> Verdict {
    let (outcome, reason) = failed(setup, report.which.place, status);
    let Some(host) = &report.host else {
        report.printed = said;
        return (outcome, reason);
    };
    if outcome == Outcome::ToolLocal {
        return (outcome, format!("{host}: {reason}"));
    }
    let said = String::from_utf8_lossy(&said);
    let words = match probe::Verdict::of(status.code(), &said, probe::Answer::None) {
        // It was allowed when the link began.
        probe::Verdict::NotAllowed => "its daemon hung up".into(),
        verdict => verdict.words(),
    };
    (outcome, format!("{host}: {words}"))
}

/// Asks, by a request like those of jobs, whether jobs would be done. Returns the host that has answered, and why
/// it would not do them.
///
/// # Errors
/// No host has answered; the text says why.
pub fn ask(setup: &Setup, groups: &Groups) -> Result<(String, Option<String>), String> {
    let parcels = setup.parcels.as_ref().ok_or("nothing can be sent")?;
    let [request, response] =
        ["i", "out"].map(|end| Path::new(&setup.private).join(format!("question.{end}")));
    let bundles = Bundles { request, response };
    fifo::make(&bundles.request).map_err(|error| format!("no pipe can be made: {error}"))?;
    process::be_nicer(setup.plan.adapter.nice);
    let command = bundles.command(setup, None).map_err(|error| format!("{error:#}"))?;
    let pack = |to: &Path| parcels.pack_probe(to);
    let start = || groups.run(&command, &|_| ());
    let (fed, ended) = fifo::feed(&bundles.request, &pack, &|| (), start);
    // One may ask again.
    let _ = fs::remove_file(&bundles.request);
    let ended = ended.ok_or("the client was not started")?.map_err(|error| error.to_string())?;
    if !ended.status.success() {
        return Err(failed(setup, Place::Farm, ended.status).1);
    }
    match fed {
        Fed::Whole(nonce) | Fed::Cut(nonce) => match parcels.open_probe(&bundles.response, nonce) {
            (Some(host), probe::Answer::Good { .. }) => Ok((host, None)),
            (Some(host), probe::Answer::OtherClang(why) | probe::Answer::Refused(why)) => {
                Ok((host, Some(why)))
            }
            _ => Err("the answer is not a worker's".to_owned()),
        },
        Fed::Unopened => Err("the client had not even opened the request".to_owned()),
        Fed::NotPacked(error) => Err(error.to_string()),
        Fed::Failed(error) => Err(error.to_string()),
    }
}

/// The two files; gone when the attempt is over.
struct Bundles {
    request: PathBuf,
    response: PathBuf,
}

impl Drop for Bundles {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.request.with_extension("bundle"));
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
    let output = &setup.plan.file.linker_output;
    let bundles = setup.scratch.bundles((which.job, which.number), &job.primary, output);
    let [request, response] = bundles.context("the folder for bundles")?;
    Ok(Bundles { request, response })
}

impl Bundles {
    fn command(&self, setup: &Setup, which: Option<Which>) -> anyhow::Result<Command> {
        let text = |path: &Path| {
            path.to_str().map(str::to_owned).with_context(|| format!("{path:?} is not UTF-8"))
        };
        let host = which.and_then(|which| which.host).map(|id| &setup.hosts[id.0]);
        let names = Names {
            host: host.map_or(String::new(), |host| host.spec.clone()),
            request: text(&self.request)?,
            response: text(&self.response)?,
            ..setup.names()
        };
        client(setup, which.map_or(0, |which| which.job), Place::Farm, &names)
    }
}

fn not_packed(error: NotPacked) -> Verdict {
    let reason = error.to_string();
    match error {
        NotPacked::Changed(_) => (Outcome::Refused, reason),
        // Others that are under way will make room.
        NotPacked::NoSpace(_) => (Outcome::FarmBusy, reason),
        NotPacked::StaysHere(_) => (Outcome::StaysHere, reason),
        NotPacked::Failed { .. } => (Outcome::FarmUnfit, reason),
    }
}
