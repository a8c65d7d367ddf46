//! The index of an overlay: which blocks of a member an overlay's data file holds, and whose member that is. A format
//! of our own; the kernel never sees it. Layout: `docs/format.md`, "Overlays".
//!
//! An index is a header and a log of records. A record names runs of blocks whose data was on stable storage before the
//! record was written. A record is complete or does not count: after a power loss the last one may be torn, and the
//! blocks that it names are then the member's own. A record that is damaged although a later one is whole was complete
//! once, so the index is refused: what it named cannot be told.
//!
//! A member may be the image of a failing disk, with a map of what the image lacks. The header keeps these holes: the
//! blocks of the overlay were written over them, and without them zeros of the image would be data.
//!
//! Nothing here reads a file, and no memory is taken in proportion to an unchecked field.

use crate::Defect;
use std::collections::BTreeMap;
use std::ops::Range;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The bytes of a block, in which an overlay keeps a member's data: a sector, the smallest unit that is written. So no
/// block is ever written in part, and a sector that was written hides no sector beside it.
pub const BLOCK_BYTES: u64 = 512;

/// The bytes at each end of a member of which the header has a checksum.
pub const END_BYTES: u64 = 1 << 20;

/// The samples between the ends of which the header has a checksum, and the bytes of each.
pub const SAMPLES: u64 = 64;
/// See [`SAMPLES`].
pub const SAMPLE_BYTES: u64 = 4096;

const MAGIC: [u8; 8] = *b"mdsp-ovl";
const RECORD_MAGIC: [u8; 8] = *b"mdsp-rec";
const VERSION: u32 = 3;

/// Header and records begin at multiples of this.
const ALIGNMENT: usize = 8;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 8],
    version: U32,
    /// Of everything behind it in the header, the name included.
    checksum: U32,
    member_bytes: U64,
    first: U32,
    last: U32,
    block_bytes: U32,
    name_bytes: U32,
    modified: U64,
    events: U64,
    samples: U32,
    /// The number of holes behind the name.
    holes: U32,
    boot: [u8; 16],
    sectors_written: U64,
    disk_bytes: U64,
    /// 1 if there is a map, whose holes these are.
    has_map: U32,
    reserved: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct RawHole {
    at: U64,
    bytes: U64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct RawRecord {
    magic: [u8; 8],
    /// Of everything behind it in the record, the runs included.
    checksum: U32,
    count: U32,
    /// Where the record is, so that bytes of another place are never taken for it.
    at: U64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct RawRun {
    first: U64,
    blocks: U64,
}

/// The bytes before what a checksum covers.
const UNSUMMED_HEADER: usize = 16;
const UNSUMMED_RECORD: usize = 12;

/// The CRC-32C of `bytes`, as overlays have it.
pub fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// The member that an overlay belongs to, as it was when the overlay was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// How the member is opened: a path, or what stands for one.
    pub name: Vec<u8>,
    /// Its contents.
    pub identity: Identity,
    /// What it lacks, if it is an image with a map.
    pub holes: Option<Holes>,
}

/// What the image of a failing disk lacks, by its map.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holes {
    /// The end of what the map describes, in bytes of the member.
    pub disk_bytes: u64,
    /// The ranges that were not read, ascending and without overlap.
    pub ranges: Vec<Range<u64>>,
}

/// What a member held when its overlay was made. Every change of a superblock changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The member's length.
    pub bytes: u64,
    /// The checksum of its first [`END_BYTES`], or of all if it is shorter.
    pub first: u32,
    /// The checksum of its last [`END_BYTES`].
    pub last: u32,
    /// When it was last written to, in nanoseconds since 1970; 0 for what has no such time, as a device.
    pub modified: u64,
    /// The events of its superblock of md; 0 if it has none.
    pub events: u64,
    /// The checksum of [`SAMPLES`] places between the ends, of what has no time of its last write.
    pub samples: u32,
    /// What the kernel has written to it, if it is a device.
    pub written: Option<Written>,
}

