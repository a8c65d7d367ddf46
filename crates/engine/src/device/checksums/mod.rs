//! Checksums of a member's blocks: updated with every write, verified with every read.
//!
//! The layer lies between a [`Device`](crate::device::Device) and its member, so it covers requests
//! and sweeps alike. [`table`] holds the checksums in memory; this module
//! transfers them from and to the member. Format: [`format::integrity`].
//!
//! The order of writes on the member, which the simulator interrupts at every write:
//! * A region is marked as open, and flushed, before the first write to one of its blocks.
//! * A region is closed only after its pages of the table and its data are flushed.
//!   That happens lazily, and rarely while the array is busy: see [`table`].
//! * The header names a superblock, and is flushed, before that superblock is written.
//!
//! So after a power loss the checksums of open regions are unknown and all others
//! are right. After a write by other software, which the superblock shows, all
//! are unknown. Writes and sweeps fill in unknown checksums.

mod counts;
mod of_device;
mod table;

use crate::base::buffer::{Block, Buffer, Pool};
use crate::base::join::join_all;
use crate::base::notify::Signal;
use crate::base::range_lock::RangeLocks;
use crate::device::counted::Counted;
use crate::seam::bytes::read_bytes;
use crate::seam::member::{Member, MemberError, MemberErrorKind, MemberFault, Operation};
use format::Defect;
use format::bitmap::{BitmapSuper, SUPER_BYTES};
use format::integrity::{BLOCK_BYTES, Checksum, Header, Layout, Open, PAGE_BYTES, Page, Stamp};
use format::superblock::Superblock;
use format::units::{ComponentByte, MemberByte};
use futures_util::{StreamExt, stream};
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::ops::Range;
use std::sync::LazyLock;
use std::time::Duration;
use table::{IDLE_PERIODS, Table};

/// The regions to close.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closing {
    /// Regions that have been idle for [`IDLE_PERIODS`].
    Idle,
    /// All regions: no writes are in flight.
    All,
}

/// Memory limits for a member's checksum table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChecksumMemory {
    /// Resident pages of 4 KiB, at least one. Each page covers 4 MiB of data.
    pub pages: usize,
    /// Bytes of changed checksums whose pages are not resident. Changes scattered over the table of a large
    /// member are collected here, and written in long transfers.
    pub changes_bytes: usize,
}

impl Default for ChecksumMemory {
    fn default() -> Self {
        Self { pages: 4096, changes_bytes: 16 << 20 }
    }
}

/// When too many pages are resident, one in this many is evicted.
const EVICTED_PART: usize = 16;

/// The most pages in one transfer.
const PAGES_TOGETHER: usize = 256;

/// Up to this many unchanged pages between two changed ones are written with them, because that costs less than a
/// second transfer.
const PAGES_BETWEEN: u64 = 16;

/// Page transfers in flight at a time.
const TRANSFERS: usize = 8;

/// Regions closed in one step; a write that opens a region waits for the step.
const REGIONS_TOGETHER: usize = 256;

/// When checksums are verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Verify {
    /// At every read.
    #[default]
    Always,
    /// At the reads of sweeps only.
    Scrub,
}

impl Verify {
    /// The setting's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::Scrub => "scrub",
        }
    }

    /// The setting with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Always, Self::Scrub].into_iter().find(|verify| verify.name() == name)
    }
}

/// Checksums of one member.
pub(crate) struct Checksums {
    pool: Pool,
    table: RefCell<Table>,
    header: RefCell<Header>,
    /// Locks pages of the table during their transfers, by number.
    moving: RangeLocks,
    /// Held while the header or the open regions are written.
    marking: RangeLocks,
    /// Held while excess changes are written.
    writing_back: RangeLocks,
    /// Whether the checksums found were valid, or were created for a member without earlier writes.
    trusted: Cell<bool>,
    /// Whether a header was written since assembly, so that the member is in use.
    announced: Cell<bool>,
    verify: Cell<Verify>,
    memory: Cell<ChecksumMemory>,
    /// Blocks that did not match their checksum, each counted once until it is written.
    wrong: Cell<u64>,
    counted: Counted,
    /// Raised whenever a write ends.
    written: Signal,
    /// The number of unreadable pages that were logged.
    lost_pages_logged: Cell<u32>,
}

