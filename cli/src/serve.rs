//! `foreread serve`: opens a source, binds the sockets, and says how it goes until it is told to end.
//!
//! Addresses go to stdout, everything else to stderr. Never: serves before it has said where.

use crate::args::ServeArgs;
use crate::fail::Fail;
use crate::out;
use foreread::front::nbd::{Counts, Listen, Server, Settings, Stop};
use foreread::{Options, Reader, Stats, why_no_readahead};
use foreread_lab::report::number::{percent, three};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often the self-check looks, where no statistics are asked for.
const CHECK_EVERY: Duration = Duration::from_secs(2);

/// Serves until Ctrl-C or SIGTERM.
pub fn run(args: &ServeArgs) -> Result<(), Fail> {
    let options = Options::default().policy(args.policy.as_str()).cache_bytes(args.cache);
    let reader = Reader::open(args.source.as_str(), options).map_err(|error| Fail::Input(error.to_string()))?;
    let watched = Arc::new(reader.reopen().map_err(|error| Fail::Input(error.to_string()))?);
    let settings = Settings {
        export: args.export.clone(),
        description: reader.describe(),
        writable: args.writable,
        max_clients: args.max_clients,
        ..Settings::default()
    };
    let unix = args.unix.clone().map(Listen::Unix);
    let listen: Vec<Listen> = unix.into_iter().chain(args.tcp.map(Listen::Tcp)).collect();
    let (server, stop) = Server::bind(&listen, reader, settings).map_err(|error| Fail::Input(error.to_string()))?;
    stop_on_signals(&stop)?;
    if let Some(address) = args.tcp.filter(|a| !a.ip().is_loopback()) {
        let read = if args.writable { "read and overwrite" } else { "read" };
        eprintln!("foreread: whoever reaches {address} can {read} all of {}: there is no password", args.source);
    }
    out::print(server.uris().join("\n") + "\n")?;
    let counter = server.counter();
    let reporter = Reporter::start(Arc::clone(&watched), Box::new(server.counter()), args.stats_every);
    let ran = server.run();
    reporter.end();
    eprintln!("{}", line(&watched.stats(), &counter()));
    ran.map_err(|error| Fail::input("the server ended", error, "start it again"))
}

/// A byte in the server's pipe for each signal. A second Ctrl-C ends the process at once.
fn stop_on_signals(stop: &Stop) -> Result<(), Fail> {
    let refused = |error: std::io::Error| Fail::input("no signal handler", error, "allow more open files (ulimit -n)");
    let again = Arc::new(std::sync::atomic::AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // The order matters: the first asks what the second has set before.
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&again)).map_err(refused)?;
        signal_hook::flag::register(signal, Arc::clone(&again)).map_err(refused)?;
        signal_hook::low_level::pipe::register(signal, stop.pipe().map_err(refused)?).map_err(refused)?;
    }
    Ok(())
}

/// A thread that looks at the counters now and then.
struct Reporter {
    end: Sender<()>,
    thread: JoinHandle<()>,
}

impl Reporter {
    fn start(reader: Arc<Reader>, counts: Box<dyn Fn() -> Counts + Send>, every: Option<Duration>) -> Reporter {
        let (end, ended) = channel();
        let thread = std::thread::spawn(move || {
            let mut said = None;
            while ended.recv_timeout(every.unwrap_or(CHECK_EVERY)) == Err(RecvTimeoutError::Timeout) {
                let stats = reader.stats();
                if every.is_some() {
                    eprintln!("{}", line(&stats, &counts()));
                }
                // Once for each reason: it is a warning, not a log.
                let why = why_no_readahead(reader.policy().info.name, &stats);
                if why != said {
                    if let Some(why) = &why {
                        eprintln!("foreread: readahead is not running, because {why}");
                    }
                    said = why;
                }
            }
        });
        Reporter { end, thread }
    }

    fn end(self) {
        drop(self.end);
        // It ends by itself; what it would say of a panic has been said.
        let _ = self.thread.join();
    }
}

/// One line on how it goes, since the start.
fn line(stats: &Stats, counts: &Counts) -> String {
    let part =
        |of: u64, whole: u64| if whole == 0 { "-".to_string() } else { percent(of as f64 / whole as f64) + " %" };
    format!(
        "clients {} (of {}), reads {}, hit {}, late {}, sent {}, from the source {}, readahead {}, unused {}, failed {}",
        counts.clients,
        counts.connections,
        stats.demand_reads,
        part(stats.hits, stats.demand_reads),
        part(stats.late_hits, stats.demand_reads),
        three(counts.bytes as f64) + "B",
        three(stats.source_bytes as f64) + "B",
        three(stats.ra_bytes as f64) + "B",
        part(stats.unused_bytes, stats.ra_bytes),
        counts.failed_requests,
    )
}
