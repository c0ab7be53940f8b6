//! Parses and formats policies as `NAME:key=value,...`, and values of workloads in the same notation.
//!
//! [`Spec`] is only the notation (`notation.rs`). A [`PolicyDraft`] is a policy with checked values, some of which may still depend on
//! the storage. In a [`PolicySpec`] every value is known, so a policy can be built from it. An unknown name or key is an error that lists
//! the valid names or keys, so that the caller can suggest the most similar.
//!
//! ```text
//!   text ──parse──► PolicyDraft ──with_default (the device's own)──► ready (its capacity) ──► PolicySpec ──► build
//! ```

use super::capacity::Cap;
use super::{ALL, Info, Param, Policy, Unit};
use crate::notation::{NotationError, Spec};
use crate::units::{SizeError, format_size, parse_size};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

impl Spec {
    /// The values of `params`, in the order of `params`: each is the value in the text, or the default if the text has none.
    ///
    /// # Errors
    /// Returns an error if a key is unknown, or a value is not valid for its parameter.
    pub fn values(&self, params: &[Param]) -> Result<Vec<u64>, SpecError> {
        self.only(params)?;
        params
            .iter()
            .map(|param| self.value(param, self.written(param).unwrap_or(param.default)))
            .collect()
    }

    /// Refuses a key that none of `params` has.
    fn only(&self, params: &[Param]) -> Result<(), SpecError> {
        let Some((key, _)) = self
            .pairs
            .iter()
            .find(|(k, _)| params.iter().all(|p| p.key != k))
        else {
            return Ok(());
        };
        let known = params.iter().map(|p| p.key).collect();
        Err(SpecError::UnknownKey {
            name: self.name.clone(),
            key: key.clone(),
            known,
        })
    }

    fn written(&self, param: &Param) -> Option<&str> {
        self.get(param.key)
    }

    fn value(&self, param: &Param, text: &str) -> Result<u64, SpecError> {
        let refused = |why| SpecError::Value {
            name: self.name.clone(),
            key: param.key.to_string(),
            value: text.to_string(),
            why,
        };
        read_value(param, text).map_err(refused)
    }
}

/// Parses one value. A word becomes its index.
fn read_value(param: &Param, text: &str) -> Result<u64, String> {
    let number = match param.unit {
        Unit::Bytes | Unit::Capped => parse_size(text).map_err(|e| match (e, param.unit) {
            (SizeError::TooLarge, _) => "is too large".to_string(),
            (SizeError::NotASize, Unit::Capped) => {
                format!(
                    "is not a size such as 128K, {} or 512K+{}",
                    Cap::WORDS.join(", "),
                    Cap::WORDS[0]
                )
            }
            (SizeError::NotASize, _) => "is not a size such as 128K".to_string(),
        })?,
        Unit::Count => text
            .parse::<u64>()
            .map_err(|_| "is not a whole number".to_string())?,
        Unit::Ratio => {
            thousandths(text).ok_or_else(|| "is not a number such as 1.25".to_string())?
        }
        Unit::Word(words) => {
            let found = words.iter().position(|w| *w == text);
            return found
                .map(|i| i as u64)
                .ok_or_else(|| format!("is not one of {}", words.join(", ")));
        }
    };
    let (low, high) = param.range;
    if (low..=high).contains(&number) {
        return Ok(number);
    }
    match param.unit {
        Unit::Ratio => Err(format!(
            "is not between {} and {}",
            decimal(low),
            decimal(high)
        )),
        _ => Err(format!("is not between {low} and {high}")),
    }
}

/// A decimal number with at most three decimals, in thousandths.
fn thousandths(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    if part.is_empty() || part.len() > 3 || !part.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let part = part.parse::<u64>().ok()? * 10_u64.pow(3 - part.len() as u32);
    whole
        .parse::<u64>()
        .ok()?
        .checked_mul(1000)?
        .checked_add(part)
}

