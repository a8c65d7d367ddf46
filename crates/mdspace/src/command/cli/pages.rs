//! Checks that commands in the sentences and tables of the README and the book exist.
//!
//! A command is text between backquotes that begins with `mdspace`, or with a subcommand and one of its options. The
//! test parses it and does not run it: `...` and words in capitals are placeholders. tests/command/docs.rs runs the blocks.

use crate::command::cli::arguments::CommandLine;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};
use std::path::{Path, PathBuf};

/// The texts between backquotes, outside of blocks, with each white space replaced by one space.
fn quoted(page: &str) -> Vec<String> {
    let sentences: String = page.split("```").step_by(2).collect();
    let quoted = sentences.split('`').skip(1).step_by(2);
    quoted.map(|text| text.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

/// The words as the command would get them; `None` if the text is not a command.
fn command(text: &str) -> Option<Vec<String>> {
    let definition = CommandLine::command();
    // Split as by a shell. Text with an unbalanced quotation mark is not a command.
    let words = shlex::split(text)?;
    let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
    let is_subcommand = |word: &&str| definition.get_subcommands().any(|command| command.get_name() == *word);
    match words[..] {
        ["mdspace"] | ["mdspace", "COMMAND", ..] => return None,
        ["mdspace", ..] => {}
        [first, second, ..] if is_subcommand(&first) && second.starts_with("--") => words.insert(0, "mdspace"),
        _ => return None,
    }
    // Every argument accepts this placeholder, even a uuid.
    let filled = |word: &str| match word {
        "..." => "01234567:01234567:01234567:01234567".to_owned(),
        word => word.to_owned(),
    };
    Some(words.into_iter().map(filled).collect())
}

/// Whether the command accepts these words, alone or with further ones.
fn is_taken(words: &[String]) -> Result<(), String> {
    let lacks_value = |error: &clap::Error| matches!(error.get(ContextKind::InvalidValue), Some(ContextValue::String(value)) if value.is_empty());
    let lacks_more = |error: &clap::Error| match error.kind() {
        ErrorKind::MissingRequiredArgument | ErrorKind::DisplayHelp => true,
        ErrorKind::InvalidValue => lacks_value(error),
        _ => false,
    };
    match CommandLine::try_parse_from(words) {
        Err(error) if !lacks_more(&error) => Err(error.to_string()),
        Ok(_) | Err(_) => Ok(()),
    }
}

fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let book = root.join("docs").read_dir().expect("the book is there").map(|entry| entry.expect("a page").path());
    let book = book.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    book.chain([root.join("README.md"), root.join("CONTRIBUTING.md")]).collect()
}

#[test]
fn commands_in_sentences_and_tables_are_ones_that_there_are() {
    let mut count = 0;
    for path in pages() {
        let page = std::fs::read_to_string(&path).expect("a page");
        for words in quoted(&page).iter().filter_map(|text| command(text)) {
            assert_eq!(is_taken(&words), Ok(()), "{}: {words:?}", path.display());
            count += 1;
        }
    }
    assert!(count > 60, "only {count} were found");
}

#[test]
fn a_command_that_there_is_not_is_noticed() {
    let page = "Say `mdspace stauts`, or `mdspace\nserve ... --fsue DIR`;\n```sh\nmdspace no\n```\nnot `serve --nbdd`, `status`, \
                nor `mdspace set`, `bench --only \"4 KiB\"`, but `mdspace lab e99`.";
    let found: Vec<String> =
        quoted(page).iter().filter_map(|text| command(text)).map(|words| words.join(" ")).collect();
    let uuid = "01234567:01234567:01234567:01234567";
    let fsue = format!("mdspace serve {uuid} --fsue DIR");
    let expected = ["mdspace stauts", &fsue, "mdspace serve --nbdd", "mdspace set", "mdspace bench --only 4 KiB"];
    assert_eq!(found[..5], expected);
    let taken: Vec<bool> =
        quoted(page).iter().filter_map(|text| command(text)).map(|words| is_taken(&words).is_ok()).collect();
    assert_eq!(taken, [false, false, false, true, true, false]);
}
