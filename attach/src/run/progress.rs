//! Estimates how many files of a folder listing a command has read, if foreread cannot observe reads that do not block.
//!
//! ```text
//!   listing    a 4K   b 8K   c 2K   d 6K   e 4K   ...
//!   seen       a, and then d blocks: 14 KiB were read in between, the size of a, b and c, so these were read
//!   guessed    20 KiB more were read since, unobserved: d, e, ... as far as the bytes go
//! ```
//! The estimate uses the number of bytes that the process has read by system calls. If a program skips files of the listing, it has read
//! fewer bytes than all files up to its position have. Then only files with observed reads are counted.

/// Files after the last observed one count as read up to this many bytes, for each time that the files between two
/// observed ones had been read.
const MAX_GUESSED_BYTES: u64 = 4 << 20;
const MAX_TIMES: u64 = 16;

#[derive(Default)]
pub struct ListingProgress {
    /// The thread that was last observed to read a file, and its process.
    thread: Option<u32>,
    process: Option<u32>,
    /// Bytes that its process had read at that time.
    seen_bytes: u64,
    /// The size of that file: its bytes are read after it is observed.
    own_bytes: u64,
    /// Bytes of files that were guessed since then.
    guessed_bytes: u64,
    /// How often all files between two observed ones had been read.
    times: u64,
}

impl ListingProgress {
    /// Returns the thread that reads the listed files, if the number of bytes that its process has read shows which unobserved files were
    /// read.
    pub fn thread(&self) -> Option<u32> {
        self.thread.filter(|_| self.times > 0)
    }

    /// Returns the process of `thread`, if this thread read the last observed file.
    pub fn process_of(&self, thread: u32) -> Option<u32> {
        self.process.filter(|_| self.thread == Some(thread))
    }

    /// Records that `thread` of `process` was observed to read a file of this size, after the process had read `read_bytes` in all. The
    /// files between the last observed file and this file have `between_bytes` bytes in total. Returns whether the files between these two
    /// were read, too.
    pub fn seen(
        &mut self,
        thread: u32,
        process: Option<u32>,
        read_bytes: u64,
        size: u64,
        between_bytes: u64,
    ) -> bool {
        let read = read_bytes.saturating_sub(self.seen_bytes);
        // Bytes that another process has read are no measure.
        let is_same = process.is_some() && process == self.process;
        let is_read = is_same && read >= between_bytes + self.guessed_bytes;
        self.times = if is_read { self.times + 1 } else { 0 };
        (self.thread, self.process, self.seen_bytes) = (Some(thread), process, read_bytes);
        (self.own_bytes, self.guessed_bytes) = (size, 0);
        is_read
    }

    /// Returns whether the next file of the listing, which has this size, was probably read too. The result is inferred from the number of
    /// bytes that the process has read.
    pub fn guess(&mut self, read_bytes: u64, size: u64) -> bool {
        let read = read_bytes.saturating_sub(self.seen_bytes);
        let read = read.saturating_sub(self.own_bytes);
        let limit = MAX_GUESSED_BYTES * self.times.min(MAX_TIMES);
        let is_read = self.guessed_bytes + size <= read.min(limit);
        if is_read {
            self.guessed_bytes += size;
        }
        is_read
    }

    /// Returns the total size of the files that were assumed to be read since the last observed file.
    pub fn guessed_bytes(&self) -> u64 {
        self.guessed_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const K: u64 = 1 << 10;

    #[test]
    fn files_between_two_that_were_seen_count_where_as_many_bytes_were_read() {
        let mut progress = ListingProgress::default();
        assert!(!progress.seen(7, Some(5), 100 * K, 4 * K, 0), "the first");
        assert!(progress.seen(7, Some(5), 114 * K, 6 * K, 10 * K));
        // A program that leaves files out.
        assert!(!progress.seen(7, Some(5), 124 * K, 6 * K, 30 * K));
        assert_eq!(progress.thread(), None);
        // Another thread of the process, and then another process, which has read more.
        assert!(progress.seen(9, Some(5), 200 * K, 6 * K, K));
        assert_eq!(
            (progress.process_of(9), progress.process_of(7)),
            (Some(5), None)
        );
        assert!(!progress.seen(8, Some(6), 900 * K, 6 * K, 1));
    }

    #[test]
    fn files_after_the_last_that_was_seen_are_guessed_by_the_bytes() {
        let mut progress = ListingProgress::default();
        progress.seen(7, Some(5), 0, 4 * K, 0);
        assert!(
            !progress.guess(100 * K, 4 * K),
            "nothing shows that none is left out"
        );
        assert!(progress.seen(7, Some(5), 50 * K, 6 * K, 40 * K));
        assert!(!progress.guess(56 * K, 2 * K) && progress.guess(58 * K, 2 * K));
        assert!(progress.guess(100 * K, 42 * K) && !progress.guess(100 * K, 1));
        assert_eq!(progress.guessed_bytes(), 44 * K);
        // 44 KiB of these were guessed before.
        assert!(progress.seen(7, Some(5), 110 * K, 4 * K, 16 * K));
        assert!(
            !progress.guess(1 << 30, 5 * MAX_GUESSED_BYTES),
            "no further than is believed"
        );
    }
}
