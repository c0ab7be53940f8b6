//! Reading through foreread in twenty lines: `cargo run --example embed -- FILE`.
//!
//! The file is opened only once. Threads share the reader; each `try_clone` has its own readahead state.

#![allow(
    clippy::disallowed_methods,
    reason = "an example may panic where a thread is refused"
)]

use foreread::{Options, Reader};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name = std::env::args()
        .nth(1)
        .ok_or("name a file, nbd://HOST/EXPORT or another source")?;
    let reader = Reader::open(
        name,
        Options::default()
            .policy("linux-6.18:max=1M")
            .cache_bytes(64 << 20),
    )?;
    let (size, mut sums) = (reader.size(), [0_u64; 2]);
    std::thread::scope(|scope| {
        for (half, sum) in sums.iter_mut().enumerate() {
            let own = reader.try_clone().expect("fewer than a million are open");
            scope.spawn(move || {
                let (mut at, end) = (
                    size / 2 * half as u64,
                    if half == 0 { size / 2 } else { size },
                );
                let mut buf = vec![0; 64 << 10];
                while at < end {
                    let want = buf.len().min((end - at) as usize);
                    let got = own.read_at(&mut buf[..want], at).expect("readable");
                    *sum += buf[..got].iter().map(|byte| u64::from(*byte)).sum::<u64>();
                    at += got.max(1) as u64;
                }
            });
        }
    });
    let stats = reader.stats();
    println!(
        "sum {}, {} of {} reads were hits",
        sums[0] + sums[1],
        stats.hits,
        stats.demand_reads
    );
    Ok(())
}
