//! What scripts rely on: options and their variables, exit codes, `--stats`, `--trace`, what goes to
//! which stream. These tests know the contract, not the code behind it.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests start programs, and may panic

mod kit;

use std::path::Path;

use kit::{Jobs, MAKE, Output, Run, bridge, bridge_path, skip_without};
use serde_json::{Value, json};

const FAILS: &str = "echo 'error: no luck' >&2; exit 1";

/// Every option with a value that shows, and what shows it: a piece of `--stats` or of stderr.
/// The first value is the variable's, the second the option's.
const OPTIONS: [(&str, [&str; 2]); 20] = [
    ("adapter", ["none.json", "local"]),
    ("cache", ["bad", "none"]),
    ("cache-mode", ["bad", "read"]),
    ("cache-feed", ["bad", "local"]),
    ("cache-salt", ["", "spring"]),
    ("local-jobs", ["0", "64"]),
    ("farm-jobs", ["0", "1"]),
    ("retries", ["-1", "1"]),
    ("timeout", ["0", "100"]),
    ("fallback", ["bad", "local"]),
    ("when-busy", ["bad", "wait"]),
    ("math", ["bad", "any"]),
    ("env-salt", ["", "new"]),
    ("scratch", ["", "."]),
    ("stats", ["", "stats.json"]),
    ("trace", ["", "trace.json"]),
    ("save", ["", "saved"]),
    ("progress", ["bad", "plain"]),
    ("verbose", ["yes", ""]),
    ("quiet", ["yes", ""]),
];

fn variable(option: &str) -> String {
    format!("DTLTO_BRIDGE_{}", option.to_uppercase().replace('-', "_"))
}

/// The bridge without the options that these tests usually give.
fn plain(jobs: &Jobs) -> Run {
    bridge().cwd(jobs.folder.path(""))
}

#[test]
fn each_option_of_the_help_has_its_variable() {
    let help = bridge().arg("--help").go().ok().stdout;
    let (_, options) = help.split_once("\nOptions:").unwrap();
    let lines = options.lines().map(str::trim).filter(|line| line.starts_with('-'));
    let names = lines.filter_map(|line| line.split_once("--")?.1.split(' ').next());
    let names: Vec<_> =
        names.filter(|name| !["help", "version", "dry-run"].contains(name)).collect();
    assert_eq!(names, OPTIONS.map(|(option, _)| option));
    let jobs = Jobs::new(1, MAKE);
    for (option, [bad, _]) in OPTIONS {
        if bad.is_empty() {
            continue;
        }
        let run = plain(&jobs).env(&variable(option), bad).arg("jobs.json");
        let output = run.go().code(2).stdout_is("");
        let named = output.stderr.contains(&variable(option)) || option == "adapter";
        assert!(named, "{option}: {output}");
    }
    assert_eq!(jobs.made(), [""; 0]);
}

#[test]
fn variables_work_like_their_options() {
    skip_without!("clang-22");
    let jobs = Jobs::new(2, MAKE);
    let run = OPTIONS.iter().fold(plain(&jobs), |run, (option, [_, good])| match *option {
        "verbose" => run.env(&variable(option), "1"),
        "quiet" => run.env(&variable(option), "0"),
        _ => run.env(&variable(option), good),
    });
    run.arg("jobs.json")
        .go()
        .ok()
        .stderr_has("fthinlto-index=m0.bc")
        .stderr_lacks("belongs to no option");
    let mut made = jobs.made();
    made.retain(|name| !name.starts_with("saved/"));
    assert_eq!(made, ["m0.native.o", "m1.native.o", "trace.json"]);
    assert!(jobs.folder.path("saved/jobs.json").exists());
    assert_eq!(jobs.stats()["jobs"], 2);
    let dry = plain(&jobs).env("DTLTO_BRIDGE_DRY_RUN", "1").arg("jobs.json").go().ok();
    dry.stderr_has("plan for \"app\": 2 jobs");
}

#[test]
fn an_option_beats_its_variable() {
    skip_without!("clang-22");
    let jobs = Jobs::new(1, FAILS);
    for (option, first, second) in
        [("stats", "one.json", "two.json"), ("trace", "1", "2"), ("save", "s", "t")]
    {
        let run = plain(&jobs).env(&variable(option), first);
        run.arg(format!("--{option}={second}")).arg("jobs.json").go().code(1);
        assert!(jobs.folder.path(second).exists() && !jobs.folder.path(first).exists(), "{option}");
    }
    let adapter = plain(&jobs).env("DTLTO_BRIDGE_ADAPTER", "./none.json");
    adapter.args(["--adapter=local", "jobs.json"]).go().code(1);
    let progress = plain(&jobs).env("DTLTO_BRIDGE_LOCAL_JOBS", "3");
    let plan = progress.args(["--local-jobs=5", "--dry-run", "jobs.json"]).go().ok();
    plan.stderr_has("5 at once");
}

