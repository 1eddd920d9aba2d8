//! A farm that gets all jobs in one call: when the next call is made, what is left for it, and what to do while
//! another build holds the farm. One call at a time; what the farm failed makes the next one.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, Instant};

use super::{Message, Run, Running, TIMEOUT_GRACE};
use crate::adapter::Place;
use crate::attempt::batch::attempt;
use crate::attempt::{Report, Which};
use crate::cli::{Fallback, WhenBusy};
use crate::os::{Pid, Signal};
use crate::outcome::Outcome;
use crate::report::duration;

/// The pause before a farm that another build holds is asked again; it doubles up to the longest.
const PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// So many calls that brought nothing back, and the farm is left alone.
const CALLS_IN_VAIN: usize = 2;

/// What a run knows of its calls.
#[derive(Debug, Default)]
pub(super) struct Calls {
    made: usize,
    in_vain: usize,
    /// Tasks of the call that have ended, as its log says.
    pub(super) ended: usize,
    pid: Option<Pid>,
    deadline: Option<Instant>,
    timed_out: bool,
    /// Since when another build has held the farm.
    busy_since: Option<Instant>,
    pause: Duration,
    /// The farm is not asked before.
    pub(super) not_before: Option<Instant>,
}

impl Calls {
    /// The next time to look after the call.
    pub(super) fn next(&self) -> Option<Instant> {
        self.deadline.into_iter().chain(self.not_before).min()
    }
}

