//! Changes of a running array between its consistency policies: a write-intent bitmap, a log, or neither.
//!
//! A bitmap and md's partial parity log lie in the same place, and the superblock has one field for both. So the old one goes before the
//! new one comes, in one change: no write is under way, and all data and parity are on stable storage. An interruption
//! leaves an array with the old policy, with neither, or with the new one.
//!
//! md does not start an array of which only some superblocks name a log, if a superblock that does has the most events.
//! So a log is *turned on* in steps, each on stable storage before the next:
//!
//! 1. All members get an empty log, which no superblock names yet.
//! 2. One member, the anchor, gets a superblock with the next events, without a log.
//! 3. All other members get a superblock that names the log, with their old events.
//! 4. The anchor gets a superblock that names the log. This one write decides.
//! 5. The other members get the anchor's events, and then all the next.
//!
//! A member that fails in steps 1 to 4 leaves, and the others have no log. A write that failed in step 4 may still have
//! named the anchor's log. So its superblock is put back, if the anchor takes that. If not, some members may have the
//! anchor's events and no log, until one has more. If power goes then, md may refuse to start the array with the anchor.
//!
//! Superblocks that are one event behind count as members, but what they say of a log does not. A log is *turned off* in
//! an ordinary round: the first superblock without it has the most events.
//!
//! A stripe log has a place of its own, beside a bitmap. It is there once all members have its header.
//!
//! Facts: `raid5_change_consistency_policy` in `drivers/md/raid5.c`, `ppl_init_log` in `drivers/md/raid5-ppl.c`,
//! `super_1_load` and `super_1_validate` in `drivers/md/md.c`.

use crate::base::join::join_all;
use crate::core::ParityTrust;
use crate::core::metadata_lock::MetadataGuard;
use crate::device::stripe_log::LogState;
use crate::device::{Device, DeviceState, Failures};
use crate::metadata::bitmap::change::Planned;
use crate::metadata::parity_log::ParityLog;
use crate::metadata::record::SharedFields;
use crate::metadata::state::Metadata;
use crate::metadata::stripe_log::StripeLog;
use crate::seam::clock::Clock;
use crate::seam::error::{ArrayError, Refusal};
use crate::seam::member::{Member, MemberError, MemberErrorKind};
use format::geometry::Level;
use format::placement::bitmap_chunk;
use format::stripe_log::Place;
use format::superblock::{Superblock, Version};
use std::rc::Rc;

/// What limits the resync after a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConsistencyPolicy {
    /// Nothing: all stripes are resynced.
    Resync,
    /// A write-intent bitmap on the members.
    Bitmap,
    /// The partial parity log of RAID-5.
    PartialParity,
    /// The stripe log, which md ignores. A bitmap stays.
    StripeLog,
    /// md's write journal on a device of its own ([`crate::Array::add_journal`]).
    Journal,
}

impl ConsistencyPolicy {
    /// The policy by md's name for it.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "resync" => Some(Self::Resync),
            "bitmap" => Some(Self::Bitmap),
            "ppl" => Some(Self::PartialParity),
            "log" => Some(Self::StripeLog),
            _ => None,
        }
    }
}

impl<M: Member, C: Clock> Metadata<M, C> {
    /// [`crate::Array::set_consistency`].
    pub(crate) async fn set_consistency(&self, policy: ConsistencyPolicy) -> Result<(), Refusal> {
        let change = self.change_without_writes().await?;
        self.check_consistency(policy)?;
        self.drop_journal(&change).await?;
        if policy != ConsistencyPolicy::StripeLog {
            self.drop_stripe_log(&change).await?;
        }
        match policy {
            ConsistencyPolicy::Journal => unreachable!("it was refused"),
            ConsistencyPolicy::Resync => {
                self.drop_parity_log(&change).await?;
                self.drop_bitmap(&change).await
            }
            ConsistencyPolicy::Bitmap if self.intent().is_some() => Ok(()),
            ConsistencyPolicy::Bitmap => {
                let chunk = self.default_bitmap_chunk()?;
                self.drop_parity_log(&change).await?;
                self.begin_members_bitmap(&change, chunk).await
            }
            ConsistencyPolicy::PartialParity if self.has_parity_log() => Ok(()),
            ConsistencyPolicy::PartialParity => {
                self.drop_bitmap(&change).await?;
                self.begin_parity_log(&change).await
            }
            ConsistencyPolicy::StripeLog if self.has_stripe_log() => Ok(()),
            ConsistencyPolicy::StripeLog => {
                self.drop_parity_log(&change).await?;
                self.begin_stripe_log(&change).await
            }
        }
    }

