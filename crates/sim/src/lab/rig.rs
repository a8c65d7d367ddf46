//! An array on modelled drives in a world of its own.

use super::member::{LabMember, Thread, ThreadTime, Trace, Traced};
use crate::drive::{Diskstats, Model, Station, Tally};
use crate::executor::{VirtualClock, World};
use engine::create::{Contents, Newcomer, Recipe, create};
use engine::{Array, AssembleOptions, Candidate, Clock, Pool};
use format::geometry::Level;
use format::integrity::bytes_for;
use format::placement::BitmapChoice;
use format::superblock::Version;
use std::rc::Rc;

/// The array that runs in the laboratory: the one that serves users.
pub(super) type LabArray = Array<LabMember, VirtualClock>;

/// What to set up.
pub(super) struct Setup {
    pub(super) model: Model,
    pub(super) drives: u16,
    /// Members on each drive: its partitions.
    pub(super) partitions: u16,
    /// How many of the members wait without a slot.
    pub(super) spares: u16,
    pub(super) level: Level,
    pub(super) layout: u32,
    pub(super) chunk_bytes: u64,
    /// Bytes used of each member.
    pub(super) component_bytes: u64,
    pub(super) bitmap: BitmapChoice,
    /// The one thread that makes all member transfers.
    pub(super) thread: ThreadTime,
    /// Whether the members keep checksums, of all their blocks from the start.
    pub(super) integrity: bool,
    pub(super) options: AssembleOptions,
}

/// World, drives and array.
pub(super) struct Rig {
    pub(super) world: World,
    pub(super) array: LabArray,
    members: Vec<LabMember>,
    options: AssembleOptions,
    pool: Pool,
    stations: Vec<Rc<Station>>,
    trace: Trace,
}

/// The seed of every laboratory's world: the figures are the same each time.
const SEED: u64 = 1;

/// Room for metadata before and behind the data, besides checksums.
const METADATA_BYTES: u64 = 256 << 20;

impl Rig {
    /// Makes drives, members and array, and assembles it.
    ///
    /// # Panics
    /// When the setup is not one that the engine takes: it is ours.
    pub(super) fn new(setup: Setup) -> Self {
        let world = World::new(SEED);
        let checksums_bytes = if setup.integrity { bytes_for(setup.component_bytes) } else { 0 };
        let member_bytes = setup.component_bytes + checksums_bytes + METADATA_BYTES;
        let station = |drive: u16| Rc::new(Station::new(&world, &setup.model, SEED + u64::from(drive)));
        let stations: Vec<_> = (0..setup.drives).map(station).collect();
        let (thread, trace) = (Rc::new(Thread::new(&world, setup.thread)), Trace::default());
        let member = |index: u16| {
            // Neighbouring slots are on different drives.
            let (drive, part) = (index % setup.drives, index / setup.drives);
            let name = if setup.partitions == 1 { format!("drive{drive}") } else { format!("drive{drive}p{part}") };
            let start = u64::from(part) * member_bytes;
            let station = stations[usize::from(drive)].clone();
            LabMember::new(name, &world, station, start, member_bytes, thread.clone(), trace.clone())
        };
        let members: Vec<_> = (0..setup.drives * setup.partitions).map(member).collect();
        let pool = Pool::new(POOL_BYTES);
        let made = async {
            make(&setup, &members, &pool, &world.clock()).await;
            assemble(&members, &setup.options, &pool, &world.clock()).await
        };
        let array = world.run(made, || false).expect("nobody stops it");
        Self { world, array, members, options: setup.options, pool, stations, trace }
    }

    /// Leaves the array as it is, without stopping it, and assembles it again.
    pub(super) fn assemble_again(&mut self) {
        let clock = self.world.clock();
        let again = assemble(&self.members, &self.options, &self.pool, &clock);
        self.array = self.world.run(again, || false).expect("nobody stops it");
    }

    /// What all drives did so far.
    pub(super) fn tally(&self) -> Tally {
        self.stations.iter().map(|station| station.tally()).fold(Tally::default(), |sum, tally| Tally {
            reads: sum.reads + tally.reads,
            read_bytes: sum.read_bytes + tally.read_bytes,
            writes: sum.writes + tally.writes,
            written_bytes: sum.written_bytes + tally.written_bytes,
        })
    }

    /// The drives.
    pub(super) fn stations(&self) -> &[Rc<Station>] {
        &self.stations
    }

    /// What the queues of all drives did so far.
    pub(super) fn diskstats(&self) -> Vec<Diskstats> {
        self.stations.iter().map(|station| station.diskstats()).collect()
    }

    /// Changes a member's bytes without anybody being told.
    pub(super) fn spoil(&self, member: usize, at: u64, bytes: &[u8]) {
        self.members[member].spoil(at, bytes);
    }

    /// Records transfers from now on.
    pub(super) fn begin_trace(&self) {
        *self.trace.borrow_mut() = Some((self.world.clock().now().nanos, Vec::new()));
    }

    /// What was recorded; nothing more is.
    pub(super) fn end_trace(&self) -> Vec<Traced> {
        self.trace.borrow_mut().take().map_or_else(Vec::new, |(_, traced)| traced)
    }
}

impl Drop for Rig {
    /// Ends what still runs in the world: such tasks hold the world itself.
    fn drop(&mut self) {
        self.world.run(std::future::pending::<()>(), || true);
    }
}

/// Covers what is under way at a time; its memory is reused.
const POOL_BYTES: usize = 64 << 20;

fn candidate(member: &LabMember) -> Candidate<LabMember> {
    Candidate { name: member.name(), member: member.clone() }
}

async fn make(setup: &Setup, members: &[LabMember], pool: &Pool, clock: &VirtualClock) {
    let recipe = Recipe {
        version: Version::V1_2,
        level: setup.level,
        layout: setup.layout,
        chunk_bytes: setup.chunk_bytes,
        name: "lab".to_owned(),
        data_offset_bytes: None,
        component_bytes: Some(setup.component_bytes),
        bitmap: setup.bitmap,
        set_uuid: *b"mdspace's lab   ",
        contents: Contents::Zeros,
        integrity: setup.integrity,
        overwrite: false,
        logical_block_bytes: 0,
    };
    let newcomer =
        |(number, member)| Newcomer { candidate: candidate(member), device_uuid: u128::from(number).to_be_bytes() };
    let mut slots: Vec<_> = (1_u64..).zip(members).map(newcomer).collect();
    let spares = slots.split_off(slots.len() - usize::from(setup.spares));
    let slots: Vec<_> = slots.into_iter().map(Some).collect();
    let created = create(&recipe, &slots, &spares, pool, clock, &|_, _| {}).await;
    created.unwrap_or_else(|refusal| panic!("the laboratory's own setup: {refusal}"));
}

async fn assemble(members: &[LabMember], options: &AssembleOptions, pool: &Pool, clock: &VirtualClock) -> LabArray {
    let candidates = members.iter().map(candidate).collect();
    let assembled = Array::assemble(candidates, options.clone(), pool.clone(), clock.clone()).await;
    assembled.unwrap_or_else(|refusal| panic!("the laboratory's own array: {refusal}"))
}
