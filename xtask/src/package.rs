//! `cargo xtask package`: the Debian package of the release binary, with man pages, completions, units and documents,
//! in target/dist.
//!
//! The package is assembled here and packed by dpkg-deb, which every Debian has; cargo-deb would have to be built
//! first. Its dependencies come from dpkg-shlibdeps, not from a list kept by hand.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::root;

/// The largest size of the stripped binary.
const BINARY_BYTES_MAX: u64 = 15_000_000;

/// Programs that make the package and test it.
pub(crate) const NEEDS: &[&str] = &["dpkg-deb", "dpkg-shlibdeps", "strip", "gzip", "groff"];

/// Files: the path relative to the workspace, and the directory where each is installed.
const FILES: &[(&str, &str)] = &[
    ("dist/mdspace@.service", "usr/lib/systemd/system"),
    ("dist/mdspace@.socket", "usr/lib/systemd/system"),
    ("README.md", "usr/share/doc/mdspace"),
    ("ARCHITECTURE.md", "usr/share/doc/mdspace"),
    ("CHANGELOG.md", "usr/share/doc/mdspace"),
];

/// For each shell the directory of completions, and the file's name when it is generated and when it is installed.
const COMPLETIONS: &[(&str, &str, &str)] = &[
    ("mdspace.bash", "usr/share/bash-completion/completions", "mdspace"),
    ("mdspace.fish", "usr/share/fish/vendor_completions.d", "mdspace.fish"),
    ("_mdspace", "usr/share/zsh/vendor-completions", "_mdspace"),
];

/// A finished package.
pub(crate) struct Package {
    pub(crate) path: PathBuf,
    /// The size of the stripped binary.
    pub(crate) binary_bytes: u64,
}

/// Makes the package of target/release/mdspace, which must have been built.
///
/// # Errors
///
/// A program fails, or the binary is too large.
pub(crate) fn make() -> Result<Package> {
    let dist = root().join("target/dist");
    let tree = dist.join("tree");
    if tree.exists() {
        fs::remove_dir_all(&tree)?;
    }
    let binary = tree.join("usr/bin/mdspace");
    install(&root().join("target/release/mdspace"), &binary, 0o755)?;
    output(Command::new("strip").arg(&binary))?;
    let binary_bytes = fs::metadata(&binary)?.len();
    if binary_bytes > BINARY_BYTES_MAX {
        bail!("the stripped binary has {binary_bytes} bytes, more than {BINARY_BYTES_MAX}");
    }

    let made = dist.join("made");
    output(Command::new(&binary).arg("generate").arg(&made))?;
    for (name, directory, installed) in COMPLETIONS {
        install(&made.join("completions").join(name), &tree.join(directory).join(installed), 0o644)?;
    }
    for page in fs::read_dir(made.join("man1"))? {
        let page = page?;
        let to = tree.join("usr/share/man/man1").join(page.file_name());
        install(&page.path(), &to, 0o644)?;
        output(Command::new("gzip").args(["-9", "-n", "-f"]).arg(&to))?;
    }
    fs::remove_dir_all(&made)?;
    for (file, directory) in FILES {
        let name = Path::new(file).file_name().context("a file has a name")?;
        install(&root().join(file), &tree.join(directory).join(name), 0o644)?;
    }
    install_pages(&root().join("docs"), &tree.join("usr/share/doc/mdspace/docs"))?;
    let licences = ["LICENSE-MIT", "LICENSE-APACHE"].map(|name| fs::read_to_string(root().join(name)));
    let [mit, apache] = licences;
    fs::write(tree.join("usr/share/doc/mdspace/copyright"), format!("MIT or Apache-2.0.\n\n{}\n\n{}", mit?, apache?))?;
    close(&dist, &tree, binary_bytes)
}

/// Installs every file of the documents, with their folders.
fn install_pages(from: &Path, to: &Path) -> Result<()> {
    for page in fs::read_dir(from)? {
        let page = page?;
        let (path, place) = (page.path(), to.join(page.file_name()));
        if path.is_dir() { install_pages(&path, &place)? } else { install(&path, &place, 0o644)? }
    }
    Ok(())
}

/// Writes the control file, and lets dpkg-deb pack everything.
fn close(dist: &Path, tree: &Path, binary_bytes: u64) -> Result<Package> {
    let version = env!("CARGO_PKG_VERSION");
    let architecture = output(Command::new("dpkg").arg("--print-architecture"))?;
    let architecture = architecture.trim();
    // dpkg-shlibdeps needs the layout of a source package.
    fs::create_dir_all(dist.join("debian"))?;
    fs::write(dist.join("debian/control"), "Source: mdspace\n\nPackage: mdspace\nArchitecture: any\n")?;
    let mut libraries = Command::new("dpkg-shlibdeps");
    let depends = output(libraries.args(["-O", "-e", "tree/usr/bin/mdspace"]).current_dir(dist))?;
    let depends = depends.trim().strip_prefix("shlibs:Depends=").context("dpkg-shlibdeps names no libraries")?;
    fs::remove_dir_all(dist.join("debian"))?;

    let control = format!(
        "Package: mdspace\nVersion: {version}\nArchitecture: {architecture}\nSection: admin\nPriority: optional\n\
         Maintainer: the mdspace project <mdspace@example.invalid>\nDepends: {depends}\n\
         Recommends: fuse3\nSuggests: libnbd-bin, mdadm\nDescription: Linux software RAID, in user space\n \
         Creates, reads, writes and serves arrays in the format of Linux md, without the\n kernel's driver and \
         without root.\n",
    );
    fs::create_dir_all(tree.join("DEBIAN"))?;
    fs::write(tree.join("DEBIAN/control"), control)?;
    let path = dist.join(format!("mdspace_{version}_{architecture}.deb"));
    output(Command::new("dpkg-deb").args(["--root-owner-group", "-Zxz", "--build"]).arg(tree).arg(&path))?;
    fs::remove_dir_all(tree)?;
    Ok(Package { path, binary_bytes })
}

/// Copies a file, and creates its directory if necessary.
fn install(from: &Path, to: &Path, mode: u32) -> Result<()> {
    let directory = to.parent().context("it is put into a directory")?;
    fs::create_dir_all(directory)?;
    fs::copy(from, to).with_context(|| format!("{}", from.display()))?;
    Ok(fs::set_permissions(to, fs::Permissions::from_mode(mode))?)
}

/// The output of a program, which must succeed.
fn output(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_owned();
    let output = command.output().with_context(|| format!("cannot start {}", program.display()))?;
    if !output.status.success() {
        bail!("{}: {}: {}", program.display(), output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}
