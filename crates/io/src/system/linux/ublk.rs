//! The kernel's ublk driver: commands to `/dev/ublk-control`, which create and delete block devices, and the requests
//! of one device, from `/dev/ublkcN`.
//!
//! The driver takes commands from an io_uring alone, so a queue needs an executor with that backend.
//!
//! It does not decide a device's properties or the answer to a request. It never starts, stops or deletes a device by
//! itself.
//!
//! Invariants:
//! - One queue, fetched and answered by the thread that opened it, as the driver requires.
//! - Payload moves by read and write calls (`UBLK_F_USER_COPY`, Linux 6.5), so no command in flight has an address of
//!   ours. So a ring may be closed while commands are with the driver, which alone ends them.
//!
//! Facts are from the kernel's `include/uapi/linux/ublk_cmd.h` and `Documentation/block/ublk.rst`.

use crate::descriptor::Descriptor;
use crate::operation::{Call, Endless, Submitted};
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::fs::{Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::rc::Rc;

/// The control device. It exists while the driver is loaded.
pub const CONTROL: &str = "/dev/ublk-control";

/// `UBLK_F_USER_COPY`: [`Queue`] needs it, and only Linux 6.5 or later reports it back.
pub const USER_COPY: u64 = 1 << 7;

/// `struct ublksrv_ctrl_dev_info`: the properties and the state of a device.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct DeviceInfo {
    /// The number of queues.
    pub queues: u16,
    /// Tags of a queue: the maximum number of requests in flight.
    pub depth: u16,
    /// 0 before the start and after the stop.
    pub state: u16,
    /// Unused.
    pub padding_0: u16,
    /// Maximum payload of a request, in bytes.
    pub request_bytes_max: u32,
    /// The device's number, chosen by the driver.
    pub device: u32,
    /// The process id of the server.
    pub pid: i32,
    /// Unused.
    pub padding_1: u32,
    /// The flags requested; after creation, the flags that the driver supports.
    pub flags: u64,
    /// A value that the driver stores for the creator.
    pub own: u64,
    /// User and group of the creator, filled in by the driver.
    pub owner: [u32; 2],
    /// Unused.
    pub reserved: [u64; 2],
}

const _: () = assert!(size_of::<DeviceInfo>() == 64);

/// `struct ublk_params` up to the parameters of discards.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct Parameters {
    /// The structure's length in bytes, filled in by [`Control::set_parameters`].
    pub bytes: u32,
    /// The kinds of parameters that are set: 1 basic, 2 discard.
    pub kinds: u32,
    /// 1 read-only, 4 volatile cache, 8 FUA.
    pub attributes: u32,
    /// The logical block, as a power of two of bytes; so are the next three.
    pub logical_shift: u8,
    /// The physical block, which is written atomically.
    pub physical_shift: u8,
    /// The optimal size of a request.
    pub optimal_shift: u8,
    /// The minimum size of an efficient request.
    pub minimum_shift: u8,
    /// Maximum length of a request, in sectors.
    pub sectors_max: u32,
    /// Sectors between boundaries that no request crosses; 0 for none.
    pub chunk_sectors: u32,
    /// The device's size, in sectors.
    pub sectors: u64,
    /// A constraint on the memory of requests; 0 for none.
    pub boundary_mask: u64,
    /// Alignment of discards, in bytes.
    pub discard_alignment: u32,
    /// Granularity of discards, in bytes.
    pub discard_granularity: u32,
    /// Maximum length of a discard, in sectors; 0 for no discards.
    pub discard_sectors_max: u32,
    /// Maximum length of a zeroing, in sectors; 0 for none.
    pub zeroes_sectors_max: u32,
    /// Maximum number of ranges in one discard.
    pub discard_ranges_max: u16,
    /// Unused.
    pub reserved: u16,
}

/// The length of the driver's structure up to here, without Rust's tail padding.
const PARAMETERS_BYTES: u32 = 60;
const _: () = assert!(std::mem::offset_of!(Parameters, reserved) + 2 == PARAMETERS_BYTES as usize);

/// A command's number, in the form of an ioctl: direction, structure size, type, number.
const fn code(number: u32, is_query: bool, bytes: u32) -> u32 {
    let direction = if is_query { 2 } else { 3 };
    direction << 30 | bytes << 16 | (b'u' as u32) << 8 | number
}

/// The size of `struct ublksrv_ctrl_cmd`.
const CONTROL_BYTES: u32 = 32;
const GET_INFO: u32 = code(0x02, true, CONTROL_BYTES);
const ADD: u32 = code(0x04, false, CONTROL_BYTES);
const DELETE: u32 = code(0x05, false, CONTROL_BYTES);
const START: u32 = code(0x06, false, CONTROL_BYTES);
const STOP: u32 = code(0x07, false, CONTROL_BYTES);
const SET_PARAMETERS: u32 = code(0x08, false, CONTROL_BYTES);

/// The size of `struct ublksrv_io_cmd`.
const QUEUE_BYTES: u32 = 16;
const FETCH: u32 = code(0x20, false, QUEUE_BYTES);
const COMMIT_AND_FETCH: u32 = code(0x21, false, QUEUE_BYTES);

