//! The partial parity log of RAID-5. It closes the write hole without a journal: it keeps the parity of the chunks that
//! a write does not change.
//!
//! A header of 4096 bytes, then the partial parity of its entries in order. It is on the member with the stripe's
//! parity. Nothing here replays a log; [`Repair`] says what a replay does for an entry.
//!
//! Facts: `Documentation/driver-api/md/raid5-ppl.rst`, `drivers/md/raid5-ppl.c`, `struct ppl_header` in `md_p.h`;
//! `docs/format.md`.

mod repair;

pub use repair::Repair;

use std::mem::{offset_of, size_of};

use zerocopy::little_endian as le;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::Defect;

/// Bytes of a header. Partial parity follows.
pub const HEADER_BYTES: usize = 4096;

/// Maximum number of entries in a header.
pub const ENTRIES_MAX: usize = 148;

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawEntry {
    data_sector: le::U64,
    pp_size: le::U32,
    data_size: le::U32,
    parity_disk: le::U32,
    checksum: le::U32,
}

#[derive(Debug, Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    reserved: [u8; 512],
    signature: le::U32,
    padding: le::U32,
    generation: le::U64,
    entries_count: le::U32,
    checksum: le::U32,
    entries: [RawEntry; ENTRIES_MAX],
    unused: [u8; 8],
}

const _: () = {
    assert!(size_of::<RawEntry>() == 24);
    assert!(size_of::<Raw>() == HEADER_BYTES);
    assert!(offset_of!(Raw, signature) == 512);
    assert!(offset_of!(Raw, generation) == 520);
    assert!(offset_of!(Raw, checksum) == 532);
    assert!(offset_of!(Raw, entries) == 536);
};

/// One write that may have to be repaired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The start of the written data in the array, in sectors of 512 bytes, whatever the members' logical blocks are.
    pub data_sector: u64,
    /// Bytes of partial parity in the log; 0 when whole stripes were written.
    pub partial_parity_bytes: u32,
    /// Bytes of written data, from `data_sector` on.
    pub data_bytes: u32,
    /// The slot of the stripe's parity.
    pub parity_slot: u32,
    /// CRC-32C of the partial parity.
    pub checksum: u32,
}

/// A checked header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Ties the log to its array: [`signature`] of the array's uuid.
    pub signature: u32,
    /// Raised with each header written; the newest of several headers is valid.
    pub generation: u64,
    /// The writes in flight. Empty: nothing to repair.
    pub entries: Vec<Entry>,
}

/// The field of a header's defect when its checksum is wrong. Such a header was torn while it was written, so that none
/// of its writes had begun.
pub const TORN: &str = "ppl.checksum";

/// The log's CRC-32C.
pub fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// The signature in the headers of the array with `set_uuid`.
pub fn signature(set_uuid: &[u8; 16]) -> u32 {
    checksum(set_uuid)
}

fn defect<T>(field: &'static str, reason: impl Into<String>) -> Result<T, Defect> {
    Err(Defect::new(field, reason))
}

impl Header {
    /// A header without writes in flight.
    pub fn empty(set_uuid: &[u8; 16], generation: u64) -> Self {
        Self { signature: signature(set_uuid), generation, entries: Vec::new() }
    }

    /// Decodes a header of the array with `set_uuid`. `log_bytes` limits the header and its partial parity.
    ///
    /// # Errors
    /// When it is truncated, another array's, or damaged, or its entries do not fit.
    pub fn decode(bytes: &[u8], set_uuid: &[u8; 16], log_bytes: u64) -> Result<Self, Defect> {
        let Ok((raw, _)) = Raw::ref_from_prefix(bytes) else {
            return defect("ppl", format!("only {} of {HEADER_BYTES}", bytes.len()));
        };
        // md writes an empty header before the log is used, so the signature is there also in a torn one.
        if raw.signature.get() != signature(set_uuid) {
            return defect("ppl.signature", format!("{:08x} is not this array's", raw.signature));
        }
        let expected = header_checksum(raw);
        if raw.checksum.get() != expected {
            return defect(TORN, format!("{:08x}, but the bytes give {expected:08x}", raw.checksum));
        }
        let count = raw.entries_count.get() as usize;
        let Some(entries) = raw.entries.get(..count) else {
            return defect("ppl.entries_count", format!("{count}, more than {ENTRIES_MAX}"));
        };
        let entries: Vec<Entry> = entries.iter().map(Entry::from_raw).collect();
        let header = Self { signature: raw.signature.get(), generation: raw.generation.get(), entries };
        if header.bytes() > log_bytes {
            return defect("ppl.pp_size", format!("entries end at byte {} of a log of {log_bytes}", header.bytes()));
        }
        Ok(header)
    }

    /// Bytes of the header and the partial parity of its entries. The next of several headers follows.
    pub fn bytes(&self) -> u64 {
        let partial: u64 = self.entries.iter().map(|entry| u64::from(entry.partial_parity_bytes)).sum();
        HEADER_BYTES as u64 + partial
    }

    /// Encodes the header; `decode` of the bytes returns `self`.
    ///
    /// # Panics
    /// With more than [`ENTRIES_MAX`] entries.
    pub fn encode(&self) -> Vec<u8> {
        let mut raw = Raw {
            reserved: [0xff; 512],
            signature: self.signature.into(),
            generation: self.generation.into(),
            entries_count: (self.entries.len() as u32).into(),
            ..Raw::new_zeroed()
        };
        for (slot, entry) in raw.entries[..self.entries.len()].iter_mut().zip(&self.entries) {
            *slot = entry.to_raw();
        }
        raw.checksum = header_checksum(&raw).into();
        raw.as_bytes().to_vec()
    }
}

fn header_checksum(raw: &Raw) -> u32 {
    let mut zeroed = raw.clone();
    zeroed.checksum = 0.into();
    checksum(zeroed.as_bytes())
}

impl Entry {
    fn from_raw(raw: &RawEntry) -> Self {
        Self {
            data_sector: raw.data_sector.get(),
            partial_parity_bytes: raw.pp_size.get(),
            data_bytes: raw.data_size.get(),
            parity_slot: raw.parity_disk.get(),
            checksum: raw.checksum.get(),
        }
    }

    fn to_raw(self) -> RawEntry {
        RawEntry {
            data_sector: self.data_sector.into(),
            pp_size: self.partial_parity_bytes.into(),
            data_size: self.data_bytes.into(),
            parity_disk: self.parity_slot.into(),
            checksum: self.checksum.into(),
        }
    }
}
