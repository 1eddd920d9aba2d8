//! Stores in the real sccache and ccache while all is well. What the entries are does not matter here.

#![allow(clippy::unwrap_used)] // tests may panic

mod kit;

use std::fs;
use std::time::{Duration, Instant};

use dtlto_bridge::cache::{self, Kind, Trouble};
use kit::stores::{Redis, SOON, Shelf, User, noise, soon};
use kit::{missing, skip, skip_without};

/// Both kinds, or none where one is not installed.
fn kinds() -> Result<[Kind; 2], String> {
    missing(&["sccache", "ccache"]).map_or(Ok([Kind::Sccache, Kind::Ccache]), Err)
}

macro_rules! for_each_kind {
    ($kind:ident, $body:block) => {
        match kinds() {
            Ok(kinds) => kinds.into_iter().for_each(|$kind| $body),
            Err(why) => skip!("{why}"),
        }
    };
}

#[test]
fn an_absent_key_is_a_miss_and_what_was_put_comes_back() {
    for_each_kind!(kind, {
        let user = User::new();
        let store = user.open(kind).unwrap();
        let shelf = Shelf::new(&*store);
        for (number, size) in [(2, 1), (3, 5 << 20), (4, 40 << 20)] {
            let bytes = noise(size, number);
            assert_eq!(shelf.get(number, soon()), Ok(None), "{kind}, {size} bytes");
            shelf.put(number, &bytes, soon()).unwrap();
            assert!(shelf.get(number, soon()) == Ok(Some(bytes)), "{kind}, {size} bytes");
        }
        assert_eq!(shelf.get(5, soon()), Ok(None));
    });
}

#[test]
fn a_later_entry_takes_the_place_of_an_earlier_one() {
    for_each_kind!(kind, {
        let user = User::new();
        let store = user.open(kind).unwrap();
        let shelf = Shelf::new(&*store);
        shelf.put(1, b"damaged", soon()).unwrap();
        shelf.put(1, b"good", soon()).unwrap();
        assert_eq!(shelf.get(1, soon()), Ok(Some(b"good".into())), "{kind}");
    });
}

#[test]
fn many_calls_at_once_get_each_its_own() {
    for_each_kind!(kind, {
        let user = User::new();
        let store = user.open(kind).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..16 {
                let store = &*store;
                scope.spawn(move || {
                    let shelf = Shelf::new(store);
                    for number in [thread, thread + 16, 77] {
                        // The last is everybody's.
                        shelf.put(number, &noise(5000, number), soon()).unwrap();
                    }
                    for number in [thread, thread + 16, 77, thread] {
                        let got = shelf.get(number, soon()).unwrap();
                        assert!(got == Some(noise(5000, number)), "{kind}");
                    }
                    assert_eq!(shelf.get(thread + 100, soon()), Ok(None));
                });
            }
        });
    });
}

#[test]
fn links_of_other_homes_and_folders_share_entries() {
    for_each_kind!(kind, {
        let first = User::new();
        let store = first.open(kind).unwrap();
        Shelf::new(&*store).put(1, b"shared", soon()).unwrap();
        let [sccache, ccache] = ["sccache", "ccache"].map(|name| first.folder.path(name));
        let second =
            User::new().with("SCCACHE_DIR", sccache.display()).with("CCACHE_DIR", ccache.display());
        let store = second.open(kind).unwrap();
        assert_eq!(Shelf::new(&*store).get(1, soon()), Ok(Some(b"shared".into())), "{kind}");
    });
}

#[test]
fn a_fresh_server_on_the_same_redis_has_all_entries() {
    skip_without!("sccache", "redis-server");
    let redis = Redis::new();
    for round in 0..3 {
        let user = User::of_redis(redis.port);
        let store = user.open(Kind::Sccache).unwrap();
        let shelf = Shelf::new(&*store);
        if round == 0 {
            shelf.put(1, &noise(100_000, 1), soon()).unwrap();
        }
        assert!(shelf.get(1, soon()) == Ok(Some(noise(100_000, 1))), "round {round}");
        assert_eq!(user.servers().len(), 1);
    }
}

