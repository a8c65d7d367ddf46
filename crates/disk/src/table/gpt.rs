//! The GUID partition table, and its second copy at the disk's end.
//!
//! A copy counts if its header and its entries have right checksums and its own position is what it says. The first
//! copy counts before the second. Facts: UEFI 2.10, 5.3; the kernel's `block/partitions/efi.c`.

use super::{Kind, Partition, SECTORS, Table, types};
use crate::bytes::{array, guid, le16, le32, le64};
use crate::source::{Source, read_up_to};

const SIGNATURE: &[u8] = b"EFI PART";

/// The least length of a header.
const HEADER_BYTES: usize = 92;

/// The most bytes of entries that are read. Usual are 16 KiB, and no tool writes more than 64.
const ENTRIES_BYTES_MAX: u64 = 1 << 20;

/// Lengths of an entry that the specification allows begin with this one.
const ENTRY_BYTES: u32 = 128;

/// A valid header.
struct Header {
    sector_bytes: u32,
    alternate: u64,
    disk: [u8; 16],
    entries_at: u64,
    count: u32,
    entry_bytes: u32,
    entries_sum: u32,
}

/// A valid copy of the table.
struct Copy {
    header: Header,
    at: u64,
    partitions: Vec<Partition>,
    skipped: Vec<u32>,
}

