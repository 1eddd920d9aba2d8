//! Nothing outlives the linker: however LLD or the bridge end, within a second the bridge and all that
//! it started are gone, and so is every file that the link made. These tests send the signals; they
//! do not know how the bridge hears of them.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests start programs, and may panic

mod kit;

use std::time::{Duration, Instant};

use kit::{Jobs, Lld, MAKE, MARK, Marked, Run, Running, bridge_path, skip};
use kit::{skip_without, until};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// The promise is one second; the rest is for a machine that is busy with other tests.
const SOON: Duration = Duration::from_secs(2);

/// Compiles the first module at once and takes its time with the others.
const SLOW: &str = r#"echo > "$ROOT/started/$$"
case " $* " in *" a.o "*) ;; *) WAIT ;; esac
exec clang-22 "$@""#;

/// A link by LLD whose processes are all marked.
struct Link {
    lld: Lld,
    marked: Marked,
}

impl Link {
    /// `wait` is what the compiler does before the second and third module; `$ROOT` is the folder.
    fn new(wait: &str) -> Self {
        let lld = Lld::new(&SLOW.replace("WAIT", wait));
        lld.folder.mkdir("started");
        Link { lld, marked: Marked::new() }
    }

    /// The linker's command behind the words of `before`, with this distributor.
    fn command(&self, before: &[&str], distributor: &str) -> Run {
        self.lld.command(before, distributor).env(MARK, &self.marked.mark)
    }

    /// Starts the link, and waits until one object is there and the other two are being made.
    fn start(&self) -> Running {
        let running = self.command(&[], bridge_path()).start();
        self.await_middle();
        running
    }

    fn await_middle(&self) {
        until("three compilers", || self.lld.folder.list("started").len() == 3);
        let delivered = |name: &String| name.ends_with(".native.o") && !name.contains('/');
        until("an object", || self.lld.folder.list("link").iter().any(delivered));
    }

    fn linker(&self) -> Pid {
        self.marked.find("ld.lld-22", "--thinlto-distributor=")
    }

    fn bridge(&self) -> Pid {
        self.marked.find("dtlto-bridge", ".dist-file.json")
    }

    /// Everything is gone, and everything is as it was.
    #[track_caller]
    fn left_nothing(&self) {
        self.marked.gone_within(SOON);
        assert_eq!(self.lld.folder.list("link"), self.lld.before);
    }

    /// Everything of ours is gone. LLD, if it is killed, leaves its own files.
    #[track_caller]
    fn left_only_what_is_lld_s(&self) {
        self.marked.gone_within(SOON);
        let lld_s = |name: &String| name.ends_with(".json") || name.ends_with(".thinlto.bc");
        let left: Vec<_> =
            self.lld.folder.list("link").into_iter().filter(|name| !lld_s(name)).collect();
        assert_eq!(left, self.lld.before);
    }
}

const SIGNALS: [Signal; 4] = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT];

#[test]
fn a_signal_to_the_bridge_ends_the_link() {
    skip_without!("clang-22", "ld.lld-22");
    for signal in SIGNALS {
        let link = Link::new("sleep 60");
        let lld = link.start();
        kill_process(link.bridge(), signal).unwrap();
        link.left_nothing();
        lld.wait().code(1).stderr_has("DTLTO backend compilation: distributor execution failed");
    }
}

#[test]
fn a_signal_to_lld_ends_the_bridge() {
    skip_without!("clang-22", "ld.lld-22");
    for signal in SIGNALS {
        let link = Link::new("sleep 60");
        let lld = link.start();
        kill_process(link.linker(), signal).unwrap();
        link.left_nothing();
        assert!(!lld.wait().status.success());
    }
}

#[test]
fn a_signal_to_the_whole_group_ends_everything() {
    skip_without!("clang-22", "ld.lld-22");
    for signal in SIGNALS {
        let link = Link::new("sleep 60");
        let lld = link.start();
        kill_process_group(lld.pid(), signal).unwrap();
        link.left_nothing();
    }
}

#[test]
fn compilers_that_ignore_signals_are_killed() {
    skip_without!("clang-22", "ld.lld-22");
    let link = Link::new("trap '' TERM INT HUP QUIT; sleep 60");
    let lld = link.start();
    kill_process_group(lld.pid(), Signal::INT).unwrap();
    link.left_nothing();
}

#[test]
fn grandchildren_go_too() {
    skip_without!("clang-22", "ld.lld-22");
    let link = Link::new("trap '' TERM; (sleep 60 & sleep 60 & wait) & sleep 60");
    let _lld = link.start();
    kill_process(link.linker(), Signal::TERM).unwrap();
    link.left_nothing();
}

#[test]
fn grandchildren_in_groups_of_their_own_go_too() {
    skip_without!("clang-22", "ld.lld-22", "perl");
    const WAIT: &str = "perl -e 'setpgrp; sleep 60' & sleep 60";
    for target in [Link::linker, Link::bridge] {
        for signal in [Signal::TERM, Signal::KILL] {
            let link = Link::new(WAIT);
            let _lld = link.start();
            kill_process(target(&link), signal).unwrap();
            link.left_only_what_is_lld_s();
        }
    }
}

