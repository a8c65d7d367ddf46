//! Whole systems in emulation: Debian's newest kernel and mdadm, also with pages of 16 and of 64 KiB on processors that
//! have them. A guest of such a kernel runs the same scripts as one in User Mode Linux (tests/kernel/).
//!
//! A system is a tree of Debian's unstable distribution below `target/`, which no package manager uses again. The guest
//! mounts it read-only as its root, and the workspace at the place that it has on the host. Remove `target/emulated` to
//! fetch newer ones. Emulation says nothing about speed. [`table`] says what was tested where.

mod boot;
mod oracle;
pub(crate) mod table;
mod tree;

pub(crate) use boot::emulator;
pub(crate) use oracle::{goes_to_an_older_kernel, newest, newest_geometry, pages, pages_64k, record_a_block};

/// Programs that fetch a system and run it.
pub(crate) const NEEDS: &[&str] =
    &["mmdebstrap", "depmod", "modprobe", "busybox", "xz", "cc", "mdadm", "qemu-system-x86_64", "linux.uml", "python3"];

/// As [`NEEDS`], for other processors.
pub(crate) const PAGES_NEEDS: &[&str] =
    &["mmdebstrap", "depmod", "modprobe", "busybox", "xz", "qemu-system-aarch64", "aarch64-linux-gnu-gcc"];
pub(crate) const PAGES_64K_NEED: &[&str] =
    &["mmdebstrap", "depmod", "modprobe", "busybox", "xz", "qemu-system-ppc64", "powerpc64le-linux-gnu-gcc"];

/// A system that is fetched and emulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum System {
    /// The newest kernel for the host's processor.
    Newest,
    /// aarch64 with pages of 16 KiB.
    #[value(name = "pages-16k")]
    Pages16K,
    /// powerpc64le with pages of 64 KiB.
    #[value(name = "pages-64k")]
    Pages64K,
}

/// What is known of a system beforehand.
struct Facts {
    /// The name of its directory.
    name: &'static str,
    /// The key of its record in the table, and the processor there.
    key: &'static str,
    processor: &'static str,
    /// Debian's name of the processor.
    architecture: &'static str,
    /// Debian's name of the newest kernel of this kind.
    kernel: &'static str,
    /// The command of its emulator, up to the machine.
    emulator: &'static [&'static str],
    /// The kernel's name of the console.
    console: &'static str,
}

impl System {
    fn facts(self) -> Facts {
        match self {
            Self::Newest => Facts {
                name: "newest",
                key: "2-newest",
                processor: "x86-64",
                architecture: "amd64",
                kernel: "linux-image-amd64",
                emulator: &["qemu-system-x86_64", "-machine", "q35", "-cpu", "max"],
                console: "ttyS0",
            },
            Self::Pages16K => Facts {
                name: "pages-16k",
                key: "5-pages-16k",
                processor: "aarch64, pages of 16 KiB",
                architecture: "arm64",
                kernel: "linux-image-arm64-16k",
                // Pointer authentication by qemu's own hash: the processor's takes most of the time in emulation.
                emulator: &["qemu-system-aarch64", "-machine", "virt", "-cpu", "max,pauth-impdef=on"],
                console: "ttyAMA0",
            },
            Self::Pages64K => Facts {
                name: "pages-64k",
                key: "5-pages-64k",
                processor: "powerpc64le, pages of 64 KiB",
                architecture: "ppc64el",
                kernel: "linux-image-powerpc64le-64k",
                emulator: &["qemu-system-ppc64", "-machine", "pseries", "-cpu", "POWER9"],
                console: "hvc0",
            },
        }
    }
}
