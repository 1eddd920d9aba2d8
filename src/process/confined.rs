//! Runs a program that is not trusted: without this process's environment, input, descriptors and
//! terminal, under resource limits and a deadline, in a thread that was restricted beforehand. Its whole
//! group ends with it, and it with this process. It does not know what the restriction is.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal, pidfd_open};

use super::{Groups, Output, Pipe, empty_input, has_ended};

/// The longest wait between two looks at the clock; shorter on a kernel without pidfds.
const LOOK: Duration = Duration::from_millis(500);
const LOOK_WITHOUT_PIDFD: Duration = Duration::from_millis(10);

/// A program, and what it may use.
#[derive(Clone, Debug)]
pub struct Confined {
    /// Absolute.
    pub program: PathBuf,
    /// What it is told to be called.
    pub name: OsString,
    /// Its arguments, without its name.
    pub args: Vec<String>,
    /// Its whole environment.
    pub env: Vec<(String, OsString)>,
    /// Where it runs.
    pub folder: PathBuf,
    /// Bytes of address space.
    pub memory: Option<u64>,
    /// Bytes of the largest file that it may write.
    pub file_size: u64,
    /// How long it may run.
    pub time: Duration,
    /// How much of each of its two outputs is kept, in bytes; the middle of more is left out.
    pub printed: usize,
}

/// How it ended.
#[derive(Debug)]
pub struct Ended {
    /// Exit code or signal.
    pub status: ExitStatus,
    /// Its time was over and it was killed.
    pub timed_out: bool,
    /// What it printed on standard output.
    pub stdout: Vec<u8>,
    /// What it printed on standard error.
    pub stderr: Vec<u8>,
    /// The most memory that it, or a program that it started, had at once, in KiB.
    pub peak_kb: u64,
}

