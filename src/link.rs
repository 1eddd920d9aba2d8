//! A link from its job file to its exit code: read, plan, check, run, report. Each phase is elsewhere; this
//! is their order, and what must be tidied up whatever happens.

mod cache;
pub mod farm;
mod driver;
mod reports;
mod settle;
pub mod shipment;
mod summary;
mod wrap;

use std::collections::hash_map::RandomState;
use std::ffi::OsString;
use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Instant, SystemTime};

use anyhow::{Context, anyhow};

use reports::tell;

use crate::adapter::{self, HostList, Place, Scheduler, Shipping, Tool};
use crate::attempt::{Setup, stable_name};
use crate::bundle::Library;
use crate::cache::key::Keys;
use crate::cli::{self, Environment, Options};
use crate::collect::{self, Scratch};
use crate::exit::{Exit, Failure};
use crate::fleet::{self, Fleet};
use crate::hosts::list::Host;
use crate::hosts::memory::FarmMemory;
use crate::inputs::Inputs;
use crate::jobfile::{Job, JobFile};
use crate::os;
use crate::overrides;
use crate::plan::Plan;
use crate::process::guard::{self, Guard};
use crate::process::slots::Slots;
use crate::process::watch::{self, Linker};
use crate::process::{self, Groups};
use crate::report::trace::Trace;
use crate::report::{Reporter, write_stderr};
use crate::run::{Message, Run};
use crate::save;

/// More notices on a job file than these are only counted.
const NOTICES_SHOWN: usize = 10;

/// Said after a failure: without it the command to repeat it cannot work.
const INDEX_FILES_GO: &str = "LLD now deletes the index files that such a command reads; to keep them, link \
     again with --save-temps (-Wl,--save-temps, or /lldsavetemps)";

/// What started the run.
pub struct Request<'a> {
    /// The job file.
    pub job_file: &'a Path,
    /// The linker, if one waits for us.
    pub linker: Option<Linker>,
    /// A job server that was handed down to us.
    pub server: Option<jobserver::Client>,
    /// Stands in for the job file's compiler.
    pub compiler: Option<String>,
    /// Our own arguments, where we may be started with them once more.
    pub arguments: Option<Vec<OsString>>,
    /// The options.
    pub options: Options,
    /// The environment.
    pub environment: &'a Environment,
}

/// How a link ended, for `main`.
#[derive(Clone, Copy, Debug)]
pub struct Ending {
    /// The exit code.
    pub exit: Exit,
    /// A signal to raise instead.
    pub signal: Option<i32>,
}

/// One link.
struct Link<'a> {
    request: &'a Request<'a>,
    id: String,
    began: Instant,
    started: SystemTime,
    forced: Vec<String>,
    trace: Option<Trace>,
    /// No slots of this machine are asked for: something around us takes the jobs elsewhere.
    unshared: bool,
}

/// A link that can run.
struct Ready {
    setup: Arc<Setup>,
    /// Why the farm cannot be used.
    no_farm: Option<String>,
    /// What jobs are called in the cache, if there is to be one.
    keys: Option<Result<Keys, String>>,
    server: Option<jobserver::Client>,
}

/// Does all that LLD asks for.
///
/// # Errors
/// What ends a link before a job could run.
pub fn link(mut request: Request<'_>) -> Result<Ending, Failure> {
    let variable = request.environment.overrides.as_deref();
    let (found, notices) = overrides::look(variable, Path::new(overrides::FILE));
    found.iter().for_each(|(overrides, _)| overrides.apply(&mut request.options));
    let forced = found.into_iter().map(|(_, line)| line).collect();
    let mut reporter = Reporter::new(&request.options, request.environment);
    notices.iter().for_each(|notice| reporter.notice(notice));
    if request.environment.wrapped.is_some() {
        reporter.leave_failures();
    }
    for name in &request.environment.unknown {
        reporter.notice(&format!("the variable {name} belongs to no option; see --help"));
    }
    cache::check(&request.options).map_err(cli::usage)?;
    let folder = request.environment.adapters.as_deref();
    let adapter = adapter::load(&request.options.adapter, folder).map_err(cli::usage)?;
    adapter.fits_here().map_err(cli::usage)?;
    let local = adapter::load("local", None).map_err(|error| Failure::new(Exit::Bug, error))?;
    let file = read(&mut request, &mut reporter)?;
    let server = request.server.take();
    let link = Link {
        id: request.environment.wrapped.as_deref().map_or_else(new_id, wrap::inner_id),
        began: Instant::now(),
        started: SystemTime::now(),
        forced,
        trace: None,
        unshared: false,
        request: &request,
    };
    let plan = Plan::new(file, adapter, local, &request.options, cores());
    if request.options.dry_run { link.show(&plan) } else { link.settle(plan, server, reporter) }
}

