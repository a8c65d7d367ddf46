//! Tests the cache against the plainest model: what the members hold, byte by byte.

use super::*;
use proptest::prelude::*;

const CHUNK_ROWS: u64 = 3;
const CHUNK_BYTES: u32 = (CHUNK_ROWS as usize * PAGE_BYTES) as u32;
const STRIPES: u64 = 6;
const ROLES: [Role; 4] = [Role::Data(0), Role::Data(1), Role::P, Role::Q];

/// One write to a stripe: a range of one data chunk, and the same range of each parity.
#[derive(Debug, Clone)]
struct Write {
    stripe: u64,
    data: u16,
    /// In units of 512 bytes, as on members.
    within: Range<u32>,
    ending: Ending,
    /// Whether old contents of the other chunk are read as well.
    reads_other: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Ending {
    Done,
    /// Q's member is missing: Q is neither written nor cached.
    DoneWithoutQ,
    /// The members changed in part, and the cache does not learn of it.
    Abandoned,
    /// A member left, or a resync rewrote the stripe.
    Cleared,
}

fn writes() -> impl Strategy<Value = Vec<Write>> {
    let units = CHUNK_BYTES / 512;
    let within = prop_oneof![
        (0..CHUNK_ROWS as u32).prop_map(|row| row * 8..row * 8 + 8),
        (0..CHUNK_ROWS as u32).prop_map(move |row| row * 8..units),
        (0..units, 1..units).prop_map(move |(start, length)| start..(start + length).min(units)),
    ];
    let ending = prop_oneof![
        8 => Just(Ending::Done),
        2 => Just(Ending::DoneWithoutQ),
        1 => Just(Ending::Abandoned),
        1 => Just(Ending::Cleared),
    ];
    let write = (0..STRIPES, 0..2_u16, within, ending, any::<bool>());
    let write = write.prop_map(|(stripe, data, within, ending, reads_other)| Write {
        stripe,
        data,
        within: within.start * 512..within.end * 512,
        ending,
        reads_other,
    });
    prop::collection::vec(write, 1..120)
}

/// What the members hold.
struct Members {
    chunks: std::collections::HashMap<(u64, Role), Vec<u8>>,
    changes: u8,
}

impl Members {
    fn new() -> Self {
        let keys = (0..STRIPES).flat_map(|stripe| ROLES.map(|role| (stripe, role)));
        Self { chunks: keys.map(|key| (key, vec![0; CHUNK_BYTES as usize])).collect(), changes: 0 }
    }

    fn change(&mut self, stripe: u64, transfer: &ChunkTransfer) {
        self.changes = self.changes.wrapping_add(1);
        let range = transfer.within.start as usize..transfer.within.end as usize;
        self.chunks.get_mut(&(stripe, transfer.role)).expect("a chunk")[range].fill(self.changes);
    }

