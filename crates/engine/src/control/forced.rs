//! Chooses which stale members `--force` takes when an array has too few current ones, and says what that
//! puts at risk.
//!
//! The rule is mdadm's (`force_array` in its `Assemble.c`): the freshest of the stale members first, together
//! with all others of the same events, until the array can start. Two points are stricter than in mdadm. A
//! member whose own superblock does not call the current members active was used apart from them, and is
//! never taken. And where the level keeps copies, no member is taken that the array can do without: its old
//! copies would stand beside current ones.
//!
//! It is pure, and never reads or writes a member. [`crate::metadata::Metadata`] writes the superblocks as
//! soon as the array is used.

use crate::control::difference::difference;
use format::geometry::{Geometry, Level};
use format::superblock::{DeviceRole, Superblock};
use format::units::Slot;
use serde::Serialize;
use std::fmt;

/// A stale member that `--force` takes, and how far it is behind the array's freshest superblock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Forced {
    /// Its name: a path.
    pub name: String,
    /// Its slot when it fell behind; it takes the same slot again.
    pub slot: u16,
    /// Events that it lacks.
    pub events_behind: u64,
    /// Seconds from the last update of its superblock to that of the freshest, by the clocks of the machines that wrote them.
    pub seconds_behind: u64,
}

impl fmt::Display for Forced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, slot, events_behind: events, seconds_behind } = self;
        let plural = if *events == 1 { "" } else { "s" };
        write!(f, "{name} (slot {slot}), {events} event{plural} and {} behind", duration(*seconds_behind))
    }
}

/// `3 d 4 h`, `2 h 5 min`, `40 s`: the two largest units.
pub(crate) fn duration(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min {} s", seconds % 60),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

/// An offered member, with its seat by the election.
pub(crate) struct ForceCandidate<'a> {
    pub(crate) name: &'a str,
    pub(crate) superblock: &'a Superblock,
    /// Its role in the array; `None` when it is left out.
    pub(crate) seat: Option<DeviceRole>,
}

impl ForceCandidate<'_> {
    fn slot(&self) -> Option<Slot> {
        match self.seat {
            Some(DeviceRole::Active(slot)) => Some(slot),
            _ => None,
        }
    }

    /// Whether all its data is current.
    fn is_current(&self) -> bool {
        self.slot().is_some() && is_complete(self.superblock)
    }
}

fn is_complete(superblock: &Superblock) -> bool {
    superblock.recovery_offset.is_none() && !superblock.recovery_from_bitmap
}

/// What `--force` can do for an array.
#[derive(Debug, Default)]
pub(crate) struct Rescue {
    /// The members to take, by index, each with its slot. Empty when the array needs none, or when they would
    /// not be enough.
    pub(crate) taken: Vec<(usize, Slot)>,
    /// The same, for the status.
    pub(crate) forced: Vec<Forced>,
    /// Members that would help and are not taken, by index, each with the reason.
    pub(crate) refused: Vec<(usize, String)>,
}

