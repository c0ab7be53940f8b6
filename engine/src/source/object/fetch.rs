//! Carries out one read: its request, retries for transient errors, and three time limits.
//!
//! A read never returns a byte of another version or more bytes than requested, and never waits without a time limit.
//!
//! ```text
//!   read ──► ask ──► bytes ──► bytes ──► complete
//!             ▲  first byte, stall │
//!             │ pause, doubled     ▼
//!             └──── transient ── Refusal ── permanent, or too often ──► the read fails
//!   received bytes are kept: the next try continues after them, with the same If-Match
//! ```
//! If a reply has another version, or is a 412, the request is sent once more without `If-Match`. foreread asks twice because some
//! servers refuse the ETags that they have sent themselves, and because a single reply may be wrong. The second reply decides whether the
//! object has changed. If the second reply has the version that the reader has accepted, the object is unchanged, and requests to that
//! server no longer carry `If-Match` (`network.rs`). `Retry-After` is respected if the total time allows it; otherwise the read fails at
//! once.

use super::body::{Body, Head};
use super::network::Turn;
use super::refusal::Refusal;
use super::settings::ObjectSettings;
use super::store::Store;
use super::version::{Validator, Version};
use crate::log;
use crate::source::Sink;
use crate::source::sinks::FillPlace;
use bytes::Bytes;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, GetResult};
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// Longest pause reached by doubling; a server may request a longer one.
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// How often a request without progress checks whether it is still needed.
const LOOKS_EVERY: Duration = Duration::from_millis(50);

/// The first bytes of an object, with its version.
pub struct Front {
    pub said: Validator,
    pub bytes: Vec<u8>,
    /// From the request to the header of its reply.
    pub answered_in: Duration,
}

impl Front {
    fn empty(said: Validator, answered_in: Duration) -> Front {
        Front {
            said,
            bytes: Vec::new(),
            answered_in,
        }
    }
}

/// Counters of all requests of an object.
#[derive(Debug, Default)]
pub struct Tally {
    pub requests: AtomicU64,
    pub retries: AtomicU64,
    pub bytes: AtomicU64,
    /// A part of the accepted version has arrived, and nothing has failed since.
    pub confirmed: AtomicBool,
}

/// The tries of one request, and the time limit for all these tries together.
#[derive(Debug)]
pub struct Tries {
    made: u32,
    since: Instant,
    /// When the last try began.
    begun: Instant,
    /// Credentials that were refused have been renewed.
    is_renewed: bool,
    total: Duration,
    /// How many retries are permitted, as a multiple of those in the settings.
    times: u32,
}

impl Tries {
    pub fn within(total: Duration) -> Tries {
        let now = Instant::now();
        Tries {
            made: 0,
            since: now,
            begun: now,
            is_renewed: false,
            total,
            times: 1,
        }
    }

    /// Tries for bytes of an object whose server has replied before: it may only be starting again.
    fn of_bytes(total: Duration) -> Tries {
        Tries {
            times: 2,
            ..Tries::within(total)
        }
    }

    /// Begins another try of the request.
    pub fn begin(&mut self) {
        self.begun = Instant::now();
    }

    /// Returns the time since the first try.
    pub fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }

    fn left(&self) -> Duration {
        self.total.saturating_sub(self.elapsed())
    }
}

/// The store, object and settings of a read, with the functions that send its requests.
pub struct Asker<'a> {
    pub store: &'a Store,
    pub path: &'a Path,
    pub settings: &'a ObjectSettings,
    pub tally: &'a Tally,
}

