//! Records the reads that a front end (an NBD server or a mount) serves. The front end calls an observer, and a thread writes a trace in
//! foreread's format.
//!
//! ```text
//!   threads of the front end ──────► queue, bounded ──► sorted by start, bounded ──► writer ──► file
//!                                    full: they wait     too late to sort: counted
//! ```
//! No read is lost silently: a thread of the front end waits if the queue is full, and dropped records are counted in
//! the trace. The trace contains no file contents and no refused requests.

use foreread::Advice;
use foreread::front::observe::{Observer, PassedRequest, RequestKind};
use foreread_trace::check::{MAX_FILES, MAX_NAME_BYTES};
use foreread_trace::error::{TraceError, TracePosition};
use foreread_trace::format::{ExportReport, Output};
use foreread_trace::order::{MAX_RECORDS_DISORDER, Sorter, TooLate};
use foreread_trace::{FileInfo, Header, Item, Lacks, LeftOut, Level, Op, Record, own};
use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

/// Most bytes of names that are kept to recognize a file when it is opened again. Reads of files beyond them are counted but
/// not recorded: [`MAX_FILES`] names of [`MAX_NAME_BYTES`] would need 4 GiB.
const MAX_NAMES_BYTES: usize = 64 << 20;
const TOO_MANY_FILES: &str =
    "requests for files beyond the limit of 1048576 files or 64 MiB of file names";
/// Most requests that wait for the writer, some 2 MB.
const QUEUE: usize = 1 << 14;

enum ClientEvent {
    Opened {
        client: u64,
        name: String,
        size: u64,
    },
    Passed(u64, PassedRequest),
    Closed(u64),
    End,
}