fn read(request: &mut Request<'_>, reporter: &mut Reporter) -> Result<JobFile, Failure> {
    let read = JobFile::read(request.job_file).map_err(|error| {
        let slip = cli::slip(request.job_file.as_os_str());
        let error = slip.map_or(anyhow!("{error:#}"), |slip| anyhow!("{error:#}; {slip}"));
        Failure::new(Exit::JobFile, error)
    });
    let mut file = read?;
    let more = file.notices.len().saturating_sub(NOTICES_SHOWN);
    file.notices.iter().take(NOTICES_SHOWN).for_each(|notice| reporter.notice(notice));
    if more > 0 {
        reporter.notice(&format!("and {more} more notices on the job file"));
    }
    if let Some(compiler) = request.compiler.take() {
        file.compiler = compiler.into();
    }
    if let Some(notice) = driver::use_usual(&mut file) {
        reporter.notice(&notice);
    }
    Ok(file)
}

/// The cores that cgroup and CPU affinity leave.
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// A name that no other link has.
fn new_id() -> String {
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    format!("{:012x}", hasher.finish() & 0xffff_ffff_ffff)
}

/// Looks at all inputs, at the places of all outputs, and for the compiler.
fn check(plan: &Plan) -> Result<(Inputs, PathBuf), Failure> {
    let failure = |text: String| Failure::new(Exit::JobFile, anyhow!(text));
    let inputs = Inputs::look(&plan.file).map_err(|problems| failure(problems.join("\n  ")))?;
    for job in &plan.file.jobs {
        collect::check_places(job).map_err(|error| failure(format!("{error:#}")))?;
    }
    let compiler = cli::find_program(&plan.file.compiler)
        .map_err(|error| failure(format!("the compiler that the linker names: {error:#}")))?;
    Ok((inputs, compiler))
}