fn crc(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

/// Whether the first bytes of a disk have a header's signature at one of its places.
pub(super) fn is_hinted(head: &[u8]) -> bool {
    SECTORS.iter().any(|sector| head.get(*sector as usize..).is_some_and(|bytes| bytes.starts_with(SIGNATURE)))
}

/// Reads the table: the first copy, or the second. `has_mbr`: whether there is a boot record, as there should be.
pub(super) async fn read<S: Source + ?Sized>(disk: &S, head: &[u8], has_mbr: bool) -> Option<Table> {
    let mut first = None;
    let mut reason = "has no signature".to_owned();
    for sector in SECTORS {
        match copy_at(disk, sector, u64::from(sector)).await {
            Ok(copy) => {
                first = Some(copy);
                break;
            }
            Err(None) => {}
            Err(Some(why)) => reason = why,
        }
    }
    let second = second_copy(disk, first.as_ref()).await;
    let mut notes = Vec::new();
    if !has_mbr && !head.is_empty() {
        notes.push("the protective MBR is damaged or missing".to_owned());
    }
    let copy = match (first, second) {
        (Some(first), Ok(second)) => {
            if first.partitions != second.partitions || first.header.disk != second.header.disk {
                notes.push(format!(
                    "the two copies of the GPT differ: the first is used; the second, at byte {}, is of another time or disk",
                    second.at
                ));
            }
            first
        }
        (Some(first), Err(why)) => {
            let why = why.unwrap_or_else(|| "has no signature".to_owned());
            notes.push(format!("the second copy of the GPT {why}"));
            first
        }
        (None, Ok(second)) => {
            notes.push(format!("the first copy of the GPT {reason}: the second, at byte {}, is used", second.at));
            second
        }
        (None, Err(_)) => return None,
    };
    notes.extend(copy.skipped.iter().map(|number| format!("partition {number} ends before it begins: left out")));
    Some(Table { kind: Kind::Gpt, sector_bytes: copy.header.sector_bytes, partitions: copy.partitions, notes })
}

/// The second copy: in the last sector, or where the first says.
async fn second_copy<S: Source + ?Sized>(disk: &S, first: Option<&Copy>) -> Result<Copy, Option<String>> {
    let mut places: Vec<(u32, u64)> = Vec::new();
    if let Some(Copy { header, .. }) = first {
        places.extend(header.alternate.checked_mul(header.sector_bytes.into()).map(|at| (header.sector_bytes, at)));
    }
    let last = |sector: u32| (disk.bytes() / u64::from(sector)).checked_sub(1).map(|last| last * u64::from(sector));
    places.extend(SECTORS.iter().filter_map(|sector| Some((*sector, last(*sector)?))));
    let mut reason = None;
    for (sector, at) in places {
        match copy_at(disk, sector, at).await {
            Ok(copy) => return Ok(copy),
            Err(why) => reason = reason.or(why),
        }
    }
    Err(reason)
}

/// The copy whose header is at byte `at`. The error says what is wrong; `None`: there is no signature.
async fn copy_at<S: Source + ?Sized>(disk: &S, sector: u32, at: u64) -> Result<Copy, Option<String>> {
    let unreadable = |reason| Some(format!("cannot be read ({reason})"));
    let sector_of = read_up_to(disk, at, sector as usize).await.map_err(unreadable)?;
    if !sector_of.starts_with(SIGNATURE) {
        return Err(None);
    }
    let header = Header::decode(&sector_of, sector, at).map_err(Some)?;
    let length = u64::from(header.count) * u64::from(header.entry_bytes);
    if length > ENTRIES_BYTES_MAX {
        return Err(Some(format!("claims {} entries of {} bytes", header.count, header.entry_bytes)));
    }
    let entries = read_up_to(disk, header.entries_at, length as usize).await.map_err(unreadable)?;
    if (entries.len() as u64) < length || crc(&entries) != header.entries_sum {
        return Err(Some("has a wrong checksum of its entries".to_owned()));
    }
    let mut copy = Copy { header, at, partitions: Vec::new(), skipped: Vec::new() };
    for (index, entry) in entries.chunks_exact(copy.header.entry_bytes as usize).enumerate() {
        let number = index as u32 + 1;
        match partition(entry, number, sector) {
            Some(Some(partition)) => copy.partitions.push(partition),
            Some(None) => copy.skipped.push(number),
            None => {}
        }
    }
    Ok(copy)
}

impl Header {
    /// Decodes the header in the sector at byte `at`.
    fn decode(bytes: &[u8], sector_bytes: u32, at: u64) -> Result<Self, String> {
        let length = le32(bytes, 12) as usize;
        let Some(header) = bytes.get(..length).filter(|_| length >= HEADER_BYTES) else {
            return Err(format!("has a header of {length} bytes"));
        };
        let mut summed = header.to_vec();
        summed[16..20].fill(0);
        if crc(&summed) != le32(header, 16) {
            return Err("has a wrong checksum of its header".to_owned());
        }
        let own = le64(header, 24);
        if own.checked_mul(sector_bytes.into()) != Some(at) {
            return Err(format!("says that it is in sector {own}, which it is not"));
        }
        let entry_bytes = le32(header, 84);
        if entry_bytes < ENTRY_BYTES || !entry_bytes.is_power_of_two() {
            return Err(format!("has entries of {entry_bytes} bytes"));
        }
        let entries_at = le64(header, 72).checked_mul(sector_bytes.into());
        Ok(Self {
            sector_bytes,
            alternate: le64(header, 32),
            disk: array(header, 56),
            entries_at: entries_at.ok_or("has entries beyond any disk")?,
            count: le32(header, 80),
            entry_bytes,
            entries_sum: le32(header, 88),
        })
    }
}

/// The partition of an entry. `None`: the entry is unused. `Some(None)`: it makes no sense.
fn partition(entry: &[u8], number: u32, sector: u32) -> Option<Option<Partition>> {
    let type_bytes: [u8; 16] = array(entry, 0);
    if type_bytes == [0; 16] {
        return None;
    }
    let (first, last) = (le64(entry, 32), le64(entry, 40));
    let type_id = guid(type_bytes);
    let range = || {
        let sectors = last.checked_sub(first)?.checked_add(1)?;
        Some((first.checked_mul(sector.into())?, sectors.checked_mul(sector.into())?))
    };
    Some(range().map(|(at, bytes)| Partition {
        number,
        at,
        bytes,
        type_name: types::of_guid(&type_id),
        type_id,
        name: name(entry),
    }))
}

/// The name: up to 36 units of UTF-16.
fn name(entry: &[u8]) -> Option<String> {
    let units: Vec<u16> = (0..36).map(|index| le16(entry, 56 + 2 * index)).take_while(|unit| *unit != 0).collect();
    (!units.is_empty()).then(|| String::from_utf16_lossy(&units))
}
