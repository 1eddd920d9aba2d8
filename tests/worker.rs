//! The worker makes the bytes that a job's own command makes, for requests that its owner's settings allow,
//! and answers all others in a way that the bridge can act on. These tests know the two files of a job and
//! the settings, not how a farm carries them.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests start programs, and may panic

mod kit;

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;

use dtlto_bridge::bundle::{Answer, Expected, Fault, Limits, Prepared, receive};
use kit::{Folder, LinkJobs, Modules, Run, Worker, bridge_path, llvm_ar, skip, skip_without, tool};

/// LinkJobs of the small program, compiled with `flags` besides the usual.
fn modules(flags: &[&str]) -> LinkJobs {
    let folder = Folder::new();
    Modules::compile(&folder, "", flags);
    LinkJobs::of(folder, &["a.o", "b.o", "c.o"], &[])
}

/// The text in an answer of this kind.
#[track_caller]
fn reason(answer: &Answer, kind: &str) -> String {
    let json = serde_json::to_value(answer).unwrap();
    assert_eq!(json["is"], kind, "{json}");
    json["reason"].as_str().unwrap_or_default().to_owned()
}

#[track_caller]
fn assert_identical(jobs: &LinkJobs, worker: &Worker) {
    for number in 0..jobs.file.jobs.len() {
        let object = worker.answer(&mut jobs.prepare(number)).done();
        assert!(object == jobs.made_here(number), "jobs[{number}]: {:?}", jobs.file.jobs[number]);
    }
    assert_eq!(worker.left(), [""; 0]);
}

#[test]
fn objects_are_those_of_the_jobs_own_commands() {
    skip_without!("clang-22", "ld.lld-22");
    let worker = Worker::new("");
    for flags in [&[][..], &["-g"]] {
        assert_identical(&modules(flags), &worker);
    }
    let logged = worker.logged();
    assert_eq!((&logged["result"], &logged["locked"]), (&"ran".into(), &true.into()), "{logged}");
    assert_eq!((&logged["user"], &logged["link"]), (&"me".into(), &"7f3a".into()), "{logged}");
    assert!(logged["bytes_in"].as_u64() > Some(1000) && logged["peak_kb"].as_u64() > Some(10_000));
}

#[test]
fn objects_of_members_of_archives_and_of_fat_objects_are_too() {
    skip_without!("clang-22", "ld.lld-22", "llvm-ar-22");
    let folder = Folder::new();
    Modules::compile(&folder, "x ä", &["-ffat-lto-objects"]);
    llvm_ar().args(["rc", "libbc.a", "x ä/b.o", "x ä/c.o"]).cwd(folder.path("")).go().ok();
    let jobs = LinkJobs::of(folder, &["x ä/a.o", "libbc.a"], &["-Wl,--fat-lto-objects"]);
    assert_eq!(jobs.file.jobs.len(), 3);
    assert_identical(&jobs, &Worker::new(""));
}

#[test]
fn objects_for_windows_are_too() {
    skip_without!("clang-22", "lld-link-22");
    let folder = Folder::new();
    Modules::compile(&folder, "", &["--target=x86_64-pc-windows-msvc", "-ffreestanding"]);
    let jobs = LinkJobs::of_windows(folder, &["a.o", "b.o", "c.o"]);
    assert_eq!(jobs.file.jobs.len(), 3);
    assert_identical(&jobs, &Worker::new(""));
}

#[test]
fn objects_of_a_real_program_are_too() {
    skip_without!("clang-22", "ld.lld-22");
    let folder = Folder::new();
    let objects = match kit::lua(&folder) {
        Ok(objects) => objects,
        Err(why) => skip!("{why}"),
    };
    let objects: Vec<&str> = objects.iter().map(String::as_str).collect();
    let jobs = LinkJobs::of(folder, &objects, &["-lm"]);
    assert!(jobs.file.jobs.len() >= 25);
    assert_identical(&jobs, &Worker::new(""));
}

