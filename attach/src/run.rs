//! Reads ahead for an unmodified command while it runs.
//!
//! ```text
//!   command ──reads, page faults──► kernel ──tracepoints──► run ──readahead(2)──► page cache ──► command
//! ```
//! Neither a recording nor a mount is needed. foreread observes the reads of the command and its children through tracefs. foreread makes
//! the same decisions as for a foreread mount (policy `auto`), and reads ahead into the kernel's page cache. The kernel's own readahead
//! stays on. Cached data is not read again. If there is nothing to gain, foreread stops observing the command, and checks again from time
//! to time.
//!
//! | file | holds |
//! |---|---|
//! | `watcher.rs` | how reads are observed: by tracepoints or by samples |
//! | `tap.rs` | the tracepoints |
//! | `find.rs` | the file behind a device and an inode number, and whether it is leased |
//! | `files.rs` | the files that the command reads, and the threads that search for them |
//! | `walk.rs` | the files that it will read next, in the order of their folders |
//! | `progress.rs` | how far it has come in them, if not every read is observed |
//! | `tasks.rs` | threads for searches and jobs, which wake the run |
//! | `jobs.rs` | jobs of threads that call readahead(2) and wait for the bytes |
//! | `gain.rs` | whether anything can be gained |
//! | `look.rs` | how long threads wait for storage, and whether it is slow, by the times of events alone |
//! | `devices.rs` | which storage is examined, read ahead from, or ignored |
//! | `ahead.rs` | the readahead of slow storage |
//! | `command.rs` | the loop |
//!
//! Errors of foreread never reach the command, no setting of a device is changed, and tracing never outlives the run.

mod ahead;
pub mod command;
mod devices;
mod files;
mod find;
mod gain;
mod jobs;
mod look;
mod progress;
mod tap;
mod tasks;
mod walk;
mod watcher;

pub use watcher::WatchBy;

use foreread_core::policy::PolicySpec;
use foreread_core::stats::Stats;
use foreread_lab::verdict::{Confidence, Means, Step, Verdict, mount_behind, record_lines};
use foreread_observe::record::Target;
use gain::{Gain, Reason};
use look::Waits;

#[derive(Clone, Debug)]
pub struct RunOptions {
    pub target: Target,
    pub policy: PolicySpec,
    /// How reads are observed; by default by tracepoints if that is permitted, otherwise by samples.
    pub by: Option<WatchBy>,
}

#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct RunReport {
    pub by: WatchBy,
    pub seconds: f64,
    pub files: u64,
    /// Files that could not be found while they were read.
    pub unknown_files: u64,
    /// Bytes requested from storage ahead of the command.
    pub ahead_bytes: u64,
    pub ahead_jobs: u64,
    /// Bytes read ahead that the command was observed to read. `ahead_bytes` is the sum of `used_bytes`, `guessed_bytes` and
    /// `unused_bytes`: bytes that the kernel had read in the meantime are in none of them.
    pub used_bytes: u64,
    /// Bytes read ahead that count as used because of the number of bytes that the command read: no sample saw which
    /// ones.
    pub guessed_bytes: u64,
    /// Used bytes for which the command still had to wait.
    pub late_bytes: u64,
    /// Bytes that were requested from storage and had arrived when the command read them.
    pub in_time_bytes: u64,
    /// Bytes read ahead that the command did not read, or was not observed to read.
    pub unused_bytes: u64,
    /// Reads and faults of the command that were observed to wait for storage. Tracepoints do not show that a read waited for readahead
    /// in flight, and ignored storage is not observed, so this number and the two times are lower bounds.
    pub waits: u64,
    /// Sum of their waiting times, in seconds.
    pub waited_seconds: f64,
    /// Time in which at least one thread of the command waited, in seconds.
    pub waiting_seconds: f64,
    pub events: u64,
    pub lost_events: u64,
    /// How often watching was paused because there was nothing to gain.
    pub sleeps: u64,
    /// Waiting time of a read on the storage that was waited for most: the shortest, or the mean if foreread did not read ahead there.
    pub latency_seconds: f64,
    pub kernel_bytes: u64,
    /// Why reads could not be watched, if the kernel refused it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Type, as in mountinfo, of the file system that drops what is read ahead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dropped_by: Option<String>,
    /// Whether reads could be watched before the command ended.
    #[serde(skip)]
    is_watched: bool,
    #[serde(skip)]
    reason: Option<Reason>,
    /// The longest total wait for one storage.
    #[serde(skip)]
    most_ns: u64,
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// The reason that is given if nothing could be gained.
const NO_PATTERN: &str = "the reads follow no pattern that can be read ahead";

