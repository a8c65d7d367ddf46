//! The geometry of the array and whether the members fit it: their number, their sizes, their blocks.
//!
//! Pure: it decides from superblocks and limits, and words the refusal.

use crate::control::blocks::{check_blocks, largest_block, noted_block};
use crate::control::forced::{Rescue, slots_text};
use crate::control::offer::{AssembleOptions, CACHE_BYTES, JournalPlan, LeftOut};
use crate::control::{forced, lost_roles};
use crate::core::personality::{StripeUnits, personality};
use crate::data::cache::PAGE_BYTES;
use crate::device::{Device, DeviceState};
use crate::seam::error::Refusal;
use crate::seam::member::{Limits, Member};
use format::geometry::{Geometry, Level};
use format::integrity::BLOCK_BYTES;
use format::superblock::Superblock;
use format::units::Slot;
use std::rc::Rc;

pub(super) fn geometry<M: Member>(
    freshest: &Superblock,
    slots: &[Option<Rc<Device<M>>>],
    left_out: &[LeftOut],
    rescue: &Rescue,
    options: &AssembleOptions,
) -> Result<Geometry, Refusal> {
    let data_bytes =
        |device: &Option<Rc<Device<M>>>| device.as_ref().map(|device| device.superblock.borrow().data_bytes());
    let mut sizes: Vec<Option<u64>> = slots.iter().map(data_bytes).collect();
    let is_short = !freshest.level.is_redundant() && slots.iter().any(Option::is_none);
    if is_short && options.partial {
        fill_sizes(&mut sizes, freshest.raid0_layout)?;
        if freshest.level == Level::Linear && !options.force {
            shut_displaced(slots);
        }
    } else if is_short {
        let missing: Vec<Slot> =
            (0..freshest.raid_disks).map(Slot).filter(|slot| slots[slot.index()].is_none()).collect();
        let is = if missing.len() == 1 { "is" } else { "are" };
        let mut reason = format!("{} {is} missing, and this level has no redundancy", slots_text(&missing));
        reason.push_str(&left_out_text(left_out));
        return Err(Refusal::new(reason).advice(advice_for_too_few("give all members", &[], rescue)));
    }
    let mut shape = freshest.shape(&sizes.into_iter().map(Option::unwrap_or_default).collect::<Vec<_>>());
    if let (Level::Raid0, 0, Some(layout)) = (shape.level, shape.layout, options.raid0_layout) {
        shape.layout = layout;
    }
    let first = slots.iter().flatten().next().map_or("the array", |device| &device.name);
    let geometry = Geometry::new(&shape).map_err(|defect| {
        let refusal = Refusal::defect(first, defect);
        match shape.level == Level::Raid0 && shape.layout == 0 {
            true => refusal.advice("choose with --raid0-layout original or --raid0-layout alternate"),
            false => refusal,
        }
    })?;
    match personality(&geometry).unsupported() {
        Some(reason) => Err(Refusal::new(reason).of(first).field("superblock.raid_disks")),
        None => Ok(geometry),
    }
}

/// Gives missing members the size of the others, on which it depends where data lies at levels without redundancy. No
/// superblock tells the size of another member. That of a RAID-0 with a layout says that they differ (`are_unequal`).
fn fill_sizes(sizes: &mut [Option<u64>], are_unequal: bool) -> Result<(), Refusal> {
    let mut known = sizes.iter().flatten();
    let first = known.next().copied();
    if are_unequal || known.any(|size| Some(*size) != first) {
        return Err(Refusal::new("the members are not equally long, and where data lies depends on the missing ones")
            .field("superblock.data_size")
            .advice("give all members"));
    }
    sizes.iter_mut().for_each(|size| *size = size.or(first));
    Ok(())
}

/// Shuts the members behind the first missing one: at level linear it depends on the missing one's length where their data
/// lies.
fn shut_displaced<M: Member>(slots: &[Option<Rc<Device<M>>>]) {
    for device in slots.iter().skip_while(|device| device.is_some()).flatten() {
        device.bad.shut(&(0..device.superblock.borrow().data_bytes()));
    }
}

