//! How many jobs run at once on this machine: `--local-jobs`, links that share, make's and ninja's
//! job servers, and the time limit. These tests count compilers; they do not know what holds them
//! back.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests start programs, and may panic

mod kit;

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use kit::{Folder, Jobs, MAKE, MARK, Marked, Run, bridge, bridge_path, skip_without};

/// A compiler that writes down how many of its kind are running, in the folder `$COUNT`.
const COUNTS: &str = r#"echo > "$COUNT/run.$$"
ls "$COUNT" | grep -c run. >> "$COUNT/seen"
sleep 0.05
ls "$COUNT" | grep -c run. >> "$COUNT/seen"
rm "$COUNT/run.$$""#;

fn counting(count: usize) -> Jobs {
    Jobs::new(count, &format!("{COUNTS}\n{MAKE}"))
}

/// The most that ran at the same time.
fn most(folder: &Path) -> usize {
    let seen = fs::read_to_string(folder.join("seen")).unwrap();
    seen.lines().map(|line| line.parse().unwrap()).max().unwrap()
}

#[test]
fn local_jobs_bounds_what_runs_at_once() {
    skip_without!("clang-22");
    for limit in [1, 3] {
        let jobs = counting(8);
        let count = jobs.folder.mkdir("count");
        let run = jobs.run(&[&format!("--local-jobs={limit}")]).env("COUNT", &count);
        run.go().ok();
        let most = most(&count);
        assert!(most <= limit, "{most} at once");
        assert_eq!(jobs.stats()["places"]["local"], 8);
    }
}

#[test]
fn local_jobs_are_used_all() {
    skip_without!("clang-22");
    // Each of the four waits for the others.
    let meet = "echo > \"here.$$\"; until [ $(ls here.* | wc -l) = 4 ]; do sleep 0.01; done\n";
    let jobs = Jobs::new(4, &format!("{meet}{MAKE}"));
    jobs.go(&["--local-jobs=64"]).ok();
}

#[test]
fn links_of_a_user_share_the_slots_of_the_machine() {
    skip_without!("clang-22");
    let count = Folder::new();
    let start = |_| {
        let jobs = counting(6);
        let run = jobs.run(&["--local-jobs=2"]).env("COUNT", count.path(""));
        (run.start(), jobs)
    };
    for (link, jobs) in [0, 1, 2].map(start) {
        link.wait().ok().stderr_lacks("slots");
        assert_eq!(jobs.objects(), jobs.made());
    }
    let most = most(&count.path(""));
    assert!(most <= 2, "{most} at once");
}

/// A job server as make has it, in the style that needs no inherited descriptors.
struct Server {
    pipe: File,
    flags: String,
}

impl Server {
    fn new(folder: &Folder, tokens: usize) -> Self {
        let path = folder.path("server");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let mut pipe = File::options().read(true).write(true).open(&path).unwrap();
        std::io::Write::write_all(&mut pipe, &vec![b'+'; tokens]).unwrap();
        rustix::fs::fcntl_setfl(&pipe, rustix::fs::OFlags::NONBLOCK).unwrap();
        Server { pipe, flags: format!(" -j --jobserver-auth=fifo:{}", path.display()) }
    }

    /// The tokens that lie there now; it has none afterwards.
    fn tokens(mut self) -> usize {
        let mut tokens = Vec::new();
        let end = self.pipe.read_to_end(&mut tokens).unwrap_err();
        assert_eq!(end.kind(), std::io::ErrorKind::WouldBlock);
        tokens.len()
    }
}

#[test]
fn a_job_server_is_honoured_and_gets_all_tokens_back() {
    skip_without!("clang-22");
    for (tokens, compiler) in [(0, MAKE), (2, MAKE), (2, "exit 1")] {
        let jobs = Jobs::new(9, &format!("{COUNTS}\n{compiler}"));
        let count = jobs.folder.mkdir("count");
        let server = Server::new(&jobs.folder, tokens);
        let run = jobs.run(&[]).env("COUNT", &count).env("MAKEFLAGS", &server.flags);
        run.go().code(i32::from(compiler != MAKE));
        // The link itself was started with one that is no token.
        let most = most(&count);
        assert!(most <= tokens + 1 && (most > 1) == (tokens > 0), "{most} at once of {tokens}");
        assert_eq!(server.tokens(), tokens, "{compiler}");
    }
}

