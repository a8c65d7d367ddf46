//! The write journal of levels 4, 5 and 6: data, and then parity, of writes that the members may lack.
//!
//! The journal is a ring of blocks of 4096 bytes on a device of its own. A *meta block* lists payloads, whose blocks
//! follow it. Each meta block has the next sequence number; the first that has not is the end. Nothing here replays a
//! journal.
//!
//! Facts: `struct r5l_meta_block` and the payloads in `md_p.h`, `r5l_recovery_read_meta_block` in
//! `drivers/md/raid5-cache.c`; `docs/format.md`.

use std::mem::{offset_of, size_of};

use zerocopy::little_endian as le;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::Defect;
use crate::superblock::Superblock;
use crate::units::{ComponentByte, SECTOR_BYTES, Sectors};

/// Bytes of a block: of a meta block, and of each block of data or parity.
pub const BLOCK_BYTES: usize = 4096;

/// Sectors of a block.
pub const BLOCK_SECTORS: u64 = BLOCK_BYTES as u64 / SECTOR_BYTES;

const MAGIC: u32 = 0x6433_c509;
const VERSION: u8 = 1;

#[derive(Debug, Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    magic: le::U32,
    checksum: le::U32,
    version: u8,
    padding: [u8; 3],
    meta_size: le::U32,
    sequence: le::U64,
    position: le::U64,
}

const _: () = {
    assert!(size_of::<Raw>() == 32);
    assert!(offset_of!(Raw, meta_size) == 12);
    assert!(offset_of!(Raw, position) == 24);
};

/// Bytes that a meta block has for its payloads.
pub const META_ROOM: usize = BLOCK_BYTES - size_of::<Raw>();

/// Sequence numbers that an empty meta block behind a replayed log leaves out, as the kernel does: no older block that
/// follows has the next one.
pub const SEQUENCE_GAP: u64 = 10_000;

/// The part of a journal's device in which its blocks go round. Positions are from its begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ring {
    blocks: u64,
}

impl Ring {
    /// The ring of the journal with this superblock. It may have no block at all.
    pub fn of(superblock: &Superblock) -> Self {
        Self { blocks: superblock.data_size.0 / BLOCK_SECTORS }
    }

    /// Its length.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Whether a meta block may be there.
    pub fn holds(&self, at: Sectors) -> bool {
        at.0.is_multiple_of(BLOCK_SECTORS) && at.0 / BLOCK_SECTORS < self.blocks
    }

    /// The place `blocks` further on.
    pub fn after(&self, at: Sectors, blocks: u64) -> Sectors {
        Sectors((at.0 / BLOCK_SECTORS + blocks) % self.blocks * BLOCK_SECTORS)
    }

    /// Blocks from one place to another.
    pub fn distance(&self, from: Sectors, to: Sectors) -> u64 {
        (to.0 / BLOCK_SECTORS + self.blocks - from.0 / BLOCK_SECTORS) % self.blocks
    }

    /// Blocks from a place to the end, where the ring begins again.
    pub fn to_the_end(&self, at: Sectors) -> u64 {
        self.blocks - at.0 / BLOCK_SECTORS
    }

    /// The place in the data area.
    pub fn place(&self, at: Sectors) -> ComponentByte {
        ComponentByte(at.bytes())
    }
}

/// What a meta block lists, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload {
    /// A block of data.
    Data {
        /// Its place in the array.
        at: Sectors,
        /// Its checksum.
        checksum: u32,
    },
    /// The parities of a row of a stripe: P, or P and Q.
    Parity {
        /// The row's place in the components.
        at: Sectors,
        /// Their checksums.
        checksums: Vec<u32>,
    },
    /// Rows of stripes that are on the members, so that what the journal has of them counts no more.
    Flush {
        /// The rows' places in the components.
        rows: Vec<Sectors>,
    },
}

impl Payload {
    /// Bytes of a meta block for a row with so many blocks of data and parity.
    pub fn row_bytes(data: usize, parities: usize) -> usize {
        20 * data + 16 + 4 * parities
    }

    /// Blocks that follow the meta block for it.
    pub fn blocks(&self) -> u64 {
        match self {
            Self::Data { .. } => 1,
            Self::Parity { checksums, .. } => checksums.len() as u64,
            Self::Flush { .. } => 0,
        }
    }
}

/// A checked meta block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetaBlock {
    /// One more with each meta block.
    pub sequence: u64,
    /// Its own place in the journal.
    pub position: Sectors,
    /// What it lists.
    pub payloads: Vec<Payload>,
}

/// The journal's CRC-32C of a block, of the array with `set_uuid`. Without the final inversion of the usual one.
pub fn checksum(set_uuid: &[u8; 16], block: &[u8]) -> u32 {
    !crc32c::crc32c_append(crc32c::crc32c(set_uuid), block)
}

fn defect<T>(field: &'static str, reason: impl Into<String>) -> Result<T, Defect> {
    Err(Defect::new(field, reason))
}

impl MetaBlock {
    /// A meta block that lists nothing: where a log without entries begins.
    pub fn empty(sequence: u64, position: Sectors) -> Self {
        Self { sequence, position, payloads: Vec::new() }
    }

