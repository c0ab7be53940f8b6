//! `foreread serve`: opens a source, binds the sockets, and prints statistics until it is stopped.
//!
//! Addresses go to stdout, everything else to stderr. The server accepts clients only after it has printed the addresses.

use crate::args::values::address;
use crate::fail::{Fail, note};
use crate::out;
use crate::recording;
use crate::serving::{self, Front, Reporter, ServerArgs};
use crate::signals;
use foreread::Reader;
#[cfg(feature = "tls")]
use foreread::front::nbd::NbdTls;
use foreread::front::nbd::{self, Listen, NbdSettings, NbdStop, Server, ServerCounts};
use foreread::source::SourceName;
use foreread_attach::warm::engine::{PlanFollower, ranges_for};
use foreread_os::ends;
use listenfd::ListenFd;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

/// Serve a source over NBD, with readahead and a cache
///
/// Each client has its own readahead state on one shared cache, and may only read unless --writable is given. The
/// addresses are printed when clients can connect. Ctrl-C, SIGTERM and SIGHUP end the server; it still answers requests
/// in flight. When the source changes, connected clients get errors and must reconnect.
///
/// There is no password, and no encryption without --tls-certificates. Only the owner of a unix socket can connect to
/// it. A TCP port without an address is bound to 127.0.0.1. Sockets passed by systemd (LISTEN_FDS) are served as well.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foreread serve disk.img --unix disk.sock
  qemu-img info 'nbd+unix:///?socket=disk.sock'
  foreread serve nbd://far.example/disk --tcp 10809 --cache 1G --stats-every 5s")]
pub struct ServeArgs {
    /// PATH, s3://, gs://, az://, hf://, https://, nbd:// or rbd:
    ///
    /// PATH or file:PATH, s3://BUCKET/KEY, gs://BUCKET/KEY, az://CONTAINER/KEY, hf://USER/REPO/PATH, https://HOST/PATH,
    /// nbd://HOST/EXPORT, nbd+unix:///EXPORT?socket=PATH or rbd:POOL/IMAGE[@SNAP]. Object stores need a build with the
    /// feature 'object'.
    #[arg(value_name = "SOURCE")]
    pub source: SourceName,
    /// Listen on a unix socket
    #[arg(long, value_name = "PATH")]
    pub unix: Option<PathBuf>,
    /// Listen on 127.0.0.1:PORT, or ADDR:PORT
    #[arg(long, value_name = "[ADDR:]PORT", value_parser = address)]
    pub tcp: Option<SocketAddr>,
    /// Use TLS, with the certificate in this folder
    ///
    /// The folder holds server-cert.pem and server-key.pem. --tls-verify-peer also needs ca-cert.pem and, if
    /// certificates were revoked, ca-crl.pem. nbdkit and libnbd use the same names.
    #[cfg(feature = "tls")]
    #[arg(long, value_name = "DIR")]
    pub tls_certificates: Option<PathBuf>,
    /// Refuse clients without TLS ('require'), or serve them too ('on')
    #[cfg(feature = "tls")]
    #[arg(
        long,
        value_name = "MODE",
        requires = "tls_certificates",
        hide_short_help = true,
        default_value = "require"
    )]
    pub tls: TlsMode,
    /// Serve only clients with a certificate issued by ca-cert.pem
    #[cfg(feature = "tls")]
    #[arg(long, requires = "tls_certificates", hide_short_help = true)]
    pub tls_verify_peer: bool,
    /// Let clients write, directly to the source
    #[arg(long)]
    pub writable: bool,
    /// Do not lock a writable source against other programs
    #[arg(long, requires = "writable", hide_short_help = true)]
    pub no_lock: bool,
    /// Name of the export; clients may also ask for the empty name
    #[arg(long, value_name = "NAME", default_value = "", hide_short_help = true)]
    pub export: String,
    #[command(flatten)]
    pub server: ServerArgs,
    /// Read ahead the ranges of this plan, in its order
    ///
    /// The plan must contain a single file, or a file with the name of the export, and the file must have the source's
    /// size. Make it with 'foreread plan' from a trace of 'serve --record'. At most a quarter of the cache holds data
    /// that no client has read.
    #[arg(long, value_name = "PLAN", hide_short_help = true)]
    pub plan: Option<PathBuf>,
}

/// Which clients a server with TLS serves.
#[cfg(feature = "tls")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum TlsMode {
    /// Only clients with TLS
    Require,
    /// Clients without TLS too
    On,
}

/// Maximum number of clients. Each connection takes a file descriptor and a thread.
const MAX_CLIENTS: u32 = 2048;

