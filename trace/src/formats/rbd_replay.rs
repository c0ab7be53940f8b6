//! `rbd-replay`: the requests of a virtual machine to its images, in the format that Ceph's `rbd-replay` reads since Ceph 9 (2015).
//!
//! ```text
//!   reader: bytes ──► actions ──► graph: ids ──► what waits for what
//!                        │
//!                        └──► reads and writes ──► records      opens, closes, threads, discards ──► no records
//! ```
//!
//! The trace has no absolute times, only delays, which are stored in `Record::after`; `start_ns` stays empty. Each
//! image, and each snapshot of an image, becomes a file (`image@snapshot`), and each image context is an open file description until the
//! context is closed.
//!
//! The program rbd-replay treats a dependency on an asynchronous action as a dependency on the submission of this action, not on its end.
//! However, `rbd-replay-prep`, which writes these traces, makes an action a dependency only after the action has ended. By mistake,
//! `rbd-replay-prep` writes the id of the action into the trace instead of the id of the action's completion. foreread therefore lets such a
//! dependency also wait for the end of the action; the delay of the dependency still counts from the action's submission. In a replay at the recorded speed, this additional wait makes no difference; at full speed, it prevents the queue
//! from getting deeper than it was in the recording. No absolute times are invented.

use self::read::{Action, BANNER, Entry, Io, Reader, What};
use super::scan::Names;
use super::step::{Step, items};
use crate::check::MAX_AFTER;
use crate::error::TraceError;
use crate::format::{Fit, Format, Pairs};
use crate::input::Input;
use crate::{After, FileInfo, Header, Import, Item, Lacks, LeftOut, Level, Op, Record};
use std::collections::{HashMap, VecDeque};

mod read;

/// Maximum number of threads at one time; each becomes a thread of the replay.
pub const MAX_THREADS: usize = 1 << 12;
pub const MAX_OPENS: usize = 1 << 16;

pub static FORMAT: Format = Format {
    name: "rbd-replay",
    summary: "reads and writes of RBD images, with their dependencies; bytes, no times",
    keys: &[],
    detect,
    import,
    export: None,
};

fn detect(head: &[u8]) -> Fit {
    Fit::sure_if(head.starts_with(BANNER))
}