impl Asker<'_> {
    /// Sends one request for the remaining `len` bytes, and passes these to a sink, from first to last, as they arrive.
    pub async fn stream<S: Sink + ?Sized>(
        &self,
        version: &Version,
        place: SinkRange<'_, S>,
        len: u64,
    ) -> Result<(), Refusal> {
        let total = self.settings.total_for(len);
        let all = self.part(version, place, total);
        timeout(total, all)
            .await
            .unwrap_or(Err(Refusal::Total(total)))
    }

    /// Returns the current version. The version is requested together with the first byte, which also shows whether the server
    /// supports ranges. For a store that the program has created, only the version is requested, because stores refuse a request
    /// for the first byte of an empty object in different ways.
    pub async fn version(&self) -> Result<Validator, Refusal> {
        if self.store.is_foreign {
            let head = self.in_time(self.ask(GetOptions::new().with_head(true)));
            return head.await.map(|answer| Validator::of(&answer.meta));
        }
        self.front(1, None).await.map(|front| front.said)
    }

    /// Returns the current version and its first bytes, at most `len` (which must not be 0). Returns the version without bytes if the
    /// body does not arrive completely, or if `held` is still the current version.
    pub async fn front(&self, len: u64, held: Option<Validator>) -> Result<Front, Refusal> {
        let total = self.settings.total;
        let mut tries = Tries::within(total);
        let unless_refused = &self.store.server.conditions.unless_refused;
        let mut held = held.filter(|_| !unless_refused.load(Ordering::Relaxed));
        let asked = async {
            loop {
                let turn = self.store.server.brake.turn(|| true).await;
                tries.begin();
                let asked = Instant::now();
                let done = counted(turn, self.probe(len, held.as_ref()).await);
                let refusal = match done {
                    Ok(front) => return Ok(front),
                    Err(refusal) => refusal,
                };
                if refusal.may_be_of_condition()
                    && let Some(said) = held.take()
                {
                    if refusal == Refusal::Unmodified {
                        return Ok(Front::empty(said, asked.elapsed()));
                    }
                    if !matches!(refusal, Refusal::PastEnd { .. }) {
                        unless_refused.store(true, Ordering::Relaxed);
                    }
                    continue;
                }
                self.again(&refusal, &mut tries).await?;
            }
        };
        timeout(total, asked)
            .await
            .unwrap_or(Err(Refusal::Total(total)))
    }

    async fn probe(&self, len: u64, held: Option<&Validator>) -> Result<Front, Refusal> {
        let asked = Instant::now();
        let first = GetOptions {
            range: Some(GetRange::Bounded(0..len)),
            ..held.map_or_else(GetOptions::default, Validator::condition_unless)
        };
        let (head, body) = match self.begun(first).await {
            Err(Refusal::Empty { etag, modified }) => {
                let said = Validator::new(etag.as_deref(), modified, 0);
                return Ok(Front::empty(said, asked.elapsed()));
            }
            Err(refusal) if held.is_none() && refusal.may_be_of_nothing() => {
                return self.probe_whole(refusal, asked).await;
            }
            answer => answer?,
        };
        let bytes = if len > 1 {
            self.body(body, len.min(head.meta.size)).await
        } else {
            Vec::new()
        };
        Ok(Front {
            said: Validator::of(&head.meta),
            bytes,
            answered_in: head.at - asked,
        })
    }

    /// An empty object has no first byte. A request without a range shows whether the object is empty, and returns its ETag.
    async fn probe_whole(&self, refusal: Refusal, asked: Instant) -> Result<Front, Refusal> {
        match self.in_time(self.ask(GetOptions::default())).await {
            Ok(whole) if whole.meta.size == 0 => {
                Ok(Front::empty(Validator::of(&whole.meta), asked.elapsed()))
            }
            Err(other) if other.is_passing() || other == Refusal::Folder => Err(other),
            // The server has reported an empty object, and gives no more information.
            Err(_) if refusal == (Refusal::PastEnd { size: Some(0) }) => {
                Ok(Front::empty(Validator::new(None, None, 0), asked.elapsed()))
            }
            _ => Err(refusal),
        }
    }

    /// All `len` bytes of a body, or none.
    async fn body(&self, mut body: Body, len: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len as usize);
        loop {
            match body.next().await {
                Ok(pieces) if !pieces.is_empty() => {
                    self.count(&pieces);
                    pieces
                        .iter()
                        .for_each(|piece| bytes.extend_from_slice(piece));
                }
                Ok(_) if bytes.len() as u64 == len => return bytes,
                _ => return Vec::new(),
            }
        }
    }

    fn count(&self, pieces: &[Bytes]) {
        let bytes = pieces.iter().map(|piece| piece.len() as u64).sum();
        self.tally.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    async fn part<S: Sink + ?Sized>(
        &self,
        version: &Version,
        mut place: SinkRange<'_, S>,
        total: Duration,
    ) -> Result<(), Refusal> {
        let mut tries = Tries::of_bytes(total);
        while !place.left().is_empty() {
            let turn = needed(
                &place,
                self.store.server.brake.turn(|| place.place.is_awaited()),
            )
            .await?;
            tries.begin();
            let done = counted(turn, self.attempt(version, &mut place).await);
            self.tally.confirmed.store(done.is_ok(), Ordering::Relaxed);
            if let Err(refusal) = done {
                self.again(&refusal, &mut tries).await?;
            }
        }
        Ok(())
    }

    /// One request for what is left, until its end or until nothing needs it.
    async fn attempt<S: Sink + ?Sized>(
        &self,
        version: &Version,
        place: &mut SinkRange<'_, S>,
    ) -> Result<(), Refusal> {
        let mut body = needed(&*place, self.send(version, place.left())).await??;
        loop {
            let pieces = needed(&*place, body.next()).await??;
            if pieces.is_empty() {
                break;
            }
            self.count(&pieces);
            for piece in &pieces {
                place.put(piece)?;
            }
        }
        if place.left().is_empty() {
            Ok(())
        } else {
            Err(Refusal::Lost("it ended too early".to_string()))
        }
    }

    async fn send(&self, version: &Version, range: Range<u64>) -> Result<Body, Refusal> {
        let conditions = &self.store.server.conditions;
        let named = conditions.may_name(version.is_listed());
        let condition = if named {
            version.now().condition()
        } else {
            GetOptions::default()
        };
        let first = self.send_once(version, range.clone(), condition).await;
        let Some(refusal) = first.as_ref().err().filter(|refusal| refusal.is_change()) else {
            return first;
        };
        tracing::debug!(
            "requesting a range of an object again, without a condition on its version: {refusal}"
        );
        let again = self
            .send_once(version, range, GetOptions::default())
            .await?;
        if *refusal == Refusal::Unmet {
            conditions.failed(!version.is_as_listed());
        }
        Ok(again)
    }

    async fn send_once(
        &self,
        version: &Version,
        range: Range<u64>,
        condition: GetOptions,
    ) -> Result<Body, Refusal> {
        let options = GetOptions {
            range: Some(GetRange::Bounded(range.clone())),
            ..condition
        };
        let answer = self.begun(options).await;
        let (head, body) = answer.map_err(|refusal| version.refused(refusal))?;
        let is_first = version.is_listed();
        version.check(&Validator::of(&head.meta))?;
        // Replies that are read here have been compared already (`reply.rs`).
        if self.store.is_foreign && head.range != range {
            return Err(Refusal::OtherPart);
        }
        if is_first {
            self.store.server.conditions.replied(version.is_as_listed());
        }
        Ok(body)
    }

    async fn again(&self, refusal: &Refusal, tries: &mut Tries) -> Result<(), Refusal> {
        pause(self.settings, self.store, refusal, tries).await?;
        self.tally.retries.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Limits the work that must be done before the first byte is due.
    async fn in_time<T>(
        &self,
        work: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        let first_byte = self.settings.first_byte;
        timeout(first_byte, work)
            .await
            .unwrap_or(Err(Refusal::FirstByte(first_byte)))
    }

    /// Sends a request and waits for the first bytes of its reply.
    async fn begun(&self, options: GetOptions) -> Result<(Head, Body), Refusal> {
        self.tally.requests.fetch_add(1, Ordering::Relaxed);
        let (objects, refuse) = (&self.store.objects, self.store.refuse());
        Body::ask(objects, self.path, options, self.settings, refuse).await
    }

    /// Sends a request and waits for the header of its reply.
    async fn ask(&self, options: GetOptions) -> Result<GetResult, Refusal> {
        self.tally.requests.fetch_add(1, Ordering::Relaxed);
        self.store
            .objects
            .get_opts(self.path, options)
            .await
            .map_err(self.store.refuse())
    }
}

/// Records the end of a request, whose server may ask for fewer requests.
fn counted<T>(turn: Turn<'_>, done: Result<T, Refusal>) -> Result<T, Refusal> {
    match &done {
        Ok(_) | Err(Refusal::Unmodified) => turn.answered(),
        Err(refusal) if refusal.asks_for_fewer() => {
            if let Some(now) = turn.refused() {
                tracing::debug!(
                    requests = now,
                    "an object's server asks for fewer concurrent requests: {refusal}"
                );
            }
        }
        Err(_) => {}
    }
    done
}

/// Waits for a result as long as the bytes are needed. If a body is given up, its connection is closed, so the server stops
/// sending.
async fn needed<T>(
    place: &SinkRange<'_, impl Sink + ?Sized>,
    work: impl Future<Output = T>,
) -> Result<T, Refusal> {
    let mut work = std::pin::pin!(work);
    while !place.place.is_cancelled() {
        if let Ok(done) = timeout(LOOKS_EVERY, &mut work).await {
            return Ok(done);
        }
    }
    Err(Refusal::Cancelled)
}

/// Waits before the next try of a request. Returns the refusal if there is no further try, or if the server requests a longer pause than
/// the time limit allows. If the server refuses the credentials, they are renewed once.
pub async fn pause(
    settings: &ObjectSettings,
    store: &Store,
    refusal: &Refusal,
    tries: &mut Tries,
) -> Result<(), Refusal> {
    if refusal.is_of_credentials() && !tries.is_renewed {
        tries.is_renewed = true;
        let credentials = store.credentials.as_ref();
        if let Some(credentials) = credentials
            && credentials.renew(tries.begun).await
        {
            return Ok(());
        }
    }
    let own = settings
        .pause
        .saturating_mul(1 << tries.made.min(16))
        .min(MAX_PAUSE);
    let wanted = refusal.retry_after().unwrap_or_default();
    let most = settings.retries.saturating_mul(tries.times);
    if tries.made >= most || !refusal.is_passing() || wanted >= tries.left() {
        return Err(refusal.clone());
    }
    tries.made += 1;
    if let Some(times) = log::once_a_minute(&refusal.to_string()) {
        tracing::info!(times, "retrying a request to an object's server: {refusal}");
    }
    // The system seeds each value differently, so that many readers refused together do not retry together.
    let random = RandomState::new().hash_one(tries.made) % 1000;
    let most = u64::try_from(own.as_micros()).unwrap_or(u64::MAX / 1000);
    let own = Duration::from_micros(most / 2 + most * random / 2000);
    tokio::time::sleep(own.max(wanted)).await;
    Ok(())
}

/// A sink that accepts only the bytes of one range, which one request brings.
pub struct SinkRange<'s, S: Sink + ?Sized = dyn Sink + 's> {
    place: FillPlace<'s, S>,
    end: u64,
}

impl<'s, S: Sink + ?Sized> SinkRange<'s, S> {
    pub fn new(sink: &'s mut S, range: Range<u64>) -> SinkRange<'s, S> {
        SinkRange {
            place: FillPlace::new(sink, range.start),
            end: range.end,
        }
    }

    /// The part of the object that has not arrived yet.
    pub fn left(&self) -> Range<u64> {
        self.place.at..self.end
    }

    /// Passes on the first bytes of the range, which an earlier request has fetched.
    pub fn put_at_hand(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        self.place.at_hand();
        self.put(bytes)
    }

    /// Accepts the next bytes. Fails if there are more bytes than expected.
    pub fn put(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        let (got, asked) = (bytes.len() as u64, self.end - self.place.at);
        if got > asked {
            return Err(Refusal::Length { got, asked });
        }
        let got = got - self.place.put(bytes) as u64;
        if got > 0 {
            return Err(Refusal::Length { got, asked: 0 });
        }
        if self.left().is_empty() {
            self.place.end();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds it in small pieces what belongs there, and one byte more.
    fn feed(mut place: SinkRange<'_>) {
        let bytes: Vec<u8> = place.left().map(|n| n as u8).collect();
        for piece in bytes.chunks(2) {
            place.put(piece).expect("room");
        }
        assert!(place.left().is_empty());
        assert!(
            matches!(place.put(&[1]), Err(Refusal::Length { .. })),
            "one more"
        );
    }

    #[test]
    fn a_sink_gets_each_full_buffer_and_the_last() {
        struct Rooms {
            rooms: Vec<Vec<u8>>,
            told: Vec<usize>,
        }
        impl Sink for Rooms {
            fn room(&mut self) -> Option<&mut [u8]> {
                self.rooms
                    .get_mut(self.told.len())
                    .map(|room| &mut room[..])
            }
            fn filled(&mut self, bytes: usize) {
                self.told.push(bytes);
            }
        }
        for (end, told) in [(12, vec![5, 5, 2]), (15, vec![5, 5, 5]), (3, vec![3])] {
            let mut sink = Rooms {
                rooms: vec![vec![0; 5]; 3],
                told: Vec::new(),
            };
            feed(SinkRange::new(&mut sink, 0..end));
            assert_eq!(sink.told, told);
            assert_eq!(
                sink.rooms.concat()[..end as usize],
                (0..end as u8).collect::<Vec<u8>>()
            );
        }
    }
}
