//! A member in memory with a volatile cache, random latencies, and [`Faults`].
//!
//! Writes that were not flushed are in the cache. On a loss of power, each of them is kept, lost or torn at random, so
//! every order in which a drive may write occurs. A flush covers the writes that were answered before it began; others
//! may or may not be stored. A transfer that overlaps a fault fails; if it is a write, a part of it may be stored.

use crate::faults::{Faults, Mishap};
use engine::{Block, Buffer, Clock, Limits, Member, MemberError, MemberErrorKind, MemberFault, Moment, Operation};
use format::units::MemberByte;
use std::cell::{Cell, Ref, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;
use world::{Random, World, member_limits};

/// The smallest unit of a write that is stored whole or not at all.
const SECTOR_BYTES: u64 = 512;

/// What a member does on discard and write-zeroes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Zeroing {
    /// Neither is supported.
    Never,
    /// Write-zeroes works; discard is not supported.
    Zeroes,
    /// Both work; discarded bytes read as zeros.
    Discards,
    /// Both work; discarded bytes read as anything, and the limits promise no zeros.
    DiscardsToNoise,
    /// The limits promise everything, but each call fails as unsupported.
    Promises,
}

/// A write in the cache.
struct Cached {
    number: u64,
    at: u64,
    bytes: Vec<u8>,
    answered: bool,
}

impl Cached {
    fn range(&self) -> Range<usize> {
        self.at as usize..self.at as usize + self.bytes.len()
    }
}

struct State {
    name: String,
    world: World,
    limits: Limits,
    zeroing: Zeroing,
    /// The unit at which a loss of power tears writes.
    tear_bytes: u64,
    /// The range in which writes can be lost or misdirected.
    area: Range<u64>,
    /// The contents of stable storage.
    stable: RefCell<Vec<u8>>,
    /// The same with the cache applied: what reads return.
    seen: RefCell<Vec<u8>>,
    cache: RefCell<Vec<Cached>>,
    writes: Cell<u64>,
    faults: Rc<Faults>,
    /// Counts writes and flushes, so that power can be cut at a chosen one.
    boundaries: Rc<Cell<u64>>,
    /// Counts writes outside `area`, which are metadata.
    marks: Rc<Cell<u64>>,
    /// The factor of all latencies.
    slowness: u64,
    /// Whether some reads and writes complete at once.
    is_prompt: bool,
}

/// A simulated member with faults; clones share it.
#[derive(Clone)]
pub struct SimMember(Rc<State>);

impl SimMember {
    /// A member called `name` with these contents. `boundaries` counts the writes and flushes of all members that share
    /// it.
    pub fn new(name: String, world: &World, contents: Vec<u8>, boundaries: Rc<Cell<u64>>) -> Self {
        let limits = member_limits(contents.len() as u64);
        Self(Rc::new(State {
            name,
            world: world.clone(),
            zeroing: Zeroing::Never,
            tear_bytes: SECTOR_BYTES,
            area: 0..limits.bytes,
            limits,
            seen: RefCell::new(contents.clone()),
            stable: RefCell::new(contents),
            cache: RefCell::default(),
            writes: Cell::new(0),
            faults: Rc::default(),
            boundaries,
            marks: Rc::default(),
            slowness: 1,
            is_prompt: false,
        }))
    }

    /// Sets the size of a logical block.
    ///
    /// # Panics
    /// If the member is shared already.
    pub fn with_blocks(mut self, bytes: u32) -> Self {
        self.unshared().limits.logical_block_bytes = bytes;
        self
    }

    /// The unit at which a loss of power tears writes.
    pub fn tear_bytes(&self) -> u64 {
        self.0.tear_bytes
    }

    /// Sets the unit at which writes are torn.
    ///
    /// # Panics
    /// If the member is shared already.
    pub fn with_tears(mut self, bytes: u64) -> Self {
        self.unshared().tear_bytes = bytes;
        self
    }

    /// Multiplies the latencies.
    ///
    /// # Panics
    /// If the member is shared already.
    pub fn with_slowness(mut self, times: u64) -> Self {
        self.unshared().slowness = times;
        self
    }

    /// Lets half of the reads and writes complete at once, at random, unless a fault delays them.
    ///
    /// # Panics
    /// If the member is shared already.
    pub fn with_promptness(mut self, is_prompt: bool) -> Self {
        let state = self.unshared();
        (state.is_prompt, state.limits.synchronous) = (is_prompt, is_prompt);
        self
    }