/// Formats a number of thousandths as a decimal number without trailing zeros.
#[must_use]
pub fn decimal(thousandths: u64) -> String {
    let text = format!("{}.{:03}", thousandths / 1000, thousandths % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// A value of a policy, given or default.
#[derive(Clone, Debug)]
struct Value {
    /// The given number, or else the default.
    number: u64,
    /// No number was given, so a value of the storage itself may replace the default.
    open: bool,
    /// The value is limited by the storage's capacity.
    cap: Option<Cap>,
}

/// A parsed policy. Values that depend on the storage are not known until [`PolicyDraft::ready`].
#[derive(Clone)]
pub struct PolicyDraft {
    /// The policy.
    pub info: &'static Info,
    /// One value for each of `info.params`, in their order.
    values: Vec<Value>,
    text: String,
}

impl PolicyDraft {
    /// Parses `NAME:key=value,...` of a policy in [`ALL`].
    ///
    /// # Errors
    /// Returns an error if the notation is wrong, the name or a key is unknown, or a value is invalid.
    pub fn parse(text: &str) -> Result<PolicyDraft, SpecError> {
        PolicyDraft::parse_among(text, &[ALL])
    }

    /// Like [`Self::parse`], but accepts the policies of the given lists, for a program that adds policies.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::parse`].
    pub fn parse_among(text: &str, lists: &[&[&'static Info]]) -> Result<PolicyDraft, SpecError> {
        let spec = Spec::parse(text)?;
        let known = lists.iter().copied().flatten();
        let Some(info) = known.clone().find(|i| i.name == spec.name) else {
            return Err(SpecError::UnknownName {
                name: spec.name,
                known: known.map(|i| i.name).collect(),
            });
        };
        spec.only(info.params)?;
        let values = info
            .params
            .iter()
            .map(|param| Value::read(&spec, param))
            .collect::<Result<_, _>>()?;
        Ok(PolicyDraft {
            info,
            values,
            text: text.to_string(),
        })
    }

    /// Sets `key` to `value` if the text did not set it and the policy has this key.
    #[must_use]
    pub fn with_default(mut self, key: &str, value: u64) -> PolicyDraft {
        let named = self
            .info
            .params
            .iter()
            .zip(&mut self.values)
            .find(|(p, _)| p.key == key);
        if let Some((param, own)) = named.filter(|(_, own)| own.open) {
            own.number = value.clamp(param.range.0, param.range.1);
        }
        self
    }

    /// Adds `key=text` if the text did not set `key` and the policy has this key. Formatting the draft then gives the same text as if the
    /// user had written this value.
    ///
    /// # Errors
    /// Returns an error if the value is invalid.
    pub fn with_setting(self, key: &str, text: &str) -> Result<PolicyDraft, SpecError> {
        let spec = Spec::parse(&self.text)?;
        let own = self
            .info
            .params
            .iter()
            .zip(&self.values)
            .find(|(param, _)| param.key == key);
        if spec.pairs.iter().any(|(k, _)| k == key) || !own.is_some_and(|(_, value)| value.open) {
            return Ok(self);
        }
        let before = if self.text.contains(':') { "," } else { ":" };
        let text = format!("{}{before}{key}={text}", self.text);
        PolicyDraft::parse_among(&text, &[&[self.info]])
    }

    /// True if a value depends on the capacity of the storage.
    #[must_use]
    pub fn wants_capacity(&self) -> bool {
        self.values.iter().any(|v| v.cap.is_some())
    }

    /// Resolves all values, for storage of `capacity` bytes.
    ///
    /// # Errors
    /// Returns an error if a value depends on the capacity of the storage, and the capacity is not known.
    pub fn ready(self, capacity: Option<u64>) -> Result<PolicySpec, SpecError> {
        let settle = |(param, value): (&Param, &Value)| match (value.cap, capacity) {
            (None, _) => Ok(value.number),
            (Some(cap), Some(capacity)) => Ok(cap
                .bytes(capacity)
                .map_or(value.number, |most| value.number.min(most))),
            (Some(_), None) => Err(SpecError::NoCapacity {
                text: self.text.clone(),
                key: param.key.to_string(),
            }),
        };
        let values = self
            .info
            .params
            .iter()
            .zip(&self.values)
            .map(settle)
            .collect::<Result<_, _>>()?;
        Ok(PolicySpec {
            info: self.info,
            values,
            text: self.text,
        })
    }
}

impl Value {
    /// Parses `SIZE+WORD`, `SIZE` or `WORD`; the default if the key is absent.
    fn read(spec: &Spec, param: &Param) -> Result<Value, SpecError> {
        let default = |cap| {
            Ok(Value {
                number: spec.value(param, param.default)?,
                open: true,
                cap,
            })
        };
        let Some(text) = spec.written(param) else {
            return default(None);
        };
        let capped = |word| {
            (param.unit == Unit::Capped)
                .then(|| Cap::named(word))
                .flatten()
        };
        if let Some(cap) = capped(text) {
            return default(Some(cap));
        }
        let (size, cap) = match text
            .split_once('+')
            .map(|(size, word)| (size, capped(word)))
        {
            Some((size, Some(cap))) => (size, Some(cap)),
            _ => (text, None),
        };
        Ok(Value {
            number: spec.value(param, size)?,
            open: false,
            cap,
        })
    }
}

/// In the notation in which it was written.
impl fmt::Display for PolicyDraft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for PolicyDraft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.text, self.values)
    }
}

impl From<PolicySpec> for PolicyDraft {
    fn from(spec: PolicySpec) -> PolicyDraft {
        let known = |&number: &u64| Value {
            number,
            open: false,
            cap: None,
        };
        PolicyDraft {
            info: spec.info,
            values: spec.values.iter().map(known).collect(),
            text: spec.text,
        }
    }
}

/// A policy and the values of all its parameters.
#[derive(Clone)]
pub struct PolicySpec {
    /// The policy.
    pub info: &'static Info,
    /// The values of `info.params`, in their order.
    pub values: Vec<u64>,
    text: String,
}

impl PolicySpec {
    /// Parses `NAME:key=value,...` without knowing the storage.
    ///
    /// # Errors
    /// Returns the same errors as [`PolicyDraft::parse`], and an error if a value depends on the storage.
    pub fn parse(text: &str) -> Result<PolicySpec, SpecError> {
        PolicyDraft::parse(text)?.ready(None)
    }

    /// A policy with its default values, whether it is in a list of this crate or defined by the caller.
    #[must_use]
    pub fn of(info: &'static Info) -> PolicySpec {
        let value = |param: &Param| read_value(param, param.default).unwrap_or(param.range.0);
        PolicySpec {
            info,
            values: info.params.iter().map(value).collect(),
            text: info.name.to_string(),
        }
    }

    /// No readahead.
    #[must_use]
    pub fn none() -> PolicySpec {
        PolicySpec::of(&super::none::INFO)
    }

    /// The value of the parameter `key`; `None` if the policy does not have this parameter.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<u64> {
        let mut values = self.info.params.iter().zip(&self.values);
        let found = values.find(|(param, _)| param.key == key);
        found.map(|(_, value)| *value)
    }

    /// The name and all values as text, with sizes as plain numbers of bytes. Parsing this text gives the same policy on every machine.
    #[must_use]
    pub fn canonical(&self) -> String {
        self.written(|bytes| bytes.to_string())
    }

    /// Like [`Self::canonical`], but for people: a size is written with a unit, such as `8M`, if it is a whole number of that unit.
    #[must_use]
    pub fn readable(&self) -> String {
        self.written(format_size)
    }

    fn written(&self, size: impl Fn(u64) -> String) -> String {
        let value = |(param, &value): (&Param, &u64)| match param.unit {
            Unit::Word(words) => format!("{}={}", param.key, words[value as usize]),
            Unit::Bytes | Unit::Capped => format!("{}={}", param.key, size(value)),
            Unit::Count => format!("{}={value}", param.key),
            Unit::Ratio => format!("{}={}", param.key, decimal(value)),
        };
        let pairs: Vec<String> = self
            .info
            .params
            .iter()
            .zip(&self.values)
            .map(value)
            .collect();
        if pairs.is_empty() {
            self.info.name.to_string()
        } else {
            format!("{}:{}", self.info.name, pairs.join(","))
        }
    }

    /// Creates the policy's state for a new open file description, file or source.
    #[must_use]
    pub fn build(&self) -> Box<dyn Policy> {
        (self.info.build)(&self.values)
    }
}

