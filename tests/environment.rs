//! The environment that icecream's nodes get, with the real clang: what is in it, and what the worker does there,
//! in a chroot without `/dev` and `/proc`, called as icecream's daemon calls it. Needs root and a static worker.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests start programs, and may panic

mod kit;

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use dtlto_bridge::bundle::{Answer, Digest};
use dtlto_bridge::environment::{self, Environment, make};
use dtlto_bridge::toolchain::{Options, Toolchain, identify};
use kit::{Folder, LinkJobs, Modules, Node, Run, bridge, environments};
use kit::{skip, skip_without, static_bridge, tool};

/// What a function returns that may say what is missing for it; else the test is skipped.
macro_rules! or_skip {
    ($what:expr) => {
        match $what {
            Ok(value) => value,
            Err(why) => skip!("{why}"),
        }
    };
}

/// A clang in a folder of its own, with a config file beside it that changes objects.
fn configured() -> (Folder, Toolchain) {
    let folder = Folder::new();
    let path = folder.path("clang");
    fs::copy(tool("clang-22").canonicalize().unwrap(), &path).unwrap();
    folder.write("clang.cfg", "-fstack-size-section\n");
    let cache = environments();
    let options = Options { cache_folder: Some(&cache), ..Options::default() };
    let clang = identify(&path, None, &options).unwrap();
    (folder, clang)
}

#[test]
fn config_files_come_along() {
    skip_without!("clang-22", "ld.lld-22", "unshare");
    let worker = or_skip!(static_bridge());
    let (_folder, clang) = configured();
    let environment = make(&clang, worker, "", &environments()).unwrap();
    let (node, jobs) = (or_skip!(Node::new(&environment)), jobs());
    let mut prepared = jobs.prepare(0);
    prepared.request.compiler.clone_from(&clang.identity);
    let (answer, object) = node.answer(&mut prepared);
    assert_eq!(answer, Answer::Ran { code: Some(0), signal: None });
    let job = &jobs.file.jobs[0];
    let own = Run::new(&clang.compiler).args(job.args.iter().map(|arg| &**arg));
    own.cwd(jobs.folder.path("")).go().ok();
    assert!(object == fs::read(jobs.folder.path(&*job.object)).unwrap());
    assert!(object != jobs.made_here(0), "the config file has no effect");
}

#[test]
fn the_worker_is_static_or_lies_beside_the_program() {
    let worker = or_skip!(static_bridge());
    assert_eq!(environment::worker(worker).unwrap(), *worker);
    let folder = Folder::new();
    let own = folder.path("dtlto-bridge");
    fs::copy(kit::bridge_path(), &own).unwrap();
    let said = environment::worker(&own).unwrap_err().to_string();
    assert!(said.contains("linked statically") && said.contains("dtlto-worker"), "{said}");
    fs::copy(worker, folder.path("dtlto-worker")).unwrap();
    assert_eq!(environment::worker(&own).unwrap(), folder.path("dtlto-worker"));
}

fn jobs() -> LinkJobs {
    let folder = Folder::new();
    Modules::compile(&folder, "", &["-g"]);
    LinkJobs::of(folder, &["a.o", "b.o", "c.o"], &[])
}

/// `clang-22` where its loader looks into `folder` first.
fn with_libraries_of(folder: &Path) -> Toolchain {
    let variables = [("LD_LIBRARY_PATH".to_owned(), folder.display().to_string())];
    let cache = environments();
    let options =
        Options { variables: &variables, cache_folder: Some(&cache), ..Options::default() };
    identify(&tool("clang-22"), None, &options).unwrap()
}

#[test]
fn it_is_made_once_and_anywhere_with_the_same_bytes() {
    skip_without!("clang-22");
    let worker = or_skip!(static_bridge());
    let [one, two] = [Folder::new(), Folder::new()];
    let made = |cache: &Folder, salt| {
        let cache = cache.path("");
        let options = Options { cache_folder: Some(&cache), ..Options::default() };
        let clang = identify(&tool("clang-22"), None, &options).unwrap();
        make(&clang, worker, salt, &cache).unwrap()
    };
    let first = made(&one, "");
    assert!(first.made && first.name.len() == "dtlto-".len() + 32, "{first:?}");
    assert_eq!(made(&one, ""), Environment { made: false, ..first.clone() });
    let second = made(&two, "");
    assert!(fs::read(&first.file).unwrap() == fs::read(&second.file).unwrap());
    let salted = made(&two, "other");
    assert_ne!(salted.name, first.name);
    assert_eq!(salted.files, first.files);
}

