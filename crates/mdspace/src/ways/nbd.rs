//! NBD, over a unix socket or TCP.

use super::Way;
use crate::machine::Array;
use crate::nbd_address::NbdAddress;
use crate::volume::Exported;
use export::nbd::server::{Server, ServerLimits};
use export::nbd::session::Export;
use futures_util::future::LocalBoxFuture;
use io::net::Listener;

/// An NBD server.
pub(super) struct NbdWay {
    server: Server<Exported>,
    /// `None` once it has ended.
    accepting: Option<io::JoinHandle<std::io::Result<()>>>,
    address: NbdAddress,
}

impl NbdWay {
    pub(super) fn open(array: &Array, address: &NbdAddress) -> std::io::Result<Self> {
        let (listener, address) = listen(address)?;
        let export = Export { name: array.status().name, volume: Exported(array.clone()) };
        let server = Server::new(vec![export], ServerLimits::default());
        let accepting = io::spawn({
            let server = server.clone();
            async move { server.accept_from(listener).await }
        });
        Ok(Self { server, accepting: Some(accepting), address })
    }
}

impl Way for NbdWay {
    fn kind(&self) -> &'static str {
        "NBD"
    }

    fn address(&self) -> String {
        self.address.to_string()
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
