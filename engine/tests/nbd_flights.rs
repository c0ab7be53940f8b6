//! Tests of reads that an NBD client has in flight at the queue of a source: they need no thread, and leave nothing.

use crate::common::nbd as served;

use crate::common::{by, file_of, named, opened, wait_until};
use foreread::front::nbd::NbdSettings;
use foreread::nbd::wire::command;
use foreread::source::{CompletedTransfer, Defaults, Mem, Queue, Source, SourceError, Transfer};
use foreread::{Options, Reader};
use foreread_testing::{self as testing, passed_on};
use served::{Client, MIB, Served, request, writing};
use std::io::{IoSliceMut, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard};

/// Requests of one client in flight.
const LIMIT: usize = 32;

/// The transfers of a [`Held`], and the numbers of transfers that were submitted together.
#[derive(Default)]
struct Transfers {
    waiting: Vec<Transfer>,
    ended: Vec<CompletedTransfer>,
    batches: Vec<usize>,
}

/// A queue whose transfers end when the test says so. Its descriptor is readable while a byte for ended ones is in the pipe.
struct Held {
    source: Mem,
    transfers: Mutex<Transfers>,
    pipe: (UnixStream, UnixStream),
}

impl Held {
    fn new() -> Arc<Held> {
        let pipe = UnixStream::pair().expect("a pipe");
        pipe.1.set_nonblocking(true).expect("a socket");
        Arc::new(Held {
            source: named(64 * MIB),
            transfers: Mutex::default(),
            pipe,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Transfers> {
        self.transfers.lock().expect("no panic")
    }

    fn waiting(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Ends the latest transfers, the last one first.
    fn end(&self, count: usize) {
        let last = |transfers: &Transfers| transfers.waiting.len().checked_sub(1);
        (0..count).for_each(|_| self.end_one(last));
    }

    /// Ends the transfer that this chooses.
    fn end_one(&self, which: impl Fn(&Transfers) -> Option<usize>) {
        let mut transfers = self.lock();
        let at = which(&transfers).expect("it is in flight");
        let mut transfer = transfers.waiting.remove(at);
        let offset = transfer.offset();
        let read = self.source.read_at(&mut transfer.bufs(), offset);
        transfers.ended.push(transfer.end(read));
        (&self.pipe.0).write_all(&[1]).expect("room");
    }
}

/// The source with this queue.
struct HeldSource(Arc<Held>);

impl Source for HeldSource {
    passed_on! {self => self.0.source;
        size() -> u64;
        read_at(bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize, SourceError>;
        describe() -> String;
    }

    fn defaults(&self) -> Defaults {
        Defaults::FILE
    }

    fn queue(&self) -> Option<Arc<dyn Queue>> {
        Some(Arc::clone(&self.0) as _)
    }
}

impl Queue for Held {
    fn depth(&self) -> usize {
        256
    }

    fn submit(&self, transfers: &mut Vec<Transfer>) {
        let mut held = self.lock();
        held.batches.push(transfers.len());
        held.waiting.append(transfers);
    }

    fn has_ended(&self) -> bool {
        !self.lock().ended.is_empty()
    }

    fn reap(&self, wait: bool, ended: &mut Vec<CompletedTransfer>) {
        assert!(!wait || self.waiting() == 0, "no thread waits in the queue");
        let _ = (&self.pipe.1).read(&mut [0; 64]);
        ended.append(&mut self.lock().ended);
    }

    fn interrupt(&self) {}

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.pipe.1.as_fd())
    }
}

fn held_reader(held: &Arc<Held>) -> Reader {
    opened(HeldSource(Arc::clone(held)), by("none", 8 * MIB))
}

/// Sends reads of 4 KiB at every MiB at once.
fn sends(client: &mut Client, cookies: impl IntoIterator<Item = u64>) {
    let cookies = cookies.into_iter();
    let requests = cookies.flat_map(|cookie| request(command::READ, cookie, cookie * MIB, 4096));
    client
        .0
        .write_all(&requests.collect::<Vec<u8>>())
        .expect("sent");
}

/// They are submitted together, answered as they end, and no thread waits for one of them.
#[test]
fn reads_in_flight_need_no_thread() {
    let held = Held::new();
    let served = Served::of(held_reader(&held), NbdSettings::default());
    let mut clients: Vec<Client> = (0..4).map(|_| served.client()).collect();
    for (client, from) in clients.iter_mut().zip([0, 10, 20, 30]) {
        sends(client, from..from + 10);
    }
    wait_until("not all are submitted", || held.waiting() == 40);
    // A thread may submit what another has just asked for.
    let calls = held.lock().batches.len();
    assert!(calls <= 8, "{calls} calls for four clients");
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    wait_until("threads wait", || (served.counts)().threads <= cores);
    // In another order than they were sent in; the requests after them are taken meanwhile.
    held.end_one(|transfers| {
        let mut all = transfers.waiting.iter();
        all.position(|transfer| transfer.offset() == 39 * MIB)
    });
    assert_eq!(clients[3].takes(4096, |cookie| cookie * MIB), 39);
    sends(&mut clients[3], 40..42);
    wait_until("the next ones are not taken", || held.waiting() == 41);
    held.end(41);
    for (client, count) in clients.iter_mut().zip([10, 10, 10, 11]) {
        for _ in 0..count {
            client.takes(4096, |cookie| cookie * MIB);
        }
    }
    // Hits do not wait for a miss among them.
    sends(&mut clients[0], [0, 50, 1, 2]);
    for cookie in 0..3 {
        assert_eq!(clients[0].takes(4096, |_| cookie * MIB), cookie);
    }
    wait_until("the miss is not taken", || held.waiting() == 1);
    held.end(1);
    clients[0].takes(4096, |_| 50 * MIB);
}

/// Requests beyond the limit of a client wait in its socket, and those of other clients do not.
#[test]
fn a_client_has_so_many_reads_in_flight_and_no_more() {
    let held = Held::new();
    let served = Served::of(held_reader(&held), NbdSettings::default());
    let [mut greedy, mut other] = [(); 2].map(|()| served.client());
    sends(&mut greedy, 0..40);
    wait_until("they are not taken", || held.waiting() == LIMIT);
    sends(&mut other, 50..52);
    wait_until("another client waits", || held.waiting() == LIMIT + 2);
    held.end(2);
    for _ in 0..2 {
        other.takes(4096, |cookie| cookie * MIB);
    }
    let mut ended = 0;
    while ended < 40 {
        wait_until("the next ones are not taken", || held.waiting() > 0);
        assert!(held.waiting() <= LIMIT);
        held.end(1);
        greedy.takes(4096, |cookie| cookie * MIB);
        ended += 1;
    }
}

/// Neither the client, nor its reads, nor what they hold.
#[test]
fn a_client_that_leaves_with_reads_in_flight_leaves_nothing() {
    let held = Held::new();
    let reader = held_reader(&held);
    let again = reader.try_clone().expect("a second reader");
    let served = Served::of(reader, NbdSettings::default());
    let mut client = served.client();
    sends(&mut client, 0..10);
    wait_until("they are not in flight", || held.waiting() == 10);
    drop(client);
    let mut other = served.client();
    sends(&mut other, 20..22);
    wait_until("another client waits", || held.waiting() == 12);
    held.end(12);
    for _ in 0..2 {
        other.takes(4096, |cookie| cookie * MIB);
    }
    served.wait_for(1);
    let gauges = again.engine().gauges();
    assert_eq!((gauges.reads, gauges.running_fetches), (0, 0));
    // A server that is dropped does not wait for the source without end, and what still is in flight is cancelled.
    sends(&mut other, 30..34);
    wait_until("they are not in flight", || held.waiting() == 4);
    drop(served);
    assert_eq!(again.engine().gauges().reads, 0);
    held.end(4);
    wait_until("the queue is not reaped", || {
        again.engine().gauges().running_fetches == 0
    });
}

/// A client that takes no answers: those of its reads in flight are kept within the limit, or read again.
#[test]
fn answers_of_a_slow_client_are_kept_within_the_limit() {
    let settings = NbdSettings::default();
    keeps_within_the_limit(settings, 32 << 10, Served::client);
}

pub fn keeps_within_the_limit<S: Read + Write>(
    settings: NbdSettings,
    len: u32,
    connect: impl Fn(&Served) -> Client<S>,
) {
    let owed = 2 * u64::from(len);
    let file = file_of(32 << 20, 0);
    let reader = Reader::open(file.path(), Options::default().policy("none")).expect("opened");
    let settings = NbdSettings {
        max_owed_bytes: owed,
        ..settings
    };
    let served = Served::of(reader, settings);
    let (mut slow, mut other) = (connect(&served), served.client());
    let offset = |cookie| cookie * u64::from(len);
    let requests = (0..64).flat_map(|n| request(command::READ, n, offset(n), len));
    slow.0
        .write_all(&requests.collect::<Vec<u8>>())
        .expect("sent");
    wait_until("none was dropped", || (served.counts)().reread_bytes > 0);
    for cookie in 0..100 {
        other.reads(cookie, cookie * 4096, 4096);
        let counts = (served.counts)();
        assert!(counts.owed_bytes <= owed, "{counts:?}");
    }
    let mut cookies = Vec::from_iter((0..64).map(|_| slow.takes(len as usize, offset)));
    cookies.sort_unstable();
    assert_eq!(cookies, Vec::from_iter(0..64));
    wait_until("bytes are still owed", || (served.counts)().owed_bytes == 0);
}

/// Reads are answered while the rest of the request after them has not arrived: of its head, its payload, or a refused payload.
#[test]
fn reads_do_not_wait_for_the_rest_of_the_next_request() {
    let file = file_of(4 << 20, 0);
    let reader = Reader::open(file.path(), Options::default().policy("none")).expect("opened");
    let served = Served::of(reader, writing());
    let mut client = served.client();
    let write = |offset, len| {
        let head = request(command::WRITE, 9, offset, len);
        let payload = testing::pattern(offset, len as usize, 0);
        ([&head[..], &payload].concat(), head.len())
    };
    let all = [
        (write(0, 4096).0, 10),
        write(0, 4096),
        write(0, 1 << 20),
        write(4 << 20, 4096),
    ];
    for (round, (next, cut)) in (0..).zip(all) {
        let offset = |cookie| (round * 2 + cookie) * 8192;
        let reads = (0..2).flat_map(|n| request(command::READ, n, offset(n), 4096));
        let sent = [&reads.collect::<Vec<u8>>(), &next[..cut]].concat();
        client.0.write_all(&sent).expect("sent");
        for _ in 0..2 {
            client.takes(4096, offset);
        }
        client.0.write_all(&next[cut..]).expect("sent");
        assert_eq!(client.answer().0, 9);
    }
}
