//! Claims about members: files on a disk's file system and on tmpfs, loop devices where the system allows them, and
//! memory.

mod support;

use engine::{Block, Buffer, Limits, Member, MemberErrorKind, Operation, Pool};
use format::units::MemberByte;
use futures_util::future::join_all;
use mdspace_io::{
    AnyMember, Direct, Executor, FileMember, Lock, MemoryMember, OpenError, OpenOptions, Options, Part,
    create_preallocated, create_sparse,
};
use std::io::{BufRead, BufReader};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use support::{LoopDevice, alone, did_not_run, executor, fill, filled, on_each_backend, options, poll_once};

const MEMBER_BYTES: u64 = 8 << 20;

/// A new, open member file in `directory`.
fn file_in(directory: &Path, options: &OpenOptions) -> FileMember {
    let path = directory.join("member");
    create_sparse(&path, MEMBER_BYTES).expect("created");
    FileMember::open(&path, options).expect("opened")
}

/// Runs `check` on a part of a file, beside which nothing may be written.
fn on_part(directory: &Path, at: u64, check: impl FnOnce(FileMember)) {
    let (path, behind) = (directory.join("disk"), 1 << 20);
    std::fs::write(&path, vec![0x5a; (at + MEMBER_BYTES + behind) as usize]).expect("written");
    let file = std::fs::File::options().write(true).open(&path).expect("opened");
    file.write_all_at(&vec![0; MEMBER_BYTES as usize], at).expect("written");
    let part = Some(Part { at, bytes: MEMBER_BYTES });
    check(FileMember::open(&path, &OpenOptions { part, ..OpenOptions::default() }).expect("opened"));
    let bytes = std::fs::read(&path).expect("it is there");
    let (before, rest) = bytes.split_at(at as usize);
    let beside = before.iter().chain(&rest[MEMBER_BYTES as usize..]);
    assert!(beside.copied().all(|byte| byte == 0x5a), "{}: written beside the part", path.display());
    assert_eq!(bytes.len() as u64, at + MEMBER_BYTES + behind);
    std::fs::remove_file(path).expect("it is there");
}

/// Runs `check` on every kind of member that this machine supports, with each backend, with registration and without.
fn on_every_kind(test: &str, check: impl AsyncFn(&AnyMember, &Pool, &str)) {
    on_each_backend(|| {
        for register in [true, false] {
            let pool = Pool::new(16 << 20);
            let executor = Executor::new(&Options { register, ..options(pool.clone()) }).expect("an executor");
            // With registration, the amount depends on the user's limit on locked memory.
            assert!(register || executor.registered_bytes() == 0);
            let directories = ["/tmp", "/dev/shm"].map(|parent| tempfile::tempdir_in(parent).expect("a directory"));
            for directory in &directories {
                for direct in [Direct::Auto, Direct::Never] {
                    let member = file_in(directory.path(), &OpenOptions { direct, ..OpenOptions::default() });
                    let name = format!("{} {member:?} {direct:?} register={register}", executor.backend());
                    let path = member.path().to_owned();
                    executor.block_on(check(&member.into(), &pool, &name));
                    std::fs::remove_file(path).expect("it is there");
                }
            }
            for (directory, at) in
                directories.iter().flat_map(|directory| [(directory, 1 << 20), (directory, 63 * 512)])
            {
                let name = format!("a part at {at} of a file in {}", directory.path().display());
                on_part(directory.path(), at, |member| executor.block_on(check(&member.into(), &pool, &name)));
            }
            let memory = MemoryMember::new(MEMBER_BYTES).expect("memory");
            executor.block_on(check(&memory.into(), &pool, "memory"));
            match LoopDevice::new(MEMBER_BYTES) {
                Ok(device) => {
                    let member = FileMember::open(device.path(), &OpenOptions::default()).expect("opened");
                    assert!(member.is_block_device() && member.is_direct());
                    executor.block_on(check(&member.into(), &pool, "loop device"));
                }
                Err(reason) => did_not_run(&format!("{test}, on a block device"), &reason),
            }
        }
    });
}

