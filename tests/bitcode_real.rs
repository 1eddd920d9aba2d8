//! What the real clang and LLD say to shards that were renamed. Each test skips, and says so, where the
//! tools of LLVM 22 are missing; where `CI` is set that is a failure.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "a test may panic, and this one starts programs and says why it skips"
)]

use dtlto_bridge::bitcode::{
    Agreement, BLOCKINFO, Block, BlockInfo, Change, Item, Shard, hash_in_doubt, module_hash,
    names_agree, rename, rewrite,
};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A part of LLD's job file, as far as these tests want it.
struct Job {
    primary: String,
    shard: Vec<u8>,
    /// The primary and its imports, sorted by bytes.
    modules: Vec<String>,
}

struct Link {
    /// The compiler and the arguments that all jobs share.
    common: Vec<String>,
    jobs: Vec<Job>,
}

/// Whether all `tools` are installed; if not, says so or panics.
fn installed(tools: &[&str]) -> bool {
    let missing: Vec<_> = tools.iter().filter(|tool| which::which(tool).is_err()).collect();
    if missing.is_empty() {
        return true;
    }
    assert!(std::env::var_os("CI").is_none(), "not installed: {missing:?}");
    eprintln!("skipped: not installed: {missing:?}");
    false
}

fn run(folder: &Path, program: &str, args: &[impl AsRef<OsStr>]) {
    let output = Command::new(program).args(args).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
}

fn compile(folder: &Path, source: &str, text: &str, object: &str) {
    fs::write(folder.join(source), text).unwrap();
    let compiler = if source.ends_with(".c") { "clang-22" } else { "clang++-22" };
    run(folder, compiler, &["-O2", "-flto=thin", "-c", source, "-o", object]);
}

/// Links with a distributor that keeps the job file and the shards, then fails.
fn distributed(folder: &Path, objects: &[String]) -> Link {
    let keep = folder.join("keep");
    fs::create_dir(&keep).unwrap();
    let distributor = folder.join("distributor");
    fs::write(
        &distributor,
        "#!/bin/sh\ncp \"$1\" keep/jobs.json; cp ./*.thinlto.bc keep; exit 1\n",
    )
    .unwrap();
    fs::set_permissions(&distributor, fs::Permissions::from_mode(0o755)).unwrap();
    let status = Command::new("clang++-22")
        .args(["-O2", "-flto=thin", "-fuse-ld=lld-22", "-o", "app"])
        .arg(format!("-fthinlto-distributor={}", distributor.display()))
        .args(objects)
        .current_dir(folder)
        .output()
        .unwrap()
        .status;
    assert!(!status.success());

    let file: serde_json::Value =
        serde_json::from_slice(&fs::read(keep.join("jobs.json")).unwrap()).unwrap();
    let strings = |value: &serde_json::Value| -> Vec<String> {
        value.as_array().unwrap().iter().map(|s| s.as_str().unwrap().to_owned()).collect()
    };
    let job = |job: &serde_json::Value| {
        let inputs = strings(&job["inputs"]);
        let shard = fs::read(keep.join(&inputs[1])).unwrap();
        let modules: BTreeSet<_> = inputs[..1].iter().chain(&inputs[2..]).cloned().collect();
        Job { primary: inputs[0].clone(), shard, modules: modules.into_iter().collect() }
    };
    Link {
        common: strings(&file["common"]["args"]),
        jobs: file["jobs"].as_array().unwrap().iter().map(job).collect(),
    }
}

/// The object that the backend compile of `primary` makes in `folder`.
fn object(folder: &Path, link: &Link, primary: &str, shard: &[u8]) -> Vec<u8> {
    fs::write(folder.join("index.thinlto.bc"), shard).unwrap();
    let job = [primary, "-fthinlto-index=index.thinlto.bc", "-o", "native.o"];
    let args: Vec<_> = link.common[1..].iter().map(String::as_str).chain(job).collect();
    run(folder, &link.common[0], &args);
    let object = fs::read(folder.join("native.o")).unwrap();
    assert!(object.starts_with(b"\x7fELF"), "no object was made of {primary}");
    object
}

/// `llvm-bcanalyzer -dump` without what depends on how records are laid out.
fn dump(shard: &[u8]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("shard.bc");
    fs::write(&file, shard).unwrap();
    let output = Command::new("llvm-bcanalyzer-22").arg("-dump").arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (text, _) = text.split_once("Summary of").unwrap();
    let lines = text.lines().map(|line| {
        let line = line.split_once("/> record string").map_or(line, |(record, _)| record);
        let words = line.split_whitespace();
        let words = words.filter(|w| !w.starts_with("abbrevid=") && !w.starts_with("NumWords="));
        words.collect::<Vec<_>>().join(" ").trim_end_matches("/>").to_owned() + "\n"
    });
    lines.collect()
}

