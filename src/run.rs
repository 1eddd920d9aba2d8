//! The run of a link: the queues, the slots, and the loop that moves jobs from one to the other. The main
//! thread alone owns this state; the threads of running commands, signals and slots send it messages.

mod jobs;
mod queue;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::adapter::Place;
use crate::attempt::{Report, Setup, Which, attempt};
use crate::cli::Fallback;
use crate::collect;
use crate::exit::Exit;
use crate::outcome::{Next, Outcome, next};
use crate::process::Groups;
use crate::process::slots::{Slot, Slots};
use crate::report::trace::Trace;
use crate::report::{Reporter, View, duration};

pub use jobs::{Jobs, Progress, State};
use queue::{Queue, Rows};

/// What compilers get to end by themselves after SIGTERM when the link is given up; all must be gone within
/// a second.
const GRACE: Duration = Duration::from_millis(300);
/// The same for a job that took too long.
const TIMEOUT_GRACE: Duration = Duration::from_secs(2);
/// What is left for the threads to tell of the end.
const LAST_WAIT: Duration = Duration::from_millis(400);
/// So many faults of the farm in a row, without a success between them, and it is left alone.
const FAULTS_IN_A_ROW: usize = 8;
/// The stack of a thread that waits for a command.
const STACK: usize = 256 << 10;

/// What the main thread hears of.
#[derive(Debug)]
pub enum Message {
    /// A command was started for a job.
    Started(usize, Pid),
    /// An attempt is over.
    Ended(Box<Report>),
    /// A slot that was asked for.
    Slot(std::io::Result<Slot>),
    /// A signal that asks to stop.
    Signal(i32),
    /// The linker is gone.
    LinkerGone,
    /// A thread panicked.
    Bug,
}

/// How a run ended.
#[derive(Debug)]
pub struct End {
    /// The exit code.
    pub exit: Exit,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// The run was given up: nobody waits for the outputs.
    pub given_up: bool,
}

#[derive(Debug)]
struct Running {
    which: Which,
    row: usize,
    slot: Option<Slot>,
    began: Instant,
    pid: Option<Pid>,
    deadline: Option<Instant>,
    timed_out: bool,
}

/// The state of a run.
pub struct Run<'a> {
    setup: Arc<Setup>,
    groups: Arc<Groups>,
    reporter: &'a mut Reporter,
    trace: Option<&'a mut Trace>,
    messages: Receiver<Message>,
    sender: Sender<Message>,
    started: Instant,
    jobs: Jobs,
    farm: Queue,
    local: Queue,
    paused: Vec<(Instant, usize)>,
    running: HashMap<usize, Running>,
    rows: Rows,
    slots: Slots,
    idle: Vec<Slot>,
    slot_asked: bool,
    farm_works: bool,
    faults_in_a_row: usize,
    failed_for: Option<Exit>,
}

impl<'a> Run<'a> {
    /// Queues all jobs.
    pub fn new(
        setup: Arc<Setup>,
        groups: Arc<Groups>,
        reporter: &'a mut Reporter,
        trace: Option<&'a mut Trace>,
        slots: Slots,
        (sender, messages): (Sender<Message>, Receiver<Message>),
    ) -> Self {
        let plan = &setup.plan;
        let all = || 0..plan.file.jobs.len();
        let size = |job: usize| setup.inputs.size(&plan.file.jobs[job].primary);
        let queued = Queue::new(all().map(|job| (size(job), job)));
        let (farm, local) = match plan.place() {
            Place::Farm => (queued, Queue::default()),
            Place::Local => (Queue::default(), queued),
        };
        Run {
            jobs: Jobs::new(all().len()),
            groups,
            reporter,
            trace,
            messages,
            sender,
            started: Instant::now(),
            farm,
            local,
            paused: Vec::new(),
            running: HashMap::new(),
            rows: Rows::default(),
            slots,
            idle: Vec::new(),
            slot_asked: false,
            farm_works: true,
            faults_in_a_row: 0,
            failed_for: None,
            setup,
        }
    }

    /// Leaves the farm alone for this link, before anything was started there.
    pub fn without_farm(&mut self, reason: &str) {
        self.farm_is_down(reason);
    }

