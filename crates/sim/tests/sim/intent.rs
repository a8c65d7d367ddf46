//! Bitmaps of several pages. md reads the bitmap of a single member, so a bit must be on all members before data is
//! written under it. An interrupted round may have left the bit on one member only, or a spare may take a slot when the
//! bit is set already. The bitmaps of the simulated histories have one page, which is written with every header.

use engine::create::{Contents, Newcomer, Recipe, create};
use engine::{
    Array, AssembleOptions, BitmapClearing, BitmapPolicy, Candidate, Clock, Durability, Pool, ScrubAction,
    ScrubRequest, SyncSpeed,
};
use format::bitmap::{SUPER_BYTES, is_set};
use format::geometry::Level;
use format::superblock::{Superblock, Version, decode};
use format::units::MemberByte;
use futures_util::FutureExt;
use futures_util::future::{Either, join, join_all, select};
use mdspace_sim::{SimMember, World};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

const MEMBERS: usize = 2;
const SUPERBLOCK_AT: u64 = 4096;
const CHUNK_BYTES: u64 = 4096;
const DATA_OFFSET: u64 = 1 << 20;
const COMPONENT: u64 = 124 << 20;
/// A bit on the second page of the bitmap.
const BIT: u64 = 31_000;

fn member(name: String, world: &World) -> SimMember {
    member_of(COMPONENT, name, world)
}

fn member_of(component: u64, name: String, world: &World) -> SimMember {
    SimMember::new(name, world, vec![0; (DATA_OFFSET + component) as usize], Rc::default())
}

fn candidates(members: &[SimMember]) -> Vec<Candidate<SimMember>> {
    members.iter().map(|member| Candidate { name: member.name(), member: member.clone() }).collect()
}

async fn make(members: &[SimMember], world: &World) {
    make_of(COMPONENT, members, world).await;
}

async fn make_of(component: u64, members: &[SimMember], world: &World) {
    let recipe = Recipe {
        layout: 0,
        chunk_bytes: 0,
        name: "sim:intent".to_owned(),
        data_offset_bytes: Some(DATA_OFFSET),
        component_bytes: Some(component),
        contents: Contents::Consistent,
        ..Recipe::new(Level::Raid1, [7; 16])
    };
    let newcomer = |(index, candidate)| Some(Newcomer { candidate, device_uuid: [index as u8; 16] });
    let newcomers: Vec<_> = candidates(members).into_iter().enumerate().map(newcomer).collect();
    let pool = Pool::new(4 << 20);
    create(&recipe, &newcomers, &[], &pool, &world.clock(), &|_, _| {}).await.expect("the array is created");
    // mdadm leaves one page for the bitmap of members of this size, followed by the bad-block log.
    for member in members {
        let mut superblock = superblock_of(member);
        superblock.bad_blocks = None;
        member.plant(SUPERBLOCK_AT, &superblock.encode());
    }
    let array = Array::assemble(candidates(members), AssembleOptions::default(), pool, world.clock()).await;
    let array = array.expect("it can be assembled");
    array.add_bitmap(Some(CHUNK_BYTES), BitmapPolicy::default()).await.expect("there is room");
    array.stop().await.expect("nothing fails");
}

fn superblock_of(member: &SimMember) -> Superblock {
    let (at, image) = (SUPERBLOCK_AT as usize, member.image());
    let superblock = decode(Version::V1_2, MemberByte(SUPERBLOCK_AT), &image[at..2 * at], image.len() as u64);
    superblock.expect("sound").expect("there")
}

/// The position of the byte that holds the bit on a member.
fn place_of_bit(member: &SimMember) -> u64 {
    superblock_of(member).bitmap_at().expect("it has a bitmap").0 + SUPER_BYTES as u64 + BIT / 8
}

#[test]
fn a_bit_that_one_member_has_is_on_all_members_before_data_is_written_under_it() {
    for owner in 0..MEMBERS {
        let world = World::new(1);
        let members: Vec<_> = (0..MEMBERS).map(|index| member(format!("member{index}"), &world)).collect();
        world.run(make(&members, &world), || false);
        let place = place_of_bit(&members[owner]);
        members[owner].plant(place, &[1 << (BIT % 8)]);
        let write = async {
            let (pool, options) = (Pool::new(4 << 20), AssembleOptions::default());
            let array = Array::assemble(candidates(&members), options, pool.clone(), world.clock());
            let array = array.await.expect("it can be assembled");
            array
                .write(BIT * CHUNK_BYTES, pool.zeroed(4096).freeze(), Durability::Ordinary)
                .await
                .expect("a healthy array");
        };
        world.run(write, || false);
        for member in &members {
            let is_there = is_set(&member.image()[place as usize..], BIT % 8);
            assert!(is_there, "{} has no bit, as it was on member{owner} alone", member.name());
        }
    }
}

