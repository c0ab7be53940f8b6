//! Receives the bodies of replies in tasks of the async runtime, whose threads also drive the connections. The reader's thread is
//! woken only once for many pieces of a body.
//!
//! A body arrives in pieces of a few KiB to 400 KiB. If the reader's thread waited for each piece, each piece would cost two
//! context switches. A task of the runtime needs no context switch. The reader receives the bytes in groups, each as large as one
//! buffer of the cache.
//!
//! ```text
//!   connection ──piece, piece, piece──► task ──pieces up to the end of a group──► reader, which copies them
//!                                        └─ at most four groups ahead of the reader
//! ```
//! Example: if 8 MiB of a body arrive in 100 pieces, the reader gets 33 messages: the first piece, which shows that the reply has
//! arrived, and 32 groups. The whole body of a small object is one message.
//!
//! The task stops reading the body when the reader is dropped.

use super::refusal::Refusal;
use super::settings::ObjectSettings;
use crate::arena::GROUP_BYTES;
use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt};
use object_store::path::Path;
use object_store::{Error, GetOptions, ObjectMeta, ObjectStore};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinSet;
use tokio::time::timeout;

const GROUP: u64 = GROUP_BYTES as u64;
/// Messages that wait for the reader; the task holds one more.
const GROUPS_AHEAD: usize = 3;

/// Turns an error of the store's client into a refusal.
pub type Refuse = fn(Error) -> Refusal;

/// The headers of a reply.
pub struct Head {
    pub meta: ObjectMeta,
    pub range: Range<u64>,
    /// When it arrived.
    pub at: Instant,
}

/// The bytes of a reply, as they arrive.
pub struct Body {
    first: Vec<Bytes>,
    more: Receiver<Message>,
    /// Its one task is aborted when this is dropped.
    task: JoinSet<()>,
}

type Message = Result<Arrived, Refusal>;

#[derive(Default)]
struct Arrived {
    /// Only the first message has it.
    head: Option<Head>,
    pieces: Vec<Bytes>,
}

/// Waits for the task. If it panicked, so does the caller.
async fn ended(task: &mut JoinSet<()>) {
    if let Some(Err(error)) = task.join_next().await
        && let Ok(panic) = error.try_into_panic()
    {
        std::panic::resume_unwind(panic);
    }
}

impl Body {
    /// Sends a request and waits for its reply, within the time limits of the settings.
    pub async fn ask(
        objects: &Arc<dyn ObjectStore>,
        path: &Path,
        options: GetOptions,
        settings: &ObjectSettings,
        refuse: Refuse,
    ) -> Result<(Head, Body), Refusal> {
        let (objects, path) = (Arc::clone(objects), path.clone());
        let (first_byte, stall) = (settings.first_byte, settings.stall);
        let (to, mut more) = channel(GROUPS_AHEAD);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let begun = timeout(first_byte, begun(&*objects, &path, options));
            let done = match begun.await {
                Err(_) => Err(Refusal::FirstByte(first_byte)),
                Ok(Err(error)) => Err(refuse(error)),
                Ok(Ok((head, body))) => forward(head, body, stall, refuse, &to).await,
            };
            if let Err(refusal) = done {
                // A dropped reader needs no error.
                let _ = to.send(Err(refusal)).await;
            }
        });
        let Some(arrived) = more.recv().await else {
            ended(&mut task).await;
            return Err(Refusal::FirstByte(first_byte));
        };
        let Arrived { head, pieces } = arrived?;
        let body = Body {
            first: pieces,
            more,
            task,
        };
        match head {
            Some(head) => Ok((head, body)),
            None => Err(Refusal::FirstByte(first_byte)),
        }
    }

    /// Waits for the next bytes of the body and returns them; the result is empty after the last bytes.
    pub async fn next(&mut self) -> Result<Vec<Bytes>, Refusal> {
        if !self.first.is_empty() {
            return Ok(std::mem::take(&mut self.first));
        }
        match self.more.recv().await {
            Some(arrived) => arrived.map(|arrived| arrived.pieces),
            None => {
                ended(&mut self.task).await;
                Ok(Vec::new())
            }
        }
    }
}

/// Sends the request, and waits for the first bytes.
async fn begun(
    objects: &dyn ObjectStore,
    path: &Path,
    options: GetOptions,
) -> Result<(Head, impl Stream<Item = Result<Bytes, Error>> + Unpin), Error> {
    let answer = objects.get_opts(path, options).await?;
    let head = Head {
        meta: answer.meta.clone(),
        range: answer.range.clone(),
        at: Instant::now(),
    };
    let mut body = answer.into_stream();
    let first = body.next().await;
    Ok((head, stream::iter(first).chain(body)))
}

