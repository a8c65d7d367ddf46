//! The command `mdspace`.
fn main() {}