#[test]
fn a_file_that_is_taken_to_be_longer_reads_zeros_there_and_is_longer_from_the_first_write_on() {
    on_each_backend(|| {
        const WHOLE_BYTES: u64 = 4096;
        let (executor, pool) = executor();
        for parent in ["/tmp", "/dev/shm"] {
            for (direct, bytes) in
                [Direct::Auto, Direct::Never].into_iter().flat_map(|d| [(d, 300), (d, 4097), (d, 8192)])
            {
                let directory = tempfile::tempdir_in(parent).expect("a directory");
                let path = directory.path().join("short");
                std::fs::write(&path, vec![7; bytes]).expect("a directory of our own");
                let options = OpenOptions { direct, whole_bytes: WHOLE_BYTES, ..OpenOptions::default() };
                let member = FileMember::open(&path, &options).expect("opened");
                let length = || std::fs::metadata(&path).expect("it is there").len();
                let whole = (bytes as u64).next_multiple_of(WHOLE_BYTES);
                let context = format!("{parent} {direct:?} {bytes}");
                assert_eq!((member.limits().bytes, length()), (whole, bytes as u64), "{context}");
                executor.block_on(async {
                    let (result, read) = member.read(MemberByte(0), pool.take(whole as usize)).await;
                    result.expect("zeros make up for it");
                    assert!(read[..bytes].iter().all(|byte| *byte == 7), "{context}");
                    assert!(read[bytes..].iter().all(|byte| *byte == 0), "{context}");
                    let last = MemberByte(whole - WHOLE_BYTES);
                    assert_eq!(length(), bytes as u64, "{context}: a read changed it");
                    let block = pool.copy_of(&read[last.0 as usize..]);
                    member.write(last, block).await.expect("it can be longer");
                    assert_eq!(length(), whole, "{context}");
                    let (result, _) = member.read(MemberByte(whole), pool.take(512)).await;
                    assert_eq!(result.expect_err("behind its end").kind, MemberErrorKind::Short, "{context}");
                });
            }
        }
    });
}

/// Copies the buffers into one vector.
fn gather(parts: &[Buffer]) -> Vec<u8> {
    parts.iter().flat_map(|part| part.iter().copied()).collect()
}

#[test]
fn every_kind_of_member_agrees_with_an_array_of_bytes() {
    on_every_kind("reads and writes", async |member, pool, name| {
        let block = u64::from(member.limits().logical_block_bytes);
        let blocks = MEMBER_BYTES / block;
        let mut model = vec![0; MEMBER_BYTES as usize];
        let mut state = 1_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for step in 0..300_u64 {
            let length = 1 + random(if step % 10 == 0 { blocks / 4 } else { 40 }.min(blocks / 2));
            let start = random(blocks - length + 1) * block;
            let bytes = (length * block) as usize;
            let range = start as usize..start as usize + bytes;
            // Split at a block, for the vectored forms.
            let cut = (random(length) * block) as usize;
            let at = MemberByte(start);
            match random(6) {
                0 => {
                    fill(&mut model[range.clone()], step);
                    member.write(at, pool.copy_of(&model[range])).await.expect(name);
                }
                1 => {
                    fill(&mut model[range.clone()], step);
                    let whole = pool.copy_of(&model[range]);
                    let parts = vec![whole.slice(0..cut), whole.slice(cut..bytes)];
                    member.write_vectored(at, parts).await.expect(name);
                }
                2 => {
                    model[range].fill(0);
                    match member.write_zeroes(at, bytes as u64).await {
                        Ok(()) => {}
                        Err(error) => {
                            assert_eq!(error.kind, MemberErrorKind::Unsupported, "{name}: {error}");
                            let zeros = pool.zeroed(bytes).freeze();
                            member.write(at, zeros).await.expect(name);
                        }
                    }
                }
                3 | 4 => {
                    let (result, read) = member.read(at, pool.take(bytes)).await;
                    result.expect(name);
                    assert!(read[..] == model[range], "{name}, step {step}");
                }
                _ => {
                    let mut rest = filled(pool, bytes, step);
                    let front = rest.split_to(cut);
                    let (result, parts) = member.read_vectored(at, vec![front, rest]).await;
                    result.expect(name);
                    assert!(gather(&parts) == model[range], "{name}, step {step}");
                }
            }
        }
        member.flush().await.expect(name);
    });
}

#[test]
fn a_discarded_range_reads_the_same_each_time_and_its_neighbours_keep_their_bytes() {
    on_every_kind("discard", async |member, pool, name| {
        if !member.limits().discards {
            let error = member.discard(MemberByte(0), 1 << 20).await.expect_err(name);
            assert_eq!(error.kind, MemberErrorKind::Unsupported, "{name}: {error}");
            return;
        }
        let data = filled(pool, 1 << 20, 1).freeze();
        member.write(MemberByte(0), data.clone()).await.expect(name);
        let hole = 12288..12288 + (512 << 10);
        member.discard(MemberByte(hole.start as u64), hole.len() as u64).await.expect(name);
        let (result, first) = member.read(MemberByte(0), pool.take(1 << 20)).await;
        result.expect(name);
        let (result, second) = member.read(MemberByte(0), pool.take(1 << 20)).await;
        result.expect(name);
        assert!(first[..] == second[..], "{name}");
        assert!(first[..hole.start] == data[..hole.start] && first[hole.end..] == data[hole.end..], "{name}");
    });
}

