//! Whole links before caches that are dead, slow, full of damage or not there, and jobs that no cache may have: the link
//! is right every time, says once what is wrong, and loses no more time than it may.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests start programs, and may panic

mod kit;

use std::time::{Duration, Instant};

use dtlto_bridge::cache::client::GET_TIME;
use kit::stores::{Redis, User};
use kit::{Folder, Modules, Output, Run};
use kit::{bridge, bridge_path, link, skip_without, through_bridge, tool, until};
use rustix::process::Signal;
use serde_json::Value;

/// The three modules of a user.
struct Scene {
    user: User,
    folder: Folder,
    expected: Vec<u8>,
}

impl Scene {
    fn new(user: User) -> Self {
        let folder = Folder::new();
        Modules::compile(&folder, "", &[]);
        let objects = ["a.o", "b.o", "c.o"];
        link().args(objects).args(["-o", "app"]).cwd(folder.path("")).go().ok();
        let expected = folder.read("app");
        Scene { user, folder, expected }
    }

    /// Before `ccache` stands a script, in which `ccache` is the real one. It has not to say anything about itself.
    fn with_ccache(script: &str) -> Self {
        let mut scene = Scene::new(User::new());
        let real = tool("ccache").display().to_string();
        let asked =
            format!("ccache() {{ {real} \"$@\"; }}\ncase $1 in --*) ccache \"$@\"; exit ;; esac");
        scene.user.folder.script("bin/ccache", &format!("{asked}\n{script}"));
        let path = format!(
            "{}:{}",
            scene.user.folder.path("bin").display(),
            scene.user.environment["PATH"]
        );
        scene.user.environment.insert("PATH".into(), path);
        scene
    }

    fn run(&self, options: &[&str]) -> Run {
        let options = options.iter().map(|option| format!("-Xthinlto-distributor={option}"));
        let run = link()
            .args(["a.o", "b.o", "c.o", "-o", "app"])
            .args(through_bridge())
            .arg("-Xthinlto-distributor=--stats=stats.json")
            .args(options)
            .cwd(self.folder.path(""));
        self.user.environment.iter().fold(run, |run, (name, value)| run.env(name, value))
    }

    /// A link that is right.
    #[track_caller]
    fn link(&self, options: &[&str]) -> (Output, Value) {
        let output = self.run(options).go().ok();
        assert!(self.folder.read("app") == self.expected, "the program: {output}");
        (output, self.stats())
    }

    fn stats(&self) -> Value {
        serde_json::from_slice(&self.folder.read("stats.json")).unwrap()
    }
}

fn seconds(output: &Output) -> f64 {
    output.took.as_secs_f64()
}

/// The time of a link as it should be, and what a busy machine may add to any figure here.
const SLACK: f64 = 4.0;

#[test]
fn a_cache_that_hangs_costs_one_deadline() {
    skip_without!("clang-22", "ld.lld-22", "ccache");
    let scene = Scene::with_ccache("sleep 1000");
    let (output, stats) = scene.link(&["--cache=ccache"]);
    let (took, limit) = (seconds(&output), GET_TIME.as_secs_f64());
    assert!(limit <= took && took < limit + SLACK, "{output}");
    let output =
        output.stderr_has("ccache is not used any more in this link: it did not answer in time");
    assert_eq!(output.stderr.matches("not used any more").count(), 1, "{output}");
    let caching = &stats["caching"];
    assert_eq!((&caching["unanswered"], &caching["not_stored"]), (&3.into(), &3.into()));
    assert_eq!(stats["places"]["local"], 3);
    assert!(scene.user.marked.alive().is_empty());
}

/// After the last job there is 2 s for what is being stored.
#[test]
fn storing_that_hangs_delays_the_links_end_by_two_seconds() {
    skip_without!("clang-22", "ld.lld-22", "ccache");
    let scene = Scene::with_ccache("sleep 1000");
    let (output, stats) = scene.link(&["--cache=ccache", "--cache-mode=write"]);
    let took = seconds(&output);
    assert!((2.0..2.0 + SLACK).contains(&took), "{output}");
    assert_eq!(
        (&stats["caching"]["stored"], &stats["caching"]["not_stored"]),
        (&0.into(), &3.into())
    );
    output.stderr_has("3 objects are not stored in ccache: ").stderr_has("; stored 0, not 3");
    assert!(scene.user.marked.alive().is_empty());
}

/// Slow as it is, it has what is wanted.
#[test]
fn a_slow_cache_is_waited_for_by_all_jobs_at_once() {
    skip_without!("clang-22", "ld.lld-22", "ccache");
    let scene = Scene::with_ccache("sleep 1; ccache \"$@\"");
    scene.link(&["--cache=ccache"]);
    let (output, stats) = scene.link(&["--cache=ccache"]);
    assert_eq!(stats["places"]["cache"], 3, "{output}");
    assert!((1.0..1.0 + SLACK).contains(&seconds(&output)), "{output}");
}

