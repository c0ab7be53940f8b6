//! The client's side of the NBD handshake: it starts TLS if the source's name requests it, then selects the export.
//!
//! ```text
//!   greeting ──► flags ──nbds://──► STARTTLS ──ACK──► TLS ──► GO ──► size, flags, sizes of requests
//!                  │                    └─ anything else: closed. The export's name is never sent in plain text
//!                  └──nbd://──► GO ──► ...
//! ```

use super::failure::{EPROTO, LinkError};
use super::stream::ServerStream;
use super::uri::Address;
use crate::nbd::wire;
use crate::nbd::wire::{handshake_flag, info, option, reply};
use crate::source::{EIO, PieceCopier};
use std::io::IoSliceMut;
use std::ops::Range;
use std::time::Instant;

/// Maximum bytes of a reply to an option.
const MAX_ANSWER: u32 = 64 << 10;
/// Maximum replies to one option.
const MAX_ANSWERS: u32 = 64;

/// The properties of the export, as reported by the server.
pub struct ExportTerms {
    pub size: u64,
    pub flags: u16,
    pub blocks: Blocks,
}

/// Negotiates TLS, if the address requests it, and the export.
pub fn agree(
    stream: &mut ServerStream,
    address: &Address,
    until: Instant,
) -> Result<ExportTerms, LinkError> {
    let mut hello = [0; 18];
    let greeted = stream.receive(&mut hello, until);
    greeted.map_err(LinkError::lost)?;
    let flags = wire::u16_at(&hello, 16);
    if wire::u64_at(&hello, 0) != wire::MAGIC || wire::u64_at(&hello, 8) != wire::OPTION_MAGIC {
        return Err(LinkError::Refused(
            EIO,
            "this is not a newstyle NBD server".to_string(),
        ));
    }
    if flags & handshake_flag::FIXED_NEWSTYLE == 0 {
        return Err(LinkError::Refused(
            EIO,
            "the server is too old: it lacks the fixed newstyle handshake".to_string(),
        ));
    }
    let ours = u32::from(flags & (handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES));
    let mut ask = ours.to_be_bytes().to_vec();
    #[cfg(feature = "tls")]
    if let Some(tls) = &address.tls {
        ask.extend(request(option::STARTTLS, &[]));
        stream.send(&ask).map_err(LinkError::lost)?;
        match answer(stream, option::STARTTLS, until)? {
            (reply::ACK, data) if data.is_empty() => {
                stream.start_tls(&address.place, tls, until)?;
            }
            (reply::ACK, _) => return Err(LinkError::odd("the reply to STARTTLS carries data")),
            (error, data) => return Err(plain_only(error, &data)),
        }
        ask.clear();
    }
    let name = address.export.as_bytes();
    // Request the block sizes. A server may refuse a client that does not request them.
    let wishes = [1, info::BLOCK_SIZE].map(u16::to_be_bytes).concat();
    let data = [&(name.len() as u32).to_be_bytes()[..], name, &wishes].concat();
    ask.extend(request(option::GO, &data));
    let sent = stream.send(&ask).map_err(|error| stream.failed(error));
    // If sending fails under TLS, go on: the server's next message says why it ended TLS.
    if !stream.is_encrypted() {
        sent?;
    }
    let (mut found, mut blocks) = (None, Blocks::ANY);
    for _ in 0..MAX_ANSWERS {
        let (kind, data) = answer(stream, option::GO, until)?;
        match kind {
            reply::ACK => {
                let (size, flags) = found.ok_or_else(|| LinkError::odd("no size"))?;
                return Ok(ExportTerms {
                    size,
                    flags,
                    blocks,
                });
            }
            reply::INFO if data.len() >= 12 && wire::u16_at(&data, 0) == info::EXPORT => {
                found = Some((wire::u64_at(&data, 2), wire::u16_at(&data, 10)));
            }
            reply::INFO if data.len() >= 14 && wire::u16_at(&data, 0) == info::BLOCK_SIZE => {
                let named = Blocks::of(wire::u32_at(&data, 2), wire::u32_at(&data, 10));
                blocks = named.ok_or_else(|| {
                    LinkError::odd("request sizes that the protocol does not allow")
                })?;
            }
            reply::INFO => {}
            error => return Err(refused(error, &data)),
        }
    }
    Err(LinkError::odd("too many answers"))
}

