//! `read --salvage --map-out`: copies what can be read of an array, and keeps a map of that in ddrescue's format.
//!
//! The map is all the state there is. A phase reads what has one status, in units of its own: first everything in large
//! pieces, then what failed in parts, then what failed of these in single sectors. So what can be read is safe early,
//! and a later run continues where the map says. A range is finished in the map on disk only after its bytes are on
//! stable storage.

use crate::command::cli::map_file::MapFile;
use crate::command::cli::salvage::{Losses, PART_BYTES, SECTOR_BYTES};
use crate::command::cli::target::{Target, refuse_member};
use crate::command::text::failure::Failure;
use crate::command::text::progress::Progress;
use crate::machine::{Array, Machine};
use crate::pieces::{DEPTH, piece_bytes};
use disk::map::Status;
use engine::{ArrayError, ArrayErrorKind, Buffer};
use futures_util::FutureExt;
use futures_util::future::{Either, select};
use futures_util::stream::{FuturesOrdered, StreamExt};
use std::ops::Range;
use std::path::Path;

/// What is read and kept.
pub(super) struct MappedRead<'a> {
    pub(super) machine: &'a Machine,
    pub(super) array: &'a Array,
    /// The first byte, in the array or in what `inner` names.
    pub(super) at: u64,
    /// What is read of the array, if not all of it.
    pub(super) inner: Option<&'a str>,
}

/// A pass over everything of one status.
struct Phase {
    status: Status,
    /// The unit of its reads, in the array.
    unit: u64,
    /// The status of what fails.
    failed: Status,
}

/// The copy under way.
struct Copy<'a> {
    array: &'a Array,
    extents: Vec<Extent>,
    target: Target,
    map: MapFile,
    /// As [`MappedRead::at`].
    at: u64,
    losses: Losses,
    progress: Progress,
}

/// Contiguous bytes of the array, and where they go.
struct Extent {
    at: u64,
    array: Range<u64>,
}

impl MappedRead<'_> {
    /// Copies `ranges` of the array to `output`, in order, as far as the map in `map` lacks them. Returns the number of
    /// bytes that are there now.
    pub(super) async fn run(
        &self,
        ranges: &[Range<u64>],
        output: &Path,
        map: &Path,
        overwrite: bool,
    ) -> Result<(u64, Losses), Failure> {
        let extents = extents(ranges);
        let bytes = extents.last().map_or(0, |last| last.at + last.array.end - last.array.start);
        refuse_member(map, self.array, "--map-out")?;
        let (map, is_resumed) = MapFile::open(map, output, &self.comments(output, bytes), bytes)?;
        let target = match is_resumed {
            true => Target::reopen(output, self.array)?,
            false => Target::create(self.machine, output, self.array, overwrite).await?,
        };
        if !target.is_seekable() {
            return Err(Failure::refused(format!("{}: neither a file nor a block device", target.name))
                .advise("--map-out needs an --output that can be continued"));
        }
        target.make_room(bytes).map_err(|error| Failure::refused(format!("{}: {error}", target.name)))?;
        let done = bytes - map.unread(bytes);
        let progress = Progress::resume("read", bytes, done);
        let (array, at) = (self.array, self.at);
        let mut copy = Copy { array, extents, target, map, at, losses: Losses::default(), progress };
        // From here on a signal must not end the process: the map has to be saved first.
        let terminated = io::signal::terminated().map_err(|error| Failure::refused(format!("signals: {error}")))?;
        copy.save()?;
        let copied = copy.all(Box::pin(terminated.map(drop))).await;
        let saved = copy.save();
        let is_complete = copied?;
        saved?;
        if !is_complete {
            let left = copy.map.unread(bytes);
            return Err(Failure::unwell(format!("interrupted: {left} of {bytes} bytes are still to be read"))
                .advise("the same command continues from there"));
        }
        Ok((bytes, copy.losses))
    }

    /// What the map must be of to be continued.
    fn comments(&self, output: &Path, bytes: u64) -> Vec<String> {
        let Self { array, at, inner, .. } = self;
        let of = inner.map_or(String::new(), |inner| format!(" of {inner}"));
        let output = std::path::absolute(output).unwrap_or_else(|_| output.to_owned());
        vec![
            "Mapfile of mdspace read --salvage".to_owned(),
            format!("array: {}", array.status().uuid),
            format!("range: {bytes} bytes from byte {at}{of}"),
            format!("output: {}", output.display()),
        ]
    }
}

