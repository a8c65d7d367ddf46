//! The replacement of a member by its *successor*: which device it is, and how far it has taken over.
//!
//! It holds both sides: of a member, its successor and the takeover; of a successor, the error that makes it
//! incomplete. Does no I/O. [`crate::device::transfer`] repeats every change of the member on the successor, and
//! [`crate::control::replace`] decides when a replacement begins or is complete.

use crate::seam::member::MemberError;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// How far the successor of a member has taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Takeover {
    #[default]
    Not,
    /// The successor is taking over: superblocks no longer list this member, but it still receives writes.
    UnderWay,
    /// The successor has failed, and its superblock may already say that it took over. This member's superblock is
    /// written last, so that it is never the only one to contradict the successor's.
    Contradicted,
}

/// The replacement of one device `D`, and what it is as a successor itself.
pub(crate) struct Replacement<D> {
    /// The device that is to replace this one; it receives every write too.
    successor: RefCell<Option<Rc<D>>>,
    takeover: Cell<Takeover>,
    /// Of a successor: the error that makes it incomplete.
    failure: RefCell<Option<MemberError>>,
}

impl<D> Default for Replacement<D> {
    fn default() -> Self {
        Self { successor: RefCell::default(), takeover: Cell::default(), failure: RefCell::default() }
    }
}

impl<D> Replacement<D> {
    /// `successor` is to replace this member.
    pub(crate) fn begin(&self, successor: Rc<D>) {
        self.successor.replace(Some(successor));
    }

    pub(super) fn has_successor(&self) -> bool {
        self.successor.borrow().is_some()
    }

    pub(super) fn successor(&self) -> Option<Rc<D>> {
        self.successor.borrow().clone()
    }

    /// The successor is about to say that it has taken over.
    pub(crate) fn begin_takeover(&self) {
        self.takeover.set(Takeover::UnderWay);
    }

    /// All superblocks were written since; false when the takeover has failed meanwhile.
    pub(crate) fn end_takeover(&self) -> bool {
        let is_under_way = self.is_leaving();
        if is_under_way {
            self.takeover.set(Takeover::Not);
        }
        is_under_way
    }

    /// Whether superblocks no longer list this member.
    pub(crate) fn is_leaving(&self) -> bool {
        self.takeover.get() == Takeover::UnderWay
    }

    /// The member leaves its slot to the successor, as far as that one is.
    pub(crate) fn take_successor(&self) -> Option<Rc<D>> {
        self.end_takeover();
        self.successor.take()
    }

    /// The successor has failed, and the member keeps its slot.
    pub(crate) fn drop_successor(&self) {
        self.successor.take();
        self.takeover.set(if self.is_leaving() { Takeover::Contradicted } else { Takeover::Not });
    }

    /// Whether this member's superblock must be written after all others.
    pub(crate) fn is_contradicted(&self) -> bool {
        self.takeover.get() == Takeover::Contradicted
    }

    /// This member's superblock was written after all others.
    pub(super) fn settle(&self) {
        if self.is_contradicted() {
            self.takeover.set(Takeover::Not);
        }
    }

    /// A write to this successor has failed. The first error counts.
    pub(super) fn fail(&self, error: MemberError) {
        self.failure.borrow_mut().get_or_insert(error);
    }

    /// Whether a write to this successor has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.failure.borrow().is_some()
    }

    pub(crate) fn take_failure(&self) -> Option<MemberError> {
        self.failure.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_contradicted_only_if_its_successor_fails_while_it_takes_over() {
        let replacement = Replacement::default();
        replacement.begin(Rc::new(()));
        replacement.drop_successor();
        assert!(!replacement.is_contradicted() && !replacement.has_successor());
        replacement.begin(Rc::new(()));
        replacement.begin_takeover();
        replacement.settle();
        assert!(replacement.is_leaving(), "a round that does not write this member changes nothing");
        replacement.drop_successor();
        assert!(replacement.is_contradicted() && !replacement.end_takeover());
        replacement.settle();
        assert!(!replacement.is_contradicted());
        replacement.begin(Rc::new(()));
        replacement.begin_takeover();
        assert!(replacement.take_successor().is_some() && !replacement.is_leaving());
    }
}
