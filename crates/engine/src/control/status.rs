//! Shows a running array, and a member on its own: plain, serializable values. Their fields are a stable
//! interface (`docs/json.md`).
//!
//! It only reads. Facts: the superblocks, and the counters of the running array.

use crate::control::Control;
use crate::control::assemble::LeftOut;
pub use crate::control::checksums::ChecksumStatus;
use crate::control::examined::{BadBlocksExamined, BitmapExamined, ReshapeExamined};
use crate::control::forced::Forced;
use crate::control::inspect::Found;
use crate::control::sweep::SweepStatus;
pub use crate::data::cache::CacheStatus;
use crate::device::{Device, DeviceState};
pub use crate::metadata::bitmap::BitmapStatus;
use crate::seam::clock::Clock;
use crate::seam::member::Member;
use format::geometry::Level;
use format::superblock::{DeviceFlags, DeviceRole, Resync, Superblock};
use format::text::quoted;
use format::units::Slot;
use serde::Serialize;

/// A running array.
#[derive(Debug, Clone, Serialize)]
pub struct Status {
    /// Identity of the array, as mdadm prints it.
    pub uuid: String,
    /// Its name.
    pub name: String,
    /// Metadata format: `1.2`.
    pub metadata: String,
    /// `raid5`
    pub level: &'static str,
    /// mdadm's name of the layout, where the level has a choice.
    pub layout: Option<String>,
    /// Bytes in a chunk; 0 where the level has none.
    pub chunk_bytes: u64,
    /// The fixed unit in which partly written stripes are moved; none when exactly the needed bytes are
    /// moved.
    pub stripe_size_bytes: Option<u32>,
    /// Bytes that the array offers.
    pub array_bytes: u64,
    /// Bytes used of each member; 0 for linear and RAID-0.
    pub component_bytes: u64,
    /// Creation time, in seconds since 1970.
    pub created: u64,
    /// Time of the last superblock update, in seconds since 1970.
    pub updated: u64,
    /// Number of slots.
    pub raid_disks: u16,
    /// Slots with a member that is current everywhere.
    pub in_sync: u16,
    /// `clean` or `active` (marked dirty), with `, degraded` appended; `broken` when the array takes no
    /// writes.
    pub state: String,
    /// Why the array is broken.
    pub broken: Option<String>,
    /// Whether writes are refused.
    pub read_only: bool,
    /// md's event count: changes of the metadata.
    pub events: u64,
    /// Whether parity and copies agree everywhere; false until a resync is done.
    pub in_agreement: bool,
    /// The sweep under way: `idle`, `resync`, `recover`, or `frozen`, as md's `sync_action`.
    pub sync_action: &'static str,
    /// How far the sweep under way has come.
    pub sweep: Option<SweepStatus>,
    /// Why the last sweep could not be finished.
    pub sweep_failure: Option<String>,
    /// The write-intent bitmap, when there is one.
    pub bitmap: Option<BitmapStatus>,
    /// Checksums, when any member keeps them.
    pub checksums: Option<ChecksumStatus>,
    /// Memory that speeds up writes.
    pub cache: CacheStatus,
    /// The parity kernel in use.
    pub kernel: &'static str,
    /// Active members by slot, then spares and faulty ones.
    pub members: Vec<MemberStatus>,
    /// Slots without a member.
    pub missing: Vec<u16>,
    /// Members that were offered and are not used.
    pub left_out: Vec<LeftOut>,
    /// Stale members that `--force` took since the array was started.
    pub forced: Vec<Forced>,
    /// What `--force` accepted when the array was started: what may be lost or wrong.
    pub warnings: Vec<String>,
}

