//! The worker makes the bytes that a job's own command makes, for requests that its owner's settings allow,
//! and answers all others in a way that the bridge can act on. These tests know the two files of a job and
//! the settings, not how a farm carries them.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests start programs, and may panic

mod kit;

use std::fs;

use dtlto_bridge::bundle::Answer;
use kit::{Folder, Jobs, Modules, Worker, clang, identity, skip, skip_without, tool};

/// Jobs of the small program, compiled with `flags` besides the usual.
fn modules(flags: &[&str], more: &[&str]) -> Jobs {
    let folder = Folder::new();
    Modules::compile(&folder, "", flags);
    Jobs::of(folder, &["a.o", "b.o", "c.o"], more)
}

/// The text in an answer of this kind.
#[track_caller]
fn reason(answer: &Answer, kind: &str) -> String {
    let json = serde_json::to_value(answer).unwrap();
    assert_eq!(json["is"], kind, "{json}");
    json["reason"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn objects_are_those_of_the_jobs_own_commands() {
    skip_without!("clang-22", "ld.lld-22");
    for flags in [&[][..], &["-g"]] {
        let jobs = modules(flags, &[]);
        let worker = Worker::new("");
        for number in 0..3 {
            let object = worker.answer(&mut jobs.prepare(number)).done();
            assert!(object == jobs.made_here(number), "job {number} with {flags:?}");
        }
        assert_eq!(worker.left(), [""; 0]);
        let logged = worker.logged();
        assert_eq!(
            (&logged["result"], &logged["locked"]),
            (&"ran".into(), &true.into()),
            "{logged}"
        );
        assert_eq!(logged["compiler"], "22.1.8");
    }
}
