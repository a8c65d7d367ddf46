//! Transfers that take no time: of members that answer without waiting, such as memory. They pass the same layers as
//! [`super::read`] and [`super::write`], with borrowed buffers and without a future.
//!
//! `None` always means that nothing was done, or that the transfer must be repeated in the other way.

use crate::base::buffer::{Block, Buffer};
use crate::device::checksums::Checksums;
use crate::device::in_use::Device;
use crate::seam::member::{Member, MemberError};
use crate::seam::observe::Why;
use format::units::ComponentByte;
use std::cell::Ref;
use std::slice;

impl<M: Member> Device<M> {
    /// As [`Device::read`], without waiting: `None` where the member cannot, or where the checksums do not confirm
    /// the data.
    pub(crate) fn read_now(&self, at: ComponentByte, into: &mut Buffer, why: Why) -> Option<Result<(), MemberError>> {
        let (checksums, bytes) = (self.verifier(why), into.len() as u64);
        if self.owed.touches(&(at.0..at.0 + bytes)) {
            return None;
        }
        Checksums::expect(checksums, slice::from_mut(into));
        let result = self.member.read_now(self.absolute(at), into)?;
        self.activity.moved(at, bytes);
        self.activity.count_read(bytes);
        if Checksums::against(checksums, at, &result, slice::from_ref(into)).is_some() {
            return None;
        }
        self.note_read(at, bytes, &result, why);
        self.note_unread(at, bytes, &result);
        Some(result)
    }

    /// Whether [`Device::lend`] usually succeeds.
    pub(crate) fn is_in_place(&self) -> bool {
        self.verifier(Why::Data).is_none() && self.member.is_in_place()
    }

    /// The member's contents, in place: `None` where the member cannot, or where checksums must be verified.
    pub(crate) fn lend(&self, at: ComponentByte, bytes: u64) -> Option<Ref<'_, [u8]>> {
        if self.verifier(Why::Data).is_some() || self.owed.touches(&(at.0..at.0 + bytes)) {
            return None;
        }
        let result = self.member.lend(self.absolute(at), bytes)?;
        self.activity.moved(at, bytes);
        self.activity.count_read(bytes);
        match result {
            Ok(part) => Some(part),
            Err(error) => {
                let result = Err(error);
                self.note_read(at, bytes, &result, Why::Data);
                self.note_unread(at, bytes, &result);
                None
            }
        }
    }

    /// As [`Device::write_one`], without waiting: `None`, with nothing done, where the member cannot, where it has
    /// checksums, or where it has a successor.
    pub(crate) fn write_now(&self, at: ComponentByte, from: &Block) -> Option<Result<(), MemberError>> {
        if self.checksums.get().is_some() || self.replacement.has_successor() {
            return None;
        }
        let (result, bytes) = (self.member.write_now(self.absolute(at), from)?, from.len() as u64);
        self.activity.moved(at, bytes);
        self.activity.count_write(bytes);
        self.note(&result);
        self.note_written(at, bytes, &result);
        self.note_owed(at, slice::from_ref(from), &result);
        Some(result)
    }
}
