//! The server over real sockets: limits, stopping, TCP, and many clients.

use engine::Pool;
use futures_util::future::join_all;
use io::net::{Listener, Stream};
use io::{Executor, Options, spawn};
use mdspace_export::nbd::client::{Client, connect};
use mdspace_export::nbd::handshake::ClientOptions;
use mdspace_export::nbd::server::{Server, ServerLimits};
use mdspace_export::nbd::session::{Export, Limits};
use mdspace_export::{Durability, MemoryVolume};
use std::future::{Future, pending, ready};
use std::path::{Path, PathBuf};

const BYTES: usize = 8 << 20;

struct World {
    directory: tempfile::TempDir,
    executor: Executor,
    pool: Pool,
    server: Server<MemoryVolume>,
}

impl World {
    fn new(limits: ServerLimits) -> Self {
        let pool = Pool::new(32 << 20);
        let executor = Executor::new(&Options::new(pool.clone())).expect("an executor");
        let volume = MemoryVolume::new(BYTES, pool.clone());
        let server = Server::new(vec![Export { name: "array".into(), volume }], limits);
        Self { directory: tempfile::tempdir().expect("a temporary directory"), executor, pool, server }
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("nbd")
    }

    /// Listens on a unix socket and runs `test` beside the server.
    fn run<T>(&self, test: impl Future<Output = T>) -> T {
        self.executor.block_on(async {
            let listener = Listener::unix(&self.socket(), 0o600).expect("a socket");
            let server = self.server.clone();
            let accepting = spawn(async move { server.accept_from(listener).await });
            let result = test.await;
            self.server.stop(pending()).await;
            accepting.await.expect("connections were accepted until the stop");
            assert_eq!(self.server.connections(), 0);
            result
        })
    }
}

async fn client(socket: &Path, pool: &Pool) -> Client {
    let stream = Stream::connect_unix(socket).await.expect("the server listens");
    over(stream, pool).await
}

async fn over(stream: Stream, pool: &Pool) -> Client {
    let (client, connection) = connect(stream, pool.clone(), ClientOptions::default()).await.expect("a handshake");
    drop(spawn(connection));
    client
}

#[test]
fn many_clients_see_what_each_of_them_wrote_and_flushed() {
    let world = World::new(ServerLimits::default());
    world.run(async {
        let socket = world.socket();
        let clients = join_all((0..8).map(|_| client(&socket, &world.pool))).await;
        let part = BYTES / clients.len();
        join_all(clients.iter().enumerate().map(|(index, client)| async move {
            let mut buffer = client.pool().take(part);
            buffer.fill(index as u8);
            client.write((index * part) as u64, buffer.freeze(), Durability::Ordinary).await.expect("a write");
            client.flush().await.expect("a flush");
        }))
        .await;
        join_all(clients.iter().enumerate().map(|(index, client)| async move {
            let neighbour = (index + 1) % 8;
            let read = client.read((neighbour * part) as u64, client.pool().take(part)).await.expect("a read");
            assert!(read.iter().all(|byte| usize::from(*byte) == neighbour));
        }))
        .await;
    });
}

#[test]
fn more_connections_than_allowed_wait_for_one_to_end() {
    let world = World::new(ServerLimits { connections: 2, ..ServerLimits::default() });
    world.run(async {
        let socket = world.socket();
        let first = client(&socket, &world.pool).await;
        let second = client(&socket, &world.pool).await;
        let waiting = spawn({
            let (socket, pool) = (socket.clone(), world.pool.clone());
            async move { client(&socket, &pool).await.flush().await.is_ok() }
        });
        for _ in 0..100 {
            second.flush().await.expect("a flush");
            assert_eq!(world.server.connections(), 2);
        }
        first.disconnect();
        assert!(waiting.await, "there is room now");
    });
}

#[test]
fn a_stop_disconnects_a_client_that_does_not_read_its_answers() {
    let connection = Limits { requests: 4, payload_bytes: 4 << 20 };
    let world = World::new(ServerLimits { connections: 4, connection, ..ServerLimits::default() });
    world.executor.block_on(async {
        let listener = Listener::unix(&world.socket(), 0o600).expect("a socket");
        let server = world.server.clone();
        let accepting = spawn(async move { server.accept_from(listener).await });
        let stream = Stream::connect_unix(&world.socket()).await.expect("the server listens");
        // No structured replies, the default export, then reads of 1 MiB.
        let mut bytes = 3u32.to_be_bytes().to_vec();
        bytes.extend([&b"IHAVEOPT"[..], &[0, 0, 0, 1, 0, 0, 0, 0]].concat());
        for _ in 0..16 {
            let header = [&0x2560_9513u32.to_be_bytes()[..], &[0; 4 + 8 + 8], &(1u32 << 20).to_be_bytes()].concat();
            bytes.extend(header);
        }
        stream.send(vec![world.pool.copy_of(&bytes)]).await.expect("the server listens");
        // The first reply has arrived, so the reads are in flight.
        stream.recv_exact(world.pool.take(18 + 10 + 16 + 1)).await.expect("a reply begins");
        world.server.stop(ready(())).await;
        assert_eq!(world.server.connections(), 0);
        accepting.await.expect("connections were accepted until the stop");
    });
}

#[test]
fn tcp_serves_as_well_and_beside_a_unix_socket() {
    let world = World::new(ServerLimits::default());
    world.run(async {
        let listener = Listener::tcp("127.0.0.1:0".parse().expect("an address")).expect("a port");
        let address = listener.tcp_address().expect("an address").expect("of TCP");
        let server = world.server.clone();
        drop(spawn(async move { server.accept_from(listener).await }));
        let by_tcp = over(Stream::connect_tcp(address).await.expect("the server listens"), &world.pool).await;
        let by_unix = client(&world.socket(), &world.pool).await;
        let block = world.pool.copy_of(b"hello");
        by_tcp.write(77, block, Durability::Stable).await.expect("a write");
        assert_eq!(by_unix.read(77, world.pool.take(5)).await.expect("a read")[..], *b"hello");
    });
}
