//! A model of what each sector of an array may legally hold after all requests so far.
//!
//! A sector holds what is settled: data that was flushed, or written as [`engine::Durability::Stable`] and answered. On
//! top of it come later writes, in the order of their requests. Answered writes must be visible until the power goes.
//! After that each of them may be visible or not; the same holds for writes in flight and for failed writes. Nothing
//! else is legal: within a sector only whole writes are combined, and no older value returns.
//!
//! Rows with silently changed bytes are tainted: they may hold anything. So are rows that were in doubt when a dirty
//! and degraded array was forced. With a partial parity log, only what the missing member held of such a row is tainted,
//! or what a replay could not read and wrote as parity gave it.
//! The model knows nothing of levels, members or the engine.

use crate::rows::SECTOR_BYTES;
use std::ops::Range;

/// The number of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteId(usize);

/// A point in the order of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp(u64);

/// Where contents were observed, which determines the writes that must be visible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// By a read of the running array that began at this moment: all writes answered before must be visible.
    Reader(Stamp),
    /// On the members: all settled writes must be visible.
    Members,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    UnderWay,
    Answered(Stamp),
    /// The write failed, or the power went before it was settled.
    InDoubt,
    /// Settled; the write was answered at this moment.
    Settled(Stamp),
}

#[derive(Clone)]
struct Write {
    at: usize,
    bytes: Vec<u8>,
    fate: Fate,
}

impl Write {
    fn range(&self) -> Range<usize> {
        self.at..self.at + self.bytes.len()
    }

    fn is_settled(&self) -> bool {
        matches!(self.fate, Fate::Settled(_))
    }

    fn must_show(&self, look: Look) -> bool {
        match (self.fate, look) {
            (Fate::Settled(_), Look::Members) => true,
            (Fate::Answered(when) | Fate::Settled(when), Look::Reader(asked)) => when < asked,
            _ => false,
        }
    }
}

/// The model of an array.
#[derive(Clone)]
pub struct Truth {
    /// The contents without the writes in `pending`.
    base: Vec<u8>,
    writes: Vec<Write>,
    /// For each sector, the writes that are not in the base, in the order of their requests.
    pending: Vec<Vec<u32>>,
    tainted: Vec<bool>,
    now: u64,
    /// Reads in flight, which may still see the contents before the latest writes.
    readers: usize,
}

impl Truth {
    /// An array of zeros. `bytes` must be a multiple of the sector.
    pub fn new(bytes: u64) -> Self {
        let sectors = bytes as usize / SECTOR_BYTES;
        Self {
            base: vec![0; bytes as usize],
            writes: Vec::new(),
            pending: vec![Vec::new(); sectors],
            tainted: vec![false; sectors],
            now: 0,
            readers: 0,
        }
    }

    /// The length of the array.
    pub fn bytes(&self) -> usize {
        self.base.len()
    }

    /// The present moment; later ones compare greater.
    pub fn moment(&mut self) -> Stamp {
        self.now += 1;
        Stamp(self.now)
    }

    /// A read begins; [`Truth::stop_reading`] must follow.
    pub fn start_reading(&mut self) -> Stamp {
        self.readers += 1;
        self.moment()
    }

    /// A read has been checked.
    pub fn stop_reading(&mut self) {
        self.readers -= 1;
    }

    /// A write begins.
    pub fn begin(&mut self, at: usize, bytes: Vec<u8>) -> WriteId {
        let number = self.writes.len();
        for sector in sectors(&(at..at + bytes.len())) {
            self.pending[sector].push(number as u32);
        }
        self.writes.push(Write { at, bytes, fate: Fate::UnderWay });
        WriteId(number)
    }

    /// A write was answered. `stable` says that it is on stable storage.
    pub fn answered(&mut self, id: WriteId, stable: bool) {
        let now = self.moment();
        self.writes[id.0].fate = if stable { Fate::Settled(now) } else { Fate::Answered(now) };
        if stable {
            self.fold(self.writes[id.0].range());
        }
    }

    /// A write failed: it may be visible, in part, or not at all.
    pub fn failed(&mut self, id: WriteId) {
        self.writes[id.0].fate = Fate::InDoubt;
    }

    /// A write was refused: it never was.
    pub fn refused(&mut self, id: WriteId) {
        let number = id.0 as u32;
        for sector in sectors(&self.writes[id.0].range()) {
            self.pending[sector].retain(|other| *other != number);
        }
        self.writes[id.0].fate = Fate::InDoubt;
    }

    /// A flush that began at `since` was answered.
    pub fn flushed(&mut self, since: Stamp) {
        for index in 0..self.writes.len() {
            let write = &mut self.writes[index];
            if let Fate::Answered(when) = write.fate
                && when < since
            {
                write.fate = Fate::Settled(when);
                let range = write.range();
                self.fold(range);
            }
        }
    }

    /// The process was killed: answered writes are visible, writes in flight may be.
    pub fn killed(&mut self) {
        for write in self.writes.iter_mut().filter(|write| write.fate == Fate::UnderWay) {
            write.fate = Fate::InDoubt;
        }
        self.readers = 0;
        self.fold(0..self.base.len());
    }

