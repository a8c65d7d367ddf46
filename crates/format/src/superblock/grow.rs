//! Superblocks of an array that changes its size in place: the used part of each member, or the number of slots.
//!
//! It only computes each member's superblock. The caller decides what must be resynced, and in which order superblocks
//! are written.
//!
//! Facts: `drivers/md/md.c` (`update_size`, `super_1_rdev_size_change`), and the driver itself
//! (`tests/kernel/grow.sh`).

use super::{Superblock, Version, area};
use crate::Defect;
use crate::geometry::Level;
use crate::placement::{BAD_BLOCK_LOG_SECTORS, bitmap_space, component_unit};
use crate::units::Sectors;

/// The largest component of 0.90, whose `size` is a number of KiB in 32 bits. The driver stops there as well.
const V0_COMPONENT_MAX: Sectors = Sectors((2 << 32) - 2);

impl Superblock {
    /// Checks that md allows a change of the component size in place: existing data must keep its position.
    ///
    /// # Errors
    /// The field that forbids it.
    pub fn check_component_changes(&self) -> Result<(), Defect> {
        let defect = |field, reason: &str| Err(Defect::new(field, reason));
        let (far, is_offset) = (self.layout >> 8 & 0xff, self.layout >> 16 & 1 == 1);
        if !self.level.has_component() {
            return defect("superblock.level", "this level has no component size: it uses all of each member");
        }
        if self.level == Level::Raid10 && far > 1 && !is_offset {
            let reason = "the position of far copies depends on the component size, so md does not change it";
            return defect("superblock.layout", reason);
        }
        if self.ppl.is_some() || self.journal {
            let reason = "md cannot change the size of an array with a partial parity log or a journal";
            return defect("superblock.feature_map", reason);
        }
        Ok(())
    }

    /// The same superblock, with a data area as long as a member of `member_bytes` allows. A superblock behind the data
    /// moves to the new end, as in the driver, and with it the bad-block log and the space for a bitmap before it.
    /// Their contents must be written again. The superblock must have no bitmap.
    ///
    /// # Errors
    /// When the parts do not fit the member.
    pub fn with_all_room(&self, member_bytes: u64) -> Result<Self, Defect> {
        let changed = match self.version {
            Version::V0_90 => {
                let end = Version::V0_90.place(member_bytes).map(|at| Sectors::from_bytes_down(at.0));
                let super_offset = end.unwrap_or(self.super_offset).max(self.super_offset);
                Self { super_offset, data_size: super_offset, ..self.clone() }
            }
            Version::V1_0 => self.at_the_end(member_bytes),
            Version::V1_1 | Version::V1_2 => {
                let room = Sectors::from_bytes_down(member_bytes).0.saturating_sub(self.data_offset.0);
                Self { data_size: Sectors(room), ..self.clone() }
            }
        };
        area::check(&changed, member_bytes)?;
        Ok(changed)
    }

    /// With 1.0: moved to the end of a member of `member_bytes`. Unchanged if the member has not become longer.
    fn at_the_end(&self, member_bytes: u64) -> Self {
        let end = Version::V1_0.place(member_bytes).map(|at| Sectors::from_bytes_down(at.0));
        let Some(super_offset) = end.filter(|end| *end > self.super_offset) else { return self.clone() };
        let sectors = Sectors::from_bytes_down(member_bytes).0;
        let moved = Self { super_offset, ..self.clone() };
        // The space that the driver reserves, or more if other parts are farther from the superblock.
        let kept = bitmap_space(sectors) + BAD_BLOCK_LOG_SECTORS;
        let end = (super_offset.0.saturating_sub(kept)).min(area::first_behind_data(&moved));
        Self { data_size: Sectors(end.saturating_sub(self.data_offset.0)).max(self.data_size), ..moved }
    }

    /// Whether a superblock behind the data is not at the end of the member, because the member became longer.
    pub fn is_left_behind(&self, member_bytes: u64) -> bool {
        self.version.is_at_end() && self.version.place(member_bytes) != Some(self.super_at())
    }

    /// A length of the member with which a superblock behind the data is at its end.
    pub fn bytes_at_end(&self) -> u64 {
        let behind = if self.version == Version::V0_90 { 128 } else { 16 };
        Sectors(self.super_offset.0 + behind).bytes()
    }

    /// The same superblock with another component size.
    ///
    /// # Errors
    /// When the data area is shorter, or another part is there.
    pub fn with_component(&self, component: Sectors, member_bytes: u64) -> Result<Self, Defect> {
        if self.version == Version::V0_90 && component > V0_COMPONENT_MAX {
            let reason = format!("{} KiB, more than the 4 TiB that metadata 0.90 can say", component.0 / 2);
            return Err(Defect::new("superblock.size", reason));
        }
        let changed = Self { component, ..self.clone() };
        area::check(&changed, member_bytes)?;
        Ok(changed)
    }

    /// Checks that md allows more or fewer slots without moving data.
    ///
    /// # Errors
    /// The field that forbids it.
    pub fn check_copies_change(&self) -> Result<(), Defect> {
        let defect = |field, reason: &str| Err(Defect::new(field, reason));
        match self.level {
            Level::Raid1 => Ok(()),
            Level::Linear | Level::Raid0 | Level::Raid4 | Level::Raid5 | Level::Raid6 | Level::Raid10 => {
                defect("superblock.level", "only RAID-1 can change its slots in place; other levels need a reshape")
            }
        }
    }

    /// `component`, rounded down to the unit of the array's components.
    pub fn rounded_component(&self, component: Sectors) -> Sectors {
        let unit = component_unit(self.level, self.chunk);
        Sectors(component.0 / unit * unit)
    }

    /// The same superblock with the size of `freshest`, one event behind it: for a member that missed the round of a
    /// size change. `None` when the size is already the same.
    pub fn caught_up(&self, freshest: &Self, member_bytes: u64) -> Option<Self> {
        let is_behind = self.set_uuid == freshest.set_uuid && self.events.checked_add(1) == Some(freshest.events);
        let has_other_copies = self.level == Level::Raid1 && self.raid_disks != freshest.raid_disks;
        if !is_behind || (self.component == freshest.component && !has_other_copies) {
            return None;
        }
        let roomy = Self { raid_disks: freshest.raid_disks, ..self.clone() }.with_all_room(member_bytes).ok()?;
        roomy.with_component(freshest.component, member_bytes).ok()
    }
}
