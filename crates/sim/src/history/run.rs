//! Plays a history and checks it against the truth at every turn.
//!
//! A history is a sequence of lives. A life lasts from an assembly to the next restart, kill or power cut, which may
//! come at any moment, also during the assembly or the first read. During a life every read is checked; after it the
//! members are judged in the state in which they are ([`crate::judge`]). At the end all faults are over, and copies and
//! parity must come to agree.
//!
//! Requests may fail only where [`crate::faults`] allows it (`lenient`). What a read returns without an error must
//! always be legal.

use super::buffer::Buffer;
use super::life::Keepers;
use super::old_superblock::old_superblock;
use super::others::Strays;
use super::requests::Shared;
use super::setup::newcomer;
use super::step::{Cut, Fault, History, Step};
use super::tally::Tally;
use crate::checksums::examine;
use crate::judge::judge;
use crate::member::SimMember;
use crate::rows::{Row, rows};
use crate::truth::Truth;
use engine::create::{Newcomers, create_announced};
use engine::{Array, Clock, Pool};
use format::geometry::Geometry;
use format::superblock::{Superblock, Version, decode};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use world::{Random, Tracer, VirtualClock, World};

/// The array of a history.
pub(super) type Simulated = Array<SimMember, VirtualClock>;

/// Length of the bitmap file.
const FILE_BYTES: usize = 8192;

/// The limit of a life in virtual time.
const LIFE_NANOS_MAX: u64 = 1_000_000_000_000;

/// How many times as long a life may last with a member whose operations take a third of a second each: a resync beside one
/// that cannot be read goes block by block.
const SLOW_TIMES: u64 = 20;

/// Plays a history; traces it to `tracer`.
///
/// # Errors
/// The first violation, in words.
pub fn run(history: &History, tally: &Tally, tracer: Option<Tracer>) -> Result<(), String> {
    let mut runner = Runner::new(history);
    if let Some(tracer) = tracer {
        runner.world.set_tracer(tracer);
    }
    let ended = runner.run();
    tally.add(&runner.tally);
    ended
}

/// Whether a member belongs to the array, by its superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    /// It never belonged to the array.
    Never,
    /// It is being added, and may have a superblock or not.
    Coming,
    There,
}

pub(super) struct Runner<'a> {
    pub(super) history: &'a History,
    pub(super) tally: Rc<Tally>,
    pub(super) world: World,
    pub(super) random: RefCell<Random>,
    pub(super) pool: Pool,
    pub(super) members: Vec<SimMember>,
    /// The device of the write journal, if there is one. No fault befalls it.
    pub(super) journal: Option<SimMember>,
    /// A file for the bitmap.
    pub(super) file: SimMember,
    pub(super) has_file: Cell<bool>,
    pub(super) boundaries: Rc<Cell<u64>>,
    /// Counts writes of metadata.
    marks: Rc<Cell<u64>>,
    /// The boundary at which the power goes in this life.
    pub(super) cut_at: Cell<u64>,
    pub(super) geometry: Option<Geometry>,
    pub(super) rows: Vec<Row>,
    /// The first byte of data on each member.
    pub(super) data_at: u64,
    pub(super) shared: Rc<Shared>,
    /// By member: a fault was set in this life, of which the array may not know yet.
    pub(super) struck: Rc<RefCell<Vec<bool>>>,
    pub(super) presence: Rc<RefCell<Vec<Presence>>>,
    /// Members that were absent when md used others.
    pub(super) strays: Rc<RefCell<Strays>>,
    /// Whether a resync was pending when this life began.
    pub(super) resync_owed: Cell<bool>,
    /// By row: a part of it could not be read while a resync was pending.
    pub(super) unread: RefCell<Vec<bool>>,
    /// Whether a member was impaired at any time.
    pub(super) impaired_once: Cell<bool>,
    /// Whether a replacement was begun at any time.
    pub(super) is_any_replaced: Cell<bool>,
    /// Whether members with checksums hold silently changed bytes; requests may then fail.
    pub(super) is_rotten: Cell<bool>,
    /// The tasks beside the requests, as a server runs them. They end when the array is stopped.
    pub(super) keepers: Rc<Keepers>,
    pub(super) buffer: Buffer,
    /// Whether the last life ended in a power cut, so that no cache holds anything.
    pub(super) after_power_cut: bool,
    /// While an assembly is under way: the members that it was given.
    pub(super) assembled_of: RefCell<Option<Vec<usize>>>,
}

