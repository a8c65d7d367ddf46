//! Arrays in which not every block has a checksum: which checksums are computed, which block a scrub names, and that
//! data which contradicts a checksum is never written or returned.

use engine::create::{Contents, Newcomer, Recipe, create};
use engine::{
    Array, AssembleOptions, BitmapPolicy, Candidate, ChecksumMemory, Clock, Durability, FindingVerdict, Pool,
    ScrubAction, ScrubReport, ScrubRequest, Verify,
};
use format::bitmap::{BitmapSuper, SUPER_BYTES};
use format::geometry::Level;
use format::integrity::{BLOCK_BYTES, Layout, PAGE_BYTES};
use format::superblock::{Resync, Superblock, Version, decode};
use format::units::{MemberByte, Sectors};
use futures_util::{StreamExt, TryStreamExt, stream};
use mdspace_sim::checksums::examine;
use mdspace_sim::{Random, SimMember, VirtualClock, World};
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

pub(crate) type Simulated = Array<SimMember, VirtualClock>;

pub(crate) const DATA_OFFSET: u64 = 64 << 10;
/// So short that the checksums lie after the data.
const SMALL_DATA_OFFSET: u64 = 16 << 10;
pub(crate) const COMPONENT_BYTES: u64 = 256 << 10;
/// Blocks in a member's data area.
pub(crate) const BLOCKS: u64 = COMPONENT_BYTES / BLOCK_BYTES;
const SUPER_AT: u64 = 4096;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) level: Level,
    pub(crate) layout: u32,
    pub(crate) chunk_bytes: u64,
    pub(crate) slots: usize,
    pub(crate) data_offset: u64,
}

pub(crate) const RAID1: Setup =
    Setup { level: Level::Raid1, layout: 0, chunk_bytes: 0, slots: 3, data_offset: DATA_OFFSET };
pub(crate) const RAID5: Setup = Setup { level: Level::Raid5, layout: 2, chunk_bytes: 16 << 10, slots: 4, ..RAID1 };
pub(crate) const RAID6: Setup = Setup { level: Level::Raid6, slots: 5, ..RAID5 };
pub(crate) const RAID10: Setup = Setup { level: Level::Raid10, layout: 0x102, slots: 4, ..RAID5 };

/// The setup with checksums after the data.
fn behind(setup: Setup) -> Setup {
    Setup { data_offset: SMALL_DATA_OFFSET, ..setup }
}

/// Each setup with checksums before the data, and with checksums after it.
fn with_either_place(setups: impl IntoIterator<Item = Setup>) -> impl Iterator<Item = Setup> {
    setups.into_iter().flat_map(|setup| [setup, behind(setup)])
}

pub(crate) struct Scene {
    pub(crate) setup: Setup,
    pub(crate) world: World,
    pub(crate) members: Vec<SimMember>,
    pub(crate) random: RefCell<Random>,
    pub(crate) truth: RefCell<Vec<u8>>,
}

/// Plays `life` on a filled array, with checksums of all blocks or with none.
pub(crate) fn play(setup: Setup, integrity: bool, life: impl AsyncFnOnce(&Scene)) {
    let world = World::new(7);
    let member = |index| SimMember::new(format!("member{index}"), &world, empty(), Rc::default());
    let members = (0..setup.slots).map(member).collect();
    let random = RefCell::new(Random::new(7));
    let scene = Scene { setup, world, members, random, truth: RefCell::default() };
    let whole = async {
        scene.create(integrity).await;
        life(&scene).await;
    };
    scene.world.run(whole, || false).expect("the run is not stopped");
}

fn empty() -> Vec<u8> {
    vec![0; (DATA_OFFSET + COMPONENT_BYTES) as usize]
}

fn candidate(member: &SimMember) -> Candidate<SimMember> {
    Candidate { name: member.name(), member: member.clone() }
}

pub(crate) fn superblock(member: &SimMember) -> Superblock {
    let (image, at) = (member.image(), SUPER_AT as usize);
    let decoded = decode(Version::V1_2, MemberByte(SUPER_AT), &image[at..2 * at], image.len() as u64);
    decoded.expect("it is sound").expect("it is there")
}

