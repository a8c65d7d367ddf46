//! Other processors and systems: tests of the pure crates on an emulated aarch64, the command there, static commands, and
//! what only compiles (for FreeBSD the library in CI, for it and macOS the command in `long`).
//!
//! Nothing is installed here, and without the source of the standard library the steps are skipped. Each target has a row
//! in docs/systems.md, which a test below compares.

mod command;
mod instructions;
pub(crate) mod musl;
mod toolchain;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::catalogue::{cargo, run_tests_by};
use crate::root;
use crate::steps::{Log, Verdict};
use crate::systems::table::Record;

pub(crate) use command::run as use_command;
pub(crate) use toolchain::fetch;

/// The target whose tests run, in emulation.
const EMULATED: &str = AARCH64.triple;

/// A target for which programs are linked, by Debian's compiler of C for it.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    pub(crate) triple: &'static str,
    linker: &'static str,
}

pub(crate) const AARCH64: Target = Target { triple: "aarch64-unknown-linux-gnu", linker: LINKER };
pub(crate) const POWERPC64LE: Target =
    Target { triple: "powerpc64le-unknown-linux-gnu", linker: "powerpc64le-linux-gnu-gcc" };

/// A target for which crates are only compiled.
struct Compiled {
    triple: &'static str,
    /// Its place in the table.
    place: u8,
    system: &'static str,
    processor: &'static str,
    /// Whether the library and the command compile, not the pure crates alone.
    whole: bool,
}

const COMPILED: [Compiled; 5] = [
    pure("riscv64gc-unknown-linux-gnu", 6, "Linux", "riscv64"),
    pure("armv7-unknown-linux-gnueabihf", 6, "Linux", "32-bit ARM"),
    Compiled { whole: true, ..pure(FREEBSD, 7, "FreeBSD", "x86-64") },
    Compiled { whole: true, ..pure("aarch64-apple-darwin", 7, "macOS", "aarch64") },
    pure("x86_64-pc-windows-msvc", 7, "Windows", "x86-64"),
];

const fn pure(triple: &'static str, place: u8, system: &'static str, processor: &'static str) -> Compiled {
    Compiled { triple, place, system, processor, whole: false }
}

/// The other system for which CI compiles the library.
const FREEBSD: &str = "x86_64-unknown-freebsd";

/// The crates that know no system.
const PURE: [&str; 6] = ["-p", "mdspace-parity", "-p", "mdspace-format", "-p", "mdspace-engine"];

/// The library, and the crates below it.
const LIBRARY: [&str; 3] = ["-p", "mdspace", "--no-default-features"];

/// The command, also with the features that bring nothing on other systems than Linux. TLS needs their C headers.
const COMMAND: [&str; 5] = ["-p", "mdspace", "--no-default-features", "--features", "command,fuse,ublk,vhost-user"];

const LINKER: &str = "aarch64-linux-gnu-gcc";
pub(crate) const EMULATOR: &str = "qemu-aarch64-static";

/// Programs that build for the emulated processor and run what was built.
pub(crate) const NEEDS: &[&str] = &[LINKER, EMULATOR, C_LIBRARY];

/// The directory of the emulated processor's C library, and a file that shows that it is there.
const LIBRARIES: &str = "/usr/aarch64-linux-gnu";
pub(crate) const C_LIBRARY: &str = "/usr/aarch64-linux-gnu/lib/libc.so.6";

/// The step `cross`.
pub(crate) fn run(log: &mut Log) -> Result<Verdict> {
    let Some(compiler) = toolchain::make()? else { return Ok(Verdict::Skipped(NO_SOURCE.into())) };
    let passed = run_tests_by(log, tests(&compiler))?;
    log.run(counted(&compiler).args(["-p", "mdspace-parity", "--example", "arithmetic"]))?;
    let gains = instructions::count(log, &built("examples/arithmetic"))?;
    log.run(emulated(&compiler, "build").args(["-p", "mdspace"]))?;
    let command = command::run(log, &built("mdspace"))?;
    let tested = "emulated: the tests of `parity` (each kernel), `format` and `engine`; the command";
    let kernel = "none: system calls translated";
    Record::new("Debian's C library", kernel, "aarch64, pages of 4 KiB", EMULATED, tested).leave("5-cross")?;
    log.run(checked(&compiler, "target/cross", &[FREEBSD]).args(LIBRARY))?;
    Ok(Verdict::Passed(format!("{passed} tests on {EMULATED}; {command}; {gains}; the library compiles for {FREEBSD}")))
}

/// The step `systems`.
pub(crate) fn check(log: &mut Log) -> Result<Verdict> {
    let Some(compiler) = toolchain::make()? else { return Ok(Verdict::Skipped(NO_SOURCE.into())) };
    for (whole, crates) in [(false, &PURE[..]), (true, &COMMAND)] {
        let targets: Vec<&str> = COMPILED.iter().filter(|it| it.whole == whole).map(|it| it.triple).collect();
        log.run(checked(&compiler, "target/systems", &targets).args(crates))?;
    }
    for Compiled { triple, place, system, processor, whole } in COMPILED {
        let tested = if whole { "compiled: the library, and the command without TLS" } else { "compiled" };
        Record::new(system, "", processor, triple, tested).leave(&format!("{place}-{triple}"))?;
    }
    let names = COMPILED.map(|it| it.triple).join(", ");
    Ok(Verdict::Passed(format!("compiled only: {names}")))
}

