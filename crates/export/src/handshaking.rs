//! Connections in the handshake. They are counted apart from the served ones, so that a client that never finishes the
//! handshake blocks no other.
//!
//! During the handshake the server does not know whether a client may use an export: with TLS, its certificate is not
//! checked yet. The number of connections in the handshake is bounded. One more evicts another, which loses its
//! connection. The origin with the most such connections loses one: the one with the least progress, and of these the
//! oldest. So a flood from one address evicts its own connections, and other clients at that address are safe once they
//! send. They have time for that: a new connection waits until the one that it evicts was silent for [`SILENT_TIME`].
//! After the handshake a client is admitted to the served connections, and waits while they are at their limit.
//!
//! NBD and HTTP through TLS count their connections here. Nothing here receives or sends: the owner of a connection says
//! how it is closed. `tests/attack.py` tests it against a running server.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::net::{IpAddr, Ipv6Addr};
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

/// A connection that has sent nothing is evicted after this time at the earliest. A client on a busy machine, or far away,
/// has answered the server's greeting by then. A flood of a few hundred connections delays others by a few times as much.
pub const SILENT_TIME: Duration = Duration::from_millis(400);

/// The numbers of a server's connections.
#[derive(Default)]
pub struct ConnectionCounts {
    /// All connections.
    present: Cell<usize>,
    /// The connections past the handshake.
    admitted: Cell<usize>,
    /// Clients that wait to be admitted.
    waiting: RefCell<Vec<Waker>>,
}

impl ConnectionCounts {
    /// The number of connections past the handshake.
    pub fn admitted(&self) -> usize {
        self.admitted.get()
    }

    /// The number of all connections.
    pub fn present(&self) -> usize {
        self.present.get()
    }
}

/// The progress of a connection. The least progress is evicted first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// The client has sent nothing.
    Silent,
    /// The client has sent something.
    Active,
    /// The handshake is finished; the client waits to be admitted.
    Waiting,
    /// The client is admitted, or has left.
    Past,
}

/// Closes a connection.
type Evict = Box<dyn FnOnce()>;

/// A connection's progress, shared by its own task and the accepting one.
struct Peer {
    /// When it was added, by its owner's clock.
    since: Duration,
    stage: Cell<Stage>,
    /// With this the accepting task evicts the connection. `None` once that is over.
    evict: RefCell<Option<Evict>>,
}

impl Peer {
    fn reach(&self, stage: Stage) {
        self.stage.set(self.stage.get().max(stage));
    }

    /// The client is admitted, or has left.
    fn pass(&self) {
        self.reach(Stage::Past);
        self.evict.take();
    }
}

/// A connection. It counts until it is dropped.
pub struct CountedConnection {
    counts: Rc<ConnectionCounts>,
    peer: Rc<Peer>,
    is_admitted: bool,
}

impl CountedConnection {
    /// A callback for each receive: the client has sent something.
    pub fn on_receive(&self) -> impl Fn() + use<> {
        let peer = self.peer.clone();
        move || peer.reach(Stage::Active)
    }

    /// The handshake is finished. Waits until fewer than `most` connections are admitted.
    pub async fn admit(&mut self, most: usize) {
        self.peer.reach(Stage::Waiting);
        poll_fn(|context| {
            let admitted = self.counts.admitted.get();
            if admitted >= most {
                self.counts.waiting.borrow_mut().push(context.waker().clone());
                return Poll::Pending;
            }
            self.counts.admitted.set(admitted + 1);
            Poll::Ready(())
        })
        .await;
        self.is_admitted = true;
        self.peer.pass();
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        self.peer.pass();
        let ConnectionCounts { present, admitted, waiting } = &*self.counts;
        present.set(present.get() - 1);
        if self.is_admitted {
            admitted.set(admitted.get() - 1);
            waiting.take().into_iter().for_each(Waker::wake);
        }
    }
}

/// The network origin of a connection: the address, as far as it identifies one host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Origin(Option<IpAddr>);

impl Origin {
    /// One IPv6 host usually owns a whole /64 network, so only the first 64 bits count.
    fn of(address: Option<IpAddr>) -> Self {
        Self(address.map(|address| match address.to_canonical() {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
            address => address,
        }))
    }
}

/// The connections in the handshake, in order of arrival.
#[derive(Default)]
pub struct Handshaking(Vec<(Origin, Rc<Peer>)>);

impl Handshaking {
    /// The time from `now` until a connection from `address` may be added; `most` may be here.
    pub fn time_until_room(&mut self, address: Option<IpAddr>, now: Duration, most: usize) -> Duration {
        self.retain_present();
        if self.0.len() < most.max(1) {
            return Duration::ZERO;
        }
        let (_, victim) = &self.0[self.victim(Origin::of(address))];
        match victim.stage.get() {
            Stage::Silent => (victim.since + SILENT_TIME).saturating_sub(now),
            _ => Duration::ZERO,
        }
    }

    /// Adds a connection at the time `now`, which `evict` closes. When `most` are already here, it evicts another.
    pub fn add(
        &mut self,
        counts: &Rc<ConnectionCounts>,
        address: Option<IpAddr>,
        now: Duration,
        evict: impl FnOnce() + 'static,
        most: usize,
    ) -> CountedConnection {
        let origin = Origin::of(address);
        self.retain_present();
        while self.0.len() >= most.max(1) {
            let (_, peer) = self.0.remove(self.victim(origin));
            if let Some(evict) = peer.evict.take() {
                evict();
            }
        }
        let (stage, evict) = (Cell::new(Stage::Silent), RefCell::new(Some(Box::new(evict) as Evict)));
        let peer = Rc::new(Peer { since: now, stage, evict });
        self.0.push((origin, peer.clone()));
        counts.present.set(counts.present.get() + 1);
        CountedConnection { counts: counts.clone(), peer, is_admitted: false }
    }

