//! A member on a regular file or a block device.
//!
//! Transfers bypass the page cache (`O_DIRECT`) where the file system supports that. They read and write in place, from
//! registered memory when the pool's arena is registered. A partial transfer is continued; the end of the file is an
//! error. A member grows only when it is measured after its file grew.
//!
//! It never touches a member that it could not lock, if a lock was asked for (see [`Lock`]). It never creates one
//! either; [`create_sparse`] and [`create_preallocated`] do.

mod bounce;
mod holes;
pub(crate) mod lock;
mod probe;
mod state;

use crate::descriptor::Descriptor;
use crate::operation::Clear;
use crate::system::{aliases, disk};
use crate::transfer;
use engine::{Block, Buffer, Growing, Limits, Member, MemberError, MemberErrorKind, MemberFault, Operation, Pool};
use format::units::MemberByte;
use rustix::fs::{FileType, Mode, OFlags};
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
use state::FileState;

/// The unit of md's format, in bytes, and the block size of a file without an alignment.
pub(crate) const SECTOR_BYTES: u32 = 512;

/// How to open a [`FileMember`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenOptions {
    /// Refuse every change.
    pub read_only: bool,
    /// Whether to bypass the page cache.
    pub direct: Direct,
    /// Which other users may hold the member meanwhile.
    pub lock: Lock,
    /// Treat a regular file as extended to the next multiple of this many bytes, a power of two. The missing part reads
    /// as zeros, and exists from the first write beyond the file's end. 0: the file's own length.
    pub whole_bytes: u64,
    /// Only this range is the member. Other ranges may be in use as other members.
    pub part: Option<Part>,
}

/// A range of a file or device: a partition of a disk, or of its image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Its first byte: a multiple of the device's logical block, and of 512.
    pub at: u64,
    /// Its length. A range that reaches past the end of the file or device ends there.
    pub bytes: u64,
}

impl Default for OpenOptions {
    /// Writable, direct where possible, locked exclusively.
    fn default() -> Self {
        Self { read_only: false, direct: Direct::Auto, lock: Lock::Exclusive, whole_bytes: 0, part: None }
    }
}

/// Whether transfers bypass the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direct {
    /// Yes, where the file system supports it and reports the alignment.
    Auto,
    /// No. For file systems with poor support.
    Never,
}

/// Why a member could not be opened. Each variant names the member.
#[derive(Debug)]
pub enum OpenError {
    /// Another process, or this process itself, holds the lock.
    Locked {
        /// The member.
        path: PathBuf,
        /// The id of the process that holds it, if known.
        holder: Option<u32>,
    },
    /// The kernel or another process has claimed the block device.
    Busy {
        /// The member.
        path: PathBuf,
    },
    /// Neither a regular file nor a block device.
    NotAMember {
        /// The path that was opened.
        path: PathBuf,
    },
    /// The same bytes are in use through another path: a file behind a loop device, or a loop device over a file.
    Alias {
        /// The member.
        path: PathBuf,
        /// The other path, and why it is not available.
        source: Box<OpenError>,
    },
    /// The operating system refuses.
    System {
        /// The member.
        path: PathBuf,
        /// What could not be done.
        action: &'static str,
        /// The operating system's error.
        source: io::Error,
    },
}

impl OpenError {
    pub(crate) fn system(path: &Path, action: &'static str, source: impl Into<io::Error>) -> Self {
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

    /// Whether another user might be able to open it.
    pub fn is_permission_denied(&self) -> bool {
        matches!(self, Self::System { source, .. } if source.kind() == io::ErrorKind::PermissionDenied)
    }

    /// Whether its file system has no locks, as NFS without a lock service.
    pub fn is_without_locks(&self) -> bool {
        let missing =
            |source: &io::Error| matches!(source.raw_os_error(), Some(libc::ENOLCK | libc::ENOSYS | libc::EOPNOTSUPP));
        matches!(self, Self::System { action: "lock", source, .. } if missing(source))
    }

    /// The reason, without the member's name.
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
    /// The file's length at the open, if the file is treated as longer.
    short_end: Option<u64>,
    /// Where the member begins in its file; `None` if it is the whole file, which may grow.
    part_at: Option<u64>,
    state: FileState,
}

/// A file or block device that is open and locked, but not bound to an executor yet. So the open, which is slow or
/// hangs on some file systems, can run on another thread.
#[derive(Debug)]
pub struct OpenFile {
    path: PathBuf,
    fd: OwnedFd,
    /// Locks of the same bytes through other paths.
    aliases: Vec<OwnedFd>,
    probed: Probed,
    is_block_device: bool,
}

impl OpenFile {
    /// Opens an existing file or block device.
    ///
    /// # Errors
    /// See [`OpenError`]; nothing was changed then.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<Self, OpenError> {
        let (fd, is_block_device) = open(path, options)?;
        let aliases = aliases::lock_aliases(path, &fd, options.lock)?;
        let probed = probe::probe(&fd, is_block_device, options)
            .map_err(|source| OpenError::system(path, "find out its size and alignment", source))?;
        Ok(Self { path: path.to_owned(), fd, aliases, probed, is_block_device })
    }

