//! Linux's md uses the members between two lives: all of them, some alone, or one half and then the other.
//!
//! If two halves were used apart, the truth is that of the half with more events. The members of the other half are
//! *strays*: until `--add` names one, none of its bytes may change, and the engine may not use it. If both halves have
//! the same event count, assembly must refuse while both are offered. Then one half is chosen, as a user would, and the
//! other is not offered any more. Members that were merely absent are strays too, but the engine may take them back as
//! usual.

use super::run::{Presence, Runner};
use crate::foreign::Foreign;
use crate::judge::superblock;
use crate::member::SimMember;
use crate::rows::SECTOR_BYTES;
use engine::{Array, Candidate, Clock};
use format::superblock::DeviceRole;
use std::collections::BTreeMap;
use std::ops::Range;
use world::Random;

/// One use of members by md.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Use {
    /// Bits of the members that md does not get, as far as the others suffice.
    pub without: u32,
    /// Changes between dirty and clean. Rows are written when the array becomes dirty. After an odd number of changes
    /// the array is left dirty.
    pub changes: u32,
    /// Determines the rows that are written, and their contents.
    pub seed: u64,
}

/// A member that was absent when md used others.
pub(super) struct Stray {
    /// By sector of its superblock: the bytes at that time, and what its cache could make of them if power failed. As
    /// long as one of these is there, it is still a stray.
    place: Vec<Vec<Vec<u8>>>,
    /// All its contents, if it was used apart and has not been given up.
    untouched: Option<Vec<u8>>,
    is_apart: bool,
    /// The event count of the members that were used.
    events: u64,
    /// Its half has the same event count as the other, and is not offered.
    pub(super) stays_home: bool,
}

pub(super) type Strays = BTreeMap<usize, Stray>;

/// The most rows written between two changes.
const ROWS_MAX: u64 = 6;

