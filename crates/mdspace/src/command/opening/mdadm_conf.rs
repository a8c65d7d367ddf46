//! mdadm.conf: `DEVICE` and `ARRAY` lines, read as mdadm reads them; and `ARRAY` lines, written as it writes them.
//!
//! Other lines are skipped if they do not affect which members an array has. An unknown word in an `ARRAY` line is
//! refused: it may be what keeps the wrong array from starting.
//!
//! Facts: mdadm.conf(5); mdadm's `config.c` and `super1.c` (`brief_examine_super1`).

use crate::command::opening::members::ArrayUuid;
use crate::command::text::failure::Failure;
use crate::command::text::output::tell;
use engine::examined::Examination;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Paths at which mdadm looks, in its order.
const PLACES: [&str; 2] = ["/etc/mdadm/mdadm.conf", "/etc/mdadm.conf"];

/// One `ARRAY` line.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ArrayLine {
    /// `/dev/md/data`, if the line names a device.
    pub(crate) device: Option<String>,
    pub(crate) uuid: Option<ArrayUuid>,
    pub(crate) name: Option<String>,
    /// The number of its device, which only members of metadata 0.90 have.
    pub(crate) super_minor: Option<u32>,
    /// Globs of the members' paths.
    devices: Vec<String>,
    /// The file that holds the write-intent bitmap.
    pub(crate) bitmap: Option<PathBuf>,
    /// The name of the group of arrays with which this one shares its spares.
    spare_group: Option<String>,
}

/// The parts of the file that count here.
#[derive(Debug, PartialEq, Eq, Default)]
pub(crate) struct Config {
    /// Globs of possible members; the word `partitions` stands for all block devices.
    devices: Vec<String>,
    arrays: Vec<ArrayLine>,
    /// To which address and program a monitor reports.
    pub(crate) mail: Option<String>,
    pub(crate) program: Option<String>,
}

