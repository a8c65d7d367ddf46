//! The array as others use it: a handle whose requests go to a thread of the array's own.
//!
//! The engine, its ring and its buffers belong to that thread and never leave it. A request is a job that goes there, and
//! its answer comes back through a channel; payload is copied twice, as neither side may look into the other's memory.
//!
//! Invariant: nothing that was begun is under way any more when a call returns, so an array that is closed or dropped has
//! no request left.

use crate::cursor::Cursor;
use crate::error::Error;
use crate::machine::{self, Arena, Machine, keep_up};
use crate::options::Options;
use crate::pieces::{DEPTH, pieces};
use engine::status::Status;
use engine::{ArrayError, Durability, Refusal};
use futures_channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures_util::StreamExt;
use futures_util::future::LocalBoxFuture;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// Work for the array's thread; it sends its answer itself.
type Job = Box<dyn FnOnce(machine::Array) -> LocalBoxFuture<'static, ()> + Send>;

/// An array that is open.
///
/// Calls block until they are done, and any number of threads may call at the same time (`&Array` is all they need; share
/// it by reference or in an [`Arc`](std::sync::Arc)). Overlapping writes follow each other. Besides the methods
/// here it is read and written as a file is by [`FileExt`], and by [`Array::cursor`].
///
/// # Closing it
/// [`Array::close`] flushes, marks the array clean, lets go of its members and says whether that went well. Dropping it does the
/// same and waits for it, but cannot say how it ended, as with a [`File`](std::fs::File). A process that ends without
/// either, or is killed, leaves what a crash of the machine leaves at the worst: everything that was flushed is there, and if
/// anything was written in the last moments the array is marked dirty and is resynced by whoever opens it next for writing.
pub struct Array {
    shape: Shape,
    jobs: UnboundedSender<Job>,
    /// Gives the last status; there until the array is closed.
    thread: Option<JoinHandle<Result<Status, Error>>>,
}

