//! Input that untrusted clients can send to the NBD server.
//!
//! The checks do not use the protocol code that they check: this module has separate implementations of the rules and the framing.

use super::BrokenPromise;
use crate::{check, fill};
use foreread::front::nbd::{Listen, NbdSettings, Server};
use foreread::nbd::handshake::{Handshake, MAX_OPTION_BYTES, MAX_OPTIONS, Then, TlsOffer};
use foreread::nbd::validate::{Export, MAX_LEN, Order, validate};
use foreread::nbd::wire::{self, Request, command, transmission};
use foreread::source::Mem;
use foreread::{Options, Reader};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Tests the handshake with the first bytes that a client sends. Returns an error if the handshake requests too many bytes, does
/// not end, or sends an invalid answer.
pub fn handshake(data: &[u8]) -> Result<(), BrokenPromise> {
    let export = Export {
        name: "disk".into(),
        description: "d".repeat(50),
        size: 1 << 40,
        flags: 1,
        knows_holes: true,
    };
    // TLS depends on whether the length is even or odd, so that both cases occur.
    let tls = if data.len().is_multiple_of(2) {
        TlsOffer::None
    } else {
        TlsOffer::Required
    };
    let mut shake = Handshake::new(export, tls);
    let (mut rest, mut out, mut steps) = (data, Vec::new(), 0);
    loop {
        let wants = shake.wants();
        if wants > MAX_OPTION_BYTES as usize {
            return Err(format!("it wants {wants} bytes"));
        }
        let Some((bytes, behind)) = rest.split_at_checked(wants) else {
            return Ok(());
        };
        rest = behind;
        out.clear();
        let then = shake.take(bytes, &mut out);
        steps += 1;
        if steps > 1 + 2 * (MAX_OPTIONS + 1) {
            return Err("it does not end".to_string());
        }
        // An option of 16 KiB may request as many answers, each of them short.
        if out.len() > MAX_OPTION_BYTES as usize / 2 * 100 {
            return Err(format!("{} bytes of answers to one option", out.len()));
        }
        let old = !out.is_empty() && wire_u64(&out, 0) != Some(wire::OPTION_REPLY_MAGIC);
        match then {
            Then::Close(_) => return Ok(()),
            Then::StartTls if tls == TlsOffer::None => {
                return Err("TLS that was not offered".into());
            }
            // The old handshake has an answer without a header.
            Then::Transmission if old => {
                return if matches!(out.len(), 10 | 134) {
                    Ok(())
                } else {
                    Err("odd".into())
                };
            }
            _ => replies(&out)?,
        }
        if then == Then::Transmission {
            return Ok(());
        }
    }
}

fn wire_u64(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8).map(|_| wire::u64_at(bytes, at))
}

/// Checks that these bytes are complete replies to options.
fn replies(mut bytes: &[u8]) -> Result<(), BrokenPromise> {
    while !bytes.is_empty() {
        let whole = wire_u64(bytes, 0) == Some(wire::OPTION_REPLY_MAGIC) && bytes.len() >= 20;
        let len = if whole {
            wire::u32_at(bytes, 16) as usize
        } else {
            0
        };
        bytes = bytes
            .get(20 + len..)
            .filter(|_| whole)
            .ok_or("an invalid answer")?;
    }
    Ok(())
}

