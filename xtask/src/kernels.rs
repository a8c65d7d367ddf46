//! The kernels of guests: the distribution's, and if that is older also Debian 13's, so that two drivers of different
//! years judge. Debian 12 has Linux 6.1 and Debian 13 has 6.12. Guests of 6.12 also start programs in two thirds of the
//! time, thanks to changes in User Mode Linux.
//!
//! The newer kernel is fetched into a directory below `target/`. It needs a newer C library than Debian 12's, which is
//! fetched with it.
//!
//! What the newer kernel lacks or does differently is judged by the older one alone: `linear`, the addition of spares
//! beside members with bad blocks, and some more (docs/decisions/1010).

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::steps::Log;
use crate::systems::System;
use crate::{apt, lockless, root};

/// Chooses a kernel.
#[derive(Clone, Copy, Default)]
pub(crate) enum Kernel {
    /// The distribution's kernel.
    #[default]
    Distribution,
    /// Debian 13's kernel if it is available, otherwise the distribution's.
    Newer,
    /// The kernel with lockless bitmaps, which is built here ([`lockless`]).
    Lockless,
    /// The kernel of a whole system in emulation.
    System(System),
}

/// How to start a kernel.
pub(crate) struct Start {
    /// The command, without the arguments of the kernel.
    pub(crate) words: Vec<OsString>,
    /// The directory to start it in, where its loader is looked up.
    pub(crate) directory: PathBuf,
    /// The directory of its modules, by release.
    pub(crate) modules: PathBuf,
}

/// The program of the distribution's kernel in `PATH`.
const PROGRAM: &str = "linux.uml";
/// A kernel from this release on counts as Debian 13's.
const NEW_ENOUGH: (u32, u32) = (6, 12);
const PACKAGES: [&str; 2] = ["user-mode-linux", "libc6"];
const SOURCE: &str = "trixie main";

/// The loader's path in the kernel's program, and a shorter path that is relative to the current directory.
const LOADER: (&[u8], &[u8]) = (b"/lib64/ld-linux-x86-64.so.2\0", b"./loader\0");
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
const MODULES: &str = "usr/lib/uml/modules";

/// The directory of the fetched kernel. It is complete if the program is there.
fn place() -> PathBuf {
    root().join("target/newer-kernel")
}

impl Kernel {
    /// Debian 13's kernel, if it was fetched.
    pub(crate) fn newer() -> Option<Kernel> {
        place().join(PROGRAM).is_file().then_some(Kernel::Newer)
    }

    /// How to start this kernel in User Mode Linux; a kernel of a [`System`] starts otherwise.
    pub(crate) fn start(self) -> Start {
        let place = place();
        match self {
            Kernel::Newer if Kernel::newer().is_some() => {
                let mut libraries = OsString::from("LD_LIBRARY_PATH=");
                libraries.push(place.join(LIBRARIES));
                let words = vec!["env".into(), libraries, place.join(PROGRAM).into()];
                Start { words, modules: place.join(MODULES), directory: place }
            }
            Kernel::Lockless => Start {
                words: vec![lockless::program().into()],
                modules: lockless::place().join("modules"),
                directory: root().to_path_buf(),
            },
            _ => Start {
                words: vec![PROGRAM.into()],
                modules: Path::new("/").join(MODULES),
                directory: root().to_path_buf(),
            },
        }
    }

    /// The kernel's release, as the kernel prints it.
    pub(crate) fn release(self) -> Result<String> {
        let Start { words, directory, .. } = self.start();
        let output = Command::new(&words[0]).args(&words[1..]).arg("--version").current_dir(directory).output();
        let output = output.context(PROGRAM)?;
        ensure!(output.status.success(), "{PROGRAM} --version: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }
}

/// Fetches the newer kernel if necessary; returns a text about the kernels.
///
/// # Errors
///
/// The distribution's kernel does not start. If the newer one is not available, that is no error: the text says so, and
/// the distribution's kernel judges everything.
pub(crate) fn fetch(log: &mut Log) -> Result<String> {
    let distribution = Kernel::Distribution.release()?;
    if number(&distribution).is_none_or(|number| number >= NEW_ENOUGH) {
        return Ok(format!("guests of Linux {distribution}"));
    }
    if Kernel::newer().is_none()
        && let Err(error) = fetch_newer(log)
    {
        log.write(&format!("{error:#}\n"))?;
        return Ok(format!("guests of Linux {distribution} alone, as Debian 13's was not to be had: see the log"));
    }
    Ok(format!("guests of Linux {distribution} and {}", Kernel::Newer.release()?))
}

/// The first two numbers of the releases of all kernels of guests in User Mode Linux.
pub(crate) fn judges() -> Result<Vec<String>> {
    let kernels = std::iter::once(Kernel::Distribution).chain(Kernel::newer());
    let text = |kernel: Kernel| {
        let release = kernel.release()?;
        let (major, minor) = number(&release).with_context(|| release.clone())?;
        Ok(format!("{major}.{minor}"))
    };
    kernels.map(text).collect()
}

/// The first two numbers of a release.
fn number(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn fetch_newer(log: &mut Log) -> Result<()> {
    let place = place();
    for package in apt::fetch(log, &place, SOURCE, &[], &PACKAGES)? {
        log.run(Command::new("dpkg-deb").arg("--extract").arg(&package).arg(&place))?;
        fs::remove_file(package)?;
    }
    fs::copy(place.join(LIBRARIES).join("ld-linux-x86-64.so.2"), place.join("loader"))?;

    let program = place.join("usr/bin").join(PROGRAM);
    let renamed = with_loader(fs::read(&program)?)?;
    fs::write(&program, renamed)?;
    fs::rename(program, place.join(PROGRAM))?;
    Ok(())
}

/// Makes the program look for its loader in the current directory.
fn with_loader(mut program: Vec<u8>) -> Result<Vec<u8>> {
    let (old, new) = LOADER;
    let Some(at) = program.windows(old.len()).position(|bytes| bytes == old) else {
        bail!("the newer kernel's program names no loader");
    };
    program[at..at + old.len()].fill(0);
    program[at..at + new.len()].copy_from_slice(new);
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_by_their_first_two_numbers() {
        assert_eq!(number("6.1.176"), Some((6, 1)));
        assert_eq!(number("6.12.113"), Some((6, 12)));
        assert_eq!(number("linux"), None);
        assert!(number("6.1.176") < Some(NEW_ENOUGH) && number("7.2.7") >= Some(NEW_ENOUGH));
    }

    #[test]
    fn only_the_loaders_name_is_changed() {
        let program = [b"\x7fELF".as_slice(), LOADER.0, b"rest"].concat();
        let changed = with_loader(program.clone()).unwrap();
        assert_eq!(changed.len(), program.len());
        assert_eq!(changed[4..13], *b"./loader\0");
        assert!(changed.ends_with(b"\0rest"));
        assert!(with_loader(b"another".to_vec()).is_err());
    }
}