pub(super) fn check_fit<M: Member>(geometry: &Geometry, slots: &[Option<Rc<Device<M>>>]) -> Result<(), Refusal> {
    let seated = slots.iter().enumerate().filter_map(|(index, device)| Some((index, device.clone()?)));
    let all = seated.flat_map(|(index, device)| [device.successor(), Some(device)].map(|device| (index, device)));
    for (index, device) in all.filter_map(|(index, device)| Some((index, device?))) {
        let used = geometry.used_bytes(Slot(index as u16));
        let there = device.member.limits().bytes.saturating_sub(device.data_at());
        if used > there {
            let reason = format!("{used} bytes of data do not fit the {there} bytes behind the data offset");
            return Err(Refusal::new(reason).of(&device.name).field("superblock.size"));
        }
    }
    Ok(())
}

pub(super) fn too_few(
    geometry: &Geometry,
    missing: &dyn Fn(Slot) -> bool,
    left_out: &[LeftOut],
    spares: &[&str],
    rescue: &Rescue,
) -> Refusal {
    let mut details = missing_text(geometry, missing, left_out);
    if let Some(note) = lost_roles::note(spares) {
        details.push_str(&format!("; {note}"));
    }
    Refusal::new("too few members").because(&details).advice(advice_for_too_few(
        "give more of its members",
        spares,
        rescue,
    ))
}

fn advice_for_too_few(first: &str, spares: &[&str], rescue: &Rescue) -> String {
    let advice = match forced::offer(&rescue.forced) {
        Some(offer) => format!("{first}; {offer}"),
        None if !spares.is_empty() => format!("{first}; if the spares were members before: {}", lost_roles::ADVICE),
        None => first.to_owned(),
    };
    format!("{advice}; `mdspace read --partial` reads what the given ones hold")
}

/// Slots without a current member, and the candidates that were left out.
pub(super) fn missing_text(geometry: &Geometry, missing: &dyn Fn(Slot) -> bool, left_out: &[LeftOut]) -> String {
    let slots: Vec<String> =
        (0..geometry.slots()).filter(|&slot| missing(Slot(slot))).map(|slot| slot.to_string()).collect();
    format!("of {} slots, missing: {}{}", geometry.slots(), slots.join(", "), left_out_text(left_out))
}

fn left_out_text(left_out: &[LeftOut]) -> String {
    left_out.iter().map(|LeftOut { name, reason }| format!("; {name} was left out: {reason}")).collect()
}

/// The unit of the array's transfers: the largest block of any member, of the checksums or the journal, and of the
/// superblock.
///
/// # Errors
/// A size in the superblock that no device has.
fn block_bytes<M: Member>(
    devices: &[Rc<Device<M>>],
    freshest: &Superblock,
    options: &AssembleOptions,
) -> Result<u64, String> {
    let largest = largest_block(devices.iter().map(|device| &device.member));
    let has_checksums = devices.iter().any(|device| device.checksums.get().is_some());
    let has_journal = options.journal == JournalPlan::ToCome
        || devices.iter().any(|device| device.state.get() == DeviceState::Journal);
    Ok(largest.max(if has_checksums || has_journal { BLOCK_BYTES } else { 0 }).max(noted_block(freshest)?))
}

/// The unit of transfers in bytes, once it is sure that every part of the array lies on whole units.
pub(super) fn check_block_bytes<M: Member>(
    geometry: &Geometry,
    devices: &[Rc<Device<M>>],
    (name, freshest): (&str, &Superblock),
    options: &AssembleOptions,
) -> Result<u64, Refusal> {
    let block_bytes = block_bytes(devices, freshest, options)
        .map_err(|reason| Refusal::new(reason).of(name).field("superblock.logical_block_size"))?;
    let parties =
        devices.iter().map(|device| (&*device.name, device.member.limits(), device.superblock.borrow().clone()));
    check_blocks(geometry, block_bytes, parties, !options.read_only)?;
    Ok(block_bytes)
}

/// Memory for the stripe cache, as [`AssembleOptions::cache_bytes`] defines it.
pub(super) fn cache_bytes<'a>(
    geometry: &Geometry,
    wanted: Option<usize>,
    mut members: impl Iterator<Item = &'a Limits>,
) -> usize {
    // The cache's rows are whole pages of a chunk.
    let is_paged = |stripe: StripeUnits| stripe.chunk_bytes.is_multiple_of(PAGE_BYTES as u64);
    let has_rows = personality(geometry).stripe().is_some_and(is_paged);
    let pays = members.any(|limits| !limits.synchronous);
    let wanted = wanted.unwrap_or(if pays { CACHE_BYTES } else { 0 });
    if has_rows { wanted } else { 0 }
}