impl Scene {
    async fn make(&self, integrity: bool, component_bytes: u64) {
        let recipe = Recipe {
            layout: self.setup.layout,
            chunk_bytes: self.setup.chunk_bytes,
            name: "sim:sums".to_owned(),
            data_offset_bytes: Some(self.setup.data_offset),
            component_bytes: Some(component_bytes),
            contents: Contents::Consistent,
            integrity,
            ..Recipe::new(self.setup.level, [7; 16])
        };
        let newcomer = |(number, member)| Some(Newcomer { candidate: candidate(member), device_uuid: [number; 16] });
        let newcomers: Vec<_> = (0..).zip(&self.members).map(newcomer).collect();
        let pool = Pool::new(1 << 20);
        create(&recipe, &newcomers, &[], &pool, &self.world.clock(), &|_, _| {}).await.expect("the array is created");
    }

    async fn create(&self, integrity: bool) {
        self.make(integrity, COMPONENT_BYTES).await;
        let array = self.assemble(&self.members, Verify::Always).await;
        let mut bytes = vec![0; array.bytes() as usize];
        self.random.borrow_mut().fill(&mut bytes);
        array.write(0, array.pool().copy_of(&bytes), Durability::Stable).await.expect("a whole array");
        array.stop().await.expect("a whole array");
        self.truth.replace(bytes);
    }

    pub(crate) async fn assemble(&self, members: &[SimMember], verify: Verify) -> Simulated {
        let options = AssembleOptions { verify, ..AssembleOptions::default() };
        let members = members.iter().map(candidate).collect();
        Array::assemble(members, options, Pool::new(8 << 20), self.world.clock()).await.expect("the array is assembled")
    }

    /// Assembles the array and starts the tasks of a server.
    pub(crate) async fn serve(&self, members: &[SimMember], verify: Verify) -> Simulated {
        let array = self.assemble(members, verify).await;
        let keeper = array.clone();
        self.world.spawn(async move { keeper.keep_whole().await });
        array
    }

    pub(crate) async fn pause(&self) {
        let clock = self.world.clock();
        clock.sleep_until(clock.now() + Duration::from_secs(30)).await;
    }

    pub(crate) async fn scrub(&self, array: &Simulated, action: ScrubAction) -> ScrubReport {
        array.begin_scrub(&ScrubRequest { action, range: None }).expect("it can be scrubbed");
        array.scrub(&|_, _| {}).await.expect("the array can be scrubbed");
        array.scrub_report().expect("a scrub was begun")
    }

    /// Overwrites a block of a member's data with noise.
    pub(crate) fn rot(&self, member: usize, block: u64) {
        let at = self.setup.data_offset + block * BLOCK_BYTES;
        self.members[member].corrupt(at..at + BLOCK_BYTES, &mut self.random.borrow_mut());
    }

    /// Overwrites the table page that holds all of a member's checksums, which makes them unknown.
    pub(crate) fn damage_table(&self, member: usize) {
        let layout = Layout::of(&superblock(&self.members[member])).expect("there is room");
        assert_eq!(layout.pages(), 1);
        let at = layout.page_at(0).0;
        self.members[member].corrupt(at..at + PAGE_BYTES as u64, &mut self.random.borrow_mut());
    }

    /// Lets the array use its members to the end, as if the kernel had grown it.
    fn grow_to_the_end(&self) {
        for member in &self.members {
            let mut superblock = superblock(member);
            superblock.component = superblock.data_size;
            superblock.updated.micros = 0;
            superblock.events += 2;
            member.plant(SUPER_AT, &superblock.encode());
        }
    }

    pub(crate) fn data(&self) -> Vec<Vec<u8>> {
        self.members.iter().map(|member| self.data_of(member)).collect()
    }

    fn data_of(&self, member: &SimMember) -> Vec<u8> {
        let start = self.setup.data_offset as usize;
        member.image()[start..start + COMPONENT_BYTES as usize].to_vec()
    }

    pub(crate) async fn read(&self, array: &Simulated, range: Range<u64>) -> Result<(), String> {
        let bytes = (range.end - range.start) as usize;
        let read = array.read(range.start, array.pool().take(bytes)).await.map_err(|error| error.to_string())?;
        let expected = &self.truth.borrow()[range.start as usize..range.end as usize];
        assert!(read[..] == *expected, "{:?}: other bytes, and no error", self.setup);
        Ok(())
    }
}

