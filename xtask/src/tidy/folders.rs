//! Arrows between the folders of a crate: which folder may import which, so that a folder's name says what its code can
//! touch.
//!
//! Files directly in a tree's root may import every folder: they are the modules' list and the facade. The check reads
//! `use` lists and paths in code, as [`super::text`] does. Re-exports are not followed.

use std::collections::BTreeMap;

use super::Violation;
use super::text::{paths, without_comment};

/// A folder, and the other folders of its tree that it may import.
type Row = (&'static str, &'static [&'static str]);

/// The trees whose folders have arrows: a folder below a crate's `src`, or `src` itself, and a row for each folder in
/// it.
const TREES: &[(&str, &[Row])] = &[
    (
        "crates/engine/src",
        &[
            ("base", &[]),
            ("seam", &["base"]),
            ("plan", &[]),
            ("device", &["base", "seam", "plan"]),
            ("core", &["base", "seam", "plan", "device"]),
            ("data", &["base", "seam", "plan", "device", "core"]),
            ("metadata", &["base", "seam", "plan", "device", "core"]),
            ("control", &["base", "seam", "plan", "device", "core", "data", "metadata"]),
        ],
    ),
    (
        "crates/mdspace/src/command",
        &[
            ("text", &[]),
            ("opening", &["text"]),
            ("server", &["text", "opening"]),
            ("clients", &["text", "opening"]),
            ("measure", &["text", "opening"]),
            ("cli", &["text", "opening", "server", "clients", "measure"]),
        ],
    ),
];

/// The violations in all trees. `sources` are the project's Rust files with their paths from the root.
pub(super) fn check(sources: &BTreeMap<String, String>) -> Vec<Violation> {
    TREES.iter().flat_map(|(tree, rows)| folders(tree, rows, sources)).collect()
}

/// Imports in the files of `tree` that `rows` do not allow, and folders that have no row.
fn folders(tree: &str, rows: &[Row], sources: &BTreeMap<String, String>) -> Vec<Violation> {
    let root: Vec<&str> = match tree.split_once("/src/") {
        Some((_, inside)) => inside.split('/').collect(),
        None => Vec::new(),
    };
    let allowed = |folder: &str| rows.iter().find(|(row, _)| *row == folder).map(|(_, allowed)| *allowed);
    let mut found = Vec::new();
    for (path, source) in sources {
        let Some((folder, file)) = inside(tree, path) else { continue };
        let Some(allowed) = allowed(folder) else {
            found.push(Violation { place: path.clone(), what: format!("{folder} is not in the table of {tree}") });
            continue;
        };
        let module: Vec<&str> = root.iter().copied().chain([folder]).chain(modules(file)).collect();
        let code: String = source.lines().map(|line| format!("{}\n", without_comment(line))).collect();
        for (line, import) in paths(&code) {
            let Some(target) = target(&root, &module, &import) else { continue };
            let is_folder = rows.iter().any(|(row, _)| *row == target);
            if is_folder && target != folder && !allowed.contains(&&*target) {
                let place = format!("{path}:{line}");
                found.push(Violation { place, what: format!("{folder} may not import {target}: {import}") });
            }
        }
    }
    found
}

/// The folder of `tree` in which `path` lies, and the path from there; `None` elsewhere and for files of the root.
fn inside<'a>(tree: &str, path: &'a str) -> Option<(&'a str, &'a str)> {
    let rest = path.strip_prefix(tree)?.strip_prefix('/')?;
    rest.split_once('/')
}

/// The modules of a file: `a/b.rs` and `a/b/mod.rs` are `a::b`.
fn modules(file: &str) -> impl Iterator<Item = &str> {
    let file = file.strip_suffix(".rs").unwrap_or(file);
    file.split('/').filter(|name| *name != "mod")
}

/// The folder below `root` that `import` names in a file of `module`; `None` for paths that begin elsewhere.
fn target(root: &[&str], module: &[&str], import: &str) -> Option<String> {
    let mut names: Vec<&str> = import.split("::").collect();
    let supers = names.iter().take_while(|name| **name == "super").count();
    let absolute: Vec<&str> = if supers > 0 {
        let parent = &module[..module.len().saturating_sub(supers)];
        parent.iter().copied().chain(names.split_off(supers)).collect()
    } else if names[0] == "crate" {
        names.split_off(1)
    } else {
        return None;
    };
    let below = absolute.strip_prefix(root)?;
    below.first().map(|folder| (*folder).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &[Row] = &[("base", &[]), ("data", &["base"]), ("top", &["base", "data"])];

    fn complaints(tree: &str, path: &str, source: &str) -> Vec<String> {
        let sources = BTreeMap::from([(path.to_owned(), source.to_owned())]);
        folders(tree, ROWS, &sources).iter().map(Violation::to_string).collect()
    }

    #[test]
    fn a_wrong_import_is_found_in_every_spelling_and_a_right_one_passes() {
        let crate_root = "crates/a/src";
        for (path, source, expected) in [
            ("crates/a/src/top/x.rs", "use crate::data::y;\nuse crate::{base::z, data};", vec![]),
            ("crates/a/src/data/x.rs", "use crate::base::{y, z};", vec![]),
            ("crates/a/src/data/x.rs", "use crate::data::y;\nuse super::z;", vec![]),
            ("crates/a/src/lib.rs", "use crate::top::x;", vec![]),
            ("crates/b/src/data/x.rs", "use crate::top::x;", vec![]),
            ("crates/a/src/data/x.rs", "// crate::top is above\nuse std::top::x;", vec![]),
            (
                "crates/a/src/data/x.rs",
                "use crate::base;\nuse crate::top::y;",
                vec![":2: data may not import top: crate::top::y"],
            ),
            (
                "crates/a/src/base/x.rs",
                "use crate::{data::y, base::z};",
                vec![":1: base may not import data: crate::data::y"],
            ),
            (
                "crates/a/src/base/x.rs",
                "use super::super::top;",
                vec![":1: base may not import top: super::super::top"],
            ),
            ("crates/a/src/base/mod.rs", "use super::top::{x};", vec![":1: base may not import top: super::top::x"]),
            (
                "crates/a/src/base/x/mod.rs",
                "fn f() { crate::top::y() }",
                vec![":1: base may not import top: crate::top::y"],
            ),
            ("crates/a/src/new/x.rs", "", vec![": new is not in the table of crates/a/src"]),
        ] {
            let expected: Vec<String> = expected.into_iter().map(|what| format!("{path}{what}")).collect();
            assert_eq!(complaints(crate_root, path, source), expected, "{source}");
        }
        let found = complaints("crates/a/src/deep", "crates/a/src/deep/base/x.rs", "use crate::deep::top::y;");
        assert_eq!(found, ["crates/a/src/deep/base/x.rs:1: base may not import top: crate::deep::top::y"]);
        assert!(complaints("crates/a/src/deep", "crates/a/src/deep/base/x.rs", "use crate::top::y;").is_empty());
    }
}