/// The checksums that a write leaves.
#[derive(Debug)]
pub(crate) enum WrittenChecksums {
    Blocks(SmallVec<[Checksum; 16]>),
    Zeros,
}

impl WrittenChecksums {
    /// The checksums of adjacent blocks, each a multiple of 4 KiB.
    pub(crate) fn of(blocks: &[Block]) -> Self {
        let pieces = blocks.iter().flat_map(|block| block.chunks(BLOCK_BYTES as usize));
        Self::Blocks(pieces.map(checksum).collect())
    }

    /// The checksum of the block at `index`.
    fn at(&self, index: u64) -> Checksum {
        match self {
            Self::Blocks(checksums) => checksums[index as usize],
            Self::Zeros => *ZERO,
        }
    }
}

/// The checksum of a block of zeros.
static ZERO: LazyLock<Checksum> = LazyLock::new(|| Checksum::of(&[0; BLOCK_BYTES as usize]));

/// As [`Checksum::of`], but faster.
fn checksum(block: &[u8]) -> Checksum {
    Checksum::from_crc(parity::crc32c(block))
}

/// A write in flight. If it is dropped without [`ChecksumUpdate::end`], the write may be done in part, and the
/// checksums that it would change become unknown.
pub(crate) struct ChecksumUpdate<'a> {
    checksums: &'a Checksums,
    blocks: Range<u64>,
    /// The write's number in the table, from the moment at which the member may be executing it.
    started: Option<u64>,
    is_done: bool,
}

impl ChecksumUpdate<'_> {
    /// The member has completed the write.
    pub(crate) fn end(mut self) {
        self.is_done = true;
    }
}

impl Drop for ChecksumUpdate<'_> {
    fn drop(&mut self) {
        self.checksums.table.borrow_mut().end(&self.blocks, self.started, self.is_done);
        if self.is_done {
            // Not earlier: a concurrent read may still return the old contents, which were counted.
            self.checksums.counted.written(&self.blocks);
        }
        self.checksums.written.raise();
    }
}

