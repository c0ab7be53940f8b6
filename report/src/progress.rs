//! The trait through which a long measurement reports its progress.
//!
//! The measurements of the crate `lab` call this trait between runs, and the command line implements it. The trait is never called during a
//! timed run, because the time for printing would then be measured too.

/// Receives the progress of a measurement: the start of each stage, and the steps that the stage has done.
pub trait Progress {
    /// A new stage begins; `text` names it in a few words ("boot-ide on model:rbd").
    fn stage(&mut self, text: &str);

    /// `done` of `total` steps of this stage are done. `total` stays the same within a stage.
    fn step(&mut self, done: u64, total: u64);

    /// An intermediate result of this stage, in a few words ("auto: 0.61 s in run 1 of 10"), for work that takes
    /// long.
    fn found(&mut self, _text: &str) {}
}

impl Progress for &mut (dyn Progress + '_) {
    fn stage(&mut self, text: &str) {
        (**self).stage(text);
    }

    fn step(&mut self, done: u64, total: u64) {
        (**self).step(done, total);
    }

    fn found(&mut self, text: &str) {
        (**self).found(text);
    }
}

/// An implementation of [`Progress`] that reports nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn stage(&mut self, _text: &str) {}
    fn step(&mut self, _done: u64, _total: u64) {}
}
