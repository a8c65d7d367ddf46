//! `scrub`: its report, its changes and its exit status.

use crate::support::nbd::Nbd;
use crate::support::{Run, Server, Workplace, parsed};
use serde_json::Value;
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::Stdio;

const MEMBERS: [&str; 5] = ["a", "b", "c", "d", "e"];

fn spoil(here: &Workplace, member: &str, at: u64) {
    let member = std::fs::File::options().write(true).open(here.path().join(member)).expect("a member");
    member.write_all_at(&[0x5a; 4096], at).expect("it is long enough");
}

#[test]
fn a_check_changes_nothing_and_a_repair_only_what_is_wrong() {
    let here = Workplace::new();
    here.run("create --level 6 --chunk 64K --size 8M a b c d e").ok();
    let data: Vec<u8> = (0..4_u32 << 20).map(|at| (at.wrapping_mul(at) >> 7) as u8).collect();
    here.run_with("write a b c d e", &data).ok();
    let right = here.contents(&MEMBERS);
    let text = here.run("scrub a b c d e").ok().text();
    assert!(text.contains("check: complete") && text.contains("agrees"), "{text}");
    spoil(&here, "c", 3 << 20);
    let spoiled = here.contents(&MEMBERS);
    let run = here.run("scrub a b c d e");
    run.expect(1, &["1 rows were found wrong, 1 are left", "scrub --repair"]);
    let text = run.text();
    assert!(text.contains("c (slot 2)") && text.contains("at byte 3145728") && text.contains("by P and Q"), "{text}");
    assert!(here.contents(&MEMBERS) == spoiled, "a check wrote");
    let run = here.run("scrub --repair --json a b c d e");
    run.expect(1, &["0 are left"]);
    let report: Value = serde_json::from_slice(&run.stdout).expect("it is JSON");
    assert_eq!(report["counts"]["healed"], 1);
    let data_of =
        |members: Vec<Vec<u8>>| members.into_iter().map(|member| member[1 << 20..].to_vec()).collect::<Vec<_>>();
    assert!(data_of(here.contents(&MEMBERS)) == data_of(right), "not as it was");
    here.run("scrub a b c d e").ok();
}

/// Wrong blocks of several members: alone in their rows, and together, so that they cannot be reconstructed.
fn spoil_all_kinds(here: &Workplace, members: &[&str]) {
    (0..40).for_each(|number| spoil(here, members[1], (3 << 20) + number * 20_480));
    members.iter().for_each(|member| spoil(here, member, 5 << 20));
}

#[test]
fn a_check_changes_no_byte_and_no_membership_at_any_level_served_or_not() {
    for shape in ["1", "4 --chunk 64K", "5 --chunk 64K", "6 --chunk 64K", "10 --chunk 64K"] {
        for integrity in ["", "--integrity"] {
            let here = Workplace::new();
            let members = &MEMBERS[..if shape.starts_with('1') { 2 } else { 5 }];
            let names = members.join(" ");
            here.run(&format!("create --level {shape} {integrity} --size 8M {names}")).ok();
            let data: Vec<u8> = (0..5_u32 << 20).map(|at| (at.wrapping_mul(at) >> 7) as u8).collect();
            here.run_with(&format!("write {names}"), &data).ok();
            spoil_all_kinds(&here, members);
            let spoilt = here.contents(members);
            let context = format!("{shape} {integrity}");
            let report = here.run(&format!("scrub --json {names}"));
            report.expect(1, &["found wrong"]);
            let offline = parsed(&report.text());
            assert!(here.contents(members) == spoilt, "{context}: a check wrote");

            let server = Server::of(&here, &format!("serve {names}"));
            for _ in 0..2 {
                let report = here.run("scrub --json");
                report.expect(1, &["found wrong"]);
                let report = parsed(&report.text());
                assert_eq!(report["counts"], offline["counts"], "{context}");
                assert_eq!(report["changes"], parsed("[]"), "{context}");
            }
            let status = parsed(&here.run("status --json").ok().text());
            for member in status["members"].as_array().expect("a list") {
                assert_eq!((&member["state"], &member["errors"]), (&"in_sync".into(), &0.into()), "{context}");
                let wrong = if integrity.is_empty() { 0 } else { 1 + 40 * u64::from(member["name"] == "b") };
                assert_eq!(member["corrupt_blocks"], wrong, "{context}: {member}");
                assert_eq!((&member["healed_bytes"], &member["to_heal_bytes"]), (&0.into(), &0.into()), "{context}");
            }
            assert!(here.contents(members) == spoilt, "{context}: a served check wrote");
            here.run("stop").ok();
            assert_eq!(server.wait(), Some(0));
        }
    }
}

