//! What a farm without compilers needs before its first job: the environment that brings them, made or found, and how
//! many jobs its scheduler has room for. Both are found out beside the run, which hears of them by message.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;

use anyhow::Context;

use super::Request;
use crate::adapter::{Chroot, Scheduler};
use crate::attempt::Setup;
use crate::cli;
use crate::environment::{self, Environment};
use crate::hosts::memory::{FarmMemory, farm_key};
use crate::icecream;
use crate::run::{Look, Message, Run};

/// Asks whom the farm has; [`Message::Seen`] tells.
fn look(request: &Request<'_>, tell: &Sender<Message>) -> Look {
    let (variables, tell) = (request.environment.icecream.clone(), tell.clone());
    Box::new(move || {
        let (variables, tell) = (variables.clone(), tell.clone());
        let ask = move || {
            let seen = icecream::look(&variables, std::env::consts::ARCH);
            let _ = tell.send(Message::Seen(seen));
        };
        // Without a thread nobody tells, and the defaults have to do.
        let _ = thread::Builder::new().name("scheduler".into()).spawn(ask);
    })
}

/// Starts to prepare all that the adapter of `setup` needs. If something must be shipped first, `run` waits for
/// [`Message::Shipped`].
pub(super) fn prepare(
    setup: &Arc<Setup>,
    request: &Request<'_>,
    tell: &Sender<Message>,
    run: &mut Run<'_>,
) {
    if setup.plan.adapter.scheduler == Some(Scheduler::Icecream) {
        run.with_look(look(request, tell), request.options.farm_jobs.is_some());
    }
    let Some(Chroot::Icecream) = setup.plan.adapter.environment else { return };
    run.await_shipment();
    let (setup, to_run) = (setup.clone(), tell.clone());
    let (cache, salt) = (request.environment.cache.clone(), request.options.env_salt.clone());
    let make = move || {
        let made = environment(&setup, cache.as_deref(), salt.as_deref().unwrap_or_default())
            .and_then(|made| named(&made));
        let _ = to_run.send(Message::Shipped(made.map_err(|error| format!("{error:#}"))));
    };
    if let Err(error) = thread::Builder::new().name("environment".into()).spawn(make) {
        let _ = tell.send(Message::Shipped(Err(format!("no thread can be started: {error}"))));
    }
}

/// What is remembered of a farm whose scheduler assigns the hosts.
pub fn memory(setup: &Setup, environment: &cli::Environment) -> Option<FarmMemory> {
    if setup.plan.adapter.scheduler != Some(Scheduler::Icecream) {
        return None;
    }
    let compiler = setup.parcels.as_ref()?.compiler();
    let farm = farm_key([&*setup.plan.adapter.name, compiler]);
    Some(FarmMemory::new(environment.cache.as_deref()?, farm))
}

/// The environment of the link's compiler, as icecream wants it named; all requests name its files from then on.
///
/// # Errors
/// It cannot be made; the text says what to do.
pub fn environment(setup: &Setup, cache: Option<&Path>, salt: &str) -> anyhow::Result<Environment> {
    let parcels = setup.parcels.as_ref().context("nothing can be sent")?;
    let cache = cache.context("there is no folder for it: set HOME or XDG_CACHE_HOME")?;
    let own = std::env::current_exe().context("the path of this program")?;
    let worker = environment::worker(&own)?;
    let made = environment::make(parcels.toolchain(), &worker, salt, cache)?;
    parcels.ship(made.files.clone());
    Ok(made)
}

/// The value of `{environment}`.
pub fn named(environment: &Environment) -> anyhow::Result<String> {
    let file = environment.file.to_str().with_context(|| format!("{:?}", environment.file))?;
    anyhow::ensure!(!file.contains([',', '=']), "{file}: icecream takes no , or = in this path");
    Ok(format!("{}:{file}", environment.platform))
}
