//! What a link through the bridge makes is what LLD makes in one process, byte for byte: objects
//! and program. Where LLD hands the backend other options than it takes itself, the measure is the
//! job's own command. These tests know nothing of how the bridge comes to its objects.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests start programs, and may panic

mod kit;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use kit::{Folder, Modules, Output, Run, bridge_path, kept_jobs, link, lld_link, llvm_ar};
use kit::{skip, skip_without, strings, through_bridge};
use serde_json::Value;

const OBJECTS: [&str; 3] = ["a.o", "b.o", "c.o"];

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

/// Runs the same link in one process and through the bridge, in the same place, and holds the
/// second to all files that the first made: the program, the objects, and nothing else.
#[track_caller]
fn assert_identical(folder: &Folder, cwd: &str, args: &[&str], jobs: usize) {
    let before = snapshot(folder);
    let link = || link().args(args).arg("-Wl,--lto-obj-path=object").cwd(folder.path(cwd));
    link().go().ok();
    let expected = snapshot(folder);
    for name in expected.keys().filter(|name| !before.contains_key(*name)) {
        fs::remove_file(folder.path(name)).unwrap();
    }
    let output = link().args(through_bridge()).go().ok();
    assert_bridged(&output, jobs);
    let found = snapshot(folder);
    assert_same(&expected, &found);
    let new = |name: &&String| !before.contains_key(*name);
    let objects = found.keys().filter(new).filter(|name| name.ends_with(char::is_numeric));
    assert_eq!(objects.count(), jobs, "objects that were compared, of {:?}", found.keys());
}

/// A driver that does not forward its options links in one process, and all would look the same.
#[track_caller]
fn assert_bridged(output: &Output, jobs: usize) {
    let summary = format!("dtlto-bridge: {jobs} job");
    assert!(output.stderr.contains(&summary), "the bridge did not run {jobs} jobs: {output}");
}

#[track_caller]
fn assert_runs(folder: &Folder, program: &str) {
    Run::new(folder.path(program)).go().code(Modules::EXIT);
}

#[test]
fn an_executable_is_identical() {
    skip_without!("clang-22", "ld.lld-22");
    let folder = Folder::new();
    Modules::compile(&folder, "", &[]);
    assert_identical(&folder, "", &[&OBJECTS[..], &["-o", "app"]].concat(), 3);
    assert_runs(&folder, "app");
}

/// LLD does not tell a job that the program stays at its address, and clang of Debian takes the
/// opposite for granted: the objects are those of the jobs' own commands, until the user tells.
#[test]
fn an_executable_that_cannot_be_moved_is_identical_once_the_jobs_know() {
    skip_without!("clang-22", "ld.lld-22");
    let folder = Folder::new();
    Modules::compile(&folder, "", &["-fno-pie"]);
    let args = [&OBJECTS[..], &["-no-pie", "-o", "app"]].concat();
    let told = [&args[..], &["-Wl,--thinlto-remote-compiler-arg=-fno-pie"]].concat();
    assert_identical(&folder, "", &told, 3);
    assert_runs(&folder, "app");
    let link = link().args(args).args(through_bridge()).arg("-Wl,--save-temps");
    assert_bridged(&link.cwd(folder.path("")).go().ok(), 3);
    assert_own_commands(&folder, "", |object| object);
    assert_runs(&folder, "app");
}

#[test]
fn a_shared_library_is_identical() {
    skip_without!("clang-22", "ld.lld-22");
    let folder = Folder::new();
    Modules::compile(&folder, "", &["-fPIC"]);
    assert_identical(&folder, "", &["b.o", "c.o", "-shared", "-o", "libbc.so"], 2);
}

#[test]
fn members_of_archives_are_identical() {
    skip_without!("clang-22", "ld.lld-22", "llvm-ar-22");
    for kind in ["rc", "rcT"] {
        let folder = Folder::new();
        Modules::compile(&folder, "", &[]);
        llvm_ar().args([kind, "libbc.a", "b.o", "c.o"]).cwd(folder.path("")).go().ok();
        assert_identical(&folder, "", &["a.o", "libbc.a", "-o", "app"], 3);
        assert_runs(&folder, "app");
    }
}

#[test]
fn bitcode_inside_native_objects_is_identical() {
    skip_without!("clang-22", "ld.lld-22");
    let folder = Folder::new();
    Modules::compile(&folder, "", &["-ffat-lto-objects"]);
    let options = ["-Wl,--fat-lto-objects", "-o", "app"];
    assert_identical(&folder, "", &[&OBJECTS[..], &options].concat(), 3);
    assert_runs(&folder, "app");
}

