//! `read` and `write`: copy an array's bytes to or from a file or pipe, without a server. `read --map-out` is
//! [`crate::command::cli::mapped_read`].
//!
//! Several pieces are in flight, so that members and the other end work at the same time. Pieces end where stripes end,
//! so that a long write needs no reads. At the end, also after an error, the array is stopped, and is clean if its
//! members allow it.

use crate::command::cli::arguments::{ReadArguments, WriteArguments};
use crate::command::cli::lost_files::{LostFile, name_files};
use crate::command::cli::mapped_read::MappedRead;
use crate::command::cli::salvage::{Losses, Lost, verdict};
use crate::command::cli::sink::{Sink, refuse_member};
use crate::command::opening::assembly::resync;
use crate::command::opening::doubt::warn_of_doubtful_zeros;
use crate::command::opening::target::Target;
use crate::command::text::failure::Failure;
use crate::command::text::geometry::GeometryText;
use crate::command::text::output::print_json;
use crate::command::text::output::tell;
use crate::command::text::progress::Progress;
use crate::command::text::size::Size;
use crate::machine::{Arena, Array, Machine, Purpose};
use crate::names::name_of;
use crate::pieces::{DEPTH, pieces};
use engine::status::Status;
use engine::{ArrayErrorKind, BitmapPolicy, Block, Durability};
use futures_util::FutureExt;
use futures_util::future::{Either, join, select};
use futures_util::stream::{FuturesOrdered, FuturesUnordered, StreamExt};
use io::Inlet;
use parity::Kernel;
use serde::Serialize;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{ErrorKind, IsTerminal, Read, Seek};
use std::ops::Range;
use std::os::fd::AsFd;
use std::path::Path;
use std::pin::pin;

/// Bytes of a pipe that are read before the first write, so that input which does not fit is refused with nothing
/// changed. Of longer input the part that fits is written.
const READ_AHEAD_BYTES: u64 = 64 << 20;

/// The copied range. Its fields are a stable interface (docs/json.md).
#[derive(Serialize)]
struct Copied {
    /// Its first byte in the array.
    offset: u64,
    /// Its length in bytes.
    bytes: u64,
    /// What of it could not be read.
    lost: Vec<Lost>,
    /// The files that this hits, with `--name-files`.
    lost_files: Vec<LostFile>,
    /// The array's status afterwards.
    status: Status,
}

/// Bytes that were copied, what of them could not be read, and the files that this hits.
type Outcome = Result<(u64, Vec<Lost>, Vec<LostFile>), Failure>;

/// Stops the arrays, and prints the copied range with `as_json`.
async fn end(target: &Target, offset: u64, copied: Outcome, as_json: bool) -> Result<(), Failure> {
    let stopped = target.stop().await;
    let (bytes, lost, lost_files) = copied?;
    stopped?;
    let verdict = verdict(&lost);
    if as_json {
        print_json(&Copied { offset, bytes, lost, lost_files, status: target.array().status() })?;
    }
    verdict
}

/// Runs `mdspace read`.
pub(crate) fn read(arguments: &ReadArguments, kernel: Option<&'static Kernel>) -> Result<(), Failure> {
    if arguments.json && arguments.output.is_none() {
        let refused = Failure::refused("--json: the array's bytes go to standard output");
        return Err(refused.advise("write them to a file: --output FILE"));
    }
    if arguments.output.is_none() && std::io::stdout().is_terminal() {
        let refused = Failure::refused("standard output is a terminal, and an array's bytes are not text");
        return Err(refused.advise("write them to a file, --output FILE, or to a program: mdspace read ... | xxd"));
    }
    let machine = Machine::start(kernel, Arena::Medium)?;
    let machine = machine.with_maps(arguments.assemble.maps.read()?).over(arguments.assemble.overlay.directory())?;
    machine.run(async {
        let inner = arguments.inner.as_deref();
        let target = machine.open_target(&arguments.assemble, inner, Purpose::Read, BitmapPolicy::default()).await?;
        let range = range_to_read(arguments, target.volume.bytes())?;
        for array in &target.arrays {
            warn_of_doubtful_zeros(array).await;
        }
        let at = range.start;
        let copied = match (&arguments.output, &arguments.map_out) {
            (Some(output), Some(map)) => {
                let array = identity(arguments, &target);
                let asked = MappedRead { machine: &machine, target: &target, range, array };
                target.in_time(asked.run(output, map, arguments.overwrite)).await
            }
            (output, _) => {
                let mut sink = match output {
                    Some(path) => Sink::create(&machine, path, &target.arrays, arguments.overwrite).await?,
                    None => Sink::stdout()?,
                };
                let losses = arguments.salvage.then(Losses::default);
                target.in_time(copy_out(&target, range, &mut sink, losses)).await
            }
        };
        let whole = inner.unwrap_or("the array");
        let copied = copied.map(|(bytes, losses)| {
            let lost = losses.told(whole);
            let copy = arguments.output.as_deref().filter(|_| arguments.name_files);
            let files = copy.map_or_else(Vec::new, |copy| name_files(copy, at, &lost));
            (bytes, lost, files)
        });
        end(&target, at, copied, arguments.json).await
    })
}