#[test]
fn nothing_beyond_the_end_is_read_or_written_and_a_member_does_not_grow() {
    on_every_kind("bounds", async |member, pool, name| {
        let Limits { bytes, logical_block_bytes, .. } = *member.limits();
        assert_eq!(bytes, MEMBER_BYTES, "{name}");
        let block = u64::from(logical_block_bytes);
        for (at, length) in [(bytes - block, 2 * block), (bytes, block), (u64::MAX - block + 1, 2 * block)] {
            let at = MemberByte(at);
            let buffer = || pool.take(length as usize);
            let blocks = || pool.zeroed(length as usize).freeze();
            let outcomes = [
                (Operation::Read, member.read(at, buffer()).await.0),
                (Operation::Read, member.read_vectored(at, vec![buffer()]).await.0),
                (Operation::Write, member.write(at, blocks()).await),
                (Operation::Write, member.write_vectored(at, vec![blocks()]).await),
                (Operation::Discard, member.discard(at, length).await),
                (Operation::WriteZeroes, member.write_zeroes(at, length).await),
            ];
            for (operation, outcome) in outcomes {
                let error = outcome.expect_err(name);
                let said = (error.kind, error.operation, error.at, error.bytes);
                assert_eq!(said, (MemberErrorKind::Short, operation, at, length), "{name}");
            }
        }
        member.write(MemberByte(bytes - block), pool.zeroed(block as usize).freeze()).await.expect(name);
    });
}

#[test]
fn a_file_that_was_made_longer_is_so_once_it_is_measured() {
    on_each_backend(|| {
        let _alone = alone();
        let (executor, pool) = executor();
        let directory = tempfile::tempdir().expect("a directory");
        let member = file_in(directory.path(), &OpenOptions::default());
        let file = std::fs::File::options().write(true).open(member.path()).expect("opened");
        let write = || executor.block_on(member.write(MemberByte(MEMBER_BYTES), pool.zeroed(4096).freeze()));
        file.set_len(2 * MEMBER_BYTES).expect("it can be longer");
        let before = member.limits();
        assert_eq!((before.bytes, write().expect_err("beyond the end").kind), (MEMBER_BYTES, MemberErrorKind::Short));
        member.measure();
        assert_eq!((before.bytes, member.limits().bytes), (MEMBER_BYTES, 2 * MEMBER_BYTES));
        write().expect("within the member");
        file.set_len(4096).expect("it can be shorter");
        member.measure();
        assert_eq!(member.limits().bytes, 2 * MEMBER_BYTES, "access to the missing part is an error");
    });
}

#[test]
fn a_file_that_became_shorter_fails_and_is_never_extended_again() {
    on_each_backend(|| {
        let _alone = alone();
        let (executor, pool) = executor();
        for parent in ["/tmp", "/dev/shm"] {
            let directory = tempfile::tempdir_in(parent).expect("a directory");
            for (direct, left) in
                [(Direct::Auto, 4096), (Direct::Auto, 6144), (Direct::Never, 6144), (Direct::Never, 100)]
            {
                let member = file_in(directory.path(), &OpenOptions { direct, ..OpenOptions::default() });
                let file = std::fs::File::options().write(true).open(member.path()).expect("opened");
                file.set_len(left).expect("cut");
                executor.block_on(async {
                    let read = member.read(MemberByte(0), pool.take(16384)).await.0;
                    let vectored = member.read_vectored(MemberByte(0), vec![pool.take(8192), pool.take(8192)]).await.0;
                    let there = member.read(MemberByte(0), pool.take(4096)).await.0;
                    let write = member.write(MemberByte(8192), pool.zeroed(4096).freeze()).await;
                    for outcome in [read, vectored, there, write, member.flush().await] {
                        let error = outcome.expect_err("cut");
                        assert_eq!(error.kind, MemberErrorKind::Gone, "{parent} {direct:?} {left}: {error}");
                    }
                });
                assert_eq!(file.metadata().expect("it is open").len(), left);
                // A write gets no short result by itself: the member has to check the length.
                file.set_len(MEMBER_BYTES).expect("long again");
                let member = {
                    drop(member);
                    let options = OpenOptions { direct, ..OpenOptions::default() };
                    FileMember::open(&directory.path().join("member"), &options).expect("opened")
                };
                file.set_len(left).expect("cut");
                let write = executor.block_on(member.write(MemberByte(8192), pool.zeroed(4096).freeze()));
                assert_eq!(write.expect_err("cut").kind, MemberErrorKind::Gone, "{parent} {direct:?} {left}");
                assert_eq!(file.metadata().expect("it is open").len(), left);
                std::fs::remove_file(member.path()).expect("removed");
            }
        }
    });
}

