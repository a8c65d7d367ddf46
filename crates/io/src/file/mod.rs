//! A member that is a regular file or a block device.
//!
//! Transfers go straight to the device (`O_DIRECT`) where the file system
//! takes that, and are read or written in place, from registered memory when
//! the pool's arena is registered. A transfer that the kernel cuts short is
//! continued; the end of the file is an error, and a member grows only when it is measured after somebody made it longer.
//!
//! It never touches a member that it could not lock, if a lock was asked for
//! (see [`Lock`]), and never creates one; [`create_sparse`] and [`create_preallocated`] do.

mod aliases;
mod copied;
mod holes;
mod lock;
mod probe;
mod still;

use crate::descriptor::Descriptor;
use crate::transfer;
use engine::{Block, Buffer, Growing, Limits, Member, MemberError, MemberErrorKind, MemberFault, Operation};
use format::units::MemberByte;
use rustix::fs::{FallocateFlags, FileType, Mode, OFlags};
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

pub use holes::{has_data, holes};
pub use lock::Lock;
use probe::Probed;
use still::Still;

/// How to open a [`FileMember`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenOptions {
    /// Refuse every change.
    pub read_only: bool,
    /// Whether to go past the page cache.
    pub direct: Direct,
    /// Who else may hold the member meanwhile.
    pub lock: Lock,
    /// Take a regular file to be as long as the next multiple of so many bytes, a power of two: what it lacks reads as
    /// zeros, and is there from the first write behind its end on. 0: it is as long as it is.
    pub whole_bytes: u64,
}

impl Default for OpenOptions {
    /// Writable, direct where possible, held exclusively.
    fn default() -> Self {
        Self { read_only: false, direct: Direct::Auto, lock: Lock::Exclusive, whole_bytes: 0 }
    }
}

/// Whether transfers go past the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direct {
    /// Yes, where the file system takes it and says how to align.
    Auto,
    /// No. For members on file systems that do it badly.
    Never,
}

/// Why a member could not be opened; each names the member.
#[derive(Debug)]
pub enum OpenError {
    /// Somebody else, or this process itself, holds the lock.
    Locked {
        /// The member.
        path: PathBuf,
        /// The process that holds it, if that can be told.
        holder: Option<u32>,
    },
    /// The kernel or another process holds the block device exclusively.
    Busy {
        /// The member.
        path: PathBuf,
    },
    /// Neither a regular file nor a block device.
    NotAMember {
        /// What was to be the member.
        path: PathBuf,
    },
    /// The same bytes are in use by another path: a file behind a loop device, or a loop device over a file.
    Alias {
        /// The member.
        path: PathBuf,
        /// The other path, and why that cannot be had.
        source: Box<OpenError>,
    },
    /// The system refuses.
    System {
        /// The member.
        path: PathBuf,
        /// What could not be done.
        action: &'static str,
        /// The system's words.
        source: io::Error,
    },
}

impl OpenError {
    fn system(path: &Path, action: &'static str, source: impl Into<io::Error>) -> Self {
        Self::System { path: path.to_owned(), action, source: source.into() }
    }

    /// The member.
    pub fn path(&self) -> &Path {
        match self {
            Self::Locked { path, .. }
            | Self::Busy { path }
            | Self::NotAMember { path }
            | Self::Alias { path, .. }
            | Self::System { path, .. } => path,
        }
    }

    /// Whether another user might open it.
    pub fn is_permission_denied(&self) -> bool {
        matches!(self, Self::System { source, .. } if source.kind() == io::ErrorKind::PermissionDenied)
    }

    /// What is the matter, without the member.
    pub fn reason(&self) -> String {
        match self {
            Self::Locked { holder, .. } => format!("in use{}", lock::by(holder)),
            Self::Busy { .. } => {
                "in use: mounted, part of a kernel array or mapping, swap, or held by another process".to_owned()
            }
            Self::NotAMember { .. } => "neither a regular file nor a block device".to_owned(),
            Self::Alias { source, .. } => {
                format!("its data is also {}, which is {}", source.path().display(), source.reason())
            }
            Self::System { action, source, .. } => format!("cannot {action}: {source}"),
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path().display(), self.reason())
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::System { source, .. } => Some(source),
            Self::Alias { source, .. } => Some(source),
            Self::Locked { .. } | Self::Busy { .. } | Self::NotAMember { .. } => None,
        }
    }
}

