//! The facade: every public call on an array, and nothing else. The data path, the metadata or control carries out each
//! call.
//!
//! A running array stays on one thread. At every moment:
//! * At levels with redundancy, no write of a request reaches a member before the dirty mark and the bitmap bit of its
//!   chunk are on stable storage.
//! * A write that was answered is on every member that the superblocks call current, or can be reconstructed from those
//!   that are.
//! * Overlapping writes are serialized. So copies and parity never disagree because of the order of writes.

use crate::base::buffer::{Block, Buffer, Pool};
use crate::control::Control;
use crate::control::assemble::{AssembleOptions, Offer};
use crate::control::grow::Growth;
use crate::control::joining::Overwrite;
use crate::control::status::Status;
use crate::control::sweep::{DoubtfulZeros, Resynced, ScrubReport, ScrubRequest, SweepTransfers, SyncSpeed};
use crate::data::coalesce::WriteBack;
use crate::data::stripe_size::StripeSize;
use crate::device::checksums::{ChecksumMemory, Verify};
use crate::metadata::bitmap::BitmapPolicy;
use crate::metadata::consistency::ConsistencyPolicy;
use crate::seam::clock::Clock;
use crate::seam::durability::Durability;
use crate::seam::error::{ArrayError, Refusal};
use crate::seam::member::{Candidate, Member};
use crate::seam::observe::Observer;
use format::superblock::DeviceFlags;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

/// An assembled array; clones share it. Made by [`Array::assemble`].
pub struct Array<M: Member, C: Clock>(Rc<Control<M, C>>);

impl<M: Member, C: Clock> Clone for Array<M, C> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<M: Member, C: Clock> Array<M, C> {
    // Requests: reads, writes, zeroes, discards and flushes, and the sizes that they depend on.

    /// Length of the array in bytes. A running array may grow; it never shrinks before it is stopped.
    pub fn bytes(&self) -> u64 {
        self.0.core.geometry().array_bytes()
    }

    /// The unit of requests without extra reads: the largest logical block of any member.
    pub fn block_bytes(&self) -> u64 {
        self.0.core.info.block_bytes
    }

    /// Bytes in a logical block of the array, if its superblock gives them.
    pub fn logical_block_bytes(&self) -> Option<u32> {
        self.0.logical_block_bytes()
    }

    /// The best length of large requests: a full stripe at levels with parity, a chunk elsewhere.
    pub fn preferred_bytes(&self) -> u64 {
        self.0.preferred_bytes()
    }

    /// Whether writes are refused.
    pub fn is_read_only(&self) -> bool {
        self.0.core.is_read_only()
    }

    /// Refuses writes from now on, waits for those under way, and marks the array clean: md's `readonly`. Sweeps wait
    /// until [`Array::make_writable`]. What was answered is written. The state ends with the process.
    ///
    /// # Errors
    /// `Io` when what was answered could not be written, or the superblocks. The array takes writes again, unless it has
    /// failed.
    pub async fn make_read_only(&self) -> Result<(), ArrayError> {
        self.0.make_read_only().await
    }

    /// Takes writes again after [`Array::make_read_only`].
    ///
    /// # Errors
    /// The array was opened read-only.
    pub fn make_writable(&self) -> Result<(), Refusal> {
        if self.0.core.info.read_only {
            return Err(self.0.core.refuse_read_only());
        }
        self.0.make_writable();
        Ok(())
    }

    /// The pool of its buffers.
    pub fn pool(&self) -> &Pool {
        &self.0.core.pool
    }

    /// Fills `into` from array byte `at`; any position and length.
    ///
    /// # Errors
    /// `OutOfRange`, `Stopped`, or `Io` when the remaining members cannot give the data.
    pub fn read(&self, at: u64, into: Buffer) -> impl Future<Output = Result<Buffer, ArrayError>> {
        self.0.data.read(at, into) // an async fn here would move the future once more
    }

