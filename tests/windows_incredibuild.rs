//! The bridge on Windows, as Wine has it, with the emulator of Incredibuild there: one call for all jobs, and what
//! becomes of a link when that goes wrong. These tests know what is promised, not how the bridge keeps it.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests start programs, and may panic

mod kit;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use kit::windows_link::{SOON, WindowsLink};
use kit::{Output, Run, Wine, built, on_windows, until};
use rustix::process::{Signal, kill_process};
use serde_json::json;

/// A link on a machine that has Incredibuild.
struct Farm {
    link: WindowsLink,
}

impl Farm {
    fn new(wine: Arc<Wine>, count: usize, more: impl Fn(usize) -> Vec<String>) -> Farm {
        let link = WindowsLink::new(wine, count, more);
        let folder = link.folder.mkdir("Incredi Build");
        fs::copy(built("examples/xgconsole.exe"), folder.join("xgConsole.exe")).unwrap();
        Farm { link }
    }

    fn installed_in(&self) -> String {
        on_windows(&self.link.folder.path("Incredi Build"))
    }

    fn run(&self, faults: &str, options: &[&str]) -> Run {
        self.seen_by(self.link.run(&[&["--adapter=xgconsole"], options].concat()), faults)
    }

    /// Wine adds `WINEPATH` to the `PATH` of programs.
    fn seen_by(&self, run: Run, faults: &str) -> Run {
        run.env("WINEPATH", self.installed_in())
            .env("FAKE_IB", on_windows(&self.link.folder.path("")))
            .env("FAKE_IB_FAULTS", faults)
    }

    #[track_caller]
    fn go(&self, faults: &str, options: &[&str]) -> Output {
        let output = self.run(faults, options).go();
        self.link.marked.gone_within(SOON);
        output
    }

    /// The number of tasks in each call.
    fn calls(&self) -> Vec<usize> {
        let text = fs::read_to_string(self.link.folder.path("calls")).unwrap_or_default();
        text.lines().map(|line| line.split('\t').next().unwrap().parse().unwrap()).collect()
    }

    /// Objects made on the farm and here, and jobs that failed.
    fn places(&self) -> [u64; 3] {
        let stats = self.link.stats();
        let places = &stats["places"];
        [&places["farm"], &places["local"], &stats["failed"]].map(|n| n.as_u64().unwrap())
    }
}

fn no_more(_: usize) -> Vec<String> {
    Vec::new()
}

#[test]
fn all_jobs_go_in_one_call_and_arguments_arrive_exactly() {
    let Some(wine) = Wine::get() else { return };
    let odd = ["-DA=b \"c\" \\", "-D%PATH%", "-D$(HOME)", "-D^&|<>", "-Dä ö\tü€😀", "-D'$x'"];
    let farm = Farm::new(wine, 6, |_| odd.map(str::to_owned).to_vec());
    farm.go("", &["--fallback=never"]).ok().stderr_has("6 on xgconsole (2 hosts), 0 here");
    assert_eq!((farm.calls(), farm.places()), (vec![6], [6, 0, 0]));
    farm.link.made_all();
    let argvs = farm.link.argvs();
    assert_eq!(argvs.len(), 6);
    assert!(argvs.iter().all(|argv| argv.ends_with(&odd.join("\n"))), "{argvs:#?}");
    assert_eq!(farm.link.stats()["hosts"].as_object().unwrap().len(), 2);
}

/// What the farm does in the first call, and how many of four tasks the second call has then.
#[track_caller]
fn is_made_good(cases: &[(&str, usize)]) {
    let Some(wine) = Wine::get() else { return };
    for (fault, again) in cases {
        let farm = Farm::new(wine.clone(), 4, no_more);
        let output = farm.go(fault, &["--fallback=never"]).ok();
        let expected = if *again == 0 { vec![4] } else { vec![4, *again] };
        assert_eq!((farm.calls(), farm.places()), (expected, [4, 0, 0]), "{fault} {output}");
        farm.link.made_all();
    }
}

#[test]
fn what_does_not_come_back_goes_out_again() {
    is_made_good(&[("lost:task1@1", 1), ("dropped:task1@1", 1), ("mask:task1@1", 1)]);
}

