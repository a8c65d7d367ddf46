//! Metadata of IMSM and DDF made by hand, with any state. `cargo xtask test layers` has those that mdadm makes.

use crate::support::Workplace;
use crate::support::disks::MIB;
use std::os::unix::fs::FileExt;

/// Bytes of a disk.
pub(crate) const DISK_BYTES: u64 = 4 * MIB;
/// Bytes of a volume on each disk, and of its chunks.
pub(crate) const COMPONENT_BYTES: u64 = MIB;
pub(crate) const CHUNK_BYTES: u64 = 64 << 10;

/// What one IMSM block says of its one volume, besides its shape.
pub(crate) struct Imsm {
    pub(crate) level: u8,
    pub(crate) serials: Vec<&'static str>,
    pub(crate) generation: u32,
    pub(crate) family: u32,
    pub(crate) dirty: bool,
    /// The type of a migration, with a second map.
    pub(crate) migration: Option<u8>,
    /// The slot that is being rebuilt.
    pub(crate) rebuilt: Option<usize>,
    pub(crate) bad_blocks: u32,
    /// How many of the disks are in slots, if not all.
    pub(crate) slots: Option<usize>,
    /// The slot whose disk has failed.
    pub(crate) failed: Option<usize>,
}

impl Imsm {
    pub(crate) fn new(level: u8, serials: &[&'static str]) -> Self {
        let serials = serials.to_vec();
        Self {
            level,
            serials,
            generation: 1,
            family: 0x1234_5678,
            dirty: false,
            migration: None,
            rebuilt: None,
            bad_blocks: 0,
            slots: None,
            failed: None,
        }
    }

    fn map(&self) -> Vec<u8> {
        let slots = self.slots.unwrap_or(self.serials.len());
        let mut map = vec![0; 48 + 4 * slots];
        map[4..8].copy_from_slice(&((COMPONENT_BYTES / 512) as u32).to_le_bytes());
        map[8..12].copy_from_slice(&((COMPONENT_BYTES / CHUNK_BYTES) as u32 / self.copies()).to_le_bytes());
        map[12..14].copy_from_slice(&((CHUNK_BYTES / 512) as u16).to_le_bytes());
        map[15] = self.level;
        map[16] = slots as u8;
        for slot in 0..slots {
            let flag = if self.rebuilt == Some(slot) { 1 << 24 } else { 0 };
            map[48 + 4 * slot..][..4].copy_from_slice(&(slot as u32 | flag).to_le_bytes());
        }
        map
    }

    fn copies(&self) -> u32 {
        if self.level == 1 || self.level == 10 { 2 } else { 1 }
    }

    /// The block.
    pub(crate) fn block(&self) -> Vec<u8> {
        let data = match self.level {
            0 => self.serials.len() as u64,
            1 => 1,
            5 => self.serials.len() as u64 - 1,
            _ => self.serials.len() as u64 / 2,
        };
        let mut block = vec![0; 0xd8];
        block[..24].copy_from_slice(b"Intel Raid ISM Cfg Sig. ");
        block[0x28..0x2c].copy_from_slice(&self.family.to_le_bytes());
        block[0x2c..0x30].copy_from_slice(&self.generation.to_le_bytes());
        (block[0x38], block[0x39]) = (self.serials.len() as u8, 1);
        for (slot, serial) in self.serials.iter().enumerate() {
            let mut disk = vec![0; 48];
            disk[..serial.len()].copy_from_slice(serial.as_bytes());
            disk[24] = if self.failed == Some(slot) { 2 | 4 } else { 2 };
            block.extend(disk);
        }
        let mut volume = vec![0; 112];
        volume[..4].copy_from_slice(b"data");
        volume[16..24].copy_from_slice(&(data * COMPONENT_BYTES / 512).to_le_bytes());
        (volume[88], volume[89]) = self.migration.map_or((0, 0), |kind| (1, kind));
        volume[90] = self.dirty.into();
        block.extend(volume);
        block.extend(self.map());
        if self.migration.is_some() {
            block.extend(self.map());
        }
        if self.bad_blocks > 0 {
            block[0x48..0x4c].copy_from_slice(&8_u32.to_le_bytes());
            block.extend(0xabad_b10c_u32.to_le_bytes());
            block.extend(self.bad_blocks.to_le_bytes());
        }
        let bytes = block.len() as u32;
        block[0x24..0x28].copy_from_slice(&bytes.to_le_bytes());
        let (words, _) = block.as_chunks::<4>();
        let sum = words.iter().fold(0_u32, |sum, word| sum.wrapping_add(u32::from_le_bytes(*word)));
        block[0x20..0x24].copy_from_slice(&sum.to_le_bytes());
        block
    }

    /// A disk with these metadata and data.
    pub(crate) fn disk(&self, here: &Workplace, name: &str, data: &[u8]) {
        let file = std::fs::File::create(here.path().join(name)).expect("of our own");
        file.set_len(DISK_BYTES).expect("it is sparse");
        file.write_all_at(data, 0).expect("of our own");
        let block = self.block();
        let (first, rest) = block.split_at(512.min(block.len()));
        file.write_all_at(first, DISK_BYTES - 1024).expect("of our own");
        let before = rest.len().next_multiple_of(512) as u64;
        file.write_all_at(rest, DISK_BYTES - 1024 - before).expect("of our own");
    }
}

/// What DDF says of its one volume: a RAID-5 of three disks, or another level; also in parts, which are striped.
pub(crate) struct Ddf {
    pub(crate) level: (u8, u8),
    /// The states of the disks, by slot.
    pub(crate) disks: Vec<u16>,
    pub(crate) state: u8,
    pub(crate) sequence: u32,
    pub(crate) parts: usize,
    /// The number of the last change of each part.
    pub(crate) changes: Vec<u32>,
}

impl Ddf {
    pub(crate) fn new(level: (u8, u8), disks: usize) -> Self {
        Self { level, disks: vec![1; disks], state: 0, sequence: 1, parts: 1, changes: vec![1; disks] }
    }

