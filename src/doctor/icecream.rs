//! A farm of icecream, for people: its daemon, its scheduler, its nodes and what they keep, and whether a job of this
//! machine gets to a node at all. It sends one small job, and the environment with it.

use std::fmt::Write;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

use super::hosts::{find_compiler, setup};
use super::table::Table;
use crate::adapter::Manifest;
use crate::attempt::{Setup, ask};
use crate::cli::Environment;
use crate::environment;
use crate::hosts::memory::FarmMemory;
use crate::icecream::scheduler::{self, Address};
use crate::icecream::text::{self, Node};
use crate::link::{farm, shipment};
use crate::os::Signal;
use crate::process::Groups;
use crate::report::duration;

/// What icecream's daemons keep of environments, in MB, if they are not told.
const DEFAULT_CACHE: u64 = 256;
const MB: u64 = 1_000_000;
/// What the job may take: a node may have to get and unpack the environment.
const JOB: Duration = Duration::from_secs(60);
/// How often it is sent until a node takes it, and the pause before each further time.
const TRIES: usize = 4;
const PAUSE: Duration = Duration::from_millis(500);
/// More nodes than these are not asked one by one.
const ASKED: usize = 32;

/// Looks at all of it.
pub(super) fn table(
    tool: &str,
    (manifest, compiler): (&Manifest, Option<&str>),
    environment: &Environment,
) -> Table {
    let mut table = Table::new(String::new());
    match crate::icecream::daemon(&environment.icecream) {
        Ok(socket) => table.good(&format!("daemon: {}", socket.display())),
        Err(why) => table.bad(
            &format!("daemon: {why}"),
            "start iceccd on this machine: without it icecream runs every job here",
        ),
    }
    scheduler_and_nodes(&mut table, environment);
    match prepared(tool, (manifest, compiler), environment) {
        Ok((setup, made, _folder)) => {
            let [packed, unpacked] = [made.bytes, made.unpacked].map(|bytes| bytes.div_ceil(MB));
            table.good(&format!(
                "environment: {} for {}, {packed} MB to send to each node, once; {unpacked} MB there",
                made.name, made.platform
            ));
            if unpacked > DEFAULT_CACHE {
                table.note(&format!(
                    "iceccd keeps {DEFAULT_CACHE} MB if it is not told, which is less than one environment: \
                     start nodes with --cache-limit 2000"
                ));
            }
            if send(&mut table, &setup) {
                // Links know what it has found.
                shipment::memory(&setup, environment).iter().for_each(FarmMemory::note_works);
            }
        }
        Err(error) => {
            table.bad(&format!("environment: {error:#}"), "without it no job can be sent")
        }
    }
    table
}

fn scheduler_and_nodes(table: &mut Table, environment: &Environment) {
    let mut tried = Vec::new();
    for address in scheduler::candidates(&environment.icecream) {
        match text::nodes(&address) {
            Ok(nodes) => {
                table.good(&format!("scheduler: {}:{}", address.0, address.1));
                return nodes_of(table, &address, &nodes);
            }
            Err(error) => tried.push(format!("{error:#}")),
        }
    }
    let why = match tried.is_empty() {
        true => "this machine's daemon is connected to none".to_owned(),
        false => tried.join("; "),
    };
    table.bad(
        &format!("scheduler: {why}"),
        "start icecc-scheduler, or name it: ICECC_SCHEDULER_HOST in /etc/icecc/icecc.conf for the daemon, \
         ICECC_SCHEDULER=HOST:PORT for the bridge",
    );
}

