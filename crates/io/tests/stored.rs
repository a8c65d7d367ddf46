//! Claims about an overlay in files, against a plain model in memory: what it reads, what a loss of power may leave, and
//! that the member below never changes.

mod support;

use engine::{Member, MemberErrorKind, Pool};
use format::overlay::{BLOCK_BYTES, Header, Identity, Index};
use format::units::MemberByte;
use futures_util::future::{join, join_all};
use mdspace_io::{AnyMember, FileMember, Lock, MemoryMember, OpenOptions, StoredFiles, StoredOverlay, create_sparse};
use std::fs::File;
use std::path::Path;
use std::rc::Rc;
use support::{executor, on_each_backend};

const UNIT: usize = 512;

/// The files of an overlay of `bytes`, made new in `place`.
fn make(place: &Path, bytes: u64) {
    create_sparse(&place.join("data"), bytes.next_multiple_of(BLOCK_BYTES)).expect("a data file");
    let identity = Identity { bytes, first: 0, last: 0, modified: 0, events: 0, samples: 0, written: None };
    let header = Header { name: b"m".to_vec(), identity, holes: None };
    std::fs::write(place.join("index"), header.encode()).expect("an index");
}

/// The overlay in `place` over `under`, as its index says.
fn open(place: &Path, under: &Rc<MemoryMember>, is_written: bool) -> StoredOverlay {
    let options = OpenOptions { read_only: !is_written, lock: Lock::None, ..OpenOptions::default() };
    let data = FileMember::open(&place.join("data"), &options).expect("its data");
    let path = place.join("index");
    let index = Index::decode(&std::fs::read(&path).expect("its index")).expect("a whole index");
    let file = File::options().write(true).open(path).expect("its index");
    let bytes = index.header.identity.bytes;
    let files = StoredFiles { bytes, data, index: is_written.then(|| (file.into(), index.end)), blocks: index.blocks };
    StoredOverlay::new(AnyMember::Memory(under.clone()), files)
}

/// A pseudorandom number below `limit`.
fn below(state: &mut u64, limit: usize) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as usize % limit
}

async fn read_all(overlay: &impl Member, pool: &Pool) -> Vec<u8> {
    let (read, bytes) = overlay.read(MemberByte(0), pool.take(overlay.limits().bytes as usize)).await;
    read.expect("in range");
    bytes.to_vec()
}

/// What each sector may hold after a loss of power, oldest first; the last is what it holds now.
struct Model(Vec<Vec<u8>>);

impl Model {
    fn write(&mut self, sectors: std::ops::Range<usize>, value: u8) {
        self.0[sectors].iter_mut().for_each(|sector| sector.push(value));
    }

    fn flush(&mut self) {
        self.0.iter_mut().for_each(|sector| drop(sector.drain(..sector.len() - 1)));
    }

    fn is_now(&self, bytes: &[u8]) -> bool {
        self.0.iter().zip(bytes.chunks(UNIT)).all(|(sector, found)| found.iter().all(|b| Some(b) == sector.last()))
    }

    /// Takes what a loss of power left, if it was allowed to.
    fn settle(&mut self, bytes: &[u8]) -> bool {
        self.0.iter_mut().zip(bytes.chunks(UNIT)).all(|(sector, found)| {
            let is_allowed = sector.contains(&found[0]) && found.iter().all(|byte| *byte == found[0]);
            *sector = vec![found[0]];
            is_allowed
        })
    }
}

