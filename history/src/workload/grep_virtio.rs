//! The reads of a large grep in a virtual machine with a virtio disk: 130,061 reads, 2820 MB, four outstanding.
//!
//! It replaces the trace `grep-virtio` of Adam Crume's posting on RBD readahead (ceph-devel, 2014), which was not
//! published. The posting gives counts, and this list was generated to match them; it is not a recording. `volume.rs`
//! describes how reads become streams, groups and zones.
//!
//! **Stated in the posting, matched exactly**: 130,061 reads; 2820 MB, taken as 688,477 blocks of 4 KiB.
//!
//! **Fitted**: lengths of the streams and the size of a read in them (`plain`: 1186 requests, 1485 MB; the classes are
//! those in which `plain` makes 1, 2, 3 or 4 requests); the share of groups that are submitted in batches, 11 %
//! (`none`: 120.73 s); the density of a zone, 65 % (`plain`: 121.29 s).
//!
//! Results on `model:rbd`, mean of 20 seeds (`compare grep-virtio --on model:rbd --policy
//! none,rbd-plain,rbd-aligned,rbd-eager`); the published values are in brackets:
//!
//! | detector | seconds | requests | MB |
//! |---|---|---|---|
//! | none | 120.99 (120.73 ± 1.33) | | |
//! | plain | 121.5 (121.29 ± 1.28) | 1186 (1186) | 1484 (1485) |
//! | aligned | 121.9 (123.32 ± 1.29) | 1195 (1139) | 1519 (1409) |
//! | eager | 123.3 (127.75 ± 1.32) | 873 (842) | 2415 (2218) |
//!
//! Every difference that is larger than the published margins has the published sign.
//!
//! **Assumed**, with nothing in the posting to check it: depth 4, no byte is read twice, the sizes of reads outside
//! streams, and which reads are submitted together.
//!
//! See `volume.rs` for the constraints.

use super::volume::{Shape, Streams};
use foreread_sim::workload::Info;

pub static INFO: Info = Info {
    name: SHAPE.name,
    summary: "grep in a virtual machine, virtio: 130,061 reads, 2820 MB, 4 outstanding; needs 6 GiB",
    origin: "Adam Crume, ceph-devel 2014: generated to match the published counts, not a recording",
    least_bytes: SHAPE.least_bytes,
    cache_bytes: None,
    params: &[],
    build: |_, size, seed| SHAPE.build(size, seed),
};

const SHAPE: Shape = Shape {
    name: "grep-virtio",
    least_bytes: 6 << 30,
    reads: 130_061,
    blocks: 688_477,
    streams: &[
        Streams {
            count: 200,
            shortest: 11,
            longest: 15,
        },
        Streams {
            count: 239,
            shortest: 16,
            longest: 30,
        },
        Streams {
            count: 116,
            shortest: 31,
            longest: 60,
        },
        Streams {
            count: 40,
            shortest: 61,
            longest: 112,
        },
    ],
    stream_blocks: &[16],
    other_blocks: &[1, 1, 1, 1, 1, 1, 1, 2, 2, 4, 4, 4, 8, 8, 16],
    zone_percent: 65,
    depth: 4,
    together_percent: 11,
};
