//! Wraps any source so that one of its methods, or of its queue's methods, hangs until it is released.
//!
//! The results of the methods stay unchanged.
//!
//! ```text
//!   hang(method) ──► a call of that method ──► held ──release──► the source
//! ```

use foreread::source::{
    Alignment, CompletedTransfer, Defaults, Queue, Sink, Source, SourceError, StreamingSource,
    Transfer, WritableSource, writing_of,
};
use std::io::IoSliceMut;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

macro_rules! methods {
    ($($name:ident)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Method { $($name,)* }

        impl Method {
            /// All methods that an engine calls after a source is opened.
            pub const ALL: &[Method] = &[$(Method::$name,)*];
        }
    };
}

methods! {
    Size ReadAt Streams Stream Describe Alignment Check Accept AllowWrites WriteAt Flush Queue Drop
    QueueDepth QueueSubmit QueueHasEnded QueueReap QueueInterrupt QueueDrop
}

/// Makes calls hang and releases them; the test keeps this value to do so.
#[derive(Debug, Default)]
pub struct Latch {
    state: Mutex<LatchState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct LatchState {
    hangs: Option<Method>,
    held: u32,
}

impl Latch {
    fn state(&self) -> MutexGuard<'_, LatchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on, makes calls of this method hang.
    pub fn hang(&self, method: Method) {
        self.state().hangs = Some(method);
    }

    /// Releases all calls that hang; later calls do not hang.
    pub fn release(&self) {
        self.state().hangs = None;
        self.changed.notify_all();
    }

    /// Waits until a call hangs, but at most for this time. Returns true if a call hangs.
    pub fn holds_within(&self, time: Duration) -> bool {
        let nothing = |state: &mut LatchState| state.held == 0;
        let waited = self.changed.wait_timeout_while(self.state(), time, nothing);
        waited.unwrap_or_else(PoisonError::into_inner).0.held > 0
    }

    /// Returns the number of calls that hang now.
    pub fn held(&self) -> u32 {
        self.state().held
    }

    /// Holds the caller while calls of this method hang.
    pub fn pass(&self, method: Method) {
        let mut state = self.state();
        if state.hangs != Some(method) {
            return;
        }
        state.held += 1;
        self.changed.notify_all();
        let hangs = |state: &mut LatchState| state.hangs == Some(method);
        let state = self.changed.wait_while(state, hangs);
        state.unwrap_or_else(PoisonError::into_inner).held -= 1;
    }
}

/// Methods that hang if their latch says so, and then pass the call on.
macro_rules! held {
    ($me:ident => $to:expr; $($method:ident: $name:ident($($arg:ident: $of:ty),*) $(-> $result:ty)?;)*) => {$(
        fn $name(&$me, $($arg: $of),*) $(-> $result)? {
            $me.latch.pass(Method::$method);
            $to.$name($($arg),*)
        }
    )*};
}

pub struct HangingSource<S> {
    inner: S,
    latch: Arc<Latch>,
    streams: bool,
}

impl<S: Source> HangingSource<S> {
    /// Wraps a source. If `streams` is true, the source is read as a stream, otherwise through its queue and by threads.
    pub fn new(inner: S, streams: bool) -> (HangingSource<S>, Arc<Latch>) {
        let latch = Arc::new(Latch::default());
        let source = HangingSource {
            inner,
            latch: Arc::clone(&latch),
            streams,
        };
        (source, latch)
    }
}

impl<S> Drop for HangingSource<S> {
    fn drop(&mut self) {
        self.latch.pass(Method::Drop);
    }
}

impl<S: Source> Source for HangingSource<S> {
    held! {self => self.inner;
        Size: size() -> u64;
        ReadAt: read_at(bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize, SourceError>;
        Alignment: alignment() -> Alignment;
        Check: check() -> Result<u64, SourceError>;
        Accept: accept() -> u64;
    }

    fn streaming(&self) -> Option<&dyn StreamingSource> {
        self.latch.pass(Method::Streams);
        if self.streams { Some(self) } else { None }
    }

    fn defaults(&self) -> Defaults {
        self.inner.defaults()
    }

    fn describe(&self) -> String {
        self.latch.pass(Method::Describe);
        format!("hanging {}", self.inner.describe())
    }

    fn writing(&self) -> Option<&dyn WritableSource> {
        Some(self)
    }

    fn queue(&self) -> Option<Arc<dyn Queue>> {
        self.latch.pass(Method::Queue);
        let inner = self.inner.queue()?;
        Some(Arc::new(HangingQueue {
            inner,
            latch: Arc::clone(&self.latch),
        }))
    }
}

impl<S: Source> StreamingSource for HangingSource<S> {
    fn stream(&self, len: u64, offset: u64, sink: &mut dyn Sink) -> Result<usize, SourceError> {
        self.latch.pass(Method::Stream);
        let mut done = 0;
        while let Some(room) = sink.room().filter(|_| (done as u64) < len) {
            let (bytes, at) = (room.len(), offset + done as u64);
            let wanted = bytes.min((len - done as u64) as usize);
            let bufs = &mut [IoSliceMut::new(&mut room[..wanted])];
            let read = self.inner.read_at(bufs, at)?;
            sink.filled(read);
            done += read;
            if read < bytes {
                break;
            }
        }
        Ok(done)
    }
}

impl<S: Source> WritableSource for HangingSource<S> {
    held! {self => writing_of(&self.inner)?;
        AllowWrites: allow_writes() -> Result<(), SourceError>;
        WriteAt: write_at(bytes: &[u8], offset: u64) -> Result<(), SourceError>;
        Flush: flush() -> Result<(), SourceError>;
    }
}

struct HangingQueue {
    inner: Arc<dyn Queue>,
    latch: Arc<Latch>,
}

impl Drop for HangingQueue {
    fn drop(&mut self) {
        self.latch.pass(Method::QueueDrop);
    }
}

impl Queue for HangingQueue {
    held! {self => self.inner;
        QueueDepth: depth() -> usize;
        QueueSubmit: submit(transfers: &mut Vec<Transfer>);
        QueueHasEnded: has_ended() -> bool;
        QueueReap: reap(wait: bool, ended: &mut Vec<CompletedTransfer>);
        QueueInterrupt: interrupt();
    }
}
