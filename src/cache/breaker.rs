//! When a cache is left alone for the rest of a link: after the first call that it did not answer in time, after a few
//! failures in a row, or when it only costs time. It knows no store and reads no clock.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::Trouble;

/// So many failures in a row are no chance.
const FAILURES: u32 = 3;
/// A miss that took longer is a slow one,
const SLOW: Duration = Duration::from_secs(1);
/// and so many of them in a row cost more than the cache can be worth.
const SLOW_CALLS: u32 = 8;

/// The breaker of one kind of calls; shared by threads.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    failures: u32,
    slow: u32,
    open: Option<Open>,
}

#[derive(Clone, Debug)]
struct Open {
    why: String,
    told: bool,
}

impl Breaker {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cache may be called.
    pub(super) fn is_closed(&self) -> bool {
        self.lock().open.is_none()
    }

    /// A call came to its end after `took`; it was of use or not.
    pub(super) fn answered(&self, took: Duration, of_use: bool) {
        let mut state = self.lock();
        state.failures = 0;
        state.slow = if of_use || took <= SLOW { 0 } else { state.slow + 1 };
        if state.slow >= SLOW_CALLS {
            state.trip(format!("{SLOW_CALLS} calls in a row took more than {} s", SLOW.as_secs()));
        }
    }

    /// A call did not.
    pub(super) fn failed(&self, trouble: &Trouble) {
        let mut state = self.lock();
        match trouble {
            Trouble::Cancelled => {}
            Trouble::TimedOut => state.trip(trouble.to_string()),
            Trouble::Failed(_) => {
                state.failures += 1;
                if state.failures >= FAILURES {
                    state.trip(trouble.to_string());
                }
            }
        }
    }

    /// Calls are of no use any more.
    pub(super) fn trip(&self, why: &str) {
        self.lock().trip(why.to_owned());
    }

    /// Why it is left alone, the first time that this is asked after it came to that.
    pub(super) fn news(&self) -> Option<String> {
        let mut state = self.lock();
        let open = state.open.as_mut().filter(|open| !open.told)?;
        open.told = true;
        Some(open.why.clone())
    }
}

impl State {
    fn trip(&mut self, why: String) {
        self.open.get_or_insert(Open { why, told: false });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICK: Duration = Duration::from_millis(5);

    fn fail(breaker: &Breaker) {
        breaker.failed(&Trouble::Failed("no space".into()));
    }

    #[test]
    fn the_first_call_that_is_not_answered_in_time_is_the_last() {
        let breaker = Breaker::default();
        breaker.failed(&Trouble::TimedOut);
        assert!(!breaker.is_closed());
        assert_eq!(breaker.news().unwrap(), "it did not answer in time");
    }

    #[test]
    fn failures_count_in_a_row_only() {
        let breaker = Breaker::default();
        for _ in 0..10 {
            (1..FAILURES).for_each(|_| fail(&breaker));
            breaker.answered(QUICK, false);
        }
        assert!(breaker.is_closed() && breaker.news().is_none());
        (0..FAILURES).for_each(|_| fail(&breaker));
        assert!(!breaker.is_closed());
        assert_eq!(breaker.news().unwrap(), "no space");
    }

    #[test]
    fn slow_misses_add_up_and_slow_hits_do_not() {
        let (breaker, slow) = (Breaker::default(), SLOW * 2);
        for of_use in [true, false] {
            (1..SLOW_CALLS).for_each(|_| breaker.answered(slow, false));
            breaker.answered(slow, of_use);
            assert_eq!(breaker.is_closed(), of_use);
        }
        assert!(breaker.news().unwrap().contains("took more than 1 s"));
    }

    #[test]
    fn its_reason_is_told_once() {
        let breaker = Breaker::default();
        breaker.trip("one");
        breaker.trip("two");
        assert_eq!((breaker.news().as_deref(), breaker.news()), (Some("one"), None));
    }

    #[test]
    fn an_end_of_the_link_is_not_held_against_it() {
        let breaker = Breaker::default();
        (0..10).for_each(|_| breaker.failed(&Trouble::Cancelled));
        assert!(breaker.is_closed());
    }
}
