//! `--vary KEY=V1,V2,...`: the plans of a comparison or a sweep for several values of one parameter.
//!
//! KEY is a parameter of the workload, `memory` (or its other name `cache`), `think` of a trace, or `policy.KEY` for a parameter of each
//! policy that has it. A parameter that is also set by another option is refused. All values are checked before anything is measured.
//!
//! ```text
//!   streams=1,2,4      ──► a plan for each value: a table each
//!   policy.max=1M,4M   ──► one plan, with each policy at each value: rows of one table
//! ```

use super::{CompareError, ComparePlan, chosen};
use crate::replay::Replay;
use foreread_core::notation::Spec;
use foreread_core::policy::{Param, PolicyDraft};
use foreread_core::units::parse_size;
use foreread_history::{parse, parse_workload};
use foreread_os::failure::Failure;
use foreread_report::names;
use std::fmt::Display;
use std::sync::Arc;

/// Maximum number of values of a varied parameter.
pub const MAX_VALUES: usize = 64;

/// Prefix of the parameters of policies.
const OF_POLICIES: &str = "policy.";
/// The two names of the parameter for the cache size.
const MEMORY: [&str; 2] = ["memory", "cache"];
/// The factor on the pauses of a trace.
const THINK: &str = "think";

const WRITE: &str = "write --vary KEY=VALUE,VALUE";

/// The varied parameter, and its values as text.
#[derive(Clone, Debug)]
pub struct Axis {
    key: String,
    texts: Vec<String>,
}

fn refused<T>(what: &str, place: impl Display, remedy: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::input(what, place, remedy))
}

impl Axis {
    /// Reads `KEY=V1,V2,...`.
    /// Returns an error if the list has no values, too many values, an empty value, or a value twice.
    pub fn parse(text: &str) -> Result<Axis, Failure> {
        let Some((key, list)) = text.split_once('=') else {
            return refused("no values given", format!("--vary '{text}'"), WRITE);
        };
        let key = key.trim().to_string();
        let texts: Vec<String> = list.split(',').map(|v| v.trim().to_string()).collect();
        if texts.iter().any(String::is_empty) {
            return refused("an empty value", format!("--vary '{text}'"), WRITE);
        }
        if texts.len() > MAX_VALUES {
            let what = format!("{} values are too many", texts.len());
            let most = format!("at most {MAX_VALUES}");
            return refused(&what, format!("--vary {key}"), most);
        }
        let is_before = |(n, text): &(usize, &String)| {
            texts[..*n].iter().any(|before| is_same_value(before, text))
        };
        if let Some((_, value)) = texts.iter().enumerate().find(is_before) {
            let place = format!("{key}={value} in --vary");
            return refused("a value given twice", place, "leave one out");
        }
        Ok(Axis { key, texts })
    }

    /// The plans of the values. If `base` has neither a workload nor a trace, only the memory and the parameters of policies can vary.
    /// Returns an error for an unknown parameter, one that is set twice, and a value that it cannot have.
    pub fn plans(&self, base: &ComparePlan) -> Result<Vec<ComparePlan>, Failure> {
        if MEMORY.contains(&self.key.as_str()) {
            return self.of_memory(base);
        }
        if let Some(key) = self.key.strip_prefix(OF_POLICIES) {
            return self.of_policies(base, key);
        }
        match (&base.replay, &base.workload) {
            (Some(replay), _) if self.key == THINK => self.of_think(base, replay),
            (None, Some(workload)) => self.of_workload(base, workload),
            _ => self.unknown(base),
        }
    }

    /// A plan for each value.
    fn each(
        &self,
        base: &ComparePlan,
        set: impl Fn(&str, &mut ComparePlan) -> Result<(), Failure>,
    ) -> Result<Vec<ComparePlan>, Failure> {
        let one = |text: &String| {
            let mut plan = base.clone();
            set(text, &mut plan)?;
            Ok(plan)
        };
        self.texts.iter().map(one).collect()
    }

