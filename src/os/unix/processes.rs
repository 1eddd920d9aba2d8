//! Processes in groups of their own: started, read from until they end, and ended with all that they started.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, PipeReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    PidfdFlags, Resource, WaitId, WaitIdOptions, getpriority_process, getrlimit, kill_process,
    kill_process_group, pidfd_open, setpriority_process, setrlimit,
};

pub use rustix::process::{Pid, Signal};

/// Reads of 16 KiB: as much as a pipe can be made to hold without privileges.
const PIPE_READS: usize = 64;
/// How long an end of a process may go unseen on a kernel without pidfds (Linux before 5.3).
const POLL: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// A program and all that it starts, but for what leaves its process group.
#[derive(Debug)]
pub struct Group(Pid);

impl Group {
    /// Starts a program as the first of a group.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn spawn(command: &mut Command) -> io::Result<(Child, Group)> {
        let child = command.process_group(0).spawn()?;
        let group = Group(Pid::from_child(&child));
        Ok((child, group))
    }

    /// The number of its first process.
    pub fn pid(&self) -> Pid {
        self.0
    }

    /// Sends a signal to all of it.
    pub fn end(&self, signal: Signal) {
        end_group(self.0, signal);
    }
}

/// Sends a signal to the group of which `pid` is the first process.
pub fn end_group(pid: Pid, signal: Signal) {
    let _ = kill_process_group(pid, signal);
}

/// Keeps a helper out of the groups that are ended, and away from the keys of the terminal.
pub fn separate(command: &mut Command) {
    command.process_group(0);
}

/// This program, even if its file was replaced meanwhile.
///
/// # Errors
/// None here.
pub fn own_program() -> io::Result<impl AsRef<OsStr>> {
    Ok("/proc/self/exe")
}

/// What this process starts from now on ends with it; here a guard sees to that.
pub fn end_children_with_us() {}

/// Makes room for the descriptors of `programs` at once, as far as the hard limit allows; the soft one is
/// 1,024 on most machines.
pub fn allow_programs(programs: usize) {
    const EACH: u64 = 4;
    const OTHERS: u64 = 64;
    let mut limit = getrlimit(Resource::Nofile);
    let wanted = programs as u64 * EACH + OTHERS;
    if limit.current.is_some_and(|current| current < wanted) {
        limit.current = Some(limit.maximum.map_or(wanted, |most| most.min(wanted)));
        // Where it is not allowed, programs that find no descriptor fail one by one, and say so.
        let _ = setrlimit(Resource::Nofile, limit);
    }
}

