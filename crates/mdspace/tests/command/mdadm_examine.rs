//! `mdspace mdadm --examine` and its kin print what mdadm prints, line by line.
//!
//! The members are those of crates/format/tests/fixtures: metadata that the real driver and mdadm wrote, with mdadm 4.2's
//! own text beside each (tests/kernel/fixtures.sh). Where mdadm 4.2 is installed, it also reads the same files here.

use crate::support::Workplace;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The version whose lines are compared.
const VERSION: &str = "v4.2";

/// A member with recorded metadata, as a sparse file.
struct Sample {
    /// `array/member`
    name: String,
    file: PathBuf,
    /// mdadm's text, without the line of the file's name.
    examine: String,
    bitmap: Option<String>,
    bad_blocks: Option<String>,
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../format/tests/fixtures")
}

/// The number in mdadm's line `label : NUMBER sectors`, or the one after `offset `.
fn sectors(examine: &str, label: &str) -> Option<i64> {
    let line = examine.lines().find(|line| line.trim_start().starts_with(label))?;
    let (_, value) = line.split_once(" : ")?;
    let value = value.split_once("offset ").map_or(value, |(_, offset)| offset);
    value.split(' ').next()?.parse().ok()
}

impl Sample {
    fn make(here: &Workplace, path: &Path) -> Self {
        let read = |extension: &str| std::fs::read(path.with_extension(extension)).ok();
        let text = |extension: &str| read(extension).map(|bytes| String::from_utf8(bytes).expect("text"));
        let recorded = text("examine").expect("each superblock has its text");
        let (bytes, examine) = recorded.split_once(" bytes\n").expect("the length first");
        let bytes: u64 = bytes.parse().expect("a length");
        let (_, examine) = examine.split_once('\n').expect("the device's name");
        let name = path.strip_prefix(fixtures()).expect("below it").with_extension("").display().to_string();
        let file = here.path().join(name.replace('/', "-"));
        let image = File::create(&file).expect("of our own");
        image.set_len(bytes).expect("it is sparse");
        let at = sectors(examine, "Super Offset").map_or((bytes / 65536 - 1) * 65536, |at| at as u64 * 512);
        let near = |from: i64| at.checked_add_signed(from * 512).expect("on the member");
        image.write_all_at(&read("superblock").expect("there"), at).expect("written");
        let place = sectors(examine, "Internal Bitmap").unwrap_or(8);
        if let Some(bitmap) = read("bitmap") {
            image.write_all_at(&bitmap, near(place)).expect("written");
        }
        if let Some(log) = read("bad_blocks") {
            image.write_all_at(&log, near(sectors(examine, "Bad Block Log").expect("a log"))).expect("written");
        }
        let examine = format!("{}\n", examine.trim_end());
        Self { name, file, examine, bitmap: text("examine-bitmap"), bad_blocks: text("examine-bad_blocks") }
    }

    fn all(here: &Workplace) -> Vec<Self> {
        let mut paths: Vec<PathBuf> = std::fs::read_dir(fixtures())
            .expect("fixtures are there")
            .filter_map(|array| std::fs::read_dir(array.expect("readable").path()).ok())
            .flat_map(|files| files.map(|file| file.expect("readable").path()))
            .filter(|path| path.extension().is_some_and(|extension| extension == "superblock"))
            .collect();
        paths.sort();
        assert!(paths.len() >= 40, "only {} samples", paths.len());
        paths.iter().map(|path| Self::make(here, path)).collect()
    }
}

