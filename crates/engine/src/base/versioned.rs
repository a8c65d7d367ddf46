//! A value that can be replaced while it is borrowed: an array's geometry, a member's limits.
//!
//! A reader gets the latest value at the price of one test. Earlier references stay valid for as long as the owner
//! lives, so no version is ever freed. That fits values that are replaced a few times in their lives, and no others.

use std::cell::OnceCell;

/// A value and its later versions.
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

    /// Adds `value` as the latest.
    pub fn replace(&self, value: T) {
        let mut value = Box::new(Self::new(value));
        let mut latest = self;
        while let Err(refused) = latest.later.set(value) {
            value = refused;
            latest = latest.later.get().expect("`set` fails only where a later version exists");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_gets_the_latest_value_and_earlier_references_stay_valid() {
        let growing = Growing::new(1);
        let first = growing.latest();
        growing.replace(2);
        let second = growing.latest();
        growing.replace(3);
        assert_eq!((first, second, growing.latest()), (&1, &2, &3));
    }
}
