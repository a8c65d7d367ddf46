//! The write-intent bitmap: the parts of the array whose members may disagree.
//!
//! A superblock of 256 bytes, then one bit for each bitmap chunk, lowest bit of the first byte first. A set bit means
//! that the chunk was being written. After an unclean stop, only these chunks need a resync. A stale bitmap is
//! worthless: then every chunk needs a resync.
//!
//! The lockless variant has a byte of state in place of each bit ([`crate::lockless`]).
//!
//! Decoding never writes and never repairs. Facts: `drivers/md/md-bitmap.{c,h}`, `drivers/md/md-llbitmap.c`;
//! `docs/format.md`.

use std::mem::{offset_of, size_of};
use std::ops::Range;

use zerocopy::little_endian as le;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::Defect;
use crate::lockless;
use crate::units::{SECTOR_BYTES, Sectors};

/// `bitm`.
const MAGIC: u32 = 0x6d74_6962;

/// Bytes of the bitmap's superblock. The bits follow it.
pub const SUPER_BYTES: usize = 256;

/// The kernel writes bitmaps in whole blocks of this many bytes.
const BLOCK_BYTES: u64 = 4096;

/// Maximum of `write_behind`.
const WRITE_BEHIND_MAX: u32 = 16383;

#[derive(Debug, Clone, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    magic: le::U32,
    version: le::U32,
    uuid: [u8; 16],
    events: le::U64,
    events_cleared: le::U64,
    sync_size: le::U64,
    state: le::U32,
    chunksize: le::U32,
    daemon_sleep: le::U32,
    write_behind: le::U32,
    sectors_reserved: le::U32,
    nodes: le::U32,
    cluster_name: [u8; 64],
    pad: [u8; 120],
}

const _: () = {
    assert!(size_of::<Raw>() == SUPER_BYTES);
    assert!(offset_of!(Raw, events) == 24);
    assert!(offset_of!(Raw, sync_size) == 40);
    assert!(offset_of!(Raw, chunksize) == 52);
    assert!(offset_of!(Raw, sectors_reserved) == 64);
    assert!(offset_of!(Raw, pad) == 136);
};

/// The variants of the bitmap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Version 3: bits in the byte order of the machine that created it.
    HostEndian,
    /// Version 4: created by mdadm.
    Normal,
    /// Version 5: one bitmap per node of a cluster.
    Clustered,
    /// Version 6: a byte of state per chunk instead of a bit, and the size of a chunk in sectors instead of bytes.
    Lockless,
}

impl Kind {
    /// Bytes in which the superblock counts the size of a chunk.
    fn chunk_unit(self) -> u64 {
        if self == Self::Lockless { SECTOR_BYTES } else { 1 }
    }

    /// Bytes of the bitmap before the first chunk's bit or state.
    pub fn head_bytes(self) -> u64 {
        if self == Self::Lockless { lockless::STATES_AT } else { SUPER_BYTES as u64 }
    }

    /// Bytes that the bits or states of this many chunks take.
    pub fn map_bytes(self, chunks: u64) -> u64 {
        if self == Self::Lockless { chunks } else { chunks.div_ceil(8) }
    }
}

/// The `state` field. Bits without a name are preserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct State(pub u32);

impl State {
    /// The bitmap is stale: every chunk counts as set.
    pub const STALE: Self = Self(1 << 1);
    /// Writing the bitmap failed: every chunk counts as set.
    pub const WRITE_ERROR: Self = Self(1 << 2);
    /// A lockless bitmap that mdadm made, and that no kernel has begun to use. It has no states yet.
    pub const FIRST_USE: Self = Self(1 << 3);
    /// A lockless bitmap whose clearing took longer than its period. It means nothing on disk.
    pub const DAEMON_BUSY: Self = Self(1 << 5);

