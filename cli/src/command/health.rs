//! `foreread health`: checks that mounts and servers on this machine answer, for a container's health check. Prints one
//! line for each mount or server, and sets the exit code.
//!
//! ```text
//!   folders ──► a process for each: a system call on a hung mount blocks its process     servers ──► a thread for each
//!                    └── all at once, for PATIENCE; checks that have not answered are abandoned ──┘
//! ```
//! The command never waits longer than [`PATIENCE`] for a mount or server.

use crate::fail::{Fail, one_line};
use crate::out;
use foreread::source::SourceName;
use foreread_os::host::{FOREREAD_MOUNT, Host, last_at};
use foreread_os::open::ask_file_system;
use foreread_os::threads::Task;
use foreread_os::unmount;
use foreread_pagecache::program;
use percent_encoding::percent_decode_str;
use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::io::{ErrorKind, Read};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Check that mounts and servers on this machine answer
///
/// This command is made for the health check of a container. The exit code is 1 if a mount or server does not answer within 3 seconds,
/// or if there is none. A mount must answer statfs, a server must send its NBD greeting. Without arguments it checks
/// every visible foreread mount, and the server at 127.0.0.1:10809 if something listens there. Servers on unix sockets
/// are checked only if they are given as arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foreread health
  foreread health mnt nbd://127.0.0.1:10809
  foreread health 'nbd+unix:///?socket=/run/foreread-serve-vm1/nbd.sock'")]
pub struct HealthArgs {
    /// Mount points, and servers as nbd://HOST[:PORT] or nbd+unix:///?socket=PATH
    #[arg(value_name = "DIR|nbd://HOST")]
    pub what: Vec<OsString>,
    /// Check the folder named by an environment variable, without a time limit
    #[arg(long, hide = true)]
    ask: bool,
}

const PATIENCE: Duration = Duration::from_secs(3);
/// The variable with the folder that a child process started with `--ask` checks.
const ASKED: &str = "FOREREAD_HEALTH_ASKED";
/// Interval at which the parent checks whether a child process has ended.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// The server that is checked without arguments, in addition to the mounts.
const HERE: &str = "nbd://127.0.0.1:10809";
const NBD_PORT: u16 = 10809;
/// The greeting of an NBD server (protocol specification, "newstyle negotiation").
const GREETING: &[u8; 16] = b"NBDMAGICIHAVEOPT";

pub fn run(args: &HealthArgs) -> Result<(), Fail> {
    if args.ask {
        let dir = std::env::var_os(ASKED).unwrap_or_default();
        let Err(why) = folder(Path::new(&dir)) else {
            return Ok(());
        };
        out::print(why.to_string())?;
        return Err(Fail::Passed(1));
    }
    let mut what = args.what.clone();
    if what.is_empty() {
        let mounts = Host::here().mounts().into_iter();
        let ours = mounts.filter(|mount| mount.kind == FOREREAD_MOUNT);
        what.extend(ours.map(|mount| mount.point.into_os_string()));
        what.push(HERE.into());
    }
    let asked = Vec::from_iter(what.iter().map(|what| HealthCheck::begin(what)));
    let until = Instant::now() + PATIENCE;
    let (mut is_well, mut is_none) = (true, true);
    for (what, asked) in what.iter().zip(asked) {
        let answer = asked.answer(until);
        if args.what.is_empty() && matches!(answer, Err(Refusal::NothingListens)) {
            continue;
        }
        is_none = false;
        is_well &= answer.is_ok();
        let what = SourceName::from(what.as_os_str());
        let line = match answer {
            Ok(()) => format!("{what}: answers"),
            Err(why) => format!("{what}: {why}"),
        };
        out::print(one_line(&line) + "\n")?;
    }
    if is_none {
        let remedy = "name a mount point, or nbd://HOST:PORT";
        return Err(Fail::check("no foreread mount or server found", "", remedy));
    }
    if is_well {
        Ok(())
    } else {
        Err(Fail::Passed(1))
    }
}

/// The reason why a check failed.
enum Refusal {
    NothingListens,
    Said(String),
}

impl Refusal {
    fn said(why: impl Display) -> Refusal {
        Refusal::Said(why.to_string())
    }
}

impl Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refusal::NothingListens => f.write_str("nothing listens there"),
            Refusal::Said(why) => f.write_str(why),
        }
    }
}

/// A running check.
enum HealthCheck {
    Server(Task<Result<(), Refusal>>),
    Folder(Child),
    Refused(Refusal),
}

impl HealthCheck {
    fn begin(what: &OsStr) -> HealthCheck {
        let begun = match what.to_str().filter(|text| text.contains("://")) {
            Some(name) => server(name).and_then(|ask| {
                let task = Task::start("foreread-health", ask).map_err(Refusal::said)?;
                Ok(HealthCheck::Server(task))
            }),
            // An argument that is not a folder may be the name of a source with a password, and every user can see arguments.
            None => program::again()
                .args(["health", "--ask"])
                .env(ASKED, what)
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .map(HealthCheck::Folder)
                .map_err(Refusal::said),
        };
        begun.unwrap_or_else(HealthCheck::Refused)
    }

