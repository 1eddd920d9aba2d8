//! Clients that wait until a scheduler has a host for their job. Some wait for ever: for a farm that is wholly
//! busy, or for a slot of this machine that the link's own parent holds. It does not know why one waits.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::time::{Duration, Instant};

use super::Run;
use crate::adapter::{Delivery, Place};
use crate::cli::Fallback;
use crate::os::{Pid, Signal};
use crate::report::duration;

/// A farm on which nothing happens for so long is left alone: it is to cost a link less than 10 s.
const SILENCE: Duration = Duration::from_secs(8);
/// The same where no scheduler can be asked and all jobs are refused.
const REFUSED: Duration = Duration::from_secs(2);
/// The same once an environment was sent: the host unpacks it and tries it out. icecream itself gives it 120 s. After
/// [`SILENCE`], jobs that may run on this machine do not wait for that.
const INSTALL: Duration = Duration::from_secs(60);
/// One client may wait so long while others get on.
const QUEUE: Duration = Duration::from_secs(240);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(500);
/// Who reads so many bytes between two looks is sending an environment.
const SENDING: u64 = 128 << 10;
/// No client reads so many before it sends anything.
const STARTING: u64 = 1 << 20;

/// What was seen of the clients that wait.
#[derive(Debug)]
pub(super) struct Waiting {
    /// When something last happened on the farm.
    alive: Instant,
    /// An environment was sent since then.
    sent: bool,
    /// Why a job was refused since then.
    refused: Option<String>,
    /// This machine does not wait for it any more, though it may still come.
    slow: bool,
    /// Who has sent one; without them it may never be there.
    senders: HashSet<usize>,
    /// Bytes that each client had read at the last look.
    read: HashMap<Pid, u64>,
    next_look: Instant,
}

impl Waiting {
    pub(super) fn new(now: Instant) -> Self {
        Waiting {
            alive: now,
            sent: false,
            refused: None,
            slow: false,
            senders: HashSet::new(),
            read: HashMap::new(),
            next_look: now,
        }
    }

    /// A host has taken a job.
    pub(super) fn saw_life(&mut self, now: Instant) {
        (self.alive, self.sent, self.slow) = (now, false, false);
        self.refused = None;
        self.senders.clear();
    }

    /// The scheduler did not find a host for a job.
    pub(super) fn was_refused(&mut self, began: Instant, reason: &str) {
        if self.refused.replace(reason.to_owned()).is_none() {
            self.alive = self.alive.max(began);
        }
    }

    /// Jobs are refused, and nothing else happens.
    pub(super) fn is_refused(&self) -> bool {
        self.refused.is_some()
    }

    /// Why the last job was refused, if nothing has happened since.
    pub(super) fn refusal(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// The farm takes so long that this machine works meanwhile.
    pub(super) fn is_slow(&self) -> bool {
        self.slow
    }

    /// When to look again.
    pub(super) fn next_look(&self) -> Instant {
        self.next_look
    }

    /// Takes what a client has read by now.
    fn look(&mut self, now: Instant, (job, client): (usize, Pid), read: u64) {
        let before = self.read.insert(client, read).unwrap_or(STARTING);
        if read.saturating_sub(before) > SENDING {
            (self.alive, self.sent, self.slow) = (now, true, false);
            self.senders.insert(job);
        }
    }

    /// How long nothing may happen; `lost` if nobody is known who could take jobs, and no client waits for one.
    fn patience(&self, lost: bool) -> Duration {
        match self.sent {
            true => INSTALL,
            false if lost && self.is_refused() => REFUSED,
            false => SILENCE,
        }
    }
}

impl Run<'_> {
    /// A host has taken a job: from now on its time counts.
    pub(super) fn taken(&mut self, job: usize) {
        let now = Instant::now();
        let limit = self.limit(Place::Farm);
        if let Some(running) = self.running.get_mut(&job) {
            running.taken = true;
            running.deadline = limit.map(|limit| now + limit);
        }
        self.waiting.saw_life(now);
    }

    /// Whether a job runs on a host of the farm now.
    pub(super) fn farm_is_at_work(&self) -> bool {
        self.running.values().any(|running| running.taken)
    }