/// The blocks of a component range, which must consist of whole blocks.
fn blocks(at: ComponentByte, bytes: u64) -> Range<u64> {
    debug_assert!((at.0 | bytes).is_multiple_of(BLOCK_BYTES), "an array with checksums transfers whole blocks");
    at.0 / BLOCK_BYTES..(at.0 + bytes) / BLOCK_BYTES
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
        let pages = pages.map(|page| page.unwrap_or_else(|_| vec![0; PAGE_BYTES]));
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
        }
        let open = Open::decode(&noted.unwrap_or_else(|_| vec![0; PAGE_BYTES]), &header.binding());
        Ok(Some(Self::new(pool.clone(), layout, header, open, trusted)))
    }

    /// Creates checksums on `member`, all of them unknown. The caller writes the superblock
    /// afterwards.
    ///
    /// # Errors
    /// When the member fails.
    pub(crate) async fn make<M: Member>(
        member: &M,
        superblock: &Superblock,
        layout: Layout,
        pool: &Pool,
        now: Duration,
    ) -> Result<Self, MemberError> {
        let header = Header::new(superblock, &layout, epoch(now, 0));
        let made = Self::new(pool.clone(), layout, header, Open::none(), false);
        made.write_open(member, &Open::none()).await?;
        made.write_headers(member).await?;
        Ok(made)
    }

    /// Writes checksums of zeros for all blocks of `member`.
    ///
    /// # Errors
    /// When the member fails.
    pub(crate) async fn fill_with_zeros<M: Member>(&self, member: &M) -> Result<(), MemberError> {
        let layout = *self.table.borrow().layout();
        let binding = self.header.borrow().binding();
        let mut zeros = Page::unknown();
        zeros.entries_mut().fill(Some(Checksum::of(&[0; BLOCK_BYTES as usize])));
        for first in (0..layout.pages()).step_by(PAGES_TOGETHER) {
            let pages = first..layout.pages().min(first + PAGES_TOGETHER as u64);
            let mut buffer = self.pool.take((pages.end - pages.start) as usize * PAGE_BYTES);
            for (page, into) in pages.zip(buffer.chunks_exact_mut(PAGE_BYTES)) {
                zeros.encode(&binding, page, into);
            }
            member.write(layout.page_at(first), buffer.freeze()).await?;
        }
        member.flush().await
    }

    fn new(pool: Pool, layout: Layout, header: Header, open: Open, trusted: bool) -> Self {
        let binding = header.binding();
        Self {
            pool,
            table: RefCell::new(Table::new(layout, binding, open, trusted)),
            header: RefCell::new(header),
            moving: RangeLocks::default(),
            marking: RangeLocks::default(),
            writing_back: RangeLocks::default(),
            trusted: Cell::new(trusted),
            announced: Cell::new(false),
            verify: Cell::new(Verify::Always),
            memory: Cell::default(),
            wrong: Cell::new(0),
            counted: Counted::default(),
            written: Signal::default(),
            lost_pages_logged: Cell::new(0),
        }
    }

    /// The first byte of the checksum area.
    pub(crate) fn begin_at(&self) -> MemberByte {
        self.table.borrow().layout().headers_at()[1]
    }

    pub(crate) fn set_verify(&self, verify: Verify) {
        self.verify.set(verify);
    }

    pub(crate) fn set_memory(&self, memory: ChecksumMemory) {
        self.memory.set(memory);
    }

    pub(crate) fn verify(&self) -> Verify {
        self.verify.get()
    }

    /// Whether checksums have changed that the header does not cover yet.
    pub(crate) fn has_unannounced_changes(&self) -> bool {
        !self.announced.get() && self.table.borrow().has_changes()
    }

    /// Whether the checksums were valid when they were found: no other software had written to the member.
    pub(crate) fn trusted(&self) -> bool {
        self.trusted.get()
    }

    /// Marks the checksums as trusted: they are those of a new member, which is recovered completely.
    pub(crate) fn trust(&self) {
        self.trusted.set(true);
    }

    /// The number of used blocks without a known checksum, and of used blocks not counted yet.
    pub(crate) fn unknown(&self) -> (u64, u64) {
        let table = self.table.borrow();
        (table.counts().unknown(), table.counts().uncounted())
    }

    /// Limits the counts to the first `bytes` of the component.
    pub(crate) fn use_bytes(&self, bytes: u64) {
        self.table.borrow_mut().use_blocks(bytes.div_ceil(BLOCK_BYTES));
    }

    /// Whether any checksum of these component bytes may be unknown.
    pub(crate) fn is_any_unknown(&self, bytes: &Range<u64>) -> bool {
        let blocks = bytes.start / BLOCK_BYTES..bytes.end.div_ceil(BLOCK_BYTES);
        self.table.borrow().counts().is_any_unknown(&blocks)
    }

    /// Counts some pages of the table that were not counted yet; false when there was none.
    pub(crate) async fn count_pages<M: Member>(&self, member: &M) -> bool {
        let next = self.table.borrow().counts().next_uncounted(PAGES_TOGETHER);
        let Some(run) = next else { return false };
        let _lock = self.moving.exclusive(run.clone()).await;
        let buffer = self.pool.take((run.end - run.start) as usize * PAGE_BYTES);
        let buffer = self.read_run(member, &run, buffer).await;
        for (page, copy) in run.zip(buffer.chunks_exact(PAGE_BYTES)) {
            self.table.borrow_mut().count(page, copy);
        }
        true
    }

    /// The number of blocks that did not match their checksum, each counted once until it is written.
    pub(crate) fn wrong(&self) -> u64 {
        self.wrong.get()
    }

    /// Prepares a read that will be verified against `checksums`: requests the checksums of the data read. Returns
    /// [`Self::rewrites`].
    pub(crate) fn expect(checksums: Option<&Self>, into: &mut [Buffer]) -> u64 {
        let Some(checksums) = checksums else { return 0 };
        into.iter_mut().for_each(Buffer::want_sums);
        checksums.rewrites()
    }

    /// After the read: `checksums`, if they do not confirm the data at once.
    pub(crate) fn against<'a>(
        checksums: Option<&'a Self>,
        at: ComponentByte,
        result: &Result<(), MemberError>,
        read: &[Buffer],
    ) -> Option<&'a Self> {
        checksums.filter(|checksums| result.is_ok() && !checksums.is_right(at, read))
    }

    /// The number of ended writes. If it has changed during a read, a mismatch is not conclusive.
    pub(crate) fn rewrites(&self) -> u64 {
        self.table.borrow().rewrites()
    }

    /// Loads the pages needed to verify a range.
    pub(crate) async fn prepare<M: Member>(&self, member: &M, at: ComponentByte, bytes: u64) {
        let blocks = blocks(at, bytes);
        while let Some(page) = self.missing(&blocks) {
            self.load(member, page).await;
        }
    }

    /// Whether [`Self::prepare`] has nothing to do.
    pub(crate) fn is_prepared(&self, at: ComponentByte, bytes: u64) -> bool {
        self.missing(&blocks(at, bytes)).is_none()
    }

    fn missing(&self, blocks: &Range<u64>) -> Option<u64> {
        self.table.borrow().missing(blocks)
    }

    /// Whether all pages needed to verify the data are resident, and no checksum contradicts it.
    pub(crate) fn is_right(&self, at: ComponentByte, parts: &[Buffer]) -> bool {
        if let [block] = parts
            && block.len() as u64 == BLOCK_BYTES
        {
            let sum = || block.sums().first().map_or_else(|| checksum(block), |crc| Checksum::from_crc(*crc));
            return self.table.borrow_mut().takes(at.0 / BLOCK_BYTES, sum);
        }
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        self.is_prepared(at, bytes) && self.first_wrong_of(at, parts).is_none()
    }

    /// The first block that does not match its checksum.
    pub(crate) fn first_wrong(&self, at: ComponentByte, bytes: &[u8]) -> Option<u64> {
        self.table.borrow_mut().first_wrong(at.0 / BLOCK_BYTES, bytes, &[], BLOCK_BYTES as usize)
    }

    /// As [`Self::first_wrong`], of several buffers, whose checksums may have been computed during the read.
    pub(crate) fn first_wrong_of(&self, at: ComponentByte, parts: &[Buffer]) -> Option<u64> {
        let mut table = self.table.borrow_mut();
        let mut first = at.0 / BLOCK_BYTES;
        for part in parts {
            let wrong = table.first_wrong(first, part, part.sums(), BLOCK_BYTES as usize);
            if wrong.is_some() {
                return wrong;
            }
            first += part.len() as u64 / BLOCK_BYTES;
        }
        None
    }

    /// The number of blocks of a range without a known checksum.
    pub(crate) async fn unknown_in<M: Member>(&self, member: &M, at: ComponentByte, bytes: u64) -> u64 {
        self.prepare(member, at, bytes).await;
        let table = self.table.borrow();
        blocks(at, bytes).filter(|block| table.get(*block).is_none()).count() as u64
    }

    /// Whether the checksum of every block of a range is known.
    pub(crate) fn knows(&self, at: ComponentByte, bytes: u64) -> bool {
        let table = self.table.borrow();
        blocks(at, bytes).all(|block| table.get(block).is_some())
    }

    /// The checksum of a block, if it is known.
    pub(crate) fn get(&self, block: u64) -> Option<Checksum> {
        self.table.borrow().get(block)
    }

    /// Counts `block` as wrong, and returns the error for its read.
    pub(crate) fn checksum_mismatch(&self, at: MemberByte, bytes: u64, block: u64) -> MemberError {
        if self.counted.add(block..block + 1) || mutant!("block-counted-twice") {
            self.wrong.set(self.wrong.get() + 1);
        }
        let source = std::rc::Rc::new(WrongBlock { at: block * BLOCK_BYTES });
        MemberFault { kind: MemberErrorKind::Corrupt, operation: Operation::Read, at, bytes, source }.into()
    }

    /// Fills in unknown checksums from blocks that a sweep found consistent. Returns how many were unknown.
    /// The caller locks the blocks against writes.
    pub(crate) async fn fill_unknown<M: Member>(&self, member: &M, at: ComponentByte, data: &[u8]) -> u64 {
        self.prepare(member, at, data.len() as u64).await;
        let block = |number: u64| {
            let start = (number * BLOCK_BYTES - at.0) as usize;
            checksum(&data[start..start + BLOCK_BYTES as usize])
        };
        self.table.borrow_mut().fill_unknown(blocks(at, data.len() as u64), block)
    }

    /// Whether a write of a block is in flight, so that a read may return old, new or mixed contents.
    pub(crate) fn is_being_written(&self, block: u64) -> bool {
        self.table.borrow().is_being_written(block)
    }

    /// Waits until no write of a block is in flight.
    pub(crate) async fn written(&self, block: u64) {
        loop {
            let seen = self.written.seen();
            if !self.is_being_written(block) {
                return;
            }
            self.written.changed_since(seen).await;
        }
    }

    /// Begins a write. Until it ends, its blocks may hold the old or the new contents. After a power loss their
    /// checksums are unknown. Their pages of the table need not be resident.
    ///
    /// # Errors
    /// When the member fails.
    pub(crate) async fn begin<M: Member>(
        &self,
        member: &M,
        at: ComponentByte,
        bytes: u64,
        leaves: WrittenChecksums,
    ) -> Result<ChecksumUpdate<'_>, MemberError> {
        let blocks = blocks(at, bytes);
        self.table.borrow_mut().begin(&blocks);
        let mut writing = ChecksumUpdate { checksums: self, blocks: blocks.clone(), started: None, is_done: false };
        if !self.table.borrow().is_stable(&blocks) {
            Box::pin(self.open(member, &blocks)).await?;
        }
        loop {
            let overgrown = self.table.borrow().overgrown(&blocks);
            let Some(page) = overgrown else { break };
            Box::pin(self.load(member, page)).await;
        }
        if self.table.borrow().changes_bytes() > self.memory.get().changes_bytes {
            Box::pin(self.write_back(member)).await;
        }
        writing.started = Some(self.table.borrow_mut().start(&blocks, leaves));
        Ok(writing)
    }

    /// Marks the regions of `blocks` as open on stable storage. Callers that wait for a running round
    /// share the next one.
    async fn open<M: Member>(&self, member: &M, blocks: &Range<u64>) -> Result<(), MemberError> {
        self.table.borrow_mut().want_open(blocks);
        let _lock = self.marking.exclusive(0..1).await;
        if self.table.borrow().is_stable(blocks) {
            return Ok(());
        }
        let open = self.table.borrow().open();
        self.write_open(member, &open).await?;
        if !mutant!("open-region-unflushed") {
            member.flush().await?;
        }
        self.table.borrow_mut().opened(open);
        Ok(())
    }

    async fn write_open<M: Member>(&self, member: &M, open: &Open) -> Result<(), MemberError> {
        let (at, page) = {
            let binding = self.header.borrow().binding();
            (self.table.borrow().layout().open_at(), self.pool.copy_of(&open.encode(&binding)))
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

    async fn write_headers<M: Member>(&self, member: &M) -> Result<(), MemberError> {
        let places = self.table.borrow().layout().headers_at();
        let page = self.pool.copy_of(&self.header.borrow().encode());
        let writes = join_all(places.map(|at| member.write(at, page.clone()))).await;
        writes.into_iter().collect::<Result<(), _>>()?;
        member.flush().await
    }

    /// Loads a page of the table. The checksums of an unreadable page are unknown.
    async fn load<M: Member>(&self, member: &M, page: u64) {
        if self.table.borrow().resident_pages() >= self.memory.get().pages {
            self.make_room(member).await;
        }
        let _lock = self.moving.exclusive(page..page + 1).await;
        if self.table.borrow().is_resident(page) {
            return;
        }
        let mut found = None;
        if self.table.borrow().is_stored(page) {
            let at = self.table.borrow().layout().page_at(page);
            let binding = self.header.borrow().binding();
            found = match read_page(member, &self.pool, at).await {
                Ok(bytes) => Page::decode(&bytes, &binding, page).map_err(|defect| defect.to_string()),
                Err(error) => Err(error.to_string()),
            }
            .inspect_err(|reason| self.log_lost_page(reason))
            .ok();
        }
        self.table.borrow_mut().insert(page, found);
    }

    /// Evicts pages that were not used lately, and writes dirty ones if that is not enough.
    async fn make_room<M: Member>(&self, member: &M) {
        let ChecksumMemory { pages, changes_bytes } = self.memory.get();
        let most = pages - pages.div_ceil(EVICTED_PART);
        self.table.borrow_mut().evict(most);
        if self.table.borrow().resident_pages() >= pages {
            let dirty = self.table.borrow().dirty_pages();
            // If the member has failed, its next write fails too and reports it; the pages stay.
            if self.write_pages(member, &dirty).await.is_ok() {
                self.table.borrow_mut().evict(most);
            }
        }
        if self.table.borrow().changes_bytes() > changes_bytes {
            self.write_back(member).await;
        }
    }

    /// Writes changes of pages that are not resident, in the order of the table, until their memory is below the limit.
    async fn write_back<M: Member>(&self, member: &M) {
        let most = self.memory.get().changes_bytes;
        let _lock = self.writing_back.exclusive(0..1).await;
        while self.table.borrow().changes_bytes() > most {
            let pages = self.table.borrow_mut().next_changed(PAGES_TOGETHER);
            if self.write_pages(member, &pages).await.is_err() {
                return; // as in `make_room`
            }
        }
    }

    /// Writes pages of the table; neighbouring pages share a transfer.
    async fn write_pages<M: Member>(&self, member: &M, pages: &[u64]) -> Result<(), MemberError> {
        let writes = stream::iter(runs(pages)).map(|run| self.write_run(member, run)).buffer_unordered(TRANSFERS);
        writes.collect::<Vec<_>>().await.into_iter().collect()
    }

    async fn write_run<M: Member>(&self, member: &M, run: Range<u64>) -> Result<(), MemberError> {
        let _lock = self.moving.exclusive(run.clone()).await;
        let mut buffer = self.pool.take((run.end - run.start) as usize * PAGE_BYTES);
        let is_needed = run.clone().any(|page| self.table.borrow().is_stored(page));
        if is_needed {
            buffer = self.read_run(member, &run, buffer).await;
        }
        // No await from here to the write.
        let at = self.table.borrow().layout().page_at(run.start);
        for (page, into) in run.clone().zip(buffer.chunks_exact_mut(PAGE_BYTES)) {
            let taken = self.table.borrow_mut().take_out(page, into);
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

    /// Begins the next period. Returns whether there are regions to close.
    pub(crate) fn next_period(&self) -> bool {
        let mut table = self.table.borrow_mut();
        table.next_period();
        table.has_idle(IDLE_PERIODS)
    }

    /// The number of regions that may be closed now.
    pub(crate) fn allowance(&self, at_rest: bool) -> u64 {
        self.table.borrow_mut().allowance(at_rest)
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
        left: &mut u64,
    ) -> Result<bool, MemberError> {
        if !self.announced.get() {
            if !self.table.borrow().has_changes() {
                return Ok(false); // the array is not in use yet, and nothing was written to it
            }
            // A check has filled in checksums: the header must name the superblock on the member.
            self.announce(member, Stamp::of(superblock), superblock).await?;
        }
        let periods = if closing == Closing::Idle { IDLE_PERIODS } else { 0 };
        let _lock = self.marking.exclusive(0..1).await;
        let together = REGIONS_TOGETHER.min(usize::try_from(*left).unwrap_or(usize::MAX));
        let picked = self.table.borrow_mut().pick_to_close(periods, together);
        let closed = self.close_picked(member, &picked).await;
        if closed.is_err() {
            self.table.borrow_mut().reopen(&picked);
        }
        *left -= picked.len() as u64;
        closed.map(|()| picked.len() == REGIONS_TOGETHER)
    }

    async fn close_picked<M: Member>(&self, member: &M, picked: &[u64]) -> Result<(), MemberError> {
        let mut pages = {
            // The table counts pages in flight as written, so their transfers must have ended.
            let _lock = self.moving.exclusive(0..u64::MAX).await;
            self.table.borrow().pages_to_close(picked)
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
            table.put_back(page);
            if !self.is_over {
                table.pin_open(page);
            }
        }
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

/// A block whose contents do not match its checksum.
#[derive(Debug)]
struct WrongBlock {
    at: u64,
}

impl std::fmt::Display for WrongBlock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the block at byte {} of the component does not match its checksum", self.at)
    }
}

impl std::error::Error for WrongBlock {}

async fn read_page<M: Member>(member: &M, pool: &Pool, at: MemberByte) -> Result<Vec<u8>, MemberError> {
    let (result, page) = member.read(at, pool.take(PAGE_BYTES)).await;
    result.map(|()| page.to_vec())
}
