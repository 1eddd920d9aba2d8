//! The hosts of a link's farm, as its run uses them: which host gets which job, what it is known for, and
//! what is remembered of it for the next link. It starts nothing and sends nothing; see `fleet::probe`.

pub mod probe;

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::{Duration, Instant};

use blake3::Hash;

use crate::attempt::Without;
use crate::bundle::Digest;
use crate::hosts::alive::Pulse;
use crate::hosts::list::{Host, Kind};
use crate::hosts::locks::{Held, Locks};
use crate::hosts::memory::{Memory, farm_key, unix_now};
use crate::hosts::placement::{Attempt, Ending, HostId, JobNeeds, Known, Pick, Placement};
use crate::hosts::probe::{TIME, Verdict};
use crate::process::pool::own_folder;

/// Ready jobs among which a host may choose.
pub const WINDOW: usize = 8;

/// What is to be done next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Start this one of the jobs on this host, without these pieces.
    Start(usize, HostId, Without),
    /// Ask again then, and whenever something has ended.
    Wait(Option<Instant>),
    /// No host is left for this one of the jobs.
    NoHost(usize),
}

/// A job that waits.
#[derive(Clone, Debug)]
pub struct Ready {
    /// Its number.
    pub job: usize,
    /// Bytes that make for the time it takes.
    pub work: u64,
    /// Slots that it takes of a host.
    pub slots: u32,
    /// Its pieces and their lengths, where they are known.
    pub pieces: Vec<(Hash, u64)>,
}

#[derive(Debug)]
struct Running {
    attempt: Attempt,
    _slots: Option<Held>,
    pulse: Option<Pulse>,
}

/// The hosts.
#[derive(Debug)]
pub struct Fleet {
    hosts: Vec<Host>,
    placement: Placement,
    locks: Option<Locks>,
    memory: Option<Memory>,
    farm: String,
    compiler: String,
    verdicts: Vec<Option<Verdict>>,
    probed_by: Instant,
    running: HashMap<usize, Running>,
    avoid: HashMap<usize, Vec<HostId>>,
    /// The last fault of each host in this link.
    faults: HashMap<HostId, String>,
    /// Jobs that a host lacked pieces for: they are sent whole from then on.
    whole: HashSet<usize>,
}

impl Fleet {
    /// The hosts of a link whose compiler has the digest `compiler`; what earlier links know of them is
    /// taken from the folder `cache`.
    ///
    /// # Errors
    /// Earlier links found the whole farm dead a short while ago.
    pub fn new(
        hosts: Vec<Host>,
        compiler: &str,
        cache: Option<&Path>,
        now: Instant,
    ) -> Result<Self, String> {
        // Another compiler's link may find its own clang there.
        let farm = farm_key(hosts.iter().map(|host| &*host.name).chain([compiler]));
        let memory = cache.map(Memory::new);
        let remembered = memory.as_ref().map(Memory::read).unwrap_or_default();
        if let Some((reason, seconds)) = remembered.dead_farm(unix_now(), &farm) {
            return Err(format!("{reason} (not asked again for {seconds} s)"));
        }
        let known: Vec<Known> = hosts
            .iter()
            .map(|host| Known {
                slots: host.slots,
                seconds_per_byte: remembered.seconds_per_byte(&host.name),
            })
            .collect();
        let verdict = |host: &Host| remembered.verdict(unix_now(), &host.name, compiler).cloned();
        let mut fleet = Fleet {
            placement: Placement::new(&known),
            // Without a folder for locks the hosts' own limits still hold.
            locks: own_folder().and_then(|folder| Locks::new(&folder, &hosts)).ok(),
            verdicts: hosts.iter().map(verdict).collect(),
            compiler: compiler.to_owned(),
            probed_by: now + TIME,
            running: HashMap::new(),
            avoid: HashMap::new(),
            faults: HashMap::new(),
            whole: HashSet::new(),
            memory,
            farm,
            hosts,
        };
        for id in 0..fleet.hosts.len() {
            if fleet.verdicts[id].as_ref().is_some_and(|verdict| !verdict.is_good()) {
                fleet.placement.leave_out(HostId(id));
            }
        }
        Ok(fleet)
    }

    /// The hosts of which nothing is known.
    pub fn unknown(&self) -> Vec<HostId> {
        let unknown = self.verdicts.iter().enumerate().filter(|(_, verdict)| verdict.is_none());
        unknown.map(|(id, _)| HostId(id)).collect()
    }

