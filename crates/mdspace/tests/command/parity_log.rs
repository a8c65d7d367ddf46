//! Arrays with a partial parity log or a write journal: created, written to, and assembled after their server was killed.

use crate::support::nbd::Nbd;
use crate::support::{Server, Workplace, parsed};
use rustix::process::Signal;
use std::os::unix::fs::FileExt;

const CREATE: &str = "create --level 5 --chunk 16K --size 8M --consistency-policy ppl a b c";

#[test]
fn a_policy_that_contradicts_the_array_is_refused_by_name() {
    let table = [
        ("--level 6 --consistency-policy ppl a b c d", "only RAID-5 has a partial parity log"),
        ("--level 5 --consistency-policy ppl --bitmap internal a b c", "has the policy `bitmap`"),
        ("--level 5 --consistency-policy resync --bitmap ./bits a b c", "has the policy `bitmap`"),
        ("--level 5 --consistency-policy bitmap --bitmap none a b c", "--bitmap none"),
        ("--level 5 --consistency-policy ppl --integrity a b c", "checksums are not kept"),
        ("--level 5 --consistency-policy ppl --bitmap-chunk 64M a b c", "there is no bitmap"),
        ("--level 5 --consistency-policy ppl --data-offset 256K a b c", "placement.ppl"),
    ];
    let here = Workplace::new();
    for (words, reason) in table {
        here.run(&format!("create --size 8M {words}")).expect(2, &[reason]);
        assert_eq!(std::fs::read_dir(here.path()).expect("it is there").count(), 0, "{words}");
    }
}

#[test]
fn the_policy_is_shown_and_excludes_others() {
    let here = Workplace::new();
    let policies = [("ppl", "ppl", "ppl"), ("bitmap", "bitmap", "bitmap"), ("resync", "resync", "")];
    for (asked, shown, feature) in policies {
        here.run(&format!("create --level 5 --size 8M --force --consistency-policy {asked} a b c")).ok();
        let examined = here.run("examine a b c --json").ok().text();
        assert!(examined.contains(&format!("\"{feature}\"")) || feature.is_empty(), "{asked}: {examined}");
        let server = Server::of(&here, "serve a b c --nbd unix:n --control k");
        assert_eq!(parsed(&here.run("status --json --control k").ok().text())["consistency_policy"], shown);
        if asked == "ppl" {
            here.run("set bitmap=internal --control k")
                .expect(2, &["a partial parity log", "set consistency-policy=bitmap"]);
            here.run("set integrity=on --control k").expect(2, &["a partial parity log"]);
        }
        here.run("stop --control k").ok();
        assert_eq!(server.wait(), Some(0));
    }
}

#[test]
fn the_policy_of_a_served_array_changes_and_its_data_stays() {
    let here = Workplace::new();
    here.run("create --level 5 --chunk 16K --size 8M --bitmap none a b c").ok();
    let bytes = (0..4_u32 << 20).map(|at| (at / 997) as u8).collect::<Vec<_>>();
    here.run_with("write a b c", &bytes).ok();
    for policy in ["ppl", "bitmap", "ppl", "resync", "bitmap", "resync"] {
        let server = Server::of(&here, "serve a b c --nbd unix:n --control k");
        here.run(&format!("set consistency-policy={policy} --control k")).ok();
        let status = parsed(&here.run(&format!("set --json consistency-policy={policy} --control k")).ok().text());
        assert_eq!(status["consistency_policy"], policy);
        let mut client = Nbd::connect(here.path().join("n").to_str().expect("UTF-8"));
        client.request(1, 0, 4096, &bytes[..4096]);
        assert_eq!(client.reply(), 0);
        drop(client);
        here.run("stop --control k").ok();
        assert_eq!(server.wait(), Some(0));
        let examined = here.run("examine a b c --json").ok().text();
        assert_eq!(examined.contains("\"ppl\""), policy == "ppl", "{policy}: {examined}");
        for members in ["a b c", "a b"] {
            let read = here.run(&format!("read {members} --length 4M"));
            assert!(read.ok().stdout == bytes, "{policy}: {members}");
        }
    }
}