impl Config {
    /// Reads `path`, or the file that mdadm would read.
    pub(crate) fn read(path: Option<&Path>) -> Result<Self, Failure> {
        let path = match path {
            Some(path) => path,
            None => PLACES.iter().map(Path::new).find(|path| path.exists()).unwrap_or(Path::new(PLACES[0])),
        };
        let refused = |reason: String| Failure::refused(format!("{}: {reason}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| refused(error.to_string()))?;
        Self::parse(&text).map_err(refused)
    }

    /// Whether mdadm would find a file.
    pub(crate) fn is_there() -> bool {
        PLACES.iter().any(|path| Path::new(path).exists())
    }

    /// The arrays of each group that shares its spares, by uuid or name, in the order of the lines.
    pub(crate) fn spare_groups(&self) -> Vec<Vec<String>> {
        let mut groups: Vec<(&str, Vec<String>)> = Vec::new();
        for line in &self.arrays {
            let Some(group) = line.spare_group.as_deref() else { continue };
            let name = || line.name.clone().unwrap_or_else(|| line.label());
            let array = line.uuid.map_or_else(name, |uuid| uuid.to_string());
            match groups.iter_mut().find(|(name, _)| *name == group) {
                Some((_, arrays)) => arrays.push(array),
                None => groups.push((group, vec![array])),
            }
        }
        groups.into_iter().map(|(_, arrays)| arrays).filter(|arrays| arrays.len() > 1).collect()
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut config = Self::default();
        for words in lines(text) {
            let (keyword, rest) = words.split_first().expect("a line has a word");
            if is_keyword(keyword, "device") {
                config.devices.extend(rest.iter().cloned());
            } else if is_keyword(keyword, "array") {
                config.arrays.push(array(rest)?);
            } else if keyword.eq_ignore_ascii_case("mailaddr") {
                config.mail = rest.first().cloned().or(config.mail);
            } else if is_keyword(keyword, "program") {
                config.program = rest.first().cloned().or(config.program);
            }
        }
        Ok(config)
    }

    /// The array whose device, name or uuid is `wanted`; without `wanted` the only array.
    pub(crate) fn array(&self, wanted: Option<&str>) -> Result<&ArrayLine, Failure> {
        let is_wanted = |line: &&ArrayLine| wanted.is_none_or(|wanted| line.matches(wanted));
        let found: Vec<&ArrayLine> = self.arrays.iter().filter(is_wanted).collect();
        let known = || {
            let names: Vec<String> = self.arrays.iter().map(ArrayLine::label).collect();
            if names.is_empty() { "it has no ARRAY line".to_owned() } else { format!("it has: {}", names.join(", ")) }
        };
        match (&found[..], wanted) {
            ([line], _) => Ok(line),
            ([], Some(wanted)) => {
                Err(Failure::refused(format!("{wanted}: mdadm.conf has no such ARRAY line")).advise(known()))
            }
            ([], None) => Err(Failure::refused("mdadm.conf has no ARRAY line")
                .advise("`mdspace examine --scan MEMBER...` prints such lines")),
            (_, _) => {
                Err(Failure::refused("several ARRAY lines of mdadm.conf match")
                    .advise(format!("choose one; {}", known())))
            }
        }
    }

    /// All `ARRAY` lines.
    pub(crate) fn arrays(&self) -> &[ArrayLine] {
        &self.arrays
    }

    /// Globs and paths of the possible members of any array.
    pub(crate) fn all_places(&self) -> Vec<OsString> {
        self.places(&ArrayLine::default())
    }

    /// Globs and paths of the possible members of `array`.
    pub(crate) fn places(&self, array: &ArrayLine) -> Vec<OsString> {
        if !array.devices.is_empty() {
            return array.devices.iter().map(OsString::from).collect();
        }
        let is_default = self.devices.is_empty();
        let mut places: Vec<OsString> = Vec::new();
        for device in &self.devices {
            match &**device {
                "partitions" | "containers" => {}
                glob => places.push(glob.into()),
            }
        }
        if is_default || self.devices.iter().any(|device| device == "partitions") {
            places.extend(block_devices());
        }
        places
    }
}

/// All block devices with a size, as the kernel lists them.
pub(crate) fn block_devices() -> Vec<OsString> {
    let Ok(listed) = std::fs::read_to_string("/proc/partitions") else {
        tell!("note: this system does not list its disks in /proc/partitions, so none is looked at: name them");
        return Vec::new();
    };
    let devices = listed.lines().skip(2).filter_map(|line| {
        let mut words = line.split_whitespace();
        let (blocks, name) = (words.nth(2)?, words.next()?);
        (blocks != "0").then(|| Path::new("/dev").join(name)).filter(|path| path.exists())
    });
    devices.map(PathBuf::into_os_string).collect()
}

/// The lines as words. A line that begins with white space continues the line before; a word that begins with `#`
/// starts a comment.
fn lines(text: &str) -> Vec<Vec<String>> {
    let mut lines: Vec<Vec<String>> = Vec::new();
    for line in text.lines() {
        let more = words(line);
        if more.is_empty() {
            continue;
        }
        match lines.last_mut().filter(|_| line.starts_with([' ', '\t'])) {
            Some(last) => last.extend(more),
            None => lines.push(more),
        }
    }
    lines
}

/// The words of a line. Quotes keep spaces, and are dropped.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() && !rest.starts_with('#') {
        let mut word = String::new();
        let mut quote = None;
        let end = rest.find(|c: char| match quote {
            Some(open) if c == open => {
                quote = None;
                false
            }
            Some(_) => {
                word.push(c);
                false
            }
            None if c == '"' || c == '\'' => {
                quote = Some(c);
                false
            }
            None if c.is_whitespace() => true,
            None => {
                word.push(c);
                false
            }
        });
        words.push(word);
        rest = end.map_or("", |end| rest[end..].trim_start());
    }
    words
}

/// Keywords may be shortened, to no less than three letters, in upper or lower case.
fn is_keyword(word: &str, keyword: &str) -> bool {
    word.len() >= 3 && keyword.starts_with(&word.to_ascii_lowercase())
}