    /// What people should know of hosts that earlier links found to be of no use.
    pub fn known_bad(&self) -> Vec<String> {
        let known = self.hosts.iter().zip(&self.verdicts);
        let bad = known.filter_map(|(host, verdict)| Some((&host.name, verdict.as_ref()?)));
        bad.filter(|(_, verdict)| !verdict.is_good())
            .map(|(name, verdict)| {
                format!("{name} is left out, as a minute ago: {}", verdict.words())
            })
            .collect()
    }

    /// When the last probe must have ended, if one is under way.
    pub fn probed_by(&self) -> Option<Instant> {
        (!self.unknown().is_empty()).then_some(self.probed_by)
    }

    /// Takes the verdict on a host. Returns what people should know of it.
    pub fn probed(&mut self, host: HostId, verdict: Verdict) -> Option<String> {
        let name = &self.hosts[host.0].name;
        let bad = (!verdict.is_good()).then(|| format!("{name} is left out: {}", verdict.words()));
        if bad.is_some() {
            self.placement.leave_out(host);
        }
        if let Some(memory) = &self.memory {
            // What cannot be remembered is asked again.
            let _ = memory.update(unix_now(), |all| {
                all.note_verdict(unix_now(), name, &self.compiler, verdict.clone());
            });
        }
        self.verdicts[host.0] = Some(verdict);
        bad
    }

    /// No host can be used, and why, once that is sure.
    pub fn is_dead(&self) -> Option<String> {
        let all_out = (0..self.hosts.len()).all(|id| self.placement.is_out(HostId(id)));
        if !all_out || !self.unknown().is_empty() {
            return None;
        }
        let said =
            self.hosts.iter().zip(&self.verdicts).enumerate().map(|(id, known)| match known {
                (host, Some(verdict)) if !verdict.is_good() => {
                    format!("{}: {}", host.name, verdict.words())
                }
                (host, _) => match self.faults.get(&HostId(id)) {
                    Some(fault) if fault.starts_with(&*host.name) => fault.clone(),
                    Some(fault) => format!("{}: {fault}", host.name),
                    None => format!("{}: it failed again and again", host.name),
                },
            });
        Some(said.collect::<Vec<_>>().join("; "))
    }

    /// Lets the next links know that the farm is dead.
    pub fn remember_dead(&self, reason: &str) {
        if let Some(memory) = &self.memory {
            let note = |all: &mut crate::hosts::memory::Remembered| {
                all.note_dead_farm(unix_now(), &self.farm, reason);
            };
            let _ = memory.update(unix_now(), note);
        }
    }

    /// Lets the next links know how fast the hosts are, if they did anything.
    pub fn remember_speeds(&self) {
        let speeds: Vec<(&str, f64)> = (self.hosts.iter().enumerate())
            .filter_map(|(id, h)| Some((&*h.name, self.placement.seconds_per_byte(HostId(id))?)))
            .collect();
        if let (Some(memory), false) = (&self.memory, speeds.is_empty()) {
            let _ = memory.update(unix_now(), |all| {
                all.note_farm_works(&self.farm);
                speeds.iter().for_each(|(name, speed)| all.note_speed(unix_now(), name, *speed));
            });
        }
    }

    /// Chooses among `ready`, the first first.
    pub fn next(&mut self, now: Instant, ready: &[Ready]) -> Next {
        let Fleet { verdicts, locks, placement, avoid, whole, .. } = self;
        let needs: Vec<JobNeeds<'_>> = ready.iter().map(|job| needs(job, avoid)).collect();
        let mut slots = None;
        let pick = placement.pick(now, &needs, |host, count| {
            if verdicts[host.0].is_none() {
                return false;
            }
            let Some(locks) = locks else { return true };
            match locks.take(now, host, count) {
                Ok(held) => {
                    slots = held;
                    slots.is_some()
                }
                // The locks are a courtesy between links; the hosts have limits of their own.
                Err(_) => true,
            }
        });
        match pick {
            Pick::Start { job, host } => {
                // Nothing is believed to stay on a host that keeps nothing.
                let stores = matches!(&verdicts[host.0], Some(Verdict::Good { stores: true }));
                let pieces = if stores { needs[job].pieces } else { &[] };
                let whole = whole.contains(&ready[job].job);
                let needs = JobNeeds { pieces, whole, ..needs[job] };
                let attempt = placement.started(now, host, &needs);
                let digests =
                    |pieces: &[Hash]| pieces.iter().map(|piece| (*piece).into()).collect();
                let without = Without {
                    held: digests(&attempt.held),
                    in_flight: digests(&attempt.in_flight),
                };
                let pulse = (self.hosts[host.0].kind == Kind::Tcp).then(|| Pulse::new(now));
                let running = Running { attempt, _slots: slots, pulse };
                self.running.insert(ready[job].job, running);
                Next::Start(job, host, without)
            }
            Pick::Wait(until) => Next::Wait(until),
            Pick::NoHost { job } => Next::NoHost(job),
        }
    }

