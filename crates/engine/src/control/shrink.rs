//! Shrinks an array: less of each member is used, and what lay behind the new end is lost.
//!
//! The array is stopped first, so no user of a running array sees it shrink. Then two rounds of superblocks
//! follow, as in [`crate::control::grow`]: the bitmap is removed, as its bits are of the old shape; then the
//! new size is set, together with a bitmap of the new shape. A power loss at any write leaves an array of the
//! old size or of the new one, and members that missed a round follow the others ([`crate::control::election`]).
//! No data is written: the remaining data stays in place and in agreement, and the lost data still lies on
//! the members.
//!
//! Facts: `update_size` in `drivers/md/md.c`, `raid5_resize`, `raid1_resize` and `raid10_resize`.

use crate::control::grow::{Growth, SizePlan, as_io_error};
use crate::control::state::Control;
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
        let guard = self.metadata.lock().await;
        let Some(plan) = self.plan_to_shrink(shrinking.component_bytes()).map_err(as_io_error)? else { return Ok(()) };
        if plan.bitmap.is_some() {
            self.metadata.drop_bitmap(&guard).await.map_err(as_io_error)?;
        }
        if self.core.devices().len() != plan.planned.len() {
            return Err(ArrayError::new(ArrayErrorKind::Io, "a member failed, and the array did not shrink"));
        }
        self.publish_component(&guard, &plan, Resync::Clean).await?;
        self.core.geometries.replace(plan.geometry);
        Ok(())
    }
}

impl<M: Member, C: Clock> Control<M, C> {
    /// Plans as [`crate::Array::plan_shrinking`] does. The size is never rounded, as that would cut off more
    /// than was asked for.
    fn plan_to_shrink(&self, wanted: u64) -> Result<Option<SizePlan<M>>, Refusal> {
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
            let refusal = refuse(format!("{wanted} bytes of each member are not a possible size"));
            return Err(refusal.advice(format!("the next smaller one is {}", component.bytes())));
        }
        self.plan_component(component, bare).map(Some)
    }

    /// The refusal to shrink an array when growth was asked for.
    pub(crate) fn shrink_refusal(&self, now: Sectors, component: Sectors) -> Refusal {
        let reason = format!("{} bytes of each member are in use, more than {}", now.bytes(), component.bytes());
        let refusal = Refusal::new(reason).field("superblock.size");
        let devices = self.core.devices();
        let mut superblock = devices[0].superblock.borrow().clone();
        superblock.component = component;
        match Geometry::new(&superblock.shape(&[])) {
            Ok(geometry) => refusal.advice(format!(
                "an array that is stopped is made smaller by --size {}B --shrink; what lies behind its new end at byte {} is \
                 lost, so a file system on it must be made smaller first",
                component.bytes(),
                geometry.array_bytes(),
            )),
            Err(_) => refusal.advice("an array needs at least one chunk of each member"),
        }
    }
}
