//! The bridge on Windows, as Wine has it: job files as lld-link writes them there, a stand-in for clang, and the
//! promises about faults and about what may outlive whom. These tests do not know how the bridge keeps them; what
//! real objects are, is shown elsewhere.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests start programs, and may panic

mod kit;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kit::windows_link::{PLACE, SOON, WindowsLink, index, object};
use kit::{Folder, Modules, Wine, bridge_path, lld_link, on_windows, skip_without, until};
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

/// The second job alone is to go wrong.
fn fault(name: &str) -> impl Fn(usize) -> Vec<String> {
    let word = format!("--fault={name}");
    move |job| if job == 1 { vec![word.clone()] } else { Vec::new() }
}

#[test]
fn a_job_file_of_lld_link_is_run_and_arguments_arrive_exactly() {
    let Some(wine) = Wine::get() else { return };
    let odd = [
        "-DA=b \"c\" \\",
        "-",
        "-D",
        "-DB=\\\\\"x\\\\",
        "-D%PATH%",
        "-D^&|<>",
        "-Dä ö\tü€😀",
        "-D'$x'",
    ];
    let link = WindowsLink::new(wine, 5, |_| odd.map(str::to_owned).to_vec());
    let output = link.go(&["-v", "--trace=trace.json"]).ok();
    link.made_all();
    let argvs = link.argvs();
    assert_eq!(argvs.len(), 5);
    assert!(argvs.iter().all(|argv| argv.ends_with(&odd.join("\n"))), "{argvs:#?}");
    let stats = link.stats();
    assert_eq!((&stats["jobs"], &stats["failed"]), (&json!(5), &json!(0)), "{stats:#}");
    assert_eq!(stats["places"]["local"], json!(5), "{stats:#}");
    let sizes: usize = (0..5).map(|n| link.folder.read(index(n)).len() + 8).sum();
    assert_eq!(stats["bytes"]["distinct"], json!(sizes), "{stats:#}");
    assert!(output.stderr.contains("\"-DA=b \\\"c\\\" \\\\\""), "quoted for Windows: {output}");
    assert!(link.folder.text("link/trace.json").contains("m4.obj"));
    // Old objects are in the way, and go.
    link.go(&[]).ok();
    link.made_all();
}

#[test]
fn a_plan_is_printed_and_writes_nothing() {
    let Some(wine) = Wine::get() else { return };
    let link = WindowsLink::new(wine, 2, |_| Vec::new());
    link.go(&["--dry-run"]).ok().stderr_has("m1.obj");
    assert_eq!(link.left(), 0);
}

#[test]
fn faults_of_a_compiler_fail_the_link_and_leave_nothing() {
    let Some(wine) = Wine::get() else { return };
    let cases = [
        ("error", "o\\m1.obj: error: the stand-in was asked to fail: ä"),
        ("crash", "was killed by exception 0xc"),
        ("missing", "was not made"),
        ("empty", "is empty"),
    ];
    for (name, said) in cases {
        let link = WindowsLink::new(wine.clone(), 2, fault(name));
        let output = link.go(&[]).code(1).stderr_has(said).stderr_has("to repeat it: Z:\\");
        assert!(output.stderr.contains("o\\m1.obj (jobs[1])"), "{output}");
        assert!(!link.folder.path(format!("link/{}", object(1).replace('\\', "/"))).exists());
        assert_eq!(link.stats()["failed"], json!(1), "{name}");
    }
}

#[test]
fn a_compiler_that_takes_too_long_ends_with_all_that_it_started() {
    let Some(wine) = Wine::get() else { return };
    let link = WindowsLink::new(wine, 2, fault("hang"));
    link.go(&["--timeout=2"]).code(1).stderr_has("it took longer than 2.0 s");
}

