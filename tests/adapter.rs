//! A user's own adapter, without a rebuild: a manifest and a small program that stands for a farm's
//! client. These tests know what a manifest promises, not how the bridge keeps it.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests start programs, and may panic

mod kit;

use kit::{Jobs, MAKE, Output, Run, skip_without};
use serde_json::{Value, json};

/// Records what it is called with, then does what the job's command says.
const PASS: &str = r#"echo >> calls; exec "$@""#;

/// What a compiler says in these tests when it fails.
const WORDS: &str = "m0.o:1:1: error: no such luck";

/// Jobs together with a farm of one client.
struct Farm {
    jobs: Jobs,
}

impl Farm {
    /// `count` jobs for a good compiler; `client` is the client's shell script.
    fn new(count: usize, client: &str) -> Self {
        Self::with(Jobs::new(count, MAKE), client, json!({}))
    }

    /// The same with keys of the manifest that are added or replaced.
    fn with(jobs: Jobs, client: &str, keys: Value) -> Self {
        jobs.folder.script("adapters/client", client);
        let mut manifest = json!({
            "schema": 1,
            "name": "farm",
            "summary": "A farm of these tests.",
            "place": "farm",
            "hand_over": "each",
            "shipping": "direct",
            "tool": "./client",
            "command": ["{tool}", "{compiler}", "{args...}"],
            "slots": 64,
            "exit": [
                {"codes": "75", "means": "busy"},
                {"codes": "76", "means": "unreachable"},
                {"codes": "77", "means": "no compiler", "say": "this host has none"},
                {"codes": "78", "means": "no hosts"},
            ],
        });
        for (key, value) in keys.as_object().unwrap() {
            manifest[key] = value.clone();
        }
        jobs.folder.write("adapters/farm.json", manifest.to_string());
        Farm { jobs }
    }

    fn run(&self, options: &[&str]) -> Run {
        self.jobs.run(&[&["--adapter=adapters/farm.json"], options].concat())
    }

    #[track_caller]
    fn go(&self, options: &[&str]) -> Output {
        self.run(options).go()
    }

    /// How often the client was called.
    fn calls(&self) -> usize {
        std::fs::read_to_string(self.jobs.folder.path("calls"))
            .map_or(0, |text| text.lines().count())
    }

    /// Farm, local, failed, retries and fallbacks, as `--stats` has them.
    fn counts(&self) -> [u64; 5] {
        let stats = self.jobs.stats();
        let places = &stats["places"];
        let all = [&places["farm"], &places["local"], &stats["failed"], &stats["retries"]];
        [all[0], all[1], all[2], all[3], &stats["fallbacks"]].map(|n| n.as_u64().unwrap())
    }

    fn outcomes(&self) -> Vec<String> {
        let stats = self.jobs.stats();
        let records = stats["records"].as_array().unwrap();
        records.iter().map(|record| record["outcome"].as_str().unwrap().to_owned()).collect()
    }
}

#[track_caller]
fn assert_once(output: &Output, words: &str) {
    assert_eq!(output.stderr.matches(words).count(), 1, "not exactly once: {words}\n{output}");
}

#[test]
fn arguments_arrive_exactly() {
    skip_without!("clang-22");
    let client = r#"printf '%s\0' "$@" > argv; exec "$@""#;
    let command =
        ["{tool}", "a b", "{{x}}", "", "{job}-{linker_output}", "{compiler}", "{args...}"];
    // The words before the compiler are for the client.
    let client = format!("{}\nshift 4; exec \"$@\"", client.replace("; exec \"$@\"", ""));
    let farm = Farm::with(Jobs::new(1, MAKE), &client, json!({"command": command}));
    let odd =
        ["a blank", "it's \"q\"", "line\nbreak", "{x}", "{job}", "", "$HOME", "*", "\\", "ünï"];
    let compiler = farm.jobs.folder.path("compiler");
    farm.jobs.write(&compiler, |_| odd.map(str::to_owned).to_vec());
    farm.go(&["--fallback=never"]).ok();
    let text = farm.jobs.folder.text("argv");
    let words: Vec<_> = text.strip_suffix('\0').unwrap().split('\0').collect();
    assert_eq!(words[..4], ["a b", "{x}", "", "0-app"]);
    assert_eq!(words[4], compiler.to_str().unwrap());
    assert_eq!(words[5..15], odd);
    assert_eq!(words[15..18], ["m0.o", "-fthinlto-index=m0.bc", "-o"]);
    assert_eq!(words.len(), 19);
}

