//! What several test files share. Never: a test.
#![allow(dead_code, reason = "each test file uses its part")]

pub mod device;
#[cfg(feature = "object")]
pub mod gateway;

use foreread::source::Mem;
use foreread::{Gauges, Reader, testing};
use std::sync::Once;
use std::time::{Duration, Instant};

/// Numbers that look random and are the same in every run.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for i in (1..list.len()).rev() {
            list.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}

/// A source of self-naming bytes.
pub fn named(size: u64) -> Mem {
    Mem::generated(size, |offset, buf| testing::fill(buf, offset, 0))
}

/// Ends the whole run when it hangs: a read that never returns is an error, not a long wait.
pub fn watch() {
    static WATCH: Once = Once::new();
    if std::env::var_os("FOREREAD_READS").is_some() {
        // A long run, told to be one.
        return;
    }
    WATCH.call_once(|| {
        std::thread::spawn(|| {
            std::thread::sleep(Duration::from_secs(300));
            eprintln!("tests still run after 300 s: something hangs");
            std::process::exit(101);
        });
    });
}

/// Set where this process is one test's alone: what the system refuses, it refuses to every thread.
const ALONE: &str = "FOREREAD_TEST_ALONE";

/// Runs one test of the file that calls this, by its name, in another process.
pub fn alone(test: &str, work: fn()) {
    if std::env::var_os(ALONE).is_some() {
        return work();
    }
    let me = std::env::current_exe().expect("this test");
    let args = ["--exact", test, "--nocapture", "--test-threads=1"];
    let out = std::process::Command::new(me).args(args).env(ALONE, "1").output().expect("started");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(out.status.success(), "{}{}", text(&out.stdout), text(&out.stderr));
}

/// Waits until nothing runs; readahead may outlive the reads that caused it.
pub fn quiet(reader: &Reader) -> Gauges {
    let start = Instant::now();
    loop {
        let gauges = reader.gauges();
        let Gauges { reads, queued_fetches, running_fetches, open_fetches, .. } = gauges;
        if reads + queued_fetches + running_fetches + open_fetches == 0 {
            assert_eq!(gauges.missed_calls, 0, "somebody was not called");
            return gauges;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "something still runs: {gauges:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Memory follows the pages: at least their bytes, at most twice as much.
pub fn check_memory(gauges: &Gauges, page_bytes: u64) {
    let bytes = gauges.pages * page_bytes;
    assert!((bytes..=bytes * 2).contains(&gauges.held_bytes), "{gauges:?}");
}

/// Reads and checks every byte; returns how many there were.
pub fn read_and_check(reader: &Reader, buf: &mut [u8], offset: u64, version: u16) -> usize {
    let len = reader.read_at(buf, offset).unwrap_or_else(|error| panic!("{error}"));
    testing::check(&buf[..len], offset, version).unwrap_or_else(|wrong| panic!("{} at {offset}: {wrong}", buf.len()));
    len
}