impl Link<'_> {
    /// `--dry-run`.
    fn show(&self, plan: &Plan) -> Result<Ending, Failure> {
        write_stderr(plan.to_string().as_bytes());
        check(plan)?;
        Ok(Ending { exit: Exit::Ok, signal: None })
    }

    fn perform(
        mut self,
        mut plan: Plan,
        server: Option<jobserver::Client>,
        mut reporter: Reporter,
    ) -> Result<Ending, Failure> {
        let checked = check(&plan).and_then(|ready| Ok((ready, find_tool(&plan)?)));
        let ((inputs, compiler), tool) = match checked {
            Ok(found) => found,
            Err(failure) => {
                self.report_unrun(&plan, &Inputs::default(), &failure, &mut reporter);
                return Err(failure);
            }
        };
        let mut no_farm = tool.clone().err();
        let about = farm::Asker {
            link: &self.id,
            math: self.request.options.math,
            environment: self.request.environment,
        };
        let library: Arc<Library> = Arc::default();
        let ships = plan.adapter.shipping != Shipping::Direct;
        let toolchain = (ships || self.wants_cache()).then(|| about.toolchain(&plan, &compiler));
        let parcels = toolchain.as_ref().and_then(|found| match found {
            Ok(toolchain) => about.parcels(&plan, toolchain, &library),
            Err(why) => {
                no_farm = no_farm.take().or_else(|| ships.then(|| why.clone()));
                None
            }
        });
        let looked_through = toolchain.as_ref().and_then(|found| found.as_ref().ok()).cloned();
        let keys = toolchain.and_then(|found| self.keys(found, library.clone()));
        let known = match (&no_farm, &tool, plan.adapter.hosts) {
            (None, Ok(tool), Some(kind)) => self.hosts(kind, tool),
            _ => Ok(Vec::new()),
        };
        let hosts = known.unwrap_or_else(|error| {
            no_farm = Some(format!("{error:#}"));
            Vec::new()
        });
        let options = &self.request.options;
        self.trace = options.trace.is_some().then(|| Trace::new(self.began));
        let outputs = plan.file.jobs.iter().flat_map(Job::outputs).map(|output| &**output);
        let scratch = Scratch::new(&self.id, outputs, options.scratch.as_deref());
        let by_sccache = plan.adapter.scheduler == Some(Scheduler::Sccache);
        let asked = match (&no_farm, &tool, &looked_through) {
            (None, Ok(tool), Some(toolchain)) if by_sccache => {
                about.dist(tool, &toolchain.identity.full).map(Some)
            }
            _ => Ok(None),
        };
        let dist = asked.unwrap_or_else(|why| {
            no_farm = Some(why);
            None
        });
        if by_sccache {
            let most = dist.as_ref().map_or(1, |dist| dist.slots);
            plan.limits.farm_jobs = plan.limits.farm_jobs.min(most);
        }
        let setup = Setup {
            inherited: about.inherited(&plan),
            dist,
            toolchain: looked_through,
            library,
            digests: options.stats.is_some() || options.save.is_some(),
            inside_farm: plan.adapter.scheduler == Some(Scheduler::Icecream)
                && self.request.environment.icecream.inside,
            tool: tool.clone().unwrap_or_default(),
            link: self.id.clone(),
            compiler,
            inputs,
            private: scratch.private().unwrap_or_default().display().to_string(),
            path: None,
            environment: OnceLock::new(),
            hosts,
            scratch,
            plan,
            parcels,
        };
        let setup = Arc::new(farm::with_path(setup, self.request.environment));
        self.run(Ready { setup, no_farm, keys, server }, reporter)
    }

    /// The hosts that the adapter's tool knows, but for those that an override forbids.
    fn hosts(&self, kind: HostList, tool: &str) -> anyhow::Result<Vec<Host>> {
        let list = fleet::probe::hosts(kind, tool, &Groups::new(None))?;
        fleet::probe::usable(list, &self.request.options.never_hosts)
    }

    /// What the bridge knows of the farm's hosts, where it chooses among them.
    fn fleet(&self, setup: &Setup) -> Result<Option<Fleet>, String> {
        let Some(parcels) = setup.parcels.as_ref().filter(|_| !setup.hosts.is_empty()) else {
            return Ok(None);
        };
        let cache = self.request.environment.cache.as_deref();
        Fleet::new(setup.hosts.clone(), parcels.compiler(), cache, Instant::now()).map(Some)
    }

    fn run(
        mut self,
        Ready { setup, no_farm, keys, server }: Ready,
        mut reporter: Reporter,
    ) -> Result<Ending, Failure> {
        let limits = &setup.plan.limits;
        process::allow_programs(limits.local_jobs + limits.farm_jobs);
        let guard = Guard::start(&self.id)
            .inspect_err(|error| reporter.detail(&format!("no guard: {error}")))
            .ok();
        let groups = Groups::new(guard);
        let ours = made_by_us(&setup);
        if let Some(guard) = groups.guard() {
            guard.remove_if_killed(&ours);
        }
        let channel = channel();
        let ready = (setup.scratch.make())
            .and_then(|()| farm::prepare_tool(&setup))
            .and_then(|()| self.listen(&channel.0));
        if let Err(error) = ready {
            tidy(&setup, &groups, &[]);
            let failure = Failure::new(Exit::JobFile, error);
            self.report_unrun(&setup.plan, &setup.inputs, &failure, &mut reporter);
            return Err(failure);
        }
        let saved = self.save(&setup, &mut reporter);
        let slots = match self.unshared {
            true => Slots::unshared(),
            false => slots(server, &setup.plan, &channel.0, &mut reporter),
        };
        let memory = shipment::memory(&setup, self.request.environment);
        let no_farm = no_farm.or_else(|| memory.as_ref().and_then(FarmMemory::dead));
        let fleet = no_farm.map_or_else(|| self.fleet(&setup), Err);
        let cache = keys.and_then(|keys| self.cache(&setup, keys, &groups, &mut reporter));
        let to_run = channel.0.clone();
        let trace = self.trace.as_mut();
        let mut run = Run::new(setup.clone(), groups.clone(), &mut reporter, trace, slots, channel);
        if let Some(cache) = cache {
            run.with_cache(cache);
        }
        match fleet {
            Ok(Some(fleet)) => run.with_fleet(fleet),
            Ok(None) => {
                memory.into_iter().for_each(|memory| run.with_memory(memory));
                shipment::prepare(&setup, self.request, &to_run, &mut run);
            }
            Err(reason) => run.without_farm(&reason),
        }
        let (mut end, jobs) = run.run();
        // A job may have failed just because LLD, giving up, removed its index.
        end.given_up |= !self.is_awaited();
        if let Some(folder) = &saved {
            tell(farm::keep_calls(&setup, folder).context("--save"), &mut reporter);
        }
        tidy(&setup, &groups, if end.given_up { &ours } else { &[] });
        if let Some(folder) = saved {
            let finished = save::finish(&folder, &setup.plan, &jobs);
            tell(finished.context("--save"), &mut reporter);
        }
        self.write_reports(&setup.plan, &setup.inputs, &jobs, &end, &mut reporter);
        self.remember_cache(&setup.plan, &jobs);
        if let Some(word) = &self.request.environment.wrapped {
            wrap::tell_outer(word, end.exit);
            if end.exit == Exit::JobFailed && end.signal.is_none() {
                // The outer bridge tries again and has the last word.
                return Ok(Ending { exit: end.exit, signal: None });
            }
        }
        let linker_waits = self.request.linker.is_some() && !end.given_up;
        if end.exit == Exit::JobFailed && linker_waits {
            reporter.notice(INDEX_FILES_GO);
        }
        let took = self.began.elapsed();
        reporter.summary(&summary::line(&setup.plan, &self.cache_name(), &jobs, &end, took));
        self.forced.iter().for_each(|line| reporter.summary(line));
        Ok(Ending { exit: end.exit, signal: end.signal })
    }

    /// There is still somebody who wants the objects.
    fn is_awaited(&self) -> bool {
        self.request.linker.is_none_or(|linker| linker.waits_for(self.request.job_file))
    }

    /// Lets signals and the linker's end be told to the run.
    fn listen(&self, sender: &Sender<Message>) -> anyhow::Result<()> {
        let to_run = sender.clone();
        watch::signals(move |signal| drop(to_run.send(Message::Signal(signal))))?;
        if let Some(linker) = self.request.linker {
            let to_run = sender.clone();
            let tell = move || drop(to_run.send(Message::LinkerGone));
            linker.watch(self.request.job_file.to_owned(), tell)?;
        }
        Ok(())
    }
}

