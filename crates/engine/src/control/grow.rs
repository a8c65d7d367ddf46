//! Grows a running array: more of each member is used.
//!
//! [`crate::Array::plan_growth`] plans and writes nothing. [`crate::Array::grow`] holds writes back, marks
//! the array clean, and plans again, as the array may have changed since. From there on a running array and
//! one just assembled have the same superblocks. Three rounds of superblocks follow. A power loss at any
//! write leaves a consistent array:
//!
//! 1. The bitmap is removed. Its bits are of the old shape, and members with bits of two shapes are no array.
//! 2. Data areas become as long as the members allow: the kernel refuses a superblock whose `size` exceeds
//!    its `data_size`. Superblocks of version 1.0 move to the new end. The old ones cannot be found there,
//!    since the members are longer.
//! 3. The new size is set, in agreement up to the old size, together with a bitmap of the new shape whose
//!    bits are set from there on. Members that missed this round are one event behind, and follow the others
//!    ([`crate::control::election`]).
//!
//! Then the array takes the new geometry, and the writes that waited go on. Reads never wait, as no data
//! moves. No data is written. The new part needs an ordinary resync, by this engine or by md, now or after
//! the next start.
//!
//! Facts: `update_size` in `drivers/md/md.c`, `raid5_resize`, `raid1_resize` and `raid10_resize`;
//! `md_bitmap_resize`.

use crate::control::blocks::check_blocks;
use crate::control::state::Control;
use crate::core::metadata_lock::MetadataGuard;
use crate::metadata::Entered;
use crate::metadata::bitmap::change::{NewBitmap, Planned};
use crate::seam::clock::Clock;
use crate::seam::error::{ArrayError, ArrayErrorKind, Refusal};
use crate::seam::member::Member;
use format::geometry::Geometry;
use format::superblock::Resync;
use format::units::Sectors;

/// A change of size that was planned and found possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Growth {
    component: Sectors,
    array_bytes: u64,
}

impl Growth {
    pub(crate) fn of<M>(plan: &SizePlan<M>) -> Self {
        Self { component: plan.component, array_bytes: plan.geometry.array_bytes() }
    }

    /// Bytes that will be used of each member.
    pub fn component_bytes(&self) -> u64 {
        self.component.bytes()
    }

    /// Bytes that the array will offer.
    pub fn array_bytes(&self) -> u64 {
        self.array_bytes
    }
}

/// The superblocks, bitmap and geometry of a change of size.
pub(crate) struct SizePlan<M> {
    pub(crate) component: Sectors,
    pub(crate) planned: Vec<Planned<M>>,
    pub(crate) bitmap: Option<NewBitmap>,
    pub(crate) geometry: Geometry,
}

impl<M: Member, C: Clock> Control<M, C> {
    /// [`crate::Array::plan_growth`].
    pub(crate) fn plan_growth(&self, wanted: Option<u64>) -> Result<Option<Growth>, Refusal> {
        Ok(self.plan(wanted)?.as_ref().map(Growth::of))
    }

    /// [`crate::Array::end_growth`].
    pub(crate) async fn end_growth(&self) -> Result<bool, ArrayError> {
        let Some(entered) = self.metadata.enter_background() else { return Ok(false) };
        let guard = entered.lock().await;
        let is_uneven = !self.core.info.read_only && self.metadata.record().lagging.is_some();
        if is_uneven {
            self.metadata.publish(&guard).await?;
        }
        Ok(is_uneven)
    }

    /// [`crate::Array::grow`].
    pub(crate) async fn grow(&self, growth: Growth) -> Result<(), ArrayError> {
        let change = self.hold_writes().await?.lock().await;
        let Some(plan) = self.plan(Some(growth.component_bytes())).map_err(as_io_error)? else { return Ok(()) };
        if plan.bitmap.is_some() && !mutant!("growth-with-old-bits") {
            self.metadata.drop_bitmap(&change).await.map_err(as_io_error)?;
        }
        for (device, planned) in &plan.planned {
            let mut superblock = device.superblock.borrow_mut();
            if superblock.super_offset != planned.super_offset {
                device.bad.move_log();
            }
            (superblock.data_size, superblock.super_offset) = (planned.data_size, planned.super_offset);
        }
        self.metadata.publish(&change).await?;
        if self.core.devices().len() != plan.planned.len() {
            return Err(ArrayError::new(ArrayErrorKind::Io, "a member failed, and the array did not grow"));
        }
        self.publish_component(&change, &plan, self.core.resync_offset(self.core.geometry().array_bytes())).await?;
        self.offer_growth(&change, plan.geometry);
        Ok(())
    }
}

