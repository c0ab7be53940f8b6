//! What commands that serve have in common: they say how it goes, and why readahead is not running.
//!
//! Everything goes to stderr. Never: says the same reason twice in a row.

#[cfg(feature = "metrics")]
use crate::args::values::address;
use crate::args::values::{cache, hint, time};
use crate::config::{Config, Set};
use crate::fail::{Fail, note, say};
#[cfg(feature = "otlp")]
use foreread::front::metrics::table;
#[cfg(feature = "metrics")]
use foreread::front::metrics::{FrontView, MetricsServer, text};
use foreread::source::Defaults;
#[cfg(feature = "object")]
use foreread::source::disk_cache::DiskCache;
use foreread::{Advice, Engine, Options, Stats, Tuning, why_no_readahead};
use foreread_os::ends;
use foreread_os::threads::{END_PATIENCE, Task};
use foreread_report::number::{amount, percent, size_b};
use foreread_report::tuning;
#[cfg(feature = "metrics")]
use std::net::SocketAddr as NetworkAddress;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// How often the self-check looks, where no statistics are asked for.
const CHECK_EVERY: Duration = Duration::from_secs(2);

/// The options of every command that serves.
#[derive(Debug, clap::Args)]
pub struct ServerArgs {
    /// NAME[:key=value,...] [default: auto]
    ///
    /// Without it FOREREAD_POLICY, then the key 'policy' of $XDG_CONFIG_HOME/foreread/config.toml, then that of
    /// /etc/foreread.toml. docs/policies.md has all keys of these files.
    #[arg(long, value_name = "POLICY")]
    pub policy: Option<String>,
    /// Bytes fetched for a byte demanded, at most, such as 1.1
    ///
    /// A bound for auto, beside a debt of 1 MB or two round trips; the same as --policy auto:max-overfetch=R. Default 2; 1: no readahead.
    #[arg(long, value_name = "R", hide_short_help = true)]
    pub max_overfetch: Option<String>,
    /// A hint for every open description: normal, sequential, random
    ///
    /// Like posix_fadvise, for all reads. Policies of librbd take no hints.
    #[arg(long, value_name = "HINT", hide_short_help = true, value_parser = hint)]
    pub hint: Option<Advice>,
    /// Size of the cache, such as 64M
    #[arg(long, value_name = "SIZE", value_parser = cache, default_value = "256M")]
    pub cache: u64,
    /// Keep bytes of objects here: DIR[,size=50G]
    ///
    /// Between runs, in a folder of this user, shared by any number of commands. size is what its files may have; with ,free=10% that
    /// much stays free on its file system. With ,others=trusted it may be one that other users write. With ,shared=/mnt/x or ,shared=s3://bucket/prefix machines
    /// share what they have fetched. Without the option FOREREAD_DISK_CACHE, then the key
    /// 'disk-cache' of the files of settings; '' means none. 'foreread cache' looks at it.
    #[cfg(feature = "object")]
    #[arg(long, value_name = "DIR")]
    pub disk_cache: Option<String>,
    /// Treat growth of a file as an append: clients go on
    #[arg(long, hide_short_help = true)]
    pub appending: bool,
    /// Record all reads as a trace, complete at the end
    #[arg(long, value_name = "TRACE")]
    pub record: Option<PathBuf>,
    /// Serve Prometheus metrics at [ADDR:]PORT/metrics
    #[cfg(feature = "metrics")]
    #[arg(long, value_name = "PORT", value_parser = address)]
    pub metrics: Option<NetworkAddress>,
    /// Print statistics to stderr this often, e.g. 5s
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub stats_every: Option<Duration>,
}

/// Says to systemd that a unit with Type=notify is up (sd_notify(3)); elsewhere nothing. One that does not hear it is no reason to end.
pub fn say_ready() {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let at = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(&name),
    };
    let sent = at.and_then(|at| {
        let socket = UnixDatagram::unbound()?;
        // A receiver whose queue is full holds up nothing.
        socket.set_nonblocking(true)?;
        socket.send_to_addr(b"READY=1", &at)
    });
    if let Err(error) = sent {
        note(format!("NOTIFY_SOCKET cannot be written to: {error}"));
    }
}

