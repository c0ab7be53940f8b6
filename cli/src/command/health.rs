//! `foreread health`: does what runs here answer? One line for each mount and server, and an exit code: for a container's health check.
//!
//! Never: waits longer than [`PATIENCE`] for any of them.

use crate::fail::{Fail, one_line};
use crate::out;
use foreread_os::host::{FOREREAD_MOUNT, Host, last_at};
use foreread_os::threads::Task;
use percent_encoding::percent_decode_str;
use std::ffi::OsString;
use std::fmt::Display;
use std::io::Read;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Say whether mounts and servers here answer
///
/// Exit code 1 if one does not answer within 3 seconds, or if there is none: for the health check of a container. A mount is asked for the
/// attributes of its folder, a server for its greeting. Without arguments: every mount of foreread that is seen here, and the server at
/// 127.0.0.1:10809 if something listens there; a server on a unix socket is asked where it is named.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foreread health
  foreread health mnt nbd://127.0.0.1:10809
  foreread health 'nbd+unix:///?socket=/run/foreread-serve-vm1/nbd.sock'")]
pub struct HealthArgs {
    /// Folders that are mounted on, and servers as nbd://HOST[:PORT] or nbd+unix:///?socket=PATH
    #[arg(value_name = "DIR|nbd://HOST")]
    pub what: Vec<String>,
}

const PATIENCE: Duration = Duration::from_secs(3);
const NBD_PORT: u16 = 10809;
/// What a server of NBD says first (the protocol's specification, "newstyle negotiation").
const GREETING: &[u8; 16] = b"NBDMAGICIHAVEOPT";

/// Asks all, prints what each said, and fails if one did not answer.
pub fn run(args: &HealthArgs) -> Result<(), Fail> {
    let mut said = Vec::new();
    if args.what.is_empty() {
        let mounts = Host::here().mounts();
        let ours = mounts.iter().filter(|mount| mount.kind == FOREREAD_MOUNT);
        said.extend(ours.map(|mount| (mount.point.display().to_string(), folder(&mount.point))));
        let name = format!("nbd://127.0.0.1:{NBD_PORT}");
        let here = server(&name);
        if !matches!(here, Err(Refusal::NothingListens)) {
            said.push((name, here));
        }
    }
    for what in &args.what {
        let is_server = what.starts_with("nbd") && what.contains("://");
        let answer = if is_server {
            server(what)
        } else {
            folder(Path::new(what))
        };
        said.push((what.clone(), answer));
    }
    if said.is_empty() {
        let remedy = "name a folder that is mounted on, or nbd://HOST:PORT";
        return Err(Fail::check(
            "no mount and no server of foreread",
            "here",
            remedy,
        ));
    }
    for (what, answer) in &said {
        let line = match answer {
            Ok(()) => format!("{what}: answers"),
            Err(why) => format!("{what}: {why}"),
        };
        out::print(one_line(&line) + "\n")?;
    }
    match said.iter().find(|(_, answer)| answer.is_err()) {
        None => Ok(()),
        Some(_) => Err(Fail::Passed(1)),
    }
}

/// Why something is not well.
enum Refusal {
    NothingListens,
    Said(String),
}

impl Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refusal::NothingListens => f.write_str("nothing listens there"),
            Refusal::Said(why) => f.write_str(why),
        }
    }
}

/// Asks in a thread, since a mount may never answer.
fn asked<T: Send + 'static>(
    ask: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let said = |why: &str| Refusal::Said(why.to_string());
    let task =
        Task::start("foreread-health", ask).map_err(|error| Refusal::Said(error.to_string()))?;
    let silent = || said("no answer within 3 seconds");
    task.within(PATIENCE).ok_or_else(silent)?
}

/// Is it mounted on, and does the mount answer?
fn folder(dir: &Path) -> Result<(), Refusal> {
    let dir: PathBuf = dir.to_path_buf();
    asked(move || {
        let mounts = Host::here().mounts();
        let place = std::path::absolute(&dir).map_err(refusal)?;
        if last_at(&mounts, &place).is_none_or(|mount| mount.kind != FOREREAD_MOUNT) {
            return Err(Refusal::Said("no mount of foreread".to_string()));
        }
        std::fs::metadata(&dir).map(drop).map_err(refusal)
    })
}

/// Does a server greet? It does before TLS and before it is asked for an export, so neither matters in its name.
fn server(name: &str) -> Result<(), Refusal> {
    let said = |why: &str| Refusal::Said(why.to_string());
    let (scheme, rest) = name.split_once("://").unwrap_or(("", name));
    let (before, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (host, _) = before.split_once('/').unwrap_or((before, ""));
    match scheme {
        "nbd" | "nbds" => {
            let to = match host.rsplit_once(':') {
                Some((_, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => {
                    host.to_string()
                }
                _ => format!("{host}:{NBD_PORT}"),
            };
            asked(move || {
                let to = to.to_socket_addrs().map_err(refusal)?.next();
                let to = to.ok_or_else(|| said("the host has no address"))?;
                let stream = TcpStream::connect_timeout(&to, PATIENCE).map_err(refusal)?;
                stream.set_read_timeout(Some(PATIENCE)).map_err(refusal)?;
                greets(stream)
            })
        }
        "nbd+unix" | "nbds+unix" => {
            let socket = query
                .split('&')
                .find_map(|pair| pair.strip_prefix("socket="));
            let socket = socket.filter(|path| !path.is_empty());
            let Some(socket) = socket else {
                return Err(said("no socket is named: write nbd+unix:///?socket=PATH"));
            };
            let path = OsString::from_vec(percent_decode_str(socket).collect());
            asked(move || greets(UnixStream::connect(path).map_err(refusal)?))
        }
        _ => Err(said(
            "it is no server of NBD: write nbd://HOST[:PORT] or nbd+unix:///?socket=PATH",
        )),
    }
}

fn greets(mut stream: impl Read) -> Result<(), Refusal> {
    let mut greeting = [0; GREETING.len()];
    stream.read_exact(&mut greeting).map_err(refusal)?;
    match &greeting == GREETING {
        true => Ok(()),
        false => Err(Refusal::Said("no server of NBD".to_string())),
    }
}

fn refusal(error: std::io::Error) -> Refusal {
    match error.kind() {
        std::io::ErrorKind::ConnectionRefused => Refusal::NothingListens,
        _ => Refusal::Said(error.to_string()),
    }
}
