//! Whole links through Incredibuild, or rather its emulator (`tests/incredibuild/`): all jobs in one call, and what
//! becomes of a link when that goes wrong. These tests know what is promised, not how the bridge keeps it.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests start programs, and may panic

mod kit;

use std::fs;
use std::time::{Duration, Instant};

use kit::{Incredibuild, Jobs, MAKE, MARK, Marked, Output, Run, skip_without, until};
use rustix::process::Signal;

const WORDS: &str = "m1.o: error: no such luck";

/// Jobs of a script on a machine with the emulator.
struct Farm {
    jobs: Jobs,
    ib: Incredibuild,
}

impl Farm {
    fn new(count: usize, compiler: &str) -> Farm {
        Farm { jobs: Jobs::new(count, compiler), ib: Incredibuild::new("xgConsole") }
    }

    fn run(&self, options: &[&str]) -> Run {
        let options = [&["--adapter=xgconsole"], options].concat();
        self.ib.seen_by(self.jobs.run(&options)).env_remove("xgJobID")
    }

    /// With these faults of the farm.
    #[track_caller]
    fn go(&self, faults: &str, options: &[&str]) -> Output {
        self.run(options).env("FAKE_IB_FAULTS", faults).go()
    }

    /// Objects made on the farm and here, and jobs that failed.
    fn places(&self) -> [u64; 3] {
        let stats = self.jobs.stats();
        let places = &stats["places"];
        [&places["farm"], &places["local"], &stats["failed"]].map(|n| n.as_u64().unwrap())
    }

    fn count(&self, field: &str) -> u64 {
        self.jobs.stats()[field].as_u64().unwrap()
    }

    /// Every object is there, and nothing else of the link's.
    #[track_caller]
    fn all_made(&self) {
        assert_eq!(self.jobs.made(), self.jobs.objects());
    }
}

#[test]
fn all_jobs_go_in_one_call_and_their_hosts_are_known() {
    skip_without!("clang-22");
    let farm = Farm::new(6, MAKE);
    let output = farm.go("", &["--fallback=never"]).ok().stdout_is("");
    output.stderr_has("6 jobs in ").stderr_has("6 on xgconsole (2 hosts), 0 here");
    assert_eq!(farm.ib.calls(), [6]);
    let words = farm.ib.arguments(0);
    assert!(words[0].ends_with("tasks.xml"), "{words:?}");
    let expected = [
        "/Rebuild",
        "/NoWait",
        "/NoLogo",
        "/ShowAgent",
        "/ShowTime",
        "/Title=DTLTO app",
        "/AvoidLocal=ON",
    ];
    assert_eq!(words[1..], expected);
    let stats = farm.jobs.stats();
    let hosts: Vec<_> = stats["hosts"].as_object().unwrap().keys().collect();
    assert_eq!(hosts, ["fake-1", "fake-2"]);
    farm.all_made();
}

#[test]
fn either_name_of_the_tool_will_do() {
    skip_without!("clang-22");
    let farm = Farm { jobs: Jobs::new(2, MAKE), ib: Incredibuild::new("IBConsole") };
    farm.go("", &["--fallback=never"]).ok();
    assert_eq!(farm.ib.calls(), [2]);
}

/// What the farm does to task 1 of 4 in the first call, and how many tasks the second call has then.
const ONCE: [(&str, usize); 12] = [
    ("lost:task1@1", 1),
    ("dropped:task1@1", 1),
    ("empty:task1@1", 1),
    ("truncated:task1@1", 1),
    ("wrong:task1@1", 1),
    ("mask:task1@1", 1),
    ("agents-lost:task1@1", 1),
    ("agent-lost:task1@1", 0),
    ("twice:task1@1", 0),
    ("code1:task1@1", 0),
    ("flood@1", 0),
    ("late2@1", 0),
];

#[test]
fn what_the_farm_fails_once_is_run_again_in_a_smaller_call() {
    skip_without!("clang-22");
    for (fault, again) in ONCE {
        for fallback in ["--fallback=local", "--fallback=never"] {
            let farm = Farm::new(4, MAKE);
            let output = farm.go(fault, &[fallback]).ok();
            let expected = if again == 0 { vec![4] } else { vec![4, again] };
            assert_eq!(farm.ib.calls(), expected, "{fault} {output}");
            assert_eq!(
                (farm.places(), farm.count("retries")),
                ([4, 0, 0], again as u64),
                "{fault}"
            );
            farm.all_made();
        }
    }
}

