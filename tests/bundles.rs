//! Jobs of real links that travel in bundles: clang makes the same objects of what comes out of them.
//! These tests stand in for bridge and worker, and know neither.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests start programs, and may panic

mod kit;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Cursor;
use std::path::Path;

use dtlto_bridge::bundle::{
    self, About, Answer, Expected, Library, Limits, Names, Response, answer, open, pieces, prepare,
    receive,
};
use dtlto_bridge::jobfile::{Job, JobFile};
use dtlto_bridge::toolchain::Identity;
use kit::{Folder, Modules, Run, clang, link, lua, skip, skip_without, through_bridge};

const LIMITS: Limits = Limits { total: 1 << 30, ratio: 1000 };

fn about() -> About {
    let (version, code, full) = ("22".to_owned(), "c".to_owned(), "f".to_owned());
    About {
        link: "7f".to_owned(),
        user: "u".to_owned(),
        host: "h".to_owned(),
        compiler: Identity { version, parts: BTreeMap::new(), code, full },
        environment: Vec::new(),
        time_limit_s: 60,
    }
}

/// Links by absolute names, and keeps the jobs, and the objects that they made in place.
#[track_caller]
fn linked(folder: &Folder, objects: &[String], options: &[&str]) -> JobFile {
    folder.mkdir("out");
    link()
        .args(through_bridge())
        .args(objects.iter().map(|object| folder.path(object)))
        .args(options)
        .arg("-Wl,--save-temps")
        .arg("-o")
        .arg(folder.path("out/app"))
        .cwd(folder.path("out"))
        .go()
        .ok();
    let kept = folder.list("out").into_iter().find(|name| name.ends_with(".dist-file.json"));
    JobFile::read(&folder.path("out").join(kept.unwrap())).unwrap()
}

/// Packs a job, unpacks it elsewhere, and runs clang there by hand. Returns the folder, and the bytes of
/// the bundle.
fn travelled(job: &Job, packing: (&Names, &Library), to: &Path) -> (bundle::Request, u64) {
    let mut prepared = prepare(job, (0, 1), packing, &about()).unwrap();
    let content = |input: &_| packing.1.content(input);
    let shared: BTreeSet<_> = pieces(job, content).unwrap().into_iter().collect();
    let files = prepared.request.files.iter().filter(|file| file.name != bundle::INDEX);
    let sent = files.flat_map(|file| &file.pieces).map(|piece| (piece.blake3, piece.length));
    assert_eq!(shared, sent.collect());
    let file = File::create_new(to.with_extension("bundle")).unwrap();
    let length = prepared.pack(file, &LIMITS).unwrap();
    fs::create_dir(to).unwrap();
    let opened = open(File::open(to.with_extension("bundle")).unwrap(), &LIMITS).unwrap();
    let request = opened.unpack(to, &mut |_, _| Ok(false)).unwrap();
    assert_eq!(request, prepared.request);
    clang().args(&request.args).cwd(to).go().ok().stderr_lacks("Error");
    (request, length)
}

/// Sends all jobs away and their objects back, and compares with those that were made in place.
#[track_caller]
fn assert_identical(folder: &Folder, file: &JobFile) {
    let (names, library) = (Names::new(&file.jobs), Library::default());
    folder.mkdir("away");
    let (mut raw, mut sent) = (0, 0);
    for (number, job) in file.jobs.iter().enumerate() {
        let there = folder.path(format!("away/{number}"));
        let (request, length) = travelled(job, (&names, &library), &there);
        raw += job.inputs().map(|input| fs::metadata(&**input).unwrap().len()).sum::<u64>();
        sent += length;

        let place = folder.path(format!("away/{number}.o"));
        let mut response = response_to(&request);
        let mut out = Cursor::new(Vec::new());
        answer(&mut out, &mut response, [b"", b"said"], (&there, &request.outputs)).unwrap();
        let outputs = [(request.outputs[0].clone(), place.clone())];
        let expected = Expected { nonce: request.nonce, link: "7f", outputs: &outputs };
        let received = receive(out, &expected, &LIMITS).unwrap();
        assert_eq!((received.response, &received.stderr[..]), (response, &b"said"[..]));
        assert!(fs::read(place).unwrap() == fs::read(&*job.object).unwrap(), "{}", job.primary);
    }
    assert!(sent < raw, "{raw} bytes became {sent}");
}

