//! What concerns the checksums of an array as a whole: adding them, settings, status, and closing regions.
//!
//! The checksums of one member, and their format on disk, are in [`crate::device::checksums`].

use crate::base::join::join_all;
use crate::control::state::Control;
use crate::core::authority::Authority;
use crate::device::Device;
use crate::device::checksums::{ChecksumMemory, Checksums, Closing, MemberContents, Verify};
use crate::seam::clock::Clock;
use crate::seam::error::{ArrayError, Refusal};
use crate::seam::member::{Member, Operation};
use format::geometry::Geometry;
use format::integrity::{BLOCK_BYTES, Layout};
use format::stripe_log::Place;
use format::units::MemberByte;
use serde::Serialize;
use std::pin::pin;
use std::rc::Rc;

/// The checksums that members of a running array keep.
#[derive(Debug, Clone, Serialize)]
pub struct ChecksumStatus {
    /// Members that keep them.
    pub members: u16,
    /// Members whose checksums were valid when the array was started: no other software had written without
    /// them.
    pub current: u16,
    /// When they are verified: `always`, or `scrub` for sweeps alone.
    pub verify: &'static str,
    /// Blocks with a checksum mismatch since the array was started, each counted once until it is rewritten.
    pub wrong: u64,
    /// Bytes of these members without a known checksum: reads there are not verified. They are learned in the
    /// background, where the members agree.
    pub unknown_bytes: u64,
    /// Bytes whose table pages were not read since the array was started, so that it is not known whether
    /// they have checksums.
    pub uncounted_bytes: u64,
}

impl<M: Member, C: Clock> Control<M, C> {
    /// [`crate::Array::add_checksums`].
    pub(crate) async fn add_checksums(&self) -> Result<(), Refusal> {
        if self.core.is_read_only() {
            return Err(self.core.refuse_read_only());
        }
        let lacks_them = |device: &Rc<Device<M>>| device.checksums.get().is_none();
        if !self.core.devices().iter().any(lacks_them) {
            return Err(Refusal::new("the array has checksums already"));
        }
        if self.metadata.has_parity_log() {
            return Err(Refusal::new("the array has a partial parity log, whose replay does not keep checksums")
                .advice("let md remove it: mdadm --grow --consistency-policy=bitmap"));
        }
        if self.metadata.intent().is_some_and(|intent| intent.is_lockless()) {
            return Err(Refusal::new("mdspace keeps no checksums beside a lockless bitmap")
                .field("bitmap.version")
                .advice("exchange it first: `mdspace set bitmap=none`, then `bitmap=internal`"));
        }
        self.core.check_not_failed().map_err(|error| Refusal::new(error.reason))?;
        let entered = self.metadata.enter_background().ok_or_else(|| Refusal::new("the array is stopped"))?;
        let _change = entered.lock().await;
        let mut places = Vec::new();
        for device in self.core.devices().into_iter().filter(lacks_them) {
            let layout = self.room_on(&device).await?;
            places.push((device, layout));
        }
        for (device, layout) in places {
            let superblock = device.superblock.borrow().clone();
            let (pool, now) = (&self.core.pool, self.core.clock.wall());
            let made = Checksums::make(&device.member, &superblock, layout, pool, now, MemberContents::Unknown).await;
            made.map_err(|error| {
                Refusal::member_error(&device.name, &error)
                    .after("some members have checksums from the next start on")
                    .advice("`mdspace status` shows how the members are; set it again once this one is replaced")
            })?;
        }
        Ok(())
    }

    /// [`crate::Array::set_checksum_memory`].
    pub(crate) fn set_checksum_memory(&self, memory: ChecksumMemory) {
        for device in self.core.devices() {
            if let Some(checksums) = device.checksums.get() {
                checksums.set_memory(memory);
            }
        }
    }

    /// [`crate::Array::set_verify`].
    pub(crate) fn set_verify(&self, verify: Verify) {
        self.verify.set(verify);
        for device in self.core.devices() {
            if let Some(checksums) = device.checksums.get() {
                checksums.set_verify(verify);
            }
        }
    }
}

/// The place reported for a failure to close regions.
const PLACE: (MemberByte, u64) = (MemberByte(0), 0);

impl<M: Member, C: Clock> Control<M, C> {
    pub(crate) fn checksum_status(&self) -> Option<ChecksumStatus> {
        let devices = self.core.devices();
        let kept: Vec<&Checksums> = devices.iter().filter_map(|device| device.checksums.get()).collect();
        let status = ChecksumStatus {
            members: kept.len() as u16,
            current: kept.iter().filter(|checksums| checksums.trusted()).count() as u16,
            verify: self.verify.get().name(),
            wrong: kept.iter().map(|checksums| checksums.wrong()).sum(),
            unknown_bytes: kept.iter().map(|checksums| checksums.unknown().0).sum::<u64>() * BLOCK_BYTES,
            uncounted_bytes: kept.iter().map(|checksums| checksums.unknown().1).sum::<u64>() * BLOCK_BYTES,
        };
        (!kept.is_empty()).then_some(status)
    }

