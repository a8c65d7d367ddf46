//! Rules on packages, from `cargo metadata`: the arrows between crates, and the licences of dependencies.

use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::root;

use super::Violation;

/// The packages that each package may depend on: `parity, format <- engine <- io, world; io <- export; world <- lab, sim;
/// io, lab, export <- mdspace`. Dependencies of tests are free. `export` serves its clients on the executor of `io`.
/// Nothing may depend on `sim`, so it never ships.
const ARROWS: &[(&str, &[&str])] = &[
    ("mdspace-parity", &[]),
    ("mdspace-format", &[]),
    ("mdspace-engine", &["mdspace-parity", "mdspace-format"]),
    ("mdspace-io", &["mdspace-parity", "mdspace-format", "mdspace-engine"]),
    ("mdspace-world", &["mdspace-engine"]),
    ("mdspace-lab", &["mdspace-parity", "mdspace-format", "mdspace-engine", "mdspace-world"]),
    ("mdspace-sim", &["mdspace-parity", "mdspace-format", "mdspace-engine", "mdspace-world"]),
    ("mdspace-export", &["mdspace-parity", "mdspace-format", "mdspace-engine", "mdspace-io"]),
    ("mdspace", &["mdspace-parity", "mdspace-format", "mdspace-engine", "mdspace-io", "mdspace-lab", "mdspace-export"]),
    ("xtask", &[]),
];

/// Licences that require no more than attribution.
const LICENCES: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Adds violations to `violations`; returns the number of packages.
pub(super) fn check(violations: &mut Vec<Violation>) -> Result<usize> {
    let metadata = metadata()?;
    let packages = metadata["packages"].as_array().context("cargo metadata without packages")?;
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let what = if package["source"].is_null() {
            check_arrows(name, package)
        } else {
            check_licence(package["license"].as_str()).into_iter().collect()
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

/// A violation by the licence of a third party's package.
fn check_licence(licence: Option<&str>) -> Option<String> {
    let Some(licence) = licence else { return Some("states no licence".into()) };
    let Ok(expression) = spdx::Expression::parse_mode(licence, spdx::ParseMode::LAX) else {
        return Some(format!("its licence cannot be understood: {licence}"));
    };
    let permissive = expression.evaluate(|licence| licence.license.id().is_some_and(|id| LICENCES.contains(&id.name)));
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
