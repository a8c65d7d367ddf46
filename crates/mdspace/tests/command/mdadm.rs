//! mdadm's command line, end to end: arrays are created, assembled, changed and stopped by mdadm's own words, through a
//! link of that name. `mdadm_examine.rs` compares `--examine` with mdadm.

use crate::support::nbd::Nbd;
use crate::support::{END_TIMEOUT, Run, Server, Workplace, ends_within, parsed};
use crate::update::turned;
use rustix::process::{Pid, PidfdFlags, Signal, getsid, pidfd_open, pidfd_send_signal};
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Bytes of a member.
const MEMBER_BYTES: u64 = 16 << 20;

/// A directory with a link named mdadm, and members. What is served when the test ends is stopped.
struct Place {
    here: Workplace,
}

impl Place {
    fn new(members: &[&str]) -> Self {
        let here = Workplace::new();
        symlink(env!("CARGO_BIN_EXE_mdspace"), here.path().join("mdadm")).expect("a link");
        for member in members {
            let file = std::fs::File::create(here.path().join(member)).expect("of our own");
            file.set_len(MEMBER_BYTES).expect("it is sparse");
        }
        Self { here }
    }

    /// Runs the link, in UTC.
    fn mdadm(&self, line: &str) -> Run {
        let mut command = Command::new(self.here.path().join("mdadm"));
        command.args(line.split_whitespace()).current_dir(self.here.path());
        command.env("XDG_RUNTIME_DIR", self.here.path()).env("XDG_STATE_HOME", self.here.path().join("state"));
        Run::new(line, command.env("TZ", "UTC").output().expect("it runs"))
    }

    /// Runs the link; it is to say `words` on standard output.
    #[track_caller]
    fn says(&self, line: &str, words: &str) {
        let said = self.mdadm(line).ok().text();
        assert!(said.contains(words), "{line}: no `{words}` in: {said}");
    }

    /// `path` of a member, as servers know it.
    fn path(&self, member: &str) -> String {
        self.here.path().join(member).display().to_string()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.mdadm("--stop --scan");
    }
}

/// The value behind `label : `.
fn said<'a>(text: &'a str, label: &str) -> &'a str {
    let line = text.lines().find(|line| line.trim_start().starts_with(&format!("{label} : ")));
    line.and_then(|line| line.split_once(" : ")).unwrap_or_else(|| panic!("{label}: {text}")).1.trim()
}

#[test]
fn an_array_is_made_shown_changed_and_stopped_by_mdadms_words() {
    let place = Place::new(&["a", "b", "c", "d"]);
    let created = place.mdadm("--create /dev/md/data --level=5 -n3 -c 64 --homehost=nas --assume-clean a b c");
    assert_eq!(created.ok().text(), "mdadm: array /dev/md/data started.\n");
    let detail = place.mdadm("--detail /dev/md/data").ok().text();
    assert!(detail.starts_with("/dev/md/data:\n           Version : 1.2\n     Creation Time : "), "{detail}");
    for (label, value) in [
        ("Raid Level", "raid5"),
        ("Raid Devices", "3"),
        ("State", "clean"),
        ("Layout", "left-symmetric"),
        ("Chunk Size", "64K"),
        ("Consistency Policy", "resync"),
        ("Name", "nas:data"),
        ("Active Devices", "3"),
    ] {
        assert_eq!(said(&detail, label), value, "{detail}");
    }
    let row = format!("       0       0        0        0      active sync   {}\n", place.path("a"));
    assert!(detail.contains(&row), "{detail}");
    let uuid = said(&detail, "UUID").to_owned();
    let scanned = place.mdadm("-Ds").ok().text();
    assert_eq!(scanned, format!("ARRAY /dev/md/data metadata=1.2 name=nas:data UUID={uuid}\n"));
    let exported = place.mdadm("-D --export /dev/md/data").ok().text();
    let expected =
        format!("MD_LEVEL=raid5\nMD_DEVICES=3\nMD_METADATA=1.2\nMD_UUID={uuid}\nMD_DEVNAME=data\nMD_NAME=nas:data\n");
    assert!(exported.starts_with(&expected), "{exported}");
    place.mdadm("--detail --test /dev/md/data").expect(0, &[]);

    place.mdadm("/dev/md/data --fail a --remove a --add d").expect(
        0,
        &[
            &format!("mdadm: set {} faulty in /dev/md/data", place.path("a")),
            &format!("mdadm: hot removed {} from /dev/md/data", place.path("a")),
            &format!("mdadm: added {}", place.path("d")),
        ],
    );
    place.mdadm("--wait /dev/md/data"); // 1 if the recovery has ended already
    place.here.run("wait data healthy").ok();
    place.mdadm("--wait /dev/md/data").expect(1, &[]);
    let detail = place.mdadm("--detail /dev/md127").ok().text();
    assert_eq!(said(&detail, "Active Devices"), "3", "{detail}");
    assert!(detail.contains(&format!("active sync   {}\n", place.path("d"))), "{detail}");
    let found = place.mdadm("-Q /dev/md/data").ok().text();
    let expected = "/dev/md/data: 30.00MiB raid5 3 devices, 0 spares. Use mdadm --detail for more detail.\n";
    assert_eq!(found, expected);
    assert!(place.mdadm("-Q b").ok().text().contains("device 1 in 3 device active raid5 /dev/md/data."));

    place.mdadm("--grow /dev/md/data --bitmap=internal").ok();
    let mdstat = place.here.run("mdstat").ok().text();
    let expected = "md127 : active raid5 d[3] c[2] b[1]\n      30720 blocks super 1.2 level 5, 64k chunk, algorithm 2 \
                    [3/3] [UUU]\n      bitmap: 0/1 pages [0KB], ";
    assert!(mdstat.contains(expected) && mdstat.ends_with("\nunused devices: <none>\n"), "{mdstat}");
    place.mdadm("--misc --action=check /dev/md/data").ok();
    place.mdadm("--wait-clean /dev/md/data").ok();
    let status = parsed(&place.here.run("status --json").ok().text());
    let uri = status["served"]["nbd"].as_str().expect("a URI").to_owned();
    let client = Nbd::connect(uri.split_once("socket=").expect("a socket").1);
    place.mdadm("--stop /dev/md/data").expect(1, &["mdadm: Cannot get exclusive access to /dev/md/data: Perhaps"]);
    drop(client);
    while parsed(&place.here.run("status --json").ok().text())["served"]["clients"] != 0 {}
    place.says("--stop /dev/md/data", "mdadm: stopped /dev/md/data\n");
    place.mdadm("--detail /dev/md/data").expect(1, &["mdadm: cannot open /dev/md/data: No such file or directory"]);
    place.mdadm("--detail --test /dev/md/data").expect(4, &[]);
}

