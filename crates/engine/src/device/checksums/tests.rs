//! A table beside a member that is nothing but its contents: whatever is done, in
//! whatever order, and whenever the power goes or somebody else writes, no checksum is
//! known that is not that of the block.

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
    /// The write that began first is over, or failed.
    End(bool),
    Learn(Range<u64>),
    /// Of those that were idle for so many periods so many at the most.
    Close(u32, usize),
    Period,
    LetGo(usize),
    WriteDirty,
    /// Of so many pages in a row.
    WriteChanged(usize),
    /// The same, but the member fails; with some of the pages there, and others not.
    Fail(usize, u8),
    /// With some writes under way done, and others not.
    PowerGoes(u8),
    OthersWrite(Range<u64>, u8),
}

struct World {
    header: Header,
    layout: Layout,
    table: Table,
    // On the member.
    data: Vec<u8>,
    pages: Vec<[u8; PAGE_BYTES]>,
    open: Open,
    under_way: Vec<(Range<u64>, u8, u64)>,
}

fn sum(fill: u8) -> Checksum {
    Checksum::of(&[fill; 4096])
}

impl World {
    fn new() -> Self {
        let superblock = superblock();
        let layout = Layout::of(&superblock).expect("room");
        let header = Header::new(&superblock, &layout, 1);
        assert_eq!((layout.pages(), layout.regions()), (3, 3));
        Self {
            table: Table::new(layout, header.binding(), Open::none(), true),
            data: vec![0; layout.blocks() as usize],
            pages: vec![[0; PAGE_BYTES]; layout.pages() as usize],
            open: Open::none(),
            under_way: Vec::new(),
            header,
            layout,
        }
    }

    fn bring(&mut self, blocks: &Range<u64>) {
        while let Some(page) = self.table.missing(blocks) {
            let stored = self.table.is_stored(page).then(|| &self.pages[page as usize]);
            let page_there = stored.and_then(|bytes| Page::decode(bytes, &self.header.binding(), page).ok());
            self.table.insert(page, page_there);
        }
    }

    fn write(&mut self, pages: Vec<u64>) {
        for page in pages {
            self.table.take_out(page, &mut self.pages[page as usize]).expect("nothing is damaged here");
        }
    }

    fn fail_to_write(&mut self, pages: Vec<u64>, arrived: u8) {
        for page in pages {
            let mut copy = self.pages[page as usize];
            self.table.take_out(page, &mut copy).expect("nothing is damaged here");
            if arrived >> (page % 8) & 1 == 1 {
                self.pages[page as usize] = copy;
            }
            self.table.put_back(page);
        }
    }

    fn is_busy(&self, blocks: &Range<u64>) -> bool {
        self.under_way.iter().any(|(range, ..)| range.start < blocks.end && blocks.start < range.end)
    }

    fn put(&mut self, blocks: Range<u64>, fill: u8) {
        self.data[blocks.start as usize..blocks.end as usize].fill(fill);
    }

    fn start_anew(&mut self, trusted: bool) {
        self.under_way.clear();
        if !trusted {
            self.header.epoch += 1;
        }
        self.table = Table::new(self.layout, self.header.binding(), self.open.clone(), trusted);
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Begin(blocks, _) | Step::Learn(blocks) if self.is_busy(&blocks) => {}
            Step::Begin(blocks, fill) => {
                self.table.begin(&blocks);
                if !self.table.is_stable(&blocks) {
                    self.table.want_open(&blocks);
                    self.open = self.table.open();
                    self.table.opened(self.open.clone());
                }
                self.bring(&blocks);
                let leaves = WrittenChecksums::Blocks(blocks.clone().map(|_| sum(fill)).collect());
                let number = self.table.start(&blocks, leaves);
                self.under_way.push((blocks, fill, number));
            }
            Step::End(succeeds) => {
                if self.under_way.is_empty() {
                    return;
                }
                let (blocks, fill, number) = self.under_way.remove(0);
                let half = blocks.start..blocks.start.midpoint(blocks.end);
                self.put(if succeeds { blocks.clone() } else { half }, fill);
                self.table.end(&blocks, Some(number), succeeds);
            }
            Step::Learn(blocks) => {
                self.bring(&blocks);
                self.table.fill_unknown(blocks, |block| sum(self.data[block as usize]));
            }
            Step::Close(periods, most) => {
                let picked = self.table.pick_to_close(periods, most);
                let mut pages = self.table.pages_to_close(&picked);
                pages.extend(self.table.learned_pages());
                pages.sort_unstable();
                pages.dedup();
                self.write(pages);
                self.open = self.table.open();
            }
            Step::Period => self.table.next_period(),
            Step::LetGo(most) => self.table.let_go(most),
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
            Step::PowerGoes(done) => {
                for (index, (blocks, fill, _)) in std::mem::take(&mut self.under_way).into_iter().enumerate() {
                    if done >> (index % 8) & 1 == 1 {
                        self.put(blocks, fill);
                    }
                }
                self.start_anew(true);
            }
            Step::OthersWrite(blocks, fill) => {
                self.put(blocks, fill);
                self.start_anew(false);
            }
        }
    }

    /// Everything that is known, here or on the member, is right.
    fn check(&mut self) {
        self.bring(&(0..self.layout.blocks()));
        for block in 0..self.layout.blocks() {
            let known = self.table.get(block);
            assert!(known.is_none_or(|known| known == sum(self.data[block as usize])), "block {block}");
        }
    }
}

