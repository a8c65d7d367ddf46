//! Arrays that grow while they are written, read, swept, and marked dirty and clean. Power is cut at every write and
//! flush from the beginning of the growth to some time after its end; or a member fails at each of these moments.
//!
//! No reader may ever see illegal data. Flushed data must be there, in the new space too. The array must have its old
//! size or its new one, and the new one once the growth is over. After a resync copies and parity agree.

use crate::grow::{
    BITMAP, Change, RAID1, RAID5, SETUPS, Setup, Simulated, after_power_loss, agrees_after_a_resync, assemble, blank,
    candidates, change, make,
};
use engine::{Array, AssembleOptions, Clock, Durability, Pool, WriteBack};
use format::geometry::Level;
use futures_util::future::{join, join_all};
use mdspace_sim::truth::{Look, Truth};
use mdspace_sim::{Random, SimMember, World};
use std::cell::{Cell, OnceCell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

const REQUEST_BYTES_MAX: u64 = 9000;

/// Writes and flushes after the end of a growth that are cut as well.
const BEHIND: u64 = 10;

/// A part of the array, and its legal contents.
#[derive(Clone)]
struct Part {
    from: u64,
    truth: Rc<RefCell<Truth>>,
}

impl Part {
    fn new(from: u64, contents: &[u8]) -> Self {
        let mut truth = Truth::new(contents.len() as u64);
        let there = truth.begin(0, contents.to_vec());
        truth.answered(there, true);
        Self { from, truth: Rc::new(RefCell::new(truth)) }
    }

    /// A random range of the part.
    fn any(&self, random: &mut Random) -> Range<u64> {
        let length = self.truth.borrow().bytes() as u64;
        let at = random.within(0..length);
        at..at + random.within(1..REQUEST_BYTES_MAX.min(length - at) + 1)
    }

    /// Checks this part in what was read of the whole array.
    fn check(&self, found: &[u8], context: &str) {
        let truth = self.truth.borrow();
        let part = &found[self.from as usize..self.from as usize + truth.bytes()];
        truth.check(0, part, Look::Members).unwrap_or_else(|wrong| panic!("{context}: from {}: {wrong}", self.from));
    }
}

/// What grows, and how.
#[derive(Debug, Clone, Copy)]
struct Case {
    setup: Setup,
    what: Change,
    /// Whether writes are answered from memory.
    is_back: bool,
}

/// An array in use.
struct Life {
    case: Case,
    world: World,
    boundaries: Rc<Cell<u64>>,
    members: Vec<SimMember>,
    old: Part,
    /// Set once the growth is over and the new space has been read.
    new: OnceCell<Part>,
    /// The numbers of writes and flushes when the growth began and when it was over.
    growth: Cell<(u64, u64)>,
    /// The number of requests that failed.
    errors: Cell<u64>,
}

impl Life {
    /// Prepares an array. It behaves the same in every run, up to the fault.
    fn prepare(case: Case) -> Self {
        let mut random = Random::new(1);
        let (world, boundaries) = (World::new(random.number()), Rc::<Cell<u64>>::default());
        let members = blank(&case.setup, &world, &boundaries);
        let mut data = Vec::new();
        world.run(make(&case.setup, &members, &mut data, &mut random, &world), || false);
        boundaries.set(0);
        let (new, growth, errors) = Default::default();
        Self { case, world, boundaries, members, old: Part::new(0, &data), new, growth, errors }
    }

    /// Uses the array to the end, or until the power goes.
    fn run(&self, happens: impl Fn(&Self) -> bool) -> bool {
        self.world.run(self.use_it(), || happens(self)).is_some()
    }

    async fn use_it(&self) {
        let array = assemble(&self.members, &self.world).await;
        let (keeper, cleaner, clearer) = (array.clone(), array.clone(), array.clone());
        self.world.spawn(async move { keeper.keep_whole().await });
        self.world.spawn(async move { cleaner.mark_clean_when_idle(Duration::from_micros(300)).await });
        self.world.spawn(async move { clearer.clear_bitmap_lazily().await });
        if self.case.is_back {
            let answerer = array.clone();
            self.world.spawn(async move { answerer.write_back(WriteBack::All).await });
        }
        let writers = (2..5).map(|seed| self.write(&array, &self.old, seed));
        let readers = (5..7).map(|seed| self.read(&array, seed));
        join(join(join_all(writers), join_all(readers)), self.grow(&array)).await;
        let stopped = array.stop().await;
        assert!(stopped.is_ok() || self.errors.get() > 0, "{:?}: {stopped:?}", self.case);
    }

    async fn pause(&self, random: &mut Random, micros: Range<u64>) {
        let clock = self.world.clock();
        clock.sleep_until(clock.now() + Duration::from_micros(random.within(micros))).await;
    }

    async fn write(&self, array: &Simulated, part: &Part, seed: u64) {
        let mut random = Random::new(seed);
        for _ in 0..5 {
            self.pause(&mut random, 0..500).await;
            let range = part.any(&mut random);
            let mut bytes = vec![0; (range.end - range.start) as usize];
            random.fill(&mut bytes);
            let durability = if random.once_in(2) { Durability::Stable } else { Durability::Ordinary };
            let block = array.pool().copy_of(&bytes);
            let id = part.truth.borrow_mut().begin(range.start as usize, bytes);
            let written = array.write(part.from + range.start, block, durability).await;
            match written {
                Ok(()) => part.truth.borrow_mut().answered(id, durability == Durability::Stable),
                Err(_) => {
                    part.truth.borrow_mut().failed(id);
                    self.errors.set(self.errors.get() + 1);
                }
            }
            let since = part.truth.borrow_mut().moment();
            if random.once_in(2) && array.flush().await.is_ok() {
                part.truth.borrow_mut().flushed(since);
            }
        }
    }

    async fn read(&self, array: &Simulated, seed: u64) {
        let mut random = Random::new(seed);
        for _ in 0..15 {
            self.pause(&mut random, 0..200).await;
            let range = self.old.any(&mut random);
            let asked = self.old.truth.borrow_mut().start_reading();
            let read = array.read(range.start, array.pool().take((range.end - range.start) as usize)).await;
            let mut truth = self.old.truth.borrow_mut();
            match read {
                Ok(found) => {
                    let checked = truth.check(range.start as usize, &found, Look::Reader(asked));
                    checked.unwrap_or_else(|wrong| {
                        panic!("{:?}: a reader finds what it may not: {wrong}", self.case.setup)
                    });
                }
                Err(_) => self.errors.set(self.errors.get() + 1),
            }
            truth.stop_reading();
        }
    }

    /// Grows the array, then uses the new space.
    async fn grow(&self, array: &Simulated) {
        let mut random = Random::new(7);
        self.pause(&mut random, 500..800).await;
        self.growth.set((self.boundaries.get(), u64::MAX));
        let old_bytes = array.bytes();
        let has_failed = |member: &SimMember| member.faults().gone.get();
        if let Err(error) = change(array, self.case.what).await {
            assert!(self.members.iter().any(has_failed), "{:?}: {error}", self.case.setup);
            return;
        }
        self.growth.set((self.growth.get().0, self.boundaries.get()));
        match self.case.what {
            Change::Copies(copies) => assert_eq!(array.status().raid_disks, copies),
            Change::Component => {
                assert_eq!(array.bytes(), 2 * old_bytes, "{:?}", self.case.setup);
                let read = array.read(old_bytes, array.pool().take(old_bytes as usize)).await;
                let Ok(found) = read else { return self.errors.set(self.errors.get() + 1) };
                let new = self.new.get_or_init(|| Part::new(old_bytes, &found));
                join_all((8..10).map(|seed| self.write(array, new, seed))).await;
            }
            Change::Shrink => unreachable!("one that is used never shrinks"),
        }
    }

    /// Records that the array is no longer used.
    fn end(&self, how: impl Fn(&mut Truth)) {
        how(&mut self.old.truth.borrow_mut());
        if let Some(new) = self.new.get() {
            how(&mut new.truth.borrow_mut());
        }
    }

    /// Checks the array that is left. If it had to be forced, as parity may be wrong, only the data before the growth
    /// is guaranteed.
    async fn look(&self, array: &Simulated, forced: bool, context: &str) {
        let old_bytes = self.old.truth.borrow().bytes() as u64;
        let found = array.read(0, array.pool().take(array.bytes() as usize)).await.expect("its members are there");
        self.old.check(&found, context);
        let is_grown = self.growth.get().1 != u64::MAX && self.growth.get().0 != 0;
        match self.case.what {
            Change::Component => {
                assert!([old_bytes, 2 * old_bytes].contains(&array.bytes()), "{context}: {} bytes", array.bytes());
                assert!(!is_grown || array.bytes() > old_bytes, "{context}: it had grown, and has not");
            }
            Change::Copies(copies) => {
                let slots = array.status().raid_disks;
                assert!([self.case.setup.slots as u16, copies].contains(&slots), "{context}: {slots} slots");
                assert!(!is_grown || slots == copies, "{context}: it had {copies} slots, and has not");
            }
            Change::Shrink => unreachable!("one that is used never shrinks"),
        }
        if forced {
            return;
        }
        if let Some(new) = self.new.get() {
            new.check(&found, context);
        }
        // New space that was never read may hold anything.
        let known = if self.new.get().is_some() { found.len() } else { old_bytes as usize };
        agrees_after_a_resync(array, &found[..known], context).await;
        array.stop().await.expect("nothing fails");
    }
}

const COPIES: [(Setup, u16); 3] = [
    (RAID1, 3),
    (Setup { bitmap: BITMAP, ..RAID1 }, 4),
    (Setup { slots: 4, missing: &[0], bitmap: BITMAP, ..RAID1 }, 3),
];

fn cases() -> impl Iterator<Item = Case> {
    let components = SETUPS.into_iter().map(|setup| (setup, Change::Component));
    let changes = components.chain(COPIES.into_iter().map(|(setup, copies)| (setup, Change::Copies(copies))));
    let back = Case { setup: Setup { bitmap: BITMAP, ..RAID5 }, what: Change::Component, is_back: true };
    changes.map(|(setup, what)| Case { setup, what, is_back: false }).chain([back])
}

/// The moments at which a fault may come during a growth.
fn moments(case: Case) -> Range<u64> {
    let life = Life::prepare(case);
    assert!(life.run(|_| false), "{case:?}: it ends by itself");
    let (begun, over) = life.growth.get();
    assert!(begun > 0 && over < u64::MAX && life.errors.get() == 0, "{case:?}: grown amid requests");
    assert!(life.boundaries.get() > over + BEHIND, "{case:?}: and used afterwards");
    begun..over + BEHIND
}

#[test]
fn an_array_that_grows_in_use_keeps_what_was_flushed_whenever_the_power_goes() {
    for case in cases() {
        for cut in moments(case) {
            let life = Life::prepare(case);
            assert!(!life.run(|life| life.boundaries.get() >= cut), "the power goes");
            assert_eq!(life.errors.get(), 0, "{case:?} cut {cut}: requests failed");
            let mut random = Random::new(cut);
            let (world, left, _) = after_power_loss(&life.members, &mut random);
            let context = format!("{case:?} cut {cut}");
            let look = async {
                let array = assemble(&left, &world).await;
                assert_eq!(usize::from(array.status().in_sync), left.len(), "{context}: not all members take part");
                life.end(Truth::interrupted);
                life.look(&array, false, &context).await;
            };
            world.run(look, || false).expect("not stopped");
        }
    }
}

#[test]
fn an_array_that_grows_in_use_keeps_all_that_was_answered_whenever_a_member_fails() {
    for case in cases() {
        for moment in moments(case) {
            let life = Life::prepare(case);
            let victim = &life.members[moment as usize % life.members.len()];
            let fail = |life: &Life| {
                victim.faults().gone.set(life.boundaries.get() >= moment);
                false
            };
            assert!(life.run(fail), "it ends by itself");
            let context = format!("{case:?} moment {moment}");
            // New space has no parity in agreement, which cannot stand in for a member: then writes end.
            let is_grown = life.growth.get().1 < u64::MAX;
            let may_break = is_grown && !matches!(case.setup.level, Level::Raid1 | Level::Raid10);
            assert!(may_break || life.errors.get() == 0, "{context}: requests failed");
            life.members.iter().for_each(|member| member.faults().heal());
            let look = async {
                let assemble = |force| {
                    let options = AssembleOptions { force, ..AssembleOptions::default() };
                    Array::assemble(candidates(&life.members), options, Pool::new(1 << 20), life.world.clock())
                };
                let (array, forced) = match assemble(false).await {
                    Ok(array) => (array, false),
                    Err(refusal) => {
                        assert!(may_break && refusal.reason.contains("dirty and degraded"), "{context}: {refusal}");
                        (assemble(true).await.unwrap_or_else(|refusal| panic!("{context}: {refusal}")), true)
                    }
                };
                life.end(Truth::killed);
                life.look(&array, forced, &context).await;
            };
            life.world.run(look, || false).expect("not stopped");
        }
    }
}
