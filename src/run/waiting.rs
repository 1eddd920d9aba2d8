//! Clients that wait until a scheduler has a host for their job. Some wait for ever: for a farm that is wholly
//! busy, or for a slot of this machine that the link's own parent holds. It does not know why one waits.

use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

use super::Run;
use crate::adapter::{Delivery, Place};
use crate::os::{Pid, Signal};
use crate::report::duration;

/// A farm on which nothing happens for so long is left alone: it is to cost a link less than 10 s.
const SILENCE: Duration = Duration::from_secs(8);
/// The same once an environment was sent: the host unpacks it and tries it out.
const INSTALL: Duration = Duration::from_secs(60);
/// One client may wait so long while others get on.
const QUEUE: Duration = Duration::from_secs(240);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(500);
/// Who reads so many bytes between two looks is sending an environment.
const SENDING: u64 = 128 << 10;

/// What was seen of the clients that wait.
#[derive(Debug)]
pub(super) struct Waiting {
    /// When something last happened on the farm.
    alive: Instant,
    /// An environment was sent since then.
    sent: bool,
    /// Bytes that each client had read at the last look, by job.
    read: HashMap<usize, u64>,
    next_look: Instant,
}

impl Waiting {
    pub(super) fn new(now: Instant) -> Self {
        Waiting { alive: now, sent: false, read: HashMap::new(), next_look: now }
    }

    /// A host has taken a job.
    pub(super) fn saw_life(&mut self, now: Instant) {
        (self.alive, self.sent) = (now, false);
    }

    /// When to look again.
    pub(super) fn next_look(&self) -> Instant {
        self.next_look
    }

    /// Takes what a client has read by now.
    fn look(&mut self, now: Instant, job: usize, read: u64) {
        let before = self.read.insert(job, read).unwrap_or(read);
        if read.saturating_sub(before) > SENDING {
            (self.alive, self.sent) = (now, true);
        }
    }

    fn patience(&self) -> Duration {
        if self.sent { INSTALL } else { SILENCE }
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
        if waiting.is_empty() || self.farm_is_at_work() {
            self.waiting.saw_life(now);
        }
        for &(job, pid, _) in &waiting {
            if let Some(read) = pid.and_then(bytes_read) {
                self.waiting.look(now, job, read);
            }
        }
        let patience = self.waiting.patience();
        if now.saturating_duration_since(self.waiting.alive) >= patience {
            let hint = match self.setup.inside_farm {
                true => "; the link itself was started by the farm's tool, which holds a slot here",
                false => "",
            };
            let reason = format!("no host has taken a job for {}{hint}", duration(patience));
            self.remember_dead_farm(&reason);
            self.farm_is_down(&reason);
            waiting.iter().for_each(|(job, ..)| self.end_waiting(*job, &reason));
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
        waiting.look(later(1), 0, 20 << 20);
        assert_eq!((waiting.alive, waiting.patience()), (begun, SILENCE), "the first look");
        waiting.look(later(2), 0, (20 << 20) + 100);
        assert_eq!((waiting.alive, waiting.patience()), (begun, SILENCE));
        waiting.look(later(3), 0, 30 << 20);
        assert_eq!((waiting.alive, waiting.patience()), (later(3), INSTALL));
        waiting.saw_life(later(4));
        assert_eq!((waiting.alive, waiting.patience()), (later(4), SILENCE));
    }

    #[test]
    fn what_this_process_has_read_is_known() {
        let own = || bytes_read(rustix::process::getpid()).unwrap();
        let before = own();
        fs::read("/proc/self/status").unwrap();
        assert!(own() > before + 100);
    }
}
