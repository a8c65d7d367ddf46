//! Checks the commands on pages about the tests. Tests cannot run these commands, so they are parsed.
//!
//! These are the lines behind a prompt in `console` blocks of docs/testing.md, CONTRIBUTING.md and README.md. The
//! parser of `cargo xtask` parses the chores; the steps and mutants must exist, as must the scripts. Nothing is run:
//! the steps show what the commands do.

use clap::Parser;

use crate::layers::Layer;
use crate::{Chore, Cli, mutants, root, steps};

/// The pages, and the number of commands on each.
const PAGES: &[(&str, usize)] = &[("docs/testing.md", 31), ("CONTRIBUTING.md", 19), ("README.md", 3)];

/// The commands of a page, without comments after a `#`.
fn commands(page: &str) -> Vec<&str> {
    let blocks = page.split("```").skip(1).step_by(2).filter_map(|block| block.strip_prefix("console\n"));
    let lines = blocks.flat_map(str::lines).filter_map(|line| line.strip_prefix("$ "));
    lines.map(|line| line.split(" #").next().unwrap_or_default().trim_end()).collect()
}

/// Checks a command; the error says what is wrong.
fn check(command: &str) -> Result<(), String> {
    for part in command.split(" && ") {
        let words: Vec<&str> = part.split_whitespace().collect();
        match words[..] {
            ["cargo", "xtask", ..] => check_chore(&words[1..])?,
            ["cargo", "run", "--release", "--", "up"] => {} // the step `readme` runs it
            ["mkdir", _] => {}
            [script, ..] if root().join(script).is_file() => {}
            _ => return Err(format!("no chore, and no script that is there: {part}")),
        }
        let scripts = words.iter().filter(|word| word.starts_with("tests/"));
        if let Some(missing) = scripts.clone().find(|script| !root().join(script).is_file()) {
            return Err(format!("{missing} is not there"));
        }
    }
    Ok(())
}

fn check_chore(words: &[&str]) -> Result<(), String> {
    match Cli::try_parse_from(words).map_err(|error| error.to_string())?.chore {
        Chore::Quick(asked) => are_steps(Layer::Quick, &asked.steps),
        Chore::Test(asked) => are_steps(Layer::Test, &asked.steps),
        Chore::Long { steps, minutes } => are_steps(Layer::Long(minutes), &steps.steps),
        Chore::Mutants(arguments) => mutants::are_known(&arguments).map_err(|error| error.to_string()),
        _ => Ok(()),
    }
}

fn are_steps(layer: Layer, names: &[String]) -> Result<(), String> {
    steps::select(layer, names).map(drop).map_err(|error| error.to_string())
}

fn read(page: &str) -> String {
    std::fs::read_to_string(root().join(page)).expect("the page is there")
}

#[test]
fn all_commands_on_pages_about_the_tests_exist() {
    for (name, count) in PAGES {
        let page = read(name);
        let commands = commands(&page);
        assert_eq!(commands.len(), *count, "{name}: {commands:?}");
        for command in commands {
            assert_eq!(check(command), Ok(()), "{name}: {command}");
        }
    }
}

#[test]
fn a_command_that_does_not_exist_is_found() {
    let page = "a\n```console\n$ cargo xtask test tidy # words\nprinted\n$ cargo xtask lab\n```\n```sh\nother\n```\n";
    assert_eq!(commands(page), ["cargo xtask test tidy", "cargo xtask lab"]);
    for command in [
        "cargo xtask tests",
        "cargo xtask test tidyy",
        "cargo xtask test --all",
        "cargo xtask matrix --seeds 7",
        "cargo xtask mutants no-such-mutant",
        "mkdir place && tests/kiled.py run",
        "cargo xtask kernel -d a.img tests/kernel/none.sh",
        "cargo xtask kernel --disks a.img script.sh",
        "make",
    ] {
        assert!(check(command).is_err(), "{command}");
    }
}

#[test]
fn the_page_about_the_tests_names_every_step() {
    let page = read("docs/testing.md");
    let named: Vec<&str> = commands(&page).iter().flat_map(|command| command.split(' ')).collect();
    for layer in [Layer::Quick, Layer::Test, Layer::Long(1)] {
        assert!(named.contains(&layer.chore()), "docs/testing.md does not name the layer {layer:?}");
        for step in layer.steps() {
            assert!(step.name == "setup" || named.contains(&step.name), "docs/testing.md does not name {}", step.name);
        }
    }
}
