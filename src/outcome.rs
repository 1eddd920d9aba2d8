//! What happened to an attempt, and what follows from it: the table that decides every link, as one pure
//! function. It knows nothing of processes, files or farms.

use serde::Serialize;

use crate::adapter::Place;
use crate::cli::Fallback;

/// What became of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Every declared output was made and is right as far as can be seen.
    Done,
    /// The compiler ended with an error of its own.
    CompilerError,
    /// The compiler said that all is well, but an output is absent, empty or of the wrong kind.
    Missing,
    /// The farm, not the job, is at fault, and another attempt may go better.
    FarmFault,
    /// The host lacks pieces that the request left out.
    #[serde(rename = "farm_fault")]
    MissingPieces,
    /// The host has no room at the moment.
    #[serde(rename = "farm_fault")]
    FarmBusy,
    /// The farm's tool wanted to run it on this machine, by itself.
    #[serde(rename = "farm_fault")]
    ToolLocal,
    /// This machine came to it before any host did.
    #[serde(rename = "farm_fault")]
    Recalled,
    /// The farm cannot do this job.
    #[serde(rename = "farm_fault")]
    FarmUnfit,
    /// Nobody's fault: it must not leave this machine, as its files show.
    #[serde(rename = "refused")]
    StaysHere,
    /// The farm cannot do any job.
    #[serde(rename = "farm_fault")]
    FarmDown,
    /// The attempt took longer than it may.
    TimedOut,
    /// The program could not be started.
    NotStarted,
    /// The link was given up.
    Cancelled,
    /// It was not even tried: an input changed under it.
    Refused,
}

impl Outcome {
    /// Whether the host of such an attempt is to be looked at by somebody.
    pub fn blames_host(self) -> bool {
        use Outcome as O;
        matches!(
            self,
            O::Missing | O::FarmFault | O::ToolLocal | O::FarmUnfit | O::FarmDown | O::TimedOut
        )
    }
}

/// What to do with the job now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Take the outputs.
    Accept,
    /// Try again on the farm, after a pause.
    Retry,
    /// Send it again, whole.
    Resend,
    /// Run it on this machine.
    GoHome,
    /// Give the job up; it is the compiler's or the machine's fault.
    Fail,
    /// Give the job up; it is the farm's fault and the job may not run here.
    FailFarm,
    /// The link is over.
    Stop,
}

/// Decides what follows an attempt that ended at `place` with `outcome`, when `retries` further ones are
/// allowed on the farm. How many a job may have that took too long is the caller's to say.
pub fn next(outcome: Outcome, place: Place, retries: u32, fallback: Fallback) -> Next {
    use Outcome as O;
    let home = match fallback {
        Fallback::Local => Next::GoHome,
        Fallback::Never => Next::FailFarm,
    };
    match (outcome, place) {
        (O::Done, _) => Next::Accept,
        (O::Cancelled, _) => Next::Stop,
        (O::Refused, _) => Next::Fail,
        (_, Place::Local) => Next::Fail,
        (O::MissingPieces, Place::Farm) => Next::Resend,
        (O::FarmFault | O::FarmBusy | O::Missing | O::TimedOut, Place::Farm) if retries > 0 => {
            Next::Retry
        }
        // Home confirms it: a farm's compiler can fail where ours would not. `never` forbids even that.
        (O::CompilerError, Place::Farm) if fallback == Fallback::Never => Next::Fail,
        (_, Place::Farm) => home,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Fallback::{Local as Home, Never};
    use Place::{Farm, Local};

    /// The whole table: outcome; then what follows on the farm with a retry left, with none, with none and
    /// `--fallback never`; then on this machine.
    const TABLE: [(Outcome, [Next; 4]); 15] = [
        (Outcome::Done, [Next::Accept, Next::Accept, Next::Accept, Next::Accept]),
        (Outcome::CompilerError, [Next::GoHome, Next::GoHome, Next::Fail, Next::Fail]),
        (Outcome::Missing, [Next::Retry, Next::GoHome, Next::FailFarm, Next::Fail]),
        (Outcome::FarmFault, [Next::Retry, Next::GoHome, Next::FailFarm, Next::Fail]),
        (Outcome::MissingPieces, [Next::Resend, Next::Resend, Next::Resend, Next::Fail]),
        (Outcome::FarmBusy, [Next::Retry, Next::GoHome, Next::FailFarm, Next::Fail]),
        (Outcome::ToolLocal, [Next::GoHome, Next::GoHome, Next::FailFarm, Next::Fail]),
        (Outcome::Recalled, [Next::GoHome, Next::GoHome, Next::FailFarm, Next::Fail]),
        (Outcome::FarmUnfit, [Next::GoHome, Next::GoHome, Next::FailFarm, Next::Fail]),
        (Outcome::StaysHere, [Next::GoHome, Next::GoHome, Next::FailFarm, Next::Fail]),
        (Outcome::FarmDown, [Next::GoHome, Next::GoHome, Next::FailFarm, Next::Fail]),
        (Outcome::TimedOut, [Next::Retry, Next::GoHome, Next::FailFarm, Next::Fail]),
        (Outcome::NotStarted, [Next::GoHome, Next::GoHome, Next::FailFarm, Next::Fail]),
        (Outcome::Cancelled, [Next::Stop, Next::Stop, Next::Stop, Next::Stop]),
        (Outcome::Refused, [Next::Fail, Next::Fail, Next::Fail, Next::Fail]),
    ];

    #[test]
    fn the_table_holds_row_by_row() {
        for (outcome, [retry_left, none_left, never, local]) in TABLE {
            assert_eq!(next(outcome, Farm, 1, Home), retry_left, "{outcome:?}");
            assert_eq!(next(outcome, Farm, 0, Home), none_left, "{outcome:?}");
            assert_eq!(next(outcome, Farm, 0, Never), never, "{outcome:?}");
            assert_eq!(next(outcome, Local, 1, Home), local, "{outcome:?}");
        }
    }

    #[test]
    fn nothing_comes_home_that_may_not() {
        for (outcome, _) in TABLE {
            for retries in [0, 1] {
                assert_ne!(next(outcome, Farm, retries, Never), Next::GoHome, "{outcome:?}");
            }
        }
    }
}
