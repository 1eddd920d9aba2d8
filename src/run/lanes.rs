//! Lanes: threads that make one call of the cache after the other. They know jobs and the cache; what follows from an
//! answer is decided elsewhere.

use std::collections::VecDeque;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::cache::Use;
use super::start::STACK;
use super::{Message, Run};
use crate::attempt::Setup;
use crate::cache::{Answer, Client, Feed, NotFed};

/// Calls at once.
const LANES: usize = 8;

/// An answer of the cache, and the way to it.
#[derive(Debug)]
pub struct Asked {
    pub(super) job: usize,
    pub(super) lane: usize,
    pub(super) began: Instant,
    pub(super) took: Duration,
    pub(super) answer: Answer,
}

/// What became of outputs for the cache.
#[derive(Debug)]
pub struct Fed {
    pub(super) job: usize,
    pub(super) lane: usize,
    pub(super) began: Instant,
    pub(super) took: Duration,
    pub(super) stored: Result<(), NotFed>,
}

/// What waits for a lane.
#[derive(Default)]
pub(super) struct Lanes {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
pub(super) struct Waiting {
    pub(super) asks: VecDeque<usize>,
    pub(super) feeds: VecDeque<Feed>,
    /// Nothing more will come.
    pub(super) closed: bool,
}

enum Call {
    Ask(usize),
    Feed(Feed),
}

impl Lanes {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut Waiting)) {
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
    /// Starts lanes; says how many.
    pub(super) fn start_lanes(&self, lanes: &Arc<Lanes>, cache: &Arc<Use>) -> usize {
        (0..LANES.min(self.setup.plan.file.jobs.len()))
            .map(|lane| {
                let (lanes, cache) = (lanes.clone(), cache.clone());
                let (setup, sender) = (self.setup.clone(), self.sender.clone());
                let body = move || serve(&setup, (&lanes, &cache), &sender, lane);
                thread::Builder::new().stack_size(STACK).name("cache".into()).spawn(body)
            })
            .filter(Result::is_ok)
            .count()
    }
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
