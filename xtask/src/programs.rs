//! Programs in other languages: the C library's header is current, and the page about C and Python is true.
//!
//! The claims about the libraries themselves are tests of their crates (crates/c/tests, crates/python/tests). `long`
//! installs both by the commands of the page, which takes a build of the release. Packages of Python are fetched below
//! `target/` by pip, so nothing on the machine changes.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use crate::catalogue::{self, Scratch};
use crate::fetched::CBINDGEN;
use crate::root;
use crate::steps::{Log, Verdict};

/// Programs that build and run what the page has.
pub(crate) const NEEDS: &[&str] = &["cc", "make", "pkg-config", "readelf", "python3", "nbdkit", "nbdcopy"];

/// The packages of Python that the page's programs use, and where they are put.
const PACKAGES: &str = include_str!("../../tests/programs.txt");
const PLACE: &str = "target/python";

/// Fetches the packages if necessary; returns a text about them.
///
/// # Errors
///
/// Never because they are not available: the text says so, and the step that needs them does not run.
pub(crate) fn fetch(log: &mut Log) -> Result<String> {
    if !are_there()
        && let Err(error) = fetch_packages(log)
    {
        log.write(&format!("{error:#}\n"))?;
        return Ok("packages of Python were not to be had: see the log".into());
    }
    Ok("packages of Python".into())
}

/// Whether the packages of the list are there: it lies beside them.
fn are_there() -> bool {
    fs::read_to_string(root().join(PLACE).join("list")).is_ok_and(|list| list == PACKAGES)
}

fn fetch_packages(log: &mut Log) -> Result<()> {
    let (place, fresh) = (root().join(PLACE), root().join("target/python-fresh"));
    for old in [&place, &fresh] {
        if old.exists() {
            fs::remove_dir_all(old)?;
        }
    }
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--only-binary", ":all:", "--target"]).arg(&fresh);
    log.run(pip.args(PACKAGES.lines().filter(|line| !line.starts_with('#'))))?;
    fs::write(fresh.join("list"), PACKAGES)?;
    Ok(fs::rename(fresh, place)?) // last: what is there is complete
}

/// The header, which is in git so that no user of the library needs cbindgen.
const HEADER: &str = "crates/c/include/mdspace.h";

/// Checks the header, and runs the programs on the page with the library of the dev profile.
pub(crate) fn step(log: &mut Log) -> Result<Verdict> {
    let Some(cbindgen) = CBINDGEN.find() else {
        return Ok(Verdict::Skipped("cbindgen is not there; see the step setup".into()));
    };
    if !are_there() {
        return Ok(Verdict::Skipped("packages of Python are not there; see the step setup".into()));
    }
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
    let script = root().join("tests/programs.py");
    log.run(Command::new("python3").arg(script).arg(which).arg(place).env("PYTHONPATH", root().join(PLACE)))?;
    Ok(Verdict::Passed(log.last_line()?))
}
