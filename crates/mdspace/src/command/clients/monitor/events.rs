//! The events of mdadm --monitor, computed from two snapshots of an array, and those of a server that hangs. Pure.
//!
//! Facts: mdadm(8), "MONITOR MODE"; mdadm's `Monitor.c` for the events that come together.

use crate::command::clients::report::StatusView;
use serde::Serialize;

/// An event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Event {
    /// mdadm's name for it, if mdadm has such an event.
    pub(crate) event: String,
    /// The array's name, or its uuid if it has no name.
    pub(crate) array: String,
    /// The member concerned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) member: Option<String>,
    /// What is on the label of the member's drive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) drive: Option<String>,
    /// Of the end of a scrub that found any: the rows of 4 KiB that were wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mismatches: Option<u64>,
}

impl Event {
    pub(crate) fn new(event: impl Into<String>, array: &str, member: Option<&str>) -> Self {
        let (event, array, member) = (event.into(), array.to_owned(), member.map(str::to_owned));
        Self { event, array, member, drive: None, mismatches: None }
    }

    fn of_member(event: &str, array: &str, MemberSeen { name, drive, .. }: &MemberSeen) -> Self {
        Self { drive: drive.clone(), ..Self::new(event, array, Some(name)) }
    }

    /// How grave it is, by mdadm's manual.
    pub(crate) fn gravity(&self) -> Gravity {
        match &*self.event {
            "Fail" | "FailSpare" | "DegradedArray" | "DeviceDisappeared" | "ServerSilent" => Gravity::Critical,
            rebuild if rebuild.starts_with("Rebuild") => Gravity::Warning,
            _ => Gravity::Info,
        }
    }

    /// Whether it is mailed: what mdadm mails, as redundancy was lost, a server that hangs, and mismatches.
    pub(crate) fn is_mailed(&self) -> bool {
        self.gravity() == Gravity::Critical || self.event == "TestMessage" || self.mismatches.is_some()
    }

    /// What it is about: the member, or the rows that a scrub found, in mdadm's words.
    pub(crate) fn about(&self) -> Option<String> {
        let mismatches = self.mismatches.map(|found| format!("mismatches found: {found}"));
        self.member.clone().or(mismatches)
    }
}

/// The priority under which syslog gets an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gravity {
    Critical = 2,
    Warning = 4,
    Info = 6,
}

/// What is known of a watched array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Seen {
    Array(Snapshot),
    NotServed,
    /// Its server does not answer: the array's name, and the last snapshot.
    Silent(String, Option<Snapshot>),
}

impl Seen {
    /// The array's name; `None` if it is not served.
    pub(crate) fn array(&self) -> Option<&str> {
        match self {
            Self::Array(Snapshot { array, .. }) | Self::Silent(array, _) => Some(array),
            Self::NotServed => None,
        }
    }

    fn snapshot(&self) -> Option<&Snapshot> {
        match self {
            Self::Array(snapshot) => Some(snapshot),
            Self::Silent(_, last) => last.as_ref(),
            Self::NotServed => None,
        }
    }
}

/// The state of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
struct MemberSeen {
    name: String,
    state: String,
    drive: Option<String>,
}

/// A snapshot of an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub(crate) array: String,
    is_degraded: bool,
    members: Vec<MemberSeen>,
    /// The running sweep and the percentage done.
    sweep: Option<(String, u64)>,
    /// The end of the last complete scrub, and the rows that it found wrong.
    last_scrub: Option<(u64, u64)>,
}

impl Snapshot {
    pub(crate) fn of(status: &StatusView) -> Self {
        let members = status.members().map(|(name, state)| MemberSeen {
            name: name.to_owned(),
            state: state.to_owned(),
            drive: status.drive(name),
        });
        Self {
            array: status.array_name().to_owned(),
            is_degraded: status.is_degraded(),
            members: members.collect(),
            sweep: status.sweep().map(|(action, percent)| (action.to_owned(), percent as u64)),
            last_scrub: status.last_scrub.as_ref().map(|last| (last.ended, last.found)),
        }
    }

