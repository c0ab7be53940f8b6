//! Block traces: what is passed over, what is refused, what is waited for.

use super::traces::{each_refused, fixture, read_bytes, refused, trace};

/// Published traces explain themselves in comments, and part their sections by empty lines.
#[test]
fn comments_and_empty_lines_are_passed_over() {
    let text = trace(&fixture("blkparse/text.blkparse"));
    let text = String::from_utf8(text).expect("text");
    let commented = text.lines().map(|line| format!("# a comment\n\n{line}\n"));
    let commented = read_bytes("blkparse", commented.collect::<String>()).clean();
    assert_eq!(commented.items, read_bytes("blkparse", text).items);
}

const LINE: &str = "  8,16   5        1     0.000001850 18615  Q   R 1444645666 + 256 [java]\n";

/// Cut anywhere after its device, a line is refused by its number; cut within, it is no line of the trace.
#[test]
fn a_line_that_is_wrong_is_named() {
    let line = LINE.trim_end();
    for end in 7..line.len() {
        let text = format!("{LINE}{}\n", &line[..end]);
        let error = read_bytes("blkparse", text).error.expect("refused");
        assert!(error.contains(": t, line 2; "), "{end}: {error}");
    }
    let cut = read_bytes("blkparse", format!("{LINE}  8")).clean();
    assert_eq!(cut.records().len(), 1);
    let changed = |change: &str| {
        let (from, to) = change.split_once(" to ").expect("a change");
        format!("{LINE}{}", LINE.replace(from, to))
    };
    each_refused(
        "blkparse",
        "1444645666 to 18014398509481984 | a record that ends beyond 2^63 bytes: t, record 2;
         1444645666 to 36028797018963968 | a sector beyond 2^63 bytes: t, line 2;
         + 256 to + 36028797018963968 | more sectors than 2^63 bytes: t, line 2;
         0.000001850 to 0,000001850 | a time that is not a number of seconds: t, line 2;",
        changed,
    );
    let unknown = "'action=C' is not known: t; one of action=Q, D";
    refused("blkparse:action=C", LINE, unknown);
    let none = "no queued (Q) or issued (D) requests at the beginning: t; choose --format blkparse:action=Q or ";
    refused("blkparse", LINE.replace(" Q ", " G "), none);
}

/// A little backwards is sorted, as the tracer's buffers come; far backwards is refused.
#[test]
fn time_may_go_back_by_so_many_entries() {
    let line = |ns: u64| format!("8,0 0 1 0.{ns:09} 1 Q R 8 + 8 [a]\n");
    let back: String = (0..4097).map(|i| line(5000 - i)).collect();
    let sorted = read_bytes("blkparse", back.clone()).clean();
    assert!(sorted.records().is_sorted_by_key(|r| r.start_ns) && sorted.records().len() == 4097);
    let late = "time goes backwards by more than 4096 entries: t, line 4099; sort the trace";
    refused("blkparse", back + &line(6000) + &line(7), late);
}

/// A request that never completes holds up no more than it may, and is read without an end.
#[test]
fn a_completion_that_never_comes_is_waited_for_within_limits() {
    let event = |i: u64, action: char, end: &str| {
        format!("8,0 0 1 0.{i:09} 1 {action} R {} + 8 [{end}]\n", i / 2 * 8)
    };
    let mut text = event(0, 'Q', "a");
    (1..100_000).for_each(|i| text += &(event(2 * i, 'Q', "a") + &event(2 * i, 'C', "0")));
    text += "8,0 0 1 0.900000000 0 C R 0 + 8 [0]\n";
    let read = read_bytes("blkparse", text).clean();
    let records = read.records();
    assert_eq!((records.len(), records[0].end_ns), (100_000, None));
    assert!(records[1..].iter().all(|r| r.end_ns == r.start_ns));
}