    /// Writes `from` at array byte `at`; any position and length. The caller must drive it to its end. When it
    /// and all writes coalesced with it are dropped halfway, the array takes no more writes.
    ///
    /// # Errors
    /// `OutOfRange`, `ReadOnly`, `Stopped`, `NoSpace` when a member has no room for it, or `Io` when too many
    /// members failed.
    pub fn write(&self, at: u64, from: Block, durability: Durability) -> impl Future<Output = Result<(), ArrayError>> {
        self.0.data.write(at, from, durability) // as in `read`
    }

    /// Makes the range read as zeros.
    ///
    /// # Errors
    /// As [`Array::write`].
    pub async fn write_zeroes(&self, at: u64, bytes: u64, durability: Durability) -> Result<(), ArrayError> {
        self.0.data.write_zeroes(at, bytes, durability).await
    }

    /// As [`Array::write_zeroes`]; members may release the space.
    ///
    /// # Errors
    /// As [`Array::write`].
    pub async fn punch_hole(&self, at: u64, bytes: u64, durability: Durability) -> Result<(), ArrayError> {
        self.0.data.punch_hole(at, bytes, durability).await
    }

    /// Declares the range's contents unused. Where members support it, the range reads as zeros afterwards; at
    /// levels without redundancy, as anything. Otherwise it stays as it is.
    ///
    /// # Errors
    /// As [`Array::write`].
    pub async fn discard(&self, at: u64, bytes: u64) -> Result<(), ArrayError> {
        self.0.data.discard(at, bytes).await
    }

    /// Makes every write durable that was answered before this call.
    ///
    /// # Errors
    /// `Stopped`, `NoSpace` when a member has no room for a write answered from memory, or `Io` when too many
    /// members failed.
    pub async fn flush(&self) -> Result<(), ArrayError> {
        self.0.data.flush().await
    }
}

impl<M: Member, C: Clock> Array<M, C> {
    // Life of the array: assembly, background work, status and stop.

    /// Assembles an array from its members, in any order.
    ///
    /// # Errors
    /// As [`Array::assemble_offer`].
    pub async fn assemble(
        candidates: Vec<Candidate<M>>,
        options: AssembleOptions,
        pool: Pool,
        clock: C,
    ) -> Result<Self, Refusal> {
        Control::assemble(candidates, options, pool, clock).await.map(Self)
    }

    /// Assembles an array from members, in any order, and a bitmap file.
    ///
    /// # Errors
    /// A [`Refusal`] that names the member and the field; no byte was written.
    pub async fn assemble_offer(
        offer: Offer<M>,
        options: AssembleOptions,
        pool: Pool,
        clock: C,
    ) -> Result<Self, Refusal> {
        Control::assemble_offer(offer, options, pool, clock).await.map(Self)
    }

    /// As [`Array::assemble_offer`], for reading alone. It also takes an array in the middle of a reshape.
    ///
    /// # Errors
    /// A [`Refusal`] that names the member and the field.
    pub async fn assemble_to_read(
        offer: Offer<M>,
        options: AssembleOptions,
        pool: Pool,
        clock: C,
    ) -> Result<Self, Refusal>
    where
        M: Clone,
    {
        Control::assemble_to_read(offer, options, pool, clock).await.map(Self)
    }

    /// The current state of the array.
    pub fn status(&self) -> Status {
        self.0.status()
    }

    /// Answers these writes from memory and writes them out later, until the array is stopped; a flush makes them
    /// durable. The server runs this beside the requests, to its end. Levels without parity go on writing
    /// through.
    pub async fn write_back(&self, answers: WriteBack) {
        self.0.data.write_back(answers).await
    }

    /// Answers no more writes from memory, until the array is stopped. What was answered is written.
    ///
    /// # Errors
    /// Some of it cannot be written; reads of it and flushes fail.
    pub async fn write_through(&self) -> Result<(), ArrayError> {
        self.0.data.write_through().await
    }