/// A regular file or block device as a member of an array.
pub struct FileMember {
    path: PathBuf,
    descriptor: Rc<Descriptor>,
    limits: Growing<Limits>,
    is_block_device: bool,
    is_direct: bool,
    /// Where it ended when it was opened, if it is taken to be longer.
    short_end: Option<u64>,
    still: Still,
}

/// A file or block device that is open and locked, and not yet a member of a thread's executor: what takes its time, or
/// does not come back where a file system hangs, can be done on a thread of its own.
#[derive(Debug)]
pub struct OpenFile {
    path: PathBuf,
    fd: OwnedFd,
    /// Locks of the same bytes by other paths.
    aliases: Vec<OwnedFd>,
    probed: Probed,
    is_block_device: bool,
}

impl OpenFile {
    /// Opens an existing file or block device.
    ///
    /// # Errors
    /// See [`OpenError`]; nothing has been changed then.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<Self, OpenError> {
        let (fd, is_block_device) = open(path, options)?;
        let aliases = aliases::lock_aliases(path, &fd, options.lock)?;
        let probed = probe::probe(&fd, is_block_device, options)
            .map_err(|source| OpenError::system(path, "find out its size and alignment", source))?;
        Ok(Self { path: path.to_owned(), fd, aliases, probed, is_block_device })
    }

    /// The member on the current thread's executor.
    ///
    /// # Panics
    /// When the thread has no executor.
    pub fn into_member(self) -> FileMember {
        let Self { path, fd, aliases, probed, is_block_device } = self;
        let descriptor = Descriptor::registered(fd, aliases);
        FileMember {
            path,
            still: Still::of(&descriptor),
            descriptor,
            limits: Growing::new(probed.limits),
            is_block_device,
            is_direct: probed.is_direct,
            short_end: probed.short_end,
        }
    }
}

impl FileMember {
    /// Opens an existing member on the current thread's executor.
    ///
    /// # Errors
    /// See [`OpenError`]; nothing has been changed then.
    ///
    /// # Panics
    /// When the thread has no executor.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<Self, OpenError> {
        Ok(OpenFile::open(path, options)?.into_member())
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is a block device rather than a regular file.
    pub fn is_block_device(&self) -> bool {
        self.is_block_device
    }

    /// Whether transfers go past the page cache.
    pub fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// An operation's failure. A transfer that ends too soon may have come to a new end of the member, and so may one of a
    /// device without room.
    fn failed(&self, request: Request, source: io::Error) -> MemberError {
        let Request { operation, at, bytes } = request;
        self.look();
        if let Some(reason) = self.still.forbids_reads() {
            return self.gone(request, reason);
        }
        MemberFault { kind: kind_of(operation, &source), operation, at: MemberByte(at), bytes, source: Rc::new(source) }
            .into()
    }

    /// How long it has to be, at the least.
    fn bytes_needed(&self) -> u64 {
        self.short_end.unwrap_or(self.limits().bytes)
    }

    /// Looks whether it is as long as it was, and still has a name.
    fn look(&self) {
        match self.is_block_device {
            true => probe::length(&*self.descriptor).map_or((), |now| self.still.note_length(now, self.bytes_needed())),
            false => self.still.look(&self.descriptor, self.bytes_needed()),
        }
    }

    /// Refuses everything of a member that is not what it was.
    fn check_still(&self, request: Request) -> Result<(), MemberError> {
        let reason = match request.operation {
            Operation::Read => self.still.forbids_reads(),
            _ if self.is_block_device => self.still.forbids_changes(),
            _ => {
                self.still.look_once_a_round(&self.descriptor, self.bytes_needed());
                self.still.forbids_changes()
            }
        };
        match reason {
            None => Ok(()),
            Some(reason) => Err(self.gone(request, reason)),
        }
    }

