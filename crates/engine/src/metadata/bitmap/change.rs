//! A write-intent bitmap added to an array in use, and removed from it.
//!
//! Added: writes wait; the bitmap is put on every member, flushed; then the
//! superblocks name it. Until they do it means nothing, and a member that an
//! interruption left one event behind has it all the same.
//! Removed: the superblocks stop naming it; only then is it let go of. A file, which no superblock names, says
//! first that it is out of date: so it is not believed when it is found again. In
//! between bits go on being waited for, so no superblock that names it is without them.
//! Either way a member that was to get only what the bitmap named gets everything: the next one knows nothing of it.

use crate::device::Device;
use crate::metadata::Metadata;
use crate::metadata::bitmap::{BitmapPolicy, Flush, Home, Intent};
use crate::seam::clock::Clock;
use crate::seam::error::{ArrayError, Refusal};
use crate::seam::member::{Candidate, Member};
use format::bitmap::{BitmapSuper, SUPER_BYTES, set_range};
use format::geometry::{Geometry, Level};
use format::placement::bitmap_chunk;
use format::superblock::Superblock;
use format::units::{SECTOR_BYTES, Sectors};
use std::ops::Range;
use std::rc::Rc;

/// The largest chunk: its bytes have 32 bits.
const BITMAP_CHUNK_MAX: u64 = 1 << 31;

/// A device, and its superblock as it will be.
pub(crate) type Planned<M> = (Rc<Device<M>>, Superblock);

/// A bitmap that the members are to get.
#[derive(Debug)]
pub(crate) struct NewBitmap {
    header: BitmapSuper,
    policy: BitmapPolicy,
}

impl<M: Member, C: Clock> Metadata<M, C> {
    /// [`crate::Array::add_bitmap`].
    pub(crate) async fn add_bitmap(&self, chunk_bytes: Option<u64>, policy: BitmapPolicy) -> Result<(), Refusal> {
        let superblock = self.check_bitmap_can_be_added()?;
        let room = self.room_for_bitmap()?;
        let chunk = bitmap_chunk(self.bitmap_covers(&superblock), chunk_bytes, room);
        let chunk = chunk.map_err(|defect| Refusal::new(defect.reason).field(defect.field))?;
        self.start_bitmap(Home::Members, chunk, policy).await
    }

    /// [`crate::Array::bitmap_file_bytes`].
    pub(crate) fn bitmap_file_bytes(&self, chunk_bytes: Option<u64>) -> Result<u64, Refusal> {
        let superblock = self.check_bitmap_can_be_added()?;
        let chunk = bitmap_chunk(self.bitmap_covers(&superblock), chunk_bytes, u64::MAX);
        let chunk = chunk.map_err(|defect| Refusal::new(defect.reason).field(defect.field))?;
        let header = BitmapSuper::new(superblock.set_uuid, self.bitmap_covers(&superblock), chunk, 0);
        Ok(header.bytes_on_disk(u64::MAX))
    }

    /// [`crate::Array::add_bitmap_file`].
    pub(crate) async fn add_bitmap_file(
        &self,
        file: Candidate<M>,
        chunk_bytes: Option<u64>,
        policy: BitmapPolicy,
    ) -> Result<(), Refusal> {
        let superblock = self.check_bitmap_can_be_added()?;
        let room = file.member.limits().bytes;
        let chunk = bitmap_chunk(self.bitmap_covers(&superblock), chunk_bytes, room);
        let chunk = chunk.map_err(|defect| Refusal::defect(&file.name, defect))?;
        self.start_bitmap(Home::File(file.into()), chunk, policy).await
    }

    /// [`crate::Array::remove_bitmap`].
    pub(crate) async fn remove_bitmap(&self) -> Result<(), Refusal> {
        let _inside = self.enter_to_change()?;
        let _lock = self.lock.exclusive(0..1).await;
        self.let_go_of_bitmap().await
    }
}

impl<M: Member, C: Clock> Metadata<M, C> {
    /// As [`crate::Array::remove_bitmap`]. The caller holds the metadata lock.
    pub(crate) async fn let_go_of_bitmap(&self) -> Result<(), Refusal> {
        let Some(intent) = self.intent() else { return Ok(()) };
        self.disown_file(&intent).await;
        intent.retired.set(true);
        for device in self.core.devices() {
            device.superblock.borrow_mut().bitmap = None;
        }
        self.forget_returns();
        self.publish_change().await?;
        self.intent.take();
        Ok(())
    }

