//! An array in the middle of a reshape, as two arrays: before the reshape and after it. Each has some of the bytes.
//!
//! The reshape moves data stripe by stripe. A position in the array divides what has the new shape from what still has
//! the old one. Nothing here reads a member.
//!
//! Facts: `raid5_run` and `make_request` in `drivers/md/raid5.c`, `raid10_run` and `raid10_read_request` in
//! `drivers/md/raid10.c`, `super_1_validate` in `drivers/md/md.c`; for positions that are behind, measured on the
//! kernel; for what mdadm keeps a backup of, mdadm's `Grow.c`.

use super::{DeviceRole, Reshape, Superblock};
use crate::Defect;
use crate::geometry::{Geometry, Level, Mapping};
use crate::units::{SECTOR_BYTES, Sectors};
use std::ops::Range;

/// How far a reshape has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// The bytes of the array that have the new shape.
    pub reshaped: Range<u64>,
    /// The bytes that may be half written, because the reshape writes over data that it has not recorded as moved. Only
    /// mdadm's backup has them for certain. Empty where data moves to another place.
    pub critical: Range<u64>,
    /// The reshape leaves the data where it is on the members.
    pub is_in_place: bool,
}

/// A shape of an array that is being reshaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The shape before the reshape.
    Old,
    /// The shape that the reshape leads to.
    New,
}

impl Superblock {
    /// This member's superblock in an array that has one of the two shapes throughout. `None` if the member holds no
    /// data of it. `of` is the reshape by the freshest superblock.
    ///
    /// # Errors
    /// When the reshape changes the level, or has no such shape.
    pub fn on_side(&self, of: &Reshape, side: Side) -> Result<Option<Self>, Defect> {
        if of.level() != Some(self.level) {
            let reason = format!("{}: md reshapes no array of another level ({})", of.new_level, self.level_number());
            return Err(Defect::new("superblock.new_level", reason));
        }
        let chunks = [self.chunk, Sectors(of.new_chunk.into())];
        let Some(unit) = chunks.iter().map(|chunk| chunk.0).max().filter(|_| chunks.iter().all(|chunk| chunk.0 > 0))
        else {
            return Err(Defect::new("superblock.new_chunk", "a chunk of 0"));
        };
        let old_slots = i64::from(self.raid_disks) - i64::from(of.delta_disks);
        let slots = match side {
            Side::Old => u16::try_from(old_slots).ok().filter(|slots| usize::from(*slots) <= super::MAX_DEVICES),
            Side::New => Some(self.raid_disks),
        };
        let Some(slots) = slots.filter(|slots| *slots > 0) else {
            let reason = format!("{}, but the array has {} members", of.delta_disks, self.raid_disks);
            return Err(Defect::new("superblock.delta_disks", reason));
        };
        let mut one = Self { reshape: None, new_offset: None, raid_disks: slots, ..self.clone() };
        one.component = Sectors(self.component.0 / unit * unit);
        if side == Side::New {
            (one.layout, one.chunk) = (of.new_layout, chunks[1]);
            let offset = self.data_offset.0.checked_add_signed(self.new_offset.unwrap_or(0).into());
            let Some(offset) = offset else {
                return Err(Defect::new("superblock.new_offset", format!("{:?}, before the member", self.new_offset)));
            };
            one.data_offset = Sectors(offset);
        }
        for role in &mut one.roles {
            if matches!(role, DeviceRole::Active(slot) if slot.0 >= slots) {
                *role = DeviceRole::Spare;
            }
        }
        let has_left = self.own_role() != one.own_role();
        // A forward reshape also recovers a member, by the new shape.
        let is_unknown = self.recovery_offset.is_some() && (side == Side::Old || of.backwards);
        Ok((!has_left && !is_unknown).then_some(one))
    }

    fn level_number(&self) -> i32 {
        super::v1::level_to_md(self.level)
    }
}

