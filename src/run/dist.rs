//! A run on a farm whose tool says afterwards where it made an object: in the storage, on the farm, or, without having
//! been asked to, on this machine. How many jobs are in flight follows from it, since such a farm has no queue.

use std::fs;
use std::time::Duration;

use super::Run;
use crate::adapter::Place;
use crate::attempt::Report;
use crate::cache::dist::Told;
use crate::cli::Fallback;
use crate::outcome::Outcome;
use crate::report::stats::ms;

/// Said of an object that was made here though the farm was asked.
const RAN_HERE: &str =
    "sccache ran it on this machine, by itself: the farm had no room, or refused it";

impl Run<'_> {
    /// One job alone first, where the farm has not got the compiler yet: it is sent with the first job, which takes
    /// long, and sccache would run all others here meanwhile.
    pub(super) fn warm_up_first(&mut self) {
        if self.setup.dist.as_ref().is_some_and(|dist| !dist.warm) {
            self.warming = true;
            self.farm_most = 1;
        }
    }

    /// What the log said of an attempt on the farm. An object that was made here is taken, if jobs may run here.
    pub(super) fn hear_of_place(&mut self, report: &mut Report) {
        let (Some(told), Some(dist)) = (report.told, &self.setup.dist) else { return };
        let most = self.setup.plan.limits.farm_jobs;
        match told {
            Told::Cache => {}
            Told::Farm => {
                dist.is_warm();
                let warmed = std::mem::replace(&mut self.warming, false);
                self.farm_most = if warmed { most } else { (self.farm_most + 1).min(most) };
            }
            Told::Here => {
                self.warming = false;
                self.farm_most = (self.farm_most / 2).max(1);
            }
        }
        if told != Told::Here || report.outcome != Outcome::Done {
            return;
        }
        if self.setup.plan.limits.fallback == Fallback::Never {
            report.outcome = Outcome::ToolLocal;
            report.reason = RAN_HERE.into();
            report.made.iter().for_each(|(made, _)| drop(fs::remove_file(made)));
        }
    }

    /// Counts an object that was made here and is taken, as an attempt of the farm and one of this machine.
    pub(super) fn count_silent_start(&mut self, report: &mut Report) {
        if report.told != Some(Told::Here) || report.outcome != Outcome::Done {
            return;
        }
        let here = Report::not_started(report.which, report.began, RAN_HERE.into());
        let silent = Report { outcome: Outcome::ToolLocal, took: Duration::ZERO, ..here };
        self.jobs.record(&silent);
        self.jobs.go_home(report.which.job);
        report.which.place = Place::Local;
    }

    /// Takes outputs, from wherever they came.
    pub(super) fn accept(&mut self, report: Report) {
        match report.told {
            Some(Told::Cache) => {
                let job = report.which.job;
                self.jobs.accept_cached(job, report.outputs, None, ms(report.took));
            }
            _ => self.jobs.accept(report.which.job, report.outputs),
        }
    }
}
