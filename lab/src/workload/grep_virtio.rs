//! The reads of a large grep in a virtual machine with a virtio disk: 130,061 of them, 2820 MB, four outstanding.
//!
//! It stands in for the trace `grep-virtio` of Adam Crume's posting on RBD readahead (ceph-devel, 2014), which was not
//! published. The posting gives counts, and this list was made to meet them; it is no recording. How reads become
//! streams, groups and zones is told in `volume.rs`.
//!
//! **Stated in the posting, met exactly**: 130,061 reads; 2820 MB, taken as 688,477 blocks of 4 KiB.
//!
//! **Fitted**: lengths of the streams and the size of a read in them (`plain`: 1186 requests, 1485 MB; the classes are
//! those in which `plain` makes 1, 2, 3 or 4 requests); the pauses (`none`: 120.73 s); how dense a zone is, 70 % for
//! both `grep-*`, with the times of all detectors in view.
//!
//! The pauses put in 4 / (1 + 2.5) = 1.14 reads at a time; behind the shared link 1.12 come out: the reads one
//! after the other would take 134.86 s.
//!
//! What comes out on `model:rbd`, mean of 20 seeds, in brackets what was published:
//!
//! | detector | seconds | requests | MB |
//! |---|---|---|---|
//! | none | 120.66 (120.73 ± 1.33) | | |
//! | plain | 119.88 (121.29 ± 1.28) | 1186 (1186) | 1484 (1485) |
//! | aligned | 120.03 (123.32 ± 1.29) | 1196 (1139) | 1520 (1409) |
//! | eager | 123.48 (127.75 ± 1.32) | 868 (842) | 2399 (2218) |
//!
//! The posting has `plain` and `aligned` a little slower than `none` (by 0.5 and 2.1 %), here they are a little faster
//! (by 0.6 and 0.5 %); `eager` is the slowest in both.
//!
//! **Assumed**, with nothing in the posting to check it: depth 4, that no byte is read twice, the sizes of reads
//! outside streams, and that a pause is what waiting for another read comes to.
//!
//! Never: see `volume.rs`.

use super::volume::{Shape, Streams};
use super::Info;

/// What there is to know of it.
pub static INFO: Info = Info {
    name: SHAPE.name,
    summary: "grep in a virtual machine, virtio: 130,061 reads, 2820 MB, 4 outstanding; needs 5 GiB",
    origin: "Adam Crume, ceph-devel 2014: made to meet the published counts, not a recording",
    least_bytes: SHAPE.least_bytes,
    cache_bytes: None,
    params: &[],
    build: |_, size, seed| SHAPE.build(size, seed),
};

const SHAPE: Shape = Shape {
    name: "grep-virtio",
    least_bytes: 5 << 30,
    reads: 130_061,
    blocks: 688_477,
    streams: &[
        Streams { count: 200, shortest: 11, longest: 15 },
        Streams { count: 239, shortest: 16, longest: 30 },
        Streams { count: 116, shortest: 31, longest: 60 },
        Streams { count: 40, shortest: 61, longest: 112 },
    ],
    stream_blocks: &[16],
    other_blocks: &[1, 1, 1, 1, 1, 1, 1, 2, 2, 4, 4, 4, 8, 8, 16],
    zone_percent: 70,
    depth: 4,
    pause_percent: 250,
};
