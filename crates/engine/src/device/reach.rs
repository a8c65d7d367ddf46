//! Whether a member answers: one value instead of two flags.
//!
//! It decides nothing: `control` probes silent members, and ejects those that stay silent.
//!
//! A member can be silent and have failed reads as if it were away, at the same time: a read that times out is both.
//! [`Reach::Silent`] then covers [`Reach::Away`], and no reader of either could tell the difference. A silent member
//! is treated as away everywhere, and only an answer to a probe ends the silence, which ends both.

use std::cell::Cell;

/// Whether a member answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Reach {
    #[default]
    Answering,
    /// The last read failed, but not by a medium error: the member may come back with all its data.
    Away,
    /// An operation has timed out, and the member has not answered a probe since. Its data may come back too, but it is
    /// not read.
    Silent,
}

/// Whether one member answers.
#[derive(Default)]
pub(crate) struct ReachCell(Cell<Reach>);

impl ReachCell {
    pub(crate) fn get(&self) -> Reach {
        self.0.get()
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.0.get() == Reach::Silent
    }

    /// An operation has timed out; true when the member was not silent before.
    pub(crate) fn fall_silent(&self) -> bool {
        self.0.replace(Reach::Silent) != Reach::Silent
    }

    /// A read has failed; `is_away` tells whether it was no medium error. A silent member stays silent.
    pub(crate) fn read_failed(&self, is_away: bool) {
        if !self.is_silent() {
            self.0.set(if is_away { Reach::Away } else { Reach::Answering });
        }
    }

    /// A probe was answered, by data or by a medium error. Returns the value before.
    pub(crate) fn answered(&self) -> Reach {
        self.0.replace(Reach::Answering)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_answer_to_a_probe_ends_a_silence() {
        let reach = ReachCell::default();
        reach.read_failed(true);
        assert_eq!(reach.get(), Reach::Away);
        reach.read_failed(false);
        assert_eq!(reach.get(), Reach::Answering);
        assert!(reach.fall_silent() && !reach.fall_silent());
        reach.read_failed(false);
        reach.read_failed(true);
        assert!(reach.is_silent());
        assert_eq!((reach.answered(), reach.get()), (Reach::Silent, Reach::Answering));
    }
}
