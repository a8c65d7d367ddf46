//! Metadata 0.90 of a stopped array becomes 1.0, with the data where it is.
//!
//! The order on disk: the new superblocks are on stable storage on all members before the first old one is erased. Of a
//! member with both, the new one counts, as it was created later. A conversion that was interrupted leaves some members
//! with the old one alone: an assembly takes these as converted, if no member of the new kind is behind them. So an array
//! assembles at each point, and is one array. The caller has locked the members, and knows that they belong together.
//!
//! Facts: mdadm(8), `--update=metadata`; [`Superblock::as_1_0`].

use crate::base::buffer::Pool;
use crate::control::election::Offered;
use crate::control::inspect::find_superblock;
use crate::seam::bytes::{read_bytes, write_bytes};
use crate::seam::error::Refusal;
use crate::seam::member::Member;
use format::superblock::{DeviceRole, PLACE_BYTES, Superblock, Version, decode};
use format::units::MemberByte;

/// What will be written to a member.
#[derive(Debug)]
pub struct Conversion {
    /// The superblock before.
    pub before: Superblock,
    /// The superblock after.
    pub after: Superblock,
    /// The place of the superblock 0.90 that is to be erased.
    old_at: Option<MemberByte>,
}

impl Conversion {
    /// Whether there is anything to write.
    fn is_due(&self) -> bool {
        self.before.version != Version::V1_0 || self.old_at.is_some()
    }
}

/// Checks the conversion of one member. `overwrite` accepts that bytes in the place of its new superblock are lost.
/// Nothing is written.
///
/// # Errors
/// When the member has no valid superblock, or one that cannot become one of 1.0.
pub async fn plan<M: Member>(
    name: &str,
    member: &M,
    pool: &Pool,
    device_uuid: [u8; 16],
    overwrite: bool,
) -> Result<Conversion, Refusal> {
    let before = find_superblock(name, member, pool).await?.superblock;
    if before.version == Version::V1_0 {
        let old_at = find_old(name, member, pool, &before).await?;
        return Ok(Conversion { after: before.clone(), before, old_at });
    }
    let after = before.as_1_0(device_uuid, member.limits().bytes);
    let after = after.map_err(|defect| {
        let advice = advice_for(&before);
        Refusal::defect(name, defect).advice(advice)
    })?;
    if !overwrite {
        check_free(name, member, pool, &after).await?;
    }
    let old_at = Some(before.super_at());
    Ok(Conversion { before, after, old_at })
}

/// What makes a conversion of `before` possible.
fn advice_for(before: &Superblock) -> &'static str {
    match before {
        Superblock { version: Version::V1_1 | Version::V1_2, .. } => "its version stays as it is",
        Superblock { other_byte_order: true, .. } => "`mdspace update --byteorder` first",
        Superblock { bitmap: Some(_), .. } => "serve the array and remove it first: `mdspace set bitmap=none`",
        Superblock { reshape: Some(_), .. } => "let md finish it first",
        _ => "serve the array until it is clean, and stop it, first",
    }
}

/// The place of a superblock 0.90 that `later` has taken over from.
async fn find_old<M: Member>(
    name: &str,
    member: &M,
    pool: &Pool,
    later: &Superblock,
) -> Result<Option<MemberByte>, Refusal> {
    let member_bytes = member.limits().bytes;
    let Some(at) = Version::V0_90.place(member_bytes) else { return Ok(None) };
    let place = read_bytes(member, pool, at, PLACE_BYTES).await;
    let place = place.map_err(|reason| Refusal::new(reason).of(name).field("superblock"))?;
    let old = decode(Version::V0_90, at, &place, member_bytes).ok().flatten();
    Ok(old.filter(|old| old.is_left_by(later)).map(|_| at))
}

/// Checks that the place of the new superblock holds nothing, or an earlier attempt at it.
async fn check_free<M: Member>(name: &str, member: &M, pool: &Pool, after: &Superblock) -> Result<(), Refusal> {
    let at = after.super_at();
    let refuse = |reason: String| Refusal::new(reason).of(name).field("superblock.super_offset");
    let place = read_bytes(member, pool, at, PLACE_BYTES).await.map_err(refuse)?;
    let is_own = |found: &Superblock| found.set_uuid == after.set_uuid;
    let earlier = decode(Version::V1_0, at, &place, member.limits().bytes).ok().flatten();
    if place.iter().all(|byte| *byte == 0) || earlier.as_ref().is_some_and(is_own) {
        return Ok(());
    }
    let reason = format!("the place of the new superblock, byte {}, is not empty", at.0);
    let advice = "look at what ends the member, such as the copy of a partition table; --force overwrites it";
    Err(refuse(reason).advice(advice))
}

