//! Changes of membership, reported as they happen. Each is a line of the log, and an entry in the report of a running
//! scrub. So a scrub's result tells what happened to the members since the scrub began.
//!
//! A report influences nothing. Nothing here waits or does I/O.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The log target of lines about members, which the program prints from level INFO on.
pub const LOG_TARGET: &str = "mdspace::members";

/// What happened to a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// The member is faulty, by an error or by request, and has been ejected.
    Left,
    /// The device was added, as a spare at first.
    Added,
    /// The member has a slot, and its recovery is due.
    Recovering,
    /// The member is in sync.
    Recovered,
    /// The member is to replace the one in its slot.
    Replacing,
    /// The member has replaced the one in its slot.
    Replaced,
    /// The member was removed from the array.
    Removed,
    /// The member did not answer in time. The array does not read from it until it answers again.
    Silent,
    /// The member answers again.
    Answers,
}

/// One change of membership.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberChange {
    /// The member's name.
    pub member: String,
    /// The slot that the member has, had, or is to get.
    pub slot: Option<u16>,
    /// What happened.
    pub change: ChangeKind,
    /// The reason, where it is known.
    pub reason: Option<String>,
}

impl fmt::Display for MemberChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { member, slot, change, reason } = self;
        let did = match change {
            ChangeKind::Left => "left the array",
            ChangeKind::Added => "was added",
            ChangeKind::Recovering => "has a slot, and is to be recovered",
            ChangeKind::Recovered => "is recovered, and in sync",
            ChangeKind::Replacing => "is to replace the member in its slot",
            ChangeKind::Replaced => "has taken the place of the member in its slot",
            ChangeKind::Removed => "was removed",
            ChangeKind::Silent => "did not answer in time, and is not read until it answers",
            ChangeKind::Answers => "answers again",
        };
        write!(f, "{}", member.escape_debug())?;
        slot.map_or(Ok(()), |slot| write!(f, " (slot {slot})"))?;
        write!(f, " {did}")?;
        reason.as_ref().map_or(Ok(()), |reason| write!(f, ": {reason}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_a_sentence_without_a_control_character() {
        let (member, reason) = ("b\u{1b}[31m".to_owned(), Some("an error".to_owned()));
        let change = MemberChange { member, slot: Some(1), change: ChangeKind::Left, reason };
        assert_eq!(change.to_string(), "b\\u{1b}[31m (slot 1) left the array: an error");
        let change = MemberChange { slot: None, reason: None, change: ChangeKind::Added, member: "c".to_owned() };
        assert_eq!(change.to_string(), "c was added");
    }
}
