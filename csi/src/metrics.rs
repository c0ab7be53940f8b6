//! The plugin's metrics page: its own counters as OpenMetrics text, and the metrics of all its mounts.
//!
//! ```text
//!   foreread_csi_calls_total{method="NodeStageVolume",code="Ok"} 3
//!   foreread_csi_call_seconds_total{method="NodeStageVolume"} 0.412
//!   foreread_csi_mounts 2
//!   foreread_front_reads_total{volume="vmodels-bb021c3315a8cc0b"} 1041      a line of a mount's page, with the volume added
//! ```

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tonic::Code;

/// The counters of calls; all clones share the same counters.
#[derive(Clone, Debug, Default)]
pub struct CallCounts(Arc<Mutex<CallTable>>);

#[derive(Debug, Default)]
struct CallTable {
    ended: BTreeMap<(&'static str, String), u64>,
    seconds: BTreeMap<&'static str, Duration>,
}

pub struct CallTimer {
    method: &'static str,
    begin: Instant,
}

impl CallCounts {
    pub fn begin(&self, method: &'static str) -> CallTimer {
        let begin = Instant::now();
        CallTimer { method, begin }
    }

    /// Counts a call that has ended. Returns how long the call took, in seconds.
    pub fn end(&self, timer: CallTimer, code: Code) -> f64 {
        let took = timer.begin.elapsed();
        let table = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (timer.method, format!("{code:?}"));
        *table.ended.entry(key).or_default() += 1;
        *table.seconds.entry(timer.method).or_default() += took;
        took.as_secs_f64()
    }

    /// Returns the plugin's own metrics, without those of its mounts.
    pub fn page(&self, mounts: usize) -> String {
        let table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut page = String::new();
        let mut family = |name: &str, suffix: &str, kind: &str, samples: &[(String, String)]| {
            let _ = writeln!(page, "# TYPE {name} {kind}");
            for (labels, value) in samples {
                let _ = writeln!(page, "{name}{suffix}{labels} {value}");
            }
        };
        let calls = table.ended.iter().map(|((method, code), count)| {
            let labels = format!("{{method=\"{method}\",code=\"{code}\"}}");
            (labels, count.to_string())
        });
        let calls = Vec::from_iter(calls);
        family("foreread_csi_calls", "_total", "counter", &calls);
        let seconds = table.seconds.iter().map(|(method, took)| {
            let labels = format!("{{method=\"{method}\"}}");
            (labels, format!("{:.6}", took.as_secs_f64()))
        });
        let seconds = Vec::from_iter(seconds);
        family("foreread_csi_call_seconds", "_total", "counter", &seconds);
        let own = [(String::new(), mounts.to_string())];
        family("foreread_csi_mounts", "", "gauge", &own);
        let version = format!("{{version=\"{}\"}}", env!("CARGO_PKG_VERSION"));
        let version = [(version, "1".to_string())];
        family("foreread_csi_build", "_info", "info", &version);
        page
    }
}

/// The last line of an OpenMetrics page.
pub const END: &str = "# EOF";

/// A metric family of one or more pages: its comments and samples.
#[derive(Default)]
struct MetricFamily {
    comments: Vec<String>,
    samples: Vec<String>,
}

/// Merges the metrics pages of several volumes, and adds the label `volume` to each sample. All samples of a metric family stay together,
/// as the format requires.
pub fn merged(pages: &[(String, String)]) -> String {
    let mut families: BTreeMap<String, MetricFamily> = BTreeMap::new();
    for (volume, page) in pages {
        let mut name = String::new();
        for line in page.lines() {
            if line == END {
                break;
            }
            if let Some(comment) = line.strip_prefix("# ") {
                let mut words = comment.split(' ').skip(1);
                let own = words.next().unwrap_or_default();
                if name != own {
                    name = own.to_string();
                }
                let family = families.entry(name.clone()).or_default();
                if !family.comments.iter().any(|known| known == line) {
                    family.comments.push(line.to_string());
                }
            } else if let Some(sample) = with_volume(line, volume) {
                families
                    .entry(name.clone())
                    .or_default()
                    .samples
                    .push(sample);
            }
        }
    }
    let lines = families
        .into_values()
        .flat_map(|family| [family.comments, family.samples]);
    let mut page = String::new();
    for line in lines.flatten() {
        page.push_str(&line);
        page.push('\n');
    }
    page
}

/// `name{a="b"} 1` with one more label. `None` for a line that is not a sample.
fn with_volume(line: &str, volume: &str) -> Option<String> {
    let end = line.find(['{', ' '])?;
    let (name, rest) = line.split_at(end);
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    if name.is_empty() || !name.chars().all(is_name) {
        return None;
    }
    Some(match rest.strip_prefix('{') {
        Some(labels) if labels.starts_with('}') => format!("{name}{{volume=\"{volume}\"{labels}"),
        Some(labels) => format!("{name}{{volume=\"{volume}\",{labels}"),
        None => format!("{name}{{volume=\"{volume}\"}}{rest}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_by_their_ends() {
        let counts = CallCounts::default();
        for code in [Code::Ok, Code::Ok, Code::Internal] {
            counts.end(counts.begin("NodeStageVolume"), code);
        }
        let page = counts.page(2);
        for line in [
            "foreread_csi_calls_total{method=\"NodeStageVolume\",code=\"Ok\"} 2\n",
            "foreread_csi_calls_total{method=\"NodeStageVolume\",code=\"Internal\"} 1\n",
            "foreread_csi_mounts 2\n",
        ] {
            assert!(page.contains(line), "{line} in\n{page}");
        }
    }

    #[test]
    fn pages_of_mounts_become_one_page() {
        let page = |n: u32| {
            format!(
                "# HELP a x\n# TYPE a counter\na {n}\na{{b=\"c d\"}} {n}\n# TYPE z gauge\nz{{}} 1\nnonsense\n"
            )
        };
        let pages = [("v1".to_string(), page(1)), ("v2".to_string(), page(2))];
        let expected = "# HELP a x\n# TYPE a counter\na{volume=\"v1\"} 1\na{volume=\"v1\",b=\"c d\"} 1\n\
            a{volume=\"v2\"} 2\na{volume=\"v2\",b=\"c d\"} 2\n# TYPE z gauge\nz{volume=\"v1\"} 1\nz{volume=\"v2\"} 1\n";
        assert_eq!(merged(&pages), expected);
    }
}