    /// The power went: from now on a write that is not settled may be visible or not.
    pub fn interrupted(&mut self) {
        for write in self.writes.iter_mut().filter(|write| !write.is_settled()) {
            write.fate = Fate::InDoubt;
        }
        self.readers = 0;
        self.fold(0..self.base.len());
    }

    /// Ends doubts: the array was read as `found` while its copies and parity agreed. Sectors whose writes are all in doubt or
    /// settled hold this from now on.
    pub fn pin(&mut self, found: &[u8]) {
        for sector in 0..self.pending.len() {
            let only_doubts =
                |&number: &u32| matches!(self.writes[number as usize].fate, Fate::InDoubt | Fate::Settled(_));
            if !self.pending[sector].is_empty() && self.pending[sector].iter().all(only_doubts) {
                self.pending[sector].clear();
                self.base[bytes_of(sector)].copy_from_slice(&found[bytes_of(sector)]);
            }
        }
    }

    /// Taints a sector: it may hold anything from now on.
    pub fn taint(&mut self, sector: usize) {
        self.tainted[sector] = true;
    }

    /// Taints what `other` has tainted.
    pub fn taint_as(&mut self, other: &Self) {
        self.tainted.iter_mut().zip(&other.tainted).for_each(|(own, other)| *own |= other);
    }

    /// Whether a sector is tainted.
    pub fn is_tainted(&self, sector: usize) -> bool {
        self.tainted[sector]
    }

    /// Whether only one value of a sector is legal, also on the members.
    pub fn is_certain(&self, sector: usize) -> bool {
        self.pending[sector].iter().all(|&number| self.writes[number as usize].is_settled())
    }

    /// Whether only one value of a sector's block is legal: no write in doubt was to any sector of it.
    pub fn is_block_certain(&self, sector: usize, block_bytes: usize) -> bool {
        let sectors = block_bytes / SECTOR_BYTES;
        let first = sector / sectors * sectors;
        (first..first + sectors).all(|sector| self.is_certain(sector))
    }

    /// Whether a sector may hold `found`.
    pub fn allows(&self, sector: usize, found: &[u8], look: Look) -> bool {
        debug_assert_eq!(found.len(), SECTOR_BYTES);
        let bytes = bytes_of(sector);
        if self.tainted[sector] || self.pending[sector].is_empty() {
            return self.tainted[sector] || found == &self.base[bytes];
        }
        let hidden = Hidden([false; SECTOR_BYTES]);
        self.explains(sector, self.pending[sector].len(), hidden, found, look)
    }

    /// Whether some of the first `count` writes produce `found`, where `hidden` marks bytes that later writes cover.
    fn explains(&self, sector: usize, count: usize, hidden: Hidden, found: &[u8], look: Look) -> bool {
        let start = sector * SECTOR_BYTES;
        let Some(last) = count.checked_sub(1) else {
            let base = &self.base[bytes_of(sector)];
            return (0..SECTOR_BYTES).all(|index| hidden.0[index] || base[index] == found[index]);
        };
        let write = &self.writes[self.pending[sector][last] as usize];
        let from = write.at.max(start) - start;
        let to = (write.range().end - start).min(SECTOR_BYTES);
        let shows = |index: &usize| hidden.0[*index] || write.bytes[start + index - write.at] == found[*index];
        if (from..to).all(|index| shows(&index)) {
            let mut below = hidden.clone();
            below.0[from..to].fill(true);
            if self.explains(sector, last, below, found, look) {
                return true;
            }
        }
        !write.must_show(look) && self.explains(sector, last, hidden, found, look)
    }

    /// Checks contents that were found from `at` on.
    ///
    /// # Errors
    /// The first sector that is illegal, in words.
    pub fn check(&self, at: usize, found: &[u8], look: Look) -> Result<(), String> {
        for sector in sectors(&(at..at + found.len())) {
            let whole = bytes_of(sector);
            let part = at.max(whole.start)..(at + found.len()).min(whole.end);
            let found = &found[part.start - at..part.end - at];
            let is_legal = if part == whole {
                self.allows(sector, found, look)
            } else {
                // In a part of a sector it is enough that each byte is legal on its own.
                part.clone().zip(found).all(|(index, &byte)| self.allows_byte(sector, index, byte, look))
            };
            if !is_legal {
                return Err(self.describe(sector, part, found, look));
            }
        }
        Ok(())
    }

    fn allows_byte(&self, sector: usize, index: usize, found: u8, look: Look) -> bool {
        if self.tainted[sector] {
            return true;
        }
        for &number in self.pending[sector].iter().rev() {
            let write = &self.writes[number as usize];
            if !write.range().contains(&index) {
                continue;
            }
            if write.bytes[index - write.at] == found {
                return true;
            }
            if write.must_show(look) {
                return false;
            }
        }
        self.base[index] == found
    }

