//! The only place that starts programs. Each gets a process group of its own, an empty standard input and
//! one pipe for what it prints; `Groups` knows all that are alive, so that one call ends them. It does not
//! know what the programs are for.

pub mod confined;
pub mod guard;
pub mod pool;
pub mod slots;
pub mod watch;

use std::collections::HashSet;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Resource, Signal, WaitId, WaitIdOptions, getrlimit, setrlimit,
};

/// What a program printed beyond this many bytes is left out of the middle.
const OUTPUT_LIMIT: usize = 16 << 20;
/// Reads of 16 KiB: as much as a pipe can be made to hold without privileges.
const PIPE_READS: usize = 64;
/// How long an end of a process may go unseen on a kernel without pidfds (Linux before 5.3).
const POLL: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// A program to run.
#[derive(Clone, Debug, Default)]
pub struct Command {
    /// Absolute: a bare name makes the standard library fork, which is six times slower at 512 children.
    pub program: PathBuf,
    /// Its arguments, without its name.
    pub args: Vec<String>,
    /// Start from an empty environment instead of ours.
    pub clear: bool,
    /// Variables to set.
    pub set: Vec<(String, String)>,
    /// Variables to remove.
    pub unset: Vec<String>,
}

/// How a program ended.
#[derive(Debug)]
pub struct Ended {
    /// Exit code or signal.
    pub status: ExitStatus,
    /// What it printed, standard output and standard error in the order of writing.
    pub output: Vec<u8>,
}

/// The process groups that are alive. Shared by all threads.
#[derive(Debug, Default)]
pub struct Groups {
    state: Mutex<State>,
    guard: Option<guard::Guard>,
}

#[derive(Debug, Default)]
struct State {
    closed: bool,
    alive: HashSet<i32>,
}

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
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else { return };
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse::<i32>().ok();
    for descriptor in open.flatten().filter_map(number).filter(|number| *number > 2) {
        // SAFETY: it sets one flag, and fails on a number that is closed by now.
        unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}

/// Gives this thread, and all programs that it starts, less of the CPU, by `by` steps of `nice`.
pub fn be_nicer(by: u8) {
    if by > 0 {
        // To be nicer is always allowed. With Linux a thread has a value of its own.
        let own = rustix::process::getpriority_process(None).unwrap_or(0);
        let _ = rustix::process::setpriority_process(None, own + i32::from(by));
    }
}

/// Tells a running program's group to the thread that may have to end it.
pub type OnStart<'a> = &'a dyn Fn(Pid);
/// Hears what a program prints.
pub type Hear<'a> = &'a mut dyn FnMut(&[u8]);

impl Groups {
    /// No groups yet; `guard` ends them if this process is killed.
    pub fn new(guard: Option<guard::Guard>) -> Arc<Self> {
        Arc::new(Groups { state: Mutex::default(), guard })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A thread that panicked holding it left plain data behind.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `command` to its end, and ends what it left running in its group.
    ///
    /// # Errors
    /// It could not be started, or the groups were closed before that.
    pub fn run(&self, command: &Command, on_start: OnStart<'_>) -> io::Result<Ended> {
        let (ended, _) = self.run_to_its_end(command, on_start, &mut |_| (), None)?;
        Ok(ended)
    }

    /// The same; `hear` gets what the program prints as it comes.
    ///
    /// # Errors
    /// As for [`Groups::run`].
    pub fn run_heard(
        &self,
        command: &Command,
        on_start: OnStart<'_>,
        hear: Hear<'_>,
    ) -> io::Result<Ended> {
        let (ended, _) = self.run_to_its_end(command, on_start, hear, None)?;
        Ok(ended)
    }

    /// Runs `command`, and ends its group at `deadline`; `None` if that had to be.
    ///
    /// # Errors
    /// As for [`Groups::run`].
    pub fn run_by(&self, command: &Command, deadline: Instant) -> io::Result<Option<Ended>> {
        let (ended, late) = self.run_to_its_end(command, &|_| (), &mut |_| (), Some(deadline))?;
        Ok((!late).then_some(ended))
    }

    fn run_to_its_end(
        &self,
        command: &Command,
        on_start: OnStart<'_>,
        hear: Hear<'_>,
        deadline: Option<Instant>,
    ) -> io::Result<(Ended, bool)> {
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        rustix::fs::fcntl_setfl(&reader, rustix::fs::OFlags::NONBLOCK)?;
        let (mut child, pid) = self.spawn(command, writer)?;
        on_start(pid);
        let read = read_until_exit(reader, pid, hear, deadline);
        self.forget(pid);
        let status = child.wait()?;
        let (output, late) = read?;
        Ok((Ended { status, output }, late))
    }

    /// Starts under the lock that `end_all` takes: no program slips between its start and its registration.
    fn spawn(&self, command: &Command, output: OwnedFd) -> io::Result<(Child, Pid)> {
        let mut state = self.lock();
        if state.closed {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "the link was given up"));
        }
        let mut prepared = prepare(command)?;
        prepared.stdout(output.try_clone()?).stderr(output);
        if let Some(guard) = &self.guard {
            prepared.env(guard::MARK, guard.mark());
        }
        let child = prepared.spawn()?;
        let pid = Pid::from_child(&child);
        state.alive.insert(pid.as_raw_nonzero().get());
        if let Some(guard) = &self.guard {
            guard.add(pid);
        }
        Ok((child, pid))
    }

    /// Ends what is left of the group of a program that has ended but is not reaped yet: until then its
    /// number is not used again.
    fn forget(&self, pid: Pid) {
        let mut state = self.lock();
        let _ = rustix::process::kill_process_group(pid, Signal::KILL);
        state.alive.remove(&pid.as_raw_nonzero().get());
        if let Some(guard) = &self.guard {
            guard.remove(pid);
        }
    }

    /// Sends `signal` to one group, if it is alive.
    pub fn end(&self, pid: Pid, signal: Signal) {
        if self.lock().alive.contains(&pid.as_raw_nonzero().get()) {
            let _ = rustix::process::kill_process_group(pid, signal);
        }
    }

    /// Sends `signal` to all groups and lets nothing start any more.
    pub fn end_all(&self, signal: Signal) {
        let mut state = self.lock();
        state.closed = true;
        for pid in state.alive.iter().filter_map(|&raw| Pid::from_raw(raw)) {
            let _ = rustix::process::kill_process_group(pid, signal);
        }
    }

    /// Nothing of ours runs any more.
    pub fn is_empty(&self) -> bool {
        self.lock().alive.is_empty()
    }

    /// The guard, to tell it of files.
    pub fn guard(&self) -> Option<&guard::Guard> {
        self.guard.as_ref()
    }
}

