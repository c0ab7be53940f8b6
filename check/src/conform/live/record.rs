//! Creates a recording: executes episodes of operations, reads the kernel's trace and the readahead marks, and writes
//! one line for each operation (docs/spec/linux-readahead.md 5).
//!
//! ```text
//!   for each step:  [settle] ──► play ──► trace ──► lines of this step ──► marks of new folios ──► one JSON line
//!   for each episode:  fresh descriptors ── steps ── settle ── drop the file's pages until none is left
//! ```
//! A test sequence (episode) is disturbed if the kernel reclaims pages or trace events are lost. Then its recording ends before the
//! disturbed step, and the episode is counted as disturbed. A written line contains only what the kernel did, and no prediction.

use super::disk::{Disk, SIZES};
use super::events::{Event, TracedEvent, parse};
use super::player::{Helper, Native, advise};
use super::pressure::Pressure;
use super::story::{EpisodeScript, Step};
use super::{LiveError, RETRY};
use crate::conform::recording::{Call, PAGE, StreamState};
use foreread_observe::tracefs::{self, Instance, Root};
use foreread_os::failure::Failure;
use foreread_os::host::DeviceNumber;
use rustix::fs::OFlags;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

/// How often an episode's pages are dropped, a millisecond apart, before they count as stuck.
const DROPS: u32 = 2000;

/// The first line of a recording.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "t", rename = "header")]
pub(super) struct Header {
    pub v: u32,
    pub kernel: String,
    pub fs: &'static str,
    pub page_size: u64,
    pub ra_pages: u64,
    pub io_pages: u64,
    pub large_folios: bool,
    pub max_order: u32,
    pub min_order: u32,
    pub seed: u64,
    pub mmap: bool,
}

#[derive(Serialize)]
#[serde(tag = "t", rename = "episode")]
struct Episode<'a> {
    ep: u64,
    kind: &'static str,
    file_size: u64,
    fds: u32,
    /// Queried only for episodes with faults, because they matter only there.
    #[serde(skip_serializing_if = "<[u64]>::is_empty")]
    extents: &'a [u64],
}

#[derive(Serialize)]
#[serde(tag = "t", rename = "op")]
struct Op<'a> {
    i: usize,
    #[serde(flatten)]
    step: &'a Step,
    ret: u64,
    calls: &'a [Call],
    added: &'a [(u64, u32)],
    marks: &'a [u64],
    evicted: &'a [(u64, u32)],
    state: StreamState,
    /// The kernel was short of memory in this episode up to this operation.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pressure: bool,
}

#[derive(Clone, Copy, Debug)]
struct AddedFolio {
    frame: u64,
    first: u64,
    order: u32,
}

#[derive(Debug, Default)]
struct Answer {
    calls: Vec<Call>,
    added: Vec<AddedFolio>,
    evicted: Vec<(u64, u32)>,
    /// It was disturbed from outside.
    foreign: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RecordCounts {
    pub operations: u64,
    pub episodes: u64,
    /// Number of episodes that ended early because of a disturbance.
    pub cut: u64,
}

/// Traces one device while a thread plays on it.
pub(super) struct Recorder<'a> {
    disk: &'a Disk,
    trace: Trace,
    flags: Marks,
    native: Native,
    helper: Option<Helper>,
    pressure: Pressure,
    /// The ID of this thread in the trace.
    thread: u32,
    text: Vec<u8>,
    /// Folios of the episode's file in the cache: first page and order.
    cached: BTreeMap<u64, u32>,
}