#[test]
fn a_program_that_outlives_its_compiler_is_ended_and_what_was_printed_is_kept() {
    let Some(wine) = Wine::get() else { return };
    let more = |n: usize| vec![format!("--fault={}", ["orphan", "flood", "warn"][n])];
    let link = WindowsLink::new(wine, 3, more);
    let output = link.go(&[]).ok().stderr_has("m2.obj: warning: a word of the compiler");
    assert!(output.stderr.contains("bytes left out here"), "{} bytes", output.stderr.len());
    link.made_all();
}

#[test]
fn paths_may_be_longer_than_260_characters() {
    let Some(wine) = Wine::get() else { return };
    let deep = ["a folder with a long name of some sixty characters, so it is"; 5].join("/");
    let link = WindowsLink::at(wine, &deep, 2, |_| Vec::new());
    // No program of Windows can have so long a current folder: all by absolute names.
    let place = on_windows(&link.folder.path(&deep));
    assert!(place.len() > 300);
    let text = link.folder.text("link/jobs.json");
    let full = format!("{place}\\o\\m").replace('\\', "\\\\");
    link.folder.write("jobs.json", text.replace("o\\\\m", &full));
    for n in 0..2 {
        link.folder.write(index(n), format!("index {n}\n{place}\\o\\m0.obj\n"));
    }
    let run = link.in_place(link.wine.bridge()).cwd(link.folder.path(""));
    run.env_remove("DTLTO_BRIDGE_STATS").arg("jobs.json").go().ok();
    link.made_all();
}

#[test]
fn a_folder_may_be_spelled_in_many_ways() {
    let Some(wine) = Wine::get() else { return };
    let link = WindowsLink::at(wine, "Some Place", 4, |_| Vec::new());
    let place = on_windows(&link.folder.path("Some Place"));
    let mut file: Value = serde_json::from_str(&link.folder.text("link/jobs.json")).unwrap();
    let plain = format!("{place}\\out\\");
    let spelled = [
        format!("{place}\\OUT\\"),
        format!("\\\\?\\{plain}"),
        plain.replace('\\', "/").replace("Z:", "z:"),
        ".\\out\\..\\Out\\".to_owned(),
    ];
    for (job, spelled) in file["jobs"].as_array_mut().unwrap().iter_mut().zip(spelled) {
        let other = |word: &str| Value::from(word.replace(&plain, &spelled));
        for part in ["args", "outputs"] {
            let words = job[part].as_array_mut().unwrap();
            words.iter_mut().for_each(|word| *word = other(word.as_str().unwrap()));
        }
        let index = job["args"][1].as_str().unwrap().split_once('=').unwrap().1.to_owned();
        job["inputs"][1] = Value::from(index);
    }
    link.folder.write("link/jobs.json", file.to_string());
    link.go(&["--adapter=local"]).ok();
    link.made_all();
    // An old output that is an input, too.
    file["jobs"][3]["outputs"][0] = json!("O\\M0.OBJ");
    link.folder.write("link/jobs.json", file.to_string());
    link.go(&[]).code(3).stderr_has("the output O\\M0.OBJ is the input");
}

/// A link in whose middle something is ended: one object is there, and two compilers run.
fn in_the_middle(wine: Arc<Wine>) -> WindowsLink {
    WindowsLink::new(wine, 3, |n| if n == 0 { Vec::new() } else { vec!["--fault=hang".into()] })
}

#[test]
fn the_bridge_killed_takes_its_compilers_along_and_leaves_no_file() {
    let Some(wine) = Wine::get() else { return };
    let link = in_the_middle(wine);
    let running = link.run(&[]).start();
    link.await_middle();
    kill_process(link.marked.find("dtlto-bridge.exe", "jobs.json"), Signal::KILL).unwrap();
    link.marked.gone_within(SOON);
    drop(running);
    assert_eq!(link.left(), 0, "{:#?}", link.folder.list("link/out"));
}

