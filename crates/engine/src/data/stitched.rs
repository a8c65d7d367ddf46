//! Reads of an array whose bytes are in two shapes, as in the middle of a reshape. Each shape is a data path of its own
//! over the same members, and this file only says which one has which bytes.
//!
//! Such an array is only read: nothing is written, locked or marked here.

use crate::base::buffer::Buffer;
use crate::core::authority::Authority;
use crate::data::plane::DataPlane;
use crate::seam::clock::Clock;
use crate::seam::error::ArrayError;
use crate::seam::member::Member;
use std::ops::Range;
use std::rc::Rc;

/// The bytes of the array that another data path reads.
pub(crate) struct Elsewhere<M: Member, C: Clock, A: Authority<M>> {
    pub(crate) range: Range<u64>,
    pub(crate) plane: Rc<DataPlane<M, C, A>>,
}

impl<M: Member, C: Clock, A: Authority<M>> DataPlane<M, C, A> {
    /// Reads `into.len()` bytes from `at` on, each part by the data path that has it.
    pub(super) async fn read_stitched(
        &self,
        elsewhere: &Elsewhere<M, C, A>,
        at: u64,
        mut into: Buffer,
    ) -> Result<Buffer, ArrayError> {
        let end = at + into.len() as u64;
        let bounds = [at, elsewhere.range.start.clamp(at, end), elsewhere.range.end.clamp(at, end), end];
        for (index, part) in bounds.windows(2).enumerate().filter(|(_, part)| part[0] < part[1]) {
            let piece = self.core.pool.take((part[1] - part[0]) as usize);
            let piece = match index == 1 {
                true => Box::pin(elsewhere.plane.read(part[0], piece)).await?,
                false => self.read_any(part[0], piece).await?,
            };
            into[(part[0] - at) as usize..(part[1] - at) as usize].copy_from_slice(&piece);
        }
        Ok(into)
    }
}
