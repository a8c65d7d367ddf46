//! Who else works on the array: how many shards hold a licence, and who needs them not to.
//!
//! A further shard ([`crate::shards`]) works on its stripes under a licence. Whoever does what its stripes must stand still
//! for (a sweep, healing, a change of members, of geometry or of the bitmap) is [`Licences::alone`] meanwhile: all
//! licences are given back, with nothing under way. Asked for while no lock is held: a shard that gives back its licence
//! ends its writes first, and these may wait for marks and superblocks. Of an array that has no further shards nobody waits.

use crate::base::notify::Signal;
use std::cell::Cell;

#[derive(Default)]
pub(crate) struct Licences {
    /// Shards that hold one, or have not said yet that they do not any more.
    held: Cell<u16>,
    /// How many want nobody but the first shard at work.
    alone: Cell<usize>,
    /// What they were given for has changed.
    stale: Cell<bool>,
    /// Raised when somebody wants to be alone or no longer does, and when licences are given, given back or become stale.
    pub(crate) changed: Signal,
}

/// Nobody but the first shard works on the array while this lives.
pub(crate) struct Alone<'a>(&'a Licences);

impl Licences {
    /// Waits until no licence is held; none is given until what this gives is dropped.
    pub(crate) async fn alone(&self) -> Alone<'_> {
        self.alone.set(self.alone.get() + 1);
        let alone = Alone(self);
        if self.held.get() > 0 {
            self.changed.raise();
        }
        loop {
            let seen = self.changed.seen();
            if self.held.get() == 0 {
                return alone;
            }
            self.changed.changed_since(seen).await;
        }
    }

    /// Licences say what is not so any more: they are given back and given anew.
    pub(crate) fn renew(&self) {
        self.stale.set(true);
        self.changed.raise();
    }

    pub(crate) fn are_held(&self) -> bool {
        self.held.get() > 0
    }

    /// Whether nobody minds that further shards work as they were told.
    pub(crate) fn are_welcome(&self) -> bool {
        self.alone.get() == 0 && !(self.are_held() && self.stale.get())
    }

    pub(crate) fn give(&self, shards: u16) {
        self.stale.set(false);
        self.held.set(shards);
        self.changed.raise();
    }

    /// One was given back.
    pub(crate) fn returned(&self) {
        self.held.set(self.held.get() - 1);
        self.changed.raise();
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.alone.set(self.0.alone.get() - 1);
        self.0.changed.raise();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn who_wants_to_be_alone_waits_for_every_licence_and_keeps_them_from_being_given() {
        let licences = Licences::default();
        licences.give(2);
        let mut alone = Box::pin(licences.alone());
        assert!((&mut alone).now_or_never().is_none());
        assert!(!licences.are_welcome());
        licences.returned();
        assert!((&mut alone).now_or_never().is_none());
        licences.returned();
        let alone = alone.now_or_never().expect("nobody holds one");
        assert!(!licences.are_welcome());
        drop(alone);
        assert!(licences.are_welcome());
    }
}
