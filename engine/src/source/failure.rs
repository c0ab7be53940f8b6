//! What is reported of a source that fails.
//!
//! Example: an object that was replaced fails every read of its old version. The log has one line a minute, with the number
//! of reads that it is for.

use super::SourceError;
use crate::log::once_a_minute;
use rustix::io::Errno;

/// A source failed, or holds another version. A fetch that was ended because nothing needs it did not fail.
pub(crate) fn report_failure(error: &SourceError) {
    if error.errno() == Errno::CANCELED.raw_os_error() {
        return;
    }
    let text = error.to_string();
    let Some(times) = once_a_minute(&text) else {
        return;
    };
    match error {
        SourceError::Changed { .. } => tracing::warn!(times, "source changed: {text}"),
        SourceError::Io { .. } | SourceError::Other { .. } | SourceError::Short { .. } => {
            tracing::warn!(times, "source failed: {text}")
        }
    }
}
