//! Tests of the order in which the NBD server serves clients: no client waits for another client that is slow, or for itself.
//!
//! No time is measured. A test that hangs is ended after 20 s, and fails.

use crate::common::nbd as served;

use crate::common::{by, in_threads, named, opened, plain, wait_until};
use foreread::front::nbd::NbdSettings;
use foreread::nbd::wire::command;
use foreread::source::Mem;
use foreread::{Options, Reader};
use foreread_testing as testing;
use served::{Client, MIB, Served, request, writing};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A source of which reads from `from` on end when `many` of them have begun, and how many have.
fn meeting(many: u64, from: u64) -> (Mem, Arc<AtomicU64>) {
    let begun = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&begun);
    let slow = Mem::generated(64 * MIB, move |offset, buf| {
        if offset >= from {
            count.fetch_add(1, Ordering::SeqCst);
            let all = || count.load(Ordering::SeqCst) >= many;
            wait_until("they are not all under way", all);
        }
        testing::fill(buf, offset, 0);
    });
    (slow, begun)
}

/// A request that comes while the one before it waits for the source.
#[test]
fn what_comes_during_a_miss_is_taken() {
    let (slow, begun) = meeting(9, 0);
    let reader = plain(Arc::new(slow));
    let served = Served::of(reader, NbdSettings::default());
    let mut client = served.client();
    for cookie in 0..9 {
        client.send(command::READ, cookie, cookie * MIB, 4096);
        let has_begun = || begun.load(Ordering::SeqCst) > cookie;
        wait_until("a request waits for those before it", has_begun);
    }
    for _ in 0..9 {
        client.takes(4096, |cookie| cookie * MIB);
    }
}

/// Far more of them than cores: those that stop in the middle of a request, that take no answers, and whose misses take long.
#[test]
fn slow_clients_delay_no_other() {
    let (slow, waiting) = meeting(16, 32 * MIB);
    let reader = plain(Arc::new(slow));
    let served = Served::of(reader, NbdSettings::default());
    let half = request(command::READ, 7, 0, 4096);
    let mut halves: Vec<Client> = (0..16).map(|_| served.client()).collect();
    for client in &mut halves {
        client.0.write_all(&half[..13]).expect("sent");
    }
    let mut full: Vec<Client> = (0..16).map(|_| served.client()).collect();
    for client in &mut full {
        (0..4).for_each(|cookie| client.send(command::READ, cookie, 0, 8 << 20));
    }
    let mut misses: Vec<Client> = (0..16).map(|_| served.client()).collect();
    for (client, place) in misses.iter_mut().zip(32..) {
        client.send(command::READ, 1, place * MIB, 4096);
    }
    let mut other = served.client();
    for cookie in 0..100 {
        other.reads(cookie, 9 * MIB + cookie * 4096, 4096);
    }
    for (client, place) in misses.iter_mut().zip(32..) {
        assert_eq!(client.takes(4096, |_| place * MIB), 1);
    }
    assert_eq!(waiting.load(Ordering::SeqCst), 16, "all at once");
    for client in &mut halves {
        client.0.write_all(&half[13..]).expect("sent");
        assert_eq!(client.takes(4096, |_| 0), 7);
    }
    for client in &mut full {
        let mut cookies = [(); 4].map(|()| client.takes(8 << 20, |_| 0));
        cookies.sort_unstable();
        assert_eq!(cookies, [0, 1, 2, 3]);
    }
}

/// Clients that never take their answers, with many requests each: the threads and the bytes that they cost end at the
/// limits, and a client that does take its answers is served all the while. The larger form that is measured:
/// bench/nbd-slow-clients.
#[test]
fn clients_that_take_no_answers_cost_what_the_limits_say() {
    // A thousand of them: FOREREAD_CLIENTS=1000, with ulimit -n 4096.
    let slow_clients = std::env::var("FOREREAD_CLIENTS");
    let slow_clients: u64 = slow_clients.map_or(40, |n| n.parse().expect("a number"));
    const HELPERS: u32 = 8;
    const OWED: u64 = MIB;
    let options = by("none", 64 * MIB);
    let reader = opened(named(64 * MIB), options);
    let settings = NbdSettings {
        max_clients: slow_clients as u32 + 1,
        max_helpers: HELPERS,
        max_owed_bytes: OWED,
        ..NbdSettings::default()
    };
    let served = Served::of(reader, settings);
    let mut good = served.client();
    let mut slow: Vec<Client> = (0..slow_clients).map(|_| served.client()).collect();
    for client in &mut slow {
        (0..20).for_each(|cookie| client.send(command::READ, cookie, cookie * MIB, 1 << 20));
    }
    wait_until("none was dropped", || (served.counts)().reread_bytes > 0);
    let mut took = Vec::new();
    for cookie in 0..400 {
        let begun = Instant::now();
        good.reads(cookie, cookie * 4096, 4096);
        took.push(begun.elapsed());
        let counts = (served.counts)();
        let most = slow_clients + 1 + u64::from(HELPERS);
        let is_within = counts.threads <= most && counts.owed_bytes <= OWED;
        assert!(is_within, "{counts:?}");
    }
    took.sort_unstable();
    let counts = (served.counts)();
    let (p99, longest) = (took[395], took[399]);
    println!("{slow_clients} slow clients: p99 {p99:?}, longest {longest:?}; {counts:?}");
    assert!(counts.threads > slow_clients, "each waits for its client");
    if slow_clients > 40 {
        return;
    }
    // What was let go of is read again, whole.
    for client in &mut slow {
        for _ in 0..20 {
            client.takes(1 << 20, |cookie| cookie * MIB);
        }
    }
    wait_until("bytes are still owed", || (served.counts)().owed_bytes == 0);
}

