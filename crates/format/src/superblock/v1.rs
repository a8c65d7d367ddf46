//! Superblocks 1.0, 1.1 and 1.2: one structure, little endian, at three positions.
//!
//! It checks every field by itself; `area` checks them together against the member. It never reads a member. Facts:
//! `struct mdp_superblock_1` in `md_p.h`, `super_1_load`, `super_1_validate` and `super_1_sync` in `md.c`.

use std::mem::{offset_of, size_of};

use zerocopy::little_endian as le;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{
    BadBlockPlace, BitmapPlace, DISK_ERROR, DeviceFlags, DeviceRole, Features, MAX_DEVICES, PplPlace, Reshape, Resync,
    SetName, Superblock, Timestamp, Version, checksum,
};
use crate::Defect;
use crate::geometry::Level;
use crate::units::{DeviceNumber, MemberByte, SECTOR_BYTES, Sectors, Slot};

/// The first word of every superblock.
pub(super) const MAGIC: u32 = 0xa92b_4efc;

/// `resync_offset` of a clean array.
const RESYNC_DONE: u64 = u64::MAX;

const ROLE_SPARE: u16 = 0xffff;
const ROLE_FAULTY: u16 = 0xfffe;
const ROLE_JOURNAL: u16 = 0xfffd;

/// The fixed part. `max_dev` roles of two bytes follow.
#[derive(Debug, Clone, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    magic: le::U32,
    major_version: le::U32,
    feature_map: le::U32,
    pad0: le::U32,
    set_uuid: [u8; 16],
    set_name: [u8; 32],
    ctime: le::U64,
    level: le::I32,
    layout: le::U32,
    size: le::U64,
    chunksize: le::U32,
    raid_disks: le::U32,
    /// `bitmap_offset`, or `ppl.offset` and `ppl.size`.
    bitmap_or_ppl: [u8; 4],
    new_level: le::I32,
    reshape_position: le::U64,
    delta_disks: le::I32,
    new_layout: le::U32,
    new_chunk: le::U32,
    new_offset: le::I32,
    data_offset: le::U64,
    data_size: le::U64,
    super_offset: le::U64,
    /// `recovery_offset`, or `journal_tail` on a journal.
    recovery_or_tail: le::U64,
    dev_number: le::U32,
    cnt_corrected_read: le::U32,
    device_uuid: [u8; 16],
    devflags: u8,
    bblog_shift: u8,
    bblog_size: le::U16,
    bblog_offset: le::I32,
    utime: le::U64,
    events: le::U64,
    resync_offset: le::U64,
    sb_csum: le::U32,
    max_dev: le::U32,
    logical_block_size: le::U32,
    pad3: [u8; 28],
}

const _: () = {
    assert!(size_of::<Raw>() == 256);
    assert!(offset_of!(Raw, set_name) == 32);
    assert!(offset_of!(Raw, level) == 72);
    assert!(offset_of!(Raw, bitmap_or_ppl) == 96);
    assert!(offset_of!(Raw, reshape_position) == 104);
    assert!(offset_of!(Raw, new_offset) == 124);
    assert!(offset_of!(Raw, data_offset) == 128);
    assert!(offset_of!(Raw, recovery_or_tail) == 152);
    assert!(offset_of!(Raw, device_uuid) == 168);
    assert!(offset_of!(Raw, bblog_offset) == 188);
    assert!(offset_of!(Raw, utime) == 192);
    assert!(offset_of!(Raw, resync_offset) == 208);
    assert!(offset_of!(Raw, sb_csum) == 216);
    assert!(offset_of!(Raw, logical_block_size) == 224);
    assert!(offset_of!(Raw, pad3) == 228);
};

/// Bytes without a field in [`Superblock`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rest {
    /// Padding, and fields whose feature bit is not set; the others are zero.
    head: Raw,
    /// The bytes from the last role to the end of its sector.
    tail: Vec<u8>,
}

/// Bytes before the roles.
pub(super) const FIXED_BYTES: usize = size_of::<Raw>();

/// Bytes of a superblock with `max_dev` roles, before rounding to sectors.
fn length(max_dev: usize) -> usize {
    FIXED_BYTES + 2 * max_dev
}

/// Bytes on the member of a superblock with `max_dev` roles.
pub(super) fn length_on_disk(max_dev: usize) -> usize {
    length(max_dev).next_multiple_of(SECTOR_BYTES as usize)
}

