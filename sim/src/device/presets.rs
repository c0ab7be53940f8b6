//! The named device models: their parameters, the sources of the parameters, and the measured errors of the models.
//!
//! A preset that was fitted to measurements states its error. Any other preset is marked as generic: it only shows trends and orders of
//! magnitude, and its results must not be quoted as results of a product. `sim/tests/cited.rs` compares generic presets, and presets made
//! from documentation, with published figures.
//!
//! Each preset is a model file ([`super::custom`]) in the folder `presets`, with the source of its parameters.

use super::array::{Array, ArrayModel};
use super::disk::{Disk, DiskModel};
use super::hdd::{Hdd, HddModel};
use super::lanes::{Lanes, LanesModel};
use super::net::{Net, NetModel};
use super::ssd::{Ssd, SsdModel};
use super::throttle::{Throttle, ThrottledDevice};
use super::{Device, custom};
use foreread_core::machine::Config;
use foreread_core::policy::spec::SpecError;
use foreread_core::units::PageSize;
use serde::Serialize;
use std::sync::LazyLock;

#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// The name in `model:NAME`.
    pub name: &'static str,
    /// A one-line description.
    pub summary: &'static str,
    /// The source of the figures.
    pub origin: &'static str,
    /// True when the figures were fitted to, or stated in, a publication; false for general knowledge.
    pub calibrated: bool,
    /// The error relative to the data used for the fit.
    pub fit_error: &'static str,
    pub capacity_bytes: u64,
    /// Host CPU time for each KiB that a reader receives (system call and copy), in nanoseconds.
    pub host_ns_per_kib: u64,
    pub host_origin: &'static str,
    /// Default number of concurrent commands.
    pub connections: u32,
    /// Default maximum size of a fetch in bytes.
    pub max_fetch_bytes: u64,
    /// A request rate limit in front of the model.
    pub throttle: Option<Throttle>,
    pub model: Model,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Model {
    /// One command at a time.
    Disk(DiskModel),
    /// A mechanical disk with one head and a queue.
    Hdd(HddModel),
    /// One command at a time, with an overhead that depends on the number of readers.
    Array(ArrayModel),
    /// A flash drive: many dies, several channels, one link.
    Ssd(SsdModel),
    /// Many concurrent commands over a shared link.
    Net(NetModel),
    /// Several concurrent commands over one link: the model that a probe fits.
    Lanes(LanesModel),
}

impl Preset {
    /// Returns the limits of an engine that reads from this device: as many requests in flight as the device accepts, half of them
    /// for readahead.
    #[must_use]
    pub fn config(&self, page: PageSize, cache_bytes: u64) -> Config {
        let mut config = Config::new(page, cache_bytes);
        config.max_in_flight = self.connections;
        config.max_ahead_in_flight = self.connections / 2;
        config.max_short_ahead_in_flight = config.max_ahead_in_flight;
        config.max_fetch_bytes = self.max_fetch_bytes;
        config.bounded()
    }

    /// Creates an idle device of this kind, whose random numbers (if any) depend on `seed`.
    pub fn build(&self, seed: u64) -> Box<dyn Device> {
        let device = self.build_model(seed);
        match self.throttle {
            None => device,
            Some(throttle) => Box::new(ThrottledDevice::new(device, throttle)),
        }
    }

    fn build_model(&self, seed: u64) -> Box<dyn Device> {
        match self.model {
            Model::Disk(model) => Box::new(Disk::new(model)),
            Model::Hdd(model) => Box::new(Hdd::new(model, seed)),
            Model::Array(model) => Box::new(Array::new(model)),
            Model::Ssd(model) => Box::new(Ssd::new(model, seed)),
            Model::Net(model) => Box::new(Net::new(model, seed)),
            Model::Lanes(model) => Box::new(Lanes::new(model)),
        }
    }