#[test]
fn the_linker_killed_ends_the_bridge_and_its_compilers() {
    let Some(wine) = Wine::get() else { return };
    let link = in_the_middle(wine);
    let caller = link.in_place(link.wine.program(&link.wine.compiler()));
    let caller = caller.arg("call").arg(link.wine.bridge_path()).arg("jobs.json");
    let running = caller.start();
    link.await_middle();
    kill_process(link.marked.find("stand-in-compiler.exe", "call"), Signal::KILL).unwrap();
    link.marked.gone_within(SOON);
    drop(running);
    assert_eq!(link.left(), 0, "{:#?}", link.folder.list("link/out"));
    assert_eq!(link.stats()["places"]["local"], json!(1));
}

/// LLD calls a distributor that is a `.bat` by way of `cmd.exe`, which would outlive it.
#[test]
fn the_linker_killed_ends_a_bridge_behind_an_interpreter_of_commands() {
    let Some(wine) = Wine::get() else { return };
    let link = in_the_middle(wine);
    let bridge = on_windows(&link.wine.bridge_path());
    link.folder.write("link/bridge.bat", format!("@\"{bridge}\" %*\r\n"));
    let caller = link.in_place(link.wine.program(&link.wine.compiler()));
    let running = caller.args(["call", "cmd.exe", "/c", "bridge.bat", "jobs.json"]).start();
    link.await_middle();
    kill_process(link.marked.find("stand-in-compiler.exe", "call"), Signal::KILL).unwrap();
    link.marked.gone_within(SOON);
    drop(running);
    assert_eq!(link.left(), 0, "{:#?}", link.folder.list("link/out"));
}

#[test]
fn the_job_file_gone_ends_the_bridge() {
    let Some(wine) = Wine::get() else { return };
    let link = in_the_middle(wine);
    let running = link.run(&[]).start();
    link.await_middle();
    std::fs::remove_file(link.folder.path("link/jobs.json")).unwrap();
    running.wait().code(1).stderr_has("the linker is gone");
    link.marked.gone_within(SOON);
    assert_eq!(link.left(), 0, "{:#?}", link.folder.list("link/out"));
}

#[test]
fn an_interruption_ends_the_bridge_and_its_compilers() {
    let Some(wine) = Wine::get() else { return };
    let link = in_the_middle(wine);
    let running = link.run(&[]).start();
    link.await_middle();
    // Wine makes of it what Ctrl-C is on Windows.
    kill_process(link.marked.find("dtlto-bridge.exe", "jobs.json"), Signal::INT).unwrap();
    let output = running.wait().stderr_has("interrupted");
    assert_ne!(output.status.code(), Some(0), "{output}");
    link.marked.gone_within(SOON);
    assert_eq!(link.left(), 0, "{:#?}", link.folder.list("link/out"));
    assert_eq!(link.stats()["signal"], json!(2));
}

#[test]
fn an_old_output_that_another_program_has_open_for_a_moment_is_waited_for() {
    let Some(wine) = Wine::get() else { return };
    let link = WindowsLink::new(wine, 1, |_| Vec::new());
    link.go(&[]).ok();
    let old = on_windows(&link.folder.path(format!("{PLACE}/{}", object(0).replace('\\', "/"))));
    let told = link.folder.path("told");
    let holder = link.in_place(link.wine.program(&link.wine.compiler()));
    let holder = holder.arg("hold").args([old, on_windows(&told), "700".into()]).start();
    until("it is held", || told.exists());
    link.run(&[]).go().ok();
    holder.wait().ok();
    link.made_all();
}

#[test]
fn links_at_once_share_the_cores() {
    let Some(wine) = Wine::get() else { return };
    let slow = |_| vec!["--fault=slow".to_owned()];
    let links = [(); 2].map(|()| WindowsLink::new(wine.clone(), 2, slow));
    let begun = Instant::now();
    let running = links.each_ref().map(|link| link.run(&["--local-jobs=1", "-v"]).start());
    for running in running {
        running.wait().ok().stderr_lacks("slots are not shared");
    }
    // A second for each of four jobs, one after the other.
    assert!(begun.elapsed() > Duration::from_secs(4), "{:?}", begun.elapsed());
    links.iter().for_each(WindowsLink::made_all);
}