    /// Checks that the array can have this policy, beside what stands in the way of every change.
    pub(crate) fn check_consistency(&self, policy: ConsistencyPolicy) -> Result<(), Refusal> {
        if policy == ConsistencyPolicy::Journal {
            let refusal = Refusal::new("a write journal needs a device, and is given to an array that is not served");
            return Err(refusal.advice("stop the array; then `mdspace update --write-journal DEVICE MEMBER...`"));
        }
        if self.has_write_journal() && policy != ConsistencyPolicy::Resync {
            let refusal = Refusal::new("the array has a write journal, which md allows beside nothing else");
            return Err(refusal
                .field("superblock.feature_map")
                .advice("give it up first: `mdspace set consistency-policy=resync`"));
        }
        let gives_up_log = (self.has_stripe_log() && policy != ConsistencyPolicy::StripeLog)
            || (self.has_parity_log() && policy != ConsistencyPolicy::PartialParity);
        if gives_up_log && !self.core.is_whole() && self.core.health.trust.get() == ParityTrust::Members {
            // Should power go before the resync has ended, the array would start by force alone.
            let refusal =
                Refusal::new("the array lacks a member and is not resynced yet: its log vouches for its parity");
            return Err(refusal.advice("try again when the resync has ended: `mdspace status` shows it"));
        }
        if policy != ConsistencyPolicy::Bitmap {
            self.check_bitmap_can_be_removed()?;
        }
        match policy {
            ConsistencyPolicy::Journal => unreachable!("it was refused"),
            ConsistencyPolicy::Resync => Ok(()),
            ConsistencyPolicy::Bitmap if self.intent().is_some() => Ok(()),
            ConsistencyPolicy::Bitmap if self.has_parity_log() => self.default_bitmap_chunk().map(drop),
            ConsistencyPolicy::Bitmap => {
                self.check_bitmap_can_be_added()?;
                self.default_bitmap_chunk().map(drop)
            }
            ConsistencyPolicy::PartialParity if self.has_parity_log() => Ok(()),
            ConsistencyPolicy::PartialParity => self.plan_parity_log().map(drop),
            ConsistencyPolicy::StripeLog if self.intent().is_some_and(|intent| intent.is_lockless()) => {
                Err(Refusal::new("mdspace keeps no stripe log beside a lockless bitmap").field("bitmap.version"))
            }
            ConsistencyPolicy::StripeLog => self.check_stripe_log(),
        }
    }

    /// Whether the superblocks name a write journal.
    pub(crate) fn has_write_journal(&self) -> bool {
        self.core.devices().first().is_some_and(|device| device.superblock.borrow().journal)
    }

    fn default_bitmap_chunk(&self) -> Result<u64, Refusal> {
        let superblock = self.core.devices().first().expect("a running array has a member").superblock.borrow().clone();
        let chunk = bitmap_chunk(self.bitmap_covers(&superblock), None, self.room_for_bitmap()?);
        chunk.map_err(|defect| Refusal::new(defect.reason).field(defect.field))
    }

    /// The superblocks with a log of all devices.
    fn plan_parity_log(&self) -> Result<Vec<Planned<M>>, Refusal> {
        let devices = self.core.devices();
        for device in &devices {
            let own = device.superblock.borrow();
            let refuse = |field: &str, reason: &str| Err(Refusal::new(reason).of(&device.name).field(field));
            if own.level != Level::Raid5 {
                return refuse("superblock.level", "only level 5 has a partial parity log");
            }
            if own.version == Version::V0_90 || own.other_byte_order {
                return refuse("superblock.major_version", "this kind of superblock names no partial parity log");
            }
            if device.checksums.get().is_some() {
                let reason = "it has checksums, which a replay of a partial parity log does not keep";
                return refuse("superblock.feature_map", reason);
            }
        }
        if !self.core.health.agreed.get() {
            let refusal = Refusal::new("parity may not agree with the data yet, and a partial parity log relies on it");
            return Err(refusal.advice("try again when the resync has ended: `mdspace status` shows it"));
        }
        let plan = |device: Rc<Device<M>>| {
            let limits = device.member.limits();
            let with_log = device.superblock.borrow().with_parity_log(limits.bytes);
            with_log.map_err(|defect| Refusal::defect(&device.name, defect)).map(|with_log| (device, with_log))
        };
        devices.into_iter().map(plan).collect()
    }

