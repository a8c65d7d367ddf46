//! What each sector of an array may legally hold, after everything that was asked of it.
//!
//! A sector holds what was settled (flushed, or written as [`engine::Durability::Stable`]
//! and answered), with some of the later writes on top, in the order asked:
//! those answered must be seen until the power goes, and from then on may be
//! there or not, as may those under way and those that failed. Nothing else is
//! legal: no mixture within a sector but by whole writes, no older value.
//!
//! Rows whose bytes were changed silently, or that were in doubt when a dirty
//! and degraded array was forced, may hold anything: they are tainted.
//! It knows nothing of levels, members or the engine.

use crate::rows::SECTOR_BYTES;
use std::ops::Range;

/// A write's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteId(usize);

/// A point in the order of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp(u64);

/// Who looks, and so what must be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// A reader of the running array that asked at this moment: all that was answered before.
    Reader(Stamp),
    /// At the members themselves: all that is settled.
    Members,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    UnderWay,
    Answered(Stamp),
    /// It failed, or the power went before it was settled.
    InDoubt,
    /// And answered then.
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

/// The model.
#[derive(Clone)]
pub struct Truth {
    /// With all writes that no sector keeps in its list.
    base: Vec<u8>,
    writes: Vec<Write>,
    /// Of each sector, the writes to it that are not in the base, in the order asked.
    pending: Vec<Vec<u32>>,
    tainted: Vec<bool>,
    now: u64,
    /// Readers that may still see what was there before the last writes.
    readers: usize,
}

impl Truth {
    /// An array of zeros, of whole sectors.
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

    /// The array's length.
    pub fn bytes(&self) -> usize {
        self.base.len()
    }

    /// This moment; later ones are greater.
    pub fn moment(&mut self) -> Stamp {
        self.now += 1;
        Stamp(self.now)
    }

    /// Somebody asks to read, until [`Truth::stop_reading`].
    pub fn start_reading(&mut self) -> Stamp {
        self.readers += 1;
        self.moment()
    }

    /// What a reader found was checked.
    pub fn stop_reading(&mut self) {
        self.readers -= 1;
    }

    /// A write is asked for.
    pub fn begin(&mut self, at: usize, bytes: Vec<u8>) -> WriteId {
        let number = self.writes.len();
        for sector in sectors(&(at..at + bytes.len())) {
            self.pending[sector].push(number as u32);
        }
        self.writes.push(Write { at, bytes, fate: Fate::UnderWay });
        WriteId(number)
    }

    /// It was answered; `stable` when that means that it is on stable storage.
    pub fn answered(&mut self, id: WriteId, stable: bool) {
        let now = self.moment();
        self.writes[id.0].fate = if stable { Fate::Settled(now) } else { Fate::Answered(now) };
        if stable {
            self.fold(self.writes[id.0].range());
        }
    }

    /// It failed: it may be there, in part, or not.
    pub fn failed(&mut self, id: WriteId) {
        self.writes[id.0].fate = Fate::InDoubt;
    }

    /// A flush that was asked for at `since` was answered.
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

    /// Whoever wrote is no more: what was answered is there, what was under way may be.
    pub fn killed(&mut self) {
        for write in self.writes.iter_mut().filter(|write| write.fate == Fate::UnderWay) {
            write.fate = Fate::InDoubt;
        }
        self.readers = 0;
        self.fold(0..self.base.len());
    }

    /// What is not settled may be there or not from now on, and nothing more will come of it.
    pub fn interrupted(&mut self) {
        for write in self.writes.iter_mut().filter(|write| !write.is_settled()) {
            write.fate = Fate::InDoubt;
        }
        self.readers = 0;
        self.fold(0..self.base.len());
    }

    /// Everything is known again where only doubts were: `found` was read, and cannot change any more.
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

    /// A sector may hold anything from now on.
    pub fn taint(&mut self, sector: usize) {
        self.tainted[sector] = true;
    }

    /// Whether a sector may hold anything.
    pub fn is_tainted(&self, sector: usize) -> bool {
        self.tainted[sector]
    }

    /// Whether only one value of a sector is legal, on the members too.
    pub fn is_certain(&self, sector: usize) -> bool {
        self.pending[sector].iter().all(|&number| self.writes[number as usize].is_settled())
    }

    /// Whether `found` is legal in a sector.
    pub fn allows(&self, sector: usize, found: &[u8], look: Look) -> bool {
        debug_assert_eq!(found.len(), SECTOR_BYTES);
        let bytes = bytes_of(sector);
        if self.tainted[sector] || self.pending[sector].is_empty() {
            return self.tainted[sector] || found == &self.base[bytes];
        }
        let hidden = Hidden([false; SECTOR_BYTES]);
        self.explains(sector, self.pending[sector].len(), hidden, found, look)
    }

    /// Whether some of the first `count` writes, under those that hide them, make `found`.
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

    /// What is wrong with `found`, read from `at` on.
    ///
    /// # Errors
    /// The first sector that holds what it may not, in words.
    pub fn check(&self, at: usize, found: &[u8], look: Look) -> Result<(), String> {
        for sector in sectors(&(at..at + found.len())) {
            let whole = bytes_of(sector);
            let part = at.max(whole.start)..(at + found.len()).min(whole.end);
            let found = &found[part.start - at..part.end - at];
            let is_legal = if part == whole {
                self.allows(sector, found, look)
            } else {
                // Of a part it is enough that each byte is legal by itself.
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

    /// What a sector holds and what is known of it, in words.
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

    /// Puts what is settled into the base, where nothing in doubt lies under it.
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

/// Bytes of a sector that later writes lie over.
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
    fn a_reader_sees_what_was_answered_and_perhaps_what_is_under_way() {
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
    fn what_was_flushed_stays_and_hides_what_was_in_doubt() {
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
    fn a_stable_write_is_settled_over_what_is_in_doubt() {
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
