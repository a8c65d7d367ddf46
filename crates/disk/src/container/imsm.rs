//! IMSM: Intel's metadata parameter block before a disk's last sectors.
//!
//! The block is the same on every disk. It lists disks by the serial number of their drives, so no disk says which one
//! it is. All numbers are little-endian; on drives with sectors of 4096 bytes, positions count in these. The checksum
//! is checked.

use super::{Container, DiskId, Kind, ListedDisk, Place, VOLUMES_MAX, Volume};
use crate::bytes::{le16, le32, le64, text};
use crate::source::{Source, read_up_to};
use format::geometry::Level;

const SIGNATURE: &[u8] = b"Intel Raid ISM Cfg Sig. ";

/// The longest block that is read: mdadm's limit.
const BLOCK_BYTES_MAX: u64 = 2210 * 512;

/// Where the disks are listed, and the bytes of each.
const DISKS_AT: usize = 0xd8;
const DISK_BYTES: usize = 48;

/// Bytes of a volume before its first map, and of a map with one slot.
const VOLUME_BYTES: usize = 112;
const MAP_BYTES: usize = 52;

/// The attributes that mdadm accepts.
const ATTRIBUTES: u32 = 0x8000_0000 | 0x2000_0000 | 0x0400_0000 | 0x0800_0000 | 0x4000_0000 | 0xd7;

/// Reads the metadata of a disk.
pub(super) async fn read<S: Source + ?Sized>(disk: &S) -> Result<Option<Container>, String> {
    for sector in [512, 4096] {
        let Some(at) = (disk.bytes() / sector * sector).checked_sub(2 * sector) else { continue };
        let Ok(mut block) = read_up_to(disk, at, sector as usize).await else { continue };
        if !block.starts_with(SIGNATURE) {
            continue;
        }
        let bytes = u64::from(le32(&block, 0x24));
        if bytes < DISKS_AT as u64 || bytes > BLOCK_BYTES_MAX {
            return Err(format!("its IMSM metadata have {bytes} bytes"));
        }
        // What is longer than a sector begins in the sectors before, not after.
        let more = bytes.div_ceil(sector).saturating_sub(1) * sector;
        if more > 0 {
            let at = at.checked_sub(more).ok_or("its IMSM metadata begin before the disk")?;
            block.extend(read_up_to(disk, at, more as usize).await?);
        }
        block.truncate(bytes as usize);
        return decode(&block, sector / 512).map(Some);
    }
    Ok(None)
}

/// Decodes the whole block. `unit`: how many sectors of 512 bytes its numbers count.
fn decode(block: &[u8], unit: u64) -> Result<Container, String> {
    let (words, _) = block.as_chunks::<4>();
    let sum = words.iter().fold(0_u32, |sum, word| sum.wrapping_add(u32::from_le_bytes(*word)));
    if sum.wrapping_sub(le32(block, 0x20)) != le32(block, 0x20) {
        return Err("its IMSM metadata have a wrong checksum".to_owned());
    }
    let unknown = le32(block, 0x34) & !ATTRIBUTES;
    if unknown != 0 {
        return Err(format!("its IMSM metadata have the unknown attributes {unknown:#x}"));
    }
    let (disks, count) = (usize::from(block[0x38]), usize::from(block[0x39]));
    let mut at = DISKS_AT + disks * DISK_BYTES;
    let disks: Vec<&[u8]> = (0..disks).filter_map(|disk| block.get(DISKS_AT + disk * DISK_BYTES..)).collect();
    let mut volumes = Vec::new();
    for _ in 0..count.min(VOLUMES_MAX) {
        let volume = block.get(at..).ok_or("its IMSM metadata end inside of a volume")?;
        let first = Map::of(volume, VOLUME_BYTES)?;
        let is_migrating = volume[88] != 0;
        let second = if is_migrating { Some(Map::of(volume, VOLUME_BYTES + first.bytes())?) } else { None };
        at += VOLUME_BYTES + first.bytes() + second.as_ref().map_or(0, Map::bytes);
        let mut volume = decode_volume(volume, &first, second.as_ref(), &disks, unit)?;
        if le32(block, 0x48) > 0 {
            volume.refusal = volume.refusal.or_else(|| bad_blocks(block));
        }
        volumes.push(volume);
    }
    let id = format!("{:08x}", le32(block, if le32(block, 0x40) != 0 { 0x40 } else { 0x28 }));
    let disks = disks.into_iter().map(listed).collect();
    Ok(Container { kind: Kind::Imsm, id, disk: None, sequence: le32(block, 0x2c).into(), disks, volumes })
}

/// The refusal for a bad-block log with entries. It is the last part of the block.
fn bad_blocks(block: &[u8]) -> Option<String> {
    let log = block.len().checked_sub(le32(block, 0x48) as usize).and_then(|at| block.get(at..))?;
    let count = le32(log, 4);
    (count > 0).then(|| format!("the container's bad-block log has {count} entries, which are not understood"))
}

/// A map: where a volume is, or was before a migration.
struct Map<'a>(&'a [u8]);