#[test]
fn paths_with_spaces_quotes_and_braces_are_identical() {
    skip_without!("clang-22", "ld.lld-22");
    let folder = Folder::new();
    let place = r#"it's "my" {x} $HOME; dir"#;
    Modules::compile(&folder, place, &[]);
    folder.mkdir("out put");
    let inputs = OBJECTS.map(|object| format!("{place}/{object}"));
    let inputs: Vec<_> = inputs.iter().map(String::as_str).collect();
    assert_identical(&folder, "", &[&inputs[..], &["-o", "out put/my app"]].concat(), 3);
    assert_identical(&folder, place, &[&OBJECTS[..], &["-o", "app"]].concat(), 3);
    assert_runs(&folder, "out put/my app");
}

/// LLD 22 damages such names, and the hashes behind them, in the index (llvm#194318).
#[test]
fn names_that_are_not_ascii_are_identical() {
    skip_without!("clang-22", "ld.lld-22");
    let folder = Folder::new();
    Modules::compile(&folder, "ünï/дом", &[]);
    fs::rename(folder.path("ünï/дом/b.o"), folder.path("ünï/дом/zц")).unwrap();
    let inputs = ["ünï/дом/a.o", "ünï/дом/zц", "ünï/дом/c.o", "-o", "app→"];
    assert_identical(&folder, "", &inputs, 3);
    assert_runs(&folder, "app→");
    let named_in_it = [&inputs[..], &["-Wl,--thinlto-remote-compiler-arg=-ftime-trace"]].concat();
    let output = link().args(named_in_it).args(through_bridge()).cwd(folder.path("")).go().ok();
    assert_bridged(&output, 3);
    assert_runs(&folder, "app→");
}

#[test]
fn relative_upward_and_absolute_inputs_with_the_output_elsewhere_are_identical() {
    skip_without!("clang-22", "ld.lld-22");
    let folder = Folder::new();
    Modules::compile(&folder, "o", &[]);
    for name in ["work/deep", "out"] {
        folder.mkdir(name);
    }
    fs::rename(folder.path("o/a.o"), folder.path("work/deep/a.o")).unwrap();
    let absolute = folder.path("o/c.o").display().to_string();
    let args = ["./a.o", "../../o/b.o", &absolute, "-o", "../../out/app"];
    assert_identical(&folder, "work/deep", &args, 3);
    assert_runs(&folder, "out/app");
}

/// Runs each job of a job file that LLD kept (`--save-temps`) as LLD meant it, and compares its
/// object with the one that the bridge had made, after `but_for` has evened out what may differ.
#[track_caller]
fn assert_own_commands(folder: &Folder, cwd: &str, but_for: fn(Vec<u8>) -> Vec<u8>) {
    for job in kept_jobs(folder, cwd)["jobs"].as_array().unwrap() {
        let object = Path::new(cwd).join(job["outputs"][0].as_str().unwrap());
        let found = folder.read(&object);
        let mut command = strings(&kept_jobs(folder, cwd)["common"]["args"]);
        command.extend(strings(&job["args"]));
        Run::new(&command[0]).args(&command[1..]).cwd(folder.path(cwd)).go().ok();
        assert!(but_for(found) == but_for(folder.read(&object)), "{}", object.display());
    }
}

/// With debug information, too: that holds clang's command line, but not the object's name.
#[test]
fn a_program_for_windows_is_identical_and_its_objects_but_for_the_time_stamps() {
    skip_without!("clang-22", "lld-link-22");
    for debug in ["-g0", "-g"] {
        assert_windows_identical(debug);
    }
}

#[track_caller]
fn assert_windows_identical(debug: &str) {
    let folder = Folder::new();
    Modules::compile(&folder, "", &["--target=x86_64-pc-windows-msvc", "-ffreestanding", debug]);
    let link = || {
        lld_link()
            .args(["/nodefaultlib", "/entry:main", "/subsystem:console", "/timestamp:0"])
            .args(OBJECTS)
            .cwd(folder.path(""))
    };
    link().arg("/out:expected.exe").go().ok();
    let output = link()
        .args(["/out:found.exe", "/lldsavetemps", "/thinlto-distributor-arg:--adapter=local"])
        .arg(format!("/thinlto-distributor:{}", bridge_path()))
        .arg(format!("/thinlto-remote-compiler:{}", kit::tool("clang-22").display()))
        .go()
        .ok();
    assert_bridged(&output, 3);
    assert!(folder.read("expected.exe") == folder.read("found.exe"), "the program");
    assert_own_commands(&folder, "", |mut object| {
        object[4..8].fill(0);
        object
    });
}

