//! Named devices: parameters, their sources and the measured errors.
//!
//! A preset that was fitted to measurements says so, with its error; one that was not is marked as generic and good for
//! shapes and orders of magnitude only. Its numbers must not be quoted as those of a product. `sim/tests/cited.rs` compares generic
//! presets, and those made from documentation, with published figures.
//!
//! Every figure has a source.
//!
//! Units: KiB is 1024 bytes, MB/s is 10^6 bytes per second.

mod disks;
mod flash;
mod network;

use super::Device;
use super::array::{Array, ArrayModel};
use super::disk::{Disk, DiskModel};
use super::hdd::{Hdd, HddModel};
use super::lanes::{Lanes, LanesModel};
use super::net::{Net, NetModel};
use super::sliced::SlicedArray;
use super::ssd::{Ssd, SsdModel};
use super::throttle::{Throttle, ThrottledDevice};
use foreread_core::machine::Config;
use foreread_core::policy::spec::SpecError;
use foreread_core::units::PageSize;

#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// The name in `model:NAME`.
    pub name: &'static str,
    /// What it is, in one line.
    pub summary: &'static str,
    /// The source of the figures.
    pub origin: &'static str,
    /// True when the figures were fitted to, or stated in, a publication; false for general knowledge.
    pub calibrated: bool,
    /// The error relative to the data used for the fit.
    pub fit_error: &'static str,
    pub capacity_bytes: u64,
    /// Host CPU time for each KiB that a reader gets (system call and copy), in nanoseconds.
    pub host_ns_per_kib: u64,
    pub host_origin: &'static str,
    /// Default number of concurrent commands.
    pub connections: u32,
    /// Default maximum bytes of a fetch.
    pub max_fetch_bytes: u64,
    /// A request rate limit in front of the model.
    pub throttle: Option<Throttle>,
    pub model: Model,
}

#[derive(Clone, Copy, Debug)]
pub enum Model {
    /// One command after the other.
    Disk(DiskModel),
    /// One head, one arm, a platter that turns, a queue.
    Hdd(HddModel),
    /// One after the other, with an overhead that depends on how many readers there are.
    Array(ArrayModel),
    /// Many dies, some channels, one link.
    Ssd(SsdModel),
    /// Many at once over a shared link.
    Net(NetModel),
    /// Several at once over one link: what a probe fits.
    Lanes(LanesModel),
}

impl Preset {
    /// The limits of an engine that reads from it: as many requests in flight as it takes, half of them ahead.
    #[must_use]
    pub fn config(&self, page: PageSize, cache_bytes: u64) -> Config {
        let mut config = Config::new(page, cache_bytes);
        config.max_in_flight = self.connections;
        config.max_ahead_in_flight = self.connections / 2;
        config.max_short_ahead_in_flight = config.max_ahead_in_flight;
        config.max_fetch_bytes = self.max_fetch_bytes;
        config.bounded()
    }

    /// An idle device of this kind, whose random numbers (if any) come from `seed`.
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
            Model::Array(model) => match model.slices {
                None => Box::new(Array::new(model)),
                Some(slices) => Box::new(SlicedArray::new(model, slices)),
            },
            Model::Ssd(model) => Box::new(Ssd::new(model, seed)),
            Model::Net(model) => Box::new(Net::new(model, seed)),
            Model::Lanes(model) => Box::new(Lanes::new(model)),
        }
    }

    /// A time that no choice of commands beats: the least that this device needs to bring in `bytes` different bytes,
    /// however they are cut, ordered and overlapped, from its first command on. A lower bound, which need not be
    /// reached; what the host spends is not in it, nor a throttle, which lets one long command through at once.
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

/// The preset called `name`.
pub fn find(name: &str) -> Result<&'static Preset, SpecError> {
    PRESETS
        .iter()
        .find(|p| p.name == name)
        .ok_or_else(|| SpecError::UnknownName {
            name: name.to_string(),
            known: PRESETS.iter().map(|p| p.name).collect(),
        })
}

/// Queue depth of SATA's native command queuing.
const NCQ: u32 = 32;
/// Commands that a host queues for a device that takes one at a time. Chosen: as many as for the others.
const HOST_QUEUE: u32 = 32;
const MS: u64 = 1_000_000;
const MB_PER_S: u64 = 1_000_000;
const KIB: u64 = 1024;
const NO_HOST: &str = "0: the published figures that it was fitted to include the host";
const HOST_NOW: &str = "assumption: 0.05 to 0.1 us/KiB on a present CPU, its middle";

/// Every preset: those of publications, oldest first, then those of today.
pub static PRESETS: &[Preset] = &[
    disks::DISK_2003,
    disks::HDD_THEORY,
    disks::EVA,
    disks::RAID_6DISK,
    flash::X25_M,
    flash::SANDISK_5000,
    flash::USB_TECLAST,
    flash::USB_CRUZER,
    flash::USB_2G,
    flash::TINY_USB,
    network::RBD,
    disks::HDD_7200,
    flash::SSD_SATA,
    network::NVME,
    network::OBJECT_NEAR,
    network::OBJECT_FAR,
    network::EBS_GP3,
    network::NFS,
    network::S3_REGION,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Command, run_dry};

    /// Nanoseconds of one read of `kib` on the idle device.
    fn read_ns(name: &str, kib: u64) -> u64 {
        let mut device = find(name).expect("a preset").build(0);
        device.submit(0, Command::new(0, 0, 0, kib * KIB));
        run_dry(device.as_mut()).last().expect("an arrival").0
    }

    #[test]
    fn every_preset_has_its_figures_and_a_name_of_its_own() {
        for (i, preset) in PRESETS.iter().enumerate() {
            assert!(
                PRESETS[..i].iter().all(|p| p.name != preset.name),
                "{} is listed twice",
                preset.name
            );
            assert!(std::ptr::eq(
                find(preset.name).expect("found by its name"),
                preset
            ));
            assert!(
                preset.capacity_bytes > 0 && preset.connections > 0,
                "{}",
                preset.name
            );
            assert_eq!(
                preset.calibrated,
                !preset.fit_error.starts_with("generic: "),
                "{}",
                preset.name
            );
            if let Model::Net(net) = preset.model {
                assert!(
                    net.connection_bytes_per_s <= net.link_bytes_per_s,
                    "{}",
                    preset.name
                );
                assert!(
                    net.rtt_p99_ns
                        .is_none_or(|p99| net.rtt_ns > 0 && p99 >= net.rtt_ns),
                    "{}",
                    preset.name
                );
                assert!(preset.connections <= net.connections, "{}", preset.name);
            }
            assert!(read_ns(preset.name, 4) > 0);
        }
    }

    #[test]
    fn an_unknown_name_carries_the_known_ones() {
        let Err(SpecError::UnknownName { name, known }) = find("rdb") else {
            panic!("there is no such preset")
        };
        assert_eq!(name, "rdb");
        assert_eq!(known.len(), PRESETS.len());
        assert!(
            known.contains(&"rbd") && known.contains(&"disk-2003"),
            "{known:?}"
        );
    }
}
