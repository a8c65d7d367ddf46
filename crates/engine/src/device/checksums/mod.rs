//! Checksums of a member's blocks: kept with every write, asked with every read.
//!
//! All of it is between a [`Device`](crate::device::Device) and its member, so whatever reads or writes
//! data, requests and sweeps alike, is covered. [`table`] is what is known; here it is
//! brought from and to the member. Format: [`format::integrity`].
//!
//! The order on the member, which the simulator cuts at every write:
//! * a region is noted as open, flushed, before the first write to a block of it;
//! * it is closed only after its pages of the table and the data itself are flushed,
//!   lazily, and while the array is busy few of them: see [`table`];
//! * the header names a superblock before that superblock is written, flushed.
//!
//! So after a loss of power the checksums of open regions are unknown and all
//! others right; and after anybody else has written, which the superblock
//! shows, all are unknown. They are learned again by writes and sweeps.

mod counts;
mod table;
mod transfers;

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

/// Which regions are to be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closing {
    /// Those that have been idle for some periods, one of which has just passed.
    Idle,
    /// All: nothing is being written any more.
    All,
}

/// What may be kept of a member's table in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChecksumMemory {
    /// Pages of 4 KiB, one at least; each is for 4 MiB of data.
    pub pages: usize,
    /// Bytes of checksums that changed and whose pages are not among these. As many as are spread over the table of a large
    /// member wait to be written in long transfers.
    pub changes_bytes: usize,
}

impl Default for ChecksumMemory {
    fn default() -> Self {
        Self { pages: 4096, changes_bytes: 16 << 20 }
    }
}

/// Where there are too many pages in memory, one of so many is let go of.
const PARTS_LET_GO: usize = 16;

/// Pages that are written as one transfer at the most.
const PAGES_TOGETHER: usize = 256;

/// So many pages between two that have changed are written with them: a transfer costs more.
const PAGES_BETWEEN: u64 = 16;

/// Transfers of pages that are under way at a time.
const TRANSFERS: usize = 8;

/// Regions that are closed as one: whoever wants to open one waits for it.
const REGIONS_TOGETHER: usize = 256;

/// When checksums are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Verify {
    /// With every read.
    #[default]
    Always,
    /// With the reads of sweeps alone.
    Scrub,
}

impl Verify {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::Scrub => "scrub",
        }
    }

    /// By its name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Always, Self::Scrub].into_iter().find(|verify| verify.name() == name)
    }
}

/// Checksums of one member.
pub(crate) struct Checksums {
    pool: Pool,
    table: RefCell<Table>,
    header: RefCell<Header>,
    /// Pages on their way, by number.
    moving: RangeLocks,
    /// Held while the header or the open regions are written.
    marking: RangeLocks,
    /// Held while changes are written because there are too many.
    relieving: RangeLocks,
    /// Whether they counted when they were found, or were made for a member that nobody had written to.
    trusted: Cell<bool>,
    /// A header was written since this was made: the member is in use.
    announced: Cell<bool>,
    verify: Cell<Verify>,
    memory: Cell<ChecksumMemory>,
    /// Blocks that were not what their checksum says, each counted once until it is written.
    wrong: Cell<u64>,
    counted: Counted,
    /// Raised whenever a write ends.
    written: Signal,
    /// Pages that could not be had and were named.
    lost_pages_logged: Cell<u32>,
}

/// What a write leaves behind.
#[derive(Debug)]
pub(crate) enum WrittenChecksums {
    Blocks(SmallVec<[Checksum; 16]>),
    Zeros,
}

impl WrittenChecksums {
    /// Of blocks one behind the other, each of whole blocks of 4 KiB.
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

/// That of a block of zeros.
static ZERO: LazyLock<Checksum> = LazyLock::new(|| Checksum::of(&[0; BLOCK_BYTES as usize]));

/// What [`Checksum::of`] says, sooner.
fn checksum(block: &[u8]) -> Checksum {
    Checksum::from_crc(parity::crc32c(block))
}

/// A write under way. Dropped without [`ChecksumUpdate::end`], it may be done in part, and what it changed is unknown.
pub(crate) struct ChecksumUpdate<'a> {
    checksums: &'a Checksums,
    blocks: Range<u64>,
    /// Its number in the table, once the member may be carrying it out.
    started: Option<u64>,
    is_done: bool,
}

impl ChecksumUpdate<'_> {
    /// The member has it.
    pub(crate) fn end(mut self) {
        self.is_done = true;
    }
}

impl Drop for ChecksumUpdate<'_> {
    fn drop(&mut self) {
        self.checksums.table.borrow_mut().end(&self.blocks, self.started, self.is_done);
        if self.is_done {
            // Not before: a reader beside the write may still find what was there, which was counted.
            self.checksums.counted.written(&self.blocks);
        }
        self.checksums.written.raise();
    }
}