impl Groups {
    /// Runs `confined` to its end. `restrict` is called in the thread that starts it: what it does to that
    /// thread the program inherits.
    ///
    /// # Errors
    /// `restrict` failed, the program could not be started, or the groups were closed.
    pub fn run_confined(
        &self,
        confined: &Confined,
        restrict: impl FnOnce() -> anyhow::Result<()> + Send,
    ) -> anyhow::Result<Ended> {
        // The thread waits for the program: its end would be the program's, by the death signal.
        let run = || {
            restrict()?;
            self.start_and_wait(confined).map_err(|error| {
                anyhow::Error::new(error).context(confined.program.display().to_string())
            })
        };
        thread::scope(|scope| {
            let helper = thread::Builder::new().name("confined".into()).spawn_scoped(scope, run)?;
            helper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn start_and_wait(&self, confined: &Confined) -> io::Result<Ended> {
        let (stdout, stdout_end) = pipe_with(PipeFlags::CLOEXEC)?;
        let (stderr, stderr_end) = pipe_with(PipeFlags::CLOEXEC)?;
        let mut pipes = [pipe(stdout, confined.printed)?, pipe(stderr, confined.printed)?];
        let mut command = prepare(confined)?;
        command.stdout(stdout_end).stderr(stderr_end);
        let (mut child, pid) = self.register(|| command.spawn())?;
        // The ends that the program writes to must not stay open here.
        drop(command);
        let waited = wait(&mut pipes, pid, confined.time);
        self.forget(pid);
        let status = child.wait()?;
        let timed_out = waited?;
        let [stdout, stderr] = pipes.map(|pipe| pipe.output.finish());
        Ok(Ended { status, timed_out, stdout, stderr, peak_kb: peak_of_children_kb() })
    }

    fn register(&self, spawn: impl FnOnce() -> io::Result<Child>) -> io::Result<(Child, Pid)> {
        let mut state = self.lock();
        if state.closed {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "the job was given up"));
        }
        let child = spawn()?;
        let pid = Pid::from_child(&child);
        state.alive.insert(pid.as_raw_nonzero().get());
        if let Some(guard) = &self.guard {
            guard.add(pid);
        }
        Ok((child, pid))
    }
}

fn pipe(end: OwnedFd, limit: usize) -> io::Result<Pipe> {
    rustix::fs::fcntl_setfl(&end, rustix::fs::OFlags::NONBLOCK)?;
    Ok(Pipe { file: end.into(), open: true, output: Output::new(limit) })
}

#[allow(clippy::disallowed_methods, reason = "this folder is the place that starts programs")]
#[allow(unsafe_code, reason = "limits and the death signal are set between fork and exec")]
fn prepare(confined: &Confined) -> io::Result<std::process::Command> {
    let mut command = std::process::Command::new(&confined.program);
    command
        .arg0(&confined.name)
        .args(&confined.args)
        .current_dir(&confined.folder)
        .stdin(empty_input()?)
        .env_clear()
        .envs(confined.env.iter().map(|(name, value)| (name, value)))
        .process_group(0);
    let limits = [
        (Resource::Core, Some(0)),
        (Resource::Fsize, Some(confined.file_size)),
        (Resource::As, confined.memory),
    ]
    .map(|(resource, limit)| (resource, lowered(resource, limit)));
    let parent = rustix::process::getpid();
    let between = move || {
        for (resource, limit) in limits {
            rustix::process::setrlimit(resource, limit)?;
        }
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died before that.
        match rustix::process::getppid() {
            Some(now) if now == parent => Ok(()),
            _ => Err(io::ErrorKind::Interrupted.into()),
        }
    };
    // SAFETY: system calls alone, which allocate nothing and take no lock.
    unsafe { command.pre_exec(between) };
    Ok(command)
}

/// The limit in force, lowered to `limit`.
fn lowered(resource: Resource, limit: Option<u64>) -> Rlimit {
    let inherited = rustix::process::getrlimit(resource);
    let lower = |old: Option<u64>| match (old, limit) {
        (Some(old), Some(new)) => Some(old.min(new)),
        (old, new) => old.or(new),
    };
    Rlimit { current: lower(inherited.current), maximum: lower(inherited.maximum) }
}

/// Reads until the program has ended, and kills its group when its time is over. Tells whether it was.
fn wait(pipes: &mut [Pipe; 2], pid: Pid, time: Duration) -> io::Result<bool> {
    let exit = pidfd_open(pid, PidfdFlags::empty()).ok();
    let deadline = Instant::now() + time;
    let mut timed_out = false;
    loop {
        let open = pipes.iter().filter(|pipe| pipe.open);
        let mut watched: Vec<PollFd<'_>> =
            open.map(|pipe| PollFd::new(&pipe.file, PollFlags::IN)).collect();
        watched.extend(exit.iter().map(|exit| PollFd::new(exit, PollFlags::IN)));
        let look = if exit.is_some() { LOOK } else { LOOK_WITHOUT_PIDFD };
        let left = deadline.saturating_duration_since(Instant::now()).min(look);
        let pause = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut watched, Some(&pause)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ended = has_ended(pid);
        for pipe in pipes.iter_mut() {
            pipe.drain(&mut |_| ())?;
        }
        if ended {
            return Ok(timed_out);
        }
        if !timed_out && Instant::now() >= deadline {
            timed_out = true;
            let _ = rustix::process::kill_process_group(pid, Signal::KILL);
        }
    }
}

/// The most memory that one of this process's ended children, or of theirs, had at once.
#[allow(unsafe_code, reason = "there is no safe way to ask for it")]
fn peak_of_children_kb() -> u64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the call fills the whole structure, which is valid when it is all zeros too.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr());
        usage.assume_init()
    };
    u64::try_from(usage.ru_maxrss).unwrap_or(0)
}

