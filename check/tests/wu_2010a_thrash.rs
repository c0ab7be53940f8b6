//! [Wu 2010a] (Wu Fengguang, 2010) proposed thrashing-safe readahead and published no measurement of it. Here: slow
//! sequential readers whose windows do not fit into 16 MiB, on the disk of that posting.

use crate::papers::{mean, table};

/// Source MiB and seconds of both policies, with windows of at most `max`.
fn both(streams: u32, max: &str) -> [(f64, f64); 2] {
    let policies = ["linux-2.6.31", "linux-thrashsafe"].map(|name| format!("{name}:max={max}"));
    let workload = format!("thrash:streams={streams},think=200000");
    let table = table(
        &workload,
        "hdd-theory",
        &[&policies[0], &policies[1]],
        1,
        Some(16 << 20),
    );
    policies.each_ref().map(|policy| {
        let source = mean(&table, policy, |run| {
            run.stats.source_bytes as f64 / (1 << 20) as f64
        });
        (source, mean(&table, policy, |run| run.time_s))
    })
}

#[test]
fn thrashing_safe_readahead_reads_less() {
    println!(
        "windows of 512 KiB, 1 GiB wanted: MiB read and seconds, linux-2.6.31 and linux-thrashsafe"
    );
    for streams in [1, 2, 4, 8, 16, 32, 64] {
        let [(mib, s), (safe_mib, safe_s)] = both(streams, "512K");
        println!("{streams:2} readers: {mib:4.0} {s:7.1}   {safe_mib:4.0} {safe_s:7.1}");
        let fits = u64::from(streams) * 2 * (512 << 10) < 16 << 20;
        if fits {
            assert_eq!(
                (mib, s),
                (safe_mib, safe_s),
                "{streams} readers: no stream thrashes"
            );
            assert!(mib < 1025.0);
        } else {
            assert!(mib > 1.3 * 1024.0, "{streams} readers thrash: {mib}");
            assert!(
                safe_mib < 0.75 * mib || safe_s < 0.75 * s,
                "{streams} readers: {mib} {s}, {safe_mib} {safe_s}"
            );
            assert!(safe_s < 1.01 * s, "{streams} readers: {s} and {safe_s}");
        }
    }
}

/// What `compare thrash` shows in its default cache, with windows of 128 KiB.
#[test]
fn fewer_bytes_and_less_time_with_the_usual_windows() {
    let table = table(
        "thrash",
        "hdd-theory",
        &["linux-2.6.31", "linux-thrashsafe:max=128K"],
        1,
        None,
    );
    let of = |policy| {
        (
            mean(&table, policy, |run| run.stats.source_bytes as f64 / 1e6),
            mean(&table, policy, |run| run.time_s),
        )
    };
    let ((mb, s), (safe_mb, safe_s)) = (of("linux-2.6.31"), of("linux-thrashsafe:max=128K"));
    println!("{mb:.0} MB in {s:.1} s, {safe_mb:.0} MB in {safe_s:.1} s");
    assert!(
        safe_mb < 0.8 * mb && safe_s < 0.8 * s,
        "{mb:.0} MB in {s:.1} s, {safe_mb:.0} MB in {safe_s:.1} s"
    );
}