#[test]
fn what_the_farm_fails_again_and_again_is_run_here_or_fails_the_link() {
    skip_without!("clang-22");
    for fault in [
        "lost:task1",
        "dropped:task1",
        "empty:task1",
        "truncated:task1",
        "wrong:task1",
        "mask:task1",
        "agents-lost:task1",
    ] {
        let farm = Farm::new(4, MAKE);
        farm.go(fault, &["--retries=1"]).ok().stderr_has("1 here (1 of them could not run there)");
        assert_eq!((farm.ib.calls(), farm.places()), (vec![4, 1], [3, 1, 0]), "{fault}");
        farm.all_made();
        let farm = Farm::new(4, MAKE);
        farm.go(fault, &["--retries=1", "--fallback=never"]).code(4).stderr_has("m1.o (jobs[1]): ");
        assert_eq!((farm.ib.calls(), farm.places()), (vec![4, 1], [3, 0, 1]), "{fault}");
    }
}

#[test]
fn a_farm_that_brings_nothing_back_is_left_alone() {
    skip_without!("clang-22");
    let farm = Farm::new(4, MAKE);
    farm.go("dropped:*", &["--retries=9"]).ok().stderr_has("2 calls brought nothing back");
    assert_eq!((farm.ib.calls(), farm.places()), (vec![4, 4], [0, 4, 0]));
}

#[test]
fn a_broken_or_cancelled_farm_is_not_asked_again() {
    skip_without!("clang-22");
    for (fault, words) in
        [("exit2", "Incredibuild itself failed"), ("exit3", "cancelled, or options")]
    {
        let farm = Farm::new(4, MAKE);
        farm.go(fault, &[]).ok().stderr_has(words).stderr_has("is not used any more");
        assert_eq!((farm.ib.calls(), farm.places()), (vec![4], [0, 4, 0]));
        farm.all_made();
        let farm = Farm::new(4, MAKE);
        let output = farm.go(fault, &["--fallback=never"]).code(4).stderr_has(words);
        assert_eq!(output.stderr.matches("error: ").count(), 1, "{output}");
        assert_eq!((farm.ib.calls(), farm.places()), (vec![4], [0, 0, 4]));
    }
}

#[test]
fn a_farm_that_works_on_this_machine_only_is_told_of_once() {
    skip_without!("clang-22");
    let farm = Farm::new(4, MAKE);
    let output = farm.go("unlicensed", &[]).ok().stderr_has("4 here (4 by xgconsole itself)");
    assert_eq!(output.stderr.matches("Dev Tools Acceleration").count(), 1, "{output}");
    assert_eq!(
        (farm.places(), farm.count("tool_local"), farm.count("fallbacks")),
        ([0, 4, 0], 4, 0)
    );
    let farm = Farm::new(4, MAKE);
    farm.go("unlicensed", &["--fallback=never"]).code(4).stderr_has("ran it on this machine");
    assert_eq!(farm.places(), [0, 0, 4]);
    assert_eq!(farm.jobs.made(), [""; 0]);
}

#[test]
fn what_this_machine_does_for_the_farm_counts_as_done_here() {
    skip_without!("clang-22");
    let farm = Farm::new(8, &format!("sleep 0.1\n{MAKE}"));
    farm.run(&[]).env("FAKE_IB_INITIATOR", "1").go().ok().stderr_lacks("ran every job");
    let [there, here, failed] = farm.places();
    assert!(there > 0 && here > 0 && failed == 0, "{there} {here}");
    assert_eq!(farm.count("tool_local"), here);
    let never = Farm::new(8, &format!("sleep 0.1\n{MAKE}"));
    never.run(&["--fallback=never"]).env("FAKE_IB_INITIATOR", "1").go().ok();
    assert_eq!(never.places(), [8, 0, 0]);
}

#[test]
fn a_log_without_machines_proves_nothing() {
    skip_without!("clang-22");
    let farm = Farm::new(2, MAKE);
    farm.go("silent", &[]).ok().stderr_has("does not say where 2 jobs ran");
    assert_eq!(farm.places(), [0, 2, 0]);
    let farm = Farm::new(2, MAKE);
    farm.go("silent", &["--fallback=never"]).code(4).stderr_has("does not say where it ran");
}

#[test]
fn a_compilers_error_is_confirmed_at_home_and_told_once() {
    skip_without!("clang-22");
    let fails = format!(
        "echo >> ran\ncase \" $* \" in *\" m1.o \"*) echo '{WORDS}' >&2; exit 1 ;; esac\n{MAKE}"
    );
    for (fallback, ran) in [("--fallback=local", 5), ("--fallback=never", 4)] {
        let farm = Farm::new(4, &fails);
        let output = farm.go("", &[fallback]).code(1);
        assert_eq!(output.stderr.matches(WORDS).count(), 1, "{output}");
        assert_eq!(output.stderr.matches("to repeat it: ").count(), 1, "{output}");
        assert_eq!((farm.ib.calls(), farm.jobs.folder.text("ran").len()), (vec![4], ran));
        assert_eq!(farm.jobs.stats()["records"][1]["outcome"], "compiler_error");
    }
    let there = format!("test -n \"$xgJobID\" && {{ echo '{WORDS}' >&2; exit 1; }}\n{MAKE}");
    let farm = Farm::new(2, &there);
    farm.go("", &[]).ok().stderr_lacks(WORDS);
    assert_eq!(farm.places(), [0, 2, 0]);
}

