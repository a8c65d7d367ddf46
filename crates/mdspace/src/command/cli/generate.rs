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
    for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
        clap_complete::generate_to(shell, &mut CommandLine::command(), "mdspace", &completions)?;
    }
    Ok(())
}
