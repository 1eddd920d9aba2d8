//! What the doctor says of a cache, with the real sccache and ccache.

#![allow(clippy::unwrap_used)] // tests may panic

mod kit;

use kit::stores::{Redis, User};
use kit::{Output, bridge, free_port, skip_without};

fn doctor(user: &User, cache: &str) -> Output {
    let run = bridge().args(["doctor", "--cache", cache]);
    user.environment.iter().fold(run, |run, (name, value)| run.env(name, value)).go()
}

#[track_caller]
fn has(output: &Output, texts: &[&str]) {
    for text in texts {
        assert!(output.stdout.contains(text), "{text} is not in {output}");
    }
}

#[test]
fn a_cache_that_works_is_shown_with_its_storage_and_its_speed() {
    skip_without!("sccache", "ccache", "redis-server");
    let redis = Redis::new();
    let user = User::of_redis(redis.port);
    for _ in 0..2 {
        let output = doctor(&user, "sccache").ok();
        has(
            &output,
            &["ok   server: the bridge's own, SCCACHE_SERVER_UDS=", "ok   storage: redis"],
        );
        has(&output, &["ok   an entry is stored", "ok   an entry of 64 KiB arrives in"]);
    }
    assert_eq!(user.servers().len(), 1);
    assert_eq!(
        redis.ask(&["keys", "*"]).iter().filter(|key| !key.contains("sccache_check")).count(),
        1
    );
    let output = doctor(&user, "ccache").ok();
    has(&output, &["ok   cache_dir: ", "ok   an entry of 64 KiB arrives in"]);
}

#[test]
fn each_trouble_comes_with_the_next_step() {
    skip_without!("sccache", "ccache");
    let dead = User::of_redis(free_port());
    has(
        &doctor(&dead, "sccache").code(4),
        &["FAIL it cannot be used: ", "next: look what SCCACHE_LOG"],
    );
    let read_only = User::new().with("SCCACHE_LOCAL_RW_MODE", "READ_ONLY");
    let output = doctor(&read_only, "sccache").code(4);
    has(&output, &["FAIL nothing is stored: ", "--cache-mode=read", "ok   an answer arrives in"]);
    let off = User::new().with("CCACHE_DISABLE", "1");
    has(&doctor(&off, "ccache").code(4), &["switched off", "next: unset CCACHE_DISABLE"]);
    let nowhere = User::new().with("PATH", "/nonexistent");
    has(&doctor(&nowhere, "sccache").code(4), &["no such program", "next: install sccache 0.14"]);
}
