//! What a disk, partition, array or logical volume holds, by its signatures, with the label and identity of the formats
//! that people have on arrays.
//!
//! The signatures are those of [`format::signature`]; md's own superblocks count before them. A signature may be a
//! leftover.

mod details;

use crate::source::{Source, read_up_to};
use format::Defect;
use format::signature::{recognize, windows};
use format::superblock::{Superblock, decode, places};

pub use details::{Kind, Volume};

/// The bytes of a start in which most signatures are.
const START_BYTES: usize = 0x1_1000;

/// The bytes of a superblock's place.
const PLACE_BYTES: usize = 4096;

/// What is there.
#[derive(Debug)]
pub enum Content {
    /// A member of an md array.
    Member(Box<Superblock>),
    /// A superblock of md that cannot be used: its field, and why.
    Damaged(Defect),
    /// Something else that is known.
    Volume(Volume),
    /// Unknown data.
    Unknown,
    /// No data at the places that are looked at.
    Empty,
}

/// Looks at the places of all known signatures.
///
/// # Errors
/// When none of the places that were looked at shows anything, and one of them cannot be read.
pub async fn look<S: Source + ?Sized>(source: &S) -> Result<Content, String> {
    match superblock(source).await {
        Ok(Some(superblock)) => return Ok(Content::Member(superblock)),
        Ok(None) => {}
        Err(defect) => return Ok(Content::Damaged(defect)),
    }
    let mut parts = Vec::new();
    let mut unreadable = None;
    for window in windows(source.bytes()) {
        match source.read(window.start, (window.end - window.start) as usize).await {
            Ok(part) => parts.push((window.start, part)),
            Err(reason) => unreadable = unreadable.or(Some(reason)),
        }
    }
    match (recognize(source.bytes(), &parts), unreadable) {
        (Some(signature), _) if signature.is_known() => Ok(Content::Volume(Volume::of(signature, &parts))),
        (_, Some(reason)) => Err(reason),
        (Some(_), None) => Ok(Content::Unknown),
        (None, None) => Ok(Content::Empty),
    }
}

/// Whether the start holds something known, or any place a superblock of md. It reads little.
pub async fn is_known<S: Source + ?Sized>(source: &S) -> bool {
    if !matches!(superblock(source).await, Ok(None)) {
        return true;
    }
    let Ok(start) = read_up_to(source, 0, START_BYTES).await else { return false };
    let found = recognize(source.bytes(), &[(0, start)]);
    found.is_some_and(|signature| signature.is_known() && !signature.is_partition_table())
}

/// The superblock of md that counts: of two valid ones the later created one, as in mdadm.
///
/// # Errors
/// The first defect, if there are superblocks and none is valid. A place that cannot be read holds none.
pub async fn superblock<S: Source + ?Sized>(source: &S) -> Result<Option<Box<Superblock>>, Defect> {
    let mut found: Option<Box<Superblock>> = None;
    let mut first_defect = None;
    for (version, at) in places(source.bytes()) {
        let Ok(place) = read_up_to(source, at.0, PLACE_BYTES).await else { continue };
        match decode(version, at, &place, source.bytes()) {
            Ok(Some(superblock)) if found.as_ref().is_none_or(|other| other.created < superblock.created) => {
                found = Some(Box::new(superblock));
            }
            Ok(_) => {}
            Err(defect) => first_defect = first_defect.or(Some(defect)),
        }
    }
    match (found, first_defect) {
        (None, Some(defect)) => Err(defect),
        (found, _) => Ok(found),
    }
}
