//! A tool that wraps the bridge: it runs the bridge once more, with many jobs at a time, and sends away what that one
//! starts. The outer bridge waits for the inner one, and does the jobs itself if the tool, or a job under it, fails. It
//! does not know where a job ran.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use rustix::process::Signal;

use super::{Ending, Link};
use crate::adapter::{HandOver, List, Scalar, Values};
use crate::attempt::describe;
use crate::cli;
use crate::collect::Scratch;
use crate::exit::{Exit, Failure};
use crate::jobfile::Job;
use crate::plan::Plan;
use crate::process::guard::{self, Guard};
use crate::process::{Command, Ended, Groups};
use crate::report::{Reporter, write_stderr};

/// What the inner bridge gets to end by itself when the link is given up, and what is left then.
const GRACE: Duration = Duration::from_millis(600);
const LAST_WAIT: Duration = Duration::from_millis(300);

enum Message {
    Ended(std::io::Result<Ended>),
    Signal(i32),
    LinkerGone,
}

/// How the run under the tool ended.
pub(super) enum Wrapped {
    /// All is said and done.
    Over(Ending),
    /// The jobs are to be run here; why.
    WorkHere(String),
}

/// What the command of a wrapping tool is made of.
struct Parts<'a> {
    plan: &'a Plan,
    link: &'a str,
    tool: &'a str,
    bridge: &'a [String],
}

impl Values for Parts<'_> {
    fn scalar(&self, scalar: Scalar) -> &str {
        match scalar {
            Scalar::Tool => self.tool,
            Scalar::Link => self.link,
            Scalar::LinkerOutput => &self.plan.file.linker_output,
            // The manifest was checked for all others.
            _ => "",
        }
    }

    fn list(&self, list: List) -> Vec<&str> {
        match list {
            List::Bridge => self.bridge.iter().map(String::as_str).collect(),
            _ => Vec::new(),
        }
    }
}

/// The id of the link as the inner bridge does it: it begins with the outer one's, whose guard so knows its processes.
pub(super) fn inner_id(word: &Path) -> String {
    let outer = word.parent().and_then(Path::file_name).map(|name| name.to_string_lossy());
    inner_of(
        outer.as_deref().and_then(|name| name.strip_prefix(".dtlto-bridge-")).unwrap_or_default(),
    )
}

fn inner_of(outer: &str) -> String {
    format!("{outer}i")
}

/// All that may lie about if the tool and the inner bridge are killed; the outer one's folder first.
fn may_be_left(plan: &Plan, outer: &str, asked: Option<&Path>) -> Vec<PathBuf> {
    let outputs = || plan.file.jobs.iter().flat_map(Job::outputs).map(|output| &**output);
    let folders = |id: &str| {
        let scratch = Scratch::new(id, outputs(), asked);
        scratch.folders().map(Path::to_owned).collect::<Vec<_>>()
    };
    let both = folders(outer).into_iter().chain(folders(&inner_of(outer)));
    both.chain(outputs().map(PathBuf::from)).collect()
}

/// Tells the outer bridge, in the file that it named, how the inner one ended.
pub(super) fn tell_outer(file: &Path, exit: Exit) {
    // An outer one that hears nothing does the jobs itself.
    let _ = fs::write(file, (exit as u8).to_string());
}

/// Takes the word of the inner bridge.
fn told_by_inner(file: &Path) -> Option<u8> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