/// The reason that is given if the file system drops cached data.
const DROPPED: &str = "the file system (FUSE without keep_cache) drops the cached pages of a file at each open, so readahead for another program is lost";

impl RunReport {
    /// Adds the results for one storage. `guessed_bytes` count as read, although no sample saw them.
    fn add(&mut self, stats: &Stats, gain: &Gain, waited: Waits, guessed_bytes: u64) {
        // The policy's numbers include bytes that the kernel had read by itself before foreread requested them.
        let used = stats.used_bytes.min(gain.asked_bytes);
        let in_time = stats.used_bytes.saturating_sub(stats.late_bytes).min(used);
        let guessed = guessed_bytes.min(used);
        self.ahead_bytes += gain.asked_bytes;
        self.ahead_jobs += gain.ahead_jobs;
        self.used_bytes += used - guessed;
        self.guessed_bytes += guessed;
        self.in_time_bytes += in_time;
        self.late_bytes += used - in_time;
        self.unused_bytes += gain.asked_bytes - used;
        self.waits += gain.waits;
        self.waited_seconds += seconds(waited.threads_ns);
        self.waiting_seconds += seconds(waited.time_ns);
        if waited.threads_ns >= self.most_ns {
            self.most_ns = waited.threads_ns;
            self.latency_seconds = gain.latency().as_secs_f64();
            self.kernel_bytes = gain.kernel_bytes;
            self.reason = gain.reason();
        }
    }

    /// Adds the observations of a storage that was ignored.
    fn look(&mut self, waits: Waits, reason: Option<Reason>) {
        self.waits += waits.waits;
        self.waited_seconds += seconds(waits.threads_ns);
        self.waiting_seconds += seconds(waits.time_ns);
        if reason.is_some() && (self.reason.is_none() || waits.threads_ns > self.most_ns) {
            (self.most_ns, self.reason) = (waits.threads_ns.max(self.most_ns), reason);
            let mean_ns = waits.threads_ns.checked_div(waits.waits);
            self.latency_seconds = seconds(mean_ns.unwrap_or_default());
        }
    }

    /// Returns the next step that is advised for the command. `command` must be quoted for a shell; it is empty for a process that has
    /// ended.
    pub fn verdict(&self, command: &str) -> Verdict {
        let nothing = self.nothing();
        let step = match self.dropped_by.as_deref() {
            Some(kind) if nothing == Some(DROPPED) => {
                let why = "mount the source of the file system with foreread instead, for example:";
                Some(Step::new(Means::Policy, why, mount_behind(kind, "")))
            }
            _ if command.is_empty() => None,
            _ if nothing == Some(NO_PATTERN) => {
                let why = "if the command reads the same data each time, a plan of one run can help the next:";
                Some(Step::new(Means::Plan, why, record_lines(command)))
            }
            _ => {
                let why =
                    "to see what a kernel setting and other steps would gain for this command:";
                Some(Step::new(
                    Means::Measure,
                    why,
                    format!("foreread tune -- {command}"),
                ))
            }
        };
        Verdict {
            why: nothing.unwrap_or_default().to_string(),
            confidence: Confidence::Measured,
            steps: step.into_iter().collect(),
            ..Verdict::default()
        }
    }

    /// Returns in a few words that the run gained nothing or little, and why.
    pub fn finding(&self) -> Option<String> {
        let reason = self.nothing()?;
        Some(match &self.refused {
            Some(refused) => format!("nothing was read ahead: {refused}"),
            None if self.in_time_bytes > 0 => format!("little to gain: {reason}"),
            None => format!("nothing to gain: {reason}"),
        })
    }