/// The blocks of a range of a component, which is made of whole ones.
fn blocks(at: ComponentByte, bytes: u64) -> Range<u64> {
    debug_assert!((at.0 | bytes).is_multiple_of(BLOCK_BYTES), "transfers of an array with checksums are whole blocks");
    at.0 / BLOCK_BYTES..(at.0 + bytes) / BLOCK_BYTES
}

/// An epoch that no page of the table has: `now` is, since these are never older than it.
fn epoch(now: Duration, before: u64) -> u64 {
    (now.as_micros() as u64).max(before + 1)
}

impl Checksums {
    /// What `member` has, if anything. `now` is the wall clock's.
    ///
    /// # Errors
    /// When there are checksums and they cannot be used, nor added to.
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
            return Ok(None); // left by an array that was there before
        }
        header.check(superblock, &layout)?;
        check_apart_from_bitmap(member, superblock, &layout, pool).await?;
        let noted = read_page(member, pool, layout.open_at()).await;
        let trusted = header.vouches_for(superblock) && (mutant!("unread-regions-believed") || noted.is_ok());
        if !trusted {
            // With what could not be read too: it may be readable the next time, and say of today's writes what it says now.
            header.epoch = epoch(now, header.epoch);
        }
        let open = Open::decode(&noted.unwrap_or_else(|_| vec![0; PAGE_BYTES]), &header.binding());
        Ok(Some(Self::new(pool.clone(), layout, header, open, trusted)))
    }

    /// Puts a header on `member`, whose superblock is about to be written: checksums
    /// that know nothing yet.
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

    /// Puts checksums of zeros on `member`, for all of its blocks.
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
            relieving: RangeLocks::default(),
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

    /// The first byte that belongs to them.
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

    /// Whether something was learned or changed that no header stands for yet.
    pub(crate) fn has_unannounced_changes(&self) -> bool {
        !self.announced.get() && self.table.borrow().has_changes()
    }

    /// Whether nobody had written to the member without them when they were found.
    pub(crate) fn trusted(&self) -> bool {
        self.trusted.get()
    }

    /// What they do not know yet was never written by others: they are a new member's, which is recovered whole.
    pub(crate) fn trust(&self) {
        self.trusted.set(true);
    }

    /// Blocks in use of which nothing is known, and those of which it is not known yet whether anything is.
    pub(crate) fn unknown(&self) -> (u64, u64) {
        let table = self.table.borrow();
        (table.counts().unknown(), table.counts().uncounted())
    }

    /// Only so many bytes of the component are in use.
    pub(crate) fn use_bytes(&self, bytes: u64) {
        self.table.borrow_mut().use_blocks(bytes.div_ceil(BLOCK_BYTES));
    }

    /// Whether of any block in these bytes of the component something may be unknown.
    pub(crate) fn is_any_unknown(&self, bytes: &Range<u64>) -> bool {
        let blocks = bytes.start / BLOCK_BYTES..bytes.end.div_ceil(BLOCK_BYTES);
        self.table.borrow().counts().is_any_unknown(&blocks)
    }

    /// Looks at some pages of the table that were not counted yet; false when there was none.
    pub(crate) async fn survey<M: Member>(&self, member: &M) -> bool {
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

    /// Blocks that were found wrong, each counted once until it is written.
    pub(crate) fn wrong(&self) -> u64 {
        self.wrong.get()
    }

    /// Before a read that is to be held against `checksums`: those of what comes are asked for. Gives what
    /// [`Self::rewrites`] was.
    pub(crate) fn expect(checksums: Option<&Self>, into: &mut Buffer) -> u64 {
        let Some(checksums) = checksums else { return 0 };
        into.want_sums();
        checksums.rewrites()
    }

    /// After it: those of `checksums` that may have something against what was read.
    pub(crate) fn against<'a>(
        checksums: Option<&'a Self>,
        at: ComponentByte,
        result: &Result<(), MemberError>,
        read: &Buffer,
    ) -> Option<&'a Self> {
        checksums.filter(|checksums| result.is_ok() && !checksums.is_right(at, std::slice::from_ref(read)))
    }

    /// To be asked before a read, for the device to judge by.
    pub(crate) fn rewrites(&self) -> u64 {
        self.table.borrow().rewrites()
    }

    /// Brings in what is needed to judge a range.
    pub(crate) async fn prepare<M: Member>(&self, member: &M, at: ComponentByte, bytes: u64) {
        let blocks = blocks(at, bytes);
        while let Some(page) = self.missing(&blocks) {
            self.bring(member, page).await;
        }
    }

    /// Whether [`Self::prepare`] has nothing to do.
    pub(crate) fn is_prepared(&self, at: ComponentByte, bytes: u64) -> bool {
        self.missing(&blocks(at, bytes)).is_none()
    }

    fn missing(&self, blocks: &Range<u64>) -> Option<u64> {
        self.table.borrow().missing(blocks)
    }

    /// Whether all that is needed to judge what was read is here, and says nothing against it.
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

    /// The first block that is not what its checksum says.
    pub(crate) fn first_wrong(&self, at: ComponentByte, bytes: &[u8]) -> Option<u64> {
        self.table.borrow_mut().first_wrong(at.0 / BLOCK_BYTES, bytes, &[], BLOCK_BYTES as usize)
    }

    /// The same of what was read into several buffers, whose checksums may have been taken on the way.
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

    /// Of how many blocks of a range nothing is known.
    pub(crate) async fn unknown_in<M: Member>(&self, member: &M, at: ComponentByte, bytes: u64) -> u64 {
        self.prepare(member, at, bytes).await;
        let table = self.table.borrow();
        blocks(at, bytes).filter(|block| table.get(*block).is_none()).count() as u64
    }

    /// Whether something is known of every block of a range.
    pub(crate) fn knows(&self, at: ComponentByte, bytes: u64) -> bool {
        let table = self.table.borrow();
        blocks(at, bytes).all(|block| table.get(block).is_some())
    }

    /// What is known of a block, if anything.
    pub(crate) fn get(&self, block: u64) -> Option<Checksum> {
        self.table.borrow().get(block)
    }

    /// The error of a read that found `block` wrong.
    pub(crate) fn checksum_mismatch(&self, at: MemberByte, bytes: u64, block: u64) -> MemberError {
        if self.counted.add(block..block + 1) || mutant!("block-counted-twice") {
            self.wrong.set(self.wrong.get() + 1);
        }
        let source = std::rc::Rc::new(WrongBlock { at: block * BLOCK_BYTES });
        MemberFault { kind: MemberErrorKind::Corrupt, operation: Operation::Read, at, bytes, source }.into()
    }

    /// Takes in what blocks hold that a sweep found in agreement with all others; how many were not known.
    /// The caller keeps writes off them.
    pub(crate) async fn fill_unknown<M: Member>(&self, member: &M, at: ComponentByte, data: &[u8]) -> u64 {
        self.prepare(member, at, data.len() as u64).await;
        let block = |number: u64| {
            let start = (number * BLOCK_BYTES - at.0) as usize;
            checksum(&data[start..start + BLOCK_BYTES as usize])
        };
        self.table.borrow_mut().fill_unknown(blocks(at, data.len() as u64), block)
    }

    /// Whether a write of a block is under way: a reader may have found what there is for a moment only, or a part of it.
    pub(crate) fn is_being_written(&self, block: u64) -> bool {
        self.table.borrow().is_being_written(block)
    }

    /// Returns when no write of a block is under way.
    pub(crate) async fn written(&self, block: u64) {
        loop {
            let seen = self.written.seen();
            if !self.is_being_written(block) {
                return;
            }
            self.written.changed_since(seen).await;
        }
    }

    /// Before a write: its blocks may be what they were or what it leaves until it has ended; on the member, should the
    /// power go, they are unknown. Their pages of the table need not be here.
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
            let outgrown = self.table.borrow().outgrown(&blocks);
            let Some(page) = outgrown else { break };
            Box::pin(self.bring(member, page)).await;
        }
        if self.table.borrow().changes_bytes() > self.memory.get().changes_bytes {
            Box::pin(self.relieve(member)).await;
        }
        writing.started = Some(self.table.borrow_mut().start(&blocks, leaves));
        Ok(writing)
    }

    /// Returns when the member says on stable storage that the regions of these blocks are open. Those
    /// that wait for one round share the next.
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

    /// Before a superblock is written: the header stands for it, and for the one that it replaces.
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

    /// Brings a page of the table in. One that cannot be had knows nothing.
    async fn bring<M: Member>(&self, member: &M, page: u64) {
        if self.table.borrow().here() >= self.memory.get().pages {
            self.make_room(member).await;
        }
        let _lock = self.moving.exclusive(page..page + 1).await;
        if self.table.borrow().is_here(page) {
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

    /// Lets go of pages that were not used lately, and writes some out if that is not enough.
    async fn make_room<M: Member>(&self, member: &M) {
        let ChecksumMemory { pages, changes_bytes } = self.memory.get();
        let most = pages - pages.div_ceil(PARTS_LET_GO);
        self.table.borrow_mut().let_go(most);
        if self.table.borrow().here() >= pages {
            let dirty = self.table.borrow().dirty_pages();
            // A member that fails here fails its next write as well; the pages wait.
            if self.write_pages(member, &dirty).await.is_ok() {
                self.table.borrow_mut().let_go(most);
            }
        }
        if self.table.borrow().changes_bytes() > changes_bytes {
            self.relieve(member).await;
        }
    }

    /// Writes changes whose pages are not here, those that follow each other in the table, until there are few enough.
    async fn relieve<M: Member>(&self, member: &M) {
        let most = self.memory.get().changes_bytes;
        let _lock = self.relieving.exclusive(0..1).await;
        while self.table.borrow().changes_bytes() > most {
            let pages = self.table.borrow_mut().next_changed(PAGES_TOGETHER);
            if self.write_pages(member, &pages).await.is_err() {
                return; // as above
            }
        }
    }

    /// Writes pages of the table, those that lie close together as one transfer.
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
        // From here to the write nothing waits.
        let at = self.table.borrow().layout().page_at(run.start);
        for (page, into) in run.clone().zip(buffer.chunks_exact_mut(PAGE_BYTES)) {
            let taken = self.table.borrow_mut().take_out(page, into);
            let _ = taken.inspect_err(|defect| self.log_lost_page(defect));
        }
        let mut sent = Sent { table: &self.table, pages: run, is_over: false };
        let written = member.write(at, buffer.freeze()).await;
        sent.is_over = true;
        if written.is_ok() {
            sent.pages = 0..0;
        }
        written
    }

    /// Reads pages of the table; one that cannot be had is zeros, which know nothing.
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

    /// Of the first pages that cannot be had a word goes to whoever serves the array; a table that was never written is full of
    /// such.
    fn log_lost_page(&self, reason: &dyn std::fmt::Display) {
        let lost_pages_logged = self.lost_pages_logged.get();
        match lost_pages_logged.cmp(&LOST_PAGES_LOGGED) {
            Ordering::Less => tracing::warn!("checksums: {reason}; {LEARNED_AGAIN}"),
            Ordering::Equal => tracing::warn!("checksums: further pages like these are not listed; {LEARNED_AGAIN}"),
            Ordering::Greater => return,
        }
        self.lost_pages_logged.set(lost_pages_logged + 1);
    }

    /// A period has passed; whether there are regions to be closed.
    pub(crate) fn next_period(&self) -> bool {
        let mut table = self.table.borrow_mut();
        table.next_period();
        table.has_idle(IDLE_PERIODS)
    }

    /// How many regions may be closed now.
    pub(crate) fn allowance(&self, at_rest: bool) -> u64 {
        self.table.borrow_mut().allowance(at_rest)
    }

    /// Closes some of the regions that may be, `left` at the most, and learned checksums are on the member afterwards, if it
    /// is flushed. Whether there may be more. `superblock` is the member's.
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
            // A check has learned something: from here on the header stands for the superblock that is there.
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
            // What others are just writing counts as written: that has to be so.
            let _lock = self.moving.exclusive(0..u64::MAX).await;
            self.table.borrow().pages_to_close(picked)
        };
        pages.extend(self.table.borrow().learned_pages());
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