    /// Whether [`Array::write_back`] would answer writes that are lost with the process: the array has no write buffer
    /// ([`crate::Offer::write_buffer`]).
    pub fn is_cache_volatile(&self) -> bool {
        let core = &self.0.core;
        !core.info.read_only && core.personality().stripe().is_some() && core.context.write_buffer.get().is_none()
    }

    /// Marks the array clean whenever nothing was written for `delay`, until it is stopped: md's safe mode. So
    /// a crash while idle needs no resync. The server runs this beside the requests.
    pub async fn mark_clean_when_idle(&self, delay: Duration) {
        self.0.mark_clean_when_idle(delay).await
    }

    /// Keeps the array whole, as far as its members allow, until it is stopped. Spares replace failed members,
    /// recovery and resync run when due, read errors are repaired, hung members are given up, and owed writes
    /// are retried. Work that cannot be done waits until something changes; [`Array::status`] says why.
    pub async fn keep_whole(&self) {
        self.0.keep_whole().await
    }

    /// Runs `work` on an array without [`Array::keep_whole`], and meanwhile abandons operations that exceed the
    /// member timeout.
    pub async fn in_time<T>(&self, work: impl Future<Output = T>) -> T {
        self.0.with_timeouts(work).await
    }

    /// Finishes requests under way, flushes, and marks the array clean. Later requests are refused. A failed
    /// array stays marked dirty.
    ///
    /// # Errors
    /// `Io` when the array could not be marked clean, or a write answered from memory was lost.
    pub async fn stop(&self) -> Result<(), ArrayError> {
        self.0.stop().await
    }
}

impl<M: Member, C: Clock> Array<M, C> {
    // Members: failure, removal, addition and replacement.

    /// Marks a member faulty, as mdadm's `--fail`. `member` is its name, or the last part of its name where
    /// that is unique.
    ///
    /// # Errors
    /// When there is no such member, the array cannot do without it, or the other superblocks could not be
    /// written.
    pub async fn fail(&self, member: &str) -> Result<(), Refusal> {
        self.0.metadata.fail(member).await
    }

    /// Removes a faulty or spare member, as mdadm's `--remove`. A removed spare becomes stale to the others, as
    /// its number may be given to another member.
    ///
    /// # Errors
    /// When there is no such member, the member is active, or the other superblocks could not be written.
    pub async fn remove(&self, member: &str) -> Result<(), Refusal> {
        self.0.metadata.remove(member).await
    }

    /// Adds a member, as mdadm's `--add`: it becomes a spare, and takes an empty slot if there is one.
    /// [`Array::keep_whole`] recovers it. Without `overwrite`, a member is refused that carries a superblock,
    /// or something that may be one.
    ///
    /// # Errors
    /// When the member does not fit, with nothing written; or when it failed meanwhile.
    pub async fn add(&self, candidate: Candidate<M>, device_uuid: [u8; 16], overwrite: bool) -> Result<(), Refusal> {
        self.0.add(candidate, device_uuid, Overwrite::all(overwrite)).await
    }

    /// As [`Array::add`], for a spare that the array `giver` has given up: a superblock that calls the member a spare of
    /// that array is overwritten, and nothing else is.
    ///
    /// # Errors
    /// As [`Array::add`].
    pub async fn add_spare_of(
        &self,
        giver: [u8; 16],
        candidate: Candidate<M>,
        device_uuid: [u8; 16],
    ) -> Result<(), Refusal> {
        self.0.add(candidate, device_uuid, Overwrite::SpareOf(giver)).await
    }

    /// Takes a returning member back, as mdadm's `--re-add`. It gets only what was written meanwhile, by the
    /// write-intent bitmap.
    ///
    /// # Errors
    /// When the member may lack more than that, with nothing written; or when it failed meanwhile.
    pub async fn re_add(&self, candidate: Candidate<M>) -> Result<(), Refusal> {
        self.0.re_add(candidate).await
    }

