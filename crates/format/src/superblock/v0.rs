//! Superblock 0.90: 1024 words of 32 bits, in the byte order of the machine that created it. A superblock of the other
//! order is decoded with its words swapped, and encoded in its own order.
//!
//! It has no name and no uuid of the member. It lists devices by major and minor number, which are ignored and preserved;
//! a new one has zeros there.
//!
//! Facts: `mdp_super_t` and `mdp_disk_t` in `md_p.h`; `super_90_load`, `super_90_validate` and `super_90_sync` in
//! `md.c`.

use std::mem::{offset_of, size_of};

use zerocopy::little_endian as le;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::v1::{MAGIC, level_from_md, level_to_md};
use super::{
    BitmapPlace, DeviceFlags, DeviceRole, PLACE_BYTES, Reshape, Resync, SetName, Superblock, Timestamp, Version,
    checksum,
};
use crate::Defect;
use crate::units::{DeviceNumber, MemberByte, SECTOR_BYTES, Sectors, Slot};

/// Maximum number of devices in 0.90.
pub(super) const DISKS: usize = 27;

/// Bits of the array's `state`.
const STATE_CLEAN: u32 = 1;
const STATE_BITMAP: u32 = 1 << 8;

/// Bits of a device's `state`.
const DISK_FAULTY: u32 = 1;
const DISK_ACTIVE: u32 = 1 << 1;
const DISK_SYNC: u32 = 1 << 2;
const DISK_REMOVED: u32 = 1 << 3;
const DISK_WRITE_MOSTLY: u32 = 1 << 9;
const DISK_FAIL_FAST: u32 = 1 << 10;

/// The bitmap follows the superblock, always at this distance.
const BITMAP_SECTORS_FROM_SUPERBLOCK: i32 = (PLACE_BYTES / SECTOR_BYTES) as i32;

/// The minor version during a reshape.
const MINOR_RESHAPE: u32 = 91;

/// One device, 32 words.
#[derive(Debug, Clone, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawDisk {
    pub(super) number: le::U32,
    pub(super) major: le::U32,
    pub(super) minor: le::U32,
    pub(super) raid_disk: le::U32,
    pub(super) state: le::U32,
    reserved: [u8; 108],
}

#[derive(Debug, Clone, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct Raw {
    md_magic: le::U32,
    major_version: le::U32,
    minor_version: le::U32,
    pub(super) patch_version: le::U32,
    gvalid_words: le::U32,
    set_uuid0: [u8; 4],
    ctime: le::U32,
    level: le::I32,
    /// In KiB.
    size: le::U32,
    pub(super) nr_disks: le::U32,
    pub(super) raid_disks: le::U32,
    pub(super) md_minor: le::U32,
    not_persistent: le::U32,
    set_uuid1: [u8; 4],
    set_uuid2: [u8; 4],
    set_uuid3: [u8; 4],
    generic_reserved: [u8; 64],
    utime: le::U32,
    state: le::U32,
    pub(super) active_disks: le::U32,
    pub(super) working_disks: le::U32,
    pub(super) failed_disks: le::U32,
    pub(super) spare_disks: le::U32,
    pub(super) sb_csum: le::U32,
    events: le::U64,
    cp_events: le::U64,
    recovery_cp: le::U32,
    reshape_position: le::U64,
    new_level: le::I32,
    delta_disks: le::I32,
    new_layout: le::U32,
    /// In bytes.
    new_chunk: le::U32,
    state_reserved: [u8; 56],
    layout: le::U32,
    /// In bytes.
    chunk_size: le::U32,
    root_pv: le::U32,
    root_block: le::U32,
    personality_reserved: [u8; 240],
    pub(super) disks: [RawDisk; DISKS],
    pub(super) this_disk: RawDisk,
}

const _: () = {
    assert!(size_of::<RawDisk>() == 128);
    assert!(size_of::<Raw>() == PLACE_BYTES as usize);
    assert!(offset_of!(Raw, utime) == 4 * 32);
    assert!(offset_of!(Raw, sb_csum) == 4 * 38);
    assert!(offset_of!(Raw, events) == 4 * 39);
    assert!(offset_of!(Raw, recovery_cp) == 4 * 43);
    assert!(offset_of!(Raw, reshape_position) == 4 * 44);
    assert!(offset_of!(Raw, new_chunk) == 4 * 49);
    assert!(offset_of!(Raw, layout) == 4 * 64);
    assert!(offset_of!(Raw, disks) == 4 * 128);
    assert!(offset_of!(Raw, this_disk) == 4 * 992);
};

