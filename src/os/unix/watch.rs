//! Signals, and the end of those who called us.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, getppid, pidfd_open};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use super::Pid;

/// Calls `tell` with each signal that asks to stop. Those that were ignored when we started, as `nohup`
/// and background jobs have it, stay so.
///
/// # Errors
/// The handlers cannot be set.
pub fn signals(tell: impl Fn(i32) + Send + 'static) -> io::Result<()> {
    let ignored = ignored_signals();
    let wanted = [SIGHUP, SIGINT, SIGQUIT, SIGTERM]
        .into_iter()
        .filter(|signal| ignored >> (signal - 1) & 1 == 0);
    let mut signals = Signals::new(wanted)?;
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || signals.forever().for_each(tell))?;
    Ok(())
}

/// The bits of the ignored signals; the standard library offers no safe way to ask for one.
fn ignored_signals() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok())
        .unwrap_or(0)
}

/// Raises `signal` again with its usual effect: the caller of LLD sees what ended the link.
pub fn raise_again(signal: i32) {
    let _ = signal_hook::low_level::emulate_default_handler(signal);
}

/// Who started us. Compared with what is seen at the start, never with 1: in a container that may be
/// process 1, and orphans may go to another reaper.
#[derive(Clone, Copy, Debug)]
pub struct Parent(Option<Pid>);

impl Parent {
    /// To be called first of all.
    pub fn seen_at_start() -> Self {
        Parent(getppid())
    }

    /// It is still there.
    pub fn lives(self) -> bool {
        getppid() == self.0
    }
}

/// Our parent and, as long as these are wrappers that LLD took for its distributor, their parents.
pub struct Callers(Vec<OwnedFd>);

impl Callers {
    /// A wrapper, too, has the job file as its last argument.
    pub fn of(parent: Parent, job_file: &Path) -> Self {
        let callers = callers(parent.0, job_file);
        Callers(callers.filter_map(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()).collect())
    }

    /// Waits for the end of one of them; false if none has ended so far.
    pub fn wait(&self, limit: Duration) -> bool {
        let mut watched: Vec<PollFd<'_>> =
            self.0.iter().map(|caller| PollFd::new(caller, PollFlags::IN)).collect();
        let limit = Timespec::try_from(limit).ok();
        // An interruption is as good as a time-out.
        poll(&mut watched, limit.as_ref()).is_ok_and(|ended| ended > 0)
    }
}

fn callers(parent: Option<Pid>, job_file: &Path) -> impl Iterator<Item = Pid> {
    std::iter::successors(parent, |&pid| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let last = words.strip_suffix(b"\0")?.rsplit(|byte| *byte == 0).next()?;
        (last == job_file.as_os_str().as_bytes()).then(|| parent_of(pid)).flatten()
    })
}

fn parent_of(pid: Pid) -> Option<Pid> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before it, in parentheses, may hold blanks and parentheses.
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').nth(1)?.parse().ok().and_then(Pid::from_raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_of_this_process_is_known() {
        assert_eq!(parent_of(rustix::process::getpid()), getppid());
    }

    #[test]
    fn only_a_caller_that_was_given_the_job_file_is_a_wrapper() {
        let own = rustix::process::getpid();
        assert_eq!(callers(Some(own), Path::new("jobs.json")).collect::<Vec<_>>(), [own]);
        let words = fs::read("/proc/self/cmdline").unwrap();
        let mut words = words.split(|byte| *byte == 0).filter(|word| !word.is_empty());
        let last = Path::new(std::ffi::OsStr::from_bytes(words.next_back().unwrap())).to_owned();
        let found: Vec<_> = callers(Some(own), &last).take(2).collect();
        assert_eq!(found, [own, getppid().unwrap()]);
    }
}
