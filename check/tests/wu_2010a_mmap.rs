//! [Wu 2010a] (Wu Fengguang, 2010): how much of mmap read-around is used, by its size. The workloads were fitted to the MB
//! of these rows, so this holds the fit; that more is read for the same pages is what the posting argues with.

use crate::papers::{mean, row, table};
use foreread_check::reproduce::published::wu_2010a::{HITS_CONSOLE, HITS_DESKTOP};

/// MB touched, and MB read with read-around of 128 KiB, 512 KiB and 1 MiB. The faulting page is among the touched: the
/// kernel reads it with its window.
fn amounts(workload: &str) -> (f64, [f64; 3]) {
    let policies = ["128K", "512K", "1M"].map(|max| format!("linux-2.6.31:max={max}"));
    let names: Vec<&str> = policies.iter().map(String::as_str).collect();
    let table = table(workload, "hdd-theory", &names, 5, None);
    for run in &row(&table, "none").runs {
        assert_eq!(
            run.stats.source_bytes, run.distinct_bytes,
            "overfetch of none is 1"
        );
        assert_eq!(
            run.stats.demand_bytes, run.distinct_bytes,
            "each page faults once"
        );
    }
    let read = policies
        .each_ref()
        .map(|policy| mean(&table, policy, |run| run.stats.source_bytes as f64 / 1e6));
    (
        mean(&table, "none", |run| run.distinct_bytes as f64 / 1e6),
        read,
    )
}

fn near(ours: f64, published: u64) -> bool {
    (ours / published as f64 - 1.0).abs() < 0.06
}

#[test]
fn a_desktop_reads_more_for_the_same_pages() {
    let (used, [small, middle, large]) = amounts("mmap-desktop");
    println!(
        "desktop: {used:.1} of {small:.1}, {middle:.1}, {large:.1}; published {HITS_DESKTOP:?}"
    );
    let [first, second, third] = HITS_DESKTOP;
    assert!(small < middle && middle < large, "{small} {middle} {large}");
    assert!(
        [first, second, third]
            .into_iter()
            .all(|row| near(used, row.used_mb)),
        "{used}"
    );
    assert!(
        near(small, first.read_mb) && near(middle, second.read_mb) && near(large, third.read_mb),
        "{small} {middle} {large}"
    );
}

#[test]
fn so_does_a_console() {
    let (used, [small, middle, large]) = amounts("mmap-console");
    println!(
        "console: {used:.1} of {small:.1}, {middle:.1}, {large:.1}; published {HITS_CONSOLE:?}"
    );
    assert!(
        small < middle && middle <= large,
        "{small} {middle} {large}"
    );
    assert!(
        HITS_CONSOLE.into_iter().all(|row| near(used, row.used_mb)),
        "{used}"
    );
    assert!(
        near(small, HITS_CONSOLE[0].read_mb) && near(large, HITS_CONSOLE[1].read_mb),
        "{small} {large}"
    );
}