pub fn run(args: &ServeArgs) -> Result<(), Fail> {
    let listen = places(args)?;
    let (settings, options) = args.server.settings()?;
    let reader = Reader::open(args.source.clone(), options)?;
    let (engine, defaults) = (reader.engine().clone(), reader.defaults());
    serving::note_cache(&engine, args.server.cache);
    let room = nbd::make_room(MAX_CLIENTS);
    if room < MAX_CLIENTS {
        note(format!(
            "at most {room} clients instead of {MAX_CLIENTS}: raise the limit of open files (ulimit -Hn)"
        ));
    }
    let following = args
        .plan
        .as_deref()
        .map(|plan| follow(plan, args, &reader))
        .transpose()?;
    let recording = recording::start(args.server.record.as_deref(), "foreread serve")?;
    let of_server = NbdSettings {
        #[cfg(feature = "tls")]
        tls: tls(args)?,
        observer: recording::observer(recording.as_ref()),
        export: args.export.clone(),
        description: reader.describe(),
        writable: args.writable,
        lock: !args.no_lock,
        max_clients: MAX_CLIENTS,
        ..NbdSettings::default()
    };
    let (server, stop) = Server::bind(&listen, reader, of_server)?;
    stop_on_signals(&stop)?;
    if let Some(address) = args
        .tcp
        .filter(|a| !a.ip().is_loopback() && !knows_clients(args))
    {
        let read = if args.writable {
            "read and overwrite"
        } else {
            "read"
        };
        note(format!(
            "any client that reaches {address} can {read} all of {}: there is no password",
            args.source
        ));
    }
    let counter = server.counter();
    let reporter = Reporter::start(&engine, &args.server, move || front(&counter()))?;
    note(settings.line(&engine, defaults));
    out::print(server.uris().join("\n") + "\n")?;
    serving::say_ready();
    let ran = server.run();
    ends::waits_for("the plan");
    drop(following);
    reporter.end();
    let recorded = recording::end(recording);
    ran.map_err(|error| Fail::input("the server ended", error, "start it again"))?;
    recorded
}

/// Starts to read a plan ahead.
fn follow(plan: &Path, args: &ServeArgs, reader: &Reader) -> Result<PlanFollower, Fail> {
    let opened = foreread_plan::text::open(plan)?;
    let names = [
        args.export.clone(),
        args.source.to_string(),
        reader.describe(),
    ];
    let names: Vec<&str> = names
        .iter()
        .map(String::as_str)
        .filter(|name| !name.is_empty())
        .collect();
    let Some(ranges) = ranges_for(&opened, &names, reader.size()) else {
        let what = format!(
            "{}: it contains no file of {} bytes, the size of {}",
            plan.display(),
            reader.size(),
            args.source
        );
        return Err(Fail::input(
            "the plan does not fit the source",
            what,
            "make a plan from a recording of this source",
        ));
    };
    let another = reader.try_clone()?;
    let started = PlanFollower::start(another, ranges, args.server.cache);
    started.map_err(|error| Fail::input("cannot follow the plan", error, "start it again"))
}

/// The addresses where clients connect: the addresses of the options, and the sockets passed by systemd.
fn places(args: &ServeArgs) -> Result<Vec<Listen>, Fail> {
    let unix = args.unix.clone().map(Listen::Unix);
    let mut all: Vec<Listen> = unix.into_iter().chain(args.tcp.map(Listen::Tcp)).collect();
    let mut passed = ListenFd::from_env();
    for at in 0..passed.len() {
        let unix = passed
            .take_unix_listener(at)
            .map(|socket| socket.map(OwnedFd::from));
        let socket = unix.or_else(|_| {
            passed
                .take_tcp_listener(at)
                .map(|socket| socket.map(OwnedFd::from))
        });
        let socket = socket.map_err(|error| {
            let place = format!("socket {at} of LISTEN_FDS ({error})");
            Fail::input(
                "cannot listen",
                place,
                "pass a listening unix or TCP socket (ListenStream=)",
            )
        })?;
        all.extend(socket.map(|socket| Listen::Inherited(Arc::new(socket))));
    }
    if all.is_empty() {
        return Err(Fail::input(
            "missing",
            "an address to listen on",
            "name a socket (--unix PATH) or a port (--tcp [ADDR:]PORT)",
        ));
    }
    Ok(all)
}

/// The server's certificate, if one is given.
#[cfg(feature = "tls")]
fn tls(args: &ServeArgs) -> Result<Option<NbdTls>, Fail> {
    let Some(dir) = &args.tls_certificates else {
        return Ok(None);
    };
    if args.tls == TlsMode::On && args.tls_verify_peer {
        return Err(Fail::input(
            "a client without TLS has no certificate",
            "--tls on and --tls-verify-peer",
            "remove one of them",
        ));
    }
    let tls = NbdTls::load(dir, args.tls_verify_peer)?;
    Ok(Some(if args.tls == TlsMode::On {
        tls.allow_plain()
    } else {
        tls
    }))
}

/// Whether each client must present a certificate.
fn knows_clients(args: &ServeArgs) -> bool {
    #[cfg(feature = "tls")]
    return args.tls_verify_peer;
    #[cfg(not(feature = "tls"))]
    {
        let _ = args;
        false
    }
}

/// Writes a byte to the server's pipe for each signal. A second Ctrl-C ends the process at once.
fn stop_on_signals(stop: &NbdStop) -> Result<(), Fail> {
    signals::end_at_second_signal()?;
    for signal in signals::ending() {
        let pipe = stop.pipe().map_err(signals::no_handler)?;
        signal_hook::low_level::pipe::register(signal, pipe).map_err(signals::no_handler)?;
    }
    Ok(())
}

fn front(counts: &ServerCounts) -> Front {
    Front {
        what: "clients",
        open: counts.clients,
        opened: counts.connections,
        passed: 0,
        requests: counts.requests,
        failed: counts.failed_requests,
        bytes: counts.bytes,
        written: counts.written_bytes,
    }
}