#[test]
fn a_task_that_hangs_goes_elsewhere_and_a_call_that_hangs_is_ended() {
    skip_without!("clang-22");
    let farm = Farm::new(4, MAKE);
    farm.run(&["--timeout=2"]).env("FAKE_IB_FAULTS", "hangs:task1").limit(30).go().ok();
    assert_eq!((farm.ib.calls(), farm.places()), (vec![4], [4, 0, 0]));
    let farm = Farm::new(4, MAKE);
    farm.run(&["--timeout=1"]).env("FAKE_IB_FAULTS", "stuck:task1").limit(30).go().ok();
    assert_eq!((farm.ib.calls(), farm.places()), (vec![4], [3, 1, 0]));
    assert_eq!(farm.jobs.stats()["records"][1]["tries"][0]["outcome"], "timed_out");
    let farm = Farm::new(4, MAKE);
    let never = farm.run(&["--timeout=1", "--fallback=never"]).env("FAKE_IB_FAULTS", "stuck:task1");
    never.limit(30).go().code(4).stderr_has("it took longer than 1.0 s");
}

/// Holds the machine's only build, as another one would, for this long.
fn occupied(ib: &Incredibuild, time: Duration) -> std::thread::JoinHandle<()> {
    let lock = fs::File::create(ib.folder.path("lock")).unwrap();
    lock.lock().unwrap();
    std::thread::spawn(move || {
        std::thread::sleep(time);
        lock.unlock().unwrap();
    })
}

#[test]
fn while_another_build_runs_jobs_wait_or_are_done_here() {
    skip_without!("clang-22");
    let farm = Farm::new(3, MAKE);
    let other = occupied(&farm.ib, Duration::from_secs(2));
    let output = farm.go("", &["--when-busy=wait"]).ok().stderr_has("waiting for it");
    assert_eq!(output.stderr.matches("another Incredibuild build runs").count(), 1, "{output}");
    assert_eq!((farm.ib.calls(), farm.places()), (vec![3], [3, 0, 0]));
    assert!(farm.ib.refusals() >= 2 && farm.count("retries") == 0);
    other.join().unwrap();
    let farm = Farm::new(3, MAKE);
    let other = occupied(&farm.ib, Duration::from_secs(5));
    let begun = Instant::now();
    farm.go("", &[]).ok().stderr_has("working here meanwhile");
    assert!(begun.elapsed() < Duration::from_secs(5) && farm.ib.calls().is_empty());
    assert_eq!((farm.places(), farm.count("fallbacks")), ([0, 3, 0], 3));
    other.join().unwrap();
    let farm = Farm::new(3, MAKE);
    farm.go("exit4", &[]).ok().stderr_has("working here meanwhile");
    let farm = Farm::new(3, MAKE);
    let other = occupied(&farm.ib, Duration::from_secs(4));
    let never = farm.go("", &["--fallback=never", "--timeout=1"]).code(4);
    never.stderr_has("another Incredibuild build runs on this machine), for 1.0 s by now");
    other.join().unwrap();
}

#[test]
fn two_and_six_links_share_a_machine() {
    skip_without!("clang-22");
    for links in [2, 6] {
        let ib = Incredibuild::new("xgConsole");
        let all: Vec<Jobs> =
            (0..links).map(|_| Jobs::new(4, &format!("sleep 0.1\n{MAKE}"))).collect();
        let start = |jobs: &Jobs| ib.seen_by(jobs.run(&["--adapter=xgconsole"])).start();
        let running: Vec<_> = all.iter().map(start).collect();
        running.into_iter().for_each(|link| drop(link.wait().ok()));
        for jobs in &all {
            assert_eq!(jobs.made(), jobs.objects());
        }
        assert!(!ib.calls().is_empty());
    }
}

