//! What commands that serve have in common: they say how it goes, and why readahead is not running.
//!
//! Everything goes to stderr. Never: says the same reason twice in a row.

use crate::config::{Config, Set};
use crate::fail::{Fail, note, say};
#[cfg(feature = "metrics")]
use foreread::front::metrics::{FrontView, MetricsServer, text};
use foreread::source::Defaults;
use foreread::{Advice, Engine, Options, Stats, Tuning, why_no_readahead};
use foreread_os::threads::{END_PATIENCE, Task};
use foreread_report::number::{amount, percent, size_b};
use foreread_report::tuning;
#[cfg(feature = "metrics")]
use std::net::SocketAddr;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// How often the self-check looks, where no statistics are asked for.
const CHECK_EVERY: Duration = Duration::from_secs(2);

pub struct Front {
    /// What is counted: `clients`, `files`.
    pub what: &'static str,
    /// Of these, connected or open now.
    pub open: u64,
    /// Of these, ever.
    pub opened: u64,
    /// Requests answered.
    #[cfg_attr(
        not(feature = "metrics"),
        allow(dead_code, reason = "a line has no room for it")
    )]
    pub requests: u64,
    /// Requests that were refused or failed.
    pub failed: u64,
    /// Bytes sent.
    pub bytes: u64,
}

/// Answers a Prometheus while it is kept.
#[cfg(feature = "metrics")]
pub fn metrics(
    address: Option<SocketAddr>,
    engine: &Engine,
    front: impl Fn() -> Front + Send + 'static,
) -> Result<Option<MetricsServer>, Fail> {
    let Some(address) = address else {
        return Ok(None);
    };
    let engine = engine.clone();
    let say = move || {
        let Front {
            open,
            opened,
            requests,
            failed,
            bytes,
            ..
        } = front();
        text(
            &engine,
            FrontView {
                open,
                opened,
                requests,
                failed_requests: failed,
                bytes,
            },
        )
    };
    let refused = |error| {
        Fail::input(
            "cannot serve metrics",
            format!("{address} ({error})"),
            "name another port",
        )
    };
    let server = MetricsServer::start(address, say).map_err(refused)?;
    note(format!("metrics at {}", server.url()));
    if !address.ip().is_loopback() {
        note(format!(
            "any client that reaches {address} can read the metrics, with the names of files: there is no password"
        ));
    }
    Ok(Some(server))
}

/// Says so where the cache is smaller than was asked for.
pub fn note_cache(engine: &Engine, asked: u64) {
    let (got, memory) = (engine.cache_bytes(), engine.budget().limits().memory_bytes);
    // A page, or the buffers beside the cache, are no matter.
    if got < asked / 10 * 9 {
        let [got, memory] = [got, memory].map(amount);
        let asked = size_b(asked);
        note(format!(
            "the cache has {got}, not {asked}: all caches get {memory}, three quarters of the memory of this machine or \
             control group"
        ));
    }
}

/// A thread that looks at the counters now and then.
pub struct Reporter {
    end: Sender<()>,
    thread: Task<()>,
}

impl Reporter {
    pub fn start(
        engine: Engine,
        front: impl Fn() -> Front + Send + 'static,
        every: Option<Duration>,
    ) -> Result<Reporter, Fail> {
        let (end, ended) = channel();
        let thread = Task::start("foreread-report", move || {
            let mut said = None;
            while ended.recv_timeout(every.unwrap_or(CHECK_EVERY)) == Err(RecvTimeoutError::Timeout)
            {
                let stats = engine.stats();
                if every.is_some() {
                    say(line(&stats, &front()));
                    engine
                        .gauges()
                        .tuning
                        .iter()
                        .for_each(|tuning| say(tuned(tuning)));
                }
                // Once for each reason: it is a warning, not a log.
                let why = why_no_readahead(engine.policy().info.name, &stats);
                if why != said {
                    if let Some(why) = &why {
                        note(format!("readahead is not running, because {why}"));
                    }
                    said = why;
                }
            }
        });
        Ok(Reporter {
            end,
            thread: thread.map_err(Fail::of)?,
        })
    }

    pub fn end(self) {
        drop(self.end);
        // It may wait for a stderr that no program reads.
        let _ = self.thread.within(END_PATIENCE);
    }
}

/// The options that a configuration and the command line come to.
pub fn options(config: &Config, policy: &Set<String>, hint: Option<&Set<Advice>>) -> Options {
    let options = Options::default()
        .policy(policy.value.as_str())
        .readahead(config.readahead());
    match hint {
        Some(set) => options.hint(set.value),
        None => options,
    }
}

/// What is read ahead and how much at once, with the values that no argument set, and where the settings are from.
pub fn setup(engine: &Engine, defaults: Defaults, origins: &str) -> String {
    let Defaults { kind, requests, .. } = defaults;
    let policy = engine.policy().readable();
    format!(
        "policy {policy}; at most {requests} requests at once (default for kind {kind}); {origins}"
    )
}

/// One line on what the policy has set itself to.
fn tuned(now: &Tuning) -> String {
    format!("auto {}", tuning::words(now))
}

/// One line on how it goes, since the start.
pub fn line(stats: &Stats, front: &Front) -> String {
    let part = |of: u64, whole: u64| {
        if whole == 0 {
            "-".to_string()
        } else {
            percent(of as f64 / whole as f64) + " %"
        }
    };
    format!(
        "{} {} now, {} in all; reads {}, hit {}, late {}, sent {}, from the source {}, readahead {}, unused {}, failed {}",
        front.what,
        front.open,
        front.opened,
        stats.demand_reads,
        part(stats.hits, stats.demand_reads),
        part(stats.late_hits, stats.demand_reads),
        amount(front.bytes),
        amount(stats.source_bytes),
        amount(stats.ra_bytes),
        part(stats.unused_bytes, stats.ra_bytes),
        front.failed,
    )
}
