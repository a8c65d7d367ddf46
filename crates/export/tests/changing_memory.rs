//! A client changes its memory during a write, as a virtual machine may do with a mapped page. Copies must stay equal
//! and parity consistent at each level, because the server copies the data out of the client's memory once.
//!
//! The client uses vhost-user, the interface in which client and server share memory. The data written may be any mix
//! of the values.

#[path = "support/running.rs"]
mod running;
#[path = "support/virtual_machine.rs"]
mod virtual_machine;

use engine::create::{Contents, Newcomer, Recipe, create};
use engine::{Array, AssembleOptions, Block, Buffer, Candidate, Pool};
use format::geometry::Level;
use io::{MemoryMember, RealClock};
use mdspace_export::vhost_user::Server;
use mdspace_export::{Durability, Volume, VolumeError, VolumeErrorKind};
use running::Served;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use virtual_machine::VirtualMachine;

const MEMBERS: usize = 4;
const CHUNK_BYTES: u64 = 16 << 10;

/// The writes, in bytes: several chunks, and less than one.
const WRITES: [usize; 3] = [64 << 10, 8 << 10, 4 << 10];

type InMemory = Array<Rc<MemoryMember>, RealClock>;

/// The array as a volume. It forwards only the requests that this client sends.
#[derive(Clone)]
struct Exported(InMemory);

fn failed(error: engine::ArrayError) -> VolumeError {
    VolumeError::new(VolumeErrorKind::Io, error.reason)
}

impl Volume for Exported {
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn preferred_block_bytes(&self) -> u32 {
        4096
    }

    fn pool(&self) -> &Pool {
        self.0.pool()
    }

    async fn read(&self, at: u64, into: Buffer) -> Result<Buffer, VolumeError> {
        self.0.read(at, into).await.map_err(failed)
    }

    async fn write(&self, at: u64, from: Block, _: Durability) -> Result<(), VolumeError> {
        self.0.write(at, from, engine::Durability::Ordinary).await.map_err(failed)
    }

    async fn flush(&self) -> Result<(), VolumeError> {
        self.0.flush().await.map_err(failed)
    }

    async fn discard(&self, _: u64, _: u64) -> Result<(), VolumeError> {
        Ok(())
    }

    async fn write_zeroes(&self, at: u64, bytes: u64, _: bool, _: Durability) -> Result<(), VolumeError> {
        self.0.write_zeroes(at, bytes, engine::Durability::Ordinary).await.map_err(failed)
    }
}

/// A new array over members in memory.
async fn made(level: Level, members: &[Rc<MemoryMember>], pool: &Pool) -> InMemory {
    let recipe = Recipe {
        chunk_bytes: if level == Level::Raid1 { 0 } else { CHUNK_BYTES },
        name: "changing".to_owned(),
        contents: Contents::Consistent,
        ..Recipe::new(level, [7; 16])
    };
    let newcomer = |(index, candidate)| Some(Newcomer { device_uuid: [index as u8; 16], candidate });
    let newcomers: Vec<_> = candidates(members, None).into_iter().enumerate().map(newcomer).collect();
    create(&recipe, &newcomers, &[], pool, &RealClock::new(), &|_, _| {}).await.expect("it is made");
    assemble(members, None, pool).await
}

/// All members, or all but one.
fn candidates(members: &[Rc<MemoryMember>], without: Option<usize>) -> Vec<Candidate<Rc<MemoryMember>>> {
    let there = (0..members.len()).filter(|index| Some(*index) != without);
    there.map(|index| Candidate { name: format!("m{index}"), member: members[index].clone() }).collect()
}

async fn assemble(members: &[Rc<MemoryMember>], without: Option<usize>, pool: &Pool) -> InMemory {
    let offered = candidates(members, without);
    let array = Array::assemble(offered, AssembleOptions::default(), pool.clone(), RealClock::new());
    array.await.expect("it can be used")
}

async fn contents(array: &InMemory) -> Vec<u8> {
    array.read(0, array.pool().take(array.bytes() as usize)).await.expect("all can be had").to_vec()
}

#[test]
fn memory_that_changes_while_it_is_written_leaves_copies_equal_and_parity_right() {
    for level in [Level::Raid1, Level::Raid4, Level::Raid5, Level::Raid6, Level::Raid10] {
        let served = Served::by(4096, false, async move |directory, volume, stopped| {
            let pool = volume.pool().clone();
            let members: Vec<_> = (0..MEMBERS).map(|_| Rc::new(MemoryMember::new(4 << 20).expect("memory"))).collect();
            let array = made(level, &members, &pool).await;
            let server = Server::start(&directory.join("vhost"), 0o600.into(), Exported(array.clone()), "an array")
                .expect("a server");
            stopped.await;
            server.stop().await;
            array.stop().await.expect("it stops clean");
            let whole = contents(&assemble(&members, None, &pool).await).await;
            for missing in 0..MEMBERS {
                let rest = assemble(&members, Some(missing), &pool).await;
                assert!(contents(&rest).await == whole, "{level:?}: without m{missing}");
            }
        });
        let mut client = VirtualMachine::connect(&served.path("vhost"), 1, 1 << 20).expect("a client");
        let (memory, is_over) = (client.memory(), Arc::new(AtomicBool::new(false)));
        let flipping = std::thread::spawn({
            let is_over = is_over.clone();
            move || {
                for value in (0..=u8::MAX).cycle() {
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    memory.write_all_at(&[value; WRITES[0]], 0).expect("memory can be written");
                }
            }
        });
        for number in 0..600 {
            let bytes = WRITES[number % WRITES.len()];
            client.write(0, (number * 37 % 96 * 4096) as u64, 0, bytes, number);
            assert_eq!(client.only(0), 0, "{level:?}: write {number}");
        }
        is_over.store(true, Ordering::Relaxed);
        flipping.join().expect("it only writes");
        drop(client);
        served.stop();
    }
}
