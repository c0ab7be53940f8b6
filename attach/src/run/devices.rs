//! The state of each storage device in a run: whether it is being examined, is used for readahead, or is ignored for a while.
//!
//! ```text
//!   examined ──slow──► read ahead from ──nothing gained──► ignored for 0.25 s, then examined again
//!       └─────fast────────────────────────────────────► 0.5 s, 1 s, 2 s, 5 s, 5 s, ...
//! ```
//! An ignored device is examined again every 5 s, so if a command begins to read from slow storage, foreread notices this after at most 5
//! s. If the command never reads from slow storage, these examinations have no measurable cost.

use super::gain::Reason;
use super::look::Waits;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How long a storage device is ignored; the time gets longer with each examination that finds the device fast.
pub const SLEEPS: [Duration; 5] = [
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Watch {
    Looked,
    Active,
    PassedOver(Instant),
}

pub struct Device {
    watch: Watch,
    /// How often in a row it was ignored.
    slept: usize,
    /// Waits observed by examinations.
    pub waits: Waits,
    pub reason: Option<Reason>,
}

#[derive(Default)]
pub struct Devices(HashMap<u32, Device>);

impl Devices {
    fn device(&mut self, dev: u32) -> &mut Device {
        let new = Device {
            watch: Watch::Looked,
            slept: 0,
            waits: Waits::default(),
            reason: None,
        };
        self.0.entry(dev).or_insert(new)
    }

    pub fn waited(&mut self, dev: u32, waits: Waits) {
        self.device(dev).waits.add(waits);
    }

    pub fn begin(&mut self, dev: u32) {
        self.device(dev).watch = Watch::Active;
    }

    pub fn helped(&mut self, dev: u32) {
        let device = self.device(dev);
        (device.slept, device.reason) = (0, None);
    }

    /// Ignores the storage device for a while, because readahead can gain nothing on it.
    pub fn pass_over(&mut self, dev: u32, reason: Option<Reason>, now: Instant) {
        let device = self.device(dev);
        device.watch = Watch::PassedOver(now + SLEEPS[device.slept.min(SLEEPS.len() - 1)]);
        (device.slept, device.reason) = (device.slept + 1, reason);
    }

    /// Starts to examine the ignored devices whose pause has ended. Returns whether the examination of any device was started.
    pub fn wake(&mut self, now: Instant) -> bool {
        let ready =
            |one: &&mut Device| matches!(one.watch, Watch::PassedOver(until) if until <= now);
        let ready: Vec<&mut Device> = self.0.values_mut().filter(ready).collect();
        let has_any = !ready.is_empty();
        ready.into_iter().for_each(|one| one.watch = Watch::Looked);
        has_any
    }

    fn is(&self, dev: u32, what: impl Fn(Watch) -> bool) -> bool {
        self.0.get(&dev).is_some_and(|one| what(one.watch))
    }

    pub fn is_active(&self, dev: u32) -> bool {
        self.is(dev, |watch| watch == Watch::Active)
    }

    /// Returns whether the storage device is being examined; the result is true for an unknown device.
    pub fn is_looked_at(&self, dev: u32) -> bool {
        !self.0.contains_key(&dev) || self.is(dev, |watch| watch == Watch::Looked)
    }

    pub fn is_passed_over(&self, dev: u32) -> bool {
        self.is(dev, |watch| matches!(watch, Watch::PassedOver(_)))
    }

    pub fn passed_over(&self) -> impl Iterator<Item = u32> + '_ {
        self.0
            .iter()
            .filter(|(_, one)| matches!(one.watch, Watch::PassedOver(_)))
            .map(|(dev, _)| *dev)
    }

    pub fn has_active(&self) -> bool {
        self.0.values().any(|one| one.watch == Watch::Active)
    }

    pub fn next_look(&self) -> Option<Instant> {
        let until = |one: &Device| {
            if let Watch::PassedOver(until) = one.watch {
                Some(until)
            } else {
                None
            }
        };
        self.0.values().filter_map(until).min()
    }

    pub fn all(&self) -> impl Iterator<Item = &Device> {
        self.0.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storage_is_passed_over_longer_each_time() {
        let (mut devices, mut now) = (Devices::default(), Instant::now());
        assert!(devices.is_looked_at(1) && !devices.is_active(1));
        for sleep in SLEEPS.iter().chain(&SLEEPS[4..]) {
            devices.pass_over(1, Some(Reason::Fast), now);
            assert_eq!(
                (devices.next_look(), devices.is_looked_at(1)),
                (Some(now + *sleep), false)
            );
            assert!(
                !devices.wake(now + *sleep - Duration::from_nanos(1))
                    && devices.passed_over().eq([1])
            );
            now += *sleep;
            assert!(devices.wake(now) && devices.is_looked_at(1));
        }
        devices.begin(1);
        devices.helped(1);
        assert!(devices.has_active() && devices.is_active(1) && devices.is_looked_at(2));
        devices.pass_over(1, None, now);
        assert_eq!(devices.next_look(), Some(now + SLEEPS[0]), "it begins anew");
    }
}