#[allow(clippy::disallowed_methods, reason = "this is the place that starts programs")]
fn prepare(command: &Command) -> io::Result<std::process::Command> {
    debug_assert!(command.program.is_absolute(), "{:?}", command.program);
    let mut prepared = std::process::Command::new(&command.program);
    prepared.args(&command.args).stdin(empty_input()?).process_group(0);
    if command.clear {
        prepared.env_clear();
    }
    for name in &command.unset {
        prepared.env_remove(name);
    }
    prepared.envs(command.set.iter().map(|(name, value)| (name, value)));
    Ok(prepared)
}

/// A pipe that nobody writes to: a worker may run where there is no `/dev/null`.
fn empty_input() -> io::Result<Stdio> {
    let (reader, _) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    Ok(reader.into())
}

/// Reads until the program itself has ended: a grandchild that keeps the pipe does not hold us. Kills its group
/// at `deadline`, and tells whether it did.
fn read_until_exit(
    reader: OwnedFd,
    pid: Pid,
    hear: Hear<'_>,
    deadline: Option<Instant>,
) -> io::Result<(Vec<u8>, bool)> {
    let exit = rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok();
    let mut pipe = Pipe { file: reader.into(), open: true, output: Output::new(OUTPUT_LIMIT) };
    let mut late = false;
    loop {
        let mut watched = Vec::with_capacity(2);
        if pipe.open {
            watched.push(PollFd::new(&pipe.file, PollFlags::IN));
        }
        if let Some(exit) = &exit {
            watched.push(PollFd::new(exit, PollFlags::IN));
        }
        let left = deadline
            .filter(|_| !late)
            .map(|deadline| deadline.saturating_duration_since(Instant::now()))
            .and_then(|left| Timespec::try_from(left).ok());
        let look = exit.is_none().then_some(POLL);
        match poll(&mut watched, left.into_iter().chain(look).min().as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ended = has_ended(pid);
        pipe.drain(hear)?;
        if ended {
            return Ok((pipe.output.finish(), late));
        }
        if !late && deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            late = true;
            let _ = rustix::process::kill_process_group(pid, Signal::KILL);
        }
    }
}

fn has_ended(pid: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    // An error means that there is nothing to wait for.
    !matches!(rustix::process::waitid(WaitId::Pid(pid), options), Ok(None))
}

struct Pipe {
    file: std::fs::File,
    open: bool,
    output: Output,
}