    async fn begin_parity_log(&self, guard: &MetadataGuard<'_>) -> Result<(), Refusal> {
        self.publish(guard).await.map_err(ArrayError::refusal)?; // so that all have the same events
        let planned = self.plan_parity_log()?;
        if mutant!("log-named-in-a-round") {
            planned.iter().for_each(|(device, with_log)| device.superblock.replace(with_log.clone()));
            return self.publish(guard).await.map_err(ArrayError::refusal);
        }
        let is_in_sync = |(device, _): &Planned<M>| device.state.get() == DeviceState::InSync;
        let anchor = planned.iter().position(is_in_sync).expect("a running array has a member in sync");
        let turned_on = async {
            self.write_empty_logs(&planned).await?;
            self.name_logs(guard, planned, anchor).await
        };
        if let Err(failures) = self.core.to_the_end(turned_on).await {
            return self.undo_parity_log(guard, failures).await;
        }
        let room = self.core.devices().iter().filter_map(|device| device.parity_log_room()).min();
        self.set_parity_log(guard, room.map(ParityLog::new));
        self.publish(guard).await.map_err(ArrayError::refusal)
    }

    /// Step 1.
    async fn write_empty_logs(&self, planned: &[Planned<M>]) -> Result<(), Failures<M>> {
        let writes = planned.iter().map(|(device, with_log)| device.write_empty_parity_log(with_log, &self.core.pool));
        write_all(writes, planned.iter().map(|(device, _)| device)).await
    }

    /// Steps 2 to 4.
    async fn name_logs(
        &self,
        guard: &MetadataGuard<'_>,
        mut planned: Vec<Planned<M>>,
        anchor: usize,
    ) -> Result<(), Failures<M>> {
        let (anchor, anchors_log) = planned.remove(anchor);
        let behind = self.record().events;
        self.record_mut(guard).events = behind + 1;
        let Superblock { resync, roles, bitmap, .. } = self.superblock_of(&anchor);
        self.record_mut(guard).lagging = Some(SharedFields { resync, roles, bitmap });
        write_all([self.write_superblock(&anchor, self.superblock_of(&anchor))], [&anchor]).await?;
        let writes = planned.iter().map(|(device, with_log)| {
            device.superblock.borrow_mut().ppl = with_log.ppl;
            let mut superblock = self.superblock_of(device);
            superblock.events = behind;
            self.write_superblock(device, superblock)
        });
        write_all(writes, planned.iter().map(|(device, _)| device)).await?;
        anchor.superblock.borrow_mut().ppl = anchors_log.ppl;
        let named = write_all([self.write_superblock(&anchor, self.superblock_of(&anchor))], [&anchor]).await;
        if mutant!("log-kept-without-its-anchor")
            && let Err(failures) = named
        {
            drop(self.eject(guard, failures).await);
            return Ok(());
        }
        let may_answer = |failures: &Failures<M>| failures[0].1.kind != MemberErrorKind::TimedOut;
        if named.as_ref().is_err_and(may_answer) && !mutant!("anchors-log-not-put-back") {
            anchor.superblock.borrow_mut().ppl = None;
            // If this fails too, the anchor leaves with the others' next events, unless it has no room.
            drop(self.write_superblock(&anchor, self.superblock_of(&anchor)).await);
        }
        named
    }

    /// Of the members that stay, none has a superblock with the most events that names a log.
    async fn undo_parity_log(&self, guard: &MetadataGuard<'_>, failures: Failures<M>) -> Result<(), Refusal> {
        self.forget_parity_log(guard);
        let (device, error) = &failures[0];
        let refusal = Refusal::member_error(&device.name, error)
            .after("the array has no partial parity log")
            .advice("`mdspace status` shows the array's members; try again without this one");
        let failed = failures.into_iter().filter(|(_, error)| error.kind != MemberErrorKind::NoSpace).collect();
        self.eject(guard, failed).await.map_err(ArrayError::refusal)?;
        self.publish(guard).await.map_err(ArrayError::refusal)?;
        Err(refusal)
    }