impl<'a> Recorder<'a> {
    /// Creates a recorder; must be called in the thread that will execute the test operations. If `helper` is `None`, patterns with page
    /// faults and readahead(2) are left out.
    pub fn new(disk: &'a Disk, helper: Option<Helper>) -> Result<Recorder<'a>, LiveError> {
        let thread = rustix::thread::gettid()
            .as_raw_nonzero()
            .get()
            .unsigned_abs();
        Ok(Recorder {
            disk,
            trace: Trace::new(disk.number)?,
            flags: Marks::open()?,
            native: Native::new(),
            helper,
            pressure: Pressure::open()?,
            thread,
            text: Vec::new(),
            cached: BTreeMap::new(),
        })
    }

    /// Returns whether the file system creates folios larger than its smallest folio. The function tests this by sequential reads.
    pub fn large_folios(&mut self, min_order: u32) -> Result<bool, LiveError> {
        let file = 3;
        let steps = (0..64)
            .map(|nth| Step::Pread {
                fd: 0,
                off: nth * 4 * PAGE,
                len: 4 * PAGE,
            })
            .collect();
        let script = EpisodeScript {
            kind: "probe",
            file,
            fds: 1,
            steps,
        };
        self.begin(&script, false)?;
        let mut large = false;
        for step in &script.steps {
            let (_, answer) = self.step(&script, step, false)?;
            large |= answer.added.iter().any(|folio| folio.order > min_order);
        }
        self.drop_all(&script)?;
        Ok(large)
    }

    /// Records `wanted` operations and writes the recording to `out`. `tell` is called with the progress, and may stop the recording.
    pub fn record(
        &mut self,
        out: &mut dyn Write,
        header: &Header,
        wanted: u64,
        mut next: impl FnMut() -> EpisodeScript,
        tell: &mut dyn FnMut(u64) -> Result<(), LiveError>,
    ) -> Result<RecordCounts, LiveError> {
        let mut written = RecordCounts::default();
        line(out, header)?;
        let extents = match &mut self.helper {
            Some(helper) if header.mmap => (0..SIZES.len())
                .map(|nth| helper.extents(&self.disk.path(nth)))
                .collect::<Result<_, _>>()?,
            _ => vec![Vec::new(); SIZES.len()],
        };
        while written.operations < wanted {
            let mut script = next();
            script
                .steps
                .truncate(usize::try_from(wanted - written.operations).unwrap_or(usize::MAX));
            let episode = Episode {
                ep: written.episodes,
                kind: script.kind,
                file_size: SIZES[script.file],
                fds: script.fds,
                extents: &extents[script.file],
            };
            line(out, &episode)?;
            written.episodes += 1;
            let done = self.episode(out, &script, header.mmap)?;
            written.operations += done;
            written.cut += u64::from(done < script.steps.len() as u64);
            tell(written.operations)?;
        }
        Ok(written)
    }

    /// Plays an episode; returns the number of steps that were written.
    fn episode(
        &mut self,
        out: &mut dyn Write,
        script: &EpisodeScript,
        helped: bool,
    ) -> Result<u64, LiveError> {
        self.begin(script, helped)?;
        self.pressure.begin()?;
        let mut states = vec![
            StreamState {
                prev_pos: -1,
                ..StreamState::default()
            };
            script.fds as usize
        ];
        let mut done = 0;
        for (i, step) in script.steps.iter().enumerate() {
            let (ret, answer) = self.step(script, step, helped)?;
            if answer.foreign {
                break;
            }
            let state = &mut states[step.fd() as usize];
            follow(state, step, ret, &answer.calls);
            let mut marks = Vec::new();
            for &AddedFolio { frame, first, .. } in &answer.added {
                if self.flags.at(frame)? {
                    marks.push(first);
                }
            }
            let added: Vec<(u64, u32)> = answer
                .added
                .iter()
                .map(|folio| (folio.first, folio.order))
                .collect();
            let pressure = self.pressure.is_felt()?;
            line(
                out,
                &Op {
                    i,
                    step,
                    ret,
                    calls: &answer.calls,
                    added: &added,
                    marks: &marks,
                    evicted: &answer.evicted,
                    state: *state,
                    pressure,
                },
            )?;
            done += 1;
        }
        self.drop_all(script)?;
        Ok(done)
    }

    fn begin(&mut self, script: &EpisodeScript, helped: bool) -> Result<(), LiveError> {
        if let (true, Some(helper)) = (helped, &mut self.helper) {
            return helper.begin(&self.disk.path(script.file), script.fds);
        }
        let files = (0..script.fds)
            .map(|_| self.disk.open(script.file))
            .collect::<Result<_, _>>()?;
        self.native.begin(files);
        Ok(())
    }

    fn step(
        &mut self,
        script: &EpisodeScript,
        step: &Step,
        helped: bool,
    ) -> Result<(u64, Answer), LiveError> {
        if step.wants_quiet() {
            self.disk.settle()?;
        }
        let ret = match &mut self.helper {
            Some(helper) if helped => helper.play(step)?,
            _ => self.native.play(step)?,
        };
        Ok((ret, self.listen(script)?))
    }

    /// The events of the file since the last call.
    fn listen(&mut self, script: &EpisodeScript) -> Result<Answer, LiveError> {
        self.text.clear();
        self.trace.read(&mut self.text)?;
        let text = String::from_utf8_lossy(&self.text);
        let mut answer = Answer::default();
        let helper = self.helper.as_ref().map(Helper::pid);
        for text in text.lines() {
            let wrong = |text| {
                LiveError::Cannot(format!(
                    "a line of the trace does not have the expected form: {text}; see --check"
                ))
            };
            let Some(TracedEvent { pid, inode, event }) = parse(text).map_err(wrong)? else {
                continue;
            };
            if event == Event::Lost {
                answer.foreign = true;
            } else if inode != self.disk.inodes[script.file] {
                continue;
            }
            answer.foreign |= pid != self.thread && Some(pid) != helper;
            match event {
                Event::Decided(call) => answer.calls.push(call),
                Event::Added(frame, first, order) => {
                    self.cached.insert(first, order);
                    answer.added.push(AddedFolio {
                        frame,
                        first,
                        order,
                    });
                }
                Event::Deleted(first, order) => {
                    self.cached.remove(&first);
                    answer.evicted.push((first, order));
                }
                Event::Lost => {}
            }
        }
        Ok(answer)
    }

    /// Closes the episode's descriptors and drops all pages of its file. A page that another thread holds for a moment
    /// stays, so the trace decides which pages have gone.
    fn drop_all(&mut self, script: &EpisodeScript) -> Result<(), LiveError> {
        self.native.begin(Vec::new());
        if let Some(helper) = &mut self.helper {
            helper.begin(&self.disk.path(script.file), 0)?;
        }
        let file = self.disk.open(script.file)?;
        for _ in 0..DROPS {
            self.disk.settle()?;
            advise(&file, "dontneed", 0, 0).map_err(|e| LiveError::io("posix_fadvise", e))?;
            let answer = self.listen(script)?;
            if answer.added.is_empty() && self.cached.is_empty() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let left = self.cached.len();
        Err(LiveError::Cannot(format!(
            "{left} folios of a test file stay in the page cache: does another program read its device?"
        )))
    }
}

/// Updates the descriptor's state from the kernel's calls: its last window, and where its last read ended.
fn follow(state: &mut StreamState, step: &Step, ret: u64, calls: &[Call]) {
    for call in calls {
        if let Call::Window {
            start,
            size,
            async_size,
            ..
        } = *call
        {
            *state = StreamState {
                start,
                size,
                async_size,
                ..*state
            };
        }
    }
    if let (Step::Pread { off, .. }, true) = (step, ret > 0) {
        state.prev_pos = i64::try_from(off + ret).unwrap_or(i64::MAX);
    }
}

fn line(out: &mut dyn Write, value: &impl Serialize) -> Result<(), LiveError> {
    let failed = |error| LiveError::Io {
        what: "the recording cannot be written".to_string(),
        error,
        remedy: "free some space, or name another folder",
    };
    serde_json::to_writer(&mut *out, value).map_err(|e| failed(e.into()))?;
    out.write_all(b"\n").map_err(failed)
}

/// Returns the release of the running kernel, such as `6.18.44`.
pub fn kernel() -> String {
    let release = foreread_os::host::Host::here().kernel_release();
    release.unwrap_or_else(|| "unknown".to_string())
}

// Reads the readahead decisions and page cache changes of one device from a tracefs [`Instance`].
//
// ```text
//   tracefs/instances/foreread-PID-TIME/ ── events, filters ──► trace_pipe ──► text, until nothing is left
// ```

/// Trace memory of each CPU: one operation writes at most a few thousand lines of 100 bytes.
const BUFFER_KIB: &str = "4096";
/// Decisions, and pages that are added and removed. Kernels older than 6.18 do not have all of them.
const EVENTS: [&str; 6] = [
    "readahead/page_cache_sync_ra",
    "readahead/page_cache_async_ra",
    "readahead/page_cache_ra_order",
    "readahead/page_cache_ra_unbounded",
    "filemap/mm_filemap_add_to_page_cache",
    "filemap/mm_filemap_delete_from_page_cache",
];

/// The events of one device as text.
pub(super) struct Trace {
    /// Declared before the instance, which cannot be removed while this is open.
    pipe: File,
    _instance: Instance,
    /// Keeps tracefs available if it is not mounted anywhere.
    _root: Root,
}

impl Trace {
    pub fn new(device: DeviceNumber) -> Result<Trace, LiveError> {
        let root = tracefs::root().map_err(refused)?;
        let events = root.path().join("events");
        if let Some(event) = EVENTS.iter().find(|event| !events.join(event).is_dir()) {
            return Err(LiveError::Cannot(format!(
                "this kernel lacks the tracepoint {event} of Linux 6.18; {RETRY}"
            )));
        }
        let instance = Instance::create(&root).map_err(refused)?;
        let set = |name: &str, value: &str| instance.set(name, value).map_err(refused);
        set("buffer_size_kb", BUFFER_KIB)?;
        // The kernel formats device numbers with 20 bits for the minor number.
        let filter = format!(
            "s_dev == {}",
            u64::from(device.major) << 20 | u64::from(device.minor)
        );
        for event in EVENTS {
            set(&format!("events/{event}/filter"), &filter)?;
            set(&format!("events/{event}/enable"), "1")?;
        }
        set("tracing_on", "1")?;
        let path = instance.path().join("trace_pipe");
        let pipe = File::options()
            .read(true)
            .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
            .open(&path);
        let pipe = pipe.map_err(|e| LiveError::io(path.display().to_string(), e))?;
        Ok(Trace {
            pipe,
            _instance: instance,
            _root: root,
        })
    }

    /// Appends to `text` all trace lines that the kernel has written since the last call.
    pub fn read(&mut self, text: &mut Vec<u8>) -> Result<(), LiveError> {
        loop {
            // The kernel returns at most two pages at a time.
            let begin = text.len();
            text.resize(begin + (16 << 10), 0);
            let got = self.pipe.read(&mut text[begin..]);
            text.truncate(begin + *got.as_ref().unwrap_or(&0));
            match got {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(LiveError::io("trace_pipe", error)),
            }
        }
    }
}

fn refused(error: Failure) -> LiveError {
    let place = match error.why.as_str() {
        "" => error.place,
        why => format!("{}: {why}", error.place),
    };
    LiveError::Cannot(format!("{} ({place}); {RETRY}", error.what))
}

/// The bit of the mark: KPF_RECLAIM.
const RECLAIM: u64 = 1 << 9;

/// The page flags of this machine. The kernel keeps the readahead mark (PG_readahead) in the bit that also means "reclaim soon" (a page
/// never has both meanings), and shows it to root in `/proc/kpageflags`.
struct Marks(File);

impl Marks {
    fn open() -> Result<Marks, LiveError> {
        let place = "/proc/kpageflags";
        match File::open(place) {
            Ok(file) => Ok(Marks(file)),
            Err(error) => {
                let what = format!("cannot read marks from {place}: {error}");
                Err(LiveError::Cannot(format!(
                    "{what}; run as root on a kernel with CONFIG_PROC_PAGE_MONITOR"
                )))
            }
        }
    }

    /// Returns whether the folio whose first page is in this page frame has the readahead mark.
    fn at(&self, frame: u64) -> Result<bool, LiveError> {
        let mut word = [0; 8];
        self.0
            .read_exact_at(&mut word, frame * 8)
            .map_err(|e| LiveError::io("/proc/kpageflags", e))?;
        Ok(u64::from_ne_bytes(word) & RECLAIM != 0)
    }
}
