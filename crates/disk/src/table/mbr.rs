//! The table of a master boot record: four entries, and a chain of extended boot records with logical partitions.
//!
//! The record does not say in which sectors it counts. With extended partitions the chain shows it; otherwise the
//! partitions' starts are looked at in both sizes, and the size with more contents counts. 512 wins a draw.
//!
//! A boot sector of FAT or NTFS looks like a table, so a record counts only if each boot flag is 0 or 0x80 and no file
//! system's signature is there, as in the kernel's `block/partitions/msdos.c`.

use super::{Kind, Partition, SECTORS, Table, types};
use crate::bytes::{array, le16, le32};
use crate::content;
use crate::source::{Section, Source, read_up_to};

/// Types of extended partitions.
const EXTENDED: [u8; 3] = [0x05, 0x0f, 0x85];

/// The type of the entry that protects a GPT.
const PROTECTIVE: u8 = 0xee;

/// The most logical partitions: more are no table but a loop.
const LOGICAL_MAX: usize = 128;

/// One of the four entries of a record.
#[derive(Debug, Clone, Copy)]
struct Entry {
    kind: u8,
    first: u32,
    sectors: u32,
}

impl Entry {
    fn is_used(&self) -> bool {
        self.kind != 0 && self.sectors != 0
    }

    fn is_extended(&self) -> bool {
        self.is_used() && EXTENDED.contains(&self.kind)
    }

    fn is_partition(&self) -> bool {
        self.is_used() && !self.is_extended() && self.kind != PROTECTIVE
    }
}

/// The record in the disk's first sector.
pub(super) struct Primary {
    entries: [Entry; 4],
}

/// The four entries of the record in `sector`, if there is one.
fn entries(sector: &[u8]) -> Option<[Entry; 4]> {
    if le16(sector, 510) != 0xaa55 {
        return None;
    }
    let is_flag = |index: usize| matches!(sector.get(446 + 16 * index), Some(0 | 0x80));
    if !(0..4).all(is_flag) {
        return None;
    }
    Some([0, 1, 2, 3].map(|index| {
        let entry: [u8; 16] = array(sector, 446 + 16 * index);
        Entry { kind: entry[4], first: le32(&entry, 8), sectors: le32(&entry, 12) }
    }))
}

impl Primary {
    /// Decodes the first sector of a disk. `None`: it holds no table.
    pub(super) fn decode(head: &[u8]) -> Option<Self> {
        let has = |at: usize, magic: &[u8]| head.get(at..).is_some_and(|bytes| bytes.starts_with(magic));
        let is_file_system = has(54, b"FAT") || has(82, b"FAT32") || has(3, b"NTFS    ") || has(3, b"EXFAT   ");
        let entries = entries(head).filter(|_| !is_file_system)?;
        entries.iter().any(Entry::is_used).then_some(Self { entries })
    }

    /// Whether it protects a GPT.
    pub(super) fn is_protective(&self) -> bool {
        self.entries.iter().any(|entry| entry.kind == PROTECTIVE)
    }

    /// Whether it has partitions of its own.
    pub(super) fn has_partitions(&self) -> bool {
        self.entries.iter().any(|entry| entry.is_partition() || entry.is_extended())
    }

    /// Notes in `table`, a GPT, which of this record's partitions it does not have.
    pub(super) fn compare(&self, table: &mut Table) {
        let sector = u64::from(table.sector_bytes);
        let mut is_hybrid = false;
        for entry in self.entries.iter().filter(|entry| entry.is_partition()) {
            is_hybrid = true;
            let (at, bytes) = (u64::from(entry.first) * sector, u64::from(entry.sectors) * sector);
            if !table.partitions.iter().any(|partition| partition.at == at && partition.bytes == bytes) {
                table.notes.push(format!(
                    "the MBR has a partition that the GPT has not, from byte {at}, of {bytes} bytes: the GPT counts"
                ));
            }
        }
        if is_hybrid {
            table.notes.push("hybrid: an MBR names some of the GPT's partitions".to_owned());
        }
    }
}

/// The table of `primary`, in the sector size that its partitions show. `None`: it has no partition.
pub(super) async fn read<S: Source + ?Sized>(disk: &S, primary: &Primary) -> Option<Table> {
    let mut best: Option<(Table, usize)> = None;
    for sector in SECTORS {
        let table = read_in(disk, primary, sector).await;
        let evidence = evidence(disk, &table).await;
        if !table.partitions.is_empty() && best.as_ref().is_none_or(|(_, most)| evidence > *most) {
            best = Some((table, evidence));
        }
    }
    best.map(|(table, _)| table)
}

/// How many partitions begin with something known, or hold logical ones.
async fn evidence<S: Source + ?Sized>(disk: &S, table: &Table) -> usize {
    let mut count = 0;
    for Partition { at, bytes, number, .. } in &table.partitions {
        let is_known = content::is_known(&Section::new(disk, *at, *bytes)).await;
        count += usize::from(is_known || *number > 4);
    }
    count
}

async fn read_in<S: Source + ?Sized>(disk: &S, primary: &Primary, sector: u32) -> Table {
    let mut table = Table { kind: Kind::Mbr, sector_bytes: sector, partitions: Vec::new(), notes: Vec::new() };
    for (index, entry) in primary.entries.iter().enumerate() {
        if entry.is_partition() {
            table.partitions.push(partition(entry, index as u32 + 1, entry.first.into(), sector));
        }
    }
    let extended: Vec<&Entry> = primary.entries.iter().filter(|entry| entry.is_extended()).collect();
    for entry in &extended {
        read_chain(disk, entry, &mut table).await;
    }
    if extended.len() > 1 {
        table.notes.push("it has several extended partitions".to_owned());
    }
    table
}

fn partition(entry: &Entry, number: u32, first: u64, sector: u32) -> Partition {
    let Entry { kind, sectors, .. } = *entry;
    Partition {
        number,
        // A start has 33 bits and a sector 13, so neither product overflows.
        at: first * u64::from(sector),
        bytes: u64::from(sectors) * u64::from(sector),
        type_id: format!("{kind:#04x}"),
        type_name: types::of_number(kind),
        name: None,
    }
}

/// Adds the logical partitions of an extended one. Links are relative to the extended partition, and partitions to the
/// record that names them.
async fn read_chain<S: Source + ?Sized>(disk: &S, extended: &Entry, table: &mut Table) {
    let sector = u64::from(table.sector_bytes);
    let (start, length) = (u64::from(extended.first), u64::from(extended.sectors));
    let mut visited = Vec::new();
    let mut next = Some(0);
    while let Some(link) = next.take() {
        let record = start + u64::from(link);
        if visited.contains(&link) || visited.len() == LOGICAL_MAX {
            table.notes.push("the chain of its logical partitions has a loop".to_owned());
            return;
        }
        visited.push(link);
        let read = read_up_to(disk, record * sector, 512).await;
        let Some(entries) = read.ok().and_then(|bytes| entries(&bytes)) else {
            let at = record * sector;
            table.notes.push(format!("the chain of its logical partitions is damaged, or ends, at byte {at}"));
            return;
        };
        for entry in entries.iter().filter(|entry| entry.is_partition()) {
            let number = table.partitions.iter().map(|partition| partition.number).max().unwrap_or(0).max(4) + 1;
            let first = record + u64::from(entry.first);
            if first < start + length {
                table.partitions.push(partition(entry, number, first, table.sector_bytes));
            } else {
                table.notes.push(format!("logical partition {number} begins outside of the extended one: left out"));
            }
        }
        next = entries.iter().find(|entry| entry.is_extended()).map(|entry| entry.first);
    }
}
