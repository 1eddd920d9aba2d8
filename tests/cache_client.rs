//! A link's side of a cache, before stores that are good, damaged, dead, slow or full: what comes of each call, and how
//! much time goes by. The stores are made here; jobs and objects are real.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests start programs, and may panic

mod kit;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dtlto_bridge::cache::client::GET_TIME;
use dtlto_bridge::cache::key::Keys;
use dtlto_bridge::cache::{Answer, Client, Feed, Key, NotFed, Store, Trouble};
use dtlto_bridge::jobfile::Job;
use dtlto_bridge::toolchain::{Options, identify};
use kit::{Folder, LinkJobs, Modules, skip_without, tool};

/// A folder, with the key as a file's name.
#[derive(Debug, Default)]
struct Shelf {
    folder: PathBuf,
    calls: AtomicUsize,
    /// What happens at each call instead.
    trouble: Mutex<Option<Trouble>>,
    /// How long each call takes.
    pause: Duration,
}

impl Shelf {
    fn call(&self, deadline: Instant) -> Result<(), Trouble> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let left = deadline.saturating_duration_since(Instant::now());
        std::thread::sleep(self.pause.min(left));
        match &*self.trouble.lock().unwrap() {
            Some(trouble) => Err(trouble.clone()),
            None if self.pause >= left => Err(Trouble::TimedOut),
            None => Ok(()),
        }
    }
}

#[derive(Debug)]
struct Handle(Arc<Shelf>);

impl Store for Handle {
    fn get(&self, key: &Key, into: &Path, deadline: Instant) -> Result<bool, Trouble> {
        self.0.call(deadline)?;
        Ok(fs::copy(self.0.folder.join(key.to_string()), into).is_ok())
    }

    fn put(&self, key: &Key, entry: &Path, deadline: Instant) -> Result<(), Trouble> {
        self.0.call(deadline)?;
        fs::copy(entry, self.0.folder.join(key.to_string())).unwrap();
        Ok(())
    }
}

/// The three jobs of a link, made here, and a shelf.
struct Scene {
    jobs: LinkJobs,
    objects: Vec<Vec<u8>>,
    shelf: Arc<Shelf>,
    work: Folder,
}

impl Scene {
    #[track_caller]
    fn new(pause: Duration) -> Scene {
        let folder = Folder::new();
        Modules::compile(&folder, "", &[]);
        let jobs = LinkJobs::of(folder, &["a.o", "b.o", "c.o"], &[]);
        let work = Folder::new();
        let folder = work.mkdir("shelf");
        let shelf = Arc::new(Shelf { folder, pause, ..Shelf::default() });
        let objects = (0..3).map(|number| jobs.made_here(number)).collect();
        let scene = Scene { jobs, objects, shelf, work };
        for (number, object) in scene.objects.iter().enumerate() {
            fs::write(&*scene.job(number).object, object).unwrap();
        }
        scene
    }

    fn job(&self, number: usize) -> &Job {
        &self.jobs.file.jobs[number]
    }

    /// As a new link has it.
    fn client(&self) -> Client {
        let memory = kit::target_dir().join("tmp/identities");
        let options = Options { cache_folder: Some(&memory), ..Options::default() };
        let toolchain = identify(&tool("clang-22"), None, &options).unwrap();
        let shelf = self.shelf.clone();
        let opener = move || Ok(Box::new(Handle(shelf.clone())) as Box<dyn Store>);
        let keys = Keys::new(toolchain, Arc::default(), "");
        Client::new(Box::new(opener), keys, 3, self.work.mkdir("work"))
    }

    fn ask(&self, client: &Client, number: usize) -> Answer {
        let place = self.work.path(format!("got{number}")).display().to_string();
        let _ = fs::remove_file(&place);
        let answer = client.ask(number, self.job(number), &[place]);
        assert_eq!(self.work.list("work"), [""; 0], "an entry stays");
        answer
    }

    fn feed(&self, client: &Client, number: usize) -> Result<(), NotFed> {
        let feed = Feed { job: number, host: "h".into(), printed: b"warning\n".to_vec() };
        client.feed(self.job(number), &feed)
    }

    fn calls(&self) -> usize {
        self.shelf.calls.load(Ordering::SeqCst)
    }

    #[track_caller]
    fn is_hit(&self, answer: Answer, number: usize) {
        let Answer::Hit(hit) = answer else { panic!("{answer:?}") };
        assert!(fs::read(&hit.made[0].0).unwrap() == self.objects[number]);
        assert_eq!(*hit.made[0].1, *self.job(number).object);
        let blake3 = blake3::hash(&self.objects[number]).to_string();
        assert_eq!(hit.outputs[0].blake3, blake3);
        assert_eq!((&*hit.origin.host, &*hit.origin.printed), ("h", "warning\n"));
    }

    fn entries(&self) -> Vec<PathBuf> {
        self.work.list("shelf").into_iter().map(|name| self.shelf.folder.join(name)).collect()
    }
}

fn is_damaged(answer: &Answer, why: &str) {
    assert!(matches!(answer, Answer::Damaged(what) if what.contains(why)), "{why}: {answer:?}");
}

