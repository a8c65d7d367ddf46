//! The facade: everything that users of an array call, and nothing else. Each call is carried out by the part that it names:
//! the data path, the metadata, or control.
//!
//! A running array is on one thread. What holds at every moment:
//! * No write reaches a member before the array is marked dirty, and its bitmap chunk noted, on stable storage.
//! * A write that was answered is on every member that the superblocks call current, or can be reconstructed from those
//!   that are.
//! * Overlapping writes follow each other; so copies and parity never disagree because of the order of writes.

use crate::base::buffer::{Block, Buffer, Pool};
use crate::control::Control;
use crate::control::assemble::{AssembleOptions, Offer};
use crate::control::grow::Growth;
use crate::control::status::Status;
use crate::control::sweep::doubt::DoubtfulZeros;
use crate::control::sweep::findings::ScrubReport;
use crate::control::sweep::resync::Resynced;
use crate::control::sweep::scrub::ScrubRequest;
use crate::control::sweep::throttle::SyncSpeed;
use crate::control::sweep::transfers::SweepTransfers;
use crate::data::request::Durability;
use crate::data::stripe_size::StripeSize;
use crate::device::checksums::{ChecksumMemory, Verify};
use crate::metadata::bitmap::BitmapPolicy;
use crate::seam::clock::Clock;
use crate::seam::error::{ArrayError, Refusal};
use crate::seam::member::{Candidate, Member};
use crate::seam::observe::Observer;
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
    /// Length of the array in bytes. It may grow; it never shrinks before it is stopped.
    pub fn bytes(&self) -> u64 {
        self.0.core.geometry().array_bytes()
    }

    /// The unit in which requests need no extra reads: the members' largest logical block.
    pub fn block_bytes(&self) -> u64 {
        self.0.core.info.block_bytes
    }

    /// Whether writes are refused.
    pub fn is_read_only(&self) -> bool {
        self.0.core.info.read_only
    }

    /// The pool that its buffers come from.
    pub fn pool(&self) -> &Pool {
        &self.0.core.pool
    }

    /// Fills `into` from array position `at`, in bytes; any position and length.
    ///
    /// # Errors
    /// `OutOfRange`, `Stopped`, or `Io` when the members left cannot give the data.
    pub async fn read(&self, at: u64, into: Buffer) -> Result<Buffer, ArrayError> {
        self.0.data.read(at, into).await
    }

    /// Writes `from` at array position `at`, in bytes; any position and length.
    /// To be driven to its end: when it and all that were gathered with it are
    /// dropped halfway, the array takes no more writes.
    ///
    /// # Errors
    /// `OutOfRange`, `ReadOnly`, `Stopped`, `NoSpace` when a member has no room for it, or `Io` when too many members failed.
    pub async fn write(&self, at: u64, from: Block, durability: Durability) -> Result<(), ArrayError> {
        self.0.data.write(at, from, durability).await
    }

    /// Every write answered before this call is on stable storage after it.
    ///
    /// # Errors
    /// `Stopped`, `NoSpace` when a member has no room for what was answered from memory, or `Io` when too many members failed.
    pub async fn flush(&self) -> Result<(), ArrayError> {
        self.0.data.flush().await
    }

    /// Finishes what is under way, flushes, and marks the array clean. Nothing
    /// is accepted afterwards. An array that is broken stays marked dirty.
    ///
    /// # Errors
    /// `Io` when it could not be marked clean, or something was answered from memory and could not be written.
    pub async fn stop(&self) -> Result<(), ArrayError> {
        self.0.stop().await
    }
}

impl<M: Member, C: Clock> Array<M, C> {
    /// Assembles an array of members alone, in any order.
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

    /// Assembles an array of what is offered, members in any order.
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
}

impl<M: Member, C: Clock> Array<M, C> {
    /// Makes the range read as zeros.
    ///
    /// # Errors
    /// As [`Array::write`].
    pub async fn write_zeroes(&self, at: u64, bytes: u64, durability: Durability) -> Result<(), ArrayError> {
        self.0.data.write_zeroes(at, bytes, durability).await
    }

    /// As [`Array::write_zeroes`]; members may let go of the space.
    ///
    /// # Errors
    /// As [`Array::write`].
    pub async fn punch_hole(&self, at: u64, bytes: u64, durability: Durability) -> Result<(), ArrayError> {
        self.0.data.punch_hole(at, bytes, durability).await
    }

