//! The end of a run that is given up: everything that runs is ended, within a second.

use std::time::{Duration, Instant};

use super::{End, Message, Run};
use crate::attempt::Report;
use crate::exit::Exit;
use crate::os::Signal;
use crate::outcome::Outcome;

/// What compilers get to end by themselves after SIGTERM when the link is given up; all must be gone within
/// a second.
const GRACE: Duration = Duration::from_millis(300);
/// What is left for the threads to tell of the end.
const LAST_WAIT: Duration = Duration::from_millis(400);

impl Run<'_> {
    /// Ends everything. A second signal ends it at once.
    pub(super) fn give_up(&mut self, signal: Option<i32>) -> End {
        self.end_calls();
        End { exit: Exit::JobFailed, signal, given_up: true }
    }

    /// Ends all programs that still run, those of the cache too.
    pub(super) fn end_calls(&mut self) {
        self.drop_waiting(true, true);
        self.groups.end_all(Signal::TERM);
        if !self.await_silence(GRACE) {
            self.groups.end_all(Signal::KILL);
            self.await_silence(LAST_WAIT);
        }
    }

    /// Neither what came too late is taken nor what we ended is blamed.
    fn came_too_late(&mut self, mut report: Report) {
        report.outcome = Outcome::Cancelled;
        self.running.remove(&report.which.job);
        self.jobs.record(&report);
    }

    /// Waits until nothing runs any more; says whether that came to pass.
    fn await_silence(&mut self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        while !self.running.is_empty() || self.calls() > 0 {
            let left = until.saturating_duration_since(Instant::now());
            match self.messages.recv_timeout(left) {
                Ok(Message::Ended(report)) => self.came_too_late(*report),
                Ok(Message::BatchEnded(reports)) => {
                    reports.into_iter().for_each(|report| self.came_too_late(report));
                }
                Ok(Message::Fed(fed)) => self.fed(*fed),
                // Whatever it says comes too late.
                Ok(Message::Asked(_)) => self.too_late(),
                Ok(Message::Signal(_)) | Err(_) => return false,
                Ok(_) => {}
            }
        }
        true
    }
}
