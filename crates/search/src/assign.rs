//! Members to slots: the assignment of least cost, and those that are nearly as good.
//!
//! The Hungarian method, on a square matrix of whole numbers. Pure.

/// The assignment of least cost, and its cost: for each row its column.
pub(crate) fn assign(cost: &[Vec<u64>]) -> (Vec<usize>, u64) {
    let n = cost.len();
    // Potentials of rows and columns, and the row of each column; column 0 and row 0 are auxiliary.
    let (mut u, mut v) = (vec![0_i64; n + 1], vec![0_i64; n + 1]);
    let mut row_of = vec![0; n + 1];
    for row in 1..=n {
        row_of[0] = row;
        let mut column = 0;
        let (mut least, mut way, mut used) = (vec![i64::MAX; n + 1], vec![0; n + 1], vec![false; n + 1]);
        while row_of[column] != 0 {
            used[column] = true;
            let from = row_of[column];
            let (mut delta, mut next) = (i64::MAX, 0);
            for other in (1..=n).filter(|other| !used[*other]) {
                let reduced = cost[from - 1][other - 1] as i64 - u[from] - v[other];
                if reduced < least[other] {
                    (least[other], way[other]) = (reduced, column);
                }
                if least[other] < delta {
                    (delta, next) = (least[other], other);
                }
            }
            for other in 0..=n {
                if used[other] {
                    u[row_of[other]] += delta;
                    v[other] -= delta;
                } else {
                    least[other] -= delta;
                }
            }
            column = next;
        }
        while column != 0 {
            row_of[column] = row_of[way[column]];
            column = way[column];
        }
    }
    let mut columns = vec![0; n];
    for column in 1..=n {
        columns[row_of[column] - 1] = column - 1;
    }
    let total = columns.iter().enumerate().map(|(row, column)| cost[row][*column]).sum();
    (columns, total)
}

/// A cost that no assignment should have.
pub(crate) const FORBIDDEN: u64 = 1 << 50;

/// Assignments that are listed, at most.
const EQUALS_MAX: usize = 150;

/// The assignments that cost at most `more` than the best, as many as are listed, with the best first; and for each pair of
/// the best one the best without that pair.
pub(crate) fn near_best(cost: &[Vec<u64>], more: u64) -> Vec<(Vec<usize>, u64)> {
    let mut found = best_without_each_pair(cost);
    let most = found[0].1 + more;
    if found.iter().filter(|(_, total)| *total <= most).count() > 1 {
        let equals = in_order(cost, most, EQUALS_MAX);
        found.retain(|other| !equals.contains(other));
        found = [equals, found].concat();
    }
    found
}

/// An assignment that is the best of those in which the rows before `fixed` have its columns.
struct Best {
    cost: Vec<Vec<u64>>,
    fixed: usize,
    columns: Vec<usize>,
    total: u64,
}

/// The assignments that cost at most `most`, the best first, and at most `count`: Murty's method. What is left after each is
/// split by the first row in which it differs.
fn in_order(cost: &[Vec<u64>], most: u64, count: usize) -> Vec<(Vec<usize>, u64)> {
    let best = |cost: Vec<Vec<u64>>, fixed: usize| {
        let (columns, total) = assign(&cost);
        Best { cost, fixed, columns, total }
    };
    let mut open = vec![best(cost.to_vec(), 0)];
    let mut found = Vec::new();
    while let Some(next) = open.iter().enumerate().min_by_key(|(_, best)| best.total).map(|(index, _)| index) {
        let Best { mut cost, fixed, columns, total } = open.swap_remove(next);
        if total > most || found.len() == count {
            break;
        }
        for row in fixed..cost.len() {
            let column = columns[row];
            let mut other = cost.clone();
            other[row][column] = FORBIDDEN;
            open.push(best(other, row));
            // The rows behind it are split with this pair.
            (0..cost.len()).filter(|own| *own != column).for_each(|own| cost[row][own] = FORBIDDEN);
        }
        open.retain(|best| best.total <= most);
        found.push((columns, total));
    }
    found
}

/// The best assignment, and for each of its pairs the best one without that pair.
fn best_without_each_pair(cost: &[Vec<u64>]) -> Vec<(Vec<usize>, u64)> {
    let best = assign(cost);
    let mut found = vec![best.clone()];
    for (row, column) in best.0.iter().enumerate() {
        let mut without = cost.to_vec();
        without[row][*column] = FORBIDDEN;
        let other = assign(&without);
        if other.1 < FORBIDDEN && !found.iter().any(|(columns, _)| *columns == other.0) {
            found.push(other);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every permutation of `0..n`.
    fn permutations(n: usize) -> Vec<Vec<usize>> {
        if n == 0 {
            return vec![Vec::new()];
        }
        let longer = |short: Vec<usize>| {
            (0..n).map(move |at| {
                let mut long = short.clone();
                long.insert(at, n - 1);
                long
            })
        };
        permutations(n - 1).into_iter().flat_map(longer).collect()
    }

    #[test]
    fn the_best_assignment_and_the_second_are_those_of_a_search_over_all() {
        let mut numbers = crate::memory::numbers(1);
        let mut random = || numbers() % 9;
        for n in 1..=5 {
            for _ in 0..100 {
                let cost: Vec<Vec<u64>> = (0..n).map(|_| (0..n).map(|_| random()).collect()).collect();
                let of = |columns: &[usize]| columns.iter().enumerate().map(|(row, column)| cost[row][*column]).sum();
                let mut all: Vec<u64> = permutations(n).iter().map(|columns| of(columns)).collect();
                all.sort_unstable();
                let (columns, total) = assign(&cost);
                assert_eq!((total, of(&columns)), (all[0], all[0]));
                let near = near_best(&cost, 0);
                let second = near[1..].iter().map(|(_, total)| *total).min();
                assert_eq!(second, all.get(1).copied(), "{cost:?}");
                let more = random();
                let is_near = |total: &u64| *total <= all[0] + more;
                let expected: Vec<u64> = all.iter().copied().filter(is_near).take(EQUALS_MAX).collect();
                let near = near_best(&cost, more);
                let found: Vec<u64> = near.iter().map(|(_, total)| *total).filter(is_near).collect();
                assert_eq!(found, expected, "{cost:?}");
                let different: std::collections::HashSet<_> = near.iter().map(|(columns, _)| columns).collect();
                assert_eq!(different.len(), near.len(), "{cost:?}");
            }
        }
    }
}
