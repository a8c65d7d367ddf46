//! Rounds of superblocks that are interrupted twice in a row: first by a kill or a power cut, then by a power cut.
//!
//! Afterwards the array must assemble with all its members, and none of them may be stale.

use super::*;
use format::superblock::Resync;

/// The superblock's magic number, as stored on a member.
const MAGIC: [u8; 4] = 0xa92b_4efc_u32.to_le_bytes();

/// One array over several power cuts.
struct Rounds {
    life: Life,
    seed: u64,
}

impl Rounds {
    fn new(setup: Setup, seed: u64) -> Self {
        Self { life: Life::new(setup, seed), seed }
    }

    /// Runs `scene` to its end.
    fn run<T>(&self, scene: impl Future<Output = T>) -> T {
        self.life.world.run(scene, || false).expect("the run is not stopped")
    }

    /// Runs `scene` until this many writes and flushes have begun, then kills its process.
    fn kill_at(&self, boundary: u64, scene: impl Future<Output = ()>) {
        self.life.boundaries.set(0);
        self.life.world.run(scene, || self.life.boundaries.get() >= boundary);
        self.life.world.forget_all();
    }

    /// The same, followed by a power cut.
    fn cut_at(&self, boundary: u64, scene: impl Future<Output = ()>, members: &[SimMember]) {
        self.kill_at(boundary, scene);
        members.iter().for_each(|member| member.lose_power(&mut self.life.random.borrow_mut()));
    }

    async fn assemble(&self, members: &[SimMember]) -> Simulated {
        let assembled = self.life.assemble(members, false).await;
        assembled.unwrap_or_else(|refusal| panic!("seed {}: {refusal}", self.seed))
    }

    /// The first write marks the array dirty: a round of superblocks.
    async fn write_first(&self, members: &[SimMember]) {
        let array = self.assemble(members).await;
        array.write(0, array.pool().zeroed(4096).freeze(), Durability::Ordinary).await.expect("the level survives it");
    }
}

/// The members of a new array of two, full of noise, and two blank members.
async fn pair(rounds: &Rounds) -> (Vec<SimMember>, Vec<SimMember>) {
    let (members, blanks) = rounds.life.create().await;
    let array = rounds.assemble(&members).await;
    rounds.life.fill(&array).await;
    array.stop().await.expect("stops clean");
    (members, blanks)
}

const PAIR: Setup = Setup { slots: 2, ..RAID1 };

/// Writes of a killed server may only be in volatile caches when the next server relies on them.
#[test]
fn no_member_is_stale_after_a_kill_within_a_round_and_a_later_power_cut() {
    let mut killed_within = 0;
    let moments = |seed| (1..10).flat_map(move |kill| (1..10).map(move |cut| (seed, kill, cut)));
    for (seed, kill, cut) in (0..8).flat_map(moments) {
        let rounds = Rounds::new(RAID1, seed);
        let (members, _) = rounds.run(rounds.life.create());
        let before = events(&members[0]);
        rounds.kill_at(kill, rounds.write_first(&members));
        members.iter().for_each(SimMember::end_of_process);
        killed_within += usize::from(members.iter().any(|member| events(member) > before));
        rounds.cut_at(cut, rounds.write_first(&members), &members);
        let status = rounds.run(rounds.assemble(&members)).status();
        let context = format!("seed {seed}, killed at {kill}, cut at {cut}");
        assert_eq!((status.in_sync, status.left_out.len()), (3, 0), "{context}: {:?}", status.left_out);
    }
    assert!(killed_within > 0, "no server was killed at that moment");
}

