//! Partition tables: those that sfdisk writes, damaged and contradictory ones, and tables of the other sector size.
//! The expected places are sfdisk's own.

use futures_util::FutureExt;
use mdspace_disk::Source;
use mdspace_disk::table::{Kind, Table, find};
use std::io::Write;
use std::process::{Command, Stdio};

const MIB: usize = 1 << 20;

fn table(disk: &[u8]) -> Option<Table> {
    find(disk).now_or_never().expect("memory answers at once").expect("memory is readable")
}

/// An image of `bytes` with the table that sfdisk writes from `script`, in sectors of 512 bytes.
fn image(bytes: usize, script: &str) -> Vec<u8> {
    let file = tempfile::NamedTempFile::new().expect("a file of our own");
    file.as_file().set_len(bytes as u64).expect("it is sparse");
    let mut sfdisk = Command::new("sfdisk")
        .args(["--quiet", "--no-reread", "--no-tell-kernel"])
        .arg(file.path())
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .stdin(Stdio::piped())
        .spawn()
        .expect("sfdisk starts (Debian's package fdisk)");
    sfdisk.stdin.take().expect("a pipe").write_all(script.as_bytes()).expect("it reads");
    assert!(sfdisk.wait().expect("it ends").success(), "{script}");
    std::fs::read(file.path()).expect("of our own")
}

/// The GPT of `disk` in sectors of 4096 bytes, as its disk shows it behind a bridge that presents such sectors: old
/// versions of sfdisk have no option for that.
fn with_sectors_of_4096(disk: &[u8]) -> Vec<u8> {
    const ENTRIES: usize = 128 * 128;
    let crc = |bytes: &[u8]| crc32fast::hash(bytes);
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    let mut entries = disk[1024..1024 + ENTRIES].to_vec();
    for entry in entries.chunks_exact_mut(128).filter(|entry| entry[0] != 0) {
        let (first, end) = (number(&entry[32..40]) / 8, (number(&entry[40..48]) + 1) / 8);
        entry[32..40].copy_from_slice(&first.to_le_bytes());
        entry[40..48].copy_from_slice(&(end - 1).to_le_bytes());
    }
    let mut new = vec![0; disk.len()];
    new[..512].copy_from_slice(&disk[..512]);
    let last = disk.len() as u64 / 4096 - 1;
    for (own, other, entries_at) in [(1, last, 2), (last, 1, last - 4)] {
        let mut header = disk[512..604].to_vec();
        for (at, value) in [(24, own), (32, other), (72, entries_at)] {
            header[at..at + 8].copy_from_slice(&u64::to_le_bytes(value));
        }
        header[88..92].copy_from_slice(&crc(&entries).to_le_bytes());
        header[16..20].fill(0);
        let sum = crc(&header);
        header[16..20].copy_from_slice(&sum.to_le_bytes());
        new[own as usize * 4096..][..92].copy_from_slice(&header);
        new[entries_at as usize * 4096..][..ENTRIES].copy_from_slice(&entries);
    }
    new
}

/// Number, first byte, length.
fn places(table: &Table) -> Vec<(u32, u64, u64)> {
    table.partitions.iter().map(|partition| (partition.number, partition.at, partition.bytes)).collect()
}

const GPT: &str = "label: gpt\n\
                   start=1MiB, size=2MiB, type=R, name=\"system\"\n\
                   start=4MiB, size=1MiB, type=L\n\
                   start=5MiB, size=8MiB, type=R, name=\"größer\"\n";
const GPT_PLACES: [(u32, u64, u64); 3] = [(1, 1 << 20, 2 << 20), (2, 4 << 20, 1 << 20), (3, 5 << 20, 8 << 20)];

