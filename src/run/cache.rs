//! The cache, as a run sees it: jobs are asked for, several at once and the largest first; hits are delivered, the
//! rest is queued as its answers come; what was made is stored beside the jobs that still run.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::start::STACK;
use super::{End, Message, Run};
use crate::adapter::{Place, Shipping, Source};
use crate::attempt::{Report, Setup};
use crate::cache::{Answer, Client, Feed, Hit, Mode, key};
use crate::cli::CacheFeed;
use crate::collect;
use crate::exit::Exit;
use crate::parcel::one_line;
use crate::report::stats::{Caching, ms};

/// Calls at once.
const LANES: usize = 8;
/// How long the link waits, after its last job, for what is being stored.
const LAST_PUTS: Duration = Duration::from_secs(2);

/// What a link does with its cache.
#[derive(Debug)]
pub struct Use {
    /// The cache.
    pub client: Client,
    /// What people call it.
    pub name: String,
    /// Whether it is asked and fed.
    pub mode: Mode,
    /// Which objects it is fed with, if the user says so.
    pub feed: Option<CacheFeed>,
    /// This host, as the origin of what is made here.
    pub host: String,
}

/// The state of it.
pub(super) struct Cache {
    shared: Arc<Use>,
    lanes: Arc<Lanes>,
    /// Jobs whose answers are not here yet.
    asking: usize,
    /// Jobs that are being stored, or wait for that.
    feeding: usize,
    /// Jobs that are not cached, by reason.
    not_cacheable: BTreeMap<String, usize>,
    /// Why the first of those that are not stored is not.
    not_stored: Option<String>,
    told_of_damage: bool,
    tally: Caching,
}

/// An answer of the cache, and the way to it.
#[derive(Debug)]
pub struct Asked {
    job: usize,
    lane: usize,
    began: Instant,
    took: Duration,
    answer: Answer,
}

/// What became of outputs for the cache.
#[derive(Debug)]
pub struct Fed {
    lane: usize,
    job: usize,
    began: Instant,
    took: Duration,
    stored: Result<(), String>,
}

/// What waits for a lane.
#[derive(Default)]
struct Lanes {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    asks: VecDeque<usize>,
    feeds: VecDeque<Feed>,
    closed: bool,
}

enum Call {
    Ask(usize),
    Feed(Feed),
}

