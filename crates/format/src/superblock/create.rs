//! Superblocks of a new array, and of a new member. It never writes them. Facts: `mdadm --create` and `md.c`;
//! `docs/format.md`.

use super::{
    BadBlockPlace, DeviceFlags, DeviceRole, MAX_DEVICES, Rest, Resync, SetName, Superblock, Timestamp, Version, area,
    v0, v1,
};
use crate::Defect;
use crate::geometry::Level;
use crate::placement::Placement;
use crate::units::{DeviceNumber, Sectors};

/// The properties of a new array, without the positions of its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blueprint {
    /// Metadata format.
    pub version: Version,
    /// The uuid of the array.
    pub set_uuid: [u8; 16],
    /// Name of the array; 0.90 has none.
    pub set_name: SetName,
    /// The current time.
    pub created: Timestamp,
    /// Level.
    pub level: Level,
    /// Layout, in the level's own encoding.
    pub layout: u32,
    /// Level 0 with members of different lengths: mark the layout as valid.
    pub raid0_layout: bool,
    /// Chunk; 0 for levels without chunks.
    pub chunk: Sectors,
    /// Number of slots.
    pub raid_disks: u16,
    /// The role of each device number: slots first, then spares. A missing member is [`DeviceRole::Spare`] if it was
    /// never there, as mdadm writes it, or [`DeviceRole::Faulty`].
    /// A role [`DeviceRole::Journal`] among them gives the array a write journal.
    pub roles: Vec<DeviceRole>,
    /// Clean when the members are already consistent.
    pub resync: Resync,
    /// Bytes of the array's logical block, as Linux 6.19 stores it. 0: not stored, which every kernel accepts.
    pub logical_block_bytes: u32,
}

impl Superblock {
    /// The superblock of member `device_number` of a new array, with the positions of `placement` on a member of
    /// `member_bytes`.
    ///
    /// # Errors
    /// When the parts do not fit the member, or there are too many devices.
    pub fn new(
        blueprint: &Blueprint,
        placement: &Placement,
        device_number: DeviceNumber,
        device_uuid: [u8; 16],
        member_bytes: u64,
    ) -> Result<Self, Defect> {
        let is_old = blueprint.version == Version::V0_90;
        let devices_max = if is_old { v0::DISKS } else { MAX_DEVICES };
        if blueprint.roles.len() > devices_max {
            let reason = format!("{} devices, more than {devices_max}", blueprint.roles.len());
            return Err(Defect::new("superblock.max_dev", reason));
        }
        if is_old {
            check_for_0_90(blueprint)?;
        }
        let is_journal = blueprint.roles.get(usize::from(device_number.0)) == Some(&DeviceRole::Journal);
        let superblock = Self {
            version: blueprint.version,
            set_uuid: blueprint.set_uuid,
            set_name: blueprint.set_name,
            // Whole seconds, as mdadm writes them. The kernel passes it to mdadm in 32 bits, and rejects it later if it
            // had more (`update_array_info` in md.c). Then `mdadm --grow --raid-devices` would fail.
            created: Timestamp { micros: 0, ..blueprint.created },
            updated: if is_old { Timestamp { micros: 0, ..blueprint.created } } else { blueprint.created },
            level: blueprint.level,
            layout: blueprint.layout,
            chunk: blueprint.chunk,
            raid_disks: blueprint.raid_disks,
            component: placement.component,
            super_offset: placement.super_offset,
            data_offset: placement.data_offset,
            data_size: placement.data_size,
            events: 0,
            resync: blueprint.resync,
            recovery_offset: None,
            recovery_from_bitmap: false,
            replacement: false,
            device_number,
            device_uuid: (!is_old).then_some(device_uuid),
            roles: match is_old {
                true => padded(blueprint.roles.clone(), v0::DISKS),
                false => whole_sectors(blueprint.roles.clone()),
            },
            device_flags: DeviceFlags::default(),
            corrected_reads: 0,
            bitmap: placement.bitmap.map(|bitmap| bitmap.place),
            bad_blocks: placement.bad_blocks,
            ppl: placement.ppl,
            reshape: None,
            new_offset: None,
            journal: blueprint.roles.contains(&DeviceRole::Journal),
            journal_tail: is_journal.then_some(Sectors(0)),
            clustered: false,
            raid0_layout: blueprint.raid0_layout,
            logical_block_bytes: blueprint.logical_block_bytes,
            other_byte_order: false,
            disk_errors: Vec::new(),
            rest: match is_old {
                true => Rest::V0(Box::new(v0::Rest::of(&blueprint.roles))),
                false => Rest::V1(Box::new(v1::Rest::empty())),
            },
        };
        area::check(&superblock, member_bytes)?;
        Ok(superblock)
    }

    /// With the number of the array's device: 5 of `/dev/md5`. Only 0.90 has a field for it.
    #[must_use]
    pub fn with_preferred_minor(mut self, minor: u32) -> Self {
        if let Rest::V0(rest) = &mut self.rest {
            rest.set_preferred_minor(minor);
        }
        self
    }
}