#[test]
fn a_job_server_gets_its_tokens_back_on_a_signal() {
    skip_without!("clang-22");
    let jobs = Jobs::new(9, "echo > \"started.$$\"; sleep 60");
    let server = Server::new(&jobs.folder, 3);
    let link = jobs.run(&[]).env("MAKEFLAGS", &server.flags).start();
    let started = |name: &String| name.starts_with("started.");
    kit::until("four", || jobs.folder.list("").into_iter().filter(started).count() == 4);
    rustix::process::kill_process(link.pid(), rustix::process::Signal::TERM).unwrap();
    link.wait().killed_by(rustix::process::Signal::TERM);
    assert_eq!(server.tokens(), 3);
}

#[test]
fn a_job_server_that_is_gone_is_done_without() {
    skip_without!("clang-22");
    for flags in
        [" -j2 --jobserver-auth=fifo:/nonexistent", " -j2 --jobserver-auth=98,99", "k", "-j"]
    {
        let jobs = Jobs::new(2, MAKE);
        jobs.run(&[]).env("MAKEFLAGS", flags).limit(20).go().ok();
    }
}

/// Two pipes up to make 4.3, a named one from 4.4 on.
#[test]
fn make_s_job_server_is_honoured() {
    skip_without!("clang-22", "make");
    let folder = Folder::new();
    let count = folder.mkdir("count");
    let links = [counting(5), counting(5)];
    let mut makefile = "all: one two\n".to_owned();
    for (name, jobs) in ["one", "two"].iter().zip(&links) {
        let place = jobs.folder.path("").display().to_string();
        makefile +=
            &format!("{name}:\n\t+cd {place} && {} --local-jobs=64 jobs.json\n", bridge_path());
    }
    folder.write("Makefile", makefile);
    let make = Run::new("make").arg("-j3").cwd(folder.path("")).env("COUNT", &count).go().ok();
    // It complains at its end of tokens that it did not get back.
    make.stderr_lacks("jobserver").stderr_lacks("INTERNAL");
    assert_eq!(most(&count), 3, "at once");
    for jobs in links {
        assert_eq!(jobs.made(), jobs.objects());
    }
}

#[test]
fn ninja_runs_links() {
    skip_without!("clang-22", "ninja");
    let jobs = counting(3);
    let count = jobs.folder.mkdir("count");
    let rule = format!("rule link\n  command = {} $in\n", bridge_path());
    jobs.folder.write("build.ninja", format!("{rule}build app: link jobs.json\n"));
    let run = Run::new("ninja").cwd(jobs.folder.path("")).env("COUNT", &count);
    let output = run.go().ok();
    assert!(output.stdout.contains("dtlto-bridge: 3 jobs in"), "{output}");
    assert!(most(&count) >= 1);
}

#[test]
fn a_job_that_takes_too_long_is_ended_and_said_to_have() {
    skip_without!("clang-22");
    for stubborn in ["", "trap '' TERM\n"] {
        let jobs = Jobs::new(1, &format!("{stubborn}sleep 60 & sleep 60; sleep 60"));
        let marked = Marked::new();
        let output = jobs.run(&["--timeout=1"]).env(MARK, &marked.mark).limit(20).go().code(1);
        output.stderr_has("error: m0.o (jobs[0]): it took longer than 1.0 s");
        marked.gone_within(Duration::from_secs(2));
        assert_eq!(jobs.stats()["records"][0]["outcome"], "timed_out");
    }
}

#[test]
fn a_job_that_is_in_time_is_left_alone() {
    skip_without!("clang-22");
    let jobs = Jobs::new(1, MAKE);
    jobs.go(&["--timeout=30"]).ok();
    let run = bridge().args(["--timeout=1", "jobs.json"]).cwd(jobs.folder.path(""));
    run.go().ok();
}
