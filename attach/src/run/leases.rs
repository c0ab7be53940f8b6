//! Determines whether a program holds a write lease for a file, because opening such a file would break the lease.
//!
//! The kernel has one list of all locks on the machine. Reading the kernel's list takes 33 us if there are ten locks, and 0.85 ms if
//! there are a thousand. If foreread read this list for each file that it opens, a program with many small files would spend most of its
//! time waiting for that. After foreread has read the list of locks, it therefore reuses the result for [`SERVES`] times as long as the
//! reading took. A program can always take a lease after foreread has read the list and before it opens the file; reusing the list makes
//! this interval longer.

use foreread_os::host::Host;
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A list is reused for this many times the time that it took to read. Chosen: then it takes an eleventh of the time of a thread that
/// opens files continuously.
const SERVES: u32 = 10;

/// A list, and how long it may be used.
struct LeaseList {
    inodes: BTreeSet<u64>,
    until: Instant,
}

static LATEST: Mutex<Option<LeaseList>> = Mutex::new(None);

/// Returns whether a program may hold a write lease for an inode with this number, on any file system.
pub fn may_have(inode: u64) -> bool {
    let mut latest = LATEST.lock().unwrap_or_else(PoisonError::into_inner);
    let fresh = latest
        .take()
        .filter(|list| Instant::now() < list.until)
        .unwrap_or_else(|| listed(|| Host::here().write_leases()));
    latest.insert(fresh).inodes.contains(&inode)
}

fn listed(list: impl FnOnce() -> BTreeSet<u64>) -> LeaseList {
    let began = Instant::now();
    let inodes = list();
    let took = began.elapsed().max(Duration::from_micros(1));
    LeaseList {
        inodes,
        until: began + took * SERVES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_serves_for_a_few_times_what_it_took() {
        let began = Instant::now();
        let list = listed(|| BTreeSet::from([7]));
        let took = began.elapsed();
        assert!(list.inodes.contains(&7) && list.until > began);
        assert!(list.until <= began + took + took * SERVES + Duration::from_micros(10));
    }
}
