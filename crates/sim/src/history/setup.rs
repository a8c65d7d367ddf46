//! The random shape of a history's array: small, and of every kind.

use crate::member::{SimMember, Zeroing};
use engine::create::{Contents, Newcomer, Recipe};
use engine::{AssembleOptions, BitmapClearing, BitmapPolicy, Candidate, StripeSize, SweepTransfers, WriteBack};
use format::geometry::{Level, default_layout};
use format::integrity::BLOCK_BYTES;
use format::placement::BitmapChoice;
use format::superblock::Version;
use std::time::Duration;
use world::Random;

/// The shape of an array and the properties of its members.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The level.
    pub level: Level,
    /// The layout, in the level's own code.
    pub layout: u32,
    /// Metadata version.
    pub version: Version,
    /// The number of slots.
    pub slots: usize,
    /// A slot without a member at creation.
    pub absent: Option<usize>,
    /// The number of spares.
    pub spares: usize,
    /// Bytes of a chunk; 0 at levels without chunks.
    pub chunk_bytes: u64,
    /// Bytes of data on each member.
    pub component_bytes: Vec<u64>,
    /// What limits the resync after a crash.
    pub consistency: Consistency,
    /// Whether members have room for a partial parity log.
    pub has_log_room: bool,
    /// Whether the array begins with a stripe log, beside a bitmap or none.
    pub has_stripe_log: bool,
    /// Bytes of the write journal, if the array has one.
    pub journal_bytes: Option<u64>,
    /// The members' logical block.
    pub block_bytes: u32,
    /// The unit at which a loss of power tears writes.
    pub tear_bytes: u64,
    /// Whether members initially hold noise, so that a resync is needed.
    pub unknown_contents: bool,
    /// Microseconds without a write after which the array is marked clean.
    pub safe_mode_micros: Option<u64>,
    /// How bits are cleared while the array runs, if at all.
    pub clearing: Option<BitmapClearing>,
    /// The unit in which partly changed stripes are moved.
    pub stripe_size: StripeSize,
    /// The size of the stripe cache.
    pub cache_bytes: usize,
    /// Whether sweeps begin as soon as they are due.
    pub kept_whole: bool,
    /// The speed of sweeps, as floor and ceiling, in bytes of each member per second.
    pub sync_speed: Option<u64>,
    /// The sizes of a sweep's transfers.
    pub sweep_transfers: SweepTransfers,
    /// Whether writes are answered from memory.
    pub writeback: bool,
    /// Which of them.
    pub answers: WriteBack,
    /// Whether those writes outlive a kill.
    pub is_buffered: bool,
    /// What each member does on discard and write-zeroes.
    pub zeroing: Vec<Zeroing>,
    /// The factor of latencies and short waits. With a large one, the tasks that run every few seconds run amid
    /// requests.
    pub slowness: u64,
    /// The member timeout in microseconds.
    pub patience_micros: Option<u64>,
    /// Whether members hold checksums.
    pub integrity: bool,
    /// Whether members complete some reads and writes at once.
    pub prompt: bool,
}

/// An array's consistency policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consistency {
    /// Nothing: all stripes are resynced.
    Resync,
    /// A write-intent bitmap with chunks of this many bytes.
    Bitmap(u64),
    /// The partial parity log of RAID-5.
    PartialParity,
}

/// Bytes for metadata on each member, without a log.
const METADATA_BYTES: u64 = 128 << 10;

/// The slowness with latencies of up to two seconds, beside the bitmap's period of five.
const SLOW: u64 = 10_000;

/// The least data of a member in a large array: three windows of a sweep.
const LARGE_BYTES: u64 = 3 << 19;

const RAID5_LAYOUTS: [u32; 6] = [0, 1, 2, 3, 4, 5];
const RAID6_LAYOUTS: [u32; 14] = [0, 1, 2, 3, 4, 5, 8, 9, 10, 16, 17, 18, 19, 20];
/// Near, far and offset layouts, with two and three copies, and far sets.
const RAID10_LAYOUTS: [u32; 8] = [0x102, 0x102, 0x201, 0x103, 0x1_0201, 0x202, 0x301, 0x2_0201];

/// Mostly no member supports zeroing, or all do in the same way; otherwise each differs.
fn zeroing(random: &mut Random, members: usize) -> Vec<Zeroing> {
    use Zeroing::{Discards, DiscardsToNoise, Never, Promises, Zeroes};
    let kinds = [Never, Zeroes, Discards, DiscardsToNoise, Promises];
    match random.within(0..4) {
        0 | 1 => vec![Never; members],
        2 => vec![*random.pick(&kinds); members],
        _ => (0..members).map(|_| *random.pick(&kinds)).collect(),
    }
}

