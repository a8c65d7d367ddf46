//! Loop devices over files in memory, for measurements, with an optional limit of their speed.
//!
//! Without a limit the devices compete with what is measured for the processors. With a limit set by the block layer
//! they behave as drives: the program waits for them.
//!
//! Facts: losetup(8); `Documentation/admin-guide/cgroup-v1/blkio-controller.rst` and `cgroup-v2.rst` (`io.max`).

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The limit of a device's reads, and of its writes, per second.
pub(crate) const HELD_BYTES_PER_SECOND: u64 = 200_000_000;

/// Loop devices, which are detached at the end.
pub(crate) struct Loops {
    pub(crate) devices: Vec<PathBuf>,
    directory: tempfile::TempDir,
}

impl Loops {
    /// Attaches `count` devices of `bytes` each.
    ///
    /// # Errors
    ///
    /// There is no memory, or no permission.
    pub(crate) fn create(count: u16, bytes: u64) -> Result<Loops> {
        let directory = tempfile::tempdir_in("/dev/shm")?;
        let mut loops = Loops { devices: Vec::new(), directory };
        for number in 0..count {
            let file = loops.directory.path().join(format!("m{number}"));
            File::create(&file)?.set_len(bytes)?;
            let output = Command::new("losetup").args(["--find", "--show", "--direct-io=off"]).arg(&file).output()?;
            if !output.status.success() {
                bail!("losetup: {}", String::from_utf8_lossy(&output.stderr).trim());
            }
            loops.devices.push(Path::new(String::from_utf8(output.stdout)?.trim()).to_owned());
        }
        Ok(loops)
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        for device in &self.devices {
            // A device that stays attached is gone after the next boot.
            let _ = Command::new("losetup").arg("--detach").arg(device).status();
        }
    }
}

/// A control group that limits the speed of each device for its processes.
pub(crate) struct Held(PathBuf);

impl Held {
    /// # Errors
    ///
    /// The kernel cannot do it, or not here.
    pub(crate) fn start(loops: &Loops) -> Result<Held> {
        let unified = Path::new("/sys/fs/cgroup/cgroup.controllers");
        let is_unified =
            fs::read_to_string(unified).is_ok_and(|names| names.split_whitespace().any(|name| name == "io"));
        let parent = Path::new(if is_unified { "/sys/fs/cgroup" } else { "/sys/fs/cgroup/blkio" });
        let group = parent.join(format!("mdspace-figures-{}", std::process::id()));
        fs::create_dir(&group).with_context(|| format!("{}: no control group of block devices", group.display()))?;
        let held = Held(group);
        for device in &loops.devices {
            let name = device.file_name().context("a device has a name")?;
            let number = fs::read_to_string(Path::new("/sys/block").join(name).join("dev"))?;
            let (number, speed) = (number.trim(), HELD_BYTES_PER_SECOND);
            if is_unified {
                held.set("io.max", &format!("{number} rbps={speed} wbps={speed}"))?;
            } else {
                held.set("blkio.throttle.read_bps_device", &format!("{number} {speed}"))?;
                held.set("blkio.throttle.write_bps_device", &format!("{number} {speed}"))?;
            }
        }
        Ok(held)
    }

    fn set(&self, name: &str, value: &str) -> Result<()> {
        fs::write(self.0.join(name), value).with_context(|| format!("{}: {value}", self.0.join(name).display()))
    }

    /// The same command, as a process in the group.
    pub(crate) fn within(&self, command: &Command) -> Command {
        let mut joined = Command::new("sh");
        joined.args(["-c", r#"echo $$ >"$0/cgroup.procs" && exec "$@""#]).arg(&self.0);
        joined.arg(command.get_program()).args(command.get_args());
        joined
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // An empty group that stays is gone after the next boot.
        let _ = fs::remove_dir(&self.0);
    }
}
