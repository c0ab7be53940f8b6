//! The keys of a model file, and conversions from and to a preset. Each key has its unit in its name; ranges are in `check.rs`.

use super::SCHEMA;
use crate::device::array::{ArrayModel, Overhead};
use crate::device::disk::{DiskModel, Slope};
use crate::device::hdd::{BufferModel, HddModel, Seek, TrackRates};
use crate::device::lanes::LanesModel;
use crate::device::net::NetModel;
use crate::device::presets::{Model, Preset};
use crate::device::ssd::SsdModel;
use crate::device::throttle::Throttle;
use foreread_core::storage::{LOCAL_FETCH_BYTES, MAX_FETCH_BYTES};
use serde::{Deserialize, Serialize};

/// A model file. It has exactly one of the tables `disk`, `lanes`, `hdd`, `array`, `ssd` and `net`, and optionally `throttle`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelFile {
    /// [`SCHEMA`].
    pub schema: String,
    /// A one-line description.
    pub summary: String,
    /// The source of the figures.
    pub origin: String,
    /// Day of the measurement, if there was one: `2026-11-30`.
    pub date: Option<String>,
    /// Whether the figures were fitted to measurements.
    pub calibrated: bool,
    pub fit_error: String,
    pub capacity_bytes: u64,
    /// Recommended number of concurrent commands.
    pub commands_at_once: u32,
    /// Recommended maximum bytes of a fetch. Default 4 MiB, for `lanes` 1 MiB.
    pub max_fetch_bytes: Option<u64>,
    /// Host CPU time for each KiB that a reader gets, in nanoseconds.
    pub host_ns_per_kib: u64,
    pub host_origin: String,
    pub disk: Option<DiskFile>,
    pub lanes: Option<LanesModel>,
    pub hdd: Option<HddFile>,
    pub array: Option<ArrayFile>,
    pub ssd: Option<SsdModel>,
    pub net: Option<NetModel>,
    pub throttle: Option<Throttle>,
    /// The quality of the fit, for information only.
    pub fit: Option<FitFile>,
}

/// [`DiskModel`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskFile {
    pub command_ns: u64,
    /// The longest transfer; omitted if no limit is known.
    pub max_transfer_bytes: Option<u64>,
    pub slopes: Vec<Slope>,
}

/// [`HddModel`]; its capacity is that of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HddFile {
    pub rpm: u32,
    pub command_ns: u64,
    pub settle_ns: u64,
    pub seek_root_ns: u64,
    pub seek_linear_from: f64,
    pub seek_full_ns: u64,
    pub outer_bytes_per_s: u64,
    pub inner_bytes_per_s: u64,
    pub buffer_segments: u32,
    pub buffer_segment_bytes: u64,
    pub buffer_hit_ns: u64,
    pub interface_bytes_per_s: u64,
    pub queue_depth: u32,
    pub patience_ns: u64,
}

/// [`ArrayModel`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArrayFile {
    pub ps_per_kib: u64,
    pub overhead: Vec<Overhead>,
}

/// The fit of a model to measurements. Errors are fractions: 0.1 is 10 %.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FitFile {
    pub source: String,
    pub worst_error: f64,
    pub median_error: f64,
}

const HEAD: &str = "\
# A device model for 'foreread compare --on model:FILE.toml'. Units stand in the names of the keys; times are
# nanoseconds (ps: picoseconds), rates bytes a second. Keys that are not known are refused.
";

impl ModelFile {
    pub fn to_toml(&self) -> String {
        let text =
            toml::to_string(self).expect("a struct of numbers and strings can always be written");
        format!("{HEAD}{text}")
    }

    pub fn of_preset(preset: &Preset) -> ModelFile {
        let mut file = ModelFile {
            schema: SCHEMA.to_string(),
            summary: preset.summary.to_string(),
            origin: preset.origin.to_string(),
            calibrated: preset.calibrated,
            fit_error: preset.fit_error.to_string(),
            capacity_bytes: preset.capacity_bytes,
            commands_at_once: preset.connections,
            max_fetch_bytes: Some(preset.max_fetch_bytes)
                .filter(|bytes| *bytes != usual_fetch(&preset.model)),
            host_ns_per_kib: preset.host_ns_per_kib,
            host_origin: preset.host_origin.to_string(),
            throttle: preset.throttle,
            ..ModelFile::default()
        };
        match preset.model {
            Model::Disk(model) => file.disk = Some(DiskFile::of(&model)),
            Model::Lanes(model) => file.lanes = Some(model),
            Model::Hdd(model) => file.hdd = Some(HddFile::of(&model)),
            Model::Array(model) => file.array = Some(ArrayFile::of(&model)),
            Model::Ssd(model) => file.ssd = Some(model),
            Model::Net(model) => file.net = Some(model),
        }
        file
    }

