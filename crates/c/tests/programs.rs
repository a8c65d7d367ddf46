//! Programs in C, compiled by the system's compiler against the installed library: the claims of claims.c, and the
//! example. The members are made by the Rust library.

use mdspace::{Create, Level, Options};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A directory with the installed library and an array whose bytes follow a pattern.
struct Place {
    directory: tempfile::TempDir,
    members: Vec<PathBuf>,
}

/// The byte of the pattern at `at`.
fn pattern(at: usize) -> u8 {
    (at % 251) as u8
}

/// The sources of the crate.
fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn successful(output: Output) -> Output {
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}: {said}", output.status);
    output
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let members: Vec<_> = ["m0", "m1", "m2"].map(|name| directory.path().join(name)).into();
        Create::new(Level::Raid5).chunk_bytes(64 << 10).member_bytes(8 << 20).create(&members).expect("it is made");
        let array = Options::new().write(true).open(&members).expect("it opens");
        let bytes: Vec<u8> = (0..array.bytes() as usize).map(pattern).collect();
        array.write_all_at(&bytes, 0).expect("it is written");
        array.close().expect("it closes");
        let place = Self { directory, members };
        // Cargo leaves the library beside its tests.
        let test = std::env::current_exe().expect("this program");
        let library = test.with_file_name("libmdspace_c.so");
        assert!(library.is_file(), "{} is not there", library.display());
        let words = [format!("PREFIX={}", place.path("usr").display()), format!("LIBRARY={}", library.display())];
        let mut make = Command::new("make");
        successful(make.arg("-C").arg(source("")).arg("install").args(words).output().expect("make starts"));
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Runs a program here, with the installed library and its description.
    fn run(&self, program: impl AsRef<std::ffi::OsStr>, arguments: &[&std::ffi::OsStr]) -> Output {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(self.directory.path()).env("LD_LIBRARY_PATH", self.path("usr/lib"));
        command.env("PKG_CONFIG_PATH", self.path("usr/lib/pkgconfig")).output().expect("it starts")
    }

    fn shell(&self, script: &str) -> Output {
        successful(self.run("sh", &["-euc".as_ref(), script.as_ref()]))
    }
}

#[test]
fn the_claims_of_the_header_hold() {
    let place = Place::new();
    std::fs::copy(source("tests/claims.c"), place.path("claims.c")).expect("its source");
    let flags = "-std=c99 -Wall -Wextra -Wpedantic -Werror -O1";
    place.shell(&format!(
        "cc {flags} $(pkg-config --cflags mdspace) -pthread -o claims claims.c $(pkg-config --libs mdspace)"
    ));
    let letter = place.path("letter");
    std::fs::write(&letter, "not a member").expect("a file");
    let mut arguments = vec![env!("CARGO_PKG_VERSION").as_ref(), letter.as_os_str()];
    arguments.extend(place.members.iter().map(|member| member.as_os_str()));
    let output = successful(place.run(place.path("claims"), &arguments));
    let error = mdspace::Array::open([&place.members[0], &letter]).expect_err("it is no member");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim_end(), error.to_string());
}

#[test]
fn the_example_is_built_by_its_makefile_and_copies_bytes() {
    let place = Place::new();
    for name in ["Makefile", "cat.c"] {
        std::fs::copy(source("example").join(name), place.path(name)).expect("its source");
    }
    place.shell("make -s cat");
    let (at, bytes) = (1_000_001, 3_000_000);
    let output = place.shell(&format!("./cat {at} {bytes} m2 m0"));
    assert!(output.stdout == (at..at + bytes).map(pattern).collect::<Vec<_>>());
    for (arguments, status) in [("0 1", 2), ("0 1 m0", 2), ("0 1 absent m0 m1", 2), ("999999999 1 m0 m1 m2", 1)] {
        let output = place.run("sh", &["-c".as_ref(), format!("./cat {arguments}").as_ref()]);
        assert_eq!(output.status.code(), Some(status), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn programs_ask_for_the_library_by_its_number_and_see_nothing_but_its_functions() {
    let place = Place::new();
    place.shell("echo '#include <mdspace.h>' > a.cc && c++ -fsyntax-only -Wall -Wextra -Werror $(pkg-config --cflags mdspace) a.cc");
    place.shell("test -e usr/lib/libmdspace.so.0 && test \"$(pkg-config --modversion mdspace)\" = $(basename $(readlink usr/lib/libmdspace.so.0) | cut -d. -f3-)");
    let exported =
        place.shell("nm --dynamic --defined-only --format=posix usr/lib/libmdspace.so | cut -d' ' -f1 | sort");
    let exported = String::from_utf8_lossy(&exported.stdout).into_owned();
    let header = std::fs::read_to_string(source("include/mdspace.h")).expect("the header");
    let is_declared = |name: &&str| header.contains(&format!("{name}("));
    let foreign: Vec<_> = exported.lines().filter(|name| !is_declared(name)).collect();
    assert!(foreign.is_empty() && exported.lines().count() > 20, "{foreign:?} of\n{exported}");
}
