//! A system's tree: fetched by mmdebstrap, which checks the packages' signatures and runs nothing of them.
//!
//! What a guest needs before it can mount the tree is in a small archive that its kernel unpacks: busybox, the modules of
//! the file system, and tests/kernel/initrd.sh.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::{Facts, System};
use crate::root;
use crate::steps::Log;

const SUITE: &str = "sid";
const ARCHIVE: &str = "deb http://deb.debian.org/debian sid main";

/// What the scripts of tests/kernel use, beside the kernel. A kernel demands a maker of its first root: the smallest.
const PACKAGES: &str = "bash,busybox-static,coreutils,diffutils,dmsetup,findutils,gawk,grep,iproute2,kmod,libgcc-s1,mdadm,\
                        mount,nbd-client,procps,python3,python3-libnbd,sed,tiny-initramfs,util-linux";

/// The modules with which the guest mounts its root and finds its disks.
const FIRST_MODULES: [&str; 4] = ["virtio_pci", "9pnet_virtio", "9p", "virtio_blk"];

/// A tree that is complete.
pub(super) struct Tree {
    pub(super) path: PathBuf,
    /// The kernel's release.
    pub(super) release: String,
}

impl Tree {
    fn place(facts: &Facts) -> PathBuf {
        root().join("target/emulated").join(facts.name)
    }

    /// The tree, if it was fetched.
    pub(super) fn of(system: System) -> Result<Self> {
        let place = Self::place(&system.facts());
        let release = fs::read_to_string(place.join("release"));
        let release = release
            .with_context(|| format!("{}: `cargo xtask long newest pages pages-64k` fetches it", place.display()))?;
        Ok(Self { path: place.join("root"), release })
    }

    /// The kernel's image.
    pub(super) fn kernel(&self) -> PathBuf {
        self.modules().join("vmlinuz")
    }

    /// The archive that the kernel unpacks.
    pub(super) fn first_root(&self) -> PathBuf {
        self.path.with_file_name("initrd")
    }

    fn modules(&self) -> PathBuf {
        self.path.join("usr/lib/modules").join(&self.release)
    }

    /// Fetches the tree if necessary.
    ///
    /// # Errors
    /// The archive is not to be had, or lacks a package.
    pub(super) fn fetch(log: &mut Log, system: System) -> Result<Self> {
        if let Ok(tree) = Self::of(system) {
            return Ok(tree);
        }
        let facts = system.facts();
        let place = Self::place(&facts);
        if place.exists() {
            fs::remove_dir_all(&place)?; // an interrupted attempt
        }
        fs::create_dir_all(&place)?;
        let path = place.join("root");
        let mut fetch = Command::new("mmdebstrap");
        fetch.arg("--variant=extract").arg(format!("--architectures={}", facts.architecture));
        fetch.arg(format!("--include={PACKAGES},{}", facts.kernel)).args(aptopt()?);
        log.run(fetch.arg(SUITE).arg(&path).arg(ARCHIVE))?;

        let entry = fs::read_dir(path.join("usr/lib/modules"))?.next().context("the tree has no kernel")??;
        let release = entry.file_name().to_string_lossy().into_owned();
        let tree = Self { path, release };
        // The guest mounts these from elsewhere, on a root that it cannot write.
        for directory in ["proc", "sys", "dev", "run", "tmp", &root().to_string_lossy()[1..]] {
            fs::create_dir_all(tree.path.join(directory))?;
        }
        log.run(Command::new("depmod").arg("--basedir").arg(&tree.path).arg(&tree.release))?;
        tree.make_first_root(log)?;
        fs::write(place.join("release"), &tree.release)?;
        Ok(tree)
    }

    fn make_first_root(&self, log: &mut Log) -> Result<()> {
        let place = self.path.with_file_name("first");
        for directory in ["bin", "modules", "proc", "sys", "dev", "new"] {
            fs::create_dir_all(place.join(directory))?;
        }
        fs::copy(self.path.join("usr/bin/busybox"), place.join("bin/busybox"))?;
        let init = place.join("init");
        fs::copy(root().join("tests/kernel/initrd.sh"), &init)?;
        fs::set_permissions(&init, fs::Permissions::from_mode(0o755))?;
        let mut order = String::new();
        for module in self.first_modules()? {
            let name = module.file_name().context("a module's name")?.to_string_lossy().into_owned();
            let name = name.trim_end_matches(".xz");
            if order.lines().any(|line| line == name) {
                continue;
            }
            let mut unpack = Command::new("sh");
            unpack.args(["-c", r#"xz --decompress --stdout "$0" >"$1""#]).arg(&module);
            log.run(unpack.arg(place.join("modules").join(name)))?;
            order += &format!("{name}\n");
        }
        fs::write(place.join("modules/order"), order)?;
        let pack = r#"find . | busybox cpio -o -H newc | gzip -1 >"$0""#;
        log.run(Command::new("sh").args(["-c", pack]).arg(self.first_root()).current_dir(&place))
    }

    /// Files of modules, each behind those that it needs.
    fn first_modules(&self) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for module in FIRST_MODULES {
            let mut ask = Command::new("modprobe");
            ask.arg("--dirname").arg(&self.path).args(["--set-version", &self.release, "--show-depends", module]);
            let output = ask.output().context("modprobe")?;
            ensure!(output.status.success(), "{module}: {}", String::from_utf8_lossy(&output.stderr));
            let text = String::from_utf8(output.stdout)?;
            let needed = text.lines().filter_map(|line| line.strip_prefix("insmod "));
            files.extend(needed.map(|path| Path::new(path.trim()).to_owned()));
        }
        Ok(files)
    }
}

/// The machine's own word on archives that are no longer updated, which mmdebstrap does not read.
fn aptopt() -> Result<Vec<String>> {
    let output =
        Command::new("apt-config").args(["dump", "Acquire::Check-Valid-Until"]).output().context("apt-config")?;
    let text = String::from_utf8(output.stdout)?;
    Ok(text.lines().map(|line| format!("--aptopt={}", line.trim_end_matches(';'))).collect())
}
