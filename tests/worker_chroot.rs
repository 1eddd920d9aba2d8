//! The worker in the environment of an icecream node: a chroot that holds the compiler and the worker, but
//! neither `/dev` nor `/proc`, where it is called `clang` and gets its request on standard input. Needs root.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests start programs, and may panic

mod kit;

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use dtlto_bridge::bundle::{Answer, Expected, Limits, receive};
use dtlto_bridge::toolchain::{Options, identify};
use kit::{Folder, LinkJobs, Modules, bridge_path, identity, skip, skip_without, tool};

const LIBRARIES: &str = "opt/llvm/lib";

/// Copies a program and what it loads, with its loader where it looks for that.
fn install(root: &Folder, program: &Path, place: &str, libraries: &str) {
    let copy = |from: &Path, to: PathBuf| {
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        let from = from.canonicalize().unwrap();
        fs::hard_link(&from, &to).or_else(|_| fs::copy(&from, &to).map(drop)).unwrap();
    };
    copy(program, root.path(place));
    let listed = kit::Run::new(tool("ldd")).arg(program).go().ok().stdout;
    for line in listed.lines() {
        let line = line.trim().split(" (0x").next().unwrap();
        let (name, path) = line.split_once(" => ").unwrap_or((line, line));
        let to = match name.starts_with('/') {
            true => root.path(name.trim_start_matches('/')),
            false => root.path(libraries).join(name),
        };
        if Path::new(path).is_absolute() && !to.exists() {
            copy(Path::new(path), to);
        }
    }
}

/// An environment as a node unpacks it. The worker, which is linked dynamically in tests, finds its libraries
/// where a loader without a cache looks.
fn environment() -> Folder {
    let root = Folder::new();
    let clang = identify(&tool("clang-22"), None, &Options::default()).unwrap();
    install(&root, &clang.binary, "opt/llvm/bin/clang", LIBRARIES);
    install(&root, Path::new(bridge_path()), "usr/bin/clang", "usr/lib");
    symlink("clang", root.path("usr/bin/as")).unwrap();
    root.mkdir("bin");
    symlink("../usr/bin/clang", root.path("bin/true")).unwrap();
    let tmp = root.mkdir("tmp");
    fs::set_permissions(tmp, fs::Permissions::from_mode(0o1777)).unwrap();
    fs::set_permissions(root.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    let settings = r#"{"compilers": ["/opt/llvm/bin/clang"], "library_path": ["/opt/llvm/lib"]}"#;
    root.write("dtlto-environment.json", settings);
    root
}

#[test]
fn a_node_makes_the_same_object() {
    skip_without!("clang-22", "ld.lld-22", "chroot", "ldd");
    if !rustix::process::geteuid().is_root() {
        skip!("only root can change the root");
    }
    let root = environment();
    let node = |program: &str| {
        let mut command = Command::new(tool("chroot"));
        command.args(["--userspec=65534:65534"]).arg(root.path("")).arg(program);
        command.env_clear().env("PATH", "/usr/bin");
        command
    };
    assert!(node("/bin/true").status().unwrap().success(), "the environment is not accepted");

    let folder = Folder::new();
    Modules::compile(&folder, "", &[]);
    let jobs = LinkJobs::of(folder, &["a.o", "b.o", "c.o"], &[]);
    let mut prepared = jobs.prepare(0);
    prepared.request.compiler = identity(&tool("clang-22"));
    let request = jobs.folder.path("request");
    prepared.pack(File::create(&request).unwrap(), &Limits::default()).unwrap();
    let line = "-x c -Xclang -main-file-name -Xclang job.i -Xclang -fdebug-compilation-dir -Xclang /x \
                -target x86_64-pc-linux-gnu -c - -o tmp/icecc-1_x.o -no-canonical-prefixes";
    let mut worker = node("/usr/bin/clang");
    worker.args(line.split_whitespace()).stdin(File::open(&request).unwrap());
    let output = worker.stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");

    let object = jobs.folder.path("got.o");
    let outputs = [("out.o".to_owned(), object.clone())];
    let expected = Expected { nonce: prepared.request.nonce, link: "7f3a", outputs: &outputs };
    let response = File::open(root.path("tmp/icecc-1_x.o")).unwrap();
    let received = receive(response, &expected, &Limits::default());
    let received = received.unwrap_or_else(|fault| panic!("{fault}"));
    let stderr = String::from_utf8_lossy(&received.stderr).into_owned();
    assert_eq!(received.response.answer, Answer::Ran { code: Some(0), signal: None }, "{stderr}");
    assert!(fs::read(object).unwrap() == jobs.made_here(0));
}
