//! Starting: which jobs may run now, and a thread for each.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, Instant};

use super::{Message, Run, Running};
use crate::adapter::{Delivery, Place};
use crate::attempt::{Hears, Report, Which, Without, attempt};
use crate::hosts::placement::HostId;
use crate::process::slots::Slot;

/// The stack of a thread that waits for a command.
pub(super) const STACK: usize = 256 << 10;

impl Run<'_> {
    pub(super) fn start_what_may(&mut self) {
        if self.failed_for.is_some() {
            self.calls.not_before = None;
            self.idle.drain(..).for_each(|slot| self.slots.give_back(slot));
            return;
        }
        let now = Instant::now();
        let due = self.paused.extract_if(.., |(until, _)| *until <= now);
        due.for_each(|(_, job)| self.farm.push_first(job));
        if self.fleet.is_some() {
            self.start_on_hosts(now);
        }
        // One call takes all: it waits for the cache to have said which they are.
        if self.setup.plan.is_batch() && self.asking() == 0 {
            self.start_batch(now);
        }
        while self.farm_ready
            && self.fleet.is_none()
            && !self.setup.plan.is_batch()
            && self.farm_weight < self.farm_most
        {
            let Some(job) = self.farm.pop() else { break };
            self.start(job, Place::Farm, None, None);
        }
        while self.has_work_here() && self.rows.used(Place::Local) < self.local_most {
            let Some(slot) = self.idle.pop().or_else(|| self.slots.take()) else {
                if !std::mem::replace(&mut self.slot_asked, true) {
                    self.slots.ask();
                }
                break;
            };
            if let Some(job) = self.next_here() {
                self.start(job, Place::Local, Some(slot), None);
            }
        }
        if !self.has_work_here() {
            self.idle.drain(..).for_each(|slot| self.slots.give_back(slot));
        }
    }

    /// What cannot be started while others run waits until one of them has ended, and no more than these
    /// run at once from then on: the machine has no room for another process, thread or file. Says
    /// whether any others run.
    pub(super) fn make_do(&mut self, report: &Report) -> bool {
        let Which { job, place, .. } = report.which;
        let others = self.rows.used(place);
        if others == 0 {
            return false;
        }
        let reason = &report.reason;
        self.reporter.detail(&format!("{reason}; from now on {others} at once ({place})"));
        match place {
            Place::Farm => {
                self.farm_most = self.farm_weight;
                self.farm.push_first(job);
            }
            Place::Local => {
                self.local_most = others;
                self.local.push_first(job);
            }
        }
        true
    }

    /// The slots of the farm that a job takes.
    pub(super) fn weight(&self, job: usize) -> usize {
        self.setup.plan.travel[job].slots() as usize
    }

    /// How long an attempt may take.
    pub(super) fn limit(&self, place: Place) -> Option<Duration> {
        let limits = &self.setup.plan.limits;
        match place {
            Place::Farm => Some(limits.farm_time),
            Place::Local => limits.local_time,
        }
    }

    pub(super) fn start(
        &mut self,
        job: usize,
        place: Place,
        slot: Option<Slot>,
        sent: Option<(HostId, Without)>,
    ) {
        let limit = self.limit(place);
        if place == Place::Farm {
            self.farm_weight += self.weight(job);
        }
        let (host, without) = sent.unzip();
        let without = without.unwrap_or_default();
        let which = Which { job, place, host, number: self.jobs.begin(job) };
        let began = Instant::now();
        let waits = place == Place::Farm && self.setup.plan.adapter.request == Delivery::Fifo;
        self.reporter.detail_with(|| self.setup.plan.shown_command(job, place));
        let running = Running {
            which,
            row: self.rows.take(place),
            slot,
            began,
            pid: None,
            deadline: limit.filter(|_| !waits).map(|limit| began + limit),
            timed_out: false,
            taken: false,
            lost: None,
            recalled: false,
        };
        self.running.insert(job, running);
        let (setup, groups, sender) =
            (self.setup.clone(), self.groups.clone(), self.sender.clone());
        let body = move || {
            let started = |pid| drop(sender.send(Message::Started(job, pid)));
            let taken = || drop(sender.send(Message::Taken(job)));
            let hears = Hears { started: &started, taken: &taken };
            let made = catch_unwind(AssertUnwindSafe(|| {
                attempt(&setup, &groups, which, &without, &hears)
            }));
            let message = made.map_or(Message::Bug, |report| Message::Ended(Box::new(report)));
            // The receiver is gone only when the link was given up.
            let _ = sender.send(message);
        };
        if let Err(error) = thread::Builder::new().stack_size(STACK).spawn(body) {
            let reason = format!("no thread can be started: {error}");
            self.ended(Report::not_started(which, began, reason));
        }
    }
}
