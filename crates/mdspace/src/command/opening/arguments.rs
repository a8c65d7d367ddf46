//! Arguments of every command that works on an array's members: which members, and what the user consents to.

use crate::command::opening::mdadm_conf::Config;
use crate::command::opening::members::{ArrayChoice, ArrayUuid};
use crate::command::text::failure::Failure;
use crate::command::text::geometry::GeometryText;
use crate::machine::Consent;
use crate::maps::Maps;
use crate::names::name_of;
use crate::place::is_uri;
use clap::{Args, ValueEnum};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Headings of options in help.
const FINDING: &str = "Which members";
const UNUSUAL: &str = "Damaged, unclean and unusual arrays";

/// Members of an existing array.
#[derive(Debug, Args)]
pub(crate) struct MemberArguments {
    /// The members, in any order: image files, block devices, whole disks, a part of one (disk.img:2,
    /// disk.img@OFFSET+LENGTH), qcow2 and other images, NBD URIs, quoted globs; for `examine`, or with --uuid or --name, directories
    #[arg(value_name = "MEMBER", required = true)]
    pub(crate) members: Vec<OsString>,

    /// Take only members of the array with this UUID, and skip everything else
    #[arg(long, value_name = "UUID")]
    pub(crate) uuid: Option<ArrayUuid>,

    /// Take only members of the array with this name, with or without its host, and skip everything else
    #[arg(long, conflicts_with = "uuid")]
    pub(crate) name: Option<String>,
}

impl MemberArguments {
    /// The choice of an array, if the user made one.
    pub(crate) fn choice(&self) -> Option<ArrayChoice> {
        self.uuid.map(ArrayChoice::Uuid).or_else(|| self.name.clone().map(ArrayChoice::Name))
    }
}

/// Where writes go.
#[derive(Debug, Args)]
pub(crate) struct Overlay {
    /// Leave the members as they are: every write goes to sparse files in this directory, which is made if needed.
    /// `mdspace overlay` shows, discards or commits them
    #[arg(long, value_name = "DIR")]
    pub(crate) overlay: Option<PathBuf>,
}

impl Overlay {
    /// The directory, if the user gave one.
    pub(crate) fn directory(&self) -> Option<&Path> {
        self.overlay.as_deref()
    }
}

/// Members of an array to be assembled.
#[derive(Debug, Args)]
pub(crate) struct AssembleArguments {
    /// The members, in any order: image files, block devices, whole disks, a part of one (disk.img:2,
    /// disk.img@OFFSET+LENGTH), qcow2 and other images, NBD URIs, quoted globs, and with --uuid or --name directories
    #[arg(value_name = "MEMBER", required_unless_present_any = ["scan", "geometry"])]
    members: Vec<OsString>,

    /// Take only members of the array with this UUID, and skip everything else
    #[arg(long, value_name = "UUID", conflicts_with = "scan", help_heading = FINDING)]
    uuid: Option<ArrayUuid>,

    /// Take only members of the array with this name, with or without its host, and skip everything else
    #[arg(long, conflicts_with_all = ["scan", "uuid"], help_heading = FINDING)]
    name: Option<String>,

    /// Take the array of an ARRAY line in mdadm.conf; MEMBER then names that array: /dev/md/data, data, or its UUID
    #[arg(long, help_heading = FINDING)]
    scan: bool,

    /// The file to read instead of /etc/mdadm/mdadm.conf
    #[arg(long, value_name = "FILE", requires = "scan", help_heading = FINDING)]
    config: Option<PathBuf>,

    /// Assemble with stale members (the fewest and freshest that suffice), or although dirty and degraded; warnings
    /// name what may be lost or wrong. Reading writes nothing
    #[arg(long, help_heading = UNUSUAL)]
    pub(crate) force: bool,

    /// Start with fewer members than the array needs, for reading: what those hold is read, everything else is an error
    #[arg(long, conflicts_with = "geometry", help_heading = UNUSUAL)]
    pub(crate) partial: bool,

    /// How a RAID-0 of unequal members was striped, if its superblocks do not say
    #[arg(long, value_name = "LAYOUT", help_heading = UNUSUAL)]
    pub(crate) raid0_layout: Option<Raid0Layout>,

    /// The file that holds the array's write-intent bitmap, if it is kept in one
    #[arg(long, value_name = "FILE", help_heading = UNUSUAL)]
    pub(crate) bitmap: Option<PathBuf>,

    /// For reading in the middle of a reshape: the file that `mdadm --grow --backup-file` named. It has the bytes that the
    /// reshape was writing over
    #[arg(long, value_name = "FILE", help_heading = UNUSUAL)]
    pub(crate) backup_file: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) maps: MapArguments,

    /// Also read blocks that the members' bad-block logs list; they may hold old data. Only for reading
    #[arg(long, help_heading = UNUSUAL)]
    pub(crate) ignore_bad_blocks: bool,

    #[command(flatten)]
    pub(crate) overlay: Overlay,

    /// For reading: how the array was put together, where superblocks are lost or wrong, such as
    /// level=5,layout=ls,chunk=64K,offset=1M,order=a.img,missing,c.img. Without order=, the MEMBERs are in the order of
    /// their slots, and the word `missing` is a slot without one
    #[arg(long, value_name = "TEXT", conflicts_with_all = [
        "scan", "uuid", "name", "force", "raid0_layout", "bitmap", "backup_file", "ignore_bad_blocks", "overlay",
    ], help_heading = UNUSUAL)]
    geometry: Option<GeometryText>,
}

