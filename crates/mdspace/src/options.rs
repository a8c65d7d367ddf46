//! How an array is opened.

use crate::array::Array;
use crate::error::Error;
use crate::machine::{self, Consent, Machine, Purpose, refuse_duplicates};
use engine::{BitmapPolicy, Offer, Refusal};
use std::path::{Path, PathBuf};

/// How to open an array; without any setting for reading, by the strictest rules.
///
/// # Example
/// ```no_run
/// let array = mdspace::Options::new().write(true).open(["a.img", "b.img", "c.img"])?;
/// # Ok::<(), mdspace::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct Options {
    write: bool,
    force: bool,
    bitmap: Option<PathBuf>,
}

impl Options {
    /// For reading.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether it may be written to. Members are then locked exclusively, otherwise shared with other readers.
    ///
    /// An array that is open for writing is kept up as `mdspace serve` keeps one up: a resync that is due begins at once,
    /// spares take over for members that fail, and whenever nothing was written for a fifth of a second the array is
    /// marked clean, so that a crash while it is idle costs nothing.
    pub fn write(mut self, write: bool) -> Self {
        self.write = write;
        self
    }

    /// Whether to take what may have lost something: the fewest and least stale members that an array with too few current ones can
    /// start with, as mdadm does; a parity array that was neither stopped cleanly nor has all its members, though what the
    /// missing member held may be wrong where a write was under way; an array without its write journal, to be read.
    /// [`Status::warnings`](crate::Status::warnings) says what may be lost or wrong, [`Status::forced`](crate::Status::forced)
    /// which members were taken. Open for reading, nothing is written; open for writing, superblocks say that they belong
    /// to the array again, so that it is assembled without force from then on.
    pub fn force(mut self, force: bool) -> Self {
        self.force = force;
        self
    }

    /// The file that holds the write-intent bitmap, of an array that keeps it in one. Needed for writing alone.
    pub fn bitmap(mut self, file: impl Into<PathBuf>) -> Self {
        self.bitmap = Some(file.into());
        self
    }

    /// Opens the array whose members, files or block devices, these are, in any order. As many may be left out as the
    /// level can do without.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`](crate::ErrorKind::Refused), with the member and the field: a member that is damaged,
    /// foreign or in use, or too few of them. No byte of any member was changed.
    pub fn open<P: AsRef<Path>>(&self, members: impl IntoIterator<Item = P>) -> Result<Array, Error> {
        let members = members.into_iter().map(|member| member.as_ref().to_owned()).collect();
        Array::start(self.clone(), members)
    }

    /// Assembles the array, on the thread of `machine`.
    pub(crate) async fn assemble(&self, members: &[PathBuf], machine: &Machine) -> Result<machine::Array, Refusal> {
        refuse_duplicates(members)?;
        let purpose = if self.write { Purpose::Write } else { Purpose::Read };
        let members = machine.open_all(members, purpose)?;
        let file = self.bitmap.as_deref().filter(|_| self.write);
        let bitmap = file.map(|path| machine.open_bitmap(path)).transpose()?;
        machine
            .assemble_offer(
                Offer { members, bitmap },
                Consent { force: self.force, ..Consent::default() },
                purpose,
                BitmapPolicy::default(),
            )
            .await
    }
}
