//! `scrub` of arrays that nobody serves: what it says, what it changes, how it ends.

mod support;

use rustix::fs::FlockOperation;
use serde_json::Value;
use std::os::unix::fs::FileExt;
use support::Workplace;

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

#[test]
fn a_check_keeps_the_checksums_that_it_learns_where_it_may() {
    let here = Workplace::new();
    // What was there before is not known to be zeros, whatever it is.
    MEMBERS[..3].iter().for_each(|member| std::fs::write(here.path().join(member), vec![0; 8 << 20]).expect("room"));
    here.run("create --level 5 --integrity --assume-clean --chunk 64K a b c").ok();
    let before = here.contents(&MEMBERS[..3]);
    {
        let reader = std::fs::File::open(here.path().join("a")).expect("a member");
        rustix::fs::flock(&reader, FlockOperation::LockShared).expect("nobody else has it");
        let run = here.run("scrub a b c");
        run.expect(0, &["not kept"]);
        assert!(run.text().contains("were unknown"), "{}", run.text());
        assert!(here.contents(&MEMBERS[..3]) == before, "a check wrote to what somebody else reads");
    }
    assert!(here.run("scrub a b c").ok().text().contains("were unknown, and are learned"));
    assert!(!here.run("scrub a b c").ok().text().contains("unknown"), "what was learned is not kept");
    spoil(&here, "b", 5 << 20);
    let run = here.run("scrub a b c");
    run.expect(1, &["1 rows were found wrong"]);
    assert!(run.text().contains("by its checksum"), "{}", run.text());
}

#[test]
fn what_cannot_be_scrubbed_is_refused_with_nothing_changed() {
    let here = Workplace::new();
    here.run("create --level 0 --size 8M a b").ok();
    here.run("scrub a b").expect(2, &["level", "nothing to compare"]);
    here.run("create --level 5 --size 8M c d e").ok();
    here.run("scrub c d e --offset 1G").expect(2, &["range"]);
    here.run("scrub c d e --resume").expect(2, &["no scrub of this array was interrupted"]);
    here.run("scrub c d e --pause").expect(2, &["cannot be used with"]);
    here.run("scrub").expect(2, &["no array of yours is being served"]);
}
