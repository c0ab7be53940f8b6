//! Detects TCP connections whose peer has vanished: a machine that lost power, a firewall that dropped its state.
//!
//! Not for unix sockets, whose peer the kernel knows.

use rustix::net::sockopt;
use std::net::TcpStream;
use std::time::Duration;

/// Silence after which the system asks the other side for a sign of life, how often then, and how many times. It is given up
/// after five minutes; the system's own settings take more than two hours.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(120);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(30);
const KEEPALIVE_PROBES: u32 = 6;

/// Has the system look whether the other side is still there.
pub fn keep_alive(stream: &TcpStream) -> std::io::Result<()> {
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_EVERY)?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVE_PROBES)?;
    Ok(sockopt::set_socket_keepalive(stream, true)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_looked_after() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let stream =
            TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
        assert_eq!(sockopt::socket_keepalive(&stream), Ok(false));
        keep_alive(&stream).expect("set");
        let set = (
            sockopt::socket_keepalive(&stream),
            sockopt::tcp_keepidle(&stream),
            sockopt::tcp_keepcnt(&stream),
        );
        assert_eq!(set, (Ok(true), Ok(KEEPALIVE_IDLE), Ok(KEEPALIVE_PROBES)));
    }
}
