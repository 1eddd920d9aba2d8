//! One request, from its first byte to the response and the line in the log. Each step can end it with an
//! answer; nothing that a request holds can end it otherwise. It does not know how it was called.

use std::any::Any;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use rustix::process::Signal;

use super::call::Input;
use super::compiler::{Chosen, Compilers, NoCompiler, Wanted};
use super::confined::{Confined, Ended};
use super::environment;
use super::log::{Entry, Log};
use super::memory::{self, Memory};
use super::sandbox::{self, NotLocked, Rules, Sandbox};
use super::scratch::{self, JobFolder, NoFolder, Scratch};
use super::settings::Found;
use super::spool::Incoming;
use super::store::Store;
use super::verdict::judge;
use crate::bundle::{self, Answer, Fault, Header, Limits, Nonce, Opened, Request};
use crate::cli::WorkerVariables;
use crate::policy::{self, Named, Weight};
use crate::process::{Groups, guard, watch};
use crate::report::stats;

/// Bytes of each stream of the compiler that are kept.
const PRINTED: usize = 4 << 20;

/// Answers the request in `input`; a response lies in `output` afterwards.
///
/// # Errors
/// Not even a refusal can be written there.
pub(super) fn serve(input: &Input, output: &Path, variables: &WorkerVariables) -> io::Result<()> {
    // A panic is answered, not printed.
    set_hook(Box::new(|_| ()));
    let begun = Instant::now();
    let mut job = Job::new(variables, begun);
    let answer = catch_unwind(AssertUnwindSafe(|| job.run(input))).unwrap_or_else(|panic| {
        Err(Answer::Failed { reason: format!("a bug in the worker: {}", message(&*panic)) })
    });
    // A compiler that was killed because this process ends is no news.
    drop(job.cleanup.wait());
    let sent = job.respond(answer, output);
    job.log(*sent.as_ref().unwrap_or(&0));
    sent.map(drop)
}

fn message(panic: &dyn Any) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic")
}

/// What became known of a request, for its response and its line in the log.
pub(super) struct Job<'a> {
    variables: &'a WorkerVariables,
    pub(super) begun: Instant,
    cleanup: Arc<Cleanup>,
    /// Its header, if its format is not read here.
    pub(super) unreadable: Option<Header>,
    pub(super) nonce: Nonce,
    pub(super) request: Option<Request>,
    pub(super) log: Option<Log>,
    pub(super) entry: Entry,
    pub(super) folder: Option<JobFolder>,
    /// Once the request's pieces were looked for there.
    pub(super) store: Option<Store>,
    pub(super) ended: Option<Ended>,
    /// The compiler's time.
    pub(super) took: Duration,
}

/// What has to go when a signal ends the worker.
#[derive(Debug, Default)]
struct Cleanup {
    /// Locked for good once a signal has come: whoever waits for it, waits for the end.
    ending: Mutex<()>,
    groups: OnceLock<Arc<Groups>>,
    folder: OnceLock<PathBuf>,
}

/// What a request may use here.
struct Allowance {
    found: Found,
    scratch: Scratch,
    memory: u64,
    total_memory: u64,
}

impl<'a> Job<'a> {
    fn new(variables: &'a WorkerVariables, begun: Instant) -> Self {
        Job {
            variables,
            begun,
            cleanup: Arc::default(),
            unreadable: None,
            nonce: Nonce::NONE,
            request: None,
            log: None,
            entry: Entry { time: stats::utc(SystemTime::now()), ..Entry::default() },
            folder: None,
            store: None,
            ended: None,
            took: Duration::ZERO,
        }
    }

    /// All the steps. `Err` is an answer without a run.
    fn run(&mut self, input: &Input) -> Result<Answer, Answer> {
        self.cleanup.on_signals().map_err(failed("the handlers of signals"))?;
        // First, for the sake of the log; but who is refused must be known as well.
        let allowance = self.allowance();
        let incoming = Incoming::open(input).map_err(not_read)?;
        self.nonce = incoming.header().map_err(|fault| self.fault(fault))?.nonce;
        let allowance = allowance?;
        let opened = self.open(incoming, &allowance)?;
        // No job fails for the store: it may be sent again, whole, and `--check` tells what is wrong.
        self.store = allowance.found.store().ok().flatten();
        if opened.request.is_probe() {
            return self.probed(&opened.request, &allowance);
        }
        let weight = check_arguments(&opened.request)?;
        let needed = fit(&opened.request, &weight, &allowance)?;
        let chosen = self.choose(&opened.request, &weight, &allowance)?;
        let folder = self.unpack(opened, needed, &allowance)?;
        self.compile(chosen, &folder, &allowance)
    }

