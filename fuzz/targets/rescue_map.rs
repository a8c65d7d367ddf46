//! Any bytes as a map of a rescued image: never a panic, regions in order, holes within the range, and what is written
//! of a map reads as the same map.
#![no_main]

use disk::map::{Region, RescueMap, Status};
use libfuzzer_sys::fuzz_target;

fn look(text: &[u8]) {
    let Ok(map) = RescueMap::decode(text) else { return };
    let regions: Vec<Region> = map.regions().collect();
    assert!(regions.windows(2).all(|pair| pair[0].range.end <= pair[1].range.start));
    assert!(regions.iter().all(|region| region.range.start < region.range.end));
    let range = map.end() / 3..map.end().saturating_add(512);
    let holes = map.holes(&range);
    assert!(holes.windows(2).all(|pair| pair[0].end < pair[1].start));
    assert!(holes.iter().all(|hole| range.start <= hole.start && hole.start < hole.end && hole.end <= range.end));
    assert_eq!(RescueMap::decode(map.encode(&[]).as_bytes()).as_ref(), Ok(&map));
    let mut marked = map.clone();
    marked.mark(range.clone(), Status::Finished);
    assert_eq!(marked.holes(&range), []);
}

fuzz_target!(|input: &[u8]| {
    look(input);
    look(&[b"0 ? 1\n", input].concat());
    look(&[b"# sectorsize 512\n0x0 0x0\n", input].concat());
});