#[test]
fn arrays_are_assembled_as_mdadm_assembles_them() {
    let place = Place::new(&["a", "b"]);
    place.here.run("create --level 1 --name host:music a b").ok();
    place
        .mdadm("--assemble /dev/md0 a")
        .expect(1, &["assembled from 1 drive - need all 2 to start it (use --run to insist)."]);
    place.mdadm("-A /dev/md0 a gone").expect(1, &["cannot open", "No such file or directory"]);
    place.says("-A /dev/md0 a b --readonly", "mdadm: /dev/md0 has been started with 2 drives.\n");
    let status = parsed(&place.here.run("status --json").ok().text());
    assert_eq!((&status["name"], &status["read_only"]), (&"host:music".into(), &true.into()));
    assert!(place.here.run("mdstat").ok().text().contains("md0 : active (read-only) raid1 b[1] a[0]\n"));
    place.mdadm("-A /dev/md0 a b").expect(1, &["/dev/md0 is already in use"]);
    place.mdadm("-S /dev/md0").ok();

    let directory = place.here.path().display();
    let config = format!("DEVICE {directory}/a {directory}/b\n{}", place.mdadm("-Es a b").ok().text());
    std::fs::write(place.here.path().join("conf"), config).expect("written");
    place.says("--assemble --scan -c conf", "mdadm: /dev/md/music has been started with 2 drives.");
    place.says("--stop --scan", "mdadm: stopped /dev/md/music");
    place.says("-A -c conf /dev/md/music", "started with 2 drives");
    place.mdadm("-S /dev/md/music").ok();
    place.mdadm("-A -c conf /dev/md/video").expect(1, &["/dev/md/video not identified in config file."]);

    place.says("-A /dev/md/new --update=name --name=new --homehost=nas a b", "2 drives");
    assert_eq!(place.mdadm("-Ds").ok().text().split(' ').nth(3), Some("name=nas:new"));
    place.mdadm("-S /dev/md/new").ok();
    place.says("-A -R /dev/md/new a", "started with 1 drive (out of 2).");
    place.mdadm("-D -t /dev/md/new").expect(1, &[]);
}

#[test]
fn a_monitor_moves_a_spare_within_a_group_of_the_configuration() {
    let place = Place::new(&["a", "b", "c", "d", "s"]);
    place.mdadm("--monitor --scan --oneshot").expect(1, &["No array with redundancy detected"]);
    place.mdadm("-C /dev/md/data -R -l1 -n2 -x1 --assume-clean a b s").ok();
    place.mdadm("-C /dev/md/music -R -l1 -n2 --assume-clean c d").ok();
    let lines = place.mdadm("-Es a b c d s").ok().text().replace(" name=", " spare-group=any name=");
    let program = place.here.path().join("tell");
    std::fs::write(&program, "#!/bin/sh\necho \"$@\" >>told\n").expect("a file");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, mode).expect("it is ours");
    let lines = format!("PROGRAM {}\n{lines}", program.display());
    std::fs::write(place.here.path().join("conf"), lines).expect("written");
    place.mdadm("/dev/md/music --fail c").ok();
    place.mdadm("--monitor --oneshot").expect(2, &["give --scan"]);
    for line in ["--monitor --scan --oneshot --no-sharing -c conf", "--monitor --oneshot -c conf /dev/md/data"] {
        let (said, moves) = (place.mdadm(line).ok().text(), !line.contains("--no-sharing"));
        assert_eq!(said.contains("MoveSpare"), moves, "{line}: {said}");
        assert_eq!(said.contains("DegradedArray"), !moves, "{line}: {said}");
    }
    place.says("--detail /dev/md/music", "/s\n");
    let told = std::fs::read_to_string(place.here.path().join("told")).expect("the program was called");
    assert!(told.contains("MoveSpare") && told.contains("DegradedArray"), "{told}");
}