#[test]
fn a_repair_stores_checksums_of_blocks_that_agree() {
    for setup in with_either_place([RAID1, RAID5, RAID6, RAID10]) {
        play(setup, false, async |scene| {
            let array = scene.assemble(&scene.members, Verify::Always).await;
            array.add_checksums().await.expect("there is room");
            array.stop().await.expect("whole");
            let before = scene.data();
            let array = scene.assemble(&scene.members, Verify::Always).await;
            let blocks = setup.slots as u64 * COMPONENT_BYTES / BLOCK_BYTES;
            for _ in 0..2 {
                let counts = scene.scrub(&array, ScrubAction::Check).await.found.counts;
                assert_eq!(
                    (counts.found(), counts.unknown, counts.learned),
                    (0, blocks, 0),
                    "{setup:?}: a check learns"
                );
            }
            let counts = scene.scrub(&array, ScrubAction::Repair).await.found.counts;
            assert_eq!((counts.found(), counts.unknown, counts.learned), (0, 0, blocks), "{setup:?}");
            array.stop().await.expect("whole");
            assert!(scene.data() == before, "{setup:?}: it writes no data");
            for member in &scene.members {
                let found = examine(&member.image(), &superblock(member)).expect("it keeps checksums");
                assert_eq!((found.unknown, &found.wrong[..]), (0, &[][..]), "{setup:?}: {}", member.name());
            }
            // And they identify wrong blocks.
            scene.rot(1, 3);
            let array = scene.assemble(&scene.members, Verify::Always).await;
            let report = scene.scrub(&array, ScrubAction::Repair).await;
            assert_eq!((report.found.counts.decided, report.found.counts.healed), (1, 1), "{setup:?}");
            array.stop().await.expect("whole");
            assert!(scene.data() == before, "{setup:?}");
        });
    }
}

/// Under one of the superblocks the kernel may have written more, so a header must not be valid for it.
#[test]
fn checksums_computed_after_the_kernel_wrote_are_kept() {
    for setup in with_either_place([RAID1, RAID5, RAID6, RAID10]) {
        play(setup, true, async |scene| {
            for member in &scene.members {
                let mut superblock = superblock(member);
                superblock.updated.micros = 0;
                superblock.events += 2;
                member.plant(SUPER_AT, &superblock.encode());
            }
            let blocks = setup.slots as u64 * COMPONENT_BYTES / BLOCK_BYTES;
            for learned in [blocks, 0] {
                let array = scene.assemble(&scene.members, Verify::Always).await;
                let counts = scene.scrub(&array, ScrubAction::Repair).await.found.counts;
                assert_eq!((counts.found(), counts.learned), (0, learned), "{setup:?}");
                array.stop().await.expect("whole");
            }
        });
    }
}

/// Parity computed from wrong data would confirm it.
#[test]
fn no_write_takes_wrong_data_into_parity_in_any_verify_mode() {
    for (setup, verify) in
        [RAID5, RAID6].into_iter().flat_map(|setup| [Verify::Always, Verify::Scrub].map(|verify| (setup, verify)))
    {
        // A write of a part of a chunk reads the old contents; a write of all chunks but the first reads the first.
        for (at, bytes) in [(0, 4096), (4096, 4096), (setup.chunk_bytes, setup.chunk_bytes * 2)] {
            play(setup, true, async |scene| {
                scene.rot(0, 0);
                let array = scene.assemble(&scene.members, verify).await;
                let mut written = vec![0; bytes as usize];
                scene.random.borrow_mut().fill(&mut written);
                let block = array.pool().copy_of(&written);
                array.write(at, block, Durability::Stable).await.expect("whole");
                scene.truth.borrow_mut()[at as usize..(at + bytes) as usize].copy_from_slice(&written);
                array.stop().await.expect("whole");
                let array = scene.assemble(&scene.members, Verify::Always).await;
                let counts = scene.scrub(&array, ScrubAction::Repair).await.found.counts;
                assert_eq!((counts.undecidable, counts.lost), (0, 0), "{setup:?} {verify:?} {at}: {counts:?}");
                scene.read(&array, 0..array.bytes()).await.expect("all data is available");
                array.stop().await.expect("whole");
            });
        }
    }
}