    fn of_workload(&self, base: &ComparePlan, text: &str) -> Result<Vec<ComparePlan>, Failure> {
        let chosen = parse_workload(text).map_err(CompareError::workload)?;
        if !has(chosen.info.params, &self.key) {
            return self.unknown(base);
        }
        self.unset(&self.key, text)?;
        self.each(base, |value, plan| {
            let text = set(text, &self.key, value);
            parse_workload(&text).map_err(CompareError::workload)?;
            plan.workload = Some(text);
            Ok(())
        })
    }

    fn of_think(&self, base: &ComparePlan, replay: &Replay) -> Result<Vec<ComparePlan>, Failure> {
        self.each(base, |text, plan| {
            let Ok(think) = text.parse::<f64>() else {
                let place = format!("think={text} in --vary");
                return refused("not a factor", place, "write a factor such as 0.5");
            };
            let varied = Replay::of(&replay.loaded, Some(replay.mode), Some(think))?;
            plan.replay = Some(Arc::new(varied));
            plan.varied = format!(" with think={think}");
            Ok(())
        })
    }

    fn of_memory(&self, base: &ComparePlan) -> Result<Vec<ComparePlan>, Failure> {
        if base.cache_bytes.is_some() {
            let place = "--memory and --vary memory";
            return refused("memory is set twice", place, "leave --memory out");
        }
        self.each(base, |text, plan| {
            plan.cache_bytes = parse_size(text).ok().filter(|bytes| *bytes > 0);
            if plan.cache_bytes.is_none() {
                let place = format!("{}={text} in --vary", self.key);
                return refused("not a size", place, "write a size such as 64M");
            }
            plan.varied = format!(" with memory={text}");
            Ok(())
        })
    }

    /// One plan: in place of each policy that has the parameter, that policy at each value.
    fn of_policies(&self, base: &ComparePlan, key: &str) -> Result<Vec<ComparePlan>, Failure> {
        let mut policies: Vec<PolicyDraft> = Vec::new();
        let mut is_known = false;
        for policy in chosen(base) {
            if !has(policy.info.params, key) {
                policies.push(policy);
                continue;
            }
            is_known = true;
            let text = policy.to_string();
            self.unset(key, &text)?;
            for value in &self.texts {
                policies.push(parse(&set(&text, key, value)).map_err(CompareError::policy)?);
            }
        }
        if !is_known {
            return self.unknown(base);
        }
        Ok(vec![ComparePlan {
            policies,
            ..base.clone()
        }])
    }

    /// Refuses a parameter that is already set in `text`.
    fn unset(&self, key: &str, text: &str) -> Result<(), Failure> {
        let is_set = |spec: Spec| spec.pairs.iter().any(|(k, _)| k == key);
        if !Spec::parse(text).is_ok_and(is_set) {
            return Ok(());
        }
        refused(
            &format!("{key} is set twice"),
            format!("in '{text}' and in --vary {}", self.key),
            format!("remove it from '{text}'"),
        )
    }

    fn unknown<T>(&self, base: &ComparePlan) -> Result<T, Failure> {
        let mut known = Vec::new();
        match (&base.replay, &base.workload) {
            (Some(_), _) => known.push(THINK.to_string()),
            (None, Some(workload)) => {
                let chosen = parse_workload(workload).map_err(CompareError::workload)?;
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
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        let list = match self.key.starts_with(OF_POLICIES) {
            true => "foreread list policies",
            false => "foreread list workloads",
        };
        Err(names::unknown(
            "parameter in --vary",
            &self.key,
            &known,
            list,
        ))
    }
}

/// Whether two texts are the same value: 1024 and 1K, 0.5 and 0.50.
fn is_same_value(one: &str, other: &str) -> bool {
    let number = |text: &str| text.parse::<f64>().ok();
    match [one, other].map(|text| parse_size(text).ok()) {
        [Some(one), Some(other)] => one == other,
        _ => one == other || number(one).is_some_and(|one| number(other) == Some(one)),
    }
}

fn has(params: &[Param], key: &str) -> bool {
    params.iter().any(|param| param.key == key)
}

/// `NAME` or `NAME:key=value`, with one more pair.
fn set(text: &str, key: &str, value: &str) -> String {
    let joint = if text.contains(':') { ',' } else { ':' };
    format!("{text}{joint}{key}={value}")
}
