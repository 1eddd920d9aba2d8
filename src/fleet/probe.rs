//! Asks a farm for its hosts, and each host, by a tiny request, whether it can do the link's jobs. Each
//! probe is a client of its own, started like those of jobs.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, bail};

use crate::adapter::{HostList, Place};
use crate::attempt::{Setup, client};
use crate::hosts::list::{self, Host, List};
use crate::hosts::placement::HostId;
use crate::hosts::probe::{Answer, Verdict};
use crate::parcel::Parcels;
use crate::plan::Names;
use crate::process::{Command, Groups, OnStart};

/// Asks `tool`, in the user's own environment, for the hosts that it knows.
///
/// # Errors
/// It cannot be asked, or it knows none.
pub fn hosts(kind: HostList, tool: &str, groups: &Groups) -> anyhow::Result<List> {
    let HostList::Distcc = kind;
    let [_, question] = list::QUESTION;
    let program = PathBuf::from(tool);
    let command = Command { program, args: vec![question.into()], ..Command::default() };
    let ended = groups.run(&command, &|_| ()).with_context(|| format!("{tool} {question}"))?;
    let printed = String::from_utf8_lossy(&ended.output);
    // One pipe holds both streams; what is not an entry is what went wrong.
    let (said, entries): (Vec<&str>, Vec<&str>) =
        printed.lines().partition(|line| line.starts_with("distcc["));
    list::read(&entries.join("\n"), &said.join("\n"))
}

/// `host` is one of those that are forbidden, each by its name or its address without the port.
pub fn is_forbidden(host: &Host, forbidden: &[String]) -> bool {
    let address = host.address.as_ref().map(|(address, _)| address);
    forbidden.iter().any(|name| *name == host.name || Some(name) == address)
}

/// The hosts of a list that may get jobs, without those that are forbidden.
///
/// # Errors
/// None is left.
pub fn usable(list: List, forbidden: &[String]) -> anyhow::Result<Vec<Host>> {
    let (left_out, hosts): (Vec<Host>, Vec<Host>) =
        list.hosts.into_iter().partition(|host| is_forbidden(host, forbidden));
    if hosts.is_empty() {
        let notes = list.notes.iter().map(|note| format!("{}: {}", note.entry, note.reason));
        let out = left_out.iter().map(|host| format!("{}: forbidden by an override", host.name));
        let why = notes.chain(out).collect::<Vec<_>>().join("; ");
        bail!("no host is left in distcc's list ({why})");
    }
    Ok(hosts)
}

/// Sends a probe to a host and judges what comes of it.
pub fn probe(
    setup: &Setup,
    groups: &Groups,
    id: HostId,
    host: &Host,
    on_start: OnStart<'_>,
) -> Verdict {
    let Some(parcels) = &setup.parcels else {
        return Verdict::Refused("nothing can be sent".into());
    };
    let place = PathBuf::from(&setup.private);
    let [request, response] = ["i", "out"].map(|end| place.join(format!("probe{}.{end}", id.0)));
    let verdict = sent(setup, groups, (parcels, host), (&request, &response), on_start);
    let _ = fs::remove_file(&request);
    let _ = fs::remove_file(&response);
    verdict.unwrap_or_else(|error| Verdict::Refused(format!("{error:#}")))
}

fn sent(
    setup: &Setup,
    groups: &Groups,
    (parcels, host): (&Parcels, &Host),
    (request, response): (&PathBuf, &PathBuf),
    on_start: OnStart<'_>,
) -> anyhow::Result<Verdict> {
    let nonce = parcels.pack_probe(request).map_err(anyhow::Error::from)?;
    let names = Names {
        request: request.display().to_string(),
        response: response.display().to_string(),
        host: host.spec.clone(),
        ..setup.names()
    };
    let command = client(setup, 0, Place::Farm, &names)?;
    let ended = groups.run(&command, on_start)?;
    let answer = match ended.status.success() {
        true => parcels.open_probe(response, nonce).1,
        false => Answer::None,
    };
    Ok(Verdict::of(ended.status.code(), &String::from_utf8_lossy(&ended.output), answer))
}
