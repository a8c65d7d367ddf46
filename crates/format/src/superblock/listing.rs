//! What `mdadm --examine` lists and [`super::Superblock`] leaves out: the stored checksum; and of 0.90 the counts and the
//! list of devices, by the numbers that they had when the superblock was written.
//!
//! For listings only: nothing here is needed to assemble an array, and nothing is checked that [`super::decode`] has not
//! checked. Facts: `md_p.h`; mdadm's `super0.c` (`examine_super0`).

use super::v0::{Raw, RawDisk};
use super::{PLACE_BYTES, Version};
use zerocopy::FromBytes;

/// Where the checksum of a 1.x superblock is.
const CHECKSUM_AT: usize = 216;

/// The checksum in the bytes at a superblock's place.
pub fn checksum_at(version: Version, place: &[u8]) -> Option<u32> {
    if version == Version::V0_90 {
        return Some(raw(place)?.sb_csum.get());
    }
    Some(u32::from_le_bytes(*place.get(CHECKSUM_AT..)?.first_chunk()?))
}

/// The counts of a 0.90 superblock, and its list of devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counts {
    /// The last part of the version.
    pub patch: u32,
    /// Devices in all.
    pub total: u32,
    /// The number of the array's device: 5 of `/dev/md5`.
    pub minor: u32,
    /// Devices in slots, and current.
    pub active: u32,
    /// Those, and spares.
    pub working: u32,
    /// Devices that failed.
    pub failed: u32,
    /// Devices without a slot.
    pub spare: u32,
    /// The member's own entry.
    pub own: Listed,
    /// All entries.
    pub devices: Vec<Listed>,
}

/// A device in the list of a 0.90 superblock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its index in the list.
    pub number: u32,
    /// Its device's major number.
    pub major: u32,
    /// Its device's minor number.
    pub minor: u32,
    /// Its slot.
    pub slot: u32,
    /// md's bits of its state.
    pub state: u32,
}

impl Listed {
    /// The device has failed.
    pub const FAULTY: u32 = 1;
    /// It is in a slot.
    pub const ACTIVE: u32 = 1 << 1;
    /// It is current.
    pub const SYNC: u32 = 1 << 2;
    /// No device is there.
    pub const REMOVED: u32 = 1 << 3;
    /// It is read only where no other can serve.
    pub const WRITE_MOSTLY: u32 = 1 << 9;
    /// Its requests fail fast.
    pub const FAIL_FAST: u32 = 1 << 10;

    fn of(disk: &RawDisk) -> Self {
        let RawDisk { number, major, minor, raid_disk, state, .. } = disk;
        Self { number: number.get(), major: major.get(), minor: minor.get(), slot: raid_disk.get(), state: state.get() }
    }
}

impl Counts {
    /// Those in the bytes at a 0.90 superblock's place. `None` if fewer bytes are given.
    pub fn of(place: &[u8]) -> Option<Self> {
        let raw = raw(place)?;
        Some(Self {
            patch: raw.patch_version.get(),
            total: raw.nr_disks.get(),
            minor: raw.md_minor.get(),
            active: raw.active_disks.get(),
            working: raw.working_disks.get(),
            failed: raw.failed_disks.get(),
            spare: raw.spare_disks.get(),
            own: Listed::of(&raw.this_disk),
            devices: raw.disks.iter().map(Listed::of).collect(),
        })
    }
}

fn raw(place: &[u8]) -> Option<&Raw> {
    Raw::ref_from_bytes(place.get(..PLACE_BYTES as usize)?).ok()
}
