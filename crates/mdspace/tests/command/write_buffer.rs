//! Writes that a killed server had answered from memory: the next server has them, and nothing else opens the array as if
//! there were none.

use crate::support::nbd::Nbd;
use crate::support::{Server, Workplace, parsed};
use rustix::process::Signal;
use std::path::PathBuf;

const PAGE: usize = 4096;

/// Serves the array, has a page written without a flush, and kills the server.
fn kill_after_a_write(here: &Workplace) {
    kill_after_writing(here, 7, &[7; PAGE]);
}

fn kill_after_writing(here: &Workplace, page: u64, bytes: &[u8; PAGE]) {
    let server = Server::of(here, "serve a b c --cache writeback");
    let mut client = Nbd::connect(&socket(here));
    client.request(1, page * PAGE as u64, PAGE as u32, bytes);
    client.reply();
    server.signal(Signal::KILL);
    assert_eq!(server.wait(), None);
}

fn socket(here: &Workplace) -> String {
    let status = parsed(&here.run("status --json").ok().text());
    let nbd = status["served"]["nbd"].as_str().expect("an address");
    nbd.strip_prefix("nbd+unix:///?socket=").expect("a unix socket").to_owned()
}

fn created() -> Workplace {
    let here = Workplace::new();
    here.run("create --level 5 --chunk 64K --size 8M --name data a b c").ok();
    here
}

#[test]
fn the_next_server_has_what_a_killed_one_had_answered() {
    let here = created();
    kill_after_a_write(&here);
    let members = here.contents(&["a", "b", "c"]);
    let shown = here.run("read a b c --output out --overwrite").ok().stderr.clone();
    assert!(shown.contains("4096 bytes of writes that members may lack"), "{shown}");
    assert!(has_the_page(&here.contents(&["out"])[0]));
    for refused in ["serve a b c --overlay over", "update a b c --uuid random", "update a b c --name other"] {
        here.run(refused).expect(2, &["write buffer", "serve the array once"]);
    }
    let uuid = parsed(&here.run("examine --json a b c").ok().text())["members"][0]["array_uuid"].clone();
    let uuid = uuid.as_str().expect("a text");
    here.run(&format!("create --dry-run --force --level 5 --chunk 64K --uuid {uuid} a b c")).ok();
    assert!(here.contents(&["a", "b", "c"]) == members, "a look or a refusal has changed a member");

    let server = Server::of(&here, "serve a b c");
    assert!(Nbd::connect(&socket(&here)).read(7 * PAGE as u64, PAGE as u32).iter().all(|byte| *byte == 7));
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));
    here.run("read a b c --output out --overwrite").ok();
    assert!(has_the_page(&here.contents(&["out"])[0]));
    assert!(buffers(&here).is_empty(), "its names stay behind");
}

fn has_the_page(data: &[u8]) -> bool {
    data[7 * PAGE..8 * PAGE].iter().all(|byte| *byte == 7)
}

/// The names of the files that may hold what servers of the array with this uuid have answered.
fn buffers(here: &Workplace) -> Vec<PathBuf> {
    let members = here.run("examine --json a b c").ok().text();
    let uuid = parsed(&members)["members"][0]["array_uuid"].as_str().expect("a text").replace(':', "");
    let names = std::fs::read_dir("/dev/shm").expect("Linux").map(|entry| entry.expect("an entry").path());
    names.filter(|path| path.to_string_lossy().contains(&format!("mdspace-{uuid}."))).collect()
}

