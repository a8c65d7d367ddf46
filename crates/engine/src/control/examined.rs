//! What `examine` shows of one member's bitmap, logs and reshape: plain, serializable values. Their
//! fields are a stable interface (`docs/json.md`).
//!
//! It only reads. A log that cannot be read is left out: assembly names it and says why.

use crate::base::buffer::Pool;
use crate::control::inspect::{Found, read_bad_blocks};
use crate::control::names::{level_name, uuid_text};
use crate::metadata::bitmap::load::read_bitmap;
use crate::metadata::bitmap::named::Named;
use crate::metadata::journal::found::Blocks;
use crate::metadata::partial_parity::newest;
use crate::metadata::stripe_log::found::{check_current, of_member, records_of};
use crate::seam::error::Refusal;
use crate::seam::member::Member;
use format::bitmap::{BitmapSuper, Kind};
use format::geometry::Level;
use format::journal::{BLOCK_BYTES, Payload};
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
        match of_member(member, name, superblock, pool).await {
            Ok(found) => {
                let (header, place) = found?;
                let void = check_current(name, superblock, &header, &place).err().map(reason_of);
                let contents = Some(StripeLogContents::of(name, member, &header, &place, pool).await);
                Some(Self { at, void, contents })
            }
            Err(refusal) => Some(Self { at, void: Some(reason_of(refusal)), contents: None }),
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

/// The partial parity log of a member: the consistency policy `ppl`.
#[derive(Debug, Clone, Serialize)]
pub struct ParityLogExamined {
    /// Where it begins.
    pub at: u64,
    /// Bytes that it may take.
    pub bytes: u64,
    /// Whether it keeps several headers, one behind the other. A replay uses the newest.
    pub multiple: bool,
    /// What the newest header says; `None` where that is torn, damaged, or cannot be read.
    pub contents: Option<ParityLogContents>,
    /// Why there are no contents.
    pub defect: Option<String>,
}

/// What the newest header of a partial parity log says.
#[derive(Debug, Clone, Serialize)]
pub struct ParityLogContents {
    /// The header's number; each one is greater than the one before.
    pub generation: u64,
    /// Its entries, each a write to one stripe. After an unclean stop a replay makes their parity right.
    pub entries: usize,
}

impl ParityLogExamined {
    /// The log of a member; `None` if there is none.
    async fn of<M: Member>(name: &str, member: &M, superblock: &Superblock, pool: &Pool) -> Option<Self> {
        let (place, at) = (superblock.ppl?, superblock.ppl_at()?.0);
        let (contents, defect) = match newest(name, member, superblock, pool).await {
            Ok(Some((header, _))) => {
                (Some(ParityLogContents { generation: header.generation, entries: header.entries.len() }), None)
            }
            Ok(None) => (None, Some("its header is torn".to_owned())),
            Err(refusal) => (None, Some(reason_of(refusal))),
        };
        let bytes = Sectors(place.sectors.into()).bytes();
        Some(Self { at, bytes, multiple: place.multiple, contents, defect })
    }
}

/// The write journal that a device holds.
#[derive(Debug, Clone, Serialize)]
pub struct JournalExamined {
    /// Where its ring begins.
    pub at: u64,
    /// Bytes of the ring.
    pub bytes: u64,
    /// The byte of the ring at which the log begins; `None` if the superblock names a place out of the ring.
    pub tail: Option<u64>,
    /// The log; `None` where none begins there, or it cannot be read.
    pub contents: Option<JournalContents>,
    /// Why there are no contents.
    pub defect: Option<String>,
}

/// The log in a write journal.
#[derive(Debug, Clone, Serialize)]
pub struct JournalContents {
    /// Whether all of it was looked at: of a long one, only the first 16 MiB are.
    pub whole: bool,
    /// The number of the meta block behind what was looked at.
    pub sequence: u64,
    /// Bytes of the ring that were looked at, from the tail on.
    pub used_bytes: u64,
    /// Meta blocks.
    pub meta_blocks: usize,
    /// Blocks of 4096 bytes of data that they list.
    pub data_blocks: usize,
    /// Rows of stripes whose parity they list.
    pub parity_rows: usize,
}

impl JournalExamined {
    /// The journal on a device; `None` if it is no journal.
    async fn of<M: Member>(name: &str, member: &M, superblock: &Superblock, pool: &Pool) -> Option<Self> {
        (superblock.own_role() == DeviceRole::Journal).then_some(())?;
        let parities = if superblock.level == Level::Raid6 { 2 } else { 1 };
        let blocks = Blocks::of(name, member, superblock, parities, pool);
        let contents = JournalContents::of(&blocks).await;
        let tail = superblock.journal_tail.unwrap_or_default();
        Some(Self {
            at: superblock.data_at().0,
            bytes: blocks.ring.blocks() * BLOCK_BYTES as u64,
            tail: blocks.ring.holds(tail).then(|| tail.bytes()),
            defect: contents.as_ref().err().cloned().map(reason_of),
            contents: contents.ok(),
        })
    }
}

/// A journal may be large and full, and each of its blocks is read and summed.
const LOOKED_AT_BLOCKS: u64 = 4096;

impl JournalContents {
    async fn of<M: Member>(blocks: &Blocks<'_, M>) -> Result<Self, Refusal> {
        let mut log = blocks.log().await?;
        let (mut meta_blocks, mut data_blocks, mut parity_rows, mut whole) = (0, 0, 0, true);
        while let Some(block) = log.next().await? {
            meta_blocks += 1;
            for payload in &block.payloads {
                match payload {
                    Payload::Data { .. } => data_blocks += 1,
                    Payload::Parity { .. } => parity_rows += 1,
                    Payload::Flush { .. } => {}
                }
            }
            if log.used >= LOOKED_AT_BLOCKS {
                whole = false;
                break;
            }
        }
        let used_bytes = log.used * BLOCK_BYTES as u64;
        Ok(Self { whole, sequence: log.sequence, used_bytes, meta_blocks, data_blocks, parity_rows })
    }
}

/// Why a log cannot be read, or does not count.
fn reason_of(refusal: Refusal) -> String {
    match refusal.field {
        Some(field) => format!("{field}: {}", refusal.reason),
        None => refusal.reason,
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
    /// The partial parity log; `None` where there is none.
    pub parity_log: Option<ParityLogExamined>,
    /// The write journal, if this is its device.
    pub journal: Option<JournalExamined>,
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
            parity_log: None,
            journal: None,
            write_mostly: superblock.device_flags.contains(DeviceFlags::WRITE_MOSTLY),
            failfast: superblock.device_flags.contains(DeviceFlags::FAIL_FAST),
            logical_block_bytes: superblock.logical_block_bytes,
            reshape: superblock.without_announcement().reshape.as_ref().map(ReshapeExamined::of),
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
        self.parity_log = ParityLogExamined::of(&name, member, superblock, pool).await;
        self.journal = JournalExamined::of(&name, member, superblock, pool).await;
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
