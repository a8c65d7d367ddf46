//! The record of the superblocks that a running array begins with, and the rounds that are pending after assembly.
//!
//! It writes nothing: the first write of the running array does.

use crate::control::election::Election;
use crate::control::forced::Rescue;
use crate::device::{Device, DeviceState};
use crate::metadata::record::{ROUNDS_TO_EJECT, ROUNDS_TO_EJECT_ABSENT, Record, SharedFields};
use crate::seam::member::Member;
use format::superblock::{DeviceRole, Resync, Superblock, Timestamp};
use std::cell::Cell;
use std::rc::Rc;

/// The record to begin with, with the rounds that are pending after assembly.
pub(super) fn first_record<M: Member>(
    freshest: &Superblock,
    resync: Resync,
    slots: &[Option<Rc<Device<M>>>],
    spares: &[Rc<Device<M>>],
    election: &Election,
    rescue: &Rescue,
    has_bitmap: bool,
) -> Record {
    let mut record = record_found(freshest, resync, slots, spares);
    record.rounds_pending = record.rounds_pending.max(election.rounds_pending);
    record_taken(&mut record, rescue, election, slots);
    if !has_bitmap && !mutant!("file-not-left-behind") {
        // The array may have been used with a bitmap in a file, which an interrupted round has left one event
        // ahead. That file must become stale once a write happens that it does not know of.
        record.rounds_pending = record.rounds_pending.max(ROUNDS_TO_EJECT);
    }
    record
}

/// The record to continue from. Absent devices become faulty with the next change, so that they are stale
/// when they return.
fn record_found<M: Member>(
    freshest: &Superblock,
    resync: Resync,
    slots: &[Option<Rc<Device<M>>>],
    spares: &[Rc<Device<M>>],
) -> Record {
    let devices = devices_of(slots, spares);
    let here: Vec<_> = devices.iter().map(|device| device.superblock.borrow().device_number).collect();
    let mut roles = freshest.roles.clone();
    let mut rounds_pending = 0;
    for (number, role) in roles.iter_mut().enumerate() {
        let is_here = here.iter().any(|device| usize::from(device.0) == number);
        if !is_here && matches!(role, DeviceRole::Active(_)) {
            *role = DeviceRole::Faulty;
            rounds_pending = mutant!("absent-told-alone" => ROUNDS_TO_EJECT, else ROUNDS_TO_EJECT_ABSENT);
        }
    }
    let is_spare = |device: &&Rc<Device<M>>| device.state.get() == DeviceState::Spare;
    for spare in spares.iter().filter(is_spare) {
        // This includes a spare that was about to take a slot when the power failed.
        if let Some(role) = roles.get_mut(usize::from(spare.superblock.borrow().device_number.0)) {
            *role = DeviceRole::Spare;
        }
    }
    let is_behind = |device: &Rc<Device<M>>| device.superblock.borrow().events < freshest.events;
    let lagging = devices.iter().any(is_behind);
    let shared = || SharedFields { resync: freshest.resync, roles: freshest.roles.clone(), bitmap: freshest.bitmap };
    let lagging = (lagging && !mutant!("uneven-events-grow")).then(shared);
    Record {
        events: freshest.events,
        // Of no events: the kernel may have written the superblocks that were found.
        updated: Cell::new((u64::MAX, Timestamp::default())),
        events_found: freshest.events,
        dirty: false,
        resync,
        roles,
        rounds_pending,
        lagging,
        is_flush_pending: !mutant!("found-unflushed"),
        is_assembly_pending: false,
        is_out_of_room: false,
        is_any_ahead: false,
    }
}

/// Gives the members that `--force` takes their roles, and marks them.
fn record_taken<M: Member>(record: &mut Record, rescue: &Rescue, election: &Election, slots: &[Option<Rc<Device<M>>>]) {
    for (index, slot) in &rescue.taken {
        record.set_role(election.numbers[*index].into(), DeviceRole::Active(*slot));
        let device = slots[slot.index()].as_ref().expect("a taken member is seated");
        device.take_by_force();
    }
}

/// All devices: by slot, then spares and the write journal, then successors.
pub(super) fn devices_of<M: Member>(slots: &[Option<Rc<Device<M>>>], spares: &[Rc<Device<M>>]) -> Vec<Rc<Device<M>>> {
    let successors = slots.iter().flatten().filter_map(|device| device.successor());
    slots.iter().flatten().chain(spares).cloned().chain(successors).collect()
}