    fn gone(&self, request: Request, reason: &str) -> MemberError {
        let Request { operation, at, bytes } = request;
        let source = Rc::new(io::Error::other(reason.to_owned()));
        MemberFault { kind: MemberErrorKind::Gone, operation, at: MemberByte(at), bytes, source }.into()
    }

    /// Refuses what does not lie within the member.
    fn check(&self, request: Request) -> Result<(), MemberError> {
        self.check_still(request)?;
        let end = request.at.checked_add(request.bytes);
        let bytes = self.limits().bytes;
        if end.is_some_and(|end| end <= bytes) {
            return Ok(());
        }
        let text = format!("beyond the member's end at byte {bytes}");
        Err(self.failed(request, io::Error::new(io::ErrorKind::UnexpectedEof, text)))
    }

    /// Takes note of a partial result; returns whether the transfer is whole.
    fn progress(&self, request: Request, done: &mut u64, result: io::Result<u32>) -> Result<bool, MemberError> {
        match result {
            Ok(moved) => {
                *done += u64::from(moved);
                // A direct transfer stops between blocks only where the file ends.
                let between_blocks = done.is_multiple_of(u64::from(self.limits().logical_block_bytes));
                if moved == 0 || !between_blocks && *done < request.bytes {
                    let text = format!("only {done} of {} bytes", request.bytes);
                    return Err(match request.operation {
                        // Of a write that is all there is room for.
                        Operation::Write => self.failed(request, io::Error::from_raw_os_error(libc::ENOSPC)),
                        _ => self.failed(request, io::Error::new(io::ErrorKind::UnexpectedEof, text)),
                    });
                }
                Ok(*done == request.bytes)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
            Err(error) => Err(self.failed(request, error)),
        }
    }

    /// Makes up for what a file lacks that is taken to be longer, when a read has come to its end; the read's new result.
    fn make_up(&self, at: u64, result: io::Result<u32>, rest: &mut [u8]) -> io::Result<u32> {
        match (self.short_end, result) {
            (Some(end), Ok(moved)) if (moved as usize) < rest.len() && at + u64::from(moved) >= end => {
                rest[moved as usize..].fill(0);
                Ok(rest.len() as u32)
            }
            (_, result) => result,
        }
    }

    async fn allocate(&self, request: Request, modes: &[FallocateFlags]) -> Result<(), MemberError> {
        self.check(request)?;
        if request.bytes == 0 {
            return Ok(());
        }
        let mut refused = io::Error::from_raw_os_error(libc::EOPNOTSUPP);
        for mode in modes {
            let is_last = modes.last() == Some(mode);
            let mode = (*mode | FallocateFlags::KEEP_SIZE).bits().cast_signed();
            let (result, ()) = transfer::allocate(&self.descriptor, mode, request.at, request.bytes).await;
            match result {
                Ok(_) => return Ok(()),
                Err(error) if kind_of(request.operation, &error) == MemberErrorKind::Unsupported => refused = error,
                // A hole, which comes next, gives room back.
                Err(error) if kind_of(request.operation, &error) == MemberErrorKind::NoSpace && !is_last => {
                    refused = error
                }
                Err(error) => return Err(self.failed(request, error)),
            }
        }
        Err(self.failed(request, refused))
    }
}

/// Transfers from and to the memory that they are given.
impl FileMember {
    async fn read_in_place(&self, at: MemberByte, mut into: Buffer) -> (Result<(), MemberError>, Buffer) {
        let request = Request { operation: Operation::Read, at: at.0, bytes: into.len() as u64 };
        let mut done = 0;
        let mut outcome = self.check(request).map(|()| into.is_empty());
        while let Ok(false) = outcome {
            let (result, back) = transfer::read(&self.descriptor, at.0 + done, into, done as usize).await;
            into = back;
            let result = self.make_up(at.0 + done, result, &mut into[done as usize..]);
            outcome = self.progress(request, &mut done, result);
        }
        (outcome.map(drop), into)
    }

