//! The Debian package of a command, with man pages, completions, units and documents. `cargo xtask package` makes that of
//! target/release/mdspace, in target/dist.
//!
//! The package is assembled here and packed by dpkg-deb, which every Debian has; cargo-deb would have to be built
//! first. Its dependencies come from dpkg-shlibdeps, not from a list kept by hand. A static command has none.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command as Process;

use anyhow::{Context, Result, bail};

use crate::root;

/// The largest size of the stripped binary: what it has in November 2026 and little more, so that growth is noticed.
const BINARY_BYTES_MAX: u64 = 17_200_000;

/// Programs that make the package and test it.
pub(crate) const NEEDS: &[&str] = &["dpkg-deb", "dpkg-shlibdeps", "strip", "gzip", "groff"];

/// Files: the path relative to the workspace, and the directory where each is installed.
const FILES: &[(&str, &str)] = &[
    ("dist/mdspace@.service", "usr/lib/systemd/system"),
    ("dist/mdspace@.socket", "usr/lib/systemd/system"),
    ("dist/mdspace-scrub@.service", "usr/lib/systemd/system"),
    ("dist/mdspace-scrub@.timer", "usr/lib/systemd/system"),
    ("dist/mdspace-monitor.service", "usr/lib/systemd/system"),
    ("dist/mdspace-monitor@.service", "usr/lib/systemd/system"),
    ("dist/mdspace-web.service", "usr/lib/systemd/system"),
    ("dist/mdspace-incremental@.service", "usr/lib/systemd/system"),
    // No directory of udev's: whether md's driver or mdspace takes members is for the administrator to say.
    ("dist/64-mdspace.rules", "usr/share/doc/mdspace"),
    ("dist/prometheus-rules.yml", "usr/share/doc/mdspace"),
    ("dist/grafana-dashboard.json", "usr/share/doc/mdspace"),
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

/// A command to make a package of.
pub(crate) struct Command<'a> {
    /// The stripped program.
    pub(crate) path: &'a Path,
    /// The same command for this machine, which prints its man pages and completions.
    pub(crate) describes_itself: &'a Path,
    /// Debian's name of the machine that it is for.
    pub(crate) architecture: &'a str,
    pub(crate) libraries: Libraries,
    /// The directory that the package is made in.
    pub(crate) place: &'a Path,
}

/// The libraries that a command needs.
#[derive(Clone, Copy)]
pub(crate) enum Libraries {
    /// Those of this machine's C library.
    Shared,
    /// None: the command is static.
    None,
}

/// Makes the package of target/release/mdspace, which must have been built.
///
/// # Errors
///
/// A program fails, or the binary is too large.
pub(crate) fn make_of_release() -> Result<Package> {
    let place = root().join("target/dist");
    fs::create_dir_all(&place)?;
    let binary = place.join("mdspace");
    output(Process::new("strip").arg("-o").arg(&binary).arg(root().join("target/release/mdspace")))?;
    let binary_bytes = fs::metadata(&binary)?.len();
    if binary_bytes > BINARY_BYTES_MAX {
        bail!("the stripped binary has {binary_bytes} bytes, more than {BINARY_BYTES_MAX}");
    }
    let architecture = output(Process::new("dpkg").arg("--print-architecture"))?;
    let path = make(&Command {
        path: &binary,
        describes_itself: &binary,
        architecture: architecture.trim(),
        libraries: Libraries::Shared,
        place: &place,
    })?;
    fs::remove_file(binary)?;
    Ok(Package { path, binary_bytes })
}

/// Makes the package of a command; returns its path.
///
/// # Errors
///
/// A program fails.
pub(crate) fn make(command: &Command) -> Result<PathBuf> {
    let dist = command.place;
    let tree = dist.join("tree");
    if tree.exists() {
        fs::remove_dir_all(&tree)?;
    }
    install(command.path, &tree.join("usr/bin/mdspace"), 0o755)?;
    let made = dist.join("made");
    output(Process::new(command.describes_itself).arg("generate").arg(&made))?;
    for (name, directory, installed) in COMPLETIONS {
        install(&made.join("completions").join(name), &tree.join(directory).join(installed), 0o644)?;
    }
    for page in fs::read_dir(made.join("man1"))? {
        let page = page?;
        let to = tree.join("usr/share/man/man1").join(page.file_name());
        install(&page.path(), &to, 0o644)?;
        output(Process::new("gzip").args(["-9", "-n", "-f"]).arg(&to))?;
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
    close(command, &tree)
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
fn close(command: &Command, tree: &Path) -> Result<PathBuf> {
    let (version, architecture) = (env!("CARGO_PKG_VERSION"), command.architecture);
    let depends = match command.libraries {
        Libraries::Shared => format!("Depends: {}\n", packages_of_libraries(command.place)?),
        Libraries::None => String::new(),
    };

    let control = format!(
        "Package: mdspace\nVersion: {version}\nArchitecture: {architecture}\nSection: admin\nPriority: optional\n\
         Maintainer: the mdspace project <mdspace@example.invalid>\n{depends}\
         Recommends: fuse3\nSuggests: libnbd-bin, mdadm\nDescription: Linux software RAID, in user space\n \
         Creates, reads, writes and serves arrays in the format of Linux md, without the\n kernel's driver and \
         without root.\n",
    );
    fs::create_dir_all(tree.join("DEBIAN"))?;
    fs::write(tree.join("DEBIAN/control"), control)?;
    let path = command.place.join(format!("mdspace_{version}_{architecture}.deb"));
    output(Process::new("dpkg-deb").args(["--root-owner-group", "-Zxz", "--build"]).arg(tree).arg(&path))?;
    fs::remove_dir_all(tree)?;
    Ok(path)
}

/// The packages whose libraries the command in `tree` below this directory needs.
fn packages_of_libraries(place: &Path) -> Result<String> {
    // dpkg-shlibdeps needs the layout of a source package.
    fs::create_dir_all(place.join("debian"))?;
    fs::write(place.join("debian/control"), "Source: mdspace\n\nPackage: mdspace\nArchitecture: any\n")?;
    let mut libraries = Process::new("dpkg-shlibdeps");
    let depends = output(libraries.args(["-O", "-e", "tree/usr/bin/mdspace"]).current_dir(place))?;
    fs::remove_dir_all(place.join("debian"))?;
    let depends = depends.trim().strip_prefix("shlibs:Depends=").context("dpkg-shlibdeps names no libraries")?;
    Ok(depends.to_owned())
}

/// Copies a file, and creates its directory if necessary.
fn install(from: &Path, to: &Path, mode: u32) -> Result<()> {
    let directory = to.parent().context("it is put into a directory")?;
    fs::create_dir_all(directory)?;
    fs::copy(from, to).with_context(|| format!("{}", from.display()))?;
    Ok(fs::set_permissions(to, fs::Permissions::from_mode(mode))?)
}

/// The output of a program, which must succeed.
fn output(command: &mut Process) -> Result<String> {
    let program = command.get_program().to_owned();
    let output = command.output().with_context(|| format!("cannot start {}", program.display()))?;
    if !output.status.success() {
        bail!("{}: {}: {}", program.display(), output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}
