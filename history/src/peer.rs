//! Imitations of other programs' readahead, to be compared with on models: how each decides, in this project's cache.
//!
//! They are written from descriptions and measurements of the programs, not from their code, and are no more than
//! that: a row `peer-...` says what such decisions lead to, not how fast the program is. The caches differ: the machine
//! keeps what was read until it needs the room, never fetches a byte that is in flight a second time, and serves a
//! reader as soon as its own bytes are there. Each file says what of its program it cannot reproduce. What one of them
//! fetches together with a read counts as readahead, so a read that found nothing is shown as one that was late.
//!
//! They run on models only; to measure the program on a file, run the program.

mod fsspec_adaptive;
mod fsspec_blockcache;
mod fsspec_readahead;
mod mountpoint_s3;
mod nbdkit;

use crate::policy::{OPPONENTS, policies};
use foreread_core::policy::{Answer, Ask, Info, Param, PolicyDraft, SpecError, Unit};
use foreread_core::units::ByteRange;

/// Every imitation, in the order of `foreread list policies`.
pub static ALL: &[&Info] = &[
    &nbdkit::INFO,
    &fsspec_readahead::INFO,
    &fsspec_blockcache::INFO,
    &fsspec_adaptive::INFO,
    &mountpoint_s3::INFO,
];

/// True for one of these.
#[must_use]
pub fn is_one(info: &Info) -> bool {
    ALL.iter().any(|peer| peer.name == info.name)
}

/// Reads `NAME:key=value,...` of a policy, an opponent or an imitation.
///
/// # Errors
/// Those of [`PolicyDraft::parse_among`].
pub fn parse(text: &str) -> Result<PolicyDraft, SpecError> {
    PolicyDraft::parse_among(text, &[&policies(), OPPONENTS, ALL])
}

/// Sizes of parameters: small enough that a file's offset and several of them cannot overflow.
const SIZES: (u64, u64) = (512, 1 << 40);

/// The block of `fsspec`'s caches: 5 MiB unless its user says otherwise.
const BLOCK: Param = Param {
    key: "block",
    unit: Unit::Bytes,
    default: "5M",
    range: SIZES,
    help: "size of a block",
};

/// The bytes of a read that the file has; none where there are none.
fn wanted(ask: &Ask<'_>) -> Option<(u64, u64)> {
    let (start, end) = (ask.request.start(), ask.request.end().min(ask.file_size));
    (start < end).then_some((start, end))
}

/// Whole blocks around the bytes from `start` to `end`.
fn round_out(start: u64, end: u64, block: u64) -> (u64, u64) {
    (start / block * block, end.div_ceil(block) * block)
}

/// Reads the bytes from `start` to `end`, if there are any.
fn read(answer: &mut Answer, start: u64, end: u64) {
    if start < end {
        answer.read(start, end - start, None);
    }
}

/// Gives up the bytes from `start` to `end`, but for a page that is only cut at the end.
fn give_up(ask: &Ask<'_>, answer: &mut Answer, start: u64, end: u64) {
    let end = if end < ask.file_size {
        end - end % ask.probe.page_bytes()
    } else {
        end
    };
    if start < end {
        answer.drop.push(ByteRange::between(start, end));
    }
}