    /// The range's contents no longer matter. Where members can, it reads as
    /// zeros afterwards, or with levels without redundancy as anything;
    /// otherwise it stays as it is.
    ///
    /// # Errors
    /// As [`Array::write`].
    pub async fn discard(&self, at: u64, bytes: u64) -> Result<(), ArrayError> {
        self.0.data.discard(at, bytes).await
    }
}

impl<M: Member, C: Clock> Array<M, C> {
    /// Answers writes from memory and writes them out later, until the array is
    /// stopped: a flush makes them safe. To be run beside the requests by
    /// whoever serves the array, and to its end. Levels without parity go on
    /// writing through.
    pub async fn write_back(&self) {
        self.0.data.write_back().await
    }
}

impl<M: Member, C: Clock> Array<M, C> {
    /// How the array is now.
    pub fn status(&self) -> Status {
        self.0.status()
    }

    /// Bytes in a logical block of the array, where its superblock notes one.
    pub fn logical_block_bytes(&self) -> Option<u32> {
        self.0.logical_block_bytes()
    }

    /// Bytes of a full stripe for parity levels, of a chunk elsewhere: what
    /// large requests are best made of.
    pub fn preferred_bytes(&self) -> u64 {
        self.0.preferred_bytes()
    }
}

impl<M: Member, C: Clock> Array<M, C> {
    /// Marks the array clean whenever nothing was written for `delay`, until it
    /// is stopped: md's safe mode. So a crash while idle costs nothing. To be
    /// run beside the requests by whoever serves the array.
    pub async fn mark_clean_when_idle(&self, delay: Duration) {
        self.0.mark_clean_when_idle(delay).await
    }

    /// Marks a member faulty, as mdadm's `--fail`. `member` is its name, or the
    /// last part of it where that is unique.
    ///
    /// # Errors
    /// When there is no such member, the array cannot do without it, or the
    /// others' superblocks could not be written.
    pub async fn fail(&self, member: &str) -> Result<(), Refusal> {
        self.0.metadata.fail(member).await
    }

    /// Lets go of a faulty or spare member, as mdadm's `--remove`. The others leave a spare behind: its number may be
    /// given to another, which it must never be taken for.
    ///
    /// # Errors
    /// When there is no such member, or it is active, or the others' superblocks could not be written.
    pub async fn remove(&self, member: &str) -> Result<(), Refusal> {
        self.0.metadata.remove(member).await
    }
}

impl<M: Member, C: Clock> Array<M, C> {
    /// Adds a member, as mdadm's `--add`: it becomes a spare, and takes a slot
    /// if one is empty. Whoever runs [`Array::keep_whole`] recovers it.
    /// Without `overwrite` one that carries a superblock is refused, or something that may be one.
    ///
    /// # Errors
    /// When it does not fit, with nothing written; or when it failed meanwhile.
    pub async fn add(&self, candidate: Candidate<M>, device_uuid: [u8; 16], overwrite: bool) -> Result<(), Refusal> {
        self.0.add(candidate, device_uuid, overwrite).await
    }

    /// Takes a member back that was away, as mdadm's `--re-add`: it gets only
    /// what was written meanwhile, by the write-intent bitmap.
    ///
    /// # Errors
    /// When more than that may be missing on it, with nothing written; or when it failed meanwhile.
    pub async fn re_add(&self, candidate: Candidate<M>) -> Result<(), Refusal> {
        self.0.re_add(candidate).await
    }
}

impl<M: Member, C: Clock> Array<M, C> {
    /// Begins to replace a member by a new one, as mdadm's `--replace --with`; whoever runs
    /// [`Array::keep_whole`] does the rest. Without `overwrite` one that carries a superblock is refused, or
    /// something that may be one.
    ///
    /// # Errors
    /// When `old` is not in use everywhere or is being replaced already, or the new one does not fit, with
    /// nothing written; or when the new one failed meanwhile.
    pub async fn replace(
        &self,
        old: &str,
        new: Candidate<M>,
        device_uuid: [u8; 16],
        overwrite: bool,
    ) -> Result<(), Refusal> {
        self.0.replace(old, new, device_uuid, overwrite).await
    }

