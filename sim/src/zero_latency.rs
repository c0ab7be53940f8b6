//! A storage that answers at once: for decisions that do not depend on time.
//!
//! Never: bytes, time, or a read that waits. Waiting is the simulator's.

use foreread_core::event::{Action, Event};
use foreread_core::machine::Machine;
use foreread_core::units::{ByteRange, Nanos};

/// Gives the machine one event, answers every fetch that follows and gives back every lease. `fetched` sees what is
/// fetched, in order.
pub fn tell(machine: &mut Machine, event: Event, mut fetched: impl FnMut(ByteRange)) {
    machine.handle(Nanos(0), event);
    while let Some(action) = machine.poll() {
        match action {
            Action::Submit { fetch, range, .. } => {
                fetched(range);
                machine.handle(
                    Nanos(0),
                    Event::Done {
                        fetch,
                        bytes: range.len(),
                    },
                );
            }
            Action::Serve { lease, .. } => machine.handle(Nanos(0), Event::Release { lease }),
            _ => {}
        }
    }
}
