//! A record of a stripe log: one batch's entries on one member. A head of 4096 bytes, then the partial parity of the
//! entries in order, filled up to whole pages.
//!
//! Nothing here decides which records count. Layout: `docs/format.md`, "Stripe log".

use super::{PAGE_BYTES, checksum, defect};
use crate::Defect;
use std::ops::Range;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

const MAGIC: [u8; 8] = *b"md-strec";

/// The most entries of a record.
pub const ENTRIES_MAX: usize = 64;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct RawEntry {
    stripe: U64,
    start: U32,
    end: U32,
    changed: [U64; 4],
    partial_bytes: U32,
    checksum: U32,
}

#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    checksum: U32,
    count: U32,
    epoch: U64,
    sequence: U64,
    tail: U64,
    offset: U64,
    reserved: [u8; 464],
    entries: [RawEntry; ENTRIES_MAX],
}

const _: () = assert!(size_of::<RawEntry>() == 56 && size_of::<Raw>() == PAGE_BYTES);

/// The most data chunks of a stripe that an entry can name.
pub(super) const DATA_CHUNKS_MAX: u16 = 256;

/// A set of a stripe's data chunks, by index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Chunks([u64; 4]);

impl Chunks {
    /// All data chunks of a stripe with `count` of them.
    ///
    /// # Panics
    /// With more than 256, for which [`super::Place`] finds no place.
    pub fn first(count: u16) -> Self {
        (0..count).collect()
    }

    /// Whether the set has `index`.
    pub fn contains(self, index: u16) -> bool {
        self.0[usize::from(index) / 64] >> (index % 64) & 1 != 0
    }

    /// Whether each index of this set is in `other`.
    pub fn is_within(self, other: Self) -> bool {
        self.0.iter().zip(other.0).all(|(own, other)| own & !other == 0)
    }

    /// The indexes, in order.
    pub fn iter(self) -> impl Iterator<Item = u16> {
        (0..DATA_CHUNKS_MAX).filter(move |index| self.contains(*index))
    }
}

impl FromIterator<u16> for Chunks {
    fn from_iter<I: IntoIterator<Item = u16>>(indexes: I) -> Self {
        let mut set = Self::default();
        indexes.into_iter().for_each(|index| set.0[usize::from(index) / 64] |= 1 << (index % 64));
        set
    }
}

/// One write to rows of a stripe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The stripe's number.
    pub stripe: u64,
    /// The rows, in bytes of the chunk.
    pub rows: Range<u32>,
    /// The data chunks that the write changes.
    pub changed: Chunks,
    /// Bytes of partial parity: as many as `rows`, or none. Without any, the entry repairs nothing and makes older ones
    /// void.
    pub partial_bytes: u32,
    /// CRC-32C of the partial parity.
    pub checksum: u32,
}

impl Entry {
    /// Checks the entry against the array's shape.
    ///
    /// # Errors
    /// A field that cannot be.
    pub fn check(&self, stripes: u64, chunk_bytes: u64, data_chunks: u16) -> Result<(), Defect> {
        let Self { stripe, rows, changed, partial_bytes, .. } = self;
        if *stripe >= stripes {
            return defect("stripe_log.stripe", format!("{stripe}, of {stripes}"));
        }
        if rows.start >= rows.end || u64::from(rows.end) > chunk_bytes {
            return defect("stripe_log.rows", format!("{} to {} of {chunk_bytes}", rows.start, rows.end));
        }
        if *changed == Chunks::default() || changed.iter().any(|index| index >= data_chunks) {
            return defect("stripe_log.changed", format!("{changed:?}, of {data_chunks}"));
        }
        if *partial_bytes != 0 && *partial_bytes != rows.end - rows.start {
            return defect("stripe_log.partial_bytes", format!("{partial_bytes} for {} bytes", rows.end - rows.start));
        }
        Ok(())
    }
}

/// The head of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// [`super::Header::epoch`].
    pub epoch: u64,
    /// The batch: the records of one batch have the same, each later batch has a greater one.
    pub sequence: u64,
    /// [`super::Header::tail`].
    pub tail: u64,
    /// Where the record begins in the ring.
    pub offset: u64,
    /// The writes, at most [`ENTRIES_MAX`].
    pub entries: Vec<Entry>,
}

impl Record {
    /// Bytes in the ring of a record with so many bytes of partial parity.
    pub const fn bytes_with(partial_bytes: u64) -> u64 {
        PAGE_BYTES as u64 + partial_bytes.next_multiple_of(PAGE_BYTES as u64)
    }

    /// Bytes in the ring.
    pub fn bytes(&self) -> u64 {
        Self::bytes_with(self.entries.iter().map(|entry| u64::from(entry.partial_bytes)).sum())
    }

    /// Decodes the page at `offset` of a ring of `ring_bytes`. `None` when it is no record of this log: an older one, partial
    /// parity, or a record that was torn. `seed` is the header's.
    pub fn decode(page: &[u8], offset: u64, ring_bytes: u64, epoch: u64, seed: u32) -> Option<Self> {
        let (raw, _) = Raw::ref_from_prefix(page).ok()?;
        let is_ours = raw.magic == MAGIC && raw.epoch.get() == epoch && raw.offset.get() == offset;
        if !is_ours || raw.checksum.get() != sum(raw, seed) {
            return None;
        }
        let entries = raw.entries.get(..raw.count.get() as usize)?;
        let entry = |raw: &RawEntry| Entry {
            stripe: raw.stripe.get(),
            rows: raw.start.get()..raw.end.get(),
            changed: Chunks(raw.changed.map(U64::get)),
            partial_bytes: raw.partial_bytes.get(),
            checksum: raw.checksum.get(),
        };
        let record = Self {
            epoch,
            sequence: raw.sequence.get(),
            tail: raw.tail.get(),
            offset,
            entries: entries.iter().map(entry).collect(),
        };
        (record.bytes() <= ring_bytes.saturating_sub(offset)).then_some(record)
    }

    /// Encodes the head; `decode` of the bytes returns `self`.
    ///
    /// # Panics
    /// With more than [`ENTRIES_MAX`] entries.
    pub fn encode(&self, seed: u32) -> Vec<u8> {
        let mut raw = Raw {
            magic: MAGIC,
            count: (self.entries.len() as u32).into(),
            epoch: self.epoch.into(),
            sequence: self.sequence.into(),
            tail: self.tail.into(),
            offset: self.offset.into(),
            ..Raw::new_zeroed()
        };
        for (raw, entry) in raw.entries[..self.entries.len()].iter_mut().zip(&self.entries) {
            *raw = RawEntry {
                stripe: entry.stripe.into(),
                start: entry.rows.start.into(),
                end: entry.rows.end.into(),
                changed: entry.changed.0.map(U64::new),
                partial_bytes: entry.partial_bytes.into(),
                checksum: entry.checksum.into(),
            };
        }
        raw.checksum = sum(&raw, seed).into();
        raw.as_bytes().to_vec()
    }
}

fn sum(raw: &Raw, seed: u32) -> u32 {
    let mut zeroed = raw.clone();
    zeroed.checksum = 0.into();
    checksum(zeroed.as_bytes()) ^ seed
}
