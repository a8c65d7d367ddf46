//! Superblocks 0.90 for the members of a new array. The engine keeps them up to date but does not create them.
//!
//! They are built word by word, not by the encoder of the format crate. Facts: `include/uapi/linux/raid/md_p.h`.

use super::setup::Setup;
use format::geometry::Level;

/// Bytes of a superblock.
const BYTES: usize = 4096;

/// The numbers of the words that are not zero.
mod word {
    pub(super) const MAGIC: usize = 0;
    pub(super) const MINOR_VERSION: usize = 2;
    pub(super) const SET_UUID: usize = 5;
    pub(super) const CREATED: usize = 6;
    pub(super) const LEVEL: usize = 7;
    pub(super) const SIZE_KIB: usize = 8;
    pub(super) const DISKS_LISTED: usize = 9;
    pub(super) const RAID_DISKS: usize = 10;
    pub(super) const UPDATED: usize = 32;
    pub(super) const STATE: usize = 33;
    pub(super) const CHECKSUM: usize = 38;
    pub(super) const EVENTS: usize = 39;
    pub(super) const CHECKPOINT_EVENTS: usize = 41;
    pub(super) const LAYOUT: usize = 64;
    pub(super) const CHUNK_BYTES: usize = 65;
    pub(super) const DISKS: usize = 128;
    pub(super) const DISK_WORDS: usize = 32;
    pub(super) const THIS_DISK: usize = 992;
}

const CLEAN: u32 = 1;
/// State of a disk: active and in sync.
const IN_SYNC: u32 = 1 << 1 | 1 << 2;
/// State of a disk: faulty and removed.
const MISSING: u32 = 1 | 1 << 3;

/// The superblock of the member in `slot`, in an array created at `seconds`.
pub(super) fn old_superblock(setup: &Setup, slot: usize, seconds: u32) -> Vec<u8> {
    let mut words = [0_u32; BYTES / 4];
    words[word::MAGIC] = 0xa92b_4efc;
    words[word::MINOR_VERSION] = 90;
    words[word::SET_UUID] = 0x0707_0707;
    (words[word::CREATED], words[word::UPDATED]) = (seconds, seconds);
    words[word::LEVEL] = match setup.level {
        Level::Linear => u32::MAX,
        Level::Raid0 => 0,
        Level::Raid1 => 1,
        Level::Raid4 => 4,
        Level::Raid5 => 5,
        Level::Raid6 => 6,
        Level::Raid10 => 10,
    };
    words[word::SIZE_KIB] = (setup.component_bytes[0] / 1024) as u32;
    words[word::DISKS_LISTED] = setup.slots as u32;
    words[word::RAID_DISKS] = setup.slots as u32;
    words[word::EVENTS] = 1;
    match setup.unknown_contents {
        true => words[word::CHECKPOINT_EVENTS] = 1, // a resync from 0 is pending
        false => words[word::STATE] = CLEAN,
    }
    words[word::LAYOUT] = setup.layout;
    words[word::CHUNK_BYTES] = setup.chunk_bytes as u32;
    for number in 0..setup.slots {
        let state = if Some(number) == setup.absent { MISSING } else { IN_SYNC };
        let disk = &mut words[word::DISKS + number * word::DISK_WORDS..];
        (disk[0], disk[3], disk[4]) = (number as u32, number as u32, state);
    }
    let own = word::DISKS + slot * word::DISK_WORDS;
    words.copy_within(own..own + word::DISK_WORDS, word::THIS_DISK);
    let sum: u64 = words.iter().map(|&word| u64::from(word)).sum();
    words[word::CHECKSUM] = (sum as u32).wrapping_add((sum >> 32) as u32);
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}
