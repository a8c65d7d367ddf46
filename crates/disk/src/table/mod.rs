//! Partition tables: which one counts, and the partitions in bytes.
//!
//! A disk may hold several tables that contradict each other. The choice is the kernel's: an MBR without a protective
//! entry counts before a GPT, which is then a leftover. A GPT whose first copy is damaged is read from its second.
//! Beyond the kernel, which knows the device's sector, a table may count in sectors of another size than the device's:
//! USB bridges present disks of 512-byte sectors as disks of 4096, and back. A GPT shows its sector by its position; an
//! MBR does not, so the partitions' contents decide.
//!
//! Whatever is odd about the table is a note.

mod gpt;
mod mbr;
mod types;

use crate::source::{Source, read_up_to};

/// The kind of a partition table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The GUID partition table.
    Gpt,
    /// The table of a master boot record, with extended partitions.
    Mbr,
}

impl Kind {
    /// The usual name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gpt => "GPT",
            Self::Mbr => "MBR",
        }
    }
}

/// A partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// Its number, as the kernel counts: logical partitions begin with 5.
    pub number: u32,
    /// Its first byte on the disk.
    pub at: u64,
    /// Its length in bytes by the table, which may exceed the disk.
    pub bytes: u64,
    /// Its type: a GUID, or a number such as `0xfd`.
    pub type_id: String,
    /// What the type means, if it is a well-known one.
    pub type_name: Option<&'static str>,
    /// Its name, if it has one.
    pub name: Option<String>,
}

/// A partition table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Its kind.
    pub kind: Kind,
    /// The sector size in which it counts.
    pub sector_bytes: u32,
    /// The partitions, without extended ones, which hold only others.
    pub partitions: Vec<Partition>,
    /// What is odd about it, in sentences without a full stop.
    pub notes: Vec<String>,
}

/// Sector sizes in use.
const SECTORS: [u32; 2] = [512, 4096];

/// The first bytes of a disk that are read: both places of a GPT header.
const HEAD_BYTES: usize = 8192;

/// Finds the partition table of a disk. `None`: there is none, or none that can be used.
///
/// # Errors
/// When the start of the disk cannot be read, and no second copy of a GPT is there.
pub async fn find<S: Source + ?Sized>(disk: &S) -> Result<Option<Table>, String> {
    let head = read_up_to(disk, 0, HEAD_BYTES).await;
    let start = head.as_deref().unwrap_or_default();
    let primary = mbr::Primary::decode(start);
    // A GPT that no protective entry covers is a leftover, unless the MBR has no partition at all.
    let own = primary.as_ref().filter(|primary| !primary.is_protective() && primary.has_partitions());
    if let Some(own) = own
        && let Some(mut table) = mbr::read(disk, own).await
    {
        if gpt::is_hinted(start) {
            table.notes.push("a GPT is there too, but the MBR has no protective entry: the MBR counts".to_owned());
        }
        return Ok(Some(finished(disk, table)));
    }
    let gpt = gpt::read(disk, start, primary.is_some()).await;
    match (gpt, head) {
        (Some(mut table), head) => {
            if let Err(reason) = head {
                table.notes.push(format!("the start of the disk cannot be read ({reason})"));
            }
            if let Some(primary) = &primary {
                primary.compare(&mut table);
            }
            Ok(Some(finished(disk, table)))
        }
        (None, Ok(_)) => match &primary {
            // A protective MBR whose GPT is lost may be a hybrid.
            Some(hybrid) if hybrid.has_partitions() => {
                let table = mbr::read(disk, hybrid).await;
                Ok(table.map(|mut table| {
                    table
                        .notes
                        .push("its GPT is damaged in both copies: only the MBR's partitions are known".to_owned());
                    finished(disk, table)
                }))
            }
            _ => Ok(None),
        },
        (None, Err(reason)) => Err(reason),
    }
}

/// The table, with notes on partitions that cannot be right.
fn finished<S: Source + ?Sized>(disk: &S, mut table: Table) -> Table {
    let disk_bytes = disk.bytes();
    for Partition { number, at, bytes, .. } in &table.partitions {
        let end = at.saturating_add(*bytes);
        if end > disk_bytes {
            table.notes.push(format!(
                "partition {number} ends at byte {end}, past the end at {disk_bytes}: the image is cut off, or of another disk"
            ));
        }
    }
    let mut sorted: Vec<&Partition> = table.partitions.iter().collect();
    sorted.sort_unstable_by_key(|partition| partition.at);
    for pair in sorted.windows(2) {
        if pair[0].at.saturating_add(pair[0].bytes) > pair[1].at {
            table.notes.push(format!("partitions {} and {} overlap", pair[0].number, pair[1].number));
        }
    }
    table
}
