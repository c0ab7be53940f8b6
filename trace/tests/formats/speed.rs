//! How fast each importer is: `cargo test --release -p foreread-trace --test formats speed -- --ignored --nocapture`.
//!
//! Not among the tests that run: it takes a while. What counts is the time on the processor, as Linux keeps it for each
//! thread, so that a loaded machine says the same. Each line is the median of five.

use super::traces::fixture;
use foreread_trace::catalog;
use foreread_trace::check::CheckedItems;
use foreread_trace::input::Input;
use std::path::Path;

const RECORDS: u64 = 500_000;

/// How long this thread has been on a processor.
fn busy_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    text.split(' ')
        .next()
        .and_then(|ns| ns.parse::<f64>().ok())
        .expect("ns")
        / 1e9
}

fn speed(name: &str, bytes: &[u8], expected: u64) {
    let mut rates = Vec::new();
    for _ in 0..5 {
        let path = Path::new(name);
        let input =
            Input::of(path, Box::new(std::io::Cursor::new(bytes.to_vec()))).expect("memory");
        let (format, pairs) = catalog::parse(name, path).expect("a format");
        let began = busy_seconds();
        let import = format.import.expect("read")(vec![input], pairs).expect("a trace");
        let items = CheckedItems::new(import.items, path)
            .inspect(|item| assert!(item.is_ok(), "{item:?}"))
            .count() as u64;
        rates.push(expected as f64 / (busy_seconds() - began) / 1e6);
        assert!(items > expected, "{items}");
    }
    rates.sort_by(f64::total_cmp);
    println!(
        "{name}: {:.2} million records/s ({} bytes a record)",
        rates[2],
        bytes.len() as u64 / expected
    );
}

#[test]
#[ignore = "a measurement"]
fn records_a_second() {
    let text =
        |line: &dyn Fn(u64) -> String| (0..RECORDS).map(line).collect::<String>().into_bytes();
    let fio = text(&|i| {
        format!(
            "{} /data/file-{} read {} 4096\n",
            i + 1,
            i / 1000 % 4,
            i * 4096
        )
    });
    let adds: String = (0..4).map(|i| format!("1 /data/file-{i} add\n")).collect();
    speed(
        "fio",
        &[b"fio version 3 iolog\n", adds.as_bytes(), &fio].concat(),
        RECORDS,
    );
    let blkparse = text(&|i| {
        let (at, ended, sector) = (i * 100, i * 100 + 50, i * 8);
        let line = |seq: u64, ns: u64, action: char, end: &str| {
            format!(
                "  8,16   5 {seq:8} {:5}.{:09} 18615  {action}  RA {sector} + 8 [{end}]\n",
                0, ns
            )
        };
        line(i, at, 'Q', "java") + &line(i, ended, 'C', "0")
    });
    speed("blkparse", &blkparse, RECORDS);
    let mut blktrace = Vec::new();
    for i in 0..RECORDS {
        for (ns, action) in [(0, 1_u32 | 0x11 << 16), (50, 8 | 0x81 << 16)] {
            blktrace.extend([0x6561_7407, i as u32].map(u32::to_le_bytes).concat());
            blktrace.extend([i * 100 + ns, i * 8].map(u64::to_le_bytes).concat());
            blktrace.extend(
                [4096, action, 77, 8 << 20, 0, 0]
                    .map(u32::to_le_bytes)
                    .concat(),
            );
        }
    }
    speed("blktrace", &blktrace, RECORDS);
    let one = std::fs::read(fixture("vscsi/v1.vscsi")).expect("there")[..24].to_vec();
    let vscsi: Vec<u8> = (0..RECORDS)
        .flat_map(|i| [one.clone(), i.to_le_bytes().to_vec()].concat())
        .collect();
    speed("vscsi", &vscsi, RECORDS);
    let strace = text(&|i| {
        let (seconds, us) = (1_700_000_000 + i / 100_000, i % 100_000 * 10);
        format!(
            "1234 {seconds}.{us:06} pread64(3</data/file>, \"\"..., 4096, {}) = 4096 <0.000012>\n",
            i * 4096
        )
    });
    let open = "1234 1700000000.000000 openat(AT_FDCWD, \"/data/file\", O_RDONLY) = 3</data/file> <0.000010>\n";
    speed("strace", &[open.as_bytes(), &strace].concat(), RECORDS);
}
