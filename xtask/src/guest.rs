//! Runs the real Linux md driver in a User Mode Linux guest, which boots in two seconds, or in the guest of an emulated
//! system (`systems`), which sees only the workspace of the host and takes longer.
//!
//! A guest is an ordinary process: it needs no root, no virtualization and no kernel module on the host. It sees the
//! host's file system through hostfs, runs one script as its root user, and halts. Debian's `user-mode-linux` provides
//! the kernel, with raid0, raid1, raid10, raid456, linear, nbd, loop, brd and device-mapper targets as modules.
//!
//! Invariants:
//! * Guests share nothing but the host's file system. Each has its own directory for control files, so any number may
//!   run at once.
//! * A guest stays on one processor, the one with the fewest guests of this process. A guest is two processes that wait
//!   for each other at every system call and page fault. On two processors these wake-ups take up to five times as
//!   long.
//! * Every guest ends: by itself, or killed after its time.
//! * What a guest wrote is on the host when [`Guest::run`] returns, as it syncs before it halts. A guest started later
//!   sees what the host wrote meanwhile. Guest and host must not write to one file at the same time, as the guest
//!   caches.
//!
//! Source of the facts: the kernel's Documentation/virt/uml/user_mode_linux_howto_v2.rst.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use tempfile::TempDir;

use crate::kernels::{Kernel, Start};
use crate::root;
use crate::systems::emulator;

/// User Mode Linux names its disks `ubda` to `ubdp`.
const DISKS_MAX: usize = 16;

/// The exit status of `timeout` after the time: by its own signal, or by the second one, which cannot be caught.
const TIMEOUT_STATUSES: [i32; 2] = [124, 137];

/// The settings of a guest.
pub(crate) struct Guest {
    memory: String,
    limit: Duration,
    disks: Vec<PathBuf>,
    kernel: Kernel,
}

/// The outcome of a guest's script.
pub(crate) enum Outcome {
    /// The script ended.
    Finished {
        /// Its exit status.
        status: i32,
        /// Its standard output and standard error.
        output: String,
    },
    /// The script did not end in time, and the guest was killed.
    OverTime {
        /// What the script had printed.
        output: String,
        /// The guest kernel's messages.
        console: String,
    },
    /// The guest stopped before the end of the script.
    Died {
        /// What the script had printed.
        output: String,
        /// The guest kernel's messages.
        console: String,
    },
}

impl Outcome {
    /// The script's output if it ended with status 0; otherwise an error with the output and the console.
    pub(crate) fn success(self) -> Result<String> {
        match self {
            Outcome::Finished { status: 0, output } => Ok(output),
            Outcome::Finished { status, output } => {
                Err(anyhow!("{output}the guest's script ended with status {status}"))
            }
            Outcome::OverTime { output, console } => {
                Err(anyhow!("{output}--- guest's console:\n{console}--- the guest was killed: its time was over"))
            }
            Outcome::Died { output, console } => {
                Err(anyhow!("{output}--- guest's console:\n{console}--- the guest stopped before its script's end"))
            }
        }
    }
}

impl Default for Guest {
    fn default() -> Self {
        Guest { memory: "512M".into(), limit: Duration::from_secs(300), disks: Vec::new(), kernel: Kernel::default() }
    }
}

impl Guest {
    /// Sets the guest's memory, in User Mode Linux's notation (`512M`, `1G`).
    pub(crate) fn memory(mut self, memory: &str) -> Self {
        self.memory = memory.into();
        self
    }

    /// Sets the time after which the guest is killed.
    pub(crate) fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Attaches an image as the next of `/dev/ubda`, `/dev/ubdb`, ...
    pub(crate) fn disk(mut self, image: &Path) -> Self {
        self.disks.push(image.into());
        self
    }

    /// Chooses the kernel.
    pub(crate) fn kernel(mut self, kernel: Kernel) -> Self {
        self.kernel = kernel;
        self
    }

    /// Boots the guest, runs `script` with `arguments` by bash in the current directory, and waits for its end.
    ///
    /// # Errors
    ///
    /// The guest cannot be started. What happens inside it is an [`Outcome`].
    pub(crate) fn run<A: AsRef<OsStr>>(&self, script: &Path, arguments: &[A]) -> Result<Outcome> {
        let control = self.control_directory()?;
        let control = control.path();
        let start = std::env::current_dir()?;
        let script = fs::canonicalize(script).with_context(|| format!("{}", script.display()))?;
        let mut argv = Vec::new();
        let words = [start.as_os_str(), script.as_os_str()].into_iter().chain(arguments.iter().map(AsRef::as_ref));
        for word in words {
            argv.extend_from_slice(word.as_bytes());
            argv.push(0);
        }
        fs::write(control.join("argv"), argv)?;
        let console = File::create(control.join("console"))?;
        let processor = Processor::take()?;
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", &self.limit.as_secs().to_string()]);
        if let Kernel::System(system) = self.kernel {
            let control = option("mdspace_guest=", control.as_os_str());
            command.args(emulator(system, &self.memory, &self.disks, &[control])?);
        } else {
            self.add_user_mode_linux(&mut command, control, &processor)?;
        }
        command.stdin(Stdio::null()).stdout(console.try_clone()?).stderr(console);
        let status = command.status().context("cannot start `timeout`")?;

        let text = |name: &str| fs::read(control.join(name)).map(|b| String::from_utf8_lossy(&b).into_owned());
        let output = text("out").unwrap_or_default();
        if let Some(status) = text("status").ok().and_then(|s| s.trim().parse().ok()) {
            return Ok(Outcome::Finished { status, output });
        }
        let console = text("console").unwrap_or_default();
        match status.code() {
            Some(127) => bail!("linux.uml is not installed (Debian: apt-get install user-mode-linux)"),
            Some(code) if TIMEOUT_STATUSES.contains(&code) => Ok(Outcome::OverTime { output, console }),
            _ => Ok(Outcome::Died { output, console }),
        }
    }

