//! `mdspace list`: all arrays that this user's servers serve, one line for each.
//!
//! A server that has ended or does not answer has its line, too, and never holds the list up. [`table`] is pure.

use crate::command::clients::arguments::ListArguments;
use crate::command::clients::interval::Intervals;
use crate::command::clients::on_disks::find;
use crate::command::clients::served::{Answer, ArrayView, LastScrubView, OnDisks, Served, ask_all};
use crate::command::opening::sockets::control_sockets;
use crate::command::text::failure::Failure;
use crate::command::text::output::{clear_screen, is_read, print_json, print_states};
use crate::command::text::screen::{self, width};
use crate::command::text::size::Size;
use crate::names::name_of;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io::IsTerminal;
use std::time::{SystemTime, UNIX_EPOCH};

/// Runs `mdspace list`.
pub(crate) fn run(arguments: &ListArguments) -> Result<(), Failure> {
    let is_screen = std::io::stdout().is_terminal();
    for _ in Intervals::new(arguments.watch, arguments.count) {
        let mut sockets = control_sockets();
        sockets.extend(arguments.control.iter().filter(|path| !sockets.contains(path)).cloned().collect::<Vec<_>>());
        let mut served = ask_all(sockets); // in the order of the sockets' names, so that no line of --watch moves
        if arguments.all {
            let found = find(&arguments.disks, &served)?;
            served.extend(found);
        }
        if arguments.json {
            print_json(&served.iter().map(Listed::of).collect::<Vec<_>>())?;
        } else {
            if arguments.watch.is_some() && is_screen {
                clear_screen()?;
            }
            let behind = if arguments.watch.is_some() && !is_screen { "\n" } else { "" };
            print_states(&format!("{}{behind}", report(&served, width())))?;
        }
        if !is_read() {
            break;
        }
    }
    Ok(())
}

/// The list's entry of an array, as `--json` prints it.
pub(crate) fn entry(served: &Served) -> Value {
    serde_json::to_value(Listed::of(served)).expect("it has no keys that are not text")
}

/// An array of the list. Its fields are a stable interface (docs/json.md).
#[derive(Serialize)]
struct Listed<'a> {
    name: String,
    uuid: String,
    health: &'static str,
    /// Why there is no status.
    reason: Option<&'a str>,
    state: Option<&'a str>,
    level: Option<&'a str>,
    array_bytes: Option<u64>,
    raid_disks: Option<u16>,
    in_sync: Option<u16>,
    may_fail: Option<u16>,
    read_only: Option<bool>,
    sync_action: Option<&'a str>,
    sweep: Option<&'a Value>,
    sweep_failure: Option<&'a str>,
    last_scrub: Option<&'a LastScrubView>,
    control: Option<String>,
    pid: Option<i32>,
    /// Of an array that is not served: the members that were found.
    members: Option<&'a [String]>,
}

impl<'a> Listed<'a> {
    fn of(served: &'a Served) -> Self {
        let array = served.array();
        let is_on_disks = matches!(served.answer, Answer::NotServed(_));
        Self {
            name: served.name(),
            uuid: match &served.answer {
                Answer::NotServed(found) => found.uuid.clone(),
                _ => array.map_or_else(|| served.short_uuid(), |array| array.uuid.clone()),
            },
            health: health(served),
            reason: match &served.answer {
                Answer::Silent(reason) => Some(reason),
                Answer::NotServed(found) => found.array.as_ref().err().map(String::as_str),
                Answer::Array(_) | Answer::Gone => None,
            },
            state: array.map(|array| &*array.state),
            level: array.map(|array| &*array.level),
            array_bytes: array.map(|array| array.array_bytes),
            raid_disks: array.map(|array| array.raid_disks),
            in_sync: array.map(|array| array.in_sync),
            may_fail: array.and_then(|array| array.may_fail),
            read_only: array.map(|array| array.read_only),
            sync_action: array.map(|array| &*array.sync_action),
            sweep: array.and_then(|array| array.sweep.as_ref()),
            sweep_failure: array.and_then(|array| array.sweep_failure.as_deref()),
            last_scrub: array.and_then(|array| array.last_scrub.as_ref()),
            control: (!is_on_disks).then(|| name_of(&served.socket)),
            pid: array.map(|array| array.served.pid).filter(|_| !is_on_disks),
            members: match &served.answer {
                Answer::NotServed(found) => Some(&found.members[..]),
                _ => None,
            },
        }
    }
}