    /// Gives the array a write journal, as mdadm's `--add-journal`. Levels 4, 5 and 6 may have one, with metadata 1.1 and
    /// 1.2, blocks of 4096 bytes or more ([`crate::JournalPlan::ToCome`]), and neither bitmap nor log. `device_uuid` is
    /// random. [`Array::set_consistency`] takes the journal away.
    ///
    /// # Errors
    /// When the array cannot have one, or the device does not fit, with nothing written; or when a member failed meanwhile.
    pub async fn add_journal(
        &self,
        candidate: Candidate<M>,
        device_uuid: [u8; 16],
        overwrite: bool,
    ) -> Result<(), Refusal> {
        self.0.add_journal(candidate, device_uuid, overwrite).await
    }

    /// Sets the flags in `set` of a member, and clears those in `clear`, as mdadm's `--write-mostly` and `--nofailfast`.
    ///
    /// # Errors
    /// When there is no such member, it is faulty, its metadata has no room for flags, or a superblock could not be
    /// written.
    pub async fn change_flags(&self, member: &str, set: DeviceFlags, clear: DeviceFlags) -> Result<(), Refusal> {
        self.0.metadata.change_flags(member, set, clear).await
    }

    /// Begins to replace a member by a new one, as mdadm's `--replace --with`; [`Array::keep_whole`] does the
    /// rest. Without `overwrite`, a member is refused that carries a superblock, or something that may be one.
    ///
    /// # Errors
    /// When `old` is not in sync or already being replaced, or the new member does not fit, with nothing
    /// written; or when the new member failed meanwhile.
    pub async fn replace(
        &self,
        old: &str,
        new: Candidate<M>,
        device_uuid: [u8; 16],
        overwrite: bool,
    ) -> Result<(), Refusal> {
        self.0.replace(old, new, device_uuid, overwrite).await
    }

    /// As [`Array::replace`], with one of the array's spares.
    ///
    /// # Errors
    /// As [`Array::replace`].
    pub async fn replace_with_spare(&self, old: &str, spare: &str) -> Result<(), Refusal> {
        self.0.replace_with_spare(old, spare).await
    }
}

impl<M: Member, C: Clock> Array<M, C> {
    // Growth: component size and number of copies.

    /// Plans to use `wanted` bytes of each member or, when `None`, as much as all members have; members may
    /// have been made longer. `None`: that much is used already.
    ///
    /// # Errors
    /// When the array cannot grow, or not so far.
    pub fn plan_growth(&self, wanted: Option<u64>) -> Result<Option<Growth>, Refusal> {
        self.0.plan_growth(wanted)
    }

    /// Carries out a planned growth, while the array is in use. The caller must drive it to its end, as every
    /// change of superblocks.
    ///
    /// # Errors
    /// When the array has changed and no longer allows it, or a member failed. Then the array is as it was,
    /// perhaps without its bitmap, or it has grown: the remaining members' superblocks say which.
    pub async fn grow(&self, growth: Growth) -> Result<(), ArrayError> {
        self.0.grow(growth).await
    }

    /// Completes an interrupted change of size on members that missed its last round. The driver and this
    /// engine go by the freshest member, but mdadm assembles no members whose superblocks differ in size.
    /// False: all superblocks agree.
    ///
    /// # Errors
    /// When the superblocks could not be written.
    pub async fn end_growth(&self) -> Result<bool, ArrayError> {
        self.0.end_growth().await
    }

    /// Plans to use only `wanted` bytes of each member. `None`: no more are used already.
    ///
    /// # Errors
    /// When the array cannot shrink, or not to that size.
    pub fn plan_shrinking(&self, wanted: u64) -> Result<Option<Growth>, Refusal> {
        self.0.plan_shrinking(wanted)
    }

    /// Stops the array, and carries out a planned shrinking. The caller must drive it to its end, as every
    /// change of superblocks.
    ///
    /// # Errors
    /// When the array has changed and no longer allows it, or a member failed. Then the array is as it was,
    /// perhaps without its bitmap, or it has shrunk: the remaining members' superblocks say which.
    pub async fn shrink(&self, shrinking: Growth) -> Result<(), ArrayError> {
        self.0.shrink(shrinking).await
    }

