//! Shows a running array: plain, serializable values. Their fields are a stable
//! interface (`docs/json.md`).
//!
//! It only reads. Facts: the superblocks, and the counters of the running array.

pub use crate::control::checksums::ChecksumStatus;
use crate::control::examined::ReshapeExamined;
use crate::control::forced::Forced;
pub use crate::control::names::{level_name, uuid_text};
use crate::control::offer::LeftOut;
use crate::control::state::{Control, OtherSide};
use crate::control::sweep::state::SweepStatus;
pub use crate::data::cache::CacheStatus;
use crate::device::{Device, DeviceState};
pub use crate::metadata::bitmap::BitmapStatus;
use crate::seam::clock::Clock;
use crate::seam::member::Member;
use format::superblock::{DeviceFlags, Resync};
use format::text::quoted;
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
    /// How many of these may fail, whichever they are, without loss of data.
    pub may_fail: u16,
    /// `clean` or `active` (marked dirty), with `, degraded` appended; `broken` when the array takes no
    /// writes.
    pub state: String,
    /// Why the array is broken.
    pub broken: Option<String>,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether that is so by request, and ends by request.
    pub made_read_only: bool,
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
    /// What brings copies and parity into agreement after an unclean stop, by mdadm's names: `resync`, `bitmap`, `ppl`,
    /// `journal`, our `log`, or `none` without redundancy.
    pub consistency_policy: &'static str,
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
    /// What may be lost or wrong: what `--force` accepted, a log that was replayed, a reshape under way.
    pub warnings: Vec<String>,
    /// The reshape in whose middle the array is read.
    pub reshape: Option<ReshapeExamined>,
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
    /// `in_sync`, `recovering`, `replacement` (of the member in its slot), `spare`, `journal` or `faulty`.
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
    /// Whether it is read only where no other member can serve (RAID-1).
    pub write_mostly: bool,
    /// Whether md is to fail its requests fast.
    pub failfast: bool,
    /// Whether a NAS kernel has set its flag "disk error" for this member.
    pub disk_error: bool,
    /// Bytes that the member has no room for: they are in memory alone until it has.
    pub owed_bytes: u64,
}

impl<M: Member, C: Clock> Control<M, C> {
    fn consistency_policy(&self) -> &'static str {
        match self.metadata.intent() {
            _ if !self.core.is_redundant() => "none",
            _ if self.metadata.has_stripe_log() => "log",
            _ if self.metadata.has_write_journal() => "journal",
            Some(_) => "bitmap",
            None if self.metadata.has_parity_log() => "ppl",
            None => "resync",
        }
    }
}

impl Status {
    /// Adds what only the other side of a reshape shows: its members, and what it warns of.
    fn with_other_side<M: Member, C: Clock>(mut self, other: Option<&OtherSide<M, C>>) -> Self {
        let Some(OtherSide { control, reshape, warnings }) = other else { return self };
        let there = control.status();
        for member in there.members {
            match self.members.iter_mut().find(|here| here.name == member.name) {
                Some(here) => {
                    here.reads += member.reads;
                    here.read_bytes += member.read_bytes;
                    here.errors += member.errors;
                }
                None => self.members.push(member),
            }
        }
        self.left_out.retain(|left_out| self.members.iter().all(|member| member.name != left_out.name));
        self.warnings.extend(there.warnings);
        self.warnings.dedup();
        self.warnings.extend_from_slice(warnings);
        let reshape = ReshapeExamined::of(reshape);
        let (side, at) = (if reshape.backwards { "from" } else { "up to" }, reshape.position_bytes);
        self.warnings.push(format!(
            "the array is in the middle of a reshape, which has come {side} byte {at}: it is read in both shapes, and \
             cannot be written"
        ));
        self.reshape = Some(reshape);
        self
    }
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
            may_fail: self.core.may_fail(),
            state: state(self, in_sync < self.core.geometry().slots()),
            broken: self.core.health.failed.borrow().clone(),
            read_only: self.core.is_read_only(),
            made_read_only: self.core.gate.is_closed_to_writes(),
            events: self.metadata.record().events,
            in_agreement: self.core.health.agreed.get(),
            consistency_policy: self.consistency_policy(),
            sync_action: self.sweeps.action(),
            sweep: self.sweep_status(),
            sweep_failure: self.sweeps.failure(),
            bitmap: self.metadata.intent().map(|intent| intent.status()),
            checksums: self.checksum_status(),
            cache: CacheStatus {
                waiting_bytes: self.data.coalescer.waiting_bytes(),
                write_back: self.data.coalescer.write_back(),
                ..self.data.cache.borrow().status()
            },
            kernel: self.core.info.kernel.name(),
            members,
            missing: (0..slots.len()).filter(|&slot| slots[slot].is_none()).map(|slot| slot as u16).collect(),
            left_out: self.origin.left_out.clone(),
            forced: self.origin.forced.clone(),
            warnings: self.origin.warnings.clone(),
            reshape: None,
        }
        .with_other_side(self.other_side.get())
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
    let totals = device.activity.totals();
    let flags = device.superblock.borrow().device_flags;
    MemberStatus {
        name: device.name.clone(),
        slot,
        device_number: device.superblock.borrow().device_number.0,
        state: match device.state.get() {
            // A member is shown as in sync only once its superblock says so.
            DeviceState::InSync
                if device.state.in_recovery() && device.is_superblock_stale() && !mutant!("in-sync-too-soon") =>
            {
                "recovering"
            }
            DeviceState::InSync => "in_sync",
            DeviceState::Recovering { .. } => "recovering",
            DeviceState::Spare => "spare",
            DeviceState::Journal => "journal",
            DeviceState::Faulty => "faulty",
        },
        reads: totals.reads,
        read_bytes: totals.read_bytes,
        writes: totals.writes,
        written_bytes: totals.written_bytes,
        errors: totals.errors,
        corrupt_blocks: device.corrupt_blocks(),
        healed_bytes: totals.rewritten_bytes,
        to_heal_bytes: device.faults.queued_bytes(),
        corrected_sectors: device.superblock.borrow().corrected_reads,
        bad_bytes: device.bad.bytes(),
        write_mostly: flags.contains(DeviceFlags::WRITE_MOSTLY),
        failfast: flags.contains(DeviceFlags::FAIL_FAST),
        disk_error: device.superblock.borrow().disk_errors.contains(&device.superblock.borrow().device_number),
        owed_bytes: device.owed.bytes(),
    }
}

fn state<M: Member, C: Clock>(array: &Control<M, C>, degraded: bool) -> String {
    let record = array.metadata.record();
    let is_clean = !record.dirty && record.resync == Resync::Clean;
    let word = match &*array.core.health.failed.borrow() {
        Some(_) => "broken",
        None if is_clean => "clean",
        None => "active",
    };
    format!("{word}{}", if degraded { ", degraded" } else { "" })
}