/// Finds the members that `--force` would take for an array of which `best` is the freshest superblock.
pub(crate) fn rescue(members: &[ForceCandidate<'_>], best: &Superblock) -> Rescue {
    let mut rescue = Rescue::default();
    let current: Vec<Slot> =
        members.iter().filter(|member| member.is_current()).filter_map(ForceCandidate::slot).collect();
    let survives = |present: &[Slot]| survives_with(best, present);
    if survives(&current) {
        return rescue;
    }
    let mut stale = Vec::new();
    for (index, member) in members.iter().enumerate().filter(|(_, member)| member.seat.is_none()) {
        let own = member.superblock;
        let DeviceRole::Active(slot) = own.own_role() else { continue };
        if slot.index() >= best.raid_disks.into() || members.iter().any(|other| other.slot() == Some(slot)) {
            continue;
        }
        match objection(own, best, members) {
            None => stale.push(Stale { index, slot, events: own.events }),
            Some(reason) => rescue.refused.push((index, reason)),
        }
    }
    let keeps_copies = !best.level.has_parity();
    for Stale { index, slot, events } in choose(&stale, &current, keeps_copies, &survives) {
        rescue.taken.push((index, slot));
        rescue.forced.push(Forced {
            name: members[index].name.to_owned(),
            slot: slot.0,
            events_behind: best.events.saturating_sub(events),
            seconds_behind: best.updated.seconds.saturating_sub(members[index].superblock.updated.seconds),
        });
    }
    rescue
}

/// Whether an array can start with current members in these slots alone.
fn survives_with(best: &Superblock, present: &[Slot]) -> bool {
    if !best.level.is_redundant() {
        return (0..best.raid_disks).all(|slot| present.contains(&Slot(slot)));
    }
    // A wrong shape is refused by name later.
    Geometry::new(&best.shape(&[])).is_ok_and(|geometry| geometry.survives(&|slot| !present.contains(&slot)))
}

/// Why a stale member with an empty slot is not taken.
fn objection(own: &Superblock, best: &Superblock, members: &[ForceCandidate<'_>]) -> Option<String> {
    let is_known =
        |other: &&ForceCandidate<'_>| matches!(own.role(other.superblock.device_number), DeviceRole::Active(_));
    let number_of = |other: &&ForceCandidate<'_>| other.superblock.device_number == own.device_number;
    if let Some(stranger) = members.iter().filter(|other| other.is_current()).find(|other| !is_known(other)) {
        let name = stranger.name;
        return Some(format!(
            "its own superblock does not call {name} active: the two were used apart, or {name} joined after it had left"
        ));
    }
    if !is_complete(own) || own.replacement {
        return Some("it was itself not current when it left".to_owned());
    }
    if own.reshape.is_some() {
        return Some("it left while the array was reshaped".to_owned());
    }
    let heir = members.iter().filter(number_of).find(|other| other.superblock.events > own.events);
    if heir.is_some()
        || matches!(best.role(own.device_number), DeviceRole::Active(slot) if own.own_role() != DeviceRole::Active(slot))
    {
        return Some("its device number belongs to another member since".to_owned());
    }
    difference(own, best).map(|field| format!("its {field} is not the array's"))
}

/// A member that fell behind and may be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stale {
    index: usize,
    slot: Slot,
    events: u64,
}

/// Chooses the members to take beside those in the slots `current`: the freshest, with all of the same
/// events, until the array survives. Takes none where the array never survives, or where two of the same
/// events claim one slot: no superblock decides between these.
fn choose(stale: &[Stale], current: &[Slot], keeps_copies: bool, survives: &dyn Fn(&[Slot]) -> bool) -> Vec<Stale> {
    let mut rest = stale.to_vec();
    let mut present = current.to_vec();
    let mut taken: Vec<Stale> = Vec::new();
    while !survives(&present) {
        let Some(events) = rest.iter().map(|member| member.events).max() else { return Vec::new() };
        let (vintage, older): (Vec<_>, Vec<_>) = rest.into_iter().partition(|member| member.events == events);
        for member in vintage {
            if present.contains(&member.slot) {
                return Vec::new();
            }
            present.push(member.slot);
            taken.push(member);
        }
        rest = older.into_iter().filter(|member| !present.contains(&member.slot)).collect();
    }
    // With parity, a second member of the same events is better than what a half-written stripe would give in
    // its place.
    if keeps_copies {
        for index in (0..taken.len()).rev() {
            let without = taken.iter().enumerate().filter(|(other, _)| *other != index).map(|(_, member)| member.slot);
            if survives(&current.iter().copied().chain(without).collect::<Vec<_>>()) {
                taken.remove(index);
            }
        }
    }
    taken
}

/// The warning about what was forced: `members` were taken, and the slots `missing` still have no current
/// member.
pub(crate) fn warning(members: &[Forced], level: Level, missing: &[Slot]) -> String {
    let held = match missing {
        [] => String::new(),
        _ if !level.has_parity() => String::new(),
        _ => format!(", and what {} held may be wrong there", slots_text(missing)),
    };
    format!("taken by --force: {}: what was written in that time may be lost{held}", list(members))
}

/// Names what `--force` would take, for a refusal without it.
pub(crate) fn offer(members: &[Forced]) -> Option<String> {
    let first = members.first()?;
    let others = members.len() > 1;
    let time = if others || first.seconds_behind > 0 { "in that time" } else { "since" };
    Some(format!("--force takes {}: what was written {time} may be lost or wrong", list(members)))
}

fn list(members: &[Forced]) -> String {
    members.iter().map(Forced::to_string).collect::<Vec<_>>().join("; ")
}

/// `slot 3`, `slots 2, 3`
pub(crate) fn slots_text(slots: &[Slot]) -> String {
    let numbers: Vec<String> = slots.iter().map(Slot::to_string).collect();
    format!("slot{} {}", if slots.len() == 1 { "" } else { "s" }, numbers.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a level survives: a number of slots without a current member or, for RAID-10, one of each pair of
    /// near copies.
    #[derive(Clone, Copy)]
    enum Bears {
        Lost(usize),
        OneOfEachPair,
    }

    /// The indices of the members taken, of stale members given as (slot, events).
    fn taken(bears: Bears, slots: u16, current: &[u16], stale: &[(u16, u64)]) -> Vec<usize> {
        let current: Vec<Slot> = current.iter().map(|&slot| Slot(slot)).collect();
        let stale: Vec<Stale> = stale
            .iter()
            .enumerate()
            .map(|(index, &(slot, events))| Stale { index, slot: Slot(slot), events })
            .collect();
        let survives = |present: &[Slot]| {
            let is_lost = |slot: u16| !present.contains(&Slot(slot));
            match bears {
                Bears::Lost(most) => (0..slots).filter(|&slot| is_lost(slot)).count() <= most,
                Bears::OneOfEachPair => (0..slots).step_by(2).all(|slot| !is_lost(slot) || !is_lost(slot + 1)),
            }
        };
        let keeps_copies = matches!(bears, Bears::OneOfEachPair | Bears::Lost(0));
        choose(&stale, &current, keeps_copies, &survives).iter().map(|member| member.index).collect()
    }

    #[test]
    fn the_fewest_and_freshest_members_that_make_the_array_start_are_taken() {
        use Bears::{Lost, OneOfEachPair};
        for (what, bears, slots, current, stale, expected) in [
            ("RAID-5: the later of two", Lost(1), 4, &[0, 1][..], &[(3, 3), (2, 24)][..], &[1][..]),
            ("RAID-5: none where the array starts without", Lost(1), 4, &[0, 1, 2], &[(3, 3)], &[]),
            ("RAID-5: none where all of them are too few", Lost(1), 5, &[0, 1], &[(2, 9)], &[]),
            ("RAID-5: no two that fill one slot", Lost(1), 5, &[0, 1], &[(2, 9), (2, 5), (3, 1)], &[0, 2]),
            ("RAID-5: none where two claim one slot alike", Lost(1), 4, &[0, 1], &[(2, 9), (2, 9), (3, 1)], &[]),
            ("RAID-5: a fresher one than two alike", Lost(1), 4, &[0, 1], &[(2, 9), (2, 9), (3, 10)], &[2]),
            ("RAID-6: all of the same events", Lost(2), 5, &[0, 1], &[(2, 9), (3, 9), (4, 5)], &[0, 1]),
            ("RAID-6: the freshest alone", Lost(2), 5, &[0, 1], &[(2, 8), (3, 9), (4, 5)], &[1]),
            ("RAID-0: all that lack, of whatever events", Lost(0), 3, &[1], &[(0, 4), (2, 7)], &[1, 0]),
            ("RAID-10: one of a pair", OneOfEachPair, 4, &[2, 3], &[(0, 5), (1, 5)], &[0]),
            ("RAID-10: none beside its current copy", OneOfEachPair, 4, &[2], &[(3, 9), (0, 5)], &[1]),
        ] {
            assert_eq!(taken(bears, slots, current, stale), expected, "{what}");
        }
    }

    #[test]
    fn how_far_behind_a_member_is_reads_as_a_duration() {
        for (seconds, text) in [
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 min 0 s"),
            (7_500, "2 h 5 min"),
            (90_000, "1 d 1 h"),
            (8_640_000, "100 d 0 h"),
        ] {
            let member = Forced { name: "c".to_owned(), slot: 2, events_behind: 1, seconds_behind: seconds };
            assert_eq!(member.to_string(), format!("c (slot 2), 1 event and {text} behind"));
        }
    }
}
