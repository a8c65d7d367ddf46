//! A stopped array that grows where it stands: more of each member is used.
//!
//! First it is planned, and nothing is written: [`Array::plan_growth`]. Then [`Array::grow`] tells the members, in three rounds of
//! superblocks, each of which leaves an array behind at whatever write the power goes:
//!
//! 1. The bitmap is removed: its bits are of the old shape, and members with bits of two shapes are no array.
//! 2. Data areas are as long as the members allow now: the kernel takes no superblock whose `size` exceeds its `data_size`.
//! 3. The new size, in agreement up to the old one, together with a bitmap of the new shape whose bits are set from there
//!    on. Members that were not told are one event behind, and follow the others (`catch_up` in `assemble`).
//!
//! No data is written. What the new part needs is an ordinary resync, begun by whoever serves the array next, md or this engine.
//! The array that grew is to be assembled anew: its geometry here is the old one.
//!
//! Facts: `update_size` in `drivers/md/md.c`, `raid5_resize`, `raid1_resize` and `raid10_resize`; `md_bitmap_resize`.

use crate::array::{Array, Inner};
use crate::blocks::check_blocks;
use crate::clock::Clock;
use crate::error::{ArrayError, ArrayErrorKind, Refusal};
use crate::intent::change::{NewBitmap, Planned};
use crate::member::Member;
use format::geometry::{Geometry, Level};
use format::superblock::Resync;
use format::units::{SECTOR_BYTES, Sectors};

/// A growth that was found possible.
pub struct Growth<M: Member> {
    planned: Vec<Planned<M>>,
    bitmap: Option<NewBitmap>,
    /// Of each member, in bytes.
    component: u64,
    array_bytes: u64,
}

impl<M: Member> Growth<M> {
    /// Bytes that will be used of each member.
    pub fn component_bytes(&self) -> u64 {
        self.component
    }

    /// Bytes that the array will offer.
    pub fn array_bytes(&self) -> u64 {
        self.array_bytes
    }
}

impl<M: Member, C: Clock> Array<M, C> {
    /// What it takes to use `wanted` bytes of each member, or as much as all of them have. `None`: they are used so far already.
    ///
    /// # Errors
    /// When the array cannot grow, or not so far.
    pub fn plan_growth(&self, wanted: Option<u64>) -> Result<Option<Growth<M>>, Refusal> {
        let inner = &*self.0;
        inner.check_kind()?;
        let roomy = inner.with_all_room()?;
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
            let reason = format!("{} bytes of each member are in use, more than {}", now.bytes(), component.bytes());
            return Err(Refusal::new(reason).field("superblock.size").advice("an array is not made smaller here"));
        }
        if component == now {
            return Ok(None);
        }
        inner.check_state()?;
        inner.plan_component(roomy, component).map(Some)
    }

    /// Tells members of a growth that was cut short what the others say already. The driver goes by the freshest, as
    /// this engine does; but mdadm assembles no members whose superblocks differ in size. False: all say the same.
    ///
    /// # Errors
    /// When the superblocks could not be written.
    pub async fn end_growth(&self) -> Result<bool, ArrayError> {
        let inner = &*self.0;
        let _lock = inner.metadata.exclusive(0..1).await;
        let is_uneven = !inner.read_only && inner.record.borrow().uneven.is_some();
        if is_uneven {
            inner.publish().await?;
        }
        Ok(is_uneven)
    }

    /// Carries out what was planned, and stops the array. Driven to its end, as all changes of superblocks.
    ///
    /// # Errors
    /// When a member failed meanwhile. Then the array is as it was, or has grown: the members left say so.
    pub async fn grow(&self, growth: Growth<M>) -> Result<(), ArrayError> {
        let inner = &*self.0;
        let unwell = |refusal: Refusal| ArrayError::new(ArrayErrorKind::Io, refusal.to_string());
        if growth.bitmap.is_some() {
            self.remove_bitmap().await.map_err(unwell)?;
        }
        {
            let _inside = inner.enter_to_change().map_err(unwell)?;
            let _nobody_writes = inner.locks.exclusive(0..u64::MAX).await;
            inner.flush_devices().await?;
            let _lock = inner.metadata.exclusive(0..1).await;
            for (device, planned) in &growth.planned {
                device.superblock.borrow_mut().data_size = planned.data_size;
            }
            inner.publish().await?;
            if inner.devices().len() != growth.planned.len() {
                return Err(ArrayError::new(ArrayErrorKind::Io, "a member failed, and the array did not grow"));
            }
            inner.tell_of_growth(growth).await?;
        }
        self.stop().await
    }
}

impl<M: Member, C: Clock> Inner<M, C> {
    /// Level, layout and format can grow.
    fn check_kind(&self) -> Result<(), Refusal> {
        let devices = self.devices();
        let first = devices.first().expect("a running array has a member");
        let can_grow = first.superblock.borrow().check_component_grows();
        can_grow.map_err(|defect| Refusal::defect(&first.name, defect))
    }

