//! Disks with partition tables that sfdisk writes, as those of a NAS.

use crate::support::Workplace;
use std::io::Write;
use std::process::Stdio;

/// Bytes.
pub(crate) const MIB: u64 = 1 << 20;

/// The disks of the NAS, and their partitions' first MiB and length in MiB.
pub(crate) const DISKS: [&str; 3] = ["disk1.img", "disk2.img", "disk3.img"];
const PARTITIONS: [(u64, u64); 3] = [(1, 8), (9, 8), (17, 20)];
/// Bytes of each disk.
pub(crate) const DISK_BYTES: u64 = 40 * MIB;

/// A disk with a table that sfdisk writes from `script`.
pub(crate) fn disk(here: &Workplace, name: &str, bytes: u64, script: &str) {
    let path = here.path().join(name);
    std::fs::File::create(&path).expect("of our own").set_len(bytes).expect("it is sparse");
    let mut sfdisk = std::process::Command::new("sfdisk")
        .args(["--quiet", "--no-reread", "--no-tell-kernel"])
        .arg(&path)
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .stdin(Stdio::piped())
        .spawn()
        .expect("sfdisk starts (Debian's package fdisk)");
    sfdisk.stdin.take().expect("a pipe").write_all(script.as_bytes()).expect("it reads");
    assert!(sfdisk.wait().expect("it ends").success(), "{script}");
}

/// Content of an array that shows which it is, and where.
pub(crate) fn content(bytes: u64, seed: u64) -> Vec<u8> {
    (0..bytes / 8).flat_map(|index| (index.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed).to_le_bytes()).collect()
}

/// The disks of a NAS: a RAID-1 for its system, one for swap, and a RAID-5 with data; returns the RAID-5's content.
pub(crate) fn nas(here: &Workplace, label: &str) -> Vec<u8> {
    let lines = PARTITIONS.map(|(at, length)| format!("start={at}MiB, size={length}MiB, type=fd\n"));
    let lines = if label == "gpt" { lines.map(|line| line.replace("fd", "R")) } else { lines };
    for name in DISKS {
        disk(here, name, DISK_BYTES, &format!("label: {label}\n{}", lines.concat()));
    }
    for (number, level, name, metadata) in [(1, 1, "nas:0", "1.2"), (2, 1, "nas:1", "1.0"), (3, 5, "nas:2", "1.2")] {
        let members = DISKS.map(|disk| format!("{disk}:{number}")).join(" ");
        here.run(&format!("create --level {level} --metadata {metadata} --name {name} {members}")).ok();
    }
    let data = content(8 * MIB, 2);
    here.run_with("write disk1.img:3 disk2.img:3 disk3.img:3", &data).ok();
    here.run_with("write disk1.img:1 disk2.img:1 disk3.img:1", &content(MIB, 0)).ok();
    data
}
