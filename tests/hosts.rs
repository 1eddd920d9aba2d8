//! distcc's list of hosts, and a farm of its daemons, with the real distcc. /etc is not touched.

#![allow(clippy::unwrap_used)] // tests may panic

mod kit;

use std::path::Path;
use std::time::{Duration, Instant};

use dtlto_bridge::hosts::list::{self, List, QUESTION};
use dtlto_bridge::hosts::probe::{Answer, Verdict};
use kit::{Folder, Output, Run, skip_without};
use rustix::process::Signal;

const FARM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/farm");
const WORKER: &str = "#!/bin/sh\nexec clang-22 -x cpp-output -c \"$2\" -o \"$4\"\n";

fn ask(home: &Folder) -> Run {
    let mut run = Run::new(kit::tool(QUESTION[0])).arg(QUESTION[1]).env("HOME", home.path(""));
    for name in ["DISTCC_HOSTS", "DISTCC_DIR", "DISTCC_LOG", "DISTCC_VERBOSE"] {
        run = run.env_remove(name);
    }
    run
}

fn read(output: &Output) -> anyhow::Result<List> {
    list::read(&output.stdout, &output.stderr)
}

fn in_list(home: &Folder, hosts: &str) -> anyhow::Result<List> {
    read(&ask(home).env("DISTCC_HOSTS", hosts).go().ok())
}

#[test]
fn hosts_are_found_in_the_users_own_file() {
    skip_without!("distcc");
    let home = Folder::new();
    home.write(".distcc/hosts", "# ours\nbuild1/3 build2:4801,lzo # fast\n--randomize\n");
    let list = read(&ask(&home).go().ok()).unwrap();
    let mut specs: Vec<_> = list.hosts.iter().map(|host| &*host.spec).collect();
    specs.sort_unstable();
    assert_eq!(specs, ["build1:3632/3", "build2:4801/4"]);
}

#[test]
fn all_forms_of_hosts_are_understood_as_distcc_does() {
    skip_without!("distcc");
    let home = Folder::new();
    let hosts = "--localslots=3 a b/2:70,lzo,cpp c/3 [::1]:4801/7 @d/2 me@e/3:/usr/bin/distccd,lzo \
                 f,lzo,auth=x";
    let list = in_list(&home, hosts).unwrap();
    let slots: Vec<_> = list.hosts.iter().map(|host| host.slots).collect();
    assert_eq!(slots, [4, 2, 3, 7, 2, 3, 4]);
    let all = Run::new(kit::tool("distcc")).arg("-j").env("HOME", home.path(""));
    let total = slots.iter().sum::<u32>();
    all.env("DISTCC_HOSTS", hosts).go().ok().stdout_is(&format!("{total}\n"));
    for host in &list.hosts {
        let again = in_list(&home, &host.spec).unwrap();
        assert_eq!(again.hosts, std::slice::from_ref(host));
    }
}

#[test]
fn this_machine_and_hosts_that_are_down_are_left_out() {
    skip_without!("distcc");
    let list = in_list(&Folder::new(), "localhost/2 a,down localhost b a/7").unwrap();
    let names: Vec<_> = list.hosts.iter().map(|host| &*host.name).collect();
    assert_eq!(names, ["b", "a"]);
    assert_eq!(list.notes.len(), 3);
}

#[test]
fn a_list_that_distcc_does_not_read_is_an_error_in_its_words() {
    skip_without!("distcc");
    for (hosts, words) in
        [("a b/x", "bad multiplier \"/x\""), ("a,foo", ",foo"), ("", "contained no hosts")]
    {
        let text = format!("{:#}", in_list(&Folder::new(), hosts).unwrap_err());
        assert!(text.contains(words), "{text}");
    }
}