#[test]
fn distccd_gets_its_response_in_the_file_that_it_made() {
    skip_without!("clang-22", "ld.lld-22");
    let (jobs, worker) = (modules(&[]), Worker::new(""));
    let mut prepared = jobs.prepare(0);
    let request = worker.pack(&mut prepared);
    let response = worker.folder.write("response", "");
    fs::set_permissions(&response, Permissions::from_mode(0o600)).unwrap();
    let named = worker.folder.path("dtlto-worker");
    symlink(bridge_path(), &named).unwrap();
    let settings = worker.folder.path("worker.json");
    let run = Run::new(named).env("DTLTO_WORKER_CONFIG", settings).env("_DISTCC_SAFEGUARD", "1");
    let output = run.arg("-c").arg(request).arg("-o").arg(&response).cwd("/").go().ok();
    assert_eq!(response.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert!(worker.read(&prepared, output).done() == jobs.made_here(0));
}

#[test]
fn another_user_makes_the_same_object() {
    skip_without!("clang-22", "ld.lld-22", "setpriv");
    if !rustix::process::geteuid().is_root() {
        skip!("only root can become another user");
    }
    let (jobs, worker) = (modules(&[]), Worker::new(""));
    let mut prepared = jobs.prepare(0);
    let request = worker.pack(&mut prepared);
    let response = worker.folder.write("response", "");
    let nobody = Some(65_534);
    for path in [&response, &worker.folder.path("scratch")] {
        chown(path, nobody, nobody).unwrap();
    }
    fs::set_permissions(worker.folder.path(""), Permissions::from_mode(0o755)).unwrap();
    // The build's own folder may be closed to others.
    let bridge = worker.folder.path("dtlto-bridge");
    fs::copy(bridge_path(), &bridge).unwrap();
    let run = Run::new(tool("setpriv")).args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    let run = run.arg("--no-new-privs").arg(bridge).arg("worker").arg(request).arg(&response);
    let output = run.env("DTLTO_WORKER_CONFIG", worker.folder.path("worker.json")).go().ok();
    assert!(worker.read(&prepared, output).done() == jobs.made_here(0));
    assert!(worker.folder.path("scratch/dtlto-worker-65534/log").exists());
}

#[test]
fn without_settings_nothing_runs_and_the_answer_says_where_they_should_be() {
    skip_without!("clang-22", "ld.lld-22");
    let (jobs, worker) = (modules(&[]), Worker::new(""));
    fs::remove_file(worker.folder.path("worker.json")).unwrap();
    let text = reason(worker.answer(&mut jobs.prepare(0)).answer(), "refused");
    assert!(text.contains("no settings") && text.contains("worker.json"), "{text}");
}

#[test]
fn settings_that_are_not_understood_allow_nothing() {
    skip_without!("clang-22", "ld.lld-22");
    let jobs = modules(&[]);
    let worker = Worker::new(r#""landlok": "try""#);
    let text = reason(worker.answer(&mut jobs.prepare(0)).answer(), "refused");
    assert!(text.contains("unknown field `landlok`"), "{text}");
    let worker = Worker::new("");
    let settings = worker.folder.path("worker.json");
    fs::set_permissions(settings, Permissions::from_mode(0o666)).unwrap();
    let text = reason(worker.answer(&mut jobs.prepare(0)).answer(), "refused");
    assert!(text.contains("others may write to it"), "{text}");
}

#[test]
fn a_compiler_that_is_not_there_is_missing() {
    skip_without!("clang-22", "ld.lld-22");
    let (jobs, worker) = (modules(&[]), Worker::with(r#""/opt/no/clang""#, ""));
    let text = reason(worker.answer(&mut jobs.prepare(0)).answer(), "missing_compiler");
    assert!(text.contains("/opt/no/clang"), "{text}");
    assert_eq!(worker.logged()["result"], "missing compiler");
}

#[test]
fn a_compiler_with_one_byte_changed_is_another() {
    skip_without!("clang-22", "ld.lld-22");
    let real = fs::canonicalize(tool("clang-22")).unwrap();
    let folder = Folder::new();
    let mut bytes = fs::read(&real).unwrap();
    bytes.push(0);
    let copy = folder.write("bin/clang", bytes);
    fs::set_permissions(&copy, Permissions::from_mode(0o755)).unwrap();
    symlink(real.parent().unwrap().with_file_name("lib"), folder.path("lib")).unwrap();
    let (jobs, worker) = (modules(&[]), Worker::with(&format!("{copy:?}"), ""));
    let text = reason(worker.answer(&mut jobs.prepare(0)).answer(), "other_compiler");
    assert_eq!(text, "clang differs");
    // The right one beside it is found.
    let both = Worker::with(&format!("{copy:?}, {:?}", tool("clang-22")), "");
    both.answer(&mut jobs.prepare(0)).done();
}

#[test]
fn another_version_is_named() {
    skip_without!("clang-22", "ld.lld-22");
    let (jobs, worker) = (modules(&[]), Worker::new(""));
    let mut prepared = jobs.prepare(0);
    let version = &mut prepared.request.compiler.version;
    *version = version.replace("22.1.8", "22.1.7");
    let text = reason(worker.answer(&mut prepared).answer(), "other_compiler");
    assert_eq!(text, "this host has clang 22.1.8, the link was made by 22.1.7");
}

#[test]
fn another_class_of_mathematics_is_refused_by_name() {
    skip_without!("clang-22", "ld.lld-22");
    let (jobs, worker) = (modules(&[]), Worker::new(""));
    let mut prepared = jobs.prepare(0);
    if prepared.request.compiler.parts["math class"] != "avx2 fma" {
        skip!("this CPU has no AVX2 and FMA to be switched off");
    }
    let request = worker.pack(&mut prepared);
    let run = worker.run([request, worker.folder.path("response")]);
    let run = run.env("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-FMA,-AVX2,-FMA4");
    let answered = worker.read(&prepared, run.go().ok());
    let text = reason(answered.answer(), "other_compiler");
    assert_eq!(text, "math class: none here, avx2 fma there");
    // A link that takes any mathematics says so by leaving it out.
    let parts = &mut prepared.request.compiler.parts;
    parts.retain(|name, _| name != "math class" && name != "libm.so.6");
    worker.answer(&mut prepared).done();
}

#[test]
fn arguments_that_no_list_allows_are_refused() {
    skip_without!("clang-22", "ld.lld-22");
    let (jobs, worker) = (modules(&[]), Worker::new(""));
    for bad in [&["-fplugin=/tmp/x.so"][..], &["-Xclang", "-ast-dump"], &["@index"], &["m0000"]] {
        let mut prepared = jobs.prepare(0);
        prepared.request.args.extend(bad.iter().map(|&word| word.to_owned()));
        let text = reason(worker.answer(&mut prepared).answer(), "refused");
        assert!(text.contains(bad[0]), "{text}");
    }
    let mut prepared = jobs.prepare(0);
    prepared.request.args.clear();
    reason(worker.answer(&mut prepared).answer(), "refused");
}

#[test]
fn pieces_that_nobody_keeps_here_are_missing() {
    skip_without!("clang-22", "ld.lld-22");
    let (jobs, worker) = (modules(&[]), Worker::new(""));
    let mut prepared = jobs.prepare(0);
    prepared.hold(|_| true);
    let answered = worker.answer(&mut prepared);
    let Answer::MissingPieces { pieces } = answered.answer() else {
        panic!("{:?}", answered.answer())
    };
    assert!(pieces.len() >= 2);
    assert_eq!(worker.left(), [""; 0]);
}

/// What the bridge makes of the response to bytes that are not those of `prepared`'s request.
fn fault(worker: &Worker, prepared: &Prepared) -> Fault {
    let output = worker.run([worker.folder.path("request"), worker.folder.path("response")]).go();
    assert!(output.status.success() && output.stderr.is_empty(), "{output}");
    let response = File::open(worker.folder.path("response")).unwrap();
    let expected = Expected { nonce: prepared.request.nonce, link: "7f3a", outputs: &[] };
    match receive(response, &expected, &Limits::default()) {
        Err(fault) => fault,
        Ok(received) => match received.response.answer {
            Answer::Failed { reason } => Fault::Unaddressed(reason),
            other => panic!("{other:?}"),
        },
    }
}

#[test]
fn a_request_that_was_harmed_is_answered() {
    skip_without!("clang-22", "ld.lld-22");
    let (jobs, worker) = (modules(&[]), Worker::new(""));
    let mut prepared = jobs.prepare(0);
    let whole = fs::read(worker.pack(&mut prepared)).unwrap();
    let mut flipped = whole.clone();
    *flipped.last_mut().unwrap() ^= 1;
    for (bytes, expected) in [
        (&whole[..whole.len() - 1], "cut off"),
        (&whole[..50], "cut off within its header"),
        (b"", "cut off within its header"),
        (b"int main() {}", "no bundle"),
        (&flipped, "damaged"),
    ] {
        worker.folder.write("request", bytes);
        let text = fault(&worker, &prepared).to_string();
        assert!(text.contains(expected), "{text}");
    }
    fs::remove_file(worker.folder.path("request")).unwrap();
    let text = fault(&worker, &prepared).to_string();
    assert!(text.contains("No such file"), "{text}");
}

#[test]
fn a_request_from_the_future_is_answered_in_the_header() {
    skip_without!("clang-22", "ld.lld-22");
    let (jobs, worker) = (modules(&[]), Worker::new(""));
    let mut prepared = jobs.prepare(0);
    let request = worker.pack(&mut prepared);
    let mut bytes = fs::read(&request).unwrap();
    bytes[22..26].copy_from_slice(&[200, 0, 199, 0]);
    let check = blake3::hash(&bytes[..128]);
    bytes[128..136].copy_from_slice(&check.as_bytes()[..8]);
    fs::write(&request, bytes).unwrap();
    let output = worker.run([request, worker.folder.path("response")]).go().ok();
    let answered = worker.read(&prepared, output);
    assert_eq!(*answered.answer(), Answer::CannotRead { newest: 1, oldest: 1 });
}

#[test]
fn without_a_place_for_the_response_the_exit_code_tells() {
    let worker = Worker::new("");
    worker.run(["--jobs"]).go().code(2).stderr_has("expected: worker IN OUT");
    worker.run(["in", "/not/there/out"]).go().code(2).stderr_has("no response in /not/there/out");
}

#[test]
fn claims_do_not_break_the_log() {
    skip_without!("clang-22", "ld.lld-22");
    let (jobs, worker) = (modules(&[]), Worker::new(""));
    let mut prepared = jobs.prepare(0);
    prepared.request.user = "me\n{\"result\": \"ran\"}\u{1b}[2J".into();
    worker.answer(&mut prepared).done();
    let logged = worker.logged();
    assert_eq!(logged["user"], "me?{\"result\": \"ran\"}?[2J", "{logged}");
}

#[test]
fn check_and_status_tell_the_owner_what_is_in_force() {
    skip_without!("clang-22", "ld.lld-22");
    let (jobs, worker) = (modules(&[]), Worker::new(r#""limits": {"memory": "1G", "time": 77}"#));
    let check = worker.run(["--check"]).go().ok();
    for text in ["worker.json", "22.1.8", "memory 1024 MiB a job", "77 s", "this worker takes jobs"]
    {
        assert!(check.stdout.contains(text), "{text}: {check}");
    }
    worker.answer(&mut jobs.prepare(0)).done();
    let mut refused = jobs.prepare(1);
    refused.request.args.push("-v".into());
    worker.answer(&mut refused);
    let status = worker.run(["--status"]).go().ok();
    assert!(status.stdout.starts_with("2 requests since 20"), "{status}");
    assert!(status.stdout.contains("1 ran, 1 refused"), "{status}");
    let worker = Worker::with(r#""/opt/no/clang""#, "");
    let check = worker.run(["--check"]).go().code(4);
    assert!(check.stdout.contains("refuses all jobs"), "{check}");
}

#[test]
fn help_is_the_bridges_own() {
    let help = Run::new(bridge_path()).args(["worker", "--help"]).go().ok();
    assert!(help.stdout.contains("worker IN OUT"), "{help}");
}

#[test]
fn config_files_that_agree_apply_and_others_are_refused() {
    skip_without!("clang-22", "ld.lld-22");
    let real = fs::canonicalize(tool("clang-22")).unwrap();
    let folder = Folder::new();
    let copy = folder.mkdir("bin").join("clang");
    fs::copy(&real, &copy).unwrap();
    symlink(real.parent().unwrap().with_file_name("lib"), folder.path("lib")).unwrap();
    let jobs = modules(&[]);
    let plain = jobs.made_here(0);
    folder.write("bin/clang.cfg", "-fno-unique-section-names\n");
    let worker = Worker::with(&format!("{copy:?}"), "");
    let text = reason(worker.answer(&mut jobs.prepare(0)).answer(), "other_compiler");
    assert!(text.contains("clang.cfg"), "{text}");
    let mut prepared = jobs.prepare(0);
    prepared.request.compiler = kit::identity(&copy);
    let object = worker.answer(&mut prepared).done();
    assert!(object != plain, "the config file had no effect");
    let own = clang_with(&copy, &jobs);
    assert!(object == own);
}

/// The object of the first job, made here by `compiler`.
fn clang_with(compiler: &Path, jobs: &LinkJobs) -> Vec<u8> {
    let job = &jobs.file.jobs[0];
    let args = job.args.iter().map(|arg| &**arg);
    Run::new(compiler).args(args).cwd(jobs.folder.path("")).go().ok();
    jobs.folder.read(&*job.object)
}

#[test]
fn names_that_lead_out_of_the_folder_are_refused_before_anything_is_unpacked() {
    skip_without!("clang-22", "ld.lld-22");
    let (jobs, worker) = (modules(&[]), Worker::new(""));
    let long = "x".repeat(300);
    let bad =
        ["/etc/x", "../x", "a/../../x", "a/./b", "a//b", "", ".x", "-o", "a b", "a\0b", &long];
    for name in bad.into_iter().chain(["out.o", "index", "index/x"]) {
        for output in [false, true] {
            let mut prepared = jobs.prepare(0);
            let request = &mut prepared.request;
            match output {
                true => request.outputs.push(name.into()),
                false => request.files.last_mut().unwrap().name = name.into(),
            }
            let path = worker.folder.path("request");
            if prepared.pack(File::create(&path).unwrap(), &Limits::default()).is_err() {
                continue;
            }
            let output = worker.run([path, worker.folder.path("response")]).go().ok();
            let answered = worker.read_without_outputs(&prepared, output);
            let text = reason(&answered.received.response.answer, "refused");
            assert!(text.contains("names"), "{name:?}: {text}");
            assert_eq!(worker.left(), [""; 0]);
        }
    }
}