/// Bytes without a field in [`Superblock`]: the whole structure, with the known fields zeroed. Of a device's `state`,
/// only the bits that its role does not imply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rest(Raw);

impl Rest {
    /// For a new superblock that lists the devices in `roles`. A missing one is *removed*, as the kernel writes it.
    pub(super) fn of(roles: &[DeviceRole]) -> Self {
        let mut raw = Raw::new_zeroed();
        for (number, (disk, role)) in raw.disks.iter_mut().zip(roles).enumerate() {
            disk.number = (number as u32).into();
            disk.raid_disk = (number as u32).into();
            disk.state = if *role == DeviceRole::Faulty { DISK_REMOVED } else { 0 }.into();
        }
        raw.nr_disks = (roles.iter().filter(|role| **role != DeviceRole::Faulty).count() as u32).into();
        Self(raw)
    }

    /// Lists a device under `number`. A slot's entry may say *faulty* before: then the device takes its place.
    pub(super) fn list(&mut self, number: usize) {
        let is_counted = self.counts(number);
        self.set(number, 0);
        self.0.nr_disks += u32::from(!is_counted);
    }

    /// Clears the entry of `number`.
    pub(super) fn unlist(&mut self, number: usize) {
        self.0.nr_disks = self.0.nr_disks.get().saturating_sub(self.counts(number).into()).into();
        self.0.disks[number] = RawDisk::new_zeroed();
    }

    /// The slot `number` has no member: its entry says *removed*.
    pub(super) fn vacate(&mut self, number: usize) {
        self.unlist(number);
        self.set(number, DISK_REMOVED);
    }

    /// Whether an entry is one of `nr_disks`. An unused one is all zeros.
    fn counts(&self, number: usize) -> bool {
        let disk = &self.0.disks[number];
        disk.number.get() as usize == number && disk.state.get() & DISK_REMOVED == 0
    }

    fn set(&mut self, number: usize, state: u32) {
        let disk = &mut self.0.disks[number];
        *disk = RawDisk::new_zeroed();
        (disk.number, disk.raid_disk) = ((number as u32).into(), (number as u32).into());
        disk.state = state.into();
    }

    /// The number of the array's device.
    pub(super) fn preferred_minor(&self) -> u32 {
        self.0.md_minor.get()
    }

    /// Sets the number of the array's device.
    pub(super) fn set_preferred_minor(&mut self, minor: u32) {
        self.0.md_minor = minor.into();
    }
}

/// Decodes a 0.90 superblock from the [`PLACE_BYTES`] bytes at its position.
pub(super) fn decode(at: MemberByte, bytes: &[u8]) -> Result<Option<Superblock>, Defect> {
    let raw = Raw::ref_from_bytes(bytes).expect("a whole place was given");
    match raw.md_magic.get() {
        MAGIC => check(raw).and_then(|()| build(at, raw)).map(Some),
        magic if magic == MAGIC.swap_bytes() => {
            let turned = in_other_order(bytes);
            let raw = Raw::ref_from_bytes(&turned).expect("as long as before");
            check(raw)?;
            Ok(Some(Superblock { other_byte_order: true, ..build(at, raw)? }))
        }
        _ => Ok(None),
    }
}

/// Words that are halves of a 64-bit number, which a machine stores in its own order: `events`, `cp_events` and
/// `reshape_position`. (`md_p.h` defines the first two as words in a machine-dependent order.)
const HALVES: [usize; 3] = [39, 41, 44];

/// The same superblock in the other byte order.
fn in_other_order(bytes: &[u8]) -> Vec<u8> {
    let mut turned = bytes.to_vec();
    let (words, _) = turned.as_chunks_mut::<4>();
    words.iter_mut().for_each(|word| word.reverse());
    for first in HALVES {
        words.swap(first, first + 1);
    }
    turned
}

fn defect<T>(field: &'static str, reason: impl Into<String>) -> Result<T, Defect> {
    Err(Defect::new(field, reason))
}

