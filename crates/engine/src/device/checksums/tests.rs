//! Tests the table against a model member that consists of its contents. After any
//! sequence of steps, power losses and writes by other software included, every known
//! checksum is that of its block.

use super::{Table, WrittenChecksums};
use format::integrity::{Checksum, Header, Layout, Open, PAGE_BYTES, Page, Touched};
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
    /// Closes regions idle for the periods of the first number, at most as many as the second, and writes at most as
    /// many blank pages as the third.
    Close(u32, usize, usize),
    Period,
    Evict(usize),
    WriteDirty,
    /// Writes the changed pages in a row of this length.
    WriteChanged(u64),
    /// The same, but the member fails. The bits tell which pages have arrived.
    Fail(u64, u8),
    /// The bits tell which writes in flight are done.
    PowerLoss(u8),
    /// Power is lost when a region's area is touched on the member, and the region is not yet open.
    Touch(Range<u64>),
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
    touched: Touched,
    in_flight: Vec<(Range<u64>, u8, u64)>,
}

fn sum(fill: u8) -> Checksum {
    Checksum::of(&[fill; 4096])
}

impl Model {
    /// A member of zeros. Only if it is blank, its checksums are known.
    fn new(is_blank: bool) -> Self {
        let superblock = superblock();
        let layout = Layout::of(&superblock).expect("the layout fits");
        let header = Header::new(&superblock, &layout, 1);
        assert_eq!((layout.pages(), layout.regions()), (3, 3));
        let touched = if is_blank { layout.blank() } else { Touched::all() };
        Self {
            table: Table::new(layout, header.binding(), Open::none(), touched.clone(), true),
            data: vec![0; layout.blocks() as usize],
            pages: vec![[0; PAGE_BYTES]; layout.pages() as usize],
            open: Open::none(),
            touched,
            in_flight: Vec::new(),
            header,
            layout,
        }
    }

    fn load(&mut self, blocks: &Range<u64>) {
        while let Some(page) = self.table.entries().missing(blocks) {
            let stored = self.table.entries().is_stored(page).then(|| &self.pages[page as usize]);
            let page_there = stored.and_then(|bytes| Page::decode(bytes, &self.header.binding(), page).ok());
            self.table.entries_mut().insert(page, page_there);
        }
    }

    fn write(&mut self, pages: Vec<u64>) {
        for page in pages {
            self.table.entries_mut().take_out(page, &mut self.pages[page as usize]).expect("no page is damaged");
        }
    }

