//! Measures sequential reads of an object from a store with latency: each round reads it first directly, then with readahead.
//!
//! Usage: `ahead [MILLISECONDS [MIB [ROUNDS]]]`: the latency of each request, the size of the object, and the number of rounds; the
//! defaults are 30, 64 and 5. The store is in memory, and waits for the latency at each request. Prints both times of each round in
//! seconds, and the median of their ratio over all rounds.

use foreread::Options;
use foreread::front::Ahead;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::throttle::{ThrottleConfig, ThrottledStore};
use object_store::{ObjectStore, ObjectStoreExt};
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of each `get_range`.
const READ_BYTES: u64 = 1 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let mut next = |usual| args.next().unwrap_or(Ok(usual));
    let (delay, bytes, rounds) = (next(30)?, next(64)? << 20, next(5)?);
    let config = ThrottleConfig {
        wait_get_per_call: Duration::from_millis(delay),
        ..ThrottleConfig::default()
    };
    let store = Arc::new(ThrottledStore::new(InMemory::new(), config));
    let path = Path::from("data");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_time()
        .build()?;
    runtime.block_on(async {
        store.put(&path, vec![7; bytes as usize].into()).await?;
        let mut ratios = Vec::new();
        for _ in 0..rounds {
            let alone = in_order(&store, &path, bytes).await?;
            // This line adds the readahead. Each round has a new cache, so that it reads cold.
            let ahead = Ahead::new(Arc::clone(&store), Options::default())?;
            let with = in_order(&ahead, &path, bytes).await?;
            println!("alone {alone:.3} s, with readahead {with:.3} s");
            ratios.push(with / alone);
        }
        ratios.sort_by(f64::total_cmp);
        if let [least, .., most] = ratios[..] {
            let median = ratios[ratios.len() / 2];
            println!("{median:.3} of the time ({least:.3} to {most:.3})");
        }
        Ok(())
    })
}

/// Seconds to read all bytes, one `get_range` after the other.
async fn in_order(store: &dyn ObjectStore, path: &Path, bytes: u64) -> Result<f64, Box<dyn Error>> {
    let begun = Instant::now();
    for from in (0..bytes).step_by(READ_BYTES as usize) {
        let until = bytes.min(from + READ_BYTES);
        let got = store.get_range(path, from..until).await?;
        if got.len() as u64 != until - from || got.iter().any(|byte| *byte != 7) {
            return Err("wrong bytes".into());
        }
    }
    Ok(begun.elapsed().as_secs_f64())
}
