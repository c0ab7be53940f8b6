//! A file or link that is there is not replaced unasked.

use super::foreread;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Runs each command line, in which `OUT` is an output and `IN` is `source`; the outputs are in `folder`.
pub fn no_command_follows_a_link(options: &[&str], folder: &Path, source: &Path) {
    let path = |name: &str| folder.join(name);
    for (number, option) in options.iter().enumerate() {
        // A model file has to be called so.
        let out = path(&format!("out{number}.toml"));
        let arguments = |out: &Path| -> Vec<String> {
            let word = |word: &str| word.replace("OUT", text(out)).replace("IN", text(source));
            option.split(' ').map(word).collect()
        };
        fs::write(path("kept"), "kept").expect("room");
        for is_link in [true, false] {
            if is_link {
                symlink(path("kept"), &out)
            } else {
                fs::write(&out, "kept")
            }
            .expect("made");
            let got = foreread(arguments(&out));
            assert!(
                got.is_refused().contains("it exists already"),
                "{option:?}: {}",
                got.err
            );
            assert_eq!(fs::read(&out).expect("there"), b"kept", "{option:?}");
            fs::remove_file(&out).expect("removed");
        }
        assert_eq!(
            fs::read(path("kept")).expect("there"),
            b"kept",
            "{option:?}"
        );
    }
}