    /// Any superblock of the array.
    fn check_bitmap_can_be_added(&self) -> Result<Superblock, Refusal> {
        let superblock = self.core.devices().first().expect("a running array has a member").superblock.borrow().clone();
        if self.intent().is_some() || superblock.bitmap.is_some() {
            return Err(Refusal::new("the array has a bitmap already").advice("remove it first"));
        }
        if !self.core.is_redundant() {
            return Err(Refusal::new("a level without redundancy has no bitmap"));
        }
        Ok(superblock)
    }

    /// What its bits cover: a component, or for level 10 the array.
    fn bitmap_covers(&self, superblock: &Superblock) -> Sectors {
        match self.core.geometry() {
            Geometry::Mapping(mapping) if mapping.level() == Level::Raid10 => {
                Sectors(self.core.geometry().array_bytes() / SECTOR_BYTES)
            }
            _ => superblock.component,
        }
    }

    /// The bitmap that the members hold, made anew for superblocks as they will be, over `covers`: as the kernel does,
    /// with the same chunk or, where its bits would not fit, the smallest with which they do.
    ///
    /// # Errors
    /// When a member has no room for it.
    pub(crate) fn plan_bitmap(&self, planned: &[Planned<M>], covers: Sectors) -> Result<Option<NewBitmap>, Refusal> {
        let Some(intent) = self.intent().filter(|intent| intent.is_on_members()) else { return Ok(None) };
        let own_room = |(device, superblock): &Planned<M>| superblock.bitmap_room_max(device.member.limits().bytes);
        let room = planned.iter().map(own_room).min().unwrap_or(0);
        let former = intent.bits.borrow().header.clone();
        let mut chunks = std::iter::successors(Some(former.chunk_bytes), |chunk| chunk.checked_mul(2))
            .take_while(|chunk| *chunk <= BITMAP_CHUNK_MAX);
        let chunk_bytes = chunks.find(|chunk| bitmap_chunk(covers, Some(*chunk), room).is_ok());
        let chunk_bytes = chunk_bytes.ok_or_else(|| {
            let refusal = Refusal::new(format!("a bitmap for that size does not fit the {room} bytes that there are"));
            refusal.field("superblock.bitmap_offset").advice("remove it first: `mdspace set bitmap=none`")
        })?;
        let mut header = BitmapSuper::new(former.uuid, covers, chunk_bytes, 0);
        (header.daemon_sleep_seconds, header.write_behind) = (former.daemon_sleep_seconds, former.write_behind);
        Ok(Some(NewBitmap { header, policy: intent.policy }))
    }

    /// Puts a bitmap that was planned on the members, with the bits from `from` on set.
    pub(crate) async fn put_new_bitmap(&self, bitmap: &NewBitmap, from: u64) -> Result<(), Refusal> {
        let doubtful = mutant!("grown-bits-unset" => 0..0, else from..bitmap.header.sync_size.bytes());
        self.put_bitmap(Home::Members, bitmap.header.clone(), bitmap.policy, doubtful).await
    }

    /// The least room that any member has, in bytes.
    fn room_for_bitmap(&self) -> Result<u64, Refusal> {
        let mut least = u64::MAX;
        for device in self.core.devices() {
            let limits = device.member.limits();
            let room = device.superblock.borrow().bitmap_room_max(limits.bytes);
            if room == 0 {
                return Err(Refusal::new("has no room for a bitmap").of(&device.name).field("superblock.data_offset"));
            }
            least = least.min(room).min(device.room_before_checksums().unwrap_or(u64::MAX));
        }
        Ok(least)
    }

    async fn start_bitmap(&self, home: Home<M>, chunk_bytes: u64, policy: BitmapPolicy) -> Result<(), Refusal> {
        let _inside = self.enter_to_change()?;
        let _nobody_writes = self.core.locks.exclusive(0..mutant!("bitmap-under-writes" => 0, else u64::MAX)).await;
        self.flush_devices().await.map_err(ArrayError::refusal)?;
        let _lock = self.lock.exclusive(0..1).await;
        let superblock = self.check_bitmap_can_be_added()?;
        self.forget_returns(); // of a bitmap whose file failed
        let covers = self.bitmap_covers(&superblock);
        let doubtful = if self.core.health.agreed.get() { 0..0 } else { 0..covers.bytes() };
        self.put_bitmap(home, BitmapSuper::new(superblock.set_uuid, covers, chunk_bytes, 0), policy, doubtful).await
    }

