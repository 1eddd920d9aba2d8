//! The exit codes of `dtlto-bridge`: a contract with scripts. LLD itself only tells zero from the rest.

use std::fmt;

/// How a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Every declared output was made.
    Ok = 0,
    /// A job failed for the compiler's reasons.
    JobFailed = 1,
    /// The command line, or a variable that stands for an option, cannot be used.
    Usage = 2,
    /// The job file, or an input that it names, cannot be used.
    JobFile = 3,
    /// The farm cannot be used and `--fallback never` forbids to work here.
    Farm = 4,
    /// A bug of this program.
    Bug = 70,
}

/// An error together with the exit code that it ends in.
#[derive(Debug)]
pub struct Failure {
    /// What the process exits with.
    pub exit: Exit,
    /// What is printed, with its causes.
    pub error: anyhow::Error,
}

impl Failure {
    /// Pairs `error` with `exit`.
    pub fn new(exit: Exit, error: impl Into<anyhow::Error>) -> Self {
        Failure { exit, error: error.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.error)
    }
}
