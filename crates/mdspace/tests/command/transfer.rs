//! `read` and `write` on arrays in image files, without a server.

use std::io::Write as _;
use std::process::Stdio;

use crate::support::Workplace;

/// The shapes of arrays, and the members that each can lose.
const SHAPES: [(&str, &[&str]); 12] = [
    ("--level linear a b c", &[]),
    ("--level 0 --chunk 64K a b c", &[]),
    ("--level 1 a b", &["b"]),
    ("--level 4 --chunk 4K a b c", &["c"]),
    ("--level 5 --chunk 64K a b c", &["a"]),
    ("--level 5 --chunk 16K --layout right-asymmetric --metadata 1.0 a b c d", &["d"]),
    ("--level 5 --chunk 64K --bitmap internal a b c", &["b"]),
    ("--level 5 --chunk 64K --metadata 1.1 --name data a b missing", &[]),
    ("--level 6 --chunk 64K a b c d", &["a", "c"]),
    ("--level 6 --chunk 8K --layout ddf-N-continue a b c d e", &["e", "d"]),
    ("--level 10 --chunk 64K a b c d", &["b", "d"]),
    ("--level 10 --chunk 64K --layout o2 a b c", &["b"]),
];

/// Bytes that do not repeat at a power of two.
fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| (index % 251) as u8 ^ (index / 65_521) as u8).collect()
}

fn members(shape: &str) -> Vec<&str> {
    shape.split(' ').filter(|word| word.len() == 1 && word.chars().all(char::is_alphabetic)).collect()
}

#[test]
fn what_is_written_at_odd_places_is_read_back_whole_and_degraded_and_nothing_else_changes() {
    for (shape, lost) in SHAPES {
        let here = Workplace::new();
        here.run(&format!("create --size 4M {shape}")).ok();
        let all = members(shape).join(" ");
        let reversed = members(shape).into_iter().rev().collect::<Vec<_>>().join(" ");
        let mut expected = here.run(&format!("read {all}")).ok().stdout.clone();
        assert!(expected.iter().all(|byte| *byte == 0), "{shape}: a new array of sparse files reads as zeros");
        for (at, bytes) in [(0, 1), (12_345, 200_000), (1 << 20, 65_536), (511, 2), (1_500_000, 999_999)] {
            let data = pattern(bytes);
            here.run_with(&format!("write {reversed} --offset {at}"), &data).ok();
            expected[at..at + bytes].copy_from_slice(&data);
        }
        assert!(here.run(&format!("read {all}")).ok().stdout == expected, "{shape}: whole");
        let part = here.run(&format!("read {reversed} --offset 12344 --length 200002")).ok().stdout.clone();
        assert!(part == expected[12_344..212_346], "{shape}: a part");
        let left: Vec<_> = members(shape).into_iter().filter(|member| !lost.contains(member)).collect();
        let degraded = here.run(&format!("read {}", left.join(" ")));
        assert!(degraded.ok().stdout == expected, "{shape}: without {lost:?}");
    }
}

#[test]
fn a_write_that_is_interrupted_leaves_a_clean_array_with_what_was_read_until_then() {
    let here = Workplace::new();
    here.run("create --level 5 --chunk 64K --size 80M a b missing").ok();
    let first = pattern((64 << 20) + 12_345); // longer than the read-ahead
    let mut command = here.command(&["write", "a", "b"]);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(&first).expect("it reads on");
    stdin.write_all(&first[..1 << 20]).expect("it reads on"); // so the bytes before were read from the pipe
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    let output = child.wait_with_output().expect("it ends");
    drop(stdin);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("interrupted"), "{:?}: {said}", output.status);
    // A dirty and degraded array would be refused.
    let read = here.run(&format!("read a b --length {}", first.len())).ok().stdout.clone();
    assert!(read == first, "other bytes");
}

#[test]
fn what_cannot_be_the_input_is_refused() {
    let here = Workplace::new();
    here.run("create --level 5 --chunk 64K --size 8M a b c").ok();
    let before = here.contents(&["a", "b", "c"]);
    here.run("write a b c --input .").expect(2, &[".: a directory"]);
    here.run("write a b c --input b").expect(2, &["b: a member of this array", "choose another --input"]);
    assert!(here.contents(&["a", "b", "c"]) == before, "something was written");
}

#[test]
fn a_spare_that_was_not_there_for_a_while_is_a_spare() {
    let here = Workplace::new();
    let said = here.run("create --level 5 --chunk 64K --size 8M a b c --spare s").ok().text();
    assert!(said.contains("next: mdspace serve a b c s\n"), "{said}");
    for _ in 0..3 {
        here.run_with("write a b c", b"without the spare").ok();
    }
    let told: serde_json::Value = serde_json::from_str(&here.run("examine --json s c b a").ok().text()).expect("JSON");
    let status = &told["arrays"][0]["status"];
    assert_eq!((&status["left_out"], &status["members"][3]["state"]), (&serde_json::json!([]), &"spare".into()));
    here.run_with("write a c s", b"a member is missing, and it takes its place").ok();
    here.run("create --level 0 --size 8M x y --spare z").expect(2, &["--spare z", "without redundancy"]);
}

#[test]
fn what_was_copied_is_told_as_json() {
    let here = Workplace::new();
    here.run("create --level 5 --chunk 64K --size 8M a b c").ok();
    let told = |output: String| -> serde_json::Value { serde_json::from_str(&output).expect("JSON") };
    let written = told(here.run_with("write --json b c a --offset 777", &pattern(100_000)).ok().text());
    let read = told(here.run("read --json a b --offset 777 --length 100000 -o out").ok().text());
    for (told, state) in [(written, "clean"), (read, "clean, degraded")] {
        assert_eq!((&told["offset"], &told["bytes"]), (&777.into(), &100_000.into()));
        assert_eq!((&told["status"]["level"], &told["status"]["state"]), (&"raid5".into(), &state.into()));
    }
    assert!(std::fs::read(here.path().join("out")).expect("it is there") == pattern(100_000));
    here.run("read --json a b c").expect(2, &["--json", "standard output", "--output"]);
}

