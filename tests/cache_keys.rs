//! What jobs of real links are called in a cache: equal names where the compiler makes equal objects, wherever, by
//! whomever and under whatever names the link runs; other names where anything else differs. No cache is asked.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests start programs, and may panic

mod kit;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use dtlto_bridge::cache::Key;
use dtlto_bridge::cache::key::{Keys, NotCacheable, check};
use dtlto_bridge::jobfile::Job;
use dtlto_bridge::toolchain::{Math, Options, Toolchain, identify};
use kit::{Family, Folder, LinkJobs, Modules, clangxx, llvm_ar, skip_without, tool};

const SIZE: usize = 8;

/// Keeps the folder of the compile out of bitcode: with debug information, and for Windows always, it is in there.
const ANYWHERE: &str = "-ffile-compilation-dir=.";

fn toolchain(compiler: &Path, math: Math) -> Toolchain {
    let memory = kit::target_dir().join("tmp/identities");
    let options = Options { math, cache_folder: Some(&memory), ..Options::default() };
    identify(compiler, None, &options).unwrap()
}

fn keys_with(toolchain: Toolchain, salt: &str, jobs: &LinkJobs) -> Vec<Result<Key, NotCacheable>> {
    let keys = Keys::new(toolchain, Arc::default(), salt);
    jobs.file.jobs.iter().map(|job| keys.key(job)).collect()
}

#[track_caller]
fn keys(jobs: &LinkJobs) -> Vec<Key> {
    let clang = toolchain(&tool("clang-22"), Math::Strict);
    keys_with(clang, "", jobs).into_iter().map(Result::unwrap).collect()
}

/// A program whose first modules are objects, and the others members of an archive, linked in the folder `place` by
/// absolute paths; sources are named relative to the checkout, as a build system does it that wants hits.
fn checkout(place: &str, more: &[&str]) -> LinkJobs {
    let folder = Folder::new();
    Family::compile_many(&folder, place, &[], SIZE);
    let name = |n| format!("{place}/{}", Family::object(n));
    let members: Vec<String> = (4..SIZE).map(name).collect();
    let archive = format!("{place}/libz.a");
    llvm_ar().arg("rc").arg(&archive).args(members).cwd(folder.path("")).go().ok();
    let objects: Vec<String> = (0..4).map(name).chain([archive]).collect();
    let objects: Vec<&str> = objects.iter().map(String::as_str).collect();
    LinkJobs::of(folder, &objects, &[&["-lstdc++"], more].concat())
}

#[test]
fn equal_jobs_have_equal_keys_and_objects_wherever_they_lie() {
    skip_without!("clang-22", "ld.lld-22", "llvm-ar-22");
    let (one, other) = (checkout("o", &[]), checkout("ünï дом/x y", &[]));
    assert_eq!(one.file.jobs.len(), SIZE);
    assert_ne!(one.file.jobs[0].primary, other.file.jobs[0].primary);
    let found = keys(&one);
    assert_eq!(found, keys(&other));
    let distinct: std::collections::HashSet<_> = found.iter().collect();
    assert_eq!(distinct.len(), SIZE, "two jobs have one key");
    for number in 0..SIZE {
        // Packed, since the index of a name beyond ASCII is damaged, and repaired on the way.
        let elsewhere = kit::Worker::new("").answer(&mut other.prepare(number)).done();
        assert!(one.made_here(number) == elsewhere, "job {number}");
    }
}

/// On nothing of the names but their order does an object depend, so where that differs there is no hit.
#[test]
fn names_that_sort_in_another_order_are_other_jobs() {
    skip_without!("clang-22", "ld.lld-22");
    let link = |names: [&str; 3]| {
        let folder = Folder::new();
        Modules::compile(&folder, "", &[]);
        for (old, new) in Modules::NAMES.iter().zip(names) {
            fs::rename(folder.path(format!("{old}.o")), folder.path(new)).unwrap();
        }
        LinkJobs::of(folder, &names, &[])
    };
    let plain = keys(&link(["a.o", "b.o", "c.o"]));
    assert_eq!(plain, keys(&link(["first.obj", "second.o", "third"])));
    let reversed = keys(&link(["z.o", "y.o", "x.o"]));
    assert!(plain.iter().zip(&reversed).any(|(one, other)| one != other));
}

