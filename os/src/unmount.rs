//! Unmounts FUSE mounts with the system's commands (fusermount3 or umount): systems with FUSE have at least one of these commands, and they
//! may unmount for any user.

use std::path::Path;
use std::process::{Command, Stdio};

/// Returns what a user can do about a mount whose server has ended.
pub fn remedy(place: &Path) -> String {
    format!("unmount it with 'foreread umount {}'", place.display())
}

/// Unmounts a mount point. If `lazy` is true, a busy mount is detached, and ends when its last file is closed. Returns an error if
/// all commands have failed; the error contains their messages.
pub fn by_commands(place: &Path, lazy: bool) -> Result<(), String> {
    let (of_fuse, of_system) = if lazy {
        (&["-u", "-z"][..], &["-l"][..])
    } else {
        (&["-u"][..], &[][..])
    };
    let mut said = Vec::new();
    for (program, arguments) in [("fusermount3", of_fuse), ("umount", of_system)] {
        let mut command = Command::new(program);
        let command = command.args(arguments).arg("--").arg(place);
        match command.stdin(Stdio::null()).output() {
            Ok(output) if output.status.success() => return Ok(()),
            Ok(output) => said.push(String::from_utf8_lossy(&output.stderr).trim().to_string()),
            Err(error) => said.push(format!("{program}: {error}")),
        }
    }
    Err(said.join("; "))
}
