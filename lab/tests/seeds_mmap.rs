//! Seed 000 (Wu Fengguang, 2010): how much of mmap read-around is used, by its size. The workloads were fitted to these
//! ratios, so this holds the fit; the order of the three is what the posting argues with.

mod seeds;
use foreread_lab::reproduce::published::seed_000::{HITS_CONSOLE, HITS_DESKTOP};
use seeds::{row, table};

/// Used part of what was read around faults, for read-around of 128 KiB, 512 KiB and 1 MiB.
fn accuracies(workload: &str) -> [f64; 3] {
    let policies = ["128K", "512K", "1M"].map(|max| format!("linux-2.6.31:max={max}"));
    let names: Vec<&str> = policies.iter().map(String::as_str).collect();
    let table = table(workload, "hdd-theory", &names, 5, None);
    for run in &row(&table, "none").runs {
        assert_eq!(run.stats.source_bytes, run.distinct_bytes, "overfetch of none is 1");
        assert_eq!(run.stats.demand_bytes, run.distinct_bytes, "each page faults once");
    }
    let sums = |policy: &String| {
        let stats = || row(&table, policy).runs.iter().map(|run| run.stats);
        stats().map(|s| s.used_bytes).sum::<u64>() as f64 / stats().map(|s| s.ra_bytes).sum::<u64>() as f64
    };
    policies.each_ref().map(sums)
}

fn near(measured: f64, (_, used, read): (u64, u64, u64)) -> bool {
    (measured - used as f64 / read as f64).abs() < 0.03
}

#[test]
fn a_desktop_uses_less_of_more() {
    let [small, middle, large] = accuracies("mmap-desktop");
    println!("desktop: {small:.3} {middle:.3} {large:.3}; published {HITS_DESKTOP:?}");
    let [first, second, third] = HITS_DESKTOP;
    assert!(small > middle && middle > large, "{small} {middle} {large}");
    assert!(near(small, first) && near(middle, second) && near(large, third), "{small} {middle} {large}");
}

#[test]
fn so_does_a_console() {
    let [small, middle, large] = accuracies("mmap-console");
    println!("console: {small:.3} {middle:.3} {large:.3}; published {HITS_CONSOLE:?}");
    assert!(small > middle && middle >= large, "{small} {middle} {large}");
    assert!(near(small, HITS_CONSOLE[0]) && near(large, HITS_CONSOLE[1]), "{small} {large}");
}