/// A monitor in the background, killed when the test ends before the monitor.
struct Daemon {
    id: Pid,
    process: OwnedFd,
}

impl Daemon {
    /// By the text of its pid file, or what mdadm printed.
    fn of(text: &str) -> Self {
        let number = text.strip_suffix('\n').and_then(|number| number.parse().ok());
        let id = number.and_then(Pid::from_raw).unwrap_or_else(|| panic!("a process id: {text:?}"));
        Self { id, process: pidfd_open(id, PidfdFlags::empty()).expect("it runs") }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = pidfd_send_signal(&self.process, Signal::KILL); // fails if it has ended
    }
}

#[test]
fn a_monitor_in_the_background_has_let_go_of_its_caller_and_removes_its_pid_file() {
    let place = Place::new(&["a", "b", "c"]);
    let here = place.here.path();
    place.mdadm("-C /dev/md/data -R -l1 -n3 --assume-clean a b c").ok();
    place.mdadm("--monitor --scan --pid-file=pid").expect(1, &["Cannot write a pid file when not in daemon mode"]);
    place.mdadm("--monitor --scan -f --pid-file=gone/pid").expect(1, &["mdadm: ", "gone/pid: No such file"]);
    // The program says which signals it has blocked. It starts no process for that, as a shell blocks all while it does.
    let (program, told) = (here.join("tell"), here.join("told"));
    std::fs::write(&program, "#!/bin/sh\nwhile read -r name value; do\n[ $name = SigBlk: ] && echo \"$@\" $name $value >>told\ndone </proc/$$/status\n").expect("a file");
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("it is ours");

    let lines = [
        ("--monitor --scan --daemonise --program=./tell --delay=0.1", None, "a", Signal::TERM),
        ("--follow -s --daemonize --pid-file=pid -p ./tell -d 0.1", Some("pid"), "b", Signal::INT),
    ];
    for (line, pid_file, member, signal) in lines {
        let said = place.mdadm(line).ok().text();
        let pid_file = pid_file.map(|file| here.join(file));
        let written = pid_file.as_ref().map(|file| std::fs::read_to_string(file).expect("it is there by now"));
        assert_eq!(said.is_empty(), written.is_some(), "{line}: {said}");
        let daemon = Daemon::of(&written.unwrap_or(said));
        assert_eq!(getsid(Some(daemon.id)), Ok(daemon.id), "a session of its own");
        for stream in 0..3 {
            let stream = format!("/proc/{}/fd/{stream}", daemon.id.as_raw_nonzero());
            assert_eq!(std::fs::read_link(&stream).expect("it runs"), Path::new("/dev/null"), "{stream}");
        }
        place.mdadm(&format!("/dev/md/data --fail {member}")).ok();
        let event = format!("/{member} SigBlk: 0000000000000000\n");
        let deadline = Instant::now() + END_TIMEOUT;
        while !std::fs::read_to_string(&told).is_ok_and(|told| told.contains(&event)) {
            assert!(Instant::now() < deadline, "{line}: {:?}", std::fs::read_to_string(&told));
            std::thread::yield_now();
        }
        pidfd_send_signal(&daemon.process, signal).expect("it runs");
        assert!(ends_within(&daemon.process, END_TIMEOUT), "{line}: {signal:?}");
        assert!(pid_file.is_none_or(|file| !file.exists()), "{line}");
    }
    place.mdadm("-F -s -f -1 -i pid").ok();
    let deadline = Instant::now() + END_TIMEOUT;
    while here.join("pid").exists() {
        assert!(Instant::now() < deadline, "one that looked once has ended");
        std::thread::yield_now();
    }
}

#[test]
fn what_create_is_told_is_in_the_superblocks() {
    let place = Place::new(&["a", "b", "c", "d"]);
    let uuid = "01020304:05060708:090a0b0c:0d0e0f10";
    place.mdadm(&format!("-C /dev/md0 -l1 -n2 -z 10001 -u {uuid} --failfast a -W b")).ok();
    place.mdadm("-S /dev/md0").ok();
    let examined = parsed(&place.here.run("examine --json a b").ok().text());
    let of = |member: usize| {
        let found = &examined["members"][member];
        (found["write_mostly"].as_bool(), found["failfast"].as_bool())
    };
    assert_eq!((of(0), of(1)), ((Some(false), Some(true)), (Some(true), Some(true))), "{examined}");
    assert_eq!(examined["arrays"][0]["uuid"], uuid);
    assert_eq!(examined["arrays"][0]["status"]["component_bytes"], 10_001 << 10);

    place.mdadm(&format!("-C /dev/md5 -l1 -n2 -e0.90 -u {uuid} c d")).ok();
    let detail = place.mdadm("-D /dev/md5").ok().text();
    assert_eq!((said(&detail, "Version"), said(&detail, "Preferred Minor")), ("0.90", "5"), "{detail}");
    place.mdadm("-S /dev/md5").ok();
    let text = place.mdadm("-E d").ok().text();
    assert_eq!((said(&text, "UUID"), said(&text, "Preferred Minor")), (uuid, "5"), "{text}");
}

