//! Shared code of `serve` and `mount`: options, statistics, and the warning that readahead is not running.
//!
//! All output goes to stderr. The reason why readahead is not running is printed again only when it has changed.

#[cfg(feature = "metrics")]
use crate::args::values::address;
use crate::args::values::{cache, hint, hint_name, time};
use crate::config::{self, Config, Set};
use crate::fail::{Fail, note, say};
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
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Interval of the self-check if no statistics are requested.
const CHECK_EVERY: Duration = Duration::from_secs(2);

/// Options of `serve` and `mount`.
#[derive(Debug, clap::Args)]
pub struct ServerArgs {
    /// Readahead policy, e.g. none [default: auto]
    ///
    /// NAME[:key=value,...]; 'foreread list policies' lists the names and keys. If not given, foreread uses FOREREAD_POLICY, then the key 'policy' of $XDG_CONFIG_HOME/foreread/config.toml,
    /// then that of /etc/foreread.toml. docs/policies.md lists all keys of these files.
    #[arg(long, value_name = "POLICY")]
    pub policy: Option<String>,
    /// Maximum ratio of bytes fetched to bytes demanded, such as 1.1
    ///
    /// Limits auto, like --policy auto:max-overfetch=R. The limit may be exceeded by up to 4 MiB, or by what the source
    /// delivers in two round trips if that is more. Default 2; 1 means no readahead.
    #[arg(long, value_name = "R", hide_short_help = true)]
    pub max_overfetch: Option<String>,
    /// A hint for all open files: normal, sequential, random
    ///
    /// Has the effect of posix_fadvise(2) on all reads. The librbd policies ignore hints.
    #[arg(long, value_name = "HINT", hide_short_help = true, value_parser = hint)]
    pub hint: Option<Advice>,
    /// Size of the cache, such as 64M
    #[arg(long, value_name = "SIZE", value_parser = cache, default_value = "256M")]
    pub cache: u64,
    /// Keep object data on disk here: DIR[,size=50G]
    ///
    /// The data stays between runs, in a folder of this user that any number of commands may share. With size=50G, the cached data takes
    /// at most that space; with ,free=10%, that much of the file system stays free. With ,others=trusted, the folder may be one to which
    /// other users can write. With ,shared=/mnt/x or ,shared=s3://bucket/prefix, machines share fetched data. Default:
    /// FOREREAD_DISK_CACHE, then the key 'disk-cache' of the settings files; '' means none. 'foreread cache' lists and
    /// verifies the cached data.
    #[cfg(feature = "object")]
    #[arg(long, value_name = "DIR")]
    pub disk_cache: Option<String>,
    /// Treat growth of a file as an append, so that clients continue
    #[arg(long, hide_short_help = true)]
    pub appending: bool,
    /// Record all reads as a trace, complete at exit
    #[arg(long, value_name = "TRACE")]
    pub record: Option<PathBuf>,
    /// Serve Prometheus metrics at [ADDR:]PORT/metrics
    #[cfg(feature = "metrics")]
    #[arg(long, value_name = "PORT", value_parser = address)]
    pub metrics: Option<NetworkAddress>,
    /// Print statistics to stderr every TIME, e.g. 5s
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub stats_every: Option<Duration>,
}

/// Tells systemd that a unit with Type=notify is ready (sd_notify(3)). Without systemd this function does nothing, and errors are ignored.
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
        // A full receive queue must not block.
        socket.set_nonblocking(true)?;
        socket.send_to_addr(b"READY=1", &at)
    });
    if let Err(error) = sent {
        note(format!("NOTIFY_SOCKET cannot be written to: {error}"));
    }
}

pub struct Front {
    /// The counted objects: `clients` or `files`.
    pub what: &'static str,
    /// Number connected or open now.
    pub open: u64,
    /// Total number so far.
    pub opened: u64,
    /// Number read by the kernel without this process (FUSE passthrough).
    pub passed: u64,
    /// Answered requests.
    #[cfg_attr(
        not(feature = "metrics"),
        allow(dead_code, reason = "only the metrics show this counter")
    )]
    pub requests: u64,
    /// Refused or failed requests.
    pub failed: u64,
    pub bytes: u64,
    /// Bytes written by clients.
    pub written: u64,
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
            written,
            ..
        } = self;
        FrontView {
            open,
            opened,
            passed,
            requests,
            failed_requests: failed,
            bytes,
            written_bytes: written,
        }
    }
}

/// Starts a server of Prometheus metrics, which ends when the returned value is dropped.
#[cfg(feature = "metrics")]
fn metrics(
    address: NetworkAddress,
    say: impl Fn() -> String + Send + 'static,
) -> Result<MetricsServer, Fail> {
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
    Ok(server)
}

