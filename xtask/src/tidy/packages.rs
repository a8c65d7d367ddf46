//! Rules on packages, from `cargo metadata`: the arrows between crates, what a crate needs to be published, and the
//! licences and Rust versions of dependencies.
//!
//! cargo-deny checks licences too, where it is installed (`release.rs`). No package of Debian has it, so CI cannot rely
//! on it, and the rule stays here (ARCHITECTURE.md has the reason). Both read the list of licences in deny.toml.

use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::root;

use super::Violation;

/// The packages that each package may depend on: `parity, format <- engine <- io, world; io <- export <- control; world <- lab,
/// sim; format <- disk; parity, disk <- search; disk, search, io, lab, export, control <- mdspace; mdspace <- c, python`. Dependencies of tests are free. `export` serves its clients on the executor of `io`.
/// Nothing may depend on `sim`, so it never ships.
const ARROWS: &[(&str, &[&str])] = &[
    ("mdspace-parity", &[]),
    ("mdspace-format", &[]),
    ("mdspace-disk", &["mdspace-format"]),
    ("mdspace-search", &["mdspace-parity", "mdspace-format", "mdspace-disk"]),
    ("mdspace-engine", &["mdspace-parity", "mdspace-format"]),
    ("mdspace-io", &["mdspace-parity", "mdspace-format", "mdspace-engine"]),
    ("mdspace-world", &["mdspace-engine"]),
    ("mdspace-lab", &["mdspace-parity", "mdspace-format", "mdspace-engine", "mdspace-world"]),
    ("mdspace-sim", &["mdspace-parity", "mdspace-format", "mdspace-engine", "mdspace-world"]),
    ("mdspace-export", &["mdspace-parity", "mdspace-format", "mdspace-engine", "mdspace-io"]),
    ("mdspace-control", &["mdspace-io", "mdspace-export"]),
    (
        "mdspace",
        &[
            "mdspace-parity",
            "mdspace-format",
            "mdspace-disk",
            "mdspace-search",
            "mdspace-engine",
            "mdspace-io",
            "mdspace-lab",
            "mdspace-export",
            "mdspace-control",
        ],
    ),
    ("mdspace-c", &["mdspace"]),
    ("mdspace-python", &["mdspace"]),
    ("xtask", &[]),
];

/// The file whose list `allow` names the licences that require no more than attribution.
const DENY: &str = include_str!("../../../deny.toml");

/// The permitted licences. An exception to one of them is permitted too, as it only grants more.
fn licences() -> impl Iterator<Item = &'static str> {
    let list = DENY.split_once("\nallow = [").and_then(|(_, rest)| rest.split_once(']')).map_or("", |(list, _)| list);
    list.split('"').skip(1).step_by(2).filter(|licence| !licence.contains(" WITH "))
}

/// Adds violations to `violations`; returns the number of packages.
pub(super) fn check(violations: &mut Vec<Violation>) -> Result<usize> {
    let metadata = metadata()?;
    let packages = metadata["packages"].as_array().context("cargo metadata without packages")?;
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let what: Vec<String> = if package["source"].is_null() {
            [check_arrows(name, package), check_release(package, packages)].concat()
        } else {
            let licence = check_licence(package["license"].as_str());
            licence.into_iter().chain(check_rust(package["rust_version"].as_str())).collect()
        };
        violations.extend(what.into_iter().map(|what| Violation { place: format!("package {name}"), what }));
    }
    Ok(packages.len())
}

fn metadata() -> Result<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(root())
        .output()
        .context("cannot start cargo")?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Violations in the dependencies of `package`, which is one of the workspace's.
fn check_arrows(name: &str, package: &Value) -> Vec<String> {
    let Some((_, allowed)) = ARROWS.iter().find(|(package, _)| *package == name) else {
        return vec!["not in the table of arrows in xtask/src/tidy/packages.rs".into()];
    };
    let dependencies = package["dependencies"].as_array().map_or(&[][..], Vec::as_slice);
    let ours = dependencies.iter().filter(|d| d["kind"] != "dev" && !d["path"].is_null());
    ours.filter_map(|dependency| dependency["name"].as_str())
        .filter(|other| !allowed.contains(other))
        .map(|other| format!("may not depend on {other}: see the table of arrows in xtask/src/tidy/packages.rs"))
        .collect()
}

/// Violations that keep `package`, which is one of the workspace's, from being published, if it is to be.
fn check_release(package: &Value, packages: &[Value]) -> Vec<String> {
    let is_published = |package: &Value| package["publish"].is_null();
    if !is_published(package) {
        return Vec::new();
    }
    let described = ["description", "license", "repository"].into_iter().filter(|field| package[field].is_null());
    let mut missing: Vec<String> = described.map(|field| format!("is published without {field}")).collect();
    let dependencies = package["dependencies"].as_array().map_or(&[][..], Vec::as_slice);
    // Cargo drops dependencies of tests without a version from a package, so a cycle through tests does no harm.
    for dependency in dependencies.iter().filter(|d| !d["path"].is_null() && d["kind"] != "dev") {
        let name = dependency["name"].as_str().unwrap_or_default();
        if dependency["req"] == "*" {
            missing.push(format!("is published, and depends on {name} without a version"));
        }
        if packages.iter().any(|other| other["name"] == name && other["source"].is_null() && !is_published(other)) {
            missing.push(format!("is published, and depends on {name}, which is not"));
        }
    }
    missing
}