pub struct Front {
    /// What is counted: `clients`, `files`.
    pub what: &'static str,
    /// Of these, connected or open now.
    pub open: u64,
    /// Of these, ever.
    pub opened: u64,
    /// Of these, read by the kernel without this process.
    pub passed: u64,
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

#[cfg(feature = "metrics")]
impl Front {
    fn view(self) -> FrontView {
        let Front {
            open,
            opened,
            passed,
            requests,
            failed,
            bytes,
            ..
        } = self;
        FrontView {
            open,
            opened,
            passed,
            requests,
            failed_requests: failed,
            bytes,
        }
    }
}

/// Sends metrics too, if the environment names a receiver.
pub fn send_metrics(engine: &Engine, front: impl Fn() -> Front + Send + Sync + 'static) {
    #[cfg(feature = "otlp")]
    {
        let engine = engine.clone();
        crate::otlp::send_metrics(move || table(&engine, front().view()));
    }
    #[cfg(not(feature = "otlp"))]
    let _ = (engine, front);
}

/// Answers a Prometheus while it is kept.
#[cfg(feature = "metrics")]
pub fn metrics(
    address: Option<NetworkAddress>,
    engine: &Engine,
    front: impl Fn() -> Front + Send + 'static,
) -> Result<Option<MetricsServer>, Fail> {
    let Some(address) = address else {
        return Ok(None);
    };
    let engine = engine.clone();
    let say = move || text(&engine, front().view());
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
            "the cache has {got}, not {asked}: all caches get {memory} of the memory of this machine or control group"
        ));
    }
}

/// How long a command waits at its end for bytes that are not on the disk yet.
#[cfg(feature = "object")]
const WRITE_PATIENCE: Duration = Duration::from_secs(5);

/// Waits for the bytes that are being written, and says what the cache on disk did.
pub fn end_disk_cache(engine: &Engine) {
    #[cfg(feature = "object")]
    if let Some(cache) = engine.disk_cache() {
        ends::waits_for("pieces for the cache on disk");
        cache.flush(WRITE_PATIENCE);
        say(disk_line(cache));
    }
    #[cfg(not(feature = "object"))]
    let _ = engine;
    ends::waits_for("requests to the source");
}

/// One line on the cache on disk, since the start.
#[cfg(feature = "object")]
fn disk_line(cache: &DiskCache) -> String {
    let counts = cache.counts();
    let all = counts.hit_bytes + counts.miss_bytes;
    let part = if all == 0 {
        "-".to_string()
    } else {
        percent(counts.hit_bytes as f64 / all as f64) + " %"
    };
    let mut line = format!(
        "disk cache {}: {} read, {part} of the bytes; {} written, {} removed for room",
        cache.dir().display(),
        amount(counts.hit_bytes),
        amount(counts.written_bytes),
        amount(counts.evicted_bytes),
    );
    for (count, what) in [
        (counts.dropped_bytes, "not written, the disk was too slow"),
        (
            counts.passed_over_bytes,
            "read from the store, the disk was slower",
        ),
    ] {
        if count > 0 {
            line += &format!("; {} {what}", amount(count));
        }
    }
    for (count, what) in [
        (counts.refused_writes, "writes refused"),
        (counts.read_errors, "reads failed"),
        (counts.wrong, "blocks wrong and removed"),
    ] {
        if count > 0 {
            line += &format!("; {count} {what}");
        }
    }
    line
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
                    #[cfg(feature = "object")]
                    engine
                        .disk_cache()
                        .into_iter()
                        .for_each(|cache| say(disk_line(cache)));
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
        ends::waits_for("the statistics");
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
    // Their reads are not counted.
    let passed = match front.passed {
        0 => String::new(),
        passed => format!(", {passed} read by the kernel"),
    };
    format!(
        "{} {} now, {} in all{passed}; reads {}, hit {}, late {}, sent {}, from the source {}, readahead {}, unused {}, failed {}",
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
