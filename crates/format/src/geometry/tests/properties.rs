//! Properties of every shape, against slow oracles.

use proptest::prelude::*;

use super::*;

const CHUNK: u64 = 4 * K;

/// RAID-10 written out: the copies of chunk 0, 1, ... are dealt over rows of members like cards. Then whole rows are
/// copied, shifted.
fn dealt_raid10(layout: u32, members: usize, component_chunks: usize) -> Vec<Vec<Option<u64>>> {
    let (near, far) = ((layout & 0xff) as usize, (layout >> 8 & 0xff) as usize);
    let set = if layout >> 17 == 2 { near * far } else { members };
    let rows = component_chunks / far;
    let chunks = rows * members / near;
    let mut slots = vec![vec![None; rows * far]; members];
    for card in 0..chunks * near {
        let (row, member) = (card / members, card % members);
        for copy in 0..far {
            let row = if layout & 1 << 16 != 0 { row * far + copy } else { row + copy * rows };
            let moved = member / set * set + (member % set + copy * near) % set;
            slots[moved][row] = Some((card / near) as u64);
        }
    }
    slots
}

fn raid10_shape() -> impl Strategy<Value = (u32, u16, u64)> {
    // (near, far, offset, far sets, members beyond the copies, component chunks)
    (1u32..5, 1u32..4, any::<bool>(), any::<bool>(), 0u16..6, 3u64..40)
        .prop_filter("two copies", |&(near, far, ..)| near * far > 1)
        .prop_map(|(near, far, offset, sets, more, chunks)| {
            let layout = near | far << 8 | u32::from(offset) << 16 | u32::from(sets) << 18;
            (layout, (near * far) as u16 + more, chunks)
        })
        .prop_filter("no row is left over", |&(layout, members, _)| {
            let (near, far) = (layout & 0xff, layout >> 8 & 0xff);
            let whole_sets = layout >> 17 == 0 || u32::from(members) % (near * far) == 0;
            let whole_rows = layout & 1 << 16 == 0 || u32::from(members) % near == 0;
            whole_sets && whole_rows
        })
}

/// RAID-5 and RAID-6 with any of md's layouts, on up to 12 members.
fn parity_shape() -> impl Strategy<Value = Shape> {
    let raid5 = (0u32..6, 2u16..12).prop_map(|(layout, slots)| (Level::Raid5, layout, slots));
    let layouts6 = prop::sample::select(vec![0u32, 1, 2, 3, 4, 5, 8, 9, 10, 16, 17, 18, 19, 20]);
    let raid6 = (layouts6, 4u16..13).prop_map(|(layout, slots)| (Level::Raid6, layout, slots));
    prop_oneof![raid5, raid6].prop_map(|(level, layout, slots)| shape(level, layout, slots, CHUNK, 40 * CHUNK))
}

fn mapping_shape() -> impl Strategy<Value = Shape> {
    let members = prop::collection::vec(0u64..40, 1..6);
    let raid0 = (members.clone(), 1u32..3, prop::sample::select(vec![1u64, 2, 3, 5, 8]))
        .prop_map(|(members, layout, chunk)| (Level::Raid0, layout, chunk, members));
    let linear = (members, 0u64..4).prop_map(|(members, chunk)| (Level::Linear, 0, chunk, members));
    let zoned = prop_oneof![raid0, linear].prop_map(|(level, layout, chunk, members)| {
        let members: Vec<u64> = members.iter().map(|sectors| sectors * SECTOR_BYTES).collect();
        striped(level, layout, chunk * SECTOR_BYTES, &members)
    });
    let raid10 = raid10_shape()
        .prop_map(|(layout, slots, chunks)| shape(Level::Raid10, layout, slots, CHUNK, chunks * CHUNK + SECTOR_BYTES));
    let raid1 =
        (1u16..6, 1u64..40).prop_map(|(slots, sectors)| shape(Level::Raid1, 0, slots, 0, sectors * SECTOR_BYTES));
    prop_oneof![zoned, raid10, raid1]
}

