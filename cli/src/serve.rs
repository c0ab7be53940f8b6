//! `foreread serve`: opens a source, binds the sockets, and prints statistics until it is stopped.
//!
//! Addresses go to stdout, everything else to stderr. Never: serves before it has said where.

use crate::args::ServeArgs;
#[cfg(feature = "tls")]
use crate::args::TlsMode;
use crate::config;
use crate::fail::{Fail, note, say};
use crate::out;
use crate::recording;
use crate::serving::{self, Front, Reporter};
use crate::signals;
use foreread::Reader;
#[cfg(feature = "tls")]
use foreread::front::nbd::NbdTls;
use foreread::front::nbd::{self, Listen, NbdSettings, NbdStop, Server, ServerCounts};
use foreread_attach::warm::engine::{Following, ranges_for};
use listenfd::ListenFd;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

/// Serves until Ctrl-C, SIGTERM or SIGHUP.
pub fn run(args: &ServeArgs) -> Result<(), Fail> {
    let listen = places(args)?;
    let config = config::load()?;
    let (policy, hint) = (
        config.bounded(args.policy.as_deref(), args.max_overfetch.as_deref())?,
        config.hint(args.hint),
    );
    let options = serving::options(&config, &policy, hint.as_ref())
        .cache_bytes(args.cache)
        .appending(args.appending);
    let reader = Reader::open(args.source.clone(), options)
        .map_err(|error| Fail::Input(error.to_string()))?;
    let (engine, defaults) = (reader.engine().clone(), reader.defaults());
    serving::note_cache(&engine, args.cache);
    let room = nbd::make_room(args.max_clients);
    if room < args.max_clients {
        note(format!(
            "room for {room} clients, not {}: raise the limit of open files (ulimit -Hn)",
            args.max_clients
        ));
    }
    let following = args
        .plan
        .as_deref()
        .map(|plan| follow(plan, args, &reader))
        .transpose()?;
    let recording = recording::start(args.record.as_deref(), "foreread serve")?;
    let settings = NbdSettings {
        #[cfg(feature = "tls")]
        tls: tls(args)?,
        observer: recording::observer(recording.as_ref()),
        export: args.export.clone(),
        description: reader.describe(),
        writable: args.writable,
        lock: !args.no_lock,
        max_clients: args.max_clients,
        ..NbdSettings::default()
    };
    let (server, stop) =
        Server::bind(&listen, reader, settings).map_err(|error| Fail::Input(error.to_string()))?;
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
    #[cfg(feature = "metrics")]
    let _metrics = {
        let own = server.counter();
        serving::metrics(args.metrics, &engine, move || front(&own()))?
    };
    note(serving::setup(
        &engine,
        defaults,
        &config.origins(&policy, hint.as_ref()),
    ));
    let counter = server.counter();
    let own = server.counter();
    let reporter = Reporter::start(engine.clone(), move || front(&own()), args.stats_every)?;
    out::print(server.uris().join("\n") + "\n")?;
    let ran = server.run();
    drop(following);
    reporter.end();
    say(serving::line(&engine.stats(), &front(&counter())));
    let recorded = recording::end(recording);
    ran.map_err(|error| Fail::input("the server ended", error, "start it again"))?;
    recorded
}

/// Begins to read a plan ahead.
fn follow(plan: &Path, args: &ServeArgs, reader: &Reader) -> Result<Following, Fail> {
    let opened = foreread_plan::text::open(plan).map_err(|error| Fail::Input(error.to_string()))?;
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
            "{}: no file of {} bytes for {}",
            plan.display(),
            reader.size(),
            args.source
        );
        return Err(Fail::input(
            "the plan does not fit the source",
            what,
            "plan a recording of this source",
        ));
    };
    let another = reader
        .try_clone()
        .map_err(|error| Fail::Input(error.to_string()))?;
    let started = Following::start(another, ranges, args.cache);
    started.map_err(|error| Fail::input("cannot follow the plan", error, "start it again"))
}

/// Where clients connect: the places that are named, and the sockets that systemd passes on.
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
            "nowhere to listen",
            "serve",
            "name a socket (--unix PATH) or a port (--tcp [ADDR:]PORT)",
        ));
    }
    Ok(all)
}

/// The certificate to serve with, if one is named.
#[cfg(feature = "tls")]
fn tls(args: &ServeArgs) -> Result<Option<NbdTls>, Fail> {
    let Some(dir) = &args.tls_certificates else {
        return Ok(None);
    };
    if args.tls == TlsMode::On && args.tls_verify_peer {
        return Err(Fail::input(
            "--tls on",
            "--tls-verify-peer",
            "a client without TLS shows no certificate; leave --tls out, or --tls-verify-peer",
        ));
    }
    let tls =
        NbdTls::load(dir, args.tls_verify_peer).map_err(|error| Fail::Input(error.to_string()))?;
    Ok(Some(if args.tls == TlsMode::On {
        tls.allow_plain()
    } else {
        tls
    }))
}

/// Every client shows a certificate.
fn knows_clients(args: &ServeArgs) -> bool {
    #[cfg(feature = "tls")]
    return args.tls_verify_peer;
    #[cfg(not(feature = "tls"))]
    {
        let _ = args;
        false
    }
}

/// A byte in the server's pipe for each signal. A second Ctrl-C ends the process at once.
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
        requests: counts.requests,
        failed: counts.failed_requests,
        bytes: counts.bytes,
    }
}