/// Tests a sequence of requests to exports of several sizes, read-only and writable. Returns an error if a request is not parsed as
/// it was written, or if a rule of the protocol is violated.
pub fn requests(data: &[u8]) -> Result<(), BrokenPromise> {
    let Some((&[kind, size], rest)) = data.split_first_chunk::<2>() else {
        return Ok(());
    };
    let size = [0, 1, 4096, 1 << 31, (1 << 32) + 1, 1 << 62, u64::MAX][usize::from(size) % 7];
    let flags = if kind % 2 == 0 {
        transmission::READ_ONLY
    } else {
        0
    };
    let export = Export {
        name: String::new(),
        description: String::new(),
        size,
        flags,
        knows_holes: flags & 1 == 0,
    };
    for bytes in rest.chunks_exact(Request::BYTES) {
        let mut bytes: [u8; Request::BYTES] = bytes.try_into().map_err(|_| "28")?;
        if kind & 2 != 0 {
            bytes[..4].copy_from_slice(&wire::REQUEST_MAGIC.to_be_bytes());
        }
        let Some(request) = Request::parse(&bytes) else {
            if bytes[..4] == wire::REQUEST_MAGIC.to_be_bytes() {
                return Err("a request was not parsed".to_string());
            }
            continue;
        };
        if request.bytes() != bytes {
            return Err(format!("{request:?} is encoded differently"));
        }
        let inside = request.len > 0
            && u128::from(request.offset) + u128::from(request.len) <= u128::from(size);
        let brings = if request.command == command::WRITE {
            request.len
        } else {
            0
        };
        let holds = match validate(&request, &export) {
            Ok(Order::Read { offset, len }) => {
                inside
                    && len <= MAX_LEN
                    && (offset, len, request.command) == (request.offset, request.len, 0)
            }
            Ok(Order::Write { offset, len, .. }) => {
                inside
                    && len <= MAX_LEN
                    && flags == 0
                    && (offset, len) == (request.offset, request.len)
            }
            Ok(Order::Zero { .. }) => {
                inside && flags == 0 && request.command == command::WRITE_ZEROES
            }
            Ok(Order::Status { .. }) => {
                inside && export.knows_holes && request.command == command::BLOCK_STATUS
            }
            Ok(Order::Cache { .. }) => inside && request.command == command::CACHE,
            Ok(Order::Flush) => request.command == command::FLUSH,
            Ok(Order::Disconnect) => request.command == command::DISC,
            Err(refusal) => {
                refusal.error != 0 && refusal.payload == brings && !refusal.message.is_empty()
            }
        };
        if !holds {
            return Err(format!(
                "{request:?} of {size} bytes: {:?}",
                validate(&request, &export)
            ));
        }
    }
    Ok(())
}

/// Size of the export in conversations.
const SIZE: u64 = 300_001;

/// A server of self-naming bytes, used for all conversations of this process.
fn server() -> &'static PathBuf {
    static SERVER: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = SERVER.get_or_init(|| {
        let dir = tempfile::tempdir().expect("a place for a socket");
        let path = dir.path().join("s");
        let source = Mem::generated(SIZE, |offset, buf| fill(buf, offset, 0));
        let options = Options::default().cache_bytes(64 << 10).threads(1);
        let reader = Reader::open(Arc::new(source), options).expect("a reader of memory");
        let settings = NbdSettings {
            stall: Duration::from_secs(5),
            ..NbdSettings::default()
        };
        let (server, stop) =
            Server::bind(&[Listen::Unix(path.clone())], reader, settings).expect("a socket");
        std::thread::spawn(move || {
            let _stop = stop;
            server.run()
        });
        (dir, path)
    });
    path
}

/// Sends the bytes of a client after the handshake to a complete server: each reply must belong to a request. Returns an error if there are
/// too many or too few replies, or if a reply is invalid or has a wrong byte.
pub fn conversation(data: &[u8]) -> Result<(), BrokenPromise> {
    let io = |error: std::io::Error| format!("the socket: {error}");
    let mut stream = UnixStream::connect(server()).map_err(io)?;
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .map_err(io)?;
    let mut hello = [0; 28];
    let option = [
        &[0, 0, 0, 3][..],
        &wire::OPTION_MAGIC.to_be_bytes(),
        &[0, 0, 0, 1],
        &[0; 4],
    ]
    .concat();
    stream
        .write_all(&option)
        .and_then(|()| stream.read_exact(&mut hello))
        .map_err(io)?;
    let expected = expected(data);
    let mut sender = stream.try_clone().map_err(io)?;
    let bytes = data.to_vec();
    // Answers must be read while requests are sent, or both sides wait for each other.
    let sent = std::thread::spawn(move || {
        let _ = sender
            .write_all(&bytes)
            .and_then(|()| sender.shutdown(Shutdown::Write));
    });
    let mut all = Vec::new();
    // If a server disconnects with unread bytes, the connection is reset; answers before that count.
    match stream.read_to_end(&mut all) {
        Err(error) if error.kind() != std::io::ErrorKind::ConnectionReset => return Err(io(error)),
        _ => {}
    }
    let _ = sent.join();
    compare(expected, &all)
}