fn request(option: u32, data: &[u8]) -> Vec<u8> {
    let mut request = wire::OPTION_MAGIC.to_be_bytes().to_vec();
    request.extend(option.to_be_bytes());
    request.extend((data.len() as u32).to_be_bytes());
    request.extend(data);
    request
}

/// Receives one reply to an option.
fn answer(stream: &ServerStream, option: u32, until: Instant) -> Result<(u32, Vec<u8>), LinkError> {
    let mut head = [0; 20];
    let failed = |error| stream.failed(error);
    stream.receive(&mut head, until).map_err(failed)?;
    if wire::u64_at(&head, 0) != wire::OPTION_REPLY_MAGIC || wire::u32_at(&head, 8) != option {
        return Err(LinkError::odd(
            "a reply to an option that was not requested",
        ));
    }
    let len = wire::u32_at(&head, 16);
    if len > MAX_ANSWER {
        return Err(LinkError::odd(
            "a reply of more than 65536 bytes to an option",
        ));
    }
    let mut data = vec![0; len as usize];
    stream.receive(&mut data, until).map_err(failed)?;
    Ok((wire::u32_at(&head, 12), data))
}

#[cfg(feature = "tls")]
/// The error if the server, or something between it and us, reports that there is no TLS.
fn plain_only(error: u32, data: &[u8]) -> LinkError {
    let what = match error {
        reply::ERR_UNSUP | reply::ERR_POLICY => "the server has no TLS",
        _ => "the server refuses TLS",
    };
    LinkError::no_tls(
        EPROTO,
        format!("{what}{}", said(data)),
        "start it with TLS (nbdkit --tls=require, foreread serve --tls-certificates), or write nbd:// if plain text will do",
    )
}

fn refused(error: u32, data: &[u8]) -> LinkError {
    let what = match error {
        reply::ERR_UNKNOWN => "the server has no export of this name",
        reply::ERR_TLS_REQD => {
            return LinkError::no_tls(
                EPROTO,
                format!("the server requires TLS{}", said(data)),
                "write nbds:// (nbds+unix://) instead of nbd://",
            );
        }
        reply::ERR_UNSUP => "the server is too old: it does not support the option NBD_OPT_GO",
        _ => "the server refuses",
    };
    LinkError::Refused(EIO, format!("{what}{}", said(data)))
}

/// The server's own message, in parentheses.
fn said(data: &[u8]) -> String {
    let said: String = String::from_utf8_lossy(data)
        .chars()
        .filter(|c| !c.is_control())
        .take(200)
        .collect();
    if said.is_empty() {
        String::new()
    } else {
        format!(" ({said})")
    }
}

// The request sizes that a server accepts (`NBD_INFO_BLOCK_SIZE`).
//
// ```text
//   minimum 64K, maximum 1M          read 100K..1200K
//   requests                     64K..1088K │ 1088K..1216K       each into a bounce buffer; 100K..1200K is copied
// ```
// A read that already matches the sizes goes straight into its buffers. A server that states no sizes accepts any request of up
// to 32 MiB, as the protocol specifies.

/// Maximum bytes of a request if the server states no maximum.
const MAX_REQUEST: u64 = 32 << 20;
/// Largest minimum that the protocol allows.
const MAX_MINIMUM: u64 = 64 << 10;
/// Bytes of a bounce buffer, unless a block is larger.
const BESIDE_BYTES: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// Requests begin and end at multiples of it, or at the end of the export. A power of two.
    minimum: u64,
    /// Maximum bytes of a request, a multiple of the minimum.
    maximum: u64,
}

impl Blocks {
    /// Limits that allow requests of any size up to 32 MiB.
    pub const ANY: Blocks = Blocks {
        minimum: 1,
        maximum: MAX_REQUEST,
    };

