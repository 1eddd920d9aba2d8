//! The plan of a link: job file x adapter x settings, as plain data. Pure: it touches no disk and knows of
//! no process. `--dry-run` prints it.

use std::fmt;
use std::time::Duration;

use crate::adapter::{
    Chroot, HandOver, List, Manifest, Place, Scalar, Scheduler, Shipping, Values,
};
use crate::cli::{Fallback, Options, WhenBusy};
use crate::jobfile::{Job, JobFile, Text};
use crate::parcel::{self, Travel};
use crate::quote;

/// An attempt on a farm may take this long unless the user says otherwise.
const FARM_LIMIT: Duration = Duration::from_secs(1800);

/// icecream's clients wait 12 minutes for an answer, the upload not counted.
const ICECREAM_LIMIT: Duration = Duration::from_secs(13 * 60);
/// Jobs at once on a farm whose scheduler does not tell how many there may be.
const MOST_UNTOLD: usize = 32;

/// Options that make clang write files beside its output, put the output's name into the object, or cannot
/// be seen through: what stands behind them is another option or a file of options.
const NEEDS_OWN_NAME: [&str; 17] = [
    "@",
    "--config",
    "--coverage",
    "--save-temps",
    "--serialize-diagnostics",
    "-MD",
    "-MMD",
    "-Xassembler",
    "-Xclang",
    "-dumpdir",
    "-fcallgraph-info",
    "-fsave-optimization-record",
    "-fstack-usage",
    "-ftest-coverage",
    "-ftime-trace",
    "-gsplit-dwarf",
    "-save-",
];

/// Under which name an attempt writes its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// A fresh one, renamed when all is well. The argument at this position holds the name.
    Fresh(usize),
    /// The job's own: its options make files that are named after the object.
    Own,
}

/// Where the bridge chooses the hosts, their slots say how many jobs run there at once: this is only what one
/// process can look after.
const MOST_ON_HOSTS: usize = 1000;

/// How many jobs run where, how long, and what follows when the farm fails.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Jobs at once on this machine.
    pub local_jobs: usize,
    /// Jobs at once on the farm.
    pub farm_jobs: usize,
    /// Further attempts on the farm.
    pub retries: u32,
    /// For one attempt on the farm.
    pub farm_time: Duration,
    /// For one attempt on this machine.
    pub local_time: Option<Duration>,
    /// Where a job goes that the farm could not do.
    pub fallback: Fallback,
    /// What to do while another build holds the farm.
    pub when_busy: WhenBusy,
}

/// What a link will do.
#[derive(Debug)]
pub struct Plan {
    /// The jobs, as LLD asked for them.
    pub file: JobFile,
    /// Who runs them.
    pub adapter: Manifest,
    /// Who runs them on this machine.
    pub local: Manifest,
    /// Numbers.
    pub limits: Limits,
    /// By job.
    pub naming: Vec<Naming>,
    /// By job: whether it may go to the farm.
    pub travel: Vec<Travel>,
}

/// The names that change from attempt to attempt.
#[derive(Clone, Debug)]
pub struct Names {
    /// Where the object is written.
    pub object: String,
    /// The index that is read, if it is not the job's own.
    pub index: Option<String>,
    /// The adapter's tool, found; empty if it has none.
    pub tool: String,
    /// The link's id.
    pub link: String,
    /// The file that goes to the farm: a bundle for the worker, or the task file of a batch.
    pub request: String,
    /// The bundle that comes back.
    pub response: String,
    /// The host that was chosen, as the tool wants it; empty if none is.
    pub host: String,
    /// The folder for what the tool keeps.
    pub private: String,
    /// The address of the tool's server; empty if the bridge has none of its own.
    pub server: String,
    /// The files that the tool is told of; empty with another shipping.
    pub declared: String,
    /// What decides about the compiler's objects; empty if nobody needs it.
    pub identity: String,
    /// What is shipped to hosts, as the tool wants it named; empty if nothing is.
    pub environment: String,
}