/// Lets no program inherit a descriptor that this process has inherited itself: one that outlives us, a cache's
/// server, say, would hold a pipe open at whose end somebody waits.
#[allow(unsafe_code, reason = "descriptors that this process does not own")]
pub fn keep_descriptors() {
    let Ok(open) = fs::read_dir("/proc/self/fd") else { return };
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<i32>().ok();
    for descriptor in open.flatten().filter_map(number).filter(|number| *number > 2) {
        // SAFETY: it sets one flag, and fails on a number that is closed by now.
        unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}

/// Gives this thread, and all programs that it starts, less of the CPU, by `by` steps of `nice`.
pub fn be_nicer(by: u8) {
    if by > 0 {
        // To be nicer is always allowed. With Linux a thread has a value of its own.
        let own = getpriority_process(None).unwrap_or(0);
        let _ = setpriority_process(None, own + i32::from(by));
    }
}

/// What ended a program that did not exit by itself.
pub fn killed_by(status: ExitStatus) -> Option<String> {
    let signal = status.signal()?;
    let name = signal_hook::low_level::signal_name(signal);
    Some(name.map_or_else(|| format!("signal {signal}"), str::to_owned))
}

/// Gets what a program printed.
pub type Take<'a> = &'a mut dyn FnMut(&[u8]);

/// What a program prints, as it comes.
pub struct Reading(Pipe);

impl Reading {
    /// From the reading end of its pipe.
    ///
    /// # Errors
    /// The pipe cannot be used.
    pub fn new(reader: PipeReader) -> io::Result<Self> {
        Pipe::new(reader).map(Reading)
    }

    /// Reads until the program itself has ended, though not reaped: a grandchild that keeps the pipe does
    /// not hold us. False if it had not at the deadline.
    ///
    /// # Errors
    /// The pipe cannot be read any more.
    pub fn until_end(
        &mut self,
        child: &Child,
        deadline: Option<Instant>,
        take: Take<'_>,
    ) -> io::Result<bool> {
        let (pid, pipe) = (Pid::from_child(child), &mut self.0);
        let exit = pidfd_open(pid, PidfdFlags::empty()).ok();
        loop {
            let mut watched = Vec::with_capacity(2);
            if pipe.open {
                watched.push(PollFd::new(&pipe.file, PollFlags::IN));
            }
            if let Some(exit) = &exit {
                watched.push(PollFd::new(exit, PollFlags::IN));
            }
            let left = deadline
                .map(|deadline| deadline.saturating_duration_since(Instant::now()))
                .and_then(|left| Timespec::try_from(left).ok());
            let look = exit.is_none().then_some(POLL);
            match poll(&mut watched, left.into_iter().chain(look).min().as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let ended = has_ended(pid);
            pipe.drain(take)?;
            if ended || deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return Ok(ended);
            }
        }
    }

    /// What is still on its way once the program's group was ended; here nothing is.
    pub fn finish(self, _: Take<'_>) {}
}

/// The process has ended, though not reaped.
pub(crate) fn has_ended(pid: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    // An error means that there is nothing to wait for.
    !matches!(rustix::process::waitid(WaitId::Pid(pid), options), Ok(None))
}

/// The reading end of a pipe that is read only as far as there is something.
pub(crate) struct Pipe {
    pub(crate) file: File,
    pub(crate) open: bool,
}

impl Pipe {
    pub(crate) fn new(reader: PipeReader) -> io::Result<Self> {
        let end = OwnedFd::from(reader);
        rustix::fs::fcntl_setfl(&end, rustix::fs::OFlags::NONBLOCK)?;
        Ok(Pipe { file: end.into(), open: true })
    }

    /// Takes all that is there now; no more than a pipe can hold, lest a flood keep us from the clock.
    pub(crate) fn drain(&mut self, take: Take<'_>) -> io::Result<()> {
        let mut buffer = [0; 16 << 10];
        for _ in 0..PIPE_READS {
            if !self.open {
                break;
            }
            match self.file.read(&mut buffer) {
                Ok(0) => self.open = false,
                Ok(n) => take(&buffer[..n]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Processes of a link that a guard was told of, by the numbers of their groups.
#[derive(Debug, Default)]
pub struct Told(BTreeSet<i32>);

impl Told {
    /// One was started.
    pub fn add(&mut self, number: i32) {
        self.0.insert(number);
    }

    /// It has ended.
    pub fn remove(&mut self, number: i32) {
        self.0.remove(&number);
    }

    /// Ends those that are left.
    pub fn end(&self) {
        self.0.iter().filter_map(|&raw| Pid::from_raw(raw)).for_each(|pid| {
            end_group(pid, Signal::KILL);
        });
    }
}

/// Ends the processes of this session in whose environment `variable` has this value, or one that begins so:
/// that of a link within this one. One that made a session of its own is a daemon that outlives its link on
/// purpose, a cache's server, say.
pub fn end_marked(variable: &str, value: &str) {
    let (own, wanted) = (session("self"), format!("{variable}={value}"));
    for pid in carrying(|entry| entry.starts_with(wanted.as_bytes())) {
        if session(&pid.to_string()) == own {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Ends all processes of this user, in whichever session, that have `NAME=value` in their environment.
pub fn end_carrying(entry: &str) {
    for pid in carrying(|found| found == entry.as_bytes()) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// The processes in whose environment there is such an entry, `NAME=value`.
fn carrying(is: impl Fn(&[u8]) -> bool) -> Vec<Pid> {
    let carries = |pid: &Pid| {
        fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|all| all.split(|&byte| byte == 0).any(&is))
    };
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    processes
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw))
        .filter(carries)
        .collect()
}

/// The session of a process in `/proc`: 0 where its leader lives outside this PID namespace, which a
/// [`Pid`] cannot say.
fn session(process: &str) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name before it, in parentheses, may hold blanks and parentheses.
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').nth(3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_session_is_the_kernels() {
        let own = session("self").unwrap();
        // Not asked where it is 0, which rustix takes for impossible.
        assert!(
            own == 0 || rustix::process::getsid(None).unwrap().as_raw_pid().cast_unsigned() == own
        );
        assert_eq!(session("no process"), None);
    }

    #[test]
    fn many_programs_at_once_find_descriptors() {
        let before = getrlimit(Resource::Nofile).current.unwrap();
        allow_programs(10);
        assert_eq!(getrlimit(Resource::Nofile).current.unwrap(), before.max(104));
    }
}