/// Checks that the members are of one age, and that something is to be done.
///
/// # Errors
/// When one is behind, or all have been converted.
pub fn check_together<'a>(members: impl Iterator<Item = (&'a str, &'a Conversion)> + Clone) -> Result<(), Refusal> {
    if !members.clone().any(|(_, conversion)| conversion.is_due()) {
        return Err(Refusal::new("the array has metadata 1.0 already").field("superblock.major_version"));
    }
    let is_in_slot = |conversion: &Conversion| matches!(conversion.before.own_role(), DeviceRole::Active(_));
    let events = |(_, conversion): (&str, &Conversion)| conversion.before.events;
    let in_slots = members.filter(|(_, conversion)| is_in_slot(conversion));
    let newest = in_slots.clone().map(events).max();
    for (name, conversion) in in_slots {
        if Some(conversion.before.events) != newest {
            let refusal = Refusal::new("one event behind the others").of(name).field("superblock.events");
            return Err(refusal.advice("serve the array, write to it and stop it first"));
        }
    }
    Ok(())
}

/// Converts the members, to stable storage. Repeating it is harmless.
///
/// # Errors
/// When a member fails: the array can be used, and the conversion repeated.
pub async fn convert<M: Member>(members: &[(&str, &M, &Conversion)], pool: &Pool) -> Result<(), Refusal> {
    for &(name, member, Conversion { before, after, .. }) in members {
        if before.version != Version::V1_0 {
            put(name, member, pool, after.super_at(), &after.encode()).await?;
        }
    }
    flush(members).await?;
    for &(name, member, conversion) in members {
        if let Some(at) = conversion.old_at {
            put(name, member, pool, at, &[0; PLACE_BYTES as usize]).await?;
        }
    }
    flush(members).await
}

async fn put<M: Member>(name: &str, member: &M, pool: &Pool, at: MemberByte, bytes: &[u8]) -> Result<(), Refusal> {
    let failed = |error| Refusal::member_error(name, &error).after(CHANGED);
    write_bytes(member, pool, at, bytes).await.map_err(failed)
}

async fn flush<M: Member>(members: &[(&str, &M, &Conversion)]) -> Result<(), Refusal> {
    if mutant!("conversion-unflushed") {
        return Ok(());
    }
    for &(name, member, _) in members {
        let flushed = member.flush().await;
        flushed.map_err(|error| Refusal::member_error(name, &error).after(CHANGED))?;
    }
    Ok(())
}

/// What a failure on the way leaves.
const CHANGED: &str = "some members may be changed, and others not";

/// Gives members that an interrupted conversion left behind the superblock that they were to get. The first round of
/// superblocks writes it. A member with newer events than all that were converted was used apart, and keeps its own.
pub(super) fn adopt_conversion<M: Member>(offered: &mut [Offered<M>]) {
    let converted: Vec<Superblock> = offered
        .iter()
        .filter(|offered| offered.found.superblock.version == Version::V1_0)
        .map(|offered| offered.found.superblock.clone())
        .collect();
    for Offered { member, found, .. } in offered {
        let own = &found.superblock;
        if !converted.iter().any(|later| own.became(later) && later.events >= own.events) {
            continue;
        }
        let Ok(superblock) = own.as_1_0(device_uuid(own), member.limits().bytes) else { continue };
        let mut place = superblock.encode();
        place.resize(found.place.len(), 0);
        (found.superblock, found.place) = (superblock, place.into());
    }
}

/// A uuid for a member that has none, the same each time and no other member's: the array's, and the member's number.
fn device_uuid(own: &Superblock) -> [u8; 16] {
    let mut uuid = own.set_uuid;
    let [low, high] = own.device_number.0.to_le_bytes();
    uuid[0] ^= low;
    uuid[1] ^= high;
    uuid
}