    fn contents(&self, stripe: u64, transfer: &ChunkTransfer) -> Vec<u8> {
        self.chunks[&(stripe, transfer.role)][transfer.within.start as usize..transfer.within.end as usize].to_vec()
    }
}

fn base(stripe: u64) -> Row {
    Row(stripe * CHUNK_ROWS)
}

/// Asserts that everything the cache serves is what the members hold, and that its counts are right.
fn check(cache: &mut StripeCache, members: &Members) {
    let mut pages = 0;
    for stripe in 0..STRIPES {
        for transfer in cache.lookup(base(stripe), &(0..CHUNK_BYTES)) {
            let mut found = vec![0; transfer.within.len()];
            cache.get(base(stripe), &transfer, &mut found);
            assert!(found == members.contents(stripe, &transfer), "stripe {stripe} {transfer:?} is stale");
            pages += found.len() / PAGE_BYTES;
        }
    }
    let on_probation = cache.lines.values().filter(|line| line.queue == Queue::Probation);
    assert_eq!(on_probation.map(|line| line.pages.len()).sum::<usize>(), cache.held_on_probation);
    assert_eq!((cache.held, cache.lines.len()), (pages, cache.probation.len() + cache.main.len()));
    assert!(pages <= cache.pages_max && cache.free.len() + pages <= cache.pages_max + 1, "{pages} pages");
}

proptest! {
    #[test]
    fn no_stale_byte_is_ever_served(pages in 0..40_usize, writes in writes()) {
        let mut cache = StripeCache::new(pages * PAGE_BYTES);
        let mut members = Members::new();
        for write in writes {
            let Write { stripe, data, within, ending, reads_other } = write;
            let transfer = |role| ChunkTransfer { role, within: within.clone() };
            let mut changes = vec![transfer(Role::Data(data)), transfer(Role::P), transfer(Role::Q)];
            let mut known: Vec<(ChunkTransfer, Vec<u8>)> = Vec::new();
            if reads_other {
                let other = transfer(Role::Data(1 - data));
                known.push((other.clone(), members.contents(stripe, &other)));
            }
            cache.invalidate(base(stripe), changes.iter().take(if ending == Ending::DoneWithoutQ { 2 } else { 3 }));
            changes.iter().for_each(|change| members.change(stripe, change));
            match ending {
                Ending::Abandoned => changes.clear(),
                Ending::Cleared => cache.clear(),
                Ending::Done => {}
                Ending::DoneWithoutQ => drop(changes.pop()),
            }
            known.extend(changes.iter().map(|change| (change.clone(), members.contents(stripe, change))));
            let before = if within.start == 0 { base(stripe).0.checked_sub(1).map(Row) } else { None };
            if !changes.is_empty() && cache.admit(base(stripe), &within, before) {
                known.iter().for_each(|(transfer, bytes)| cache.insert(base(stripe), transfer, bytes));
            }
            check(&mut cache, &members);
        }
    }
}

/// Writes one page of data chunk 0, and P. Returns whether both old contents were cached.
fn write_page(cache: &mut StripeCache, row: u64) -> bool {
    let (base, within) = (Row(row), 0..PAGE_BYTES as u32);
    let known = cache.lookup(base, &within);
    known.iter().for_each(|transfer| cache.get(base, transfer, &mut [0; PAGE_BYTES]));
    let changes = [Role::Data(0), Role::P].map(|role| ChunkTransfer { role, within: within.clone() });
    cache.invalidate(base, changes.iter());
    if cache.admit(base, &within, row.checked_sub(1).map(Row)) {
        changes.iter().for_each(|change| cache.insert(base, change, &[1; PAGE_BYTES]));
    }
    known.len() == 2
}

const ROWS_HELD: u64 = 64;

fn cache() -> StripeCache {
    StripeCache::new(ROWS_HELD as usize * 2 * PAGE_BYTES)
}

/// Numbers of rows that are far from each other.
fn scattered(index: u64) -> u64 {
    index * 1_000_003 + 17
}

#[test]
fn a_row_is_kept_from_its_second_write_on_and_a_stream_from_its_second_row() {
    let mut cache = cache();
    assert!(!write_page(&mut cache, 100) && cache.is_empty(), "once is not enough");
    assert!(!write_page(&mut cache, 100));
    assert!(write_page(&mut cache, 100));
    assert!(!write_page(&mut cache, 101), "the stream's second row");
    assert!(write_page(&mut cache, 101));
}

#[test]
fn neither_writes_at_random_nor_streams_push_hot_rows_out() {
    type Flood = fn(u64) -> u64;
    let floods: [(&str, Flood); 2] = [("random", scattered), ("stream", |index| 1 << 40 | index)];
    for (name, flood) in floods {
        let mut cache = cache();
        let hot: Vec<u64> = (0..ROWS_HELD / 2).map(|index| scattered(index) | 1 << 50).collect();
        for _ in 0..3 {
            hot.iter().for_each(|&row| _ = write_page(&mut cache, row));
        }
        for index in 0..ROWS_HELD * 20 {
            write_page(&mut cache, flood(index));
        }
        let kept = hot.iter().filter(|&&row| write_page(&mut cache, row)).count();
        assert_eq!(kept, hot.len(), "{name}");
    }
}

#[test]
fn hot_rows_that_cool_down_make_room_for_others() {
    let mut cache = cache();
    for round in 0..8 {
        let rows: Vec<u64> = (0..ROWS_HELD).map(|index| scattered(index) + (round << 50)).collect();
        for _ in 0..6 {
            rows.iter().for_each(|&row| _ = write_page(&mut cache, row));
        }
        let kept = rows.iter().filter(|&&row| write_page(&mut cache, row)).count();
        assert!(kept as u64 > ROWS_HELD / 2, "round {round}: {kept}");
    }
}

#[test]
fn a_cache_without_memory_holds_and_remembers_nothing() {
    let mut cache = StripeCache::new(PAGE_BYTES - 1);
    assert!((0..5).all(|_| !write_page(&mut cache, 7)));
    assert!(cache.is_empty() && cache.remembered.is_empty());
}
