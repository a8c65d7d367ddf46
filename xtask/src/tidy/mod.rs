//! Rules of the project that neither the compiler nor clippy checks.
//!
//! A rule reads files or cargo's metadata, and names each violation with file and line. It changes nothing and builds
//! nothing. The rules' own tests are tables of what must pass and what must not.

mod book;
mod folders;
mod language;
mod packages;
mod text;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::root;

use language::Language;

/// A violation of a rule.
#[derive(Debug, PartialEq, Eq)]
struct Violation {
    /// The file, with the line if there is one.
    place: String,
    what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

/// The options of a check.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Also print the language figures of each folder
    #[arg(long)]
    language: bool,
}

/// Checks every rule, and prints a short summary.
///
/// # Errors
///
/// All violations, one per line.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let language = read(&source_files()?, |_, _| ());
    if arguments.language {
        print!("{language}");
    }
    println!("{}", check()?);
    Ok(())
}

/// Checks every rule; returns a short summary.
///
/// # Errors
///
/// All violations, one per line.
pub(crate) fn check() -> Result<String> {
    let mut violations = Vec::new();
    let files = source_files()?;
    let (mut pages, mut sources) = (BTreeMap::new(), BTreeMap::new());
    let language = read(&files, |path, contents| {
        violations.extend(text::check(path, &contents));
        if path.starts_with("docs/") && path.ends_with(".md") {
            pages.insert(path.to_owned(), contents);
        } else if path.ends_with(".rs") {
            sources.insert(path.to_owned(), contents);
        }
    });
    violations.extend(language.violations());
    violations.extend(book::check(&pages));
    violations.extend(folders::check(&sources));
    let packages = packages::check(&mut violations)?;
    if violations.is_empty() {
        return Ok(format!("{} files, {packages} packages", files.len()));
    }
    let lines: Vec<String> = violations.iter().map(Violation::to_string).collect();
    bail!("{}\n{} violations of the house's rules", lines.join("\n"), lines.len());
}

/// Reads the language of all files, and passes each to `each`. Files that are not text, and files that are deleted but
/// still in git's index, are left out.
fn read(files: &[String], mut each: impl FnMut(&str, String)) -> Language {
    let mut language = Language::default();
    for path in files {
        let Some(contents) = fs::read(root().join(path)).ok().and_then(|bytes| String::from_utf8(bytes).ok()) else {
            continue;
        };
        language.read(path, &contents);
        each(path, contents);
    }
    language
}

/// The project's files, relative to its root: those in git, and those that `git add` would add.
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
