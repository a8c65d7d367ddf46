//! From bytes of an array to volumes inside, and from bytes of a volume to files.

use super::opening::{Opened, Subject};
use super::{Located, PlaceFound};
use crate::layers::{Bytes, Leaf, Run};
use crate::machine::Machine;
use disk::content::{Content, Kind, look};
use disk::owners::{self, FileId, Owner, Owners, Part, Place};
use std::ops::Range;

/// Says what is at `wanted` bytes.
pub(super) async fn find(machine: &Machine, opened: &Opened, wanted: &[Range<u64>]) -> Located {
    let mut located = Located { notes: opened.notes.clone(), ..Located::default() };
    match &opened.subject {
        Subject::Inner(bytes, name) => {
            located.inner = Some(name.clone());
            let runs = whole(wanted);
            in_volume(bytes, None, &runs, &mut located).await;
        }
        Subject::Array(running, uuid) => {
            located.array = Some(uuid.clone());
            let whole_array = Bytes::Array(running.clone());
            let mut rest = whole(wanted);
            for Leaf { name, bytes } in opened.layers.leaves(machine, opened.force).await {
                match bytes {
                    Ok(bytes) => {
                        let runs = bytes.runs_at(running, wanted);
                        rest = without(rest, &runs);
                        in_volume(&bytes, Some(&name), &runs, &mut located).await;
                    }
                    Err(reason) => located.notes.push(format!("{name} is not looked into: {reason}")),
                }
            }
            rest_of_array(&whole_array, opened, &rest, &mut located).await;
        }
    }
    located.places.sort_by(|a, b| (a.at, &a.volume, a.inode).cmp(&(b.at, &b.volume, b.inode)));
    located
}

/// Bytes that are the volume's own.
fn whole(wanted: &[Range<u64>]) -> Vec<Run> {
    let run =
        |range: &Range<u64>| Run { array_at: range.start, inside_at: range.start, bytes: range.end - range.start };
    wanted.iter().map(run).collect()
}

/// The runs of an array, in order, without those that are inside of something.
fn without(rest: Vec<Run>, taken: &[Run]) -> Vec<Run> {
    let mut taken: Vec<Range<u64>> = taken.iter().map(|run| run.array_at..run.array_at + run.bytes).collect();
    taken.sort_unstable_by_key(|range| range.start);
    let mut left = Vec::new();
    let mut taken = taken.into_iter().peekable();
    for run in rest {
        let (mut at, end) = (run.array_at, run.array_at + run.bytes);
        while let Some(cut) = taken.next_if(|cut| cut.start < end) {
            left.push(at..cut.start.max(at));
            at = at.max(cut.end);
        }
        left.push(at..end.max(at));
    }
    left.retain(|range| !range.is_empty());
    whole(&left)
}

/// What is in no volume: the array's own file system, or what keeps the volumes.
async fn rest_of_array(bytes: &Bytes, opened: &Opened, rest: &[Run], located: &mut Located) {
    if rest.is_empty() {
        return;
    }
    let nested: Vec<String> = opened.layers.nested().map(|(name, uuid)| format!("\"{name}\" ({uuid})")).collect();
    match look(bytes).await {
        Ok(Content::Volume(volume)) if volume.kind == Kind::Lvm => {
            let what = "in no logical volume that can be opened: LVM's metadata, or free extents of its group";
            add_all(rest, None, "outside", what, located);
        }
        Ok(Content::Volume(volume)) if volume.kind == Kind::Table => {
            add_all(
                rest,
                None,
                "outside",
                "in no partition: the partition table, or space between partitions",
                located,
            );
        }
        Ok(Content::Member(_)) => {
            let what = format!("a member of the array {}: look there, by --inner", nested.join(", "));
            add_all(rest, None, "unknown", &what, located);
        }
        _ => in_volume(bytes, None, rest, located).await,
    }
}

fn add_all(runs: &[Run], volume: Option<&str>, kind: &'static str, what: &str, located: &mut Located) {
    for run in runs {
        located.places.push(place(run, volume, kind, Some(what.to_owned())));
    }
}

