//! A process that answers writes from memory is killed: the next one has what was answered, and no block is torn.

use super::scene::{CHUNK_BYTES, DATA_OFFSET, Scene, Simulated};
use engine::{Array, AssembleOptions, Candidate, Durability, Offer, Pool, Refusal, WriteBack};
use format::geometry::Level;
use format::superblock::{PLACE_BYTES, Timestamp, Version, decode};
use format::units::MemberByte;
use mdspace_sim::{KeptMemory, SimMember};
use std::cell::Cell;

const BLOCKS: u32 = 256;

/// Where metadata 1.2 lies on a member.
const SUPERBLOCK_AT: u64 = 4096;

/// An array whose processes come and go.
struct Lives {
    scene: Scene,
    memory: KeptMemory,
}

impl Lives {
    fn new() -> Self {
        let scene = Scene::new(Level::Raid5, 4);
        scene.world.run(scene.array.stop(), || false).expect("not stopped").expect("it stops clean");
        Self { scene, memory: KeptMemory::default() }
    }

    /// The next process, which answers these writes from memory.
    fn begin(&self, answers: WriteBack) -> Simulated {
        let array = self.assemble(AssembleOptions::default()).expect("nothing is wrong with it");
        let answering = array.clone();
        self.scene.world.spawn(async move { answering.write_back(answers).await });
        array
    }

    fn assemble(&self, options: AssembleOptions) -> Result<Simulated, Refusal> {
        self.assemble_of(&self.scene.members, options, u64::MAX).expect("not stopped")
    }

    /// Assembles these members; `None` if the process was killed before, at the write or flush numbered `cut`.
    fn assemble_of(
        &self,
        members: &[SimMember],
        options: AssembleOptions,
        cut: u64,
    ) -> Option<Result<Simulated, Refusal>> {
        let Scene { world, boundaries, .. } = &self.scene;
        let end = boundaries.get().saturating_add(cut);
        let candidate = |member: &SimMember| Candidate { name: member.name(), member: member.clone() };
        let offer = Offer {
            write_buffer: Some(self.memory.lend(BLOCKS)),
            ..Offer::of(members.iter().map(candidate).collect())
        };
        let assembled = Array::assemble_offer(offer, options, Pool::new(4 << 20), world.clock());
        world.run(assembled, || boundaries.get() >= end)
    }

    /// Writes; false if the process was killed before the answer, at the write or flush numbered `cut` from now on.
    fn write(&self, array: &Simulated, at: u64, bytes: &[u8], durability: Durability, cut: u64) -> bool {
        let end = self.scene.boundaries.get().saturating_add(cut);
        let written = array.write(at, array.pool().copy_of(bytes), durability);
        let written = self.scene.world.run(written, || self.scene.boundaries.get() >= end);
        written.map(|written| written.expect("nothing fails")).is_some()
    }

    /// Ends the process without a word.
    fn kill(&self, array: Simulated) {
        drop(array);
        self.scene.world.run(std::future::pending::<()>(), || true);
        self.scene.members.iter().for_each(SimMember::end_of_process);
    }

    fn read(&self, array: &Simulated, bytes: usize) -> Vec<u8> {
        let read = self.scene.world.run(array.read(0, array.pool().take(bytes)), || false);
        read.expect("not stopped").expect("nothing fails").to_vec()
    }
}

#[test]
fn a_stream_that_was_answered_from_memory_is_there_after_a_kill() {
    let lives = Lives::new();
    let array = lives.begin(WriteBack::Streams);
    for page in 0..40_u8 {
        assert!(lives.write(&array, u64::from(page) * 4096, &[page + 1; 4096], Durability::Ordinary, u64::MAX));
    }
    assert!(array.status().cache.waiting_bytes > 0, "the last ones are in memory alone");
    lives.kill(array);
    let array = lives.begin(WriteBack::Streams);
    let found = lives.read(&array, 40 * 4096);
    let wrong = (0..found.len()).find(|byte| found[*byte] != (byte / 4096) as u8 + 1);
    assert_eq!(wrong, None);
}

#[test]
fn a_kill_amid_a_write_over_an_answered_one_tears_no_block() {
    let is_cut_short = Cell::new(true);
    for cut in 1.. {
        if !is_cut_short.get() {
            assert!(cut > 4, "no write was cut short");
            return;
        }
        let lives = Lives::new();
        let array = lives.begin(WriteBack::All);
        // From now on the members have superblocks that the memory counts for.
        assert!(lives.write(&array, 0, &[0; 4096], Durability::Stable, u64::MAX));
        assert!(lives.write(&array, 0, &[1; 512], Durability::Ordinary, u64::MAX));
        is_cut_short.set(!lives.write(&array, 0, &[2; 1024], Durability::Stable, cut));
        lives.kill(array);
        let array = lives.begin(WriteBack::All);
        let found = lives.read(&array, 1024);
        let whole = [[1, 0], [2, 2]].map(|[first, second]| [[first; 512], [second; 512]].concat());
        assert!(whole.contains(&found), "cut {cut}: {} and {}", found[0], found[512]);
    }
}