#[test]
fn a_spare_that_takes_a_slot_has_all_bits() {
    let world = World::new(2);
    let members: Vec<_> = (0..MEMBERS).map(|index| member(format!("member{index}"), &world)).collect();
    let spare = member("spare".to_owned(), &world);
    world.run(make(&members, &world), || false);
    let scene = async {
        let (pool, options) = (Pool::new(4 << 20), AssembleOptions::default());
        let array = Array::assemble(candidates(&members), options, pool.clone(), world.clock());
        let array = array.await.expect("it can be assembled");
        let newcomer = Candidate { name: spare.name(), member: spare.clone() };
        array.add(newcomer, [9; 16], false).await.expect("it fits");
        array.write(BIT * CHUNK_BYTES, pool.zeroed(4096).freeze(), Durability::Stable).await.expect("healthy");
        array.fail(&members[1].name()).await.expect("one is left");
        array.set_sync_speed(SyncSpeed { min: 1000, max: Some(1000) }).expect("it is not zero");
        let (keeper, clock) = (array.clone(), world.clock());
        world.spawn(async move { keeper.keep_whole().await });
        clock.sleep_until(clock.now() + Duration::from_millis(100)).await;
        let state = array.status().members.into_iter().find(|member| member.name == "spare").map(|member| member.state);
        assert_eq!(state, Some("recovering"));
    };
    world.run(scene, || false);
    for member in [&members[0], &spare] {
        let place = place_of_bit(member);
        assert!(is_set(&member.image()[place as usize..], BIT % 8), "{} has no bit", member.name());
    }
}

#[test]
fn a_spare_that_a_round_cut_short_has_told_of_a_bitmap_alone_decides_nothing() {
    let world = World::new(2);
    let members: Vec<_> = (0..MEMBERS).map(|index| member(format!("member{index}"), &world)).collect();
    let spare = member("spare".to_owned(), &world);
    world.run(make(&members, &world), || false);
    let mut all = members.clone();
    all.push(spare.clone());
    let scene = async {
        let pool = Pool::new(4 << 20);
        let options = AssembleOptions::default;
        let array = Array::assemble(candidates(&members), options(), pool.clone(), world.clock());
        let array = array.await.expect("it can be assembled");
        array.remove_bitmap().await.expect("nothing fails");
        let newcomer = Candidate { name: spare.name(), member: spare.clone() };
        array.add(newcomer, [9; 16], false).await.expect("it fits");
        array.stop().await.expect("nothing fails");
        // The next round has the events of the one that was cut short.
        let place = spare.image()[SUPERBLOCK_AT as usize..][..4096].to_vec();
        let own = decode(Version::V1_2, MemberByte(SUPERBLOCK_AT), &place, DATA_OFFSET + COMPONENT);
        let own = own.expect("right").expect("there");
        let told = own.with_bitmap(Some(own.bitmap_place(4096)), DATA_OFFSET + COMPONENT).expect("there is room");
        spare.plant(SUPERBLOCK_AT, &told.encode());
        let array = Array::assemble(candidates(&all), options(), pool, world.clock()).await.expect("the spare follows");
        assert!(array.status().bitmap.is_none());
    };
    world.run(scene, || false).expect("the power does not go");
}

#[test]
fn an_idle_array_is_marked_clean_after_each_write() {
    const DELAY: Duration = Duration::from_millis(200);
    let world = World::new(3);
    let members: Vec<_> = (0..MEMBERS).map(|index| member(format!("member{index}"), &world)).collect();
    world.run(make(&members, &world), || false);
    let scene = async {
        let (pool, clock) = (Pool::new(4 << 20), world.clock());
        let array = Array::assemble(candidates(&members), AssembleOptions::default(), pool.clone(), world.clock());
        let array = array.await.expect("it can be assembled");
        let life = async {
            for _ in 0..3 {
                array.write(0, pool.zeroed(4096).freeze(), Durability::Ordinary).await.expect("a healthy array");
                assert_eq!(array.status().state, "active");
                clock.sleep_until(clock.now() + 2 * DELAY).await;
                assert_eq!(array.status().state, "clean");
            }
            array.write(0, pool.zeroed(4096).freeze(), Durability::Ordinary).await.expect("a healthy array");
            array.stop().await.expect("nothing fails");
            clock.now()
        };
        let (stopped, ()) = join(life, array.mark_clean_when_idle(DELAY)).await;
        assert_eq!(clock.now(), stopped, "the task that marks it clean goes on after the stop");
    };
    world.run(scene, || false);
}