/// An interrupted round leaves a replacement stale, and its recovery is complete when the next round comes. That round must
/// not write the older state to it, or every superblock would call it a second member of its slot.
#[test]
fn a_stale_replacement_is_never_a_second_member_of_its_slot() {
    let mut left_behind = 0;
    for (seed, first) in (0..6).flat_map(|seed| (1..16).map(move |first| (seed, first))) {
        for second in 1..16 {
            let rounds = Rounds::new(PAIR, seed);
            let (members, blanks) = rounds.run(pair(&rounds));
            let array = rounds.run(async {
                let array = rounds.assemble(&members[..1]).await;
                array.replace(&members[0].name(), candidate(&blanks[0]), [8; 16], false).await.expect("it fits");
                array
            });
            let all: Vec<_> = [&members[0], &blanks[0], &blanks[1]].map(SimMember::clone).into();
            let seat = async { array.add(candidate(&blanks[1]), [9; 16], false).await.expect("it fits") };
            rounds.cut_at(first, seat, &all);
            drop(array);
            let all: Vec<_> = all.into_iter().filter(|member| member.image()[4096..4100] == MAGIC).collect();
            left_behind += usize::from(all.len() == 3 && events(&all[1]) < events(&all[2]));
            let recover = async {
                let array = rounds.assemble(&all).await;
                rounds.life.world.spawn(async move { array.keep_whole().await });
                rounds.life.pause(Duration::from_millis(100)).await;
            };
            rounds.cut_at(second, recover, &all);
            rounds.run(async {
                let array = rounds.assemble(&all).await;
                rounds.life.check(&array).await;
            });
        }
    }
    assert!(left_behind > 0, "the power never went at that moment");
}

/// The second round gives a spare the event count that the replacement has already.
#[test]
fn a_replacement_and_a_spare_that_were_each_written_alone_belong_to_one_array() {
    let mut told_alone = 0;
    for (seed, first) in (0..40).flat_map(|seed| (1..16).map(move |first| (seed, first))) {
        for second in 1..6 {
            let rounds = Rounds::new(PAIR, seed);
            let (members, blanks) = rounds.run(pair(&rounds));
            let array = rounds.run(async {
                let array = rounds.assemble(&members).await;
                for (blank, uuid) in blanks.iter().zip(8..) {
                    array.add(candidate(blank), [uuid; 16], false).await.expect("it fits");
                }
                array
            });
            let all: Vec<_> = members.iter().chain(&blanks).cloned().collect();
            let replace = async {
                let (old, new) = (members[0].name(), blanks[0].name());
                array.replace_with_spare(&old, &new).await.expect("it is a spare");
            };
            rounds.cut_at(first, replace, &all);
            drop(array);
            let others: Vec<_> = members.iter().chain(&blanks[1..]).cloned().collect();
            if others.iter().any(|other| events(other) >= events(&blanks[0])) {
                continue;
            }
            rounds.cut_at(second, rounds.write_first(&others), &all);
            let newest = all.iter().filter(|member| events(member) == events(&blanks[0]));
            told_alone += usize::from(newest.map(SimMember::name).eq([blanks[0].name(), blanks[1].name()]));
            let status = rounds.run(rounds.assemble(&all)).status();
            assert_eq!((status.in_sync, status.left_out.len()), (2, 0), "seed {seed}: {:?}", status.left_out);
        }
    }
    assert!(told_alone > 0, "the power never went at these moments");
}

/// md accepts a member that is one event behind, and resyncs nothing of an array that is clean. So a resync without a member
/// counts only once that member is stale.
#[test]
fn a_resync_without_a_member_is_not_over_while_that_member_is_one_event_behind() {
    let (mut were_one_behind, mut were_clean) = (0, 0);
    for (seed, cut) in (0..4).flat_map(|seed| (1..60).map(move |cut| (seed, cut))) {
        let rounds = Rounds::new(RAID1, seed);
        let (members, _) = rounds.run(rounds.life.create());
        rounds.run(rounds.write_first(&members));
        members.iter().for_each(SimMember::end_of_process);
        let (present, absent) = members.split_at(members.len() - 1);
        let resync = async {
            let array = rounds.assemble(present).await;
            array.resync(&|_, _| {}).await.expect("two copies are left");
        };
        rounds.cut_at(cut, resync, &members);
        let newest = present.iter().map(superblock).max_by_key(|superblock| superblock.events).expect("there are two");
        let is_clean = newest.resync == Resync::Clean;
        let behind = newest.events - events(&absent[0]);
        were_one_behind += usize::from(behind == 1);
        were_clean += usize::from(is_clean);
        assert!(!is_clean || behind > 1, "seed {seed}, cut at {cut}: clean, and the absent member is {behind} behind");
    }
    assert!(were_one_behind > 0 && were_clean > 0, "{were_one_behind} times one behind, {were_clean} times clean");
}

