//! The checksums of one member, as its transfers use them: verified with every read, updated with every write.
//!
//! It reads and writes nothing of the member by itself: [`super::marks`] and [`super::pages`] do.

use crate::base::buffer::{Buffer, Pool};
use crate::base::notify::Signal;
use crate::base::range_lock::RangeLocks;
use crate::device::checksums::entries::parts;
use crate::device::checksums::settings::{ChecksumMemory, Verify};
use crate::device::checksums::table::Table;
use crate::device::checksums::written::{WrittenChecksums, checksum};
use crate::device::counted::Counted;
use crate::seam::member::{Member, MemberError, MemberErrorKind, MemberFault, Operation};
use format::integrity::{BLOCK_BYTES, Checksum, Header, Layout, Open};
use format::units::{ComponentByte, MemberByte};
use std::cell::{Cell, RefCell};
use std::ops::Range;

/// Checksums of one member.
pub(crate) struct Checksums {
    pub(super) pool: Pool,
    pub(super) table: RefCell<Table>,
    pub(super) header: RefCell<Header>,
    /// Locks pages of the table during their transfers, by number.
    pub(super) moving: RangeLocks,
    /// Held while the header or the open regions are written.
    pub(super) marking: RangeLocks,
    /// Held while excess changes are written.
    pub(super) writing_back: RangeLocks,
    /// Whether the checksums found were valid, or were created for a member without earlier writes.
    trusted: Cell<bool>,
    /// Whether a header was written since assembly, so that the member is in use.
    pub(super) announced: Cell<bool>,
    verify: Cell<Verify>,
    pub(super) memory: Cell<ChecksumMemory>,
    /// Blocks that did not match their checksum, each counted once until it is written.
    wrong: Cell<u64>,
    counted: Counted,
    /// Raised whenever a write ends.
    written: Signal,
    /// The number of unreadable pages that were logged.
    pub(super) lost_pages_logged: Cell<u32>,
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

impl Checksums {
    pub(super) fn new(pool: Pool, layout: Layout, header: Header, open: Open, trusted: bool) -> Self {
        let binding = header.binding();
        Self {
            pool,
            table: RefCell::new(Table::new(layout, binding, open, header.touched.clone(), trusted)),
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

    pub(crate) fn layout(&self) -> Layout {
        *self.table.borrow().layout()
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
        !self.announced.get() && self.table.borrow().entries().has_changes()
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
        (table.entries().counts().unknown(), table.entries().counts().uncounted())
    }

    /// Limits the counts to the first `bytes` of the component.
    pub(crate) fn use_bytes(&self, bytes: u64) {
        self.table.borrow_mut().entries_mut().counts_mut().use_blocks(bytes.div_ceil(BLOCK_BYTES));
    }

    /// Whether any checksum of these component bytes may be unknown.
    pub(crate) fn is_any_unknown(&self, bytes: &Range<u64>) -> bool {
        let blocks = bytes.start / BLOCK_BYTES..bytes.end.div_ceil(BLOCK_BYTES);
        self.table.borrow().entries().counts().is_any_unknown(&blocks)
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

    /// After the read: `checksums`, if they do not confirm the data at once. Inlined, because most members have none.
    #[inline(always)]
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
        self.table.borrow().entries().missing(blocks)
    }

    /// Whether all pages needed to verify the data were read, and no checksum contradicts it.
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
        blocks(at, bytes).filter(|block| table.entries().get(*block).is_none()).count() as u64
    }

    /// Whether the checksum of every block of a range is known.
    pub(crate) fn knows(&self, at: ComponentByte, bytes: u64) -> bool {
        let table = self.table.borrow();
        blocks(at, bytes).all(|block| table.entries().get(block).is_some())
    }

    /// The checksum of a block, if it is known.
    pub(crate) fn get(&self, block: u64) -> Option<Checksum> {
        self.table.borrow().entries().get(block)
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
        let block = |number: u64| {
            let start = (number * BLOCK_BYTES - at.0) as usize;
            checksum(&data[start..start + BLOCK_BYTES as usize])
        };
        let mut filled = 0;
        for (_, part) in parts(&blocks(at, data.len() as u64)) {
            let next = || self.table.borrow().page_to_fill(&part);
            while let Some(page) = next() {
                self.load(member, page).await;
            }
            filled += self.table.borrow_mut().fill_unknown(part, block);
        }
        filled
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
            let overgrown = self.table.borrow().entries().overgrown(&blocks);
            let Some(page) = overgrown else { break };
            Box::pin(self.load(member, page)).await;
        }
        if self.table.borrow().entries().changes_bytes() > self.memory.get().changes_bytes {
            Box::pin(self.write_back(member)).await;
        }
        writing.started = Some(self.table.borrow_mut().start(&blocks, leaves));
        Ok(writing)
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
