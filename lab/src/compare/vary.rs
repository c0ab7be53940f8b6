//! `--vary KEY=V1,V2,...`: one comparison at each of several values of one parameter.
//!
//! KEY is a parameter of the workload, `memory` (`cache` is the same), or `policy.KEY` for a parameter of the policies: of each that has it.
//! Every value has its own pairs and its own tests, as a `compare` of it alone would. Never: runs anything before the
//! last value has been found fit, and never sets a parameter that is written elsewhere too.
//!
//! ```text
//!   "streams=1,2,4" + Plan ──parse──► Vary: a Plan for each value ──run──► Series: a Report for each
//! ```

use super::reads::{self, Reads};
use super::{Case, CompareError, ComparePlan, chosen, targets};
use crate::replay::{Mode, Replay};
use crate::report::Report;
use crate::report::series::{SCHEMA, Series, Value, VariedParameter};
use foreread_core::notation::Spec;
use foreread_core::policy::spec::decimal;
use foreread_core::policy::{Param, SpecError, Unit};
use foreread_core::units::parse_size;
use foreread_history::{parse, parse_workload};
use foreread_os::failure::{Failure, FailureKind};
use foreread_report::names;
use foreread_report::progress::Progress;
use foreread_sim::workload::WorkloadChoice;
use std::sync::Arc;

/// Most values: a table that is still read, and a line that still has points.
pub const MAX_VALUES: usize = 64;

/// Before the name of a parameter of policies.
const OF_POLICIES: &str = "policy.";
/// The size of the cache.
const MEMORY: &str = "memory";
/// The same, as it was called first.
const CACHE: &str = "cache";
/// The factor on the pauses of a trace.
const THINK: &str = "think";

/// A parameter, its values, and what is to be done for each.
#[derive(Clone, Debug)]
pub struct Vary {
    base: ComparePlan,
    varied: VariedParameter,
    /// A plan and its workload for each value.
    plans: Vec<(ComparePlan, Reads)>,
}

