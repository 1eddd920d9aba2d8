//! Stores in the real sccache and ccache when something is wrong with them: nothing is ever answered wrongly, and no
//! call takes longer than it may.

#![allow(clippy::unwrap_used)] // tests may panic

mod kit;

use std::thread;
use std::time::{Duration, Instant};

use dtlto_bridge::cache::{self, Kind, Trouble};
use kit::stores::{Proxy, Redis, Shelf, User, key, noise, soon};
use kit::{skip_without, until};
use rustix::process::Signal;

/// What a call may take beyond its deadline, on a machine that is busy with other tests.
const SLACK: Duration = Duration::from_millis(1500);

/// `call` gets a deadline `limit` from now, and ends by it.
#[track_caller]
fn within<T>(limit: Duration, call: impl FnOnce(Instant) -> T) -> T {
    let begun = Instant::now();
    let answer = call(begun + limit);
    assert!(begun.elapsed() < limit + SLACK, "{:?} for a deadline of {limit:?}", begun.elapsed());
    answer
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_server_that_was_killed_before_is_started_again() {
    skip_without!("sccache");
    let user = User::new();
    Shelf::new(&*user.open(Kind::Sccache).unwrap()).put(1, b"entry", soon()).unwrap();
    user.kill_server();
    let store = user.open(Kind::Sccache).unwrap();
    assert_eq!(Shelf::new(&*store).get(1, soon()), Ok(Some(b"entry".into())));
}

#[test]
fn a_server_that_dies_under_a_link_is_started_again_once() {
    skip_without!("sccache");
    let user = User::new();
    let store = user.open(Kind::Sccache).unwrap();
    let shelf = Shelf::new(&*store);
    shelf.put(1, b"entry", soon()).unwrap();
    user.kill_server();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let shelf = Shelf::new(&*store);
                assert_eq!(shelf.get(1, soon()), Ok(Some(b"entry".into())));
            });
        }
    });
    user.kill_server();
    let Err(Trouble::Failed(words)) = shelf.get(1, soon()) else { panic!() };
    assert_eq!(words, "its server has died");
    assert!(user.servers().is_empty(), "no client starts one by itself");
}

#[test]
fn a_server_that_is_killed_in_the_middle_of_a_call_never_gives_a_wrong_answer() {
    skip_without!("sccache", "redis-server");
    let redis = Redis::new();
    let proxy = Proxy::new(redis.port);
    let user = User::of_redis(proxy.port);
    let store = user.open(Kind::Sccache).unwrap();
    Shelf::new(&*store).put(1, b"entry", soon()).unwrap();
    proxy.delay(Duration::from_millis(600));
    thread::scope(|scope| {
        let get = scope.spawn(|| within(8 * SECOND, |by| Shelf::new(&*store).get(1, by)));
        let put = scope.spawn(|| within(8 * SECOND, |by| Shelf::new(&*store).put(2, b"two", by)));
        thread::sleep(Duration::from_millis(300));
        user.kill_server();
        proxy.delay(Duration::ZERO);
        // The server is started again for them.
        assert_eq!(get.join().unwrap(), Ok(Some(b"entry".into())));
        assert_eq!(put.join().unwrap(), Ok(()));
    });
}

#[test]
fn a_server_that_hangs_costs_no_more_than_the_deadline() {
    skip_without!("sccache");
    let user = User::new();
    let store = user.open(Kind::Sccache).unwrap();
    let server = user.servers()[0].pid;
    rustix::process::kill_process(server, Signal::STOP).unwrap();
    let shelf = Shelf::new(&*store);
    assert_eq!(within(SECOND, |by| shelf.get(1, by)), Err(Trouble::TimedOut));
    assert_eq!(within(SECOND, |by| shelf.put(1, b"entry", by)), Err(Trouble::TimedOut));
    rustix::process::kill_process(server, Signal::CONT).unwrap();
    assert_eq!(shelf.get(1, soon()), Ok(None));
}

#[test]
fn a_storage_that_is_dead_at_the_start_is_paid_for_once() {
    skip_without!("sccache");
    let user = User::of_redis(kit::free_port());
    let begun = Instant::now();
    let open = || cache::open(Kind::Sccache, &user.about(Kind::Sccache, 2 * SECOND));
    let first = open().unwrap_err();
    assert!(begun.elapsed() < 2 * SECOND + SLACK, "{:?}", begun.elapsed());
    assert_eq!(first, Trouble::TimedOut);
    until("the end of what was started", || user.marked.alive().is_empty());
    let begun = Instant::now();
    let Err(Trouble::Failed(words)) = open() else { panic!() };
    assert!(begun.elapsed() < SECOND && words.contains("tried again in"), "{words}");
}

