//! Seats the members: each becomes a device in its slot, a spare, a successor, or is left out.
//!
//! Reads bad-block logs and writes nothing. Which role a member has was decided before ([`crate::control::election`]).

use crate::base::buffer::Pool;
use crate::control::election::{Election, Offered};
use crate::control::inspect::{Found, read_bad_blocks};
use crate::control::offer::{AssembleOptions, LeftOut};
use crate::device::context::DeviceContext;
use crate::device::{Device, DeviceState};
use crate::seam::error::Refusal;
use crate::seam::member::Member;
use format::superblock::{DeviceRole, Superblock};
use format::units::Slot;
use std::rc::Rc;

pub(super) type Seated<M> = (Vec<Option<Rc<Device<M>>>>, Vec<Rc<Device<M>>>, Vec<LeftOut>);

pub(super) async fn seat<M: Member>(
    offered: Vec<Offered<M>>,
    election: &Election,
    freshest: &Superblock,
    options: &AssembleOptions,
    pool: &Pool,
    context: &Rc<DeviceContext>,
) -> Result<Seated<M>, Refusal> {
    let mut slots: Vec<Option<Rc<Device<M>>>> = (0..freshest.raid_disks).map(|_| None).collect();
    let (mut spares, mut left_out, mut successors) = (Vec::new(), Vec::new(), Vec::new());
    let listed_max = offered.iter().map(|candidate| candidate.found.superblock.devices_max()).min().unwrap_or(0);
    for (candidate, seat) in offered.into_iter().zip(&election.seats) {
        let Offered { name, member, found: Found { superblock, place } } = candidate;
        let role = match seat {
            Ok(role) => *role,
            Err(reason) => {
                left_out.push(LeftOut { name, reason: reason.clone() });
                continue;
            }
        };
        let number = superblock.device_number.0;
        if role == DeviceRole::Spare && usize::from(number) >= listed_max && !mutant!("number-beyond-room") {
            let reason =
                format!("its number is {number}, and the members' superblocks have room for {listed_max} devices");
            left_out.push(LeftOut { name, reason });
            continue;
        }
        let bad = match options.ignore_bad_blocks && options.read_only {
            true => Vec::new(),
            false => read_bad_blocks(&name, &member, &superblock, pool).await?,
        };
        match role {
            DeviceRole::Active(slot) => {
                let state = state_of(&name, &superblock)?;
                let seat = slots.get_mut(slot.index()).ok_or_else(|| {
                    let reason = format!("slot {slot} of an array of {}", freshest.raid_disks);
                    Refusal::new(reason).of(&name).field("superblock.dev_roles")
                })?;
                if superblock.replacement {
                    // A complete successor has yet to take over its slot.
                    let state = if state == DeviceState::InSync {
                        DeviceState::Recovering { current: superblock.component.bytes() }
                    } else {
                        state
                    };
                    let device = Device::new(name, member, superblock, place, state, bad, context.clone());
                    successors.push((slot, Rc::new(device)));
                    continue;
                }
                if let Some(other) = seat {
                    let reason = format!("slot {slot} already belongs to {}", other.name);
                    return Err(Refusal::new(reason).of(&name).field("superblock.dev_roles"));
                }
                *seat = Some(Rc::new(Device::new(name, member, superblock, place, state, bad, context.clone())));
            }
            DeviceRole::Spare => {
                let mut superblock = superblock;
                superblock.replacement = false;
                let state = DeviceState::Spare;
                spares.push(Rc::new(Device::new(name, member, superblock, place, state, bad, context.clone())));
            }
            DeviceRole::Journal => {
                return Err(Refusal::new("a journal device").of(&name).field("superblock.dev_roles"));
            }
            DeviceRole::Faulty => unreachable!("faulty members were left out"),
        }
    }
    seat_successors(&mut slots, successors)?;
    Ok((slots, spares, left_out))
}

/// The state of an active member, by its superblock.
fn state_of(name: &str, superblock: &Superblock) -> Result<DeviceState, Refusal> {
    match superblock.recovery_offset {
        _ if superblock.recovery_from_bitmap => Ok(DeviceState::Recovering { current: 0 }),
        Some(offset) => match offset.checked_bytes() {
            Some(current) => Ok(DeviceState::Recovering { current }),
            None => {
                let reason = format!("{} sectors are beyond any member", offset.0);
                Err(Refusal::new(reason).of(name).field("superblock.recovery_offset"))
            }
        },
        None => Ok(DeviceState::InSync),
    }
}

/// Puts successors beside the members that they replace, or into empty slots.
fn seat_successors<M: Member>(
    slots: &mut [Option<Rc<Device<M>>>],
    successors: Vec<(Slot, Rc<Device<M>>)>,
) -> Result<(), Refusal> {
    for (slot, successor) in successors {
        match &mut slots[slot.index()] {
            Some(old) if old.successor().is_none() => old.replacement.begin(successor),
            Some(_) => {
                let reason = format!("slot {slot} has a replacement already");
                return Err(Refusal::new(reason).of(&successor.name).field("superblock.dev_roles"));
            }
            // The member to be replaced is gone: the successor goes on from where it is.
            seat @ None => {
                successor.found_without_member();
                *seat = Some(successor);
            }
        }
    }
    Ok(())
}
