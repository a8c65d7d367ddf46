//! The consistency policy of an array that is being written to changes, and power is cut at every write and flush of its
//! members. Afterwards md must be able to start the array, and what no write touched is right. Where a log decides,
//! that holds without any one member, too.

use super::log_scene::{Scene, Shape, assemble, superblock_of};
use engine::{AssembleOptions, ConsistencyPolicy, Operation};
use format::superblock::Version;
use futures_util::future::{join, join_all};
use mdspace_sim::faults::{Mishap, Planned};
use mdspace_sim::judge::judge;
use mdspace_sim::{Random, SimMember, World};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

fn small_shape() -> Shape {
    Shape { slots: 4, chunk: 8192, data_at: 48 << 10, ..Shape::small(ConsistencyPolicy::Resync) }
}

/// What cuts of power have met.
#[derive(Default)]
struct Seen {
    boundaries: u64,
    with_log: u64,
    without_log: u64,
    lost_with_log: u64,
}

/// Changes the policy to one after the other, beside writes, and looks at each boundary.
fn play(shape: Shape, policies: &[ConsistencyPolicy], seed: u64, seen: &mut Seen) {
    let world = World::new(seed);
    let scene = world.run(Scene::new(shape.clone(), &world), || false).expect("the power does not go");
    let random = RefCell::new(Random::new(seed));
    let course = async {
        let array = assemble(&scene.here(), AssembleOptions::default(), &world).await.expect("enough members");
        let writer = async |_| {
            for _ in 0..3 {
                scene.request(&array, &random).await;
            }
        };
        let changes = async {
            for policy in policies {
                array
                    .set_consistency(*policy)
                    .await
                    .unwrap_or_else(|refusal| panic!("{shape:?} {policy:?}: {refusal}"));
            }
        };
        join(join_all((0..2).map(writer)), changes).await;
        array.stop().await.expect("nothing fails");
    };
    let cuts = Cell::new(scene.boundaries.get());
    let seen = RefCell::new(seen);
    let look_at_each = || {
        while cuts.get() < scene.boundaries.get() {
            cuts.set(cuts.get() + 1);
            let context = format!("{shape:?} {policies:?} seed {seed} cut at {}", cuts.get());
            let lost = shape.missing.is_empty().then_some(cuts.get() as usize % scene.here().len());
            look(&scene, &context, cuts.get(), lost, &mut seen.borrow_mut());
        }
        false
    };
    world.run(course, look_at_each).expect("the power does not go");
}

/// What a power cut leaves, as it is and without a member that is lost.
fn look(scene: &Scene, context: &str, cut: u64, lost: Option<usize>, seen: &mut Seen) {
    let mut random = Random::new(cut);
    let world = World::new(cut);
    let mut truth = scene.truth.borrow().clone();
    truth.interrupted();
    let left: Vec<Vec<u8>> = scene.here().iter().map(|member| member.after_power_loss(&mut random)).collect();
    let images: Vec<&[u8]> = left.iter().map(|image| &image[..]).collect();
    let block_bytes = scene.shape.block_bytes as usize;
    let unread = vec![false; scene.rows.len()];
    let judged = judge(&images, None, &scene.rows, &truth, &unread, false, block_bytes);
    judged.unwrap_or_else(|why| panic!("{context}: {why}"));
    for lost in std::iter::once(None).chain(lost.map(Some)) {
        let members: Vec<SimMember> = scene
            .here()
            .iter()
            .zip(&left)
            .map(|(member, image)| {
                SimMember::new(member.name(), &world, image.clone(), Rc::default()).with_blocks(scene.shape.block_bytes)
            })
            .enumerate()
            .filter_map(|(index, member)| (Some(index) != lost).then_some(member))
            .collect();
        let check = async {
            match assemble(&members, AssembleOptions::default(), &world).await {
                Ok(array) => {
                    let has_log = matches!(array.status().consistency_policy, "ppl" | "log");
                    seen.with_log += u64::from(has_log);
                    seen.without_log += u64::from(!has_log);
                    seen.lost_with_log += u64::from(has_log && lost.is_some());
                    let wrong = scene.check(&array, &truth).await.first_wrong;
                    assert_eq!(wrong, None, "{context}");
                }
                Err(refusal) => {
                    let is_write_hole = refusal.reason.contains("dirty and degraded");
                    let is_borne = is_write_hole && (lost.is_some() || !scene.shape.missing.is_empty());
                    assert!(is_borne, "{context} without {lost:?}: {refusal}");
                }
            }
        };
        world.run(check, || false).expect("the power does not go");
        world.forget_all();
    }
    seen.boundaries += 1;
}

