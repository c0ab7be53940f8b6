//! `rbd-replay`: what a virtual machine did to its images, as Ceph's replayer takes it since Ceph 9 (2015).
//!
//! ```text
//!   reader: bytes ──► actions ──► graph: ids ──► what waits for what
//!                        │
//!                        └──► reads and writes ──► records      opens, closes, threads, discards ──► no records
//! ```
//!
//! The file knows no times, only differences: they are in `Record::after`, and `start_ns` stays open. An image with its
//! snapshot is a file (`image@snapshot`), each image context an open description, until it is closed.
//!
//! A dependency on an asynchronous action means its submission to rbd-replay. Its own recorder, though, names an action
//! only after that has ended, and writes the id of the action where that of the end was meant. So unless
//! `aio-deps=submit` is said, such a dependency is on the end too, while its delay still counts from the start: at the
//! recorded speed nothing changes, and at full speed the queue is never deeper than it was.
//! Never: times that were not recorded.

mod graph;
mod read;
mod write;

use self::graph::{Graph, Node};
use self::read::{Action, BANNER, Entry, Io, Reader, What};
use super::scan::{Names, choice};
use super::step::{Step, items};
use crate::error::TraceError;
use crate::format::{Fit, Format, Pairs};
use crate::input::Input;
use crate::{After, FileInfo, Header, Import, Item, Lacks, LeftOut, Level, Op, Record};
use std::collections::{HashMap, VecDeque};

/// Threads at one time: each is a thread of the replayer.
pub const MAX_THREADS: usize = 1 << 12;
pub const MAX_OPENS: usize = 1 << 16;

pub static FORMAT: Format = Format {
    name: "rbd-replay",
    summary: "reads and writes of RBD images with what each waits for; bytes, no times",
    keys: &[(
        "aio-deps",
        "completion (as they were meant) or submit (as rbd-replay takes them)",
    )],
    detect,
    import,
    export: Some(write::export),
};

fn detect(head: &[u8]) -> Fit {
    Fit::sure_if(head.starts_with(BANNER))
}

fn import(inputs: Vec<Input>, mut pairs: Pairs) -> Result<Import, TraceError> {
    let input = Input::only(inputs, FORMAT.name)?;
    const DEPS: &[&str] = &["completion", "submit"];
    let submit = choice(&mut pairs, "aio-deps", DEPS, input.path())? == Some(1);
    pairs.finish(input.path(), FORMAT.name, FORMAT.keys)?;
    let reader = Reader::new(input)?;
    let left_out = LeftOut::default();
    let deps = match submit {
        true => "A dependency on an asynchronous action is on its submission.",
        false => {
            "A dependency on an asynchronous action is on its end too (aio-deps=submit for its submission alone)."
        }
    };
    let lacks = Lacks {
        starts: true,
        ends: true,
        ..Lacks::default()
    };
    let notes = [
        "Requests of a guest to its disk, below the guest's page cache.",
        "The time is in the dependencies: each record says what it waits for, and for how long after that.",
        deps,
    ];
    let units = ["ns, differences only", "bytes"];
    let header = Header::of(FORMAT.name, units, lacks, Level::BelowCache, &notes);
    let replay = Replay {
        reader,
        graph: Graph::new(!submit),
        threads: HashMap::new(),
        opens: HashMap::new(),
        files: Names::default(),
        next: Next::default(),
        left_out: left_out.clone(),
    };
    Ok(Import::new(header, items(replay), left_out))
}

#[derive(Default)]
struct Next {
    thread: u32,
    open: u32,
    record: u64,
}

struct Thread {
    number: u32,
    /// What its next action waits for.
    serial: Vec<After>,
}

struct Replay {
    reader: Reader,
    graph: Graph,
    threads: HashMap<u64, Thread>,
    /// Image contexts: file and open description.
    opens: HashMap<u64, (u32, u32)>,
    files: Names,
    next: Next,
    left_out: LeftOut,
}