/// Closes all inherited descriptors but the standard three. distccd hands down its client's socket, by
/// which the client would wait for this process after its server has died. Does nothing before Linux 5.9.
/// To be called before anything is opened.
#[allow(unsafe_code, reason = "closing descriptors that are not one's own")]
pub fn close_inherited() {
    // SAFETY: nothing of ours is open yet.
    unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, 0_u32) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Confined {
        Confined {
            program: "/bin/sh".into(),
            name: "sh".into(),
            args: vec!["-c".into(), script.into()],
            env: vec![("LANG".into(), "C".into())],
            folder: "/".into(),
            memory: None,
            file_size: 1 << 20,
            time: Duration::from_secs(20),
            printed: 1 << 16,
        }
    }

    fn run(confined: &Confined) -> Ended {
        Groups::new(None).run_confined(confined, || Ok(())).unwrap()
    }

    fn text(bytes: &[u8]) -> &str {
        std::str::from_utf8(bytes).unwrap()
    }

    #[test]
    fn the_two_outputs_are_kept_apart() {
        let ended = run(&shell("echo a; echo b >&2; exit 3"));
        assert_eq!((text(&ended.stdout), text(&ended.stderr)), ("a\n", "b\n"));
        assert_eq!(ended.status.code(), Some(3));
        assert!(!ended.timed_out && ended.peak_kb > 100, "{ended:?}");
    }

    #[test]
    fn the_environment_is_clean_and_the_input_empty() {
        let ended = run(&shell("cat; export -p | grep -v PWD; echo $0"));
        assert_eq!(text(&ended.stdout), "export LANG='C'\nsh\n", "{ended:?}");
    }

    #[test]
    fn a_deadline_ends_the_whole_group() {
        let begun = Instant::now();
        let mut confined = shell("sleep 30 & echo $!; wait");
        confined.time = Duration::from_millis(200);
        let ended = run(&confined);
        assert!(ended.timed_out && begun.elapsed() < Duration::from_secs(10), "{ended:?}");
        let sleeper = Pid::from_raw(text(&ended.stdout).trim().parse().unwrap()).unwrap();
        let gone = || match std::fs::read_to_string(format!("/proc/{sleeper}/stat")) {
            Ok(stat) => stat.contains(") Z"),
            Err(_) => true,
        };
        let end = Instant::now() + Duration::from_secs(5);
        while !gone() && Instant::now() < end {
            thread::sleep(Duration::from_millis(5));
        }
        assert!(gone());
    }

    #[test]
    fn limits_hold() {
        let folder = tempfile::tempdir().unwrap();
        let mut confined = shell("ulimit -c; head -c 9000000 /dev/zero > big; wc -c < big");
        confined.folder = folder.path().into();
        let ended = run(&confined);
        assert_eq!(text(&ended.stdout), "0\n1048576\n", "{ended:?}");
        let mut confined = shell("ulimit -v");
        confined.memory = Some(1 << 30);
        assert_eq!(text(&run(&confined).stdout), "1048576\n");
    }

    #[test]
    fn a_flood_of_output_is_cut_and_says_so() {
        let ended = run(&shell("head -c 5000000 /dev/zero; head -c 3000000 /dev/zero >&2"));
        assert!(ended.stdout.len() < 70_000 && ended.stderr.len() < 70_000);
        let note = b"4934464 bytes left out";
        assert!(ended.stdout.windows(note.len()).any(|part| part == note));
    }

    #[test]
    fn a_failed_restriction_starts_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut confined = shell("echo > made");
        confined.folder = folder.path().into();
        let refused = Groups::new(None).run_confined(&confined, || anyhow::bail!("no sandbox"));
        assert_eq!(refused.unwrap_err().to_string(), "no sandbox");
        assert!(!folder.path().join("made").exists());
    }

    #[test]
    fn nothing_starts_after_the_end_of_all() {
        let groups = Groups::new(None);
        groups.end_all(Signal::TERM);
        assert!(groups.run_confined(&shell("exit 0"), || Ok(())).is_err());
    }
}