    /// Ends clients that wait in vain, and leaves a farm alone that does nothing.
    pub(super) fn watch_waiting(&mut self) {
        let now = Instant::now();
        if self.setup.plan.adapter.request != Delivery::Fifo || now < self.waiting.next_look {
            return;
        }
        self.waiting.next_look = now + LOOK;
        let waiting = self.running.iter().filter(|(_, running)| {
            running.which.place == Place::Farm && !running.taken && running.lost.is_none()
        });
        let waiting: Vec<(usize, Option<Pid>, Instant)> =
            waiting.map(|(&job, running)| (job, running.pid, running.began)).collect();
        let idle = waiting.is_empty() && self.paused.is_empty();
        if idle || self.farm_is_at_work() {
            self.waiting.saw_life(now);
        }
        for &(job, pid, _) in &waiting {
            if let Some((pid, read)) = pid.and_then(|pid| Some((pid, bytes_read(pid)?))) {
                self.waiting.look(now, (job, pid), read);
            }
        }
        let waits = |began: Instant| now.saturating_duration_since(began) >= LOOK;
        let lost = self.refusals.is_silent() && !waiting.iter().any(|&(.., began)| waits(began));
        let patience = self.waiting.patience(lost);
        let silent = now.saturating_duration_since(self.waiting.alive);
        if silent >= patience {
            let reason = self.silence(patience);
            self.remember_dead_farm(&reason);
            self.farm_is_down(&reason);
            waiting.iter().for_each(|(job, ..)| self.end_waiting(*job, &reason));
            return;
        }
        if silent >= SILENCE && self.setup.plan.limits.fallback == Fallback::Local {
            self.work_meanwhile(waiting.iter().map(|(job, ..)| *job).collect());
            return;
        }
        // A client that waits for a slot of this machine, which the link's own parent holds, has no end.
        let most = if self.setup.inside_farm { SILENCE } else { QUEUE };
        for (job, _, began) in waiting {
            if now.saturating_duration_since(began) >= most && !self.waiting.sent {
                self.end_waiting(job, &format!("no host has taken it for {}", duration(most)));
            }
        }
    }

    /// What is told of a farm that has done nothing for so long.
    fn silence(&self, time: Duration) -> String {
        let time = duration(time);
        let hint = match (self.setup.inside_farm, self.waiting.refusal()) {
            (true, _) => {
                "; the link itself was started by the farm's tool, which holds a slot here"
                    .to_owned()
            }
            (false, Some(refusal)) => format!(": {refusal}; {}", self.refusals.cure()),
            (false, None) => String::new(),
        };
        format!("no host has taken a job for {time}{hint}")
    }

    /// A host gets an environment ready, or never will: this machine works off what waits for it. Jobs that have no
    /// client go first, those whose clients have sent the environment last.
    fn work_meanwhile(&mut self, mut clients: Vec<usize>) {
        let reason =
            format!("no host has taken a job for {}, though one was sent all", duration(SILENCE));
        if !std::mem::replace(&mut self.waiting.slow, true) {
            // Forgotten again if it comes after all.
            self.remember_dead_farm(&reason);
            let name = &self.setup.plan.adapter.name;
            self.reporter.notice(&format!("{name}: {reason}; working here meanwhile"));
        }
        if !self.farm.is_empty() || !self.paused.is_empty() {
            return;
        }
        let coming = self.running.values().filter(|running| running.recalled).count();
        let busy = self.rows.used(Place::Local) + self.local.len() + coming;
        clients.sort_by_key(|job| (self.waiting.senders.contains(job), *job));
        for job in clients.into_iter().take(self.local_most.saturating_sub(busy)) {
            self.end_waiting(job, &reason);
            self.running.get_mut(&job).into_iter().for_each(|running| running.recalled = true);
        }
    }

    fn end_waiting(&mut self, job: usize, reason: &str) {
        let Some(running) = self.running.get_mut(&job) else { return };
        running.lost = Some(reason.to_owned());
        if let Some(pid) = running.pid {
            self.groups.end(pid, Signal::KILL);
        }
    }
}

/// Bytes that a process has read so far, as the kernel counts them.
fn bytes_read(pid: Pid) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("rchar: ")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_sends_an_environment_is_alive_and_its_host_may_take_its_time() {
        let begun = Instant::now();
        let mut waiting = Waiting::new(begun);
        let later = |seconds| begun + Duration::from_secs(seconds);
        let client = rustix::process::getpid();
        waiting.look(later(1), (7, client), STARTING);
        assert_eq!((waiting.alive, waiting.patience(false)), (begun, SILENCE), "the first look");
        waiting.look(later(2), (7, client), STARTING + 100);
        assert_eq!((waiting.alive, waiting.patience(false)), (begun, SILENCE));
        waiting.look(later(3), (7, client), 30 << 20);
        assert_eq!((waiting.alive, waiting.patience(true)), (later(3), INSTALL));
        assert!(waiting.senders.contains(&7));
        waiting.saw_life(later(4));
        assert_eq!((waiting.alive, waiting.patience(false)), (later(4), SILENCE));
        // All of it between two looks.
        let another = rustix::process::getppid().unwrap();
        waiting.look(later(5), (8, another), 89 << 20);
        assert_eq!((waiting.alive, waiting.patience(false)), (later(5), INSTALL));
    }

    #[test]
    fn refusals_count_from_the_first_one_until_something_happens() {
        let begun = Instant::now();
        let mut waiting = Waiting::new(begun);
        let later = |seconds| begun + Duration::from_secs(seconds);
        for at in [5, 6, 7] {
            waiting.was_refused(later(at), "no");
        }
        assert_eq!((waiting.alive, waiting.refusal()), (later(5), Some("no")));
        assert_eq!((waiting.patience(false), waiting.patience(true)), (SILENCE, REFUSED));
        waiting.saw_life(later(8));
        assert_eq!((waiting.refusal(), waiting.patience(true)), (None, SILENCE));
    }

    #[test]
    fn what_this_process_has_read_is_known() {
        let own = || bytes_read(rustix::process::getpid()).unwrap();
        let before = own();
        fs::read("/proc/self/status").unwrap();
        assert!(own() > before + 100);
    }
}
