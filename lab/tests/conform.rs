//! Recordings of a running kernel: no decision may differ.

use foreread_lab::conform::linux::check_pages;

/// A short recording of ext4 with data=journal (no large folios), in the tree.
#[test]
fn a_recording_of_a_running_kernel() {
    let verdict = check_pages(&include_bytes!("recordings/ext4j-128.jsonl")[..]).expect("a recording");
    println!("decisions {} divergences {}", verdict.decisions, verdict.divergences);
    assert_eq!(verdict.first, None);
    assert_eq!(verdict.divergences, 0);
    assert!(verdict.decisions > 300, "only {} decisions", verdict.decisions);
}
