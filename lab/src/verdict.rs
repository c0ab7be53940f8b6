//! What is advised, as one value: what a disk or a source has, what it should have, why, and what each means gains. `doctor`, `watch`, `probe`,
//! `tune`, `compare`, `run` and `explain` make it here and show parts of it, so that no two of them name different values.
//!
//! ```text
//!   disk     what its reads cost, checked by reads in order   doctor, watch, probe; beside the others' advice in tune and compare
//!   tables   rows that were measured or simulated             compare, tune
//!   lines    what to paste
//! ```
//! Example: on a disk 5 ms away with 128 KiB, `doctor` says 2 MiB. A program that reads in order gets the same value from `tune`: of settings
//! that are as fast for it, that of the disk is taken. Where its reads want another value, one sentence has both.

pub mod disk;
mod lines;
pub mod tables;

pub use lines::{in_shell, mount_behind, record_lines, replay_lines, set_readahead, to_set};

use crate::report::RowKind;
use foreread_os::host::Host;
use foreread_report::block::Block;
use foreread_report::number::TIE;
use serde::{Deserialize, Serialize};
use std::path::Path;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// A disk (`vda`), a mount by its number, or a source (`file:/srv/x`).
    pub device: String,
    /// Its readahead, in bytes. Null where it is not known.
    pub has_bytes: Option<u64>,
    /// What it should have, whatever is read from it: what it has, where that is right. Null where that is not known.
    pub should_bytes: Option<u64>,
    pub standing: Standing,
    /// Sentences.
    pub why: String,
    pub confidence: Confidence,
    /// What to do, that which is advised first at the head. Empty where nothing gains.
    pub steps: Vec<Step>,
}

impl Verdict {
    /// With the value that the disk below a file should have, where something gains on it: that of `doctor`.
    #[must_use]
    pub fn with_disk(mut self, path: &Path) -> Verdict {
        let device = Host::here().device_of(path).ok();
        let look = || disk::DiskLook::of(path, device.as_ref()).ok()?;
        let Some(look) = (self.standing == Standing::Gain).then(look).flatten() else {
            return self;
        };
        let disk = look.verdict(device.as_ref());
        (self.has_bytes, self.should_bytes) = (disk.has_bytes, disk.should_bytes);
        let steps = disk.steps.into_iter().map(|step| Step {
            why: format!("for all programs that read this disk; {}:", disk.why),
            ..step
        });
        self.steps.splice(0..0, steps);
        self
    }

    /// The step of a means, where it gains.
    #[must_use]
    pub fn step(&self, means: Means) -> Option<&Step> {
        self.steps.iter().find(|step| step.means == means)
    }

    /// What a means gains, where that is known.
    #[must_use]
    pub fn gain(&self, means: Means) -> Option<&Gain> {
        self.step(means)?.gain.as_ref()
    }
}

/// What the present readahead is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    #[default]
    Fine,
    /// Another setting would be faster, and this one harms nothing.
    Gain,
    Suspicious,
}

/// What the figures are from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    /// Reads of this machine.
    Measured,
    /// A model.
    Simulated,
    /// A formula, of figures that were measured or are those of a class of devices.
    #[default]
    Formula,
    /// Too few runs, or a storage that behaved irregularly.
    Low,
}

/// In the order of what they cost the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Means {
    /// A value of the kernel, set once for all programs.
    Setting,
    /// `foreread run -- CMD`, which reads what the command is about to read.
    Run,
    /// `posix_fadvise`, a change of the program.
    Hint,
    /// `serve`, `mount` or the library: another path to the bytes.
    Policy,
    /// `foreread plan` and `replay`, where a program reads the same each time, which is not for a tool to know.
    Plan,
    /// Another measurement.
    Measure,
}

impl Means {
    /// Where its lines belong.
    #[must_use]
    pub fn place(self) -> &'static str {
        match self {
            Means::Setting => "the kernel",
            Means::Run => "this program, unmodified",
            Means::Hint => "the program",
            Means::Policy => "foreread",
            Means::Plan => "this program, where it reads the same each time",
            Means::Measure => "",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    pub means: Means,
    /// In words: `Set the kernel's readahead to 2 MiB`. Empty where the lines say it.
    pub what: String,
    /// The lines to paste; ends without a newline.
    pub text: String,
    /// Why, and what it needs.
    pub why: String,
    /// Null where it is not known.
    pub gain: Option<Gain>,
}

impl Step {
    #[must_use]
    pub fn new(means: Means, why: impl Into<String>, text: impl Into<String>) -> Step {
        Step {
            means,
            what: String::new(),
            text: text.into(),
            why: why.into(),
            gain: None,
        }
    }

    /// Below a result, after an empty line.
    #[must_use]
    pub fn next(&self) -> Vec<Block> {
        let lines = self.text.lines().map(|line| format!("    {line}"));
        vec![
            Block::Gap,
            Block::Screen(format!("Next:{TIE}{}", self.why)),
            Block::Lines(lines.collect()),
        ]
    }

    #[must_use]
    pub fn paste(&self) -> Block {
        let [place, text, why] = self.copy();
        Block::Paste { place, text, why }
    }

    /// On a page: where, the lines, and why.
    #[must_use]
    pub fn copy(&self) -> [String; 3] {
        let mut letters = self.why.chars();
        let first = letters.next().into_iter().flat_map(char::to_uppercase);
        let place = self.means.place().to_string();
        [place, self.text.clone(), first.chain(letters).collect()]
    }
}

/// What a means gains beside today.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    /// What: a policy with its values, or a hint.
    pub what: String,
    /// What the row of a policy is. Null for a hint.
    #[serde(default)]
    pub kind: Option<RowKind>,
    /// The kernel's maximum that it sets, in bytes. Null for all but a setting of the kernel.
    #[serde(default)]
    pub max_bytes: Option<u64>,
    /// Its mean time (in mode open: latency) / that of today.
    pub ratio: f64,
    /// Ends of the 95 % interval of it, by bootstrap over the pairs. Null with one run.
    pub ratio_ci95: Option<[f64; 2]>,
    /// Means in seconds: today, and with it.
    pub today_s: f64,
    /// See there.
    pub with_s: f64,
    /// Bytes that it reads from the source / those of today.
    pub bytes_ratio: Option<f64>,
}

impl Gain {
    /// It is gained by no readahead at all.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.kind == Some(RowKind::NoReadahead)
    }

    /// It is by perfect foresight: no more than this can be gained, and less may be.
    #[must_use]
    pub fn is_limit(&self) -> bool {
        self.kind == Some(RowKind::Oracle)
    }
}
