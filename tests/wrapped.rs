//! A link whose jobs run under a tool that wraps the bridge, ib_console, or rather its emulator: one start of the tool, and
//! the same ends as without it.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests start programs, and may panic

mod kit;

use std::time::Duration;

use kit::{Incredibuild, Jobs, MAKE, MARK, Marked, Output, Run, skip_without, until};
use rustix::process::Signal;

/// The entries that users need; see `adapters/README.md`.
const PROFILE: &str = r#"<ib_profile><processes>
    <process filename="dtlto-bridge" type="intercepted"/>
    <process filename="compiler" type="allow_remote"><ib_cache enabled="false"/></process>
</processes></ib_profile>"#;

struct Wrapped {
    jobs: Jobs,
    ib: Incredibuild,
}

impl Wrapped {
    fn new(count: usize, compiler: &str) -> Wrapped {
        let wrapped =
            Wrapped { jobs: Jobs::new(count, compiler), ib: Incredibuild::new("ib_console") };
        wrapped.ib.folder.write("home/.ib/ib_profile.xml", PROFILE);
        wrapped
    }

    fn run(&self, options: &[&str]) -> Run {
        let run =
            kit::bridge().args(["--adapter=ib_console", "--stats=stats.json", "--local-jobs=2"]);
        let run = run.args(options).arg("jobs.json").cwd(self.jobs.folder.path(""));
        self.ib.seen_by(run).env("HOME", self.ib.folder.path("home"))
    }

    #[track_caller]
    fn go(&self, fault: &str, options: &[&str]) -> Output {
        self.run(options).env("FAKE_IB_CONSOLE", fault).go()
    }
}

#[test]
fn the_bridge_runs_once_under_the_tool_with_many_jobs_at_once() {
    skip_without!("clang-22");
    // Each waits for all the others; --local-jobs would not let them.
    let meet = "echo \"$FAKE_IB_REMOTE\" > \"here.$$\"; until [ $(ls here.* | wc -l) = 8 ]; do sleep 0.01; done\n";
    let wrapped = Wrapped::new(8, &format!("{meet}{MAKE}"));
    let output = wrapped.go("", &[]).ok().stdout_is("");
    assert_eq!(output.stderr.matches("dtlto-bridge: 8 jobs in ").count(), 1, "{output}");
    output.stderr_has("8 here");
    let calls = wrapped.ib.lines("wrapped");
    assert_eq!(calls.len(), 1, "{calls:?}");
    let call = &calls[0];
    assert!(call.starts_with("dtlto-bridge true\t--no-monitor\t-c\tDTLTO app\t--\t/"), "{call}");
    assert!(call.ends_with("\tjobs.json"), "{call}");
    let stats = wrapped.jobs.stats();
    assert_eq!((&stats["adapter"], &stats["places"]["local"]), (&"ib_console".into(), &8.into()));
    let mut made = wrapped.jobs.made();
    made.retain(|name| {
        let by_us = !name.starts_with("here.");
        assert!(by_us || wrapped.jobs.folder.text(name).contains("compiler"), "not sent away");
        by_us
    });
    assert_eq!(made, wrapped.jobs.objects());
}

#[test]
fn a_tool_that_fails_is_told_of_and_the_jobs_run_here() {
    skip_without!("clang-22");
    for (fault, words) in [
        ("coordinator", "Cannot access coordinator"),
        ("coordinator", "ib_console is not used: it exited with 255; working here"),
        ("deaf", "ib_console is not used: it exited with 0; working here"),
        ("killed", "working here"),
    ] {
        let wrapped = Wrapped::new(3, &format!("sleep 0.5\n{MAKE}"));
        let output = wrapped.go(fault, &[]).ok().stderr_has(words).stdout_is("");
        assert_eq!(wrapped.jobs.made(), wrapped.jobs.objects(), "{fault} {output}");
        assert_eq!(wrapped.jobs.stats()["places"]["local"], 3);
    }
    let absent = Jobs::new(2, MAKE);
    let output = absent.run(&["--adapter=ib_console"]).go().ok();
    output.stderr_has("ib_console: no such program on PATH; working here");
}

#[test]
fn a_job_that_fails_under_the_tool_only_does_not_break_the_link() {
    skip_without!("clang-22");
    let there =
        format!("test -n \"$FAKE_IB_REMOTE\" && {{ echo 'a: error: no' >&2; exit 1; }}\n{MAKE}");
    let wrapped = Wrapped::new(2, &there);
    let output = wrapped.go("", &[]).ok().stderr_lacks("a: error: no");
    output.stderr_has("a job failed under ib_console; working here");
}

#[test]
fn a_compilers_error_is_told_once() {
    skip_without!("clang-22");
    let wrapped = Wrapped::new(1, "echo 'a: error: no' >&2; exit 1");
    let output = wrapped.go("", &[]).code(1);
    assert_eq!(output.stderr.matches("a: error: no").count(), 1, "{output}");
    assert_eq!(output.stderr.matches("to repeat it: ").count(), 1, "{output}");
}

#[test]
fn a_tool_that_proves_nothing_cannot_promise_that_nothing_runs_here() {
    skip_without!("clang-22");
    let wrapped = Wrapped::new(1, MAKE);
    wrapped.go("", &["--fallback=never"]).code(2).stderr_has("does not tell where a job ran");
    assert!(wrapped.ib.lines("wrapped").is_empty());
}

#[test]
fn a_signal_or_the_end_of_the_outer_bridge_ends_all() {
    skip_without!("clang-22");
    for signal in [Signal::TERM, Signal::KILL] {
        let wrapped = Wrapped::new(3, "touch \"started.$$\"; sleep 60");
        let marked = Marked::new();
        let link = wrapped.run(&[]).env(MARK, &marked.mark).start();
        let started = |name: &String| name.starts_with("started.");
        until("three jobs", || {
            wrapped.jobs.made().iter().filter(|name| started(name)).count() == 3
        });
        link.signal(signal);
        link.wait().killed_by(signal);
        marked.gone_within(Duration::from_secs(3));
        let mut left = wrapped.jobs.made();
        left.retain(|name| !started(name));
        assert_eq!(left, [""; 0], "{signal:?}");
    }
}

#[test]
fn the_doctor_asks_for_the_licence() {
    skip_without!("clang-22");
    let ib = Incredibuild::new("ib_console");
    let doctor = || ib.seen_by(kit::bridge().args(["doctor", "--adapter", "ib_console"]));
    let output = doctor().go().ok();
    assert!(output.stdout.contains("--check-license: License is valid"), "{output}");
    let output = doctor().env("FAKE_IB_CONSOLE", "coordinator").go().code(4);
    assert!(output.stdout.contains("start incredibuild_coordinator"), "{output}");
}
