//! `--force`: the stale members that it accepts, its messages, its writes and its limits.
//!
//! A black-box test of the command. `mdspace create` makes the members, and the test forges their superblocks as the
//! real driver leaves them when members become stale. [`tests/kernel/forced.sh`] uses the driver itself, also to judge
//! the result.

use crate::support::{Run, Server, Workplace, parsed};
use serde_json::{Value, json};

/// Position of a 1.2 superblock, and of fields in it.
const SUPERBLOCK: usize = 4096;
const FEATURES: usize = 8;
const UPDATED: usize = 192;
const EVENTS: usize = 200;
const RESYNC: usize = 208;
const CHECKSUM: usize = 216;
const DEVICES: usize = 220;
const ROLES: usize = 256;

const SPARE: u16 = 0xffff;
const FAULTY: u16 = 0xfffe;

/// An array with members named by letters, and its data.
struct Scene {
    here: Workplace,
    names: Vec<String>,
    contents: Vec<u8>,
}

impl Scene {
    fn new(create: &str, letters: &str) -> Self {
        let here = Workplace::new();
        let names: Vec<String> = letters.chars().map(|letter| letter.to_string()).collect();
        here.run(&format!("create {create} --size 4M {}", names.join(" "))).ok();
        let length = parsed(&here.run(&format!("examine --json {}", names.join(" "))).ok().text());
        let length = length["arrays"][0]["status"]["array_bytes"].as_u64().expect("a size") as usize;
        let contents: Vec<u8> = (0..length).map(|at| (at / 4096 * 7 + at % 251) as u8).collect();
        here.run_with(&format!("write {}", names.join(" ")), &contents).ok();
        Self { here, names, contents }
    }

    fn raid5() -> Self {
        Self::new("--level 5 --chunk 64K", "abcd")
    }

    /// Changes a superblock, and corrects its checksum.
    fn edit(&self, name: &str, change: impl Fn(&mut [u8])) {
        let path = self.here.path().join(name);
        let mut bytes = std::fs::read(&path).expect("a member");
        let superblock = &mut bytes[SUPERBLOCK..SUPERBLOCK + 4096];
        change(superblock);
        let sum = checksum(superblock);
        superblock[CHECKSUM..CHECKSUM + 4].copy_from_slice(&sum.to_le_bytes());
        std::fs::write(path, bytes).expect("it can be written");
    }

    /// Sets the fields of a member's superblock: events and seconds since the creation, and the roles of others.
    fn says(&self, name: &str, events: u64, seconds: u64, roles: &[(usize, u16)]) {
        self.edit(name, |superblock| {
            add(superblock, EVENTS, events);
            add(superblock, UPDATED, seconds);
            for (number, role) in roles {
                superblock[ROLES + 2 * number..ROLES + 2 * number + 2].copy_from_slice(&role.to_le_bytes());
            }
        });
    }

    /// The state in which the kernel leaves a RAID-5 of four members after d failed, and then c: the events of a and b
    /// are higher.
    fn loses_d_and_then_c(&self) {
        for survivor in ["a", "b"] {
            self.says(survivor, 9, 7_500, &[(2, FAULTY), (3, FAULTY)]);
        }
        self.says("c", 7, 7_494, &[(3, FAULTY)]);
    }

    fn is_dirty(&self, names: &str) {
        names.split(' ').for_each(|name| self.edit(name, |superblock| superblock[RESYNC..RESYNC + 8].fill(0)));
    }

    fn run(&self, line: &str) -> Run {
        self.here.run(line)
    }