    fn allowance(&mut self) -> Result<Allowance, Answer> {
        let refused = |error: anyhow::Error| Answer::Refused { reason: format!("{error:#}") };
        let found = super::find_settings(self.variables).map_err(refused)?;
        let scratch = found.scratch(self.variables).map_err(refused)?;
        self.log = Some(Log::new(found.settings.log.as_deref(), scratch.path()));
        let share = Memory::look().share();
        let limits = &found.settings.limits;
        let total_memory = limits.total_memory.map_or(share, |size| size.0);
        let memory = limits.memory.map_or(total_memory, |size| size.0);
        Ok(Allowance { found, scratch, memory, total_memory })
    }

    fn open(&mut self, incoming: Incoming, allowed: &Allowance) -> Result<Opened<File>, Answer> {
        let limit = allowed.found.request();
        let file = incoming.into_file(allowed.scratch.path(), limit).map_err(not_read)?;
        let Some((file, length)) = file else {
            let reason = format!("the request has more than {limit} bytes (limits.request)");
            return Err(Answer::Refused { reason });
        };
        self.entry.bytes_in = length;
        let limits = Limits { total: limit, ..Limits::default() };
        let opened = bundle::open(file, &limits).map_err(|fault| self.fault(fault))?;
        let Request { host, user, link, job, module, .. } = opened.request.clone();
        self.entry = Entry { host, user, link, job: Some(job), module, ..self.entry.clone() };
        self.request = Some(opened.request.clone());
        Ok(opened)
    }

    /// A request that is not as it should be: harmed on its way, or made to do harm.
    fn fault(&mut self, fault: Fault) -> Answer {
        let reason = fault.to_string();
        match fault {
            Fault::Format(header) => {
                self.unreadable = Some(header);
                Answer::CannotRead { newest: bundle::FORMAT, oldest: bundle::OLDEST_READ }
            }
            Fault::MissingPieces(pieces) => Answer::MissingPieces { pieces },
            Fault::Here { error, .. } if is_full(&error) => Answer::Unfit { reason },
            Fault::NotABundle
            | Fault::NoHeader
            | Fault::DamagedHeader
            | Fault::CutOff { .. }
            | Fault::Surplus { .. }
            | Fault::Damaged
            | Fault::Here { .. } => Answer::Failed { reason },
            _ => Answer::Refused { reason },
        }
    }

    fn choose(
        &mut self,
        request: &Request,
        weight: &Weight,
        allowed: &Allowance,
    ) -> Result<Chosen, Answer> {
        let home = allowed.scratch.path();
        let found = &allowed.found;
        if found.environment && !request.environment.is_empty() {
            let shipped = &request.environment;
            environment::compare(Path::new("/"), shipped, &found.settings, home)
                .map_err(|error| Answer::Altered { reason: format!("{error:#}") })?;
        }
        let variables = found.compiler_variables(home, self.variables);
        let compilers = Compilers { found, memory: home, variables: &variables };
        let wanted = Wanted {
            identity: &request.compiler,
            args: &request.args,
            ld_lld: weight.needs_ld_lld(),
        };
        let chosen = compilers.choose(&wanted).map_err(|none| match none {
            NoCompiler::Other(reason) => Answer::OtherCompiler { reason },
            // What was sent is all there.
            NoCompiler::Missing(reason) if found.environment => Answer::Unfit { reason },
            NoCompiler::Missing(reason) => Answer::MissingCompiler { reason },
        })?;
        self.entry.compiler.clone_from(&chosen.version);
        Ok(chosen)
    }

