//! [`ReadCursor`] for async tasks: `AsyncRead` and `AsyncSeek` of tokio; `tokio_util::compat` turns them into those of futures.
//!
//! With these traits, the caller's buffer is available only during one poll, but the pieces of a read arrive over a longer time. So the
//! first poll reads into the caller's buffer; if the read must wait, it continues into a buffer of the cursor.
//!
//! ```text
//!   poll(buf of 64K) ──► cached ──► Ready: in the caller's buffer, no copy here
//!                    └─► not yet ──► Pending, own buffer of 64K ──► poll(buf of 4K) ──► Ready: 4K copied, 60K kept for the next
//! ```
//!
//! A read is limited to [`MAX_READ`] bytes. If a cursor is dropped, or moved by a seek, its pending read is cancelled; bytes
//! already fetched for it stay cached.

use super::ReadCursor;
use crate::driver::Progress;
use crate::engine::Engine;
use crate::error::ReadError;
use crate::reader::Reader;
use std::borrow::Borrow;
use std::io::{Result, SeekFrom};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// Maximum bytes read by one poll: the engine's own largest fetch.
const MAX_READ: usize = 1 << 20;

/// The state of a cursor in an async task.
#[derive(Default)]
pub(super) enum Task {
    /// No read is pending, and no bytes are left.
    #[default]
    Idle,
    /// A read is pending.
    Waiting(WaitingRead),
    /// Bytes from the position on; those before `taken` have been returned to the caller.
    Read { buf: Vec<u8>, taken: usize },
}

/// A pending read, and its buffer.
pub(super) struct WaitingRead {
    engine: Engine,
    progress: Progress,
    buf: Vec<u8>,
}

impl Drop for WaitingRead {
    fn drop(&mut self) {
        self.engine.driver().abandon(&mut self.progress);
    }
}

impl<R: Borrow<Reader>> ReadCursor<R> {
    /// Reads into `out`, as many bytes as one read gives.
    fn poll_into(&mut self, out: &mut [u8], waker: &Waker) -> Poll<Result<usize>> {
        let cut = out.len().min(MAX_READ);
        let out = &mut out[..cut];
        if out.is_empty() {
            return Poll::Ready(Ok(0));
        }
        match std::mem::take(&mut self.task) {
            Task::Idle => self.begin(out, waker),
            Task::Waiting(waiting) => self.go_on(waiting, out, waker),
            Task::Read { buf, taken } => Poll::Ready(Ok(self.take(buf, taken, out))),
        }
    }

    fn begin(&mut self, out: &mut [u8], waker: &Waker) -> Poll<Result<usize>> {
        let reader = self.reader.borrow();
        let mut waiting = WaitingRead {
            engine: reader.engine().clone(),
            progress: Progress::default(),
            buf: Vec::new(),
        };
        match reader.poll_at(out, self.position, &mut waiting.progress, waker) {
            Poll::Ready(read) => Poll::Ready(self.advance(read)),
            Poll::Pending => {
                // Pieces that have arrived are in the caller's buffer, and the next poll may pass a different buffer.
                waiting.buf = out.to_vec();
                self.task = Task::Waiting(waiting);
                Poll::Pending
            }
        }
    }

    fn go_on(
        &mut self,
        mut waiting: WaitingRead,
        out: &mut [u8],
        waker: &Waker,
    ) -> Poll<Result<usize>> {
        let reader = self.reader.borrow();
        match reader.poll_at(
            &mut waiting.buf,
            self.position,
            &mut waiting.progress,
            waker,
        ) {
            Poll::Ready(Ok(read)) => {
                let mut buf = std::mem::take(&mut waiting.buf);
                buf.truncate(read);
                Poll::Ready(Ok(self.take(buf, 0, out)))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error.into())),
            Poll::Pending => {
                self.task = Task::Waiting(waiting);
                Poll::Pending
            }
        }
    }

    /// Copies bytes that were read to `out`, and keeps the rest.
    fn take(&mut self, buf: Vec<u8>, taken: usize, out: &mut [u8]) -> usize {
        let n = out.len().min(buf.len() - taken);
        out[..n].copy_from_slice(&buf[taken..taken + n]);
        if taken + n < buf.len() {
            self.task = Task::Read {
                buf,
                taken: taken + n,
            };
        }
        self.position += n as u64;
        n
    }

    fn advance(&mut self, read: std::result::Result<usize, ReadError>) -> Result<usize> {
        let read = read?;
        self.position += read as u64;
        Ok(read)
    }
}

impl<R: Borrow<Reader> + Unpin> tokio::io::AsyncRead for ReadCursor<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut tokio::io::ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        let out = buf.initialize_unfilled();
        self.poll_into(out, context.waker())
            .map_ok(|read| buf.advance(read))
    }
}

impl<R: Borrow<Reader> + Unpin> tokio::io::AsyncSeek for ReadCursor<R> {
    fn start_seek(mut self: Pin<&mut Self>, to: SeekFrom) -> Result<()> {
        self.move_to(to).map(drop)
    }

    fn poll_complete(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<u64>> {
        Poll::Ready(Ok(self.position))
    }
}