    /// Whether all of `other`'s bits are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// A checked bitmap superblock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BitmapSuper {
    /// The variant.
    pub kind: Kind,
    /// The array's identity.
    pub uuid: [u8; 16],
    /// The events of the superblock at the last write.
    pub events: u64,
    /// The events at which bits were last cleared. Frozen while the array is degraded, so that a member of that age can
    /// be re-added by copying the set chunks only.
    pub events_cleared: u64,
    /// Sectors covered by the bits: the component for levels 1, 4, 5, 6; the array for 10.
    pub sync_size: Sectors,
    /// Whether the bits can be trusted.
    pub state: State,
    /// Bytes covered by one bit; a power of two.
    pub chunk_bytes: u64,
    /// Seconds that a bit stays set after the last write to its chunk.
    pub daemon_sleep_seconds: u32,
    /// Maximum number of outstanding writes on write-mostly members; 0: none.
    pub write_behind: u32,
    /// Sectors reserved for the bitmap; 0: not recorded.
    pub sectors_reserved: u32,
    /// Nodes of the cluster; 0 without a cluster.
    pub nodes: u32,
    /// Name of the cluster, zero-padded.
    pub cluster_name: [u8; 64],
    /// Unknown bytes, preserved.
    pad: [u8; 120],
}

fn defect<T>(field: &'static str, reason: impl Into<String>) -> Result<T, Defect> {
    Err(Defect::new(field, reason))
}

impl BitmapSuper {
    /// A valid bitmap of a new array, with md's defaults.
    ///
    /// # Panics
    /// When `chunk_bytes` is not a power of two from 512 to 2 GiB.
    pub fn new(uuid: [u8; 16], sync_size: Sectors, chunk_bytes: u64, events: u64) -> Self {
        assert!(chunk_bytes.is_power_of_two() && (SECTOR_BYTES..=1 << 31).contains(&chunk_bytes));
        Self {
            kind: Kind::Normal,
            uuid,
            events,
            events_cleared: events,
            sync_size,
            state: State::default(),
            chunk_bytes,
            daemon_sleep_seconds: 5,
            write_behind: 0,
            sectors_reserved: 0,
            nodes: 0,
            cluster_name: [0; 64],
            pad: [0; 120],
        }
    }

    /// A valid lockless bitmap of a new array, with md's defaults, in a room of `reserved`.
    ///
    /// # Panics
    /// As [`Self::new`].
    pub fn new_lockless(uuid: [u8; 16], sync_size: Sectors, chunk_bytes: u64, events: u64, reserved: Sectors) -> Self {
        Self {
            kind: Kind::Lockless,
            daemon_sleep_seconds: lockless::DAEMON_SLEEP_SECONDS,
            sectors_reserved: u32::try_from(reserved.0).expect("a bitmap has less than 2 TiB"),
            ..Self::new(uuid, sync_size, chunk_bytes, events)
        }
    }

    /// Decodes the superblock at the start of `bytes`. `room_bytes` limits the bitmap's length
    /// ([`crate::superblock::Superblock::bitmap_room`]).
    ///
    /// # Errors
    /// When there is no bitmap, a field is wrong, or the bits do not fit the room.
    pub fn decode(bytes: &[u8], room_bytes: u64) -> Result<Self, Defect> {
        let Ok((raw, _)) = Raw::ref_from_prefix(bytes) else {
            return defect("bitmap", format!("only {} of {SUPER_BYTES}", bytes.len()));
        };
        if raw.magic.get() != MAGIC {
            return defect("bitmap.magic", format!("{:08x}, not {MAGIC:08x}", raw.magic));
        }
        let Some(kind) = Self::kind_of(bytes) else {
            return defect("bitmap.version", format!("{} is not 3, 4, 5 or 6", raw.version));
        };
        let bitmap = Self::from_raw(kind, raw);
        bitmap.check(room_bytes)?;
        Ok(bitmap)
    }

    /// The variant of the bitmap whose superblock is at the start of `bytes`, whatever else it says.
    pub fn kind_of(bytes: &[u8]) -> Option<Kind> {
        let (raw, _) = Raw::ref_from_prefix(bytes).ok()?;
        match raw.version.get() {
            _ if raw.magic.get() != MAGIC => None,
            3 => Some(Kind::HostEndian),
            4 => Some(Kind::Normal),
            5 => Some(Kind::Clustered),
            6 => Some(Kind::Lockless),
            _ => None,
        }
    }

