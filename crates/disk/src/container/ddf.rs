//! DDF: the headers at a disk's end, and the records that they lead to.
//!
//! The anchor in the last sector names a primary and a secondary header, each with sections: physical disks, virtual
//! disks, configurations and this disk's own identity. All numbers are big-endian. Checksums are checked.

use super::{Container, DiskId, Kind, ListedDisk, Place, SLOTS_MAX, VOLUMES_MAX, Volume};
use crate::bytes::{be16, be32, be64, crc32, text};
use crate::source::{Source, read_up_to};
use format::geometry::Level;

const SECTOR_BYTES: u64 = 512;

const HEADER: u32 = 0xde11_de11;
const PHYSICAL: u32 = 0x2222_2222;
const OWN: u32 = 0x3333_3333;
const VIRTUAL: u32 = 0xdddd_dddd;
const CONFIGURATION: u32 = 0xeeee_eeee;

/// The longest section that is read: the records of 4095 disks and as many configurations take less.
const SECTION_BYTES_MAX: u64 = 8 << 20;

/// Bytes of the head of a table, and of each of its entries.
const ENTRY_BYTES: usize = 64;

/// Whether a record has this signature, and its checksum: CRC-32 of the whole with ones in the checksum's place. mdadm
/// and controllers start with zero and do not invert; newer versions of mdadm do as others do.
fn is_valid(record: &[u8], signature: u32) -> bool {
    if be32(record, 0) != signature || record.len() < SECTOR_BYTES as usize {
        return false;
    }
    let mut summed = record.to_vec();
    summed[4..8].fill(0xff);
    let sum = be32(record, 4);
    crc32(0, &summed) == sum || !crc32(u32::MAX, &summed) == sum
}

/// A header, and its first sector.
struct Header {
    bytes: Vec<u8>,
    sector: u64,
}

/// Reads the metadata of a disk.
pub(super) async fn read<S: Source + ?Sized>(disk: &S) -> Result<Option<Container>, String> {
    let Some(end) = (disk.bytes() / SECTOR_BYTES).checked_sub(1) else { return Ok(None) };
    let Ok(anchor) = read_up_to(disk, end * SECTOR_BYTES, SECTOR_BYTES as usize).await else { return Ok(None) };
    if be32(&anchor, 0) != HEADER {
        return Ok(None);
    }
    if !is_valid(&anchor, HEADER) {
        return Err("the anchor of its DDF metadata has a wrong checksum".to_owned());
    }
    let header = newest(disk, &anchor).await.ok_or("both headers of its DDF metadata are damaged")?;
    let physical = header.section(disk, 200, PHYSICAL).await.ok_or("its DDF metadata have no list of disks")?;
    let virtual_disks = header.section(disk, 208, VIRTUAL).await.ok_or("its DDF metadata have no list of volumes")?;
    let own = header.section(disk, 224, OWN).await.map(|own| DiskId::Number(be32(&own, 32)));
    let configurations = header.raw(disk, 216).await.ok_or("its DDF metadata have no configurations")?;
    let record = usize::from(be16(&header.bytes, 134)).max(1) * SECTOR_BYTES as usize;
    let elements = usize::from(be16(&header.bytes, 136));
    let volumes = configurations
        .chunks_exact(record)
        .filter(|record| is_valid(record, CONFIGURATION))
        .filter_map(|record| volume(record, elements, &virtual_disks))
        .take(VOLUMES_MAX)
        .collect();
    let id = header.bytes[8..32].iter().map(|byte| format!("{byte:02x}")).collect();
    let sequence = be32(&header.bytes, 40).into();
    let disks = entries(&physical).map(listed).collect();
    Ok(Some(Container { kind: Kind::Ddf, id, disk: own, sequence, disks, volumes }))
}

/// The header that counts: the later one that is closed.
async fn newest<S: Source + ?Sized>(disk: &S, anchor: &[u8]) -> Option<Header> {
    let mut newest: Option<Header> = None;
    for (at, kind) in [(96, 1_u8), (104, 2)] {
        let sector = be64(anchor, at);
        let Some(position) = sector.checked_mul(SECTOR_BYTES) else { continue };
        let Ok(bytes) = read_up_to(disk, position, SECTOR_BYTES as usize).await else { continue };
        if !is_valid(&bytes, HEADER) || bytes[112] != kind || bytes[8..32] != anchor[8..32] {
            continue;
        }
        let rank = |bytes: &[u8]| (be32(bytes, 40), bytes[48] == 0);
        if newest.as_ref().is_none_or(|other| rank(&other.bytes) < rank(&bytes)) {
            newest = Some(Header { bytes, sector });
        }
    }
    newest
}

impl Header {
    /// The section whose position and length are at `at` of the header.
    async fn raw<S: Source + ?Sized>(&self, disk: &S, at: usize) -> Option<Vec<u8>> {
        let (first, length) = (be32(&self.bytes, at), be32(&self.bytes, at + 4));
        let bytes = u64::from(length) * SECTOR_BYTES;
        if first == u32::MAX || bytes == 0 || bytes > SECTION_BYTES_MAX {
            return None;
        }
        let position = self.sector.checked_add(first.into())?.checked_mul(SECTOR_BYTES)?;
        let section = read_up_to(disk, position, bytes as usize).await.ok()?;
        (section.len() as u64 == bytes).then_some(section)
    }