/// Warns if the cache is smaller than requested.
pub fn note_cache(engine: &Engine, asked: u64) {
    let (got, memory) = (engine.cache_bytes(), engine.budget().limits().memory_bytes);
    // Rounding to pages and buffers outside the cache do not count.
    if got < asked / 10 * 9 {
        let [got, memory] = [got, memory].map(amount);
        let asked = size_b(asked);
        note(format!(
            "the cache has {got}, not {asked}: all caches together get at most {memory} of the memory of this machine or control group"
        ));
    }
}

/// How long a command waits at its end for unwritten data of the disk cache.
#[cfg(feature = "object")]
const WRITE_PATIENCE: Duration = Duration::from_secs(5);

/// Waits for pending writes to the disk cache, and prints a line about the cache.
fn end_disk_cache(engine: &Engine) {
    #[cfg(feature = "object")]
    if let Some(cache) = engine.disk_cache() {
        ends::waits_for("writes to the disk cache");
        cache.flush(WRITE_PATIENCE);
        say(disk_line(cache));
    }
    #[cfg(not(feature = "object"))]
    let _ = engine;
    ends::waits_for("requests to the source");
}

/// One line about the disk cache, since the start.
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
        "disk cache {}: {} read, {part} of the bytes; {} written, {} evicted",
        cache.dir().display(),
        amount(counts.hit_bytes),
        amount(counts.written_bytes),
        amount(counts.evicted_bytes),
    );
    for (count, what) in [
        (
            counts.dropped_bytes,
            "not written, because the disk was too slow",
        ),
        (
            counts.passed_over_bytes,
            "read from the store, because the disk was slower",
        ),
    ] {
        if count > 0 {
            line += &format!("; {} {what}", amount(count));
        }
    }
    for (count, what) in [
        (counts.refused_writes, "writes refused"),
        (counts.read_errors, "reads failed"),
        (counts.wrong, "invalid blocks removed"),
    ] {
        if count > 0 {
            line += &format!("; {count} {what}");
        }
    }
    line
}

/// A thread that checks the counters at a regular interval, to print statistics and warnings.
pub struct Reporter {
    engine: Engine,
    front: Arc<dyn Fn() -> Front + Send + Sync>,
    end: Sender<()>,
    thread: Task<()>,
    #[cfg(feature = "metrics")]
    _metrics: Option<MetricsServer>,
}

impl Reporter {
    pub fn start(
        engine: &Engine,
        args: &ServerArgs,
        front: impl Fn() -> Front + Send + Sync + 'static,
    ) -> Result<Reporter, Fail> {
        let front: Arc<dyn Fn() -> Front + Send + Sync> = Arc::new(front);
        #[cfg(feature = "metrics")]
        let of_metrics = {
            let (engine, front) = (engine.clone(), Arc::clone(&front));
            move |address| metrics(address, move || text(&engine, front().view()))
        };
        let (end, ended) = channel();
        let every = args.stats_every;
        let (shown, counts) = (engine.clone(), Arc::clone(&front));
        let report = move || report(&shown, &*counts, every, &ended);
        Ok(Reporter {
            engine: engine.clone(),
            front,
            end,
            #[cfg(feature = "metrics")]
            _metrics: args.metrics.map(of_metrics).transpose()?,
            thread: Task::start("foreread-report", report).map_err(Fail::of)?,
        })
    }

    /// Ends the reports, waits for pending writes to the disk cache, and prints the last line.
    pub fn end(self) {
        ends::waits_for("the statistics");
        drop(self.end);
        // It may block on a stderr that no program reads.
        let _ = self.thread.within(END_PATIENCE);
        end_disk_cache(&self.engine);
        say(last_line(&self.engine, &(self.front)()));
    }
}

