//! Farms of which nothing can be had, and clients of distcc that would work on this machine: the bridge finds out
//! soon, does not ask again for a while, and no job is ever run here by distcc itself.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests start programs, and may panic

mod kit;

use std::time::{Duration, Instant};

use kit::{Client, Host, MARK, Marked, free_port, note, skip_without, until};
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
