//! A worker that is ended, however and whenever, takes its compiler along and leaves no folder that the next
//! one would not remove. It holds nothing open that its daemon left open.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests start programs, and may panic

mod kit;

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use dtlto_bridge::bundle::Prepared;
use kit::{Folder, LinkJobs, Modules, Running, Worker, bridge_path, skip, skip_without};
use rustix::process::{Pid, Signal, kill_process};

fn jobs() -> LinkJobs {
    let folder = Folder::new();
    Modules::compile(&folder, "", &[]);
    LinkJobs::of(folder, &["a.o", "b.o", "c.o"], &[])
}

/// Waits until `found` is something.
#[track_caller]
fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < end, "{what} never was");
        thread::sleep(Duration::from_millis(1));
    }
}

/// The processes that run in a folder below `place`.
fn processes_in(place: &Path) -> Vec<Pid> {
    let place = place.canonicalize().unwrap();
    let inside = |pid: &Pid| {
        let cwd = fs::read_link(format!("/proc/{pid}/cwd"));
        let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        cwd.is_ok_and(|cwd| cwd.starts_with(&place)) && !state.contains(") Z")
    };
    let names = fs::read_dir("/proc").unwrap().flatten();
    let pids = names.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    pids.filter(inside).collect()
}

/// A worker whose compiler, a script that starts another program, would run for long.
fn sleeping(worker: &Worker, prepared: &mut Prepared) -> Running {
    let request = worker.pack(prepared);
    let running = worker.run([request, worker.folder.path("response")]).start();
    let scratch = worker.folder.path("scratch");
    until("the compiler and its child", || (processes_in(&scratch).len() == 2).then_some(()));
    running
}

#[track_caller]
fn assert_nothing_runs(worker: &Worker) {
    let scratch = worker.folder.path("scratch");
    until("the end of all", || processes_in(&scratch).is_empty().then_some(()));
}

#[test]
fn a_signal_ends_compiler_and_folder() {
    skip_without!("clang-22", "ld.lld-22");
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let jobs = jobs();
        let mut prepared = jobs.prepare(0);
        let worker = Worker::scripted("sleep 300; echo", "", &mut prepared);
        let running = sleeping(&worker, &mut prepared);
        kill_process(running.pid(), signal).unwrap();
        running.wait().killed_by(signal);
        assert_nothing_runs(&worker);
        assert_eq!(worker.left(), [""; 0]);
    }
}

#[test]
fn a_killed_worker_takes_along_what_its_compiler_started() {
    skip_without!("clang-22", "ld.lld-22");
    let jobs = jobs();
    let mut prepared = jobs.prepare(0);
    let worker = Worker::scripted("sleep 300; echo", "", &mut prepared);
    let running = sleeping(&worker, &mut prepared);
    kill_process(running.pid(), Signal::KILL).unwrap();
    running.wait().killed_by(Signal::KILL);
    assert_nothing_runs(&worker);
    until("an empty scratch folder", || worker.left().is_empty().then_some(()));
}

#[test]
fn a_killed_worker_takes_clang_along_and_the_next_one_sweeps() {
    skip_without!("clang-22", "ld.lld-22");
    let jobs = jobs();
    let mut prepared = jobs.prepare(0);
    let worker = Worker::new("");
    worker.answer(&mut prepared).done();
    let request = worker.pack(&mut prepared);
    // clang is quick: it may have ended before it could be stopped. Before it is clang, nothing ends it with its worker
    // while it stands still.
    let is_clang = |pid| {
        fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|program| program.ends_with("clang"))
    };
    let stopped = || {
        let running = worker.run([&request, &worker.folder.path("response")]).start();
        let scratch = worker.folder.path("scratch");
        let end = Instant::now() + Duration::from_secs(2);
        while Instant::now() < end {
            for pid in processes_in(&scratch).into_iter().filter(|&pid| is_clang(pid)) {
                if kill_process(pid, Signal::STOP).is_ok() && processes_in(&scratch) == [pid] {
                    return Some((running, pid));
                }
            }
        }
        None
    };
    let (running, clang) = (0..20).find_map(|_| stopped()).expect("a clang that was stopped");
    kill_process(running.pid(), Signal::KILL).unwrap();
    running.wait().killed_by(Signal::KILL);
    assert_nothing_runs(&worker);
    assert!(!Path::new(&format!("/proc/{clang}/cwd")).exists());
    assert!(!worker.left().is_empty(), "a killed worker cannot remove its folder");
    worker.answer(&mut prepared).done();
    assert_eq!(worker.left(), [""; 0]);
}

#[test]
fn a_signal_while_the_request_arrives_leaves_nothing() {
    skip_without!("clang-22", "ld.lld-22");
    let jobs = jobs();
    let worker = Worker::new("");
    let bytes = fs::read(worker.pack(&mut jobs.prepare(0))).unwrap();
    for signal in [Signal::TERM, Signal::KILL] {
        let mut child = Command::new(bridge_path())
            .args(["worker", "-c", "-", "-o"])
            .arg(worker.folder.path("response"))
            .env("DTLTO_WORKER_CONFIG", worker.folder.path("worker.json"))
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut pipe = child.stdin.take().unwrap();
        pipe.write_all(&bytes[..bytes.len() / 2]).unwrap();
        thread::sleep(Duration::from_millis(100));
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert!(!child.wait().unwrap().success());
        assert_eq!(worker.left(), [""; 0]);
        assert!(!worker.folder.path("response").exists());
    }
}

#[test]
fn a_request_on_standard_input_is_done() {
    skip_without!("clang-22", "ld.lld-22");
    let jobs = jobs();
    let worker = Worker::new("");
    let mut prepared = jobs.prepare(0);
    let request = worker.pack(&mut prepared);
    let script = r#"exec "$0" worker -c - -o "$1" < "$2""#;
    let shell = kit::Run::new("/bin/sh").args(["-c", script, bridge_path()]);
    let shell = shell.arg(worker.folder.path("response")).arg(request);
    let output = shell.env("DTLTO_WORKER_CONFIG", worker.folder.path("worker.json")).go().ok();
    assert!(worker.read(&prepared, output).done() == jobs.made_here(0));
}

#[test]
fn what_the_daemon_left_open_is_closed() {
    skip_without!("clang-22", "ld.lld-22");
    if !Path::new("/proc/self/fd").exists() {
        skip!("no /proc");
    }
    let jobs = jobs();
    let mut prepared = jobs.prepare(0);
    let worker = Worker::scripted("sleep 300; echo", "", &mut prepared);
    let request = worker.pack(&mut prepared);
    let (mut reader, writer) = std::io::pipe().unwrap();
    // Standard error becomes descriptor 7 as well, which the shell hands down.
    let script = r#"exec 7>&2 2>/dev/null; exec "$0" worker "$1" "$2""#;
    let mut child = Command::new("/bin/sh")
        .args(["-c", script, bridge_path()])
        .args([request, worker.folder.path("response")])
        .env("DTLTO_WORKER_CONFIG", worker.folder.path("worker.json"))
        .stderr(writer)
        .spawn()
        .unwrap();
    // The end of the pipe comes while the worker runs.
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).unwrap();
    let runs = child.try_wait().unwrap().is_none();
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    child.wait().unwrap();
    assert!(runs && rest.is_empty());
}
