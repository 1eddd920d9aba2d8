//! Programs run under a time limit, in a process group of their own that ends with them. It does
//! not know any of them.

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// A command line in the making.
pub(crate) struct Run {
    command: Command,
    limit: Duration,
}

impl Run {
    pub(crate) fn new(program: impl AsRef<OsStr>) -> Self {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("DTLTO_BRIDGE_") || ["MAKEFLAGS", "MFLAGS"].contains(&&*text) {
                command.env_remove(&name);
            }
        }
        // Another link of this user, on the same machine, has fewer and cannot take them all.
        command.env("DTLTO_BRIDGE_LOCAL_JOBS", "16");
        command.stdin(Stdio::null());
        Run { command, limit: Duration::from_secs(60) }
    }

    pub(crate) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    pub(crate) fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.command.args(args);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Starts it without any variable.
    pub(crate) fn env_clear(mut self) -> Self {
        self.command.env_clear();
        self
    }

    pub(crate) fn env_remove(mut self, name: &str) -> Self {
        self.command.env_remove(name);
        self
    }

    /// The directory to run in.
    pub(crate) fn cwd(mut self, folder: impl AsRef<Path>) -> Self {
        self.command.current_dir(folder);
        self
    }

    /// The same command behind `words`, which start it.
    pub(crate) fn within(self, words: &[&str]) -> Self {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).arg(self.command.get_program()).args(self.command.get_args());
        for (name, value) in self.command.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if let Some(folder) = self.command.get_current_dir() {
            command.current_dir(folder);
        }
        command.stdin(Stdio::null());
        Run { command, ..self }
    }

    /// How long it may take; 60 seconds where nothing is said.
    pub(crate) fn limit(mut self, seconds: u64) -> Self {
        self.limit = Duration::from_secs(seconds);
        self
    }

    /// Starts it. It prints to files, so that a grandchild that holds them open holds nobody up.
    #[track_caller]
    pub(crate) fn start(mut self) -> Running {
        let [stdout, stderr] = [(); 2].map(|()| tempfile::tempfile().unwrap());
        self.command.stdout(stdout.try_clone().unwrap()).stderr(stderr.try_clone().unwrap());
        let line = self.line();
        let begun = Instant::now();
        let child = self.command.process_group(0).spawn().unwrap_or_else(|e| panic!("{line}: {e}"));
        Running { child, stdout, stderr, line, begun, limit: self.limit }
    }

    /// Runs it to its end.
    #[track_caller]
    pub(crate) fn go(self) -> Output {
        self.start().wait()
    }

    /// The command as a shell would take it.
    fn line(&self) -> String {
        let words = std::iter::once(self.command.get_program()).chain(self.command.get_args());
        let line = shell_words::join(words.map(OsStr::to_string_lossy));
        match self.command.get_current_dir() {
            Some(folder) => format!("cd {} && {line}", folder.display()),
            None => line,
        }
    }
}

/// A program that runs, and whose process group is killed when this is dropped.
pub(crate) struct Running {
    child: Child,
    stdout: File,
    stderr: File,
    line: String,
    begun: Instant,
    limit: Duration,
}

impl Running {
    /// The process, which leads a group of the same number.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Sends a signal to this process alone.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Sends a signal to all of its group, as a terminal does.
    pub(crate) fn signal_group(&self, signal: Signal) {
        kill_process_group(self.pid(), signal).unwrap();
    }

    /// What it has printed on stdout so far.
    pub(crate) fn stdout(&mut self) -> String {
        text(&mut self.stdout)
    }

    /// What it has printed on stderr so far.
    pub(crate) fn stderr(&mut self) -> String {
        text(&mut self.stderr)
    }

    /// Waits for its end, and panics when that takes too long.
    #[track_caller]
    pub(crate) fn wait(mut self) -> Output {
        loop {
            let status = self.child.try_wait().unwrap();
            let took = self.begun.elapsed();
            if status.is_some() || took > self.limit {
                let (stdout, stderr) = (text(&mut self.stdout), text(&mut self.stderr));
                let line = std::mem::take(&mut self.line);
                let output =
                    Output { line, status: status.unwrap_or_default(), stdout, stderr, took };
                assert!(status.is_some(), "not done after {:?}: {output}", self.limit);
                return output;
            }
            std::thread::sleep(Duration::from_millis(3));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Gone already, most often: then there is no such group.
        let _ = kill_process_group(self.pid(), Signal::KILL);
        let _ = self.child.wait();
    }
}

fn text(file: &mut File) -> String {
    let mut bytes = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// How a program ended. All asserts show the whole of it, and return it for the next.
pub(crate) struct Output {
    pub(crate) line: String,
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) took: Duration,
}

impl Output {
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        self.code(0)
    }

    #[track_caller]
    pub(crate) fn code(self, code: i32) -> Self {
        assert!(self.status.code() == Some(code), "expected exit code {code}: {self}");
        self
    }

    #[track_caller]
    pub(crate) fn killed_by(self, signal: Signal) -> Self {
        let expected = Some(signal.as_raw());
        assert!(self.status.signal() == expected, "expected an end by {signal:?}: {self}");
        self
    }

    #[track_caller]
    pub(crate) fn stderr_has(self, text: &str) -> Self {
        assert!(self.stderr.contains(text), "expected on stderr: {text}\n{self}");
        self
    }

    #[track_caller]
    pub(crate) fn stderr_lacks(self, text: &str) -> Self {
        assert!(!self.stderr.contains(text), "not expected on stderr: {text}\n{self}");
        self
    }

    #[track_caller]
    pub(crate) fn stdout_lacks(self, text: &str) -> Self {
        assert!(!self.stdout.contains(text), "not expected on stdout: {text}\n{self}");
        self
    }

    #[track_caller]
    pub(crate) fn stdout_is(self, text: &str) -> Self {
        assert!(self.stdout == text, "expected on stdout: {text}\n{self}");
        self
    }
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Output { line, status, stdout, stderr, took } = self;
        write!(
            f,
            "\n$ {line}\n{status} after {took:.2?}\n-- stdout\n{stdout}\n-- stderr\n{stderr}\n"
        )
    }
}
