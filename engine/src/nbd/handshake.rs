//! The server's side of the fixed newstyle handshake, without a socket: it takes the client's bytes and returns the bytes to send.
//!
//! The handshake code never waits, never trusts a length sent by a client, and never keeps more than [`MAX_OPTION_BYTES`] of a client's
//! bytes.
//!
//! ```text
//!   greeting ──► client flags ──► option head ──► option data ──► answer ─┬─► option head (LIST, INFO, what is refused)
//!                     │                │                                  ├─► Transmission (GO, EXPORT_NAME)
//!                     └── bad ─────────┴── bad magic, too long, too many ─┴─► Close (ABORT)
//! ```

use super::validate::{Export, MAX_LEN, PREFERRED_LEN};
use super::wire::{self, allocation, handshake_flag, info, option, reply, transmission};

/// Maximum length of an option's data. The longest data is the name of an export (at most 4096 bytes) with information requests of two
/// bytes each after it.
pub const MAX_OPTION_BYTES: u32 = 16 << 10;
/// Maximum number of options before the transmission phase: clients send about five.
pub const MAX_OPTIONS: u32 = 64;
/// Maximum length of an export name, set by the protocol.
const MAX_NAME_BYTES: usize = 4096;

/// What the caller must do after it has sent the output of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Read [`Handshake::wants`] more bytes.
    More,
    /// Do the TLS handshake; then read [`Handshake::wants`] more bytes, encrypted from here on.
    StartTls,
    /// The transmission phase begins: read requests.
    Transmission,
    /// Close the connection, for this reason.
    Close(&'static str),
}

/// Whether the server offers or requires TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsOffer {
    /// TLS is not offered.
    #[default]
    None,
    /// A client may start TLS.
    Optional,
    /// A client must start TLS before anything else.
    Required,
}

/// The options on which client and server have agreed in a handshake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NegotiatedOptions {
    /// Replies may be structured.
    pub structured: bool,
    /// The client has requested extents (base:allocation).
    pub holes: bool,
}

enum HandshakeState {
    Flags,
    Head,
    Data { option: u32, len: u32 },
}

/// The state of the handshake with one client.
pub struct Handshake {
    export: Export,
    state: HandshakeState,
    tls: TlsOffer,
    encrypted: bool,
    no_zeroes: bool,
    options: u32,
    /// The options on which client and server have agreed so far.
    pub agreed: NegotiatedOptions,
}

impl Handshake {
    /// Starts the handshake with a client that has just connected. The caller must first send [`Handshake::greeting`] to the client.
    #[must_use]
    pub fn new(export: Export, tls: TlsOffer) -> Handshake {
        let (state, agreed) = (HandshakeState::Flags, NegotiatedOptions::default());
        Handshake {
            export,
            state,
            tls,
            encrypted: false,
            no_zeroes: false,
            options: 0,
            agreed,
        }
    }

    /// The greeting, the first bytes that the server sends.
    #[must_use]
    pub fn greeting() -> Vec<u8> {
        let flags = handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES;
        [
            &wire::MAGIC.to_be_bytes()[..],
            &wire::OPTION_MAGIC.to_be_bytes(),
            &flags.to_be_bytes(),
        ]
        .concat()
    }

    /// The exact number of bytes from the client that must be passed to the next call of [`Handshake::take`]. May be 0.
    #[must_use]
    pub fn wants(&self) -> usize {
        match self.state {
            HandshakeState::Flags => 4,
            HandshakeState::Head => 16,
            HandshakeState::Data { len, .. } => len as usize,
        }
    }

    /// Processes exactly [`Handshake::wants`] bytes of the client, and appends the reply to `out`.
    pub fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Then {
        assert_eq!(
            bytes.len(),
            self.wants(),
            "the caller must pass as many bytes as wants() returns"
        );
        match self.state {
            HandshakeState::Flags => self.flags(wire::u32_at(bytes, 0)),
            HandshakeState::Head => self.head(
                wire::u64_at(bytes, 0),
                wire::u32_at(bytes, 8),
                wire::u32_at(bytes, 12),
            ),
            HandshakeState::Data { option, .. } => {
                self.state = HandshakeState::Head;
                self.option(option, bytes, out)
                    .unwrap_or_else(|(kind, why)| {
                        put_reply(out, option, kind, why.as_bytes());
                        Then::More
                    })
            }
        }
    }

