//! Every kernel of the table against the oracle. Each routine runs at lengths around every register and span
//! boundary, at all kinds of alignment, and for every loss of one or two blocks of a stripe.

use crate::common::{Fenced, kernels_that_run, noise, slow_combine, slow_mul, slow_pow2, slow_symbol};
use mdspace_parity::{Kernel, Symbol, UnknownOrUnsupported, gf, kernels, recovery};
use proptest::prelude::*;

/// Lengths around registers of 16, 32 and 64 bytes and spans of up to eight of them, and all small ones.
fn lengths() -> Vec<usize> {
    let boundaries = [96, 128, 192, 256, 320, 512, 768, 1024, 4096];
    (0..=66).chain(boundaries.into_iter().flat_map(|bytes| [bytes - 1, bytes, bytes + 1])).collect()
}

/// The alignments of one computation's blocks: all aligned, all equal, all different.
const ALIGNMENTS: [fn(usize) -> usize; 4] = [|_| 0, |_| 1, |k| k * 16, |k| k * 7 + 3];

#[test]
fn the_kernels_required_by_the_environment_ran() {
    let names: Vec<_> = kernels_that_run().iter().map(|kernel| kernel.name()).collect();
    assert!(names.contains(&"portable"));
    assert_eq!(Kernel::best().name(), names[0], "the default is the first that runs");
}

#[test]
fn the_oracle_knows_the_published_powers_of_two() {
    // H. P. Anvin, "The mathematics of RAID-6", the powers of {02}.
    let published = [1, 2, 4, 8, 16, 32, 64, 128, 0x1d, 0x3a, 0x74, 0xe8, 0xcd, 0x87, 0x13, 0x26];
    let computed: Vec<u8> = (0..16).map(slow_pow2).collect();
    assert_eq!(computed, published);
    assert_eq!((slow_pow2(254), slow_pow2(255)), (0x8e, 1));
}

#[test]
fn every_kernel_computes_what_the_md_driver_wrote() {
    // The first and the last bytes of P's and Q's members, as written by Linux 6.1. The four blocks are the first
    // stripe of a RAID-6 of six members, layout parity-last, chunk 4 KiB.
    let p_written = (0xf001_0102_fc0d_0000_3801_01ec_3603_0848_u128, 0x6cd1_4dc6_4041_888c_4035_2100_221f_14f0);
    let q_written = (0x5ede_0217_c5fe_432d_33b0_cc6d_a694_0ad7_u128, 0x4b7a_52d2_1f32_a678_d9d9_b727_7f13_fe5d);

    let byte = |k: usize, i: usize| (i * i * 7 + i * (k + 3) + k * 61 + ((i * (k + 5)) >> 3)) as u8;
    let blocks: [Vec<u8>; 4] = std::array::from_fn(|k| (0..4096).map(|i| byte(k, i)).collect());
    let data: Vec<&[u8]> = blocks.iter().map(|block| &block[..]).collect();
    let ends = |block: &[u8]| {
        let (first, last) = (block.first_chunk().expect("16 bytes"), block.last_chunk().expect("16 bytes"));
        (u128::from_be_bytes(*first), u128::from_be_bytes(*last))
    };
    for kernel in kernels_that_run() {
        let (mut p, mut q) = (vec![0; 4096], vec![0; 4096]);
        kernel.pq(&mut p, &mut q, &data);
        assert_eq!((ends(&p), ends(&q)), (p_written, q_written), "{kernel:?}");
    }
}

#[test]
fn the_field_agrees_with_the_oracle_on_all_pairs() {
    for a in 0..=255 {
        for b in 0..=255 {
            assert_eq!(gf::mul(a, b), slow_mul(a, b), "{a} * {b}");
        }
        assert_eq!(gf::pow2(a), slow_pow2(a), "2^{a}");
    }
}

#[test]
fn every_kernel_multiplies_every_byte_by_every_constant() {
    let bytes: Vec<u8> = (0..=255).collect();
    for kernel in kernels_that_run() {
        for constant in 0..=255 {
            let mut product = Fenced::new(&noise(256, 1), 0);
            kernel.combine(product.block_mut(), &[(constant, &bytes)]);
            let expected: Vec<u8> = bytes.iter().map(|&byte| slow_mul(constant, byte)).collect();
            product.assert_is(&expected, &format_args!("{kernel:?}, {constant}"));
        }
    }
}

