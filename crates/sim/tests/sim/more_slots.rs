//! Reshapes to more slots, begun and carried out by the engine: the bytes before and after, with power cut at every write and
//! flush, and with a member lost at that time.

use engine::{Array, AssembleOptions, Offer, Refusal, ScrubAction, ScrubRequest};
use format::superblock::{Superblock, Version, decode};
use format::units::MemberByte;
use mdspace_sim::reshaped::{Scene, candidates, cases, pool, reshape, reshaping};
use mdspace_sim::{Random, SimMember, VirtualClock, World};
use std::rc::Rc;

type Simulated = Array<SimMember, VirtualClock>;

async fn assemble(members: &[SimMember], world: &World) -> Result<Simulated, Refusal> {
    Array::assemble(candidates(members), AssembleOptions::default(), pool(), world.clock()).await
}

/// Reads the array, or refuses, without some member.
async fn read(members: &[SimMember], without: Option<usize>, world: &World) -> Result<Vec<u8>, Refusal> {
    let here = members.iter().enumerate().filter(|(index, _)| Some(*index) != without);
    let here: Vec<_> = here.map(|(_, member)| member.clone()).collect();
    let array =
        Array::assemble_to_read(Offer::of(candidates(&here)), AssembleOptions::default(), pool(), world.clock())
            .await?;
    let read = array.read(0, array.pool().take(array.bytes() as usize)).await;
    Ok(read.unwrap_or_else(|error| panic!("without {without:?}: {error}")).to_vec())
}

/// The array is as after the whole reshape: its old bytes, zeros behind them, and parity that agrees.
async fn check_reshaped(scene: &Scene, members: &[SimMember], missing: u16, context: &str, world: &World) {
    let array = assemble(members, world).await.unwrap_or_else(|refusal| panic!("{context}: {refusal}"));
    let status = array.status();
    assert_eq!(
        (status.raid_disks, status.in_sync),
        (scene.case.new_slots, scene.case.new_slots - missing),
        "{context}"
    );
    assert!(status.in_agreement, "{context}: {status:?}");
    let read = array.read(0, array.pool().take(array.bytes() as usize)).await.expect("readable");
    assert!(read[..scene.bytes.len()] == scene.bytes, "{context}: other bytes");
    assert!(read[scene.bytes.len()..].iter().all(|byte| *byte == 0), "{context}: no zeros behind");
    let request = ScrubRequest { action: ScrubAction::Check, range: None };
    array.begin_scrub(&request).expect("it can be checked");
    array.scrub(&|_, _| {}).await.expect("it is checked");
    let report = array.scrub_report().expect("there is one");
    assert_eq!(report.found.counts.mismatch_cnt, 0, "{context}: {report:?}");
    array.stop().await.expect("clean");
}

#[test]
fn an_array_with_more_slots_has_its_bytes_and_zeros_behind_them() {
    for (seed, case) in cases() {
        let scene = Scene::new(case, seed);
        let world = World::new(seed);
        let members = scene.members(&world, &Rc::default());
        let course = async {
            let context = format!("{case:?}");
            reshape(case, &members, &world).await.unwrap_or_else(|refusal| panic!("{context}: {refusal}"));
            check_reshaped(&scene, &members, 0, &context, &world).await;
        };
        world.run(course, || false).expect("the power does not go");
    }
}

/// What was found after power cuts.
#[derive(Debug, Default)]
struct Seen {
    cuts: u64,
    old: u64,
    amid: u64,
    new: u64,
    left_out: u64,
}

#[test]
fn power_may_go_at_any_write_of_a_reshape_and_again_amid_its_rest() {
    let mut seen = Seen::default();
    for (seed, case) in cases() {
        let scene = Scene::new(case, seed);
        let mut random = Random::new(seed ^ 0xcafe);
        let mut cut = 1;
        loop {
            if !cut_at(&scene, cut, &mut random, &mut seen) {
                break;
            }
            cut += if cut < 60 { 1 } else { random.within(1..12) };
        }
    }
    assert!(seen.old > 50 && seen.amid > 200 && seen.new > 10 && seen.left_out > 20, "{seen:?}");
}

