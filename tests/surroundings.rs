//! A link in hard surroundings: full disks, odd job files, no home, no name, no terminal, closed
//! streams, many jobs, company. These tests make the surroundings; they do not know how the bridge
//! copes.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests start programs, and may panic

mod kit;

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};

use kit::{Folder, Jobs, Lld, MAKE, Run, bridge, bridge_path, skip, skip_without};

const CLANG: &str = r#"exec clang-22 "$@""#;

/// A shell that is root in a mount namespace of its own runs `script`; `None` where it cannot.
fn in_namespace(script: &str) -> Option<Run> {
    let command = ["unshare", "--mount", "sh", "-c", "mount -t tmpfs none /mnt"];
    let possible = Run::new(command[0]).args(&command[1..]).go();
    if possible.status.success() {
        return Some(Run::new(command[0]).args(&command[1..4]).args([script, bridge_path()]));
    }
    kit::skipped(&format!("root, who can mount, is needed: {possible}"));
    None
}

// Places.

#[test]
fn a_full_disk_fails_the_jobs_in_the_compilers_words() {
    skip_without!("clang-22", "ld.lld-22", "unshare");
    let script = r#"mkdir keep && mv *.thinlto.bc *.json keep && mkdir small &&
        mount -t tmpfs -o size=64k none small && mv keep/* *.o small && cd small &&
        { cat /dev/zero > filler 2>/dev/null; "$0" --stats=../stats.json *.json; code=$?; ls -A; exit $code; }"#;
    let Some(run) = in_namespace(script) else { return };
    let lld = Lld::kept(CLANG);
    let output = run.cwd(lld.folder.path("link")).go().code(1);
    let output = output.stderr_has("No space left on device");
    assert!(
        !output.stdout.contains(".native.o\n") && !output.stdout.contains(".dtlto"),
        "{output}"
    );
    assert!(lld.folder.text("link/stats.json").contains("\"failed\":3"));
}

#[test]
fn a_full_disk_that_the_compiler_overlooks_fails_the_jobs_too() {
    skip_without!("clang-22", "unshare");
    let script = r#"mkdir small && mount -t tmpfs -o size=64k none small && cp *.* compiler seed small &&
        cd small && { cat /dev/zero > filler 2>/dev/null; "$0" jobs.json; code=$?; ls; exit $code; }"#;
    let Some(run) = in_namespace(script) else { return };
    let jobs = Jobs::new(2, &format!("{MAKE} 2>/dev/null; exit 0"));
    let output =
        run.cwd(jobs.folder.path("")).go().code(1).stderr_has("exited with 0 but m0.native.o: is ");
    assert!(!output.stdout.contains(".native.o"), "{output}");
}

#[test]
fn a_folder_that_cannot_be_written_is_an_error_with_stats() {
    skip_without!("clang-22", "unshare");
    let script = r#"mkdir ../stats && mount --bind ../stats /mnt && mount --bind . . && cd ../deep && mount -o remount,ro,bind . &&
        exec "$0" --stats=/mnt/stats.json jobs.json"#;
    let Some(run) = in_namespace(script) else { return };
    let jobs = Jobs::new(1, MAKE);
    let deep = jobs.folder.mkdir("deep");
    for name in jobs.folder.list("").iter().filter(|name| !name.ends_with('/')) {
        fs::copy(jobs.folder.path(name), deep.join(name)).unwrap();
    }
    run.cwd(deep).go().code(3).stderr_has("cannot write into the output folder");
    let stats: serde_json::Value =
        serde_json::from_slice(&jobs.folder.read("stats/stats.json")).unwrap();
    assert_eq!((&stats["jobs"], &stats["failed"]), (&1.into(), &1.into()));
}

#[test]
fn an_output_that_cannot_be_is_named_before_anything_runs() {
    skip_without!("clang-22");
    let jobs = Jobs::new(2, &format!("echo >> ran\n{MAKE}"));
    jobs.folder.mkdir("m1.native.o");
    jobs.go(&[]).code(3).stderr_has("m1.native.o: a folder has the name of this output");
    fs::remove_dir(jobs.folder.path("m1.native.o")).unwrap();
    let text = jobs.folder.text("jobs.json").replace("m1.native.o", "no/m1.native.o");
    jobs.folder.write("jobs.json", text);
    jobs.go(&[]).code(3).stderr_has("no/m1.native.o: there is no folder \"no\" for it");
    assert_eq!(jobs.made(), [""; 0]);
}

// Job files.

#[test]
fn a_job_file_that_is_none_is_an_error_that_names_it() {
    skip_without!("clang-22");
    let jobs = Jobs::new(3, MAKE);
    let whole = jobs.folder.read("jobs.json");
    let pipe = jobs.folder.path("pipe");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    jobs.folder.mkdir("folder");
    jobs.folder.write("cut", &whole[..whole.len() / 2]);
    jobs.folder.write("text", "no JSON");
    jobs.folder.write("empty", "");
    symlink("nowhere", jobs.folder.path("dangling")).unwrap();
    for name in ["pipe", "folder", "cut", "text", "empty", "dangling", "missing", "/dev/zero"] {
        let run = bridge().args(["--stats=stats.json", name]).cwd(jobs.folder.path("")).limit(10);
        run.go().code(3).stdout_is("").stderr_has(&format!("error: job file {name}: "));
    }
    assert!(!jobs.folder.path("stats.json").exists());
}

#[test]
fn a_link_to_standard_output_works() {
    skip_without!("clang-22", "ld.lld-22");
    let lld = Lld::new(CLANG);
    lld.link(&[]).go().ok();
    let expected = lld.folder.read("link/app");
    let run = lld.command(&["sh", "-c", "\"$@\" -o - > piped", "sh"], bridge_path());
    run.go().ok().stderr_has("3 jobs in");
    assert!(lld.folder.read("link/piped") == expected, "the programs differ");
}

#[test]
fn a_job_file_whose_name_begins_with_a_dash_is_read() {
    skip_without!("clang-22");
    let jobs = Jobs::new(1, MAKE);
    for name in ["-.77.dist-file.json", "--quiet", "-v"] {
        fs::copy(jobs.folder.path("jobs.json"), jobs.folder.path(name)).unwrap();
        bridge().arg(name).cwd(jobs.folder.path("")).go().ok().stderr_has("1 job in");
        fs::remove_file(jobs.folder.path(name)).unwrap();
    }
}

#[test]
fn two_thousand_jobs_are_run() {
    skip_without!("clang-22");
    let jobs = Jobs::new(2000, MAKE);
    let fast = jobs.fast_compiler();
    jobs.write(&fast, |_| Vec::new());
    jobs.go(&[]).ok().stderr_has("2000 jobs in");
    assert_eq!(jobs.made(), jobs.objects());
    assert_eq!(jobs.stats()["places"]["local"], 2000);
}

#[test]
fn two_links_in_one_folder_do_not_disturb_each_other() {
    skip_without!("clang-22", "ld.lld-22");
    let lld = Lld::new(&format!("sleep 0.1\n{CLANG}"));
    let links = ["one", "two"].map(|name| lld.link(&["-o", name]).start());
    for link in links {
        link.wait().ok().stderr_has("3 jobs in");
    }
    assert!(lld.folder.read("link/one") == lld.folder.read("link/two"), "the programs differ");
    assert_eq!(lld.made(), ["one", "two"]);
}

// Users and terminals.

#[test]
fn no_home_is_needed() {
    skip_without!("clang-22");
    let jobs = Jobs::new(1, MAKE);
    jobs.run(&[]).env_remove("HOME").env_remove("XDG_CONFIG_HOME").go().ok();
    for home in ["", "/nonexistent", "/proc", "/dev/null", "relative"] {
        jobs.run(&[]).env("HOME", home).env("XDG_CONFIG_HOME", home).go().ok();
    }
    let bare = jobs.run(&[]).env_clear().env("PATH", "/usr/bin:/bin");
    bare.go().ok().stderr_has("1 job in").stderr_lacks("notice");
    let none = jobs.run(&[]).env_clear();
    none.go().ok().stderr_has("1 job in");
    assert_eq!(jobs.made(), ["m0.native.o"]);
}

#[test]
fn a_tiny_folder_for_temporary_files_is_enough() {
    skip_without!("clang-22", "ld.lld-22", "unshare");
    let script = r#"mount -t tmpfs -o size=1m none /mnt && cat /dev/zero > /mnt/filler 2>/dev/null;
        TMPDIR=/mnt "$0" *.json && ls -A /mnt"#;
    let Some(run) = in_namespace(script) else { return };
    let lld = Lld::kept(CLANG);
    run.cwd(lld.folder.path("link")).go().ok().stdout_is("filler\n");
    assert_eq!(lld.objects().len(), 3);
}

#[test]
fn a_user_without_a_name_can_link() {
    skip_without!("clang-22", "ld.lld-22", "setpriv");
    const UID: u32 = 54_321;
    if !rustix::process::getuid().is_root() {
        skip!("only root can become another user");
    }
    let lld = Lld::new(CLANG);
    // Where the build is kept, the user may not be able to go.
    fs::copy(bridge_path(), lld.folder.path("bridge")).unwrap();
    for name in ["", "link"] {
        chown(lld.folder.path(name), Some(UID), Some(UID)).unwrap();
    }
    let id = UID.to_string();
    let as_user = ["setpriv", "--reuid", &id, "--regid", &id, "--clear-groups"];
    let bridge = lld.folder.path("bridge").display().to_string();
    // A home that belongs to another user, as `su` leaves it, is passed over.
    let home = lld.folder.mkdir("home");
    fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).unwrap();
    let run = lld.command(&as_user, &bridge).env("HOME", home);
    run.go().ok().stderr_has("3 jobs in");
    // The locks that users share are below /tmp for them, named after the number.
    let _ = fs::remove_dir_all(format!("/tmp/dtlto-bridge-{UID}"));
}

#[test]
fn no_terminal_is_needed() {
    skip_without!("clang-22", "setsid");
    let jobs = Jobs::new(1, MAKE);
    let run = Run::new("setsid").args(["--wait", bridge_path(), "jobs.json"]);
    run.cwd(jobs.folder.path("")).go().ok().stderr_has("1 job in").stderr_lacks("\u{1b}");
}

#[test]
fn closed_streams_do_not_harm_a_link() {
    skip_without!("clang-22", "ld.lld-22");
    for closed in ["<&-", ">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"] {
        let lld = Lld::new(&format!("echo said; echo warned >&2\n{CLANG}"));
        let script = format!("\"{}\" \"$@\" {closed}", bridge_path());
        let script = lld.folder.script("distributor", &script).display().to_string();
        let output = lld.command(&[], &script).go().ok().stdout_is("");
        assert_eq!(lld.made(), ["app"], "{closed}: {output}");
    }
}

#[test]
fn a_stream_that_is_full_does_not_harm_a_link() {
    skip_without!("clang-22");
    let jobs = Jobs::new(1, &format!("echo warned >&2\n{MAKE}"));
    let script = "\"$0\" -v --progress=plain jobs.json 2>/dev/full";
    Run::new("sh").args(["-c", script, bridge_path()]).cwd(jobs.folder.path("")).go().ok();
    assert_eq!(jobs.made(), ["m0.native.o"]);
}

#[test]
fn a_reader_that_goes_away_does_not_harm_a_link() {
    skip_without!("clang-22");
    let jobs = Jobs::new(3, &format!("sleep 0.05; echo warned >&2\n{MAKE}"));
    let script = "{ \"$0\" -v jobs.json; echo $? > code; } 2>&1 | true";
    Run::new("sh").args(["-c", script, bridge_path()]).cwd(jobs.folder.path("")).go().ok();
    kit::until("an end", || {
        jobs.folder.path("code").exists() && !jobs.folder.text("code").is_empty()
    });
    assert_eq!(jobs.folder.text("code"), "0\n");
}

#[test]
fn a_folder_that_was_removed_is_an_error() {
    let folder = Folder::new();
    let script = "mkdir gone && cd gone && rmdir ../gone && exec \"$0\" jobs.json";
    let run = Run::new("sh").args(["-c", script, bridge_path()]).cwd(folder.path(""));
    run.go().code(3).stderr_has("job file jobs.json: no such file");
}

#[test]
fn an_output_that_is_an_input_under_another_name_is_not_removed() {
    skip_without!("clang-22");
    let jobs = Jobs::new(2, MAKE);
    fs::hard_link(jobs.folder.path("m1.o"), jobs.folder.path("m0.native.o")).unwrap();
    jobs.go(&[]).code(3).stderr_has("the output m0.native.o is the input m1.o");
    assert_eq!(jobs.folder.text("m1.o"), "module 1");
    assert!(jobs.folder.path("m0.native.o").exists());
}

#[test]
fn a_machine_without_room_for_more_processes_runs_fewer_at_once() {
    skip_without!("clang-22", "setpriv", "prlimit");
    const UID: &str = "54322";
    if !rustix::process::getuid().is_root() {
        skip!("only root can become another user");
    }
    let jobs = Jobs::new(200, MAKE);
    // It starts no further process, which could not be had either.
    let fast = jobs.fast_compiler();
    jobs.write(&fast, |_| Vec::new());
    fs::copy(bridge_path(), jobs.folder.path("bridge")).unwrap();
    chown(jobs.folder.path(""), Some(UID.parse().unwrap()), None).unwrap();
    let run = Run::new("setpriv").args(["--reuid", UID, "--regid", UID, "--clear-groups"]);
    let limited = ["prlimit", "--nproc=24", "./bridge", "-v", "--local-jobs=64", "jobs.json"];
    let output = run.args(limited).cwd(jobs.folder.path("")).go().ok();
    output.stderr_has("at once (local)").stderr_has("200 jobs in");
    let _ = fs::remove_dir_all(format!("/tmp/dtlto-bridge-{UID}"));
}
