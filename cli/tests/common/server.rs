//! A command that serves until a signal: `serve` or `mount`.

use super::{first_line, process};
use std::io::Read;
use std::process::{Child, Command, Stdio};

/// Ended whatever happens.
pub struct Server {
    pub process: Child,
    /// What it says on stdout when it serves.
    pub line: String,
}

impl Server {
    /// Waits until it serves.
    #[track_caller]
    pub fn start(command: &mut Command) -> Server {
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().expect("the binary starts");
        let line = first_line(&mut process).trim_end().to_string();
        let mut server = Server { process, line };
        if server.line.is_empty() {
            panic!("it does not serve: {}", server.said());
        }
        server
    }

    fn said(&mut self) -> String {
        let mut said = Vec::new();
        let mut err = self.process.stderr.take().expect("piped");
        err.read_to_end(&mut said).expect("text");
        String::from_utf8_lossy(&said).into_owned()
    }

    /// Ends it by a signal such as `-TERM`, and gives what it said on stderr.
    #[track_caller]
    pub fn ended_by(mut self, signal: &str) -> String {
        process::signal(self.process.id(), signal);
        let said = self.said();
        let status = self.process.wait().expect("waited");
        assert!(status.success(), "{status}: {said}");
        said
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
