//! Nodes of icecream as they come, with nothing installed on them, take the environment and do jobs in it. These
//! tests start real daemons, and call icecream's client themselves. Needs root.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests start programs, and may panic

mod kit;

use std::fs::{self, File};

use dtlto_bridge::bundle::{Answer, Expected, Limits, Prepared, Received, receive};
use dtlto_bridge::environment::Environment;
use kit::{Folder, Icecream, LinkJobs, Modules, environment, skip, skip_without};

/// The environment, or the test is skipped.
macro_rules! environment {
    () => {{
        skip_without!("clang-22", "ld.lld-22");
        if let Some(why) = Icecream::missing() {
            skip!("{why}");
        }
        match environment() {
            Ok(environment) => environment,
            Err(why) => skip!("{why}"),
        }
    }};
}

fn jobs() -> LinkJobs {
    let folder = Folder::new();
    Modules::compile(&folder, "", &["-g"]);
    LinkJobs::of(folder, &["a.o", "b.o", "c.o"], &[])
}

/// Sends a job, and reads what comes back; no daemon and no client has anything to say beside it.
#[track_caller]
fn answer(
    farm: &Icecream,
    environment: &Environment,
    prepared: &mut Prepared,
) -> (Received, Vec<u8>) {
    let folder = Folder::new();
    let [request, response, object] = ["j0.i", "j0.o", "out.o"].map(|name| folder.path(name));
    prepared.request.environment.clone_from(&environment.files);
    prepared.pack(File::create(&request).unwrap(), &Limits::default()).unwrap();
    let output = farm.compile(&environment.file, &request, &response);
    let client = || String::from_utf8_lossy(&farm.folder.read("client.log")).into_owned();
    assert!(output.status.success(), "{output}\n{}", client());
    assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{output}");
    let outputs = [("out.o".to_owned(), object.clone())];
    let expected = Expected { nonce: prepared.request.nonce, link: "7f3a", outputs: &outputs };
    let received = receive(File::open(response).unwrap(), &expected, &Limits::default()).unwrap();
    (received, fs::read(object).unwrap_or_default())
}

#[test]
fn nodes_without_a_compiler_make_the_same_objects() {
    let environment = environment!();
    let farm = Icecream::start(&["n1:-p 10346 -m 2 --cache-limit 2000"]);
    let jobs = jobs();
    for number in 0..jobs.file.jobs.len() {
        let (received, object) = answer(&farm, &environment, &mut jobs.prepare(number));
        let stderr = String::from_utf8_lossy(&received.stderr);
        assert_eq!(
            received.response.answer,
            Answer::Ran { code: Some(0), signal: None },
            "{stderr}"
        );
        assert!(object == jobs.made_here(number), "jobs[{number}]");
    }
    let log = farm.log("n1");
    assert_eq!(log.matches("Verify environment done, success").count(), 1, "{log}");
}
