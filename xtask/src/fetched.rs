//! Programs that are taken out of Debian packages which are not installed: fetched below `target/`.
//!
//! promtool checks metrics and alert rules. Debian's package of it is that of Prometheus's server, and installing that
//! would start a server. cbindgen makes the C library's header; another version would word the header differently, so
//! it is always the one of this suite.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::steps::Log;
use crate::{apt, root, setup};

/// The suite, which is that of CI's system.
const SOURCE: &str = "bookworm main";

/// A program, its package, and whether one in `PATH` will do.
pub(crate) struct Program {
    name: &'static str,
    package: &'static str,
    any_version: bool,
}

pub(crate) const PROMTOOL: Program = Program { name: "promtool", package: "prometheus", any_version: true };
pub(crate) const CBINDGEN: Program = Program { name: "cbindgen", package: "cbindgen", any_version: false };

impl Program {
    fn place(&self) -> PathBuf {
        root().join("target").join(self.name)
    }

    /// The program: one in `PATH` if that will do, or the fetched one.
    pub(crate) fn find(&self) -> Option<PathBuf> {
        let fetched = || Some(self.place().join(self.name)).filter(|program| program.is_file());
        if self.any_version && setup::is_there(self.name) { Some(self.name.into()) } else { fetched() }
    }

    /// Fetches it if necessary; returns a text about it.
    ///
    /// # Errors
    ///
    /// Never because it is not available: the text says so, and the step that needs it does not run.
    pub(crate) fn fetch(&self, log: &mut Log) -> Result<String> {
        if self.find().is_none()
            && let Err(error) = self.fetch_package(log)
        {
            log.write(&format!("{error:#}\n"))?;
            return Ok(format!("{} was not to be had: see the log", self.name));
        }
        Ok(self.name.into())
    }

    fn fetch_package(&self, log: &mut Log) -> Result<()> {
        let packages = apt::fetch(log, &self.place(), SOURCE, &[], &[self.package])?;
        let package = packages.first().context("apt-get downloads a package")?;
        let mut files = Command::new("dpkg-deb").arg("--fsys-tarfile").arg(package).stdout(Stdio::piped()).spawn()?;
        let archive = files.stdout.take().context("its output is a pipe")?;
        let fresh = self.place().join("fresh");
        let out = fs::File::create(&fresh)?;
        let path = format!("./usr/bin/{}", self.name);
        let taken = Command::new("tar").args(["x", "-O", &path]).stdin(archive).stdout(out).status()?;
        ensure!(files.wait()?.success() && taken.success(), "{path} is not in {}", package.display());
        fs::set_permissions(&fresh, fs::Permissions::from_mode(0o755))?;
        fs::remove_file(package)?;
        Ok(fs::rename(fresh, self.place().join(self.name))?) // last: what is there is complete
    }
}
