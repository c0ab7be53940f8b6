//! Makes a program's trace from items.

use foreread_lab::replay::{Part, Replay, load};
use foreread_trace::{Header, Import, Item, LeftOut, Level};
use std::sync::Arc;

/// Its replay, in the best mode that it allows.
pub fn replay_of(name: &str, items: Vec<Item>) -> Arc<Replay> {
    let header = Header {
        level: Level::Program,
        ..Header::default()
    };
    let import = Import {
        header,
        items: Box::new(items.into_iter().map(Ok)),
        left_out: LeftOut::default(),
    };
    let loaded = Arc::new(load(name, import, &Part::default()).expect("readable"));
    Arc::new(Replay::of(&loaded, None, None).expect("a mode fits"))
}
