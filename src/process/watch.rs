//! Tells of signals and of the linker's end. LLD, when it is killed or interrupted, neither waits for its
//! distributor nor ends it (measured with 21 to 23), and deletes the job file. It does not know what follows.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, getppid, pidfd_open};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

/// Between two looks for the job file, and for the parent on a kernel without pidfds.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

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

/// The linker: who started us. Compared with what is seen at the start, never with 1: in a container the
/// linker may be process 1, and orphans may go to another reaper.
#[derive(Clone, Copy, Debug)]
pub struct Linker(Option<Pid>);

impl Linker {
    /// To be called first of all.
    pub fn seen_at_start() -> Self {
        Linker(getppid())
    }

    /// Our parent is still the same, and has not deleted the job file, as LLD does when it gives up.
    pub fn waits_for(self, job_file: &Path) -> bool {
        getppid() == self.0 && !matches!(job_file.try_exists(), Ok(false))
    }

    /// Calls `tell` once when the linker has ended or given up. The job file tells it where a wrapper
    /// between LLD and us hides its end.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn watch(self, job_file: PathBuf, tell: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let watch = move || {
            let parent = self.0.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
            while self.waits_for(&job_file) {
                let mut watched: Vec<PollFd<'_>> =
                    parent.iter().map(|parent| PollFd::new(parent, PollFlags::IN)).collect();
                // An interruption is as good as a time-out.
                let _ = poll(&mut watched, Some(&LOOK));
            }
            tell();
        };
        thread::Builder::new().name("linker".into()).spawn(watch)?;
        Ok(())
    }
}
