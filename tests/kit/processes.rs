//! Processes found by a mark in their environment, which all descendants of a marked one inherit,
//! and which they keep when their parent dies. It knows nothing of what they are.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// The variable that carries the mark.
pub(crate) const MARK: &str = "TEST_OF_DTLTO_BRIDGE";

/// All processes that carry one mark; they are killed when this is dropped.
pub(crate) struct Marked {
    pub(crate) mark: String,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) pid: Pid,
    pub(crate) argv: Vec<String>,
}

impl Marked {
    /// A mark that nobody else has.
    pub(crate) fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Marked { mark: format!("{}-{number}", std::process::id()) }
    }

    /// Those that are alive; a zombie has no environment and is not.
    pub(crate) fn alive(&self) -> Vec<Process> {
        let entry = format!("{MARK}={}", self.mark);
        let process = |name: String| {
            let pid = name.parse().ok().and_then(Pid::from_raw)?;
            let words = |file| Some(split(&fs::read(format!("/proc/{name}/{file}")).ok()?));
            words("environ")?.contains(&entry).then_some(())?;
            Some(Process { pid, argv: words("cmdline")? })
        };
        let all = fs::read_dir("/proc").unwrap().flatten();
        all.filter_map(|found| process(found.file_name().into_string().ok()?)).collect()
    }

    /// The compiler of a job that one of these, a worker, has started, as soon as there is one. It has no mark:
    /// workers keep their environment to themselves.
    #[track_caller]
    pub(crate) fn compiler(&self) -> Pid {
        let mut found = None;
        until("a compiler", || {
            let is_worker = |argv: &[String]| argv.iter().any(|arg| arg.ends_with("dtlto-worker"));
            let workers = self.alive().into_iter().filter(|process| is_worker(&process.argv));
            found = workers.flat_map(|worker| children(worker.pid)).find(|child| {
                let line = fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
                // It is asked who it is, too.
                String::from_utf8_lossy(&line).contains("-fthinlto-index")
            });
            found.is_some()
        });
        Pid::from_raw(found.unwrap()).unwrap()
    }

    /// The only one with a program whose path ends in `name`, and an argument that holds `argument`.
    #[track_caller]
    pub(crate) fn find(&self, name: &str, argument: &str) -> Pid {
        let is = |process: &Process| {
            process.argv.first().is_some_and(|program| program.ends_with(name))
                && process.argv.iter().any(|arg| arg.contains(argument))
        };
        let mut found: Vec<_> = self.alive().into_iter().filter(is).collect();
        assert!(found.len() == 1, "{name} {argument}: {found:?} of {:#?}", self.alive());
        found.remove(0).pid
    }

    /// Waits until none is left.
    #[track_caller]
    pub(crate) fn gone_within(&self, limit: Duration) {
        let begun = Instant::now();
        while !self.alive().is_empty() {
            assert!(begun.elapsed() < limit, "alive after {limit:?}: {:#?}", self.alive());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Marked {
    fn drop(&mut self) {
        for process in self.alive() {
            let _ = kill_process(process.pid, Signal::KILL);
        }
    }
}

fn children(parent: Pid) -> Vec<i32> {
    let tasks = fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let pids =
        |list: String| list.split(' ').filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>();
    lists.flat_map(pids).collect()
}

fn split(bytes: &[u8]) -> Vec<String> {
    bytes
        .split(|byte| *byte == 0)
        .filter(|word| !word.is_empty())
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect()
}

/// Waits until `true` comes back.
#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(30), "not within 30 s: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
