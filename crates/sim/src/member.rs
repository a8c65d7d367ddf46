//! A member in memory with a volatile cache, latencies by chance, and faults.
//!
//! What was written but not flushed is in the cache; when the power goes, each
//! such write is kept, lost, or torn at a logical block, by chance: so every order
//! in which a drive may write is tried. A transfer to a faulty place fails and,
//! for a write, may have been done in part.

use crate::executor::World;
use crate::random::Random;
use engine::{Block, Buffer, Clock, Limits, Member, MemberError, MemberErrorKind, Operation};
use format::units::MemberByte;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

/// What is wrong with a member; shared with whoever sets it.
#[derive(Debug, Default)]
pub struct Faults {
    /// Reads that touch one of these fail.
    pub bad_reads: RefCell<Vec<Range<u64>>>,
    /// Writes that touch one of these fail.
    pub bad_writes: RefCell<Vec<Range<u64>>>,
    /// Everything fails.
    pub gone: Cell<bool>,
}

/// A write in the cache: what it put where.
struct Cached {
    at: u64,
    bytes: Vec<u8>,
}

struct State {
    name: String,
    world: World,
    limits: Limits,
    /// On stable storage.
    stable: RefCell<Vec<u8>>,
    /// With the cache on top: what reads see.
    seen: RefCell<Vec<u8>>,
    cache: RefCell<Vec<Cached>>,
    faults: Rc<Faults>,
    /// Writes and flushes begun, for cutting power at a chosen one.
    boundaries: Rc<Cell<u64>>,
}

/// A member of a simulated world; clones share it.
#[derive(Clone)]
pub struct SimMember(Rc<State>);

impl SimMember {
    /// A member called `name` that holds `contents`. `boundaries` counts the writes and
    /// flushes of all members that share it.
    pub fn new(name: String, world: &World, contents: Vec<u8>, boundaries: Rc<Cell<u64>>) -> Self {
        let limits = Limits {
            bytes: contents.len() as u64,
            logical_block_bytes: 512,
            physical_block_bytes: 4096,
            optimal_bytes: 0,
            discards: false,
            volatile_cache: true,
        };
        Self(Rc::new(State {
            name,
            world: world.clone(),
            limits,
            seen: RefCell::new(contents.clone()),
            stable: RefCell::new(contents),
            cache: RefCell::default(),
            faults: Rc::default(),
            boundaries,
        }))
    }

    /// The same with larger logical blocks.
    ///
    /// # Panics
    /// When it is shared already.
    pub fn with_blocks(mut self, bytes: u32) -> Self {
        Rc::get_mut(&mut self.0).expect("a member is not shared yet").limits.logical_block_bytes = bytes;
        self
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

    /// What is left after the power went, by `random`.
    pub fn after_power_loss(&self, random: &mut Random) -> Vec<u8> {
        let tear_bytes = self.0.limits.logical_block_bytes as usize;
        let mut left = self.0.stable.borrow().clone();
        for write in self.0.cache.borrow().iter() {
            let kept = match random.within(0..3) {
                0 => 0,
                1 => write.bytes.len(),
                _ => random.within(0..(write.bytes.len() / tear_bytes) as u64 + 1) as usize * tear_bytes,
            };
            let at = write.at as usize;
            left[at..at + kept].copy_from_slice(&write.bytes[..kept]);
        }
        left
    }

    async fn latency(&self) {
        let clock = self.0.world.clock();
        let nanos = self.0.world.chance(1_000..200_000);
        clock.sleep_until(clock.now() + Duration::from_nanos(nanos)).await;
    }

    fn error(&self, operation: Operation, at: MemberByte, bytes: u64) -> MemberError {
        let kind = if self.0.faults.gone.get() { MemberErrorKind::Gone } else { MemberErrorKind::Io };
        MemberError { kind, operation, at, bytes, source: Rc::new(std::io::Error::other("a simulated fault")) }
    }

    fn check(&self, operation: Operation, at: MemberByte, bytes: u64) -> Result<(), MemberError> {
        let unit = u64::from(self.0.limits.logical_block_bytes);
        assert!((at.0 | bytes).is_multiple_of(unit), "{operation:?} of {bytes} bytes at {} is not aligned", at.0);
        assert!(at.0 + bytes <= self.0.limits.bytes, "{operation:?} of {bytes} bytes at {} is out of range", at.0);
        let touches = |ranges: &RefCell<Vec<Range<u64>>>| {
            ranges.borrow().iter().any(|bad| bad.start < at.0 + bytes && at.0 < bad.end)
        };
        let is_bad = match operation {
            Operation::Read => touches(&self.0.faults.bad_reads),
            Operation::Write => touches(&self.0.faults.bad_writes),
            _ => false,
        };
        match is_bad || self.0.faults.gone.get() {
            true => Err(self.error(operation, at, bytes)),
            false => Ok(()),
        }
    }

    fn put(&self, at: u64, bytes: &[u8]) {
        self.0.seen.borrow_mut()[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
        self.0.cache.borrow_mut().push(Cached { at, bytes: bytes.to_vec() });
    }

    fn boundary(&self) {
        self.0.boundaries.set(self.0.boundaries.get() + 1);
    }
}

impl Member for SimMember {
    fn limits(&self) -> &Limits {
        &self.0.limits
    }

    async fn read(&self, at: MemberByte, mut into: Buffer) -> (Result<(), MemberError>, Buffer) {
        self.latency().await;
        let checked = self.check(Operation::Read, at, into.len() as u64);
        let start = at.0 as usize;
        match &checked {
            Ok(()) => {
                let length = into.len();
                into.copy_from_slice(&self.0.seen.borrow()[start..start + length]);
            }
            Err(_) => into.fill(0xee),
        }
        (checked, into)
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
        self.write_vectored(at, vec![from]).await
    }

    async fn write_vectored(&self, at: MemberByte, from: Vec<Block>) -> Result<(), MemberError> {
        let bytes: Vec<u8> = from.iter().flat_map(|block| block.iter().copied()).collect();
        self.latency().await;
        self.boundary();
        if let Err(error) = self.check(Operation::Write, at, bytes.len() as u64) {
            self.put(at.0, &bytes[..bytes.len() / 1024 * 512]);
            return Err(error);
        }
        self.put(at.0, &bytes);
        self.latency().await;
        Ok(())
    }

    async fn flush(&self) -> Result<(), MemberError> {
        self.latency().await;
        self.boundary();
        self.check(Operation::Flush, MemberByte(0), 0)?;
        for write in self.0.cache.borrow_mut().drain(..) {
            let at = write.at as usize;
            self.0.stable.borrow_mut()[at..at + write.bytes.len()].copy_from_slice(&write.bytes);
        }
        Ok(())
    }

    async fn discard(&self, at: MemberByte, bytes: u64) -> Result<(), MemberError> {
        Err(MemberError { kind: MemberErrorKind::Unsupported, ..self.error(Operation::Discard, at, bytes) })
    }

    async fn write_zeroes(&self, at: MemberByte, bytes: u64) -> Result<(), MemberError> {
        Err(MemberError { kind: MemberErrorKind::Unsupported, ..self.error(Operation::WriteZeroes, at, bytes) })
    }
}