    /// Turns a log off that a replay could not use. The array takes no requests yet.
    pub(crate) async fn give_up_parity_log(&self) -> Result<(), Refusal> {
        let change = self.begin().await.map_err(ArrayError::refusal)?;
        self.drop_parity_log(&change).await
    }

    /// Turns the log off, if there is one. No write is under way.
    async fn drop_parity_log(&self, guard: &MetadataGuard<'_>) -> Result<(), Refusal> {
        if !self.has_parity_log() {
            return Ok(());
        }
        if self.record().lagging.is_some() && !mutant!("log-dropped-unevenly") {
            // A member that is levelled with the others has to name a log as they do.
            self.publish(guard).await.map_err(ArrayError::refusal)?;
        }
        self.forget_parity_log(guard);
        self.publish(guard).await.map_err(ArrayError::refusal)
    }

    fn forget_parity_log(&self, guard: &MetadataGuard<'_>) {
        for device in self.core.devices() {
            device.superblock.borrow_mut().ppl = None;
            device.end_parity_log();
        }
        self.set_parity_log(guard, None);
    }
}

impl<M: Member, C: Clock> Metadata<M, C> {
    /// Checks that each member has room for a stripe log.
    fn check_stripe_log(&self) -> Result<(), Refusal> {
        let bitmap_bytes = self.intent().filter(|bitmap| bitmap.is_on_members()).map_or(0, |bitmap| bitmap.bytes());
        for device in self.core.devices() {
            // A partial parity log goes before.
            let superblock = device.superblock.borrow().without_parity_log();
            let place = Place::of(&superblock).and_then(|place| {
                // One that other software has made may be longer than mdspace's own.
                place.check_apart_from_bitmap(&superblock, bitmap_bytes)?;
                device.checksums_layout().map_or(Ok(()), |checksums| place.check_apart(&checksums))
            });
            place.map_err(|defect| Refusal::defect(&device.name, defect))?;
        }
        Ok(())
    }

    /// Turns the stripe log on. No write is under way.
    async fn begin_stripe_log(&self, guard: &MetadataGuard<'_>) -> Result<(), Refusal> {
        let context = &self.core.context;
        let (before, is_built) = (context.log_epoch(), self.core.health.agreed.get());
        context.keep_stripe_log(LogState::after(before, self.core.clock.wall(), is_built));
        let published = self.publish(guard).await;
        match published {
            Ok(()) => self.set_stripe_log(guard, context.stripe_log().map(StripeLog::new)),
            // The next log has another epoch.
            Err(_) if !mutant!("failed-log-kept") => self.erase_stripe_logs(guard).await?,
            Err(_) => context.end_stripe_log(),
        }
        published.map_err(ArrayError::refusal)
    }

    /// Turns the stripe log off, if there is one. No write is under way, and all are on stable storage.
    async fn drop_stripe_log(&self, guard: &MetadataGuard<'_>) -> Result<(), Refusal> {
        if !self.has_stripe_log() {
            return Ok(());
        }
        self.set_stripe_log(guard, None);
        self.erase_stripe_logs(guard).await
    }

    async fn erase_stripe_logs(&self, guard: &MetadataGuard<'_>) -> Result<(), Refusal> {
        self.core.context.end_stripe_log();
        let devices = self.core.devices();
        let erasures = join_all(devices.iter().map(|device| device.erase_stripe_log(&self.core.pool))).await;
        let failed = devices.into_iter().zip(erasures).filter_map(|(device, result)| Some((device, result.err()?)));
        self.eject(guard, failed.collect()).await.map_err(ArrayError::refusal)
    }
}

/// The failures of these writes.
async fn write_all<'a, M: Member + 'a>(
    writes: impl IntoIterator<Item = impl Future<Output = Result<(), MemberError>>>,
    devices: impl IntoIterator<Item = &'a Rc<Device<M>>>,
) -> Result<(), Failures<M>> {
    let results = join_all(writes).await;
    let failed = |(device, result): (&Rc<Device<M>>, Result<(), MemberError>)| Some((device.clone(), result.err()?));
    let failures: Failures<M> = devices.into_iter().zip(results).filter_map(failed).collect();
    if failures.is_empty() { Ok(()) } else { Err(failures) }
}