/// Any shape, with a preference for boundary values.
fn hostile_shape() -> impl Strategy<Value = Shape> {
    let levels =
        [Level::Linear, Level::Raid0, Level::Raid1, Level::Raid4, Level::Raid5, Level::Raid6, Level::Raid10].to_vec();
    let bytes =
        || prop_oneof![any::<u64>(), (0u32..64).prop_map(|bit| 1 << bit), (0u32..64).prop_map(|bit| (1 << bit) - 1)];
    let sectors = || bytes().prop_map(|bytes| bytes & !(SECTOR_BYTES - 1));
    let layout = prop_oneof![0u32..24, Just(0x102), Just(0x201), Just(0x40202), any::<u32>()];
    let slots = prop_oneof![0u16..9, any::<u16>()];
    (prop::sample::select(levels), layout, bytes(), slots, sectors(), prop::collection::vec(sectors(), 0..9)).prop_map(
        |(level, layout, chunk_bytes, slots, component_bytes, member_bytes)| {
            let zoned = matches!(level, Level::Linear | Level::Raid0);
            let slots = if zoned { member_bytes.len() as u16 } else { slots };
            Shape { level, layout, chunk_bytes, slots, component_bytes, member_bytes }
        },
    )
}

/// Where md itself puts a chunk's copies, as (member, component chunk), sound or not. Each near copy is one member
/// further, and one chunk lower after wrapping around. Its far copies are a stride lower and `near` members further
/// within the far set.
fn md_places(layout: u32, members: u64, stride: u64, chunk: u64) -> Vec<(u64, u64)> {
    let (near, far) = (u64::from(layout & 0xff), u64::from(layout >> 8 & 0xff));
    let offset = layout & 1 << 16 != 0;
    let set = [members, members / far, near * far][(layout >> 17) as usize];
    let last_set = members / set * set - set;
    let mut places = Vec::new();
    for card in chunk * near..(chunk + 1) * near {
        let first_row = chunk * near / members * if offset { far } else { 1 };
        let gone_round = card / members - chunk * near / members;
        let (mut member, mut row) = (card % members, first_row + gone_round);
        for _ in 0..far {
            places.push((member, row));
            row += if offset { 1 } else { stride };
            let moved = member + near;
            member = if members.is_multiple_of(set) || moved <= last_set {
                member - member % set + moved % set
            } else {
                last_set + (moved - last_set) % (members - last_set)
            };
        }
    }
    places
}

#[test]
fn raid10_is_refused_exactly_when_md_overwrites_and_only_flawed_far_sets_share_a_member() {
    let layouts =
        (0..3 << 17).filter(|layout| (1..5).contains(&(layout & 0xff)) && (1..5).contains(&(layout >> 8 & 0xff)));
    for (layout, members) in layouts.flat_map(|layout| (1..14).map(move |members| (layout, members))) {
        let copies = (layout & 0xff) * (layout >> 8 & 0xff);
        if copies < 2 || copies > members {
            continue;
        }
        let (members, stride) = (u64::from(members), 12 / u64::from(layout >> 8 & 0xff));
        let chunks = stride * members / u64::from(layout & 0xff);
        let places: Vec<_> = (0..chunks).map(|chunk| md_places(layout, members, stride, chunk)).collect();
        let mut taken: Vec<_> = places.iter().flatten().collect();
        taken.sort_unstable();
        taken.dedup();
        let overwrites = taken.len() as u64 != chunks * u64::from(copies);
        let shape = shape(Level::Raid10, layout, members as u16, CHUNK, 12 * CHUNK);
        let Ok(geometry) = Geometry::new(&shape) else {
            assert!(overwrites, "refused: {layout:#x}, {members} members");
            continue;
        };
        assert!(!overwrites, "accepted: {layout:#x}, {members} members");
        let Geometry::Mapping(mapping) = geometry else { panic!("{layout:#x}") };
        for (piece, places) in mapping.pieces(ArrayByte(0), mapping.array_bytes()).zip(places) {
            let copies: Vec<_> = piece.copies.iter().map(|(slot, at)| (u64::from(slot.0), at.0 / CHUNK)).collect();
            assert_eq!(copies, places, "{layout:#x}, {members} members, byte {}", piece.at.0);
            let mut slots: Vec<u64> = copies.iter().map(|&(slot, _)| slot).collect();
            slots.sort_unstable();
            slots.dedup();
            assert!(layout >> 17 == 1 || slots.len() == copies.len(), "{layout:#x}, {members} members");
        }
    }
}

