//! Arrays with a stripe log: assembled after their server was killed, also with logs that do not count, and examined.

use crate::support::nbd::Nbd;
use crate::support::{Server, Workplace, parsed};
use format::stripe_log::{Header, PAGE_BYTES, checksum};
use rustix::process::Signal;
use serde_json::Value;
use std::os::unix::fs::FileExt;

const BLOCK: [u8; 4096] = [7; 4096];
const WRITES: [u64; 4] = [0, 20 << 10, 40 << 10, 1 << 20];

/// An array whose server was killed after writes to parts of stripes; and its data.
fn killed(create: &str, members: &str) -> (Workplace, Vec<u8>) {
    let here = Workplace::new();
    here.run(&format!("create {create} --chunk 16K --size 8M --consistency-policy log {members}")).ok();
    let mut data = (0..4_u32 << 20).map(|at| (at / 997) as u8).collect::<Vec<_>>();
    here.run_with(&format!("write {members}"), &data).ok();
    let server = Server::of(&here, &format!("serve {members} --nbd unix:n --control k"));
    let mut client = Nbd::connect(here.path().join("n").to_str().expect("UTF-8"));
    for at in WRITES {
        client.request(1, at, 4096, &BLOCK);
        assert_eq!(client.reply(), at);
        data[at as usize..at as usize + 4096].copy_from_slice(&BLOCK);
    }
    server.signal(Signal::KILL);
    assert_eq!(server.wait(), None);
    (here, data)
}

/// What `examine` says of the members' logs.
fn logs(here: &Workplace, members: &str) -> Vec<Value> {
    let run = here.run(&format!("examine --json {members}"));
    let members = parsed(&run.text())["members"].as_array().expect("members").clone();
    members.into_iter().map(|mut member| member["stripe_log"].take()).collect()
}

/// The page of a member's header: read, changed and written again.
fn change_header(here: &Workplace, member: &str, change: impl FnOnce(&mut [u8])) {
    let at = logs(here, member)[0]["at"].as_u64().expect("a place");
    let file = std::fs::OpenOptions::new().read(true).write(true).open(here.path().join(member)).expect("a member");
    let mut page = vec![0; PAGE_BYTES];
    file.read_exact_at(&mut page, at).expect("it is that long");
    change(&mut page);
    file.write_all_at(&page, at).expect("it can be written");
}

#[test]
fn after_a_kill_missing_members_are_right_without_force() {
    let table = [
        ("--level 4", "a b c", "a b"),
        ("--level 5", "a b c", "a c"),
        ("--level 5", "a b c", "b c"),
        ("--level 6", "a b c d", "a c"),
        ("--level 6", "a b c d", "b d"),
    ];
    for (create, all, left) in table {
        let (here, data) = killed(create, all);
        let read = here.run(&format!("read {left} --length 4M"));
        assert!(read.ok().stdout == data, "{create}: {left}");
        assert!(read.stderr.contains("stripe log was replayed in memory"), "{}", read.stderr);
    }
}

#[test]
fn a_dirty_and_degraded_array_whose_log_does_not_count_is_refused_with_the_reason() {
    fn edit(page: &mut [u8], change: impl FnOnce(&mut Header)) {
        let mut header = Header::decode(page).expect("sound").expect("it is there");
        change(&mut header);
        page.copy_from_slice(&header.encode());
    }
    let (here, data) = killed("--level 5", "a b c");
    let before = here.contents(&["a", "b"]);
    type Change = fn(&mut [u8]);
    let table: [(&str, Change, &str); 9] = [
        ("no header", |page| page.fill(0), "a: stripe_log: it has no stripe log"),
        ("another array's", |page| edit(page, |header| header.set_uuid[0] ^= 1), "a: stripe_log: it has no stripe log"),
        ("another member's", |page| edit(page, |header| header.device_uuid[0] ^= 1), "a: stripe_log.device_uuid: "),
        ("of another shape", |page| edit(page, |header| header.chunk *= 2), "a: stripe_log.chunk: "),
        ("longer than its room", |page| edit(page, |header| header.bytes = 1 << 40), "a: stripe_log.bytes: "),
        ("damaged", |page| page[300] ^= 1, "a: stripe_log.checksum: "),
        (
            "of a newer version",
            |page| {
                page[8] = 2;
                page[12..16].fill(0);
                let sum = checksum(&page[..512]);
                page[12..16].copy_from_slice(&sum.to_le_bytes());
            },
            "a: stripe_log.version: 2: a newer mdspace may have written it",
        ),
        ("of no superblock", |page| edit(page, |header| header.stamps = Default::default()), "a: superblock.events: "),
        ("of an older superblock", |page| edit(page, |header| header.stamps[1].events -= 2), "a: superblock.events: "),
    ];
    for (what, change, reason) in table {
        std::fs::write(here.path().join("a"), &before[0]).expect("it can be written");
        change_header(&here, "a", change);
        let changed = here.contents(&["a", "b"]);
        for line in ["read a b --length 4M", "write a b --offset 2M", "serve a b --nbd unix:n"] {
            here.run_with(line, &BLOCK).expect(2, &["dirty and degraded", "the stripe log is void", reason]);
        }
        let forced = here.run("read a b --length 4M --force");
        forced.expect(0, &["the stripe log is void", reason, "write hole"]);
        let whole = here.run("read a b c --length 4M");
        assert!(whole.expect(0, &["the stripe log is void", reason]).stdout == data, "{what}");
        assert!(here.contents(&["a", "b"]) == changed, "{what}: nothing was written");
    }
}