#[test]
fn a_policy_that_a_served_array_cannot_have_is_refused_by_name() {
    let table = [
        ("--level 5 a b c", "none", "\"none\" is not a consistency policy"),
        ("--level 5 a b c", "journal", "values: resync, bitmap, ppl, or log"),
        ("--level 6 a b c d", "ppl", "only level 5 has a partial parity log"),
        ("--level 5 --integrity a b c", "ppl", "checksums, which a replay of a partial parity log does not keep"),
        ("--level 5 --data-offset 64K a b c", "ppl", "a chunk's log takes 1032"),
        ("--level 0 a b c", "bitmap", "a level without redundancy has no bitmap"),
    ];
    for (words, policy, reason) in table {
        let here = Workplace::new();
        here.run(&format!("create --size 8M {words}")).ok();
        let members: Vec<&str> = words.split(' ').filter(|word| word.len() == 1 && "abcd".contains(word)).collect();
        let server = Server::of(&here, &format!("serve {} --nbd unix:n --control k", members.join(" ")));
        let before = parsed(&here.run("status --json --control k").ok().text());
        here.run(&format!("set consistency-policy={policy} --control k")).expect(2, &[reason]);
        let after = parsed(&here.run("status --json --control k").ok().text());
        assert_eq!(before["events"], after["events"], "{words} {policy}: nothing was written");
        here.run("stop --control k").ok();
        assert_eq!(server.wait(), Some(0));
    }
}

#[test]
fn after_a_kill_a_missing_member_is_right_without_force() {
    for lost in ["a", "b", "c"] {
        let here = Workplace::new();
        here.run(CREATE).ok();
        let bytes = (0..4_u32 << 20).map(|at| (at / 997) as u8).collect::<Vec<_>>();
        here.run_with("write a b c", &bytes).ok();
        let server = Server::of(&here, "serve a b c --nbd unix:n --control k");
        let mut client = Nbd::connect(here.path().join("n").to_str().expect("UTF-8"));
        let block = [7; 4096];
        for at in [0, 20 << 10, 40 << 10, 1 << 20] {
            client.request(1, at, 4096, &block);
            assert_eq!(client.reply(), at);
        }
        server.signal(Signal::KILL);
        assert_eq!(server.wait(), None);
        let left: Vec<_> = ["a", "b", "c"].into_iter().filter(|member| *member != lost).collect();
        let mut expected = bytes;
        for at in [0, 20 << 10, 40 << 10, 1 << 20] {
            expected[at..at + 4096].copy_from_slice(&block);
        }
        for command in ["read", "read --force"] {
            let read = here.run(&format!("{command} {} --length 4M", left.join(" ")));
            assert!(read.ok().stdout == expected, "{command} without {lost}");
            assert!(read.stderr.contains("partial parity log was replayed in memory"), "{}", read.stderr);
        }
        let write = here.run_with(&format!("write {} --offset 2M", left.join(" ")), &block);
        assert!(write.ok().stderr.contains("partial parity log was replayed"), "{}", write.stderr);
        expected[2 << 20..(2 << 20) + 4096].copy_from_slice(&block);
        assert!(here.run(&format!("read {} --length 4M", left.join(" "))).ok().stdout == expected, "without {lost}");
    }
}

#[test]
fn an_array_gets_a_write_journal_and_gives_it_up() {
    let here = Workplace::new();
    here.run("create --level 5 --chunk 16K --size 8M a b c").ok();
    let bytes = (0..4_u32 << 20).map(|at| (at / 997) as u8).collect::<Vec<_>>();
    here.run_with("write a b c", &bytes).ok();
    std::fs::write(here.path().join("j"), vec![0; 3 << 20]).expect("room"); // shorter than a member
    let holds = |members: &str, policy: &str| {
        let read = here.run(&format!("read {members} --length 4M"));
        assert!(read.ok().stdout == bytes, "{members}");
        let server = Server::of(&here, &format!("serve {members} --nbd unix:n --control k"));
        let status = parsed(&here.run("status --json --control k").ok().text());
        assert_eq!(status["consistency_policy"], policy, "{members}");
        here.run("stop --control k").ok();
        assert_eq!(server.wait(), Some(0));
    };
    here.run("update --write-journal none a b c").expect(2, &["the array has none"]);
    let given = parsed(&here.run("update --json --write-journal j a b c").ok().text());
    assert!(given["write_journal"].as_str().is_some_and(|name| name.ends_with('j')), "{given}");
    holds("a b c j", "journal");
    here.run("update --write-journal j a b c j").expect(2, &["j"]);
    here.run("update --write-journal none a b c j").ok();
    holds("a b c", "resync");
    // A served array gives it up as well.
    here.run("update --write-journal j a b c").ok();
    let server = Server::of(&here, "serve a b c j --nbd unix:n --control k");
    here.run("set consistency-policy=bitmap --control k").expect(2, &["write journal", "consistency-policy=resync"]);
    here.run("set consistency-policy=resync --control k").ok();
    here.run("stop --control k").ok();
    assert_eq!(server.wait(), Some(0));
    holds("a b c", "resync");
    // One that is lost.
    here.run("update --write-journal j a b c").ok();
    here.run("serve a b c --nbd unix:n").expect(2, &["write journal, which is not given", "--write-journal none"]);
    let before = here.contents(&["a", "b", "c"]);
    here.run("update --write-journal none a b c")
        .expect(2, &["write journal, which is not given", "--force gives it up"]);
    assert!(here.contents(&["a", "b", "c"]) == before, "something was written");
    let forced = here.run("update --force --write-journal none a b c");
    assert!(forced.ok().stderr.contains("the array has no journal"), "{}", forced.stderr);
    holds("a b c", "resync");
}

