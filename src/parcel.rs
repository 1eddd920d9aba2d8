//! The bridge's side of bundles: which jobs may travel, the request of each attempt, and what an answer
//! says. What the jobs of a link share (names, digests, the compiler's identity) is made once. It starts no
//! program and does not know how bundles get to a host.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::bundle::{
    About, Answer, Expected, Library, Limits, Names, Nonce, NotPacked, Received, prepare, receive,
};
use crate::jobfile::{Job, JobFile, Text};
use crate::outcome::Outcome;
use crate::policy::{self, Named};
use crate::toolchain::Toolchain;

/// What is in the bitcode of a module with the debug information of Windows, which holds clang's command
/// line and working directory.
const CODEVIEW: &[u8] = b"CodeView";

/// Whether a job may leave this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Travel {
    /// It may, and takes so many slots of a host.
    May(u32),
    /// It stays here, for this reason.
    Stays(String),
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

/// The arguments without the word by which the multicall `llvm` program is told to be clang.
fn own_args(job: &Job) -> &[Text] {
    match job.args.as_slice() {
        [first, rest @ ..] if &**first == "clang" => rest,
        all => all,
    }
}

/// What a link's bundles share.
#[derive(Debug)]
pub struct Parcels {
    toolchain: Toolchain,
    names: Names,
    library: Library,
    about: About,
    limits: Limits,
    codeview: Mutex<HashMap<Text, bool>>,
}

/// A request that was packed.
#[derive(Clone, Debug)]
pub struct Packed {
    /// What the answer must repeat.
    pub nonce: Nonce,
    /// Bytes of the bundle.
    pub length: u64,
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
}

impl Parcels {
    /// What the jobs of `file` share, compiled by `toolchain`.
    pub fn new(file: &JobFile, toolchain: Toolchain, about: About) -> Self {
        Parcels {
            names: Names::new(&file.jobs),
            toolchain,
            library: Library::default(),
            about,
            limits: Limits::default(),
            codeview: Mutex::default(),
        }
    }

    /// Packs `job` into the file `to`.
    ///
    /// # Errors
    /// See [`NotPacked`].
    pub fn pack(&self, job: &Job, number: usize, to: &Path) -> Result<Packed, NotPacked> {
        let stays = |why: String| NotPacked::StaysHere(why);
        self.toolchain.still_same().map_err(|changed| NotPacked::Changed(changed.to_string()))?;
        let weight = policy::check(own_args(job), &Named::from(job))
            .map_err(|refusal| stays(refusal.to_string()))?;
        if weight.shows_names() && self.has_codeview(job)? {
            return Err(stays("its debug information holds the names of its files".into()));
        }
        let job = Job { args: own_args(job).to_vec(), ..job.clone() };
        let about = (number, weight.slots());
        let mut prepared = prepare(&job, about, (&self.names, &self.library), &self.about)?;
        let what = |error| NotPacked::Failed { what: to.display().to_string(), error };
        let length = prepared.pack(File::create(to).map_err(what)?, &self.limits)?;
        let request = prepared.request;
        Ok(Packed { nonce: request.nonce, length, outputs: request.outputs })
    }

    /// Any module that may become part of the object counts.
    fn has_codeview(&self, job: &Job) -> Result<bool, NotPacked> {
        for module in job.imports.iter().chain([&job.primary]) {
            let mut known = self.codeview.lock().unwrap_or_else(PoisonError::into_inner);
            let found = match known.get(module) {
                Some(found) => *found,
                None => {
                    let failed = |error| NotPacked::Failed { what: module.to_string(), error };
                    let bytes = fs::read(&**module).map_err(failed)?;
                    let found = bytes.windows(CODEVIEW.len()).any(|part| part == CODEVIEW);
                    known.insert(module.clone(), found);
                    found
                }
            };
            if found {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reads the answer in the file `from`, and makes the job's outputs under the names in `places`.
    pub fn open(&self, from: &Path, packed: &Packed, places: &[PathBuf]) -> Answered {
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
                return Answered::fault("the client exited with 0 and left no answer".into(), 0);
            }
            Err(error) => return Answered::fault(format!("the answer cannot be read: {error}"), 0),
        };
        match receive(file, &expected, &self.limits) {
            Ok(received) => Answered::of(received, length),
            Err(fault) => Answered::fault(fault.to_string(), length),
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
        }
    }

    fn of(received: Received, length: u64) -> Self {
        let Received { response, stdout, stderr } = received;
        let host = &response.host;
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
            Answer::OtherCompiler { reason } | Answer::MissingCompiler { reason } => {
                (Outcome::FarmUnfit, format!("{host}: {reason}"))
            }
            Answer::MissingPieces { pieces } => {
                (Outcome::FarmFault, format!("{host} lacks {} pieces", pieces.len()))
            }
            Answer::Busy { reason } => (Outcome::FarmFault, format!("{host} is busy: {reason}")),
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
            reason,
            printed: [stdout, stderr].concat(),
            host: Some(response.host),
            worker: Some(response.worker),
            length,
        }
    }
}

/// A user and a host as they are called here, for the logs of workers.
pub fn claims(user: Option<&str>) -> (String, String) {
    let uid = rustix::process::getuid().as_raw();
    let host = rustix::system::uname();
    (
        user.map_or_else(|| format!("uid {uid}"), str::to_owned),
        host.nodename().to_string_lossy().into_owned(),
    )
}