impl<'a> Runner<'a> {
    fn new(history: &'a History) -> Self {
        let mut random = Random::new(history.seed ^ 0x5eed);
        let world = World::new(random.number());
        let setup = &history.setup;
        let (boundaries, marks) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let member = |number: usize| {
            let mut contents = vec![0; setup.member_bytes(number) as usize];
            if setup.unknown_contents {
                random.fill(&mut contents[64 << 10..]);
            }
            let bytes = contents.len() as u64;
            let data_bytes = setup.data_bytes(number);
            let data = if setup.version.is_at_end() { 0 } else { bytes - data_bytes };
            SimMember::new(format!("member{number}"), &world, contents, boundaries.clone())
                .with_blocks(setup.block_bytes)
                .with_tears(setup.tear_bytes)
                .with_zeroing(setup.zeroing[number])
                .with_silent_mishaps_in(data..data + data_bytes)
                .with_marks(marks.clone())
                .with_slowness(setup.slowness)
                .with_promptness(setup.prompt)
        };
        let members = (0..setup.members()).map(member).collect();
        let journal = setup.journal_bytes.map(|bytes| {
            SimMember::new("journal".to_owned(), &world, vec![0; bytes as usize], boundaries.clone())
                .with_blocks(setup.block_bytes)
                .with_tears(setup.tear_bytes)
                .with_slowness(setup.slowness)
                .with_promptness(setup.prompt)
        });
        let file = SimMember::new("bitmap".to_owned(), &world, vec![0; FILE_BYTES], boundaries.clone());
        let presence = |number| if Some(number) == setup.absent { Presence::Never } else { Presence::There };
        let shared = Shared {
            truth: RefCell::new(Truth::new(0)),
            failure: RefCell::default(),
            lenient: Cell::new(history.beyond),
            disturbed: Cell::new(false),
            is_paused: Cell::new(false),
            silent: Cell::new(0),
            failed: Cell::new(false),
            unflushed: Cell::new(false),
            under_way: Cell::new(0),
            waiting: RefCell::default(),
        };
        Self {
            history,
            tally: Rc::default(),
            world,
            random: RefCell::new(random),
            pool: Pool::new(4 << 20),
            members,
            journal,
            file: file.with_tears(setup.tear_bytes),
            has_file: Cell::new(false),
            boundaries,
            marks,
            cut_at: Cell::new(u64::MAX),
            geometry: None,
            rows: Vec::new(),
            data_at: 0,
            shared: Rc::new(shared),
            struck: Rc::new(RefCell::new(vec![false; setup.members()])),
            presence: Rc::new(RefCell::new((0..setup.members()).map(presence).collect())),
            strays: Rc::default(),
            resync_owed: Cell::new(false),
            unread: RefCell::default(),
            impaired_once: Cell::new(setup.absent.is_some()),
            is_any_replaced: Cell::new(false),
            is_rotten: Cell::new(false),
            keepers: Rc::default(),
            buffer: Buffer::default(),
            after_power_cut: false,
            assembled_of: RefCell::default(),
        }
    }

    fn run(&mut self) -> Result<(), String> {
        self.make()?;
        let is_end = |step: &Step| matches!(step, Step::Restart | Step::Kill | Step::PowerCut(_));
        let mut steps = &self.history.steps[..];
        while let Some(length) = steps.iter().position(is_end) {
            let rest = &steps[length + 1..];
            let others_follow = matches!(rest.first(), Some(Step::Others { .. }));
            self.live(&steps[..length], &steps[length], others_follow)?;
            steps = rest;
            while let Some((Step::Others { first, second }, rest)) = steps.split_first() {
                self.used_by_others(*first, *second)?;
                steps = rest;
            }
        }
        self.live(steps, &Step::Restart, false)?;
        self.end()
    }

