//! Static commands, and what they are linked with: musl, the start files of GCC, and its unwinder.
//!
//! The compiler looks for them in a directory `self-contained` of its own, where rustup's targets for musl have them.
//! musl comes from Debian's packages for both machines, which are fetched below `target/`; nothing is installed. Start
//! files and unwinder are those of the machine's C compiler. What its unwinder expects of glibc, and a faster function of
//! musl's, are in dist/musl.c.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::steps::Log;
use crate::{apt, root};

/// A kind of machine that a release is for.
pub(crate) struct Machine {
    /// Rust's name of the target.
    pub(crate) target: &'static str,
    /// Debian's name of the architecture, which is also that of container images.
    pub(crate) debian: &'static str,
    /// The prefix of the names of GNU's programs, and of musl's directories.
    processor: &'static str,
}

/// x86-64 is this machine's.
pub(crate) const MACHINES: [Machine; 2] = [
    Machine { target: "x86_64-unknown-linux-musl", debian: "amd64", processor: "x86_64" },
    Machine { target: "aarch64-unknown-linux-musl", debian: "arm64", processor: "aarch64" },
];

/// Why there are no static commands.
pub(crate) const NOT_THERE: &str = "no musl, or no source of the standard library of this Rust; see the step setup";

/// Builds the static command for these machines, with these words for cargo; returns whether that is possible here.
pub(crate) fn build(log: &mut Log, machines: &[Machine], words: &[&str]) -> Result<bool> {
    let Some(compiler) = super::toolchain::make()?.filter(|_| is_there()) else { return Ok(false) };
    let targets: Vec<&str> = machines.iter().map(|machine| machine.target).collect();
    let mut cargo = super::build(&compiler, "build", "target/cross", &targets);
    machines.iter().for_each(|machine| machine.tell(&mut cargo));
    log.run(cargo.args(["-p", "mdspace"]).args(words))?;
    Ok(true)
}

impl Machine {
    /// One of GNU's programs for this machine.
    pub(crate) fn program(&self, name: &str) -> String {
        format!("{}-linux-gnu-{name}", self.processor)
    }

    /// The command, as [`build`] leaves it in the directory of a profile.
    pub(crate) fn command(&self, profile: &str) -> PathBuf {
        root().join("target/cross").join(self.target).join(profile).join("mdspace")
    }

    /// Tells cargo how to compile C, and how to link.
    fn tell(&self, cargo: &mut Command) {
        let compiler = self.program("gcc");
        let name = self.target.replace('-', "_");
        cargo.env(format!("CARGO_TARGET_{}_LINKER", name.to_uppercase()), &compiler);
        cargo.env(format!("CC_{name}"), compiler).env(format!("AR_{name}"), self.program("ar"));
        cargo.env(format!("CFLAGS_{name}"), format!("-isystem {}", self.headers().display()));
    }

    fn headers(&self) -> PathBuf {
        place().join(format!("usr/include/{}-linux-musl", self.processor))
    }

    fn libraries(&self) -> PathBuf {
        place().join(format!("usr/lib/{}-linux-musl", self.processor))
    }

    /// Fills `directory` with what a static program is linked with.
    fn collect(&self, directory: &Path) -> Result<()> {
        for name in ["crt1.o", "rcrt1.o", "crti.o", "crtn.o", "libc.a"] {
            copy(&self.libraries().join(name), &directory.join(name))?;
        }
        for name in START_FILES {
            copy(&self.file_of_compiler(name)?, &directory.join(name))?;
        }
        copy(&self.file_of_compiler("libgcc_eh.a")?, &directory.join("libunwind.a"))?;
        let (library, object) = (directory.join("libc.a"), directory.join("musl.o"));
        let mut compile = Command::new(self.program("gcc"));
        compile.args(["-O2", "-fPIC", "-fno-builtin", "-Wall", "-Wextra", "-Werror", "-isystem"]).arg(self.headers());
        output(compile.arg("-c").arg(root().join(LACKS)).arg("-o").arg(&object))?;
        let archive = || Command::new(self.program("ar"));
        output(archive().arg("d").arg(&library).args(REPLACED))?;
        output(archive().arg("q").arg(&library).arg(&object))?;
        Ok(())
    }