/// Checks that 0.90 has a field for all that `blueprint` says.
fn check_for_0_90(blueprint: &Blueprint) -> Result<(), Defect> {
    let lacks = |field, what: &str| Err(Defect::new(field, format!("metadata 0.90 has no field for {what}")));
    match blueprint {
        Blueprint { set_name, .. } if *set_name != SetName::default() => {
            lacks("superblock.set_name", "a name: choose --metadata 1.2, or leave --name out")
        }
        Blueprint { raid0_layout: true, .. } => {
            lacks("superblock.layout", "the layout of a RAID-0 of unequal members: choose --metadata 1.2")
        }
        Blueprint { logical_block_bytes: 1.., .. } => lacks("superblock.logical_block_size", "the logical block"),
        _ => Ok(()),
    }
}

impl Superblock {
    /// The superblock of a device that joins the array of `self`, as a spare, on a member of `member_bytes`. Every part
    /// has the position that it has in `self`, or the same distance from the end.
    ///
    /// # Errors
    /// When the parts do not fit the member.
    pub fn for_newcomer(
        &self,
        device_number: DeviceNumber,
        device_uuid: [u8; 16],
        member_bytes: u64,
    ) -> Result<Self, Defect> {
        let newcomer = self.newcomer(device_number, device_uuid, member_bytes)?;
        area::check(&newcomer, member_bytes)?;
        Ok(newcomer)
    }

    /// As [`Self::for_newcomer`], for the write journal of the array instead of a spare. Its log begins at the first block.
    ///
    /// # Errors
    /// When there is no room for the metadata and a block.
    pub fn for_journal(
        &self,
        device_number: DeviceNumber,
        device_uuid: [u8; 16],
        member_bytes: u64,
    ) -> Result<Self, Defect> {
        let newcomer = self.newcomer(device_number, device_uuid, member_bytes)?;
        let mut journal = Self { journal: true, journal_tail: Some(Sectors(0)), ..newcomer };
        let number = usize::from(device_number.0);
        if journal.roles.len() <= number {
            journal.roles.resize(number + 1, DeviceRole::Spare);
        }
        journal.roles[number] = DeviceRole::Journal;
        area::check(&journal, member_bytes)?;
        Ok(journal)
    }

    fn newcomer(&self, device_number: DeviceNumber, device_uuid: [u8; 16], member_bytes: u64) -> Result<Self, Defect> {
        let Some(at) = self.version.place(member_bytes) else {
            let reason = format!("metadata {} cannot be put on a member of {member_bytes} bytes", self.version);
            return Err(Defect::new("superblock.super_offset", reason));
        };
        let super_offset = Sectors::from_bytes_down(at.0);
        let data_end = match self.version {
            Version::V0_90 => super_offset.0,
            // The length between data and superblock stays the same.
            Version::V1_0 => super_offset.0.saturating_sub(self.super_offset.0 - self.data_size.0),
            _ => Sectors::from_bytes_down(member_bytes).0.saturating_sub(self.data_offset.0),
        };
        Ok(Self {
            super_offset,
            data_size: Sectors(data_end),
            device_number,
            device_uuid: (self.version != Version::V0_90).then_some(device_uuid),
            recovery_offset: None,
            recovery_from_bitmap: false,
            replacement: false,
            device_flags: DeviceFlags::default(),
            corrected_reads: 0,
            bad_blocks: self.bad_blocks.map(|log| BadBlockPlace { in_use: false, ..log }),
            journal_tail: None,
            ..self.clone()
        })
    }
}

/// The device table of metadata 0.90. Other formats have none, and are left as they are.
impl Superblock {
    /// Whether an active member's device number is its slot, as in metadata 0.90. A member that recovers is listed
    /// behind the slots, as a spare.
    pub fn numbers_are_slots(&self) -> bool {
        self.version == Version::V0_90
    }

    /// Lists a device under `number`, of a slot or behind the slots.
    pub fn list(&mut self, number: DeviceNumber) {
        if let Rest::V0(rest) = &mut self.rest {
            rest.list(number.0.into());
        }
    }

    /// `number` belongs to no device any more.
    pub fn unlist(&mut self, number: DeviceNumber) {
        if let Rest::V0(rest) = &mut self.rest {
            rest.unlist(number.0.into());
        }
    }

    /// The slot of `number` has no member.
    pub fn vacate(&mut self, number: DeviceNumber) {
        if let Rest::V0(rest) = &mut self.rest {
            rest.vacate(number.0.into());
        }
    }
}

/// Adds unused numbers to `roles` until the superblock fills whole sectors, as mdadm does.
fn whole_sectors(roles: Vec<DeviceRole>) -> Vec<DeviceRole> {
    let count = (v1::length_on_disk(roles.len()) - v1::FIXED_BYTES) / 2;
    padded(roles, count)
}

/// Adds unused numbers to `roles` up to `count`.
fn padded(mut roles: Vec<DeviceRole>, count: usize) -> Vec<DeviceRole> {
    roles.resize(count, DeviceRole::Spare);
    roles
}
