//! A compiler is locked in and held to its owner's limits, whatever it was sent; and what goes wrong on
//! this host is never called the compiler's error. A shell script often stands in for the compiler.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests start programs, and may panic

mod kit;

use std::thread;
use std::time::{Duration, Instant};

use dtlto_bridge::bundle::Answer;
use kit::{Folder, LinkJobs, Modules, Worker, bridge_path, clang, skip_without};
use landlock::{AccessFs, Ruleset, RulesetAttr, RulesetCreatedAttr};

fn jobs() -> LinkJobs {
    let folder = Folder::new();
    Modules::compile(&folder, "", &[]);
    LinkJobs::of(folder, &["a.o", "b.o", "c.o"], &[])
}

/// The text in an answer of this kind.
#[track_caller]
fn reason(answer: &Answer, kind: &str) -> String {
    let json = serde_json::to_value(answer).unwrap();
    assert_eq!(json["is"], kind, "{json}");
    json["reason"].as_str().unwrap_or_default().to_owned()
}

const SECRET: &str = "the-host's-secret-0123456789";

/// A module that wants a file of the host in its object.
fn attack() -> LinkJobs {
    let folder = Folder::new();
    let secret = folder.write("secret", SECRET);
    let source = format!(
        "__asm__(\".section .rodata\\n.incbin \\\"{}\\\"\\n.text\\n\");\nint main(void) {{ return 0; }}\n",
        secret.display()
    );
    folder.write("a.c", source);
    clang().args(["-O2", "-flto=thin", "-c", "a.c", "-o", "a.o"]).cwd(folder.path("")).go().ok();
    LinkJobs::of(folder, &["a.o"], &[])
}

fn holds_secret(object: &[u8]) -> bool {
    object.windows(SECRET.len()).any(|part| part == SECRET.as_bytes())
}

#[test]
fn bitcode_cannot_bring_home_a_file_of_the_host() {
    skip_without!("clang-22", "ld.lld-22");
    let (jobs, worker) = (attack(), Worker::new(""));
    let answered = worker.answer(&mut jobs.prepare(0));
    assert_eq!(*answered.answer(), Answer::Ran { code: Some(1), signal: None });
    assert!(!holds_secret(&answered.object));
    let said = String::from_utf8_lossy(&answered.received.stderr);
    assert!(said.contains("Could not find incbin file"), "{said}");
}

/// Lets `run` happen where no further Landlock domain can be entered: the kernel stacks no more than 16.
fn without_landlock<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    let enter = || {
        let ruleset = Ruleset::default().handle_access(AccessFs::MakeBlock).unwrap();
        ruleset.create().unwrap().no_new_privs(true).restrict_self().is_ok()
    };
    let exhausted = || {
        while enter() {}
        run()
    };
    thread::scope(|scope| scope.spawn(exhausted).join().unwrap())
}

