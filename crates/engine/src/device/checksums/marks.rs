//! What says on the member which of its checksums count: the record of open regions, and the header that names a
//! superblock. Opens and closes regions.
//!
//! It fixes the order of these writes ([`super`]); [`super::table`] picks the regions.

use crate::base::join::join_all;
use crate::base::lazy_marks::IDLE_PERIODS;
use crate::device::checksums::kept::Checksums;
use crate::device::checksums::settings::{Allowance, Closing};
use crate::seam::member::{Member, MemberError};
use format::integrity::{Header, Open};
use format::stamp::Stamp;
use format::superblock::Superblock;
use std::ops::Range;

/// Regions closed in one step; a write that opens a region waits for the step.
const REGIONS_TOGETHER: usize = 256;

/// Blank pages that are written before a stop, 16 MiB. The caller would wait for more. The others are unknown at the
/// next start, and learned then.
const BLANK_PAGES_MAX: usize = 4096;

impl Checksums {
    /// Marks the regions of `blocks` as open on stable storage. Callers that wait for a running round
    /// share the next one.
    pub(super) async fn open<M: Member>(&self, member: &M, blocks: &Range<u64>) -> Result<(), MemberError> {
        self.table.borrow_mut().want_open(blocks);
        let _lock = self.marking.exclusive(0..1).await;
        if self.table.borrow().is_stable(blocks) {
            return Ok(());
        }
        let open = self.table.borrow().open();
        // A blank area is never open: what assembly finds open is touched.
        if self.header.borrow().touched != *self.table.borrow().touched() {
            self.header.borrow_mut().generation += 1;
            self.write_headers(member).await?;
        }
        self.write_open(member, &open).await?;
        if !mutant!("open-region-unflushed") {
            member.flush().await?;
        }
        self.table.borrow_mut().opened(open);
        Ok(())
    }

    pub(super) async fn write_open<M: Member>(&self, member: &M, open: &Open) -> Result<(), MemberError> {
        let (at, page) = {
            let binding = self.header.borrow().binding();
            (self.table.borrow().layout().open_at(), self.pool.copy_of(&open.encode(binding.seed)))
        };
        member.write(at, page).await
    }

    /// Writes a header that names both the superblock about to be written and the one that it replaces.
    ///
    /// # Errors
    /// When the member fails.
    pub(crate) async fn announce<M: Member>(
        &self,
        member: &M,
        present: Stamp,
        next: &Superblock,
    ) -> Result<(), MemberError> {
        let _lock = self.marking.exclusive(0..1).await;
        {
            let mut header = self.header.borrow_mut();
            header.generation += 1;
            header.stamps = [present, Stamp::of(next)];
        }
        self.write_headers(member).await?;
        self.announced.set(true);
        Ok(())
    }

    pub(super) async fn write_headers<M: Member>(&self, member: &M) -> Result<(), MemberError> {
        let places = self.table.borrow().layout().headers_at();
        let touched = self.table.borrow().touched().clone();
        let header = Header { touched: touched.clone(), ..self.header.borrow().clone() };
        let page = self.pool.copy_of(&header.encode());
        let writes = join_all(places.map(|at| member.write(at, page.clone()))).await;
        writes.into_iter().collect::<Result<(), _>>()?;
        member.flush().await?;
        self.header.borrow_mut().touched = touched;
        Ok(())
    }

    /// Begins the next period. Returns whether there are regions to close.
    pub(crate) fn next_period(&self) -> bool {
        let mut table = self.table.borrow_mut();
        table.next_period();
        table.has_idle(IDLE_PERIODS)
    }

    /// What may be closed now.
    pub(crate) fn allowance(&self, closing: Closing, at_rest: bool) -> Allowance {
        let blank_pages = if closing == Closing::All { BLANK_PAGES_MAX } else { usize::MAX };
        Allowance { regions: self.table.borrow_mut().allowance(at_rest), blank_pages }
    }

    /// Closes some regions, at most `left`, and writes checksums that sweeps have filled in. They are durable after the
    /// next flush. Returns whether more regions may be left. `superblock` is the member's.
    ///
    /// # Errors
    /// When the member fails.
    pub(crate) async fn close<M: Member>(
        &self,
        member: &M,
        superblock: &Superblock,
        closing: Closing,
        left: &mut Allowance,
    ) -> Result<bool, MemberError> {
        if !self.announced.get() {
            if !self.table.borrow().entries().has_changes() {
                return Ok(false); // the array is not in use yet, and nothing was written to it
            }
            // A check has filled in checksums: the header must name the superblock on the member.
            self.announce(member, Stamp::of(superblock), superblock).await?;
        }
        let periods = if closing == Closing::Idle { IDLE_PERIODS } else { 0 };
        let _lock = self.marking.exclusive(0..1).await;
        let together = REGIONS_TOGETHER.min(usize::try_from(left.regions).unwrap_or(usize::MAX));
        let picked = self.table.borrow_mut().pick_to_close(periods, together);
        let closed = self.close_picked(member, &picked, &mut left.blank_pages).await;
        if closed.is_err() {
            self.table.borrow_mut().reopen(&picked);
        }
        left.regions -= picked.len() as u64;
        closed.map(|()| picked.len() == REGIONS_TOGETHER)
    }

    async fn close_picked<M: Member>(
        &self,
        member: &M,
        picked: &[u64],
        blank_left: &mut usize,
    ) -> Result<(), MemberError> {
        let mut pages = {
            // The table counts pages in flight as written, so their transfers must have ended.
            let _lock = self.moving.exclusive(0..u64::MAX).await;
            self.table.borrow_mut().pages_to_close(picked, blank_left)
        };
        pages.extend(self.table.borrow().filled_pages());
        pages.sort_unstable();
        pages.dedup();
        self.write_pages(member, &pages).await?;
        if picked.is_empty() {
            return Ok(());
        }
        if !mutant!("closed-before-its-pages") {
            member.flush().await?;
        }
        let open = self.table.borrow().open();
        self.write_open(member, &open).await
    }
}
