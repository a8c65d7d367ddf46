//! Reads of an array whose bytes are in two shapes, as in the middle of a reshape. Each shape is a data path of its own
//! over the same members, and a backup may have bytes that neither has for certain. This file only says which one has
//! which bytes.
//!
//! Such an array is only read: nothing is written, locked or marked here.

use crate::base::buffer::Buffer;
use crate::core::authority::Authority;
use crate::data::plane::DataPlane;
use crate::seam::bytes::read_bytes;
use crate::seam::clock::Clock;
use crate::seam::error::{ArrayError, ArrayErrorKind};
use crate::seam::member::{Candidate, Member};
use format::units::MemberByte;
use std::ops::Range;
use std::rc::Rc;

/// Bytes of the array that this data path does not read. Of two that have a byte, the first counts.
pub(crate) struct Elsewhere<M: Member, C: Clock, A: Authority<M>> {
    pub(crate) range: Range<u64>,
    pub(crate) source: Source<M, C, A>,
}

/// Where bytes of the array are.
pub(crate) enum Source<M: Member, C: Clock, A: Authority<M>> {
    /// In another shape of the array.
    Shape(Rc<DataPlane<M, C, A>>),
    /// On this file or member as they are, the first of them here.
    Plain(Rc<Candidate<M>>, MemberByte),
    /// Nowhere for certain, for this reason.
    Lost(Rc<str>),
}

impl<M: Member, C: Clock, A: Authority<M>> DataPlane<M, C, A> {
    /// Reads `into.len()` bytes from `at` on, each part from where it is.
    pub(super) async fn read_stitched(
        &self,
        elsewhere: &[Elsewhere<M, C, A>],
        mut at: u64,
        mut into: Buffer,
    ) -> Result<Buffer, ArrayError> {
        let (start, end) = (at, at + into.len() as u64);
        while at < end {
            let (found, until) = part(elsewhere, at, end);
            let target = (at - start) as usize..(until - start) as usize;
            match found {
                Some(Elsewhere { range, source: Source::Plain(file, first) }) => {
                    let from = MemberByte(first.0 + (at - range.start));
                    let bytes = read_bytes(&file.member, &self.core.pool, from, until - at).await;
                    let failed = |reason| ArrayError::new(ArrayErrorKind::Io, format!("{}: {reason}", file.name));
                    into[target].copy_from_slice(&bytes.map_err(failed)?);
                }
                Some(Elsewhere { source: Source::Lost(reason), .. }) => {
                    return Err(ArrayError::new(ArrayErrorKind::Io, &**reason));
                }
                Some(Elsewhere { source: Source::Shape(plane), .. }) => {
                    let piece = Box::pin(plane.read(at, self.core.pool.take(target.len()))).await?;
                    into[target].copy_from_slice(&piece);
                }
                None => {
                    let piece = self.read_any(at, self.core.pool.take(target.len())).await?;
                    into[target].copy_from_slice(&piece);
                }
            }
            at = until;
        }
        Ok(into)
    }
}

/// What has the byte at `at`, and up to where, at most `end`.
fn part<M: Member, C: Clock, A: Authority<M>>(
    elsewhere: &[Elsewhere<M, C, A>],
    at: u64,
    mut end: u64,
) -> (Option<&Elsewhere<M, C, A>>, u64) {
    for one in elsewhere {
        if one.range.contains(&at) {
            return (Some(one), end.min(one.range.end));
        }
        if at < one.range.start {
            end = end.min(one.range.start);
        }
    }
    (None, end)
}
