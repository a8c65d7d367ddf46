//! Members that do not answer: operations are given up in time, and members asked again.

use crate::array::Inner;
use crate::device::Device;
use crate::device::timeout::{LOOK, TICKS};
use crate::plan::ROW_BYTES;
use crate::seam::clock::Clock;
use crate::seam::member::Member;
use crate::seam::report::ChangeKind;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

impl<M: Member, C: Clock> Inner<M, C> {
    /// Gives up what members do not answer in time, until the array is stopped.
    pub(crate) async fn give_up_in_time(&self) {
        while !self.gate.closes_before(self.clock.sleep_until(self.clock.now() + self.tick_length())).await {
            self.tick();
        }
    }

    /// As [`Inner::give_up_in_time`], for as long as `work` takes.
    pub(crate) async fn watched<T>(&self, work: impl Future<Output = T>) -> T {
        let watch = async {
            loop {
                self.clock.sleep_until(self.clock.now() + self.tick_length()).await;
                self.tick();
            }
        };
        match futures_util::future::select(pin!(work), pin!(watch)).await {
            futures_util::future::Either::Left((done, _)) => done,
            futures_util::future::Either::Right(((), _)) => unreachable!("it has no end"),
        }
    }

    /// Asks members that gave a check no answer, until they answer or leave for another reason: a check makes no member
    /// leave. Until the array is stopped.
    pub(crate) async fn ask_the_silent(&self) {
        while !self.gate.is_closed() {
            let seen = self.surroundings.unanswered.seen();
            let unanswered = |device: &Rc<Device<M>>| Some((device.clone(), device.unanswered.take()?));
            let asked: Vec<_> = self.devices().iter().filter_map(unanswered).collect();
            for (device, at) in &asked {
                let row = at.0..at.0 + ROW_BYTES;
                let ask = async {
                    if device.is_active() && self.try_again(device, &row).await.is_err() && device.is_silent.get() {
                        device.unanswered.set(Some(*at));
                    }
                };
                if self.gate.closes_before(ask).await {
                    return; // a stop does not wait for it
                }
            }
            let wait = self.clock.sleep_until(self.clock.now() + self.tick_length() * TICKS as u32);
            match asked.iter().any(|(device, _)| device.unanswered.get().is_some()) {
                true => drop(self.gate.closes_before(wait).await),
                false => self.surroundings.unanswered.changed_since(seen).await,
            }
        }
    }

    pub(crate) fn tick_length(&self) -> Duration {
        self.surroundings.patience.get().map_or(LOOK, |patience| patience / TICKS as u32)
    }

    pub(crate) fn tick(&self) {
        if self.surroundings.patience.get().is_none() {
            return;
        }
        let now = self.surroundings.tick.get() + 1;
        self.surroundings.tick.set(now);
        // Also those that have left: one that was replaced may still be answering.
        for device in self.members() {
            if device.under_way.give_up_before(now) {
                tracing::warn!("{}: no answer in time", device.name);
                if !device.is_silent.replace(true) {
                    self.note_change(&device, self.slot_of_device(&device), ChangeKind::Silent, None);
                }
                self.whole.set(false);
            }
        }
    }
}