/// Why there can be no series: one line that says what, where and what to do.
#[derive(Debug, thiserror::Error)]
pub enum VaryError {
    /// What was asked for is not a series.
    #[error("{0}")]
    Usage(String),
    /// No such parameter. `known` are those that there are.
    #[error("there is no parameter '{key}' to vary")]
    Key { key: String, known: Vec<String> },
    /// A value that a policy refuses.
    #[error("{0}")]
    Policy(SpecError),
    /// A comparison that cannot be made.
    #[error("{0}")]
    Compare(#[from] CompareError),
}

impl From<VaryError> for Failure {
    fn from(error: VaryError) -> Failure {
        match error {
            VaryError::Key { key, known } => {
                let known: Vec<&str> = known.iter().map(String::as_str).collect();
                names::unknown(
                    "parameter in --vary",
                    &key,
                    &known,
                    "foreread list workloads",
                )
            }
            VaryError::Policy(error) => CompareError::Policy(error).into(),
            VaryError::Compare(error) => error.into(),
            error @ VaryError::Usage(_) => Failure::of(FailureKind::Input, error),
        }
    }
}

fn usage<T>(what: impl Into<String>) -> Result<T, VaryError> {
    Err(VaryError::Usage(what.into()))
}

impl Vary {
    /// Reads `KEY=V1,V2,...` for a plan of one workload and one source.
    ///
    /// # Errors
    /// See [`VaryError`].
    pub fn parse(text: &str, plan: &ComparePlan) -> Result<Vary, VaryError> {
        if plan.workload.is_none() && plan.replay.is_none() {
            return usage("no workload named: --vary; name the one to measure at each value");
        }
        if plan.on.is_none() {
            return usage("no source named: --vary; name one with --on");
        }
        if plan.disk_cache.is_some() {
            return usage(
                "a series has one run of each policy: --vary takes no --disk-cache; run compare for each value",
            );
        }
        let Some((key, list)) = text.split_once('=').map(|(key, list)| (key.trim(), list)) else {
            return usage(format!(
                "no values named: --vary '{text}'; write --vary KEY=VALUE,VALUE"
            ));
        };
        let texts: Vec<&str> = list.split(',').map(str::trim).collect();
        if texts.contains(&"") {
            return usage(format!(
                "an empty value: --vary '{text}'; write --vary KEY=VALUE,VALUE"
            ));
        }
        if texts.len() > MAX_VALUES {
            return usage(format!(
                "{} values are too many: --vary {key}; at most {MAX_VALUES}",
                texts.len()
            ));
        }
        if plan
            .replay
            .as_ref()
            .is_some_and(|replay| replay.mode == Mode::Open)
        {
            return usage(
                "a series shows times, and mode open keeps those of the trace: --vary; use another mode",
            );
        }
        let asked = VaryRequest {
            plan,
            workload: reads::all(plan)?.swap_remove(0),
            key,
            texts,
        };
        let (varied, plans) = if [MEMORY, CACHE].contains(&key) {
            asked.of_cache()?
        } else if let Some(key) = key.strip_prefix(OF_POLICIES) {
            asked.of_policies(key)?
        } else {
            match &asked.workload {
                Reads::Named(chosen) => asked.of_workload(chosen)?,
                Reads::Trace(replay) if asked.key == THINK => asked.of_think(replay)?,
                Reads::Trace(_) => return asked.unknown(),
            }
        };
        let labels: Vec<String> = varied.values.iter().map(|v| varied.label(v)).collect();
        if let Some((_, label)) = labels
            .iter()
            .enumerate()
            .find(|(i, label)| labels[..*i].contains(label))
        {
            return usage(format!(
                "a value named twice: {key}={label} in --vary; leave one out"
            ));
        }
        Ok(Vary {
            base: plan.clone(),
            varied,
            plans,
        })
    }
}

/// A series, as far as it was measured.
#[derive(Debug)]
pub struct MeasuredSeries {
    pub series: Series,
    /// The values that are not in it, as the plan was stopped: "cache=1M on model:rbd".
    pub missing: Vec<String>,
}

/// Measures every value. A value during which the plan is stopped, and those behind it, are missing.
///
/// # Errors
/// See [`VaryError`]; nothing is measured when one of the values cannot be.
pub fn run(vary: &Vary, progress: &mut dyn Progress) -> Result<MeasuredSeries, VaryError> {
    for (plan, _) in &vary.plans {
        super::possible(plan)?;
    }
    let targets = targets::all(&vary.base, true, progress)?;
    let mut cases = Vec::new();
    for ((plan, workload), value) in vary.plans.iter().zip(&vary.varied.values) {
        let at = format!("{}={}", vary.varied.key, vary.varied.label(value));
        let case = Case::new(plan, &*targets[0], workload, &[], Vec::new())
            .map_err(|error| naming(error, &at))?;
        cases.push((case, at));
    }
    let total = cases.len();
    let (mut reports, mut missing) = (Vec::new(), Vec::new());
    for (n, (case, at)) in cases.into_iter().enumerate() {
        let at = format!("{at} on {}", targets[0].describe().name);
        if !vary.base.is_stopped() {
            let name = format!("{at}, {} of {total}", n + 1);
            let tables = case.run(&mut NamedProgress { progress, name })?;
            if !vary.base.is_stopped() {
                reports.push(Report::of(&tables[0]));
                continue;
            }
        }
        missing.push(at);
    }
    let series = vary.series(reports);
    Ok(MeasuredSeries { series, missing })
}

impl Vary {
    /// As it was asked for.
    fn workload_text(&self) -> String {
        let of_trace = self
            .base
            .replay
            .as_ref()
            .map(|replay| replay.workload.name.clone());
        of_trace
            .or_else(|| self.base.workload.clone())
            .unwrap_or_default()
    }