fn fixtures() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/shards");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension() == Some(OsStr::new("bc"))).collect()
}

#[test]
fn bcanalyzer_sees_no_difference_after_a_rename_to_the_same_names() {
    if !installed(&["llvm-bcanalyzer-22"]) {
        return;
    }
    let mut seen = 0;
    for path in fixtures() {
        let bytes = fs::read(&path).unwrap();
        let Ok(shard) = Shard::read(&bytes) else { continue };
        let mut names: Vec<_> = shard.modules.iter().map(|module| &module.name[..]).collect();
        if !names.is_sorted() {
            continue; // damaged
        }
        let same = rename(&bytes, &names).unwrap();
        assert_eq!(dump(&same), dump(&bytes), "{path:?}");
        *names.last_mut().unwrap() = b"~";
        assert_ne!(dump(&rename(&bytes, &names).unwrap()), dump(&bytes), "{path:?}");
        seen += 1;
    }
    assert!(seen >= 5);
}

/// Walks through a block and all blocks inside; the sums of blocks and records.
fn walk(file: &[u8], mut block: Block<'_>, info: &mut BlockInfo) -> (usize, usize) {
    let (mut blocks, mut records) = (0, 0);
    while let Some(item) = block.next_item().unwrap() {
        match item {
            Item::Record(_) => records += 1,
            Item::Block(header) => {
                blocks += 1;
                if header.id == BLOCKINFO {
                    info.read(file, &header).unwrap();
                }
                let inside = walk(file, Block::open(file, &header, info).unwrap(), info);
                blocks += inside.0;
                records += inside.1;
            }
        }
    }
    (blocks, records)
}