impl Reshape {
    /// Which bytes of the array have which shape.
    ///
    /// # Errors
    /// When md would not go on: the position is no boundary of new stripes, or the reshape may be writing over what it
    /// still has to read, though not in place. `before` is the freshest superblock, and `data_offsets` are those of the
    /// members before the reshape and after it.
    pub fn progress(
        &self,
        before: &Superblock,
        old: &Geometry,
        new: &Geometry,
        data_offsets: &[(Sectors, Sectors)],
    ) -> Result<Progress, Defect> {
        let array_bytes = old.array_bytes().min(new.array_bytes());
        let wrong = |reason: String| Err(Defect::new("superblock.reshape_position", reason));
        let Some(position) = self.position.checked_bytes() else {
            return wrong(format!("sector {}, beyond any array", self.position.0));
        };
        let Some(moved) = self.moved(data_offsets) else { return wrong("no member is here".to_owned()) };
        let critical = match moved {
            0 => self.critical(old, new).unwrap_or_default(),
            _ => 0..0,
        };
        let critical = critical.start.min(array_bytes)..critical.end.min(array_bytes);
        let is_safe = match (old, new) {
            (Geometry::Parity(old), Geometry::Parity(new)) => {
                let chunk = old.chunk_bytes().max(new.chunk_bytes());
                let row = |data: u16| u128::from(chunk) * u128::from(data);
                if !u128::from(position).is_multiple_of(row(new.data_chunks())) && position < array_bytes {
                    return wrong(format!("byte {position}, which is no boundary of stripes"));
                }
                let at = |data: u16| (u128::from(position) / row(data) * u128::from(chunk)) as i128;
                let (here_new, here_old) = (at(new.data_chunks()), at(old.data_chunks()));
                match (self.delta_disks == 0, self.backwards) {
                    (true, _) => moved.unsigned_abs() >= chunk.into(),
                    (false, true) => here_new + moved > here_old,
                    (false, false) => here_new < here_old - moved,
                }
            }
            (Geometry::Mapping(old), Geometry::Mapping(new)) if old.level() == Level::Raid10 => {
                let far = |layout: u32| i128::from(layout >> 8 & 0xff);
                let needed = |geometry: &Mapping, layout| i128::from(geometry.chunk_bytes()) * far(layout);
                let ahead = if self.backwards { moved } else { -moved };
                ahead >= needed(old, before.layout).max(needed(new, self.new_layout))
            }
            _ => return wrong("md reshapes levels 4, 5, 6 and 10 only".to_owned()),
        };
        let is_in_place = moved == 0 && matches!(old, Geometry::Parity(_));
        let is_done = is_in_place && position >= array_bytes && !self.backwards;
        if !is_safe && critical.is_empty() && !is_done {
            return wrong(format!(
                "byte {position}: the reshape may have been writing over data that it had not moved yet"
            ));
        }
        let reshaped = match self.backwards {
            true => position.min(array_bytes)..array_bytes,
            false => 0..position.min(array_bytes),
        };
        Ok(Progress { reshaped, critical, is_in_place })
    }

    /// The bytes that a reshape in place may have written over beyond its recorded position, whatever mdadm made md wait
    /// for. mdadm moves as much at a time as makes whole stripes of both shapes, a part (`compute_backup_blocks`).
    ///
    /// - More members: md forces a record once it reads two stripes ahead of where it writes (`reshape_request`), which
    ///   begins two parts from the array's start. Fewer members: the same, at the end of the reshape.
    /// - The same number: md never forces a record. mdadm makes it wait, but since 4.2 starts it before that.
    fn critical(&self, old: &Geometry, new: &Geometry) -> Option<Range<u64>> {
        let (Geometry::Parity(old), Geometry::Parity(new)) = (old, new) else { return None };
        let [one, other] = [old, new].map(|of| of.chunk_bytes() * u64::from(of.data_chunks()));
        let part = one.checked_mul(other / greatest_common_divisor(one, other))?;
        let position = self.position.checked_bytes()?;
        // A part more than that, as md rounds to stripes.
        let near = part.checked_mul(3)?;
        match (self.delta_disks.signum(), self.backwards) {
            (1, false) => Some(position..near.max(position)),
            (-1, true) => Some(0..if position <= near { position } else { 0 }),
            (0, false) => Some(position..u64::MAX),
            _ => None,
        }
    }

    /// Whether the data may have been moved further than the position says. A reshape with parity that keeps the number
    /// of members, and that md began on a running array, records a position only now and then, or never: md looks at
    /// the distance of the data offsets first when it assembles the array anew (`min_offset_diff` in `raid5_run`). In
    /// place, the bytes from the position on are critical.
    pub fn may_be_ahead(&self, geometry: &Geometry, progress: &Progress) -> bool {
        self.delta_disks == 0 && matches!(geometry, Geometry::Parity(_)) && !progress.is_in_place
    }

    /// By how many bytes the data of the members moves, as md counts it: the least that is gained.
    fn moved(&self, data_offsets: &[(Sectors, Sectors)]) -> Option<i128> {
        let moved =
            |(old, new): &(Sectors, Sectors)| (i128::from(new.0) - i128::from(old.0)) * i128::from(SECTOR_BYTES);
        let moved = data_offsets.iter().map(moved);
        if self.backwards { moved.min() } else { moved.max() }
    }
}

fn greatest_common_divisor(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { greatest_common_divisor(other, one % other) }
}
