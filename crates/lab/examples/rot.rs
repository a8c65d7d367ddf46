//! The table of `mdspace lab rot`, with as many cases of each kind as are asked for.
//!
//! `cargo run --profile swarm -p mdspace-lab --example rot -- 3125` makes 100,000 with checksums.

use mdspace_lab::measure_rot;

fn main() {
    let cases = std::env::args().nth(1).and_then(|cases| cases.parse().ok());
    let Some(cases) = cases else {
        eprintln!("rot CASES");
        std::process::exit(2);
    };
    print!("{}", measure_rot(cases).text());
}