pub(crate) const NO_SOURCE: &str =
    "no source of the standard library of this Rust, from rustup (rust-src) or Debian; see the step setup";

/// A command of cargo for these targets, with their standard libraries.
fn build(compiler: &Path, command: &str, place: &str, targets: &[&str]) -> Command {
    let mut cargo = cargo(&[command, "--locked", "-Zbuild-std=std,panic_unwind,panic_abort", "--target-dir", place]);
    for target in targets {
        cargo.args(["--target", target]);
    }
    // An unstable option, which the stable compiler takes by this variable. The project itself uses nothing unstable.
    cargo.env("RUSTC", compiler).env("RUSTC_BOOTSTRAP", "1");
    // Nothing here is debugged, and nothing is built a second time from changed source.
    cargo.env("CARGO_PROFILE_DEV_DEBUG", "none").env("CARGO_INCREMENTAL", "0");
    cargo
}

/// A check for these targets, which fails at a warning of a crate of ours: code that one system does not use, for example.
fn checked(compiler: &Path, place: &str, targets: &[&str]) -> Command {
    let mut cargo = build(compiler, "check", place, targets);
    cargo.arg("-Zwarnings").env("CARGO_BUILD_WARNINGS", "deny");
    cargo
}

/// A command of cargo for a target that links.
fn linked(compiler: &Path, command: &str, Target { triple, linker }: Target) -> Command {
    let mut cargo = build(compiler, command, "target/cross", &[triple]);
    let name = triple.replace('-', "_");
    cargo.env(format!("CARGO_TARGET_{}_LINKER", name.to_uppercase()), linker).env(format!("CC_{name}"), linker);
    cargo
}

/// A command of cargo for the emulated target.
fn emulated(compiler: &Path, command: &str) -> Command {
    let mut cargo = linked(compiler, command, AARCH64);
    let runner = format!("CARGO_TARGET_{}_RUNNER", EMULATED.replace('-', "_").to_uppercase());
    cargo.env(runner, EMULATOR).env("QEMU_LD_PREFIX", LIBRARIES);
    cargo
}

/// Builds the command for a target; returns its path. `None` if there is no source of the standard library.
pub(crate) fn build_command(log: &mut Log, target: Target) -> Result<Option<PathBuf>> {
    let Some(compiler) = toolchain::make()? else { return Ok(None) };
    log.run(linked(&compiler, "build", target).args(["-p", "mdspace"]))?;
    Ok(Some(built_for(target, "mdspace")))
}

/// The tests that run in emulation: all of the arithmetic, and fewer cases of what takes long.
fn tests(compiler: &Path) -> Command {
    let mut tests = emulated(compiler, "test");
    tests.arg("--no-fail-fast").args(PURE).args(["--lib", "--test", "parity"]);
    tests.env("MDSPACE_REQUIRE_KERNELS", "neon-sha3,neon,portable");
    tests.env("MDSPACE_FEWER_CASES", "1").env("PROPTEST_CASES", "32");
    tests
}

/// A build in the tests' profile, but as the release has the arithmetic: without checks for mistakes in its code.
fn counted(compiler: &Path) -> Command {
    let mut build = emulated(compiler, "build");
    for checks in ["debug-assertions", "overflow-checks"] {
        build.arg("--config").arg(format!("profile.dev.package.mdspace-parity.{checks}=false"));
    }
    build
}

/// A program of the dev profile for the emulated target.
fn built(name: &str) -> PathBuf {
    built_for(AARCH64, name)
}

fn built_for(target: Target, name: &str) -> PathBuf {
    root().join("target/cross").join(target.triple).join("debug").join(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_systems_says_what_these_steps_do() {
        let page = std::fs::read_to_string(root().join("docs/systems.md")).expect("the page is there");
        let row = |target: &str| {
            let rows = page.lines().filter(|line| line.starts_with('|') && line.contains(&format!("`{target}`")));
            let rows: Vec<_> = rows.collect();
            assert!(!rows.is_empty(), "{target} has a row");
            rows.join("\n")
        };
        assert!(row(EMULATED).contains("| emulated") && !row(EMULATED).contains("| run"), "{EMULATED}");
        let [native, other] = musl::MACHINES.map(|machine| row(machine.target));
        assert!(native.contains("| run: ") && other.contains("| emulated: "), "{native}\n{other}");
        for Compiled { triple, whole, .. } in COMPILED {
            let compiled = if whole { "| compiled: the library" } else { "| compiled |" };
            assert!(row(triple).contains(compiled), "{triple}");
        }
    }
}
