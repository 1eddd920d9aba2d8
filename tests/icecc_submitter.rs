//! Links on a machine that is a node of its own farm, as iceccd has it by default, and nodes that never get ready, with
//! real daemons. What icecream wants here is done here or asked again, and no good farm is given up for it.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests start programs, and may panic

mod kit;

use std::time::Duration;

use kit::{Family, Folder, GOOD, Grid, Output, Submitter, note, skip_without_grid};
use rustix::process::Signal;

/// As iceccd is started by default.
const NODE_TOO: &str = "-m 2";
/// A dead farm costs at most so much, and what the jobs take here.
const DEAD: Duration = Duration::from_secs(11);

/// A link of so many jobs.
fn many(jobs: usize) -> Submitter {
    let folder = Folder::new();
    Family::compile_many(&folder, "o", &[], jobs);
    let objects: Vec<_> = (0..jobs).map(|n| format!("o/{}", Family::object(n))).collect();
    Submitter::of(folder, &objects.iter().map(|object| &**object).collect::<Vec<_>>())
}

/// All jobs ended well, more than half of them on nodes; says how many.
#[track_caller]
fn assert_most(what: &str, user: &Submitter, output: &Output) -> usize {
    note(what, output);
    let stats = user.stats();
    let farm = stats["places"]["farm"].as_u64().unwrap() as usize;
    assert!(2 * farm > user.jobs.file.jobs.len(), "{stats:#}{output}");
    assert!(!output.stderr.contains("not used any more"), "{output}");
    user.assert_made(farm, output);
    farm
}

#[test]
fn a_machine_that_is_a_node_too_uses_the_others() {
    skip_without_grid!();
    let grid = Grid::start_where(NODE_TOO, &[&format!("n1 {GOOD}"), &format!("n2 {GOOD}")]);
    let user = many(52);
    let link = |options: &[&str]| user.run(&grid, options).go().ok();
    // Before the environment is there, jobs are done here.
    let output = link(&["--local-jobs=1"]);
    note("a submitter that is a node, first link", &output);
    let farm = user.stats()["places"]["farm"].as_u64().unwrap();
    assert!(farm > 0 && !output.stderr.contains("not used any more"), "{output}");
    user.assert_made(farm as usize, &output);
    assert_most("a submitter that is a node, second link", &user, &link(&["--local-jobs=1"]));
    for options in [["--fallback=never", "--retries=2"], ["--fallback=never", "--farm-jobs=52"]] {
        let output = user.run(&grid, &options).limit(60).go();
        assert_all_or_the_cure(&format!("the same, {options:?}"), &user, &output);
    }
}

/// A scheduler offers an idle submitter before nodes that it knows better, and so a link's last job to nobody else:
/// where that may not run here, the link ends with the cure.
#[track_caller]
fn assert_all_or_the_cure(what: &str, user: &Submitter, output: &Output) {
    note(what, output);
    if output.status.success() {
        return user.assert_made(user.jobs.file.jobs.len(), output);
    }
    assert_eq!(output.status.code(), Some(4), "{output}");
    assert!(output.stderr.contains("iceccd -m 0"), "{output}");
}

#[test]
fn with_m_0_alone_no_job_is_refused() {
    skip_without_grid!();
    let grid = Grid::start_where("-m 0", &[&format!("n1 {GOOD}"), &format!("n2 {GOOD}")]);
    let user = many(52);
    let output = user.run(&grid, &["--fallback=never", "--farm-jobs=52"]).go().ok();
    note("a submitter with -m 0, 52 clients, first link", &output);
    assert_eq!(user.stats()["tool_local"], 0, "{output}");
    user.assert_made(52, &output);
}

