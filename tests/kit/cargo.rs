//! A Cargo project that links as C++ does, with clang and LLD. It does not know where its jobs run.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::{Folder, Run};

const PROGRAM: &str = "target/release/app";

/// Builds a workspace of two crates, so that no registry is needed, once linked in one process and once with
/// the options in `through`, and holds the second program to the first. The bridge writes its statistics
/// to `stats`, which are returned; an error is the reason why this cannot be done here.
#[track_caller]
pub(crate) fn assert_cargo_project(through: &[String], stats: &Path) -> Result<Value, String> {
    let version = Run::new("rustc").arg("-vV").go().ok().stdout;
    let llvm = version.lines().find_map(|line| line.strip_prefix("LLVM version: ")).unwrap();
    let major: u32 = llvm.split('.').next().unwrap().parse().unwrap();
    if major > 22 {
        return Err(format!("rustc's LLVM {llvm} is newer than lld-22"));
    }
    let folder = workspace();
    let link_args: String = through.iter().map(|arg| format!(" -Clink-arg={arg}")).collect();
    let flags = format!(
        "-Clinker-plugin-lto -Clinker=clang-22 -Clink-arg=-fuse-ld=lld-22 -Clink-arg=-flto=thin{link_args}"
    );
    // The same flags for both, since cargo mixes them into symbol names: the driver, which is the
    // only one to read this variable, drops the option for the link in one process.
    let without = format!("#x{}", through[0]);
    let expected = build(&folder, |run| run.env("CCC_OVERRIDE_OPTIONS", &without), &flags, stats);
    assert!(!stats.exists(), "the first link is meant to be one in one process");
    let found = build(&folder, |run| run, &flags, stats);
    let stats: Value = serde_json::from_slice(&fs::read(stats).unwrap()).unwrap();
    assert!(stats["jobs"].as_u64() >= Some(3), "{stats}");
    assert!(expected == found, "the program");
    Run::new(folder.path(PROGRAM)).go().ok().stdout_is("3\n");
    Ok(stats)
}

fn workspace() -> Folder {
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
    folder
}

#[track_caller]
fn build(folder: &Folder, edit: impl Fn(Run) -> Run, flags: &str, stats: &Path) -> Vec<u8> {
    let _ = fs::remove_dir_all(folder.path("target"));
    let run =
        ["CARGO_TARGET_DIR", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_TARGET", "RUSTC_WRAPPER"]
            .into_iter()
            .fold(Run::new("cargo"), |run, name| run.env_remove(name))
            .args(["build", "--release", "--offline", "--quiet"])
            .env("RUSTFLAGS", flags)
            .env("DTLTO_BRIDGE_STATS", stats)
            .cwd(folder.path(""));
    edit(run).go().ok();
    folder.read(PROGRAM)
}
