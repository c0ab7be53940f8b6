//! Three of the four virtual machines of Adam Crume's posting on RBD readahead (ceph-devel, 2014): `boot-virtio`, `grep-ide` and
//! `grep-virtio`. The fourth of these machines is in `boot_ide.rs`.
//!
//! The traces were not published. The posting gives counts, and these reads were generated to match the counts; they are not recordings.
//! `volume.rs` explains what streams, groups and zones are.
//!
//! **Stated in the posting, matched exactly**: the number of reads and of their bytes.
//!
//! | | reads | MB | taken as blocks of 4 KiB |
//! |---|---|---|---|
//! | `boot-virtio` | 11,851 | 393 | 95,947 |
//! | `grep-ide` | 130,104 | 3044 | 743,164 |
//! | `grep-virtio` | 130,061 | 2820 | 688,477 |
//!
//! **Fitted** so that values in the table below match the published ones. Row `plain` (requests and MB): the lengths of
//! streams and the size of their reads. Row `none`: the fraction of groups that are submitted in batches. Row `eager`,
//! or `plain` for `grep-virtio`: the density of a zone. Row `eager` (requests): the number of streams of `boot-virtio`.
//! Each stream is in one of four classes, by its length: for a stream of the first class, `rbd-plain` makes one
//! readahead request, for the others 2, 3 or 4.
//!
//! Results on `model:rbd`, mean of 20 seeds (`compare NAME --on model:rbd --policy none,rbd-plain,rbd-aligned,rbd-eager`), with
//! the published values in brackets. The row `none` of `grep-ide` is one of the two published times to which the device model was fitted.
//! For `grep-virtio`, if the published times of two policies differ by more than their margins, the same policy of the two is faster here.
//!
//! | | detector | seconds | requests | MB |
//! |---|---|---|---|---|
//! | `boot-virtio` | none | 9.04 (9.05 ± 0.25) | | |
//! | | plain | 8.52 (8.05 ± 0.38) | 451 (451) | 222 (221) |
//! | | aligned | 8.54 (7.86 ± 0.27) | 451 (452) | 223 (213) |
//! | | eager | 9.14 (9.17 ± 0.34) | 248 (249) | 623 (600) |
//! | `grep-ide` | none | 138.48 (138.55 ± 1.67) | | |
//! | | plain | 137.5 (136.07 ± 1.57) | 397 (397) | 866 (867) |
//! | | aligned | 137.8 (137.30 ± 1.77) | 401 (379) | 883 (844) |
//! | | eager | 138.0 (138.77 ± 1.52) | 361 (346) | 1067 (993) |
//! | `grep-virtio` | none | 120.99 (120.73 ± 1.33) | | |
//! | | plain | 121.5 (121.29 ± 1.28) | 1186 (1186) | 1484 (1485) |
//! | | aligned | 121.9 (123.32 ± 1.29) | 1195 (1139) | 1519 (1409) |
//! | | eager | 123.3 (127.75 ± 1.32) | 873 (842) | 2415 (2218) |
//!
//! **Assumed**, because the posting says nothing about it: the queue depth (1 for IDE, 4 for virtio), the sizes of reads outside streams,
//! and which reads are submitted together. No byte is read twice.

use super::volume::Shape;
use foreread_core::policy::spec::SpecError;
use foreread_sim::workload::{Info, Workload};

pub static BOOT_VIRTIO: Info = info(
    &BOOT_VIRTIO_SHAPE,
    "boot of a virtual machine from virtio: 11,851 reads, 393 MB, 4 outstanding; needs 1 GiB",
    |_, size, seed| BOOT_VIRTIO_SHAPE.build(size, seed),
);

pub static GREP_IDE: Info = info(
    &GREP_IDE_SHAPE,
    "grep in a virtual machine, IDE: 130,104 reads, 3044 MB, one at a time; needs 5 GiB",
    |_, size, seed| GREP_IDE_SHAPE.build(size, seed),
);

pub static GREP_VIRTIO: Info = info(
    &GREP_VIRTIO_SHAPE,
    "grep in a virtual machine, virtio: 130,061 reads, 2820 MB, 4 outstanding; needs 6 GiB",
    |_, size, seed| GREP_VIRTIO_SHAPE.build(size, seed),
);

const fn info(
    shape: &Shape,
    summary: &'static str,
    build: fn(&[u64], u64, u64) -> Result<Workload, SpecError>,
) -> Info {
    Info {
        name: shape.name,
        summary,
        origin: "Adam Crume, ceph-devel 2014: generated to match the published counts, not a recording",
        least_bytes: shape.least_bytes,
        cache_bytes: None,
        params: &[],
        build,
    }
}

const BOOT_VIRTIO_SHAPE: Shape = Shape {
    name: "boot-virtio",
    least_bytes: 1 << 30,
    reads: 11_851,
    blocks: 95_947,
    streams: &[(63, 11, 15), (60, 16, 30), (40, 31, 60), (37, 61, 110)],
    stream_blocks: &[4, 4, 4, 8],
    other_blocks: &[2, 4, 8, 16, 32],
    zone_percent: 90,
    depth: 4,
    together_percent: 87,
};

const GREP_IDE_SHAPE: Shape = Shape {
    name: "grep-ide",
    least_bytes: 5 << 30,
    reads: 130_104,
    blocks: 743_164,
    streams: &[(93, 11, 15), (67, 16, 30), (38, 31, 56), (14, 57, 88)],
    stream_blocks: &[32],
    other_blocks: &[1, 1, 1, 1, 1, 2, 2, 4, 4, 4, 8, 8, 8, 16],
    zone_percent: 80,
    depth: 1,
    together_percent: 0,
};

const GREP_VIRTIO_SHAPE: Shape = Shape {
    name: "grep-virtio",
    least_bytes: 6 << 30,
    reads: 130_061,
    blocks: 688_477,
    streams: &[(200, 11, 15), (239, 16, 30), (116, 31, 60), (40, 61, 112)],
    stream_blocks: &[16],
    other_blocks: &[1, 1, 1, 1, 1, 1, 1, 2, 2, 4, 4, 4, 8, 8, 16],
    zone_percent: 65,
    depth: 4,
    together_percent: 11,
};