#[test]
fn flags_are_set_and_cleared_and_any_spare_replaces_a_member() {
    let place = Place::new(&["a", "b", "c", "d"]);
    place.mdadm("-C /dev/md0 -l1 -n2 -x1 --assume-clean a b c").ok();
    let rows = || place.mdadm("-D /dev/md0").ok().text();
    place.mdadm("/dev/md0 --add -W --failfast d").expect(0, &[&format!("mdadm: added {}", place.path("d"))]);
    assert!(rows().contains(&format!("writemostly failfast spare   {}\n", place.path("d"))), "{}", rows());
    assert!(place.here.run("mdstat").ok().text().contains(" d[3](W)(S) c[2](S) "), "as the driver marks them");
    place.here.run("set failfast=-d write-mostly=b").ok();
    assert!(rows().contains(&format!("active sync writemostly   {}\n", place.path("b"))), "{}", rows());
    assert!(rows().contains(&format!("writemostly spare   {}\n", place.path("d"))), "{}", rows());
    place.here.run("set write-mostly=e").expect(2, &["e"]);

    let marked = format!("mdadm: Marked {} in /dev/md0 for replacement", place.path("a"));
    place.mdadm("/dev/md0 --replace a").expect(0, &[&marked]);
    place.here.run("wait healthy").ok();
    while rows().contains("rebuilding") {}
    // Of two spares md takes the one that came last.
    assert!(rows().contains(&format!("active sync writemostly   {}\n", place.path("d"))), "{}", rows());
    place.mdadm("/dev/md0 --remove a c").ok();
    place.here.run("replace b").expect(2, &["the array has no spare", "name the new member"]);
    place.mdadm("-S /dev/md0").ok();
    let examined = parsed(&place.here.run("examine --json b d").ok().text());
    let is_write_mostly = |member: usize| examined["members"][member]["write_mostly"] == true;
    assert!(is_write_mostly(0) && is_write_mostly(1), "{examined}");
}

/// A line of mdadm.conf may say by a name, by members or by a number which array it is.
#[test]
fn arrays_are_assembled_by_lines_without_a_uuid() {
    let place = Place::new(&["a", "b", "c", "d"]);
    place.mdadm("-C /dev/md/music -l1 -n2 --assume-clean --homehost=nas a b").ok();
    place.mdadm("-C /dev/md5 -l1 -n2 -e0.90 --assume-clean c d").ok();
    let uuid = place.mdadm("-Db /dev/md5").ok().text().trim().rsplit('=').next().map(str::to_owned).expect("a uuid");
    assert!(place.here.run(&format!("status --array {uuid}")).ok().text().contains("0.90"), "as mdadm prints it");
    place.mdadm("-Ss").ok();
    let directory = place.here.path().display();
    for (line, expected) in [
        ("ARRAY /dev/md1 name=nas:music".to_owned(), "/dev/md1"),
        ("ARRAY films name=music".to_owned(), "/dev/md/films"),
        (format!("ARRAY /dev/md2 devices={directory}/c,{directory}/d"), "/dev/md2"),
        ("array /dev/md3 super-minor=5".to_owned(), "/dev/md3"),
    ] {
        std::fs::write(place.here.path().join("conf"), format!("DEVICE {directory}/?\n{line}\n")).expect("written");
        place.says("-As -c conf", &format!("mdadm: {expected} has been started with 2 drives."));
        place.mdadm("-As -c conf").ok(); // it is started already
        place.says("-Ss", &format!("stopped {expected}"));
    }
    place.says("-A /dev/md7 --super-minor=5 a b c d", "mdadm: /dev/md7 has been started");
    place.mdadm("-S /dev/md7").ok();
    place.says("-A /dev/md7 --update=super-minor c d", "mdadm: /dev/md7 has been started");
    place.mdadm("-S /dev/md7").ok();
    assert_eq!(said(&place.mdadm("-E c").ok().text(), "Preferred Minor"), "7");
    let old = place.mdadm("-E c").ok().text();
    place.says("-A /dev/md7 --update=metadata c d", "mdadm: /dev/md7 has been started with 2 drives.");
    place.mdadm("-S /dev/md7").ok();
    let text = place.mdadm("-E c").ok().text();
    assert_eq!(["Version", "Array UUID", "Name"].map(|field| said(&text, field)), ["1.0", said(&old, "UUID"), "7"]);
}