    /// Nothing waits for a host any more.
    pub fn nothing_waits(&mut self) {
        if let Some(locks) = &mut self.locks {
            locks.leave_lines();
        }
    }

    /// Takes the end of a job's attempt, with the pieces that its host holds now, and those that it lacked; if it
    /// failed, `reason` says why.
    pub fn ended(
        &mut self,
        now: Instant,
        job: usize,
        (ending, reason): (Ending, &str),
        pieces: [&[Digest]; 2],
    ) {
        let Some(running) = self.running.remove(&job) else { return };
        let host = running.attempt.host;
        let [holds, missing] = pieces.map(|list| list.iter().map(|d| Hash::from_bytes(d.0)));
        let holds: HashSet<Hash> = holds.collect();
        let mut lacks: Vec<Hash> = missing.collect();
        if !lacks.is_empty() {
            self.whole.insert(job);
        }
        let unkept = running.attempt.send.iter().filter(|piece| !holds.contains(piece));
        lacks.extend(unkept.copied());
        if matches!(ending, Ending::Fault | Ending::Unfit) {
            self.avoid.entry(job).or_default().push(host);
            self.faults.insert(host, reason.to_owned());
        }
        self.placement.ended(now, running.attempt, ending);
        self.placement.holds(host, holds);
        self.placement.lacks(host, &lacks);
    }

    /// Jobs whose host is to be looked at now, and where; the next look of each is put off.
    pub fn looks_due(&mut self, now: Instant) -> Vec<(usize, (String, u16))> {
        let hosts = &self.hosts;
        let due = self.running.iter().filter(|(_, r)| r.pulse.is_some_and(|p| p.next() <= now));
        let address = |running: &Running| hosts[running.attempt.host.0].address.clone();
        due.filter_map(|(&job, running)| Some((job, address(running)?))).collect()
    }

    /// When the next host is to be looked at.
    pub fn next_look(&self) -> Option<Instant> {
        self.running.values().filter_map(|running| Some(running.pulse?.next())).min()
    }

    /// A look at a job's host is under way: the next one is not due before its result.
    pub fn looking(&mut self, now: Instant, job: usize) {
        if let Some(pulse) = self.running.get_mut(&job).and_then(|r| r.pulse.as_mut()) {
            pulse.put_off(now);
        }
    }

    /// Takes the result of a look; says whether the host is lost.
    pub fn looked(&mut self, now: Instant, job: usize, answers: bool) -> bool {
        let pulse = self.running.get_mut(&job).and_then(|running| running.pulse.as_mut());
        pulse.is_some_and(|pulse| pulse.looked(now, answers))
    }

    /// There is a host that may still get the job, and where it has not failed yet.
    pub fn has_another(&self, job: usize) -> bool {
        let avoid = self.avoid.get(&job).map_or(&[][..], Vec::as_slice);
        let mut all = (0..self.hosts.len()).map(HostId);
        all.any(|id| !self.placement.is_out(id) && !avoid.contains(&id))
    }

    /// A host of the list.
    pub fn host(&self, id: HostId) -> &Host {
        &self.hosts[id.0]
    }

    /// Jobs at once, on all hosts that are not out.
    pub fn slots(&self) -> usize {
        self.placement.slots()
    }
}

/// Lets links know what hosts said that were asked for the compiler with the digest `compiler`.
pub fn remember<'a>(
    cache: &Path,
    compiler: &str,
    verdicts: impl Iterator<Item = (&'a Host, &'a Verdict)> + Clone,
) {
    // It is a help and no more.
    let _ = Memory::new(cache).update(unix_now(), |all| {
        for (host, verdict) in verdicts.clone() {
            all.note_verdict(unix_now(), &host.name, compiler, verdict.clone());
        }
        if verdicts.clone().any(|(_, verdict)| verdict.is_good()) {
            let names = verdicts.map(|(host, _)| &*host.name);
            all.note_farm_works(&farm_key(names.chain([compiler])));
        }
    });
}

fn needs<'a>(ready: &'a Ready, avoid: &'a HashMap<usize, Vec<HostId>>) -> JobNeeds<'a> {
    JobNeeds {
        pieces: &ready.pieces,
        work: ready.work,
        slots: ready.slots,
        avoid: avoid.get(&ready.job).map_or(&[], Vec::as_slice),
        whole: false,
    }
}

/// How long a look at a port may take.
pub const LOOK_TIME: Duration = Duration::from_secs(3);