    /// The preset described by a checked file. It is leaked and lives as long as the process.
    ///
    /// # Panics
    /// If the file has no device table, which [`super::parse`] refuses.
    pub fn preset(&self, name: &str) -> &'static Preset {
        let text = |text: &str| &*Box::leak(text.to_string().into_boxed_str());
        let model = (self.disk.as_ref().map(|f| Model::Disk(f.model())))
            .or_else(|| self.lanes.map(Model::Lanes))
            .or_else(|| Some(Model::Hdd(self.hdd.as_ref()?.model(self.capacity_bytes))))
            .or_else(|| self.array.as_ref().map(|f| Model::Array(f.model())))
            .or_else(|| self.ssd.map(Model::Ssd))
            .or_else(|| self.net.map(Model::Net))
            .expect("a checked file has a table of figures");
        Box::leak(Box::new(Preset {
            name: text(name),
            summary: text(&self.summary),
            origin: text(&self.origin),
            calibrated: self.calibrated,
            fit_error: text(&self.fit_error),
            capacity_bytes: self.capacity_bytes,
            host_ns_per_kib: self.host_ns_per_kib,
            host_origin: text(&self.host_origin),
            connections: self.commands_at_once,
            max_fetch_bytes: self.max_fetch_bytes.unwrap_or(usual_fetch(&model)),
            throttle: self.throttle,
            model,
        }))
    }
}

/// The default maximum fetch of a file: lanes model a device probed by the engine.
fn usual_fetch(model: &Model) -> u64 {
    if matches!(model, Model::Lanes(_)) {
        LOCAL_FETCH_BYTES
    } else {
        MAX_FETCH_BYTES
    }
}

fn leaked<T: Clone>(rows: &[T]) -> &'static [T] {
    Box::leak(rows.into())
}

impl DiskFile {
    fn of(model: &DiskModel) -> DiskFile {
        let DiskModel {
            command_ns,
            max_transfer_bytes,
            slopes,
        } = *model;
        DiskFile {
            command_ns,
            max_transfer_bytes,
            slopes: slopes.to_vec(),
        }
    }

    fn model(&self) -> DiskModel {
        DiskModel {
            command_ns: self.command_ns,
            max_transfer_bytes: self.max_transfer_bytes,
            slopes: leaked(&self.slopes),
        }
    }
}

impl HddFile {
    fn of(model: &HddModel) -> HddFile {
        HddFile {
            rpm: model.rpm,
            command_ns: model.command_ns,
            settle_ns: model.seek.settle_ns,
            seek_root_ns: model.seek.root_ns,
            seek_linear_from: model.seek.linear_from,
            seek_full_ns: model.seek.full_ns,
            outer_bytes_per_s: model.bytes_per_s.outer,
            inner_bytes_per_s: model.bytes_per_s.inner,
            buffer_segments: model.buffer.segments,
            buffer_segment_bytes: model.buffer.segment_bytes,
            buffer_hit_ns: model.buffer.hit_ns,
            interface_bytes_per_s: model.buffer.interface_bytes_per_s,
            queue_depth: model.queue_depth,
            patience_ns: model.patience_ns,
        }
    }

    fn model(&self, capacity_bytes: u64) -> HddModel {
        HddModel {
            capacity_bytes,
            rpm: self.rpm,
            command_ns: self.command_ns,
            seek: Seek {
                settle_ns: self.settle_ns,
                root_ns: self.seek_root_ns,
                linear_from: self.seek_linear_from,
                full_ns: self.seek_full_ns,
            },
            bytes_per_s: TrackRates {
                outer: self.outer_bytes_per_s,
                inner: self.inner_bytes_per_s,
            },
            buffer: BufferModel {
                segments: self.buffer_segments,
                segment_bytes: self.buffer_segment_bytes,
                hit_ns: self.buffer_hit_ns,
                interface_bytes_per_s: self.interface_bytes_per_s,
            },
            queue_depth: self.queue_depth,
            patience_ns: self.patience_ns,
        }
    }
}

impl ArrayFile {
    fn of(model: &ArrayModel) -> ArrayFile {
        ArrayFile {
            ps_per_kib: model.ps_per_kib,
            overhead: model.overhead.to_vec(),
        }
    }

    fn model(&self) -> ArrayModel {
        ArrayModel {
            overhead: leaked(&self.overhead),
            ps_per_kib: self.ps_per_kib,
            slices: None,
        }
    }
}