    /// Sets the counter `marks` of writes outside the area of silent faults, which are metadata; members can share it.
    ///
    /// # Panics
    /// If the member is shared already.
    pub fn with_marks(mut self, marks: Rc<Cell<u64>>) -> Self {
        self.unshared().marks = marks;
        self
    }

    /// Confines lost and misdirected writes to `area`.
    ///
    /// # Panics
    /// If the member is shared already.
    pub fn with_silent_mishaps_in(mut self, area: Range<u64>) -> Self {
        self.unshared().area = area;
        self
    }

    /// Sets what discard and write-zeroes do.
    ///
    /// # Panics
    /// If the member is shared already.
    pub fn with_zeroing(mut self, zeroing: Zeroing) -> Self {
        let state = self.unshared();
        state.zeroing = zeroing;
        state.limits.discards = !matches!(zeroing, Zeroing::Never | Zeroing::Zeroes);
        state.limits.discards_to_zeros = matches!(zeroing, Zeroing::Discards | Zeroing::Promises);
        self
    }

    fn unshared(&mut self) -> &mut State {
        Rc::get_mut(&mut self.0).expect("a member is not shared yet")
    }

    /// Whether there are other clones of this member.
    pub fn is_held(&self) -> bool {
        Rc::strong_count(&self.0) > 1
    }

    /// The member's name.
    pub fn name(&self) -> String {
        self.0.name.clone()
    }

    /// The member's faults.
    pub fn faults(&self) -> Rc<Faults> {
        self.0.faults.clone()
    }

    /// A copy of the contents that reads return.
    pub fn contents(&self) -> Vec<u8> {
        self.0.seen.borrow().clone()
    }

