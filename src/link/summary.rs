//! What became of a link, in one line for people and in `--stats` for programs.

use std::time::Duration;

use super::Link;
use crate::adapter::{Place, Scheduler};
use crate::exit::Exit;
use crate::inputs::Inputs;
use crate::jobfile::Job;
use crate::outcome::Outcome;
use crate::plan::Plan;
use crate::report::duration;
use crate::report::stats::{Bytes, Caching, Places, Record, Stats, ms, utc};
use crate::run::{Bundled, End, Jobs, Progress, State};

/// `71 jobs in 12.3 s: 69 on distcc, 2 here (2 could not run there)`
pub(super) fn line(plan: &Plan, cache: &str, jobs: &Jobs, end: &End, took: Duration) -> String {
    let total = plan.file.jobs.len();
    let plural = if total == 1 { "" } else { "s" };
    let mut line = format!("{total} job{plural} in {}: ", duration(took));
    if let Some(caching) = jobs.caching {
        line += &format!("{} from {cache}, ", caching.hits);
    }
    if plan.place() == Place::Farm {
        let hosts = match jobs.hosts().len() {
            0 => String::new(),
            1 => " (1 host)".into(),
            hosts => format!(" ({hosts} hosts)"),
        };
        if plan.adapter.scheduler == Some(Scheduler::Sccache) {
            let hits = jobs.caching.map_or(0, |caching| caching.hits);
            let own = jobs.cached().saturating_sub(hits);
            line += &format!("{own} from {}'s storage, ", plan.adapter.name);
        }
        line += &format!("{} on {}{hosts}, ", jobs.made_at(Place::Farm), plan.adapter.name);
    }
    line += &format!("{} here", jobs.made_at(Place::Local));
    if jobs.made_by_tool_here() > 0 {
        line += &format!(" ({} by {} itself)", jobs.made_by_tool_here(), plan.adapter.name);
    }
    let (fallbacks, retries, failed) = (jobs.fallbacks(), jobs.all_retries(), jobs.failed());
    if fallbacks > 0 {
        line += &format!(" ({fallbacks} of them could not run there)");
    }
    if retries > 0 {
        line += &format!(", {retries} retries");
    }
    if failed > 0 {
        line += &format!(", {failed} failed");
    }
    let Bundled { sent, .. } = jobs.bundled();
    if sent > 0 {
        line += &format!("; sent {:.1} MB", sent as f64 / 1e6);
    }
    if let Some(Caching { stored, not_stored, .. }) = jobs.caching
        && stored + not_stored > 0
    {
        line += &format!("; stored {stored}");
        if not_stored > 0 {
            line += &format!(", not {not_stored}");
        }
    }
    let left = total - jobs.done() - failed;
    if left > 0 {
        line += &format!(", {left} not run");
    }
    match end {
        End { exit: Exit::Bug, .. } => line + "; this is a bug of dtlto-bridge, please report it",
        End { signal: Some(_), .. } => line + "; interrupted",
        End { given_up: true, .. } => line + "; the linker is gone",
        _ => line,
    }
}

impl Link<'_> {
    pub(super) fn stats(&self, plan: &Plan, inputs: &Inputs, jobs: &Jobs, end: &End) -> Stats {
        let total = plan.file.jobs.len();
        let (all, distinct) = inputs.bytes(&plan.file);
        let places = Places {
            cache: jobs.cached(),
            farm: jobs.made_at(Place::Farm),
            local: jobs.made_at(Place::Local),
        };
        let forced = self.forced.join("; ");
        let Bundled { sent, pieces, received } = jobs.bundled();
        Stats {
            schema: 1,
            bridge: env!("CARGO_PKG_VERSION"),
            link: self.id.clone(),
            started: utc(self.started),
            compiler: plan.file.compiler.to_string(),
            adapter: plan.adapter.name.clone(),
            cache: self.cache_name(),
            linker_output: plan.file.linker_output.to_string(),
            jobs: total,
            failed: total - jobs.done(),
            places,
            retries: jobs.all_retries(),
            fallbacks: jobs.fallbacks(),
            tool_local: jobs.tool_local(),
            hosts: jobs.hosts(),
            bytes: Bytes { inputs: all, distinct, sent, pieces, received },
            caching: jobs.caching,
            wall_ms: ms(self.began.elapsed()),
            signal: end.signal,
            overrides: (!forced.is_empty()).then_some(forced),
            records: plan.file.jobs.iter().zip(jobs.iter()).map(record).collect(),
        }
    }
}

fn record((job, progress): (&Job, &Progress)) -> Record {
    let last = progress.tries.last();
    let origin = progress.origin.as_ref();
    let cached = origin.map(|_| Outcome::Done);
    Record {
        module: job.primary.to_string(),
        place: match progress.state {
            State::Accepted(place) => Some(place.word()),
            State::Cached => Some("cache"),
            State::Open | State::Failed => None,
        },
        host: origin.map_or_else(|| last?.host.clone(), |(host, _)| host.clone()),
        attempts: progress.tries.len(),
        outcome: cached.or(last.map(|last| last.outcome)).unwrap_or(Outcome::NotStarted),
        ms: origin.map(|(_, ms)| *ms).or(last.map(|last| last.ms)).unwrap_or(0),
        outputs: progress.outputs.clone(),
        worker: last.and_then(|last| last.worker.clone()),
        tries: progress.tries.clone(),
    }
}
