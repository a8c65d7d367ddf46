//! LVM's physical volumes: the label, and the volume group that its metadata describes.
//!
//! The metadata is text in a ring on each physical volume. Its checksum is checked. Only the newest text is read, never
//! older ones. Volumes of linear and striped segments are found on physical volumes ([`LogicalVolume::locate`]); thin
//! volumes and those of RAID name others ([`Content`]), whose metadata [`thin`] and [`raid`] decode.
//!
//! Facts: LVM2's `lib/format_text/layout.h`, `lib/label/label.h`, `lib/misc/crc.c`.

mod group;
pub mod raid;
mod text;
pub mod thin;

pub use group::{Content, Group, LogicalVolume, PhysicalPlace, Segment, Stripe};

use crate::bytes::{array, crc32, le32, le64};
use crate::source::{Source, read_up_to};

/// Sectors in which the label may be.
const LABEL_SECTORS: usize = 4;
const SECTOR_BYTES: u64 = 512;

const LABEL: &[u8] = b"LABELONE";
const AREA_MAGIC: &[u8; 16] = b" LVM2 x[5A%r0N*>";

/// Where the ring of text begins in a metadata area: its header is before.
const RING_AT: u64 = 512;

/// The longest text that is read. LVM itself warns from 1 MiB on.
const TEXT_BYTES_MAX: u64 = 8 << 20;

/// The start of LVM's checksum.
const CHECKSUM_START: u32 = 0xf597_a6cf;

/// The most areas of a physical volume.
const AREAS_MAX: usize = 16;

/// A physical volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhysicalVolume {
    /// Its id: 32 letters and digits.
    pub id: String,
    /// The volume group, or why it is unknown.
    pub group: Result<Group, NoGroup>,
}

/// Why the volume group of a physical volume is unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoGroup {
    /// It has no place for metadata: another physical volume of the group has them.
    Elsewhere,
    /// Its metadata cannot be used.
    Damaged(String),
}

impl std::fmt::Display for NoGroup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Elsewhere => f.write_str("it has no metadata: another physical volume of the group has them"),
            Self::Damaged(reason) => f.write_str(reason),
        }
    }
}

/// Reads the physical volume on `disk`. `None`: there is no label.
pub async fn read<S: Source + ?Sized>(disk: &S) -> Option<PhysicalVolume> {
    let head = read_up_to(disk, 0, LABEL_SECTORS * SECTOR_BYTES as usize).await.ok()?;
    let sector = head.chunks_exact(SECTOR_BYTES as usize).find(|sector| sector.starts_with(LABEL))?;
    let header = sector.get(le32(sector, 20) as usize..).unwrap_or_default();
    let id: [u8; 32] = array(header, 0);
    let id = String::from_utf8_lossy(&id).into_owned();
    let areas = metadata_areas(header);
    let mut group: Result<Group, NoGroup> = Err(NoGroup::Elsewhere);
    for (at, bytes) in areas {
        let text = text_of(disk, at, bytes).await.transpose();
        match (text.map(|text| text.and_then(|text| Group::decode(&text))), &group) {
            (None, _) => {}
            (Some(Ok(found)), Ok(known)) if found.sequence <= known.sequence => {}
            (Some(Ok(found)), _) => group = Ok(found),
            (Some(Err(_)), Ok(_)) => {}
            (Some(Err(reason)), Err(_)) => group = Err(NoGroup::Damaged(reason)),
        }
    }
    Some(PhysicalVolume { id, group })
}

/// Position and length of the metadata areas: the second list behind the id and length, each ending with zeros.
fn metadata_areas(header: &[u8]) -> Vec<(u64, u64)> {
    let mut areas = Vec::new();
    let mut at = 40;
    for is_metadata in [false, true] {
        for _ in 0..AREAS_MAX {
            let area = (le64(header, at), le64(header, at + 8));
            at += 16;
            if area.0 == 0 {
                break;
            }
            if is_metadata {
                areas.push(area);
            }
        }
    }
    areas
}

/// The newest text in a metadata area. `None`: LVM ignores the area, and leaves old text in it.
async fn text_of<S: Source + ?Sized>(disk: &S, at: u64, bytes: u64) -> Result<Option<String>, String> {
    const IGNORED: u32 = 1;
    let header = read_up_to(disk, at, RING_AT as usize).await?;
    if !header.get(4..).is_some_and(|rest| rest.starts_with(AREA_MAGIC)) {
        return Err("its metadata area has no signature".to_owned());
    }
    if le32(&header, 60) & IGNORED != 0 {
        return Ok(None);
    }
    let (start, length, sum) = (le64(&header, 40), le64(&header, 48), le32(&header, 56));
    let is_possible = length > 0 && length <= TEXT_BYTES_MAX && start >= RING_AT && start < bytes;
    if !is_possible || length > bytes {
        return Err(match length {
            0 => "its metadata are empty: it belongs to no volume group".to_owned(),
            _ => format!("its metadata area names {length} bytes at {start}, which it does not have"),
        });
    }
    // A text that reaches the ring's end continues behind its header.
    let first = length.min(bytes - start);
    let position = |offset: u64| at.checked_add(offset).ok_or("its metadata area is beyond any disk");
    let mut text = read_up_to(disk, position(start)?, first as usize).await?;
    text.extend(read_up_to(disk, position(RING_AT)?, (length - first) as usize).await?);
    if crc32(CHECKSUM_START, &text) != sum {
        return Err("its metadata have a wrong checksum".to_owned());
    }
    Ok(Some(String::from_utf8_lossy(&text).trim_end_matches('\0').to_owned()))
}
