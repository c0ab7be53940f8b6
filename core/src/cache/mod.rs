//! placeholder
use crate::units::{FileId, PageRange, PageSize};
/// placeholder
pub struct Cache { page: PageSize }
impl Cache {
    pub(crate) fn page_size(&self) -> PageSize { self.page }
    pub(crate) fn is_cached(&self, _file: FileId, _page: u64) -> bool { false }
    pub(crate) fn next_hole(&self, _file: FileId, pages: PageRange) -> Option<u64> { Some(pages.first) }
    pub(crate) fn history(&self, _file: FileId, _page: u64, _limit: u64) -> u64 { 0 }
}
