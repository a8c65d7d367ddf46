//! The package's own suite (tests/*.py), run by the system's Python with the native module that cargo built.

use std::path::Path;
use std::process::Command;

#[test]
fn the_suite_passes() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let place = tempfile::tempdir().expect("a directory");
    let package = place.path().join("mdspace");
    std::fs::create_dir(&package).expect("a directory");
    for entry in here.join("python/mdspace").read_dir().expect("the package") {
        let path = entry.expect("a file").path();
        if path.is_file() {
            std::fs::copy(&path, package.join(path.file_name().expect("a name"))).expect("it is copied");
        }
    }
    // Cargo leaves the module beside its tests.
    let test = std::env::current_exe().expect("this program");
    std::fs::copy(test.with_file_name("lib_mdspace.so"), package.join("_mdspace.abi3.so")).expect("the module");
    let mut python = Command::new("python3");
    python.args(["-B", "-W", "error", "-m", "unittest", "discover", "--start-directory", "tests"]).current_dir(here);
    let output = python.env("PYTHONPATH", place.path()).output().expect("python3 starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("\nRan ") && !said.contains("\nRan 0 "), "{said}");
}
