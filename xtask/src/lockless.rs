//! The kernel that judges lockless bitmaps, and the step that asks it. Debian's kernels are built without them
//! (`CONFIG_MD_LLBITMAP`), so this one is built here, for User Mode Linux, from the source package of Debian's unstable
//! distribution. It has no modules, and little else than md.
//!
//! Kernel, mdadm and the libraries of that mdadm are kept below `target/`. Facts: the kernel's
//! `drivers/md/md-llbitmap.c`, and `Documentation/virt/uml/user_mode_linux_howto_v2.rst`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::catalogue::{self, run_guest};
use crate::guest::Guest;
use crate::kernels::Kernel;
use crate::steps::{Log, Verdict};
use crate::{apt, root};

/// Programs that build the kernel.
pub(crate) const NEEDS: &[&str] = &["make", "cc", "flex", "bison", "bc", "xz", "dpkg-deb", "depmod"];

const SOURCE: &str = "sid main";
const MDADM: [&str; 5] = ["mdadm", "libc6", "libudev1", "libcap2", "libgcc-s1"];

/// Settings beside those of the smallest kernel there is.
const SETTINGS: &str = "\
    64BIT BINFMT_ELF BINFMT_SCRIPT PRINTK PRINTK_TIME BUG FUTEX EPOLL SIGNALFD TIMERFD EVENTFD AIO IO_URING \
    POSIX_TIMERS ADVISE_SYSCALLS MEMBARRIER SHMEM MULTIUSER FHANDLE FILE_LOCKING INOTIFY_USER SYSVIPC BLOCK \
    BLK_DEV BLK_DEV_UBD BLK_DEV_LOOP BLK_DEV_NBD PROC_FS PROC_SYSCTL SYSFS TMPFS DEVTMPFS DEVTMPFS_MOUNT \
    HOSTFS NET UNIX INET TTY UNIX98_PTYS STDERR_CONSOLE SSL NULL_CHAN TTY_CHAN HIGH_RES_TIMERS MD BLK_DEV_MD \
    MD_BITMAP MD_LLBITMAP MD_RAID0 MD_RAID1 MD_RAID10 MD_RAID456 KALLSYMS";
/// Settings that are left out.
const WITHOUT: &str = "MODULES RAID6_PQ_BENCHMARK CC_OPTIMIZE_FOR_SIZE";

/// The directory of all of it. It is complete if the kernel's program is there.
pub(crate) fn place() -> PathBuf {
    root().join("target/lockless-kernel")
}

/// The kernel's program.
pub(crate) fn program() -> PathBuf {
    place().join("linux")
}

/// Builds the kernel if necessary, and asks it.
pub(crate) fn run(log: &mut Log) -> Result<Verdict> {
    if !program().is_file() {
        make(log)?;
    }
    catalogue::build(log)?;
    let guest = Guest::default().kernel(Kernel::Lockless).memory("1G").limit(Duration::from_secs(1500));
    let (command, mdadm) = (root().join(catalogue::MDSPACE), place().join("mdadm"));
    run_guest(log, &guest, "lockless.sh", &[command.as_os_str(), mdadm.as_os_str()])?;
    Ok(Verdict::Passed(format!("Linux {}: {}", Kernel::Lockless.release()?, log.last_line()?)))
}

fn make(log: &mut Log) -> Result<()> {
    let place = place();
    if place.exists() {
        fs::remove_dir_all(&place)?; // an interrupted attempt
    }
    for package in apt::fetch(log, &place.join("tools"), SOURCE, &[], &MDADM)? {
        unpack(log, &package, &place.join("mdadm"))?;
    }
    let source = source_package(log, &place)?;
    for package in apt::fetch(log, &place.join("source"), SOURCE, &[], &[&source])? {
        unpack(log, &package, &place.join("source"))?;
    }
    let tree = place.join("tree");
    fs::create_dir_all(&tree)?;
    let archive = place.join("source/usr/src").join(format!("{source}.tar.xz"));
    let mut tar = Command::new("tar");
    tar.args(["--extract", "--strip-components=1", "--file"]).arg(archive).arg("--directory").arg(&tree);
    // Most of the source, which this kernel has no use for. The settings of all parts are needed.
    for unused in ["drivers/gpu/drm", "drivers/net", "drivers/media", "drivers/staging", "sound"] {
        tar.arg(format!("--exclude=*/{unused}/*/*.[ch]"));
    }
    log.run(tar.args(["--exclude=*/Documentation/*", "--exclude=*/boot/dts/*", "--exclude=*/tools/testing/*"]))?;
    fs::create_dir_all(tree.join("Documentation"))?;
    fs::write(tree.join("Documentation/Kconfig"), "")?;
    build(log, &tree)?;

    let release = fs::read_to_string(tree.join("include/config/kernel.release"))?;
    let modules = place.join("modules").join(release.trim());
    fs::create_dir_all(&modules)?;
    for list in ["modules.builtin", "modules.builtin.modinfo"] {
        fs::copy(tree.join(list), modules.join(list))?;
    }
    fs::write(modules.join("modules.order"), "")?;
    let as_root = place.join("modules-root/lib");
    fs::create_dir_all(&as_root)?;
    std::os::unix::fs::symlink(place.join("modules"), as_root.join("modules"))?;
    log.run(Command::new("depmod").arg("--basedir").arg(place.join("modules-root")).arg(release.trim()))?;
    log.run(Command::new("strip").arg(tree.join("linux")).arg("-o").arg(program()))?;
    for done in ["tree", "source", "tools"] {
        fs::remove_dir_all(place.join(done))?;
    }
    Ok(())
}

/// The package with the newest source, by the one that only names it.
fn source_package(log: &mut Log, place: &Path) -> Result<String> {
    let packages = apt::fetch(log, &place.join("source"), SOURCE, &[], &["linux-source"])?;
    let package = packages.first().context("linux-source is not there")?;
    let output = Command::new("dpkg-deb").arg("--field").arg(package).arg("Depends").output().context("dpkg-deb")?;
    let text = String::from_utf8(output.stdout)?;
    Ok(text.split_whitespace().next().context("linux-source names no source")?.to_owned())
}

fn unpack(log: &mut Log, package: &Path, into: &Path) -> Result<()> {
    log.run(Command::new("dpkg-deb").arg("--extract").arg(package).arg(into))?;
    fs::remove_file(package)?;
    Ok(())
}

fn build(log: &mut Log, tree: &Path) -> Result<()> {
    let make = |words: &[&str]| {
        let mut make = Command::new("make");
        make.args(["--silent", "ARCH=um", "SUBARCH=x86_64"]).args(words).current_dir(tree);
        make
    };
    log.run(&mut make(&["tinyconfig"]))?;
    let mut settings = Command::new(tree.join("scripts/config"));
    for name in SETTINGS.split_whitespace() {
        settings.args(["--enable", name]);
    }
    for name in WITHOUT.split_whitespace() {
        settings.args(["--disable", name]);
    }
    log.run(settings.current_dir(tree))?;
    log.run(&mut make(&["olddefconfig"]))?;
    let jobs = format!("--jobs={}", std::thread::available_parallelism()?);
    log.run(&mut make(&[&jobs, "linux"]))
}