impl Setup {
    /// A random shape.
    pub fn random(random: &mut Random) -> Self {
        use Level::{Linear, Raid0, Raid1, Raid4, Raid5, Raid6, Raid10};
        let level =
            *random.pick(&[Linear, Raid0, Raid1, Raid1, Raid4, Raid5, Raid5, Raid5, Raid6, Raid6, Raid10, Raid10]);
        let redundant = !matches!(level, Linear | Raid0);
        let (layout, fewest) = match level {
            Raid0 => (2, 1),
            Raid5 => (*random.pick(&RAID5_LAYOUTS), 2),
            Raid6 => (*random.pick(&RAID6_LAYOUTS), 4),
            Raid10 => (*random.pick(&RAID10_LAYOUTS), 3),
            Raid4 => (default_layout(level), 2),
            Linear | Raid1 => (default_layout(level), 2),
        };
        let slots = match layout {
            0x2_0201 => 4, // far sets of two
            0x202 => 4 + random.within(0..3) as usize,
            _ => fewest + random.within(0..4) as usize,
        };
        // A large array has several windows, so that a fault can come in the middle of a sweep.
        let large = redundant && random.once_in(24);
        let chunk_bytes = match level {
            Raid1 | Linear => 0,
            _ if large => 4096 << random.within(4..8),
            _ => 4096 << random.within(0..3),
        };
        let component = match level {
            _ if large => (LARGE_BYTES + (random.within(0..4) << 19)).next_multiple_of(chunk_bytes.max(4096)),
            Raid1 => 64 << 10,
            _ => chunk_bytes.max(4096) * random.within(3..7),
        };
        // Superblocks 0.90 are planted here without a bitmap and without spares (`recovery/old.rs` has both).
        let version = match redundant && random.once_in(8) {
            true => Version::V0_90,
            false => *random.pick(&[Version::V1_0, Version::V1_1, Version::V1_2, Version::V1_2]),
        };
        let is_old = version == Version::V0_90;
        let bitmap_chunk = (redundant && !is_old && !random.once_in(3)).then(|| 4096 << random.within(0..3));
        let consistency = bitmap_chunk.map_or(Consistency::Resync, Consistency::Bitmap);
        // From this size on mdadm leaves room for a bitmap.
        let component = if bitmap_chunk.is_some() { component.max(64 << 10) } else { component };
        let unequal = !redundant && random.once_in(2);
        let more = |random: &mut Random| if unequal { 4096 * random.within(0..5) } else { 0 };
        let component_bytes = (0..slots).map(|_| component + more(random)).collect();
        let spares = if redundant && !is_old && random.once_in(3) { random.within(1..3) as usize } else { 0 };
        let kept_whole = redundant && (large || spares > 0 || random.once_in(3)) && !random.once_in(8);
        Self {
            level,
            layout,
            version,
            slots,
            absent: (redundant && random.once_in(10)).then(|| random.within(0..slots as u64) as usize),
            spares,
            chunk_bytes,
            component_bytes,
            consistency,
            has_log_room: false,
            has_stripe_log: false,
            journal_bytes: None,
            block_bytes: if random.once_in(3) { 4096 } else { 512 },
            // A superblock 0.90 is 4 KiB and has no copy: if it is torn, the member is lost, to md as well.
            tear_bytes: if is_old || random.once_in(3) { 4096 } else { 512 },
            unknown_contents: matches!(level, Raid4 | Raid5 | Raid6) && random.once_in(8),
            safe_mode_micros: random.once_in(2).then(|| *random.pick(&[400, 1600, 6400, 200_000])),
            clearing: random.once_in(2).then(|| *random.pick(&[BitmapClearing::Sparing, BitmapClearing::Eager])),
            stripe_size: match level {
                Raid4 | Raid5 | Raid6 if random.once_in(4) => {
                    StripeSize::Fixed(4096 << random.within(0..u64::from((chunk_bytes / 4096).ilog2()) + 1))
                }
                _ => StripeSize::Auto,
            },
            cache_bytes: *random.pick(&[0, 16 << 10, 64 << 10, 1 << 20]),
            kept_whole,
            // A window takes some tenths of a second, or the time of a few writes.
            sync_speed: (large && !random.once_in(4)).then(|| (256 << 10) << random.within(0..10)),
            sweep_transfers: SweepTransfers::default(),
            writeback: matches!(level, Raid4 | Raid5 | Raid6) && random.once_in(4),
            zeroing: zeroing(random, slots + spares),
            slowness: if random.once_in(12) { SLOW } else { 1 },
            // A thousand times a latency, as the simulated parts of a vectored transfer follow each other.
            patience_micros: (kept_whole && random.once_in(2)).then_some(200_000),
            // At levels with redundancy, and with superblocks before the data.
            is_buffered: false,
            answers: WriteBack::All,
            integrity: !is_old && random.once_in(6) && redundant && !version.is_at_end(),
            prompt: false,
        }
    }

    /// Whether the array can have a partial parity log.
    pub(super) fn may_log_parity(&self) -> bool {
        self.level == Level::Raid5 && !self.is_old()
    }

    /// Gives the array room for a partial parity log, and the log, if it is `on` from the beginning. Parity then has to be
    /// right from the beginning, too: md trusts the parity of a dirty array with such a log, also in its first resync.
    pub(super) fn log_parity(&mut self, on: bool) {
        self.has_log_room = true;
        if on {
            self.consistency = Consistency::PartialParity;
            (self.integrity, self.unknown_contents) = (false, false);
        }
    }

