//! Writes that an earlier server answered from memory, and that members may lack: they are found in the write buffer when
//! the array is assembled, and written once it runs.
//!
//! Their answer promised that they outlive that server. So no array is assembled without them: they are written, and an
//! array that is only read has them in memory. If other software has used the members since, as md may, that software
//! knew nothing of them. Then they are lost, and a warning says so.

use crate::control::assemble::AssembleOptions;
use crate::control::assemble::agreement::Warnings;
use crate::control::offer::FindWriteBuffer;
use crate::control::state::Control;
use crate::device::context::DeviceContext;
use crate::device::write_buffer::{BufferedWrites, Found, FoundWrite, look};
use crate::seam::clock::Clock;
use crate::seam::durability::Durability;
use crate::seam::error::Refusal;
use crate::seam::member::Member;
use format::superblock::{Superblock, Version};

/// Gives the array its write buffer, and returns what is to be written. `freshest` is the superblock on the members.
pub(super) fn take(
    find: Option<FindWriteBuffer>,
    freshest: &Superblock,
    context: &DeviceContext,
    warnings: &mut Warnings,
    options: &AssembleOptions,
) -> Result<Vec<FoundWrite>, Refusal> {
    // Other levels write through, and superblocks 0.90 cannot be vouched for.
    let has_buffer = freshest.level.has_parity() && freshest.version != Version::V0_90;
    let Some(find) = find.filter(|_| has_buffer) else { return Ok(Vec::new()) };
    let Some(mut memory) = find(freshest.set_uuid)? else { return Ok(Vec::new()) };
    let found = look((*memory).as_mut(), freshest);
    let writes = match found {
        Found::Nothing => Vec::new(),
        Found::Writes(writes) => writes,
        Found::Void(bytes) => {
            let lost = format!(
                "an earlier server answered {bytes} bytes of writes that no flush confirmed, and was killed; the members \
                 were written by other software since, so these writes are lost, as after a loss of power"
            );
            // The array may be refused later, and opened again.
            tracing::warn!(target: crate::LOG_TARGET, "{lost}");
            warnings.texts.push(lost);
            Vec::new()
        }
    };
    if options.read_only {
        if !writes.is_empty() {
            let bytes = bytes_of(&writes);
            warnings.texts.push(format!(
                "an earlier server answered {bytes} bytes of writes that members may lack: they are read from memory, and \
                 the next server for writing writes them"
            ));
        }
        return Ok(writes);
    }
    if context.write_buffer.set(BufferedWrites::take(memory, freshest)).is_err() {
        unreachable!("an array is assembled once");
    }
    Ok(writes)
}

fn bytes_of(writes: &[FoundWrite]) -> usize {
    writes.iter().map(|(_, data)| data.len()).sum()
}

fn unwritable(bytes: usize, reason: &str) -> Refusal {
    Refusal::new(format!("an earlier server answered {bytes} bytes of writes, which cannot be written"))
        .field("write buffer")
        .because(reason)
        .advice("they stay for another try with members that can be written; --force gives up what cannot be")
}

impl<M: Member, C: Clock> Control<M, C> {
    /// Writes what was found. An array that is only read shows it instead. What cannot be written refuses the array, or
    /// is lost by `force`.
    pub(super) async fn write_found(&self, found: Vec<FoundWrite>, force: bool) -> Result<(), Refusal> {
        if found.is_empty() {
            return Ok(());
        }
        if self.core.info.read_only {
            self.data.show(found);
            return Ok(());
        }
        let bytes = bytes_of(&found);
        for (at, data) in found {
            let block = self.core.pool.copy_of(&data);
            let written = self.data.write(at, block, Durability::Ordinary).await;
            match written {
                Err(error) if force && self.core.check_not_failed().is_ok() => tracing::error!(
                    target: crate::LOG_TARGET,
                    "bytes {at} to {}: an earlier server answered these writes; they cannot be written and are lost: {}",
                    at + data.len() as u64,
                    error.reason
                ),
                written => written.map_err(|error| unwritable(bytes, &error.reason))?,
            }
        }
        if let Some(buffer) = self.core.context.write_buffer.get() {
            buffer.free_all();
        }
        tracing::info!(target: crate::LOG_TARGET, "{bytes} bytes that an earlier server had answered are written");
        Ok(())
    }
}