    /// Returns why the run gained nothing, that is, why almost no byte was cached before the command requested it; `None` if it gained
    /// something.
    pub fn nothing(&self) -> Option<&'static str> {
        let is_mostly_used = self.reason.is_none() || self.in_time_bytes >= self.unused_bytes;
        if self.refused.is_none() && self.in_time_bytes > 0 && is_mostly_used {
            return None;
        }
        Some(match self.reason {
            _ if self.refused.is_some() => "reads could not be watched",
            Some(Reason::Fast) => "the storage answers before another process can read ahead",
            Some(Reason::Busy) => "the command hardly waited for the storage",
            Some(Reason::Random) => NO_PATTERN,
            Some(Reason::Dropped) => DROPPED,
            None if !self.is_watched => "the command ended before its reads could be watched",
            None if self.files == 0 && self.unknown_files > 0 => {
                "the files were closed before they could be found"
            }
            None if self.files == 0 => {
                "no read was observed to wait: the bytes were in the page cache, or bypassed it (direct I/O, some FUSE file systems)"
            }
            None if self.waits == 0 => "no read waited for the storage",
            None if self.ahead_bytes == 0 || self.unused_bytes > self.used_bytes => NO_PATTERN,
            None => "the command requested the bytes before they could be read ahead",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was requested is used in time, used late, or unused, even if the kernel had read most of what was used.
    #[test]
    fn the_uses_of_what_was_requested_add_up() {
        const KIB: u64 = 1 << 10;
        for (asked, used, late, guessed, expected) in [
            (1024, 1024, 768, 0, [1024, 0, 256, 768, 0]),
            (1024, 4096, 1024, 0, [1024, 0, 1024, 0, 0]),
            (1024, 4096, 3584, 512, [512, 512, 512, 512, 0]),
            (1024, 256, 128, 512, [0, 256, 128, 128, 768]),
            (0, 4096, 1024, 64, [0, 0, 0, 0, 0]),
        ] {
            let mut gain = Gain::new(128 << 10, true, std::time::Instant::now());
            gain.asked_bytes = asked * KIB;
            let stats = Stats::of(|stats| {
                (stats.used_bytes, stats.late_bytes) = (used * KIB, late * KIB);
                (stats.unused_bytes, stats.unresolved_bytes) = (9 << 20, 9 << 20);
            });
            let mut report = RunReport::default();
            report.add(&stats, &gain, Waits::default(), guessed * KIB);
            let uses = [
                report.used_bytes,
                report.guessed_bytes,
                report.in_time_bytes,
                report.late_bytes,
                report.unused_bytes,
            ];
            assert_eq!(uses, expected.map(|kib| kib * KIB));
        }
    }

    #[test]
    fn the_reason_is_that_of_the_run() {
        let report = RunReport {
            is_watched: true,
            files: 1,
            waits: 9,
            ahead_bytes: 9,
            ..RunReport::default()
        };
        let says = |change: &dyn Fn(&mut RunReport), words: &str| {
            let mut report = report.clone();
            change(&mut report);
            let finding = report.finding().unwrap_or_default();
            assert!(finding.contains(words), "{finding}");
        };
        let unused = |unused: u64, used: u64| {
            move |run: &mut RunReport| (run.unused_bytes, run.used_bytes) = (unused, used)
        };
        let ended = "nothing to gain: the command ended before its reads";
        says(&|run| run.is_watched = false, ended);
        let refused = |run: &mut RunReport| run.refused = Some("no tracefs".to_string());
        says(&refused, "nothing was read ahead: no tracefs");
        says(&unused(5, 4), "no pattern");
        says(&unused(4, 5), "before they could be read ahead");
        let fast = |run: &mut RunReport| {
            unused(6, 0)(run);
            (run.in_time_bytes, run.reason) = (5, Some(Reason::Fast));
        };
        let little = "little to gain: the storage answers before another process";
        says(&fast, little);
        let gained = RunReport {
            in_time_bytes: 5,
            unused_bytes: 6,
            ..report.clone()
        };
        assert_eq!(gained.nothing(), None);
    }
}
