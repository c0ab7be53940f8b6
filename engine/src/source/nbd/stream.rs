//! The connection to a server: its socket, with TLS if the source's name requests it. Several threads read from this connection
//! and write to it.
//!
//! ```text
//!   plain ──start_tls──► encrypted, until the end
//! ```
//!
//! A connection that uses TLS never returns to plain text.

use super::failure::LinkError;
use super::socket::ServerSocket;
#[cfg(feature = "tls")]
use super::tls::Session;
use super::uri::ServerPlace;
#[cfg(feature = "tls")]
use super::uri::TlsTerms;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

pub struct ServerStream {
    socket: ServerSocket,
    #[cfg(feature = "tls")]
    session: Option<Session>,
}

impl ServerStream {
    pub fn connect(place: &ServerPlace, silence: Duration) -> std::io::Result<ServerStream> {
        Ok(ServerStream {
            socket: ServerSocket::connect(place, silence)?,
            #[cfg(feature = "tls")]
            session: None,
        })
    }

    /// Does the TLS handshake. All bytes before the handshake are plain text, all bytes after it are encrypted.
    #[cfg(feature = "tls")]
    pub fn start_tls(
        &mut self,
        place: &ServerPlace,
        terms: &TlsTerms,
        until: Instant,
    ) -> Result<(), LinkError> {
        let session = Session::new(place, terms)?;
        loop {
            let agreed = session.agree(&self.socket);
            if agreed.map_err(LinkError::lost_under_tls)? {
                self.session = Some(session);
                return Ok(());
            }
            if Instant::now() >= until {
                return Err(LinkError::lost(ErrorKind::TimedOut.into()));
            }
        }
    }

    pub fn is_encrypted(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.session.is_some();
        #[cfg(not(feature = "tls"))]
        false
    }

    /// The error of the negotiation if sending or receiving has failed.
    pub fn failed(&self, error: std::io::Error) -> LinkError {
        #[cfg(feature = "tls")]
        if self.session.is_some() {
            return LinkError::lost_under_tls(error);
        }
        LinkError::lost(error)
    }

    /// Only one caller may send at a time.
    pub fn send(&self, bytes: &[u8]) -> std::io::Result<()> {
        #[cfg(feature = "tls")]
        if let Some(session) = &self.session {
            return session.send(&self.socket, bytes);
        }
        self.socket.send(bytes)
    }

    /// Fills `bytes`. Each wait is limited by the silence timeout, and no wait begins after `until`, so a reply that arrives too
    /// slowly fails.
    pub fn receive(&self, mut bytes: &mut [u8], until: Instant) -> std::io::Result<()> {
        while !bytes.is_empty() {
            if Instant::now() >= until {
                return Err(ErrorKind::TimedOut.into());
            }
            match self.receive_some(bytes)? {
                Some(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Some(got) => bytes = &mut bytes[got..],
                None => {}
            }
        }
        Ok(())
    }

    fn receive_some(&self, bytes: &mut [u8]) -> std::io::Result<Option<usize>> {
        #[cfg(feature = "tls")]
        if let Some(session) = &self.session {
            return session.receive(&self.socket, bytes);
        }
        self.socket.receive(bytes).map(Some)
    }

    pub fn hang_up(&self) {
        self.socket.hang_up();
    }
}