fn check(raw: &Raw) -> Result<(), Defect> {
    if raw.major_version.get() != 0 {
        return defect("superblock.major_version", format!("{}, not 0", raw.major_version));
    }
    if !(90..=MINOR_RESHAPE).contains(&raw.minor_version.get()) {
        return defect("superblock.minor_version", format!("{} is neither 90 nor 91", raw.minor_version));
    }
    let mut zeroed = raw.clone();
    zeroed.sb_csum = 0.into();
    let expected = checksum::sum(zeroed.as_bytes());
    let stored = raw.sb_csum.get();
    if stored != expected && stored != checksum::fold(expected) {
        return defect("superblock.sb_csum", format!("{stored:08x}, but the bytes sum to {expected:08x}"));
    }
    if raw.not_persistent.get() != 0 {
        return defect("superblock.not_persistent", "the array is marked as one without superblocks");
    }
    if raw.raid_disks.get() == 0 || raw.raid_disks.get() as usize > DISKS {
        return defect("superblock.raid_disks", format!("{} is not 1 to {DISKS}", raw.raid_disks));
    }
    let own = raw.this_disk.number.get();
    if raw.disks.get(own as usize).is_none_or(|disk| disk.number.get() != own) {
        return defect("superblock.this_disk", format!("number {own} is not one of the devices listed"));
    }
    if !u64::from(raw.chunk_size.get()).is_multiple_of(SECTOR_BYTES) {
        return defect("superblock.chunk_size", format!("{} bytes are not whole sectors", raw.chunk_size));
    }
    Ok(())
}

fn decode_role(disk: &RawDisk, slots: u32) -> Result<DeviceRole, Defect> {
    let state = disk.state.get();
    if state & DISK_FAULTY != 0 {
        return Ok(DeviceRole::Faulty);
    }
    if state & DISK_SYNC == 0 {
        return Ok(DeviceRole::Spare);
    }
    match u16::try_from(disk.raid_disk.get()) {
        Ok(slot) if u32::from(slot) < slots => Ok(DeviceRole::Active(Slot(slot))),
        _ => defect("superblock.disks", format!("device {} has slot {} of {slots}", disk.number, disk.raid_disk)),
    }
}

/// The bits of a device's `state` that its role implies.
const fn implied_state(role: DeviceRole) -> u32 {
    match role {
        DeviceRole::Active(_) => DISK_ACTIVE | DISK_SYNC,
        DeviceRole::Faulty => DISK_FAULTY,
        DeviceRole::Spare | DeviceRole::Journal => 0,
    }
}

fn reshape(raw: &Raw) -> Option<Reshape> {
    (raw.minor_version.get() == MINOR_RESHAPE).then(|| Reshape {
        position: Sectors(raw.reshape_position.get()),
        new_level: raw.new_level.get(),
        delta_disks: raw.delta_disks.get(),
        new_layout: raw.new_layout.get(),
        new_chunk: (u64::from(raw.new_chunk.get()) / SECTOR_BYTES) as u32,
        backwards: raw.delta_disks.get() < 0,
    })
}

fn resync(raw: &Raw) -> Resync {
    if raw.state.get() & STATE_CLEAN != 0 {
        Resync::Clean
    } else if raw.cp_events == raw.events {
        // A checkpoint is valid only if nothing was written since.
        Resync::From(Sectors(raw.recovery_cp.get().into()))
    } else {
        Resync::From(Sectors(0))
    }
}