/// A member of a running array.
#[derive(Debug, Clone, Serialize)]
pub struct MemberStatus {
    /// Its name: a path.
    pub name: String,
    /// Its slot, when it has one.
    pub slot: Option<u16>,
    /// Its index in the table of roles.
    pub device_number: u16,
    /// `in_sync`, `recovering`, `replacement` (of the member in its slot), `spare` or `faulty`.
    pub state: &'static str,
    /// Data transfers since the array was assembled.
    pub reads: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Data transfers since the array was assembled.
    pub writes: u64,
    /// Their bytes.
    pub written_bytes: u64,
    /// Transfers that failed. Retries by a sweep or by read repair are not counted, and neither are wrong
    /// blocks.
    pub errors: u64,
    /// Blocks of 4 KiB with a checksum mismatch, each counted once until it is rewritten.
    pub corrupt_blocks: u64,
    /// Bytes that could not be read or were wrong, and that were rewritten since the array was started.
    pub healed_bytes: u64,
    /// Bytes in which a read failed or found a wrong block, and that still wait for read repair.
    pub to_heal_bytes: u64,
    /// Sectors that could not be read and were corrected, since the member was added.
    pub corrected_sectors: u32,
    /// Bytes of its data in its bad-block log: they must not be read.
    pub bad_bytes: u64,
    /// Whether a NAS kernel has set its flag "disk error" for this member.
    pub disk_error: bool,
    /// Bytes that the member has no room for: they are in memory alone until it has.
    pub owed_bytes: u64,
}

/// The metadata on one member.
#[derive(Debug, Clone, Serialize)]
pub struct Examination {
    /// Its name: a path.
    pub name: String,
    /// Length of the member.
    pub member_bytes: u64,
    /// Metadata format.
    pub metadata: String,
    /// Identity of the array.
    pub array_uuid: String,
    /// Name of the array.
    pub array_name: String,
    /// Identity of the member; version 0.90 has none.
    pub device_uuid: Option<String>,
    /// Seconds since 1970.
    pub created: u64,
    /// Seconds since 1970.
    pub updated: u64,
    /// `raid5`
    pub level: &'static str,
    /// The layout field.
    pub layout: u32,
    /// Bytes in a chunk.
    pub chunk_bytes: u64,
    /// Number of slots.
    pub raid_disks: u16,
    /// Bytes used of each member; 0 for linear and RAID-0.
    pub component_bytes: u64,
    /// Where the superblock is.
    pub superblock_at: u64,
    /// Where data begins.
    pub data_at: u64,
    /// Bytes of data that fit.
    pub data_bytes: u64,
    /// md's event count: changes of the metadata.
    pub events: u64,
    /// `clean`, or from which byte of the components copies and parity may disagree.
    pub state: String,
    /// Its index in the table of roles.
    pub device_number: u16,
    /// Its own role: `active 2`, `spare`, `faulty`, `journal`.
    pub role: String,
    /// The slots by this superblock: `A` active, `.` missing.
    pub array_state: String,
    /// Features by name.
    pub features: Vec<&'static str>,
    /// Where the bitmap is.
    pub bitmap_at: Option<u64>,
    /// The contents of the bitmap, where there is one and it can be read.
    pub bitmap: Option<BitmapExamined>,
    /// Where the bad-block log is.
    pub bad_blocks_at: Option<u64>,
    /// The contents of the log; `None` where there is no log, or it cannot be read.
    pub bad_blocks: Option<BadBlocksExamined>,
    /// The member is read only where no other can serve.
    pub write_mostly: bool,
    /// Requests to the member fail fast instead of being retried.
    pub failfast: bool,
    /// Bytes in a logical block of the array; 0 where the superblock gives none.
    pub logical_block_bytes: u32,
    /// The reshape under way.
    pub reshape: Option<ReshapeExamined>,
    /// Whether a NAS kernel has set its flag "disk error" for this member.
    pub disk_error: bool,
}

/// A uuid as mdadm prints it: four groups of eight digits.
pub fn uuid_text(uuid: &[u8; 16]) -> String {
    let groups = uuid.chunks(4).map(|group| group.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    groups.collect::<Vec<_>>().join(":")
}

/// md's name of a level.
pub fn level_name(level: Level) -> &'static str {
    match level {
        Level::Linear => "linear",
        Level::Raid0 => "raid0",
        Level::Raid1 => "raid1",
        Level::Raid4 => "raid4",
        Level::Raid5 => "raid5",
        Level::Raid6 => "raid6",
        Level::Raid10 => "raid10",
    }
}