#[test]
fn every_kernel_recovers_every_pair_of_lost_blocks_at_every_length_and_alignment() {
    let exponents = [0, 1, 2, 4, 9, 254]; // with gaps, as in the DDF layouts
    let symbols: Vec<_> = exponents.iter().map(|&e| Symbol::Data(e)).chain([Symbol::P, Symbol::Q]).collect();
    let kernels = kernels_that_run();
    for (bytes, misalignment) in lengths().into_iter().flat_map(|bytes| ALIGNMENTS.map(|alignment| (bytes, alignment)))
    {
        let data: Vec<_> = exponents.iter().map(|&e| (e, noise(bytes, e.into()))).collect();
        let blocks: Vec<_> = symbols.iter().map(|&symbol| slow_symbol(symbol, &data, bytes)).collect();
        let fenced: Vec<_> = blocks.iter().enumerate().map(|(k, block)| Fenced::new(block, misalignment(k))).collect();
        let sources = |lost: &[Symbol], wanted| -> Vec<(u8, &[u8])> {
            let terms = recovery(&exponents, lost, wanted).expect("two lost blocks can be reconstructed");
            let block = |symbol| fenced[symbols.iter().position(|&s| s == symbol).expect("in the stripe")].block();
            terms.into_iter().map(|(coefficient, symbol)| (coefficient, block(symbol))).collect()
        };
        for (i, j) in (0..symbols.len()).flat_map(|i| (i..symbols.len()).map(move |j| (i, j))) {
            let lost = [symbols[i], symbols[j]];
            let (first, second) = (sources(&lost, lost[0]), sources(&lost, lost[1]));
            for kernel in &kernels {
                let what = format!("{kernel:?}, {bytes} bytes, lost {lost:?}");
                let junk = noise(bytes, 99);
                let (mut a, mut b) = (Fenced::new(&junk, misalignment(8)), Fenced::new(&junk, misalignment(9)));
                kernel.combine(a.block_mut(), &first);
                a.assert_is(&blocks[i], &what);
                if i == j {
                    continue;
                }
                a.block_mut().copy_from_slice(&junk);
                let both: Vec<_> = first.iter().zip(&second).map(|(f, s)| ([f.0, s.0], f.1)).collect();
                kernel.combine_two([a.block_mut(), b.block_mut()], &both);
                a.assert_is(&blocks[i], &what);
                b.assert_is(&blocks[j], &what);
            }
        }
    }
}

#[test]
fn every_kernel_computes_p_and_q_at_every_length_and_alignment() {
    for (bytes, misalignment) in lengths().into_iter().flat_map(|bytes| ALIGNMENTS.map(|alignment| (bytes, alignment)))
    {
        for count in 0..=9 {
            let data: Vec<_> = (0..count).map(|k| (k, noise(bytes, k.into()))).collect();
            let fenced: Vec<_> =
                data.iter().map(|(k, block)| Fenced::new(block, misalignment(usize::from(*k) + 2))).collect();
            let sources: Vec<_> = fenced.iter().map(Fenced::block).collect();
            let expected = [Symbol::P, Symbol::Q].map(|symbol| slow_symbol(symbol, &data, bytes));
            for kernel in kernels_that_run() {
                let what = format!("{kernel:?}, {count} data blocks of {bytes} bytes");
                let junk = noise(bytes, 99);
                let (mut p, mut q) = (Fenced::new(&junk, misalignment(0)), Fenced::new(&junk, misalignment(1)));
                kernel.pq(p.block_mut(), q.block_mut(), &sources);
                p.assert_is(&expected[0], &format_args!("P of {what}"));
                q.assert_is(&expected[1], &format_args!("Q of {what}"));
                kernel.xor(q.block_mut(), &sources);
                q.assert_is(&expected[0], &format_args!("xor of {what}"));
            }
        }
    }
}

#[test]
fn p_and_q_of_the_widest_stripe_are_right() {
    let data: Vec<_> = (0..255).map(|k| (k, noise(100, k.into()))).collect();
    let sources: Vec<_> = data.iter().map(|(_, block)| &block[..]).collect();
    for kernel in kernels_that_run() {
        let (mut p, mut q) = ([1; 100], [2; 100]);
        kernel.pq(&mut p, &mut q, &sources);
        assert_eq!(p[..], slow_symbol(Symbol::P, &data, 100), "{kernel:?}");
        assert_eq!(q[..], slow_symbol(Symbol::Q, &data, 100), "{kernel:?}");
    }
}