#[test]
fn ccache_shares_entries_by_its_remote_storage() {
    skip_without!("ccache", "redis-server");
    let redis = Redis::new();
    let remote = format!("redis://127.0.0.1:{}", redis.port);
    let user = || User::new().with("CCACHE_REMOTE_STORAGE", &remote);
    let first = user();
    Shelf::new(&*first.open(Kind::Ccache).unwrap()).put(1, b"remote", soon()).unwrap();
    let second = user();
    let store = second.open(Kind::Ccache).unwrap();
    assert_eq!(Shelf::new(&*store).get(1, soon()), Ok(Some(b"remote".into())));
}

#[test]
fn links_that_come_at_once_start_one_server() {
    skip_without!("sccache");
    let user = User::new();
    std::thread::scope(|scope| {
        for number in 0..8 {
            let user = &user;
            scope.spawn(move || {
                let store = user.open(Kind::Sccache).unwrap();
                Shelf::new(&*store).put(number, b"entry", soon()).unwrap();
            });
        }
    });
    assert_eq!(user.servers().len(), 1);
    let store = user.open(Kind::Sccache).unwrap();
    for number in 0..8 {
        assert!(Shelf::new(&*store).get(number, soon()).unwrap().is_some(), "{number}");
    }
}

#[test]
fn a_server_holds_nothing_of_the_link_and_is_all_that_stays() {
    skip_without!("sccache");
    let user = User::new();
    // As a linker might hand it down: not closed for programs.
    let (mut reader, writer) = std::io::pipe().unwrap();
    rustix::io::fcntl_setfd(&writer, rustix::io::FdFlags::empty()).unwrap();
    let about = user.about(Kind::Sccache, SOON);
    let store = cache::open(Kind::Sccache, &about).unwrap();
    Shelf::new(&*store).put(1, b"entry", soon()).unwrap();
    drop(writer);
    let begun = Instant::now();
    std::io::Read::read_to_end(&mut reader, &mut Vec::new()).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(2), "somebody holds the pipe");
    assert!(about.groups.is_empty());
    assert_eq!(fs::read_dir(&about.private).unwrap().count(), 0);
    let left = user.marked.alive();
    assert_eq!(left.len(), 1, "{left:?}");
    let server = left[0].pid;
    for entry in fs::read_dir(format!("/proc/{server}/fd")).unwrap().flatten() {
        let target = fs::read_link(entry.path()).unwrap().display().to_string();
        let own = ["socket:", "anon_inode:", "pipe:", "/dev/null"];
        assert!(own.iter().any(|kind| target.starts_with(kind)), "{target}");
    }
    let stopped = rustix::process::kill_process(server, rustix::process::Signal::TERM);
    stopped.unwrap();
    user.marked.gone_within(Duration::from_secs(12));
}

#[test]
fn a_server_of_the_users_own_is_used_and_its_logs_are_left_alone() {
    skip_without!("sccache");
    let user = User::new();
    let socket = user.folder.path("team.sock").display().to_string();
    let log = user.folder.path("log");
    let user = user.with("SCCACHE_SERVER_UDS", &socket).with("SCCACHE_ERROR_LOG", log.display());
    let user = user.with("SCCACHE_LOG", "trace");
    let started = |user: &User| {
        let run = kit::Run::new("sccache").arg("--start-server");
        user.environment.iter().fold(run, |run, (name, value)| run.env(name, value)).go().ok()
    };
    started(&user);
    let before = fs::metadata(&log).unwrap().len();
    let store = user.open(Kind::Sccache).unwrap();
    Shelf::new(&*store).put(1, b"entry", soon()).unwrap();
    assert_eq!(user.servers().len(), 1, "no other was started");
    assert!(fs::metadata(&log).unwrap().len() > before, "the team's server writes it");
    let stats = kit::Run::new("sccache").arg("--show-stats").env("SCCACHE_SERVER_UDS", &socket);
    let stats = stats.go().ok().stdout;
    let hits = stats.lines().find_map(|line| line.strip_prefix("Cache hits "));
    assert_eq!(hits.map(str::trim), Some("1"), "{stats}");
}

#[test]
fn the_users_settings_for_single_calls_are_honoured() {
    for_each_kind!(kind, {
        let user = User::new();
        let name = format!("{}_RECACHE", kind.to_string().to_uppercase());
        Shelf::new(&*user.open(kind).unwrap()).put(1, b"entry", soon()).unwrap();
        let user = user.with(&name, "1");
        let store = user.open(kind).unwrap();
        let shelf = Shelf::new(&*store);
        assert_eq!(shelf.get(1, soon()), Ok(None), "{kind}");
        shelf.put(1, b"other", soon()).unwrap();
        assert_eq!(user.servers().len(), usize::from(kind == Kind::Sccache));
    });
}

