//! An array gets a write journal: what must hold before, and what the new device gets before any superblock names it.
//!
//! [`crate::metadata::journal`] changes the superblocks.
//!
//! Facts: mdadm's `Create.c` and `super1.c` for the placement; `r5l_load_log` in `drivers/md/raid5-cache.c`.

use crate::base::buffer::Pool;
use crate::control::create::erase_superblocks;
use crate::control::joining::{Overwrite, write_empty_log};
use crate::control::state::Control;
use crate::core::metadata_lock::MetadataGuard;
use crate::device::{Device, DeviceState, place_bytes};
use crate::metadata::journal::log::rows_bytes;
use crate::seam::bytes::write_bytes;
use crate::seam::clock::Clock;
use crate::seam::error::Refusal;
use crate::seam::member::{Candidate, Member, MemberError};
use format::geometry::{Geometry, Parity};
use format::journal::{BLOCK_BYTES, MetaBlock};
use format::superblock::{Superblock, Version};
use format::units::Sectors;
use std::rc::Rc;

/// The number of the first meta block. No older block of this array's may follow it, should the device have been its
/// journal before, and the kernel takes a random number of 32 bits.
fn first_sequence(device_uuid: [u8; 16]) -> u64 {
    let [a, b, c, d, ..] = device_uuid;
    mutant!("journal-begins-at-one" => 1, else u32::from_le_bytes([a, b, c, d]).into())
}

impl<M: Member, C: Clock> Control<M, C> {
    /// [`crate::Array::add_journal`].
    pub(crate) async fn add_journal(
        &self,
        candidate: Candidate<M>,
        device_uuid: [u8; 16],
        overwrite: bool,
    ) -> Result<(), Refusal> {
        drop(self.enter_to_join(&candidate.name)?);
        self.check_unused(&candidate, Overwrite::all(overwrite)).await?;
        let change = self.metadata.change_without_writes().await?;
        let parity = self.check_takes_journal()?;
        let sequence = first_sequence(device_uuid);
        let device = self.prepare_journal(&change, candidate, device_uuid, parity).await?;
        self.core.watch(&device.name, &device.member);
        self.metadata.add_journal(&change, device, sequence).await
    }

    /// Checks that md and this engine can keep a journal of the array.
    fn check_takes_journal(&self) -> Result<&Parity, Refusal> {
        let refuse = |reason: &str, advice: &str| Err(Refusal::new(reason).advice(advice));
        let Geometry::Parity(parity) = self.core.geometry() else {
            return refuse("only levels 4, 5 and 6 have a write journal", "leave it out");
        };
        let version = self.any_superblock().version;
        if !matches!(version, Version::V1_1 | Version::V1_2) {
            return refuse(&format!("with metadata {version} md does not take a write journal"), "leave it out");
        }
        if self.metadata.has_write_journal() {
            return refuse("the array has a write journal", "give it up first: --write-journal none");
        }
        let has_log = self.metadata.has_parity_log() || self.metadata.has_stripe_log();
        if has_log || self.metadata.intent().is_some() {
            return refuse(
                "md does not take a write journal beside a bitmap or a log",
                "serve it, and `mdspace set consistency-policy=resync`",
            );
        }
        if !self.core.health.agreed.get() || !self.sweeps.is_idle() {
            return refuse("a write journal relies on parity, which is not built yet", "serve it until its sweep ends");
        }
        if self.core.info.block_bytes < BLOCK_BYTES as u64 {
            let reason =
                format!("the array's blocks have {} bytes, those of a journal 4096", self.core.info.block_bytes);
            return refuse(&reason, "`mdspace update --write-journal` gives it to an array that is not served");
        }
        Ok(parity)
    }

    /// Writes everything but the superblock to the new journal.
    async fn prepare_journal(
        &self,
        guard: &MetadataGuard<'_>,
        candidate: Candidate<M>,
        device_uuid: [u8; 16],
        parity: &Parity,
    ) -> Result<Rc<Device<M>>, Refusal> {
        let Candidate { name, member } = candidate;
        self.check_absent(&name)?;
        let bytes = member.limits().bytes;
        let superblock = self.any_superblock().for_journal(self.free_number(&name)?, device_uuid, bytes);
        let superblock = superblock.map_err(|defect| Refusal::defect(&name, defect).advice("give a longer device"))?;
        rows_bytes(&superblock, parity).map_err(|refusal| refusal.of(&name))?;
        self.check_blocks_of_newcomer(&name, &member, &superblock)?;
        let sequence = first_sequence(device_uuid);
        let written = self.within_timeout(&name, begin(&name, &member, &superblock, sequence, &self.core.pool)).await;
        written.map_err(|refusal| {
            refusal
                .after("it is no journal; its old superblocks may be erased")
                .or_advice("give another one, or this one again with --force")
        })?;
        self.metadata.eject_absent(guard).await.map_err(|error| error.refusal().of(&name))?;
        let place = vec![0; place_bytes(superblock.super_at(), member.limits().bytes)].into();
        let (context, state) = (self.core.context.clone(), DeviceState::Journal);
        Ok(Rc::new(Device::new(name, member, superblock, place, state, Vec::new(), context)))
    }
}

async fn begin<M: Member>(
    name: &str,
    member: &M,
    superblock: &Superblock,
    sequence: u64,
    pool: &Pool,
) -> Result<(), Refusal> {
    erase_superblocks(name, member, pool).await?;
    let empty = MetaBlock::empty(sequence, Sectors(0)).encode(&superblock.set_uuid);
    let write = async {
        write_empty_log(member, pool, superblock).await?;
        write_bytes(member, pool, superblock.data_at(), &empty).await?;
        member.flush().await
    };
    write.await.map_err(|error: MemberError| Refusal::member_error(name, &error))
}