#[test]
fn a_new_raid_5_recovers_its_last_member_and_force_resyncs_it() {
    let place = Place::new(&["a", "b", "c"]);
    let sweep = |line: &str| {
        place.mdadm(line).ok();
        place.here.run("wait healthy").ok();
        place.here.run("wait sync").ok();
        let status = parsed(&place.here.run("status --json").ok().text());
        let is_recovered = status["members"]
            .as_array()
            .expect("members")
            .iter()
            .any(|member| member["device_number"] == 3 && member["slot"] == 2);
        place.mdadm("-S /dev/md0").ok();
        place.here.run("scrub a b c").ok();
        is_recovered
    };
    assert!(sweep("-C /dev/md0 -l5 -n3 -R a b c"), "the last one has the number after the slots, as with mdadm");
    assert!(sweep("-C /dev/md0 -l4 -n3 -R -e1.0 a b c"));
    for options in ["-f -l5", "-k ppl -l5"] {
        assert!(!sweep(&format!("-C /dev/md0 -R {options} -n3 a b c")), "{options}");
    }
}

#[test]
fn zeros_are_written_where_parity_is_right_of_them_and_nothing_is_resynced() {
    let place = Place::new(&["a", "b", "c"]);
    for member in ["a", "b", "c"] {
        std::fs::write(place.here.path().join(member), vec![7; MEMBER_BYTES as usize]).expect("of our own");
    }
    let refused = place.mdadm("--create /dev/md/data --run --level=1 -n2 --write-zeroes a b");
    refused.expect(2, &["--write-zeroes is not supported at this level"]);
    assert_eq!(std::fs::read(place.here.path().join("a")).expect("of our own"), vec![7; MEMBER_BYTES as usize]);
    place.mdadm("--create /dev/md/data --run --level=5 -n3 -c 64 --assume-clean --write-zeroes a b c").ok();
    let detail = place.mdadm("--detail /dev/md/data").ok().text();
    assert_eq!(said(&detail, "State"), "clean", "{detail}");
    place.mdadm("--stop /dev/md/data").ok();
    let read = place.here.run("read a b c");
    read.ok();
    assert!(!read.stdout.is_empty() && read.stdout.iter().all(|byte| *byte == 0));
    place.here.run("scrub a b c").ok();
}

#[test]
fn the_bitmaps_delay_and_the_writes_behind_are_recorded() {
    let place = Place::new(&["a", "b"]);
    let recorded = |label: &str| said(&place.mdadm("-X b").ok().text(), label).to_owned();
    place.mdadm("-C /dev/md0 -R -l1 -n2 -binternal --bitmap-chunk=4 --write-behind -d 7 --assume-clean a -W b").ok();
    assert_eq!(recorded("Daemon"), "7s flush period");
    assert_eq!(recorded("Write Mode"), "Allow write behind, max 256");
    place.here.run("set bitmap-delay=9").ok();
    assert_eq!(recorded("Daemon"), "9s flush period");
    for value in ["0", "86401", "x"] {
        place.here.run(&format!("set bitmap-delay={value}")).expect(2, &["bitmap-delay"]);
    }
    place.mdadm("-G /dev/md0 --bitmap=none").ok();
    place.here.run("set bitmap-delay=9").expect(2, &["bitmap-delay: the array has no bitmap"]);
    place.mdadm("-G /dev/md0 --size=max --delay=2").expect(2, &["--delay: only with --bitmap"]);
    place.mdadm("-G /dev/md0 --bitmap=internal --delay=2").ok();
    place.mdadm("-S /dev/md0").ok();
    place.mdadm("-A /dev/md0 a b").ok();
    assert_eq!(recorded("Daemon"), "2s flush period");
    assert_eq!(parsed(&place.here.run("status --json").ok().text())["bitmap"]["daemon_sleep_seconds"], 2);
    // Without a bitmap the delay is recorded nowhere, and mdadm takes it.
    place.mdadm("-S /dev/md0").ok();
    place.mdadm("-C /dev/md0 -R -l1 -n2 --delay=1 --assume-clean a b").ok();
}

#[test]
fn an_array_is_served_when_its_members_were_named_one_by_one() {
    let place = Place::new(&["a", "b", "c"]);
    place.mdadm("-C /dev/md/data -l1 -n3 -b internal --assume-clean --homehost=nas a b c").ok();
    place.mdadm("-S /dev/md/data").ok();
    let path = |member: &str| place.path(member);
    place
        .mdadm("-I a")
        .expect(0, &[&format!("mdadm: {} attached to /dev/md/data, not enough to start (1).", path("a"))]);
    let mdstat = || place.here.run("mdstat").ok().text();
    assert!(mdstat().contains("md127 : inactive a[0](S)\n"), "{}", mdstat());
    place.says("-S /dev/md127", "stopped /dev/md127");
    assert!(!mdstat().contains("inactive"), "{}", mdstat());

    for member in ["a", "c", "a"] {
        place.mdadm(&format!("-I {member}")).expect(0, &["not enough to start"]);
    }
    place.mdadm("-I b").expect(0, &["attached to /dev/md/data, which has been started."]);
    assert!(mdstat().contains("[3/3] [UUU]") && !mdstat().contains("inactive"), "{}", mdstat());
    place.mdadm("-I b").ok(); // it is there
    place.mdadm("/dev/md/data -f c -r c").ok();
    place.mdadm("-I c").expect(2, &["not adding", "to active array (without --run)"]);
    place.mdadm("--zero-superblock b").expect(2, &["b"]); // in use
    place.mdadm("-IR c").ok();
    place.here.run("wait healthy").ok();
    place.mdadm("-S /dev/md/data").ok();

    place.mdadm("-I a").ok();
    place.mdadm("-R /dev/md/data").ok();
    assert!(mdstat().contains("[3/1] [U__]"), "{}", mdstat());
    place.mdadm("-S /dev/md/data").ok();
    let uuid = said(&place.mdadm("-E a").ok().text(), "Array UUID").to_owned();
    std::fs::write(place.here.path().join("conf"), format!("ARRAY /dev/md4 UUID={uuid}\n")).expect("written");
    place.mdadm("-IR -c conf a").expect(0, &["attached to /dev/md4, which has been started"]);
    assert!(mdstat().contains("md4 : active raid1 "), "{}", mdstat());
    place.mdadm("-S /dev/md4").ok();
    place.mdadm("-I b").ok();
    place.mdadm("-A -R /dev/md9 b").ok();
    assert!(!mdstat().contains("inactive"), "assembly uses what was noted: {}", mdstat());
}