#[test]
fn a_write_to_a_read_only_member_fails_and_changes_nothing() {
    on_each_backend(|| {
        let _alone = alone();
        let (executor, pool) = executor();
        let directory = tempfile::tempdir().expect("a directory");
        drop(file_in(directory.path(), &OpenOptions::default()));
        let path = directory.path().join("member");
        let options = OpenOptions { read_only: true, ..OpenOptions::default() };
        let member = FileMember::open(&path, &options).expect("opened");
        assert!(!member.limits().discards);
        executor.block_on(async {
            let data = filled(&pool, 4096, 1).freeze();
            member.write(MemberByte(0), data).await.expect_err("read only");
            member.write_zeroes(MemberByte(0), 4096).await.expect_err("read only");
            member.discard(MemberByte(0), 4096).await.expect_err("read only");
        });
        assert!(std::fs::read(&path).expect("read").iter().all(|byte| *byte == 0));
    });
}

#[test]
fn a_full_file_system_is_no_space() {
    on_each_backend(|| {
        let _alone = alone();
        let (executor, pool) = executor();
        let directory = tempfile::tempdir().expect("a directory");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "none"]).arg(directory.path()).output();
        if !mounted.is_ok_and(|output| output.status.success()) {
            return did_not_run("a_full_file_system_is_no_space", "may not mount");
        }
        let member = file_in(directory.path(), &OpenOptions::default());
        let outcome = executor.block_on(member.write(MemberByte(0), pool.zeroed(2 << 20).freeze()));
        drop((member, executor));
        let unmounted = Command::new("umount").arg(directory.path()).status().expect("umount");
        assert_eq!(outcome.expect_err("full").kind, MemberErrorKind::NoSpace);
        assert!(unmounted.success());
    });
}

#[test]
fn a_dropped_read_does_not_land_in_memory_that_was_taken_since() {
    on_every_kind("dropped reads", async |member, pool, name| {
        let data: Vec<Block> = (0..32).map(|seed| filled(pool, 65536, seed).freeze()).collect();
        for (index, block) in data.iter().enumerate() {
            member.write(MemberByte(index as u64 * 65536), block.clone()).await.expect(name);
        }
        for round in 0..20 {
            let mut taken = Vec::new();
            for index in 0..32_u64 {
                let mut read = Box::pin(member.read(MemberByte(index * 65536), pool.take(65536)));
                let _ = poll_once(&mut read).await;
                drop(read); // completed or not
                let mut buffer = pool.take(65536);
                buffer.fill(0xaa);
                taken.push(buffer);
            }
            let reads = (0..32_u64).map(|index| member.read(MemberByte(index * 65536), pool.take(65536)));
            for ((result, read), block) in join_all(reads).await.into_iter().zip(&data) {
                result.expect(name);
                assert!(read[..] == block[..], "{name}, round {round}");
            }
            assert!(taken.iter().all(|buffer| buffer.iter().all(|byte| *byte == 0xaa)), "{name}, round {round}");
        }
    });
}

#[test]
fn more_transfers_at_once_than_the_ring_has_room_for_all_complete() {
    on_each_backend(|| {
        let pool = Pool::new(16 << 20);
        let options = Options { ring_entries: 8, ..options(pool.clone()) };
        let executor = Executor::new(&options).expect("io_uring");
        let directory = tempfile::tempdir().expect("a directory");
        let member = file_in(directory.path(), &OpenOptions::default());
        executor.block_on(async {
            let data = filled(&pool, MEMBER_BYTES as usize, 1).freeze();
            let writes = (0..2048_usize).map(|index| {
                member.write(MemberByte(index as u64 * 4096), data.slice(index * 4096..(index + 1) * 4096))
            });
            join_all(writes).await.into_iter().for_each(|result| result.expect("written"));
            let reads = (0..2048_u64).map(|index| member.read(MemberByte(index * 4096), pool.take(4096)));
            for (index, (result, read)) in join_all(reads).await.into_iter().enumerate() {
                result.expect("read");
                assert!(read[..] == data[index * 4096..(index + 1) * 4096], "{index}");
            }
        });
    });
}

