//! Options for opening a source.
//!
//! Every setting has a default.

use crate::budget::Budget;
use crate::error::OpenError;
#[cfg(feature = "disk-cache")]
use crate::source::disk_cache::DiskCache;
use crate::source::{Defaults, Io};
use foreread_core::event::Advice;
use foreread_core::machine::Config;
use foreread_core::policy::{DEFAULT, PolicyDraft, PolicySpec, SpecError};
use foreread_core::units::PageSize;
use std::path::PathBuf;
use std::sync::Arc;

/// Settings of a [`crate::Reader`]. Every field has a default. Each builder method sets one field and returns the options.
#[derive(Clone, Debug)]
pub struct Options {
    /// The readahead policy. Default `auto`, which tunes itself. `linux-6.18` uses the device's readahead setting if there is one,
    /// otherwise that of the kind of storage ([`Defaults`]).
    pub policy: PolicyChoice,
    /// The initial hint of each open description: normal, sequential or random; other hints are ignored. Default none.
    pub hint: Option<Advice>,
    /// Maximum bytes of pages that are cached or in flight. Default 256 MiB, minimum four pages (16 KiB); smaller values, such as 0,
    /// are raised to this minimum. [`Engine::cache_bytes`](crate::Engine::cache_bytes) returns the actual size. Each engine has its own
    /// cache, and [`Reader::open`](crate::Reader::open) creates an engine: to share a cache, share the engine.
    pub cache_bytes: u64,
    /// Size of a cache page. Default 4096.
    pub page_bytes: u64,
    /// Maximum number of worker threads, which read ahead while callers work. Default: the value for the kind of storage
    /// ([`Defaults`]). With 0, callers do all the work, also inside the poll of a task, and readahead is fetched only once a caller
    /// waits for it.
    pub threads: Option<u32>,
    /// How files are read. Default: with io_uring if the kernel allows it.
    pub io: Io,
    /// Declares that a source that grows was only appended to, so its old bytes are not checked. Such a source must never be overwritten.
    /// Default no: growth is then accepted as an append only if the old last page and a sample of the bytes read before are read again
    /// and are unchanged; for a pinned reader, growth is then a change.
    pub appending: bool,
    /// A file for the log of events and actions, for `foreread check replay-log`. An existing file or symbolic link is replaced; the
    /// target of the link is not touched. Default none.
    pub event_log: Option<PathBuf>,
    /// The other limits.
    pub limits: Limits,
    /// The budget shared with other engines. Default: the process-wide budget.
    pub budget: Option<Arc<Budget>>,
    /// A disk cache, from which other and later processes can read the same bytes without fetching them again. Default none.
    #[cfg(feature = "disk-cache")]
    pub disk_cache: Option<DiskCache>,
}

/// A readahead policy, as text or already parsed.
#[derive(Clone, Debug)]
pub enum PolicyChoice {
    /// `NAME:key=value,...`. Missing values are filled in by [`Storage::settle`]; `max=capacity` depends on the size of the
    /// source.
    Text(String),
    /// A parsed policy, for example one that is not in this crate's list; missing values are filled in as above.
    Draft(PolicyDraft),
    /// A complete policy, used without changes.
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

impl From<PolicyDraft> for PolicyChoice {
    fn from(draft: PolicyDraft) -> PolicyChoice {
        PolicyChoice::Draft(draft)
    }
}

impl From<PolicySpec> for PolicyChoice {
    fn from(spec: PolicySpec) -> PolicyChoice {
        PolicyChoice::Spec(spec)
    }
}

/// Limits of an engine, other than the cache size. The defaults rarely need to be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest fetch. Default: the value for the kind of storage ([`Defaults::max_fetch_bytes`]), 1 MiB for most and 8 MiB for
    /// objects.
    pub max_fetch_bytes: Option<u64>,
    /// Maximum number of fetches in flight. Default 64.
    pub max_in_flight: u32,
    /// Maximum number of fetches in flight for which no caller waits. Default 16, or more if the source serves more requests
    /// concurrently.
    pub max_ahead_in_flight: Option<u32>,
    /// Largest readahead that is added to a demand fetch. Default 128 KiB.
    pub max_piggyback_bytes: u64,
    /// Bytes of buffers kept for reuse, in addition to the cache. Default 8 MiB.
    pub spare_bytes: u64,
}