    fn state(&self, name: &str) -> Option<&str> {
        self.members.iter().find(|member| member.name == name).map(|member| &*member.state)
    }
}

fn is_active(state: &str) -> bool {
    matches!(state, "in_sync" | "recovering")
}

/// The events between two looks; `before` is `None` of the first. A sweep causes one at each multiple of `increment`
/// percent.
pub(crate) fn events(before: Option<&Seen>, now: &Seen, increment: u64) -> Vec<Event> {
    let before = before.unwrap_or(&Seen::NotServed);
    let event = |name: &str, array: &str| vec![Event::new(name, array, None)];
    match (before, now) {
        (Seen::Silent(..), Seen::Silent(..)) => Vec::new(),
        (_, Seen::Silent(array, _)) => event("ServerSilent", array),
        (before, Seen::NotServed) => before.array().map_or(Vec::new(), |array| event("DeviceDisappeared", array)),
        (before, Seen::Array(now)) => {
            let answers = matches!(before, Seen::Silent(..)).then(|| Event::new("ServerAnswers", &now.array, None));
            answers.into_iter().chain(changes(before.snapshot(), now, increment)).collect()
        }
    }
}

/// The events between two snapshots; `before` is `None` for a new array.
fn changes(before: Option<&Snapshot>, now: &Snapshot, increment: u64) -> Vec<Event> {
    match before {
        None => {
            let mut events = vec![Event::new("NewArray", &now.array, None)];
            if now.is_degraded {
                events.push(Event::new("DegradedArray", &now.array, None));
            }
            events.extend(sweeps(None, now, increment));
            events
        }
        Some(before) => members(before, now).chain(sweeps(Some(before), now, increment)).collect(),
    }
}

