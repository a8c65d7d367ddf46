//! Links the command of unoptimized builds to a fixed address. Otherwise 137,000 addresses are relocated whenever it starts,
//! on 350 pages, each a page fault: longer than all else it does at its start, above all in a guest (xtask/src/guest.rs).

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|it| it == value);
    if is("PROFILE", "debug") && is("CARGO_CFG_TARGET_ENV", "gnu") {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}