impl Examination {
    /// Describes what was found on a member.
    pub fn of(name: &str, member_bytes: u64, found: &Found) -> Self {
        let superblock = &found.superblock;
        let features = superblock.features();
        Self {
            name: name.to_owned(),
            member_bytes,
            metadata: superblock.version.to_string(),
            array_uuid: uuid_text(&superblock.set_uuid),
            array_name: quoted(superblock.set_name.as_bytes()),
            device_uuid: superblock.device_uuid.as_ref().map(uuid_text),
            created: superblock.created.seconds,
            updated: superblock.updated.seconds,
            level: level_name(superblock.level),
            layout: superblock.layout,
            chunk_bytes: superblock.chunk.bytes(),
            raid_disks: superblock.raid_disks,
            component_bytes: superblock.component.bytes(),
            superblock_at: superblock.super_at().0,
            data_at: superblock.data_at().0,
            data_bytes: superblock.data_bytes(),
            events: superblock.events,
            state: match superblock.resync {
                Resync::Clean => "clean".to_owned(),
                Resync::From(sectors) => match sectors.checked_bytes() {
                    Some(bytes) => format!("dirty from byte {bytes}"),
                    None => format!("dirty from sector {}", sectors.0),
                },
            },
            device_number: superblock.device_number.0,
            role: role_text(superblock.own_role()),
            array_state: array_state(superblock),
            features: format::superblock::Features::NAMED
                .iter()
                .filter(|(bit, _)| features.contains(*bit))
                .map(|(_, name)| *name)
                .collect(),
            bitmap_at: superblock.bitmap_at().map(|at| at.0),
            bitmap: None,
            bad_blocks_at: superblock.bad_blocks_at().map(|at| at.0),
            bad_blocks: None,
            write_mostly: superblock.device_flags.contains(DeviceFlags::WRITE_MOSTLY),
            failfast: superblock.device_flags.contains(DeviceFlags::FAIL_FAST),
            logical_block_bytes: superblock.logical_block_bytes,
            reshape: superblock.reshape.as_ref().map(ReshapeExamined::of),
            disk_error: superblock.disk_errors.contains(&superblock.device_number),
        }
    }
}

fn role_text(role: DeviceRole) -> String {
    match role {
        DeviceRole::Active(slot) => format!("active {slot}"),
        DeviceRole::Spare => "spare".to_owned(),
        DeviceRole::Faulty => "faulty".to_owned(),
        DeviceRole::Journal => "journal".to_owned(),
    }
}

fn array_state(superblock: &Superblock) -> String {
    let is_active = |slot: u16| superblock.roles.contains(&DeviceRole::Active(Slot(slot)));
    (0..superblock.raid_disks).map(|slot| if is_active(slot) { 'A' } else { '.' }).collect()
}