#[test]
fn where_a_compiler_cannot_be_locked_in_the_setting_is_named() {
    skip_without!("clang-22", "ld.lld-22");
    let (jobs, worker) = (attack(), Worker::new(""));
    without_landlock(|| {
        let answered = worker.answer(&mut jobs.prepare(0));
        let text = reason(answered.answer(), "refused");
        assert!(text.contains(r#"set "landlock": "try""#), "{text}");
    });
}

#[test]
fn without_the_lock_the_attack_works() {
    skip_without!("clang-22", "ld.lld-22");
    let (jobs, worker) = (attack(), Worker::new(r#""landlock": "try""#));
    let object = without_landlock(|| worker.answer(&mut jobs.prepare(0)).done());
    assert!(holds_secret(&object));
    assert_eq!(worker.logged()["locked"], false);
}

#[test]
fn a_compilers_failure_is_given_back_as_it_is() {
    skip_without!("clang-22", "ld.lld-22");
    let jobs = jobs();
    let mut prepared = jobs.prepare(0);
    let worker = Worker::scripted("echo out; echo err >&2; exit 3", "", &mut prepared);
    let answered = worker.answer(&mut prepared);
    assert_eq!(*answered.answer(), Answer::Ran { code: Some(3), signal: None });
    assert_eq!(answered.received.stdout, b"out\n");
    assert_eq!(answered.received.stderr, b"err\n");
    assert_eq!(worker.logged()["detail"], "exited with 3");
}

#[test]
fn a_compiler_sees_a_clean_environment_and_its_files() {
    skip_without!("clang-22", "ld.lld-22");
    let jobs = jobs();
    let mut prepared = jobs.prepare(0);
    let script = "export -p | cut -d= -f1; ls; cat; echo \"$@\"; exit 9";
    let worker = Worker::scripted(script, "", &mut prepared);
    let request = worker.pack(&mut prepared);
    let run = worker.run([request, worker.folder.path("response")]).env("CPATH", "/x");
    let answered = worker.read(&prepared, run.env("CCC_OVERRIDE_OPTIONS", "+-g").go().ok());
    let said = String::from_utf8_lossy(&answered.received.stdout).into_owned();
    let lines: Vec<&str> = said.lines().collect();
    let variables = ["CLANG_NO_DEFAULT_CONFIG", "HOME", "LANG", "PATH", "PWD", "TMPDIR"];
    let expected = variables.map(|name| format!("export {name}"));
    assert_eq!(lines[..6], expected, "{said}");
    assert_eq!(lines[6], "index", "{said}");
    assert_eq!(lines.last().unwrap(), &prepared.request.args.join(" "), "{said}");
}

#[test]
fn a_job_whose_time_is_over_is_stopped() {
    skip_without!("clang-22", "ld.lld-22");
    for (settings, seconds) in [(r#""limits": {"time": 1}"#, 60), ("", 1)] {
        let jobs = jobs();
        let mut prepared = jobs.prepare(0);
        prepared.request.time_limit_s = seconds;
        let worker = Worker::scripted("sleep 40 & sleep 40", settings, &mut prepared);
        let begun = Instant::now();
        let answered = worker.answer(&mut prepared);
        assert_eq!(*answered.answer(), Answer::TimedOut);
        assert!(begun.elapsed() < Duration::from_secs(15));
        assert_eq!(worker.logged()["result"], "timed out");
        assert_eq!(worker.left(), [""; 0]);
    }
}

#[test]
fn a_flood_of_words_is_cut() {
    skip_without!("clang-22", "ld.lld-22");
    let jobs = jobs();
    let mut prepared = jobs.prepare(0);
    let worker = Worker::scripted("yes | head -c 60000000; exit 1", "", &mut prepared);
    let answered = worker.answer(&mut prepared);
    assert_eq!(*answered.answer(), Answer::Ran { code: Some(1), signal: None });
    let printed = answered.received.stdout;
    assert!(printed.len() < 5 << 20, "{}", printed.len());
    assert!(String::from_utf8(printed).unwrap().contains("bytes left out"));
}

#[test]
fn an_output_beyond_the_limit_is_this_hosts_fault() {
    skip_without!("clang-22", "ld.lld-22");
    let jobs = jobs();
    let mut prepared = jobs.prepare(0);
    let script = "exec awk 'BEGIN { while (1) printf \"%1000s\", \"\" > \"out.o\" }'";
    let worker = Worker::scripted(script, r#""limits": {"output": "1M"}"#, &mut prepared);
    let text = reason(worker.answer(&mut prepared).answer(), "unfit");
    assert!(text.contains("limits.output"), "{text}");
}

#[test]
fn outputs_are_plain_files_that_were_declared() {
    skip_without!("clang-22", "ld.lld-22");
    let jobs = jobs();
    let mut prepared = jobs.prepare(0);
    prepared.request.outputs.push("second".into());
    let script = "ln -s index out.o; mkdir second; echo x > third; ls -l; exit 1";
    let worker = Worker::scripted(script, "", &mut prepared);
    let answered = worker.answer(&mut prepared);
    assert_eq!(answered.received.response.outputs, []);
}

#[test]
fn a_job_that_does_not_fit_into_memory_does_not_start() {
    skip_without!("clang-22", "ld.lld-22");
    let (jobs, worker) = (jobs(), Worker::new(r#""limits": {"memory": "100M"}"#));
    let text = reason(worker.answer(&mut jobs.prepare(0)).answer(), "busy");
    assert!(text.starts_with("memory: the job may need 300 MiB, 100 MiB are free"), "{text}");
}

#[test]
fn memory_that_a_running_job_was_promised_is_taken() {
    skip_without!("clang-22", "ld.lld-22");
    let jobs = jobs();
    let mut prepared = jobs.prepare(0);
    let settings = r#""limits": {"total_memory": "500M"}"#;
    let worker = Worker::scripted("sleep 20", settings, &mut prepared);
    let request = worker.pack(&mut prepared);
    let first = worker.run([&request, &worker.folder.path("other")]).start();
    let end = Instant::now() + Duration::from_secs(10);
    while !worker.left().iter().any(|name| name.ends_with("/index")) && Instant::now() < end {
        thread::sleep(Duration::from_millis(5));
    }
    let output = worker.run([&request, &worker.folder.path("response")]).go().ok();
    let text = reason(worker.read(&prepared, output).answer(), "busy");
    assert!(text.starts_with("memory"), "{text}");
    drop(first);
    // What was promised to a worker that was killed is free again.
    prepared.request.time_limit_s = 1;
    assert_eq!(*worker.answer(&mut prepared).answer(), Answer::TimedOut);
}

#[test]
fn a_compiler_that_runs_out_of_memory_is_not_at_fault() {
    skip_without!("clang-22", "ld.lld-22");
    for script in ["echo 'LLVM ERROR: out of memory' >&2; exit 70", "kill -9 $$"] {
        let jobs = jobs();
        let mut prepared = jobs.prepare(0);
        let worker = Worker::scripted(script, "", &mut prepared);
        let text = reason(worker.answer(&mut prepared).answer(), "unfit");
        assert!(text.contains("memory"), "{text}");
    }
}

#[test]
fn a_daemon_that_leaves_too_little_address_space_is_told_apart() {
    skip_without!("clang-22", "ld.lld-22");
    let (jobs, worker) = (jobs(), Worker::new(""));
    let mut prepared = jobs.prepare(0);
    let request = worker.pack(&mut prepared);
    let response = worker.folder.path("response");
    let script = r#"ulimit -v 200000; exec "$0" worker "$1" "$2""#;
    let shell = kit::Run::new("/bin/sh").args(["-c", script, bridge_path()]);
    let shell = shell.arg(request).arg(response);
    let output = shell.env("DTLTO_WORKER_CONFIG", worker.folder.path("worker.json")).go().ok();
    let text = reason(worker.read(&prepared, output).answer(), "unfit");
    assert!(text.contains("195 MiB of address space"), "{text}");
}

#[test]
fn a_compiler_that_cannot_be_loaded_makes_a_host_unfit() {
    skip_without!("clang-22", "ld.lld-22");
    let jobs = jobs();
    let mut prepared = jobs.prepare(0);
    let worker = Worker::scripted(
        "echo 'cc: error while loading shared libraries: x' >&2; exit 127",
        "",
        &mut prepared,
    );
    let text = reason(worker.answer(&mut prepared).answer(), "unfit");
    assert!(text.contains("could not be loaded"), "{text}");
}
