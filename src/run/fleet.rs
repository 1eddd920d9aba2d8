//! A run whose bridge chooses the hosts: jobs start where they do best, hosts are probed and watched, and
//! one that fails is tried less.

use std::cmp::Reverse;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Instant;

use super::{Message, Run};
use crate::adapter::Place;
use crate::attempt::{Report, Setup};
use crate::bundle::Digest;
use crate::fleet::{Fleet, LOOK_TIME, Next, Ready, WINDOW, probe};
use crate::hosts::alive;
use crate::hosts::placement::{Ending, HostId};
use crate::hosts::probe::Verdict;
use crate::os::Signal;
use crate::outcome::Outcome;

impl Run<'_> {
    /// Lets the bridge choose among the hosts of `fleet`, as soon as there is a job for them.
    pub fn with_fleet(&mut self, fleet: Fleet) {
        if self.asking() > 0 && self.farm.is_empty() {
            self.later = Some(fleet);
        } else {
            self.start_fleet(fleet);
        }
    }

    /// Those hosts of which nothing is known are probed, all at once.
    pub(super) fn start_fleet(&mut self, fleet: Fleet) {
        for id in fleet.unknown() {
            let host = fleet.host(id).clone();
            let (setup, groups, sender) =
                (self.setup.clone(), self.groups.clone(), self.sender.clone());
            let body = move || {
                let on_start = |pid| drop(sender.send(Message::Probing(id, pid)));
                let verdict = probe::probe(&setup, &groups, id, &host, &on_start);
                let _ = sender.send(Message::Probed(id, verdict));
            };
            if let Err(error) = thread::Builder::new().spawn(body) {
                let verdict = Verdict::Refused(format!("no thread can be started: {error}"));
                let _ = self.sender.send(Message::Probed(id, verdict));
            }
        }
        self.farm_most = self.farm_most.min(fleet.slots().max(1));
        fleet.known_bad().iter().for_each(|bad| self.reporter.notice(bad));
        self.fleet = Some(fleet);
        self.is_fleet_dead();
        if let Err(error) = read_ahead(self.setup.clone(), self.sender.clone()) {
            self.farm_is_down(&format!("no thread can be started: {error}"));
        }
    }

    pub(super) fn start_on_hosts(&mut self, now: Instant) {
        self.ask_fleet = None;
        while self.farm_weight < self.farm_most {
            let ready: Vec<usize> = std::iter::from_fn(|| self.farm.pop()).take(WINDOW).collect();
            let Some(fleet) = &mut self.fleet else { return };
            if ready.is_empty() {
                fleet.nothing_waits();
                return;
            }
            let work =
                |job: usize| self.setup.inputs.size(&self.setup.plan.file.jobs[job].primary).max(1);
            // Jobs whose inputs are being read wait for that: their pieces may be on their way already.
            let (ready, unread): (Vec<_>, Vec<_>) = ready
                .into_iter()
                .map(|job| (job, pieces(&self.setup, job)))
                .partition(|(_, pieces)| pieces.is_some());
            unread.iter().for_each(|(job, _)| self.farm.push(work(*job), *job));
            let jobs: Vec<Ready> = ready
                .into_iter()
                .map(|(job, pieces)| {
                    let slots = self.setup.plan.travel[job].slots();
                    Ready { job, work: work(job), slots, pieces: pieces.unwrap_or_default() }
                })
                .collect();
            if jobs.is_empty() {
                return;
            }
            let next = fleet.next(now, &jobs);
            let taken = match next {
                Next::Start(job, ..) | Next::NoHost(job) => Some(job),
                Next::Wait(_) => None,
            };
            for (place, ready) in jobs.iter().enumerate() {
                if Some(place) != taken {
                    self.farm.push(ready.work, ready.job);
                }
            }
            match next {
                Next::Start(place, host, without) => {
                    self.start(jobs[place].job, Place::Farm, None, Some((host, without)));
                }
                Next::NoHost(place) => self.no_host(jobs[place].job),
                Next::Wait(until) => {
                    self.ask_fleet = until;
                    return;
                }
            }
        }
    }

    /// A job that no host is left for.
    fn no_host(&mut self, job: usize) {
        self.decide(Report::no_host(job, self.jobs.last_reason(job)));
    }

    pub(super) fn probed(&mut self, host: HostId, verdict: Verdict) {
        self.probes.remove(&host);
        let Some(fleet) = &mut self.fleet else { return };
        if let Some(bad) = fleet.probed(host, verdict) {
            self.reporter.notice(&bad);
        }
        self.is_fleet_dead();
    }

    fn is_fleet_dead(&mut self) {
        let Some(fleet) = &self.fleet else { return };
        if let Some(reason) = fleet.is_dead() {
            fleet.remember_dead(&reason);
            self.farm_is_down(&reason);
        }
    }

    pub(super) fn weigh_host(&mut self, report: &Report) {
        let ending = match report.outcome {
            Outcome::Done => Ending::Done,
            Outcome::CompilerError => Ending::JobFailed,
            Outcome::FarmBusy => Ending::Busy,
            Outcome::FarmUnfit | Outcome::FarmDown | Outcome::ToolLocal => Ending::Unfit,
            Outcome::FarmFault | Outcome::Missing | Outcome::TimedOut => Ending::Fault,
            Outcome::MissingPieces
            | Outcome::Recalled
            | Outcome::StaysHere
            | Outcome::Cancelled
            | Outcome::Refused
            | Outcome::NotStarted => Ending::GivenUp,
        };
        let Some(fleet) = &mut self.fleet else { return };
        let pieces = [report.holds.as_slice(), &report.missing];
        fleet.ended(Instant::now(), report.which.job, (ending, &report.reason), pieces);
        self.is_fleet_dead();
    }

    /// Tells of hosts on which attempts failed, each once.
    pub(super) fn tell_of_hosts(&mut self) {
        if self.fleet.is_none() && self.setup.plan.adapter.scheduler.is_none() {
            return;
        }
        for (host, (count, reason)) in self.jobs.troubles() {
            let plural = if count == 1 { "" } else { "s" };
            let text = format!("{host} failed at {count} attempt{plural}: {reason}");
            self.reporter.notice(&text);
        }
    }

    /// Looks at the ports of hosts on which jobs run long, and ends probes that take too long.
    pub(super) fn watch_hosts(&mut self) {
        let Some(fleet) = &mut self.fleet else { return };
        let now = Instant::now();
        for (job, address) in fleet.looks_due(now) {
            fleet.looking(now, job);
            let sender = self.sender.clone();
            let look = move || {
                let found = alive::addresses(&address);
                let answers = found.and_then(|at| alive::answers(&at, LOOK_TIME)).is_ok();
                let _ = sender.send(Message::Looked(job, answers));
            };
            // Without a thread there is no look: the time limit still holds.
            let _ = thread::Builder::new().spawn(look);
        }
        if fleet.probed_by().is_some_and(|by| by <= now) {
            for host in fleet.unknown() {
                if let Some(pid) = self.probes.remove(&host) {
                    self.groups.end(pid, Signal::KILL);
                }
                self.probed(host, Verdict::silent());
            }
        }
    }

    pub(super) fn looked(&mut self, job: usize, answers: bool) {
        let Some(fleet) = &mut self.fleet else { return };
        if !fleet.looked(Instant::now(), job, answers) {
            return;
        }
        if let Some(running) = self.running.get_mut(&job) {
            running.lost = Some("its host does not answer any more".into());
            if let Some(pid) = running.pid {
                self.groups.end(pid, Signal::KILL);
            }
        }
    }
}