/// In the notation in which it was written.
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

/// The reason why a text `NAME:key=value,...` is not a valid policy.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each variant's comment names its fields")]
#[non_exhaustive]
pub enum SpecError {
    /// A part is not `key=value`, or repeats a key.
    Syntax(NotationError),
    /// There is no policy of this name.
    UnknownName {
        name: String,
        known: Vec<&'static str>,
    },
    /// The policy has no such parameter.
    UnknownKey {
        name: String,
        key: String,
        known: Vec<&'static str>,
    },
    /// The value is invalid.
    Value {
        name: String,
        key: String,
        value: String,
        why: String,
    },
    /// The value depends on the storage's capacity, which is unknown.
    NoCapacity { text: String, key: String },
}

impl SpecError {
    /// Says why `key=value` of `name` is invalid.
    pub fn value(name: &str, key: &str, value: impl ToString, why: impl ToString) -> SpecError {
        SpecError::Value {
            name: name.to_string(),
            key: key.to_string(),
            value: value.to_string(),
            why: why.to_string(),
        }
    }
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpecError::Syntax(error) => error.fmt(f),
            SpecError::UnknownName { name, .. } => write!(f, "there is no '{name}'"),
            SpecError::UnknownKey { name, key, .. } => {
                write!(f, "'{name}' has no parameter '{key}'")
            }
            SpecError::Value {
                name,
                key,
                value,
                why,
            } => write!(f, "{name}: {key}={value} {why}"),
            SpecError::NoCapacity { text, key } => {
                write!(
                    f,
                    "{text}: {key} depends on the storage capacity, which is not known here; write {key} as a size"
                )
            }
        }
    }
}

impl core::error::Error for SpecError {}

impl From<NotationError> for SpecError {
    fn from(error: NotationError) -> SpecError {
        SpecError::Syntax(error)
    }
}
