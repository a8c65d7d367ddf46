//! Tests the planner against a search over every set of reads. Linear algebra
//! alone decides whether a set is sufficient.

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

/// The linear forms of a column's old data that must be known, for each parity or chunk computed from it.
fn targets(code: Code, column: &Column, health: &StripeHealth, write: bool) -> Vec<(Role, Vec<u8>)> {
    if !write {
        return column.asked.iter().map(|role| (role, form(code, role))).collect();
    }
    if column.asked.union(column.kept).is_empty() {
        return Vec::new();
    }
    let unwritten = |parity: Role| {
        let mut form = form(code, parity);
        column.asked.iter().for_each(|role| {
            let Role::Data(index) = role else { unreachable!("only data is asked") };
            form[usize::from(index)] = 0;
        });
        (parity, form)
    };
    code.all_parities().minus(health.absent).iter().map(unwritten).collect()
}

/// What a set of old contents suffices for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Nothing,
    /// The whole request, with at most one readable chunk solved for.
    Solving,
    /// The requested chunks themselves, or each parity without the other.
    Direct,
}

fn judge(code: Code, column: &Column, health: &StripeHealth, write: bool, set: Symbols) -> Use {
    let targets = targets(code, column, health, write);
    let makes = |set: Symbols, target: &[u8]| spans(set.iter().map(|role| form(code, role)), &[target.to_vec()]);
    if !column.kept.minus(set).is_empty() || !targets.iter().all(|(_, target)| makes(set, target)) {
        return Use::Nothing;
    }
    let is_direct = targets.iter().all(|(role, target)| match role {
        Role::Data(_) => set.contains(*role),
        parity => makes(set.intersection(code.all_data().with(*parity)), target),
    });
    let can_be_had = code.all_data().minus(health.unreadable).union(column.cached.intersection(code.all_data()));
    let solved = can_be_had.minus(set).iter().filter(|&role| makes(set, &form(code, role))).count();
    match (is_direct, solved) {
        (true, _) => Use::Direct,
        (false, 0 | 1) => Use::Solving,
        _ => Use::Nothing,
    }
}

/// Every sufficient set of reads, by the rules of `candidates`.
fn sufficient_sets(code: Code, column: &Column, health: &StripeHealth, write: bool) -> Vec<Symbols> {
    let all = code.all_data().union(code.all_parities());
    let readable: Vec<Role> = all.minus(health.unreadable).minus(column.cached).iter().collect();
    let subsets = (0..1_u32 << readable.len())
        .map(|mask| (0..readable.len()).filter(|i| mask >> i & 1 == 1).map(|i| readable[i]).collect::<Symbols>());
    let mut sets: Vec<(Symbols, Use)> = subsets
        .map(|set| (set, judge(code, column, health, write, set.union(column.cached))))
        .filter(|(_, found)| *found != Use::Nothing)
        .collect();
    let is_whole = |set: Symbols| set.len() >= code.data.into();
    let direct = sets.iter().filter(|(set, found)| *found == Use::Direct && (!write || !is_whole(*set)));
    if let Some(least) = direct.map(|(set, _)| set.len()).min() {
        sets.retain(|(set, found)| *found == Use::Direct || write && set.len() < least);
    }
    if write && sets.iter().any(|(set, _)| !is_whole(*set)) {
        sets.retain(|(set, _)| !is_whole(*set));
    }
    let needs_all = |set: Symbols| !sets.iter().any(|(other, _)| *other != set && other.minus(set).is_empty());
    sets.iter().map(|(set, _)| *set).filter(|&set| needs_all(set)).collect()
}

