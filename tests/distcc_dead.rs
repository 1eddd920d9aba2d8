//! Farms of which nothing can be had, and clients of distcc that would work on this machine: the bridge finds out
//! soon, does not ask again for a while, and no job is ever run here by distcc itself.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests start programs, and may panic

mod kit;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use kit::{Client, Host, MARK, Marked, Run, free_port, note, skip, skip_without, until};
use rustix::process::Signal;
use serde_json::Value;

/// The bridge's own manifest, but for `DISTCC_HOSTS`: distcc runs jobs in place for this word.
fn manifest_for_localhost(client: &Client) -> String {
    let text = include_str!("../adapters/distcc.json");
    let mut manifest: Value = serde_json::from_str(text).unwrap();
    manifest["env"]["set"]["DISTCC_HOSTS"] = "localhost".into();
    manifest["env"]["set"]["CHOSEN"] = "{host}".into();
    manifest["name"] = "astray".into();
    let file = client.home.write("astray.json", manifest.to_string());
    format!("--adapter={}", file.display())
}

#[test]
fn distcc_never_runs_a_job_here() {
    skip_without!("clang-22", "ld.lld-22", "distcc", "distccd");
    let (mut client, host) = (Client::new(), Host::new());
    let trap = "would have run it on this machine";
    for fallback in ["local", "never"] {
        client.forget();
        // Its probe was good, and then it goes astray.
        client.doctor(&[&host.entry()]).go().ok();
        let astray = manifest_for_localhost(&client);
        let options = [&*astray, &format!("--fallback={fallback}")];
        let output = client.run(&[&host.entry()], &options).go().stderr_has(trap);
        let stats = client.stats();
        assert!(stats["tool_local"].as_u64() >= Some(1), "{stats:#}{output}");
        if fallback == "local" {
            client.assert_made(0, &output.ok());
        } else {
            let output = output.code(4).stderr_has(&host.name);
            assert_eq!(stats["places"]["local"], 0, "{output}");
            client.assert_nothing_left();
        }
    }
    assert!(host.worked().is_empty());
    client.forget();
    let options = [&*manifest_for_localhost(&client), "--fallback=never"];
    let output = client.run(&[&host.entry()], &options).go().code(4);
    output.stderr_has("distcc's client wanted to run the job on this machine");
}

/// One host is down, one takes connections and says nothing.
#[test]
fn a_dead_farm_costs_ten_seconds_once() {
    skip_without!("clang-22", "ld.lld-22", "distcc", "distccd");
    let (client, frozen) = (Client::new(), Host::new());
    frozen.freeze();
    let down = format!("127.0.0.1:{}", free_port());
    let hosts = [&*frozen.entry(), &*down];
    let output = client.run(&hosts, &[]).go().ok();
    note("a silent host and one that is down", &output);
    let output = output.stderr_has(&format!("{}: down: no answer within 9 s", frozen.name));
    let output = output.stderr_has(&format!("{down}: down: nonblocking connect"));
    assert!(output.took < Duration::from_secs(12), "{output}");
    client.assert_made(0, &output);
    for (options, code) in [(&[][..], 0), (&["--fallback=never"], 4)] {
        let output = client.run(&hosts, options).go().code(code);
        note("the next link", &output);
        let output = output.stderr_has("not asked again for ").stderr_has(&frozen.name);
        assert!(output.took < Duration::from_secs(5), "{output}");
    }
}

#[test]
fn a_signal_ends_a_link_that_waits_for_probes() {
    skip_without!("clang-22", "ld.lld-22", "distcc", "distccd");
    let (client, frozen, marked) = (Client::new(), Host::new(), Marked::new());
    frozen.freeze();
    let run = client.run(&[&frozen.entry()], &[]).env(MARK, &marked.mark);
    let running = run.start();
    let is_client = |argv: &[String]| argv.iter().any(|arg| arg == "dtlto-worker");
    until("a probe", || marked.alive().iter().any(|process| is_client(&process.argv)));
    let begun = Instant::now();
    running.signal_group(Signal::INT);
    let output = running.wait().killed_by(Signal::INT);
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?} {output}", begun.elapsed());
    marked.gone_within(Duration::from_secs(1));
    client.assert_nothing_left();
}