#[test]
fn what_one_link_stores_the_next_one_gets() {
    skip_without!("clang-22", "ld.lld-22");
    let scene = Scene::new(Duration::ZERO);
    let first = scene.client();
    assert!(matches!(scene.ask(&first, 0), Answer::Miss));
    for number in 0..3 {
        scene.feed(&first, number).unwrap();
    }
    assert_eq!(scene.entries().len(), 3);
    let second = scene.client();
    for number in 0..3 {
        scene.is_hit(scene.ask(&second, number), number);
    }
    assert_eq!(second.news(), None);
}

#[test]
fn whatever_is_not_the_jobs_own_entry_is_damage_and_is_replaced() {
    skip_without!("clang-22", "ld.lld-22");
    let scene = Scene::new(Duration::ZERO);
    let client = scene.client();
    scene.feed(&client, 0).unwrap();
    let [own] = &scene.entries()[..] else { panic!() };
    scene.feed(&client, 1).unwrap();
    let other = scene.entries().into_iter().find(|entry| entry != own).unwrap();
    let good = fs::read(own).unwrap();
    let mut flipped = good.clone();
    flipped[100] ^= 1;
    for (bytes, why) in [
        (fs::read(other).unwrap(), "another key"),
        (flipped, "its head"),
        (good[..good.len() - 1].to_vec(), "its outputs"),
        (b"<html>Please log in</html>".repeat(3), "no entry of dtlto-bridge"),
        (Vec::new(), "cut off"),
    ] {
        fs::write(own, bytes).unwrap();
        is_damaged(&scene.ask(&client, 0), why);
        assert!(!scene.work.path("got0").exists(), "{why}");
        scene.feed(&client, 0).unwrap();
        scene.is_hit(scene.ask(&client, 0), 0);
    }
}

#[test]
fn a_job_without_a_key_is_neither_asked_for_nor_stored() {
    skip_without!("clang-22", "ld.lld-22");
    let mut scene = Scene::new(Duration::ZERO);
    scene.jobs.file.jobs[0].args.push("-fstack-usage".into());
    let client = scene.client();
    assert!(matches!(scene.ask(&client, 0), Answer::NotCacheable(_)));
    assert!(matches!(scene.feed(&client, 0), Err(NotFed::NotCacheable(_))));
    assert_eq!(scene.calls(), 0);
}

/// Its maker was sure of it, its digests are right, and it is no object all the same.
#[test]
fn a_hit_is_checked_as_any_output() {
    skip_without!("clang-22", "ld.lld-22");
    let scene = Scene::new(Duration::ZERO);
    let client = scene.client();
    for content in [&b""[..], b"BC\xc0\xde bitcode", b"text"] {
        fs::write(&*scene.job(0).object, content).unwrap();
        scene.feed(&client, 0).unwrap();
        is_damaged(&scene.ask(&client, 0), &scene.job(0).object);
        assert!(!scene.work.path("got0").exists());
    }
}

#[test]
fn a_dead_cache_costs_one_deadline_and_no_more_calls() {
    skip_without!("clang-22", "ld.lld-22");
    let scene = Scene::new(Duration::from_secs(3600));
    let client = scene.client();
    let began = Instant::now();
    assert!(matches!(scene.ask(&client, 0), Answer::None));
    let took = began.elapsed();
    assert!(GET_TIME <= took && took < GET_TIME + Duration::from_secs(2), "{took:?}");
    for number in 1..3 {
        assert!(matches!(scene.ask(&client, number), Answer::None));
        scene.feed(&client, number).unwrap_err();
    }
    assert_eq!(scene.calls(), 1);
    let news = client.news().unwrap();
    assert_eq!(news, "is not used any more in this link: it did not answer in time");
    assert_eq!(client.news(), None, "one notice is enough");
}

#[test]
fn a_cache_that_only_fails_is_left_alone_after_three_calls() {
    skip_without!("clang-22", "ld.lld-22");
    let scene = Scene::new(Duration::ZERO);
    let client = scene.client();
    *scene.shelf.trouble.lock().unwrap() = Some(Trouble::Failed("no space".into()));
    for _ in 0..5 {
        assert!(scene.feed(&client, 0).is_err());
    }
    assert_eq!(scene.calls(), 3);
    assert_eq!(client.news().unwrap(), "is not fed any more in this link: no space");
    // It may still be read.
    *scene.shelf.trouble.lock().unwrap() = None;
    assert!(matches!(scene.ask(&client, 0), Answer::Miss));
}

#[test]
fn a_cache_that_cannot_be_opened_is_not_tried_again() {
    skip_without!("clang-22", "ld.lld-22");
    let scene = Scene::new(Duration::ZERO);
    let opened = Arc::new(AtomicUsize::new(0));
    let count = opened.clone();
    let opener = move || {
        count.fetch_add(1, Ordering::SeqCst);
        Err(Trouble::Failed("it is too old".into()))
    };
    let toolchain = identify(&tool("clang-22"), None, &Options::default()).unwrap();
    let keys = Keys::new(toolchain, Arc::default(), "");
    let client = Client::new(Box::new(opener), keys, 3, scene.work.mkdir("work"));
    for number in 0..3 {
        assert!(matches!(scene.ask(&client, number), Answer::None));
        assert!(scene.feed(&client, number).is_err());
    }
    assert_eq!(opened.load(Ordering::SeqCst), 1);
    assert_eq!(client.news().unwrap(), "is not used any more in this link: it is too old");
    assert_eq!(client.news(), None);
}
