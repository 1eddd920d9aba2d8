//! Holds what a link through the bridge made to what LLD makes in one process, and to what the jobs' own
//! commands make. It does not know where the jobs run.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::{Folder, Output, Run, kept_jobs, link, strings};

/// Every file below `folder`, with its content.
fn snapshot(folder: &Folder) -> BTreeMap<String, Vec<u8>> {
    let files = folder.list("").into_iter().filter(|name| !name.ends_with('/'));
    files.map(|name| (name.clone(), folder.read(&name))).collect()
}

/// Compares by name and content, without filling the screen.
#[track_caller]
fn assert_same(expected: &BTreeMap<String, Vec<u8>>, found: &BTreeMap<String, Vec<u8>>) {
    assert_eq!(expected.keys().collect::<Vec<_>>(), found.keys().collect::<Vec<_>>(), "the files");
    let differ = |name: &&String| expected[*name] != found[*name];
    let different: Vec<_> = expected.keys().filter(differ).collect();
    assert!(different.is_empty(), "these files differ: {different:?}");
}

/// Runs the same link in one process and, with the options in `through`, through the bridge, in the same
/// place, and holds the second to all files that the first made: the program, the objects, and nothing else.
#[track_caller]
pub(crate) fn assert_identical(
    folder: &Folder,
    cwd: &str,
    args: &[&str],
    jobs: usize,
    through: &[String],
) -> Output {
    assert_identical_as(folder, cwd, args, jobs, |link| link.args(through))
}

/// The same with what `through` makes of the link's command.
#[track_caller]
pub(crate) fn assert_identical_as(
    folder: &Folder,
    cwd: &str,
    args: &[&str],
    jobs: usize,
    through: impl FnOnce(Run) -> Run,
) -> Output {
    let before = snapshot(folder);
    let link = || link().args(args).arg("-Wl,--lto-obj-path=object").cwd(folder.path(cwd));
    link().go().ok();
    let expected = snapshot(folder);
    for name in expected.keys().filter(|name| !before.contains_key(*name)) {
        fs::remove_file(folder.path(name)).unwrap();
    }
    let output = through(link()).go().ok();
    assert_bridged(&output, jobs);
    let found = snapshot(folder);
    assert_same(&expected, &found);
    let new = |name: &&String| !before.contains_key(*name);
    let objects = found.keys().filter(new).filter(|name| name.ends_with(char::is_numeric));
    assert_eq!(objects.count(), jobs, "objects that were compared, of {:?}", found.keys());
    output
}

/// A driver that does not forward its options links in one process, and all would look the same.
#[track_caller]
pub(crate) fn assert_bridged(output: &Output, jobs: usize) {
    let summary = format!("dtlto-bridge: {jobs} job");
    assert!(output.stderr.contains(&summary), "the bridge did not run {jobs} jobs: {output}");
}

/// Runs each job of a job file that LLD kept (`--save-temps`) as LLD meant it, and compares its
/// object with the one that the bridge had made, after `but_for` has evened out what may differ.
#[track_caller]
pub(crate) fn assert_own_commands(folder: &Folder, cwd: &str, but_for: fn(Vec<u8>) -> Vec<u8>) {
    for job in kept_jobs(folder, cwd)["jobs"].as_array().unwrap() {
        let object = Path::new(cwd).join(job["outputs"][0].as_str().unwrap());
        let found = folder.read(&object);
        let mut command = strings(&kept_jobs(folder, cwd)["common"]["args"]);
        command.extend(strings(&job["args"]));
        Run::new(&command[0]).args(&command[1..]).cwd(folder.path(cwd)).go().ok();
        assert!(but_for(found) == but_for(folder.read(&object)), "{}", object.display());
    }
}
