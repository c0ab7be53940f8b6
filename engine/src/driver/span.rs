//! The span of a read, for `tracing` subscribers that enable it: target `foreread::read`, level TRACE.
//!
//! Fields at the start of the read: `stream` and `source` (with the same values as in the metrics), `offset` and `asked_bytes`. Fields at
//! the end of the read: `bytes`, its parts `hit_bytes`, `late_bytes` and `missed_bytes`, and `stall_ns`; if the read has failed, only
//! `error`. `source` is recorded last because formatting it costs an allocation, which is avoided if the subscriber has already dropped
//! the span. Spans `fetch` of the reading thread are inside this span.
//!
//! ```text
//!   no subscriber of TRACE ──► one load and a branch
//!   a subscriber of TRACE  ──► begin ──► the read, in the span ──► end: bytes and parts, then the source
//! ```
//!
//! Example: a read of 8 KiB whose first page is cached has `hit_bytes` 4096 and `missed_bytes` 4096. The field `stall_ns` of this span is
//! the time until the second page arrived.

use super::files::OpenFile;
use crate::error::{Fault, Place, ReadError};
use crate::source::redacted_message;
use foreread_core::machine::LookedUp;
use std::fmt::Display;
use tracing::Span;
use tracing::field::Empty;
use tracing::level_filters::LevelFilter;
use tracing::span::Entered;

#[derive(Debug)]
pub struct ReadSpan {
    span: Span,
    offset: u64,
    len: usize,
}

/// OpenTelemetry integers are signed.
fn int(value: impl TryInto<i64>) -> i64 {
    value.try_into().unwrap_or(i64::MAX)
}

impl ReadSpan {
    /// Whether a `tracing` subscriber may want spans of reads.
    #[inline]
    pub fn is_wanted() -> bool {
        LevelFilter::current() >= LevelFilter::TRACE
    }

    /// Starts the span of a read. Returns `None` if every subscriber ignores it.
    #[cold]
    pub fn begin(at: OpenFile, offset: u64, asked_bytes: usize) -> Option<ReadSpan> {
        let span = tracing::trace_span!(
            target: "foreread::read",
            "read",
            stream = int(at.open.0),
            offset = int(offset),
            asked_bytes = int(asked_bytes),
            bytes = Empty,
            hit_bytes = Empty,
            late_bytes = Empty,
            missed_bytes = Empty,
            stall_ns = Empty,
            error = Empty,
            source = Empty,
        );
        (!span.is_disabled()).then_some(ReadSpan {
            span,
            offset,
            len: asked_bytes,
        })
    }

    pub fn enter(&self) -> Entered<'_> {
        self.span.enter()
    }

    pub fn end(self, outcome: &Result<usize, Fault>, looked_up: LookedUp, source: impl Display) {
        let ReadSpan { span, offset, len } = self;
        match outcome {
            Ok(bytes) => {
                let LookedUp {
                    hit_bytes,
                    late_bytes,
                    missed_bytes,
                    stall_ns,
                } = looked_up;
                tracing::record_all!(
                    span,
                    bytes = int(*bytes),
                    hit_bytes = int(hit_bytes),
                    late_bytes = int(late_bytes),
                    missed_bytes = int(missed_bytes),
                    stall_ns = int(stall_ns),
                    source = %source
                );
            }
            Err(fault) => {
                let source = source.to_string();
                let place = Place {
                    offset,
                    len,
                    source: source.clone(),
                };
                let error = ReadError::new(fault.clone(), place).to_string();
                tracing::record_all!(span, error = redacted_message(&error), source = source);
            }
        }
    }
}
