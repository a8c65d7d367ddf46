//! The footer of a VHD image of fixed size: 512 bytes behind the disk's last, which are not the disk's.
//!
//! Such an image is the disk as it is, and then its footer. Other kinds of VHD have a copy of the footer in front, and are
//! no bytes of a disk. It decodes the footer and nothing else.
//!
//! Facts: Microsoft's "Virtual Hard Disk Image Format Specification", 2006: "Hard Disk Footer Format". All numbers are
//! big endian.

use crate::bytes::array;

/// The bytes of a footer.
pub const FOOTER_BYTES: u64 = 512;

const COOKIE: &[u8; 8] = b"conectix";
const CURRENT_SIZE_AT: usize = 48;
const DISK_TYPE_AT: usize = 60;
const CHECKSUM_AT: usize = 64;

/// The type of a disk of fixed size.
const FIXED: u32 = 2;

/// The length of the disk in an image of `file_bytes` bytes that ends with `footer`; `None` if that is no footer, or one of
/// another image.
pub fn fixed_disk_bytes(footer: &[u8; FOOTER_BYTES as usize], file_bytes: u64) -> Option<u64> {
    let disk_bytes = file_bytes.checked_sub(FOOTER_BYTES)?;
    let number = |at| u32::from_be_bytes(array(footer, at));
    let is_one = footer.starts_with(COOKIE)
        && number(DISK_TYPE_AT) == FIXED
        && u64::from_be_bytes(array(footer, CURRENT_SIZE_AT)) == disk_bytes
        && number(CHECKSUM_AT) == checksum(footer);
    is_one.then_some(disk_bytes)
}

/// The complement of the sum of all bytes but the checksum's own.
fn checksum(footer: &[u8]) -> u32 {
    let sum = |bytes: &[u8]| bytes.iter().map(|byte| u32::from(*byte)).sum::<u32>();
    !(sum(&footer[..CHECKSUM_AT]) + sum(&footer[CHECKSUM_AT + 4..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn footer(disk_bytes: u64) -> [u8; 512] {
        let mut footer = [0; 512];
        footer[..8].copy_from_slice(COOKIE);
        footer[CURRENT_SIZE_AT..CURRENT_SIZE_AT + 8].copy_from_slice(&disk_bytes.to_be_bytes());
        footer[DISK_TYPE_AT..DISK_TYPE_AT + 4].copy_from_slice(&FIXED.to_be_bytes());
        let sum = checksum(&footer);
        footer[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_be_bytes());
        footer
    }

    #[test]
    fn a_footer_counts_only_whole_behind_a_disk_of_its_length() {
        let whole = footer(1 << 20);
        assert_eq!(fixed_disk_bytes(&whole, (1 << 20) + 512), Some(1 << 20));
        for file_bytes in [0, 512, 1 << 20, (1 << 20) + 511, (1 << 20) + 1024] {
            assert_eq!(fixed_disk_bytes(&whole, file_bytes), None, "{file_bytes}");
        }
        for at in 0..512 {
            for bit in 0..8 {
                let mut changed = whole;
                changed[at] ^= 1 << bit;
                assert_eq!(fixed_disk_bytes(&changed, (1 << 20) + 512), None, "bit {bit} of byte {at}");
            }
        }
        assert_eq!(fixed_disk_bytes(&[0; 512], 512), None);
    }
}
