//! An image of a disk that could not be read everywhere: a member that fails reads of what the image lacks.
//!
//! The image has zeros there, which no read tells from data. Here such a read is a medium error, as of the disk, and the
//! array reconstructs the data from other members. It is never written: its holes would then say the wrong thing.

use crate::any::AnyMember;
use engine::{Block, Buffer, Limits, Member, MemberError, MemberErrorKind, MemberFault, Operation};
use format::units::{MemberByte, SECTOR_BYTES};
use std::io;
use std::ops::Range;
use std::rc::Rc;

/// The reason of a read that fails for a hole.
pub const NOT_IN_IMAGE: &str = "not in the image, by its map";

/// An image and its holes.
#[derive(Debug)]
pub struct Rescued {
    under: AnyMember,
    /// In ascending order; no two overlap.
    holes: Vec<Range<u64>>,
    limits: Limits,
}

impl Rescued {
    /// An image of a disk of which `disk_bytes` bytes are known. `holes` are the ranges that the image lacks, ascending
    /// and without overlap. What lies past the end of `under` is a hole, too, as programs that copy a disk write no
    /// file that ends in one; and so is what lies past `disk_bytes`.
    pub fn new(under: AnyMember, disk_bytes: u64, mut holes: Vec<Range<u64>>) -> Self {
        debug_assert!(holes.windows(2).all(|pair| pair[0].end <= pair[1].start), "{holes:?}");
        let there = under.limits().bytes;
        let bytes = there.max(disk_bytes / SECTOR_BYTES * SECTOR_BYTES);
        holes.iter_mut().for_each(|hole| hole.end = hole.end.min(there));
        holes.retain(|hole| hole.start < hole.end);
        holes.push(there.min(disk_bytes)..u64::MAX);
        let limits = Limits { bytes, synchronous: false, ..under.limits().clone() };
        Self { under, holes, limits }
    }

    /// Fails for a range that is not all in the image.
    fn check(&self, at: MemberByte, bytes: u64) -> Result<(), MemberError> {
        let end = at.0.saturating_add(bytes);
        let next = self.holes.partition_point(|hole| hole.end <= at.0);
        let kind = match self.holes.get(next) {
            _ if end > self.limits.bytes => MemberErrorKind::Short,
            Some(hole) if hole.start < end => MemberErrorKind::Io,
            _ => return Ok(()),
        };
        let text = match kind {
            MemberErrorKind::Short => "beyond the member's end",
            _ => NOT_IN_IMAGE,
        };
        Err(fault(kind, Operation::Read, at, bytes, text))
    }
}

impl Member for Rescued {
    fn limits(&self) -> &Limits {
        &self.limits
    }

    async fn read(&self, at: MemberByte, into: Buffer) -> (Result<(), MemberError>, Buffer) {
        match self.check(at, into.len() as u64) {
            Ok(()) => self.under.read(at, into).await,
            Err(error) => (Err(error), into),
        }
    }

    async fn read_vectored(&self, at: MemberByte, into: Vec<Buffer>) -> (Result<(), MemberError>, Vec<Buffer>) {
        match self.check(at, into.iter().map(|part| part.len() as u64).sum()) {
            Ok(()) => self.under.read_vectored(at, into).await,
            Err(error) => (Err(error), into),
        }
    }

    async fn write(&self, at: MemberByte, from: Block) -> Result<(), MemberError> {
        Err(never_written(Operation::Write, at, from.len() as u64))
    }

    async fn write_vectored(&self, at: MemberByte, from: Vec<Block>) -> Result<(), MemberError> {
        Err(never_written(Operation::Write, at, from.iter().map(|part| part.len() as u64).sum()))
    }

    async fn flush(&self) -> Result<(), MemberError> {
        Ok(())
    }

    async fn discard(&self, at: MemberByte, bytes: u64) -> Result<(), MemberError> {
        Err(never_written(Operation::Discard, at, bytes))
    }

    async fn write_zeroes(&self, at: MemberByte, bytes: u64) -> Result<(), MemberError> {
        Err(never_written(Operation::WriteZeroes, at, bytes))
    }
}

fn never_written(operation: Operation, at: MemberByte, bytes: u64) -> MemberError {
    fault(MemberErrorKind::Io, operation, at, bytes, "an image with a map is only read")
}

fn fault(kind: MemberErrorKind, operation: Operation, at: MemberByte, bytes: u64, text: &'static str) -> MemberError {
    MemberFault { kind, operation, at, bytes, source: Rc::new(io::Error::other(text)) }.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryMember;
    use engine::Pool;
    use futures_util::FutureExt;

    const UNIT: u64 = SECTOR_BYTES;

    #[test]
    fn what_touches_a_hole_is_a_medium_error_and_everything_else_is_read() {
        let pool = Pool::new(1 << 20);
        let under = MemoryMember::new(16 * UNIT).expect("memory");
        let old: Vec<u8> = (0..16 * UNIT).map(|byte| (byte / UNIT) as u8 + 1).collect();
        under.write(MemberByte(0), pool.copy_of(&old)).now_or_never().expect("at once").expect("in range");
        // One hole begins and ends within a sector, one lies partly past the image's end.
        let holes = || vec![0..UNIT, 3 * UNIT + 5..4 * UNIT + 1, 15 * UNIT..17 * UNIT];
        let image = Rescued::new(under.into(), 18 * UNIT + 7, holes());
        assert_eq!(image.limits().bytes, 18 * UNIT);
        let lost = [0, 3, 4, 15, 16, 17];
        for at in 0..20 {
            for units in 1..=20 - at {
                let mut first = pool.take((units * UNIT) as usize);
                let read = image.read(MemberByte(at * UNIT), pool.take(first.len())).now_or_never().expect("at once");
                let second = first.split_to((units / 2 * UNIT) as usize);
                let vectored = image.read_vectored(MemberByte(at * UNIT), vec![second, first]);
                let (vectored, parts) = vectored.now_or_never().expect("at once");
                let expected = match lost.iter().any(|unit| (at..at + units).contains(unit)) {
                    _ if at + units > 18 => Some(MemberErrorKind::Short),
                    true => Some(MemberErrorKind::Io),
                    false => None,
                };
                assert_eq!(read.0.err().map(|error| error.kind), expected, "{units} at {at}");
                assert_eq!(vectored.err().map(|error| error.kind), expected, "{units} at {at}");
                if expected.is_none() {
                    let place = (at * UNIT) as usize..((at + units) * UNIT) as usize;
                    assert!(read.1[..] == old[place.clone()], "{units} at {at}");
                    assert!(parts.iter().flat_map(|part| part.to_vec()).eq(old[place].iter().copied()));
                }
            }
        }
        let written = image.write(MemberByte(UNIT), pool.copy_of(&[7; 512])).now_or_never().expect("at once");
        assert_eq!(written.expect_err("never written").kind, MemberErrorKind::Io);
    }
}