#[test]
fn no_write_is_answered_from_memory_that_does_not_count() {
    let lives = Lives::new();
    // As the kernel's md writes them: their time has no microseconds, so they look like any others of that second.
    for member in &lives.scene.members {
        let image = member.contents();
        let place = &image[SUPERBLOCK_AT as usize..][..PLACE_BYTES as usize];
        let found = decode(Version::V1_2, MemberByte(SUPERBLOCK_AT), place, image.len() as u64);
        let mut superblock = found.expect("it is right").expect("it is there");
        superblock.updated = Timestamp { micros: 0, ..superblock.updated };
        member.plant(SUPERBLOCK_AT, &superblock.encode());
    }
    let array = lives.begin(WriteBack::All);
    assert!(lives.write(&array, 0, &[1; 512], Durability::Ordinary, u64::MAX));
    lives.kill(array);
    let array = lives.begin(WriteBack::All);
    assert_eq!(lives.read(&array, 512), [1; 512]);
}

#[test]
fn an_array_that_is_only_read_shows_what_was_answered_and_changes_nothing() {
    let lives = Lives::new();
    let array = lives.begin(WriteBack::All);
    assert!(lives.write(&array, 512, &[7; 1024], Durability::Ordinary, u64::MAX));
    lives.kill(array);
    let before: Vec<_> = lives.scene.members.iter().map(SimMember::contents).collect();
    for _ in 0..2 {
        let array = lives.assemble(AssembleOptions { read_only: true, ..AssembleOptions::default() });
        let array = array.expect("nothing is wrong with it");
        assert!(array.status().warnings.iter().any(|warning| warning.contains("1024 bytes")));
        let found = lives.read(&array, 2048);
        assert_eq!(found, [vec![0; 512], vec![7; 1024], vec![0; 512]].concat());
        lives.kill(array);
    }
    assert!(lives.scene.members.iter().map(SimMember::contents).eq(before));
    assert_eq!(lives.read(&lives.begin(WriteBack::All), 1024)[512..], [7; 512]);
}

#[test]
fn what_cannot_be_written_refuses_the_array_and_is_lost_by_force_alone() {
    let lives = Lives::new();
    let array = lives.begin(WriteBack::All);
    assert!(lives.write(&array, 0, &[7; 512], Durability::Ordinary, u64::MAX));
    assert!(lives.write(&array, lives.scene.stripe_bytes, &[7; 512], Durability::Ordinary, u64::MAX));
    lives.kill(array);
    spoil_stripe_1(&lives);
    for _ in 0..2 {
        let refusal = lives.assemble(AssembleOptions::default()).err().expect("a write would be lost");
        assert_eq!(refusal.field.as_deref(), Some("write buffer"), "{refusal}");
    }
    let forced = lives.assemble(AssembleOptions { force: true, ..AssembleOptions::default() });
    let array = forced.expect("the user gave it up");
    assert_eq!(lives.read(&array, 512), [7; 512], "what can be written is");
    lives.kill(array);
    assert_eq!(lives.read(&lives.begin(WriteBack::All), 512), [7; 512]);
}

/// No member can read stripe 1, so that a part of it cannot be written.
fn spoil_stripe_1(lives: &Lives) {
    let unreadable = DATA_OFFSET + CHUNK_BYTES..DATA_OFFSET + 2 * CHUNK_BYTES;
    lives.scene.members.iter().for_each(|member| member.faults().latent.borrow_mut().push(unreadable.clone()));
}

/// A process that has answered 1024 bytes at stripe 1 and lost them. Members are well again.
fn begin_and_lose(lives: &Lives) -> Simulated {
    let array = lives.begin(WriteBack::All);
    assert!(lives.write(&array, 0, &[0; 4096], Durability::Stable, u64::MAX));
    assert!(lives.write(&array, lives.scene.stripe_bytes, &[1; 1024], Durability::Ordinary, u64::MAX));
    spoil_stripe_1(lives);
    lives.scene.world.run(array.flush(), || false).expect("not stopped").expect_err("what was answered is lost");
    lives.scene.members.iter().for_each(|member| member.faults().heal());
    array
}