/// All memory of an answer, although a part of it is sent.
#[test]
fn the_buffer_of_a_slow_client_counts() {
    let served = Served::new(named(64 * MIB));
    let mut slow = served.client();
    slow.send(command::READ, 1, 0, 8 << 20);
    let is_counted = || (served.counts)().owed_bytes == 256 << 10;
    wait_until("the buffer does not count", is_counted);
    assert_eq!(slow.takes(8 << 20, |_| 0), 1);
}

/// A request, a payload or an answer that goes on byte by byte has the time of one that is silent: none may keep a thread
/// by a byte now and then.
#[test]
fn a_dribbling_client_loses_its_connection_and_no_other() {
    let stall = Duration::from_millis(400);
    let source = Mem::new(testing::pattern(0, 4 << 20, 0));
    let settings = NbdSettings { stall, ..writing() };
    let served = Served::of(opened(source, Options::default()), settings);
    let dribble = |client: &mut Client, bytes: &[u8]| {
        // Sixteen times the time for stalls in all, each pause a fraction of it.
        bytes.iter().any(|byte| {
            std::thread::sleep(stall / 4);
            client.0.write_all(&[*byte]).is_err()
        })
    };
    let head = |command, len| request(command, 7, 0, len);
    let [mut half, mut write, mut full, mut other] = [(); 4].map(|()| served.client());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let is_left = dribble(&mut half, &head(command::READ, 4096)) || half.is_gone();
            assert!(is_left, "a request of seven seconds");
        });
        scope.spawn(|| {
            write.0.write_all(&head(command::WRITE, 64)).expect("sent");
            let is_left = dribble(&mut write, &[0; 64]) || write.is_gone();
            assert!(is_left, "a payload of six seconds");
        });
        scope.spawn(|| {
            (0..4).for_each(|cookie| full.send(command::READ, cookie, 0, 4 << 20));
            let (mut left, mut some) = (4 * (16 + (4 << 20)), vec![0; 24 << 10]);
            while left > 0 {
                std::thread::sleep(stall / 8);
                match full.0.read(&mut some) {
                    Ok(n @ 1..) => left -= n,
                    _ => break,
                }
            }
            assert!(left > 0, "an answer that was taken in half a minute");
        });
        for cookie in 0..40 {
            std::thread::sleep(stall / 10);
            other.reads(cookie, cookie * 4096, 4096);
        }
    });
}

/// Many that are idle, some that read, all at once: no client fails, none waits for another without end, memory stays where it
/// belongs. The larger form that is measured: bench/nbd-clients.
#[test]
fn idle_clients_cost_nothing_and_active_ones_share() {
    let options = by("linux-6.18:max=128K", 4 * MIB);
    let reader = opened(named(64 * MIB), options);
    let meter = reader.engine().meter();
    let served = Served::of(reader, NbdSettings::default());
    let mut idle: Vec<Client> = (0..64).map(|_| served.client()).collect();
    in_threads(16, |me| {
        let mut client = served.client();
        for i in 0..256 {
            client.reads(i, me * 4 * MIB + i * 16_384, 16_384);
        }
    });
    let counts = (served.counts)();
    let counted = (counts.bytes, counts.failed_requests, counts.turned_away);
    assert_eq!(counted, (64 * MIB, 0, 0));
    // The cache, and one fetch in flight for each active client.
    let held = meter.held_bytes();
    assert!(held <= 2 * (4 + 16) * MIB, "{held} bytes");
    for client in &mut idle {
        client.reads(1, 5, 10);
    }
}

/// A server that is stopped answers what each thread of a client has taken, and takes no more.
#[test]
fn stopping_answers_accepted_requests() {
    let begun = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&begun);
    let slow = Mem::generated(64 * MIB, move |offset, buf| {
        let nth = count.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(200 + 50 * nth));
        testing::fill(buf, offset, 0);
    });
    let reader = plain(Arc::new(slow));
    let served = Served::of(reader, NbdSettings::default());
    let mut client = served.client();
    for cookie in 0..4 {
        client.send(command::READ, cookie, cookie * MIB, 4096);
    }
    std::thread::sleep(Duration::from_millis(100));
    let path = served.path();
    drop(served);
    assert!(UnixStream::connect(path).is_err());
    let mut all = Vec::new();
    client.0.read_to_end(&mut all).expect("answers to the end");
    let taken = begun.load(Ordering::SeqCst);
    assert!(taken > 0);
    assert_eq!(all.len() as u64, taken * (16 + 4096), "{taken} were taken");
}

/// Neither the source nor the memory of clients that are still there, whatever they were doing.
#[test]
fn nothing_is_kept_of_a_server_that_is_gone() {
    let source = Arc::new(named(64 * MIB));
    let weak = Arc::downgrade(&source);
    let reader = Reader::open(source, Options::default()).expect("opened");
    let served = Served::of(reader, NbdSettings::default());
    let mut clients: Vec<Client> = (0..4).map(|_| served.client()).collect();
    assert_eq!(clients[1].asks(command::READ, 0, 4096), 0);
    clients[2].0.write_all(&[0x25, 0x60]).expect("sent");
    clients[3].send(command::READ, 1, 0, 32 << 20);
    let _greeted = served.connect();
    drop(served);
    wait_until("the source is still open", || weak.upgrade().is_none());
}