/// The least cost over all choices of one set for each column.
fn least(columns: &[Column], sets: &[Vec<Symbols>], before: Symbols) -> Option<(u32, u64)> {
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

fn cost(plan: &Plan) -> (u32, u64) {
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

/// A request and the cached chunks.
#[derive(Debug, Clone, Default)]
struct Case {
    spans: Vec<Span>,
    kept: Vec<Span>,
    cached: Vec<ChunkTransfer>,
}

fn check_against_search(code: Code, case: &Case, health: &StripeHealth, write: bool) {
    let Case { spans, kept, cached } = case;
    let plan = match write {
        true => plan_write(code, spans, kept, cached, health),
        false => plan_read(code, spans, cached, health),
    };
    let mut columns = cut(spans, kept, cached);
    for column in &mut columns {
        column.kept = column.kept.minus(health.absent).minus(health.unreadable.minus(column.cached));
    }
    let sets: Vec<_> = columns.iter().map(|column| sufficient_sets(code, column, health, write)).collect();
    let searched = least(&columns, &sets, Symbols::EMPTY);
    assert_eq!(plan.as_ref().ok().map(cost), searched, "{code:?} {case:?} {health:?} write={write} {plan:?}");
    for (column, sets) in plan.iter().flat_map(|plan| &plan.columns).zip(&sets) {
        assert!(sets.contains(&column.reads()), "{column:?} reads what it needs and no more: {sets:?}");
        let at_hand = column.reads().union(column.cached);
        assert!(column.uses.minus(at_hand).is_empty(), "{column:?} uses only what is cached or read");
    }
}

/// Whether a run that has to be short asks for smaller stripes (`cargo xtask quick`).
fn fewer_cases() -> bool {
    std::env::var_os("MDSPACE_FEWER_CASES").is_some()
}

#[test]
fn every_contiguous_request_on_small_stripes_costs_the_least_a_search_finds() {
    for parities in 1..=2_u16 {
        for data in 1..=if fewer_cases() { 3 } else { 4_u16 } {
            let code = Code { data, parities };
            let roles: Vec<Role> = code.all_data().union(code.all_parities()).iter().collect();
            let mut losses = vec![Symbols::EMPTY];
            for (number, &role) in roles.iter().enumerate() {
                losses.push(Symbols::of(role));
                losses.extend(roles[..number].iter().map(|&other| Symbols::of(role).with(other)));
            }
            for &unreadable in &losses {
                for absent in [Symbols::EMPTY, unreadable] {
                    let health = StripeHealth { unreadable, absent, parity_trusted: true };
                    let end = u64::from(data) * CHUNK;
                    for start in (0..end).step_by(2) {
                        for end in (start + 2..=end).step_by(2) {
                            for write in [false, true] {
                                let case = Case { spans: spans_of(start..end), ..Case::default() };
                                check_against_search(code, &case, &health, write);
                            }
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn the_plan_for_every_set_of_cached_chunks_costs_the_least_a_search_finds() {
    let shapes = [(1, 1), (2, 1), (1, 2), (3, 1), (2, 2), (3, 2)];
    for (data, parities) in shapes.into_iter().take(if fewer_cases() { 4 } else { shapes.len() }) {
        let code = Code { data, parities };
        let roles: Vec<Role> = code.all_data().union(code.all_parities()).iter().collect();
        let subsets =
            |mask: u32| -> Symbols { (0..roles.len()).filter(|i| mask >> i & 1 == 1).map(|i| roles[i]).collect() };
        let few = |set: &Symbols| set.len() <= parities.into();
        for unreadable in (0..1_u32 << roles.len()).map(subsets).filter(few) {
            for cached in (0..1_u32 << roles.len()).map(subsets) {
                let cached = cached.iter().map(|role| ChunkTransfer { role, within: 0..8 }).collect::<Vec<_>>();
                for asked in 1..1_u16 << data {
                    let asked = (0..data).filter(|index| asked >> index & 1 == 1);
                    let spans: Vec<_> = asked.map(|data| Span { data, within: 2..4 }).collect();
                    let kept = spans.iter().map(|span| Span { within: 4..6, ..*span }).collect();
                    let case = Case { spans, kept, cached: cached.clone() };
                    let health = StripeHealth { unreadable, absent: Symbols::EMPTY, parity_trusted: true };
                    check_against_search(code, &case, &health, true);
                    check_against_search(code, &case, &StripeHealth { absent: unreadable, ..health }, true);
                    check_against_search(code, &Case { kept: Vec::new(), ..case }, &health, false);
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
        kept in prop::collection::vec((0..6_u32, 1..4_u32), 0..4),
        cached in prop::collection::vec((0..6_usize, 0..6_u32, 1..8_u32), 0..6),
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
        // The rest of a unit lies on both sides of the written range.
        let kept = kept.iter().zip(&spans).flat_map(|(&(before, after), span)| {
            let Range { start, end } = span.within;
            [start.saturating_sub(before)..start, end..end + after].map(|within| Span { within, ..*span })
        });
        let kept = kept.filter(|span| write && !span.within.is_empty()).collect();
        let cached = cached.iter().filter_map(|&(index, start, length)| {
            Some(ChunkTransfer { role: *roles.get(index)?, within: start..start + length })
        });
        let case = Case { spans, kept, cached: cached.collect() };
        let unreadable: Symbols = lost.iter().filter_map(|&index| roles.get(index)).copied().collect();
        let absent = if gone { unreadable } else { Symbols::EMPTY };
        check_against_search(code, &case, &StripeHealth { unreadable, absent, parity_trusted: true }, write);
    }
}

#[test]
fn the_plan_of_a_single_span_equals_the_choice_among_candidates() {
    let check = |code: Code, data: u16, cached: &[ChunkTransfer]| {
        let span = [Span { data, within: 3..5 }];
        let short = plan_write(code, &span, &[], cached, &StripeHealth::GOOD);
        assert_eq!(short, plan_any_write(code, &span, &[], cached, &StripeHealth::GOOD), "{code:?} {data} {cached:?}");
        let plan = short.expect("every chunk is there");
        match (SingleSpan::new(code, &span[0], cached, Tie::Reconstruct), &plan.columns[..]) {
            (Some(single), [column]) => assert_eq!(
                (&column.method, &column.within, column.uses, column.reads()),
                (&single.method, &span[0].within, single.uses, single.uses.minus(single.in_memory)),
                "{code:?} {data} {cached:?}"
            ),
            (single, _) => {
                assert!(single.is_none(), "{code:?} {data} {cached:?}");
                assert!(!cached.is_empty(), "{code:?} {data}: only cached chunks can solve for less");
            }
        }
    };
    for parities in 1..=2 {
        for data in (1..=12).chain([31, DATA_CHUNKS_MAX]) {
            let code = Code { data, parities };
            [0, data / 2, data - 1].into_iter().for_each(|index| check(code, index, &[]));
        }
        for code in (1..=6).map(|data| Code { data, parities }) {
            let roles: Vec<Role> = code.all_data().union(code.all_parities()).iter().collect();
            for in_memory in 0..1_u32 << roles.len() {
                let roles = roles.iter().enumerate().filter(|(index, _)| in_memory >> index & 1 == 1);
                // The whole span, more than it, the range beside it, and a part that cuts columns.
                for within in [3..5, 0..8, 5..6, 4..5] {
                    let cached: Vec<_> =
                        roles.clone().map(|(_, &role)| ChunkTransfer { role, within: within.clone() }).collect();
                    [0, code.data - 1].into_iter().for_each(|index| check(code, index, &cached));
                }
            }
        }
    }
}

/// Read-modify-write would continue the transfers of the adjacent columns, and read
/// as much as the whole stripe in this one.
#[test]
fn a_whole_stripe_is_not_read_to_save_a_transfer() {
    let code = Code { data: 4, parities: 1 };
    let spans = [(0, 2..4), (1, 1..4), (2, 2..5)].map(|(data, within)| Span { data, within }).to_vec();
    check_against_search(code, &Case { spans, ..Case::default() }, &StripeHealth::GOOD, true);
}

#[test]
fn the_plans_for_typical_requests_are_those_of_md() {
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
        let plan = plan_write(code, spans, &[], &[], &StripeHealth::GOOD).expect("healthy");
        assert_eq!((plan.reads.len(), plan.writes.len()), (reads, writes), "{code:?} {spans:?}");
    }
}

#[test]
fn untrusted_parity_is_recomputed_and_never_solved_from() {
    let code = Code { data: 4, parities: 1 };
    let spans = [Span { data: 0, within: 0..4 }];
    let untrusted = StripeHealth { parity_trusted: false, ..StripeHealth::GOOD };
    let plan = plan_write(code, &spans, &[], &[], &untrusted).expect("healthy");
    assert_eq!(plan.columns[0].method, Method::Reconstruct);
    let lost = Symbols::of(Role::Data(0));
    let degraded = StripeHealth { unreadable: lost, absent: lost, parity_trusted: false };
    assert_eq!(plan_read(code, &spans, &[], &degraded), Err(Unrecoverable));
}