#[test]
fn a_member_that_its_array_left_behind_is_zeroed_and_added_as_a_new_one() {
    let place = Place::new(&["a", "b", "c"]);
    place.mdadm("-C /dev/md0 -l1 -n2 --assume-clean a b").ok();
    place.mdadm("/dev/md0 -f b -r b").ok();
    place.mdadm("--zero-superblock b").ok();
    place.mdadm("/dev/md0 -a b").ok();
    place.here.run("wait healthy").ok();
    // Without a bitmap nothing says what it lacks.
    place.mdadm("/dev/md0 -f b -r b --re-add b").expect(1, &["b"]);
    place.mdadm("/dev/md0 -a b").expect(0, &[&format!("mdadm: added {}", place.path("b"))]);
    place.here.run("wait healthy").ok();
    place.mdadm("/dev/md0 -f b -r b -a b").expect(0, &[&format!("mdadm: added {}", place.path("b"))]);
    place.here.run("wait healthy").ok();
    place.mdadm("-S /dev/md0").ok();
    place.mdadm("--zero-superblock b").expect(2, &["--force"]); // nothing tells that it is not needed

    place.mdadm("-C /dev/md0 -R -l1 -n2 -x1 --assume-clean a b c").ok();
    place.mdadm("-S /dev/md0").ok();
    place.mdadm("-A /dev/md0 a b").ok();
    place.mdadm("/dev/md0 --add c").ok(); // its own spare
    assert!(place.here.run("mdstat").ok().text().contains(" c[2](S) "), "{}", place.here.run("mdstat").ok().text());
}

/// Each part of a mirror that was used apart has data of its own.
#[test]
fn a_member_that_was_used_without_the_others_is_not_added_to_them() {
    let place = Place::new(&["a", "b"]);
    place.mdadm("-C /dev/md0 -l1 -n2 --assume-clean a b").ok();
    place.mdadm("-S /dev/md0").ok();
    for (member, starts) in [("b", 1), ("a", 3)] {
        for _ in 0..starts {
            place.mdadm(&format!("-A -R /dev/md0 {member}")).ok();
            place.here.run("scrub").ok();
            place.mdadm("-S /dev/md0").ok();
        }
    }
    place.mdadm("-A -R /dev/md0 a").ok();
    place.mdadm("/dev/md0 -a b").expect(1, &["was a member of this array"]);
    place.mdadm("/dev/md0 -a b --force").ok();
    place.here.run("wait healthy").ok();
}

#[test]
fn an_array_without_its_journal_is_only_read() {
    let place = Place::new(&["a", "b", "c", "j"]);
    place.mdadm("-C /dev/md0 -l5 -n3 a b c --write-journal j").ok();
    place.here.run("wait sync").ok();
    place.mdadm("-S /dev/md0").ok();
    let is_read_only = || parsed(&place.here.run("status --json").ok().text())["read_only"].clone();
    place.mdadm("-A /dev/md0 a b c").expect(1, &["write journal"]);
    place.mdadm("-A /dev/md0 a b c --force").expect(0, &["Journal is missing or stale, starting array read only."]);
    assert_eq!(is_read_only(), true);
    place.mdadm("-S /dev/md0").ok();
    for member in ["a", "b", "c"] {
        place.mdadm(&format!("-I {member}")).expect(0, &["not enough to start"]);
    }
    place.mdadm("-R /dev/md0").expect(0, &["Trying to run with missing journal device"]);
    assert_eq!(is_read_only(), true);
    place.mdadm("-S /dev/md0").ok();
    place.says("-A /dev/md0 a b c j", "mdadm: /dev/md0 has been started with 3 drives");
}

