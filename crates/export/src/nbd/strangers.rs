//! Who comes in: connections are counted apart before and after the handshake, so that those who never finish one keep
//! nobody out who does.
//!
//! Before the handshake is over a client is a *stranger*: with TLS and certificates, nobody knows yet whether it may come
//! in. There is room for so many strangers; a further one takes the place of another, which loses its connection: of those from the
//! address that has the most, one that has said nothing, the oldest of these. So who floods a port from one address
//! drives itself out, and others at that address are in as soon as they speak. When the handshake is over a client takes a
//! place among the connections that are served, and waits for one if all are taken.
//!
//! All of it may be asked from any thread: a server's connections can be served by several.

use futures_util::task::AtomicWaker;
use io::net::end_connection;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Connections of several servers, each on a thread of its own, that are one to their clients.
#[derive(Clone, Default)]
pub struct Together(Arc<Count>);

#[derive(Default)]
struct Count {
    /// All that are there.
    present: AtomicUsize,
    /// Those that have finished the handshake.
    admitted: AtomicUsize,
    /// Who waits for one to end, to accept another.
    full: AtomicWaker,
    /// Clients that wait to be admitted.
    waiting: Mutex<Vec<Waker>>,
}

impl Together {
    /// Connections that have finished the handshake.
    pub(super) fn admitted(&self) -> usize {
        self.0.admitted.load(Ordering::SeqCst)
    }

    /// All that are there.
    pub(super) fn present(&self) -> usize {
        self.0.present.load(Ordering::SeqCst)
    }

    /// Has the one task that accepts woken when a connection ends.
    pub(super) fn register(&self, context: &Context<'_>) {
        self.0.full.register(context.waker());
    }
}

/// How far a client is; the further, the later it loses its place to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
enum Stage {
    /// It has said nothing.
    Silent,
    /// It has said something.
    Heard,
    /// It has finished the handshake and waits for a place.
    Waiting,
    /// It is served, or has gone.
    Past,
}

/// A connection, as it is known to its own thread and to the one that accepted it.
#[derive(Debug)]
struct Door {
    stage: AtomicU8,
    /// To end it from outside, while it is a stranger's.
    descriptor: Mutex<Option<OwnedFd>>,
}

impl Door {
    fn stage(&self) -> Stage {
        match self.stage.load(Ordering::SeqCst) {
            0 => Stage::Silent,
            1 => Stage::Heard,
            2 => Stage::Waiting,
            _ => Stage::Past,
        }
    }

    fn reach(&self, stage: Stage) {
        self.stage.fetch_max(stage as u8, Ordering::SeqCst);
    }

    fn descriptor(&self) -> MutexGuard<'_, Option<OwnedFd>> {
        // Nothing panics while it holds the lock.
        self.descriptor.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that counts while this lives, wherever it is served.
pub struct Counted {
    together: Together,
    door: Arc<Door>,
    is_admitted: bool,
}

impl Counted {
    /// Its client has said something.
    pub(super) fn heard(&self) -> impl Fn() + use<> {
        let door = self.door.clone();
        move || {
            if door.stage() == Stage::Silent {
                door.reach(Stage::Heard);
            }
        }
    }

    /// Its client has finished the handshake: waits until fewer than `most` others are served.
    pub(super) async fn admit(&mut self, most: usize) {
        self.door.reach(Stage::Waiting);
        let count = self.together.0.clone();
        let take = || {
            let more = |admitted| (admitted < most).then_some(admitted + 1);
            count.admitted.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
        };
        poll_fn(|context| {
            if !take() {
                let mut waiting = count.waiting.lock().unwrap_or_else(PoisonError::into_inner);
                waiting.push(context.waker().clone());
                drop(waiting);
                // One may have ended before it knew of this one.
                if !take() {
                    return Poll::Pending;
                }
            }
            Poll::Ready(())
        })
        .await;
        self.is_admitted = true;
        self.door.reach(Stage::Past);
        self.door.descriptor().take();
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.door.reach(Stage::Past);
        self.door.descriptor().take();
        let count = &*self.together.0;
        count.present.fetch_sub(1, Ordering::SeqCst);
        if self.is_admitted {
            count.admitted.fetch_sub(1, Ordering::SeqCst);
            let waiting = std::mem::take(&mut *count.waiting.lock().unwrap_or_else(PoisonError::into_inner));
            waiting.into_iter().for_each(Waker::wake);
        }
        count.full.wake();
    }
}

/// Where a connection comes from, as far as one user of the network can be told from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Origin(Option<IpAddr>);

impl Origin {
    /// A host has a whole network of version 6's addresses to choose from: the first 64 bits are what it was given.
    fn of(address: Option<IpAddr>) -> Self {
        Self(address.map(|address| match address.to_canonical() {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
            address => address,
        }))
    }
}

/// The strangers among the connections that one task accepted, in the order in which they came.
#[derive(Default)]
pub(super) struct Strangers(Vec<(Origin, Arc<Door>)>);

impl Strangers {
    /// Takes one in; where `most` are there already, another loses its connection.
    pub(super) fn take_in(
        &mut self,
        together: &Together,
        address: Option<IpAddr>,
        descriptor: Option<OwnedFd>,
        most: usize,
    ) -> Counted {
        let origin = Origin::of(address);
        self.0.retain(|(_, door)| door.stage() != Stage::Past);
        while self.0.len() >= most.max(1) {
            let (_, door) = self.0.remove(self.victim(origin));
            // None where it has gone in or away meanwhile.
            if let Some(descriptor) = door.descriptor().take() {
                end_connection(&descriptor);
            }
        }
        let door = Door { stage: AtomicU8::new(Stage::Silent as u8), descriptor: Mutex::new(descriptor) };
        let door = Arc::new(door);
        self.0.push((origin, door.clone()));
        together.0.present.fetch_add(1, Ordering::SeqCst);
        Counted { together: together.clone(), door, is_admitted: false }
    }