    fn make(&mut self) -> Result<(), String> {
        let setup = &self.history.setup;
        let (newcomers, spares) = setup.newcomers(&self.members);
        let clock = self.world.clock();
        let recipe = setup.recipe();
        let journal = self.journal.as_ref().map(|journal| newcomer(self.members.len(), journal));
        let newcomers = Newcomers { slots: &newcomers, spares: &spares, journal: journal.as_ref() };
        let made = create_announced(&recipe, newcomers, &self.pool, &clock, &|_, _| {}, &|| {});
        let made = self.world.run(made, || false).expect("the run is not stopped");
        made.map_err(|refusal| format!("the array cannot be created: {refusal}"))?;
        if setup.is_old() {
            self.make_old();
        }
        let superblocks: Vec<_> =
            self.present().map(|(number, _)| self.superblock(number)).collect::<Result<_, _>>()?;
        let first = &superblocks[0];
        self.data_at = first.data_at().0;
        let mut own = superblocks.iter();
        // A slot can only be absent at levels where all members are equally long.
        let data_bytes: Vec<u64> = (0..setup.slots)
            .map(|slot| if Some(slot) == setup.absent { first } else { own.next().unwrap_or(first) })
            .map(Superblock::data_bytes)
            .collect();
        let shape = first.shape(&data_bytes);
        let geometry = Geometry::new(&shape).map_err(|defect| format!("{defect:?}"))?;
        self.rows = rows(&geometry);
        self.unread = RefCell::new(vec![false; self.rows.len()]);
        *self.shared.truth.borrow_mut() = Truth::new(geometry.array_bytes());
        self.geometry = Some(geometry);
        Ok(())
    }

    /// Replaces the superblocks by superblocks 0.90.
    fn make_old(&self) {
        let setup = &self.history.setup;
        for (slot, member) in self.members.iter().enumerate() {
            let bytes = setup.member_bytes(slot);
            let place = |version: Version| version.place(bytes).expect("it is long enough").0;
            member.plant(place(Version::V1_0), &[0; 4096]);
            if Some(slot) != setup.absent {
                let seconds = self.world.clock().wall().as_secs() as u32;
                member.plant(place(Version::V0_90), &old_superblock(setup, slot, seconds));
            }
        }
    }

    /// The superblock that a member holds.
    pub(super) fn superblock(&self, member: usize) -> Result<Superblock, String> {
        let version = self.history.setup.version;
        let image = self.members[member].image();
        let at = version.place(image.len() as u64).expect("it is long enough");
        let bytes = &image[at.0 as usize..at.0 as usize + 4096];
        decode(version, at, bytes, image.len() as u64)
            .ok()
            .flatten()
            .ok_or_else(|| format!("member {member}: no superblock"))
    }

    pub(super) fn geometry(&self) -> &Geometry {
        self.geometry.as_ref().expect("the array was created")
    }

    pub(super) fn is_redundant(&self) -> bool {
        self.history.setup.level.is_redundant()
    }

    pub(super) fn has_parity(&self) -> bool {
        self.geometry().level().has_parity()
    }

    /// Plays one life: from an assembly to `end`, or to the power cut within it.
    fn live(&mut self, steps: &[Step], end: &Step, others_follow: bool) -> Result<(), String> {
        let (cut, mark) = match end {
            Step::PowerCut(Cut::Boundary(boundary)) => (self.boundaries.get() + u64::from(*boundary), u64::MAX),
            Step::PowerCut(Cut::Mark(mark)) => (u64::MAX, self.marks.get() + u64::from(*mark)),
            _ => (u64::MAX, u64::MAX),
        };
        self.cut_at.set(cut);
        let clock = self.world.clock();
        let is_slow = |step: &Step| matches!(step, Step::Befall { fault: Fault::Slow(_), .. });
        let has_slow_member =
            steps.iter().any(is_slow) || self.members.iter().any(|member| member.faults().slower_by.get() > 0);
        let times = if has_slow_member { SLOW_TIMES } else { 1 };
        let latest = clock.now().nanos + LIFE_NANOS_MAX * self.history.setup.slowness * times;
        let life = self.life(steps, end);
        let is_cut = || self.boundaries.get() >= self.cut_at.get() || self.marks.get() >= mark;
        let stop = || self.shared.failure.borrow().is_some() || is_cut() || clock.now().nanos > latest;
        let ended = self.world.run(life, stop);
        if ended.is_none() && clock.now().nanos > latest {
            self.shared.fail(|| "the life does not end".to_owned());
        }
        self.world.forget_all();
        self.check_nothing_is_left()?;
        self.after_life(end, others_follow)
    }

    /// A dropped array must release its members, whatever it was doing.
    fn check_nothing_is_left(&self) -> Result<(), String> {
        match self.devices().find(|member| member.is_held()) {
            None => Ok(()),
            Some(member) => Err(format!("{} is still held after its array was dropped", member.name())),
        }
    }

