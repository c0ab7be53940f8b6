//! The buffer of a hard disk: it holds data that the head has read for commands, and data that the disk reads ahead by itself.
//!
//! The buffer has several segments, each with consecutive bytes of one file. The segment that was used last may be *live*: the head
//! is at the end of the segment's data and continues to read. The head stops when the segment holds `segment_bytes` bytes that no command
//! has requested yet, or when a command moves the head. The buffer only holds data that has passed under the head.
//!
//! ```text
//!   a segment      start ├───────────────┼──────────────────┤ end ····► limit = asked + segment_bytes
//!                                      asked       the head, if it is live
//!
//!   a command within a segment                    is a hit
//!   one that begins in the live segment           takes the bytes that the head reads on
//!   one that begins in another, or in a full one  takes its bytes, and the rest from the platter
//! ```

use super::platter::Platter;
use crate::device::span_ns;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BufferModel {
    /// Number of segments; 0: no buffer.
    pub segments: u32,
    pub segment_bytes: u64,
    /// The fixed time of a hit, in nanoseconds.
    pub hit_ns: u64,
    /// Bytes per second from the buffer to the host. Not 0.
    pub interface_bytes_per_s: u64,
}

impl BufferModel {
    /// Nanoseconds of a hit of `bytes`.
    pub(super) fn hit_ns(&self, bytes: u64) -> u64 {
        self.hit_ns
            .saturating_add(span_ns(bytes, self.interface_bytes_per_s))
    }
}

#[derive(Debug)]
pub(super) struct Buffer {
    model: BufferModel,
    /// Segments; the one used last is at the back.
    segments: VecDeque<Segment>,
    /// The time since which the head has been reading on at the end of the last segment.
    live_since_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Segment {
    file: u32,
    start: u64,
    end: u64,
    /// The end of the bytes that commands have requested.
    asked: u64,
}

impl Buffer {
    pub(super) fn new(model: BufferModel) -> Buffer {
        Buffer {
            model,
            segments: VecDeque::new(),
            live_since_ns: None,
        }
    }

    /// The end of segment `n` at `now_ns`.
    fn end(&self, n: usize, now_ns: u64, platter: &Platter) -> u64 {
        let segment = &self.segments[n];
        let Some(since_ns) = self.live_since_ns.filter(|_| n + 1 == self.segments.len()) else {
            return segment.end;
        };
        let read = platter.bytes_in(segment.end, now_ns.saturating_sub(since_ns));
        segment.end.saturating_add(read).min(self.limit(segment))
    }

    fn limit(&self, segment: &Segment) -> u64 {
        segment
            .asked
            .saturating_add(self.model.segment_bytes)
            .max(segment.end)
    }

    /// The segment that holds byte `at`; the end of a segment counts if the head is there.
    fn find(&self, file: u32, at: u64, now_ns: u64, platter: &Platter) -> Option<usize> {
        let last = self.segments.len().checked_sub(1)?;
        (0..=last).rev().find(|&n| {
            let segment = &self.segments[n];
            let end = self.end(n, now_ns, platter);
            let live = n == last && self.live_since_ns.is_some();
            segment.file == file && segment.start <= at && (at < end || (live && at == end))
        })
    }

    /// Whether byte `at` is available without a wait.
    pub(super) fn holds_first(&self, file: u32, at: u64, now_ns: u64, platter: &Platter) -> bool {
        self.find(file, at, now_ns, platter).is_some()
    }

    /// The end of the bytes that are held from `at` on; `at` itself if none are.
    pub(super) fn held_until(&self, file: u32, at: u64, now_ns: u64, platter: &Platter) -> u64 {
        self.find(file, at, now_ns, platter)
            .map_or(at, |n| self.end(n, now_ns, platter))
    }

    /// The position of the head, if it is reading on.
    pub(super) fn head(&self, now_ns: u64, platter: &Platter) -> Option<u64> {
        self.live_since_ns?;
        Some(self.end(self.segments.len().checked_sub(1)?, now_ns, platter))
    }

    /// Starts a command for `at..end` at `now_ns`. If it only needs bytes that are in the buffer, or that the head
    /// keeps reading, returns the time at which all of them are there. Requested bytes make room in the segment: a head
    /// that had stopped continues when its position comes by again.
    pub(super) fn take(
        &mut self,
        file: u32,
        at: u64,
        end: u64,
        now_ns: u64,
        platter: &Platter,
    ) -> Option<u64> {
        let n = self.find(file, at, now_ns, platter)?;
        let held = self.end(n, now_ns, platter);
        let live_since_ns = self.live_since_ns.filter(|_| n + 1 == self.segments.len());
        if live_since_ns.is_none() {
            if held < end {
                return None;
            }
            // A hit in an older segment needs the drive's controller, so the head stops reading on.
            self.stop(now_ns, platter);
        }
        let stopped = held == self.limit(&self.segments[n]);
        let mut segment = self.segments.remove(n)?;
        segment.end = held;
        self.live_since_ns = live_since_ns.map(|since_ns| {
            let turn_ns = if stopped {
                platter.wait_ns(platter.angle_at(now_ns), 0, platter.angle(held))
            } else {
                0
            };
            since_ns.max(now_ns) + turn_ns
        });
        let read_on_ns = || {
            self.live_since_ns
                .map_or(now_ns, |since_ns| since_ns + platter.transfer_ns(held, end))
        };
        let ready_ns = if end <= held { now_ns } else { read_on_ns() };
        segment.asked = segment.asked.max(end);
        segment.start = segment
            .start
            .max(segment.asked.saturating_sub(self.model.segment_bytes))
            .min(held);
        self.segments.push_back(segment);
        Some(ready_ns)
    }

    /// A command moves the head, so it stops reading on.
    pub(super) fn stop(&mut self, now_ns: u64, platter: &Platter) {
        if let Some(end) = self.head(now_ns, platter)
            && let Some(last) = self.segments.back_mut()
        {
            last.end = end;
        }
        self.live_since_ns = None;
    }

    /// The head has read `start..end` and stays there from `now_ns` on.
    pub(super) fn fill(&mut self, file: u32, start: u64, end: u64, now_ns: u64) {
        if self.model.segments == 0 {
            return;
        }
        let oldest = end.saturating_sub(self.model.segment_bytes);
        let before = self
            .segments
            .iter()
            .position(|s| s.file == file && s.start <= start && start <= s.end);
        let first = before
            .and_then(|n| self.segments.remove(n))
            .map_or(start, |s| s.start);
        self.segments.push_back(Segment {
            file,
            start: first.max(oldest),
            end,
            asked: end,
        });
        if self.segments.len() > self.model.segments as usize {
            self.segments.pop_front();
        }
        self.live_since_ns = Some(now_ns);
    }
}
