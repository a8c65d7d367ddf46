//! promtool, which checks metrics and alert rules.
//!
//! Debian's package of it is that of Prometheus's server, and installing that would start a server. So the package is
//! fetched below `target/`, and this one program is taken out of it.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::steps::Log;
use crate::{apt, root, setup};

const NAME: &str = "promtool";
const PACKAGE: &str = "prometheus";
const SOURCE: &str = "bookworm main";
/// Its path in the package.
const PATH: &str = "./usr/bin/promtool";

fn place() -> PathBuf {
    root().join("target/promtool")
}

/// The program: one in `PATH`, or the fetched one.
pub(crate) fn find() -> Option<PathBuf> {
    let fetched = || Some(place().join(NAME)).filter(|program| program.is_file());
    if setup::is_there(NAME) { Some(NAME.into()) } else { fetched() }
}

/// Fetches it if necessary; returns a text about it.
///
/// # Errors
///
/// Never because it is not available: the text says so, and the step that needs it does not run.
pub(crate) fn fetch(log: &mut Log) -> Result<String> {
    if find().is_none()
        && let Err(error) = fetch_package(log)
    {
        log.write(&format!("{error:#}\n"))?;
        return Ok("promtool was not to be had: see the log".into());
    }
    Ok("promtool".into())
}

fn fetch_package(log: &mut Log) -> Result<()> {
    let packages = apt::fetch(log, &place(), SOURCE, &[], &[PACKAGE])?;
    let package = packages.first().context("apt-get downloads a package")?;
    let mut files = Command::new("dpkg-deb").arg("--fsys-tarfile").arg(package).stdout(Stdio::piped()).spawn()?;
    let archive = files.stdout.take().context("its output is a pipe")?;
    let fresh = place().join("fresh");
    let out = fs::File::create(&fresh)?;
    let taken = Command::new("tar").args(["x", "-O", PATH]).stdin(archive).stdout(out).status()?;
    ensure!(files.wait()?.success() && taken.success(), "{} is not in {}", PATH, package.display());
    fs::set_permissions(&fresh, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    fs::remove_file(package)?;
    Ok(fs::rename(fresh, place().join(NAME))?) // last: what is there is complete
}
