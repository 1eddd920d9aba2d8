//! What a link writes for its users: the saved link, statistics and the trace. It does not know what is in them.

use std::path::{Path, PathBuf};

use anyhow::Context;

use super::Link;
use crate::attempt::Setup;
use crate::exit::Failure;
use crate::inputs::Inputs;
use crate::plan::Plan;
use crate::report::{Reporter, file};
use crate::run::{End, Jobs};
use crate::save;

impl Link<'_> {
    /// `--save`: a link does not fail for it.
    pub(super) fn save(&self, setup: &Setup, reporter: &mut Reporter) -> Option<PathBuf> {
        let asked = self.request.options.save.as_deref()?;
        let folder = file::target(asked, &self.own_name(&setup.plan));
        let about = save::About { link: &self.id, environment: self.request.environment };
        let saved = save::save(&folder, &setup.plan, &about).context("--save");
        match saved {
            Ok(notices) => {
                notices.iter().for_each(|notice| reporter.notice(notice));
                Some(folder)
            }
            Err(error) => {
                tell(Err(error), reporter);
                None
            }
        }
    }

    /// The name of this link's own file or folder in a folder for all links.
    pub(super) fn own_name(&self, plan: &Plan) -> String {
        let output = Path::new(&*plan.file.linker_output).file_name();
        let output = output.map_or("link".into(), |name| name.to_string_lossy());
        format!("{output}-{}", self.id)
    }

    /// The reports of a link that ended before a job could run.
    pub(super) fn report_unrun(
        &self,
        plan: &Plan,
        inputs: &Inputs,
        failure: &Failure,
        reporter: &mut Reporter,
    ) {
        let end = End { exit: failure.exit, signal: None, given_up: false };
        let jobs = Jobs::new(plan.file.jobs.len());
        self.write_reports(plan, inputs, &jobs, &end, reporter);
    }

    /// `--stats` and `--trace`. A link that made its program does not fail for a report.
    pub(super) fn write_reports(
        &self,
        plan: &Plan,
        inputs: &Inputs,
        jobs: &Jobs,
        end: &End,
        reporter: &mut Reporter,
    ) {
        let options = &self.request.options;
        let own_name = self.own_name(plan) + ".json";
        if let Some(asked) = &options.stats {
            let stats = self.stats(plan, inputs, jobs, end);
            let written = serde_json::to_vec(&stats)
                .context("--stats")
                .and_then(|text| file::write(&file::target(asked, &own_name), &text));
            tell(written, reporter);
        }
        if let (Some(asked), Some(trace)) = (&options.trace, &self.trace) {
            tell(file::write(&file::target(asked, &own_name), &trace.finish()), reporter);
        }
    }
}

pub(super) fn tell(result: anyhow::Result<()>, reporter: &mut Reporter) {
    if let Err(error) = result {
        reporter.notice(&format!("not written: {error:#}"));
    }
}