#[test]
fn a_black_hole_at_the_start_costs_no_more_than_the_deadline() {
    skip_without!("sccache", "redis-server");
    let redis = Redis::new();
    let proxy = Proxy::new(redis.port);
    proxy.black_hole();
    let user = User::of_redis(proxy.port);
    let about = user.about(Kind::Sccache, SECOND);
    assert_eq!(
        within(SECOND, |_| cache::open(Kind::Sccache, &about)).unwrap_err(),
        Trouble::TimedOut
    );
    until("the end of what was started", || user.marked.alive().is_empty());
}

#[test]
fn a_storage_that_dies_or_falls_silent_costs_no_more_than_the_deadline() {
    skip_without!("sccache", "redis-server");
    for silent in [false, true] {
        let mut redis = Redis::new();
        let proxy = Proxy::new(redis.port);
        let user = User::of_redis(if silent { proxy.port } else { redis.port });
        let store = user.open(Kind::Sccache).unwrap();
        let shelf = Shelf::new(&*store);
        shelf.put(1, b"entry", soon()).unwrap();
        if silent {
            proxy.black_hole()
        } else {
            redis.kill()
        }
        let got = within(SECOND, |by| shelf.get(1, by));
        assert!(got.is_err() || got == Ok(None), "{got:?}");
        assert!(within(SECOND, |by| shelf.put(2, b"entry", by)).is_err());
        if !silent {
            redis.start_again();
            until("a storage that works again", || {
                let by = Instant::now() + 2 * SECOND;
                shelf.put(3, b"entry", by).is_ok() && shelf.get(3, by) == Ok(Some(b"entry".into()))
            });
        }
    }
}

#[test]
fn a_slow_storage_is_used_as_far_as_the_deadline_allows() {
    skip_without!("sccache", "redis-server");
    let redis = Redis::new();
    let proxy = Proxy::new(redis.port);
    let user = User::of_redis(proxy.port);
    let store = user.open(Kind::Sccache).unwrap();
    let shelf = Shelf::new(&*store);
    shelf.put(1, b"entry", soon()).unwrap();
    proxy.delay(Duration::from_millis(400));
    assert_eq!(shelf.get(1, soon()), Ok(Some(b"entry".into())));
    let hasty = Duration::from_millis(100);
    assert_eq!(within(hasty, |by| shelf.get(1, by)), Err(Trouble::TimedOut));
}

#[test]
fn what_is_not_stored_is_told() {
    skip_without!("sccache", "redis-server");
    let full = Redis::with(&["--maxmemory", "3mb", "--maxmemory-policy", "noeviction"]);
    let full = User::of_redis(full.port).with("redis", full.ask(&["ping"])[0].clone());
    let read_only = User::new().with("SCCACHE_LOCAL_RW_MODE", "READ_ONLY");
    let small = User::new().with("SCCACHE_CACHE_SIZE", "1M");
    for user in [full, read_only, small] {
        let store = user.open(Kind::Sccache).unwrap();
        let shelf = Shelf::new(&*store);
        let put = shelf.put(1, &noise(8 << 20, 1), soon());
        assert!(matches!(put, Err(Trouble::Failed(_))), "{put:?}");
        assert_eq!(shelf.get(1, soon()), Ok(None));
    }
}

#[test]
fn damaged_entries_are_no_hits_or_are_given_as_they_are() {
    skip_without!("sccache", "redis-server");
    let redis = Redis::new();
    let user = User::of_redis(redis.port);
    let store = user.open(Kind::Sccache).unwrap();
    let shelf = Shelf::new(&*store);
    shelf.put(1, &noise(1000, 1), soon()).unwrap();
    redis.damage();
    let got = within(5 * SECOND, |by| shelf.get(1, by));
    assert!(got != Ok(Some(noise(1000, 1))), "it is damaged");
    shelf.put(1, &noise(1000, 1), soon()).unwrap();
    assert_eq!(shelf.get(1, soon()), Ok(Some(noise(1000, 1))), "repaired by the next");
}