fn build(at: MemberByte, raw: &Raw) -> Result<Superblock, Defect> {
    let Some(level) = level_from_md(raw.level.get()) else {
        return defect("superblock.level", format!("{} is not -1, 0, 1, 4, 5, 6 or 10", raw.level));
    };
    let reshape = reshape(raw);
    let leaving = reshape.map_or(0, |reshape| reshape.delta_disks.min(0).unsigned_abs());
    let slots = raw.raid_disks.get().saturating_add(leaving);
    let roles = raw.disks.iter().map(|disk| decode_role(disk, slots)).collect::<Result<Vec<_>, _>>()?;
    let own_state = raw.disks[raw.this_disk.number.get() as usize].state.get();
    let write_mostly = if own_state & DISK_WRITE_MOSTLY != 0 { DeviceFlags::WRITE_MOSTLY.0 } else { 0 };
    let fail_fast = if own_state & DISK_FAIL_FAST != 0 { DeviceFlags::FAIL_FAST.0 } else { 0 };
    let set_uuid = [raw.set_uuid0, raw.set_uuid1, raw.set_uuid2, raw.set_uuid3].as_flattened().try_into();
    let bitmap = raw.state.get() & STATE_BITMAP != 0;
    Ok(Superblock {
        version: Version::V0_90,
        set_uuid: set_uuid.expect("four words are sixteen bytes"),
        set_name: SetName::default(),
        created: Timestamp { seconds: raw.ctime.get().into(), micros: 0 },
        updated: Timestamp { seconds: raw.utime.get().into(), micros: 0 },
        level,
        layout: raw.layout.get(),
        chunk: Sectors::from_bytes_down(raw.chunk_size.get().into()),
        raid_disks: raw.raid_disks.get() as u16,
        component: Sectors(u64::from(raw.size.get()) * 2),
        super_offset: Sectors::from_bytes_down(at.0),
        data_offset: Sectors(0),
        data_size: Sectors::from_bytes_down(at.0),
        events: raw.events.get(),
        resync: resync(raw),
        recovery_offset: None,
        recovery_from_bitmap: false,
        replacement: false,
        device_number: DeviceNumber(raw.this_disk.number.get() as u16),
        device_uuid: None,
        device_flags: DeviceFlags(write_mostly | fail_fast),
        corrected_reads: 0,
        bitmap: bitmap.then_some(BitmapPlace { sectors_from_superblock: BITMAP_SECTORS_FROM_SUPERBLOCK }),
        bad_blocks: None,
        ppl: None,
        reshape,
        new_offset: None,
        journal: false,
        journal_tail: None,
        clustered: false,
        raid0_layout: false,
        logical_block_bytes: 0,
        other_byte_order: false,
        disk_errors: Vec::new(),
        rest: super::Rest::V0(Box::new(Rest(not_understood(raw, &roles)))),
        roles,
    })
}

/// `raw` with only the fields that `build` ignored.
fn not_understood(raw: &Raw, roles: &[DeviceRole]) -> Raw {
    let mut rest = Raw {
        patch_version: raw.patch_version,
        gvalid_words: raw.gvalid_words,
        nr_disks: raw.nr_disks,
        md_minor: raw.md_minor,
        generic_reserved: raw.generic_reserved,
        state: (raw.state.get() & !(STATE_CLEAN | STATE_BITMAP)).into(),
        state_reserved: raw.state_reserved,
        root_pv: raw.root_pv,
        root_block: raw.root_block,
        personality_reserved: raw.personality_reserved,
        disks: raw.disks.clone(),
        ..Raw::new_zeroed()
    };
    match resync(raw) {
        Resync::Clean => (rest.cp_events, rest.recovery_cp) = (raw.cp_events, raw.recovery_cp),
        Resync::From(Sectors(0)) => rest.cp_events = raw.cp_events,
        Resync::From(_) => {}
    }
    if raw.minor_version.get() != MINOR_RESHAPE {
        rest.reshape_position = raw.reshape_position;
        rest.new_level = raw.new_level;
        rest.delta_disks = raw.delta_disks;
        rest.new_layout = raw.new_layout;
        rest.new_chunk = raw.new_chunk;
    }
    for (disk, role) in rest.disks.iter_mut().zip(roles) {
        disk.state = (disk.state.get() & !implied_state(*role)).into();
    }
    rest
}

/// Feature bits of [`Superblock`] that 0.90 keeps in other ways: a bitmap, a reshape and its direction. A recovery offset
/// (2) and a recovery by bitmap (128) are not kept: the member is listed as a spare until its recovery ends.
const KNOWN_FEATURES: u32 = 1 | 2 | 4 | 32 | 128;

/// Encodes `superblock`.
pub(super) fn encode(superblock: &Superblock, rest: &Rest) -> Vec<u8> {
    assert!(superblock.roles.len() <= DISKS, "0.90 lists at most {DISKS} devices");
    assert!(superblock.features().0 & !KNOWN_FEATURES == 0, "0.90 has no such feature: {:?}", superblock.features());
    let recovers = superblock.recovery_offset.is_some() || superblock.recovery_from_bitmap;
    assert!(!recovers || !matches!(superblock.own_role(), DeviceRole::Active(_)), "0.90 has no recovery offset");
    let mut raw = rest.0.clone();
    raw.md_magic = MAGIC.into();
    raw.minor_version = if superblock.reshape.is_some() { MINOR_RESHAPE } else { 90 }.into();
    encode_shape(superblock, &mut raw);
    encode_state(superblock, &mut raw);
    encode_disks(superblock, &mut raw);
    raw.sb_csum = checksum::sum(raw.as_bytes()).into();
    match superblock.other_byte_order {
        false => raw.as_bytes().to_vec(),
        true => in_other_order(raw.as_bytes()),
    }
}

