//! What an observer is told: every transfer, when it begins and ends, and its reason.

use engine::create::{Contents, Newcomer, Recipe, create};
use engine::observe::{Observer, Transfer, TransferOutcome, Watch};
use engine::{Array, AssembleOptions, Candidate, Durability, Operation, Pool};
use format::geometry::Level;
use format::placement::BitmapChoice;
use futures_util::FutureExt;
use mdspace_sim::{SimMember, VirtualClock, World};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

type Simulated = Array<SimMember, VirtualClock>;

const PAGE: u64 = 4096;
const CHUNK: u64 = 16 * PAGE;
const COMPONENT: u64 = 16 * CHUNK;
const DATA_OFFSET: u64 = 64 << 10;
const MEMBERS: usize = 4;
/// Data of a full stripe of RAID-5.
const STRIPE: u64 = (MEMBERS as u64 - 1) * CHUNK;

/// The member and the transfer, and the outcome once it has ended.
type Told = (String, Transfer, Option<TransferOutcome>);

#[derive(Clone, Default)]
struct Recorder(Rc<RefCell<Vec<Told>>>);

struct MemberRecorder {
    name: String,
    all: Recorder,
}

impl Observer for Recorder {
    fn watch(&self, name: &str) -> Rc<dyn Watch> {
        Rc::new(MemberRecorder { name: name.to_owned(), all: self.clone() })
    }
}

impl Watch for MemberRecorder {
    fn begun(&self, transfer: &Transfer) -> u64 {
        let mut all = self.all.0.borrow_mut();
        all.push((self.name.clone(), *transfer, None));
        all.len() as u64 - 1
    }

    fn ended(&self, transfer: &Transfer, begun: u64, outcome: TransferOutcome) {
        let mut all = self.all.0.borrow_mut();
        let (name, told, ended) = &mut all[begun as usize];
        assert_eq!((&*name, &*told), (&self.name, transfer), "what began is what ends");
        assert_eq!(ended.replace(outcome), None, "it ends once");
    }
}

impl Recorder {
    /// The reasons and operations reported since the last call, all of which have ended well.
    fn take(&self) -> BTreeSet<(&'static str, char)> {
        let all = self.0.take();
        assert!(all.iter().all(|(_, _, outcome)| *outcome == Some(TransferOutcome::Done)), "{all:?}");
        all.iter().map(|(_, transfer, _)| (transfer.why.name(), letter(transfer.operation))).collect()
    }
}

fn letter(operation: Operation) -> char {
    match operation {
        Operation::Read => 'R',
        Operation::Write => 'W',
        Operation::Flush => 'F',
        Operation::Discard | Operation::WriteZeroes => 'Z',
    }
}

fn members(world: &World) -> Vec<SimMember> {
    let bytes = (DATA_OFFSET + COMPONENT) as usize;
    (0..=MEMBERS).map(|index| SimMember::new(format!("m{index}"), world, vec![0; bytes], Rc::default())).collect()
}

fn candidate(member: &SimMember) -> Candidate<SimMember> {
    Candidate { name: member.name(), member: member.clone() }
}

/// Plays `life` on an array of the first members.
fn with_array(level: Level, life: impl AsyncFnOnce(&World, &[SimMember], &Simulated, &Recorder)) {
    let world = World::new(1);
    let members = members(&world);
    let recipe = Recipe {
        chunk_bytes: CHUNK,
        name: "sim:observe".to_owned(),
        data_offset_bytes: Some(DATA_OFFSET),
        component_bytes: Some(COMPONENT),
        bitmap: BitmapChoice::Chunk(CHUNK),
        contents: Contents::Consistent,
        ..Recipe::new(level, [7; 16])
    };
    let whole = async {
        let pool = Pool::new(4 << 20);
        let newcomer =
            |(index, member)| Some(Newcomer { candidate: candidate(member), device_uuid: [index as u8; 16] });
        let newcomers: Vec<_> = members[..MEMBERS].iter().enumerate().map(newcomer).collect();
        create(&recipe, &newcomers, &[], &pool, &world.clock(), &|_, _| {}).await.expect("the array is created");
        let offered = members[..MEMBERS].iter().map(candidate).collect();
        let array =
            Array::assemble(offered, AssembleOptions::default(), pool, world.clock()).await.expect("it is whole");
        let recorder = Recorder::default();
        array.observe(Some(Rc::new(recorder.clone())));
        life(&world, &members, &array, &recorder).await;
    };
    world.run(whole, || false);
}

async fn write(array: &Simulated, at: u64, bytes: u64) {
    let block = array.pool().copy_of(&vec![at as u8; bytes as usize]);
    array.write(at, block, Durability::Ordinary).await.expect("nothing fails");
}