fn extents(ranges: &[Range<u64>]) -> Vec<Extent> {
    let mut at = 0;
    let extent = |array: &Range<u64>| {
        let extent = Extent { at, array: array.clone() };
        at += array.end - array.start;
        extent
    };
    ranges.iter().map(extent).collect()
}

impl Copy<'_> {
    /// Reads in all phases; false if `terminated` came first.
    async fn all(&mut self, mut terminated: impl Future<Output = ()> + Unpin) -> Result<bool, Failure> {
        // An earlier run may have had fewer members.
        self.map.change(Status::Bad, Status::NonScraped);
        let pieces = piece_bytes(self.array.preferred_bytes());
        for phase in [
            Phase { status: Status::NonTried, unit: pieces, failed: Status::NonTrimmed },
            Phase { status: Status::NonTrimmed, unit: PART_BYTES, failed: Status::NonScraped },
            Phase { status: Status::NonScraped, unit: SECTOR_BYTES, failed: Status::Bad },
        ] {
            if !self.phase(&phase, &mut terminated).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn phase(
        &mut self,
        phase: &Phase,
        terminated: &mut (impl Future<Output = ()> + Unpin),
    ) -> Result<bool, Failure> {
        let array = self.array;
        let mut next = 0;
        let mut in_flight = FuturesOrdered::new();
        loop {
            while in_flight.len() < DEPTH {
                let Some(rest) = self.map.map.next(phase.status, next) else { break };
                let (part, at) = self.front(&rest, phase.unit);
                next = part.end;
                let buffer = array.pool().take((part.end - part.start) as usize);
                in_flight.push_back(array.read(at, buffer).map(|read| (part, read)));
            }
            match select(&mut *terminated, in_flight.next()).await {
                Either::Left(_) => return Ok(false),
                Either::Right((None, _)) => return Ok(true),
                Either::Right((Some((part, read)), _)) => self.take(phase, part, read)?,
            }
            if self.map.is_due() {
                self.save()?;
            }
        }
    }

    /// The front of a range of the target that is contiguous in the array and ends with a unit there, and its place in
    /// the array.
    fn front(&self, rest: &Range<u64>, unit: u64) -> (Range<u64>, u64) {
        let index = self.extents.partition_point(|extent| extent.at <= rest.start) - 1;
        let Extent { at, array } = &self.extents[index];
        let place = array.start + (rest.start - at);
        let end = array.end.min((place / unit + 1) * unit);
        (rest.start..rest.end.min(rest.start + end - place), place)
    }

    /// Puts the bytes of a part, or notes that they could not be read.
    fn take(&mut self, phase: &Phase, part: Range<u64>, read: Result<Buffer, ArrayError>) -> Result<(), Failure> {
        let bytes = part.end - part.start;
        let failed = |error: std::io::Error| Failure::unwell(format!("{}: {error}", self.target.name));
        match read {
            Ok(buffer) => {
                self.target.put(part.start, &buffer).map_err(failed)?;
                self.map.map.mark(part, Status::Finished);
                self.progress.advance(bytes);
            }
            Err(error) if error.kind != ArrayErrorKind::Io => return Err(error.into()),
            Err(error) => {
                self.map.map.mark(part.clone(), phase.failed);
                if phase.failed == Status::Bad {
                    if !self.target.is_sparse() {
                        self.target.put(part.start, &vec![0; bytes as usize]).map_err(failed)?;
                    }
                    self.losses.add(&(self.at + part.start..self.at + part.end), error.reason);
                    self.progress.advance(bytes);
                }
            }
        }
        Ok(())
    }

    /// Saves the map, after the bytes that it calls finished.
    fn save(&mut self) -> Result<(), Failure> {
        self.target.sync().map_err(|error| Failure::unwell(format!("{}: {error}", self.target.name)))?;
        self.map.save()
    }
}