#[test]
fn detect_sees_what_a_killed_server_had_answered() {
    let here = created();
    let mut swap = [0; PAGE];
    swap[1024] = 1;
    swap[1029] = 1; // 256 pages
    swap[PAGE - 10..].copy_from_slice(b"SWAPSPACE2");
    kill_after_writing(&here, 0, &swap);
    let members = here.contents(&["a", "b", "c"]);
    let found = parsed(&here.run("detect --json a b c").ok().text());
    assert_eq!(found["arrays"][0]["content"]["kind"], "swap", "{found}");
    assert!(here.contents(&["a", "b", "c"]) == members, "a look has changed a member");
    let left = buffers(&here);
    assert_eq!(left.len(), 3, "a name for each member");
    let shown = here.run("wipe a b c --dry-run").ok().text();
    assert!(shown.contains("c: 4096 bytes that a killed server had answered"), "{shown}");
    here.run("wipe a --force").ok();
    assert_eq!(left.iter().filter(|name| name.exists()).count(), 2, "the other members lead to the writes");
    here.run("wipe b c --force").ok();
    assert!(!left.iter().any(|name| name.exists()), "the array is gone, and so is what was answered for it");
}

#[test]
fn a_copy_of_the_members_does_not_get_what_was_answered() {
    let here = created();
    kill_after_a_write(&here);
    for (from, to) in [("a", "d"), ("b", "e"), ("c", "f")] {
        std::fs::copy(here.path().join(from), here.path().join(to)).expect("a copy");
    }
    for command in ["read d e f --output out --overwrite", "serve d e f"] {
        here.run(command).expect(2, &["write buffer", "other files or devices", "--force", "mv /dev/shm/mdspace-"]);
    }
    let server = Server::of(&here, "serve d e f --force --cache writeback");
    assert!(Nbd::connect(&socket(&here)).read(7 * PAGE as u64, PAGE as u32).iter().all(|byte| *byte == 0));
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));
    assert_eq!(buffers(&here).len(), 3, "of the members alone");

    // The members have other names now, and the last one left.
    std::fs::rename(here.path().join("a"), here.path().join("g")).expect("it is there");
    let server = Server::of(&here, "serve g b");
    assert!(Nbd::connect(&socket(&here)).read(7 * PAGE as u64, PAGE as u32).iter().all(|byte| *byte == 7));
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));
    std::fs::rename(here.path().join("g"), here.path().join("a")).expect("it is there");
    assert!(buffers(&here).is_empty(), "the name for the member that was not there stays behind");
}

#[test]
fn a_member_that_has_come_leads_to_what_was_answered() {
    let here = created();
    let server = Server::of(&here, "serve a b c --cache writeback");
    std::fs::copy(here.path().join("a"), here.path().join("d")).expect("a copy");
    here.run("wipe d --force").ok();
    let first = buffers(&here);
    here.run("add d").ok();
    while buffers(&here).len() < 4 {}
    let mut client = Nbd::connect(&socket(&here));
    client.request(1, 7 * PAGE as u64, PAGE as u32, &[7; PAGE]);
    client.reply();
    server.signal(Signal::KILL);
    assert_eq!(server.wait(), None);
    first.iter().for_each(|name| std::fs::remove_file(name).expect("it is ours"));
    here.run("read a b c --output out").expect(2, &["write buffer", "other files or devices"]);
    here.run("read a b c d --output out --overwrite").ok();
    assert!(has_the_page(&here.contents(&["out"])[0]));
    let server = Server::of(&here, "serve a b c d");
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));
    assert!(buffers(&here).is_empty());
}

/// Writes 40 pages one after another, without a flush.
fn write_a_stream(here: &Workplace) {
    let mut client = Nbd::connect(&socket(here));
    for page in 0..40 {
        client.request(1, page * PAGE as u64, PAGE as u32, &[page as u8; PAGE]);
        client.reply();
    }
}

/// Bytes that members have written.
fn written(here: &Workplace) -> u64 {
    let status = parsed(&here.run("status --json").ok().text());
    let members = status["members"].as_array().expect("a list");
    members.iter().map(|member| member["written_bytes"].as_u64().expect("a number")).sum()
}

