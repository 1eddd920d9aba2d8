//! The run of a link: the queues, the slots, and the loop that moves jobs from one to the other. The main
//! thread alone owns this state; the threads of running commands, signals and slots send it messages.

mod batch;
mod cache;
mod dist;
mod farm;
mod fleet;
mod give_up;
mod jobs;
mod lanes;
mod queue;
mod refused;
mod start;
mod waiting;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use crate::adapter::{Delivery, Place};
use crate::attempt::{Report, Setup, Which};
use crate::collect;
use crate::exit::Exit;
use crate::fleet::Fleet;
use crate::hosts::memory::FarmMemory;
use crate::hosts::placement::HostId;
use crate::hosts::probe::Verdict;
use crate::icecream::Seen;
use crate::os::{Pid, Signal};
use crate::outcome::{Next, Outcome, next};
use crate::process::Groups;
use crate::process::slots::{Slot, Slots};
use crate::report::trace::Trace;
use crate::report::{Reporter, View, duration};

pub use cache::Use;
pub use jobs::{Bundled, Jobs, Progress, State};
pub use lanes::{Asked, Fed};
use queue::{Queue, Rows};
pub use refused::Look;
use refused::Refusals;
use waiting::Waiting;

/// The same for a job that took too long.
const TIMEOUT_GRACE: Duration = Duration::from_secs(2);

