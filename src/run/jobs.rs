//! What is known of each job, and the counters: changed only through here, so that they cannot drift apart.

use std::collections::BTreeMap;

use crate::adapter::Place;
use crate::attempt::{Here, Report};
use crate::outcome::Outcome;
use crate::report::stats::{Caching, Output, Try, ms};

/// Where a job stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Waiting or running.
    #[default]
    Open,
    /// Its outputs were taken; made at this place.
    Accepted(Place),
    /// Its outputs were taken from the cache.
    Cached,
    /// It was given up.
    Failed,
}

/// One job.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Where it stands.
    pub state: State,
    /// Every attempt, in order.
    pub tries: Vec<Try>,
    /// Digests of what was taken, if wanted.
    pub outputs: Vec<Output>,
    /// Of a job from the cache: where its outputs had been made, if that is known, and the time in milliseconds that it took to get them.
    pub origin: Option<(Option<String>, u64)>,
    begun: usize,
    retries: u32,
    came_home: bool,
    /// How the last attempt came to run on this machine, by the farm's tool itself.
    tool_here: Option<Here>,
}

/// All jobs of a link.
#[derive(Debug)]
pub struct Jobs {
    all: Vec<Progress>,
    done: usize,
    bundled: Bundled,
    /// What a cache was good for, if there is one.
    pub caching: Option<Caching>,
}

/// Bytes of bundles.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bundled {
    /// That were given to clients.
    pub sent: u64,
    /// Of the inputs in them that jobs can share, before they were compressed.
    pub pieces: u64,
    /// That came back.
    pub received: u64,
}

impl Jobs {
    /// Jobs of which none has begun.
    pub fn new(count: usize) -> Self {
        let all = vec![Progress::default(); count];
        Jobs { all, done: 0, bundled: Bundled::default(), caching: None }
    }

    /// Counts an attempt that begins, and says its number.
    pub(super) fn begin(&mut self, job: usize) -> usize {
        self.all[job].begun += 1;
        self.all[job].begun
    }

    pub(super) fn record(&mut self, report: &Report) {
        self.bundled.sent += report.sent;
        self.bundled.pieces += report.pieces;
        self.bundled.received += report.received;
        self.all[report.which.job].tool_here = report.here;
        self.all[report.which.job].tries.push(Try {
            place: Some(if report.here.is_some() { Place::Local } else { report.which.place }),
            host: report.host.clone(),
            worker: report.worker.clone(),
            outcome: report.outcome,
            reason: report.reason.clone(),
            ms: ms(report.took),
        });
    }

    pub(super) fn accept(&mut self, job: usize, outputs: Vec<Output>) {
        let progress = &mut self.all[job];
        let place = progress.tries.last().and_then(|last| last.place).unwrap_or(Place::Local);
        progress.state = State::Accepted(place);
        progress.outputs = outputs;
        self.done += 1;
    }

    /// Takes outputs from a cache, which were made on `host`.
    pub(super) fn accept_cached(
        &mut self,
        job: usize,
        outputs: Vec<Output>,
        host: Option<String>,
        ms: u64,
    ) {
        let progress = &mut self.all[job];
        progress.state = State::Cached;
        progress.outputs = outputs;
        progress.origin = Some((host, ms));
        self.done += 1;
    }

    pub(super) fn fail(&mut self, job: usize) {
        self.all[job].state = State::Failed;
    }

    /// Gives up a job that was never started, for the farm's sake.
    pub(super) fn fail_for_farm(&mut self, job: usize, reason: &str) {
        let outcome = Outcome::FarmDown;
        let reason = reason.to_owned();
        let none = Try { place: None, host: None, worker: None, outcome, reason, ms: 0 };
        self.all[job].tries.push(none);
        self.fail(job);
    }

    pub(super) fn retry(&mut self, job: usize) {
        self.all[job].retries += 1;
    }

    /// Further attempts on the farm that a job has had.
    pub(super) fn retries(&self, job: usize) -> u32 {
        self.all[job].retries
    }

