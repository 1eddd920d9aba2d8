//! Links on distcc's hosts, by real daemons: every job on a host, by the bridge's word and by that of the daemons
//! and workers, and programs that are those of LLD in one process. They know nothing of faults.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests start programs, and may panic

mod kit;

use std::collections::BTreeSet;
use std::fs;
use std::thread;

use kit::{
    Client, Family, Folder, Host, Run, SLOTS, assert_all_agree, free_port, link, note,
    skip_without, through_distcc,
};
use serde_json::Value;

fn stats(folder: &Folder) -> Value {
    serde_json::from_slice(&folder.read("stats.json")).unwrap()
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
    let run = Client::user(&home, link("found").args(through_distcc(&folder)));
    let output = run
        .env("DISTCC_HOSTS", names.join(" "))
        .go()
        .ok()
        .stderr_has("52 on distcc (3 hosts), 0 here; sent ");
    let stats = stats(&folder);
    assert_all_agree(&stats, &hosts.each_ref(), jobs, &output);
    assert!(hosts.iter().all(|host| !host.worked().is_empty()), "{stats:#}");
    assert!(folder.read("expected") == folder.read("found"), "the program");
    let code = Run::new(folder.path("found")).go().status.code();
    assert!((1..=128).contains(&code.unwrap()), "{code:?}");
    let modules: BTreeSet<_> = hosts
        .iter()
        .flat_map(|host| host.worked())
        .map(|line| line["module"].to_string())
        .collect();
    assert_eq!(modules.len(), jobs);
}

/// Bytes of modules that the jobs of the last link read on each host that made them, each module once a host.
fn needed(client: &Client) -> u64 {
    let stats = client.stats();
    let records = stats["records"].as_array().unwrap().iter().zip(&client.jobs.file.jobs);
    let mut needed = BTreeSet::new();
    for (record, job) in records {
        let modules = job.imports.iter().chain([&job.primary]);
        needed.extend(modules.map(|module| (record["host"].to_string(), module.to_string())));
    }
    let size = |(_, module): &(String, String)| {
        fs::metadata(client.jobs.folder.path(module)).unwrap().len()
    };
    needed.iter().map(size).sum()
}

/// As many jobs at once as hosts have slots read the same modules: each goes to a host once.
#[test]
fn a_module_goes_to_a_host_once() {
    skip_without!("clang-22", "ld.lld-22", "distcc", "distccd");
    const SLOTS: usize = 8;
    let folder = Folder::new();
    Family::compile_many(&folder, "o", &[], 52);
    let objects: Vec<_> = (0..52).map(|n| format!("o/{}", Family::object(n))).collect();
    let objects: Vec<_> = objects.iter().map(String::as_str).collect();
    let mut client = Client::of(folder, &objects, &["-lstdc++"]);
    for count in [1, 3] {
        client.forget();
        let hosts: Vec<_> = (0..count).map(|_| Host::with(|host| host.jobs = SLOTS)).collect();
        let entries: Vec<_> = hosts.iter().map(|host| format!("{}/{SLOTS}", host.name)).collect();
        let entries: Vec<_> = entries.iter().map(String::as_str).collect();
        let output = client.run(&entries, &["--fallback=never"]).go().ok();
        let (stats, needed) = (client.stats(), needed(&client));
        assert_all_agree(&stats, &hosts.iter().collect::<Vec<_>>(), 52, &output);
        let sent = stats["bytes"]["pieces"].as_u64().unwrap();
        let ratio = sent as f64 / needed as f64;
        assert!(
            (1.0..=1.05).contains(&ratio),
            "{sent} of {needed} bytes on {count} hosts: {stats:#}"
        );
        if count == 3 {
            // Each object is what its job's own command makes here.
            client.assert_made(52, &output);
        }
    }
}

