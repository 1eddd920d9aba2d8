//! Split code generation, as proposed for ThinLTO: the compiler writes partitions and has them merged by the
//! `ld.lld` beside it. No release does so yet, hence a script stands in for the compiler.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests start programs, and may panic

mod kit;

use std::time::Duration;

use dtlto_bridge::process::Groups;
use dtlto_bridge::worker::compiler::{Compilers, Wanted};
use dtlto_bridge::worker::confined::Confined;
use dtlto_bridge::worker::sandbox::{Rules, prepare};
use dtlto_bridge::worker::settings::{Allowed, Found, Landlock, Settings};
use kit::{Folder, LinkJobs, Modules, Run, Worker, skip_without, tool};

/// A compiler that makes two partitions and merges them.
fn wrapper() -> String {
    let [clang, lld] = [tool("clang-22"), tool("ld.lld-22")].map(|path| path.display().to_string());
    format!(
        r#"
for arg; do
    shift
    case $arg in
        -mllvm|-thinlto-split*) ;;
        *) set -- "$@" "$arg" ;;
    esac
    object=$arg
done
{clang} "$@" -o part0.o || exit
echo 'int second_partition;' > part1.c
{clang} -c part1.c -o part1.o || exit
printf '%s\n' part0.o part1.o > list
exec {lld} -r @list -o "$object"
"#
    )
}

#[test]
fn a_compiler_that_merges_partitions_works_when_it_is_locked_in() {
    skip_without!("clang-22", "ld.lld-22");
    let folder = Folder::new();
    Modules::compile(&folder, "", &[]);
    let jobs = LinkJobs::of(folder, &["a.o", "b.o", "c.o"], &[]);
    let mut prepared = jobs.prepare(0);
    let split = ["-mllvm", "-thinlto-split", "-mllvm", "-thinlto-split-partitions=2"];
    prepared.request.args.splice(0..0, split.map(String::from));
    let worker = Worker::scripted(&wrapper(), "", &mut prepared);
    let object = worker.answer(&mut prepared).done();
    assert_eq!(worker.logged()["locked"], true);
    assert_eq!(worker.left(), [""; 0]);

    // The same by hand, from the job's own files.
    let job = &jobs.file.jobs[0];
    let here = jobs.folder.script("cc", &wrapper());
    Run::new(here).args(job.args.iter().map(|arg| &**arg)).cwd(jobs.folder.path("")).go().ok();
    assert!(object == jobs.folder.read(&*job.object));
    let symbols = Run::new(tool("llvm-nm-22")).arg(jobs.folder.path(&*job.object)).go().ok();
    assert!(symbols.stdout.contains("second_partition"), "{symbols}");
}

#[test]
fn clang_may_start_the_linker_beside_it() {
    skip_without!("clang-22", "ld.lld-22");
    let (folder, compiler) = (Folder::new(), tool("clang-22"));
    let identity = kit::identity_with_linker(&compiler);
    let settings = Settings { compilers: vec![Allowed::Clang(compiler)], ..Settings::default() };
    let found = Found { file: "/settings".into(), settings, environment: false };
    let memory = folder.mkdir("memory");
    let compilers = Compilers { found: &found, memory: &memory, variables: &[] };
    let works = |ld_lld: bool| {
        let identity = if ld_lld { identity.clone() } else { kit::identity(&tool("clang-22")) };
        let chosen = compilers.choose(&Wanted { identity: &identity, args: &[], ld_lld }).unwrap();
        let rules = Rules { write: folder.path(""), ..chosen.rules };
        let sandbox = prepare(&rules, Landlock::Require).unwrap();
        let confined = Confined {
            program: tool("ld.lld-22").canonicalize().unwrap().with_file_name("ld.lld"),
            name: "ld.lld".into(),
            args: vec!["--version".into()],
            env: vec![],
            folder: folder.path(""),
            memory: None,
            file_size: 1 << 20,
            time: Duration::from_secs(20),
            printed: 1 << 16,
        };
        let enter = || {
            sandbox.enter()?;
            Ok(())
        };
        Groups::new(None).run_confined(&confined, enter).is_ok_and(|ended| ended.status.success())
    };
    assert!(works(true), "the linker cannot be started");
    assert!(!works(false), "a job that splits nothing can start the linker");
}
