//! Warnings and refusals that protect the user: holes in images, file names of any bytes, files of other users, mdadm's
//! options.
//!
//! A black-box test of the command. overwriting.rs tests the protection of existing data.

use crate::support::{Server, Workplace, parsed};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::process::{Command, Stdio};

const MEMBER_BYTES: u64 = 8 << 20;

/// Bytes without a run of zeros, different at each position.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut noise = Vec::with_capacity(bytes + 8);
    while noise.len() < bytes {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        noise.extend_from_slice(&(state | 0x0101_0101_0101_0101).to_le_bytes());
    }
    noise.truncate(bytes);
    noise
}

/// Writes zeros over a part of a member, or punches a hole there.
fn lose(here: &Workplace, name: &str, at: u64, bytes: u64, as_hole: bool) {
    let file = std::fs::File::options().write(true).open(here.path().join(name)).expect("a member");
    match as_hole {
        true => {
            use rustix::fs::FallocateFlags;
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(&file, flags, at, bytes).expect("a file system with holes");
        }
        false => file.write_all_at(&vec![0; bytes as usize], at).expect("it is long enough"),
    }
}

/// Arrays with redundancy, and their members.
const ARRAYS: [(&str, &str); 5] = [
    ("--level 1", "a b"),
    ("--level 5 --chunk 64K", "a b c"),
    ("--level 6 --chunk 16K", "a b c d"),
    ("--level 10 --chunk 64K", "a b c"),
    ("--level 10 --layout f2 --chunk 4K", "a b c d"),
];

#[test]
fn zeros_that_the_others_contradict_are_warned_of_by_member_and_place() {
    for (shape, members) in ARRAYS {
        for as_hole in [false, true] {
            let here = Workplace::new();
            here.run(&format!("create {shape} --size 8M {members}")).ok();
            let bytes = parsed(&here.run(&format!("examine --json {members}")).ok().text());
            let bytes = bytes["arrays"][0]["status"]["array_bytes"].as_u64().expect("a size") as usize;
            here.run_with(&format!("write {members}"), &noise(bytes)).ok();
            let read = here.run(&format!("read {members} --output before"));
            assert!(!read.ok().stderr.contains("zeros"), "{shape}: {}", read.stderr);
            lose(&here, "b", 5 << 20, 32 << 10, as_hole);
            let read = here.run(&format!("read {members} --length 4096 --output after"));
            read.expect(0, &["WARN", "b: bytes 5242880 to 5275647 are zeros", "leave that member out"]);
            assert!(!read.stderr.contains(" a: bytes") && !read.stderr.contains("one of"), "{shape}: {}", read.stderr);
            // A short run may be data; a member that is left out causes no warning.
            let rest = members.replace('b', "");
            let read = here.run(&format!("read {rest} --length 4096 --output without"));
            assert!(!read.ok().stderr.contains("zeros"), "{shape}: {}", read.stderr);
        }
    }
}

#[test]
fn zeros_that_all_agree_on_are_never_warned_of() {
    for (shape, members) in ARRAYS {
        let here = Workplace::new();
        here.run(&format!("create {shape} --size 8M {members}")).ok();
        let quiet = |line: &str| {
            let run = here.run_with(line, &noise(1 << 20));
            assert!(!run.ok().stderr.contains("zeros"), "{shape}: {line}: {}", run.stderr);
        };
        quiet(&format!("read {members} --output new"));
        quiet(&format!("write {members} --offset 2M"));
        quiet(&format!("read {members} --output half"));
    }
}

#[test]
fn a_hole_of_a_large_sparse_image_is_found_and_the_server_warns_of_it() {
    let here = Workplace::new();
    here.run("create --level 5 --chunk 64K --size 20G --assume-clean a b c").ok();
    here.run_with("write a b c --offset 7G", &noise(16 << 20)).ok();
    let examined = parsed(&here.run("examine --json a b c").ok().text());
    let data = examined["members"][0]["data_at"].as_u64().expect("bytes");
    // The member's bytes in the middle of the written data.
    lose(&here, "c", data + (7 << 29) + (3 << 20), 256 << 10, true);
    let log = std::fs::File::create(here.path().join("log")).expect("a file");
    let mut command = here.command(&["serve", "a", "b", "c"]);
    command.stderr(log);
    let server = Server::start(command);
    let said = std::fs::read_to_string(here.path().join("log")).expect("a log");
    assert!(said.contains("c: bytes ") && said.contains("leave that member out"), "{said}");
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));
}

