//! Adds a write-intent bitmap to a running array, and removes it.
//!
//! To add one, writes are held back, the bitmap is written to every member and flushed, and then the superblocks name
//! it. Until they do, it means nothing. A member that an interruption left one event behind already has the bitmap.
//!
//! To remove one, the superblocks stop naming it, and only then is it released. A bitmap file, which no superblock
//! names, is first marked as out of date, so that it is not trusted when it is found again. In the meantime writes
//! still wait for bits. So no superblock names a bitmap that lacks them.
//!
//! Either way, a member that was to recover by the bitmap recovers in full: the next bitmap knows nothing of it.
//! Source: `location_store` in `drivers/md/md-bitmap.c`.

use crate::core::authority::Authority;
use crate::core::metadata_lock::MetadataGuard;
use crate::device::Device;
use crate::metadata::bitmap::bits::Bits;
use crate::metadata::bitmap::intent::{Home, IntentBitmap};
use crate::metadata::bitmap::policy::BitmapPolicy;
use crate::metadata::bitmap::rounds::Flush;
use crate::metadata::state::Metadata;
use crate::metadata::transaction::Transaction;
use crate::seam::clock::Clock;
use crate::seam::error::{ArrayError, Refusal};
use crate::seam::member::{Candidate, Member};
use format::bitmap::{BitmapSuper, set_range};
use format::placement::bitmap_chunk;
use format::superblock::Superblock;
use format::units::Sectors;
use std::ops::{Range, RangeInclusive};
use std::rc::Rc;

/// The largest chunk: the field on disk has 32 bits.
const BITMAP_CHUNK_MAX: u64 = 1 << 31;

/// The lengths of a period that md takes, and that no arithmetic overflows.
const DAEMON_SLEEP_SECONDS: RangeInclusive<u32> = 1..=86_400;

/// A device, and the superblock that it is to have.
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

    /// [`crate::Array::check_bitmap_delay`].
    pub(crate) fn check_bitmap_delay(&self, seconds: u32) -> Result<Rc<IntentBitmap<M>>, Refusal> {
        if !DAEMON_SLEEP_SECONDS.contains(&seconds) {
            let (least, most) = (DAEMON_SLEEP_SECONDS.start(), DAEMON_SLEEP_SECONDS.end());
            return Err(Refusal::new(format!("{seconds} is not a time from {least} to {most} s")));
        }
        self.intent()
            .ok_or_else(|| Refusal::new("the array has no bitmap").advice("`mdspace set bitmap=internal` adds one"))
    }

    /// [`crate::Array::set_bitmap_delay`].
    pub(crate) async fn set_bitmap_delay(&self, seconds: u32) -> Result<(), Refusal> {
        let guard = self.enter_to_change()?.lock().await;
        let intent = self.check_bitmap_delay(seconds)?;
        let header = {
            let mut bits = intent.bits.borrow_mut();
            bits.set_daemon_sleep(seconds);
            bits.round([0].into())
        };
        let failures = self.write_pages(&guard, &intent, &header, Flush::Yes).await;
        self.eject(&guard, failures).await.map_err(ArrayError::refusal)
    }

    /// [`crate::Array::remove_bitmap`].
    pub(crate) async fn remove_bitmap(&self) -> Result<(), Refusal> {
        self.check_bitmap_can_be_removed()?;
        let change = self.enter_to_change()?.lock().await;
        self.drop_bitmap(&change).await
    }
}

impl<M: Member, C: Clock> Metadata<M, C> {
    /// As [`crate::Array::remove_bitmap`].
    pub(crate) async fn drop_bitmap(&self, guard: &MetadataGuard<'_>) -> Result<(), Refusal> {
        let Some(intent) = self.intent() else { return Ok(()) };
        self.mark_file_stale(guard, &intent).await;
        intent.retired.set(true);
        for device in self.core.devices() {
            device.superblock.borrow_mut().bitmap = None;
        }
        self.cancel_recovery_by_bitmap(guard);
        self.publish_change(guard).await?;
        self.set_intent(guard, None);
        Ok(())
    }

    /// Only a lockless bitmap says what was never written to.
    pub(crate) fn check_bitmap_can_be_removed(&self) -> Result<(), Refusal> {
        match self.core.health.unbuilt.bytes() {
            0 => Ok(()),
            bytes => Err(Refusal::new(format!(
                "{bytes} bytes of each member were never written to, and only this bitmap says that nothing agrees there"
            ))
            .field("bitmap")
            .advice("fill what is free with a file of zeros first, and remove that file")),
        }
    }