#[test]
fn a_device_that_cannot_be_the_journal_is_refused_and_stays_as_it_is() {
    let table = [
        ("--level 5 a b c", "short", "short: "),
        ("--level 5 a b c", "used", "belongs to an array already"),
        ("--level 5 --bitmap internal a b c", "j", "beside a bitmap or a log"),
        ("--level 5 --consistency-policy log a b c", "j", "beside a bitmap or a log"),
        ("--level 5 --metadata 1.0 a b c", "j", "metadata 1.0"),
        ("--level 1 a b", "j", "only levels 4, 5 and 6"),
        ("--level 5 a b c", "a", "in use"),
    ];
    for (words, device, reason) in table {
        let here = Workplace::new();
        here.run("create --level 1 --size 8M used other").ok();
        std::fs::write(here.path().join("short"), vec![0; 64 << 10]).expect("room");
        std::fs::write(here.path().join("j"), vec![0; 8 << 20]).expect("room");
        here.run(&format!("create --size 8M {words}")).ok();
        let members: Vec<&str> = words.split(' ').filter(|word| word.len() == 1 && "abc".contains(word)).collect();
        let before = here.contents(&[&members[..], &["short", "used", "j"]].concat());
        let refused = here.run(&format!("update --write-journal {device} {}", members.join(" ")));
        refused.expect(2, &[reason]);
        let after = here.contents(&[&members[..], &["short", "used", "j"]].concat());
        assert!(after == before, "{words} {device}: something was written");
    }
}

#[test]
fn a_write_journal_that_contradicts_the_array_is_refused_by_name() {
    let table = [
        ("--level 1 --write-journal j a b", "only levels 4, 5 and 6 have a write journal"),
        ("--level 5 --write-journal j --metadata 1.0 a b c", "choose --metadata 1.2"),
        ("--level 5 --write-journal j --bitmap internal a b c", "leave out --bitmap"),
        ("--level 5 --write-journal j --consistency-policy log a b c", "leave out --consistency-policy"),
        ("--level 5 --write-journal a a b c", "given twice"),
    ];
    let here = Workplace::new();
    for (words, reason) in table {
        here.run(&format!("create --size 8M {words}")).expect(2, &[reason]);
        assert_eq!(std::fs::read_dir(here.path()).expect("it is there").count(), 0, "{words}");
    }
    std::fs::File::create(here.path().join("j")).and_then(|file| file.set_len(1_060_000)).expect("it is made");
    here.run("create --size 8M --level 5 --write-journal j a b c").expect(2, &["j: ", "journal"]);
    assert_eq!(std::fs::read_dir(here.path()).expect("it is there").count(), 1, "the new members are removed again");
}