    /// Everything is in agreement and in use, and nothing is in the way.
    fn check_state(&self) -> Result<(), Refusal> {
        self.check_at_rest()?;
        if !self.agreed.get() || self.record.borrow().resync != Resync::Clean {
            return Err(Refusal::new("the array was not stopped cleanly, or not brought into agreement")
                .field("superblock.resync_offset")
                .advice("`mdspace serve` resyncs it first"));
        }
        // First, for rows that a member cannot give make an array that is not whole, though no member is missing.
        if let Some(device) = self.devices().iter().find(|device| !device.bad.is_empty()) {
            let refusal = Refusal::new("names bad blocks: those rows have less redundancy already");
            return Err(refusal.of(&device.name).field("bad-block log").advice("replace this member first"));
        }
        if !self.whole.get() {
            let refusal = Refusal::new("the array is degraded: what is new would have no redundancy to be resynced");
            return Err(refusal.advice("give the missing member, or `mdspace add` one, first"));
        }
        for device in &self.devices() {
            if device.checksums.get().is_some() {
                let refusal = Refusal::new("keeps checksums, whose place follows from the component size");
                return Err(refusal.of(&device.name).field("superblock.size").advice(
                    "the kernel grows it without them (mdadm --grow --size); `mdspace set integrity=on` begins anew",
                ));
            }
        }
        Ok(())
    }

    /// Nobody is on the way to become another's successor, and there is no bitmap that is not grown with the array.
    pub(crate) fn check_at_rest(&self) -> Result<(), Refusal> {
        if self.read_only {
            return Err(Refusal::new("the array is read-only"));
        }
        if let Some((_, successor)) = self.successors().first() {
            let refusal = Refusal::new("is on the way to replace another member").of(&successor.name);
            return Err(refusal.advice("`mdspace serve` ends that first"));
        }
        match self.intent() {
            Some(intent) if !intent.is_on_members() => Err(Refusal::new("the array's bitmap is in a file")
                .advice("assemble it without that file, and make a new one afterwards")),
            _ => Ok(()),
        }
    }

    /// All devices' superblocks with their data areas as long as can be, and without a bitmap.
    fn with_all_room(&self) -> Result<Vec<Planned<M>>, Refusal> {
        let roomy = self.devices().into_iter().map(|device| {
            let bytes = device.member.limits().bytes;
            let bare = device.superblock.borrow().with_bitmap(None, bytes);
            let superblock = bare.and_then(|superblock| superblock.with_all_room(bytes));
            let superblock = superblock.map_err(|defect| Refusal::defect(&device.name, defect))?;
            Ok((device, superblock))
        });
        roomy.collect()
    }

    fn plan_component(&self, roomy: Vec<Planned<M>>, component: Sectors) -> Result<Growth<M>, Refusal> {
        let grown = roomy.into_iter().map(|(device, superblock)| {
            let superblock = superblock.with_component(component, device.member.limits().bytes);
            let superblock = superblock.map_err(|defect| Refusal::defect(&device.name, defect))?;
            Ok((device, superblock))
        });
        let planned = grown.collect::<Result<Vec<_>, Refusal>>()?;
        let (first, superblock) = &planned[0];
        let geometry = Geometry::new(&superblock.shape(&[])).map_err(|defect| Refusal::defect(&first.name, defect))?;
        let parties =
            planned.iter().map(|(device, superblock)| (&*device.name, device.member.limits(), superblock.clone()));
        check_blocks(&geometry, self.block_bytes, parties, true)?;
        let covers = match geometry.level() {
            Level::Raid10 => Sectors(geometry.array_bytes() / SECTOR_BYTES),
            _ => component,
        };
        let bitmap = self.plan_bitmap(&planned, covers)?;
        Ok(Growth { planned, bitmap, component: component.bytes(), array_bytes: geometry.array_bytes() })
    }

    /// The round in which the array grows. The caller holds the metadata lock, and nobody writes.
    async fn tell_of_growth(&self, growth: Growth<M>) -> Result<(), ArrayError> {
        let resync = self.resync_offset(self.geometry.array_bytes());
        for (device, planned) in &growth.planned {
            let mut superblock = device.superblock.borrow_mut();
            (superblock.component, superblock.resync) = (planned.component, resync);
        }
        self.record.borrow_mut().resync = resync;
        self.agreed.set(false);
        let Resync::From(agreed) = resync else { unreachable!("a resync begins somewhere") };
        match growth.bitmap {
            None => self.publish().await,
            Some(bitmap) => {
                let put = self.put_new_bitmap(bitmap, agreed.bytes()).await;
                put.map_err(|refusal| ArrayError::new(ArrayErrorKind::Io, refusal.to_string()))
            }
        }
    }
}
