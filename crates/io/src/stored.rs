//! A member whose writes are kept in files, over another member that is only read: what `--overlay` puts between an
//! array and each of its members.
//!
//! A block is in the data file or in the member below. The index says which, and its format is [`format::overlay`]. A
//! block is a sector, so none is written in part. One that the member below cannot read, as a hole of an image, is read
//! once it was written, and nothing else is.
//!
//! The promise is that of a disk with a volatile cache. A flush makes the data durable first, and then the record of the
//! blocks that are new. So a power loss, or the end of the process, may lose writes since the last flush, and a block
//! that no record names is the member's own, as before. A block that was in the data file already is overwritten in
//! place, as on any disk.
//!
//! What must not be abandoned halfway runs as a task: appending a record, whose place is used again only after its write
//! has ended. It never writes to the member below. Source: fdatasync(2).

use crate::any::AnyMember;
use crate::descriptor::Descriptor;
use crate::executor::spawn;
use crate::file::{FileMember, kind_of};
use crate::parts::{range_within, read_each};
use crate::transfer;
use engine::{Block, Buffer, Limits, Member, MemberError, MemberErrorKind, MemberFault, Operation, RangeLocks};
use format::overlay::{BLOCK_BYTES, Blocks, encode_record};
use format::units::MemberByte;
use std::cell::{Cell, OnceCell, RefCell};
use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// The lock of a flush.
const FLUSHING: Range<u64> = 0..1;

/// The files of an overlay, opened by the caller.
#[derive(Debug)]
pub struct StoredFiles {
    /// The member's length when the overlay was made, which the overlay keeps.
    pub bytes: u64,
    /// The data: as long as the member, in whole blocks.
    pub data: FileMember,
    /// The index, open for writing, and where the next record belongs; `None` to refuse every change.
    pub index: Option<(OwnedFd, u64)>,
    /// The blocks that the index names.
    pub blocks: Blocks,
}

/// Writes in files, over a member.
pub struct StoredOverlay {
    inner: Rc<Inner>,
}

struct Inner {
    under: AnyMember,
    data: FileMember,
    index: Option<IndexFile>,
    limits: Limits,
    /// The blocks that the data file holds.
    blocks: RefCell<Blocks>,
    /// Those of them that no record names yet.
    fresh: RefCell<Blocks>,
    locks: RangeLocks,
    /// Why every change fails: what a failed flush left behind is unknown.
    broken: OnceCell<String>,
}

struct IndexFile {
    descriptor: Rc<Descriptor>,
    end: Cell<u64>,
}

impl StoredOverlay {
    /// An overlay over `under`, which is never written to.
    ///
    /// # Panics
    /// When the thread has no executor.
    pub fn new(under: AnyMember, files: StoredFiles) -> Self {
        let StoredFiles { bytes, data, index, blocks } = files;
        let limits = Limits {
            bytes,
            synchronous: false,
            discards: false,
            discards_to_zeros: false,
            volatile_cache: true,
            ..under.limits().clone()
        };
        let index = index.map(|(fd, end)| IndexFile { descriptor: Descriptor::new(fd), end: Cell::new(end) });
        let inner = Inner {
            under,
            data,
            index,
            limits,
            blocks: RefCell::new(blocks),
            fresh: RefCell::default(),
            locks: RangeLocks::default(),
            broken: OnceCell::new(),
        };
        Self { inner: Rc::new(inner) }
    }

    /// The member below.
    pub fn under(&self) -> &AnyMember {
        &self.inner.under
    }

    /// The blocks that the overlay holds now.
    pub fn blocks(&self) -> Blocks {
        self.inner.blocks.borrow().clone()
    }
}

/// A transfer, for its bounds and errors.
#[derive(Clone, Copy)]
struct Request {
    operation: Operation,
    at: MemberByte,
    bytes: u64,
}

impl Request {
    fn failed(self, kind: MemberErrorKind, source: io::Error) -> MemberError {
        let Self { operation, at, bytes } = self;
        MemberFault { kind, operation, at, bytes, source: Rc::new(source) }.into()
    }
}