/// The maps of members that are images of failing disks.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct MapArguments {
    /// The map of an image that ddrescue or HDDSuperClone made of a failing disk: what the map does not call finished
    /// comes from the other members. May be given several times. For reading, or with --overlay
    #[arg(long = "map", value_name = "IMAGE=MAPFILE", help_heading = UNUSUAL)]
    named: Vec<OsString>,

    /// Use the map beside each image: disk.img.map, or disk.map of disk.img
    #[arg(long = "maps", help_heading = UNUSUAL)]
    beside: bool,
}

impl MapArguments {
    /// Whether the user gave any.
    pub(crate) fn is_any(&self) -> bool {
        self.beside || !self.named.is_empty()
    }

    /// Reads the maps.
    pub(crate) fn read(&self) -> Result<Maps, Failure> {
        let pairs = self.named.iter().map(|word| {
            pair(word).ok_or_else(|| {
                let word = name_of(Path::new(word));
                if is_uri(Path::new(&word)) {
                    return Failure::refused(format!("--map {word}: exports take no map"))
                        .advise("give the map where the image is, or use the image itself");
                }
                Failure::refused(format!("--map {word}: not two existing files with `=` between them"))
                    .advise("give the image and its map, as in --map disk1.img=disk1.map")
            })
        });
        Ok(Maps::named(&pairs.collect::<Result<Vec<_>, _>>()?)?.and_beside(self.beside))
    }
}

/// The two existing files that `word` names; names may contain `=`.
fn pair(word: &OsStr) -> Option<(PathBuf, PathBuf)> {
    let bytes = word.as_bytes();
    let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
    let marks = (0..bytes.len()).filter(|&at| bytes[at] == b'=');
    let mut pairs = marks.map(|at| (path(&bytes[..at]), path(&bytes[at + 1..])));
    pairs.find(|(image, map)| image.exists() && map.exists())
}

/// The two ways to stripe a RAID-0 of unequal members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Raid0Layout {
    /// By Linux before 3.14
    Original,
    /// By Linux 3.14 or later
    Alternate,
}

impl Raid0Layout {
    /// md's number.
    pub(crate) fn number(self) -> u32 {
        match self {
            Self::Original => 1,
            Self::Alternate => 2,
        }
    }
}

impl AssembleArguments {
    /// The members and their bitmap file, from the command line or from mdadm.conf.
    pub(crate) fn resolve(&self) -> Result<(MemberArguments, Option<PathBuf>), Failure> {
        if !self.scan {
            let (members, name) = (self.members.clone(), self.name.clone());
            return Ok((MemberArguments { members, uuid: self.uuid, name }, self.bitmap.clone()));
        }
        let wanted = match &self.members[..] {
            [] => None,
            [one] => Some(one.to_string_lossy()),
            _ => return Err(Failure::refused("--scan takes one array").advise("run one server for each array")),
        };
        let config = Config::read(self.config.as_deref())?;
        let line = config.array(wanted.as_deref())?;
        if let (None, None, Some(minor)) = (line.uuid, &line.name, line.super_minor) {
            let reason = format!("ARRAY {}: super-minor={minor} alone chooses no members here", line.label());
            return Err(Failure::refused(reason).advise("give uuid= in that line: `mdspace examine --scan` writes it"));
        }
        let name = line.name.clone().filter(|_| line.uuid.is_none());
        let members = MemberArguments { members: config.places(line), uuid: line.uuid, name };
        Ok((members, self.bitmap.clone().or_else(|| line.bitmap.clone())))
    }
}

impl AssembleArguments {
    /// What the user consents to.
    pub(crate) fn consent(&self) -> Consent {
        let raid0_layout = self.raid0_layout.map(Raid0Layout::number);
        let Self { force, ignore_bad_blocks, partial, .. } = *self;
        Consent { force, raid0_layout, ignore_bad_blocks, partial, ..Consent::default() }
    }

    /// `members` and `bitmap`, with defaults for everything else.
    pub(crate) fn of(members: &MemberArguments, bitmap: Option<PathBuf>) -> Self {
        let MemberArguments { members, uuid, name } = members;
        Self {
            members: members.clone(),
            uuid: *uuid,
            name: name.clone(),
            scan: false,
            config: None,
            force: false,
            partial: false,
            raid0_layout: None,
            ignore_bad_blocks: false,
            maps: MapArguments::default(),
            bitmap,
            backup_file: None,
            geometry: None,
            overlay: Overlay { overlay: None },
        }
    }

    /// The same, with a geometry.
    pub(crate) fn by_hand(self, geometry: Option<GeometryText>) -> Self {
        Self { geometry, ..self }
    }

    /// The geometry, and the words of the command line for members, if the array is put together by hand.
    pub(crate) fn geometry(&self) -> Option<(&GeometryText, &[OsString])> {
        Some((self.geometry.as_ref()?, &self.members))
    }
}
