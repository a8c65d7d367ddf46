//! Checks the documents as a book: the table of contents has every page once, and links between pages lead somewhere.
//!
//! Only the pages of `docs/` in git are read; [`super::text`] checks that linked files exist. mdBook itself is not
//! needed.

use std::collections::BTreeMap;

use super::Violation;

/// The table of contents, which is not a page.
const SUMMARY: &str = "docs/SUMMARY.md";

/// Violations in the book of `pages`, which maps paths such as `docs/tour.md` to contents.
pub(super) fn check(pages: &BTreeMap<String, String>) -> Vec<Violation> {
    let Some(summary) = pages.get(SUMMARY) else {
        return vec![violation(SUMMARY, "there is none: the documents are a book".into())];
    };
    let mut found = Vec::new();
    let listed: Vec<String> = links(summary).map(|(_, target)| format!("docs/{target}")).collect();
    for path in pages.keys().filter(|path| *path != SUMMARY) {
        let times = listed.iter().filter(|listed| *listed == path).count();
        if times != 1 {
            found.push(violation(SUMMARY, format!("{path} is there {times} times, not once")));
        }
        found.extend(missing_in_index(path, pages));
    }
    for (path, page) in pages {
        for (line, target) in links(page).filter(|(_, target)| !target.contains("://")) {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let linked = if file.is_empty() { path.clone() } else { beside(path, file) };
            let what = match pages.get(&linked) {
                None => format!("the link leaves the book: {target}"),
                Some(page) if !anchor.is_empty() && !anchors(page).any(|a| a == anchor) => {
                    format!("there is no such heading: {target}")
                }
                Some(_) => continue,
            };
            found.push(violation(&format!("{path}:{line}"), what));
        }
    }
    found
}

/// The violation of a page that the `README.md` of its folder does not link to.
fn missing_in_index(path: &str, pages: &BTreeMap<String, String>) -> Option<Violation> {
    let index = beside(path, "README.md");
    let page = pages.get(&index).filter(|_| index != path)?;
    let listed = links(page).any(|(_, target)| beside(&index, target) == path);
    (!listed).then(|| violation(&index, format!("{path} is not listed")))
}

/// The path that a link in the page `from` leads to: `docs/decisions/a.md` and `../b.md` make `docs/b.md`.
fn beside(from: &str, target: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    parts.join("/")
}

fn violation(place: &str, what: String) -> Violation {
    Violation { place: place.to_owned(), what }
}

/// The targets of links `[text](target)`, with their lines.
fn links(page: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(page.lines()).flat_map(|(number, line)| {
        let targets = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        targets.map(move |(target, _)| (number, target))
    })
}

/// The anchors of a page's headings, as mdBook and others make them.
fn anchors(page: &str) -> impl Iterator<Item = String> {
    let headings = page.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    headings.map(|heading| {
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_in_the_book_once_and_links_to_what_is_there() {
        let whole = "- [A](a.md)\n- [B](b.md)\n";
        let page = "# It's one: a-b\n";
        for (summary, a, expected) in [
            (whole, "[b](b.md) [there](https://x.y/z) [here](b.md#its-one-a-b)", vec![]),
            (whole, "# Up\n[up](#up)", vec![]),
            ("- [A](a.md)\n", "", vec!["docs/SUMMARY.md: docs/b.md is there 0 times, not once"]),
            (
                "- [A](a.md)\n- [B](b.md)\n- [C](b.md)\n",
                "",
                vec!["docs/SUMMARY.md: docs/b.md is there 2 times, not once"],
            ),
            (whole, "\n[out](../README.md)", vec!["docs/a.md:2: the link leaves the book: ../README.md"]),
            (whole, "[b](b.md#two)", vec!["docs/a.md:1: there is no such heading: b.md#two"]),
        ] {
            let pages = [(SUMMARY, summary), ("docs/a.md", a), ("docs/b.md", page)];
            let pages = pages.map(|(path, page)| (path.to_owned(), page.to_owned())).into();
            let found: Vec<String> = check(&pages).iter().map(Violation::to_string).collect();
            assert_eq!(found, expected, "{summary}{a}");
        }
        assert_eq!(check(&BTreeMap::new()).len(), 1, "without a table of contents");
    }

    #[test]
    fn the_index_of_a_folder_lists_its_pages_and_links_are_relative_to_it() {
        let summary = "- [A](a.md)\n- [D](d/README.md)\n- [E](d/e.md)\n";
        for (index, e, expected) in [
            ("[e](e.md)", "[a](../a.md) [index](README.md)", vec![]),
            ("", "", vec!["docs/d/README.md: docs/d/e.md is not listed"]),
            ("[e](e.md)", "[a](a.md)", vec!["docs/d/e.md:1: the link leaves the book: a.md"]),
        ] {
            let pages = [(SUMMARY, summary), ("docs/a.md", ""), ("docs/d/README.md", index), ("docs/d/e.md", e)];
            let pages = pages.map(|(path, page)| (path.to_owned(), page.to_owned())).into();
            let found: Vec<String> = check(&pages).iter().map(Violation::to_string).collect();
            assert_eq!(found, expected, "{index} {e}");
        }
    }
}
