//! Text that fits the terminal: tables without the columns that have no room, lines that are folded between words, and
//! states in colours.
//!
//! No number is cut, and none is parted from its unit. A long word, such as a URI, stays whole, and so does a line with a
//! command: folded it could not be copied. Output that does not go to a terminal is as wide as it needs, and has no colours; COLUMNS sets a
//! width all the same, as in ps(1). Facts: <https://no-color.org>.

use crate::command::text::output::columns;
use std::io::IsTerminal;

/// The shortest name that is shown in a narrow table, before columns are left out.
const NAME_COLUMNS_MIN: usize = 8;

/// A narrower terminal is taken for one of this width.
const WIDTH_MIN: usize = 20;

/// Words that belong to the number before them.
const UNITS: [&str; 16] = [
    "bytes", "bytes/s", "KiB", "MiB", "GiB", "TiB", "PiB", "KiB/s", "MiB/s", "GiB/s", "TiB/s", "%", "us", "ms", "s",
    "min",
];

/// Words for states, and the parameters of the escape sequences for their colours.
const COLOURS: [(&str, &[&str]); 3] = [
    ("31", &["faulty", "failed", "missing", "broken", "gone"]),
    ("33", &["degraded", "recovering", "replacement", "unsynced", "silent", "frozen", "warning:"]),
    ("32", &["in_sync", "healthy"]),
];

/// The columns of the terminal, or COLUMNS. `None` for no limit.
pub(crate) fn width() -> Option<usize> {
    let set = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    // Of an output that is no terminal, the system knows no size; crossterm would ask tput(1) for one.
    let of_screen = || rustix::termios::tcgetwinsize(std::io::stdout()).ok().map(|size| size.ws_col.into());
    set.or_else(of_screen).filter(|columns| *columns > 0).map(|columns: usize| columns.max(WIDTH_MIN))
}

/// Whether states are shown in colours.
pub(crate) fn is_coloured() -> bool {
    let is_refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
    std::io::stdout().is_terminal() && !is_refused && !is_dumb
}

/// A table in at most `width` columns of the terminal. `ranks` are those of its columns: the highest is left out first,
/// and those of rank 0 stay. Of a name, in the column `names`, the middle is left out before columns are.
pub(crate) fn table(rows: &[Vec<String>], ranks: &[u8], names: usize, width: Option<usize>) -> String {
    let longest = rows.iter().filter_map(|row| row.get(names)).map(|name| name.chars().count()).max().unwrap_or(0);
    let shown = |most: u8, name_columns: usize| {
        let cell = |(column, cell): (usize, &String)| {
            if column == names { shortened(cell, name_columns) } else { cell.clone() }
        };
        let is_shown = |(column, _): &(usize, &String)| ranks.get(*column).is_none_or(|rank| *rank <= most);
        let row = |row: &Vec<String>| row.iter().enumerate().filter(is_shown).map(cell).collect();
        columns(&rows.iter().map(row).collect::<Vec<_>>())
    };
    let Some(width) = width else { return shown(u8::MAX, longest) };
    for most in (0..=ranks.iter().copied().max().unwrap_or(0)).rev() {
        let text = shown(most, longest);
        let over = text.lines().map(|line| line.chars().count()).max().unwrap_or(0).saturating_sub(width);
        if over == 0 {
            return text;
        }
        if longest.saturating_sub(over) >= NAME_COLUMNS_MIN {
            return shown(most, longest - over);
        }
    }
    shown(0, NAME_COLUMNS_MIN)
}

/// The text in at most `columns` columns, with its beginning and its end.
pub(crate) fn shortened(text: &str, columns: usize) -> String {
    let letters: Vec<char> = text.chars().collect();
    if letters.len() <= columns {
        return text.to_owned();
    }
    let end = columns.saturating_sub(1) * 2 / 3;
    let begin = columns.saturating_sub(1) - end;
    letters[..begin].iter().chain(&['…']).chain(&letters[letters.len() - end..]).collect()
}

/// `text` with its lines folded between words, behind their indentation and two columns.
pub(crate) fn folded(text: &str, width: Option<usize>) -> String {
    let Some(width) = width else { return text.to_owned() };
    text.split_inclusive('\n').map(|line| fold(line, width)).collect()
}

