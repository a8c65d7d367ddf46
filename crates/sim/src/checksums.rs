//! Checks each block of a member against its checksum. The rules of validity are stated here anew; only the decoders of
//! [`format::integrity`] are used, none of the engine's code.

use format::integrity::{BLOCK_BYTES, Checksum, Header, Layout, Open, PAGE_BYTES, Page, REGIONS_IN_AREA};
use format::superblock::Superblock;
use format::units::MemberByte;

/// The state of a member's blocks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Findings {
    /// Blocks that match their checksums.
    pub right: u64,
    /// Blocks that do not match.
    pub wrong: Vec<u64>,
    /// Blocks without a valid checksum.
    pub unknown: u64,
}

/// Compares every block of a member with its checksum; `None` when the member holds no checksums.
pub fn examine(image: &[u8], superblock: &Superblock) -> Option<Findings> {
    let layout = Layout::of(superblock).ok()?;
    let page = |MemberByte(at): MemberByte| &image[at as usize..at as usize + PAGE_BYTES];
    let header = Header::decode_pair(layout.headers_at().map(page)).ok()??;
    header.check(superblock, &layout).ok()?;
    let binding = header.binding();
    let open = Open::decode(page(layout.open_at()), binding.seed);
    let mut findings = Findings::default();
    for number in 0..layout.pages() {
        let region = number / layout.pages_in_region();
        let is_believed = header.vouches_for(superblock) && !open.contains(region);
        let is_blank = !header.touched.contains(region / REGIONS_IN_AREA);
        let known = match Page::decode(page(layout.page_at(number)), &binding, number) {
            _ if is_believed && is_blank => Page::zeros(),
            Ok(page) if is_believed => page,
            _ => Page::unknown(),
        };
        for (block, expected) in layout.blocks_of(number).zip(known.entries()) {
            let at = (superblock.data_at().0 + block * BLOCK_BYTES) as usize;
            match expected {
                None => findings.unknown += 1,
                Some(expected) if *expected == Checksum::of(&image[at..at + BLOCK_BYTES as usize]) => {
                    findings.right += 1
                }
                Some(_) => findings.wrong.push(block),
            }
        }
    }
    Some(findings)
}