/// A job's pieces, if its inputs have been read by now.
fn pieces(setup: &Setup, job: usize) -> Option<Vec<(blake3::Hash, u64)>> {
    let known = setup.parcels.as_ref()?.pieces_if_read(&setup.plan.file.jobs[job])?;
    let hash = |(digest, length): (Digest, u64)| (blake3::Hash::from_bytes(digest.0), length);
    Some(known.into_iter().map(hash).collect())
}

/// Reads the inputs of jobs in the order in which they start, so that their pieces are known in time.
fn read_ahead(setup: Arc<Setup>, tell: Sender<Message>) -> io::Result<()> {
    let read = move |setup: &Setup, tell: &Sender<Message>| {
        let (jobs, travel) = (&setup.plan.file.jobs, &setup.plan.travel);
        let mut order: Vec<usize> =
            (0..jobs.len()).filter(|&job| travel[job].slots() > 0).collect();
        order.sort_by_key(|&job| Reverse(setup.inputs.size(&jobs[job].primary)));
        for job in order {
            // Whoever packs the job tells of an input that cannot be read.
            let _ = setup.parcels.as_ref().map(|parcels| parcels.pieces(&jobs[job]));
            let _ = tell.send(Message::Read);
        }
    };
    let body = move || {
        if catch_unwind(AssertUnwindSafe(|| read(&setup, &tell))).is_err() {
            let _ = tell.send(Message::Bug);
        }
    };
    thread::Builder::new().name("read ahead".into()).spawn(body).map(drop)
}
