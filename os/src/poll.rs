//! Waits until file descriptors are readable.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::AsFd;
use std::time::Duration;

/// Waits until one of these descriptors is readable or the time has passed, and returns the descriptors that are readable. If a signal ends
/// the wait early, the result may be empty.
pub fn readable<'a, F: AsFd + 'a>(
    files: impl IntoIterator<Item = &'a F>,
    wait: Duration,
) -> Vec<bool> {
    let files = files.into_iter();
    let mut all: Vec<PollFd<'_>> = files.map(|file| PollFd::new(file, PollFlags::IN)).collect();
    let time = Timespec {
        tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: wait.subsec_nanos().into(),
    };
    let is_any = poll(&mut all, Some(&time)).is_ok_and(|ready| ready > 0);
    all.iter()
        .map(|one| is_any && !one.revents().is_empty())
        .collect()
}
