//! Man pages and shell completions, from the command line's own definition, for whoever packages the command.
//!
//! A hidden subcommand, so that what is installed is what this very binary takes; `cargo xtask package` calls it.

use crate::command::cli::arguments::{CommandLine, GenerateArguments};
use crate::command::text::failure::Failure;
use clap::CommandFactory;
use clap_complete::Shell;
use std::fs;
use std::path::Path;

/// Writes one page for each command into `man1`, and what each shell reads into `completions`.
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
