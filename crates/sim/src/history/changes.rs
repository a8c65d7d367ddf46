//! Changes to an array in use: members that are added and re-added, bitmaps that are added and removed.
//!
//! Each change may be refused, which is only traced. Whether the refusal was right is not judged here: the recovery at
//! the end of the history shows what is missing.

use super::requests::UnderWay;
use super::run::Simulated;
use super::run::{Presence, Runner};
use crate::member::SimMember;
use engine::{BitmapPolicy, Candidate, Clock, ConsistencyPolicy};
use std::time::Duration;

/// How a member joins an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// As mdadm's `--add`: its contents are discarded.
    Added,
    /// As mdadm's `--re-add`: it is updated where the bitmap is set.
    Returned,
}

/// A change of the write-intent bitmap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BitmapChange {
    /// A bitmap on the members with chunks of this size.
    OnMembers(u64),
    /// A bitmap in the file with chunks of this size.
    InFile(u64),
    /// The bitmap is removed.
    Removed,
}

impl Runner<'_> {
    /// A member outside the array joins it, if there is one.
    pub(super) fn join_array(&self, array: &Simulated, number: u32, way: Way) {
        let Some(number) = self.outsider(array, number, way) else { return };
        self.absorb_silent_faults(); // while its superblock still names its slot, where wrong bytes may have been copied from it
        if way == Way::Added {
            self.give_up(number);
            self.presence.borrow_mut()[number] = Presence::Coming;
        }
        let (array, world, under_way) = (array.clone(), self.world.clone(), UnderWay::new(&self.shared));
        let (presence, struck, tally) = (self.presence.clone(), self.struck.clone(), self.tally.clone());
        let (name, member) = (self.members[number].name(), self.members[number].clone());
        let uuid = self.random.borrow_mut().uuid();
        self.world.spawn(async move {
            drop(array.remove(&name).await); // a failed member has to be removed first
            let candidate = Candidate { name, member };
            let joined = match way {
                Way::Added => array.add(candidate, uuid, true).await,
                Way::Returned => array.re_add(candidate).await,
            };
            world.trace(|| format!("-- {way:?} {number}: {joined:?}"));
            if joined.is_ok() {
                presence.borrow_mut()[number] = Presence::There;
                struck.borrow_mut()[number] = false; // the array has learned what happened to the member
                tally.count(if way == Way::Added { "added" } else { "re-added" });
            }
            drop(under_way);
        });
    }

    /// Replaces the member in use with this number, or the next one, if there is a spare or a member outside.
    pub(super) fn replace(&self, array: &Simulated, number: u32) {
        let count = self.members.len();
        let seats = self.seats(array);
        let in_state = |state: &'static str| {
            let seats = &seats;
            let is_it = move |number: &usize| seats.iter().any(|(other, _, own)| other == number && *own == state);
            (0..count).map(move |index| (number as usize + index) % count).find(is_it)
        };
        let Some(old) = in_state("in_sync").map(|old| self.members[old].name()) else { return };
        let spare = in_state("spare");
        let Some(new) = spare.or_else(|| self.outsider(array, number, Way::Added)) else { return };
        if self.members[new].faults().is_any() && !self.history.beyond {
            return; // otherwise a sound member would leave for a faulty one
        }
        self.absorb_silent_faults(); // as in a join: the new member may have had another slot
        self.is_any_replaced.set(true);
        if spare.is_none() {
            self.give_up(new);
            self.presence.borrow_mut()[new] = Presence::Coming;
        }
        let (array, world, under_way) = (array.clone(), self.world.clone(), UnderWay::new(&self.shared));
        let (presence, struck, tally) = (self.presence.clone(), self.struck.clone(), self.tally.clone());
        let (name, member) = (self.members[new].name(), self.members[new].clone());
        let uuid = self.random.borrow_mut().uuid();
        self.world.spawn(async move {
            let replaced = match spare {
                Some(_) => array.replace_with_spare(&old, &name).await,
                None => {
                    drop(array.remove(&name).await);
                    array.replace(&old, Candidate { name: name.clone(), member }, uuid, true).await
                }
            };
            world.trace(|| format!("-- {old} is replaced by {name}: {replaced:?}"));
            if replaced.is_ok() {
                presence.borrow_mut()[new] = Presence::There;
                struck.borrow_mut()[new] = false;
                tally.count("replacements begun");
            }
            drop(under_way);
        });
    }

    /// A member without a slot, or a failed one.
    fn outsider(&self, array: &Simulated, number: u32, way: Way) -> Option<usize> {
        let (count, seats, presence) = (self.members.len(), self.seats(array), self.presence.borrow());
        let is_outside = |number: &usize| match seats.iter().find(|(other, ..)| other == number) {
            Some((.., state)) => *state == "faulty",
            None => true,
        };
        let may_come = |number: &usize| match presence[*number] {
            Presence::There => true,
            Presence::Never => way == Way::Added,
            Presence::Coming => false,
        };
        let mut numbers = (0..count).map(|index| (number as usize + index) % count);
        numbers.find(|number| may_come(number) && is_outside(number))
    }

    pub(super) fn change_policy(&self, array: &Simulated, policy: ConsistencyPolicy) {
        let (array, world, under_way) = (array.clone(), self.world.clone(), UnderWay::new(&self.shared));
        let tally = self.tally.clone();
        self.world.spawn(async move {
            let changed = array.set_consistency(policy).await;
            world.trace(|| format!("-- {policy:?}: {changed:?}"));
            if changed.is_ok() {
                tally.count("policies set");
            }
            drop(under_way);
        });
    }

    /// Makes the array read-only for a while. Then what was answered is settled, the array is clean, and nothing is written
    /// to data.
    pub(super) fn make_read_only(&self, array: &Simulated, time: Duration) {
        let (array, world, under_way) = (array.clone(), self.world.clone(), UnderWay::new(&self.shared));
        let (shared, tally, members, data_at) =
            (self.shared.clone(), self.tally.clone(), self.members.clone(), self.data_at as usize);
        let bytes = self.history.setup.component_bytes.iter().copied().min().unwrap_or(0) as usize;
        // Members with faults may have writes of their own that come late.
        let data = move || {
            let is_faultless = |member: &SimMember| !member.faults().is_any();
            let data = |member: &SimMember| {
                let data = || member.image().get(data_at..data_at + bytes).map(<[u8]>::to_vec);
                is_faultless(member).then(data)
            };
            members.iter().map(data).collect::<Vec<_>>()
        };
        self.world.spawn(async move {
            if array.is_read_only() {
                return drop(under_way); // the other one ends it
            }
            shared.is_paused.set(true);
            let made = array.make_read_only().await;
            world.trace(|| format!("-- read-only: {made:?}"));
            if made.is_ok() && array.status().made_read_only {
                tally.count("made read-only");
                let now = shared.truth.borrow_mut().moment();
                shared.truth.borrow_mut().flushed(now);
                let status = array.status();
                let is_clean = status.state.starts_with("clean") || !status.in_agreement;
                if !is_clean && status.broken.is_none() {
                    shared.fail(|| format!("read-only, and {}", status.state));
                }
                let (before, silent) = (data(), shared.silent.get());
                let clock = world.clock();
                clock.sleep_until(clock.now() + time).await;
                let changed = before.iter().zip(data()).position(|(before, after)| {
                    before.as_ref().zip(after.as_ref()).is_some_and(|(before, after)| before != after)
                });
                if let Some(number) = changed.filter(|_| silent == shared.silent.get()) {
                    shared.fail(|| format!("data of member {number} changed while the array was read-only"));
                }
                array.make_writable().unwrap_or_else(|refusal| shared.fail(|| refusal.to_string()));
            }
            shared.is_paused.set(false);
            drop(under_way);
        });
    }

    pub(super) fn change_bitmap(&self, array: &Simulated, change: BitmapChange) {
        let (array, world, under_way) = (array.clone(), self.world.clone(), UnderWay::new(&self.shared));
        let (file, tally) = (self.file.clone(), self.tally.clone());
        let policy = BitmapPolicy { clearing: self.history.setup.clearing.unwrap_or_default(), ..Default::default() };
        if matches!(change, BitmapChange::InFile(_)) {
            self.has_file.set(true); // the file may have been written to, even if the change fails
        }
        self.world.spawn(async move {
            let changed = match change {
                BitmapChange::OnMembers(bytes) => array.add_bitmap(Some(bytes), policy).await,
                BitmapChange::InFile(bytes) => {
                    let file = Candidate { name: file.name(), member: file };
                    array.add_bitmap_file(file, Some(bytes), policy).await
                }
                BitmapChange::Removed => array.remove_bitmap().await,
            };
            world.trace(|| format!("-- {change:?}: {changed:?}"));
            if changed.is_ok() {
                tally.count("bitmaps changed");
            }
            drop(under_way);
        });
    }
}
