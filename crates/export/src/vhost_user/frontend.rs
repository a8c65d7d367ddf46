//! The vhost-user dialogue with one front-end, on the protocol's own thread.
//!
//! It keeps the client's memory regions and queue settings. It turns messages into [`Order`]s for the volume's thread,
//! each of which completes before the message is answered. A queue runs from SET_VRING_KICK to GET_VRING_BASE. It never
//! touches a request or its data. Source: QEMU's `docs/interop/vhost-user.rst`.

use super::config::{PROTOCOL_FEATURES, Properties};
use super::inflight::Records;
use super::ring::{RingError, Setup};
use super::{Memory, QUEUE_SIZE_MAX, QUEUES_MAX};
use crate::volume::Durability;
use futures_channel::mpsc;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use vhost::VhostUserMemoryRegionBase;
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight, VhostUserLog,
    VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserShMemConfig, VhostUserSharedMsg,
    VhostUserSingleMemoryRegion, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{Error, GpuBackend, Result, VhostUserBackendReqHandlerMut};
use virtio_bindings::virtio_blk::VIRTIO_BLK_F_FLUSH;
use virtio_bindings::virtio_ring::VIRTIO_RING_F_EVENT_IDX;
use virtio_queue::{Queue, QueueT};
use vm_memory::{FileOffset, GuestAddress, GuestMemoryMmap, GuestRegionMmap, MmapRegion};

/// An operation for the volume's thread. The protocol's thread waits for its answer before it sends the next.
pub(super) struct Order {
    pub(super) kind: OrderKind,
    pub(super) answer: std::sync::mpsc::SyncSender<std::result::Result<u16, RingError>>,
}

/// The kinds of [`Order`]. Numbers are indexes of queues.
pub(super) enum OrderKind {
    /// Start a queue. If it already runs, it is stopped first.
    Start(usize, Box<Setup>, OwnedFd),
    SetCall(usize, Option<OwnedFd>),
    Enable(usize, bool),
    /// The memory of all queues.
    SetMemory(Memory),
    /// Stop a queue. The answer is the index of the next available entry.
    Stop(usize),
    /// Stop all queues.
    StopAll,
}

/// Maximum number of memory regions, one per message.
const REGIONS_MAX: u64 = 32;

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::ReqHandlerError(std::io::Error::other(error))
}

/// The client's settings of a queue.
#[derive(Default)]
struct Vring {
    size: u16,
    /// Addresses in the client's address space: descriptor table, available ring, used ring.
    addresses: Option<[u64; 3]>,
    base: u16,
    call: Option<File>,
    enabled: bool,
    runs: bool,
}

/// The state of one client's connection.
pub(super) struct Frontend {
    properties: Properties,
    orders: mpsc::UnboundedSender<Order>,
    features: u64,
    regions: Vec<(VhostUserMemoryRegion, Arc<GuestRegionMmap>)>,
    memory: Memory,
    inflight: Option<Records>,
    vrings: Vec<Vring>,
}

impl Frontend {
    pub(super) fn new(properties: Properties, orders: mpsc::UnboundedSender<Order>) -> Self {
        let vrings = (0..QUEUES_MAX).map(|_| Vring::default()).collect();
        let memory = Arc::new(GuestMemoryMmap::new());
        Self { properties, orders, features: 0, regions: Vec::new(), memory, inflight: None, vrings }
    }

    /// Sends an order, and waits for its answer.
    fn order(&self, kind: OrderKind) -> Result<u16> {
        let (answer, answered) = std::sync::mpsc::sync_channel(1);
        self.orders.unbounded_send(Order { kind, answer }).map_err(|_| Error::BackendInternalError)?;
        answered.recv().map_err(|_| Error::BackendInternalError)?.map_err(invalid)
    }

    /// Stops all queues after the client has disconnected.
    pub(super) fn close(&mut self) {
        self.vrings.iter_mut().for_each(|vring| vring.runs = false);
        if let Err(error) = self.order(OrderKind::StopAll) {
            tracing::debug!(%error, "the queues ended with their thread");
        }
    }

    fn vring(&mut self, index: u32) -> Result<&mut Vring> {
        self.vrings.get_mut(index as usize).ok_or(Error::InvalidParam)
    }

    /// The guest address of `address` in the client's address space.
    fn translate(&self, address: u64) -> Result<GuestAddress> {
        let region = self
            .regions
            .iter()
            .map(|(region, _)| region)
            .find(|region| address.checked_sub(region.user_addr).is_some_and(|offset| offset < region.memory_size));
        let region = region.ok_or(Error::InvalidParam)?;
        let guest = region.guest_phys_addr.checked_add(address - region.user_addr);
        Ok(GuestAddress(guest.ok_or(Error::InvalidParam)?))
    }