#[test]
fn what_was_lost_before_a_kill_is_written_after_it_or_refuses_the_array() {
    let lives = Lives::new();
    let at = lives.scene.stripe_bytes as usize;
    let array = begin_and_lose(&lives);
    lives.kill(array);
    spoil_stripe_1(&lives);
    let refusal = lives.assemble(AssembleOptions::default()).err().expect("a write would be lost");
    assert_eq!(refusal.field.as_deref(), Some("write buffer"), "{refusal}");
    lives.scene.members.iter().for_each(|member| member.faults().heal());
    let array = lives.begin(WriteBack::All);
    assert_eq!(lives.read(&array, at + 1024)[at..], [1; 1024]);
    lives.scene.world.run(array.flush(), || false).expect("not stopped").expect("nothing is lost any more");
}

#[test]
fn what_was_lost_before_a_kill_undoes_no_later_write() {
    for durability in [Durability::Ordinary, Durability::Stable] {
        let lives = Lives::new();
        let at = lives.scene.stripe_bytes as usize;
        let array = begin_and_lose(&lives);
        let after_a_kill = |array: Simulated| {
            lives.kill(array);
            let array = lives.begin(WriteBack::All);
            let found = lives.read(&array, at + 1024);
            (array, [found[at], found[at + 511], found[at + 512], found[at + 1023]])
        };
        assert!(lives.write(&array, at as u64, &[2; 512], durability, u64::MAX));
        lives.scene.world.run(array.flush(), || false).expect("not stopped").expect_err("the rest is lost");
        let (array, found) = after_a_kill(array);
        assert_eq!(found, [2, 2, 1, 1]);
        assert!(lives.write(&array, at as u64, &[3; 1024], durability, u64::MAX));
        lives.scene.world.run(array.flush(), || false).expect("not stopped").expect("nothing is lost");
        assert_eq!(after_a_kill(array).1, [3; 4]);
    }
}

#[test]
fn zeros_end_what_was_lost_also_for_a_kill() {
    let lives = Lives::new();
    let (at, bytes) = (lives.scene.stripe_bytes, lives.scene.stripe_bytes as usize);
    let array = begin_and_lose(&lives);
    let zeroed = lives.scene.world.run(array.write_zeroes(at, at, Durability::Stable), || false);
    zeroed.expect("not stopped").expect("nothing is lost any more");
    lives.kill(array);
    assert_eq!(lives.read(&lives.begin(WriteBack::All), bytes + 1024)[bytes..], [0; 1024]);
}

#[test]
fn a_stop_that_reports_what_is_lost_gives_it_up() {
    let lives = Lives::new();
    let at = lives.scene.stripe_bytes as usize;
    let array = begin_and_lose(&lives);
    lives.scene.world.run(array.stop(), || false).expect("not stopped").expect_err("it reports the loss");
    drop(array);
    spoil_stripe_1(&lives);
    lives.assemble(AssembleOptions::default()).expect("nothing is to be written");
    lives.scene.members.iter().for_each(|member| member.faults().heal());
    assert_eq!(lives.read(&lives.begin(WriteBack::All), at + 1024)[at..], [0; 1024]);
}

#[test]
fn what_was_answered_counts_for_members_that_a_cut_round_of_superblocks_left_behind() {
    let lives = Lives::new();
    let array = lives.begin(WriteBack::All);
    assert!(lives.write(&array, 0, &[0; 4096], Durability::Stable, u64::MAX));
    assert!(lives.write(&array, 0, &[7; 512], Durability::Ordinary, u64::MAX));
    let before: Vec<_> = lives.scene.members.iter().map(SimMember::contents).collect();
    let failed = lives.scene.world.run(array.fail("member7"), || false);
    failed.expect("not stopped").expect("the level survives it");
    assert!(array.status().cache.waiting_bytes > 0, "the write is in memory alone");
    lives.kill(array);
    // The kill came when the first member alone had its new superblock.
    for (member, before) in lives.scene.members.iter().zip(&before).skip(1) {
        member.plant(SUPERBLOCK_AT, &before[SUPERBLOCK_AT as usize..][..PLACE_BYTES as usize]);
    }
    let options = AssembleOptions { force: true, ..AssembleOptions::default() };
    let killed = lives.assemble_of(&lives.scene.members, options.clone(), 1);
    assert!(killed.is_none(), "the next process is killed before the members have what was answered");
    lives.scene.world.run(std::future::pending::<()>(), || true);
    lives.scene.members.iter().for_each(SimMember::end_of_process);
    let array = lives.assemble_of(&lives.scene.members[1..], options, u64::MAX).expect("not stopped");
    assert_eq!(lives.read(&array.expect("the others suffice"), 512), [7; 512]);
}
