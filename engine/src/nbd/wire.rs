//! The wire format of the NBD protocol: constants, requests and replies.
//!
//! The source is the public protocol document (`doc/proto.md` of the NBD project). All integers are big-endian. This module
//! uses no socket, makes no decision (see `handshake` and `validate`), and trusts no length without a check.

use rustix::net::sockopt;
use std::net::TcpStream;
use std::time::Duration;

/// The magic number in the first eight bytes that a server sends.
pub const MAGIC: u64 = 0x4e42_444d_4147_4943;
/// The magic number in the next eight bytes that a newstyle server sends, and at the start of each option.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// The magic number at the start of each reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// The magic number at the start of a request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// The magic number at the start of a simple reply.
pub const SIMPLE_MAGIC: u32 = 0x6744_6698;
/// The magic number at the start of a chunk of a structured reply.
pub const CHUNK_MAGIC: u32 = 0x668e_33ef;

/// Handshake flags; server and client use the same bits.
pub mod handshake_flag {
    /// The server can refuse a single option without ending the handshake.
    pub const FIXED_NEWSTYLE: u16 = 1;
    /// The reply to `EXPORT_NAME` is sent without the 124 zero bytes.
    pub const NO_ZEROES: u16 = 2;
}

/// Options that a client may send in the handshake.
#[allow(missing_docs, reason = "the names of the protocol document")]
pub mod option {
    pub const EXPORT_NAME: u32 = 1;
    pub const ABORT: u32 = 2;
    pub const LIST: u32 = 3;
    pub const STARTTLS: u32 = 5;
    pub const INFO: u32 = 6;
    pub const GO: u32 = 7;
    pub const STRUCTURED_REPLY: u32 = 8;
    pub const LIST_META_CONTEXT: u32 = 9;
    pub const SET_META_CONTEXT: u32 = 10;
}

/// The types of replies to an option.
#[allow(missing_docs, reason = "the names of the protocol document")]
pub mod reply {
    pub const ACK: u32 = 1;
    pub const SERVER: u32 = 2;
    pub const INFO: u32 = 3;
    pub const META_CONTEXT: u32 = 4;
    pub const ERR: u32 = 1 << 31;
    pub const ERR_UNSUP: u32 = ERR + 1;
    pub const ERR_POLICY: u32 = ERR + 2;
    pub const ERR_INVALID: u32 = ERR + 3;
    pub const ERR_TLS_REQD: u32 = ERR + 5;
    pub const ERR_UNKNOWN: u32 = ERR + 6;
}

/// The types of `INFO` replies.
#[allow(missing_docs, reason = "the names of the protocol document")]
pub mod info {
    pub const EXPORT: u16 = 0;
    pub const NAME: u16 = 1;
    pub const DESCRIPTION: u16 = 2;
    pub const BLOCK_SIZE: u16 = 3;
}

/// Transmission flags of an export.
#[allow(missing_docs, reason = "the names of the protocol document")]
pub mod transmission {
    pub const HAS_FLAGS: u16 = 1;
    pub const READ_ONLY: u16 = 1 << 1;
    pub const SEND_FLUSH: u16 = 1 << 2;
    pub const SEND_FUA: u16 = 1 << 3;
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub const SEND_DF: u16 = 1 << 7;
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    pub const SEND_CACHE: u16 = 1 << 10;
}

/// Commands of a request.
#[allow(missing_docs, reason = "the names of the protocol document")]
pub mod command {
    pub const READ: u16 = 0;
    pub const WRITE: u16 = 1;
    pub const DISC: u16 = 2;
    pub const FLUSH: u16 = 3;
    pub const TRIM: u16 = 4;
    pub const CACHE: u16 = 5;
    pub const WRITE_ZEROES: u16 = 6;
    pub const BLOCK_STATUS: u16 = 7;
}

/// Flags of a request.
#[allow(missing_docs, reason = "the names of the protocol document")]
pub mod command_flag {
    pub const FUA: u16 = 1;
    pub const NO_HOLE: u16 = 1 << 1;
    pub const DF: u16 = 1 << 2;
    pub const REQ_ONE: u16 = 1 << 3;
}

/// The types and flags of chunks of a structured reply.
#[allow(missing_docs, reason = "the names of the protocol document")]
pub mod chunk {
    pub const DONE: u16 = 1;
    pub const NONE: u16 = 0;
    pub const OFFSET_DATA: u16 = 1;
    pub const BLOCK_STATUS: u16 = 5;
    pub const ERROR: u16 = (1 << 15) + 1;
}

