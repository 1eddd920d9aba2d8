//! The slots of hosts, counted for all links of a user on this machine: none sends a host more jobs than
//! its LIMIT. A link that waits for a host is served before one that has just been. It does not know why a
//! host is wanted.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::list::Host;
use super::placement::HostId;
use crate::process::pool::{Lock, Pool};

pub use crate::process::pool::LOOK;

/// A link that had to wait for a slot stays out of the line for so long: others look every [`LOOK`].
const COURTESY: Duration = LOOK.saturating_mul(3);

/// A link that waits asks every [`LOOK`]; one that has not asked for so long wants the host no more.
const PATIENCE: Duration = LOOK.saturating_mul(4);

/// Slots of a host; given back when dropped.
#[derive(Debug)]
pub struct Held {
    _locks: Vec<Lock>,
}

#[derive(Debug)]
struct Line {
    pool: Pool,
    /// We wait for this host, and nobody else may look for a slot of it.
    turn: Option<File>,
    /// When we last wanted a slot of it.
    asked: Option<Instant>,
    not_before: Option<Instant>,
}

/// The locks of a link's hosts.
#[derive(Debug)]
pub struct Locks {
    lines: Vec<Line>,
}

impl Locks {
    /// For `hosts`, in `folder`, on which all links of a user agree: [`crate::process::pool::own_folder`].
    ///
    /// # Errors
    /// The folder cannot be used.
    pub fn new(folder: &Path, hosts: &[Host]) -> anyhow::Result<Self> {
        let line = |host: &Host| {
            let hash = blake3::hash(host.name.as_bytes()).to_hex();
            let folder = folder.join("hosts").join(&hash[..16]);
            fs::create_dir_all(&folder).with_context(|| {
                format!("{}, for the locks of {}, cannot be made", folder.display(), host.name)
            })?;
            Ok(Line {
                pool: Pool::new(folder, host.slots as usize),
                turn: None,
                asked: None,
                not_before: None,
            })
        };
        Ok(Locks { lines: hosts.iter().map(line).collect::<anyhow::Result<_>>()? })
    }

    /// So many slots of a host, if they are free and no other link waits for them. If not, this link may now
    /// be the one that waits: ask again after [`LOOK`], or leave the lines. A host that is not asked for while
    /// others are is not waited for any more.
    ///
    /// # Errors
    /// The locks cannot be used any more.
    pub fn take(&mut self, now: Instant, host: HostId, slots: u32) -> io::Result<Option<Held>> {
        for line in &mut self.lines {
            line.turn.take_if(|_| line.asked.is_none_or(|asked| asked + PATIENCE < now));
        }
        let line = &mut self.lines[host.0];
        line.asked = Some(now);
        if line.not_before.is_some_and(|until| now < until) {
            return Ok(None);
        }
        let waited = line.turn.is_some();
        if !waited {
            line.turn = line.pool.turn()?;
        }
        if line.turn.is_none() {
            return Ok(None);
        }
        let locks = line.pool.free(0, slots as usize)?;
        if locks.len() < slots as usize {
            return Ok(None);
        }
        if waited {
            line.not_before = Some(now + COURTESY);
        }
        self.leave_lines();
        Ok(Some(Held { _locks: locks }))
    }

