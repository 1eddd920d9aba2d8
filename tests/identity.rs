//! What a link through the bridge makes is what LLD makes in one process, byte for byte: objects
//! and program. Where LLD hands the backend other options than it takes itself, the measure is the
//! job's own command. These tests know nothing of how the bridge comes to its objects.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests start programs, and may panic

mod kit;

use std::fs;

use kit::{Folder, Modules, Run, assert_bridged, assert_own_commands, bridge_path, link};
use kit::{lld_link, llvm_ar, skip, skip_without, through_bridge};

const OBJECTS: [&str; 3] = ["a.o", "b.o", "c.o"];

#[track_caller]
fn assert_identical(folder: &Folder, cwd: &str, args: &[&str], jobs: usize) {
    kit::assert_identical(folder, cwd, args, jobs, &through_bridge());
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

#[test]
fn a_cargo_project_is_identical_and_runs() {
    skip_without!("clang-22", "ld.lld-22", "cargo", "rustc");
    let folder = Folder::new();
    if let Err(why) = kit::assert_cargo_project(&through_bridge(), &folder.path("stats.json")) {
        skip!("{why}");
    }
}