/// More than 65,279 sections take another kind of object, with its time stamp elsewhere.
#[test]
fn a_big_object_for_windows_is_identical_but_for_its_time_stamp() {
    skip_without!("clang-22", "lld-link-22");
    let folder = Folder::new();
    let variable = |n| format!("__attribute__((used)) int v{n} = {n};\n");
    folder.write(
        "big.c",
        (1..66_000).map(variable).collect::<String>() + "int main() { return 42; }\n",
    );
    let compile = ["-O2", "-flto=thin", "--target=x86_64-pc-windows-msvc", "-c", "big.c"];
    kit::clang()
        .args(compile)
        .args(["-fdata-sections", "-o", "big.obj"])
        .cwd(folder.path(""))
        .go()
        .ok();
    let output = lld_link()
        .args(["/nodefaultlib", "/entry:main", "/subsystem:console", "big.obj", "/out:big.exe"])
        .args(["/lldsavetemps", "/thinlto-distributor-arg:--adapter=local"])
        .arg(format!("/thinlto-distributor:{}", bridge_path()))
        .arg(format!("/thinlto-remote-compiler:{}", kit::tool("clang-22").display()))
        .cwd(folder.path(""))
        .go()
        .ok();
    assert_bridged(&output, 1);
    assert_own_commands(&folder, "", |mut object| {
        assert_eq!(object[..4], [0, 0, 0xff, 0xff], "a big object");
        object[8..12].fill(0);
        object
    });
}

/// In one process LLD tells the backend which symbols this link defines; a job does not learn that,
/// and goes through the GOT. Linking undoes it: objects may differ, the program does not.
#[test]
fn a_real_program_is_identical_and_runs() {
    skip_without!("clang-22", "ld.lld-22");
    let folder = Folder::new();
    let objects = match kit::lua(&folder) {
        Ok(objects) => objects,
        Err(why) => skip!("{why}"),
    };
    assert!(objects.len() >= 25, "{objects:?}");
    let link = |out: &str| link().args(&objects).args(["-lm", "-o", out]).cwd(folder.path(""));
    link("expected").go().ok();
    let output = link("found").args(through_bridge()).arg("-Wl,--save-temps").go().ok();
    assert_bridged(&output, objects.len());
    assert!(folder.read("expected") == folder.read("found"), "the program");
    assert_own_commands(&folder, "", |object| object);
    folder.write("sum.lua", "local s = 0 for i = 1, 100 do s = s + i end print(_VERSION, s)");
    let lua = Run::new(folder.path("found")).arg(folder.path("sum.lua"));
    lua.go().ok().stdout_is("Lua 5.4\t5050\n");
}

/// A workspace of two crates, so that no registry is needed.
#[test]
fn a_cargo_project_is_identical_and_runs() {
    skip_without!("clang-22", "ld.lld-22", "cargo", "rustc");
    let version = Run::new("rustc").arg("-vV").go().ok().stdout;
    let llvm = version.lines().find_map(|line| line.strip_prefix("LLVM version: ")).unwrap();
    let major: u32 = llvm.split('.').next().unwrap().parse().unwrap();
    if major > 22 {
        skip!("rustc's LLVM {llvm} is newer than lld-22");
    }
    let folder = Folder::new();
    let manifest = |name: &str, rest: &str| {
        let head =
            format!("[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2021\"\n");
        folder.write(format!("{name}/Cargo.toml"), head + rest);
    };
    folder.write("Cargo.toml", "[workspace]\nmembers = [\"app\", \"words\"]\nresolver = \"2\"\n");
    manifest("app", "[dependencies]\nwords = { path = \"../words\" }\n");
    manifest("words", "");
    folder.write("app/src/main.rs", "fn main() { println!(\"{}\", words::count(\"a b c\")); }\n");
    folder.write(
        "words/src/lib.rs",
        "pub fn count(text: &str) -> usize { text.split(' ').count() }\n",
    );
    let distributor = through_bridge()[0].clone();
    let flags = format!(
        "-Clinker-plugin-lto -Clinker=clang-22 -Clink-arg=-fuse-ld=lld-22 -Clink-arg=-flto=thin \
         -Clink-arg={distributor}"
    );
    // The same flags for both, since cargo mixes them into symbol names: the driver, which is the
    // only one to read this variable, drops the option for the link in one process.
    let without = format!("#x{distributor}");
    let program = "target/release/app";
    let build = |driver_edits: &str, stats: &str| {
        let _ = fs::remove_dir_all(folder.path("target"));
        ["CARGO_TARGET_DIR", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_TARGET", "RUSTC_WRAPPER"]
            .into_iter()
            .fold(Run::new("cargo"), |run, name| run.env_remove(name))
            .args(["build", "--release", "--offline", "--quiet"])
            .env("RUSTFLAGS", &flags)
            .env("CCC_OVERRIDE_OPTIONS", driver_edits)
            .env("DTLTO_BRIDGE_STATS", folder.path(stats))
            .cwd(folder.path(""))
            .go()
            .ok();
        folder.read(program)
    };
    let expected = build(&without, "no.json");
    assert!(!folder.path("no.json").exists(), "the first link is meant to be one in one process");
    let found = build("", "stats.json");
    let stats: Value = serde_json::from_slice(&folder.read("stats.json")).unwrap();
    assert!(stats["jobs"].as_u64() >= Some(3), "{stats}");
    assert!(expected == found, "the program");
    Run::new(folder.path(program)).go().ok().stdout_is("3\n");
}
