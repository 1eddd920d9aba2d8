//! The bridge's side of bundles: which jobs may travel, the request of each attempt, and what an answer
//! says. What the jobs of a link share (names, digests, the compiler's identity) is made once. It starts no
//! program and does not know how bundles get to a host.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use crate::bundle::{
    self, About, Answer, Content, Digest, Expected, LeaveOut, Library, Limits, Names, Nonce,
    NotPacked, Received, Shipped, prepare, probe, receive,
};
use crate::hosts::probe as host_probe;
use crate::jobfile::{Job, JobFile, Text};
use crate::os;
use crate::outcome::Outcome;
use crate::policy::{self, Named};
use crate::toolchain::Toolchain;

/// Whether a job may leave this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Travel {
    /// It may, and takes so many slots of a host.
    May(u32),
    /// It stays here, for this reason.
    Stays(String),
}

impl Travel {
    /// The slots of a host that the job takes; none if it stays.
    pub fn slots(&self) -> u32 {
        match self {
            Travel::May(slots) => *slots,
            Travel::Stays(_) => 0,
        }
    }
}

/// Whether `job` may travel, by its arguments alone.
pub fn travel(job: &Job) -> Travel {
    match policy::check(own_args(job), &Named::from(job)) {
        Ok(weight) => Travel::May(weight.slots()),
        Err(refusal) => Travel::Stays(refusal.to_string()),
    }
}

/// clang would start the `ld.lld` beside it for this job.
pub fn needs_ld_lld(job: &Job) -> bool {
    policy::check(own_args(job), &Named::from(job)).is_ok_and(|weight| weight.needs_ld_lld())
}

/// Whether the job's object would hold the names of files, the compiler's arguments or its folder.
///
/// # Errors
/// A module cannot be read; the text names it.
pub fn holds_names(job: &Job, library: &Library) -> Result<bool, String> {
    let shows = policy::check(own_args(job), &Named::from(job));
    Ok(shows.is_ok_and(|weight| weight.shows_names()) && has_codeview(job, library)?)
}

/// Why a job with the debug information of Windows is bound to its names and folder.
pub const HOLDS_NAMES: &str = "its debug information holds the names of its files";

