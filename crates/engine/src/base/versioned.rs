//! A value that gives way to a later one while it is borrowed: an array's geometry, a member's limits.
//!
//! Whoever looks gets the latest, at the price of one test; whoever looked keeps what was seen for as long as the owner
//! lives. So nothing is let go of, which is right for what is replaced a few times in its life, and for nothing else.

use std::cell::OnceCell;

/// A value, and those that came after it.
#[derive(Debug)]
pub struct Growing<T> {
    value: T,
    later: OnceCell<Box<Self>>,
}

impl<T> Growing<T> {
    /// The first value.
    pub const fn new(value: T) -> Self {
        Self { value, later: OnceCell::new() }
    }

    /// The latest value.
    pub fn latest(&self) -> &T {
        let mut latest = self;
        while let Some(later) = latest.later.get() {
            latest = later;
        }
        &latest.value
    }

    /// Puts another value in place of the latest.
    pub fn grow(&self, value: T) {
        let mut value = Box::new(Self::new(value));
        let mut latest = self;
        while let Err(refused) = latest.later.set(value) {
            value = refused;
            latest = latest.later.get().expect("a later one was the reason");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_looks_gets_the_latest_and_who_looked_keeps_what_was_seen() {
        let growing = Growing::new(1);
        let first = growing.latest();
        growing.grow(2);
        let second = growing.latest();
        growing.grow(3);
        assert_eq!((first, second, growing.latest()), (&1, &2, &3));
    }
}
