//! Defines a policy in a program: it reads the next megabyte ahead whenever a read starts where the last read ended.
//!
//! The engine creates one instance of the policy for each open file description, so the instance's state is about one description only.

use foreread::policy::{Answer, Ask, Info, Policy, PolicySpec, Scope, Wants};
use foreread::source::Mem;
use foreread::{Options, Reader};
use std::sync::Arc;

/// The readahead distance in bytes.
const AHEAD_BYTES: u64 = 1 << 20;

#[derive(Default)]
struct Follow {
    last_end: u64,
    /// The end of the readahead that was already requested.
    asked: u64,
}

impl Policy for Follow {
    fn wants(&self) -> Wants {
        Wants::READ
    }

    fn on_read(&mut self, ask: &Ask<'_>, answer: &mut Answer) {
        let in_order = ask.request.start() == self.last_end;
        self.last_end = ask.request.end();
        // Half of the last megabyte is left, so request the next.
        if in_order && self.asked < self.last_end + AHEAD_BYTES / 2 {
            let from = self.asked.max(self.last_end);
            answer.read(from, AHEAD_BYTES, None);
            self.asked = from + AHEAD_BYTES;
        }
    }
}

static FOLLOW: Info = Info {
    name: "follow",
    summary: "a megabyte after each sequential read",
    origin: "this example",
    scope: Scope::Open,
    page_bytes: None,
    params: &[],
    build: |_| Box::new(Follow::default()),
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let source = Arc::new(Mem::new(vec![1; 16 << 20]));
    let reader = Reader::open(source, Options::default().policy(PolicySpec::of(&FOLLOW)))?;
    let mut buf = vec![0; 64 << 10];
    for at in (0..reader.size()).step_by(buf.len()) {
        reader.read_at(&mut buf, at)?;
    }
    let stats = reader.stats();
    println!(
        "{} reads, {} misses, {} times read ahead",
        stats.demand_reads, stats.misses, stats.ra_ops
    );
    assert!(stats.misses <= 1 && stats.ra_ops >= 15, "{stats:?}");
    Ok(())
}
