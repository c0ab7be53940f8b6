//! A loop device of our own, which the kernel removes when its last user is gone.
//!
//! ```text
//!   losetup --find --show FILE ──/dev/loopN──► guard: losetup --detach     waits until losetup has ended and we let go
//!        │                                        ▲
//!        └► attached ──► found in /sys ──► opened here ── let go ──► detached while held: "clear on last close"
//!                                             └ dropped, killed, crashed: closed, so gone
//! ```
//!
//! The guard starts before the device is made, so whenever this process ends, in between as well, the device is
//! detached. A second guard sets its readahead back, which the kernel would keep for the next user of that number. Both are
//! done within a moment; a program that still reads (seconds, by its own limit) keeps the device for as long. What
//! remains: SIGKILL to a guard or to `losetup` itself; and after a kill the readahead that the kernel gives a device
//! when direct I/O begins or ends on it (2560 KiB with Linux 6.18), as after any use of `losetup`.
//!
//! Never: a device that was there before, or a setting of another device.

use super::RealError;
use super::guard::Guard;
use super::tools::Tools;
use foreread_lab::live::Scratch;
use foreread_os::host::Host;
use foreread_os::host::devices::{disk_setting, write_setting};
use rustix::fs::Advice;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// The device, as long as this is held. The fields are dropped in this order: the setting last, as some kernels
/// set it anew when the device goes.
pub struct LoopDevice {
    file: File,
    name: String,
    _read_ahead: Guard,
}

impl LoopDevice {
    /// Makes one on the scratch file, past the page cache of that where its file system can.
    ///
    /// # Errors
    /// No right to, or no loop devices here.
    pub fn make(tools: &Tools, scratch: &Scratch) -> Result<LoopDevice, RealError> {
        let needs = |why: String| {
            RealError::Needs(format!(
                "--real: cannot make a loop device: {why}; run it as root"
            ))
        };
        // Before it is attached: a kernel may set it anew by what is attached.
        let settings = settings();
        let made = attach(tools, scratch, "--direct-io=on")
            .or_else(|_| attach(tools, scratch, "--direct-io=off"));
        let (file, name) = made.map_err(|error| needs(error.to_string()))?;
        let path = setting(&name);
        // One that did not exist needs no restoring.
        let before = settings
            .into_iter()
            .find(|(known, _)| *known == path)
            .map_or_else(|| std::fs::read(&path), |s| Ok(s.1));
        let before = before.map_err(|error| needs(format!("{}: {error}", path.display())))?;
        // `fullblock` makes it wait for the end of its input.
        let to = format!("of={}", path.display());
        let guard = Guard::start(
            tools.get("dd")?,
            &[&to, "iflag=fullblock", "bs=4k", "status=none"],
        )?;
        guard.tell(&before)?;
        Ok(LoopDevice {
            file,
            name,
            _read_ahead: guard,
        })
    }

    #[must_use]
    pub fn path(&self) -> String {
        format!("/dev/{}", self.name)
    }

    /// Sets how far the kernel reads ahead on it.
    ///
    /// # Errors
    /// No right to.
    pub fn set_read_ahead_kb(&self, kib: u64) -> Result<(), RealError> {
        let path = setting(&self.name);
        let needs = |error| {
            RealError::Needs(format!(
                "--real: cannot set {}: {error}; run it as root",
                path.display()
            ))
        };
        write_setting(&path, kib).map_err(needs)
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

/// How far every loop device is read ahead.
fn settings() -> Vec<(PathBuf, Vec<u8>)> {
    let devices = Host::here().loop_devices().into_iter();
    devices
        .map(|device| setting(&device.name))
        .filter_map(|path| std::fs::read(&path).ok().map(|text| (path, text)))
        .collect()
}

fn setting(name: &str) -> PathBuf {
    PathBuf::from(disk_setting(name))
}

/// Attaches the file, opens the device and has it detached: it stays for as long as it is open.
fn attach(tools: &Tools, scratch: &Scratch, direct: &str) -> Result<(File, String), RealError> {
    let losetup = tools.get("losetup")?;
    let guard = Guard::start(tools.get("xargs")?, &["-r", &losetup.name(), "--detach"])?;
    // Even where it fails it may have attached and printed a device: the guard has heard, and detaches it.
    losetup.run_to(
        &[
            "--find",
            "--show",
            "--read-only",
            direct,
            &scratch.shared_path(),
        ],
        guard.input()?,
    )?;
    let name = attached_to(&scratch.path())
        .ok_or_else(|| losetup.failed("attached nothing".to_string()))?;
    let path = format!("/dev/{name}");
    let file = File::open(&path).map_err(|error| losetup.failed(format!("{path}: {error}")))?;
    guard.act()?;
    Ok((file, name))
}

/// The device that the file of this link is attached to and that is not being detached.
fn attached_to(link: &Path) -> Option<String> {
    let own = std::fs::read_link(link).ok()?;
    let mut devices = Host::here().loop_devices().into_iter();
    let is_ours = |file: &str| file == own.to_string_lossy();
    let device = devices.find(|one| one.file.as_deref().is_some_and(is_ours) && !one.is_detaching);
    device.map(|device| device.name)
}