/// A violation by the Rust version that a third party's package needs.
fn check_rust(needs: Option<&str>) -> Option<String> {
    let numbers =
        |version: &str| version.split('.').take(2).map(|part| part.parse().ok()).collect::<Vec<Option<u32>>>();
    let ours = env!("CARGO_PKG_RUST_VERSION");
    let later = needs.is_some_and(|needs| numbers(needs) > numbers(ours));
    later.then(|| format!("needs Rust {}, and ours is {ours}", needs.unwrap_or_default()))
}

/// A violation by the licence of a third party's package.
fn check_licence(licence: Option<&str>) -> Option<String> {
    let Some(licence) = licence else { return Some("states no licence".into()) };
    let Ok(expression) = spdx::Expression::parse_mode(licence, spdx::ParseMode::LAX) else {
        return Some(format!("its licence cannot be understood: {licence}"));
    };
    let permissive =
        expression.evaluate(|licence| licence.license.id().is_some_and(|id| licences().any(|name| name == id.name)));
    (!permissive).then(|| format!("its licence is not permissive: {licence}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_permissive_licences_pass() {
        let table = [
            (Some("MIT OR Apache-2.0"), true),
            (Some("MIT/Apache-2.0"), true),
            (Some("(MIT OR Apache-2.0) AND Unicode-3.0"), true),
            (Some("Apache-2.0 WITH LLVM-exception"), true),
            (Some("GPL-2.0 OR MIT"), true),
            (Some("GPL-2.0-only"), false),
            (Some("MIT AND GPL-2.0-only"), false),
            (Some("whatever you like"), false),
            (None, false),
        ];
        for (licence, permissive) in table {
            assert_eq!(check_licence(licence).is_none(), permissive, "{licence:?}");
        }
    }

    #[test]
    fn a_published_package_depends_only_on_published_ones() {
        let ours = |name: &str, publish: Value, dependencies: Value| {
            serde_json::json!({
                "name": name, "publish": publish, "dependencies": dependencies,
                "description": "a", "license": "MIT", "repository": "b",
            })
        };
        let on = |name: &str, req: &str, kind: Value| serde_json::json!([{"name": name, "req": req, "kind": kind, "path": "/x"}]);
        let (for_others, for_us) = (Value::Null, serde_json::json!([]));
        let others = [
            ours("open", for_others.clone(), serde_json::json!([])),
            ours("kept", for_us.clone(), serde_json::json!([])),
        ];
        let dev = serde_json::json!("dev");
        for (publish, dependencies, count) in [
            (&for_others, on("open", "^0.2.0", Value::Null), 0),
            (&for_others, on("open", "*", Value::Null), 1),
            (&for_others, on("kept", "^0.2.0", Value::Null), 1),
            (&for_others, on("kept", "*", Value::Null), 2),
            (&for_others, on("kept", "*", dev), 0),
            (&for_us, on("kept", "*", Value::Null), 0),
        ] {
            let package = ours("a", publish.clone(), dependencies);
            assert_eq!(check_release(&package, &others).len(), count, "{package}");
        }
        assert_eq!(check_release(&serde_json::json!({"publish": null}), &[]).len(), 3, "nothing is said of it");
    }

    #[test]
    fn no_dependency_needs_a_later_rust_than_the_workspace() {
        for (needs, later) in
            [(None, false), (Some("1.56"), false), (Some("1.89.1"), false), (Some("1.999"), true), (Some("2.0"), true)]
        {
            assert_eq!(check_rust(needs).is_some(), later, "{needs:?}");
        }
    }

    #[test]
    fn a_dependency_against_the_arrows_is_found_unless_only_tests_use_it() {
        let package = |kind: &str| {
            let dependency = serde_json::json!({"name": "mdspace-io", "kind": kind, "path": "/x"});
            serde_json::json!({"dependencies": [dependency]})
        };
        assert_eq!(check_arrows("mdspace-engine", &package("normal")).len(), 1);
        assert_eq!(check_arrows("mdspace-engine", &package("dev")), Vec::<String>::new());
        assert_eq!(check_arrows("mdspace", &package("normal")), Vec::<String>::new());
    }

    #[test]
    fn no_package_may_depend_on_the_simulator() {
        assert!(ARROWS.iter().all(|(_, allowed)| !allowed.contains(&"mdspace-sim")));
    }
}
