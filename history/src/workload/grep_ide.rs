//! The reads of a large grep in a virtual machine with an IDE disk: 130,104 reads, 3044 MB, one at a time.
//!
//! It replaces the trace `grep-ide` of Adam Crume's posting on RBD readahead (ceph-devel, 2014), which was not
//! published. The posting gives counts, and this list was generated to match them; it is not a recording. `volume.rs`
//! describes how reads become streams, groups and zones.
//!
//! **Stated in the posting, matched exactly**: 130,104 reads; 3044 MB, taken as 743,164 blocks of 4 KiB.
//!
//! **Fitted**: lengths of the streams and the size of a read in them (`plain`: 397 requests, 867 MB; the classes are
//! those in which `plain` makes 1, 2, 3 or 4 requests); the density of a zone, 80 % (`eager`: 138.77 s).
//!
//! Results on `model:rbd`, mean of 20 seeds (`compare grep-ide --on model:rbd --policy
//! none,rbd-plain,rbd-aligned,rbd-eager`); the published values are in brackets. The row `none` is one of the two to
//! which the model was fitted:
//!
//! | detector | seconds | requests | MB |
//! |---|---|---|---|
//! | none | 138.48 (138.55 ± 1.67) | | |
//! | plain | 137.5 (136.07 ± 1.57) | 397 (397) | 866 (867) |
//! | aligned | 137.8 (137.30 ± 1.77) | 401 (379) | 883 (844) |
//! | eager | 138.0 (138.77 ± 1.52) | 361 (346) | 1067 (993) |
//!
//! **Assumed**, with nothing in the posting to check it: depth 1, no byte is read twice, and the sizes of reads outside
//! streams.
//!
//! See `volume.rs` for the constraints.

use super::volume::{Shape, Streams};
use foreread_sim::workload::Info;

pub static INFO: Info = Info {
    name: SHAPE.name,
    summary: "grep in a virtual machine, IDE: 130,104 reads, 3044 MB, one at a time; needs 5 GiB",
    origin: "Adam Crume, ceph-devel 2014: generated to match the published counts, not a recording",
    least_bytes: SHAPE.least_bytes,
    cache_bytes: None,
    params: &[],
    build: |_, size, seed| SHAPE.build(size, seed),
};

const SHAPE: Shape = Shape {
    name: "grep-ide",
    least_bytes: 5 << 30,
    reads: 130_104,
    blocks: 743_164,
    streams: &[
        Streams {
            count: 93,
            shortest: 11,
            longest: 15,
        },
        Streams {
            count: 67,
            shortest: 16,
            longest: 30,
        },
        Streams {
            count: 38,
            shortest: 31,
            longest: 56,
        },
        Streams {
            count: 14,
            shortest: 57,
            longest: 88,
        },
    ],
    stream_blocks: &[32],
    other_blocks: &[1, 1, 1, 1, 1, 2, 2, 4, 4, 4, 8, 8, 8, 16],
    zone_percent: 80,
    depth: 1,
    together_percent: 0,
};
