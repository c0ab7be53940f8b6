//! What a record of rbd-replay waits for: from ids of actions to numbers of records.
//!
//! ```text
//!   read 4 ──► its end, id 5 ──► close 6 ──► open 8 ──► read 10 waits for 9
//!      record 0                    no record   no record      record 1, after: the end of record 0
//! ```
//!
//! A dependency on an action that is no record (an open, a close, a thread, a discard) becomes what that action waited
//! for, with the delays added. Within a thread the order of the file holds too, and is written down as well: so
//! `Record::after` says all of it, and a replay need not know which calls were synchronous. A stop counts as done
//! when what is before it in its thread is; it is not known to wait for the rest.
//! Never: a dependency on something later, or a memory of more than the latest actions.

use crate::After;
use crate::check::MAX_AFTER;
use std::collections::{HashMap, VecDeque};

/// Actions that later ones may name. A recorder names those of its last second.
pub const MAX_REMEMBERED: usize = 1 << 20;
/// Dependencies remembered for those of them that are no records.
pub const MAX_REMEMBERED_AFTERS: usize = 1 << 22;

/// What became of an action.
#[derive(Clone, Debug)]
pub enum Node {
    /// The record of this number; the next action of its thread waits for its end, unless it is asynchronous.
    Record(u64, bool),
    /// No record: what it waited for.
    Other(Box<[After]>),
}

#[derive(Debug, Default)]
pub struct Waits {
    /// In terms of records.
    pub after: Vec<After>,
    /// Pauses that nothing is left to count from.
    pub pauses: u64,
    /// Dependencies on actions that are forgotten.
    pub forgotten: u64,
}

pub struct Graph {
    nodes: HashMap<u32, Node>,
    order: VecDeque<u32>,
    afters: usize,
    /// Some actions are not known: forgotten, or of an unknown type.
    gaps: bool,
    /// A dependency on an asynchronous action is one on its end too.
    aio_ends: bool,
    most: usize,
}

impl Graph {
    pub fn new(aio_ends: bool) -> Graph {
        let (nodes, order) = (HashMap::new(), VecDeque::new());
        Graph {
            nodes,
            order,
            afters: 0,
            gaps: false,
            aio_ends,
            most: MAX_REMEMBERED,
        }
    }

    /// From here on an unknown id is no error: an entry was passed over.
    pub fn gap(&mut self) {
        self.gaps = true;
    }

    /// What one waits for that names `ids`, behind `serial`, what its thread makes it wait for.
    pub fn waits(&self, ids: &[(u32, u64)], serial: &[After]) -> Result<Waits, &'static str> {
        let mut waits = Waits {
            after: serial.to_vec(),
            ..Waits::default()
        };
        for &(id, delay_ns) in ids {
            match self.nodes.get(&(id & !1)) {
                Some(Node::Record(record, aio)) => {
                    let end = |end, delay_ns| After {
                        record: *record,
                        end,
                        delay_ns,
                    };
                    match (id & 1 == 1 || !aio, self.aio_ends) {
                        (true, _) => waits.after.push(end(true, delay_ns)),
                        (false, false) => waits.after.push(end(false, delay_ns)),
                        // The delay counts from its start, so it stays there.
                        (false, true) => waits.after.extend([end(true, 0), end(false, delay_ns)]),
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
                None => return Err("an action that waits for one that is not before it"),
            }
            if waits.after.len() > 4 * MAX_AFTER {
                tidy(&mut waits.after);
            }
        }
        tidy(&mut waits.after);
        if waits.after.len() > MAX_AFTER {
            Err("an action that waits for more than 1024 others")
        } else {
            Ok(waits)
        }
    }

    pub fn add(&mut self, id: u32, node: Node) -> Result<(), &'static str> {
        if id & 1 == 1 {
            return Err("an action with an odd id, which means the end of one");
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
            return Err("an id that an earlier action has");
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

/// Once each, in order; of two delays the longer one holds. A start is implied by an end.
fn tidy(after: &mut Vec<After>) {
    after.sort_by_key(|a| (a.record, !a.end, std::cmp::Reverse(a.delay_ns)));
    after.dedup_by_key(|a| (a.record, a.end));
    after.dedup_by(|b, a| a.record == b.record && a.end && b.delay_ns == 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(record: u64, end: bool, delay_ns: u64) -> After {
        After {
            record,
            end,
            delay_ns,
        }
    }

    #[test]
    fn ids_become_records() {
        for aio_ends in [false, true] {
            let mut graph = Graph::new(aio_ends);
            let add = |graph: &mut Graph, id, node| graph.add(id, node).expect("new");
            add(&mut graph, 0, Node::Other(Box::new([])));
            add(&mut graph, 2, Node::Record(0, false));
            add(&mut graph, 4, Node::Record(1, true));
            add(
                &mut graph,
                6,
                Node::Other(Box::new([after(0, true, 7), after(1, true, 9)])),
            );
            let waits = |ids: &[(u32, u64)], serial: &[After]| {
                graph.waits(ids, serial).expect("known").after
            };
            // A synchronous action has happened when it has ended.
            assert_eq!(waits(&[(2, 5)], &[]), [after(0, true, 5)]);
            let both = [after(1, true, 0), after(1, false, 5)];
            assert_eq!(
                waits(&[(4, 5)], &[]),
                if aio_ends {
                    both.to_vec()
                } else {
                    vec![after(1, false, 5)]
                }
            );
            assert_eq!(
                waits(&[(5, 5), (5, 3)], &[after(1, false, 0)]),
                [after(1, true, 5)]
            );
            assert_eq!(
                waits(&[(7, 1)], &[]),
                [after(0, true, 8), after(1, true, 10)]
            );
            let start = graph.waits(&[(1, 3), (0, 0)], &[]).expect("known");
            assert_eq!((start.after.len(), start.pauses), (0, 1));
            assert!(graph.waits(&[(8, 0)], &[]).is_err());
            assert!(
                graph.add(2, Node::Record(2, true)).is_err()
                    && graph.add(9, Node::Record(2, true)).is_err()
            );
        }
    }

    #[test]
    fn old_entries_are_forgotten_and_counted() {
        let mut graph = Graph {
            most: 2,
            ..Graph::new(false)
        };
        for (number, id) in [(0, 0), (1, 2), (2, 4)] {
            assert!(
                graph.waits(&[(100, 0)], &[]).is_err(),
                "nothing is forgotten before record {number}"
            );
            graph.add(id, Node::Record(number, false)).expect("new");
        }
        let waits = graph
            .waits(&[(0, 0), (2, 0)], &[])
            .expect("forgotten, not unknown");
        assert_eq!((waits.after, waits.forgotten), (vec![after(1, true, 0)], 1));
    }

    #[test]
    fn the_number_of_others_has_a_limit() {
        let mut graph = Graph::new(false);
        for number in 0..=MAX_AFTER as u64 {
            graph
                .add(
                    u32::try_from(2 * number).expect("small"),
                    Node::Record(number, false),
                )
                .expect("new");
        }
        let ids: Vec<(u32, u64)> = (0..=MAX_AFTER as u32).map(|n| (2 * n, 0)).collect();
        assert_eq!(
            graph.waits(&ids[1..], &[]).map(|w| w.after.len()).ok(),
            Some(MAX_AFTER)
        );
        assert!(graph.waits(&ids, &[]).is_err());
    }
}
