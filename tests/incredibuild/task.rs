//! Runs one task, as a machine of the farm would. Reconstructed: what a task's block looks like. Simplified: there is no
//! private view; a task runs in place, and of the files that it wrote those stay whose base names match the tool's masks.
//! Which files it wrote is told from the paths on its command line and from files beside them with the same stem.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use super::buildset::{Task, Tool, matches};
use super::faults::Faults;
use super::line;

/// A folder with more entries is not searched for files beside an output.
const MOST_BESIDE: usize = 256;

/// What all tasks of a call share.
pub(crate) struct Call<'a> {
    pub(crate) faults: Faults,
    pub(crate) variables: &'a [(String, String)],
    pub(crate) id: &'a str,
    /// A folder for what tasks print.
    pub(crate) folder: PathBuf,
    pub(crate) stopped: AtomicBool,
    pub(crate) began: Instant,
    pub(crate) show_agent: bool,
    pub(crate) show_time: bool,
    pub(crate) show_command: bool,
}

/// Where a task runs, as the log calls it, and on which machine it goes on if that one is lost.
pub(crate) struct Place {
    pub(crate) agent: String,
    pub(crate) next_agent: String,
    pub(crate) remote: bool,
}

type Stamps = BTreeMap<PathBuf, Option<(SystemTime, u64)>>;

/// Runs it; says whether it succeeded, and its block in the log.
pub(crate) fn run(
    call: &Call<'_>,
    (number, task, tool): (usize, &Task, &Tool),
    place: &Place,
) -> (bool, Vec<u8>) {
    let begun = Instant::now();
    let faults = |kind| call.faults.task(kind, &task.name);
    if faults("lost") {
        return (false, Vec::new());
    }
    let mut agent = &place.agent;
    let params = task.params.as_ref().or(tool.params.as_ref()).cloned().unwrap_or_default();
    let args = line::split(&expand(&params).unwrap_or_else(|error| panic!("{error}")));
    let before = stamps(&args, Path::new(&task.folder));
    if place.remote && (faults("agent-lost") || faults("agents-lost") || faults("hangs")) {
        // What it writes is on its own disk, and never comes here.
        start(call, number, task, tool, &args);
        if let (Some(limit), true) = (tool.time_limit, faults("hangs")) {
            std::thread::sleep(Duration::from_secs(limit));
        }
        written(&before).iter().for_each(|path| drop(fs::remove_file(path)));
        agent = &place.next_agent;
        if faults("agents-lost") {
            let block = header(call, task, tool, agent, begun);
            return (false, [&*block, b"Error: connection to the Agent was lost\n"].concat());
        }
    }
    while faults("stuck") && !call.stopped.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let (code, printed) = start(call, number, task, tool, &args);
    // This machine may race the other one.
    if faults("twice") || tool.allow_restart_on_local {
        start(call, number, task, tool, &args);
    }
    let mut block = header(call, task, tool, agent, begun);
    if call.show_command {
        block.extend_from_slice(format!("{} {params}\n", tool.path).as_bytes());
    }
    block.extend_from_slice(&printed);
    if place.remote {
        bring_back(call, (task, tool), &before, &mut block);
    }
    let good = code == 0 || tool.success.iter().any(|(a, b)| (*a..=*b).contains(&code));
    (good && !faults("code1"), block)
}

fn header(call: &Call<'_>, task: &Task, tool: &Tool, agent: &str, begun: Instant) -> Vec<u8> {
    let mut line = format!("{}{}", tool.prefix, task.caption);
    if call.show_agent {
        line += &format!(" (Agent '{agent}')");
    }
    if call.show_time {
        let (took, at) = (begun.elapsed(), call.began.elapsed().as_secs());
        line += &format!(" (0:{:05.2} at +{}:{:02})", took.as_secs_f64(), at / 60, at % 60);
    }
    (line + "\n").into_bytes()
}

/// Macros come from the environment; an unknown one is an error.
fn expand(text: &str) -> Result<String, String> {
    let Some((before, rest)) = text.split_once("$(") else { return Ok(text.to_owned()) };
    let (name, after) = rest.split_once(')').ok_or("a macro has no end")?;
    let value = std::env::var(name).map_err(|_| format!("unknown macro $({name})"))?;
    Ok(format!("{before}{value}{}", expand(after)?))
}