#[test]
fn what_was_made_is_used_and_then_kept() {
    skip_without!("clang-22");
    let first = or_skip!(kit::environment());
    let file = fs::OpenOptions::new().write(true).open(&first.file).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(1_000_000)).unwrap();
    kit::environment().unwrap();
    let age = file.metadata().unwrap().modified().unwrap().elapsed().unwrap();
    assert!(age < Duration::from_secs(1000), "{age:?}");
}

/// The folder of libraries for CPUs that many machines are, and these libraries in it, each a little longer than
/// the `original` here.
fn for_some_cpus(folder: &Folder, name: &str, original: &Path) -> Vec<u8> {
    let mut bytes = fs::read(original).unwrap();
    let baseline = bytes.clone();
    bytes.push(0);
    folder.write(format!("glibc-hwcaps/x86-64-v2/{name}"), bytes);
    baseline
}

#[test]
fn libraries_for_this_cpu_stay_here() {
    skip_without!("clang-22");
    let worker = or_skip!(static_bridge());
    let plain = kit::clang_22();
    let library = |name: &str| {
        let found = plain.libraries.iter().find(|library| library.name.starts_with(name));
        found.unwrap().clone()
    };
    let (folder, z) = (Folder::new(), library("libz.so"));
    let baseline = for_some_cpus(&folder, &z.name, &z.path);
    let clang = with_libraries_of(&folder.path(""));
    if !clang.libraries.iter().any(|library| library.path.starts_with(folder.path(""))) {
        skip!("this CPU or this loader knows no x86-64-v2");
    }
    let only = format!("{:#}", make(&clang, worker, "", &environments()).unwrap_err());
    assert!(only.contains("for CPUs with x86-64-v2 only"), "{only}");

    let digest = Digest::of(&baseline);
    folder.write(&z.name, baseline);
    let made = make(&clang, worker, "", &environments()).unwrap();
    let sent = made.files.iter().find(|file| file.path.ends_with(&z.name)).unwrap();
    assert_eq!(sent.blake3, digest);

    // Another libm would make other objects.
    let (folder, m) = (Folder::new(), library("libm.so"));
    let baseline = for_some_cpus(&folder, &m.name, &m.path);
    folder.write(&m.name, baseline);
    let clang = with_libraries_of(&folder.path(""));
    let counts = format!("{:#}", make(&clang, worker, "", &environments()).unwrap_err());
    assert!(counts.contains("which not every node has"), "{counts}");
}

#[test]
fn what_cannot_be_sent_says_why() {
    skip_without!("clang-22");
    let worker = or_skip!(static_bridge());
    let clang = kit::clang_22();
    let folder = Folder::new();
    let error = |toolchain: &Toolchain, worker: &Path| {
        format!("{:#}", make(toolchain, worker, "", &folder.path("")).unwrap_err())
    };
    let mut elsewhere = fs::read(worker).unwrap();
    elsewhere[18..20].copy_from_slice(&183_u16.to_le_bytes());
    let elsewhere = folder.write("elsewhere", elsewhere);
    let said = error(&clang, &elsewhere);
    assert!(said.contains("it runs on x86_64") && said.contains("on aarch64"), "{said}");
    let mut lacks = clang.clone();
    lacks.libraries[0].path = "/nowhere/libLLVM.so".into();
    assert!(error(&lacks, worker).contains("/nowhere/libLLVM.so"));
    let mut twice = clang.clone();
    twice.linker_libraries = clang.libraries.clone();
    twice.linker_libraries[0].path = twice.linker_libraries[1].path.clone();
    assert!(error(&twice, worker).contains("two of its files have to be opt/llvm/lib/"));
    let mut unknown = clang;
    unknown.platform = None;
    assert!(error(&unknown, worker).contains("no icecream node"));
    assert!(!folder.path("icecc").exists());
}

#[test]
fn verification_really_runs_the_compiler_and_is_quick() {
    skip_without!("clang-22", "unshare");
    let node = or_skip!(Node::new(&or_skip!(kit::environment())));
    for program in ["/bin/true", "/usr/bin/as"] {
        let output = node.run(program).go().ok();
        assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{output}");
        assert!(output.took < Duration::from_secs(2), "{output}");
    }
    fs::remove_file(node.folder.path("opt/llvm/lib/libz.so.1")).unwrap();
    let output = node.run("/bin/true").go().code(4);
    output.stderr_has("libz.so.1: cannot open shared object file");
}