    /// The contents that reads return.
    pub fn image(&self) -> Ref<'_, Vec<u8>> {
        self.0.seen.borrow()
    }

    /// What a loss of power would leave now, by `random`. The member does not change.
    pub fn after_power_loss(&self, random: &mut Random) -> Vec<u8> {
        let (mut stable, mut seen) = (self.0.stable.borrow().clone(), self.contents());
        self.lose(&self.0.cache.borrow(), &mut stable, &mut seen, random);
        seen
    }

    /// For each sector of `range`, everything that a loss of power may leave there.
    pub fn may_be_left(&self, range: Range<usize>) -> Vec<Vec<Vec<u8>>> {
        let (stable, cache) = (self.0.stable.borrow(), self.0.cache.borrow());
        let sectors = range.step_by(SECTOR_BYTES as usize).map(|start| start..start + SECTOR_BYTES as usize);
        let left = sectors.map(|sector| {
            let covers = |write: &&Cached| write.at as usize <= sector.start && sector.end <= write.range().end;
            let cached = cache.iter().filter(covers);
            let cached = cached.map(|write| {
                let start = sector.start - write.at as usize;
                write.bytes[start..start + SECTOR_BYTES as usize].to_vec()
            });
            std::iter::once(stable[sector.clone()].to_vec()).chain(cached).collect()
        });
        left.collect()
    }

    /// A loss of power: each write in the cache is kept, torn or lost, by `random`.
    pub fn lose_power(&self, random: &mut Random) {
        let lost = self.0.cache.take();
        self.lose(&lost, &mut self.0.stable.borrow_mut(), &mut self.0.seen.borrow_mut(), random);
    }

    fn lose(&self, lost: &[Cached], stable: &mut [u8], seen: &mut [u8], random: &mut Random) {
        for write in lost {
            self.keep_some(write, stable, random);
        }
        for write in lost {
            seen[write.range()].copy_from_slice(&stable[write.range()]);
        }
    }

    /// Keeps the whole write, none of it, its beginning, or random parts.
    fn keep_some(&self, write: &Cached, stable: &mut [u8], random: &mut Random) {
        let unit = self.0.tear_bytes as usize;
        let units = write.bytes.len().div_ceil(unit) as u64;
        let (fate, prefix) = (random.within(0..4), random.within(0..units + 1));
        for (index, part) in write.bytes.chunks(unit).enumerate() {
            let is_kept = match fate {
                0 => false,
                1 => true,
                2 => (index as u64) < prefix,
                _ => random.once_in(2),
            };
            if is_kept {
                let at = write.at as usize + index * unit;
                stable[at..at + part.len()].copy_from_slice(part);
            }
        }
    }

    /// Changes a range to noise, silently.
    pub fn corrupt(&self, range: Range<u64>, random: &mut Random) {
        let mut noise = vec![0; (range.end - range.start) as usize];
        random.fill(&mut noise);
        self.plant(range.start, &noise);
        self.0.faults.silent.borrow_mut().push(range);
    }

    /// Overwrites bytes on stable storage, silently.
    pub fn plant(&self, at: u64, bytes: &[u8]) {
        let places = at as usize..at as usize + bytes.len();
        self.0.stable.borrow_mut()[places.clone()].copy_from_slice(bytes);
        self.0.seen.borrow_mut()[places].copy_from_slice(bytes);
    }

    async fn latency(&self) {
        let (clock, faults) = (self.0.world.clock(), &self.0.faults);
        let nanos = self.0.world.chance(1_000..200_000) * self.0.slowness + faults.slower_by.get();
        let until = clock.now() + Duration::from_nanos(nanos);
        clock.sleep_until(until.max(Moment { nanos: faults.hung_until.get() })).await;
    }

    fn error(&self, operation: Operation, at: MemberByte, bytes: u64) -> MemberError {
        let faults = &self.0.faults;
        let kind = match (faults.gone.get(), faults.is_full(operation, &(at.0..at.0 + bytes))) {
            (true, _) => MemberErrorKind::Gone,
            (_, true) => MemberErrorKind::NoSpace,
            _ => MemberErrorKind::Io,
        };
        MemberFault { kind, operation, at, bytes, source: Rc::new(std::io::Error::other("a simulated fault")) }.into()
    }

    fn unsupported(&self, operation: Operation, at: MemberByte, bytes: u64) -> MemberError {
        let fault = (*self.error(operation, at, bytes)).clone();
        MemberFault { kind: MemberErrorKind::Unsupported, ..fault }.into()
    }

    /// As with O_DIRECT, memory must be aligned to the logical block.
    fn check_memory(&self, bytes: &[u8]) {
        let unit = self.0.limits.logical_block_bytes as usize;
        assert!((bytes.as_ptr() as usize).is_multiple_of(unit), "memory of a transfer that is not aligned to {unit}");
    }

    /// Whether the operation succeeds, and the silent mishap that befalls it.
    fn check(&self, operation: Operation, at: MemberByte, bytes: u64) -> Result<Option<Mishap>, MemberError> {
        let unit = u64::from(self.0.limits.logical_block_bytes);
        assert!((at.0 | bytes).is_multiple_of(unit), "{operation:?} of {bytes} bytes at {} is not aligned", at.0);
        assert!(at.0 + bytes <= self.0.limits.bytes, "{operation:?} of {bytes} bytes at {} is out of range", at.0);
        let mishap = self.0.faults.befalls(operation);
        let fails = mishap == Some(Mishap::Fail) || self.0.faults.spoils(operation, &(at.0..at.0 + bytes));
        self.0.world.trace(|| {
            let outcome = if fails { "fails".to_owned() } else { mishap.map_or("".to_owned(), |m| format!("{m:?}")) };
            format!("{} {operation:?} {}..{} {outcome}", self.0.name, at.0, at.0 + bytes)
        });
        self.0.faults.note_replay(operation, &(at.0..at.0 + bytes), fails);
        match operation {
            Operation::Read if fails => self.0.faults.unread.borrow_mut().push(at.0..at.0 + bytes),
            Operation::Read => self.0.faults.note_read(&(at.0..at.0 + bytes)),
            _ => {}
        }
        match fails {
            true => Err(self.error(operation, at, bytes)),
            false => Ok(mishap),
        }
    }

    /// Puts a write into the cache; returns its number, which is needed to answer it.
    fn put(&self, at: u64, bytes: Vec<u8>) -> u64 {
        self.0.seen.borrow_mut()[at as usize..at as usize + bytes.len()].copy_from_slice(&bytes);
        self.0.faults.rewritten(&(at..at + bytes.len() as u64));
        let number = self.0.writes.replace(self.0.writes.get() + 1);
        self.0.cache.borrow_mut().push(Cached { number, at, bytes, answered: false });
        number
    }

    /// As [`Self::put`], for a write that goes astray; records the ranges with wrong bytes.
    fn put_astray(&self, at: u64, bytes: Vec<u8>, mishap: Mishap) -> u64 {
        let (area, length) = (self.0.area.clone(), bytes.len() as u64);
        if at < area.start || at + length > area.end {
            return self.put(at, bytes);
        }
        let silent = &self.0.faults.silent;
        silent.borrow_mut().push(at..at + length);
        match mishap {
            Mishap::Misdirect { by } => {
                let room = area.end - area.start - length + SECTOR_BYTES;
                let to = area.start + (at - area.start + by) % room / SECTOR_BYTES * SECTOR_BYTES;
                silent.borrow_mut().push(to..to + length);
                self.put(to, bytes)
            }
            Mishap::Fail | Mishap::Lose => self.put(at, Vec::new()),
        }
    }

    fn answer(&self, number: u64) {
        if let Some(write) = self.0.cache.borrow_mut().iter_mut().find(|write| write.number == number) {
            write.answered = true;
        }
    }

    /// The process that used the member has ended. The next process's first flush covers its writes.
    pub fn end_of_process(&self) {
        self.0.cache.borrow_mut().iter_mut().for_each(|write| write.answered = true);
    }

    /// Moves all writes in the cache to stable storage.
    pub fn settle_all(&self) {
        self.0.cache.borrow_mut().clear();
        self.0.stable.borrow_mut().copy_from_slice(&self.0.seen.borrow());
    }

    /// Moves the numbered writes to stable storage, and earlier writes beneath them.
    fn settle(&self, answered: &[u64]) {
        let mut stable = self.0.stable.borrow_mut();
        let mut cache = self.0.cache.borrow_mut();
        let flushed = |write: &Cached| answered.binary_search(&write.number).is_ok();
        let is_under = |write: &Cached, later: &Cached| {
            later.number > write.number
                && later.range().start < write.range().end
                && write.range().start < later.range().end
        };
        let goes: Vec<bool> = cache
            .iter()
            .map(|write| flushed(write) || cache.iter().any(|later| flushed(later) && is_under(write, later)))
            .collect();
        let mut goes = goes.into_iter();
        cache.retain(|write| {
            let settles = goes.next().expect("one for each");
            if settles {
                stable[write.range()].copy_from_slice(&write.bytes);
            }
            !settles
        });
    }

    fn boundary(&self) {
        self.0.boundaries.set(self.0.boundaries.get() + 1);
    }

    async fn put_all(&self, operation: Operation, at: MemberByte, bytes: Vec<u8>) -> Result<(), MemberError> {
        self.latency().await;
        self.delay_write().await;
        let number = self.put_checked(operation, at, bytes)?;
        self.latency().await;
        self.delay_write().await;
        self.answer(number);
        Ok(())
    }

    async fn delay_write(&self) {
        let nanos = self.0.faults.writes_slower_by.get();
        if nanos > 0 {
            let clock = self.0.world.clock();
            clock.sleep_until(clock.now() + Duration::from_nanos(nanos)).await;
        }
    }

    /// As [`Self::put`], but may fail; a part of a failed write is stored.
    fn put_checked(&self, operation: Operation, at: MemberByte, mut bytes: Vec<u8>) -> Result<u64, MemberError> {
        self.boundary();
        if !self.0.area.contains(&at.0) {
            self.0.marks.set(self.0.marks.get() + 1);
        }
        let checked = self.check(operation, at, bytes.len() as u64);
        match checked {
            Err(error) => {
                let unit = self.0.tear_bytes;
                let units = self.0.world.chance(0..bytes.len() as u64 / unit + 1);
                bytes.truncate((units * unit) as usize);
                self.put(at.0, bytes);
                Err(error)
            }
            Ok(None) if self.0.faults.loses(&(at.0..at.0 + bytes.len() as u64)) => Ok(self.put(at.0, Vec::new())),
            Ok(None) => Ok(self.put(at.0, bytes)),
            Ok(Some(mishap)) => Ok(self.put_astray(at.0, bytes, mishap)),
        }
    }

    fn take(&self, at: MemberByte, into: &mut Buffer) -> Result<(), MemberError> {
        self.check_memory(into);
        let (start, length) = (at.0 as usize, into.len());
        match self.check(Operation::Read, at, length as u64) {
            Ok(_) => {
                into.copy_from_slice(&self.0.seen.borrow()[start..start + length]);
                Ok(())
            }
            Err(error) => {
                into.fill(0xee);
                Err(error)
            }
        }
    }

    /// Whether this operation completes at once: all but one in `of`, at random.
    fn is_ready(&self, of: u64) -> bool {
        let State { world, faults, is_prompt, .. } = &*self.0;
        *is_prompt && !faults.is_late(world.clock().now().nanos) && world.chance(0..of) < of - 1
    }
}

