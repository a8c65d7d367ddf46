//! FUSE requests that touch data. They run on the volume's thread; nothing here blocks it. Source: `fuse(4)`.

use crate::volume::{Durability, Volume, VolumeError, VolumeErrorKind};
use fuser::{Errno, ReplyData, ReplyEmpty, ReplyWrite};
use futures_channel::mpsc;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::future::poll_fn;
use std::task::Poll;

/// A request, and the reply handle for its answer. Ranges lie within the volume.
pub(super) enum Job {
    Read(u64, usize, ReplyData),
    Write(u64, Vec<u8>, Durability, ReplyWrite),
    Flush(ReplyEmpty),
    /// Offset, bytes, and whether the range may be deallocated.
    Zero(u64, u64, bool, ReplyEmpty),
}

/// Carries out jobs until the channel is closed and every job is answered.
pub(super) async fn drive<V: Volume>(volume: V, mut jobs: mpsc::UnboundedReceiver<Job>) {
    let mut running: FuturesUnordered<LocalBoxFuture<'static, ()>> = FuturesUnordered::new();
    let mut is_over = false;
    poll_fn(|cx| {
        while !is_over {
            let Poll::Ready(next) = jobs.poll_next_unpin(cx) else { break };
            let Some(job) = next else {
                is_over = true;
                break;
            };
            let mut job: LocalBoxFuture<'static, ()> = Box::pin(carry_out(volume.clone(), job));
            // A job that completes at its first poll never enters the queue of futures.
            if job.as_mut().poll(cx).is_pending() {
                running.push(job);
            }
        }
        while let Poll::Ready(Some(())) = running.poll_next_unpin(cx) {}
        if is_over && running.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

async fn carry_out<V: Volume>(volume: V, job: Job) {
    match job {
        Job::Read(at, bytes, reply) => match volume.read(at, volume.pool().take(bytes)).await {
            Ok(data) => reply.data(&data),
            Err(error) => reply.error(errno(&error)),
        },
        Job::Write(at, data, durability, reply) => {
            let block = volume.pool().copy_of(&data);
            match volume.write(at, block, durability).await {
                Ok(()) => reply.written(data.len() as u32),
                Err(error) => reply.error(errno(&error)),
            }
        }
        Job::Flush(reply) => answer(reply, volume.flush().await),
        Job::Zero(at, bytes, may_discard, reply) => {
            answer(reply, volume.write_zeroes(at, bytes, may_discard, Durability::Ordinary).await);
        }
    }
}

fn answer(reply: ReplyEmpty, result: Result<(), VolumeError>) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(&error)),
    }
}

fn errno(error: &VolumeError) -> Errno {
    tracing::warn!(%error, "a request through FUSE failed");
    match error.kind {
        VolumeErrorKind::Io | VolumeErrorKind::ShuttingDown => Errno::EIO,
        VolumeErrorKind::NoSpace => Errno::ENOSPC,
        VolumeErrorKind::ReadOnly => Errno::EROFS,
        VolumeErrorKind::OutOfRange => Errno::EINVAL,
    }
}
