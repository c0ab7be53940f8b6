//! Starts `foreread mount -d` for a volume, and waits until the volume is mounted, up to a time limit.
//!
//! ```text
//!   foreread mount -d ...  returns 0 when it is mounted      its process continues in its own session, independent of the plugin
//!        │                  or fails with a line that says why
//!        └─ is too slow ──► the group of both processes is killed, and the caller unmounts what they may have mounted
//! ```
//! Credentials are passed in the environment, or as the path of a private file, because arguments are visible in /proc to every user of the node.

use crate::refusal::{one_line, refused};
use crate::secrets::SecretKeys;
use crate::state::{MountNote, StateFolder, number, private_folder};
use crate::volume::VolumeSpec;
use rustix::process::{Pid, Signal, kill_process_group};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tonic::{Code, Status};

/// Maximum bytes of messages that are kept.
const MAX_MESSAGES: u64 = 64 << 10;
/// Prefix of the command's messages.
const PREFIX: &str = "foreread: ";

/// The command that mounts volumes (`foreread mount -d`), and its settings.
#[derive(Clone, Debug)]
pub struct MountCommand {
    pub program: PathBuf,
    pub timeout: Duration,
    pub state: StateFolder,
    /// Whether each mount serves its metrics on a port of 127.0.0.1.
    pub has_metrics: bool,
}

impl MountCommand {
    /// Mounts a volume on an empty folder. If mounting fails, the stored state of the volume is unchanged. A mount may still appear after a
    /// timeout, so the caller must check whether there is one.
    pub async fn mount(
        &self,
        name: &str,
        volume: &VolumeSpec,
        keys: &SecretKeys,
        dir: &Path,
    ) -> Result<(), Status> {
        let before = self.state.note(name);
        let done = self.mounted(name, volume, keys, dir).await;
        if done.is_err() {
            let _ = self.state.forget(name);
            // The server of a staged mount has ended, and the next pod mounts it again.
            if before.source.is_some() && self.state.begin(name).is_ok() {
                let metrics = None;
                let _ = self.state.keep_note(name, MountNote { metrics, ..before });
            }
        }
        done
    }

    async fn mounted(
        &self,
        name: &str,
        volume: &VolumeSpec,
        keys: &SecretKeys,
        dir: &Path,
    ) -> Result<(), Status> {
        self.state.begin(name).map_err(cannot)?;
        let mut command = Command::new(&self.program);
        for variable in &volume.withheld {
            command.env_remove(variable);
        }
        command.envs(volume.variables.iter().map(|(name, value)| (name, value)));
        let delivered = keys.delivered();
        command.envs(delivered.variables);
        for file in &delivered.files {
            let path = self.state.keep_keys(name, file).map_err(cannot)?;
            command.env(file.variable, path);
        }
        if let Some(folder) = &volume.disk_cache {
            // Without the folder, the mount starts without a disk cache and reports that.
            if let Err(error) = private_folder(folder) {
                let folder = folder.display();
                eprintln!("foreread-csi: cannot make the folder {folder} of a disk cache: {error}");
            }
        }
        command.args(["mount", "-d"]).args(&volume.options);
        if self.has_metrics {
            command.arg("--metrics=127.0.0.1:0");
        }
        command.arg("--").arg(&volume.source).arg(dir);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let said = self.ran(command.stderr(Stdio::piped())).await?;
        let note = MountNote {
            has_keys: !keys.is_empty(),
            metrics: address(&said),
            source: Some(number(&volume.source)),
        };
        self.state.keep_note(name, note).map_err(cannot)
    }

    /// Updates the credentials of an existing mount if the keys in its Kubernetes Secret have changed.
    pub fn renew(&self, name: &str, keys: &SecretKeys) -> Result<(), Status> {
        for file in keys.delivered().files {
            if self.state.renew_keys(name, &file).map_err(cannot)? {
                let what = "its Secret has changed; the mount uses the new keys";
                eprintln!("foreread-csi: {name}: {what}");
            }
        }
        Ok(())
    }

