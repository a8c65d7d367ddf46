//! Arrows between the folders of a crate: which folder may import which, so that a folder's name says what its code can
//! touch.
//!
//! Files directly in a tree's root may import every folder: they are the modules' list and the facade. The check reads
//! `use` lists and paths in code, as [`super::text`] does. Re-exports are not followed.
//!
//! Within a folder of the engine, files may import each other in circles of three at most ([`CIRCLE_MAX`]). A file that
//! imports through its folder's `mod.rs` depends on all that `mod.rs` exports again.

use std::collections::{BTreeMap, BTreeSet};

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
            ("locate", &["text", "opening"]),
            ("clients", &["text", "opening", "locate"]),
            ("measure", &["text", "opening"]),
            ("mdadm", &["text", "opening", "clients"]),
            ("cli", &["text", "opening", "server", "locate", "clients", "measure", "mdadm"]),
        ],
    ),
];

/// The folders in which circles are looked for, below their tree.
const WITHOUT_CIRCLES: (&str, &[&str]) =
    ("crates/engine/src", &["base", "seam", "plan", "device", "core", "data", "metadata", "control"]);

/// The most files that may import each other in a circle.
const CIRCLE_MAX: usize = 3;

/// The violations in all trees. `sources` are the project's Rust files with their paths from the root.
pub(super) fn check(sources: &BTreeMap<String, String>) -> Vec<Violation> {
    let (tree, without_circles) = WITHOUT_CIRCLES;
    let arrows = TREES.iter().flat_map(|(tree, rows)| folders(tree, rows, sources));
    arrows.chain(without_circles.iter().flat_map(|folder| circles(tree, folder, sources))).collect()
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

/// Circles of too many files in `folder` of `tree`, which is a crate's `src`.
fn circles(tree: &str, folder: &str, sources: &BTreeMap<String, String>) -> Vec<Violation> {
    let mut files = BTreeMap::new();
    for (path, source) in sources {
        if let Some((_, file)) = inside(tree, path).filter(|(of, file)| *of == folder && !file.ends_with("tests.rs")) {
            let module: Vec<&str> = [folder].into_iter().chain(modules(file)).collect();
            files.insert(module.join("::"), source);
        }
    }
    let imports = files.iter().map(|(module, source)| (module.clone(), imported(module, source, &files))).collect();
    let reached: BTreeMap<_, _> = files.keys().map(|module| (module, reachable(module, &imports))).collect();
    let mut found = BTreeSet::new();
    for (module, others) in &reached {
        let circle: Vec<&str> =
            others.iter().filter(|other| reached[other].contains(*module)).map(String::as_str).collect();
        if circle.len() > CIRCLE_MAX {
            found.insert((circle.len(), circle.join(", ")));
        }
    }
    let violation = |(count, names)| Violation {
        place: format!("{tree}/{folder}"),
        what: format!("{count} files import each other in a circle, more than {CIRCLE_MAX}: {names}"),
    };
    found.into_iter().map(violation).collect()
}

/// The files of a folder that the file of `module` imports. Tests at the end of a file do not count.
fn imported<T>(module: &str, source: &str, files: &BTreeMap<String, T>) -> BTreeSet<String> {
    let code = source.split("#[cfg(test)]").next().unwrap_or_default();
    let code: String = code.lines().map(|line| format!("{}\n", without_comment(line))).collect();
    let module: Vec<&str> = module.split("::").collect();
    let mut found = BTreeSet::new();
    for (_, path) in paths(&code).iter().filter(|(_, path)| path.contains("::")) {
        // In a `mod.rs`, a path may begin with a module below it.
        let below = || module.iter().copied().chain(path.split("::").take(1)).collect();
        let names = absolute(&module, path).unwrap_or_else(below);
        let known = (1..=names.len()).rev().map(|length| names[..length].join("::"));
        found.extend(known.into_iter().find(|name| files.contains_key(name)).filter(|name| *name != module.join("::")));
    }
    found
}

/// All that `module` imports, directly or through others.
fn reachable(module: &str, imports: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut next = vec![module];
    while let Some(module) = next.pop() {
        next.extend(imports[module].iter().filter(|other| reached.insert((*other).clone())).map(String::as_str));
    }
    reached
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
    let absolute = absolute(module, import)?;
    let below = absolute.strip_prefix(root)?;
    below.first().map(|folder| (*folder).to_owned())
}

/// A path from the crate's root, for an import in a file of `module`; `None` for paths that begin elsewhere.
fn absolute<'a>(module: &[&'a str], import: &'a str) -> Option<Vec<&'a str>> {
    let mut names: Vec<&str> = import.split("::").collect();
    let supers = names.iter().take_while(|name| **name == "super").count();
    if supers > 0 {
        let parent = &module[..module.len().saturating_sub(supers)];
        Some(parent.iter().copied().chain(names.split_off(supers)).collect())
    } else if names[0] == "crate" {
        Some(names.split_off(1))
    } else {
        None
    }
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

    #[test]
    fn a_circle_of_four_files_is_found_and_one_of_three_passes() {
        let circles_of = |files: &[(&str, &str)]| -> Vec<String> {
            let path = |(path, source): &(&str, &str)| (format!("crates/a/src/{path}"), (*source).to_owned());
            let sources = files.iter().map(path).collect();
            circles("crates/a/src", "top", &sources).iter().map(Violation::to_string).collect()
        };
        let state = ("top/state.rs", "use crate::top::x::X;");
        let x = ("top/x.rs", "use crate::top::y;");
        assert!(circles_of(&[state, x, ("top/y.rs", "use crate::top::state::S;")]).is_empty(), "three files");
        let four = [state, x, ("top/y.rs", "use super::z;"), ("top/z/mod.rs", "use crate::{base, top::state::S};")];
        let found = "crates/a/src/top: 4 files import each other in a circle, more than 3: ";
        assert_eq!(circles_of(&four), [format!("{found}top::state, top::x, top::y, top::z")]);
        let z_of = |source| circles_of(&[four[0], four[1], four[2], ("top/z/mod.rs", source)]);
        for innocent in [
            "use crate::base::state;",
            "use crate::other::state::S;",
            "// crate::top::state",
            "mod state;",
            "#[cfg(test)]\nmod tests { use crate::top::state::S; }",
        ] {
            assert!(z_of(innocent).is_empty(), "{innocent}");
        }
        // A re-export in mod.rs counts, and so does each import of mod.rs.
        let mod_rs = ("top/mod.rs", "mod state;\nmod x;\nmod y;\npub(crate) use state::S;");
        let through = [mod_rs, state, x, ("top/y.rs", "use crate::top::S;")];
        assert_eq!(circles_of(&through), [format!("{found}top, top::state, top::x, top::y")]);
    }
}
