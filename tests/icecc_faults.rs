//! Farms of icecream of which nothing can be had, with real daemons or none: the bridge finds out soon, does not ask
//! again for a while, and no job is ever run here by icecream itself.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests start programs, and may panic

mod kit;

use std::time::Duration;

use kit::{GOOD, Grid, Output, Submitter, note, skip_without_grid, static_bridge};
use rustix::process::Signal;

/// A dead farm costs at most so much.
const DEAD: Duration = Duration::from_secs(10);

/// A link that finds nobody: made here, not asked again by the next one, and failed where nothing may run here.
#[track_caller]
fn assert_dead(what: &str, why: &str, link: impl Fn(&Submitter, &[&str]) -> Output) {
    let user = Submitter::new();
    let output = link(&user, &[]).ok().stderr_has(why).stderr_has("is not used any more");
    note(&format!("{what}, made here"), &output);
    assert!(output.took < DEAD + Duration::from_secs(1), "{output}");
    user.assert_made(0, &output);
    let output = link(&user, &[]).ok().stderr_has("not asked again for ");
    note(&format!("{what}, the next link"), &output);
    user.assert_made(0, &output);
    user.forget();
    let output = link(&user, &["--fallback=never"]).code(4).stderr_has(why);
    note(&format!("{what}, --fallback never"), &output);
    assert!(output.took < DEAD + Duration::from_secs(1), "{output}");
    user.assert_nothing_left();
}

#[test]
fn without_a_daemon() {
    skip_without_grid!();
    // The bridge in a network without anything.
    let link = |user: &Submitter, options: &[&str], socket: Option<&str>| {
        let run = kit::Run::new("unshare").args(["--net", "--mount", "sh", "-c"]);
        let run = run.arg("mount -t tmpfs tmpfs /run; cd \"$0\" && exec \"$@\"");
        let run = run.arg(user.jobs.folder.path("")).arg(static_bridge().as_ref().unwrap());
        let run = user.user(run).args(["--stats=stats.json", "--adapter=icecc"]);
        let run = run.args(options).arg(user.file());
        socket.into_iter().fold(run, |run, socket| run.env("ICECC_TEST_SOCKET", socket)).go()
    };
    let doctor = |user: &Submitter| {
        let run = kit::Run::new("unshare").args(["--net", "--mount", "sh", "-c"]);
        let run = run.arg("mount -t tmpfs tmpfs /run; exec \"$0\" \"$@\"");
        let run = user.user(run).arg(static_bridge().as_ref().unwrap());
        run.args(["doctor", "--adapter=icecc", "--compiler=clang-22"]).go().code(4)
    };
    let told = doctor(&Submitter::new());
    for text in [
        "FAIL daemon: /var/run/icecc/iceccd.socket: No such file",
        "next: start iceccd on this machine",
        "FAIL scheduler: this machine's daemon is connected to none",
        "FAIL a job of this machine does not get to a node: icecc would have run it on this machine",
    ] {
        assert!(told.stdout.contains(text), "{text}: {told}");
    }
    assert_dead("no daemon", "would have run it on this machine", |user, options| {
        link(user, options, None)
    });
    assert_dead("no daemon at ICECC_TEST_SOCKET", "no daemon at the socket", |user, options| {
        link(user, options, Some("/nonexistent/socket"))
    });
}

#[test]
fn without_a_scheduler_and_under_icecc_itself() {
    skip_without_grid!();
    let grid = Grid::start(&[&format!("n1 {GOOD}")]);
    // With all in order it does not matter who started the link.
    let user = Submitter::new();
    let under_icecc = |user: &Submitter| {
        let objects = ["a.o", "b.o", "c.o"];
        let bridge = static_bridge().as_ref().unwrap().display();
        let run = grid.among_daemons_in(&user.jobs.folder.path(""), "icecc");
        let run = user.user(run).arg(kit::tool("clang-22")).args(objects).args([
            "-o",
            "app",
            "-O2",
            "-flto=thin",
        ]);
        run.args(["-fuse-ld=lld-22", &format!("-fthinlto-distributor={bridge}")])
            .args(["-Xthinlto-distributor=--adapter=icecc,--stats=stats.json"])
            .go()
            .ok()
    };
    let output = under_icecc(&user).stderr_has("3 on icecc (1 host)");
    note("a link under icecc", &output);

    grid.signal("scheduler", Signal::KILL);
    assert_dead("no scheduler", "would have run it on this machine", |user, options| {
        user.run(&grid, options).go()
    });
    // The only slot of this machine is held by the link's own parent: a client would wait for it in vain.
    user.forget();
    let output = under_icecc(&user).stderr_has("itself was started by the farm's tool");
    note("a link under icecc without a scheduler, made here", &output);
    assert!(output.took < DEAD + Duration::from_secs(1), "{output}");
}

#[test]
fn nodes_that_are_full_or_too_small() {
    skip_without_grid!();
    let grid = Grid::start(&["full 0 -m 2 --cache-limit 2000"]);
    assert_dead(
        "a farm that is busy for ever",
        "no host has taken a job for 8.0 s",
        |user, options| user.run(&grid, options).go(),
    );
    drop(grid);
    let grid = Grid::start(&["small 300 -m 2 --cache-limit 2000"]);
    let user = Submitter::new();
    let output = user.run(&grid, &[]).go().ok().stderr_has("small");
    note("a node with too little memory, made here", &output);
    user.assert_made(0, &output);
    let output = user.run(&grid, &["--fallback=never"]).go().code(4).stderr_has("small");
    note("a node with too little memory, --fallback never", &output);
    user.assert_nothing_left();
}