/// As after the kernel has recovered a member, or after a power cut while checksums were added.
#[test]
fn a_member_without_checksums_gets_them_if_the_others_have_them() {
    for setup in [RAID1, RAID5, RAID6, RAID10] {
        play(setup, true, async |scene| {
            let layout = Layout::of(&superblock(&scene.members[1])).expect("there is room");
            for at in layout.headers_at() {
                scene.members[1].plant(at.0, &[0; PAGE_BYTES]);
            }
            let kept = |array: &Simulated| array.status().checksums.expect("some keep them").members;
            let array = scene.assemble(&scene.members, Verify::Always).await;
            assert_eq!(usize::from(kept(&array)), setup.slots - 1, "{setup:?}");
            array.add_checksums().await.expect("one has none");
            array.stop().await.expect("whole");
            let array = scene.assemble(&scene.members, Verify::Always).await;
            assert_eq!(usize::from(kept(&array)), setup.slots, "{setup:?}");
            array.add_checksums().await.expect_err("all have some");
            let counts = scene.scrub(&array, ScrubAction::Repair).await.found.counts;
            assert_eq!((counts.found(), counts.learned), (0, COMPONENT_BYTES / BLOCK_BYTES), "{setup:?}");
            array.stop().await.expect("whole");
        });
    }
}

/// md's checkpoint may be at any sector, and a bit of md's bitmap may cover less than a block.
#[test]
fn a_resync_that_begins_within_a_block_covers_the_whole_block() {
    for (setup, bit_bytes) in
        [(RAID1, None), (RAID10, None), (RAID1, Some(1024)), (RAID5, Some(1024)), (RAID10, Some(512))]
    {
        play(setup, true, async |scene| {
            let before = scene.data();
            if bit_bytes.is_some() {
                let array = scene.assemble(&scene.members, Verify::Always).await;
                array.add_bitmap(Some(8192), BitmapPolicy::default()).await.expect("there is room");
                array.stop().await.expect("whole");
            }
            for member in &scene.members {
                let mut superblock = superblock(member);
                superblock.resync = Resync::From(Sectors(if bit_bytes.is_some() { 0 } else { 1 }));
                member.plant(SUPER_AT, &superblock.encode());
                if let (Some(chunk_bytes), Some(at)) = (bit_bytes, superblock.bitmap_at()) {
                    let mut header = BitmapSuper::decode(&member.image()[at.0 as usize..], 4096).expect("sound");
                    header.chunk_bytes = chunk_bytes;
                    member.plant(at.0, &header.encode());
                    member.plant(at.0 + SUPER_BYTES as u64, &[2]);
                }
            }
            let array = scene.serve(&scene.members, Verify::Always).await;
            scene.pause().await;
            let status = array.status();
            assert!(status.in_agreement, "{setup:?}: {status:?}");
            assert_eq!(status.checksums.expect("it has some").wrong, 0, "{setup:?}: nothing is wrong");
            array.stop().await.expect("whole");
            assert!(scene.data() == before, "{setup:?}");
        });
    }
}

/// Checksums are not written over data that the array uses later, and that data is not taken for checksums.
#[test]
fn checksums_are_gone_once_the_array_has_grown_over_them() {
    for setup in [RAID1, RAID5, RAID6, RAID10].map(behind) {
        play(setup, true, async |scene| {
            scene.grow_to_the_end();
            let array = scene.assemble(&scene.members, Verify::Always).await;
            assert!(!array.has_checksums(), "{setup:?}");
            let refusal = array.add_checksums().await.expect_err("all is used").to_string();
            let names: Vec<_> = scene.members.iter().map(SimMember::name).collect();
            // Of 304 KiB, checksums take 16; the rest is whole chunks, or for copies 64 KiB each.
            let (less, size) = if setup.level == Level::Raid1 { (48 << 10, 256 << 10) } else { (16 << 10, 288 << 10) };
            let advice = format!("mdspace grow --size {size}B --shrink {}`", names.join(" "));
            let less = format!("if {less} bytes less of each");
            assert!(refusal.contains(&less) && refusal.contains(&advice), "{setup:?}: {refusal}");
            let mut bytes = vec![0; array.bytes() as usize];
            scene.random.borrow_mut().fill(&mut bytes);
            array.write(0, array.pool().copy_of(&bytes), Durability::Stable).await.expect("whole");
            array.stop().await.expect("whole");
            let array = scene.assemble(&scene.members, Verify::Always).await;
            let read = array.read(0, array.pool().take(bytes.len())).await.expect("whole");
            assert!(read[..] == bytes[..], "{setup:?}: other bytes");
            // After the array has shrunk again, its old data is not taken for checksums.
            let shrinking = array.plan_shrinking(COMPONENT_BYTES).expect("it can shrink").expect("it is larger");
            array.shrink(shrinking).await.expect("whole");
            let array = scene.assemble(&scene.members, Verify::Always).await;
            assert!(!array.has_checksums(), "{setup:?}");
            array.add_checksums().await.expect("there is room again");
            array.stop().await.expect("whole");
            let array = scene.assemble(&scene.members, Verify::Always).await;
            assert!(array.has_checksums(), "{setup:?}");
            let read = array.read(0, array.pool().take(array.bytes() as usize)).await.expect("whole");
            assert!(read[..] == bytes[..read.len()], "{setup:?}: other bytes");
            assert_eq!(scene.scrub(&array, ScrubAction::Check).await.found.counts.found(), 0, "{setup:?}");
        });
    }
}