    fn flags(&mut self, flags: u32) -> Then {
        let known = handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES;
        if flags & !u32::from(known) != 0 {
            return Then::Close("the client sent an unknown flag");
        }
        if flags & u32::from(handshake_flag::FIXED_NEWSTYLE) == 0 {
            return Then::Close("the client lacks the fixed newstyle handshake");
        }
        self.no_zeroes = flags & u32::from(handshake_flag::NO_ZEROES) != 0;
        self.state = HandshakeState::Head;
        Then::More
    }

    fn head(&mut self, magic: u64, option: u32, len: u32) -> Then {
        self.options += 1;
        if magic != wire::OPTION_MAGIC {
            return Then::Close("the client sent an option without its magic number");
        }
        if len > MAX_OPTION_BYTES {
            return Then::Close("the client sent an option of more than 16384 bytes");
        }
        if self.options > MAX_OPTIONS {
            return Then::Close("more than 64 options");
        }
        self.state = HandshakeState::Data { option, len };
        Then::More
    }

    /// Answers an option. A refusal is the kind of the reply and its text.
    fn option(
        &mut self,
        number: u32,
        data: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Then, (u32, &'static str)> {
        let mut answer = |kind: u32, data: &[u8]| put_reply(out, number, kind, data);
        let invalid = |why| Err((reply::ERR_INVALID, why));
        let plain = self.tls == TlsOffer::Required && !self.encrypted;
        match number {
            // The server cannot refuse EXPORT_NAME with a reply.
            option::EXPORT_NAME if plain => {
                return Ok(Then::Close(
                    "the client did not start TLS, which is required",
                ));
            }
            option::EXPORT_NAME => return Ok(self.export_name(data, out)),
            option::ABORT => {
                answer(reply::ACK, &[]);
                return Ok(Then::Close(""));
            }
            option::STARTTLS if !data.is_empty() => return invalid("it takes no data"),
            option::STARTTLS if self.encrypted => return invalid("TLS is on already"),
            option::STARTTLS if self.tls == TlsOffer::None => {
                let why = "this server has no TLS; use a tunnel, or a unix socket";
                return Err((reply::ERR_POLICY, why));
            }
            option::STARTTLS => {
                answer(reply::ACK, &[]);
                self.encrypted = true;
                // An attacker may have changed the options that were agreed on in plain text.
                self.agreed = NegotiatedOptions::default();
                return Ok(Then::StartTls);
            }
            _ if plain => {
                let why = "this server requires TLS: connect by nbds:// or with --tls";
                return Err((reply::ERR_TLS_REQD, why));
            }
            option::LIST if !data.is_empty() => return invalid("a list takes no data"),
            option::LIST => {
                let name = self.export.name.as_bytes();
                let len = (name.len() as u32).to_be_bytes();
                answer(reply::SERVER, &[&len[..], name].concat());
                answer(reply::ACK, &[]);
            }
            option::INFO | option::GO => return self.go(number, data, out),
            option::STRUCTURED_REPLY if !data.is_empty() => return invalid("it takes no data"),
            option::STRUCTURED_REPLY => {
                self.agreed.structured = true;
                answer(reply::ACK, &[]);
            }
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT if !self.agreed.structured => {
                return invalid("request structured replies first");
            }
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
                return self.contexts(number, data, out);
            }
            _ => return Err((reply::ERR_UNSUP, "unknown option")),
        }
        Ok(Then::More)
    }

