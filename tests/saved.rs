//! `--save` and `replay`: a link that was kept gives the same objects elsewhere. These tests move
//! the folder and take the old files away; they do not know what the folder holds.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests start programs, and may panic

mod kit;

use std::fs;

use kit::{
    Folder, Jobs, Lld, MAKE, Modules, Output, bridge, bridge_path, link, llvm_ar, skip_without,
};

const PROFILE: &str = "main:1000:1000\n 0: 1000\n_Z7tripledi:900:900\n 0: 900\n";

/// Links modules by absolute paths and out of an archive, with a sample profile, keeping all that
/// LLD makes; says which objects there were.
fn saved_link(folder: &Folder) -> Vec<Vec<u8>> {
    folder.write("old/profile", PROFILE);
    Modules::compile(folder, "old", &["-gline-tables-only", "-fprofile-sample-use=old/profile"]);
    llvm_ar().args(["rc", "libbc.a", "b.o", "c.o"]).cwd(folder.path("old")).go().ok();
    let absolute = folder.path("old/a.o");
    link()
        .arg(format!("-fthinlto-distributor={}", bridge_path()))
        .args(["-Xthinlto-distributor=--save=saved", "-Wl,--lto-sample-profile=profile"])
        .args(["-Wl,--save-temps", "-o", "app"])
        .args([absolute.as_path(), "libbc.a".as_ref()])
        .env("SECRET_TOKEN", "hunter2")
        .cwd(folder.path("old"))
        .go()
        .ok();
    let objects = kit::kept_jobs(folder, "old");
    let objects = objects["jobs"].as_array().unwrap().iter();
    objects
        .map(|job| folder.read("old/".to_owned() + job["outputs"][0].as_str().unwrap()))
        .collect()
}

/// Moves the saved link elsewhere and takes all its old files away.
fn move_away(folder: &Folder) {
    folder.mkdir("new place");
    fs::rename(folder.path("old/saved"), folder.path("new place/kept")).unwrap();
    fs::remove_dir_all(folder.path("old")).unwrap();
}

fn replay(folder: &Folder, options: &[&str]) -> Output {
    bridge().arg("replay").args(options).arg("new place/kept").cwd(folder.path("")).go()
}

#[test]
fn a_saved_link_gives_the_same_objects_elsewhere() {
    skip_without!("clang-22", "ld.lld-22", "llvm-ar-22");
    let folder = Folder::new();
    let expected = saved_link(&folder);
    assert_eq!(expected.len(), 3);
    move_away(&folder);
    replay(&folder, &[]).ok().stdout_is("3 of 3 objects are those of the saved link\n");
    for (n, object) in expected.iter().enumerate() {
        let found = folder.read(format!("new place/kept/out/{n}.0.o"));
        assert!(found == *object, "object {n} differs");
    }
    assert_eq!(folder.text("new place/kept/other/0"), PROFILE);
    fs::remove_file(folder.path("new place/kept/other/0")).unwrap();
    replay(&folder, &[]).code(3).stderr_has("other/0: there is no such input");
}

/// LLD 22 damages the hashes behind such names (llvm#194318), and objects hold names made from them.
#[test]
fn a_saved_link_whose_names_are_not_ascii_gives_the_same_objects() {
    skip_without!("clang-22", "ld.lld-22");
    let folder = Folder::new();
    Modules::compile(&folder, "old", &[]);
    for (plain, name) in [("a.o", "aц"), ("b.o", "zц"), ("c.o", "cч")] {
        fs::rename(folder.path("old").join(plain), folder.path("old").join(name)).unwrap();
    }
    link()
        .arg(format!("-fthinlto-distributor={}", bridge_path()))
        .args(["-Xthinlto-distributor=--save=saved", "aц", "zц", "cч", "-o", "app"])
        .cwd(folder.path("old"))
        .go()
        .ok();
    move_away(&folder);
    replay(&folder, &[]).ok().stdout_is("3 of 3 objects are those of the saved link\n");
}

#[test]
fn a_replay_that_makes_other_objects_says_which() {
    skip_without!("clang-22", "ld.lld-22", "llvm-ar-22");
    let folder = Folder::new();
    saved_link(&folder);
    move_away(&folder);
    let other = folder.script("other", "exec clang-22 \"$@\" -O0");
    let option = format!("--compiler={}", other.display());
    let output = replay(&folder, &[&option]).code(1);
    assert!(
        output.stdout.contains("of 3 objects are those of the saved link; different: out/"),
        "{output}"
    );
}

#[test]
fn a_saved_link_tells_no_values_of_variables_that_may_be_secret() {
    skip_without!("clang-22", "ld.lld-22", "llvm-ar-22");
    let folder = Folder::new();
    saved_link(&folder);
    for name in folder.list("old/saved").iter().filter(|name| !name.ends_with('/')) {
        let text = folder.read(format!("old/saved/{name}"));
        assert!(!text.windows(7).any(|part| part == b"hunter2"), "{name}");
    }
    assert!(folder.text("old/saved/about.json").contains("SECRET_TOKEN"));
}

#[test]
fn a_folder_that_holds_something_is_left_alone_and_the_link_goes_on() {
    skip_without!("clang-22");
    let jobs = Jobs::new(1, MAKE);
    jobs.folder.write("saved/mine", "precious");
    jobs.go(&["--save=saved"]).ok().stderr_has("saved is not empty");
    assert_eq!(jobs.made(), ["m0.native.o", "saved/mine"]);
}

#[test]
fn a_folder_for_all_links_gets_one_of_each() {
    skip_without!("clang-22");
    let jobs = Jobs::new(1, MAKE);
    for _ in 0..2 {
        jobs.go(&["--save=all/"]).ok();
    }
    let files = jobs.folder.list("all").into_iter().filter(|name| name.ends_with("/jobs.json"));
    assert_eq!(files.count(), 2);
}

#[test]
fn a_failed_link_can_be_replayed() {
    skip_without!("clang-22", "ld.lld-22");
    let lld = Lld::new("test -e \"$ROOT/good\" || exit 1\nexec clang-22 \"$@\"");
    lld.link(&["--thinlto-distributor-arg=--save=../saved"]).go().code(1);
    let replay = || bridge().args(["replay", "saved"]).cwd(lld.folder.path(""));
    replay().go().code(1);
    lld.folder.write("good", "");
    replay().go().ok().stdout_is("the saved link made no objects to compare with\n");
    assert_eq!(lld.folder.list("saved/out"), ["0.0.o", "1.0.o", "2.0.o"]);
}

#[test]
fn what_is_no_saved_link_is_an_error() {
    let folder = Folder::new();
    folder.mkdir("empty");
    for place in ["empty", "missing"] {
        bridge().args(["replay", place]).cwd(folder.path("")).go().code(3).stdout_is("");
    }
    bridge().arg("replay").cwd(folder.path("")).go().code(2);
}
