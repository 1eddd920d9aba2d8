//! What the bridge makes of a farm that answers badly, late, for another job or not at all, and of jobs that
//! may not travel: every object is right or absent, and the user learns why. They know nothing of real farms.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests start programs, and may panic

mod kit;

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use kit::{Farm, Folder, LinkJobs, Modules, Output, Run, bridge, skip_without, tool};
use serde_json::{Value, json};

/// Three jobs as LLD left them, but for `more` arguments of the link.
struct Kept {
    jobs: LinkJobs,
    file: PathBuf,
}

impl Kept {
    fn new(more: &[&str]) -> Kept {
        let folder = Folder::new();
        Modules::compile(&folder, "", &[]);
        let jobs = LinkJobs::of(folder, &["a.o", "b.o", "c.o"], more);
        let mut names = jobs.folder.list("").into_iter();
        let name = names.find(|name| name.ends_with(".dist-file.json")).unwrap();
        let file = jobs.folder.path(name);
        Kept { jobs, file }
    }

    fn edit(&self, edit: impl FnOnce(&mut Value)) {
        let mut json = serde_json::from_slice(&fs::read(&self.file).unwrap()).unwrap();
        edit(&mut json);
        fs::write(&self.file, json.to_string()).unwrap();
    }

    fn run(&self, farm: &Farm, options: &[&str]) -> Run {
        bridge()
            .args(["--local-jobs=64", "--stats=stats.json", "--retries=1", &farm.adapter()])
            .args(options)
            .arg(&self.file)
            .cwd(self.jobs.folder.path(""))
    }

    fn stats(&self) -> Value {
        self.jobs.stats()
    }

    /// All objects are there and right, and so many were made on the farm; nothing else is there.
    #[track_caller]
    fn assert_made(&self, farm: usize, output: &Output) {
        self.jobs.assert_made(farm, output);
    }

    /// No object, no bundle, no folder of ours.
    #[track_caller]
    fn assert_nothing_left(&self) {
        self.jobs.assert_nothing_left();
    }

    /// The reasons of all attempts on the farm.
    fn reasons(&self) -> Vec<String> {
        let (stats, mut reasons) = (self.stats(), Vec::new());
        for record in stats["records"].as_array().unwrap() {
            let tries = record["tries"].as_array().unwrap().iter();
            let farm = tries.filter(|attempt| attempt["place"] != "local");
            reasons.extend(farm.map(|attempt| attempt["reason"].as_str().unwrap().to_owned()));
        }
        reasons
    }
}

/// `farm` fails at all jobs and says `why`. They are made here if they may be; if not, the link fails with all
/// that there is to know.
#[track_caller]
fn assert_useless(farm: &Farm, why: &str) {
    let kept = Kept::new(&[]);
    let output = kept.run(farm, &[]).go().ok();
    assert!(kept.reasons().iter().all(|reason| reason.contains(why)), "{:?}", kept.reasons());
    let output = output.stderr_has("3 jobs in ").stderr_has("0 on farm");
    let output = output.stderr_has("3 here (3 of them could not run there)");
    kept.assert_made(0, &output);
    let output = kept.run(farm, &["--fallback=never"]).go().code(4).stderr_has(why);
    assert_eq!(kept.stats()["places"], json!({"cache": 0, "farm": 0, "local": 0}), "{output}");
    kept.assert_nothing_left();
}

/// The name of this machine, as a worker says it.
fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Flips a bit of `$2`, `$1` bytes before its end, or after its beginning if there is a plus sign.
const FLIP: &str = r#"flip() {
    case $1 in +*) at=${1#+} ;; *) at=$(($(stat -c %s "$2") - $1)) ;; esac
    byte=$(od -An -tu1 -j$at -N1 "$2")
    printf "\\$(printf %o $((byte ^ 1)))" | dd of="$2" bs=1 seek=$at conv=notrunc status=none
}
"#;

#[test]
fn a_farm_that_works_is_used() {
    skip_without!("clang-22", "ld.lld-22");
    let kept = Kept::new(&[]);
    let output = kept.run(&Farm::new(), &["--fallback=never"]).go().ok();
    kept.assert_made(3, &output.stderr_has("3 on farm (1 host), 0 here; sent "));
    assert_eq!(kept.stats()["hosts"], json!({host(): 3}));
}