/// The sectors that a kernel has written to a device since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Which start of which kernel; not zero.
    pub boot: [u8; 16],
    /// The sectors.
    pub sectors: u64,
}

impl Identity {
    /// What has changed to `now`, as a field and its values; `None` if the member is the same. The field that tells most
    /// comes first. Counts of two starts of the kernel have nothing in common.
    pub fn change(&self, now: &Self) -> Option<String> {
        let numbers = |field: &str, then: u64, now: u64| Some(format!("{field} is {now}, and was {then}"));
        let sectors = self.written.zip(now.written).filter(|(then, now)| then.boot == now.boot);
        match sectors {
            _ if self.bytes != now.bytes => numbers("its length", self.bytes, now.bytes),
            _ if self.events != now.events => numbers("superblock.events", self.events, now.events),
            _ if self.first != now.first => Some("its first MiB is another".to_owned()),
            _ if self.last != now.last => Some("its last MiB is another".to_owned()),
            _ if self.modified != now.modified => Some("the time of the last write to its file is another".to_owned()),
            _ if self.samples != now.samples => Some("bytes between its ends are others".to_owned()),
            Some((then, now)) if then.sectors != now.sectors => {
                Some(format!("the kernel has written {} sectors to it", now.sectors.wrapping_sub(then.sectors)))
            }
            _ => None,
        }
    }
}

impl Header {
    /// The length of the overlay: the member's, or that of the disk by its map, in whole blocks.
    pub fn bytes(&self) -> u64 {
        let of_disk = self.holes.as_ref().map_or(0, |holes| holes.disk_bytes / BLOCK_BYTES * BLOCK_BYTES);
        self.identity.bytes.max(of_disk)
    }

    /// The bytes of a header that begins with `start`, by its unchecked fields; `None` if that is too short to tell.
    pub fn encoded_bytes(start: &[u8]) -> Option<u64> {
        let (raw, _) = RawHeader::ref_from_prefix(start).ok()?;
        let name = u64::from(raw.name_bytes.get()).next_multiple_of(ALIGNMENT as u64);
        Some(size_of::<RawHeader>() as u64 + name + u64::from(raw.holes.get()) * size_of::<RawHole>() as u64)
    }

    /// The bytes of the header. The first record follows them.
    ///
    /// # Panics
    /// When the name has 4 GiB or more, or there are as many holes.
    pub fn encode(&self) -> Vec<u8> {
        let Identity { bytes, first, last, modified, events, samples, written } = self.identity;
        let name_bytes = u32::try_from(self.name.len()).expect("a name is short");
        let ranges = self.holes.as_ref().map_or(&[][..], |holes| &holes.ranges);
        let raw = RawHeader {
            magic: MAGIC,
            version: VERSION.into(),
            checksum: 0.into(),
            member_bytes: bytes.into(),
            first: first.into(),
            last: last.into(),
            block_bytes: (BLOCK_BYTES as u32).into(),
            name_bytes: name_bytes.into(),
            modified: modified.into(),
            events: events.into(),
            samples: samples.into(),
            holes: u32::try_from(ranges.len()).expect("a map is a text of a gigabyte at most").into(),
            boot: written.map_or([0; 16], |written| written.boot),
            sectors_written: written.map_or(0, |written| written.sectors).into(),
            disk_bytes: self.holes.as_ref().map_or(0, |holes| holes.disk_bytes).into(),
            has_map: u32::from(self.holes.is_some()).into(),
            reserved: 0.into(),
        };
        let mut encoded = raw.as_bytes().to_vec();
        encoded.extend_from_slice(&self.name);
        encoded.resize(encoded.len().next_multiple_of(ALIGNMENT), 0);
        for Range { start, end } in ranges {
            encoded.extend_from_slice(RawHole { at: (*start).into(), bytes: (end - start).into() }.as_bytes());
        }
        seal(&mut encoded, UNSUMMED_HEADER);
        encoded
    }

