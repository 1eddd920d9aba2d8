//! The farm, as a run sees it: which jobs never go there, when it is left alone, and how jobs come home.

use std::collections::{BTreeMap, HashSet};

use super::Run;
use crate::adapter::Place;
use crate::attempt::Report;
use crate::cli::Fallback;
use crate::exit::Exit;
use crate::hosts::memory::FarmMemory;
use crate::outcome::Outcome;
use crate::parcel::Travel;

/// So many faults of the farm in a row, without a success between them, and it is left alone.
const FAULTS_IN_A_ROW: usize = 8;

impl Run<'_> {
    /// Leaves the farm alone for this link, before anything was started there.
    pub fn without_farm(&mut self, reason: &str) {
        self.farm_is_down(reason);
    }

    /// Keeps the jobs here that may not travel; each reason is told once.
    pub(super) fn keep_home(&mut self) {
        let setup = self.setup.clone();
        let mut reasons: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (job, travel) in setup.plan.travel.iter().enumerate() {
            if let (Place::Farm, Travel::Stays(why)) = (setup.plan.place(), travel) {
                reasons.entry(why).or_default().push(job);
            }
        }
        let kept: HashSet<usize> = reasons.values().flatten().copied().collect();
        self.farm.retain(|job| !kept.contains(&job));
        for (why, jobs) in reasons {
            let (count, name) = (jobs.len(), &setup.plan.adapter.name);
            if setup.plan.limits.fallback == Fallback::Local {
                self.reporter.notice(&format!("{count} jobs stay here: {why}"));
                jobs.into_iter().for_each(|job| self.go_home(job));
            } else {
                let text = format!("{count} jobs cannot go to {name} and may not run here: {why}");
                self.reporter.error(&text);
                jobs.into_iter().for_each(|job| self.jobs.fail_for_farm(job, why));
                self.failed_for = Some(Exit::Farm);
            }
        }
    }

    /// Tells of the jobs that turned out not to be for the farm; each reason once.
    pub(super) fn tell_who_stayed(&mut self) {
        let name = &self.setup.plan.adapter.name;
        for (why, count) in std::mem::take(&mut self.stayed) {
            self.reporter.notice(&format!("{count} jobs could not go to {name}: {why}"));
        }
    }

    pub(super) fn go_home(&mut self, job: usize) {
        let size = self.setup.inputs.size(&self.setup.plan.file.jobs[job].primary);
        self.jobs.go_home(job);
        self.local.push(size, job);
    }

    /// The further attempts that the farm may make at the job of `report`. One that took too long gets one on
    /// another host, where hosts are chosen here: where it was, it would take as long again.
    pub(super) fn retries_left(&self, report: &Report) -> u32 {
        let job = report.which.job;
        let elsewhere = || {
            let another = self.fleet.as_ref().is_some_and(|fleet| fleet.has_another(job));
            another && self.jobs.tried(job, Outcome::TimedOut) == 1
        };
        match report.outcome {
            _ if !self.farm_works => 0,
            Outcome::TimedOut if !elsewhere() => 0,
            _ => self.setup.plan.limits.retries.saturating_sub(self.jobs.retries(job)),
        }
    }

    /// A farm that only fails is not asked again in this link.
    pub(super) fn weigh_farm(&mut self, report: &Report) {
        if self.fleet.is_some() {
            self.weigh_host(report);
            return;
        }
        match report.outcome {
            Outcome::Done | Outcome::CompilerError => self.faults_in_a_row = 0,
            // A scheduler may want a job here while all hosts are busy.
            Outcome::ToolLocal | Outcome::FarmBusy if self.farm_is_at_work() => {}
            Outcome::FarmDown => {
                self.remember_dead_farm(&report.reason);
                self.farm_is_down(&report.reason);
            }
            Outcome::NotStarted => self.farm_is_down(&report.reason),
            Outcome::FarmFault
            | Outcome::FarmBusy
            | Outcome::FarmUnfit
            | Outcome::ToolLocal
            | Outcome::Missing
            | Outcome::TimedOut => {
                self.faults_in_a_row += 1;
                if self.faults_in_a_row >= FAULTS_IN_A_ROW {
                    let reason = format!("{} (the last of many faults)", report.reason);
                    self.remember_dead_farm(&reason);
                    self.farm_is_down(&reason);
                }
            }
            Outcome::MissingPieces
            | Outcome::Recalled
            | Outcome::StaysHere
            | Outcome::Cancelled
            | Outcome::Refused => {}
        }
    }

    /// Uses a farm whose jobs need something shipped, once that is there; [`Message::Shipped`] tells.
    pub fn await_shipment(&mut self) {
        self.farm_ready = false;
    }

    /// What is known of the farm by earlier links.
    pub fn with_memory(&mut self, memory: FarmMemory) {
        self.farm_memory = Some(memory);
    }

    pub(super) fn shipped(&mut self, ready: Result<String, String>) {
        self.farm_ready = true;
        match ready {
            Ok(environment) => drop(self.setup.environment.set(environment)),
            Err(reason) => self.farm_is_down(&reason),
        }
    }

    pub(super) fn remember_dead_farm(&self, reason: &str) {
        if let (Some(memory), true) = (&self.farm_memory, self.farm_works) {
            memory.note_dead(reason);
        }
    }

    pub(super) fn remember_farm_works(&self) {
        if let (Some(memory), true) = (&self.farm_memory, self.jobs.made_at(Place::Farm) > 0) {
            memory.note_works();
        }
    }

    pub(super) fn farm_is_down(&mut self, reason: &str) {
        if !std::mem::replace(&mut self.farm_works, false) {
            return;
        }
        self.farm_fault = reason.to_owned();
        let name = &self.setup.plan.adapter.name;
        if self.setup.plan.limits.fallback == Fallback::Local {
            self.reporter.notice(&format!("{name} is not used any more: {reason}; working here"));
        }
        let left: Vec<usize> =
            self.farm.drain().chain(self.paused.drain(..).map(|(_, job)| job)).collect();
        self.do_without_farm(left);
    }

    /// What becomes of jobs that were meant for a farm which is down.
    pub(super) fn do_without_farm(&mut self, jobs: Vec<usize>) {
        if self.setup.plan.limits.fallback == Fallback::Local {
            return jobs.into_iter().for_each(|job| self.go_home(job));
        }
        if jobs.is_empty() {
            return;
        }
        let (name, reason) = (&self.setup.plan.adapter.name, &self.farm_fault);
        if self.failed_for != Some(Exit::Farm) {
            self.reporter
                .error(&format!("{name} cannot be used and nothing may run here: {reason}"));
        }
        jobs.into_iter().for_each(|job| self.jobs.fail_for_farm(job, reason));
        self.failed_for = Some(Exit::Farm);
    }
}
