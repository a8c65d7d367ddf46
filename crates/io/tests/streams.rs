//! Claims about sockets: their mode, which sockets are replaced, and that bytes arrive completely, in order, and at one
//! receiver only.

mod support;

use engine::Pool;
use futures_util::future::{Either, join, select};
use mdspace_io::net::{Listener, Stream};
use mdspace_io::spawn;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::pin::pin;
use support::{executor, fill, filled, on_each_backend, options, poll_once};

/// Both ends of a new connection over a unix socket.
async fn pair(directory: &Path) -> (Stream, Stream) {
    let path = directory.join("pair");
    let listener = Listener::unix(&path, 0o600).expect("listens");
    let (near, far) = join(Stream::connect_unix(&path), listener.accept()).await;
    (near.expect("connected"), far.expect("accepted"))
}

#[test]
fn a_unix_socket_has_its_mode_and_goes_with_its_listener() {
    on_each_backend(|| {
        let (_executor, _) = executor();
        let directory = tempfile::tempdir().expect("a directory");
        for mode in [0o600, 0o660, 0o666] {
            let path = directory.path().join("socket");
            let listener = Listener::unix(&path, mode).expect("listens");
            let status = path.symlink_metadata().expect("exists");
            assert!(status.file_type().is_socket());
            let umask = 0o022; // bits cleared by the umask stay cleared
            let got = status.permissions().mode() & 0o777;
            assert!(got & !mode == 0 && got | umask == mode | umask, "{mode:o} became {got:o}");
            drop(listener);
            assert!(!path.exists());
        }
    });
}

#[test]
fn only_a_socket_without_a_listener_is_replaced() {
    on_each_backend(|| {
        let (_executor, _) = executor();
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("socket");

        let other = UnixListener::bind(&path).expect("listens");
        assert_eq!(Listener::unix(&path, 0o600).expect_err("in use").kind(), ErrorKind::AddrInUse);
        drop(other);
        assert!(path.exists(), "std leaves its socket behind");
        let listener = Listener::unix(&path, 0o600).expect("the stale one is replaced");
        let refused = Listener::unix(&path, 0o600).expect_err("ours is in use");
        assert_eq!(refused.kind(), ErrorKind::AddrInUse);
        assert!(refused.to_string().starts_with(path.to_str().expect("UTF-8")), "{refused}");
        drop(listener);

        std::fs::write(&path, "precious").expect("written");
        assert_eq!(Listener::unix(&path, 0o600).expect_err("not a socket").kind(), ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&path).expect("still there"), b"precious");
    });
}

#[test]
fn a_listener_does_not_remove_the_replacement_of_its_socket() {
    on_each_backend(|| {
        let (_executor, _) = executor();
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("socket");
        let listener = Listener::unix(&path, 0o600).expect("listens");
        std::fs::remove_file(&path).expect("removed");
        let _other = UnixListener::bind(&path).expect("listens");
        drop(listener);
        assert!(path.exists());
    });
}

#[test]
fn a_path_too_long_for_a_socket_is_an_error_that_names_it() {
    on_each_backend(|| {
        let (_executor, _) = executor();
        let path = Path::new("/tmp").join("x".repeat(200));
        let error = Listener::unix(&path, 0o600).expect_err("too long");
        assert!(error.to_string().contains("xxx"), "{error}");
    });
}

#[test]
fn many_parts_reach_a_slow_reader_whole_and_in_order() {
    on_each_backend(|| {
        let (executor, pool) = executor();
        let directory = tempfile::tempdir().expect("a directory");
        // More parts than one call takes, with empty ones among them, and one part larger than any socket's buffer.
        let lengths: Vec<usize> = (0..3000).map(|part| part * 37 % 501).chain([3 << 20]).collect();
        let total: usize = lengths.iter().sum();
        let mut expected = vec![0; total];
        fill(&mut expected, 1);
        executor.block_on(async {
            let (near, far) = pair(directory.path()).await;
            let mut rest = &expected[..];
            let parts = lengths.iter().map(|length| {
                let (part, after) = rest.split_at(*length);
                rest = after;
                pool.copy_of(part)
            });
            let parts = parts.collect();
            let sender = spawn(async move { near.send(parts).await });
            let mut received = Vec::new();
            while received.len() < total {
                let size = 1 + received.len() * 7 % 9001;
                let (bytes, buffer) = far.recv(pool.take(size)).await.expect("received");
                assert_ne!(bytes, 0, "closed after {} bytes", received.len());
                received.extend_from_slice(&buffer[..bytes]);
            }
            sender.await.expect("sent");
            assert!(received == expected);
            let (bytes, _) = far.recv(pool.take(10)).await.expect("the end");
            assert_eq!(bytes, 0, "the sender is gone");
        });
    });
}