    /// Reports the metadata contexts that the client asks for (there is at most one), and for `SET` agrees on them.
    fn contexts(
        &mut self,
        number: u32,
        data: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Then, (u32, &'static str)> {
        let (name, queries) = name_and_queries(data).ok_or(MISFIT)?;
        let set = number == option::SET_META_CONTEXT;
        // The option revokes earlier agreements, whatever its result.
        self.agreed.holes &= !set;
        self.is_ours(name).then_some(()).ok_or(UNKNOWN_EXPORT)?;
        let asks =
            |query: &&[u8]| *query == allocation::NAME.as_bytes() || (!set && *query == b"base:");
        // A list without a query asks for all contexts.
        let asked = queries.iter().any(asks) || (!set && queries.is_empty());
        if self.export.knows_holes && asked {
            let (id, name) = (allocation::ID.to_be_bytes(), allocation::NAME.as_bytes());
            let context = [&id[..], name].concat();
            put_reply(out, number, reply::META_CONTEXT, &context);
            self.agreed.holes |= set;
        }
        put_reply(out, number, reply::ACK, &[]);
        Ok(Then::More)
    }

    /// `EXPORT_NAME`, the old way to select an export: the server can refuse it only by closing the connection.
    fn export_name(&self, name: &[u8], out: &mut Vec<u8>) -> Then {
        if !self.is_ours(name) {
            return Then::Close("the client asked for an unknown export");
        }
        out.extend(self.export.size.to_be_bytes());
        out.extend(self.flags_now().to_be_bytes());
        if !self.no_zeroes {
            out.extend([0; 124]);
        }
        Then::Transmission
    }

    fn go(&self, number: u32, data: &[u8], out: &mut Vec<u8>) -> Result<Then, (u32, &'static str)> {
        let (name, wanted) = name_and_wishes(data).ok_or(MISFIT)?;
        self.is_ours(name).then_some(()).ok_or(UNKNOWN_EXPORT)?;
        let mut tell = |kind: u16, data: &[&[u8]]| {
            let data = [&kind.to_be_bytes()[..], &data.concat()].concat();
            put_reply(out, number, reply::INFO, &data);
        };
        let export = &self.export;
        let (size, flags) = (export.size.to_be_bytes(), self.flags_now().to_be_bytes());
        tell(info::EXPORT, &[&size, &flags]);
        for wish in wanted.chunks_exact(2).map(|w| wire::u16_at(w, 0)) {
            match wish {
                info::NAME => tell(wish, &[export.name.as_bytes()]),
                info::DESCRIPTION => tell(wish, &[export.description.as_bytes()]),
                info::BLOCK_SIZE => {
                    let sizes = [1, PREFERRED_LEN, MAX_LEN].map(u32::to_be_bytes);
                    tell(wish, &[sizes.as_flattened()]);
                }
                _ => {}
            }
        }
        put_reply(out, number, reply::ACK, &[]);
        Ok(match number {
            option::GO => Then::Transmission,
            _ => Then::More,
        })
    }

    /// The empty name means the default export; there is only one export.
    fn is_ours(&self, name: &[u8]) -> bool {
        name.is_empty() || name == self.export.name.as_bytes()
    }

    /// DF is valid only with structured replies.
    fn flags_now(&self) -> u16 {
        self.export.flags | (u16::from(self.agreed.structured) * transmission::SEND_DF)
    }
}

const MISFIT: (u32, &str) = (
    reply::ERR_INVALID,
    "the lengths in the option do not match its size",
);
const UNKNOWN_EXPORT: (u32, &str) = (reply::ERR_UNKNOWN, "no export of that name");

/// A string that follows its length, and the bytes after it.
fn text(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = data.split_at_checked(4)?;
    rest.split_at_checked(wire::u32_at(len, 0) as usize)
}

/// Parses an `INFO` or `GO` option: the export name, and the items of information that the client requests, two bytes each.
fn name_and_wishes(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let (name, rest) = text(data)?;
    let (count, wishes) = rest.split_at_checked(2)?;
    let fits = wishes.len() == 2 * usize::from(wire::u16_at(count, 0));
    (name.len() <= MAX_NAME_BYTES && fits).then_some((name, wishes))
}

/// Parses a `SET_META_CONTEXT` or `LIST_META_CONTEXT` option: the export name and the queries. The length of the option limits
/// the number of queries.
fn name_and_queries(data: &[u8]) -> Option<(&[u8], Vec<&[u8]>)> {
    let (name, rest) = text(data)?;
    let (count, mut rest) = rest.split_at_checked(4)?;
    let mut queries = Vec::new();
    for _ in 0..wire::u32_at(count, 0) {
        let (query, more) = text(rest)?;
        queries.push(query);
        rest = more;
    }
    (name.len() <= MAX_NAME_BYTES && rest.is_empty()).then_some((name, queries))
}

fn put_reply(out: &mut Vec<u8>, option: u32, kind: u32, data: &[u8]) {
    out.extend(wire::OPTION_REPLY_MAGIC.to_be_bytes());
    out.extend(option.to_be_bytes());
    out.extend(kind.to_be_bytes());
    out.extend((data.len() as u32).to_be_bytes());
    out.extend(data);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started() -> Handshake {
        started_with(TlsOffer::None)
    }

    fn started_with(tls: TlsOffer) -> Handshake {
        let flags = transmission::HAS_FLAGS | transmission::READ_ONLY;
        let export = Export {
            name: "disk".into(),
            description: "its-text".into(),
            size: 1 << 20,
            flags,
            knows_holes: true,
        };
        let mut shake = Handshake::new(export, tls);
        assert_eq!(
            (shake.wants(), shake.take(&[0, 0, 0, 3], &mut Vec::new())),
            (4, Then::More)
        );
        shake
    }

    /// Sends an option; gives what comes after it and the kinds and data of the answers.
    fn send(shake: &mut Handshake, number: u32, data: &[u8]) -> (Then, Vec<(u32, Vec<u8>)>) {
        let mut out = Vec::new();
        let head = [
            &wire::OPTION_MAGIC.to_be_bytes()[..],
            &number.to_be_bytes(),
            &(data.len() as u32).to_be_bytes(),
        ];
        assert_eq!(shake.take(&head.concat(), &mut out), Then::More);
        assert_eq!(shake.wants(), data.len());
        let then = shake.take(data, &mut out);
        let (mut replies, mut rest) = (Vec::new(), out.as_slice());
        while number != option::EXPORT_NAME && !rest.is_empty() {
            assert_eq!(
                (wire::u64_at(rest, 0), wire::u32_at(rest, 8)),
                (wire::OPTION_REPLY_MAGIC, number)
            );
            let len = wire::u32_at(rest, 16) as usize;
            replies.push((wire::u32_at(rest, 12), rest[20..20 + len].to_vec()));
            rest = &rest[20 + len..];
        }
        if number == option::EXPORT_NAME {
            replies.push((0, out));
        }
        (then, replies)
    }

    /// Bytes, a word each: ' before a text that follows its length, * before a bare text, else hexadecimal digits.
    fn bytes(words: &str) -> Vec<u8> {
        let word = |word: &str| match (word.strip_prefix('\''), word.strip_prefix('*')) {
            (Some(text), _) => [&(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat(),
            (_, Some(text)) => text.as_bytes().to_vec(),
            _ => (0..word.len() / 2)
                .map(|at| u8::from_str_radix(&word[2 * at..][..2], 16).expect(word))
                .collect(),
        };
        words.split_whitespace().flat_map(word).collect()
    }

    const OPTIONS: &str = "- EXPORT ABORT LIST - STARTTLS INFO GO STRUCTURED CONTEXTS SET X";
    const ERRORS: &str = "ERROR UNSUPPORTED POLICY INVALID - TLS UNKNOWN";
    const KINDS: &str = "- ACK SERVER INFO CONTEXT";

    /// What the server answers to `line`, an option and its data, and on what the two have agreed afterwards.
    fn answer(shake: &mut Handshake, line: &str) -> String {
        let (name, data) = line.split_once(' ').unwrap_or((line, ""));
        let number = OPTIONS.split(' ').position(|known| known == name);
        let (then, replies) = send(shake, number.expect(line) as u32, &bytes(data));
        let mut told = String::new();
        for (kind, data) in replies {
            let (names, failed) = [(KINDS, false), (ERRORS, true)][usize::from(kind >= reply::ERR)];
            told += names
                .split(' ')
                .nth((kind & 0xffff) as usize)
                .expect("a kind");
            let data = data.iter().map(|byte| format!("{byte:02x}"));
            told += &if failed {
                " ".into()
            } else {
                format!("{} ", data.collect::<String>())
            };
        }
        let agreed = shake.agreed;
        told + match then {
            Then::More => "",
            Then::StartTls => "tls ",
            Then::Transmission => "begin ",
            Then::Close(why) => return format!("closed {why}"),
        } + if agreed.structured { "s" } else { "" }
            + if agreed.holes { "h" } else { "" }
    }

    /// A client's options, and what each is answered: the kinds with their data, and the letters of what is agreed on. A word with a
    /// point is a whole answer's data.
    #[test]
    fn each_option_is_answered() {
        const GOOD: &str = "'disk 00000002 'qemu:dirty-bitmap:x 'base:allocation";
        let talks = [
            (TlsOffer::None, "
                STRUCTURED                                  > ACK s
                GO 'disk 0003 0003 0063 0002                > INFO.0000_0000000000100000_0083 INFO.0003_00000001_00001000_02000000 INFO.0002_*its-text ACK begin s
            "),
            // A list agrees on nothing; contexts are asked for anew each time.
            (TlsOffer::None, "
                SET {GOOD}                                  > INVALID
                STRUCTURED                                  > ACK s
                CONTEXTS 'disk 00000000                     > CONTEXT.00000001_*base:allocation ACK s
                CONTEXTS ' 00000001 'base:                  > CONTEXT.00000001_*base:allocation ACK s
                CONTEXTS ' 00000001 'base:allocation        > CONTEXT.00000001_*base:allocation ACK s
                SET {GOOD}                                  > CONTEXT.00000001_*base:allocation ACK sh
                SET 'other 00000001 'base:allocation        > UNKNOWN s
                SET {GOOD}                                  > CONTEXT.00000001_*base:allocation ACK sh
                SET 'disk 00000002 'base:allocation         > INVALID sh
                SET {GOOD}                                  > CONTEXT.00000001_*base:allocation ACK sh
                SET {GOOD} 00                               > INVALID sh
                SET {GOOD}                                  > CONTEXT.00000001_*base:allocation ACK sh
                SET 'disk 00000001 'base:                   > ACK s
                SET {GOOD}                                  > CONTEXT.00000001_*base:allocation ACK sh
                SET 'disk 00000000                          > ACK s
            "),
            // A refused option keeps the client in the handshake. Lengths of INFO that do not fit: shorter, longer, and one that overflows.
            (TlsOffer::None, "
                STARTTLS                                    > POLICY
                X *x                                        > UNSUPPORTED
                GO 'other 0000                              > UNKNOWN
                SET                                         > INVALID
                LIST *x                                     > INVALID
                LIST                                        > SERVER.'disk ACK
                INFO                                        > INVALID
                INFO 00000009 *x 0000                       > INVALID
                INFO ffffffffffffffff                       > INVALID
                INFO ' 0002 0003                            > INVALID
                ABORT                                       > closed
            "),
            (TlsOffer::Required, "
                LIST                                        > TLS
                INFO                                        > TLS
                GO                                          > TLS
                STRUCTURED                                  > TLS
                SET                                         > TLS
                X                                           > TLS
                STARTTLS *x                                 > INVALID
                STARTTLS                                    > ACK tls
                STARTTLS                                    > INVALID
                GO 'disk 0000                               > INFO.0000_0000000000100000_0003 ACK begin
            "),
            (TlsOffer::Required, "
                EXPORT *disk                                > closed the client did not start TLS, which is required
            "),
            (TlsOffer::Required, "
                ABORT                                       > closed
            "),
            // What was agreed on in plain text could be the wish of a machine in between.
            (TlsOffer::Optional, "
                STRUCTURED                                  > ACK s
                STARTTLS                                    > ACK tls
            "),
        ];
        for (tls, talk) in talks {
            let mut shake = started_with(tls);
            for line in talk
                .replace("{GOOD}", GOOD)
                .lines()
                .filter(|line| line.contains('>'))
            {
                let (said, expected) = line.split_once('>').expect("an answer");
                let expected = expected
                    .trim()
                    .split(' ')
                    .map(|word| match word.split_once('.') {
                        Some((kind, data)) => {
                            let data = bytes(&data.replace('_', " "));
                            kind.to_string()
                                + &data
                                    .iter()
                                    .map(|byte| format!("{byte:02x}"))
                                    .collect::<String>()
                        }
                        None => word.to_string(),
                    });
                let expected = expected.collect::<Vec<_>>().join(" ");
                assert_eq!(answer(&mut shake, said.trim()).trim(), expected, "{line}");
            }
        }
    }

    #[test]
    fn the_old_way_begins_or_ends() {
        for (flags, zeroes) in [(1_u32, 124), (3, 0)] {
            let mut shake = started();
            shake.state = HandshakeState::Flags;
            assert_eq!(
                shake.take(&flags.to_be_bytes(), &mut Vec::new()),
                Then::More
            );
            let (then, replies) = send(&mut shake, option::EXPORT_NAME, b"");
            assert_eq!(
                (then, replies[0].1.len()),
                (Then::Transmission, 10 + zeroes)
            );
        }
        assert_eq!(
            send(&mut started(), option::EXPORT_NAME, b"other").0,
            Then::Close("the client asked for an unknown export")
        );
    }

    #[test]
    fn a_wrong_greeting_is_refused() {
        let fresh = || {
            let mut shake = started();
            shake.state = HandshakeState::Flags;
            shake
        };
        let close = |mut shake: Handshake, bytes: &[u8]| match shake.take(bytes, &mut Vec::new()) {
            Then::Close(why) => why,
            other => panic!("{other:?}"),
        };
        assert_eq!(
            close(fresh(), &[0, 0, 0, 4]),
            "the client sent an unknown flag"
        );
        assert_eq!(
            close(fresh(), &[0, 0, 0, 0]),
            "the client lacks the fixed newstyle handshake"
        );
        assert_eq!(
            close(started(), &[0; 16]),
            "the client sent an option without its magic number"
        );
        let long = [
            &wire::OPTION_MAGIC.to_be_bytes()[..],
            &[0, 0, 0, 7],
            &(MAX_OPTION_BYTES + 1).to_be_bytes(),
        ]
        .concat();
        assert_eq!(
            close(started(), &long),
            "the client sent an option of more than 16384 bytes"
        );
        let mut shake = started();
        for _ in 0..MAX_OPTIONS {
            send(&mut shake, 77, &[]);
        }
        let head = [&wire::OPTION_MAGIC.to_be_bytes()[..], &[0; 8]].concat();
        assert_eq!(close(shake, &head), "more than 64 options");
    }
}
