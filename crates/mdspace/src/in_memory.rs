//! Arrays whose superblocks are in memory alone: their shape is known from somewhere else than md's metadata.
//!
//! The engine is shown each member as one of 1.2 metadata: [`HEAD_BYTES`] bytes in memory with a superblock of that
//! shape, and behind them the member's data. So it assembles and reads the array as any other, and nothing on a member
//! can be in the way. Nothing is ever written to a member: the array is assembled read-only.

use crate::machine::{Array, Consent, Machine, Purpose};
use engine::{BitmapPolicy, Candidate, Member, Offer, Refusal};
use format::geometry::Level;
use format::placement::Placement;
use format::superblock::{Blueprint, DeviceRole, Resync, SetName, Superblock, Timestamp, Version};
use format::units::{DeviceNumber, MemberByte, SECTOR_BYTES, Sectors, Slot};
use io::{AnyMember, Overlay};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Bytes in memory before a member's data.
const HEAD_BYTES: u64 = 1 << 20;

/// The place of the superblock in them.
const SUPERBLOCK_AT: u64 = 4096;

/// The time of creation in the superblocks: later than any. Where a member has a superblock of its own at its end, the
/// later created one counts.
const CREATED: Timestamp = Timestamp { seconds: (1 << 40) - 1, micros: 0 };

/// The shape of an array.
pub(crate) struct Shape {
    pub(crate) level: Level,
    /// md's number.
    pub(crate) layout: u32,
    /// Whether the layout of a RAID-0 makes a difference.
    pub(crate) raid0_layout: bool,
    /// 0 for a level without chunks.
    pub(crate) chunk_bytes: u64,
    pub(crate) slots: u16,
}

/// A member in its slot.
pub(crate) struct Placed {
    pub(crate) slot: u16,
    pub(crate) name: String,
    /// Its data, from the first byte on.
    pub(crate) data: AnyMember,
    /// How much of that the array uses.
    pub(crate) data_bytes: u64,
    /// What is different for each member, and the same each time.
    pub(crate) identity: [u8; 16],
}

/// Assembles the array of these members, for reading; `purpose` is never to write.
pub(crate) async fn assemble(
    machine: &Machine,
    shape: &Shape,
    uuid: [u8; 16],
    placed: Vec<Placed>,
    purpose: Purpose,
) -> Result<Array, Refusal> {
    let mut roles = vec![DeviceRole::Faulty; shape.slots.into()];
    for Placed { slot, .. } in &placed {
        roles[usize::from(*slot)] = DeviceRole::Active(Slot(*slot));
    }
    let refused = |defect: format::Defect| Refusal::new(defect.reason);
    let blueprint = Blueprint {
        version: Version::V1_2,
        set_uuid: uuid,
        set_name: SetName::new("").map_err(refused)?,
        created: CREATED,
        level: shape.level,
        layout: shape.layout,
        raid0_layout: shape.raid0_layout,
        chunk: Sectors(shape.chunk_bytes / SECTOR_BYTES),
        raid_disks: shape.slots,
        roles,
        resync: Resync::Clean,
        logical_block_bytes: 0,
    };
    let mut members = Vec::new();
    for Placed { slot, name, data, data_bytes, identity } in placed {
        let placement = Placement {
            super_offset: Sectors(SUPERBLOCK_AT / SECTOR_BYTES),
            data_offset: Sectors(HEAD_BYTES / SECTOR_BYTES),
            data_size: Sectors(data_bytes / SECTOR_BYTES),
            component: Sectors(if shape.level.has_component() { data_bytes / SECTOR_BYTES } else { 0 }),
            bitmap: None,
            bad_blocks: None,
            ppl: None,
        };
        let number = DeviceNumber(slot);
        let superblock = Superblock::new(&blueprint, &placement, number, identity, HEAD_BYTES + data_bytes);
        let member = behind(data, &superblock.map_err(refused)?, &name, machine).await?;
        members.push(Candidate { name, member });
    }
    let offer = Offer::of(members);
    machine.assemble_offer(offer, Consent::default(), purpose, BitmapPolicy::default()).await
}

/// `data` behind a superblock in memory.
async fn behind(data: AnyMember, superblock: &Superblock, name: &str, machine: &Machine) -> Result<AnyMember, Refusal> {
    let overlay = Overlay::behind(HEAD_BYTES, data);
    let mut block = superblock.encode();
    block.resize(block.len().next_multiple_of(SUPERBLOCK_AT as usize), 0);
    let written = overlay.write(MemberByte(SUPERBLOCK_AT), machine.pool.copy_of(&block)).await;
    written.map_err(|error| Refusal::member_error(name, &error))?;
    Ok(overlay.into())
}

/// A uuid that is the same for the same thing.
pub(crate) fn digest(what: &impl Hash) -> [u8; 16] {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, what).hash(&mut hasher);
        hasher.finish()
    };
    (u128::from(half(0)) << 64 | u128::from(half(1))).to_le_bytes()
}