/// Decodes a 1.x superblock from the [`super::PLACE_BYTES`] bytes at its position.
pub(super) fn decode(version: Version, at: MemberByte, bytes: &[u8]) -> Result<Option<Superblock>, Defect> {
    let (raw, after) = Raw::ref_from_prefix(bytes).expect("a whole place was given");
    if raw.magic.get() != MAGIC {
        return Ok(None);
    }
    if raw.major_version.get() != 1 {
        return defect("superblock.major_version", format!("{}, not 1", raw.major_version));
    }
    let max_dev = raw.max_dev.get() as usize;
    if max_dev > MAX_DEVICES {
        return defect("superblock.max_dev", format!("{max_dev}, more than {MAX_DEVICES}"));
    }
    check_sum(raw, &bytes[..length(max_dev)])?;
    let features = check_features(raw)?;
    if raw.super_offset.get() != at.0 / SECTOR_BYTES {
        let reason = format!("sector {}, but the superblock is at sector {}", raw.super_offset, at.0 / SECTOR_BYTES);
        return defect("superblock.super_offset", reason);
    }
    let roles = decode_roles(raw, features, &after[..2 * max_dev])?;
    let tail = bytes[length(max_dev)..length_on_disk(max_dev)].to_vec();
    let disk_errors = disk_errors(&after[..2 * max_dev]);
    Ok(Some(Superblock { disk_errors, ..build(version, raw, features, roles, tail)? }))
}

fn defect<T>(field: &'static str, reason: impl Into<String>) -> Result<T, Defect> {
    Err(Defect::new(field, reason))
}

fn check_sum(raw: &Raw, bytes: &[u8]) -> Result<(), Defect> {
    let mut zeroed = bytes.to_vec();
    zeroed[offset_of!(Raw, sb_csum)..][..4].fill(0);
    let expected = checksum::sum(&zeroed);
    if raw.sb_csum.get() != expected {
        let reason = format!("{:08x}, but the bytes sum to {expected:08x}", raw.sb_csum);
        return defect("superblock.sb_csum", reason);
    }
    Ok(())
}

fn check_features(raw: &Raw) -> Result<Features, Defect> {
    let features = Features(raw.feature_map.get());
    let field = "superblock.feature_map";
    if features.unknown() != 0 {
        return defect(field, format!("bits {:#x} are unknown", features.unknown()));
    }
    let ppl = features.contains(Features::PPL);
    let ppls = features.contains(Features::MULTIPLE_PPLS);
    if features.contains(Features::BITMAP) && (ppl || ppls) {
        return defect(field, "a bitmap and a partial parity log exclude each other");
    }
    if ppl && ppls {
        return defect(field, "one partial parity log and several exclude each other");
    }
    if features.contains(Features::RESHAPE_BACKWARDS) && !features.contains(Features::RESHAPE) {
        return defect(field, "a reshape runs backwards, but there is none");
    }
    if features.contains(Features::RAID0_LAYOUT) && raw.level.get() != level_to_md(Level::Raid0) {
        return defect(field, format!("the feature bit of level 0's layout is set, but the level is {}", raw.level));
    }
    Ok(features)
}

/// Decodes the roles, and checks the number of slots that they refer to.
fn decode_roles(raw: &Raw, features: Features, bytes: &[u8]) -> Result<Vec<DeviceRole>, Defect> {
    if !(1..=MAX_DEVICES as u32).contains(&raw.raid_disks.get()) {
        return defect("superblock.raid_disks", format!("{} is not 1 to {MAX_DEVICES}", raw.raid_disks));
    }
    // A reshape to fewer members still needs the leaving ones.
    let leaving = if features.contains(Features::RESHAPE) { raw.delta_disks.get().min(0).unsigned_abs() } else { 0 };
    let slots = raw.raid_disks.get().saturating_add(leaving);
    let (pairs, _) = bytes.as_chunks::<2>();
    pairs
        .iter()
        .enumerate()
        .map(|(number, pair)| match u16::from_le_bytes(*pair) {
            ROLE_SPARE => Ok(DeviceRole::Spare),
            ROLE_FAULTY => Ok(DeviceRole::Faulty),
            ROLE_JOURNAL => Ok(DeviceRole::Journal),
            slot if u32::from(slot & !DISK_ERROR) < slots => Ok(DeviceRole::Active(Slot(slot & !DISK_ERROR))),
            slot => defect("superblock.dev_roles", format!("device {number} has slot {slot} of {slots}")),
        })
        .collect()
}