    fn from_raw(kind: Kind, raw: &Raw) -> Self {
        Self {
            kind,
            uuid: raw.uuid,
            events: raw.events.get(),
            events_cleared: raw.events_cleared.get(),
            sync_size: Sectors(raw.sync_size.get()),
            state: State(raw.state.get()),
            chunk_bytes: u64::from(raw.chunksize.get()) * kind.chunk_unit(),
            daemon_sleep_seconds: raw.daemon_sleep.get(),
            write_behind: raw.write_behind.get(),
            sectors_reserved: raw.sectors_reserved.get(),
            nodes: raw.nodes.get(),
            cluster_name: raw.cluster_name,
            pad: raw.pad,
        }
    }

    fn check(&self, room_bytes: u64) -> Result<(), Defect> {
        if !self.chunk_bytes.is_power_of_two() || self.chunk_bytes < SECTOR_BYTES {
            return defect("bitmap.chunksize", format!("{} is not a power of two from 512 up", self.chunk_bytes));
        }
        if self.sync_size.checked_bytes().is_none() {
            return defect("bitmap.sync_size", format!("{} sectors overflow", self.sync_size.0));
        }
        if self.daemon_sleep_seconds == 0 {
            return defect("bitmap.daemon_sleep", "0 seconds, but at least 1 is needed");
        }
        if self.write_behind > WRITE_BEHIND_MAX {
            return defect("bitmap.write_behind", format!("{}, more than {WRITE_BEHIND_MAX}", self.write_behind));
        }
        let needed = self.kind.map_bytes(self.bits()).checked_add(self.kind.head_bytes());
        if needed.is_none_or(|needed| needed > room_bytes) {
            let reason = format!("{} bits do not fit the {room_bytes} bytes available", self.bits());
            return defect("bitmap.sync_size", reason);
        }
        Ok(())
    }

    /// Encodes the superblock; `decode` of the bytes returns `self`.
    ///
    /// # Panics
    /// When `chunk_bytes` was changed to more than 32 bits hold.
    pub fn encode(&self) -> [u8; SUPER_BYTES] {
        let raw = Raw {
            magic: MAGIC.into(),
            version: match self.kind {
                Kind::HostEndian => 3,
                Kind::Normal => 4,
                Kind::Clustered => 5,
                Kind::Lockless => 6,
            }
            .into(),
            uuid: self.uuid,
            events: self.events.into(),
            events_cleared: self.events_cleared.into(),
            sync_size: self.sync_size.0.into(),
            state: self.state.0.into(),
            chunksize: u32::try_from(self.chunk_bytes / self.kind.chunk_unit())
                .expect("the size of a bitmap chunk has 32 bits")
                .into(),
            daemon_sleep: self.daemon_sleep_seconds.into(),
            write_behind: self.write_behind.into(),
            sectors_reserved: self.sectors_reserved.into(),
            nodes: self.nodes.into(),
            cluster_name: self.cluster_name,
            pad: self.pad,
        };
        zerocopy::transmute!(raw)
    }

    /// Whether `state` has bits unknown to this crate, or that say that the bitmap has no content yet; newer kernels
    /// define more.
    pub fn has_unknown_state(&self) -> bool {
        let lockless = if self.kind == Kind::Lockless { State::DAEMON_BUSY.0 } else { 0 };
        self.state.0 & !(State::STALE.0 | State::WRITE_ERROR.0 | lockless) != 0
    }

    /// The number of valid bits. Later bits on disk have no meaning.
    pub fn bits(&self) -> u64 {
        self.sync_size.bytes().div_ceil(self.chunk_bytes)
    }

    /// How many of the bits are set in `map`, the bytes after the superblock.
    ///
    /// # Panics
    /// When `map` is shorter than the bits.
    pub fn bits_set(&self, map: &[u8]) -> u64 {
        (0..self.bits()).filter(|&bit| is_set(map, bit)).count() as u64
    }

