//! Members that change under a running server: their file system is full, they become shorter, are removed or replaced;
//! and a log that cannot be written. A black-box test of the command, on files.
//!
//! A limit on the length of files stands for a full file system; the engine treats them alike.

use crate::support::nbd::Nbd;
use crate::support::{Server, Workplace, parsed};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;

const MEMBERS: [&str; 3] = ["a", "b", "c"];
const PIECE: u64 = 64 << 10;

/// NBD's error for a full device.
const NO_SPACE: u32 = 28;

fn pattern(at: u64) -> Vec<u8> {
    vec![(at / PIECE % 251) as u8 + 1; PIECE as usize]
}

fn serve(here: &Workplace, level: &str, more: &str) -> (Server, Nbd) {
    here.run(&format!("create --level {level} --size 8M {}", MEMBERS.join(" "))).ok();
    let server = Server::of(here, &format!("serve {} --nbd unix:nbd.socket {more}", MEMBERS.join(" ")));
    (server, Nbd::connect(here.path().join("nbd.socket").to_str().expect("a path")))
}

/// The server's files cannot be longer than this.
fn limit(server: &Server, bytes: Option<u64>) {
    let pid = Pid::from_child(&server.child);
    prlimit(Some(pid), Resource::Fsize, Rlimit { current: bytes, maximum: None }).expect("our own process");
}

/// Writes a piece, and flushes it.
fn put(nbd: &mut Nbd, at: u64) -> Result<(), u32> {
    nbd.request(1, at, PIECE as u32, &pattern(at));
    nbd.outcome()?;
    nbd.request(3, 0, 0, &[]);
    nbd.outcome()
}

fn state_of(here: &Workplace, name: &str) -> String {
    let status = parsed(&here.run("status --json").ok().text());
    let members = status["members"].as_array().expect("a list").clone();
    let member = members.iter().find(|member| member["name"].as_str().is_some_and(|path| path.ends_with(name)));
    member.expect("it is listed")["state"].as_str().expect("text").to_owned()
}

#[test]
fn without_room_the_writer_is_told_no_member_leaves_and_all_goes_on_when_there_is_room() {
    for (level, cache) in [
        ("5", "writethrough"),
        ("5", "writeback"),
        ("1", "writethrough"),
        ("10", "writethrough"),
        ("0", "writethrough"),
    ] {
        let context = format!("level {level}, {cache}");
        let here = Workplace::new();
        let (server, mut nbd) = serve(&here, level, &format!("--cache {cache}"));
        limit(&server, Some(5 << 20));
        let places: Vec<u64> = (0..nbd.bytes / PIECE).map(|number| number * PIECE).collect();
        let written: Vec<_> = places.iter().map(|at| (*at, put(&mut nbd, *at))).collect();
        let refused: Vec<_> = written.iter().filter_map(|(_, outcome)| outcome.err()).collect();
        assert!(refused.len() > 10 && refused.len() < places.len() - 10, "{context}: {} refused", refused.len());
        assert!(refused.iter().all(|error| *error == NO_SPACE), "{context}: {refused:?}");
        let check = |nbd: &mut Nbd| {
            for at in written.iter().filter(|(_, outcome)| outcome.is_ok()).map(|(at, _)| *at) {
                assert!(nbd.read(at, PIECE as u32) == pattern(at), "{context}: what was flushed at {at}");
            }
        };
        check(&mut nbd);
        let status = parsed(&here.run("status --json").ok().text());
        assert_eq!((&status["in_sync"], &status["broken"]), (&3.into(), &serde_json::Value::Null), "{context}");
        limit(&server, None);
        places.iter().for_each(|at| assert_eq!(put(&mut nbd, *at), Ok(()), "{context}: there is room at {at}"));
        here.run("stop").ok();
        assert_eq!(server.wait(), Some(0), "{context}");
        let mut groups = vec![MEMBERS.to_vec()];
        if level != "0" {
            groups.extend((0..3).map(|lost| MEMBERS.into_iter().filter(|name| *name != MEMBERS[lost]).collect()));
        }
        for group in groups {
            let found = here.run(&format!("read {}", group.join(" "))).ok().stdout.clone();
            let right: Vec<u8> = places.iter().flat_map(|at| pattern(*at)).collect();
            assert!(found[..right.len()] == right, "{context}: by {group:?}");
        }
    }
}

