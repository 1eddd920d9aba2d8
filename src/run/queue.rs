//! Waiting jobs, largest first, and the rows of running ones.

use std::collections::{BTreeSet, BinaryHeap};

use crate::adapter::Place;

/// Jobs that wait. The largest comes first, of equal ones that which LLD named first.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: BinaryHeap<(u64, std::cmp::Reverse<usize>)>,
}

impl Queue {
    pub(super) fn new(jobs: impl Iterator<Item = (u64, usize)>) -> Self {
        Queue { waiting: jobs.map(|(size, job)| (size, std::cmp::Reverse(job))).collect() }
    }

    pub(super) fn push(&mut self, size: u64, job: usize) {
        self.waiting.push((size, std::cmp::Reverse(job)));
    }

    /// A job that has been waiting long enough.
    pub(super) fn push_first(&mut self, job: usize) {
        self.push(u64::MAX, job);
    }

    pub(super) fn pop(&mut self) -> Option<usize> {
        self.waiting.pop().map(|(_, job)| job.0)
    }

    pub(super) fn retain(&mut self, keep: impl Fn(usize) -> bool) {
        self.waiting.retain(|(_, job)| keep(job.0));
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = usize> + '_ {
        self.waiting.drain().map(|(_, job)| job.0)
    }
}

/// Numbers for what runs at a place at the same time, lowest first: the rows of a timeline.
#[derive(Debug, Default)]
pub(super) struct Rows {
    farm: Numbers,
    local: Numbers,
}

#[derive(Debug, Default)]
struct Numbers {
    free: BTreeSet<usize>,
    made: usize,
}

impl Rows {
    fn of(&mut self, place: Place) -> &mut Numbers {
        match place {
            Place::Farm => &mut self.farm,
            Place::Local => &mut self.local,
        }
    }

    pub(super) fn take(&mut self, place: Place) -> usize {
        let numbers = self.of(place);
        numbers.free.pop_first().unwrap_or_else(|| {
            numbers.made += 1;
            numbers.made - 1
        })
    }

    pub(super) fn give_back(&mut self, place: Place, row: usize) {
        self.of(place).free.insert(row);
    }

    /// How many run at a place.
    pub(super) fn used(&self, place: Place) -> usize {
        let numbers = match place {
            Place::Farm => &self.farm,
            Place::Local => &self.local,
        };
        numbers.made - numbers.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_job_comes_first() {
        let mut queue = Queue::new([(5, 0), (9, 1), (5, 2)].into_iter());
        queue.push(7, 3);
        queue.push_first(4);
        let order: Vec<usize> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order, [4, 1, 3, 0, 2]);
    }

    #[test]
    fn the_lowest_free_row_is_taken() {
        let mut rows = Rows::default();
        assert_eq!([rows.take(Place::Local), rows.take(Place::Local)], [0, 1]);
        rows.give_back(Place::Local, 0);
        assert_eq!((rows.used(Place::Local), rows.used(Place::Farm)), (1, 0));
        assert_eq!([rows.take(Place::Local), rows.take(Place::Local)], [0, 2]);
    }
}