/// Readahead fetches in flight, unless the source serves more concurrently.
const AHEAD: u32 = 16;
/// Maximum number of worker threads that a source may request.
const MAX_WORKERS: u32 = 256;

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_fetch_bytes: None,
            max_in_flight: 64,
            max_ahead_in_flight: None,
            max_piggyback_bytes: 128 << 10,
            spare_bytes: 8 << 20,
        }
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            policy: DEFAULT.into(),
            hint: None,
            cache_bytes: 256 << 20,
            page_bytes: 4096,
            threads: None,
            io: Io::default(),
            appending: false,
            event_log: None,
            limits: Limits::default(),
            budget: None,
            #[cfg(feature = "disk-cache")]
            disk_cache: None,
        }
    }
}

/// Properties of a source's storage that are known before it is read. The defaults of options that are not set depend on these
/// properties.
#[derive(Clone, Copy, Debug)]
pub struct Storage {
    /// The readahead setting of its device, in bytes.
    pub readahead_bytes: Option<u64>,
    /// Its size in bytes, if it is a single source.
    pub size: Option<u64>,
    /// The defaults for its kind of storage.
    pub defaults: Defaults,
}

impl Storage {
    /// Sets those parameters of a policy that have no value yet. For a policy of Linux, `max` is the device's setting, or depends on the
    /// kind of storage. For other policies, and for `linux-thrashsafe`, the default of `max` is the value that was published with the
    /// policy.
    ///
    /// # Errors
    /// Returns an error if a value depends on the size of the source and this size is unknown.
    pub fn settle(&self, draft: PolicyDraft, cache_bytes: u64) -> Result<PolicySpec, SpecError> {
        let max = self
            .readahead_bytes
            .unwrap_or_else(|| self.defaults.window_in(cache_bytes));
        let draft = if draft.info.follows_device() {
            draft.with_default("max", max)
        } else {
            draft
        };
        draft.ready(self.size)
    }
}

/// Methods that set one field each, and return the options.
macro_rules! setters {
    ($($what:literal, $field:ident: $of:ty => $value:expr;)*) => {$(
        #[doc = concat!("Sets ", $what, ": see the field [`", stringify!($field), "`](field@Options::", stringify!($field), ").")]
        #[must_use]
        pub fn $field(mut self, $field: $of) -> Options {
            self.$field = $value;
            self
        }
    )*};
}

impl Options {
    /// Sets the readahead policy; see the field [`policy`](field@Options::policy) for the default. A text has the form `NAME` or
    /// `NAME:key=value,...`, for example `auto`, `none` (no readahead) or `linux-6.18:max=4M`. The command `foreread list policies` lists
    /// the names of policies with their keys. The text is parsed when the source is opened; the open fails with [`OpenError::Policy`] if
    /// the text is invalid.
    /// To use your own policy, pass a [`PolicyDraft`] or [`PolicySpec`].
    ///
    /// ```
    /// use foreread::{OpenError, Options, Reader, source::Mem};
    /// use std::sync::Arc;
    ///
    /// let open = |policy: &str| Reader::open(Arc::new(Mem::new(vec![7; 9000])), Options::default().policy(policy));
    /// assert!(open("linux-6.18:max=4M").is_ok());
    /// assert!(matches!(open("linux-6.19"), Err(OpenError::Policy(_))));
    /// ```
    #[must_use]
    pub fn policy(mut self, policy: impl Into<PolicyChoice>) -> Options {
        self.policy = policy.into();
        self
    }

    setters! {
        "the initial hint of each open file description", hint: Advice => Some(hint);
        "the size of the cache", cache_bytes: u64 => cache_bytes;
        "the size of a cache page", page_bytes: u64 => page_bytes;
        "the maximum number of worker threads", threads: u32 => Some(threads);
        "how files are read", io: Io => io;
        "whether a source that grows was only appended to", appending: bool => appending;
        "the file for the log of events and actions", event_log: impl Into<PathBuf> => Some(event_log.into());
        "the budget that is shared with other engines", budget: Arc<Budget> => Some(budget);
    }

    /// Sets the disk cache: see the field [`disk_cache`](field@Options::disk_cache).
    #[cfg(feature = "disk-cache")]
    #[must_use]
    pub fn disk_cache(mut self, cache: &DiskCache) -> Options {
        self.disk_cache = Some(cache.clone());
        self
    }

    /// Number of worker threads for storage of this kind.
    pub(crate) fn workers(&self, defaults: Defaults) -> u32 {
        self.threads
            .unwrap_or(defaults.short_requests.max(defaults.requests))
            .min(MAX_WORKERS)
    }

