//! A page of tables and plots in one file. It loads nothing, runs nothing, and follows the reader's choice of light or
//! dark.
//!
//! It has the same numbers as the command's text. A plot accompanies its table and never replaces it.

use crate::command::text::failure::Failure;
use std::fmt::Write;
use std::path::Path;

const STYLE: &str = "\
:root { --back: #fff; --text: #1a1c1e; --faint: #5c6166; --line: #c9cdd1; --here: #1558b0; --there: #8a9097; }
@media (prefers-color-scheme: dark) {
:root { --back: #16181a; --text: #e6e8ea; --faint: #a4a9ae; --line: #43484d; --here: #82b4ff; --there: #7d848b; } }
body { background: var(--back); color: var(--text); font: 1rem/1.5 system-ui, sans-serif; margin: 0 auto; \
max-width: 64rem; padding: 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.15rem; margin-top: 2rem; } h3 { font-size: 1rem; }
p { color: var(--faint); } .wide { overflow-x: auto; }
table { border-collapse: collapse; } th, td { border-bottom: 1px solid var(--line); padding: 0.2rem 0.7rem; text-align: left; }
.number { font-variant-numeric: tabular-nums; text-align: right; white-space: nowrap; }
svg { display: block; max-width: 100%; } svg text { fill: var(--text); font: 13px system-ui, sans-serif; }
.here { fill: var(--here); } .there { fill: var(--there); }
";

/// A bar of a plot.
pub(crate) struct Bar {
    /// Its label.
    pub(crate) label: String,
    /// The value measured here, and its text.
    pub(crate) here: (f64, String),
    /// The value to compare it with, if there is one.
    pub(crate) there: Option<(f64, String)>,
}

/// A page under construction.
pub(crate) struct Page(String);

impl Page {
    pub(crate) fn new(title: &str, about: &str) -> Self {
        let (title, about) = (escaped(title), escaped(about));
        Self(format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n<style>\n{STYLE}</style>\n\
             </head>\n<body>\n<h1>{title}</h1>\n<p>{about}</p>\n"
        ))
    }

    pub(crate) fn section(&mut self, title: &str, about: &str) {
        self.add(format_args!("<h2>{}</h2>\n<p>{}</p>\n", escaped(title), escaped(about)));
    }

    /// A table whose first row names the columns; those from `numbers` on are numbers.
    pub(crate) fn table(&mut self, rows: &[Vec<String>], numbers: usize) {
        let cell = |column: usize, text: &str, tag: &str| {
            let class = if column >= numbers { " class=\"number\"" } else { "" };
            format!("<{tag}{class}>{}</{}>", escaped(text), &tag[..2])
        };
        self.add(format_args!("<div class=\"wide\"><table>\n"));
        for (index, row) in rows.iter().enumerate() {
            let tag = if index == 0 { "th scope=\"col\"" } else { "td" };
            let cells: String = row.iter().enumerate().map(|(column, text)| cell(column, text, tag)).collect();
            self.add(format_args!("<tr>{cells}</tr>\n"));
        }
        self.add(format_args!("</table></div>\n"));
    }

    pub(crate) fn caption(&mut self, text: &str) {
        self.add(format_args!("<h3>{}</h3>\n", escaped(text)));
    }

    /// Bars from zero, all to one scale. `there` names the second colour.
    pub(crate) fn bars(&mut self, title: &str, there: &str, bars: &[Bar]) {
        const LINE: usize = 22;
        const LABELS: usize = 320;
        const LENGTH: f64 = 420.0;
        let values =
            bars.iter().flat_map(|bar| std::iter::once(bar.here.0).chain(bar.there.as_ref().map(|there| there.0)));
        let longest = values.fold(f64::MIN_POSITIVE, f64::max);
        let height = bars.len() * 2 * LINE;
        let (title, mut lines) = (escaped(title), String::new());
        for (index, bar) in bars.iter().enumerate() {
            let top = index * 2 * LINE;
            let _ = write!(lines, "<text x=\"0\" y=\"{}\">{}</text>", top + 16, escaped(&bar.label));
            let both = [Some((&bar.here, "here", "here")), bar.there.as_ref().map(|value| (value, "there", there))];
            for (row, ((value, shown), class, what)) in both.into_iter().flatten().enumerate() {
                let (top, length) = (top + row * (LINE - 2), value / longest * LENGTH);
                let _ = writeln!(
                    lines,
                    "<rect class=\"{class}\" x=\"{LABELS}\" y=\"{}\" width=\"{length:.1}\" height=\"16\"/>\
                     <text x=\"{:.1}\" y=\"{}\">{} ({})</text>",
                    top + 3,
                    LABELS as f64 + length + 6.0,
                    top + 16,
                    escaped(shown),
                    escaped(what),
                );
            }
        }
        self.add(format_args!(
            "<h3>{title}</h3>\n<svg role=\"img\" aria-label=\"{title}\" width=\"920\" height=\"{height}\" \
             viewBox=\"0 0 920 {height}\">\n{lines}</svg>\n"
        ));
    }

    /// Writes the page to a file.
    pub(crate) fn write(mut self, path: &Path) -> Result<(), Failure> {
        self.add(format_args!("</body>\n</html>\n"));
        std::fs::write(path, self.0).map_err(|error| Failure::refused(format!("--report: {}: {error}", path.display())))
    }

    fn add(&mut self, text: std::fmt::Arguments<'_>) {
        let _ = self.0.write_fmt(text); // writing to a string cannot fail
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_complete_escaped_and_self_contained() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("page.html");
        let mut page = Page::new("a < b", "\"all\" & everything");
        page.section("one", "two");
        page.table(&[vec!["name".into(), "MB/s".into()], vec!["<script>".into(), "12".into()]], 1);
        let bar = |here, there| Bar { label: "x".into(), here: (here, format!("{here}")), there };
        page.bars("speeds", "published", &[bar(10.0, Some((20.0, "20".into()))), bar(0.0, None)]);
        page.write(&path).expect("it is written");
        let text = std::fs::read_to_string(&path).expect("it is there");
        for words in
            ["a &lt; b", "&quot;all&quot; &amp; everything", "<td>&lt;script&gt;</td><td class=\"number\">12</td>"]
        {
            assert!(text.contains(words), "{words}: {text}");
        }
        // Half as long as the bar for comparison.
        assert!(text.contains("width=\"210.0\"") && text.contains("width=\"420.0\""), "{text}");
        for (open, close) in [("<table>", "</table>"), ("<svg ", "</svg>"), ("<tr>", "</tr>"), ("<h2>", "</h2>")] {
            assert_eq!(text.matches(open).count(), text.matches(close).count(), "{open}");
        }
        for loaded in ["<script", "src=", "href=", "url(", "@import"] {
            assert!(!text.contains(loaded), "{loaded}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_written_is_a_refusal() {
        let error = Page::new("", "").write(Path::new("/nowhere/page.html")).expect_err("there is no such directory");
        assert!(error.to_string().contains("--report: /nowhere/page.html"), "{error}");
    }
}
