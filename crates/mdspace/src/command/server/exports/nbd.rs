//! NBD, over a unix socket or TCP, as it is or through TLS.
//!
//! Without TLS nobody is asked who he is, so a port that other machines reach is opened only when that was asked for.

use super::{NbdSource, STOP_GRACE, Way};
#[cfg(feature = "tls")]
use crate::command::arguments::TlsMode;
use crate::command::arguments::WayArguments;
use crate::command::crew::Hand;
use crate::command::failure::Failure;
use crate::command::nbd_address::NbdAddress;
use crate::command::volume::Served;
use engine::Clock;
use export::nbd::server::{Other, Server, ServerLimits};
use export::nbd::session::Export;
#[cfg(feature = "tls")]
use export::nbd::tls::Credentials;
use export::nbd::tls::Security;
use futures_util::future::{LocalBoxFuture, join, join_all};
use io::net::Listener;

/// An NBD server.
pub(super) struct NbdWay {
    server: Server<Served>,
    /// Those whose threads serve connections too.
    hands: Vec<Hand>,
    /// `None` once it has ended.
    accepting: Option<io::JoinHandle<std::io::Result<()>>>,
    address: NbdAddress,
    /// Whether a client has to use it.
    tls: bool,
}

impl NbdWay {
    pub(super) fn open(
        name: &str,
        volume: &Served,
        source: NbdSource,
        arguments: &WayArguments,
        hands: Vec<Hand>,
    ) -> Result<Self, Failure> {
        let refused = |error: std::io::Error| Failure::refused(error.to_string());
        let (security, tls) = security(arguments)?;
        let (NbdSource::Address(wanted) | NbdSource::Inherited(_, wanted)) = &source;
        if wanted.is_reached_by_others() && !tls && !arguments.allow_plain_tcp {
            let uri = wanted.uri(false);
            return Err(Failure::refused(format!("{uri} can be reached from other machines, unencrypted"))
                .advise("give --tls require and --tls-certificates DIR, or take 127.0.0.1 and a tunnel"));
        }
        let (listener, address) = match source {
            NbdSource::Address(address) => listen(&address).map_err(refused)?,
            NbdSource::Inherited(listener, address) => (listener, address),
        };
        let export = Export { name: name.to_owned(), volume: volume.clone() };
        let all = ServerLimits::default();
        let limits = ServerLimits { payload_bytes: all.payload_bytes / (1 + hands.len() as u64), ..all };
        let others = hands.iter().map(|hand| other(hand, name, limits, &security)).collect();
        let server = Server::secured(vec![export], limits, security);
        server.share_with(others);
        let accepting = io::spawn({
            let server = server.clone();
            async move { server.accept_from(listener).await }
        });
        Ok(Self { server, hands, accepting: Some(accepting), address, tls })
    }
}

impl Way for NbdWay {
    fn kind(&self) -> &'static str {
        "NBD"
    }

    fn address(&self) -> String {
        self.address.uri(self.tls)
    }

    fn clients(&self) -> usize {
        self.server.connections()
    }

    fn failed(&mut self) -> LocalBoxFuture<'_, std::io::Error> {
        Box::pin(async {
            let Some(accepting) = &mut self.accepting else { return std::future::pending().await };
            let ended = accepting.await;
            self.accepting = None;
            ended.err().unwrap_or_else(|| std::io::Error::other("no more connections"))
        })
    }

    fn stop(self: Box<Self>, grace: LocalBoxFuture<'static, ()>) -> LocalBoxFuture<'static, ()> {
        Box::pin(async move {
            let others = self.hands.iter().map(stop);
            join(self.server.stop(grace), join_all(others)).await;
            if let Some(accepting) = self.accepting {
                // Its listener goes, and with it the socket.
                drop(accepting.await);
            }
        })
    }
}

/// A server of the same on a worker's thread, and the way to it.
fn other(hand: &Hand, name: &str, limits: ServerLimits, security: &Security) -> Other {
    let (name, security) = (name.to_owned(), security.clone());
    drop(hand.call(async move |local| {
        let export = Export { name, volume: local.volume.clone() };
        local.server.replace(Some(Server::secured(vec![export], limits, security)));
    }));
    let hand = hand.clone();
    Box::new(move |connection, counted| {
        drop(hand.call(async move |local| {
            if let Some(server) = &*local.server.borrow() {
                server.take_over(connection, counted);
            }
        }));
    })
}

/// As [`Server::stop`], on a worker's thread.
async fn stop(hand: &Hand) {
    let stopped = hand.call(async |local| {
        let clock = io::RealClock::new();
        let server = local.server.borrow().clone();
        if let Some(server) = server {
            server.stop(clock.sleep_until(clock.now() + STOP_GRACE)).await;
        }
    });
    // One that has ended serves nobody.
    let _ = stopped.await;
}

/// What protects connections, and whether it is more than an offer.
#[cfg(feature = "tls")]
fn security(arguments: &WayArguments) -> Result<(Security, bool), Failure> {
    let load = || {
        let directory = arguments.tls_certificates.as_deref().expect("clap asks for it");
        Credentials::load(directory, arguments.tls_verify_peer)
            .map_err(|error| Failure::refused(error.to_string()).advise("docs/tls.md says how to make certificates"))
    };
    Ok(match arguments.tls {
        TlsMode::Off if arguments.tls_certificates.is_some() => {
            return Err(Failure::refused("--tls-certificates: nothing goes through TLS").advise("give --tls too"));
        }
        TlsMode::Off => (Security::Plain, false),
        TlsMode::On => (Security::Offered(load()?), false),
        TlsMode::Require => (Security::Required(load()?), true),
    })
}

#[cfg(not(feature = "tls"))]
fn security(_: &WayArguments) -> Result<(Security, bool), Failure> {
    Ok((Security::Plain, false))
}

fn listen(address: &NbdAddress) -> std::io::Result<(Listener, NbdAddress)> {
    match address {
        NbdAddress::Unix(path) => {
            let path = std::path::absolute(path)?;
            Ok((Listener::unix(&path, 0o600)?, NbdAddress::Unix(path)))
        }
        NbdAddress::Tcp(address) => {
            let listener = Listener::tcp(*address)?;
            let address = listener.tcp_address()?.unwrap_or(*address);
            Ok((listener, NbdAddress::Tcp(address)))
        }
    }
}
