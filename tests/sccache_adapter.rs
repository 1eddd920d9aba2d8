//! Links on a real sccache-dist: each object's place by the bridge's word and by those of sccache's server and the farm,
//! and programs that are those of LLD in one process.

#![allow(clippy::unwrap_used)] // tests may panic

mod kit;

use std::fs;

use kit::dist::{DistFarm, as_user, dist_link, dist_stats, server_stats};
use kit::stores::User;
use kit::{Family, Folder, Modules, assert_bridged, bridge, link, missing, note, skip, until};
use rustix::process::{Signal, kill_process};
use serde_json::Value;

fn places(stats: &Value) -> [u64; 3] {
    ["cache", "farm", "local"].map(|place| stats["places"][place].as_u64().unwrap())
}

/// The sum of the counts below `field` of a server's statistics.
fn sum(stats: &Value, field: &str) -> u64 {
    let counts = stats["stats"][field].as_object().unwrap();
    counts
        .get("counts")
        .unwrap_or(&stats["stats"][field])
        .as_object()
        .unwrap()
        .values()
        .filter_map(Value::as_u64)
        .sum()
}

/// A program of so many modules, and the names of its objects; linked in one process as `expected`.
fn program(jobs: usize) -> (Folder, Vec<String>) {
    let folder = Folder::new();
    Family::compile_many(&folder, "o", &[], jobs);
    let objects: Vec<_> = (0..jobs).map(|n| format!("o/{}", Family::object(n))).collect();
    let run = link().args(&objects).args(["-lstdc++", "-o", "expected"]);
    run.cwd(folder.path("")).go().ok();
    (folder, objects)
}

#[track_caller]
fn assert_same_program(folder: &Folder, found: &str) {
    assert!(folder.read("expected") == folder.read(found), "the program");
    let left: Vec<_> = folder.list("").into_iter().filter(|name| name.contains("dtlto")).collect();
    assert_eq!(left, [""; 0]);
}

#[test]
fn all_jobs_go_to_the_farm_and_the_next_link_has_them_from_the_storage() {
    if let Some(why) = DistFarm::impossible() {
        skip!("{why}");
    }
    let (farm, (folder, objects)) = (DistFarm::new(), program(21));
    let user = farm.cold_user();
    let never = &["--fallback=never"];
    let output = dist_link(&user, &folder, &objects, "found", never).go().ok();
    assert_bridged(&output, 21);
    let stats = dist_stats(&folder);
    assert_eq!((places(&stats), stats["tool_local"].as_u64()), ([0, 21, 0], Some(0)), "{stats:#}");
    assert_same_program(&folder, "found");
    let told = server_stats(&user);
    assert_eq!((sum(&told, "dist_compiles"), sum(&told, "cache_misses")), (21, 21), "{told:#}");
    note("21 jobs on a cold farm", &output);

    let again = dist_link(&user, &folder, &objects, "found", never).go().ok();
    let stats = dist_stats(&folder);
    assert_eq!(places(&stats), [21, 0, 0], "{stats:#}{again}");
    let again = again.stderr_has("21 from sccache's storage, 0 on sccache, 0 here");
    assert_same_program(&folder, "found");
    let told = server_stats(&user);
    assert_eq!((sum(&told, "dist_compiles"), sum(&told, "cache_hits")), (21, 21), "{told:#}");
    note("21 jobs from the storage", &again);
    assert_eq!(user.servers().len(), 1);
}

#[test]
fn what_sccache_runs_here_by_itself_is_seen_and_counted() {
    if let Some(why) = DistFarm::impossible() {
        skip!("{why}");
    }
    let (mut farm, (folder, objects)) = (DistFarm::new(), program(6));
    let user = farm.user();
    farm.kill_host();
    let output = dist_link(&user, &folder, &objects, "found", &[]).go().ok();
    let stats = dist_stats(&folder);
    assert_eq!(
        (places(&stats), stats["tool_local"].as_u64()),
        ([0, 0, 6], Some(6)),
        "{stats:#}{output}"
    );
    assert_eq!(stats["fallbacks"], 6);
    assert_same_program(&folder, "found");
    // Not even from the storage, where they are now: another compiler would be asked for.
    let other = program(3);
    let output =
        dist_link(&user, &other.0, &other.1, "found", &["--fallback=never", "--retries=1"]).go();
    let stats = dist_stats(&other.0);
    assert!(!output.status.success(), "{output}");
    assert_eq!(places(&stats)[1..], [0, 0], "{stats:#}{output}");
    assert!(stats["tool_local"].as_u64() > Some(0), "{stats:#}");
}