fn response_to(request: &bundle::Request) -> Response {
    Response {
        nonce: request.nonce,
        worker: "0.1.0".to_owned(),
        host: "there".to_owned(),
        link: request.link.clone(),
        job: request.job,
        answer: Answer::Ran { code: Some(0), signal: None },
        outputs: vec![],
        ms: 1,
        peak_kb: 1,
        holds: vec![],
        stores: false,
    }
}

#[test]
fn the_jobs_of_lua_make_the_same_objects_elsewhere() {
    skip_without!("clang-22", "ld.lld-22");
    let folder = Folder::new();
    let objects = match lua(&folder) {
        Ok(objects) => objects,
        Err(why) => skip!("{why}"),
    };
    let file = linked(&folder, &objects, &["-lm", "-ldl", "-Wl,-E"]);
    assert_eq!(file.jobs.len(), 33);
    assert_identical(&folder, &file);
}

/// LLD 22 damages such names in the index, and the hashes behind some of them.
#[test]
fn names_that_are_not_ascii_make_the_same_objects_elsewhere() {
    skip_without!("clang-22", "ld.lld-22");
    let folder = Folder::new();
    Modules::compile(&folder, "my größe", &["-g"]);
    let objects = ["my größe/zч", "my größe/(ä).o", "my größe/é.o"].map(str::to_owned);
    for (old, new) in ["a", "b", "c"].iter().zip(&objects) {
        fs::rename(folder.path(format!("my größe/{old}.o")), folder.path(new)).unwrap();
    }
    assert_identical(&folder, &linked(&folder, &objects, &[]));
}

/// clang writes the name of the `.dwo` file into the object.
#[test]
fn a_dwo_file_travels_under_its_own_name() {
    skip_without!("clang-22", "ld.lld-22");
    let folder = Folder::new();
    Modules::compile(&folder, "", &["-g", "-gsplit-dwarf"]);
    let objects = ["a.o", "b.o", "c.o"].map(str::to_owned);
    let file = linked(&folder, &objects, &[]);
    let (names, library) = (Names::new(&file.jobs), Library::default());
    let mut job = file.jobs[0].clone();
    // What a user's --thinlto-remote-compiler-arg and a later LLD would say, in a folder of their own.
    let object = job.args.iter().position(|arg| *arg == job.object).unwrap();
    (job.object, job.args[object]) = ("x.o".into(), "x.o".into());
    job.args.push("-gsplit-dwarf".into());
    job.other_outputs.push("x.dwo".into());
    folder.mkdir("here");
    clang().args(job.args.iter().map(|arg| &**arg)).cwd(folder.path("here")).go().ok();

    let there = folder.path("there");
    let (request, _) = travelled(&job, (&names, &library), &there);
    assert_eq!(request.outputs, ["x.o", "x.dwo"]);
    for name in ["x.o", "x.dwo"] {
        assert!(folder.read(Path::new("here").join(name)) == fs::read(there.join(name)).unwrap());
    }
}

#[test]
fn a_job_whose_index_is_another_jobs_stays_here() {
    skip_without!("clang-22", "ld.lld-22");
    let folder = Folder::new();
    Modules::compile(&folder, "", &[]);
    let file = linked(&folder, &["a.o", "b.o", "c.o"].map(str::to_owned), &[]);
    let (names, library) = (Names::new(&file.jobs), Library::default());
    let index = |job: &Job| fs::read(&*job.index).unwrap();
    fs::write(&*file.jobs[0].index, index(&file.jobs[1])).unwrap();
    let found = prepare(&file.jobs[0], (0, 1), (&names, &library), &about()).unwrap_err();
    assert!(matches!(found, bundle::NotPacked::StaysHere(_)), "{found:?}");
    assert!(found.to_string().contains("names other modules than the job does"), "{found}");
}

#[test]
fn tar_and_zstd_open_both_kinds() {
    skip_without!("tar", "zstd");
    for (kind, entries) in [
        ("request", "manifest.json\npiece/"),
        ("response", "manifest.json\nstdout\nstderr\nout/0\n"),
    ] {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/bundles");
        let golden = golden.join(format!("{kind}-1.dtlto"));
        let listed = Run::new("tar").args(["--zstd", "-tf"]).arg(&golden).go().ok();
        assert!(listed.stdout.starts_with(entries), "{listed}");
        Run::new("zstd").arg("--test").arg(&golden).go().ok();
    }
}