fn array(words: &[String]) -> Result<ArrayLine, String> {
    let mut line = ArrayLine::default();
    for word in words {
        let Some((key, value)) = word.split_once('=') else {
            line.device = Some(word.clone());
            continue;
        };
        match &*key.to_ascii_lowercase() {
            "uuid" => line.uuid = Some(value.parse().map_err(|error| format!("ARRAY: uuid={value}: {error}"))?),
            "name" => line.name = Some(value.to_owned()),
            "super-minor" => {
                let minor = value.parse().map_err(|_| format!("ARRAY: {word}: not a number"))?;
                line.super_minor = Some(minor);
            }
            "devices" => line.devices.extend(value.split(',').map(str::to_owned)),
            "bitmap" => line.bitmap = Some(value.into()),
            "spare-group" => line.spare_group = Some(value.to_owned()),
            // The superblocks have these, too.
            "metadata" | "level" | "num-devices" | "spares" | "disks" | "auto" => {}
            _ => return Err(format!("ARRAY: {word}: unknown word")),
        }
    }
    if line.uuid.is_none() && line.name.is_none() && line.super_minor.is_none() && line.devices.is_empty() {
        let words = "uuid=, name=, devices= or super-minor=";
        return Err(format!("ARRAY {}: nothing says which members it has: give {words}", line.label()));
    }
    Ok(line)
}

impl ArrayLine {
    fn matches(&self, wanted: &str) -> bool {
        let device = self.device.as_deref();
        let last = |path: &str| path.rsplit(['/', ':']).next().map(str::to_owned);
        device == Some(wanted)
            || self.name.as_deref() == Some(wanted)
            || wanted.parse().is_ok_and(|uuid: ArrayUuid| self.uuid == Some(uuid))
            || [device, self.name.as_deref()].into_iter().flatten().any(|path| last(path).as_deref() == Some(wanted))
    }

    /// The device, the name or the uuid.
    pub(crate) fn label(&self) -> String {
        let words = [self.device.clone(), self.name.clone(), self.uuid.map(|uuid| uuid.to_string())];
        words.into_iter().flatten().next().unwrap_or_else(|| "without a name".to_owned())
    }
}

/// The `ARRAY` lines of the members' arrays, in the order of the members.
pub(crate) fn array_lines(members: &[Examination]) -> String {
    let mut seen = Vec::new();
    let mut text = String::new();
    for member in members {
        let uuid = &member.array_uuid;
        if seen.contains(&uuid) {
            continue;
        }
        seen.push(uuid);
        let own = members.iter().filter(|other| other.array_uuid == *uuid);
        let spares = own.filter(|other| other.role == "spare").count();
        text += &array_line(member, spares);
    }
    text
}

