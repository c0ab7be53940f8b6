//! The holes of a source, as far as known without reading.
//!
//! The cache need not be consulted: it contains the same version, in which a hole reads as zeroes. Finding the holes reads no data.
//!
//! ```text
//!   0       1M          9M    10M          extents(512K.., 16 at most)
//!   │ data  │   hole    │ data │           512K data, 8M hole, 1M data
//! ```

use super::Reader;
use crate::driver::{SizedVersion, event_error, guarded};
use crate::error::{Fault, ReadError};
use crate::source::{Cause, Extent, SourceError};
use foreread_core::event::Error;

impl Reader {
    /// Whether the source knows its holes, so that [`Reader::extents`] is useful.
    #[must_use]
    pub fn knows_holes(&self) -> bool {
        self.source.holes().is_some()
    }

    /// Lists data and holes from `offset` up to `end`, in ascending order and without gaps, as at most `most` extents. The last extent
    /// may end beyond `end`. For a source that does not know its holes, the result is one extent of data.
    ///
    /// # Errors
    /// Returns the errors of [`Reader::read_at`]: the call asks the source, which may fail or may have changed.
    pub fn extents(&self, offset: u64, end: u64, most: usize) -> Result<Vec<Extent>, ReadError> {
        let failed = |fault| self.explain(fault, 0, offset);
        let SizedVersion { size, version } =
            self.engine.driver().known(self.at.file).map_err(failed)?;
        if !self.seen.knows(version) {
            // This error informs the caller, unless the reader is pinned.
            self.seen.told(version);
            return Err(failed(Fault::Read(Error::Changed)));
        }
        let (mut at, mut all) = (offset, Vec::new());
        while at < end.min(size) && all.len() < most {
            let extent = match self.source.holes() {
                Some(holes) => match guarded(|| holes.extent_at(at)) {
                    Ok(extent) => extent,
                    Err(error) => {
                        if let SourceError::Changed { .. } = error {
                            let driver = self.engine.driver();
                            driver.changed(self.at.file, version).map_err(failed)?;
                            self.seen
                                .told(driver.known(self.at.file).map_err(failed)?.version);
                        }
                        return Err(failed(Fault::Source(
                            event_error(&error),
                            Cause::new(error),
                        )));
                    }
                },
                None => Extent {
                    len: size - at,
                    is_hole: false,
                },
            };
            all.push(extent);
            at = at.saturating_add(extent.len.max(1));
        }
        Ok(all)
    }
}