    /// Creates limits from the minimum and maximum request size that a server has stated; returns `None` if these sizes violate the
    /// protocol.
    pub fn of(minimum: u32, maximum: u32) -> Option<Blocks> {
        let minimum = u64::from(minimum);
        let maximum = u64::from(maximum).min(MAX_REQUEST) / minimum.max(1) * minimum;
        let is_legal = minimum.is_power_of_two() && minimum <= MAX_MINIMUM && maximum > 0;
        is_legal.then_some(Blocks { minimum, maximum })
    }

    /// Returns the aligned requests that are needed to read the range `wanted` of an export of `size` bytes. Also returns true if
    /// these requests cover exactly this range.
    pub fn requests(
        self,
        wanted: Range<u64>,
        size: u64,
    ) -> (impl Iterator<Item = Range<u64>>, bool) {
        let start = wanted.start / self.minimum * self.minimum;
        let end = wanted
            .end
            .next_multiple_of(self.minimum)
            .min(size)
            .max(start);
        let fits = (start, end) == (wanted.start, wanted.end);
        let step = if fits {
            self.maximum
        } else {
            self.maximum.min(BESIDE_BYTES.max(self.minimum))
        };
        let step = usize::try_from(step).unwrap_or(usize::MAX);
        (
            (start..end)
                .step_by(step)
                .map(move |at| at..end.min(at + step as u64)),
            fits,
        )
    }
}

/// Copies the requested part of `bytes` into `bufs`. `bytes` were read at `offset`; `bufs` begin at the offset `wanted`.
pub fn copy(bytes: &[u8], offset: u64, bufs: &mut [IoSliceMut<'_>], wanted: u64) {
    let before = bytes.len().min(wanted.saturating_sub(offset) as usize);
    let skip = offset.saturating_sub(wanted) as usize;
    PieceCopier::new([&bytes[before..]]).fill(bufs, skip);
}

#[cfg(test)]
mod tests {
    use super::*;

    const K: u64 = 1 << 10;

    /// Their beginnings and ends, and whether they fit.
    fn requests(blocks: Blocks, wanted: Range<u64>, size: u64) -> (Vec<(u64, u64)>, bool) {
        let (requests, fits) = blocks.requests(wanted, size);
        (
            requests
                .map(|request| (request.start, request.end))
                .collect(),
            fits,
        )
    }

    #[test]
    fn requests_keep_to_the_sizes() {
        let blocks = Blocks::of(64 << 10, 1 << 20).expect("legal");
        assert_eq!(
            requests(blocks, 100 * K..1200 * K, 4 << 20),
            (vec![(64 * K, 1088 * K), (1088 * K, 1216 * K)], false)
        );
        assert_eq!(
            requests(blocks, 64 * K..128 * K, 4 << 20),
            (vec![(64 * K, 128 * K)], true)
        );
        // The export ends within a block.
        assert_eq!(
            requests(blocks, 64 * K..70 * K, 70 * K),
            (vec![(64 * K, 70 * K)], true)
        );
        assert_eq!(
            requests(blocks, 69 * K..70 * K, 70 * K),
            (vec![(64 * K, 70 * K)], false)
        );
        // A maximum that is no multiple of the minimum is rounded down.
        let blocks = Blocks::of(512, 1300).expect("legal");
        assert_eq!(
            requests(blocks, 0..2048, 4096),
            (vec![(0, 1024), (1024, 2048)], true)
        );
        assert_eq!(requests(Blocks::ANY, 3..5, 4096), (vec![(3, 5)], true));
    }

    #[test]
    fn sizes_against_the_protocol_are_refused() {
        for (minimum, maximum) in [
            (0, 1 << 20),
            (3, 1 << 20),
            (128 << 10, 1 << 20),
            (4096, 0),
            (4096, 4095),
        ] {
            assert_eq!(Blocks::of(minimum, maximum), None, "{minimum}, {maximum}");
        }
        assert_eq!(Blocks::of(1, u32::MAX), Some(Blocks::ANY));
    }
}