    /// Runs all jobs.
    pub fn run(mut self) -> (End, Jobs) {
        let end = loop {
            self.start_what_may();
            if self.running.is_empty() && self.nothing_queued() {
                break End { exit: self.exit(), signal: None, given_up: false };
            }
            match self.messages.recv_timeout(self.patience()) {
                Ok(Message::Signal(signal)) => break self.give_up(Some(signal)),
                Ok(Message::LinkerGone) => break self.give_up(None),
                Ok(Message::Bug) => {
                    self.give_up(None);
                    break End { exit: Exit::Bug, signal: None, given_up: true };
                }
                Ok(message) => self.hear(message),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            self.enforce_deadlines();
            self.show_progress();
        };
        (end, self.jobs)
    }

    fn exit(&self) -> Exit {
        self.failed_for.unwrap_or(Exit::Ok)
    }

    fn nothing_queued(&self) -> bool {
        self.failed_for.is_some()
            || self.farm.is_empty() && self.local.is_empty() && self.paused.is_empty()
    }

    fn hear(&mut self, message: Message) {
        match message {
            Message::Started(job, pid) => {
                if let Some(running) = self.running.get_mut(&job) {
                    running.pid = Some(pid);
                }
            }
            Message::Ended(report) => self.ended(*report),
            Message::Slot(slot) => {
                self.slot_asked = false;
                self.idle.push(slot.unwrap_or_else(|error| {
                    self.reporter.notice(&format!("slots cannot be shared any more: {error}"));
                    self.slots = Slots::unshared();
                    Slot::unshared()
                }));
            }
            Message::Signal(_) | Message::LinkerGone | Message::Bug => {}
        }
    }

    /// How long nothing may be heard before there is something to do.
    fn patience(&self) -> Duration {
        let now = Instant::now();
        let deadlines = self.running.values().filter_map(|running| running.deadline);
        let next = deadlines.chain(self.paused.iter().map(|(until, _)| *until)).min();
        let due = next.map_or(Duration::MAX, |at| at.saturating_duration_since(now));
        due.min(self.reporter.next_update()).max(Duration::from_millis(1))
    }

    // Starting.

    fn start_what_may(&mut self) {
        if self.failed_for.is_some() {
            self.idle.drain(..).for_each(|slot| self.slots.give_back(slot));
            return;
        }
        let now = Instant::now();
        let due = self.paused.extract_if(.., |(until, _)| *until <= now);
        due.for_each(|(_, job)| self.farm.push_first(job));
        let limits = &self.setup.plan.limits;
        let (farm_jobs, local_jobs) = (limits.farm_jobs, limits.local_jobs);
        while self.count(Place::Farm) < farm_jobs {
            let Some(job) = self.farm.pop() else { break };
            self.start(job, Place::Farm, None);
        }
        while !self.local.is_empty() && self.count(Place::Local) < local_jobs {
            let Some(slot) = self.idle.pop().or_else(|| self.slots.take()) else {
                if !std::mem::replace(&mut self.slot_asked, true) {
                    self.slots.ask();
                }
                break;
            };
            if let Some(job) = self.local.pop() {
                self.start(job, Place::Local, Some(slot));
            }
        }
        if self.local.is_empty() {
            self.idle.drain(..).for_each(|slot| self.slots.give_back(slot));
        }
    }

    fn count(&self, place: Place) -> usize {
        self.rows.used(place)
    }

    /// How long an attempt may take.
    fn limit(&self, place: Place) -> Option<Duration> {
        let limits = &self.setup.plan.limits;
        match place {
            Place::Farm => Some(limits.farm_time),
            Place::Local => limits.local_time,
        }
    }

    fn start(&mut self, job: usize, place: Place, slot: Option<Slot>) {
        let limit = self.limit(place);
        let which = Which { job, place, number: self.jobs.begin(job) };
        let began = Instant::now();
        self.reporter.detail_with(|| self.setup.plan.shown_command(job, place));
        let running = Running {
            which,
            row: self.rows.take(place),
            slot,
            began,
            pid: None,
            deadline: limit.map(|limit| began + limit),
            timed_out: false,
        };
        self.running.insert(job, running);
        let (setup, groups, sender) =
            (self.setup.clone(), self.groups.clone(), self.sender.clone());
        let body = move || {
            let on_start = |pid| drop(sender.send(Message::Started(job, pid)));
            let made =
                catch_unwind(AssertUnwindSafe(|| attempt(&setup, &groups, which, &on_start)));
            let message = made.map_or(Message::Bug, |report| Message::Ended(Box::new(report)));
            // The receiver is gone only when the link was given up.
            let _ = sender.send(message);
        };
        if let Err(error) = thread::Builder::new().stack_size(STACK).spawn(body) {
            let reason = format!("no thread can be started: {error}");
            self.ended(Report::not_started(which, began, reason));
        }
    }

    // Ending.

    fn ended(&mut self, mut report: Report) {
        let job = report.which.job;
        let Some(running) = self.running.remove(&job) else { return };
        self.rows.give_back(report.which.place, running.row);
        if let Some(slot) = running.slot {
            // Somebody who waits comes first; else it is used again without a detour.
            if self.slots.wanted() { self.slots.give_back(slot) } else { self.idle.push(slot) }
        }
        if running.timed_out && report.outcome != Outcome::Done {
            report.outcome = Outcome::TimedOut;
            let limit = self.limit(report.which.place).unwrap_or(report.took);
            report.reason = format!("it took longer than {}", duration(limit));
        }
        if report.outcome == Outcome::Done {
            self.deliver(&mut report);
        }
        if let Some(trace) = &mut self.trace {
            let module = &self.setup.plan.file.jobs[job].primary;
            let result = if report.reason.is_empty() { "done" } else { &report.reason };
            trace.attempt(
                module,
                (report.which.place, running.row),
                report.began,
                report.took,
                result,
            );
        }
        self.jobs.record(&report);
        self.decide(report);
    }

    fn deliver(&mut self, report: &mut Report) {
        let object = &self.setup.plan.file.jobs[report.which.job].object;
        if let Err(error) = collect::deliver(&report.object, object) {
            report.outcome = Outcome::Missing;
            report.reason = format!("{object}: cannot be moved into place: {error}");
        }
    }

    fn decide(&mut self, report: Report) {
        let Which { job, place, .. } = report.which;
        if place == Place::Farm {
            self.weigh_farm(&report);
        }
        let retries = match self.farm_works {
            true => self.setup.plan.limits.retries.saturating_sub(self.jobs.retries(job)),
            false => 0,
        };
        let module = self.setup.plan.file.jobs[job].primary.clone();
        match next(report.outcome, place, retries, self.setup.plan.limits.fallback) {
            Next::Accept => {
                self.jobs.accept(job, report.outputs);
                self.reporter.words(&report.printed);
            }
            Next::Retry => {
                let pause = pause(self.jobs.retries(job), &self.setup.link, job);
                self.reporter.detail(&format!("{module}: {}; trying again", report.reason));
                self.jobs.retry(job);
                self.paused.push((Instant::now() + pause, job));
            }
            Next::GoHome => {
                self.reporter.detail(&format!("{module}: {}; running it here", report.reason));
                self.go_home(job);
            }
            Next::Fail => self.fail(&report, Exit::JobFailed),
            Next::FailFarm => self.fail(&report, Exit::Farm),
            // Whoever closed the groups has sent the reason too.
            Next::Stop => {}
        }
    }

    fn go_home(&mut self, job: usize) {
        let size = self.setup.inputs.size(&self.setup.plan.file.jobs[job].primary);
        self.jobs.go_home(job);
        self.local.push(size, job);
    }

    fn fail(&mut self, report: &Report, exit: Exit) {
        let job = report.which.job;
        let module = &self.setup.plan.file.jobs[job].primary;
        self.reporter.error(&format!("{module} (jobs[{job}]): {}", report.reason));
        self.reporter.words(&report.printed);
        self.reporter.command(&self.setup.plan.shown_command(job, report.which.place));
        self.jobs.fail(job);
        // A farm's fault tells more to the caller than a compiler's.
        if self.failed_for != Some(Exit::Farm) {
            self.failed_for = Some(exit);
        }
    }

    /// A farm that only fails is not asked again in this link.
    fn weigh_farm(&mut self, report: &Report) {
        match report.outcome {
            Outcome::Done | Outcome::CompilerError => self.faults_in_a_row = 0,
            Outcome::FarmDown | Outcome::NotStarted => self.farm_is_down(&report.reason),
            Outcome::FarmFault | Outcome::FarmUnfit | Outcome::Missing | Outcome::TimedOut => {
                self.faults_in_a_row += 1;
                if self.faults_in_a_row >= FAULTS_IN_A_ROW {
                    self.farm_is_down(&format!("{} (the last of many faults)", report.reason));
                }
            }
            Outcome::Cancelled | Outcome::Refused => {}
        }
    }

    fn farm_is_down(&mut self, reason: &str) {
        if !std::mem::replace(&mut self.farm_works, false) {
            return;
        }
        let name = &self.setup.plan.adapter.name;
        let left: Vec<usize> =
            self.farm.drain().chain(self.paused.drain(..).map(|(_, job)| job)).collect();
        if self.setup.plan.limits.fallback == Fallback::Local {
            self.reporter.notice(&format!("{name} is not used any more: {reason}; working here"));
            left.into_iter().for_each(|job| self.go_home(job));
        } else if !left.is_empty() {
            self.reporter
                .error(&format!("{name} cannot be used and nothing may run here: {reason}"));
            left.into_iter().for_each(|job| self.jobs.fail_for_farm(job, reason));
            self.failed_for = Some(Exit::Farm);
        }
    }

    fn enforce_deadlines(&mut self) {
        let now = Instant::now();
        for running in self.running.values_mut() {
            let Some(pid) = running.pid else { continue };
            if running.deadline.is_some_and(|deadline| deadline <= now) {
                let signal = if running.timed_out { Signal::KILL } else { Signal::TERM };
                self.groups.end(pid, signal);
                running.timed_out = true;
                running.deadline = Some(now + TIMEOUT_GRACE);
            }
        }
    }

    fn show_progress(&mut self) {
        let (running, setup) = (&self.running, &self.setup);
        let (done, total) = (self.jobs.done(), setup.plan.file.jobs.len());
        let (farm, local) = (self.rows.used(Place::Farm), self.rows.used(Place::Local));
        let elapsed = self.started.elapsed();
        self.reporter.update(|| {
            let oldest = running.values().min_by_key(|running| running.began);
            let longest = oldest.map(|oldest| {
                (&*setup.plan.file.jobs[oldest.which.job].primary, oldest.began.elapsed())
            });
            View { done, total, farm, local, elapsed, longest }
        });
    }

    /// Ends everything. A second signal ends it at once.
    fn give_up(&mut self, signal: Option<i32>) -> End {
        self.groups.end_all(Signal::TERM);
        if !self.await_silence(GRACE) {
            self.groups.end_all(Signal::KILL);
            self.await_silence(LAST_WAIT);
        }
        End { exit: Exit::JobFailed, signal, given_up: true }
    }

    /// Waits until nothing runs any more; says whether that came to pass.
    fn await_silence(&mut self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        while !self.running.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            match self.messages.recv_timeout(left) {
                Ok(Message::Ended(mut report)) => {
                    // Neither what came too late is taken nor what we ended is blamed.
                    report.outcome = Outcome::Cancelled;
                    self.running.remove(&report.which.job);
                    self.jobs.record(&report);
                }
                Ok(Message::Signal(_)) | Err(_) => return false,
                Ok(_) => {}
            }
        }
        true
    }
}

/// The pause before a further attempt: it doubles, and differs from job to job, so that a farm that was
/// refused by many is not asked by all of them at once.
fn pause(retries: u32, link: &str, job: usize) -> Duration {
    let base = Duration::from_millis(200) * (1 << retries.min(5));
    let hash = blake3::hash(format!("{link} {job} {retries}").as_bytes());
    base / 2 + base * u32::from(hash.as_bytes()[0]) / 255
}
