//! A program that acts when this process lets go of it, or is gone: what cleans up even after SIGKILL.
//!
//! ```text
//!   us ──── pipe ────► xargs losetup --detach     waits for the end of its input, then does it
//!    └ losetup ─┘                                 the end comes when all holders of the pipe have closed it or died
//! ```
//!
//! It has its own process group, so that Ctrl-C at the terminal does not reach it. What remains: a user that kills the guard
//! has to clean up. Never: a shell.

use super::RealError;
use super::tools::Tool;
use std::io::{PipeWriter, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};

/// The program, as long as it is to wait.
pub struct Guard {
    tool: Tool,
    child: Child,
    pipe: Option<PipeWriter>,
}

impl Guard {
    /// Starts the program, which has to read its input to the end before it does anything.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(tool: &Tool, args: &[&str]) -> Result<Guard, RealError> {
        let started = std::io::pipe().and_then(|(reader, writer)| {
            let mut command = tool.command(args);
            let child = command
                .stdin(reader)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .process_group(0)
                .spawn()?;
            Ok((child, writer))
        });
        let (child, pipe) = started.map_err(|error| tool.failed(error.to_string()))?;
        Ok(Guard {
            tool: tool.clone(),
            child,
            pipe: Some(pipe),
        })
    }

    /// Gives it a part of its input.
    ///
    /// # Errors
    /// It is gone.
    pub fn tell(&self, text: &[u8]) -> Result<(), RealError> {
        let mut pipe = self.pipe.as_ref().expect("held until it is let go");
        pipe.write_all(text)
            .map_err(|error| self.tool.failed(error.to_string()))
    }

    /// A way to its input for another program, which then has to end, too, before the guard acts.
    ///
    /// # Errors
    /// No more descriptors.
    pub fn input(&self) -> Result<Stdio, RealError> {
        let pipe = self
            .pipe
            .as_ref()
            .expect("held until it is let go")
            .try_clone();
        pipe.map(Stdio::from)
            .map_err(|error| self.tool.failed(error.to_string()))
    }

    /// Lets go, and waits until it has acted.
    ///
    /// # Errors
    /// It could not.
    pub fn act(mut self) -> Result<(), RealError> {
        self.pipe = None;
        let status = self
            .child
            .wait()
            .map_err(|error| self.tool.failed(error.to_string()))?;
        if status.success() {
            Ok(())
        } else {
            Err(self.tool.failed(format!("as a guard: {status}")))
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.pipe = None;
        // An error has no reader any more.
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::super::tools::find;
    use super::*;

    #[test]
    fn it_acts_when_all_have_let_go() {
        let (Some(xargs), Some(rm), Some(sleep)) = (find("xargs"), find("rm"), find("sleep"))
        else {
            println!("skipped: needs xargs, rm and sleep");
            return;
        };
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("a file");
        std::fs::write(&file, "x").expect("written");
        let guard =
            Guard::start(&xargs, &["-0", "-r", &rm.name(), "-d", "-f", "--"]).expect("a guard");
        guard
            .tell(file.display().to_string().as_bytes())
            .expect("told");
        let began = std::time::Instant::now();
        let other = sleep
            .command(&["0.2"])
            .stdout(guard.input().expect("its input"))
            .spawn();
        assert!(file.exists(), "it waits");
        guard.act().expect("acted");
        assert!(!file.exists(), "it acted");
        // A process closes its files before it can be waited for, so its status may be a moment late; its time is not.
        assert!(
            began.elapsed() >= std::time::Duration::from_millis(200),
            "not before the other had ended"
        );
        assert!(other.expect("started").wait().expect("a status").success());
    }

    #[test]
    fn a_guard_that_fails_says_so() {
        let Some(xargs) = find("xargs") else {
            println!("skipped: needs xargs");
            return;
        };
        let guard = Guard::start(&xargs, &["a program that does not exist"]).expect("a guard");
        guard.tell(b"x").expect("told");
        assert!(
            guard
                .act()
                .expect_err("no such program")
                .to_string()
                .contains("as a guard")
        );
    }
}
