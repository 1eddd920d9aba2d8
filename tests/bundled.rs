//! Links whose every job goes to a worker as a bundle, in another folder and as another user: objects and
//! programs are those of LLD in one process, or of the jobs' own commands, byte for byte. They know the manifest
//! that a user would write, not what is in a bundle.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests start programs, and may panic

mod kit;

use std::fs;

use kit::{Family, Farm, Folder, Modules, Run, assert_bridged, assert_identical};
use kit::{assert_own_commands, bridge_path, link, lld_link, llvm_ar, skip, skip_without, tool};

const OBJECTS: [&str; 3] = ["a.o", "b.o", "c.o"];

/// A link of `folder` whose `args` make `jobs` jobs; returns the farm that made them.
#[track_caller]
fn assert_made_elsewhere(folder: &Folder, cwd: &str, args: &[&str], jobs: usize) -> Farm {
    let farm = Farm::new();
    let output = assert_identical(folder, cwd, args, jobs, &farm.through());
    farm.assert_made(jobs, &output);
    farm
}

/// Its modules reach the linker in all the ways there are: by relative, upward and absolute paths, by names with
/// spaces and letters of other alphabets, in an archive and in a thin archive.
#[track_caller]
fn assert_family_identical(debug: &str) {
    let folder = Folder::new();
    let place = "ünï дом/o";
    Family::compile(&folder, place, &[debug]);
    let cwd = folder.mkdir("ünï дом/work");
    let up = |n| format!("../o/{}", Family::object(n));
    for n in 0..4 {
        fs::rename(folder.path(place).join(Family::object(n)), cwd.join(Family::object(n)))
            .unwrap();
    }
    let mut args: Vec<String> = (0..4).map(Family::object).chain((4..9).map(up)).collect();
    args.extend((9..14).map(|n| folder.path(place).join(Family::object(n)).display().to_string()));
    for (kind, archive, members) in [("rc", "libfat.a", 14..20), ("rcT", "libthin é.a", 20..26)] {
        llvm_ar().args([kind, archive]).args(members.map(up)).cwd(&cwd).go().ok();
        args.push(archive.to_owned());
    }
    args.extend(["-lstdc++", "-o", "../the app"].map(str::to_owned));
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let farm = assert_made_elsewhere(&folder, "ünï дом/work", &args, Family::SIZE);
    let bytes = &farm.stats()["bytes"];
    assert!(bytes["inputs"].as_u64() > Some(2 * bytes["distinct"].as_u64().unwrap()), "{bytes}");
    let code = Run::new(folder.path("ünï дом/the app")).go().status.code();
    assert!((1..=128).contains(&code.unwrap()), "{code:?}");
}

#[test]
fn a_program_of_26_modules_is_identical() {
    skip_without!("clang-22", "ld.lld-22", "llvm-ar-22");
    assert_family_identical("-g0");
}

#[test]
fn a_program_of_26_modules_with_debug_information_is_identical() {
    skip_without!("clang-22", "ld.lld-22", "llvm-ar-22");
    assert_family_identical("-g");
}

#[test]
fn bitcode_inside_native_objects_is_identical() {
    skip_without!("clang-22", "ld.lld-22");
    let folder = Folder::new();
    Modules::compile(&folder, "", &["-ffat-lto-objects", "-g"]);
    let args = [&OBJECTS[..], &["-Wl,--fat-lto-objects", "-o", "app"]].concat();
    assert_made_elsewhere(&folder, "", &args, 3);
    Run::new(folder.path("app")).go().code(Modules::EXIT);
}

#[test]
fn lua_is_identical() {
    skip_without!("clang-22", "ld.lld-22");
    let folder = Folder::new();
    let objects = match kit::lua(&folder) {
        Ok(objects) => objects,
        Err(why) => skip!("{why}"),
    };
    let link = |out: &str| link().args(&objects).args(["-lm", "-o", out]).cwd(folder.path(""));
    link("expected").go().ok();
    let farm = Farm::new();
    let output = link("found").args(farm.through()).arg("-Wl,--save-temps").go().ok();
    farm.assert_made(objects.len(), &output);
    assert!(folder.read("expected") == folder.read("found"), "the program");
    assert_own_commands(&folder, "", |object| object);
}

#[test]
fn a_cargo_project_is_identical_and_runs() {
    skip_without!("clang-22", "ld.lld-22", "cargo", "rustc");
    let farm = Farm::new();
    match kit::assert_cargo_project(&farm.through(), &farm.folder.path("stats.json")) {
        Ok(stats) => assert_eq!(stats["places"]["farm"], stats["jobs"], "{stats:#}"),
        Err(why) => skip!("{why}"),
    }
}

#[test]
fn a_sample_profile_travels() {
    skip_without!("clang-22", "ld.lld-22");
    let folder = Folder::new();
    folder.write("the profile", "main:5000:100\n 1: 100\n 1.1: 100 _Z7tripledi:100\n");
    let profile = "-fprofile-sample-use=the profile";
    Modules::compile(&folder, "", &["-gline-tables-only", profile]);
    let args = [&OBJECTS[..], &[profile, "-Wl,--save-temps", "-o", "app"]].concat();
    let farm = Farm::new();
    let output = link().args(args).args(farm.through()).cwd(folder.path("")).go().ok();
    farm.assert_made(3, &output);
    assert_eq!(kit::kept_jobs(&folder, "")["common"]["inputs"][0], "the profile");
    assert_own_commands(&folder, "", |object| object);
}