#[test]
fn recv_exact_fills_the_buffer_or_reports_an_early_end() {
    on_each_backend(|| {
        let (executor, pool) = executor();
        executor.block_on(async {
            let listener = Listener::tcp("127.0.0.1:0".parse().expect("an address")).expect("listens");
            let address = listener.tcp_address().expect("an address").expect("TCP");
            let (near, far) = join(Stream::connect_tcp(address), listener.accept()).await;
            let (near, far) = (near.expect("connected"), far.expect("accepted"));
            let sender = async {
                for part in 0..10 {
                    near.send(vec![filled(&pool, 100, part).freeze()]).await.expect("sent");
                }
                near.shutdown();
            };
            let receiver = async {
                let whole = far.recv_exact(pool.take(950)).await.expect("enough");
                assert_eq!(whole[100..200], filled(&pool, 100, 1)[..]);
                let error = far.recv_exact(pool.take(51)).await.expect_err("only 50 are left");
                assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
            };
            join(sender, receiver).await;
        });
    });
}

#[test]
fn sending_to_a_closed_connection_is_an_error_and_no_signal() {
    on_each_backend(|| {
        let (executor, pool) = executor();
        let directory = tempfile::tempdir().expect("a directory");
        executor.block_on(async {
            let (near, far) = pair(directory.path()).await;
            drop(far);
            for parts in [1, 2] {
                let parts = (0..parts).map(|seed| filled(&pool, 10, seed).freeze()).collect();
                assert_eq!(near.send(parts).await.expect_err("the peer is gone").kind(), ErrorKind::BrokenPipe);
            }
        });
    });
}

#[test]
fn shutdown_ends_a_waiting_receive() {
    on_each_backend(|| {
        let (executor, pool) = executor();
        let directory = tempfile::tempdir().expect("a directory");
        executor.block_on(async {
            let (near, _far) = pair(directory.path()).await;
            let waiting = spawn({
                let near = near.clone();
                async move { near.recv(pool.take(10)).await.expect("the end").0 }
            });
            mdspace_io::yield_now().await;
            near.shutdown();
            assert_eq!(waiting.await, 0);
        });
    });
}

#[test]
fn connecting_without_a_listener_is_refused() {
    on_each_backend(|| {
        let (executor, _) = executor();
        executor.block_on(async {
            let error = Stream::connect_unix(Path::new("/nonexistent/socket")).await.expect_err("no listener");
            assert_eq!(error.kind(), ErrorKind::NotFound);
        });
    });
}

#[test]
fn a_cancelled_receive_gives_its_memory_back_and_loses_no_later_bytes() {
    on_each_backend(|| {
        let pool = Pool::new(4096);
        let executor = mdspace_io::Executor::new(&options(pool.clone())).expect("an executor");
        let directory = tempfile::tempdir().expect("a directory");
        executor.block_on(async {
            let (near, far) = pair(directory.path()).await;
            for round in 0..100 {
                {
                    let mut waiting = Box::pin(far.recv(pool.take(4096)));
                    assert!(poll_once(&mut waiting).await.is_pending());
                }
                assert!(!pool.take(4096).is_registered(), "the kernel still has the memory");
                let mut buffer = pool.take(4096);
                while !buffer.is_registered() {
                    mdspace_io::yield_now().await;
                    buffer = pool.take(4096);
                }
                near.send(vec![pool.copy_of(&[round; 100])]).await.expect("sent");
                let received = far.recv(buffer).await.expect("received");
                assert_eq!((received.0, &received.1[..100]), (100, &[round; 100][..]));
            }
        });
    });
}

#[test]
fn a_connection_whose_accept_was_dropped_is_closed_or_goes_to_the_next_accept() {
    on_each_backend(|| {
        let (executor, pool) = executor();
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("socket");
        executor.block_on(async {
            let listener = Listener::unix(&path, 0o600).expect("listens");
            for _ in 0..50 {
                let mut accepting = Box::pin(listener.accept());
                assert!(poll_once(&mut accepting).await.is_pending());
                let stream = Stream::connect_unix(&path).await.expect("connected");
                drop(accepting);
                // Its end arrives only if the accepted side was closed.
                let (closed, accepted) = (pin!(stream.recv(pool.take(1))), pin!(listener.accept()));
                match select(closed, accepted).await {
                    Either::Left((end, _)) => assert_eq!(end.expect("the end").0, 0),
                    Either::Right((accepted, _)) => drop(accepted.expect("accepted")),
                }
            }
        });
    });
}
