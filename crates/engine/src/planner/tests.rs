//! The planner against a search over every set of reads, with linear algebra
//! as the only judge of whether a set is enough.

use super::*;
use proptest::prelude::*;

/// GF(2^8) product by definition: the planner's oracle shares no code with `parity`.
fn multiply(mut a: u8, mut b: u8) -> u8 {
    let mut product = 0;
    while b != 0 {
        if b & 1 != 0 {
            product ^= a;
        }
        a = (a << 1) ^ if a & 0x80 != 0 { 0x1d } else { 0 };
        b >>= 1;
    }
    product
}

fn inverse(a: u8) -> u8 {
    (1..=255).find(|&b| multiply(a, b) == 1).expect("not zero")
}

/// A chunk as a linear form over the stripe's old data.
fn form(code: Code, role: Role) -> Vec<u8> {
    let mut power = 1;
    (0..code.data)
        .map(|index| {
            let coefficient = match role {
                Role::Data(data) => u8::from(data == index),
                Role::P => 1,
                Role::Q => power,
            };
            power = multiply(power, 2);
            coefficient
        })
        .collect()
}

/// Whether every target is a combination of the rows: elimination, then reduction.
fn spans(rows: impl Iterator<Item = Vec<u8>>, targets: &[Vec<u8>]) -> bool {
    let mut basis: Vec<(usize, Vec<u8>)> = Vec::new();
    let reduce = |basis: &[(usize, Vec<u8>)], mut row: Vec<u8>| {
        for (pivot, base) in basis {
            let factor = row[*pivot];
            row.iter_mut().zip(base).for_each(|(cell, b)| *cell ^= multiply(factor, *b));
        }
        row
    };
    for row in rows {
        let mut row = reduce(&basis, row);
        if let Some(pivot) = row.iter().position(|&cell| cell != 0) {
            let scale = inverse(row[pivot]);
            row.iter_mut().for_each(|cell| *cell = multiply(*cell, scale));
            basis.push((pivot, row));
        }
    }
    targets.iter().all(|target| reduce(&basis, target.clone()).iter().all(|&cell| cell == 0))
}

/// What must be known of the old data in a column.
fn targets(code: Code, asked: Symbols, health: &Health, write: bool) -> Vec<Vec<u8>> {
    if !write {
        return asked.iter().map(|role| form(code, role)).collect();
    }
    if asked.is_empty() {
        return Vec::new();
    }
    let unwritten = |parity: Role| {
        let mut form = form(code, parity);
        asked.iter().for_each(|role| {
            let Role::Data(index) = role else { unreachable!("only data is asked") };
            form[usize::from(index)] = 0;
        });
        form
    };
    code.all_parities().minus(health.absent).iter().map(unwritten).collect()
}

/// Every set of readable chunks that is enough and of which none can be spared;
/// those as large as a whole stripe's data only where all are.
fn sufficient_sets(code: Code, asked: Symbols, health: &Health, write: bool) -> Vec<Symbols> {
    let targets = targets(code, asked, health, write);
    let readable: Vec<Role> = code.all_data().union(code.all_parities()).minus(health.unreadable).iter().collect();
    let enough = |set: Symbols| spans(set.iter().map(|role| form(code, role)), &targets);
    let mut sets: Vec<Symbols> = (0..1_u32 << readable.len())
        .map(|mask| (0..readable.len()).filter(|i| mask >> i & 1 == 1).map(|i| readable[i]).collect())
        .filter(|&set: &Symbols| enough(set) && set.iter().all(|role| !enough(set.minus(Symbols::of(role)))))
        .collect();
    if sets.iter().any(|set| set.len() < code.data.into()) {
        sets.retain(|set| set.len() < code.data.into());
    }
    sets
}

/// The least cost over every choice of a set for every column.
fn least(columns: &[Column], sets: &[Vec<Symbols>], before: Symbols) -> Option<Cost> {
    let Some((column, later)) = columns.split_first() else { return Some((0, 0)) };
    let length = u64::from(column.within.end - column.within.start);
    sets[0]
        .iter()
        .filter_map(|&set| {
            let (transfers, bytes) = least(later, &sets[1..], set)?;
            Some((transfers + set.minus(before).len(), bytes + u64::from(set.len()) * length))
        })
        .min()
}

fn cost(plan: &Plan) -> Cost {
    (plan.reads.len() as u32, plan.reads.iter().map(|t| u64::from(t.within.end - t.within.start)).sum())
}

const CHUNK: u64 = 8;

/// A contiguous range of a stripe's data, as spans.
fn spans_of(range: Range<u64>) -> Vec<Span> {
    (range.start / CHUNK..range.end.div_ceil(CHUNK))
        .map(|data| Span {
            data: data as u16,
            within: (range.start.max(data * CHUNK) - data * CHUNK) as u32
                ..(range.end.min((data + 1) * CHUNK) - data * CHUNK) as u32,
        })
        .collect()
}

