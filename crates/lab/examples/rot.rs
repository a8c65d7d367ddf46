//! Prints the table of `mdspace lab rot` for a chosen number of cases of each kind.
//!
//! `cargo run --profile swarm -p mdspace-lab --example rot -- 3125` plays 100,000 cases with checksums.

use mdspace_lab::measure_rot;

fn main() {
    let cases = std::env::args().nth(1).and_then(|cases| cases.parse().ok());
    let Some(cases) = cases else {
        eprintln!("rot CASES");
        std::process::exit(2);
    };
    print!("{}", measure_rot(cases).text());
}
