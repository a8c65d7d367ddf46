//! A history is lived through, and held against the truth at every turn.
//!
//! It falls into lives: from one assembly to the next restart, kill or loss of
//! power, which may come at any moment, also while the array is assembled or
//! looked over. After each life the members are judged as they lie
//! ([`crate::judge`]); in each, everything that is read is checked. At the end
//! all faults are over, and the array must come to agree with itself.
//!
//! Requests may fail only where [`crate::faults`] says so (`lenient`); what is
//! read without an error is never excused.

use super::step::{Fault, History, Step};
use super::tally::Tally;
use crate::executor::{Tracer, VirtualClock, World};
use crate::faults::{Mishap, Planned};
use crate::judge::{Failures, is_newest_among, judge};
use crate::member::SimMember;
use crate::random::Random;
use crate::rows::{Row, rows};
use crate::truth::{Look, Stamp, Truth};
use engine::create::create;
use engine::{Array, ArrayError, Candidate, Clock, Durability, Operation, Pool, Refusal};
use format::geometry::{Geometry, Level};
use format::superblock::{DeviceRole, Superblock, Version, decode};
use format::units::Slot;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::ops::Range;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

type Simulated = Array<SimMember, VirtualClock>;

/// Virtual time in which every life must have ended.
const LIFE_NANOS_MAX: u64 = 1_000_000_000_000;

/// Lives through a history; `tracer` is told what happens in it.
///
/// # Errors
/// What went otherwise than it may, in words.
pub fn run(history: &History, tally: &Tally, tracer: Option<Tracer>) -> Result<(), String> {
    let mut runner = Runner::new(history, tally);
    if let Some(tracer) = tracer {
        runner.world.set_tracer(tracer);
    }
    runner.make()?;
    let mut start = 0;
    let is_end = |step: &Step| matches!(step, Step::Restart | Step::Kill | Step::PowerCut { .. });
    while let Some(length) = history.steps[start..].iter().position(is_end) {
        runner.live(&history.steps[start..start + length], &history.steps[start + length])?;
        start += length + 1;
    }
    runner.live(&history.steps[start..], &Step::Restart)?;
    runner.end()
}

/// What a running life shares with the requests that it started.
struct Shared {
    truth: RefCell<Truth>,
    failure: RefCell<Option<String>>,
    /// Requests may fail.
    lenient: Cell<bool>,
    /// Something happened to a member in this life, so a sweep may not come to its end.
    disturbed: Cell<bool>,
    /// A request failed, of those that change something.
    failed: Cell<bool>,
    under_way: Cell<usize>,
    waiting: RefCell<Option<Waker>>,
}

impl Shared {
    fn fail(&self, what: impl FnOnce() -> String) {
        self.failure.borrow_mut().get_or_insert_with(what);
    }

