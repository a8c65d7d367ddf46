//! Claims about systems that refuse what the crate would like to use. The kernel really refuses: each case has a thread
//! with a seccomp filter of its own, which its executor's threads inherit. Source: seccomp(2).

mod support;

use engine::{Member, MemberErrorKind, Pool};
use format::units::MemberByte;
use futures_util::future::join_all;
use mdspace_io::net::{Listener, Stream};
use mdspace_io::{
    Backend, Choice, Direct, Executor, FileMember, OpenOptions, Options, create_preallocated, create_sparse,
};
use std::path::Path;
use support::{filled, poll_once};

const MEMBER_BYTES: u64 = 4 << 20;

/// Runs `claim` on a thread of its own, which may have calls refused.
fn on_a_thread(claim: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        scope.spawn(claim).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// Runs `claim` on a thread on which each of `calls` answers `error`.
fn where_refused(calls: &[libc::c_long], error: i32, claim: impl FnOnce() + Send) {
    on_a_thread(|| {
        refuse(calls, error);
        claim();
    });
}

/// Has the kernel refuse system calls of this thread, and of threads that it starts.
fn refuse(calls: &[libc::c_long], error: i32) {
    let step = |code: u32, on_true: u8, k: u32| libc::sock_filter { code: code as u16, jt: on_true, jf: 0, k };
    let mut steps = vec![step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0)]; // the call's number
    for (place, call) in calls.iter().enumerate() {
        steps.push(step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, (calls.len() - place) as u8, *call as u32));
    }
    steps.push(step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW));
    steps.push(step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ERRNO | error.cast_unsigned()));
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: the calls get a program that is valid while they run, and which the kernel checks and copies.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let set = libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program);
        assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
    }
}

fn automatic(pool: &Pool) -> Executor {
    Executor::new(&Options::new(pool.clone())).expect("one backend or the other")
}

/// Writes, reads, flushes, discards and zeros a member, many transfers at a time, and sends bytes through a socket.
fn everything_works(executor: &Executor, pool: &Pool, directory: &Path, context: &str) {
    for direct in [Direct::Auto, Direct::Never] {
        let path = directory.join("member");
        create_sparse(&path, MEMBER_BYTES).expect("created");
        let member = FileMember::open(&path, &OpenOptions { direct, ..OpenOptions::default() }).expect("opened");
        executor.block_on(async {
            let blocks: Vec<_> = (0..64).map(|seed| filled(pool, 16 << 10, seed).freeze()).collect();
            let at = |index: usize| MemberByte((index * (16 << 10)) as u64);
            let writes = blocks.iter().enumerate().map(|(index, block)| member.write(at(index), block.clone()));
            join_all(writes).await.into_iter().for_each(|written| written.expect(context));
            member.flush().await.expect(context);
            let reads = (0..blocks.len()).map(|index| member.read(at(index), pool.take(16 << 10)));
            for ((read, bytes), block) in join_all(reads).await.into_iter().zip(&blocks) {
                read.expect(context);
                assert!(bytes[..] == block[..], "{context}");
            }
            match member.write_zeroes(MemberByte(0), 16 << 10).await {
                Ok(()) => {}
                Err(error) => assert_eq!(error.kind, MemberErrorKind::Unsupported, "{context}: {error}"),
            }
        });
        drop(member);
        std::fs::remove_file(&path).expect("it is there");
    }
    executor.block_on(async {
        let path = directory.join("socket");
        let listener = Listener::unix(&path, 0o600).expect("listens");
        let (near, far) = futures_util::future::join(Stream::connect_unix(&path), listener.accept()).await;
        let (near, far) = (near.expect("connected"), far.expect("accepted"));
        let sent = filled(pool, 1 << 20, 7).freeze();
        let (done, got) =
            futures_util::future::join(near.send(vec![sent.clone()]), far.recv_exact(pool.take(1 << 20))).await;
        done.expect("sent");
        assert!(got.expect("received")[..] == sent[..], "{context}");
    });
}

#[test]
fn threads_take_over_where_io_uring_is_refused_and_say_why() {
    use libc::{EACCES, EINVAL, ENOMEM, ENOSYS, EPERM};
    let (setup, enter, register) = (libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register);
    let all = [setup, enter, register];
    let cases: Vec<(&[libc::c_long], i32)> =
        [EPERM, ENOSYS, EACCES, EINVAL, ENOMEM].into_iter().map(|error| (&all[..], error)).collect();
    for (calls, error) in cases.into_iter().chain([(&all[1..2], EPERM), (&all[1..], ENOSYS)]) {
        where_refused(calls, error, || {
            let pool = Pool::new(4 << 20);
            let executor = automatic(&pool);
            let context = format!("{calls:?} {}", std::io::Error::from_raw_os_error(error));
            assert_eq!(executor.backend(), Backend::Threads, "{context}");
            let refusal = executor.io_uring_refusal().and_then(std::io::Error::raw_os_error);
            assert_eq!(refusal, Some(error), "{context}");
            let directory = tempfile::tempdir_in("/var/tmp").expect("a directory");
            everything_works(&executor, &pool, directory.path(), &context);
            drop(executor);
            let only = Options { backend: Choice::Only(Backend::IoUring), ..Options::new(pool) };
            let refused = Executor::new(&only).err().and_then(|refused| refused.raw_os_error());
            assert_eq!(refused, Some(error), "{context}");
        });
    }
}