impl Plan {
    /// Makes the plan. `cores` is the default for `--local-jobs`.
    pub fn new(
        file: JobFile,
        adapter: Manifest,
        local: Manifest,
        options: &Options,
        cores: usize,
    ) -> Self {
        let local_jobs = options.local_jobs.map_or(cores, |n| n as usize).max(1);
        let slots = match (adapter.slots, adapter.hosts, adapter.scheduler) {
            (Some(slots), ..) => slots.get() as usize,
            (_, Some(_), _) => MOST_ON_HOSTS,
            (.., Some(Scheduler::Icecream)) => (2 * cores).min(MOST_UNTOLD),
            // It says when it is asked.
            (.., Some(Scheduler::Sccache)) => usize::MAX,
            (None, None, None) => local_jobs,
        };
        let farm_time = options.time_limit().unwrap_or(FARM_LIMIT);
        let limits = Limits {
            local_jobs,
            farm_jobs: options.farm_jobs.map_or(slots, |n| n as usize),
            retries: options.retries,
            farm_time: match adapter.environment {
                Some(Chroot::Icecream) => farm_time.min(ICECREAM_LIMIT),
                None => farm_time,
            },
            local_time: options.time_limit(),
            fallback: options.fallback,
            when_busy: options.when_busy,
        };
        let naming: Vec<Naming> = file.jobs.iter().map(naming).collect();
        let travel = match adapter.shipping {
            Shipping::Direct => vec![Travel::May(1); file.jobs.len()],
            Shipping::Bundle => file.jobs.iter().map(parcel::travel).collect(),
            Shipping::Declared => {
                file.jobs.iter().zip(&naming).map(|(job, naming)| declared(job, *naming)).collect()
            }
        };
        Plan { file, adapter, local, limits, naming, travel }
    }

    /// Jobs are processes of ours from now on, so many at once; what watches us may take them elsewhere.
    pub fn start_here(&mut self, at_once: usize) {
        let Manifest { command, env, .. } = self.local.clone();
        let adapter = &mut self.adapter;
        (adapter.place, adapter.hand_over, adapter.tool) = (Place::Local, HandOver::Each, None);
        (adapter.command, adapter.env) = (command, env);
        self.limits.local_jobs = at_once;
    }

    /// Where jobs go first.
    pub fn place(&self) -> Place {
        self.adapter.place
    }

    /// Who runs jobs at `place`.
    pub fn manifest(&self, place: Place) -> &Manifest {
        match place {
            Place::Farm => &self.adapter,
            // Another adapter may work here too, a wrapper of a team's own, say.
            Place::Local if self.adapter.place == Place::Local => &self.adapter,
            Place::Local => &self.local,
        }
    }

    /// The argv of an attempt.
    pub fn argv(&self, job: usize, place: Place, names: &Names) -> Vec<String> {
        let values = self.values(job, names);
        self.manifest(place).command.expand(&values)
    }

    /// The arguments of an attempt's compiler itself.
    pub fn compiler_args(&self, job: usize, names: &Names) -> Vec<String> {
        self.values(job, names).args().into_iter().map(str::to_owned).collect()
    }

    /// Whether the farm gets all jobs in one call.
    pub fn is_batch(&self) -> bool {
        self.adapter.hand_over == HandOver::Batch
    }

    /// The variables that an attempt sets, and those that it removes.
    pub fn env(
        &self,
        job: usize,
        place: Place,
        names: &Names,
    ) -> (Vec<(String, String)>, Vec<String>) {
        let values = self.values(job, names);
        let env = &self.manifest(place).env;
        let set =
            env.set.iter().map(|(name, value)| (name.clone(), value.expand(&values))).collect();
        (set, env.unset.clone())
    }

    fn values<'a>(&'a self, job: usize, names: &'a Names) -> JobValues<'a> {
        let option = |index: &str| format!("-fthinlto-index={index}");
        let own = &self.file.jobs[job];
        JobValues {
            naming: self.naming[job],
            number: job.to_string(),
            seconds: self.limits.farm_time.as_secs().to_string(),
            own_index: option(&own.index),
            index: option(names.index.as_deref().unwrap_or(&own.index)),
            plan: self,
            job: own,
            names,
        }
    }

