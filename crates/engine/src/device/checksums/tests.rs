//! Tests the table against a model member that consists of its contents. After any
//! sequence of steps, power losses and writes by other software included, every known
//! checksum is that of its block.

use super::{Table, WrittenChecksums};
use format::integrity::{Checksum, Header, Layout, Open, PAGE_BYTES, Page};
use format::placement::{BitmapChoice, Request, place};
use format::superblock::{Blueprint, DeviceRole, Resync, SetName, Superblock, Timestamp, Version};
use format::units::{DeviceNumber, Sectors, Slot};
use proptest::prelude::*;
use std::ops::Range;

/// Blocks of the member: three pages of the table, the last not full.
const BLOCKS: u64 = 2500;

fn superblock() -> Superblock {
    let request = Request {
        version: Version::V1_2,
        level: format::geometry::Level::Raid1,
        layout: 0,
        raid_disks: 1,
        chunk_bytes: 0,
        data_offset: None,
        component: Some(Sectors(BLOCKS / 16 * 16 * 8)),
        bitmap: BitmapChoice::None,
        parity_log: false,
        bad_block_log: true,
        integrity: true,
    };
    let bytes = 32 << 20;
    let placement = place(&request, &[bytes]).expect("it fits").remove(0);
    let blueprint = Blueprint {
        version: Version::V1_2,
        set_uuid: [1; 16],
        set_name: SetName::new("table").expect("short"),
        created: Timestamp { seconds: 1, micros: 1 },
        level: request.level,
        layout: 0,
        raid0_layout: false,
        chunk: Sectors(0),
        raid_disks: 1,
        roles: vec![DeviceRole::Active(Slot(0))],
        resync: Resync::Clean,
        logical_block_bytes: 0,
    };
    Superblock::new(&blueprint, &placement, DeviceNumber(0), [2; 16], bytes).expect("it fits")
}

#[derive(Debug, Clone)]
enum Step {
    Begin(Range<u64>, u8),
    /// The oldest write in flight ends; false when it fails.
    End(bool),
    FillUnknown(Range<u64>),
    /// Closes regions idle for the periods of the first number, at most as many as the second.
    Close(u32, usize),
    Period,
    Evict(usize),
    WriteDirty,
    /// Writes the changed pages in a row of this length.
    WriteChanged(usize),
    /// The same, but the member fails. The bits tell which pages have arrived.
    Fail(usize, u8),
    /// The bits tell which writes in flight are done.
    PowerLoss(u8),
    ForeignWrite(Range<u64>, u8),
}

struct Model {
    header: Header,
    layout: Layout,
    table: Table,
    // On the member.
    data: Vec<u8>,
    pages: Vec<[u8; PAGE_BYTES]>,
    open: Open,
    in_flight: Vec<(Range<u64>, u8, u64)>,
}

fn sum(fill: u8) -> Checksum {
    Checksum::of(&[fill; 4096])
}

impl Model {
    fn new() -> Self {
        let superblock = superblock();
        let layout = Layout::of(&superblock).expect("the layout fits");
        let header = Header::new(&superblock, &layout, 1);
        assert_eq!((layout.pages(), layout.regions()), (3, 3));
        Self {
            table: Table::new(layout, header.binding(), Open::none(), true),
            data: vec![0; layout.blocks() as usize],
            pages: vec![[0; PAGE_BYTES]; layout.pages() as usize],
            open: Open::none(),
            in_flight: Vec::new(),
            header,
            layout,
        }
    }

    fn load(&mut self, blocks: &Range<u64>) {
        while let Some(page) = self.table.missing(blocks) {
            let stored = self.table.is_stored(page).then(|| &self.pages[page as usize]);
            let page_there = stored.and_then(|bytes| Page::decode(bytes, &self.header.binding(), page).ok());
            self.table.insert(page, page_there);
        }
    }

    fn write(&mut self, pages: Vec<u64>) {
        for page in pages {
            self.table.take_out(page, &mut self.pages[page as usize]).expect("no page is damaged");
        }
    }

