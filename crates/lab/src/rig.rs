//! An array on modelled drives, in a world of its own.

use crate::drive::{Diskstats, Model, Station, Tally};
use crate::host::{Host, HostTime};
use crate::member::{LabMember, Trace, Traced};
use engine::create::{Contents, Newcomer, Recipe, create};
use engine::{Array, AssembleOptions, Candidate, Clock, Pool, WriteBack};
use format::geometry::Level;
use format::integrity::bytes_for;
use format::placement::BitmapChoice;
use std::rc::Rc;
use world::{VirtualClock, World};

/// The array under test: the engine that serves users, on the laboratory's members and clock.
pub(crate) type LabArray = Array<LabMember, VirtualClock>;

/// Everything that an experiment can set.
pub(crate) struct Setup {
    pub(crate) model: Model,
    pub(crate) drives: u16,
    /// Partitions of each drive; each is a member.
    pub(crate) partitions: u16,
    /// How many of the members are spares.
    pub(crate) spares: u16,
    pub(crate) level: Level,
    pub(crate) layout: u32,
    pub(crate) chunk_bytes: u64,
    /// Bytes used of each member.
    pub(crate) component_bytes: u64,
    pub(crate) bitmap: BitmapChoice,
    /// The thread of the host that all requests and member transfers pass through.
    pub(crate) host: HostTime,
    /// Whether the members hold checksums, of all blocks from the start.
    pub(crate) integrity: bool,
    /// What the array keeps against the write hole.
    pub(crate) log: Log,
    pub(crate) options: AssembleOptions,
}

/// What an array keeps against the write hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Log {
    None,
    /// md's partial parity log.
    PartialParity,
    /// The stripe log.
    Stripe,
}

impl Setup {
    /// An array of these drives on a host that takes no time: left-symmetric or near, no spare, no bitmap, no checksums
    /// and no log.
    pub(crate) fn new(model: Model, drives: u16, level: Level, chunk_bytes: u64, component_bytes: u64) -> Self {
        Self {
            model,
            drives,
            partitions: 1,
            spares: 0,
            level,
            layout: if level == Level::Raid10 { 0x102 } else { 2 },
            chunk_bytes,
            component_bytes,
            bitmap: BitmapChoice::None,
            host: HostTime::NONE,
            integrity: false,
            log: Log::None,
            options: AssembleOptions::default(),
        }
    }
}

/// The world, its drives and the array.
pub(crate) struct Rig {
    pub(crate) world: World,
    pub(crate) array: LabArray,
    /// The host's thread; a load passes through it with each request.
    pub(crate) host: Rc<Host>,
    members: Vec<LabMember>,
    options: AssembleOptions,
    pool: Pool,
    stations: Vec<Rc<Station>>,
    trace: Trace,
}

/// The seed of every experiment, so that figures are the same in each run.
const SEED: u64 = 1;

/// Room on each member for metadata other than checksums.
const METADATA_BYTES: u64 = 256 << 20;

impl Rig {
    /// Makes drives and members, creates the array and assembles it.
    ///
    /// # Panics
    /// If the engine refuses the setup: setups are constants of this crate.
    pub(crate) fn new(setup: Setup) -> Self {
        let world = World::new(SEED);
        let checksums_bytes = if setup.integrity { bytes_for(setup.component_bytes) } else { 0 };
        let member_bytes = setup.component_bytes + checksums_bytes + METADATA_BYTES;
        let station = |drive: u16| Rc::new(Station::new(&world, &setup.model, SEED + u64::from(drive)));
        let stations: Vec<_> = (0..setup.drives).map(station).collect();
        let (host, trace) = (Rc::new(Host::new(&world, setup.host)), Trace::default());
        let member = |index: u16| {
            // Members in neighbouring slots are on different drives.
            let (drive, part) = (index % setup.drives, index / setup.drives);
            let name = if setup.partitions == 1 { format!("drive{drive}") } else { format!("drive{drive}p{part}") };
            let start = u64::from(part) * member_bytes;
            let station = stations[usize::from(drive)].clone();
            LabMember::new(name, &world, station, start, member_bytes, host.clone(), trace.clone())
        };
        let members: Vec<_> = (0..setup.drives * setup.partitions).map(member).collect();
        let pool = Pool::new(POOL_BYTES);
        let made = async {
            make(&setup, &members, &pool, &world.clock()).await;
            assemble(&members, &setup.options, &pool, &world.clock()).await
        };
        let array = world.run(made, || false).expect("the run is not stopped");
        Self { world, array, host, members, options: setup.options, pool, stations, trace }
    }

