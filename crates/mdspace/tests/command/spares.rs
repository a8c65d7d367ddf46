//! Spares that `monitor` moves between served arrays: to which, back from one that refuses, and under kills.

use super::support::{Server, Workplace, parsed};
use serde_json::Value;
use std::process::Stdio;
use std::time::Duration;

/// Two mirrors of `a b` and `c d`; the first has the spare `s`.
struct Group {
    here: Workplace,
    _servers: [Server; 2],
}

const MOVES: &str = "monitor --once --json --spare-group data,music";
const RECORD: &str = "mdspace/spare-move.json";

impl Group {
    /// The second array's members have so many bytes.
    fn new(size_of_music: &str) -> Self {
        let here = Workplace::new();
        here.run("create --level 1 --size 8M --name data --spare s a b").ok();
        here.run(&format!("create --level 1 --size {size_of_music} --name music c d")).ok();
        let servers = [Server::of(&here, "serve a b s"), Server::of(&here, "serve c d")];
        Self { here, _servers: servers }
    }

    /// The events of a monitor that looks once.
    fn events(&self) -> Vec<Value> {
        self.here.run(MOVES).ok().text().lines().map(parsed).collect()
    }

    /// The states of an array's members that are not faulty, by name.
    fn members(&self, array: &str) -> Vec<(String, String)> {
        let status = parsed(&self.here.run(&format!("status --json {array}")).ok().text());
        let members = status["members"].as_array().expect("a list").iter();
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        let name = |name: String| name.rsplit('/').next().expect("a name").to_owned();
        let mut members: Vec<_> = members.map(|member| (name(text(&member["name"])), text(&member["state"]))).collect();
        members.retain(|(_, state)| state != "faulty");
        members.sort();
        members
    }

    fn has(&self, array: &str, member: &str) -> bool {
        self.members(array).iter().any(|(name, _)| name == member)
    }
}

fn is_move(event: &Value) -> bool {
    event["event"] == "MoveSpare"
}

#[test]
fn a_spare_goes_to_the_array_of_its_group_that_has_lost_a_member() {
    let group = Group::new("8M");
    assert!(!group.events().iter().any(is_move), "nothing is missing");
    group.here.run("fail c").ok();
    group.here.run("monitor --once").ok();
    assert!(group.has("data", "s"), "arrays without a group keep their spares");
    let events = group.events();
    let moved = events.iter().find(|event| is_move(event)).unwrap_or_else(|| panic!("{events:?}"));
    assert_eq!((&moved["array"], &moved["member"]), (&"music".into(), &"data".into()), "{moved}");
    group.here.run("wait music healthy --timeout 60").ok();
    let state = |name: &str| (name.to_owned(), "in_sync".to_owned());
    assert_eq!(group.members("music"), [state("d"), state("s")]);
    assert_eq!(group.members("data"), [state("a"), state("b")]);
    assert!(!group.here.path().join(RECORD).exists());
    assert!(!group.events().iter().any(is_move), "there is no other spare");
}

#[test]
fn a_spare_that_the_other_array_refuses_is_given_back() {
    let group = Group::new("16M");
    group.here.run("fail c").ok();
    let run = group.here.run(MOVES);
    run.ok();
    assert!(run.stderr.contains("not taken by music") && run.stderr.contains("superblock.size"), "{}", run.stderr);
    assert!(!run.text().contains("MoveSpare"), "{}", run.text());
    assert!(group.has("data", "s") && !group.has("music", "s"));
    assert!(!group.here.path().join(RECORD).exists());
}

#[test]
fn a_group_names_arrays_that_are_served_and_none_twice() {
    let group = Group::new("8M");
    group.here.run("monitor --once --spare-group data").expect(2, &["two arrays or more"]);
    let run = group.here.run("monitor --once --spare-group data,nothing");
    assert!(run.ok().stderr.contains("nothing: no such array is being served yet"), "{}", run.stderr);
}

/// A monitor is killed at any moment; the next one ends what it began.
#[test]
fn a_monitor_that_was_killed_is_followed_by_one_that_ends_the_move() {
    let group = Group::new("8M");
    for round in 0..12 {
        let (giver, needy) = if round % 2 == 0 { ("data", "music") } else { ("music", "data") };
        let lost = group.members(needy).into_iter().find(|(name, _)| name != "s").expect("a member").0;
        group.here.run(&format!("fail --array {needy} {lost}")).ok();
        let mut monitor = group.here.command(&MOVES.split(' ').collect::<Vec<_>>());
        let mut monitor = monitor.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("mdspace starts");
        std::thread::sleep(Duration::from_millis(4 * round)); // a moment of its work, which the machine's speed decides
        monitor.kill().expect("it was started");
        drop(monitor.wait());
        for _ in 0..3 {
            group.events();
        }
        assert!(group.has(needy, "s") && !group.has(giver, "s"), "round {round}");
        assert!(!group.here.path().join(RECORD).exists(), "round {round}");
        group.here.run(&format!("wait {needy} healthy --timeout 60")).ok();
        // The spare of the next round is the one that has just gone in.
        group.here.run(&format!("remove --array {needy} {lost}")).ok();
        group.here.run(&format!("add --array {needy} --force {lost}")).ok();
        group.here.run(&format!("replace --array {needy} s {lost}")).ok();
        while group.members(needy).iter().any(|(name, state)| name == "s" || state != "in_sync") {}
        group.here.run(&format!("remove --array {needy} s")).ok();
        group.here.run(&format!("add --array {needy} --force s")).ok();
        assert!(group.members(needy).contains(&("s".to_owned(), "spare".to_owned())), "round {round}");
    }
}

/// The record of a move says what a killed monitor had in hand.
#[test]
fn a_spare_that_no_array_has_goes_where_its_record_says() {
    let group = Group::new("8M");
    let uuid = |array: &str| parsed(&group.here.run(&format!("status --json {array}")).ok().text())["uuid"].clone();
    let record = |needy: Value| {
        let member = group.here.path().join("s");
        let record = serde_json::json!({"member": member, "giver": uuid("data"), "needy": needy});
        std::fs::write(group.here.path().join(RECORD), record.to_string()).expect("written");
    };
    record(uuid("music"));
    group.events();
    assert!(group.has("data", "s"), "it was not yet removed");
    for (needy, array) in [("0".repeat(32).into(), "data"), (uuid("music"), "music")] {
        group.here.run("remove --array data s").ok();
        record(needy);
        group.events();
        assert!(group.has(array, "s") && !group.here.path().join(RECORD).exists(), "{array}");
    }
    std::fs::write(group.here.path().join(RECORD), "{").expect("written");
    group.here.run(MOVES).expect(1, &["spare-move.json"]);
}
