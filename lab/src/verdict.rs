//! The advice of all commands as one type: the present and the best readahead of a disk or a source, the reason, and how much each step
//! gains. `doctor`, `watch`, `probe`, `tune`, `compare`, `run` and `explain` use this module for their advice, so that they never advise
//! different values.
//!
//! ```text
//!   disk     cost of its reads, checked by sequential reads   doctor, watch, probe; an extra step in tune and compare
//!   kept     this measurement, for half an hour               all of these
//!   tables   rows that were measured or simulated             compare, tune
//!   lines    what to paste
//! ```
//! Example: on a disk with a latency of 5 ms and a readahead of 128 KiB, `doctor` advises 2 MiB. For a program that
//! reads sequentially, `tune` advises the same value: if several settings are equally fast for the program, `tune`
//! chooses the one that `doctor` advises for the disk. If the best value for the program's reads is not the best value for the disk, the
//! advice states both values in one sentence.

pub mod disk;
mod kept;
mod lines;
pub mod tables;

pub use lines::{in_shell, mount_behind, record_lines, replay_lines, set_readahead, to_set};

use crate::glance::Unmeasured;
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
    /// Its readahead in bytes. Null if unknown.
    pub has_bytes: Option<u64>,
    /// The readahead that it should have, whatever is read from it; equal to `has_bytes` if that is right. Null if
    /// unknown.
    pub should_bytes: Option<u64>,
    pub standing: Standing,
    /// The reasons, in sentences.
    pub why: String,
    pub confidence: Confidence,
    /// What to do, the preferred step first. Empty if nothing gains.
    pub steps: Vec<Step>,
}

impl Verdict {
    /// If this verdict found a gain, adds one more step: to set the readahead of the file's disk to the value that `doctor` advises.
    pub fn with_disk(mut self, path: &Path) -> Verdict {
        let device = Host::here().device_of(path).ok();
        if self.standing != Standing::Gain {
            return self;
        }
        let look = match disk::DiskLook::of(path, device.as_ref()) {
            Ok(Some(look)) => look,
            Err(Unmeasured::Busy) => {
                let why = "the machine was too busy to measure what the disk should have for all programs; when it is idle:";
                let step = Step::new(Means::Measure, why, "foreread doctor");
                self.steps.push(step);
                return self;
            }
            Ok(None) | Err(Unmeasured::Failed(_)) => return self,
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

    /// Returns the verdict's step of this kind, if there is one.
    pub fn step(&self, means: Means) -> Option<&Step> {
        self.steps.iter().find(|step| step.means == means)
    }

    /// Returns the gain of the verdict's step of this kind, if there is such a step and its gain is known.
    pub fn gain(&self, means: Means) -> Option<&Gain> {
        self.step(means)?.gain.as_ref()
    }
}

/// The rating of a disk's current readahead: fine, improvable or suspicious.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    #[default]
    Fine,
    /// Another setting would be faster, but the present one does no harm.
    Gain,
    Suspicious,
}

/// How the figures of a verdict were obtained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    /// From reads on this machine.
    Measured,
    Simulated,
    /// From a formula, with measured figures or those of a class of devices.
    #[default]
    Formula,
    /// From too few runs, or from a storage that behaved irregularly.
    Low,
}

/// Kinds of steps that a verdict can advise, in ascending order of their cost to the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Means {
    /// A setting of the kernel, set once for all programs.
    Setting,
    /// `foreread run -- CMD`, which reads ahead for the command.
    Run,
    /// `posix_fadvise`, a change to the program.
    Hint,
    /// `serve`, `mount` or the library: the program reads by another path.
    Policy,
    /// `foreread plan` and `replay`, for a program that reads the same data each time; a tool cannot know whether it
    /// does.
    Plan,
    Measure,
}

impl Means {
    /// Returns the place where the user has to apply a step of this kind, such as "the kernel".
    pub fn place(self) -> &'static str {
        match self {
            Means::Setting => "the kernel",
            Means::Run => "this program, unmodified",
            Means::Hint => "the program",
            Means::Policy => "foreread",
            Means::Plan => "this program, if it reads the same data each time",
            Means::Measure => "",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    pub means: Means,
    /// The step in words: `Set the kernel's readahead to 2 MiB`. Empty if the lines explain themselves.
    pub what: String,
    /// The lines to paste; ends without a newline.
    pub text: String,
    /// The reason, and what the step needs.
    pub why: String,
    /// Null if unknown.
    pub gain: Option<Gain>,
}

impl Step {
    pub fn new(means: Means, why: impl Into<String>, text: impl Into<String>) -> Step {
        Step {
            means,
            what: String::new(),
            text: text.into(),
            why: why.into(),
            gain: None,
        }
    }

    /// Formats the next step as blocks of text, to be printed below a result after an empty line.
    pub fn next(&self) -> Vec<Block> {
        let next = format!("Next:{TIE}{}", self.why);
        vec![Block::Gap, Block::Text(next), self.lines()]
    }

    fn lines(&self) -> Block {
        let lines = self.text.lines().map(|line| format!("    {line}"));
        Block::Lines(lines.collect())
    }

    /// Formats the step as blocks of text: an empty line, where to apply it and why, and the lines to paste.
    pub fn paste(&self) -> [Block; 3] {
        let [place, _, why] = self.copy();
        let text = format!("{place}: {why}");
        [Block::Gap, Block::Text(text), self.lines()]
    }

    /// Formats the step for an HTML page: where to apply it, the lines to paste, and the reason.
    pub fn copy(&self) -> [String; 3] {
        let mut letters = self.why.chars();
        let first = letters.next().into_iter().flat_map(char::to_uppercase);
        let place = self.means.place().to_string();
        [place, self.text.clone(), first.chain(letters).collect()]
    }
}

/// How much faster reads are after a step than with the current settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    /// The policy with its values, or the hint.
    pub what: String,
    /// The kind of the policy's row. Null for a hint.
    pub kind: Option<RowKind>,
    /// The kernel's maximum that the step sets, in bytes. Null for other steps.
    pub max_bytes: Option<u64>,
    /// Its mean time (in mode open: latency) / that of today. Of a range, the larger one for `run`, else the smaller one.
    pub ratio: f64,
    /// Ends of the ratio's 95 % interval, by bootstrap over the pairs. Null with one run.
    pub ratio_ci95: Option<[f64; 2]>,
    /// Mean time of today, in seconds.
    pub today_s: f64,
    /// Mean time with the step, in seconds.
    pub with_s: f64,
    /// Least and most time with the step, if it can only be said so. Null if `with_s` is the estimate.
    pub with_range_s: Option<[f64; 2]>,
    /// Bytes that it reads from the source / bytes that today's setting reads.
    pub bytes_ratio: Option<f64>,
}

impl Gain {
    /// Returns whether the gain comes from turning readahead off.
    pub fn is_off(&self) -> bool {
        self.kind == Some(RowKind::NoReadahead)
    }

    /// Returns whether the gain was computed with perfect foresight. A gain with perfect foresight is an upper limit, which a real run may
    /// not reach.
    pub fn is_limit(&self) -> bool {
        self.kind == Some(RowKind::Oracle)
    }
}