/// The device numbers with the flag, from valid roles.
fn disk_errors(roles: &[u8]) -> Vec<DeviceNumber> {
    let is_flagged = |role: u16| role & DISK_ERROR != 0 && !matches!(role, ROLE_SPARE | ROLE_FAULTY | ROLE_JOURNAL);
    let (pairs, _) = roles.as_chunks::<2>();
    let flagged = pairs.iter().enumerate().filter(|(_, pair)| is_flagged(u16::from_le_bytes(**pair)));
    flagged.map(|(number, _)| DeviceNumber(number as u16)).collect()
}

/// The level of md's number; `None` for md's other personalities (multipath, faulty, container).
pub(super) fn level_from_md(number: i32) -> Option<Level> {
    match number {
        -1 => Some(Level::Linear),
        0 => Some(Level::Raid0),
        1 => Some(Level::Raid1),
        4 => Some(Level::Raid4),
        5 => Some(Level::Raid5),
        6 => Some(Level::Raid6),
        10 => Some(Level::Raid10),
        _ => None,
    }
}

/// md's number of `level`.
pub(crate) const fn level_to_md(level: Level) -> i32 {
    match level {
        Level::Linear => -1,
        Level::Raid0 => 0,
        Level::Raid1 => 1,
        Level::Raid4 => 4,
        Level::Raid5 => 5,
        Level::Raid6 => 6,
        Level::Raid10 => 10,
    }
}

fn build(
    version: Version,
    raw: &Raw,
    features: Features,
    roles: Vec<DeviceRole>,
    tail: Vec<u8>,
) -> Result<Superblock, Defect> {
    let Some(level) = level_from_md(raw.level.get()) else {
        return defect("superblock.level", format!("{} is not -1, 0, 1, 4, 5, 6 or 10", raw.level));
    };
    let Some(device_number) = u16::try_from(raw.dev_number.get()).ok().filter(|n| usize::from(*n) < MAX_DEVICES) else {
        return defect("superblock.dev_number", format!("{} is not below {MAX_DEVICES}", raw.dev_number));
    };
    let Some(&own_role) = roles.get(usize::from(device_number)) else {
        return defect("superblock.dev_number", format!("{device_number}, but {} devices are listed", roles.len()));
    };
    let is_journal = own_role == DeviceRole::Journal;
    if is_journal && !features.contains(Features::JOURNAL) {
        return defect("superblock.feature_map", "this member is a write journal, but the journal bit is not set");
    }
    let tail_or_recovery = Sectors(raw.recovery_or_tail.get());
    let has = |feature| features.contains(feature);
    let reshape = has(Features::RESHAPE).then(|| Reshape {
        position: Sectors(raw.reshape_position.get()),
        new_level: raw.new_level.get(),
        delta_disks: raw.delta_disks.get(),
        new_layout: raw.new_layout.get(),
        new_chunk: raw.new_chunk.get(),
        backwards: has(Features::RESHAPE_BACKWARDS),
    });
    Ok(Superblock {
        version,
        set_uuid: raw.set_uuid,
        set_name: SetName::from_raw(raw.set_name),
        created: Timestamp::from_bits(raw.ctime.get()),
        updated: Timestamp::from_bits(raw.utime.get()),
        level,
        layout: raw.layout.get(),
        chunk: Sectors(raw.chunksize.get().into()),
        raid_disks: raw.raid_disks.get() as u16,
        component: Sectors(raw.size.get()),
        super_offset: Sectors(raw.super_offset.get()),
        data_offset: Sectors(raw.data_offset.get()),
        data_size: Sectors(raw.data_size.get()),
        events: raw.events.get(),
        resync: match raw.resync_offset.get() {
            RESYNC_DONE => Resync::Clean,
            from => Resync::From(Sectors(from)),
        },
        recovery_offset: has(Features::RECOVERY_OFFSET).then_some(tail_or_recovery),
        recovery_from_bitmap: has(Features::RECOVERY_BITMAP),
        replacement: has(Features::REPLACEMENT),
        device_number: DeviceNumber(device_number),
        device_uuid: Some(raw.device_uuid),
        roles,
        device_flags: DeviceFlags(raw.devflags),
        corrected_reads: raw.cnt_corrected_read.get(),
        bitmap: has(Features::BITMAP)
            .then(|| BitmapPlace { sectors_from_superblock: i32::from_le_bytes(raw.bitmap_or_ppl) }),
        bad_blocks: bad_blocks(raw, features)?,
        ppl: ppl(raw, features),
        reshape,
        new_offset: has(Features::NEW_OFFSET).then(|| raw.new_offset.get()),
        journal: has(Features::JOURNAL),
        journal_tail: is_journal.then_some(tail_or_recovery),
        clustered: has(Features::CLUSTERED),
        raid0_layout: has(Features::RAID0_LAYOUT),
        logical_block_bytes: raw.logical_block_size.get(),
        other_byte_order: false,
        disk_errors: Vec::new(),
        rest: super::Rest::V1(Box::new(Rest { head: not_understood(raw, features, is_journal), tail })),
    })
}