#[test]
fn a_member_that_becomes_shorter_is_given_up_and_never_made_long_again() {
    for (level, writes_first) in [("1", false), ("1", true), ("5", false), ("5", true), ("10", false)] {
        let context = format!("level {level}, writes first: {writes_first}");
        let here = Workplace::new();
        let (server, mut nbd) = serve(&here, level, "");
        let places: Vec<u64> = (0..nbd.bytes / PIECE).map(|number| number * PIECE).collect();
        places.iter().for_each(|at| assert_eq!(put(&mut nbd, *at), Ok(()), "{context}"));
        // Parity must be valid before a member is lost.
        while parsed(&here.run("status --json").ok().text())["in_agreement"] == false {
            std::thread::yield_now();
        }
        File::options().write(true).open(here.path().join("a")).expect("a").set_len(0).expect("it can be shorter");
        if writes_first {
            assert_eq!(put(&mut nbd, places[places.len() - 1]), Ok(()), "{context}");
        }
        for at in places.iter().rev().chain(&places) {
            assert!(nbd.read(*at, PIECE as u32) == pattern(*at), "{context}: at {at}");
        }
        assert_eq!(put(&mut nbd, places[0]), Ok(()), "{context}");
        assert_eq!(
            (state_of(&here, "a"), state_of(&here, "b")),
            ("faulty".to_owned(), "in_sync".to_owned()),
            "{context}"
        );
        assert_eq!(fs::metadata(here.path().join("a")).expect("a").len(), 0, "{context}: it was not written to");
        here.run("stop").ok();
        assert_eq!(server.wait(), Some(0), "{context}");
    }
}

#[test]
fn a_member_whose_file_is_removed_or_replaced_is_written_no_more() {
    for replaced in [false, true] {
        let here = Workplace::new();
        let (server, mut nbd) = serve(&here, "1", "");
        assert_eq!(put(&mut nbd, 0), Ok(()));
        match replaced {
            true => {
                fs::copy(here.path().join("b"), here.path().join("other")).expect("copied");
                fs::rename(here.path().join("other"), here.path().join("a")).expect("moved");
            }
            false => fs::remove_file(here.path().join("a")).expect("removed"),
        }
        assert_eq!(put(&mut nbd, PIECE), Ok(()));
        assert_eq!(state_of(&here, "a"), "faulty");
        assert!([0, PIECE].iter().all(|at| nbd.read(*at, PIECE as u32) == pattern(*at)));
        here.run("stop").ok();
        assert_eq!(server.wait(), Some(0));
    }
}

#[test]
fn a_log_that_cannot_be_written_ends_nothing() {
    let here = Workplace::new();
    here.run("create --level 1 --size 8M a b c").ok();
    let full = || Stdio::from(File::options().write(true).open("/dev/full").expect("a device of every Linux"));
    let mut command = here.command(&["serve", "a", "b", "c", "--nbd", "unix:nbd.socket"]);
    command.stderr(full());
    let server = Server::start(command);
    here.run("fail b").ok();
    File::options().write(true).open(here.path().join("a")).expect("a").set_len(0).expect("it can be shorter");
    let mut nbd = Nbd::connect(here.path().join("nbd.socket").to_str().expect("a path"));
    assert!(put(&mut nbd, 0).is_ok() && nbd.read(0, PIECE as u32) == pattern(0));
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0), "it stops as one does whose log is read");
    let mut refused = here.command(&["examine", "nothing"]);
    assert_eq!(
        refused.stderr(full()).status().expect("it runs").code(),
        Some(2),
        "a refusal that cannot be said is one"
    );
}

#[test]
fn a_limit_on_the_length_of_files_ends_nothing_without_a_word() {
    let here = Workplace::new();
    here.run("create --level 5 --size 8M a b c").ok();
    let before = fs::metadata(here.path().join("a")).expect("a").ino();
    let program = env!("CARGO_BIN_EXE_mdspace");
    let run = |line: &str, input: &[u8]| {
        let script = format!("ulimit -S -f 8192; exec {program} {line}"); // 4 or 8 MiB, as the shell counts
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &script]).current_dir(here.path()).env("XDG_RUNTIME_DIR", here.path());
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a shell");
        use std::io::Write;
        drop(child.stdin.take().expect("a pipe").write_all(input));
        let output = child.wait_with_output().expect("it ends");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (status, said) = run("write a b c", &vec![7; 12 << 20]);
    assert!(status == Some(1) && said.contains("no room"), "{status:?}: {said}");
    let (status, said) = run("create --level 1 --size 64M d e", &[]);
    assert!(status.is_some_and(|status| status > 0) && !said.is_empty(), "{status:?}: {said}");
    assert_eq!(fs::metadata(here.path().join("a")).expect("a").ino(), before);
    here.run_with("write a b c", &vec![9; 12 << 20]).ok();
    assert!(here.run("read b c").ok().stdout.iter().take(12 << 20).all(|byte| *byte == 9));
}

#[test]
fn members_that_can_outgrow_their_file_system_are_said_to() {
    let here = Workplace::new();
    let made = here.run("create --level 1 --size 8T a b");
    made.expect(0, &["note: a: sparse members", "16.0 TiB more", "free"]);
    assert!(here.run("create --level 1 --size 8M c d").ok().stderr.is_empty(), "these fit");
}