/// What the main thread hears of.
#[derive(Debug)]
pub enum Message {
    /// A command was started for a job.
    Started(usize, Pid),
    /// A host of the farm has taken a job.
    Taken(usize),
    /// What is shipped to hosts is ready, or why it cannot be had.
    Shipped(Result<String, String>),
    /// What was seen of the farm.
    Seen(Seen),
    /// An attempt is over.
    Ended(Box<Report>),
    /// The call of a batch tool was started.
    Called(Pid),
    /// The log of such a call tells of a task's end.
    TaskEnded(usize),
    /// Such a call is over.
    BatchEnded(Vec<Report>),
    /// A slot that was asked for.
    Slot(std::io::Result<Slot>),
    /// A signal that asks to stop.
    Signal(i32),
    /// The linker is gone.
    LinkerGone,
    /// A probe of a host was started.
    Probing(HostId, Pid),
    /// A host was probed.
    Probed(HostId, Verdict),
    /// Inputs were read, so that more jobs can be placed by what hosts hold of them.
    Read,
    /// The cache answered, or did not.
    Asked(Box<Asked>),
    /// Outputs were stored in the cache, or not.
    Fed(Box<Fed>),
    /// A look at the host of a job: it answers, or not.
    Looked(usize, bool),
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
    /// A host of the farm is known to have it.
    taken: bool,
    /// It was given up for this reason: its host does not answer any more, say.
    lost: Option<String>,
    /// It was given up so that this machine can do it.
    recalled: bool,
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
    /// Why not.
    farm_fault: String,
    farm_weight: usize,
    /// At once, by place; fewer than planned once this machine had no room for more.
    farm_most: usize,
    local_most: usize,
    faults_in_a_row: usize,
    /// The first job of a farm that has not got the compiler yet is under way.
    warming: bool,
    /// What jobs there need is ready.
    farm_ready: bool,
    farm_memory: Option<FarmMemory>,
    waiting: Waiting,
    refusals: Refusals,
    fleet: Option<Fleet>,
    /// A fleet that is not needed yet: the cache may have all jobs.
    later: Option<Fleet>,
    cache: Option<cache::Cache>,
    calls: batch::Calls,
    probes: HashMap<HostId, Pid>,
    ask_fleet: Option<Instant>,
    failed_for: Option<Exit>,
    /// Jobs that came home before they were sent, by reason.
    stayed: BTreeMap<String, usize>,
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
            farm_fault: String::new(),
            farm_weight: 0,
            farm_most: plan.limits.farm_jobs,
            local_most: plan.limits.local_jobs,
            faults_in_a_row: 0,
            warming: false,
            farm_ready: true,
            farm_memory: None,
            waiting: Waiting::new(Instant::now()),
            refusals: Refusals::default(),
            fleet: None,
            later: None,
            cache: None,
            calls: batch::Calls::default(),
            probes: HashMap::new(),
            ask_fleet: None,
            failed_for: None,
            stayed: BTreeMap::new(),
            setup,
        }
    }

    /// Runs all jobs.
    pub fn run(mut self) -> (End, Jobs) {
        self.keep_home();
        self.warm_up_first();
        let end = loop {
            self.start_what_may();
            if self.running.is_empty() && self.nothing_queued() {
                break End { exit: self.exit(), signal: None, given_up: false };
            }
            match self.messages.recv_timeout(self.patience()) {
                Ok(Message::Signal(signal)) => break self.give_up(Some(signal)),
                Ok(Message::LinkerGone) => break self.give_up(None),
                Ok(Message::Bug) => break End { exit: Exit::Bug, ..self.give_up(None) },
                Ok(message) => self.hear(message),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            self.enforce_deadlines();
            self.watch_hosts();
            self.watch_waiting();
            self.show_progress();
        };
        let end = match end {
            End { given_up: false, .. } => self.end_cache().unwrap_or(end),
            end => end,
        };
        // Probes of hosts that nobody needed.
        if !self.groups.is_empty() {
            self.groups.end_all(Signal::KILL);
        }
        self.jobs.caching = self.tally();
        self.tell_who_stayed();
        self.tell_who_worked_here();
        self.tell_of_hosts();
        if let Some(fleet) = &self.fleet {
            fleet.remember_speeds();
        }
        self.remember_farm_works();
        (end, self.jobs)
    }

    fn exit(&self) -> Exit {
        self.failed_for.unwrap_or(Exit::Ok)
    }

    fn nothing_queued(&self) -> bool {
        self.failed_for.is_some()
            || self.farm.is_empty()
                && self.local.is_empty()
                && self.paused.is_empty()
                && self.asking() == 0
    }

    fn hear(&mut self, message: Message) {
        match message {
            Message::Started(job, pid) => {
                if let Some(running) = self.running.get_mut(&job) {
                    running.pid = Some(pid);
                }
            }
            Message::Taken(job) => self.taken(job),
            Message::Shipped(ready) => self.shipped(ready),
            Message::Seen(seen) => self.seen(seen),
            Message::Ended(report) => self.ended(*report),
            Message::Called(pid) => self.called(pid),
            Message::TaskEnded(_) => self.task_ended(),
            Message::BatchEnded(reports) => self.batch_ended(reports),
            Message::Slot(slot) => {
                self.slot_asked = false;
                self.idle.push(slot.unwrap_or_else(|error| {
                    self.reporter.notice(&format!("slots cannot be shared any more: {error}"));
                    self.slots = Slots::unshared();
                    Slot::unshared()
                }));
            }
            Message::Probing(host, pid) => drop(self.probes.insert(host, pid)),
            Message::Probed(host, verdict) => self.probed(host, verdict),
            Message::Looked(job, answers) => self.looked(job, answers),
            Message::Asked(asked) => self.asked(*asked),
            Message::Fed(fed) => self.fed(*fed),
            Message::Read | Message::Signal(_) | Message::LinkerGone | Message::Bug => {}
        }
    }

    /// How long nothing may be heard before there is something to do.
    fn patience(&self) -> Duration {
        let now = Instant::now();
        let deadlines = self.running.values().filter_map(|running| running.deadline);
        let fleet = self.fleet.as_ref();
        let looks = fleet.and_then(Fleet::next_look).into_iter();
        let probes = fleet.and_then(Fleet::probed_by).into_iter();
        let waits = self.rows.used(Place::Farm) > 0 || self.waiting.is_refused();
        let waits = waits && self.setup.plan.adapter.request == Delivery::Fifo;
        let waiting = waits.then(|| self.waiting.next_look());
        let next = deadlines
            .chain(self.paused.iter().map(|(until, _)| *until))
            .chain(looks)
            .chain(probes)
            .chain(waiting)
            .chain(self.ask_fleet)
            .chain(self.calls.next())
            .min();
        let due = next.map_or(Duration::MAX, |at| at.saturating_duration_since(now));
        due.min(self.reporter.next_update()).max(Duration::from_millis(1))
    }

    fn ended(&mut self, mut report: Report) {
        let job = report.which.job;
        let Some(running) = self.running.remove(&job) else { return };
        self.rows.give_back(report.which.place, running.row);
        if report.which.place == Place::Farm {
            self.farm_weight -= self.weight(job);
        }
        if let Some(slot) = running.slot {
            // Somebody who waits comes first; else it is used again without a detour.
            if self.slots.wanted(&slot) { self.slots.give_back(slot) } else { self.idle.push(slot) }
        }
        if let (Some(lost), true) = (running.lost, report.outcome != Outcome::Done) {
            report.outcome = if running.recalled { Outcome::Recalled } else { Outcome::FarmFault };
            report.reason = lost;
        } else if running.timed_out && report.outcome != Outcome::Done {
            report.outcome = Outcome::TimedOut;
            let limit = self.limit(report.which.place).unwrap_or(report.took);
            report.reason = format!("it took longer than {}", duration(limit));
        }
        self.hear_of_place(&mut report);
        if report.outcome == Outcome::Done {
            self.deliver(&mut report);
        }
        if let Some(trace) = &mut self.trace {
            let module = &self.setup.plan.file.jobs[job].primary;
            let result = if report.reason.is_empty() { "done" } else { &report.reason };
            trace.attempt(
                module,
                (report.which.place.word(), running.row),
                report.began,
                report.took,
                result,
            );
        }
        self.count_silent_start(&mut report);
        self.jobs.record(&report);
        self.decide(report);
    }

    fn deliver(&mut self, report: &mut Report) {
        for (made, place) in &report.made {
            if let Err(error) = collect::deliver(made, place) {
                report.outcome = Outcome::Missing;
                report.reason = format!("{place}: cannot be moved into place: {error}");
                return;
            }
        }
    }

    fn decide(&mut self, report: Report) {
        let Which { job, place, .. } = report.which;
        let batch = place == Place::Farm && self.setup.plan.is_batch();
        if report.outcome == Outcome::NotStarted && self.make_do(&report) {
            return;
        }
        if self.is_refusal(&report) {
            return self.refused(&report);
        }
        if place == Place::Farm && !batch {
            self.weigh_farm(&report);
        }
        let retries = self.retries_left(&report);
        let module = self.setup.plan.file.jobs[job].primary.clone();
        let outcome = match report.outcome {
            // Another host may be fit.
            Outcome::FarmUnfit if report.which.host.is_some() => Outcome::FarmFault,
            // A scheduler may think otherwise a moment later.
            Outcome::ToolLocal if self.setup.plan.adapter.scheduler.is_some() => Outcome::FarmBusy,
            outcome => outcome,
        };
        match next(outcome, place, retries, self.setup.plan.limits.fallback) {
            Next::Accept => {
                self.feed(&report);
                self.reporter.words(&report.printed);
                self.accept(report);
            }
            Next::Retry => {
                let pause = pause(self.jobs.retries(job), &self.setup.link, job);
                self.reporter.detail(&format!("{module}: {}; trying again", report.reason));
                self.jobs.retry(job);
                match batch {
                    // The next call is made when this one is over, for all that are left.
                    true => self.farm.push_first(job),
                    false => self.paused.push((Instant::now() + pause, job)),
                }
            }
            Next::Resend => self.farm.push_first(job),
            Next::GoHome => {
                self.reporter.detail(&format!("{module}: {}; running it here", report.reason));
                if report.outcome == Outcome::StaysHere {
                    *self.stayed.entry(report.reason).or_default() += 1;
                }
                self.go_home(job);
            }
            Next::Fail => self.fail(&report, Exit::JobFailed),
            Next::FailFarm => self.fail(&report, Exit::Farm),
            // Whoever closed the groups has sent the reason too.
            Next::Stop => {}
        }
    }

    fn fail(&mut self, report: &Report, exit: Exit) {
        let job = report.which.job;
        let module = &self.setup.plan.file.jobs[job].primary;
        let why = match report.outcome {
            Outcome::StaysHere => {
                let name = &self.setup.plan.adapter.name;
                format!("it cannot go to {name} and may not run here: {}", report.reason)
            }
            _ => report.reason.clone(),
        };
        let command = self.setup.plan.shown_command(job, report.which.place);
        let text = format!("{module} (jobs[{job}]): {why}");
        self.reporter.failed_job(&text, &report.printed, &command);
        self.jobs.fail(job);
        // A farm's fault tells more to the caller than a compiler's.
        if self.failed_for != Some(Exit::Farm) {
            self.failed_for = Some(exit);
        }
    }

    fn enforce_deadlines(&mut self) {
        let now = Instant::now();
        self.enforce_call_deadline(now);
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
        // What has ended within a call is not judged before its end.
        let ended = self.calls.ended.min(self.rows.used(Place::Farm));
        let (done, total) = (self.jobs.done() + ended, setup.plan.file.jobs.len());
        let (farm, local) = (self.rows.used(Place::Farm) - ended, self.rows.used(Place::Local));
        let elapsed = self.started.elapsed();
        self.reporter.update(|| {
            let alone = |r: &&Running| r.which.place == Place::Local || !setup.plan.is_batch();
            let oldest = running.values().filter(alone).min_by_key(|running| running.began);
            let longest = oldest.map(|oldest| {
                (&*setup.plan.file.jobs[oldest.which.job].primary, oldest.began.elapsed())
            });
            View { done, total, farm, local, elapsed, longest }
        });
    }
}

/// The pause before a further attempt: it doubles, and differs from job to job, so that a farm that was
/// refused by many is not asked by all of them at once.
fn pause(retries: u32, link: &str, job: usize) -> Duration {
    let base = Duration::from_millis(200) * (1 << retries.min(5));
    let hash = blake3::hash(format!("{link} {job} {retries}").as_bytes());
    base / 2 + base * u32::from(hash.as_bytes()[0]) / 255
}