    fn add_region(&mut self, region: VhostUserMemoryRegion, file: File) -> Result<()> {
        let mapped = GuestRegionMmap::new(region.mmap_region(file)?, GuestAddress(region.guest_phys_addr));
        self.regions.push((region, Arc::new(mapped.ok_or(Error::InvalidParam)?)));
        Ok(())
    }

    /// Passes the current regions to all queues.
    fn update_memory(&mut self) -> Result<()> {
        let mut regions: Vec<_> = self.regions.iter().map(|(_, mapped)| mapped.clone()).collect();
        regions.sort_by_key(|region| vm_memory::GuestMemoryRegion::start_addr(&**region));
        let memory = if regions.is_empty() {
            GuestMemoryMmap::new()
        } else {
            GuestMemoryMmap::from_arc_regions(regions).map_err(invalid)?
        };
        self.memory = Arc::new(memory);
        self.order(OrderKind::SetMemory(self.memory.clone())).map(drop)
    }

    /// Starts a queue.
    fn start(&mut self, index: usize, kick: File) -> Result<()> {
        let vring = &self.vrings[index];
        let (addresses, size) = (vring.addresses.ok_or(Error::InvalidParam)?, vring.size);
        let mut queue = Queue::new(QUEUE_SIZE_MAX).map_err(invalid)?;
        let [table, available, used] = addresses;
        queue.try_set_size(size).map_err(invalid)?;
        queue.try_set_desc_table_address(self.translate(table)?).map_err(invalid)?;
        queue.try_set_avail_ring_address(self.translate(available)?).map_err(invalid)?;
        queue.try_set_used_ring_address(self.translate(used)?).map_err(invalid)?;
        queue.set_event_idx(self.features & 1 << VIRTIO_RING_F_EVENT_IDX != 0);
        queue.set_next_avail(vring.base);
        queue.set_ready(true);
        if !queue.is_valid(&*self.memory) {
            return Err(Error::InvalidParam);
        }
        let inflight = self.inflight.as_ref().and_then(|records| records.of(index, size));
        if self.inflight.is_some() && inflight.is_none() {
            let ring = index;
            tracing::warn!(ring, size, "no room for the requests under way: they would be lost with this process");
        }
        // A driver without VIRTIO_BLK_F_FLUSH expects an answered write to be durable.
        let durability =
            if self.features & 1 << VIRTIO_BLK_F_FLUSH != 0 { Durability::Ordinary } else { Durability::Stable };
        let setup = Setup { queue, memory: self.memory.clone(), inflight, durability };
        let (call, enabled) = (vring.call.as_ref().map(File::try_clone).transpose(), vring.enabled);
        self.order(OrderKind::Start(index, Box::new(setup), kick.into()))?;
        self.order(OrderKind::SetCall(index, call.map_err(invalid)?.map(OwnedFd::from)))?;
        self.vrings[index].runs = true;
        self.order(OrderKind::Enable(index, enabled)).map(drop)
    }
}