/// What tells the array of a map from others: its uuid, or by hand its shape. Members may come and go, and their names
/// change; that they are the same is checked by what they hold.
fn identity(arguments: &ReadArguments, target: &Target) -> String {
    let Status { uuid, raid_disks, .. } = target.array().status();
    match arguments.assemble.geometry() {
        None => uuid,
        Some((geometry, _)) => {
            let shape = GeometryText { order: None, ..geometry.clone() };
            format!("{shape} of {raid_disks} slots, by hand")
        }
    }
}

/// Runs `mdspace write`.
pub(crate) fn write(arguments: &WriteArguments, kernel: Option<&'static Kernel>) -> Result<(), Failure> {
    let mut source = source(arguments.input.as_deref())?;
    let machine = Machine::start(kernel, Arena::Medium)?;
    let machine = machine.with_maps(arguments.assemble.maps.read()?).over(arguments.assemble.overlay.directory())?;
    machine.run(async {
        let array = machine.assemble(&arguments.assemble, Purpose::Write, BitmapPolicy::default()).await?;
        let at = arguments.offset.0;
        let room = array.bytes().checked_sub(at).ok_or_else(|| past_the_end("--offset", at, array.bytes()))?;
        let length = match length_of(&mut source.file) {
            Some(length) => Some(length),
            None => source.read_ahead(room.saturating_add(1).min(READ_AHEAD_BYTES))?,
        };
        if length.is_some_and(|length| length > room) {
            return Err(too_long(&source.name, room));
        }
        if let Some(path) = &arguments.input {
            refuse_member(path, std::slice::from_ref(&array), "--input")?;
        }
        // From here on a signal must not end the process: the array has to be stopped first.
        let terminated = io::signal::terminated().map_err(|error| Failure::refused(format!("signals: {error}")))?;
        let mut terminated = Box::pin(terminated.map(drop));
        let copied = array.in_time(copy_in(&array, at, &mut source, length, &mut terminated)).await;
        if copied.is_ok() {
            array.in_time(resync_until(&array, &mut terminated)).await;
        }
        end(&Target::whole(array), at, copied.map(|bytes| (bytes, Vec::new(), Vec::new())), arguments.json).await
    })
}

/// Completes when a signal asks the command to end.
type Terminated<'a> = &'a mut (dyn Future<Output = ()> + Unpin);

/// Resyncs the array until it is done or a signal interrupts it. The next use of the array continues the resync.
async fn resync_until(array: &Array, terminated: Terminated<'_>) {
    let work = pin!(resync(array));
    if let Either::Right(((), work)) = select(work, terminated).await {
        tell!("note: everything is written; the interrupted resync continues at the next use of the array");
        let (_, stopped) = join(work, array.stop()).await;
        drop(stopped); // the next call of `stop` returns the same result
    }
}

/// A file or pipe, with its name for messages.
struct End {
    file: File,
    name: String,
    /// Bytes read ahead.
    ahead: VecDeque<u8>,
    /// A signal asked the command to end.
    is_interrupted: bool,
}

