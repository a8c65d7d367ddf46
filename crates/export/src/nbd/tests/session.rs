//! Sessions with this crate's client: every command, every error, limits, a disconnect at every byte of a dialogue,
//! closing, and many clients against a model.

use super::memory;
use super::pipe::{End, pipe};
use crate::memory::MemoryVolume;
use crate::nbd::client::{Client, ClientError, connect};
use crate::nbd::handshake::ClientOptions;
use crate::nbd::memory::{Account, Memory, Source};
use crate::nbd::session::{Ended, Export, Limits, serve};
use crate::nbd::stream::{ByteStream, Closing, ReceiveError};
use crate::nbd::tls::Security;
use crate::nbd::wire::{Errno, REQUEST_MAGIC, RequestHeader, command, command_flag};
use crate::volume::{Durability, Extent, Volume, VolumeError, VolumeErrorKind};
use engine::{Block, Buffer, Pool};
use futures_channel::oneshot;
use futures_executor::LocalPool;
use futures_util::future::{join, join_all};
use futures_util::task::LocalSpawnExt;
use proptest::prelude::*;
use std::cell::{Cell, RefCell};
use std::future::{Future, pending, poll_fn};
use std::rc::Rc;
use std::task::{Poll, Waker};
use zerocopy::IntoBytes;

const BYTES: usize = 1 << 20;

/// A volume whose operations wait for the test, and which counts them.
#[derive(Clone)]
struct Slow {
    memory: MemoryVolume,
    state: Rc<Gate>,
}

#[derive(Default)]
struct Gate {
    /// How many times each operation is polled before it proceeds.
    turns: Cell<u32>,
    /// Whether operations wait for [`Gate::open`].
    shut: Cell<bool>,
    waiting: RefCell<Vec<Waker>>,
    in_flight: Cell<usize>,
    most: Cell<usize>,
    /// Bytes of buffers that reads hold or have filled.
    read_bytes: Cell<u64>,
    failing: Cell<Option<VolumeErrorKind>>,
}

impl Gate {
    fn open(&self) {
        self.shut.set(false);
        self.waiting.take().into_iter().for_each(Waker::wake);
    }
}

impl Slow {
    fn new(bytes: usize) -> Self {
        Self { memory: MemoryVolume::new(bytes, Pool::new(64 << 20)), state: Rc::default() }
    }

