//! The kernel's ublk driver as its two kinds of device have it: commands to `/dev/ublk-control`, which make and remove
//! block devices, and the requests of one of these, from `/dev/ublkcN`.
//!
//! What it never does: it does not decide what a device is like or how a request is answered, and it never starts, stops
//! or deletes one by itself.
//!
//! Invariants:
//! - One queue, fetched and answered by the thread that opened it, as the driver wants it.
//! - Payload moves by read and write calls (`UBLK_F_USER_COPY`, Linux 6.5), so no command in flight has an address of
//!   ours. That is why a ring may be closed while commands are with the driver, who alone ends them.
//!
//! Facts are from the kernel's `include/uapi/linux/ublk_cmd.h` and `Documentation/block/ublk.rst`.

use crate::descriptor::Descriptor;
use crate::operation::{Endless, Submitted};
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::fs::{Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::rc::Rc;

/// Where commands go; it is there when the driver is.
pub const CONTROL: &str = "/dev/ublk-control";

/// `UBLK_F_USER_COPY`: without it [`Queue`] is of no use, and only Linux 6.5 or later gives it back.
pub const USER_COPY: u64 = 1 << 7;

/// `struct ublksrv_ctrl_dev_info`: what a device is made with, and how it is.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct DeviceInfo {
    /// Queues.
    pub queues: u16,
    /// Requests of a queue at a time.
    pub depth: u16,
    /// 0 while it is not started, and after it was stopped.
    pub state: u16,
    /// Nothing.
    pub padding_0: u16,
    /// The most payload of a request.
    pub request_bytes_max: u32,
    /// Its number, chosen by the driver.
    pub device: u32,
    /// Who serves it.
    pub pid: i32,
    /// Nothing.
    pub padding_1: u32,
    /// What was asked for; what the driver does, after it was made.
    pub flags: u64,
    /// Kept by the driver for whoever made it.
    pub own: u64,
    /// User and group who made it, filled in by the driver.
    pub owner: [u32; 2],
    /// Nothing.
    pub reserved: [u64; 2],
}

const _: () = assert!(size_of::<DeviceInfo>() == 64);

/// `struct ublk_params` up to the parameters of discards.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct Parameters {
    /// How long this is, filled in by [`Control::set_parameters`].
    pub bytes: u32,
    /// Which kinds are set: 1 basic, 2 discard.
    pub kinds: u32,
    /// 1 read-only, 4 volatile cache, 8 FUA.
    pub attributes: u32,
    /// The logical block, as a power of two; so are the next three.
    pub logical_shift: u8,
    /// What is written whole.
    pub physical_shift: u8,
    /// What is best.
    pub optimal_shift: u8,
    /// What is good.
    pub minimum_shift: u8,
    /// The most sectors of a request.
    pub sectors_max: u32,
    /// Sectors between boundaries that no request crosses; 0 for none.
    pub chunk_sectors: u32,
    /// The device's size.
    pub sectors: u64,
    /// 0 for no rule on memory.
    pub boundary_mask: u64,
    /// Of discards, in bytes.
    pub discard_alignment: u32,
    /// In bytes.
    pub discard_granularity: u32,
    /// 0 for no discards.
    pub discard_sectors_max: u32,
    /// 0 for none.
    pub zeroes_sectors_max: u32,
    /// Ranges of one discard.
    pub discard_ranges_max: u16,
    /// Nothing.
    pub reserved: u16,
}

/// Where the driver's structure goes on, which is before Rust's tail padding.
const PARAMETERS_BYTES: u32 = 60;
const _: () = assert!(std::mem::offset_of!(Parameters, reserved) + 2 == PARAMETERS_BYTES as usize);

/// The number of a command, as an ioctl would have it: both directions unless it only asks, and its structure's size.
const fn code(number: u32, only_asks: bool, bytes: u32) -> u32 {
    let direction = if only_asks { 2 } else { 3 };
    direction << 30 | bytes << 16 | (b'u' as u32) << 8 | number
}

/// Of `struct ublksrv_ctrl_cmd`.
const CONTROL_BYTES: u32 = 32;
const GET_INFO: u32 = code(0x02, true, CONTROL_BYTES);
const ADD: u32 = code(0x04, false, CONTROL_BYTES);
const DELETE: u32 = code(0x05, false, CONTROL_BYTES);
const START: u32 = code(0x06, false, CONTROL_BYTES);
const STOP: u32 = code(0x07, false, CONTROL_BYTES);
const SET_PARAMETERS: u32 = code(0x08, false, CONTROL_BYTES);

/// Of `struct ublksrv_io_cmd`.
const QUEUE_BYTES: u32 = 16;
const FETCH: u32 = code(0x20, false, QUEUE_BYTES);
const COMMIT_AND_FETCH: u32 = code(0x21, false, QUEUE_BYTES);

/// The control device. Commands wait until they are carried out, on whatever thread: a device is started and stopped
/// only while its requests are answered, so those two want a thread of their own.
pub struct Control {
    file: OwnedFd,
    /// Of its own, as these commands are longer than an entry of the executor's.
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
}

impl Control {
    /// Opens it.
    ///
    /// # Errors
    /// When there is no driver, or this user may not use it, or the kernel has no long commands (before Linux 5.19).
    pub fn open() -> io::Result<Self> {
        let file = rustix::fs::open(CONTROL, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { file, ring: IoUring::builder().dontfork().build(1)? })
    }

    /// Makes a device as `info` says, which tells its number and what the driver really does afterwards.
    ///
    /// # Errors
    /// What the driver says.
    pub fn add(&mut self, info: &mut DeviceInfo) -> io::Result<()> {
        info.device = u32::MAX; // any
        // SAFETY: the driver reads one such structure there, and writes one.
        unsafe { self.run(ADD, info.device, 0, (&raw mut *info).cast(), size_of::<DeviceInfo>() as u16) }
    }