#[test]
fn an_executor_that_is_dropped_first_ends_the_transfers_under_way() {
    on_each_backend(|| {
        let _alone = alone();
        let (executor, pool) = executor();
        let directory = tempfile::tempdir().expect("a directory");
        let member = file_in(directory.path(), &OpenOptions::default());
        let mut read = Box::pin(member.read(MemberByte(0), pool.take(1 << 20)));
        let _ = executor.block_on(poll_once(&mut read));
        drop(executor);
        let (other, _) = self::executor();
        let (_, buffer) = other.block_on(read); // completed before, or cancelled
        assert_eq!(buffer.len(), 1 << 20);
        let error = other.block_on(member.flush()).expect_err("its ring is closed");
        assert_eq!(error.kind, MemberErrorKind::Gone);
    });
}

/// How two opens of one file combine.
#[test]
fn an_exclusive_member_excludes_all_others_and_readers_share() {
    on_each_backend(|| {
        let _alone = alone();
        let (_executor, _) = executor();
        let directory = tempfile::tempdir().expect("a directory");
        drop(file_in(directory.path(), &OpenOptions::default()));
        let path = directory.path().join("member");
        let open = |lock| FileMember::open(&path, &OpenOptions { lock, read_only: true, ..OpenOptions::default() });
        let cases = [
            (Lock::Exclusive, Lock::Exclusive, false),
            (Lock::Exclusive, Lock::Shared, false),
            (Lock::Exclusive, Lock::None, true),
            (Lock::Shared, Lock::Exclusive, false),
            (Lock::Shared, Lock::Shared, true),
            (Lock::None, Lock::Exclusive, true),
        ];
        for (first, second, allowed) in cases {
            let held = open(first).expect("the file is free");
            match open(second) {
                Ok(_) => assert!(allowed, "{first:?} then {second:?}"),
                Err(error) => {
                    assert!(!allowed, "{first:?} then {second:?}: {error}");
                    assert!(
                        matches!(&error, OpenError::Locked { holder: Some(pid), .. } if *pid == std::process::id())
                    );
                    let text = error.to_string();
                    assert!(
                        text.starts_with(path.to_str().expect("UTF-8")) && text.contains("this very process"),
                        "{text}"
                    );
                }
            }
            drop(held);
        }
    });
}

/// Further descriptors of the file at `path`, as a child has them between its fork and its program.
fn inherited(path: &Path) -> Vec<OwnedFd> {
    let all = std::fs::read_dir("/proc/self/fd").expect("they are listed").map(|entry| entry.expect("one").path());
    let of_it = all.filter(|fd| std::fs::read_link(fd).is_ok_and(|file| file == path));
    let numbers = of_it.map(|fd| fd.file_name().and_then(|name| name.to_str()?.parse().ok()).expect("a number"));
    // SAFETY: the member, which the caller keeps, has them open.
    numbers.map(|fd| unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned().expect("a descriptor")).collect()
}

#[test]
fn a_member_that_was_dropped_is_free_although_a_child_has_inherited_its_file() {
    on_each_backend(|| {
        let _alone = alone();
        let (_executor, _) = executor();
        let directory = tempfile::tempdir().expect("a directory");
        drop(file_in(directory.path(), &OpenOptions::default()));
        let path = directory.path().canonicalize().expect("it is there").join("member");
        for part in [None, Some(Part { at: 1 << 20, bytes: 1 << 20 })] {
            for lock in [Lock::Exclusive, Lock::Shared] {
                let held = FileMember::open(&path, &OpenOptions { lock, part, ..OpenOptions::default() });
                let held = held.expect("it is free");
                let inherited = inherited(&path);
                assert!(!inherited.is_empty());
                drop(held);
                FileMember::open(&path, &OpenOptions::default())
                    .unwrap_or_else(|why| panic!("{part:?} {lock:?}: {why}"));
            }
        }
    });
}

