//! md's use of the partial parity log, stated anew and not taken from the engine: what it replays when it starts a dirty
//! array, and what it logs of the rows that it writes.
//!
//! A replay sets the parity of each entry's rows to the sum of the changed chunks and the entry's partial parity, on the
//! member that holds the log. It leaves rows of which a changed chunk is missing, and passes over a torn header or entry.
//!
//! Facts: `ppl_load_distributed`, `ppl_recover`, `ppl_recover_entry` and `ppl_write_empty_header` in
//! `drivers/md/raid5-ppl.c`.

use crate::member::SimMember;
use crate::rows::SECTOR_BYTES;
use format::geometry::Parity;
use format::partial_parity::{Entry, HEADER_BYTES, Header, Repair, TORN, checksum};
use format::superblock::Superblock;
use std::ops::Range;

/// A log on a member.
#[derive(Debug, Clone)]
pub(crate) struct Log {
    at: usize,
    bytes: usize,
    is_multiple: bool,
    set_uuid: [u8; 16],
}

/// An entry to be replayed.
pub(crate) struct Due<'a> {
    pub(crate) repair: Repair,
    /// Empty when the write changed all chunks.
    partial: &'a [u8],
}

impl Log {
    /// The log that a superblock names.
    pub(crate) fn of(superblock: &Superblock) -> Option<Self> {
        let (at, place) = (superblock.ppl_at()?.0 as usize, superblock.ppl?);
        let bytes = usize::from(place.sectors) * SECTOR_BYTES;
        Some(Self { at, bytes, is_multiple: place.multiple, set_uuid: superblock.set_uuid })
    }

    /// The entries of the newest header that are not torn.
    pub(crate) fn due<'a>(&self, image: &'a [u8], parity: &Parity) -> Result<Vec<Due<'a>>, String> {
        let Some((header, mut at)) = self.newest(image)? else { return Ok(Vec::new()) };
        let mut due = Vec::with_capacity(header.entries.len());
        for entry in &header.entries {
            let partial = &image[at..at + entry.partial_parity_bytes as usize];
            at += partial.len();
            if checksum(partial) == entry.checksum {
                let repair = entry.repair(parity).map_err(|defect| format!("md would refuse an entry: {defect:?}"))?;
                due.push(Due { repair, partial });
            }
        }
        Ok(due)
    }

    fn newest(&self, image: &[u8]) -> Result<Option<(Header, usize)>, String> {
        let (mut offset, mut newest): (usize, Option<(Header, usize)>) = (0, None);
        while offset + HEADER_BYTES <= self.bytes {
            let at = self.at + offset;
            let header = match Header::decode(&image[at..], &self.set_uuid, (self.bytes - offset) as u64) {
                Ok(header) => header,
                Err(defect) if newest.is_none() && defect.field != TORN => {
                    return Err(format!("md would refuse the partial parity log: {defect:?}"));
                }
                Err(_) => break,
            };
            if newest.as_ref().is_some_and(|(before, _)| before.generation > header.generation) {
                break;
            }
            offset += header.bytes() as usize;
            newest = Some((header, at + HEADER_BYTES));
            if !self.is_multiple {
                break;
            }
        }
        Ok(newest)
    }
}

impl Due<'_> {
    /// The rows' sectors, as component bytes.
    pub(crate) fn sectors(&self) -> impl Iterator<Item = u64> + use<> {
        let Range { start, end } = self.repair.rows;
        (start..end).step_by(SECTOR_BYTES)
    }

    /// The partial parity of the sector at this component byte.
    pub(crate) fn partial(&self, component: u64) -> Option<&[u8]> {
        let at = (component - self.repair.rows.start) as usize;
        self.partial.get(at..at + SECTOR_BYTES)
    }
}

/// The log of a member that md writes to.
pub(crate) struct Written {
    log: Log,
    /// The place of the next header.
    next: usize,
    generation: u64,
}

impl Written {
    /// Begins the log that a superblock names: zeros, with an empty header.
    pub(crate) fn begin(member: &SimMember, superblock: &Superblock) -> Option<Self> {
        let log = Log::of(superblock)?;
        member.plant(log.at as u64, &vec![0; log.bytes]);
        member.plant(log.at as u64, &Header::empty(&log.set_uuid, 1).encode());
        Some(Self { log, next: 0, generation: 1 })
    }

    /// Logs the write of the same rows of all chunks of a stripe, in a header of its own.
    pub(crate) fn add(&mut self, member: &SimMember, parity: &Parity, repair: &Repair) {
        self.generation += 1;
        let entries = vec![Entry::of(parity, repair, &[])];
        let header = Header { entries, ..Header::empty(&self.log.set_uuid, self.generation) };
        member.plant((self.log.at + self.next) as u64, &header.encode());
        let next = self.next + HEADER_BYTES;
        self.next = if self.log.is_multiple && next + HEADER_BYTES <= self.log.bytes { next } else { 0 };
    }
}
