//! The cache, as a run sees it: jobs are asked for, several at once and the largest first; hits are delivered, the
//! rest is queued as its answers come; what was made is stored beside the jobs that still run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::lanes::{Asked, Fed, Lanes};
use super::{End, Message, Run};
use crate::adapter::{Place, Shipping, Source};
use crate::attempt::{Report, Setup};
use crate::cache::{Answer, Client, Feed, Hit, Mode, NotFed, key};
use crate::cli::CacheFeed;
use crate::collect;
use crate::exit::Exit;
use crate::parcel::one_line;
use crate::report::stats::{Caching, ms};

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
        let started = self.start_lanes(&cache.lanes, &cache.shared);
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
        let (result, hit) = self.weigh(job, answer);
        if let Some(trace) = &mut self.trace {
            let module = &self.setup.plan.file.jobs[job].primary;
            trace.attempt(module, ("cache", lane), began, took, result);
        }
        match hit {
            Some(hit) => self.take(job, *hit, took),
            None => self.queue_missed(job),
        }
        self.tell_of_cache();
    }

    /// Counts an answer, and says what it is.
    fn weigh(&mut self, job: usize, answer: Answer) -> (&'static str, Option<Box<Hit>>) {
        let Some(cache) = &mut self.cache else { return ("no cache", None) };
        cache.asking -= 1;
        match answer {
            Answer::Hit(hit) if deliver(&hit).is_ok() => {
                cache.tally.hits += 1;
                ("hit", Some(hit))
            }
            Answer::Miss => {
                cache.tally.misses += 1;
                ("miss", None)
            }
            Answer::Damaged(what) => {
                cache.tally.misses += 1;
                cache.tally.damaged += 1;
                let (module, name) = (&self.setup.plan.file.jobs[job].primary, &cache.shared.name);
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
            // The attempt that follows tells why nothing can be delivered.
            Answer::Hit(_) | Answer::None => {
                cache.tally.unanswered += 1;
                ("no answer", None)
            }
        }
    }

    /// Takes the outputs of a hit, which are in their places.
    fn take(&mut self, job: usize, hit: Hit, took: Duration) {
        let Hit { outputs, origin, .. } = hit;
        let module = &self.setup.plan.file.jobs[job].primary;
        self.reporter.detail_with(|| {
            let [host, at] = [&origin.host, &origin.at].map(|text| one_line(text));
            format!("{module}: from the cache, made on {host}, stored at {at}")
        });
        self.reporter.words(origin.printed.as_bytes());
        let outputs = if self.setup.digests { outputs } else { Vec::new() };
        self.jobs.accept_cached(job, outputs, Some(origin.host), ms(took));
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
            Err(NotFed::NotCacheable(why)) => {
                // Who asks has been told so then.
                if !cache.shared.mode.reads {
                    cache.is_not_cacheable(why.to_string());
                }
                why.to_string()
            }
            Err(NotFed::Failed(why)) => {
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
