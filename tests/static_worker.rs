//! The released program, statically linked, is the worker too: it needs nothing of the host but a compiler. Shown
//! in a chroot that has only the two, called as an icecream node calls it, and by name as distccd does. These
//! tests build it with musl, and know how the daemons call it, not what it does then.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests start programs, and may panic

mod kit;

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use dtlto_bridge::bundle::{Answer, Expected, Limits, Prepared, receive};
use dtlto_bridge::toolchain::{Options, Toolchain, identify};
use kit::{Folder, LinkJobs, Modules, Run, Worker, skip, skip_without, static_bridge, tool};
use serde_json::json;

/// The user of icecream's jobs.
const NOBODY: u32 = 65_534;

/// The program, or the test is skipped.
macro_rules! built {
    () => {
        match static_bridge() {
            Ok(path) => path,
            Err(why) => skip!("{why}"),
        }
    };
}

fn jobs() -> LinkJobs {
    let folder = Folder::new();
    Modules::compile(&folder, "", &["-g"]);
    LinkJobs::of(folder, &["a.o", "b.o", "c.o"], &[])
}

#[test]
fn it_loads_nothing() {
    skip_without!("llvm-readelf-22");
    let program = built!();
    let elf = Run::new(tool("llvm-readelf-22")).args(["--program-headers", "--dynamic"]);
    elf.arg(program).go().ok().stdout_lacks("INTERP").stdout_lacks("NEEDED");
    let version = Run::new(program).arg("--version").env_clear().cwd("/").go().ok();
    version.stdout_is(&format!("dtlto-bridge {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn distccd_calls_it_by_name() {
    skip_without!("clang-22", "ld.lld-22");
    let program = built!();
    let (jobs, worker) = (jobs(), Worker::new(""));
    let mut prepared = jobs.prepare(1);
    let (request, response) = (worker.pack(&mut prepared), worker.folder.write("response", ""));
    let named = worker.folder.path("dtlto-worker");
    symlink(program, &named).unwrap();
    let run = Run::new(named).arg("-c").arg(request).arg("-o").arg(response).cwd("/").env_clear();
    let output = run.env("DTLTO_WORKER_CONFIG", worker.folder.path("worker.json")).go().ok();
    assert!(worker.read(&prepared, output).done() == jobs.made_here(1));
}

/// A folder to become the root of an icecream environment.
struct Environment(Folder);

impl Environment {
    fn new(program: &Path) -> Environment {
        let toolchain = identify(&tool("clang-22"), None, &Options::default()).unwrap();
        let folder = Folder::new();
        fs::set_permissions(folder.path(""), Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(folder.mkdir("tmp"), Permissions::from_mode(0o1777)).unwrap();
        let environment = Environment(folder);
        environment.copy(program, Path::new("/usr/bin/clang"));
        environment.take(&toolchain);
        environment
    }

    fn copy(&self, from: &Path, to: &Path) {
        let to = self.0.path(to.strip_prefix("/").unwrap());
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(from, to).unwrap();
    }

    /// The compiler, at the place where it is here, and what it loads; its libraries in one folder.
    fn take(&self, toolchain: &Toolchain) {
        self.copy(&toolchain.binary, &toolchain.binary);
        if let Some(path) = &toolchain.loader {
            self.copy(path, path);
        }
        for library in &toolchain.libraries {
            self.copy(&library.path, &Path::new("/libraries").join(&library.name));
        }
        let settings = json!({"compilers": [toolchain.binary], "library_path": ["/libraries"]});
        self.0.write("dtlto-environment.json", settings.to_string());
    }

    /// Runs the worker as an icecream node does: as an ordinary user, with a request on standard input and
    /// the response in the folder that it starts in.
    #[track_caller]
    fn answer(&self, prepared: &mut Prepared, object: &str) -> (Answer, Vec<u8>) {
        let outside = Folder::new();
        let request = outside.path("request");
        prepared.pack(File::create(&request).unwrap(), &Limits::default()).unwrap();
        let line = "/usr/bin/clang -x c -Xclang -main-file-name -Xclang 7f3a/a.o.0.i -Xclang \
                    -fdebug-compilation-dir -Xclang /home/me -target x86_64-pc-linux-gnu -c -";
        let output = Run::new("/bin/sh")
            .args(["-c", "exec <\"$0\"; exec \"$@\""])
            .arg(request)
            .arg(tool("unshare"))
            .args([format!("--setuid={NOBODY}"), format!("--setgid={NOBODY}")])
            .args(["--wd=/tmp".into(), format!("--root={}", self.0.path("").display())])
            .args(line.split_whitespace())
            .args(["-o", object, "-no-canonical-prefixes"])
            .env_clear()
            .env("PATH", "/usr/bin")
            .go()
            .ok();
        assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{output}");
        let response = File::open(self.0.path("tmp").join(object)).unwrap();
        let outputs = [("out.o".to_owned(), outside.path("out.o"))];
        let expected = Expected { nonce: prepared.request.nonce, link: "7f3a", outputs: &outputs };
        let received = receive(response, &expected, &Limits::default()).unwrap();
        let printed = String::from_utf8_lossy(&received.stderr).into_owned();
        assert_eq!(printed, "", "{:?}", received.response.answer);
        (received.response.answer, fs::read(outside.path("out.o")).unwrap_or_default())
    }
}

#[test]
fn an_icecream_environment_needs_nothing_but_it_and_a_compiler() {
    skip_without!("clang-22", "ld.lld-22", "unshare");
    let program = built!();
    if !rustix::process::geteuid().is_root() {
        skip!("only root can enter a chroot");
    }
    let (jobs, environment) = (jobs(), Environment::new(program));
    for number in 0..jobs.file.jobs.len() {
        let object = format!("icecc-{number}_x.o");
        let (answer, bytes) = environment.answer(&mut jobs.prepare(number), &object);
        assert_eq!(answer, Answer::Ran { code: Some(0), signal: None });
        assert!(bytes == jobs.made_here(number), "jobs[{number}]");
    }
    let left = environment.0.list("tmp").into_iter();
    let left: Vec<_> = left.filter(|name| name.contains("job-")).collect();
    assert_eq!(left, [""; 0]);
    // Another compiler than the link's is told from it there, too.
    let mut other = jobs.prepare(0);
    other.request.compiler.version = other.request.compiler.version.replace("22.", "23.");
    let (answer, _) = environment.answer(&mut other, "icecc-9_x.o");
    assert!(matches!(answer, Answer::OtherCompiler { .. }), "{answer:?}");
}