#[test]
fn damaged_files_of_ccache_are_misses() {
    skip_without!("ccache");
    let user = User::new();
    let store = user.open(Kind::Ccache).unwrap();
    let shelf = Shelf::new(&*store);
    shelf.put(1, &noise(1000, 1), soon()).unwrap();
    let mut damaged = 0;
    let entry = |name: &&String| name.rsplit('/').next().is_some_and(|name| name.len() > 30);
    for name in user.folder.list("ccache").iter().filter(entry) {
        let path = user.folder.path("ccache").join(name);
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        damaged += 1;
    }
    assert!(damaged > 0, "{:?}", user.folder.list("ccache"));
    assert_eq!(shelf.get(1, soon()), Ok(None));
    shelf.put(1, &noise(1000, 1), soon()).unwrap();
    assert_eq!(shelf.get(1, soon()), Ok(Some(noise(1000, 1))));
}

#[test]
fn a_remote_storage_of_ccaches_that_is_silent_or_dead_costs_no_more_than_the_deadline() {
    skip_without!("ccache", "redis-server");
    let redis = Redis::new();
    let proxy = Proxy::new(redis.port);
    let silent =
        User::new().with("CCACHE_REMOTE_STORAGE", format!("redis://127.0.0.1:{}", proxy.port));
    let store = silent.open(Kind::Ccache).unwrap();
    let shelf = Shelf::new(&*store);
    shelf.put(1, b"entry", soon()).unwrap();
    proxy.black_hole();
    assert_eq!(shelf.get(1, soon()), Ok(Some(b"entry".into())), "it is here too");
    assert_eq!(within(SECOND, |by| shelf.get(2, by)), Err(Trouble::TimedOut));
    let dead = User::new()
        .with("CCACHE_REMOTE_STORAGE", format!("redis://127.0.0.1:{}", kit::free_port()));
    let store = dead.open(Kind::Ccache).unwrap();
    let shelf = Shelf::new(&*store);
    assert_eq!(within(SECOND, |by| shelf.get(1, by)), Ok(None));
    shelf.put(1, b"entry", soon()).unwrap();
}

#[test]
fn a_folder_that_cannot_be_used_is_told() {
    skip_without!("ccache", "sccache");
    let user =
        User::new().with("CCACHE_DIR", "/dev/null/none").with("SCCACHE_DIR", "/dev/null/none");
    let put = |kind| {
        let store = user.open(kind)?;
        Shelf::new(&*store).put(1, b"entry", soon())
    };
    for kind in [Kind::Ccache, Kind::Sccache] {
        assert!(matches!(put(kind), Err(Trouble::Failed(_))), "{kind}");
    }
}

#[test]
fn nothing_starts_when_the_link_is_given_up() {
    skip_without!("ccache", "sccache");
    for kind in [Kind::Ccache, Kind::Sccache] {
        let user = User::new();
        let about = user.about(kind, 20 * SECOND);
        let store = cache::open(kind, &about).unwrap();
        about.groups.end_all(Signal::TERM);
        let into = user.folder.path("into");
        assert_eq!(store.get(&key(1), &into, soon()), Err(Trouble::Cancelled));
        assert!(!into.exists());
    }
}

#[test]
fn a_bridge_that_is_killed_leaves_the_server_to_others() {
    skip_without!("sccache", "clang-22", "ld.lld-22");
    let (user, folder) = (User::new(), kit::Folder::new());
    kit::Modules::compile(&folder, "", &[]);
    // The farm never answers: killed in the middle of a job, with entries asked for.
    let script = folder.script("farm", "sleep 600");
    let manifest = serde_json::json!({
        "schema": 1, "name": "slow", "summary": "Slow.", "place": "farm", "hand_over": "each",
        "shipping": "direct", "tool": script, "command": ["{tool}", "{compiler}", "{args...}"], "slots": 9,
    });
    folder.write("slow.json", manifest.to_string());
    let options = format!("--cache=sccache,--adapter={}", folder.path("slow.json").display());
    let run = kit::link()
        .args(["a.o", "b.o", "c.o", "-o", "app"])
        .arg(format!("-fthinlto-distributor={}", kit::bridge_path()))
        .arg(format!("-Xthinlto-distributor={options}"))
        .cwd(folder.path(""));
    let run = user.environment.iter().fold(run, |run, (name, value)| run.env(name, value));
    let running = run.start();
    let asleep =
        || user.marked.alive().iter().filter(|process| process.argv[0] == "sleep").count() == 3;
    until("three jobs", asleep);
    let bridge = user.marked.find("dtlto-bridge", "--cache=sccache");
    rustix::process::kill_process(bridge, Signal::KILL).unwrap();
    running.wait();
    until("the end of the jobs", || user.marked.alive().len() == user.servers().len());
    assert_eq!(user.servers().len(), 1);
}