/// Standard output of `program`, in UTC.
fn output(mut program: Command) -> String {
    let output = program.env("TZ", "UTC").env_remove("LANG").output().expect("it runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn ours(here: &Workplace, words: &[&str], files: &[&Path]) -> String {
    let mut command = here.command(&["mdadm"]);
    command.args(words).args(files);
    output(command)
}

/// What mdadm prints, where that version is installed.
fn theirs(words: &[&str], files: &[&Path]) -> Option<String> {
    let program = ["/usr/sbin/mdadm", "/sbin/mdadm"].into_iter().find(|path| Path::new(path).exists())?;
    let version = Command::new(program).arg("--version").output().expect("it runs").stderr;
    let is_it = String::from_utf8_lossy(&version).contains(VERSION);
    let mut command = Command::new(program);
    command.args(words).args(files);
    is_it.then(|| output(command))
}

/// Paths of block devices are those of the machine that prints them.
fn without_devices(text: &str) -> String {
    text.lines().map(|line| line.split("   /dev/").next().unwrap_or_default().to_owned() + "\n").collect()
}

#[test]
fn members_are_printed_line_by_line_as_mdadm_prints_them() {
    let here = Workplace::new();
    let mut checked = 0;
    for sample in Sample::all(&here) {
        let Sample { name, file, examine, .. } = &sample;
        let path = file.to_str().expect("a path of ours");
        let (words, files) = (["--examine", "--homehost=nowhere"], [&**file]);
        let printed = ours(&here, &words, &files);
        let printed_behind = printed.strip_prefix(&format!("{path}:\n")).unwrap_or_else(|| panic!("{name}: {printed}"));
        assert_eq!(without_devices(printed_behind), without_devices(examine), "{name}");
        for words in [
            &["--examine", "--homehost=nowhere"][..],
            &["-E", "--export"],
            &["-Eb"],
            &["-E", "--brief", "-v"],
            &["-Es"],
        ] {
            if let Some(theirs) = theirs(words, &files) {
                assert_eq!(ours(&here, words, &files), theirs, "{name}: {words:?}");
                checked += 1;
            }
        }
    }
    assert!(theirs(&["-E"], &[]).is_none() || checked > 200, "{checked}");
}

#[test]
fn bitmaps_and_bad_blocks_are_printed_as_mdadm_prints_them() {
    let here = Workplace::new();
    let mut counts = [0; 2];
    for sample in Sample::all(&here) {
        let rename = |text: &str| {
            let device = text.split("/dev/loop").nth(1).and_then(|rest| rest.chars().next()).expect("a device's name");
            text.replace(&format!("/dev/loop{device}"), sample.file.to_str().expect("a path of ours"))
        };
        for (index, (words, text)) in
            [(["-X"], &sample.bitmap), (["--examine-badblocks"], &sample.bad_blocks)].iter().enumerate()
        {
            if let Some(text) = text {
                assert_eq!(ours(&here, words, &[&sample.file]).trim_end(), rename(text).trim_end(), "{}", sample.name);
                counts[index] += 1;
            }
        }
        if let Some(theirs) = theirs(&["--examine-badblocks"], &[&sample.file]) {
            assert_eq!(ours(&here, &["--examine-badblocks"], &[&sample.file]), theirs, "{}", sample.name);
        }
    }
    assert!(counts[0] >= 5 && counts[1] >= 1, "{counts:?}");
}

#[test]
fn several_members_are_one_line_for_each_array_as_mdadm_prints_it() {
    let here = Workplace::new();
    let samples = Sample::all(&here);
    let arrays = ["raid5-spare/", "raid1-replacing/"];
    let is_of = |sample: &&Sample| arrays.iter().any(|array| sample.name.starts_with(array));
    let files: Vec<&Path> = samples.iter().filter(is_of).map(|sample| &*sample.file).collect();
    for words in [&["--examine", "--scan"][..], &["-Es", "-v"], &["-E", "--brief"]] {
        if let Some(theirs) = theirs(words, &files) {
            assert_eq!(ours(&here, words, &files), theirs, "{words:?}");
        }
    }
}

#[test]
fn what_is_no_member_is_said_in_mdadms_words() {
    let here = Workplace::new();
    std::fs::write(here.path().join("none"), vec![0; 1 << 20]).expect("written");
    here.run("mdadm --examine none").expect(1, &["mdadm: No md superblock detected on none."]);
    here.run("mdadm --examine gone").expect(1, &["mdadm: cannot open gone: No such file or directory"]);
    here.run("mdadm --examine --scan none gone").expect(0, &[]);
    here.run("mdadm -E").expect(2, &["mdadm: No devices to examine"]);
    let text = here.run("mdadm -Q none").expect(0, &[]).text();
    assert_eq!(text, "none: is not an md array\n");
}