#[test]
fn environments_that_are_still_being_installed_end_no_farm() {
    skip_without_grid!();
    let user = many(52);
    for options in ["--fallback=never", "--local-jobs=1"] {
        let grid = Grid::start_where(NODE_TOO, &[&format!("n1 {GOOD}")]);
        let running = user.run(&grid, &[options]).limit(60).start();
        grid.halt_before_it_has_installed("n1");
        std::thread::sleep(Duration::from_secs(5));
        grid.signal("n1", Signal::CONT);
        let output = running.wait();
        let what =
            format!("a node installs for 5 s while the scheduler offers the submitter, {options}");
        if options == "--fallback=never" {
            assert_all_or_the_cure(&what, &user, &output);
            continue;
        }
        let output = output.ok();
        note(&what, &output);
        let farm = user.stats()["places"]["farm"].as_u64().unwrap();
        assert!(user.stats()["tool_local"].as_u64() > Some(0), "nothing was refused: {output}");
        assert!(!output.stderr.contains("not used any more"), "{output}");
        user.assert_made(farm as usize, &output);
        let output = user.run(&grid, &["--local-jobs=1"]).go().ok();
        assert_most("the next link", &user, &output);
    }
}

#[test]
fn a_farm_whose_only_node_is_the_submitter() {
    skip_without_grid!();
    let why = "10.77.0.1:8765 knows no node that takes jobs for x86_64 but this machine";
    for (hub, nodes) in [(NODE_TOO, vec![]), (NODE_TOO, vec!["small - -m 2 --no-remote"])] {
        let grid = Grid::start_where(hub, &nodes);
        let user = Submitter::new();
        let output = user.run(&grid, &[]).go().ok().stderr_has(why);
        note(&format!("only the submitter, and {nodes:?}"), &output);
        assert!(output.took < DEAD, "{output}");
        user.assert_made(0, &output);
        user.run(&grid, &[]).go().ok().stderr_has("not asked again for ");
        user.forget();
        let output = user.run(&grid, &["--fallback=never"]).go().code(4).stderr_has(why);
        note("the same, --fallback never", &output);
        assert!(output.took < DEAD, "{output}");
        user.assert_nothing_left();
    }
}

#[test]
fn a_busy_farm_whose_scheduler_offers_the_submitter_instead() {
    skip_without_grid!();
    let grid = Grid::start_where(NODE_TOO, &["full 0 -m 2 --cache-limit 2000"]);
    let user = many(52);
    let output = user.run(&grid, &["--local-jobs=1"]).go().ok();
    note("nodes that are full for ever, made here", &output);
    assert!(output.took < DEAD + Duration::from_secs(5), "{output}");
    user.assert_made(0, &output);
    user.forget();
    let output = user.run(&grid, &["--fallback=never"]).go().code(4);
    note("nodes that are full for ever, --fallback never", &output);
    assert!(output.took < DEAD, "{output}");
    output.stderr_has("no host has taken a job for 8.0 s").stderr_has("iceccd -m 0");
    user.assert_nothing_left();
}

#[test]
fn a_node_that_takes_the_environment_and_never_installs_it() {
    skip_without_grid!();
    let grid = Grid::start(&[&format!("n1 {GOOD}")]);
    let user = Submitter::new();
    let running = user.run(&grid, &[]).start();
    grid.halt_before_it_has_installed("n1");
    let output = running.wait().ok().stderr_has("working here meanwhile");
    note("a node that never installs the environment, made here", &output);
    assert!(output.took < DEAD, "{output}");
    user.assert_made(0, &output);
    let output = user.run(&grid, &[]).go().ok().stderr_has("not asked again for ");
    user.assert_made(0, &output);
    // The scheduler still has it for one that installs, and nobody else.
    user.forget();
    let output = user.run(&grid, &["--fallback=never"]).go().code(4);
    note("the next link, --fallback never", &output);
    assert!(output.took < DEAD, "{output}");
    user.assert_nothing_left();
}

#[test]
fn a_node_that_takes_its_time_to_install_gets_what_is_left() {
    skip_without_grid!();
    let grid = Grid::start(&[&format!("n1 {GOOD}")]);
    let user = many(104);
    let running = user.run(&grid, &["--local-jobs=1"]).limit(60).start();
    grid.halt_before_it_has_installed("n1");
    std::thread::sleep(Duration::from_millis(9_500));
    grid.signal("n1", Signal::CONT);
    let output = running.wait().ok().stderr_has("working here meanwhile");
    note("a node that installs the environment in 10 s", &output);
    let farm = user.stats()["places"]["farm"].as_u64().unwrap();
    assert!((10..104).contains(&farm), "{output}");
    user.assert_made(farm as usize, &output);
    // What works is asked again at once.
    let output = user.run(&grid, &["--fallback=never"]).go().ok();
    user.assert_made(104, &output);
}
