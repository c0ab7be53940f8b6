//! Computes our figures: each figure is an expression whose operands are numbers and simulated measurements. For each
//! kind of measurement there is a function in this file, in [`super::rules`] or in [`super::sweep`].
//!
//! ```text
//!   kib_s readers 4 128K eva                          a run of `readers` with three arguments; the mean of its runs
//!   time_s rbd boot-ide none / time_s rbd boot-ide rbd-plain
//!   1024 / 119.91                                     numbers; from left to right, with `/`, `*`, `+` and `-`
//!   window 2 linux-2.6.31:max=128K 0+1024,1536+16384  what a policy decides, without time
//!   left_out usb-2g 4K                                a model fitted to the other rows
//! ```
//! A device is given as the name of a preset model, with a change after `+`. For example, `x25-m+command=167000` adds 167,000 ns to each
//! command, and `disk-2003+hit=50000` sets the time for a page from the drive's buffer to 50,000 ns.

use super::published::{self, Experiment};
use super::{Options, asked, bytes, rules, sweep};
use foreread_lab::compare::{self, ComparePlan};
use foreread_os::failure::Failure;
use foreread_report::number::MB;
use foreread_report::progress::Progress;
use foreread_sim::device::alone_ns;
use foreread_sim::device::presets::{self, Model, Preset};
use foreread_sim::simulator::RunResult;
use std::collections::HashMap;

const MIB: f64 = 1_048_576.0;
/// "The margin of error with 99.7% confidence" is this many standard errors.
const SIGMAS: f64 = 3.0;

type Metric = fn(&RunResult) -> f64;

/// The metrics of a run, by name. A figure is the mean over the runs.
const METRICS: [(&str, Metric); 15] = [
    ("time_s", |run| run.time_s),
    ("mib_s", |run| {
        run.stats.demand_bytes as f64 / MIB / run.time_s
    }),
    ("mb_s", |run| {
        run.stats.demand_bytes as f64 / MB / run.time_s
    }),
    ("kib_s", |run| {
        run.stats.demand_bytes as f64 / 1024.0 / run.time_s
    }),
    ("reads_s", |run| run.stats.demand_reads as f64 / run.time_s),
    ("reads", |run| run.stats.demand_reads as f64),
    ("demand_mb", |run| run.stats.demand_bytes as f64 / MB),
    ("used_mb", |run| run.distinct_bytes as f64 / MB),
    ("source_kib", |run| run.stats.source_bytes as f64 / 1024.0),
    ("source_mb", |run| run.stats.source_bytes as f64 / MB),
    ("command_bytes", |run| {
        run.stats.source_bytes as f64 / run.stats.source_reads as f64
    }),
    ("ra_ops", |run| run.stats.ra_planned_ops as f64),
    ("ra_mb", |run| run.stats.ra_planned_bytes as f64 / MB),
    ("refused_mb", |run| run.stats.ra_refused_bytes as f64 / MB),
    ("starts", |run| {
        run.stats.ra_planned_ops as f64 / run.stats.demand_reads as f64
    }),
];

/// Executes the experiments of expressions, each experiment once.
pub(super) struct Experiments<'a> {
    options: &'a Options,
    progress: &'a mut dyn Progress,
    done: HashMap<String, Vec<RunResult>>,
}