    fn answer(self, until: Instant) -> Result<(), Refusal> {
        let left = || until.saturating_duration_since(Instant::now());
        let silent = || Refusal::said("no answer within 3 seconds");
        match self {
            HealthCheck::Refused(why) => Err(why),
            HealthCheck::Server(task) => task.within(left()).ok_or_else(silent)?,
            HealthCheck::Folder(mut child) => loop {
                match child.try_wait().map_err(Refusal::said)? {
                    Some(status) if status.success() => return Ok(()),
                    Some(_) => {
                        let mut why = String::new();
                        let said = child
                            .stdout
                            .take()
                            .map(|mut said| said.read_to_string(&mut why));
                        return Err(match said {
                            Some(Ok(bytes)) if bytes > 0 => Refusal::Said(why),
                            _ => Refusal::said("it cannot be checked"),
                        });
                    }
                    // If the mount's server hangs, the child process cannot be killed, so waiting for it could take forever.
                    None if left().is_zero() => return Err(silent()),
                    None => std::thread::sleep(LOOK_EVERY.min(left())),
                }
            },
        }
    }
}

/// Checks that the folder is a mount point and that the mount answers. For statfs the kernel always asks the server.
fn folder(dir: &Path) -> Result<(), Refusal> {
    let mounts = Host::here().mounts();
    let is_ours =
        |place: &Path| last_at(&mounts, place).is_some_and(|mount| mount.kind == FOREREAD_MOUNT);
    let place = std::path::absolute(dir).map_err(Refusal::said)?;
    // Links above the folder are followed. The folder itself gets as few system calls as possible, because its server may be gone.
    let above = place.parent().and_then(|above| above.canonicalize().ok());
    let named = above
        .zip(dir.file_name())
        .map(|(above, name)| above.join(name));
    let found = named.filter(|place| is_ours(place));
    let found = found.or_else(|| dir.canonicalize().ok().filter(|place| is_ours(place)));
    let place = found.ok_or_else(|| Refusal::said("not a foreread mount"))?;
    ask_file_system(&place).map_err(|error| match error.kind() {
        ErrorKind::NotConnected => {
            let remedy = unmount::remedy(&place);
            Refusal::said(format!("its server has ended; {remedy}"))
        }
        _ => Refusal::said(error),
    })
}

type AskServer = Box<dyn FnOnce() -> Result<(), Refusal> + Send>;

/// Checks that a server sends its greeting. The greeting comes before TLS and before an export is chosen, so the name's TLS and export do not matter.
fn server(name: &str) -> Result<AskServer, Refusal> {
    let (scheme, rest) = name.split_once("://").unwrap_or(("", name));
    let (before, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (host, _) = before.split_once('/').unwrap_or((before, ""));
    let (_, host) = host.rsplit_once('@').unwrap_or(("", host));
    match &scheme.to_ascii_lowercase()[..] {
        "nbd" | "nbds" => {
            let to = match host.rsplit_once(':') {
                Some((host, "")) => format!("{host}:{NBD_PORT}"),
                Some((_, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => {
                    host.to_string()
                }
                _ => format!("{host}:{NBD_PORT}"),
            };
            Ok(Box::new(move || greets(connected(&to)?)))
        }
        "nbd+unix" | "nbds+unix" => {
            let socket = query
                .split('&')
                .find_map(|pair| pair.strip_prefix("socket="));
            let socket = socket.filter(|path| !path.is_empty());
            let Some(socket) = socket else {
                let why = "no socket is given: write nbd+unix:///?socket=PATH";
                return Err(Refusal::said(why));
            };
            let path = OsString::from_vec(percent_decode_str(socket).collect());
            Ok(Box::new(move || {
                greets(UnixStream::connect(path).map_err(refusal)?)
            }))
        }
        _ => Err(Refusal::said(
            "not the name of an NBD server: write nbd://HOST[:PORT] or nbd+unix:///?socket=PATH",
        )),
    }
}

/// Connects to the first address of a host that accepts a connection.
fn connected(to: &str) -> Result<TcpStream, Refusal> {
    let mut last = Refusal::said("the host name cannot be resolved");
    for address in to.to_socket_addrs().map_err(refusal)? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = refusal(error),
        }
    }
    Err(last)
}

fn greets(mut stream: impl Read) -> Result<(), Refusal> {
    let mut greeting = [0; GREETING.len()];
    stream.read_exact(&mut greeting).map_err(refusal)?;
    match &greeting == GREETING {
        true => Ok(()),
        false => Err(Refusal::said("not an NBD server")),
    }
}

fn refusal(error: std::io::Error) -> Refusal {
    match error.kind() {
        std::io::ErrorKind::ConnectionRefused => Refusal::NothingListens,
        _ => Refusal::said(error),
    }
}
