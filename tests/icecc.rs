//! Links on icecream's nodes, by real daemons: every job on a node that has no compiler, by the bridge's word and by
//! that of the daemons, and programs that are those of LLD in one process. They know nothing of faults.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests start programs, and may panic

mod kit;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use kit::{
    Family, Folder, GOOD, Grid, Output, Run, Submitter, assert_bridged, link, skip_without_grid,
    static_bridge,
};
use serde_json::Value;

/// What turns a link of clang into one on icecream's nodes, and nowhere else.
fn through(stats: &Folder) -> Vec<String> {
    let stats = format!("--stats={}", stats.path("stats.json").display());
    let options = ["--adapter=icecc", "--fallback=never", &stats];
    let given = options.iter().map(|option| format!("-Xthinlto-distributor={option}"));
    let bridge = static_bridge().as_ref().unwrap().display();
    [format!("-fthinlto-distributor={bridge}")].into_iter().chain(given).collect()
}

fn stats(folder: &Folder) -> Value {
    serde_json::from_slice(&folder.read("stats.json")).unwrap()
}

/// All `jobs` of a link were made by the nodes: the bridge and the daemons agree on how many each one made.
#[track_caller]
fn assert_all_agree(
    grid: &Grid,
    stats: &Value,
    given_before: [usize; 2],
    jobs: usize,
    output: &Output,
) {
    assert_bridged(output, jobs);
    assert_eq!(stats["places"]["farm"], jobs, "{stats:#}{output}");
    assert_eq!((&stats["places"]["local"], &stats["tool_local"]), (&0.into(), &0.into()));
    for (node, before) in ["n1", "n2"].into_iter().zip(given_before) {
        let made = stats["hosts"][node].as_u64().unwrap_or(0) as usize;
        assert!(made > 0, "{stats:#}");
        assert_eq!(grid.given(node) - before, made, "{node}: {}", grid.log(node));
    }
}

#[test]
fn a_program_of_52_modules_is_made_by_two_nodes_without_a_compiler() {
    skip_without_grid!();
    let grid = Grid::start(&[&format!("n1 {GOOD}"), &format!("n2 {GOOD}")]);
    for node in ["n1", "n2"] {
        for compiler in ["/usr/lib/llvm-22/bin/clang", "/usr/bin/clang-22", "/usr/bin/gcc"] {
            let found = grid.on_node(node, compiler).arg("--version").go();
            assert!(!found.status.success(), "{node} has a compiler: {found}");
        }
    }
    let (folder, jobs, user) = (Folder::new(), 52, Submitter::new());
    Family::compile_many(&folder, "o", &[], jobs);
    let objects: Vec<_> = (0..jobs).map(|n| format!("o/{}", Family::object(n))).collect();
    let link = |out| link().args(&objects).args(["-lstdc++", "-o", out]).cwd(folder.path(""));
    link("expected").go().ok();
    let bridged = |out: &str| {
        let run = grid.among_daemons_in(&folder.path(""), kit::tool("clang-22"));
        let run = user.user(run).args(["-O2", "-flto=thin", "-fuse-ld=lld-22"]);
        run.args(&objects).args(["-lstdc++", "-o", out]).args(through(&folder)).limit(120).go().ok()
    };
    let output = bridged("found").stderr_has("52 on icecc (2 hosts), 0 here; sent ");
    kit::note("52 modules, first link", &output);
    assert_all_agree(&grid, &stats(&folder), [0, 0], jobs, &output);
    assert!(folder.read("expected") == folder.read("found"), "the program");
    let code = Run::new(folder.path("found")).go().status.code();
    assert!((1..=128).contains(&code.unwrap()), "{code:?}");

    let (given, installed) =
        (["n1", "n2"].map(|n| grid.given(n)), ["n1", "n2"].map(|n| grid.installed(n)));
    assert_eq!(installed, [1, 1]);
    let output = bridged("again");
    kit::note("52 modules, second link", &output);
    assert_all_agree(&grid, &stats(&folder), given, jobs, &output);
    assert_eq!(
        ["n1", "n2"].map(|n| grid.installed(n)),
        installed,
        "an environment was shipped again"
    );
    assert!(fs::read(folder.path("again")).unwrap() == folder.read("found"));

    the_doctor_shows_nodes_and_sends_a_job(&grid, &user);
    links_at_once_with_different_compilers_never_mix(&grid);
}

#[track_caller]
fn the_doctor_shows_nodes_and_sends_a_job(grid: &Grid, user: &Submitter) {
    let run = grid.among_daemons(static_bridge().as_ref().unwrap());
    let output =
        user.user(run).args(["doctor", "--adapter=icecc", "--compiler=clang-22"]).go().ok();
    kit::note("the doctor", &output);
    let rows: Vec<Vec<&str>> =
        output.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    for (name, jobs) in [("n1", "0/2"), ("n2", "0/2"), ("hub", "0/0")] {
        let row = rows.iter().find(|row| row.first() == Some(&name));
        let row = row.unwrap_or_else(|| panic!("{name}: {output}"));
        assert_eq!((row[2], row[3], row[5]), ("x86_64", jobs, "43"), "{output}");
    }
    for text in [
        "ok   daemon: /var/run/icecc/iceccd.socket",
        "ok   scheduler: 10.77.0.1:8765",
        "ok   nodes: 2 for x86_64; links have up to 6 jobs in flight",
        "start nodes with --cache-limit 2000",
        "ok   a job of this machine ran on n",
    ] {
        assert!(output.stdout.contains(text), "{text}: {output}");
    }
}

/// Another compiler makes another environment; here it differs by a byte that nothing reads.
#[track_caller]
fn links_at_once_with_different_compilers_never_mix(grid: &Grid) {
    let (own, other) = (Submitter::new(), Folder::new());
    let clang = kit::tool("clang-22").canonicalize().unwrap();
    let copy = other.write("bin/clang", [fs::read(clang).unwrap(), b"x".to_vec()].concat());
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
    let mut others = Submitter::new();
    others.compiler(&copy);
    let [first, second] = [&own, &others].map(|user| user.run(grid, &["--fallback=never"]).start());
    for (user, running) in [(&own, first), (&others, second)] {
        let output = running.wait().ok();
        kit::note("one of two links with different compilers", &output);
        user.assert_made(3, &output);
    }
    let names: BTreeSet<_> = ["n1", "n2"]
        .iter()
        .flat_map(|node| grid.environments(node))
        .filter_map(|path| Some(path.file_name()?.to_owned()))
        .collect();
    assert_eq!(names.len(), 2, "{names:?}");
}

#[test]
fn the_farm_script_runs_a_command_where_nodes_are() {
    skip_without_grid!();
    let user = Submitter::new();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/farm");
    let command =
        "\"$0\" --adapter=icecc --fallback=never \"$1\" && ls \"$FARM_LOGS\" >logs && exit 7";
    let run = Run::new(script).args(["run", "icecc", "1", "--", "sh", "-c", command]);
    let run = user.user(run).arg(static_bridge().as_ref().unwrap()).arg(user.file());
    let output = run.cwd(user.jobs.folder.path("")).go().code(7);
    kit::note("scripts/farm with one node, and a link", &output);
    output.stderr_has("3 on icecc (1 host), 0 here");
    assert_eq!(user.jobs.folder.text("logs"), "hub\nn1\nscheduler\n");
}
