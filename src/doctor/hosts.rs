//! The hosts of a farm, for people: each is asked anew, by the probe that links send, and what it says is
//! remembered for them. It changes nothing there.

use std::ffi::OsString;
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};

use super::table::Table;
use crate::adapter::{self, HostList, Manifest};
use crate::attempt::Setup;
use crate::cli::{self, Environment};
use crate::collect::Scratch;
use crate::fleet::{self, probe};
use crate::hosts::list::{Host, Kind};
use crate::hosts::placement::HostId;
use crate::hosts::probe::{TIME, Verdict};
use crate::inputs::Inputs;
use crate::jobfile::JobFile;
use crate::link::{cores, farm};
use crate::os::Signal;
use crate::plan::Plan;
use crate::process::Groups;

/// Compilers to ask for, if nobody names one.
const COMPILERS: [&str; 4] = ["clang", "clang-23", "clang-22", "clang-21"];

/// Asks all hosts but the `forbidden` whether they would do jobs of `compiler`.
///
/// # Errors
/// They cannot be asked.
pub(super) fn table(
    (kind, forbidden): (HostList, &[String]),
    tool: &str,
    (manifest, compiler): (&Manifest, Option<&str>),
    environment: &Environment,
) -> anyhow::Result<Table> {
    let list = probe::hosts(kind, tool, &Groups::new(None))?;
    let (left_out, asked): (Vec<Host>, Vec<Host>) =
        list.hosts.into_iter().partition(|host| probe::is_forbidden(host, forbidden));
    let folder = tempfile::tempdir().context("a folder for requests")?;
    let compiler = find_compiler(compiler)?;
    let private = folder.path().join("private");
    let setup = setup(manifest, tool, compiler, private, environment)?;
    farm::prepare_tool(&setup)?;
    let found = ask(&setup, &asked);
    if let (Some(cache), Some(parcels)) = (&environment.cache, &setup.parcels) {
        let verdicts = asked.iter().zip(&found).map(|(host, found)| (host, &found.0));
        fleet::remember(cache, parcels.compiler(), verdicts);
    }
    let mut text = format!("hosts, asked for {}:\n", setup.compiler.display());
    let answers = asked.iter().zip(&found).map(|(host, found)| (host, Some(found)));
    text += &rows(answers.chain(left_out.iter().map(|host| (host, None))));
    for note in &list.notes {
        let _ = writeln!(text, "note {}: {}", note.entry, note.reason);
    }
    for (host, (verdict, _)) in asked.iter().zip(&found) {
        if let Some(step) = verdict.next_step() {
            let _ = writeln!(text, "FAIL {}: {}\n     next: {step}", host.name, verdict.words());
        }
    }
    if asked.is_empty() {
        text +=
            "FAIL no host is left\n     next: see the notes, and which hosts an override forbids\n";
    }
    let well = !found.is_empty() && found.iter().all(|(verdict, _)| verdict.is_good());
    Ok(Table { text, well })
}

pub(super) fn find_compiler(named: Option<&str>) -> anyhow::Result<PathBuf> {
    match named {
        Some(name) => cli::find_program(name),
        None => COMPILERS.iter().find_map(|name| cli::find_program(name).ok()).with_context(|| {
            format!("none of {} is here: name a compiler by --compiler", COMPILERS.join(", "))
        }),
    }
}

