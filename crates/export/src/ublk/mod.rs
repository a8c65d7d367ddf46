//! ublk: a volume as a local block device, `/dev/ublkbN`.
//!
//! The kernel's requests are io_uring commands on the ring of the volume's thread. Each tag is a task there: it fetches
//! a request, carries it out and commits the result, so no request crosses threads. Payload is copied once, between the
//! request's pages and a volume's buffer. Only creating, starting and stopping a device runs on other threads, because
//! the driver expects requests to be answered meanwhile. Payload in flight is bounded by `DEPTH` requests of
//! `REQUEST_BYTES_MAX`.
//!
//! It never serves a device that another process created. When a server is killed, the kernel stops its device and
//! keeps the number; the next server deletes it. Source: the kernel's `ublk_cmd.h` and `Documentation/block/ublk.rst`.

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

/// Maximum number of requests in flight.
const DEPTH: u16 = 64;

/// The unit of every request, as a power of two of bytes.
const SECTOR_SHIFT: u8 = SECTOR_BYTES.ilog2() as u8;

/// The physical block, written atomically, as a power of two of bytes.
const BLOCK_SHIFT: u8 = 12;

/// Maximum length of one discard or zeroing, in sectors: 1 GiB.
const RANGE_SECTORS_MAX: u32 = 1 << 21;

// From the kernel's ublk_cmd.h: `UBLK_ATTR_...` and `UBLK_PARAM_TYPE_...`.
const READ_ONLY: u32 = 1 << 0;
const VOLATILE_CACHE: u32 = 1 << 2;
const FUA: u32 = 1 << 3;
const BASIC: u32 = 1 << 0;
const DISCARD: u32 = 1 << 1;

/// Stored with the device by the driver: marks devices of this program, together with the process id.
const OWNER_TAG: u64 = 0x6d64_7370_0000_0000;

/// A volume served as a block device. It belongs to the volume's thread, which must have an [`::io::Executor`].
pub struct BlockDevice {
    number: u32,
    /// `None` once serving has ended.
    serving: Option<JoinHandle<io::Result<Vec<()>>>>,
}

impl BlockDevice {
    /// Serves `volume` as a block device, which exists once this completes.
    ///
    /// # Errors
    /// When the driver is missing (not found), the user lacks permission, the kernel is too old, or the system refuses.
    ///
    /// # Panics
    /// When the current thread has no executor.
    pub async fn start<V: Volume>(volume: V) -> io::Result<Self> {
        let parameters = parameters_of(&volume);
        let number = on_own_thread(move |control| {
            delete_stale(control);
            create(control, parameters)
        })
        .await?;
        let serving = match Queue::open(number, DEPTH) {
            Ok(queue) => serve(Rc::new(queue), &volume),
            Err(error) => {
                let _ = on_own_thread(move |control| control.delete(number)).await;
                return Err(io::Error::new(error.kind(), format!("/dev/ublkc{number}: {error}")));
            }
        };
        let mut device = Self { number, serving: Some(serving) };
        // Allocations of this thread must not wait for writes to its own device. The call needs CAP_SYS_RESOURCE, which
        // a server with access to ublk usually has; without it the call fails.
        let _ = rustix::process::configure_io_flusher_behavior(true);
        match device.appear().await {
            Ok(()) => Ok(device),
            Err(error) => {
                device.stop(std::future::pending()).await?;
                Err(error)
            }
        }
    }

    /// Completes when every tag is fetched and the kernel has scanned the device for partitions, or when the queue
    /// failed.
    async fn appear(&mut self) -> io::Result<()> {
        let number = self.number;
        let started = pin!(on_own_thread(move |control| control.start(number)));
        match select(started, pin!(self.failed())).await {
            Either::Left((started, _)) => started,
            Either::Right((error, _)) => Err(error),
        }
    }

    /// The path of the device.
    pub fn path(&self) -> String {
        format!("/dev/ublkb{}", self.number)
    }

