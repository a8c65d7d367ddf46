//! The array of the library: a handle that sends requests to the array's own thread.
//!
//! The engine, its ring and its buffers belong to that thread and never leave it. A request is a job for the thread,
//! and its result comes back through a channel. Payload is copied on each side, because the threads share no memory.
//!
//! Invariants:
//! - When a call returns, all its requests have completed. So an array that is closed or dropped has no requests under
//!   way.
//! - The thread runs no code of the program: it has every signal blocked, and calls nothing back.
//! - A process that forked has no such thread. There, calls fail at once, and a drop leaves everything to the parent.

use crate::cursor::Cursor;
use crate::error::Error;
use crate::machine::{Arena, Machine};
use crate::opened::Opened;
use crate::options::Options;
use crate::pieces::{DEPTH, pieces};
use ::io::signal::AllBlocked;
use engine::status::Status;
use engine::{ArrayError, Refusal};
use futures_channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures_util::StreamExt;
use futures_util::future::LocalBoxFuture;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::mem;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// Work for the array's thread. The job sends its own result.
type Job = Box<dyn FnOnce(Opened) -> LocalBoxFuture<'static, ()> + Send>;

/// An open array, or what [`Options::inner`] names inside of one.
///
/// Calls block until they are complete. Any number of threads may call at the same time through a shared reference,
/// such as an [`Arc`](std::sync::Arc). Overlapping writes are ordered. The array can also be read and written like a
/// file, with [`FileExt`] and [`Array::cursor`].
///
/// # Closing it
/// [`Array::close`] flushes, marks the array clean, closes its members and returns whether that succeeded. Dropping the
/// array does the same and waits for it, but cannot report errors, as with a [`File`](std::fs::File). A process that
/// ends without either, or is killed, leaves no more damage than a crash of the machine. Flushed data is safe; after
/// recent writes the array is dirty, and its next opening for writing resyncs it.
///
/// # Forks
/// Only the process that opened an array can use it: in its forks every call fails with
/// [`ErrorKind::Stopped`](crate::ErrorKind::Stopped). The members stay locked until the forks have ended, too.
pub struct Array {
    shape: Shape,
    /// The process that has the thread.
    process: u32,
    /// `None` after the array is closed.
    thread: Option<ArrayThread>,
}

/// The array's thread, and the way to it.
struct ArrayThread {
    jobs: UnboundedSender<Job>,
    /// Returns the final status.
    handle: JoinHandle<Result<Status, Error>>,
}

/// Properties that do not change while an array is open.
#[derive(Debug, Clone, Copy)]
struct Shape {
    bytes: u64,
    preferred_bytes: u64,
    is_read_only: bool,
}

impl Array {
    /// Opens an array for reading: [`Options`] without any setting.
    ///
    /// # Errors
    /// As [`Options::open`].
    pub fn open<P: AsRef<Path>>(members: impl IntoIterator<Item = P>) -> Result<Self, Error> {
        Options::new().open(members)
    }

    pub(crate) fn start(options: Options, members: Vec<PathBuf>) -> Result<Self, Error> {
        let (jobs, to_do) = unbounded();
        let (opened, shape) = sync_channel(1);
        let builder = std::thread::Builder::new().name("mdspace".to_owned());
        let blocked = AllBlocked::new();
        let handle = builder
            .spawn(move || run(&options, &members, &opened, to_do))
            .map_err(|error| Refusal::new(format!("a thread for the array: {error}")))?;
        drop(blocked);
        match shape.recv() {
            Ok(shape) => Ok(Self { shape, process: process::id(), thread: Some(ArrayThread { jobs, handle }) }),
            Err(_) => Err(end_of(handle).err().unwrap_or_else(Error::stopped)),
        }
    }

    /// Length of the array in bytes.
    pub fn bytes(&self) -> u64 {
        self.shape.bytes
    }

    /// The unit for fast large requests: multiples of this length, aligned to it.
    pub fn preferred_bytes(&self) -> u64 {
        self.shape.preferred_bytes
    }

    /// Whether writes are refused.
    pub fn is_read_only(&self) -> bool {
        self.shape.is_read_only
    }

