//! The superblock of a member whose array changes its size where it stands: more of each
//! member is used or less, or there are more slots or fewer.
//!
//! Only says what the member would carry. Whether what is new is in agreement,
//! and in which order members are told, is its caller's.
//!
//! Facts: `drivers/md/md.c` (`update_size`, `super_1_rdev_size_change`), and the
//! driver itself (`tests/kernel/grow.sh`).

use super::{Superblock, Version, area};
use crate::Defect;
use crate::geometry::Level;
use crate::placement::{BAD_BLOCK_LOG_SECTORS, bitmap_space, component_unit};
use crate::units::Sectors;

impl Superblock {
    /// Whether md lets such an array use more of each member, or less: what is there, and stays, must stay where it is.
    ///
    /// # Errors
    /// The field that forbids it.
    pub fn check_component_changes(&self) -> Result<(), Defect> {
        let defect = |field, reason: &str| Err(Defect::new(field, reason));
        let (far, is_offset) = (self.layout >> 8 & 0xff, self.layout >> 16 & 1 == 1);
        match self.level {
            Level::Linear | Level::Raid0 => {
                defect("superblock.level", "this level has no component size: it uses all of each member")
            }
            Level::Raid10 if far > 1 && !is_offset => defect(
                "superblock.layout",
                "where far copies are follows from the component size; md does not change it",
            ),
            _ if self.version == Version::V0_90 => {
                defect("superblock.minor_version", "0.90 is kept up to date, but its size is not changed")
            }
            _ if self.ppl.is_some() || self.journal => {
                defect("superblock.feature_map", "md changes no size with a partial parity log or a journal")
            }
            _ => Ok(()),
        }
    }

    /// The same superblock with a data area as long as a member of `member_bytes` allows: one that was made longer
    /// offers what it has now. A superblock behind the data moves to the new end, as the driver has it, and with it the
    /// bad-block log and the room for a bitmap before it: what was there is to be written anew. It must name no bitmap then.
    ///
    /// # Errors
    /// When the parts do not fit the member.
    pub fn with_all_room(&self, member_bytes: u64) -> Result<Self, Defect> {
        let changed = match self.version {
            Version::V0_90 => self.clone(),
            Version::V1_0 => self.at_the_end(member_bytes),
            Version::V1_1 | Version::V1_2 => {
                let room = Sectors::from_bytes_down(member_bytes).0.saturating_sub(self.data_offset.0);
                Self { data_size: Sectors(room), ..self.clone() }
            }
        };
        area::check(&changed, member_bytes)?;
        Ok(changed)
    }

    /// With 1.0, at the end of a member of `member_bytes`. One that has not been made longer is as it was.
    fn at_the_end(&self, member_bytes: u64) -> Self {
        let end = Version::V1_0.place(member_bytes).map(|at| Sectors::from_bytes_down(at.0));
        let Some(super_offset) = end.filter(|end| *end > self.super_offset) else { return self.clone() };
        let sectors = Sectors::from_bytes_down(member_bytes).0;
        let moved = Self { super_offset, ..self.clone() };
        // What the driver leaves, or more where other parts reach further from the superblock.
        let kept = bitmap_space(sectors) + BAD_BLOCK_LOG_SECTORS;
        let end = (super_offset.0.saturating_sub(kept)).min(area::first_behind_data(&moved));
        Self { data_size: Sectors(end.saturating_sub(self.data_offset.0)).max(self.data_size), ..moved }
    }

    /// Whether a superblock that comes behind the data is not where such a member has it: it was made longer since.
    pub fn is_left_behind(&self, member_bytes: u64) -> bool {
        self.version.is_at_end() && self.version.place(member_bytes) != Some(self.super_at())
    }

    /// A length of the member with which a superblock that comes behind the data is found where it is.
    pub fn bytes_at_end(&self) -> u64 {
        let behind = if self.version == Version::V0_90 { 128 } else { 16 };
        Sectors(self.super_offset.0 + behind).bytes()
    }

    /// The same superblock with another component size.
    ///
    /// # Errors
    /// When the data area is shorter, or something else is there.
    pub fn with_component(&self, component: Sectors, member_bytes: u64) -> Result<Self, Defect> {
        let changed = Self { component, ..self.clone() };
        area::check(&changed, member_bytes)?;
        Ok(changed)
    }

    /// Whether md lets such an array have more slots or fewer without moving what is there.
    ///
    /// # Errors
    /// The field that forbids it.
    pub fn check_copies_change(&self) -> Result<(), Defect> {
        let defect = |field, reason: &str| Err(Defect::new(field, reason));
        match self.level {
            Level::Raid1 if self.version == Version::V0_90 => {
                defect("superblock.minor_version", "0.90 is kept up to date, but not grown")
            }
            Level::Raid1 => Ok(()),
            _ => defect("superblock.level", "only RAID-1 takes more slots where it stands; md reshapes other levels"),
        }
    }

    /// A component that such an array can have: rounded down to the unit in which components are made.
    pub fn rounded_component(&self, component: Sectors) -> Sectors {
        let unit = component_unit(self.level, self.chunk);
        Sectors(component.0 / unit * unit)
    }

    /// The same superblock, one event behind `freshest`, as it is when its member has been told of a change of size
    /// that only some were told of; `None` when it says so already.
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