fn health(served: &Served) -> &'static str {
    match &served.answer {
        Answer::Array(array) => array.health(),
        Answer::Silent(_) => "silent",
        Answer::Gone => "gone",
        Answer::NotServed(_) => "not served",
    }
}

/// The table, and a line for each server without an answer.
fn report(served: &[Served], width: Option<usize>) -> String {
    if served.is_empty() {
        return "no array of yours is being served here\n  next: `mdspace serve MEMBER...` serves one, `mdspace up` makes \
                and serves one\n"
            .to_owned();
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let mut text = table(served, width, now);
    for one in served {
        let socket = name_of(&one.socket);
        match &one.answer {
            Answer::Array(_) => {}
            Answer::Silent(reason) => text += &format!("silent: {reason}\n"),
            Answer::Gone => {
                text +=
                    &format!("gone: {socket}: its server was killed; serve the array again, or remove the socket\n");
            }
            Answer::NotServed(found) => text += &on_disks(found),
        }
    }
    text
}

/// The members of an array that is not served, and why it cannot be read.
fn on_disks(found: &OnDisks) -> String {
    let name = if found.name.is_empty() { &found.uuid } else { &found.name };
    let reason = found.array.as_ref().err().map(|reason| format!("\n  cannot be started: {reason}"));
    format!("not served: {name}: on {}{}\n", found.members.join(" "), reason.unwrap_or_default())
}

/// A column: its heading, its rank (the highest is left out first), and an array's cell.
struct Column {
    heading: &'static str,
    rank: u8,
    cell: fn(&ArrayView, u64) -> String,
}

/// The rank of the column behind the name. Name and health stay.
const UUID_RANK: u8 = 7;

/// The columns between the uuid and the health.
const SHAPE: [Column; 4] = [
    Column { heading: "level", rank: 5, cell: |array, _| array.level.clone() },
    Column { heading: "size", rank: 4, cell: |array, _| brief(array.array_bytes) },
    Column { heading: "up", rank: 2, cell: |array, _| up(array) },
    Column { heading: "state", rank: 6, cell: |array, _| state(array) },
];

/// The columns behind the health.
const ACTIVITY: [Column; 2] = [
    Column { heading: "scrub", rank: 8, cell: scrub },
    Column { heading: "under way", rank: 3, cell: |array, _| under_way(array) },
];

/// One line for each of `served`, in at most `width` columns.
fn table(served: &[Served], width: Option<usize>, now: u64) -> String {
    let cells = |columns: &[Column], one: &Served| {
        let cell = |column: &Column| one.array().map_or("-".to_owned(), |array| (column.cell)(array, now));
        columns.iter().map(cell).collect::<Vec<_>>()
    };
    let row = |one: &Served| {
        let name = if one.name().is_empty() { "-".to_owned() } else { one.name() };
        let health = vec![health(one).to_owned()];
        [vec![name, one.short_uuid()], cells(&SHAPE, one), health, cells(&ACTIVITY, one)].concat()
    };
    let headings = |columns: &[Column]| columns.iter().map(|column| column.heading).collect::<Vec<_>>();
    let heading = [vec!["name", "uuid"], headings(&SHAPE), vec!["health"], headings(&ACTIVITY)].concat();
    let heading = heading.into_iter().map(str::to_owned).collect();
    let ranks = |columns: &[Column]| columns.iter().map(|column| column.rank).collect::<Vec<_>>();
    let ranks = [vec![0, UUID_RANK], ranks(&SHAPE), vec![0], ranks(&ACTIVITY)].concat();
    screen::table(&std::iter::once(heading).chain(served.iter().map(row)).collect::<Vec<_>>(), &ranks, 0, width)
}

/// Members in sync and slots; while members are missing, also how many more may fail.
fn up(array: &ArrayView) -> String {
    let margin = array.margin().map(|margin| format!(", {margin}")).unwrap_or_default();
    format!("{}/{}{margin}", array.in_sync, array.raid_disks)
}

fn state(array: &ArrayView) -> String {
    let word = array.state.split(',').next().unwrap_or_default();
    if array.read_only { "read-only".to_owned() } else { word.to_owned() }
}

/// A size in a few letters: `1.5T`.
fn brief(bytes: u64) -> String {
    Size(bytes).to_string().replace(" bytes", "").replace("iB", "").replace(' ', "")
}

/// The time since the last complete scrub, and what it left wrong.
fn scrub(array: &ArrayView, now: u64) -> String {
    let Some(last) = &array.last_scrub else { return "-".to_owned() };
    let age = match now.saturating_sub(last.ended) {
        seconds @ 0..3600 => format!("{}min", seconds / 60),
        seconds @ 3600..86_400 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    };
    if last.left > 0 { format!("{age}, {} wrong", last.left) } else { age }
}

#[derive(Deserialize)]
struct SweepView {
    action: String,
    percent: f64,
    bytes_per_second: u64,
    #[serde(default)]
    paused: bool,
}

fn under_way(array: &ArrayView) -> String {
    match array.sweep.as_ref().and_then(|sweep| SweepView::deserialize(sweep).ok()) {
        Some(SweepView { action, percent, paused: true, .. }) => format!("{action} {percent:.1} %, paused"),
        Some(SweepView { action, percent, bytes_per_second, .. }) => {
            format!("{action} {percent:.1} %, {}/s", brief(bytes_per_second))
        }
        None if array.sync_action == "frozen" => "frozen".to_owned(),
        None => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const NOW: u64 = 100 * 86_400;

    fn served(name: &str, in_sync: u16, sweep: Option<Value>, scrub: Option<(u64, u64)>) -> Served {
        let last = scrub.map(|(age, left)| json!({"action": "check", "ended": NOW - age, "found": left, "left": left}));
        let array = ArrayView::deserialize(json!({
            "uuid": "0123abcd:0:0:0", "name": name, "level": "raid5", "array_bytes": 3_u64 << 40, "raid_disks": 4,
            "in_sync": in_sync, "state": "clean", "broken": null, "read_only": false, "in_agreement": true,
            "sync_action": "idle", "sweep": sweep, "sweep_failure": null, "last_scrub": last, "members": [],
            "served": {"pid": 7},
        }));
        let answer = Answer::Array(Box::new(array.expect("a status")));
        Served { socket: format!("/run/{name}-0123abcd.control.sock").into(), answer }
    }

    fn several(name: &str) -> Vec<Served> {
        let sweep = json!({"action": "recover", "percent": 12.34, "bytes_per_second": 34 << 20, "seconds_left": null});
        vec![
            served("data", 4, None, Some((3 * 86_400, 0))),
            served(name, 3, Some(sweep), Some((7200, 5))),
            Served { socket: "/run/left-88888888.control.sock".into(), answer: Answer::Gone },
        ]
    }

    #[test]
    fn each_array_has_a_line_with_what_is_under_way_and_its_last_scrub() {
        assert_eq!(
            table(&several("music"), None, NOW),
            "name   uuid      level  size  up   state  health    scrub        under way\n\
             data   0123abcd  raid5  3T    4/4  clean  healthy   3d           -\n\
             music  0123abcd  raid5  3T    3/4  clean  degraded  2h, 5 wrong  recover 12.3 %, 34M/s\n\
             left   88888888  -      -     -    -      gone      -            -\n"
        );
    }

    #[test]
    fn a_degraded_array_tells_how_many_more_members_may_fail() {
        for (in_sync, may_fail, expected) in [
            (4, Some(1), "4/4"),
            (3, Some(1), "3/4, 1 more may fail"),
            (3, Some(0), "3/4, no more may fail"),
            (3, None, "3/4"),
        ] {
            let served = served("data", in_sync, None, None);
            let array = ArrayView { may_fail, ..served.array().expect("it answered").clone() };
            assert_eq!(up(&array), expected);
        }
    }

    #[test]
    fn a_table_fits_any_terminal_and_leaves_out_whole_columns() {
        let whole = table(&several("music"), None, NOW);
        let mut before = 0;
        for width in 30..=120 {
            for name in ["music", "a name of thirty-one characters"] {
                let text = table(&several(name), Some(width), NOW);
                assert!(text.lines().all(|line| line.chars().count() <= width), "{width}: {text}");
                for word in ["data", "gone", "degraded", "healthy"] {
                    assert!(text.contains(word), "{width}: {text}");
                }
                for heading in text.lines().next().expect("a heading").split("  ").map(str::trim) {
                    assert!(whole.contains(heading), "{heading}: not cut: {text}");
                }
                let count = text.lines().next().expect("a heading").split_whitespace().count();
                if name == "music" {
                    assert!(count >= before, "a wider terminal shows as much: {text}");
                    before = count;
                }
            }
        }
        let usual = vec![served("data", 4, None, Some((3 * 86_400, 0))), served("music", 4, None, None)];
        assert_eq!(table(&usual, Some(80), NOW), table(&usual, None, NOW), "80 columns have all of an idle array");
    }
}