impl End {
    fn new(file: File, name: String) -> Self {
        Self { file, name, ahead: VecDeque::new(), is_interrupted: false }
    }

    fn failed(&self, error: &std::io::Error) -> Failure {
        Failure::unwell(format!("{}: {error}", self.name))
    }

    /// Waits until the file can be read.
    fn inlet(&self) -> Result<Inlet, Failure> {
        let fd = self.file.as_fd().try_clone_to_owned();
        fd.map(Inlet::new).map_err(|error| self.failed(&error))
    }

    /// Reads up to `limit` bytes ahead. Returns the length of the input if it ended there, and `limit` if the input is
    /// longer and `limit` is the room in the array.
    fn read_ahead(&mut self, limit: u64) -> Result<Option<u64>, Failure> {
        let mut ahead = Vec::new();
        let read = (&self.file).take(limit).read_to_end(&mut ahead);
        let bytes = read.map_err(|error| self.failed(&error))? as u64;
        self.ahead = ahead.into();
        Ok((bytes < limit || limit < READ_AHEAD_BYTES).then_some(bytes))
    }
}

impl Read for End {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        match self.ahead.is_empty() {
            true => self.file.read(into),
            false => self.ahead.read(into),
        }
    }
}

fn range_to_read(arguments: &ReadArguments, array_bytes: u64) -> Result<Range<u64>, Failure> {
    let start = arguments.offset.0;
    let room = array_bytes.checked_sub(start).ok_or_else(|| past_the_end("--offset", start, array_bytes))?;
    let length = arguments.length.map_or(room, |length| length.0);
    if length > room {
        return Err(past_the_end("--offset and --length", start.saturating_add(length), array_bytes));
    }
    Ok(start..start + length)
}

fn past_the_end(what: &str, at: u64, array_bytes: u64) -> Failure {
    Failure::refused(format!("{what}: byte {at} is past the array's end"))
        .advise(format!("the array has {array_bytes} bytes ({})", Size(array_bytes)))
}

fn too_long(source: &str, room: u64) -> Failure {
    Failure::refused(format!("{source}: longer than the {room} bytes from --offset to the array's end"))
        .advise("write less, or to a smaller --offset")
}

/// The file that `write` reads from.
fn source(path: Option<&Path>) -> Result<End, Failure> {
    let Some(path) = path else {
        let stdin = std::io::stdin().as_fd().try_clone_to_owned();
        let file = stdin.map_err(|error| Failure::refused(format!("standard input: {error}")))?.into();
        return Ok(End::new(file, "standard input".to_owned()));
    };
    let name = name_of(path);
    let cannot = |error| Failure::refused(format!("{name}: cannot open: {error}"));
    let file = File::open(path).map_err(cannot)?;
    if file.metadata().map_err(cannot)?.is_dir() {
        return Err(Failure::refused(format!("{name}: a directory")).advise("give a file"));
    }
    Ok(End::new(file, name))
}

/// The rest of a regular file in bytes; `None` for a pipe or device.
fn length_of(file: &mut File) -> Option<u64> {
    let metadata = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let position = file.stream_position().ok()?;
    Some(metadata.len().saturating_sub(position))
}

/// Copies `range` of the target to `sink`, and returns the number of bytes that the sink accepted. With `losses` it
/// continues behind unreadable ranges.
async fn copy_out(
    target: &Target,
    range: Range<u64>,
    sink: &mut Sink,
    mut losses: Option<Losses>,
) -> Result<(u64, Losses), Failure> {
    let (array, volume) = (target.array(), &target.volume);
    let mut copied = 0;
    let mut progress = Progress::start("read", Some(range.end - range.start));
    let mut rest = pieces(range, array.preferred_bytes());
    let mut in_flight = FuturesOrdered::new();
    loop {
        while in_flight.len() < DEPTH {
            let Some(piece) = rest.next() else { break };
            let buffer = array.pool().take((piece.end - piece.start) as usize);
            in_flight.push_back(volume.read(piece.start, buffer).map(|read| (piece, read)));
        }
        let Some((piece, read)) = in_flight.next().await else { break };
        let buffer = match (read, &mut losses) {
            (Ok(buffer), _) => buffer,
            (Err(error), Some(losses)) if error.kind == ArrayErrorKind::Io => {
                losses.read_around(array.pool(), volume, piece).await?
            }
            (Err(error), _) => return Err(error.into()),
        };
        match sink.append(&buffer) {
            Ok(()) => {
                copied += buffer.len() as u64;
                progress.advance(buffer.len() as u64);
            }
            // The reader closed its pipe.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => break,
            Err(error) => return Err(Failure::unwell(format!("{}: {error}", sink.name))),
        }
    }
    sink.finish().map_err(|error| Failure::unwell(format!("{}: {error}", sink.name)))?;
    Ok((copied, losses.unwrap_or_default()))
}

