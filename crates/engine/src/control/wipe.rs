//! The superblocks of every version on one member, and their removal.
//!
//! Nothing but superblocks is written. Whether the array can do without the member is the caller's question.

use crate::base::buffer::Pool;
use crate::control::create::erase_superblocks;
use crate::control::inspect::Found;
use crate::device::place_bytes;
use crate::seam::bytes::read_bytes;
use crate::seam::error::Refusal;
use crate::seam::member::Member;
use format::superblock::{Version, decode, places};
use format::units::MemberByte;

/// A place with a superblock, or with what may be one.
#[derive(Debug)]
pub struct Place {
    /// The version whose place it is.
    pub version: Version,
    /// Its first byte.
    pub at: MemberByte,
    /// The superblock; why there may be one, if it is damaged or cannot be read.
    pub found: Result<Found, Refusal>,
}

/// All superblocks of `member`, by version. It only reads.
pub async fn superblocks<M: Member>(name: &str, member: &M, pool: &Pool) -> Vec<Place> {
    let member_bytes = member.limits().bytes;
    let mut found = Vec::new();
    for (version, at) in places(member_bytes) {
        let bytes = place_bytes(at, member_bytes) as u64;
        let place = match read_bytes(member, pool, at, bytes).await {
            Ok(place) => place,
            Err(reason) => {
                let refusal = Refusal::new(reason).of(name).field("superblock");
                found.push(Place { version, at, found: Err(refusal) });
                continue;
            }
        };
        match decode(version, at, &place, member_bytes) {
            Ok(None) => {}
            Ok(Some(superblock)) => {
                found.push(Place { version, at, found: Ok(Found { superblock, place: place.into() }) });
            }
            Err(defect) => found.push(Place { version, at, found: Err(Refusal::defect(name, defect)) }),
        }
    }
    found
}

/// Overwrites every [`Place`] of `member` with zeros, the doubtful ones last.
///
/// # Errors
/// When the member fails; some superblocks may be removed then, as the refusal says.
pub async fn wipe<M: Member>(name: &str, member: &M, pool: &Pool) -> Result<(), Refusal> {
    let erased = erase_superblocks(name, member, pool).await;
    erased.map_err(|refusal| refusal.after("some of its superblocks may be removed"))
}