    fn series(&self, reports: Vec<Report>) -> Series {
        // A row bears the value in its name where a parameter of its policy varies; the series bears it once.
        let (with, without) = (
            self.plans.first().map_or_else(Vec::new, |(p, _)| chosen(p)),
            chosen(&self.base),
        );
        let base_name = |row: &str| {
            let found = with
                .iter()
                .zip(&without)
                .find(|(with, _)| with.to_string() == row);
            found.map_or_else(|| row.to_string(), |(_, without)| without.to_string())
        };
        let rows = reports.first().map_or(&[][..], |r| &r.rows);
        let mut varied = self.varied.clone();
        varied.values.truncate(reports.len());
        Series {
            schema: SCHEMA.to_string(),
            workload: self.workload_text(),
            policies: rows.iter().map(|r| base_name(&r.policy)).collect(),
            vary: varied,
            reports,
        }
    }
}

/// What was asked for, before it is known to fit.
struct VaryRequest<'a> {
    plan: &'a ComparePlan,
    workload: Reads,
    key: &'a str,
    texts: Vec<&'a str>,
}

type VariedPlans = (VariedParameter, Vec<(ComparePlan, Reads)>);

impl VaryRequest<'_> {
    fn of_workload(&self, chosen: &WorkloadChoice) -> Result<VariedPlans, VaryError> {
        let Some((i, param)) = find(chosen.info.params, self.key) else {
            return self.unknown();
        };
        let text = chosen.to_string();
        self.open(&text)?;
        let mut plans = Vec::new();
        let mut values = Vec::new();
        for value in &self.texts {
            let text = set(&text, self.key, value);
            let workload = parse_workload(&text).map_err(CompareError::Workload)?;
            values.push(value_of(param, workload.values[i]));
            plans.push((
                ComparePlan {
                    workload: Some(text),
                    ..self.plan.clone()
                },
                Reads::Named(workload),
            ));
        }
        Ok((self.varied(param.help, param.unit, values), plans))
    }

    fn of_think(&self, replay: &Replay) -> Result<VariedPlans, VaryError> {
        let mut plans = Vec::new();
        let mut values = Vec::new();
        for text in &self.texts {
            let Ok(think) = text.parse::<f64>() else {
                return usage(format!(
                    "not a factor: think={text} in --vary; write one such as 0.5"
                ));
            };
            let varied = Replay::of(&replay.loaded, Some(replay.mode), Some(think));
            let varied = Arc::new(varied.map_err(|error| VaryError::Usage(error.to_string()))?);
            values.push(Value::Word(think.to_string()));
            plans.push((
                ComparePlan {
                    replay: Some(varied.clone()),
                    ..self.plan.clone()
                },
                Reads::Trace(varied),
            ));
        }
        Ok((
            self.varied("factor on recorded pauses", Unit::Count, values),
            plans,
        ))
    }

    fn of_cache(&self) -> Result<VariedPlans, VaryError> {
        if self.plan.cache_bytes.is_some() {
            return usage("memory is set twice: --memory and --vary memory; leave --memory out");
        }
        if self.plan.event_logs.is_some() {
            return usage(
                "one log would replace another: --event-log with --vary memory; measure one size at a time",
            );
        }
        let mut plans = Vec::new();
        let mut values = Vec::new();
        for text in &self.texts {
            let Some(bytes) = parse_size(text).ok().filter(|bytes| *bytes > 0) else {
                return usage(format!(
                    "not a size: {}={text} in --vary; write one such as 64M",
                    self.key
                ));
            };
            values.push(Value::Number(bytes));
            plans.push((
                ComparePlan {
                    cache_bytes: Some(bytes),
                    ..self.plan.clone()
                },
                self.workload.clone(),
            ));
        }
        Ok((self.varied("size of the cache", Unit::Bytes, values), plans))
    }

    fn of_policies(&self, key: &str) -> Result<VariedPlans, VaryError> {
        let policies = chosen(self.plan);
        let Some((_, param)) = policies.iter().find_map(|p| find(p.info.params, key)) else {
            return self.unknown();
        };
        for policy in policies
            .iter()
            .filter(|p| find(p.info.params, key).is_some())
        {
            self.open(&policy.to_string())?;
        }
        let mut plans = Vec::new();
        let mut values = Vec::new();
        for value in &self.texts {
            let mut shown = None;
            let mut varied = Vec::new();
            for policy in &policies {
                let Some((i, _)) = find(policy.info.params, key) else {
                    varied.push(policy.clone());
                    continue;
                };
                let draft =
                    parse(&set(&policy.to_string(), key, value)).map_err(VaryError::Policy)?;
                // One that goes by the capacity has no number before the storage is known.
                let ready = draft.clone().ready(None);
                shown = shown.or(Some(ready.map_or(Value::Word(value.to_string()), |p| {
                    value_of(param, p.values[i])
                })));
                varied.push(draft);
            }
            values.extend(shown);
            plans.push((
                ComparePlan {
                    policies: varied,
                    ..self.plan.clone()
                },
                self.workload.clone(),
            ));
        }
        Ok((self.varied(param.help, param.unit, values), plans))
    }

    /// Refuses a parameter that `text` sets already: it cannot be told which of the two is meant.
    fn open(&self, text: &str) -> Result<(), VaryError> {
        let key = self.key.strip_prefix(OF_POLICIES).unwrap_or(self.key);
        let written = Spec::parse(text).is_ok_and(|spec| spec.pairs.iter().any(|(k, _)| k == key));
        if !written {
            return Ok(());
        }
        usage(format!(
            "{key} is set twice: in '{text}' and in --vary {}; leave it out of the first",
            self.key
        ))
    }

    fn unknown<T>(&self) -> Result<T, VaryError> {
        let mut known: Vec<String> = match &self.workload {
            Reads::Named(chosen) => chosen
                .info
                .params
                .iter()
                .map(|p| p.key.to_string())
                .collect(),
            Reads::Trace(_) => vec![THINK.to_string()],
        };
        known.push(MEMORY.to_string());
        for param in chosen(self.plan).iter().flat_map(|p| p.info.params) {
            let key = format!("{OF_POLICIES}{}", param.key);
            if !known.contains(&key) {
                known.push(key);
            }
        }
        Err(VaryError::Key {
            key: self.key.to_string(),
            known,
        })
    }

    fn varied(&self, about: &str, unit: Unit, values: Vec<Value>) -> VariedParameter {
        let bytes = matches!(unit, Unit::Bytes | Unit::Capped);
        VariedParameter {
            key: self.key.to_string(),
            about: about.to_string(),
            bytes,
            values,
        }
    }
}

