//! A process that answers writes from memory is killed: the next one has what was answered, and no block is torn.

use super::scene::{Scene, Simulated};
use engine::{Array, AssembleOptions, Candidate, Durability, Offer, Pool, WriteBack};
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
        let Scene { world, members, .. } = &self.scene;
        let candidate = |member: &SimMember| Candidate { name: member.name(), member: member.clone() };
        let offer = Offer {
            write_buffer: Some(self.memory.lend(BLOCKS)),
            ..Offer::of(members.iter().map(candidate).collect())
        };
        let assembled = Array::assemble_offer(offer, AssembleOptions::default(), Pool::new(4 << 20), world.clock());
        let array = world.run(assembled, || false).expect("not stopped").expect("nothing is wrong with it");
        let answering = array.clone();
        world.spawn(async move { answering.write_back(answers).await });
        array
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