fn import(input: Input, _: Pairs) -> Result<Import, TraceError> {
    let reader = Reader::new(input)?;
    let left_out = LeftOut::default();
    let lacks = Lacks {
        starts: true,
        ends: true,
        ..Lacks::default()
    };
    let notes = [
        "Requests of a guest to its disk, below the guest's page cache.",
        "There are no times: each record says which records it waits for, and how long it waits after them.",
        "A record that depends on an asynchronous action waits for its completion.",
    ];
    let units = ["ns, differences only", "bytes"];
    let header = Header::of(FORMAT.name, units, lacks, Level::BelowCache, &notes);
    let replay = Replay {
        reader,
        graph: Graph::new(),
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
    /// The dependencies of the thread's next action.
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
                self.left_out.count("entries of unknown types");
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
                return Err("a thread is started twice");
            }
        }
        let thread = self
            .threads
            .get(&action.thread)
            .ok_or("an action of a thread that was never started")?;
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
                let &(file, open) = self
                    .opens
                    .get(image)
                    .ok_or("a request for an image that is not open")?;
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
                Node::Record(record, aio) => thread.serial.push(After::new(*record, !aio, 0)),
                Node::Other(others) => thread.serial.extend_from_slice(others),
            }
        }
        self.graph.add(action.id, node)
    }

    /// Handles an action that does not become a record.
    fn other(&mut self, what: &What, out: &mut VecDeque<Item>) -> Result<(), &'static str> {
        match what {
            What::Start | What::Stop => {}
            What::Io { image, .. } => {
                self.opens
                    .get(image)
                    .ok_or("a request for an image that is not open")?;
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
                let named = || FileInfo::new(String::from_utf8_lossy(&name), None);
                let file = self.files.file(&name, out, named);
                let file = file.ok_or("too many image names")?;
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

// Converts the dependencies of rbd-replay from action ids to record numbers.
//
// ```text
//   read 4 ──► its end, id 5 ──► close 6 ──► open 8 ──► read 10 waits for 9
//      record 0                    no record   no record      record 1, after: the end of record 0
// ```
//
// A dependency on an action that does not become a record (an open, a close, a thread, a discard) is replaced by the
// dependencies of that action, with the delays added. The actions of a thread also run in the order of the file; this
// order becomes dependencies too, so `Record::after` is complete and a replay need not know which calls were
// synchronous. A stop counts as done when the earlier actions of its thread are done; whether it waits for others is
// not known. Only the latest actions are remembered, and no dependency refers to a later one.

/// Maximum number of remembered actions, to which later actions may refer. The program rbd-replay-prep refers only to actions of the last
/// second.
pub const MAX_REMEMBERED: usize = 1 << 20;
/// Maximum number of dependencies that are remembered for actions which are not converted to a record.
pub const MAX_REMEMBERED_AFTERS: usize = 1 << 22;

/// What an action was converted to.
#[derive(Clone, Debug)]
pub enum Node {
    /// The record with this number; the thread's next action waits for its end unless the record is asynchronous.
    Record(u64, bool),
    /// Not a record: its own dependencies.
    Other(Box<[After]>),
}

#[derive(Debug, Default)]
pub struct Waits {
    /// Dependencies as record numbers.
    pub after: Vec<After>,
    /// Number of delays without an action to count from.
    pub pauses: u64,
    /// Number of dependencies on forgotten actions.
    pub forgotten: u64,
}

pub struct Graph {
    nodes: HashMap<u32, Node>,
    order: VecDeque<u32>,
    afters: usize,
    /// Whether some actions are unknown: forgotten, or of an unknown type.
    gaps: bool,
    most: usize,
}

impl Graph {
    pub fn new() -> Graph {
        let (nodes, order) = (HashMap::new(), VecDeque::new());
        Graph {
            nodes,
            order,
            afters: 0,
            gaps: false,
            most: MAX_REMEMBERED,
        }
    }

    /// Records that an entry was skipped, so that from now on an unknown id is not an error.
    pub fn gap(&mut self) {
        self.gaps = true;
    }

    /// Returns the dependencies of an action: those on the actions `ids`, and those in `serial`, which follow from the order of the
    /// actions in the same thread.
    pub fn waits(&self, ids: &[(u32, u64)], serial: &[After]) -> Result<Waits, &'static str> {
        let mut waits = Waits {
            after: serial.to_vec(),
            ..Waits::default()
        };
        for &(id, delay_ns) in ids {
            match self.nodes.get(&(id & !1)) {
                Some(Node::Record(record, aio)) => {
                    let end = |end, delay_ns| After::new(*record, end, delay_ns);
                    if id & 1 == 1 || !aio {
                        waits.after.push(end(true, delay_ns));
                    } else {
                        // The delay counts from the start of the action, so it stays with the start.
                        waits.after.extend([end(true, 0), end(false, delay_ns)]);
                    }
                }
                Some(Node::Other(others)) => {
                    waits.pauses += u64::from(others.is_empty() && delay_ns > 0);
                    let later = |a: &After| After {
                        delay_ns: a.delay_ns.saturating_add(delay_ns),
                        ..*a
                    };
                    waits.after.extend(others.iter().map(later));
                }
                None if self.gaps => waits.forgotten += 1,
                None => return Err("an action waits for one that does not precede it"),
            }
            if waits.after.len() > 4 * MAX_AFTER {
                tidy(&mut waits.after);
            }
        }
        tidy(&mut waits.after);
        if waits.after.len() > MAX_AFTER {
            Err("an action waits for more than 1024 others")
        } else {
            Ok(waits)
        }
    }

    pub fn add(&mut self, id: u32, node: Node) -> Result<(), &'static str> {
        if id & 1 == 1 {
            return Err("an action with an odd id, which denotes the end of an action");
        }
        let afters = |node: &Node| {
            if let Node::Other(others) = node {
                others.len()
            } else {
                0
            }
        };
        self.afters += afters(&node);
        if self.nodes.insert(id, node).is_some() {
            return Err("an id that an earlier action already has");
        }
        self.order.push_back(id);
        while self.order.len() > self.most || self.afters > MAX_REMEMBERED_AFTERS {
            let Some(oldest) = self.order.pop_front() else {
                break;
            };
            self.afters -= self.nodes.remove(&oldest).map_or(0, |node| afters(&node));
            self.gaps = true;
        }
        Ok(())
    }
}