    /// A directory that the guest sees, at the same path as the host does.
    fn control_directory(&self) -> Result<TempDir> {
        let mut name = tempfile::Builder::new();
        let name = name.prefix("mdspace-guest.");
        if let Kernel::System(_) = self.kernel {
            let place = root().join("target/xtask");
            fs::create_dir_all(&place)?;
            return Ok(name.tempdir_in(place)?);
        }
        Ok(name.tempdir()?)
    }

    /// Adds the words and settings that start User Mode Linux on this processor.
    fn add_user_mode_linux(&self, command: &mut Command, control: &Path, processor: &Processor) -> Result<()> {
        build_shim(control)?;
        let Start { words, directory, modules } = self.kernel.start();
        command.args(["taskset", "--cpu-list", &processor.number.to_string()]).args(words);
        command.args(self.kernel_command_line(control, &modules)?).current_dir(directory);
        command.env("LD_PRELOAD", control.join("xstate_shim.so"));
        // The guest's memory is a file; without these variables it is on the tmpfs /dev/shm.
        for name in ["TMPDIR", "TMP", "TEMP"] {
            command.env_remove(name);
        }
        Ok(())
    }

    fn kernel_command_line(&self, control: &Path, modules: &Path) -> Result<Vec<OsString>> {
        if self.disks.len() > DISKS_MAX {
            bail!("{} disks, but a guest has room for {DISKS_MAX}", self.disks.len());
        }
        let mut words = vec![
            option("mem=", self.memory.as_ref()),
            "rootfstype=hostfs".into(),
            "rootflags=/".into(),
            "rw".into(),
            option("init=", root().join("tests/kernel/init.sh").as_os_str()),
            option("mdspace_guest=", control.as_os_str()),
            option("mdspace_modules=", modules.as_os_str()),
            option("uml_dir=", control.as_os_str()),
            "con=null".into(),
            "con0=null,fd:1".into(),
            "quiet".into(),
        ];
        for (number, image) in self.disks.iter().enumerate() {
            let image = fs::canonicalize(image).with_context(|| format!("{}", image.display()))?;
            words.push(option(&format!("ubd{number}="), image.as_os_str()));
        }
        Ok(words)
    }
}

/// A word of a command line: a name and its value.
fn option(name: &str, value: &OsStr) -> OsString {
    let mut word = OsString::from(name);
    word.push(value);
    word
}

/// The number of guests on each processor that this process may use, by the processor's number.
static PROCESSORS: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

/// A guest's claim on a processor, until it is dropped.
struct Processor {
    number: usize,
}

impl Processor {
    /// Claims a processor with the fewest guests.
    fn take() -> Result<Processor> {
        let mut processors = PROCESSORS.lock().expect("no thread panics while it holds the lock");
        if processors.is_empty() {
            let status = fs::read_to_string("/proc/self/status")?;
            let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
            let allowed = list.and_then(|list| numbers(list.trim())).context("/proc/self/status: Cpus_allowed_list")?;
            processors.extend(allowed.into_iter().map(|number| (number, 0)));
            // Other processes that run guests start at other processors.
            let first = std::process::id() as usize % processors.len();
            processors.rotate_left(first);
        }
        let (number, guests) =
            processors.iter_mut().min_by_key(|(_, guests)| *guests).context("this process may use no processor")?;
        *guests += 1;
        Ok(Processor { number: *number })
    }
}

impl Drop for Processor {
    fn drop(&mut self) {
        let mut processors = PROCESSORS.lock().expect("no thread panics while it holds the lock");
        processors.iter_mut().filter(|(number, _)| *number == self.number).for_each(|(_, guests)| *guests -= 1);
    }
}

/// The numbers in a list as the kernel writes it: `0-3,8`.
fn numbers(list: &str) -> Option<Vec<usize>> {
    let mut numbers = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        numbers.extend(first.parse::<usize>().ok()?..=last.parse().ok()?);
    }
    Some(numbers)
}

/// Compiles the shim that lets User Mode Linux run on processors with AMX. The C compiler is the linker that Rust uses.
fn build_shim(directory: &Path) -> Result<()> {
    let status = Command::new("cc")
        .args(["-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o"])
        .arg(directory.join("xstate_shim.so"))
        .arg(root().join("tests/kernel/xstate_shim.c"))
        .status()
        .context("cannot start the C compiler `cc`")?;
    if !status.success() {
        bail!("tests/kernel/xstate_shim.c does not compile");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_read_as_the_kernel_writes_them() {
        assert_eq!(numbers("0"), Some(vec![0]));
        assert_eq!(numbers("0-2,5,8-9"), Some(vec![0, 1, 2, 5, 8, 9]));
        assert_eq!(numbers(""), None);
    }

    #[test]
    fn guests_are_spread_over_the_processors() {
        let count = std::thread::available_parallelism().unwrap().get();
        let places: Vec<_> = (0..count).map(|_| Processor::take().unwrap()).collect();
        let mut used: Vec<_> = places.iter().map(|place| place.number).collect();
        used.sort_unstable();
        used.dedup();
        assert_eq!(used.len(), count);
    }
}