    /// As [`Array::replace`], by a spare that the array has.
    ///
    /// # Errors
    /// As there.
    pub async fn replace_with_spare(&self, old: &str, spare: &str) -> Result<(), Refusal> {
        self.0.replace_with_spare(old, spare).await
    }
}

impl<M: Member, C: Clock> Array<M, C> {
    /// Whether the array can have `wanted` slots, and has not already; nothing is written.
    ///
    /// # Errors
    /// When it cannot.
    pub fn check_copies(&self, wanted: u16) -> Result<bool, Refusal> {
        self.0.check_copies(wanted)
    }

    /// Gives the array `wanted` slots, as was checked, whatever else goes on. To be driven to its end.
    ///
    /// # Errors
    /// When something has happened meanwhile that forbids it, or a member failed; those that are left say how many slots there are.
    pub async fn set_copies(&self, wanted: u16) -> Result<(), ArrayError> {
        self.0.set_copies(wanted).await
    }
}

impl<M: Member, C: Clock> Array<M, C> {
    /// Whether `wanted` bytes of each member can be used, or as much as all of them have; those that were made longer have
    /// more. `None`: they are used so far already.
    ///
    /// # Errors
    /// When the array cannot grow, or not so far.
    pub fn plan_growth(&self, wanted: Option<u64>) -> Result<Option<Growth>, Refusal> {
        self.0.plan_growth(wanted)
    }

    /// Tells members of a change of size that was cut short what the others say already. The driver goes by the freshest, as
    /// this engine does; but mdadm assembles no members whose superblocks differ in size. False: all say the same.
    ///
    /// # Errors
    /// When the superblocks could not be written.
    pub async fn end_growth(&self) -> Result<bool, ArrayError> {
        self.0.end_growth().await
    }

    /// Carries out what was planned, whatever else goes on. To be driven to its end, as all changes of superblocks.
    ///
    /// # Errors
    /// When something has happened meanwhile that forbids it, or a member failed. Then the array is as it was, without its
    /// bitmap perhaps, or has grown: the members left say so.
    pub async fn grow(&self, growth: Growth) -> Result<(), ArrayError> {
        self.0.grow(growth).await
    }
}

impl<M: Member, C: Clock> Array<M, C> {
    /// Whether no more than `wanted` bytes of each member can be used. `None`: no more are used already.
    ///
    /// # Errors
    /// When the array cannot shrink, or not to that.
    pub fn plan_shrinking(&self, wanted: u64) -> Result<Option<Growth>, Refusal> {
        self.0.plan_shrinking(wanted)
    }

    /// Stops the array, and carries out what was planned. To be driven to its end, as all changes of superblocks.
    ///
    /// # Errors
    /// When something has happened meanwhile that forbids it, or a member failed. Then the array is as it was, without its
    /// bitmap perhaps, or has shrunk: the members left say so.
    pub async fn shrink(&self, shrinking: Growth) -> Result<(), ArrayError> {
        self.0.shrink(shrinking).await
    }
}

impl<M: Member, C: Clock> Array<M, C> {
    /// What the bitmap names at the moment when each range is asked for: byte
    /// ranges in ascending order of the components or, for level 10, of the array. Empty without a bitmap.
    pub fn intended_ranges(&self) -> impl Iterator<Item = Range<u64>> {
        self.0.metadata.intended_ranges()
    }
}

impl<M: Member, C: Clock> Array<M, C> {
    /// Adds a write-intent bitmap to the array, on its members. `chunk_bytes` is a power of two
    /// from 4 KiB to 2 GiB, as mdadm would choose when `None`.
    ///
    /// # Errors
    /// When the array has one, cannot have one, or a member lacks the room; nothing is changed then.
    pub async fn add_bitmap(&self, chunk_bytes: Option<u64>, policy: BitmapPolicy) -> Result<(), Refusal> {
        self.0.metadata.add_bitmap(chunk_bytes, policy).await
    }

    /// Length of a file for a bitmap of this array with such chunks, in bytes.
    ///
    /// # Errors
    /// As [`Array::add_bitmap`].
    pub fn bitmap_file_bytes(&self, chunk_bytes: Option<u64>) -> Result<u64, Refusal> {
        self.0.metadata.bitmap_file_bytes(chunk_bytes)
    }

