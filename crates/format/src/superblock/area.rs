//! Areas of a member: superblock, bitmap, bad-block log, partial parity log, data. All must lie on the member, and no
//! two may overlap.
//!
//! The superblock does not hold the bitmap's length. So only the bitmap's own superblock (one sector) is an area here,
//! and [`bitmap_room`] limits its length. Nothing here reads a member. Facts: `docs/format.md`.

use super::{BitmapPlace, DeviceRole, PLACE_BYTES, Superblock, Version, v0, v1};
use crate::Defect;
use crate::placement::{BAD_BLOCK_LOG_SECTORS, bitmap_space};
use crate::units::{MemberByte, SECTOR_BYTES, Sectors};
use std::ops::Range;

/// Name of the superblock's own area.
const SUPERBLOCK: &str = "superblock.super_offset";

/// An area of a member, in sectors.
struct Area {
    field: &'static str,
    start: u64,
    end: u64,
}

/// The position at `sectors` from the superblock, which `check` has found to be on the member.
pub(super) fn from_superblock(super_offset: Sectors, sectors: i64) -> MemberByte {
    let at = super_offset.0.checked_add_signed(sectors).expect("places were checked when the superblock was read");
    MemberByte(Sectors(at).bytes())
}

/// Sectors of this member's data area that the array uses.
pub(super) fn used_data(superblock: &Superblock) -> Sectors {
    let whole_area = !superblock.level.has_component();
    if whole_area || superblock.own_role() == DeviceRole::Journal { superblock.data_size } else { superblock.component }
}

/// Sectors of the superblock.
fn superblock_sectors(superblock: &Superblock) -> u64 {
    match superblock.version {
        Version::V0_90 => 8,
        _ => v1::length_on_disk(superblock.roles.len()) as u64 / SECTOR_BYTES,
    }
}

/// Maximum number of devices that this superblock can list: its list ends where the next area starts.
pub(super) fn devices_max(superblock: &Superblock) -> usize {
    if superblock.version == Version::V0_90 {
        return v0::DISKS;
    }
    let start = superblock.super_offset.0;
    let data = (used_data(superblock).0 > 0).then_some(superblock.data_offset.0);
    let parts = fixed_areas(superblock).into_iter().filter_map(|(_, at, _)| at).chain(data);
    let next = parts.filter(|at| *at > start).min().unwrap_or(u64::MAX);
    let bytes = (next - start).min(PLACE_BYTES / SECTOR_BYTES) * SECTOR_BYTES;
    (bytes as usize - v1::FIXED_BYTES) / 2
}

/// All areas but the data, unordered. `None` for a start before the member.
fn fixed_areas(superblock: &Superblock) -> Vec<(&'static str, Option<u64>, u64)> {
    let at = |sectors: i64| superblock.super_offset.0.checked_add_signed(sectors);
    let mut areas = vec![(SUPERBLOCK, at(0), superblock_sectors(superblock))];
    areas.extend(
        superblock.bitmap.map(|bitmap| ("superblock.bitmap_offset", at(bitmap.sectors_from_superblock.into()), 1)),
    );
    areas.extend(
        superblock
            .bad_blocks
            .map(|log| ("superblock.bblog_offset", at(log.sectors_from_superblock.into()), log.sectors.into())),
    );
    areas.extend(
        superblock.ppl.map(|log| ("superblock.ppl.offset", at(log.sectors_from_superblock.into()), log.sectors.into())),
    );
    areas
}

/// Checks that the areas of `superblock` fit a member of `member_bytes`.
pub(super) fn check(superblock: &Superblock, member_bytes: u64) -> Result<(), Defect> {
    let member_sectors = member_bytes / SECTOR_BYTES;
    check_data(superblock, member_sectors)?;
    let mut areas = Vec::new();
    for (field, start, sectors) in fixed_areas(superblock) {
        let range = start.and_then(|start| Some((start, start.checked_add(sectors)?)));
        let Some((start, end)) = range.filter(|(_, end)| *end <= member_sectors) else {
            let reason = format!("{sectors} sectors there do not lie on a member of {member_sectors} sectors");
            return Err(Defect::new(field, reason));
        };
        areas.push(Area { field, start, end });
    }
    let start = superblock.data_offset.0;
    let end = start + used_data(superblock).0;
    areas.push(Area { field: "superblock.data_offset", start, end });
    check_overlap(areas)
}

