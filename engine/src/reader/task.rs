//! Asynchronous reads by tasks, with any async runtime or without one.
//!
//! An asynchronous read needs no runtime, and no thread of the caller. A poll blocks only if no worker thread is available.

use super::{Reader, SourceLabel};
use crate::driver::{Progress, ReadSpan, TaskRead};
#[cfg(feature = "nbd")]
use crate::engine::Engine;
use crate::error::ReadError;
#[cfg(feature = "nbd")]
use foreread_core::units::FileId;
use std::future::Future;
#[cfg(feature = "nbd")]
use std::os::fd::OwnedFd;
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

    fn task_read<'a>(
        &'a self,
        buf: &'a mut [u8],
        offset: u64,
        progress: &'a mut Progress,
        waker: &'a Waker,
    ) -> TaskRead<'a> {
        TaskRead {
            at: self.at,
            seen: &self.seen,
            offset,
            buf,
            waker,
            progress,
            outcome: Poll::Pending,
            again: false,
        }
    }

    /// The span of a read while it is polled, if a subscriber wants it.
    fn take_span(&self, progress: &mut Progress, offset: u64, len: usize) -> Option<ReadSpan> {
        if progress.is_first() && ReadSpan::is_wanted() {
            progress.span = ReadSpan::begin(self.at, offset, len);
        }
        progress.span.take()
    }

    /// The result of a poll. Keeps the span of a pending read, and ends that of a finished one.
    fn polled(&self, read: TaskRead<'_>, span: Option<ReadSpan>) -> Poll<Result<usize, ReadError>> {
        match (&read.outcome, span) {
            (Poll::Ready(end), Some(span)) => {
                span.end(end, read.progress.looked_up, SourceLabel(&*self.source));
            }
            (_, span) => read.progress.span = span,
        }
        let (len, offset) = (read.buf.len(), read.offset);
        read.outcome
            .map_err(|fault| self.explain(fault, len, offset))
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
        let span = reader.take_span(progress, *offset, buf.len());
        let mut reads = [reader.task_read(buf, *offset, progress, context.waker())];
        {
            let _entered = span.as_ref().map(ReadSpan::enter);
            reader.engine.driver().poll_reads(&mut reads);
        }
        let [read] = reads;
        reader.polled(read, span)
    }
}

impl Drop for ReadAt<'_> {
    fn drop(&mut self) {
        self.reader.engine.driver().abandon(&mut self.progress);
    }
}

// Reads of an event loop, which polls many of them together.

/// A read that owns its buffer. Dropping this value cancels the read.
#[cfg(feature = "nbd")]
pub(crate) struct OwnedRead {
    engine: Engine,
    pub buf: Vec<u8>,
    pub offset: u64,
    waker: Waker,
    progress: Progress,
}

/// A queue that is watched until this is dropped: see [`Reader::watch`].
#[cfg(feature = "nbd")]
pub(crate) struct QueueWatch {
    engine: Engine,
    file: FileId,
    /// Readable while transfers have ended and are not reaped.
    pub descriptor: OwnedFd,
}

#[cfg(feature = "nbd")]
impl Reader {
    /// Watches the queue of the source, if it has one that an event loop can wait for. Until the result is dropped, the caller must call
    /// [`QueueWatch::reap`] whenever the descriptor is readable: reads by tasks then need no other thread.
    pub(crate) fn watch(&self) -> Option<QueueWatch> {
        Some(QueueWatch {
            engine: self.engine.clone(),
            file: self.at.file,
            descriptor: self.engine.driver().watch(self.at.file)?,
        })
    }

    /// A read of all of `buf`, which starts when it is first polled.
    pub(crate) fn own_read(&self, buf: Vec<u8>, offset: u64, waker: Waker) -> OwnedRead {
        OwnedRead {
            engine: self.engine.clone(),
            buf,
            offset,
            waker,
            progress: Progress::default(),
        }
    }

    /// Polls reads together: their fetches are submitted at once. The results are in the order of the reads.
    pub(crate) fn poll_all(
        &self,
        reads: &mut [&mut OwnedRead],
    ) -> Vec<Poll<Result<usize, ReadError>>> {
        let mut spans = Vec::new();
        let mut batch = Vec::with_capacity(reads.len());
        for read in reads.iter_mut() {
            let OwnedRead {
                buf,
                offset,
                waker,
                progress,
                ..
            } = &mut **read;
            spans.push(self.take_span(progress, *offset, buf.len()));
            batch.push(self.task_read(buf, *offset, progress, waker));
        }
        self.engine.driver().poll_reads(&mut batch);
        let ends = batch.into_iter().zip(spans);
        ends.map(|(read, span)| self.polled(read, span)).collect()
    }
}

#[cfg(feature = "nbd")]
impl QueueWatch {
    pub fn reap(&self) {
        self.engine.driver().reap(self.file);
    }
}

#[cfg(feature = "nbd")]
impl Drop for QueueWatch {
    fn drop(&mut self) {
        self.engine.driver().unwatch(self.file);
    }
}

#[cfg(feature = "nbd")]
impl Drop for OwnedRead {
    fn drop(&mut self) {
        self.engine.driver().abandon(&mut self.progress);
    }
}
