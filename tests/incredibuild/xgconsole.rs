//! A stand-in for Incredibuild's xgConsole, for tests: strict about options and the job file, and with faults on demand.
//!
//! Documented or seen in public logs: the options, the exit codes 0-4, the elements and attributes of the job file, output
//! masks as base names, one build a machine, `xgJobID`, the words of the errors. Reconstructed: which error has which
//! code where several would do, and the look of a task's block. Simplified: see `task.rs`; a signal just ends it.
//!
//! `FAKE_IB` is the folder in which it keeps its lock and writes `calls`, a line a call; `FAKE_IB_CORES` the tasks at
//! once, `FAKE_IB_INITIATOR=1` lets this machine take part, `FAKE_IB_FAULTS` see `faults.rs`.

#![allow(clippy::disallowed_methods, clippy::print_stdout, clippy::unwrap_used, clippy::exit)]

mod buildset;
mod faults;
mod line;
mod options;
mod task;

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::exit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use buildset::BuildSet;
use faults::Faults;
use options::Options;
use task::{Call, Place};

const FAILED: i32 = 1;
const BROKEN: i32 = 2;
const CANCELLED_OR_INVALID: i32 = 3;
const BUSY: i32 = 4;
/// Not Incredibuild's: the deadlock of a build that waits for the one around it.
const WOULD_WAIT_FOR_ITSELF: i32 = 99;

