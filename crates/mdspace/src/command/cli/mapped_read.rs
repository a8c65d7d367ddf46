//! `read --salvage --map-out`: copies what can be read of an array, and keeps a map of that in ddrescue's format.
//!
//! The map is all the state there is. A phase reads what has one status, in units of its own: first everything in large
//! pieces, then what failed in parts, then what failed of these in single sectors. So what can be read is safe early,
//! and a later run continues where the map says. A range is finished in the map on disk only after its bytes are on
//! stable storage.

use crate::command::cli::map_file::MapFile;
use crate::command::cli::resumed::Resumed;
use crate::command::cli::salvage::{Losses, PART_BYTES, SECTOR_BYTES};
use crate::command::cli::sink::{Sink, refuse_member};
use crate::command::opening::target::Target;
use crate::command::text::failure::Failure;
use crate::command::text::progress::Progress;
use crate::layers::Bytes;
use crate::machine::Machine;
use crate::pieces::{DEPTH, piece_bytes};
use disk::map::Status;
use engine::{ArrayError, ArrayErrorKind, Buffer, Pool};
use futures_util::FutureExt;
use futures_util::future::{Either, select};
use futures_util::stream::{FuturesOrdered, StreamExt};
use std::ops::Range;
use std::path::Path;

/// What is read and kept.
pub(super) struct MappedRead<'a> {
    pub(super) machine: &'a Machine,
    pub(super) target: &'a Target,
    /// The bytes to read, of the target's volume.
    pub(super) range: Range<u64>,
    /// What the map says of the array, and is continued for.
    pub(super) array: String,
}

/// A pass over everything of one status.
struct Phase {
    status: Status,
    /// The unit of its reads, in the volume.
    unit: u64,
    /// The status of what fails.
    failed: Status,
}

/// The copy under way.
struct Copy<'a> {
    volume: &'a Bytes,
    pool: &'a Pool,
    /// The unit for fast large reads.
    preferred_bytes: u64,
    /// Where the map begins in the volume.
    at: u64,
    sink: Sink,
    map: MapFile,
    losses: Losses,
    progress: Progress,
}

impl MappedRead<'_> {
    /// Copies the range to `output`, as far as the map in `map` lacks it. Returns the number of bytes that are there
    /// now.
    pub(super) async fn run(&self, output: &Path, map: &Path, overwrite: bool) -> Result<(u64, Losses), Failure> {
        let Target { arrays, volume, .. } = self.target;
        let bytes = self.range.end - self.range.start;
        refuse_member(map, arrays, "--map-out")?;
        let (map, is_resumed) = MapFile::open(map, output, &self.comments(output, bytes), bytes)?;
        map.check_writable()?;
        let sink = match is_resumed {
            true => Sink::reopen(output, arrays)?,
            false => Sink::create(self.machine, output, arrays, overwrite).await?,
        };
        if !sink.is_seekable() {
            return Err(Failure::refused(format!("{}: neither a file nor a block device", sink.name))
                .advise("--map-out needs an --output that can be continued"));
        }
        let (pool, preferred_bytes) = (self.target.array().pool(), self.target.array().preferred_bytes());
        if is_resumed {
            let (at, map, sink) = (self.range.start, &map.map, &sink);
            Resumed { machine: self.machine, volume, pool, at, output, sink, map }.check(overwrite).await?;
        }
        sink.make_room(bytes).map_err(|error| Failure::refused(format!("{}: {error}", sink.name)))?;
        let progress = Progress::resume("read", bytes, bytes - map.unread(bytes));
        let (at, losses) = (self.range.start, Losses::default());
        let mut copy = Copy { volume, pool, preferred_bytes, at, sink, map, losses, progress };
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
        let Target { inner, .. } = self.target;
        let at = self.range.start;
        let of = inner.as_deref().map_or(String::new(), |inner| format!(" of {inner}"));
        let output = std::path::absolute(output).unwrap_or_else(|_| output.to_owned());
        vec![
            "Mapfile of mdspace read --salvage".to_owned(),
            format!("array: {}", self.array),
            format!("range: {bytes} bytes from byte {at}{of}"),
            format!("output: {}", output.display()),
        ]
    }
}

impl Copy<'_> {
    /// Reads in all phases; false if `terminated` came first.
    async fn all(&mut self, mut terminated: impl Future<Output = ()> + Unpin) -> Result<bool, Failure> {
        // An earlier run may have had fewer members.
        self.map.change(Status::Bad, Status::NonScraped);
        let pieces = piece_bytes(self.preferred_bytes);
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
        let (volume, pool) = (self.volume, self.pool);
        let mut next = 0;
        let mut in_flight = FuturesOrdered::new();
        loop {
            while in_flight.len() < DEPTH {
                let Some(rest) = self.map.map.next(phase.status, next) else { break };
                let (part, at) = self.front(&rest, phase.unit);
                next = part.end;
                let buffer = pool.take((part.end - part.start) as usize);
                in_flight.push_back(volume.read(at, buffer).map(|read| (part, read)));
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

    /// The front of a range of the map that ends with a unit of the volume, and its place in the volume.
    fn front(&self, rest: &Range<u64>, unit: u64) -> (Range<u64>, u64) {
        let place = self.at + rest.start;
        let end = (place / unit + 1) * unit;
        (rest.start..rest.end.min(rest.start + end - place), place)
    }

    /// Puts the bytes of a part, or notes that they could not be read.
    fn take(&mut self, phase: &Phase, part: Range<u64>, read: Result<Buffer, ArrayError>) -> Result<(), Failure> {
        let bytes = part.end - part.start;
        let failed = |error: std::io::Error| Failure::unwell(format!("{}: {error}", self.sink.name));
        match read {
            Ok(buffer) => {
                self.sink.put(part.start, &buffer).map_err(failed)?;
                self.map.map.mark(part, Status::Finished);
                self.progress.advance(bytes);
            }
            Err(error) if error.kind != ArrayErrorKind::Io => return Err(error.into()),
            Err(error) => {
                self.map.map.mark(part.clone(), phase.failed);
                if phase.failed == Status::Bad {
                    if !self.sink.is_sparse() {
                        self.sink.put(part.start, &vec![0; bytes as usize]).map_err(failed)?;
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
        self.sink.sync().map_err(|error| Failure::unwell(format!("{}: {error}", self.sink.name)))?;
        self.map.save()
    }
}