impl Run<'_> {
    /// Makes a call for all jobs that wait for the farm, unless one is under way.
    pub(super) fn start_batch(&mut self, now: Instant) {
        let waits = self.calls.not_before.is_some_and(|until| now < until);
        if waits || self.rows.used(Place::Farm) > 0 {
            return;
        }
        self.calls.not_before = None;
        let mut jobs = Vec::new();
        while let Some(job) = self.farm.pop() {
            let which = Which { job, place: Place::Farm, host: None, number: self.jobs.begin(job) };
            self.farm_weight += self.weight(job);
            let running = Running {
                which,
                row: self.rows.take(Place::Farm),
                slot: None,
                began: now,
                pid: None,
                deadline: None,
                timed_out: false,
                lost: None,
                recalled: false,
                taken: false,
            };
            self.running.insert(job, running);
            jobs.push(which);
        }
        if !jobs.is_empty() {
            self.call(jobs, now);
        }
    }

    fn call(&mut self, jobs: Vec<Which>, now: Instant) {
        self.calls.made += 1;
        (self.calls.ended, self.calls.pid, self.calls.timed_out) = (0, None, false);
        self.calls.deadline = Some(now + self.call_limit());
        let (call, count) = (self.calls.made, jobs.len());
        let name = &self.setup.plan.adapter.name;
        self.reporter.detail(&format!("{name}: call {call}, for {count} jobs"));
        let (setup, groups, sender) =
            (self.setup.clone(), self.groups.clone(), self.sender.clone());
        let first = jobs[0];
        let body = move || {
            let on_start = |pid| drop(sender.send(Message::Called(pid)));
            let mut on_task = |job| drop(sender.send(Message::TaskEnded(job)));
            let made = catch_unwind(AssertUnwindSafe(|| {
                attempt(&setup, &groups, (&jobs, call), &on_start, &mut on_task)
            }));
            // The receiver is gone only when the link was given up.
            let _ = sender.send(made.map_or(Message::Bug, Message::BatchEnded));
        };
        if let Err(error) = thread::Builder::new().spawn(body) {
            let reason = format!("no thread can be started: {error}");
            self.reporter.detail(&format!("{} and {} more: {reason}", first.job, count - 1));
            self.take_back();
            self.farm_is_down(&reason);
        }
    }

    /// All jobs of a call wait again.
    fn take_back(&mut self) {
        let jobs: Vec<usize> = self.running.values().map(|running| running.which.job).collect();
        for job in jobs {
            if self.running[&job].which.place == Place::Farm {
                self.release(job);
                self.farm.push_first(job);
            }
        }
    }

    fn release(&mut self, job: usize) {
        if let Some(running) = self.running.remove(&job) {
            self.rows.give_back(Place::Farm, running.row);
            self.farm_weight -= self.weight(job);
        }
    }

    fn call_limit(&self) -> Duration {
        self.setup.plan.limits.farm_time.saturating_mul(2)
    }

    pub(super) fn called(&mut self, pid: Pid) {
        self.calls.pid = Some(pid);
    }

    /// The call goes on: it may take as long again until the next task ends. Twice what a task may take, since the
    /// tool takes a task that exceeds its limit to another machine.
    pub(super) fn task_ended(&mut self) {
        self.calls.ended += 1;
        if !self.calls.timed_out {
            self.calls.deadline = Some(Instant::now() + self.call_limit());
        }
    }

    /// A call in which no task has ended for too long is ended.
    pub(super) fn enforce_call_deadline(&mut self, now: Instant) {
        if let (Some(deadline), Some(pid)) = (self.calls.deadline, self.calls.pid)
            && deadline <= now
        {
            let signal = if self.calls.timed_out { Signal::KILL } else { Signal::TERM };
            self.groups.end(pid, signal);
            self.calls.timed_out = true;
            self.calls.deadline = Some(now + TIMEOUT_GRACE);
        }
    }

    pub(super) fn batch_ended(&mut self, reports: Vec<Report>) {
        let timed_out = std::mem::take(&mut self.calls.timed_out);
        (self.calls.ended, self.calls.pid, self.calls.deadline) = (0, None, None);
        let with = |outcome| reports.iter().find(|report| report.outcome == outcome);
        if let Some(busy) = with(Outcome::FarmBusy) {
            let reason = busy.reason.clone();
            return self.farm_is_busy(&reason, reports);
        }
        self.calls.busy_since = None;
        let down = with(Outcome::FarmDown).or_else(|| with(Outcome::NotStarted));
        let down = down.map(|report| report.reason.clone());
        let of_use = |report: &Report| {
            matches!(report.outcome, Outcome::Done | Outcome::CompilerError | Outcome::Refused)
        };
        let in_vain = !reports.iter().any(of_use);
        self.calls.in_vain = if in_vain { self.calls.in_vain + 1 } else { 0 };
        for report in reports {
            let job = report.which.job;
            if matches!(report.outcome, Outcome::FarmDown | Outcome::NotStarted) {
                self.jobs.record(&report);
                self.release(job);
                self.farm.push_first(job);
                continue;
            }
            if let Some(running) = self.running.get_mut(&job) {
                running.timed_out = timed_out;
            }
            self.ended(report);
        }
        if let Some(reason) = down {
            self.farm_is_down(&reason);
        } else if self.calls.in_vain >= CALLS_IN_VAIN && !self.farm.is_empty() {
            self.farm_is_down(&format!("{CALLS_IN_VAIN} calls brought nothing back"));
        }
    }

    /// Another build holds the farm: its jobs wait, and some may be done here meanwhile.
    fn farm_is_busy(&mut self, reason: &str, reports: Vec<Report>) {
        let now = Instant::now();
        let limit = self.setup.plan.limits.farm_time;
        for report in reports {
            match report.outcome {
                Outcome::FarmBusy => {
                    self.release(report.which.job);
                    self.farm.push_first(report.which.job);
                }
                _ => self.ended(report),
            }
        }
        if let Some(since) = self.calls.busy_since {
            if now.duration_since(since) >= limit {
                let waited = duration(limit);
                self.farm_is_down(&format!("{reason}, for {waited} by now"));
            }
            self.calls.pause = (self.calls.pause * 2).min(LONGEST_PAUSE);
        } else {
            self.calls.busy_since = Some(now);
            self.calls.pause = PAUSE;
            let what = if self.lends() { "working here meanwhile" } else { "waiting for it" };
            self.reporter.notice(&format!("{reason}; {what}"));
        }
        self.calls.not_before = Some(now + self.calls.pause);
    }

    /// Jobs that wait for the farm may run here instead.
    pub(super) fn lends(&self) -> bool {
        let limits = &self.setup.plan.limits;
        let busy = self.calls.busy_since.is_some() && limits.when_busy == WhenBusy::Work;
        limits.fallback == Fallback::Local && (busy || self.waiting.is_slow())
    }

    /// Whether there is something to do on this machine.
    pub(super) fn has_work_here(&self) -> bool {
        !self.local.is_empty() || self.lends() && !self.farm.is_empty()
    }

    /// The next job for this machine.
    pub(super) fn next_here(&mut self) -> Option<usize> {
        self.local.pop().or_else(|| {
            let job = if self.lends() { self.farm.pop() } else { None }?;
            self.jobs.go_home(job);
            Some(job)
        })
    }

    /// Tells how much a tool did on this machine by itself, where it was meant to do it elsewhere.
    pub(super) fn tell_who_worked_here(&mut self) {
        let plan = &self.setup.plan;
        let Some(batch) = plan.adapter.batch.as_ref() else { return };
        let (here, name) = (self.jobs.made_by_tool_here(), &plan.adapter.name);
        let (farm, unknown) = (self.jobs.made_at(Place::Farm), self.jobs.unplaced());
        if unknown > 0 {
            let text =
                format!("{name} does not say where {unknown} jobs ran; they count as run here");
            self.reporter.notice(&text);
        } else if here > 0 && farm == 0 {
            let hint = batch.all_here.as_ref().map_or(String::new(), |hint| format!(": {hint}"));
            self.reporter.notice(&format!("{name} ran every job on this machine{hint}"));
        }
    }
}