#[test]
fn a_cache_that_fails_is_left_alone_and_says_why() {
    skip_without!("clang-22", "ld.lld-22", "ccache");
    let scene = Scene::with_ccache("echo 'no space' >&2; exit 1");
    let (output, stats) = scene.link(&["--cache=ccache"]);
    assert_eq!(stats["caching"]["unanswered"], 3, "{output}");
    let output = output.stderr_has("ccache is not used any more in this link: ");
    assert_eq!(output.stderr.matches("not used any more").count(), 1, "{output}");
}

#[test]
fn what_a_storage_gives_back_damaged_is_made_anew() {
    skip_without!("clang-22", "ld.lld-22", "sccache", "redis-server", "redis-cli");
    let redis = Redis::new();
    let scene = Scene::new(User::of_redis(redis.port));
    let cache = "--cache=sccache";
    assert_eq!(scene.link(&[cache]).1["caching"]["stored"], 3);
    redis.damage();
    let (output, stats) = scene.link(&[cache]);
    assert_eq!(stats["places"]["local"], 3, "{output}");
    let (output, stats) = scene.link(&[cache]);
    assert_eq!(stats["places"]["cache"], 3, "{output}");
}

#[test]
fn a_missing_tool_and_a_compiler_that_is_a_script_are_notices() {
    skip_without!("clang-22", "ld.lld-22", "ccache");
    let scene = Scene::new(User::new().with("PATH", "/usr/bin:/bin:/nowhere"));
    if kit::Run::new("/usr/bin/env")
        .args(["PATH=/usr/bin:/bin", "which", "ccache"])
        .go()
        .status
        .success()
    {
        kit::skip!("a ccache of the system is in the way");
    }
    let (output, stats) = scene.link(&["--cache=ccache"]);
    output.stderr_has("ccache is not used: ccache: no such program on PATH");
    assert_eq!((&stats["cache"], &stats["places"]["local"]), (&"ccache".into(), &3.into()));
    let lld = kit::Lld::new("exec clang-22 \"$@\"");
    let run = lld.link(&["--thinlto-distributor-arg=--cache=ccache"]).go().ok();
    run.stderr_has("ccache is not used: cannot tell which clang ").stderr_has("3 here");
}

#[test]
fn jobs_that_no_cache_may_have_are_counted_and_told_once() {
    skip_without!("clang-22", "ld.lld-22", "ccache");
    let scene = Scene::new(User::new());
    let split = "-Wl,--thinlto-remote-compiler-arg=-fstack-usage";
    for _ in 0..2 {
        let output = scene.run(&["--cache=ccache"]).arg(split).go().ok();
        let caching = &scene.stats()["caching"];
        assert_eq!((&caching["not_cacheable"], &caching["stored"]), (&3.into(), &0.into()));
        output.stderr_has("3 jobs are not cached: `-fstack-usage`: ");
    }
    let variable = scene.run(&["--cache=ccache"]).env("CCC_OVERRIDE_OPTIONS", "#+-fno-plt");
    variable.go().ok().stderr_has("ccache is not used: CCC_OVERRIDE_OPTIONS is set");
}

#[test]
fn sccache_before_sccache_is_a_usage_error() {
    let run = bridge().args(["--cache=sccache", "--adapter=sccache", "jobs.json"]).go().code(2);
    run.stderr_has("asks sccache twice");
}

/// In the middle of asking, and in the middle of storing.
#[test]
fn a_signal_ends_the_caches_tool_and_leaves_nothing() {
    skip_without!("clang-22", "ld.lld-22", "ccache");
    for mode in ["read", "write"] {
        let scene = Scene::with_ccache("sleep 1000");
        let run = scene.run(&["--cache=ccache", &format!("--cache-mode={mode}")]).start();
        let sleeps = || scene.user.marked.alive().iter().any(|process| process.argv[0] == "sleep");
        until("a call", sleeps);
        let began = Instant::now();
        run.signal_group(Signal::TERM);
        // The group is not killed before the bridge has written its statistics.
        until("the statistics", || scene.folder.path("stats.json").exists());
        run.wait();
        until("the end of all", || scene.user.marked.alive().is_empty());
        assert!(began.elapsed() < Duration::from_secs(3), "{mode}: {:?}", began.elapsed());
        // What is LLD's own it may not have had the time to remove.
        let ours = |name: &String| name.contains("dtlto-bridge") || name.ends_with(".native.o");
        let left: Vec<_> = scene.folder.list("").into_iter().filter(ours).collect();
        assert_eq!(left, [""; 0], "{mode}");
    }
}

/// The cache is asked while the bridge is killed: its guard ends the tool.
#[test]
fn the_bridge_killed_takes_the_caches_tool_along() {
    skip_without!("clang-22", "ld.lld-22", "ccache");
    let scene = Scene::with_ccache("sleep 1000");
    let run = scene.run(&["--cache=ccache"]).start();
    let found = |what: &str| {
        scene.user.marked.alive().into_iter().find(|process| process.argv[0].ends_with(what))
    };
    until("a call", || found("sleep").is_some());
    let bridge = found(bridge_path()).unwrap();
    rustix::process::kill_process(bridge.pid, Signal::KILL).unwrap();
    run.wait().code(1);
    until("the end of all", || scene.user.marked.alive().is_empty());
    assert!(!scene.folder.list("").iter().any(|name| name.contains("dtlto-bridge")));
}
