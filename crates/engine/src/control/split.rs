//! Detects members that were used apart: each half of an array went on without the other, and each may hold
//! what the other lacks.
//!
//! It is pure: superblocks in, a verdict out. What a superblock says of a member that was absent at the start
//! of an array depends on the writer. Linux calls it a spare (0xffff; in 0.90 faulty and removed), this
//! engine calls it faulty (0xfffe). So neither word tells a half from a spare without data. The absent
//! member's own superblock does. A member that merely stayed away still calls the others active; a member
//! that was used without them does not. mdadm uses the same rule.
//!
//! The reference is the *anchor*: the freshest member that is active and current by its own superblock. A
//! spare, or a member that just took a slot, may be ahead of all others for a moment, and unknown to them.
//!
//! A member that was used apart is never seated, least of all as a spare: a recovery would overwrite its
//! data. The distance of its events from the array's makes no difference, as each half counts its own.
//!
//! In 0.90 a recovered member gets another number in the round that calls it active. After a power loss in
//! md's round the others may seem to be used apart, to mdadm as well. They are left out, and their data stays.
//! This engine writes that member last.
//!
//! Facts: mdadm's `Assemble.c` ("ignoring %s as it reports %s as failed"), `super_1_sync` and `super_90_sync`
//! in `md.c`.

use crate::seam::error::Refusal;
use format::geometry::Level;
use format::superblock::{DeviceRole, Superblock};

/// A member that was used without the anchor.
pub(crate) struct Apart<'a> {
    own: &'a Superblock,
    anchor_name: &'a str,
    anchor: &'a Superblock,
}

/// A role in words.
pub(crate) fn in_words(role: DeviceRole) -> String {
    match role {
        DeviceRole::Active(slot) => format!("the member in slot {slot}"),
        DeviceRole::Spare => "a spare or absent".to_owned(),
        DeviceRole::Faulty => "faulty or absent".to_owned(),
        DeviceRole::Journal => "a journal".to_owned(),
    }
}

/// Whether a superblock calls its own member active and current. All others learned in an earlier round that
/// the member is active.
fn is_settled(superblock: &Superblock) -> bool {
    let is_underway = superblock.replacement || superblock.recovery_from_bitmap || superblock.recovery_offset.is_some();
    matches!(superblock.own_role(), DeviceRole::Active(_)) && !is_underway
}

/// The member that others are compared with: the freshest or, if that is not settled, the freshest settled
/// one that it knows. A replacement is never the freshest, but a round tells it first; one that is as fresh decides which
/// members it knows. The freshest may be a member that was told that it is current, and then failed.
/// `None` when there is no anchor; then no split can be detected.
pub(crate) fn anchor<'a>(superblocks: impl Iterator<Item = &'a Superblock> + Clone, freshest: usize) -> Option<usize> {
    let best = superblocks.clone().nth(freshest)?;
    let is_ahead = |own: &&Superblock| own.replacement && own.events >= best.events;
    let ahead = superblocks.clone().filter(is_ahead).max_by_key(|own| own.events);
    let fallback = (is_settled(best) || mutant!("told-first-is-apart")).then_some(freshest);
    if ahead.is_none() && fallback.is_some() {
        return fallback;
    }
    let best = ahead.unwrap_or(best);
    let is_known = |own: &Superblock| {
        is_settled(own) && best.events <= own.events.saturating_add(1) && best.role(own.device_number) == own.own_role()
    };
    let known = superblocks.enumerate().filter(|(_, own)| is_known(own));
    known.max_by_key(|(index, own)| (own.events, std::cmp::Reverse(*index))).map(|(index, _)| index).or(fallback)
}

impl<'a> Apart<'a> {
    /// Whether the member of `own` was used without the anchor. A member that calls itself a spare holds
    /// nothing that could be lost.
    pub(crate) fn find(own: &'a Superblock, anchor_name: &'a str, anchor: &'a Superblock) -> Option<Self> {
        let is_active = matches!(own.own_role(), DeviceRole::Active(_));
        (is_active && !knows(own, anchor) && !mutant!("half-is-a-spare")).then_some(Self { own, anchor_name, anchor })
    }