    async fn read_vectored_in_place(
        &self,
        at: MemberByte,
        mut into: Vec<Buffer>,
    ) -> (Result<(), MemberError>, Vec<Buffer>) {
        let request = Request { operation: Operation::Read, at: at.0, bytes: total(&into) };
        let mut done = 0;
        let mut outcome = self.check(request).map(|()| request.bytes == 0);
        while let Ok(false) = outcome {
            let (result, back) = transfer::read_vectored(&self.descriptor, at.0 + done, into, done as usize).await;
            into = back.parts;
            outcome = self.progress(request, &mut done, result);
        }
        (outcome.map(drop), into)
    }

    async fn write_in_place(&self, at: MemberByte, mut from: Block) -> (Result<(), MemberError>, Block) {
        let request = Request { operation: Operation::Write, at: at.0, bytes: from.len() as u64 };
        let mut done = 0;
        let mut outcome = self.check(request).map(|()| from.is_empty());
        while let Ok(false) = outcome {
            let (result, back) = transfer::write(&self.descriptor, at.0 + done, from, done as usize).await;
            from = back;
            outcome = self.progress(request, &mut done, result);
        }
        (outcome.map(drop), from)
    }

    async fn write_vectored_in_place(
        &self,
        at: MemberByte,
        mut from: Vec<Block>,
    ) -> (Result<(), MemberError>, Vec<Block>) {
        let request = Request { operation: Operation::Write, at: at.0, bytes: total(&from) };
        let mut done = 0;
        let mut outcome = self.check(request).map(|()| request.bytes == 0);
        while let Ok(false) = outcome {
            let (result, back) = transfer::write_vectored(&self.descriptor, at.0 + done, from, done as usize).await;
            from = back.parts;
            outcome = self.progress(request, &mut done, result);
        }
        (outcome.map(drop), from)
    }
}

impl fmt::Debug for FileMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileMember").field("path", &self.path).field("limits", self.limits()).finish_non_exhaustive()
    }
}

/// What was asked, for bounds and errors.
#[derive(Clone, Copy)]
struct Request {
    operation: Operation,
    at: u64,
    bytes: u64,
}

fn total<T: Deref<Target = [u8]>>(parts: &[T]) -> u64 {
    parts.iter().map(|part| part.len() as u64).sum()
}

impl Member for FileMember {
    fn limits(&self) -> &Limits {
        self.limits.latest()
    }

    /// One that cannot be measured, or became shorter, is as long as it was: what is not there is an error when it is asked for.
    fn measure(&self) {
        let limits = self.limits();
        if let Ok(bytes) = probe::length(&*self.descriptor)
            && bytes > limits.bytes
        {
            self.limits.grow(Limits { bytes, ..limits.clone() });
        }
    }

    async fn read(&self, at: MemberByte, into: Buffer) -> (Result<(), MemberError>, Buffer) {
        let (result, into) = self.read_in_place(at, into).await;
        match result {
            Err(error) if self.is_refused_for_shape(&error) => {
                let (result, mut into) = Box::pin(self.read_copied(at, vec![into])).await;
                (result, into.remove(0))
            }
            result => (result, into),
        }
    }

    async fn read_vectored(&self, at: MemberByte, into: Vec<Buffer>) -> (Result<(), MemberError>, Vec<Buffer>) {
        let (result, into) = self.read_vectored_in_place(at, into).await;
        match result {
            Err(error) if self.is_refused_for_shape(&error) => Box::pin(self.read_copied(at, into)).await,
            result => (result, into),
        }
    }

    async fn write(&self, at: MemberByte, from: Block) -> Result<(), MemberError> {
        match self.write_in_place(at, from).await {
            (Err(error), from) if self.is_refused_for_shape(&error) => Box::pin(self.write_copied(at, &[from])).await,
            (result, _) => result,
        }
    }

    async fn write_vectored(&self, at: MemberByte, from: Vec<Block>) -> Result<(), MemberError> {
        match self.write_vectored_in_place(at, from).await {
            (Err(error), from) if self.is_refused_for_shape(&error) => Box::pin(self.write_copied(at, &from)).await,
            (result, _) => result,
        }
    }

    async fn flush(&self) -> Result<(), MemberError> {
        let request = Request { operation: Operation::Flush, at: 0, bytes: 0 };
        self.check_still(request)?;
        let (result, ()) = transfer::sync_data(&self.descriptor).await;
        result.map(drop).map_err(|error| self.failed(request, error))
    }