impl Pipe {
    /// Takes all that is there now; no more than a pipe can hold, lest a flood keep us from the clock.
    fn drain(&mut self, hear: Hear<'_>) -> io::Result<()> {
        let mut buffer = [0; 16 << 10];
        for _ in 0..PIPE_READS {
            if !self.open {
                break;
            }
            match self.file.read(&mut buffer) {
                Ok(0) => self.open = false,
                Ok(n) => {
                    hear(&buffer[..n]);
                    self.output.push(&buffer[..n]);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// What was printed, with its middle left out if it is more than `limit` bytes.
struct Output {
    limit: usize,
    head: Vec<u8>,
    tail: std::collections::VecDeque<u8>,
    left_out: usize,
}

impl Output {
    fn new(limit: usize) -> Self {
        Output { limit, head: Vec::new(), tail: std::collections::VecDeque::new(), left_out: 0 }
    }

    fn push(&mut self, bytes: &[u8]) {
        let room = (self.limit / 2).saturating_sub(self.head.len()).min(bytes.len());
        let (head, tail) = bytes.split_at(room);
        self.head.extend_from_slice(head);
        self.tail.extend(tail);
        let excess = self.tail.len().saturating_sub(self.limit / 2);
        self.tail.drain(..excess);
        self.left_out += excess;
    }

    fn finish(mut self) -> Vec<u8> {
        if self.left_out > 0 {
            let note = format!("\n[dtlto-bridge: {} bytes left out here]\n", self.left_out);
            self.head.extend_from_slice(note.as_bytes());
        }
        self.head.extend(self.tail);
        self.head
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn shell(script: &str) -> Command {
        Command {
            program: "/bin/sh".into(),
            args: vec!["-c".into(), script.into()],
            ..Command::default()
        }
    }

    #[test]
    fn output_and_status_are_kept() {
        let ended = Groups::new(None).run(&shell("echo a; echo b >&2; exit 3"), &|_| ()).unwrap();
        assert_eq!((ended.status.code(), ended.output.as_slice()), (Some(3), b"a\nb\n".as_slice()));
    }

    #[test]
    fn standard_input_is_empty_and_open() {
        let ended = Groups::new(None).run(&shell("cat && echo done"), &|_| ()).unwrap();
        assert_eq!(ended.output, b"done\n");
    }

    #[test]
    fn a_cleared_environment_holds_what_was_set_alone() {
        let set = vec![("ONE".into(), "1".into())];
        let command =
            Command { program: "/usr/bin/env".into(), clear: true, set, ..Command::default() };
        assert_eq!(Groups::new(None).run(&command, &|_| ()).unwrap().output, b"ONE=1\n");
    }

    #[test]
    fn a_grandchild_on_the_pipe_does_not_hold_us_and_is_ended() {
        let start = Instant::now();
        let ended = Groups::new(None).run(&shell("sleep 60 & echo $!"), &|_| ()).unwrap();
        assert!(start.elapsed() < Duration::from_secs(5));
        let grandchild: i32 = String::from_utf8(ended.output).unwrap().trim().parse().unwrap();
        let gone = || {
            std::fs::read_to_string(format!("/proc/{grandchild}/stat"))
                .map_or(true, |stat| stat.contains(") Z"))
        };
        while !gone() {
            assert!(start.elapsed() < Duration::from_secs(5), "{grandchild} lives");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_deadline_ends_a_program_and_its_children() {
        let groups = Groups::new(None);
        let begun = Instant::now();
        let short = begun + Duration::from_millis(200);
        assert!(groups.run_by(&shell("sleep 60 & sleep 60"), short).unwrap().is_none());
        assert!(begun.elapsed() < Duration::from_secs(10));
        let ended = groups.run_by(&shell("exit 4"), begun + Duration::from_secs(30)).unwrap();
        assert_eq!(ended.unwrap().status.code(), Some(4));
    }

    #[test]
    fn many_programs_at_once_find_descriptors() {
        let before = getrlimit(Resource::Nofile).current.unwrap();
        allow_programs(10);
        assert_eq!(getrlimit(Resource::Nofile).current.unwrap(), before.max(104));
    }

    #[test]
    fn closed_groups_start_nothing() {
        let groups = Groups::new(None);
        groups.end_all(Signal::TERM);
        let error = groups.run(&shell("true"), &|_| ()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Interrupted);
    }

    #[test]
    fn a_flood_of_output_keeps_its_head_and_its_tail() {
        let mut output = Output::new(OUTPUT_LIMIT);
        output.push(b"first");
        for _ in 0..5 {
            output.push(&vec![b'x'; OUTPUT_LIMIT / 4]);
        }
        output.push(b"last");
        let all = output.finish();
        assert!(all.starts_with(b"first") && all.ends_with(b"last"));
        assert!(all.len() < OUTPUT_LIMIT + 100);
        assert!(String::from_utf8_lossy(&all).contains("bytes left out here"));
    }
}
