//! `mdspace wait`: until a served array is in a state, or can no longer be in it.
//!
//! Between two looks it sleeps on the server's process, so the end of the server is seen at once; [`judge`] is pure.

use crate::command::clients::arguments::{WaitArguments, WaitState};
use crate::command::clients::choice::{NotChosen, socket};
use crate::command::clients::served::{ArrayView, PATIENCE, is_gone};
use crate::command::text::failure::Failure;
use crate::command::text::output::{print, print_json};
use crate::command::text::wording::describe;
use control::{Client, ClientError};
use io::wait_for_end;
use rustix::process::Pid;
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

/// Time between two looks: the first one, and the longest.
const LOOK_FIRST: Duration = Duration::from_millis(20);
const LOOK_MAX: Duration = Duration::from_millis(500);

/// Whether the state is reached.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Reached,
    NotYet,
    /// It can no longer be reached, for this reason.
    Never(String),
}

/// Runs `mdspace wait`.
pub(crate) fn run(arguments: &WaitArguments) -> Result<(), Failure> {
    let (wanted, state) = arguments.wanted()?;
    let deadline = arguments.timeout.map(|timeout| Instant::now() + timeout);
    match socket(&wanted) {
        Ok(socket) => wait(&socket, state, deadline, arguments.json),
        Err(NotChosen::None(_)) if state == WaitState::Gone => finish(state, None, arguments.json),
        Err(not_chosen) => Err(not_chosen.into()),
    }
}

fn wait(socket: &Path, state: WaitState, deadline: Option<Instant>, as_json: bool) -> Result<(), Failure> {
    let mut pause = LOOK_FIRST;
    let mut pid = None;
    let mut last: Option<Value> = None;
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        match look(socket, left) {
            Ok(body) => {
                let array = ArrayView::deserialize(&body)
                    .map_err(|error| Failure::unwell(format!("the server's reply is not a status: {error}")))?;
                match judge(state, &array) {
                    Verdict::Reached => return finish(state, Some(body), as_json),
                    Verdict::Never(reason) => return Err(Failure::unwell(never(state, &reason))),
                    Verdict::NotYet => {}
                }
                pid = Pid::from_raw(array.served.pid);
                last = Some(body);
            }
            Err(error) if is_gone(&error) => match (state, &last) {
                (WaitState::Gone, _) => return finish(state, None, as_json),
                (_, Some(_)) => return Err(Failure::unwell(never(state, "the array is no longer served"))),
                (_, None) => return Err(error.into()),
            },
            // The server is busy, or ends.
            Err(ClientError::Silent { .. } | ClientError::Protocol { .. } | ClientError::Connect { .. }) => {}
            Err(ClientError::Api(error)) if error.status == 503 => {}
            Err(error) => return Err(error.into()),
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(out_of_time(state, last.as_ref()));
        }
        // Only the end of the server needs no looks.
        let longest = if state == WaitState::Gone && pid.is_some() { Duration::MAX } else { pause };
        rest(pid.take(), left.map_or(longest, |left| left.min(longest)), pause);
        pause = (pause * 2).min(LOOK_MAX);
    }
}

/// The array's status. A server that hangs holds this up no longer than the time that is left.
fn look(socket: &Path, left: Option<Duration>) -> Result<Value, ClientError> {
    // A command that may look only once still gives the server time to answer.
    let patience = left.filter(|left| !left.is_zero()).map_or(PATIENCE, |left| left.min(PATIENCE));
    Client::connect(socket)?.with_timeout(patience).get("/v1/status")
}

/// Sleeps for `length`, or until the server's process has ended; for `pause` if the process is unknown.
fn rest(pid: Option<Pid>, length: Duration, pause: Duration) {
    // The longest sleep that poll(2) takes without an overflow.
    const LENGTH_MAX: Duration = Duration::from_secs(3600);
    match pid {
        Some(pid) if !wait_for_end(pid, length.min(LENGTH_MAX)) => {}
        // It has ended, or has another number here: then its socket shows when it ends.
        _ => std::thread::sleep(length.min(pause)),
    }
}

/// Whether an array with this status is in the state.
fn judge(state: WaitState, array: &ArrayView) -> Verdict {
    let is_joining = |state: &str| matches!(state, "recovering" | "replacement");
    let is_at_rest = !matches!(&*array.sync_action, "resync" | "recover" | "check" | "repair" | "frozen")
        && !array.members.iter().any(|member| is_joining(&member.state));
    let is_reached = match state {
        WaitState::Sync => is_at_rest && array.in_agreement,
        WaitState::Clean => array.state.starts_with("clean"),
        WaitState::Healthy => array.health() == "healthy",
        WaitState::Gone => false,
    };
    match (is_reached, &array.broken, &array.sweep_failure) {
        (_, Some(reason), _) if state != WaitState::Gone => Verdict::Never(format!("takes no writes: {reason}")),
        (true, ..) => Verdict::Reached,
        (false, _, Some(reason)) if is_at_rest && matches!(state, WaitState::Sync | WaitState::Healthy) => {
            Verdict::Never(format!("the last sweep could not be finished: {reason}"))
        }
        (false, ..) if array.read_only && state != WaitState::Gone && is_at_rest => {
            Verdict::Never("the array is read-only, so nothing changes".to_owned())
        }
        (false, ..) => Verdict::NotYet,
    }
}

