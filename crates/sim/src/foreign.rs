//! A model of Linux's md as another user of an array's members: it uses all of them, or some alone, between two lives.
//!
//! What md leaves on the members follows from its own rules, which are stated here anew and not taken from the engine:
//! the event counts, the roles of absent members (a spare, 0xffff; in 0.90 faulty), the dirty state, and the bitmap.
//! The model accepts only members that md would start without a question and without a resync: current, with equal
//! event counts and roles, clean, without bad blocks. It writes whole rows, so it needs no absent member. A partial
//! parity log names each row before it is written.
//!
//! Facts: `drivers/md/md.c` (`md_update_sb`, `super_1_sync`, `super_90_sync`), `md-bitmap.c` (`md_bitmap_read_sb`,
//! `md_bitmap_update_sb`, `md_bitmap_endwrite`). tests/kernel/halves.sh shows that the real driver leaves the same.

use crate::judge::{superblock, syndrome};
use crate::member::SimMember;
use crate::parity_log::Written;
use crate::rows::{Row, SECTOR_BYTES};
use format::bitmap::{self, BitmapSuper, SUPER_BYTES, State};
use format::geometry::{Geometry, Parity, Role};
use format::partial_parity::Repair;
use format::superblock::{DeviceRole, Resync, Superblock, Timestamp, Version};
use format::units::{ComponentByte, Sectors, Slot};

struct Held {
    member: SimMember,
    superblock: Superblock,
    slot: Slot,
    /// Its partial parity log, once it is written.
    log: Option<Written>,
}

/// An array that md has started.
pub struct Foreign {
    held: Vec<Held>,
    events: u64,
    is_degraded: bool,
    is_dirty: bool,
    /// Whether the next change to clean takes back the event of the change to dirty, as it does when no member is
    /// missing.
    can_decrease: bool,
    bits: Option<(BitmapSuper, Vec<u8>)>,
    seconds: u64,
    /// The geometry of an array with a partial parity log.
    logged: Option<Parity>,
}

impl Foreign {
    /// Starts an array of these members alone at time `seconds`; `None` where md would refuse it or resync it. Nothing
    /// is written yet, but the contents of the members' caches are on stable storage from here on.
    pub fn assemble(members: &[SimMember], seconds: u64) -> Option<Self> {
        let held = members.iter().enumerate().map(|(number, member)| {
            let superblock = superblock(number, &member.image()).ok()?;
            let DeviceRole::Active(slot) = superblock.own_role() else { return None };
            let is_current = superblock.recovery_offset.is_none() && !superblock.replacement;
            let is_sound = superblock.bad_blocks.is_none_or(|log| !log.in_use) && superblock.resync == Resync::Clean;
            (is_current && is_sound).then(|| Held { member: member.clone(), superblock, slot, log: None })
        });
        let held: Vec<Held> = held.collect::<Option<_>>()?;
        let first = &held.first()?.superblock;
        let agrees = |one: &Held| {
            one.superblock.events == first.events
                && held
                    .iter()
                    .all(|other| one.superblock.role(other.superblock.device_number) == DeviceRole::Active(other.slot))
        };
        let missing = |slot: Slot| held.iter().all(|one| one.slot != slot);
        let geometry = Geometry::new(&first.shape(&[])).ok()?;
        if !geometry.survives(&missing) || !held.iter().all(agrees) {
            return None;
        }
        let logged = match geometry {
            Geometry::Parity(parity) if first.ppl.is_some() => Some(parity),
            _ => None,
        };
        let bits = bits_of(&held[0])?;
        held.iter().for_each(|one| one.member.settle_all());
        let (events, is_degraded) = (first.events, held.len() < usize::from(first.raid_disks));
        Some(Self { held, events, is_degraded, is_dirty: false, can_decrease: false, bits, seconds, logged })
    }

    /// Whether a member is missing.
    pub fn is_degraded(&self) -> bool {
        self.is_degraded
    }

    /// The members' event count.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Writes a row: one sector of data for each of its sectors.
    pub fn write(&mut self, row: &Row, data: &[Vec<u8>]) {
        self.set_bits(row.covered);
        if !self.is_dirty {
            self.is_dirty = true;
            self.events += 1;
            self.can_decrease = !self.is_degraded;
            self.write_superblocks();
        }
        self.log(row);
        for (datum, bytes) in row.data.iter().zip(data) {
            datum.copies.iter().for_each(|&(slot, at)| self.put(slot, at, bytes));
        }
        let sectors: Vec<Option<&[u8]>> = data.iter().map(|bytes| Some(&bytes[..])).collect();
        if let Some(slot) = row.p {
            let mut sum = vec![0; SECTOR_BYTES];
            data.iter().for_each(|bytes| sum.iter_mut().zip(bytes).for_each(|(sum, byte)| *sum ^= byte));
            self.put(slot, row.component, &sum);
        }
        if let Some(slot) = row.q {
            self.put(slot, row.component, &syndrome(row, &sectors).bytes());
        }
    }