    /// Decodes the header of an index, and returns where the first record is.
    ///
    /// # Errors
    /// When it is damaged, of another version, or not whole.
    pub fn decode(bytes: &[u8]) -> Result<(Self, usize), Defect> {
        let defect = |field, reason: String| Err(Defect::new(field, reason));
        let Ok((raw, rest)) = RawHeader::ref_from_prefix(bytes) else {
            return defect("overlay.header", format!("only {} bytes", bytes.len()));
        };
        if raw.magic != MAGIC {
            return defect("overlay.magic", "not the index of an overlay".to_owned());
        }
        if raw.version.get() != VERSION {
            return defect("overlay.version", format!("{}, this mdspace knows {VERSION}", raw.version));
        }
        let name_bytes = raw.name_bytes.get() as usize;
        let end = Self::encoded_bytes(bytes).and_then(|end| usize::try_from(end).ok());
        let Some((whole, end)) = end.and_then(|end| Some((bytes.get(..end)?, end))) else {
            return defect("overlay.name_bytes", format!("{name_bytes} and {} holes, but the index ends", raw.holes));
        };
        let sum = checksum(&whole[UNSUMMED_HEADER..]);
        if raw.checksum.get() != sum {
            return defect("overlay.checksum", format!("{:08x}, but the header gives {sum:08x}", raw.checksum));
        }
        if u64::from(raw.block_bytes.get()) != BLOCK_BYTES {
            return defect("overlay.block_bytes", format!("{}, this mdspace knows {BLOCK_BYTES}", raw.block_bytes));
        }
        let identity = Identity {
            bytes: raw.member_bytes.get(),
            first: raw.first.get(),
            last: raw.last.get(),
            modified: raw.modified.get(),
            events: raw.events.get(),
            samples: raw.samples.get(),
            written: (raw.boot != [0; 16]).then(|| Written { boot: raw.boot, sectors: raw.sectors_written.get() }),
        };
        let holes = &whole[size_of::<RawHeader>() + name_bytes.next_multiple_of(ALIGNMENT)..];
        let holes = Holes { disk_bytes: raw.disk_bytes.get(), ranges: ranges(holes)? };
        let holes = match raw.has_map.get() {
            1 => Some(holes),
            0 if holes == Holes::default() => None,
            other => return defect("overlay.has_map", format!("{other}, and there are holes")),
        };
        Ok((Self { name: rest[..name_bytes].to_vec(), identity, holes }, end))
    }
}

/// The ranges of the holes in `bytes`, which is all of them.
fn ranges(bytes: &[u8]) -> Result<Vec<Range<u64>>, Defect> {
    let (raw, _) = <[RawHole]>::ref_from_prefix(bytes).expect("whole holes, of any alignment");
    let mut found: Vec<Range<u64>> = Vec::with_capacity(raw.len());
    for hole in raw {
        let (at, bytes) = (hole.at.get(), hole.bytes.get());
        let before = found.last().map_or(0, |last| last.end);
        match at.checked_add(bytes).filter(|_| bytes > 0 && at >= before) {
            Some(end) => found.push(at..end),
            None => {
                let reason = format!("{bytes} bytes at byte {at}, behind a hole that ends at {before}");
                return Err(Defect::new("overlay.holes", reason));
            }
        }
    }
    Ok(found)
}

/// Writes the checksum of what is behind the first `unsummed` bytes in front of it.
fn seal(bytes: &mut [u8], unsummed: usize) {
    let sum = checksum(&bytes[unsummed..]);
    let field = if unsummed == UNSUMMED_HEADER { 12..16 } else { 8..12 };
    bytes[field].copy_from_slice(&sum.to_le_bytes());
}

/// A decoded index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    /// The member.
    pub header: Header,
    /// The blocks that the data file holds.
    pub blocks: Blocks,
    /// Where the next record belongs. Bytes behind it are of a torn record.
    pub end: u64,
}