fn members<'a>(before: &'a Snapshot, now: &'a Snapshot) -> impl Iterator<Item = Event> + 'a {
    let failed = before.members.iter().filter_map(|member| {
        let MemberSeen { name, state, .. } = member;
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
    snapshot_before: Option<&'a Snapshot>,
    now: &'a Snapshot,
    increment: u64,
) -> impl Iterator<Item = Event> + 'a {
    let before = snapshot_before.and_then(|before| before.sweep.as_ref());
    // A short scrub shows only by its result.
    let scrubbed = now.last_scrub.filter(|last| snapshot_before.is_some_and(|before| before.last_scrub != Some(*last)));
    let (started, finished) = match (before, &now.sweep) {
        (None, Some(_)) => (true, scrubbed.is_some()),
        (Some(_), None) => (false, true),
        (Some((before, _)), Some((action, _))) => (before != action, before != action || scrubbed.is_some()),
        (None, None) => (false, scrubbed.is_some()),
    };
    let started = started || (finished && now.sweep.is_some());
    let from = before.filter(|_| !started).map_or(0, |(_, percent)| *percent);
    let to = now.sweep.as_ref().map_or(0, |(_, percent)| *percent);
    let event = move |name: String| Event::new(name, &now.array, None);
    // Of several percentages at once only the last causes an event.
    let step = (to.min(99) / increment * increment).max(from / increment * increment);
    let step = (step > from).then(|| event(format!("Rebuild{step:02}")));
    let mismatches = scrubbed.map(|(_, found)| found).filter(|found| *found > 0);
    let finished = finished.then(|| Event { mismatches, ..event("RebuildFinished".to_owned()) });
    let started = started.then(|| event("RebuildStarted".to_owned()));
    finished.into_iter().chain(started).chain(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(members: &[(&str, &str)], sweep: Option<(&str, u64)>) -> Snapshot {
        let seen = |(name, state): &(&str, &str)| MemberSeen {
            name: (*name).to_owned(),
            state: (*state).to_owned(),
            drive: Some(format!("drive of {name}")),
        };
        let members: Vec<MemberSeen> = members.iter().map(seen).collect();
        Snapshot {
            array: "data".to_owned(),
            is_degraded: members.iter().filter(|member| member.state == "in_sync").count() < 2,
            members,
            sweep: sweep.map(|(action, percent)| (action.to_owned(), percent)),
            last_scrub: Some((1, 0)),
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
        let check = |percent| snapshot(&[("a", "in_sync"), ("b", "in_sync")], Some(("check", percent)));
        let checked = |ended, found| Snapshot {
            last_scrub: Some((ended, found)),
            ..snapshot(&[("a", "in_sync"), ("b", "in_sync")], None)
        };
        let again = |ended, found| Snapshot { last_scrub: Some((ended, found)), ..check(1) };
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
            (Some(check(50)), Some(checked(2, 0)), &["RebuildFinished"]),
            (Some(check(50)), Some(checked(2, 7)), &["RebuildFinished mismatches found: 7"]),
            (Some(check(50)), Some(checked(1, 0)), &["RebuildFinished"]), // it was cancelled
            // Shorter than the time between two looks.
            (Some(checked(1, 0)), Some(checked(2, 0)), &["RebuildFinished"]),
            (Some(checked(1, 7)), Some(checked(2, 7)), &["RebuildFinished mismatches found: 7"]),
            (Some(checked(1, 7)), Some(checked(1, 7)), &[]),
            (Some(check(50)), Some(again(2, 7)), &["RebuildFinished mismatches found: 7", "RebuildStarted"]),
            (Some(checked(1, 0)), Some(again(2, 0)), &["RebuildFinished", "RebuildStarted"]),
            (None, Some(checked(2, 7)), &["NewArray"]),
        ];
        for (before, now, expected) in table {
            let seen = |snapshot: Option<Snapshot>| snapshot.map_or(Seen::NotServed, Seen::Array);
            let (before, now) = (seen(before), seen(now));
            let events = events(Some(&before), &now, 20);
            events.iter().filter_map(|event| event.member.as_ref().zip(event.drive.as_ref())).for_each(
                |(member, drive)| assert_eq!(*drive, format!("drive of {member}"), "a failed drive is to be found"),
            );
            let told = events.iter().map(told).filter(|told| told != "Fail c"); // the member left between two snapshots
            assert_eq!(told.collect::<Vec<_>>(), expected, "{before:?} {now:?}");
        }
    }

    fn told(event: &Event) -> String {
        format!("{} {}", event.event, event.about().unwrap_or_default()).trim_end().to_owned()
    }

    #[test]
    fn a_server_that_hangs_causes_one_event_and_what_happened_meanwhile_is_told_when_it_answers() {
        let whole = || snapshot(&[("a", "in_sync"), ("b", "in_sync")], None);
        let failed = || snapshot(&[("a", "in_sync"), ("b", "faulty")], None);
        let silent = |last| Seen::Silent("data".to_owned(), last);
        for (before, now, expected) in [
            (None, silent(None), &["ServerSilent"][..]),
            (Some(Seen::Array(whole())), silent(Some(whole())), &["ServerSilent"]),
            (Some(silent(Some(whole()))), silent(Some(whole())), &[]),
            (Some(silent(Some(whole()))), Seen::Array(whole()), &["ServerAnswers"]),
            (Some(silent(Some(whole()))), Seen::Array(failed()), &["ServerAnswers", "Fail b"]),
            (Some(silent(None)), Seen::Array(failed()), &["ServerAnswers", "NewArray", "DegradedArray"]),
            (Some(silent(Some(whole()))), Seen::NotServed, &["DeviceDisappeared"]),
        ] {
            let events = events(before.as_ref(), &now, 20);
            assert_eq!(events.iter().map(told).collect::<Vec<_>>(), expected, "{before:?} {now:?}");
            for event in events {
                assert_eq!((&*event.array, event.is_mailed()), ("data", event.gravity() == Gravity::Critical));
            }
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
            let found = events(Some(&Seen::Array(at(from))), &Seen::Array(at(to)), increment);
            let told: Vec<&str> = found.iter().map(|event| &*event.event).collect();
            assert_eq!(told.join(" "), expected, "{increment}: {from} to {to}");
        }
    }
}