impl Inner {
    fn range(&self, Request { operation, at, bytes }: Request) -> Result<Range<u64>, MemberError> {
        range_within(&self.limits, operation, at, bytes)
    }

    /// The range of a change, if the overlay takes changes. It is of whole blocks, up to the member's end.
    fn range_to_change(&self, request: Request) -> Result<Range<u64>, MemberError> {
        let reason = match (&self.index, self.broken.get()) {
            (None, _) => "the overlay is open for reading only",
            (_, Some(reason)) => reason,
            (Some(_), None) => {
                let range = self.range(request)?;
                let is_whole = |byte: u64| byte.is_multiple_of(BLOCK_BYTES) || byte == self.limits.bytes;
                return match is_whole(range.start) && is_whole(range.end) {
                    true => Ok(range),
                    false => Err(request.failed(MemberErrorKind::Unsupported, io::ErrorKind::InvalidInput.into())),
                };
            }
        };
        Err(request.failed(MemberErrorKind::Gone, io::Error::other(reason.to_owned())))
    }

    /// The first part of `range` that is in one place: whether that is the data file, and where it ends.
    fn run(&self, range: &Range<u64>) -> (bool, u64) {
        let blocks = range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES);
        let (is_stored, behind) = self.blocks.borrow().run(blocks);
        (is_stored, (behind * BLOCK_BYTES).min(range.end))
    }

    async fn read_run(&self, is_stored: bool, at: u64, into: Buffer) -> (Result<(), MemberError>, Buffer) {
        match is_stored {
            true => self.data.read(MemberByte(at), into).await,
            false => self.under.read(MemberByte(at), into).await,
        }
    }

    /// Reads `range`, which begins as `first` says and may be in several places.
    async fn read_runs(
        &self,
        range: Range<u64>,
        mut first: (bool, u64),
        mut into: Buffer,
    ) -> (Result<(), MemberError>, Buffer) {
        let mut at = range.start;
        let mut done = into.split_to(0);
        loop {
            let (is_stored, end) = first;
            let part = into.split_to((end - at) as usize);
            let (read, part) = self.read_run(is_stored, at, part).await;
            done.join(part);
            if read.is_err() || end == range.end {
                done.join(into);
                return (read, done);
            }
            at = end;
            first = self.run(&(at..range.end));
        }
    }

    /// Notes that the data file holds the blocks of `range`.
    fn note(&self, range: &Range<u64>) {
        if range.is_empty() {
            return;
        }
        let written = range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES);
        let (is_known, behind) = self.blocks.borrow().run(written.clone());
        if !is_known || behind < written.end {
            self.fresh.borrow_mut().insert(written.clone());
            self.blocks.borrow_mut().insert(written);
        }
    }

    /// Puts the data of all completed writes on stable storage, and then the record that names them.
    async fn flush(&self, request: Request) -> Result<(), MemberError> {
        let Some(index) = &self.index else { return Ok(()) };
        let _turn = self.locks.exclusive(FLUSHING).await;
        self.range_to_change(request)?;
        let fresh = self.fresh.borrow().clone();
        let flushed = self.data.flush().await;
        flushed.inspect_err(|error| self.break_down(&format!("its data could not be flushed: {error}")))?;
        if fresh.is_empty() {
            return Ok(());
        }
        let record = encode_record(index.end.get(), &fresh);
        self.append(index, request, &record).await?;
        let (synced, ()) = transfer::sync_data(&index.descriptor).await;
        if let Err(error) = synced {
            self.break_down(&format!("its index could not be flushed: {error}"));
            return Err(request.failed(kind_of(Operation::Flush, &error), error));
        }
        index.end.set(index.end.get() + record.len() as u64);
        self.fresh.borrow_mut().remove(&fresh);
        Ok(())
    }

    /// Writes a record. After an error the next one goes to the same place, because no write of this one is under way.
    async fn append(&self, index: &IndexFile, request: Request, record: &[u8]) -> Result<(), MemberError> {
        let mut block = self.data.pool().copy_of(record);
        let mut done = 0;
        while done < record.len() {
            let at = index.end.get() + done as u64;
            let (written, back) = transfer::write(&index.descriptor, at, block, done).await;
            block = back;
            match written {
                Ok(0) => {
                    let full = io::Error::from_raw_os_error(libc::ENOSPC);
                    return Err(request.failed(MemberErrorKind::NoSpace, full));
                }
                Ok(bytes) => done += bytes as usize,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(request.failed(kind_of(Operation::Write, &error), error)),
            }
        }
        Ok(())
    }

    fn break_down(&self, reason: &str) {
        self.broken.get_or_init(|| format!("the overlay takes no more changes: {reason}"));
    }
}

