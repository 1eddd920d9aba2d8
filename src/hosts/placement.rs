//! Which host gets which job: a state machine without threads and clocks. It does not know how a job gets
//! to a host, nor why one failed there.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use blake3::Hash;

use super::locks::LOOK;

/// So many faults in a row, and a host is out for this link.
const FAULTS: u32 = 3;
/// The rest of a host after a fault; it doubles with each further one, and is that of a busy host.
const REST: Duration = Duration::from_secs(1);
const LONGEST_REST: Duration = Duration::from_secs(30);
/// What the newest measurement counts in a host's speed.
const NEWEST: f64 = 0.3;
/// A guess where no host's speed is known.
const SECONDS_PER_BYTE: f64 = 1e-6;
/// What sending costs: a 100 Mbit/s network.
const SECONDS_PER_BYTE_SENT: f64 = 1e-7;
/// A piece that was sent this long ago has arrived, most likely; a worker waits as long for it.
const ON_THE_WAY: Duration = Duration::from_secs(2);

/// A host, by its place in the list that [`Placement::new`] got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub usize);

/// What is known of a host at the start.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Jobs at once.
    pub slots: u32,
    /// Its speed in earlier links: seconds for a byte of [`JobNeeds::work`].
    pub seconds_per_byte: Option<f64>,
}

/// What decides where a job goes.
#[derive(Clone, Copy, Debug, Default)]
pub struct JobNeeds<'a> {
    /// Its inputs and their sizes in bytes; each once.
    pub pieces: &'a [(Hash, u64)],
    /// Bytes that make for the time it takes: its module, say.
    pub work: u64,
    /// How many slots it takes, at least 1; a host that has fewer gives all it has.
    pub slots: u32,
    /// Hosts where it has failed already.
    pub avoid: &'a [HostId],
    /// Send all pieces, whatever the host is thought to hold.
    pub whole: bool,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// Start this one of the jobs there; its slots are locked.
    Start {
        /// Its place among the jobs.
        job: usize,
        /// Where.
        host: HostId,
    },
    /// No job can start now: ask again then, and whenever an attempt has ended.
    Wait(Option<Instant>),
    /// No host is left for this one of the jobs.
    NoHost {
        /// Its place among the jobs.
        job: usize,
    },
}

/// How an attempt ended, as far as the host is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All is well.
    Done,
    /// The host did its part, but the job failed by itself.
    JobFailed,
    /// It is the host's fault, or the way's there.
    Fault,
    /// The host has no room at the moment.
    Busy,
    /// The host cannot do any job of this link.
    Unfit,
    /// The attempt was given up; it says nothing about the host.
    GivenUp,
}

/// An attempt that runs, and what its request must hold.
#[derive(Debug)]
pub struct Attempt {
    /// Where.
    pub host: HostId,
    /// Pieces to be sent.
    pub send: Vec<Hash>,
    /// Pieces that are left out because the host holds them.
    pub held: Vec<Hash>,
    /// Pieces that are left out because another attempt sends them there just now.
    pub in_flight: Vec<Hash>,
    slots: u32,
    work: u64,
    began: Instant,
}

#[derive(Debug, Default)]
struct Host {
    slots: u32,
    used: u32,
    seconds_per_byte: Option<f64>,
    faults: u32,
    last_fault: Option<Instant>,
    rests_until: Option<Instant>,
    out: bool,
    held: HashSet<Hash>,
    /// How many attempts send a piece now, and since when.
    in_flight: HashMap<Hash, (u32, Instant)>,
}

impl Host {
    fn takes(&self, job: &JobNeeds<'_>) -> u32 {
        job.slots.clamp(1, self.slots.max(1))
    }

    /// One that failed gets one attempt at a time until it does well.
    fn has_room(&self, now: Instant, job: &JobNeeds<'_>) -> bool {
        (self.faults == 0 || self.used == 0)
            && self.used + self.takes(job) <= self.slots
            && self.rests_until.is_none_or(|until| until <= now)
    }

    fn rest(&mut self, now: Instant, doublings: u32) {
        self.rests_until = Some(now + (REST * (1 << doublings.min(8))).min(LONGEST_REST));
    }

    /// Bytes that the host lacks, and bytes that are on their way there.
    fn lacks(&self, now: Instant, job: &JobNeeds<'_>) -> (u64, u64) {
        let (mut missing, mut coming) = (0, 0);
        for (piece, bytes) in job.pieces.iter().filter(|(piece, _)| !self.held.contains(piece)) {
            match self.in_flight.get(piece) {
                Some((_, since)) if now.saturating_duration_since(*since) < ON_THE_WAY => {
                    coming += bytes;
                }
                Some(_) => {}
                None => missing += bytes,
            }
        }
        (missing, coming)
    }
}

/// The hosts of a link, with what they do and hold.
#[derive(Debug)]
pub struct Placement {
    hosts: Vec<Host>,
}

impl Placement {
    /// Nothing runs yet.
    pub fn new(known: &[Known]) -> Self {
        let host = |known: &Known| Host {
            slots: known.slots,
            seconds_per_byte: known.seconds_per_byte.filter(|speed| *speed > 0.0),
            ..Host::default()
        };
        Placement { hosts: known.iter().map(host).collect() }
    }