fn place(run: &Run, volume: Option<&str>, kind: &'static str, what: Option<String>) -> PlaceFound {
    PlaceFound {
        at: run.array_at,
        bytes: run.bytes,
        volume: volume.map(str::to_owned),
        volume_at: run.inside_at,
        kind,
        what,
        path: None,
        inode: None,
        subvolume: None,
        file_at: None,
    }
}

/// What the runs of a volume are.
async fn in_volume(bytes: &Bytes, volume: Option<&str>, runs: &[Run], located: &mut Located) {
    if runs.is_empty() {
        return;
    }
    let kind = match look(bytes).await {
        Ok(Content::Volume(volume)) => volume,
        Ok(Content::Empty) => return add_all(runs, volume, "other", "nothing known, and zeros at the start", located),
        Ok(Content::Member(_)) => {
            return add_all(runs, volume, "unknown", "a member of an array inside: look there, by --inner", located);
        }
        Ok(_) => return add_all(runs, volume, "other", "no file system that is known", located),
        Err(reason) => {
            let what = format!("the start of the volume cannot be read, so its file system is not known: {reason}");
            return add_all(runs, volume, "unknown", &what, located);
        }
    };
    let wanted: Vec<Range<u64>> = runs.iter().map(|run| run.inside_at..run.inside_at + run.bytes).collect();
    match owners::find(bytes, kind.kind, &wanted).await {
        None => add_all(runs, volume, "other", &format!("in {}", kind.what), located),
        Some(Err(reason)) => add_all(runs, volume, "unknown", &reason, located),
        Some(Ok(owners)) => add_owners(&owners, volume, runs, located),
    }
}

fn add_owners(owners: &Owners, volume: Option<&str>, runs: &[Run], located: &mut Located) {
    let of = volume.map(|volume| format!("{volume}: ")).unwrap_or_default();
    located.notes.extend(owners.notes.iter().map(|note| format!("{of}{note}")));
    // Places are in order of their starts, and may overlap: these are the furthest ends so far.
    let furthest = |end: &mut u64, place: &Place| {
        *end = place.range.end.max(*end);
        Some(*end)
    };
    let ends: Vec<u64> = owners.places.iter().scan(0, furthest).collect();
    for run in runs {
        let own = run.inside_at..run.inside_at + run.bytes;
        let first = ends.partition_point(|end| *end <= own.start);
        for Place { range, owner } in owners.places[first..].iter().take_while(|place| place.range.start < own.end) {
            let part = range.start.max(own.start)..range.end.min(own.end);
            if part.is_empty() {
                continue;
            }
            let array_at = run.array_at + (part.start - own.start);
            let here = Run { array_at, inside_at: part.start, bytes: part.end - part.start };
            located.places.push(owned(&here, volume, owner, part.start - range.start, owners));
        }
    }
}

/// A part of a place, `distance` bytes behind its start.
fn owned(run: &Run, volume: Option<&str>, owner: &Owner, distance: u64, owners: &Owners) -> PlaceFound {
    let plain = |kind, what: Option<&str>| place(run, volume, kind, what.map(str::to_owned));
    let of_file = |file: &FileId, kind, what: Option<&str>, file_at| PlaceFound {
        path: owners.paths.get(file).cloned(),
        inode: Some(file.inode),
        subvolume: (file.tree != 0).then_some(file.tree),
        file_at,
        ..plain(kind, what)
    };
    match owner {
        Owner::File(file, Part::Content(at)) => of_file(file, "file", None, Some(at.saturating_add(distance))),
        Owner::File(file, Part::Compressed(at)) => of_file(file, "file", Some("compressed"), Some(*at)),
        Owner::File(file, Part::Entries) => of_file(file, "directory", None, None),
        Owner::File(file, Part::Map) => of_file(file, "map", Some("the record of where its content is"), None),
        Owner::File(file, Part::Attributes) => of_file(file, "attributes", Some("its extended attributes"), None),
        Owner::Journal => plain("journal", None),
        Owner::Metadata(what) => plain("metadata", Some(what)),
        Owner::Free => plain("free", None),
        Owner::Behind => plain("outside", Some("behind the end of the file system")),
        Owner::Unknown(reason) => plain("unknown", Some(reason)),
    }
}
