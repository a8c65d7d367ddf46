//! The choice of coefficients, on stripes of single bytes.

use crate::common::{noise, slow_mul, slow_symbol};
use mdspace_parity::{Symbol, recovery};

use Symbol::{Data, P, Q};

fn symbols(data: &[u8]) -> Vec<Symbol> {
    data.iter().map(|&exponent| Data(exponent)).chain([P, Q]).collect()
}

/// All cases of one wanted symbol and at most one other lost symbol.
fn cases(data: &[u8]) -> Vec<(Symbol, Vec<Symbol>)> {
    let symbols = symbols(data);
    let others = |wanted| symbols.iter().copied().filter(move |&symbol| symbol != wanted);
    let lost = |wanted| [vec![], vec![wanted]].into_iter().chain(others(wanted).map(move |other| vec![other, wanted]));
    symbols.iter().flat_map(|&wanted| lost(wanted).map(move |lost| (wanted, lost))).collect()
}

#[test]
fn every_symbol_is_computed_from_as_many_others_as_there_are_data_blocks() {
    let narrow = (1..=9).map(|count| (0..count).collect());
    for data in narrow.chain([vec![0, 3, 254], (0..40).collect()]) {
        let data: Vec<u8> = data;
        let bytes: Vec<_> = data.iter().map(|&exponent| (exponent, noise(1, exponent.into()))).collect();
        let value = |symbol| slow_symbol(symbol, &bytes, 1)[0];
        for (wanted, lost) in cases(&data) {
            let terms = recovery(&data, &lost, wanted).expect("at most two are lost");
            let sum = terms.iter().fold(0, |sum, &(coefficient, symbol)| sum ^ slow_mul(coefficient, value(symbol)));
            assert_eq!(sum, value(wanted), "{wanted:?} of {data:?} without {lost:?}");
            assert_eq!(terms.len(), data.len(), "{wanted:?} of {data:?} without {lost:?}");
            let is_allowed = |symbol| symbol != wanted && !lost.contains(&symbol);
            assert!(terms.iter().all(|&(coefficient, symbol)| coefficient != 0 && is_allowed(symbol)));
        }
    }
}

#[test]
fn the_widest_stripe_has_255_data_blocks() {
    let data: Vec<u8> = (0..255).collect();
    let bytes: Vec<_> = data.iter().map(|&exponent| (exponent, noise(1, exponent.into()))).collect();
    let values: Vec<u8> = symbols(&data).iter().map(|&symbol| slow_symbol(symbol, &bytes, 1)[0]).collect();
    let value = |symbol| match symbol {
        Data(exponent) => values[exponent as usize],
        P => values[255],
        Q => values[256],
    };
    for (x, y) in [(0, 254), (1, 2), (253, 254), (128, 7)] {
        for (lost, wanted) in [([Data(x), Data(y)], Data(y)), ([Data(x), P], Data(x)), ([Data(x), Q], Q)] {
            let terms = recovery(&data, &lost, wanted).expect("two are lost");
            let sum = terms.iter().fold(0, |sum, &(coefficient, symbol)| sum ^ slow_mul(coefficient, value(symbol)));
            assert_eq!(sum, value(wanted), "{wanted:?} without {lost:?}");
        }
    }
}

#[test]
fn with_p_alive_one_lost_block_is_a_plain_xor() {
    let data = [0, 1, 2, 5];
    for (lost, wanted) in [
        (vec![Data(2)], Data(2)),
        (vec![Data(2), Q], Data(2)),
        (vec![], Data(0)),
        (vec![P], P),
        (vec![P, Q], P),
        (vec![Q], P),
    ] {
        let terms = recovery(&data, &lost, wanted).expect("at most two are lost");
        assert!(terms.iter().all(|&(coefficient, symbol)| coefficient == 1 && symbol != Q), "{lost:?}: {terms:?}");
    }
}

#[test]
fn three_lost_blocks_are_beyond_recovery() {
    for (lost, wanted) in [
        (vec![Data(0), Data(1), Data(2)], Data(0)),
        (vec![Data(0), Data(1)], P),
        (vec![P, Q], Data(1)),
        (vec![Data(0), P, Q], Q),
    ] {
        assert_eq!(recovery(&[0, 1, 2], &lost, wanted), None, "{lost:?}, {wanted:?}");
    }
}

#[test]
fn naming_a_lost_block_twice_changes_nothing() {
    assert_eq!(recovery(&[0, 1, 2], &[Data(0), Q, Data(0), Q], Data(0)), recovery(&[0, 1, 2], &[Data(0), Q], Data(0)));
}

#[test]
fn what_is_not_a_stripe_is_refused() {
    let panics =
        |data: &[u8], lost: &[Symbol], wanted| std::panic::catch_unwind(|| recovery(data, lost, wanted)).is_err();
    assert!(panics(&[0, 255], &[], P), "2^255 is 2^0 again");
    assert!(panics(&[3, 4, 3], &[], P), "two blocks with one exponent cannot be told apart");
    assert!(panics(&[0, 1], &[Data(2)], P));
    assert!(panics(&[0, 1], &[], Data(9)));
}