/// However few cores this machine has, and whatever may run at once here.
#[test]
fn as_many_jobs_run_at_once_as_a_host_has_slots() {
    skip_without!("clang-22", "ld.lld-22", "distcc", "distccd");
    let together = "touch \"$HOST/at work $$\"
        until [ $(ls \"$HOST\" | grep -c 'at work') -ge 3 ]; do sleep 0.02; done
        work \"$@\"";
    let host = Host::with(|host| {
        host.jobs = 3;
        host.worker_after_doctor(together);
    });
    let (client, entry) = (Client::new(), format!("{}/3", host.name));
    client.doctor(&[&entry]).go().ok();
    let output = client.run(&[&entry], &["--fallback=never", "--local-jobs=1", "--timeout=20"]);
    client.assert_made(3, &output.go().ok());
}

#[test]
fn hosts_in_a_file_of_the_users_own_are_used() {
    skip_without!("clang-22", "ld.lld-22", "distcc", "distccd");
    let (client, host) = (Client::new(), Host::new());
    let list = format!("localhost/3 {}\n127.0.0.1:{},down # sick\n", host.entry(), free_port());
    client.home.write(".distcc/hosts", list);
    let output = client.run(&[], &["--fallback=never"]).env_remove("DISTCC_HOSTS").go().ok();
    let output = output.stderr_lacks("left out");
    client.assert_made(3, &output);
    assert_all_agree(&client.stats(), &[&host], 3, &output);
}

/// A command of this machine stands for ssh; it starts a daemon for each job, without lists.
#[test]
fn a_host_behind_ssh_is_used() {
    skip_without!("clang-22", "ld.lld-22", "distcc", "distccd");
    let (client, host) = (Client::new(), Host::new());
    let place = |name: &str| host.folder.path(name).display().to_string();
    let ssh = client.home.script(
        "ssh",
        &format!(
            "shift 2
            export PATH='{}':/usr/bin:/bin DTLTO_WORKER_CONFIG='{}' TMPDIR='{}'
            exec distccd \"$@\" --log-file='{}' --log-level=info",
            place(""),
            place("worker.json"),
            place("tmp"),
            place("log/distccd")
        ),
    );
    let run = client.run(&["@far/2"], &["--fallback=never"]).env("DISTCC_SSH", ssh);
    let output = run.go().ok();
    note("3 jobs by ssh", &output);
    client.assert_made(3, &output);
    assert_eq!(client.stats()["hosts"], serde_json::json!({"@far": 3}));
    assert_eq!((host.served(), host.worked().len()), (4, 3), "{}", host.log());
}

/// The links of one user count a host's slots together.
#[test]
fn links_at_once_share_the_slots_of_three_hosts() {
    skip_without!("clang-22", "ld.lld-22", "distcc", "distccd");
    let counting = "echo + >>\"$HOST/count\"; sleep 0.3; work \"$@\"; echo - >>\"$HOST/count\"";
    // The daemons would let more of them in.
    let new = || {
        Host::with(|host| {
            host.jobs = 12;
            host.worker_after_doctor(counting);
        })
    };
    let hosts = [new(), new(), new()];
    let entries: Vec<_> = hosts.iter().map(Host::entry).collect();
    let entries: Vec<_> = entries.iter().map(String::as_str).collect();
    let mut clients: Vec<_> = (0..6).map(|_| Client::new()).collect();
    clients[0].doctor(&entries).go().ok();
    let home = clients[0].home.path("");
    thread::scope(|scope| {
        for client in &mut clients {
            let (home, entries) = (&home, &entries);
            scope.spawn(move || {
                let run = client.run(entries, &["--fallback=never"]).env("HOME", home);
                let output = run.go().ok().stderr_lacks("failed at").stderr_lacks("left out");
                client.assert_made(3, &output);
                assert_eq!(client.stats()["retries"], 0, "{output}");
            });
        }
    });
    for host in &hosts {
        let (mut now, mut most) = (0, 0);
        for line in host.folder.text("tmp/count").lines() {
            now += if line == "+" { 1 } else { -1 };
            most = most.max(now);
        }
        assert!(most <= SLOTS as i32, "{most} at once on {}", host.name);
    }
    assert_eq!(hosts.iter().map(|host| host.worked().len()).sum::<usize>(), 18);
}

#[test]
fn the_doctor_shows_each_host_and_what_to_do() {
    skip_without!("clang-22", "ld.lld-22", "distcc", "distccd");
    let (client, good) = (Client::new(), Host::new());
    let bare = Host::with(|host| fs::remove_file(host.folder.path("dtlto-worker")).unwrap());
    let down = format!("127.0.0.1:{}", free_port());
    let output = client.doctor(&[&good.entry(), &bare.entry(), &down, "localhost"]).go().code(4);
    let rows: Vec<Vec<&str>> =
        output.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    let row = |name: &str| {
        let row = rows.iter().find(|row| row.first() == Some(&name));
        row.unwrap_or_else(|| panic!("{name}: {output}"))[1..6].to_vec()
    };
    assert_eq!(row(&good.name), ["yes", "yes", "same", "yes", "2"]);
    assert_eq!(row(&bare.name), ["yes", "missing", "?", "yes", "2"]);
    assert_eq!(row(&down), ["no", "?", "?", "?", "4"]);
    for text in
        ["next: install the worker there", "next: see that distccd runs there", "note localhost"]
    {
        assert!(output.stdout.contains(text), "{text}: {output}");
    }
    // What must get no jobs is not asked.
    let forbidding = |names: &str, hosts: &[&str]| {
        client.doctor(hosts).env("DTLTO_BRIDGE_OVERRIDE", format!("never-hosts={names}"))
    };
    let output = forbidding(&bare.name, &[&good.entry(), &bare.entry()]).go().ok();
    let row = format!(
        "  {}  ?          ?       ?      ?        2      not asked: an override forbids it",
        bare.name
    );
    assert!(output.stdout.contains(&row), "{output}");
    let output = forbidding("127.0.0.1", &[&good.entry()]).go().code(4);
    assert!(output.stdout.contains("FAIL no host is left\n"), "{output}");
    let output = client.doctor(&[&good.entry()]).go().ok();
    // It asks anew each time, and twice where all is well.
    assert_eq!(good.served(), 6, "{output}");
    // Links know what it has found.
    let output = client.run(&[&good.entry(), &bare.entry()], &["--fallback=never"]).go().ok();
    client
        .assert_made(3, &output.stderr_has(&format!("{} is left out, as a minute ago", bare.name)));
}
