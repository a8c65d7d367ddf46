//! docs/lab.md shows what `mdspace lab` prints. The laboratory's time is virtual and its figures exact, so the page
//! is compared byte for byte, and `cargo xtask lab` writes it anew.
//!
//! A block that begins with `$ mdspace lab ...` holds that command's output; everything else on the page stays.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::root;

const FENCE: &str = "```console\n$ mdspace lab";
const END: &str = "\n```";

/// Where the page is.
pub(crate) fn page() -> PathBuf {
    root().join("docs/lab.md")
}

/// `text` with the output of each of its commands as `mdspace` gives it now, and the number of commands.
pub(crate) fn renewed(text: &str, mdspace: &Path) -> Result<(String, usize)> {
    renew(text, |arguments| {
        let output = Command::new(mdspace).arg("lab").args(arguments).output()?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "mdspace lab {}: {complaint}", arguments.join(" "));
        Ok(String::from_utf8(output.stdout)?)
    })
}

fn renew(text: &str, run: impl Fn(&[&str]) -> Result<String>) -> Result<(String, usize)> {
    let mut parts = text.split(FENCE);
    let mut new = parts.next().unwrap_or_default().to_owned();
    let mut count = 0;
    for part in parts {
        let (block, after) = part.split_once(END).context("a block without its end")?;
        let command = block.lines().next().unwrap_or_default();
        let output = run(&command.split_whitespace().collect::<Vec<_>>())?;
        new += &format!("{FENCE}{command}\n{}{END}{after}", output.trim_end());
        count += 1;
    }
    Ok((new, count))
}

/// The first line that differs, for a person.
pub(crate) fn difference(old: &str, new: &str) -> Option<String> {
    let differs = old.lines().zip(new.lines()).position(|(old, new)| old != new);
    let line = differs.or_else(|| (old != new).then(|| old.lines().count().min(new.lines().count())))?;
    let of = |text: &str| text.lines().nth(line).unwrap_or("(the end)").to_owned();
    Some(format!("line {}:\n  docs/lab.md: {}\n  mdspace lab: {}", line + 1, of(old), of(new)))
}

/// `cargo xtask lab`: writes the page anew.
pub(crate) fn write(mdspace: &Path) -> Result<usize> {
    let old = fs::read_to_string(page())?;
    let (new, count) = renewed(&old, mdspace)?;
    fs::write(page(), new)?;
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_output_of_commands_is_renewed() {
        let page = "# A\n\n```console\n$ mdspace lab e2\nold\n```\n\n```sh\nother\n```\n```console\n$ mdspace lab e1 --json\n```\nB\n";
        let (new, count) =
            renew(page, |arguments| Ok(format!("<{}>\n", arguments.join("+")))).expect("it is well formed");
        assert_eq!(count, 2);
        assert_eq!(
            new,
            "# A\n\n```console\n$ mdspace lab e2\n<e2>\n```\n\n```sh\nother\n```\n```console\n$ mdspace lab e1 --json\n<e1+--json>\n```\nB\n"
        );
        assert_eq!(difference(&new, &new), None);
        assert!(difference(page, &new).expect("it differs").starts_with("line 5:"));
    }
}
