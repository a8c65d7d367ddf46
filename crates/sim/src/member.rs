//! A member in memory with a volatile cache, latencies by chance, and [`Faults`].
//!
//! What was written but not flushed is in the cache; when the power goes, each
//! such write is kept, lost, or torn, by chance: so every order in which a drive
//! may write is tried. A flush covers the writes that were answered before it
//! began, and no others for sure. A transfer to a faulty place fails and, for a
//! write, may have been done in part.

use crate::faults::{Faults, Mishap};
use engine::{Block, Buffer, Clock, Limits, Member, MemberError, MemberErrorKind, MemberFault, Moment, Operation};
use format::units::MemberByte;
use std::cell::{Cell, Ref, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;
use world::{Random, World, member_limits};

/// Smallest part of a write that is there whole or not at all.
const SECTOR_BYTES: u64 = 512;

/// What a member makes of discard and write-zeroes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Zeroing {
    /// It can do neither.
    Never,
    /// It writes zeros, and cannot discard.
    Zeroes,
    /// It does both; what is discarded reads as zeros.
    Discards,
    /// What is discarded reads as anything. It promises nothing else.
    DiscardsToNoise,
    /// It promises everything, and can do nothing when it is asked.
    Promises,
}

/// A write in the cache: what it put where.
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
    /// The unit at which writes tear when the power goes.
    tear_bytes: u64,
    /// Where writes can be lost and misdirected; and to.
    area: Range<u64>,
    /// On stable storage.
    stable: RefCell<Vec<u8>>,
    /// With the cache on top: what reads see.
    seen: RefCell<Vec<u8>>,
    cache: RefCell<Vec<Cached>>,
    writes: Cell<u64>,
    faults: Rc<Faults>,
    /// Writes and flushes begun, for cutting power at a chosen one.
    boundaries: Rc<Cell<u64>>,
    /// Of these, writes outside the area.
    marks: Rc<Cell<u64>>,
    /// By which latencies are multiplied.
    slowness: u64,
    /// Whether it does some reads and writes at once.
    is_prompt: bool,
}

/// A member of a simulated world; clones share it.
#[derive(Clone)]
pub struct SimMember(Rc<State>);

impl SimMember {
    /// A member called `name` that holds `contents`. `boundaries` counts the writes and
    /// flushes of all members that share it.
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

    /// The same with larger logical blocks.
    ///
    /// # Panics
    /// When it is shared already.
    pub fn with_blocks(mut self, bytes: u32) -> Self {
        self.unshared().limits.logical_block_bytes = bytes;
        self
    }

    /// The same, tearing writes at multiples of this many bytes only.
    ///
    /// # Panics
    /// When it is shared already.
    pub fn with_tears(mut self, bytes: u64) -> Self {
        self.unshared().tear_bytes = bytes;
        self
    }

    /// The same, so many times as slow.
    ///
    /// # Panics
    /// When it is shared already.
    pub fn with_slowness(mut self, times: u64) -> Self {
        self.unshared().slowness = times;
        self
    }

    /// The same, doing every other read and write at once, by chance, as long as nothing makes it late.
    ///
    /// # Panics
    /// When it is shared already.
    pub fn with_promptness(mut self, is_prompt: bool) -> Self {
        let state = self.unshared();
        (state.is_prompt, state.limits.synchronous) = (is_prompt, is_prompt);
        self
    }

    /// The same; `marks` counts the writes of all members that share it which are not to the area of silent mishaps:
    /// what marks the state of things, and is no data.
    ///
    /// # Panics
    /// When it is shared already.
    pub fn with_marks(mut self, marks: Rc<Cell<u64>>) -> Self {
        self.unshared().marks = marks;
        self
    }

    /// The same, with silent mishaps confined to a part of it.
    ///
    /// # Panics
    /// When it is shared already.
    pub fn with_silent_mishaps_in(mut self, area: Range<u64>) -> Self {
        self.unshared().area = area;
        self
    }

    /// The same, zeroing in its own way.
    ///
    /// # Panics
    /// When it is shared already.
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

    /// Whether anybody holds another clone of it.
    pub fn is_held(&self) -> bool {
        Rc::strong_count(&self.0) > 1
    }

    /// Its name.
    pub fn name(&self) -> String {
        self.0.name.clone()
    }

    /// Its faults, to be set.
    pub fn faults(&self) -> Rc<Faults> {
        self.0.faults.clone()
    }

    /// What reads see.
    pub fn contents(&self) -> Vec<u8> {
        self.0.seen.borrow().clone()
    }

    /// What reads see, for a look at it.
    pub fn image(&self) -> Ref<'_, Vec<u8>> {
        self.0.seen.borrow()
    }

    /// What would be left if the power went now, by `random`; it does not go.
    pub fn after_power_loss(&self, random: &mut Random) -> Vec<u8> {
        let (mut stable, mut seen) = (self.0.stable.borrow().clone(), self.contents());
        self.lose(&self.0.cache.borrow(), &mut stable, &mut seen, random);
        seen
    }

    /// The power goes: the cache is lost, by `random`, and what is left is what it holds from now on.
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

    /// Whole, not at all, its beginning, or any parts of it.
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

    /// Changes bytes of a range without anybody being told.
    pub fn corrupt(&self, range: Range<u64>, random: &mut Random) {
        let mut noise = vec![0; (range.end - range.start) as usize];
        random.fill(&mut noise);
        self.plant(range.start, &noise);
        self.0.faults.silent.borrow_mut().push(range);
    }

    /// Puts other bytes in place, on stable storage, without anybody being told.
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

    /// A drive that is written and read directly takes no other memory.
    fn check_memory(&self, bytes: &[u8]) {
        let unit = self.0.limits.logical_block_bytes as usize;
        assert!((bytes.as_ptr() as usize).is_multiple_of(unit), "memory of a transfer that is not aligned to {unit}");
    }

    /// Whether the operation goes well; and if it does, what befalls it unseen.
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
        if fails && operation == Operation::Read {
            self.0.faults.unread.borrow_mut().push(at.0..at.0 + bytes);
        }
        match fails {
            true => Err(self.error(operation, at, bytes)),
            false => Ok(mishap),
        }
    }

    /// Into the cache; gives the number to answer for.
    fn put(&self, at: u64, bytes: Vec<u8>) -> u64 {
        self.0.seen.borrow_mut()[at as usize..at as usize + bytes.len()].copy_from_slice(&bytes);
        self.0.faults.rewritten(&(at..at + bytes.len() as u64));
        let number = self.0.writes.replace(self.0.writes.get() + 1);
        self.0.cache.borrow_mut().push(Cached { number, at, bytes, answered: false });
        number
    }

    /// As [`Self::put`], for a write that goes astray; where it does, others will find wrong bytes.
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

    /// Whoever used it is no more, and what was begun has ended: a flush by the next user covers it.
    pub fn end_of_process(&self) {
        self.0.cache.borrow_mut().iter_mut().for_each(|write| write.answered = true);
    }

    /// Puts all that was written on stable storage.
    pub fn settle_all(&self) {
        self.0.cache.borrow_mut().clear();
        self.0.stable.borrow_mut().copy_from_slice(&self.0.seen.borrow());
    }

    /// Puts writes on stable storage: those numbered, and what lies under them.
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

    /// As [`Self::put`], unless it is to fail; where it does, a part is there.
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

    /// Whether what is asked of it is to be done at once: all but one of so many times.
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
