//! The step `newcomer`: from a bare Debian to the files of a NAS, to a served volume, and to a virtual machine that boots from
//! one, by the commands of docs/systems.md.
//!
//! The machine's own system is not touched: each bare system is a directory with its own root.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::catalogue::{self, Scratch};
use crate::guest::Guest;
use crate::steps::{Log, Verdict};
use crate::{package, root, setup};

/// What makes the package, the disks of a NAS, and a bare system.
pub(crate) const NEEDS: &[&str] =
    &["mmdebstrap", "dpkg-deb", "gzip", "groff", "linux.uml", "mdadm", "modprobe", "vgcreate", "sfdisk"];

/// The versions of Debian that have the C library of the package.
const SUITES: [&str; 2] = ["bookworm", "trixie"];

/// Goals that each of them reaches.
const GOALS: usize = 4;

pub(crate) fn run(log: &mut Log) -> Result<Verdict> {
    if !setup::is_root()? {
        return Ok(Verdict::Skipped("needs root, for a root directory of its own".into()));
    }
    catalogue::build_released(log)?;
    let made = package::make_of_release()?;
    let place = Scratch::create("newcomer")?;
    let guest = Guest::default().memory("768M").limit(Duration::from_secs(600));
    catalogue::run_guest(log, &guest, "disks.sh", &[place.path.as_os_str()])?;
    for suite in SUITES {
        let tried = place.path.join(suite);
        fs::create_dir(&tried)?;
        let mut newcomer = Command::new(root().join("tests/newcomer.sh"));
        log.run(newcomer.arg(suite).arg(&made.path).arg(place.path.join("disks")).arg(&tried))?;
        let text = log.text()?;
        let rows: Vec<&str> = text.lines().filter(|line| line.starts_with(&format!("| {suite} |"))).collect();
        ensure!(rows.len() == GOALS, "{} rows of {suite}: are there other goals now?", rows.len());
        println!("{}", rows.join("\n"));
    }
    Ok(Verdict::Passed(format!("in {}", SUITES.join(" and "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_what_the_script_types() {
        let read = |path: &str| fs::read_to_string(root().join(path)).expect("it is there");
        let page = read("docs/systems.md").replace(" \\\n   ", "");
        let script = read("tests/newcomer.sh");
        let typed: Vec<&str> =
            script.lines().filter_map(|line| line.strip_prefix("type \"")?.split('"').next()).collect();
        assert_eq!(typed.len(), 11, "{typed:?}");
        for command in typed {
            assert!(page.lines().any(|line| line == command), "not on the page: {command}");
        }
    }
}