fn name_of_state(state: WaitState) -> &'static str {
    match state {
        WaitState::Sync => "sync",
        WaitState::Clean => "clean",
        WaitState::Healthy => "healthy",
        WaitState::Gone => "gone",
    }
}

fn never(state: WaitState, reason: &str) -> String {
    format!("{}: can no longer be reached: {reason}", name_of_state(state))
}

fn out_of_time(state: WaitState, last: Option<&Value>) -> Failure {
    let found = last.map_or("the server did not answer".to_owned(), headline);
    Failure::unwell(format!("{}: not reached in time: {found}", name_of_state(state)))
        .advise("`mdspace status` shows what is under way")
}

/// The array's name, level, size, state and sweep.
fn headline(body: &Value) -> String {
    let Ok(array) = ArrayView::deserialize(body) else { return String::new() };
    let sweep = match &*array.sync_action {
        "idle" => String::new(),
        action => format!(", {action}"),
    };
    format!("{}{sweep}", describe(&array.name, &array.level, array.array_bytes, &array.state))
}

fn finish(state: WaitState, body: Option<Value>, as_json: bool) -> Result<(), Failure> {
    match (as_json, body) {
        (true, status) => print_json(&json!({"reached": name_of_state(state), "status": status})),
        (false, Some(status)) => print(&format!("{}\n", headline(&status))),
        (false, None) => print("the array is not served\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::discriminant;

    #[test]
    fn each_state_is_recognized_and_what_can_no_longer_be_reached() {
        use WaitState::{Clean, Gone, Healthy, Sync};
        let whole = || {
            json!({
                "uuid": "0:0:0:0", "name": "data", "level": "raid1", "array_bytes": 1, "raid_disks": 2, "in_sync": 2,
                "state": "clean", "broken": null, "read_only": false, "in_agreement": true, "sync_action": "idle",
                "sweep": null, "sweep_failure": null, "served": {"pid": 1},
                "members": [{"name": "a", "state": "in_sync"}, {"name": "b", "state": "in_sync"}],
            })
        };
        let with = |changes: Value| {
            let mut status = whole();
            let changes = changes.as_object().expect("fields").clone();
            status.as_object_mut().expect("fields").extend(changes);
            ArrayView::deserialize(status).expect("a status")
        };
        let (reached, not_yet, never) = (Verdict::Reached, Verdict::NotYet, Verdict::Never(String::new()));
        let recovering = json!([{"name": "a", "state": "in_sync"}, {"name": "b", "state": "recovering"}]);
        for (changes, expected) in [
            (json!({}), [&reached, &reached, &reached, &not_yet]),
            (json!({"state": "active"}), [&reached, &not_yet, &reached, &not_yet]),
            (json!({"sync_action": "check"}), [&not_yet, &reached, &reached, &not_yet]),
            (json!({"sync_action": "learn"}), [&reached, &reached, &reached, &not_yet]),
            (json!({"sync_action": "resync", "in_agreement": false}), [&not_yet, &reached, &not_yet, &not_yet]),
            // Between two sweeps.
            (json!({"in_agreement": false}), [&not_yet, &reached, &not_yet, &not_yet]),
            (json!({"in_sync": 1, "members": recovering}), [&not_yet, &reached, &not_yet, &not_yet]),
            // No spare; one may be added.
            (json!({"in_sync": 1, "state": "clean, degraded"}), [&reached, &reached, &not_yet, &not_yet]),
            (json!({"in_sync": 1, "sweep_failure": "a"}), [&reached, &reached, &never, &not_yet]),
            (json!({"in_agreement": false, "sweep_failure": "a"}), [&never, &reached, &never, &not_yet]),
            (json!({"state": "broken, degraded", "in_sync": 0, "broken": "why"}), [&never, &never, &never, &not_yet]),
            (json!({"state": "active", "read_only": true, "in_sync": 1}), [&reached, &never, &never, &not_yet]),
        ] {
            let array = with(changes.clone());
            for (state, expected) in [Sync, Clean, Healthy, Gone].into_iter().zip(expected) {
                let verdict = judge(state, &array);
                assert_eq!(discriminant(&verdict), discriminant(expected), "{changes}: {state:?}: {verdict:?}");
            }
        }
    }
}