impl Index {
    /// Decodes an index.
    ///
    /// # Errors
    /// When the header is damaged or of another version, or a record other than the last is damaged.
    pub fn decode(bytes: &[u8]) -> Result<Self, Defect> {
        let (header, mut end) = Header::decode(bytes)?;
        let blocks_of_member = header.bytes().div_ceil(BLOCK_BYTES);
        let mut blocks = Blocks::default();
        while let Some((runs, next)) = record(bytes, end) {
            for run in runs {
                let (first, count) = (run.first.get(), run.blocks.get());
                match first.checked_add(count) {
                    Some(behind) if behind <= blocks_of_member => blocks.insert(first..behind),
                    _ => {
                        let reason = format!("{count} blocks from {first} on, but the member has {blocks_of_member}");
                        return Err(Defect::new("overlay.record", reason));
                    }
                }
            }
            end = next;
        }
        let mut later = (end..bytes.len()).step_by(ALIGNMENT).skip(1);
        if let Some(at) = later.find(|at| record(bytes, *at).is_some()) {
            let reason = format!("the record at byte {end} is damaged, and one at byte {at} is whole");
            return Err(Defect::new("overlay.record", reason));
        }
        Ok(Self { header, blocks, end: end as u64 })
    }
}

/// The runs of the record at byte `at` of an index, and where the next record is; `None` if no whole record is there.
fn record(bytes: &[u8], at: usize) -> Option<(&[RawRun], usize)> {
    let here = bytes.get(at..)?;
    let (raw, rest) = RawRecord::ref_from_prefix(here).ok()?;
    if raw.magic != RECORD_MAGIC || raw.at.get() != at as u64 {
        return None;
    }
    let count = raw.count.get() as usize;
    let (runs, _) = <[RawRun]>::ref_from_prefix_with_elems(rest, count).ok()?;
    let length = size_of::<RawRecord>() + size_of_val(runs);
    let is_whole = raw.checksum.get() == checksum(&here[UNSUMMED_RECORD..length]);
    is_whole.then_some((runs, at + length))
}

/// The record of `blocks`, for byte `at` of an index.
///
/// # Panics
/// When the blocks are in four thousand million runs or more.
pub fn encode_record(at: u64, blocks: &Blocks) -> Vec<u8> {
    let runs: Vec<RawRun> =
        blocks.runs().map(|run| RawRun { first: run.start.into(), blocks: (run.end - run.start).into() }).collect();
    let count = u32::try_from(runs.len()).expect("a record has fewer runs");
    let raw = RawRecord { magic: RECORD_MAGIC, checksum: 0.into(), count: count.into(), at: at.into() };
    let mut encoded = raw.as_bytes().to_vec();
    encoded.extend_from_slice(runs.as_bytes());
    seal(&mut encoded, UNSUMMED_RECORD);
    encoded
}

/// A set of blocks, as ranges that neither overlap nor touch: the beginning of each, and its end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Blocks(BTreeMap<u64, u64>);

