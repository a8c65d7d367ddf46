//! The kernels of guests: those of Debian 12 (Linux 6.1) and Debian 13 (6.12), so that two drivers of different years
//! judge. One of them is the distribution's. The other is fetched into a directory below `target/`. Guests of 6.12 also
//! start programs in two thirds of the time, thanks to changes in User Mode Linux.
//!
//! Debian 13's kernel needs a newer C library than Debian 12's, which is fetched with it.
//!
//! What the newer kernel lacks or does differently is judged by the older one alone: `linear`, the addition of spares
//! beside members with bad blocks, and some more (docs/decisions/1010).

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, bail, ensure};

use crate::steps::Log;
use crate::systems::System;
use crate::{apt, lockless, root};

/// Chooses a kernel.
#[derive(Clone, Copy, Default)]
pub(crate) enum Kernel {
    /// Debian 12's kernel if it is available, otherwise the distribution's.
    #[default]
    Older,
    /// Debian 13's kernel, or the distribution's if that is newer still or the other is not available.
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

/// A kernel that is fetched: the directory of its files, which is complete if the program is there.
struct Fetched {
    directory: &'static str,
    source: &'static str,
    packages: &'static [&'static str],
    /// The kernel's program runs with the C library that was fetched with it.
    own_library: bool,
    name: &'static str,
}

const OLDER: Fetched = Fetched {
    directory: "target/older-kernel",
    source: "bookworm main",
    packages: &["user-mode-linux"],
    own_library: false,
    name: "Debian 12's",
};

const NEWER: Fetched = Fetched {
    directory: "target/newer-kernel",
    source: "trixie main",
    packages: &["user-mode-linux", "libc6"],
    own_library: true,
    name: "Debian 13's",
};

/// The loader's path in the kernel's program, and a shorter path that is relative to the current directory.
const LOADER: (&[u8], &[u8]) = (b"/lib64/ld-linux-x86-64.so.2\0", b"./loader\0");
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
const MODULES: &str = "usr/lib/uml/modules";

impl Fetched {
    /// The one of the two kernels that is not the distribution's.
    fn other() -> &'static Fetched {
        if distribution_is_newer() { &OLDER } else { &NEWER }
    }

    fn place(&self) -> PathBuf {
        root().join(self.directory)
    }

    fn is_there(&self) -> bool {
        self.place().join(PROGRAM).is_file()
    }

    fn start(&self) -> Start {
        let place = self.place();
        let mut words = Vec::new();
        if self.own_library {
            let mut libraries = OsString::from("LD_LIBRARY_PATH=");
            libraries.push(place.join(LIBRARIES));
            words.extend(["env".into(), libraries]);
        }
        words.push(place.join(PROGRAM).into());
        Start { words, modules: place.join(MODULES), directory: place }
    }

    /// Fetches the packages and takes the kernel out of them.
    fn fetch(&self, log: &mut Log) -> Result<()> {
        let place = self.place();
        for package in apt::fetch(log, &place, self.source, &[], self.packages)? {
            log.run(Command::new("dpkg-deb").arg("--extract").arg(&package).arg(&place))?;
            fs::remove_file(package)?;
        }
        let program = place.join("usr/bin").join(PROGRAM);
        if self.own_library {
            fs::copy(place.join(LIBRARIES).join("ld-linux-x86-64.so.2"), place.join("loader"))?;
            let renamed = with_loader(fs::read(&program)?)?;
            fs::write(&program, renamed)?;
        }
        fs::rename(program, place.join(PROGRAM))?;
        Ok(())
    }
}

/// Whether the distribution's kernel counts as Debian 13's. One that does not start counts as Debian 12's.
fn distribution_is_newer() -> bool {
    static NEWER: OnceLock<bool> = OnceLock::new();
    *NEWER.get_or_init(|| {
        let release = Start::distribution().release();
        release.ok().and_then(|release| number(&release)).is_some_and(|number| number >= NEW_ENOUGH)
    })
}

impl Kernel {
    /// Debian 13's kernel, if it is there.
    pub(crate) fn newer() -> Option<Kernel> {
        (distribution_is_newer() || NEWER.is_there()).then_some(Kernel::Newer)
    }

    /// How to start this kernel in User Mode Linux; a kernel of a [`System`] starts otherwise.
    pub(crate) fn start(self) -> Start {
        match self {
            Kernel::Older if distribution_is_newer() && OLDER.is_there() => OLDER.start(),
            Kernel::Newer if !distribution_is_newer() && NEWER.is_there() => NEWER.start(),
            Kernel::Lockless => Start {
                words: vec![lockless::program().into()],
                modules: lockless::place().join("modules"),
                directory: root().to_path_buf(),
            },
            _ => Start::distribution(),
        }
    }

    /// The kernel's release, as the kernel prints it.
    pub(crate) fn release(self) -> Result<String> {
        self.start().release()
    }
}

impl Start {
    /// Starts the distribution's kernel.
    fn distribution() -> Start {
        Start { words: vec![PROGRAM.into()], modules: Path::new("/").join(MODULES), directory: root().to_path_buf() }
    }

    fn release(self) -> Result<String> {
        let Start { words, directory, .. } = self;
        let output = Command::new(&words[0]).args(&words[1..]).arg("--version").current_dir(directory).output();
        let output = output.context(PROGRAM)?;
        ensure!(output.status.success(), "{PROGRAM} --version: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }
}

/// Fetches the other kernel if necessary; returns a text about the kernels.
///
/// # Errors
///
/// The distribution's kernel does not start. If the other one is not available, that is no error: the text says so, and
/// the distribution's kernel judges everything.
pub(crate) fn fetch(log: &mut Log) -> Result<String> {
    let distribution = Start::distribution().release()?;
    let other = Fetched::other();
    if !other.is_there()
        && let Err(error) = other.fetch(log)
    {
        log.write(&format!("{error:#}\n"))?;
        return Ok(format!("guests of Linux {distribution} alone, as {} was not to be had: see the log", other.name));
    }
    Ok(format!("guests of Linux {} and {}", Kernel::Older.release()?, Kernel::Newer.release()?))
}

/// The first two numbers of the releases of all kernels of guests in User Mode Linux.
pub(crate) fn judges() -> Result<Vec<String>> {
    let text = |kernel: Kernel| {
        let release = kernel.release()?;
        let (major, minor) = number(&release).with_context(|| release.clone())?;
        Ok(format!("{major}.{minor}"))
    };
    let mut judges = [Kernel::Older, Kernel::Newer].into_iter().map(text).collect::<Result<Vec<_>>>()?;
    judges.dedup();
    Ok(judges)
}

/// The first two numbers of a release.
fn number(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
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