#[test]
fn the_environment_is_set_and_unset_as_told_and_else_inherited() {
    skip_without!("clang-22");
    let client = r#"cat /proc/$$/environ > env; exec "$@""#;
    let env = json!({
        "set": {"FARM_JOB": "{job} of {linker_output}\n{{x}}", "FARM_EMPTY": "", "REPLACED": "new"},
        "unset": ["FARM_HOST"],
    });
    let farm = Farm::with(Jobs::new(1, MAKE), client, json!({"env": env}));
    let run = farm.run(&["--fallback=never"]);
    run.env("FARM_HOST", "x").env("REPLACED", "old").env("KEPT", " a ").go().ok();
    let text = farm.jobs.folder.text("env");
    let has = |entry: &str| text.split('\0').any(|found| found == entry);
    for entry in ["FARM_JOB=0 of app\n{x}", "FARM_EMPTY=", "REPLACED=new", "KEPT= a "] {
        assert!(has(entry), "no {entry:?} in {text:?}");
    }
    assert!(!text.contains("FARM_HOST") && !has("REPLACED=old"), "{text:?}");
}

#[test]
fn a_farm_that_is_busy_once_is_asked_again() {
    skip_without!("clang-22");
    let farm = Farm::new(2, &format!("mkdir \"$2.refused\" 2>/dev/null && exit 75\n{PASS}"));
    farm.go(&[]).ok();
    assert_eq!(farm.counts(), [2, 0, 0, 2, 0]);
    let record = &farm.jobs.stats()["records"][0];
    assert_eq!((&record["attempts"], &record["place"]), (&2.into(), &"farm".into()));
    assert_eq!(record["tries"][0]["outcome"], "farm_fault");
    assert!(record["tries"][0]["reason"].as_str().unwrap().contains("busy"), "{record}");
}

#[test]
fn a_farm_that_stays_busy_is_asked_as_often_as_allowed_and_then_left() {
    skip_without!("clang-22");
    let farm = Farm::new(1, "echo >> calls; exit 75");
    farm.go(&["--retries=1"]).ok().stderr_has("0 on farm, 1 here (1 of them could not run there)");
    assert_eq!((farm.calls(), farm.counts()), (2, [0, 1, 0, 1, 1]));
}

#[test]
fn a_job_without_its_compiler_on_the_farm_goes_home() {
    skip_without!("clang-22");
    let farm = Farm::new(2, &format!("case \"$2\" in m0.o) exit 77 ;; esac\n{PASS}"));
    farm.go(&["-v"]).ok().stderr_has("this host has none");
    assert_eq!(farm.counts(), [1, 1, 0, 0, 1]);
}

#[test]
fn a_farm_without_hosts_is_not_asked_again() {
    skip_without!("clang-22");
    let farm = Farm::new(5, "echo >> calls; exit 78");
    farm.go(&["--farm-jobs=1"]).ok().stderr_has("farm is not used any more");
    assert_eq!((farm.calls(), farm.counts()), (1, [0, 5, 0, 0, 5]));
}

#[test]
fn a_compilers_error_is_confirmed_at_home_and_told_once() {
    skip_without!("clang-22");
    let jobs = Jobs::new(1, &format!("echo '{WORDS}' >&2; exit 1"));
    let farm = Farm::with(jobs, PASS, json!({}));
    let output = farm.go(&[]).code(1).stdout_is("");
    assert_once(&output, WORDS);
    assert_once(&output, "to repeat it:");
    assert_eq!((farm.calls(), farm.counts()), (1, [0, 0, 1, 0, 0]));
    let record = &farm.jobs.stats()["records"][0];
    assert_eq!((&record["attempts"], &record["outcome"]), (&2.into(), &"compiler_error".into()));
}

#[test]
fn an_error_that_only_the_farms_compiler_has_does_not_break_the_link() {
    skip_without!("clang-22");
    let farm = Farm::new(1, "echo 'error: bad farm' >&2; exit 1");
    farm.go(&[]).ok().stderr_lacks("bad farm");
    assert_eq!(farm.counts(), [0, 1, 0, 0, 1]);
}

