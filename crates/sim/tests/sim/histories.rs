//! Whole lives of arrays, each from one seed: random level, layout and size, random concurrent requests, failing
//! members, power cuts.
//!
//! The expected contents are a plain vector. What was answered must read back. After a power cut, a byte may hold its
//! last settled value or any value written since the last flush, and nothing else. `MDSPACE_SEED=n` replays one seed.

use engine::create::{Contents, Newcomer, Recipe, create};
use engine::{Array, AssembleOptions, CACHE_BYTES, Candidate, Clock, Durability, Pool, StripeSize};
use format::geometry::{Level, default_layout};
use format::placement::BitmapChoice;
use futures_util::future::{join, join_all};
use mdspace_sim::{Random, SimMember, VirtualClock, World, Zeroing};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

type Simulated = Array<SimMember, VirtualClock>;

/// How bytes are written to the array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Means {
    Write,
    /// As zeros.
    Zero,
    Punch,
}

/// The random shape of an array.
#[derive(Debug, Clone)]
struct Setup {
    level: Level,
    layout: u32,
    chunk_bytes: u64,
    slots: usize,
    component_bytes: u64,
    bitmap: BitmapChoice,
    stripe_size: StripeSize,
    cache_bytes: usize,
    zeroing: Zeroing,
}

const DATA_OFFSET: u64 = 32 << 10;

fn setup(random: &mut Random) -> Setup {
    let level = *random.pick(&[
        Level::Linear,
        Level::Raid0,
        Level::Raid1,
        Level::Raid4,
        Level::Raid5,
        Level::Raid5,
        Level::Raid6,
        Level::Raid6,
        Level::Raid10,
    ]);
    let (layout, fewest) = match level {
        Level::Raid5 => (random.within(0..6) as u32, 3),
        Level::Raid6 => (*random.pick(&[0, 1, 2, 3, 4, 5, 8, 9, 10, 16, 17, 18, 19, 20]), 4),
        Level::Raid10 => (*random.pick(&[0x102, 0x201, 0x103, 0x1_0201, 0x202]), 4),
        Level::Raid4 => (default_layout(level), 3),
        level => (default_layout(level), 2),
    };
    let chunk_bytes = match level {
        Level::Raid1 | Level::Linear => 0,
        _ => 4096 << random.within(0..4),
    };
    let redundant = !matches!(level, Level::Linear | Level::Raid0);
    let stripe_size = match level {
        Level::Raid4 | Level::Raid5 | Level::Raid6 => any_stripe_size(random, chunk_bytes),
        _ => StripeSize::Auto,
    };
    Setup {
        level,
        layout,
        chunk_bytes,
        slots: fewest + random.within(0..4) as usize,
        component_bytes: random.within(2..6) * chunk_bytes.max(64 << 10),
        bitmap: if redundant && random.once_in(2) { BitmapChoice::Chunk(4096) } else { BitmapChoice::None },
        stripe_size,
        cache_bytes: *random.pick(&[0, 4 * 4096, 40 * 4096, CACHE_BYTES]),
        zeroing: *random.pick(&[Zeroing::Never, Zeroing::Zeroes, Zeroing::Discards, Zeroing::Promises]),
    }
}

fn any_stripe_size(random: &mut Random, chunk_bytes: u64) -> StripeSize {
    match random.within(0..5) {
        0..2 => StripeSize::Auto,
        exponent => StripeSize::Fixed((4096 << exponent >> 2).min(chunk_bytes as u32)),
    }
}

fn recipe(setup: &Setup) -> Recipe {
    Recipe {
        layout: setup.layout,
        chunk_bytes: setup.chunk_bytes,
        name: "sim:history".to_owned(),
        data_offset_bytes: Some(DATA_OFFSET),
        component_bytes: (!matches!(setup.level, Level::Linear | Level::Raid0)).then_some(setup.component_bytes),
        bitmap: setup.bitmap,
        contents: Contents::Consistent,
        ..Recipe::new(setup.level, [7; 16])
    }
}

fn candidates(members: &[SimMember]) -> Vec<Candidate<SimMember>> {
    members.iter().map(|member| Candidate { name: member.name(), member: member.clone() }).collect()
}

/// The legal values of each byte: the last settled one, and every one written since.
struct Truth {
    settled: Vec<u8>,
    /// Writes since the last flush: position, bytes, whether answered.
    recent: Vec<(usize, Vec<u8>, bool)>,
}