fn array_line(member: &Examination, spares: usize) -> String {
    let name = &member.array_name;
    // Any other name would add words to the line, or another line.
    let is_plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_graphic() && !"\"'#".contains(c));
    let device = match name.rsplit(':').next() {
        Some(short) if is_plain => format!("/dev/md/{short}"),
        _ => String::new(),
    };
    let metadata = if member.metadata == "0.90" { String::new() } else { format!("metadata={} ", member.metadata) };
    let name = if is_plain { format!(" name={name}") } else { String::new() };
    let spares = if spares > 0 { format!("\n   spares={spares}") } else { String::new() };
    format!("ARRAY {device}  {metadata}UUID={}{name}{spares}\n", member.array_uuid)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "8837484e:6736f578:ac61cf7d:73ed41bb";
    const OTHER: &str = "6d5d081c:dcc5b63c:6c767bf5:7fd3d38b";

    fn config() -> Config {
        let text = format!(
            "# what mdadm wrote\n\
             DEVICE /dev/sd[a-d]1 \"/srv/with space/*.img\" # and no more\n\
             dev /dev/vd*\n\
             HOMEHOST <system>\nMAILADDR root\nPROGRAM /sbin/alert\n\n\
             ARRAY /dev/md/0  metadata=1.2 UUID={UUID} name=host:0\n\
             array /dev/md/foo  metadata=1.2\n\
             \t UUID={OTHER}\n   spares=1\n   bitmap='/var/a bitmap'\n"
        );
        Config::parse(&text).expect("it is understood")
    }

    #[test]
    fn device_and_array_lines_are_read_as_mdadm_reads_them() {
        let config = config();
        assert_eq!(config.devices, ["/dev/sd[a-d]1", "/srv/with space/*.img", "/dev/vd*"]);
        assert_eq!(config.arrays.len(), 2);
        assert_eq!((config.mail.as_deref(), config.program.as_deref()), (Some("root"), Some("/sbin/alert")));
        assert_eq!(config.arrays[0].uuid, UUID.parse().ok());
        assert_eq!(config.arrays[1].bitmap.as_deref(), Some(Path::new("/var/a bitmap")));
        for (wanted, expected) in [
            ("/dev/md/0", Some(UUID)),
            ("0", Some(UUID)),
            ("host:0", Some(UUID)),
            (UUID, Some(UUID)),
            ("foo", Some(OTHER)),
            ("/dev/md/foo", Some(OTHER)),
            ("bar", None),
            ("", None),
        ] {
            let found = config.array(Some(wanted)).ok().and_then(|line| line.uuid).map(|uuid| uuid.to_string());
            assert_eq!(found.as_deref(), expected, "{wanted}");
        }
        let several = config.array(None).expect_err("there are two").to_string();
        assert!(several.contains("/dev/md/0, /dev/md/foo"), "{several}");
    }

    #[test]
    fn what_an_array_line_asks_for_and_is_not_understood_is_refused() {
        for (line, reason) in [
            ("ARRAY /dev/md0 metadata=1.2".to_owned(), "nothing says which members"),
            ("ARRAY /dev/md0 super-minor=x".to_owned(), "super-minor=x: not a number"),
            ("ARRAY /dev/md0 uuid=1234".to_owned(), "32 hexadecimal digits"),
            (format!("ARRAY <ignore> uuid={UUID} container=imsm0"), "container=imsm0"),
        ] {
            let error = Config::parse(&line).expect_err(&line);
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn a_line_without_a_uuid_says_otherwise_which_members_it_has() {
        let text = "ARRAY /dev/md0 name=host:x\nARRAY /dev/md1 devices=/a,/b\nARRAY /dev/md2 super-minor=2\n";
        let config = Config::parse(text).expect("it is understood");
        let line = |name: &str| config.array(Some(name)).expect("it has that line");
        assert_eq!((line("md0").uuid, line("md0").name.as_deref()), (None, Some("host:x")));
        assert_eq!(config.places(line("/dev/md1")), ["/a", "/b"]);
        assert_eq!(line("/dev/md2").super_minor, Some(2));
    }

    #[test]
    fn arrays_of_one_spare_group_are_named_together() {
        let text = format!(
            "ARRAY /dev/md0 uuid={UUID} spare-group=one\nARRAY /dev/md1 uuid={OTHER} spare-group=two\n\
             ARRAY /dev/md2 name=host:x spare-group=one\nARRAY /dev/md3 name=y\n"
        );
        let groups = Config::parse(&text).expect("it is understood").spare_groups();
        assert_eq!(groups, [[UUID, "host:x"]], "a group of one array shares nothing");
    }

    #[test]
    fn an_arrays_own_devices_come_before_those_of_all() {
        let config = config();
        assert_eq!(config.places(&config.arrays[0]).len(), 3);
        let text = format!("DEVICE /dev/sd*\nARRAY x uuid={UUID} devices=/a.img,/b*.img\n");
        let config = Config::parse(&text).expect("it is understood");
        assert_eq!(config.places(&config.arrays[0]), ["/a.img", "/b*.img"]);
    }
}
