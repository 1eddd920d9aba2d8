//! What befalls a farm of icecream in the middle of a link, with real daemons: nodes and the scheduler end, cables are cut,
//! environments vanish. The link ends right, or says why not.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests start programs, and may panic

mod kit;

use std::fs;
use std::io::Write;
use std::time::Duration;

use kit::{GOOD, Grid, MARK, Marked, Submitter, note, skip_without_grid, until};
use rustix::process::Signal;

/// The module whose job takes seconds.
const SLOW: &str = "slow.o.i";

#[test]
fn nodes_end_and_then_the_scheduler() {
    skip_without_grid!();
    let names = ["n1", "n2", "n3"].map(|name| format!("{name} {GOOD}"));
    let grid = Grid::start(&names.each_ref().map(|name| &**name));

    // Its daemon ends in order, and takes the job along: icecream's client does not try again.
    let user = Submitter::slow();
    let running = user.run(&grid, &["--fallback=never"]).start();
    let node = grid.node_of(SLOW, &user);
    grid.signal(&node, Signal::TERM);
    let output = running.wait().ok();
    note("a node that is stopped in mid-job, made on another", &output);
    user.assert_made(4, &output);
    assert!(user.stats()["retries"].as_u64() > Some(0), "{output}");

    // A killed one delivers what it has begun.
    let user = Submitter::slow();
    let running = user.run(&grid, &["--fallback=never"]).start();
    let node = grid.node_of(SLOW, &user);
    grid.signal(&node, Signal::KILL);
    let output = running.wait().ok();
    note("a node whose daemon is killed in mid-job", &output);
    user.assert_made(4, &output);

    // The jobs that have left are done; the others find no scheduler.
    for (options, code) in
        [(["--farm-jobs=1", "--fallback=local"], 0), (["--farm-jobs=1", "--fallback=never"], 4)]
    {
        let user = Submitter::slow();
        let running = user.run(&grid, &options).start();
        if code == 0 {
            grid.node_of(SLOW, &user);
            grid.signal("scheduler", Signal::KILL);
        }
        let output = running.wait().code(code);
        note(&format!("the scheduler killed in mid-link, {}", options[1]), &output);
        if code == 0 {
            user.assert_made(1, &output);
            assert!(user.stats()["tool_local"].as_u64() >= Some(3), "{output}");
        } else {
            output.stderr_has("would have run it on this machine");
            user.assert_nothing_left();
        }
    }
}

/// Nothing says so. icecream's client finds out by itself, and would then work here.
#[test]
fn a_cable_that_is_cut_in_mid_job() {
    skip_without_grid!();
    let grid = Grid::start(&[&format!("n1 {GOOD}")]);
    let user = Submitter::slow();
    let running = user.run(&grid, &["--retries=0"]).limit(100).start();
    grid.cut(&grid.node_of(SLOW, &user));
    let output = running.wait().ok();
    note("a cable that is cut in mid-job, made here", &output);
    assert!(user.stats()["tool_local"].as_u64() >= Some(1), "{output}");
    let farm = user.stats()["places"]["farm"].as_u64().unwrap();
    user.assert_made(farm as usize, &output);
}

#[test]
fn a_signal_ends_all_and_environments_vanish_or_are_damaged() {
    skip_without_grid!();
    // The environment is larger than all that the node wants to keep.
    let grid = Grid::start(&["n1 - -m 2 --cache-limit 10"]);
    let user = Submitter::slow();
    let output = user.run(&grid, &["--fallback=never"]).go().ok();
    note("a node whose cache is smaller than the environment", &output);
    user.assert_made(4, &output);

    no_client_no_pipe_and_no_folder_stays_after_a_signal(&grid);

    // One job, then the environment is gone, then the others.
    let running = user.run(&grid, &["--farm-jobs=1"]).start();
    let begun = grid.given("n1");
    until("the next link's first job", || grid.given("n1") > begun);
    let environments = grid.environments("n1");
    assert_eq!(environments.len(), 1);
    fs::rename(&environments[0], grid.folder.path("gone")).unwrap();
    let output = running.wait().ok();
    note("an environment that is evicted in mid-link", &output);
    let farm = user.stats()["places"]["farm"].as_u64().unwrap();
    user.assert_made(farm as usize, &output);
    fs::rename(grid.folder.path("gone"), &environments[0])
        .or_else(|_| fs::remove_dir_all(grid.folder.path("gone")))
        .unwrap();

    // Any job of the farm can write there.
    let user = Submitter::new();
    let output = user.run(&grid, &["--fallback=never"]).go().ok();
    user.assert_made(3, &output);
    let library = environments[0].join("opt/llvm/lib/libclang-cpp.so.22.1");
    fs::OpenOptions::new().append(true).open(library).unwrap().write_all(b"x").unwrap();
    for (fallback, code) in [("local", 0), ("never", 4)] {
        user.forget();
        let output = user.run(&grid, &[&format!("--fallback={fallback}")]).go().code(code);
        note(&format!("a damaged environment, --fallback={fallback}"), &output);
        let output = output.stderr_has("altered").stderr_has("--env-salt").stderr_has("n1");
        if code == 0 { user.assert_made(0, &output) } else { user.assert_nothing_left() }
    }
}

#[track_caller]
fn no_client_no_pipe_and_no_folder_stays_after_a_signal(grid: &Grid) {
    let ways = [(Signal::INT, true), (Signal::TERM, false), (Signal::KILL, false)];
    for (signal, whole_group) in ways {
        let (user, marked) = (Submitter::slow(), Marked::new());
        let running = user.run(grid, &[]).env(MARK, &marked.mark).start();
        grid.node_of(SLOW, &user);
        if whole_group {
            running.signal_group(signal)
        } else {
            running.signal(signal)
        }
        running.wait().killed_by(signal);
        marked.gone_within(Duration::from_secs(2));
        until("no file is left", || {
            !user.jobs.folder.list("").iter().any(|name| name.contains("dtlto-bridge"))
        });
        user.assert_nothing_left();
    }
}
