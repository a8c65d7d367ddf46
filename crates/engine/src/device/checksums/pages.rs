//! Transfers pages of the table between memory and the member, within the limits of memory.
//!
//! It decides nothing about a checksum: an unreadable page makes its checksums unknown.

use crate::base::buffer::{Buffer, Pool};
use crate::device::checksums::kept::Checksums;
use crate::device::checksums::settings::ChecksumMemory;
use crate::device::checksums::table::Table;
use crate::seam::member::{Member, MemberError};
use format::integrity::{PAGE_BYTES, Page};
use format::units::MemberByte;
use futures_util::{StreamExt, stream};
use std::cell::RefCell;
use std::cmp::Ordering;
use std::ops::Range;

/// When too many pages are resident, one in this many is evicted.
const EVICTED_PART: usize = 16;

/// The most pages in one transfer.
pub(super) const PAGES_TOGETHER: usize = 256;

/// Up to this many unchanged pages between two changed ones are written with them, because that costs less than a
/// second transfer.
const PAGES_BETWEEN: u64 = 16;

/// Page transfers in flight at a time. Each has up to 1 MiB of memory, on each member.
const TRANSFERS: usize = 2;

impl Checksums {
    /// Counts some pages of the table that were not counted yet; false when there was none.
    pub(crate) async fn count_pages<M: Member>(&self, member: &M) -> bool {
        let next = self.table.borrow_mut().entries_mut().counts_mut().next_uncounted(PAGES_TOGETHER);
        let Some(run) = next else { return false };
        let _lock = self.moving.exclusive(run.clone()).await;
        let buffer = self.pool.take((run.end - run.start) as usize * PAGE_BYTES);
        let buffer = self.read_run(member, &run, buffer).await;
        for (page, copy) in run.zip(buffer.chunks_exact(PAGE_BYTES)) {
            self.table.borrow_mut().entries_mut().count(page, copy);
        }
        true
    }

    /// Loads a page of the table. The checksums of an unreadable page are unknown.
    pub(super) async fn load<M: Member>(&self, member: &M, page: u64) {
        if self.table.borrow().entries().resident_pages() >= self.memory.get().pages {
            self.make_room(member).await;
        }
        let _lock = self.moving.exclusive(page..page + 1).await;
        if self.table.borrow().entries().is_resident(page) {
            return;
        }
        let mut found = None;
        if self.table.borrow().entries().is_stored(page) {
            let at = self.table.borrow().layout().page_at(page);
            let binding = self.header.borrow().binding();
            found = match read_page(member, &self.pool, at).await {
                Ok(bytes) => Page::decode(&bytes, &binding, page).map_err(|defect| defect.to_string()),
                Err(error) => Err(error.to_string()),
            }
            .inspect_err(|reason| self.log_lost_page(reason))
            .ok();
        }
        self.table.borrow_mut().entries_mut().insert(page, found);
    }

    /// Evicts pages that were not used lately, and writes dirty ones if that is not enough.
    async fn make_room<M: Member>(&self, member: &M) {
        let ChecksumMemory { pages, changes_bytes } = self.memory.get();
        let most = pages - pages.div_ceil(EVICTED_PART);
        self.table.borrow_mut().entries_mut().evict(most);
        if self.table.borrow().entries().resident_pages() >= pages {
            let dirty = self.table.borrow().entries().dirty_pages();
            // If the member has failed, its next write fails too and reports it; the pages stay.
            if self.write_pages(member, &dirty).await.is_ok() {
                self.table.borrow_mut().entries_mut().evict(most);
            }
        }
        if self.table.borrow().entries().changes_bytes() > changes_bytes {
            self.write_back(member).await;
        }
    }

    /// Writes changes of pages that are not resident, in the order of the table, until their memory is below the limit.
    pub(super) async fn write_back<M: Member>(&self, member: &M) {
        let most = self.memory.get().changes_bytes;
        let _lock = self.writing_back.exclusive(0..1).await;
        while self.table.borrow().entries().changes_bytes() > most {
            let pages = self.table.borrow_mut().entries_mut().next_changed(PAGES_TOGETHER as u64);
            if self.write_pages(member, &pages).await.is_err() {
                return; // as in `make_room`
            }
        }
    }