#[test]
fn parts_of_a_file_are_members_of_their_own_and_exclude_the_whole() {
    let _alone = alone();
    let (_executor, _) = executor();
    let directory = tempfile::tempdir().expect("a directory");
    drop(file_in(directory.path(), &OpenOptions::default()));
    let path = directory.path().join("member");
    let open = |lock, at, bytes| {
        let part = Some(Part { at, bytes });
        FileMember::open(&path, &OpenOptions { lock, part, ..OpenOptions::default() })
    };
    let whole = |lock| FileMember::open(&path, &OpenOptions { lock, ..OpenOptions::default() });
    let (first, second) = ((1 << 20, 2 << 20), (3 << 20, 1 << 20));
    let cases = [
        (Lock::Exclusive, second, Lock::Exclusive, true),
        (Lock::Exclusive, (2 << 20, 2 << 20), Lock::Exclusive, false),
        (Lock::Exclusive, first, Lock::Shared, false),
        (Lock::Shared, first, Lock::Shared, true),
        (Lock::Shared, first, Lock::Exclusive, false),
        (Lock::Exclusive, first, Lock::None, true),
    ];
    for (held, (at, bytes), wanted, allowed) in cases {
        let member = open(held, first.0, first.1).expect("it is free");
        assert_eq!(member.limits().bytes, first.1);
        let other = open(wanted, at, bytes);
        assert_eq!(other.is_ok(), allowed, "{held:?}, then {at} {bytes} {wanted:?}");
        assert!(matches!(other, Ok(_) | Err(OpenError::Locked { .. })));
        drop(other);
        assert!(whole(Lock::Exclusive).is_err(), "{held:?}: the whole file is not free");
        assert_eq!(whole(Lock::Shared).is_ok(), held == Lock::Shared);
        drop(member);
        let _all = whole(Lock::Exclusive).expect("it is free");
        assert!(matches!(open(Lock::Shared, at, bytes), Err(OpenError::Locked { .. })));
    }
    // A part ends with its file, and cannot begin behind it or inside a sector.
    assert_eq!(open(Lock::None, 7 << 20, u64::MAX).expect("it begins there").limits().bytes, 1 << 20);
    for (at, words) in [(8 << 20, "past the end"), (u64::MAX - 511, "past the end"), (100, "inside a block")] {
        let error = open(Lock::None, at, 4096).expect_err(words).to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn a_file_of_which_another_program_has_locked_a_part_is_not_written_to() {
    on_each_backend(|| {
        let _alone = alone();
        let (_executor, _) = executor();
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("member");
        create_sparse(&path, MEMBER_BYTES).expect("created");
        let other = std::fs::File::open(&path).expect("opened");
        // SAFETY: a flock is plain data, and the call gets a pointer to it that is valid while it runs.
        let locked = unsafe {
            let mut byte: libc::flock = std::mem::zeroed();
            (byte.l_type, byte.l_start, byte.l_len) = (libc::F_RDLCK as libc::c_short, 100, 1);
            libc::fcntl(other.as_raw_fd(), libc::F_OFD_SETLK, &raw const byte)
        };
        assert_eq!(locked, 0);
        let open = |lock| FileMember::open(&path, &OpenOptions { lock, ..OpenOptions::default() });
        let error = open(Lock::Exclusive).expect_err("locked as qemu locks");
        assert!(matches!(error, OpenError::Locked { holder: None, .. }), "{error:?}");
        open(Lock::Shared).expect("to read is allowed");
        drop(other);
        open(Lock::Exclusive).expect("free again");
    });
}

#[test]
fn another_process_is_kept_out_and_named_when_it_was_first() {
    on_each_backend(|| {
        let _alone = alone();
        let (_executor, _) = executor();
        let directory = tempfile::tempdir().expect("a directory");
        let member = file_in(directory.path(), &OpenOptions::default());
        let path = member.path().to_owned();
        let try_lock =
            || Command::new("flock").arg("--nonblock").arg(&path).arg("true").status().expect("flock").success();
        assert!(!try_lock(), "while it is open here");
        drop(member);
        assert!(try_lock(), "once it is closed");

        let mut other = Command::new("flock")
            .arg(&path)
            .args(["sh", "-c", "echo held; cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("flock");
        let mut line = String::new();
        BufReader::new(other.stdout.take().expect("piped")).read_line(&mut line).expect("read");
        assert_eq!(line, "held\n");
        let error = FileMember::open(&path, &OpenOptions::default()).expect_err("held");
        let text = error.to_string();
        assert!(matches!(error, OpenError::Locked { holder: Some(pid), .. } if pid == other.id()), "{error:?}");
        assert!(text.ends_with(&format!("by process {} (flock)", other.id())), "{text}");
        drop(other.stdin.take());
        other.wait().expect("ended");
        FileMember::open(&path, &OpenOptions::default()).expect("free again");
    });
}

#[test]
fn a_block_device_is_opened_once_and_not_while_it_is_mounted() {
    on_each_backend(|| {
        let _alone = alone();
        let (_executor, _) = executor();
        let test = "a_block_device_is_opened_once_and_not_while_it_is_mounted";
        let device = match LoopDevice::new(64 << 20) {
            Ok(device) => device,
            Err(reason) => return did_not_run(test, &reason),
        };
        let open = |lock, read_only| {
            FileMember::open(device.path(), &OpenOptions { lock, read_only, ..OpenOptions::default() }).map(drop)
        };
        let held = FileMember::open(device.path(), &OpenOptions::default()).expect("opened");
        for lock in [Lock::Exclusive, Lock::Shared] {
            assert!(matches!(open(lock, true), Err(OpenError::Busy { .. })), "{lock:?}");
        }
        open(Lock::None, true).expect("looking is allowed");
        let directory = tempfile::tempdir().expect("a directory");
        let mount = || Command::new("mount").arg(device.path()).arg(directory.path()).output().expect("mount");
        let made = Command::new("mkfs.ext4").arg("-q").arg(device.path()).output();
        assert!(made.is_ok_and(|output| !output.status.success()), "mkfs respects the claim");
        assert!(!mount().status.success());
        drop(held);

        let made = Command::new("mkfs.ext4").arg("-q").arg(device.path()).output().expect("mkfs.ext4");
        assert!(made.status.success(), "{made:?}");
        assert!(mount().status.success());
        let refused = open(Lock::Exclusive, false);
        let unmounted = Command::new("umount").arg(directory.path()).status().expect("umount");
        assert!(unmounted.success());
        assert!(matches!(refused, Err(OpenError::Busy { .. })), "{refused:?}");
        open(Lock::Exclusive, false).expect("free again");
    });
}

/// Regression: two servers of one array, through a file and through its loop device, overwrote each other's data.
#[test]
fn a_member_is_exclusive_on_every_path_to_its_bytes() {
    on_each_backend(|| {
        let _alone = alone();
        let (_executor, _) = executor();
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("member");
        create_sparse(&file, MEMBER_BYTES).expect("created");
        let (hard, symbolic) = (directory.path().join("hard"), directory.path().join("symbolic"));
        std::fs::hard_link(&file, &hard).expect("linked");
        std::os::unix::fs::symlink(&file, &symbolic).expect("linked");
        let test = "a_member_is_exclusive_on_every_path_to_its_bytes";
        let loops = || -> Result<_, String> {
            let first = LoopDevice::over(&file, &[])?;
            let second = LoopDevice::over(&hard, &[])?;
            let over_first = LoopDevice::over(first.path(), &[])?;
            Ok([first, second, over_first])
        };
        let devices = match loops() {
            Ok(devices) => devices,
            Err(reason) => return did_not_run(test, &reason),
        };
        let paths = || devices.iter().map(LoopDevice::path).chain([&*file, &*hard, &*symbolic]);
        let open = |path: &Path, lock| {
            let read_only = lock != Lock::Exclusive;
            FileMember::open(path, &OpenOptions { lock, read_only, ..OpenOptions::default() })
        };
        for (first, second) in paths().flat_map(|first| paths().map(move |second| (first, second))) {
            let held = open(first, Lock::Exclusive).unwrap_or_else(|error| panic!("free: {error}"));
            for lock in [Lock::Exclusive, Lock::Shared] {
                let error = open(second, lock).expect_err("in use through another path");
                let text = error.to_string();
                assert!(text.starts_with(&*second.to_string_lossy()) && text.contains("in use"), "{first:?}: {text}");
            }
            open(second, Lock::None).expect("looking is allowed");
            drop(held);
            let reader = open(first, Lock::Shared).expect("free again");
            open(second, Lock::Exclusive).expect_err("read through another path");
            drop(reader);
        }
        // The kernel's use of a file through its loop device excludes this crate, and the other way round.
        let run = |program: &str, arguments: &[&Path]| Command::new(program).args(arguments).output().expect(program);
        let held = open(&file, Lock::Exclusive).expect("free");
        let made = run("mkfs.ext4", &["-q".as_ref(), devices[0].path()]);
        assert!(!made.status.success(), "the loop device over a member is claimed");
        drop(held);
        let made = run("mkfs.ext4", &["-q".as_ref(), devices[0].path()]);
        assert!(made.status.success(), "{made:?}");
        let place = tempfile::tempdir().expect("a directory");
        assert!(run("mount", &[devices[0].path(), place.path()]).status.success());
        let refused = [&file, &hard].map(|path| open(path, Lock::Exclusive).map(drop));
        assert!(run("umount", &[place.path()]).status.success());
        for refused in refused {
            let text = refused.expect_err("its loop device is mounted").to_string();
            assert!(text.contains(&*devices[0].path().to_string_lossy()), "{text}");
        }
        open(&file, Lock::Exclusive).expect("free again");
    });
}

/// Such are the partitions of a disk image.
#[test]
fn parts_of_one_file_that_do_not_overlap_are_different_members() {
    on_each_backend(|| {
        let _alone = alone();
        let (_executor, _) = executor();
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("disk");
        create_sparse(&file, 4 << 20).expect("created");
        let part = |offset: &str, length: &str| LoopDevice::over(&file, &["--offset", offset, "--sizelimit", length]);
        let test = "parts_of_one_file_that_do_not_overlap_are_different_members";
        let (first, second, both) = match (part("0", "1M"), part("1M", "2M"), part("512K", "1M")) {
            (Ok(first), Ok(second), Ok(both)) => (first, second, both),
            (first, second, both) => {
                let reason = first.err().or(second.err()).or(both.err()).expect("one of them");
                return did_not_run(test, &reason);
            }
        };
        let open = |path: &Path, lock| {
            let read_only = lock != Lock::Exclusive;
            FileMember::open(path, &OpenOptions { lock, read_only, ..OpenOptions::default() })
        };
        let held = (open(first.path(), Lock::Exclusive), open(second.path(), Lock::Exclusive));
        held.0.as_ref().and(held.1.as_ref()).expect("they have nothing in common");
        for path in [both.path(), &file] {
            for lock in [Lock::Exclusive, Lock::Shared] {
                let text = open(path, lock).expect_err("it has something in common with them").to_string();
                assert!(text.contains("in use"), "{text}");
            }
        }
        drop(held);
        let held = open(both.path(), Lock::Exclusive).expect("free again");
        for path in [first.path(), second.path(), &file] {
            open(path, Lock::Exclusive).expect_err("it has something in common with it");
        }
        drop(held);
        let held = open(&file, Lock::Exclusive).expect("free again");
        for path in [first.path(), second.path(), both.path()] {
            open(path, Lock::Exclusive).expect_err("it is a part of it");
        }
        drop(held);
    });
}

#[test]
fn what_cannot_be_a_member_is_refused_by_name() {
    on_each_backend(|| {
        let _alone = alone();
        let (_executor, _) = executor();
        let directory = tempfile::tempdir().expect("a directory");
        let pipe = directory.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
        let absent = directory.path().join("absent");
        for (path, words) in [
            (directory.path(), "neither a regular file nor a block device"),
            (&pipe, "neither a regular file nor a block device"),
            (Path::new("/dev/null"), "neither a regular file nor a block device"),
            (&absent, "cannot open: No such file or directory"),
        ] {
            let text = FileMember::open(path, &OpenOptions::default()).expect_err("no member").to_string();
            assert!(text.starts_with(&format!("{}: {words}", path.display())), "{text}");
        }
    });
}

#[test]
fn a_preallocated_file_is_zeros_for_its_owner_and_replaces_nothing() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("bitmap");
    create_preallocated(&path, 12 << 10).expect("created");
    assert_eq!(std::fs::read(&path).expect("exists"), vec![0; 12 << 10]);
    assert_eq!(path.metadata().expect("exists").permissions().mode() & 0o777, 0o600);
    assert_eq!(create_preallocated(&path, 1).expect_err("exists").kind(), std::io::ErrorKind::AlreadyExists);
    assert_eq!(path.metadata().expect("exists").len(), 12 << 10);
    let path = directory.path().join("too large");
    create_preallocated(&path, 1 << 62).expect_err("no disk has the space");
    assert!(!path.exists());
}

#[test]
fn a_sparse_file_takes_no_space_and_replaces_nothing() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("member");
    create_sparse(&path, 1 << 40).expect("created");
    let status = path.metadata().expect("exists");
    assert_eq!((status.len(), status.blocks(), status.permissions().mode() & 0o077), (1 << 40, 0, 0));
    assert_eq!(create_sparse(&path, 1).expect_err("exists").kind(), std::io::ErrorKind::AlreadyExists);
    assert_eq!(path.metadata().expect("exists").len(), 1 << 40);
    let path = directory.path().join("too large");
    create_sparse(&path, u64::MAX).expect_err("too large");
    assert!(!path.exists());
}

#[test]
fn untouched_and_discarded_memory_takes_none() {
    on_each_backend(|| {
        let pool = Pool::new(1 << 20);
        let member = MemoryMember::new(1 << 40).expect("addresses are free");
        let resident = || {
            let text = std::fs::read_to_string("/proc/self/smaps_rollup").expect("proc");
            let line = text.lines().find(|line| line.starts_with("Private_Dirty")).expect("a line").to_owned();
            line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("a number")
        };
        let _alone = alone();
        let (executor, _) = executor();
        executor.block_on(async {
            let block = pool.copy_of(&[1; 65536]);
            for index in 0..8192 {
                member.write(MemberByte((1 << 39) + index * 65536), block.clone()).await.expect("written");
            }
            let full = resident();
            member.discard(MemberByte(100 * 512), (1 << 40) - 200 * 512).await.expect("discarded");
            assert!(resident() + (256 << 10) < full, "{full} KiB before, {} KiB after", resident());
            let (result, read) = member.read(MemberByte(1 << 39), pool.take(65536)).await;
            result.expect("read");
            assert!(read.iter().all(|byte| *byte == 0));
        });
    });
}