/// A farm of two for a shell command, with a script for a worker.
fn farm(folder: &Folder, command: &str) -> Run {
    folder.write("worker", WORKER);
    folder.write("job.i", "int f(void) { return 3; }\n");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path("worker"), mode).unwrap();
    Run::new(FARM)
        .args(["run", "distcc", "2", "--", "sh", "-c", command])
        .env("FARM_WORKER", folder.path("worker"))
        .env("HOME", folder.path(""))
        .env("DISTCC_FALLBACK", "0")
        .env("DISTCC_SKIP_LOCAL_RETRY", "1")
        .env("DISTCC_IO_TIMEOUT", "20")
        .env_remove("DISTCC_HOSTS")
        .env_remove("DISTCC_DIR")
        .cwd(folder.path(""))
}

#[test]
fn a_farm_compiles_on_each_of_its_daemons_and_leaves_nothing() {
    skip_without!("distcc", "distccd", "clang-22");
    let folder = Folder::new();
    let command = "dirname $FARM_LOGS
        for host in $DISTCC_HOSTS; do
            DISTCC_HOSTS=$host distcc dtlto-worker -c job.i -o ${host%/*}.o || exit 1
        done
        sleep 0.3
        grep -l COMPILE_OK $FARM_LOGS/*.log | wc -l >served
        exit 7";
    let output = farm(&folder, command).go().code(7);
    assert_eq!(folder.read("served").trim_ascii(), b"2");
    let objects = folder.list("").into_iter().filter(|name| name.ends_with(".o"));
    assert_eq!(objects.count(), 2);
    assert!(!Path::new(output.stdout.trim()).exists());
}

#[test]
fn a_farm_does_not_outlive_a_script_that_is_killed() {
    skip_without!("distcc", "distccd");
    let folder = Folder::new();
    let running =
        farm(&folder, "dirname $FARM_LOGS >place.new; mv place.new place; sleep 60").start();
    let until = Instant::now() + Duration::from_secs(20);
    let place = loop {
        if let Ok(text) = std::fs::read_to_string(folder.path("place")) {
            break text;
        }
        assert!(Instant::now() < until, "no farm");
        std::thread::sleep(Duration::from_millis(20));
    };
    running.signal_group(Signal::KILL);
    while Path::new(place.trim()).exists() {
        assert!(Instant::now() < until, "{place} is still there");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn probes_of_real_daemons_are_told_apart() {
    skip_without!("distcc", "distccd", "clang-22");
    let folder = Folder::new();
    let command = "set -- $DISTCC_HOSTS
        probe() { # name, host, worker
            DISTCC_HOSTS=$2 distcc $3 -c job.i -o $1.out 2>$1.stderr
            echo $? >$1.code
        }
        probe good $1 dtlto-worker
        probe not-allowed $1 another-worker
        probe down 127.0.0.1:9 dtlto-worker
        probe unknown no-such-host.invalid dtlto-worker
        port=${2#*:}
        rm $FARM_LOGS/../${port%/*}/dtlto-worker
        probe missing $2 dtlto-worker
        mkdir bin && printf '#!/bin/sh\\nexit 86\\n' >bin/dtlto-worker && chmod +x bin/dtlto-worker
        PATH=$PWD/bin:$PATH
        probe here localhost dtlto-worker";
    farm(&folder, command).go().ok();
    let verdict = |name: &str, answer| {
        let text = |end| String::from_utf8(folder.read(format!("{name}.{end}"))).unwrap();
        Verdict::of(text("code").trim().parse().ok(), &text("stderr"), answer)
    };
    assert_eq!(verdict("good", Answer::Good { stores: false }), Verdict::Good { stores: false });
    assert_eq!(verdict("not-allowed", Answer::None), Verdict::NotAllowed);
    assert_eq!(verdict("missing", Answer::None), Verdict::WorkerMissing);
    let down = verdict("down", Answer::None).words();
    assert!(down.contains("127.0.0.1:9 failed: Connection refused"), "{down}");
    let unknown = verdict("unknown", Answer::None).words();
    assert!(unknown.contains("failed to resolve host no-such-host.invalid"), "{unknown}");
    let here = verdict("here", Answer::None).words();
    assert!(here.contains("on this machine"), "{here}");
}