    async fn wait(&self) -> Result<(), VolumeError> {
        let state = &self.state;
        state.in_flight.set(state.in_flight.get() + 1);
        state.most.set(state.most.get().max(state.in_flight.get()));
        let mut turns = state.turns.get();
        poll_fn(|cx| {
            if state.shut.get() {
                state.waiting.borrow_mut().push(cx.waker().clone());
                return Poll::Pending;
            }
            if turns == 0 {
                return Poll::Ready(());
            }
            turns -= 1;
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
        state.in_flight.set(state.in_flight.get() - 1);
        state.failing.get().map_or(Ok(()), |kind| Err(VolumeError::new(kind, "as the test wants it")))
    }
}

impl Volume for Slow {
    fn bytes(&self) -> u64 {
        self.memory.bytes()
    }
    fn is_read_only(&self) -> bool {
        self.memory.is_read_only()
    }
    fn preferred_block_bytes(&self) -> u32 {
        65536
    }
    fn pool(&self) -> &Pool {
        self.memory.pool()
    }
    async fn read(&self, at: u64, into: Buffer) -> Result<Buffer, VolumeError> {
        self.state.read_bytes.set(self.state.read_bytes.get() + into.len() as u64);
        self.wait().await?;
        self.memory.read(at, into).await
    }
    async fn write(&self, at: u64, from: Block, durability: Durability) -> Result<(), VolumeError> {
        self.wait().await?;
        self.memory.write(at, from, durability).await
    }
    async fn flush(&self) -> Result<(), VolumeError> {
        self.wait().await
    }
    async fn discard(&self, at: u64, bytes: u64) -> Result<(), VolumeError> {
        self.wait().await?;
        self.memory.discard(at, bytes).await
    }
    async fn write_zeroes(&self, at: u64, bytes: u64, hole: bool, durability: Durability) -> Result<(), VolumeError> {
        self.wait().await?;
        self.memory.write_zeroes(at, bytes, hole, durability).await
    }
    async fn allocation(&self, at: u64, bytes: u64) -> Result<Vec<Extent>, VolumeError> {
        self.memory.allocation(at, bytes).await
    }
}

fn exports(volume: &Slow) -> Vec<Export<Slow>> {
    vec![Export { name: "array".into(), volume: volume.clone() }]
}

/// Runs `client` against a session of `volume` over a pipe split by `seed`. Each is a task of its own, so that neither
/// depends on the other's wakes.
fn with_session<F: Future<Output = T>, T>(
    volume: &Slow,
    limits: Limits,
    seed: u64,
    client: impl FnOnce(End) -> F,
) -> (Result<Ended, String>, T) {
    let (here, there) = pipe(100_000, seed);
    let exports = exports(volume);
    let (sender, ended) = oneshot::channel();
    let session = async move {
        let ended = serve(&there, &exports, limits, &memory(), &Closing::default(), &Security::Plain, pending()).await;
        sender.send(ended.map_err(|error| error.to_string())).expect("the test waits");
    };
    let mut pool = LocalPool::new();
    pool.spawner().spawn_local(session).expect("the pool takes tasks");
    let result = pool.run_until(client(here));
    (pool.run_until(ended).expect("the session tells how it ended"), result)
}

/// Runs `ask` with a connected client, then disconnects.
async fn with_client<F: Future<Output = T>, T>(end: End, wanted: ClientOptions, ask: impl FnOnce(Client) -> F) -> T {
    let (client, connection) = connect(end, Pool::new(16 << 20), wanted).await.expect("the handshake succeeds");
    let asking = async {
        let result = ask(client.clone()).await;
        client.disconnect();
        result
    };
    let (ended, result) = join(connection, asking).await;
    ended.expect("the connection ends well");
    result
}

fn options(structured: bool) -> ClientOptions {
    ClientOptions { export: "array".into(), structured, allocation: structured }
}

fn filled(pool: &Pool, bytes: usize, value: u8) -> Block {
    let mut buffer = pool.take(bytes);
    buffer.fill(value);
    buffer.freeze()
}

#[test]
fn a_client_that_sends_too_little_times_out() {
    let options = [&[][..], &[0, 0, 0], &[0, 0, 0, 3], &[0, 0, 0, 3, b'I', b'H']];
    for said in options {
        let (here, there) = pipe(1000, 1);
        let exports = exports(&Slow::new(BYTES));
        let (give_up, timeout) = oneshot::channel::<()>();
        let closing = Closing::default();
        let timeout = async { timeout.await.unwrap_or_default() };
        let memory = memory();
        let session = serve(&there, &exports, Limits::default(), &memory, &closing, &Security::Plain, timeout);
        let client = async {
            here.send(vec![Pool::new(1 << 20).copy_of(said)]).await.expect("the pipe takes it");
            give_up.send(()).expect("the session waits");
        };
        let (ended, ()) = LocalPool::new().run_until(join(session, client));
        assert!(matches!(ended, Err(ReceiveError::Late)), "{said:?}: {ended:?}");
    }
}

#[test]
fn every_command_does_what_it_says() {
    for (structured, turns, seed) in [(true, 0, 0), (false, 0, 1), (true, 3, 2), (false, 2, 3)] {
        let volume = Slow::new(BYTES);
        volume.state.turns.set(turns);
        let (ended, ()) = with_session(&volume, Limits::default(), seed, |end| {
            with_client(end, options(structured), |client| async move {
                let pool = client.pool().clone();
                assert_eq!(client.export().bytes, BYTES as u64);
                client.write(5, filled(&pool, 100_000, 7), Durability::Ordinary).await.unwrap();
                client.write(BYTES as u64 - 1, filled(&pool, 1, 9), Durability::Stable).await.unwrap();
                client.write(0, filled(&pool, 0, 9), Durability::Stable).await.unwrap();
                client.flush().await.unwrap();
                client.write_zeroes(10, 4096, false, Durability::Stable).await.unwrap();
                client.discard(65536, 4096).await.unwrap();
                let read = client.read(0, pool.take(BYTES)).await.unwrap();
                let expected: Vec<u8> = (0..BYTES)
                    .map(|at| match at {
                        10..4106 | 65536..69632 => 0,
                        5..100_005 => 7,
                        _ if at == BYTES - 1 => 9,
                        _ => 0,
                    })
                    .collect();
                assert!(read[..] == expected, "structured {structured}");
                assert!(client.read(3, pool.take(0)).await.unwrap().is_empty());
                let extents = client.allocation(0, BYTES as u32).await;
                if structured {
                    let found: Vec<(u64, bool)> = extents.unwrap().iter().map(|e| (e.bytes, e.hole)).collect();
                    let holes = [(65536, false), (4096, true), (32768, false), (942_080, true), (4096, false)];
                    assert_eq!(found, holes);
                } else {
                    assert!(matches!(extents, Err(ClientError::Refused { errno: Errno::Invalid, .. })));
                }
            })
        });
        assert_eq!(ended, Ok(Ended::ByClient));
    }
}

#[test]
fn errors_arrive_and_the_session_goes_on() {
    let volume = Slow::new(BYTES);
    let gate = volume.state.clone();
    let (ended, ()) = with_session(&volume, Limits::default(), 5, |end| {
        with_client(end, options(true), |client| async move {
            let pool = client.pool().clone();
            let errno = |result: Result<(), ClientError>| match result {
                Err(ClientError::Refused { errno, text }) => (errno, text),
                other => panic!("{other:?}"),
            };
            let kinds = [
                (VolumeErrorKind::Io, Errno::Io),
                (VolumeErrorKind::NoSpace, Errno::NoSpace),
                (VolumeErrorKind::ReadOnly, Errno::Permission),
                (VolumeErrorKind::OutOfRange, Errno::Invalid),
                (VolumeErrorKind::ShuttingDown, Errno::ShuttingDown),
            ];
            for (kind, expected) in kinds {
                gate.failing.set(Some(kind));
                let read = client.read(0, pool.take(4096)).await.map(drop);
                let written = client.write(0, filled(&pool, 4096, 1), Durability::Ordinary).await;
                for result in [read, written, client.flush().await, client.discard(0, 1).await] {
                    assert_eq!(errno(result), (expected, "as the test wants it".into()));
                }
            }
            gate.failing.set(None);
            // The payload of a refused write is skipped, and the next request is decoded.
            let past = client.write(BYTES as u64 - 1, filled(&pool, 70_000, 1), Durability::Ordinary);
            let read = client.read(0, pool.take(4096));
            let (past, read) = join(past, read).await;
            assert_eq!(errno(past).0, Errno::NoSpace);
            assert!(read.unwrap().iter().all(|byte| *byte == 0));
        })
    });
    assert_eq!(ended, Ok(Ended::ByClient));
}

#[test]
fn what_is_under_way_is_bounded_in_number_and_bytes() {
    let by_number = Limits { requests: 4, payload_bytes: 1 << 20 };
    let by_bytes = Limits { requests: 100, payload_bytes: 5 * 4096 };
    let by_one = Limits { requests: 100, payload_bytes: 1 };
    let table = [(by_number, 50, 4), (by_bytes, 50, 5), (by_one, 50, 1), (by_number, 0, 1), (by_one, 0, 1)];
    for (limits, turns, most) in table {
        let volume = Slow::new(BYTES);
        volume.state.turns.set(turns);
        let (ended, ()) = with_session(&volume, limits, 0, |end| {
            with_client(end, options(true), |client| async move {
                let pool = client.pool().clone();
                let reads = (0..20).map(|i| client.read(i * 4096, pool.take(4096)));
                let writes = (0..20).map(|i| client.write(i * 4096, filled(&pool, 4096, 1), Durability::Ordinary));
                let (reads, writes) = join(join_all(reads), join_all(writes)).await;
                assert!(reads.iter().all(Result::is_ok) && writes.iter().all(Result::is_ok));
            })
        });
        assert_eq!(ended, Ok(Ended::ByClient));
        assert_eq!(volume.state.most.get(), most, "{limits:?}");
    }
}

#[test]
fn a_client_that_reads_no_replies_is_not_read_any_more() {
    let volume = Slow::new(BYTES);
    let (ended, _end) = with_session(&volume, Limits::default(), 0, |end| async move {
        end.refuse();
        end.send(vec![Pool::new(1 << 20).copy_of(&recorded()[..200])]).await.expect("there is room");
        end
    });
    assert_eq!(ended, Err("the connection failed: broken pipe".into()));
    // The same with requests in flight: the session ends although its client never does.
    let (ended, _client) = with_session(&volume, Limits::default(), 0, |end| async move {
        let end = Rc::new(end);
        let (client, connection) =
            connect(Shared(end.clone()), Pool::new(1 << 20), options(true)).await.expect("a handshake");
        end.refuse();
        let (ended, asked) = join(connection, client.flush()).await;
        assert!(ended.is_err() && asked.is_err());
        (client, end)
    });
    assert_eq!(ended, Err("the connection failed: broken pipe".into()));
}

/// Starts a session that shares `memory`. The test itself plays the client.
fn spawn_session(pool: &LocalPool, volume: &Slow, memory: &Rc<Memory>) -> End {
    let (here, there) = pipe(100_000, 0);
    let (exports, memory) = (exports(volume), memory.clone());
    let session = async move {
        let closing = Closing::default();
        drop(serve(&there, &exports, Limits::default(), &memory, &closing, &Security::Plain, pending()).await);
    };
    pool.spawner().spawn_local(session).expect("the pool takes tasks");
    here
}

/// A client that sends `count` reads of `bytes` and reads no reply. It disconnects when dropped.
fn hoard(pool: &mut LocalPool, volume: &Slow, memory: &Rc<Memory>, count: usize, bytes: u32) -> End {
    let here = spawn_session(pool, volume, memory);
    let mut asked = 3u32.to_be_bytes().to_vec();
    asked.extend([&b"IHAVEOPT"[..], &1u32.to_be_bytes(), &5u32.to_be_bytes(), b"array"].concat());
    for cookie in 0..count as u64 {
        let (flags, kind, cookie) = (0.into(), command::READ.into(), cookie.into());
        let (magic, offset, bytes) = (REQUEST_MAGIC.into(), 0.into(), bytes.into());
        asked.extend_from_slice(RequestHeader { magic, flags, kind, cookie, offset, bytes }.as_bytes());
    }
    pool.run_until(here.send(vec![Pool::new(1 << 20).copy_of(&asked)])).expect("the session lives");
    pool.run_until_stalled();
    here
}

/// Whether a new client can write and read `bytes` while no other client acts.
fn is_served(pool: &mut LocalPool, volume: &Slow, memory: &Rc<Memory>, bytes: usize) -> bool {
    let here = spawn_session(pool, volume, memory);
    let served = Rc::new(Cell::new(false));
    let done = served.clone();
    let asking = with_client(here, options(true), move |client| async move {
        client.write(0, filled(client.pool(), bytes, 1), Durability::Ordinary).await.expect("a write");
        client.read(0, client.pool().take(bytes)).await.expect("a read");
        done.set(true);
    });
    pool.spawner().spawn_local(asking).expect("the pool takes tasks");
    pool.run_until_stalled();
    served.get()
}

#[test]
fn all_clients_together_hold_no_more_than_the_total_and_others_are_served_meanwhile() {
    const TOTAL: u64 = 64 << 20;
    const CLIENTS: usize = 32;
    const SHARE: usize = (TOTAL / 4) as usize / CLIENTS;
    const LONGEST: usize = 32 << 20;
    let short = [SHARE as u32, 65536, 100_001];
    for (bytes, longest_of_other) in short.map(|bytes| (bytes, LONGEST)).into_iter().chain([(1 << 20, SHARE)]) {
        let volume = Slow::new(LONGEST);
        let memory = Rc::new(Memory::new(TOTAL, CLIENTS));
        let mut pool = LocalPool::new();
        let count = (16 << 20) / bytes as usize;
        let hoarders = |pool: &mut LocalPool| -> Vec<End> {
            (1..CLIENTS).map(|_| hoard(pool, &volume, &memory, count, bytes)).collect()
        };
        let first = hoarders(&mut pool);
        // Every buffer read is still held, except for what the pipes contain.
        let held = volume.state.read_bytes.get();
        let kept_for_others = SHARE as u64 + if longest_of_other == LONGEST { LONGEST as u64 } else { 0 };
        let unused = (CLIENTS as u64) * u64::from(bytes);
        assert!(held <= TOTAL - kept_for_others, "{bytes}: {held}");
        assert!(held + kept_for_others + unused >= TOTAL, "{bytes}: {held} is less than there is");

        for asked in [1, 4096, SHARE, longest_of_other] {
            assert!(is_served(&mut pool, &volume, &memory, asked), "{asked} beside {bytes}");
        }

        drop(first);
        pool.run_until_stalled();
        volume.state.read_bytes.set(0);
        let alone = hoard(&mut pool, &volume, &memory, 100, 1 << 20);
        assert_eq!(volume.state.read_bytes.get(), Limits::default().payload_bytes, "{bytes}: one alone");
        drop(alone);
        pool.run_until_stalled();
        volume.state.read_bytes.set(0);
        drop(hoarders(&mut pool));
        assert_eq!(volume.state.read_bytes.get(), held, "{bytes}: all came back");
    }
}

#[test]
fn a_long_request_is_not_passed_by_others_for_ever() {
    let memory = Rc::new(Memory::new(64 << 20, 32));
    let [first, second, long] = [(); 3].map(|()| memory.account());
    let context = std::task::Context::from_waker(Waker::noop());
    let take = |account: &Account, bytes| match account.poll_take(bytes, &context) {
        Poll::Ready(source) => Some(source),
        Poll::Pending => None,
    };
    // Two parts are taken: the reserve for long requests, and most of the common part.
    assert_eq!(take(&first, 12 << 20), Some(Source::Common));
    assert_eq!(take(&second, 32 << 20), Some(Source::Long));
    assert_eq!(take(&long, 16 << 20), None);
    // The common part has room for these, but an earlier request waits; only the clients' own shares are free.
    assert_eq!(take(&first, 1 << 20), None);
    assert_eq!(take(&first, 512 << 10), Some(Source::Share));
    second.put_back(32 << 20, Source::Long);
    assert_eq!(take(&second, 1 << 20), None);
    assert_eq!(take(&long, 16 << 20), Some(Source::Long));
    // An account that is dropped leaves the queue.
    assert_eq!(take(&long, 16 << 20), None);
    assert_eq!(take(&second, 1 << 20), Some(Source::Common));
    assert_eq!(take(&first, 1 << 20), None);
    drop(long);
    assert_eq!(take(&first, 1 << 20), Some(Source::Common));
}

/// An end that the test keeps too.
struct Shared(Rc<End>);

impl ByteStream for Shared {
    fn recv(&self, into: Buffer) -> impl Future<Output = std::io::Result<(usize, Buffer)>> {
        self.0.recv(into)
    }
    fn send(&self, from: Vec<Block>) -> impl Future<Output = std::io::Result<()>> {
        self.0.send(from)
    }
}

#[test]
fn an_export_that_does_not_exist_is_refused() {
    let volume = Slow::new(BYTES);
    let wanted = ClientOptions { export: "other".into(), ..ClientOptions::default() };
    let (ended, error) = with_session(&volume, Limits::default(), 0, |end| async {
        connect(end, Pool::new(1 << 20), wanted).await.err().map(|error| error.to_string())
    });
    assert_eq!(ended, Ok(Ended::ByClient));
    let expected = "the server refused the export (reply 0x80000006): there is no such export here";
    assert_eq!(error.as_deref(), Some(expected));
}

/// Everything that a client sends: handshake, a write, a read, a write with a large payload, a refused one, a
/// disconnect.
fn recorded() -> Vec<u8> {
    let mut bytes = 3u32.to_be_bytes().to_vec();
    bytes.extend([&b"IHAVEOPT"[..], &8u32.to_be_bytes(), &0u32.to_be_bytes()].concat());
    let name = [&5u32.to_be_bytes()[..], b"array", &0u16.to_be_bytes()].concat();
    bytes.extend([&b"IHAVEOPT"[..], &7u32.to_be_bytes(), &(name.len() as u32).to_be_bytes(), &name].concat());
    let mut request = |kind: u16, flags: u16, cookie: u64, offset: u64, length: u32| {
        let (flags, kind, cookie) = (flags.into(), kind.into(), cookie.into());
        let header = RequestHeader {
            magic: REQUEST_MAGIC.into(),
            flags,
            kind,
            cookie,
            offset: offset.into(),
            bytes: length.into(),
        };
        bytes.extend_from_slice(header.as_bytes());
        if kind.get() == command::WRITE {
            bytes.extend(std::iter::repeat_n(cookie.get() as u8, length as usize));
        }
    };
    request(command::WRITE, command_flag::FUA, 1, 0, 300);
    request(command::READ, 0, 2, 100, 300);
    request(command::WRITE, 0, 3, 4096, 1200);
    request(command::WRITE, 0, 4, BYTES as u64, 200);
    request(command::FLUSH, 0, 5, 0, 0);
    request(command::DISC, 0, 0, 0, 0);
    bytes
}

#[test]
fn a_disconnect_at_any_byte_affects_no_other_client() {
    let whole = recorded();
    let volume = Slow::new(BYTES);
    let exports = exports(&volume);
    volume.state.turns.set(2);
    for cut in 0..=whole.len() {
        let mut arena = Vec::new();
        // Two kinds of end: the sending direction only, or the whole connection.
        for gone in [false, true, false, true] {
            let (here, there) = pipe(100_000, 0);
            let mut pool = LocalPool::new();
            let closing = Closing::default();
            let pieces = vec![volume.pool().copy_of(&whole[..cut])];
            let memory = memory();
            let session = serve(&there, &exports, Limits::default(), &memory, &closing, &Security::Plain, pending());
            let client = async {
                here.send(pieces).await.expect("there is room");
                here.finish();
                (!gone).then_some(here)
            };
            let (ended, _here) = pool.run_until(join(session, client));
            if cut == whole.len() && !gone {
                assert_eq!(ended.expect("a whole conversation ends well"), Ended::ByClient);
            }
            arena.push(format!("{:?}", volume.pool()));
        }
        assert_eq!(volume.state.in_flight.get(), 0, "what was begun is finished, cut at {cut}");
        // The second round needs no more of the arena: every buffer was returned.
        assert_eq!(arena[1], arena[3], "cut at {cut}");
    }
    let contents = volume.memory.snapshot();
    assert!(contents[..300].iter().all(|byte| *byte == 1), "a write that came whole is done");
    assert!(contents[4096..5296].iter().all(|byte| *byte == 3));
    let (ended, ()) = with_session(&volume, Limits::default(), 0, |end| {
        with_client(end, options(true), |client| async move {
            assert_eq!(client.read(0, client.pool().take(1)).await.unwrap()[0], 1, "the next client is served");
        })
    });
    assert_eq!(ended, Ok(Ended::ByClient));
}

#[test]
fn a_payload_that_does_not_come_whole_is_not_written() {
    let whole = recorded();
    let first_payload_end =
        whole.windows(301).position(|window| window[..300].iter().all(|byte| *byte == 1)).unwrap() + 300;
    let volume = Slow::new(BYTES);
    let (ended, _end) = with_session(&volume, Limits::default(), 0, |end| async move {
        end.send(vec![Pool::new(1 << 20).copy_of(&whole[..first_payload_end - 1])]).await.unwrap();
        end.finish();
        end
    });
    assert_eq!(ended, Err("the peer disconnected in the middle of a payload".into()));
    assert!(volume.memory.snapshot().iter().all(|byte| *byte == 0));
}

#[test]
fn closing_finishes_what_was_received_and_answers_it() {
    let volume = Slow::new(BYTES);
    volume.state.shut.set(true);
    let (here, there) = pipe(100_000, 0);
    let exports = exports(&volume);
    let closing = Rc::new(Closing::default());
    let mut pool = LocalPool::new();
    let ended = Rc::new(Cell::new(None));
    let (session_ended, session_closing) = (ended.clone(), closing.clone());
    pool.spawner()
        .spawn_local(async move {
            session_ended.set(
                serve(&there, &exports, Limits::default(), &memory(), &session_closing, &Security::Plain, pending())
                    .await
                    .ok(),
            );
        })
        .unwrap();
    let (client, connection) = pool.run_until(connect(here, Pool::new(1 << 20), options(true))).unwrap();
    pool.spawner().spawn_local(async { drop(connection.await) }).unwrap();
    let written = Rc::new(Cell::new(None));
    let (asking, result) = (client.clone(), written.clone());
    pool.spawner()
        .spawn_local(async move {
            let block = filled(asking.pool(), 4096, 8);
            result.set(Some(asking.write(0, block, Durability::Ordinary).await.is_ok()));
        })
        .unwrap();
    pool.run_until_stalled();
    assert_eq!(volume.state.in_flight.get(), 1);
    closing.close();
    pool.run_until_stalled();
    assert_eq!((ended.get(), written.get()), (None, None), "a write is under way");
    volume.state.open();
    pool.run_until_stalled();
    assert_eq!((ended.get(), written.get()), (Some(Ended::ByServer), Some(true)));
    assert!(pool.run_until(client.flush()).is_err(), "the connection is over");
    assert_eq!(volume.memory.snapshot()[0], 8);
}

#[derive(Debug, Clone)]
enum Step {
    Read(usize, usize),
    Write(usize, usize, u8),
    Zero(usize, usize, bool),
    Flush,
}

fn step() -> impl Strategy<Value = Step> {
    let length = prop_oneof![4 => 0..5000usize, 1 => 30_000..90_000usize];
    let range = (0..BYTES, length).prop_map(|(at, length)| (at.min(BYTES - length), length));
    prop_oneof![
        4 => range.clone().prop_map(|(at, length)| Step::Read(at, length)),
        4 => (range.clone(), any::<u8>()).prop_map(|((at, length), value)| Step::Write(at, length, value)),
        1 => (range, any::<bool>()).prop_map(|((at, length), hole)| Step::Zero(at, length, hole)),
        1 => Just(Step::Flush),
    ]
}

/// Carries out `steps` in order on `part` of the volume, which no other client writes, and checks each read.
async fn follow(client: &Client, steps: &[Step], part: std::ops::Range<usize>) {
    let mut model = vec![0u8; part.len()];
    let within = |at: usize, length: usize| (at % (part.len() - length), length);
    for step in steps {
        match *step {
            Step::Read(at, length) => {
                let (at, length) = within(at, length);
                let read = client.read((part.start + at) as u64, client.pool().take(length)).await.unwrap();
                assert!(read[..] == model[at..at + length], "{step:?}");
            }
            Step::Write(at, length, value) => {
                let (at, length) = within(at, length);
                let block = filled(client.pool(), length, value);
                client.write((part.start + at) as u64, block, Durability::Ordinary).await.unwrap();
                model[at..at + length].fill(value);
            }
            Step::Zero(at, length, hole) => {
                let (at, length) = within(at, length);
                let at_volume = (part.start + at) as u64;
                client.write_zeroes(at_volume, length as u32, hole, Durability::Ordinary).await.unwrap();
                model[at..at + length].fill(0);
            }
            Step::Flush => client.flush().await.unwrap(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn concurrent_clients_read_what_they_wrote(
        steps in proptest::collection::vec(proptest::collection::vec(step(), 1..12), 8),
        seed in any::<u64>(),
        turns in 0u32..4,
        structured in any::<bool>(),
    ) {
        let volume = Slow::new(BYTES);
        volume.state.turns.set(turns);
        let exports = exports(&volume);
        let limits = Limits { requests: 3, payload_bytes: 100_000 };
        let part = BYTES / steps.len();
        let sides = steps.chunks(4).enumerate().map(|(index, steps)| {
            let (here, there) = pipe(50_000, seed.wrapping_add(index as u64));
            let exports = &exports;
            let session = async move {
                let closing = Closing::default();
                serve(&there, exports, limits, &memory(), &closing, &Security::Plain, pending()).await.expect("the session ends well")
            };
            let client = with_client(here, options(structured), move |client| async move {
                join_all(steps.iter().enumerate().map(|(place, steps)| {
                    let start = (index * 4 + place) * part;
                    follow(&client, steps, start..start + part)
                })).await;
            });
            join(session, client)
        });
        LocalPool::new().run_until(join_all(sides));
    }
}