/// The control device. A command blocks its thread until it is carried out. A start or stop completes only while the
/// device's requests are answered, so these two need a thread of their own.
pub struct Control {
    file: OwnedFd,
    /// A ring of its own, because these commands need 128-byte entries.
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
}

impl Control {
    /// Opens the control device.
    ///
    /// # Errors
    /// When there is no driver, this user may not use it, or the kernel has no 128-byte entries (before Linux 5.19).
    pub fn open() -> io::Result<Self> {
        let file = rustix::fs::open(CONTROL, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { file, ring: IoUring::builder().dontfork().build(1)? })
    }

    /// Creates a device with the properties in `info`. The driver then fills in its number and the flags that it
    /// supports.
    ///
    /// # Errors
    /// The driver's error.
    pub fn add(&mut self, info: &mut DeviceInfo) -> io::Result<()> {
        info.device = u32::MAX; // any
        // SAFETY: the driver reads one such structure there, and writes one.
        unsafe { self.run(ADD, info.device, 0, (&raw mut *info).cast(), size_of::<DeviceInfo>() as u16) }
    }

    /// Sets the properties of a device before its start.
    ///
    /// # Errors
    /// The driver's error.
    pub fn set_parameters(&mut self, device: u32, mut parameters: Parameters) -> io::Result<()> {
        parameters.bytes = PARAMETERS_BYTES;
        let address = (&raw mut parameters).cast();
        // SAFETY: the driver reads that many bytes there, which are the structure's own.
        unsafe { self.run(SET_PARAMETERS, device, 0, address, PARAMETERS_BYTES as u16) }
    }

    /// Starts the device: the block device appears. The kernel reads it (for partitions) before this returns.
    ///
    /// # Errors
    /// The driver's error.
    pub fn start(&mut self, device: u32) -> io::Result<()> {
        self.plain(START, device, std::process::id().into())
    }

    /// Stops the device: the kernel writes its page cache, and the driver waits for its requests. Then the block device
    /// disappears, and the queue's commands end.
    ///
    /// # Errors
    /// The driver's error.
    pub fn stop(&mut self, device: u32) -> io::Result<()> {
        self.plain(STOP, device, 0)
    }

    /// Deletes the device, and waits until its last user has closed it.
    ///
    /// # Errors
    /// The driver's error.
    pub fn delete(&mut self, device: u32) -> io::Result<()> {
        self.plain(DELETE, device, 0)
    }

    /// The state of a device.
    ///
    /// # Errors
    /// The driver's error.
    pub fn info(&mut self, device: u32) -> io::Result<DeviceInfo> {
        let mut info = DeviceInfo::default();
        // SAFETY: the driver writes one such structure there.
        unsafe { self.run(GET_INFO, device, 0, (&raw mut info).cast(), size_of::<DeviceInfo>() as u16)? };
        Ok(info)
    }

    fn plain(&mut self, code: u32, device: u32, data: u64) -> io::Result<()> {
        // SAFETY: these commands have no memory.
        unsafe { self.run(code, device, data, null_mut(), 0) }
    }

    /// Runs one command.
    ///
    /// # Safety
    /// The command may access `bytes` at `address`; no other code may do so meanwhile.
    unsafe fn run(&mut self, code: u32, device: u32, data: u64, address: *mut u8, bytes: u16) -> io::Result<()> {
        let mut command = [0; 80];
        command[..4].copy_from_slice(&device.to_ne_bytes());
        command[4..6].copy_from_slice(&u16::MAX.to_ne_bytes()); // of no queue
        command[6..8].copy_from_slice(&bytes.to_ne_bytes());
        command[8..16].copy_from_slice(&(address as u64).to_ne_bytes());
        command[16..24].copy_from_slice(&data.to_ne_bytes());
        let entry = opcode::UringCmd80::new(types::Fd(self.file.as_raw_fd()), code).cmd(command).build();
        // SAFETY: promised by the caller for as long as this runs, which is until the completion.
        unsafe { self.ring.submission().push(&entry) }.expect("one command at a time");
        loop {
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {}
                // The driver may have the command, so its memory cannot be released.
                Err(error) => panic!("io_uring_enter: {error}"),
            }
            if let Some(completion) = self.ring.completion().next() {
                let result = completion.result();
                return if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) };
            }
        }
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").finish_non_exhaustive()
    }
}

/// `struct ublksrv_io_desc`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Description {
    operation_and_flags: u32,
    sectors: u32,
    start_sector: u64,
    _address: u64,
}

const _: () = assert!(size_of::<Description>() == 24);

/// A request to the block device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// `UBLK_IO_OP_...`
    pub operation: u8,
    /// `UBLK_IO_F_...`
    pub flags: u32,
    /// The first sector; undefined for a flush.
    pub start_sector: u64,
    /// The length, in sectors.
    pub sectors: u32,
}

impl From<Description> for Request {
    fn from(description: Description) -> Self {
        Self {
            operation: description.operation_and_flags as u8,
            flags: description.operation_and_flags & !0xff,
            start_sector: description.start_sector,
            sectors: description.sectors,
        }
    }
}