#[test]
fn an_edit_changes_the_keys_of_the_module_and_its_importers_alone() {
    skip_without!("clang-22", "ld.lld-22", "llvm-ar-22");
    let jobs = checkout("o", &[]);
    let before = keys(&jobs);
    let edited = &jobs.file.jobs[1].primary;
    // The same interface: the shards of others stay as they are.
    let mut bytes = fs::read(&**edited).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&**edited, bytes).unwrap();
    let after = keys(&jobs);
    let mut changed = 0;
    for ((before, after), job) in before.iter().zip(&after).zip(&jobs.file.jobs) {
        let reads = job.primary == *edited || job.imports.contains(edited);
        assert_eq!(before != after, reads, "{}", job.primary);
        changed += usize::from(reads);
    }
    assert!((2..SIZE).contains(&changed), "{changed}");
}

#[test]
fn a_flag_a_profile_a_salt_and_mathematics_change_all_keys() {
    skip_without!("clang-22", "ld.lld-22");
    let link = |profile: &str, more: &[&str]| {
        let folder = Folder::new();
        folder.write("p", profile);
        let flags = ["-gline-tables-only", ANYWHERE, "-fprofile-sample-use=p"];
        Modules::compile(&folder, "", &flags);
        let named = format!("-fprofile-sample-use={}", folder.path("p").display());
        let more = [&[named.as_str()], more].concat();
        LinkJobs::of(folder, &["a.o", "b.o", "c.o"], &more)
    };
    let profile = "main:5000:100\n 1: 100\n 1.1: 100 _Z7tripledi:100\n";
    let plain = link(profile, &[]);
    let expected = keys(&plain);
    assert_eq!(expected, keys(&link(profile, &[])));
    let clang = || toolchain(&tool("clang-22"), Math::Strict);
    let unwrap = |keys: Vec<Result<Key, _>>| keys.into_iter().map(Result::unwrap).collect();
    let found: [(&str, Vec<Key>); 4] = [
        ("a flag", keys(&link(profile, &["-Wl,--thinlto-remote-compiler-arg=-fno-plt"]))),
        ("a salt", unwrap(keys_with(clang(), "poisoned", &plain))),
        ("mathematics", { unwrap(keys_with(toolchain(&tool("clang-22"), Math::Any), "", &plain)) }),
        ("a profile", {
            let at = plain.file.jobs[0].other_inputs[0].clone();
            fs::write(&*at, profile.replace("100", "101")).unwrap();
            keys(&plain)
        }),
    ];
    for (what, found) in found {
        assert!(found.iter().all(|key| !expected.contains(key)), "{what}");
    }
}

/// Debian's clang is a small program: what makes the code is in its libraries.
#[test]
fn one_byte_of_the_library_that_holds_the_compiler_changes_all_keys() {
    skip_without!("clang-22", "ld.lld-22");
    let folder = Folder::new();
    Modules::compile(&folder, "", &[]);
    let jobs = LinkJobs::of(folder, &["a.o", "b.o", "c.o"], &[]);
    let real = toolchain(&tool("clang-22"), Math::Strict);
    let copy = Folder::new();
    copy.mkdir("bin");
    copy.mkdir("lib");
    fs::copy(&real.binary, copy.path("bin/clang-22")).unwrap();
    for library in &real.libraries {
        let place = copy.path("lib").join(&library.name);
        if library.name.starts_with("libLLVM") {
            fs::copy(&library.path, place).unwrap();
        } else if library.name.starts_with("libclang") {
            symlink(library.path.canonicalize().unwrap(), place).unwrap();
        }
    }
    let clang = copy.path("bin/clang-22");
    let identity = || identify(&clang, None, &Options::default()).unwrap();
    let copied = keys_with(identity(), "", &jobs);
    assert_eq!(copied, keys_with(real, "", &jobs), "a copy is as good");
    let library = copy.list("lib").into_iter().find(|name| name.starts_with("libLLVM")).unwrap();
    let mut bytes = copy.read(format!("lib/{library}"));
    bytes.push(0);
    copy.write(format!("lib/{library}"), bytes);
    for (one, other) in copied.iter().zip(keys_with(identity(), "", &jobs)) {
        assert_ne!(*one, other);
    }
}