impl Step for Replay {
    fn step(&mut self, out: &mut VecDeque<Item>) -> Result<bool, TraceError> {
        match self.reader.entry()? {
            None => return Ok(false),
            Some(Entry::Unknown) => {
                self.left_out.count("entries of an unknown kind");
                self.graph.gap();
            }
            Some(Entry::Action(action)) => {
                let done = self.action(&action, out);
                done.map_err(|what| {
                    self.reader.error(
                        what,
                        "the file is damaged, or rbd-replay would stop here too",
                    )
                })?;
            }
        }
        Ok(true)
    }
}

impl Replay {
    fn action(&mut self, action: &Action, out: &mut VecDeque<Item>) -> Result<(), &'static str> {
        if action.what == What::Start {
            if self.threads.len() == MAX_THREADS {
                return Err("more than 4096 threads at one time");
            }
            let thread = Thread {
                number: self.next.thread,
                serial: Vec::new(),
            };
            self.next.thread = self.next.thread.checked_add(1).ok_or("too many threads")?;
            if self.threads.insert(action.thread, thread).is_some() {
                return Err("a thread that is started twice");
            }
        }
        let thread = self
            .threads
            .get(&action.thread)
            .ok_or("an action of a thread that was not started")?;
        let number = thread.number;
        let waits = self.graph.waits(&action.after, &thread.serial)?;
        (0..waits.pauses)
            .for_each(|_| self.left_out.count("pauses before the first read or write"));
        (0..waits.forgotten).for_each(|_| {
            self.left_out
                .count("dependencies on actions of long ago or of an unknown kind")
        });
        let node = match &action.what {
            What::Io {
                io: io @ (Io::Read | Io::Write),
                aio,
                image,
                offset,
                len,
            } => {
                let &(file, open) = self.opens.get(image).ok_or("an image that is not open")?;
                let op = if *io == Io::Read { Op::Read } else { Op::Write };
                let record = Record {
                    op,
                    open,
                    thread: number,
                    after: waits.after,
                    ..Record::read(file, *offset, *len)
                };
                out.push_back(Item::Record(record));
                self.next.record += 1;
                Node::Record(self.next.record - 1, *aio)
            }
            other => {
                self.other(other, out)?;
                Node::Other(waits.after.into_boxed_slice())
            }
        };
        if action.what == What::Stop {
            self.threads.remove(&action.thread);
        } else if let Some(thread) = self.threads.get_mut(&action.thread) {
            thread.serial.clear();
            match &node {
                Node::Record(record, aio) => thread.serial.push(After {
                    record: *record,
                    end: !aio,
                    delay_ns: 0,
                }),
                Node::Other(others) => thread.serial.extend_from_slice(others),
            }
        }
        self.graph.add(action.id, node)
    }

    /// An action that is no record.
    fn other(&mut self, what: &What, out: &mut VecDeque<Item>) -> Result<(), &'static str> {
        match what {
            What::Start | What::Stop => {}
            What::Io { image, .. } => {
                self.opens.get(image).ok_or("an image that is not open")?;
                self.left_out.count("discards");
            }
            What::Close { image } => {
                self.opens
                    .remove(image)
                    .ok_or("a close of an image that is not open")?;
            }
            What::Open { image, names } => {
                let [name, snapshot] = names;
                let parts: &[&[u8]] = if snapshot.is_empty() {
                    &[name]
                } else {
                    &[name, snapshot]
                };
                let name = parts.join(&b'@');
                let named = || FileInfo {
                    name: String::from_utf8_lossy(&name).into_owned(),
                    size: None,
                };
                let file = self.files.file(&name, out, named);
                let file = file.ok_or("too many names of images")?;
                if self.opens.len() == MAX_OPENS {
                    return Err("more than 65536 images open at one time");
                }
                if self.opens.insert(*image, (file, self.next.open)).is_some() {
                    return Err("an image context that is opened twice");
                }
                self.next.open = self.next.open.checked_add(1).ok_or("too many opens")?;
            }
        }
        Ok(())
    }
}