    fn fail_to_write(&mut self, pages: Vec<u64>, arrived: u8) {
        for page in pages {
            let mut copy = self.pages[page as usize];
            self.table.take_out(page, &mut copy).expect("no page is damaged");
            if arrived >> (page % 8) & 1 == 1 {
                self.pages[page as usize] = copy;
            }
            self.table.put_back(page);
        }
    }

    fn is_busy(&self, blocks: &Range<u64>) -> bool {
        self.in_flight.iter().any(|(range, ..)| range.start < blocks.end && blocks.start < range.end)
    }

    fn put(&mut self, blocks: Range<u64>, fill: u8) {
        self.data[blocks.start as usize..blocks.end as usize].fill(fill);
    }

    fn reassemble(&mut self, trusted: bool) {
        self.in_flight.clear();
        if !trusted {
            self.header.epoch += 1;
        }
        self.table = Table::new(self.layout, self.header.binding(), self.open.clone(), trusted);
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Begin(blocks, _) | Step::FillUnknown(blocks) if self.is_busy(&blocks) => {}
            Step::Begin(blocks, fill) => {
                self.table.begin(&blocks);
                if !self.table.is_stable(&blocks) {
                    self.table.want_open(&blocks);
                    self.open = self.table.open();
                    self.table.opened(self.open.clone());
                }
                self.load(&blocks);
                let leaves = WrittenChecksums::Blocks(blocks.clone().map(|_| sum(fill)).collect());
                let number = self.table.start(&blocks, leaves);
                self.in_flight.push((blocks, fill, number));
            }
            Step::End(succeeds) => {
                if self.in_flight.is_empty() {
                    return;
                }
                let (blocks, fill, number) = self.in_flight.remove(0);
                let half = blocks.start..blocks.start.midpoint(blocks.end);
                self.put(if succeeds { blocks.clone() } else { half }, fill);
                self.table.end(&blocks, Some(number), succeeds);
            }
            Step::FillUnknown(blocks) => {
                self.load(&blocks);
                self.table.fill_unknown(blocks, |block| sum(self.data[block as usize]));
            }
            Step::Close(periods, most) => {
                let picked = self.table.pick_to_close(periods, most);
                let mut pages = self.table.pages_to_close(&picked);
                pages.extend(self.table.filled_pages());
                pages.sort_unstable();
                pages.dedup();
                self.write(pages);
                self.open = self.table.open();
            }
            Step::Period => self.table.next_period(),
            Step::Evict(most) => self.table.evict(most),
            Step::WriteDirty => self.write(self.table.dirty_pages()),
            Step::WriteChanged(row) => {
                let pages = self.table.next_changed(row);
                self.write(pages);
            }
            Step::Fail(row, arrived) => {
                let pages = self.table.next_changed(row);
                self.fail_to_write(pages, arrived);
                self.fail_to_write(self.table.dirty_pages(), arrived);
            }
            Step::PowerLoss(done) => {
                for (index, (blocks, fill, _)) in std::mem::take(&mut self.in_flight).into_iter().enumerate() {
                    if done >> (index % 8) & 1 == 1 {
                        self.put(blocks, fill);
                    }
                }
                self.reassemble(true);
            }
            Step::ForeignWrite(blocks, fill) => {
                self.put(blocks, fill);
                self.reassemble(false);
            }
        }
    }

    /// Asserts that all known checksums, in memory and on the member, are right.
    fn check(&mut self) {
        self.load(&(0..self.layout.blocks()));
        for block in 0..self.layout.blocks() {
            let known = self.table.get(block);
            assert!(known.is_none_or(|known| known == sum(self.data[block as usize])), "block {block}");
        }
    }
}

