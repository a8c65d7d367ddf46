//! Finds what the tests need besides Rust, installs it if that is permitted, or names it for a person to install.
//!
//! Packages are installed only by root on a Debian-like system, from the distribution by apt-get. Components of rustup
//! are added if rustup is there. Nothing else on the machine changes; a second kernel for guests and the source of Rust's
//! standard library are stored below `target/`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use crate::fetched::{CBINDGEN, PROMTOOL};
use crate::steps::{Log, Verdict};
use crate::{cross, kernels, programs};

/// A Debian package, and a program (or the path of a file) that shows that it is installed.
const PACKAGES: &[(&str, &str)] = &[
    ("user-mode-linux", "linux.uml"),
    ("mdadm", "mdadm"),
    ("kmod", "modprobe"),
    ("dmsetup", "dmsetup"),
    ("lvm2", "vgcreate"),
    ("iproute2", "ip"),
    ("nbd-client", "nbd-client"),
    ("libnbd-bin", "nbdcopy"),
    ("nbdkit", "nbdkit"),
    ("nbdkit-plugin-dev", "/usr/include/nbdkit-plugin.h"),
    ("python3-libnbd", "nbdsh"),
    ("qemu-utils", "qemu-io"),
    ("util-linux", "setpriv"),
    ("fio", "fio"),
    ("fdisk", "sfdisk"),
    ("openssl", "openssl"),
    ("dpkg-dev", "dpkg-shlibdeps"),
    ("groff-base", "groff"),
    ("e2fsprogs", "mkfs.ext4"),
    ("gddrescue", "ddrescuelog"),
    ("ewf-tools", "ewfexport"),
    ("xfsprogs", "mkfs.xfs"),
    ("jq", "jq"),
    ("g++", "c++"),
    ("curl", "curl"),
    ("qemu-system-x86", "qemu-system-x86_64"),
    ("busybox-static", "busybox"),
    ("fuse3", "fusermount3"),
    ("btrfs-progs", "mkfs.btrfs"),
    ("chromium", "chromium"),
    ("python3-prometheus-client", OPENMETRICS_PARSER),
    ("gcc-aarch64-linux-gnu", "aarch64-linux-gnu-gcc"),
    ("libc6-dev-arm64-cross", cross::C_LIBRARY),
    ("qemu-user-static", "qemu-aarch64-static"),
    ("buildah", "buildah"),
    ("netavark", "/usr/lib/podman/netavark"),
    ("mmdebstrap", "mmdebstrap"),
    ("qemu-system-arm", "qemu-system-aarch64"),
    ("gcc-powerpc64le-linux-gnu", "powerpc64le-linux-gnu-gcc"),
    ("libc6-dev-ppc64el-cross", "/usr/powerpc64le-linux-gnu/lib/libc.so.6"),
    ("qemu-system-ppc", "qemu-system-ppc64"),
    ("xz-utils", "xz"),
    ("make", "make"),
    ("flex", "flex"),
    ("bison", "bison"),
    ("bc", "bc"),
    ("systemd", "systemd-analyze"),
    ("pkg-config", "pkg-config"),
    ("python3-pip", "pip3"),
    ("binutils", "readelf"),
];

/// Packages without a program, each with the path of a file.
pub(crate) const OPENMETRICS_PARSER: &str = "/usr/lib/python3/dist-packages/prometheus_client/openmetrics/parser.py";

/// Components of rustup, and a program that shows that each is installed.
const COMPONENTS: &[(&str, &str)] = &[("clippy", "cargo-clippy"), ("rustfmt", "rustfmt")];

/// Finds or installs everything.
pub(crate) fn run(log: &mut Log) -> Result<Verdict> {
    let mut done = Vec::new();
    let components: Vec<&str> =
        COMPONENTS.iter().filter(|(_, program)| !starts(program)).map(|(name, _)| *name).collect();
    if !components.is_empty() {
        if !starts("rustup") {
            bail!("install the Rust components: {}", components.join(" "));
        }
        log.run(Command::new("rustup").args(["component", "add"]).args(&components))?;
        done.extend(components);
    }
    let packages = missing_packages();
    if !packages.is_empty() {
        if !Path::new("/etc/debian_version").exists() || !is_root()? {
            bail!("as root on Debian, or with your system's own packages: apt-get install {}", packages.join(" "));
        }
        log.run(Command::new("apt-get").args(["-q", "update"]))?;
        let mut install = Command::new("apt-get");
        install.args(["-q", "-y", "--no-install-recommends", "install"]).args(&packages);
        log.run(install.env("DEBIAN_FRONTEND", "noninteractive"))?;
        let still_missing = missing_packages();
        if !still_missing.is_empty() {
            bail!("installed, but their programs are not in PATH: {}", still_missing.join(" "));
        }
        done.extend(packages);
    }
    let found = if done.is_empty() { "all there".into() } else { format!("installed {}", done.join(" ")) };
    let fetched =
        [kernels::fetch(log)?, cross::fetch(log)?, PROMTOOL.fetch(log)?, CBINDGEN.fetch(log)?, programs::fetch(log)?];
    Ok(Verdict::Passed(format!("{found}; {}", fetched.join("; "))))
}

/// Whether `program` is in a directory of programs.
pub(crate) fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from); // not in every user's PATH
    std::env::split_paths(&path).chain(system).any(|directory| directory.join(program).is_file())
}

/// The packages that are not installed.
fn missing_packages() -> Vec<&'static str> {
    PACKAGES.iter().filter(|(_, program)| !is_there(program)).map(|(name, _)| *name).collect()
}

fn starts(program: &str) -> bool {
    let status = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

pub(crate) fn is_root() -> Result<bool> {
    let output = Command::new("id").arg("-u").output()?;
    Ok(output.stdout.trim_ascii() == b"0")
}