impl Blocks {
    /// Adds the blocks of `range`.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let Range { mut start, mut end } = range;
        while let Some((&first, &behind)) = self.0.range(..=end).next_back().filter(|(_, behind)| **behind >= start) {
            self.0.remove(&first);
            start = start.min(first);
            end = end.max(behind);
        }
        self.0.insert(start, end);
    }

    /// Removes the blocks of `others`.
    pub fn remove(&mut self, others: &Self) {
        for gone in others.runs() {
            while let Some((&first, &behind)) =
                self.0.range(..gone.end).next_back().filter(|(_, behind)| **behind > gone.start)
            {
                self.0.remove(&first);
                if behind > gone.end {
                    self.0.insert(gone.end, behind);
                }
                if first < gone.start {
                    self.0.insert(first, gone.start);
                }
            }
        }
    }

    /// Whether the first block of `range` is in the set, and up to which block the others of the range are as it is.
    pub fn run(&self, range: Range<u64>) -> (bool, u64) {
        match self.0.range(..=range.start).next_back() {
            Some((_, &behind)) if behind > range.start => (true, behind.min(range.end)),
            _ => {
                let next = self.0.range(range.start..).next().map_or(range.end, |(&first, _)| first);
                (false, next.min(range.end))
            }
        }
    }

    /// The blocks, as ascending ranges that do not touch.
    pub fn runs(&self) -> impl ExactSizeIterator<Item = Range<u64>> {
        self.0.iter().map(|(&first, &behind)| first..behind)
    }

    /// The number of blocks.
    pub fn count(&self) -> u64 {
        self.runs().map(|run| run.end - run.start).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header() -> Header {
        Header { name: b"/images/a.img".to_vec(), identity: identity(), holes: None }
    }

    fn identity() -> Identity {
        let written = Some(Written { boot: [5; 16], sectors: 6 });
        let bytes = 20_000 * BLOCK_BYTES - 100;
        Identity { bytes, first: 7, last: 8, modified: 9, events: 10, samples: 11, written }
    }

    /// An index with a record of each of `sets`, and where each ends.
    fn index(sets: &[Vec<Range<u64>>]) -> (Vec<u8>, Vec<usize>) {
        let mut bytes = header().encode();
        let mut ends = vec![bytes.len()];
        for set in sets {
            let mut blocks = Blocks::default();
            set.iter().for_each(|run| blocks.insert(run.clone()));
            let record = encode_record(bytes.len() as u64, &blocks);
            bytes.extend_from_slice(&record);
            ends.push(bytes.len());
        }
        (bytes, ends)
    }

    fn sets() -> impl Strategy<Value = Vec<Vec<Range<u64>>>> {
        let run = (0_u64..19_000, 1_u64..1000).prop_map(|(first, count)| first..first + count);
        prop::collection::vec(prop::collection::vec(run, 1..4), 1..6)
    }

    proptest! {
        #[test]
        fn a_set_of_blocks_is_the_set_that_was_inserted(sets in sets(), probe in 0_u64..20_000, length in 1_u64..9000) {
            let mut truth = vec![false; 30_000];
            let mut blocks = Blocks::default();
            for run in sets.iter().flatten() {
                truth[run.start as usize..run.end as usize].fill(true);
                blocks.insert(run.clone());
            }
            let mut removed = Blocks::default();
            removed.insert(sets[0][0].clone());
            truth[sets[0][0].start as usize..sets[0][0].end as usize].fill(false);
            blocks.remove(&removed);
            prop_assert_eq!(blocks.count(), truth.iter().filter(|is_in| **is_in).count() as u64);
            let (is_in, behind) = blocks.run(probe..probe + length);
            let same = truth[probe as usize..(probe + length) as usize].iter().take_while(|one| **one == is_in).count();
            prop_assert_eq!((is_in, behind), (truth[probe as usize], probe + same as u64));
            let mut listed = vec![false; 30_000];
            blocks.runs().for_each(|run| listed[run.start as usize..run.end as usize].fill(true));
            prop_assert!(listed == truth);
        }

        #[test]
        fn an_index_cut_anywhere_has_the_records_that_are_whole(sets in sets(), cut in 0.0..1.0) {
            let (bytes, ends) = index(&sets);
            let cut = ends[0] + ((bytes.len() - ends[0]) as f64 * cut) as usize;
            let whole = ends.iter().filter(|end| **end <= cut).count() - 1;
            let mut expected = Blocks::default();
            sets[..whole].iter().flatten().for_each(|run| expected.insert(run.clone()));
            let mut garbled = bytes.clone();
            garbled[cut..].iter_mut().for_each(|byte| *byte = !*byte);
            for torn in [&bytes[..cut], &garbled] {
                let decoded = Index::decode(torn).expect("a torn record is none");
                prop_assert_eq!(decoded, Index { header: header(), blocks: expected.clone(), end: ends[whole] as u64 });
            }
        }

        #[test]
        fn a_changed_byte_is_never_a_changed_set(sets in sets(), at in 0.0..1.0, bit in 0_u32..8) {
            let (mut bytes, ends) = index(&sets);
            let at = (bytes.len() as f64 * at) as usize;
            bytes[at] ^= 1 << bit;
            let whole = ends.iter().filter(|end| **end <= at).count();
            match Index::decode(&bytes) {
                // Only the last record may be taken for a torn one.
                Ok(index) => prop_assert_eq!((whole, index.end), (sets.len(), ends[sets.len() - 1] as u64)),
                Err(defect) => prop_assert!(whole < sets.len(), "{}", defect),
            }
        }
    }

    #[test]
    fn what_is_no_index_is_refused_with_its_field() {
        let whole = index(&[std::iter::once(3..5).collect()]).0;
        let changed = |at: usize, value: u8| {
            let mut bytes = whole.clone();
            bytes[at] = value;
            bytes
        };
        let past_the_end = {
            let mut bytes = header().encode();
            let mut blocks = Blocks::default();
            blocks.insert(19_999..20_001);
            let record = encode_record(bytes.len() as u64, &blocks);
            bytes.extend_from_slice(&record);
            bytes
        };
        for (bytes, field) in [
            (Vec::new(), "overlay.header"),
            (whole[..30].to_vec(), "overlay.header"),
            (changed(0, b'M'), "overlay.magic"),
            (changed(8, 1), "overlay.version"),
            (changed(36, 200), "overlay.name_bytes"),
            (changed(60, 200), "overlay.name_bytes"),
            (changed(105, b'J'), "overlay.checksum"),
            (with_holes(&[5..7, 6..8]), "overlay.holes"),
            (with_holes(&[3..4, 5..5]), "overlay.holes"),
            (past_the_end, "overlay.record"),
        ] {
            assert_eq!(Index::decode(&bytes).expect_err(field).field, field);
        }
    }

    fn with_holes(ranges: &[Range<u64>]) -> Vec<u8> {
        let holes = Some(Holes { disk_bytes: 1 << 20, ranges: ranges.to_vec() });
        Header { holes, ..header() }.encode()
    }

    #[test]
    fn the_holes_of_a_map_are_kept_and_none_are_something_else_than_no_map() {
        for (holes, bytes) in [
            (None, identity().bytes),
            (Some(Holes::default()), identity().bytes),
            (Some(Holes { disk_bytes: 30_000 * BLOCK_BYTES + 7, ranges: vec![1..9, 9..10] }), 30_000 * BLOCK_BYTES),
        ] {
            let header = Header { holes, ..header() };
            let encoded = header.encode();
            assert_eq!(Header::encoded_bytes(&encoded), Some(encoded.len() as u64));
            assert_eq!(header.bytes(), bytes);
            assert_eq!(Header::decode(&encoded), Ok((header, encoded.len())));
        }
    }

    #[test]
    fn every_change_of_a_member_has_a_name_and_another_start_of_the_kernel_is_none() {
        let then = identity();
        let count = |boot, sectors| Some(Written { boot: [boot; 16], sectors });
        for (now, words) in [
            (then, None),
            (Identity { written: count(6, 1), ..then }, None),
            (Identity { written: None, ..then }, None),
            (Identity { bytes: 5, events: 11, ..then }, Some("its length is 5, and was 10239900")),
            (Identity { events: 11, first: 0, ..then }, Some("superblock.events is 11, and was 10")),
            (Identity { first: 0, ..then }, Some("its first MiB is another")),
            (Identity { last: 0, ..then }, Some("its last MiB is another")),
            (Identity { modified: 0, ..then }, Some("the time of the last write to its file is another")),
            (Identity { samples: 0, ..then }, Some("bytes between its ends are others")),
            (Identity { written: count(5, 14), ..then }, Some("the kernel has written 8 sectors to it")),
        ] {
            assert_eq!(then.change(&now).as_deref(), words);
        }
    }
}
