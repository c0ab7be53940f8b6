//! The reads of a virtual machine that boots from a virtio disk: 11,851 reads, 393 MB, four outstanding.
//!
//! It replaces the trace `boot-virtio` of Adam Crume's posting on RBD readahead (ceph-devel, 2014), which was not
//! published. The posting gives counts, and this list was generated to match them; it is not a recording. `volume.rs`
//! describes how reads become streams, groups and zones.
//!
//! **Stated in the posting, matched exactly**: 11,851 reads; 393 MB, taken as 95,947 blocks of 4 KiB.
//!
//! **Fitted**, each to the figure in brackets: lengths of the streams and the size of a read in them (`plain`: 451
//! requests, 221 MB; the classes are those in which `plain` makes 1, 2, 3 or 4 requests); the number of streams
//! (`eager`: 249 requests); the share of groups that are submitted in batches, 87 % (`none`: 9.05 s); the density of a
//! zone, 90 % (`eager`: 9.17 s).
//!
//! Results on `model:rbd`, mean of 20 seeds (`compare boot-virtio --on model:rbd --policy
//! none,rbd-plain,rbd-aligned,rbd-eager`); the published values are in brackets:
//!
//! | detector | seconds | requests | MB |
//! |---|---|---|---|
//! | none | 9.04 (9.05 ± 0.25) | | |
//! | plain | 8.52 (8.05 ± 0.38) | 451 (451) | 222 (221) |
//! | aligned | 8.54 (7.86 ± 0.27) | 451 (452) | 223 (213) |
//! | eager | 9.14 (9.17 ± 0.34) | 248 (249) | 623 (600) |
//!
//! **Assumed**, with nothing in the posting to check it: depth 4, no byte is read twice, the sizes of reads outside
//! streams, and which reads are submitted together.
//!
//! See `volume.rs` for the constraints.

use super::volume::{Shape, Streams};
use foreread_sim::workload::Info;

pub static INFO: Info = Info {
    name: SHAPE.name,
    summary: "boot of a virtual machine from virtio: 11,851 reads, 393 MB, 4 outstanding; needs 1 GiB",
    origin: "Adam Crume, ceph-devel 2014: generated to match the published counts, not a recording",
    least_bytes: SHAPE.least_bytes,
    cache_bytes: None,
    params: &[],
    build: |_, size, seed| SHAPE.build(size, seed),
};

const SHAPE: Shape = Shape {
    name: "boot-virtio",
    least_bytes: 1 << 30,
    reads: 11_851,
    blocks: 95_947,
    streams: &[
        Streams {
            count: 63,
            shortest: 11,
            longest: 15,
        },
        Streams {
            count: 60,
            shortest: 16,
            longest: 30,
        },
        Streams {
            count: 40,
            shortest: 31,
            longest: 60,
        },
        Streams {
            count: 37,
            shortest: 61,
            longest: 110,
        },
    ],
    stream_blocks: &[4, 4, 4, 8],
    other_blocks: &[2, 4, 8, 16, 32],
    zone_percent: 90,
    depth: 4,
    together_percent: 87,
};
