//! Transfers that the kernel carries out without a thread: there are none here, so no value of this type exists.

use crate::threads::{Ended, Job};
use std::os::fd::RawFd;

pub(crate) enum Asynchronous {}

impl Asynchronous {
    pub(crate) fn new(_bell: RawFd) -> Option<Self> {
        None
    }

    /// # Safety
    /// It is never called.
    pub(crate) unsafe fn start(&mut self, _: &mut Vec<Job>, _: &mut Vec<Ended>) {
        match *self {}
    }

    pub(crate) fn has_ended(&self) -> bool {
        match *self {}
    }

    pub(crate) fn collect(&mut self, _: &mut Vec<Ended>) {
        match *self {}
    }

    pub(crate) fn take_back(&mut self, _: u64) -> Option<Job> {
        match *self {}
    }

    pub(crate) fn wants_start(&self) -> bool {
        match *self {}
    }
}