    /// Logs the write of a row. The log is begun before the first.
    fn log(&mut self, row: &Row) {
        let Some(parity) = &self.logged else { return };
        let stripe = parity.stripe(row.component.0 / parity.chunk_bytes());
        let rows = row.component.0..row.component.0 + SECTOR_BYTES as u64;
        let repair = Repair { stripe, changed: 0..parity.data_chunks(), rows };
        for one in &mut self.held {
            if one.log.is_none() {
                one.log = Written::begin(&one.member, &one.superblock);
            }
            let log = one.log.as_mut().filter(|_| repair.stripe.slot_of(Role::P) == Some(one.slot));
            log.into_iter().for_each(|log| log.add(&one.member, parity, &repair));
        }
    }

    /// The array is idle, and becomes clean.
    pub fn rest(&mut self) {
        if !self.is_dirty {
            return;
        }
        self.is_dirty = false;
        if self.can_decrease && self.events != 1 {
            self.events -= 1;
        } else {
            self.events += 1;
        }
        self.can_decrease = false;
        if let Some((_, map)) = self.bits.as_mut().filter(|_| !self.is_degraded) {
            map.fill(0);
        }
        self.write_superblocks();
    }

    /// Stops the array.
    pub fn stop(mut self) {
        self.rest();
    }

    fn put(&self, slot: Slot, at: ComponentByte, bytes: &[u8]) {
        if let Some(one) = self.held.iter().find(|one| one.slot == slot) {
            one.member.plant(one.superblock.data_at().0 + at.0, bytes);
        }
    }

    fn set_bits(&mut self, covered: u64) {
        let Some((header, map)) = &mut self.bits else { return };
        if !self.is_degraded {
            header.events_cleared = header.events_cleared.max(self.events);
        }
        bitmap::set_range(map, header.bits_of(covered..covered + SECTOR_BYTES as u64));
        self.write_bits();
    }

    fn write_bits(&self) {
        let Some((header, map)) = &self.bits else { return };
        for one in &self.held {
            let at = one.superblock.bitmap_at().expect("the array has a bitmap").0;
            one.member.plant(at, &header.encode());
            one.member.plant(at + SUPER_BYTES as u64, map);
        }
    }

    fn write_superblocks(&mut self) {
        if let Some((header, _)) = &mut self.bits {
            header.events = self.events;
            header.events_cleared = header.events_cleared.min(self.events);
            header.state = State(header.state.0 & !State::STALE.0);
        }
        self.write_bits();
        let roles: Vec<(usize, DeviceRole)> = self
            .held
            .iter()
            .map(|one| (usize::from(one.superblock.device_number.0), DeviceRole::Active(one.slot)))
            .collect();
        for one in &mut self.held {
            let own = &mut one.superblock;
            let is_old = own.version == Version::V0_90;
            let slots = usize::from(own.raid_disks);
            for (number, role) in own.roles.iter_mut().enumerate() {
                let absent = if is_old && number < slots { DeviceRole::Faulty } else { DeviceRole::Spare };
                *role = roles.iter().find(|(other, _)| *other == number).map_or(absent, |(_, role)| *role);
            }
            own.events = self.events;
            own.resync = if self.is_dirty { Resync::From(Sectors(0)) } else { Resync::Clean };
            own.updated = Timestamp { seconds: self.seconds, micros: 0 };
            one.member.plant(own.super_at().0, &own.encode());
        }
    }
}

/// The bitmap with which md begins, if the array has one; the outer `None` where md would not start the array.
fn bits_of(one: &Held) -> Option<Option<(BitmapSuper, Vec<u8>)>> {
    let Some(at) = one.superblock.bitmap_at() else { return Some(None) };
    let image = one.member.image();
    let room = one.superblock.bitmap_room(image.len() as u64).unwrap_or(0);
    let mut header = BitmapSuper::decode(&image[at.0 as usize..], room).ok()?;
    let start = at.0 as usize + SUPER_BYTES;
    let mut map = image[start..start + header.bits().div_ceil(8) as usize].to_vec();
    if header.events < one.superblock.events || header.state.contains(State::STALE) {
        bitmap::set_range(&mut map, 0..header.bits());
        header.events_cleared = one.superblock.events;
    }
    Some(Some((header, map)))
}
