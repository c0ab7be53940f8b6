//! Tracks which open file description each descriptor of each thread refers to, as the kernel does.
//!
//! ```text
//!   thread ──► table (shared by threads, copied by fork) ──► descriptor ──► open description (shared by dup and fork)
//!                                                            close-on-exec   file, position, O_DIRECT
//! ```
//!
//! The numbers of threads and descriptors are limited. A position that cannot be tracked stays unknown.

use crate::error::Fault;
use std::collections::HashMap;

/// Maximum number of threads of a trace that exist at one time.
pub const MAX_THREADS: usize = 1 << 12;
/// Maximum number of descriptors that are open at one time, over all threads.
pub const MAX_DESCRIPTORS: usize = 1 << 18;

const MANY: &str = "trace fewer processes, or cut the trace into parts";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Description {
    /// Number of the open file's name; `None` if it is unknown.
    pub name: Option<u32>,
    /// File position, if it is known.
    pub position: Option<u64>,
    /// Opened with O_DIRECT: bypasses the page cache.
    pub direct: bool,
}

#[derive(Default)]
pub struct Tables {
    threads: HashMap<u32, u32>,
    tables: HashMap<u32, DescriptorTable>,
    /// Open descriptions, each with the number of its descriptors.
    open: HashMap<u32, (Description, u32)>,
    next_table: u32,
    next_open: u32,
    descriptors: usize,
}

#[derive(Default)]
struct DescriptorTable {
    users: u32,
    descriptors: HashMap<i32, Descriptor>,
}

#[derive(Clone, Copy)]
struct Descriptor {
    open: u32,
    close_on_exec: bool,
}

impl Tables {
    pub fn knows(&self, thread: u32) -> bool {
        self.threads.contains_key(&thread)
    }

    /// Adds a thread whose descriptors are unknown.
    pub fn begin(&mut self, thread: u32) -> Result<(), Fault> {
        self.room(0)?;
        let table = self.table(HashMap::new());
        self.threads.insert(thread, table);
        Ok(())
    }

    fn room(&self, descriptors: usize) -> Result<(), Fault> {
        if self.threads.len() >= MAX_THREADS {
            return Err(("more than 4096 threads at one time", MANY));
        }
        if self.descriptors + descriptors > MAX_DESCRIPTORS {
            return Err(("more than 262144 descriptors at one time", MANY));
        }
        Ok(())
    }

    /// Forgets all descriptors, and which threads share descriptors.
    pub fn forget(&mut self) {
        let next_open = self.next_open;
        *self = Tables {
            next_open,
            ..Tables::default()
        };
    }

    fn table(&mut self, descriptors: HashMap<i32, Descriptor>) -> u32 {
        self.next_table = self.next_table.wrapping_add(1);
        self.descriptors += descriptors.len();
        for descriptor in descriptors.values() {
            self.open
                .entry(descriptor.open)
                .and_modify(|(_, users)| *users += 1);
        }
        self.tables.insert(
            self.next_table,
            DescriptorTable {
                users: 1,
                descriptors,
            },
        );
        self.next_table
    }

    /// Records that a thread creates a child, which shares its descriptors or gets a copy of them.
    pub fn fork(&mut self, parent: u32, child: u32, share: bool) -> Result<(), Fault> {
        self.exit(child);
        let Some(&table) = self.threads.get(&parent) else {
            return self.begin(child);
        };
        let Some(parents) = self.tables.get_mut(&table) else {
            return self.begin(child);
        };
        let table = if share {
            parents.users += 1;
            let done = self.room(0);
            if done.is_err() {
                self.tables.entry(table).and_modify(|t| t.users -= 1);
            }
            done?;
            table
        } else {
            let copy = parents.descriptors.clone();
            self.room(copy.len())?;
            self.table(copy)
        };
        self.threads.insert(child, table);
        Ok(())
    }

    /// Records that a thread gets a separate copy of its descriptor table.
    pub fn unshare(&mut self, thread: u32) -> Result<(), Fault> {
        let Some(&table) = self.threads.get(&thread) else {
            return Ok(());
        };
        let Some(shared) = self.tables.get_mut(&table).filter(|t| t.users > 1) else {
            return Ok(());
        };
        let copy = shared.descriptors.clone();
        if self.descriptors + copy.len() > MAX_DESCRIPTORS {
            return Err(("more than 262144 descriptors at one time", MANY));
        }
        shared.users -= 1;
        let own = self.table(copy);
        self.threads.insert(thread, own);
        Ok(())
    }

    pub fn exec(&mut self, thread: u32) -> Result<(), Fault> {
        self.unshare(thread)?;
        self.close_some(thread, |_, descriptor| descriptor.close_on_exec);
        Ok(())
    }

    pub fn exit(&mut self, thread: u32) {
        let Some(number) = self.threads.remove(&thread) else {
            return;
        };
        let Some(table) = self.tables.get_mut(&number) else {
            return;
        };
        table.users -= 1;
        if table.users == 0 {
            let table = self.tables.remove(&number).unwrap_or_default();
            table
                .descriptors
                .values()
                .for_each(|descriptor| self.release(*descriptor));
        }
    }

    fn release(&mut self, descriptor: Descriptor) {
        self.descriptors -= 1;
        if let Some((_, users)) = self.open.get_mut(&descriptor.open) {
            *users -= 1;
            if *users == 0 {
                self.open.remove(&descriptor.open);
            }
        }
    }

    fn own(&mut self, thread: u32) -> Option<&mut DescriptorTable> {
        self.tables.get_mut(self.threads.get(&thread)?)
    }