    /// Adds a write-intent bitmap that is kept in `file`, whose contents are overwritten. The array has to
    /// be assembled with that file from then on; without it, it has no bitmap.
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

    /// Removes the write-intent bitmap, if there is one. A file that held it stays, and calls itself out of date.
    ///
    /// # Errors
    /// When the superblocks could not be written, or the array takes no changes.
    pub async fn remove_bitmap(&self) -> Result<(), Refusal> {
        self.0.metadata.remove_bitmap().await
    }
}

impl<M: Member, C: Clock> Array<M, C> {
    /// Clears bits of the write-intent bitmap lazily, and closes idle regions of checksums, until the array is
    /// stopped. To be run beside the requests by whoever serves the array.
    pub async fn clear_bitmap_lazily(&self) {
        self.0.clear_bitmap_lazily().await
    }
}

impl<M: Member, C: Clock> Array<M, C> {
    /// Whether any member keeps checksums.
    pub fn has_checksums(&self) -> bool {
        self.0.has_checksums()
    }

    /// Puts checksums that know nothing yet on every member that has none. They are kept from the next time on that
    /// the array is started.
    ///
    /// # Errors
    /// When every member has them, or one cannot, with nothing written; or when a member fails.
    pub async fn add_checksums(&self) -> Result<(), Refusal> {
        self.0.add_checksums().await
    }

    /// From here on so much may be kept in memory of each present member's table.
    pub fn set_checksum_memory(&self, memory: ChecksumMemory) {
        self.0.set_checksum_memory(memory)
    }

    /// From here on checksums are asked as `verify` says.
    pub fn set_verify(&self, verify: Verify) {
        self.0.set_verify(verify)
    }
}

impl<M: Member, C: Clock> Array<M, C> {
    /// Keeps the array whole, as far as its members allow, until it is
    /// stopped: spares take over for members that fail, members that are not
    /// current are recovered, copies and parity brought into agreement, read errors put right, members that hang given up, what
    /// members had no room for written when there is. What
    /// cannot be done waits until something changes; [`Array::status`] says why.
    pub async fn keep_whole(&self) {
        self.0.keep_whole().await
    }

    /// Sets the bounds of every sweep's speed, from the next window on.
    ///
    /// # Errors
    /// A floor of zero; nothing changed.
    pub fn set_sync_speed(&self, speed: SyncSpeed) -> Result<(), Refusal> {
        self.0.set_sync_speed(speed)
    }

    /// The bounds of every sweep's speed.
    pub fn sync_speed(&self) -> SyncSpeed {
        self.0.sync_speed()
    }

    /// Sets how sweeps move bytes, from the next sweep on.
    ///
    /// # Errors
    /// A size that is no power of two from 4 KiB to 64 MiB; nothing changed.
    pub fn set_sweep_transfers(&self, transfers: SweepTransfers) -> Result<(), Refusal> {
        self.0.set_sweep_transfers(transfers)
    }

    /// How sweeps move bytes.
    pub fn sweep_transfers(&self) -> SweepTransfers {
        self.0.sweep_transfers()
    }

    /// Stops sweeps where they are, and starts no other (md's `frozen`); or
    /// lets them go on from there.
    pub fn freeze_sweeps(&self, frozen: bool) {
        self.0.freeze_sweeps(frozen)
    }
}

impl<M: Member, C: Clock> Array<M, C> {
    /// Brings copies and parity into agreement, if they may not be, and then
    /// says so in the superblocks. `progress` is told positions done and in all.
    ///
    /// # Errors
    /// `ReadOnly`; `Io` when a member is missing or fails whose data the
    /// comparison needs. What was not reached stays as it was.
    pub async fn resync(&self, progress: &dyn Fn(u64, u64)) -> Result<Resynced, ArrayError> {
        self.0.resync(progress).await
    }
}

impl<M: Member, C: Clock> Array<M, C> {
    /// Recovers the members that are not current, if any; spares stay spares
    /// (see [`Array::keep_whole`]). True when none is left; false when it was
    /// stopped before. `progress` is told positions done and in all.
    ///
    /// # Errors
    /// `ReadOnly`; `Io` when the others cannot give what is needed. What was
    /// reached stays recovered.
    pub async fn recover(&self, progress: &dyn Fn(u64, u64)) -> Result<bool, ArrayError> {
        self.0.recover(progress).await
    }
}

