//! The checksums of a member at assembly: found on it, or created.
//!
//! It decides whether they are right: after a write by other software, all of them are unknown.

use crate::base::buffer::Pool;
use crate::device::checksums::kept::Checksums;
use crate::device::checksums::pages::read_page;
use crate::seam::bytes::read_bytes;
use crate::seam::member::{Member, MemberError};
use format::Defect;
use format::bitmap::{BitmapSuper, SUPER_BYTES};
use format::integrity::{Header, Layout, Open, PAGE_BYTES, Touched};
use format::superblock::Superblock;
use std::time::Duration;

/// What a member holds that gets checksums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemberContents {
    /// Zeros in all its data area, on stable storage.
    Zeros,
    /// Anything.
    Unknown,
}

/// An epoch later than that of any page of the table.
fn epoch(now: Duration, before: u64) -> u64 {
    (now.as_micros() as u64).max(before + 1)
}

impl Checksums {
    /// The checksums on `member`, if it has any. `now` is wall-clock time.
    ///
    /// # Errors
    /// When there are checksums that can be neither used nor replaced.
    pub(crate) async fn find<M: Member>(
        member: &M,
        superblock: &Superblock,
        pool: &Pool,
        now: Duration,
    ) -> Result<Option<Self>, Defect> {
        let Ok(layout) = Layout::of(superblock) else { return Ok(None) };
        let [first, second] = layout.headers_at();
        let pages = [read_page(member, pool, first).await, read_page(member, pool, second).await];
        let pages = pages.map(|page| page.map_or_else(|_| vec![0; PAGE_BYTES], |page| page.to_vec()));
        let Some(mut header) = Header::decode_pair([&pages[0], &pages[1]])? else { return Ok(None) };
        if header.set_uuid != superblock.set_uuid {
            return Ok(None); // left by an earlier array
        }
        header.check(superblock, &layout)?;
        check_apart_from_bitmap(member, superblock, &layout, pool).await?;
        let noted = read_page(member, pool, layout.open_at()).await;
        let trusted = header.vouches_for(superblock) && (mutant!("unread-regions-believed") || noted.is_ok());
        if !trusted {
            // Unreadable pages get a new epoch too. They may be readable at the next assembly, and would then be stale.
            header.epoch = epoch(now, header.epoch);
            header.touched = Touched::all();
        }
        let noted = noted.map_or_else(|_| vec![0; PAGE_BYTES], |page| page.to_vec());
        let open = Open::decode(&noted, header.binding().seed);
        Ok(Some(Self::new(pool.clone(), layout, header, open, trusted)))
    }

    /// Creates checksums on `member`, all of them unknown, or of zeros. The caller writes the superblock afterwards.
    ///
    /// # Errors
    /// When the member fails.
    pub(crate) async fn make<M: Member>(
        member: &M,
        superblock: &Superblock,
        layout: Layout,
        pool: &Pool,
        now: Duration,
        contents: MemberContents,
    ) -> Result<Self, MemberError> {
        let mut header = Header::new(superblock, &layout, epoch(now, 0));
        if contents == MemberContents::Zeros {
            header.touched = layout.blank();
        }
        let made = Self::new(pool.clone(), layout, header, Open::none(), contents == MemberContents::Zeros);
        made.write_open(member, &Open::none()).await?;
        made.write_headers(member).await?;
        Ok(made)
    }
}

/// Checks that the bitmap ends before the checksums. Its length stands in its own superblock only, and a bitmap that
/// other software has added may be longer than expected.
pub(crate) async fn check_apart_from_bitmap<M: Member>(
    member: &M,
    superblock: &Superblock,
    layout: &Layout,
    pool: &Pool,
) -> Result<(), Defect> {
    let member_bytes = member.limits().bytes;
    let (Some(at), Some(room)) = (superblock.bitmap_at(), superblock.bitmap_room(member_bytes)) else { return Ok(()) };
    let [_, first] = layout.headers_at();
    if at.0 > first.0 || at.0 + room <= first.0 {
        return Ok(());
    }
    let head = read_bytes(member, pool, at, SUPER_BYTES as u64).await;
    let head = head.map_err(|reason| Defect::new("bitmap", reason))?;
    let end = at.0 + BitmapSuper::decode(&head, room)?.bytes_on_disk(room);
    match end <= first.0 {
        true => Ok(()),
        false => Err(Defect::new(
            "superblock.bitmap_offset",
            format!("the bitmap ends at byte {end} and overlaps the space for checksums"),
        )),
    }
}