impl Member for SimMember {
    fn limits(&self) -> &Limits {
        &self.0.limits
    }

    async fn read(&self, at: MemberByte, mut into: Buffer) -> (Result<(), MemberError>, Buffer) {
        self.latency().await;
        (self.take(at, &mut into), into)
    }

    fn read_now(&self, at: MemberByte, into: &mut Buffer) -> Option<Result<(), MemberError>> {
        self.is_ready(2).then(|| self.take(at, into))
    }

    fn lend(&self, at: MemberByte, bytes: u64) -> Option<Result<Ref<'_, [u8]>, MemberError>> {
        let look = || self.check(Operation::Read, at, bytes).map(|_| self.0.seen.borrow());
        let part = at.0 as usize..(at.0 + bytes) as usize;
        self.is_ready(16).then(|| look().map(|seen| Ref::map(seen, |seen| &seen[part])))
    }

    async fn read_vectored(&self, at: MemberByte, into: Vec<Buffer>) -> (Result<(), MemberError>, Vec<Buffer>) {
        let mut filled = Vec::with_capacity(into.len());
        let mut result = Ok(());
        let mut position = at.0;
        for buffer in into {
            let bytes = buffer.len() as u64;
            let (outcome, buffer) = self.read(MemberByte(position), buffer).await;
            result = result.and(outcome);
            filled.push(buffer);
            position += bytes;
        }
        (result, filled)
    }

    async fn write(&self, at: MemberByte, from: Block) -> Result<(), MemberError> {
        self.check_memory(&from);
        self.put_all(Operation::Write, at, from.to_vec()).await
    }

    fn write_now(&self, at: MemberByte, from: &Block) -> Option<Result<(), MemberError>> {
        self.check_memory(from);
        self.is_ready(2)
            .then(|| self.put_checked(Operation::Write, at, from.to_vec()).map(|number| self.answer(number)))
    }

    async fn write_vectored(&self, at: MemberByte, from: Vec<Block>) -> Result<(), MemberError> {
        from.iter().for_each(|block| self.check_memory(block));
        let bytes: Vec<u8> = from.iter().flat_map(|block| block.iter().copied()).collect();
        self.put_all(Operation::Write, at, bytes).await
    }

    async fn flush(&self) -> Result<(), MemberError> {
        let answered: Vec<u64> =
            self.0.cache.borrow().iter().filter(|write| write.answered).map(|write| write.number).collect();
        self.latency().await;
        self.boundary();
        self.check(Operation::Flush, MemberByte(0), 0)?;
        self.settle(&answered);
        Ok(())
    }

    async fn discard(&self, at: MemberByte, bytes: u64) -> Result<(), MemberError> {
        let contents = match self.0.zeroing {
            Zeroing::Discards => vec![0; bytes as usize],
            Zeroing::DiscardsToNoise => vec![self.0.world.chance(0..256) as u8; bytes as usize],
            _ => return Err(self.unsupported(Operation::Discard, at, bytes)),
        };
        self.put_all(Operation::Discard, at, contents).await
    }

    async fn write_zeroes(&self, at: MemberByte, bytes: u64) -> Result<(), MemberError> {
        match self.0.zeroing {
            Zeroing::Never | Zeroing::Promises => Err(self.unsupported(Operation::WriteZeroes, at, bytes)),
            _ => self.put_all(Operation::WriteZeroes, at, vec![0; bytes as usize]).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_of_power_leaves_what_was_foretold() {
        let mut random = Random::new(7);
        let world = World::new(7);
        let member = SimMember::new("it".to_owned(), &world, vec![0; 4096], Rc::default());
        for value in 1..4 {
            let _ = member.put(512 * u64::from(value % 2), vec![value; 2048]);
        }
        let foretold = member.may_be_left(0..4096);
        assert_eq!(foretold.iter().map(Vec::len).collect::<Vec<_>>(), [2, 4, 4, 4, 3, 1, 1, 1]);
        for _ in 0..100 {
            let left = member.after_power_loss(&mut random);
            let mut sectors = left.chunks(SECTOR_BYTES as usize).zip(&foretold);
            assert!(sectors.all(|(found, foretold)| foretold.iter().any(|one| one == found)));
        }
    }
}