    /// Describes a sector's contents and the writes to it.
    pub fn describe(&self, sector: usize, part: Range<usize>, found: &[u8], look: Look) -> String {
        let base = &self.base[part.clone()];
        let illegal = part.clone().zip(found).position(|(index, &byte)| !self.allows_byte(sector, index, byte, look));
        let other = || base.iter().zip(found).position(|(base, found)| base != found);
        let wrong = illegal.or_else(other).unwrap_or(0);
        let writes: Vec<String> = self.pending[sector]
            .iter()
            .map(|&number| &self.writes[number as usize])
            .map(|write| {
                format!("{:?} {:?} {:02x?}", write.range(), write.fate, self.byte_of(write, part.start + wrong))
            })
            .collect();
        format!(
            "sector {sector} of the array: byte {} is {:02x}, settled was {:02x}; later writes: [{}]; seen by {look:?}",
            part.start + wrong,
            found[wrong],
            base[wrong],
            writes.join(", "),
        )
    }

    fn byte_of(&self, write: &Write, index: usize) -> Option<u8> {
        write.range().contains(&index).then(|| write.bytes[index - write.at])
    }

    /// Moves settled writes into the base, unless a write in doubt lies beneath them.
    fn fold(&mut self, range: Range<usize>) {
        if self.readers > 0 {
            return;
        }
        for sector in sectors(&range) {
            let whole = bytes_of(sector);
            let list = &mut self.pending[sector];
            let writes = &self.writes;
            let covers = |&number: &u32| {
                let write = &writes[number as usize];
                write.is_settled() && write.at <= whole.start && whole.end <= write.range().end
            };
            if let Some(last) = list.iter().rposition(covers) {
                list.drain(..last);
            }
            let is_settled = |number: &u32| writes[*number as usize].is_settled();
            let settled = list.iter().position(|number| !is_settled(number)).unwrap_or(list.len());
            for number in list.drain(..settled) {
                let write = &writes[number as usize];
                let part = write.at.max(whole.start)..write.range().end.min(whole.end);
                self.base[part.clone()].copy_from_slice(&write.bytes[part.start - write.at..part.end - write.at]);
            }
        }
    }
}

/// Marks the bytes of a sector that later writes cover.
#[derive(Clone)]
struct Hidden([bool; SECTOR_BYTES]);

fn bytes_of(sector: usize) -> Range<usize> {
    sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES
}

fn sectors(bytes: &Range<usize>) -> Range<usize> {
    bytes.start / SECTOR_BYTES..bytes.end.div_ceil(SECTOR_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sector(parts: &[(Range<usize>, u8)]) -> Vec<u8> {
        let mut bytes = vec![0; SECTOR_BYTES];
        parts.iter().for_each(|(range, value)| bytes[range.clone()].fill(*value));
        bytes
    }

    #[test]
    fn a_reader_sees_answered_writes_and_perhaps_writes_in_flight() {
        let mut truth = Truth::new(1024);
        let first = truth.begin(0, vec![1; 100]);
        truth.answered(first, false);
        truth.begin(50, vec![2; 100]);
        let look = Look::Reader(truth.moment());
        let table = [
            (sector(&[(0..100, 1)]), true),
            (sector(&[(0..50, 1), (50..150, 2)]), true),
            (sector(&[(50..150, 2)]), false),
            (sector(&[]), false),
            (sector(&[(0..50, 1), (50..140, 2)]), false),
        ];
        for (found, legal) in table {
            assert_eq!(truth.allows(0, &found, look), legal);
            assert_eq!(truth.check(0, &found, look).is_ok(), legal);
        }
        assert!(truth.allows(0, &sector(&[(50..150, 2)]), Look::Members), "neither is settled");
    }

    #[test]
    fn flushed_data_stays_and_hides_earlier_writes_in_doubt() {
        let mut truth = Truth::new(512);
        let lost = truth.begin(0, vec![1; 512]);
        truth.failed(lost);
        let kept = truth.begin(0, vec![2; 512]);
        truth.answered(kept, false);
        let late = truth.moment();
        let after = truth.begin(0, vec![3; 10]);
        truth.answered(after, false);
        truth.flushed(late);
        truth.interrupted();
        for (value, legal) in [(sector(&[(0..512, 2)]), true), (sector(&[(0..512, 1)]), false)] {
            assert_eq!(truth.allows(0, &value, Look::Members), legal);
        }
        assert!(truth.allows(0, &sector(&[(0..512, 2), (0..10, 3)]), Look::Members), "not flushed, perhaps there");
        assert!(!truth.is_certain(0));
        truth.pin(&sector(&[(0..512, 2)]));
        assert!(truth.is_certain(0) && !truth.allows(0, &sector(&[(0..512, 2), (0..10, 3)]), Look::Members));
    }

    #[test]
    fn a_stable_write_is_settled_over_writes_in_doubt() {
        let mut truth = Truth::new(512);
        let first = truth.begin(0, vec![1; 100]);
        truth.answered(first, false);
        let second = truth.begin(50, vec![2; 100]);
        truth.answered(second, true);
        truth.interrupted();
        for (found, legal) in [
            (sector(&[(50..150, 2)]), true),
            (sector(&[(0..50, 1), (50..150, 2)]), true),
            (sector(&[(0..100, 1)]), false),
        ] {
            assert_eq!(truth.allows(0, &found, Look::Members), legal);
        }
    }
}
