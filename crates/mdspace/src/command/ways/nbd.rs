//! NBD, over a unix socket or TCP, as it is or through TLS.
//!
//! Without TLS nobody is asked who he is, so a port that other machines reach is opened only when that was asked for.

use super::{NbdSource, Way};
#[cfg(feature = "tls")]
use crate::command::arguments::TlsMode;
use crate::command::arguments::WayArguments;
use crate::command::failure::Failure;
use crate::command::nbd_address::NbdAddress;
use crate::command::volume::Served;
use export::nbd::server::{Server, ServerLimits};
use export::nbd::session::Export;
#[cfg(feature = "tls")]
use export::nbd::tls::Credentials;
use export::nbd::tls::Security;
use futures_util::future::LocalBoxFuture;
use io::net::Listener;

/// An NBD server.
pub(super) struct NbdWay {
    server: Server<Served>,
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
        let server = Server::secured(vec![export], ServerLimits::default(), security);
        let accepting = io::spawn({
            let server = server.clone();
            async move { server.accept_from(listener).await }
        });
        Ok(Self { server, accepting: Some(accepting), address, tls })
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
            self.server.stop(grace).await;
            if let Some(accepting) = self.accepting {
                // Its listener goes, and with it the socket.
                drop(accepting.await);
            }
        })
    }
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
