//! Names of partition types that matter here.

/// GUIDs of a GPT, and their names.
const GUIDS: &[(&str, &str)] = &[
    ("A19D880F-05FC-4D3B-A006-743F0F84911E", "Linux RAID"),
    ("0FC63DAF-8483-4772-8E79-3D69D8477DE4", "Linux file system"),
    ("E6D6D379-F507-44C2-A23C-238F2A3DF928", "Linux LVM"),
    ("0657FD6D-A4AB-43C4-84E5-0933C84B4F4F", "Linux swap"),
    ("CA7D7CCB-63ED-4C53-861C-1742536059CC", "LUKS"),
    ("C12A7328-F81F-11D2-BA4B-00A0C93EC93B", "EFI system"),
    ("21686148-6449-6E6F-744E-656564454649", "BIOS boot"),
    ("EBD0A0A2-B9E5-4433-87C0-68B6B72699C7", "Microsoft basic data"),
    ("E3C9E316-0B5C-4DB8-817D-F92DF00215AE", "Microsoft reserved"),
    ("6A898CC3-1DD2-11B2-99A6-080020736631", "ZFS"),
];

/// Numbers of an MBR, and their names.
const NUMBERS: &[(u8, &str)] = &[
    (0xfd, "Linux RAID"),
    (0x83, "Linux"),
    (0x8e, "Linux LVM"),
    (0x82, "Linux swap"),
    (0x07, "NTFS or exFAT"),
    (0x0b, "FAT32"),
    (0x0c, "FAT32"),
    (0x0e, "FAT16"),
    (0xda, "non-FS data"),
    (0xef, "EFI system"),
];

pub(super) fn of_guid(guid: &str) -> Option<&'static str> {
    GUIDS.iter().find(|(known, _)| *known == guid).map(|(_, name)| *name)
}

pub(super) fn of_number(number: u8) -> Option<&'static str> {
    NUMBERS.iter().find(|(known, _)| *known == number).map(|(_, name)| *name)
}