/// Near the pages' edges, so that steps meet.
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
        2 => blocks().prop_map(Step::Learn),
        3 => (0..3_u32, 0..3_usize).prop_map(|(periods, most)| Step::Close(periods, most)),
        2 => Just(Step::Period),
        4 => (0..3_usize).prop_map(Step::LetGo),
        2 => Just(Step::WriteDirty),
        2 => (1..3_usize).prop_map(Step::WriteChanged),
        1 => (1..3_usize, any::<u8>()).prop_map(|(row, arrived)| Step::Fail(row, arrived)),
        2 => any::<u8>().prop_map(Step::PowerGoes),
        1 => (blocks(), any::<u8>()).prop_map(|(blocks, fill)| Step::OthersWrite(blocks, fill)),
    ]
}

proptest! {
    #[test]
    fn no_checksum_is_known_that_is_not_the_block_s(steps in prop::collection::vec(step(), 1..60)) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
        }
        world.check();
        // And as whoever comes after a loss of power finds it.
        world.step(Step::PowerGoes(0x55));
        world.check();
    }
}

#[test]
fn what_was_written_before_a_clean_end_is_known_after_it() {
    let mut world = World::new();
    world.step(Step::Begin(1000..1050, 7));
    world.step(Step::End(true));
    world.step(Step::Close(0, usize::MAX));
    world.start_anew(true);
    world.bring(&(0..2000));
    let known: Vec<u64> = (0..2000).filter(|&block| world.table.get(block).is_some()).collect();
    assert_eq!(known, (1000..1050).collect::<Vec<_>>());
}

#[test]
fn what_was_written_before_the_power_went_is_not() {
    let mut world = World::new();
    world.step(Step::Begin(1000..1050, 7));
    world.step(Step::End(true));
    world.step(Step::WriteDirty);
    world.step(Step::PowerGoes(0));
    world.bring(&(0..2000));
    assert!((0..2000).all(|block| world.table.get(block).is_none()));
}

#[test]
fn what_changed_is_known_without_its_page_until_it_is_written_and_after_it() {
    let mut world = World::new();
    let is_known = |world: &mut World| {
        world.bring(&(1000..1050));
        (1000..1050).all(|block| world.table.get(block) == Some(sum(7)))
    };
    world.step(Step::Begin(1000..1050, 7));
    world.step(Step::LetGo(0));
    assert_eq!(world.table.here(), 0);
    world.step(Step::End(true));
    assert!(world.table.changes_bytes() > 0 && is_known(&mut world));
    assert_eq!(world.table.changes_bytes(), 0);
    world.step(Step::LetGo(0));
    world.step(Step::WriteChanged(2));
    assert_eq!((world.table.here(), world.table.changes_bytes(), world.table.has_changes()), (0, 0, false));
    assert!(is_known(&mut world));
}

#[test]
fn a_busy_array_closes_few_regions_and_those_first_that_were_idle_for_longest() {
    let mut world = World::new();
    for block in [0, 1100, 2200] {
        world.step(Step::Begin(block..block + 1, 7));
        world.step(Step::End(true));
        world.step(Step::Period);
    }
    assert_eq!(world.table.allowance(false), 0, "three writes pay for nothing");
    assert_eq!(world.table.pick_to_close(0, 2), [0, 1]);
    assert!(world.table.has_idle(1) && !world.table.has_idle(2), "the last one was written to a period ago");
    assert_eq!(world.table.allowance(true), u64::MAX);
}