    /// Writes pages of the table; neighbouring pages share a transfer.
    pub(super) async fn write_pages<M: Member>(&self, member: &M, pages: &[u64]) -> Result<(), MemberError> {
        let writes = stream::iter(runs(pages)).map(|run| self.write_run(member, run)).buffer_unordered(TRANSFERS);
        writes.collect::<Vec<_>>().await.into_iter().collect()
    }

    async fn write_run<M: Member>(&self, member: &M, run: Range<u64>) -> Result<(), MemberError> {
        let _lock = self.moving.exclusive(run.clone()).await;
        let mut buffer = self.pool.take((run.end - run.start) as usize * PAGE_BYTES);
        let is_needed = run.clone().any(|page| self.table.borrow().entries().is_stored(page));
        if is_needed {
            buffer = self.read_run(member, &run, buffer).await;
        }
        // No await from here to the write.
        let at = self.table.borrow().layout().page_at(run.start);
        for (page, into) in run.clone().zip(buffer.chunks_exact_mut(PAGE_BYTES)) {
            let taken = self.table.borrow_mut().entries_mut().take_out(page, into);
            let _ = taken.inspect_err(|defect| self.log_lost_page(defect));
        }
        let mut in_flight = PagesInFlight { table: &self.table, pages: run, is_over: false };
        let written = member.write(at, buffer.freeze()).await;
        in_flight.is_over = true;
        if written.is_ok() {
            in_flight.pages = 0..0;
        }
        written
    }

    /// Reads pages of the table. An unreadable page becomes zeros, which encode unknown checksums.
    async fn read_run<M: Member>(&self, member: &M, run: &Range<u64>, into: Buffer) -> Buffer {
        let place = |page| self.table.borrow().layout().page_at(page);
        let (read, mut buffer) = member.read(place(run.start), into).await;
        if read.is_ok() {
            return buffer;
        }
        for (page, into) in run.clone().zip(buffer.chunks_exact_mut(PAGE_BYTES)) {
            match read_page(member, &self.pool, place(page)).await {
                Ok(bytes) => into.copy_from_slice(&bytes),
                Err(error) => {
                    self.log_lost_page(&error);
                    into.fill(0);
                }
            }
        }
        buffer
    }

    /// Logs the first few unreadable pages. There may be many: a table that was never written consists of them.
    fn log_lost_page(&self, reason: &dyn std::fmt::Display) {
        let lost_pages_logged = self.lost_pages_logged.get();
        match lost_pages_logged.cmp(&LOST_PAGES_LOGGED) {
            Ordering::Less => tracing::warn!("checksums: {reason}; {UNKNOWN_UNTIL_FILLED}"),
            Ordering::Equal => {
                tracing::warn!("checksums: further unreadable pages are not logged; {UNKNOWN_UNTIL_FILLED}")
            }
            Ordering::Greater => return,
        }
        self.lost_pages_logged.set(lost_pages_logged + 1);
    }
}

/// Groups pages into transfers, which include the pages between them.
fn runs(pages: &[u64]) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for &page in pages {
        match runs.last_mut() {
            Some(run) if page - run.end <= PAGES_BETWEEN && page - run.start < PAGES_TOGETHER as u64 => {
                run.end = page + 1
            }
            _ => runs.push(page..page + 1),
        }
    }
    runs
}

/// The log's remark about lost checksums.
const UNKNOWN_UNTIL_FILLED: &str = "these checksums are unknown until a write or a sweep fills them in";

/// The number of unreadable pages that are logged individually.
const LOST_PAGES_LOGGED: u32 = 3;

/// Pages in flight to a member. If this is dropped before their write has succeeded, they count as not written. If the
/// write was abandoned, it may still end after a later one, so none of its regions is closed any more.
struct PagesInFlight<'a> {
    table: &'a RefCell<Table>,
    pages: Range<u64>,
    is_over: bool,
}

impl Drop for PagesInFlight<'_> {
    fn drop(&mut self) {
        let mut table = self.table.borrow_mut();
        for page in self.pages.clone() {
            table.entries_mut().put_back(page);
            if !self.is_over {
                table.pin_open(page);
            }
        }
    }
}

pub(super) async fn read_page<M: Member>(member: &M, pool: &Pool, at: MemberByte) -> Result<Buffer, MemberError> {
    let (result, page) = member.read(at, pool.take(PAGE_BYTES)).await;
    result.map(|()| page)
}
