//! `--vary KEY=V1,V2,...`: measures with each of these values of a parameter. For each value of the parameter, `compare` makes a report,
//! and `sweep` makes one measurement with each policy.
//!
//! KEY is a parameter of the workload, `memory` (or its other name `cache`), `think` of a trace, or `policy.KEY` for a parameter of each
//! policy that has it. A parameter that is also set by another option is refused. All values are checked before anything is measured.
//!
//! ```text
//!   "streams=1,2,4" ──parse──► Axis ──plans──► a ComparePlan for each value ──run──► Series: a Report for each
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
use std::sync::Arc;

/// Maximum number of values of a varied parameter.
pub const MAX_VALUES: usize = 64;

/// Prefix of the parameters of policies.
const OF_POLICIES: &str = "policy.";
/// The two names of the parameter for the cache size.
const MEMORY: [&str; 2] = ["memory", "cache"];
/// The factor on the pauses of a trace.
const THINK: &str = "think";

/// The varied parameter, and its values as text.
#[derive(Clone, Debug)]
pub struct Axis {
    key: String,
    texts: Vec<String>,
}

/// A comparison plan for each value of the varied parameter.
pub type VariedPlans = (VariedParameter, Vec<ComparePlan>);
/// The varied parameter, its unit, and each value with its plan.
type Varied = (&'static str, Unit, Vec<(Value, ComparePlan)>);

/// The error for a `--vary` that cannot be parsed or measured.
#[derive(Debug, thiserror::Error)]
pub enum VaryError {
    #[error("{0}")]
    Usage(String),
    /// An unknown parameter; `known` has the known ones.
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
                let list = "foreread list workloads";
                names::unknown("parameter in --vary", &key, &known, list)
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

impl Axis {
    /// Reads `KEY=V1,V2,...`.
    ///
    /// # Errors
    /// Returns an error if the list has no values, too many values, or an empty value.
    pub fn parse(text: &str) -> Result<Axis, VaryError> {
        let Some((key, list)) = text.split_once('=') else {
            return usage(format!(
                "no values given: --vary '{text}'; write --vary KEY=VALUE,VALUE"
            ));
        };
        let key = key.trim().to_string();
        let texts: Vec<String> = list.split(',').map(|v| v.trim().to_string()).collect();
        if texts.iter().any(String::is_empty) {
            return usage(format!(
                "an empty value: --vary '{text}'; write --vary KEY=VALUE,VALUE"
            ));
        }
        if texts.len() > MAX_VALUES {
            let number = texts.len();
            return usage(format!(
                "{number} values are too many: --vary {key}; at most {MAX_VALUES}"
            ));
        }
        Ok(Axis { key, texts })
    }

    /// Makes a plan for each value. If `base` has neither a workload nor a trace, only the memory and the parameters of
    /// policies can vary.
    ///
    /// # Errors
    /// See [`VaryError`].
    pub fn plans(&self, base: &ComparePlan) -> Result<VariedPlans, VaryError> {
        let of_policies = self.key.strip_prefix(OF_POLICIES);
        let (about, unit, varied) = if MEMORY.contains(&self.key.as_str()) {
            self.of_memory(base)?
        } else if let Some(key) = of_policies {
            self.of_policies(base, key)?
        } else {
            match (&base.replay, &base.workload) {
                (Some(replay), _) if self.key == THINK => self.of_think(base, replay)?,
                (None, Some(workload)) => self.of_workload(base, workload)?,
                _ => return self.unknown(base),
            }
        };
        let (values, plans) = varied.into_iter().unzip();
        let varied = VariedParameter {
            key: self.key.clone(),
            about: about.to_string(),
            bytes: matches!(unit, Unit::Bytes | Unit::Capped),
            values,
        };
        let labels: Vec<String> = varied.values.iter().map(|v| varied.label(v)).collect();
        let mut twice = labels.iter().enumerate();
        if let Some((_, label)) = twice.find(|(i, label)| labels[..*i].contains(label)) {
            let key = &self.key;
            return usage(format!(
                "a value given twice: {key}={label} in --vary; leave one out"
            ));
        }
        Ok((varied, plans))
    }

    /// The value and the plan for each text.
    fn each(
        &self,
        base: &ComparePlan,
        of: impl Fn(&str, &mut ComparePlan) -> Result<Value, VaryError>,
    ) -> Result<Vec<(Value, ComparePlan)>, VaryError> {
        let one = |text: &String| {
            let mut plan = base.clone();
            Ok((of(text, &mut plan)?, plan))
        };
        self.texts.iter().map(one).collect()
    }

    fn of_workload(&self, base: &ComparePlan, text: &str) -> Result<Varied, VaryError> {
        let chosen = parse_workload(text).map_err(CompareError::Workload)?;
        let Some((i, param)) = find(chosen.info.params, &self.key) else {
            return self.unknown(base);
        };
        self.unset(&self.key, text)?;
        let varied = self.each(base, |value, plan| {
            let text = set(text, &self.key, value);
            let workload = parse_workload(&text).map_err(CompareError::Workload)?;
            plan.workload = Some(text);
            Ok(value_of(param, workload.values[i]))
        })?;
        Ok((param.help, param.unit, varied))
    }

    fn of_think(&self, base: &ComparePlan, replay: &Replay) -> Result<Varied, VaryError> {
        let varied = self.each(base, |text, plan| {
            let Ok(think) = text.parse::<f64>() else {
                return usage(format!(
                    "not a factor: think={text} in --vary; write a factor such as 0.5"
                ));
            };
            let varied = Replay::of(&replay.loaded, Some(replay.mode), Some(think));
            let varied = varied.map_err(|error| VaryError::Usage(error.to_string()))?;
            plan.replay = Some(Arc::new(varied));
            Ok(Value::Word(think.to_string()))
        })?;
        Ok(("factor on recorded pauses", Unit::Count, varied))
    }

    fn of_memory(&self, base: &ComparePlan) -> Result<Varied, VaryError> {
        if base.cache_bytes.is_some() {
            return usage("memory is set twice: --memory and --vary memory; leave --memory out");
        }
        if base.event_logs.is_some() {
            return usage(
                "one log would replace another: --event-log with --vary memory; measure one size at a time",
            );
        }
        let varied = self.each(base, |text, plan| {
            plan.cache_bytes = parse_size(text).ok().filter(|bytes| *bytes > 0);
            plan.cache_bytes.map(Value::Number).ok_or_else(|| {
                let key = &self.key;
                VaryError::Usage(format!(
                    "not a size: {key}={text} in --vary; write a size such as 64M"
                ))
            })
        })?;
        Ok(("size of the cache", Unit::Bytes, varied))
    }

    fn of_policies(&self, base: &ComparePlan, key: &str) -> Result<Varied, VaryError> {
        let policies = chosen(base);
        let Some((_, param)) = policies.iter().find_map(|p| find(p.info.params, key)) else {
            return self.unknown(base);
        };
        for policy in &policies {
            if find(policy.info.params, key).is_some() {
                self.unset(key, &policy.to_string())?;
            }
        }
        let varied = self.each(base, |value, plan| {
            let mut shown = None;
            plan.policies.clone_from(&policies);
            for policy in &mut plan.policies {
                let Some((i, _)) = find(policy.info.params, key) else {
                    continue;
                };
                let text = set(&policy.to_string(), key, value);
                *policy = parse(&text).map_err(VaryError::Policy)?;
                // A value that depends on the capacity is unknown until the storage is known.
                let ready = policy.clone().ready(None).ok();
                let number = ready.map(|ready| value_of(param, ready.values[i]));
                shown = shown.or(number);
            }
            Ok(shown.unwrap_or_else(|| Value::Word(value.to_string())))
        })?;
        Ok((param.help, param.unit, varied))
    }

    /// Refuses a parameter that is already set in `text`.
    fn unset(&self, key: &str, text: &str) -> Result<(), VaryError> {
        let is_set = |spec: Spec| spec.pairs.iter().any(|(k, _)| k == key);
        if !Spec::parse(text).is_ok_and(is_set) {
            return Ok(());
        }
        let full = &self.key;
        usage(format!(
            "{key} is set twice: in '{text}' and in --vary {full}; remove it from '{text}'"
        ))
    }

    fn unknown<T>(&self, base: &ComparePlan) -> Result<T, VaryError> {
        let mut known = Vec::new();
        match (&base.replay, &base.workload) {
            (Some(_), _) => known.push(THINK.to_string()),
            (None, Some(workload)) => {
                let chosen = parse_workload(workload).map_err(CompareError::Workload)?;
                known.extend(chosen.info.params.iter().map(|p| p.key.to_string()));
            }
            (None, None) => {}
        }
        known.push(MEMORY[0].to_string());
        for param in chosen(base).iter().flat_map(|p| p.info.params) {
            let key = format!("{OF_POLICIES}{}", param.key);
            if !known.contains(&key) {
                known.push(key);
            }
        }
        let key = self.key.clone();
        Err(VaryError::Key { key, known })
    }
}

/// A comparison of one workload on one source, for each value of a parameter.
#[derive(Clone, Debug)]
pub struct Vary {
    base: ComparePlan,
    varied: VariedParameter,
    plans: Vec<(ComparePlan, Reads)>,
}

impl Vary {
    /// Parses `KEY=V1,V2,...` for a plan of one workload and one source.
    ///
    /// # Errors
    /// See [`VaryError`].
    pub fn parse(text: &str, plan: &ComparePlan) -> Result<Vary, VaryError> {
        if plan.workload.is_none() && plan.replay.is_none() {
            return usage("no workload given: --vary; name the workload to measure at each value");
        }
        if plan.on.is_none() {
            return usage("no source given: --vary; name a source with --on");
        }
        let replay = plan.replay.as_ref();
        if replay.is_some_and(|replay| replay.mode == Mode::Open) {
            return usage(
                "times cannot be compared in mode open, which keeps the times of the trace: --vary; use another mode",
            );
        }
        let (varied, plans) = Axis::parse(text)?.plans(plan)?;
        let with_reads = |plan: ComparePlan| Ok((plan.clone(), reads::all(&plan)?.swap_remove(0)));
        let plans: Result<Vec<_>, CompareError> = plans.into_iter().map(with_reads).collect();
        Ok(Vary {
            base: plan.clone(),
            varied,
            plans: plans?,
        })
    }
}

/// A series of comparisons, one for each value; incomplete if the measurement was stopped.
#[derive(Debug)]
pub struct MeasuredSeries {
    pub series: Series,
    /// The values that are missing because the plan was stopped: "cache=1M on model:rbd".
    pub missing: Vec<String>,
}

/// Measures with every value of the varied parameter. If the plan is stopped, the value that was being measured and all later values are
/// missing from the series.
///
/// # Errors
/// Returns a [`VaryError`]; nothing is measured if one of the values cannot be measured.
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
            let table = case.run(&mut NamedProgress { progress, name })?;
            if !vary.base.is_stopped() {
                reports.push(Report::of(&table));
                continue;
            }
        }
        missing.push(at);
    }
    let series = vary.series(reports);
    Ok(MeasuredSeries { series, missing })
}

impl Vary {
    /// The workload, as the user gave it.
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
        // If a parameter of a row's policy varies, the row's name contains the value; the series names it once.
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

/// `NAME` or `NAME:key=value`, with one more pair.
fn set(text: &str, key: &str, value: &str) -> String {
    let joint = if text.contains(':') { ',' } else { ':' };
    format!("{text}{joint}{key}={value}")
}

/// The error of a workload; the value at which it occurred is added if the error does not name it.
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

/// Progress that includes the value being measured.
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
