//! Bytes that a fetch brought go to their pages, and bytes of pages to a read.
//!
//! Never: decides which pages those are; the machine has said so before.
//!
//! ```text
//!   parts of a fetch ──keep──► groups of the store ──fill──► a lease: what a read may copy from
//! ```

use super::jobs::{GROUP_PAGES, Job, Part};
use crate::chunk::Chunk;
use crate::store::{Lease, Store};
use foreread_core::machine::Machine;
use foreread_core::units::{ByteRange, FileId, GroupSlot};
use std::sync::Arc;

/// Puts what has arrived in place: whole pages, and the last one of the file.
pub fn keep(machine: &Machine, store: &mut Store, job: &Job, parts: Vec<Part>, bytes: u64) {
    let page_size = machine.config().page;
    let arrived = job.range.start() + bytes;
    for part in parts {
        let page = page_size.page_of(part.start);
        let end = part.start + part.chunk.bytes().len() as u64;
        let slot = machine.group_slot(job.file, page / GROUP_PAGES);
        let at = page % GROUP_PAGES;
        if arrived < end.min(job.range.end()) {
            // An early end is rare: the whole pages at the front are kept, and what follows is given up.
            let whole = page_size.page_of(arrived - part.start.min(arrived));
            if let Some(slot) = slot.filter(|_| whole > 0) {
                keep_front(store, slot, part.chunk, (at, whole));
            }
            return;
        }
        if let Some(slot) = slot {
            store.put(slot, at as usize, Arc::new(part.chunk));
        }
    }
}

/// Keeps this many pages at the front of a chunk that belongs at page `at` of its group.
fn keep_front(store: &mut Store, slot: GroupSlot, chunk: Chunk, (at, whole): (u64, u64)) {
    let gone = (chunk.pages() as u64).saturating_sub(whole);
    store.put(slot, at as usize, Arc::new(chunk));
    if gone > 0 {
        store.drop_pages(slot, (u64::MAX >> (GROUP_PAGES - gone)) << (at + whole));
    }
}

/// Leases the bytes of a range whose pages are all present. False when they are not: a bug.
pub fn fill(
    machine: &Machine,
    store: &Store,
    file: FileId,
    range: ByteRange,
    lease: &mut Lease,
) -> bool {
    let group_bytes = machine.config().page.bytes() * GROUP_PAGES;
    let mut at = range.start();
    while at < range.end() {
        let number = at / group_bytes;
        let base = number * group_bytes;
        let end = range.end().min(base + group_bytes);
        let Some(slot) = machine.group_slot(file, number) else {
            return false;
        };
        if !store.lease(slot, (at - base) as usize..(end - base) as usize, lease) {
            return false;
        }
        at = end;
    }
    true
}
