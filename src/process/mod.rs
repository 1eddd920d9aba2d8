//! The only place that starts programs. Each gets a process group of its own, an empty standard input and
//! one pipe for what it prints; `Groups` knows all that are alive, so that one call ends them. It does not
//! know what the programs are for.

pub mod guard;
pub mod pool;
pub mod slots;
pub mod watch;

use std::collections::HashMap;
use std::io::{self, PipeWriter};
use std::path::PathBuf;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::os::{Group, Pid, Reading, Signal};

pub use crate::os::{allow_programs, be_nicer};

/// What a program printed beyond this many bytes is left out of the middle.
const OUTPUT_LIMIT: usize = 16 << 20;
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
    alive: HashMap<Pid, Group>,
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
        let (reader, writer) = io::pipe()?;
        let mut reading = Reading::new(reader)?;
        let mut output = Output::new(OUTPUT_LIMIT);
        let mut take = |printed: &[u8]| {
            hear(printed);
            output.push(printed);
        };
        let (mut child, pid) = self.spawn(command, writer)?;
        on_start(pid);
        let read = reading.until_end(&child, deadline, &mut take).and_then(|ended| {
            if !ended {
                self.end(pid, Signal::KILL);
                reading.until_end(&child, None, &mut take)?;
            }
            Ok(!ended)
        });
        self.forget(pid);
        let status = child.wait()?;
        let late = read?;
        reading.finish(&mut take);
        Ok((Ended { status, output: output.finish() }, late))
    }

    fn spawn(&self, command: &Command, output: PipeWriter) -> io::Result<(Child, Pid)> {
        let mut prepared = prepare(command)?;
        prepared.stdout(output.try_clone()?).stderr(output);
        if let Some(guard) = &self.guard {
            prepared.env(guard::MARK, guard.mark());
        }
        self.start(|| Group::spawn(&mut prepared))
    }

    /// Starts under the lock that `end_all` takes: no program slips between its start and its registration.
    pub(crate) fn start(
        &self,
        spawn: impl FnOnce() -> io::Result<(Child, Group)>,
    ) -> io::Result<(Child, Pid)> {
        let mut state = self.lock();
        if state.closed {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "the link was given up"));
        }
        let (child, group) = spawn()?;
        let pid = group.pid();
        state.alive.insert(pid, group);
        if let Some(guard) = &self.guard {
            guard.add(pid);
        }
        Ok((child, pid))
    }

    /// Ends what is left of the group of a program that has ended but is not reaped yet: until then its
    /// number is not used again.
    pub(crate) fn forget(&self, pid: Pid) {
        let mut state = self.lock();
        if let Some(group) = state.alive.remove(&pid) {
            group.end(Signal::KILL);
        }
        if let Some(guard) = &self.guard {
            guard.remove(pid);
        }
    }

    /// Sends `signal` to one group, if it is alive.
    pub fn end(&self, pid: Pid, signal: Signal) {
        if let Some(group) = self.lock().alive.get(&pid) {
            group.end(signal);
        }
    }

    /// Sends `signal` to all groups and lets nothing start any more.
    pub fn end_all(&self, signal: Signal) {
        let mut state = self.lock();
        state.closed = true;
        state.alive.values().for_each(|group| group.end(signal));
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
    prepared.args(&command.args).stdin(empty_input()?);
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
pub(crate) fn empty_input() -> io::Result<Stdio> {
    let (reader, _) = io::pipe()?;
    Ok(reader.into())
}

/// What was printed, with its middle left out if it is more than `limit` bytes.
pub(crate) struct Output {
    limit: usize,
    head: Vec<u8>,
    tail: std::collections::VecDeque<u8>,
    left_out: usize,
}

impl Output {
    pub(crate) fn new(limit: usize) -> Self {
        Output { limit, head: Vec::new(), tail: std::collections::VecDeque::new(), left_out: 0 }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let room = (self.limit / 2).saturating_sub(self.head.len()).min(bytes.len());
        let (head, tail) = bytes.split_at(room);
        self.head.extend_from_slice(head);
        self.tail.extend(tail);
        let excess = self.tail.len().saturating_sub(self.limit / 2);
        self.tail.drain(..excess);
        self.left_out += excess;
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
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