#[test]
fn a_stream_that_a_killed_server_had_answered_is_there_again() {
    let here = created();
    let server = Server::of(&here, "serve a b c --cache streams");
    write_a_stream(&here);
    let answers = parsed(&here.run("status --json").ok().text())["cache"]["write_back"].clone();
    assert_eq!(answers.as_str(), Some("streams"));
    server.signal(Signal::KILL);
    assert_eq!(server.wait(), None);
    let server = Server::of(&here, "serve a b c");
    let mut client = Nbd::connect(&socket(&here));
    for page in 0..40 {
        assert!(client.read(page * PAGE as u64, PAGE as u32).iter().all(|byte| *byte == page as u8), "page {page}");
    }
    drop(client);
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn a_stream_writes_each_byte_once_unless_it_is_written_through() {
    for (cache, is_cheap) in [("streams", true), ("writethrough", false), ("writeback", true)] {
        let here = created();
        let server = Server::of(&here, &format!("serve a b c --cache {cache}"));
        let before = written(&here);
        let mut client = Nbd::connect(&socket(&here));
        for page in 0..1024 {
            client.request(1, page * PAGE as u64, PAGE as u32, &[7; PAGE]);
            client.reply();
        }
        client.request(3, 0, 0, &[]);
        client.reply();
        let each = (written(&here) - before) as f64 / (1024.0 * PAGE as f64);
        // Two data members and parity: 1.5, and 2 where each write has its parity written.
        assert_eq!(each < 1.6, is_cheap, "{cache}: {each:.3} bytes for each");
        drop(client);
        here.run("stop").ok();
        assert_eq!(server.wait(), Some(0));
    }
}

#[test]
fn a_server_whose_memory_is_removed_writes_through() {
    let here = created();
    let server = Server::of(&here, "serve a b c --cache writeback");
    assert_eq!(buffers(&here).len(), 3, "a name for each member");
    while !parsed(&here.run("status --json").ok().text())["cache"]["write_back"].is_null() {
        // The server may be giving it names meanwhile.
        buffers(&here).iter().for_each(|name| drop(std::fs::remove_file(name)));
    }
    let before = written(&here);
    let mut client = Nbd::connect(&socket(&here));
    client.request(1, 7 * PAGE as u64, PAGE as u32, &[7; PAGE]);
    client.reply();
    assert!(written(&here) > before, "it is on the members");
    drop(client);
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn what_was_answered_is_lost_with_a_word_once_other_software_has_written_the_members() {
    let here = created();
    kill_after_a_write(&here);
    // As the kernel's md does at its first write: later events, and a time without microseconds.
    for name in ["a", "b", "c"] {
        let path = here.path().join(name);
        let mut member = std::fs::read(&path).expect("a member");
        let superblock = &mut member[4096..8192];
        let events = u64::from_le_bytes(superblock[200..208].try_into().expect("eight bytes")) + 1;
        superblock[200..208].copy_from_slice(&events.to_le_bytes());
        superblock[197..200].fill(0);
        let sum = superblock_sum(superblock);
        superblock[216..220].copy_from_slice(&sum.to_le_bytes());
        std::fs::write(&path, member).expect("written");
    }
    let said = here.run("read a b c --output out --overwrite").ok().stderr.clone();
    assert!(said.contains("written by other software since, so these writes are lost"), "{said}");
    let server = Server::of(&here, "serve a b c");
    assert!(Nbd::connect(&socket(&here)).read(7 * PAGE as u64, PAGE as u32).iter().all(|byte| *byte == 0));
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));
    here.run("read a b c --output out --overwrite").ok();
}

/// As md sums a superblock of version 1 (`calc_sb_1_csum`).
fn superblock_sum(superblock: &[u8]) -> u32 {
    let roles = u32::from_le_bytes(superblock[220..224].try_into().expect("four bytes")) as usize;
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    let summed = superblock[..256 + 2 * roles].chunks(4).enumerate();
    let sum: u64 = summed.filter(|(index, _)| *index != 54).map(|(_, bytes)| word(bytes)).sum();
    ((sum & 0xffff_ffff) + (sum >> 32)) as u32
}