#[test]
fn what_reads_heal_is_told_apart_from_errors_and_makes_no_member_leave() {
    let here = Workplace::new();
    here.run("create --level 5 --chunk 64K --integrity --size 8M a b c").ok();
    let data: Vec<u8> = (0..12_u32 << 20).map(|at| (at.wrapping_mul(at) >> 7) as u8).collect();
    here.run_with("write a b c", &data).ok();
    (0..40).for_each(|number| spoil(&here, "b", (3 << 20) + number * 20_480));
    let server = Server::of(&here, "serve a b c");
    let mut client = Nbd::connect(server.word("nbd+unix").strip_prefix("nbd+unix:///?socket=").expect("a socket"));
    for at in (0..8_u64 << 20).step_by(65_536) {
        client.request(0, at, 65_536, &[]);
        assert_eq!(client.reply(), at);
        client.stream.read_exact(&mut vec![0; 65_536]).expect("data");
    }
    let member = loop {
        let status = parsed(&here.run("status --json").ok().text());
        let member = status["members"][1].clone();
        if member["to_heal_bytes"] == 0
            && member["healed_bytes"] == member["corrupt_blocks"].as_u64().expect("a count") * 4096
        {
            break member;
        }
    };
    assert!(member["corrupt_blocks"].as_u64().expect("a count") > 20, "{member}");
    assert_eq!(
        (&member["state"], &member["errors"], &member["corrected_sectors"]),
        (&"in_sync".into(), &0.into(), &0.into())
    );
    let text = here.run("status").ok().text();
    assert!(
        text.contains("b: ") && text.contains("blocks wrong by their checksums") && text.contains(" healed"),
        "{text}"
    );
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));
    assert!(here.run(&format!("read --length {} a b c", data.len())).ok().stdout == data, "other bytes");
}

#[test]
fn a_check_learns_no_checksum_and_a_repair_does() {
    let here = Workplace::new();
    // The contents of existing files are unknown, even if they are zeros.
    MEMBERS[..3].iter().for_each(|member| std::fs::write(here.path().join(member), vec![0; 8 << 20]).expect("room"));
    here.run("create --level 5 --integrity --assume-clean --chunk 64K a b c").ok();
    let before = here.contents(&MEMBERS[..3]);
    let text = here.run("scrub a b c").ok().text();
    assert!(text.contains("have no known checksum; `mdspace scrub --repair` stores it"), "{text}");
    assert!(here.contents(&MEMBERS[..3]) == before, "a check wrote");
    assert!(here.run("scrub --repair a b c").ok().text().contains("had no known checksum; it is stored now"));
    assert!(!here.run("scrub a b c").ok().text().contains("no known checksum"), "the checksums were not kept");
    spoil(&here, "b", 5 << 20);
    let run = here.run("scrub a b c");
    run.expect(1, &["1 rows were found wrong"]);
    assert!(run.text().contains("by its checksum"), "{}", run.text());
}

#[test]
fn advice_names_md_s_choice_only_where_nothing_can_decide() {
    for (shape, integrity, spoilt, advised) in [
        ("5 --chunk 64K", "", &["b"][..], Some("computes parity from the data as it is")),
        ("1", "", &["b"], Some("writes the first copy over the others")),
        ("6 --chunk 64K", "", &["b"], None),
        ("5 --chunk 64K", "--integrity", &["b"], None),
        ("5 --chunk 64K", "--integrity", &["a", "b"], None),
        ("1", "--integrity", &["a", "b"], None),
    ] {
        let here = Workplace::new();
        let members = &MEMBERS[..if shape == "1" { 2 } else { 4 }];
        let names = members.join(" ");
        here.run(&format!("create --level {shape} {integrity} --size 8M {names}")).ok();
        spoilt.iter().for_each(|member| spoil(&here, member, 3 << 20));
        for repair in ["", "--repair"] {
            let run = here.run(&format!("scrub {repair} {names}"));
            run.expect(1, &["found wrong"]);
            let is_advised = run.stderr.contains("repair=parity");
            assert_eq!(is_advised, advised.is_some(), "{shape} {integrity} {spoilt:?} {repair}: {}", run.stderr);
            run.expect(1, &[advised.unwrap_or_default()]);
        }
    }
}

#[test]
fn what_cannot_be_scrubbed_is_refused_with_nothing_changed() {
    let here = Workplace::new();
    here.run("create --level 0 --size 8M a b").ok();
    ["a", "b"].into_iter().for_each(|member| make_dirty(&here, member));
    let before = here.contents(&["a", "b"]);
    here.run("scrub a b").expect(2, &["level", "nothing to compare"]);
    here.run("scrub --repair a b").expect(2, &["level", "nothing to compare"]);
    assert!(here.contents(&["a", "b"]) == before, "a refusal wrote");
    here.run("create --level 5 --size 8M c d e").ok();
    here.run("scrub c d e --offset 1G").expect(2, &["range"]);
    here.run("scrub c d e --resume").expect(2, &["no scrub of this array was interrupted"]);
    here.run("scrub c d e --pause").expect(2, &["cannot be used with"]);
    here.run("scrub").expect(2, &["no array of yours is being served"]);
    // A refusal does not resync an array whose server was killed during a write.
    for (shape, grown) in
        [("5 --chunk 64K", "--raid-devices 4"), ("10 --chunk 64K", "--raid-devices 4"), ("1", "--size 64K")]
    {
        let here = Workplace::new();
        here.run(&format!("create --level {shape} --size 8M a b c")).ok();
        let mut server = Server::of(&here, "serve a b c");
        let mut client = Nbd::connect(server.word("nbd+unix").strip_prefix("nbd+unix:///?socket=").expect("a socket"));
        client.request(1, 65_536, 4096, &[7; 4096]);
        assert_eq!(client.reply(), 65_536);
        server.child.kill().expect("it runs");
        drop(server);
        let before = here.contents(&["a", "b", "c"]);
        for line in [
            "scrub --repair a b c --offset 1G",
            "scrub a b c --resume",
            "scrub --repair=parity a b c --length 0",
            "scrub a b c",
            "write a b c --offset 1G",
            "read a b c --offset 1G",
            &format!("grow a b c {grown}"),
        ] {
            let run = here.run_with(line, &[1; 512]);
            run.expect(2, &["refused: "]);
            assert!(here.contents(&["a", "b", "c"]) == before, "{shape}: {line}: a refusal wrote");
        }
    }
}

