//! ublk: a volume as a block device of this machine, `/dev/ublkbN`.
//!
//! The kernel's requests are commands of the ring that the volume's thread has anyway: each tag is a task there, which
//! fetches a request, carries it out and answers it, so nothing crosses a thread. Payload is copied once, between the
//! request's pages and a buffer of the volume's. Only making, starting and stopping a device happens on threads of its
//! own, since the driver does those while requests are answered.
//!
//! Payload under way is bounded by `DEPTH` requests of `REQUEST_BYTES_MAX`.
//!
//! It never serves a device that somebody else made: a server that is killed takes its device with it, and what is left
//! of that (a number, no block device) is cleared up by the next one.

mod request;

use crate::volume::Volume;
use ::io::JoinHandle;
use ::io::ublk::{Control, DeviceInfo, Parameters, Queue, USER_COPY};
use futures_channel::oneshot;
use futures_util::future::{Either, select, try_join_all};
use request::{Payload, REQUEST_BYTES_MAX, SECTOR_BYTES};
use std::io;
use std::pin::pin;
use std::rc::Rc;

/// Requests at a time.
const DEPTH: u16 = 64;

/// The unit of every request, as a power of two.
const SECTOR_SHIFT: u8 = SECTOR_BYTES.ilog2() as u8;

/// What is written whole, as a power of two.
const BLOCK_SHIFT: u8 = 12;

/// Sectors that are discarded or zeroed at once, at the most: 1 GiB.
const RANGE_SECTORS_MAX: u32 = 1 << 21;

// Of the kernel's ublk_cmd.h.
const READ_ONLY: u32 = 1 << 0;
const VOLATILE_CACHE: u32 = 1 << 2;
const FUA: u32 = 1 << 3;
const BASIC: u32 = 1 << 0;
const DISCARD: u32 = 1 << 1;

/// Says whose device it is, with the process: what the driver keeps for us.
const MARK: u64 = 0x6d64_7370_0000_0000;

/// A volume that is a block device. Belongs to the volume's thread, which has an [`::io::Executor`].
pub struct BlockDevice {
    number: u32,
    /// `None` once it has ended.
    serving: Option<JoinHandle<io::Result<Vec<()>>>>,
}

impl BlockDevice {
    /// Makes `volume` a block device, which is there afterwards.
    ///
    /// # Errors
    /// When there is no driver (not found), this user may not, the kernel is too old, or the system refuses.
    ///
    /// # Panics
    /// When the current thread has no executor.
    pub async fn start<V: Volume>(volume: V) -> io::Result<Self> {
        let parameters = parameters_of(&volume);
        let number = elsewhere(move |control| {
            clear_up(control);
            make(control, parameters)
        })
        .await?;
        let serving = match Queue::open(number, DEPTH) {
            Ok(queue) => serve(Rc::new(queue), &volume),
            Err(error) => {
                let _ = elsewhere(move |control| control.delete(number)).await;
                return Err(io::Error::new(error.kind(), format!("/dev/ublkc{number}: {error}")));
            }
        };
        let mut device = Self { number, serving: Some(serving) };
        // Memory that this thread wants must not be had by writing to the device that it serves. Refused without
        // CAP_SYS_RESOURCE, which a server that could make a device rarely lacks.
        let _ = rustix::process::configure_io_flusher_behavior(true);
        match device.appear().await {
            Ok(()) => Ok(device),
            Err(error) => {
                device.stop(std::future::pending()).await?;
                Err(error)
            }
        }
    }

    /// Ends when every tag has been fetched and the device's partitions were looked for, or the queue has failed.
    async fn appear(&mut self) -> io::Result<()> {
        let number = self.number;
        let started = pin!(elsewhere(move |control| control.start(number)));
        match select(started, pin!(self.failed())).await {
            Either::Left((started, _)) => started,
            Either::Right((error, _)) => Err(error),
        }
    }

    /// Where it is.
    pub fn path(&self) -> String {
        format!("/dev/ublkb{}", self.number)
    }

    /// Completes when it cannot be served any more. Not when somebody deletes it, who does not mean the volume.
    pub async fn failed(&mut self) -> io::Error {
        if let Some(serving) = &mut self.serving {
            let ended = serving.await;
            self.serving = None;
            if let Err(error) = ended {
                return error;
            }
        }
        std::future::pending().await
    }

