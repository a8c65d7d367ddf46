//! The file system that the kernel sees: a directory with one file of constant size. It never does I/O itself; requests
//! that touch data become [`Job`]s. Facts are from `fuse(4)` and the crate `fuser`.

use super::FILE_NAME;
use super::drive::Job;
use crate::volume::{Durability, Volume};
use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use futures_channel::mpsc;
use rustix::fs::{FallocateFlags, OFlags};
use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

const DIRECTORY: INodeNo = INodeNo::ROOT;
const FILE: INodeNo = INodeNo(2);

/// Lifetime of cached attributes and entries: nothing ever changes, so the kernel need not ask again.
const FOR_LONG: Duration = Duration::from_secs(1 << 30);

/// Maximum number of the kernel's background requests (`max_background`).
const IN_FLIGHT_MAX: u16 = 64;

/// Maximum bytes of one write: the kernel's limit for one request.
const WRITE_BYTES_MAX: u32 = 1 << 20;

/// The unit of `st_blocks`, by `stat(2)`.
const ATTRIBUTE_BLOCK_BYTES: u64 = 512;

pub(super) struct FileSystem {
    bytes: u64,
    read_only: bool,
    preferred_block_bytes: u32,
    mounted: SystemTime,
    jobs: mpsc::UnboundedSender<Job>,
    opened: Arc<AtomicUsize>,
}

impl FileSystem {
    pub(super) fn new(volume: &impl Volume, jobs: mpsc::UnboundedSender<Job>, opened: Arc<AtomicUsize>) -> Self {
        Self {
            bytes: volume.bytes(),
            read_only: volume.is_read_only(),
            preferred_block_bytes: volume.preferred_block_bytes(),
            mounted: SystemTime::now(),
            jobs,
            opened,
        }
    }

    fn attributes(&self, inode: INodeNo) -> Option<FileAttr> {
        let (kind, size, writing) = match inode {
            DIRECTORY => (FileType::Directory, 0, 0o100),
            FILE => (FileType::RegularFile, self.bytes, if self.read_only { 0 } else { 0o200 }),
            _ => return None,
        };
        Some(FileAttr {
            ino: inode,
            size,
            blocks: size / ATTRIBUTE_BLOCK_BYTES,
            atime: self.mounted,
            mtime: self.mounted,
            ctime: self.mounted,
            crtime: self.mounted,
            kind,
            perm: 0o400 | writing,
            nlink: 1,
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            rdev: 0,
            blksize: self.preferred_block_bytes,
            flags: 0,
        })
    }

    /// Sends a job to the volume's thread. When that thread has ended, dropping the job answers it with an error.
    fn hand_over(&self, job: Job) {
        drop(self.jobs.unbounded_send(job));
    }

    /// How many bytes of a range lie within the file.
    fn within(&self, at: u64, bytes: u64) -> u64 {
        bytes.min(self.bytes.saturating_sub(at))
    }
}

impl Filesystem for FileSystem {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // Each value is an upper bound. The kernel's own limits apply where they are lower.
        let _ = config.set_max_write(WRITE_BYTES_MAX);
        let _ = config.set_max_background(IN_FLIGHT_MAX);
        // Without this flag, each request of a client's queue occupies a kernel thread until it is answered.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.attributes(FILE).filter(|_| parent == DIRECTORY && name == FILE_NAME) {
            Some(attributes) => reply.entry(&FOR_LONG, &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _request: &Request, inode: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(inode) {
            Some(attributes) => reply.attr(&FOR_LONG, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    /// Accepts changes of times without storing them. Refuses any other change.
    fn setattr(
        &self,
        request: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if size.is_some_and(|size| size != self.bytes) || mode.is_some() || uid.is_some() || gid.is_some() {
            return reply.error(Errno::EPERM);
        }
        self.getattr(request, inode, handle, reply);
    }

    fn readdir(&self, _request: &Request, inode: INodeNo, _handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        if inode != DIRECTORY {
            return reply.error(Errno::ENOTDIR);
        }
        let entries = [
            (DIRECTORY, FileType::Directory, "."),
            (DIRECTORY, FileType::Directory, ".."),
            (FILE, FileType::RegularFile, FILE_NAME),
        ];
        for (index, (inode, kind, name)) in (1..).zip(entries).skip(usize::try_from(offset).unwrap_or(usize::MAX)) {
            if reply.add(inode, index, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn open(&self, _request: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let writes = OFlags::from_bits_retain(flags.0.cast_unsigned()) & OFlags::ACCMODE != OFlags::RDONLY;
        if inode != FILE {
            return reply.error(Errno::EISDIR);
        }
        if writes && self.read_only {
            return reply.error(Errno::EROFS);
        }
        self.opened.fetch_add(1, Ordering::Relaxed);
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES);
    }

    fn release(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.opened.fetch_sub(1, Ordering::Relaxed);
        reply.ok();
    }

    fn read(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        at: u64,
        bytes: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.within(at, bytes.into()) {
            0 => reply.data(&[]),
            bytes => self.hand_over(Job::Read(at, bytes as usize, reply)),
        }
    }

    fn write(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        at: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let bytes = self.within(at, data.len() as u64);
        if bytes == 0 && !data.is_empty() {
            return reply.error(Errno::ENOSPC);
        }
        let is_stable = OFlags::from_bits_retain(flags.0.cast_unsigned()).intersects(OFlags::SYNC | OFlags::DSYNC);
        let durability = if is_stable { Durability::Stable } else { Durability::Ordinary };
        self.hand_over(Job::Write(at, data[..bytes as usize].to_vec(), durability, reply));
    }

    /// Runs at each close(2). ENOSYS tells the kernel never to ask again, so a close never waits for a hung server.
    fn flush(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn fsync(&self, _request: &Request, _inode: INodeNo, _handle: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        self.hand_over(Job::Flush(reply));
    }

    /// Punched holes read as zeroes. A loop device sends both discards and zeroing in this form.
    fn fallocate(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        at: u64,
        bytes: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        if self.within(at, bytes) < bytes {
            return reply.error(Errno::ENOSPC);
        }
        let mode = FallocateFlags::from_bits_retain(mode.cast_unsigned());
        let kind = mode - FallocateFlags::KEEP_SIZE;
        if kind == FallocateFlags::PUNCH_HOLE || kind == FallocateFlags::ZERO_RANGE {
            self.hand_over(Job::Zero(at, bytes, kind == FallocateFlags::PUNCH_HOLE, reply));
        } else if kind.is_empty() {
            // Every byte is already allocated.
            reply.ok();
        } else {
            reply.error(Errno::EOPNOTSUPP);
        }
    }
}