#[test]
fn a_limited_scrub_tells_its_rate_and_the_time_left_from_the_start() {
    let here = Workplace::new();
    here.run("create --level 1 --size 64M --assume-clean --name data a b").ok();
    let _server = Server::of(&here, "serve a b");
    here.run("set sync-speed-min=300K sync-speed-max=300K").ok();
    here.run("scrub --no-wait").ok();
    let mut looks = 0;
    while looks < 10 {
        let sweep = parsed(&here.run("status --json").ok().text())["sweep"].clone();
        if sweep["held_by"] == "sync-speed-max" && sweep["done_bytes"].as_u64() > Some(0) {
            looks += 1;
            assert!(sweep["bytes_per_second"].as_u64() <= Some(300 << 10), "{sweep}");
            assert!(sweep["seconds_left"].as_u64() > Some(60), "{sweep}");
        }
    }
}

#[test]
fn a_scrub_whose_server_ends_meanwhile_has_failed_and_was_not_refused() {
    for ending in ["stop", "kill"] {
        let here = Workplace::new();
        here.run("create --level 1 --size 64M --assume-clean --name data a b").ok();
        let mut server = Server::of(&here, "serve a b");
        here.run("set sync-speed-min=64K sync-speed-max=64K").ok();
        let mut command = here.command(&["scrub"]);
        let scrub = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("mdspace starts");
        while parsed(&here.run("status --json").ok().text())["sync_action"] != "check" {}
        match ending {
            "stop" => drop(here.run("stop").ok()),
            _ => server.child.kill().expect("it runs"),
        }
        drop(server);
        let run = Run::new("scrub", scrub.wait_with_output().expect("mdspace ends"));
        run.expect(1, &["error: the server ended while the scrub was at ", "serve the array again"]);
    }
}

/// Marks the array dirty in a superblock 1.2, with a valid checksum.
fn make_dirty(here: &Workplace, member: &str) {
    let file = std::fs::File::options().read(true).write(true).open(here.path().join(member)).expect("a member");
    let mut superblock = [0; 4096];
    file.read_exact_at(&mut superblock, 4096).expect("it is long enough");
    superblock[208..220].fill(0); // resync_offset, sb_csum
    let devices = u32::from_le_bytes(superblock[220..224].try_into().expect("four bytes")) as usize;
    let summed = &superblock[..256 + 2 * devices];
    let words = summed.chunks(4).map(|word| word.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)));
    let sum: u64 = words.sum();
    let folded = ((sum & 0xffff_ffff) + (sum >> 32)) as u32;
    superblock[216..220].copy_from_slice(&folded.to_le_bytes());
    file.write_all_at(&superblock, 4096).expect("it is long enough");
}

/// Its tables would be 32 GiB.
#[test]
fn an_array_of_large_members_knows_all_checksums_before_its_tables_are_written() {
    let here = Workplace::new();
    let members = &MEMBERS[..4];
    let taken = || {
        let blocks = |member: &&str| std::fs::metadata(here.path().join(member)).expect("a member").blocks();
        members.iter().map(blocks).sum::<u64>() * 512
    };
    here.run("create --level 5 --chunk 64K --integrity --size 8T --data-offset 16G a b c d").ok();
    assert!(taken() < 1 << 20, "{} bytes", taken());
    let server = Server::of(&here, "serve a b c d");
    let status = parsed(&here.run("status --json").ok().text());
    let checksums = &status["checksums"];
    assert_eq!((&checksums["unknown_bytes"], &checksums["uncounted_bytes"]), (&0.into(), &0.into()), "{status}");
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));
    let data: Vec<u8> = (0..1_u32 << 20).map(|at| (at.wrapping_mul(at) >> 7) as u8).collect();
    here.run_with("write a b c d --offset 1T", &data).ok();
    assert!(taken() < 64 << 20, "{} bytes", taken());
    // A block that was never written is wrong by its checksum, too.
    spoil(&here, "b", (16 << 30) + (2 << 40));
    let read = here.run("read --offset 6T --length 1M a b c d");
    assert!(read.ok().stdout.iter().all(|byte| *byte == 0), "what was spoilt was read");
    assert!(here.run("read --offset 1T --length 1M a b c d").ok().stdout == data, "other bytes");
}