fn start(
    call: &Call<'_>,
    number: usize,
    task: &Task,
    tool: &Tool,
    args: &[String],
) -> (i32, Vec<u8>) {
    let printed = call.folder.join(format!("printed-{number}"));
    let out = File::create(&printed).unwrap();
    let mut command = Command::new(&tool.path);
    command.args(args).current_dir(&task.folder).stdin(Stdio::null());
    command.stdout(out.try_clone().unwrap()).stderr(out);
    command.envs(call.variables.iter().map(|(n, v)| (n, v))).env("xgJobID", call.id);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return (-1, format!("{}: {error}\n", tool.path).into_bytes()),
    };
    let code = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status.code().unwrap_or(-1);
        }
        if call.stopped.load(Ordering::Relaxed) {
            let _ = child.kill();
            let _ = child.wait();
            break -1;
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let text = fs::read(&printed).unwrap_or_default();
    let _ = fs::remove_file(printed);
    (code, text)
}

/// The files that a command line names, as they are now.
fn stamps(args: &[String], folder: &Path) -> Stamps {
    let mut words: Vec<String> = args.to_vec();
    for file in args.iter().filter_map(|arg| arg.strip_prefix('@')) {
        words.extend(in_response_file(&fs::read_to_string(folder.join(file)).unwrap_or_default()));
    }
    let values = words.iter().filter_map(|word| Some(word.split_once('=')?.1.to_owned()));
    let values: Vec<String> = values.collect();
    let paths =
        words.into_iter().chain(values).filter(|word| !word.is_empty() && word.len() < 4096);
    paths.map(|word| folder.join(word)).map(|path| (path.clone(), stamp(&path))).collect()
}

fn stamp(path: &Path) -> Option<(SystemTime, u64)> {
    let found = fs::metadata(path).ok().filter(|found| found.is_file())?;
    Some((found.modified().ok()?, found.len()))
}

/// Roughly: quotes and backslashes, so that the names are found.
fn in_response_file(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let (mut quoted, mut rest) = (false, text.chars());
    while let Some(c) = rest.next() {
        let last = words.last_mut().unwrap();
        match c {
            '\\' => last.extend(rest.next()),
            '"' => quoted = !quoted,
            c if c.is_whitespace() && !quoted => words.push(String::new()),
            c => last.push(c),
        }
    }
    words
}

/// The files that were written since.
fn written(before: &Stamps) -> Vec<PathBuf> {
    let changed = |(path, old): (&PathBuf, &Option<_>)| {
        let new = stamp(path);
        (new.is_some() && new != *old).then(|| path.clone())
    };
    let mut found: Vec<PathBuf> = before.iter().filter_map(changed).collect();
    for path in found.clone() {
        let (Some(folder), Some(stem)) = (path.parent(), path.file_stem()) else { continue };
        let beside: Vec<_> =
            fs::read_dir(folder).into_iter().flatten().flatten().take(MOST_BESIDE).collect();
        let same = |name: &str| name.starts_with(&format!("{}.", stem.to_string_lossy()));
        let of_stem = beside.into_iter().map(|entry| entry.path());
        found.extend(of_stem.filter(|other| {
            let name = other.file_name().unwrap_or_default().to_string_lossy().into_owned();
            !before.contains_key(other) && same(&name)
        }));
    }
    found
}

/// Only what the masks cover comes back from another machine.
fn bring_back(call: &Call<'_>, (task, tool): (&Task, &Tool), before: &Stamps, block: &mut Vec<u8>) {
    let faults = |kind| call.faults.task(kind, &task.name);
    for path in written(before) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let covered = tool.masks.iter().any(|mask| mask == "*.*" || matches(mask, &name));
        if !covered || faults("mask") || faults("dropped") {
            let _ = fs::remove_file(&path);
            if !faults("dropped") {
                block.extend_from_slice(format!("{name}: matches no OutputFileMasks\n").as_bytes());
            }
        } else if faults("empty") {
            File::create(&path).unwrap();
        } else if faults("truncated") {
            let file = File::options().write(true).open(&path).unwrap();
            file.set_len(file.metadata().unwrap().len() / 2).unwrap();
        } else if faults("wrong") {
            fs::write(&path, "this is no object").unwrap();
        }
    }
}