fn leave(code: i32, words: &str) -> ! {
    println!("{words}");
    exit(code)
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn main() {
    let options = Options::read(std::env::args().skip(1));
    let options = options.unwrap_or_else(|words| leave(CANCELLED_OR_INVALID, &words));
    let folder = PathBuf::from(variable("FAKE_IB").expect("FAKE_IB names a folder"));
    if options.has("querylicense") {
        println!("Installed packages: Make && Build Tools, Dev Tools Acceleration, Cores");
        return;
    }
    if let Some(id) = options.value("stop") {
        fs::write(folder.join(format!("stop-{id}")), "").unwrap();
        return;
    }
    if !options.has("nologo") {
        println!("IncrediBuild Console 10.36.0 (build 18415)");
    }
    let lock = File::create(folder.join("lock")).unwrap();
    if lock.try_lock().is_err() {
        if options.has("nowait") {
            add_line(&folder.join("refused"), "busy");
            leave(BUSY, "Maximum number of concurrent builds reached.");
        }
        if variable("xgJobID").is_some() {
            leave(WOULD_WAIT_FOR_ITSELF, "this build would wait for the one that it is part of");
        }
        lock.lock().unwrap();
    }
    let file = options.file.clone().unwrap_or_else(|| leave(BROKEN, "not emulated: /COMMAND"));
    let text = fs::read_to_string(&file).unwrap_or_else(|e| leave(BROKEN, &format!("{file}: {e}")));
    let set = buildset::read(&text).and_then(on_disk);
    let set = set.unwrap_or_else(|words| leave(BROKEN, &format!("Fatal Error: {file}: {words}")));
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    add_line(&folder.join("calls"), &format!("{}\t{}", set.tasks.len(), arguments.join("\t")));
    let number = fs::read_to_string(folder.join("calls")).unwrap().lines().count();
    fs::copy(&file, folder.join(format!("call{number}.xml"))).unwrap();
    exit(build(&options, &set, &folder, number));
}

fn add_line(path: &Path, line: &str) {
    let mut file = File::options().create(true).append(true).open(path).unwrap();
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// What can be seen only here: the paths.
fn on_disk(set: BuildSet) -> Result<BuildSet, String> {
    for tool in set.tools.values() {
        let path = Path::new(&tool.path);
        if !path.is_absolute() || !path.is_file() {
            return Err(format!("{path:?} is no absolute path of a program"));
        }
    }
    let mut folders: Vec<&str> = set.tasks.iter().map(|task| &*task.folder).collect();
    folders.dedup();
    match folders.into_iter().find(|folder| !folder.is_empty() && !Path::new(folder).is_dir()) {
        Some(folder) => Err(format!("there is no folder {folder:?}")),
        None => Ok(set),
    }
}

/// Which tasks are still to be started, and what became of the others.
#[derive(Default)]
struct State {
    waiting: Vec<usize>,
    done: HashSet<String>,
    failed: usize,
    running: usize,
}

fn build(options: &Options, set: &BuildSet, folder: &Path, number: usize) -> i32 {
    let faults = Faults::read(&variable("FAKE_IB_FAULTS").unwrap_or_default(), number);
    let id = format!("{{{:08X}-0000-0000-0000-{number:012}}}", std::process::id());
    println!("Build ID: {id}");
    for (fault, code) in [("exit2", BROKEN), ("exit3", CANCELLED_OR_INVALID), ("exit4", BUSY)] {
        if faults.call(fault) {
            leave(code, "Fatal Error: as the test wants it");
        }
    }
    if faults.call("flood") {
        let line = format!("{}\n", "flood ".repeat(100));
        (0..100_000).for_each(|_| std::io::stdout().write_all(line.as_bytes()).unwrap());
    }
    let unlicensed = faults.call("unlicensed");
    let call = Call {
        variables: &set.variables,
        id: &id,
        folder: folder.to_owned(),
        stopped: AtomicBool::new(false),
        began: Instant::now(),
        show_agent: options.has("showagent") && !faults.call("silent"),
        show_time: options.has("showtime"),
        show_command: options.has("showcmd"),
        faults,
    };
    let state = State { waiting: (0..set.tasks.len()).rev().collect(), ..State::default() };
    let state = (Mutex::new(state), Condvar::new());
    let cores: usize = variable("FAKE_IB_CORES").map_or(4, |cores| cores.parse().unwrap());
    let initiator =
        variable("FAKE_IB_INITIATOR").is_some() && options.value("avoidlocal") != Some("ON");
    std::thread::scope(|scope| {
        for core in 0..cores {
            let remote = !(unlicensed || initiator && core == 0);
            let (call, state) = (&call, &state);
            scope.spawn(move || work(call, state, set, options, (core, remote)));
        }
        let stop = folder.join(format!("stop-{id}"));
        while !is_over(&state.0.lock().unwrap()) {
            if stop.exists() {
                call.stopped.store(true, Ordering::Relaxed);
                state.0.lock().unwrap().waiting.clear();
                state.1.notify_all();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        state.1.notify_all();
    });
    if call.stopped.load(Ordering::Relaxed) {
        println!("Build terminated at user request");
        return CANCELLED_OR_INVALID;
    }
    if call.faults.call("late2") {
        return BROKEN;
    }
    if state.0.lock().unwrap().failed > 0 { FAILED } else { 0 }
}

fn is_over(state: &State) -> bool {
    state.waiting.is_empty() && state.running == 0
}

/// One core of a machine, for as long as there is something to do.
fn work(
    call: &Call<'_>,
    (state, changed): &(Mutex<State>, Condvar),
    set: &BuildSet,
    options: &Options,
    (core, remote): (usize, bool),
) {
    let agent = |machine: usize| format!("fake-{} (Core #{})", machine % 2 + 1, core / 2 + 1);
    loop {
        let mut now = state.lock().unwrap();
        let ready = |number: &usize| {
            set.tasks[*number].depends_on.iter().all(|name| now.done.contains(name))
        };
        let Some(at) = now.waiting.iter().rposition(ready) else {
            if is_over(&now) {
                return;
            }
            drop(changed.wait_timeout(now, Duration::from_millis(20)).unwrap());
            continue;
        };
        let number = now.waiting.remove(at);
        let task = &set.tasks[number];
        let tool = &set.tools[&(task.env.clone(), task.tool.clone())];
        if now.failed > 0 && (tool.skip_if_failed || task.skip_if_failed) {
            continue;
        }
        now.running += 1;
        drop(now);
        let remote = remote && tool.allow_remote;
        let local = format!("Local CPU {}", core + 1);
        let place = match remote {
            true => Place { agent: agent(core), next_agent: agent(core + 1), remote },
            false => Place { agent: local.clone(), next_agent: local, remote },
        };
        let (good, block) = task::run(call, (number, task, tool), &place);
        if !call.faults.call("silent") && !options.has("silent") {
            let mut out = std::io::stdout().lock();
            out.write_all(&block).unwrap();
            out.flush().unwrap();
        }
        let mut now = state.lock().unwrap();
        now.running -= 1;
        now.done.insert(task.name.clone());
        if !good {
            now.failed += 1;
            if options.has("stoponerrors") {
                now.waiting.clear();
            }
        }
        changed.notify_all();
    }
}
