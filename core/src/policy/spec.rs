//! Reading and writing `NAME:key=value,...`: the notation of policies, and of workloads and models beside them.
//!
//! [`Spec`] is the notation alone; [`PolicySpec`] is a policy with every value checked. Never: guesses. An
//! unknown name or key is an error that carries what was meant, for the caller to suggest the nearest.

use super::{ALL, Info, Param, Policy, Unit};
use crate::units::{SizeError, parse_size};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

/// A name and its keys, nothing checked but the notation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// What stands before the colon.
    pub name: String,
    /// Keys and values in the order written.
    pub pairs: Vec<(String, String)>,
}

impl Spec {
    /// Reads the notation.
    ///
    /// # Errors
    /// [`SpecError::Syntax`] where a part after the colon is not `key=value`, or a key stands twice.
    pub fn parse(text: &str) -> Result<Spec, SpecError> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let mut pairs: Vec<(String, String)> = Vec::new();
        for part in rest.split(',').filter(|p| !p.is_empty()) {
            let Some((key, value)) = part.split_once('=') else {
                return Err(SpecError::Syntax { text: text.to_string(), part: part.to_string() });
            };
            if pairs.iter().any(|(k, _)| k == key) {
                return Err(SpecError::Syntax { text: text.to_string(), part: part.to_string() });
            }
            pairs.push((key.trim().to_string(), value.trim().to_string()));
        }
        Ok(Spec { name: name.trim().to_string(), pairs })
    }

    /// The values of `params` in their order: what was written, or the default.
    ///
    /// # Errors
    /// An unknown key, or a value that does not fit its parameter.
    pub fn values(&self, params: &[Param]) -> Result<Vec<u64>, SpecError> {
        if let Some((key, _)) = self.pairs.iter().find(|(k, _)| params.iter().all(|p| p.key != k)) {
            let known = params.iter().map(|p| p.key).collect();
            return Err(SpecError::UnknownKey { name: self.name.clone(), key: key.clone(), known });
        }
        params.iter().map(|param| self.value(param)).collect()
    }

    fn value(&self, param: &Param) -> Result<u64, SpecError> {
        let written = self.pairs.iter().find(|(k, _)| k == param.key);
        let text = written.map_or(param.default, |(_, v)| v.as_str());
        read_value(param, text).map_err(|why| SpecError::Value {
            name: self.name.clone(),
            key: param.key.to_string(),
            value: text.to_string(),
            why,
        })
    }
}

/// Reads one value. Words become their index.
fn read_value(param: &Param, text: &str) -> Result<u64, String> {
    let number = match param.unit {
        Unit::Bytes => parse_size(text).map_err(|e| match e {
            SizeError::NotASize => "is not a size such as 128K".to_string(),
            SizeError::TooLarge => "is too large".to_string(),
        })?,
        Unit::Count => text.parse::<u64>().map_err(|_| "is not a whole number".to_string())?,
        Unit::Word(words) => {
            let found = words.iter().position(|w| *w == text);
            return found.map(|i| i as u64).ok_or_else(|| format!("is not one of {}", words.join(", ")));
        }
    };
    let (low, high) = param.range;
    if (low..=high).contains(&number) { Ok(number) } else { Err(format!("is not between {low} and {high}")) }
}

/// A policy and the values of all its parameters.
#[derive(Clone)]
pub struct PolicySpec {
    /// Which policy.
    pub info: &'static Info,
    /// The values of `info.params`, in their order.
    pub values: Vec<u64>,
    text: String,
}

impl PolicySpec {
    /// Reads `NAME:key=value,...`.
    ///
    /// # Errors
    /// Bad notation, a name or key that does not exist, a value that does not fit.
    pub fn parse(text: &str) -> Result<PolicySpec, SpecError> {
        let spec = Spec::parse(text)?;
        let Some(info) = ALL.iter().find(|i| i.name == spec.name) else {
            return Err(SpecError::UnknownName { name: spec.name, known: ALL.iter().map(|i| i.name).collect() });
        };
        Ok(PolicySpec { info, values: spec.values(info.params)?, text: text.to_string() })
    }

    /// A policy with its defaults: one from the list, or one of the caller's own.
    #[must_use]
    pub fn of(info: &'static Info) -> PolicySpec {
        let value = |param: &Param| read_value(param, param.default).unwrap_or(param.range.0);
        PolicySpec { info, values: info.params.iter().map(value).collect(), text: info.name.to_string() }
    }

    /// No readahead.
    #[must_use]
    pub fn none() -> PolicySpec {
        PolicySpec::of(&super::none::INFO)
    }

    /// The same policy with `key` set to `value` where the text left it open and the policy has such a key.
    #[must_use]
    pub fn with_default(mut self, key: &str, value: u64) -> PolicySpec {
        let open = Spec::parse(&self.text).is_ok_and(|s| s.pairs.iter().all(|(k, _)| k != key));
        if let (true, Some(i)) = (open, self.info.params.iter().position(|p| p.key == key)) {
            let (low, high) = self.info.params[i].range;
            self.values[i] = value.clamp(low, high);
        }
        self
    }

    /// Name and every value, in plain numbers and words: reads back as the same policy wherever it is read.
    #[must_use]
    pub fn canonical(&self) -> String {
        let value = |(param, &value): (&Param, &u64)| match param.unit {
            Unit::Word(words) => format!("{}={}", param.key, words[value as usize]),
            Unit::Bytes | Unit::Count => format!("{}={value}", param.key),
        };
        let pairs: Vec<String> = self.info.params.iter().zip(&self.values).map(value).collect();
        if pairs.is_empty() { self.info.name.to_string() } else { format!("{}:{}", self.info.name, pairs.join(",")) }
    }

    /// The state of one fresh owner.
    #[must_use]
    pub fn build(&self) -> Box<dyn Policy> {
        (self.info.build)(&self.values)
    }
}

/// As it was written.
impl fmt::Display for PolicySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for PolicySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.text, self.values)
    }
}

/// Why a `NAME:key=value,...` was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each variant's comment names its fields")]
pub enum SpecError {
    /// A part is not `key=value`, or its key stands twice.
    Syntax { text: String, part: String },
    /// No such name.
    UnknownName { name: String, known: Vec<&'static str> },
    /// The name has no such key.
    UnknownKey { name: String, key: String, known: Vec<&'static str> },
    /// The value does not fit.
    Value { name: String, key: String, value: String, why: String },
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpecError::Syntax { text, part } => write!(f, "'{part}' in '{text}' is not one key=value"),
            SpecError::UnknownName { name, .. } => write!(f, "there is no '{name}'"),
            SpecError::UnknownKey { name, key, .. } => write!(f, "'{name}' has no parameter '{key}'"),
            SpecError::Value { name, key, value, why } => write!(f, "{name}: {key}={value} {why}"),
        }
    }
}

impl core::error::Error for SpecError {}
