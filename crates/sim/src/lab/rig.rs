//! An array on modelled drives in a world of its own.

use super::member::{LabMember, Thread, Trace, Traced};
use crate::drive::{Model, Station, Tally};
use crate::executor::{VirtualClock, World};
use engine::create::{Contents, Newcomer, Recipe, create};
use engine::{Array, AssembleOptions, Candidate, Clock, Pool};
use format::geometry::Level;
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
    pub(super) level: Level,
    pub(super) layout: u32,
    pub(super) chunk_bytes: u64,
    /// Bytes used of each member.
    pub(super) component_bytes: u64,
    pub(super) bitmap: BitmapChoice,
    /// How long a member transfer occupies the one thread that makes them all.
    pub(super) transfer_nanos: u64,
    pub(super) options: AssembleOptions,
}

/// World, drives and array.
pub(super) struct Rig {
    pub(super) world: World,
    pub(super) array: LabArray,
    stations: Vec<Rc<Station>>,
    trace: Trace,
}

/// The seed of every laboratory's world: the figures are the same each time.
const SEED: u64 = 1;

/// Room for metadata before and behind the data.
const METADATA_BYTES: u64 = 256 << 20;

impl Rig {
    /// Makes drives, members and array, and assembles it.
    ///
    /// # Panics
    /// When the setup is not one that the engine takes: it is ours.
    pub(super) fn new(setup: Setup) -> Self {
        let world = World::new(SEED);
        let member_bytes = setup.component_bytes + METADATA_BYTES;
        let station = |drive: u16| Rc::new(Station::new(&world, &setup.model, SEED + u64::from(drive)));
        let stations: Vec<_> = (0..setup.drives).map(station).collect();
        let (thread, trace) = (Rc::new(Thread::new(&world, setup.transfer_nanos)), Trace::default());
        let member = |index: u16| {
            // Neighbouring slots are on different drives.
            let (drive, part) = (index % setup.drives, index / setup.drives);
            let name = if setup.partitions == 1 { format!("drive{drive}") } else { format!("drive{drive}p{part}") };
            let start = u64::from(part) * member_bytes;
            let station = stations[usize::from(drive)].clone();
            LabMember::new(name, &world, station, start, member_bytes, thread.clone(), trace.clone())
        };
        let members: Vec<_> = (0..setup.drives * setup.partitions).map(member).collect();
        let array = world.run(assemble(setup, &members, world.clock()), || false).expect("nobody stops it");
        Self { world, array, stations, trace }
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

async fn assemble(setup: Setup, members: &[LabMember], clock: VirtualClock) -> LabArray {
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
        contents: Contents::Consistent,
        overwrite: false,
    };
    /// Covers what is under way at a time; its memory is reused.
    const POOL_BYTES: usize = 64 << 20;
    let pool = Pool::new(POOL_BYTES);
    let candidate = |member: &LabMember| Candidate { name: member.name(), member: member.clone() };
    let newcomer = |(number, member)| {
        let device_uuid = u128::from(number).to_be_bytes();
        Some(Newcomer { candidate: candidate(member), device_uuid })
    };
    let newcomers: Vec<_> = (1_u64..).zip(members).map(newcomer).collect();
    let created = create(&recipe, &newcomers, &[], &pool, &clock, &|_, _| {}).await;
    created.unwrap_or_else(|refusal| panic!("the laboratory's own setup: {refusal}"));
    let candidates = members.iter().map(candidate).collect();
    let assembled = Array::assemble(candidates, setup.options, pool, clock).await;
    assembled.unwrap_or_else(|refusal| panic!("the laboratory's own array: {refusal}"))
}
