//! The library panics on some damaged files where it should return an error: here a panic becomes one.
//!
//! Its message goes nowhere, since the caller says what is wrong; every other thread and panic is reported as before.
//! Never: a panic of our own hidden, only calls into the library run here.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

static HOOK: Once = Once::new();

/// What `call` returns, or nothing where it panics. What it had in hand must not be used any more then.
pub fn quiet<T>(call: impl FnOnce() -> T) -> Option<T> {
    HOOK.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |panic| {
            if !QUIET.get() {
                before(panic);
            }
        }));
    });
    QUIET.set(true);
    let result = catch_unwind(AssertUnwindSafe(call));
    QUIET.set(false);
    result.ok()
}
