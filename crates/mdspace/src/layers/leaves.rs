//! What is inside of arrays, as a list, and which bytes of it are at some bytes of an array.

use crate::layers::{Bytes, Layers, Running, groups};
use crate::machine::Machine;
use std::ops::Range;
use std::rc::Rc;

/// Something inside that may hold a file system.
pub(crate) struct Leaf {
    /// Its name, as `--inner` takes it.
    pub(crate) name: String,
    /// Its bytes, or why it cannot be opened.
    pub(crate) bytes: Result<Bytes, String>,
}

/// Bytes of something inside, and where they are in the array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Run {
    /// The first byte in the array.
    pub(crate) array_at: u64,
    /// The first byte inside.
    pub(crate) inside_at: u64,
    pub(crate) bytes: u64,
}

impl Layers {
    /// Partitions, logical volumes and arrays inside.
    pub(crate) async fn leaves(&self, machine: &Machine, force: bool) -> Vec<Leaf> {
        let mut leaves = Vec::new();
        for (bytes, table) in self.tables() {
            for partition in &table.partitions {
                let bytes = Ok(bytes.part(partition.at, partition.bytes));
                leaves.push(Leaf { name: partition.number.to_string(), bytes });
            }
        }
        for group in groups(self.physical()) {
            for volume in &group.group.logical {
                let bytes = group.open(machine, volume, force).await;
                leaves.push(Leaf { name: group.full_name(volume), bytes });
            }
        }
        leaves
    }
}

impl Bytes {
    /// The parts of it that are at `wanted` bytes of the array `on`, in the order of its own bytes. `wanted` is in order. An
    /// array inside is a
    /// part of nothing here: its members' bytes are not its own.
    pub(crate) fn runs_at(&self, on: &Rc<Running>, wanted: &[Range<u64>]) -> Vec<Run> {
        let mut runs = Vec::new();
        self.project(0, 0..self.bytes(), on, &mut |array_at, own| {
            let array_end = array_at + (own.end - own.start);
            let first = wanted.partition_point(|range| range.end <= array_at);
            for range in wanted[first..].iter().take_while(|range| range.start < array_end) {
                let part = range.start.max(array_at)..range.end.min(array_end);
                let inside_at = own.start + (part.start - array_at);
                runs.push(Run { array_at: part.start, inside_at, bytes: part.end - part.start });
            }
        });
        runs
    }

    /// Calls `each` for the parts of `range` of a volume that lie on the array `on`; the range begins here at `at`.
    fn project(&self, at: u64, range: Range<u64>, on: &Rc<Running>, each: &mut dyn FnMut(u64, Range<u64>)) {
        match self {
            Self::Array(running) if Rc::ptr_eq(running, on) => each(at, range),
            Self::Array(_) | Self::Plain(..) => {}
            Self::Mapped(mapped) => {
                let mut next = range.start;
                while next < range.end {
                    let Ok((source, place, run)) = mapped.locate(at + (next - range.start)) else { break };
                    let end = range.end.min(next.saturating_add(run));
                    if let Some(source) = source.and_then(|index| mapped.source(index).ok()) {
                        source.project(place, next..end, on, each);
                    }
                    next = end;
                }
            }
        }
    }
}