/// Checks the data area alone. Afterwards its bounds can be added without overflow.
fn check_data(superblock: &Superblock, member_sectors: u64) -> Result<(), Defect> {
    let used = used_data(superblock);
    if used > superblock.data_size {
        let reason = format!("{} sectors, more than the data area's {}", used.0, superblock.data_size.0);
        return Err(Defect::new("superblock.size", reason));
    }
    // 1.0 counts its data area from the member's start, whatever its data_offset.
    let (start, limit) = match superblock.version {
        Version::V0_90 | Version::V1_0 => (0, superblock.super_offset.0),
        Version::V1_1 | Version::V1_2 => (superblock.data_offset.0, member_sectors),
    };
    if start.checked_add(superblock.data_size.0).is_none_or(|end| end > limit) {
        let reason = format!(
            "{} sectors from sector {start} end after sector {limit}: is the member shorter than it was?",
            superblock.data_size.0
        );
        return Err(Defect::new("superblock.data_size", reason));
    }
    if superblock.data_offset.0.checked_add(used.0).is_none_or(|end| end > member_sectors) {
        let reason = format!(
            "{} sectors from sector {} do not lie on a member of {member_sectors} sectors",
            used.0, superblock.data_offset.0
        );
        return Err(Defect::new("superblock.data_offset", reason));
    }
    // Every caller needs positions in bytes, so that is checked once, here.
    if superblock.chunk.checked_bytes().is_none() || superblock.component.checked_bytes().is_none() {
        return Err(Defect::new("superblock.size", format!("{} sectors overflow", superblock.component.0)));
    }
    Ok(())
}

fn check_overlap(mut areas: Vec<Area>) -> Result<(), Defect> {
    areas.retain(|area| area.start < area.end);
    areas.sort_unstable_by_key(|area| area.start);
    for pair in areas.windows(2) {
        let [first, second] = pair else { continue };
        if second.start < first.end {
            // The superblock's own position is known to be right, so the other area is wrong.
            let (wrong, other) = if second.field == SUPERBLOCK { (first, second) } else { (second, first) };
            let reason = format!(
                "sectors {}..{} overlap those of {}, {}..{}",
                wrong.start, wrong.end, other.field, other.start, other.end
            );
            return Err(Defect::new(wrong.field, reason));
        }
    }
    Ok(())
}

/// Bytes from the bitmap's start to the next area, or to the member's end.
pub(super) fn bitmap_room(superblock: &Superblock, member_bytes: u64) -> Option<u64> {
    let start = superblock.bitmap_at()?.0;
    let data = (used_data(superblock).0 > 0).then_some(superblock.data_offset.0);
    let next = fixed_areas(superblock)
        .into_iter()
        .filter_map(|(_, start, _)| start)
        .chain(data)
        .filter_map(|sector| Sectors(sector).checked_bytes())
        .filter(|next| *next > start)
        .chain([member_bytes])
        .min()?;
    Some(next.saturating_sub(start))
}