    /// Chooses among `jobs`, those that should start first first: a few are enough. A job whose pieces
    /// are on their way to a host goes elsewhere, or lets another one pass. `lock` takes so many slots of a
    /// host, or says that others use them.
    pub fn pick(
        &self,
        now: Instant,
        jobs: &[JobNeeds<'_>],
        mut lock: impl FnMut(HostId, u32) -> bool,
    ) -> Pick {
        if let Some(job) = jobs.iter().position(|job| self.usable(job).next().is_none()) {
            return Pick::NoHost { job };
        }
        let mut refused = HashSet::new();
        let mut try_lock = |id: HostId, job: &JobNeeds<'_>| {
            !refused.contains(&id) && (lock(id, self.hosts[id.0].takes(job)) || !refused.insert(id))
        };
        let mut clashing = Vec::new();
        for (number, job) in jobs.iter().enumerate() {
            for (coming, host) in self.ranked(now, job) {
                if coming {
                    clashing.push((number, host));
                } else if try_lock(host, job) {
                    return Pick::Start { job: number, host };
                }
            }
        }
        for (number, host) in clashing {
            if try_lock(host, &jobs[number]) {
                return Pick::Start { job: number, host };
            }
        }
        let rested = jobs.iter().flat_map(|job| self.usable(job));
        let rested = rested.filter_map(|(_, host)| host.rests_until.filter(|until| *until > now));
        let look = (!refused.is_empty()).then(|| now + LOOK);
        Pick::Wait(rested.chain(look).min())
    }

    fn usable(&self, job: &JobNeeds<'_>) -> impl Iterator<Item = (HostId, &Host)> {
        let all = self.hosts.iter().enumerate().map(|(n, host)| (HostId(n), host));
        all.filter(|(id, host)| !host.out && host.slots > 0 && !job.avoid.contains(id))
    }

    /// The hosts that have room, the best first, and whether pieces are on their way there.
    fn ranked(&self, now: Instant, job: &JobNeeds<'_>) -> Vec<(bool, HostId)> {
        let known = self.hosts.iter().filter_map(|host| host.seconds_per_byte);
        let best = known.min_by(f64::total_cmp).unwrap_or(SECONDS_PER_BYTE);
        let with_room = self.usable(job).filter(|(_, host)| host.has_room(now, job));
        let mut ranked: Vec<_> = with_room
            .map(|(id, host)| {
                let (missing, coming) = host.lacks(now, job);
                // One that was never tried counts as good: that is how it is tried early.
                let speed = host.seconds_per_byte.unwrap_or(best);
                let load = f64::from(host.used) / f64::from(host.slots);
                let seconds =
                    speed * job.work as f64 * (1.0 + load) + SECONDS_PER_BYTE_SENT * missing as f64;
                (coming > 0, seconds, id)
            })
            .collect();
        ranked.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.2.cmp(&b.2)));
        ranked.into_iter().map(|(coming, _, id)| (coming, id)).collect()
    }

    /// Notes that a job starts on a host, and says what its request must hold.
    pub fn started(&mut self, now: Instant, host: HostId, job: &JobNeeds<'_>) -> Attempt {
        let at = &mut self.hosts[host.0];
        let slots = at.takes(job);
        at.used += slots;
        let (mut send, mut held, mut in_flight) = (Vec::new(), Vec::new(), Vec::new());
        for (piece, _) in job.pieces {
            if !job.whole && at.held.contains(piece) {
                held.push(*piece);
            } else if !job.whole && at.in_flight.contains_key(piece) {
                in_flight.push(*piece);
            } else {
                send.push(*piece);
                at.in_flight.entry(*piece).or_insert((0, now)).0 += 1;
            }
        }
        Attempt { host, send, held, in_flight, slots, work: job.work, began: now }
    }

    /// Notes that an attempt has ended.
    pub fn ended(&mut self, now: Instant, attempt: Attempt, ending: Ending) {
        let host = &mut self.hosts[attempt.host.0];
        host.used = host.used.saturating_sub(attempt.slots);
        for piece in &attempt.send {
            if let Some((senders, _)) = host.in_flight.get_mut(piece) {
                *senders -= 1;
                if *senders == 0 {
                    host.in_flight.remove(piece);
                }
            }
        }
        match ending {
            Ending::Done => {
                host.held.extend(attempt.send);
                host.faults = 0;
                let took = now.saturating_duration_since(attempt.began).as_secs_f64();
                let new = took.max(1e-3) / attempt.work.max(1) as f64;
                let old = host.seconds_per_byte.unwrap_or(new);
                host.seconds_per_byte = Some(old + NEWEST * (new - old));
            }
            Ending::JobFailed => host.faults = 0,
            // Those that ran when the host failed fail with it: that is one fault.
            Ending::Fault if host.last_fault.is_none_or(|last| last <= attempt.began) => {
                host.faults += 1;
                host.last_fault = Some(now);
                host.out |= host.faults >= FAULTS;
                host.rest(now, host.faults - 1);
            }
            Ending::Busy => host.rest(now, 0),
            Ending::Unfit => host.out = true,
            Ending::Fault | Ending::GivenUp => {}
        }
    }

    /// The host says that it holds these.
    pub fn holds(&mut self, host: HostId, pieces: impl IntoIterator<Item = Hash>) {
        self.hosts[host.0].held.extend(pieces);
    }

    /// The host says that it lacks these.
    pub fn lacks(&mut self, host: HostId, pieces: &[Hash]) {
        let host = &mut self.hosts[host.0];
        for piece in pieces {
            host.held.remove(piece);
        }
    }

    /// Leaves a host out for this link.
    pub fn leave_out(&mut self, host: HostId) {
        self.hosts[host.0].out = true;
    }

    /// The host gets no jobs any more.
    pub fn is_out(&self, host: HostId) -> bool {
        self.hosts[host.0].out
    }

    /// Slots of hosts that are not out.
    pub fn slots(&self) -> usize {
        self.hosts.iter().filter(|host| !host.out).map(|host| host.slots as usize).sum()
    }

    /// The host's speed, to be remembered.
    pub fn seconds_per_byte(&self, host: HostId) -> Option<f64> {
        self.hosts[host.0].seconds_per_byte
    }
}

#[cfg(test)]
mod tests;
