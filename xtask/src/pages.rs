//! The commands of the pages that are about the tests themselves: they cannot run in the tests, so they are parsed.
//!
//! Each line behind a prompt in a block `console` of docs/testing.md, CONTRIBUTING.md and README.md. A chore's words are read
//! by the parser that `cargo xtask` uses, its steps and mutants are looked up, and scripts that are named have to be there.
//! Nothing is run: that a command does what the page says is the steps' own matter.

use clap::Parser;

use crate::layers::Layer;
use crate::{Chore, Cli, mutants, root, steps};

/// The pages, and how many commands each has.
const PAGES: &[(&str, usize)] = &[("docs/testing.md", 15), ("CONTRIBUTING.md", 18), ("README.md", 2)];

/// The commands of a page, without what is said about them behind a `#`.
fn commands(page: &str) -> Vec<&str> {
    let blocks = page.split("```").skip(1).step_by(2).filter_map(|block| block.strip_prefix("console\n"));
    let lines = blocks.flat_map(str::lines).filter_map(|line| line.strip_prefix("$ "));
    lines.map(|line| line.split(" #").next().unwrap_or_default().trim_end()).collect()
}

/// What is wrong with a command.
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
fn commands_of_pages_about_the_tests_are_ones_that_there_are() {
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
fn a_command_that_there_is_not_is_noticed() {
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