#[test]
fn a_gpt_is_read_in_either_sector_size_and_from_either_copy() {
    for sector in [512, 4096] {
        let whole = if sector == 512 { image(16 * MIB, GPT) } else { with_sectors_of_4096(&image(16 * MIB, GPT)) };
        let found = table(&whole).expect("there is one");
        assert_eq!((found.kind, found.sector_bytes), (Kind::Gpt, sector));
        assert_eq!(places(&found), GPT_PLACES);
        assert_eq!(found.notes, [""; 0]);
        assert_eq!(found.partitions[0].type_name, Some("Linux RAID"));
        assert_eq!(found.partitions[2].name.as_deref(), Some("größer"));
        let (sector, end) = (sector as usize, whole.len());
        // What is destroyed, and the words of the note.
        for (range, words) in [
            (sector..sector + 8, "first copy of the GPT has no signature"),
            (sector + 60..sector + 61, "first copy of the GPT has a wrong checksum of its header"),
            (2 * sector..2 * sector + 1, "first copy of the GPT has a wrong checksum of its entries"),
            (0..3 * sector, "protective MBR is damaged"),
            (end - sector..end, "second copy of the GPT has no signature"),
            (end - sector + 60..end - sector + 61, "second copy of the GPT has a wrong checksum"),
        ] {
            let mut disk = whole.clone();
            disk[range.clone()].iter_mut().for_each(|byte| *byte ^= 0x55);
            let found = table(&disk).unwrap_or_else(|| panic!("{range:?}: no table"));
            assert_eq!(places(&found), GPT_PLACES, "{range:?}");
            assert!(found.notes.iter().any(|note| note.contains(words)), "{range:?}: {:?}", found.notes);
        }
        let mut disk = whole;
        disk[..3 * sector].fill(0);
        disk[end - sector..].fill(0);
        assert_eq!(table(&disk), None);
    }
}

#[test]
fn an_mbr_is_read_with_its_logical_partitions() {
    let script = "label: dos\n\
                  start=2048, size=4096, type=fd\n\
                  start=8192, size=20000, type=5\n\
                  start=10240, size=2048, type=83\n\
                  start=14336, size=4096, type=fd\n\
                  start=20480, size=100, type=8e\n";
    // sfdisk fills the primary entries first, so that the logical ones need their own numbers.
    let script = script.replace("start=10240", "5 : start=10240").replace("start=14336", "6 : start=14336");
    let script = script.replace("start=20480", "7 : start=20480");
    let disk = image(16 * MIB, &script);
    let found = table(&disk).expect("there is one");
    assert_eq!((found.kind, found.sector_bytes), (Kind::Mbr, 512));
    let sectors = [(1, 2048, 4096), (5, 10_240, 2048), (6, 14_336, 4096), (7, 20_480, 100)];
    assert_eq!(places(&found), sectors.map(|(number, at, count)| (number, at * 512, count * 512)));
    assert_eq!(
        found.partitions.iter().map(|partition| &*partition.type_id).collect::<Vec<_>>(),
        ["0xfd", "0x83", "0xfd", "0x8e"]
    );
    assert_eq!(found.notes, [""; 0]);
}

#[test]
fn an_mbr_in_sectors_of_the_other_size_is_known_by_what_its_partitions_hold() {
    let mut disk = image(16 * MIB, "label: dos\nstart=256, size=1024, type=83\nstart=2048, size=1024, type=83\n");
    assert_eq!(table(&disk).expect("there is one").sector_bytes, 512, "no evidence");
    // ext's magic where the second partition begins in sectors of 4096 bytes.
    disk[8 * MIB + 0x438..][..2].copy_from_slice(b"\x53\xef");
    let found = table(&disk).expect("there is one");
    assert_eq!(found.sector_bytes, 4096);
    assert_eq!(places(&found), [(1, 1 << 20, 4 << 20), (2, 8 << 20, 4 << 20)]);
}

#[test]
fn of_contradicting_tables_the_kernels_choice_counts() {
    let gpt = image(16 * MIB, GPT);
    let mbr = image(16 * MIB, "label: dos\nstart=4096, size=4096, type=83\n");
    // An MBR written over the protective one: the GPT is a leftover.
    let mut disk = gpt.clone();
    disk[..512].copy_from_slice(&mbr[..512]);
    let found = table(&disk).expect("there is one");
    assert_eq!((found.kind, places(&found)), (Kind::Mbr, vec![(1, 4096 * 512, 4096 * 512)]));
    assert!(found.notes[0].contains("a GPT is there too"), "{:?}", found.notes);
    // A hybrid: a second entry beside the protective one, once with and once without its like in the GPT.
    for (first, is_known) in [(8192_u32, true), (8193, false)] {
        let mut disk = gpt.clone();
        let mut entry = [0; 16];
        entry[4] = 0x83;
        entry[8..12].copy_from_slice(&first.to_le_bytes());
        entry[12..].copy_from_slice(&2048_u32.to_le_bytes());
        disk[462..478].copy_from_slice(&entry);
        let found = table(&disk).expect("there is one");
        assert_eq!((found.kind, &*places(&found)), (Kind::Gpt, &GPT_PLACES[..]));
        assert!(found.notes.iter().any(|note| note.contains("hybrid")), "{:?}", found.notes);
        assert_eq!(found.notes.iter().any(|note| note.contains("the GPT has not")), !is_known, "{:?}", found.notes);
    }
    // The second copy of another table.
    let other = image(16 * MIB, "label: gpt\nstart=1MiB, size=3MiB\n");
    let mut disk = gpt;
    disk[15 * MIB..].copy_from_slice(&other[15 * MIB..]);
    let found = table(&disk).expect("there is one");
    assert_eq!(places(&found), GPT_PLACES);
    assert!(found.notes[0].contains("two copies of the GPT differ"), "{:?}", found.notes);
}

