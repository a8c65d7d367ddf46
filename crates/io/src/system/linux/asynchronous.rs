//! Direct transfers through the kernel's older asynchronous interface, which needs no thread and is there where
//! io_uring is refused.
//!
//! Each transfer is submitted with `RWF_NOWAIT`: one that would block the submission comes back with `EAGAIN` and goes
//! to a thread. So does every transfer of a file that cannot tell. Nothing here blocks the executor.
//!
//! Facts: io_setup(2), io_submit(2), io_getevents(2), the kernel's `include/uapi/linux/aio_abi.h`.

use crate::operation::Call;
use crate::threads::{Ended, Job};
use slab::Slab;
use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::ptr::null_mut;

/// Largest number of transfers with the kernel at a time.
const IN_FLIGHT_MAX: usize = 256;

/// `struct iocb`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Block {
    data: u64,
    #[cfg(target_endian = "little")]
    key: u32,
    rw_flags: i32,
    #[cfg(target_endian = "big")]
    key: u32,
    code: u16,
    priority: i16,
    fd: u32,
    address: u64,
    bytes: u64,
    at: i64,
    reserved: u64,
    flags: u32,
    event: u32,
}

const _: () = assert!(size_of::<Block>() == 64);

const READ: u16 = 0;
const WRITE: u16 = 1;
const READ_VECTORED: u16 = 7;
const WRITE_VECTORED: u16 = 8;
/// `IOCB_FLAG_RESFD`: signal `event` at the completion.
const SIGNAL_EVENT: u32 = 1;

/// `struct io_event`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Event {
    data: u64,
    block: u64,
    result: i64,
    further: i64,
}

const EMPTY: Event = Event { data: 0, block: 0, result: 0, further: 0 };

/// The head of the completions that the kernel maps into the process. The kernel's own library reads it, too.
#[repr(C)]
struct Completions {
    number: u32,
    entries: u32,
    head: u32,
    tail: u32,
    magic: u32,
}

const MAGIC: u32 = 0xa10a_10a1;

/// One context of the kernel's.
pub(crate) struct Asynchronous {
    context: libc::c_ulong,
    in_flight: Slab<Job>,
    /// Transfers for which the context has no room.
    waiting: VecDeque<Job>,
    /// An eventfd that each completion signals.
    event: RawFd,
    blocks: Vec<Block>,
}

impl Asynchronous {
    /// A context whose completions signal `event`. `None` where the system has none to give (`fs.aio-max-nr`), or no
    /// such interface.
    pub(crate) fn new(event: RawFd) -> Option<Self> {
        let mut context: libc::c_ulong = 0;
        // SAFETY: the kernel writes one number there.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, IN_FLIGHT_MAX, &raw mut context) };
        (made == 0).then(|| Self {
            context,
            in_flight: Slab::new(),
            waiting: VecDeque::new(),
            event,
            blocks: Vec::new(),
        })
    }

    /// Submits the jobs, and leaves `jobs` empty. Those that the kernel does not take are added to `refused`, with its
    /// error.
    ///
    /// # Safety
    /// The jobs' addresses and descriptors are valid until the results are reaped.
    pub(crate) unsafe fn start(&mut self, jobs: &mut Vec<Job>, refused: &mut Vec<Ended>) {
        self.waiting.extend(jobs.drain(..));
        while self.in_flight.len() < IN_FLIGHT_MAX
            && let Some(job) = self.waiting.pop_front()
        {
            let key = self.in_flight.insert(job);
            self.blocks.push(block(&job, key as u64, self.event));
        }
        let mut blocks = std::mem::take(&mut self.blocks);
        let addresses: Vec<*mut Block> = blocks.iter_mut().map(|block| &raw mut *block).collect();
        let mut done = 0;
        while done < addresses.len() {
            let rest = &addresses[done..];
            // SAFETY: the blocks are ours, the kernel only reads them, and the caller vouches for their addresses.
            let taken = unsafe { libc::syscall(libc::SYS_io_submit, self.context, rest.len(), rest.as_ptr()) };
            match usize::try_from(taken) {
                Ok(taken) if taken > 0 => done += taken,
                _ => {
                    let error = io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
                    refused.push((self.in_flight.remove(blocks[done].data as usize), -error));
                    done += 1;
                }
            }
        }
        drop(addresses);
        blocks.clear();
        self.blocks = blocks;
    }

    /// Whether [`Asynchronous::collect`] would find a result.
    pub(crate) fn has_ended(&self) -> bool {
        if self.in_flight.is_empty() {
            return false;
        }
        let completions = self.context as *const Completions;
        // SAFETY: the kernel's context is the address of its completions, which it keeps mapped, readable and writable,
        // until the context is destroyed; it changes them at any time.
        unsafe {
            (&raw const (*completions).magic).read_volatile() != MAGIC
                || (&raw const (*completions).head).read_volatile() != (&raw const (*completions).tail).read_volatile()
        }
    }

    /// Adds the results since the last call.
    pub(crate) fn collect(&mut self, into: &mut Vec<Ended>) {
        let mut events = [EMPTY; 64];
        while self.has_ended() {
            let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            // SAFETY: the kernel writes at most that many events there.
            let got = unsafe {
                libc::syscall(
                    libc::SYS_io_getevents,
                    self.context,
                    0,
                    events.len(),
                    events.as_mut_ptr(),
                    &raw const at_once,
                )
            };
            let got = usize::try_from(got).unwrap_or(0);
            for event in &events[..got] {
                into.push((self.in_flight.remove(event.data as usize), event.result as i32));
            }
            if got < events.len() {
                return;
            }
        }
    }

    /// Takes a job back that the kernel does not have yet.
    pub(crate) fn take_back(&mut self, index: u64) -> Option<Job> {
        let at = self.waiting.iter().position(|job| job.index == index)?;
        self.waiting.remove(at)
    }

    /// Whether there is room for jobs that wait.
    pub(crate) fn wants_start(&self) -> bool {
        !self.waiting.is_empty() && self.in_flight.len() < IN_FLIGHT_MAX
    }
}

impl Drop for Asynchronous {
    fn drop(&mut self) {
        // Otherwise a transfer hangs, and the call would wait for it. The kernel ends the context with the process.
        if self.in_flight.is_empty() {
            // SAFETY: our context, which is not used afterwards.
            unsafe { libc::syscall(libc::SYS_io_destroy, self.context, null_mut::<u8>()) };
        }
    }
}

fn block(job: &Job, data: u64, event: RawFd) -> Block {
    let (code, address, bytes, at) = match job.call {
        Call::Read { address, bytes, at } => (READ, address as u64, bytes, at),
        Call::Write { address, bytes, at } => (WRITE, address as u64, bytes, at),
        Call::ReadVectored { vectors, count, at } => (READ_VECTORED, vectors as u64, count, at),
        Call::WriteVectored { vectors, count, at } => (WRITE_VECTORED, vectors as u64, count, at),
        _ => unreachable!("not a transfer"),
    };
    Block {
        data,
        key: 0,
        rw_flags: libc::RWF_NOWAIT,
        code,
        priority: 0,
        fd: job.fd.cast_unsigned(),
        address,
        bytes: bytes.into(),
        at: at.cast_signed(),
        reserved: 0,
        flags: SIGNAL_EVENT,
        event: event.cast_unsigned(),
    }
}