/// Some terms of one length, with a preference for special coefficients.
fn terms() -> impl Strategy<Value = Vec<([u8; 2], Vec<u8>)>> {
    let coefficient = || prop_oneof![2 => Just(1), 1 => Just(0), 2 => any::<u8>()];
    (0usize..700, 0usize..12).prop_flat_map(move |(bytes, count)| {
        let source = prop::collection::vec(any::<u8>(), bytes);
        prop::collection::vec(([coefficient(), coefficient()], source), count)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn assigning_routines_add_to_what_is_there_and_the_others_replace_it(terms in terms(), shift in 0usize..64) {
        let bytes = terms.first().map_or(77, |(_, source)| source.len());
        let fenced: Vec<_> = terms.iter().enumerate().map(|(k, (_, block))| Fenced::new(block, shift * k)).collect();
        let sources: Vec<_> = fenced.iter().map(Fenced::block).collect();
        let pairs: Vec<_> = terms.iter().zip(&sources).map(|((c, _), &source)| (*c, source)).collect();
        let singles: Vec<_> = pairs.iter().map(|&(c, source)| (c[0], source)).collect();
        let before = [noise(bytes, 5), noise(bytes, 6)];
        let expected = |start: &[u8], coefficient: &dyn Fn(&[u8; 2]) -> u8| {
            let mut block = start.to_vec();
            slow_combine(&mut block, &terms.iter().map(|(c, s)| (coefficient(c), s.clone())).collect::<Vec<_>>());
            block
        };
        let zeros = vec![0; bytes];
        for kernel in kernels_that_run() {
            let fresh = || [Fenced::new(&before[0], shift), Fenced::new(&before[1], shift + 9)];

            let [mut a, _] = fresh();
            kernel.xor_assign(a.block_mut(), &sources);
            a.assert_is(&expected(&before[0], &|_| 1), &"xor_assign");
            kernel.xor(a.block_mut(), &sources);
            a.assert_is(&expected(&zeros, &|_| 1), &"xor");

            let [mut a, _] = fresh();
            kernel.combine_assign(a.block_mut(), &singles);
            a.assert_is(&expected(&before[0], &|c| c[0]), &"combine_assign");
            kernel.combine(a.block_mut(), &singles);
            a.assert_is(&expected(&zeros, &|c| c[0]), &"combine");

            let [mut a, mut b] = fresh();
            kernel.combine_two_assign([a.block_mut(), b.block_mut()], &pairs);
            a.assert_is(&expected(&before[0], &|c| c[0]), &"combine_two_assign, first");
            b.assert_is(&expected(&before[1], &|c| c[1]), &"combine_two_assign, second");
            kernel.combine_two([a.block_mut(), b.block_mut()], &pairs);
            a.assert_is(&expected(&zeros, &|c| c[0]), &"combine_two, first");
            b.assert_is(&expected(&zeros, &|c| c[1]), &"combine_two, second");
        }
    }
}

#[test]
fn blocks_of_different_lengths_are_refused() {
    let panics = |f: fn(&Kernel, &mut [u8], &[u8])| {
        let kernel = Kernel::best();
        std::panic::catch_unwind(|| f(kernel, &mut [0; 8], &[0; 7])).is_err()
    };
    assert!(panics(|kernel, target, source| kernel.xor(target, &[source])));
    assert!(panics(|kernel, target, source| kernel.xor_assign(target, &[source])));
    assert!(panics(|kernel, target, source| kernel.pq(target, &mut [0; 8], &[source])));
    assert!(panics(|kernel, target, _| kernel.pq(target, &mut [0; 7], &[])));
    assert!(panics(|kernel, target, source| kernel.combine(target, &[(1, source)])));
    assert!(panics(|kernel, target, source| kernel.combine_assign(target, &[(1, source)])));
    assert!(panics(|kernel, target, source| kernel.combine_two([target, &mut [0; 8]], &[([1, 1], source)])));
    assert!(panics(|kernel, target, _| kernel.combine_two_assign([target, &mut [0; 7]], &[])));
}

#[test]
fn kernels_are_found_by_name_and_errors_list_what_there_is() {
    for kernel in kernels() {
        match Kernel::by_name(kernel.name()) {
            Ok(found) => assert!(kernel.is_supported() && found.name() == kernel.name()),
            Err(error) => {
                assert!(!kernel.is_supported());
                assert_eq!(error, UnknownOrUnsupported::Unsupported(kernel.name()));
                let listed = |kernel: &&Kernel| error.to_string().split([' ', ',']).any(|word| word == kernel.name());
                assert!(
                    kernels().iter().filter(|kernel| kernel.is_supported()).all(|kernel| listed(&kernel)),
                    "{error}"
                );
            }
        }
    }
    let error = Kernel::by_name("mmx").expect_err("there is none");
    assert_eq!(error, UnknownOrUnsupported::Unknown("mmx".to_owned()));
    assert!(kernels().iter().all(|kernel| error.to_string().contains(kernel.name())), "{error}");
}
