//! Who comes in: connections are counted apart before and after the handshake, so that those who never finish one keep
//! nobody out who does.
//!
//! Before the handshake is over a client is a *stranger*: with TLS and certificates, nobody knows yet whether it may come
//! in. There is room for so many strangers; a further one takes the place of another, which loses its connection: of those from the
//! address that has the most, one that has said nothing, the oldest of these. So who floods a port from one address
//! drives itself out, and others at that address are in as soon as they speak. When the handshake is over a client takes a
//! place among the connections that are served, and waits for one if all are taken.

use io::net::Stream;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::net::{IpAddr, Ipv6Addr};
use std::rc::Rc;
use std::task::{Poll, Waker};

/// How many connections a server has.
#[derive(Default)]
pub(super) struct Counts {
    /// All that are there.
    present: Cell<usize>,
    /// Those that have finished the handshake.
    admitted: Cell<usize>,
    /// Clients that wait to be admitted.
    waiting: RefCell<Vec<Waker>>,
}

impl Counts {
    /// Connections that have finished the handshake.
    pub(super) fn admitted(&self) -> usize {
        self.admitted.get()
    }

    /// All that are there.
    pub(super) fn present(&self) -> usize {
        self.present.get()
    }
}

/// How far a client is; the further, the later it loses its place to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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

/// A connection, as its own task and the one that accepted it know it.
#[derive(Debug)]
struct Door {
    stage: Cell<Stage>,
    /// To end it from outside, while it is a stranger's.
    stream: RefCell<Option<Stream>>,
}

impl Door {
    fn reach(&self, stage: Stage) {
        self.stage.set(self.stage.get().max(stage));
    }

    /// Its client is no stranger any more, or has gone.
    fn pass(&self) {
        self.reach(Stage::Past);
        self.stream.take();
    }
}

/// A connection that counts while this lives.
pub(super) struct Counted {
    counts: Rc<Counts>,
    door: Rc<Door>,
    is_admitted: bool,
}

impl Counted {
    /// Its client has said something.
    pub(super) fn heard(&self) -> impl Fn() + use<> {
        let door = self.door.clone();
        move || door.reach(Stage::Heard)
    }

    /// Its client has finished the handshake: waits until fewer than `most` others are served.
    pub(super) async fn admit(&mut self, most: usize) {
        self.door.reach(Stage::Waiting);
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
        self.door.pass();
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.door.pass();
        let Counts { present, admitted, waiting } = &*self.counts;
        present.set(present.get() - 1);
        if self.is_admitted {
            admitted.set(admitted.get() - 1);
            waiting.take().into_iter().for_each(Waker::wake);
        }
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

/// The strangers among the connections, in the order in which they came.
#[derive(Default)]
pub(super) struct Strangers(Vec<(Origin, Rc<Door>)>);

impl Strangers {
    /// Takes one in; where `most` are there already, another loses its connection.
    pub(super) fn take_in(
        &mut self,
        counts: &Rc<Counts>,
        address: Option<IpAddr>,
        stream: Option<Stream>,
        most: usize,
    ) -> Counted {
        let origin = Origin::of(address);
        self.0.retain(|(_, door)| door.stage.get() != Stage::Past);
        while self.0.len() >= most.max(1) {
            let (_, door) = self.0.remove(self.victim(origin));
            if let Some(stream) = door.stream.take() {
                stream.shutdown();
            }
        }
        let door = Rc::new(Door { stage: Cell::new(Stage::Silent), stream: RefCell::new(stream) });
        self.0.push((origin, door.clone()));
        counts.present.set(counts.present.get() + 1);
        Counted { counts: counts.clone(), door, is_admitted: false }
    }

    /// Who makes room for one from `newcomer`.
    fn victim(&self, newcomer: Origin) -> usize {
        let mut counts = BTreeMap::from([(newcomer, 1)]);
        self.0.iter().for_each(|(origin, _)| *counts.entry(*origin).or_insert(0) += 1);
        let rank = |index: &usize| {
            let (origin, door) = &self.0[*index];
            (std::cmp::Reverse(counts[origin]), door.stage.get(), *index)
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
        let (counts, mut strangers) = (Rc::default(), Strangers::default());
        let mut take = |from: &str| strangers.take_in(&counts, address(from), None, 4);
        let [a, b, c] = ["192.0.2.1", "2001:db8::1", "192.0.2.9"].map(&mut take);
        let flood: Vec<_> = (1..100).map(|host| take(&format!("2001:db8:0:1::{host}"))).collect();
        let is_in = |counted: &Counted, strangers: &Strangers| {
            strangers.0.iter().any(|(_, door)| Rc::ptr_eq(door, &counted.door))
        };
        for other in [&a, &b, &c] {
            assert!(is_in(other, &strangers), "nobody else loses its place");
        }
        assert_eq!(flood.iter().filter(|one| is_in(one, &strangers)).count(), 1);
        assert_eq!((counts.present(), counts.admitted()), (102, 0));
    }

    #[test]
    fn of_one_address_those_go_first_that_say_nothing_and_the_oldest_of_them() {
        let (counts, mut strangers) = (Rc::default(), Strangers::default());
        let mut take = || strangers.take_in(&counts, address("127.0.0.1"), None, 3);
        let (first, second, third) = (take(), take(), take());
        first.heard()();
        let fourth = take();
        third.heard()();
        fourth.heard()();
        let fifth = take();
        let left: Vec<bool> = [&first, &second, &third, &fourth, &fifth]
            .map(|one| strangers.0.iter().any(|(_, door)| Rc::ptr_eq(door, &one.door)))
            .into();
        assert_eq!(left, [false, false, true, true, true], "the second was silent, then the first was the oldest");
    }

    #[test]
    fn a_client_waits_for_a_place_and_gets_the_next_that_is_free() {
        let (counts, mut strangers) = (Rc::default(), Strangers::default());
        let mut take = || strangers.take_in(&counts, None, None, 3);
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
