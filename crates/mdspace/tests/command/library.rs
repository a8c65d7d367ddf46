//! The library, used beside the command on the same members; and its examples, run as programs.

use crate::support::{Server, Workplace, parsed};
use mdspace::{Array, Create, Error, ErrorKind, Level, Options};
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

const MEMBERS: [&str; 3] = ["m0", "m1", "m2"];

/// Paths of members in `here`.
fn paths(here: &Workplace, names: &[&str]) -> Vec<PathBuf> {
    names.iter().map(|name| here.path().join(name)).collect()
}

/// Creates a RAID-5 of three files with the library.
fn made() -> (Workplace, Vec<PathBuf>) {
    let here = Workplace::new();
    let members = paths(&here, &MEMBERS);
    let status = Create::new(Level::Raid5).chunk_bytes(64 << 10).member_bytes(16 << 20).create(&members);
    assert_eq!(status.expect("it is made").state, "clean");
    (here, members)
}

fn open_to_write(members: &[PathBuf]) -> Array {
    Options::new().write(true).open(members).expect("it opens")
}

/// Asks until there is a value. It appears without further action, within two minutes even on a slow machine.
#[track_caller]
fn in_time<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "still not: {what}");
        std::thread::yield_now();
    }
}

/// Bytes that do not repeat at a power of two, different for each `seed`.
fn pattern(seed: u8, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| (index % 251) as u8 ^ (index / 65_521) as u8 ^ seed).collect()
}

/// The parts of an error; the member by its file name.
fn refusal(error: &Error) -> (ErrorKind, Option<&str>, Option<&str>) {
    let member = error.member().map(|path| path.rsplit('/').next().unwrap_or_default());
    (error.kind(), member, error.field())
}

/// An example as a program. Cargo builds it with the tests.
fn example(here: &Workplace, name: &str, arguments: &[&str]) -> Output {
    let directory = Path::new(env!("CARGO_BIN_EXE_mdspace")).parent().expect("it is in a directory").join("examples");
    let mut command = Command::new(directory.join(name));
    let output = command.args(arguments).current_dir(here.path()).output();
    output.unwrap_or_else(|error| panic!("{name}: {error}; `cargo build --examples` makes it"))
}

#[test]
fn what_threads_write_at_odd_places_is_what_the_command_reads_and_what_is_read_without_a_member() {
    let (here, members) = made();
    let array = open_to_write(&members);
    let mut expected = vec![0; array.bytes() as usize];
    let part = expected.len() / 7;
    std::thread::scope(|scope| {
        for seed in 0..7 {
            let array = &array;
            scope.spawn(move || {
                let at = (usize::from(seed) * part) as u64;
                array.write_all_at(&pattern(seed, part - 1), at).expect("it is written");
                array.write_all_at(b"again", at + 70_001).expect("it is written");
                let mut found = vec![0; part - 1];
                array.read_exact_at(&mut found, at).expect("it is read");
                assert!(found[70_006..] == pattern(seed, part - 1)[70_006..]);
            });
        }
    });
    for seed in 0..7 {
        let at = usize::from(seed) * part;
        expected[at..at + part - 1].copy_from_slice(&pattern(seed, part - 1));
        expected[at + 70_001..at + 70_006].copy_from_slice(b"again");
    }
    array.flush().expect("it is flushed");
    let mut found = vec![1; expected.len()];
    array.read_exact_at(&mut found, 0).expect("it is read");
    assert!(found == expected, "by the writer");
    assert_eq!(array.close().expect("it closes").state, "clean");
    assert!(here.run("read m2 m0 m1").ok().stdout == expected, "by the command");
    let degraded = Array::open(&members[1..]).expect("it opens");
    degraded.read_exact_at(&mut found, 0).expect("it is read");
    assert!(found == expected, "without m0");
    assert_eq!((degraded.status().expect("it runs").missing, degraded.is_read_only()), (vec![0], true));
}

#[test]
fn a_member_is_held_exclusively_to_be_written_to_and_shared_to_be_read() {
    let (here, members) = made();
    let readers = [Array::open(&members).expect("it opens"), Array::open(&members).expect("it opens twice")];
    here.run("read m0 m1 m2 --length 1").ok();
    let error = Options::new().write(true).open(&members).expect_err("it is being read");
    assert_eq!(refusal(&error), (ErrorKind::Refused, Some("m0"), None));
    assert!(error.reason().contains("in use by"), "{error}");
    drop(readers);

    let array = open_to_write(&members);
    here.run("read m0 m1 m2").expect(2, &["m0: in use by process"]);
    here.run("serve m0 m1 m2").expect(2, &["m0: in use by process"]);
    drop(array);

    let server = Server::of(&here, "serve m0 m1 m2");
    for write in [false, true] {
        let error = Options::new().write(write).open(&members).expect_err("a server has it");
        assert_eq!(refusal(&error), (ErrorKind::Refused, Some("m0"), None));
        let pid = format!("in use by process {} (mdspace)", server.child.id());
        assert!(error.reason() == pid && error.advice().is_some_and(|advice| advice.contains("stop")), "{error}");
    }
    here.run("stop").ok();
    assert_eq!(server.wait(), Some(0));
    open_to_write(&members).close().expect("it is free again");
}