/// The program of a tool: the first of its names that is there.
///
/// # Errors
/// None of them is.
pub fn program_of(tool: &Tool) -> anyhow::Result<PathBuf> {
    let names = || tool.candidates().map(|name| name.to_string_lossy());
    let found = names().find_map(|name| cli::find_program(&name).ok());
    found.map_or_else(|| cli::find_program(&names().collect::<Vec<_>>().join(" or ")), Ok)
}

/// The adapter's tool; a farm whose tool is missing is a farm that is down.
fn find_tool(plan: &Plan) -> Result<Result<String, String>, Failure> {
    let Some(tool) = &plan.adapter.tool else { return Ok(Ok(String::new())) };
    let found = program_of(tool).and_then(|path| {
        path.into_os_string().into_string().map_err(|path| anyhow!("{path:?} is not UTF-8"))
    });
    match found {
        Ok(path) => Ok(Ok(path)),
        Err(error) if plan.place() == Place::Farm => Ok(Err(format!("{error:#}"))),
        Err(error) => Err(cli::usage(error.context(format!("adapter {}", plan.adapter.name)))),
    }
}

/// Where slots come from: a job server, else the locks of this user.
fn slots(
    server: Option<jobserver::Client>,
    plan: &Plan,
    sender: &Sender<Message>,
    reporter: &mut Reporter,
) -> Slots {
    let to_run = sender.clone();
    let arrived = move |slot| drop(to_run.send(Message::Slot(slot)));
    let made = match server {
        Some(client) => Slots::server(client, arrived),
        None => Slots::locks(plan.limits.local_jobs, arrived),
    };
    made.unwrap_or_else(|error| {
        reporter.detail(&format!("slots are not shared with other links: {error:#}"));
        Slots::unshared()
    })
}

/// All that may lie about when a link is given up.
fn made_by_us(setup: &Setup) -> Vec<PathBuf> {
    let folders = setup.scratch.folders().map(Path::to_owned);
    let jobs = &setup.plan.file.jobs;
    let outputs = jobs.iter().flat_map(Job::outputs).map(|output| PathBuf::from(&**output));
    let stable = |job| stable_name(&setup.plan.file.linker_output, job).into();
    let indexes = jobs.iter().filter(|_| setup.dist.is_some()).map(stable);
    folders.chain(outputs).chain(indexes).collect()
}

fn tidy(setup: &Setup, groups: &Groups, given_up: &[PathBuf]) {
    if let (false, Some(guard)) = (given_up.is_empty(), groups.guard()) {
        guard.end_strays();
    }
    guard::remove(given_up);
    for folder in setup.scratch.folders() {
        let _ = os::patiently(|| fs::remove_dir_all(folder));
    }
    if let Some(guard) = groups.guard() {
        guard.dismiss();
    }
}
