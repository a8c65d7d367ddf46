//! The command of a system's emulator: its kernel, and what its guest sees of the host.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::System;
use super::tree::Tree;
use crate::root;

/// The parameter of the kernel that names the workspace for the first root's script.
const WORKSPACE: &str = "mdspace_workspace=";

/// The words that start the emulator with `memory`, these disks, and further parameters of the kernel. The console is the
/// emulator's standard output.
///
/// # Errors
///
/// The system was not fetched.
pub(crate) fn emulator(
    system: System,
    memory: &str,
    disks: &[PathBuf],
    parameters: &[OsString],
) -> Result<Vec<OsString>> {
    let (facts, tree) = (system.facts(), Tree::of(system)?);
    let mut words: Vec<OsString> = facts.emulator.iter().map(OsString::from).collect();
    words.extend(["-accel", "tcg,thread=multi", "-smp", "2", "-m", memory].map(OsString::from));
    words.extend(["-nodefaults", "-display", "none", "-serial", "stdio", "-no-reboot"].map(OsString::from));
    for (tag, path, rest) in [("root", tree.path.as_path(), ",readonly=on"), ("workspace", root(), "")] {
        words.push("-virtfs".into());
        words.push(option("local,path=", path, &format!(",mount_tag={tag},security_model=none,multidevs=remap{rest}")));
    }
    for disk in disks {
        words.push("-drive".into());
        words.push(option("format=raw,if=virtio,cache=unsafe,file=", disk, ""));
    }
    words.extend([
        "-kernel".into(),
        tree.kernel().into(),
        "-initrd".into(),
        tree.first_root().into(),
        "-append".into(),
    ]);
    let mut line = option(&format!("console={} quiet panic=-1 {WORKSPACE}", facts.console), root(), "");
    line.push(" mdspace_modules=/usr/lib/modules");
    for parameter in parameters {
        line.push(" ");
        line.push(parameter);
    }
    words.push(line);
    Ok(words)
}

fn option(before: &str, path: &Path, after: &str) -> OsString {
    let mut word = OsString::from(before);
    word.push(path);
    word.push(after);
    word
}
