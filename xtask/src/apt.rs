//! Packages fetched by apt-get into a directory below `target/`. apt-get checks their signatures. Its lists and cache are
//! in that directory, so nothing is installed, and nothing on the machine changes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::steps::Log;

/// Replaces `place` by a directory with these packages, as files. The source is a suite of Debian's archive with its
/// components, such as `trixie main`. Without architectures, the packages are for this machine.
pub(crate) fn fetch(
    log: &mut Log,
    place: &Path,
    source: &str,
    architectures: &[&str],
    packages: &[&str],
) -> Result<Vec<PathBuf>> {
    if place.exists() {
        fs::remove_dir_all(place)?; // an interrupted attempt, or another version
    }
    fs::create_dir_all(place.join("lists/partial"))?;
    fs::create_dir_all(place.join("cache/archives/partial"))?;
    let keys = "/usr/share/keyrings/debian-archive-keyring.gpg";
    fs::write(place.join("sources.list"), format!("deb [signed-by={keys}] http://deb.debian.org/debian {source}\n"))?;
    let apt_get = |words: &[&str]| {
        let mut command = Command::new("apt-get");
        command.current_dir(place).args(["-q", "-o", "Dir::Etc::SourceParts=/dev/null"]);
        command.args(["-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=20"]);
        for (option, name) in
            [("Dir::Etc::SourceList", "sources.list"), ("Dir::State::Lists", "lists"), ("Dir::Cache", "cache")]
        {
            command.arg("-o").arg(format!("{option}={}", place.join(name).display()));
        }
        // What is installed does not count: it may be newer than the suite.
        command.args(["-o", "Dir::State::status=/dev/null"]);
        for architecture in architectures {
            command.arg("-o").arg(format!("APT::Architectures::={architecture}"));
        }
        command.args(words);
        command
    };
    log.run(&mut apt_get(&["update"]))?;
    log.run(apt_get(&["download"]).args(packages))?;
    for done in ["lists", "cache"] {
        fs::remove_dir_all(place.join(done))?;
    }
    let mut fetched = Vec::new();
    for entry in fs::read_dir(place)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            fetched.push(path);
        }
    }
    Ok(fetched)
}