proptest! {
    #[test]
    fn raid10_is_cards_dealt_over_the_members((layout, members, chunks) in raid10_shape()) {
        let mapping = mapping(&shape(Level::Raid10, layout, members, CHUNK, chunks * CHUNK));
        let dealt = dealt_raid10(layout, usize::from(members), chunks as usize);
        prop_assert_eq!(drawing(&mapping, CHUNK), dealt);
    }

    #[test]
    fn no_two_bytes_share_a_place_and_all_are_copied(shape in mapping_shape()) {
        let Ok(geometry) = Geometry::new(&shape) else { return Ok(()) };
        let Geometry::Mapping(mapping) = geometry else { panic!("{shape:?}") };
        let places = drawing(&mapping, SECTOR_BYTES).into_iter().flatten().flatten().count() as u64;
        let copies = match shape.level {
            Level::Raid1 => u64::from(shape.slots),
            Level::Raid10 => u64::from((shape.layout & 0xff) * (shape.layout >> 8 & 0xff)),
            _ => 1,
        };
        prop_assert_eq!(places, copies * mapping.array_bytes() / SECTOR_BYTES);
    }

    #[test]
    fn what_a_member_holds_is_traced_back_to_the_array(shape in mapping_shape()) {
        let Ok(Geometry::Mapping(mapping)) = Geometry::new(&shape) else { return Ok(()) };
        if matches!(shape.level, Level::Linear | Level::Raid0) {
            return Ok(());
        }
        let drawn = drawing(&mapping, SECTOR_BYTES);
        for (slot, column) in drawn.iter().enumerate() {
            for (cell, held) in column.iter().enumerate() {
                let at = ComponentByte(cell as u64 * SECTOR_BYTES);
                let found = mapping.held(Slot(slot as u16), at);
                prop_assert_eq!(found, held.map(|cell| ArrayByte(cell * SECTOR_BYTES)), "slot {} at {}", slot, at.0);
            }
        }
    }

    #[test]
    fn a_range_is_cut_into_pieces_of_the_whole(shape in mapping_shape(), start: u64, length: u64) {
        let Ok(Geometry::Mapping(mapping)) = Geometry::new(&shape) else { return Ok(()) };
        let last = mapping.piece_at(ArrayByte(mapping.array_bytes() - SECTOR_BYTES));
        prop_assert_eq!(last.bytes, SECTOR_BYTES);
        let start = start % mapping.array_bytes();
        let length = length % (mapping.array_bytes() - start + 1);
        let whole: Vec<Piece> = mapping.pieces(ArrayByte(0), mapping.array_bytes()).collect();
        let mut next = start;
        for piece in mapping.pieces(ArrayByte(start), length) {
            prop_assert_eq!(piece.at.0, next);
            prop_assert!(piece.bytes > 0);
            next += piece.bytes;
            let from = whole.iter().rfind(|from| from.at <= piece.at).expect("pieces cover the array");
            let into = piece.at.0 - from.at.0;
            prop_assert!(next <= from.at.0 + from.bytes);
            let moved: Copies = from.copies.iter().map(|&(slot, at)| (slot, ComponentByte(at.0 + into))).collect();
            prop_assert_eq!(piece.copies, moved);
        }
        prop_assert_eq!(next, start + length);
    }

    #[test]
    fn an_array_survives_while_each_piece_keeps_a_copy(shape in mapping_shape(), missing: u16) {
        let Ok(Geometry::Mapping(mapping)) = Geometry::new(&shape) else { return Ok(()) };
        let is_missing = |slot: Slot| missing >> slot.0.min(15) & 1 == 1;
        let survives = mapping
            .pieces(ArrayByte(0), mapping.array_bytes())
            .all(|piece| piece.copies.iter().any(|&(slot, _)| !is_missing(slot)));
        // Linear and RAID-0 need every member, even one that holds no data: it is too small, or all of it lies past the
        // end to which md rounds the array.
        let is_idle = |slot: Slot| {
            let mut pieces = mapping.pieces(ArrayByte(0), mapping.array_bytes());
            !shape.level.has_component() && pieces.all(|piece| piece.copies.iter().all(|&(other, _)| other != slot))
        };
        let idle = (0..mapping.slots()).map(Slot).any(|slot| is_missing(slot) && is_idle(slot));
        prop_assert_eq!(mapping.survives(&is_missing), survives && !idle);
    }

    #[test]
    fn as_many_slots_may_go_as_told_whichever_they_are_and_no_more(
        shape in prop_oneof![mapping_shape(), parity_shape()],
        missing: u16,
    ) {
        let Ok(geometry) = Geometry::new(&shape) else { return Ok(()) };
        let slots = geometry.slots().min(10);
        prop_assume!(slots == geometry.slots() && !(geometry.array_bytes() == 0 && shape.level.has_component()));
        let survives = |gone: u16| geometry.survives(&|slot| gone >> slot.0 & 1 == 1);
        let missing = missing & ((1 << slots) - 1);
        let may_fail = geometry.may_fail(&|slot| missing >> slot.0 & 1 == 1);
        let more = |count: u32| (0..1_u16 << slots).filter(move |gone| gone & missing == missing && (gone ^ missing).count_ones() == count);
        if survives(missing) {
            prop_assert!(more(may_fail.into()).all(survives));
            prop_assert!(!more(u32::from(may_fail) + 1).all(survives));
        } else {
            prop_assert_eq!(may_fail, 0);
        }
    }

    #[test]
    fn each_role_is_on_one_slot_and_is_found_there(shape in parity_shape()) {
        let parity = parity(&shape);
        for number in 0..parity.stripes() {
            let stripe = parity.stripe(number);
            prop_assert_eq!(stripe.component().0, number * CHUNK);
            for slot in (0..parity.slots()).map(Slot) {
                prop_assert_eq!(stripe.slot_of(stripe.role_of(slot)), Some(slot));
            }
            for role in (0..parity.data_chunks()).map(Role::Data).chain([Role::P]) {
                prop_assert_eq!(stripe.slot_of(role).map(|slot| stripe.role_of(slot)), Some(role));
            }
            prop_assert_eq!(stripe.slot_of(Role::Q).is_some(), parity.parities() == 2);
        }
    }

    #[test]
    fn a_symmetric_stripe_is_the_one_before_it_turned(shape in parity_shape()) {
        let turn = match (shape.level, shape.layout) {
            (_, 2 | 10 | 18) => 1,
            (_, 3 | 19) => -1,
            _ => return Ok(()),
        };
        let parity = parity(&shape);
        let ring = i32::from(parity.slots()) - i32::from(shape.layout > 15);
        for number in 1..parity.stripes() {
            for slot in 0..ring {
                let before = (slot + turn).rem_euclid(ring) as u16;
                let before = parity.stripe(number - 1).role_of(Slot(before));
                prop_assert_eq!(parity.stripe(number).role_of(Slot(slot as u16)), before);
            }
        }
    }

    #[test]
    fn data_in_q_is_told_apart_and_md_leaves_no_gap(shape in parity_shape()) {
        let parity = parity(&shape);
        if parity.parities() == 1 {
            return Ok(());
        }
        for stripe in (0..parity.stripes()).map(|number| parity.stripe(number)) {
            let mut exponents: Vec<u8> = (0..parity.data_chunks()).map(|index| stripe.q_exponent(index)).collect();
            exponents.sort_unstable();
            exponents.dedup();
            prop_assert_eq!(exponents.len(), usize::from(parity.data_chunks()));
            let ddf = (8..=10).contains(&shape.layout);
            prop_assert!(ddf || exponents.iter().enumerate().all(|(rank, &exponent)| rank == usize::from(exponent)));
        }
    }

    #[test]
    fn any_shape_is_refused_or_answers_at_its_ends(shape in hostile_shape()) {
        match Geometry::new(&shape) {
            Err(defect) => prop_assert!(defect.field.starts_with("superblock.")),
            Ok(Geometry::Mapping(mapping)) => {
                for at in [0, mapping.array_bytes() - 1] {
                    let piece = mapping.piece_at(ArrayByte(at));
                    prop_assert!(piece.bytes > 0 && piece.bytes <= mapping.array_bytes() - at);
                    for &(slot, component) in &piece.copies {
                        prop_assert!(component.0 + piece.bytes <= mapping.used_bytes(slot));
                    }
                }
            }
            Ok(Geometry::Parity(parity)) => {
                for number in [0, parity.stripes() - 1] {
                    let stripe = parity.stripe(number);
                    let last = parity.data_chunks() - 1;
                    prop_assert!(stripe.slot_of(Role::Data(last)).is_some_and(|slot| slot.0 < parity.slots()));
                    prop_assert!(stripe.component().0 + parity.chunk_bytes() <= shape.component_bytes);
                }
            }
        }
    }
}