    /// Runs the command until it has mounted; returns its output.
    async fn ran(&self, command: &mut Command) -> Result<String, Status> {
        let child = command.process_group(0).kill_on_drop(true).spawn();
        let mut child = child.map_err(|error| {
            let what = format!("cannot start {}: {error}", self.program.display());
            let remedy = "give the path of the command with --foreread";
            refused(Code::Internal, &what, remedy)
        })?;
        let group = child.id();
        match tokio::time::timeout(self.timeout, ended(&mut child)).await {
            Ok((true, said)) => Ok(said),
            Ok((false, said)) => {
                let last = said.lines().rev().find(|line| !line.trim().is_empty());
                let line = last.unwrap_or("foreread mount failed without a message");
                let line = line.strip_prefix(PREFIX).unwrap_or(line);
                Err(Status::new(Code::Internal, one_line(line)))
            }
            Err(_) => {
                // The background process is in the same process group until it is mounted.
                let group = group.and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
                if let Some(group) = group {
                    let _ = kill_process_group(group, Signal::KILL);
                }
                let what = format!("the store has not answered in {} s", self.timeout.as_secs());
                let remedy = "check the source, its endpoint and the node's network";
                Err(refused(Code::DeadlineExceeded, &what, remedy))
            }
        }
    }
}

fn cannot(error: std::io::Error) -> Status {
    let what = format!("cannot keep the state of a mount: {error}");
    let remedy = "make the folder of --state writable";
    refused(Code::Internal, &what, remedy)
}

/// Waits for the command; returns whether it succeeded, and the beginning of its output.
async fn ended(child: &mut Child) -> (bool, String) {
    let mut bytes = Vec::new();
    if let Some(stderr) = child.stderr.take() {
        let mut some = stderr.take(MAX_MESSAGES);
        let _ = some.read_to_end(&mut bytes).await;
        // The rest is read and discarded, because a full pipe would block the process.
        let mut rest = some.into_inner();
        let _ = tokio::io::copy(&mut rest, &mut tokio::io::sink()).await;
    }
    let is_good = child.wait().await.is_ok_and(|status| status.success());
    (is_good, String::from_utf8_lossy(&bytes).into_owned())
}

/// The address of its metrics, from the message `metrics at http://127.0.0.1:41233/metrics`.
fn address(said: &str) -> Option<SocketAddr> {
    let mut parts = said.split("http://").skip(1);
    parts.find_map(|part| {
        let address = part.split_once("/metrics")?.0;
        address.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(dir: &Path, text: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let path = dir.join("foreread");
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("room");
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&path, mode).expect("set");
        path
    }

    fn run(text: &str) -> Status {
        let dir = tempfile::tempdir().expect("a folder");
        let command = MountCommand {
            program: script(dir.path(), text),
            timeout: Duration::from_millis(300),
            state: StateFolder::open(&dir.path().join("state")).expect("made"),
            has_metrics: false,
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let volume = VolumeSpec {
            source: "s3://b/".to_string(),
            options: Vec::new(),
            variables: Vec::new(),
            withheld: vec!["HF_TOKEN"],
            disk_cache: None,
        };
        let keys = SecretKeys::default();
        let mounting = command.mount("v", &volume, &keys, Path::new("/nowhere"));
        let failed = runtime.block_on(mounting).expect_err("failed");
        assert!(command.state.names().is_empty(), "nothing is left behind");
        failed
    }

    #[test]
    fn the_last_line_is_the_error_and_a_slow_one_is_killed() {
        let failed =
            run("echo 'foreread: a note' >&2; echo 'foreread: no such bucket' >&2; exit 2");
        assert_eq!(
            (failed.code(), failed.message()),
            (Code::Internal, "no such bucket")
        );
        let failed = run("yes foreread: x | head -c 300000 >&2; exit 1");
        assert!(failed.message().len() <= 1030, "{}", failed.message());
        // The background process holds the pipe, so only killing the group ends the wait.
        let failed = run("sleep 1000 & wait");
        assert_eq!(failed.code(), Code::DeadlineExceeded);
    }

    #[test]
    fn the_address_of_metrics_is_found_in_the_messages() {
        let said = "foreread: x\nforeread: metrics: http://127.0.0.1:41233/metrics\n";
        assert_eq!(address(said), "127.0.0.1:41233".parse().ok());
        assert_eq!(address("http://a/metrics"), None);
    }
}