fn check_against_search(code: Code, spans: &[Span], health: &Health, write: bool) {
    let plan = if write { plan_write(code, spans, health) } else { plan_read(code, spans, health) };
    let columns = cut(spans);
    let sets: Vec<_> = columns.iter().map(|column| sufficient_sets(code, column.asked, health, write)).collect();
    let searched = least(&columns, &sets, Symbols::EMPTY);
    assert_eq!(plan.as_ref().ok().map(cost), searched, "{code:?} {spans:?} {health:?} write={write} {plan:?}");
    for (column, sets) in plan.iter().flat_map(|plan| &plan.columns).zip(&sets) {
        assert!(sets.contains(&column.reads), "{column:?} reads what it needs and no more: {sets:?}");
    }
}

#[test]
fn every_contiguous_request_on_small_stripes_costs_the_least_a_search_finds() {
    for parities in 1..=2_u16 {
        for data in 1..=4_u16 {
            let code = Code { data, parities };
            let roles: Vec<Role> = code.all_data().union(code.all_parities()).iter().collect();
            let mut losses = vec![Symbols::EMPTY];
            losses.extend(roles.iter().map(|&role| Symbols::of(role)));
            losses.extend(roles.iter().flat_map(|&a| roles.iter().map(move |&b| Symbols::of(a).with(b))));
            for &unreadable in &losses {
                for absent in [Symbols::EMPTY, unreadable] {
                    let health = Health { unreadable, absent, parity_trusted: true };
                    let end = u64::from(data) * CHUNK;
                    for start in (0..end).step_by(2) {
                        for end in (start + 2..=end).step_by(2) {
                            for write in [false, true] {
                                check_against_search(code, &spans_of(start..end), &health, write);
                            }
                        }
                    }
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn scattered_requests_cost_the_least_a_search_finds(
        parities in 1..=2_u16,
        extents in prop::collection::vec((0..6_u32, 1..4_u32), 1..4),
        lost in prop::collection::vec(0..6_usize, 0..=2),
        gone: bool,
        write: bool,
    ) {
        let code = Code { data: 4, parities };
        let spans: Vec<Span> = extents
            .iter()
            .enumerate()
            .map(|(data, &(start, length))| Span { data: data as u16, within: start..start + length })
            .collect();
        let roles: Vec<Role> = code.all_data().union(code.all_parities()).iter().collect();
        let unreadable: Symbols = lost.iter().filter_map(|&index| roles.get(index)).copied().collect();
        let absent = if gone { unreadable } else { Symbols::EMPTY };
        check_against_search(code, &spans, &Health { unreadable, absent, parity_trusted: true }, write);
    }
}

/// Modifying would continue the transfers of the columns beside it, and read
/// as much as the whole stripe in this one.
#[test]
fn a_whole_stripe_is_not_read_to_save_a_transfer() {
    let code = Code { data: 4, parities: 1 };
    let spans = [(0, 2..4), (1, 1..4), (2, 2..5)].map(|(data, within)| Span { data, within });
    check_against_search(code, &spans, &Health::GOOD, true);
}

#[test]
fn what_is_known_from_md_falls_out() {
    let raid5 = Code { data: 7, parities: 1 };
    let raid6 = Code { data: 7, parities: 2 };
    let chunk = CHUNK as u32;
    let small = [Span { data: 3, within: 2..4 }];
    let full: Vec<Span> = (0..7).map(|data| Span { data, within: 0..chunk }).collect();
    let wide: Vec<Span> = (0..5).map(|data| Span { data, within: 0..chunk }).collect();
    for (code, spans, reads, writes) in [
        (raid5, &small[..], 2, 2),
        (raid6, &small[..], 3, 3),
        (raid5, &full[..], 0, 8),
        (raid6, &full[..], 0, 9),
        (raid5, &wide[..], 2, 6),
        (raid6, &wide[..], 2, 7),
    ] {
        let plan = plan_write(code, spans, &Health::GOOD).expect("healthy");
        assert_eq!((plan.reads.len(), plan.writes.len()), (reads, writes), "{code:?} {spans:?}");
    }
}

#[test]
fn parity_that_is_not_trusted_is_remade_and_never_solved_from() {
    let code = Code { data: 4, parities: 1 };
    let spans = [Span { data: 0, within: 0..4 }];
    let untrusted = Health { parity_trusted: false, ..Health::GOOD };
    let plan = plan_write(code, &spans, &untrusted).expect("healthy");
    assert_eq!(plan.columns[0].way, Way::Reconstruct);
    let lost = Symbols::of(Role::Data(0));
    let degraded = Health { unreadable: lost, absent: lost, parity_trusted: false };
    assert_eq!(plan_read(code, &spans, &degraded), Err(Unrecoverable));
}
