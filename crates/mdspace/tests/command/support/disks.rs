//! Disks with partition tables that sfdisk writes, as those of a NAS.

use crate::support::Workplace;
use std::io::Write;
use std::process::{Command, Stdio};

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
    let mut sfdisk = Command::new("sfdisk")
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

/// Bytes of the RAID-5 of the NAS.
pub(crate) const DATA_BYTES: u64 = 36 * MIB;

/// A file of an ext4 with a file `photos/list` in it.
pub(crate) fn ext4(here: &Workplace, bytes: u64) -> Vec<u8> {
    let (tree, image) = (here.path().join("tree/photos"), here.path().join("ext4.img"));
    std::fs::create_dir_all(&tree).expect("of our own");
    std::fs::write(tree.join("list"), "summer\n").expect("of our own");
    std::fs::File::create(&image).expect("of our own").set_len(bytes).expect("it is sparse");
    let made = Command::new("mkfs.ext4")
        .args(["-q", "-L", "photos", "-d"])
        .args([here.path().join("tree").as_path(), &image])
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .status();
    assert!(made.expect("mkfs.ext4 starts (Debian's package e2fsprogs)").success());
    std::fs::read(image).expect("of our own")
}

/// A physical volume of LVM in `bytes` bytes, with a linear volume `files` of extents of 1 MiB from the first on.
pub(crate) fn physical_volume(bytes: u64, extents: u64, data: &[u8]) -> Vec<u8> {
    physical_volume_of('a', bytes, &group_text(&[('a', extents)]), data)
}

/// The metadata of a group with a volume `files` over these physical volumes, each with a letter of its id.
pub(crate) fn group_text(places: &[(char, u64)]) -> String {
    let (mut physical, mut segments, mut start) = (String::new(), String::new(), 0);
    for (index, (letter, extents)) in places.iter().enumerate() {
        let id = letter.to_string().repeat(32);
        physical += &format!("pv{index} {{ id = \"{id}\"\npe_start = 2048\npe_count = {extents} }}\n");
        segments += &format!(
            "segment{} {{ start_extent = {start}\nextent_count = {extents}\ntype = \"striped\"\n\
             stripes = [\"pv{index}\", 0] }}\n",
            index + 1
        );
        start += extents;
    }
    format!(
        "vg1 {{\nid = \"x\"\nseqno = 1\nstatus = [\"READ\"]\nextent_size = 2048\n\
         physical_volumes {{ {physical} }}\n\
         logical_volumes {{ files {{ status = [\"READ\", \"WRITE\", \"VISIBLE\"]\nsegment_count = {}\n{segments} }} }} }}\n",
        places.len()
    )
}

/// A physical volume with the id of one letter, this metadata, and data from its first extent on.
pub(crate) fn physical_volume_of(letter: char, bytes: u64, text: &str, data: &[u8]) -> Vec<u8> {
    let id = letter.to_string().repeat(32);
    let mut volume = vec![0; bytes as usize];
    volume[512..520].copy_from_slice(b"LABELONE");
    volume[532..536].copy_from_slice(&32_u32.to_le_bytes());
    volume[536..544].copy_from_slice(b"LVM2 001");
    volume[544..576].copy_from_slice(id.as_bytes());
    for (index, number) in [MIB, 0, 0, 0, 4096, MIB - 4096].iter().enumerate() {
        volume[584 + 8 * index..][..8].copy_from_slice(&number.to_le_bytes());
    }
    let area = &mut volume[4096..];
    area[4..20].copy_from_slice(b" LVM2 x[5A%r0N*>");
    area[40..48].copy_from_slice(&512_u64.to_le_bytes());
    area[48..56].copy_from_slice(&(text.len() as u64).to_le_bytes());
    let step = |sum: u32, _| if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 };
    let sum = text.bytes().fold(0xf597_a6cf_u32, |sum, byte| (0..8).fold(sum ^ u32::from(byte), step));
    area[56..60].copy_from_slice(&sum.to_le_bytes());
    area[512..512 + text.len()].copy_from_slice(text.as_bytes());
    volume[MIB as usize..][..data.len()].copy_from_slice(data);
    volume
}
