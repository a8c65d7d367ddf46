//! What compiles for other targets: the installed compiler, beside the source of its standard library.
//!
//! cargo builds that library for a target (`-Zbuild-std`). The source is looked for in the compiler's own directory, where
//! rustup's component `rust-src` and Debian's package leave it. Otherwise Debian's package of the same version is fetched
//! below `target/`; nothing is installed. A directory of links then stands for the compiler's, with the source in it, and
//! with what static programs are linked with ([`musl`]).

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::steps::Log;
use crate::{apt, root};

use super::musl;

/// The suite of Debian's archive that keeps several versions of Rust.
const SOURCE: &str = "trixie-backports main";

/// The compiler in use.
struct Compiler {
    /// Its version, such as 1.95.0.
    version: String,
    host: String,
    /// The directory that holds it and its libraries.
    sysroot: PathBuf,
}

impl Compiler {
    fn find() -> Result<Self> {
        let ask = |words: &[&str]| -> Result<String> {
            let output = Command::new("rustc").args(words).current_dir(root()).output().context("rustc")?;
            ensure!(output.status.success(), "rustc: {}", String::from_utf8_lossy(&output.stderr));
            Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        };
        let about = ask(&["--version", "--verbose"])?;
        let line = |name| about.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned).context(name);
        let (version, host) = (line("release: ")?, line("host: ")?);
        Ok(Self { version, host, sysroot: ask(&["--print", "sysroot"])?.into() })
    }

    /// The source of its standard library, where its own directory has it.
    fn own_source(&self) -> Option<PathBuf> {
        let library = self.sysroot.join(LIBRARY);
        library.join("Cargo.lock").is_file().then_some(library)
    }

    /// The fetched source, if it is of this version.
    fn fetched_source(&self) -> Option<PathBuf> {
        let version = fs::read_to_string(place().join("version")).ok()?;
        (version == self.version).then(|| place().join("library"))
    }
}

/// The source in a compiler's directory.
const LIBRARY: &str = "lib/rustlib/src/rust/library";

/// The directory of the fetched source. It is complete if the file `version` is there.
fn place() -> PathBuf {
    root().join("target/rust-src")
}

/// Fetches the source, and musl, if necessary; returns a text about them. That they are not available is no error here.
pub(crate) fn fetch(log: &mut Log) -> Result<String> {
    let compiler = Compiler::find()?;
    let version = &compiler.version;
    if compiler.own_source().is_none()
        && compiler.fetched_source().is_none()
        && let Err(error) = fetch_from_debian(log, version)
    {
        log.write(&format!("{error:#}\n"))?;
        return Ok(format!("NO source of the standard library of Rust {version}: see the log"));
    }
    Ok(format!("the source of the standard library of Rust {version}; {}", musl::fetch(log)?))
}

fn fetch_from_debian(log: &mut Log, version: &str) -> Result<()> {
    let place = place();
    for package in apt::fetch(log, &place, SOURCE, &[], &[&format!("rust-src={version}*")])? {
        let library = format!("./usr/src/rustc-{version}/library");
        let extract = r#"dpkg-deb --fsys-tarfile "$1" | tar -x --strip-components=4 "$2""#;
        let mut shell = Command::new("bash");
        shell.args(["-o", "pipefail", "-c", extract, "extract"]).arg(&package).arg(library);
        log.run(shell.current_dir(&place))?;
        fs::remove_file(package)?;
    }
    ensure!(place.join("library/Cargo.lock").is_file(), "the package has no source of the standard library");
    fs::write(place.join("version"), version)?;
    Ok(())
}

/// Makes cargo's compiler, which finds the source of the standard library; `None` if there is no source.
pub(super) fn make() -> Result<Option<PathBuf>> {
    let compiler = Compiler::find()?;
    let Some(source) = compiler.own_source().or_else(|| compiler.fetched_source()) else { return Ok(None) };
    let libraries = Path::new("lib/rustlib").join(&compiler.host);
    let sysroot = place().join("sysroot");
    link(&compiler.sysroot.join(&libraries), &sysroot.join(libraries))?;
    link(&source, &sysroot.join(LIBRARY))?;
    let program = place().join("rustc");
    let quoted = |path: &Path| format!("'{}'", path.display());
    let text = format!(
        "#!/bin/sh\nexec {} --sysroot {} \"$@\"\n",
        quoted(&compiler.sysroot.join("bin/rustc")),
        quoted(&sysroot)
    );
    if fs::read_to_string(&program).ok().as_ref() != Some(&text) {
        fs::write(&program, text)?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    }
    musl::provide(&sysroot)?;
    Ok(Some(program))
}

/// Makes `at` a link to `target`.
fn link(target: &Path, at: &Path) -> Result<()> {
    if fs::read_link(at).is_ok_and(|found| found == target) {
        return Ok(());
    }
    let _ = fs::remove_file(at);
    fs::create_dir_all(at.parent().context("a link's directory")?)?;
    symlink(target, at).with_context(|| format!("{}", at.display()))
}