#[test]
fn examine_shows_the_log_of_each_member_and_writes_nothing() {
    let (here, _) = killed("--level 5", "a b c");
    let before = here.contents(&["a", "b", "c"]);
    let logs = logs(&here, "a b c");
    let mut entries = 0;
    for log in &logs {
        assert!(log["void"].is_null(), "{log}");
        assert_eq!(log["contents"]["epoch"], logs[0]["contents"]["epoch"]);
        assert_eq!(log["contents"]["parity_built"], true);
        assert!(log["contents"]["bytes"].as_u64() >= Some(3 * 4096));
        entries += log["contents"]["entries"].as_u64().expect("a count");
    }
    assert!(entries >= 1, "the last write is not settled: {logs:?}");
    let array = parsed(&here.run("examine --json a b c").ok().text())["arrays"][0].take();
    assert!(array["write_refusal"].is_null() && !array["status"].is_null(), "it can be written to: {array}");
    let text = here.run("examine a b c").ok().text();
    assert!(text.matches("  stripe log").count() == 3 && text.matches("; it counts").count() == 3, "{text}");
    change_header(&here, "b", |page| page[300] ^= 1);
    let text = here.run("examine a b c").text();
    assert!(text.contains("; void: stripe_log.checksum: "), "{text}");
    change_header(&here, "b", |page| page[300] ^= 1);
    assert!(here.contents(&["a", "b", "c"]) == before, "examine only reads");
}

#[test]
fn a_stopped_array_has_no_write_left_to_replay_and_one_without_a_log_has_none() {
    let here = Workplace::new();
    here.run("create --level 6 --chunk 16K --size 8M --consistency-policy log a b c d").ok();
    here.run_with("write a b c d --offset 4K", &BLOCK).ok();
    for log in logs(&here, "a b c d") {
        assert_eq!((&log["contents"]["entries"], log["void"].is_null()), (&Value::from(0), true), "{log}");
    }
    here.run("create --level 6 --chunk 16K --size 8M e f g h").ok();
    assert!(logs(&here, "e f g h").iter().all(Value::is_null));
    let text = here.run("examine e f g h").ok().text();
    assert!(!text.contains("stripe log"), "{text}");
}

#[test]
fn a_log_is_not_laid_over_checksums_or_a_long_bitmap_nor_these_over_it() {
    // What the array is made with and is to get, and the refusal.
    let table = [
        (
            "--chunk 64K --size 64M --data-offset 128K --consistency-policy log",
            "integrity=on",
            "a: superblock.data_offset: there is no room for checksums beside the stripe log",
        ),
        ("--chunk 64K --size 64M --data-offset 128K --integrity", "consistency-policy=log", "beside the stripe log"),
        ("--size 5G --bitmap none", "consistency-policy=log", "a: consistency-policy: the bitmap ends at byte "),
    ];
    for (create, setting, reason) in table {
        let here = Workplace::new();
        here.run(&format!("create --level 5 {create} a b c")).ok();
        let is_long = create.contains("5G");
        if is_long {
            here.run("update --no-bad-block-log a b c").ok();
        }
        let server = Server::of(&here, "serve a b c --nbd unix:n --control k");
        if is_long {
            here.run("set bitmap=internal:4K --control k").ok(); // 160 KiB, as md may make it
        }
        here.run(&format!("set {setting} --control k")).expect(2, &[reason]);
        here.run("stop --control k").ok();
        assert_eq!(server.wait(), Some(0));
        here.run("examine a b c").ok();
    }
}