impl VhostUserBackendReqHandlerMut for Frontend {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        self.close();
        Ok(())
    }

    fn reset_device(&mut self) -> Result<()> {
        self.close();
        Ok(())
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(self.properties.features())
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        if features & !self.properties.features() != 0 {
            return Err(Error::InvalidParam);
        }
        self.features = features;
        if features & PROTOCOL_FEATURES == 0 {
            // Without protocol features, rings start enabled.
            self.vrings.iter_mut().for_each(|vring| vring.enabled = true);
        }
        Ok(())
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _postcopy_listening: Option<bool>,
    ) -> Result<Option<Vec<VhostUserMemoryRegionBase>>> {
        let before = std::mem::take(&mut self.regions);
        let added = regions.iter().zip(files).try_for_each(|(region, file)| self.add_region(*region, file));
        if let Err(error) = added {
            self.regions = before;
            return Err(error);
        }
        self.update_memory().map(|()| None)
    }

    fn set_vring_num(&mut self, index: u32, size: u32) -> Result<()> {
        let size = u16::try_from(size).ok().filter(|size| size.is_power_of_two() && *size <= QUEUE_SIZE_MAX);
        self.vring(index)?.size = size.ok_or(Error::InvalidParam)?;
        Ok(())
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        _flags: VhostUserVringAddrFlags,
        descriptor: u64,
        used: u64,
        available: u64,
        _log: u64,
    ) -> Result<()> {
        self.vring(index)?.addresses = Some([descriptor, available, used]);
        Ok(())
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        self.vring(index)?.base = u16::try_from(base).map_err(|_| Error::InvalidParam)?;
        Ok(())
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        if std::mem::take(&mut self.vring(index)?.runs) {
            self.vring(index)?.base = self.order(OrderKind::Stop(index as usize))?;
        }
        Ok(VhostUserVringState::new(index, self.vring(index)?.base.into()))
    }

    fn set_vring_kick(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        let index = usize::from(index);
        if index >= self.vrings.len() {
            return Err(Error::InvalidParam);
        }
        self.start(index, fd.ok_or(Error::InvalidOperation("a queue without an eventfd would have to be polled"))?)
    }

    fn set_vring_call(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        let copy = fd.as_ref().map(File::try_clone).transpose().map_err(invalid)?;
        let vring = self.vring(index.into())?;
        vring.call = fd;
        if vring.runs {
            self.order(OrderKind::SetCall(index.into(), copy.map(OwnedFd::from)))?;
        }
        Ok(())
    }

    fn set_vring_err(&mut self, index: u8, _fd: Option<File>) -> Result<()> {
        self.vring(index.into()).map(drop)
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::INFLIGHT_SHMFD
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS
            | VhostUserProtocolFeatures::RESET_DEVICE)
    }

    fn set_protocol_features(&mut self, _features: u64) -> Result<()> {
        Ok(())
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(QUEUES_MAX as u64)
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        let vring = self.vring(index)?;
        vring.enabled = enable;
        if vring.runs {
            self.order(OrderKind::Enable(index as usize, enable))?;
        }
        Ok(())
    }

    fn get_config(&mut self, offset: u32, size: u32, _flags: VhostUserConfigFlags) -> Result<Vec<u8>> {
        Ok(self.properties.config(offset, size))
    }

    fn set_config(&mut self, _offset: u32, _buf: &[u8], _flags: VhostUserConfigFlags) -> Result<()> {
        Err(Error::InvalidOperation("the configuration is read-only"))
    }

    fn get_inflight_fd(&mut self, inflight: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        let VhostUserInflight { num_queues, queue_size, .. } = *inflight;
        if usize::from(num_queues) > QUEUES_MAX || queue_size > QUEUE_SIZE_MAX {
            return Err(Error::InvalidParam);
        }
        let bytes = Records::bytes(usize::from(num_queues)) as u64;
        let file = memfd_create("mdspace-inflight", MemfdFlags::CLOEXEC).map_err(|_| Error::MemFdCreateError)?;
        ftruncate(&file, bytes).map_err(|_| Error::FileTruncateError)?;
        Ok((VhostUserInflight::new(bytes, 0, num_queues, queue_size), file.into()))
    }

    fn set_inflight_fd(&mut self, inflight: &VhostUserInflight, file: File) -> Result<()> {
        let bytes = usize::try_from(inflight.mmap_size).map_err(invalid)?;
        let region = MmapRegion::from_file(FileOffset::new(file, inflight.mmap_offset), bytes).map_err(invalid)?;
        let records = Records::in_region(region, usize::from(inflight.num_queues)).ok_or(Error::InvalidParam)?;
        self.inflight = Some(records);
        Ok(())
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Ok(REGIONS_MAX)
    }

    fn add_mem_region(
        &mut self,
        region: &VhostUserSingleMemoryRegion,
        file: File,
        _postcopy_listening: Option<bool>,
    ) -> Result<Option<VhostUserMemoryRegionBase>> {
        if self.regions.len() as u64 >= REGIONS_MAX {
            return Err(Error::InvalidParam);
        }
        self.add_region(**region, file)?;
        self.update_memory().map(|()| None)
    }

    fn remove_mem_region(&mut self, region: &VhostUserSingleMemoryRegion) -> Result<()> {
        let (guest, user, bytes) = (region.guest_phys_addr, region.user_addr, region.memory_size);
        self.regions
            .retain(|(known, _)| (known.guest_phys_addr, known.user_addr, known.memory_size) != (guest, user, bytes));
        self.update_memory()
    }

    fn set_gpu_socket(&mut self, _gpu_backend: GpuBackend) -> Result<()> {
        Err(NOT_OFFERED)
    }

    fn get_shared_object(&mut self, _uuid: VhostUserSharedMsg) -> Result<File> {
        Err(NOT_OFFERED)
    }

    fn set_device_state_fd(
        &mut self,
        _direction: VhostTransferStateDirection,
        _phase: VhostTransferStatePhase,
        _fd: File,
    ) -> Result<Option<File>> {
        Err(NOT_OFFERED)
    }

    fn check_device_state(&mut self) -> Result<()> {
        Err(NOT_OFFERED)
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        Err(NOT_OFFERED)
    }

    fn set_log_base(&mut self, _log: &VhostUserLog, _file: File) -> Result<()> {
        Err(NOT_OFFERED)
    }
}

/// The answer to messages of features that were not offered.
const NOT_OFFERED: Error = Error::InvalidOperation("this feature was not offered");