    /// Fills `into` from byte `at` on, at any position and length.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfRange`](crate::ErrorKind::OutOfRange) when the range runs past the end,
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) when the remaining members cannot supply the data. The contents of
    /// `into` are then undefined.
    pub fn read_exact_at(&self, into: &mut [u8], at: u64) -> Result<(), Error> {
        let range = self.range(at, into.len())?;
        let begin = |piece: Range<u64>| {
            self.begin(async move |array| {
                let buffer = array.pool().take((piece.end - piece.start) as usize);
                Ok(array.read(piece.start, buffer).await?.to_vec())
            })
        };
        let end = |piece: Range<u64>, bytes: Vec<u8>| {
            into[(piece.start - at) as usize..(piece.end - at) as usize].copy_from_slice(&bytes);
        };
        self.in_pieces(range, begin, end)
    }

    /// Writes all of `from` at byte `at`, at any position and length. After [`Array::flush`] it survives a loss of
    /// power.
    ///
    /// # Errors
    /// [`ErrorKind::ReadOnly`](crate::ErrorKind::ReadOnly);
    /// [`ErrorKind::OutOfRange`](crate::ErrorKind::OutOfRange) when it would run past the end, with nothing written;
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) when too many members have failed.
    pub fn write_all_at(&self, from: &[u8], at: u64) -> Result<(), Error> {
        let range = self.range(at, from.len())?;
        let begin = |piece: Range<u64>| {
            let bytes = from[(piece.start - at) as usize..(piece.end - at) as usize].to_vec();
            self.begin(async move |array| {
                let block = array.pool().copy_of(&bytes);
                array.write(piece.start, block).await
            })
        };
        self.in_pieces(range, begin, |_, ()| {})
    }

    /// Discards `bytes` bytes from `at` on: members may free their space. They then read as zeros or stay as they are;
    /// without redundancy they may read as anything.
    ///
    /// # Errors
    /// As [`Array::write_all_at`].
    pub fn discard(&self, at: u64, bytes: u64) -> Result<(), Error> {
        self.begin(async move |array| array.discard(at, bytes).await).wait()
    }

    /// Brings every write that completed before this call to stable storage.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) when too many members have failed.
    pub fn flush(&self) -> Result<(), Error> {
        self.begin(async |array| array.flush().await).wait()
    }

    /// The status of the array and its members: the fields of `mdspace status --json`, without those of its server. Of
    /// something inside it is that of the array around it; of several arrays, the one with the first member.
    ///
    /// # Errors
    /// [`ErrorKind::Stopped`](crate::ErrorKind::Stopped), if a bug ended the array's thread.
    pub fn status(&self) -> Result<Status, Error> {
        self.begin(async |array| Ok(array.status())).wait()
    }

    /// A cursor that reads and writes the array as a stream, from its first byte on.
    pub fn cursor(&self) -> Cursor<'_> {
        Cursor::new(self)
    }

    /// Flushes, marks the array clean and closes its members. Returns the final status.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) when the array could not be marked clean: its next opening for writing
    /// resyncs it.
    pub fn close(mut self) -> Result<Status, Error> {
        self.end()
    }

    fn end(&mut self) -> Result<Status, Error> {
        let Some(ArrayThread { jobs, handle }) = self.thread.take() else { return Err(Error::stopped()) };
        if self.is_forked() {
            // Their destructors would signal the parent, and wait for a thread that is not there.
            mem::forget((jobs, handle));
            return Err(Error::forked());
        }
        drop(jobs);
        end_of(handle)
    }

    /// Whether this process is a fork of the one that opened the array.
    fn is_forked(&self) -> bool {
        process::id() != self.process
    }

    /// The range of `bytes` bytes from `at` on, if it lies in the array.
    fn range(&self, at: u64, bytes: usize) -> Result<Range<u64>, Error> {
        let end = at.checked_add(bytes as u64).filter(|&end| end <= self.bytes());
        end.map(|end| at..end).ok_or_else(|| Error::past_the_end(at, bytes, self.bytes()))
    }

    /// Sends `work` to the array's thread, which begins works in the order of these calls.
    fn begin<T, F>(&self, work: impl FnOnce(Opened) -> F + Send + 'static) -> PendingResult<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, ArrayError>> + 'static,
    {
        let (sender, receiver) = sync_channel(1);
        let job: Job = Box::new(move |array| {
            let done = work(array);
            // The caller waits for the result.
            Box::pin(async move { drop(sender.send(done.await)) })
        });
        if self.is_forked() {
            return PendingResult(Err(Error::forked()));
        }
        if let Some(ArrayThread { jobs, .. }) = &self.thread {
            // If the thread has ended, the job is dropped with the sender of its result.
            drop(jobs.unbounded_send(job));
        }
        PendingResult(Ok(receiver))
    }

    /// Transfers `range` in pieces, several at a time. After an error it still waits for all pieces that have begun.
    fn in_pieces<T>(
        &self,
        range: Range<u64>,
        mut begin: impl FnMut(Range<u64>) -> PendingResult<T>,
        mut end: impl FnMut(Range<u64>, T),
    ) -> Result<(), Error> {
        let mut rest = pieces(range, self.shape.preferred_bytes);
        let mut under_way = VecDeque::with_capacity(DEPTH);
        let mut done = Ok(());
        loop {
            while done.is_ok() && under_way.len() < DEPTH {
                let Some(piece) = rest.next() else { break };
                under_way.push_back((piece.clone(), begin(piece)));
            }
            let Some((piece, answer)) = under_way.pop_front() else { return done };
            match answer.wait() {
                Ok(result) => end(piece, result),
                Err(error) => done = done.and(Err(error)),
            }
        }
    }
}