impl Lanes {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Waiting)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// The next call; none once nothing will come any more. Jobs wait for answers: those come first.
    fn next(&self) -> Option<Call> {
        let mut waiting = self.lock();
        loop {
            let ask = waiting.asks.pop_front().map(Call::Ask);
            if let Some(call) = ask.or_else(|| waiting.feeds.pop_front().map(Call::Feed)) {
                return Some(call);
            }
            if waiting.closed {
                return None;
            }
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Run<'_> {
    /// Asks the cache for jobs first, and feeds it.
    pub fn with_cache(&mut self, cache: Use) {
        let mut cache = Cache {
            shared: Arc::new(cache),
            lanes: Arc::default(),
            asking: 0,
            feeding: 0,
            not_cacheable: BTreeMap::new(),
            not_stored: None,
            told_of_damage: false,
            tally: Caching::default(),
        };
        let started = (0..LANES.min(self.setup.plan.file.jobs.len()))
            .map(|lane| {
                let (lanes, shared) = (cache.lanes.clone(), cache.shared.clone());
                let (setup, sender) = (self.setup.clone(), self.sender.clone());
                let body = move || serve(&setup, (&lanes, &shared), &sender, lane);
                thread::Builder::new().stack_size(STACK).name("cache".into()).spawn(body)
            })
            .filter(Result::is_ok)
            .count();
        if started == 0 {
            let name = &cache.shared.name;
            self.reporter.notice(&format!("{name} is not used: no thread can be started"));
            return;
        }
        let mut asks = Vec::new();
        for (number, job) in self.setup.plan.file.jobs.iter().enumerate() {
            match key::check(job) {
                Ok(()) => asks.push(number),
                Err(why) => cache.is_not_cacheable(why.to_string()),
            }
        }
        if cache.shared.mode.reads {
            for queue in [&mut self.farm, &mut self.local] {
                queue.retain(|job| asks.binary_search(&job).is_err());
            }
            let size =
                |job: &usize| self.setup.inputs.size(&self.setup.plan.file.jobs[*job].primary);
            asks.sort_by_key(|job| std::cmp::Reverse(size(job)));
            cache.asking = asks.len();
            cache.lanes.change(|waiting| waiting.asks = asks.into());
        }
        self.cache = Some(cache);
    }

    /// Jobs whose answers are not here yet.
    pub(super) fn asking(&self) -> usize {
        self.cache.as_ref().map_or(0, |cache| cache.asking)
    }

    /// Calls of the cache that run or wait.
    pub(super) fn calls(&self) -> usize {
        self.cache.as_ref().map_or(0, |cache| cache.asking + cache.feeding)
    }

    pub(super) fn asked(&mut self, asked: Asked) {
        let Asked { job, lane, began, took, answer } = asked;
        let Some(cache) = &mut self.cache else { return };
        cache.asking -= 1;
        let module = &self.setup.plan.file.jobs[job].primary;
        let name = cache.shared.name.clone();
        let (result, hit) = match answer {
            Answer::Hit(hit) => match deliver(&hit) {
                Ok(()) => ("hit", Some(hit)),
                Err(_) => ("not delivered", None),
            },
            Answer::Miss => {
                cache.tally.misses += 1;
                ("miss", None)
            }
            Answer::Damaged(what) => {
                cache.tally.misses += 1;
                cache.tally.damaged += 1;
                let text = format!("{module}: {name} has a damaged entry: {what}");
                match std::mem::replace(&mut cache.told_of_damage, true) {
                    false => self.reporter.notice(&text),
                    true => self.reporter.detail(&text),
                }
                ("damaged", None)
            }
            Answer::NotCacheable(why) => {
                cache.is_not_cacheable(why.to_string());
                ("not cacheable", None)
            }
            Answer::None => {
                cache.tally.unanswered += 1;
                ("no answer", None)
            }
        };
        if let Some(trace) = &mut self.trace {
            trace.attempt(module, ("cache", lane), began, took, result);
        }
        match hit {
            Some(hit) => {
                cache.tally.hits += 1;
                let Hit { outputs, origin, .. } = *hit;
                self.reporter.detail_with(|| {
                    let [host, at] = [&origin.host, &origin.at].map(|text| one_line(text));
                    format!("{module}: from {name}, made on {host}, stored at {at}")
                });
                self.reporter.words(origin.printed.as_bytes());
                let outputs = if self.setup.digests { outputs } else { Vec::new() };
                self.jobs.accept_cached(job, outputs, Some(origin.host), ms(took));
            }
            None => self.queue_missed(job),
        }
        self.tell_of_cache();
    }

    /// An answer that nobody waits for any more.
    pub(super) fn too_late(&mut self) {
        let Some(cache) = &mut self.cache else { return };
        cache.asking -= 1;
        cache.tally.unanswered += 1;
    }

    /// A job that the cache does not have.
    fn queue_missed(&mut self, job: usize) {
        if let Some(fleet) = self.later.take() {
            self.start_fleet(fleet);
        }
        let size = self.setup.inputs.size(&self.setup.plan.file.jobs[job].primary);
        match self.setup.plan.place() {
            Place::Local => self.local.push(size, job),
            Place::Farm if self.farm_works => self.farm.push(size, job),
            Place::Farm => self.do_without_farm(vec![job]),
        }
    }

    /// Has the outputs of an accepted job stored.
    pub(super) fn feed(&mut self, report: &Report) {
        let Some(cache) = &mut self.cache else { return };
        let place = report.which.place;
        let job = report.which.job;
        if !cache.shared.mode.writes
            || key::check(&self.setup.plan.file.jobs[job]).is_err()
            || !is_fed(&self.setup, cache.shared.feed, place)
        {
            return;
        }
        let host = match place {
            Place::Farm => report.host.clone().unwrap_or_else(|| "unknown".into()),
            Place::Local => cache.shared.host.clone(),
        };
        let feed = Feed { job, host, printed: report.printed.clone() };
        cache.feeding += 1;
        cache.lanes.change(|waiting| waiting.feeds.push_back(feed));
    }

    pub(super) fn fed(&mut self, fed: Fed) {
        let Some(cache) = &mut self.cache else { return };
        cache.feeding -= 1;
        let result = match fed.stored {
            Ok(()) => {
                cache.tally.stored += 1;
                "stored".to_owned()
            }
            Err(why) => {
                let module = &self.setup.plan.file.jobs[fed.job].primary;
                self.reporter.detail(&format!("{module}: not stored: {why}"));
                cache.tally.not_stored += 1;
                cache.not_stored.get_or_insert_with(|| why.clone());
                why
            }
        };
        if let Some(trace) = &mut self.trace {
            let module = &self.setup.plan.file.jobs[fed.job].primary;
            trace.attempt(module, ("cache", fed.lane), fed.began, fed.took, &result);
        }
        self.tell_of_cache();
    }

    fn tell_of_cache(&mut self) {
        let Some(cache) = &self.cache else { return };
        if let Some(news) = cache.shared.client.news() {
            self.reporter.notice(&format!("{} {news}", cache.shared.name));
        }
    }

    /// Waits a little for what is being stored; the rest is not stored, and is counted. Somebody may give up the
    /// link meanwhile.
    pub(super) fn end_cache(&mut self) -> Option<End> {
        let until = Instant::now() + LAST_PUTS;
        if self.failed_for.is_some() {
            self.drop_waiting(true, false);
        }
        while self.calls() > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.drop_waiting(true, true);
                self.end_calls();
                break;
            }
            match self.messages.recv_timeout(left) {
                Ok(Message::Signal(signal)) => return Some(self.give_up(Some(signal))),
                Ok(Message::LinkerGone) => return Some(self.give_up(None)),
                Ok(Message::Bug) => return Some(End { exit: Exit::Bug, ..self.give_up(None) }),
                Ok(message) => self.hear(message),
                Err(_) => {}
            }
        }
        self.drop_waiting(true, true);
        self.tell_of_uncached();
        None
    }

    /// Gives up what waits for a lane, and lets lanes end.
    pub(super) fn drop_waiting(&mut self, asks: bool, feeds: bool) {
        let Some(cache) = &mut self.cache else { return };
        let (mut asked, mut fed) = (0, 0);
        cache.lanes.change(|waiting| {
            if asks {
                asked = waiting.asks.drain(..).count();
            }
            if feeds {
                fed = waiting.feeds.drain(..).count();
                waiting.closed = true;
            }
        });
        cache.asking -= asked;
        cache.feeding -= fed;
        cache.tally.unanswered += asked;
        cache.tally.not_stored += fed;
        if fed > 0 {
            cache.not_stored.get_or_insert_with(|| "the link was over".into());
        }
    }

    /// What the cache was good for.
    pub(super) fn tally(&self) -> Option<Caching> {
        self.cache.as_ref().map(|cache| cache.tally)
    }

    fn tell_of_uncached(&mut self) {
        let Some(cache) = &mut self.cache else { return };
        let plural = |count: usize| if count == 1 { ("", "is") } else { ("s", "are") };
        for (why, count) in std::mem::take(&mut cache.not_cacheable) {
            let (s, are) = plural(count);
            self.reporter.notice(&format!("{count} job{s} {are} not cached: {why}"));
        }
        let count = cache.tally.not_stored;
        if let Some(why) = cache.not_stored.take() {
            let ((s, are), name) = (plural(count), &cache.shared.name);
            let text = format!("{count} object{s} {are} not stored in {name}: {why}");
            self.reporter.notice(&text);
        }
    }
}

