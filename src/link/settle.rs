//! How a link's jobs come to run: by the adapter as it is, by a tool that wraps the bridge, or by processes of ours
//! that a build around this link takes elsewhere. It starts no job.

use anyhow::anyhow;

use super::wrap::{self, Wrapped};
use super::{Ending, Link, cores};
use crate::adapter::HandOver;
use crate::cli::Fallback;
use crate::exit::{Exit, Failure};
use crate::inputs::Inputs;
use crate::plan::Plan;
use crate::report::Reporter;

impl Link<'_> {
    /// Takes the jobs to where they run, and to their end.
    pub(super) fn settle(
        mut self,
        mut plan: Plan,
        mut server: Option<jobserver::Client>,
        mut reporter: Reporter,
    ) -> Result<Ending, Failure> {
        wrap::allowed(&plan)?;
        let many = plan.limits.farm_jobs;
        let environment = self.request.environment;
        match plan.adapter.hand_over {
            HandOver::Each => {}
            HandOver::Batch => {
                if let Some(variable) = self.around(&plan) {
                    self.may_run_inside(&plan, &variable, &mut reporter)?;
                    plan.start_here(many);
                    (server, self.unshared) = (None, true);
                }
            }
            HandOver::Wrap if environment.wrapped.is_some() => {
                plan.start_here(many);
                (server, self.unshared) = (None, true);
            }
            HandOver::Wrap => {
                if let Some(arguments) = &self.request.arguments {
                    match self.wrapped(&plan, arguments, &mut reporter) {
                        Wrapped::Over(ending) => return Ok(ending),
                        Wrapped::WorkHere(why) => {
                            let name = &plan.adapter.name;
                            reporter.notice(&format!("{name} is not used: {why}; working here"));
                        }
                    }
                }
                plan.start_here(self.request.options.local_jobs.map_or(cores(), |n| n as usize));
            }
        }
        self.perform(plan, server, reporter)
    }

    /// The variable that tells of a build of the adapter's tool around this link.
    fn around(&self, plan: &Plan) -> Option<String> {
        let variable = plan.adapter.batch.as_ref()?.inside.as_ref()?;
        let mut known = self.request.environment.shown.keys();
        known.find(|name| name.eq_ignore_ascii_case(variable)).cloned()
    }

    /// The tool runs one build at a time: a second one would wait for the first, which waits for this link.
    fn may_run_inside(
        &self,
        plan: &Plan,
        variable: &str,
        reporter: &mut Reporter,
    ) -> Result<(), Failure> {
        let name = &plan.adapter.name;
        if plan.limits.fallback == Fallback::Local {
            reporter.notice(&format!(
                "this link runs inside a build of {name} ({variable} is set), which takes one build at a time; \
                 starting up to {} jobs here, for that build to take",
                plan.limits.farm_jobs
            ));
            return Ok(());
        }
        let why = format!("{name} cannot be started inside a build of its own ({variable} is set)");
        let failure = Failure::new(Exit::Farm, anyhow!("{why}, and nothing may run here"));
        self.report_unrun(plan, &Inputs::default(), &failure, reporter);
        Err(failure)
    }
}