impl Drop for Array {
    fn drop(&mut self) {
        if self.thread.is_some() {
            // A drop cannot report errors, as documented.
            drop(self.end());
        }
    }
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Array").field("shape", &self.shape).finish_non_exhaustive()
    }
}

/// As for a file of fixed length: reads end at the array's end, and a write that would run past it is refused as a
/// whole. The [`io::Error`] contains the [`Error`].
impl FileExt for Array {
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        let bytes = (self.bytes().saturating_sub(at)).min(into.len() as u64) as usize;
        self.read_exact_at(&mut into[..bytes], at.min(self.bytes()))?;
        Ok(bytes)
    }

    fn write_at(&self, from: &[u8], at: u64) -> io::Result<usize> {
        self.write_all_at(from, at)?;
        Ok(from.len())
    }
}

/// A result that the array's thread will send; or an error, if it was not asked.
struct PendingResult<T>(Result<Receiver<Result<T, ArrayError>>, Error>);

impl<T> PendingResult<T> {
    fn wait(self) -> Result<T, Error> {
        Ok(self.0?.recv().map_err(|_| Error::stopped())??)
    }
}

/// The result of the ended thread.
fn end_of(thread: JoinHandle<Result<Status, Error>>) -> Result<Status, Error> {
    thread.join().unwrap_or_else(|_| Err(Error::stopped()))
}

/// The array's thread, from opening to closing. If opening fails, it drops `opened` without a value.
fn run(
    options: &Options,
    members: &[PathBuf],
    opened: &SyncSender<Shape>,
    jobs: UnboundedReceiver<Job>,
) -> Result<Status, Error> {
    let machine = Machine::start(None, Arena::Medium)?;
    let machine = machine.with_maps(options.named_maps()?).over(options.overlay_directory())?;
    machine.run(async {
        let array = options.assemble(members, &machine).await?;
        let shape = Shape {
            bytes: array.bytes(),
            preferred_bytes: array.preferred_bytes(),
            is_read_only: array.is_read_only(),
        };
        opened.send(shape).expect("the caller of `start` waits");
        serve(array, jobs).await
    })
}

/// Carries out jobs until the handle is gone.
async fn serve(array: Opened, mut jobs: UnboundedReceiver<Job>) -> Result<Status, Error> {
    let background = ::io::spawn({
        let array = array.clone();
        async move { array.run_background().await }
    });
    while let Some(job) = jobs.next().await {
        drop(::io::spawn(job(array.clone())));
    }
    let stopped = array.stop().await;
    background.await;
    stopped?;
    Ok(array.status())
}
