//! For people: which adapters there are, and whether one, and a cache, could be used on this machine. It runs
//! an adapter's probes and changes nothing but an entry of its own in a cache.

mod cache;
mod hosts;
mod icecc_env;
mod icecream;
mod table;

use std::path::Path;

use table::Table;

use crate::adapter::{self, Entry, HandOver, Manifest, Probe, Scheduler};
use crate::cache::Kind;
use crate::cli::{self, Cache, Environment, Math};
use crate::exit::{Exit, Failure};
use crate::link::farm::Asker;
use crate::link::{Ending, cores, program_of};
use crate::overrides;
use crate::process::{Command, Groups};
use crate::quote;
use crate::report::write_stdout;

pub use icecc_env::{EnvironmentWanted, icecc_env};

/// Lists the adapters, or checks and shows the named ones.
///
/// # Errors
/// None of its own: what is wrong is printed, and told by the exit code.
pub fn adapters(names: &[String], environment: &Environment) -> Result<Ending, Failure> {
    let folder = environment.adapters.as_deref();
    let mut text = String::new();
    let mut broken = false;
    if names.is_empty() {
        for Entry { name, source, manifest, hides_built_in } in adapter::available(folder) {
            let hides = if hides_built_in { ", hides the built-in one" } else { "" };
            broken |= manifest.is_err();
            text += &match manifest {
                Ok(manifest) => format!("{name:12} {} ({source}{hides})\n", manifest.summary),
                Err(error) => format!("{name:12} BROKEN ({source}{hides})\n  {error:#}\n"),
            };
        }
        if let Some(folder) = folder {
            text += &format!("\nyour own adapters: {}\n", folder.join("NAME.json").display());
        }
    }
    for name in names {
        let loaded = adapter::load(name, folder);
        broken |= loaded.is_err();
        text += &match loaded {
            Ok(manifest) => shown(&manifest),
            Err(error) => format!("{name}: {error:#}\n"),
        };
    }
    write_stdout(&text);
    Ok(Ending { exit: if broken { Exit::Usage } else { Exit::Ok }, signal: None })
}

fn shown(manifest: &Manifest) -> String {
    let Manifest { name, summary, source, place, .. } = manifest;
    let mut text = format!("{name}: {summary}\n  from {source}, place {place}");
    text += &match (manifest.hand_over, manifest.slots) {
        (HandOver::Batch, _) => ", all jobs in one call".to_owned(),
        (_, Some(slots)) => format!(", {slots} at once"),
        (_, None) => String::new(),
    };
    if let Some(homepage) = &manifest.homepage {
        text += &format!("\n  {homepage}");
    }
    for note in &manifest.notes {
        text += &format!("\n  {note}");
    }
    text + "\n"
}

/// Checks what an adapter and a cache need.
///
/// # Errors
/// The adapter cannot be loaded.
pub fn doctor(
    name: &str,
    compiler: Option<&str>,
    cache: Cache,
    environment: &Environment,
) -> Result<Ending, Failure> {
    let manifest = adapter::load(name, environment.adapters.as_deref()).map_err(cli::usage)?;
    manifest.fits_here().map_err(cli::usage)?;
    let kind = Kind::of(cache);
    kind.map_or(Ok(()), Kind::fits_here).map_err(cli::usage)?;
    let mut found = Table::new(shown(&manifest));
    found.good(&format!("{} cores for jobs here", cores()));
    let variable = environment.overrides.as_deref();
    let (forced, notices) = overrides::look(variable, Path::new(overrides::FILE));
    forced.iter().for_each(|(_, forced)| found.good(forced));
    notices.iter().for_each(|notice| found.wrong(notice));
    let tool = match manifest.tool.as_ref().map(program_of).transpose() {
        Ok(tool) => tool.map_or(String::new(), |path| path.display().to_string()),
        Err(error) => {
            found.wrong(&format!("tool: {error:#}"));
            String::new()
        }
    };
    if !tool.is_empty() {
        found.good(&format!("tool: {tool}"));
    }
    if manifest.tool.is_none() || !tool.is_empty() {
        for probe in manifest.probes.iter().filter(|probe| !probe.needs_compiler()) {
            match try_probe(probe, &tool) {
                Ok(shown) => found.good(&shown),
                Err(error) => found.wrong(&format!("{error:#}; {}", probe.help)),
            }
        }
    }
    if !tool.is_empty() {
        let never_hosts = forced.iter().flat_map(|(forced, _)| forced.never_hosts());
        let forbidden: Vec<String> = never_hosts.cloned().collect();
        farm(&mut found, &tool, (&manifest, compiler), (environment, &forbidden));
    }
    if let Some(kind) = kind {
        found.add(&cache::look(kind, environment));
    }
    write_stdout(&found.text);
    Ok(Ending { exit: if found.well { Exit::Ok } else { Exit::Farm }, signal: None })
}

/// Looks at the hosts behind a tool.
fn farm(
    found: &mut Table,
    tool: &str,
    (manifest, compiler): (&Manifest, Option<&str>),
    (environment, forbidden): (&Environment, &[String]),
) {
    if let Some(kind) = manifest.hosts {
        match hosts::table((kind, forbidden), tool, (manifest, compiler), environment) {
            Ok(table) => found.add(&table),
            Err(error) => found.wrong(&format!("hosts: {error:#}")),
        }
    }
    match manifest.scheduler {
        Some(Scheduler::Icecream) => {
            found.add(&icecream::table(tool, (manifest, compiler), environment));
        }
        Some(Scheduler::Sccache) => {
            let asker = Asker { link: "doctor", math: Math::Strict, environment };
            match asker.dist(tool, "doctor") {
                Ok(dist) => found.good(&format!("farm: {} jobs at once now", dist.slots)),
                Err(why) => found.wrong(&why),
            }
        }
        None => {}
    }
}

fn try_probe(probe: &Probe, tool: &str) -> anyhow::Result<String> {
    let argv = probe.argv(tool, "");
    let shown = quote::shown(&argv);
    let mut argv = argv.into_iter();
    let program = cli::find_program(&argv.next().unwrap_or_default())?;
    let command = Command { program, args: argv.collect(), ..Command::default() };
    let ended = Groups::new(None).run(&command, &|_| ())?;
    let printed = String::from_utf8_lossy(&ended.output);
    anyhow::ensure!(ended.status.success(), "{shown} {}", crate::attempt::describe(ended.status));
    if let Some(expected) = &probe.expect {
        anyhow::ensure!(printed.contains(expected), "{shown} does not say {expected:?}");
    }
    Ok(format!("{shown}: {}", printed.lines().next().unwrap_or_default()))
}
