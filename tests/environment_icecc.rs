//! Nodes of icecream as they come, with nothing installed on them, take the environment and do jobs in it. These
//! tests start real daemons, and call icecream's client themselves. Needs root.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests start programs, and may panic

mod kit;

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;

use dtlto_bridge::bundle::{Answer, Expected, Limits, Prepared, Received, receive};
use dtlto_bridge::environment::Environment;
use kit::{Folder, Icecream, LinkJobs, Modules, clang, environment, skip, skip_without, until};

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

/// A job whose object cannot be made without the assembler saying something.
fn outspoken(directives: &str) -> LinkJobs {
    let folder = Folder::new();
    let asm = directives.escape_default();
    folder.write("a.c", format!("int main(void) {{ __asm__ volatile(\"{asm}\"); return 0; }}"));
    let compile = clang().args(["-O2", "-flto=thin", "-c", "a.c"]).cwd(folder.path(""));
    compile.go().ok();
    LinkJobs::of(folder, &["a.o"], &[])
}

#[test]
fn what_a_compiler_says_never_makes_icecream_guess() {
    let environment = environment!();
    let farm = Icecream::start(&["n1:-p 10346 -m 2 --cache-limit 2000"]);
    let warned = Answer::Ran { code: Some(0), signal: None };
    let failed = Answer::Ran { code: Some(1), signal: None };
    let many = ".rept 20000\n.warning \"file not found\"\n.endr";
    let cases = [
        (".warning \"file not found\"", "file not found", &warned),
        (".error \"file not found\"", "file not found", &failed),
        (".error \"o space left\"", "o space left", &failed),
        (many, "file not found", &warned),
    ];
    for (directives, words, expected) in cases {
        let jobs = outspoken(directives);
        let (received, _) = answer(&farm, &environment, &mut jobs.prepare(0));
        let stderr = String::from_utf8_lossy(&received.stderr);
        assert_eq!(received.response.answer, *expected, "{directives}: {stderr}");
        assert!(stderr.contains(words), "{directives}: {stderr}");
        assert!(directives != many || stderr.len() > 2 << 20, "{} bytes", stderr.len());
    }
    // It could be the host's memory: another host is to show it.
    let jobs = outspoken(".error \"memory exhausted\"");
    let (received, _) = answer(&farm, &environment, &mut jobs.prepare(0));
    assert!(matches!(received.response.answer, Answer::Unfit { .. }));
    assert_eq!(farm.log("client").matches("building myself").count(), 0);
}

#[test]
fn a_library_damaged_on_a_node_makes_no_object_there() {
    let environment = environment!();
    let farm = Icecream::start(&["n1:-p 10346 -m 2 --cache-limit 2000"]);
    let jobs = jobs();
    let (received, object) = answer(&farm, &environment, &mut jobs.prepare(0));
    assert_eq!(received.response.answer, Answer::Ran { code: Some(0), signal: None });
    assert!(object == jobs.made_here(0));
    let library = farm.unpacked("n1", &environment.name).join("opt/llvm/lib/libLLVM.so.22.1");
    let file = OpenOptions::new().read(true).write(true).open(&library).unwrap();
    let middle = file.metadata().unwrap().len() / 2;
    let mut byte = [0];
    file.read_exact_at(&mut byte, middle).unwrap();
    file.write_all_at(&[byte[0] ^ 1], middle).unwrap();
    let (received, object) = answer(&farm, &environment, &mut jobs.prepare(0));
    let Answer::Altered { reason } = received.response.answer else {
        panic!("{:?}", received.response.answer)
    };
    assert!(reason.contains("libLLVM.so.22.1: it has other bytes"), "{reason}");
    assert!(object.is_empty());
    let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
    assert_eq!(received.response.host, own);
}

#[test]
fn a_client_that_is_gone_takes_its_compiler_along() {
    let environment = environment!();
    let farm = Icecream::start(&["n1:-p 10346 -m 2 --cache-limit 2000"]);
    // Half a minute of work for the assembler, without much to write.
    let jobs = outspoken(".rept 200000000\n.p2align 0\n.endr");
    let folder = Folder::new();
    let [request, response] = ["j0.i", "j0.o"].map(|name| folder.path(name));
    let mut prepared = jobs.prepare(0);
    prepared.request.environment.clone_from(&environment.files);
    prepared.pack(File::create(&request).unwrap(), &Limits::default()).unwrap();
    let client = farm.client(&environment.file, &request, &response).start();
    let compilers = || {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let root = farm.unpacked("n1", &environment.name);
        let here = |entry: &fs::DirEntry| {
            let link = |name| fs::read_link(entry.path().join(name)).ok();
            link("root") == Some(root.clone())
                && link("exe").is_some_and(|exe| exe.ends_with("opt/llvm/bin/clang-22"))
        };
        processes.filter(here).count()
    };
    until("the compiler runs", || compilers() == 1);
    drop(client);
    until("the compiler is gone", || compilers() == 0);
    let scratch = farm.unpacked("n1", &environment.name).join("tmp");
    let jobs_left = || {
        let users = fs::read_dir(&scratch).unwrap().flatten().filter(|user| user.path().is_dir());
        let names = users.flat_map(|user| fs::read_dir(user.path()).unwrap().flatten());
        names.filter(|name| name.file_name().to_string_lossy().starts_with("job-")).count()
    };
    until("its folder is gone", || jobs_left() == 0);
}