#[test]
fn what_may_depend_on_more_has_no_key() {
    skip_without!("clang-22", "ld.lld-22");
    let folder = Folder::new();
    Modules::compile(&folder, "", &[]);
    let jobs = LinkJobs::of(folder, &["a.o", "b.o", "c.o"], &[]);
    let job = &jobs.file.jobs[0];
    assert_eq!(check(job), Ok(()));
    for option in [
        "-gsplit-dwarf",
        "-save-temps",
        "-fplugin=x.so",
        "-fdebug-compilation-dir=.",
        "-ftime-trace",
        "-Rpass=inline",
        "@file",
        "-march=native",
    ] {
        let job = with(job, &[option]);
        assert!(check(&job).unwrap_err().0.contains(option), "{option}");
    }
    let job = with(job, &["-mllvm", "-stats"]);
    assert!(check(&job).unwrap_err().0.contains("-stats"));
    let clang = toolchain(&tool("clang-22"), Math::Strict);
    assert!(Keys::new(clang, Arc::default(), "").key(&job).is_err());
}

/// clang writes the declared name, with the number of the linker's process in it, into the object.
#[test]
fn a_job_that_declares_its_dwo_file_has_no_key() {
    skip_without!("clang-22", "ld.lld-22");
    let folder = Folder::new();
    Modules::compile(&folder, "", &["-g"]);
    let mut jobs = LinkJobs::of(folder, &["a.o", "b.o", "c.o"], &[]);
    let job = &mut jobs.file.jobs[0];
    let dwo = job.object.strip_suffix(".o").unwrap().to_owned() + ".dwo";
    *job = with(job, &["-gsplit-dwarf"]);
    job.other_outputs.push(dwo.as_str().into());
    let job = job.clone();
    assert_eq!(check(&job), Ok(()));
    let clang = toolchain(&tool("clang-22"), Math::Strict);
    let refused = Keys::new(clang, Arc::default(), "").key(&job).unwrap_err();
    assert_eq!(refused.0, "its object holds the name of its .dwo file");
}

fn with(job: &Job, more: &[&str]) -> Job {
    let mut job = job.clone();
    job.args.extend(more.iter().map(|&arg| arg.into()));
    job
}

#[test]
fn jobs_for_windows_have_keys_unless_their_debug_information_holds_names() {
    skip_without!("clang-22", "lld-link-22");
    let link = |flags: &[&str]| {
        let folder = Folder::new();
        let target = ["--target=x86_64-pc-windows-msvc", "-ffreestanding", ANYWHERE];
        Modules::compile(&folder, "", &[&target[..], flags].concat());
        LinkJobs::of_windows(folder, &["a.o", "b.o", "c.o"])
    };
    let (one, other) = (link(&[]), link(&[]));
    assert_eq!(keys(&one), keys(&other));
    assert!(one.made_here(0) == other.made_here(0));
    let clang = toolchain(&tool("clang-22"), Math::Strict);
    for refused in keys_with(clang, "", &link(&["-g"])) {
        assert_eq!(refused.unwrap_err().0, "its debug information holds the names of its files");
    }
}

/// Bitcode without hashes of its own: the shard says nothing of what imports hold, the key does.
#[test]
fn imports_count_even_where_the_index_has_no_hashes_of_them() {
    skip_without!("clang-22", "ld.lld-22", "opt-22", "llvm-as-22");
    let link = |constant: &str| {
        let folder = Folder::new();
        for (name, source) in [
            ("a", "int f(); int main() { return f(); }".to_owned()),
            ("b", format!("int f() {{ return {constant}; }}")),
        ] {
            folder.write(format!("{name}.cpp"), source);
            let emit = ["-O1", "-S", "-emit-llvm", "-Xclang", "-disable-llvm-passes"];
            let source = format!("{name}.cpp");
            clangxx().args(emit).arg(&source).cwd(folder.path("")).go().ok();
            let opt =
                kit::Run::new(tool("opt-22")).args(["-module-summary", "-passes=default<O1>"]);
            let file = format!("{name}.ll");
            opt.args([&file, "-o", &format!("{name}.o")]).cwd(folder.path("")).go().ok();
        }
        LinkJobs::of(folder, &["a.o", "b.o"], &[])
    };
    let (one, other) = (link("7"), link("8"));
    assert_eq!(one.file.jobs[0].imports.len(), 1, "main imports f");
    assert_ne!(keys(&one)[0], keys(&other)[0]);
    assert_eq!(keys(&one)[0], keys(&link("7"))[0]);
}
