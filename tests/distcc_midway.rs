//! What befalls distcc's hosts in the middle of a link, with real daemons: they end, fill up, fall silent or send
//! half an answer. The link ends right, or says which host failed and why.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests start programs, and may panic

mod kit;

use std::path::{Path, PathBuf};

use kit::{Client, Host, Output, Run, note, skip, skip_without, until};
use serde_json::json;

/// The host that `new` makes fails in the middle of a link, after `then` was done to it, and `why` is said of it:
/// alone, with and without the leave to work here, and beside a good one.
#[track_caller]
fn assert_fails_midway(
    why: &str,
    options: &[&str],
    new: impl Fn() -> Host,
    then: impl Fn(&mut Host),
) {
    let never = [options, &["--fallback=never"]].concat();
    let link = |client: &Client, hosts: &[&str], options: &[&str], host: &mut Host| {
        client.doctor(hosts).go().ok();
        let running = client.run(hosts, options).start();
        then(host);
        running.wait()
    };
    let told = |output: Output, name: &str| {
        let words = output.stderr.lines().any(|line| line.contains(name) && line.contains(why));
        assert!(words, "{name}: {why}: {output}");
        output
    };
    let (mut client, mut host) = (Client::new(), new());
    let output = link(&client, &[&host.entry()], options, &mut host).ok();
    note(&format!("{why}, made here"), &output);
    client.assert_made(0, &told(output, &host.name));

    (client.home, host) = (kit::Folder::new(), new());
    let output = link(&client, &[&host.entry()], &never, &mut host).code(4);
    told(output, &host.name);
    client.assert_nothing_left();

    let good = Host::new();
    (client.home, host) = (kit::Folder::new(), new());
    let output = link(&client, &[&host.entry(), &good.entry()], &never, &mut host).ok();
    note(&format!("{why}, made on the other host"), &output);
    let output = told(output, &host.name);
    client.assert_made(3, &output);
    assert_eq!(client.stats()["hosts"], json!({&*good.name: 3}), "{output}");
}

#[test]
fn a_host_that_dies_in_mid_job() {
    skip_without!("clang-22", "ld.lld-22", "distcc", "distccd");
    let new = || Host::with(|host| host.worker_after_doctor("touch \"$HOST/at work\"; sleep 60"));
    assert_fails_midway("its daemon hung up", &[], new, |host| {
        until("a job", || host.folder.path("tmp/at work").exists());
        host.kill();
    });
}

#[test]
fn an_answer_that_is_cut_short() {
    skip_without!("clang-22", "ld.lld-22", "distcc", "distccd");
    let cut = "work \"$@\"; truncate -s -9 \"$4\"";
    let new = || Host::with(|host| host.worker_after_doctor(cut));
    assert_fails_midway("cut off", &[], new, |_| ());
}

#[test]
fn an_answer_that_is_empty() {
    skip_without!("clang-22", "ld.lld-22", "distcc", "distccd");
    let new = || Host::with(|host| host.worker_after_doctor("exit 0"));
    assert_fails_midway("cut off within its header", &[], new, |_| ());
}

#[test]
fn a_worker_that_vanishes() {
    skip_without!("clang-22", "ld.lld-22", "distcc", "distccd");
    let new = || Host::with(|host| host.worker_after_doctor("exit 110"));
    assert_fails_midway("worker missing", &[], new, |_| ());
}

/// A file system that is unmounted when this is dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn new(place: &Path, options: &str) -> Mounted {
        let run = Run::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]);
        run.arg(place).go().ok();
        Mounted(place.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_host_whose_disk_is_full() {
    skip_without!("clang-22", "ld.lld-22", "distcc", "distccd", "mount");
    if !rustix::process::geteuid().is_root() {
        skip!("only root can mount a small file system");
    }
    for (folder, why) in [("scratch", "No space left on device"), ("tmp", "")] {
        let host = Host::new();
        let client = Client::new();
        client.doctor(&[&host.entry()]).go().ok();
        let _mounted = Mounted::new(&host.folder.path(folder), "size=8k,mode=777");
        let output = client.run(&[&host.entry()], &[]).go().ok();
        note(&format!("{folder} is full, made here"), &output);
        client.assert_made(0, &output.stderr_has(why).stderr_has(&host.name));
    }
}

/// A job that takes too long goes home; the worker's compiler ends with its client.
#[test]
fn a_host_that_is_slow() {
    skip_without!("clang-22", "ld.lld-22", "distcc", "distccd");
    let host = Host::with(|host| host.worker_after_doctor("sleep 60"));
    let client = Client::new();
    client.doctor(&[&host.entry()]).go().ok();
    let output = client.run(&[&host.entry()], &["--timeout=2"]).go().ok();
    note("a slow host with --timeout=2, made here", &output);
    client.assert_made(0, &output.stderr_has(&format!("{} failed at", host.name)));
}
