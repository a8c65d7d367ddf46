//! NBD over a unix socket or TCP, plain or through TLS.
//!
//! Without TLS the server cannot authenticate clients. So it opens a port that other machines can reach only if the
//! user says so.

use super::{NbdSource, OpenExport, STOP_GRACE};
use crate::command::server::arguments::ExportArguments;
#[cfg(feature = "tls")]
use crate::command::server::arguments::TlsMode;
use crate::command::server::crew::Hand;
use crate::command::server::nbd_address::NbdAddress;
use crate::command::server::volume::Served;
use crate::command::text::failure::Failure;
use engine::Clock;
use export::nbd::server::{Other, Server, ServerLimits};
use export::nbd::session::Export;
#[cfg(feature = "tls")]
use export::nbd::tls::Credentials;
use export::nbd::tls::Security;
use futures_util::future::{LocalBoxFuture, join, join_all};
use io::net::Listener;

/// An NBD server.
pub(super) struct NbdExport {
    server: Server<Served>,
    /// Further threads that serve connections.
    hands: Vec<Hand>,
    /// Accepts connections; `None` after its end.
    accepting: Option<io::JoinHandle<std::io::Result<()>>>,
    address: NbdAddress,
    /// Whether clients must use TLS.
    tls: bool,
}

impl NbdExport {
    pub(super) fn open(
        name: &str,
        volume: &Served,
        source: NbdSource,
        arguments: &ExportArguments,
        hands: Vec<Hand>,
    ) -> Result<Self, Failure> {
        let refused = |error: std::io::Error| Failure::refused(error.to_string());
        let (security, tls) = security(arguments)?;
        let (NbdSource::Address(wanted) | NbdSource::Inherited(_, wanted)) = &source;
        if wanted.is_reached_by_others() && !tls && !arguments.allow_plain_tcp {
            let uri = wanted.uri(false);
            return Err(Failure::refused(format!("{uri} can be reached from other machines, unencrypted"))
                .advise("add --tls require and --tls-certificates DIR, or use 127.0.0.1 and a tunnel"));
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

impl OpenExport for NbdExport {
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
                // This drops the listener, and removes its socket.
                drop(accepting.await);
            }
        })
    }
}

/// A server with the same export on a worker's thread, and the function that sends connections there.
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

/// Does [`Server::stop`] on a worker's thread.
async fn stop(hand: &Hand) {
    let stopped = hand.call(async |local| {
        let clock = io::RealClock::new();
        let server = local.server.borrow().clone();
        if let Some(server) = server {
            server.stop(clock.sleep_until(clock.now() + STOP_GRACE)).await;
        }
    });
    // A worker that has ended serves no connections.
    let _ = stopped.await;
}

/// How connections are protected, and whether clients must use that.
#[cfg(feature = "tls")]
fn security(arguments: &ExportArguments) -> Result<(Security, bool), Failure> {
    let load = || {
        let directory = arguments.tls_certificates.as_deref().expect("clap requires it");
        Credentials::load(directory, arguments.tls_verify_peer).map_err(|error| {
            Failure::refused(error.to_string()).advise("docs/tls.md explains how to make certificates")
        })
    };
    Ok(match arguments.tls {
        TlsMode::Off if arguments.tls_certificates.is_some() => {
            return Err(Failure::refused("--tls-certificates: TLS is off").advise("add --tls on or --tls require"));
        }
        TlsMode::Off => (Security::Plain, false),
        TlsMode::On => (Security::Offered(load()?), false),
        TlsMode::Require => (Security::Required(load()?), true),
    })
}

#[cfg(not(feature = "tls"))]
fn security(_: &ExportArguments) -> Result<(Security, bool), Failure> {
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