async fn read(array: &Simulated, at: u64, bytes: u64) {
    array.read(at, array.pool().take(bytes as usize)).await.expect("the data is available");
}

#[test]
fn each_transfer_is_reported_with_its_reason() {
    let told = |list: &[(&'static str, char)]| list.iter().copied().collect::<BTreeSet<_>>();
    with_array(Level::Raid5, async |_, members, array, recorder| {
        write(array, 3 * PAGE, PAGE).await;
        let marks = [("superblock", 'W'), ("superblock", 'F'), ("intent", 'W'), ("intent", 'F')];
        let part = [("rmw", 'R'), ("data", 'W'), ("parity", 'W')];
        assert_eq!(recorder.take(), told(&[&marks[..], &part].concat()), "the first write marks the array");
        write(array, 10 * PAGE, PAGE).await;
        assert_eq!(recorder.take(), told(&part), "its chunk is marked already");
        write(array, 2 * STRIPE, STRIPE).await;
        assert_eq!(recorder.take(), told(&[("intent", 'W'), ("intent", 'F'), ("stripe", 'W')]));
        read(array, 2 * STRIPE, PAGE).await;
        assert_eq!(recorder.take(), told(&[("data", 'R')]), "one member has it");
        read(array, 2 * STRIPE, STRIPE).await;
        assert_eq!(recorder.take(), told(&[("data", 'R')]), "several have it");
        array.flush().await.expect("nothing fails");
        assert_eq!(recorder.take(), told(&[("data", 'F')]));

        array.fail("m1").await.expect("the others have its data");
        recorder.take();
        for number in 0..MEMBERS as u64 {
            read(array, number * CHUNK, PAGE).await;
        }
        assert_eq!(recorder.take(), told(&[("data", 'R'), ("reconstruct", 'R')]));
        array.add(candidate(&members[MEMBERS]), [9; 16], false).await.expect("it fits");
        recorder.take();
        assert!(array.recover(&|_, _| {}).await.expect("nothing fails"));
        let swept = recorder.take();
        assert!(swept.is_superset(&told(&[("sweep", 'R'), ("sweep", 'W')])), "{swept:?}");
        write(array, 2 * STRIPE, STRIPE).await;
        let names: BTreeSet<String> = recorder.0.borrow().iter().map(|(name, ..)| name.clone()).collect();
        assert_eq!(names.into_iter().collect::<Vec<_>>(), ["m0", "m2", "m3", "m4"], "a newcomer is watched as well");
        array.observe(None);
        recorder.take();
        read(array, 0, PAGE).await;
        array.stop().await.expect("nothing fails");
        assert_eq!(recorder.take(), told(&[]), "the observer is gone");
    });
}

/// Reads and writes of data and parity, and their bytes, by member.
fn sums(recorder: &Recorder) -> BTreeMap<String, [u64; 4]> {
    let mut sums = BTreeMap::<String, [u64; 4]>::new();
    for (name, transfer, _) in &*recorder.0.borrow() {
        let sum = sums.entry(name.clone()).or_default();
        let is_metadata = ["intent", "superblock"].contains(&transfer.why.name());
        match transfer.operation {
            Operation::Read => (sum[0], sum[1]) = (sum[0] + 1, sum[1] + transfer.bytes),
            Operation::Write if !is_metadata => (sum[2], sum[3]) = (sum[2] + 1, sum[3] + transfer.bytes),
            _ => {}
        }
    }
    sums
}

#[test]
fn reported_transfers_add_up_to_the_arrays_counts() {
    for level in [Level::Raid5, Level::Raid6, Level::Raid10] {
        with_array(level, async |_, _, array, recorder| {
            let bytes = array.bytes();
            for number in 0..200 {
                let at = number * 7919 * 512 % (bytes - STRIPE);
                let length = [512, PAGE, 3 * PAGE, CHUNK, STRIPE][number as usize % 5];
                if number % 3 == 0 { read(array, at, length).await } else { write(array, at, length).await }
            }
            let counted: BTreeMap<String, [u64; 4]> = array
                .status()
                .members
                .into_iter()
                .map(|member| (member.name, [member.reads, member.read_bytes, member.writes, member.written_bytes]))
                .collect();
            assert_eq!(sums(recorder), counted, "{level:?}");
        });
    }
}

#[test]
fn an_abandoned_transfer_is_reported_as_ended_too() {
    with_array(Level::Raid5, async |_, _, array, recorder| {
        let mut reading = Box::pin(array.read(0, array.pool().take(PAGE as usize)));
        assert!(reading.as_mut().now_or_never().is_none());
        drop(reading);
        let outcomes: Vec<_> = recorder.0.borrow().iter().map(|(_, _, outcome)| *outcome).collect();
        assert_eq!(outcomes, [Some(TransferOutcome::Abandoned)]);
    });
}
