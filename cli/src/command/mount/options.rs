//! `-o OPTIONS` as in mount(8) and /etc/fstab: each becomes an option of `mount`, before the command line is parsed.
//!
//! ```text
//!   -o ro,allow_other,_netdev,cache=1G,env=/etc/foreread/data.env
//!      └┬┘             └─┬──┘          └─ environment variables, so the command executes itself again with them
//!       └─ ignored: mount(8)'s own        --allow-other --cache=1G
//! ```
//! An unknown option is refused here, because the parser would name it `--OPTION`. A comma ends an option, so '+' replaces the commas
//! within the values of `policy` and `disk_cache`.

use super::MountArgs;
use crate::args::GlobalArgs;
use crate::fail::Fail;
use clap::Args as _;
use foreread_os::open::read_small_text;
use foreread_pagecache::program;
use foreread_report::names;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::Path;

/// Generic options that have no effect here (mount(8), fstab(5), systemd.mount(5)).
const OF_MOUNT: [&str; 33] = [
    "ro",
    "auto",
    "noauto",
    "defaults",
    "nofail",
    "_netdev",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "exec",
    "noexec",
    "suid",
    "nosuid",
    "dev",
    "nodev",
    "atime",
    "noatime",
    "diratime",
    "nodiratime",
    "relatime",
    "norelatime",
    "strictatime",
    "nostrictatime",
    "lazytime",
    "nolazytime",
    "async",
    "silent",
    "nosymfollow",
    "_rnetdev",
    "sync",
    "dirsync",
];
/// Prefixes of other options of mount(8), systemd and SELinux.
const OTHERS: [&str; 7] = [
    "x-",
    "X-",
    "comment",
    "user=",
    "uhelper=",
    "context",
    "rootcontext",
];
/// Options in whose values '+' means a comma.
const WITH_COMMAS: [&str; 2] = ["policy", "disk-cache"];
/// Set once the process has the variables of the `env` file.
const HAS_VARIABLES: &str = "FOREREAD_MOUNT_ENV_READ";

/// Replaces each `-o OPTIONS` of `mount` by separate options; other command lines are unchanged.
pub fn expanded(arguments: &[OsString]) -> Result<Vec<OsString>, Fail> {
    if arguments.get(1).is_none_or(|word| word != "mount") {
        return Ok(arguments.to_vec());
    }
    let (mut whole, mut variables) = (Vec::new(), None);
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let bytes = word.as_bytes();
        let options = match bytes.strip_prefix(b"-o") {
            Some([]) => words.next().map(|word| word.as_bytes()),
            Some(attached) => Some(attached),
            None if bytes == b"--" => {
                whole.push(word.clone());
                whole.extend(words.by_ref().cloned());
                None
            }
            None => {
                whole.push(word.clone());
                None
            }
        };
        for option in options
            .into_iter()
            .flat_map(|all| all.split(|byte| *byte == b','))
        {
            match one(option)? {
                MountOption::Left => {}
                MountOption::Given(given) => whole.push(given),
                MountOption::Variables(file) if variables.is_none() => variables = Some(file),
                MountOption::Variables(file) => {
                    let remedy = "write one file";
                    return Err(Fail::input("env= given twice", file.display(), remedy));
                }
            }
        }
    }
    let own = std::process::id().to_string();
    if let Some(file) = variables
        && std::env::var(HAS_VARIABLES).ok().as_ref() != Some(&own)
        // The background process inherits its parent's variables.
        && !super::background::is_behind()
    {
        let mut again = program::again();
        // exec keeps the pid; a child that inherits the variable has another pid.
        again.args(arguments.iter().skip(1)).env(HAS_VARIABLES, own);
        again.envs(in_file(Path::new(&file))?);
        return Err(Fail::cannot(
            "cannot restart the command",
            again.exec(),
            "mount it again",
        ));
    }
    Ok(whole)
}

enum MountOption {
    /// An option of mount(8).
    Left,
    Given(OsString),
    Variables(OsString),
}

