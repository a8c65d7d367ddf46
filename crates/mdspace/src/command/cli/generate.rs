//! `generate`: man pages and shell completions for packages, from the definition of the command line.
//!
//! It is a hidden subcommand, so that the installed pages describe exactly this binary. `cargo xtask package` calls it.

use crate::command::cli::arguments::{CommandLine, GenerateArguments};
use crate::command::text::failure::Failure;
use clap::CommandFactory;
use clap_complete::Shell;
use std::fs;
use std::path::Path;

/// Writes a page for each command into `man1`, and a file for each shell into `completions`.
pub(crate) fn run(arguments: &GenerateArguments) -> Result<(), Failure> {
    let directory = &arguments.directory;
    write(directory).map_err(|error| Failure::refused(format!("{}: {error}", directory.display())))
}

fn write(directory: &Path) -> std::io::Result<()> {
    let (pages, completions) = (directory.join("man1"), directory.join("completions"));
    fs::create_dir_all(&pages)?;
    fs::create_dir_all(&completions)?;
    clap_mangen::generate_to(CommandLine::command(), &pages)?;
    for page in fs::read_dir(&pages)? {
        let page = page?.path();
        fs::write(&page, with_breaks(&fs::read_to_string(&page)?))?;
    }
    for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
        clap_complete::generate_to(shell, &mut CommandLine::command(), "mdspace", &completions)?;
    }
    Ok(())
}

/// The page with places to break between alternatives in its synopsis: a long group would be one word, wider than a line.
/// The lines are ragged, as one that is a single group has no space to widen.
fn with_breaks(page: &str) -> String {
    let Some((before, synopsis)) = page.split_once(".SH SYNOPSIS\n") else { return page.to_owned() };
    let (line, after) = synopsis.split_once('\n').unwrap_or((synopsis, ""));
    format!("{before}.SH SYNOPSIS\n.ad l\n{}\n.ad b\n{after}", line.replace('|', r"|\:"))
}

#[cfg(test)]
mod tests {
    use super::with_breaks;

    #[test]
    fn only_a_synopsis_may_break_between_alternatives() {
        let page = ".SH SYNOPSIS\nmdspace <a|b>\n.SH OPTIONS\nc|d\n";
        assert_eq!(with_breaks(page), ".SH SYNOPSIS\n.ad l\nmdspace <a|\\:b>\n.ad b\n.SH OPTIONS\nc|d\n");
        assert_eq!(with_breaks("a|b"), "a|b");
    }
}