#[test]
fn a_killed_server_of_an_array_with_a_write_journal_has_lost_nothing_and_needs_no_resync() {
    let here = Workplace::new();
    here.run("create --level 6 --chunk 16K --size 8M --write-journal j a b c d").ok();
    let mut bytes = (0..4_u32 << 20).map(|at| (at / 997) as u8).collect::<Vec<_>>();
    here.run_with("write a b c d j", &bytes).ok();
    let server = Server::of(&here, "serve a b c d j --nbd unix:n --control k");
    let status = parsed(&here.run("status --json --control k").ok().text());
    assert_eq!(status["consistency_policy"], "journal");
    assert_eq!(status["members"][4]["state"], "journal");
    for policy in ["ppl", "bitmap", "log"] {
        here.run(&format!("set consistency-policy={policy} --control k")).expect(2, &["write journal", "=resync"]);
    }
    here.run("remove j --control k").expect(2, &["write journal"]);
    let mut client = Nbd::connect(here.path().join("n").to_str().expect("UTF-8"));
    let block = [7; 4096];
    for at in [0, 20 << 10, 40 << 10, 1 << 20] {
        client.request(1, at, 4096, &block);
        assert_eq!(client.reply(), at);
        bytes[at as usize..][..4096].copy_from_slice(&block);
    }
    server.signal(Signal::KILL);
    assert_eq!(server.wait(), None);
    here.run("read a b c d").expect(2, &["write journal, which is not given"]);
    for left in ["a b c d j", "b d j", "a c j"] {
        let read = here.run(&format!("read {left} --length 4M"));
        assert!(read.ok().stdout == bytes, "{left}");
        assert!(read.stderr.contains("the write journal was replayed in memory"), "{}", read.stderr);
    }
    let write = here.run_with("write b d j --offset 2M", &block);
    assert!(write.ok().stderr.contains("the write journal was replayed: it held"), "{}", write.stderr);
    bytes[2 << 20..(2 << 20) + 4096].copy_from_slice(&block);
    let read = here.run("read b d j --length 4M");
    assert!(read.ok().stdout == bytes && !read.stderr.contains("replayed"), "{}", read.stderr);
    // The members that were not there lack the replay.
    let read = here.run("read a b c d j --length 4M");
    assert!(read.ok().stdout == bytes && read.stderr.contains("not used: stale"), "{}", read.stderr);
}

/// What `examine` says of the devices' logs, by the name of its field.
fn logs(here: &Workplace, devices: &str, field: &str) -> Vec<serde_json::Value> {
    let run = here.run(&format!("examine --json {devices}"));
    let members = parsed(&run.text())["members"].as_array().expect("members").clone();
    members.into_iter().map(|mut member| member[field].take()).collect()
}

/// Overwrites 4 KiB of a device.
fn damage(here: &Workplace, device: &str, at: u64) {
    let file = std::fs::OpenOptions::new().write(true).open(here.path().join(device)).expect("it is there");
    file.write_all_at(&[0xa5; 4096], at).expect("it can be written");
}

#[test]
fn logs_are_examined_after_a_stop_after_a_kill_and_when_they_are_damaged() {
    let table = [
        ("--consistency-policy ppl a b c", "a b c", "parity_log", "partial parity log"),
        ("--write-journal j a b c", "a b c j", "journal", "write journal"),
    ];
    for (create, devices, field, words) in table {
        let here = Workplace::new();
        here.run(&format!("create --level 5 --chunk 16K --size 8M {create}")).ok();
        let count = |log: &serde_json::Value, name: &str| log["contents"][name].as_u64().unwrap_or_default();
        let entries = |logs: &[serde_json::Value]| -> u64 {
            logs.iter().map(|log| count(log, "entries") + count(log, "data_blocks")).sum()
        };
        let found = logs(&here, devices, field);
        assert_eq!(found.iter().filter(|log| !log.is_null()).count(), if field == "journal" { 1 } else { 3 });
        assert_eq!(entries(&found), 0, "{found:?}");

        let server = Server::of(&here, &format!("serve {devices} --nbd unix:n --control k"));
        let mut client = Nbd::connect(here.path().join("n").to_str().expect("UTF-8"));
        for at in [0, 20 << 10] {
            client.request(1, at, 4096, &[7; 4096]);
            assert_eq!(client.reply(), at);
        }
        server.signal(Signal::KILL);
        assert_eq!(server.wait(), None);
        let found = logs(&here, devices, field);
        assert!(entries(&found) > 0, "{found:?}");
        let text = here.run(&format!("examine {devices}")).ok().text();
        assert!(text.contains(words), "{text}");

        // Where each log begins. A journal's tail is a place in its ring.
        for (device, log) in devices.split(' ').zip(&found).filter(|(_, log)| !log.is_null()) {
            damage(&here, device, log["at"].as_u64().expect("a place") + log["tail"].as_u64().unwrap_or(0));
            let damaged = logs(&here, device, field).swap_remove(0);
            assert!(damaged["contents"].is_null() && damaged["defect"].is_string(), "{damaged}");
        }
        let text = here.run(&format!("examine {devices}")).text();
        assert!(text.contains("superblock.journal_tail: no journal begins") || text.contains("ppl."), "{text}");
    }
}