    /// Whether the array can have a stripe log.
    pub(super) fn may_log_stripes(&self) -> bool {
        matches!(self.level, Level::Raid4 | Level::Raid5 | Level::Raid6)
            && matches!(self.version, Version::V1_1 | Version::V1_2)
    }

    /// Gives the array a write journal with room for `spare` blocks more than it needs. Parity has to be right from the
    /// beginning: the superblocks of an array with a journal call it clean.
    pub(super) fn journal_writes(&mut self, spare: u64) {
        /// A batch takes at most a quarter of the ring.
        const BATCHES: u64 = 4;
        let blocks = BATCHES * (self.slots as u64 + 1) + spare;
        self.journal_bytes = Some(METADATA_BYTES + blocks * 4096);
        (self.consistency, self.unknown_contents) = (Consistency::Resync, false);
    }

    /// Whether a sweep has several windows.
    pub fn is_large(&self) -> bool {
        self.component_bytes[0] >= LARGE_BYTES
    }

    /// Whether latencies are long.
    pub fn is_slow(&self) -> bool {
        self.slowness > 1
    }

    /// A short time, multiplied by the slowness.
    pub fn micros(&self, micros: u64) -> Duration {
        Duration::from_micros(micros * self.slowness)
    }

    /// Whether the superblocks are 0.90.
    pub fn is_old(&self) -> bool {
        self.version == Version::V0_90
    }

    /// What a write to the array changes at least on a member: checksums are of whole blocks.
    pub(super) fn least_write_bytes(&self) -> usize {
        let bytes = u64::from(self.block_bytes);
        (if self.integrity { bytes.max(BLOCK_BYTES) } else { bytes }) as usize
    }

    /// The number of members, spares included.
    pub fn members(&self) -> usize {
        self.slots + self.spares
    }

    /// Bytes of data on a member. Spares are as long as the last slot's member.
    pub fn data_bytes(&self, member: usize) -> u64 {
        self.component_bytes[member.min(self.slots - 1)]
    }

    /// The length of a member.
    pub fn member_bytes(&self, member: usize) -> u64 {
        self.metadata_bytes() + self.data_bytes(member)
    }

    /// The first byte of data with metadata 1.1 and 1.2, and the room after the data with 1.0. A log has room for a chunk. With 1.0 it has its full size, and keeps several headers.
    fn metadata_bytes(&self) -> u64 {
        match self.has_log_room || self.has_stripe_log {
            false => METADATA_BYTES,
            true if self.version.is_at_end() => METADATA_BYTES + (1 << 20),
            true => METADATA_BYTES + self.chunk_bytes,
        }
    }

    /// The recipe of the array.
    pub fn recipe(&self) -> Recipe {
        let redundant = self.level.is_redundant();
        Recipe {
            // Superblocks 0.90 replace the created ones later.
            version: if self.is_old() { Version::V1_0 } else { self.version },
            layout: self.layout,
            chunk_bytes: self.chunk_bytes,
            name: "sim:history".to_owned(),
            data_offset_bytes: (!self.version.is_at_end()).then_some(self.metadata_bytes()),
            component_bytes: redundant.then(|| self.component_bytes[0]),
            bitmap: match self.consistency {
                Consistency::Bitmap(chunk) => BitmapChoice::Chunk(chunk),
                Consistency::Resync | Consistency::PartialParity => BitmapChoice::None,
            },
            parity_log: self.consistency == Consistency::PartialParity,
            stripe_log: self.has_stripe_log,
            contents: if self.unknown_contents { Contents::Unknown } else { Contents::Consistent },
            integrity: self.integrity,
            ..Recipe::new(self.level, [7; 16])
        }
    }

    /// The options of assembly.
    pub fn options(&self, force: bool) -> AssembleOptions {
        AssembleOptions {
            force,
            bitmap: BitmapPolicy { clearing: self.clearing.unwrap_or_default(), ..BitmapPolicy::default() },
            stripe_size: self.stripe_size,
            cache_bytes: Some(self.cache_bytes),
            ..AssembleOptions::default()
        }
    }

    /// The members of the slots and the spares, for creation.
    pub fn newcomers(&self, members: &[SimMember]) -> (Vec<Option<Newcomer<SimMember>>>, Vec<Newcomer<SimMember>>) {
        let newcomers = members.iter().enumerate().map(|(number, member)| newcomer(number, member));
        let there = |(slot, newcomer)| (Some(slot) != self.absent).then_some(newcomer);
        let slots = newcomers.clone().take(self.slots).enumerate().map(there).collect();
        (slots, newcomers.skip(self.slots).collect())
    }
}

/// The member with this number, for creation.
pub(super) fn newcomer(number: usize, member: &SimMember) -> Newcomer<SimMember> {
    let candidate = Candidate { name: member.name(), member: member.clone() };
    Newcomer { candidate, device_uuid: [number as u8; 16] }
}