    /// Whether the array can have `wanted` slots and does not already; nothing is written.
    ///
    /// # Errors
    /// When it cannot.
    pub fn check_copies(&self, wanted: u16) -> Result<bool, Refusal> {
        self.0.check_copies(wanted)
    }

    /// Sets the number of slots to `wanted`, while the array is in use. The caller must drive it to its end.
    ///
    /// # Errors
    /// When the array has changed and no longer allows it, or a member failed. The remaining members'
    /// superblocks give the number of slots.
    pub async fn set_copies(&self, wanted: u16) -> Result<(), ArrayError> {
        self.0.set_copies(wanted).await
    }
}

impl<M: Member, C: Clock> Array<M, C> {
    // Bitmap: the write-intent bitmap, on the members or in a file.

    /// Adds a write-intent bitmap on the members. `chunk_bytes` is a power of two from 4 KiB to 2 GiB; mdadm's
    /// choice when `None`.
    ///
    /// # Errors
    /// When the array has a bitmap, cannot have one, or a member lacks the room; nothing is changed then.
    pub async fn add_bitmap(&self, chunk_bytes: Option<u64>, policy: BitmapPolicy) -> Result<(), Refusal> {
        self.0.metadata.add_bitmap(chunk_bytes, policy).await
    }

    /// Length of a bitmap file for this array with such chunks, in bytes.
    ///
    /// # Errors
    /// As [`Array::add_bitmap`].
    pub fn bitmap_file_bytes(&self, chunk_bytes: Option<u64>) -> Result<u64, Refusal> {
        self.0.metadata.bitmap_file_bytes(chunk_bytes)
    }

    /// Adds a write-intent bitmap in `file`, whose contents are overwritten. From then on the array must be
    /// assembled with that file; without it, it has no bitmap.
    ///
    /// # Errors
    /// As [`Array::add_bitmap`], or when the file is too short.
    pub async fn add_bitmap_file(
        &self,
        file: Candidate<M>,
        chunk_bytes: Option<u64>,
        policy: BitmapPolicy,
    ) -> Result<(), Refusal> {
        self.0.metadata.add_bitmap_file(file, chunk_bytes, policy).await
    }

    /// Checks that [`Array::set_bitmap_delay`] would take `seconds`.
    ///
    /// # Errors
    /// When the array has no bitmap, or takes no such time.
    pub fn check_bitmap_delay(&self, seconds: u32) -> Result<(), Refusal> {
        self.0.metadata.check_bitmap_delay(seconds).map(drop)
    }

    /// Changes how long a bit of the bitmap stays set after the last write, on all members and at once: md's
    /// `daemon_sleep`.
    ///
    /// # Errors
    /// As [`Array::check_bitmap_delay`], or when the bitmap could not be written.
    pub async fn set_bitmap_delay(&self, seconds: u32) -> Result<(), Refusal> {
        self.0.metadata.set_bitmap_delay(seconds).await
    }

    /// Removes the write-intent bitmap, if there is one. A bitmap file stays, marked as out of date.
    ///
    /// # Errors
    /// When the superblocks could not be written, or the array takes no changes.
    pub async fn remove_bitmap(&self) -> Result<(), Refusal> {
        self.0.metadata.remove_bitmap().await
    }

    /// Changes what limits the resync after a crash. A bitmap on the members, with mdadm's choice of a chunk, replaces a
    /// partial parity log, and the other way round. Nothing changes if the array has that policy.
    ///
    /// # Errors
    /// When the array cannot have it, or a member lacks the room; nothing is changed then. When a member failed or the
    /// superblocks could not be written.
    pub async fn set_consistency(&self, policy: ConsistencyPolicy) -> Result<(), Refusal> {
        self.0.metadata.set_consistency(policy).await
    }

    /// Checks that the array can have a policy.
    ///
    /// # Errors
    /// Why it cannot; nothing is changed.
    pub fn check_consistency(&self, policy: ConsistencyPolicy) -> Result<(), Refusal> {
        self.0.metadata.check_consistency(policy)
    }