/// Removes duplicates and sorts; the longer of two delays remains. An end implies its start.
fn tidy(after: &mut Vec<After>) {
    after.sort_by_key(|a| (a.record, !a.end, std::cmp::Reverse(a.delay_ns)));
    after.dedup_by_key(|a| (a.record, a.end));
    after.dedup_by(|b, a| a.record == b.record && a.end && b.delay_ns == 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_become_records() {
        let mut graph = Graph::new();
        let add = |graph: &mut Graph, id, node| graph.add(id, node).expect("new");
        add(&mut graph, 0, Node::Other(Box::new([])));
        add(&mut graph, 2, Node::Record(0, false));
        add(&mut graph, 4, Node::Record(1, true));
        let others = [After::new(0, true, 7), After::new(1, true, 9)];
        add(&mut graph, 6, Node::Other(Box::new(others)));
        let waits =
            |ids: &[(u32, u64)], serial: &[After]| graph.waits(ids, serial).expect("known").after;
        // A synchronous action counts as done when it has ended.
        assert_eq!(waits(&[(2, 5)], &[]), [After::new(0, true, 5)]);
        let both = [After::new(1, true, 0), After::new(1, false, 5)];
        assert_eq!(waits(&[(4, 5)], &[]), both);
        let longest = waits(&[(5, 5), (5, 3)], &[After::new(1, false, 0)]);
        assert_eq!(longest, [After::new(1, true, 5)]);
        let both = [After::new(0, true, 8), After::new(1, true, 10)];
        assert_eq!(waits(&[(7, 1)], &[]), both);
        let start = graph.waits(&[(1, 3), (0, 0)], &[]).expect("known");
        assert_eq!((start.after.len(), start.pauses), (0, 1));
        assert!(graph.waits(&[(8, 0)], &[]).is_err());
        let mut add = |id| graph.add(id, Node::Record(2, true));
        assert!(add(2).is_err() && add(9).is_err());
    }

    #[test]
    fn old_entries_are_forgotten_and_counted() {
        let mut graph = Graph {
            most: 2,
            ..Graph::new()
        };
        for (number, id) in [(0, 0), (1, 2), (2, 4)] {
            // Nothing is forgotten yet.
            assert!(graph.waits(&[(100, 0)], &[]).is_err(), "{number}");
            graph.add(id, Node::Record(number, false)).expect("new");
        }
        let waits = graph.waits(&[(0, 0), (2, 0)], &[]);
        let waits = waits.expect("forgotten, not unknown");
        assert_eq!(
            (waits.after, waits.forgotten),
            (vec![After::new(1, true, 0)], 1)
        );
    }

    #[test]
    fn the_number_of_others_has_a_limit() {
        let mut graph = Graph::new();
        let ids: Vec<(u32, u64)> = (0..=MAX_AFTER as u32).map(|n| (2 * n, 0)).collect();
        for (number, (id, _)) in (0..).zip(&ids) {
            graph.add(*id, Node::Record(number, false)).expect("new");
        }
        let most = graph.waits(&ids[1..], &[]).expect("as many as may be");
        assert_eq!(most.after.len(), MAX_AFTER);
        assert!(graph.waits(&ids, &[]).is_err());
    }
}
