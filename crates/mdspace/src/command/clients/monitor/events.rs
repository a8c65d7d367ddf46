//! The events of mdadm --monitor, computed from two snapshots of an array. Pure.
//!
//! Facts: mdadm(8), "MONITOR MODE"; mdadm's `Monitor.c` for the events that come together.

use crate::command::clients::report::StatusView;
use serde::Serialize;

/// An event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Event {
    /// mdadm's name for it.
    pub(crate) event: String,
    /// The array's name, or its uuid if it has no name.
    pub(crate) array: String,
    /// The member concerned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) member: Option<String>,
    /// What is on the label of the member's drive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) drive: Option<String>,
}

impl Event {
    pub(crate) fn new(event: impl Into<String>, array: &str, member: Option<&str>) -> Self {
        Self { event: event.into(), array: array.to_owned(), member: member.map(str::to_owned), drive: None }
    }

    fn of_member(event: &str, array: &str, Seen { name, drive, .. }: &Seen) -> Self {
        Self { drive: drive.clone(), ..Self::new(event, array, Some(name)) }
    }

    /// How grave it is, by mdadm's manual.
    pub(crate) fn gravity(&self) -> Gravity {
        match &*self.event {
            "Fail" | "FailSpare" | "DegradedArray" | "DeviceDisappeared" => Gravity::Critical,
            rebuild if rebuild.starts_with("Rebuild") => Gravity::Warning,
            _ => Gravity::Info,
        }
    }

    /// Whether mdadm sends mail: redundancy was lost.
    pub(crate) fn is_mailed(&self) -> bool {
        matches!(&*self.event, "Fail" | "FailSpare" | "DegradedArray" | "DeviceDisappeared" | "TestMessage")
    }
}

/// The priority under which syslog gets an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gravity {
    Critical = 2,
    Warning = 4,
    Info = 6,
}

/// The state of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    name: String,
    state: String,
    drive: Option<String>,
}

/// A snapshot of an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub(crate) array: String,
    is_degraded: bool,
    members: Vec<Seen>,
    /// The running sweep and the percentage done.
    sweep: Option<(String, u64)>,
}

impl Snapshot {
    pub(crate) fn of(status: &StatusView) -> Self {
        let members = status.members().map(|(name, state)| Seen {
            name: name.to_owned(),
            state: state.to_owned(),
            drive: status.drive(name),
        });
        Self {
            array: status.array_name().to_owned(),
            is_degraded: status.is_degraded(),
            members: members.collect(),
            sweep: status.sweep().map(|(action, percent)| (action.to_owned(), percent as u64)),
        }
    }

    fn state(&self, name: &str) -> Option<&str> {
        self.members.iter().find(|member| member.name == name).map(|member| &*member.state)
    }
}

fn is_active(state: &str) -> bool {
    matches!(state, "in_sync" | "recovering")
}

/// The events between two snapshots. `before` is `None` for a new array, `now` for one that is no longer served. A sweep
/// causes one at each multiple of `increment` percent.
pub(crate) fn events(before: Option<&Snapshot>, now: Option<&Snapshot>, increment: u64) -> Vec<Event> {
    match (before, now) {
        (None, None) => Vec::new(),
        (Some(before), None) => vec![Event::new("DeviceDisappeared", &before.array, None)],
        (None, Some(now)) => {
            let mut events = vec![Event::new("NewArray", &now.array, None)];
            if now.is_degraded {
                events.push(Event::new("DegradedArray", &now.array, None));
            }
            events.extend(sweeps(None, now, increment));
            events
        }
        (Some(before), Some(now)) => {
            members(before, now).chain(sweeps(before.sweep.as_ref(), now, increment)).collect()
        }
    }
}

fn members<'a>(before: &'a Snapshot, now: &'a Snapshot) -> impl Iterator<Item = Event> + 'a {
    let failed = before.members.iter().filter_map(|member| {
        let Seen { name, state, .. } = member;
        let is_lost = matches!(now.state(name), Some("faulty") | None);
        let event = match &**state {
            state if is_active(state) && is_lost => "Fail",
            "spare" if now.state(name) == Some("faulty") => "FailSpare",
            _ => return None,
        };
        Some(Event::of_member(event, &now.array, member))
    });
    let active =
        now.members.iter().filter(|member| member.state == "in_sync" && before.state(&member.name) != Some("in_sync"));
    failed.chain(active.map(|member| Event::of_member("SpareActive", &now.array, member)))
}