/// What is read of an array in agreement stays as it is. So copies count as agreeing only once an absent member, which lacks
/// the resync, is stale.
#[test]
fn a_resync_without_a_member_counts_for_nothing_before_that_member_is_stale() {
    let mut were_agreed = 0;
    for (seed, cut) in (0..4).flat_map(|seed| (1..60).map(move |cut| (seed, cut))) {
        let rounds = Rounds::new(RAID1, seed);
        let (members, _) = rounds.run(rounds.life.create());
        rounds.run(rounds.write_first(&members));
        members.iter().for_each(SimMember::end_of_process);
        let (present, absent) = members.split_at(members.len() - 1);
        let array = rounds.run(rounds.assemble(present));
        let resync = async {
            array.resync(&|_, _| {}).await.expect("two copies are left");
        };
        rounds.cut_at(cut, resync, &members);
        if !array.status().in_agreement {
            continue;
        }
        were_agreed += 1;
        let newest = present.iter().map(events).max().expect("there are two");
        let behind = newest - events(&absent[0]);
        assert!(behind > 1, "seed {seed}, cut at {cut}: in agreement, and the absent member is {behind} behind");
    }
    assert!(were_agreed > 0, "no resync came to its end");
}

/// A stop flushes what an earlier user wrote and did not flush. A member that was absent may lack that.
#[test]
fn what_a_stop_has_flushed_is_not_read_from_a_member_that_was_absent() {
    let rounds = Rounds::new(RAID1, 1);
    let (members, _) = rounds.run(rounds.life.create());
    rounds.run(rounds.write_first(&members));
    members.iter().for_each(SimMember::end_of_process);
    let (present, absent) = members.split_at(members.len() - 1);
    rounds.run(async {
        let array = rounds.assemble(present).await;
        array.stop().await.expect("nothing fails");
    });
    let all: Vec<_> = present.iter().chain(absent).cloned().collect();
    let status = rounds.run(rounds.assemble(&all)).status();
    assert_eq!((status.in_sync, status.left_out.len()), (2, 1), "{:?}", status.members);
}

/// In one round a member becomes current and another is replaced. The first may not call the second faulty before its
/// successor says that it has taken over.
#[test]
fn each_slot_has_a_member_whenever_power_goes_while_two_become_current() {
    const SETUP: Setup = Setup { slots: 4, ..RAID6 };
    let mut ended_together = false;
    for (seed, cut) in (0..3).flat_map(|seed| (0..400).map(move |cut| (seed, cut))) {
        let rounds = Rounds::new(SETUP, seed);
        let (members, blanks) = rounds.run(rounds.life.create());
        let present = &members[1..];
        let array = rounds.run(async {
            let array = rounds.assemble(&members).await;
            rounds.life.fill(&array).await;
            array.stop().await.expect("stops clean");
            let array = rounds.assemble(present).await;
            array.add(candidate(&blanks[0]), [8; 16], false).await.expect("it fits");
            array.replace(&members[1].name(), candidate(&blanks[1]), [9; 16], false).await.expect("it fits");
            array
        });
        let all: Vec<_> = present.iter().chain(&blanks).cloned().collect();
        let recover = async {
            let keeper = array.clone();
            rounds.life.world.spawn(async move { keeper.keep_whole().await });
            rounds.life.until_whole(&array).await;
        };
        rounds.cut_at(cut + 1, recover, &all);
        let found = rounds.run(rounds.assemble(&all)).status();
        let is_current = found.members.iter().any(|member| member.slot == Some(1) && member.state == "in_sync");
        assert!(is_current, "seed {seed}, cut at {cut}: {:?}", found.members);
        if array.status().in_sync == array.status().raid_disks {
            ended_together = true;
            break;
        }
    }
    assert!(ended_together, "no recovery came to its end");
}