#[test]
fn it_is_a_disk_with_a_volatile_cache_and_the_member_below_never_changes() {
    on_each_backend(|| {
        for seed in 0..6_u64 {
            let (executor, pool) = executor();
            let place = tempfile::tempdir().expect("a directory");
            let sectors = 24 * 8 - 5;
            let bytes = (sectors * UNIT) as u64;
            make(place.path(), bytes);
            let under = Rc::new(MemoryMember::new(bytes).expect("memory"));
            let old: Vec<u8> = (0..sectors).flat_map(|sector| [200 + (sector % 50) as u8; UNIT]).collect();
            let mut model = Model(old.chunks(UNIT).map(|sector| vec![sector[0]]).collect());
            let mut state = seed;
            executor.block_on(async {
                under.write(MemberByte(0), pool.copy_of(&old)).await.expect("in range");
                for life in 0..8 {
                    let overlay = open(place.path(), &under, true);
                    assert!(model.settle(&read_all(&overlay, &pool).await), "seed {seed}, life {life}");
                    for step in 0..40 {
                        let at = below(&mut state, sectors);
                        let count = below(&mut state, 20.min(sectors - at)) + 1;
                        let (start, value) = (MemberByte((at * UNIT) as u64), (step + life * 40) as u8 % 200);
                        let length = (count * UNIT) as u64;
                        match below(&mut state, 8) {
                            0 => overlay.flush().await.map(|()| model.flush()).expect("flushed"),
                            1 => {
                                // Not every file system zeroes a range.
                                match overlay.write_zeroes(start, length).await {
                                    Ok(()) => model.write(at..at + count, 0),
                                    Err(error) => assert_eq!(error.kind, MemberErrorKind::Unsupported),
                                }
                            }
                            2 => {
                                let mut first = pool.take(count * UNIT);
                                let front = first.split_to(count / 2 * UNIT);
                                let (read, parts) = overlay.read_vectored(start, vec![front, first]).await;
                                read.expect("in range");
                                let read: Vec<u8> = parts.iter().flat_map(|part| part.to_vec()).collect();
                                assert!(Model(model.0[at..at + count].to_vec()).is_now(&read), "seed {seed}");
                            }
                            3 => {
                                let whole = pool.copy_of(&vec![value; count * UNIT]);
                                let middle = count / 2 * UNIT;
                                let parts = vec![whole.slice(0..middle), whole.slice(middle..count * UNIT)];
                                overlay.write_vectored(start, parts).await.expect("written");
                                model.write(at..at + count, value);
                            }
                            _ => {
                                let from = pool.copy_of(&vec![value; count * UNIT]);
                                overlay.write(start, from).await.expect("written");
                                model.write(at..at + count, value);
                            }
                        }
                    }
                    assert!(model.is_now(&read_all(&overlay, &pool).await), "seed {seed}, life {life}");
                    // Dropped without a flush: what no record names is lost.
                }
                assert!(read_all(&*under, &pool).await == old, "an overlay wrote to the member below");
            });
        }
    });
}

#[test]
fn writes_of_several_sectors_at_once_all_last() {
    on_each_backend(|| {
        let (executor, pool) = executor();
        let place = tempfile::tempdir().expect("a directory");
        make(place.path(), 64 * BLOCK_BYTES);
        let under = Rc::new(MemoryMember::new(64 * BLOCK_BYTES).expect("memory"));
        executor.block_on(async {
            let overlay = open(place.path(), &under, true);
            let write = |sector: u64| overlay.write(MemberByte(sector * 512), pool.copy_of(&[sector as u8; UNIT]));
            let (written, flushed) = join(join_all((0..64).rev().map(write)), overlay.flush()).await;
            written.into_iter().for_each(|written| written.expect("written"));
            flushed.expect("flushed");
            overlay.flush().await.expect("flushed");
            let again = open(place.path(), &under, false);
            for (sector, bytes) in read_all(&again, &pool).await.chunks(UNIT).enumerate() {
                assert!(bytes.iter().all(|byte| *byte == sector as u8), "sector {sector}");
            }
            let refused = again.write(MemberByte(0), pool.copy_of(&[0; UNIT])).await.expect_err("for reading only");
            assert_eq!(refused.kind, MemberErrorKind::Gone);
            let beyond = overlay.write(MemberByte(64 * BLOCK_BYTES), pool.copy_of(&[0; UNIT])).await;
            assert_eq!(beyond.expect_err("beyond").kind, MemberErrorKind::Short);
        });
    });
}
