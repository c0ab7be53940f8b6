//! The first page of the help, with commands grouped by purpose in 24 lines of 80 columns, and the long version text.
//!
//! ```text
//! Use:
//!   mount    Mount a folder or a store by FUSE, with readahead and a cache
//! Find out:
//!   doctor   ...
//! Also: sweep, completions, man
//! ```
//! A command without a group is listed after `Also`; a command that this build does not include is left out. The line of a command is the
//! first line of the command's own help.

use clap::Command;
use std::sync::LazyLock;

#[cfg(feature = "lab")]
pub const EXAMPLE: &str = "Example: foreread compare sequential --on disk.img";
#[cfg(not(feature = "lab"))]
pub const EXAMPLE: &str = "Example: foreread serve disk.img --unix disk.sock";

const GROUPS: [(&str, &[&str]); 3] = [
    ("Use", &["mount", "serve", "run", "warm", "plan", "replay"]),
    (
        "Find out",
        &[
            "doctor", "compare", "tune", "probe", "record", "explain", "watch",
        ],
    ),
    (
        "Groups and their commands",
        &["trace", "list", "cache", "check"],
    ),
];

/// Columns of a name and the space after it.
const NAME: usize = 9;

/// Returns the first page of the help, with the commands of this build, as a template for clap.
pub fn template(all: &Command) -> String {
    let mut page = "{about}\n{usage-heading} {usage}\n".to_string();
    let mut listed = Vec::new();
    for (heading, names) in GROUPS {
        let rows = names.iter().filter_map(|name| all.find_subcommand(name));
        let rows = Vec::from_iter(rows);
        if !rows.is_empty() {
            page.push_str(&format!("{heading}:\n"));
        }
        for row in rows {
            let about = row.get_about().map(ToString::to_string);
            let (name, about) = (row.get_name(), about.unwrap_or_default());
            page.push_str(&format!("  {name:NAME$}{about}\n"));
            listed.push(name);
        }
    }
    let other = all.get_subcommands().map(Command::get_name);
    let other = other.filter(|name| !listed.contains(name));
    let other = Vec::from_iter(other.chain(["help"])).join(", ");
    page + &format!("Also: {other}; -h, --help, --version\n{EXAMPLE}")
}

/// Returns the text of `--version`; `-V` prints only its first line.
pub fn version() -> &'static str {
    static VERSION: LazyLock<String> = LazyLock::new(|| {
        let parts = [
            ("fuse", cfg!(feature = "fuse")),
            ("lab", cfg!(feature = "lab")),
            ("metrics", cfg!(feature = "metrics")),
            ("nbd", cfg!(feature = "nbd")),
            ("object", cfg!(feature = "object")),
            ("otlp", cfg!(feature = "otlp")),
            ("rbd", cfg!(feature = "rbd")),
            ("tls", cfg!(feature = "tls")),
            ("uring", cfg!(feature = "uring")),
        ];
        let named = |built: bool| {
            let found = parts.iter().filter(|(_, has)| *has == built);
            let names = Vec::from_iter(found.map(|(name, _)| *name));
            names.join(", ")
        };
        let (has, lacks) = (named(true), named(false));
        let lacks = match lacks.is_empty() {
            true => String::new(),
            false => format!("\nwithout: {lacks} (build it with --features)"),
        };
        format!("{}\nfeatures: {has}{lacks}", env!("CARGO_PKG_VERSION"))
    });
    &VERSION
}
