//! Metadata of thin pools made by hand: what they map, and every way in which they can be wrong. `cargo xtask test
//! layers` has those of the kernel's own pools.

use futures_util::FutureExt;
use mdspace_disk::lvm::thin::{ThinMap, map};

const BLOCK: usize = 4096;
const CHUNK: u64 = 64 << 10;
const LEAF: u32 = 2;
const INTERNAL: u32 = 1;

fn put(block: &mut [u8], at: usize, bytes: &[u8]) {
    block[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Sets the number and the checksum of a block.
fn sign(block: &mut [u8], number: u64, xor: u32) {
    put(block, 8, &number.to_le_bytes());
    let sum = !crc32c::crc32c(&block[4..BLOCK]) ^ xor;
    put(block, 0, &sum.to_le_bytes());
}

fn node(number: u64, flags: u32, pairs: &[(u64, u64)]) -> Vec<u8> {
    let (mut node, room) = (vec![0; BLOCK], 252_usize);
    put(&mut node, 4, &flags.to_le_bytes());
    put(&mut node, 16, &(pairs.len() as u32).to_le_bytes());
    put(&mut node, 20, &(room as u32).to_le_bytes());
    put(&mut node, 24, &8_u32.to_le_bytes());
    for (index, (key, value)) in pairs.iter().enumerate() {
        put(&mut node, 32 + 8 * index, &key.to_le_bytes());
        put(&mut node, 32 + 8 * (room + index), &value.to_le_bytes());
    }
    sign(&mut node, number, 121_107);
    node
}

/// A pool with device 1 over two leaves, and device 2 without blocks. Block 1 is the mapping tree's root.
fn pool() -> Vec<Vec<u8>> {
    let mut superblock = vec![0; BLOCK];
    put(&mut superblock, 32, &27_022_010_u64.to_le_bytes());
    put(&mut superblock, 48, &5_u64.to_le_bytes());
    put(&mut superblock, 320, &1_u64.to_le_bytes());
    put(&mut superblock, 336, &128_u32.to_le_bytes());
    sign(&mut superblock, 0, 160_774);
    let at = |block: u64| block << 24 | 7;
    vec![
        superblock,
        node(1, LEAF, &[(1, 2), (2, 5)]),
        node(2, INTERNAL, &[(0, 3), (100, 4)]),
        node(3, LEAF, &[(2, at(40)), (3, at(41)), (4, at(9))]),
        node(4, LEAF, &[(100, at(0))]),
        node(5, LEAF, &[]),
    ]
}

fn read(blocks: &[Vec<u8>], device: u32) -> Result<ThinMap, String> {
    map(&blocks.concat()[..], device, 5).now_or_never().expect("memory answers at once")
}

#[test]
fn a_block_is_where_the_tree_says_and_everything_else_is_zeros() {
    let map = read(&pool(), 1).expect("it is well-formed");
    for (at, place) in [
        (0, (None, 2 * CHUNK)),
        (2 * CHUNK, (Some(40 * CHUNK), 2 * CHUNK)),
        (3 * CHUNK + 5, (Some(41 * CHUNK + 5), CHUNK - 5)),
        (4 * CHUNK + 1, (Some(9 * CHUNK + 1), CHUNK - 1)),
        (5 * CHUNK, (None, 95 * CHUNK)),
        (100 * CHUNK, (Some(0), CHUNK)),
        (101 * CHUNK, (None, u64::MAX - 101 * CHUNK)),
    ] {
        assert_eq!(map.locate(at), place, "byte {at}");
    }
    assert_eq!((map.reach(), map.block_bytes()), (42 * CHUNK, CHUNK));
    assert_eq!(read(&pool(), 2).expect("it is empty").locate(7).0, None);
    assert!(read(&pool(), 3).is_err_and(|reason| reason.contains("no device 3")));
}

#[test]
fn metadata_that_are_wrong_in_any_byte_or_make_no_sense_are_an_error() {
    for number in 0..5 {
        for at in [0, 5, 9, 17, 40, 2100, BLOCK - 1] {
            let mut blocks = pool();
            blocks[number][at] ^= 0x10;
            let reason = read(&blocks, 1).expect_err("a checksum is wrong");
            assert!(reason.contains("wrong checksum"), "block {number}, byte {at}: {reason}");
        }
    }
    let other = |number: usize, node: Vec<u8>| {
        let mut blocks = pool();
        blocks[number] = node;
        read(&blocks, 1).expect_err("it makes no sense")
    };
    for (what, reason, words) in [
        ("a loop", other(2, node(2, INTERNAL, &[(0, 2)])), "makes no sense"),
        ("a block past the end", other(2, node(2, INTERNAL, &[(0, 77)])), "do not have"),
        ("a number that is another block's", other(3, node(4, LEAF, &[(2, 0)])), "wrong checksum"),
        ("keys that do not ascend", other(3, node(3, LEAF, &[(3, 0), (3, 0)])), "makes no sense"),
        ("keys that come again", other(4, node(4, LEAF, &[(4, 0)])), "makes no sense"),
    ] {
        assert!(reason.contains(words), "{what}: {reason}");
    }
    let stale = map(&pool().concat()[..], 1, 4).now_or_never().expect("memory answers at once");
    assert!(stale.is_err_and(|reason| reason.contains("transaction 5")));
}
