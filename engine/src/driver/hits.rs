//! Hits that take no lock of the driver.
//!
//! A read whose bytes are shown (`store/shown.rs`) is copied from there and noted. Whatever takes the driver's lock next
//! reports what was noted to the machine first (`noted.rs`). A thread that has noted many takes the lock for that itself.
//!
//! ```text
//!   read ──► shown? ──yes──► lease, copy, note ──64 are noted──► the lock: reported
//!              │ no
//!              └──► the lock, as any read (`read.rs`, `task.rs`)
//! ```
//!
//! Example: 16 threads read pages of 4 KiB that are cached. Of 64 reads of a thread one takes the lock, for all threads; each of
//! the others takes two locks that hardly any other thread wants.

use super::files::OpenFile;
use super::noted::Hit;
use super::read_buf::ReadBuf;
use super::reaping;
use super::shared::Shared;
use super::version_cursor::VersionCursor;
use crate::error::Fault;
use crate::store::Lease;
use foreread_core::units::{ByteRange, FileId};
use std::sync::Arc;

/// Reads `range`, if it is shown. Nothing when the driver has to be asked.
#[inline]
pub fn read(
    shared: &Arc<Shared>,
    OpenFile { file, open }: OpenFile,
    seen: &VersionCursor,
    buf: &mut ReadBuf<'_, '_>,
    range: ByteRange,
) -> Option<Result<usize, Fault>> {
    let mut lease = Lease::default();
    // After a panic behind the lock what is shown may be outdated.
    if !shared
        .shown
        .lease(file, range, |known| seen.allows(known), &mut lease)
        || shared.state.is_stopped()
    {
        return None;
    }
    let len = buf.take(0, &lease);
    drop(lease);
    if shared.noted.note(Hit { open, range }) {
        return Some(report(shared, file).map(|()| len));
    }
    Some(Ok(len))
}

/// Takes the lock, which reports what was noted, and does what any read does then.
#[cold]
fn report(shared: &Arc<Shared>, file: FileId) -> Result<(), Fault> {
    let now = shared.now();
    let mut state = reaping::enter(shared, file)?;
    state.ring_timer(now);
    state.unlock();
    Ok(())
}
