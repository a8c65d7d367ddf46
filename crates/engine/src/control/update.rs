//! Changes of what superblocks say about a stopped array: its uuid, its name, whether members have bad-block logs,
//! its logical block, the number of its device, and that it is to be resynced.
//!
//! Data, events and roles stay as they are. The caller has locked the members, and knows that they belong together.
//! Facts: mdadm(8), `--update`; mdadm's `super1.c` (`update_super1`): a bitmap on the members has the uuid, too. Linux
//! before 6.19 refuses a superblock with a logical block, as that field was padding; it takes the largest block of the
//! members (`md.c`: `super_1_load`, `mddev_stack_rdev_limits`). mdadm's `--update=byteorder` leaves a bitmap out, as its
//! uuid is of the other order (`super0.c`: `load_super0`).

use crate::base::buffer::Pool;
use crate::control::inspect::{find_superblock, read_bad_blocks};
use crate::seam::bytes::{read_bytes, write_bytes};
use crate::seam::error::Refusal;
use crate::seam::member::Member;
use format::bitmap::{BitmapSuper, SUPER_BYTES};
use format::superblock::{Resync, SetName, Superblock, Version};
use format::units::{MemberByte, Sectors};

/// What to change. `None` and false leave things as they are.
#[derive(Debug, Clone, Copy, Default)]
pub struct Change {
    /// The uuid of the array.
    pub set_uuid: Option<[u8; 16]>,
    /// The name of the array.
    pub set_name: Option<SetName>,
    /// Remove the bad-block logs, which must be empty.
    pub no_bad_block_log: bool,
    /// Remove the record of the logical block; [`check_blocks_without_record`] says whether that is harmless.
    pub clear_logical_block: bool,
    /// Mark everything for a resync, as after an unclean stop.
    pub resync: bool,
    /// The number of the array's device, which only metadata 0.90 has.
    pub preferred_minor: Option<u32>,
    /// Write superblocks 0.90 of the other byte order in this one, without their bitmap.
    pub byte_order: bool,
}

/// What will be written to a member.
#[derive(Debug)]
pub struct Update {
    /// The superblock before.
    pub before: Superblock,
    /// The superblock after.
    pub after: Superblock,
    /// The superblock of the bitmap, and its place, if it changes.
    bitmap: Option<(MemberByte, BitmapSuper)>,
}

/// Checks the change of one member. Nothing is written.
///
/// # Errors
/// When the member has no valid superblock, or one for which the change is not possible.
pub async fn plan<M: Member>(name: &str, member: &M, pool: &Pool, change: &Change) -> Result<Update, Refusal> {
    let before = find_superblock(name, member, pool).await?.superblock;
    let refuse = |field: &'static str, reason: &str| Err(Refusal::new(reason.to_owned()).of(name).field(field));
    if before.clustered || before.has_unknown_padding() {
        return refuse("superblock", "a cluster or a newer kernel has made it, and it stays as it is");
    }
    if before.other_byte_order && !change.byte_order {
        let refusal = Refusal::new("the other byte order: a big-endian machine made the array");
        return Err(refusal.of(name).field("superblock.md_magic").advice("`mdspace update --byteorder` first"));
    }
    if change.byte_order && before.version != Version::V0_90 {
        return refuse("superblock.md_magic", "only version 0.90 has a byte order");
    }
    if change.byte_order && before.reshape.is_some() {
        return refuse("superblock.reshape_position", "a reshape is under way: let a machine of that order finish it");
    }
    if change.set_name.is_some() && before.version == Version::V0_90 {
        return refuse("superblock.set_name", "version 0.90 has no name");
    }
    if change.set_uuid.is_some() && (before.journal || before.ppl.is_some()) {
        return refuse("superblock.set_uuid", "the write journal, or the partial parity log, is bound to it");
    }
    if change.no_bad_block_log && !read_bad_blocks(name, member, &before, pool).await?.is_empty() {
        return refuse("bad-block log", "it names bad blocks, which would be read as data without it");
    }
    if change.preferred_minor.is_some() && before.version != Version::V0_90 {
        return refuse("superblock.md_minor", "only version 0.90 has it");
    }
    if change.resync {
        check_resync(&before).map_err(|refusal| refusal.of(name))?;
    }
    let mut after = before.clone();
    after.set_uuid = change.set_uuid.unwrap_or(before.set_uuid);
    after.set_name = change.set_name.unwrap_or(before.set_name);
    after.bad_blocks = before.bad_blocks.filter(|_| !change.no_bad_block_log);
    if change.clear_logical_block {
        after.logical_block_bytes = 0;
    }
    if change.resync {
        after.resync = Resync::From(Sectors(0));
    }
    if let Some(minor) = change.preferred_minor {
        after = after.with_preferred_minor(minor);
    }
    if before.other_byte_order {
        (after.other_byte_order, after.bitmap) = (false, None);
    }
    let bitmap = match after.bitmap_at().filter(|_| change.set_uuid.is_some()) {
        Some(at) => Some((at, with_uuid(name, member, pool, at, &after).await?)),
        None => None,
    };
    Ok(Update { before, after, bitmap })
}