#[test]
fn without_fallback_a_farms_fault_ends_in_4() {
    skip_without!("clang-22");
    for client in ["exit 75", "exit 76", "exit 77", "exit 78", "kill -9 $$", "exit 0"] {
        let farm = Farm::new(1, client);
        farm.go(&["--fallback=never", "--retries=0"]).code(4).stderr_has("error: ");
        assert_eq!(
            (farm.counts(), farm.jobs.made()),
            ([0, 0, 1, 0, 0], vec!["adapters/client".to_owned(), "adapters/farm.json".to_owned(),]),
            "{client}"
        );
    }
}

#[test]
fn without_fallback_a_compilers_error_ends_in_1() {
    skip_without!("clang-22");
    let jobs = Jobs::new(1, &format!("echo >> compiled; echo '{WORDS}' >&2; exit 1"));
    let farm = Farm::with(jobs, PASS, json!({}));
    let output = farm.go(&["--fallback=never"]).code(1);
    assert_once(&output, WORDS);
    assert_eq!(farm.jobs.folder.text("compiled"), "\n", "compiled once, on the farm");
    assert_eq!(farm.outcomes(), ["compiler_error"]);
}

#[test]
fn a_farms_fault_beside_a_compilers_error_ends_in_4() {
    skip_without!("clang-22");
    let client = "case \"$2\" in m0.o) exit 75 ;; *) exit 1 ;; esac";
    let farm = Farm::new(2, client);
    farm.go(&["--fallback=never", "--retries=0"]).code(4);
    let mut outcomes = farm.outcomes();
    outcomes.sort();
    assert_eq!(outcomes, ["compiler_error", "farm_fault"]);
}

#[test]
fn a_missing_tool_is_a_notice_and_the_jobs_run_here() {
    skip_without!("clang-22");
    let farm = Farm::with(Jobs::new(2, MAKE), "", json!({"tool": "no-such-client-anywhere"}));
    farm.go(&[]).ok().stderr_has("no-such-client-anywhere: no such program on PATH");
    assert_eq!(farm.counts(), [0, 2, 0, 0, 2]);
}

#[test]
fn a_missing_tool_without_fallback_ends_in_4() {
    skip_without!("clang-22");
    let farm = Farm::with(Jobs::new(2, MAKE), "", json!({"tool": "no-such-client-anywhere"}));
    farm.go(&["--fallback=never"]).code(4).stderr_has("no-such-client-anywhere");
    assert_eq!(farm.counts(), [0, 0, 2, 0, 0]);
}

#[test]
fn an_adapter_is_found_by_name_in_the_users_folder_alone() {
    skip_without!("clang-22");
    let farm = Farm::new(1, PASS);
    let folder = &farm.jobs.folder;
    let by_name =
        |home: &str| farm.jobs.run(&["--adapter=farm"]).env("XDG_CONFIG_HOME", folder.path(home));
    // Neither here nor in a folder that looks like the built-in ones'.
    folder.write("farm.json", folder.read("adapters/farm.json"));
    by_name("none").go().code(2).stderr_has("no adapter is called \"farm\"");
    let mine = "config/dtlto-bridge/adapters";
    folder.mkdir(mine);
    for name in ["client", "farm.json"] {
        std::fs::copy(folder.path("adapters").join(name), folder.path(mine).join(name)).unwrap();
    }
    by_name("config").go().ok();
    assert_eq!((farm.calls(), farm.counts()), (1, [1, 0, 0, 0, 0]));
}

#[test]
fn a_broken_manifest_is_a_usage_error_and_nothing_runs() {
    skip_without!("clang-22");
    let farm = Farm::with(Jobs::new(1, MAKE), PASS, json!({"shell": "yes"}));
    farm.go(&[]).code(2).stderr_has("shell").stdout_is("");
    assert!(!farm.jobs.folder.path("m0.native.o").exists());
}

#[test]
fn an_object_that_the_farm_did_not_make_is_made_here() {
    skip_without!("clang-22");
    for client in
        ["exit 0", r#"for o; do :; done; : > "$o""#, r#"for o; do :; done; echo text > "$o""#]
    {
        let farm = Farm::new(1, client);
        farm.go(&["--retries=1"]).ok();
        assert_eq!(farm.counts(), [0, 1, 0, 1, 1], "{client}");
        assert_eq!(farm.jobs.folder.read("m0.native.o"), kit::seed(), "{client}");
    }
}