fn one(option: &[u8]) -> Result<MountOption, Fail> {
    let at = option.iter().position(|byte| *byte == b'=');
    let (key, value) = option.split_at(at.unwrap_or(option.len()));
    let (key, value) = (String::from_utf8_lossy(key), value.get(1..));
    let refused = |what: &str, remedy: &str| Err(Fail::input(what, format!("-o {key}"), remedy));
    match (&*key, value) {
        ("", None) => Ok(MountOption::Left),
        ("env", Some(file)) => Ok(MountOption::Variables(OsStr::from_bytes(file).into())),
        // mount(8) passes it if fstab has no options.
        ("rw", None) => Ok(MountOption::Left),
        ("remount" | "bind" | "move", _) => refused(
            "an existing mount of foreread cannot be changed",
            "unmount it first",
        ),
        // With these the parser prints help and mounts nothing.
        ("help" | "version", _) => refused("unknown option", "'foreread mount -h' lists them"),
        (key, None) if OF_MOUNT.contains(&key) => Ok(MountOption::Left),
        (_, _)
            if OTHERS
                .iter()
                .any(|begin| option.starts_with(begin.as_bytes())) =>
        {
            Ok(MountOption::Left)
        }
        (key, value) => {
            let key = key.replace('_', "-");
            let known = long_options();
            if !known.contains(&key) {
                let known: Vec<&str> = known.iter().map(String::as_str).collect();
                let near = names::nearest(&key, &known).first().copied();
                let near = near.map_or_else(String::new, |near| format!("nearest: {near}; "));
                let remedy = format!("{near}'foreread mount --help' lists them");
                return refused("there is no such option", &remedy);
            }
            let mut given = format!("--{key}").into_bytes();
            let comma = WITH_COMMAS.contains(&key.as_str());
            let one = |byte: &u8| if comma && *byte == b'+' { b',' } else { *byte };
            if let Some(value) = value {
                given.push(b'=');
                given.extend(value.iter().map(one));
            }
            Ok(MountOption::Given(OsString::from_vec(given)))
        }
    }
}

/// The long options of `mount`, those of all commands included.
fn long_options() -> Vec<String> {
    let command = GlobalArgs::augment_args(MountArgs::augment_args(clap::Command::new("mount")));
    let long = command.get_arguments().filter_map(clap::Arg::get_long);
    long.map(str::to_string).collect()
}

/// Maximum size of a file of variables in bytes; a longer file is refused.
const MAX_VARIABLES: u64 = 64 << 10;

/// Parses the lines NAME=VALUE of a file, as for EnvironmentFile of systemd.exec(5): `#` starts a comment, and quotes
/// around a value are removed.
fn in_file(path: &Path) -> Result<Vec<(String, String)>, Fail> {
    let place = || path.display();
    let text = read_small_text(path, MAX_VARIABLES).map_err(|error| {
        let what = format!("{}: {error}", place());
        Fail::input(
            "cannot read the variables",
            what,
            "name a file that contains lines NAME=VALUE",
        )
    })?;
    let mut all = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        let line = line.strip_prefix("export ").unwrap_or(line);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some((name, value)) = line.split_once('=').filter(|(name, _)| is_name(name)) else {
            let what = format!("{}, line {}", place(), at + 1);
            return Err(Fail::input("no variable", what, "write NAME=VALUE"));
        };
        let within = |quote| value.strip_prefix(quote)?.strip_suffix(quote);
        let value = within('"').or_else(|| within('\'')).unwrap_or(value);
        all.push((name.to_string(), value.to_string()));
    }
    Ok(all)
}

fn is_name(text: &str) -> bool {
    let mut letters = text.chars();
    let begins = letters
        .next()
        .is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    begins && letters.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use foreread_testing::says;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn options_of_fstab_become_options_of_the_command() {
        for (given, whole) in [
            (
                "foreread mount s3://b/ mnt -o ro,allow_other,_netdev,cache=1G",
                "foreread mount s3://b/ mnt --allow-other --cache=1G",
            ),
            (
                "foreread mount a b -oattr_ttl=5s,,x-systemd.automount",
                "foreread mount a b --attr-ttl=5s",
            ),
            (
                "foreread mount a b -o policy=auto:max-overfetch=2+x=1,metrics=9100,disk_cache=/c+size=1G",
                "foreread mount a b --policy=auto:max-overfetch=2,x=1 --metrics=9100 --disk-cache=/c,size=1G",
            ),
            (
                "foreread mount a+b c -o control=/run/a+b",
                "foreread mount a+b c --control=/run/a+b",
            ),
            ("foreread mount a b -- -o x", "foreread mount a b -- -o x"),
            (
                "foreread record -o x -- mount -o y",
                "foreread record -o x -- mount -o y",
            ),
        ] {
            assert_eq!(
                expanded(&words(given)).expect(given),
                words(whole),
                "{given}"
            );
        }
        for (given, part) in [
            ("foreread mount a b -o env=/x,env=/y", "given twice"),
            (
                "foreread mount a b -o env=/none/there",
                "cannot read the variables",
            ),
        ] {
            let line = crate::fail::input_line(expanded(&words(given)));
            assert!(line.contains(part), "{line}");
        }
    }

    #[test]
    fn a_file_of_variables_is_read_as_systemd_reads_it() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let text = "# keys\nAWS_REGION=eu-central-1\n\nexport A=\"b c\"\n_B='d=e'\n";
        std::fs::write(file.path(), text).expect("room");
        let all = in_file(file.path()).expect("read");
        let all: Vec<_> = all
            .iter()
            .map(|(name, value)| format!("{name}:{value}"))
            .collect();
        assert_eq!(all, ["AWS_REGION:eu-central-1", "A:b c", "_B:d=e"]);
        std::fs::write(file.path(), "A=1\nrm -rf x\n").expect("room");
        let line = crate::fail::input_line(in_file(file.path()));
        says(&line, &["no variable", "line 2"]);
    }
}
