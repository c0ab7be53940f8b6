//! Asynchronous reads by tasks, with any async runtime or without one.
//!
//! An asynchronous read needs no runtime, and no thread of the caller. A poll blocks only if no worker thread is available.

use super::{Reader, SourceLabel};
use crate::driver::{Progress, ReadBuf, ReadSpan, TaskRead};
use crate::error::ReadError;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

impl Reader {
    /// Like [`Reader::read_at`], but asynchronous. The read starts when the future is first polled, and the task's thread is free while
    /// the source is read. Dropping the future cancels the read; pages already fetched stay cached.
    ///
    /// The polling thread copies the bytes. The engine's worker threads run fetches, or the fetches go to the source's queue. An engine
    /// without worker threads ([`Options::threads`](crate::Options::threads) is 0, or none can be started) reads the source during the
    /// poll, which then blocks. Opening and dropping a reader block the thread, so open and drop readers on your runtime's threads for
    /// blocking calls.
    ///
    /// ```
    /// use foreread::{Options, Reader, source::Mem};
    /// use std::sync::Arc;
    ///
    /// async fn head(reader: &Reader) -> Result<[u8; 4], foreread::ReadError> {
    ///     let mut head = [0; 4];
    ///     reader.read_at_async(&mut head, 0).await?;
    ///     Ok(head)
    /// }
    ///
    /// let reader = Reader::open(Arc::new(Mem::new(b"data and more".to_vec())), Options::default())?;
    /// assert_eq!(&pollster::block_on(head(&reader))?, b"data");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`Reader::read_at`].
    pub fn read_at_async<'a>(&'a self, buf: &'a mut [u8], offset: u64) -> ReadAt<'a> {
        ReadAt {
            reader: self,
            buf,
            offset,
            progress: Progress::default(),
        }
    }

    /// Polls a read into `buf`. A pending read has already stored pieces in `buf`, so the next poll must pass the same buffer.
    pub(crate) fn poll_at(
        &self,
        buf: &mut [u8],
        offset: u64,
        progress: &mut Progress,
        waker: &Waker,
    ) -> Poll<Result<usize, ReadError>> {
        let len = buf.len();
        let task = TaskRead {
            at: self.at,
            seen: &self.seen,
            offset,
            waker,
        };
        if progress.is_first() && ReadSpan::is_wanted() {
            progress.span = ReadSpan::begin(self.at, offset, len);
        }
        let span = progress.span.take();
        let poll = {
            let _entered = span.as_ref().map(ReadSpan::enter);
            self.engine
                .driver()
                .poll_read(&task, &mut ReadBuf::One(buf), progress)
        };
        match (&poll, span) {
            (Poll::Pending, span) => progress.span = span,
            (Poll::Ready(read), Some(span)) => {
                span.end(read, progress.looked_up, SourceLabel(&*self.source));
            }
            (Poll::Ready(_), None) => {}
        }
        poll.map_err(|fault| self.explain(fault, len, offset))
    }
}

/// The future of a read, created by [`Reader::read_at_async`].
#[must_use = "a read does nothing until it is awaited"]
pub struct ReadAt<'a> {
    reader: &'a Reader,
    buf: &'a mut [u8],
    offset: u64,
    progress: Progress,
}

impl Future for ReadAt<'_> {
    type Output = Result<usize, ReadError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let ReadAt {
            reader,
            buf,
            offset,
            progress,
        } = self.get_mut();
        reader.poll_at(buf, *offset, progress, context.waker())
    }
}

impl Drop for ReadAt<'_> {
    fn drop(&mut self) {
        self.reader.engine.driver().abandon(&mut self.progress);
    }
}