    /// Says what a device is like, before it is started.
    ///
    /// # Errors
    /// What the driver says.
    pub fn set_parameters(&mut self, device: u32, mut parameters: Parameters) -> io::Result<()> {
        parameters.bytes = PARAMETERS_BYTES;
        let address = (&raw mut parameters).cast();
        // SAFETY: the driver reads that many bytes there, which are the structure's own.
        unsafe { self.run(SET_PARAMETERS, device, 0, address, PARAMETERS_BYTES as u16) }
    }

    /// Makes the block device appear. It is read before this ends (for its partitions).
    ///
    /// # Errors
    /// What the driver says.
    pub fn start(&mut self, device: u32) -> io::Result<()> {
        self.plain(START, device, std::process::id().into())
    }

    /// Makes the block device go: what is in the page cache is written first, and requests that the driver has are
    /// answered; then the queue's commands end.
    ///
    /// # Errors
    /// What the driver says.
    pub fn stop(&mut self, device: u32) -> io::Result<()> {
        self.plain(STOP, device, 0)
    }

    /// Gives the number back, and waits until the last user of the device has closed it.
    ///
    /// # Errors
    /// What the driver says.
    pub fn delete(&mut self, device: u32) -> io::Result<()> {
        self.plain(DELETE, device, 0)
    }

    /// How a device is.
    ///
    /// # Errors
    /// What the driver says.
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

    /// Has a command carried out.
    ///
    /// # Safety
    /// The driver may do with `bytes` at `address` what the command says; nobody else may meanwhile.
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
                // The driver may have the command, whose memory cannot be let go then.
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

/// A request that somebody made of the block device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// `UBLK_IO_OP_...`
    pub operation: u8,
    /// `UBLK_IO_F_...`
    pub flags: u32,
    /// Where it begins; whatever it likes in a flush.
    pub start_sector: u64,
    /// How long it is.
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

/// The first and only queue of a device. A request has a tag, a place of its own, for as long as it is not answered.
pub struct Queue {
    file: Rc<Descriptor>,
    descriptions: NonNull<Description>,
    depth: u16,
}

impl Queue {
    /// Opens the queue of `depth` tags of the device.
    ///
    /// # Errors
    /// When somebody has it open already, or the system refuses.
    ///
    /// # Panics
    /// When the thread has no executor.
    pub fn open(device: u32, depth: u16) -> io::Result<Self> {
        let path = format!("/dev/ublkc{device}");
        let file = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let bytes = usize::from(depth) * size_of::<Description>();
        // SAFETY: a new mapping, where the kernel finds room, of what the driver keeps for as long as it exists.
        let address = unsafe {
            rustix::mm::mmap(null_mut(), bytes, ProtFlags::READ, MapFlags::SHARED | MapFlags::POPULATE, &file, 0)?
        };
        let descriptions = NonNull::new(address.cast()).ok_or_else(|| io::Error::other("mapped to nowhere"))?;
        Ok(Self { file: Descriptor::new(file), descriptions, depth })
    }

    /// Waits for the first request with this tag; `None` when the device is stopped.
    ///
    /// # Errors
    /// When the driver does not take the command.
    ///
    /// # Panics
    /// When there is no such tag.
    pub async fn fetch(&self, tag: u16) -> io::Result<Option<Request>> {
        self.next(FETCH, tag, 0).await
    }

    /// Answers the request with this tag, by bytes or an error's number below 0, and waits for the next.
    ///
    /// # Errors
    /// As [`Queue::fetch`].
    ///
    /// # Panics
    /// As [`Queue::fetch`].
    pub async fn answer(&self, tag: u16, result: i32) -> io::Result<Option<Request>> {
        self.next(COMMIT_AND_FETCH, tag, result).await
    }

    async fn next(&self, code: u32, tag: u16, result: i32) -> io::Result<Option<Request>> {
        assert!(tag < self.depth, "a tag of this queue");
        let mut command = [0; QUEUE_BYTES as usize]; // the queue is 0, and there is no address
        command[2..4].copy_from_slice(&tag.to_ne_bytes());
        command[4..8].copy_from_slice(&result.to_ne_bytes());
        let entry = opcode::UringCmd16::new(self.file.target(), code).cmd(command).build();
        // SAFETY: the entry has no addresses.
        match unsafe { Submitted::new(&self.file, entry, Endless) }.await.0 {
            // SAFETY: within the mapping, as checked above; the driver writes a description only before it ends the
            // command of its tag, and any bytes are one.
            Ok(0) => Ok(Some(unsafe { self.descriptions.add(tag.into()).read_volatile() }.into())),
            Ok(other) => Err(io::Error::other(format!("the driver answers {other}"))),
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Takes what the request with this tag writes, from its start.
    ///
    /// # Errors
    /// When there is no such request, or less in it.
    pub fn take_payload(&self, tag: u16, mut into: &mut [u8]) -> io::Result<()> {
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

    /// Gives what the request with this tag reads, from its start.
    ///
    /// # Errors
    /// When there is no such request, or less room in it.
    pub fn give_payload(&self, tag: u16, mut from: &[u8]) -> io::Result<()> {
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

/// Where the payload of a tag lies in the device (`UBLKSRV_IO_BUF_OFFSET`, `UBLK_IO_BUF_BITS`).
fn payload_of(tag: u16) -> u64 {
    0x8000_0000 + (u64::from(tag) << 25)
}

impl Drop for Queue {
    fn drop(&mut self) {
        let bytes = usize::from(self.depth) * size_of::<Description>();
        // SAFETY: the mapping of `open`, and nobody has a reference into it. It can only fail for another one.
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

    /// As a C compiler makes them of the kernel's header.
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
