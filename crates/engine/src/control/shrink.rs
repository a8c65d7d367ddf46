//! An array that is made smaller: less of each member is used, and what lay behind its new end is lost.
//!
//! The array is stopped first, so nobody who uses one ever sees it shrink. Then its members are told, in two rounds
//! of superblocks that are those of [`crate::control::grow`]: the bitmap is removed, whose bits are of the old shape;
//! then they have the new size, together with a bitmap of the new shape. Wherever the power goes it is an array of
//! the old size or of the new one, and members that were not told follow the others (`catch_up` in `assemble`). No
//! data is written: what stays is where it was and in agreement as it was, and what is lost is on the members still.
//!
//! Facts: `update_size` in `drivers/md/md.c`, `raid5_resize`, `raid1_resize` and `raid10_resize`.

use crate::control::Control;
use crate::control::grow::{Growth, Plan, unwell};
use crate::seam::clock::Clock;
use crate::seam::error::{ArrayError, ArrayErrorKind, Refusal};
use crate::seam::member::Member;
use format::geometry::Geometry;
use format::superblock::Resync;
use format::units::Sectors;

impl<M: Member, C: Clock> Control<M, C> {
    /// [`crate::Array::plan_shrinking`].
    pub(crate) fn plan_shrinking(&self, wanted: u64) -> Result<Option<Growth>, Refusal> {
        Ok(self.plan_to_shrink(wanted)?.as_ref().map(Growth::of))
    }

    /// [`crate::Array::shrink`].
    pub(crate) async fn shrink(&self, shrinking: Growth) -> Result<(), ArrayError> {
        self.stop().await?;
        let _lock = self.metadata.lock.exclusive(0..1).await;
        let Some(plan) = self.plan_to_shrink(shrinking.component_bytes()).map_err(unwell)? else { return Ok(()) };
        if plan.bitmap.is_some() {
            self.metadata.drop_bitmap().await.map_err(unwell)?;
        }
        if self.core.devices().len() != plan.planned.len() {
            return Err(ArrayError::new(ArrayErrorKind::Io, "a member failed, and the array did not shrink"));
        }
        self.tell_of_component(&plan, Resync::Clean).await?;
        self.core.geometries.grow(plan.geometry);
        Ok(())
    }
}

impl<M: Member, C: Clock> Control<M, C> {
    /// As [`crate::Array::plan_shrinking`]. Nothing is rounded, as that would cut off more than was asked for.
    fn plan_to_shrink(&self, wanted: u64) -> Result<Option<Plan<M>>, Refusal> {
        self.check_kind()?;
        let bare = self.without_bitmap()?;
        let (_, superblock) = &bare[0];
        let (now, component) = (superblock.component, superblock.rounded_component(Sectors::from_bytes_down(wanted)));
        let refuse = |reason: String| Refusal::new(reason).field("superblock.size");
        if wanted == now.bytes() {
            return Ok(None);
        }
        if wanted > now.bytes() {
            let reason = format!("{} bytes of each member are in use, less than {wanted}", now.bytes());
            return Err(refuse(reason).advice("without --shrink the array grows to that"));
        }
        if component.bytes() != wanted || wanted == 0 {
            let refusal = refuse(format!("{wanted} bytes are no size that can be used of each member"));
            return Err(refusal.advice(format!("the next smaller one is {}", component.bytes())));
        }
        self.plan_component(component, bare).map(Some)
    }

    /// The refusal to make the array smaller unasked.
    pub(crate) fn is_smaller(&self, now: Sectors, component: Sectors) -> Refusal {
        let reason = format!("{} bytes of each member are in use, more than {}", now.bytes(), component.bytes());
        let refusal = Refusal::new(reason).field("superblock.size");
        let devices = self.core.devices();
        let mut superblock = devices[0].superblock.borrow().clone();
        superblock.component = component;
        match Geometry::new(&superblock.shape(&[])) {
            Ok(geometry) => refusal.advice(format!(
                "an array that is stopped is made smaller by --size {} --shrink; what lies behind its new end at byte {} is \
                 lost, so a file system on it must be made smaller first",
                component.bytes(),
                geometry.array_bytes(),
            )),
            Err(_) => refusal.advice("less than a chunk of each member is no array"),
        }
    }
}
