//! Parses lines of the kernel's trace into readahead decisions, and into pages that were added to or removed from the
//! cache.
//!
//! A line that cannot be parsed is an error and is never skipped. Events that the kernel lost are also reported.
//!
//! ```text
//!   foreread-811   [001] .....  91.5: page_cache_ra_order: dev=7:1 ino=c index=0 order=0 size=4 async_size=3 ra_pages=32
//!            pid                      name                 fields
//! ```

use crate::conform::recording::{Call, Pre};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Decided(Call),
    /// A folio was added to the cache: its page frame, first page and order.
    Added(u64, u64, u32),
    /// A folio was removed from the cache.
    Deleted(u64, u32),
    /// The kernel lost some events because its buffer was full.
    Lost,
}

/// The event of a line, with its thread and its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TracedEvent {
    pub pid: u32,
    pub inode: u64,
    pub event: Event,
}

/// Parses one line; `None` if it is empty.
pub(super) fn parse(line: &str) -> Result<Option<TracedEvent>, String> {
    if line.trim().is_empty() {
        return Ok(None);
    }
    if line.contains("[LOST ") {
        return Ok(Some(TracedEvent {
            pid: 0,
            inode: 0,
            event: Event::Lost,
        }));
    }
    read(line).map(Some).ok_or_else(|| line.to_string())
}

fn read(line: &str) -> Option<TracedEvent> {
    // The command's name may contain anything, so the name of the event is found first, and then the process before it.
    let at = line
        .find(": page_cache_")
        .or_else(|| line.find(": mm_filemap_"))?;
    let (head, rest) = (&line[..at], &line[at + 2..]);
    let pid = head[..head.rfind(" [")?]
        .trim_end()
        .rsplit_once('-')?
        .1
        .parse()
        .ok()?;
    let (name, fields) = rest.split_once(": ")?;
    let number = |key: &str| field(fields, key)?.parse::<u64>().ok();
    let inode =
        u64::from_str_radix(field(fields, "ino=").or_else(|| field(fields, "ino "))?, 16).ok()?;
    let pre = || {
        Some(Pre {
            order: u32::try_from(number("order=")?).ok()?,
            size: number("size=")?,
            async_size: number("async_size=")?,
            ra_pages: number("ra_pages=")?,
            mmap_miss: number("mmap_miss=")?,
            prev_pos: field(fields, "prev_pos=")?.parse().ok()?,
        })
    };
    let order = || u32::try_from(number("order=")?).ok();
    let page = || Some(number("ofs=")? / 4096);
    let event = match name {
        "page_cache_sync_ra" => Event::Decided(Call::Sync {
            index: number("index=")?,
            req: number("req_count=")?,
            pre: Some(pre()?),
        }),
        "page_cache_async_ra" => Event::Decided(Call::Async {
            index: number("index=")?,
            req: number("req_count=")?,
            pre: Some(pre()?),
        }),
        "page_cache_ra_order" => Event::Decided(Call::Window {
            start: number("index=")?,
            order: order()?,
            size: number("size=")?,
            async_size: number("async_size=")?,
        }),
        "page_cache_ra_unbounded" => Event::Decided(Call::Raw {
            index: number("index=")?,
            nr: number("nr_to_read=")?,
            lookahead: number("lookahead_size=")?,
        }),
        "mm_filemap_add_to_page_cache" => {
            let frame = field(fields, "pfn=")?.strip_prefix("0x")?;
            Event::Added(u64::from_str_radix(frame, 16).ok()?, page()?, order()?)
        }
        "mm_filemap_delete_from_page_cache" => Event::Deleted(page()?, order()?),
        _ => return None,
    };
    Some(TracedEvent { pid, inode, event })
}

/// The value after `key`, which is at the start or after a space.
fn field<'a>(fields: &'a str, key: &str) -> Option<&'a str> {
    let begins = |at: &usize| *at == 0 || fields.as_bytes()[at - 1] == b' ';
    let at = fields.match_indices(key).map(|(at, _)| at).find(begins)? + key.len();
    fields[at..].split(' ').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> TracedEvent {
        parse(line).expect("well formed").expect("not empty")
    }

    /// Events as Linux 6.18 formats them.
    #[test]
    fn every_event_is_read() {
        let pre = Pre {
            order: 2,
            size: 8,
            async_size: 3,
            ra_pages: 32,
            mmap_miss: 1,
            prev_pos: -1,
        };
        let sync = Call::Sync {
            index: 5,
            req: 4,
            pre: Some(pre),
        };
        let window = Call::Window {
            start: 0,
            order: 1,
            size: 4,
            async_size: 3,
        };
        let raw = Call::Raw {
            index: 9,
            nr: 3,
            lookahead: 1,
        };
        for (text, event) in [
            (
                "page_cache_sync_ra: dev=7:1 ino=c index=5 req_count=4 order=2 size=8 async_size=3 ra_pages=32 mmap_miss=1 prev_pos=-1",
                Event::Decided(sync),
            ),
            (
                "page_cache_ra_order: dev=7:1 ino=c index=0 order=1 size=4 async_size=3 ra_pages=32",
                Event::Decided(window),
            ),
            (
                "page_cache_ra_unbounded: dev=7:1 ino=c index=9 nr_to_read=3 lookahead_size=1",
                Event::Decided(raw),
            ),
            (
                "mm_filemap_add_to_page_cache: dev 7:1 ino c pfn=0x1a2b ofs=65536 order=4",
                Event::Added(0x1a2b, 16, 4),
            ),
            (
                "mm_filemap_delete_from_page_cache: dev 7:1 ino c pfn=0x1a2b ofs=65536 order=4",
                Event::Deleted(16, 4),
            ),
        ] {
            let head = "           <...>-28338   [001] .....  4711.123456: ";
            let expected = TracedEvent {
                pid: 28338,
                inode: 12,
                event,
            };
            assert_eq!(parsed(&format!("{head}{text}")), expected);
        }
        assert_eq!(parsed("CPU:1 [LOST 12 EVENTS]").event, Event::Lost);
    }

    /// A command may have any name, and a line with an unknown format is an error.
    #[test]
    fn odd_lines() {
        let line = " a-b [1] c: d-77  [000] d..2.  1.5: mm_filemap_delete_from_page_cache: dev 7:1 ino 1f pfn=0x1 ofs=0 order=0";
        let odd = parsed(line);
        assert_eq!((odd.pid, odd.inode), (77, 31));
        assert_eq!(odd.event, Event::Deleted(0, 0));
        assert_eq!(parse("\n"), Ok(None));
        for line in [
            "what?",
            &line.replace("ofs=0", "ofs=x"),
            &line.replace("-77", ""),
            &line[..line.len() - 8],
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
