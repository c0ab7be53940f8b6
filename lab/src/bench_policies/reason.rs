//! Why a policy is slower than the best one of a cell, as far as the figures of the two show it.
//!
//! Each rule compares one figure of the two policies and gives a part of the sentence where it differs by more than its
//! limit. Example: 3,000 requests beside 1,000, and 0.2 MiB of unread readahead on average beside 3.1 MiB:
//!
//! ```text
//!   auto made 3 times as many requests and read ahead less far: it held 0.2 MiB unread on average, linux-6.18:max=4M 3.1 MiB
//! ```
//! The rules name differences, not causes: a policy may be slow by none of them, and then the sentence says so.

use crate::evaluation::Figures;
use crate::report::number::three;

const MIB: f64 = (1 << 20) as f64;
/// Factors from which on a figure is named. 1.05 of the bytes is what the smallest loss may come from; the others vary more
/// between policies that are equally fast.
const MIN_BYTES: f64 = 1.05;
const MIN_REQUESTS: f64 = 1.5;
const MIN_HELD: f64 = 1.5;
const MIN_P99: f64 = 2.0;
/// Unread readahead below which a reader has no use of more: a page or two for each of some readers.
const MIN_HELD_BYTES: f64 = 65_536.0;

/// A sentence about `own`, the figures of `policy`, beside those of `best`.
pub fn reason(policy: &str, own: &Figures, best_policy: &str, best: &Figures) -> String {
    let parts = parts(own, best_policy, best);
    match &parts[..] {
        [] => format!(
            "{policy} differs from {best_policy} in none of these figures enough to explain the time."
        ),
        [one] => format!("{policy} {one}."),
        [first @ .., last] => format!("{policy} {} and {last}.", first.join(", ")),
    }
}

fn parts(own: &Figures, best_policy: &str, best: &Figures) -> Vec<String> {
    let mut parts = Vec::new();
    if let Some((own, best)) = own
        .overfetch
        .zip(best.overfetch)
        .filter(|(own, best)| *own >= best * MIN_BYTES)
    {
        parts.push(format!("fetched {} times the bytes", three(own / best)));
    }
    let requests = own.requests.max(1) as f64 / best.requests.max(1) as f64;
    if requests >= MIN_REQUESTS {
        parts.push(format!("made {} times as many requests", three(requests)));
    } else if requests <= 1.0 / MIN_REQUESTS {
        parts.push(format!(
            "made {} requests where {best_policy} made {}",
            own.requests, best.requests
        ));
    }
    if let Some((own, best)) = own
        .p99_us
        .zip(best.p99_us)
        .filter(|(own, best)| *best > 0.0 && *own >= best * MIN_P99)
    {
        parts.push(format!("had {} times the p99", three(own / best)));
    }
    let held = |figures: &Figures| figures.held_byte_s / figures.time_s;
    let (ours, theirs) = (held(own), held(best));
    let amounts = format!(
        "{} MiB unread on average, {best_policy} {} MiB",
        three(ours / MIB),
        three(theirs / MIB)
    );
    if theirs >= MIN_HELD_BYTES && theirs >= ours * MIN_HELD {
        parts.push(format!("read ahead less far: it held {amounts}"));
    } else if ours >= MIN_HELD_BYTES && ours >= theirs * MIN_HELD {
        parts.push(format!("read ahead further: it held {amounts}"));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(requests: u64, overfetch: f64, held_mib: f64) -> Figures {
        Figures {
            time_s: 2.0,
            stall_s: 1.0,
            overfetch: Some(overfetch),
            requests,
            unused_bytes: 0,
            p99_us: Some(100.0),
            held_byte_s: held_mib * MIB * 2.0,
            t95_round_trips: None,
            flaps: 0,
            demand_bytes: 1,
            used_bytes: 1,
        }
    }

    #[test]
    fn a_sentence_names_what_differs() {
        let said = |own: &Figures, best: &Figures| reason("auto", own, "none", best);
        assert_eq!(
            said(&figures(3000, 1.0, 0.2), &figures(1000, 1.0, 3.1)),
            "auto made 3.00 times as many requests and read ahead less far: it held 0.20 MiB unread on average, none 3.10 MiB."
        );
        assert_eq!(
            said(&figures(10, 1.8, 0.0), &figures(10, 1.0, 0.0)),
            "auto fetched 1.80 times the bytes."
        );
        assert_eq!(
            said(&figures(10, 1.0, 9.0), &figures(40, 1.0, 3.0)),
            "auto made 10 requests where none made 40 and read ahead further: it held 9.00 MiB unread on average, none 3.00 MiB."
        );
        let slow = Figures {
            p99_us: Some(250.0),
            ..figures(10, 1.0, 1.0)
        };
        assert_eq!(
            said(&slow, &figures(10, 1.0, 1.0)),
            "auto had 2.50 times the p99."
        );
        let same = figures(10, 1.0, 1.0);
        assert_eq!(
            said(&same, &same),
            "auto differs from none in none of these figures enough to explain the time."
        );
    }
}
