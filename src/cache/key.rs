//! What a job is called in a cache: a digest of all that its object depends on, and of nothing else. That is what a
//! bundle of the job would hold, so the request of one is made, with names that count within the job alone, and
//! digested. It knows neither stores nor entries.

use std::fmt;
use std::sync::Arc;

use blake3::Hasher;

use super::Key;
use crate::bundle::{About, Library, Names, Request, prepare};
use crate::jobfile::Job;
use crate::parcel::{self, HOLDS_NAMES};
use crate::policy::{self, Named};
use crate::toolchain::{Changed, Identity, Toolchain};

/// Changes whenever equal jobs get other keys, or other jobs equal ones; and with the format of entries, so that versions
/// of this program do not take away each other's.
const FORMAT: &str = "dtlto-bridge key 1, entry 1";

/// Why a job has no key: nothing proves that its object depends on nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotCacheable(pub String);

impl fmt::Display for NotCacheable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotCacheable {}

/// Makes the keys of a link's jobs.
#[derive(Debug)]
pub struct Keys {
    toolchain: Toolchain,
    library: Arc<Library>,
    salt: String,
}

/// Whether a job can have a key, by its arguments alone.
///
/// # Errors
/// Why it cannot.
pub fn check(job: &Job) -> Result<(), NotCacheable> {
    let refused = policy::check(parcel::own_args(job), &Named::from(job)).err();
    refused.map_or(Ok(()), |refusal| Err(NotCacheable(refusal.to_string())))
}

impl Keys {
    /// For jobs of `toolchain`; `library` holds digests of their inputs, and keys of another `salt` are others.
    pub fn new(toolchain: Toolchain, library: Arc<Library>, salt: &str) -> Self {
        Keys { toolchain, library, salt: salt.to_owned() }
    }

    /// The compiler of all jobs.
    pub fn compiler(&self) -> &Identity {
        &self.toolchain.identity
    }

    /// Makes sure that the compiler is still the one of the keys.
    ///
    /// # Errors
    /// A file of it changed.
    pub fn still_same(&self) -> Result<(), Changed> {
        self.toolchain.still_same()
    }

    /// The key of `job`, whose inputs are read for it, each once a link.
    ///
    /// # Errors
    /// It has none.
    pub fn key(&self, job: &Job) -> Result<Key, NotCacheable> {
        let weight = policy::check(parcel::own_args(job), &Named::from(job))
            .map_err(|refusal| NotCacheable(refusal.to_string()))?;
        if weight.shows_names() && parcel::has_codeview(job, &self.library).map_err(NotCacheable)? {
            return Err(NotCacheable(HOLDS_NAMES.into()));
        }
        // clang writes that name into the object, and it holds the number of the linker's process.
        if job.other_outputs.iter().any(|output| output.ends_with(".dwo")) {
            return Err(NotCacheable("its object holds the name of its .dwo file".into()));
        }
        let job = Job { args: parcel::own_args(job).to_vec(), ..job.clone() };
        let about = About {
            link: String::new(),
            user: String::new(),
            host: String::new(),
            compiler: self.compiler().clone(),
            environment: Vec::new(),
            time_limit_s: 0,
        };
        // Names that other jobs have no part in: a module that joins the link changes no keys but its importers'.
        let names = Names::new(std::slice::from_ref(&job));
        let prepared = prepare(&job, (0, weight.slots()), (&names, &self.library), &about)
            .map_err(|error| NotCacheable(error.to_string()))?;
        Ok(digest(&prepared.request, &self.salt))
    }
}

/// Each field with its length before it, each list with its number: nothing can pass for something else.
fn digest(request: &Request, salt: &str) -> Key {
    let mut hasher = Hasher::new();
    let mut add = |field: &[u8]| {
        hasher.update(&(field.len() as u64).to_le_bytes()).update(field);
    };
    // All fields by name: what a request comes to say later is decided on here.
    let Request { args, files, outputs, compiler, .. } = request;
    for text in [FORMAT, salt, &compiler.version, &compiler.full] {
        add(text.as_bytes());
    }
    for list in [args, outputs] {
        add(&(list.len() as u64).to_le_bytes());
        list.iter().for_each(|text| add(text.as_bytes()));
    }
    add(&(files.len() as u64).to_le_bytes());
    for file in files {
        add(file.name.as_bytes());
        add(&(file.pieces.len() as u64).to_le_bytes());
        file.pieces.iter().for_each(|piece| add(&piece.blake3.0));
    }
    Key::new(*hasher.finalize().as_bytes())
}
