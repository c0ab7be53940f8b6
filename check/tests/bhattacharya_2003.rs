//! [Bhattacharya 2003] (Suparna Bhattacharya, 2003): 64 KiB random reads by aio-stress, on the model of her disk.
//!
//! Published for a file of 1 GiB: plain (where each read ended before the next began: depth 1), with true asynchronous
//! reads, with the fix. A quarter of the records is read here.

use crate::papers::{mib_per_s, table};
use foreread_check::reproduce::published::bhattacharya_2003::AIO;

const POLICIES: [&str; 3] = ["linux-2.6.0", "linux-2.6.0-mm", "linux-2.6.0-mm-fix"];

#[test]
fn the_fix_reads_what_is_asked_for() {
    let deep = table("aio-random:count=4096", "disk-2003", &POLICIES, 2, None);
    let alone = table(
        "aio-random:count=4096,depth=1",
        "disk-2003",
        &POLICIES[..1],
        2,
        None,
    );
    let plain = mib_per_s(&alone, "linux-2.6.0");
    let (mm, fixed) = (
        mib_per_s(&deep, "linux-2.6.0-mm"),
        mib_per_s(&deep, "linux-2.6.0-mm-fix"),
    );
    println!("plain {plain:.2}, mm {mm:.2}, fixed {fixed:.2} MiB/s; published {AIO:?}");
    let [(_, was_plain, _), (_, was_mm, _), (_, was_fixed, _), _] = AIO;
    assert!(
        fixed > 2.0 * plain,
        "published 2.5 times the plain kernel: {fixed:.2} and {plain:.2}"
    );
    assert!(
        fixed > 8.0 * mm,
        "published 8.9 times the unpatched tree: {fixed:.2} and {mm:.2}"
    );
    assert!(
        mm < plain / 2.0,
        "published: asynchronous reads made it 3.6 times slower: {mm:.2} and {plain:.2}"
    );
    for (measured, published, slack) in [
        (plain, was_plain, 0.25),
        (mm, was_mm, 0.10),
        (fixed, was_fixed, 0.10),
    ] {
        assert!(
            (measured / published - 1.0).abs() < slack,
            "{measured:.2} for {published}"
        );
    }
    // Why: a page at a time against a record at a time.
    let reads = |policy| crate::papers::row(&deep, policy).runs[0].stats.source_reads;
    assert_eq!(
        (reads("linux-2.6.0-mm"), reads("linux-2.6.0-mm-fix")),
        (4096 * 16, 4096)
    );
}