impl<M: Member, C: Clock> Control<M, C> {
    /// [`crate::Array::status`].
    pub(crate) fn status(&self) -> Status {
        let slots = self.core.roster.slots.borrow();
        let others = self.core.roster.others.borrow();
        let members: Vec<MemberStatus> = slots
            .iter()
            .enumerate()
            .filter_map(|(slot, device)| Some(member_status(device.as_ref()?, Some(slot as u16))))
            .chain(
                self.core
                    .successors()
                    .iter()
                    .map(|(slot, device)| MemberStatus { state: "replacement", ..member_status(device, Some(slot.0)) }),
            )
            .chain(others.iter().map(|device| member_status(device, None)))
            .collect();
        let any = slots.iter().flatten().next().expect("a running array has a member");
        let superblock = any.superblock.borrow();
        let in_sync = members.iter().filter(|member| member.state == "in_sync").count() as u16;
        Status {
            uuid: uuid_text(&superblock.set_uuid),
            name: quoted(superblock.set_name.as_bytes()),
            metadata: superblock.version.to_string(),
            level: level_name(superblock.level),
            layout: self.core.geometry().layout_name(),
            chunk_bytes: superblock.chunk.bytes(),
            stripe_size_bytes: self.data.stripe_size_bytes(),
            array_bytes: self.core.geometry().array_bytes(),
            component_bytes: superblock.component.bytes(),
            created: superblock.created.seconds,
            updated: superblock.updated.seconds,
            raid_disks: self.core.geometry().slots(),
            in_sync,
            state: state(self, in_sync < self.core.geometry().slots()),
            broken: self.core.health.failed.borrow().clone(),
            read_only: self.core.info.read_only,
            events: self.metadata.record.borrow().events,
            in_agreement: self.core.health.agreed.get(),
            sync_action: self.sweeps.action(),
            sweep: self.sweep_status(),
            sweep_failure: self.sweeps.failure(),
            bitmap: self.metadata.intent().map(|intent| intent.status()),
            checksums: self.checksum_status(),
            cache: CacheStatus {
                waiting_bytes: self.data.coalescer.waiting_bytes(),
                ..self.data.cache.borrow().status()
            },
            kernel: self.core.info.kernel.name(),
            members,
            missing: (0..slots.len()).filter(|&slot| slots[slot].is_none()).map(|slot| slot as u16).collect(),
            left_out: self.origin.left_out.clone(),
            forced: self.origin.forced.clone(),
            warnings: self.origin.warnings.clone(),
        }
    }

    /// [`crate::Array::logical_block_bytes`].
    pub(crate) fn logical_block_bytes(&self) -> Option<u32> {
        let slots = self.core.roster.slots.borrow();
        let any = slots.iter().flatten().next().expect("a running array has a member");
        let bytes = any.superblock.borrow().logical_block_bytes;
        (bytes > 0).then_some(bytes)
    }

    /// [`crate::Array::preferred_bytes`].
    pub(crate) fn preferred_bytes(&self) -> u64 {
        self.core.personality().preferred_bytes()
    }
}

fn member_status<M: Member>(device: &Device<M>, slot: Option<u16>) -> MemberStatus {
    MemberStatus {
        name: device.name.clone(),
        slot,
        device_number: device.superblock.borrow().device_number.0,
        state: match device.state.get() {
            // A member is shown as in sync only once its superblock says so.
            DeviceState::InSync
                if device.in_recovery.get() && device.is_superblock_stale.get() && !mutant!("in-sync-too-soon") =>
            {
                "recovering"
            }
            DeviceState::InSync => "in_sync",
            DeviceState::Recovering { .. } => "recovering",
            DeviceState::Spare => "spare",
            DeviceState::Faulty => "faulty",
        },
        reads: device.counters.reads.get(),
        read_bytes: device.counters.read_bytes.get(),
        writes: device.counters.writes.get(),
        written_bytes: device.counters.written_bytes.get(),
        errors: device.counters.errors.get(),
        corrupt_blocks: device.corrupt_blocks(),
        healed_bytes: device.rewritten_bytes.get(),
        to_heal_bytes: device.unread.borrow().bytes(),
        corrected_sectors: device.superblock.borrow().corrected_reads,
        bad_bytes: device.bad.bytes(),
        disk_error: device.superblock.borrow().disk_errors.contains(&device.superblock.borrow().device_number),
        owed_bytes: device.owed.bytes(),
    }
}

fn state<M: Member, C: Clock>(array: &Control<M, C>, degraded: bool) -> String {
    let record = array.metadata.record.borrow();
    let is_clean = !record.dirty && record.resync == Resync::Clean;
    let word = match &*array.core.health.failed.borrow() {
        Some(_) => "broken",
        None if is_clean => "clean",
        None => "active",
    };
    format!("{word}{}", if degraded { ", degraded" } else { "" })
}
