//! Claims about members: files on a disk's file system and on tmpfs, block
//! devices where that is allowed, and memory.

use engine::{Member, MemberErrorKind, Pool};
use format::units::MemberByte;
use mdspace_io::{AnyMember, Executor, FileMember, MemoryMember, OpenOptions, Options, create_sparse};

const MEMBER_BYTES: u64 = 4 << 20;

#[test]
fn every_kind_of_member_gives_back_what_was_written() {
    let pool = Pool::new(4 << 20);
    let executor = Executor::new(&Options::new(pool.clone())).expect("io_uring");
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("member");
    create_sparse(&path, MEMBER_BYTES).expect("created");
    let file = FileMember::open(&path, &OpenOptions::default()).expect("opened");
    for member in [AnyMember::from(file), MemoryMember::new(MEMBER_BYTES).expect("memory").into()] {
        executor.block_on(async {
            let mut buffer = pool.take(12288);
            for (index, byte) in buffer.iter_mut().enumerate() {
                *byte = (index / 7) as u8;
            }
            let block = buffer.freeze();
            member.write(MemberByte(8192), block.clone()).await.expect("written");
            member.flush().await.expect("flushed");
            let (result, read) = member.read(MemberByte(8192), pool.take(12288)).await;
            result.expect("read");
            assert_eq!(read[..], block[..]);
            let (result, _) = member.read(MemberByte(MEMBER_BYTES - 4096), pool.take(8192)).await;
            assert_eq!(result.expect_err("too long").kind, MemberErrorKind::Short);
        });
    }
}