    fn after_life(&mut self, end: &Step, others_follow: bool) -> Result<(), String> {
        self.end_of_truth(end, others_follow);
        self.taint_what_a_replay_gave();
        self.taint_what_a_cut_assembly_replayed();
        let random = &mut *self.random.borrow_mut();
        self.after_power_cut = matches!(end, Step::PowerCut(_));
        for member in self.devices() {
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
            if self.history.setup.is_slow() {
                faults.end_lateness(); // an assembly would not wait so long
            }
        }
        if self.after_power_cut {
            self.settle_additions();
        }
        self.world.trace(|| format!("-- {end:?}"));
        self.tally.count(match end {
            Step::PowerCut(_) => "power cuts",
            Step::Kill => "kills",
            _ => "stops",
        });
        self.judge()
    }

    /// After a power cut the members' contents are on stable storage. Before it, the superblock of a member whose
    /// addition failed could be found once and then be lost.
    fn settle_additions(&self) {
        for number in 0..self.members.len() {
            let is_there = self.superblock(number).is_ok();
            let presence = &mut self.presence.borrow_mut()[number];
            if *presence == Presence::Coming {
                *presence = if is_there { Presence::There } else { Presence::Never };
            }
        }
    }

    fn judge(&self) -> Result<(), String> {
        self.absorb_silent_faults();
        self.absorb_failed_reads();
        if let Some(failure) = self.shared.failure.take() {
            return Err(failure);
        }
        self.check_strays()?;
        let in_sight = self.present().filter(|(number, _)| !self.is_out_of_sight(*number));
        let members = in_sight.map(|(_, member)| member).chain(&self.journal);
        let images: Vec<_> = members.map(SimMember::image).collect();
        let images: Vec<&[u8]> = images.iter().map(|image| &image[..]).collect();
        if self.history.setup.integrity {
            self.check_checksums()?;
        }
        let file = self.file.image();
        judge(
            &images,
            self.has_file.get().then_some(&file[..]),
            &self.rows,
            &self.shared.truth.borrow(),
            &self.unread.borrow(),
            self.is_any_replaced.get(),
            self.history.setup.block_bytes as usize,
        )
    }

    /// Without silent changes, every valid checksum must be right.
    fn check_checksums(&self) -> Result<(), String> {
        if self.is_rotten.get() {
            return Ok(());
        }
        for (number, member) in self.present() {
            let Some(found) = examine(&member.image(), &self.superblock(number)?) else { continue };
            if let Some(block) = found.wrong.first() {
                return Err(format!("member {number}: block {block} does not match its checksum"));
            }
        }
        Ok(())
    }

    /// The members, the write journal and the bitmap file.
    fn devices(&self) -> impl Iterator<Item = &SimMember> {
        self.members.iter().chain(&self.journal).chain([&self.file])
    }

    /// The members that belong to the array.
    pub(super) fn present(&self) -> impl Iterator<Item = (usize, &SimMember)> {
        let is_there = |number: usize| match self.presence.borrow()[number] {
            Presence::Never => false,
            Presence::Coming => self.superblock(number).is_ok(),
            Presence::There => true,
        };
        self.members.iter().enumerate().filter(move |(number, _)| is_there(*number))
    }

    /// Lets spares recover, until the array is whole if it can be.
    async fn make_whole(&self, array: &Simulated) {
        /// Far longer than a sweep over a small array takes.
        const ENOUGH: Duration = Duration::from_secs(60);
        const ENOUGH_IF_SLOW: Duration = Duration::from_secs(3600);
        let keeper = array.clone();
        self.world.spawn(async move { keeper.keep_whole().await });
        self.wait(if self.history.setup.is_slow() { ENOUGH_IF_SLOW } else { ENOUGH }).await;
        let has_room = self.seats(array).iter().any(|(_, _, state)| *state == "spare");
        let is_unfinished = |state: &str| matches!(state, "recovering" | "replacement");
        let is_waiting = self.seats(array).iter().any(|(_, _, state)| is_unfinished(state));
        let status = array.status();
        if status.in_sync == status.raid_disks && !is_waiting {
            self.tally.count("whole at the end");
        } else if (has_room || is_waiting) && status.in_agreement && status.broken.is_none() {
            self.shared.fail(|| "a spare did not become current".to_owned());
        }
    }

    /// The end: all faults are over. Copies and parity must come to agree, and the contents must be legal.
    fn end(&mut self) -> Result<(), String> {
        self.devices().for_each(|member| member.faults().heal());
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
                    self.shared.fail(|| "the last resync did not complete".to_owned());
                }
                self.pin_if_agreed(&array).await;
            }
            self.look(&array).await;
            self.stop(&array).await;
        };
        let shared = self.shared.clone();
        self.world.run(life, || shared.failure.borrow().is_some());
        self.world.forget_all();
        self.check_nothing_is_left()?;
        self.judge()
    }
}