impl Member for StoredOverlay {
    fn limits(&self) -> &Limits {
        &self.inner.limits
    }

    async fn read(&self, at: MemberByte, into: Buffer) -> (Result<(), MemberError>, Buffer) {
        let request = Request { operation: Operation::Read, at, bytes: into.len() as u64 };
        match self.inner.range(request) {
            Err(error) => (Err(error), into),
            Ok(range) if range.is_empty() => (Ok(()), into),
            Ok(range) => match self.inner.run(&range) {
                (is_stored, end) if end == range.end => self.inner.read_run(is_stored, at.0, into).await,
                first => self.inner.read_runs(range, first, into).await,
            },
        }
    }

    async fn read_vectored(&self, at: MemberByte, into: Vec<Buffer>) -> (Result<(), MemberError>, Vec<Buffer>) {
        let bytes = into.iter().map(|part| part.len() as u64).sum();
        let range = match self.inner.range(Request { operation: Operation::Read, at, bytes }) {
            Ok(range) => range,
            Err(error) => return (Err(error), into),
        };
        if range.is_empty() {
            return (Ok(()), into);
        }
        match self.inner.run(&range) {
            (true, end) if end == range.end => return self.inner.data.read_vectored(at, into).await,
            (false, end) if end == range.end => return self.inner.under.read_vectored(at, into).await,
            _ => {}
        }
        read_each(self, at, into).await
    }

    async fn write(&self, at: MemberByte, from: Block) -> Result<(), MemberError> {
        let request = Request { operation: Operation::Write, at, bytes: from.len() as u64 };
        let range = self.inner.range_to_change(request)?;
        self.inner.data.write(at, from).await?;
        self.inner.note(&range);
        Ok(())
    }

    async fn write_vectored(&self, at: MemberByte, from: Vec<Block>) -> Result<(), MemberError> {
        let bytes = from.iter().map(|part| part.len() as u64).sum();
        let range = self.inner.range_to_change(Request { operation: Operation::Write, at, bytes })?;
        self.inner.data.write_vectored(at, from).await?;
        self.inner.note(&range);
        Ok(())
    }

    async fn flush(&self) -> Result<(), MemberError> {
        let request = Request { operation: Operation::Flush, at: MemberByte(0), bytes: 0 };
        let inner = self.inner.clone();
        spawn(async move { inner.flush(request).await }).await
    }

    async fn discard(&self, at: MemberByte, bytes: u64) -> Result<(), MemberError> {
        let request = Request { operation: Operation::Discard, at, bytes };
        Err(request.failed(MemberErrorKind::Unsupported, io::ErrorKind::Unsupported.into()))
    }

    async fn write_zeroes(&self, at: MemberByte, bytes: u64) -> Result<(), MemberError> {
        let range = self.inner.range_to_change(Request { operation: Operation::WriteZeroes, at, bytes })?;
        self.inner.data.write_zeroes(at, bytes).await?;
        self.inner.note(&range);
        Ok(())
    }
}

impl fmt::Debug for StoredOverlay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredOverlay").field("under", &self.inner.under).finish_non_exhaustive()
    }
}
