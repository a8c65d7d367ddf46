//! Signatures of other formats on a disk: file systems, partition tables, volume managers, other RAID formats, disk
//! images.
//!
//! A table of the signatures' bytes and positions. It serves refusals only: a new member with any of these is in use,
//! and so is one whose start holds any data. It never interprets a format, and a signature may be a leftover. md's own
//! superblocks are in the module [`superblock`](crate::superblock).
//!
//! Facts: the formats' public headers and documentation, as `libblkid` lists them. Each fact is a position and a
//! constant.

use std::ops::Range;

/// A signature found on a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signature {
    /// The format, with its article: "an XFS file system".
    pub what: &'static str,
    /// The signature's byte position on the member.
    pub at: u64,
}

impl Signature {
    /// Whether it is a container of firmware RAID whose volumes the project reads.
    pub fn is_of_firmware(&self) -> bool {
        matches!(self.what, DDF | IMSM)
    }

    /// Whether it is a partition table, so that the array may be in one of the partitions.
    pub fn is_partition_table(&self) -> bool {
        matches!(self.what, GPT | MBR)
    }

    /// Whether the format is known. Otherwise there is only unknown data.
    pub fn is_known(&self) -> bool {
        self.what != OTHER
    }
}

/// Bytes at the start of a member that must be zeros. Any other contents mean that the member is in use.
pub const HEAD_BYTES: u64 = 4096;

/// Length of the first window. ZFS's labels are the last signatures in it.
const START_BYTES: u64 = 512 << 10;

/// Length of the last window. ZFS aligns its labels there.
const END_BYTES: u64 = 768 << 10;

/// Starts of the windows in between, and their length.
const SPOTS: [u64; 4] = [1 << 20, 2 << 20, 4 << 20, 64 << 20];
const SPOT_BYTES: u64 = 4096;

/// The position of a signature.
#[derive(Clone, Copy)]
enum Place {
    /// This many bytes from the start.
    Start(u64),
    /// This many bytes before the end.
    End(u64),
    /// This many bytes before the end, rounded down to 4096 bytes.
    RoundEnd(u64),
}
use Place::{End, RoundEnd, Start};

