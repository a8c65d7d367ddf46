//! What `examine` shows of one member's bitmap, bad-block log, stripe log and reshape: plain, serializable values. Their
//! fields are a stable interface (`docs/json.md`).
//!
//! It only reads. A log that cannot be read is left out: assembly names it and says why.

use crate::base::buffer::Pool;
use crate::control::inspect::{Found, read_bad_blocks};
use crate::control::names::{level_name, uuid_text};
use crate::metadata::bitmap::load::read_bitmap;
use crate::metadata::bitmap::named::Named;
use crate::metadata::stripe_log::found::{check_current, of_member, records_of};
use crate::seam::error::Refusal;
use crate::seam::member::Member;
use format::bitmap::{BitmapSuper, Kind};
use format::stripe_log::{Header, Place};
use format::superblock::{DeviceFlags, DeviceRole, Reshape, Resync, Superblock};
use format::text::quoted;
use format::units::{Sectors, Slot};
use serde::Serialize;
use std::ops::Range;

pub use crate::control::behind::{Behind, Differing, Differs};

/// The contents of a member's write-intent bitmap.
#[derive(Debug, Clone, Serialize)]
pub struct BitmapExamined {
    /// Chunks noted as written to.
    pub set: u64,
    /// Chunks in all.
    pub bits: u64,
    /// Chunks that were never written to, of a lockless bitmap; `None` of others.
    pub unwritten: Option<u64>,
    /// Bytes that a bit stands for.
    pub chunk_bytes: u64,
    /// The event count up to which the bitmap is current.
    pub events: u64,
    /// The event count at which bits were last cleared.
    pub events_cleared: u64,
    /// Its superblock, with what is not printed of it here.
    #[serde(skip)]
    pub header: BitmapSuper,
    /// The noted bytes: of each member, or of the array for RAID-10. `None` where the bitmap counts as all set.
    #[serde(skip)]
    pub(crate) dirty: Option<Named>,
}

/// The contents of a member's bad-block log.
#[derive(Debug, Clone, Serialize)]
pub struct BadBlocksExamined {
    /// Ranges in the log.
    pub ranges: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Each entry: bytes of the member, in the order of the log.
    #[serde(skip)]
    pub entries: Vec<Range<u64>>,
}

/// The stripe log of a member: the consistency policy `log`.
#[derive(Debug, Clone, Serialize)]
pub struct StripeLogExamined {
    /// Where its header is.
    pub at: u64,
    /// Why it does not count for the member's superblock; `None` if it does.
    pub void: Option<String>,
    /// What its header says; `None` where that is damaged, or cannot be read.
    pub contents: Option<StripeLogContents>,
}

/// What the header of a stripe log says, and what is in the ring.
#[derive(Debug, Clone, Serialize)]
pub struct StripeLogContents {
    /// Bytes of header and ring.
    pub bytes: u64,
    /// The use of the array that wrote the log.
    pub epoch: u64,
    /// Records with a smaller sequence are settled.
    pub tail: u64,
    /// Whether parity was built everywhere. A log that says otherwise is not replayed.
    pub parity_built: bool,
    /// Records that a replay would find, if this member's log alone decided; `None` if the ring cannot be read.
    pub records: Option<usize>,
    /// Their entries, each a write to one stripe.
    pub entries: Option<usize>,
}

impl StripeLogExamined {
    /// The log of a member; `None` if there is none.
    async fn of<M: Member>(name: &str, member: &M, superblock: &Superblock, pool: &Pool) -> Option<Self> {
        let at = Place::start(superblock).ok()?.0;
        let reason = |refusal: Refusal| match refusal.field {
            Some(field) => format!("{field}: {}", refusal.reason),
            None => refusal.reason,
        };
        match of_member(member, name, superblock, pool).await {
            Ok(found) => {
                let (header, place) = found?;
                let void = check_current(name, superblock, &header, &place).err().map(reason);
                let contents = Some(StripeLogContents::of(name, member, &header, &place, pool).await);
                Some(Self { at, void, contents })
            }
            Err(refusal) => Some(Self { at, void: Some(reason(refusal)), contents: None }),
        }
    }
}