#[test]
fn superblocks_of_the_other_byte_order_are_shown_and_taken() {
    let place = Place::new(&["a", "b"]);
    place.mdadm("-C /dev/md0 -l1 -n2 -e0.90 --assume-clean a b").ok();
    place.mdadm("-S /dev/md0").ok();
    let shown = place.mdadm("-E --metadata=0 a").ok().text();
    place.mdadm("-E --metadata=0.swap a").expect(1, &["No md superblock detected on a."]);
    for (member, contents) in ["a", "b"].into_iter().zip(place.here.contents(&["a", "b"])) {
        std::fs::write(place.here.path().join(member), turned(contents)).expect("written");
    }
    place.mdadm("-E a").expect(1, &["one of the other byte order"]);
    assert_eq!(place.mdadm("-E --metadata=0.swap a").ok().text(), shown);
    place.mdadm("-A /dev/md0 a b").expect(1, &["one of the other byte order"]);
    place.says("-A /dev/md0 --update=byteorder a b", "mdadm: /dev/md0 has been started with 2 drives.");
}

#[test]
fn a_served_array_becomes_read_only_and_back() {
    let place = Place::new(&["a", "b", "c"]);
    place.mdadm("-C /dev/md0 -l1 -n2 -x1 --assume-clean a b c").ok();
    for (line, is_read_only) in
        [("-o /dev/md0", true), ("-o /dev/md0", true), ("-w /dev/md0", false), ("-ro /dev/md0", true)]
    {
        place.mdadm(line).ok();
        let status = parsed(&place.here.run("status --json").ok().text());
        assert_eq!((&status["read_only"], status["members"].as_array().map(Vec::len)), (&is_read_only.into(), Some(3)));
        assert!(place.here.run("mdstat").ok().text().contains("md0 : active"), "{line}");
    }
    place.mdadm("-w /dev/md0").ok();
    let uri = parsed(&place.here.run("status --json").ok().text())["served"]["nbd"].as_str().expect("a URI").to_owned();
    let client = Nbd::connect(uri.split_once("socket=").expect("a socket").1);
    place.mdadm("-o /dev/md0").expect(1, &["failed to set readonly for /dev/md0: Device or resource busy"]);
    drop(client);
}

#[test]
fn each_member_of_a_linear_array_is_cut_to_a_multiple_of_its_chunk() {
    let place = Place::new(&["a", "b"]);
    let bytes = |name: &str| std::fs::metadata(place.here.path().join(name)).expect("it is there").len();
    for name in ["a", "b"] {
        let file = std::fs::File::options().write(true).open(place.here.path().join(name)).expect("it is there");
        file.set_len(bytes(name) + 12_345 * 512).expect("of our own");
    }
    place.mdadm("-C /dev/md0 -l linear -n2 -c 64 a b").ok();
    let status = parsed(&place.here.run("status --json").ok().text());
    let (chunk, array) = (64 << 10, status["array_bytes"].as_u64().expect("bytes"));
    assert_eq!((&status["chunk_bytes"], array % (2 * chunk)), (&chunk.into(), 0), "{status}");
    assert!(array > bytes("a") + bytes("b") - (4 << 20), "{status}");
    place.mdadm("-S /dev/md0").ok();
    assert!(place.mdadm("--examine a").ok().text().contains("       Rounding : 64K\n"));
}

#[test]
fn an_update_marks_everything_for_a_resync() {
    let place = Place::new(&["a", "b", "c"]);
    place.mdadm("-C /dev/md0 -l1 -n2 --assume-clean a b").ok();
    place.mdadm("-S /dev/md0").ok();
    place.here.run("update --resync a").expect(2, &["--resync: members are missing"]);
    place.here.run("update --resync a b").ok();
    let examined = parsed(&place.here.run("examine --json a b").ok().text());
    assert_eq!(examined["arrays"][0]["status"]["in_agreement"], false, "{examined}");
    place.here.run("read a b --length 4K").ok();
    place.mdadm("-A /dev/md0 -U resync a b").ok();
    place.here.run("wait sync").ok();
    place.mdadm("-G /dev/md0 -b internal").ok();
    place.mdadm("-S /dev/md0").ok();
    place.mdadm("-A /dev/md0 -U resync a b").expect(2, &["the array has a bitmap"]);
}

#[test]
fn the_limits_of_sweeps_hold_from_the_start() {
    let place = Place::new(&["a", "b"]);
    place.here.run("create --level 1 --name slow --resync-later a b").ok();
    let server = Server::of(&place.here, "serve a b --sync-speed-min 64K --sync-speed-max 64K");
    while parsed(&place.here.run("status --json").ok().text())["sweep"].is_null() {} // at this rate it takes minutes
    place.here.run("set sync-speed-max=none").ok();
    place.here.run("wait sync").ok();
    place.here.run("stop").ok();
    drop(server);
    place.here.run("serve a b --sync-speed-min 0").expect(2, &["sync-speed-min"]);
}

