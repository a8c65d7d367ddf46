//! The decaying count of a member's read errors: it halves with every hour without an error.
//!
//! Decides nothing: the caller compares the count with the limit.
//!
//! Facts: `check_decay_read_errors` in `drivers/md/raid1-10.c`.

use crate::seam::clock::Moment;
use std::cell::Cell;
use std::time::Duration;

/// The decaying count of one member's read errors.
#[derive(Default)]
pub(crate) struct ReadErrors {
    count: Cell<u32>,
    last: Cell<Option<Moment>>,
}

impl ReadErrors {
    /// Adds an error and returns the count.
    pub(crate) fn add(&self, now: Moment) -> u32 {
        const HOUR: Duration = Duration::from_secs(3600);
        let hours = self.last.replace(Some(now)).map_or(0, |last| now.since(last).as_secs() / HOUR.as_secs());
        let left = u32::try_from(hours).ok().and_then(|hours| self.count.get().checked_shr(hours)).unwrap_or(0);
        self.count.set(left.saturating_add(1));
        self.count.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_hour_without_an_error_halves_their_number() {
        let errors = ReadErrors::default();
        let hours = |hours: u64| Moment { nanos: hours * 3_600_000_000_000 };
        for (at, expected) in [(0, 1), (0, 2), (0, 3), (0, 4), (1, 3), (1, 4), (3, 2), (100, 1)] {
            assert_eq!(errors.add(hours(at)), expected, "at {at} h");
        }
    }
}