    fn members(&self) -> Vec<Vec<u8>> {
        self.here.contents(&self.names.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Every command that assembles the array refuses it with each of `words`, and no member changes.
    #[track_caller]
    fn refuses(&self, arguments: &str, words: &[&str]) {
        let before = self.members();
        for command in ["read", "write", "serve --nbd unix:n --control k", "serve --read-only --nbd unix:n --control k"]
        {
            let run = self.run(&format!("{command} {arguments}"));
            run.expect(2, words);
            assert!(!run.stderr.contains("warning"), "{}", run.stderr);
        }
        assert!(self.members() == before, "{arguments}: a member changed");
    }

    /// `read` returns the right data, with each of `words` on standard error, and no member changes.
    #[track_caller]
    fn reads(&self, arguments: &str, words: &[&str]) {
        let before = self.members();
        let run = self.run(&format!("read {arguments}"));
        run.expect(0, words);
        assert!(run.stdout == self.contents, "{arguments}: read wrong");
        assert!(self.members() == before, "{arguments}: a member changed");
    }

    /// Serves and stops the array without a request; returns its status in between.
    fn serves(&self, arguments: &str) -> Value {
        let server = Server::of(&self.here, &format!("serve {arguments} --nbd unix:n --control k"));
        let status = status_of(self);
        self.run("stop --control k").ok();
        assert_eq!(server.wait(), Some(0));
        status
    }
}

/// The status of the array that is served in `scene`.
fn status_of(scene: &Scene) -> Value {
    parsed(&scene.run("status --json --control k").ok().text())
}

fn add(superblock: &mut [u8], at: usize, more: u64) {
    let field = &mut superblock[at..at + 8];
    let sum = u64::from_le_bytes(field.try_into().expect("eight bytes")) + more;
    field.copy_from_slice(&sum.to_le_bytes());
}

/// md's checksum of a 1.x superblock: 32-bit words, with the checksum itself as zero, folded once.
fn checksum(superblock: &[u8]) -> u32 {
    let devices = u32::from_le_bytes(superblock[DEVICES..DEVICES + 4].try_into().expect("four bytes"));
    let mut own = superblock[..256 + 2 * devices as usize].to_vec();
    own[CHECKSUM..CHECKSUM + 4].fill(0);
    own.resize(own.len().next_multiple_of(4), 0);
    let words = own.chunks(4).map(|word| u64::from(u32::from_le_bytes(word.try_into().expect("four bytes"))));
    let sum: u64 = words.sum();
    (sum & 0xffff_ffff) as u32 + (sum >> 32) as u32
}

#[test]
fn the_least_stale_member_is_offered_and_then_taken_by_name_with_what_may_be_lost() {
    let scene = Scene::raid5();
    scene.loses_d_and_then_c();
    let behind = "c (slot 2), 2 events and 6 s behind";
    scene.refuses("a b c d", &["missing: 2, 3", "--force takes", behind, "may be lost"]);
    scene.reads(
        "--force d c b a",
        &["warning: taken by --force", behind, "what slot 3 held", "note: d: not used: stale"],
    );
    // A member that failed long ago is used if there is no other.
    scene.reads("--force a b d", &["d (slot 3), 9 events and 2 h 5 min behind"]);
    scene.refuses("--force a d", &["too few members"]);
    assert!(!scene.run("read a b c").stderr.contains("d (slot 3)"), "only what was given is offered");
}

#[test]
fn what_was_forced_stays_in_the_array_without_force_and_is_in_its_status() {
    for write in [false, true] {
        let scene = Scene::raid5();
        scene.loses_d_and_then_c();
        match write {
            true => drop(scene.here.run_with("write --force a b c d", &scene.contents[..4096]).ok()),
            false => {
                let status = scene.serves("--force a b c d");
                let expected = json!([{"name": "c", "slot": 2, "events_behind": 2, "seconds_behind": 6}]);
                assert_eq!(status["forced"], expected);
                assert!(
                    status["warnings"][0].as_str().is_some_and(|text| text.contains("taken by --force")),
                    "{status}"
                );
                assert_eq!(status["members"].as_array().map(Vec::len), Some(3));
            }
        }
        scene.reads("a b c d", &["note: d: not used: stale"]);
        scene.reads("a b c", &[]);
        let status = scene.serves("a b c");
        assert_eq!((&status["forced"], &status["warnings"]), (&json!([]), &json!([])), "write {write}");
        // Members that were absent are no longer accepted.
        scene.refuses("a b d", &["d was left out: stale"]);
    }
}

#[test]
fn a_dirty_and_degraded_array_that_was_forced_is_clean_after_a_stop_without_a_write() {
    let scene = Scene::raid5();
    scene.is_dirty("a b c d");
    scene.refuses("a b c", &["dirty and degraded", "accept that with --force"]);
    scene.reads("--force a b c", &["warning: the array is dirty and degraded", "what slot 3 held may be wrong"]);
    scene.refuses("a b c", &["dirty and degraded"]);
    assert_eq!(scene.serves("--force a b c")["state"], "clean, degraded");
    scene.reads("a b c", &[]);
    scene.refuses("a d", &["missing: 1, 2, 3"]);
}

#[test]
fn levels_without_redundancy_take_every_stale_member() {
    for level in ["--level 0 --chunk 64K", "--level linear"] {
        let scene = Scene::new(level, "ab");
        scene.says("b", 12, 60, &[]);
        scene.refuses("a b", &["slot 0 is missing", "--force takes a (slot 0), 12 events and 1 min 0 s behind"]);
        scene.reads("--force a b", &["warning: taken by --force: a (slot 0)"]);
        scene.refuses("--force b", &["slot 0 is missing", "give all members"]);
        scene.serves("--force a b");
        scene.reads("a b", &[]);
    }
}

#[test]
fn a_second_member_of_the_same_events_comes_along_and_parity_is_made_anew() {
    let scene = Scene::new("--level 6 --chunk 64K", "abcde");
    for survivor in ["a", "b"] {
        scene.says(survivor, 9, 9, &[(2, FAULTY), (3, FAULTY), (4, FAULTY)]);
    }
    scene.reads("--force a b c d e", &["c (slot 2)", "d (slot 3)", "e (slot 4)"]);
    let server = Server::of(&scene.here, "serve --force a b c d e --nbd unix:n --control k");
    assert_eq!(status_of(&scene)["forced"].as_array().map(Vec::len), Some(3));
    while status_of(&scene)["in_agreement"] != true {}
    scene.run("stop --control k").ok();
    assert_eq!(server.wait(), Some(0));
    scene.run("scrub a b c d e").ok();
    scene.reads("a b c d e", &[]);
}

#[test]
fn copies_that_are_current_count_more_than_those_of_a_member_that_was_forced() {
    let scene = Scene::new("--level 10 --chunk 64K --layout n2 --assume-clean", "abc");
    let old = scene.contents.clone();
    // a fails, b and c continue, then b is lost: chunks are on (a, b), (c, a), (b, c).
    let new: Vec<u8> = old.iter().map(|byte| byte ^ 0xff).collect();
    scene.here.run_with("write b c", &new).ok();
    for _ in 0..3 {
        scene.edit("c", |superblock| superblock[ROLES + 2..ROLES + 4].copy_from_slice(&FAULTY.to_le_bytes()));
    }
    scene.refuses("a c", &["--force takes a (slot 0)"]);
    let expected: Vec<u8> = (0..old.len()).map(|at| if at / (64 << 10) % 3 == 0 { old[at] } else { new[at] }).collect();
    assert!(scene.run("read --force a c").ok().stdout == expected, "a current copy is passed over");
    let server = Server::of(&scene.here, "serve --force a c --nbd unix:n --control k");
    while status_of(&scene)["in_agreement"] != true {}
    scene.run("stop --control k").ok();
    assert_eq!(server.wait(), Some(0));
    assert!(scene.run("read a c").ok().stdout == expected, "the resync took the older copy");
}

#[test]
fn a_member_that_was_used_apart_is_never_taken() {
    let scene = Scene::raid5();
    scene.loses_d_and_then_c();
    // As if c had been assembled without b: by mdspace, and by the kernel.
    for role in [FAULTY, SPARE] {
        scene.says("c", 0, 0, &[(1, role)]);
        let words = &["c was left out", "--force does not take it", "does not call b active"];
        scene.refuses("a b c", words);
        scene.refuses("--force a b c", words);
    }
    scene.reads("--force a b c d", &["d (slot 3), 9 events"]);
}

#[test]
fn a_partial_parity_log_that_cannot_be_used_is_passed_over_by_force_alone() {
    let scene = Scene::raid5();
    for name in ["a", "b", "c", "d"] {
        scene.edit(name, |superblock| {
            superblock[FEATURES + 1] = 4; // PPL, 8 sectors long and 8 sectors behind the superblock, where no log is
            superblock[96..98].copy_from_slice(&8_u16.to_le_bytes());
            superblock[98..100].copy_from_slice(&8_u16.to_le_bytes());
        });
    }
    scene.reads("a b c", &[]);
    scene.is_dirty("a b c d");
    scene.reads("a b c d", &["warning: the partial parity log cannot be used", "ppl.signature"]);
    for command in ["read", "serve --read-only --nbd unix:n --control k"] {
        scene
            .run(&format!("{command} a b c"))
            .expect(2, &["ppl.signature", "a current member", "--force", "missing: 3"]);
    }
    scene.reads("--force a b c", &["warning: the partial parity log cannot be used", "the write hole"]);
}

#[test]
fn without_its_journal_an_array_is_read_by_force_alone_and_never_written() {
    let scene = Scene::raid5();
    for name in ["a", "b", "c", "d"] {
        scene.edit(name, |superblock| superblock[FEATURES + 1] = 2);
    }
    for command in ["read", "serve --read-only --nbd unix:n --control k"] {
        scene.run(&format!("{command} a b c d")).expect(2, &["write journal, which is not given", "--force"]);
    }
    let before = scene.members();
    for command in ["write --force", "serve --force --nbd unix:n --control k"] {
        scene.run(&format!("{command} a b c d")).expect(2, &["can only be read", "--read-only --force"]);
    }
    assert!(scene.members() == before);
    scene.reads("--force a b c d", &["warning: the write journal is not given"]);
    scene.reads("--force a b c", &["warning: the write journal", "dirty and degraded", "slot 3"]);
    let status = scene.serves("--read-only --force a b c d");
    assert_eq!((&status["read_only"], &status["in_agreement"]), (&true.into(), &false.into()));
    assert!(scene.members() == before);
}

#[test]
fn members_that_call_themselves_spares_are_named_together_with_what_can_be_done() {
    let scene = Scene::new("--level 6 --chunk 64K", "abcd");
    let originals = scene.members();
    for (number, name) in ["b", "c", "d"].into_iter().enumerate() {
        scene.says(name, 0, 0, &[(number + 1, SPARE)]);
    }
    let words = ["b: ", "as does c, d", "but a, of the same age", "slots 1, 2, 3", "create --assume-clean"];
    scene.refuses("a b c d", &words);
    scene.refuses("--force a b c d", &words);
    // The state after `mdadm --add`: the others agree.
    for name in ["a", "b", "c", "d"] {
        scene.says(name, 0, 0, &[(1, SPARE), (2, SPARE), (3, SPARE)]);
    }
    let words = ["missing: 1, 2, 3", "b, c, d call themselves spares", "create --assume-clean"];
    scene.refuses("a b c d", &words);
    scene.refuses("--force a b c d", &words);
    scene.run("examine a b c d").expect(1, &["call themselves spares"]);
    // The advised command works, here for an array of copies.
    scene.run("create --level 6 --chunk 64K --assume-clean --force a b c d").ok();
    scene.reads("a b c d", &[]);
    assert_eq!(originals.len(), 4);
}
