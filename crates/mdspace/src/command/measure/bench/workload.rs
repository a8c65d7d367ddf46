//! Requests to the array, and the member transfers that they need.
//!
//! The limit of a request is a list of member transfers, computed in advance from the geometry: concurrent reads, then
//! concurrent writes. The limit computes no parity, takes no locks and caches nothing.

use format::geometry::{Geometry, Parity, Role};
use format::units::{ArrayByte, Slot};
use std::ops::Range;

/// One transfer of one member; positions are component positions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Transfer {
    pub(super) slot: usize,
    pub(super) at: u64,
    pub(super) bytes: usize,
    /// For a write: position of its data in the request, which its parity follows. As in the array, few of these bytes
    /// are in the processor's nearest cache.
    pub(super) from: usize,
}

/// The fewest transfers for a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Limit {
    pub(super) reads: Vec<Transfer>,
    pub(super) writes: Vec<Transfer>,
}

/// The kind of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
}

/// The order of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Random,
    Linear,
    /// Random within [`BUSY_BYTES`] at the array's beginning.
    Busy,
    /// Random; the place of rank n is drawn 1/n times as often as the first one (Zipf's law).
    Zipf,
}

/// Requests of one kind.
pub(super) struct Workload {
    /// Its name in text and JSON.
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// Bytes of each request.
    pub(super) bytes: usize,
    /// The position of each request, and its limit.
    pub(super) requests: Vec<(u64, Limit)>,
}

/// Number of random requests that are computed in advance; then they repeat.
const REQUESTS: u64 = 8192;

/// The same for linear requests, at most.
const LINEAR_REQUESTS_MAX: u64 = 1 << 18;

/// The area of [`Order::Busy`].
const BUSY_BYTES: u64 = 512 << 10;

/// The most places that [`Order::Zipf`] draws.
const RANKS_MAX: u64 = 1 << 16;

/// The workloads of a whole array.
pub(super) fn healthy(geometry: &Geometry) -> Vec<Workload> {
    let make = |name, kind, bytes, order| workload(name, kind, bytes, order, geometry, None);
    let mut list = vec![
        make("read 4 KiB random", Kind::Read, 4 << 10, Order::Random),
        make("read 64 KiB random", Kind::Read, 64 << 10, Order::Random),
        make("read 1 MiB linear", Kind::Read, 1 << 20, Order::Linear),
        make("write 4 KiB random", Kind::Write, 4 << 10, Order::Random),
    ];
    match geometry {
        Geometry::Mapping(_) => list.push(make("write 1 MiB linear", Kind::Write, 1 << 20, Order::Linear)),
        Geometry::Parity(parity) => {
            let stripe_bytes = parity.stripe_bytes() as usize;
            list.push(make("write 4 KiB random in 512 KiB", Kind::Write, 4 << 10, Order::Busy));
            list.push(make("write 4 KiB by Zipf's law", Kind::Write, 4 << 10, Order::Zipf));
            list.push(make("write full stripes", Kind::Write, stripe_bytes, Order::Linear));
            list.extend(SHORT_LINEAR.map(|(name, _, bytes)| make(name, Kind::Read, bytes, Order::Linear)));
        }
    }
    list
}

/// Further linear reads for levels with parity: of the whole array, and with a member missing.
const SHORT_LINEAR: [(&str, &str, usize); 4] = [
    ("read 256 KiB linear", "degraded read 256 KiB linear", 256 << 10),
    ("read 64 KiB linear", "degraded read 64 KiB linear", 64 << 10),
    ("read 16 KiB linear", "degraded read 16 KiB linear", 16 << 10),
    ("read 4 KiB linear", "degraded read 4 KiB linear", 4 << 10),
];

/// The workloads of an array whose first slot is empty.
pub(super) fn degraded(geometry: &Geometry) -> Vec<Workload> {
    let make = |name, bytes, order| workload(name, Kind::Read, bytes, order, geometry, Some(Slot(0)));
    let mut list = vec![
        make("degraded read 4 KiB random", 4 << 10, Order::Random),
        make("degraded read 1 MiB linear", 1 << 20, Order::Linear),
    ];
    if matches!(geometry, Geometry::Parity(_)) {
        list.extend(SHORT_LINEAR.map(|(_, name, bytes)| make(name, bytes, Order::Linear)));
    }
    list
}

fn workload(
    name: &'static str,
    kind: Kind,
    bytes: usize,
    order: Order,
    geometry: &Geometry,
    missing: Option<Slot>,
) -> Workload {
    let places = geometry.array_bytes() / bytes as u64;
    let mut random = Xorshift::default();
    let ranks = if order == Order::Zipf { Ranks::new(places) } else { Ranks::default() };
    let mut place = |index: u64| match order {
        Order::Linear => index % places,
        Order::Random => random.next() % places,
        Order::Busy => random.next() % places.min(BUSY_BYTES / bytes as u64).max(1),
        Order::Zipf => ranks.place(random.next()),
    };
    let count = if order == Order::Linear { places.min(LINEAR_REQUESTS_MAX) } else { REQUESTS };
    let requests = (0..count).map(|index| {
        let at = place(index) * bytes as u64;
        (at, limit(geometry, kind, at, bytes as u64, missing))
    });
    Workload { name, kind, bytes, requests: requests.collect() }
}