#[test]
fn what_cannot_be_opened_is_refused_by_member_and_field_and_nothing_is_changed() {
    let (here, members) = made();
    let [m0, m1, m2] = [&members[0], &members[1], &members[2]];
    let letter = here.path().join("letter");
    std::fs::write(&letter, "not a member").expect("a file");
    let stranger = here.path().join("stranger");
    Create::new(Level::Raid1).member_bytes(16 << 20).create([&stranger, &here.path().join("s2")]).expect("it is made");
    let damaged = here.path().join("damaged");
    let mut bytes = std::fs::read(m2).expect("a member");
    bytes[4096 + 72] ^= 1; // the level, so that the checksum is wrong
    std::fs::write(&damaged, bytes).expect("a file");
    let absent = here.path().join("absent");
    let before = here.contents(&MEMBERS);
    for write in [false, true] {
        for (given, member, field, words) in [
            (vec![m0, m1, &letter], Some("letter"), Some("superblock.magic"), ""),
            (vec![m0, m1, &damaged], Some("damaged"), Some("superblock.sb_csum"), ""),
            (vec![m0, m1, &stranger], Some("stranger"), Some("superblock.set_uuid"), ""),
            (vec![m0, m1, m0], Some("m0"), None, "the same member as"),
            (vec![m0, m1, &absent], Some("absent"), None, "cannot open"),
            (vec![m1], None, None, "too few members"),
            (vec![], None, None, ""),
        ] {
            let error = Options::new().write(write).open(&given).expect_err("it is refused");
            let (kind, found_member, found_field) = refusal(&error);
            assert_eq!((kind, found_field), (ErrorKind::Refused, field), "{given:?}: {error}");
            assert!(member.is_none() || found_member == member, "{given:?}: {error}");
            assert!(error.to_string().contains(words), "{given:?}: {error}");
        }
    }
    assert!(here.contents(&MEMBERS) == before, "no member was changed");
}

#[test]
fn a_request_is_refused_as_a_whole_when_it_runs_past_the_end_or_the_array_is_open_for_reading() {
    let (here, members) = made();
    let before = here.contents(&MEMBERS);
    let array = Array::open(&members).expect("it opens");
    let end = array.bytes();
    let mut bytes = vec![7; 5 << 20];
    let kind = |result: Result<(), Error>| result.expect_err("it is refused").kind();
    assert_eq!(kind(array.read_exact_at(&mut bytes, end - 1)), ErrorKind::OutOfRange);
    assert_eq!(kind(array.read_exact_at(&mut bytes, u64::MAX)), ErrorKind::OutOfRange);
    assert_eq!(kind(array.write_all_at(&bytes, 0)), ErrorKind::ReadOnly);
    assert_eq!(kind(array.discard(0, 4096)), ErrorKind::ReadOnly);
    array.flush().expect("there is nothing to do");
    drop(array);
    let array = open_to_write(&members);
    assert_eq!(kind(array.write_all_at(&bytes, end - (5 << 20) + 1)), ErrorKind::OutOfRange);
    assert_eq!(kind(array.discard(end, 1)), ErrorKind::OutOfRange);
    array.write_all_at(&[], end).expect("there is room for nothing");
    array.close().expect("it closes");
    assert!(here.contents(&MEMBERS) == before, "no member was changed");
}

#[test]
fn an_array_is_a_file_and_a_stream_that_end_where_it_ends() {
    fn last_bytes(file: &impl FileExt, at: u64) -> usize {
        file.read_at(&mut [0; 100], at).expect("it is read")
    }
    let (here, members) = made();
    let array = open_to_write(&members);
    let end = array.bytes();
    assert_eq!([last_bytes(&array, end - 60), last_bytes(&array, end), last_bytes(&array, u64::MAX)], [60, 0, 0]);
    let refused = array.write_at(&[0; 100], end - 60).expect_err("it runs past the end");
    let inner = refused.get_ref().and_then(|inner| inner.downcast_ref::<Error>()).expect("the error itself is inside");
    assert_eq!((refused.kind(), inner.kind()), (std::io::ErrorKind::InvalidInput, ErrorKind::OutOfRange));

    let mut stream = BufWriter::new(array.cursor());
    for line in 0..100_000 {
        writeln!(stream, "line {line}").expect("it is written");
    }
    stream.flush().expect("it is flushed");
    drop(stream);
    let mut cursor = array.cursor();
    assert_eq!(cursor.seek(SeekFrom::End(-4)).expect("a position"), end - 4);
    assert_eq!(cursor.write(b"the end").expect("a part of it"), 4);
    assert_eq!(cursor.write(b"end").expect_err("no room").kind(), std::io::ErrorKind::StorageFull);
    assert_eq!(cursor.read(&mut [0; 10]).expect("nothing more"), 0);
    cursor.seek(SeekFrom::Current(-(end as i64) - 1)).expect_err("before the beginning");
    assert_eq!(cursor.seek(SeekFrom::Start(5)).expect("a position"), 5);
    let mut start = [0; 9];
    cursor.read_exact(&mut start).expect("it is read");
    assert_eq!(&start, b"0\nline 1\n");
    drop(array);
    let last = here.run(&format!("read m0 m1 m2 --offset {}", end - 4));
    assert_eq!(last.ok().stdout, b"the ", "a dropped array was flushed and closed");
}