fn find<'a>(params: &'a [Param], key: &str) -> Option<(usize, &'a Param)> {
    params.iter().enumerate().find(|(_, p)| p.key == key)
}

fn value_of(param: &Param, value: u64) -> Value {
    match param.unit {
        Unit::Word(words) => Value::Word(words[value as usize].to_string()),
        Unit::Ratio => Value::Word(decimal(value)),
        Unit::Bytes | Unit::Capped | Unit::Count => Value::Number(value),
    }
}

/// `NAME` or `NAME:key=value` with one more pair.
fn set(text: &str, key: &str, value: &str) -> String {
    let joint = if text.contains(':') { ',' } else { ':' };
    format!("{text}{joint}{key}={value}")
}

/// The error of a workload, with the value at which it came up where that is not in it.
fn naming(error: CompareError, at: &str) -> CompareError {
    match error {
        CompareError::Workload(SpecError::Value {
            name,
            key,
            value,
            why,
        }) if !at.starts_with(&format!("{key}=")) => CompareError::Workload(SpecError::Value {
            name,
            key,
            value,
            why: format!("{why}, with {at}"),
        }),
        error => error,
    }
}

/// Progress that says which value it is.
struct NamedProgress<'a> {
    progress: &'a mut dyn Progress,
    name: String,
}

impl Progress for NamedProgress<'_> {
    fn stage(&mut self, _text: &str) {
        self.progress.stage(&self.name);
    }

    fn step(&mut self, done: u64, total: u64) {
        self.progress.step(done, total);
    }
}
