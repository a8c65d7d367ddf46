//! One life: an array is assembled, read in full, and used step by step.

use super::run::Runner;
use super::run::Simulated;
use super::step::{Cut, Step};
use crate::judge::is_newest_among;
use crate::member::SimMember;
use crate::rows::{Datum, Row};
use crate::truth::Truth;
use engine::{Array, Candidate, Clock, Offer, Refusal, SyncSpeed};
use format::stripe_log::{Header, PAGE_BYTES, Place};
use format::superblock::{DeviceRole, Resync, Superblock};
use std::cell::Cell;
use std::future::poll_fn;
use std::ops::Range;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

/// How often the report of a scrub is saved.
const SCRUB_KEPT: Duration = Duration::from_secs(5);

/// Counts the tasks that run beside the requests, and wakes the task that waits for their ends.
#[derive(Default)]
pub(super) struct Keepers {
    at_work: Cell<usize>,
    waiting: Cell<Option<Waker>>,
}

impl Keepers {
    async fn all_end(&self) {
        poll_fn(|context| {
            self.waiting.set(Some(context.waker().clone()));
            if self.at_work.get() == 0 { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

/// Counts a task until it ends or is dropped.
struct AtWork(Rc<Keepers>);

impl AtWork {
    fn new(keepers: &Rc<Keepers>) -> Self {
        keepers.at_work.set(keepers.at_work.get() + 1);
        Self(keepers.clone())
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.at_work.set(self.0.at_work.get() - 1);
        if let Some(waiting) = self.0.waiting.take() {
            waiting.wake();
        }
    }
}

impl Runner<'_> {
    pub(super) async fn life(&self, steps: &[Step], end: &Step) {
        let Some(array) = self.assemble().await else { return };
        self.keep(&array);
        if let Some(bytes) = self.history.setup.sync_speed {
            let speed = SyncSpeed { min: bytes, max: Some(bytes) };
            array.set_sync_speed(speed).expect("the speed is not zero");
        }
        array.set_sweep_transfers(self.history.setup.sweep_transfers).expect("powers of two");
        for step in steps {
            self.step(&array, step).await;
        }
        match end {
            Step::Restart => self.stop(&array).await,
            Step::PowerCut(Cut::Mark(_)) => self.linger().await,
            Step::PowerCut(Cut::Behind(boundaries)) => {
                self.cut_at.set(self.boundaries.get() + u64::from(*boundaries));
                self.linger().await;
            }
            _ => {}
        }
    }

    /// Starts the tasks that a server runs beside the requests.
    fn keep(&self, array: &Simulated) {
        let setup = &self.history.setup;
        let keeper = || array.clone();
        if let Some(micros) = setup.safe_mode_micros {
            let (keeper, delay) = (keeper(), setup.micros(micros));
            self.run_beside(async move { keeper.mark_clean_when_idle(delay).await });
        }
        if setup.clearing.is_some() {
            let keeper = keeper();
            self.run_beside(async move { keeper.clear_bitmap_lazily().await });
        }
        if setup.kept_whole {
            let (keeper, watcher) = (keeper(), keeper());
            self.run_beside(async move { keeper.keep_whole().await });
            self.run_beside(async move { watcher.watch_scrub(SCRUB_KEPT, &|_| {}).await });
        }
        if setup.writeback {
            let (keeper, answers) = (keeper(), setup.answers);
            self.run_beside(async move { keeper.write_back(answers).await });
        }
    }

    pub(super) fn run_beside(&self, work: impl Future<Output = ()> + 'static) {
        let at_work = AtWork::new(&self.keepers);
        self.world.spawn(async move {
            work.await;
            drop(at_work);
        });
    }

    /// Lets the requests and tasks in flight go on.
    async fn linger(&self) {
        self.shared.join().await;
        self.wait(Duration::from_secs(if self.history.setup.is_slow() { 60 } else { 1 })).await;
    }

    pub(super) async fn stop(&self, array: &Simulated) {
        self.shared.join().await;
        let asked = self.shared.truth.borrow_mut().moment();
        match self.shared.expect("stop", array.stop().await) {
            Some(()) => self.shared.truth.borrow_mut().flushed(asked),
            // No later flush would succeed, so writes that were answered from memory may be lost.
            None if self.history.setup.writeback => {
                self.shared.truth.borrow_mut().interrupted();
                self.buffer.may_hold_doubts.set(true);
            }
            None => {}
        }
        self.keepers.all_end().await;
    }

    /// Assembles the members that are there, and reads the whole array. `None` when assembly is refused for a legal
    /// reason.
    pub(super) async fn assemble(&self) -> Option<Simulated> {
        let stays_home = |number| self.strays.borrow().get(&number).is_some_and(|stray| stray.stays_home);
        self.struck.replace((0..self.members.len()).map(stays_home).collect());
        self.shared.disturbed.set(false);
        let (mut forced, mut with_file) = (false, self.has_file.get() && !self.random.borrow_mut().once_in(3));
        let array = loop {
            if !self.offers_the_newest() {
                self.tally.count("lives not begun");
                return None;
            }
            let refusal = match self.assemble_with(forced, with_file).await {
                Ok(array) => break array,
                Err(refusal) => refusal,
            };
            self.world.trace(|| format!("-- not assembled: {refusal}"));
            if let Some(slot) = self.unreadable(&refusal) {
                self.struck.borrow_mut()[slot] = true; // its user would go on without it
                self.impaired_once.set(true);
                forced = false; // that was agreed to with this member: without it, an old one might take its place
            } else if with_file && refusal.member.as_ref() == Some(&self.file.name()) {
                with_file = false; // unfinished, or of another life of the array
            } else if refusal.field.as_deref() == Some("write buffer") && refusal.reason.contains("simulated fault") {
                self.tally.count("write buffers that could not be written"); // they stay for the next assembly
                return None;
            } else if !forced && self.impaired_once.get() && refusal.reason.contains("dirty and degraded") {
                forced = true;
                self.tally.count("forced");
                self.taint_doubtful_rows();
            } else {
                if !self.history.beyond && !self.lacks_absent_members() {
                    self.shared.fail(|| format!("the array cannot be assembled: {refusal}"));
                }
                self.tally.count("refusals");
                return None;
            }
        };
        if self.buffer.is_overtaken.get()
            && array.status().warnings.iter().any(|text| text.contains("so these writes are lost"))
        {
            self.buffer.lose();
            self.tally.count("write buffers that do not count");
        }
        if let Some(mut truth) = self.buffer.fulfil().filter(|_| !forced) {
            truth.taint_as(&self.shared.truth.borrow());
            self.shared.truth.replace(truth);
        }
        // What assembly reads of a member without a slot is no data.
        self.members.iter().for_each(|member| drop(member.faults().misread.take()));
        // A mishap planned in an earlier life may come before the array learns of it.
        for (struck, member) in self.struck.borrow_mut().iter_mut().zip(&self.members) {
            *struck |= member.faults().is_any();
        }
        array.set_member_timeout(self.history.setup.patience_micros.map(|micros| self.history.setup.micros(micros)));
        let agreed = array.status().in_agreement;
        self.world.trace(|| {
            let status = array.status();
            let states: Vec<_> = status.members.iter().map(|member| (&member.name, member.state)).collect();
            format!("-- assembled: {} events {} agreed {agreed} {states:?}", status.state, status.events)
        });
        self.resync_owed.set(!agreed);
        if agreed && !forced {
            self.unread.borrow_mut().fill(false);
        }
        // Faults of an earlier life may be more than this one survives, if a recovery had not reached stable storage.
        let impaired = self.impaired(&array);
        let is_beyond = !self.survives(&|slot| impaired[slot]);
        let strained = forced || is_beyond || self.has_parity() && !agreed && impaired.contains(&true);
        self.shared.lenient.set(self.history.beyond || strained || self.is_rotten.get());
        self.shared.failed.set(false);
        let is_given_up = array.status().warnings.iter().any(|text| text.contains("log cannot be used"));
        let log = match array.status().consistency_policy {
            "ppl" => Some("lives with a partial parity log"),
            "log" => Some("lives with a stripe log"),
            "journal" => {
                self.tally.count("lives with a write journal");
                None // a replay writes whole rows
            }
            _ if is_given_up => Some("lives whose log was given up, after a part of its replay"),
            _ => None,
        };
        if let Some(lives) = log {
            self.tally.count(lives);
            self.taint_lost_slots(&impaired);
        }
        let may_show_doubts = self.buffer.may_hold_doubts.take();
        if may_show_doubts {
            self.shared.unflushed.set(true);
        }
        let found = self.look(&array).await;
        let is_settled = agreed && !forced && !may_show_doubts;
        if let Some(found) = found.filter(|_| is_settled && (self.is_redundant() || self.after_power_cut)) {
            self.shared.truth.borrow_mut().pin(&found);
        }
        Some(array)
    }

    /// Stale members alone cannot tell that the array went on without them.
    pub(super) fn offers_the_newest(&self) -> bool {
        let struck = self.struck.borrow();
        let (images, offered): (Vec<_>, Vec<_>) =
            self.present().map(|(slot, member)| (member.image(), !struck[slot] && !member.faults().gone.get())).unzip();
        let images: Vec<&[u8]> = images.iter().map(|image| &image[..]).collect();
        is_newest_among(&images, &offered)
    }

    /// Whether the offered members are too few because others are away through faults of an earlier life. The level
    /// survived these faults then, but a recovery since has been lost, as it had not reached stable storage.
    fn lacks_absent_members(&self) -> bool {
        let struck = self.struck.borrow();
        let (offered, away): (Vec<_>, Vec<_>) =
            self.present().partition(|(number, member)| !struck[*number] && !member.faults().gone.get());
        let current = offered.iter().filter_map(|(number, _)| {
            let superblock = self.superblock(*number).ok()?;
            let is_current = superblock.recovery_offset.is_none() && !superblock.replacement;
            match superblock.own_role() {
                DeviceRole::Active(slot) if is_current => Some(slot.index()),
                _ => None,
            }
        });
        let current: Vec<usize> = current.collect();
        !away.is_empty() && !self.survives(&|slot| !current.contains(&slot))
    }

    /// The offered member that could not be read, if that is the reason of the refusal.
    pub(super) fn unreadable(&self, refusal: &Refusal) -> Option<usize> {
        let slot = self.members.iter().position(|member| Some(member.name()) == refusal.member)?;
        let reasons = ["simulated fault", "cannot be read, also after"];
        let is_read_error = reasons.iter().any(|reason| refusal.reason.contains(reason));
        (is_read_error && !self.struck.borrow()[slot]).then_some(slot)
    }

    /// The write hole: rows in doubt may hold anything from now on. So may rows that could not be read while a resync
    /// was pending, where later writes only updated wrong parity.
    pub(super) fn taint_doubtful_rows(&self) {
        let mut truth = self.shared.truth.borrow_mut();
        for (row, unread) in self.rows.iter().zip(&*self.unread.borrow()) {
            if *unread || row.data.iter().any(|datum| !truth.is_certain(datum.sector)) {
                row.data.iter().for_each(|datum| truth.taint(datum.sector));
            }
        }
    }

    /// With a log of partial parity, parity gives anything for a block that was lost, and that has a write in doubt. But
    /// not in rows without a write in doubt: what was written there of the block was as before, and so was parity.
    fn taint_lost_writes(&self, is_lost: impl Fn(&Truth, &Row, &Datum) -> bool) {
        let mut truth = self.shared.truth.borrow_mut();
        let block_bytes = self.history.setup.least_write_bytes();
        for row in &self.rows {
            if row.data.iter().all(|datum| truth.is_certain(datum.sector)) {
                continue;
            }
            for datum in &row.data {
                if is_lost(&truth, row, datum) && !truth.is_block_certain(datum.sector, block_bytes) {
                    truth.taint(datum.sector);
                }
            }
        }
    }

    /// As [`Runner::taint_lost_writes`], for what these slots held.
    fn taint_lost_slots(&self, impaired: &[bool]) {
        self.taint_lost_writes(|_, _, datum| impaired[datum.copies[0].0.index()]);
    }

    /// As [`Runner::taint_lost_writes`], for what an assembly could not read and wrote as parity gave it, whatever became of
    /// that assembly. If no other chunk of the row has a write in doubt, parity gives what is legal.
    pub(super) fn taint_what_a_replay_gave(&self) {
        for (number, member) in self.members.iter().enumerate() {
            let faults = member.faults();
            faults.unread_by_replay.take();
            let given = faults.given_by_replay.take();
            let Some(slot) = self.slot_of(number).filter(|_| !given.is_empty()) else { continue };
            let given: Vec<_> = given.iter().map(|range| self.component(range)).collect();
            self.taint_lost_writes(|truth, row, datum| {
                let mut others = row.data.iter().filter(|other| other.sector != datum.sector);
                others.any(|other| !truth.is_certain(other.sector))
                    && given.iter().any(|range| datum.touches(slot, range))
            });
        }
    }

    /// As [`Runner::taint_lost_slots`], where power went amid an assembly whose replay the superblocks tell of already: they
    /// call the array clean, and name its log.
    pub(super) fn taint_what_a_cut_assembly_replayed(&self) {
        let Some(offered) = self.assembled_of.take().filter(|_| self.has_parity()) else { return };
        let found = offered.into_iter().filter_map(|number| Some((number, self.superblock(number).ok()?)));
        let found: Vec<_> = found.collect();
        let newest = found.iter().map(|(_, own)| own.events).max();
        let mut freshest = found.iter().filter(|(_, own)| Some(own.events) == newest);
        if !freshest.any(|(number, own)| own.resync == Resync::Clean && self.has_log(*number, own)) {
            return;
        }
        let mut impaired = vec![true; self.history.setup.slots];
        for (number, own) in &found {
            let is_current = Some(own.events + 1) >= newest && own.recovery_offset.is_none() && !own.replacement;
            match own.own_role() {
                DeviceRole::Active(slot) if is_current && !self.members[*number].faults().is_any() => {
                    impaired[slot.index()] = false;
                }
                _ => {}
            }
        }
        self.taint_lost_slots(&impaired);
    }

    /// An assembly begins: if it may replay a log, what it cannot read is noted. A write journal holds whole chunks, and
    /// its replay needs nothing of parity.
    fn await_replay(&self) {
        let is_due = |number| self.superblock(number).is_ok_and(|own| self.has_log(number, &own));
        let is_due = self.has_parity() && self.journal.is_none() && self.present().any(|(number, _)| is_due(number));
        for member in &self.members {
            member.faults().unread_by_replay.replace(is_due.then(Vec::new));
        }
    }

    /// Whether a member holds a partial parity log, or the header of this array's stripe log.
    fn has_log(&self, number: usize, own: &Superblock) -> bool {
        if own.ppl.is_some() {
            return true;
        }
        let image = self.members[number].image();
        let page = Place::start(own).ok().and_then(|at| image.get(at.0 as usize..at.0 as usize + PAGE_BYTES));
        let header = page.and_then(|page| Header::decode(page).ok().flatten());
        header.is_some_and(|header| header.set_uuid == own.set_uuid)
    }

    pub(super) async fn assemble_with(&self, force: bool, with_file: bool) -> Result<Simulated, Refusal> {
        let struck = self.struck.borrow().clone();
        let offered = self.present().filter(|(slot, member)| !struck[*slot] && !member.faults().gone.get());
        let candidate = |member: &SimMember| Candidate { name: member.name(), member: member.clone() };
        let (numbers, members): (Vec<_>, Vec<_>) = offered.unzip();
        self.assembled_of.replace(Some(numbers));
        let members = members.into_iter().chain(&self.journal).map(candidate).collect();
        let offer = Offer {
            bitmap: with_file.then(|| candidate(&self.file)),
            write_buffer: self.is_buffered().then(|| self.buffer.lend()),
            ..Offer::of(members)
        };
        let options = self.history.setup.options(force);
        self.await_replay();
        let assembled = Array::assemble_offer(offer, options, self.pool.clone(), self.world.clock()).await;
        self.assembled_of.take();
        self.taint_what_a_replay_gave();
        assembled
    }

    /// Reads the whole array and checks it.
    pub(super) async fn look(&self, array: &Simulated) -> Option<Vec<u8>> {
        let asked = self.shared.truth.borrow_mut().start_reading();
        let read = array.read(0, array.pool().take(array.bytes() as usize)).await;
        let found = self.shared.expect("reading the whole array", read);
        self.absorb_silent_faults();
        if let Some(found) = &found {
            self.shared.check(0, found, asked);
        }
        self.shared.truth.borrow_mut().stop_reading();
        found.map(|found| found.to_vec())
    }

    pub(super) async fn step(&self, array: &Simulated, step: &Step) {
        self.world.trace(|| format!("-- {step:?}"));
        match *step {
            Step::Write { place, bytes, align, stable } => {
                let range = self.range(place, bytes, align);
                let mut data = vec![0; range.len()];
                self.random.borrow_mut().fill(&mut data);
                self.write(array, range.start, data, stable);
            }
            Step::Burst { place, bytes, writes } => {
                let first = self.range(place, bytes, bytes);
                let end = self.shared.truth.borrow().bytes();
                for at in (first.start..end).step_by(bytes as usize).take(writes as usize) {
                    let mut data = vec![0; (bytes as usize).min(end - at)];
                    self.random.borrow_mut().fill(&mut data);
                    self.write(array, at, data, false);
                }
            }
            Step::Zero { place, bytes, means } => {
                // Zeroing is several writes, so its order relative to concurrent writes is not defined.
                self.shared.join().await;
                self.zero(array, self.range(place, bytes, 1), means);
                self.shared.join().await;
            }
            Step::Read { place, bytes } => self.read_on(array, self.range(place, bytes, 1), 1),
            Step::ReadOn { place, bytes, reads } => self.read_on(array, self.range(place, bytes, bytes), reads),
            Step::Flush => self.flush(array),
            Step::Wait { micros } => self.wait(self.history.setup.micros(micros.into())).await,
            Step::Rest { seconds } => self.wait(Duration::from_secs(seconds.into())).await,
            Step::Settle => {
                self.shared.join().await;
                self.pin_if_agreed(array).await;
            }
            Step::Resync => self.resync(array),
            Step::Befall { member, fault } => self.befall(array, member, fault),
            Step::Heal { member } => {
                let slot = member as usize % self.members.len();
                self.members[slot].faults().heal();
            }
            Step::Join { member, way } => self.join_array(array, member, way),
            Step::Replace { member } => self.replace(array, member),
            Step::ChangeBitmap(change) => self.change_bitmap(array, change),
            Step::ChangePolicy(policy) => self.change_policy(array, policy),
            Step::ReadOnly { micros } => self.make_read_only(array, self.history.setup.micros(micros.into())),
            Step::LoseFile => self.file.faults().gone.set(true),
            Step::Remove { member } => {
                let slot = member as usize % self.members.len();
                drop(array.remove(&self.members[slot].name()).await); // only a failed member is removed
            }
            Step::Others { .. } => {} // happens between two lives
            Step::Restart | Step::Kill | Step::PowerCut(_) => unreachable!("the end of a life"),
        }
    }

    pub(super) async fn wait(&self, time: Duration) {
        let clock = self.world.clock();
        clock.sleep_until(clock.now() + time).await;
    }

    /// Pins the contents if copies and parity agree, so that what is read now cannot change.
    pub(super) async fn pin_if_agreed(&self, array: &Simulated) {
        if self.shared.unflushed.take() {
            self.flush(array);
            self.shared.join().await;
        }
        let is_sure = !self.shared.failed.get() && !self.shared.lenient.get() && self.is_redundant();
        let status = array.status();
        if is_sure
            && status.in_agreement
            && status.broken.is_none()
            && let Some(found) = self.look(array).await
        {
            self.shared.truth.borrow_mut().pin(&found);
        }
    }

    pub(super) fn range(&self, place: u32, bytes: u32, align: u32) -> Range<usize> {
        let (length, align) = (self.shared.truth.borrow().bytes(), align as usize);
        let start = (place as usize * length / 1_000_000 / align * align).min(length - 1);
        start..(start + (bytes as usize).next_multiple_of(align)).min(length)
    }
}
