//! Takes a mount away by the system's own commands: one of them is where FUSE is, and they may do it for any user.

use std::path::Path;
use std::process::{Command, Stdio};

/// Unmounts what is at a place. `lazy`: where it is in use it goes from its place, and ends with its last file.
///
/// # Errors
/// None of the commands did it: what each said.
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
