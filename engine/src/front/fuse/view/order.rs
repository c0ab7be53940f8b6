//! Announces to the engine which files follow an opened file, so that a policy can read them ahead.
//!
//! The order is that of the folder's listing, or a list from the caller (`plan.rs`). A file is announced only if this needs no further
//! request: the listings of the tree contain versions, and the file's listing is still trusted. If a file cannot be announced, this is no
//! error; it is opened like any other file.
//!
//! ```text
//!   listing    a ──► b ──► c ──► ...            Nodes::next
//!   open a     list b after a, c after b, ...       up to MAX_BEHIND files that have no reader
//!   open b     the reader that the engine has for it; its bytes may be in the cache
//! ```
//!
//! Example: `grep -r` over 500 objects of 12 KiB, on storage with 30 ms latency. The kernel reads the listing, grep opens the files
//! in that order, and `auto` reads ahead the files after the open one.

use super::View;
use crate::front::fuse::nodes::Node;
use crate::source::tree::Meta;
use crate::{FilePosition, Listing, Reader};
use std::path::Path;
use std::sync::Arc;

/// Number of files after an open file that the engine knows. It is the maximum number of small files that are read ahead on storage
/// with high latency (`core/src/policy/auto/files.rs`).
const MAX_BEHIND: usize = 256;
/// Maximum number of files listed at the same time, over all folders: each is a source and an entry of the engine, about 2 KiB
/// together.
const MAX_LISTED: usize = 4096;

struct FileToList {
    number: u64,
    path: Arc<Path>,
    meta: Meta,
    listing: Listing,
}

impl View {
    /// Lists the files after one that was opened.
    pub(super) fn list_behind(&self, number: u64, opened: &Reader) {
        if !self.lists_versions || !self.engine.follows_order() {
            return;
        }
        let (behind, unlisted) = self.unlisted_behind(number);
        let Some(mut after) = behind.or_else(|| opened.position()) else {
            return;
        };
        for FileToList {
            number,
            path,
            meta,
            listing,
        } in unlisted
        {
            let Ok((source, _)) = self.tree.open_listed(&path, &meta) else {
                return;
            };
            let Ok(file) = self.engine.list(source, Some(after), listing) else {
                return;
            };
            after = file.position();
            let unused = self.nodes().list(number, Arc::new(file), MAX_LISTED);
            drop(unused);
        }
    }

    /// Of the next `MAX_BEHIND` files: those that are not listed, and the position of the last file before them that is listed.
    fn unlisted_behind(&self, number: u64) -> (Option<FilePosition>, Vec<FileToList>) {
        let (mut behind, mut unlisted, mut at) = (None, Vec::new(), number);
        let mut nodes = self.nodes();
        for _ in 0..MAX_BEHIND {
            let Some((next, node)) = nodes.next(at) else {
                break;
            };
            match (&node.listed, &node.base) {
                (Some(file), _) if unlisted.is_empty() => behind = Some(file.position()),
                // Attributes of a planned file are requested before it is listed.
                (None, None)
                    if (node.planned || self.is_believed(node))
                        && !self.tree.is_unsure(&node.path) =>
                {
                    let (path, meta) = (Arc::clone(&node.path), node.meta.clone());
                    let listing = if node.planned {
                        Listing::Planned
                    } else {
                        Listing::Found
                    };
                    unlisted.push(FileToList {
                        number: next,
                        path,
                        meta,
                        listing,
                    });
                }
                // It has an order already: the files after it were listed when it was opened. Or its version is not known for
                // certain.
                _ => break,
            }
            at = next;
        }
        (behind, unlisted)
    }

    fn is_believed(&self, node: &Node) -> bool {
        self.said().says(&node.path, &node.meta) == Some(true)
    }
}