#[test]
fn what_comes_back_damaged_goes_out_again() {
    is_made_good(&[("empty:task1@1", 1), ("truncated:task1@1", 1), ("wrong:task1@1", 1)]);
}

#[test]
fn a_lost_machine_costs_a_second_call_at_most() {
    is_made_good(&[("agent-lost:task1@1", 0), ("agents-lost:task1@1", 1), ("twice:task1@1", 0)]);
}

#[test]
fn outputs_count_and_not_the_code_of_the_call() {
    is_made_good(&[("code1:task1@1", 0), ("late2@1", 0), ("flood@1", 0)]);
}

#[test]
fn a_farm_that_cannot_be_used_fails_the_link_or_the_jobs_run_here() {
    let Some(wine) = Wine::get() else { return };
    for (fault, words) in [
        ("exit2", "Incredibuild itself failed"),
        ("exit3", "cancelled, or options"),
        ("exit4", "another Incredibuild build runs"),
        ("unlicensed", "Dev Tools Acceleration"),
    ] {
        let farm = Farm::new(wine.clone(), 2, no_more);
        farm.go(fault, &[]).ok().stderr_has(words);
        assert_eq!(farm.places(), [0, 2, 0], "{fault}");
        farm.link.made_all();
        let farm = Farm::new(wine.clone(), 2, no_more);
        farm.go(fault, &["--fallback=never", "--timeout=1"]).code(4);
        assert_eq!((farm.places(), farm.link.left()), ([0, 0, 2], 0), "{fault}");
    }
}

#[test]
fn a_compilers_error_is_told_once() {
    let Some(wine) = Wine::get() else { return };
    let fails = |n: usize| if n == 1 { vec!["--fault=error".into()] } else { Vec::new() };
    let farm = Farm::new(wine, 3, fails);
    let output = farm.go("", &[]).code(1);
    assert_eq!(output.stderr.matches("the stand-in was asked to fail: ä").count(), 1, "{output}");
    assert_eq!(farm.link.stats()["failed"], json!(1));
}

#[test]
fn a_call_that_hangs_is_ended_with_all_its_tasks() {
    let Some(wine) = Wine::get() else { return };
    let farm = Farm::new(wine, 3, no_more);
    farm.go("stuck:task1", &["--timeout=4"]).ok();
    assert_eq!((farm.calls(), farm.places()), (vec![3], [2, 1, 0]));
    farm.link.made_all();
}

#[test]
fn the_bridge_killed_takes_the_call_and_its_tasks_along() {
    let Some(wine) = Wine::get() else { return };
    let hangs = |n: usize| if n == 0 { Vec::new() } else { vec!["--fault=hang".into()] };
    let farm = Farm::new(wine, 3, hangs);
    let running = farm.run("", &[]).start();
    until("three compilers", || farm.link.folder.list("log").len() == 3);
    kill_process(farm.link.marked.find("dtlto-bridge.exe", "jobs.json"), Signal::KILL).unwrap();
    farm.link.marked.gone_within(SOON);
    drop(running);
    assert_eq!(farm.link.left(), 0, "{:#?}", farm.link.folder.list("link/out"));
}

/// The installer's entry in the registry stands in for `PATH`.
#[test]
fn incredibuild_is_found_where_its_installer_put_it() {
    let Some(wine) = Wine::get() else { return };
    let farm = Farm::new(wine.clone(), 2, no_more);
    let key = r"HKLM\SOFTWARE\Xoreax\IncrediBuild\Builder";
    let registry = |args: &[&str]| wine.program(Path::new("reg")).args(args).go().ok();
    let doctor = || {
        let doctor = farm.seen_by(wine.bridge().args(["doctor", "--adapter=xgconsole"]), "");
        doctor.env_remove("WINEPATH").go()
    };
    doctor().code(4);
    for view in ["/reg:64", "/reg:32"] {
        registry(&["add", key, "/v", "Folder", "/d", &farm.installed_in(), "/f", view]);
        let output = doctor().ok();
        assert!(output.stdout.contains("Incredi Build\\xgConsole.exe"), "{output}");
        registry(&["delete", key, "/f", view]);
    }
    doctor().code(4);
}