fn fold(line: &str, width: usize) -> String {
    let (content, end) = line.strip_suffix('\n').map_or((line, ""), |content| (content, "\n"));
    if content.chars().count() <= width || content.contains("mdspace ") {
        return line.to_owned();
    }
    let indentation: String = content.chars().take_while(|c| *c == ' ').collect();
    let mut folded = indentation.clone();
    let mut used = indentation.len();
    let mut is_first = true;
    for word in words(content.trim_start()) {
        let length = word.chars().count();
        if !is_first && used + 1 + length > width {
            folded = format!("{}\n{indentation}  ", folded.trim_end());
            used = indentation.len() + 2;
            is_first = true;
        }
        if !is_first {
            folded.push(' ');
            used += 1;
        }
        folded += &word;
        used += length;
        is_first = false;
    }
    folded + end
}

/// The words of a line; a number and its unit are one. A run of spaces, as in a table, stays with the word before.
fn words(line: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in line.split(' ') {
        let is_unit = UNITS.contains(&word.trim_end_matches([',', ';', ':', ')', '.']));
        match words.last_mut() {
            Some(last) if word.is_empty() || (is_unit && last.ends_with(|c: char| c.is_ascii_digit())) => {
                last.push(' ');
                last.push_str(word);
            }
            _ => words.push(word.to_owned()),
        }
    }
    words
}

/// `text` with the words for states in their colours.
pub(crate) fn coloured(text: &str) -> String {
    let is_between = |c: char| c.is_whitespace() || c == ',';
    text.split_inclusive(is_between)
        .map(|part| {
            let word = part.trim_end_matches(is_between);
            match COLOURS.iter().find(|(_, words)| words.contains(&word)) {
                Some((colour, _)) => format!("\x1b[{colour}m{word}\x1b[m{}", &part[word.len()..]),
                None => part.to_owned(),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_folded_between_words_and_a_number_keeps_its_unit() {
        let line = "  resync: 12.5 % (1.5 GiB of 12 GiB), 100 MiB/s, finish in 1:47 min\n";
        for width in 20..=80 {
            let text = folded(line, Some(width));
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}: {text}");
            assert_eq!(text.split_whitespace().collect::<Vec<_>>(), line.split_whitespace().collect::<Vec<_>>());
            for whole in ["12.5 %", "1.5 GiB", "12 GiB),", "100 MiB/s", "1:47 min"] {
                assert!(text.contains(whole), "{width}: {whole}: {text}");
            }
            assert!(text.ends_with('\n') && text.lines().skip(1).all(|line| line.starts_with("    ")), "{text}");
        }
        assert_eq!(folded(line, None), line);
        let command = "next: mdspace serve a-long-name.img b-long-name.img c-long-name.img\n";
        assert_eq!(folded(command, Some(30)), command, "a command can be copied");
    }

    #[test]
    fn a_narrow_table_has_fewer_columns_and_whole_cells() {
        let row = |words: &str| words.split('|').map(str::to_owned).collect::<Vec<_>>();
        let rows = [row("slot|member|state|read|errors"), row("0|/dev/disk/by-id/ata-one|in_sync|1.5 GiB|12345")];
        let ranks = [1, 0, 0, 3, 2];
        assert_eq!(table(&rows, &ranks, 1, None), columns(&rows));
        let whole = columns(&rows);
        let mut before = 0;
        for width in 25..=60 {
            let text = table(&rows, &ranks, 1, Some(width));
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}: {text}");
            let is_whole = |word: &str| whole.contains(word) || word.contains('…');
            assert!(text.split_whitespace().all(is_whole) && text.contains("in_sync"), "{width}: {text}");
            assert!(!text.contains("1.5") || text.contains("1.5 GiB"), "{width}: {text}");
            let count = text.lines().next().expect("a heading").split_whitespace().count();
            assert!(count >= before, "a wider terminal shows as much: {text}");
            before = count;
        }
        assert_eq!(before, 5);
        assert_eq!(shortened("/dev/disk/by-id/ata-one", 9), "/de…a-one");
        assert_eq!(shortened("short", 9), "short");
    }

    #[test]
    fn states_have_colours_and_other_words_have_none() {
        assert_eq!(
            coloured("0  a  in_sync\n1  missing\nclean, degraded, unhealthy_word\n"),
            "0  a  \x1b[32min_sync\x1b[m\n1  \x1b[31mmissing\x1b[m\nclean, \x1b[33mdegraded\x1b[m, unhealthy_word\n"
        );
    }
}