impl<M: Member, C: Clock> Array<M, C> {
    /// Begins a scrub; whoever runs [`Array::keep_whole`] or [`Array::scrub`] carries it out.
    ///
    /// # Errors
    /// One is under way; the level has no redundancy; the range is not within
    /// the array; the array is read-only and it is to repair, or takes no more writes. Nothing changed.
    pub fn begin_scrub(&self, request: &ScrubRequest) -> Result<(), Refusal> {
        self.0.begin_scrub(request)
    }

    /// Takes over a scrub as [`Array::watch_scrub`] handed it out, to go on from there.
    ///
    /// # Errors
    /// As [`Array::begin_scrub`]; and when the report is not of an array of this shape.
    pub fn restore_scrub(&self, report: ScrubReport) -> Result<(), Refusal> {
        self.0.restore_scrub(report)
    }

    /// Lets the scrub stand still after what it has begun; `false`: lets it go on.
    ///
    /// # Errors
    /// There is none to pause, or to go on with.
    pub fn pause_scrub(&self, paused: bool) -> Result<(), Refusal> {
        self.0.pause_scrub(paused)
    }

    /// Ends the scrub where it is; what it found stays to be seen.
    ///
    /// # Errors
    /// There is none.
    pub fn cancel_scrub(&self) -> Result<(), Refusal> {
        self.0.cancel_scrub()
    }

    /// Returns when nothing of a scrub is under way that was paused or cancelled.
    pub async fn scrub_at_rest(&self) {
        self.0.scrub_at_rest().await
    }

    /// The scrub that is under way, or the last one.
    pub fn scrub_report(&self) -> Option<ScrubReport> {
        self.0.scrub_report()
    }

    /// Carries out the scrub that was begun, on an array that nobody keeps
    /// whole; ends when it is over, paused, or the array is stopped. `progress`
    /// is told positions done and the last one.
    ///
    /// # Errors
    /// A resync is due first; or the array is no longer fit for a scrub.
    pub async fn scrub(&self, progress: &dyn Fn(u64, u64)) -> Result<(), ArrayError> {
        self.0.scrub(progress).await
    }

    /// Tells `keep` of the scrub, for its user to keep where it lasts: when it
    /// is begun, goes on, stands still or is over, and every `interval` while
    /// it is under way; until the array is stopped.
    pub async fn watch_scrub(&self, interval: Duration, keep: &dyn Fn(&ScrubReport)) {
        self.0.watch_scrub(interval, keep).await
    }
}

impl<M: Member, C: Clock> Array<M, C> {
    /// Looks for long zeros that parity or copies contradict. `holes` are places to look at first: a member's name, and a
    /// range of its bytes.
    pub async fn doubtful_zeros(&self, holes: &[(String, Range<u64>)]) -> Vec<DoubtfulZeros> {
        self.0.doubtful_zeros(holes).await
    }
}

impl<M: Member, C: Clock> Array<M, C> {
    /// Sets how many read errors a member may have, without hours in between, before it leaves: md's
    /// `max_corr_read_errors`.
    pub fn set_read_errors_max(&self, count: u32) {
        self.0.set_read_errors_max(count)
    }

    /// How many read errors a member may have.
    pub fn read_errors_max(&self) -> u32 {
        self.0.read_errors_max()
    }
}

impl<M: Member, C: Clock> Array<M, C> {}

impl<M: Member, C: Clock> Array<M, C> {
    /// Sets how long a member may take over one operation before it counts as failed; `None`: as long as it likes.
    pub fn set_member_timeout(&self, timeout: Option<Duration>) {
        self.0.core.context.set_timeout(timeout);
    }

    /// How long a member may take over one operation.
    pub fn member_timeout(&self) -> Option<Duration> {
        self.0.core.context.timeout()
    }

    /// Carries out `work` on an array that has no [`Array::keep_whole`] beside it: meanwhile operations that members do not
    /// end in time are given up.
    pub async fn in_time<T>(&self, work: impl Future<Output = T>) -> T {
        self.0.watched(work).await
    }

    /// From now on `observer` is told of every transfer that begins, also of members that join later; `None`: no observer.
    pub fn observe(&self, observer: Option<Rc<dyn Observer>>) {
        self.0.observe(observer);
    }

    /// Changes the unit in which stripes are moved, for requests that begin from now on.
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
}