    fn retain_present(&mut self) {
        self.0.retain(|(_, peer)| peer.stage.get() != Stage::Past);
    }

    /// The index of the connection to evict for one from `newcomer`.
    fn victim(&self, newcomer: Origin) -> usize {
        let mut counts = BTreeMap::from([(newcomer, 1)]);
        self.0.iter().for_each(|(origin, _)| *counts.entry(*origin).or_insert(0) += 1);
        let rank = |index: &usize| {
            let (origin, peer) = &self.0[*index];
            (std::cmp::Reverse(counts[origin]), peer.stage.get(), *index)
        };
        (0..self.0.len()).min_by_key(rank).expect("the list is full, so it is not empty")
    }
}

/// The timeout of a client's handshake, and the admission that follows it.
pub(crate) struct Admission<P, A> {
    /// Completes when the time is over.
    pub(crate) timeout: P,
    /// Completes when the client is admitted. It has not been polled yet.
    pub(crate) admitted: A,
}

impl<P: Future<Output = ()>> Admission<P, std::future::Ready<()>> {
    /// An admission without a limit on connections.
    pub(crate) fn unbounded(timeout: P) -> Self {
        Self { timeout, admitted: std::future::ready(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn address(text: &str) -> Option<IpAddr> {
        Some(text.parse().expect("an address"))
    }

    #[test]
    fn a_flood_from_one_address_evicts_only_its_own_connections() {
        let (counts, mut handshaking) = (Rc::default(), Handshaking::default());
        let mut take = |from: &str| handshaking.add(&counts, address(from), Duration::ZERO, || {}, 4);
        let [a, b, c] = ["192.0.2.1", "2001:db8::1", "192.0.2.9"].map(&mut take);
        let flood: Vec<_> = (1..100).map(|host| take(&format!("2001:db8:0:1::{host}"))).collect();
        let is_in = |counted: &CountedConnection, handshaking: &Handshaking| {
            handshaking.0.iter().any(|(_, peer)| Rc::ptr_eq(peer, &counted.peer))
        };
        for other in [&a, &b, &c] {
            assert!(is_in(other, &handshaking), "connections from other addresses stay");
        }
        assert_eq!(flood.iter().filter(|one| is_in(one, &handshaking)).count(), 1);
        assert_eq!((counts.present(), counts.admitted()), (102, 0));
    }

    #[test]
    fn of_one_address_silent_connections_are_evicted_first_and_the_oldest_of_them() {
        let (counts, mut handshaking) = (Rc::default(), Handshaking::default());
        let mut take = || handshaking.add(&counts, address("127.0.0.1"), Duration::ZERO, || {}, 3);
        let (first, second, third) = (take(), take(), take());
        first.on_receive()();
        let fourth = take();
        third.on_receive()();
        fourth.on_receive()();
        let fifth = take();
        let left: Vec<bool> = [&first, &second, &third, &fourth, &fifth]
            .map(|one| handshaking.0.iter().any(|(_, peer)| Rc::ptr_eq(peer, &one.peer)))
            .into();
        assert_eq!(
            left,
            [false, false, true, true, true],
            "the second had sent nothing; then the first was the oldest"
        );
    }

    #[test]
    fn a_new_connection_waits_until_the_one_that_it_evicts_had_time_to_send() {
        let (counts, mut handshaking) = (Rc::default(), Handshaking::default());
        let ms = Duration::from_millis;
        let wait = |handshaking: &mut Handshaking, now| handshaking.time_until_room(address("192.0.2.1"), ms(now), 2);
        let take = |handshaking: &mut Handshaking, now| {
            assert_eq!(wait(handshaking, now), ms(0));
            handshaking.add(&counts, address("192.0.2.1"), ms(now), || {}, 2)
        };
        let first = take(&mut handshaking, 100);
        let second = take(&mut handshaking, 300);
        assert_eq!(wait(&mut handshaking, 300), ms(200), "the first was silent for 200 ms");
        first.on_receive()();
        assert_eq!(wait(&mut handshaking, 300), ms(400), "now the second would be evicted");
        second.on_receive()();
        assert_eq!(wait(&mut handshaking, 300), ms(0), "clients that send have no time of their own");
        let third = take(&mut handshaking, 400);
        assert_eq!(wait(&mut handshaking, 800), ms(0), "the time of the third is over");
        drop(third);
        assert_eq!(wait(&mut handshaking, 400), ms(0), "it has left");
    }

    #[test]
    fn a_client_waits_for_a_place_and_gets_the_next_that_is_free() {
        let (counts, mut handshaking) = (Rc::default(), Handshaking::default());
        let mut take = || handshaking.add(&counts, None, Duration::ZERO, || {}, 3);
        let (mut first, mut second) = (take(), take());
        assert!(first.admit(1).now_or_never().is_some());
        {
            let mut waiting = Box::pin(second.admit(1));
            assert!((&mut waiting).now_or_never().is_none());
            drop(first);
            assert!(waiting.now_or_never().is_some());
        }
        assert_eq!((counts.present(), counts.admitted()), (1, 1));
        drop(second);
        assert_eq!((counts.present(), counts.admitted()), (0, 0));
    }
}