impl<'a> Experiments<'a> {
    pub(super) fn new(options: &'a Options, progress: &'a mut dyn Progress) -> Experiments<'a> {
        Experiments {
            options,
            progress,
            done: HashMap::new(),
        }
    }

    /// The value of an expression. `None` if it is undefined.
    pub(super) fn value(&mut self, expression: &str) -> Result<Option<f64>, Failure> {
        let mut value = Some(1.0);
        for (operator, term) in terms(expression) {
            let right = self.term(&term)?;
            value = value.zip(right).map(|(left, right)| match operator {
                '/' => left / right,
                '-' => left - right,
                '+' => left + right,
                _ => left * right,
            });
        }
        Ok(value.filter(|value| value.is_finite()))
    }

    /// The difference between the two figures of a ratio.
    pub(super) fn apart(&mut self, ratio: &str) -> Result<Option<f64>, Failure> {
        self.value(&ratio.replacen(" / ", " - ", 1))
    }

    fn term(&mut self, words: &[&str]) -> Result<Option<f64>, Failure> {
        if let [number] = words
            && let Ok(number) = number.parse()
        {
            return Ok(Some(number));
        }
        if let ["idle_ms", size, device] = words {
            let mut device = self.device(device)?.build(0);
            return Ok(Some(alone_ns(&mut *device, bytes(size)?) as f64 / 1e6));
        }
        if let Some(value) = sweep::value(words, |name| self.device(name))? {
            return Ok(value);
        }
        if let Some(value) = rules::value(words)? {
            return Ok(Some(value));
        }
        let [metric, experiment, arguments @ ..] = words else {
            return Err(unknown(words));
        };
        let experiment =
            published::experiment(experiment, arguments).ok_or_else(|| unknown(words))?;
        let runs = self.runs(&experiment)?;
        if *metric == "margin_s" {
            return Ok(margin_s(runs));
        }
        let metric = METRICS.iter().find(|(name, _)| name == metric);
        let (_, metric) = metric.ok_or_else(|| unknown(words))?;
        Ok(mean(runs, metric))
    }

    /// The device with this name and its changes, or its replacement.
    fn device(&self, text: &str) -> Result<&'static Preset, Failure> {
        let (name, changes) = text.split_once('+').unwrap_or((text, ""));
        let preset = match self.options.instead.iter().find(|p| p.name == name) {
            Some(other) => other,
            None => presets::find(name).map_err(asked)?,
        };
        if changes.is_empty() {
            return Ok(preset);
        }
        let (key, value) = changes.split_once('=').unwrap_or((changes, "0"));
        let ns: u64 = value.parse().map_err(asked)?;
        let mut model = preset.model;
        match (key, &mut model) {
            ("command", Model::Disk(disk)) => disk.command_ns += ns,
            ("command", Model::Hdd(disk)) => disk.command_ns += ns,
            ("hit", Model::Hdd(disk)) => disk.buffer.hit_ns = ns,
            _ => return Err(unknown(&[text])),
        }
        Ok(Box::leak(Box::new(Preset { model, ..*preset })))
    }

    fn runs(&mut self, of: &Experiment) -> Result<&[RunResult], Failure> {
        let key = format!("{of:?}");
        if !self.done.contains_key(&key) {
            let runs = self.run(of)?;
            self.done.insert(key.clone(), runs);
        }
        Ok(&self.done[&key])
    }

    fn run(&mut self, of: &Experiment) -> Result<Vec<RunResult>, Failure> {
        let size = |text: &str| match text {
            "" => Ok(None),
            text => bytes(text).map(Some),
        };
        let plan = ComparePlan {
            workload: Some(of.workload.clone()),
            on: Some(compare::preset(self.device(&of.device)?)),
            policies: vec![foreread_history::parse(&of.policy).map_err(asked)?],
            alone: true,
            runs: Some(of.runs.min(self.options.max_runs.unwrap_or(of.runs)).max(1)),
            cache_bytes: size(&of.cache)?,
            size_bytes: size(&of.size)?,
            seed: 1,
            ..ComparePlan::default()
        };
        let tables = compare::run(&plan, self.progress)?;
        let rows = tables.into_iter().flat_map(|table| table.policies);
        let runs = rows.into_iter().next().map(|row| row.runs);
        runs.ok_or_else(|| asked(format!("there are no runs of {}", of.workload)))
    }
}

/// The terms of an expression, each with the operator before it.
fn terms(expression: &str) -> Vec<(char, Vec<&str>)> {
    let mut terms = vec![('*', Vec::new())];
    for word in expression.split_whitespace() {
        match word {
            "/" | "*" | "+" | "-" => terms.push((word.chars().next().unwrap_or('*'), Vec::new())),
            word => terms.last_mut().expect("there is one").1.push(word),
        }
    }
    terms
}

fn mean(runs: &[RunResult], metric: impl Fn(&RunResult) -> f64) -> Option<f64> {
    (!runs.is_empty()).then(|| runs.iter().map(metric).sum::<f64>() / runs.len() as f64)
}

/// The margin of error of the mean time: [`SIGMAS`] standard errors. `None` with fewer than two runs.
fn margin_s(runs: &[RunResult]) -> Option<f64> {
    let (n, mean) = (runs.len() as f64, mean(runs, |run| run.time_s)?);
    let squares: f64 = runs.iter().map(|run| (run.time_s - mean).powi(2)).sum();
    (runs.len() > 1).then(|| SIGMAS * (squares / (n - 1.0) / n).sqrt())
}

fn unknown(words: &[&str]) -> Failure {
    asked(format!("there is no experiment '{}'", words.join(" ")))
}
