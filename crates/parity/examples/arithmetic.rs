//! Repeats one computation of one kernel, for tools that count instructions: `arithmetic KERNEL COMPUTATION TIMES`. The
//! difference between two numbers of times leaves out how the program starts. It measures and checks nothing itself.

use std::hint::black_box;

use mdspace_parity::{CRC_BLOCK_BYTES, Kernel, Symbol, crc32c, recovery};

/// Data blocks of the stripe, of 4 KiB each.
const DATA: usize = 8;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kernel, computation, times] = &arguments[..] else { panic!("usage: arithmetic KERNEL COMPUTATION TIMES") };
    let kernel = Kernel::by_name(kernel).unwrap_or_else(|error| panic!("{error}"));
    let blocks: Vec<Vec<u8>> = (0..DATA).map(|k| vec![k as u8; CRC_BLOCK_BYTES]).collect();
    let data: Vec<&[u8]> = blocks.iter().map(|block| &block[..]).collect();
    let (mut p, mut q) = (vec![0; CRC_BLOCK_BYTES], vec![0; CRC_BLOCK_BYTES]);

    let exponents: Vec<u8> = (0..DATA as u8).collect();
    let lost = [6, 7].map(Symbol::Data);
    let coefficients = lost.map(|wanted| recovery(&exponents, &lost, wanted).expect("two lost blocks"));
    let one: Vec<_> = data.iter().zip(&coefficients[0]).map(|(block, term)| (term.0, *block)).collect();
    let both: Vec<_> = one.iter().zip(&coefficients[1]).map(|((c, block), term)| ([*c, term.0], *block)).collect();

    for _ in 0..times.parse().expect("a number of times") {
        match computation.as_str() {
            "xor" => kernel.xor(&mut p, black_box(&data)),
            "pq" => kernel.pq(&mut p, &mut q, black_box(&data)),
            "one-lost" => kernel.combine(&mut p, black_box(&one)),
            "both-lost" => kernel.combine_two([&mut p, &mut q], black_box(&both)),
            "crc" => data.iter().for_each(|block| {
                black_box(crc32c(black_box(block)));
            }),
            other => panic!("no computation {other}: xor, pq, one-lost, both-lost, crc"),
        }
        black_box((&p, &q));
    }
}