/// A network namespace with one address.
struct Namespace {
    name: String,
    address: String,
    /// This machine's address in the eyes of that one.
    ours: String,
}

impl Namespace {
    /// None if it cannot be made here.
    fn new() -> Option<Namespace> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let root = rustix::process::geteuid().is_root();
        if !root || !Run::new("ip").args(["netns", "list"]).go().status.success() {
            return None;
        }
        let id = (std::process::id() * 4 + NEXT.fetch_add(1, Ordering::Relaxed)) % 12_000;
        let [name, ours, theirs] = ["dtlto", "dto", "dti"].map(|word| format!("{word}{id}"));
        let net = format!("10.{}.{}", 200 + id / 250 % 50, id % 250);
        let ip = |words: &str| drop(Run::new("ip").args(words.split(' ')).go().ok());
        ip(&format!("netns add {name}"));
        let (address, ours_there) = (format!("{net}.2"), format!("{net}.1"));
        let made = Namespace { address, ours: ours_there, name: name.clone() };
        ip(&format!("link add {ours} type veth peer name {theirs} netns {name}"));
        ip(&format!("addr add {net}.1/24 dev {ours}"));
        ip(&format!("link set {ours} up"));
        ip(&format!("-n {name} addr add {net}.2/24 dev {theirs}"));
        ip(&format!("-n {name} link set {theirs} up"));
        Some(made)
    }
}

impl Namespace {
    /// Its answers get lost from now on.
    fn swallow(&self) {
        let words = ["-n", &self.name, "route", "add", "blackhole", &format!("{}/32", self.ours)];
        Run::new("ip").args(words).go().ok();
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = std::process::Command::new("ip").args(["netns", "del", &self.name]).status();
    }
}

#[test]
fn a_host_whose_packets_are_lost() {
    skip_without!("clang-22", "ld.lld-22", "distcc", "distccd", "ip");
    let Some(hole) = Namespace::new() else { skip!("only root can make a network namespace") };
    hole.swallow();
    let client = Client::new();
    let output = client.run(&[&hole.address], &[]).go().ok();
    note("a black hole", &output);
    assert!(output.took < Duration::from_secs(12), "{output}");
    client.assert_made(0, &output.stderr_has(&format!("{} is left out: down: ", hole.address)));
}

/// Its connections break off without a word while jobs run there; other hosts take them after three looks at
/// its port in vain.
#[test]
fn a_network_that_is_cut_in_mid_job() {
    skip_without!("clang-22", "ld.lld-22", "distcc", "distccd", "ip");
    let Some(space) = Namespace::new() else { skip!("only root can make a network namespace") };
    let (client, good) = (Client::new(), Host::new());
    let far = Host::with(|host| {
        host.before = ["ip", "netns", "exec", &space.name].map(str::to_owned).to_vec();
        (host.address, host.allow) = (space.address.clone(), space.ours.clone());
        host.worker_after_doctor("touch \"$HOST/at work\"; sleep 3; work \"$@\"");
    });
    let hosts = [&*far.entry(), &*good.entry()];
    client.doctor(&hosts).go().ok();
    let running = client.run(&hosts, &["--fallback=never"]).limit(90).start();
    until("a job", || far.folder.path("tmp/at work").exists());
    space.swallow();
    let output = running.wait().ok();
    note("a network that is cut in mid-job", &output);
    assert!(output.took < Duration::from_secs(60), "{output}");
    let words = format!("{} failed at", far.name);
    client
        .assert_made(3, &output.stderr_has(&words).stderr_has("its host does not answer any more"));
}