#[test]
fn quiet_and_verbose_beat_each_others_variable() {
    skip_without!("clang-22");
    let jobs = Jobs::new(1, MAKE);
    let quiet = plain(&jobs).env("DTLTO_BRIDGE_VERBOSE", "1").args(["-q", "jobs.json"]).go().ok();
    assert_eq!(quiet.stderr, "");
    let verbose = plain(&jobs).env("DTLTO_BRIDGE_QUIET", "1").args(["-v", "jobs.json"]).go().ok();
    verbose.stderr_has("fthinlto-index=m0.bc");
}

#[test]
fn the_last_of_two_equal_options_wins() {
    skip_without!("clang-22");
    let jobs = Jobs::new(1, MAKE);
    let words = ["--local-jobs=3", "--local-jobs", "7", "--adapter=none", "--adapter", "local"];
    let words = [&words[..], &["-v", "-v", "--dry-run", "--dry-run", "jobs.json"]].concat();
    plain(&jobs).args(words).go().ok().stderr_has("7 at once");
}

#[test]
fn an_unknown_variable_is_a_notice() {
    skip_without!("clang-22");
    let jobs = Jobs::new(1, MAKE);
    let run = plain(&jobs).env("DTLTO_BRIDGE_ADAPTOR", "local").arg("jobs.json");
    run.go().ok().stderr_has("the variable DTLTO_BRIDGE_ADAPTOR belongs to no option");
}

#[test]
fn exit_codes_tell_what_went_wrong() {
    skip_without!("clang-22");
    let jobs = Jobs::new(2, MAKE);
    jobs.go(&[]).ok();
    Jobs::new(2, FAILS).go(&[]).code(1);
    for words in [&["--no-such"][..], &["--retries=x"], &["stray"], &["--adapter=none"]] {
        let output = plain(&jobs).args(words).arg("jobs.json").go().code(2).stdout_is("");
        assert!(!output.stderr.is_empty(), "{output}");
    }
    plain(&jobs).go().code(2).stderr_has("no job file given");
    plain(&jobs).arg("none.json").go().code(3);
    std::fs::remove_file(jobs.folder.path("m1.bc")).unwrap();
    jobs.go(&[]).code(3).stderr_has("jobs[1] (m1.o): m1.bc: there is no such input");
    assert_fields(&jobs.stats(), 2, 2);
}

#[test]
fn help_and_version_go_to_standard_output() {
    for words in [["--help"], ["-h"]] {
        let output = bridge().args(words).go().ok();
        assert!(output.stdout.contains("--fallback") && output.stderr.is_empty(), "{output}");
    }
    let version = concat!("dtlto-bridge ", env!("CARGO_PKG_VERSION"), "\n");
    bridge().arg("--version").go().ok().stdout_is(version);
    let help = bridge().arg("--help").go().stdout;
    for code in [
        "0 all objects made",
        "1 a job failed",
        "2 usage",
        "3 the job file",
        "4 the farm",
        "70 a bug",
    ] {
        assert!(help.contains(code), "{code} is not in {help}");
    }
}

/// All fields of schema 1, and their sums.
#[track_caller]
fn assert_fields(stats: &Value, jobs: usize, failed: usize) {
    for (field, is) in [
        ("link", Value::is_string as fn(&Value) -> bool),
        ("started", Value::is_string),
        ("compiler", Value::is_string),
        ("hosts", Value::is_object),
        ("wall_ms", Value::is_u64),
        ("retries", Value::is_u64),
        ("fallbacks", Value::is_u64),
        ("tool_local", Value::is_u64),
        ("records", Value::is_array),
    ] {
        assert!(is(&stats[field]), "{field} of {stats:#}");
    }
    let fixed = json!([1, env!("CARGO_PKG_VERSION"), "none", "app", jobs, failed]);
    let found = ["schema", "bridge", "cache", "linker_output", "jobs", "failed"].map(|f| &stats[f]);
    assert_eq!(json!(found), fixed);
    for field in ["inputs", "distinct", "sent", "received"] {
        assert!(stats["bytes"][field].is_u64(), "bytes.{field} of {stats:#}");
    }
    let places = ["cache", "farm", "local"].map(|place| stats["places"][place].as_u64().unwrap());
    assert_eq!(places.iter().sum::<u64>() as usize + failed, jobs, "{stats:#}");
    let records = stats["records"].as_array().unwrap();
    assert_eq!(records.len(), jobs);
    for record in records {
        assert!(record["module"].is_string() && record["ms"].is_u64(), "{record:#}");
        assert_eq!(
            record["tries"].as_array().unwrap().len() as u64,
            record["attempts"],
            "{record:#}"
        );
        for field in ["place", "host", "outcome", "outputs", "worker"] {
            assert!(record.get(field).is_some(), "{field} of {record:#}");
        }
    }
}