    /// Writes what the kernel caches of it, answers its requests, and makes it go. Completes when it is gone, or when
    /// `grace` is because somebody has it open still, whose requests are errors.
    ///
    /// # Errors
    /// When somebody has it open still, or the driver refuses.
    pub async fn stop(mut self, grace: impl Future<Output = ()>) -> io::Result<()> {
        let number = self.number;
        // Of a queue that failed a request may be left that nobody answers, and that this would wait for.
        let Some(serving) = self.serving.take() else { return Ok(()) };
        elsewhere(move |control| control.stop(number)).await?;
        // The last task lets go of the device's queue.
        serving.await?;
        let deleted = pin!(elsewhere(move |control| control.delete(number)));
        match select(deleted, pin!(grace)).await {
            Either::Left((deleted, _)) => deleted,
            Either::Right(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

/// What the kernel is told of `volume`.
fn parameters_of(volume: &impl Volume) -> Parameters {
    let preferred_shift = (volume.preferred_block_bytes().ilog2() as u8).max(BLOCK_SHIFT);
    let basic = Parameters {
        kinds: BASIC,
        attributes: VOLATILE_CACHE | FUA,
        logical_shift: volume.logical_block_bytes().map_or(SECTOR_SHIFT, |bytes| bytes.ilog2() as u8),
        physical_shift: BLOCK_SHIFT,
        minimum_shift: preferred_shift,
        optimal_shift: preferred_shift,
        sectors_max: REQUEST_BYTES_MAX / SECTOR_BYTES as u32,
        sectors: volume.bytes() / SECTOR_BYTES,
        ..Parameters::default()
    };
    if volume.is_read_only() {
        return Parameters { attributes: basic.attributes | READ_ONLY, ..basic };
    }
    Parameters {
        kinds: BASIC | DISCARD,
        discard_granularity: 1 << BLOCK_SHIFT,
        discard_sectors_max: RANGE_SECTORS_MAX,
        zeroes_sectors_max: RANGE_SECTORS_MAX,
        discard_ranges_max: 1,
        ..basic
    }
}

/// Makes a device and returns its number.
fn make(control: &mut Control, parameters: Parameters) -> io::Result<u32> {
    let mut info = DeviceInfo {
        queues: 1,
        depth: DEPTH,
        request_bytes_max: REQUEST_BYTES_MAX,
        flags: USER_COPY,
        own: MARK | u64::from(std::process::id()),
        ..DeviceInfo::default()
    };
    control.add(&mut info)?;
    let number = info.device;
    // The driver may do less than it was asked.
    let result = if info.flags & USER_COPY == 0 || info.depth != DEPTH || info.request_bytes_max != REQUEST_BYTES_MAX {
        Err(io::Error::new(io::ErrorKind::Unsupported, "the driver of Linux 6.5 or later is needed"))
    } else {
        control.set_parameters(number, parameters)
    };
    match result {
        Ok(()) => Ok(number),
        Err(error) => {
            let _ = control.delete(number);
            Err(error)
        }
    }
}

/// Gives back the numbers of devices whose server was killed: the kernel has stopped those, and keeps the number.
fn clear_up(control: &mut Control) {
    let Ok(devices) = std::fs::read_dir("/sys/class/ublk-char") else { return };
    let numbers = devices.flatten().filter_map(|entry| entry.file_name().to_str()?.strip_prefix("ublkc")?.parse().ok());
    for number in numbers {
        let is_left = |info: DeviceInfo| {
            let pid = info.own as u32;
            info.own == MARK | u64::from(pid)
                && info.state == 0
                && !std::fs::exists(format!("/proc/{pid}")).unwrap_or(true)
        };
        if control.info(number).is_ok_and(is_left) {
            // It waits for whoever has the device open still, which may be for long.
            drop(elsewhere(move |control| control.delete(number)));
        }
    }
}

/// Serves every tag, until the device is stopped.
fn serve<V: Volume>(queue: Rc<Queue>, volume: &V) -> JoinHandle<io::Result<Vec<()>>> {
    let tags: Vec<_> = (0..DEPTH)
        .map(|tag| {
            let (queue, volume) = (queue.clone(), volume.clone());
            ::io::spawn(async move {
                let payload = Tag { queue, tag };
                let mut next = payload.queue.fetch(tag).await?;
                while let Some(request) = next {
                    let result = request::serve(&volume, request, &payload).await;
                    next = payload.queue.answer(tag, result).await?;
                }
                Ok(())
            })
        })
        .collect();
    ::io::spawn(try_join_all(tags))
}

/// The payload of whatever request has the tag just now.
struct Tag {
    queue: Rc<Queue>,
    tag: u16,
}

impl Payload for Tag {
    fn take(&self, into: &mut [u8]) -> io::Result<()> {
        self.queue.take_payload(self.tag, into)
    }

    fn give(&self, from: &[u8]) -> io::Result<()> {
        self.queue.give_payload(self.tag, from)
    }
}

/// Has commands carried out on a thread of their own, at once, whether or not the result is waited for.
fn elsewhere<T: Send + 'static>(
    commands: impl FnOnce(&mut Control) -> io::Result<T> + Send + 'static,
) -> impl Future<Output = io::Result<T>> {
    let (ended, end) = oneshot::channel();
    let run = move || {
        // Nobody waits when the grace was over first.
        let _ = ended.send(Control::open().and_then(|mut control| commands(&mut control)));
    };
    let started = std::thread::Builder::new().name("ublk-control".to_owned()).spawn(run);
    async move {
        started?;
        end.await.unwrap_or_else(|error| Err(io::Error::other(error)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryVolume;
    use engine::Pool;

    #[test]
    fn the_kernel_is_told_the_size_the_blocks_and_that_there_is_a_cache() {
        let volume = MemoryVolume::new((1 << 20) + 512, Pool::new(1 << 20));
        let told = parameters_of(&volume);
        assert_eq!((told.sectors, told.logical_shift, told.physical_shift), (2049, 9, 12));
        assert!(told.minimum_shift >= told.physical_shift);
        assert_eq!(told.attributes, VOLATILE_CACHE | FUA);
        assert_eq!((told.kinds, told.discard_ranges_max), (BASIC | DISCARD, 1));
        assert!(told.discard_granularity > 0 && told.discard_sectors_max > 0 && told.zeroes_sectors_max > 0);
    }
}
