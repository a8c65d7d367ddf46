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
use crate::placement::component_unit;
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
    /// offers what it has now. Data that a superblock at the end follows keeps its length: that superblock's
    /// place is the old end, so nothing is found on one that was made longer.
    ///
    /// # Errors
    /// When the parts do not fit the member.
    pub fn with_all_room(&self, member_bytes: u64) -> Result<Self, Defect> {
        let data_size = match self.version {
            Version::V0_90 | Version::V1_0 => self.data_size,
            Version::V1_1 | Version::V1_2 => {
                Sectors(Sectors::from_bytes_down(member_bytes).0.saturating_sub(self.data_offset.0))
            }
        };
        let changed = Self { data_size, ..self.clone() };
        area::check(&changed, member_bytes)?;
        Ok(changed)
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