/// The metadata context for holes, and its two flags. A hole gets both flags, because its bytes read as zeroes.
pub mod allocation {
    /// The name of the metadata context for holes.
    pub const NAME: &str = "base:allocation";
    /// The number that this server gives the metadata context for holes.
    pub const ID: u32 = 1;
    /// Flag: the extent uses no space in the storage.
    pub const HOLE: u32 = 1;
    /// Flag: the extent reads as zeroes.
    pub const ZERO: u32 = 2;
}

/// Error numbers of the protocol. The numbers are the same as in Linux.
#[allow(missing_docs, reason = "the names of the protocol document")]
pub mod errno {
    pub const EPERM: u32 = 1;
    pub const EIO: u32 = 5;
    pub const ENOMEM: u32 = 12;
    pub const EINVAL: u32 = 22;
    pub const ENOSPC: u32 = 28;
    pub const EOVERFLOW: u32 = 75;
    pub const ENOTSUP: u32 = 95;
    pub const ESHUTDOWN: u32 = 108;
}

/// Converts an error number (errno) of the system to an error number of the protocol. An error that the protocol does not define becomes
/// EIO.
#[must_use]
pub fn wire_errno(system: i32) -> u32 {
    use errno::{EINVAL, EIO, ENOMEM, ENOSPC, EOVERFLOW, EPERM};
    match u32::try_from(system) {
        Ok(n @ (EPERM | EIO | ENOMEM | EINVAL | ENOSPC | EOVERFLOW)) => n,
        _ => EIO,
    }
}

/// A request in wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// See [`command_flag`].
    pub flags: u16,
    /// See [`command`].
    pub command: u16,
    /// The client's identifier for the request.
    pub cookie: u64,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub len: u32,
}

impl Request {
    /// Number of bytes of a request without its payload.
    pub const BYTES: usize = 28;

    /// Parses a request. Returns `None` if it does not start with [`REQUEST_MAGIC`].
    #[must_use]
    pub fn parse(bytes: &[u8; Request::BYTES]) -> Option<Request> {
        (u32_at(bytes, 0) == REQUEST_MAGIC).then(|| Request {
            flags: u16_at(bytes, 4),
            command: u16_at(bytes, 6),
            cookie: u64_at(bytes, 8),
            offset: u64_at(bytes, 16),
            len: u32_at(bytes, 24),
        })
    }

    /// The request in wire format.
    #[must_use]
    pub fn bytes(&self) -> [u8; Request::BYTES] {
        let mut out = [0; Request::BYTES];
        out[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        out[4..6].copy_from_slice(&self.flags.to_be_bytes());
        out[6..8].copy_from_slice(&self.command.to_be_bytes());
        out[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        out[16..24].copy_from_slice(&self.offset.to_be_bytes());
        out[24..].copy_from_slice(&self.len.to_be_bytes());
        out
    }
}

/// A simple reply; the data of a read follows it.
#[must_use]
pub fn simple(error: u32, cookie: u64) -> [u8; 16] {
    let mut out = [0; 16];
    out[..4].copy_from_slice(&SIMPLE_MAGIC.to_be_bytes());
    out[4..8].copy_from_slice(&error.to_be_bytes());
    out[8..].copy_from_slice(&cookie.to_be_bytes());
    out
}

/// The header of a chunk; `len` bytes of payload follow it.
#[must_use]
pub fn chunk_head(flags: u16, kind: u16, cookie: u64, len: u32) -> [u8; 20] {
    let mut out = [0; 20];
    out[..4].copy_from_slice(&CHUNK_MAGIC.to_be_bytes());
    out[4..6].copy_from_slice(&flags.to_be_bytes());
    out[6..8].copy_from_slice(&kind.to_be_bytes());
    out[8..16].copy_from_slice(&cookie.to_be_bytes());
    out[16..].copy_from_slice(&len.to_be_bytes());
    out
}

/// The header of the reply to a successful read, which has only one chunk. The caller sends the `len` bytes of data from `offset` after
/// this header.
#[must_use]
pub fn data_head(cookie: u64, offset: u64, len: u32) -> [u8; 28] {
    let mut out = [0; 28];
    out[..20].copy_from_slice(&chunk_head(
        chunk::DONE,
        chunk::OFFSET_DATA,
        cookie,
        len.saturating_add(8),
    ));
    out[20..].copy_from_slice(&offset.to_be_bytes());
    out
}

/// The reply to a BLOCK_STATUS request, which has only one chunk. Each extent has a length and the flags of [`allocation`].
#[must_use]
pub fn status_chunk(cookie: u64, extents: &[(u32, u32)]) -> Vec<u8> {
    let mut out = chunk_head(
        chunk::DONE,
        chunk::BLOCK_STATUS,
        cookie,
        4 + 8 * extents.len() as u32,
    )
    .to_vec();
    out.extend(allocation::ID.to_be_bytes());
    for (len, flags) in extents {
        out.extend(len.to_be_bytes());
        out.extend(flags.to_be_bytes());
    }
    out
}

/// The reply to a failed request, which has only one chunk. A long message is truncated.
#[must_use]
pub fn error_chunk(cookie: u64, error: u32, message: &str) -> Vec<u8> {
    /// The protocol allows strings of 4096 bytes.
    const LONGEST: usize = 1024;
    let mut end = message.len().min(LONGEST);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    let text = &message.as_bytes()[..end];
    let mut out = chunk_head(chunk::DONE, chunk::ERROR, cookie, 6 + text.len() as u32).to_vec();
    out.extend(error.to_be_bytes());
    out.extend((text.len() as u16).to_be_bytes());
    out.extend(text);
    out
}

/// The number in the two bytes at `at`, which must exist.
pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// The number in the four bytes at `at`, which must exist.
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) << 16 | u32::from(u16_at(bytes, at + 2))
}