fn bad_blocks(raw: &Raw, features: Features) -> Result<Option<BadBlockPlace>, Defect> {
    let in_use = features.contains(Features::BAD_BLOCKS);
    let (sectors, offset) = (raw.bblog_size.get(), raw.bblog_offset.get());
    if sectors == 0 || offset == 0 {
        return match in_use {
            true => defect("superblock.bblog_offset", "the bad-block log has entries, but no position or no length"),
            false => Ok(None),
        };
    }
    if sectors > 8 {
        return defect("superblock.bblog_size", format!("{sectors} sectors, more than 8"));
    }
    // An entry's sector has 54 bits and its count 9, so no real log has a shift above 10.
    if raw.bblog_shift > 10 {
        return defect("superblock.bblog_shift", format!("{}, more than 10", raw.bblog_shift));
    }
    Ok(Some(BadBlockPlace { sectors_from_superblock: offset, sectors, shift: raw.bblog_shift, in_use }))
}

fn ppl(raw: &Raw, features: Features) -> Option<PplPlace> {
    let multiple = features.contains(Features::MULTIPLE_PPLS);
    let [offset_low, offset_high, size_low, size_high] = raw.bitmap_or_ppl;
    (multiple || features.contains(Features::PPL)).then(|| PplPlace {
        sectors_from_superblock: i16::from_le_bytes([offset_low, offset_high]),
        sectors: u16::from_le_bytes([size_low, size_high]),
        multiple,
    })
}

/// `raw` with only the fields that `build` ignored.
fn not_understood(raw: &Raw, features: Features, is_journal: bool) -> Raw {
    let has = |feature| features.contains(feature);
    let mut rest = Raw { pad0: raw.pad0, pad3: raw.pad3, ..Raw::new_zeroed() };
    if !has(Features::BITMAP) && !has(Features::PPL) && !has(Features::MULTIPLE_PPLS) {
        rest.bitmap_or_ppl = raw.bitmap_or_ppl;
    }
    if !has(Features::RESHAPE) {
        rest.new_level = raw.new_level;
        rest.reshape_position = raw.reshape_position;
        rest.delta_disks = raw.delta_disks;
        rest.new_layout = raw.new_layout;
        rest.new_chunk = raw.new_chunk;
    }
    if !has(Features::NEW_OFFSET) {
        rest.new_offset = raw.new_offset;
    }
    if !has(Features::RECOVERY_OFFSET) && !is_journal {
        rest.recovery_or_tail = raw.recovery_or_tail;
    }
    if raw.bblog_size.get() == 0 || raw.bblog_offset.get() == 0 {
        rest.bblog_shift = raw.bblog_shift;
        rest.bblog_size = raw.bblog_size;
        rest.bblog_offset = raw.bblog_offset;
    }
    rest
}

impl Rest {
    /// Whether padding holds anything, perhaps from a newer kernel.
    pub(super) fn has_padding(&self) -> bool {
        self.head.pad0.get() != 0 || self.head.pad3 != [0; 28]
    }

    /// For a new superblock.
    pub(super) fn empty() -> Self {
        Self { head: Raw::new_zeroed(), tail: Vec::new() }
    }
}