    /// What it supports and prefers.
    pub fn limits(&self) -> &Limits {
        &self.probed.limits
    }

    /// Binds the member to the current thread's executor.
    ///
    /// # Panics
    /// When the thread has no executor.
    pub fn into_member(self) -> FileMember {
        let Self { path, fd, aliases, probed, is_block_device } = self;
        let descriptor = Descriptor::registered(fd, aliases, probed.is_in_memory);
        FileMember {
            path,
            state: FileState::of(&descriptor),
            descriptor,
            limits: Growing::new(probed.limits),
            is_block_device,
            is_direct: probed.is_direct,
            short_end: probed.short_end,
            part_at: probed.part_at,
        }
    }
}

impl FileMember {
    /// Opens an existing member on the current thread's executor.
    ///
    /// # Errors
    /// See [`OpenError`]; nothing was changed then.
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

    /// Whether it is a block device.
    pub fn is_block_device(&self) -> bool {
        self.is_block_device
    }

    /// Whether transfers bypass the page cache.
    pub fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// The pool of its executor.
    pub(crate) fn pool(&self) -> &Pool {
        &self.descriptor.core().pool
    }

    /// The error of a failed operation. A truncated transfer, or a device without space, may mean that the member
    /// became shorter, so its length is checked.
    fn failed(&self, request: Request, source: io::Error) -> MemberError {
        let Request { operation, at, bytes } = request;
        self.refresh_state();
        if let Some(reason) = self.state.forbids_reads() {
            return self.gone(request, reason);
        }
        MemberFault { kind: kind_of(operation, &source), operation, at: MemberByte(at), bytes, source: Rc::new(source) }
            .into()
    }

    /// The minimum length of the file, in bytes.
    fn bytes_needed(&self) -> u64 {
        self.short_end.unwrap_or(self.in_file(self.limits().bytes))
    }

    /// The position in the file of the member's byte `at`.
    fn in_file(&self, at: u64) -> u64 {
        self.part_at.unwrap_or(0) + at
    }

    /// Checks that the file is not shorter than it was, and still has a name.
    fn refresh_state(&self) {
        match self.is_block_device {
            true => disk::length(&*self.descriptor).map_or((), |now| self.state.note_length(now, self.bytes_needed())),
            false => self.state.check(&self.descriptor, self.bytes_needed()),
        }
    }