/// The sectors from the member's start to the data that md may use: the existing areas, and the space that mdadm would
/// reserve for a bitmap and a bad-block log.
pub(super) fn room_before_data(superblock: &Superblock) -> Sectors {
    let before = |(_, start, sectors): (&'static str, Option<u64>, u64)| Some(start? + sectors);
    let data = superblock.data_offset.0;
    let ends = fixed_areas(superblock).into_iter().filter_map(before).filter(|end| *end <= data);
    let kept = superblock.super_offset.0 + PAGE_SECTORS + bitmap_space(superblock.component.0) + BAD_BLOCK_LOG_SECTORS;
    Sectors(ends.chain([kept]).max().unwrap_or(data).next_multiple_of(PAGE_SECTORS))
}

/// The sectors of the data area that the array does not use and that no area of md covers. `None` if one does, which
/// 1.1 and 1.2 never do themselves.
pub(super) fn room_behind_data(superblock: &Superblock) -> Option<Range<u64>> {
    let start = superblock.data_offset.0 + used_data(superblock).0;
    let end = superblock.data_offset.0 + superblock.data_size.0;
    let lies_there = |(_, at, _): (_, Option<u64>, _)| at.is_none_or(|at| at >= superblock.data_offset.0);
    (!fixed_areas(superblock).into_iter().any(lies_there)).then_some(start..end)
}

/// With 1.0: the first sector of any area behind the data area's start.
pub(super) fn first_behind_data(superblock: &Superblock) -> u64 {
    let starts = fixed_areas(superblock).into_iter().filter_map(|(_, start, _)| start);
    starts.filter(|start| *start >= superblock.data_offset.0).min().unwrap_or(superblock.super_offset.0)
}

/// With 1.0: the sectors from the end of the data to the next area behind it.
fn gap_behind_data(superblock: &Superblock) -> (u64, u64) {
    let data_end = superblock.data_offset.0 + used_data(superblock).0;
    let areas = fixed_areas(superblock).into_iter().filter_map(|(_, start, _)| start);
    let next = areas.filter(|start| *start >= data_end).min().unwrap_or(data_end);
    (data_end.next_multiple_of(PAGE_SECTORS), next)
}

/// What no area covers between the superblock and the data, in whole pages.
pub(super) fn gaps(superblock: &Superblock) -> Vec<Range<u64>> {
    let data = superblock.data_offset.0..superblock.data_offset.0 + used_data(superblock).0;
    let own = superblock.super_offset.0;
    let whole = if own < data.start { own..data.start } else { data.end..own };
    let ends = |(_, start, sectors): (&'static str, Option<u64>, u64)| Some((start?, start? + sectors));
    let mut areas: Vec<(u64, u64)> = fixed_areas(superblock).into_iter().filter_map(ends).collect();
    areas.retain(|(start, end)| *end > whole.start && *start < whole.end);
    areas.sort_unstable();
    let starts = areas.iter().map(|(start, _)| *start).chain([whole.end]);
    let ends = std::iter::once(whole.start).chain(areas.iter().map(|(_, end)| *end));
    let page = |(end, start): (u64, u64)| end.next_multiple_of(PAGE_SECTORS)..start / PAGE_SECTORS * PAGE_SECTORS;
    ends.zip(starts).map(page).filter(|gap| gap.start < gap.end).collect()
}

/// Sectors of a 4 KiB page, the unit of a bitmap's layout.
const PAGE_SECTORS: u64 = 8;

/// Maximum length of a bitmap, in bytes.
pub(super) fn bitmap_room_max(superblock: &Superblock, member_bytes: u64) -> u64 {
    if superblock.version == Version::V1_0 {
        let (start, end) = gap_behind_data(superblock);
        return Sectors(end.saturating_sub(start) / PAGE_SECTORS * PAGE_SECTORS).bytes();
    }
    let placed = Superblock { bitmap: Some(bitmap_place(superblock, 0)), ..superblock.clone() };
    if check(&placed, member_bytes).is_err() {
        return 0;
    }
    bitmap_room(&placed, member_bytes).unwrap_or(0)
}

/// mdadm's position for a bitmap of `bytes`.
pub(super) fn bitmap_place(superblock: &Superblock, bytes: u64) -> BitmapPlace {
    let sectors_from_superblock = if superblock.version == Version::V1_0 {
        let sectors = bytes.div_ceil(SECTOR_BYTES).next_multiple_of(PAGE_SECTORS);
        let end = gap_behind_data(superblock).1 as i64 - superblock.super_offset.0 as i64;
        (end - sectors as i64) as i32
    } else {
        PAGE_SECTORS as i32
    };
    BitmapPlace { sectors_from_superblock }
}
