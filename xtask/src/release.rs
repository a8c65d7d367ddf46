//! Steps that check whether a release can be made: packages, the oldest supported Rust, and dependencies.
//!
//! If a step cannot do everything, its line says so. Nothing is published here; docs/releasing.md describes how that is
//! done.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::catalogue::cargo;
use crate::steps::{Log, Verdict};
use crate::{root, setup};

/// What all trials of a publication have in common: the registry is asked, and nothing is uploaded.
const PUBLISH: [&str; 5] = ["publish", "--dry-run", "--workspace", "--locked", "--allow-dirty"];

/// What cargo prints when it cannot ask the registry.
const NO_REGISTRY: &str = "failed to download from";

/// Checks that the published crates could be published. Nothing is built, as other steps build the same sources.
pub(crate) fn crates(log: &mut Log) -> Result<Verdict> {
    let how = match log.run(cargo(&PUBLISH).arg("--no-verify")) {
        Ok(()) => "could be published",
        Err(error) => {
            ensure!(log.text()?.contains(NO_REGISTRY), "{error:#}");
            log.run(&mut cargo(&["package", "--locked", "--workspace", "--no-verify", "--allow-dirty", "--offline"]))?;
            "can be packaged; the registry could NOT be asked"
        }
    };
    Ok(Verdict::Passed(format!("{} crates {how}", packaged(log)?)))
}

/// The same, and each crate is built as those who download it build it: from its package, and those of our others.
pub(crate) fn crates_build(log: &mut Log) -> Result<Verdict> {
    log.run(&mut cargo(&PUBLISH))?;
    Ok(Verdict::Passed(format!("{} crates", packaged(log)?)))
}

/// The number of crates in the log that cargo has packaged.
fn packaged(log: &Log) -> Result<usize> {
    Ok(log.text()?.lines().filter(|line| line.trim_start().starts_with("Packaged ")).count())
}

/// The arguments of clippy for all targets. They are the same everywhere, so that its results are reused. One of its
/// warnings is about what the oldest supported Rust lacks.
pub(crate) const CLIPPY: &[&str] = &["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"];

/// Checks that everything compiles with the Rust version in Cargo.toml.
pub(crate) fn rust_version(log: &mut Log) -> Result<Verdict> {
    let promised = env!("CARGO_PKG_RUST_VERSION");
    let listed = Command::new("rustup").args(["toolchain", "list"]).output();
    let listed = listed.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let Some(toolchain) = toolchain_of(&listed, promised) else {
        log.run(&mut cargo(CLIPPY))?;
        return Ok(Verdict::Passed(format!(
            "by clippy's lint incompatible_msrv: Rust {promised} is not installed (rustup toolchain install {promised})"
        )));
    };
    let mut check = Command::new("rustup");
    check.args(["run", toolchain, "cargo", "check", "--locked", "--workspace", "--all-targets"]);
    check.args(["--target-dir", "target/rust-version"]).env_remove("RUSTC").env_remove("RUSTUP_TOOLCHAIN");
    log.run(&mut check)?;
    Ok(Verdict::Passed(format!("built by {toolchain}")))
}

/// The toolchain of this version in the output of `rustup toolchain list`.
fn toolchain_of<'a>(listed: &'a str, version: &str) -> Option<&'a str> {
    let names = listed.lines().filter_map(|line| line.split(' ').next());
    let of_version = |name: &&str| name.strip_prefix(version).is_some_and(|rest| rest.starts_with(['.', '-']));
    names.into_iter().find(of_version)
}

/// What cargo-deny prints when it can get the database of advisories neither from the network nor here.
const NO_NETWORK: &str = "failed to fetch advisory database";
const NO_DATABASE: &str = "failed to get HEAD timestamp";

/// Checks licences, sources and advisories of dependencies by cargo-deny, where it is installed.
pub(crate) fn dependencies(log: &mut Log) -> Result<Verdict> {
    if !setup::is_there("cargo-deny") {
        return Ok(Verdict::Passed(
            "licences by tidy alone, advisories NOT looked up: no cargo-deny (cargo install --locked cargo-deny)"
                .into(),
        ));
    }
    log.run(&mut cargo(&["deny", "--locked", "--offline", "check", "licenses", "bans", "sources"]))?;
    let advisories = look_up_advisories(log)?;
    Ok(Verdict::Passed(format!("licences, bans and sources by cargo-deny; {advisories}")))
}

/// Looks for advisories; without a network, in the database that was fetched last. Returns a text that says which it
/// was.
fn look_up_advisories(log: &mut Log) -> Result<&'static str> {
    let mut ask = |where_from: &[&str]| -> Result<(bool, String)> {
        let mut deny = cargo(&["deny", "--locked"]);
        deny.args(where_from).args(["check", "advisories"]).current_dir(root());
        let output = deny.output().context("cannot start cargo-deny")?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        log.write(&said)?;
        Ok((output.status.success(), said))
    };
    let (passed, said) = ask(&[])?;
    if passed {
        return Ok("advisories by today's database");
    }
    ensure!(said.contains(NO_NETWORK), "{said}");
    let (passed, said) = ask(&["--offline"])?;
    if passed {
        return Ok("advisories by the database that was fetched last, as the network is closed");
    }
    ensure!(said.contains(NO_DATABASE), "{said}");
    Ok("advisories NOT looked up: the network is closed, and no database was fetched before")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_toolchain_of_a_version_is_found_by_its_whole_numbers() {
        let listed = "stable-x86_64-unknown-linux-gnu (active, default)\n1.8.0-x86_64\n1.89.0-x86_64\n1.90-x86_64\n";
        assert_eq!(toolchain_of(listed, "1.89"), Some("1.89.0-x86_64"));
        assert_eq!(toolchain_of(listed, "1.90"), Some("1.90-x86_64"));
        assert_eq!(toolchain_of(listed, "1.91"), None);
        assert_eq!(toolchain_of("", "1.89"), None);
    }
}
