//! Numbers and text at a position of a slice. A position past the slice's end reads as zeros, so that no input panics.

/// `N` bytes at `at`.
pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let part = at.checked_add(N).and_then(|end| bytes.get(at..end));
    part.and_then(|part| part.try_into().ok()).unwrap_or([0; N])
}

/// A little-endian number of 16 bits.
pub(crate) fn le16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array(bytes, at))
}

/// A little-endian number of 32 bits.
pub(crate) fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

/// A little-endian number of 64 bits.
pub(crate) fn le64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}

/// A big-endian number of 16 bits.
pub(crate) fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(array(bytes, at))
}

/// A big-endian number of 32 bits.
pub(crate) fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(array(bytes, at))
}

/// A big-endian number of 64 bits.
pub(crate) fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(array(bytes, at))
}

/// Text of up to `length` bytes that ends with a zero byte. Bytes that are not UTF-8 are replaced. `None` if empty.
pub(crate) fn text(bytes: &[u8], at: usize, length: usize) -> Option<String> {
    let field = bytes.get(at..at.checked_add(length)?)?;
    let field = field.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = String::from_utf8_lossy(field).trim_end().to_owned();
    (!text.is_empty()).then_some(text)
}

/// A UUID in the usual groups; `None` if it is all zeros.
pub(crate) fn uuid(bytes: [u8; 16]) -> Option<String> {
    if bytes == [0; 16] {
        return None;
    }
    let hex = |part: &[u8]| part.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let groups = [&bytes[..4], &bytes[4..6], &bytes[6..8], &bytes[8..10], &bytes[10..]];
    Some(groups.map(hex).join("-"))
}

/// A GUID as it is written: its first three groups are little-endian on disk.
pub(crate) fn guid(mut bytes: [u8; 16]) -> String {
    bytes[..4].reverse();
    bytes[4..6].reverse();
    bytes[6..8].reverse();
    uuid(bytes).unwrap_or_else(|| "00000000-0000-0000-0000-000000000000".to_owned()).to_uppercase()
}

/// A CRC-32 of the usual polynomial, with a start of its own and without the last inversion.
pub(crate) fn crc32(start: u32, bytes: &[u8]) -> u32 {
    const POLYNOMIAL: u32 = 0xedb8_8320;
    let step = |sum: u32, _| (sum >> 1) ^ (POLYNOMIAL & (sum & 1).wrapping_neg());
    bytes.iter().fold(start, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), step))
}
