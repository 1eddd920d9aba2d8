//! Links on distcc's hosts, by real daemons: every job on a host, by the bridge's word and by that of the daemons
//! and workers, and programs that are those of LLD in one process. They know nothing of faults.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests start programs, and may panic

mod kit;

use kit::{
    Client, Family, Folder, Host, Output, Run, assert_bridged, bridge_path, link, skip_without,
};
use serde_json::Value;

/// What turns a link of clang into one on distcc's hosts, and nowhere else.
fn through(stats: &Folder) -> Vec<String> {
    let stats = format!("--stats={}", stats.path("stats.json").display());
    let options = ["--adapter=distcc", "--fallback=never", &stats];
    let given = options.iter().map(|option| format!("-Xthinlto-distributor={option}"));
    [format!("-fthinlto-distributor={}", bridge_path())].into_iter().chain(given).collect()
}

fn stats(folder: &Folder) -> Value {
    serde_json::from_slice(&folder.read("stats.json")).unwrap()
}

/// All `jobs` of the last link were made by `hosts`: the bridge, the daemons and the workers agree on how many
/// each one made.
#[track_caller]
fn assert_all_agree(stats: &Value, hosts: &[&Host], jobs: usize, output: &Output) {
    assert_bridged(output, jobs);
    assert_eq!(stats["places"]["farm"], jobs, "{stats:#}{output}");
    assert_eq!((&stats["places"]["local"], &stats["tool_local"]), (&0.into(), &0.into()));
    let mut sum = 0;
    for host in hosts {
        let made = stats["hosts"][&host.name].as_u64().unwrap_or(0) as usize;
        // The daemon has answered one probe, too.
        assert_eq!(host.served(), made + 1, "{}: {}{stats:#}", host.name, host.log());
        assert_eq!(host.worked().len(), made, "{:#?}", host.worked());
        sum += made;
    }
    assert_eq!(sum, jobs, "{stats:#}");
}

#[test]
fn a_program_of_52_modules_is_made_by_three_daemons() {
    skip_without!("clang-22", "ld.lld-22", "distcc", "distccd");
    let (folder, home, jobs) = (Folder::new(), Folder::new(), 52);
    Family::compile_many(&folder, "o", &[], jobs);
    let objects: Vec<_> = (0..jobs).map(|n| format!("o/{}", Family::object(n))).collect();
    let link = |out| link().args(&objects).args(["-lstdc++", "-o", out]).cwd(folder.path(""));
    link("expected").go().ok();
    let hosts = [Host::new(), Host::new(), Host::new()];
    let names: Vec<_> = hosts.iter().map(Host::entry).collect();
    let run = Client::user(&home, link("found").args(through(&folder)));
    let output = run.env("DISTCC_HOSTS", names.join(" ")).go().ok().stderr_has("52 on distcc (3 hosts), 0 here; sent ");
    let stats = stats(&folder);
    assert_all_agree(&stats, &hosts.each_ref(), jobs, &output);
    assert!(hosts.iter().all(|host| !host.worked().is_empty()), "{stats:#}");
    assert!(folder.read("expected") == folder.read("found"), "the program");
    let code = Run::new(folder.path("found")).go().status.code();
    assert!((1..=128).contains(&code.unwrap()), "{code:?}");
    let modules: std::collections::BTreeSet<_> = hosts
        .iter()
        .flat_map(|host| host.worked())
        .map(|line| line["module"].to_string())
        .collect();
    assert_eq!(modules.len(), jobs);
}