/// Split debug information in the modules is no matter of the jobs: in-process ThinLTO makes one file then, too.
#[test]
fn modules_compiled_for_split_debug_information_are_identical() {
    skip_without!("clang-22", "ld.lld-22");
    let folder = Folder::new();
    Modules::compile(&folder, "", &["-g", "-gsplit-dwarf"]);
    assert_made_elsewhere(&folder, "", &[&OBJECTS[..], &["-o", "app"]].concat(), 3);
}

/// The object names its `.dwo`, by a path that a worker does not have.
#[test]
fn jobs_that_split_debug_information_stay_here() {
    skip_without!("clang-22", "ld.lld-22");
    let folder = Folder::new();
    Modules::compile(&folder, "", &["-g"]);
    let split = "-Wl,--thinlto-remote-compiler-arg=-gsplit-dwarf";
    let farm = Farm::new();
    let through = farm.through().into_iter().filter(|option| !option.contains("fallback"));
    let link = link().args(OBJECTS).args(through).args([split, "-Wl,--save-temps", "-o", "app"]);
    let output = link.cwd(folder.path("")).go().ok();
    let output = output.stderr_has("3 jobs stay here: `-gsplit-dwarf`");
    assert_eq!(output.stderr.matches("stay here").count(), 1, "{output}");
    assert_own_commands(&folder, "", |object| object);
}

fn windows(folder: &Folder, farm: &Farm, fallback: &str) -> Run {
    let options = [&*farm.adapter(), fallback, "--stats=stats.json"];
    lld_link()
        .args(["/nodefaultlib", "/entry:main", "/subsystem:console", "/timestamp:0"])
        .args(["/out:app.exe", "/lldsavetemps"])
        .args(options.map(|option| format!("/thinlto-distributor-arg:{option}")))
        .arg(format!("/thinlto-distributor:{}", bridge_path()))
        .arg(format!("/thinlto-remote-compiler:{}", tool("clang-22").display()))
        .cwd(folder.path(""))
}

fn without_time_stamp(mut object: Vec<u8>) -> Vec<u8> {
    object[4..8].fill(0);
    object
}

#[test]
fn objects_for_windows_are_identical_but_for_their_time_stamps() {
    skip_without!("clang-22", "lld-link-22");
    let folder = Folder::new();
    Modules::compile(&folder, "", &["--target=x86_64-pc-windows-msvc", "-ffreestanding"]);
    let output = windows(&folder, &Farm::new(), "--fallback=never")
        .args(OBJECTS)
        .go()
        .ok()
        .stderr_has("3 on farm (1 host)");
    assert_bridged(&output, 3);
    assert_own_commands(&folder, "", without_time_stamp);
}

/// CodeView holds the compiler's command line and folder.
#[test]
fn objects_for_windows_with_debug_information_are_made_here() {
    skip_without!("clang-22", "lld-link-22");
    let folder = Folder::new();
    Modules::compile(&folder, "", &["--target=x86_64-pc-windows-msvc", "-ffreestanding", "-g"]);
    let output = windows(&folder, &Farm::new(), "--fallback=local")
        .args(OBJECTS)
        .go()
        .ok()
        .stderr_has("0 on farm");
    let why = "3 jobs could not go to farm: its debug information holds the names of its files";
    assert_bridged(&output.stderr_has(why), 3);
    assert_own_commands(&folder, "", without_time_stamp);
    let output = windows(&folder, &Farm::new(), "--fallback=never").args(OBJECTS).go();
    assert!(!output.status.success(), "{output}");
    output.stderr_has("it cannot go to farm and may not run here: its debug information");
    let stats: serde_json::Value = serde_json::from_slice(&folder.read("stats.json")).unwrap();
    assert_eq!(stats["records"][0]["place"], serde_json::Value::Null, "{stats:#}");
}

/// That they cannot travel shows only when they are packed, one after the other.
#[test]
fn jobs_that_stay_here_are_no_faults_of_the_farm() {
    skip_without!("clang-22", "lld-link-22");
    let folder = Folder::new();
    let functions: Vec<String> = (0..10).map(|n| format!("f{n}")).collect();
    for (n, name) in functions.iter().enumerate() {
        folder.write(format!("{name}.c"), format!("int {name}(int x) {{ return x * {n}; }}\n"));
    }
    let calls: String = functions.iter().map(|name| format!("int {name}(int);\n")).collect();
    let sum = functions.iter().map(|name| format!("{name}(2)")).collect::<Vec<_>>().join(" + ");
    folder.write("main.c", format!("{calls}int main() {{ return {sum}; }}\n"));
    let names: Vec<&str> = functions.iter().map(String::as_str).chain(["main"]).collect();
    let compile = ["-O2", "-flto=thin", "--target=x86_64-pc-windows-msvc", "-ffreestanding", "-g"];
    let sources = names.iter().map(|name| format!("{name}.c"));
    kit::clang().args(compile).arg("-c").args(sources).cwd(folder.path("")).go().ok();
    let objects = names.iter().map(|name| format!("{name}.o"));
    let link = windows(&folder, &Farm::new(), "--fallback=local").args(objects).go().ok();
    link.stderr_has("11 jobs could not go to farm").stderr_lacks("not used any more");
}