#[test]
fn jobs_make_the_same_objects_and_leave_nothing() {
    skip_without!("clang-22", "ld.lld-22", "unshare");
    let environment = or_skip!(kit::environment());
    let (node, jobs) = (or_skip!(Node::new(&environment)), jobs());
    let scratch = node.folder.path("tmp/dtlto-worker-65534");
    for number in 0..jobs.file.jobs.len() {
        let (answer, object) = node.answer(&mut jobs.prepare(number));
        assert_eq!(answer, Answer::Ran { code: Some(0), signal: None });
        assert!(object == jobs.made_here(number), "jobs[{number}]");
        // As a worker that was killed leaves it.
        fs::create_dir_all(scratch.join("job-killed/work")).unwrap();
    }
    fs::remove_dir_all(scratch.join("job-killed")).unwrap();
    let left = node.folder.list("tmp").into_iter();
    let left: Vec<_> = left.filter(|name| name.contains("job-")).collect();
    assert_eq!(left, [""; 0]);
    let mut other = jobs.prepare(0);
    other.request.compiler.parts.insert("math class".into(), "none such".into());
    let (answer, _) = node.answer(&mut other);
    assert!(matches!(answer, Answer::OtherCompiler { .. }), "{answer:?}");
}

#[test]
fn split_code_generation_finds_its_linker() {
    skip_without!("clang-22", "ld.lld-22", "unshare");
    let worker = or_skip!(static_bridge());
    let cache = environments();
    let options = Options { with_ld_lld: true, cache_folder: Some(&cache), ..Options::default() };
    let clang = identify(&tool("clang-22"), None, &options).unwrap();
    if clang.ld_lld.is_none() {
        skip!("there is no ld.lld beside clang");
    }
    let environment = make(&clang, worker, "", &cache).unwrap();
    assert_ne!(environment.name, kit::environment().unwrap().name);
    let node = or_skip!(Node::new(&environment));
    let jobs = jobs();
    let (answer, object) = node.answer(&mut jobs.prepare(0));
    assert_eq!(answer, Answer::Ran { code: Some(0), signal: None });
    assert!(object == jobs.made_here(0));
    // It does run there: with the libraries that were sent for it.
    let linker = node.run("/opt/llvm/bin/ld.lld").arg("--version");
    linker.env("LD_LIBRARY_PATH", "/opt/llvm/lib").go().ok();
}

#[test]
fn what_was_altered_makes_no_object() {
    skip_without!("clang-22", "ld.lld-22", "unshare");
    let environment = or_skip!(kit::environment());
    let (node, jobs) = (or_skip!(Node::new(&environment)), jobs());
    let altered = |what: &str| {
        let (answer, object) = node.answer(&mut jobs.prepare(0));
        let Answer::Altered { reason } = answer else { panic!("{answer:?}") };
        assert!(reason.contains(what) && object.is_empty(), "{reason}");
    };
    assert!(matches!(node.answer(&mut jobs.prepare(0)).0, Answer::Ran { .. }));
    let library = node.folder.path("opt/llvm/lib/libz3.so.4");
    let good = fs::read(&library).unwrap();
    let mut bad = good.clone();
    bad[good.len() / 2] ^= 1;
    fs::write(&library, bad).unwrap();
    altered("opt/llvm/lib/libz3.so.4: it has other bytes");
    fs::write(&library, good).unwrap();
    assert!(matches!(node.answer(&mut jobs.prepare(0)).0, Answer::Ran { .. }));
    let stranger = node.folder.mkdir("opt/llvm/lib/glibc-hwcaps/x86-64-v2");
    fs::copy(&library, stranger.join("libz3.so.4")).unwrap();
    altered("opt/llvm/lib/glibc-hwcaps was not sent");
    fs::remove_dir_all(node.folder.path("opt/llvm/lib/glibc-hwcaps")).unwrap();
    fs::remove_file(library).unwrap();
    altered("opt/llvm/lib/libz3.so.4");
}

#[test]
fn a_node_with_too_little_memory_is_unfit() {
    skip_without!("clang-22", "ld.lld-22", "unshare", "prlimit");
    let environment = or_skip!(kit::environment());
    let (node, jobs) = (or_skip!(Node::new(&environment)), jobs());
    let limited = |megabytes: u64| {
        let limit = format!("--as={}", megabytes << 20);
        let limited = ["prlimit", &limit, "--"];
        node.answer_under(&limited, &mut jobs.prepare(0)).unwrap().0
    };
    // A small job needs hardly more than clang itself.
    assert_eq!(limited(400), Answer::Ran { code: Some(0), signal: None });
    // The least that icecream gives, and less than clang needs to start.
    for megabytes in [100, 250] {
        let answer = limited(megabytes);
        let Answer::Unfit { reason } = answer else { panic!("{megabytes} MiB: {answer:?}") };
        assert!(reason.contains(&format!("{megabytes} MiB of address space")), "{reason}");
    }
}