    /// Waits for no host any more. To be called when no job is left that wants one.
    pub fn leave_lines(&mut self) {
        self.lines.iter_mut().for_each(|line| line.turn = None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::thread;

    fn hosts(slots: &[u32]) -> Vec<Host> {
        let text: String =
            slots.iter().enumerate().map(|(n, slots)| format!("h{n}/{slots}\n")).collect();
        super::super::list::read(&text, "").unwrap().hosts
    }

    #[test]
    fn links_share_the_slots_of_a_host() {
        let folder = tempfile::tempdir().unwrap();
        let link = || Locks::new(folder.path(), &hosts(&[2, 1])).unwrap();
        let (mut a, mut b, now) = (link(), link(), Instant::now());
        let first = a.take(now, HostId(0), 1).unwrap();
        let second = b.take(now, HostId(0), 1).unwrap();
        assert!(first.is_some() && second.is_some());
        assert!(b.take(now, HostId(0), 1).unwrap().is_none());
        assert!(a.take(now, HostId(1), 1).unwrap().is_some(), "another host is free");
        drop(first);
        assert!(a.take(now, HostId(0), 1).unwrap().is_none(), "the other link waits for it");
        assert!(b.take(now, HostId(0), 1).unwrap().is_some());
    }

    #[test]
    fn a_link_that_leaves_the_lines_or_dies_stops_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let link = || Locks::new(folder.path(), &hosts(&[2])).unwrap();
        let (mut a, mut b, mut c, now) = (link(), link(), link(), Instant::now());
        let held = a.take(now, HostId(0), 1).unwrap();
        assert!(b.take(now, HostId(0), 2).unwrap().is_none());
        assert!(c.take(now, HostId(0), 1).unwrap().is_none());
        b.leave_lines();
        let other = c.take(now, HostId(0), 1).unwrap();
        assert!(held.is_some() && other.is_some());
        assert!(b.take(now, HostId(0), 1).unwrap().is_none());
        drop((b, other));
        assert!(a.take(now, HostId(0), 1).unwrap().is_some());
    }

    #[test]
    fn a_host_that_is_not_wanted_any_more_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let link = || Locks::new(folder.path(), &hosts(&[1, 1])).unwrap();
        let (mut a, mut b, mut c, now) = (link(), link(), link(), Instant::now());
        let held = [0, 1].map(|n| a.take(now, HostId(n), 1).unwrap().unwrap());
        assert!(b.take(now, HostId(0), 1).unwrap().is_none());
        let later = now + PATIENCE * 2;
        assert!(b.take(later, HostId(1), 1).unwrap().is_none());
        drop(held);
        assert!(c.take(later, HostId(1), 1).unwrap().is_none(), "b waits for it");
        assert!(c.take(later, HostId(0), 1).unwrap().is_some());
    }

    #[test]
    fn a_link_that_was_served_lets_the_next_one_step_into_the_line() {
        let folder = tempfile::tempdir().unwrap();
        let link = || Locks::new(folder.path(), &hosts(&[1])).unwrap();
        let (mut a, mut b, mut c, now) = (link(), link(), link(), Instant::now());
        let mut held = a.take(now, HostId(0), 1).unwrap();
        assert!(b.take(now, HostId(0), 1).unwrap().is_none());
        assert!(c.take(now, HostId(0), 1).unwrap().is_none(), "b is in the line");
        drop(held);
        held = b.take(now, HostId(0), 1).unwrap();
        assert!(held.is_some());
        assert!(b.take(now, HostId(0), 1).unwrap().is_none());
        assert!(c.take(now + LOOK, HostId(0), 1).unwrap().is_none());
        drop(held);
        assert!(b.take(now + LOOK, HostId(0), 1).unwrap().is_none(), "c is in the line");
        assert!(c.take(now + LOOK, HostId(0), 1).unwrap().is_some());
        assert!(b.take(now + COURTESY, HostId(0), 1).unwrap().is_some());
    }

    #[test]
    fn six_links_over_three_hosts_never_overbook_and_all_get_their_share() {
        const SLOTS: [u32; 3] = [1, 2, 3];
        let folder = tempfile::tempdir().unwrap();
        let running = Mutex::new([0u32; 3]);
        let link = || {
            let mut locks = Locks::new(folder.path(), &hosts(&SLOTS)).unwrap();
            for _ in 0..15 {
                let (at, held) = loop {
                    let mut take = |n| locks.take(Instant::now(), HostId(n), 1).unwrap();
                    if let Some(found) = (0..3).find_map(|n| Some((n, take(n)?))) {
                        break found;
                    }
                    thread::sleep(LOOK);
                };
                let mut count = running.lock().unwrap();
                count[at] += 1;
                assert!(count[at] <= SLOTS[at]);
                drop(count);
                thread::sleep(Duration::from_millis(10));
                running.lock().unwrap()[at] -= 1;
                drop(held);
            }
            Instant::now()
        };
        let begun = Instant::now();
        let ends: Vec<Instant> = thread::scope(|scope| {
            let links: Vec<_> = (0..6).map(|_| scope.spawn(link)).collect();
            links.into_iter().map(|link| link.join().unwrap()).collect()
        });
        let times = || ends.iter().map(|end| *end - begun);
        let (first, last) = (times().min().unwrap(), times().max().unwrap());
        assert!(last < first * 3, "{first:?} {last:?}");
    }
}
