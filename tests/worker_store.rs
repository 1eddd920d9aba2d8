//! What a request brought, later ones may leave out: the worker keeps it by content, waits a little for what
//! is on its way, and says exactly what it lacks. A shell script often stands in for the compiler.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests start programs, and may panic

mod kit;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::thread;
use std::time::{Duration, Instant};

use dtlto_bridge::bundle::{Answer, Digest, INDEX, LeaveOut, Limits, Prepared};
use dtlto_bridge::worker::store::Store;
use kit::{Folder, LinkJobs, Modules, Worker, skip_without};

fn jobs() -> LinkJobs {
    let folder = Folder::new();
    Modules::compile(&folder, "", &[]);
    LinkJobs::of(folder, &["a.o", "b.o", "c.o"], &[])
}

/// The setting of a store in `folder`.
fn setting(folder: &Folder) -> String {
    format!(r#""store": {:?}"#, folder.path(""))
}

fn store(folder: &Folder) -> Store {
    Store::open(&folder.path(""), 1 << 30).unwrap()
}

/// The pieces of a request but for its index.
fn shared(prepared: &Prepared) -> Vec<Digest> {
    let files = prepared.request.files.iter().filter(|file| file.name != INDEX);
    let pieces = files.flat_map(|file| &file.pieces).map(|piece| piece.blake3);
    pieces.collect::<BTreeSet<_>>().into_iter().collect()
}

fn hold(prepared: &mut Prepared, held: &[Digest]) {
    prepared.hold(&LeaveOut { held, in_flight: &[] });
}

fn length(worker: &Worker) -> u64 {
    worker.folder.path("request").metadata().unwrap().len()
}

#[track_caller]
fn missing(answer: &Answer) -> &[Digest] {
    match answer {
        Answer::MissingPieces { pieces } => pieces,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_second_request_does_without_what_the_first_brought() {
    skip_without!("clang-22", "ld.lld-22");
    let (jobs, kept) = (jobs(), Folder::new());
    let worker = Worker::new(&setting(&kept));
    let mut first = jobs.prepare(0);
    let answered = worker.answer(&mut first);
    let whole = length(&worker);
    let holds = answered.received.response.holds.clone();
    assert_eq!(holds, shared(&first));
    answered.done();
    let mut second = jobs.prepare(0);
    hold(&mut second, &holds);
    let answered = worker.answer(&mut second);
    assert!(length(&worker) < whole);
    assert_eq!(answered.received.response.holds, holds);
    assert!(answered.done() == jobs.made_here(0));
    assert_eq!(worker.left(), [""; 0]);
}

#[test]
fn exactly_the_pieces_that_are_lacking_are_named() {
    skip_without!("clang-22", "ld.lld-22");
    let (jobs, kept) = (jobs(), Folder::new());
    let mut prepared = jobs.prepare(0);
    let worker = Worker::scripted("exit 3", &setting(&kept), &mut prepared);
    worker.answer(&mut prepared);
    let all = shared(&prepared);
    let (gone, here) = all.split_first().unwrap();
    assert!(!here.is_empty());
    let name = gone.to_string();
    let file = store(&kept).path().join(&name[..2]).join(&name);
    let damage: [&dyn Fn(); 2] =
        [&|| fs::remove_file(&file).unwrap(), &|| fs::write(&file, "x").unwrap()];
    for damage in damage {
        damage();
        hold(&mut prepared, &all);
        let answered = worker.answer(&mut prepared);
        assert_eq!(missing(answered.answer()), [*gone]);
        assert_eq!(answered.received.response.holds, here);
        // Sent again, whole, it works and is kept again.
        hold(&mut prepared, &[]);
        let answered = worker.answer(&mut prepared);
        assert_eq!(*answered.answer(), Answer::Ran { code: Some(3), signal: None });
        assert_eq!(answered.received.response.holds, all);
    }
}

#[test]
fn a_piece_that_is_on_its_way_is_waited_for() {
    skip_without!("clang-22", "ld.lld-22");
    let (jobs, kept) = (jobs(), Folder::new());
    let mut prepared = jobs.prepare(0);
    let worker = Worker::scripted("exit 3", &setting(&kept), &mut prepared);
    prepared.hold(&LeaveOut { held: &[], in_flight: &shared(&prepared) });
    let request = worker.pack(&mut prepared);
    let waiting = worker.run([&request, &worker.folder.path("response")]).start();
    kit::until("the worker waits", || worker.left().iter().any(|name| name.ends_with("/index")));

    let mut whole = jobs.prepare(0);
    whole.request.compiler = prepared.request.compiler.clone();
    let request = worker.folder.path("whole");
    whole.pack(File::create(&request).unwrap(), &Limits::default()).unwrap();
    worker.run([&request, &worker.folder.path("other")]).go().ok();
    let answered = worker.read(&prepared, waiting.wait().ok());
    assert_eq!(*answered.answer(), Answer::Ran { code: Some(3), signal: None });
}

#[test]
fn a_piece_that_never_comes_is_waited_for_a_little() {
    skip_without!("clang-22", "ld.lld-22");
    let (jobs, kept) = (jobs(), Folder::new());
    let mut prepared = jobs.prepare(0);
    let worker = Worker::scripted("exit 3", &setting(&kept), &mut prepared);
    let all = shared(&prepared);
    prepared.hold(&LeaveOut { held: &[], in_flight: &all });
    let begun = Instant::now();
    let answered = worker.answer(&mut prepared);
    let took = begun.elapsed();
    assert_eq!(missing(answered.answer()), all);
    assert!((Duration::from_secs(2)..Duration::from_secs(5)).contains(&took), "{took:?}");
    // Where others lack too, waiting would not help.
    prepared.hold(&LeaveOut { held: &all[..1], in_flight: &all[1..] });
    let begun = Instant::now();
    assert_eq!(missing(worker.answer(&mut prepared).answer()), all);
    assert!(begun.elapsed() < Duration::from_millis(1900), "{:?}", begun.elapsed());
    assert_eq!(worker.left(), [""; 0]);
}

#[test]
fn a_compiler_cannot_alter_what_is_kept() {
    skip_without!("clang-22", "ld.lld-22");
    let (jobs, kept) = (jobs(), Folder::new());
    let mut prepared = jobs.prepare(0);
    let script = format!(
        "cat m0*\nfor file in m0* {}/*/*; do echo evil > $file; done\ngrep -c evil m0* >&2\nexit 3",
        store(&kept).path().display()
    );
    let worker = Worker::scripted(&script, &setting(&kept), &mut prepared);
    let inputs = |answered: kit::Answered| {
        assert_eq!(*answered.answer(), Answer::Ran { code: Some(3), signal: None });
        let said = String::from_utf8_lossy(&answered.received.stderr);
        let altered = said.lines().filter(|line| line.starts_with("m0") && line.ends_with(":1"));
        assert_eq!(altered.count(), 3, "its own files it can write to: {said}");
        answered.received.stdout
    };
    let first = inputs(worker.answer(&mut prepared));
    let all = shared(&prepared);
    for _ in 0..2 {
        hold(&mut prepared, &all);
        assert!(inputs(worker.answer(&mut prepared)) == first);
    }
}

/// Workers that are started at once, with more different modules than the store takes.
#[test]
fn many_workers_share_a_small_store() {
    skip_without!("clang-22", "ld.lld-22");
    let kept = Folder::new();
    let links = ["-O1", "-O2", "-O3", "-Os", "-Oz"].map(|level| {
        let folder = Folder::new();
        Modules::compile(&folder, "", &[level, "-fno-inline"]);
        LinkJobs::of(folder, &["a.o", "b.o", "c.o"], &[])
    });
    let mut prepared = links[0].prepare(0);
    let settings = format!(r#"{}, "store_limit": "32K""#, setting(&kept));
    let worker = Worker::scripted("cat m0* | wc -c; exit 3", &settings, &mut prepared);
    // What a worker that was killed leaves.
    let left = store(&kept).path().join("new/left");
    fs::write(&left, "half of it").unwrap();
    let mut distinct = BTreeSet::new();
    let requests: Vec<_> = (0..15)
        .map(|number| {
            let mut own = links[number % 5].prepare(number % 3);
            own.request.compiler = prepared.request.compiler.clone();
            distinct.extend(shared(&own));
            let request = worker.folder.path(format!("request-{number}"));
            own.pack(File::create(&request).unwrap(), &Limits::default()).unwrap();
            request
        })
        .collect();
    assert!(distinct.len() > 8, "{} pieces of 4 KiB at least", distinct.len());
    thread::scope(|scope| {
        for request in &requests {
            let response = request.with_extension("out");
            let run = worker.run([request, &response]);
            scope.spawn(|| run.go().ok());
        }
    });
    assert!(!left.exists());
    let is_piece = |name: &String| name.rsplit('/').next().is_some_and(|name| name.len() == 64);
    let files = kept.list("").into_iter().filter(is_piece);
    let pieces: Vec<u64> = files.map(|name| kept.path(name).metadata().unwrap().len()).collect();
    let size: u64 = pieces.iter().map(|length| length.next_multiple_of(4096)).sum();
    assert!(size <= 32 << 10 && pieces.len() >= 4, "{pieces:?}");
    let held = worker.answer(&mut prepared).received.response.holds;
    assert_eq!(held, shared(&prepared));
    hold(&mut prepared, &held);
    assert_eq!(*worker.answer(&mut prepared).answer(), Answer::Ran { code: Some(3), signal: None });
}

#[test]
fn a_store_that_cannot_be_used_fails_no_job_and_is_shown() {
    skip_without!("clang-22", "ld.lld-22");
    let (jobs, kept) = (jobs(), Folder::new());
    let worker = Worker::new(&setting(&kept));
    let check = worker.run(["--check"]).go().ok();
    assert!(check.stdout.contains("0 of 2048 MiB used"), "{check}");
    let inner = store(&kept).path().to_owned();
    fs::remove_dir_all(&inner).unwrap();
    fs::write(&inner, "").unwrap();
    let check = worker.run(["--check"]).go().ok();
    assert!(check.stdout.contains("jobs run without it"), "{check}");
    let answered = worker.answer(&mut jobs.prepare(0));
    assert_eq!(answered.received.response.holds, []);
    answered.done();
}