/// Runs the command with arguments of any bytes.
fn run(here: &Workplace, words: &[&[u8]]) -> (Option<i32>, String) {
    let mut command = here.command(&[]);
    command.args(words.iter().map(|word| OsStr::from_bytes(word))).stdin(Stdio::null());
    let output = command.output().expect("mdspace starts");
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn names_of_any_bytes_can_be_used_and_do_nothing_to_a_terminal() {
    let names: [&[u8]; 5] = [b"a\x1b[31m\x07", b"b\xff\xfe", b"c\nd\r", "e\u{202e}\u{9b}31m".as_bytes(), b"g[1]"];
    let here = Workplace::new();
    let quiet = |(status, said): (Option<i32>, String), words: &[&[u8]]| {
        let active =
            |letter: char| letter.is_control() && letter != '\n' || ('\u{202a}'..='\u{202e}').contains(&letter);
        assert!(!said.contains(active) && !said.contains("c\nd"), "{words:?}: {said:?}");
        (status, said)
    };
    let tell = |words: &[&[u8]]| quiet(run(&here, words), words);
    let with = |head: &[&'static [u8]], names: &[&'static [u8]]| [head, names].concat();
    let hostile = b"n\x1b]0;x\x07\n";
    let head: [&[u8]; 7] = [b"create", b"--level", b"6", b"--size", b"8M", b"--name", hostile];
    let (status, said) = tell(&with(&head.map(|word| word as &[u8]).map(leak), &names.map(leak)));
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("$'a\\x1b[31m\\x07' $'b\\xff\\xfe' $'c\\x0ad\\x0d'"), "{said}");
    assert!(here.path().join(OsStr::from_bytes(names[1])).exists());
    for head in [&[b"examine" as &[u8]] as &[&[u8]], &[b"examine", b"--json"], &[b"read", b"-o", b"out"]] {
        let words: Vec<&[u8]> = head.iter().copied().chain(names).collect();
        let (status, said) = tell(&words);
        assert_eq!(status, Some(0), "{said}");
    }
    let mut serve = here.command(&["serve"]);
    serve.args(names.iter().map(|name| OsStr::from_bytes(name)));
    let server = Server::start(serve);
    assert!(server.greeting.contains("n\\x1b]0;x\\x07\\x0a"), "{}", server.greeting);
    std::fs::File::create(here.path().join(OsString::from("new\x1b[2J")))
        .and_then(|file| file.set_len(MEMBER_BYTES))
        .expect("a file");
    for line in [
        &[b"status" as &[u8]] as &[&[u8]],
        &[b"status", b"--json"],
        &[b"iostat"],
        &[b"monitor", b"--once"],
        &[b"monitor", b"--once", b"--json"],
        &[b"fail", names[1]],
        &[b"remove", names[1]],
        &[b"add", b"--force", names[1]],
        &[b"add", b"new\x1b[2J"],
        &[b"fail", b"$'a\\x1b[31m\\x07'"],
        &[b"status"],
    ] {
        let (status, said) = tell(line);
        assert!(matches!(status, Some(0 | 1)), "{line:?}: {said}");
        assert!(!said.contains("no such") && !said.contains("not a member"), "{line:?}: {said}");
    }
    for line in [&[b"add" as &[u8], b"gone\x1b[2J"] as &[&[u8]], &[b"examine", b"gone\xff"], &[b"fail", b"gone\x1b"]] {
        let (status, said) = tell(line);
        assert_eq!(status, Some(2), "{line:?}: {said}");
    }
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));
}

fn leak(word: &[u8]) -> &'static [u8] {
    word.to_vec().leak()
}

#[test]
fn up_takes_nothing_that_others_may_have_put_there() {
    let here = Workplace::new();
    let place = |name: &str| here.path().join("mdspace-data").join(name);
    let forget = || std::fs::remove_dir_all(here.path().join("mdspace-data")).expect("it was there");
    let mode = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("it is ours");
    };
    std::fs::create_dir(here.path().join("elsewhere")).expect("a directory");
    symlink("elsewhere", here.path().join("mdspace-data")).expect("a link");
    here.run("up").expect(2, &["mdspace-data: a symbolic link"]);
    assert_eq!(here.path().join("elsewhere").read_dir().expect("it is there").count(), 0);
    std::fs::remove_file(here.path().join("mdspace-data")).expect("it was there");

    std::fs::create_dir(here.path().join("mdspace-data")).expect("a directory");
    mode(&here.path().join("mdspace-data"), 0o777);
    here.run("up").expect(2, &["mdspace-data: others can write to it (mode 777)"]);
    assert_eq!(here.path().join("mdspace-data").read_dir().expect("it is there").count(), 0);
    mode(&here.path().join("mdspace-data"), 0o700);

    std::fs::write(here.path().join("precious"), "precious").expect("a file");
    symlink("../precious", place("member0.img")).expect("a link");
    here.run("up").expect(2, &["member0.img: a symbolic link"]);
    std::fs::remove_file(place("member0.img")).expect("it was there");
    std::fs::hard_link(here.path().join("precious"), place("member0.img")).expect("a link");
    here.run("up").expect(2, &["member0.img: it has another name"]);
    assert_eq!(std::fs::read(here.path().join("precious")).expect("it is there"), b"precious");
    forget();

    let server = Server::of(&here, "up");
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));
    mode(&place("member1.img"), 0o666);
    here.run("up").expect(2, &["member1.img: others can write to it (mode 666)"]);
    mode(&place("member1.img"), 0o600);
    let server = Server::of(&here, "up");
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn a_token_that_others_can_read_is_warned_of() {
    let here = Workplace::new();
    here.run("create --level 1 --size 8M a b").ok();
    let token = here.path().join("token");
    std::fs::write(&token, "0123456789abcdef0123456789abcdef\n").expect("a file");
    for (mode, is_warned) in [(0o644, true), (0o620, true), (0o640, false), (0o600, false)] {
        std::fs::set_permissions(&token, std::fs::Permissions::from_mode(mode)).expect("it is ours");
        let log = std::fs::File::create(here.path().join("log")).expect("a file");
        let mut command = here.command(&["serve", "a", "b", "--http", "127.0.0.1:0", "--http-token-file", "token"]);
        command.stderr(log);
        let server = Server::start(command);
        let said = std::fs::read_to_string(here.path().join("log")).expect("a log");
        assert_eq!(said.contains("token: other users can read or change it"), is_warned, "{mode:o}: {said}");
        here.run("stop").ok();
        assert_eq!(server.wait(), Some(0));
    }
}

