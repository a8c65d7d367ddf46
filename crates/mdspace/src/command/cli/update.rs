//! `update`: changes the identity of an array that is not served, as `mdadm --assemble --update=` does: uuid, name, home
//! host, whether its members have bad-block logs, the record of its logical block, a mark for a resync, the number of its
//! device, and the byte order of superblocks 0.90. `metadata.rs` and `journal.rs` have the other changes.
//!
//! All members are locked, and the array is assembled for a look, before the first byte is written. A change of the uuid
//! that was interrupted leaves two uuids; repeating the command with the same new one completes it.

use crate::command::cli::arguments::{NewUuid, UpdateArguments};
use crate::command::cli::{journal, metadata};
use crate::command::text::failure::Failure;
use crate::command::text::output::{print, print_json, tell};
use crate::machine::{Arena, Array, Machine, Purpose, random, without_answered_writes};
use engine::status::uuid_text;
use engine::update::{Change, Update, check_blocks_without_record, check_byte_order, plan};
use engine::{AssembleOptions, Candidate, Member as _, Offer, Refusal};
use format::superblock::{SetName, Superblock};
use format::text::quoted;
use format::units::SECTOR_BYTES;
use io::AnyMember;
use parity::Kernel;
use serde_json::{Value, json};
use std::path::PathBuf;

/// A locked member, and what will be written to it.
struct Planned {
    candidate: Candidate<AnyMember>,
    update: Update,
}

/// Runs `mdspace update`.
pub(crate) fn run(arguments: &UpdateArguments, kernel: Option<&'static Kernel>) -> Result<(), Failure> {
    let machine = Machine::start(kernel, Arena::Small)?.over(arguments.overlay.directory())?;
    machine.run(async {
        if let Some(new) = &arguments.write_journal {
            return journal::change(&machine, arguments, new).await;
        }
        if arguments.metadata.is_some() {
            return metadata::change(&machine, arguments).await;
        }
        let set_uuid = match arguments.uuid {
            Some(NewUuid::Random) => Some(random()?),
            Some(NewUuid::Given(uuid)) => Some(uuid.0),
            None => None,
        };
        let paths = machine.members_to_change(&arguments.members, set_uuid).await?;
        let candidates = machine.open_all(&paths, Purpose::Write)?;
        let mut planned = Vec::new();
        let mut change = Change {
            set_uuid,
            set_name: None,
            no_bad_block_log: arguments.no_bad_block_log,
            clear_logical_block: arguments.clear_logical_block_size,
            resync: arguments.resync,
            preferred_minor: arguments.preferred_minor,
            byte_order: arguments.byteorder,
        };
        for candidate in candidates {
            let Candidate { name, member } = &candidate;
            if change.set_name.is_none() && !change.byte_order {
                let first = plan(name, member, &machine.pool, &Change::default()).await?;
                change.set_name = new_name(arguments, &first.before).map_err(|refusal| refusal.of(name.clone()))?;
            }
            let update = plan(name, member, &machine.pool, &change).await?;
            planned.push(Planned { candidate, update });
        }
        if change.clear_logical_block {
            let members = planned.iter().map(|Planned { candidate: Candidate { name, member }, update }| {
                (&**name, device_block_bytes(member), update)
            });
            check_blocks_without_record(members)?;
        }
        if change.byte_order {
            check_byte_order(planned.iter().map(|planned| &planned.update))?;
        }
        match is_interrupted(&planned, set_uuid) {
            true => check_alike(&planned)?,
            false => machine.check_array(&paths, &change).await?,
        }
        for Planned { candidate: Candidate { name, member }, update } in &planned {
            let written = update.write(name, member, &machine.pool).await;
            written.map_err(|refusal| refusal.or_advice(again(set_uuid)))?;
        }
        if arguments.json { print_json(&report(&planned)) } else { print(&text(&planned)) }
    })
}

/// Bytes in a block of the member's device. An image file becomes a loop device with the usual blocks, whatever its file
/// system demands of direct transfers.
fn device_block_bytes(member: &AnyMember) -> u32 {
    match member {
        AnyMember::File(file) if !file.is_block_device() => SECTOR_BYTES as u32,
        member => member.limits().logical_block_bytes,
    }
}

/// The line that completes an interrupted change.
fn again(set_uuid: Option<[u8; 16]>) -> String {
    let uuid = set_uuid.map(|uuid| format!(" with --uuid {}", uuid_text(&uuid))).unwrap_or_default();
    format!("repeat the command{uuid} when the member is well")
}

/// The array's new name; `None` if it stays.
fn new_name(arguments: &UpdateArguments, before: &Superblock) -> Result<Option<SetName>, Refusal> {
    if arguments.name.is_none() && arguments.homehost.is_none() {
        return Ok(None);
    }
    let old = std::str::from_utf8(before.set_name.as_bytes());
    let old =
        old.map_err(|_| Refusal::new("is not UTF-8; give a whole new one with --name").field("superblock.set_name"));
    let name = match &arguments.name {
        Some(name) => name,
        None => old?,
    };
    let name = match &arguments.homehost {
        Some(host) => format!("{host}:{}", name.split_once(':').map_or(name, |(_, name)| name)),
        None => name.to_owned(),
    };
    SetName::new(&name).map(Some).map_err(|defect| Refusal::new(defect.reason).field(defect.field))
}