    /// Attempts at a job that ended so.
    pub(super) fn tried(&self, job: usize, outcome: Outcome) -> usize {
        self.all[job].tries.iter().filter(|attempt| attempt.outcome == outcome).count()
    }

    pub(super) fn go_home(&mut self, job: usize) {
        self.all[job].came_home = true;
    }

    /// Jobs that have their objects.
    pub fn done(&self) -> usize {
        self.done
    }

    /// Jobs that were made at `place`.
    pub fn made_at(&self, place: Place) -> usize {
        self.all.iter().filter(|progress| progress.state == State::Accepted(place)).count()
    }

    /// Jobs whose outputs the cache had.
    pub fn cached(&self) -> usize {
        self.all.iter().filter(|progress| progress.state == State::Cached).count()
    }

    /// Jobs that were tried and given up.
    pub fn failed(&self) -> usize {
        self.all.iter().filter(|progress| progress.state == State::Failed).count()
    }

    /// Attempts on the farm beyond the first, of all jobs.
    pub fn all_retries(&self) -> usize {
        self.all.iter().map(|progress| progress.retries as usize).sum()
    }

    /// Jobs that ended here though a farm was meant.
    pub fn fallbacks(&self) -> usize {
        self.all.iter().filter(|p| p.came_home && p.state == State::Accepted(Place::Local)).count()
    }

    /// Attempts that the farm's tool made, or would have made, on this machine, by itself.
    pub fn tool_local(&self) -> usize {
        let tries = self.all.iter().flat_map(|progress| &progress.tries);
        let stopped = tries.filter(|attempt| attempt.outcome == Outcome::ToolLocal).count();
        stopped + self.made_by_tool_here()
    }

    /// Jobs that the farm's tool made on this machine, by itself.
    pub fn made_by_tool_here(&self) -> usize {
        self.accepted_here(Here::Told) + self.unplaced()
    }

    /// Jobs that count as made here because the farm's tool does not say where it ran them.
    pub fn unplaced(&self) -> usize {
        self.accepted_here(Here::NotElsewhere)
    }

    fn accepted_here(&self, how: Here) -> usize {
        let accepted = |p: &&Progress| p.state == State::Accepted(Place::Local);
        self.all.iter().filter(accepted).filter(|p| p.tool_here == Some(how)).count()
    }

    /// The hosts on which attempts failed for the farm's reasons, with their number and the last reason.
    pub fn troubles(&self) -> BTreeMap<&str, (usize, &str)> {
        let mut troubles = BTreeMap::new();
        let all =
            self.all.iter().flat_map(|job| job.tries.iter().map(move |attempt| (job, attempt)));
        for (job, attempt) in all {
            // A host may have no room for a while; it matters where a job did not get there in the end.
            let busy =
                attempt.outcome == Outcome::FarmBusy && job.state != State::Accepted(Place::Farm);
            let blamed = busy || attempt.outcome.blames_host();
            if let (true, Some(host)) = (blamed, &attempt.host) {
                let (count, reason) = troubles.entry(&**host).or_insert((0, ""));
                *count += 1;
                let shown = attempt.reason.strip_prefix(&format!("{host}: "));
                *reason = shown.unwrap_or(&attempt.reason);
            }
        }
        troubles
    }

    /// Why the last attempt at a job failed.
    pub(super) fn last_reason(&self, job: usize) -> Option<&str> {
        self.all[job].tries.last().map(|attempt| &*attempt.reason)
    }

    /// What was sent, and what came back.
    pub fn bundled(&self) -> Bundled {
        self.bundled
    }

    /// The hosts that made objects, with their numbers.
    pub fn hosts(&self) -> BTreeMap<String, usize> {
        let mut hosts = BTreeMap::new();
        let accepted = self.all.iter().filter(|p| p.state == State::Accepted(Place::Farm));
        for host in accepted.filter_map(|progress| progress.tries.last()?.host.clone()) {
            *hosts.entry(host).or_default() += 1;
        }
        hosts
    }

    /// Each job, in LLD's order.
    pub fn iter(&self) -> impl Iterator<Item = &Progress> {
        self.all.iter()
    }
}
