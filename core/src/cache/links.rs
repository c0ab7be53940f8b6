//! Linked lists of numbered nodes: all links are in one vector, and a node is in at most one list.

/// No node.
pub const NONE: u32 = u32::MAX;

/// The neighbours of a node.
#[derive(Clone, Copy)]
pub struct Link {
    pub newer: u32,
    pub older: u32,
}

impl Link {
    pub const NONE: Link = Link {
        newer: NONE,
        older: NONE,
    };
}

/// The newest and the oldest node of a list, and the number of its nodes.
#[derive(Clone, Copy)]
pub struct List {
    pub newest: u32,
    pub oldest: u32,
    pub len: u64,
}

impl List {
    pub const EMPTY: List = List {
        newest: NONE,
        oldest: NONE,
        len: 0,
    };

    /// Adds a node, which must not be in a list yet, at the newest end of the list.
    pub fn push(&mut self, links: &mut [Link], node: u32) {
        links[node as usize] = Link {
            newer: NONE,
            older: self.newest,
        };
        match self.newest {
            NONE => self.oldest = node,
            newest => links[newest as usize].newer = node,
        }
        self.newest = node;
        self.len += 1;
    }

    /// Removes a node that is in this list.
    pub fn remove(&mut self, links: &mut [Link], node: u32) {
        let Link { newer, older } = links[node as usize];
        match newer {
            NONE => self.newest = older,
            newer => links[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => links[older as usize].newer = newer,
        }
        self.len -= 1;
    }
}
