//! What may be set when a source is opened.
//!
//! Never: a setting without a default.

use crate::budget::Budget;
use crate::error::OpenError;
use foreread_core::machine::Config;
use foreread_core::policy::{PolicyDraft, PolicySpec};
use foreread_core::units::PageSize;
use std::path::PathBuf;
use std::sync::Arc;

/// Settings of a [`crate::Reader`]. Every field has a default; each method sets one and gives the options back.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which readahead. Default `linux-6.18`, at the device's own setting where there is a device.
    pub policy: PolicyChoice,
    /// Bytes of pages that may be cached or on their way. Default 256 MiB.
    pub cache_bytes: u64,
    /// Size of a cache page. Default 4096.
    pub page_bytes: u64,
    /// Most worker threads; they read ahead while callers work. Default 4. With 0 callers do all themselves, and
    /// readahead is read only once somebody waits for it.
    pub threads: u32,
    /// Where to write every event and action, for `foreread replay-log`. Default nowhere.
    pub event_log: Option<PathBuf>,
    /// The other limits.
    pub limits: Limits,
    /// What the engine shares with others. Default the budget of the process.
    pub budget: Option<Arc<Budget>>,
}

/// A policy, as text or read already.
#[derive(Clone, Debug)]
pub enum PolicyChoice {
    /// `NAME:key=value,...`. A `max` that is left open becomes the device's own readahead setting; `max=capacity` goes by
    /// the size of the source.
    Text(String),
    /// As it is.
    Spec(PolicySpec),
}

impl From<&str> for PolicyChoice {
    fn from(text: &str) -> PolicyChoice {
        PolicyChoice::Text(text.to_string())
    }
}

impl From<String> for PolicyChoice {
    fn from(text: String) -> PolicyChoice {
        PolicyChoice::Text(text)
    }
}

impl From<PolicySpec> for PolicyChoice {
    fn from(spec: PolicySpec) -> PolicyChoice {
        PolicyChoice::Spec(spec)
    }
}

/// Limits that seldom need another value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest fetch. Default 1 MiB: with 4 MiB the 99th percentile of sequential reads was 1.6 times as long (measured).
    pub max_fetch_bytes: u64,
    /// Fetches on their way at once. Default 64.
    pub max_in_flight: u32,
    /// Of these, fetches nobody waits for. Default 16.
    pub max_ahead_in_flight: u32,
    /// Largest readahead that rides on a demand fetch. Default 128 KiB.
    pub max_ride_bytes: u64,
    /// Bytes of buffers kept to be used again, beside the cache. Default 8 MiB.
    pub spare_bytes: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_fetch_bytes: 1 << 20,
            max_in_flight: 64,
            max_ahead_in_flight: 16,
            max_ride_bytes: 128 << 10,
            spare_bytes: 8 << 20,
        }
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            policy: "linux-6.18".into(),
            cache_bytes: 256 << 20,
            page_bytes: 4096,
            threads: 4,
            event_log: None,
            limits: Limits::default(),
            budget: None,
        }
    }
}

impl Options {
    /// The defaults with this policy.
    #[must_use]
    pub fn policy(mut self, policy: impl Into<PolicyChoice>) -> Options {
        self.policy = policy.into();
        self
    }

    /// See [`Options::cache_bytes`].
    #[must_use]
    pub fn cache_bytes(mut self, bytes: u64) -> Options {
        self.cache_bytes = bytes;
        self
    }

    /// See [`Options::page_bytes`].
    #[must_use]
    pub fn page_bytes(mut self, bytes: u64) -> Options {
        self.page_bytes = bytes;
        self
    }

    /// See [`Options::threads`].
    #[must_use]
    pub fn threads(mut self, threads: u32) -> Options {
        self.threads = threads;
        self
    }

    /// See [`Options::event_log`].
    #[must_use]
    pub fn event_log(mut self, path: impl Into<PathBuf>) -> Options {
        self.event_log = Some(path.into());
        self
    }

    /// See [`Options::budget`].
    #[must_use]
    pub fn budget(mut self, budget: Arc<Budget>) -> Options {
        self.budget = Some(budget);
        self
    }

    /// The policy and the machine's limits, checked against each other, for a source of `size` bytes or for many sources.
    pub(crate) fn resolve(
        &self,
        device_readahead: Option<u64>,
        size: Option<u64>,
    ) -> Result<(PolicySpec, Config), OpenError> {
        let policy = match &self.policy {
            PolicyChoice::Spec(spec) => spec.clone(),
            PolicyChoice::Text(text) => {
                let draft = PolicyDraft::parse(text).map_err(OpenError::Policy)?;
                let draft = device_readahead.map_or(draft.clone(), |max| draft.with_default("max", max));
                draft.ready(size).map_err(OpenError::Policy)?
            }
        };
        let bytes = self.page_bytes;
        let page = PageSize::new(bytes).ok_or(OpenError::PageSize { bytes })?;
        if let Some(needed) = policy.info.page_bytes.filter(|&n| n != bytes) {
            return Err(OpenError::PolicyPage { bytes, policy: policy.info.name, needed });
        }
        let mut config = Config::new(page, self.cache_bytes);
        config.max_fetch_bytes = self.limits.max_fetch_bytes;
        config.max_in_flight = self.limits.max_in_flight;
        config.max_ahead_in_flight = self.limits.max_ahead_in_flight;
        config.max_ride_bytes = self.limits.max_ride_bytes;
        Ok((policy, config.bounded()))
    }
}