/// Seconds since 1970. 0.90 has no time after February 2106, which a wrong clock may show.
fn seconds(time: Timestamp) -> le::U32 {
    u32::try_from(time.seconds).unwrap_or(u32::MAX).into()
}

/// A value that 0.90 stores in 32 bits: fits unless a caller changed it.
fn narrow(value: u64) -> le::U32 {
    u32::try_from(value).expect("0.90 keeps 32 bits of this field").into()
}

fn encode_shape(superblock: &Superblock, raw: &mut Raw) {
    let (words, _) = superblock.set_uuid.as_chunks::<4>();
    for (word, field) in
        words.iter().zip([&mut raw.set_uuid0, &mut raw.set_uuid1, &mut raw.set_uuid2, &mut raw.set_uuid3])
    {
        *field = *word;
    }
    raw.ctime = narrow(superblock.created.seconds);
    raw.level = level_to_md(superblock.level).into();
    raw.size = narrow(superblock.component.0 / 2);
    raw.raid_disks = u32::from(superblock.raid_disks).into();
    raw.layout = superblock.layout.into();
    raw.chunk_size = narrow(superblock.chunk.bytes());
    if let Some(reshape) = superblock.reshape {
        raw.reshape_position = reshape.position.0.into();
        raw.new_level = reshape.new_level.into();
        raw.delta_disks = reshape.delta_disks.into();
        raw.new_layout = reshape.new_layout.into();
        raw.new_chunk = narrow(u64::from(reshape.new_chunk) * SECTOR_BYTES);
    }
}

fn encode_state(superblock: &Superblock, raw: &mut Raw) {
    raw.utime = seconds(superblock.updated);
    raw.events = superblock.events.into();
    let mut state = raw.state.get();
    if superblock.bitmap.is_some() {
        state |= STATE_BITMAP;
    }
    match superblock.resync {
        // Then a checkpoint has no meaning, and is preserved.
        Resync::Clean => state |= STATE_CLEAN,
        Resync::From(Sectors(0)) => raw.recovery_cp = 0.into(),
        Resync::From(sectors) => {
            raw.cp_events = superblock.events.into();
            // A checkpoint beyond the field's range is dropped; then the resync starts at 0.
            raw.recovery_cp = u32::try_from(sectors.0).unwrap_or(0).into();
        }
    }
    raw.state = state.into();
}

fn encode_disks(superblock: &Superblock, raw: &mut Raw) {
    for (number, (disk, role)) in raw.disks.iter_mut().zip(&superblock.roles).enumerate() {
        let mut state = disk.state.get() | implied_state(*role);
        if let DeviceRole::Active(slot) = role {
            disk.number = (number as u32).into();
            disk.raid_disk = u32::from(slot.0).into();
            state &= !DISK_REMOVED;
        }
        disk.state = state.into();
    }
    let own = &mut raw.disks[usize::from(superblock.device_number.0)];
    let flags = superblock.device_flags;
    let mut state = own.state.get() & !(DISK_WRITE_MOSTLY | DISK_FAIL_FAST);
    if flags.contains(DeviceFlags::WRITE_MOSTLY) {
        state |= DISK_WRITE_MOSTLY;
    }
    if flags.contains(DeviceFlags::FAIL_FAST) {
        state |= DISK_FAIL_FAST;
    }
    own.state = state.into();
    raw.this_disk = own.clone();
    count_disks(superblock, raw);
}

/// The four counts, computed from the list as by the kernel.
fn count_disks(superblock: &Superblock, raw: &mut Raw) {
    let (mut active, mut failed, mut spare) = (0, 0, 0);
    let slots = usize::from(superblock.raid_disks);
    for (number, (disk, role)) in raw.disks.iter().zip(&superblock.roles).enumerate() {
        match role {
            DeviceRole::Active(_) => active += 1,
            // A failed device counts once: by its slot, not by the number that it may have moved to.
            DeviceRole::Faulty => failed += u32::from(number < slots),
            // An unused entry is all zeros, number 0 included.
            DeviceRole::Spare | DeviceRole::Journal => spare += u32::from(disk.number.get() as usize == number),
        }
    }
    raw.active_disks = active.into();
    raw.working_disks = (active + spare).into();
    raw.failed_disks = failed.into();
    raw.spare_disks = spare.into();
}