impl Truth {
    fn new(bytes: u64) -> Self {
        Self { settled: vec![0; bytes as usize], recent: Vec::new() }
    }

    fn now(&self) -> Vec<u8> {
        let mut now = self.settled.clone();
        for (at, bytes, _) in self.recent.iter().filter(|(_, _, answered)| *answered) {
            now[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        now
    }

    /// Everything answered is on stable storage.
    fn settle(&mut self) {
        self.settled = self.now();
        self.recent.retain(|(_, _, answered)| !answered);
    }

    fn check_after_power_loss(&self, found: &[u8], context: &str) {
        if self.settled.is_empty() {
            return; // power went before the array was first assembled
        }
        for (index, &byte) in found.iter().enumerate() {
            let mut legal = self.recent.iter().filter(|(at, bytes, _)| (*at..at + bytes.len()).contains(&index));
            let is_legal = self.settled[index] == byte || legal.any(|(at, bytes, _)| bytes[index - at] == byte);
            assert!(is_legal, "{context}: byte {index} is {byte}, settled was {}", self.settled[index]);
        }
    }
}

struct History {
    seed: u64,
    setup: Setup,
    world: World,
    random: Random,
    members: Vec<SimMember>,
    boundaries: Rc<Cell<u64>>,
    truth: Rc<RefCell<Truth>>,
}

impl History {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let setup = setup(&mut random);
        let world = World::new(random.number());
        let boundaries = Rc::new(Cell::new(0));
        let bytes = DATA_OFFSET + setup.component_bytes;
        let member = |index| {
            SimMember::new(format!("member{index}"), &world, vec![0; bytes as usize], boundaries.clone())
                .with_zeroing(setup.zeroing)
        };
        let members = (0..setup.slots).map(member).collect();
        let truth = Rc::new(RefCell::new(Truth::new(0)));
        Self { seed, setup, world, random, members, boundaries, truth }
    }

    fn context(&self) -> String {
        format!("seed {} {:?}", self.seed, self.setup)
    }

    async fn create(&self) {
        let newcomer = |(index, candidate)| Some(Newcomer { candidate, device_uuid: [index as u8; 16] });
        let newcomers: Vec<_> = candidates(&self.members).into_iter().enumerate().map(newcomer).collect();
        let (pool, clock) = (Pool::new(1 << 20), self.world.clock());
        let created = create(&recipe(&self.setup), &newcomers, &[], &pool, &clock, &|_, _| {}).await;
        created.unwrap_or_else(|refusal| panic!("{}: {refusal}", self.context()));
    }

    async fn assemble(&self, members: &[SimMember]) -> Simulated {
        let pool = Pool::new(4 << 20);
        let Setup { stripe_size, cache_bytes, .. } = self.setup;
        let options = AssembleOptions { stripe_size, cache_bytes: Some(cache_bytes), ..AssembleOptions::default() };
        let assembled = Array::assemble(candidates(members), options, pool, self.world.clock());
        assembled.await.unwrap_or_else(|refusal| panic!("{}: {refusal}", self.context()))
    }

    /// Writes up to eight disjoint ranges at once.
    async fn batch(&mut self, array: &Simulated) {
        let part = array.bytes() / 8;
        let mut writes = Vec::new();
        for low in (0..8).map(|slice| slice * part) {
            let mut start = self.random.within(low..low + part);
            if self.random.once_in(2) {
                start = (start / 4096 * 4096).max(low);
            }
            let mut bytes = vec![0; self.random.within(1..low + part - start + 1) as usize];
            let means = *self.random.pick(&[Means::Write, Means::Write, Means::Write, Means::Zero, Means::Punch]);
            if means == Means::Write {
                self.random.fill(&mut bytes);
            }
            let durability = if self.random.once_in(8) { Durability::Stable } else { Durability::Ordinary };
            writes.push(self.write(array, start, bytes, means, durability));
        }
        // Requests that wait for a lock may see another unit when they get it.
        let other = any_stripe_size(&mut self.random, self.setup.chunk_bytes);
        let (clock, nanos) = (self.world.clock(), self.random.within(0..1_000_000));
        let change = async {
            clock.sleep_until(clock.now() + Duration::from_nanos(nanos)).await;
            if self.setup.stripe_size != StripeSize::Auto {
                array.set_stripe_size(other).expect("up to the chunk");
            }
        };
        join(join_all(writes), change).await;
        if self.random.once_in(3) {
            array.flush().await.unwrap_or_else(|error| panic!("{}: {error}", self.context()));
            self.truth.borrow_mut().settle();
        }
    }

    fn write(
        &self,
        array: &Simulated,
        start: u64,
        bytes: Vec<u8>,
        means: Means,
        durability: Durability,
    ) -> impl Future<Output = ()> + use<> {
        let (array, truth, context) = (array.clone(), self.truth.clone(), self.context());
        async move {
            let (block, length) = (array.pool().copy_of(&bytes), bytes.len() as u64);
            let entry = {
                let recent = &mut truth.borrow_mut().recent;
                recent.push((start as usize, bytes, false));
                recent.len() - 1
            };
            let written = match means {
                Means::Write => array.write(start, block, durability).await,
                Means::Zero => array.write_zeroes(start, length, durability).await,
                Means::Punch => array.punch_hole(start, length, durability).await,
            };
            written.unwrap_or_else(|error| panic!("{context}: {error}"));
            truth.borrow_mut().recent[entry].2 = true;
        }
    }

    async fn compare(&mut self, array: &Simulated) {
        let now = self.truth.borrow().now();
        let mut at = 0;
        while at < now.len() {
            let length = (self.random.within(1..200_000) as usize).min(now.len() - at);
            let read = array.read(at as u64, array.pool().take(length)).await;
            let buffer = read.unwrap_or_else(|error| panic!("{}: {error}", self.context()));
            if let Some(wrong) = (0..length).find(|&index| buffer[index] != now[at + index]) {
                panic!("{}: byte {} is {}, not {}", self.context(), at + wrong, buffer[wrong], now[at + wrong]);
            }
            at += length;
        }
    }

    /// A clean array returns the same data without any one of its members, which shows that copies and parity agree
    /// everywhere.
    async fn check_agreement(&self, members: &[SimMember]) {
        let array = self.assemble(members).await;
        if !array.status().in_agreement || array.status().in_sync < array.status().raid_disks || self.redundancy() == 0
        {
            return;
        }
        let whole = self.read_all(&array).await;
        for missing in 0..members.len() {
            let mut rest = members.to_vec();
            let left_out = rest.remove(missing).name();
            let array = self.assemble(&rest).await;
            assert!(self.read_all(&array).await == whole, "{}: without {left_out} it differs", self.context());
        }
    }

    async fn read_all(&self, array: &Simulated) -> Vec<u8> {
        let read = array.read(0, array.pool().take(array.bytes() as usize)).await;
        read.unwrap_or_else(|error| panic!("{}: {error}", self.context())).to_vec()
    }

    /// The number of members that the level can lose.
    fn redundancy(&self) -> usize {
        match self.setup.level {
            Level::Linear | Level::Raid0 => 0,
            Level::Raid6 => 2,
            _ => 1,
        }
    }

    /// Makes one member in use fail, in a random way.
    async fn lose_one(&mut self, array: &Simulated) {
        let status = array.status();
        let active: Vec<_> = status.members.iter().filter(|member| member.state == "in_sync").collect();
        let victim = self.random.pick(&active).name.clone();
        let member = self.members.iter().find(|member| member.name() == victim).expect("it is one of them");
        let faults = member.faults();
        match self.random.within(0..4) {
            0 => array.fail(&victim).await.expect("the level survives it"),
            1 => faults.bad_writes.borrow_mut().push(0..u64::MAX),
            2 => faults.bad_reads.borrow_mut().push(DATA_OFFSET..u64::MAX),
            _ => faults.gone.set(true),
        }
    }
}

/// A life without a power cut: requests, all failures that the level survives, stops and assemblies.
fn live(seed: u64) {
    let mut history = History::new(seed);
    let world = history.world.clone();
    let life = async {
        history.create().await;
        let mut members = history.members.clone();
        let mut losses = history.redundancy();
        for round in 0..3 {
            let array = history.assemble(&members).await;
            if round == 0 {
                *history.truth.borrow_mut() = Truth::new(array.bytes());
            }
            history.batch(&array).await;
            history.compare(&array).await;
            if losses > 0 && history.random.once_in(2) {
                losses -= 1;
                history.lose_one(&array).await;
                history.batch(&array).await;
                history.compare(&array).await;
            }
            array.stop().await.unwrap_or_else(|error| panic!("{}: {error}", history.context()));
            members.retain(|member| !member.faults().gone.get());
            if history.random.once_in(3) {
                members.reverse();
            }
        }
        let array = history.assemble(&members).await;
        history.compare(&array).await;
        members.iter().for_each(|member| member.faults().bad_reads.borrow_mut().clear());
        history.check_agreement(&members).await;
    };
    world.run(life, || false);
}

/// A life that ends in a power cut at a chosen write or flush. What is left must assemble, and hold only legal values.
fn die(seed: u64) {
    let mut history = History::new(seed);
    let world = history.world.clone();
    world.run(history.create(), || false);
    let boundaries = history.boundaries.clone();
    let cut = boundaries.get() + history.random.within(1..200);
    let members = history.members.clone();
    let life = async {
        let array = history.assemble(&members).await;
        *history.truth.borrow_mut() = Truth::new(array.bytes());
        for _ in 0..4 {
            history.batch(&array).await;
        }
        array.stop().await.expect("stops clean");
        history.truth.borrow_mut().settle();
    };
    world.run(life, || boundaries.get() >= cut);
    let after = World::new(history.random.number());
    let left = |member: &SimMember| {
        let contents = member.after_power_loss(&mut history.random);
        SimMember::new(member.name(), &after, contents, boundaries.clone())
    };
    let left: Vec<_> = members.iter().map(left).collect();
    history.world = after.clone();
    let afterlife = async {
        let array = history.assemble(&left).await;
        let found = history.read_all(&array).await;
        let context = format!("{} cut at {cut}", history.context());
        history.truth.borrow().check_after_power_loss(&found, &context);
        if history.redundancy() > 0 {
            let resynced = array.resync(&|_, _| {}).await.unwrap_or_else(|error| panic!("{context}: {error}"));
            assert!(resynced.complete, "{context}");
            assert!(history.read_all(&array).await == found, "{context}: a resync does not change data");
        }
        array.stop().await.unwrap_or_else(|error| panic!("{context}: {error}"));
        let array = history.assemble(&left).await;
        assert_eq!(array.status().state, "clean", "{context}");
        history.check_agreement(&left).await;
    };
    after.run(afterlife, || false);
}

/// A life that ends in a power cut while the array is idle.
fn die_idle(seed: u64) {
    let mut history = History::new(seed);
    let world = history.world.clone();
    world.run(history.create(), || false);
    let members = history.members.clone();
    let delay = Duration::from_millis(200);
    let life = async {
        let array = history.assemble(&members).await;
        *history.truth.borrow_mut() = Truth::new(array.bytes());
        let keeper = array.clone();
        world.spawn(async move { keeper.mark_clean_when_idle(delay).await });
        for _ in 0..3 {
            history.batch(&array).await;
            let clock = world.clock();
            clock.sleep_until(clock.now() + delay * 3).await;
        }
        array.flush().await.expect("nothing failed");
        history.truth.borrow_mut().settle();
    };
    world.run(life, || false);
    let after = World::new(seed);
    let mut random = Random::new(seed);
    let left =
        |member: &SimMember| SimMember::new(member.name(), &after, member.after_power_loss(&mut random), Rc::default());
    let left: Vec<_> = members.iter().map(left).collect();
    history.world = after.clone();
    let afterlife = async {
        let array = history.assemble(&left).await;
        assert_eq!(array.status().state, "clean", "{}", history.context());
        history.compare(&array).await;
        history.check_agreement(&left).await;
    };
    after.run(afterlife, || false);
}

fn seeds(count: u64) -> std::ops::Range<u64> {
    match std::env::var("MDSPACE_SEED") {
        Ok(seed) => {
            let seed = seed.parse().expect("MDSPACE_SEED is a number");
            seed..seed + 1
        }
        Err(_) => 0..count,
    }
}

#[test]
fn what_was_answered_reads_back_under_all_faults_that_the_level_survives() {
    seeds(100).for_each(live);
}

#[test]
fn after_a_power_cut_only_unflushed_writes_are_in_doubt() {
    seeds(100).for_each(die);
}

#[test]
fn an_idle_array_is_clean_and_loses_nothing_in_a_power_cut() {
    seeds(20).for_each(die_idle);
}