/// The expected answer to a request: its cookie, and the bytes to read if it is not refused.
struct Due {
    cookie: u64,
    read: Option<(u64, u32)>,
    refused: bool,
}

fn expected(mut data: &[u8]) -> Vec<Due> {
    let mut due = Vec::new();
    while let Some((head, rest)) = data.split_first_chunk::<{ Request::BYTES }>() {
        let Some(Request {
            flags,
            command: what,
            cookie,
            offset,
            len,
        }) = Request::parse(head)
        else {
            break;
        };
        let inside = len > 0
            && offset
                .checked_add(u64::from(len))
                .is_some_and(|end| end <= SIZE);
        let known = flags & !(1 | if what == command::READ { 4 } else { 0 }) == 0;
        let fine = match what {
            command::READ | command::CACHE => inside && known,
            command::FLUSH => offset == 0 && len == 0 && known,
            command::DISC if known => break,
            _ => false,
        };
        let payload = if what == command::WRITE {
            len as usize
        } else {
            0
        };
        let Some(behind) = rest.get(payload..) else {
            break;
        };
        data = behind;
        let read = (fine && what == command::READ).then_some((offset, len));
        due.push(Due {
            cookie,
            read,
            refused: !fine,
        });
    }
    due
}

fn compare(mut due: Vec<Due>, mut answers: &[u8]) -> Result<(), BrokenPromise> {
    let all = due.len();
    while !answers.is_empty() {
        let Some((head, rest)) = answers.split_first_chunk::<16>() else {
            return Err("an incomplete answer".to_string());
        };
        let (magic, error, cookie) = (
            wire::u32_at(head, 0),
            wire::u32_at(head, 4),
            wire::u64_at(head, 8),
        );
        if magic != wire::SIMPLE_MAGIC {
            return Err(format!("an answer that starts with {magic:#x}"));
        }
        // Two requests may have the same cookie, and answers may come in any order. So one of the requests must match, and be
        // followed by another answer or by the end, because one answer may be a prefix of the other.
        let fits = |d: &Due| {
            let bytes = d.read.map_or(0, |r| r.1 as usize);
            let right = |(offset, _)| {
                rest.get(..bytes)
                    .is_some_and(|b| check(b, offset, 0).is_ok())
            };
            let next = rest.get(bytes..).unwrap_or_default();
            let ends = next.is_empty() || next.starts_with(&wire::SIMPLE_MAGIC.to_be_bytes());
            d.cookie == cookie && d.refused == (error != 0) && d.read.is_none_or(right) && ends
        };
        let place = due.iter().position(fits);
        let place = place.ok_or_else(|| {
            let due: Vec<String> = due.iter().map(|d| format!("{:#x} {:?} {}", d.cookie, d.read, d.refused)).collect();
            let (left, due) = (rest.len(), due.join(", "));
            format!("an answer to {cookie:#x} with error {error} and {left} bytes behind it; due are {due}")
        })?;
        let bytes = due.remove(place).read.map_or(0, |r| r.1 as usize);
        answers = &rest[bytes..];
    }
    if due.is_empty() {
        Ok(())
    } else {
        Err(format!("{} of {all} requests have no answer", due.len()))
    }
}