    /// Returns the open file description to which a descriptor refers, and the number of this description.
    pub fn get(&mut self, thread: u32, descriptor: i32) -> Option<(u32, &mut Description)> {
        let open = self.own(thread)?.descriptors.get(&descriptor)?.open;
        self.open
            .get_mut(&open)
            .map(|(description, _)| (open, description))
    }

    pub fn open(
        &mut self,
        thread: u32,
        descriptor: i32,
        what: Description,
        cloexec: bool,
    ) -> Result<u32, Fault> {
        let open = self.next_open;
        self.next_open = self.next_open.wrapping_add(1);
        self.open.insert(open, (what, 0));
        self.put(
            thread,
            descriptor,
            Descriptor {
                open,
                close_on_exec: cloexec,
            },
        )?;
        Ok(open)
    }

    /// Records that the descriptor `to` now refers to the same open file description as the descriptor `from`.
    pub fn dup(&mut self, thread: u32, from: i32, to: i32, cloexec: bool) -> Result<(), Fault> {
        if from == to {
            return Ok(());
        }
        match self.get(thread, from) {
            Some((open, _)) => self.put(
                thread,
                to,
                Descriptor {
                    open,
                    close_on_exec: cloexec,
                },
            ),
            None => {
                self.close(thread, to);
                Ok(())
            }
        }
    }

    fn put(&mut self, thread: u32, number: i32, descriptor: Descriptor) -> Result<(), Fault> {
        if self.descriptors >= MAX_DESCRIPTORS {
            return Err(("more than 262144 descriptors at one time", MANY));
        }
        self.open
            .entry(descriptor.open)
            .and_modify(|(_, users)| *users += 1);
        let Some(table) = self.own(thread) else {
            return Ok(());
        };
        let before = table.descriptors.insert(number, descriptor);
        self.descriptors += 1;
        before.into_iter().for_each(|before| self.release(before));
        Ok(())
    }

    pub fn close(&mut self, thread: u32, descriptor: i32) {
        let closed = self
            .own(thread)
            .and_then(|table| table.descriptors.remove(&descriptor));
        closed.into_iter().for_each(|closed| self.release(closed));
    }

    pub fn close_range(&mut self, thread: u32, range: std::ops::RangeInclusive<i32>) {
        self.close_some(thread, |number, _| range.contains(&number));
    }

    fn close_some(&mut self, thread: u32, closed: impl Fn(i32, &Descriptor) -> bool) {
        let Some(table) = self.own(thread) else {
            return;
        };
        let gone: Vec<Descriptor> = table
            .descriptors
            .extract_if(|n, d| closed(*n, d))
            .map(|(_, d)| d)
            .collect();
        gone.into_iter()
            .for_each(|descriptor| self.release(descriptor));
    }

    /// Sets whether [`Tables::exec`] closes a descriptor (close-on-exec).
    pub fn set_close_on_exec(&mut self, thread: u32, descriptor: i32, closed: bool) {
        if let Some(d) = self
            .own(thread)
            .and_then(|table| table.descriptors.get_mut(&descriptor))
        {
            d.close_on_exec = closed;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Description = Description {
        name: Some(0),
        position: Some(0),
        direct: false,
    };

    fn position(tables: &mut Tables, thread: u32, descriptor: i32) -> Option<u64> {
        let found = tables.get(thread, descriptor);
        found.and_then(|(_, description)| description.position)
    }

    #[test]
    fn dup_and_fork_share_a_position_and_exec_closes() {
        let mut tables = Tables::default();
        let two = |tables: &mut Tables, first: (u32, i32), second: (u32, i32)| {
            [first, second].map(|(thread, descriptor)| position(tables, thread, descriptor))
        };
        tables.begin(1).expect("room");
        tables.open(1, 3, FILE, true).expect("room");
        tables.dup(1, 3, 4, false).expect("room");
        tables.fork(1, 2, false).expect("room");
        tables.get(2, 4).expect("copied").1.position = Some(7);
        assert_eq!(two(&mut tables, (1, 3), (2, 3)), [Some(7); 2]);
        tables.exec(2).expect("room");
        assert_eq!(two(&mut tables, (2, 3), (2, 4)), [None, Some(7)]);
        // Closing in a copy affects only the copy; in a shared table it affects all threads.
        tables.close(2, 4);
        tables.fork(1, 5, true).expect("room");
        tables.close(5, 3);
        assert_eq!(two(&mut tables, (1, 3), (1, 4)), [None, Some(7)]);
        tables.unshare(5).expect("room");
        tables.close_range(5, 0..=9);
        assert_eq!(two(&mut tables, (5, 4), (1, 4)), [None, Some(7)]);
        [1, 2, 5].into_iter().for_each(|thread| tables.exit(thread));
        let left = [tables.open.len(), tables.tables.len(), tables.threads.len()];
        assert_eq!((tables.descriptors, left), (0, [0; 3]));
    }

    #[test]
    fn threads_and_descriptors_have_limits() {
        let mut tables = Tables::default();
        for thread in 0..u32::try_from(MAX_THREADS).expect("small") {
            tables.begin(thread).expect("room");
        }
        let (what, _) = tables.begin(9999).expect_err("full");
        assert!(what.starts_with("more than 4096 threads"));
        assert!(tables.fork(0, 9999, true).is_err() && tables.fork(0, 9999, false).is_err());
        tables.exit(0);
        tables.begin(0).expect("room again");
        let most = i32::try_from(MAX_DESCRIPTORS).expect("small");
        for descriptor in 0..most {
            tables.open(0, descriptor, FILE, false).expect("room");
        }
        let (what, _) = tables.open(0, most, FILE, false).expect_err("full");
        assert!(what.starts_with("more than 262144 descriptors"));
        tables.exit(1);
        assert!(tables.fork(0, 1, false).is_err());
    }
}