/// Draws places by Zipf's law. Places of neighbouring ranks are far apart.
#[derive(Default)]
struct Ranks {
    places: u64,
    /// The sum of the weights up to each rank.
    sums: Vec<u64>,
}

impl Ranks {
    fn new(places: u64) -> Self {
        let sums = (1..=places.min(RANKS_MAX)).scan(0, |sum, rank| {
            *sum += (1 << 32) / rank;
            Some(*sum)
        });
        Self { places, sums: sums.collect() }
    }

    fn place(&self, random: u64) -> u64 {
        let drawn = random % self.sums.last().copied().unwrap_or(1);
        let rank = self.sums.partition_point(|sum| *sum <= drawn) as u64;
        rank.wrapping_mul(0x9e37_79b9) % self.places
    }
}

/// Marsaglia's xorshift: the same positions in each run.
pub(super) struct Xorshift(u64);

impl Default for Xorshift {
    fn default() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }
}

impl Xorshift {
    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

fn limit(geometry: &Geometry, kind: Kind, at: u64, bytes: u64, missing: Option<Slot>) -> Limit {
    let mut limit = Limit::default();
    match geometry {
        Geometry::Mapping(mapping) => {
            for piece in mapping.pieces(ArrayByte(at), bytes) {
                let from = (piece.at.0 - at) as usize;
                let transfer =
                    |slot: Slot, at: u64| Transfer { slot: slot.index(), at, bytes: piece.bytes as usize, from };
                let copies = piece.copies.iter().filter(|(slot, _)| Some(*slot) != missing);
                match kind {
                    Kind::Write => copies.for_each(|(slot, at)| add(&mut limit.writes, transfer(*slot, at.0))),
                    Kind::Read => copies.take(1).for_each(|(slot, at)| add(&mut limit.reads, transfer(*slot, at.0))),
                }
            }
        }
        Geometry::Parity(parity) => {
            let stripe_bytes = parity.stripe_bytes();
            let mut start = at;
            while start < at + bytes {
                let end = (start / stripe_bytes + 1).saturating_mul(stripe_bytes).min(at + bytes);
                let within = start % stripe_bytes..start % stripe_bytes + (end - start);
                match kind {
                    Kind::Read => read_stripe(&mut limit, parity, start / stripe_bytes, within, missing),
                    Kind::Write => write_stripe(&mut limit, parity, start / stripe_bytes, within),
                }
                start = end;
            }
        }
    }
    limit
}

/// The part of each data chunk that `within` covers, in bytes of the chunk.
fn chunk_ranges(parity: &Parity, within: &Range<u64>) -> Vec<(u16, Range<u64>)> {
    let chunk = parity.chunk_bytes();
    let touched = (within.start / chunk) as u16..=((within.end - 1) / chunk) as u16;
    let range = |index: u16| {
        let start = u64::from(index) * chunk;
        within.start.max(start) - start..within.end.min(start + chunk) - start
    };
    touched.map(|index| (index, range(index))).collect()
}

fn role_transfer(parity: &Parity, stripe: u64, role: Role, range: &Range<u64>) -> Option<Transfer> {
    let stripe = parity.stripe(stripe);
    let slot = stripe.slot_of(role)?.index();
    let bytes = (range.end - range.start) as usize;
    Some(Transfer { slot, at: stripe.component().0 + range.start, bytes, from: 0 })
}

/// Reads of data chunks; for a missing one, the same range of all others and of P.
fn read_stripe(limit: &mut Limit, parity: &Parity, stripe: u64, within: Range<u64>, missing: Option<Slot>) {
    let mut wanted = chunk_ranges(parity, &within);
    let is_missing = |role: Role| missing.is_some() && parity.stripe(stripe).slot_of(role) == missing;
    let lost =
        wanted.iter().position(|(index, _)| is_missing(Role::Data(*index))).map(|place| wanted.swap_remove(place));
    if let Some((lost, range)) = lost {
        for index in (0..parity.data_chunks()).filter(|index| *index != lost) {
            match wanted.iter_mut().find(|(other, _)| *other == index) {
                Some((_, other)) => *other = other.start.min(range.start)..other.end.max(range.end),
                None => wanted.push((index, range.clone())),
            }
        }
        limit.reads.extend(role_transfer(parity, stripe, Role::P, &range));
    }
    for (index, range) in wanted {
        if let Some(transfer) = role_transfer(parity, stripe, Role::Data(index), &range) {
            add(&mut limit.reads, transfer);
        }
    }
}

/// Writes of data and parity. For less than a full stripe, within one chunk, preceded by the reads of read-modify-write
/// or reconstruct-write, whichever reads less.
fn write_stripe(limit: &mut Limit, parity: &Parity, stripe: u64, within: Range<u64>) {
    let written = chunk_ranges(parity, &within);
    let is_full = within == (0..parity.stripe_bytes());
    let range = if is_full { 0..parity.chunk_bytes() } else { written[0].1.clone() };
    let parities = parity.parity_roles();
    let data = written.iter().map(|(index, _)| Role::Data(*index));
    if !is_full {
        let untouched = (0..parity.data_chunks()).filter(|index| *index != written[0].0).map(Role::Data);
        let modify: Vec<Role> = data.clone().chain(parities.clone()).collect();
        let reconstruct: Vec<Role> = untouched.collect();
        let fewest = if reconstruct.len() < modify.len() { reconstruct } else { modify };
        limit.reads.extend(fewest.into_iter().filter_map(|role| role_transfer(parity, stripe, role, &range)));
    }
    let mut from = limit.writes.iter().map(|transfer| transfer.bytes).sum();
    for mut transfer in data.chain(parities).filter_map(|role| role_transfer(parity, stripe, role, &range)) {
        transfer.from = from;
        from += transfer.bytes;
        add(&mut limit.writes, transfer);
    }
}

/// Adds a transfer, merged into a transfer that it continues.
fn add(transfers: &mut Vec<Transfer>, next: Transfer) {
    let continued = transfers
        .iter_mut()
        .find(|transfer| transfer.slot == next.slot && transfer.at + transfer.bytes as u64 == next.at);
    match continued {
        Some(transfer) => transfer.bytes += next.bytes,
        None => transfers.push(next),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::geometry::{Level, Shape};

    fn geometry(level: Level, layout: u32, slots: u16) -> Geometry {
        let component_bytes = 16 << 20;
        let member_bytes = if level == Level::Raid0 { vec![component_bytes; usize::from(slots)] } else { Vec::new() };
        let shape = Shape { level, layout, chunk_bytes: 64 << 10, slots, component_bytes, member_bytes };
        Geometry::new(&shape).expect("a good shape")
    }

    #[test]
    fn a_busy_area_is_small_and_zipfs_law_prefers_few_places() {
        let geometry = geometry(Level::Raid5, 2, 4);
        let places = |order| {
            let requests = workload("", Kind::Write, 4 << 10, order, &geometry, None).requests;
            let mut places: Vec<u64> = requests.into_iter().map(|(at, _)| at / 4096).collect();
            places.sort_unstable();
            places
        };
        assert!(places(Order::Busy).last().is_some_and(|last| *last < 128));
        let zipf = places(Order::Zipf);
        let often = zipf.chunk_by(|one, next| one == next).map(<[u64]>::len).max();
        // The first of 12288 ranks: one in ln(12288) + 0.58 = 10.0.
        assert!(often.is_some_and(|often| (700..950).contains(&often)), "{often:?} of {}", zipf.len());
        assert!(zipf.iter().all(|place| *place < geometry.array_bytes() / 4096));
    }

    #[test]
    fn a_limit_counts_the_least_transfers_and_their_bytes() {
        let (read, write) = (Kind::Read, Kind::Write);
        let raid0 = geometry(Level::Raid0, 2, 8);
        let raid5 = geometry(Level::Raid5, 2, 8);
        let raid6 = geometry(Level::Raid6, 2, 8);
        let small5 = geometry(Level::Raid5, 2, 3);
        let one = geometry(Level::Raid1, 0, 2);
        let stripe5 = 7 * (64 << 10);
        for (geometry, kind, at, bytes, missing, reads, writes) in [
            (&raid0, read, 0, 1 << 20, None, (8, 1 << 20), (0, 0)),
            (&raid0, write, 0, 4096, None, (0, 0), (1, 4096)),
            (&one, write, 0, 4096, None, (0, 0), (2, 8192)),
            (&raid5, read, 4096, 4096, None, (1, 4096), (0, 0)),
            (&raid5, write, 4096, 4096, None, (2, 8192), (2, 8192)),
            (&small5, write, 4096, 4096, None, (1, 4096), (2, 8192)),
            (&raid6, write, 4096, 4096, None, (3, 12_288), (3, 12_288)),
            (&raid5, write, 0, stripe5, None, (0, 0), (8, 8 * (64 << 10))),
            (&raid5, read, 0, 4096, Some(Slot(0)), (7, 7 * 4096), (0, 0)),
            (&raid5, read, 64 << 10, 4096, Some(Slot(0)), (1, 4096), (0, 0)),
            (&raid5, read, 0, stripe5, Some(Slot(0)), (7, stripe5), (0, 0)),
        ] {
            let limit = limit(geometry, kind, at, bytes, missing);
            let sum = |list: &[Transfer]| (list.len(), list.iter().map(|transfer| transfer.bytes as u64).sum::<u64>());
            assert_eq!((sum(&limit.reads), sum(&limit.writes)), (reads, writes), "{kind:?} {bytes} at {at}");
            assert!(missing.is_none() || limit.reads.iter().all(|transfer| transfer.slot != 0));
        }
    }
}