/// Whether some members have the new uuid already, and others not.
fn is_interrupted(planned: &[Planned], set_uuid: Option<[u8; 16]>) -> bool {
    let has_new = |planned: &Planned| set_uuid == Some(planned.update.before.set_uuid);
    planned.iter().any(has_new) && !planned.iter().all(has_new)
}

/// Checks that the members differ in nothing but uuid and name.
fn check_alike(planned: &[Planned]) -> Result<(), Failure> {
    let shape = |planned: &Planned| {
        let Superblock { version, created, level, layout, chunk, raid_disks, component, events, .. } =
            planned.update.before;
        (version, created, level, layout, chunk, raid_disks, component, events)
    };
    for (index, one) in planned.iter().enumerate() {
        let number = one.update.before.device_number;
        let is_twice = planned[..index].iter().any(|other| other.update.before.device_number == number);
        if is_twice || shape(one) != shape(&planned[0]) {
            let name = &one.candidate.name;
            return Err(Failure::refused(format!("{name}: superblock.set_uuid: belongs to another array")));
        }
    }
    Ok(())
}

impl Machine {
    /// Checks that the members are current ones of one array that could be served, and lack nothing that was answered.
    pub(super) async fn check_array(&self, paths: &[PathBuf], change: &Change) -> Result<(), Failure> {
        let offer = Offer::of(self.open_all(paths, Purpose::Look)?);
        let advice = "serve the array once, which writes them, and repeat the command";
        let offer = without_answered_writes(offer, advice, Some("serve the members first, which writes them"));
        // A bitmap of the other byte order is left out, and needed for reads by no array.
        let options = AssembleOptions { read_only: change.byte_order, ..AssembleOptions::default() };
        let array = Array::assemble_offer(offer, options, self.pool.clone(), self.clock.clone());
        let status = array.await?.status();
        if let Some(left_out) = status.left_out.first() {
            return Err(Failure::refused(format!("{}: not used: {}", left_out.name, left_out.reason))
                .advise("give the current members alone"));
        }
        if change.set_uuid.is_some() && status.checksums.is_some() {
            return Err(Failure::refused("--uuid: the members' checksums are bound to the array's uuid"));
        }
        let missing = status.missing.len();
        if missing > 0 && change.resync {
            return Err(Failure::refused(
                "--resync: members are missing, and what they held could not be reconstructed",
            )
            .advise("give all members"));
        }
        if missing > 0 {
            tell!("note: {missing} members are missing, and keep what their superblocks say");
        }
        Ok(())
    }
}

/// The array's uuid and name.
fn identity(superblock: &Superblock) -> (String, String) {
    (uuid_text(&superblock.set_uuid), quoted(superblock.set_name.as_bytes()))
}

/// The member that stands for all. After an interruption the first may be as it is to be.
fn most_changed(planned: &[Planned]) -> &Planned {
    planned.iter().find(|planned| planned.update.before.other_byte_order).unwrap_or(&planned[0])
}

fn report(planned: &[Planned]) -> Value {
    let Update { before, after, .. } = &most_changed(planned).update;
    let named = |superblock: &Superblock| {
        let (uuid, name) = identity(superblock);
        json!({"uuid": uuid, "name": name, "bad_block_log": superblock.bad_blocks.is_some(),
               "logical_block_bytes": superblock.logical_block_bytes, "other_byte_order": superblock.other_byte_order})
    };
    let members: Vec<&str> = planned.iter().map(|planned| &*planned.candidate.name).collect();
    json!({"members": members, "before": named(before), "after": named(after)})
}

fn text(planned: &[Planned]) -> String {
    let Update { before, after, .. } = &most_changed(planned).update;
    let ((old_uuid, old_name), (uuid, name)) = (identity(before), identity(after));
    let mut text = format!("array \"{name}\" {uuid}: {} members changed\n", planned.len());
    if (&old_uuid, &old_name) != (&uuid, &name) {
        text += &format!("before: \"{old_name}\" {old_uuid}\n");
        text += "next: `mdspace examine --scan MEMBER...` prints its new line for mdadm.conf\n";
    }
    if before.bad_blocks.is_some() && after.bad_blocks.is_none() {
        text += "bad-block logs: removed\n";
    }
    if before.resync != after.resync {
        text += "next: `mdspace serve MEMBER...` resyncs it\n";
    }
    if before.other_byte_order != after.other_byte_order {
        text += "superblocks: in this machine's byte order\n";
    }
    if before.bitmap.is_some() && after.bitmap.is_none() {
        text += "bitmap: removed; `mdspace set bitmap=internal` makes a new one while the array is served\n";
    }
    if before.logical_block_bytes != after.logical_block_bytes {
        text += &format!("logical block of {} bytes: no longer recorded\n", before.logical_block_bytes);
    }
    text
}