    /// Clears bits of the write-intent bitmap lazily, and closes idle checksum regions, until the array is
    /// stopped. The server runs this beside the requests.
    pub async fn clear_bitmap_lazily(&self) {
        self.0.clear_bitmap_lazily().await
    }

    /// The ranges whose bitmap bits are set, each as of the moment it is yielded: ascending byte ranges of the
    /// components or, for RAID-10, of the array. Empty without a bitmap.
    pub fn intended_ranges(&self) -> impl Iterator<Item = Range<u64>> {
        self.0.metadata.intended_ranges()
    }
}

impl<M: Member, C: Clock> Array<M, C> {
    // Checksums of blocks.

    /// Whether any member has checksums.
    pub fn has_checksums(&self) -> bool {
        self.0.has_checksums()
    }

    /// Adds empty checksum areas to all members without one. They are used from the next start of the array on.
    ///
    /// # Errors
    /// When every member has checksums, or a member cannot have them, with nothing written; or when a member
    /// fails.
    pub async fn add_checksums(&self) -> Result<(), Refusal> {
        self.0.add_checksums().await
    }

    /// Limits the memory for each present member's checksum table, from now on.
    pub fn set_checksum_memory(&self, memory: ChecksumMemory) {
        self.0.set_checksum_memory(memory)
    }

    /// Sets when checksums are verified, from now on.
    pub fn set_verify(&self, verify: Verify) {
        self.0.set_verify(verify)
    }
}

impl<M: Member, C: Clock> Array<M, C> {
    // Sweeps: resync, recovery, scrub and the search for doubtful zeros.

    /// Brings copies and parity into agreement, if they may differ, and then writes that to the superblocks.
    /// `progress` is given the position and the last one.
    ///
    /// # Errors
    /// `ReadOnly`; `Io` when a member that the comparison needs is missing or fails. What was not reached stays
    /// as it was.
    pub async fn resync(&self, progress: &dyn Fn(u64, u64)) -> Result<Resynced, ArrayError> {
        self.0.resync(progress).await
    }

    /// Recovers the members that are not current; spares stay spares (see [`Array::keep_whole`]). True when
    /// none is left; false when interrupted. `progress` is given the position and the last one.
    ///
    /// # Errors
    /// `ReadOnly`; `Io` when the others cannot give what is needed. What was reached stays recovered.
    pub async fn recover(&self, progress: &dyn Fn(u64, u64)) -> Result<bool, ArrayError> {
        self.0.recover(progress).await
    }

    /// Begins a scrub; [`Array::keep_whole`] or [`Array::scrub`] runs it.
    ///
    /// # Errors
    /// A scrub is under way, the level has no redundancy, the range is outside the array, a repair was asked of
    /// a read-only array, or the array takes no more writes. Nothing changed.
    pub fn begin_scrub(&self, request: &ScrubRequest) -> Result<(), Refusal> {
        self.0.begin_scrub(request)
    }

    /// Continues a scrub from a report that [`Array::watch_scrub`] gave.
    ///
    /// # Errors
    /// As [`Array::begin_scrub`]; or when the report is of an array of another shape.
    pub fn restore_scrub(&self, report: ScrubReport) -> Result<(), Refusal> {
        self.0.restore_scrub(report)
    }

    /// Pauses the scrub after the windows under way; `false` continues it.
    ///
    /// # Errors
    /// There is no scrub to pause or continue.
    pub fn pause_scrub(&self, paused: bool) -> Result<(), Refusal> {
        self.0.pause_scrub(paused)
    }

    /// Cancels the scrub; its report stays available.
    ///
    /// # Errors
    /// There is no scrub.
    pub fn cancel_scrub(&self) -> Result<(), Refusal> {
        self.0.cancel_scrub()
    }

    /// Returns when a paused or cancelled scrub has no window under way.
    pub async fn scrub_at_rest(&self) {
        self.0.scrub_at_rest().await
    }