/// What does not change while an array is open.
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
        let thread = std::thread::Builder::new().name("mdspace".to_owned());
        let thread = thread
            .spawn(move || run(&options, &members, &opened, to_do))
            .map_err(|error| Refusal::new(format!("a thread for the array: {error}")))?;
        match shape.recv() {
            Ok(shape) => Ok(Self { shape, jobs, thread: Some(thread) }),
            Err(_) => Err(end_of(thread).err().unwrap_or_else(Error::stopped)),
        }
    }

    /// Length of the array in bytes.
    pub fn bytes(&self) -> u64 {
        self.shape.bytes
    }

    /// What large requests are best made of: multiples of so many bytes, aligned to them.
    pub fn preferred_bytes(&self) -> u64 {
        self.shape.preferred_bytes
    }

    /// Whether writes are refused.
    pub fn is_read_only(&self) -> bool {
        self.shape.is_read_only
    }

    /// Fills `into` with what is at byte `at`; any position and length.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfRange`](crate::ErrorKind::OutOfRange) when that runs past the end,
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) when the members left cannot give it. What is in `into` then is of no use.
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

    /// Writes all of `from` at byte `at`; any position and length. It is safe from a loss of power after a [`Array::flush`].
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
                array.write(piece.start, block, Durability::Ordinary).await
            })
        };
        self.in_pieces(range, begin, |_, ()| {})
    }

    /// The contents of so many bytes from `at` on no longer matter: members may let go of their space. They read as
    /// zeros afterwards or stay as they are; without redundancy they may be anything.
    ///
    /// # Errors
    /// As [`Array::write_all_at`].
    pub fn discard(&self, at: u64, bytes: u64) -> Result<(), Error> {
        self.begin(async move |array| array.discard(at, bytes).await).wait()
    }

    /// Every write that was answered before this call is on stable storage after it.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) when too many members have failed.
    pub fn flush(&self) -> Result<(), Error> {
        self.begin(async |array| array.flush().await).wait()
    }

    /// How the array and its members are: what `mdspace status --json` prints, without its server.
    ///
    /// # Errors
    /// [`ErrorKind::Stopped`](crate::ErrorKind::Stopped), if the array's thread has ended by a bug.
    pub fn status(&self) -> Result<Status, Error> {
        self.begin(async |array| Ok(array.status())).wait()
    }

    /// To read and write it as a stream, beginning at its first byte.
    pub fn cursor(&self) -> Cursor<'_> {
        Cursor::new(self)
    }

    /// Flushes, marks the array clean, and lets go of its members. Gives the state that it was left in.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) when it could not be marked clean: it is resynced when it is opened next.
    pub fn close(mut self) -> Result<Status, Error> {
        self.end()
    }

    fn end(&mut self) -> Result<Status, Error> {
        self.jobs.close_channel();
        self.thread.take().map_or_else(|| Err(Error::stopped()), end_of)
    }

    /// Checks that so many bytes from `at` on are all in the array.
    fn range(&self, at: u64, bytes: usize) -> Result<Range<u64>, Error> {
        let end = at.checked_add(bytes as u64).filter(|&end| end <= self.bytes());
        end.map(|end| at..end).ok_or_else(|| Error::past_the_end(at, bytes, self.bytes()))
    }

    /// Hands `work` to the array's thread, where it is begun in the order of these calls.
    fn begin<T, F>(&self, work: impl FnOnce(machine::Array) -> F + Send + 'static) -> Answer<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, ArrayError>> + 'static,
    {
        let (answer, answered) = sync_channel(1);
        let job: Job = Box::new(move |array| {
            let done = work(array);
            // Whoever asked waits for it.
            Box::pin(async move { drop(answer.send(done.await)) })
        });
        // A thread that has ended drops the job, and the answer's sender with it.
        drop(self.jobs.unbounded_send(job));
        Answer(answered)
    }

    /// Transfers `range` in pieces, several at a time. What was begun is waited for, whatever becomes of the others.
    fn in_pieces<T>(
        &self,
        range: Range<u64>,
        mut begin: impl FnMut(Range<u64>) -> Answer<T>,
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
            // There is nobody to tell how it ended, as documented.
            drop(self.end());
        }
    }
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Array").field("shape", &self.shape).finish_non_exhaustive()
    }
}

/// As of a file whose length cannot change: reads end at the array's end, and a write that would run past it is
/// refused as a whole. The [`Error`] is in the [`io::Error`].
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

/// What the array's thread will say.
struct Answer<T>(Receiver<Result<T, ArrayError>>);

impl<T> Answer<T> {
    fn wait(self) -> Result<T, Error> {
        Ok(self.0.recv().map_err(|_| Error::stopped())??)
    }
}

/// What the thread says at its end.
fn end_of(thread: JoinHandle<Result<Status, Error>>) -> Result<Status, Error> {
    thread.join().unwrap_or_else(|_| Err(Error::stopped()))
}

/// The array's thread, from opening to closing. Without an answer in `opened` it has failed to open.
fn run(
    options: &Options,
    members: &[PathBuf],
    opened: &SyncSender<Shape>,
    jobs: UnboundedReceiver<Job>,
) -> Result<Status, Error> {
    let machine = Machine::start(None, Arena::Middling)?;
    machine.run(async {
        let array = options.assemble(members, &machine).await?;
        let shape = Shape {
            bytes: array.bytes(),
            preferred_bytes: array.preferred_bytes(),
            is_read_only: array.is_read_only(),
        };
        opened.send(shape).expect("whoever opens it waits");
        serve(array, jobs).await
    })
}

/// Does what is to be done until there is nobody any more who could want anything.
async fn serve(array: machine::Array, mut jobs: UnboundedReceiver<Job>) -> Result<Status, Error> {
    let keeping = ::io::spawn({
        let array = array.clone();
        async move { keep_up(&array).await }
    });
    while let Some(job) = jobs.next().await {
        drop(::io::spawn(job(array.clone())));
    }
    let stopped = array.stop().await;
    keeping.await;
    stopped?;
    Ok(array.status())
}
