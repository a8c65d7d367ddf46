//! Links the command of unoptimized builds to a fixed address.
//!
//! Otherwise each start relocates 137,000 addresses on 350 pages, each with a page fault. That takes longer than
//! everything else at the start, above all in a guest (xtask/src/guest.rs).

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|it| it == value);
    if is("PROFILE", "debug") && is("CARGO_CFG_TARGET_ENV", "gnu") {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}
