//! What befalls distcc's hosts in the middle of a link, with real daemons: they end, fill up, fall silent or send
//! half an answer. The link ends right, or says which host failed and why.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests start programs, and may panic

mod kit;

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use kit::{Client, Host, Output, Run, note, skip, skip_without, until};
use rustix::process::Signal;
use serde_json::json;

/// What befalls a host.
struct Fault<'a> {
    /// Said of the host.
    why: &'a str,
    options: &'a [&'a str],
    new: &'a (dyn Fn() -> Host + Sync),
    /// Done to the host before the link starts, but after the doctor found it well.
    before: &'a (dyn Fn(&Host) -> Option<Mounted> + Sync),
    /// Done to it while the link runs.
    then: &'a (dyn Fn(&mut Host) + Sync),
}

impl Default for Fault<'_> {
    fn default() -> Self {
        Fault { why: "", options: &[], new: &Host::new, before: &|_| None, then: &|_| () }
    }
}

impl Fault<'_> {
    /// A link of `client` on the host, and on `second`.
    #[track_caller]
    fn link(&self, client: &Client, fallback: &str, second: Option<&Host>) -> Output {
        let mut host = (self.new)();
        let entries: Vec<_> = [&host].into_iter().chain(second).map(Host::entry).collect();
        let hosts: Vec<_> = entries.iter().map(String::as_str).collect();
        client.doctor(&hosts).go().ok();
        let _mounted = (self.before)(&host);
        let running = client.run(&hosts, &[self.options, &[fallback]].concat()).start();
        (self.then)(&mut host);
        let (output, name, why) = (running.wait(), &*host.name, self.why);
        let said = output.stderr.lines().any(|line| line.contains(name) && line.contains(why));
        assert!(said, "{name}: {why}: {output}");
        output
    }
}

/// The host fails in the middle of a link, and it is said which one and why: alone, with and without the leave to
/// work here, and beside a good one.
#[track_caller]
fn assert_fails_midway(client: impl Fn() -> Client + Sync, fault: &Fault<'_>) {
    let why = fault.why;
    thread::scope(|scope| {
        scope.spawn(|| {
            let client = client();
            let output = fault.link(&client, "--fallback=local", None).ok();
            note(&format!("{why}, made here"), &output);
            client.assert_made(0, &output);
        });
        scope.spawn(|| {
            let client = client();
            fault.link(&client, "--fallback=never", None).code(4);
            client.assert_nothing_left();
        });
        scope.spawn(|| {
            let (client, good) = (client(), Host::new());
            let output = fault.link(&client, "--fallback=never", Some(&good)).ok();
            note(&format!("{why}, made on the other host"), &output);
            let jobs = client.jobs.file.jobs.len();
            client.assert_made(jobs, &output);
            assert_eq!(client.stats()["hosts"], json!({&*good.name: jobs}), "{output}");
        });
    });
}

#[test]
fn a_host_that_dies_in_mid_job() {
    skip_without!("clang-22", "ld.lld-22", "distcc", "distccd");
    let fault = Fault {
        why: "its daemon hung up",
        new: &|| Host::with(|host| host.worker_after_doctor("touch \"$HOST/at work\"; sleep 60")),
        then: &|host| {
            until("a job", || host.folder.path("tmp/at work").exists());
            host.kill();
        },
        ..Fault::default()
    };
    assert_fails_midway(Client::new, &fault);
}

/// All of the host ends while the real compiler is at work there.
#[test]
fn a_host_that_dies_while_clang_works() {
    skip_without!("clang-22", "ld.lld-22", "distcc", "distccd");
    let fault = Fault {
        why: "its daemon hung up",
        then: &|host| {
            let compiler = host.compiler();
            thread::sleep(Duration::from_millis(300));
            assert_eq!(host.compiler(), compiler, "it was done too soon");
            host.kill();
        },
        ..Fault::default()
    };
    assert_fails_midway(Client::with_long_job, &fault);
}

/// The system of the host ends the compiler alone, as it does where memory runs out.
#[test]
fn a_compiler_that_is_killed_on_its_host() {
    skip_without!("clang-22", "ld.lld-22", "distcc", "distccd");
    let fault = Fault {
        why: "was killed",
        options: &["--retries=0"],
        then: &|host| rustix::process::kill_process(host.compiler(), Signal::KILL).unwrap(),
        ..Fault::default()
    };
    let client = Client::with_long_job();
    fault.link(&client, "--fallback=never", None).code(4);
    client.assert_nothing_left();
}

#[test]
fn an_answer_that_is_cut_short() {
    skip_without!("clang-22", "ld.lld-22", "distcc", "distccd");
    let cut = "work \"$@\"; truncate -s -9 \"$4\"";
    let new = || Host::with(|host| host.worker_after_doctor(cut));
    assert_fails_midway(Client::new, &Fault { why: "cut off", new: &new, ..Fault::default() });
}

#[test]
fn an_answer_that_is_empty() {
    skip_without!("clang-22", "ld.lld-22", "distcc", "distccd");
    let new = || Host::with(|host| host.worker_after_doctor("exit 0"));
    let fault = Fault { why: "cut off within its header", new: &new, ..Fault::default() };
    assert_fails_midway(Client::new, &fault);
}

#[test]
fn a_worker_that_vanishes() {
    skip_without!("clang-22", "ld.lld-22", "distcc", "distccd");
    let new = || Host::with(|host| host.worker_after_doctor("exit 110"));
    assert_fails_midway(
        Client::new,
        &Fault { why: "worker missing", new: &new, ..Fault::default() },
    );
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
    // distccd itself cannot say what is wrong.
    for (folder, why) in [("scratch", "No space left on device"), ("tmp", "")] {
        let fill = |host: &Host| Some(Mounted::new(&host.folder.path(folder), "size=8k,mode=777"));
        assert_fails_midway(Client::new, &Fault { why, before: &fill, ..Fault::default() });
    }
}

/// A job that takes too long is tried on another host, where there is one; the worker's compiler ends with its
/// client.
#[test]
fn a_host_that_is_slow() {
    skip_without!("clang-22", "ld.lld-22", "distcc", "distccd");
    let fault = Fault {
        why: "it took longer than 4",
        options: &["--timeout=4"],
        new: &|| Host::with(|host| host.worker_after_doctor("sleep 60")),
        ..Fault::default()
    };
    assert_fails_midway(Client::new, &fault);
}

/// It takes too long everywhere: after two hosts it is done here, or given up.
#[test]
fn a_job_that_takes_too_long_is_tried_on_one_other_host() {
    skip_without!("clang-22", "ld.lld-22", "distcc", "distccd");
    let slow = || Host::with(|host| host.worker_after_doctor("sleep 60"));
    for (retries, attempts) in [("--retries=2", 2), ("--retries=0", 1)] {
        let (hosts, mut client) = ([slow(), slow(), slow()], Client::new());
        let entries: Vec<_> = hosts.iter().map(Host::entry).collect();
        let entries: Vec<_> = entries.iter().map(String::as_str).collect();
        client.doctor(&entries).go().ok();
        let output = client.run(&entries, &["--timeout=1", retries]).go().ok();
        client.assert_made(0, &output);
        for record in client.stats()["records"].as_array().unwrap() {
            let on_hosts = |outcome| {
                let tries = record["tries"].as_array().unwrap().iter();
                tries
                    .filter(|attempt| {
                        attempt["host"] != json!(null) && attempt["outcome"] == outcome
                    })
                    .count()
            };
            assert_eq!(on_hosts("timed_out"), attempts, "{record:#}");
        }
        client.forget();
    }
}