    /// The result of a request, when it may be used.
    fn expect<T>(&self, what: &str, result: Result<T, ArrayError>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                if !self.lenient.get() {
                    self.fail(|| format!("{what} failed, and it should not: {error}"));
                }
                None
            }
        }
    }

    fn check(&self, at: usize, found: &[u8], asked: Stamp) {
        if let Err(wrong) = self.truth.borrow().check(at, found, Look::Reader(asked)) {
            self.fail(|| wrong);
        }
    }

    /// Waits until no request is under way.
    async fn join(&self) {
        poll_fn(|context| {
            if self.under_way.get() == 0 {
                return Poll::Ready(());
            }
            *self.waiting.borrow_mut() = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// A request under way.
struct UnderWay(Rc<Shared>);

impl UnderWay {
    fn new(shared: &Rc<Shared>) -> Self {
        shared.under_way.set(shared.under_way.get() + 1);
        Self(shared.clone())
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.set(self.0.under_way.get() - 1);
        if self.0.under_way.get() == 0
            && let Some(waker) = self.0.waiting.take()
        {
            waker.wake();
        }
    }
}

struct Runner<'a> {
    history: &'a History,
    tally: &'a Tally,
    world: World,
    random: RefCell<Random>,
    pool: Pool,
    members: Vec<SimMember>,
    boundaries: Rc<Cell<u64>>,
    geometry: Option<Geometry>,
    rows: Vec<Row>,
    data_at: Vec<u64>,
    shared: Rc<Shared>,
    /// By member: something happened to it in this life, of which the array may not know yet.
    struck: RefCell<Vec<bool>>,
    /// Some member was not as it should be, at some time.
    impaired_once: Cell<bool>,
    /// The power went at the end of the last life: nothing is in any cache.
    after_power_cut: bool,
}

impl<'a> Runner<'a> {
    fn new(history: &'a History, tally: &'a Tally) -> Self {
        let mut random = Random::new(history.seed ^ 0x5eed);
        let world = World::new(random.number());
        let setup = &history.setup;
        let boundaries = Rc::new(Cell::new(0));
        let member = |number: usize| {
            let mut contents = vec![0; setup.member_bytes(number) as usize];
            if setup.unknown_contents {
                random.fill(&mut contents[64 << 10..]);
            }
            let bytes = contents.len() as u64;
            let data_bytes = setup.data_bytes(number);
            let data = if setup.version == Version::V1_0 { 0 } else { bytes - data_bytes };
            SimMember::new(format!("member{number}"), &world, contents, boundaries.clone())
                .with_blocks(setup.block_bytes)
                .with_tears(setup.tear_bytes)
                .with_silent_mishaps_in(data..data + data_bytes)
        };
        let members = (0..setup.members()).map(member).collect();
        let shared = Shared {
            truth: RefCell::new(Truth::new(0)),
            failure: RefCell::default(),
            lenient: Cell::new(history.beyond),
            disturbed: Cell::new(false),
            failed: Cell::new(false),
            under_way: Cell::new(0),
            waiting: RefCell::default(),
        };
        Self {
            history,
            tally,
            world,
            random: RefCell::new(random),
            pool: Pool::new(4 << 20),
            members,
            boundaries,
            geometry: None,
            rows: Vec::new(),
            data_at: Vec::new(),
            shared: Rc::new(shared),
            struck: RefCell::new(vec![false; setup.members()]),
            impaired_once: Cell::new(setup.absent.is_some()),
            after_power_cut: false,
        }
    }

    fn make(&mut self) -> Result<(), String> {
        let setup = &self.history.setup;
        let (newcomers, spares) = setup.newcomers(&self.members);
        let clock = self.world.clock();
        let recipe = setup.recipe();
        let made = create(&recipe, &newcomers, &spares, &self.pool, &clock, &|_, _| {});
        let made = self.world.run(made, || false).expect("nothing stops it");
        made.map_err(|refusal| format!("it cannot be made: {refusal}"))?;
        let mut shape = None;
        let mut data_bytes = Vec::new();
        for number in 0..self.members.len() {
            let superblock = if Some(number) == setup.absent { None } else { Some(self.superblock(number)?) };
            self.data_at.push(superblock.as_ref().map_or(0, |superblock| superblock.data_at().0));
            if number < setup.slots {
                data_bytes.push(superblock.as_ref().map_or(0, |superblock| superblock.data_bytes()));
            }
            shape = superblock.or(shape);
        }
        let shape = shape.expect("a member is there").shape(&data_bytes);
        let geometry = Geometry::new(&shape).map_err(|defect| format!("{defect:?}"))?;
        self.rows = rows(&geometry);
        *self.shared.truth.borrow_mut() = Truth::new(geometry.array_bytes());
        self.geometry = Some(geometry);
        Ok(())
    }

    /// As it stands on a member.
    fn superblock(&self, member: usize) -> Result<Superblock, String> {
        let version = self.history.setup.version;
        let image = self.members[member].image();
        let at = version.place(image.len() as u64).expect("it is long enough");
        let bytes = &image[at.0 as usize..at.0 as usize + 4096];
        decode(version, at, bytes, image.len() as u64)
            .ok()
            .flatten()
            .ok_or_else(|| format!("member {member}: no superblock"))
    }

    fn geometry(&self) -> &Geometry {
        self.geometry.as_ref().expect("it was made")
    }

    fn is_redundant(&self) -> bool {
        !matches!(self.history.setup.level, Level::Linear | Level::Raid0)
    }

    fn has_parity(&self) -> bool {
        matches!(self.geometry(), Geometry::Parity(_))
    }

    /// From an assembly to the end that comes sooner: `end`, or the power cut that it is.
    fn live(&mut self, steps: &[Step], end: &Step) -> Result<(), String> {
        let cut = match end {
            Step::PowerCut { boundary } => self.boundaries.get() + u64::from(*boundary),
            _ => u64::MAX,
        };
        let clock = self.world.clock();
        let latest = clock.now().nanos + LIFE_NANOS_MAX;
        let life = self.life(steps, *end == Step::Restart);
        let stop =
            || self.shared.failure.borrow().is_some() || self.boundaries.get() >= cut || clock.now().nanos > latest;
        let ended = self.world.run(life, stop);
        if ended.is_none() && clock.now().nanos > latest {
            self.shared.fail(|| "something never ends".to_owned());
        }
        self.world.forget_all();
        self.after_life(end)
    }

    fn after_life(&mut self, end: &Step) -> Result<(), String> {
        let random = &mut *self.random.borrow_mut();
        self.after_power_cut = matches!(end, Step::PowerCut { .. });
        if *end != Step::Restart {
            self.shared.truth.borrow_mut().interrupted();
        }
        for member in &self.members {
            let faults = member.faults();
            if self.after_power_cut {
                member.lose_power(random);
                faults.planned.take();
                if random.once_in(2) {
                    faults.heal();
                }
            } else {
                member.end_of_process();
                if random.once_in(2) {
                    faults.gone.set(false);
                }
            }
        }
        self.world.trace(|| format!("-- {end:?}"));
        self.tally.count(match end {
            Step::PowerCut { .. } => "power cuts",
            Step::Kill => "kills",
            _ => "stops",
        });
        self.judge()
    }

    fn judge(&self) -> Result<(), String> {
        self.absorb_silent_faults();
        if let Some(failure) = self.shared.failure.take() {
            return Err(failure);
        }
        let images: Vec<_> = self.present().map(|(_, member)| member.image()).collect();
        let images: Vec<&[u8]> = images.iter().map(|image| &image[..]).collect();
        let failures = if self.shared.lenient.get() { Failures::Beyond } else { Failures::Borne };
        judge(&images, &self.rows, &self.shared.truth.borrow(), failures)
    }

    /// All members but the one that never was.
    fn present(&self) -> impl Iterator<Item = (usize, &SimMember)> {
        self.members.iter().enumerate().filter(|(number, _)| Some(*number) != self.history.setup.absent)
    }

    /// Rows that were changed silently may hold anything.
    fn absorb_silent_faults(&self) {
        for (number, member) in self.present() {
            for range in member.faults().silent.take() {
                let data_at = self.data_at[number];
                let component = range.start.saturating_sub(data_at)..range.end.saturating_sub(data_at);
                // Nobody reads another before it is written anew.
                if let Ok(DeviceRole::Active(slot)) = self.superblock(number).map(|superblock| superblock.own_role()) {
                    self.taint(|row| row.touches(slot, &component));
                }
            }
        }
    }

    fn taint(&self, is_hit: impl Fn(&Row) -> bool) {
        let mut truth = self.shared.truth.borrow_mut();
        for row in self.rows.iter().filter(|row| is_hit(row)) {
            row.data.iter().for_each(|datum| truth.taint(datum.sector));
        }
    }

    async fn life(&self, steps: &[Step], is_stopped: bool) {
        let Some(array) = self.assemble().await else { return };
        if let Some(micros) = self.history.setup.safe_mode_micros {
            let keeper = array.clone();
            self.world.spawn(async move { keeper.mark_clean_when_idle(Duration::from_micros(micros)).await });
        }
        if self.history.setup.clearing.is_some() {
            let keeper = array.clone();
            self.world.spawn(async move { keeper.clear_bitmap_lazily().await });
        }
        if self.history.setup.kept_whole {
            let keeper = array.clone();
            self.world.spawn(async move { keeper.keep_whole().await });
        }
        for step in steps {
            self.step(&array, step).await;
        }
        if is_stopped {
            self.stop(&array).await;
        }
    }

    async fn stop(&self, array: &Simulated) {
        self.shared.join().await;
        let asked = self.shared.truth.borrow_mut().moment();
        if self.shared.expect("stop", array.stop().await).is_some() {
            self.shared.truth.borrow_mut().flushed(asked);
        }
    }

    /// Assembles what is there and looks it over; `None` when that is refused with reason.
    async fn assemble(&self) -> Option<Simulated> {
        self.struck.borrow_mut().fill(false);
        self.shared.disturbed.set(false);
        let mut forced = false;
        let array = loop {
            if !self.offers_the_newest() {
                self.tally.count("lives not begun");
                return None;
            }
            let refusal = match self.assemble_with(forced).await {
                Ok(array) => break array,
                Err(refusal) => refusal,
            };
            self.world.trace(|| format!("-- not assembled: {refusal}"));
            if let Some(slot) = self.unreadable(&refusal) {
                self.struck.borrow_mut()[slot] = true; // as its user would, go on without it
                self.impaired_once.set(true);
            } else if !forced && self.impaired_once.get() && refusal.reason.contains("dirty and degraded") {
                forced = true;
                self.tally.count("forced");
                self.taint_doubtful_rows();
            } else {
                if !self.history.beyond {
                    self.shared.fail(|| format!("it cannot be assembled: {refusal}"));
                }
                self.tally.count("refusals");
                return None;
            }
        };
        let agreed = array.status().in_agreement;
        self.world.trace(|| {
            let status = array.status();
            let states: Vec<_> = status.members.iter().map(|member| (&member.name, member.state)).collect();
            format!("-- assembled: {} events {} agreed {agreed} {states:?}", status.state, status.events)
        });
        let strained = forced || self.has_parity() && !agreed && self.impaired(&array).contains(&true);
        self.shared.lenient.set(self.history.beyond || strained);
        self.shared.failed.set(false);
        let found = self.look(&array).await;
        if let Some(found) = found.filter(|_| agreed && !forced && (self.is_redundant() || self.after_power_cut)) {
            self.shared.truth.borrow_mut().pin(&found);
        }
        Some(array)
    }

    /// Nothing on members that were left behind can tell that others went on without them.
    fn offers_the_newest(&self) -> bool {
        let struck = self.struck.borrow();
        let (images, offered): (Vec<_>, Vec<_>) =
            self.present().map(|(slot, member)| (member.image(), !struck[slot] && !member.faults().gone.get())).unzip();
        let images: Vec<&[u8]> = images.iter().map(|image| &image[..]).collect();
        is_newest_among(&images, &offered)
    }

    /// The member that is offered and cannot be read, when that is why assembly was refused.
    fn unreadable(&self, refusal: &Refusal) -> Option<usize> {
        let slot = self.members.iter().position(|member| Some(member.name()) == refusal.member)?;
        (refusal.reason.contains("simulated fault") && !self.struck.borrow()[slot]).then_some(slot)
    }

    /// The write hole: what was in doubt may come out as anything from now on.
    fn taint_doubtful_rows(&self) {
        let mut truth = self.shared.truth.borrow_mut();
        for row in &self.rows {
            if row.data.iter().any(|datum| !truth.is_certain(datum.sector)) {
                row.data.iter().for_each(|datum| truth.taint(datum.sector));
            }
        }
    }

    async fn assemble_with(&self, force: bool) -> Result<Simulated, Refusal> {
        let struck = self.struck.borrow().clone();
        let offered = self.present().filter(|(slot, member)| !struck[*slot] && !member.faults().gone.get());
        let candidates = offered.map(|(_, member)| Candidate { name: member.name(), member: member.clone() }).collect();
        let options = self.history.setup.options(force);
        Array::assemble(candidates, options, self.pool.clone(), self.world.clock()).await
    }

    /// Reads everything and checks it.
    async fn look(&self, array: &Simulated) -> Option<Vec<u8>> {
        let asked = self.shared.truth.borrow_mut().start_reading();
        let read = array.read(0, array.pool().take(array.bytes() as usize)).await;
        let found = self.shared.expect("reading all of it", read);
        self.absorb_silent_faults();
        if let Some(found) = &found {
            self.shared.check(0, found, asked);
        }
        self.shared.truth.borrow_mut().stop_reading();
        found.map(|found| found.to_vec())
    }

    /// Which slots cannot be counted on.
    fn impaired(&self, array: &Simulated) -> Vec<bool> {
        let mut impaired = vec![true; self.history.setup.slots];
        for (number, slot, state) in self.seats(array) {
            let is_well = state == "in_sync" && !self.members[number].faults().is_any();
            if let Some(slot) = slot.filter(|_| is_well && !self.struck.borrow()[number]) {
                impaired[slot] = false;
            }
        }
        if impaired.contains(&true) {
            self.impaired_once.set(true);
        }
        impaired
    }

    /// The array's members by number, with their slots and states.
    fn seats(&self, array: &Simulated) -> Vec<(usize, Option<usize>, &'static str)> {
        let number = |name: &str| self.members.iter().position(|member| member.name() == name);
        let status = array.status();
        let seats = status.members.iter();
        let seats = seats.filter_map(|seat| Some((number(&seat.name)?, seat.slot.map(usize::from), seat.state)));
        seats.collect()
    }

    async fn step(&self, array: &Simulated, step: &Step) {
        self.world.trace(|| format!("-- {step:?}"));
        match *step {
            Step::Write { place, bytes, align, stable } => {
                let range = self.range(place, bytes, align);
                let mut data = vec![0; range.len()];
                self.random.borrow_mut().fill(&mut data);
                self.write(array, range.start, data, stable);
            }
            Step::WriteZeroes { place, bytes } => {
                // Made of several writes, so nothing says in which order it and another at the same time go.
                self.shared.join().await;
                self.write_zeroes(array, self.range(place, bytes, 1));
                self.shared.join().await;
            }
            Step::Read { place, bytes } => self.read(array, self.range(place, bytes, 1)),
            Step::Flush => self.flush(array),
            Step::Wait { micros } => self.wait(Duration::from_micros(micros.into())).await,
            Step::Rest { seconds } => self.wait(Duration::from_secs(seconds.into())).await,
            Step::Join => {
                self.shared.join().await;
                self.pin_if_agreed(array).await;
            }
            Step::Resync => self.resync(array),
            Step::Befall { member, fault } => self.befall(array, member, fault),
            Step::Heal { member } => {
                let slot = member as usize % self.members.len();
                self.members[slot].faults().heal();
            }
            Step::Remove { member } => {
                let slot = member as usize % self.members.len();
                drop(array.remove(&self.members[slot].name()).await); // only what has failed is let go
            }
            Step::Restart | Step::Kill | Step::PowerCut { .. } => unreachable!("the end of a life"),
        }
    }

    async fn wait(&self, time: Duration) {
        let clock = self.world.clock();
        clock.sleep_until(clock.now() + time).await;
    }

    /// Copies and parity agree, so what is read now is there to stay.
    async fn pin_if_agreed(&self, array: &Simulated) {
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

    fn range(&self, place: u32, bytes: u32, align: u32) -> Range<usize> {
        let (length, align) = (self.shared.truth.borrow().bytes(), align as usize);
        let start = (place as usize * length / 1_000_000 / align * align).min(length - 1);
        start..(start + (bytes as usize).next_multiple_of(align)).min(length)
    }

    fn write(&self, array: &Simulated, at: usize, data: Vec<u8>, stable: bool) {
        let (array, shared, under_way) = (array.clone(), self.shared.clone(), UnderWay::new(&self.shared));
        let block = array.pool().copy_of(&data);
        let id = shared.truth.borrow_mut().begin(at, data);
        self.tally.count("writes");
        self.world.spawn(async move {
            let durability = if stable { Durability::Stable } else { Durability::Ordinary };
            let written = array.write(at as u64, block, durability).await;
            match shared.expect("a write", written) {
                Some(()) => shared.truth.borrow_mut().answered(id, stable),
                None => {
                    shared.truth.borrow_mut().failed(id);
                    shared.failed.set(true);
                }
            }
            drop(under_way);
        });
    }

    fn write_zeroes(&self, array: &Simulated, range: Range<usize>) {
        let (array, shared, under_way) = (array.clone(), self.shared.clone(), UnderWay::new(&self.shared));
        let id = shared.truth.borrow_mut().begin(range.start, vec![0; range.len()]);
        self.world.spawn(async move {
            let written = array.write_zeroes(range.start as u64, range.len() as u64, Durability::Ordinary).await;
            match shared.expect("writing zeros", written) {
                Some(()) => shared.truth.borrow_mut().answered(id, false),
                None => {
                    shared.truth.borrow_mut().failed(id);
                    shared.failed.set(true);
                }
            }
            drop(under_way);
        });
    }

    fn read(&self, array: &Simulated, range: Range<usize>) {
        let (array, shared, under_way) = (array.clone(), self.shared.clone(), UnderWay::new(&self.shared));
        let asked = shared.truth.borrow_mut().start_reading();
        let silent: Vec<_> = self.members.iter().map(SimMember::faults).collect();
        self.world.spawn(async move {
            let read = array.read(range.start as u64, array.pool().take(range.len())).await;
            // What is wrong silently and not yet known to be so is looked at when it is.
            let is_known = silent.iter().all(|faults| faults.silent.borrow().is_empty());
            if let Some(found) = shared.expect("a read", read).filter(|_| is_known) {
                shared.check(range.start, &found, asked);
            }
            shared.truth.borrow_mut().stop_reading();
            drop(under_way);
        });
    }

    fn flush(&self, array: &Simulated) {
        let (array, shared, under_way) = (array.clone(), self.shared.clone(), UnderWay::new(&self.shared));
        let asked = shared.truth.borrow_mut().moment();
        self.world.spawn(async move {
            match shared.expect("a flush", array.flush().await) {
                Some(()) => shared.truth.borrow_mut().flushed(asked),
                None => shared.failed.set(true),
            }
            drop(under_way);
        });
    }

    /// Beside the requests; nobody waits for it.
    fn resync(&self, array: &Simulated) {
        let (array, shared) = (array.clone(), self.shared.clone());
        self.tally.count("resyncs");
        self.world.spawn(async move {
            let resynced = array.resync(&|_, _| {}).await;
            if !shared.disturbed.get() {
                shared.expect("a resync", resynced);
            }
        });
    }

    fn befall(&self, array: &Simulated, member: u32, fault: Fault) {
        let Some(number) = self.victim(array, member, fault) else { return };
        let setup = &self.history.setup;
        let (member, faults) = (self.members[number].clone(), self.members[number].faults());
        let slot = Slot(number.min(setup.slots - 1) as u16); // spares are as long as the last
        let data = self.data_at[number]..self.data_at[number] + self.geometry().used_bytes(slot);
        let planned = |operation, after: u32, mishap| {
            faults.planned.borrow_mut().push(Planned { operation, after: after.into(), mishap });
        };
        let place = |millionths: u32, bytes: u64| {
            let unit = u64::from(setup.block_bytes);
            let start = data.start + (data.end - data.start) * u64::from(millionths) / 1_000_000 / unit * unit;
            start..(start + bytes).min(data.end)
        };
        self.tally.count("faults");
        match fault {
            Fault::Failed => self.fail_by_hand(array, member.name()),
            Fault::Gone => faults.gone.set(true),
            Fault::Away(micros) => {
                let clock = self.world.clock();
                let until = clock.now() + Duration::from_micros(micros.into());
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
            Fault::Hangs(micros) => faults.hung_until.set(self.world.clock().now().nanos + u64::from(micros) * 1000),
            Fault::Slow(micros) => faults.slower_by.set(u64::from(micros) * 1000),
            Fault::Corrupt(at) => member.corrupt(place(at, 512), &mut self.random.borrow_mut()),
            Fault::LosesWrite(after) => planned(Operation::Write, after, Mishap::Lose),
            Fault::Misdirects(after) => {
                let by = self.random.borrow_mut().within(0..data.end - data.start);
                planned(Operation::Write, after, Mishap::Misdirect { by });
            }
        }
        self.absorb_silent_faults();
    }

    /// A member to which this can happen: without asking too much of the level, unless this history does.
    fn victim(&self, array: &Simulated, number: u32, fault: Fault) -> Option<usize> {
        let count = self.members.len();
        let numbers = (0..count).map(|index| (number as usize + index) % count);
        let mut numbers = numbers.filter(|&number| Some(number) != self.history.setup.absent);
        self.shared.disturbed.set(true);
        if self.history.beyond || !fault.is_borne() {
            return numbers.next();
        }
        let (impaired, seats) = (self.impaired(array), self.seats(array));
        let slot_of = |number: usize| seats.iter().find(|(other, ..)| *other == number).and_then(|(_, slot, _)| *slot);
        let may_lose = !self.has_parity() || array.status().in_agreement;
        let is_borne = |number: &usize| match (slot_of(*number), self.geometry()) {
            (None, _) => true,
            (Some(_), _) if !may_lose => false,
            (Some(slot), Geometry::Mapping(mapping)) => {
                mapping.survives(&|other| other.index() == slot || impaired[other.index()])
            }
            (Some(slot), Geometry::Parity(parity)) => {
                let lost = (0..impaired.len()).filter(|&other| other == slot || impaired[other]).count();
                parity.survives(lost as u16)
            }
        };
        let victim = numbers.find(is_borne)?;
        self.impaired_once.set(true);
        self.struck.borrow_mut()[victim] = true;
        Some(victim)
    }

    fn fail_by_hand(&self, array: &Simulated, name: String) {
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

    /// Lets spares take over and be recovered, if the array may be whole again.
    async fn make_whole(&self, array: &Simulated) {
        /// Far more than a sweep over a small array takes.
        const ENOUGH: Duration = Duration::from_secs(60);
        let keeper = array.clone();
        self.world.spawn(async move { keeper.keep_whole().await });
        self.wait(ENOUGH).await;
        let has_room = self.seats(array).iter().any(|(_, _, state)| *state == "spare");
        let is_waiting = self.seats(array).iter().any(|(_, _, state)| *state == "recovering");
        let status = array.status();
        if status.in_sync == status.raid_disks {
            self.tally.count("whole at the end");
        } else if (has_room || is_waiting) && status.in_agreement && status.broken.is_none() {
            self.shared.fail(|| "a spare was there and did not become current".to_owned());
        }
    }

    /// All faults are over: it must come to agree with itself, and hold what it should.
    fn end(&mut self) -> Result<(), String> {
        self.members.iter().for_each(|member| member.faults().heal());
        let life = async {
            let Some(array) = self.assemble().await else { return };
            if self.is_redundant() {
                self.make_whole(&array).await;
            }
            if self.is_redundant()
                && let Some(resynced) = self.shared.expect("the last resync", array.resync(&|_, _| {}).await)
            {
                self.tally.count("last resyncs");
                if !resynced.complete {
                    self.shared.fail(|| "the last resync did not come to its end".to_owned());
                }
                self.pin_if_agreed(&array).await;
            }
            self.look(&array).await;
            self.stop(&array).await;
        };
        let shared = self.shared.clone();
        self.world.run(life, || shared.failure.borrow().is_some());
        self.world.forget_all();
        self.judge()
    }
}