#[test]
fn a_walk_through_a_real_module_finds_what_bcanalyzer_finds() {
    if !installed(&["clang++-22", "llvm-bcanalyzer-22"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let text = "#include <stddef.h>
        namespace { struct Node { Node *next; int value; virtual int get() const { return value; } }; }
        template <class T, size_t N> struct Array { T all[N]; T sum() const { T s{}; for (auto &x : all) s += x; return s; } };
        static void *targets[2];
        int jump(int x) { static void *to[] = {&&one, &&two}; targets[0] = to[x & 1]; goto *targets[0]; one: return 1; two: return 2; }
        int list(Node *n) { try { int s = 0; for (; n; n = n->next) s += n->get(); return s; } catch (...) { return 0; } }
        int main(int n, char **) { Array<long, 9> a{{n, 2, 3}}; Node b{}; b.value = n; return jump(n) + list(&b) + int(a.sum()); }";
    fs::write(folder.path().join("m.cpp"), text).unwrap();
    run(folder.path(), "clang++-22", &["-O1", "-g", "-flto=thin", "-c", "m.cpp", "-o", "m.o"]);
    let file = fs::read(folder.path().join("m.o")).unwrap();
    let found = walk(&file, Block::file(&file).unwrap(), &mut BlockInfo::default());

    let analyzer =
        Command::new("llvm-bcanalyzer-22").arg(folder.path().join("m.o")).output().unwrap();
    let text = String::from_utf8(analyzer.stdout).unwrap();
    let sum = |labels: &[&str]| -> usize {
        let lines = text.lines().filter_map(|line| line.trim().split_once(": "));
        let counts = lines.filter(|(label, _)| labels.contains(label));
        counts.map(|(_, count)| count.split('/').next().unwrap().parse::<usize>().unwrap()).sum()
    };
    let expected = (sum(&["Num Instances"]), sum(&["Num Records", "Tot/Avg Records"]));
    assert_eq!(found, expected);
    assert!(found.1 > 300);
}

/// Twelve modules, each calling three others, at relative, absolute and `../` paths.
fn twelve_modules(folder: &Path) -> Vec<String> {
    for part in ["work/sub", "side", "elsewhere"] {
        fs::create_dir_all(folder.join(part)).unwrap();
    }
    let work = folder.join("work");
    let object = |k: usize| match k % 4 {
        0 => format!("m{k}.o"),
        1 => format!("{}/elsewhere/m{k}.o", folder.display()),
        2 => format!("../side/m{k}.o"),
        _ => format!("sub/m {k}.o"),
    };
    for k in 0..12 {
        let callees: Vec<_> = [k + 1, k + 2, k + 5].into_iter().filter(|&c| c < 12).collect();
        let mut text = format!(
            "template <class T> struct Box {{ T value; T twice() const {{ return value * 2; }} }};\n\
             static int table{k}[] = {{{k}, 2, 3, 4}};\n\
             __attribute__((noinline)) static int local{k}(int x) {{ return table{k}[x & 3]++; }}\n"
        );
        for c in &callees {
            text += &format!("int f{c}(int);\n");
        }
        let calls: String = callees.iter().map(|c| format!(" + f{c}(x)")).collect();
        text += &format!("int f{k}(int x) {{ return Box<int>{{local{k}(x)}}.twice(){calls}; }}\n");
        if k == 0 {
            text += "int main(int argc, char **) { return f0(argc); }\n";
        }
        compile(&work, &format!("m{k}.cpp"), &text, &object(k));
    }
    (0..12).map(object).collect()
}

#[test]
fn a_job_moved_under_new_names_makes_the_same_object() {
    if !installed(&["clang++-22", "ld.lld-22"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let objects = twelve_modules(folder.path());
    let work = folder.path().join("work");
    let link = distributed(&work, &objects);
    assert_eq!(link.jobs.len(), 12);
    assert!(link.jobs.iter().any(|job| job.modules.len() >= 6));
    for (number, job) in link.jobs.iter().enumerate() {
        let expected: Vec<_> = job.modules.iter().map(String::as_str).collect();
        assert_eq!(names_agree(&Shard::read(&job.shard).unwrap(), &expected), Agreement::Same);
        let here = object(&work, &link, &job.primary, &job.shard);

        let moved = tempfile::tempdir().unwrap();
        fs::create_dir(moved.path().join("a folder of longer paths")).unwrap();
        let new_name = |k: usize| match number % 2 {
            0 => format!("m{k:05}.o"),
            _ => format!("a folder of longer paths/m{k:05}.o"),
        };
        let names: Vec<_> = (0..job.modules.len()).map(new_name).collect();
        for (name, module) in names.iter().zip(&job.modules) {
            fs::copy(work.join(module), moved.path().join(name)).unwrap();
        }
        let bytes: Vec<_> = names.iter().map(|name| name.as_bytes()).collect();
        let shard = rename(&job.shard, &bytes).unwrap();
        let primary = job.modules.iter().position(|module| *module == job.primary).unwrap();
        let there = object(moved.path(), &link, &names[primary], &shard);
        assert!(here == there, "{}", job.primary);
    }
}

#[test]
fn true_names_and_hashes_repair_a_shard_that_lld_damaged() {
    if !installed(&["clang-22", "clang++-22", "ld.lld-22"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    compile(folder, "main.c", "int f(int); int main(int c, char **v) { return f(c); }", "é.o");
    let promoting = "static int s[4] = {1, 2, 3, 4};
        __attribute__((noinline)) static int local(int x) { s[x & 3] += x; return s[(x + 1) & 3]; }
        int g(int); int f(int x) { return local(g(x)) + 1; }";
    compile(folder, "f.c", promoting, "zц");
    compile(folder, "g.c", "int f(int); int g(int x) { return x > 9 ? f(x / 2) : x; }", "bä.o");
    let objects = ["é.o", "zц", "bä.o"].map(str::to_owned);

    let link = distributed(folder, &objects);
    let in_process = in_process(folder, &objects);
    let (mut wrong_hashes, mut wrong_objects) = (0, 0);
    for (job, in_process) in link.jobs.iter().zip(&in_process) {
        let damaged = Shard::read(&job.shard).unwrap();
        let expected: Vec<_> = job.modules.iter().map(String::as_str).collect();
        assert_eq!(names_agree(&damaged, &expected), Agreement::DamagedNonAscii);

        let mut changes: Vec<_> =
            expected.iter().map(|name| Change { name: name.as_bytes(), hash: None }).collect();
        let named = rewrite(&job.shard, &changes).unwrap();
        wrong_objects += usize::from(object(folder, &link, &job.primary, &named) != *in_process);

        for (change, module) in changes.iter_mut().zip(&damaged.modules) {
            let name = std::str::from_utf8(change.name).unwrap();
            change.hash = module_hash(&fs::read(folder.join(name)).unwrap()).unwrap();
            let is_wrong = change.hash != module.hash;
            assert!(!is_wrong || hash_in_doubt(change.name));
            wrong_hashes += usize::from(is_wrong);
        }
        let repaired = rewrite(&job.shard, &changes).unwrap();
        assert_eq!(names_agree(&Shard::read(&repaired).unwrap(), &expected), Agreement::Same);
        let repaired = object(folder, &link, &job.primary, &repaired);
        assert!(repaired == *in_process, "{}", job.primary);
    }
    assert!(wrong_hashes > 0 && wrong_objects > 0, "names alone would do with this LLD");
}

/// The objects of an in-process link: LLD calls them `inner` and the number of the task, from 1.
fn in_process(folder: &Path, objects: &[String]) -> Vec<Vec<u8>> {
    let options = ["-O2", "-flto=thin", "-fuse-ld=lld-22", "-o", "app", "-Wl,--lto-obj-path=inner"];
    let args: Vec<_> = options.into_iter().chain(objects.iter().map(String::as_str)).collect();
    run(folder, "clang++-22", &args);
    let read = |task| fs::read(folder.join(format!("inner{task}"))).unwrap();
    (1..=objects.len()).map(read).collect()
}