/// Name, positions, and bytes of a signature.
type Entry = (&'static str, &'static [Place], &'static [u8]);

const EXT: &str = "an ext2, ext3 or ext4 file system";
const SWAP: &str = "swap space";
const LUKS: &str = "a LUKS encrypted volume";
const LVM: &str = "an LVM physical volume";
const GPT: &str = "a GPT partition table";
const FAT: &str = "a FAT file system";
const UFS: &str = "a UFS file system";
const REISER: &str = "a ReiserFS file system";
const HFS: &str = "an HFS or HFS+ file system";
const BCACHE: &str = "a bcache or bcachefs device";
const DRBD: &str = "a DRBD device";
const VHD: &str = "a virtual machine's disk (VHD)";
const FAKE_RAID: &str = "a member of a firmware RAID";
const DM: &str = "metadata of a device-mapper target";
const ZFS: &str = "a member of a ZFS pool";
const DDF: &str = "a member of a DDF array (firmware RAID)";
const IMSM: &str = "a member of an IMSM array (Intel firmware RAID)";
const MBR: &str = "a partition table (MBR) or a boot sector";
const OTHER: &str = "data of an unknown kind";

/// The ends of pages of every size, where swap space has its signature.
const PAGE_ENDS: &[Place] = &[Start(4086), Start(8182), Start(16_374), Start(32_758), Start(65_526)];

/// The second header of LUKS2.
const LUKS2: &[Place] = &[
    Start(0x4000),
    Start(0x8000),
    Start(0x1_0000),
    Start(0x2_0000),
    Start(0x4_0000),
    Start(0x10_0000),
    Start(0x20_0000),
    Start(0x40_0000),
];

/// Sectors before the end, as used by Promise's firmware.
const PROMISE: &[Place] = &[
    End(63 * 512),
    End(255 * 512),
    End(256 * 512),
    End(16 * 512),
    End(399 * 512),
    End(591 * 512),
    End(675 * 512),
    End(735 * 512),
    End(911 * 512),
    End(951 * 512),
    End(974 * 512),
    End(991 * 512),
];

/// The most specific signatures come first: a boot sector is also part of NTFS, FAT and GPT.
const TABLE: &[Entry] = &[
    (LUKS, &[Start(0)], b"LUKS\xba\xbe"),
    (LUKS, LUKS2, b"SKUL\xba\xbe"),
    (LVM, &[Start(0), Start(512), Start(1024), Start(1536)], b"LABELONE"),
    (EXT, &[Start(0x438)], b"\x53\xef"),
    ("an XFS file system", &[Start(0)], b"XFSB"),
    ("a Btrfs file system", &[Start(0x1_0040), Start(0x400_0040)], b"_BHRfS_M"),
    ("an NTFS file system", &[Start(3)], b"NTFS    "),
    ("an exFAT file system", &[Start(3)], b"EXFAT   "),
    ("a ReFS file system", &[Start(3)], b"ReFS\0"),
    ("a BitLocker encrypted volume", &[Start(3)], b"-FVE-FS-"),
    (FAT, &[Start(54)], b"FAT12   "),
    (FAT, &[Start(54)], b"FAT16   "),
    (FAT, &[Start(82)], b"FAT32   "),
    (SWAP, PAGE_ENDS, b"SWAPSPACE2"),
    (SWAP, PAGE_ENDS, b"SWAP-SPACE"),
    ("swap space with a suspended system", PAGE_ENDS, b"S1SUSPEND"),
    ("swap space with a suspended system", PAGE_ENDS, b"LINHIB0001"),
    (BCACHE, &[Start(0x1018)], b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81"),
    (BCACHE, &[Start(0x1018)], b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef"),
    (GPT, &[Start(512), Start(4096)], b"EFI PART"),
    ("the second copy of a GPT partition table", &[End(512), End(4096)], b"EFI PART"),
    (DDF, &[End(512), End(0x2_0200)], b"\xde\x11\xde\x11"),
    (IMSM, &[End(1024), End(8192)], b"Intel Raid ISM Cfg Sig. "),
    (FAKE_RAID, PROMISE, b"Promise Technology, Inc."),
    (FAKE_RAID, &[End(1024)], b"NVIDIA  "),
    (FAKE_RAID, &[End(512)], b"$XIDE$"),
    (FAKE_RAID, &[Start(0x1220)], b"\xf0\x16\x78\x5a"),
    ("an APFS container", &[Start(32)], b"NXSB"),
    (HFS, &[Start(1024)], b"H+\0\x04"),
    (HFS, &[Start(1024)], b"HX\0\x05"),
    (HFS, &[Start(1024)], b"BD"),
    ("an Apple partition map", &[Start(512)], b"PM\0\0"),
    ("a BSD disk label", &[Start(512)], b"\x57\x45\x56\x82"),
    ("a Sun disk label", &[Start(508)], b"\xda\xbe"),
    ("an F2FS file system", &[Start(1024)], b"\x10\x20\xf5\xf2"),
    ("a NILFS2 file system", &[Start(1030)], b"\x34\x34"),
    ("an EROFS file system", &[Start(1024)], b"\xe2\xe1\xf5\xe0"),
    ("an OCFS2 file system", &[Start(1024), Start(2048), Start(4096), Start(8192)], b"OCFSV2"),
    ("a JFS file system", &[Start(0x8000)], b"JFS1"),
    (REISER, &[Start(0x2034), Start(0x1_0034)], b"ReIsErFs"),
    (REISER, &[Start(0x1_0034)], b"ReIsEr2Fs"),
    (REISER, &[Start(0x1_0034)], b"ReIsEr3Fs"),
    (REISER, &[Start(0x1_0000)], b"ReIsEr4"),
    (UFS, &[Start(8192 + 1372), Start(65_536 + 1372)], b"\x54\x19\x01\0"),
    (UFS, &[Start(8192 + 1372), Start(65_536 + 1372)], b"\x19\x01\x54\x19"),
    ("a GFS2 file system", &[Start(0x1_0000)], b"\x01\x16\x19\x70"),
    ("an ISO 9660 file system", &[Start(0x8001)], b"CD001"),
    ("a UDF file system", &[Start(0x8001)], b"BEA01"),
    ("a squashfs file system", &[Start(0)], b"hsqs"),
    ("a cramfs file system", &[Start(0)], b"\x45\x3d\xcd\x28"),
    ("a VMFS volume", &[Start(0x10_0000)], b"\x0d\xd0\x01\xc0"),
    ("a VMFS volume", &[Start(0x20_0000)], b"\x5e\xf1\xab\x2f"),
    ("a Ceph BlueStore device", &[Start(0)], b"bluestore block device"),
    ("a Stratis pool's device", &[Start(0x204), Start(0x1204)], b"!Stra0tis\x86\xff\x02^\x41rh"),
    ("a VDO volume", &[Start(0)], b"dmvdo001"),
    ("an Oracle ASM disk", &[Start(32)], b"ORCLDISK"),
    ("a Windows Storage Spaces disk", &[Start(4096)], b"SPACEDB"),
    ("a Windows dynamic disk", &[Start(3072)], b"PRIVHEAD"),
    (DM, &[Start(0)], b"integrt\0"),
    (DM, &[Start(0)], b"verity\0\0"),
    (DM, &[Start(0)], b"SnAp"),
    (DRBD, &[RoundEnd(4096 - 60)], b"\x83\x74\x02\x6b"),
    (DRBD, &[RoundEnd(4096 - 60)], b"\x83\x74\x02\x6c"),
    (DRBD, &[RoundEnd(4096 - 60)], b"\x83\x74\x02\x6d"),
    ("a write-intent bitmap of md", &[Start(0)], b"bitm"),
    ("a virtual machine's disk (QCOW)", &[Start(0)], b"QFI\xfb"),
    ("a virtual machine's disk (VMDK)", &[Start(0)], b"KDMV"),
    ("a virtual machine's disk (VDI)", &[Start(64)], b"\x7f\x10\xda\xbe"),
    (VHD, &[Start(0)], b"vhdxfile"),
    (VHD, &[Start(0), End(512)], b"conectix"),
    (MBR, &[Start(510)], b"\x55\xaa"),
];

/// The parts of a member of `member_bytes` that [`recognize`] needs: ascending, without overlap. They start at
/// multiples of 4096 bytes, and end there too, except at the member's end.
pub fn windows(member_bytes: u64) -> Vec<Range<u64>> {
    let tail = member_bytes.saturating_sub(END_BYTES) / 4096 * 4096;
    let spots = SPOTS.into_iter().map(|at| at..at + SPOT_BYTES).filter(|spot| spot.end <= tail);
    let mut windows: Vec<Range<u64>> = Vec::new();
    for window in std::iter::once(0..START_BYTES).chain(spots).chain(std::iter::once(tail..member_bytes)) {
        let start = window.start.max(windows.last().map_or(0, |last| last.end));
        let end = window.end.min(member_bytes);
        if start < end {
            windows.push(start..end);
        }
    }
    windows
}

/// The first signature on a member of `member_bytes`, from some parts of it (start and bytes). A missing part counts as
/// one without signatures. `None` means: no known signature, and zeros at the start, if that part is given.
pub fn recognize(member_bytes: u64, parts: &[(u64, Vec<u8>)]) -> Option<Signature> {
    let view = View { member_bytes, parts };
    let entries = TABLE.iter().flat_map(|&(what, places, magic)| places.iter().map(move |place| (what, *place, magic)));
    let mut by_table = entries.filter_map(|(what, place, magic)| {
        let at = view.position(place)?;
        (view.bytes(at, magic.len())? == magic).then_some(Signature { what, at })
    });
    by_table.next().or_else(|| view.zfs()).or_else(|| view.head())
}

struct View<'a> {
    member_bytes: u64,
    parts: &'a [(u64, Vec<u8>)],
}

impl View<'_> {
    fn position(&self, place: Place) -> Option<u64> {
        match place {
            Start(at) => Some(at),
            End(before) => self.member_bytes.checked_sub(before),
            RoundEnd(before) => (self.member_bytes / 4096 * 4096).checked_sub(before),
        }
    }

    fn bytes(&self, at: u64, length: usize) -> Option<&[u8]> {
        self.parts.iter().find_map(|(start, part)| {
            let skip = usize::try_from(at.checked_sub(*start)?).ok()?;
            part.get(skip..skip.checked_add(length)?)
        })
    }

    /// Any uberblock of the four labels, in either byte order.
    fn zfs(&self) -> Option<Signature> {
        const LABEL_BYTES: u64 = 256 << 10;
        const MAGIC: u64 = 0x00ba_b10c;
        let end = self.member_bytes / LABEL_BYTES * LABEL_BYTES;
        let labels = [Some(0), Some(LABEL_BYTES), end.checked_sub(2 * LABEL_BYTES), end.checked_sub(LABEL_BYTES)];
        let mut blocks = labels.into_iter().flatten().flat_map(|label| (128..256).map(move |kib| label + (kib << 10)));
        let is_one = |at: &u64| {
            let magic = self.bytes(*at, 8).and_then(|bytes| bytes.try_into().ok());
            magic.is_some_and(|magic: [u8; 8]| u64::from_le_bytes(magic) == MAGIC || u64::from_be_bytes(magic) == MAGIC)
        };
        blocks.find(is_one).map(|at| Signature { what: ZFS, at })
    }

    fn head(&self) -> Option<Signature> {
        let (_, first) = self.parts.iter().find(|(start, _)| *start == 0)?;
        let at = first.iter().take(HEAD_BYTES as usize).position(|byte| *byte != 0)?;
        Some(Signature { what: OTHER, at: at as u64 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The windows of a member with these bytes and zeros otherwise.
    fn parts(member_bytes: u64, at: u64, bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
        let part = |window: Range<u64>| {
            let mut part = vec![0; (window.end - window.start) as usize];
            for (index, byte) in bytes.iter().enumerate() {
                if let Some(place) = (at + index as u64).checked_sub(window.start)
                    && let Some(place) = part.get_mut(place as usize)
                {
                    *place = *byte;
                }
            }
            (window.start, part)
        };
        windows(member_bytes).into_iter().map(part).collect()
    }

    #[test]
    fn windows_are_in_order_and_apart_and_end_with_the_member() {
        let lengths = [0, 1, 511, 512, 4096, 4608, 500 << 10, 512 << 10, 768 << 10, 1 << 20, (1 << 20) + 512];
        for bytes in lengths.into_iter().chain([(2 << 20) - 512, 8 << 20, 64 << 20, 65 << 20, 1 << 40]) {
            let windows = windows(bytes);
            assert!(windows.windows(2).all(|pair| pair[0].end <= pair[1].start), "{bytes}: {windows:?}");
            assert!(windows.iter().all(|window| window.start < window.end), "{bytes}: {windows:?}");
            assert_eq!(windows.last().map_or(0, |window| window.end), bytes, "{bytes}: {windows:?}");
            assert_eq!(windows.first().map_or(0, |window| window.start), 0, "{bytes}: {windows:?}");
        }
    }

    #[test]
    fn each_signature_of_the_table_is_known_at_each_of_its_places_and_one_byte_beside_it_is_not() {
        for member_bytes in [8 << 20, (100 << 20) + 512] {
            for &(what, places, magic) in TABLE {
                for place in places {
                    let view = View { member_bytes, parts: &[] };
                    let at = view.position(*place).expect("it is long enough");
                    if at >= member_bytes {
                        continue;
                    }
                    let found = recognize(member_bytes, &parts(member_bytes, at, magic));
                    assert_eq!(found, Some(Signature { what, at }), "{magic:?}");
                    let mut other = magic.to_vec();
                    other[magic.len() - 1] ^= 0x10;
                    let found = recognize(member_bytes, &parts(member_bytes, at, &other));
                    assert_ne!(found.map(|found| found.what), Some(what), "{magic:?}");
                }
            }
        }
    }

    #[test]
    fn zfs_is_known_by_any_uberblock_in_either_byte_order() {
        let member_bytes = (10 << 20) + 12_288;
        for label in [0, 256 << 10, (10 << 20) - (512 << 10), (10 << 20) - (256 << 10)] {
            for (slot, order) in [(0, u64::to_le_bytes as fn(u64) -> [u8; 8]), (127, u64::to_be_bytes)] {
                let at = label + (128 << 10) + (slot << 10);
                let found = recognize(member_bytes, &parts(member_bytes, at, &order(0x00ba_b10c)));
                assert_eq!(found, Some(Signature { what: ZFS, at }));
            }
        }
    }

    #[test]
    fn a_start_with_data_is_in_use_and_a_start_of_zeros_is_free() {
        for member_bytes in [0, 1, 4096, 10_000, 3 << 20] {
            assert_eq!(recognize(member_bytes, &parts(member_bytes, 0, &[])), None);
        }
        let text = recognize(20, &parts(20, 0, b"shopping list: milk\n"));
        assert_eq!(text, Some(Signature { what: OTHER, at: 0 }));
        let last = recognize(1 << 20, &parts(1 << 20, HEAD_BYTES - 1, &[1]));
        assert_eq!(last, Some(Signature { what: OTHER, at: HEAD_BYTES - 1 }));
        assert_eq!(recognize(1 << 20, &parts(1 << 20, HEAD_BYTES, &[1])), None);
    }
}