    /// Why the member is left out, and what the user can do.
    ///
    /// # Errors
    /// When neither half is later: then the array is refused.
    pub(crate) fn reason(&self, name: &str) -> Result<String, Refusal> {
        let Self { own, anchor_name, anchor } = self;
        if own.events >= anchor.events {
            let reason = format!(
                "this member and {anchor_name} were used apart: each was written to without the other, and by their \
                 events, {} and {}, neither is the later",
                own.events, anchor.events
            );
            return Err(Refusal::new(reason).of(name).field("superblock.dev_roles").advice(
                "choose one half, and give only its members; each alone can be read, and nothing of the other is lost",
            ));
        }
        let called = in_words(own.role(anchor.device_number));
        Ok(format!(
            "it was used apart from {anchor_name}, which it calls {called}. Each may hold what the other lacks, so this \
             one is not touched. Its data can be read by giving its half alone; `mdspace add --force` gives that up, and \
             makes a new member of it"
        ))
    }
}

/// Whether `own` gives the member of `other` the role that `other` gives itself.
fn knows(own: &Superblock, other: &Superblock) -> bool {
    own.role(other.device_number) == other.own_role() || has_moved(own, other)
}

/// Whether the member of `other` has moved to another slot, and its own superblock was written first, as when
/// a RAID-1 removes slots ([`crate::control::copies`]). It still knows the member of `own`, which a member
/// that was used apart does not.
fn has_moved(own: &Superblock, other: &Superblock) -> bool {
    let is_active = |role: DeviceRole| matches!(role, DeviceRole::Active(_));
    let are_both_active = is_active(own.role(other.device_number)) && is_active(other.own_role());
    own.level == Level::Raid1 && are_both_active && other.role(own.device_number) == own.own_role()
}