/// Encodes `superblock` as whole sectors.
pub(super) fn encode(superblock: &Superblock, rest: &Rest) -> Vec<u8> {
    let max_dev = superblock.roles.len();
    assert!(max_dev <= MAX_DEVICES, "a superblock lists at most {MAX_DEVICES} devices");
    let mut bytes = Vec::with_capacity(length_on_disk(max_dev));
    bytes.extend_from_slice(fixed_part(superblock, rest).as_bytes());
    let flag = |number: usize| match superblock.disk_errors.iter().any(|device| usize::from(device.0) == number) {
        true => DISK_ERROR,
        false => 0,
    };
    let roles = superblock.roles.iter().enumerate().map(|(number, role)| role_to_md(*role) | flag(number));
    bytes.extend(roles.flat_map(u16::to_le_bytes));
    let sum = checksum::sum(&bytes);
    bytes[offset_of!(Raw, sb_csum)..][..4].copy_from_slice(&sum.to_le_bytes());
    // Added roles may have used up some or all of the tail.
    let room = length_on_disk(max_dev) - bytes.len();
    bytes.extend_from_slice(&rest.tail[rest.tail.len().saturating_sub(room)..]);
    bytes.resize(length_on_disk(max_dev), 0xff);
    bytes
}

const fn role_to_md(role: DeviceRole) -> u16 {
    match role {
        DeviceRole::Active(slot) => slot.0,
        DeviceRole::Spare => ROLE_SPARE,
        DeviceRole::Faulty => ROLE_FAULTY,
        DeviceRole::Journal => ROLE_JOURNAL,
    }
}

fn fixed_part(superblock: &Superblock, rest: &Rest) -> Raw {
    let mut raw = Raw {
        magic: MAGIC.into(),
        major_version: 1.into(),
        feature_map: superblock.features().0.into(),
        set_uuid: superblock.set_uuid,
        set_name: superblock.set_name.raw(),
        ctime: superblock.created.to_bits().into(),
        level: level_to_md(superblock.level).into(),
        layout: superblock.layout.into(),
        size: superblock.component.0.into(),
        chunksize: u32::try_from(superblock.chunk.0).expect("a chunk has 32 bits of sectors").into(),
        raid_disks: u32::from(superblock.raid_disks).into(),
        data_offset: superblock.data_offset.0.into(),
        data_size: superblock.data_size.0.into(),
        super_offset: superblock.super_offset.0.into(),
        dev_number: u32::from(superblock.device_number.0).into(),
        cnt_corrected_read: superblock.corrected_reads.into(),
        device_uuid: superblock.device_uuid.unwrap_or_default(),
        devflags: superblock.device_flags.0,
        utime: superblock.updated.to_bits().into(),
        events: superblock.events.into(),
        resync_offset: match superblock.resync {
            Resync::Clean => RESYNC_DONE,
            Resync::From(sectors) => sectors.0,
        }
        .into(),
        max_dev: (superblock.roles.len() as u32).into(),
        logical_block_size: superblock.logical_block_bytes.into(),
        ..rest.head.clone()
    };
    optional_part(superblock, &mut raw);
    raw
}

/// Fields that are valid only with a feature bit. Without it, `raw` keeps its bytes.
fn optional_part(superblock: &Superblock, raw: &mut Raw) {
    if let Some(place) = superblock.bitmap {
        raw.bitmap_or_ppl = place.sectors_from_superblock.to_le_bytes();
    }
    if let Some(place) = superblock.ppl {
        raw.bitmap_or_ppl[..2].copy_from_slice(&place.sectors_from_superblock.to_le_bytes());
        raw.bitmap_or_ppl[2..].copy_from_slice(&place.sectors.to_le_bytes());
    }
    if let Some(place) = superblock.bad_blocks {
        raw.bblog_offset = place.sectors_from_superblock.into();
        raw.bblog_size = place.sectors.into();
        raw.bblog_shift = place.shift;
    }
    // The two share a field. A journal may have the feature bit too.
    if let Some(sectors) = superblock.recovery_offset.or(superblock.journal_tail) {
        raw.recovery_or_tail = sectors.0.into();
    }
    if let Some(reshape) = superblock.reshape {
        raw.reshape_position = reshape.position.0.into();
        raw.new_level = reshape.new_level.into();
        raw.delta_disks = reshape.delta_disks.into();
        raw.new_layout = reshape.new_layout.into();
        raw.new_chunk = reshape.new_chunk.into();
    }
    if let Some(sectors) = superblock.new_offset {
        raw.new_offset = sectors.into();
    }
}