/// The number in the eight bytes at `at`, which must exist.
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) << 32 | u64::from(u32_at(bytes, at + 4))
}

// Detects TCP connections whose peer has vanished: a machine that lost power, a firewall that dropped its state.
//
// Unix sockets do not need this: the kernel knows when their peer is gone.

/// Keepalive: idle time before the first probe, time between probes, and number of probes. A silent peer is given up after five
/// minutes; with the system's defaults it takes more than two hours.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(120);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(30);
const KEEPALIVE_PROBES: u32 = 6;

/// Enables TCP keepalive, which detects that the peer is no longer reachable.
pub fn keep_alive(stream: &TcpStream) -> std::io::Result<()> {
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_EVERY)?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVE_PROBES)?;
    Ok(sockopt::set_socket_keepalive(stream, true)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_as_it_was_written() {
        let request = Request {
            flags: 5,
            command: command::WRITE,
            cookie: 0x0102_0304_0506_0708,
            offset: 1 << 40,
            len: 9,
        };
        let bytes = request.bytes();
        assert_eq!(bytes[..8], [0x25, 0x60, 0x95, 0x13, 0, 5, 0, 1]);
        assert_eq!(bytes[24..], [0, 0, 0, 9]);
        assert_eq!(Request::parse(&bytes), Some(request));
        let mut other = bytes;
        other[3] ^= 1;
        assert_eq!(Request::parse(&other), None);
    }

    #[test]
    fn replies_by_the_byte() {
        assert_eq!(
            simple(5, 7),
            [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 7]
        );
        let head = data_head(7, 512, 4096);
        assert_eq!(head[..8], [0x66, 0x8e, 0x33, 0xef, 0, 1, 0, 1]);
        assert_eq!((u32_at(&head, 16), u64_at(&head, 20)), (4104, 512));
        let error = error_chunk(7, errno::EIO, "no");
        assert_eq!(
            (u16_at(&error, 6), u32_at(&error, 16), u32_at(&error, 20)),
            (chunk::ERROR, 8, 5)
        );
        assert_eq!(&error[24..], [0, 2, b'n', b'o']);
        // Cut between letters, not inside one.
        let long = error_chunk(7, errno::EIO, &("x".to_string() + &"\u{e9}".repeat(1000)));
        assert_eq!((u16_at(&long, 24), long.len()), (1023, 26 + 1023));
    }

    #[test]
    fn errors_that_the_protocol_does_not_have_become_eio() {
        assert_eq!(
            (
                wire_errno(28),
                wire_errno(116),
                wire_errno(-1),
                wire_errno(0)
            ),
            (28, 5, 5, 5)
        );
    }
}