#[test]
fn a_full_disk_is_no_compilers_error_and_nothing_is_printed() {
    skip_without!("clang-22", "ld.lld-22", "unshare", "mount");
    let environment = or_skip!(kit::environment());
    let (node, jobs) = (or_skip!(Node::new(&environment)), jobs());
    let (tmp, here) = (node.folder.path("tmp"), jobs.made_here(0));
    for left in [0, 4, 16, 32, 64] {
        let script = format!(
            "mount -t tmpfs -o size=1M,mode=1777 tmpfs {0} && head -c $((1048576 - {left} * 1024)) /dev/zero \
             >{0}/full; exec \"$@\"",
            tmp.display()
        );
        let full = ["unshare", "--mount", "sh", "-c", &script, "sh"];
        let answer = node.answer_under(&full, &mut jobs.prepare(0));
        match answer {
            Some((Answer::Ran { code, .. }, object)) => {
                assert!(code == Some(0) && object == here && left > 16, "{left} KiB left");
            }
            None
            | Some((Answer::Busy { .. } | Answer::Unfit { .. } | Answer::Failed { .. }, _)) => {}
            Some((other, _)) => panic!("{left} KiB left: {other:?}"),
        }
    }
}

#[test]
fn administrators_see_what_they_need() {
    skip_without!("clang-22", "chroot");
    let worker = or_skip!(static_bridge());
    let cache = environments();
    let parent = cache.parent().unwrap();
    let icecc_env = || Run::new(worker).arg("icecc-env").env("XDG_CACHE_HOME", parent);
    let made = icecc_env().args(["--compiler", "clang-22", "--env-salt", "a"]).go().ok();
    let line = |name: &str| {
        let line = made.stdout.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("no {name}: {made}")).trim()
    };
    let file = line("archive ").split(" (").next().unwrap();
    assert!(line("name ").starts_with("dtlto-") && file.contains(line("name ")), "{made}");
    assert!(line("compiler ").contains("clang version 22"), "{made}");
    assert!(line("icecream ").starts_with(&format!("ICECC_VERSION=x86_64:{file}")), "{made}");
    assert!(line("nodes ").contains("--cache-limit "), "{made}");
    assert!(line("checked ").contains("as a node does"), "{made}");
    let checked = icecc_env().args(["--env-salt", "a", "--check", file]).go().ok();
    checked.stdout_lacks("named otherwise");
    let other = icecc_env().args(["--check", file]).go().ok();
    assert!(other.stdout.contains("named otherwise"), "{other}");

    let folder = Folder::new();
    let half = fs::read(file).unwrap();
    let half = folder.write("dtlto-x.tar.zst", &half[..half.len() / 2]);
    let output = bridge().args(["icecc-env", "--check"]).arg(half).go().code(4);
    output.stderr_has("dtlto-x.tar.zst");
}

/// Links have the compiler's path from its driver, which resolves it.
#[test]
fn a_link_takes_the_environment_that_was_made_before() {
    skip_without!("clang-22", "ld.lld-22", "icecc");
    let worker = or_skip!(static_bridge());
    let home = Folder::new();
    let at_home = |run: Run| {
        let run = run.env_remove("XDG_CACHE_HOME").env_remove("XDG_CONFIG_HOME");
        run.env("HOME", home.path(""))
    };
    let made = at_home(Run::new(worker).args(["icecc-env", "--compiler", "clang-22"])).go().ok();
    assert!(made.stdout.contains("(made now)"), "{made}");
    let archives = || {
        let names = home.list(".cache/dtlto-bridge/icecc").into_iter();
        names.filter(|name| name.ends_with(".tar.zst")).collect::<Vec<_>>()
    };
    let before = archives();
    assert_eq!(before.len(), 1);
    let folder = Folder::new();
    Modules::compile(&folder, "", &[]);
    let link = Run::new(tool("clang-22")).args(["a.o", "b.o", "c.o", "-o", "app", "-O2"]);
    let link = link.args(["-flto=thin", "-fuse-ld=lld-22"]);
    let link = link.arg(format!("-fthinlto-distributor={}", worker.display()));
    let link = link.arg("-Xthinlto-distributor=--adapter=icecc").cwd(folder.path(""));
    // No daemon is needed to see what is made for it.
    at_home(link).env("ICECC_TEST_SOCKET", "/nonexistent/socket").go().ok();
    assert_eq!(archives(), before);
    let again = at_home(Run::new(worker).args(["icecc-env", "--compiler", "clang-22"])).go().ok();
    assert!(again.stdout.contains("(was there)"), "{again}");
}
