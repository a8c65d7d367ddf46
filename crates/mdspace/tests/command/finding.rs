//! Unusual members: several arrays in one list, whole directories, logical block sizes in superblocks, and unreadable
//! blocks.

use crate::support::nbd::block_sizes;
use crate::support::{Server, Workplace, parsed};
use std::os::unix::fs::FileExt;

#[test]
fn members_of_several_arrays_are_named_and_one_array_is_chosen() {
    let here = Workplace::new();
    here.run("create --level 1 --size 8M --name host:one a b").ok();
    here.run("create --level 5 --size 8M --name two c d e").ok();
    here.run_with("write c d e", b"the second").ok();
    let uuid = |member: &str| {
        let report = parsed(&here.run(&format!("examine --json {member}")).text());
        report["members"][0]["array_uuid"].as_str().expect("it has one").to_owned()
    };
    let (first, second) = (uuid("a"), uuid("c"));
    let refused = here.run("read a b c d e");
    refused.expect(2, &["2 arrays", &first, &second, "host:one", "\"two\"", "(raid5): c d e", "--uuid", "--name"]);
    for choice in [format!("--uuid {second}"), "--name two".to_owned()] {
        let run = here.run(&format!("read a b c d e {choice} --length 10"));
        assert_eq!(run.ok().stdout, b"the second", "{choice}");
    }
    // The host's name may be left out, as in mdadm.
    for choice in ["--name one", "--name host:one"] {
        here.run(&format!("read a b c d e {choice} --length 1")).ok();
    }
    here.run("read a b c d e --name host").expect(2, &["no member of array \"host\""]);
}

#[test]
fn a_directory_stands_for_the_members_in_it() {
    let here = Workplace::new();
    here.run("create --level 1 --size 8M a b").ok();
    std::fs::create_dir(here.path().join("disks")).expect("a directory of our own");
    for name in ["a", "b"] {
        std::fs::rename(here.path().join(name), here.path().join("disks").join(name)).expect("of our own");
    }
    std::fs::write(here.path().join("disks/letter"), "not a member").expect("of our own");
    let text = here.run("examine disks").ok().text();
    assert!(text.contains("disks/a") && text.contains("disks/b") && !text.contains("letter"), "{text}");
    // A file that the user names is always reported.
    here.run("examine disks/a disks/letter").expect(2, &["disks/letter"]);
}

#[test]
fn examine_tells_what_bitmap_and_hints_say() {
    let here = Workplace::new();
    here.run("create --level 1 --size 8M --bitmap internal --bitmap-chunk 64K a b").ok();
    let report = parsed(&here.run("examine --json a").text());
    let member = &report["members"][0];
    assert_eq!(member["bitmap"]["bits"], 112, "{member}");
    assert_eq!(member["bitmap"]["set"], 0);
    assert_eq!(member["bad_blocks"]["ranges"], 0);
    assert_eq!(member["write_mostly"], false);
    let text = here.run("examine a").ok().text();
    assert!(text.contains("member in slot 0") && text.contains("112 bits (chunks), 0 dirty"), "{text}");
}

#[test]
fn logical_blocks_that_the_superblock_notes_are_those_of_the_export() {
    let here = Workplace::new();
    here.run("create --level 5 --size 8M --logical-block-size 4K a b c").ok();
    let report = parsed(&here.run("examine --json a").text());
    assert_eq!(report["members"][0]["logical_block_bytes"], 4096);
    let server = Server::of(&here, "serve a b c --nbd unix:nbd");
    let socket = here.path().join("nbd");
    assert_eq!(block_sizes(socket.to_str().expect("it is text"))[0], 4096);
    drop(server);
    for size in ["100", "8K", "3K"] {
        here.run(&format!("create --level 1 --size 8M --logical-block-size {size} x y")).expect(2, &["power of two"]);
        assert!(!here.path().join("x").exists(), "{size}: a member was made");
    }
}

/// Bytes of a member's data area that its bad-block log lists.
fn log_bad(here: &Workplace, member: &str, at: u64, sectors: u64) {
    let report = parsed(&here.run(&format!("examine --json {member}")).text());
    let examined = &report["members"][0];
    let number = |field: &str| examined[field].as_u64().unwrap_or_else(|| panic!("{field}: {examined}"));
    let file = std::fs::File::options().read(true).write(true).open(here.path().join(member)).expect("a member");
    let entry = ((number("data_at") + at) / 512) << 10 | sectors;
    let log: Vec<u8> = entry.to_le_bytes().into_iter().chain([0xff; 504]).collect();
    file.write_all_at(&log, number("bad_blocks_at")).expect("there is a log");
    // The feature bit for entries in the log, and a valid checksum.
    let at = number("superblock_at");
    let mut superblock = vec![0; 4096];
    file.read_exact_at(&mut superblock, at).expect("a superblock");
    superblock[8] |= 8;
    let roles = u32::from_le_bytes(superblock[220..224].try_into().expect("four bytes")) as usize;
    superblock[216..220].fill(0);
    let (words, rest) = superblock[..256 + 2 * roles].as_chunks::<4>();
    let sum: u64 = words.iter().map(|word| u64::from(u32::from_le_bytes(*word))).sum();
    assert!(rest.is_empty(), "an even number of roles");
    let sum = (sum as u32).wrapping_add((sum >> 32) as u32);
    superblock[216..220].copy_from_slice(&sum.to_le_bytes());
    file.write_all_at(&superblock, at).expect("a superblock");
}

#[test]
fn a_place_that_two_logs_name_is_told_ignored_or_salvaged() {
    let here = Workplace::new();
    here.run("create --level 5 --chunk 64K --size 8M a b c").ok();
    let data: Vec<u8> = (0..4_u32 << 20).map(|at| (at.wrapping_mul(at) >> 9) as u8).collect();
    here.run_with("write a b c", &data).ok();
    for member in ["a", "b"] {
        log_bad(&here, member, 1 << 20, 8);
    }
    let before = here.contents(&["a", "b", "c"]);
    let run = here.run("read a b c --length 4M");
    run.expect(1, &["bad-block log of a", "that of b", "--ignore-bad-blocks"]);
    let run = here.run("read a b c --length 4M --ignore-bad-blocks");
    run.expect(0, &["warning", "may hold old data"]);
    assert!(run.stdout == data, "the medium is fine");
    let run = here.run("read a b c --length 4M --salvage");
    run.expect(1, &["lost: 4096 bytes at byte ", "are zeros", "could not be read"]);
    let differ: Vec<usize> = (0..data.len()).filter(|&at| run.stdout[at] != data[at]).collect();
    let (first, last) = (differ[0], differ[differ.len() - 1]);
    assert!(run.stdout.len() == data.len() && last - first < 64 << 10, "from {first} to {last}");
    assert!(run.stdout[first..=last].iter().all(|&byte| byte == 0), "what was lost is zeros");
    assert!(run.stderr.contains(&format!("at byte {}", first / 4096 * 4096)), "{}: {first}", run.stderr);
    here.run("write a b c --ignore-bad-blocks").expect(2, &["--ignore-bad-blocks"]);
    assert!(here.contents(&["a", "b", "c"]) == before, "something was written");
}