impl Cache {
    fn is_not_cacheable(&mut self, why: String) {
        self.tally.not_cacheable += 1;
        *self.not_cacheable.entry(why).or_default() += 1;
    }
}

/// Whether what was made at `place` is for the cache. Unless the user says so, only where it is known which compiler
/// made it: hosts that take bundles prove theirs, and the built-in adapter for this machine starts the job's own.
fn is_fed(setup: &Setup, asked: Option<CacheFeed>, place: Place) -> bool {
    let manifest = setup.plan.manifest(place);
    let proved = match place {
        Place::Farm => manifest.shipping == Shipping::Bundle,
        Place::Local => manifest.source == Source::BuiltIn,
    };
    match asked {
        Some(CacheFeed::All) => true,
        Some(CacheFeed::Local) => proved && place == Place::Local,
        None => proved,
    }
}

fn deliver(hit: &Hit) -> std::io::Result<()> {
    hit.made.iter().try_for_each(|(made, place)| collect::deliver(made, place))
}

/// A lane: makes one call after the other.
fn serve(setup: &Setup, (lanes, cache): (&Lanes, &Use), sender: &Sender<Message>, lane: usize) {
    while let Some(call) = lanes.next() {
        let began = Instant::now();
        let made = catch_unwind(AssertUnwindSafe(|| match call {
            Call::Ask(job) => {
                let answer = ask(setup, &cache.client, job);
                Message::Asked(Box::new(Asked { job, lane, began, took: began.elapsed(), answer }))
            }
            Call::Feed(feed) => {
                let stored = cache.client.feed(&setup.plan.file.jobs[feed.job], &feed);
                let (job, took) = (feed.job, began.elapsed());
                Message::Fed(Box::new(Fed { lane, job, began, took, stored }))
            }
        }));
        // The receiver is gone only when the link was given up.
        if sender.send(made.unwrap_or(Message::Bug)).is_err() {
            return;
        }
    }
}

fn ask(setup: &Setup, client: &Client, number: usize) -> Answer {
    let job = &setup.plan.file.jobs[number];
    // Attempts count from 1, and a job's outputs have one ending each at most.
    let places: Vec<String> = job
        .outputs()
        .zip(0..)
        .map(|(output, place)| format!("{}.{place}", setup.scratch.fresh(output, number, 0)))
        .collect();
    let answer = client.ask(number, job, &places);
    // It was read for the key after it had been looked at: the same file, or the attempt that follows tells of it.
    if matches!(answer, Answer::Hit(_)) && setup.inputs.check(job).is_err() {
        places.iter().for_each(|place| drop(fs::remove_file(place)));
        return Answer::None;
    }
    answer
}
