//! `--inner`: a partition or a logical volume inside of an array, as ranges of the array.
//!
//! Logical volumes of linear and striped segments are read if they lie on this array alone. Everything else is refused
//! by name. It only reads.

use crate::command::cli::detect::ArraySource;
use crate::command::text::failure::Failure;
use crate::machine::Array;
use disk::lvm::{self, Group, LogicalVolume, Segment, Stripe};
use disk::table::{self, Partition, Table};
use disk::{Section, Source};
use std::ops::Range;

/// Something inside of an array.
pub(super) struct Inner {
    /// Its length.
    pub(super) bytes: u64,
    place: Place,
}

enum Place {
    Partition { at: u64 },
    Volume(LogicalVolume),
}

/// Finds what `name` names: the number of a partition, or `GROUP/VOLUME`.
pub(super) async fn find(array: &Array, name: &str) -> Result<Inner, Failure> {
    let source = ArraySource::of(array);
    let refused = |reason: String| Failure::refused(format!("--inner {name}: {reason}"));
    let advice = "`mdspace detect` prints what is inside of each array";
    if let Some(volume) = lvm::read(&source).await {
        let group = volume.group.map_err(|reason| refused(format!("an LVM physical volume: {reason}")))?;
        let logical = logical_volume(&group, &volume.id, name).map_err(|reason| refused(reason).advise(advice))?;
        let past_the_end = |segment: &Segment| {
            let share = segment.bytes.div_ceil(segment.stripes.len() as u64);
            let is_past = |stripe: &Stripe| stripe.at.saturating_add(share) > array.bytes();
            segment.stripes.iter().any(is_past)
        };
        if logical.bytes > array.bytes() || logical.segments.iter().flatten().any(past_the_end) {
            return Err(refused("it reaches past the array's end: LVM's metadata are of another array".to_owned()));
        }
        return Ok(Inner { bytes: logical.bytes, place: Place::Volume(logical) });
    }
    let found = table::find(&source).await.map_err(|reason| refused(reason).advise(advice))?;
    let Some(table) = found else {
        return Err(refused("the array holds neither partitions nor volumes of LVM".to_owned()).advise(advice));
    };
    let (at, bytes) = partition(&table, name).map_err(|reason| refused(reason).advise(advice))?;
    Ok(Inner { bytes: Section::new(&source, at, bytes).bytes(), place: Place::Partition { at } })
}

fn logical_volume(group: &Group, id: &str, name: &str) -> Result<LogicalVolume, String> {
    let full = |volume: &LogicalVolume| format!("{}/{}", group.name, volume.name);
    let Some(volume) = group.logical.iter().find(|volume| full(volume) == name) else {
        let names: Vec<String> = group.logical.iter().map(full).collect();
        return Err(format!("the array has the logical volumes {}", names.join(", ")));
    };
    let segments = volume.segments.as_ref().map_err(|kind| format!("segments of type {kind} are not read"))?;
    let own = group.physical.iter().position(|place| place.id == *id);
    let is_own = |index: usize| Some(index) == own;
    match segments.iter().flat_map(|segment| &segment.stripes).all(|stripe| is_own(stripe.physical)) {
        true => Ok(volume.clone()),
        false => Err("it lies on other physical volumes too, which is not read".to_owned()),
    }
}

fn partition(table: &Table, name: &str) -> Result<(u64, u64), String> {
    let found = table.partitions.iter().find(|partition| partition.number.to_string() == name);
    found.map(|Partition { at, bytes, .. }| (*at, *bytes)).ok_or_else(|| {
        let numbers: Vec<String> = table.partitions.iter().map(|partition| partition.number.to_string()).collect();
        format!("the array has the partitions {}", numbers.join(", "))
    })
}

impl Inner {
    /// Where `range` of it is in the array, in order.
    pub(super) fn ranges(&self, range: Range<u64>) -> Vec<Range<u64>> {
        match &self.place {
            Place::Partition { at } => std::iter::once(at + range.start..at + range.end).collect(),
            Place::Volume(volume) => {
                let mut ranges: Vec<Range<u64>> = Vec::new();
                let mut next = range.start;
                while next < range.end {
                    let Some((_, at, run)) = volume.locate(next) else { break };
                    let run = run.min(range.end - next);
                    match ranges.last_mut() {
                        Some(last) if last.end == at => last.end += run,
                        _ => ranges.push(at..at + run),
                    }
                    next += run;
                }
                ranges
            }
        }
    }
}