#[test]
fn no_checksums_are_stored_of_blocks_that_disagree() {
    for setup in [RAID5, RAID6, RAID10] {
        play(setup, false, async |scene| {
            let array = scene.assemble(&scene.members, Verify::Always).await;
            array.add_checksums().await.expect("there is room");
            array.stop().await.expect("whole");
            scene.rot(1, 3);
            let array = scene.assemble(&scene.members, Verify::Always).await;
            assert_eq!(scene.scrub(&array, ScrubAction::Repair).await.found.counts.found(), 1, "{setup:?}");
            array.stop().await.expect("whole");
            let found = examine(&scene.members[1].image(), &superblock(&scene.members[1])).expect("it keeps checksums");
            assert!(found.unknown > 0 && found.right > 0, "{setup:?}: {found:?}");
        });
    }
}

/// One page of a member's checksums fails its reads during one life, which writes and ends in a power cut.
#[test]
fn checksums_that_could_not_be_read_once_are_not_used_afterwards() {
    for setup in with_either_place([RAID1, RAID5, RAID6, RAID10]) {
        for unread in ["first header", "second header", "open regions", "page of the table"] {
            play(setup, true, async |scene| {
                let layout = Layout::of(&superblock(&scene.members[0])).expect("there is room");
                let at = match unread {
                    "first header" => layout.headers_at()[0],
                    "second header" => layout.headers_at()[1],
                    "open regions" => layout.open_at(),
                    _ => layout.page_at(0),
                };
                let faults = scene.members[0].faults();
                faults.bad_reads.borrow_mut().push(at.0..at.0 + PAGE_BYTES as u64);
                let array = scene.assemble(&scene.members, Verify::Always).await;
                scene.random.borrow_mut().fill(&mut scene.truth.borrow_mut());
                let bytes = array.pool().copy_of(&scene.truth.borrow());
                array.write(0, bytes, Durability::Stable).await.expect("its members take writes");
                faults.heal();
                scene.members.iter().for_each(|member| member.lose_power(&mut scene.random.borrow_mut()));
                drop(array);
                for member in &scene.members {
                    let found = examine(&member.image(), &superblock(member)).expect("it keeps checksums");
                    assert_eq!(found.wrong, [], "{setup:?}, {unread}, {}", member.name());
                }
                let array = scene.assemble(&scene.members, Verify::Always).await;
                scene.read(&array, 0..array.bytes()).await.expect("nothing is wrong with the data");
                array.stop().await.expect("no member has failed");
            });
        }
    }
}

#[test]
fn valid_checksums_identify_a_wrong_block_on_a_member_that_lost_its_own() {
    for setup in with_either_place([Setup { slots: 2, ..RAID1 }, RAID5, RAID6, RAID10]) {
        play(setup, true, async |scene| {
            let right = scene.data();
            scene.damage_table(1);
            scene.rot(1, 3);
            let array = scene.assemble(&scene.members, Verify::Always).await;
            let report = scene.scrub(&array, ScrubAction::Repair).await;
            let [finding] = &report.found.findings[..] else { panic!("{setup:?}: {report:?}") };
            assert!(matches!(finding.verdict, FindingVerdict::Decided(_)), "{setup:?}: {finding:?}");
            assert_eq!((finding.members.len(), finding.members[0].slot), (1, 1), "{setup:?}");
            array.stop().await.expect("whole");
            assert!(scene.data() == right, "{setup:?}");
        });
    }
}