#[test]
fn stats_have_all_fields_after_success_and_failure() {
    skip_without!("clang-22");
    let jobs = Jobs::new(3, &format!("case \" $* \" in *\" m1.o \"*) {FAILS} ;; esac\n{MAKE}"));
    jobs.go(&[]).code(1);
    let stats = jobs.stats();
    assert_fields(&stats, 3, stats["failed"].as_u64().unwrap() as usize);
    assert_eq!(stats["records"][1]["outcome"], "compiler_error");
    assert_eq!(stats["records"][1]["place"], Value::Null);
    let jobs = Jobs::new(3, MAKE);
    jobs.go(&[]).ok();
    let stats = jobs.stats();
    assert_fields(&stats, 3, 0);
    let output = json!([{
        "path": "m2.native.o",
        "bytes": kit::seed().len(),
        "blake3": blake3::hash(kit::seed()).to_string(),
    }]);
    assert_eq!(stats["records"][2]["outputs"], output);
    assert_eq!(stats["records"][2]["place"], "local");
    assert_eq!(stats["bytes"]["inputs"], stats["bytes"]["distinct"]);
}

fn stats_to(jobs: &Jobs, target: &str) -> Output {
    let option = format!("--stats={target}");
    plain(jobs).args(["--local-jobs=64", &option, "jobs.json"]).go()
}

#[test]
fn stats_and_trace_go_into_a_folder_a_device_or_a_pipe() {
    skip_without!("clang-22");
    let jobs = Jobs::new(1, MAKE);
    for _ in 0..2 {
        plain(&jobs).args(["--stats=all/", "--trace=all/deep/", "jobs.json"]).go().ok();
    }
    let made = jobs.folder.list("all");
    assert_eq!(
        (made.len(), made.iter().filter(|name| name.starts_with("deep/app-")).count()),
        (4, 2)
    );
    assert_eq!(made.iter().filter(|name| name.starts_with("app-")).count(), 2, "{made:?}");
    stats_to(&jobs, "/dev/null").ok().stderr_lacks("not written");
    assert!(!Path::new("/dev/null").is_file());
    let script = "mkfifo pipe && { cat pipe > read & } && \"$0\" --stats=pipe jobs.json; code=$?; wait; exit $code";
    Run::new("sh").args(["-c", script, bridge_path()]).cwd(jobs.folder.path("")).go().ok();
    assert_fields(&serde_json::from_slice(&jobs.folder.read("read")).unwrap(), 1, 0);
}

#[test]
fn a_report_that_cannot_be_written_does_not_fail_the_link() {
    skip_without!("clang-22");
    let jobs = Jobs::new(1, MAKE);
    jobs.folder.mkdir("folder");
    for target in ["folder", "jobs.json/stats.json", "/proc/none/stats.json"] {
        stats_to(&jobs, target).ok().stderr_has("not written: ");
    }
    assert_eq!(jobs.made(), ["folder/", "m0.native.o"]);
}

#[test]
fn a_trace_has_a_row_for_each_slot_and_an_event_for_each_job() {
    skip_without!("clang-22");
    // All three at the same time: each waits for the others.
    let meet = "echo > \"here.$$\"; until [ $(ls here.* | wc -l) = 3 ]; do sleep 0.01; done\n";
    let jobs = Jobs::new(3, &format!("{meet}{MAKE}"));
    jobs.go(&["--trace=trace.json"]).ok();
    let trace: Value = serde_json::from_slice(&jobs.folder.read("trace.json")).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let rows: Vec<_> = events.iter().filter(|event| event["ph"] == "M").collect();
    let names: Vec<_> = rows.iter().map(|row| row["args"]["name"].as_str().unwrap()).collect();
    assert_eq!(names.len(), 3, "{trace:#}");
    for name in ["local 0", "local 1", "local 2"] {
        assert!(names.contains(&name), "{names:?}");
    }
    let spans: Vec<_> = events.iter().filter(|event| event["ph"] == "X").collect();
    assert_eq!(spans.len(), 3);
    let wall = jobs.stats()["wall_ms"].as_u64().unwrap() * 1000;
    for span in spans {
        assert!(rows.iter().any(|row| row["tid"] == span["tid"]), "{span}");
        let end = span["ts"].as_u64().unwrap() + span["dur"].as_u64().unwrap();
        assert!(span["dur"].as_u64() > Some(0) && end <= wall + 1000, "{span} of {wall} us");
    }
}