    /// Assembles the array again without having stopped it.
    pub(crate) fn assemble_again(&mut self) {
        let clock = self.world.clock();
        let again = assemble(&self.members, &self.options, &self.pool, &clock);
        self.array = self.world.run(again, || false).expect("the run is not stopped");
    }

    /// Answers streams from memory from now on, as `mdspace serve --cache streams` does.
    pub(crate) fn answer_streams(&self) {
        let array = self.array.clone();
        self.world.spawn(async move { array.write_back(WriteBack::Streams).await });
    }

    /// The drives.
    pub(crate) fn stations(&self) -> &[Rc<Station>] {
        &self.stations
    }

    /// Commands of all drives so far.
    pub(crate) fn tally(&self) -> Tally {
        self.stations.iter().map(|station| station.tally()).fold(Tally::default(), |sum, tally| Tally {
            reads: sum.reads + tally.reads,
            read_bytes: sum.read_bytes + tally.read_bytes,
            writes: sum.writes + tally.writes,
            written_bytes: sum.written_bytes + tally.written_bytes,
        })
    }

    /// Statistics of each drive's queue so far.
    pub(crate) fn diskstats(&self) -> Vec<Diskstats> {
        self.stations.iter().map(|station| station.diskstats()).collect()
    }

    /// Overwrites bytes of a member without any report: silent corruption.
    pub(crate) fn spoil(&self, member: usize, at: u64, bytes: &[u8]) {
        self.members[member].spoil(at, bytes);
    }

    /// Starts to record member transfers.
    pub(crate) fn begin_trace(&self) {
        *self.trace.borrow_mut() = Some((self.world.clock().now().nanos, Vec::new()));
    }

    /// Ends the recording; returns the transfers.
    pub(crate) fn end_trace(&self) -> Vec<Traced> {
        self.trace.borrow_mut().take().map_or_else(Vec::new, |(_, traced)| traced)
    }
}

impl Drop for Rig {
    /// Drops the tasks that still run in the world: they hold the world itself.
    fn drop(&mut self) {
        if self.array.status().cache.write_back.is_some() {
            let written = self.world.run(self.array.write_through(), || false);
            drop(written); // an experiment's members may have failed
        }
        self.world.run(std::future::pending::<()>(), || true);
    }
}

/// Enough for all transfers in flight; the memory is reused.
const POOL_BYTES: usize = 64 << 20;

fn candidate(member: &LabMember) -> Candidate<LabMember> {
    Candidate { name: member.name(), member: member.clone() }
}

async fn make(setup: &Setup, members: &[LabMember], pool: &Pool, clock: &VirtualClock) {
    let recipe = Recipe {
        layout: setup.layout,
        chunk_bytes: setup.chunk_bytes,
        name: "lab".to_owned(),
        component_bytes: Some(setup.component_bytes),
        bitmap: setup.bitmap,
        // Of members known to be zeros no checksum would be read: such an array is quicker than one in use.
        contents: if setup.integrity { Contents::Consistent } else { Contents::Zeros },
        integrity: setup.integrity,
        parity_log: setup.log == Log::PartialParity,
        stripe_log: setup.log == Log::Stripe,
        ..Recipe::new(setup.level, *b"mdspace's lab   ")
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