    /// Returns any superblock of the array.
    pub(crate) fn check_bitmap_can_be_added(&self) -> Result<Superblock, Refusal> {
        let superblock = self.core.devices().first().expect("a running array has a member").superblock.borrow().clone();
        if self.intent().is_some() || superblock.bitmap.is_some() {
            return Err(Refusal::new("the array has a bitmap already").advice("remove it first"));
        }
        if self.has_parity_log() {
            return Err(Refusal::new("the array has a partial parity log, and a bitmap would be in its place")
                .advice("`mdspace set consistency-policy=bitmap` puts a bitmap in its place"));
        }
        if !self.core.is_redundant() {
            return Err(Refusal::new("a level without redundancy has no bitmap"));
        }
        if self.core.devices().iter().any(|device| device.superblock.borrow().other_byte_order) {
            return Err(Refusal::new("the other byte order: a big-endian machine would read other bits")
                .field("superblock.md_magic")
                .advice("`mdspace update --byteorder` changes that, while the array is not served"));
        }
        Ok(superblock)
    }

    /// What the bits cover: a component, or the whole array at level 10.
    pub(crate) fn bitmap_covers(&self, superblock: &Superblock) -> Sectors {
        self.core.geometry().bitmap_covers(superblock.component)
    }

    /// The members' bitmap made anew for the planned superblocks, over `covers`. It keeps its chunk size, as the
    /// kernel does; where the bits would not fit, it takes the smallest chunk with which they do.
    ///
    /// # Errors
    /// When a member has no room for it.
    pub(crate) fn plan_bitmap(&self, planned: &[Planned<M>], covers: Sectors) -> Result<Option<NewBitmap>, Refusal> {
        let Some(intent) = self.intent().filter(|intent| intent.is_on_members()) else { return Ok(None) };
        let own_room = |(device, superblock): &Planned<M>| {
            let room = superblock.bitmap_room_max(device.member.limits().bytes);
            room.min(device.room_before_own_areas().unwrap_or(u64::MAX))
        };
        let room = planned.iter().map(own_room).min().unwrap_or(0);
        let former = intent.bits.borrow().header.clone();
        let mut chunks = std::iter::successors(Some(former.chunk_bytes), |chunk| chunk.checked_mul(2))
            .take_while(|chunk| *chunk <= BITMAP_CHUNK_MAX);
        let chunk_bytes = chunks.find(|chunk| bitmap_chunk(covers, Some(*chunk), room).is_ok());
        let chunk_bytes = chunk_bytes.ok_or_else(|| {
            let refusal =
                Refusal::new(format!("a bitmap for that size does not fit the {room} bytes that are available"));
            refusal.field("superblock.bitmap_offset").advice("remove it first: `mdspace set bitmap=none`")
        })?;
        let mut header = BitmapSuper::new(former.uuid, covers, chunk_bytes, 0);
        (header.daemon_sleep_seconds, header.write_behind) = (former.daemon_sleep_seconds, former.write_behind);
        Ok(Some(NewBitmap { header, policy: intent.policy }))
    }

    /// Writes a planned bitmap to the members, with all bits from `from` on set.
    pub(crate) async fn put_new_bitmap(
        &self,
        guard: &MetadataGuard<'_>,
        bitmap: &NewBitmap,
        from: u64,
    ) -> Result<(), Refusal> {
        let doubtful = mutant!("grown-bits-unset" => 0..0, else from..bitmap.header.sync_size.bytes());
        self.put_bitmap(guard, Home::Members, bitmap.header.clone(), bitmap.policy, doubtful).await
    }

    /// The least room for a bitmap on any member, in bytes. A bitmap takes the place of a partial parity log.
    pub(crate) fn room_for_bitmap(&self) -> Result<u64, Refusal> {
        let mut least = u64::MAX;
        for device in self.core.devices() {
            let limits = device.member.limits();
            let room = device.superblock.borrow().without_parity_log().bitmap_room_max(limits.bytes);
            if room == 0 {
                return Err(Refusal::new("has no room for a bitmap").of(&device.name).field("superblock.data_offset"));
            }
            least = least.min(room).min(device.room_before_own_areas().unwrap_or(u64::MAX));
        }
        Ok(least)
    }

    async fn start_bitmap(&self, home: Home<M>, chunk_bytes: u64, policy: BitmapPolicy) -> Result<(), Refusal> {
        let change = self.change_without_writes().await?;
        self.begin_bitmap(&change, home, chunk_bytes, policy).await
    }

