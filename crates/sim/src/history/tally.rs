//! Counts of what happened in histories, which show that they reach what they should.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;

/// Counts by name.
#[derive(Debug, Default, Clone)]
pub struct Tally(RefCell<BTreeMap<&'static str, u64>>);

impl Tally {
    /// Counts `what` once.
    pub fn count(&self, what: &'static str) {
        *self.0.borrow_mut().entry(what).or_default() += 1;
    }

    /// Adds the counts of another tally.
    pub fn add(&self, other: &Tally) {
        for (what, count) in other.0.borrow().iter() {
            *self.0.borrow_mut().entry(what).or_default() += count;
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts: Vec<String> = self.0.borrow().iter().map(|(what, count)| format!("{count} {what}")).collect();
        f.write_str(&counts.join(", "))
    }
}
