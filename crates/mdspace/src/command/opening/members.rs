//! From words on the command line to paths of members.
//!
//! Globs that no shell expanded (quoted, or in a unit file) are expanded here. Nothing is opened and nothing is
//! guessed: a word without a matching file and a member given twice are refused.

use crate::command::text::failure::Failure;
use crate::machine::refuse_duplicates;
use crate::names::name_of;
use crate::place::{identity, is_uri, split_word};
use format::superblock::{Superblock, Version};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The `set_uuid` of an array, as `--uuid` takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ArrayUuid(pub(crate) [u8; 16]);

impl FromStr for ArrayUuid {
    type Err = String;

    /// 32 hexadecimal digits, with `:` (as mdadm prints them) or `-` anywhere.
    fn from_str(text: &str) -> Result<Self, String> {
        let digits: Vec<char> = text.chars().filter(|c| !matches!(c, ':' | '-')).collect();
        let value = |c: &char| c.to_digit(16).map(|digit| digit as u8);
        let digits: Option<Vec<u8>> = digits.iter().map(value).collect();
        let digits = digits.filter(|digits| digits.len() == 32).ok_or("expected 32 hexadecimal digits")?;
        let mut bytes = [0; 16];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = pair[0] << 4 | pair[1];
        }
        Ok(Self(bytes))
    }
}

impl ArrayUuid {
    /// mdadm's form of the uuid of metadata 0.90, which it prints as four numbers; and back.
    pub(crate) fn with_words_reversed(mut self) -> Self {
        self.0.as_chunks_mut::<4>().0.iter_mut().for_each(|word| word.reverse());
        self
    }
}

impl fmt::Display for ArrayUuid {
    /// As mdadm prints it: four groups of eight digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, group) in self.0.chunks_exact(4).enumerate() {
            let colon = if index == 0 { "" } else { ":" };
            write!(f, "{colon}{:02x}{:02x}{:02x}{:02x}", group[0], group[1], group[2], group[3])?;
        }
        Ok(())
    }
}

/// Selects the members of one array among those given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ArrayChoice {
    /// Members with this `set_uuid`.
    Uuid(ArrayUuid),
    /// Members with this array name. The host, with which mdadm's names begin, may be left out.
    Name(String),
}

impl ArrayChoice {
    /// Whether a member with this superblock belongs to the array.
    pub(crate) fn is_of(&self, superblock: &Superblock) -> bool {
        match self {
            // mdadm and its configuration have another form of the uuid of 0.90.
            Self::Uuid(uuid) if superblock.version == Version::V0_90 => {
                [uuid.0, uuid.with_words_reversed().0].contains(&superblock.set_uuid)
            }
            Self::Uuid(uuid) => superblock.set_uuid == uuid.0,
            Self::Name(wanted) => {
                let name = superblock.set_name.as_bytes();
                let without_host = name.iter().position(|&byte| byte == b':').map(|colon| &name[colon + 1..]);
                name == wanted.as_bytes() || without_host == Some(wanted.as_bytes())
            }
        }
    }
}

impl fmt::Display for ArrayChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uuid(uuid) => uuid.fmt(f),
            Self::Name(name) => write!(f, "\"{}\"", name.escape_default()),
        }
    }
}

/// The members that `words` name, in their order; the matches of a glob in alphabetical order.
pub(crate) fn expand(words: &[OsString]) -> Result<Vec<PathBuf>, Failure> {
    let mut paths = Vec::new();
    for word in words {
        expand_word(word, &mut paths)?;
    }
    refuse_duplicates(&paths)?;
    Ok(paths)
}

/// As [`expand`], but a directory stands for the files and block devices in it.
pub(crate) fn expand_with_directories(words: &[OsString]) -> Result<Vec<PathBuf>, Failure> {
    let mut paths = Vec::new();
    for word in words {
        expand_word(word, &mut paths)?;
    }
    let mut members = Vec::new();
    for path in paths {
        if path.is_dir() {
            members.extend(files_of(&path)?);
        } else {
            members.push(path);
        }
    }
    // Directories may overlap, and /dev/disk has several links to one device, so a duplicate is not an error here.
    let mut seen = std::collections::HashSet::new();
    members.retain(|path| identity(path).map_or(true, |identity| seen.insert(identity)));
    Ok(members)
}

fn expand_word(word: &OsStr, paths: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let path = Path::new(word);
    if is_uri(path) || path.symlink_metadata().is_ok() {
        paths.push(path.to_owned());
        return Ok(());
    }
    // A part of each file that the rest of the word names.
    if let Some((files, part)) = split_word(path) {
        let mut found = Vec::new();
        expand_file(files.as_os_str(), &mut found)?;
        paths.extend(found.into_iter().map(|file| {
            let mut name = file.into_os_string();
            name.push(&part);
            name.into()
        }));
        return Ok(());
    }
    expand_file(word, paths)
}

fn expand_file(word: &OsStr, paths: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let path = Path::new(word);
    if path.symlink_metadata().is_ok() {
        paths.push(path.to_owned());
        return Ok(());
    }
    let shown = name_of(path);
    let Some(pattern) = word.to_str().filter(|text| text.contains(['*', '?', '['])) else {
        return Err(Failure::refused(format!("{shown}: no such file or device")).advise("check the spelling"));
    };
    let matches = glob::glob(pattern).map_err(|error| Failure::refused(format!("{shown}: bad pattern: {error}")))?;
    let before = paths.len();
    for found in matches {
        paths.push(found.map_err(|error| Failure::refused(format!("{shown}: {error}")))?);
    }
    if paths.len() == before {
        return Err(Failure::refused(format!("{shown}: no file or device matches")).advise("check the pattern"));
    }
    Ok(())
}

fn files_of(directory: &Path) -> Result<Vec<PathBuf>, Failure> {
    use std::os::unix::fs::FileTypeExt;
    let failed = |error: std::io::Error| Failure::refused(format!("{}: {error}", name_of(directory)));
    let mut files = Vec::new();
    for entry in directory.read_dir().map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let kind = path.metadata().map(|metadata| metadata.file_type());
        if kind.is_ok_and(|kind| kind.is_file() || kind.is_block_device()) {
            files.push(path);
        }
    }
    files.sort_unstable();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_read_in_any_grouping_and_printed_as_mdadm_does() {
        let printed = "00112233:44556677:8899aabb:ccddeeff";
        for text in [printed, "00112233-4455-6677-8899-aabbccddeeff", "00112233445566778899AABBCCDDEEFF"] {
            assert_eq!(text.parse::<ArrayUuid>().map(|uuid| uuid.to_string()).as_deref(), Ok(printed));
        }
        for text in ["", "0011", "00112233:44556677:8899aabb:ccddeefg", "00112233445566778899aabbccddeeff0"] {
            text.parse::<ArrayUuid>().expect_err(text);
        }
    }
}
