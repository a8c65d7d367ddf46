//! Writes superblocks, bitmaps and bad-block logs with this crate, for the real md driver to judge.
//!
//! ```text
//! change_superblocks touch|dirty|fail NUMBER|bad-block NUMBER|set-bits FIRST COUNT MEMBER...
//! change_superblocks create VERSION LEVEL LAYOUT CHUNK_KIB none|auto|internal|CHUNK_KIB MEMBER...
//! ```
//!
//! * `touch`: raise the event count by two, as if the array had changed;
//! * `dirty`: mark the array not clean from position 0;
//! * `fail`: mark the member of that device number faulty in the others' superblocks, and leave its own unchanged;
//! * `bad-block`: mark sectors 64 to 72 of that member's data area as bad;
//! * `set-bits`: set these bits of the bitmap, which must be current; the array becomes dirty, too;
//! * `create`: write superblocks and bitmaps of a new, clean array of empty members.
//!
//! `tests/kernel/superblocks.sh` runs it in a guest. It never writes array data. Exit status: 0 done, 1 not.

use std::error::Error;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::process::ExitCode;

use mdspace_format::bad_blocks::{self, BadRange};
use mdspace_format::bitmap::{self, BitmapSuper};
use mdspace_format::geometry::Level;
use mdspace_format::placement::{BitmapChoice, Placement, Request, place};
use mdspace_format::superblock::{
    self, Blueprint, DeviceRole, PLACE_BYTES, Resync, SetName, Superblock, Timestamp, Version,
};
use mdspace_format::units::{DeviceNumber, SECTOR_BYTES, Sectors, Slot};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A member's file and length.
struct Member {
    file: File,
    bytes: u64,
}

impl Member {
    fn open(path: &str) -> Result<Self> {
        use std::io::Seek;
        let mut file = OpenOptions::new().read(true).write(true).open(path)?;
        let bytes = file.seek(std::io::SeekFrom::End(0))?;
        Ok(Self { file, bytes })
    }

    fn superblock(&self) -> Result<Superblock> {
        for (version, at) in superblock::places(self.bytes) {
            let mut place = vec![0; PLACE_BYTES as usize];
            self.file.read_exact_at(&mut place, at.0)?;
            if let Some(superblock) = superblock::decode(version, at, &place, self.bytes)? {
                return Ok(superblock);
            }
        }
        Err("no superblock".into())
    }

    fn write(&self, superblock: &Superblock) -> Result<()> {
        self.file.write_all_at(&superblock.encode(), superblock.super_at().0)?;
        Ok(self.file.sync_all()?)
    }