#[test]
fn a_slow_sweep_ends_when_the_members_that_it_was_for_leave() {
    let place = Place::new(&["a", "b", "c"]);
    for (made, action, leaves) in [
        ("create --force --level 5 --assume-clean --spare c a b missing", "recover", "c"),
        ("create --force --level 1 --resync-later a b", "resync", "b"),
    ] {
        place.here.run(made).ok();
        let members = if leaves == "c" { "a b c" } else { "a b" };
        let line = format!("serve {members} --sync-speed-min 16K --sync-speed-max 16K");
        let server = Server::of(&place.here, &line);
        let sweep = || parsed(&place.here.run("status --json").ok().text())["sweep"]["action"].clone();
        while sweep().is_null() {}
        assert_eq!(sweep(), action);
        place.here.run(&format!("fail {leaves}")).ok();
        place.here.run("wait sync --timeout 60").ok(); // its next window would begin after minutes
        place.here.run("stop").ok();
        drop(server);
    }
}

#[test]
fn nothing_of_somebodys_is_overwritten_and_what_is_not_here_changes_nothing() {
    let place = Place::new(&["a", "b", "c"]);
    place.here.run("create --level 1 --name host:kept a b").ok();
    let before = place.here.contents(&["a", "b", "c"]);
    for (line, status, word) in [
        ("--create /dev/md0 -l1 -n2 a c", 2, "--run"),
        ("--create /dev/md0 -l1 -n2 c", 2, "You haven't given enough devices"),
        ("--create /dev/md0 -l1 -n1 a b", 2, "You have listed more devices (2) than are in the array(1)!"),
        ("--create /dev/md0 -n2 a b", 2, "a RAID level is needed"),
        ("--create /dev/md0 -l7 -n2 a b", 2, "invalid raid level: 7"),
        ("--create /dev/md0 -l1 -n2 -e imsm a b", 2, "--metadata=imsm: not here"),
        ("--create /dev/md0 -l1 -n2 -z 1T -R a c", 2, "a member has room for only"),
        ("--create /dev/md0 -l1 -n2 -u 12:34 a b", 2, "Bad uuid: 12:34"),
        ("--create /dev/md0 -l1 -n2 -e0.90 -R a -W c", 2, "wrong state"),
        ("--create /dev/md0 -l1 -n2 a gone", 2, "cannot open"),
        ("--create /dev/x -l1 -n2 a b", 2, "unexpected name for a device"),
        ("--create a -l1 -n2 b c", 2, "unexpected name for a device"),
        ("--create /dev/md0 -l1 -n2 -b internal --delay=0 a b", 2, "invalid delay: 0"),
        ("--create /dev/md0 -R -l1 -n2 --write-behind a b", 2, "--write-behind: the members have no bitmap"),
        ("--zero-superblock a c", 2, ""),
        ("--zero-superblock a", 2, "--force"),
        ("--assemble /dev/md0 --update=ppl a b", 2, "--update=ppl: not yet"),
        ("--assemble /dev/md0 --update=byteorder a b", 2, "only version 0.90 has a byte order"),
        ("--assemble /dev/md0 --update=metadata a b", 2, "only metadata 0.90 becomes 1.0"),
        ("--assemble /dev/md0 --update=super-minor a b", 2, "only version 0.90 has it"),
        ("--assemble /dev/md0 --super-minor=7 a b", 1, "no array with the super-minor 7"),
        ("--assemble /dev/md0 --metadata=1.0 a b", 1, "No md superblock of version 1.0 on"),
        ("--assemble --scan --metadata=1.2", 2, "--metadata: not yet with --scan"),
        ("--assemble --scan -c none", 2, "--config=none: not yet"),
        ("--examine --metadata=imsm a", 2, "--metadata=imsm: not here"),
        ("--examine -e 0.90 a", 1, "No md superblock of version 0.90 on a"),
        ("--build /dev/md0 -l0 -n2 a b", 2, "--build: not here"),
        ("--incremental a b", 2, "--incremental requires exactly one device"),
        ("--incremental c", 1, "No md superblock detected on"),
        ("--incremental --scan", 2, "meaningless without --run"),
        ("/dev/md0 --readonly", 2, "No action given"),
        ("--grow /dev/md0 --level=5", 2, "--level: not yet"),
        ("/dev/md0 --add c", 1, "cannot open /dev/md0"),
        ("", 2, "mdadm --help"),
    ] {
        place.mdadm(line).expect(status, &[word]);
        assert!(place.here.contents(&["a", "b", "c"]) == before, "{line}: changed something");
    }
    assert!(place.mdadm("-Ds").ok().text().is_empty());
    place.mdadm("--zero-superblock --force a b").ok();
    place.mdadm("--examine a").expect(1, &["No md superblock detected on a."]);
}

#[test]
fn help_and_version_are_there_under_both_names() {
    let place = Place::new(&[]);
    for line in ["--help", "-A --help"] {
        assert!(place.mdadm(line).ok().text().contains("mdadm --create /dev/md/NAME"), "{line}");
    }
    assert!(place.here.run("mdadm --help").ok().text().contains("mdadm --create /dev/md/NAME"));
    assert!(place.mdadm("--help-options").ok().text().contains("--zero-superblock\n      mdspace wipe"));
    place.mdadm("--version").expect(0, &["mdadm - v4.2 - 2021-12-30 - mdspace 0."]);
    place.here.run("mdadm -V").expect(0, &["mdadm - v4.2"]);
}
