//! Members that do not answer: operations are abandoned after the member timeout, and silent members are
//! probed.
//!
//! Facts: md has no such timeout of its own; it relies on that of the block layer.

use crate::control::state::Control;
use crate::device::Device;
use crate::device::timeout::{LOOK, TICKS};
use crate::plan::ROW_BYTES;
use crate::seam::clock::Clock;
use crate::seam::member::Member;
use crate::seam::observe::Observer;
use crate::seam::report::ChangeKind;
use format::units::ComponentByte;
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

    /// Abandons overdue operations, until the array is stopped.
    pub(crate) async fn enforce_timeouts(&self) {
        while !self
            .core
            .gate
            .closes_before(self.core.clock.sleep_until(self.core.clock.now() + self.tick_length()))
            .await
        {
            self.tick();
        }
    }

    /// Does the same for as long as `work` takes.
    pub(crate) async fn with_timeouts<T>(&self, work: impl Future<Output = T>) -> T {
        let watch = async {
            loop {
                self.core.clock.sleep_until(self.core.clock.now() + self.tick_length()).await;
                self.tick();
            }
        };
        match futures_util::future::select(pin!(work), pin!(watch)).await {
            futures_util::future::Either::Left((done, _)) => done,
            futures_util::future::Either::Right(((), _)) => unreachable!("the timer loop never ends"),
        }
    }

    /// Probes silent members that read repair does not read again, until they answer or are ejected for another
    /// reason. Those gave a check no answer, which ejects no member, or belong to an array that repairs nothing: one
    /// without redundancy, or a read-only one. Runs until the array is stopped.
    pub(crate) async fn probe_silent_members(&self) {
        while !self.core.gate.is_closed() {
            let seen = self.core.context.unanswered.seen();
            let unanswered = |device: &Rc<Device<M>>| Some((device.clone(), device.faults.take_unanswered()?));
            let asked: Vec<_> = self.core.devices().iter().filter_map(unanswered).collect();
            for (device, at) in &asked {
                let row = at.0..at.0 + ROW_BYTES;
                let ask = async {
                    if device.is_active() && self.reread(device, &row).await.is_err() && device.reach.is_silent() {
                        device.faults.set_unanswered(*at);
                    }
                };
                if self.core.gate.closes_before(ask).await {
                    return; // a stop does not wait for the probe
                }
            }
            let wait = self.core.clock.sleep_until(self.core.clock.now() + self.tick_length() * TICKS as u32);
            match asked.iter().any(|(device, _)| device.faults.is_unanswered()) {
                true => drop(self.core.gate.closes_before(wait).await),
                false => self.core.context.unanswered.changed_since(seen).await,
            }
        }
    }

    fn tick_length(&self) -> Duration {
        self.core.context.timeout.get().map_or(LOOK, |timeout| timeout / TICKS as u32)
    }

    fn tick(&self) {
        self.other_side.get().iter().for_each(|other| other.control.tick());
        if self.core.context.timeout.get().is_none() {
            return;
        }
        let now = self.core.context.tick.get() + 1;
        self.core.context.tick.set(now);
        // Members that have left are included: a replaced member may still have reads under way.
        for device in self.core.members() {
            if device.abandon_before(now) {
                tracing::warn!("{}: no answer in time", device.name);
                if device.reach.fall_silent() {
                    self.core.note_change(&device, self.core.slot_of_device(&device), ChangeKind::Silent, None);
                    if !self.repairs_reads() && !mutant!("silent-for-good") {
                        device.faults.set_unanswered(ComponentByte(0));
                        self.core.context.unanswered.raise();
                    }
                }
            }
        }
        self.core.update_whole();
    }
}
