//! A link's side of a cache: each job's key, one call to get its entry, one to put it, each within its time, and no more
//! calls once they are of no use. It does not know in which order jobs come, or what else a link does.

use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

use super::breaker::Breaker;
use super::entry::{self, Made, Unread};
use super::key::{Keys, NotCacheable};
use super::{Key, Store, Trouble};
use crate::collect;
use crate::jobfile::{Job, Text};
use crate::report::stats::{Output, utc};

/// The store must have been opened after this time,
pub const OPEN_TIME: Duration = Duration::from_secs(5);
/// an entry must be there,
pub const GET_TIME: Duration = Duration::from_secs(5);
/// and an entry must be stored.
pub const PUT_TIME: Duration = Duration::from_secs(20);

/// What a cache is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// It is asked.
    pub reads: bool,
    /// It is fed.
    pub writes: bool,
}

/// Opens the store, when it is first needed.
pub type Opener = Box<dyn Fn() -> Result<Box<dyn Store>, Trouble> + Send + Sync>;

/// A cache, as the jobs of one link see it. Shared by threads.
pub struct Client {
    opener: Opener,
    store: OnceLock<Result<Box<dyn Store>, Trouble>>,
    keys: Keys,
    known: Vec<OnceLock<Result<Key, NotCacheable>>>,
    folder: PathBuf,
    asks: Breaker,
    feeds: Breaker,
}

/// What the cache said to a question.
#[derive(Debug)]
pub enum Answer {
    /// It has the job's outputs.
    Hit(Box<Hit>),
    /// It does not.
    Miss,
    /// It gave something else, described in words.
    Damaged(String),
    /// There is no question to ask, for this reason.
    NotCacheable(NotCacheable),
    /// It was not asked, or did not answer.
    None,
}

/// A job's outputs from a cache, checked.
#[derive(Debug)]
pub struct Hit {
    /// Where they lie, and where they belong.
    pub made: Vec<(String, Text)>,
    /// What they are.
    pub outputs: Vec<Output>,
    /// Where they were made.
    pub origin: Made,
}

/// A job's outputs for a cache.
#[derive(Debug)]
pub struct Feed {
    /// The job's number.
    pub job: usize,
    /// Where they were made.
    pub host: String,
    /// What the compiler printed.
    pub printed: Vec<u8>,
}

/// Why outputs are not stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotFed {
    /// They are no matter of caches.
    NotCacheable(NotCacheable),
    /// The cache did not take them, or could not be asked to, in words for people.
    Failed(String),
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("store", &self.store).finish_non_exhaustive()
    }
}

impl Client {
    /// For a link of so many jobs; entries lie in `folder` while they are used.
    pub fn new(opener: Opener, keys: Keys, jobs: usize, folder: PathBuf) -> Self {
        Client {
            opener,
            store: OnceLock::new(),
            keys,
            known: (0..jobs).map(|_| OnceLock::new()).collect(),
            folder,
            asks: Breaker::default(),
            feeds: Breaker::default(),
        }
    }

    /// Asks for the outputs of the `number`th job, and makes them as the new files `places`.
    pub fn ask(&self, number: usize, job: &Job, places: &[String]) -> Answer {
        let key = match self.key(number, job) {
            Ok(key) => key,
            Err(why) => return Answer::NotCacheable(why),
        };
        if !self.asks.is_closed() {
            return Answer::None;
        }
        let Some(store) = self.store() else { return Answer::None };
        let into = self.folder.join(format!("{number}.got"));
        let began = Instant::now();
        let got = store.get(&key, &into, began + GET_TIME);
        let answer = match &got {
            Ok(true) => take(&into, &key, job, places),
            Ok(false) => Answer::Miss,
            Err(_) => Answer::None,
        };
        match &got {
            Ok(_) => self.asks.answered(began.elapsed(), matches!(answer, Answer::Hit(_))),
            Err(trouble) => {
                self.asks.failed(trouble);
                if !self.asks.is_closed() {
                    self.feeds.trip("it does not answer");
                    // One notice is enough.
                    let _ = self.feeds.news();
                }
            }
        }
        let _ = fs::remove_file(into);
        answer
    }