/// Whether a module that may become part of the job's object has the debug information of Windows.
///
/// # Errors
/// One cannot be read; the text names it.
pub fn has_codeview(job: &Job, library: &Library) -> Result<bool, String> {
    for module in job.imports.iter().chain([&job.primary]) {
        if library.has_codeview(module)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The arguments without the word by which the multicall `llvm` program is told to be clang.
pub fn own_args(job: &Job) -> &[Text] {
    match job.args.as_slice() {
        [first, rest @ ..] if &**first == "clang" => rest,
        all => all,
    }
}

/// The arguments by which clang finds its config files.
fn about_target(file: &JobFile) -> Vec<String> {
    let args = file.jobs.first().map_or(&[][..], own_args);
    let about = |arg: &&Text| arg.starts_with("--target=") || &***arg == "--no-default-config";
    args.iter().filter(about).map(|arg| arg.to_string()).collect()
}

/// What a link's bundles share.
#[derive(Debug)]
pub struct Parcels {
    toolchain: Toolchain,
    names: Names,
    library: Arc<Library>,
    about: About,
    about_target: Vec<String>,
    limits: Limits,
    shipped: OnceLock<Vec<Shipped>>,
}

/// A request that was packed.
#[derive(Clone, Debug)]
pub struct Packed {
    /// What the answer must repeat.
    pub nonce: Nonce,
    /// Bytes of the bundle.
    pub length: u64,
    /// Bytes of the pieces in it, but for the index, before they were compressed.
    pub pieces: u64,
    /// The names of the job's outputs in the bundle, the object first.
    pub outputs: Vec<String>,
}

/// An answer, as the outcome of its attempt.
#[derive(Debug)]
pub struct Answered {
    /// What happened.
    pub outcome: Outcome,
    /// The same for people.
    pub reason: String,
    /// What the compiler printed.
    pub printed: Vec<u8>,
    /// Which host it was, if the answer is to be believed.
    pub host: Option<String>,
    /// The worker's version.
    pub worker: Option<String>,
    /// Bytes of the answer.
    pub length: u64,
    /// The request's pieces that the host holds now.
    pub holds: Vec<Digest>,
    /// The pieces without which the host did not run it, though the request said that they are there.
    pub missing: Vec<Digest>,
}

impl Parcels {
    /// What the jobs of `file` share, compiled by `toolchain`; `library` holds digests of their inputs.
    pub fn new(file: &JobFile, toolchain: Toolchain, library: Arc<Library>, about: About) -> Self {
        Parcels {
            names: Names::new(&file.jobs),
            about_target: about_target(file),
            toolchain,
            library,
            about,
            limits: Limits::default(),
            shipped: OnceLock::new(),
        }
    }

    /// The compiler.
    pub fn toolchain(&self) -> &Toolchain {
        &self.toolchain
    }

    /// From now on requests say that jobs run in an environment that holds these files.
    pub fn ship(&self, files: Vec<Shipped>) {
        // A link has one environment.
        let _ = self.shipped.set(files);
    }

    /// The digest of the compiler that hosts must have.
    pub fn compiler(&self) -> &str {
        &self.about.compiler.code
    }

    /// The pieces that `job` may share with others, each once, with their lengths in bytes; so that a host
    /// can be chosen by what it holds.
    ///
    /// # Errors
    /// [`NotPacked::StaysHere`] where an input cannot be read.
    pub fn pieces(&self, job: &Job) -> Result<Vec<(Digest, u64)>, NotPacked> {
        bundle::pieces(job, |input| self.library.content(input).map_err(NotPacked::StaysHere))
    }

    /// The same without waiting: none until all of them were read. An input that cannot be read is left
    /// out: whoever packs the job tells of it.
    pub fn pieces_if_read(&self, job: &Job) -> Option<Vec<(Digest, u64)>> {
        let unreadable = Content { blake3: crate::bundle::Hex([0; 32]), length: 0 };
        let content = |input: &Text| {
            self.library.if_read(input).map(|read| read.unwrap_or(unreadable)).ok_or(())
        };
        bundle::pieces(job, content).ok()
    }

    /// Packs `job` into the file `to`, without what `leave_out` names.
    ///
    /// # Errors
    /// See [`NotPacked`].
    pub fn pack(
        &self,
        job: &Job,
        number: usize,
        leave_out: &LeaveOut<'_>,
        to: &Path,
    ) -> Result<Packed, NotPacked> {
        let stays = |why: String| NotPacked::StaysHere(why);
        self.toolchain.still_same().map_err(|changed| NotPacked::Changed(changed.to_string()))?;
        let weight = policy::check(own_args(job), &Named::from(job))
            .map_err(|refusal| stays(refusal.to_string()))?;
        if weight.shows_names() && has_codeview(job, &self.library).map_err(stays)? {
            return Err(stays(HOLDS_NAMES.into()));
        }
        let job = Job { args: own_args(job).to_vec(), ..job.clone() };
        let about = (number, weight.slots());
        let mut prepared = prepare(&job, about, (&self.names, &self.library), &self.about)?;
        prepared.hold(leave_out);
        prepared.request.environment = self.shipped();
        let what = |error| NotPacked::Failed { what: to.display().to_string(), error };
        let length = prepared.pack(File::create(to).map_err(what)?, &self.limits)?;
        let pieces = prepared.shared_inline();
        let request = prepared.request;
        Ok(Packed { nonce: request.nonce, length, pieces, outputs: request.outputs })
    }

    /// Packs a question into the file `to`: would the host do jobs of this link?
    ///
    /// # Errors
    /// See [`NotPacked`].
    pub fn pack_probe(&self, to: &Path) -> Result<Nonce, NotPacked> {
        let mut prepared = probe(&self.about, self.about_target.clone());
        prepared.request.environment = self.shipped();
        let what = |error| NotPacked::Failed { what: to.display().to_string(), error };
        prepared.pack(File::create(to).map_err(what)?, &self.limits)?;
        Ok(prepared.request.nonce)
    }

    /// Reads the answer to a question, and which host it comes from.
    pub fn open_probe(&self, from: &Path, nonce: Nonce) -> (Option<String>, host_probe::Answer) {
        let expected = Expected { nonce, link: &self.about.link, outputs: &[] };
        let Ok(file) = File::open(from) else { return (None, host_probe::Answer::None) };
        match receive(file, &expected, &self.limits) {
            Err(_) => (None, host_probe::Answer::None),
            Ok(Received { response, .. }) => (
                Some(one_line(&response.host)),
                match response.answer {
                    Answer::Ran { code: Some(0), .. } => {
                        host_probe::Answer::Good { stores: response.stores }
                    }
                    Answer::OtherCompiler { reason } | Answer::MissingCompiler { reason } => {
                        host_probe::Answer::OtherClang(reason)
                    }
                    Answer::Refused { reason } => host_probe::Answer::Refused(reason),
                    other => host_probe::Answer::Refused(other.to_string()),
                },
            ),
        }
    }

    fn shipped(&self) -> Vec<Shipped> {
        self.shipped.get().cloned().unwrap_or_default()
    }

    /// Reads the answer in the file `from`, and makes the job's outputs under the names in `places`. `chosen`
    /// is the host that was asked, where that is known: reasons name it.
    pub fn open(
        &self,
        from: &Path,
        packed: &Packed,
        places: &[PathBuf],
        chosen: Option<&str>,
    ) -> Answered {
        let fault = |reason: String, length| match chosen {
            Some(host) => Answered::fault(format!("{host}: {reason}"), length),
            None => Answered::fault(reason, length),
        };
        let outputs: Vec<(String, PathBuf)> =
            packed.outputs.iter().cloned().zip(places.iter().cloned()).collect();
        let expected = Expected { nonce: packed.nonce, link: &self.about.link, outputs: &outputs };
        // Not opened before it is known to be a file: a pipe would hold us up for ever.
        let opened = fs::metadata(from).and_then(|found| match found.is_file() {
            true => Ok((found.len(), File::open(from)?)),
            false => Err(io::Error::other("it is no file")),
        });
        let (length, file) = match opened {
            Ok(opened) => opened,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return fault("the client exited with 0 and left no answer".into(), 0);
            }
            Err(error) => return fault(format!("the answer cannot be read: {error}"), 0),
        };
        match receive(file, &expected, &self.limits) {
            Ok(received) => Answered::of(received, length, chosen),
            Err(harm) => fault(harm.to_string(), length),
        }
    }
}

impl Answered {
    fn fault(reason: String, length: u64) -> Self {
        Answered {
            outcome: Outcome::FarmFault,
            reason,
            printed: Vec::new(),
            host: None,
            worker: None,
            length,
            holds: Vec::new(),
            missing: Vec::new(),
        }
    }

    fn of(received: Received, length: u64, chosen: Option<&str>) -> Self {
        let Received { mut response, stdout, stderr } = received;
        for text in [&mut response.host, &mut response.worker] {
            *text = one_line(text);
        }
        let host = chosen.unwrap_or(&response.host);
        let mut missing = Vec::new();
        let (outcome, reason) = match response.answer {
            Answer::Ran { code: Some(0), .. } => (Outcome::Done, String::new()),
            Answer::Ran { code: Some(code), .. } => {
                (Outcome::CompilerError, format!("the compiler on {host} exited with {code}"))
            }
            Answer::Ran { signal, .. } => {
                let signal = signal.map_or("a signal".into(), |signal| format!("signal {signal}"));
                (Outcome::CompilerError, format!("the compiler on {host} was killed by {signal}"))
            }
            Answer::Refused { reason } => {
                (Outcome::FarmUnfit, format!("the worker on {host} refuses it: {reason}"))
            }
            Answer::CannotRead { newest, oldest } => {
                let worker = &response.worker;
                let reads =
                    format!("its worker {worker} reads bundles of format {oldest} to {newest}");
                (Outcome::FarmUnfit, format!("{host}: {reads} only; install this version there"))
            }
            Answer::Altered { reason } => {
                let way_out = "if it comes again, leave it behind with --env-salt";
                let altered =
                    format!("the environment on {host} was altered ({reason}): {way_out}");
                (Outcome::FarmFault, altered)
            }
            Answer::OtherCompiler { reason } | Answer::MissingCompiler { reason } => {
                (Outcome::FarmUnfit, format!("{host}: {reason}"))
            }
            Answer::MissingPieces { pieces } => {
                missing = pieces;
                (Outcome::MissingPieces, format!("{host} lacks {} pieces", missing.len()))
            }
            Answer::Busy { reason } => (Outcome::FarmBusy, format!("{host} is busy: {reason}")),
            Answer::Unfit { reason } => (Outcome::FarmFault, format!("{host} is unfit: {reason}")),
            Answer::TimedOut => (Outcome::TimedOut, format!("it took too long on {host}")),
            Answer::Failed { reason } => {
                (Outcome::FarmFault, format!("the worker on {host} failed: {reason}"))
            }
            Answer::Unknown => {
                let worker = &response.worker;
                let says = format!("its worker {worker} says what this version does not know");
                (Outcome::FarmUnfit, format!("{host}: {says}"))
            }
        };
        Answered {
            outcome,
            reason: one_line(&reason),
            printed: [stdout, stderr].concat(),
            host: Some(response.host),
            worker: Some(response.worker),
            length,
            holds: response.holds,
            missing,
        }
    }
}

/// What a stranger wrote, without what a terminal would obey, and no longer than people read.
pub fn one_line(text: &str) -> String {
    const MOST: usize = 500;
    let plain = |c: char| match c.is_control() {
        true => c.escape_debug().to_string(),
        false => c.to_string(),
    };
    text.chars().take(MOST).map(plain).collect()
}

/// A user and a host as they are called here, for the logs of workers.
pub fn claims(user: Option<&str>) -> (String, String) {
    let (own, host) = os::user_and_host();
    (user.map_or(own, str::to_owned), host)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::Response;

    fn answered(answer: Answer, holds: Vec<Digest>) -> Answered {
        let response = Response {
            nonce: Nonce::NONE,
            worker: "0.1.0".to_owned(),
            host: "h".to_owned(),
            link: "7f".to_owned(),
            job: 0,
            answer,
            outputs: Vec::new(),
            ms: 0,
            peak_kb: 0,
            holds,
            stores: true,
        };
        let received = Received { response, stdout: Vec::new(), stderr: Vec::new() };
        Answered::of(received, 1, None)
    }

    #[test]
    fn an_altered_environment_is_its_hosts_fault() {
        let answered = answered(Answer::Altered { reason: "libz.so.1 differs".into() }, Vec::new());
        assert_eq!(
            (answered.outcome, &*answered.reason),
            (
                Outcome::FarmFault,
                "the environment on h was altered (libz.so.1 differs): \
                 if it comes again, leave it behind with --env-salt"
            )
        );
    }

    #[test]
    fn what_a_host_lacks_and_what_it_holds_is_kept() {
        let [lacks, holds] = [b"lacks", b"holds"].map(|content| Digest::of(content));
        let answered = answered(Answer::MissingPieces { pieces: vec![lacks] }, vec![holds]);
        assert_eq!((answered.missing, answered.holds), (vec![lacks], vec![holds]));
        assert_eq!(
            (answered.outcome, &*answered.reason),
            (Outcome::MissingPieces, "h lacks 1 pieces")
        );
    }
}