/// The members' states according to `examine`, which also reads members in use.
fn state(here: &Workplace) -> String {
    let report = parsed(&here.run("examine --json m0 m1 m2").ok().text());
    report["arrays"][0]["status"]["state"].as_str().expect("a state").to_owned()
}

#[test]
fn an_array_that_is_open_is_marked_clean_whenever_it_is_idle_and_when_it_is_dropped() {
    let (here, members) = made();
    let array = open_to_write(&members);
    array.write_all_at(&pattern(1, 100_000), 5).expect("it is written");
    in_time("clean", || (array.status().expect("it runs").state == "clean").then_some(()));
    assert_eq!(state(&here), "clean", "on its members too, while it is open");
    array.write_all_at(&pattern(2, 100_000), 5).expect("it is written");
    drop(array);
    assert_eq!(state(&here), "clean");
}

/// The directory in which the second process of the test below writes and dies.
const DIES_IN: &str = "MDSPACE_TEST_DIES_IN";

#[test]
fn a_process_that_dies_leaves_what_it_flushed_and_the_next_to_write_resyncs() {
    if let Some(directory) = std::env::var_os(DIES_IN) {
        let array = open_to_write(&MEMBERS.map(|name| Path::new(&directory).join(name)));
        array.write_all_at(&pattern(3, 1 << 20), 12_345).expect("it is written");
        array.flush().expect("it is flushed");
        std::process::abort();
    }
    let (here, members) = made();
    let mut child = Command::new(std::env::current_exe().expect("a path"));
    child.args(["--exact", "library::a_process_that_dies_leaves_what_it_flushed_and_the_next_to_write_resyncs"]);
    let died = child.env(DIES_IN, here.path()).output().expect("it starts").status;
    assert!(!died.success(), "it was to die");
    assert_eq!(state(&here), "active", "it was marked as written to");

    let error = Options::new().write(true).open(&members[1..]).expect_err("dirty and degraded");
    assert!(error.advice().is_some_and(|advice| advice.contains("force")), "{error}");
    drop(Options::new().force(true).open(&members[1..]).expect("it is taken if it has to be"));

    // The kernel closes the members of a killed process some time later.
    let array = in_time("free", || match Options::new().write(true).open(&members) {
        Ok(array) => Some(array),
        Err(error) if error.reason().contains("in use") => None,
        Err(error) => panic!("{error}"),
    });
    in_time("in agreement", || array.status().expect("it runs").in_agreement.then_some(()));
    let mut found = vec![0; 1 << 20];
    array.read_exact_at(&mut found, 12_345).expect("it is read");
    assert!(found == pattern(3, 1 << 20));
    assert_eq!(array.close().expect("it closes").state, "clean");
}

#[test]
fn an_order_for_an_array_that_cannot_be_made_leaves_no_file_behind() {
    let here = Workplace::new();
    let members = paths(&here, &MEMBERS);
    let small = |level| Create::new(level).member_bytes(16 << 20);
    for (order, member, field) in [
        (Create::new(Level::Raid5), Some("m0"), None),
        (small(Level::Raid1).chunk_bytes(4096), None, Some("chunk")),
        (small(Level::Raid5).layout("n2"), None, Some("layout")),
        (small(Level::Raid5).chunk_bytes(5000), None, Some("chunk")),
        (small(Level::Raid6).name("n".repeat(100)), Some("m0"), Some("superblock.set_name")),
    ] {
        let error = order.create(&members).expect_err("it is refused");
        let (kind, found_member, found_field) = refusal(&error);
        assert_eq!((kind, found_field), (ErrorKind::Refused, field), "{error}");
        assert!(member.is_none() || found_member == member, "{error}");
        assert_eq!(std::fs::read_dir(here.path()).expect("a directory").count(), 0, "{error}");
    }
    let order = small(Level::Raid6).layout("left-asymmetric-6").bitmap(true).integrity(true).name("whole");
    let members = paths(&here, &["m0", "m1", "m2", "m3"]);
    let status = order.create(&members).expect("it is made");
    assert_eq!((&*status.name, status.layout.as_deref()), ("whole", Some("left-asymmetric-6")));
    assert!(status.bitmap.is_some() && status.checksums.is_some(), "{status:?}");
    let error = order.create(&members).expect_err("there is one");
    assert_eq!(refusal(&error), (ErrorKind::Refused, Some("m0"), Some("superblock.magic")));
    order.overwrite(true).create(&members).expect("it may go");
}

