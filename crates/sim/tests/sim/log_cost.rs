//! What a log costs: the members' transfers for random writes of 4 KiB, with md's partial parity log, with md's write
//! journal, with the stripe log, and without any. Counts are exact, and the same in each run.

use super::policy_records;
use engine::create::{Contents, Newcomer, Newcomers, Recipe, create_announced};
use engine::observe::{Observer, Transfer, TransferOutcome, Watch, Why};
use engine::{Array, AssembleOptions, Candidate, ConsistencyPolicy, Durability, Operation, Pool};
use format::geometry::Level;
use format::placement::BitmapChoice;
use futures_util::{StreamExt, stream};
use mdspace_sim::{Random, SimMember, World};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

const MEMBERS: usize = 8;
const DEPTH: usize = 32;
const REQUESTS: u64 = 4096;
const REQUEST_BYTES: u64 = 4096;
const DATA_OFFSET: u64 = 512 << 10;
const COMPONENT: u64 = 4 << 20;
/// Bytes of the journal, which goes round three times.
const JOURNAL: u64 = 16 << 20;

/// Transfers and bytes by purpose and operation.
type Totals = HashMap<(&'static str, Operation), (u64, u64)>;

#[derive(Clone, Default)]
struct Counts(Rc<RefCell<Totals>>);

impl Observer for Counts {
    fn watch(&self, _: &str) -> Rc<dyn Watch> {
        Rc::new(self.clone())
    }
}

impl Watch for Counts {
    fn begun(&self, transfer: &Transfer) -> u64 {
        let mut counts = self.0.borrow_mut();
        let (count, bytes) = counts.entry((transfer.why.name(), transfer.operation)).or_default();
        (*count, *bytes) = (*count + 1, *bytes + transfer.bytes);
        0
    }

    fn ended(&self, _: &Transfer, _: u64, _: TransferOutcome) {}
}

impl Counts {
    fn of(&self, why: Why, operation: Operation) -> (u64, u64) {
        self.0.borrow().get(&(why.name(), operation)).copied().unwrap_or_default()
    }

    /// Transfers of all purposes, and their bytes.
    fn all(&self, operation: Operation) -> (u64, u64) {
        let counts = self.0.borrow();
        let same = counts.iter().filter(|((_, other), _)| *other == operation);
        same.fold((0, 0), |sum, (_, (count, bytes))| (sum.0 + count, sum.1 + bytes))
    }
}

/// Counts random writes, and the virtual time that they take.
fn count(level: Level, policy: ConsistencyPolicy) -> (Counts, u64) {
    let world = World::new(1);
    let member = |index| {
        let data = if index == MEMBERS { JOURNAL } else { COMPONENT };
        SimMember::new(format!("m{index}"), &world, vec![0; (DATA_OFFSET + data) as usize], Rc::default())
    };
    let devices = MEMBERS + usize::from(policy == ConsistencyPolicy::Journal);
    let members: Vec<SimMember> = (0..devices).map(member).collect();
    let recipe = Recipe {
        chunk_bytes: 64 << 10,
        data_offset_bytes: Some(DATA_OFFSET),
        component_bytes: Some(COMPONENT),
        contents: Contents::Consistent,
        parity_log: policy == ConsistencyPolicy::PartialParity,
        stripe_log: policy == ConsistencyPolicy::StripeLog,
        bitmap: match policy {
            ConsistencyPolicy::Bitmap => BitmapChoice::DefaultChunk,
            _ => BitmapChoice::None,
        },
        ..Recipe::new(level, [7; 16])
    };
    let candidate = |member: &SimMember| Candidate { name: member.name(), member: member.clone() };
    let course = async {
        let (pool, clock) = (Pool::new(4 << 20), world.clock());
        let newcomer =
            |(index, member)| Some(Newcomer { candidate: candidate(member), device_uuid: [index as u8; 16] });
        let mut slots: Vec<_> = members.iter().enumerate().map(newcomer).collect();
        let journal = slots.split_off(MEMBERS).pop().flatten();
        let newcomers = Newcomers { slots: &slots, spares: &[], journal: journal.as_ref() };
        create_announced(&recipe, newcomers, &pool, &clock, &|_, _| {}, &|| {}).await.expect("created");
        let offered = members.iter().map(candidate).collect();
        let array = Array::assemble(offered, AssembleOptions::default(), pool, clock).await.expect("whole");
        let block = array.pool().copy_of(&[7; REQUEST_BYTES as usize]);
        array.write(0, block.clone(), Durability::Stable).await.expect("nothing fails"); // it is marked dirty
        let counts = Counts::default();
        array.observe(Some(Rc::new(counts.clone())));
        let began = world.clock();
        let began = engine::Clock::now(&began).nanos;
        let mut random = Random::new(1);
        let places: Vec<u64> = (0..REQUESTS).map(|_| random.within(0..array.bytes() / REQUEST_BYTES)).collect();
        let write = |place: u64| array.write(place * REQUEST_BYTES, block.clone(), Durability::Ordinary);
        let written = stream::iter(places.into_iter().map(write)).buffer_unordered(DEPTH);
        written.for_each(|result| async { result.expect("nothing fails") }).await;
        array.observe(None);
        (counts, engine::Clock::now(&world.clock()).nanos - began)
    };
    world.run(course, || false).expect("the power does not go")
}

/// The most that a log may cost a request: writes of the log, and flushes.
struct Bounds {
    writes: f64,
    flushes: f64,
}

#[test]
fn at_depth_32_a_log_costs_no_more_writes_and_flushes_than_these() {
    let per_request = |count: u64| count as f64 / REQUESTS as f64;
    let table = [
        (Level::Raid5, ConsistencyPolicy::Resync, Bounds { writes: 0.0, flushes: 0.0 }),
        (Level::Raid5, ConsistencyPolicy::Bitmap, Bounds { writes: 0.0, flushes: 0.0 }),
        (Level::Raid5, ConsistencyPolicy::PartialParity, Bounds { writes: 0.5, flushes: 1.0 }),
        (Level::Raid5, ConsistencyPolicy::Journal, Bounds { writes: 0.8, flushes: 0.2 }),
        (Level::Raid5, ConsistencyPolicy::StripeLog, Bounds { writes: 0.6, flushes: 0.8 }),
        (Level::Raid6, ConsistencyPolicy::Resync, Bounds { writes: 0.0, flushes: 0.0 }),
        (Level::Raid6, ConsistencyPolicy::Journal, Bounds { writes: 1.0, flushes: 0.2 }),
        (Level::Raid6, ConsistencyPolicy::Bitmap, Bounds { writes: 0.0, flushes: 0.0 }),
        (Level::Raid6, ConsistencyPolicy::StripeLog, Bounds { writes: 1.2, flushes: 1.6 }),
    ];
    let mut stale = Vec::new();
    for (level, policy, bounds) in table {
        let (counts, nanos) = count(level, policy);
        let (log_writes, log_bytes) = counts.of(Why::Log, Operation::Write);
        let (writes, bytes) = counts.all(Operation::Write);
        let flushes = per_request(counts.all(Operation::Flush).0);
        let figures = [
            format!("{:.2}", per_request(counts.all(Operation::Read).0)),
            format!("{:.2}", per_request(writes)),
            format!("{flushes:.2}"),
            format!("{:.0}", per_request(bytes)),
            format!("{:.1}", nanos as f64 / REQUESTS as f64 / 1000.0),
        ];
        println!(
            "{level:?} {policy:?}: {:.3} writes, {:.0} bytes of the log",
            per_request(log_writes),
            per_request(log_bytes)
        );
        stale.extend(policy_records::print_cost(policy, level, &figures).err());
        assert_eq!(log_writes > 0, bounds.writes > 0.0, "{level:?} {policy:?}");
        assert!(per_request(log_writes) <= bounds.writes, "{level:?} {policy:?}: {log_writes} writes of the log");
        assert!(flushes <= bounds.flushes, "{level:?} {policy:?}: {flushes} flushes");
        let bytes = 4.0 * bounds.writes * REQUEST_BYTES as f64;
        assert!(per_request(log_bytes) <= bytes, "{level:?} {policy:?}: {log_bytes} bytes of the log");
    }
    assert_eq!(stale, [""; 0]);
}