/// In stripe 1, slot 0 holds a data block that contradicts its checksum. Another slot has a wrong block without a
/// checksum.
#[test]
fn data_that_contradicts_a_checksum_is_neither_returned_nor_written_and_the_other_parity_is_tried() {
    const BLOCK: u64 = 4;
    // Left-symmetric: RAID-5 has P on slot 2; RAID-6 has P on slot 3 and Q on slot 4.
    let cases = [(RAID5, 2, false), (RAID5, 1, false), (RAID6, 3, true), (RAID6, 4, true), (RAID6, 1, true)];
    for (setup, hurt, is_curable) in cases {
        for repairs in [true, false] {
            play(setup, true, async |scene| {
                let context = format!("{setup:?}, slot {hurt}, repairs {repairs}");
                let right = scene.data();
                scene.damage_table(hurt);
                scene.rot(hurt, BLOCK);
                scene.rot(0, BLOCK);
                let array = scene.serve(&scene.members, Verify::Always).await;
                if repairs {
                    array
                        .begin_scrub(&ScrubRequest { action: ScrubAction::Repair, range: None })
                        .expect("a repair can begin");
                    scene.pause().await;
                    let counts = array.scrub_report().expect("a scrub was begun").found.counts;
                    assert_eq!((counts.decided > 0, counts.lost > 0), (is_curable, !is_curable), "{context}");
                }
                let at = if setup.level == Level::Raid5 { 64 << 10 } else { 48 << 10 };
                let read = scene.read(&array, at..at + BLOCK_BYTES).await;
                assert_eq!(read.is_ok(), is_curable, "{context}: {read:?}");
                scene.pause().await; // read repair has ended
                array.stop().await.expect("no member has failed");
                let block = (BLOCK * BLOCK_BYTES) as usize..((BLOCK + 1) * BLOCK_BYTES) as usize;
                let mut found = scene.data();
                assert_eq!(found[0][block.clone()] == right[0][block.clone()], is_curable, "{context}");
                for slot in [0, hurt] {
                    found[slot][block.clone()].copy_from_slice(&right[slot][block.clone()]);
                }
                assert!(found == right, "{context}: nothing else is changed");
            });
        }
    }
}

#[test]
fn recovery_and_replacement_spread_no_corruption_in_any_verify_mode() {
    for setup in with_either_place([RAID1, RAID5, RAID6, RAID10]) {
        for verify in [Verify::Always, Verify::Scrub] {
            for replaces in [true, false] {
                play(setup, true, async |scene| {
                    let context = format!("{setup:?}, {verify:?}, replaces {replaces}");
                    let right = scene.data();
                    scene.rot(2, 5);
                    // On a member that the rest can do without, or on the member that is replaced.
                    let is_borne = replaces || matches!(setup.level, Level::Raid1 | Level::Raid6);
                    let left = match setup.level {
                        _ if replaces => 2,
                        Level::Raid10 => 3, // its only other copy is on member 2
                        _ => 0,
                    };
                    let leaves = format!("member{left}");
                    let new = SimMember::new("new".to_owned(), &scene.world, empty(), Rc::default());
                    let array = scene.serve(&scene.members, verify).await;
                    if replaces {
                        array.replace(&leaves, candidate(&new), [9; 16], false).await.expect("it fits");
                    } else {
                        array.fail(&leaves).await.expect("the others can do without it");
                        array.remove(&leaves).await.expect("it has failed");
                        array.add(candidate(&new), [9; 16], false).await.expect("it fits");
                    }
                    scene.pause().await;
                    let status = array.status();
                    assert_eq!(status.in_sync, status.raid_disks, "{context}: {status:?}");
                    array.stop().await.expect("whole");
                    let (bad, found) = (5 * BLOCK_BYTES as usize, scene.data_of(&new));
                    let end = bad + BLOCK_BYTES as usize;
                    assert!(found[..bad] == right[left][..bad] && found[end..] == right[left][end..], "{context}");
                    assert_eq!(found[bad..end] == right[left][bad..end], is_borne, "{context}");
                    // What could not be reconstructed is recorded as bad blocks.
                    let mut members = scene.members.clone();
                    members[left] = new;
                    let array = scene.assemble(&members, Verify::Always).await;
                    assert_eq!(scene.read(&array, 0..array.bytes()).await.is_ok(), is_borne, "{context}");
                    array.stop().await.expect("whole");
                });
            }
        }
    }
}

