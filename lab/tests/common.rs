//! Makes a program's trace from items.

use foreread_lab::replay::{LoadedTrace, Part, Replay, load};
use foreread_trace::{Header, Import, Item, LeftOut, Level};
use std::sync::Arc;

/// Of a program's calls.
pub fn of_program() -> Header {
    Header {
        level: Level::Program,
        ..Header::default()
    }
}

pub fn loaded(name: &str, header: Header, items: Vec<Item>) -> Arc<LoadedTrace> {
    let import = Import {
        header,
        items: Box::new(items.into_iter().map(Ok)),
        left_out: LeftOut::default(),
    };
    Arc::new(load(name, import, &Part::default()).expect("readable"))
}

/// Its replay, in the best mode that it allows.
pub fn replay_of(name: &str, items: Vec<Item>) -> Arc<Replay> {
    let loaded = loaded(name, of_program(), items);
    Arc::new(Replay::of(&loaded, None, None).expect("a mode fits"))
}
