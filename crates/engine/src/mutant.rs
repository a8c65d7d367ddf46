//! Hooks for mutants: engines that are broken on purpose, each in one place, to show that the tests notice.
//!
//! `mutant!("name")` is `false`, and costs nothing, unless the build sets `--cfg mutants`. Such a build holds all mutants, and
//! the environment variable `MDSPACE_MUTANT` names the one that the process is. Each name occurs once in the engine.
//! What each breaks, and what catches it, is listed in xtask/src/mutants/table.rs.

/// Whether this process is the mutant of that name; or one of two values by that.
macro_rules! mutant {
    ($name:literal) => {
        cfg!(mutants) && $crate::mutant::is($name)
    };
    ($name:literal => $broken:expr, else $right:expr) => {
        if mutant!($name) { $broken } else { $right }
    };
}

/// Whether the environment names this mutant.
#[cfg(mutants)]
pub(crate) fn is(name: &str) -> bool {
    static MUTANT: std::sync::LazyLock<Option<String>> =
        std::sync::LazyLock::new(|| std::env::var("MDSPACE_MUTANT").ok());
    MUTANT.as_deref() == Some(name)
}

/// No build but the mutants' own asks the environment.
#[cfg(not(mutants))]
pub(crate) const fn is(_name: &str) -> bool {
    false
}
