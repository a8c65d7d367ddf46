//! The commands that the README and the book name in their sentences and tables are ones that the command takes.
//!
//! What stands between backquotes and begins with `mdspace`, or with a subcommand and one of its options. It is parsed
//! and not run: `...` and words in capitals stand for what a reader has. Blocks are left to tests/docs.rs, which runs
//! them.

use crate::command::cli::arguments::CommandLine;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};
use std::path::{Path, PathBuf};

/// The text between backquotes, outside of blocks, with its white space made one.
fn quoted(page: &str) -> Vec<String> {
    let sentences: String = page.split("```").step_by(2).collect();
    let quoted = sentences.split('`').skip(1).step_by(2);
    quoted.map(|text| text.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

/// Its words as the command would get them; none when it is no command.
fn command(text: &str) -> Option<Vec<String>> {
    let definition = CommandLine::command();
    // As a shell would split it; a quotation mark without its other half is no command.
    let words = shlex::split(text)?;
    let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
    let is_subcommand = |word: &&str| definition.get_subcommands().any(|command| command.get_name() == *word);
    match words[..] {
        ["mdspace"] | ["mdspace", "COMMAND", ..] => return None,
        ["mdspace", ..] => {}
        [first, second, ..] if is_subcommand(&first) && second.starts_with("--") => words.insert(0, "mdspace"),
        _ => return None,
    }
    // Whatever takes a value or a member takes this, a uuid too.
    let filled = |word: &str| match word {
        "..." => "01234567:01234567:01234567:01234567".to_owned(),
        word => word.to_owned(),
    };
    Some(words.into_iter().map(filled).collect())
}

/// Whether the command takes these words, or would if more of them followed.
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
                nor `mdspace set`, `bench --only \"4 KiB\"`, but `mdspace lab e9`.";
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
