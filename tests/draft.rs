//! Job files in the words of an earlier draft, made from a real link, give the objects of that
//! link. These tests know the two schemas, but not how the bridge reads them.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests start programs, and may panic

mod kit;

use std::fs;

use kit::{Folder, Modules, bridge, clang, kept_jobs, link, skip_without, strings, through_bridge};
use serde_json::{Value, json};

const OBJECTS: [&str; 3] = ["a.o", "b.o", "c.o"];

/// The same jobs in the words of the earlier draft, "gen-1" (LLVM pull requests 126654 and 127749
/// before they landed): one field per role, and arguments that refer to them.
fn in_draft_words(landed: &Value, additional: &[&str]) -> Value {
    let draft = |job: &Value| {
        let inputs = strings(&job["inputs"]);
        json!({
            "primary_input": [inputs[0]],
            "summary_index": [inputs[1]],
            "imports": inputs[2..],
            "additional_inputs": additional,
            "primary_output": [job["outputs"][0]],
            "additional_outputs": [],
            "args": [
                ["primary_input", 0],
                ["summary_index", "-fthinlto-index=", 0],
                "-o",
                ["primary_output", 0],
            ],
        })
    };
    let jobs: Vec<_> = landed["jobs"].as_array().unwrap().iter().map(draft).collect();
    let linker_output = &landed["common"]["linker_output"];
    json!({
        "common": {
            "linker_output": linker_output,
            "linker_version": "LLD 21.0.0",
            "args": landed["common"]["args"],
        },
        "jobs": jobs,
    })
}

/// Takes the objects of a kept link away, runs `jobs` through the bridge by hand, and compares what
/// it makes with what the link had.
#[track_caller]
fn assert_made_again(folder: &Folder, jobs: &Value) {
    let outputs: Vec<_> =
        jobs["jobs"].as_array().unwrap().iter().map(|job| &job["primary_output"][0]).collect();
    let take = |name: &&Value| {
        let name = name.as_str().unwrap();
        let object = folder.read(name);
        fs::remove_file(folder.path(name)).unwrap();
        object
    };
    let expected: Vec<_> = outputs.iter().map(take).collect();
    folder.write("draft.json", jobs.to_string());
    bridge().args(["--adapter=local", "draft.json"]).cwd(folder.path("")).go().ok();
    let found: Vec<_> = outputs.iter().map(take).collect();
    assert!(expected == found, "objects of {outputs:?}");
}

#[test]
fn several_jobs_in_the_draft_words_give_the_objects_of_the_link() {
    skip_without!("clang-22", "ld.lld-22");
    let folder = Folder::new();
    Modules::compile(&folder, "", &[]);
    let link = || link().args(OBJECTS).args(["-o", "app"]).cwd(folder.path(""));
    link().args(through_bridge()).arg("-Wl,--save-temps").go().ok();
    let draft = in_draft_words(&kept_jobs(&folder, ""), &[]);
    assert_eq!(draft["jobs"].as_array().unwrap().len(), 3);
    assert_made_again(&folder, &draft);
}

const BRANCHES: &str = "int hot(int); int cold(int);
int main(int n, char **words) {
    int sum = 0;
    for (int i = 0; i < n * 1000; ++i)
        if (i % 3 == 1)
            sum += hot(i);
        else
            sum += cold(i);
    return sum;
}
";

const HOT_AND_COLD: &str = "int ticks = 40;
int hot(int n) {
    int sum = 0;
    for (int i = 0; i < n; ++i) if (i % 7 == 3) sum += ticks++; else sum -= i * n;
    return sum;
}
int cold(int n) { return n * 3; }
";

/// Lines and counts as they would be sampled from a run that mostly calls `hot`.
const PROFILE: &str = "main:1000000:1000
 2: 100000
 3: 90000
 4: 90000 hot:90000
 6: 5 cold:5
hot:5000000:90000
 0: 90000
cold:50:1
 0: 1
";

#[test]
fn one_job_in_the_draft_words_reads_its_profile() {
    skip_without!("clang-22", "ld.lld-22");
    let folder = Folder::new();
    folder.write("profile.txt", PROFILE);
    let sources = [("main", BRANCHES), ("other", HOT_AND_COLD)];
    for (name, source) in sources {
        folder.write(format!("{name}.c"), source);
        clang()
            .args(["-O2", "-flto=thin", "-gline-tables-only", "-fdebug-info-for-profiling", "-c"])
            .args(["-fprofile-sample-use=profile.txt", &format!("{name}.c")])
            .cwd(folder.path(""))
            .go()
            .ok();
    }
    let first_job = |place: &str, options: &[&str]| {
        folder.mkdir(place);
        let run = link().args(["main.o", "other.o", "-Wl,--save-temps"]).args(options);
        run.args(["-o", &format!("{place}/app")])
            .args(through_bridge())
            .cwd(folder.path(""))
            .go()
            .ok();
        let mut jobs = kept_jobs(&folder, place);
        jobs["jobs"].as_array_mut().unwrap().truncate(1);
        let object = folder.read(jobs["jobs"][0]["outputs"][0].as_str().unwrap());
        (jobs, object)
    };
    let (_, unprofiled) = first_job("plain", &[]);
    let (jobs, profiled) = first_job("profiled", &["-Wl,--lto-sample-profile=profile.txt"]);
    assert!(unprofiled != profiled, "the profile is meant to change the object");
    assert_made_again(&folder, &in_draft_words(&jobs, &["profile.txt"]));

    fs::remove_file(folder.path("profile.txt")).unwrap();
    let run = bridge().args(["--adapter=local", "draft.json"]).cwd(folder.path(""));
    run.go().code(3).stderr_has("profile.txt");
}