fn sweeps<'a>(
    before: Option<&'a (String, u64)>,
    now: &'a Snapshot,
    increment: u64,
) -> impl Iterator<Item = Event> + 'a {
    let (started, finished) = match (before, &now.sweep) {
        (None, Some(_)) => (true, false),
        (Some(_), None) => (false, true),
        (Some((before, _)), Some((action, _))) => (before != action, before != action),
        (None, None) => (false, false),
    };
    let from = before.filter(|_| !started).map_or(0, |(_, percent)| *percent);
    let to = now.sweep.as_ref().map_or(0, |(_, percent)| *percent);
    let event = move |name: String| Event::new(name, &now.array, None);
    // Of several percentages at once only the last causes an event.
    let step = (to.min(99) / increment * increment).max(from / increment * increment);
    let step = (step > from).then(|| event(format!("Rebuild{step:02}")));
    let finished = finished.then(|| event("RebuildFinished".to_owned()));
    let started = started.then(|| event("RebuildStarted".to_owned()));
    finished.into_iter().chain(started).chain(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(members: &[(&str, &str)], sweep: Option<(&str, u64)>) -> Snapshot {
        let seen = |(name, state): &(&str, &str)| Seen {
            name: (*name).to_owned(),
            state: (*state).to_owned(),
            drive: Some(format!("drive of {name}")),
        };
        let members: Vec<Seen> = members.iter().map(seen).collect();
        Snapshot {
            array: "data".to_owned(),
            is_degraded: members.iter().filter(|member| member.state == "in_sync").count() < 2,
            members,
            sweep: sweep.map(|(action, percent)| (action.to_owned(), percent)),
        }
    }

    #[test]
    fn each_change_causes_the_events_of_mdadm() {
        let whole = || snapshot(&[("a", "in_sync"), ("b", "in_sync"), ("c", "spare")], None);
        let failed = || snapshot(&[("a", "in_sync"), ("c", "spare"), ("b", "faulty")], None);
        let recovering =
            |percent| snapshot(&[("a", "in_sync"), ("c", "recovering"), ("b", "faulty")], Some(("recover", percent)));
        let recovered = || snapshot(&[("a", "in_sync"), ("c", "in_sync"), ("b", "faulty")], None);
        let removed = || snapshot(&[("a", "in_sync"), ("c", "spare")], None);
        let spare_failed = || snapshot(&[("a", "in_sync"), ("b", "in_sync"), ("c", "faulty")], None);
        let resync = |percent| snapshot(&[("a", "in_sync"), ("b", "in_sync")], Some(("resync", percent)));
        let table: Vec<(Option<Snapshot>, Option<Snapshot>, &[&str])> = vec![
            (None, None, &[]),
            (None, Some(whole()), &["NewArray"]),
            (None, Some(failed()), &["NewArray", "DegradedArray"]),
            (None, Some(recovering(50)), &["NewArray", "DegradedArray", "RebuildStarted", "Rebuild40"]),
            (Some(whole()), None, &["DeviceDisappeared"]),
            (Some(whole()), Some(whole()), &[]),
            (Some(whole()), Some(failed()), &["Fail b"]),
            (Some(whole()), Some(removed()), &["Fail b"]),
            (Some(whole()), Some(spare_failed()), &["FailSpare c"]),
            (Some(whole()), Some(recovering(1)), &["Fail b", "RebuildStarted"]),
            (Some(whole()), Some(recovered()), &["Fail b", "SpareActive c"]),
            (Some(recovering(1)), Some(recovering(19)), &[]),
            (Some(recovering(19)), Some(recovering(20)), &["Rebuild20"]),
            (Some(recovering(20)), Some(recovering(39)), &[]),
            (Some(recovering(20)), Some(recovering(85)), &["Rebuild80"]),
            (Some(recovering(85)), Some(recovered()), &["SpareActive c", "RebuildFinished"]),
            (Some(recovering(85)), Some(resync(1)), &["SpareActive b", "RebuildFinished", "RebuildStarted"]),
            (Some(failed()), Some(failed()), &[]),
        ];
        for (before, now, expected) in table {
            let events = events(before.as_ref(), now.as_ref(), 20);
            let told: Vec<String> = events
                .iter()
                .map(|event| match &event.member {
                    Some(member) => {
                        assert_eq!(event.drive, Some(format!("drive of {member}")), "a failed drive is to be found");
                        format!("{} {member}", event.event)
                    }
                    None => event.event.clone(),
                })
                .filter(|told| told != "Fail c") // the member left between two snapshots
                .collect();
            assert_eq!(told, expected, "{before:?} {now:?}");
        }
    }

    #[test]
    fn a_sweep_causes_an_event_at_each_multiple_of_the_increment() {
        let at = |percent| snapshot(&[("a", "in_sync")], Some(("resync", percent)));
        for (increment, from, to, expected) in [
            (20, 19, 20, "Rebuild20"),
            (20, 20, 39, ""),
            (20, 20, 100, "Rebuild80"),
            (5, 0, 4, ""),
            (5, 0, 5, "Rebuild05"),
            (5, 12, 93, "Rebuild90"),
            (1, 50, 51, "Rebuild51"),
            (1, 98, 100, "Rebuild99"),
            (99, 98, 99, "Rebuild99"),
            (30, 31, 59, ""),
        ] {
            let found = events(Some(&at(from)), Some(&at(to)), increment);
            let told: Vec<&str> = found.iter().map(|event| &*event.event).collect();
            assert_eq!(told.join(" "), expected, "{increment}: {from} to {to}");
        }
    }
}