#[test]
fn bundles_lie_where_they_are_wanted_and_do_not_stay() {
    skip_without!("clang-22", "ld.lld-22");
    let (kept, place) = (Kept::new(&[]), Folder::new());
    let farm = Farm::with(r#"echo "$1" >>"$HOST/requests"; work "$1" "$2""#);
    let scratch = format!("--scratch={}", place.path("").display());
    let output = kept.run(&farm, &["--fallback=never", &scratch]).go().ok();
    kept.assert_made(3, &output);
    let requests = farm.folder.text("requests");
    assert_eq!(requests.lines().count(), 3);
    let inside = |request: &str| std::path::Path::new(request).starts_with(place.path(""));
    assert!(requests.lines().all(inside), "{requests}");
    assert_eq!(place.list(""), [""; 0]);
}

#[test]
fn a_client_that_leaves_no_answer_has_not_done_the_job() {
    skip_without!("clang-22", "ld.lld-22");
    assert_useless(&Farm::with("exit 0"), "the client exited with 0 and left no answer");
    assert_useless(&Farm::with(": >\"$2\""), "cut off within its header");
    assert_useless(&Farm::with("cp \"$1\" \"$2\""), "expected a response, found a request");
    assert_useless(&Farm::with("mkdir \"$2\""), "the answer cannot be read: it is no file");
    assert_useless(&Farm::with("mkfifo \"$2\""), "the answer cannot be read: it is no file");
}

#[test]
fn an_answer_that_was_harmed_is_not_taken() {
    skip_without!("clang-22", "ld.lld-22");
    let harmed = |harm: &str| Farm::with(&format!("{FLIP}work \"$1\" \"$2\"\n{harm}"));
    assert_useless(&harmed("truncate -s -1 \"$2\""), "cut off");
    assert_useless(&harmed("truncate -s 60 \"$2\""), "cut off within its header");
    assert_useless(&harmed("echo >>\"$2\""), "follow the end of the bundle");
    assert_useless(&harmed("flip 1 \"$2\""), "damaged");
    assert_useless(&harmed("flip 100 \"$2\""), "damaged");
    assert_useless(&harmed("flip +40 \"$2\""), "damaged");
}

#[test]
fn another_jobs_answer_is_not_taken() {
    skip_without!("clang-22", "ld.lld-22");
    // Everybody gets the first one that there was.
    let farm =
        Farm::with("work \"$1\" \"$2\"\nln \"$2\" \"$HOST/first\" || cp \"$HOST/first\" \"$2\"");
    farm.slots(1);
    let kept = Kept::new(&[]);
    let output = kept.run(&farm, &[]).go().ok();
    kept.assert_made(1, &output);
    let other = "swapped:";
    assert_eq!(
        kept.reasons().iter().filter(|reason| reason.contains(other)).count(),
        4,
        "{:?}",
        kept.reasons()
    );
}

#[test]
fn an_earlier_attempts_answer_is_not_taken() {
    skip_without!("clang-22", "ld.lld-22");
    // The first attempt at a job ends in vain, and the second gets its answer.
    let farm = Farm::with(
        "old=$HOST/$(basename \"$2\" | sed 's/[a.].*//')\n\
         if [ -e \"$old\" ]; then cp \"$old\" \"$2\"; else work \"$1\" \"$old\"; exit 201; fi",
    );
    let kept = Kept::new(&[]);
    let output = kept.run(&farm, &[]).go().ok();
    kept.assert_made(0, &output);
    let reasons = kept.reasons();
    let count = |text: &str| reasons.iter().filter(|reason| reason.contains(text)).count();
    assert_eq!((count("busy (come again)"), count("swapped:")), (3, 3), "{reasons:?}");
}

#[test]
fn a_worker_with_another_compiler_is_named() {
    skip_without!("clang-22", "ld.lld-22");
    let farm = Farm::new();
    let real = fs::canonicalize(tool("clang-22")).unwrap();
    let mut bytes = fs::read(&real).unwrap();
    bytes.push(0);
    let copy = farm.folder.write("other/bin/clang", bytes);
    fs::set_permissions(&copy, Permissions::from_mode(0o755)).unwrap();
    symlink(real.parent().unwrap().with_file_name("lib"), farm.folder.path("other/lib")).unwrap();
    farm.allow(&[copy.to_str().unwrap()]);
    assert_useless(&farm, &format!("{}: clang differs", host()));
}

#[test]
fn a_worker_that_refuses_says_why() {
    skip_without!("clang-22", "ld.lld-22");
    let farm = Farm::new();
    fs::remove_file(farm.folder.path("worker.json")).unwrap();
    assert_useless(
        &farm,
        &format!("the worker on {} refuses it: this worker has no settings", host()),
    );
    let farm = Farm::new();
    farm.allow(&["/opt/no/clang"]);
    assert_useless(&farm, &format!("{}: cannot tell which clang /opt/no/clang is", host()));
}

#[test]
fn a_worker_without_room_is_asked_again() {
    skip_without!("clang-22", "ld.lld-22");
    let farm = Farm::new();
    let settings = json!({"compilers": [tool("clang-22")], "scratch": farm.folder.path("scratch"),
        "limits": {"memory": "1M"}});
    fs::write(farm.folder.path("worker.json"), settings.to_string()).unwrap();
    assert_useless(&farm, &format!("{} is busy: memory", host()));
}

/// Jobs that may not travel are made here, or not at all, and it is said once.
#[track_caller]
fn assert_stays(kept: &Kept, why: &str, edit: impl Fn(Run) -> Run) {
    let farm = Farm::with("touch \"$HOST/used\"; exit 201");
    let output =
        edit(kept.run(&farm, &[])).go().ok().stderr_has("3 here (3 of them could not run there)");
    assert_eq!(output.stderr.matches(why).count(), 1, "{why}: {output}");
    kept.assert_made(0, &output);
    let output = edit(kept.run(&farm, &["--fallback=never"])).go().code(4);
    assert_eq!(output.stderr.matches(why).count(), 1, "{why}: {output}");
    kept.assert_nothing_left();
    assert!(!farm.folder.path("used").exists());
}

#[test]
fn options_on_no_list_keep_jobs_here() {
    skip_without!("clang-22", "ld.lld-22");
    let arg = |arg: &str| format!("-Wl,--thinlto-remote-compiler-arg={arg}");
    let kept = Kept::new(&[&arg("-Xclang"), &arg("-O1")]);
    assert_stays(&kept, "`-Xclang`", |run| run);
}

#[test]
fn a_variable_that_edits_arguments_keeps_jobs_here() {
    skip_without!("clang-22", "ld.lld-22");
    let kept = Kept::new(&[]);
    // It changes nothing here, for the sake of the comparison.
    assert_stays(&kept, "CCC_OVERRIDE_OPTIONS is set", |run| {
        run.env("CCC_OVERRIDE_OPTIONS", "#x-no-such-option")
    });
}

#[test]
fn a_compiler_that_is_a_script_keeps_jobs_here() {
    skip_without!("clang-22", "ld.lld-22");
    let kept = Kept::new(&[]);
    let script = kept.jobs.folder.script("clang", "exec clang-22 \"$@\"");
    kept.edit(|json| json["common"]["args"][0] = json!(script));
    assert_stays(&kept, "cannot tell which clang", |run| run);
}

#[test]
fn a_compilers_error_is_confirmed_here_and_told_once() {
    skip_without!("clang-22", "ld.lld-22");
    let kept = Kept::new(&["-Wl,--thinlto-remote-compiler-arg=-march=no-such-cpu"]);
    kept.edit(|json| json["jobs"].as_array_mut().unwrap().truncate(1));
    let words = "error: unknown target CPU 'no-such-cpu'";
    let farm = Farm::new();
    for (options, places) in [(&[][..], &["farm", "local"][..]), (&["--fallback=never"], &["farm"])]
    {
        let output = kept.run(&farm, options).go().code(1);
        assert_eq!(output.stderr.matches(words).count(), 1, "{output}");
        let record = &kept.stats()["records"][0];
        assert_eq!(record["outcome"], "compiler_error", "{record:#}");
        let tries = record["tries"].as_array().unwrap();
        let found: Vec<_> =
            tries.iter().map(|attempt| attempt["place"].as_str().unwrap()).collect();
        assert_eq!(found, places);
        kept.assert_nothing_left();
    }
}