#[test]
fn inside_another_build_no_second_one_is_started() {
    skip_without!("clang-22");
    let farm = Farm::new(3, MAKE);
    let inside = |options: &[&str]| farm.run(options).env("XGJOBID", "{1}").go();
    let output = inside(&[]).ok().stderr_has("3 jobs in ").stderr_has("3 here");
    assert_eq!(output.stderr.matches("inside a build of xgconsole").count(), 1, "{output}");
    farm.all_made();
    inside(&["--fallback=never"]).code(4).stderr_has("nothing may run here");
    assert!(farm.ib.calls().is_empty() && farm.ib.refusals() == 0);
}

#[test]
fn a_signal_or_the_end_of_the_bridge_ends_the_tool_and_its_tasks() {
    skip_without!("clang-22");
    for signal in [Signal::INT, Signal::KILL] {
        let farm = Farm::new(3, "touch \"started.$$\"; sleep 60");
        let marked = Marked::new();
        let link = farm.run(&[]).env(MARK, &marked.mark).start();
        let started = |name: &String| name.starts_with("started.");
        until("three tasks", || farm.jobs.made().iter().filter(|name| started(name)).count() == 3);
        link.signal(signal);
        link.wait().killed_by(signal);
        marked.gone_within(Duration::from_secs(3));
        let mut left = farm.jobs.made();
        left.retain(|name| !started(name));
        assert_eq!(left, [""; 0], "{signal:?}");
    }
}

#[test]
fn a_saved_link_keeps_what_the_tool_was_given() {
    skip_without!("clang-22");
    let farm = Farm::new(2, MAKE);
    farm.go("", &["--save=saved"]).ok();
    let kept = farm.jobs.folder.list("saved/calls");
    assert_eq!(kept, ["call1/log.txt", "call1/tasks.xml"]);
}

#[test]
fn a_name_that_would_be_a_macro_keeps_the_jobs_here() {
    skip_without!("clang-22");
    let farm = Farm::new(1, MAKE);
    let odd = farm.jobs.folder.mkdir("$(HOME)");
    for name in ["m0.o", "m0.bc", "seed", "jobs.json"] {
        fs::copy(farm.jobs.folder.path(name), odd.join(name)).unwrap();
    }
    let run = kit::bridge().args(["--adapter=xgconsole", "jobs.json"]).cwd(&odd);
    farm.ib.seen_by(run).go().ok().stderr_has("would be taken for a macro").stderr_has("1 here");
}

#[test]
fn five_thousand_jobs_go_in_one_call() {
    skip_without!("clang-22");
    let farm = Farm::new(5000, MAKE);
    farm.jobs.write(&farm.jobs.fast_compiler(), |_| Vec::new());
    farm.run(&["--fallback=never"]).env("FAKE_IB_CORES", "8").limit(120).go().ok();
    assert_eq!((farm.ib.calls(), farm.places()), (vec![5000], [5000, 0, 0]));
}

#[test]
fn the_doctor_asks_for_the_licence() {
    skip_without!("clang-22");
    let ib = Incredibuild::new("xgConsole");
    let output = ib.seen_by(kit::bridge().args(["doctor", "--adapter", "xgconsole"])).go().ok();
    assert!(output.stdout.contains("/QUERYLICENSE: Installed packages"), "{output}");
    kit::bridge().args(["doctor", "--adapter", "xgconsole"]).go().code(4);
}

#[test]
fn a_dry_run_shows_the_call() {
    skip_without!("clang-22");
    let farm = Farm::new(2, MAKE);
    let plan = farm.go("", &["--dry-run"]).ok();
    plan.stderr_has("2 jobs, adapter xgconsole, all in one call")
        .stderr_has("batch: xgConsole TASKS /Rebuild /NoWait");
    assert!(farm.ib.calls().is_empty());
}

#[test]
fn files_that_options_make_beside_the_object_come_back_too() {
    skip_without!("clang-22");
    let farm = Farm::new(2, &format!("{MAKE}\necho {{}} > \"${{object%.o}}.json\""));
    let compiler = farm.jobs.folder.path("compiler");
    farm.jobs.write(&compiler, |_| vec!["-ftime-trace".into()]);
    farm.go("", &["--fallback=never"]).ok();
    let expected = ["m0.native.json", "m0.native.o", "m1.native.json", "m1.native.o"];
    assert_eq!(farm.jobs.made(), expected);
}

#[test]
fn each_job_has_its_own_time() {
    skip_without!("clang-22");
    let farm = Farm::new(3, &format!("case \" $* \" in *\" m1.o \"*) sleep 1 ;; esac\n{MAKE}"));
    farm.run(&[]).env("FAKE_IB_CORES", "1").go().ok();
    let stats = farm.jobs.stats();
    let ms = |n: usize| stats["records"][n]["ms"].as_u64().unwrap();
    assert!(ms(1) >= 1000 && ms(0) < 1000 && ms(2) < 1000, "{stats:#}");
}
