//! docs/cases.md shows how md and mdspace handle situations that people have reported. tests/cases makes its table: a guest
//! makes the members and lets md try them, and a script tries them with mdspace and judges.
//!
//! The step compares the page word for word, and `cargo xtask cases` rewrites it. The right outcomes are in
//! tests/cases/cases.py, so a page can never make a wrong outcome right.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::guest::Guest;
use crate::root;

/// The start of the table, on the page and in the script's output.
const TABLE: &str = "| Situation |";

/// Where mdadm 4.4 does otherwise than 4.2, by which the page is made: the cell of each (docs/decisions/1010).
const OF_NEWER_MDADM: [[&str; 2]; 1] =
    [["| refuses; `--update=byteorder`: right bytes |", "| refuses; `--update=byteorder`: refuses |"]];

/// What the page's table has to be by this machine's mdadm.
fn by_this_mdadm(table: &str) -> Result<String> {
    let version = Command::new("mdadm").arg("--version").output()?;
    let version = String::from_utf8_lossy(&[version.stdout, version.stderr].concat()).into_owned();
    let is_newer = version.contains("v4.4");
    let cells = OF_NEWER_MDADM.iter().filter(|_| is_newer);
    Ok(cells.fold(table.to_owned(), |table, [of_4_2, of_4_4]| table.replace(of_4_2, of_4_4)))
}

fn page() -> PathBuf {
    root().join("docs/cases.md")
}

/// Makes the members of all situations in `place`. Two guests run side by side, since most of their time is md's waiting.
fn make(place: &Path) -> Result<()> {
    let script = root().join("tests/cases/kernel.sh");
    let make = |half: &str| -> Result<()> {
        let guest = Guest::default().memory("1G").limit(Duration::from_secs(900));
        guest.run(&script, &[place.as_os_str(), half.as_ref()])?.success().map(drop)
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| make("second-half"));
        make("first-half")?;
        other.join().expect("making does not panic")
    })
}

/// The table of the current outcomes, and how many situations it has.
///
/// # Errors
/// A situation has a wrong outcome; the error shows it.
pub(crate) fn table(mdspace: &Path, place: &Path) -> Result<(String, usize)> {
    make(place)?;
    let output = Command::new(root().join("tests/cases/cases.py")).arg(mdspace).arg(place).arg("--page").output()?;
    let wrong = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "situations have wrong outcomes:\n{wrong}");
    let table = String::from_utf8(output.stdout)?;
    let rows = table.lines().count().saturating_sub(2);
    Ok((table, rows))
}

/// The page's text before and after its table.
fn around(text: &str) -> Result<(&str, &str)> {
    let begin = text.find(TABLE).context("docs/cases.md has no table")?;
    let end = text[begin..].find("\n\n").map_or(text.len(), |end| begin + end + 1);
    Ok((&text[..begin], &text[end..]))
}

/// Compares the page with a new table.
///
/// # Errors
/// The first row that differs.
pub(crate) fn check(mdspace: &Path, place: &Path) -> Result<usize> {
    let text = fs::read_to_string(page())?;
    let (table, rows) = table(mdspace, place)?;
    let (before, after) = around(&text)?;
    let old = by_this_mdadm(&text[before.len()..text.len() - after.len()])?;
    let differs = old.lines().zip(table.lines()).find(|(old, new)| old != new);
    ensure!(differs.is_none(), "docs/cases.md: {differs:?}\nto rewrite it: cargo xtask cases");
    ensure!(
        old.lines().count() == table.lines().count(),
        "docs/cases.md has other rows; to rewrite it: cargo xtask cases"
    );
    Ok(rows)
}

/// `cargo xtask cases`: rewrites the page.
///
/// # Errors
/// A situation ended wrong; the page then stays as it is.
pub(crate) fn write(mdspace: &Path, place: &Path) -> Result<usize> {
    let text = fs::read_to_string(page())?;
    let (table, rows) = table(mdspace, place)?;
    let (before, after) = around(&text)?;
    fs::write(page(), format!("{before}{table}{after}"))?;
    Ok(rows)
}