    /// A file that the C compiler brings.
    fn file_of_compiler(&self, name: &str) -> Result<PathBuf> {
        Ok(output(Command::new(self.program("gcc")).arg(format!("-print-file-name={name}")))?.into())
    }
}

const START_FILES: [&str; 4] = ["crtbegin.o", "crtbeginS.o", "crtend.o", "crtendS.o"];
/// What musl lacks, and the parts of it that this replaces.
const LACKS: &str = "dist/musl.c";
const REPLACED: [&str; 2] = ["memcmp.lo", "bcmp.lo"];

/// Debian 13's musl is of the version that Rust's own targets have, 1.2.5.
const SOURCE: &str = "trixie main";

/// The directory of the fetched packages. It is complete if the file `fetched` is there, with their names.
fn place() -> PathBuf {
    root().join("target/musl")
}

/// Fetches musl if necessary; returns a text about it. That it is not available is no error here.
pub(super) fn fetch(log: &mut Log) -> Result<&'static str> {
    if !is_there()
        && let Err(error) = fetch_from_debian(log)
    {
        log.write(&format!("{error:#}\n"))?;
        return Ok("NO musl: see the log");
    }
    Ok("musl")
}

fn is_there() -> bool {
    place().join("fetched").is_file()
}

fn fetch_from_debian(log: &mut Log) -> Result<()> {
    let place = place();
    let architectures = MACHINES.map(|machine| machine.debian);
    let packages = architectures.map(|architecture| format!("musl-dev:{architecture}"));
    let packages: Vec<&str> = packages.iter().map(String::as_str).collect();
    let packages = apt::fetch(log, &place, SOURCE, &architectures, &packages)?;
    let names: Vec<_> =
        packages.iter().filter_map(|package| package.file_name()?.to_str()).map(str::to_owned).collect();
    for package in packages {
        log.run(Command::new("dpkg-deb").arg("--extract").arg(&package).arg(&place))?;
        fs::remove_file(package)?;
    }
    Ok(fs::write(place.join("fetched"), names.join(" "))?)
}

/// Puts everything where the compiler of this directory looks for it, if musl was fetched.
pub(super) fn provide(sysroot: &Path) -> Result<()> {
    if !is_there() {
        return Ok(());
    }
    for machine in &MACHINES {
        let libraries = sysroot.join("lib/rustlib").join(machine.target).join("lib");
        let (ready, fresh) = (libraries.join("self-contained"), libraries.join("incomplete"));
        let from = [
            fs::read_to_string(place().join("fetched"))?,
            fs::read_to_string(root().join(LACKS))?,
            output(Command::new(machine.program("gcc")).arg("-v"))?,
        ]
        .concat();
        if fs::read_to_string(ready.join("from")).is_ok_and(|old| old == from) {
            continue;
        }
        // cargo does not know that what it built before was linked with other files.
        for old in [&ready, &fresh, &root().join("target/cross").join(machine.target)] {
            if old.exists() {
                fs::remove_dir_all(old)?;
            }
        }
        fs::create_dir_all(&fresh)?;
        machine.collect(&fresh)?;
        fs::write(fresh.join("from"), from)?;
        fs::rename(fresh, ready)?;
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).with_context(|| format!("{}", from.display()))?;
    Ok(())
}

/// What a program prints on standard output; on standard error, if it prints nothing there. It must succeed.
fn output(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_owned();
    let output = command.output().with_context(|| format!("cannot start {}", program.display()))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{}: {said}", program.display());
    let printed = String::from_utf8(output.stdout)?.trim().to_owned();
    Ok(if printed.is_empty() { said } else { printed })
}