    /// The command of an attempt under the job's own names, ready to be pasted into a shell.
    pub fn shown_command(&self, job: usize, place: Place) -> String {
        // What all jobs share repeats none of them.
        let place = if self.is_batch() { Place::Local } else { place };
        let tool = self.manifest(place).tool.as_ref();
        let names = Names {
            object: self.file.jobs[job].object.to_string(),
            index: None,
            tool: tool.map_or(String::new(), |tool| tool.as_path().display().to_string()),
            link: "LINK".into(),
            request: "REQUEST".into(),
            response: "RESPONSE".into(),
            host: "HOST".into(),
            private: "PRIVATE".into(),
            server: "SERVER".into(),
            declared: "FILES".into(),
            identity: "IDENTITY".into(),
            environment: "ENVIRONMENT".into(),
        };
        quote::shown(&self.argv(job, place, &names))
    }

    /// The one command that stands for all jobs, with words for what only a run knows.
    fn shown_call(&self) -> String {
        let tool = self.adapter.tool.as_ref().map(|tool| tool.as_path().display().to_string());
        quote::shown(&self.adapter.command.expand(&Call { plan: self, tool }))
    }

    /// Where a job's attempt number `attempt` writes its object; `fresh` makes up names.
    pub fn object_name(&self, job: usize, fresh: impl FnOnce(&str) -> String) -> String {
        let own = &self.file.jobs[job].object;
        match self.naming[job] {
            Naming::Own => own.to_string(),
            Naming::Fresh(_) => fresh(own),
        }
    }
}

/// Whether a job may go to a tool that is told of its files.
fn declared(job: &Job, naming: Naming) -> Travel {
    // Whoever splits a list at colons cannot be told of such a name.
    let split = |input: &&Text| input.contains([':', '\n']);
    match parcel::travel(job) {
        Travel::May(_) if naming == Naming::Own => {
            Travel::Stays("its options make files that are named after the object".into())
        }
        Travel::May(_) if parcel::own_args(job).len() < job.args.len() => {
            Travel::Stays("its compiler is told by an argument to be clang".into())
        }
        Travel::May(_) if job.inputs().any(|input| split(&input)) => {
            Travel::Stays("the name of an input has a colon or a new line in it".into())
        }
        // Such a tool gives each job one slot.
        Travel::May(_) => Travel::May(1),
        stays => stays,
    }
}

/// The one argument that names the object, if it can be replaced without a change of the object's bytes.
fn naming(job: &Job) -> Naming {
    let outputs: Vec<usize> = job
        .args
        .windows(2)
        .enumerate()
        .filter(|(_, pair)| &*pair[0] == "-o" && pair[1] == job.object)
        .map(|(at, _)| at + 1)
        .collect();
    let needs_own = |arg: &str| NEEDS_OWN_NAME.iter().any(|option| arg.starts_with(option));
    match outputs.as_slice() {
        [at] if job.other_outputs.is_empty() && !job.args.iter().any(|arg| needs_own(arg)) => {
            Naming::Fresh(*at)
        }
        _ => Naming::Own,
    }
}

struct JobValues<'a> {
    plan: &'a Plan,
    job: &'a Job,
    naming: Naming,
    number: String,
    seconds: String,
    own_index: String,
    index: String,
    names: &'a Names,
}

impl JobValues<'_> {
    fn args(&self) -> Vec<&str> {
        let mut args: Vec<&str> = texts(&self.job.args).collect();
        if let Naming::Fresh(position) = self.naming {
            args[position] = &self.names.object;
        }
        for arg in args.iter_mut().filter(|arg| **arg == self.own_index) {
            *arg = &self.index;
        }
        args
    }
}

