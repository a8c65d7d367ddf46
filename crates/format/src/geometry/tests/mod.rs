//! Tests of the geometry: hand-computed tables, and properties against slow, obvious oracles.
//! `tests/kernel/geometry.sh` and the example `verify_kernel_images` compare it with the real driver.

use super::*;

mod properties;
mod tables;

const K: u64 = 1024;

/// A shape of a level whose members are alike.
fn shape(level: Level, layout: u32, slots: u16, chunk_bytes: u64, component_bytes: u64) -> Shape {
    Shape { level, layout, chunk_bytes, slots, component_bytes, member_bytes: Vec::new() }
}

/// A linear or RAID-0 shape.
fn striped(level: Level, layout: u32, chunk_bytes: u64, member_bytes: &[u64]) -> Shape {
    let slots = member_bytes.len() as u16;
    Shape { level, layout, chunk_bytes, slots, component_bytes: 0, member_bytes: member_bytes.to_vec() }
}

fn mapping(shape: &Shape) -> Mapping {
    match Geometry::new(shape) {
        Ok(Geometry::Mapping(mapping)) => mapping,
        other => panic!("{shape:?}: {other:?}"),
    }
}

fn parity(shape: &Shape) -> Parity {
    match Geometry::new(shape) {
        Ok(Geometry::Parity(parity)) => parity,
        other => panic!("{shape:?}: {other:?}"),
    }
}

/// The array cell of `cell` bytes that each such cell of each slot holds.
///
/// # Panics
/// When two array cells share a position, when a cell is beyond the used bytes, or when the pieces are empty or not
/// adjacent.
fn drawing(mapping: &Mapping, cell: u64) -> Vec<Vec<Option<u64>>> {
    let cells = |slot| (mapping.used_bytes(Slot(slot)) / cell) as usize;
    let mut drawing: Vec<Vec<Option<u64>>> = (0..mapping.slots()).map(|slot| vec![None; cells(slot)]).collect();
    let mut next = 0;
    for piece in mapping.pieces(ArrayByte(0), mapping.array_bytes()) {
        assert_eq!(piece.at.0, next);
        assert_ne!(piece.bytes, 0);
        next += piece.bytes;
        for (slot, component) in piece.copies {
            for step in 0..piece.bytes / cell {
                let place = &mut drawing[slot.index()][(component.0 / cell + step) as usize];
                assert_eq!(*place, None, "slot {slot}");
                *place = Some(piece.at.0 / cell + step);
            }
        }
    }
    assert_eq!(next, mapping.array_bytes());
    drawing
}