impl<'a> Map<'a> {
    fn of(volume: &'a [u8], at: usize) -> Result<Self, String> {
        let map = volume.get(at..).filter(|map| map.len() >= MAP_BYTES).map(Self);
        let map = map.filter(|map| map.slots() > 0 && map.0.len() >= map.bytes());
        map.ok_or_else(|| "its IMSM metadata end inside of a volume".to_owned())
    }

    fn slots(&self) -> usize {
        self.0[16].into()
    }

    fn bytes(&self) -> usize {
        MAP_BYTES + 4 * (self.slots() - 1)
    }

    /// A number whose halves are at two places.
    fn wide(&self, low: usize, high: usize) -> u64 {
        u64::from(le32(self.0, high)) << 32 | u64::from(le32(self.0, low))
    }

    /// The disk of a slot, and whether it is being rebuilt.
    fn slot(&self, slot: usize) -> (usize, bool) {
        let order = le32(self.0, 48 + 4 * slot);
        ((order & 0x00ff_ffff) as usize, order >> 24 & 1 != 0)
    }

    /// The level; RAID-1 of more than two disks is RAID-10.
    fn level(&self) -> Option<Level> {
        match (self.0[15], self.slots()) {
            (0, _) => Some(Level::Raid0),
            (1, 2) => Some(Level::Raid1),
            (1 | 10, _) => Some(Level::Raid10),
            (5, _) => Some(Level::Raid5),
            _ => None,
        }
    }
}

/// An entry of the list of disks.
fn listed(disk: &[u8]) -> ListedDisk {
    const FAILED: u32 = 4;
    let serial = text(disk, 0, 16).unwrap_or_default().trim().to_owned();
    ListedDisk { id: DiskId::Serial(serial), is_current: le32(disk, 24) & FAILED == 0 }
}

fn decode_volume(
    volume: &[u8],
    map: &Map<'_>,
    before: Option<&Map<'_>>,
    disks: &[&[u8]],
    unit: u64,
) -> Result<Volume, String> {
    let sectors = |count: u64| count.checked_mul(unit * 512).ok_or("its IMSM metadata have a volume beyond any disk");
    let bytes = sectors(le64(volume, 16))?;
    let chunk = sectors(le16(map.0, 12).into())?;
    let level = map.level();
    let data = data_disks(level, map.slots());
    let copies = if matches!(level, Some(Level::Raid1 | Level::Raid10)) { 2 } else { 1 };
    let stripes = map.wide(8, 28).checked_mul(chunk).and_then(|bytes| bytes.checked_mul(copies));
    // The number of stripes is not kept up to date in a volume that was grown.
    let component = stripes.filter(|component| component.saturating_mul(data).abs_diff(bytes) <= data << 20);
    let component = component.unwrap_or(bytes / data);
    let has_chunks = level.is_none_or(Level::has_chunks);
    let slots = (0..map.slots()).map(|slot| {
        let (index, _) = map.slot(slot);
        let is_rebuilt = before.unwrap_or(map).slot(slot.min(before.unwrap_or(map).slots() - 1)).1;
        let disk = disks.get(index)?;
        let ListedDisk { id, is_current } = listed(disk);
        Some(Place { disk: id, at: sectors(map.wide(0, 20)).ok()?, is_current: is_current && !is_rebuilt })
    });
    const UNINITIALIZED: u8 = 1;
    let is_initializing = before.is_some() && matches!(volume[89], 0 | 5);
    Ok(Volume {
        name: text(volume, 0, 16).unwrap_or_default(),
        id: le16(volume, 40).to_string(),
        part: 0,
        sequence: 0,
        level: level.unwrap_or(Level::Linear),
        layout: if level == Some(Level::Raid10) { 0x102 } else { 0 },
        chunk_bytes: if level.is_some_and(Level::has_chunks) { chunk } else { 0 },
        component_bytes: match chunk {
            0 if has_chunks => return Err("its IMSM metadata have a volume without a chunk".to_owned()),
            chunk if has_chunks => component / chunk * chunk,
            _ => component,
        },
        bytes,
        slots: slots.collect(),
        is_dirty: volume[90] & 1 != 0 || is_initializing || before.unwrap_or(map).0[14] == UNINITIALIZED,
        refusal: refusal(volume, level, before.is_some()),
    })
}

/// The number of disks that hold what the others do not.
fn data_disks(level: Option<Level>, slots: usize) -> u64 {
    let slots = slots as u64;
    let data = match level {
        Some(Level::Raid1) => 1,
        Some(Level::Raid10) => slots / 2,
        Some(Level::Raid5) => slots - 1,
        _ => slots,
    };
    data.max(1)
}

fn refusal(volume: &[u8], level: Option<Level>, is_migrating: bool) -> Option<String> {
    match (level, is_migrating, volume[89]) {
        (None, ..) => Some("its level is not one that md reads".to_owned()),
        (_, true, 3) => Some("it is being changed to another shape (IMSM's \"general migration\")".to_owned()),
        (_, true, 4) => Some("it is being changed to another state (IMSM's \"state change\")".to_owned()),
        _ => None,
    }
}