#[test]
fn ccaches_own_settings_do_not_reach_the_shim_and_its_switches_do() {
    skip_without!("ccache");
    let user = User::new();
    let settings = "prefix_command = /nonexistent\ncompiler = gcc\nextra_files_to_hash = /nonexistent\n\
                    hard_link = true\ndepend_mode = true\nbase_dir = /\n";
    user.folder.write("ccache/ccache.conf", settings);
    let store = user.open(Kind::Ccache).unwrap();
    let shelf = Shelf::new(&*store);
    assert_eq!(shelf.get(1, soon()), Ok(None));
    shelf.put(1, b"entry", soon()).unwrap();
    assert_eq!(shelf.get(1, soon()), Ok(Some(b"entry".into())));
    let user = user.with("CCACHE_READONLY", "1");
    let store = user.open(Kind::Ccache).unwrap();
    let shelf = Shelf::new(&*store);
    assert_eq!(shelf.get(1, soon()), Ok(Some(b"entry".into())));
    assert_eq!(shelf.get(2, soon()), Ok(None));
    assert!(matches!(shelf.put(2, b"x", soon()), Err(Trouble::Failed(_))));
    let user = user.with("CCACHE_DISABLE", "1");
    let Err(Trouble::Failed(words)) = user.open(Kind::Ccache) else { panic!() };
    assert!(words.contains("switched off"), "{words}");
}

#[test]
fn old_tools_are_refused_in_clear_words() {
    for kind in [Kind::Sccache, Kind::Ccache] {
        let user = User::new();
        let mut about = user.about(kind, SOON);
        about.tool = user.folder.script("old", "echo old version 0.4.9");
        let mut words = "Text file busy".to_owned();
        // While another test's thread forks, it holds the new script open for writing.
        while words.contains("Text file busy") {
            words = cache::open(kind, &about).unwrap_err().to_string();
        }
        assert!(words.contains("old version 0.4.9") && words.contains("install"), "{words}");
    }
}

#[test]
fn a_farm_in_the_users_file_gets_none_of_these_calls() {
    skip_without!("sccache");
    let user = User::new();
    let file = "[dist]\nscheduler_url = \"http://127.0.0.1:9\"\n[dist.auth]\ntype = \"token\"\ntoken = \"x\"\n";
    user.folder.write("home/.config/sccache/config", file);
    let store = user.open(Kind::Sccache).unwrap();
    let begun = Instant::now();
    Shelf::new(&*store).put(1, b"entry", soon()).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5));
    let status = dist_status(&user);
    assert!(status.contains("Disabled"), "{status}");
}

/// What the only server of `user` says of its farm.
fn dist_status(user: &User) -> String {
    let server = user.servers()[0].pid;
    let environment = fs::read(format!("/proc/{server}/environ")).unwrap();
    let text = String::from_utf8(environment).unwrap();
    let address = text.split('\0').find_map(|entry| entry.strip_prefix("SCCACHE_SERVER_UDS="));
    let run = kit::Run::new("sccache").arg("--dist-status");
    run.env("SCCACHE_SERVER_UDS", address.unwrap()).go().ok().stdout
}

#[test]
fn no_secret_reaches_a_client_or_what_it_starts() {
    skip_without!("sccache");
    let user =
        User::new().with("AWS_SECRET_ACCESS_KEY", "hush").with("SCCACHE_REDIS_PASSWORD", "hush");
    let mut about = user.about(Kind::Sccache, SOON);
    let real = kit::tool("sccache");
    let note = user.folder.path("note");
    let script = format!(
        "case $* in *dtlto.ii*) env >>'{}' ;; esac\nexec '{}' \"$@\"",
        note.display(),
        real.display()
    );
    about.tool = user.folder.script("bin/sccache", &script);
    let store = cache::open(Kind::Sccache, &about).unwrap();
    Shelf::new(&*store).put(1, b"entry", soon()).unwrap();
    let seen = fs::read_to_string(note).unwrap();
    assert!(seen.contains("SCCACHE_SERVER_UDS=") && !seen.contains("hush"), "{seen}");
}
