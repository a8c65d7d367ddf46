//! Arrays with checksums over members in memory, which compute checksums while they copy. Reads return the data
//! written, and reads of every length detect a corrupted block.

mod support;

use engine::create::{Contents, Newcomer, Recipe, create};
use engine::{Array, AssembleOptions, Candidate, Durability, Member};
use format::geometry::Level;
use format::units::MemberByte;
use mdspace_io::{MemoryMember, RealClock};
use std::rc::Rc;
use support::{executor, filled};

/// A member that the test also accesses directly.
type Shared = Rc<MemoryMember>;

const CHUNK_BYTES: u64 = 64 << 10;
const DATA_AT: u64 = 2 << 20;

fn recipe() -> Recipe {
    Recipe {
        chunk_bytes: CHUNK_BYTES,
        name: "checksums".to_owned(),
        data_offset_bytes: Some(DATA_AT),
        integrity: true,
        contents: Contents::Consistent,
        ..Recipe::new(Level::Raid5, [7; 16])
    }
}

#[test]
fn corruption_is_detected_by_reads_of_every_length_and_reconstructed() {
    let (executor, pool) = executor();
    executor.block_on(async {
        let members = [(); 3].map(|()| Rc::new(MemoryMember::new(8 << 20).expect("memory")));
        let candidate =
            |(index, member): (usize, &Shared)| Candidate { name: format!("m{index}"), member: member.clone() };
        let newcomer =
            |of: (usize, &Shared)| Some(Newcomer { device_uuid: [of.0 as u8; 16], candidate: candidate(of) });
        let newcomers: Vec<_> = members.iter().enumerate().map(newcomer).collect();
        create(&recipe(), &newcomers, &[], &pool, &RealClock::new(), &|_, _| {}).await.expect("it is made");
        let offered = members.iter().enumerate().map(candidate).collect();
        let array = Array::assemble(offered, AssembleOptions::default(), pool.clone(), RealClock::new());
        let array = array.await.expect("it is whole");
        let data = filled(&pool, 1 << 20, 1).freeze();
        array.write(0, data.clone(), Durability::Ordinary).await.expect("it is written");
        let wrong = || array.status().checksums.expect("it has them").wrong;
        let check = async |at: usize, bytes: usize| {
            let read = array.read(at as u64, pool.take(bytes)).await.expect("it can be read");
            assert!(read[..] == data[at..at + bytes], "{bytes} bytes at {at} are what was written");
        };
        // Reads of one block, of several, and of several members. Each has a block of a member's data to corrupt.
        let reads = [(60 << 10, 4096, (0, 60 << 10)), (96 << 10, 32 << 10, (1, 44 << 10)), (0, 1 << 20, (0, 8192))];
        for (at, bytes, _) in reads {
            check(at, bytes).await;
        }
        assert_eq!(wrong(), 0, "no block is corrupted yet");
        for (at, bytes, (member, place)) in reads {
            let before = wrong();
            let member: &Shared = &members[member];
            member.write(MemberByte(DATA_AT + place), filled(&pool, 4096, 2).freeze()).await.expect("memory");
            check(at, bytes).await;
            assert!(wrong() > before, "a read of {bytes} bytes verified its checksums");
        }
        array.stop().await.expect("it stops");
    });
}
