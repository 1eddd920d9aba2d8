//! Real links through the emulator of Incredibuild make the bytes of in-process ThinLTO, for ELF and for Windows, and a
//! compiler that goes by the name of clang-cl makes them too.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests start programs, and may panic

mod kit;

use std::fs;

use kit::{Folder, Incredibuild, Modules, Output, Run, assert_bridged, assert_own_commands};
use kit::{bridge_path, lld_link, skip_without};

const OBJECTS: [&str; 3] = ["a.o", "b.o", "c.o"];
/// A folder with all that is hard to quote.
const PLACE: &str = "sp ace/it's \"ünï\" 100% дом";

#[test]
fn a_program_in_a_folder_that_is_hard_to_quote_is_identical() {
    skip_without!("clang-22", "ld.lld-22");
    let ib = Incredibuild::new("xgConsole");
    let folder = Folder::new();
    Modules::compile(&folder, PLACE, &[]);
    let distributor = format!("-fthinlto-distributor={}", bridge_path());
    let options = [ib.adapter(), "--fallback=never".into()];
    let options = options.map(|option| format!("-Xthinlto-distributor={option}"));
    let through = [&[distributor][..], &options].concat();
    let args = [&OBJECTS[..], &["-o", "my app"]].concat();
    let output = kit::assert_identical(&folder, PLACE, &args, 3, &through);
    output.stderr_has("3 on xgconsole (2 hosts), 0 here");
    assert_eq!(ib.calls(), [3]);
    Run::new(folder.path(PLACE).join("my app")).go().code(Modules::EXIT);
}

/// Links for Windows in one process and through the bridge; the second with `compiler`.
#[track_caller]
fn assert_windows_identical(place: &str, compiler: &str, options: &[String]) -> Output {
    let folder = Folder::new();
    Modules::compile(&folder, place, &["--target=x86_64-pc-windows-msvc", "-ffreestanding"]);
    let link = || {
        lld_link()
            .args(["/nodefaultlib", "/entry:main", "/subsystem:console", "/timestamp:0"])
            .args(OBJECTS)
            .cwd(folder.path(place))
    };
    link().arg("/out:expected.exe").go().ok();
    let options = options.iter().map(|option| format!("/thinlto-distributor-arg:{option}"));
    let output = link()
        .args(["/out:found.exe", "/lldsavetemps"])
        .args(options)
        .arg(format!("/thinlto-distributor:{}", bridge_path()))
        .arg(format!("/thinlto-remote-compiler:{compiler}"))
        .go()
        .ok();
    assert_bridged(&output, 3);
    let read = |name: &str| fs::read(folder.path(place).join(name)).unwrap();
    assert!(read("expected.exe") == read("found.exe"), "the program");
    if !compiler.contains("clang-cl") {
        assert_own_commands(&folder, place, |mut object| {
            object[4..8].fill(0);
            object
        });
    }
    output
}

#[test]
fn a_program_for_windows_is_identical_and_its_objects_but_for_the_time_stamps() {
    skip_without!("clang-22", "lld-link-22");
    let ib = Incredibuild::new("xgConsole");
    let compiler = kit::tool("clang-22").display().to_string();
    let options = [ib.adapter(), "--fallback=never".into()];
    assert_windows_identical("sp ace/ünï", &compiler, &options).stderr_has("3 on xgconsole");
    assert_eq!(ib.calls(), [3]);
}

/// As cl's options those of LLD mean other things (llvm#220379).
#[test]
fn clang_cl_gives_way_to_its_sibling_or_is_told_its_mode() {
    skip_without!("clang-22", "lld-link-22");
    let with_sibling = Folder::new();
    let alone = Folder::new();
    for (folder, names) in [(&with_sibling, &["clang-cl", "clang"][..]), (&alone, &["clang-cl"])] {
        for name in names {
            std::os::unix::fs::symlink(kit::tool("clang-22"), folder.path(name)).unwrap();
        }
    }
    let ib = Incredibuild::new("xgConsole");
    for (folder, said) in [(&with_sibling, "/clang is run instead"), (&alone, "--driver-mode=gcc")]
    {
        let compiler = folder.path("clang-cl").display().to_string();
        for adapter in ["--adapter=local".to_owned(), ib.adapter()] {
            let output =
                assert_windows_identical("", &compiler, &[adapter, "--fallback=never".into()]);
            output.stderr_has("llvm#220379").stderr_has(said);
        }
    }
}