/// A running recording of the reads that a front end serves. The front end calls this recording as an observer of each read.
pub struct Recorder {
    told: SyncSender<ClientEvent>,
    writer: Mutex<Option<JoinHandle<Result<RecordingCounts, TraceError>>>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordingCounts {
    pub records: u64,
    /// Omitted records: the reasons and how many.
    pub left_out: Vec<(&'static str, u64)>,
}

impl Recorder {
    /// Starts a trace. `front` is the name of the recording program ("foreread serve"). `since` must not be later than the
    /// start of any request. The trace gives times relative to the first request. If the trace can no longer be written, `broken` is called
    /// once.
    pub fn start(
        front: &str,
        since: Instant,
        output: Output,
        broken: impl FnOnce(&TraceError) + Send + 'static,
    ) -> Result<Recorder, TraceError> {
        let (told, queue) = sync_channel(QUEUE);
        let path = output.path.clone();
        let header = header(front);
        let write = move || {
            let left_out = LeftOut::default();
            let taken = TraceAssembly::new(queue, since, left_out.clone());
            let written = own::write(&header, Box::new(taken), &left_out, output);
            let written = written.inspect_err(|error| broken(error));
            written.map(|ExportReport { records, .. }| RecordingCounts {
                records,
                left_out: left_out.so_far(),
            })
        };
        let writer = foreread_os::threads::spawn("foreread-record", write)
            .map_err(|error| TraceError::not_written(&path, &error))?;
        Ok(Recorder {
            told,
            writer: Mutex::new(Some(writer)),
        })
    }

    /// Ends the recording. Later reads are not recorded.
    pub fn finish(&self) -> Result<RecordingCounts, TraceError> {
        // An error here means that the writer has ended; it returns its own error.
        let _ = self.told.send(ClientEvent::End);
        let writer = self.writer.lock();
        let writer = writer.unwrap_or_else(PoisonError::into_inner).take();
        let written = writer.and_then(|writer| writer.join().ok());
        written.ok_or_else(|| {
            let (path, place) = (Path::new("the trace"), TracePosition::Whole);
            TraceError::new(path, place, "it has ended", "record anew")
        })?
    }

    fn tell(&self, told: ClientEvent) {
        // If this fails, the writer has ended; `broken` has the reason.
        let _ = self.told.send(told);
    }
}

impl Observer for Recorder {
    fn opened(&self, client: u64, name: &str, size: u64) {
        self.tell(ClientEvent::Opened {
            client,
            name: fit(name),
            size,
        });
    }

    fn passed(&self, client: u64, passed: &PassedRequest) {
        self.tell(ClientEvent::Passed(client, *passed));
    }

    fn closed(&self, client: u64) {
        self.tell(ClientEvent::Closed(client));
    }
}

fn header(front: &str) -> Header {
    Header {
        format: front.to_string(),
        time_unit: "ns".to_string(),
        offset_unit: "bytes".to_string(),
        // The threads belong to the server, not to the clients.
        lacks: Lacks {
            threads: true,
            ..Lacks::default()
        },
        // Above it is the cache of a guest, a file system, or the kernel's page cache.
        level: Level::BelowCache,
        notes: Vec::new(),
        sampled_ns: None,
    }
}

/// A name in the form that a trace can contain.
fn fit(name: &str) -> String {
    let mut name = name.replace('\0', "?");
    let fits = (0..=MAX_NAME_BYTES.min(name.len()))
        .rev()
        .find(|&n| name.is_char_boundary(n));
    name.truncate(fits.unwrap_or(0));
    name
}

struct TraceAssembly {
    queue: Receiver<ClientEvent>,
    since: Instant,
    left_out: LeftOut,
    /// Connected clients: the file of each, and its open description.
    clients: HashMap<u64, (u32, u32)>,
    files: HashMap<FileKey, u32>,
    names_bytes: usize,
    opens: u32,
    ready: VecDeque<Item>,
    sorter: Sorter<Record>,
    base_ns: Option<u64>,
    ended: bool,
}

/// A file that is opened twice counts as one file.
type FileKey = (String, u64);

impl TraceAssembly {
    fn new(queue: Receiver<ClientEvent>, since: Instant, left_out: LeftOut) -> TraceAssembly {
        TraceAssembly {
            queue,
            since,
            left_out,
            clients: HashMap::new(),
            files: HashMap::new(),
            names_bytes: 0,
            opens: 0,
            ready: VecDeque::new(),
            sorter: Sorter::new(MAX_RECORDS_DISORDER),
            base_ns: None,
            ended: false,
        }
    }

    fn take(&mut self, told: ClientEvent) {
        match told {
            ClientEvent::Opened { client, name, size } => self.open(client, name, size),
            ClientEvent::Passed(client, passed) => self.pass(client, &passed),
            ClientEvent::Closed(client) => drop(self.clients.remove(&client)),
            ClientEvent::End => self.ended = true,
        }
    }

    fn open(&mut self, client: u64, name: String, size: u64) {
        let known = self.files.len() as u32;
        let key = (name, size);
        let file = match self.files.get(&key) {
            Some(file) => *file,
            // Its requests are counted when they arrive.
            None if u64::from(known) == MAX_FILES
                || self.names_bytes + key.0.len() > MAX_NAMES_BYTES =>
            {
                return;
            }
            None => {
                self.names_bytes += key.0.len();
                let info = FileInfo::new(key.0.clone(), Some(size));
                self.ready.push_back(Item::File(info));
                self.files.insert(key, known);
                known
            }
        };
        self.clients.insert(client, (file, self.opens));
        self.opens = self.opens.wrapping_add(1);
    }

    fn pass(&mut self, client: u64, passed: &PassedRequest) {
        let Some(&(file, open)) = self.clients.get(&client) else {
            return self.left_out.count(TOO_MANY_FILES);
        };
        if !passed.done {
            return self.left_out.count("requests that failed");
        }
        let op = match passed.asked {
            RequestKind::Read => Op::Read,
            RequestKind::Write => Op::Write,
            RequestKind::WillNeed => Op::Hint(Advice::WillNeed),
            RequestKind::Flush => return self.left_out.count("flushes"),
        };
        let ns = |at: Instant| at.saturating_duration_since(self.since).as_nanos() as u64;
        let record = Record {
            op,
            open,
            returned: (passed.returned != passed.len).then_some(passed.returned),
            start_ns: Some(ns(passed.start)),
            end_ns: Some(ns(passed.end)),
            ..Record::read(file, passed.offset, passed.len)
        };
        match self.sorter.push(ns(passed.start), record) {
            Ok(Some(first)) => self.out(first),
            Ok(None) => {}
            // It took as long as 65536 other requests.
            Err(TooLate) => self
                .left_out
                .count("requests answered too late to be sorted"),
        }
    }

    /// Writes a record, with times relative to the start of the first one.
    fn out(&mut self, mut record: Record) {
        let base = *self.base_ns.get_or_insert(record.start_ns.unwrap_or(0));
        record.start_ns = record.start_ns.map(|start| start - base);
        record.end_ns = record.end_ns.map(|end| end - base);
        self.ready.push_back(Item::Record(record));
    }
}

impl Iterator for TraceAssembly {
    type Item = Result<Item, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Some(Ok(item));
            }
            if self.ended {
                let last = self.sorter.pop()?;
                self.out(last);
                continue;
            }
            match self.queue.recv() {
                Ok(told) => self.take(told),
                Err(_) => self.ended = true,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::time::Duration;

    /// A file that takes this many bytes.
    struct Disk(Arc<Mutex<Vec<u8>>>, usize);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let mut file = self.0.lock().expect("whole");
            if file.len() + bytes.len() > self.1 {
                return Err(std::io::Error::other("the disk is full"));
            }
            file.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// The items reported between start and end, as read back.
    fn recorded(tell: impl FnOnce(&Recorder, Instant)) -> (RecordingCounts, Vec<Item>) {
        let (bytes, since) = (Arc::new(Mutex::new(Vec::new())), Instant::now());
        let output = Output::new("t", Box::new(Disk(Arc::clone(&bytes), usize::MAX)));
        let recorder =
            Recorder::start("test", since, output, |error| panic!("{error}")).expect("a thread");
        tell(&recorder, since);
        let done = recorder.finish().expect("written");
        assert!(recorder.finish().is_err(), "it ends once");
        recorder.passed(1, &read(since, 0, 0, (0, 1)));
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("t.frt");
        std::fs::write(&path, &*bytes.lock().expect("whole")).expect("room");
        let import = foreread_trace::open(&path, None).expect("a trace");
        assert_eq!(
            (import.header.format.as_str(), import.header.lacks.threads),
            ("test", true)
        );
        (
            done,
            import.items.map(|item| item.expect("readable")).collect(),
        )
    }

    fn read(since: Instant, offset: u64, len: u64, us: (u64, u64)) -> PassedRequest {
        let at = |us| since + Duration::from_micros(us);
        PassedRequest {
            asked: RequestKind::Read,
            offset,
            len,
            returned: len,
            done: true,
            start: at(us.0),
            end: at(us.1),
        }
    }

    /// Files with names of 4 KiB, more than are kept of: the rest is counted, and those that are known go on.
    #[test]
    fn names_end_at_their_limit() {
        let kept = (MAX_NAMES_BYTES / MAX_NAME_BYTES) as u64;
        let (done, items) = recorded(|recorder, since| {
            for client in 0..kept + 10 {
                recorder.opened(
                    client,
                    &format!("{client:0>width$}", width = MAX_NAME_BYTES),
                    1 << 20,
                );
                recorder.passed(client, &read(since, 0, 4096, (client, client + 1)));
                if client > 0 {
                    recorder.closed(client);
                }
            }
            recorder.passed(0, &read(since, 4096, 4096, (kept + 20, kept + 21)));
        });
        let (records, left_out) = (kept + 1, vec![(TOO_MANY_FILES, 10)]);
        assert_eq!(done, RecordingCounts { records, left_out });
        assert_eq!(files(&items).len() as u64, kept);
    }

    fn files(items: &[Item]) -> Vec<&Item> {
        let is_file = |item: &&Item| matches!(item, Item::File(_));
        items.iter().filter(is_file).collect()
    }

    fn reads(items: &[Item]) -> Vec<(u32, u32, u64)> {
        let read = |item: &Item| match item {
            Item::Record(r) => Some((r.file, r.open, r.offset)),
            Item::File(_) => None,
        };
        items.iter().filter_map(read).collect()
    }

    #[test]
    fn clients_of_one_file_are_its_open_descriptions_and_starts_keep_their_order() {
        let (done, items) = recorded(|recorder, since| {
            recorder.opened(7, "a", 100);
            recorder.opened(9, "b\0c", 50);
            recorder.passed(9, &read(since, 2, 1, (30, 40)));
            // Answered later, asked for earlier.
            recorder.passed(7, &read(since, 1, 1, (20, 50)));
            recorder.closed(7);
            recorder.opened(7, "a", 100);
            let mut short = read(since, 3, 5, (60, 61));
            short.returned = 3;
            recorder.passed(7, &short);
        });
        let (records, left_out) = (3, Vec::new());
        assert_eq!(done, RecordingCounts { records, left_out });
        let file = |name: &str, size| {
            let (name, size) = (name.to_string(), Some(size));
            Item::File(FileInfo::new(name, size))
        };
        assert_eq!(files(&items), [&file("a", 100), &file("b?c", 50)]);
        assert_eq!(reads(&items), [(0, 0, 1), (1, 1, 2), (0, 2, 3)]);
        let Some(Item::Record(last)) = items.last() else {
            panic!("a record")
        };
        let times = (last.start_ns, last.end_ns, last.returned);
        assert_eq!(
            times,
            (Some(40_000), Some(41_000), Some(3)),
            "since the first one began"
        );
    }

    #[test]
    fn omitted_records_are_counted() {
        let (done, items) = recorded(|recorder, since| {
            recorder.opened(1, "a", 100);
            let (mut failed, mut flush) = [read(since, 0, 1, (0, 1)); 2].into();
            failed.done = false;
            flush.asked = RequestKind::Flush;
            recorder.passed(1, &failed);
            recorder.passed(1, &flush);
            // The first one began so long ago that more than can be held began and ended meanwhile.
            (2..MAX_RECORDS_DISORDER as u64 + 4)
                .for_each(|n| recorder.passed(1, &read(since, n, 1, (n, n))));
            recorder.passed(1, &read(since, 1, 1, (0, 99)));
        });
        let late = "requests answered too late to be sorted";
        assert_eq!(
            done.left_out,
            [("flushes", 1), (late, 1), ("requests that failed", 1)]
        );
        assert_eq!(
            (done.records, items.len() as u64),
            (MAX_RECORDS_DISORDER as u64 + 2, done.records + 1)
        );
    }

    #[test]
    fn a_full_disk_is_reported_at_once_and_at_the_end_and_stops_no_thread() {
        let (told, heard) = sync_channel(1);
        let (path, since) = (PathBuf::from("t"), Instant::now());
        let output = Output::new(path, Box::new(Disk(Arc::default(), 10)));
        let broken = move |error: &TraceError| told.send(error.to_string()).expect("room");
        let recorder = Recorder::start("test", since, output, broken).expect("a thread");
        let line = heard.recv().expect("told");
        assert_eq!(
            line,
            "cannot be written (the disk is full): t; free some space or write elsewhere"
        );
        recorder.opened(1, "a", 100);
        (0..2 * QUEUE as u64).for_each(|n| recorder.passed(1, &read(since, n, 1, (n, n))));
        assert_eq!(
            recorder.finish().expect_err("not written").to_string(),
            line
        );
    }
}