/// A member fails one write or flush, or all writes from then on, while the log is turned on; then power goes.
#[test]
fn a_log_is_turned_on_or_refused_when_a_member_fails_anywhere() {
    let shape = Shape { policy: ConsistencyPolicy::Resync, ..small_shape() };
    let (seen, mut turned_on, mut refused) = (RefCell::new(Seen::default()), 0, 0);
    let table = [(Operation::Write, false), (Operation::Write, true), (Operation::Flush, false)];
    let cases = table.into_iter().flat_map(|kind| [0, 1].map(|member| (kind, member)));
    for (((operation, lasts), member), after) in cases.flat_map(|case| (0..14).map(move |after| (case, after))) {
        let world = World::new(after);
        let scene = world.run(Scene::new(shape.clone(), &world), || false).expect("the power does not go");
        let faults = scene.members[member].faults();
        faults.planned.borrow_mut().push(Planned { operation, after, mishap: Mishap::Fail });
        let outcome = Cell::new(None);
        let course = async {
            let array = assemble(&scene.here(), AssembleOptions::default(), &world).await.expect("whole");
            outcome.set(Some(array.set_consistency(ConsistencyPolicy::PartialParity).await.is_ok()));
            array.stop().await.expect("the level survives it");
        };
        let cuts = Cell::new(scene.boundaries.get());
        let look_at_each = || {
            if lasts && faults.planned.borrow().is_empty() && faults.bad_writes.borrow().is_empty() {
                faults.bad_writes.borrow_mut().push(0..u64::MAX);
            }
            while cuts.get() < scene.boundaries.get() {
                cuts.set(cuts.get() + 1);
                let context = format!(
                    "{operation:?} {after} of member {member} fails (from then on: {lasts}), cut at {}",
                    cuts.get()
                );
                look(&scene, &context, cuts.get(), None, &mut seen.borrow_mut());
            }
            false
        };
        world.run(course, look_at_each).expect("the power does not go");
        match outcome.get().expect("it has ended") {
            true => turned_on += 1,
            false => refused += 1,
        }
        // The first member's superblock decides. Beside others without a log, md must not find it to name one.
        let has_log = superblock_of(&scene.members[0].contents(), shape.version).ppl.is_some();
        let is_put_back = lasts || outcome.get() == Some(true) || !has_log;
        assert!(is_put_back, "{operation:?} {after} of member {member} fails: a log is named that was refused");
    }
    assert!(turned_on > 50 && refused > 10, "{turned_on} times turned on, {refused} times refused");
    let seen = seen.into_inner();
    assert!(seen.with_log > 100 && seen.without_log > 100);
}

#[test]
fn a_change_of_the_policy_may_be_interrupted_anywhere() {
    use ConsistencyPolicy::{Bitmap, PartialParity, Resync, StripeLog};
    let table = [
        (Shape { policy: Resync, ..small_shape() }, &[PartialParity, Resync, PartialParity][..]),
        (
            Shape {
                policy: Bitmap,
                has_bitmap: true,
                missing: BTreeSet::from([2]),
                version: Version::V1_1,
                ..small_shape()
            },
            &[PartialParity, Bitmap],
        ),
        (Shape { policy: PartialParity, block_bytes: 4096, ..small_shape() }, &[Bitmap, PartialParity]),
        (Shape { policy: PartialParity, missing: BTreeSet::from([0]), ..small_shape() }, &[Resync, Bitmap, Resync]),
        (Shape { policy: Bitmap, has_bitmap: true, version: Version::V1_0, ..small_shape() }, &[PartialParity]),
        (Shape { policy: Bitmap, has_bitmap: true, ..small_shape() }, &[StripeLog, PartialParity, StripeLog, Resync]),
        (Shape { policy: Resync, missing: BTreeSet::from([1]), ..small_shape() }, &[StripeLog, Resync, StripeLog]),
    ];
    let mut seen = Seen::default();
    for (shape, policies) in table {
        play(shape, policies, 1, &mut seen);
    }
    assert!(seen.boundaries > 300 && seen.with_log > 100 && seen.without_log > 100 && seen.lost_with_log > 50);
}

/// Power goes amid a round, so that a member is one event behind, and again while the log is turned off. md does not start an
/// array of which only some of the newest superblocks name a log.
#[test]
fn a_log_is_turned_off_on_all_members_at_once_after_an_interrupted_round() {
    let shape = Shape { policy: ConsistencyPolicy::PartialParity, ..small_shape() };
    let (seen, mut uneven) = (RefCell::new(Seen::default()), 0);
    for (seed, first) in (0..4).flat_map(|seed| (1..12).map(move |first| (seed, first))) {
        let world = World::new(seed);
        let scene = world.run(Scene::new(shape.clone(), &world), || false).expect("the power does not go");
        let random = RefCell::new(Random::new(seed));
        let before = scene.boundaries.get();
        let begin = async {
            let array = assemble(&scene.here(), AssembleOptions::default(), &world).await.expect("whole");
            scene.request(&array, &random).await;
        };
        world.run(begin, || scene.boundaries.get() >= before + first);
        world.forget_all();
        scene.members.iter().for_each(|member| member.lose_power(&mut random.borrow_mut()));
        scene.truth.borrow_mut().interrupted();
        let events = |member: &SimMember| superblock_of(&member.contents(), shape.version).events;
        let events: BTreeSet<u64> = scene.members.iter().map(events).collect();
        uneven += u64::from(events.len() > 1);
        let course = async {
            let array = assemble(&scene.here(), AssembleOptions::default(), &world).await.expect("whole");
            array.set_consistency(ConsistencyPolicy::Resync).await.expect("it can have none");
            array.stop().await.expect("nothing fails");
        };
        let cuts = Cell::new(scene.boundaries.get());
        let look_at_each = || {
            while cuts.get() < scene.boundaries.get() {
                cuts.set(cuts.get() + 1);
                let context = format!("seed {seed} cut at {first}, then at {}", cuts.get());
                let lost = cuts.get() as usize % scene.here().len();
                look(&scene, &context, cuts.get(), Some(lost), &mut seen.borrow_mut());
            }
            false
        };
        world.run(course, look_at_each).expect("the power does not go");
    }
    let seen = seen.into_inner();
    assert!(uneven > 0 && seen.with_log > 0 && seen.without_log > 0, "{uneven} times uneven");
}
