//! Every request passes here before anything is done for it: one rule, one error.
//!
//! Never: does anything. What a refused request sends along is for the caller to throw away.

use super::wire::{Request, command, command_flag, errno};

/// Most bytes that one request may ask for or bring: what every client takes for granted (the protocol's 32 MiB).
pub const MAX_LEN: u32 = 32 << 20;

/// What a server says of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// What clients call it.
    pub name: String,
    /// One line for `nbdinfo`. May be empty.
    pub description: String,
    /// In bytes.
    pub size: u64,
    /// See [`super::wire::transmission`].
    pub flags: u16,
    /// The request size that suits it best, in bytes: a power of two from 512 on.
    pub preferred: u32,
}

/// What is to be done for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Send these bytes.
    Read {
        /// First byte.
        offset: u64,
        /// How many, at least 1.
        len: u32,
    },
    /// These bytes are wanted soon.
    Cache {
        /// First byte.
        offset: u64,
        /// How many, at least 1.
        len: u32,
    },
    /// Everything that was written is safe: there is nothing to do for what is only read.
    Flush,
    /// The client leaves. No answer.
    Disconnect,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// See [`errno`].
    pub error: u32,
    /// In words, for clients that show them.
    pub message: &'static str,
    /// Bytes of payload that follow the request and have to be thrown away.
    pub payload: u32,
}

/// What is to be done for `request`.
///
/// # Errors
/// The first rule that it breaks.
pub fn validate(request: &Request, export: &Export) -> Result<Order, Refusal> {
    let Request { flags, command, offset, len, .. } = *request;
    let payload = if command == command::WRITE { len } else { 0 };
    let refuse = |error, message| Err(Refusal { error, message, payload });
    let known = match command {
        command::READ => command_flag::DF,
        command::WRITE | command::TRIM | command::WRITE_ZEROES => {
            return refuse(errno::EPERM, "the export is read-only");
        }
        command::CACHE | command::FLUSH | command::DISC => 0,
        command::BLOCK_STATUS => return refuse(errno::EINVAL, "no metadata context was agreed on"),
        _ => return refuse(errno::EINVAL, "unknown command"),
    };
    // FUA has no meaning for what is not written, and is allowed everywhere.
    if flags & !(known | command_flag::FUA) != 0 {
        return refuse(errno::EINVAL, "unknown flag");
    }
    match command {
        command::DISC => return Ok(Order::Disconnect),
        command::FLUSH if offset != 0 || len != 0 => return refuse(errno::EINVAL, "a flush of a range"),
        command::FLUSH => return Ok(Order::Flush),
        _ => {}
    }
    if len == 0 {
        return refuse(errno::EINVAL, "a request of no bytes");
    }
    if offset.checked_add(u64::from(len)).is_none_or(|end| end > export.size) {
        return refuse(errno::EINVAL, "beyond the end of the export");
    }
    // A hint carries nothing, so it may be as long as it likes.
    if command == command::CACHE {
        return Ok(Order::Cache { offset, len });
    }
    if len > MAX_LEN {
        return refuse(errno::EINVAL, "more than 33554432 bytes at once");
    }
    Ok(Order::Read { offset, len })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn export() -> Export {
        Export { name: String::new(), description: String::new(), size: 1 << 30, flags: 0, preferred: 4096 }
    }

    fn of(command: u16, flags: u16, offset: u64, len: u32) -> Result<Order, (u32, &'static str, u32)> {
        let request = Request { flags, command, cookie: 1, offset, len };
        validate(&request, &export()).map_err(|r| (r.error, r.message, r.payload))
    }

    #[test]
    fn what_is_right_is_done() {
        assert_eq!(of(command::READ, 0, 0, 1), Ok(Order::Read { offset: 0, len: 1 }));
        let last = Order::Read { offset: (1 << 30) - 512, len: 512 };
        assert_eq!(of(command::READ, command_flag::DF | command_flag::FUA, (1 << 30) - 512, 512), Ok(last));
        assert_eq!(of(command::READ, 0, 0, MAX_LEN), Ok(Order::Read { offset: 0, len: MAX_LEN }));
        assert_eq!(of(command::CACHE, 0, 0, 1 << 30), Ok(Order::Cache { offset: 0, len: 1 << 30 }));
        assert_eq!(
            (of(command::FLUSH, 0, 0, 0), of(command::DISC, 0, 9, 9)),
            (Ok(Order::Flush), Ok(Order::Disconnect))
        );
    }

    #[test]
    fn each_rule_has_its_error() {
        let invalid = |text| Err((errno::EINVAL, text, 0));
        let beyond = "beyond the end of the export";
        for (got, want) in [
            (of(command::READ, 0, 1 << 30, 1), invalid(beyond)),
            (of(command::READ, 0, (1 << 30) - 1, 2), invalid(beyond)),
            (of(command::READ, 0, u64::MAX, u32::MAX), invalid(beyond)),
            (of(command::CACHE, 0, u64::MAX, 1), invalid(beyond)),
            (of(command::READ, 0, 0, 0), invalid("a request of no bytes")),
            (of(command::READ, 0, 0, MAX_LEN + 1), invalid("more than 33554432 bytes at once")),
            (of(command::READ, 0x8000, 0, 1), invalid("unknown flag")),
            (of(command::CACHE, command_flag::DF, 0, 1), invalid("unknown flag")),
            (of(command::FLUSH, 0, 0, 1), invalid("a flush of a range")),
            (of(command::BLOCK_STATUS, 0, 0, 1), invalid("no metadata context was agreed on")),
            (of(99, 0, 0, 1), invalid("unknown command")),
            (of(command::WRITE, 0, 0, 4096), Err((errno::EPERM, "the export is read-only", 4096))),
            (of(command::WRITE_ZEROES, 0, 0, u32::MAX), Err((errno::EPERM, "the export is read-only", 0))),
            (of(command::TRIM, 0, 0, 1), Err((errno::EPERM, "the export is read-only", 0))),
        ] {
            assert_eq!(got, want);
        }
    }
}