/// One signal leaves compilers 300 ms to end by themselves. A busy machine may be slow now and then,
/// but not five times.
#[test]
fn a_second_signal_ends_it_at_once() {
    skip_without!("clang-22");
    let took = |_| {
        let jobs = Jobs::new(1, "trap '' TERM\necho > started; sleep 60");
        let bridge = jobs.run(&[]).start();
        until("a compiler", || jobs.folder.path("started").exists());
        let begun = Instant::now();
        for _ in 0..2 {
            kill_process(bridge.pid(), Signal::TERM).unwrap();
            std::thread::sleep(Duration::from_millis(20));
        }
        bridge.wait().killed_by(Signal::TERM);
        begun.elapsed()
    };
    let all: Vec<_> = (0..5).map(took).collect();
    assert!(all.iter().any(|took| *took < Duration::from_millis(250)), "{all:?}");
}

#[test]
fn lld_killed_ends_the_bridge() {
    skip_without!("clang-22", "ld.lld-22");
    let link = Link::new("sleep 60");
    let lld = link.start();
    kill_process(link.linker(), Signal::KILL).unwrap();
    link.left_only_what_is_lld_s();
    lld.wait().killed_by(Signal::KILL);
}

#[test]
fn the_bridge_killed_takes_its_compilers_along() {
    skip_without!("clang-22", "ld.lld-22");
    let link = Link::new("trap '' TERM; sleep 60 & sleep 60");
    let lld = link.start();
    kill_process(link.bridge(), Signal::KILL).unwrap();
    link.left_nothing();
    lld.wait().code(1);
}

#[test]
fn lld_and_the_bridge_killed_together_leave_nothing_of_ours() {
    skip_without!("clang-22", "ld.lld-22");
    let link = Link::new("trap '' TERM; sleep 60 & sleep 60");
    let lld = link.start();
    kill_process_group(lld.pid(), Signal::KILL).unwrap();
    link.left_only_what_is_lld_s();
}

/// Of the bridge alone: LLD 22 deletes its files on a hangup even where hangups are ignored.
#[test]
fn a_bridge_that_was_told_to_ignore_hangups_does() {
    skip_without!("clang-22");
    let wait = "echo > started; until test -e go; do sleep 0.02; done\n";
    let jobs = Jobs::new(1, &format!("{wait}{MAKE}"));
    let bridge = Run::new("sh")
        .args(["-c", "trap '' HUP; exec \"$@\"", "sh", bridge_path(), "jobs.json"])
        .cwd(jobs.folder.path(""))
        .start();
    until("a compiler", || jobs.folder.path("started").exists());
    kill_process(bridge.pid(), Signal::HUP).unwrap();
    // Long enough for a bridge that heard of it to have ended its compiler.
    std::thread::sleep(Duration::from_millis(100));
    jobs.folder.write("go", "");
    bridge.wait().ok();
    assert_eq!(jobs.made(), ["go", "m0.native.o", "started"]);
}

#[test]
fn lld_as_process_1_of_a_container_links_right() {
    skip_without!("clang-22", "ld.lld-22", "unshare");
    let contained = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"];
    let possible = Run::new("unshare").args(&contained[1..]).arg("true").go();
    if !possible.status.success() {
        skip!("no PID namespaces here: {possible}");
    }
    let link = Link::new(":");
    link.command(&[], bridge_path()).go().ok();
    let expected = link.lld.folder.read("link/app");
    std::fs::remove_file(link.lld.folder.path("link/app")).unwrap();
    link.command(&contained, bridge_path()).go().ok().stderr_has("3 jobs in");
    assert!(link.lld.folder.read("link/app") == expected, "the programs differ");
    link.marked.gone_within(SOON);
}

#[test]
fn a_script_between_lld_and_the_bridge_does_not_hide_lld_s_end() {
    skip_without!("clang-22", "ld.lld-22");
    for signal in [&SIGNALS[..], &[Signal::KILL]].concat() {
        let link = Link::new("sleep 60");
        let script = format!("\"{}\" \"$@\"\nexit $?", bridge_path());
        let script = link.lld.folder.script("distributor", &script).display().to_string();
        let _lld = link.command(&[], &script).start();
        link.await_middle();
        kill_process(link.linker(), signal).unwrap();
        link.left_only_what_is_lld_s();
        assert!(signal == Signal::KILL || link.lld.folder.list("link") == link.lld.before);
    }
}

#[test]
fn a_link_through_a_script_that_nobody_disturbs_ends_well() {
    skip_without!("clang-22", "ld.lld-22");
    let link = Link::new(":");
    let script = format!("\"{}\" \"$@\"\nexit $?", bridge_path());
    let script = link.lld.folder.script("distributor", &script).display().to_string();
    link.command(&[], &script).go().ok();
    assert!(link.lld.folder.path("link/app").exists());
}

#[test]
fn stats_are_written_on_a_signal_too() {
    skip_without!("clang-22", "ld.lld-22");
    let link = Link::new("sleep 60");
    let stats = link.lld.folder.path("stats.json");
    let option = format!("--thinlto-distributor-arg=--stats={}", stats.display());
    let lld = link.command(&[], bridge_path()).arg(option).start();
    link.await_middle();
    kill_process(link.bridge(), Signal::TERM).unwrap();
    link.left_nothing();
    let stats: serde_json::Value =
        serde_json::from_slice(&link.lld.folder.read("stats.json")).unwrap();
    assert_eq!(stats["signal"], 15, "{}", lld.wait());
    assert_eq!((&stats["jobs"], &stats["failed"]), (&3.into(), &2.into()), "{stats:#}");
    let records = stats["records"].as_array().unwrap().iter();
    let mut outcomes: Vec<_> = records.map(|record| record["outcome"].to_string()).collect();
    outcomes.sort();
    assert_eq!(outcomes, [r#""cancelled""#, r#""cancelled""#, r#""done""#], "{stats:#}");
}