#[test]
fn too_many_open_files_are_not_taken_for_an_old_kernel() {
    let here = Workplace::new();
    here.run("create --level 1 --size 8M a b").ok();
    let own = here.command(&[]);
    for files in 3..12 {
        let mut command = Command::new("bash");
        command.arg("-c").arg(format!("ulimit -n {files}; exec \"$0\" examine a b")).arg(own.get_program());
        let output = command.current_dir(here.path()).stdin(Stdio::null()).output().expect("bash starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("5.11"), "{files}: {said}");
    }
}

#[test]
fn members_of_more_than_100_gib_get_a_bitmap_unless_it_is_declined() {
    for (options, has_bitmap) in [
        ("--level 1 --size 101G", true),
        ("--level 1 --size 101G --bitmap none", false),
        ("--level 5 --size 100G x", false),
        ("--level 10 --size 101G --assume-clean x", true),
        ("--level 0 --size 101G", false),
    ] {
        let here = Workplace::new();
        let run = here.run(&format!("create {options} --json a b"));
        let status = parsed(&run.ok().text());
        assert_eq!(status["bitmap"].is_object(), has_bitmap, "{options}");
        assert_eq!(run.stderr.contains("--bitmap none turns it off"), has_bitmap, "{options}: {}", run.stderr);
    }
}

#[test]
fn mdadms_options_get_the_line_to_type_and_nothing_that_only_looked_is_told_to_change_something() {
    let here = Workplace::new();
    for (line, words) in [
        ("--detail /dev/md0", "next: mdspace status"),
        ("-E a b", "next: mdspace examine a b"),
        ("-A --scan", "next: mdspace serve --scan"),
        ("--stop /dev/md0", "next: mdspace mdadm --stop /dev/md0"),
        ("create /dev/md0 -l5 --size 16M a b c", "/dev/md0: no such device"),
        ("--zero-superblock a", "next: mdspace wipe --dry-run a"),
        ("create -l5 -n3 -c 64 a b c", "next: mdspace create --level 5 --chunk 64K a b c"),
        ("create --level 5 --chunk 64 --size 8M a b c", "64K was probably meant (mdadm counts in KiB)"),
    ] {
        here.run(line).expect(2, &[words]);
    }
    assert_eq!(here.path().read_dir().expect("it is there").count(), 0, "a file was left");
    for (line, changing) in [("reads a", "re-add"), ("starts", "'stop'"), ("stat", "'stop'"), ("lad", "'add'")] {
        let run = here.run(line);
        assert!(!run.expect(2, &[]).stderr.contains(changing), "{line}: {}", run.stderr);
    }
    here.run("remov a").expect(2, &["'remove'"]);
    here.run("serve --scan data --config /dev/null").expect(2, &["data: ", "it has no ARRAY line"]);
}

#[test]
fn read_prints_no_bytes_on_a_terminal() {
    let here = Workplace::new();
    here.run("create --level 1 --size 8M a b").ok();
    let mut command = here.command(&["read", "a", "b"]);
    let terminal = rustix::pty::openpt(rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY);
    let terminal = terminal.expect("a terminal");
    rustix::pty::grantpt(&terminal).and_then(|()| rustix::pty::unlockpt(&terminal)).expect("it is ours");
    let name = rustix::pty::ptsname(&terminal, Vec::new()).expect("it has a name");
    let side = std::fs::File::options().write(true).open(OsStr::from_bytes(name.to_bytes())).expect("its other side");
    let output = command.stdin(Stdio::null()).stdout(side).stderr(Stdio::piped()).output().expect("mdspace starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("standard output is a terminal") && said.contains("--output FILE"), "{said}");
}