/// Passes on what arrives. Ends early if the reader is dropped.
async fn forward(
    head: Head,
    mut body: impl Stream<Item = Result<Bytes, Error>> + Unpin,
    stall: Duration,
    refuse: Refuse,
    to: &Sender<Message>,
) -> Result<(), Refusal> {
    let Range { start: mut at, end } = head.range;
    // The range that the store reports is not checked yet.
    let mut is_due = end.saturating_sub(at) > GROUP;
    let mut arrived = Arrived {
        head: Some(head),
        pieces: Vec::new(),
    };
    let ended = loop {
        let piece = match timeout(stall, body.next()).await {
            Err(_) => break Err(Refusal::Stall(stall)),
            Ok(None) => break Ok(()),
            Ok(Some(Err(error))) => break Err(refuse(error)),
            Ok(Some(Ok(piece))) => piece,
        };
        let group = at / GROUP;
        at = at.saturating_add(piece.len() as u64);
        is_due |= at / GROUP > group || at > end;
        arrived.pieces.push(piece);
        // The last bytes are sent together with the end.
        if is_due && at != end {
            if to.send(Ok(std::mem::take(&mut arrived))).await.is_err() {
                return Ok(());
            }
            is_due = false;
        }
    };
    // Bytes that arrived before an error are used.
    if arrived.head.is_some() || !arrived.pieces.is_empty() {
        let _ = to.send(Ok(arrived)).await;
    }
    ended
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of each message, whether the first has the head, and how it ended.
    fn messages(
        range: Range<u64>,
        pieces: Vec<Result<usize, ()>>,
    ) -> (Vec<u64>, bool, Result<(), Refusal>) {
        let head = Head {
            meta: ObjectMeta {
                location: Path::from("x"),
                last_modified: chrono::DateTime::UNIX_EPOCH,
                size: u64::MAX / 2,
                e_tag: None,
                version: None,
            },
            range,
            at: Instant::now(),
        };
        let pieces = pieces.into_iter().map(|piece| {
            piece
                .map(|len| Bytes::from(vec![0; len]))
                .map_err(|()| Error::NotImplemented {
                    operation: String::new(),
                    implementer: String::new(),
                })
        });
        let (to, mut from) = channel(1000);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime");
        let minute = Duration::from_secs(60);
        let work = forward(head, stream::iter(pieces), minute, Refusal::of_foreign, &to);
        let ended = runtime.block_on(work);
        drop(to);
        let (mut lens, mut heads) = (Vec::new(), Vec::new());
        while let Ok(message) = from.try_recv() {
            let arrived = message.unwrap_or_else(|_| unreachable!("it is returned"));
            lens.push(arrived.pieces.iter().map(|piece| piece.len() as u64).sum());
            heads.push(arrived.head.is_some());
        }
        let is_first = heads.iter().position(|&has| has) == Some(0);
        (
            lens,
            is_first && heads.iter().filter(|&&has| has).count() == 1,
            ended,
        )
    }

    #[test]
    fn a_message_ends_where_a_group_does_and_the_last_with_the_body() {
        let start = 3 * GROUP + 1000;
        let pieces = |count| vec![Ok(10_000); count];
        let (lens, has_head, ended) = messages(start..start + 1_000_000, pieces(100));
        let mut at = start + lens[0];
        for len in &lens[1..lens.len() - 1] {
            assert!((at + len) / GROUP == at / GROUP + 1 && (at + len) % GROUP < 10_000);
            at += len;
        }
        assert_eq!(lens[0], 10_000, "the answer has come");
        assert_eq!(lens.iter().sum::<u64>(), 1_000_000);
        assert!(has_head && ended.is_ok() && lens.len() <= 6, "{lens:?}");
        let (small, has_head, _) = messages(0..60_000, pieces(6));
        assert!(has_head && small == [60_000]);
    }

    #[test]
    fn what_came_before_an_error_or_an_early_end_is_used() {
        let (lens, _, ended) = messages(0..1_000_000, vec![Ok(1000), Ok(2000), Err(())]);
        assert!(lens == [1000, 2000] && matches!(ended, Err(Refusal::Foreign { .. })));
        let (lens, has_head, ended) = messages(0..100, vec![Err(())]);
        assert!(lens == [0] && has_head && ended.is_err());
        let (lens, has_head, ended) = messages(0..100, Vec::new());
        assert!(lens == [0] && has_head && ended.is_ok());
    }

    /// They are not collected: the reader refuses the body.
    #[test]
    fn bytes_beyond_the_range_are_sent_at_once() {
        let (lens, _, _) = messages(0..100, vec![Ok(90), Ok(20), Ok(30)]);
        assert_eq!(lens, [110, 30]);
    }
}