#[test]
fn a_bit_stays_set_as_long_as_its_write_is_in_flight() {
    const LONG: Duration = Duration::from_secs(60);
    let world = World::new(4);
    let members: Vec<_> = (0..MEMBERS).map(|index| member(format!("member{index}"), &world)).collect();
    world.run(make(&members, &world), || false);
    let scene = async {
        let (pool, clock) = (Pool::new(4 << 20), world.clock());
        let policy = BitmapPolicy { clearing: BitmapClearing::Eager, ..BitmapPolicy::default() };
        let options = AssembleOptions { bitmap: policy, ..AssembleOptions::default() };
        let array = Array::assemble(candidates(&members), options, pool.clone(), world.clock());
        let array = array.await.expect("it can be assembled");
        let write = || {
            array
                .write(BIT * CHUNK_BYTES, pool.zeroed(4096).freeze(), Durability::Ordinary)
                .map(|done| done.expect("healthy"))
        };
        write().await;
        let cleaner = array.clone();
        world.spawn(async move { cleaner.clear_bitmap_lazily().await });
        // The bit is set already, so the member gets its data at once, and takes its time.
        let faults = members[0].faults();
        faults.slower_by.set(LONG.as_nanos() as u64);
        let look = async {
            clock.sleep_until(clock.now() + Duration::from_millis(1)).await;
            faults.slower_by.set(0);
            clock.sleep_until(clock.now() + LONG / 2).await;
            is_set(&members[1].image()[place_of_bit(&members[1]) as usize..], BIT % 8)
        };
        let ((), is_there) = join(write(), look).await;
        assert!(is_there, "cleared while a member had not answered");
        clock.sleep_until(clock.now() + LONG / 2).await;
        assert!(!is_set(&members[1].image()[place_of_bit(&members[1]) as usize..], BIT % 8), "never cleared");
    };
    world.run(scene, || false);
}

/// A repair marks its writes as requests do. Its future may be dropped in the middle of that, when the array's user stops
/// scrubbing. The round may hold bits of writes that wait for the next one.
#[test]
fn writes_end_beside_a_repair_that_is_dropped_while_it_sets_bits_of_the_same_page() {
    const SMALL: u64 = 2 << 20;
    let (mut were_dropped, wrong) = (0, 400);
    for (first, end) in (0..500).step_by(20).flat_map(|first| (100..700).step_by(20).map(move |end| (first, end))) {
        let world = World::new(3);
        let members: Vec<_> = (0..MEMBERS).map(|index| member_of(SMALL, format!("member{index}"), &world)).collect();
        world.run(make_of(SMALL, &members, &world), || false);
        members[1].plant(DATA_OFFSET + wrong * CHUNK_BYTES, &[1; 512]);
        let scene = async {
            let (pool, options) = (Pool::new(4 << 20), AssembleOptions::default());
            let array = Array::assemble(candidates(&members), options, pool.clone(), world.clock());
            let array = array.await.expect("it can be assembled");
            // The array is dirty by then, so bits are set in rounds of their own.
            array.write(0, pool.zeroed(4096).freeze(), Durability::Ordinary).await.expect("a healthy array");
            let range = Some(wrong * CHUNK_BYTES..(wrong + 1) * CHUNK_BYTES);
            array.begin_scrub(&ScrubRequest { action: ScrubAction::RepairParity, range }).expect("it can be repaired");
            let clock = world.clock();
            let begun = clock.now();
            let after = |micros: u64| clock.sleep_until(begun + Duration::from_micros(micros));
            let repair = async {
                let (scrub, end) = (pin!(array.scrub(&|_, _| {})), pin!(after(end)));
                matches!(select(scrub, end).await, Either::Right(_))
            };
            // The first begins a round; the others come while the repair may wait for it, and no write comes later.
            let writes = join_all((0..6).map(async |number| {
                after(first + number * 15).await;
                let at = (10 + number) * CHUNK_BYTES;
                array.write(at, pool.zeroed(4096).freeze(), Durability::Ordinary).await.expect("a healthy array");
            }));
            join(repair, writes).await.0
        };
        were_dropped += usize::from(world.run(scene, || false).expect("it ends"));
    }
    assert!(were_dropped > 100, "the repair was dropped {were_dropped} times");
}
