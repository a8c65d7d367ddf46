//! The rule of udev and its unit in dist/: each word of the rule has a form that udev takes, it asks for the unit, and the
//! unit's command serves an array once when all its members appear at the same moment. Facts: udev(7).

use crate::support::{Workplace, parsed};
use std::process::{Command, Stdio};

const RULE: &str = include_str!("../../../../dist/64-mdspace.rules");
const UNIT: &str = include_str!("../../../../dist/mdspace-incremental@.service");

/// The key, operator and value of a word such as `ENV{ID_FS_TYPE}!="linux_raid_member"`.
fn parts(word: &str) -> Option<(&str, &str, &str)> {
    let (left, value) = word.trim().strip_suffix('"')?.split_once('"')?;
    let key = left.trim_end_matches(['=', '!', '+']);
    Some((key, &left[key.len()..], value))
}

#[test]
fn every_word_of_the_rule_is_udevs_and_members_alone_get_the_unit() {
    let lines: Vec<&str> = RULE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    let mut labels = Vec::new();
    for line in &lines {
        for word in line.split(',') {
            let (key, operator, value) = parts(word).unwrap_or_else(|| panic!("{word}"));
            let operators: &[&str] = match key {
                "ACTION" | "SUBSYSTEM" => &["==", "!="],
                "TAG" => &["+="],
                "GOTO" | "LABEL" => &["="],
                _ if key.starts_with("ENV{") && key.ends_with('}') => &["==", "!=", "+="],
                _ => &[],
            };
            assert!(operators.contains(&operator), "{word}");
            if ["GOTO", "LABEL"].contains(&key) {
                labels.push(value);
            }
        }
    }
    labels.dedup();
    assert_eq!(labels, ["mdspace_end"], "each jump ends at the last line");
    assert_eq!(lines.last(), Some(&r#"LABEL="mdspace_end""#));
    let asks = lines.iter().position(|line| line.contains(r#"ENV{SYSTEMD_WANTS}+="mdspace-incremental@%k.service""#));
    let others = r#"ENV{ID_FS_TYPE}!="linux_raid_member", GOTO="mdspace_end""#;
    assert!(lines.iter().position(|line| *line == others) < asks, "only members come so far");
}

#[test]
fn the_units_command_serves_an_array_once_when_all_members_appear_at_the_same_moment() {
    let here = Workplace::new();
    let _stopped = Stopped(&here);
    here.run("create --level 5 --chunk 64K --size 8M --name music a b c d").ok();
    let line = UNIT.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("it has a command");
    let of_member = |member: &str| {
        let path = here.path().join(member).display().to_string();
        let line = line
            .replace("/usr/bin/mdspace", env!("CARGO_BIN_EXE_mdspace"))
            .replace("/run/mdspace/", &format!("{}/", here.path().display()))
            .replace("/dev/%I", &path);
        assert!(line.ends_with(&path), "{line}");
        let (program, arguments) = line.split_once(' ').expect("it has arguments");
        let mut command = Command::new(program);
        command.args(arguments.split(' ')).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.env("XDG_RUNTIME_DIR", here.path()).env("XDG_STATE_HOME", here.path().join("state"));
        command.spawn().expect("flock is there")
    };
    assert!(of_member("a").wait().expect("it ends").success());
    assert_ne!(here.run("status").status, 0, "one member is not enough");
    let last: Vec<_> = ["b", "c", "d"].map(of_member).into();
    for mut child in last {
        assert!(child.wait().expect("it ends").success(), "each member is welcome");
    }
    let status = parsed(&here.run("status --json").ok().text());
    assert_eq!((&status["name"], &status["in_sync"]), (&"music".into(), &4.into()));
}

/// What is served when the test ends is stopped.
struct Stopped<'a>(&'a Workplace);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.run("stop");
    }
}