    /// Bytes of superblock and bits or states.
    pub fn used_bytes(&self) -> u64 {
        self.kind.head_bytes() + self.kind.map_bytes(self.bits())
    }

    /// Bytes of superblock and bits, in whole blocks of 4 KiB as the kernel writes them. Where the room ends sooner, as
    /// 1 KiB after a 1.0 superblock, whole sectors.
    pub fn bytes_on_disk(&self, room_bytes: u64) -> u64 {
        let bytes = self.used_bytes();
        let blocks = bytes.next_multiple_of(BLOCK_BYTES);
        if blocks <= room_bytes { blocks } else { bytes.next_multiple_of(SECTOR_BYTES) }
    }

    /// The bits that cover `bytes`, a byte range of what [`Self::sync_size`] measures. Rounded outwards, and cut at the
    /// last bit.
    pub fn bits_of(&self, bytes: Range<u64>) -> Range<u64> {
        if bytes.is_empty() {
            return 0..0;
        }
        let end = bytes.end.div_ceil(self.chunk_bytes).min(self.bits());
        (bytes.start / self.chunk_bytes).min(end)..end
    }

    /// The first part of a range whose bits are all set in `map`, limited to about `most` bytes.
    ///
    /// # Panics
    /// When `map`, the bytes after the superblock, is shorter than the bits.
    pub fn first_set(&self, map: &[u8], bytes: Range<u64>, most: u64) -> Option<Range<u64>> {
        let Range { mut start, end } = self.bits_of(bytes.clone());
        while start < end && !is_set(map, start) {
            // Eight at once where none of them is set.
            let is_zero = start.is_multiple_of(8) && map[(start / 8) as usize] == 0;
            start += if is_zero { 8 } else { 1 };
        }
        let limit = end.min(start + most.max(1).div_ceil(self.chunk_bytes));
        let stop = (start..limit).find(|&bit| !is_set(map, bit)).unwrap_or(limit);
        let set = bytes.start.max(start * self.chunk_bytes)..bytes.end.min(stop * self.chunk_bytes);
        (start < end).then_some(set)
    }

    /// The byte range that `bit` covers. The last may be shorter than a chunk.
    pub fn bytes_of(&self, bit: u64) -> Range<u64> {
        let start = bit * self.chunk_bytes;
        start..(start + self.chunk_bytes).min(self.sync_size.bytes())
    }
}

/// Whether `bit` is set in `map`, the bytes after the superblock.
///
/// # Panics
/// When `map` is shorter.
pub fn is_set(map: &[u8], bit: u64) -> bool {
    map[(bit / 8) as usize] >> (bit % 8) & 1 == 1
}

/// Sets `bits` in `map`.
///
/// # Panics
/// When `map` is shorter.
pub fn set_range(map: &mut [u8], bits: Range<u64>) {
    change(map, bits, |byte, mask| *byte |= mask);
}

/// Clears `bits` in `map`.
///
/// # Panics
/// When `map` is shorter.
pub fn clear_range(map: &mut [u8], bits: Range<u64>) {
    change(map, bits, |byte, mask| *byte &= !mask);
}

/// Applies `edit` to every byte that contains some of `bits`, with the mask of those bits.
fn change(map: &mut [u8], bits: Range<u64>, edit: impl Fn(&mut u8, u8)) {
    if bits.is_empty() {
        return;
    }
    let (first, last) = ((bits.start / 8) as usize, ((bits.end - 1) / 8) as usize);
    let first_mask = 0xff_u8 << (bits.start % 8);
    let last_mask = 0xff_u8 >> (7 - (bits.end - 1) % 8);
    if first == last {
        edit(&mut map[first], first_mask & last_mask);
        return;
    }
    edit(&mut map[first], first_mask);
    for byte in &mut map[first + 1..last] {
        edit(byte, 0xff);
    }
    edit(&mut map[last], last_mask);
}
