//! A client's connection: its socket, encrypted with TLS once the client has requested TLS.
//!
//! ```text
//!   plain ──STARTTLS──► TLS handshake, with its time limit ──► encrypted, until the end
//! ```
//!
//! An encrypted connection never returns to plain text.

#[cfg(feature = "tls")]
use super::socket::Deadline;
use super::socket::Socket;
#[cfg(feature = "tls")]
use super::tls::{NbdTls, Session};
use crate::sync::lock;
use rustix::net::Shutdown;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Mutex;
#[cfg(feature = "tls")]
use std::sync::OnceLock;

/// Bytes that are read from a socket at once: 36 requests without a payload.
const INPUT_BYTES: usize = 1024;

/// Bytes that were read from the socket of a connection without TLS together with others, and that are not used yet.
struct Input {
    bytes: [u8; INPUT_BYTES],
    left: Range<usize>,
}

impl Input {
    fn take(&mut self, buf: &mut [u8]) -> usize {
        let left = &self.bytes[self.left.clone()];
        let n = buf.len().min(left.len());
        buf[..n].copy_from_slice(&left[..n]);
        self.left.start += n;
        n
    }
}

pub struct ClientStream {
    pub socket: Socket,
    input: Mutex<Input>,
    #[cfg(feature = "tls")]
    session: OnceLock<Session>,
}

impl ClientStream {
    pub fn new(socket: Socket) -> ClientStream {
        ClientStream {
            socket,
            input: Mutex::new(Input {
                bytes: [0; INPUT_BYTES],
                left: 0..0,
            }),
            #[cfg(feature = "tls")]
            session: OnceLock::new(),
        }
    }

    /// Runs the TLS handshake. All bytes before the TLS handshake are plain text, and all bytes after it are encrypted.
    #[cfg(feature = "tls")]
    pub fn start_tls(&self, tls: &NbdTls, deadline: &mut Deadline) -> std::io::Result<()> {
        let session = Session::agree(&self.socket, tls, deadline)?;
        self.session
            .set(session)
            .map_err(|_| std::io::ErrorKind::AlreadyExists.into())
    }

    /// Closes the receiving direction; accepted requests can still be answered.
    pub fn receive_no_more(&self) {
        self.socket.shutdown(Shutdown::Read);
    }

    /// Closes both directions; threads that wait for the connection wake up. If TLS is used, close_notify is sent to the client first.
    pub fn end(&self) {
        #[cfg(feature = "tls")]
        if let Some(session) = self.session.get() {
            session.say_goodbye(&self.socket);
        }
        self.socket.shutdown(Shutdown::Both);
    }

    /// Whether unread bytes have arrived.
    pub fn has_more(&self) -> bool {
        self.holds_more() || self.socket.has_more()
    }

    /// Whether unread bytes have already been taken from the socket, so that polling the socket does not report them.
    pub fn holds_more(&self) -> bool {
        #[cfg(feature = "tls")]
        if let Some(session) = self.session.get() {
            return session.holds_more();
        }
        !lock(&self.input).left.is_empty()
    }

    /// Reads available bytes without waiting. Returns `WouldBlock` if there are none, and 0 at the end of the stream.
    pub fn receive_now(&self, buf: &mut [u8]) -> std::io::Result<usize> {
        #[cfg(feature = "tls")]
        if let Some(session) = self.session.get() {
            return session.receive_now(&self.socket, buf);
        }
        match lock(&self.input).take(buf) {
            0 => self.socket.receive_now(buf),
            n => Ok(n),
        }
    }

    /// Like [`ClientStream::receive_now`], but may read more bytes from the socket than fit into `buf`; the next calls return them.
    pub fn receive_ahead(&self, buf: &mut [u8]) -> std::io::Result<usize> {
        #[cfg(feature = "tls")]
        if self.session.get().is_some() {
            return self.receive_now(buf);
        }
        let mut input = lock(&self.input);
        if input.left.is_empty() {
            input.left = 0..self.socket.receive_now(&mut input.bytes)?;
        }
        Ok(input.take(buf))
    }

    /// Sends as many bytes of the parts as fit into the socket's buffer, and if all fit, as one packet. Returns `WouldBlock` if the
    /// buffer is full; the caller must then pass the same bytes again.
    pub fn send_now(&self, parts: &[IoSlice<'_>]) -> std::io::Result<usize> {
        #[cfg(feature = "tls")]
        if let Some(session) = self.session.get() {
            return session.send_now(&self.socket, parts);
        }
        self.socket.send_now(parts)
    }
}