/// Ranges near the edges of pages, so that steps overlap.
fn blocks() -> impl Strategy<Value = Range<u64>> {
    (0..3_u64, 0..8_u64, 1..6_u64, any::<bool>()).prop_map(|(page, at, count, is_long)| {
        let start = (page * 1020 + 1014 + at) % (BLOCKS / 16 * 16 - 1100);
        start..start + if is_long { count * 200 } else { count }
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (blocks(), any::<u8>()).prop_map(|(blocks, fill)| Step::Begin(blocks, fill)),
        6 => any::<bool>().prop_map(|failed| Step::End(!failed)),
        2 => blocks().prop_map(Step::FillUnknown),
        3 => (0..3_u32, 0..3_usize).prop_map(|(periods, most)| Step::Close(periods, most)),
        2 => Just(Step::Period),
        4 => (0..3_usize).prop_map(Step::Evict),
        2 => Just(Step::WriteDirty),
        2 => (1..3_usize).prop_map(Step::WriteChanged),
        1 => (1..3_usize, any::<u8>()).prop_map(|(row, arrived)| Step::Fail(row, arrived)),
        2 => any::<u8>().prop_map(Step::PowerLoss),
        1 => (blocks(), any::<u8>()).prop_map(|(blocks, fill)| Step::ForeignWrite(blocks, fill)),
    ]
}

proptest! {
    #[test]
    fn every_known_checksum_is_that_of_its_block(steps in prop::collection::vec(step(), 1..60)) {
        let mut model = Model::new();
        for step in steps {
            model.step(step);
        }
        model.check();
        // Again as an assembly after a power loss finds it.
        model.step(Step::PowerLoss(0x55));
        model.check();
    }
}

#[test]
fn checksums_written_before_a_clean_stop_are_known_after_it() {
    let mut model = Model::new();
    model.step(Step::Begin(1000..1050, 7));
    model.step(Step::End(true));
    model.step(Step::Close(0, usize::MAX));
    model.reassemble(true);
    model.load(&(0..2000));
    let known: Vec<u64> = (0..2000).filter(|&block| model.table.get(block).is_some()).collect();
    assert_eq!(known, (1000..1050).collect::<Vec<_>>());
}

#[test]
fn checksums_of_open_regions_are_unknown_after_a_power_loss() {
    let mut model = Model::new();
    model.step(Step::Begin(1000..1050, 7));
    model.step(Step::End(true));
    model.step(Step::WriteDirty);
    model.step(Step::PowerLoss(0));
    model.load(&(0..2000));
    assert!((0..2000).all(|block| model.table.get(block).is_none()));
}

#[test]
fn a_change_is_known_without_its_page_before_and_after_its_write() {
    let mut model = Model::new();
    let is_known = |model: &mut Model| {
        model.load(&(1000..1050));
        (1000..1050).all(|block| model.table.get(block) == Some(sum(7)))
    };
    model.step(Step::Begin(1000..1050, 7));
    model.step(Step::Evict(0));
    assert_eq!(model.table.resident_pages(), 0);
    model.step(Step::End(true));
    assert!(model.table.changes_bytes() > 0 && is_known(&mut model));
    assert_eq!(model.table.changes_bytes(), 0);
    model.step(Step::Evict(0));
    model.step(Step::WriteChanged(2));
    assert_eq!((model.table.resident_pages(), model.table.changes_bytes(), model.table.has_changes()), (0, 0, false));
    assert!(is_known(&mut model));
}

#[test]
fn a_busy_array_closes_few_regions_and_the_longest_idle_ones_first() {
    let mut model = Model::new();
    for block in [0, 1100, 2200] {
        model.step(Step::Begin(block..block + 1, 7));
        model.step(Step::End(true));
        model.step(Step::Period);
    }
    assert_eq!(model.table.allowance(false), 0, "three writes allow no closing");
    assert_eq!(model.table.pick_to_close(0, 2), [0, 1]);
    assert!(model.table.has_idle(1) && !model.table.has_idle(2), "the last region was written a period ago");
    assert_eq!(model.table.allowance(true), u64::MAX);
}