    /// The policy and the machine's limits, checked for consistency.
    pub(crate) fn resolve(&self, storage: &Storage) -> Result<(PolicySpec, Config), OpenError> {
        let settled = |draft| storage.settle(draft, self.cache_bytes);
        let policy = match &self.policy {
            PolicyChoice::Spec(spec) => Ok(spec.clone()),
            PolicyChoice::Draft(draft) => settled(draft.clone()),
            PolicyChoice::Text(text) => PolicyDraft::parse(text).and_then(settled),
        };
        let policy = policy.map_err(OpenError::Policy)?;
        let bytes = self.page_bytes;
        let page = PageSize::new(bytes).ok_or(OpenError::PageSize { bytes })?;
        if let Some(needed) = policy.info.page_bytes.filter(|&n| n != bytes) {
            return Err(OpenError::PolicyPage {
                bytes,
                policy: policy.info.name,
                needed,
            });
        }
        let mut config = Config::new(page, self.cache_bytes);
        config.max_fetch_bytes = self
            .limits
            .max_fetch_bytes
            .unwrap_or(storage.defaults.max_fetch_bytes);
        config.max_in_flight = self.limits.max_in_flight;
        config.max_ahead_in_flight = self
            .limits
            .max_ahead_in_flight
            .unwrap_or(AHEAD.max(storage.defaults.requests));
        // The configured value limits all fetches.
        let short = storage.defaults.short_requests;
        config.max_short_ahead_in_flight =
            self.limits.max_ahead_in_flight.unwrap_or(AHEAD.max(short));
        config.max_piggyback_bytes = self.limits.max_piggyback_bytes;
        Ok((policy, config.bounded()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn max(options: &Options, device: Option<u64>, defaults: Defaults) -> (u64, u32) {
        let storage = Storage {
            readahead_bytes: device,
            size: Some(1 << 40),
            defaults,
        };
        let (policy, config) = options.resolve(&storage).expect("it fits");
        let at = policy
            .info
            .params
            .iter()
            .position(|param| param.key == "max")
            .expect("it has one");
        (policy.values[at], config.max_ahead_in_flight)
    }

    #[test]
    fn each_kind_of_storage_gets_threads_and_a_window_unless_they_are_set() {
        let (file, object) = (Defaults::FILE, Defaults::OBJECT);
        let (few, many) = (object.with_requests(3), object.with_requests(100_000));
        let workers = |options: &Options| [file, object, many].map(|of| options.workers(of));
        assert_eq!(workers(&Options::default()), [4, 48, MAX_WORKERS]);
        assert_eq!(workers(&Options::default().threads(2)), [2; 3]);
        let of = |text: &str| Options::default().policy(text);
        let linux = of("linux-6.18");
        let thrashsafe = foreread_history::parse("linux-thrashsafe").expect("a policy");
        let thrashsafe = Options::default().policy(thrashsafe);
        let small = |bytes| linux.clone().cache_bytes(bytes);
        let device = Some(256 << 10);
        for (options, device, defaults, bytes, why) in [
            (&linux, None, file, 128 << 10, "what Linux has"),
            (&linux, None, object, 24 * MIB, "of a store"),
            (&linux, None, few, 9 * MIB / 2, "by its requests"),
            (&linux, None, Defaults::NBD, 8 * MIB, "of a server"),
            (
                &linux,
                None,
                Defaults::MODEL_LIVE,
                128 << 10,
                "as simulated",
            ),
            (
                &linux,
                device,
                object,
                256 << 10,
                "the device's own setting",
            ),
            (&of("linux-6.18:max=1M"), None, object, MIB, "the text"),
            (&of("rbd-plain"), None, object, 4 * MIB, "as published"),
            (&thrashsafe, device, file, 512 << 10, "as published"),
            (&small(8 * MIB), None, object, 2 * MIB, "a quarter"),
            (&small(64 << 10), None, file, 128 << 10, "as in Linux"),
            (
                &of("linux-6.18:max=2M"),
                device,
                file,
                2 * MIB,
                "the text, before the device",
            ),
        ] {
            assert_eq!(max(options, device, defaults).0, bytes, "{why}");
        }
        assert_eq!(max(&linux, None, object).1, 16);
        let mut limited = linux;
        limited.limits.max_ahead_in_flight = Some(3);
        assert_eq!(max(&limited, None, object).1, 3);
    }
}