    /// Runs the scrub that was begun, on an array without [`Array::keep_whole`]. Ends when the scrub is over or
    /// paused, or the array is stopped. `progress` is given the position and the last one.
    ///
    /// # Errors
    /// A resync is due first, or the array can no longer be scrubbed.
    pub async fn scrub(&self, progress: &dyn Fn(u64, u64)) -> Result<(), ArrayError> {
        self.0.scrub(progress).await
    }

    /// The report of the scrub under way, or of the last one.
    pub fn scrub_report(&self) -> Option<ScrubReport> {
        self.0.scrub_report()
    }

    /// Calls `keep` with the scrub's report, for its caller to save, until the array is stopped: when the scrub
    /// begins, continues, pauses or ends, and every `interval` while it runs.
    pub async fn watch_scrub(&self, interval: Duration, keep: &dyn Fn(&ScrubReport)) {
        self.0.watch_scrub(interval, keep).await
    }

    /// Searches for long zeros that parity or copies contradict. `holes` are places to search first: a member's
    /// name, and a range of its bytes.
    pub async fn doubtful_zeros(&self, holes: &[(String, Range<u64>)]) -> Vec<DoubtfulZeros> {
        self.0.doubtful_zeros(holes).await
    }

    /// Stops sweeps where they are, and starts no other (md's `frozen`); `false` lets them continue.
    pub fn freeze_sweeps(&self, frozen: bool) {
        self.0.freeze_sweeps(frozen)
    }

    /// Sets the speed limits of all sweeps, from the next window on.
    ///
    /// # Errors
    /// A minimum of zero; nothing changed.
    pub fn set_sync_speed(&self, speed: SyncSpeed) -> Result<(), Refusal> {
        self.0.set_sync_speed(speed)
    }

    /// The speed limits of all sweeps.
    pub fn sync_speed(&self) -> SyncSpeed {
        self.0.sync_speed()
    }

    /// Sets the transfers of sweeps, from the next sweep on.
    ///
    /// # Errors
    /// A size that is no power of two from 4 KiB to 64 MiB; nothing changed.
    pub fn set_sweep_transfers(&self, transfers: SweepTransfers) -> Result<(), Refusal> {
        self.0.set_sweep_transfers(transfers)
    }

    /// The transfers of sweeps.
    pub fn sweep_transfers(&self) -> SweepTransfers {
        self.0.sweep_transfers()
    }
}

impl<M: Member, C: Clock> Array<M, C> {
    // Settings of a running array.

    /// Sets the unit in which stripes are moved, for requests that begin from now on.
    ///
    /// # Errors
    /// When the array cannot have it; nothing changed.
    pub fn set_stripe_size(&self, stripe_size: StripeSize) -> Result<(), Refusal> {
        self.0.data.set_stripe_size(stripe_size)
    }

    /// Whether the array can have this unit.
    ///
    /// # Errors
    /// When it cannot.
    pub fn check_stripe_size(&self, stripe_size: StripeSize) -> Result<(), Refusal> {
        self.0.data.check_stripe_size(stripe_size)
    }

    /// Sets the time after which an operation of a member counts as failed; `None`: no limit.
    pub fn set_member_timeout(&self, timeout: Option<Duration>) {
        self.0.core.context.set_timeout(timeout);
    }

    /// The time limit of a member's operation.
    pub fn member_timeout(&self) -> Option<Duration> {
        self.0.core.context.timeout()
    }

    /// Sets the number of read errors after which a member is ejected; the count halves every hour. md's
    /// `max_corr_read_errors`.
    pub fn set_read_errors_max(&self, count: u32) {
        self.0.set_read_errors_max(count)
    }

    /// The number of read errors that a member may have.
    pub fn read_errors_max(&self) -> u32 {
        self.0.read_errors_max()
    }

    /// Reports every transfer that begins from now on to `observer`, including those of members that join
    /// later; `None`: no observer.
    pub fn observe(&self, observer: Option<Rc<dyn Observer>>) {
        self.0.observe(observer);
    }
}