    /// Who makes room for one from `newcomer`.
    fn victim(&self, newcomer: Origin) -> usize {
        let mut counts = BTreeMap::from([(newcomer, 1)]);
        self.0.iter().for_each(|(origin, _)| *counts.entry(*origin).or_insert(0) += 1);
        let rank = |index: &usize| {
            let (origin, door) = &self.0[*index];
            (std::cmp::Reverse(counts[origin]), door.stage(), *index)
        };
        (0..self.0.len()).min_by_key(rank).expect("there is no room, so there is one")
    }
}

/// Until when a client may take for the handshake, and what it then waits for.
pub(crate) struct Entrance<P, A> {
    /// Completes when the time is over.
    pub(crate) patience: P,
    /// Completes when it has a place; it has not begun.
    pub(crate) admitted: A,
}

impl<P: Future<Output = ()>> Entrance<P, std::future::Ready<()>> {
    /// One without a bound on who is served.
    pub(crate) fn open(patience: P) -> Self {
        Self { patience, admitted: std::future::ready(()) }
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
    fn who_floods_from_one_address_drives_itself_out() {
        let (together, mut strangers) = (Together::default(), Strangers::default());
        let mut take = |from: &str| strangers.take_in(&together, address(from), None, 4);
        let [a, b, c] = ["192.0.2.1", "2001:db8::1", "192.0.2.9"].map(&mut take);
        let flood: Vec<_> = (1..100).map(|host| take(&format!("2001:db8:0:1::{host}"))).collect();
        let is_in = |counted: &Counted, strangers: &Strangers| {
            strangers.0.iter().any(|(_, door)| Arc::ptr_eq(door, &counted.door))
        };
        for other in [&a, &b, &c] {
            assert!(is_in(other, &strangers), "nobody else loses its place");
        }
        assert_eq!(flood.iter().filter(|one| is_in(one, &strangers)).count(), 1);
        assert_eq!((together.present(), together.admitted()), (102, 0));
    }

    #[test]
    fn of_one_address_those_go_first_that_say_nothing_and_the_oldest_of_them() {
        let (together, mut strangers) = (Together::default(), Strangers::default());
        let mut take = || strangers.take_in(&together, address("127.0.0.1"), None, 3);
        let (first, second, third) = (take(), take(), take());
        first.heard()();
        let fourth = take();
        third.heard()();
        fourth.heard()();
        let fifth = take();
        let left: Vec<bool> = [&first, &second, &third, &fourth, &fifth]
            .map(|one| strangers.0.iter().any(|(_, door)| Arc::ptr_eq(door, &one.door)))
            .into();
        assert_eq!(left, [false, false, true, true, true], "the second was silent, then the first was the oldest");
    }

    #[test]
    fn a_client_waits_for_a_place_and_gets_the_next_that_is_free() {
        let (together, mut strangers) = (Together::default(), Strangers::default());
        let mut take = || strangers.take_in(&together, None, None, 3);
        let (mut first, mut second) = (take(), take());
        assert!(first.admit(1).now_or_never().is_some());
        {
            let mut waiting = Box::pin(second.admit(1));
            assert!((&mut waiting).now_or_never().is_none());
            drop(first);
            assert!(waiting.now_or_never().is_some());
        }
        assert_eq!((together.present(), together.admitted()), (1, 1));
        drop(second);
        assert_eq!((together.present(), together.admitted()), (0, 0));
    }
}