/// Prints statistics every `every` until `ended`, and why readahead is not running.
fn report(
    engine: &Engine,
    front: &dyn Fn() -> Front,
    every: Option<Duration>,
    ended: &Receiver<()>,
) {
    let mut said = None;
    while ended.recv_timeout(every.unwrap_or(CHECK_EVERY)) == Err(RecvTimeoutError::Timeout) {
        let stats = engine.stats();
        if every.is_some() {
            say(line(&stats, &front(), from_disk(engine)));
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
        // Printed once for each reason, because it is a warning and not a log.
        let why = why_no_readahead(engine.policy().info.name, &stats);
        if why != said {
            if let Some(why) = why {
                note(format!("readahead is not running, because {why}"));
            }
            said = why;
        }
    }
}

/// The settings of a server, from the settings files and the command line.
pub struct ServerSettings {
    config: Config,
    policy: Set<String>,
    hint: Option<Advice>,
}

impl ServerArgs {
    /// Returns the settings, and the engine's options that follow from them.
    pub fn settings(&self) -> Result<(ServerSettings, Options), Fail> {
        let config = config::load()?;
        let policy = config.serving(self.policy.as_deref(), self.max_overfetch.as_deref())?;
        let mut options = Options::default()
            .policy(policy.value.as_str())
            .cache_bytes(self.cache)
            .appending(self.appending);
        if let Some(hint) = self.hint {
            options = options.hint(hint);
        }
        #[cfg(feature = "object")]
        {
            options.disk_cache = config.server_cache(self.disk_cache.as_deref())?;
        }
        let settings = ServerSettings {
            config,
            policy,
            hint: self.hint,
        };
        Ok((settings, options))
    }
}

impl ServerSettings {
    /// Returns the line that a server prints at its start: the policy with all its parameters, the request limit, and where the settings
    /// come from.
    pub fn line(&self, engine: &Engine, defaults: Defaults) -> String {
        let Defaults { kind, requests, .. } = defaults;
        let policy = engine.policy().readable();
        let from = self.config.requests_origin(kind);
        let mut parts = vec![
            format!("policy {policy} ({})", self.policy.from),
            format!("at most {requests} requests at once ({from})"),
        ];
        let hint = self.hint.map(hint_name);
        parts.extend(hint.map(|hint| format!("hint {hint}: --hint")));
        parts.join("; ")
    }
}

/// One line about the policy's current parameters.
fn tuned(now: &Tuning) -> String {
    format!("auto {}", tuning::words(now))
}

/// Like [`line`], at the end: no client will read what is still unread, so it counts as unused.
fn last_line(engine: &Engine, front: &Front) -> String {
    let mut stats = engine.stats();
    add_unread(&mut stats);
    line(&stats, front, from_disk(engine))
}

fn add_unread(stats: &mut Stats) {
    stats.unused_bytes += stats.unread_bytes();
}

/// Bytes that the disk cache has delivered; the statistics count them as read from the source.
#[cfg(feature = "object")]
fn from_disk(engine: &Engine) -> u64 {
    engine
        .disk_cache()
        .map_or(0, |cache| cache.counts().hit_bytes)
}

#[cfg(not(feature = "object"))]
fn from_disk(_: &Engine) -> u64 {
    0
}

/// Formats the statistics since the start as one line.
fn line(stats: &Stats, front: &Front, disk_bytes: u64) -> String {
    let part = |of: u64, whole: u64| {
        if whole == 0 {
            "-".to_string()
        } else {
            percent(of as f64 / whole as f64) + " %"
        }
    };
    // Reads by the kernel are not counted.
    let passed = match front.passed {
        0 => String::new(),
        passed => format!(", {passed} read by the kernel"),
    };
    let written = match front.written {
        0 => String::new(),
        bytes => format!(", written {}", amount(bytes)),
    };
    let source = amount(stats.source_bytes.saturating_sub(disk_bytes));
    let disk = match disk_bytes {
        0 => String::new(),
        bytes => format!(" and {} from the disk cache", amount(bytes)),
    };
    format!(
        "{} {} now, {} in all{passed}; reads {}, hit {}, late {}, sent {}{written}, from the source {source}{disk}, readahead {}, unused {}, failed {}",
        front.what,
        front.open,
        front.opened,
        stats.demand_reads,
        part(stats.hits, stats.demand_reads),
        part(stats.late_hits, stats.demand_reads),
        amount(front.bytes),
        amount(stats.ra_bytes),
        part(stats.unused_bytes, stats.ra_bytes),
        front.failed,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unread_readahead_is_unused_at_the_end() {
        let mut stats = Stats::of(|stats| {
            (stats.source_bytes, stats.ra_bytes, stats.used_bytes) = (5000, 1000, 750);
        });
        let front = Front {
            what: "files",
            open: 0,
            opened: 1,
            passed: 0,
            requests: 1,
            failed: 0,
            bytes: 750,
            written: 4096,
        };
        let shown = line(&stats, &front, 0);
        assert!(shown.contains("unused 0 %"), "{shown}");
        let parts = "sent 750 B, written 4.10 kB, from the source 5.00 kB,";
        assert!(shown.contains(parts), "{shown}");
        add_unread(&mut stats);
        let shown = line(&stats, &front, 4000);
        assert!(shown.contains("unused 25 %"), "{shown}");
        let parts = "from the source 1.00 kB and 4.00 kB from the disk cache,";
        assert!(shown.contains(parts), "{shown}");
    }
}