/// One module that takes a while, so that its compiler can be watched, and another; the names of their objects.
fn slow_program(folder: &Folder) -> Vec<String> {
    let body = "int a[32]; for (int i = 0; i < 32; i++) a[i] = x * i; int s = 0; \
                for (int i = 0; i < 32; i++) s += a[i] ^ g(s + a[i]); return s;";
    let functions: String = (0..2500).map(|n| format!("int f{n}(int x) {{ {body} }}\n")).collect();
    folder.write("slow.c", format!("int g(int);\n{functions}int main(void) {{ return f7(0); }}\n"));
    folder.write("g.c", "int g(int x) { return x; }\n");
    let run = kit::clang().args(["-O1", "-flto=thin", "-c", "slow.c", "g.c"]);
    run.cwd(folder.path("")).go().ok();
    ["slow.o", "g.o"].map(str::to_owned).into()
}

/// A process that has a job of the [slow program](slow_program) among its arguments: its program, its environment, and whether it sees other files
/// than we do.
type Seen = (String, String, bool);

fn job_processes() -> Vec<Seen> {
    let space = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    let look = |process: String| {
        let words = fs::read(format!("/proc/{process}/cmdline")).ok()?;
        let words = String::from_utf8_lossy(&words).into_owned();
        let environment = fs::read(format!("/proc/{process}/environ")).ok()?;
        let program = words.split('\0').next()?.to_owned();
        (words.contains("-fthinlto-index=") && words.contains("slow.o")).then(|| {
            let text = String::from_utf8_lossy(&environment).into_owned();
            (program, text, space(&process) != space("self"))
        })
    };
    let all = fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(|entry| look(entry.file_name().into_string().ok()?)).collect()
}

#[test]
fn no_secret_of_the_bridge_reaches_a_client_the_farm_or_a_compiler_here() {
    if let Some(why) = DistFarm::impossible() {
        skip!("{why}");
    }
    let mut farm = DistFarm::new();
    for (on_farm, user) in [(true, farm.user()), (false, farm.user())] {
        let folder = Folder::new();
        let objects = slow_program(&folder);
        if !on_farm {
            farm.kill_host();
        }
        let run = dist_link(&user, &folder, &objects, "found", &[]);
        let run = run.env("TEAMS_TOKEN", "hush-hush").env("AWS_SECRET_ACCESS_KEY", "hush-hush");
        let mut seen: Vec<Seen> = Vec::new();
        let compiler =
            |(program, _, elsewhere): &Seen| program.ends_with("clang") && *elsewhere == on_farm;
        let running = run.start();
        until("a compiler at work", || {
            seen.extend(job_processes());
            seen.iter().any(|seen| compiler(seen) && seen.1.contains("CCC_OVERRIDE_OPTIONS"))
        });
        running.wait().ok();
        assert!(seen.iter().any(|(program, ..)| program.ends_with("sccache")), "{seen:?}");
        let told: Vec<_> =
            seen.iter().filter(|(_, environment, _)| environment.contains("hush")).collect();
        assert!(told.is_empty(), "{told:?}");
        assert_eq!(
            places(&dist_stats(&folder))[if on_farm { 1 } else { 2 }],
            2,
            "on the farm: {on_farm}"
        );
    }
}

#[test]
fn a_server_that_dies_in_the_middle_of_a_link_is_started_again() {
    if let Some(why) = DistFarm::impossible() {
        skip!("{why}");
    }
    let farm = DistFarm::new();
    let (user, folder) = (farm.user(), Folder::new());
    let objects = slow_program(&folder);
    let running = dist_link(&user, &folder, &objects, "found", &[]).start();
    until("a compiler at work", || job_processes().iter().any(|(.., elsewhere)| *elsewhere));
    user.kill_server();
    let output = running.wait().ok();
    let stats = dist_stats(&folder);
    assert_eq!(places(&stats).iter().sum::<u64>(), 2, "{stats:#}{output}");
    let left: Vec<_> = folder.list("").into_iter().filter(|name| name.contains("dtlto")).collect();
    assert_eq!(left, [""; 0]);
}