    /// Whether this host would do jobs of that link, without doing one.
    fn probed(&mut self, request: &Request, allowed: &Allowance) -> Result<Answer, Answer> {
        let weight = Weight::single();
        let chosen = self.choose(request, &weight, allowed)?;
        let write = allowed.scratch.path().to_owned();
        let rules = Rules { write, ..chosen.rules.clone() };
        sandbox::prepare(&rules, allowed.found.landlock()).map_err(not_locked)?;
        self.entry.detail = "a probe".to_owned();
        Ok(Answer::Ran { code: Some(0), signal: None })
    }

    /// Makes the job's folder, if others leave it the memory that it needs, and its files in there.
    fn unpack(
        &mut self,
        opened: Opened<File>,
        needed: u64,
        allowed: &Allowance,
    ) -> Result<PathBuf, Answer> {
        let folder =
            allowed.scratch.job(needed, allowed.total_memory).map_err(|none| match none {
                NoFolder::Full(promised) => {
                    busy(needed, allowed.total_memory.saturating_sub(promised))
                }
                NoFolder::Failed(error) => match error.downcast_ref().is_some_and(is_full) {
                    true => Answer::Unfit { reason: format!("the job's folder: {error:#}") },
                    false => Answer::Failed { reason: format!("{error:#}") },
                },
            })?;
        let work = folder.work();
        let _ = self.cleanup.folder.set(folder.path().to_owned());
        self.folder = Some(folder);
        let unpacked = match &self.store {
            None => opened.unpack(&work, &mut |_, _| Ok(false)).map(drop),
            Some(store) => {
                let mut fetch = store.fetch(&opened.request, self.begun);
                let unpacked = opened.unpack(&work, &mut fetch);
                unpacked.map(|request| drop(store.keep(&request, &work)))
            }
        };
        unpacked.map_err(|fault| self.fault(fault))?;
        Ok(work)
    }

    fn compile(
        &mut self,
        chosen: Chosen,
        work: &Path,
        allowed: &Allowance,
    ) -> Result<Answer, Answer> {
        let (Some(request), Some(folder)) = (&self.request, &self.folder) else {
            return Err(Answer::Failed { reason: "there is no request".to_owned() });
        };
        let rules = Rules { write: work.to_owned(), ..chosen.rules.clone() };
        let sandbox = sandbox::prepare(&rules, allowed.found.landlock()).map_err(not_locked)?;
        let groups = Groups::new(guard_of(&chosen, folder));
        let groups = self.cleanup.groups.get_or_init(|| groups);
        let confined = self.confine(&chosen, request, work, allowed);
        let begun = Instant::now();
        let ended = run(groups, &confined, sandbox, &mut self.entry.locked);
        self.took = begun.elapsed();
        if let Some(guard) = groups.guard() {
            guard.dismiss();
        }
        let ended = ended?;
        if let Some(reason) = chosen.changed() {
            return Err(match allowed.found.environment {
                true => Answer::Altered { reason },
                false => Answer::Failed { reason },
            });
        }
        let object = work.join(&request.outputs[0]);
        let verdict = judge(&ended, &object, allowed.found.output());
        self.entry.detail = verdict.detail;
        self.entry.peak_kb = ended.peak_kb;
        self.ended = Some(ended);
        Ok(verdict.answer)
    }

    fn confine(
        &self,
        chosen: &Chosen,
        request: &Request,
        work: &Path,
        allowed: &Allowance,
    ) -> Confined {
        let home = allowed.scratch.path();
        let mut env = allowed.found.compiler_variables(home, self.variables);
        env.push(("TMPDIR".to_owned(), OsString::from(work)));
        if chosen.no_config {
            // Not an argument: some debug information holds those.
            env.push(("CLANG_NO_DEFAULT_CONFIG".to_owned(), "1".into()));
        }
        let word = chosen.prepended.then(|| "clang".to_owned());
        Confined {
            program: chosen.program.clone(),
            name: chosen.program.clone().into(),
            args: word.into_iter().chain(own_arguments(request).iter().cloned()).collect(),
            env,
            folder: work.to_owned(),
            memory: Some(memory::address_space(allowed.memory)),
            file_size: allowed.found.output(),
            time: Duration::from_secs(request.time_limit_s).min(allowed.found.time()),
            printed: PRINTED,
        }
    }
}

