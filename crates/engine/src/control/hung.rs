//! Members that do not answer: operations are given up in time, and members asked again.

use crate::control::Control;
use crate::device::Device;
use crate::device::timeout::{LOOK, TICKS};
use crate::plan::ROW_BYTES;
use crate::seam::clock::Clock;
use crate::seam::member::Member;
use crate::seam::observe::Observer;
use crate::seam::report::ChangeKind;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

impl<M: Member, C: Clock> Control<M, C> {
    /// [`crate::Array::observe`].
    pub(crate) fn observe(&self, observer: Option<Rc<dyn Observer>>) {
        self.core.context.observer.replace(observer);
        for device in self.core.members() {
            self.core.watch(&device.name, &device.member);
        }
        if let Some(intent) = self.metadata.intent() {
            self.metadata.watch_file(&intent);
        }
    }

    /// Gives up what members do not answer in time, until the array is stopped.
    pub(crate) async fn give_up_in_time(&self) {
        while !self
            .core
            .gate
            .closes_before(self.core.clock.sleep_until(self.core.clock.now() + self.tick_length()))
            .await
        {
            self.tick();
        }
    }

    /// As [`Control::give_up_in_time`], for as long as `work` takes.
    pub(crate) async fn watched<T>(&self, work: impl Future<Output = T>) -> T {
        let watch = async {
            loop {
                self.core.clock.sleep_until(self.core.clock.now() + self.tick_length()).await;
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
        while !self.core.gate.is_closed() {
            let seen = self.core.context.unanswered.seen();
            let unanswered = |device: &Rc<Device<M>>| Some((device.clone(), device.unanswered.take()?));
            let asked: Vec<_> = self.core.devices().iter().filter_map(unanswered).collect();
            for (device, at) in &asked {
                let row = at.0..at.0 + ROW_BYTES;
                let ask = async {
                    if device.is_active() && self.try_again(device, &row).await.is_err() && device.is_silent.get() {
                        device.unanswered.set(Some(*at));
                    }
                };
                if self.core.gate.closes_before(ask).await {
                    return; // a stop does not wait for it
                }
            }
            let wait = self.core.clock.sleep_until(self.core.clock.now() + self.tick_length() * TICKS as u32);
            match asked.iter().any(|(device, _)| device.unanswered.get().is_some()) {
                true => drop(self.core.gate.closes_before(wait).await),
                false => self.core.context.unanswered.changed_since(seen).await,
            }
        }
    }

    pub(crate) fn tick_length(&self) -> Duration {
        self.core.context.timeout.get().map_or(LOOK, |timeout| timeout / TICKS as u32)
    }

    pub(crate) fn tick(&self) {
        if self.core.context.timeout.get().is_none() {
            return;
        }
        let now = self.core.context.tick.get() + 1;
        self.core.context.tick.set(now);
        // Also those that have left: one that was replaced may still be answering.
        for device in self.core.members() {
            if device.pending.abandon_before(now) {
                tracing::warn!("{}: no answer in time", device.name);
                if !device.is_silent.replace(true) {
                    self.core.note_change(&device, self.core.slot_of_device(&device), ChangeKind::Silent, None);
                }
                self.core.health.whole.set(false);
            }
        }
    }
}