#[test]
fn a_write_is_refused_as_a_whole_when_it_would_run_past_the_end() {
    let here = Workplace::new();
    here.run("create --level 5 --chunk 64K --size 8M a b c").ok();
    let size = here.run("read a b c").ok().stdout.len();
    let before = here.contents(&["a", "b", "c"]);
    std::fs::write(here.path().join("long"), pattern(size + 1)).expect("a file");
    here.run("write a b c -i long").expect(2, &["long: longer than"]);
    here.run(&format!("write a b c --offset {}", size + 1)).expect(2, &["past the array's end"]);
    here.run_with("write a b c", &pattern(size + 1)).expect(2, &["standard input: longer than"]);
    assert!(here.contents(&["a", "b", "c"]) == before, "nothing was changed");
    here.run_with("write a b c", &pattern(size)).ok();
}

#[test]
fn reading_changes_nothing_and_refuses_what_is_not_there() {
    let here = Workplace::new();
    here.run("create --level 6 --chunk 64K --size 8M a b c d").ok();
    here.run_with("write a b c d", &pattern(100_000)).ok();
    let before = here.contents(&["a", "b", "c", "d"]);
    let size = here.run("read a b c d").ok().stdout.len();
    here.run("examine a b c d").ok();
    for (line, words) in [
        (format!("read a b c d --offset {}", size + 1), &["past the array's end"] as &[&str]),
        (format!("read a b c d --offset 1 --length {size}"), &["past the array's end"]),
        ("read a b c d -o c".to_owned(), &["c: a member of this array"]),
        ("read a".to_owned(), &["too few members"]),
        ("read a b c ./c".to_owned(), &["./c: the same member as c"]),
        ("create --level 5 a b c".to_owned(), &["a: superblock.magic", "--force"]),
    ] {
        here.run(&line).expect(2, words);
    }
    here.run("read a b c d -o out --length 1M").ok();
    assert_eq!(std::fs::read(here.path().join("out")).expect("out").len(), 1 << 20);
    assert!(here.contents(&["a", "b", "c", "d"]) == before, "no member was changed");
}

#[test]
fn members_are_found_by_glob_and_by_uuid_among_strangers() {
    let here = Workplace::new();
    here.run("create --level 1 --size 8M x1 x2").ok();
    let created = here.run("create --level 5 --size 8M y1 y2 y3").ok().text();
    let uuid = created.split("uuid ").nth(1).and_then(|rest| rest.lines().next()).expect("create prints the uuid");
    std::fs::write(here.path().join("letter"), "not a member").expect("a file");
    here.run_with("write y*", b"found").ok();
    assert_eq!(here.run(&format!("read . --uuid {uuid} --length 5")).ok().stdout, b"found");
    assert_eq!(here.run(&format!("read x1 y? --uuid {uuid} --length 5")).ok().stdout, b"found");
    here.run("read x1 y1 y2 y3").expect(2, &["x1"]);
    here.run("read . --uuid 00112233:44556677:8899aabb:ccddeeff").expect(2, &["no member of array 00112233:"]);
}

#[test]
fn arrays_over_used_members_agree_from_the_start() {
    for (level, members) in [("5", "a b c"), ("6", "a b c d"), ("1", "a b"), ("10", "a b c")] {
        let here = Workplace::new();
        for (index, member) in members.split(' ').enumerate() {
            let garbage: Vec<u8> = pattern((8 << 20) + index).split_off(index);
            std::fs::write(here.path().join(member), garbage).expect("a member");
        }
        here.run(&format!("create --level {level} --force {members}")).ok();
        let report: serde_json::Value =
            serde_json::from_slice(&here.run(&format!("examine --json {members}")).ok().stdout).expect("JSON");
        let status = &report["arrays"][0]["status"];
        assert_eq!((&status["state"], &status["in_agreement"]), (&"clean".into(), &true.into()), "level {level}");
        let whole = here.run(&format!("read {members}")).ok().stdout.clone();
        let left = &members[2..];
        assert!(here.run(&format!("read {left}")).ok().stdout == whole, "level {level} without a");
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let here = Workplace::new();
    here.run("create --level 0 --size 64M a b").ok();
    let mut command = here.command(&["read", "a", "b"]);
    let mut child = command.stdout(std::process::Stdio::piped()).spawn().expect("mdspace starts");
    drop(child.stdout.take());
    assert!(child.wait().expect("mdspace ends").success());
}

#[test]
fn examine_says_what_is_not_well_and_what_cannot_be_used() {
    let here = Workplace::new();
    here.run("create --level 5 --size 8M --name data a b c").ok();
    std::fs::write(here.path().join("letter"), "not a member").expect("a file");
    let text = here.run("examine a b").ok().text();
    assert!(text.contains("array \"data\": raid5, 12 MiB, clean, degraded\n  missing: slot 2\n"), "{text}");
    here.run("examine a").expect(1, &["too few members"]);
    here.run("examine a b c letter").expect(2, &["letter"]);
    let report = here.run("examine --json a letter");
    let report: serde_json::Value = serde_json::from_slice(&report.expect(2, &["letter"]).stdout).expect("JSON");
    assert_eq!(report["unusable"][0]["name"], "letter");
    assert_eq!(report["members"][0]["role"], "active 0");
    assert_eq!(report["arrays"][0]["status"], serde_json::Value::Null);
}
