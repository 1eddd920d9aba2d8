//! What `--dry-run` prints for every job file that LLD has left us, against a golden text. Nothing
//! runs here: the files' inputs do not exist, which is itself part of what is printed.
//! `SNAPSHOTS=overwrite cargo test --test plans` writes the golden texts anew.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests start programs, and may panic

mod kit;

use std::fs;
use std::path::{Path, PathBuf};

use kit::{Folder, Output, bridge};
use snapbox::{Assert, Data};

fn job_files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/jobfiles");
    let mut files: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|ending| ending == "json"));
    files.sort();
    files
}

/// Plans in an empty folder, which must stay empty.
fn dry_run(job_file: &Path) -> Output {
    let folder = Folder::new();
    let output = bridge()
        .args(["--dry-run", "--local-jobs=2", "--stats=stats.json", "--save=saved"])
        .arg(job_file)
        .cwd(folder.path(""))
        .go()
        .stdout_is("");
    assert_eq!(folder.list(""), [""; 0], "--dry-run wrote files: {output}");
    output
}

#[test]
fn the_plan_of_each_recorded_job_file_is_the_golden_one() {
    let files = job_files();
    assert!(files.len() >= 25, "only {} job files", files.len());
    let assert = Assert::new().action_env("SNAPSHOTS");
    let differing: Vec<_> = files
        .iter()
        .filter_map(|file| {
            let output = dry_run(file).code(3);
            let golden = format!("tests/golden/plans/{}.txt", file.file_stem()?.to_str()?);
            let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join(golden);
            assert.try_eq(None, output.stderr.into(), Data::read_from(&golden, None).raw()).err()
        })
        .map(|difference| difference.to_string())
        .collect();
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

#[test]
fn every_golden_plan_belongs_to_a_job_file() {
    let stems = |files: Vec<PathBuf>| -> Vec<_> {
        files.iter().map(|file| file.file_stem().unwrap().to_owned()).collect()
    };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/plans");
    let mut golden: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    golden.sort();
    assert_eq!(stems(golden), stems(job_files()));
}

#[test]
fn an_archive_of_lld_21_is_an_error_that_names_the_way_round() {
    let file = job_files().into_iter().find(|file| file.ends_with("ver-1.93.0-ar.json")).unwrap();
    dry_run(&file)
        .code(3)
        .stderr_has("LLD 21 names this archive member but never extracts it")
        .stderr_has("use LLD 22 or newer, or a thin archive");
}

#[test]
fn a_plan_without_troubles_exits_with_0_and_starts_nothing() {
    let folder = Folder::new();
    let compiler = folder.script("compiler", "touch started");
    folder.write("a.o", "x");
    folder.write("a.bc", "x");
    let job =
        r#"{"args":["a.o","-o","a.native.o"],"inputs":["a.o","a.bc"],"outputs":["a.native.o"]}"#;
    let common =
        format!(r#"{{"linker_output":"app","args":["{}"],"inputs":[]}}"#, compiler.display());
    folder.write("jobs.json", format!(r#"{{"common":{common},"jobs":[{job}]}}"#));
    let before = folder.list("");
    let output = bridge().args(["--dry-run", "jobs.json"]).cwd(folder.path("")).go().ok();
    output.stdout_is("").stderr_has("job 0: a.o -> a.native.o");
    assert_eq!(folder.list(""), before);
}
