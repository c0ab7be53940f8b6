//! A source in memory, for tests: a vector of bytes, or a function from an offset to bytes.
//!
//! It has versions like a real file: [`Mem::append`] grows it, [`Mem::replace`] makes it another version. Never:
//! waits.

use super::{Defaults, Source, SourceError, WritableSource};
use std::io::IoSliceMut;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

type Generator = Box<dyn Fn(u64, &mut [u8]) + Send + Sync>;

enum Content {
    Bytes(Vec<u8>),
    Generated { size: u64, fill: Generator },
}

struct Inner {
    content: Content,
    /// Replaced and not accepted yet.
    changed: bool,
}

impl Inner {
    fn size(&self) -> u64 {
        match &self.content {
            Content::Bytes(bytes) => bytes.len() as u64,
            Content::Generated { size, .. } => *size,
        }
    }
}

/// A source in memory, for tests: a vector of bytes, or a function from an offset to bytes.
pub struct Mem {
    inner: RwLock<Inner>,
}

impl Mem {
    /// These bytes.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Mem {
        Mem {
            inner: RwLock::new(Inner {
                content: Content::Bytes(bytes),
                changed: false,
            }),
        }
    }

    /// `size` bytes, of which `fill` makes those from any offset on when they are asked for.
    #[must_use]
    pub fn generated(size: u64, fill: impl Fn(u64, &mut [u8]) + Send + Sync + 'static) -> Mem {
        let content = Content::Generated {
            size,
            fill: Box::new(fill),
        };
        Mem {
            inner: RwLock::new(Inner {
                content,
                changed: false,
            }),
        }
    }

    /// More bytes at the end. A generated source is only told its new size by their number.
    pub fn append(&self, more: &[u8]) {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        match &mut inner.content {
            Content::Bytes(bytes) => bytes.extend_from_slice(more),
            Content::Generated { size, .. } => *size = size.saturating_add(more.len() as u64),
        }
    }

    /// Another version.
    pub fn replace(&self, bytes: Vec<u8>) {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        *inner = Inner {
            content: Content::Bytes(bytes),
            changed: true,
        };
    }

    fn same(&self) -> Result<RwLockReadGuard<'_, Inner>, SourceError> {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        if inner.changed {
            return Err(SourceError::Changed {
                what: "mem: the bytes were replaced".to_string(),
            });
        }
        Ok(inner)
    }
}

impl Source for Mem {
    fn size(&self) -> u64 {
        self.inner
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .size()
    }

    fn read_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize, SourceError> {
        let inner = self.same()?;
        let mut at = offset;
        for buf in bufs {
            let left = usize::try_from(inner.size().saturating_sub(at)).unwrap_or(usize::MAX);
            let len = buf.len().min(left);
            match &inner.content {
                Content::Bytes(bytes) if len > 0 => {
                    buf[..len].copy_from_slice(&bytes[at as usize..at as usize + len]);
                }
                Content::Generated { fill, .. } if len > 0 => fill(at, &mut buf[..len]),
                // The end, or a buffer without room: another may follow.
                _ => {}
            }
            at += len as u64;
        }
        Ok((at - offset) as usize)
    }

    fn defaults(&self) -> Defaults {
        Defaults::MEMORY
    }

    fn describe(&self) -> String {
        "mem:".to_string()
    }

    fn check(&self) -> Result<u64, SourceError> {
        self.same().map(|inner| inner.size())
    }

    fn accept(&self) -> u64 {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        inner.changed = false;
        inner.size()
    }

    fn writing(&self) -> Option<&dyn WritableSource> {
        Some(self)
    }
}

impl WritableSource for Mem {
    fn allow_writes(&self) -> Result<(), SourceError> {
        match &self.same()?.content {
            Content::Bytes(_) => Ok(()),
            Content::Generated { .. } => Err(super::no_writes(
                "mem: of bytes that are made up".to_string(),
            )),
        }
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), SourceError> {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        if inner.changed {
            return Err(SourceError::Changed {
                what: "mem: the bytes were replaced".to_string(),
            });
        }
        let Content::Bytes(all) = &mut inner.content else {
            return Err(super::no_writes(
                "mem: of bytes that are made up".to_string(),
            ));
        };
        let size = all.len() as u64;
        let start = usize::try_from(offset).ok();
        let place = start.and_then(|start| all.get_mut(start..start.checked_add(bytes.len())?));
        place
            .ok_or(SourceError::Short { at: offset, size })?
            .copy_from_slice(bytes);
        Ok(())
    }

    fn flush(&self) -> Result<(), SourceError> {
        self.same().map(drop)
    }
}