impl Runner<'_> {
    /// Lets md use the members between two lives.
    pub(super) fn used_by_others(&mut self, first: Use, second: Option<Use>) -> Result<(), String> {
        self.check_strays()?;
        if !self.is_redundant() {
            return Ok(());
        }
        let common = self.shared.truth.borrow().clone();
        let Some((one, events)) = self.use_some(first, &[]) else { return Ok(()) };
        self.impaired_once.set(true);
        self.tally.count("uses by md");
        self.buffer.is_overtaken.set(true);
        let truth = std::mem::replace(&mut *self.shared.truth.borrow_mut(), common);
        let other = second.and_then(|second| self.use_some(second, &one));
        let Some((other, others_events)) = other else {
            self.shared.truth.replace(truth);
            self.note_strays(&one, &[], events, false);
            return Ok(());
        };
        self.tally.count("halves used apart");
        let is_equal = events == others_events;
        if is_equal {
            self.check_refused([&one[..], &other].concat())?;
        }
        let goes_on = if is_equal { first.seed.is_multiple_of(2) } else { events > others_events };
        if goes_on {
            self.shared.truth.replace(truth);
            self.note_strays(&one, &other, events, is_equal);
        } else {
            self.note_strays(&other, &one, others_events, is_equal);
        }
        Ok(())
    }

    /// Members that md can use: present, without faults, current, and no strays.
    fn usable(&self, taken: &[usize]) -> Vec<usize> {
        let strays = self.strays.borrow();
        let is_usable = |number: &usize| {
            let faults = self.members[*number].faults();
            self.presence.borrow()[*number] == Presence::There
                && !faults.is_any()
                && !strays.contains_key(number)
                && !taken.contains(number)
                && self.superblock(*number).is_ok_and(|own| matches!(own.own_role(), DeviceRole::Active(_)))
        };
        (0..self.members.len()).filter(is_usable).collect()
    }

    /// Whether a member that md does not get is two events ahead of those that it gets, and so has ejected them. Without
    /// it, md would go on with what the engine has left behind, and the engine's half would be the later one.
    fn is_left_behind(&self, numbers: &[usize], taken: &[usize]) -> bool {
        let strays = self.strays.borrow();
        let events = |number: usize| Some(self.superblock(number).ok()?.events);
        let others = self.present().map(|(number, _)| number);
        let others = others.filter(|number| !taken.contains(number) && !strays.contains_key(number));
        let given = numbers.iter().copied().filter_map(events).max();
        given.map(|given| given + 1) < others.filter_map(events).max()
    }

    /// Lets md use some of the members that are not `taken`. Returns their numbers and their event count at the end;
    /// `None` when there are too few, or when they are not the latest.
    fn use_some(&self, how: Use, taken: &[usize]) -> Option<(Vec<usize>, u64)> {
        let seconds = self.world.clock().wall().as_secs();
        let start = |numbers: &[usize]| {
            let members: Vec<SimMember> = numbers.iter().map(|&number| self.members[number].clone()).collect();
            Foreign::assemble(&members, seconds)
        };
        let mut numbers = self.usable(taken);
        let mut array = start(&numbers)?;
        for number in numbers.clone() {
            let fewer: Vec<usize> = numbers.iter().copied().filter(|other| *other != number).collect();
            if how.without >> (number % 32) & 1 == 1
                && let Some(other) = start(&fewer)
            {
                (array, numbers) = (other, fewer);
            }
        }
        if self.is_left_behind(&numbers, taken) {
            return None;
        }
        let mut random = Random::new(how.seed);
        for change in 0..how.changes.max(1) {
            match change % 2 {
                0 => self.write_rows(&mut array, &mut random),
                _ => array.rest(),
            }
        }
        self.world.trace(|| format!("-- md used {numbers:?}, events {} then: {how:?}", array.events()));
        let events = array.events();
        Some((numbers, events))
    }

    fn write_rows(&self, array: &mut Foreign, random: &mut Random) {
        let truth = &mut *self.shared.truth.borrow_mut();
        for _ in 0..random.within(1..ROWS_MAX + 1) {
            let row = random.pick(&self.rows);
            let mut data = Vec::with_capacity(row.data.len());
            for datum in &row.data {
                let mut bytes = vec![0; SECTOR_BYTES];
                random.fill(&mut bytes);
                let written = truth.begin(datum.sector * bytes.len(), bytes.clone());
                truth.answered(written, true);
                data.push(bytes);
            }
            array.write(row, &data);
        }
    }

    /// Records strays. Members that are neither in use nor of the other half were merely absent.
    fn note_strays(&self, in_use: &[usize], apart: &[usize], events: u64, stays_home: bool) {
        let mut strays = self.strays.borrow_mut();
        for (number, member) in self.present().filter(|(number, _)| !in_use.contains(number)) {
            let is_active = self.superblock(number).is_ok_and(|own| matches!(own.own_role(), DeviceRole::Active(_)));
            if !is_active || strays.contains_key(&number) {
                continue;
            }
            let is_apart = apart.contains(&number);
            let stray = Stray {
                place: member.may_be_left(self.superblock_place(member)),
                untouched: is_apart.then(|| member.contents()),
                is_apart,
                events,
                stays_home: stays_home && is_apart,
            };
            strays.insert(number, stray);
        }
    }

    fn superblock_place(&self, member: &SimMember) -> Range<usize> {
        let bytes = member.image().len() as u64;
        let at = self.history.setup.version.place(bytes).expect("it is long enough").0 as usize;
        at..at + 4096
    }

    /// Checks that assembly refuses two halves with the same event count, and writes nothing.
    fn check_refused(&self, numbers: Vec<usize>) -> Result<(), String> {
        let candidate = |number: usize| {
            let member = self.members[number].clone();
            Candidate { name: member.name(), member }
        };
        let before: Vec<Vec<u8>> = self.members.iter().map(SimMember::contents).collect();
        let offered = numbers.iter().map(|&number| candidate(number)).collect();
        let options = self.history.setup.options(true);
        let assembled =
            self.world.run(Array::assemble(offered, options, self.pool.clone(), self.world.clock()), || false);
        match assembled.expect("the run is not stopped") {
            Err(refusal) if refusal.reason.contains("used apart") => {}
            Err(refusal) => {
                return Err(format!("halves with the same event count are refused for another reason: {refusal}"));
            }
            Ok(_) => return Err("halves with the same event count that were used apart are assembled".to_owned()),
        }
        self.world.forget_all();
        match self.members.iter().zip(&before).all(|(member, before)| member.contents() == *before) {
            true => Ok(()),
            false => Err("a refusal has written something".to_owned()),
        }
    }

    /// Changes bytes of a member silently, also of a stray.
    pub(super) fn corrupt(&self, number: usize, range: Range<u64>) {
        let member = &self.members[number];
        let is_as_left = |stray: &Stray| stray.untouched.as_ref().is_some_and(|before| *before == *member.image());
        let was_as_left = self.strays.borrow().get(&number).is_some_and(is_as_left);
        member.corrupt(range, &mut self.random.borrow_mut());
        if let Some(stray) = self.strays.borrow_mut().get_mut(&number).filter(|_| was_as_left) {
            stray.untouched = Some(member.contents());
        }
    }

    /// A stray is given up: `--add` may overwrite it. As long as it has its old superblock, it still belongs to the
    /// other half. A power cut during the addition leaves it so, and its owner does not offer it.
    pub(super) fn give_up(&self, number: usize) {
        if let Some(stray) = self.strays.borrow_mut().get_mut(&number) {
            stray.untouched = None;
        }
    }

    /// Checks that strays used apart are unchanged; forgets strays that the engine has taken in.
    pub(super) fn check_strays(&self) -> Result<(), String> {
        let mut strays = self.strays.borrow_mut();
        for (number, stray) in strays.iter() {
            let is_touched = stray.untouched.as_ref().is_some_and(|before| *before != *self.members[*number].image());
            if is_touched {
                return Err(format!("member {number} was used apart from the others and has been overwritten"));
            }
        }
        strays.retain(|&number, stray| {
            let member = &self.members[number];
            let image = member.image();
            let mut sectors = image[self.superblock_place(member)].chunks(SECTOR_BYTES).zip(&stray.place);
            sectors.all(|(found, left)| left.iter().any(|left| left == found))
        });
        Ok(())
    }

    /// Whether the judge must not show this stray to md. mdadm ignores a stray that was used apart. Older kernels would
    /// accept one that is one event behind, until the engine has written the next event.
    pub(super) fn is_out_of_sight(&self, number: usize) -> bool {
        let strays = self.strays.borrow();
        let Some(stray) = strays.get(&number) else { return false };
        let others = self.present().filter(|(other, _)| !strays.contains_key(other));
        let events = others.filter_map(|(other, member)| Some(superblock(other, &member.image()).ok()?.events));
        stray.is_apart || events.max().is_none_or(|events| events <= stray.events)
    }
}
