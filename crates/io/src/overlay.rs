//! A member whose writes stay in memory, over another member that is only read.
//!
//! It serves readers that must see other bytes than the medium holds: superblocks of a geometry that a user states, or
//! a log that was replayed. It never writes to the member below, and bounds no memory: its users write little.

use crate::any::AnyMember;
use crate::parts::{range_within, read_each};
use engine::{Block, Buffer, Limits, Member, MemberError, MemberErrorKind, MemberFault, Operation};
use format::units::MemberByte;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::rc::Rc;

/// Writes in memory over a member.
#[derive(Debug)]
pub struct Overlay {
    under: AnyMember,
    /// Bytes in front of the member below. They exist in memory alone, as zeros at first.
    head_bytes: u64,
    limits: Limits,
    written: RefCell<Extents>,
}

impl Overlay {
    /// An overlay over all of `under`.
    pub fn in_memory(under: AnyMember) -> Self {
        Self::behind(0, under)
    }

    /// A member of `head_bytes` bytes in memory, and `under` behind them. `head_bytes` is a multiple of the logical
    /// block.
    pub fn behind(head_bytes: u64, under: AnyMember) -> Self {
        let below = under.limits();
        let limits = Limits {
            bytes: head_bytes + below.bytes,
            synchronous: false,
            discards: false,
            discards_to_zeros: false,
            volatile_cache: false,
            ..below.clone()
        };
        Self { under, head_bytes, limits, written: RefCell::default() }
    }

    fn range(&self, operation: Operation, at: MemberByte, bytes: u64) -> Result<Range<u64>, MemberError> {
        range_within(&self.limits, operation, at, bytes)
    }

    /// Fills `into` with what lies below the overlay.
    async fn read_below(&self, range: Range<u64>, mut into: Buffer) -> (Result<(), MemberError>, Buffer) {
        let head = self.head_bytes.saturating_sub(range.start).min(into.len() as u64);
        if head == 0 {
            return self.under.read(MemberByte(range.start - self.head_bytes), into).await;
        }
        let mut front = into.split_to(head as usize);
        front.fill(0);
        let (read, rest) = match into.is_empty() {
            true => (Ok(()), into),
            false => self.under.read(MemberByte(0), into).await,
        };
        front.join(rest);
        (read, front)
    }
}

impl Member for Overlay {
    fn limits(&self) -> &Limits {
        &self.limits
    }

    async fn read(&self, at: MemberByte, mut into: Buffer) -> (Result<(), MemberError>, Buffer) {
        let range = match self.range(Operation::Read, at, into.len() as u64) {
            Ok(range) => range,
            Err(error) => return (Err(error), into),
        };
        if !self.written.borrow().cover(&range) {
            let (read, filled) = self.read_below(range.clone(), into).await;
            if read.is_err() {
                return (read, filled);
            }
            into = filled;
        }
        self.written.borrow().copy_to(range, &mut into);
        (Ok(()), into)
    }

    async fn read_vectored(&self, at: MemberByte, into: Vec<Buffer>) -> (Result<(), MemberError>, Vec<Buffer>) {
        read_each(self, at, into).await
    }

    async fn write(&self, at: MemberByte, from: Block) -> Result<(), MemberError> {
        let range = self.range(Operation::Write, at, from.len() as u64)?;
        self.written.borrow_mut().insert(range, &from);
        Ok(())
    }

    async fn write_vectored(&self, at: MemberByte, from: Vec<Block>) -> Result<(), MemberError> {
        let mut position = at.0;
        for part in from {
            let bytes = part.len() as u64;
            self.write(MemberByte(position), part).await?;
            position += bytes;
        }
        Ok(())
    }

    async fn flush(&self) -> Result<(), MemberError> {
        Ok(())
    }

    async fn discard(&self, at: MemberByte, bytes: u64) -> Result<(), MemberError> {
        Err(unsupported(Operation::Discard, at, bytes))
    }

    async fn write_zeroes(&self, at: MemberByte, bytes: u64) -> Result<(), MemberError> {
        Err(unsupported(Operation::WriteZeroes, at, bytes))
    }
}

fn unsupported(operation: Operation, at: MemberByte, bytes: u64) -> MemberError {
    let source = Rc::new(io::Error::from(io::ErrorKind::Unsupported));
    MemberFault { kind: MemberErrorKind::Unsupported, operation, at, bytes, source }.into()
}

/// Written ranges that do not overlap, by their beginning.
#[derive(Debug, Default)]
struct Extents(BTreeMap<u64, Vec<u8>>);