    /// The bitmap's superblock, and its position.
    fn bitmap(&self, superblock: &Superblock) -> Result<Option<(BitmapSuper, u64)>> {
        let (Some(at), Some(room)) = (superblock.bitmap_at(), superblock.bitmap_room(self.bytes)) else {
            return Ok(None);
        };
        let mut bytes = [0; bitmap::SUPER_BYTES];
        self.file.read_exact_at(&mut bytes, at.0)?;
        Ok(Some((BitmapSuper::decode(&bytes, room)?, at.0)))
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("change_superblocks: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[&str]) -> Result<()> {
    match arguments {
        ["touch", members @ ..] => change(members, |superblock| superblock.events += 1),
        ["dirty", members @ ..] => change(members, |superblock| superblock.resync = Resync::From(Sectors(0))),
        ["fail", number, members @ ..] => fail(DeviceNumber(number.parse()?), members),
        ["bad-block", number, members @ ..] => bad_block(DeviceNumber(number.parse()?), members),
        ["set-bits", first, count, members @ ..] => set_bits(first.parse()?, count.parse()?, members),
        ["create", version, level, layout, chunk_kib, bitmap, members @ ..] => {
            let request = Request {
                version: version.parse()?,
                level: parse_level(level)?,
                layout: layout.parse()?,
                raid_disks: members.len().try_into()?,
                chunk_bytes: chunk_kib.parse::<u64>()? * 1024,
                data_offset: None,
                component: None,
                bitmap: match *bitmap {
                    "none" => BitmapChoice::None,
                    "auto" => BitmapChoice::Auto,
                    "internal" => BitmapChoice::DefaultChunk,
                    kib => BitmapChoice::Chunk(kib.parse::<u64>()? * 1024),
                },
                parity_log: false,
                bad_block_log: true,
                integrity: false,
            };
            create(&request, members)
        }
        _ => Err("see the head of its source".into()),
    }
}

fn parse_level(text: &str) -> Result<Level> {
    Ok(match text {
        "linear" => Level::Linear,
        "0" => Level::Raid0,
        "1" => Level::Raid1,
        "4" => Level::Raid4,
        "5" => Level::Raid5,
        "6" => Level::Raid6,
        "10" => Level::Raid10,
        _ => return Err(format!("no level {text}").into()),
    })
}

/// Edits every member's superblock and raises its event count. The bitmap's events follow.
fn change(paths: &[&str], edit: impl Fn(&mut Superblock)) -> Result<()> {
    for path in paths {
        let member = Member::open(path)?;
        let mut superblock = member.superblock()?;
        let bitmap = member.bitmap(&superblock)?;
        edit(&mut superblock);
        superblock.events += 1;
        superblock.updated.seconds += 1;
        if let Some((mut bitmap, at)) = bitmap {
            bitmap.events = superblock.events;
            member.file.write_all_at(&bitmap.encode(), at)?;
        }
        member.write(&superblock)?;
    }
    Ok(())
}

fn fail(number: DeviceNumber, paths: &[&str]) -> Result<()> {
    let mut others = Vec::new();
    for path in paths {
        if Member::open(path)?.superblock()?.device_number != number {
            others.push(*path);
        }
    }
    // Twice, so that the member left behind is more than one event behind.
    change(&others, |superblock| {
        superblock.roles[usize::from(number.0)] = DeviceRole::Faulty;
        superblock.events += 1;
    })
}

fn bad_block(number: DeviceNumber, paths: &[&str]) -> Result<()> {
    for path in paths {
        let member = Member::open(path)?;
        let superblock = member.superblock()?;
        let (Some(place), Some(at)) = (superblock.bad_blocks, superblock.bad_blocks_at()) else {
            return Err("no room for a log".into());
        };
        if superblock.device_number == number {
            let range = BadRange { first: Sectors(64), count: Sectors(8) };
            let log = bad_blocks::encode(&[range], place.shift, usize::from(place.sectors) * SECTOR_BYTES as usize)?;
            member.file.write_all_at(&log, at.0)?;
        }
    }
    change(paths, |superblock| {
        if let Some(place) = &mut superblock.bad_blocks {
            place.in_use |= superblock.device_number == number;
        }
    })
}

fn set_bits(first: u64, count: u64, paths: &[&str]) -> Result<()> {
    for path in paths {
        let member = Member::open(path)?;
        let Some((bitmap, at)) = member.bitmap(&member.superblock()?)? else {
            return Err("no bitmap".into());
        };
        let mut map = vec![0; bitmap.bits().div_ceil(8) as usize];
        bitmap::set_range(&mut map, first..first + count);
        member.file.write_all_at(&map, at + bitmap::SUPER_BYTES as u64)?;
    }
    change(paths, |superblock| superblock.resync = Resync::From(Sectors(0)))
}

fn create(request: &Request, paths: &[&str]) -> Result<()> {
    let members = paths.iter().map(|path| Member::open(path)).collect::<Result<Vec<_>>>()?;
    let lengths: Vec<u64> = members.iter().map(|member| member.bytes).collect();
    let blueprint = Blueprint {
        version: request.version,
        set_uuid: *b"made by mdspace!",
        set_name: if request.version == Version::V0_90 { SetName::default() } else { SetName::new("mdspace:made")? },
        created: Timestamp { seconds: 1_795_000_000, micros: 0 },
        level: request.level,
        layout: request.layout,
        raid0_layout: request.level == Level::Raid0 && lengths.iter().any(|length| *length != lengths[0]),
        chunk: Sectors::from_bytes_down(request.chunk_bytes),
        raid_disks: request.raid_disks,
        roles: (0..request.raid_disks).map(|slot| DeviceRole::Active(Slot(slot))).collect(),
        resync: Resync::Clean,
        logical_block_bytes: 0,
    };
    for (number, (member, placement)) in members.iter().zip(place(request, &lengths)?).enumerate() {
        create_one(&blueprint, &placement, DeviceNumber(number.try_into()?), member)?;
    }
    Ok(())
}

fn create_one(blueprint: &Blueprint, placement: &Placement, number: DeviceNumber, member: &Member) -> Result<()> {
    let mut device_uuid = *b"member number 00";
    device_uuid[15] += number.0 as u8;
    let superblock = Superblock::new(blueprint, placement, number, device_uuid, member.bytes)?;
    if let (Some(bitmap), Some(at)) = (placement.bitmap, superblock.bitmap_at()) {
        let mut bytes = vec![0; bitmap.bytes as usize];
        let header = BitmapSuper::new(blueprint.set_uuid, bitmap.sync_size, bitmap.chunk_bytes, superblock.events);
        bytes[..bitmap::SUPER_BYTES].copy_from_slice(&header.encode());
        member.file.write_all_at(&bytes, at.0)?;
    }
    member.write(&superblock)
}
