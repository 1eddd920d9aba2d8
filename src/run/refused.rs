//! Jobs that a farm's scheduler wants on this machine: all hosts are full or get ready, or there is none. Those that
//! fit in here are done here, the others tried again, until it is clear which of the two it is. It starts nothing.

use std::fmt;
use std::time::{Duration, Instant};

use super::{Run, pause};
use crate::adapter::{Delivery, Place};
use crate::attempt::Report;
use crate::cli::Fallback;
use crate::icecream::Seen;
use crate::outcome::Outcome;
use crate::process;

/// Asks whom the farm has, without waiting for the answer; [`super::Message::Seen`] brings it.
pub type Look = Box<dyn Fn()>;

/// An answer counts for so long.
const FRESH: Duration = Duration::from_secs(2);
/// The pause before another attempt doubles so often.
const DOUBLED: u32 = 2;

/// What is known of a farm that refuses jobs.
#[derive(Default)]
pub(super) struct Refusals {
    look: Option<Look>,
    /// How many jobs may be in flight was said already.
    sized: bool,
    /// When it was asked, and whether it has answered.
    asked: Option<(Instant, bool)>,
    seen: Option<Seen>,
}

impl fmt::Debug for Refusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Refusals").field(&self.seen).finish()
    }
}

impl Refusals {
    /// Asks, unless the last answer is fresh or still to come.
    fn look(&mut self, now: Instant) {
        let wait = match self.asked {
            Some((at, answered)) => !answered || now.saturating_duration_since(at) < FRESH,
            None => false,
        };
        if let (Some(look), false) = (&self.look, wait) {
            self.asked = Some((now, false));
            if !matches!(self.seen, Some(Seen::Nodes { .. })) {
                self.seen = None;
            }
            look();
        }
    }

    /// No scheduler can be asked.
    pub(super) fn is_silent(&self) -> bool {
        self.seen == Some(Seen::Silent)
    }

    /// What is to be done by whom reads of it.
    pub(super) fn cure(&self) -> &'static str {
        match self.is_silent() {
            true => {
                "this machine's iceccd has no scheduler, or the bridge cannot ask it (ICECC_SCHEDULER=HOST:PORT)"
            }
            false => "with iceccd -m 0 on this machine, jobs wait until a node is free",
        }
    }
}

impl Run<'_> {
    /// Lets the run ask whom the farm has, and asks for the first time; how many jobs may be in flight follows from
    /// that, if it is not `sized` already.
    pub fn with_look(&mut self, look: Look, sized: bool) {
        (self.refusals.look, self.refusals.sized) = (Some(look), sized);
        self.refusals.look(Instant::now());
    }

    pub(super) fn seen(&mut self, seen: Seen) {
        if let (Seen::Nodes { in_flight }, false) = (&seen, self.refusals.sized) {
            self.refusals.sized = true;
            self.farm_slots(*in_flight);
        }
        self.refusals.asked = self.refusals.asked.map(|_| (Instant::now(), true));
        self.refusals.seen = Some(seen);
        self.weigh_refusals();
    }

    fn farm_slots(&mut self, slots: usize) {
        process::allow_programs(self.local_most + slots);
        self.farm_most = slots;
        self.reporter.detail(&format!("the farm's scheduler has room for {slots} jobs"));
    }

    /// A scheduler did not find a host for the job of `report`; where one had taken it, that host is at fault.
    pub(super) fn is_refusal(&self, report: &Report) -> bool {
        report.outcome == Outcome::ToolLocal
            && report.which.place == Place::Farm
            && report.sent == 0
            && self.refusals.look.is_some()
            && self.setup.plan.adapter.request == Delivery::Fifo
    }

    pub(super) fn refused(&mut self, report: &Report) {
        let (job, now) = (report.which.job, Instant::now());
        self.waiting.was_refused(report.began, &report.reason);
        self.refusals.look(now);
        self.weigh_refusals();
        if !self.farm_works {
            return self.do_without_farm(vec![job]);
        }
        let module = &self.setup.plan.file.jobs[job].primary;
        let others = matches!(self.refusals.seen, Some(Seen::Nodes { .. }));
        if others && self.has_room_here() {
            self.reporter.detail(&format!("{module}: {}; running it here", report.reason));
            return self.go_home(job);
        }
        let times = u32::try_from(self.jobs.tried(job, Outcome::ToolLocal)).unwrap_or(DOUBLED);
        let pause = pause(times.saturating_sub(1).min(DOUBLED), &self.setup.link, job);
        self.reporter.detail(&format!("{module}: {}; trying again", report.reason));
        self.paused.push((now + pause, job));
    }

    /// Whether this machine would begin another job at once.
    pub(super) fn has_room_here(&self) -> bool {
        self.setup.plan.limits.fallback == Fallback::Local
            && self.local.is_empty()
            && self.rows.used(Place::Local) < self.local_most
    }

    /// A farm without anybody is left alone; of one that is full, [`super::waiting`] decides.
    fn weigh_refusals(&mut self) {
        if let (Some(reason), Some(Seen::Nobody(why))) =
            (self.waiting.refusal(), &self.refusals.seen)
        {
            let reason = format!("{reason}: {why}");
            self.remember_dead_farm(&reason);
            self.farm_is_down(&reason);
        }
    }
}
