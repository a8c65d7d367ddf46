//! Bounce buffers for direct transfers whose memory the kernel refuses.
//!
//! The kernel refuses a direct transfer with EINVAL, and moves nothing, when its buffers lie or end where the device
//! cannot transfer. That is no fault of the member. Only a failure from one aligned buffer counts as the member's. This
//! module never retries any other error. Source: open(2), `O_DIRECT`.

use super::FileMember;
use engine::{Block, Buffer, MemberError, Pool};
use format::units::MemberByte;
use std::io;

impl FileMember {
    /// Whether the transfer may succeed through an aligned buffer.
    pub(super) fn needs_bounce(&self, error: &MemberError) -> bool {
        let source = error.source.downcast_ref::<io::Error>();
        self.is_direct() && source.and_then(io::Error::raw_os_error) == Some(libc::EINVAL)
    }

    /// Reads through one aligned buffer, and copies.
    pub(super) async fn read_bounced(
        &self,
        at: MemberByte,
        mut into: Vec<Buffer>,
    ) -> (Result<(), MemberError>, Vec<Buffer>) {
        let bytes = into.iter().map(|part| part.len()).sum();
        let (result, whole) = self.read_in_place(at, Pool::new(bytes).take(bytes)).await;
        let mut rest = &whole[..];
        for part in &mut into {
            let (own, behind) = rest.split_at(part.len());
            part.copy_from_slice(own);
            rest = behind;
        }
        (result, into)
    }

    /// Copies into one aligned buffer, and writes that.
    pub(super) async fn write_bounced(&self, at: MemberByte, from: &[Block]) -> Result<(), MemberError> {
        let bytes = from.iter().map(|part| part.len()).sum();
        let mut whole = Pool::new(bytes).take(bytes);
        let mut offset = 0;
        for part in from {
            whole[offset..offset + part.len()].copy_from_slice(part);
            offset += part.len();
        }
        self.write_in_place(at, whole.freeze()).await.0
    }
}

#[cfg(test)]
mod tests {
    use crate::file::FileMember;
    use crate::{Backend, Choice, Executor, OpenOptions, Options, create_sparse};
    use engine::{Block, Buffer, Member, Pool};
    use format::units::MemberByte;

    #[test]
    fn a_direct_transfer_of_any_shape_of_memory_goes_well() {
        for backend in Backend::ALL {
            let pool = Pool::new(1 << 20);
            let executor = Executor::new(&Options { backend: Choice::Only(backend), ..Options::new(pool.clone()) })
                .expect("an executor");
            let directory = tempfile::tempdir_in("/var/tmp").expect("a directory");
            let path = directory.path().join("member");
            create_sparse(&path, 1 << 20).expect("created");
            let member = FileMember::open(&path, &OpenOptions::default()).expect("opened");
            let bytes: Vec<u8> = (0..8192_u32).map(|at| (at % 251) as u8).collect();
            executor.block_on(async {
                // Buffers that start and end anywhere, 8192 bytes together.
                let cuts = [0, 13, 700, 4096, 8192];
                let shifted = |range: &[usize]| {
                    let mut with_head = vec![0; 7];
                    with_head.extend(&bytes[range[0]..range[1]]);
                    pool.copy_of(&with_head).slice(7..with_head.len())
                };
                let parts: Vec<Block> = cuts.windows(2).map(shifted).collect();
                member.write_vectored(MemberByte(4096), parts).await.expect("the member is well");
                member.write(MemberByte(16384), shifted(&[0, 8192])).await.expect("the member is well");
                let into: Vec<Buffer> = cuts.windows(2).map(|cut| pool.take(cut[1] - cut[0])).collect();
                for at in [4096, 16384] {
                    let (result, read) =
                        member.read_vectored(MemberByte(at), into.iter().map(|b| pool.take(b.len())).collect()).await;
                    result.expect("the member is well");
                    let read: Vec<u8> = read.iter().flat_map(|part| part.iter().copied()).collect();
                    assert!(read == bytes, "at {at}");
                    let mut buffer = pool.take(8192 + 512);
                    let _head = buffer.split_to(9);
                    let tail = buffer.split_to(8192);
                    let (result, read) = member.read(MemberByte(at), tail).await;
                    result.expect("the member is well");
                    assert!(read[..] == bytes[..], "at {at}");
                }
            });
            assert!(member.is_direct(), "without O_DIRECT the test shows nothing");
        }
    }
}