#[test]
fn an_image_that_ends_in_a_partition_is_noted_and_a_longer_one_is_not() {
    let whole = image(16 * MIB, GPT);
    let found = table(&whole[..10 * MIB]).expect("there is one");
    assert_eq!(places(&found), GPT_PLACES);
    assert!(found.notes.iter().any(|note| note.contains("partition 3 ends at byte 13631488, past the end")));
    let longer = [&whole[..], &[0; MIB]].concat();
    let found = table(&longer).expect("there is one");
    assert_eq!((places(&found), &found.notes[..]), (GPT_PLACES.to_vec(), &[][..]));
}

#[test]
fn file_systems_and_members_are_no_tables() {
    let mut fat = vec![0; MIB];
    fat[510..512].copy_from_slice(b"\x55\xaa");
    fat[82..87].copy_from_slice(b"FAT32");
    fat[450] = 0x83;
    fat[458] = 1;
    assert_eq!(table(&fat), None);
    let mut flags = image(16 * MIB, "label: dos\nstart=4096, size=4096, type=83\n");
    flags[462] = 0x33;
    assert_eq!(table(&flags), None, "a boot flag that is none");
    assert_eq!(table(&[]), None);
    assert_eq!(table(&[0; 600]), None);
}

#[test]
fn a_chain_of_records_that_loops_or_leaves_ends() {
    let script = "label: dos\nstart=8192, size=20000, type=5\n5 : start=10240, size=2048, type=83\n";
    let whole = image(16 * MIB, script);
    let record = 8192 * 512;
    for (link, words) in [(0_u32, "loop"), (1, "damaged, or ends"), (u32::MAX, "damaged, or ends")] {
        let mut disk = whole.clone();
        disk[record + 462 + 4] = 5;
        disk[record + 462 + 8..][..4].copy_from_slice(&link.to_le_bytes());
        disk[record + 462 + 12..][..4].copy_from_slice(&100_u32.to_le_bytes());
        let found = table(&disk).expect("there is one");
        assert_eq!(places(&found), [(5, 10_240 * 512, 2048 * 512)]);
        assert!(found.notes.iter().any(|note| note.contains(words)), "{link}: {:?}", found.notes);
    }
}

/// A disk of which some bytes cannot be read.
struct Damaged<'a>(&'a [u8], std::ops::Range<u64>);

impl Source for Damaged<'_> {
    fn bytes(&self) -> u64 {
        self.0.len() as u64
    }

    async fn read(&self, at: u64, length: usize) -> Result<Vec<u8>, String> {
        if at < self.1.end && at + length as u64 > self.1.start {
            return Err("a bad sector".to_owned());
        }
        self.0.read(at, length).await
    }
}

#[test]
fn a_disk_with_an_unreadable_start_has_its_second_gpt() {
    let whole = image(16 * MIB, GPT);
    let read = |disk: &Damaged<'_>| find(disk).now_or_never().expect("at once");
    let found = read(&Damaged(&whole, 0..512)).expect("readable").expect("there is one");
    assert_eq!(places(&found), GPT_PLACES);
    assert!(found.notes.iter().any(|note| note.contains("a bad sector")), "{:?}", found.notes);
    let mbr = image(16 * MIB, "label: dos\nstart=4096, size=4096, type=83\n");
    assert_eq!(read(&Damaged(&mbr, 0..512)), Err("a bad sector".to_owned()));
}
