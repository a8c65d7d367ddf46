//! House rules that neither the compiler nor clippy knows.
//!
//! Each rule reads files or cargo's metadata and names what breaks it, with file and line. Nothing is changed and
//! nothing is built. The rules' own tests are tables of what must pass and what must not.

mod book;
mod folders;
mod packages;
mod text;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::root;

/// One place where a rule is broken.
#[derive(Debug, PartialEq, Eq)]
struct Violation {
    /// File, and line where there is one.
    place: String,
    what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

/// Checks every rule; returns what was checked in a few words.
///
/// # Errors
///
/// All violations, one a line.
pub(crate) fn check() -> Result<String> {
    let mut violations = Vec::new();
    let files = source_files()?;
    let (mut pages, mut sources) = (BTreeMap::new(), BTreeMap::new());
    for path in &files {
        let Ok(contents) = fs::read(root().join(path)) else { continue }; // deleted, but not yet in git
        let Ok(contents) = String::from_utf8(contents) else { continue }; // not a text
        violations.extend(text::check(path, &contents));
        if path.starts_with("docs/") && path.ends_with(".md") {
            pages.insert(path.clone(), contents);
        } else if path.ends_with(".rs") {
            sources.insert(path.clone(), contents);
        }
    }
    violations.extend(book::check(&pages));
    violations.extend(folders::check(&sources));
    let packages = packages::check(&mut violations)?;
    if violations.is_empty() {
        return Ok(format!("{} files, {packages} packages", files.len()));
    }
    let lines: Vec<String> = violations.iter().map(Violation::to_string).collect();
    bail!("{}\n{} violations of the house's rules", lines.join("\n"), lines.len());
}

/// The project's files relative to its root: those in git and those that would be added to it.
fn source_files() -> Result<Vec<String>> {
    let git = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .context("cannot start git")?;
    if !git.status.success() {
        bail!("git ls-files: {}", String::from_utf8_lossy(&git.stderr));
    }
    let mut files: Vec<String> =
        git.stdout.split(|&b| b == 0).map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    files.retain(|name| !name.is_empty());
    files.sort();
    files.dedup();
    Ok(files)
}
