//! The file of `read --map-out`: a map in ddrescue's format whose comments say what it is a map of.
//!
//! A file that is no such map, or one of another copy, is refused and stays as it is. A new map replaces the old one as
//! a whole, so that a crash leaves one of them.

use crate::command::cli::sink::is_same_file;
use crate::command::text::failure::Failure;
use crate::names::name_of;
use crate::place::check_hides_no_part;
use disk::map::{RescueMap, Status};
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time between two versions of the file, as in ddrescue.
const INTERVAL: Duration = Duration::from_secs(30);

/// Names that are tried for a new file.
const NAMES_MAX: u32 = 1000;

/// A map, and the file that keeps it.
pub(super) struct MapFile {
    path: PathBuf,
    comments: Vec<String>,
    /// The map.
    pub(super) map: RescueMap,
    saved: Instant,
}

impl MapFile {
    /// The map of `bytes` bytes in `output`, and whether it comes from an earlier run: then its first comments are
    /// `comments`.
    pub(super) fn open(path: &Path, output: &Path, comments: &[String], bytes: u64) -> Result<(Self, bool), Failure> {
        let refused = |reason: String| Failure::refused(format!("{}: {reason}", name_of(path)));
        let another = "choose another --map-out";
        let file = |map| Self { path: path.to_owned(), comments: comments.to_vec(), map, saved: Instant::now() };
        let absolute = |path: &Path| std::path::absolute(path).ok();
        if is_same_file(path, output) || absolute(path) == absolute(output) {
            return Err(refused("the map and the copy cannot be one file".to_owned()).advise(another));
        }
        check_hides_no_part(path).map_err(|refusal| refusal.advice(another))?;
        let text = match std::fs::read(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok((file(RescueMap::untried(bytes)), false)),
            text => text.map_err(|error| refused(error.to_string()).advise(another))?,
        };
        let map = RescueMap::decode(&text)
            .map_err(|defect| refused(format!("exists already, and is no map: {defect}")).advise(another))?;
        let text = String::from_utf8_lossy(&text);
        let lines = text.lines().map(|line| line.trim_start_matches("# "));
        for (found, comment) in lines.zip(comments) {
            if found != comment.escape_default().to_string() {
                let reason = format!("exists already, as the map of another copy: `{found}`, not `{comment}`");
                return Err(refused(reason).advise("choose another --map-out, or remove this one to begin anew"));
            }
        }
        if map.end() != bytes {
            let reason = format!("exists already, and is a map of {} bytes, not of {bytes}", map.end());
            return Err(refused(reason).advise("choose another --map-out, or remove this one to begin anew"));
        }
        if !output.exists() {
            return Err(refused(format!("it is the map of {}, which does not exist", name_of(output)))
                .advise("remove the map to begin anew"));
        }
        Ok((file(map), true))
    }

    /// Bytes below `bytes` that are not finished.
    pub(super) fn unread(&self, bytes: u64) -> u64 {
        self.map.holes(&(0..bytes)).iter().map(|hole| hole.end - hole.start).sum()
    }

    /// Gives all that has one status another.
    pub(super) fn change(&mut self, from: Status, to: Status) {
        let mut at = 0;
        while let Some(range) = self.map.next(from, at) {
            at = range.end;
            self.map.mark(range, to);
        }
    }

    /// Whether the file should be written again.
    pub(super) fn is_due(&self) -> bool {
        self.saved.elapsed() >= INTERVAL
    }

    /// Checks that the file can be replaced, before anything is copied.
    pub(super) fn check_writable(&self) -> Result<(), Failure> {
        let tried = self.fresh().and_then(|(path, _)| std::fs::remove_file(path));
        tried.map_err(|error| {
            let refused = Failure::refused(format!("{}: cannot write the map: {error}", name_of(&self.path)));
            refused.advise("choose a --map-out in a directory that exists, and that you may write to")
        })
    }

    /// Replaces the file.
    pub(super) fn save(&mut self) -> Result<(), Failure> {
        let written = self.fresh().and_then(|(path, mut file)| {
            let all = file.write_all(self.map.encode(&self.comments).as_bytes());
            let replaced = all.and_then(|()| file.sync_all()).and_then(|()| std::fs::rename(&path, &self.path));
            // What was not renamed would stay for ever.
            replaced.inspect_err(|_| drop(std::fs::remove_file(&path)))
        });
        self.saved = Instant::now();
        written.map_err(|error| Failure::unwell(format!("{}: {error}", name_of(&self.path))))
    }

    /// A new file in the directory of the map. It takes the place of no file, and follows no link.
    fn fresh(&self) -> std::io::Result<(PathBuf, File)> {
        let process = std::process::id();
        let names = (0..NAMES_MAX).map(|number| format!(".mdspace-map-{process}-{number}"));
        for path in names.map(|name| self.path.with_file_name(name)) {
            match File::create_new(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                created => return created.map(|file| (path, file)),
            }
        }
        Err(std::io::Error::from(ErrorKind::AlreadyExists))
    }
}
