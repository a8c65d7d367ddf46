//! Programs in other languages: the C library's header is current, and the page about it is true.
//!
//! The claims about the library itself are tests of its crate (crates/c/tests). `long` installs it by the commands of the
//! page, which takes a build of the release.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use crate::catalogue::{self, Scratch};
use crate::fetched::CBINDGEN;
use crate::root;
use crate::steps::{Log, Verdict};

/// Programs that build and run what the page has.
pub(crate) const NEEDS: &[&str] = &["cc", "make", "pkg-config", "readelf", "python3"];

/// The header, which is in git so that no user of the library needs cbindgen.
const HEADER: &str = "crates/c/include/mdspace.h";

/// Checks the header, and runs the programs on the page with the library of the dev profile.
pub(crate) fn step(log: &mut Log) -> Result<Verdict> {
    let Some(cbindgen) = CBINDGEN.find() else {
        return Ok(Verdict::Skipped("cbindgen is not there; see the step setup".into()));
    };
    let place = Scratch::create("programs")?;
    check_header(log, &cbindgen, &place.path)?;
    catalogue::build(log)?;
    run_page(log, &place.path, "dev")
}

/// Runs the page with the release, built and installed as the page says.
pub(crate) fn long(log: &mut Log) -> Result<Verdict> {
    catalogue::build(log)?;
    let place = Scratch::create("long-programs")?;
    run_page(log, &place.path, "release")
}

fn check_header(log: &mut Log, cbindgen: &Path, place: &Path) -> Result<()> {
    let fresh = place.join("mdspace.h");
    log.run(Command::new(cbindgen).args(["--quiet", "--output"]).arg(&fresh).arg(root().join("crates/c")))?;
    ensure!(
        fs::read(&fresh)? == fs::read(root().join(HEADER))?,
        "{HEADER} is not what cbindgen makes of crates/c/src; anew: make -C crates/c header CBINDGEN={}",
        cbindgen.display()
    );
    Ok(())
}

/// Runs the page, with libraries of the dev profile (`dev`), or with the release (`release`).
fn run_page(log: &mut Log, place: &Path, which: &str) -> Result<Verdict> {
    log.run(Command::new(root().join("tests/programs.py")).arg(which).arg(place))?;
    Ok(Verdict::Passed(log.last_line()?))
}