/// What a link of one job would have; the job is never run.
pub(super) fn setup(
    manifest: &Manifest,
    tool: &str,
    compiler: PathBuf,
    private: PathBuf,
    environment: &Environment,
) -> anyhow::Result<Setup> {
    let named = compiler.to_str().with_context(|| format!("{compiler:?} is not UTF-8"))?;
    let job = serde_json::json!({
        "args": ["m", "-o", "o"], "inputs": ["m", "m.thinlto.bc"], "outputs": ["o"],
    });
    let common = serde_json::json!({"linker_output": "doctor", "args": [named], "inputs": []});
    let file = serde_json::json!({"common": common, "jobs": [job]}).to_string();
    let line = ["dtlto-bridge", "doctor.json"].map(OsString::from).to_vec();
    let options = cli::parse(line)?.options;
    let local = adapter::load("local", None)?;
    let file = JobFile::parse(file.as_bytes())?;
    let plan = Plan::new(file, manifest.clone(), local, &options, cores());
    let asker = farm::Asker { link: "doctor", math: options.math, environment };
    let toolchain = asker.toolchain(&plan, &compiler).map_err(|why| anyhow!("{why}"))?;
    let parcels = asker.parcels(&plan, &toolchain, &Arc::default());
    let setup = Setup {
        plan,
        inputs: Inputs::default(),
        scratch: Scratch::new("doctor", std::iter::empty(), None),
        compiler,
        tool: tool.to_owned(),
        link: "doctor".into(),
        parcels,
        private: private.display().to_string(),
        path: None,
        environment: OnceLock::new(),
        hosts: Vec::new(),
        dist: None,
        toolchain: None,
        library: Arc::default(),
        inherited: None,
        inside_farm: false,
        digests: false,
    };
    Ok(farm::with_path(setup, environment))
}

/// What each host says, and how long a question takes. All are asked at once; those that say nothing are left
/// alone in the end.
fn ask(setup: &Setup, hosts: &[Host]) -> Vec<(Verdict, Duration)> {
    let groups = Groups::new(None);
    let mut found = vec![(Verdict::silent(), TIME); hosts.len()];
    thread::scope(|scope| {
        let (sender, answers) = channel();
        for (id, host) in hosts.iter().enumerate() {
            let (sender, groups) = (sender.clone(), &groups);
            scope.spawn(move || {
                let probe = || {
                    let begun = Instant::now();
                    let verdict = probe::probe(setup, groups, HostId(id), host, &|_| ());
                    (verdict, begun.elapsed())
                };
                let first = probe();
                // The first one has the worker look through its compiler.
                let answer = if first.0.is_good() { probe() } else { first };
                let _ = sender.send((id, answer));
            });
        }
        drop(sender);
        let until = Instant::now() + TIME;
        while let Ok((id, answer)) =
            answers.recv_timeout(until.saturating_duration_since(Instant::now()))
        {
            found[id] = answer;
        }
        groups.end_all(Signal::KILL);
    });
    found
}

/// A host that was not asked, for an override forbids it, has no answer.
fn rows<'a>(found: impl Iterator<Item = (&'a Host, Option<&'a (Verdict, Duration)>)>) -> String {
    const HEAD: [&str; 7] =
        ["host", "reachable", "worker", "clang", "allowed", "slots", "round trip"];
    let mut rows = vec![HEAD.map(str::to_owned)];
    for (host, answer) in found {
        let [reachable, worker, clang, allowed] = match answer.map(|(verdict, _)| verdict) {
            Some(Verdict::Good { .. }) => ["yes", "yes", "same", "yes"],
            Some(Verdict::WorkerMissing) => ["yes", "missing", "?", "yes"],
            Some(Verdict::NotAllowed) => ["yes", "?", "?", "no"],
            Some(Verdict::OtherClang(_)) => ["yes", "yes", "other", "yes"],
            Some(Verdict::Down(_)) => ["no", "?", "?", "?"],
            Some(Verdict::Refused(_)) => ["yes", "refuses", "?", "?"],
            None => ["?", "?", "?", "?"],
        };
        let name = match host.kind {
            Kind::Tcp => host.name.clone(),
            Kind::Ssh => format!("{} (ssh)", host.name),
        };
        let trip = match answer {
            Some((Verdict::Good { .. }, took)) => format!("{} ms", took.as_millis()),
            Some(_) => "-".to_owned(),
            None => "not asked: an override forbids it".to_owned(),
        };
        let cells = [reachable, worker, clang, allowed].map(str::to_owned);
        let [reachable, worker, clang, allowed] = cells;
        rows.push([name, reachable, worker, clang, allowed, host.slots.to_string(), trip]);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: [usize; 7] = std::array::from_fn(width);
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        let _ = writeln!(text, "  {}", line.trim_end());
    }
    text
}