    /// Finds the room for checksums on a device without any.
    async fn room_on(&self, device: &Device<M>) -> Result<Layout, Refusal> {
        let superblock = device.superblock.borrow().clone();
        let refused = |defect| Refusal::defect(&device.name, defect).advice(self.how_to_make_room());
        let layout = Layout::of(&superblock).map_err(refused)?;
        match device.stripe_log() {
            Some(log) => log.check_apart(&layout).map_err(refused)?,
            // Its log begins with the next superblock.
            None if self.metadata.has_stripe_log() => {
                Place::of(&superblock).and_then(|place| place.check_apart(&layout)).map_err(refused)?;
            }
            None => {}
        }
        crate::device::checksums::check_apart_from_bitmap(&device.member, &superblock, &layout, &self.core.pool)
            .await
            .map_err(refused)?;
        Ok(layout)
    }

    /// Advice that gives every member the room for checksums.
    fn how_to_make_room(&self) -> String {
        let devices = self.core.devices();
        let superblock = devices[0].superblock.borrow().clone();
        let rooms = devices.iter().map(|device| Layout::component_with_room(&device.superblock.borrow()));
        let smaller = rooms.min().flatten().filter(|component| *component < superblock.component);
        let shrunk = smaller.filter(|_| superblock.check_component_changes().is_ok()).and_then(|component| {
            let mut shrunk = superblock.clone();
            shrunk.component = component;
            Some((component, Geometry::new(&shrunk.shape(&[])).ok()?.array_bytes()))
        });
        match shrunk {
            Some((component, array_bytes)) => format!(
                "there is room if {} bytes less of each member are used: stop the array, and `mdspace grow --size {}B --shrink {}`; \
                 what lies behind its new end at byte {array_bytes} is lost, so a file system on it must be made smaller first",
                superblock.component.bytes() - component.bytes(),
                component.bytes(),
                devices.iter().map(|device| &*device.name).collect::<Vec<_>>().join(" "),
            ),
            None => "an array made with --integrity, or with a larger --data-offset, has the room".to_owned(),
        }
    }

    pub(crate) fn has_checksums(&self) -> bool {
        self.core.devices().iter().any(|device| device.checksums.get().is_some())
    }

    /// Writes an empty checksum area to a new member, if the others have checksums.
    pub(crate) async fn give_checksums(&self, device: &Device<M>) -> Result<(), Refusal> {
        if !self.has_checksums() {
            return Ok(());
        }
        let superblock = device.superblock.borrow().clone();
        let layout = Layout::of(&superblock).map_err(|defect| Refusal::defect(&device.name, defect))?;
        let (pool, now) = (&self.core.pool, self.core.clock.wall());
        let made = Checksums::make(&device.member, &superblock, layout, pool, now, MemberContents::Unknown).await;
        let made = made.map_err(|error| Refusal::member_error(&device.name, &error))?;
        made.trust();
        device.keep_checksums(made, self.verify.get());
        Ok(())
    }

    /// Closes regions: writes the known checksums to the members. A member that fails this is ejected.
    pub(crate) async fn close_checksums(&self, closing: Closing) -> Result<(), ArrayError> {
        if self.core.info.read_only || !self.has_checksums() {
            return Ok(());
        }
        self.core.check_not_failed()?;
        let is_lacking = || self.core.devices().iter().any(|device| device.lacks_a_superblock());
        if is_lacking() {
            let change = self.metadata.begin().await?;
            if is_lacking() {
                self.metadata.publish(&change).await?;
            }
        }
        let devices: Vec<Rc<Device<M>>> = self.core.devices();
        let mut at_rest = true;
        if closing == Closing::Idle {
            let kept = || devices.iter().filter_map(|device| device.checksums.get());
            let idle = kept().filter(|checksums| checksums.next_period()).count();
            if idle > 0 {
                let Some(found) = self.metadata.is_at_rest().await else { return Ok(()) };
                at_rest = found;
            }
        }
        let closed = devices.iter().map(async |device| {
            let Some(checksums) = device.checksums.get() else { return Ok(()) };
            let mut left = checksums.allowance(closing, at_rest);
            loop {
                let superblock = device.superblock.borrow().clone();
                let some = checksums.close(&device.member, &superblock, closing, &mut left);
                if !device.with_timeout(Operation::Write, PLACE, pin!(some)).await.flatten()? {
                    return Ok(());
                }
            }
        });
        let results = join_all(closed).await;
        let failed = devices.into_iter().zip(results).filter_map(|(device, result)| Some((device, result.err()?)));
        self.metadata.record_failures(failed.collect()).await
    }
}