#[test]
fn a_handle_can_be_sent_and_shared() {
    fn check<T: Send + Sync + 'static>() {}
    check::<Array>();
    check::<Error>();
    check::<Options>();
}

#[test]
fn the_example_that_writes_and_reads_leaves_an_array_that_the_command_takes() {
    let here = Workplace::new();
    let output = example(&here, "write_and_read", &["."]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("closed, clean\nopened, clean, degraded\n"), "{said}");
    let status = parsed(&String::from_utf8(output.stdout).expect("text"));
    assert_eq!((&status["name"], &status["in_sync"]), (&"example".into(), &3.into()));
    here.run("scrub member0.img member1.img member2.img").ok();
    let again = example(&here, "write_and_read", &["."]);
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(again.status.code() == Some(1) && said.contains("superblock.magic"), "{said}");
    assert_eq!(example(&here, "write_and_read", &[]).status.code(), Some(2));
}

#[test]
fn the_example_rescues_what_can_be_read_and_names_what_cannot() {
    let here = Workplace::new();
    here.run("create --level 5 --chunk 64K --size 16M --integrity --name nas m0 m1 m2").ok();
    let data = pattern(9, 8 << 20);
    here.run_with("write m0 m1 m2", &data).ok();
    let whole = here.run("read m0 m1 m2").ok().stdout.clone();
    let run = |arguments: &[&str], status: i32, words: &[&str]| {
        let output = example(&here, "rescue", arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{said}");
        assert!(words.iter().all(|word| said.contains(word)), "{words:?}: {said}");
    };
    run(&["copy", "m2", "m0"], 0, &["raid5 \"nas\"", "clean, degraded"]);
    assert!(std::fs::read(here.path().join("copy")).expect("a copy") == whole);
    run(&["copy", "m2", "m0"], 1, &["copy: File exists"]);
    std::fs::write(here.path().join("letter"), "not a member").expect("a file");
    run(&["other", "m0", "letter"], 2, &["  member: letter\n", "  field: superblock.magic\n"]);
    run(&["other", "m0"], 2, &["too few members"]);
    run(&[], 2, &["usage"]);

    // One member has corrupt blocks, and another is missing: data is lost only where both are needed.
    let report = parsed(&here.run("examine --json m0 m1 m2").ok().text());
    let data_at = report["members"][0]["data_at"].as_u64().expect("a number");
    let member = std::fs::File::options().write(true).open(here.path().join("m0")).expect("a member");
    member.write_all_at(&[0xff; 4096], data_at + (1 << 20)).expect("it rots");
    run(&["part", "m0", "m1"], 1, &["lost: ", "bytes could not be read"]);
    let part = std::fs::read(here.path().join("part")).expect("a copy");
    let wrong: Vec<usize> =
        (0..part.len()).step_by(4096).filter(|&at| part[at..at + 4096] != whole[at..at + 4096]).collect();
    assert!((1..=2).contains(&wrong.len()), "{wrong:?}");
    assert!(wrong.iter().all(|&at| part[at..at + 4096].iter().all(|&byte| byte == 0)), "zeros stand for what is lost");
}

#[test]
fn the_threads_of_an_array_receive_no_signal() {
    let (_here, members) = made();
    let _array = Array::open(&members).expect("it opens");
    let mut blocked = Vec::new();
    for thread in std::fs::read_dir("/proc/self/task").expect("this process") {
        let thread = thread.expect("a thread").path();
        // Threads of other tests may end meanwhile.
        let read = |name: &str| std::fs::read_to_string(thread.join(name)).unwrap_or_default();
        if read("comm").trim_end() == "mdspace" {
            let status = read("status");
            blocked.extend(status.lines().find_map(|line| Some(line.strip_prefix("SigBlk:")?.trim().to_owned())));
        }
    }
    // By name, signals 1 to 31 but SIGKILL and SIGSTOP, which cannot be blocked.
    let all = 0x7fff_ffff_u64 & !(1 << 8 | 1 << 18);
    let is_blocked = |mask: &String| u64::from_str_radix(mask, 16).is_ok_and(|mask| mask & all == all);
    assert!(!blocked.is_empty() && blocked.iter().all(is_blocked), "{blocked:?}");
}
