//! Degraded arrays over members in memory. Reads return the data written, reconstructed from the remaining members.
//! They complete at their first poll, and read no byte without need.

mod support;

use engine::create::{Contents, Newcomer, Recipe, create};
use engine::{Array, AssembleOptions, Candidate, Durability, Member, Pool};
use format::geometry::Level;
use mdspace_io::{MemoryMember, RealClock};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use support::{executor, filled, poll_once};

const CHUNK_BYTES: u64 = 64 << 10;
const MEMBERS: usize = 6;
const WRITTEN_BYTES: usize = 2 << 20;

/// An array of this level without the members of these indexes, and the data written while it was whole.
async fn degraded(level: Level, missing: &[usize], pool: &Pool) -> (Array<Rc<MemoryMember>, RealClock>, Vec<u8>) {
    let recipe = Recipe {
        chunk_bytes: CHUNK_BYTES,
        name: "degraded".to_owned(),
        contents: Contents::Consistent,
        ..Recipe::new(level, [7; 16])
    };
    let members = [(); MEMBERS].map(|()| Rc::new(MemoryMember::new(8 << 20).expect("memory")));
    let candidate = |index: usize| Candidate { name: format!("m{index}"), member: members[index].clone() };
    let newcomer = |index: usize| Some(Newcomer { device_uuid: [index as u8; 16], candidate: candidate(index) });
    let newcomers: Vec<_> = (0..MEMBERS).map(newcomer).collect();
    create(&recipe, &newcomers, &[], pool, &RealClock::new(), &|_, _| {}).await.expect("it is made");
    let assemble = async |without: &[usize]| {
        let offered = (0..MEMBERS).filter(|index| !without.contains(index)).map(candidate).collect();
        let array = Array::assemble(offered, AssembleOptions::default(), pool.clone(), RealClock::new());
        array.await.expect("it can be used")
    };
    let whole = assemble(&[]).await;
    let data = filled(pool, WRITTEN_BYTES, 1);
    let kept = data.to_vec();
    whole.write(0, data.freeze(), Durability::Ordinary).await.expect("it is written");
    whole.stop().await.expect("it stops");
    drop(whole);
    (assemble(missing).await, kept)
}

/// Levels and missing members: each single member, and each pair.
fn losses() -> Vec<(Level, Vec<usize>)> {
    let one = |level| (0..MEMBERS).map(move |index| (level, vec![index]));
    let two = (0..MEMBERS).flat_map(|a| (a + 1..MEMBERS).map(move |b| (Level::Raid6, vec![a, b])));
    one(Level::Raid5).chain(one(Level::Raid6)).chain(two).collect()
}

#[test]
fn every_part_of_lost_data_is_reconstructed_at_once_and_correctly() {
    let (executor, pool) = executor();
    executor.block_on(async {
        for (level, missing) in losses() {
            let (array, data) = degraded(level, &missing, &pool).await;
            let lengths = [512, 4096, 20 << 10, CHUNK_BYTES as usize, 200 << 10, WRITTEN_BYTES];
            for (step, bytes) in lengths.into_iter().enumerate() {
                for at in (0..=WRITTEN_BYTES - bytes).step_by((28 << 10) + 512 * step) {
                    let mut reading = pin!(array.read(at as u64, pool.take(bytes)));
                    let Poll::Ready(read) = poll_once(&mut reading).await else {
                        panic!("{level:?} without {missing:?}: a read of {bytes} bytes at {at} waits");
                    };
                    let is_right = read.expect("it can be read")[..] == data[at..at + bytes];
                    assert!(is_right, "{level:?} without {missing:?}: {bytes} bytes at {at}");
                }
            }
            array.stop().await.expect("it stops");
        }
    });
}

#[test]
fn sequential_reads_read_only_the_needed_range_of_each_other_member() {
    let (executor, pool) = executor();
    executor.block_on(async {
        let (array, data) = degraded(Level::Raid5, &[0], &pool).await;
        let read = || array.status().members.iter().map(|member| member.read_bytes).collect::<Vec<_>>();
        let before = read();
        // Left-symmetric: the first chunk of the first stripe lies on the first member. The reads form a stream, for
        // which the other members would be read ahead.
        for at in (0..CHUNK_BYTES).step_by(4096) {
            let got = array.read(at, pool.take(4096)).await.expect("it can be read");
            assert!(got[..] == data[at as usize..][..4096]);
        }
        let now = read().into_iter().zip(before).map(|(now, before)| now - before).collect::<Vec<_>>();
        assert_eq!(now, [CHUNK_BYTES; MEMBERS - 1], "the present members");
        array.stop().await.expect("it stops");
    });
}

#[test]
fn memory_is_never_changed_while_it_is_borrowed() {
    let (executor, pool) = executor();
    executor.block_on(async {
        let member = MemoryMember::new(1 << 20).expect("memory");
        let at = format::units::MemberByte(8192);
        member.write(at, filled(&pool, 4096, 3).freeze()).await.expect("it is written");
        let lent = member.lend(at, 4096).expect("it is in place").expect("it is within the member");
        assert!(lent[..] == filled(&pool, 4096, 3)[..]);
        let change = || poll(member.write_zeroes(at, 4096));
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(change)).is_err();
        assert!(panicked, "a borrowed range was changed");
        assert!(lent[..] == filled(&pool, 4096, 3)[..]);
        drop(lent);
        change().expect("the borrow has ended");
        assert!(member.lend(at, 4096).expect("in place").expect("within").iter().all(|byte| *byte == 0));
        assert!(member.lend(at, 1 << 20).expect("it is in place").is_err(), "not beyond its end");
    });
}

/// The output of a future that completes at its first poll.
fn poll<F: Future>(future: F) -> F::Output {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match pin!(future).poll(&mut context) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits"),
    }
}
