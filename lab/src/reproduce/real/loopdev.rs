//! A loop device of our own, which the kernel removes when its last user is gone.
//!
//! ```text
//!   losetup --find --show FILE ──► /dev/loopN ──► opened here ──► losetup --detach ──► marked "clear on last close"
//!                                                    └ dropped, killed, crashed: closed, so detached
//! ```
//!
//! Never: a device that was there before, or a setting of another device.

use super::RealError;
use super::tools::Tool;
use crate::live::Scratch;
use rustix::fs::Advice;
use std::fs::File;
use std::os::fd::AsFd;

/// The device, as long as this is held.
pub struct LoopDevice {
    file: File,
    name: String,
}

impl LoopDevice {
    /// Makes one on the scratch file, past the page cache of that where its file system can.
    ///
    /// # Errors
    /// No right to, or no loop devices here.
    pub fn make(losetup: &Tool, scratch: &Scratch) -> Result<LoopDevice, RealError> {
        // The path of `Scratch` is good in this process only.
        let own = scratch.path().display().to_string().replace("/self/", &format!("/{}/", std::process::id()));
        let on = |direct: &str| losetup.run(&["--find", "--show", "--read-only", direct, &own]);
        let said = on("--direct-io=on").or_else(|_| on("--direct-io=off"));
        let needs = |why: String| RealError::Needs(format!("--real: cannot make a loop device: {why}; run it as root"));
        let said = said.map_err(|error| needs(error.to_string()))?;
        let path = said.lines().find(|line| line.starts_with("/dev/loop")).unwrap_or_default().trim().to_string();
        let opened = File::open(&path);
        // Told to go at once: while it is held it stays, and then nobody has to do anything.
        let detached = losetup.run(&["--detach", &path]);
        let file = opened.map_err(|error| needs(format!("{path}: {error}")))?;
        detached?;
        let name = path.trim_start_matches("/dev/").to_string();
        Ok(LoopDevice { file, name })
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> String {
        format!("/dev/{}", self.name)
    }

    /// Sets how far the kernel reads ahead on it.
    ///
    /// # Errors
    /// No right to.
    pub fn set_read_ahead_kb(&self, kib: u64) -> Result<(), RealError> {
        let path = format!("/sys/block/{}/queue/read_ahead_kb", self.name);
        let needs = |error| RealError::Needs(format!("--real: cannot set {path}: {error}; run it as root"));
        std::fs::write(&path, kib.to_string()).map_err(needs)
    }

    /// Drops what the kernel holds of it.
    ///
    /// # Errors
    /// The device is gone.
    pub fn drop_cache(&self) -> Result<(), RealError> {
        let why = |error: rustix::io::Errno| RealError::Tool {
            what: format!("dropping the pages of {}", self.path()),
            why: error.to_string(),
        };
        rustix::fs::fadvise(self.file.as_fd(), 0, None, Advice::DontNeed).map_err(why)
    }
}