/// Finds the member in use that prevents a return by bitmap: the returning member may have been used without
/// it. A returning member knows at least one member in use, or it comes from another half. It may call
/// members that joined since then spares: these have none of the numbers of the creation.
pub(crate) fn used_without<'a>(
    own: &Superblock,
    in_use: impl Iterator<Item = (&'a str, &'a Superblock)> + Clone,
) -> Option<&'a str> {
    let mut settled = in_use.filter(|(_, other)| is_settled(other));
    let stranger = |(_, other): &(&str, &Superblock)| !knows(own, other);
    let was_there = |(_, other): &(&str, &Superblock)| {
        other.device_number.0 < own.raid_disks || own.role(other.device_number) != DeviceRole::Spare
    };
    let first = settled.clone().find(|member| stranger(member) && was_there(member));
    let any = first.or_else(|| settled.clone().find(stranger).filter(|_| settled.all(|member| stranger(&member))));
    any.filter(|_| !mutant!("half-returns")).map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::placement::Placement;
    use format::superblock::{Blueprint, Resync, SetName, Timestamp, Version};
    use format::units::{DeviceNumber, Sectors, Slot};

    const MEMBER_BYTES: u64 = 8 << 20;

    /// The superblock of `number` in an array of `slots`, at `events`. It knows the `active` numbers, each in
    /// the slot of its number, and calls all others `absent`.
    fn superblock(
        level: Level,
        slots: u16,
        number: u16,
        events: u64,
        active: &[u16],
        absent: DeviceRole,
    ) -> Superblock {
        let role = |number: u16| if active.contains(&number) { DeviceRole::Active(Slot(number)) } else { absent };
        let blueprint = Blueprint {
            version: Version::V1_2,
            set_uuid: [7; 16],
            set_name: SetName::default(),
            created: Timestamp { seconds: 1, micros: 0 },
            level,
            layout: if level == Level::Raid10 { 0x102 } else { 2 },
            raid0_layout: false,
            chunk: Sectors(if level == Level::Raid1 { 0 } else { 128 }),
            raid_disks: slots,
            roles: (0..slots).map(role).collect(),
            resync: Resync::Clean,
            logical_block_bytes: 0,
        };
        let placement = Placement {
            super_offset: Sectors(8),
            data_offset: Sectors(2048),
            data_size: Sectors(MEMBER_BYTES / 512 - 2048),
            component: Sectors(1024),
            bitmap: None,
            bad_blocks: None,
            ppl: None,
        };
        let made = Superblock::new(&blueprint, &placement, DeviceNumber(number), [number as u8; 16], MEMBER_BYTES);
        let mut made = made.expect("the parts fit");
        made.events = events;
        made
    }

    /// For each superblock, as [`crate::control::election`] asks: whether it is apart from the anchor, and
    /// whether that refuses the array.
    fn verdicts(superblocks: &[Superblock], freshest: usize) -> Vec<Option<bool>> {
        let anchor = &superblocks[anchor(superblocks.iter(), freshest).expect("there is one")];
        let verdict = |own| Apart::find(own, "anchor", anchor).map(|apart| apart.reason("it").is_err());
        superblocks.iter().map(verdict).collect()
    }

    #[test]
    fn halves_used_apart_are_left_out_whatever_their_events_and_refused_at_the_same() {
        let shapes: [(Level, &[u16], &[u16]); 5] = [
            (Level::Raid1, &[0], &[1]),
            (Level::Raid1, &[0, 2], &[1]),
            (Level::Raid5, &[0], &[1]),
            (Level::Raid6, &[0, 1], &[2, 3]),
            (Level::Raid10, &[0, 2], &[1, 3]),
        ];
        for (level, fresh, other) in shapes {
            for absent in [DeviceRole::Spare, DeviceRole::Faulty] {
                for behind in 0..4 {
                    let slots = (fresh.len() + other.len()) as u16;
                    let of = |half: &[u16], events| -> Vec<Superblock> {
                        let one = |&number| superblock(level, slots, number, events, half, absent);
                        half.iter().map(one).collect()
                    };
                    let all = [of(fresh, 20), of(other, 20 - behind)].concat();
                    let expected = fresh.iter().map(|_| None).chain(other.iter().map(|_| Some(behind == 0)));
                    assert_eq!(
                        verdicts(&all, 0),
                        expected.collect::<Vec<_>>(),
                        "{level:?} {absent:?} {behind} events behind"
                    );
                }
            }
        }
    }

    #[test]
    fn a_member_that_merely_stayed_away_is_not_apart() {
        let all: Vec<u16> = (0..4).collect();
        for absent in [DeviceRole::Spare, DeviceRole::Faulty] {
            for behind in 0..4 {
                let went_on = |number| superblock(Level::Raid6, 4, number, 20, &[0, 1, 2], absent);
                let away = superblock(Level::Raid6, 4, 3, 20 - behind, &all, absent);
                let members = [went_on(0), went_on(1), went_on(2), away];
                assert_eq!(verdicts(&members, 0), [None; 4], "{absent:?} {behind} events behind");
            }
        }
    }

    #[test]
    fn spares_and_members_told_first_make_no_halves() {
        let raid6 =
            |number, events, active: &[u16]| superblock(Level::Raid6, 4, number, events, active, DeviceRole::Spare);
        // Number 3 got its slot one event before the others learn of it.
        let mut told_first = raid6(3, 20, &[0, 1, 2, 3]);
        told_first.recovery_offset = Some(Sectors(0));
        let old = |number| raid6(number, 19, &[0, 1, 2]);
        assert_eq!(verdicts(&[told_first.clone(), old(0), old(1), old(2)], 0), [None; 4]);
        // A spare whose superblock was written first in a round.
        assert_eq!(verdicts(&[raid6(3, 20, &[0, 1, 2]), old(0), old(1), old(2)], 0), [None; 4]);
        // The reverse: number 3 was written first, and the others went on without it.
        let later = |number| raid6(number, 20, &[0, 1, 2]);
        assert_eq!(verdicts(&[later(0), later(1), later(2), told_first], 0), [None; 4]);
    }

    #[test]
    fn a_replacement_told_first_that_a_member_failed_makes_no_halves() {
        let raid6 =
            |number, events, active: &[u16]| superblock(Level::Raid6, 4, number, events, active, DeviceRole::Faulty);
        let with_replacement = |mut superblock: Superblock| {
            superblock.roles.resize(5, DeviceRole::Spare);
            superblock.roles[4] = DeviceRole::Active(Slot(3));
            superblock
        };
        let replacement = |events| {
            let mut replacement = with_replacement(raid6(1, events, &[1, 2, 3])); // number 0 failed
            (replacement.device_number, replacement.replacement) = (DeviceNumber(4), true);
            replacement.recovery_offset = Some(Sectors(0));
            replacement
        };
        let old: Vec<_> = (0..4).map(|number| with_replacement(raid6(number, 19, &[0, 1, 2, 3]))).collect();
        assert_eq!(verdicts(&[&old[..], &[replacement(20)]].concat(), 0), [None; 5]);
        // Two events ahead, the others of its half are not here, and it was used apart from number 0.
        assert_eq!(verdicts(&[&old[..], &[replacement(21)]].concat(), 0), [None, None, None, None, Some(true)]);
    }

    #[test]
    fn the_same_number_in_another_slot_is_another_member() {
        let anchor = superblock(Level::Raid1, 3, 2, 20, &[1, 2], DeviceRole::Spare);
        let mut own = superblock(Level::Raid1, 3, 0, 19, &[0], DeviceRole::Spare);
        own.roles[2] = DeviceRole::Active(Slot(1));
        assert!(Apart::find(&own, "anchor", &anchor).is_some());
    }

    #[test]
    fn a_copy_that_was_told_first_of_another_slot_makes_no_halves() {
        let raid1 = |number, events| superblock(Level::Raid1, 3, number, events, &[1, 2], DeviceRole::Faulty);
        let mut moved = raid1(2, 20);
        moved.roles[2] = DeviceRole::Active(Slot(0));
        assert_eq!(verdicts(&[moved, raid1(1, 19)], 0), [None; 2]);
    }

    #[test]
    fn a_member_that_returns_knows_those_in_use_but_for_what_joined_since() {
        let raid6 = |number, active: &[u16]| superblock(Level::Raid6, 4, number, 20, active, DeviceRole::Spare);
        let newcomer = |number: u16, slot: u16, active: &[u16]| {
            let mut newcomer = raid6(0, active);
            newcomer.device_number = DeviceNumber(number);
            newcomer.roles[usize::from(number)] = DeviceRole::Active(Slot(slot));
            newcomer
        };
        let table: [(Superblock, Vec<Superblock>, bool); 6] = [
            (raid6(3, &[0, 1, 2, 3]), vec![raid6(0, &[0, 1, 2]), raid6(1, &[0, 1, 2]), raid6(2, &[0, 1, 2])], false),
            (raid6(3, &[2, 3]), vec![raid6(0, &[0, 1]), raid6(1, &[0, 1])], true),
            (raid6(3, &[1, 2, 3]), vec![raid6(0, &[0, 1, 2]), raid6(1, &[0, 1, 2])], true),
            (raid6(3, &[0, 1, 2, 3]), vec![raid6(0, &[0]), newcomer(4, 1, &[0])], false),
            (raid6(3, &[0, 1, 2, 3]), vec![newcomer(4, 1, &[])], true),
            (raid6(3, &[0, 1, 2, 3]), Vec::new(), false),
        ];
        for (number, (own, in_use, apart)) in table.iter().enumerate() {
            let in_use = in_use.iter().map(|superblock| ("one", superblock));
            assert_eq!(used_without(own, in_use).is_some(), *apart, "case {number}");
        }
    }
}
