//! Files that a command creates, and removes again if the command is refused, so that a refusal changes nothing.

use crate::names::name_of;
use crate::place::exists;
use engine::Refusal;
use std::path::{Path, PathBuf};

/// New files. They are removed on drop unless they are kept.
#[derive(Default)]
pub(crate) struct MadeFiles(Vec<PathBuf>);

impl MadeFiles {
    /// Creates a sparse member of `bytes`, unless a file or device exists already.
    pub(crate) fn make_if_absent(&mut self, path: &Path, bytes: Option<u64>) -> Result<(), Refusal> {
        if exists(path) {
            return Ok(());
        }
        let refused = |reason: String| Refusal::new(reason).of(name_of(path));
        if is_of_devices(path) {
            return Err(
                refused("no such device".to_owned()).advice("name members alone: the array gets its name by --name")
            );
        }
        let Some(bytes) = bytes else {
            return Err(refused("no such file or device".to_owned()).advice("--size SIZE creates a sparse file"));
        };
        self.make(path, |path| io::create_sparse(path, bytes))
            .map_err(|error| refused(format!("cannot create: {error}")))
    }

    /// Creates a file with `create`.
    pub(crate) fn make(
        &mut self,
        path: &Path,
        create: impl FnOnce(&Path) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        create(path)?;
        self.0.push(path.to_owned());
        Ok(())
    }

    /// Number of new files.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Their paths.
    #[cfg(feature = "command")]
    pub(crate) fn paths(&self) -> &[PathBuf] {
        &self.0
    }

    /// Keeps the files.
    pub(crate) fn keep(mut self) {
        self.0.clear();
    }
}

/// Whether a new file there would be where a device was meant, and gone with the next start of the machine.
fn is_of_devices(path: &Path) -> bool {
    std::path::absolute(path).is_ok_and(|path| path.starts_with("/dev") && !path.starts_with("/dev/shm"))
}

impl Drop for MadeFiles {
    fn drop(&mut self) {
        for path in &self.0 {
            if let Err(error) = std::fs::remove_file(path) {
                tracing::warn!("{}: cannot be removed: {error}", name_of(path));
            }
        }
    }
}
