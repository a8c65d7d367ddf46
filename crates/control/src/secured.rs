//! Control through TLS: the accepting side of a port that other machines may reach.
//!
//! A stranger cannot keep out a client that knows the token. Until a client has shown the token, or on the loopback
//! address has sent any request that is answered, its connection counts as one in the handshake. Those are bounded, and
//! one more evicts another ([`export::handshaking`]). The TLS handshake has a time limit. Nothing plain is answered, except
//! that a plain request learns that the port speaks TLS. Sources: RFC 8446 (TLS), RFC 9112 (HTTP/1.1).

use super::server::{CONNECTIONS_MAX, Proof, serve_connection};
use axum::Router;
use axum::extract::Extension;
use axum::serve::Listener;
use export::Credentials;
use export::handshaking::{ConnectionCounts, CountedConnection, Handshaking};
use std::io::{Error, ErrorKind, Result};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Maximum number of connections whose clients have proved nothing yet. One more evicts another.
const STRANGERS_MAX: usize = 64;

/// How long the TLS handshake may take.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);

/// The first byte of a TLS handshake: the content type of its record.
const TLS_HANDSHAKE: u8 = 22;

/// The answer to a client that sends no TLS.
const PLAIN_REFUSED: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n\
    {\"error\":{\"message\":\"this port speaks TLS\",\"advice\":\"ask with https://\"}}\n";

/// Accepts TLS with `credentials` as they are now, and HTTP/1.1 in it alone.
fn acceptor(credentials: &Credentials) -> TlsAcceptor {
    let mut config = (*credentials.config()).clone();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

/// Serves connections until `stopping` is set, then finishes the open ones.
pub(super) async fn accept_from(
    mut listener: TcpListener,
    router: Router,
    credentials: Credentials,
    stopping: watch::Receiver<bool>,
) {
    let (counts, mut strangers) = (Rc::<ConnectionCounts>::default(), Handshaking::default());
    let mut connections = JoinSet::new();
    let mut stop = stopping.clone();
    let begun = Instant::now();
    loop {
        while connections.try_join_next().is_some() {} // a panic ends only its own connection
        let accepted = async {
            let (stream, peer) = Listener::accept(&mut listener).await;
            room_for(&mut strangers, peer.ip(), begun).await;
            (stream, peer)
        };
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => break,
            (stream, peer) = accepted => {
                let evicted = Rc::new(Notify::new());
                let evict = { let evicted = evicted.clone(); move || evicted.notify_one() };
                let counted = strangers.add(&counts, Some(peer.ip()), begun.elapsed(), evict, STRANGERS_MAX);
                let (acceptor, router, stopping) = (acceptor(&credentials), router.clone(), stopping.clone());
                connections.spawn_local(async move {
                    let serving = serve(stream, &acceptor, router, stopping, counted);
                    tokio::select! {
                        biased;
                        () = evicted.notified() => tracing::debug!(%peer, "another connection took its place"),
                        served = serving => if let Err(error) = served {
                            tracing::debug!(%peer, %error, "no TLS");
                        }
                    }
                });
            }
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Completes when a connection from `address` may be added.
async fn room_for(strangers: &mut Handshaking, address: IpAddr, begun: Instant) {
    loop {
        let wait = strangers.time_until_room(Some(address), begun.elapsed(), STRANGERS_MAX);
        if wait.is_zero() {
            return;
        }
        tokio::time::sleep(wait).await;
    }
}

async fn serve(
    stream: TcpStream,
    acceptor: &TlsAcceptor,
    router: Router,
    mut stopping: watch::Receiver<bool>,
    mut counted: CountedConnection,
) -> Result<()> {
    let stream = tokio::select! {
        biased;
        _ = stopping.wait_for(|stop| *stop) => return Ok(()),
        shaken = tokio::time::timeout(HANDSHAKE_TIME, shake_hands(stream, acceptor)) => shaken??,
    };
    counted.on_receive()();
    let proof = Proof::default();
    let router = router.layer(Extension(proof.clone()));
    let admitted = async {
        proof.given().await;
        counted.admit(CONNECTIONS_MAX).await;
        std::future::pending().await
    };
    tokio::select! {
        () = serve_connection(Box::new(stream), router, stopping) => Ok(()),
        never = admitted => never,
    }
}

/// Performs the TLS handshake. A client that sends something else is told so.
async fn shake_hands(stream: TcpStream, acceptor: &TlsAcceptor) -> Result<TlsStream<TcpStream>> {
    let mut first = [0];
    if stream.peek(&mut first).await? == 1 && first[0] != TLS_HANDSHAKE {
        if first[0].is_ascii_uppercase() {
            // Unread bytes would reset the connection, and the client might not see the answer.
            stream.try_read(&mut [0; 4096])?;
            stream.try_write(PLAIN_REFUSED)?;
        }
        return Err(Error::new(ErrorKind::InvalidData, "the client does not speak TLS"));
    }
    acceptor.accept(stream).await
}
