//! Formats the parameters that the policy `auto` has adapted at run time, as one line of text.
//!
//! Example: `may read up to 22.8 MB ahead in requests of 4M, no farther because the source is at its maximum rate (4.00
//! x 190 MB/s x 30.0ms); 12 of the last 14 runs of reads continued; 1.20 MB wasted, 8.00 MB more allowed`. In the product, the first factor
//! is the ratio of the readahead distance (22.8 MB) to rate x latency.

use crate::number::{MB, amount, latency_us, plural, size_b, three};
use foreread_core::policy::{Limit, Tuning};
use std::fmt::Write;

pub fn words(tuning: &Tuning) -> String {
    let mut line = match tuning.limit {
        Limit::Idle => format!(
            "has no sequential readahead now, because {}",
            Limit::Idle.words()
        ),
        limit => format!(
            "may read up to {} ahead in requests of {}, no farther because {}",
            amount(tuning.distance_bytes),
            size_b(tuning.request_bytes),
            limit.words()
        ),
    };
    let product = tuning.rate as f64 * tuning.latency_ns as f64 / 1e9;
    if product >= 1.0 && tuning.limit != Limit::Idle {
        let rate = three(tuning.rate as f64 / MB);
        let latency = latency_us(tuning.latency_ns as f64 / 1e3);
        let times = three(tuning.distance_bytes as f64 / product);
        let _ = write!(line, " ({times} x {rate} MB/s x {latency})");
    }
    if tuning.runs > 0 {
        let _ = write!(
            line,
            "; {} of the last {} of reads continued",
            tuning.runs_went_on,
            plural(tuning.runs, "run")
        );
    }
    let (wasted, credit) = (amount(tuning.wasted_bytes), amount(tuning.credit_bytes));
    let _ = write!(line, "; {wasted} wasted, {credit} more allowed");
    if tuning.cache_share < 64 {
        let part = crate::number::percent(tuning.cache_share as f64 / 64.0);
        let _ = write!(
            line,
            "; uses {part} % of its room in the cache, because reads missed inside its readahead"
        );
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use foreread_core::event::Event;
    use foreread_core::machine::{Config, Machine};
    use foreread_core::policy::PolicySpec;
    use foreread_core::units::{ByteRange, FileId, Nanos, OpenId, PageSize, ReadId};

    /// A machine whose source answers after 10 ms; two reads in order.
    fn tuning() -> Tuning {
        let page = PageSize::new(4096).expect("a page");
        let spec = PolicySpec::parse("auto").expect("a policy");
        let mut machine = Machine::new(Config::new(page, 64 << 20), spec);
        machine.handle(Nanos(0), Event::open(OpenId(0), FileId(0), 1 << 30));
        for n in 0..2 {
            let range = ByteRange::between(n * 65536, (n + 1) * 65536);
            let now = n * 20_000_000;
            machine.handle(Nanos(now), Event::read(ReadId(n), OpenId(0), range));
            let mut fetches = Vec::new();
            while let Some(action) = machine.poll() {
                if let foreread_core::event::Action::Submit { fetch, range, .. } = action {
                    fetches.push((fetch, range.len()));
                }
            }
            for (fetch, bytes) in fetches {
                machine.handle(Nanos(now + 10_000_000), Event::Done { fetch, bytes });
            }
        }
        machine.tuning().expect("auto says")
    }

    #[test]
    fn a_line_names_distance_reason_and_credit() {
        let mut now = tuning();
        assert!(
            now.distance_bytes > 0 && now.latency_ns == 10_000_000,
            "{now:?}"
        );
        (now.limit, now.distance_bytes, now.request_bytes) = (Limit::Source, 22_800_000, 4 << 20);
        (now.rate, now.latency_ns, now.runs, now.runs_went_on) = (190_000_000, 30_000_000, 14, 12);
        (now.wasted_bytes, now.credit_bytes, now.cache_share) = (1_200_000, 8_000_000, 64);
        assert_eq!(
            words(&now),
            "may read up to 22.8 MB ahead in requests of 4M, no farther because the source is at its maximum rate (4.00 x 190 \
             MB/s x 30.0ms); 12 of the last 14 runs of reads continued; 1.20 MB wasted, 8.00 MB more allowed"
        );
        (now.limit, now.runs, now.rate, now.cache_share) = (Limit::Idle, 0, 0, 32);
        assert_eq!(
            words(&now),
            "has no sequential readahead now, because no reads follow each other; 1.20 MB wasted, 8.00 MB more allowed; uses \
             50 % of its room in the cache, because reads missed inside its readahead"
        );
    }
}