/// So little memory that pages of the table are read and written all the time.
#[test]
fn with_little_memory_every_checksum_is_right_and_written_blocks_have_one() {
    const COMPONENT_BYTES: u64 = 32 << 20;
    for (seed, memory) in (0..).zip([1, 400, 2000].map(|changes_bytes| ChecksumMemory { pages: 2, changes_bytes })) {
        for power_goes in [false, true] {
            let (world, boundaries) = (World::new(seed), Rc::default());
            let bytes = (DATA_OFFSET + COMPONENT_BYTES) as usize;
            let member =
                |index| SimMember::new(format!("member{index}"), &world, vec![0; bytes], Rc::clone(&boundaries));
            let members = (0..RAID5.slots).map(member).collect();
            let (random, truth) = (RefCell::new(Random::new(seed)), RefCell::default());
            let scene = Scene { setup: RAID5, world, members, random, truth };
            let life = async {
                scene.make(true, COMPONENT_BYTES).await;
                let array = scene.serve(&scene.members, Verify::Always).await;
                array.set_checksum_memory(memory);
                let lazy = array.clone();
                scene.world.spawn(async move { lazy.clear_bitmap_lazily().await });
                let places = array.bytes() / BLOCK_BYTES;
                let write = |number: u64| {
                    let at = scene.random.borrow_mut().within(0..places) * BLOCK_BYTES;
                    let piece = array.pool().copy_of(&[number as u8; BLOCK_BYTES as usize]);
                    array.write(at, piece, Durability::Ordinary)
                };
                for burst in 0..4 {
                    let writes = stream::iter(burst * 500..(burst + 1) * 500).map(write).buffer_unordered(32);
                    writes.try_collect::<()>().await.expect("whole");
                    scene.pause().await; // closes the regions
                }
                if !power_goes {
                    array.stop().await.expect("whole");
                    return array;
                }
                let mut writes = stream::iter(0..1000).map(write).buffer_unordered(32);
                let ended = scene.random.borrow_mut().within(1..900);
                for _ in 0..ended {
                    writes.next().await.expect("there are more").expect("whole");
                }
                drop(writes);
                array
            };
            drop(scene.world.run(life, || false).expect("the run is not stopped"));
            if power_goes {
                scene.world.forget_all();
                scene.members.iter().for_each(|member| member.lose_power(&mut scene.random.borrow_mut()));
            }
            for member in &scene.members {
                let found = examine(&member.image(), &superblock(member)).expect("it keeps checksums");
                assert_eq!(found.wrong, [], "{memory:?}, power goes {power_goes}, {}", member.name());
                // A quarter of 2000 writes and as much parity, at partly the same positions.
                assert!(power_goes || found.right > 800, "{memory:?}, {}: {} known", member.name(), found.right);
            }
        }
    }
}

/// Counts the member writes and flushes for random writes of 4 KiB with 32 in flight, up to a clean stop.
fn written(integrity: bool) -> u64 {
    const COMPONENT_BYTES: u64 = 16 << 20;
    let (world, boundaries) = (World::new(9), Rc::default());
    let bytes = (DATA_OFFSET + COMPONENT_BYTES) as usize;
    let member = |index| SimMember::new(format!("member{index}"), &world, vec![0; bytes], Rc::clone(&boundaries));
    let members = (0..RAID5.slots).map(member).collect();
    let (random, truth) = (RefCell::new(Random::new(9)), RefCell::default());
    let scene = Scene { setup: RAID5, world, members, random, truth };
    let life = async {
        scene.make(integrity, COMPONENT_BYTES).await;
        let array = scene.serve(&scene.members, Verify::Always).await;
        let lazy = array.clone();
        scene.world.spawn(async move { lazy.clear_bitmap_lazily().await });
        let places = array.bytes() / BLOCK_BYTES;
        let piece = array.pool().copy_of(&[7; BLOCK_BYTES as usize]);
        boundaries.set(0);
        let write = |_| {
            let at = scene.random.borrow_mut().within(0..places) * BLOCK_BYTES;
            array.write(at, piece.clone(), Durability::Ordinary)
        };
        stream::iter((0..4096).map(write)).buffer_unordered(32).try_collect::<()>().await.expect("whole");
        array.stop().await.expect("whole");
    };
    scene.world.run(life, || false).expect("the run is not stopped");
    boundaries.get()
}

#[test]
fn checksums_cost_random_writes_at_most_one_more_member_write_for_every_four() {
    let (without, with) = (written(false), written(true));
    println!("member writes and flushes: {without} without checksums, {with} with");
    assert!(without >= 2 * 4096 && with > without && with <= without + without / 4, "{without} and {with}");
}
