//! Which compiler a job runs: the real clang, looked through, and copies of it of which one thing differs.
//! It does not run the bridge.

#![allow(clippy::unwrap_used)]

mod kit;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use dtlto_bridge::toolchain::{Identity, MATH_CLASS, Math, Options, Toolchain, Unknown, identify};
use kit::{Folder, Run, clang, skip_without, tool};

type Variables = Vec<(String, String)>;

fn variables(pairs: &[(&str, &str)]) -> Variables {
    pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn plain(compiler: &Path) -> Result<Toolchain, Unknown> {
    identify(compiler, None, &Options::default())
}

#[track_caller]
fn identity_in(compiler: &Path, variables: &Variables) -> Identity {
    let options = Options { variables, ..Options::default() };
    identify(compiler, None, &options).unwrap().identity
}

/// Copies the real clang as `bin/NAME`, which finds its own libraries in `lib/` and the others in the system.
fn copied(folder: &Folder, name: &str) -> PathBuf {
    let real = plain(&tool("clang-22")).unwrap();
    folder.mkdir("bin");
    folder.mkdir("lib");
    for library in real.libraries.iter().filter(|library| library.name.starts_with("libclang")) {
        symlink(library.path.canonicalize().unwrap(), folder.path("lib").join(&library.name))
            .unwrap();
    }
    fs::copy(&real.binary, folder.path("bin").join(name)).unwrap();
    folder.path("bin").join(name)
}

/// Copies the library whose name starts so into `lib/`, with one more byte at its end.
fn changed_library(folder: &Folder, start: &str) -> PathBuf {
    let real = plain(&tool("clang-22")).unwrap();
    let library = real.libraries.iter().find(|library| library.name.starts_with(start)).unwrap();
    let path = folder.path("lib").join(&library.name);
    fs::copy(&library.path, &path).unwrap();
    append(&path);
    path
}

fn append(path: &Path) {
    use std::io::Write;
    fs::OpenOptions::new().append(true).open(path).unwrap().write_all(b"x").unwrap();
}

#[test]
fn the_real_clang_is_looked_through() {
    skip_without!("clang-22");
    let named = tool("clang-22");
    let toolchain = plain(&named).unwrap();
    assert_eq!(toolchain.compiler, named);
    assert_eq!(toolchain.binary, named.canonicalize().unwrap());
    let version = clang().arg("--version").go().ok().stdout;
    assert_eq!(version.lines().next().unwrap(), toolchain.identity.version);
    assert!(toolchain.identity.form().starts_with("22."), "{}", toolchain.identity.form());
    assert!(!toolchain.prepended && toolchain.loader.is_some() && toolchain.ld_lld.is_none());
    let parts: Vec<_> = toolchain.identity.parts.keys().map(String::as_str).collect();
    for part in ["clang", MATH_CLASS] {
        assert!(parts.contains(&part), "{parts:?}");
    }
    assert!(parts.iter().any(|part| part.starts_with("libm.so")), "{parts:?}");
    assert!(!parts.iter().any(|part| part.starts_with("libc.so")), "{parts:?}");
    toolchain.still_same().unwrap();
}

#[test]
fn what_the_loader_maps_is_what_is_listed() {
    skip_without!("clang-22", "strace");
    let toolchain = plain(&tool("clang-22")).unwrap();
    let trace = Run::new(tool("strace")).args(["-e", "trace=openat", "--"]);
    let trace = trace.arg(&toolchain.binary).arg("--version").go().ok().stderr;
    let opened = trace.lines().filter(|line| line.contains(".so") && !line.contains("= -1"));
    let opened: Vec<_> = opened
        .filter_map(|line| PathBuf::from(line.split('"').nth(1)?).canonicalize().ok())
        .filter(|path| !path.ends_with("ld.so.cache"))
        .collect();
    let mut listed: Vec<_> =
        toolchain.libraries.iter().map(|library| library.path.canonicalize().unwrap()).collect();
    let mut opened = opened;
    listed.sort();
    opened.sort();
    assert_eq!(listed, opened);
}

#[test]
fn the_identity_is_the_same_for_every_way_to_ask() {
    skip_without!("clang-22");
    let folder = Folder::new();
    let cache = folder.path("cache");
    let named = tool("clang-22");
    let options = Options { cache_folder: Some(&cache), ..Options::default() };
    let first = identify(&named, None, &options).unwrap();
    assert_eq!(folder.list("cache").len(), 1);
    let second = identify(&named, None, &options).unwrap();
    assert_eq!(first.identity, second.identity);
    assert_eq!(first.identity, plain(&first.binary).unwrap().identity);
    assert_eq!(first.identity, plain(&copied(&folder, "clang")).unwrap().identity);
    assert_eq!(first.identity.difference(&second.identity, Math::Strict), None);
}

#[test]
fn other_programs_are_not_looked_through() {
    skip_without!("clang-22");
    let folder = Folder::new();
    let mark = folder.path("was-run");
    let script =
        folder.script("bin/clang", &format!("touch {}; exec clang-22 \"$@\"", mark.display()));
    let real = tool("clang-22").canonicalize().unwrap();
    let copy = |name: &str, from: &Path| {
        fs::copy(from, folder.path("bin").join(name)).unwrap();
        folder.path("bin").join(name)
    };
    let link = |name: &str, to: &Path| {
        symlink(to, folder.path("bin").join(name)).unwrap();
        folder.path("bin").join(name)
    };
    let ccache = link("clang-21", &copy("ccache", &real));
    let not_clang = copy("clang-20", &tool("true").canonicalize().unwrap());
    let not_executable = folder.write("bin/clang-19", b"\x7fELF");
    for (program, reason) in [
        (&script, "no ELF program"),
        (&ccache, "it is really \"ccache\""),
        (&not_clang, "does not call itself clang"),
        (&not_executable, "not executable"),
        (&link("clang-cl", &real), "usual driver"),
        (&folder.path("bin/none"), "cannot be found"),
        (&PathBuf::from("clang"), "not absolute"),
        (&folder.path(""), "not looked through"),
    ] {
        let unknown = plain(program).unwrap_err();
        assert!(unknown.to_string().contains(reason), "{unknown}, not {reason}");
        assert_eq!(&unknown.compiler, program);
    }
    assert!(!mark.exists(), "the script was run");
}

#[test]
fn the_multicall_binary_is_understood() {
    skip_without!("clang-22");
    let folder = Folder::new();
    // As far as its version goes, clang called `llvm` with a word more is like LLVM's.
    let llvm = copied(&folder, "llvm");
    let toolchain = identify(&llvm, Some("clang"), &Options::default()).unwrap();
    assert!(toolchain.prepended);
    assert_eq!(toolchain.identity, plain(&tool("clang-22")).unwrap().identity);
    identify(&llvm, Some("-c"), &Options::default()).unwrap_err();
}

#[test]
fn a_static_compiler_has_no_libraries() {
    skip_without!("clang-22");
    let folder = Folder::new();
    let source = r#"#include <stdio.h>
        int main(void) { puts("clang version 22.1.8\nTarget: t\nwas searched for in the directory: /none"); }"#;
    folder.write("a.c", source);
    clang().args(["-static", "a.c", "-o", "clang"]).cwd(folder.path("")).go().ok();
    let toolchain = plain(&folder.path("clang")).unwrap();
    assert!(toolchain.libraries.is_empty() && toolchain.loader.is_none());
    assert_eq!(Vec::from_iter(toolchain.identity.parts.keys()), ["clang", MATH_CLASS]);
    // This CPU's class is found without a loader too.
    let real = plain(&tool("clang-22")).unwrap().identity;
    assert_eq!(toolchain.identity.parts[MATH_CLASS], real.parts[MATH_CLASS]);
}

#[test]
fn one_byte_of_its_code_makes_another_compiler() {
    skip_without!("clang-22");
    let folder = Folder::new();
    let compiler = copied(&folder, "clang");
    let before = plain(&compiler).unwrap().identity;
    changed_library(&folder, "libLLVM");
    let after = plain(&compiler).unwrap().identity;
    assert_ne!(before.code, after.code);
    assert_ne!(before.full, after.full);
    let text = before.difference(&after, Math::Strict).unwrap();
    assert!(text.starts_with("libLLVM.so") && text.ends_with(" differs"), "{text}");
}

#[test]
fn one_byte_of_another_library_changes_the_full_digest_only() {
    skip_without!("clang-22");
    let folder = Folder::new();
    let compiler = copied(&folder, "clang");
    let before = plain(&compiler).unwrap().identity;
    changed_library(&folder, "libz.so");
    let path = folder.path("lib").to_str().unwrap().to_owned();
    let after = identity_in(&compiler, &variables(&[("LD_LIBRARY_PATH", &path)]));
    assert_eq!(before.code, after.code);
    assert_ne!(before.full, after.full);
    assert_eq!(before.difference(&after, Math::Strict), None);
}

#[test]
fn another_libm_is_named_and_can_be_let_pass() {
    skip_without!("clang-22");
    let folder = Folder::new();
    let compiler = copied(&folder, "clang");
    let options = Options { math: Math::Any, ..Options::default() };
    let before = identify(&compiler, None, &options).unwrap().identity;
    changed_library(&folder, "libm.so");
    let after = identify(&compiler, None, &options).unwrap().identity;
    let text = before.difference(&after, Math::Strict).unwrap();
    assert!(text.starts_with("libm.so") && text.ends_with(" differs"), "{text}");
    assert_eq!(before.difference(&after, Math::Any), None);
    assert_eq!((before.code, before.full), (after.code, after.full));
    assert_ne!(
        plain(&compiler).unwrap().identity.code,
        plain(&tool("clang-22")).unwrap().identity.code
    );
}

#[test]
fn config_files_are_those_that_clang_reads() {
    skip_without!("clang-22");
    let folder = Folder::new();
    let compiler = copied(&folder, "clang");
    let plus = folder.path("bin/clang++");
    symlink("clang", &plus).unwrap();
    let without = plain(&compiler).unwrap().identity;
    for (name, text) in [
        ("clang.cfg", "-O1"),
        ("x86_64-unknown-linux-gnu.cfg", "-O2"),
        ("aarch64-unknown-linux-gnu-clang.cfg", "-O3"),
        ("aarch64-unknown-linux-gnu.cfg", "-O1"),
        ("armv7a-unknown-linux-gnueabihf-clang++.cfg", "-O1"),
    ] {
        folder.write(Path::new("bin").join(name), text);
    }
    let mut seen = std::collections::BTreeSet::new();
    let targets =
        ["x86_64-linux-gnu", "aarch64-linux-gnu", "armv7a-linux-gnueabihf", "i686-pc-windows-msvc"];
    for (compiler, target) in [&compiler, &plus].into_iter().flat_map(|c| targets.map(|t| (c, t))) {
        let said = Run::new(compiler).arg(format!("--target={target}")).arg("--version").go().ok();
        let read: Vec<_> = said
            .stdout
            .lines()
            .filter_map(|line| Some(PathBuf::from(line.strip_prefix("Configuration file: ")?)))
            .collect();
        let options = Options { target: Some(target), ..Options::default() };
        assert_eq!(identify(compiler, None, &options).unwrap().config_files, read, "{target}");
        seen.insert(read);
    }
    assert_eq!(seen.len(), 7, "{seen:#?}");

    let with = plain(&compiler).unwrap().identity;
    let text = without.difference(&with, Math::Strict).unwrap();
    assert!(text.contains("this host's clang has a clang.cfg, the link's has none"), "{text}");
    let options = Options { no_default_config: true, ..Options::default() };
    assert_eq!(identify(&compiler, None, &options).unwrap().identity, without);
    assert_eq!(identity_in(&compiler, &variables(&[("CLANG_NO_DEFAULT_CONFIG", "1")])), without);
    folder.write("bin/clang.cfg", "@more");
    assert!(plain(&compiler).unwrap_err().reason.contains("depends on other files (@more)"));
}

#[test]
fn the_linker_beside_it_counts_if_it_is_asked_for() {
    skip_without!("clang-22", "ld.lld-22");
    let folder = Folder::new();
    let compiler = copied(&folder, "clang");
    let options = Options { with_ld_lld: true, ..Options::default() };
    let ask = || identify(&compiler, None, &options).unwrap();
    let plainly = || plain(&compiler).unwrap().identity;
    let (none, unasked) = (ask(), plainly());
    assert_eq!(none.ld_lld, None);

    fs::copy(tool("ld.lld-22"), folder.path("bin/lld")).unwrap();
    symlink("lld", folder.path("bin/ld.lld")).unwrap();
    let one = ask();
    assert_eq!(one.ld_lld, Some(folder.path("bin/ld.lld")));
    let text = one.identity.difference(&none.identity, Math::Strict).unwrap();
    assert_eq!(text, "this host's clang has no ld.lld, the link's has one");
    append(&folder.path("bin/lld"));
    let other = ask().identity;
    assert_eq!(one.identity.difference(&other, Math::Strict).unwrap(), "ld.lld differs");
    assert_eq!(one.still_same().unwrap_err().file, folder.path("bin/ld.lld"));
    assert_eq!(plainly(), unasked);
}

#[test]
fn the_math_class_differs_exactly_where_folded_objects_do() {
    skip_without!("clang-22");
    let folder = Folder::new();
    folder.write("a.c", "double sin(double); double f(void) { return sin(9.0172); }");
    let real = tool("clang-22");
    let seen: Vec<_> =
        ["", "-FMA,-AVX2,-FMA4", "-FMA", "-AVX2", "-AVX512F", "-SSE4_1", "-AVX2,-FMA,-AVX"]
            .into_iter()
            .map(|hwcaps| {
                let tunables = format!("glibc.cpu.hwcaps={hwcaps}");
                let args = ["-O2", "-c", "a.c", "-o", "a.o"];
                let run = clang().args(args).env("GLIBC_TUNABLES", &tunables);
                run.cwd(folder.path("")).go().ok();
                let identity = identity_in(&real, &variables(&[("GLIBC_TUNABLES", &tunables)]));
                (hwcaps, identity, folder.read("a.o"))
            })
            .collect();
    for (one, this, object) in &seen {
        for (other, that, its_object) in &seen {
            let same = object == its_object;
            let classes = (&this.parts[MATH_CLASS], &that.parts[MATH_CLASS]);
            assert_eq!(classes.0 == classes.1, same, "{one:?}, {other:?}: {classes:?}");
            assert_eq!(this.code == that.code, same, "{one:?}, {other:?}");
        }
    }
    let (first, second) = (&seen[0].1, &seen[1].1);
    if first.parts[MATH_CLASS] == "avx2 fma" {
        let text = second.difference(first, Math::Strict).unwrap();
        assert_eq!(text, "math class: avx2 fma here, none there");
    }
}

#[test]
fn a_compiler_that_changes_is_told_by_its_file() {
    skip_without!("clang-22");
    let folder = Folder::new();
    let compiler = copied(&folder, "clang");
    let library = changed_library(&folder, "libLLVM");
    let toolchain = plain(&compiler).unwrap();
    toolchain.still_same().unwrap();

    // Touched, or installed anew with the same bytes: still the same.
    let again = folder.path("again");
    fs::copy(&library, &again).unwrap();
    fs::rename(&again, &library).unwrap();
    toolchain.still_same().unwrap();

    let config = folder.write("bin/clang.cfg", "-O1");
    let changed = toolchain.still_same().unwrap_err();
    assert_eq!(changed.file, config);
    assert!(changed.to_string().contains("changed during the link"), "{changed}");
    fs::remove_file(config).unwrap();
    toolchain.still_same().unwrap();

    append(&library);
    assert!(toolchain.still_same().unwrap_err().file.ends_with(library.file_name().unwrap()));
    fs::remove_file(&library).unwrap();
    toolchain.still_same().unwrap_err();
}

#[test]
fn a_library_that_is_missing_is_a_reason() {
    skip_without!("clang-22");
    let folder = Folder::new();
    let source = "int missing(void); int main(void) { return missing(); }";
    folder.write("a.c", source);
    folder.write("b.c", "int missing(void) { return 0; }");
    let run = |args: &[&str]| clang().args(args).cwd(folder.path("")).go().ok();
    run(&["-shared", "-fPIC", "b.c", "-o", "libmissing.so"]);
    run(&["a.c", "-L.", "-lmissing", "-o", "clang"]);
    let reason = plain(&folder.path("clang")).unwrap_err().reason;
    assert!(reason.contains("libmissing.so"), "{reason}");
}