    async fn discard(&self, at: MemberByte, bytes: u64) -> Result<(), MemberError> {
        let request = Request { operation: Operation::Discard, at: at.0, bytes };
        self.allocate(request, &[FallocateFlags::PUNCH_HOLE]).await
    }

    async fn write_zeroes(&self, at: MemberByte, bytes: u64) -> Result<(), MemberError> {
        let request = Request { operation: Operation::WriteZeroes, at: at.0, bytes };
        self.allocate(request, &[FallocateFlags::ZERO_RANGE, FallocateFlags::PUNCH_HOLE]).await
    }
}

/// The kind of a system error, by what is to be done about it.
fn kind_of(operation: Operation, error: &io::Error) -> MemberErrorKind {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        return MemberErrorKind::Short;
    }
    match error.raw_os_error() {
        // The last is what a limit on the length of files comes to (RLIMIT_FSIZE).
        Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => MemberErrorKind::NoSpace,
        Some(libc::ENODEV | libc::ENXIO | libc::EBADF | libc::ESHUTDOWN | libc::ECANCELED) => MemberErrorKind::Gone,
        // A file system or device that was made read-only underneath is no bad sector.
        Some(libc::EROFS | libc::EPERM | libc::EACCES) if operation != Operation::Read => MemberErrorKind::Gone,
        Some(libc::ETIMEDOUT) => MemberErrorKind::TimedOut,
        Some(libc::EOPNOTSUPP) => MemberErrorKind::Unsupported,
        _ => MemberErrorKind::Io,
    }
}

/// Opens and locks; returns whether it is a block device.
fn open(path: &Path, options: &OpenOptions) -> Result<(OwnedFd, bool), OpenError> {
    let refused = |source| OpenError::system(path, "open", source);
    // Looked at first: opening a pipe would wait, and some devices act on being opened.
    let is_block_device = is_block_device(path, &rustix::fs::stat(path).map_err(refused)?)?;
    let mut flags = OFlags::CLOEXEC | if options.read_only { OFlags::RDONLY } else { OFlags::RDWR };
    if is_block_device && options.lock != Lock::None {
        // What the kernel's own users of block devices respect.
        flags |= OFlags::EXCL;
    }
    let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(|source| match source {
        rustix::io::Errno::BUSY if is_block_device => OpenError::Busy { path: path.to_owned() },
        source => refused(source),
    })?;
    if self::is_block_device(path, &rustix::fs::fstat(&fd).map_err(refused)?)? != is_block_device {
        return Err(OpenError::NotAMember { path: path.to_owned() }); // replaced under our hands
    }
    lock::lock(path, &fd, options.lock)?;
    Ok((fd, is_block_device))
}

fn is_block_device(path: &Path, status: &rustix::fs::Stat) -> Result<bool, OpenError> {
    match FileType::from_raw_mode(status.st_mode) {
        FileType::RegularFile => Ok(false),
        FileType::BlockDevice => Ok(true),
        _ => Err(OpenError::NotAMember { path: path.to_owned() }),
    }
}

/// Creates a file of `bytes` that takes no space yet, readable by its owner alone.
///
/// # Errors
/// When it exists already, and when the file system refuses; then no file is left.
pub fn create_sparse(path: &Path, bytes: u64) -> io::Result<()> {
    create(path, |file| file.set_len(bytes))
}

/// Creates a file of `bytes` zeros that has its space already, readable by its owner alone. Where the file system
/// cannot set space aside, it is as [`create_sparse`] makes it.
///
/// # Errors
/// As [`create_sparse`].
pub fn create_preallocated(path: &Path, bytes: u64) -> io::Result<()> {
    create(path, |file| {
        let allocate = || rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes);
        match rustix::io::retry_on_intr(allocate) {
            Err(rustix::io::Errno::OPNOTSUPP) => file.set_len(bytes),
            allocated => Ok(allocated?),
        }
    })
}

fn create(path: &Path, set_size: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
    let file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
    set_size(&file).inspect_err(|_| {
        // The error that matters is the first one.
        let _ = std::fs::remove_file(path);
    })
}