/// Pages that go to the member as one transfer, and those between them.
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

/// What is said of checksums that were lost.
const LEARNED_AGAIN: &str = "they are unknown until they are learned";

/// How many pages that cannot be had are named.
const LOST_PAGES_LOGGED: u32 = 3;

/// Pages on their way to a member. Dropped before they are there, they are put back; and if nobody waits any more for
/// a write that may yet end, after a later one, no region that it touches is closed.
struct Sent<'a> {
    table: &'a RefCell<Table>,
    pages: Range<u64>,
    is_over: bool,
}

impl Drop for Sent<'_> {
    fn drop(&mut self) {
        let mut table = self.table.borrow_mut();
        for page in self.pages.clone() {
            table.put_back(page);
            if !self.is_over {
                table.stay_open(page);
            }
        }
    }
}

/// How long a bitmap is stands only in its own superblock. One that was added by others may be longer than expected.
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
            format!("the bitmap ends at byte {end}, over the room for checksums"),
        )),
    }
}

/// A block that is not what was last written there.
#[derive(Debug)]
struct WrongBlock {
    at: u64,
}

impl std::fmt::Display for WrongBlock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the block at byte {} of the component is not what its checksum says", self.at)
    }
}

impl std::error::Error for WrongBlock {}

async fn read_page<M: Member>(member: &M, pool: &Pool, at: MemberByte) -> Result<Vec<u8>, MemberError> {
    let (result, page) = member.read(at, pool.take(PAGE_BYTES)).await;
    result.map(|()| page.to_vec())
}
