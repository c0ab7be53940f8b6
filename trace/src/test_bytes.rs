//! A file in memory for the tests of this crate: the test writes to one clone and inspects another clone afterwards.

use std::io::Write;
use std::sync::{Arc, Mutex};

/// A file in memory: the bytes written so far.
#[derive(Clone, Default)]
pub struct SharedBytes(Arc<Mutex<Vec<u8>>>);

impl SharedBytes {
    /// Returns a copy of the bytes written so far.
    pub fn bytes(&self) -> Vec<u8> {
        self.0.lock().expect("whole").clone()
    }
}

impl Write for SharedBytes {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("whole").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