/// Copies all of `source` into the array from `at` on, or up to an interruption, and returns the number of bytes.
async fn copy_in(
    array: &Array,
    at: u64,
    source: &mut End,
    length: Option<u64>,
    terminated: Terminated<'_>,
) -> Result<u64, Failure> {
    let inlet = source.inlet()?;
    let mut progress = Progress::start("write", length);
    let mut in_flight = FuturesUnordered::new();
    let mut end = at;
    let mut copied = Ok(());
    for piece in pieces(at..array.bytes(), array.preferred_bytes()) {
        let wanted = piece.end - piece.start;
        match fill(array, source, wanted, &inlet, terminated).await {
            Ok(Some(block)) => {
                let is_last = (block.len() as u64) < wanted;
                end += block.len() as u64;
                in_flight.push(write_piece(array, piece.start, block));
                if is_last {
                    break;
                }
            }
            Ok(None) => break,
            Err(failure) => {
                copied = Err(failure);
                break;
            }
        }
        if in_flight.len() == DEPTH {
            match in_flight.next().await {
                Some(Err(failure)) => {
                    copied = Err(failure);
                    break;
                }
                written => progress.advance(written.map_or(0, |written| written.unwrap_or(0))),
            }
        }
    }
    // Every write that has begun is completed, even if others failed.
    while let Some(written) = in_flight.next().await {
        match written {
            Ok(bytes) => progress.advance(bytes),
            Err(failure) => copied = copied.and(Err(failure)),
        }
    }
    copied?;
    if source.is_interrupted {
        let message = format!("{}: interrupted: {} bytes of it are written, the rest is not", source.name, end - at);
        return Err(Failure::unwell(message));
    }
    if end == array.bytes() && has_more(source)? {
        let message = format!("{}: longer than the array: the array is full, the rest is not written", source.name);
        return Err(
            Failure::unwell(message).advise("with a file as input, mdspace refuses in advance what does not fit")
        );
    }
    Ok(end - at)
}

async fn write_piece(array: &Array, at: u64, block: Block) -> Result<u64, Failure> {
    let bytes = block.len() as u64;
    array.write(at, block, Durability::Ordinary).await?;
    Ok(bytes)
}

/// The next `wanted` bytes of `source`; fewer at its end or at an interruption, `None` if there are none.
async fn fill(
    array: &Array,
    source: &mut End,
    wanted: u64,
    inlet: &Inlet,
    terminated: Terminated<'_>,
) -> Result<Option<Block>, Failure> {
    let mut buffer = array.pool().take(wanted as usize);
    let mut filled = 0;
    while filled < buffer.len() {
        // Waits here, because a read of a pipe blocks until its writer sends data, and cannot be interrupted.
        let is_there = async { if source.ahead.is_empty() { inlet.filled().await } else { Ok(()) } };
        match select(&mut *terminated, pin!(is_there)).await {
            Either::Left(_) => {
                source.is_interrupted = true;
                break;
            }
            Either::Right((is_there, _)) => is_there.map_err(|error| source.failed(&error))?,
        }
        match source.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(bytes) => filled += bytes,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(source.failed(&error)),
        }
    }
    Ok((filled > 0).then(|| buffer.split_to(filled).freeze()))
}

fn has_more(source: &mut End) -> Result<bool, Failure> {
    let read = source.read(&mut [0]);
    read.map(|bytes| bytes > 0).map_err(|error| source.failed(&error))
}