    fn fail_to_write(&mut self, pages: Vec<u64>, arrived: u8) {
        for page in pages {
            let mut copy = self.pages[page as usize];
            self.table.entries_mut().take_out(page, &mut copy).expect("no page is damaged");
            if arrived >> (page % 8) & 1 == 1 {
                self.pages[page as usize] = copy;
            }
            self.table.entries_mut().put_back(page);
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
            self.touched = Touched::all();
        }
        let (open, touched) = (self.open.clone(), self.touched.clone());
        self.table = Table::new(self.layout, self.header.binding(), open, touched, trusted);
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Begin(blocks, _) | Step::FillUnknown(blocks) if self.is_busy(&blocks) => {}
            Step::Begin(blocks, fill) => {
                self.table.begin(&blocks);
                if !self.table.is_stable(&blocks) {
                    self.table.want_open(&blocks);
                    self.touched = self.table.touched().clone();
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
            Step::Close(periods, most, mut blank_left) => {
                // The header is written before.
                self.touched = self.table.touched().clone();
                let picked = self.table.pick_to_close(periods, most);
                let mut pages = self.table.pages_to_close(&picked, &mut blank_left);
                pages.extend(self.table.filled_pages());
                pages.sort_unstable();
                pages.dedup();
                self.write(pages);
                self.open = self.table.open();
            }
            Step::Period => self.table.next_period(),
            Step::Evict(most) => self.table.entries_mut().evict(most),
            Step::WriteDirty => self.write(self.table.entries().dirty_pages()),
            Step::WriteChanged(row) => {
                let pages = self.table.entries_mut().next_changed(row);
                self.write(pages);
            }
            Step::Fail(row, arrived) => {
                let pages = self.table.entries_mut().next_changed(row);
                self.fail_to_write(pages, arrived);
                self.fail_to_write(self.table.entries().dirty_pages(), arrived);
            }
            Step::PowerLoss(done) => {
                for (index, (blocks, fill, _)) in std::mem::take(&mut self.in_flight).into_iter().enumerate() {
                    if done >> (index % 8) & 1 == 1 {
                        self.put(blocks, fill);
                    }
                }
                self.reassemble(true);
            }
            Step::Touch(blocks) => {
                self.table.want_open(&blocks);
                self.touched = self.table.touched().clone();
                self.step(Step::PowerLoss(0));
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
            let known = self.table.entries().get(block);
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
        3 => (0..3_u32, 0..3_usize, 0..3_usize).prop_map(|(periods, most, blank)| Step::Close(periods, most, blank)),
        2 => Just(Step::Period),
        4 => (0..3_usize).prop_map(Step::Evict),
        2 => Just(Step::WriteDirty),
        2 => (1..3_u64).prop_map(Step::WriteChanged),
        1 => (1..3_u64, any::<u8>()).prop_map(|(row, arrived)| Step::Fail(row, arrived)),
        2 => any::<u8>().prop_map(Step::PowerLoss),
        1 => blocks().prop_map(Step::Touch),
        1 => (blocks(), any::<u8>()).prop_map(|(blocks, fill)| Step::ForeignWrite(blocks, fill)),
    ]
}

proptest! {
    #[test]
    fn every_known_checksum_is_that_of_its_block(is_blank: bool, steps in prop::collection::vec(step(), 1..60)) {
        let mut model = Model::new(is_blank);
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
    let mut model = Model::new(false);
    model.step(Step::Begin(1000..1050, 7));
    model.step(Step::End(true));
    model.step(Step::Close(0, usize::MAX, usize::MAX));
    model.reassemble(true);
    model.load(&(0..2000));
    let known: Vec<u64> = (0..2000).filter(|&block| model.table.entries().get(block).is_some()).collect();
    assert_eq!(known, (1000..1050).collect::<Vec<_>>());
}

#[test]
fn a_blank_member_needs_no_table_until_it_is_written_and_then_that_of_the_area_alone() {
    let mut model = Model::new(true);
    let known =
        |model: &Model| (0..model.layout.blocks()).filter(|block| model.table.entries().get(*block).is_some()).count();
    let all = model.layout.blocks() as usize;
    assert_eq!((known(&model), model.table.entries().resident_pages()), (all, 0));
    assert_eq!(model.table.entries().counts().uncounted(), 0, "nothing is read to count them");
    // The first two regions are one area.
    model.step(Step::Begin(1000..1010, 7));
    model.step(Step::End(true));
    model.step(Step::Close(0, usize::MAX, usize::MAX));
    assert!(model.pages.iter().map(|page| page.iter().any(|byte| *byte != 0)).eq([true, true, false]));
    model.check();
    model.reassemble(true);
    model.check();
    assert_eq!(known(&model), all, "those of zeros, too");
    // A stop that would take too long writes no blank pages, and their checksums are learned later.
    let mut model = Model::new(true);
    model.step(Step::Begin(1000..1010, 7));
    model.step(Step::End(true));
    model.step(Step::Close(0, usize::MAX, 0));
    model.reassemble(true);
    model.check();
    assert_eq!(known(&model), all - 1020, "the written page, and the untouched area");
}

#[test]
fn checksums_of_open_regions_are_unknown_after_a_power_loss() {
    let mut model = Model::new(false);
    model.step(Step::Begin(1000..1050, 7));
    model.step(Step::End(true));
    model.step(Step::WriteDirty);
    model.step(Step::PowerLoss(0));
    model.load(&(0..2000));
    assert!((0..2000).all(|block| model.table.entries().get(block).is_none()));
}

#[test]
fn a_change_is_known_without_its_page_before_and_after_its_write() {
    let mut model = Model::new(false);
    let is_known = |model: &mut Model| {
        model.load(&(1000..1050));
        (1000..1050).all(|block| model.table.entries().get(block) == Some(sum(7)))
    };
    model.step(Step::Begin(1000..1050, 7));
    model.step(Step::Evict(0));
    assert_eq!(model.table.entries().resident_pages(), 0);
    model.step(Step::End(true));
    assert!(model.table.entries().changes_bytes() > 0 && is_known(&mut model));
    assert_eq!(model.table.entries().changes_bytes(), 0);
    model.step(Step::Evict(0));
    model.step(Step::WriteChanged(2));
    assert_eq!(
        (
            model.table.entries().resident_pages(),
            model.table.entries().changes_bytes(),
            model.table.entries().has_changes()
        ),
        (0, 0, false)
    );
    assert!(is_known(&mut model));
}

#[test]
fn a_busy_array_closes_few_regions_and_the_longest_idle_ones_first() {
    let mut model = Model::new(false);
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
