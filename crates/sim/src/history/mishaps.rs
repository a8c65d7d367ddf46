//! Faults: the members that they may befall, and the doubts that they leave.

use super::requests::UnderWay;
use super::run::Simulated;
use super::run::{Presence, Runner};
use super::step::Fault;
use crate::faults::{Mishap, Planned};
use crate::rows::Row;
use engine::{Clock, Operation};
use format::superblock::DeviceRole;
use format::units::Slot;
use std::ops::Range;

impl Runner<'_> {
    pub(super) fn befall(&self, array: &Simulated, member: u32, fault: Fault) {
        let Some(number) = self.victim(array, member, fault) else { return };
        let setup = &self.history.setup;
        let (member, faults) = (self.members[number].clone(), self.members[number].faults());
        let slot = Slot(number.min(setup.slots - 1) as u16); // spares are as long as the last
        let data = self.data_at..self.data_at + self.geometry().used_bytes(slot);
        let planned = |operation, after: u32, mishap| {
            faults.planned.borrow_mut().push(Planned { operation, after: after.into(), mishap });
        };
        let place = |millionths: u32, bytes: u64| {
            let unit = u64::from(setup.block_bytes);
            let start = data.start + (data.end - data.start) * u64::from(millionths) / 1_000_000 / unit * unit;
            start..(start + bytes).min(data.end)
        };
        self.tally.count("faults");
        self.shared.silent.set(self.shared.silent.get() + u32::from(fault.is_silent()));
        match fault {
            Fault::Failed => self.fail_by_hand(array, member.name()),
            Fault::Gone => faults.gone.set(true),
            Fault::Away(micros) => {
                let clock = self.world.clock();
                let until = clock.now() + setup.micros(micros.into());
                faults.gone.set(true);
                self.world.spawn(async move {
                    clock.sleep_until(until).await;
                    faults.gone.set(false);
                });
            }
            Fault::BadWrites => faults.bad_writes.borrow_mut().push(0..u64::MAX),
            Fault::BadMetadata => faults.bad_writes.borrow_mut().extend([0..data.start, data.end..u64::MAX]),
            Fault::BadReads => faults.bad_reads.borrow_mut().push(data.clone()),
            Fault::Latent(at) => faults.latent.borrow_mut().push(place(at, 4096)),
            Fault::WriteFails(after) => planned(Operation::Write, after, Mishap::Fail),
            Fault::FlushFails(after) => planned(Operation::Flush, after, Mishap::Fail),
            Fault::ReadFails(after) => planned(Operation::Read, after, Mishap::Fail),
            Fault::Hangs(micros) => {
                faults.hung_until.set((self.world.clock().now() + setup.micros(micros.into())).nanos);
            }
            Fault::Slow(micros) => faults.slower_by.set(setup.micros(micros.into()).as_nanos() as u64),
            Fault::Corrupt(at) => self.corrupt(number, place(at, 512)),
            Fault::LosesWrite(after) => planned(Operation::Write, after, Mishap::Lose),
            Fault::Misdirects(after) => {
                let by = self.random.borrow_mut().within(0..data.end - data.start);
                planned(Operation::Write, after, Mishap::Misdirect { by });
            }
        }
        self.absorb_silent_faults();
    }

    /// A member that this fault may befall. Unless the history goes beyond it, the level must survive the fault.
    pub(super) fn victim(&self, array: &Simulated, number: u32, fault: Fault) -> Option<usize> {
        let count = self.members.len();
        let numbers = (0..count).map(|index| (number as usize + index) % count);
        let mut numbers = numbers.filter(|&number| self.presence.borrow()[number] == Presence::There);
        self.shared.disturbed.set(true);
        if fault.is_silent() && self.history.setup.integrity {
            self.is_rotten.set(true);
            self.shared.lenient.set(true);
        }
        if self.history.beyond || !fault.is_borne(&self.history.setup) {
            return numbers.next();
        }
        let (impaired, seats) = (self.impaired(array), self.seats(array));
        let slot_of = |number: usize| seats.iter().find(|(other, ..)| *other == number).and_then(|(_, slot, _)| *slot);
        let may_lose = !self.has_parity() || array.status().in_agreement;
        let is_borne = |number: &usize| match slot_of(*number) {
            // A spare may be about to replace a sound member.
            None => !self.is_any_replaced.get(),
            Some(slot) => may_lose && self.survives(&|other| other == slot || impaired[other]),
        };
        let victim = numbers.find(is_borne)?;
        self.impaired_once.set(true);
        self.struck.borrow_mut()[victim] = true;
        Some(victim)
    }

    /// Whether the level survives the loss of these slots.
    pub(super) fn survives(&self, is_lost: &dyn Fn(usize) -> bool) -> bool {
        self.geometry().survives(&|slot| is_lost(slot.index()))
    }

    pub(super) fn fail_by_hand(&self, array: &Simulated, name: String) {
        let (array, shared, under_way) = (array.clone(), self.shared.clone(), UnderWay::new(&self.shared));
        self.world.spawn(async move {
            if let Err(refusal) = array.fail(&name).await
                && !shared.lenient.get()
                && !refusal.reason.contains("not a member")
            {
                shared.fail(|| format!("failing {name}: {refusal}"));
            }
            drop(under_way);
        });
    }

    /// The slots whose members cannot be relied on. A slot counts too if its replacement is impaired.
    pub(super) fn impaired(&self, array: &Simulated) -> Vec<bool> {
        let mut impaired = vec![true; self.history.setup.slots];
        let status = array.status();
        let bad: Vec<_> = status.members.iter().filter(|seat| seat.bad_bytes > 0).map(|seat| &seat.name).collect();
        let mut is_followed_badly = vec![false; self.history.setup.slots];
        for (number, slot, state) in self.seats(array) {
            let has_bad_blocks = bad.iter().any(|name| **name == self.members[number].name());
            let faults = self.members[number].faults();
            let is_late =
                self.history.setup.patience_micros.is_some() && faults.is_late(self.world.clock().now().nanos);
            let is_well = !has_bad_blocks && !faults.is_any() && !is_late && !self.struck.borrow()[number];
            match (slot, state) {
                (Some(slot), "in_sync") if is_well => impaired[slot] = false,
                (Some(slot), "replacement") if !is_well => is_followed_badly[slot] = true,
                _ => {}
            }
        }
        impaired.iter_mut().zip(is_followed_badly).for_each(|(impaired, badly)| *impaired |= badly);
        if impaired.contains(&true) {
            self.impaired_once.set(true);
        }
        impaired
    }

    /// The numbers of the array's members, with their slots and states.
    pub(super) fn seats(&self, array: &Simulated) -> Vec<(usize, Option<usize>, &'static str)> {
        let number = |name: &str| self.members.iter().position(|member| member.name() == name);
        let status = array.status();
        let seats = status.members.iter();
        let seats = seats.filter_map(|seat| Some((number(&seat.name)?, seat.slot.map(usize::from), seat.state)));
        seats.collect()
    }

    /// Taints the rows that were changed silently.
    pub(super) fn absorb_silent_faults(&self) {
        for (number, member) in self.present() {
            let faults = member.faults();
            let misread = faults.misread.take();
            // The recovery of a member whose superblock names no slot may have written these places before or after.
            // Superblocks 0.90 name the slot only at the end, and what is recovered may be read before that.
            let (silent, slots) = match self.slot_of(number) {
                Some(Slot(slot)) => (faults.silent.take(), slot..slot + 1),
                None if self.history.setup.is_old() => (misread, 0..self.history.setup.slots as u16),
                None => continue,
            };
            let silent: Vec<_> = silent.iter().map(|range| self.component(range)).collect();
            let touches = |row: &Row, slot| silent.iter().any(|range| row.touches(Slot(slot), range));
            self.taint(|row| slots.clone().any(|slot| touches(row, slot)));
        }
    }

    /// Marks rows that could not be read while a resync was pending: their parity may stay wrong.
    pub(super) fn absorb_failed_reads(&self) {
        for (number, member) in self.present() {
            let failed = member.faults().unread.take();
            let Some(slot) = self.slot_of(number).filter(|_| self.resync_owed.get() && !failed.is_empty()) else {
                continue;
            };
            let failed: Vec<_> = failed.into_iter().map(|range| self.component(&range)).collect();
            for (row, unread) in self.rows.iter().zip(&mut *self.unread.borrow_mut()) {
                *unread |= failed.iter().any(|range| row.touches(slot, range));
            }
        }
    }

    /// The slot in the member's own superblock.
    pub(super) fn slot_of(&self, number: usize) -> Option<Slot> {
        match self.superblock(number).ok()?.own_role() {
            DeviceRole::Active(slot) => Some(slot),
            _ => None,
        }
    }

    pub(super) fn component(&self, range: &Range<u64>) -> Range<u64> {
        range.start.saturating_sub(self.data_at)..range.end.saturating_sub(self.data_at)
    }

    pub(super) fn taint(&self, is_hit: impl Fn(&Row) -> bool) {
        let mut truth = self.shared.truth.borrow_mut();
        for row in self.rows.iter().filter(|row| is_hit(row)) {
            row.data.iter().for_each(|datum| truth.taint(datum.sector));
        }
    }
}