impl StripeLogContents {
    async fn of<M: Member>(name: &str, member: &M, header: &Header, place: &Place, pool: &Pool) -> Self {
        let mut records = records_of(member, name, header, place, pool).await.ok();
        let named = records.iter().flatten().map(|record| record.tail);
        let tail = named.max().unwrap_or(0).max(header.tail);
        records.iter_mut().for_each(|records| records.retain(|record| record.sequence >= tail));
        Self {
            bytes: header.bytes,
            epoch: header.epoch,
            tail,
            parity_built: header.is_built,
            records: records.as_ref().map(Vec::len),
            entries: records.map(|records| records.iter().map(|record| record.entries.len()).sum()),
        }
    }
}

/// How far a reshape has come, and the shape that it leads to.
#[derive(Debug, Clone, Serialize)]
pub struct ReshapeExamined {
    /// Position in the array: bytes before it have the new shape, or those behind it when the reshape runs
    /// backwards.
    pub position_bytes: u64,
    /// Whether it runs from the end to the start.
    pub backwards: bool,
    /// `raid6`; or md's number, where md has no name for it.
    pub new_level: String,
    /// Slots that it adds; negative where it removes some.
    pub delta_disks: i32,
    /// The layout's code.
    pub new_layout: u32,
    /// Bytes in a chunk.
    pub new_chunk_bytes: u64,
}

impl ReshapeExamined {
    pub(crate) fn of(reshape: &Reshape) -> Self {
        let Reshape { position, new_level, delta_disks, new_layout, new_chunk, backwards } = *reshape;
        let level = reshape.level();
        Self {
            position_bytes: position.checked_bytes().unwrap_or(u64::MAX),
            backwards,
            new_level: level.map_or_else(|| new_level.to_string(), |level| level_name(level).to_owned()),
            delta_disks,
            new_layout,
            new_chunk_bytes: Sectors(new_chunk.into()).bytes(),
        }
    }
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
    /// The stripe log; `None` where there is none.
    pub stripe_log: Option<StripeLogExamined>,
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
            stripe_log: None,
            write_mostly: superblock.device_flags.contains(DeviceFlags::WRITE_MOSTLY),
            failfast: superblock.device_flags.contains(DeviceFlags::FAIL_FAST),
            logical_block_bytes: superblock.logical_block_bytes,
            reshape: superblock.reshape.as_ref().map(ReshapeExamined::of),
            disk_error: superblock.disk_errors.contains(&superblock.device_number),
        }
    }
}

impl Examination {
    /// Adds what the member's bitmap and logs hold. A bitmap or bad-block log that cannot be read is left out.
    pub async fn with_logs<M: Member>(mut self, member: &M, found: &Found, pool: &Pool) -> Self {
        let (name, superblock) = (self.name.clone(), &found.superblock);
        if let Ok(Some((header, map))) = read_bitmap(&name, member, superblock, pool).await {
            let unwritten = (header.kind == Kind::Lockless).then(|| map.unwritten_chunks());
            let map = map.set();
            self.bitmap = Some(BitmapExamined {
                set: header.bits_set(&map),
                unwritten,
                bits: header.bits(),
                chunk_bytes: header.chunk_bytes,
                events: header.events,
                events_cleared: header.events_cleared,
                dirty: Named::current(&header, &map, superblock),
                header,
            });
        }
        if let (Some(_), Ok(bad)) = (superblock.bad_blocks_at(), read_bad_blocks(&name, member, superblock, pool).await)
        {
            let bytes = bad.iter().map(|range| range.end - range.start).sum();
            self.bad_blocks = Some(BadBlocksExamined { ranges: bad.len(), bytes, entries: bad });
        }
        self.stripe_log = StripeLogExamined::of(&name, member, superblock, pool).await;
        self
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
