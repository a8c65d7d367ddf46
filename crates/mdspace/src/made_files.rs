//! Files that are made, and removed again when what they are for is refused: so a refusal leaves nothing behind.

use crate::names::name_of;
use engine::Refusal;
use std::path::{Path, PathBuf};

/// Files that were made, removed unless they are kept.
#[derive(Default)]
pub(crate) struct MadeFiles(Vec<PathBuf>);

impl MadeFiles {
    /// Makes a sparse member of `bytes` unless there is a file or device already.
    pub(crate) fn make_if_absent(&mut self, path: &Path, bytes: Option<u64>) -> Result<(), Refusal> {
        if path.symlink_metadata().is_ok() {
            return Ok(());
        }
        let refused = |reason: String| Refusal::new(reason).of(name_of(path));
        let Some(bytes) = bytes else {
            return Err(refused("no such file or device".to_owned()).advice("--size SIZE makes a sparse file of it"));
        };
        self.make(path, |path| io::create_sparse(path, bytes))
            .map_err(|error| refused(format!("cannot create: {error}")))
    }

    /// Makes a file by `create`.
    pub(crate) fn make(
        &mut self,
        path: &Path,
        create: impl FnOnce(&Path) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        create(path)?;
        self.0.push(path.to_owned());
        Ok(())
    }

    /// How many were made.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Where they are.
    #[cfg(feature = "command")]
    pub(crate) fn paths(&self) -> &[PathBuf] {
        &self.0
    }

    /// They are wanted.
    pub(crate) fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for MadeFiles {
    fn drop(&mut self) {
        for path in &self.0 {
            if let Err(error) = std::fs::remove_file(path) {
                tracing::warn!("{}: left behind: {error}", name_of(path));
            }
        }
    }
}
