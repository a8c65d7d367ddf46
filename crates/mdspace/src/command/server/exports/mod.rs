//! The ways into an array that is being served: a table of them, each in a
//! file of its own, all open at once.
//!
//! The array belongs to one thread, or each stripe to one of several. A way in that has threads of its own
//! hands requests to the first; what is begun there is finished there.

#[cfg(feature = "fuse")]
mod fuse;
mod nbd;
#[cfg(feature = "ublk")]
mod ublk;
#[cfg(feature = "vhost-user")]
mod vhost_user;

use crate::command::arguments::WayArguments;
use crate::command::crew::Hand;
use crate::command::failure::Failure;
use crate::command::nbd_address::NbdAddress;
use crate::command::volume::Served;
use engine::Clock;
use futures_util::future::{LocalBoxFuture, join_all, select_all};
use io::RealClock;
use io::net::Listener;
use serde::Serialize;
use std::time::Duration;

/// How long clients may take to accept their last answers.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// What else makes a block device of an array.
const OTHER_BLOCK_DEVICES: &str = "take --fuse and a loop device (docs/fuse.md), or --nbd and the kernel's nbd";

/// A way in that is open.
trait Way {
    /// What it is called, in few letters.
    fn kind(&self) -> &'static str;

    /// Where clients find it.
    fn address(&self) -> String;

    /// Clients at present.
    fn clients(&self) -> usize;

    /// Completes when it cannot go on, with the reason. It may be dropped and asked again.
    fn failed(&mut self) -> LocalBoxFuture<'_, std::io::Error>;

    /// Takes no more requests, and completes when those that were received are
    /// finished. Clients that do not take their answers are cut off after `grace`.
    fn stop(self: Box<Self>, grace: LocalBoxFuture<'static, ()>) -> LocalBoxFuture<'static, ()>;
}

/// One way in, as `status` shows it. Its fields are a stable interface (docs/json.md).
#[derive(Debug, Serialize)]
pub(crate) struct WayStatus {
    kind: &'static str,
    address: String,
    clients: usize,
}

/// Where NBD clients connect.
pub(crate) enum NbdSource {
    /// Nobody listens there yet.
    Address(NbdAddress),
    /// Somebody handed over a socket that listens there.
    Inherited(Listener, NbdAddress),
}

/// All that are open; NBD is the first.
pub(crate) struct Ways(Vec<Box<dyn Way>>);

impl Ways {
    /// Opens NBD at `nbd`, and what `arguments` ask for, for the array called `name`. Connections of NBD are served by the threads of
    /// `hands` too, in turn.
    pub(crate) async fn open(
        name: &str,
        volume: &Served,
        nbd: NbdSource,
        arguments: &WayArguments,
        hands: Vec<Hand>,
    ) -> Result<Self, Failure> {
        #[cfg(not(feature = "ublk"))]
        if arguments.ublk {
            return Err(Failure::refused("--ublk: this build leaves it out")
                .advise(format!("build it in with `cargo build --features ublk`; or {OTHER_BLOCK_DEVICES}")));
        }
        #[cfg(any(feature = "fuse", feature = "vhost-user"))]
        let refused = |error: std::io::Error| Failure::refused(error.to_string());
        #[cfg_attr(
            not(any(feature = "fuse", feature = "ublk", feature = "vhost-user")),
            expect(unused_mut, reason = "there is no other")
        )]
        let mut ways: Vec<Box<dyn Way>> = vec![Box::new(nbd::NbdWay::open(name, volume, nbd, arguments, hands)?)];
        #[cfg(feature = "vhost-user")]
        for path in &arguments.vhost_user {
            ways.push(Box::new(vhost_user::VhostUserWay::open(name, volume, path).map_err(refused)?));
        }
        #[cfg(feature = "fuse")]
        if let Some(mountpoint) = &arguments.fuse {
            ways.push(Box::new(fuse::FuseWay::open(volume, mountpoint).map_err(refused)?));
        }
        // The last, as it is the only one that wants to be stopped when another is refused.
        #[cfg(feature = "ublk")]
        if arguments.ublk {
            ways.push(Box::new(ublk::UblkWay::open(volume).await?));
        }
        Ok(Self(ways))
    }

    /// The NBD URI.
    pub(crate) fn nbd(&self) -> String {
        self.0[0].address()
    }

    /// What is open, in a line each.
    pub(crate) fn status(&self) -> Vec<WayStatus> {
        let ways = self.0.iter();
        ways.map(|way| WayStatus { kind: way.kind(), address: way.address(), clients: way.clients() }).collect()
    }

    /// NBD connections.
    pub(crate) fn nbd_clients(&self) -> usize {
        self.0[0].clients()
    }

    /// Completes when one of them cannot go on, with its name and the reason.
    pub(crate) async fn failed(&mut self) -> std::io::Error {
        let failures = self.0.iter_mut().map(|way| {
            let kind = way.kind();
            let failed = way.failed();
            Box::pin(async move { std::io::Error::other(format!("{kind} cannot go on: {}", failed.await)) })
        });
        select_all(failures).await.0
    }

    /// Closes all of them; every request that was received is finished.
    pub(crate) async fn stop(self, clock: &RealClock) {
        let stop = |way: Box<dyn Way>| {
            let (clock, until) = (clock.clone(), clock.now() + STOP_GRACE);
            way.stop(Box::pin(async move { clock.sleep_until(until).await }))
        };
        join_all(self.0.into_iter().map(stop)).await;
    }
}

impl WayStatus {
    /// For the greeting.
    pub(crate) fn line(&self) -> String {
        format!("  {:<10} {}\n", self.kind, self.address)
    }
}