/// Checks that the mark for a resync would lead to one of everything.
fn check_resync(before: &Superblock) -> Result<(), Refusal> {
    if !before.level.is_redundant() {
        return Err(Refusal::new("a level without redundancy has nothing to resync").field("superblock.level"));
    }
    if before.bitmap.is_some() || before.bitmap_at().is_some() {
        let refusal = Refusal::new("the array has a bitmap, and only what that names would be resynced");
        return Err(refusal.field("superblock.bitmap_offset").advice("`mdspace scrub --repair` compares everything"));
    }
    if before.journal || before.ppl.is_some() {
        return Err(Refusal::new("the array has a log, and is resynced by that alone").field("superblock.feature_map"));
    }
    Ok(())
}

/// Checks that the array's blocks stay as they are where its superblocks do not record them any more. Of each member
/// the name and the bytes in a block of its device are given.
///
/// # Errors
/// When the devices' blocks make others than those that a superblock records.
pub fn check_blocks_without_record<'a>(
    members: impl Iterator<Item = (&'a str, u32, &'a Update)> + Clone,
) -> Result<(), Refusal> {
    let largest = members.clone().map(|(_, block_bytes, _)| block_bytes).max().unwrap_or(0);
    for (name, _, Update { before, .. }) in members {
        let recorded = before.logical_block_bytes;
        if recorded != 0 && recorded != largest {
            let reason =
                format!("the array's blocks have {recorded} bytes; without the record they would have {largest}");
            return Err(Refusal::new(reason).of(name).field("superblock.logical_block_size").advice(SAME_BLOCKS));
        }
    }
    Ok(())
}

/// What to do where the members' blocks are not the array's.
const SAME_BLOCKS: &str = "use a kernel from 6.19 on, or give the members on devices whose blocks are the array's";

/// The superblock of the bitmap at `at`, with the array's new uuid.
async fn with_uuid<M: Member>(
    name: &str,
    member: &M,
    pool: &Pool,
    at: MemberByte,
    superblock: &Superblock,
) -> Result<BitmapSuper, Refusal> {
    let room = superblock.bitmap_room(member.limits().bytes).unwrap_or(0);
    let head = read_bytes(member, pool, at, SUPER_BYTES as u64).await;
    let head = head.map_err(|reason| Refusal::new(reason).of(name).field("bitmap"))?;
    let mut header = BitmapSuper::decode(&head, room).map_err(|defect| Refusal::defect(name, defect))?;
    header.uuid = superblock.set_uuid;
    Ok(header)
}

/// Checks that a superblock of the other byte order is among the members'.
///
/// # Errors
/// When all are of this machine's order.
pub fn check_byte_order<'a>(mut members: impl Iterator<Item = &'a Update>) -> Result<(), Refusal> {
    if members.any(|update| update.before.other_byte_order) {
        return Ok(());
    }
    Err(Refusal::new("the superblocks are of this machine's byte order already").field("superblock.md_magic"))
}

impl Update {
    /// Writes it, to stable storage. Repeating it is harmless.
    ///
    /// # Errors
    /// When the member fails.
    pub async fn write<M: Member>(&self, name: &str, member: &M, pool: &Pool) -> Result<(), Refusal> {
        let failed = |error| Refusal::member_error(name, &error).after("some members may be changed, and others not");
        if let Some((at, bitmap)) = &self.bitmap {
            write_bytes(member, pool, *at, &bitmap.encode()).await.map_err(failed)?;
        }
        write_bytes(member, pool, self.after.super_at(), &self.after.encode()).await.map_err(failed)?;
        member.flush().await.map_err(failed)
    }
}
