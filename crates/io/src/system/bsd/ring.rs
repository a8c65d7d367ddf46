//! io_uring, which is Linux's own. A request for it is an error that says so, and no value of this type exists.

use crate::driver::{Completion, Target, Wait};
use crate::operation::Call;
use engine::Pool;
use std::io;
use std::os::fd::RawFd;

pub(crate) enum Ring {}

impl Ring {
    /// Whether this system has io_uring at all.
    pub(crate) const EXISTS: bool = false;

    pub(crate) fn new(_entries: u32, _: &Pool, _register: bool) -> io::Result<Self> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "io_uring is Linux's own; this system has threads alone"))
    }

    pub(crate) fn registered_bytes(&self) -> usize {
        match *self {}
    }

    pub(crate) fn register_file(&self, _: RawFd) -> Option<u32> {
        match *self {}
    }

    pub(crate) fn unregister_file(&self, _: u32) {
        match *self {}
    }

    pub(crate) fn unregister_files(&self) {
        match *self {}
    }

    /// # Safety
    /// It is never called.
    pub(crate) unsafe fn submit(&self, _: u64, _: Target, _: Call) {
        match *self {}
    }

    pub(crate) fn cancel(&self, _: u64) {
        match *self {}
    }

    pub(crate) fn wants_enter(&self) -> bool {
        match *self {}
    }

    pub(crate) fn enter(&self, _: Wait, _: &mut Vec<Completion>) {
        match *self {}
    }
}