/// Turns a refusal after the plan into an I/O error.
pub(crate) fn as_io_error(refusal: Refusal) -> ArrayError {
    ArrayError::new(ArrayErrorKind::Io, refusal.to_string())
}

impl<M: Member, C: Clock> Control<M, C> {
    /// Blocks new writes, waits for those under way, and marks the array clean. Until then no write waits
    /// longer than another write takes. Afterwards the superblocks equal those of a stopped array.
    /// Writes wait until the result is dropped.
    pub(crate) async fn hold_writes(&self) -> Result<Entered<'_, M, C>, ArrayError> {
        let entered = self.metadata.enter_to_change().map_err(as_io_error)?;
        let writes = self.core.locks.exclusive(0..mutant!("growth-amid-writes" => 0, else u64::MAX));
        self.data.coalescer.close_all(); // coalesced writes go out
        let entered = entered.quiesce(writes).await;
        self.metadata.flush_and_mark_clean(|| true).await?;
        Ok(entered)
    }

    /// Plans as [`crate::Array::plan_growth`] does.
    fn plan(&self, wanted: Option<u64>) -> Result<Option<SizePlan<M>>, Refusal> {
        self.check_kind()?;
        self.core.devices().iter().for_each(|device| device.member.measure());
        let roomy = self.with_all_room()?;
        let now = roomy[0].1.component;
        let least = roomy.iter().min_by_key(|(_, superblock)| superblock.data_size).expect("an array has members");
        let room = least.1.rounded_component(least.1.data_size);
        let component = match wanted {
            None => room.max(now),
            Some(bytes) => least.1.rounded_component(Sectors::from_bytes_down(bytes)),
        };
        if component > room.max(now) {
            let reason = format!("{} bytes, but this member has room for only {}", component.bytes(), room.bytes());
            return Err(Refusal::new(reason).of(&least.0.name).field("superblock.size"));
        }
        if component < now {
            return Err(self.shrink_refusal(now, component));
        }
        // A superblock behind the data has to move when its member was made longer, or it is not found again.
        let moves = |(device, _): &Planned<M>| device.superblock.borrow().is_left_behind(device.member.limits().bytes);
        if component == now && !roomy.iter().any(moves) {
            return Ok(None);
        }
        self.plan_component(component, roomy).map(Some)
    }

    /// Checks that level, layout and metadata format let the component size change.
    pub(crate) fn check_kind(&self) -> Result<(), Refusal> {
        let devices = self.core.devices();
        let first = devices.first().expect("a running array has a member");
        let can_change = first.superblock.borrow().check_component_changes();
        can_change.map_err(|defect| match self.left_behind() {
            None => Refusal::defect(&first.name, defect),
            Some((name, bytes)) => Refusal::defect(&first.name, defect).advice(format!(
                "{name} was made longer, and its superblock is found at the end alone: make it {bytes} bytes long again \
                 before the array is stopped"
            )),
        })
    }

    /// A member that was made longer and whose superblock is searched at its end; with its old length, about.
    fn left_behind(&self) -> Option<(String, u64)> {
        self.core.devices().into_iter().find_map(|device| {
            device.member.measure();
            let superblock = device.superblock.borrow();
            let bytes = superblock.is_left_behind(device.member.limits().bytes).then(|| superblock.bytes_at_end())?;
            Some((device.name.clone(), bytes))
        })
    }

    /// Checks that the array is clean, complete and in agreement, with no bad blocks and no checksums.
    fn check_state(&self) -> Result<(), Refusal> {
        self.check_no_other_change()?;
        if !self.core.health.agreed.get() || self.metadata.record().resync != Resync::Clean {
            return Err(Refusal::new("the array was not stopped cleanly, or is not in agreement")
                .field("superblock.resync_offset")
                .advice("`mdspace serve` resyncs it first"));
        }
        // Asked before `whole`: bad blocks make an array that is not whole, though no member is missing.
        if let Some(device) = self.core.devices().iter().find(|device| !device.bad.is_empty()) {
            let refusal = Refusal::new("names bad blocks: those rows have less redundancy already");
            return Err(refusal.of(&device.name).field("bad-block log").advice("replace this member first"));
        }
        if !self.core.is_whole() {
            let refusal =
                Refusal::new("the array is degraded: its size can change only with every member present and current");
            return Err(refusal.advice("give the missing member, or `mdspace add` one, first"));
        }
        if self.metadata.intent().is_some_and(|intent| intent.is_lockless()) {
            let refusal = Refusal::new("mdspace does not change the size of an array with a lockless bitmap");
            return Err(refusal.field("bitmap.version").advice("remove it first: `mdspace set bitmap=none`"));
        }
        for device in &self.core.devices() {
            if device.checksums.get().is_some() {
                let refusal = Refusal::new("keeps checksums, whose place depends on the component size");
                return Err(refusal.of(&device.name).field("superblock.size").advice(
                    "the kernel does it without them (mdadm --grow --size); `mdspace set integrity=on` begins anew",
                ));
            }
        }
        Ok(())
    }

    /// Checks that no replacement is under way, and that no bitmap is in a file: such a bitmap does not grow
    /// with the array.
    pub(crate) fn check_no_other_change(&self) -> Result<(), Refusal> {
        if self.core.is_read_only() {
            return Err(self.core.refuse_read_only());
        }
        self.core.check_not_failed().map_err(|error| Refusal::new(error.reason))?;
        if let Some((_, successor)) = self.core.successors().first() {
            let refusal = Refusal::new("is replacing another member").of(&successor.name);
            return Err(refusal.advice("`mdspace serve` completes that first"));
        }
        match self.metadata.intent() {
            Some(intent) if !intent.is_on_members() => Err(Refusal::new("the array's bitmap is in a file")
                .advice("assemble it without that file, and make a new one afterwards")),
            _ => Ok(()),
        }
    }

    /// All superblocks, without a bitmap.
    pub(crate) fn without_bitmap(&self) -> Result<Vec<Planned<M>>, Refusal> {
        let bare = self.core.devices().into_iter().map(|device| {
            let superblock = device.superblock.borrow().with_bitmap(None, device.member.limits().bytes);
            let superblock = superblock.map_err(|defect| Refusal::defect(&device.name, defect))?;
            Ok((device, superblock))
        });
        bare.collect()
    }

    /// The same, with data areas as long as the members allow.
    fn with_all_room(&self) -> Result<Vec<Planned<M>>, Refusal> {
        let roomy = self.without_bitmap()?.into_iter().map(|(device, superblock)| {
            let superblock = superblock.with_all_room(device.member.limits().bytes);
            let superblock = superblock.map_err(|defect| Refusal::defect(&device.name, defect))?;
            Ok((device, superblock))
        });
        roomy.collect()
    }

    /// Plans the change of these superblocks, which name no bitmap, to that component size.
    pub(crate) fn plan_component(&self, component: Sectors, bare: Vec<Planned<M>>) -> Result<SizePlan<M>, Refusal> {
        self.check_state()?;
        let changed = bare.into_iter().map(|(device, superblock)| {
            let superblock = superblock.with_component(component, device.member.limits().bytes);
            let superblock = superblock.map_err(|defect| Refusal::defect(&device.name, defect))?;
            Ok((device, superblock))
        });
        let planned = changed.collect::<Result<Vec<_>, Refusal>>()?;
        let (first, superblock) = &planned[0];
        let geometry = Geometry::new(&superblock.shape(&[])).map_err(|defect| Refusal::defect(&first.name, defect))?;
        let parties =
            planned.iter().map(|(device, superblock)| (&*device.name, device.member.limits(), superblock.clone()));
        check_blocks(&geometry, self.core.info.block_bytes, parties, true)?;
        let bitmap = self.metadata.plan_bitmap(&planned, geometry.bitmap_covers(component))?;
        Ok(SizePlan { component, planned, bitmap, geometry })
    }

    /// Publishes the new component size; the array agrees as far as `resync` says. The caller keeps
    /// writes off.
    pub(crate) async fn publish_component(
        &self,
        guard: &MetadataGuard<'_>,
        plan: &SizePlan<M>,
        resync: Resync,
    ) -> Result<(), ArrayError> {
        for (device, planned) in &plan.planned {
            let mut superblock = device.superblock.borrow_mut();
            (superblock.component, superblock.resync) = (planned.component, resync);
        }
        self.metadata.record_mut(guard).resync = resync;
        if let Some(log) = self.core.context.stripe_log().filter(|_| resync != Resync::Clean) {
            log.set_built(false); // before any superblock has the new size
        }
        let agreed = match resync {
            Resync::Clean => u64::MAX,
            Resync::From(sectors) => sectors.bytes(),
        };
        match &plan.bitmap {
            None => self.metadata.publish(guard).await,
            Some(bitmap) => self.metadata.put_new_bitmap(guard, bitmap, agreed).await.map_err(as_io_error),
        }
    }

    /// Offers the new size, once all members have it. `agreed` is cleared before the geometry changes: a
    /// resync that began in between would end at once, and call the whole array agreed.
    fn offer_growth(&self, _guard: &MetadataGuard<'_>, geometry: Geometry) {
        self.core.health.agreed_below.set(self.core.geometry().array_bytes());
        self.core.health.agreed.set(mutant!("growth-in-agreement"));
        self.core.geometries.replace(geometry);
        self.sweeps.changed.raise();
    }
}
