//! NBD over a unix socket or TCP, plain or through TLS.
//!
//! Without TLS the server cannot authenticate clients. So it opens a port that other machines can reach only if the
//! user says so.

use super::{NbdSource, OpenExport};
use crate::command::server::arguments::ExportArguments;
#[cfg(feature = "tls")]
use crate::command::server::arguments::TlsMode;
use crate::command::server::nbd_address::NbdAddress;
use crate::command::server::socket_access::warn_of_closed_directory;
use crate::command::server::volume::Served;
use crate::command::text::failure::Failure;
#[cfg(feature = "tls")]
use export::Credentials;
use export::nbd::server::{Server, ServerLimits};
use export::nbd::session::Export;
use export::nbd::tls::Security;
use futures_util::future::LocalBoxFuture;
use io::net::{Listener, SocketAccess};

/// The name of this kind of export.
pub(super) const KIND: &str = "NBD";

/// An NBD server.
pub(super) struct NbdExport {
    server: Server<Served>,
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
            NbdSource::Address(address) => listen(&address, arguments.access.access()?).map_err(refused)?,
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

impl OpenExport for NbdExport {
    fn kind(&self) -> &'static str {
        KIND
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
                // This drops the listener, and removes its socket.
                drop(accepting.await);
            }
        })
    }
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

fn listen(address: &NbdAddress, access: SocketAccess) -> std::io::Result<(Listener, NbdAddress)> {
    match address {
        NbdAddress::Unix(path) => {
            let path = std::path::absolute(path)?;
            warn_of_closed_directory(&path, access);
            Ok((Listener::unix(&path, access)?, NbdAddress::Unix(path)))
        }
        NbdAddress::Tcp(address) => {
            let listener = Listener::tcp(*address)?;
            let address = listener.tcp_address()?.unwrap_or(*address);
            Ok((listener, NbdAddress::Tcp(address)))
        }
    }
}
