//! The commands that come next: down to a list of files, as an ordinary user, with the programs that are installed.
//!
//! Each command works as it is printed. It reads: no command here writes to a member.

use crate::command::cli::detect::containers::ContainerFound;
use crate::detect::ArrayFound;
use crate::detect::Next;
use crate::detect::VolumeGroup;
use crate::detect::{DiskFound, PartitionFound};
use crate::detect::{Inner, Layer};
use crate::maps::Maps;
use crate::names::shell_word;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A way to list files in a file: the program, its Debian package, and its arguments with `FILE` for the file.
type Lister = (&'static str, &'static str, &'static str);

const OF_EXT: &[Lister] =
    &[("debugfs", "e2fsprogs", "-R 'ls -l /' FILE"), ("guestfish", "guestfish", "--ro -a FILE -m /dev/sda ls /")];
const OF_XFS: &[Lister] = &[("guestfish", "guestfish", "--ro -a FILE -m /dev/sda ls /")];
const OF_BTRFS: &[Lister] = &[
    ("btrfs", "btrfs-progs", "restore --dry-run --verbose FILE ."),
    ("guestfish", "guestfish", "--ro -a FILE -m /dev/sda ls /"),
];
/// Directories of programs that are not in every user's PATH.
const SYSTEM: [&str; 2] = ["/usr/sbin", "/sbin"];

/// Adds the commands to each array and volume group.
pub(crate) fn add(arrays: &mut [ArrayFound], groups: &mut [VolumeGroup], maps: &Maps) {
    for index in 0..arrays.len() {
        let next = match arrays[index].refusal {
            None => of_array(&arrays[index], arrays, maps),
            Some(_) => Vec::new(),
        };
        arrays[index].next = Some(next);
    }
    for group in groups {
        group.next = Some(of_group(group, arrays, maps));
    }
}

/// The searches for arrays in partitions that are of md by their type, of which no disk has a superblock.
pub(crate) fn of_lost(disks: &[DiskFound], maps: &Maps) -> Vec<Next> {
    let mut lost: BTreeMap<u32, Vec<&PartitionFound>> = BTreeMap::new();
    for partition in disks.iter().flat_map(|disk| &disk.partitions).filter(|one| one.type_name == Some("Linux RAID")) {
        lost.entry(partition.number).or_default().push(partition);
    }
    let has_none = |members: &&Vec<&PartitionFound>| members.iter().all(|one| one.content.kind != "md");
    let search = |members: &Vec<&PartitionFound>| {
        let names: Vec<String> = members.iter().map(|one| one.name.clone()).collect();
        let command = format!("mdspace detect --search {}", words(&names, maps));
        Next { what: "no superblock of md is there: finds the array's shape from its data".to_owned(), command }
    };
    lost.values().filter(|members| members.len() > 1).filter(has_none).map(search).collect()
}

/// Adds the commands to each volume of a container.
pub(crate) fn add_of_containers(containers: &mut [ContainerFound], maps: &Maps) {
    for container in containers {
        let disks: Vec<String> = container.disks.iter().map(|disk| shell_word(disk)).collect();
        let several = container.volumes.len() > 1;
        for volume in container.volumes.iter_mut().filter(|volume| volume.refusal.is_none()) {
            let name = if several { format!(" --name {}", shell_word(&volume.name)) } else { String::new() };
            // A map of a disk that the volume does not lie on would be refused.
            let own: Vec<String> =
                volume.slots.iter().filter(|slot| slot.current).filter_map(|slot| slot.disk.clone()).collect();
            let members = format!("{}{name}{}", disks.join(" "), maps.options(&own));
            let short = short_of(&volume.name, &container.id);
            let Some(content) = &volume.content else { continue };
            volume.next = of_content(content, &members, "", &short);
        }
    }
}

/// Lists of the files of a group's volumes, from copies of these.
fn of_group(group: &VolumeGroup, arrays: &[ArrayFound], maps: &Maps) -> Vec<Next> {
    let is_on_array = |owner: &&String| arrays.iter().any(|array| array.uuid == **owner);
    if group.missing > 0 || !group.physical.iter().any(|owner| is_on_array(&owner)) {
        return Vec::new();
    }
    let members: Vec<String> = group.physical.iter().flat_map(|owner| members_of(owner, arrays)).collect();
    let members = words(&members, maps);
    let mut next = Vec::new();
    for volume in &group.volumes {
        let Some(listers) = listers_of(volume.content.kind) else { continue };
        let name = format!("{}/{}", group.name, volume.name);
        next.extend(of_inner(&members, &name, &name, &format!("{}.img", volume.name), listers));
    }
    next
}

/// A copy of something inside, and the list of its files; or the same without a copy.
fn of_inner(members: &str, what: &str, name: &str, file: &str, listers: &[Lister]) -> Vec<Next> {
    let copy = Next {
        what: format!("copies {what} into {file}"),
        command: format!("mdspace read {members} --inner {} --output {}", shell_word(name), shell_word(file)),
    };
    let mut next = vec![copy, in_file("lists the files in the copy", listers, file)];
    if is_fuse_there() {
        let directory = file.strip_suffix(".img").unwrap_or(file);
        next.push(served(&format!("{members} --inner {}", shell_word(name)), directory));
    }
    next
}

fn is_fuse_there() -> bool {
    find("fusermount3").is_some() && Path::new("/dev/fuse").exists()
}

/// The same without a copy.
fn served(arguments: &str, directory: &str) -> Next {
    Next {
        what: format!("without a copy: the file {directory}/array, until ctrl-C"),
        command: format!("mkdir -p {0} && mdspace serve {arguments} --read-only --fuse {0}", shell_word(directory)),
    }
}

/// The members of an array; of an array inside of others the members of those. Anything else is a member.
fn members_of(owner: &str, arrays: &[ArrayFound]) -> Vec<String> {
    match arrays.iter().find(|array| array.uuid == owner) {
        None => vec![owner.to_owned()],
        Some(ArrayFound { inside_of, members, .. }) if inside_of.is_empty() => {
            members.iter().map(|member| member.name.clone()).collect()
        }
        Some(ArrayFound { inside_of, .. }) => inside_of.iter().flat_map(|outer| members_of(outer, arrays)).collect(),
    }
}

/// Members for a shell, with their maps: without a map a hole of an image reads as data.
fn words(members: &[String], maps: &Maps) -> String {
    let words: Vec<String> = members.iter().map(|member| shell_word(member)).collect();
    words.join(" ") + &maps.options(members)
}

/// The ways to list the files of a file system.
fn listers_of(kind: &str) -> Option<&'static [Lister]> {
    match kind {
        "ext" => Some(OF_EXT),
        "xfs" => Some(OF_XFS),
        "btrfs" => Some(OF_BTRFS),
        _ => None,
    }
}