fn nodes_of(table: &mut Table, scheduler: &Address, nodes: &[Node]) {
    let platform = std::env::consts::ARCH;
    let _ = writeln!(
        table.text,
        "  {:16} {:22} {:9} jobs  load  protocol  keeps",
        "node", "address", "platform"
    );
    for node in nodes {
        let said = match nodes.len() <= ASKED {
            true => text::internals(scheduler, &node.name).unwrap_or_default(),
            false => String::new(),
        };
        let value = |key: &str| said.lines().find_map(|line| line.trim().strip_prefix(key));
        let keeps = value("Cache Size: ").and_then(|bytes| bytes.parse::<u64>().ok());
        let keeps = keeps.map_or("-".to_owned(), |bytes| format!("{} MB", bytes.div_ceil(MB)));
        let Node { name, address, platform, slots, running, load, here: _ } = node;
        let protocol = value("Scheduler protocol: ").unwrap_or("?");
        let jobs = format!("{running}/{slots}");
        let _ = writeln!(
            table.text,
            "  {name:16} {address:22} {platform:9} {jobs:5} {load:4}  {protocol:8}  {keeps}"
        );
    }
    if nodes.iter().any(|node| node.here && node.slots > 0) {
        table.note(
            "this machine is a node itself: while others are full, the scheduler wants jobs here, where the bridge does \
             them if there is room, and asks again if not; with iceccd -m 0 they wait for a node",
        );
    }
    let usable = nodes.iter().filter(|node| node.is_of_use(platform));
    match usable.count() {
        0 => table.bad(
            &format!("nodes: none takes jobs of others for {platform}"),
            "start iceccd on other machines, without --no-remote",
        ),
        count => table.good(&format!(
            "nodes: {count} for {platform}; links have up to {} jobs in flight",
            text::in_flight(nodes, platform)
        )),
    }
}

/// A link that is never run, and its environment.
fn prepared(
    tool: &str,
    (manifest, compiler): (&Manifest, Option<&str>),
    environment: &Environment,
) -> Result<(Setup, environment::Environment, tempfile::TempDir)> {
    let folder = tempfile::tempdir().context("a folder for requests")?;
    // As drivers tell it to the linker: the environment has the compiler's own name.
    let compiler = find_compiler(compiler)?.canonicalize()?;
    let private = folder.path().join("private");
    let setup = setup(manifest, tool, compiler, private, environment)?;
    farm::prepare_tool(&setup)?;
    let made = shipment::environment(&setup, environment.cache.as_deref(), "")?;
    let named = shipment::named(&made)?;
    setup.environment.set(named).map_err(|_| anyhow!("the environment is known twice"))?;
    Ok((setup, made, folder))
}

/// Sends a job that only asks whether jobs would be done; says whether they would.
fn send(table: &mut Table, setup: &Setup) -> bool {
    let groups = Groups::new(None);
    let begun = Instant::now();
    let asked = thread::scope(|scope| {
        let (sender, answered) = std::sync::mpsc::channel();
        let groups = &groups;
        scope.spawn(move || {
            // A scheduler that wants it here may think otherwise a moment later.
            let mut answer = ask(setup, groups);
            for _ in 1..TRIES {
                if answer.is_ok() {
                    break;
                }
                thread::sleep(PAUSE);
                answer = ask(setup, groups);
            }
            drop(sender.send(answer));
        });
        let answer = answered.recv_timeout(JOB);
        groups.end_all(Signal::KILL);
        answer
    });
    let took = duration(begun.elapsed());
    let good = matches!(asked, Ok(Ok((_, None))));
    match asked {
        Ok(Ok((host, None))) => table.good(&format!("a job of this machine ran on {host}, in {took}")),
        Ok(Ok((host, Some(why)))) => table.bad(
            &format!("a job of this machine got to {host}, where it cannot be done: {why}"),
            "see that the node has memory for clang in each of its slots, and a CPU like this machine's",
        ),
        Ok(Err(why)) => table.bad(
            &format!("a job of this machine does not get to a node: {why}"),
            "see that nodes take remote jobs, that their load is below 1000, and that this machine reaches their \
             port 10245",
        ),
        Err(_) => table.bad(
            &format!("no node has taken a job of this machine within {took}"),
            "all nodes are busy, or this machine's daemon waits for its scheduler",
        ),
    }
    good
}