    /// Decodes the meta block at `position` of the journal of the array with `set_uuid`, which has `parities`.
    ///
    /// # Errors
    /// When there is none: the bytes are another array's, of another place, damaged, or data.
    pub fn decode(bytes: &[u8], position: Sectors, parities: u16, set_uuid: &[u8; 16]) -> Result<Self, Defect> {
        let Some(bytes) = bytes.get(..BLOCK_BYTES) else {
            return defect("journal", format!("only {} of {BLOCK_BYTES}", bytes.len()));
        };
        let (raw, _) = Raw::ref_from_prefix(bytes).expect("a block is longer");
        if raw.magic.get() != MAGIC || raw.version != VERSION {
            return defect("journal.magic", "no meta block is there");
        }
        if raw.position.get() != position.0 {
            return defect("journal.position", format!("sector {}, but it is at {}", raw.position, position.0));
        }
        let mut zeroed = bytes.to_vec();
        zeroed[offset_of!(Raw, checksum)..][..4].fill(0);
        let expected = checksum(set_uuid, &zeroed);
        if raw.checksum.get() != expected {
            return defect("journal.checksum", format!("{:08x}, but the bytes give {expected:08x}", raw.checksum));
        }
        let Some(mut rest) = bytes.get(size_of::<Raw>()..raw.meta_size.get() as usize) else {
            return defect("journal.meta_size", format!("{} bytes", raw.meta_size));
        };
        let mut payloads = Vec::new();
        while !rest.is_empty() {
            let (payload, after) = Payload::decode(rest, parities)?;
            payloads.push(payload);
            rest = after;
        }
        Ok(Self { sequence: raw.sequence.get(), position, payloads })
    }

    /// Encodes the block; `decode` of the bytes returns `self`.
    ///
    /// # Panics
    /// When the payloads do not fit.
    pub fn encode(&self, set_uuid: &[u8; 16]) -> Vec<u8> {
        let listed: Vec<u8> = self.payloads.iter().flat_map(Payload::encode).collect();
        let mut raw = Raw {
            magic: MAGIC.into(),
            checksum: 0.into(),
            version: VERSION,
            padding: [0; 3],
            meta_size: ((size_of::<Raw>() + listed.len()) as u32).into(),
            sequence: self.sequence.into(),
            position: self.position.0.into(),
        };
        let whole = |raw: &Raw| {
            let mut bytes = raw.as_bytes().to_vec();
            bytes.extend(&listed);
            assert!(bytes.len() <= BLOCK_BYTES, "the payloads of a meta block fit it");
            bytes.resize(BLOCK_BYTES, 0);
            bytes
        };
        raw.checksum = checksum(set_uuid, &whole(&raw)).into();
        whole(&raw)
    }
}

const DATA: u16 = 0;
const PARITY: u16 = 1;
const FLUSH: u16 = 2;

impl Payload {
    /// The payload that `bytes` begin with, and the bytes behind it.
    fn decode(bytes: &[u8], parities: u16) -> Result<(Self, &[u8]), Defect> {
        let short = || Defect::new("journal.meta_size", "it ends within a payload");
        let number = |at: usize| -> Result<u32, Defect> {
            let bytes = bytes.get(at..at + 4).ok_or_else(short)?;
            Ok(u32::from_le_bytes(bytes.try_into().expect("four bytes")))
        };
        let long = |at: usize| Ok::<u64, Defect>(u64::from(number(at)?) | u64::from(number(at + 4)?) << 32);
        let (kind, size) = (number(0)? as u16, u64::from(number(4)?));
        let blocks = match kind {
            DATA => 1,
            PARITY => u64::from(parities),
            FLUSH if size.is_multiple_of(8) => {
                let rows =
                    (0..size as usize / 8).map(|row| long(8 + 8 * row).map(Sectors)).collect::<Result<_, _>>()?;
                return Ok((Self::Flush { rows }, bytes.get(8 + size as usize..).ok_or_else(short)?));
            }
            _ => return defect("journal.type", format!("{kind}, with {size} bytes")),
        };
        if size != blocks * BLOCK_SECTORS {
            return defect("journal.size", format!("{size} sectors of a payload of {blocks} blocks"));
        }
        let at = Sectors(long(8)?);
        let checksums: Vec<u32> = (0..blocks as usize).map(|block| number(16 + 4 * block)).collect::<Result<_, _>>()?;
        let after = bytes.get(16 + 4 * blocks as usize..).ok_or_else(short)?;
        let payload = match kind {
            DATA => Self::Data { at, checksum: checksums[0] },
            _ => Self::Parity { at, checksums },
        };
        Ok((payload, after))
    }

    fn encode(&self) -> Vec<u8> {
        let head = |kind: u16, size: u64| [u32::from(kind).to_le_bytes(), (size as u32).to_le_bytes()].concat();
        let blocks = |kind, at: &Sectors, checksums: &[u32]| {
            let mut bytes = head(kind, self.blocks() * BLOCK_SECTORS);
            bytes.extend(at.0.to_le_bytes());
            bytes.extend(checksums.iter().flat_map(|checksum| checksum.to_le_bytes()));
            bytes
        };
        match self {
            Self::Data { at, checksum } => blocks(DATA, at, &[*checksum]),
            Self::Parity { at, checksums } => blocks(PARITY, at, checksums),
            Self::Flush { rows } => {
                let mut bytes = head(FLUSH, 8 * rows.len() as u64);
                bytes.extend(rows.iter().flat_map(|row| row.0.to_le_bytes()));
                bytes
            }
        }
    }
}