impl Values for JobValues<'_> {
    fn scalar(&self, scalar: Scalar) -> &str {
        match scalar {
            Scalar::Compiler => &self.plan.file.compiler,
            Scalar::Primary => &self.job.primary,
            Scalar::Index => self.names.index.as_deref().unwrap_or(&self.job.index),
            Scalar::Object => &self.names.object,
            Scalar::LinkerOutput => &self.plan.file.linker_output,
            Scalar::Tool => &self.names.tool,
            Scalar::Job => &self.number,
            Scalar::Link => &self.names.link,
            Scalar::Request | Scalar::Tasks => &self.names.request,
            Scalar::Response => &self.names.response,
            Scalar::Host => &self.names.host,
            Scalar::Private => &self.names.private,
            Scalar::Server => &self.names.server,
            Scalar::Declared => &self.names.declared,
            Scalar::Identity => &self.names.identity,
            Scalar::Environment => &self.names.environment,
            Scalar::Seconds => &self.seconds,
        }
    }

    fn list(&self, list: List) -> Vec<&str> {
        let job = self.job;
        match list {
            List::Args => self.args(),
            List::Imports => texts(&job.imports).collect(),
            List::OtherInputs => texts(&job.other_inputs).collect(),
            List::Inputs => [&*job.primary, self.scalar(Scalar::Index)]
                .into_iter()
                .chain(texts(&job.imports))
                .chain(texts(&job.other_inputs))
                .collect(),
            // It stands for no job; a command that wraps the bridge is made elsewhere.
            List::Bridge => Vec::new(),
            List::Outputs => {
                [&*self.names.object].into_iter().chain(texts(&job.other_outputs)).collect()
            }
        }
    }
}

/// What the command of a batch or a wrapping tool is made of, to be shown.
struct Call<'a> {
    plan: &'a Plan,
    tool: Option<String>,
}

impl Values for Call<'_> {
    fn scalar(&self, scalar: Scalar) -> &str {
        match scalar {
            Scalar::Compiler => &self.plan.file.compiler,
            Scalar::LinkerOutput => &self.plan.file.linker_output,
            Scalar::Tool => self.tool.as_deref().unwrap_or_default(),
            Scalar::Tasks => "TASKS",
            Scalar::Link => "LINK",
            Scalar::Private => "PRIVATE",
            Scalar::Seconds => "SECONDS",
            // The manifest was checked for all others.
            _ => "",
        }
    }

    fn list(&self, list: List) -> Vec<&str> {
        if list == List::Bridge { vec!["dtlto-bridge", "..."] } else { Vec::new() }
    }
}

fn texts(texts: &[Text]) -> impl Iterator<Item = &str> {
    texts.iter().map(|text| &**text)
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { file, adapter, limits, .. } = self;
        let at_once = match (adapter.hand_over, adapter.place) {
            (HandOver::Batch, _) => "all in one call".to_owned(),
            (_, Place::Farm) if limits.farm_jobs == usize::MAX => {
                "as many at once as its scheduler says".into()
            }
            (_, Place::Farm) if adapter.hosts.is_some() && limits.farm_jobs == MOST_ON_HOSTS => {
                "as many at once as its hosts have slots".into()
            }
            (HandOver::Wrap, _) | (_, Place::Farm) => format!("{} at once", limits.farm_jobs),
            (_, Place::Local) => format!("{} at once", limits.local_jobs),
        };
        writeln!(
            f,
            "plan for {:?}: {} jobs, adapter {}, {at_once}",
            file.linker_output,
            file.jobs.len(),
            adapter.name
        )?;
        writeln!(f, "compiler: {}", file.compiler)?;
        if adapter.hand_over != HandOver::Each {
            writeln!(f, "{}: {}", adapter.hand_over, self.shown_call())?;
        }
        for (number, job) in file.jobs.iter().enumerate() {
            writeln!(f, "job {number}: {} -> {}", job.primary, job.object)?;
            writeln!(f, "  index:   {}", job.index)?;
            for (what, texts) in [
                ("imports", &job.imports),
                ("inputs", &job.other_inputs),
                ("outputs", &job.other_outputs),
            ] {
                if !texts.is_empty() {
                    writeln!(f, "  {:8} {}", format!("{what}:"), texts.join(", "))?;
                }
            }
            if self.naming[number] == Naming::Own {
                writeln!(
                    f,
                    "  writes under its own name: its options make files named after the object"
                )?;
            }
            let place = match &self.travel[number] {
                Travel::May(_) => adapter.place,
                Travel::Stays(why) => {
                    writeln!(f, "  stays here: {why}")?;
                    Place::Local
                }
            };
            writeln!(f, "  {place}: {}", self.shown_command(number, place))?;
        }
        Ok(())
    }
}