    /// Stores the outputs of a job, which lie in their places.
    ///
    /// # Errors
    /// See [`NotFed`].
    pub fn feed(&self, job: &Job, feed: &Feed) -> Result<(), NotFed> {
        let key = self.key(feed.job, job).map_err(NotFed::NotCacheable)?;
        self.put(&key, job, feed).map_err(NotFed::Failed)
    }

    fn put(&self, key: &Key, job: &Job, feed: &Feed) -> Result<(), String> {
        if !self.feeds.is_closed() {
            return Err("the cache is not fed any more".into());
        }
        let store = self.store().ok_or("the cache cannot be used")?;
        // Made by another compiler than the key says, perhaps.
        self.keys.still_same().map_err(|changed| changed.to_string())?;
        let made = Made {
            host: feed.host.clone(),
            bridge: env!("CARGO_PKG_VERSION").to_owned(),
            compiler: self.keys.compiler().version.clone(),
            at: utc(SystemTime::now()),
            printed: String::from_utf8_lossy(&feed.printed).into_owned(),
        };
        let entry = self.folder.join(format!("{}.put", feed.job));
        let outputs: Vec<&Path> = job.outputs().map(|output| Path::new(&**output)).collect();
        let written = entry::write(&entry, key, &made, &outputs);
        let put = written.map_err(|error| format!("{error:#}")).and_then(|()| {
            let began = Instant::now();
            let put = store.put(key, &entry, began + PUT_TIME);
            match &put {
                Ok(()) => self.feeds.answered(began.elapsed(), true),
                Err(trouble) => self.feeds.failed(trouble),
            }
            put.map_err(|trouble| trouble.to_string())
        });
        let _ = fs::remove_file(entry);
        put
    }

    /// What users should know of the cache and have not been told: that it is left alone, and why.
    pub fn news(&self) -> Option<String> {
        let asks = self.asks.news().map(|why| format!("is not used any more in this link: {why}"));
        asks.or_else(|| {
            self.feeds.news().map(|why| format!("is not fed any more in this link: {why}"))
        })
    }

    fn key(&self, number: usize, job: &Job) -> Result<Key, NotCacheable> {
        self.known[number].get_or_init(|| self.keys.key(job)).clone()
    }

    fn store(&self) -> Option<&dyn Store> {
        let opened = self.store.get_or_init(|| (self.opener)());
        match opened {
            Ok(store) => Some(&**store),
            Err(trouble) => {
                self.asks.trip(&trouble.to_string());
                self.feeds.trip(&trouble.to_string());
                let _ = self.feeds.news();
                None
            }
        }
    }
}

/// Looks into an entry as into any answer of a stranger.
fn take(entry: &Path, key: &Key, job: &Job, places: &[String]) -> Answer {
    let paths: Vec<PathBuf> = places.iter().map(PathBuf::from).collect();
    let read = match File::open(entry) {
        Ok(file) => entry::read(file, key, &paths, entry::TOTAL_LIMIT),
        Err(error) => return Answer::Damaged(format!("it cannot be read: {error}")),
    };
    let (origin, stated) = match read {
        Ok(read) => read,
        Err(Unread::Damaged(damage)) => return Answer::Damaged(damage.to_string()),
        // The attempt that follows will meet the same, and tell of it.
        Err(Unread::Failed(_)) => return Answer::None,
    };
    let made: Vec<_> = places.iter().cloned().zip(job.outputs().cloned()).collect();
    let checked = collect::check_made(made.iter().map(|(at, output)| (at.as_str(), output)));
    if let Err(error) = checked {
        paths.iter().for_each(|path| drop(fs::remove_file(path)));
        return Answer::Damaged(format!("{error:#}"));
    }
    let outputs = made.iter().zip(stated).map(|((_, path), stated)| Output {
        path: path.to_string(),
        bytes: stated.length,
        blake3: stated.blake3.to_string(),
    });
    Answer::Hit(Box::new(Hit { outputs: outputs.collect(), made, origin }))
}