#[test]
fn a_ring_without_registration_is_used_as_it_is() {
    // ENOMEM is the answer to a limit on locked memory.
    for error in [libc::EPERM, libc::ENOMEM] {
        where_refused(&[libc::SYS_io_uring_register], error, || {
            let pool = Pool::new(4 << 20);
            let executor = automatic(&pool);
            assert_eq!((executor.backend(), executor.registered_bytes()), (Backend::IoUring, 0));
            let directory = tempfile::tempdir_in("/var/tmp").expect("a directory");
            everything_works(&executor, &pool, directory.path(), "no registration");
        });
    }
}

#[test]
fn a_ring_whose_registrations_are_refused_later_goes_on_with_those_it_has() {
    for error in [libc::EPERM, libc::ENOMEM] {
        on_a_thread(|| {
            let pool = Pool::new(8 << 20);
            let executor = automatic(&pool);
            let registered = executor.registered_bytes();
            refuse(&[libc::SYS_io_uring_register], error);
            // Transfers use memory beyond what is registered, and files that no slot is registered for.
            let taken = pool.take(registered.max(1 << 20));
            let directory = tempfile::tempdir_in("/var/tmp").expect("a directory");
            everything_works(&executor, &pool, directory.path(), "no further registration");
            assert_eq!((executor.backend(), executor.registered_bytes()), (Backend::IoUring, registered));
            drop(taken);
        });
    }
}

#[test]
fn threads_need_no_call_that_an_old_kernel_or_a_small_limit_may_refuse() {
    for (calls, error, what) in [
        (&[libc::SYS_io_setup][..], libc::ENOSYS, "the kernel's asynchronous interface"),
        (&[libc::SYS_io_submit], libc::EINVAL, "transfers without waiting"),
        (&[libc::SYS_preadv2], libc::ENOSYS, "reads without waiting"),
        (&[libc::SYS_statx], libc::ENOSYS, "statx"),
        (&[libc::SYS_statx], libc::EPERM, "statx, under an old filter"),
        (&[libc::SYS_fallocate], libc::ENOSYS, "fallocate"),
        (&[libc::SYS_fallocate], libc::EOPNOTSUPP, "fallocate on this file system"),
        (&[libc::SYS_clone, libc::SYS_clone3], libc::EAGAIN, "threads"),
        (&[libc::SYS_io_setup, libc::SYS_clone, libc::SYS_clone3], libc::EAGAIN, "threads or anything else"),
    ] {
        where_refused(calls, error, || {
            let pool = Pool::new(4 << 20);
            let threads = Options { backend: Choice::Only(Backend::Threads), ..Options::new(pool.clone()) };
            let executor = Executor::new(&threads).unwrap_or_else(|error| panic!("{what}: {error}"));
            let directory = tempfile::tempdir_in("/var/tmp").expect("a directory");
            everything_works(&executor, &pool, directory.path(), what);
            let preallocated = create_preallocated(&directory.path().join("bitmap"), 8192);
            preallocated.unwrap_or_else(|error| panic!("{what}: {error}"));
        });
    }
}

#[test]
fn a_file_system_without_locks_is_refused_by_that_reason() {
    for error in [libc::ENOLCK, libc::EOPNOTSUPP, libc::ENOSYS] {
        where_refused(&[libc::SYS_flock], error, || {
            let pool = Pool::new(4096);
            let _executor = automatic(&pool);
            let directory = tempfile::tempdir().expect("a directory");
            let path = directory.path().join("member");
            create_sparse(&path, MEMBER_BYTES).expect("created");
            let refused = FileMember::open(&path, &OpenOptions::default()).expect_err("no lock");
            assert!(refused.is_without_locks(), "{refused}");
            assert!(refused.to_string().contains("cannot lock: "), "{refused}");
        });
    }
}

/// A thread that received the signal would end the process.
#[test]
fn threads_of_the_backend_have_every_signal_blocked() {
    let pool = Pool::new(4 << 20);
    let options = Options { backend: Choice::Only(Backend::Threads), register: false, ..Options::new(pool.clone()) };
    let executor = Executor::new(&options).expect("threads");
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("member");
    create_sparse(&path, MEMBER_BYTES).expect("created");
    let member = FileMember::open(&path, &OpenOptions::default()).expect("opened");
    executor.block_on(async {
        let mut flush = Box::pin(member.flush());
        assert!(poll_once(&mut flush).await.is_pending());
        flush.await.expect("flushed");
    });
    let mut threads = 0;
    for task in std::fs::read_dir("/proc/self/task").expect("proc") {
        let place = task.expect("an entry").path();
        if std::fs::read_to_string(place.join("comm")).is_ok_and(|name| name.trim_end() == "io") {
            let status = std::fs::read_to_string(place.join("status")).expect("it is there");
            let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:\t")).expect("a line");
            let blocked = u64::from_str_radix(blocked, 16).expect("a number");
            // All but SIGKILL, SIGSTOP and the C library's own two.
            let always = 1 << 8 | 1 << 18 | 0b11 << 31;
            assert_eq!(blocked | always, u64::MAX, "{blocked:x}");
            threads += 1;
        }
    }
    assert!(threads > 0, "the flush had a thread");
}
