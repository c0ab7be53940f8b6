//! A proxy in front of a real server of HTTP: it gives the wrong answers of [`super::HttpServer`] for that server, whatever store it is of.
//!
//! Never: TLS, HEAD, or large answers (each is read whole before it goes on).

use super::http_server::{HttpServer, ServedAnswer, ServedRequest};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Deref;

/// Longest body that is passed on.
const MAX_BODY: u64 = 64 << 20;

/// A proxy that runs until it is dropped.
pub struct LyingProxy(HttpServer);

impl LyingProxy {
    /// Listens on a port of this machine, in front of `server`.
    pub fn start(server: SocketAddr) -> io::Result<LyingProxy> {
        HttpServer::start(move |seen, body| ask(server, seen, body)).map(LyingProxy)
    }
}

impl Deref for LyingProxy {
    type Target = HttpServer;

    fn deref(&self) -> &HttpServer {
        &self.0
    }
}

fn ask(server: SocketAddr, seen: &ServedRequest, sent: &[u8]) -> io::Result<ServedAnswer> {
    let mut head = format!(
        "{} {} HTTP/1.1\r\nconnection: close\r\n",
        seen.method, seen.target
    );
    for (name, value) in &seen.headers {
        match name.as_str() {
            "connection" => {}
            // A signature may be of the name by which the proxy was asked; where there is none, a server may know no name but its own.
            "host" if seen.header("authorization").is_none() => {
                head += &format!("host: {server}\r\n");
            }
            _ => head += &format!("{name}: {value}\r\n"),
        }
    }
    let mut stream = TcpStream::connect(server)?;
    stream.write_all((head + "\r\n").as_bytes())?;
    stream.write_all(sent)?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let status = line
        .split_whitespace()
        .nth(1)
        .and_then(|text| text.parse().ok());
    let mut answer = ServedAnswer::new(status.ok_or(io::ErrorKind::InvalidData)?, "");
    let (mut len, mut is_chunked) = (MAX_BODY, false);
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        let (name, value) = (name.to_ascii_lowercase(), value.trim().to_string());
        match name.as_str() {
            "content-length" => len = value.parse().unwrap_or(0),
            "transfer-encoding" => is_chunked = true,
            "connection" | "keep-alive" => {}
            _ => answer.headers.push((name, value)),
        }
    }
    if !is_chunked {
        reader
            .take(len.min(MAX_BODY))
            .read_to_end(&mut answer.body)?;
        return Ok(answer);
    }
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let digits = line.trim().split(';').next().unwrap_or_default();
        let len = u64::from_str_radix(digits, 16).unwrap_or(0);
        if len == 0 {
            return Ok(answer);
        }
        let chunk = &mut reader;
        chunk
            .take(len.min(MAX_BODY))
            .read_to_end(&mut answer.body)?;
        line.clear();
        reader.read_line(&mut line)?;
    }
}
