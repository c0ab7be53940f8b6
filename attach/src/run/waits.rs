//! How long threads wait for storage: the sum over all threads, and the time in which at least one waits.

/// How long threads waited for a storage device: the sum over all threads, and the time in which at least one thread waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    pub waits: u64,
    /// Sum over all threads.
    pub threads_ns: u64,
    /// Time in which at least one thread waited.
    pub time_ns: u64,
}

impl Waits {
    pub fn add(&mut self, other: Waits) {
        self.waits += other.waits;
        self.threads_ns += other.threads_ns;
        self.time_ns += other.time_ns;
    }
}

/// Computes the time in which at least one thread waited, from waits in the order of their ends.
#[derive(Default)]
pub struct WaitUnion {
    pub sum: Waits,
    until_ns: u64,
}

impl WaitUnion {
    pub fn add(&mut self, since_ns: u64, end_ns: u64) {
        let from_ns = since_ns.max(self.until_ns);
        self.sum.add(Waits {
            waits: 1,
            threads_ns: end_ns.saturating_sub(since_ns),
            time_ns: end_ns.saturating_sub(from_ns),
        });
        self.until_ns = self.until_ns.max(end_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 16 threads wait for the same 2 s, and one of them goes on.
    #[test]
    fn waits_at_the_same_time_are_one() {
        let mut union = WaitUnion::default();
        (0..16).for_each(|n| union.add(n, 2000 + n));
        union.add(5000, 5001);
        let sum = Waits {
            waits: 17,
            threads_ns: 32_001,
            time_ns: 2016,
        };
        assert_eq!(union.sum, sum);
    }
}