/// Cuts power at a boundary. Returns whether it came before the end.
fn cut_at(scene: &Scene, cut: u64, random: &mut Random, seen: &mut Seen) -> bool {
    let world = World::new(cut);
    let Some((members, boundaries)) = scene.cut(cut, &world, random) else { return false };
    seen.cuts += 1;
    let context = format!("{:?} cut at {cut}", scene.case);
    look(scene, &members, &context, seen, &world);
    // Power goes again while the reshape goes on, maybe without a member, which then returns.
    let absent = random.once_in(2).then(|| random.within(0..members.len() as u64) as usize);
    let here: Vec<_> =
        (0..members.len()).filter(|index| Some(*index) != absent).map(|at| members[at].clone()).collect();
    let again = boundaries.get() + random.within(1..60);
    let context = format!("{context}, and at {again} without {absent:?}");
    if absent.is_some() {
        let before: Vec<_> = here.iter().map(SimMember::contents).collect();
        let asked =
            async { reshaping(&here, &world).await.carry_out(&AssembleOptions::default(), false, &|_, _| {}).await };
        assert!(world.run(asked, || false).expect("no cut").is_err(), "{context}: it goes on without being told to");
        assert!(here.iter().map(SimMember::contents).eq(before), "{context}: what was refused has changed a member");
    }
    let rest = async {
        match reshaping(&here, &world).await.carry_out(&AssembleOptions::default(), true, &|_, _| {}).await {
            Ok(_) => {}
            Err(refusal) if refusal.reason.contains("no reshape is under way") => {}
            // A new member that does not know of its slot yet, and one that is absent.
            Err(refusal) if absent.is_some() && refusal.reason.starts_with("too few members") => {}
            Err(refusal) => panic!("{context}: {refusal}"),
        }
    };
    let is_cut = world.run(rest, || boundaries.get() >= again).is_none();
    if is_cut {
        here.iter().for_each(|member| member.lose_power(random));
    }
    let course = async {
        let read = read(&members, None, &world).await.unwrap_or_else(|refusal| panic!("{context}: {refusal}"));
        assert!(read[..scene.bytes.len()] == scene.bytes, "{context}: other bytes");
        go_on(scene, &members, &context, &world).await;
        let array = assemble(&members, &world).await.unwrap_or_else(|refusal| panic!("{context}: {refusal}"));
        let left_out: Vec<_> = array.status().left_out.into_iter().map(|left_out| left_out.name).collect();
        array.stop().await.expect("nothing was written");
        drop(array);
        seen.left_out += left_out.len() as u64;
        let expected = absent.map(|index| members[index].name());
        assert!(left_out.iter().all(|name| Some(name) == expected.as_ref()), "{context}: {left_out:?}");
        check_reshaped(scene, &members, left_out.len() as u16, &context, &world).await;
    };
    world.run(course, || false).expect("the power does not go");
    true
}

/// Ends the reshape, or begins it anew.
async fn go_on(scene: &Scene, members: &[SimMember], context: &str, world: &World) {
    let carried = reshaping(members, world).await.carry_out(&AssembleOptions::default(), true, &|_, _| {}).await;
    let Err(refusal) = carried else { return };
    assert!(refusal.reason.contains("no reshape is under way"), "{context}: {refusal}");
    let array = assemble(members, world).await.unwrap_or_else(|refusal| panic!("{context}: {refusal}"));
    let is_old = array.status().raid_disks == scene.case.slots;
    drop(array);
    if is_old {
        let begun = reshape(scene.case, members, world).await;
        begun.unwrap_or_else(|refusal| panic!("{context}: {refusal}"));
    }
}

/// What md would make of these superblocks: it takes members that are at most one event behind, and reads each where its
/// own superblock says, in the shape of the freshest. So they must all say the same place.
fn check_for_md(members: &[SimMember], context: &str) {
    let superblock = |member: &SimMember| {
        let image = member.contents();
        let (at, place) = (MemberByte(4096), &image[4096..8192]);
        decode(Version::V1_2, at, place, image.len() as u64).expect("valid").expect("it is a member")
    };
    let superblocks: Vec<_> = members.iter().map(superblock).collect();
    let freshest = superblocks.iter().max_by_key(|own| own.events).expect("there are members");
    let taken = || superblocks.iter().filter(|own| own.events + 1 >= freshest.events);
    let is_under_way = freshest.reshape.is_some() && !freshest.is_reshape_announced();
    let new_place = |own: &Superblock| own.data_offset.0 as i64 + i64::from(own.new_offset.unwrap_or(0));
    let is_alike = |own: &Superblock| match is_under_way {
        true => new_place(own) == new_place(freshest),
        false => own.data_offset == freshest.data_offset,
    };
    assert!(taken().all(is_alike), "{context}: md would look for the data of some members elsewhere");
}

/// The array's bytes can be read, also without any one member.
fn look(scene: &Scene, members: &[SimMember], context: &str, seen: &mut Seen, world: &World) {
    check_for_md(members, context);
    let course = async {
        for without in std::iter::once(None).chain((0..members.len()).map(Some)) {
            let read = read(members, without, world).await;
            let read = read.unwrap_or_else(|refusal| panic!("{context} without {without:?}: {refusal}"));
            assert!(read[..scene.bytes.len()] == scene.bytes, "{context} without {without:?}: other bytes");
        }
        let whole =
            Array::assemble_to_read(Offer::of(candidates(members)), AssembleOptions::default(), pool(), world.clock());
        let status = whole.await.expect("readable").status();
        match (status.reshape.is_some(), status.raid_disks == scene.case.slots) {
            (true, _) => seen.amid += 1,
            (false, true) => seen.old += 1,
            (false, false) => seen.new += 1,
        }
    };
    world.run(course, || false).expect("the power does not go");
}