/// Copies of the partitions of something that have files.
fn of_partitions(content: &Layer, members: &str, short: &str) -> Vec<Next> {
    let copy = |part: &Inner| {
        let listers = listers_of(part.content.kind)?;
        let what = format!("partition {}", part.name);
        Some(of_inner(members, &what, &part.name, &format!("{short}-{}.img", part.name), listers))
    };
    content.inside.iter().filter_map(copy).flatten().collect()
}

fn of_array(array: &ArrayFound, arrays: &[ArrayFound], maps: &Maps) -> Vec<Next> {
    let inner = match array.inside_of.is_empty() {
        true => String::new(),
        false => format!(" --inner {}", array.uuid),
    };
    let members = words(&members_of(&array.uuid, arrays), maps);
    let content = array.content.as_ref();
    content.map_or_else(Vec::new, |content| of_content(content, &members, &inner, &short(array)))
}

/// The commands for what `members` hold, or what `inner` in them holds.
fn of_content(content: &Layer, members: &str, inner: &str, short: &str) -> Vec<Next> {
    match content.kind {
        // What is inside of these has commands of its own.
        "swap" | "empty" | "md" | "lvm" => return Vec::new(),
        "partitions" => return of_partitions(content, members, short),
        _ => {}
    }
    let image = format!("{short}.img");
    let mut next = vec![Next {
        what: format!("copies it into {image}"),
        command: format!("mdspace read {members}{inner} --output {}", shell_word(&image)),
    }];
    if let Some(listers) = listers_of(content.kind) {
        next.push(in_file("lists the files in the copy", listers, &image));
    }
    if is_fuse_there() {
        next.push(served(&format!("{members}{inner}"), short));
    }
    next
}

fn in_file(what: &str, listers: &[Lister], file: &str) -> Next {
    let arguments: Vec<String> = listers.iter().map(|(_, _, text)| text.replace("FILE", &shell_word(file))).collect();
    let listers: Vec<(&str, &str, &str)> = listers
        .iter()
        .zip(&arguments)
        .map(|((program, package, _), arguments)| (*program, *package, arguments.as_str()))
        .collect();
    listing(what, &listers)
}

/// The first of the programs that is installed, or what to install.
fn listing(what: &str, listers: &[(&str, &str, &str)]) -> Next {
    let installed = listers.iter().find_map(|lister| Some((lister, find(lister.0)?)));
    match (installed, listers) {
        (Some(((program, _, arguments), at)), _) => {
            let program = if at.is_in_path { (*program).to_owned() } else { at.file.display().to_string() };
            Next { what: what.to_owned(), command: format!("{program} {arguments}") }
        }
        (None, [(program, package, arguments), ..]) => Next {
            what: format!("{what}; {program} is not installed (Debian's package {package})"),
            command: format!("{program} {arguments}"),
        },
        (None, []) => Next { what: what.to_owned(), command: String::new() },
    }
}

/// A program, and whether its name alone starts it.
pub(crate) struct Program {
    pub(crate) file: PathBuf,
    is_in_path: bool,
}

/// Finds a program in the user's PATH, and where the system's own programs are.
pub(crate) fn find(program: &str) -> Option<Program> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let own = std::env::split_paths(&path).map(|directory| (directory, true));
    let system = SYSTEM.iter().map(|directory| (PathBuf::from(directory), false));
    own.chain(system).find_map(|(directory, is_in_path)| {
        let file = directory.join(program);
        file.is_file().then_some(Program { file, is_in_path })
    })
}

/// A short name for files: the array's name without its host, or the beginning of its UUID.
fn short(array: &ArrayFound) -> String {
    short_of(array.name.rsplit(':').next().unwrap_or_default(), &array.uuid)
}

fn short_of(name: &str, id: &str) -> String {
    let is_plain = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    if is_plain && !name.starts_with('-') { format!("md-{name}") } else { format!("md-{}", &id[..8.min(id.len())]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_missing_is_named_with_its_package() {
        let next = listing("lists", &[("no-such-program", "its-package", "-x file")]);
        assert!(next.what.contains("its-package"), "{next:?}");
        assert_eq!(next.command, "no-such-program -x file");
        assert_eq!(listing("lists", &[("no-such-program", "", ""), ("sh", "dash", "-c true")]).command, "sh -c true");
    }
}
