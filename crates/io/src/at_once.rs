//! Short transfers of files in memory (tmpfs), carried out where they are submitted.
//!
//! Such a file system copies bytes and waits for no device, and says so to nothing: io_uring hands each of its transfers
//! to a thread of the kernel, and `RWF_NOWAIT` is refused. The hand-over costs more than the copy. Long and vectored
//! transfers go to threads, where their copies run beside this one. A swapped page is read within the call, and a write
//! may wait for free memory. It decides nothing about how many calls are made.

use crate::operation::Call;
use crate::system::calls;
use std::os::fd::RawFd;

/// The most bytes of a transfer that is carried out at once.
const BYTES_MAX: u32 = 16 << 10;

/// The result of a short transfer; `None` for anything else.
///
/// # Safety
/// The addresses in `call` are valid, and the descriptor is open.
pub(crate) unsafe fn perform(fd: RawFd, call: Call) -> Option<i32> {
    // SAFETY: promised by the caller.
    unsafe {
        match call {
            Call::Read { address, bytes, at } if bytes <= BYTES_MAX => {
                Some(calls::read_at(fd, address, bytes as usize, at))
            }
            Call::Write { address, bytes, at } if bytes <= BYTES_MAX => {
                Some(calls::write_at(fd, address, bytes as usize, at))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn short_transfers_are_made_and_nothing_else_is() {
        let place = tempfile::tempdir().expect("a directory");
        let file = std::fs::File::create_new(place.path().join("file")).expect("a file");
        let (long, short) = (vec![7; BYTES_MAX as usize + 1], [9; 512]);
        let write = |bytes: &[u8], at| Call::Write { address: bytes.as_ptr(), bytes: bytes.len() as u32, at };
        // SAFETY: the memory outlives each call, and the file is open.
        let results = unsafe {
            [write(&long, 0), Call::SyncData, write(&short, 1024), write(&long[1..], 0)]
                .map(|call| perform(file.as_raw_fd(), call))
        };
        assert_eq!(results, [None, None, Some(512), Some(BYTES_MAX as i32)]);
        assert_eq!(std::fs::read(place.path().join("file")).expect("it is there"), long[1..]);
    }
}