    /// Completes when the device cannot be served any more. A deletion by another process does not count: that does not
    /// concern the volume.
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

    /// Writes the kernel's cached data, answers its requests, and deletes the device. Completes when the device is
    /// gone, or when `grace` completes first because the device is still open. Later requests then fail.
    ///
    /// # Errors
    /// When the device is still open, or the driver refuses.
    pub async fn stop(mut self, grace: impl Future<Output = ()>) -> io::Result<()> {
        let number = self.number;
        // A failed queue may leave an unanswered request, for which the stop would wait forever.
        let Some(serving) = self.serving.take() else { return Ok(()) };
        on_own_thread(move |control| control.stop(number)).await?;
        // The last task releases the device's queue.
        serving.await?;
        let deleted = pin!(on_own_thread(move |control| control.delete(number)));
        match select(deleted, pin!(grace)).await {
            Either::Left((deleted, _)) => deleted,
            Either::Right(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

/// The device parameters of `volume`.
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

/// Creates a device. Returns its number.
fn create(control: &mut Control, parameters: Parameters) -> io::Result<u32> {
    let mut info = DeviceInfo {
        queues: 1,
        depth: DEPTH,
        request_bytes_max: REQUEST_BYTES_MAX,
        flags: USER_COPY,
        own: OWNER_TAG | u64::from(std::process::id()),
        ..DeviceInfo::default()
    };
    control.add(&mut info)?;
    let number = info.device;
    // The driver may grant less than requested.
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

/// Deletes the numbers of devices whose server was killed. The kernel has stopped these devices, but keeps their
/// numbers.
fn delete_stale(control: &mut Control) {
    let Ok(devices) = std::fs::read_dir("/sys/class/ublk-char") else { return };
    let numbers = devices.flatten().filter_map(|entry| entry.file_name().to_str()?.strip_prefix("ublkc")?.parse().ok());
    for number in numbers {
        let is_left = |info: DeviceInfo| {
            let pid = info.own as u32;
            info.own == OWNER_TAG | u64::from(pid)
                && info.state == 0
                && !std::fs::exists(format!("/proc/{pid}")).unwrap_or(true)
        };
        if control.info(number).is_ok_and(is_left) {
            // The deletion waits until the device is closed, which may take long.
            drop(on_own_thread(move |control| control.delete(number)));
        }
    }
}

/// Serves every tag until the device is stopped.
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

/// The payload of the request that currently has the tag.
struct Tag {
    queue: Rc<Queue>,
    tag: u16,
}

impl Payload for Tag {
    fn read(&self, into: &mut [u8]) -> io::Result<()> {
        self.queue.read_payload(self.tag, into)
    }

    fn write(&self, from: &[u8]) -> io::Result<()> {
        self.queue.write_payload(self.tag, from)
    }
}

/// Starts `commands` on a thread of its own, at once, whether or not the result is awaited.
fn on_own_thread<T: Send + 'static>(
    commands: impl FnOnce(&mut Control) -> io::Result<T> + Send + 'static,
) -> impl Future<Output = io::Result<T>> {
    let (ended, end) = oneshot::channel();
    let run = move || {
        // If the grace ended first, the receiver is gone.
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
    fn the_kernel_gets_the_size_the_blocks_and_that_there_is_a_cache() {
        let volume = MemoryVolume::new((1 << 20) + 512, Pool::new(1 << 20));
        let parameters = parameters_of(&volume);
        assert_eq!((parameters.sectors, parameters.logical_shift, parameters.physical_shift), (2049, 9, 12));
        assert!(parameters.minimum_shift >= parameters.physical_shift);
        assert_eq!(parameters.attributes, VOLATILE_CACHE | FUA);
        assert_eq!((parameters.kinds, parameters.discard_ranges_max), (BASIC | DISCARD, 1));
        assert!(
            parameters.discard_granularity > 0
                && parameters.discard_sectors_max > 0
                && parameters.zeroes_sectors_max > 0
        );
    }
}