/// The first and only queue of a device. A request has a tag until it is answered.
pub struct Queue {
    file: Rc<Descriptor>,
    descriptions: NonNull<Description>,
    depth: u16,
}

impl Queue {
    /// Opens the queue of `depth` tags of the device.
    ///
    /// # Errors
    /// When another process has it open, or the system refuses.
    ///
    /// # Panics
    /// When the thread has no executor.
    pub fn open(device: u32, depth: u16) -> io::Result<Self> {
        let path = format!("/dev/ublkc{device}");
        let file = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let bytes = usize::from(depth) * size_of::<Description>();
        // SAFETY: a new mapping, at an address of the kernel's choice, of memory that the driver keeps as long as the
        // mapping.
        let address = unsafe {
            rustix::mm::mmap(null_mut(), bytes, ProtFlags::READ, MapFlags::SHARED | MapFlags::POPULATE, &file, 0)?
        };
        let descriptions = NonNull::new(address.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(Self { file: Descriptor::new(file), descriptions, depth })
    }

    /// Fetches the first request with this tag. `None` when the device is stopped.
    ///
    /// # Errors
    /// When the driver refuses the command.
    ///
    /// # Panics
    /// When there is no such tag.
    pub async fn fetch(&self, tag: u16) -> io::Result<Option<Request>> {
        self.next(FETCH, tag, 0).await
    }

    /// Answers the request with this tag, with a number of bytes or a negative error number, and fetches the next.
    ///
    /// # Errors
    /// The same as of [`Queue::fetch`].
    ///
    /// # Panics
    /// The same as of [`Queue::fetch`].
    pub async fn answer(&self, tag: u16, result: i32) -> io::Result<Option<Request>> {
        self.next(COMMIT_AND_FETCH, tag, result).await
    }

    async fn next(&self, code: u32, tag: u16, result: i32) -> io::Result<Option<Request>> {
        assert!(tag < self.depth, "a tag of this queue");
        let mut command = [0; QUEUE_BYTES as usize]; // the queue is 0, and there is no address
        command[2..4].copy_from_slice(&tag.to_ne_bytes());
        command[4..8].copy_from_slice(&result.to_ne_bytes());
        // SAFETY: the call has no addresses.
        match unsafe { Submitted::new(&self.file, Call::DriverCommand { code, command }, Endless) }.await.0 {
            // SAFETY: within the mapping, as checked above; the driver writes a description only before it ends the
            // command of its tag, and any bytes are a valid description.
            Ok(0) => Ok(Some(unsafe { self.descriptions.add(tag.into()).read_volatile() }.into())),
            Ok(other) => Err(io::Error::other(format!("the driver returned {other}"))),
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Copies the payload of the write request with this tag, from its start.
    ///
    /// # Errors
    /// When there is no such request, or it is shorter.
    pub fn read_payload(&self, tag: u16, mut into: &mut [u8]) -> io::Result<()> {
        let mut at = payload_of(tag);
        while !into.is_empty() {
            match rustix::io::pread(self.file.as_fd(), &mut *into, at) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => (into, at) = (&mut into[bytes..], at + bytes as u64),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Copies to the payload of the read request with this tag, from its start.
    ///
    /// # Errors
    /// When there is no such request, or it is shorter.
    pub fn write_payload(&self, tag: u16, mut from: &[u8]) -> io::Result<()> {
        let mut at = payload_of(tag);
        while !from.is_empty() {
            match rustix::io::pwrite(self.file.as_fd(), from, at) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => (from, at) = (&from[bytes..], at + bytes as u64),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// The offset of a tag's payload in the device (`UBLKSRV_IO_BUF_OFFSET`, `UBLK_IO_BUF_BITS`).
fn payload_of(tag: u16) -> u64 {
    0x8000_0000 + (u64::from(tag) << 25)
}

impl Drop for Queue {
    fn drop(&mut self) {
        let bytes = usize::from(self.depth) * size_of::<Description>();
        // SAFETY: the mapping of `open`, without references into it. Unmapping can only fail for another range.
        let _ = unsafe { rustix::mm::munmap(self.descriptions.as_ptr().cast(), bytes) };
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("depth", &self.depth).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers that a C compiler computes from the kernel's header.
    #[test]
    fn commands_have_the_numbers_of_the_header() {
        for (code, number) in [
            (GET_INFO, 0x8020_7502),
            (ADD, 0xc020_7504),
            (DELETE, 0xc020_7505),
            (START, 0xc020_7506),
            (STOP, 0xc020_7507),
            (SET_PARAMETERS, 0xc020_7508),
            (FETCH, 0xc010_7520),
            (COMMIT_AND_FETCH, 0xc010_7521),
        ] {
            assert_eq!(code, number, "{code:#x}");
        }
    }

    #[test]
    fn a_request_is_taken_from_its_description() {
        let description =
            Description { operation_and_flags: 1 | 1 << 13, sectors: 8, start_sector: 1 << 40, _address: 0 };
        let expected = Request { operation: 1, flags: 1 << 13, start_sector: 1 << 40, sectors: 8 };
        assert_eq!(Request::from(description), expected);
    }
}
