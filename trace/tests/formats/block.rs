//! Block traces: both byte orders beside the text, what is refused, and the real blkparse beside us.

use super::traces::{each_refused, fixture, read_bytes, read_files, refused, trace};
use foreread_sim::rng::Rng;
use foreread_trace::Op;
use std::path::PathBuf;
use std::process::Command;

fn cpus(order: &str) -> [PathBuf; 3] {
    [0, 1, 5].map(|cpu| fixture(&format!("blktrace/{order}.blktrace.{cpu}")))
}

/// The same events as text, little-endian and big-endian become the same items, in whatever order the files are named.
#[test]
fn text_and_both_byte_orders_say_the_same() {
    let text_path = fixture("blkparse/text.blkparse");
    for action in ["", ":action=Q", ":action=D"] {
        let format = format!("blkparse{action}");
        let text = read_files(&format, std::slice::from_ref(&text_path));
        for order in ["le", "be"] {
            let mut files = cpus(order);
            files.reverse();
            let binary = read_files(&format!("blktrace{action}"), &files).clean();
            assert_eq!(binary.items, text.items, "{order} {action}");
            assert_eq!(binary.left_out, text.left_out, "{order} {action}");
        }
    }
    let alone = read_files("blktrace", &cpus("le")[2..]).clean();
    assert_eq!(alone.records().len(), 1, "one of them is a trace as well");
    // Published traces explain themselves in comments, and part their sections by empty lines.
    let text = String::from_utf8(trace(&text_path)).expect("text");
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

#[test]
fn binary_records_that_are_wrong_are_named() {
    let bytes = trace(&cpus("le")[2]);
    let with = |change: &dyn Fn(&mut Vec<u8>), what| {
        let mut bytes = bytes.clone();
        change(&mut bytes);
        refused("blktrace:action=Q", bytes, what);
    };
    // The first record is a remap with 16 bytes of payload: the second begins at 64.
    let version =
        "a blktrace file of version 8; only version 7 can be read: t, record 2 at byte 64; ";
    with(&|b| b[64] = 8, version);
    let magic = "no magic number where a record should begin: t, record 2 at";
    with(&|b| b[65] = 0, magic);
    with(&|b| b[64..68].reverse(), magic);
    let cut = "the trace ends in the middle of a record";
    let halves = [
        format!("{cut} (36 of 48 bytes): t, record 2 at byte 64;"),
        format!("{cut} (2 of 16 bytes): t, record 1 at byte 48;"),
    ];
    with(&|b| b.truncate(100), &halves[0]);
    with(&|b| b.truncate(50), &halves[1]);
    for (power, what) in [
        (55, "a sector beyond 2^63 bytes: t, record 2 at byte 64; "),
        (54, "a record that ends beyond 2^63 bytes: t, record 1; "),
    ] {
        let sector = u64::to_le_bytes(1 << power);
        with(&|b| b[80..88].copy_from_slice(&sector), what);
    }
    let unknown = "'action=C' is not known: t; one of action=Q, D";
    refused("blktrace:action=C", bytes, unknown);
    // Notes of the tracer only: nothing to choose an action by.
    let names = trace(&cpus("le")[0])[..64].to_vec();
    refused("blktrace", names, "no queued (Q) or issued (D) requests");
}

/// blkparse's own text of a binary trace and our reading of the binary agree, and both with its summary. The files of several
/// CPUs are in order only together.
#[test]
fn the_real_blkparse_merges_as_we_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut cpus, mut rng) = (vec![Vec::new(); 3], Rng::new(7));
    for i in 0..400_u64 {
        let (sector, write) = (rng.below(1 << 40) * 8, rng.below(4) == 0);
        let (issued, done) = (rng.below(900), 1000 + rng.below(5000));
        for (at, action) in [(0, 1_u32), (issued, 7), (done, 8)] {
            let category = if write { 2 } else { 1 } | if action == 1 { 1 << 4 } else { 0 };
            let event = (100_000 * (i + 1) + at, action | category << 16, sector);
            cpus[rng.below(3) as usize].push(event);
        }
    }
    let mut files = Vec::new();
    for (cpu, mut events) in cpus.into_iter().enumerate() {
        events.sort_unstable();
        let mut bytes = Vec::new();
        for (number, (at, action, sector)) in events.iter().enumerate() {
            let head = [0x6561_7407, number as u32 + 1];
            bytes.extend(head.map(u32::to_le_bytes).concat());
            bytes.extend([*at, *sector].map(u64::to_le_bytes).concat());
            let rest = [4096, *action, 77, 8 << 20, cpu as u32, 0];
            bytes.extend(rest.map(u32::to_le_bytes).concat());
        }
        files.push(folder.path().join(format!("x.blktrace.{cpu}")));
        std::fs::write(&files[cpu], bytes).expect("writable");
    }
    let mut command = Command::new("blkparse");
    let Ok(output) = command.current_dir(&folder).args(["-i", "x"]).output() else {
        return println!("skipped: needs blkparse");
    };
    let said = String::from_utf8_lossy(&output.stdout);
    for (action, key) in [("Q", "Reads Queued:"), ("D", "Read Dispatches:")] {
        let binary = read_files(&format!("blktrace:action={action}"), &files).clean();
        let text = format!("blkparse:action={action}");
        let text = read_bytes(&text, output.stdout.clone()).clean();
        assert_eq!(text.items, binary.items);
        assert_eq!(text.left_out, binary.left_out);
        let figures = said.lines().rev().find_map(|line| line.split_once(key));
        let reads = figures.and_then(|(_, text)| text.split(',').next()?.trim().parse().ok());
        let records = binary.records();
        let ours = records.iter().filter(|r| r.op == Op::Read).count();
        assert_eq!((records.len(), Some(ours)), (400, reads), "{action}");
        assert!(records.iter().all(|r| r.end_ns.is_some()));
    }
}