    /// Puts a bitmap on the members or into a file, with the bits of `doubtful` set, a part of what it covers, and then has
    /// the superblocks name it. The caller holds the metadata lock, and nobody writes.
    async fn put_bitmap(
        &self,
        home: Home<M>,
        mut header: BitmapSuper,
        policy: BitmapPolicy,
        doubtful: Range<u64>,
    ) -> Result<(), Refusal> {
        {
            let record = self.record.borrow();
            // Of the next round, and no later: a file that no superblock follows is not to count once the array has gone on
            // without it.
            header.events = record.events + mutant!("file-ahead" => u64::from(record.owed.max(1)), else 1);
            // Whoever is absent now is shut out: it is two events behind this, at least.
            header.events_cleared = record.events + u64::from(record.owed.max(1));
        }
        let room = match &home {
            Home::Members => self.name_bitmap(SUPER_BYTES as u64 + header.bits().div_ceil(8))?,
            Home::File(file) => file.member.limits().bytes,
        };
        let mut image = vec![0; header.bytes_on_disk(room) as usize];
        image[..SUPER_BYTES].copy_from_slice(&header.encode());
        let is_agreed = doubtful.is_empty();
        set_range(&mut image[SUPER_BYTES..], header.bits_of(doubtful));
        let intent = Rc::new(Intent::new(home, header, image, true, is_agreed, policy));
        self.watch_file(&intent);
        self.intent.replace(Some(intent.clone()));
        let failures = {
            let everything = intent.bits.borrow().everything();
            self.write_pages(&intent, &everything, Flush::Yes).await
        };
        self.leave_behind(failures).await.map_err(ArrayError::refusal)?;
        self.publish_change().await?;
        match intent.retired.get() {
            true => {
                let refusal = Refusal::new("could not be written")
                    .after("the array goes on without a bitmap")
                    .advice("keep the bitmap on another disk");
                Err(Refusal { member: intent.status().file, ..refusal })
            }
            false => Ok(()),
        }
    }

    /// Has a file that holds the bits say that they are out of date. One that cannot be written is left behind by events.
    async fn disown_file(&self, intent: &Intent<M>) {
        if intent.is_on_members() {
            return;
        }
        let header = {
            let mut bits = intent.bits.borrow_mut();
            bits.set_stale();
            bits.round([0].into())
        };
        let failures = self.write_pages(intent, &header, Flush::Yes).await;
        debug_assert!(failures.is_empty(), "no member is written to");
    }

    /// Members that came back lack more than a bitmap says from now on.
    fn forget_returns(&self) {
        for device in self.core.devices() {
            device.superblock.borrow_mut().recovery_from_bitmap &= mutant!("returns-not-forgotten");
        }
    }

    /// Gives every superblock in memory the place of a bitmap of so many bytes;
    /// the least room that there is.
    fn name_bitmap(&self, bytes: u64) -> Result<u64, Refusal> {
        let devices = self.core.devices();
        let first: &Rc<Device<M>> = devices.first().expect("a running array has a member");
        let place = first.superblock.borrow().bitmap_place(bytes);
        let mut room = u64::MAX;
        let mut named = Vec::with_capacity(devices.len());
        for device in &devices {
            let limits = device.member.limits();
            let with_bitmap = device.superblock.borrow().with_bitmap(Some(place), limits.bytes);
            let with_bitmap = with_bitmap.map_err(|defect| Refusal::defect(&device.name, defect))?;
            let own_room = with_bitmap.bitmap_room(limits.bytes).unwrap_or(0);
            let is_aligned =
                with_bitmap.bitmap_at().is_some_and(|at| at.0.is_multiple_of(limits.logical_block_bytes.into()));
            if own_room < bytes.next_multiple_of(limits.logical_block_bytes.into()) || !is_aligned {
                return Err(Refusal::new("has no room for a bitmap").of(&device.name));
            }
            room = room.min(own_room);
            named.push(with_bitmap);
        }
        for (device, superblock) in devices.iter().zip(named) {
            device.superblock.replace(superblock);
        }
        Ok(room)
    }

    pub(crate) fn enter_to_change(&self) -> Result<crate::base::gate::Inside<'_>, Refusal> {
        if self.core.info.read_only {
            return Err(Refusal::new("the array is read-only"));
        }
        self.core.check_unbroken().map_err(|error| Refusal::new(error.reason))?;
        self.core.gate.enter().ok_or_else(|| Refusal::new("the array is stopped"))
    }

    async fn publish_change(&self) -> Result<(), Refusal> {
        self.publish().await.map_err(ArrayError::refusal)
    }
}