#[test]
fn a_bridge_that_is_killed_leaves_the_server_and_no_file() {
    if let Some(why) = DistFarm::impossible() {
        skip!("{why}");
    }
    let farm = DistFarm::new();
    let (user, folder) = (farm.user(), Folder::new());
    let objects = slow_program(&folder);
    let before = folder.list("");
    let running = dist_link(&user, &folder, &objects, "found", &[]).start();
    until("a compiler at work", || job_processes().iter().any(|(.., elsewhere)| *elsewhere));
    assert_ne!(folder.list(""), before);
    kill_process(user.marked.find("dtlto-bridge", "--adapter=sccache"), Signal::KILL).unwrap();
    assert!(!running.wait().status.success());
    until("the files are gone", || folder.list("").iter().all(|name| !name.contains("dtlto")));
    assert_eq!(user.servers().len(), 1, "it has a session of its own");
}

#[test]
fn a_folder_with_a_colon_keeps_its_jobs_here() {
    if let Some(why) = DistFarm::impossible() {
        skip!("{why}");
    }
    let farm = DistFarm::new();
    let (user, folder) = (farm.user(), Folder::new());
    Modules::compile(&folder, "a:b", &[]);
    let objects = ["a.o", "b.o", "c.o"].map(str::to_owned);
    let run = dist_link(&user, &folder, &objects, "found", &[]).cwd(folder.path("a:b"));
    run.go()
        .ok()
        .stderr_has("3 jobs could not go to sccache: the name of a file or folder has a colon");
    assert_eq!(places(&dist_stats(&folder)), [0, 0, 3]);
}

#[test]
fn objects_for_windows_are_identical_unless_they_hold_names_and_stay_here() {
    if let Some(why) = DistFarm::impossible().or_else(|| missing(&["lld-link-22"])) {
        skip!("{why}");
    }
    let farm = DistFarm::new();
    let user = farm.user();
    for (debug, expected) in [("-g0", [0, 3, 0]), ("-g", [0, 0, 3])] {
        let folder = Folder::new();
        Modules::compile(
            &folder,
            "",
            &["--target=x86_64-pc-windows-msvc", "-ffreestanding", debug],
        );
        let run = kit::lld_link()
            .args(["/nodefaultlib", "/entry:main", "/subsystem:console", "/timestamp:0"])
            .args(["/out:app.exe", "/lldsavetemps", "a.o", "b.o", "c.o"])
            .args(
                ["--adapter=sccache", "--stats=stats.json"]
                    .map(|o| format!("/thinlto-distributor-arg:{o}")),
            )
            .arg(format!("/thinlto-distributor:{}", kit::bridge_path()))
            .arg(format!("/thinlto-remote-compiler:{}", kit::tool("clang-22").display()))
            .cwd(folder.path(""));
        as_user(&user, run).go().ok();
        assert_eq!(places(&dist_stats(&folder)), expected, "{debug}");
        kit::assert_own_commands(&folder, "", |mut object| {
            object[4..8].fill(0);
            object
        });
    }
}

#[test]
fn without_a_scheduler_there_is_no_farm() {
    if let Some(why) = DistFarm::impossible() {
        skip!("{why}");
    }
    let ((folder, objects), user) = (program(3), User::new());
    let output = dist_link(&user, &folder, &objects, "found", &[]).go().ok();
    let output = output.stderr_has("sccache has no farm: Disabled");
    assert_eq!(places(&dist_stats(&folder)), [0, 0, 3], "{output}");
    assert_same_program(&folder, "found");
    let never = dist_link(&user, &folder, &objects, "found", &["--fallback=never"]).go();
    never.stderr_has("sccache has no farm: Disabled").stderr_has("sccache cannot be used");
}

#[test]
fn names_that_sccache_would_split_stay_here() {
    let folder = Folder::new();
    let job = serde_json::json!({
        "args": ["a:b.o", "-fthinlto-index=i.thinlto.bc", "-o", "n.o"],
        "inputs": ["a:b.o", "i.thinlto.bc"], "outputs": ["n.o"],
    });
    let common = serde_json::json!({
        "linker_output": "app", "inputs": [], "args": ["clang-22", "-c", "-O2"],
    });
    folder.write("jobs.json", serde_json::json!({"common": common, "jobs": [job]}).to_string());
    let run = bridge().args(["--adapter=sccache", "--dry-run", "jobs.json"]).cwd(folder.path(""));
    run.go().stderr_has("stays here: the name of an input has a colon");
}