    async fn section<S: Source + ?Sized>(&self, disk: &S, at: usize, signature: u32) -> Option<Vec<u8>> {
        self.raw(disk, at).await.filter(|section| is_valid(section, signature))
    }
}

/// The entries of a table.
fn entries(table: &[u8]) -> impl Iterator<Item = &[u8]> {
    table.chunks_exact(ENTRY_BYTES).skip(1)
}

/// An entry of the list of disks.
fn listed(entry: &[u8]) -> ListedDisk {
    const ONLINE: u16 = 1;
    const FAILED: u16 = 2;
    const REBUILDING: u16 = 4;
    const MISSING: u16 = 64;
    let is_current = be16(entry, 30) & (ONLINE | FAILED | REBUILDING | MISSING) == ONLINE;
    ListedDisk { id: DiskId::Number(be32(entry, 24)), is_current }
}

/// The volume that a configuration record describes, as far as this disk knows it.
fn volume(record: &[u8], elements: usize, virtual_disks: &[u8]) -> Option<Volume> {
    let guid = record.get(8..32)?;
    let entry = entries(virtual_disks).find(|entry| entry[..24] == *guid)?;
    let primary = usize::from(be16(record, 64));
    let (secondary, own) = (usize::from(record[69]).max(1), usize::from(record[70]));
    let count = primary.checked_mul(secondary).filter(|count| *count > 0 && *count <= SLOTS_MAX)?;
    if primary > elements || own >= secondary || record.len() < 512 + elements * 12 {
        return None;
    }
    let mut slots = vec![None; count];
    for index in 0..primary {
        let number = be32(record, 512 + 4 * index);
        let at = be64(record, 512 + 4 * elements + 8 * index).checked_mul(SECTOR_BYTES);
        slots[own * primary + index] = at.filter(|_| number != u32::MAX).map(|at| Place {
            disk: DiskId::Number(number),
            at,
            // The newest list of disks says more.
            is_current: true,
        });
    }
    let shape = shape(record[67], record[68], primary, (secondary, record[71]));
    let (level, layout) = shape.unwrap_or((Level::Linear, 0));
    let mut refusal = shape.is_none().then(|| {
        let (level, qualifier, over) = (record[67], record[68], record[71]);
        format!("its level {level:#04x}, {qualifier}, in {secondary} parts (level {over}) is not one that md reads")
    });
    const STATE: usize = 32;
    const MORPHING: u8 = 0x8;
    const INCONSISTENT: u8 = 0x10;
    const INITIALIZED: u8 = 2;
    if entry[STATE] & MORPHING != 0 {
        refusal =
            refusal.or_else(|| Some("it is being changed to another shape (DDF's state \"morphing\")".to_owned()));
    }
    let chunk_bytes = match level.has_chunks() {
        true => SECTOR_BYTES.checked_shl(record[66].into()).filter(|bytes| *bytes <= 1 << 30)?,
        false => 0,
    };
    Some(Volume {
        name: text(entry, 48, 16).unwrap_or_default(),
        id: guid.iter().map(|byte| format!("{byte:02x}")).collect(),
        part: own,
        sequence: be32(record, 36).into(),
        level,
        layout,
        chunk_bytes,
        component_bytes: be64(record, 72).checked_mul(SECTOR_BYTES)?,
        bytes: be64(record, 80).checked_mul(SECTOR_BYTES)?,
        slots,
        is_dirty: entry[STATE] & INCONSISTENT != 0 || entry[STATE + 1] & 0x3 != INITIALIZED,
        refusal,
    })
}

/// md's level and layout. `secondary`: the number of parts, and the level over them.
fn shape(level: u8, qualifier: u8, disks: usize, secondary: (usize, u8)) -> Option<(Level, u32)> {
    const STRIPED: u8 = 0;
    const SPANNED: u8 = 3;
    match (level, qualifier, secondary) {
        (0x01, 0, (2.., STRIPED | SPANNED)) if disks == 2 => Some((Level::Raid10, 0x102)),
        (0x01, 1, (2.., STRIPED | SPANNED)) if disks == 3 => Some((Level::Raid10, 0x103)),
        (_, _, (2.., _)) => None,
        (0x00, 0, _) => Some((Level::Raid0, 0)),
        (0x01, 0, _) if disks == 2 => Some((Level::Raid1, 0)),
        (0x01, 1, _) if disks == 3 => Some((Level::Raid1, 0)),
        (0x11, 0, _) => Some((Level::Raid10, 0x102)),
        (0x11, 1, _) => Some((Level::Raid10, 0x201)),
        (0x04, 1, _) => Some((Level::Raid4, 0)),
        (0x05, 0, _) => Some((Level::Raid5, 1)),
        (0x05, 2, _) => Some((Level::Raid5, 0)),
        (0x05, 3, _) => Some((Level::Raid5, 2)),
        (0x06, 1, _) => Some((Level::Raid6, 8)),
        (0x06, 2, _) => Some((Level::Raid6, 9)),
        (0x06, 3, _) => Some((Level::Raid6, 10)),
        _ => None,
    }
}
