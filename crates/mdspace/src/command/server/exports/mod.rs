//! The exports of a served array: NBD, and Linux's own (vhost-user, FUSE and ublk), each in its own file, all open at
//! once.
//!
//! The array belongs to one thread. An export with threads of its own sends requests to that thread, and each request
//! ends there.

#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod linux;
mod nbd;

#[cfg(not(target_os = "linux"))]
use elsewhere as own;
#[cfg(target_os = "linux")]
use linux as own;

use crate::command::server::arguments::ExportArguments;
use crate::command::server::nbd_address::NbdAddress;
use crate::command::server::volume::Served;
use crate::command::text::failure::Failure;
use engine::Clock;
use futures_util::future::{LocalBoxFuture, join_all, select_all};
use io::RealClock;
use io::net::Listener;
use serde::Serialize;
use std::time::Duration;

/// Time that clients have to accept their last replies.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// An open export.
trait OpenExport {
    /// Its short name.
    fn kind(&self) -> &'static str;

    /// The address that clients connect to.
    fn address(&self) -> String;

    /// Current number of clients.
    fn clients(&self) -> usize;

    /// Completes with the reason when the export cannot continue. The future may be dropped and requested again.
    fn failed(&mut self) -> LocalBoxFuture<'_, std::io::Error>;

    /// Accepts no more requests, and completes when the received requests are finished. When `grace` completes, clients
    /// that do not accept their replies are disconnected.
    fn stop(self: Box<Self>, grace: LocalBoxFuture<'static, ()>) -> LocalBoxFuture<'static, ()>;
}

/// An export in the array's status. Its fields are a stable interface (docs/json.md).
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ExportStatus {
    pub(super) kind: &'static str,
    pub(super) address: String,
    pub(super) clients: usize,
}

/// The source of the NBD socket.
pub(crate) enum NbdSource {
    /// The server binds this address.
    Address(NbdAddress),
    /// The service manager passed a socket that listens there.
    Inherited(Listener, NbdAddress),
}

/// All open exports. The first is NBD.
pub(crate) struct Exports(Vec<Box<dyn OpenExport>>);

impl Exports {
    /// Opens NBD at each of `nbd`, of which there is one at least, and the exports in `arguments`, for the array `name`.
    pub(crate) async fn open(
        name: &str,
        volume: &Served,
        nbd: Vec<NbdSource>,
        arguments: &ExportArguments,
    ) -> Result<Self, Failure> {
        own::check(arguments)?;
        let mut exports: Vec<Box<dyn OpenExport>> = Vec::new();
        for source in nbd {
            exports.push(Box::new(nbd::NbdExport::open(name, volume, source, arguments)?));
        }
        own::open(name, volume, arguments, &mut exports).await?;
        Ok(Self(exports))
    }

    /// The first NBD URI.
    pub(crate) fn nbd(&self) -> String {
        self.0[0].address()
    }

    /// The status of each export.
    pub(crate) fn status(&self) -> Vec<ExportStatus> {
        let status = |export: &dyn OpenExport| ExportStatus {
            kind: export.kind(),
            address: export.address(),
            clients: export.clients(),
        };
        self.0.iter().map(|export| status(export.as_ref())).collect()
    }

    /// Current NBD connections.
    pub(crate) fn nbd_clients(&self) -> usize {
        self.0.iter().filter(|export| export.kind() == nbd::KIND).map(|export| export.clients()).sum()
    }

    /// Completes with an export's name and the reason when that export cannot continue.
    pub(crate) async fn failed(&mut self) -> std::io::Error {
        let failures = self.0.iter_mut().map(|export| {
            let kind = export.kind();
            let failed = export.failed();
            Box::pin(async move { std::io::Error::other(format!("{kind} cannot continue: {}", failed.await)) })
        });
        select_all(failures).await.0
    }

    /// Closes all exports and finishes every received request.
    pub(crate) async fn stop(self, clock: &RealClock) {
        let stop = |export: Box<dyn OpenExport>| {
            let (clock, until) = (clock.clone(), clock.now() + STOP_GRACE);
            export.stop(Box::pin(async move { clock.sleep_until(until).await }))
        };
        join_all(self.0.into_iter().map(stop)).await;
    }
}

impl ExportStatus {
    /// A line of the server's greeting.
    pub(crate) fn line(&self) -> String {
        format!("  {:<10} {}\n", self.kind, self.address)
    }
}
