//! Superblocks of each step of a reshape to more slots, in the order in which they are written.
//!
//! | Step | What a member's superblock says |
//! |---|---|
//! | announced | where its data will begin; the array has its old shape, and all of its bytes |
//! | begun | the new number of slots, and how far the reshape has come |
//! | moved | the reshape is at its end, and the data begins at its new place |
//! | ended | the array has its new shape |
//!
//! The two shapes have their data at other places, so that no byte that is still needed is written over. Of two steps that
//! follow each other, members may have either: the freshest superblock says which bytes have which shape, and each member's
//! own says where its data begins. md itself has no announced and no moved step. When power goes while it begins a reshape
//! or ends one, members say different places for the same bytes.
//!
//! It only computes each member's superblock. Facts: `super_1_load`, `super_1_validate` and `super_1_sync` in
//! `drivers/md/md.c`; `raid5_run` and `raid5_start_reshape` in `drivers/md/raid5.c`.

use super::{DeviceRole, Reshape, Superblock, Version, area};
use crate::Defect;
use crate::geometry::Level;
use crate::units::{DeviceNumber, Sectors};

/// md's `MaxSector` as a position: no reshape is under way.
const NOWHERE: Sectors = Sectors(u64::MAX);

impl Superblock {
    /// Checks that this level and metadata format can have more slots by a reshape that moves the data towards the start of
    /// each member.
    ///
    /// # Errors
    /// The field that forbids it.
    pub fn check_slots_grow(&self) -> Result<(), Defect> {
        let defect = |field, reason: &str| Err(Defect::new(field, reason));
        if !matches!(self.level, Level::Raid4 | Level::Raid5 | Level::Raid6) {
            return defect("superblock.level", "only levels 4, 5 and 6 get more members by a reshape here");
        }
        if matches!(self.version, Version::V0_90 | Version::V1_0) {
            let reason =
                "the data begins at the member's start, so that a reshape would write over what it still needs";
            return defect("superblock.version", reason);
        }
        if self.ppl.is_some() || self.journal {
            return defect(
                "superblock.feature_map",
                "md reshapes no array with a partial parity log or a write journal",
            );
        }
        if self.clustered {
            return defect("superblock.feature_map", "the array belongs to a cluster");
        }
        Ok(())
    }

    /// Sectors before the data that no other area needs.
    pub fn room_to_move(&self) -> Sectors {
        Sectors(self.data_offset.0.saturating_sub(area::room_before_data(self).0))
    }

    /// The announcement that the data will begin so many sectors earlier.
    ///
    /// # Errors
    /// When there is not so much room.
    pub fn with_reshape_announced(&self, earlier: Sectors) -> Result<Self, Defect> {
        let room = self.room_to_move();
        let new_offset = i32::try_from(earlier.0).ok().filter(|_| earlier <= room).map(|sectors| -sectors);
        let Some(new_offset) = new_offset else {
            let reason = format!("{} sectors of room before the data, fewer than {}", room.0, earlier.0);
            return Err(Defect::new("superblock.data_offset", reason));
        };
        let reshape = Reshape {
            position: NOWHERE,
            new_level: super::v1::level_to_md(self.level),
            delta_disks: 0,
            new_layout: self.layout,
            new_chunk: self.chunk.0 as u32,
            backwards: false,
        };
        Ok(Self { reshape: Some(reshape), new_offset: Some(new_offset), ..self.clone() })
    }

    /// Whether a reshape is announced, and none is under way: the array has the shape that this superblock says.
    pub fn is_reshape_announced(&self) -> bool {
        self.reshape.is_some_and(|reshape| reshape.position == NOWHERE)
    }

    /// The superblock without the announcement of a reshape.
    pub fn without_announcement(&self) -> Self {
        match self.is_reshape_announced() {
            true => Self { reshape: None, new_offset: None, ..self.clone() },
            false => self.clone(),
        }
    }

    /// The beginning of the announced reshape, in which these spares take slots behind the others, in this order.
    pub fn with_reshape_begun(&self, spares: &[DeviceNumber]) -> Self {
        let mut begun = self.clone();
        for spare in spares {
            let number = usize::from(spare.0);
            if begun.roles.len() <= number {
                begun.roles.resize(number + 1, DeviceRole::Spare);
            }
            begun.roles[number] = DeviceRole::Active(crate::units::Slot(begun.raid_disks));
            begun.raid_disks += 1;
        }
        if let Some(reshape) = &mut begun.reshape {
            (reshape.position, reshape.delta_disks) = (Sectors(0), spares.len() as i32);
        }
        begun
    }

    /// The same reshape, come as far as this position of the array.
    pub fn with_reshape_at(&self, position: Sectors) -> Self {
        let reshape = self.reshape.map(|reshape| Reshape { position, ..reshape });
        Self { reshape, ..self.clone() }
    }

    /// The same reshape, at whose end the data begins at its new place.
    pub fn with_data_moved(&self) -> Self {
        let moved = i64::from(self.new_offset.unwrap_or(0));
        let shift = |sectors: Sectors, by: i64| Sectors(sectors.0.saturating_add_signed(by));
        Self {
            data_offset: shift(self.data_offset, moved),
            data_size: shift(self.data_size, -moved),
            new_offset: None,
            ..self.clone()
        }
    }

    /// The end of the reshape.
    pub fn with_reshape_ended(&self) -> Self {
        let Some(reshape) = self.reshape else { return self.clone() };
        let (layout, chunk) = (reshape.new_layout, Sectors(reshape.new_chunk.into()));
        Self { reshape: None, new_offset: None, layout, chunk, ..self.clone() }
    }

    /// The same superblock in the reshape of `freshest`, one event later: for a member that a step has not reached. `None`
    /// where nothing is to be changed.
    pub fn with_reshape_of(&self, freshest: &Self) -> Option<Self> {
        let is_behind = self.set_uuid == freshest.set_uuid && self.events.checked_add(1) == Some(freshest.events);
        let is_behind = is_behind && self.reshape != freshest.reshape;
        match (&freshest.reshape, &self.reshape) {
            _ if !is_behind => None,
            // Announced: the old shape, whatever has not been told of it.
            (Some(of), _) if of.position == NOWHERE => None,
            (Some(_), Some(_)) => {
                let (reshape, raid_disks, roles) = (freshest.reshape, freshest.raid_disks, freshest.roles.clone());
                let mut told = Self { reshape, raid_disks, ..self.clone() };
                if self.is_reshape_announced() {
                    told.roles = roles;
                }
                Some(told)
            }
            // Ended, so all data has its new place. md has no step before that says so on each member.
            (None, Some(own)) if own.position != NOWHERE => Some(self.with_data_moved().with_reshape_ended()),
            _ => None,
        }
    }
}