    /// Refuses operations on a file that was truncated or removed.
    fn check_state(&self, request: Request) -> Result<(), MemberError> {
        let reason = match request.operation {
            Operation::Read => self.state.forbids_reads(),
            _ if self.is_block_device => self.state.forbids_changes(),
            _ => {
                self.state.check_once_per_round(&self.descriptor, self.bytes_needed());
                self.state.forbids_changes()
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

    /// Refuses ranges beyond the member.
    fn check(&self, request: Request) -> Result<(), MemberError> {
        self.check_state(request)?;
        let end = request.at.checked_add(request.bytes);
        let bytes = self.limits().bytes;
        if end.is_some_and(|end| end <= bytes) {
            return Ok(());
        }
        let text = format!("beyond the member's end at byte {bytes}");
        Err(self.failed(request, io::Error::new(io::ErrorKind::UnexpectedEof, text)))
    }

    /// Adds up a partial result. Returns whether the transfer is complete.
    fn progress(&self, request: Request, done: &mut u64, result: io::Result<u32>) -> Result<bool, MemberError> {
        match result {
            Ok(moved) => {
                *done += u64::from(moved);
                // A direct transfer stops between blocks only at the end of the file.
                let between_blocks = done.is_multiple_of(u64::from(self.limits().logical_block_bytes));
                if moved == 0 || !between_blocks && *done < request.bytes {
                    let text = format!("only {done} of {} bytes", request.bytes);
                    return Err(match request.operation {
                        // A short write means that there is no space for more.
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

    /// Completes a read that reached the end of a file that is treated as longer, with zeros. Returns the read's new
    /// result.
    fn pad_short_file(&self, at: u64, result: io::Result<u32>, rest: &mut [u8]) -> io::Result<u32> {
        match (self.short_end, result) {
            (Some(end), Ok(moved)) if (moved as usize) < rest.len() && at + u64::from(moved) >= end => {
                rest[moved as usize..].fill(0);
                Ok(rest.len() as u32)
            }
            (_, result) => result,
        }
    }

    async fn clear(&self, request: Request, ways: &[Clear]) -> Result<(), MemberError> {
        self.check(request)?;
        if request.bytes == 0 {
            return Ok(());
        }
        let mut refused = io::Error::from_raw_os_error(libc::EOPNOTSUPP);
        for how in ways {
            let is_last = ways.last() == Some(how);
            let (result, ()) = transfer::clear(&self.descriptor, *how, self.in_file(request.at), request.bytes).await;
            match result {
                Ok(_) => return Ok(()),
                Err(error) if kind_of(request.operation, &error) == MemberErrorKind::Unsupported => refused = error,
                // Punching a hole, the next way, needs no space.
                Err(error) if kind_of(request.operation, &error) == MemberErrorKind::NoSpace && !is_last => {
                    refused = error
                }
                Err(error) => return Err(self.failed(request, error)),
            }
        }
        Err(self.failed(request, refused))
    }
}

/// Transfers to and from the caller's own memory.
impl FileMember {
    async fn read_in_place(&self, at: MemberByte, mut into: Buffer) -> (Result<(), MemberError>, Buffer) {
        let request = Request { operation: Operation::Read, at: at.0, bytes: into.len() as u64 };
        let mut done = 0;
        let mut outcome = self.check(request).map(|()| into.is_empty());
        while let Ok(false) = outcome {
            let (result, back) = transfer::read(&self.descriptor, self.in_file(at.0 + done), into, done as usize).await;
            into = back;
            let result = self.pad_short_file(at.0 + done, result, &mut into[done as usize..]);
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
            let (result, back) =
                transfer::read_vectored(&self.descriptor, self.in_file(at.0 + done), into, done as usize).await;
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
            let (result, back) =
                transfer::write(&self.descriptor, self.in_file(at.0 + done), from, done as usize).await;
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
            let (result, back) =
                transfer::write_vectored(&self.descriptor, self.in_file(at.0 + done), from, done as usize).await;
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

/// The operation and its range, for bounds checks and errors.
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

    /// A member that cannot be measured, or became shorter, keeps its length: access to the missing part is an error. A
    /// part of a file does not grow.
    fn measure(&self) {
        let limits = self.limits();
        if self.part_at.is_none()
            && let Ok(bytes) = disk::length(&*self.descriptor)
            && bytes > limits.bytes
        {
            self.limits.replace(Limits { bytes, ..limits.clone() });
        }
    }

    async fn read(&self, at: MemberByte, into: Buffer) -> (Result<(), MemberError>, Buffer) {
        let (result, into) = self.read_in_place(at, into).await;
        match result {
            Err(error) if self.needs_bounce(&error) => {
                let (result, mut into) = Box::pin(self.read_bounced(at, vec![into])).await;
                (result, into.remove(0))
            }
            result => (result, into),
        }
    }

    async fn read_vectored(&self, at: MemberByte, into: Vec<Buffer>) -> (Result<(), MemberError>, Vec<Buffer>) {
        let (result, into) = self.read_vectored_in_place(at, into).await;
        match result {
            Err(error) if self.needs_bounce(&error) => Box::pin(self.read_bounced(at, into)).await,
            result => (result, into),
        }
    }

    async fn write(&self, at: MemberByte, from: Block) -> Result<(), MemberError> {
        match self.write_in_place(at, from).await {
            (Err(error), from) if self.needs_bounce(&error) => Box::pin(self.write_bounced(at, &[from])).await,
            (result, _) => result,
        }
    }

    async fn write_vectored(&self, at: MemberByte, from: Vec<Block>) -> Result<(), MemberError> {
        match self.write_vectored_in_place(at, from).await {
            (Err(error), from) if self.needs_bounce(&error) => Box::pin(self.write_bounced(at, &from)).await,
            (result, _) => result,
        }
    }

    async fn flush(&self) -> Result<(), MemberError> {
        let request = Request { operation: Operation::Flush, at: 0, bytes: 0 };
        self.check_state(request)?;
        let (result, ()) = transfer::sync_data(&self.descriptor).await;
        result.map(drop).map_err(|error| self.failed(request, error))
    }

    async fn discard(&self, at: MemberByte, bytes: u64) -> Result<(), MemberError> {
        let request = Request { operation: Operation::Discard, at: at.0, bytes };
        self.clear(request, &[Clear::Hole]).await
    }

    async fn write_zeroes(&self, at: MemberByte, bytes: u64) -> Result<(), MemberError> {
        let request = Request { operation: Operation::WriteZeroes, at: at.0, bytes };
        self.clear(request, &[Clear::Zeros, Clear::Hole]).await
    }
}

/// The kind of a system error, by the reaction that it calls for.
pub(crate) fn kind_of(operation: Operation, error: &io::Error) -> MemberErrorKind {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        return MemberErrorKind::Short;
    }
    match error.raw_os_error() {
        // EFBIG comes from a limit on the length of files (RLIMIT_FSIZE).
        Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => MemberErrorKind::NoSpace,
        Some(libc::ENODEV | libc::ENXIO | libc::EBADF | libc::ESHUTDOWN | libc::ECANCELED) => MemberErrorKind::Gone,
        // A file system or device that became read-only is no bad sector.
        Some(libc::EROFS | libc::EPERM | libc::EACCES) if operation != Operation::Read => MemberErrorKind::Gone,
        Some(libc::ETIMEDOUT) => MemberErrorKind::TimedOut,
        Some(libc::EOPNOTSUPP) => MemberErrorKind::Unsupported,
        _ => MemberErrorKind::Io,
    }
}

/// Opens and locks. Returns whether it is a block device.
fn open(path: &Path, options: &OpenOptions) -> Result<(OwnedFd, bool), OpenError> {
    let refused = |source| OpenError::system(path, "open", source);
    // Checked before the open: opening a pipe would block, and some devices act on an open.
    let is_block_device = is_block_device(path, &rustix::fs::stat(path).map_err(refused)?)?;
    let mut flags = OFlags::CLOEXEC | if options.read_only { OFlags::RDONLY } else { OFlags::RDWR };
    if is_block_device && options.lock != Lock::None {
        flags |= disk::CLAIM;
    }
    let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(|source| match source {
        rustix::io::Errno::BUSY if is_block_device => OpenError::Busy { path: path.to_owned() },
        source => refused(source),
    })?;
    if self::is_block_device(path, &rustix::fs::fstat(&fd).map_err(refused)?)? != is_block_device {
        return Err(OpenError::NotAMember { path: path.to_owned() }); // replaced since the check
    }
    if is_block_device && !disk::is_disk(&fd) {
        return Err(OpenError::NotAMember { path: path.to_owned() });
    }
    match options.part {
        None => lock::lock(path, &fd, options.lock)?,
        Some(Part { at, bytes }) => lock::lock_part(path, &fd, at..at.saturating_add(bytes), options.lock)?,
    }
    Ok((fd, is_block_device))
}

pub(crate) fn is_block_device(path: &Path, status: &rustix::fs::Stat) -> Result<bool, OpenError> {
    match FileType::from_raw_mode(status.st_mode) {
        FileType::RegularFile => Ok(false),
        kind if disk::may_be_disk(kind) => Ok(true),
        _ => Err(OpenError::NotAMember { path: path.to_owned() }),
    }
}

/// Creates a sparse file of `bytes`, readable by its owner alone.
///
/// # Errors
/// When the file exists already, and when the file system refuses; then no file is left.
pub fn create_sparse(path: &Path, bytes: u64) -> io::Result<()> {
    create(path, |file| file.set_len(bytes))
}

/// Creates a file of `bytes` zeros with allocated space, readable by its owner alone. Where the file system cannot
/// preallocate, it creates a sparse file.
///
/// # Errors
/// The same as of [`create_sparse`].
pub fn create_preallocated(path: &Path, bytes: u64) -> io::Result<()> {
    create(path, |file| if disk::preallocate(file, bytes)? { Ok(()) } else { file.set_len(bytes) })
}

fn create(path: &Path, set_size: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
    let file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
    set_size(&file).inspect_err(|_| {
        // Only the first error matters.
        let _ = std::fs::remove_file(path);
    })
}