/// The arguments behind the word that the multicall binary wants.
fn own_arguments(request: &Request) -> &[String] {
    match request.args.split_first() {
        Some((first, rest)) if first == "clang" => rest,
        _ => &request.args,
    }
}

/// May these arguments run here?
fn check_arguments(request: &Request) -> Result<Weight, Answer> {
    let args = own_arguments(request);
    let others =
        || request.files.iter().map(|file| &*file.name).filter(|n| n.starts_with("other/"));
    let module = |arg: &&String| {
        let is = |file: &bundle::File| file.name == **arg && **arg != "index";
        request.files.iter().any(is) && !arg.starts_with("other/")
    };
    let named = Named {
        primary: args.iter().find(module).map_or("", String::as_str),
        index: "index",
        object: &request.outputs[0],
        other_inputs: others().collect(),
        other_outputs: request.outputs[1..].iter().map(String::as_str).collect(),
    };
    policy::check(args, &named).map_err(|refusal| Answer::Refused { reason: refusal.to_string() })
}

/// The memory that the job needs, if this host may give it.
fn fit(request: &Request, weight: &Weight, allowed: &Allowance) -> Result<u64, Answer> {
    let pieces = request.files.iter().flat_map(|file| &file.pieces);
    let bitcode = pieces.fold(0, |sum: u64, piece| sum.saturating_add(piece.length));
    let needed = memory::estimate(bitcode).saturating_mul(weight.slots().into());
    let free = allowed.memory.min(Memory::look().available);
    if needed > free {
        return Err(busy(needed, free));
    }
    match memory::inherited_limit() {
        // Those who promise a job so little are believed, if it may just do.
        Some(limit) if needed > limit => Err(Answer::Unfit {
            reason: format!("this host's daemon leaves a job {} MiB of address space", limit >> 20),
        }),
        _ => Ok(needed),
    }
}

fn busy(needed: u64, free: u64) -> Answer {
    let [needed, free] = [needed, free].map(|bytes| bytes >> 20);
    Answer::Busy { reason: format!("memory: the job may need {needed} MiB, {free} MiB are free") }
}

fn not_locked(error: NotLocked) -> Answer {
    Answer::Refused { reason: error.to_string() }
}

fn failed<E: std::fmt::Display>(at: &str) -> impl FnOnce(E) -> Answer {
    let at = at.to_owned();
    move |error| Answer::Failed { reason: format!("{at}: {error}") }
}

fn not_read(error: io::Error) -> Answer {
    match is_full(&error) {
        true => Answer::Unfit { reason: format!("the request: {error}") },
        false => failed("the request")(error),
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn run(
    groups: &Groups,
    confined: &Confined,
    sandbox: Sandbox,
    locked: &mut bool,
) -> Result<Ended, Answer> {
    let enter = || {
        *locked = sandbox.enter()?;
        Ok(())
    };
    groups.run_confined(confined, enter).map_err(|error| match error.downcast::<NotLocked>() {
        Ok(not) => not_locked(not),
        Err(error) => {
            Answer::Unfit { reason: format!("the compiler cannot be started: {error:#}") }
        }
    })
}

/// The kernel ends a compiler with this process, but not what the compiler started.
fn guard_of(chosen: &Chosen, folder: &JobFolder) -> Option<guard::Guard> {
    let guard = chosen.starts_others.then(|| guard::Guard::start("worker").ok()).flatten()?;
    guard.remove_if_killed(&[folder.path().to_owned()]);
    Some(guard)
}

impl Cleanup {
    fn wait(&self) -> MutexGuard<'_, ()> {
        self.ending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A signal that asks to stop ends compiler, folder and process at once: whoever sent it waits for nothing.
    fn on_signals(self: &Arc<Self>) -> io::Result<()> {
        let cleanup = Arc::clone(self);
        watch::signals(move |signal| {
            let _ending = cleanup.wait();
            let groups = cleanup.groups.get();
            if let Some(groups) = groups {
                groups.end_all(Signal::KILL);
            }
            if let Some(folder) = cleanup.folder.get() {
                scratch::remove(folder);
            }
            if let Some(guard) = groups.and_then(|groups| groups.guard()) {
                guard.dismiss();
            }
            watch::raise_again(signal);
        })
    }
}