impl Link<'_> {
    /// Runs the bridge under the adapter's tool.
    pub(super) fn wrapped(
        &self,
        plan: &Plan,
        arguments: &[OsString],
        reporter: &mut Reporter,
    ) -> Wrapped {
        self.try_wrapped(plan, arguments, reporter)
            .unwrap_or_else(|error| Wrapped::WorkHere(format!("{error:#}")))
    }

    fn try_wrapped(
        &self,
        plan: &Plan,
        arguments: &[OsString],
        reporter: &mut Reporter,
    ) -> anyhow::Result<Wrapped> {
        debug_assert_eq!(plan.adapter.hand_over, HandOver::Wrap);
        let left = may_be_left(plan, &self.id, self.request.options.scratch.as_deref());
        let Some(folder) = left.first().filter(|_| !plan.file.jobs.is_empty()) else {
            return Ok(Wrapped::WorkHere("there is nothing to do".into()));
        };
        let word = std::path::absolute(folder.join("wrapped"))?;
        let command = self.wrapping_command(plan, arguments, &word)?;
        // Before there is a helper that would take an early end of ours for our death.
        fs::create_dir(folder).with_context(|| folder.display().to_string())?;
        let guard = Guard::start(&self.id).ok();
        let groups = Groups::new(guard);
        if let Some(guard) = groups.guard() {
            guard.remove_if_killed(&left);
        }
        reporter.detail_with(|| {
            format!("{} {}", command.program.display(), shell_words::join(&command.args))
        });
        let ended = self.run_tool(&groups, command);
        let inner = told_by_inner(&word);
        if inner.is_none() {
            // It was ended without a farewell, and its helper would remove what we make from now on.
            groups.guard().into_iter().for_each(Guard::end_strays);
            guard::remove(&left);
        }
        guard::remove(std::slice::from_ref(folder));
        groups.guard().into_iter().for_each(Guard::dismiss);
        let name = &plan.adapter.name;
        Ok(match (ended?, inner) {
            (Tool::GivenUp(signal), _) => Wrapped::Over(Ending { exit: Exit::JobFailed, signal }),
            (_, Some(0)) => Wrapped::Over(Ending { exit: Exit::Ok, signal: None }),
            (_, Some(code)) if code == Exit::JobFailed as u8 => {
                Wrapped::WorkHere(format!("a job failed under {name}"))
            }
            (_, Some(3)) => Wrapped::Over(Ending { exit: Exit::JobFile, signal: None }),
            (_, Some(code)) => Wrapped::WorkHere(format!("the bridge ended with {code} under it")),
            (Tool::Ended(how), None) => Wrapped::WorkHere(format!("it {how}")),
        })
    }

    fn wrapping_command(
        &self,
        plan: &Plan,
        arguments: &[OsString],
        word: &Path,
    ) -> anyhow::Result<Command> {
        let tool = plan.adapter.tool.as_ref().map(super::program_of).transpose()?;
        let text = |path: &Path| {
            path.to_str().map(str::to_owned).with_context(|| format!("{path:?} is not UTF-8"))
        };
        let tool = tool.as_deref().map_or(Ok(String::new()), text)?;
        let mut bridge = vec![text(&std::env::current_exe()?)?];
        for argument in arguments {
            bridge.push(text(Path::new(argument))?);
        }
        let parts = Parts { plan, link: &self.id, tool: &tool, bridge: &bridge };
        let mut argv = plan.adapter.command.expand(&parts).into_iter();
        let program = argv.next().context("the adapter's command is empty")?;
        let env = &plan.adapter.env;
        let set = env.set.iter().map(|(name, value)| (name.clone(), value.expand(&parts)));
        let mark = (cli::WRAPPED.to_owned(), text(word)?);
        Ok(Command {
            program: cli::find_program(&program)?,
            args: argv.collect(),
            set: set.chain([mark]).collect(),
            unset: env.unset.clone(),
            ..Command::default()
        })
    }

    /// Runs the tool while signals and the linker's end are listened for; what it prints goes to stderr as it comes.
    fn run_tool(&self, groups: &Arc<Groups>, command: Command) -> anyhow::Result<Tool> {
        let (sender, messages) = channel();
        let to_us = sender.clone();
        crate::process::watch::signals(move |signal| drop(to_us.send(Message::Signal(signal))))?;
        if let Some(linker) = self.request.linker {
            let to_us = sender.clone();
            let tell = move || drop(to_us.send(Message::LinkerGone));
            linker.watch(self.request.job_file.to_owned(), tell)?;
        }
        let of_thread = groups.clone();
        thread::Builder::new().spawn(move || {
            let ended = of_thread.run_heard(&command, &|_| (), &mut |bytes| write_stderr(bytes));
            let _ = sender.send(Message::Ended(ended));
        })?;
        let given_up = match messages.recv() {
            Ok(Message::Ended(ended)) => return Ok(Tool::Ended(describe(ended?.status))),
            Ok(Message::Signal(signal)) => Some(signal),
            Ok(Message::LinkerGone) => None,
            Err(_) => return Err(anyhow!("the thread that waits for it is gone")),
        };
        groups.end_all(Signal::TERM);
        if !ends_within(&messages, GRACE) {
            groups.end_all(Signal::KILL);
            ends_within(&messages, LAST_WAIT);
        }
        Ok(Tool::GivenUp(given_up))
    }
}

/// How the tool ended.
enum Tool {
    /// By itself, so.
    Ended(String),
    /// By a signal to us, or because the linker is gone.
    GivenUp(Option<i32>),
}

fn ends_within(messages: &Receiver<Message>, limit: Duration) -> bool {
    let until = Instant::now() + limit;
    loop {
        match messages.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(Message::Ended(_)) | Err(RecvTimeoutError::Disconnected) => return true,
            Ok(Message::Signal(_) | Message::LinkerGone) => {}
            Err(RecvTimeoutError::Timeout) => return false,
        }
    }
}

/// Whether jobs can be handed over so, given what users ask for.
///
/// # Errors
/// Nothing may run here, and the tool does not tell where it runs jobs.
pub(super) fn allowed(plan: &Plan) -> Result<(), Failure> {
    let never = plan.limits.fallback == cli::Fallback::Never;
    if plan.adapter.hand_over == HandOver::Wrap && never {
        let name = &plan.adapter.name;
        let why = anyhow!(
            "{name} does not tell where a job ran, so --fallback never cannot be kept with it"
        );
        return Err(cli::usage(why));
    }
    Ok(())
}