    /// Returns a lower bound for the time in which this device can read `bytes` distinct bytes, from its first command on. The bound holds
    /// for any division into commands, in any order, and with any overlap. The bound may not be achievable. The bound does not include the
    /// time that the host needs. The bound also ignores a request rate limit (throttle), because such a limit does not delay a single long
    /// command.
    pub fn least_ns(&self, bytes: u64) -> u64 {
        match self.model {
            _ if bytes == 0 => 0,
            Model::Disk(model) => model.least_ns(bytes),
            Model::Hdd(model) => model.least_ns(bytes),
            Model::Array(model) => model.least_ns(bytes),
            Model::Ssd(model) => model.least_ns(bytes),
            Model::Net(model) => model.least_ns(bytes),
            Model::Lanes(model) => model.least_ns(bytes),
        }
    }
}

/// Returns the preset called `name`.
pub fn find(name: &str) -> Result<&'static Preset, SpecError> {
    let found = PRESETS.iter().find(|p| p.name == name);
    found.ok_or_else(|| unknown(name))
}

/// Returns the model file of the preset called `name`.
pub fn text(name: &str) -> Result<&'static str, SpecError> {
    let found = FILES.iter().find(|(known, _)| *known == name);
    found.map(|(_, text)| *text).ok_or_else(|| unknown(name))
}

fn unknown(name: &str) -> SpecError {
    SpecError::UnknownName {
        name: name.to_string(),
        known: FILES.iter().map(|(known, _)| *known).collect(),
    }
}

macro_rules! files {
    ($($name:literal,)*) => {
        /// The names and the files of the presets: first those from publications, oldest first, then those of current devices.
        const FILES: &[(&str, &str)] = &[$(($name, include_str!(concat!("presets/", $name, ".toml"))),)*];
    };
}

files! {
    "disk-2003",
    "hdd-theory",
    "eva",
    "raid-6disk",
    "x25-m",
    "sandisk-5000",
    "usb-teclast",
    "usb-cruzer",
    "usb-2g",
    "tiny-usb",
    "rbd",
    "hdd-7200",
    "ssd-sata",
    "nvme",
    "object-near",
    "object-far",
    "ebs-gp3",
    "nfs",
    "s3-region",
}

/// All presets, in the order of their files.
pub static PRESETS: LazyLock<Vec<Preset>> = LazyLock::new(|| {
    let preset = |(name, text): &(&str, &str)| {
        let file = custom::parse(text, name).expect("the tests parse every file");
        *file.preset(name)
    };
    FILES.iter().map(preset).collect()
});

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::alone_ns;
    use foreread_core::storage::KindLimits;

    /// Nanoseconds of one read of `kib` on the idle device.
    fn read_ns(name: &str, kib: u64) -> u64 {
        alone_ns(find(name).expect("a preset").build(0).as_mut(), kib << 10)
    }

    #[test]
    fn every_preset_has_its_figures_and_a_name_of_its_own() {
        for (i, preset) in PRESETS.iter().enumerate() {
            let name = preset.name;
            assert!(PRESETS[..i].iter().all(|p| p.name != name), "{name} twice");
            assert!(std::ptr::eq(find(name).expect("a preset"), preset));
            let is_generic = preset.fit_error.starts_with("generic: ");
            assert_eq!(preset.calibrated, !is_generic, "{name}");
            if let Model::Net(net) = preset.model {
                assert!(preset.connections <= net.connections, "{name}");
            }
            assert!(read_ns(name, 4) > 0);
        }
    }

    #[test]
    fn an_object_store_has_the_limits_of_the_engine() {
        for name in ["object-near", "object-far"] {
            let preset = find(name).expect("a preset");
            let limits = (preset.connections, preset.max_fetch_bytes);
            let engine = KindLimits::OBJECT;
            assert_eq!(limits, (engine.requests, engine.max_fetch_bytes), "{name}");
        }
    }

    #[test]
    fn an_unknown_name_carries_the_known_ones() {
        let Err(SpecError::UnknownName { name, known }) = find("rdb") else {
            panic!("there is no such preset")
        };
        assert_eq!((name.as_str(), known.len()), ("rdb", PRESETS.len()));
        assert!(known.contains(&"rbd") && text("rdb").is_err(), "{known:?}");
    }
}
