//! Changes of an array in use: members added and taken back, bitmaps added and removed.
//!
//! Each may be refused; what it was then is only traced. Whether a refusal was
//! right is not asked here: the recovery at the end shows what was left undone.

use super::requests::UnderWay;
use super::run::Simulated;
use super::run::{Presence, Runner};
use engine::{BitmapPolicy, Candidate};

/// How a member comes to an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// As mdadm's `--add`: whatever it holds is forgotten.
    Added,
    /// As mdadm's `--re-add`: it lacks what the bitmap names.
    Returned,
}

/// How an array comes to a write-intent bitmap, or loses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BitmapChange {
    /// On the members, with chunks of so many bytes.
    OnMembers(u64),
    /// In the file.
    InFile(u64),
    /// There is none any more.
    Removed,
}

impl Runner<'_> {
    /// A member that does not take part comes to the array, if there is one.
    pub(super) fn join_array(&self, array: &Simulated, number: u32, way: Way) {
        let Some(number) = self.outsider(array, number, way) else { return };
        self.absorb_silent_faults(); // as long as its superblock says whose place it had: what it held was copied on
        if way == Way::Added {
            self.give_up(number);
            self.presence.borrow_mut()[number] = Presence::Coming;
        }
        let (array, world, under_way) = (array.clone(), self.world.clone(), UnderWay::new(&self.shared));
        let (presence, struck, tally) = (self.presence.clone(), self.struck.clone(), self.tally.clone());
        let (name, member) = (self.members[number].name(), self.members[number].clone());
        let uuid = self.random.borrow_mut().uuid();
        self.world.spawn(async move {
            drop(array.remove(&name).await); // one that failed has to be let go of first
            let candidate = Candidate { name, member };
            let joined = match way {
                Way::Added => array.add(candidate, uuid, true).await,
                Way::Returned => array.re_add(candidate).await,
            };
            world.trace(|| format!("-- {way:?} {number}: {joined:?}"));
            if joined.is_ok() {
                presence.borrow_mut()[number] = Presence::There;
                struck.borrow_mut()[number] = false; // the array knows it as it is
                tally.count(if way == Way::Added { "added" } else { "taken back" });
            }
            drop(under_way);
        });
    }

    /// A member in use, the one of this number of those that are, is replaced, if there is another for it.
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
            return; // one that is well would leave for it
        }
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

    /// A member without a seat, or with one that it lost.
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

    pub(super) fn change_bitmap(&self, array: &Simulated, change: BitmapChange) {
        let (array, world, under_way) = (array.clone(), self.world.clone(), UnderWay::new(&self.shared));
        let (file, tally) = (self.file.clone(), self.tally.clone());
        let policy = BitmapPolicy { clearing: self.history.setup.clearing.unwrap_or_default(), ..Default::default() };
        if matches!(change, BitmapChange::InFile(_)) {
            self.has_file.set(true); // in parts at least
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
