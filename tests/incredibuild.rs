//! Whole links through Incredibuild, or rather its emulator (`tests/incredibuild/`): all jobs in one call, and what
//! becomes of a link when that goes wrong. These tests know what is promised, not how the bridge keeps it.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests start programs, and may panic

mod kit;

use std::fs;
use std::time::Duration;

use kit::{Folder, Incredibuild, Jobs, MAKE, Marked, Modules, Output, Run, skip_without, until};
use rustix::process::Signal;
use serde_json::Value;

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
    let expected = ["/Rebuild", "/NoWait", "/NoLogo", "/ShowAgent", "/ShowTime", "/Title=DTLTO app", "/AvoidLocal=ON"];
    assert_eq!(words[1..], expected);
    let stats = farm.jobs.stats();
    let hosts: Vec<_> = stats["hosts"].as_object().unwrap().keys().collect();
    assert_eq!(hosts, ["fake-1", "fake-2"]);
    farm.all_made();
}