#[test]
fn a_users_adapter_runs_a_client_for_each_job() {
    let Some(wine) = Wine::get() else { return };
    let client = on_windows(&wine.compiler());
    let manifest = json!({
        "schema": 1, "name": "mine", "summary": "A client that compiles by itself.",
        "place": "farm", "hand_over": "each", "shipping": "direct", "tool": client,
        "command": ["{tool}", "{args...}"], "slots": 4,
    });
    let link = WindowsLink::new(wine, 3, |_| Vec::new());
    link.folder.write("mine.json", manifest.to_string());
    link.go(&["--adapter=..\\mine.json", "--fallback=never"]).ok().stderr_has("3 on mine");
    link.made_all();
    assert_eq!(link.stats()["places"]["farm"], json!(3));
    let doctor = link.in_place(link.wine.bridge()).args(["doctor", "--adapter=..\\mine.json"]);
    doctor.go().ok();
}

#[test]
fn what_needs_linux_says_so() {
    let Some(wine) = Wine::get() else { return };
    let link = WindowsLink::new(wine, 1, |_| Vec::new());
    let refused = [
        ("--adapter=distcc", "adapter distcc: it sends bundles"),
        ("--adapter=icecc", "adapter icecc: it sends bundles"),
        ("--adapter=sccache", "adapter sccache: it asks a farm's scheduler"),
        ("--cache=sccache", "--cache=sccache has a shell script for its tool, which needs Linux"),
        ("--cache=ccache", "--cache=ccache has"),
    ];
    for (option, words) in refused {
        link.go(&[option]).code(2).stderr_has(words);
    }
    let tasks: [(&[&str], _); 3] = [
        (&["worker", "--check"], "the worker runs on Linux"),
        (&["doctor", "--cache=ccache"], "which needs Linux"),
        (&["icecc-env"], "icecream's nodes run Linux"),
    ];
    for (task, words) in tasks {
        link.in_place(link.wine.bridge()).args(task).go().code(2).stderr_has(words);
    }
}

/// Real bitcode and real indexes, saved and run again by the bridge for Windows.
#[test]
fn a_link_that_was_saved_runs_again() {
    skip_without!("clang-22", "lld-link-22");
    let Some(wine) = Wine::get() else { return };
    let folder = Folder::new();
    let target = "--target=x86_64-pc-windows-msvc";
    Modules::compile(&folder, PLACE, &[target]);
    let place = folder.path(PLACE);
    lld_link()
        .args([
            "/out:app.exe",
            "/entry:main",
            "/subsystem:console",
            "/nodefaultlib",
            "/lldsavetemps",
        ])
        .arg(format!("/thinlto-distributor:{}", bridge_path()))
        .arg(format!("/thinlto-remote-compiler:{}", kit::tool("clang-22").display()))
        .args(["a.o", "b.o", "c.o"])
        .cwd(&place)
        .go()
        .ok();
    let mut file = kit::kept_jobs(&folder, PLACE);
    file["common"]["args"][0] = json!(on_windows(&wine.compiler()));
    file["common"]["args"].as_array_mut().unwrap().push(json!("--fault=blind"));
    folder.write(Path::new(PLACE).join("jobs.json"), file.to_string());
    wine.bridge().args(["--save=kept", "jobs.json"]).cwd(&place).go().ok();
    std::fs::rename(place.join("kept"), folder.path("kept")).unwrap();
    std::fs::remove_dir_all(&place).unwrap();
    let replay = wine.bridge().args(["replay", "kept"]).cwd(folder.path(""));
    replay.go().ok().stdout_is("3 of 3 objects are those of the saved link\n");
}
