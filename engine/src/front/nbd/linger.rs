//! A look at the socket before going to sleep: the next request of a client that waits for each answer comes at once.
//!
//! To put a thread to sleep and wake it again on another core took longer than a cached read (measured: 50 us against
//! 12). So a thread that has just answered looks for a moment, if a core can be spared and looking has paid off lately.
//! Never: longer than [`MOMENT`], on more cores than half, or for a client that takes its time.
//!
//! ```text
//!   answered ──► may look? ──yes──► request within the moment? ──yes──► taken: look again next time
//!                   └─ no: says so, sleeps └─ no, [`PATIENCE`] times in a row ──► sleeps for [`REST`] requests
//! ```

use super::socket::Stream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long: twice the time from an answer to the next request of a client on this machine.
const MOMENT: Duration = Duration::from_micros(50);
/// Looks in vain before it rests.
const PATIENCE: u32 = 3;
/// Requests that it rests for.
const REST: u32 = 256;

/// What the connections of a server share: how many look.
#[derive(Debug)]
pub struct Lookers {
    now: AtomicU32,
    most: u32,
}

impl Default for Lookers {
    fn default() -> Lookers {
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
        Lookers { now: AtomicU32::new(0), most: cores / 2 }
    }
}

/// One thread of a connection.
#[derive(Debug, Default)]
pub struct Linger {
    in_vain: u32,
    rest: u32,
}

impl Linger {
    /// Returns when a request may have come, or it is better to sleep for it.
    pub fn look(&mut self, stream: &Stream, lookers: &Lookers) {
        if self.rest > 0 {
            self.rest -= 1;
            return;
        }
        if lookers.now.fetch_add(1, Ordering::Relaxed) < lookers.most {
            let until = Instant::now() + MOMENT;
            let mut came = stream.has_more();
            while !came && Instant::now() < until {
                std::hint::spin_loop();
                came = stream.has_more();
            }
            self.in_vain = if came { 0 } else { self.in_vain + 1 };
            if self.in_vain >= PATIENCE {
                (self.in_vain, self.rest) = (0, REST);
            }
        }
        lookers.now.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    #[test]
    fn who_looks_in_vain_rests_and_who_finds_looks_on() {
        let (mine, mut theirs) = UnixStream::pair().expect("a pair");
        let stream = Stream::Unix(mine);
        let lookers = Lookers { now: AtomicU32::new(0), most: 1 };
        let mut linger = Linger::default();
        (0..PATIENCE).for_each(|_| linger.look(&stream, &lookers));
        assert_eq!((linger.in_vain, linger.rest), (0, REST));
        (0..REST).for_each(|_| linger.look(&stream, &lookers));
        theirs.write_all(&[1]).expect("sent");
        (0..10).for_each(|_| linger.look(&stream, &lookers));
        assert_eq!((linger.in_vain, linger.rest, lookers.now.load(Ordering::Relaxed)), (0, 0, 0));
        let busy = Lookers { now: AtomicU32::new(1), most: 1 };
        let mut other = Linger::default();
        (0..10).for_each(|_| other.look(&stream, &busy));
        assert_eq!((other.in_vain, busy.now.load(Ordering::Relaxed)), (0, 1), "no core to spare: not even a look");
    }
}