impl Extents {
    /// The extents that overlap `range`, in order.
    fn within(&self, range: Range<u64>) -> impl Iterator<Item = (u64, &[u8])> {
        let before = self.0.range(..=range.start).next_back();
        let first = before.map_or(range.start, |(&at, _)| at);
        let found = self.0.range(first..range.end.max(first)).map(|(&at, bytes)| (at, &bytes[..]));
        found.filter(move |(at, bytes)| at + bytes.len() as u64 > range.start)
    }

    /// Whether every byte of `range` was written.
    fn cover(&self, range: &Range<u64>) -> bool {
        let mut reached = range.start;
        for (at, bytes) in self.within(range.clone()) {
            if at > reached {
                return false;
            }
            reached = at + bytes.len() as u64;
        }
        reached >= range.end
    }

    /// Copies what was written of `range` over `into`.
    fn copy_to(&self, range: Range<u64>, into: &mut [u8]) {
        for (at, bytes) in self.within(range.clone()) {
            let (start, end) = (at.max(range.start), (at + bytes.len() as u64).min(range.end));
            let place = (start - range.start) as usize..(end - range.start) as usize;
            into[place].copy_from_slice(&bytes[(start - at) as usize..(end - at) as usize]);
        }
    }

    /// Replaces `range`. Of extents that overlap it, the rest stays.
    fn insert(&mut self, range: Range<u64>, new: &[u8]) {
        let overlapped: Vec<u64> = self.within(range.clone()).map(|(at, _)| at).collect();
        for at in overlapped {
            let mut bytes = self.0.remove(&at).expect("just found");
            if at + bytes.len() as u64 > range.end {
                self.0.insert(range.end, bytes.split_off((range.end - at) as usize));
            }
            if at < range.start {
                bytes.truncate((range.start - at) as usize);
                self.0.insert(at, bytes);
            }
        }
        if !new.is_empty() {
            self.0.insert(range.start, new.to_vec());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryMember;
    use engine::Pool;
    use futures_util::FutureExt;

    /// A pseudorandom number below `limit`, from the state of a generator.
    fn below(state: &mut u64, limit: u64) -> u64 {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) % limit
    }

    #[test]
    fn an_overlay_reads_as_a_disk_would_and_the_member_below_never_changes() {
        const UNIT: u64 = 512;
        let pool = Pool::new(1 << 20);
        for (head, seed) in [(0, 1), (0, 2), (3 * UNIT, 3), (3 * UNIT, 4), (40 * UNIT, 5)] {
            let bytes = 32 * UNIT;
            let under = Rc::new(MemoryMember::new(bytes).expect("memory"));
            let old: Vec<u8> = (0..bytes).map(|byte| (byte / UNIT) as u8 + 100).collect();
            under.write(MemberByte(0), pool.copy_of(&old)).now_or_never().expect("at once").expect("in range");
            let mut model = vec![0; head as usize];
            model.extend_from_slice(&old);
            let overlay = Overlay::behind(head, AnyMember::Memory(under.clone()));
            assert_eq!(overlay.limits().bytes, head + bytes);

            let mut state = seed;
            for step in 0..2000_u64 {
                let at = below(&mut state, (head + bytes) / UNIT);
                let length = below(&mut state, (head + bytes) / UNIT - at) + 1;
                let place = (at * UNIT) as usize..((at + length) * UNIT) as usize;
                if below(&mut state, 3) == 0 {
                    let new = vec![step as u8; place.len()];
                    let written = overlay.write(MemberByte(at * UNIT), pool.copy_of(&new));
                    written.now_or_never().expect("at once").expect("in range");
                    model[place].copy_from_slice(&new);
                    continue;
                }
                let mut first = pool.take(place.len());
                let second = first.split_to(first.len() / 2 / UNIT as usize * UNIT as usize);
                let read = overlay.read_vectored(MemberByte(at * UNIT), vec![second, first]);
                let (read, parts) = read.now_or_never().expect("at once");
                read.expect("in range");
                let got: Vec<u8> = parts.iter().flat_map(|part| part.to_vec()).collect();
                assert!(got == model[place], "seed {seed}, step {step}");
            }
            let (read, now) = under.read(MemberByte(0), pool.take(bytes as usize)).now_or_never().expect("at once");
            read.expect("in range");
            assert!(now[..] == old, "an overlay wrote to the member below");
            let beyond = overlay.write(MemberByte(head + bytes), pool.copy_of(&[0; 512])).now_or_never();
            assert_eq!(beyond.expect("at once").expect_err("beyond").kind, MemberErrorKind::Short);
        }
    }
}
