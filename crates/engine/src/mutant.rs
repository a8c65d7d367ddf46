//! Mutant hooks: engines that are broken on purpose, each in one place, to show that the tests notice.
//!
//! `mutant!("name")` is `false`, and costs nothing, unless the build sets `--cfg mutants`. Such a build holds
//! all mutants, and the environment variable `MDSPACE_MUTANT` selects the active one. Each name occurs once
//! in the engine. xtask/src/mutants/table.rs lists what each mutant breaks, and which test catches it.

/// Whether this process runs the named mutant; or one of two values by that.
macro_rules! mutant {
    ($name:literal) => {
        cfg!(mutants) && $crate::mutant::is($name)
    };
    ($name:literal => $broken:expr, else $right:expr) => {
        if mutant!($name) { $broken } else { $right }
    };
}

/// Whether the environment selects this mutant.
#[cfg(mutants)]
pub(crate) fn is(name: &str) -> bool {
    static MUTANT: std::sync::LazyLock<Option<String>> =
        std::sync::LazyLock::new(|| std::env::var("MDSPACE_MUTANT").ok());
    MUTANT.as_deref() == Some(name)
}

/// Builds without `--cfg mutants` never read the environment.
#[cfg(not(mutants))]
pub(crate) const fn is(_name: &str) -> bool {
    false
}