    /// The disk of a slot, with this data.
    pub(crate) fn disk(&self, here: &Workplace, name: &str, slot: usize, data: &[u8]) {
        let file = std::fs::File::create(here.path().join(name)).expect("of our own");
        file.set_len(DISK_BYTES).expect("it is sparse");
        file.write_all_at(data, 0).expect("of our own");
        let (sectors, primary) = (DISK_BYTES / 512, DISK_BYTES / 512 - 100);
        let header = |kind: u8| {
            let mut header = vec![0xff; 512];
            header[8..32].fill(b'c');
            header[40..44].copy_from_slice(&self.sequence.to_be_bytes());
            header[48] = 0;
            header[96..104].copy_from_slice(&primary.to_be_bytes());
            header[112] = kind;
            header[134..136].copy_from_slice(&2_u16.to_be_bytes());
            header[136..138].copy_from_slice(&16_u16.to_be_bytes());
            for (at, first, length) in [(200, 1, 4), (208, 5, 2), (216, 7, 4), (224, 11, 1_u32)] {
                header[at..at + 4].copy_from_slice(&u32::to_be_bytes(first));
                header[at + 4..at + 8].copy_from_slice(&length.to_be_bytes());
            }
            signed(header, 0xde11_de11)
        };
        let mut physical = vec![0; 4 * 512];
        for (index, state) in self.disks.iter().enumerate() {
            let entry = &mut physical[64 * (index + 1)..];
            entry[24..28].copy_from_slice(&(0x100 + index as u32).to_be_bytes());
            entry[30..32].copy_from_slice(&state.to_be_bytes());
        }
        let mut virtual_disks = vec![0; 2 * 512];
        virtual_disks[64..88].fill(b'v');
        (virtual_disks[64 + 32], virtual_disks[64 + 33]) = (self.state, 2);
        virtual_disks[64 + 48..64 + 52].copy_from_slice(b"data");
        let mut own = vec![0; 512];
        own[32..36].copy_from_slice(&(0x100 + slot as u32).to_be_bytes());
        let sections = [
            header(1),
            signed(physical, 0x2222_2222),
            signed(virtual_disks, 0xdddd_dddd),
            [signed(self.configuration(slot * self.parts / self.disks.len()), 0xeeee_eeee), vec![0xff; 1024]].concat(),
            signed(own, 0x3333_3333),
        ];
        file.write_all_at(&sections.concat(), primary * 512).expect("of our own");
        file.write_all_at(&header(0), (sectors - 1) * 512).expect("of our own");
    }

    fn configuration(&self, part: usize) -> Vec<u8> {
        let count = (self.disks.len() / self.parts) as u64;
        let data = match self.level.0 {
            1 => 1,
            5 => count - 1,
            6 => count - 2,
            _ => count,
        } * self.parts as u64;
        let mut record = vec![0xff; 1024];
        record[8..32].fill(b'v');
        record[36..40].copy_from_slice(&self.changes[part].to_be_bytes());
        record[64..66].copy_from_slice(&(count as u16).to_be_bytes());
        let parts = [self.parts as u8, part as u8];
        record[66..72].copy_from_slice(&[7, self.level.0, self.level.1, parts[0], parts[1], 0]);
        record[72..80].copy_from_slice(&(COMPONENT_BYTES / 512).to_be_bytes());
        record[80..88].copy_from_slice(&(data * COMPONENT_BYTES / 512).to_be_bytes());
        for index in 0..count as usize {
            let number = 0x100 + part * count as usize + index;
            record[512 + 4 * index..][..4].copy_from_slice(&(number as u32).to_be_bytes());
            record[512 + 64 + 8 * index..][..8].copy_from_slice(&0_u64.to_be_bytes());
        }
        record
    }
}

/// A record with its signature and checksum.
fn signed(mut record: Vec<u8>, signature: u32) -> Vec<u8> {
    record[..4].copy_from_slice(&signature.to_be_bytes());
    record[4..8].fill(0xff);
    let step = |sum: u32, _| if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 };
    let sum = record.iter().fold(0_u32, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), step));
    record[4..8].copy_from_slice(&sum.to_be_bytes());
    record
}