    /// Begins a change amid which no write is under way, and before which all were flushed.
    pub(crate) async fn change_without_writes(&self) -> Result<Transaction<'_>, Refusal> {
        let entered = self.enter_to_change()?;
        let everything = self.core.locks.exclusive(0..mutant!("bitmap-under-writes" => 0, else u64::MAX));
        let entered = entered.quiesce(everything).await;
        self.flush_devices().await.map_err(ArrayError::refusal)?;
        Ok(entered.lock().await)
    }

    /// Adds a bitmap on the members. No write is under way.
    pub(crate) async fn begin_members_bitmap(
        &self,
        change: &MetadataGuard<'_>,
        chunk_bytes: u64,
    ) -> Result<(), Refusal> {
        self.begin_bitmap(change, Home::Members, chunk_bytes, BitmapPolicy::default()).await
    }

    /// Adds a bitmap. No write is under way.
    async fn begin_bitmap(
        &self,
        change: &MetadataGuard<'_>,
        home: Home<M>,
        chunk_bytes: u64,
        policy: BitmapPolicy,
    ) -> Result<(), Refusal> {
        let superblock = self.check_bitmap_can_be_added()?;
        self.cancel_recovery_by_bitmap(change); // they relied on a bitmap whose file failed
        let covers = self.bitmap_covers(&superblock);
        let doubtful = if self.core.health.agreed.get() { 0..0 } else { 0..covers.bytes() };
        self.put_bitmap(change, home, BitmapSuper::new(superblock.set_uuid, covers, chunk_bytes, 0), policy, doubtful)
            .await
    }

    /// Writes a bitmap to the members or into a file, then has the superblocks name it. The bits of `doubtful`, a
    /// part of what the bitmap covers, are set. No write is under way.
    async fn put_bitmap(
        &self,
        guard: &MetadataGuard<'_>,
        home: Home<M>,
        mut header: BitmapSuper,
        policy: BitmapPolicy,
        doubtful: Range<u64>,
    ) -> Result<(), Refusal> {
        {
            let record = self.record();
            // The events of the next round, and no later. If the array goes on without the file, no superblock
            // follows it, and the file must not count.
            header.events = record.events + mutant!("file-ahead" => u64::from(record.rounds_pending.max(1)), else 1);
            // Members that are absent now are shut out: they are at least two events behind this.
            header.events_cleared = record.events + u64::from(record.rounds_pending.max(1));
        }
        if matches!(home, Home::Members) {
            self.name_bitmap(guard, header.used_bytes())?;
        }
        let mut set = vec![0; header.bits().div_ceil(8) as usize];
        let is_agreed = doubtful.is_empty();
        set_range(&mut set, header.bits_of(doubtful));
        let bits = Bits::new(header, set, is_agreed, self.core.health.unbuilt.clone());
        let intent = Rc::new(IntentBitmap::new(home, bits, true, policy));
        self.watch_file(&intent);
        self.set_intent(guard, Some(intent.clone()));
        let failures = {
            let everything = intent.bits.borrow().everything();
            self.write_pages(guard, &intent, &everything, Flush::Yes).await
        };
        self.eject(guard, failures).await.map_err(ArrayError::refusal)?;
        self.publish_change(guard).await?;
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

    /// Marks a bitmap file as out of date. If the file cannot be written, the superblocks' events move past it.
    async fn mark_file_stale(&self, guard: &MetadataGuard<'_>, intent: &IntentBitmap<M>) {
        if intent.is_on_members() {
            return;
        }
        let header = {
            let mut bits = intent.bits.borrow_mut();
            bits.set_stale();
            bits.round([0].into())
        };
        let failures = self.write_pages(guard, intent, &header, Flush::Yes).await;
        debug_assert!(failures.is_empty(), "a bitmap file has no member that could fail");
    }

    /// Cancels recovery by bitmap: members that returned may lack more than the bitmap says from now on.
    fn cancel_recovery_by_bitmap(&self, _guard: &MetadataGuard<'_>) {
        for device in self.core.devices() {
            device.superblock.borrow_mut().recovery_from_bitmap &= mutant!("returns-not-forgotten");
        }
    }

    /// Puts the place of a bitmap of this many bytes into every superblock in memory.
    fn name_bitmap(&self, _guard: &MetadataGuard<'_>, bytes: u64) -> Result<(), Refusal> {
        let devices = self.core.devices();
        let first: &Rc<Device<M>> = devices.first().expect("a running array has a member");
        let place = first.superblock.borrow().bitmap_place(bytes);
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
            named.push(with_bitmap);
        }
        for (device, superblock) in devices.iter().zip(named) {
            device.superblock.replace(superblock);
        }
        Ok(())
    }

    async fn publish_change(&self, guard: &MetadataGuard<'_>) -> Result<(), Refusal> {
        self.publish(guard).await.map_err(ArrayError::refusal)
    }
}
