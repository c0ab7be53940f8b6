//! What texts name in backticks exists: files, functions, constants, types and their members, commands and their options.
//!
//! Read are the Markdown files of the root and of `docs`, but neither the changelog nor decisions, notes and `docs/spec` (which
//! speak of what was, or of other programs), and the `//!` headers of every Rust file with their tables and drawings. Example:
//! "`Reader::want`" in SEMANTICS.md fails, because no file that declares or implements `Reader` has a function, a field or a
//! constant of that name. A drawing may have words in capitals; these are constants if one of that name exists anywhere.
//!
//! Of the drawings of Markdown, the lines are read that begin with `foreread`: examples of commands.
//!
//! A path may be from the root, or its end (`front/nbd.rs`), so that a file that moves with its folder keeps its references. In
//! the table or drawing of a header a bare `name.rs` is beside that file, in its folder or above it; elsewhere it is anywhere.

use crate::tree::{self, File};
use std::collections::{BTreeMap, BTreeSet};

/// Names of others that our texts use, by where they are from. What is here may be missing from the code.
const FOREIGN: [(&str, &[&str]); 7] = [
    (
        "Linux: its functions, constants and settings",
        &[
            "VM_READAHEAD_PAGES",
            "NBD_INFO_BLOCK_SIZE",
            "FUSE_INTERRUPT",
            "O_EXCL",
            "POPULATE_READ",
            "errseq_t",
            "fault_around_bytes",
            "sb_bread",
            "sb_breadahead",
        ],
    ),
    (
        "zfs",
        &[
            "zfetch_max_streams",
            "zfetch_min_sec_reap",
            "zfetch_max_sec_reap",
        ],
    ),
    (
        "S3, CPython, GnuTLS",
        &[
            "ListObjectsV2",
            "PyOS_BeforeFork",
            "Py_buffer",
            "tls_www_client",
            "tls_www_server",
        ],
    ),
    (
        "nbd: doc/proto.md, doc/uri.md",
        &["doc/proto.md", "doc/uri.md"],
    ),
    ("std, written without its path", &["Scope::spawn"]),
    (
        "files that a user or an installation has, and the example of CONTRIBUTING.md",
        &[
            "/etc/foreread.toml",
            "THIRD-PARTY-LICENSES.txt",
            "core/src/policy/follow.rs",
            "engine/src/source/follow.rs",
            "cli/src/command/follow.rs",
            "sim/src/workload/follow.rs",
            "trace/src/formats/follow.rs",
            "trace/tests/traces/follow",
            "core/tests/golden/follow.txt",
            "PAPER.rs",
            "published/PAPER.rs",
        ],
    ),
    (
        "words of drawings: fields of other formats, states, SQL",
        &[
            "RWBS", "RETURN", "ERRNO", "BACK", "STARTTLS", "FILE", "LIMIT",
        ],
    ),
];

/// What a text may name.
struct Names {
    /// Every path from the root, of files and folders, and each of its ends.
    paths: BTreeSet<String>,
    /// Of each code file, its words.
    words: BTreeMap<String, BTreeSet<String>>,
    /// All words of all code.
    all: BTreeSet<String>,
    /// Functions, and fields or parameters (`name:`), by file.
    members: BTreeMap<String, BTreeSet<String>>,
    functions: BTreeSet<String>,
    /// Private ones: a drawing in another folder does not mean them.
    constants: BTreeSet<String>,
    /// Files that declare, implement or are a type or module.
    homes: BTreeMap<String, Vec<String>>,
    commands: BTreeSet<String>,
    options: BTreeSet<String>,
    /// Crates of others, as a path in the code begins with them.
    crates: BTreeSet<String>,
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c| !is_word(c)).filter(|word| !word.is_empty())
}

/// A code file, and its text without comments.
fn code(file: &File) -> Option<String> {
    let base = file.name.rsplit('/').next().unwrap_or_default();
    let hash = base.ends_with(".py") || base.ends_with(".toml") || !base.contains('.');
    if [".rs", ".c", ".h"].iter().any(|end| base.ends_with(end)) {
        // Tests stay: texts name them.
        return Some(
            file.text
                .lines()
                .map(uncommented)
                .collect::<Vec<_>>()
                .join("\n"),
        );
    }
    let lines = file
        .text
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'));
    hash.then(|| lines.collect::<Vec<_>>().join("\n"))
}

/// A line up to its comment. `//` in an address such as `s3://bucket` opens none.
fn uncommented(line: &str) -> &str {
    let comment = line.match_indices("//").map(|(at, _)| at);
    &line[..comment
        .into_iter()
        .find(|at| !line[..*at].ends_with(':'))
        .unwrap_or(line.len())]
}

impl Names {
    fn of(files: &[File]) -> Names {
        let mut names = Names {
            paths: BTreeSet::new(),
            words: BTreeMap::new(),
            all: BTreeSet::new(),
            members: BTreeMap::new(),
            functions: BTreeSet::new(),
            constants: BTreeSet::new(),
            homes: BTreeMap::new(),
            commands: BTreeSet::new(),
            options: BTreeSet::new(),
            crates: BTreeSet::new(),
        };
        for file in files {
            names.add_path(&file.name);
            let ours =
                !file.name.starts_with("docs/") && !file.name.ends_with("/tidy_references.rs");
            if let Some(code) = ours.then(|| code(file)).flatten() {
                names.add_code(&file.name, &code);
            }
        }
        let lock = tree::read("Cargo.lock");
        let packages = lock
            .lines()
            .filter_map(|line| line.strip_prefix("name = \""));
        names.crates = packages
            .map(|name| name.trim_end_matches('"').replace('-', "_"))
            .filter(|name| !name.starts_with("foreread"))
            .chain(["std", "alloc"].map(str::to_string))
            .collect();
        names
    }

    fn add_path(&mut self, name: &str) {
        let parts: Vec<&str> = name.split('/').collect();
        for end in 1..=parts.len() {
            for start in 0..end {
                self.paths.insert(parts[start..end].join("/"));
            }
        }
    }

    fn add_code(&mut self, name: &str, code: &str) {
        let mut own = BTreeSet::new();
        let mut members = BTreeSet::new();
        let mut homes: BTreeSet<&str> = name.trim_end_matches(".rs").rsplit('/').take(2).collect();
        for line in code.lines() {
            let parts: Vec<&str> = words(line).collect();
            let is_private = !line.trim_start().starts_with("pub");
            for pair in parts.windows(2) {
                match pair[0] {
                    "fn" | "def" => {
                        self.functions.insert(pair[1].to_string());
                        members.insert(pair[1].to_string());
                    }
                    "const" | "static" if is_private => {
                        self.constants.insert(pair[1].to_string());
                    }
                    "struct" | "enum" | "trait" | "type" | "union" | "mod" | "class" => {
                        homes.insert(pair[1]);
                    }
                    _ => {}
                }
            }
            if line.trim_start().starts_with("impl") {
                homes.extend(&parts);
            }
            for (at, _) in line.match_indices(':') {
                let field = words(&line[..at]).last();
                members.extend(
                    field
                        .filter(|field| line[..at].ends_with(field))
                        .map(str::to_string),
                );
            }
            own.extend(parts.into_iter().map(str::to_string));
        }
        for home in homes {
            self.homes
                .entry(home.to_string())
                .or_default()
                .push(name.to_string());
        }
        if code.contains("#[arg(") || code.contains("Subcommand)]") {
            self.add_options(code);
        }
        self.all.extend(own.iter().cloned());
        self.words.insert(name.to_string(), own);
        self.members.insert(name.to_string(), members);
    }

    /// The arguments of the command line: fields and variants in kebab case, and what is named in quotes.
    fn add_options(&mut self, code: &str) {
        for word in words(code) {
            let mut kebab = String::new();
            for c in word.chars() {
                if c.is_uppercase() && !kebab.is_empty() {
                    kebab.push('-');
                }
                kebab.extend(c.to_lowercase());
            }
            let is_variant = word.starts_with(char::is_uppercase);
            let names = if is_variant {
                &mut self.commands
            } else {
                &mut self.options
            };
            names.insert(kebab.replace('_', "-"));
        }
        for quoted in code.split('"').skip(1).step_by(2) {
            self.options.insert(quoted.to_string());
            self.commands.insert(quoted.to_string());
        }
    }

    /// Why a span of a text names nothing, or `None`.
    fn fault(&self, span: &Span) -> Option<&'static str> {
        let text = span.text.trim();
        let text = text.strip_prefix("./").unwrap_or(text);
        if FOREIGN.iter().any(|(_, names)| names.contains(&text)) {
            return None;
        }
        let has = |chars: &dyn Fn(char) -> bool| text.chars().all(|c| is_word(c) || chars(c));
        let ending = text.rsplit('.').next().unwrap_or_default();
        if has(&|c| "./-".contains(c))
            && ["rs", "md", "toml", "py", "h", "txt"].contains(&ending)
            && text.contains('.')
        {
            return self.file_fault(text, span);
        }
        let top = text.split('/').next().unwrap_or_default();
        if has(&|c| "./-".contains(c)) && text.contains('/') {
            // Recorded data is no text, but is there. What is built is not, until it is.
            let is_built = ["target", "dist"].contains(&top);
            let is_ours = !top.is_empty() && !is_built && tree::root().join(top).is_dir();
            let is_there =
                self.paths.contains(text.trim_end_matches('/')) || tree::root().join(text).exists();
            return (is_ours && !is_there).then_some("no such path");
        }
        let name = text
            .split('(')
            .next()
            .unwrap_or_default()
            .trim_end_matches('!');
        let rest = &text[name.len()..];
        let is_call = rest.starts_with('(') && rest.ends_with(')');
        let is_page = rest.trim_matches(['(', ')']).parse::<u8>().is_ok();
        let is_name = !name.is_empty()
            && name.chars().all(|c| is_word(c) || c == ':')
            && (rest.len() < 2 || is_call);
        if is_name && name.contains("::") {
            return self.member_fault(name);
        }
        if is_name && is_call && !is_page && name.starts_with(char::is_lowercase) {
            return (!self.functions.contains(name)).then_some("no such function");
        }
        if is_name && rest.is_empty() {
            return self.word_fault(name, span);
        }
        self.command_fault(text)
    }

    fn file_fault(&self, path: &str, span: &Span) -> Option<&'static str> {
        if !self.paths.contains(path) {
            return Some("no such file");
        }
        let is_listed = span.is_listed && span.file.ends_with(".rs") && !path.contains('/');
        let folders: Vec<&str> = span
            .file
            .match_indices('/')
            .map(|(at, _)| &span.file[..at])
            .collect();
        let own = span.file.trim_end_matches(".rs");
        let is_near = |name: &String| {
            let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
            folders.contains(&folder) || name.starts_with(&format!("{own}/"))
        };
        let mut named = self
            .words
            .keys()
            .filter(|name| name.rsplit('/').next() == Some(path));
        (is_listed && !named.any(is_near))
            .then_some("no such file beside this one, in its folder or above it")
    }

    fn member_fault(&self, path: &str) -> Option<&'static str> {
        let mut parts: Vec<&str> = path.split("::").filter(|part| !part.is_empty()).collect();
        if self.crates.contains(parts[0]) {
            return None;
        }
        let is_root = |part: &str| {
            ["crate", "super", "self", "core", "foreread"].contains(&part)
                || part.starts_with("foreread_")
        };
        while parts.len() > 1 && is_root(parts[0]) {
            parts.remove(0);
        }
        let (member, of) = (
            parts[parts.len() - 1],
            parts.len().checked_sub(2).map(|at| parts[at]),
        );
        let Some(of) = of else {
            let is_known = self.all.contains(member) || self.homes.contains_key(member);
            return (!is_known).then_some("no such item");
        };
        let is_of_type =
            of.starts_with(char::is_uppercase) && member.starts_with(char::is_lowercase);
        let table = if is_of_type {
            &self.members
        } else {
            &self.words
        };
        let mut homes = self.homes.get(of).into_iter().flatten();
        let is_known = homes.any(|home| table[home].contains(member))
            || (!is_of_type && self.paths.contains(&format!("{of}/{member}.rs")));
        (!is_known).then_some("no such member")
    }

    fn word_fault(&self, name: &str, span: &Span) -> Option<&'static str> {
        let is_constant = name
            .chars()
            .all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
        let is_type = name.starts_with(char::is_uppercase);
        if !is_constant && !is_type && !name.trim_matches('_').contains('_') {
            return None;
        }
        // `engine/tests/metrics.rs` compares the page with the metrics, whose names are put together.
        if !self.all.contains(name) && span.file != "docs/metrics.md" {
            return Some("no such name in any code");
        }
        if span.is_drawn && self.constants.contains(name) {
            let folder = span.file.rsplit_once('/').map_or("", |(folder, _)| folder);
            let own = span.file.trim_end_matches(".rs");
            let mut near = self.words.iter().filter(|(file, _)| {
                let of = file.rsplit_once('/').map_or("", |(of, _)| of);
                of == folder
                    || file.starts_with(&format!("{own}/"))
                    || folder == file.trim_end_matches(".rs")
            });
            return (!near.any(|(_, words)| words.contains(name)))
                .then_some("a constant of another folder");
        }
        None
    }

    fn command_fault(&self, text: &str) -> Option<&'static str> {
        let mut parts = text.split_whitespace();
        let first = parts.next().unwrap_or_default();
        let is_name = |word: &str| word.chars().all(|c| c.is_ascii_lowercase() || c == '-');
        let second = parts.next().unwrap_or_default();
        if first == "foreread"
            && !second.starts_with('-')
            && is_name(second)
            && !self.commands.contains(second)
        {
            return Some("no such command");
        }
        if first != "foreread" && !first.starts_with("--") && !self.commands.contains(first) {
            return None;
        }
        // What follows `--` alone is another command.
        let mut options = text
            .split(" -- ")
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .filter_map(|part| part.strip_prefix("--"));
        let is_known = |option: &str| {
            let name = option
                .split(|c: char| !c.is_ascii_alphanumeric() && c != '-')
                .next()
                .unwrap_or_default();
            ["", "help", "version", "cfg"].contains(&name) || self.options.contains(name)
        };
        options
            .any(|option| !is_known(option))
            .then_some("no such option")
    }
}

/// Something that a text names.
struct Span {
    file: String,
    line: usize,
    text: String,
    /// In a drawing, without backticks.
    is_drawn: bool,
    /// In a drawing, or in the first column of a table.
    is_listed: bool,
}

/// What a text names: between backticks, and in drawings the files and the words in capitals, or the commands.
fn spans(file: &File) -> Vec<Span> {
    let is_code = file.name.ends_with(".rs");
    let (mut found, mut is_drawn) = (Vec::new(), false);
    for (number, line) in file.text.lines().enumerate() {
        let Some(line) = (if is_code {
            line.trim_start().strip_prefix("//!")
        } else {
            Some(line)
        }) else {
            continue;
        };
        let line = line.trim_start();
        let mut add = |text: &str, is_listed| {
            found.push(Span {
                file: file.name.clone(),
                line: number + 1,
                text: text.to_string(),
                is_drawn,
                is_listed,
            });
        };
        if line.starts_with("```") {
            is_drawn = !is_drawn;
        } else if is_drawn && is_code {
            let parts = line.split(|c: char| !is_word(c) && !"./-".contains(c));
            let is_constant = |part: &&str| {
                part.len() > 3 && part.chars().all(|c| c.is_ascii_uppercase() || c == '_')
            };
            parts
                .filter(|part| part.ends_with(".rs") || is_constant(part))
                .for_each(|part| add(part, true));
        } else if is_drawn {
            let command = line.strip_prefix("$ ").unwrap_or(line);
            if command.starts_with("foreread ") {
                add(command.split(" #").next().unwrap_or_default(), false);
            }
        } else {
            let is_row = line.starts_with("| `");
            line.split('`')
                .skip(1)
                .step_by(2)
                .enumerate()
                .for_each(|(at, part)| add(part, is_row && at == 0));
        }
    }
    found
}

fn is_read(name: &str) -> bool {
    let is_page = name.ends_with(".md") && name != "CHANGELOG.md";
    let is_doc = name
        .strip_prefix("docs/")
        .is_some_and(|rest| !rest.contains('/'));
    name.ends_with(".rs") && !name.ends_with("/tidy_references.rs")
        || is_page && (is_doc || !name.contains('/'))
}

#[test]
fn what_texts_name_exists() {
    let files = tree::texts();
    let names = Names::of(&files);
    let spans: Vec<Span> = files
        .iter()
        .filter(|file| is_read(&file.name))
        .flat_map(spans)
        .collect();
    let faults = spans.iter().filter_map(|span| {
        let fault = names.fault(span)?;
        Some(format!(
            "{}:{}: `{}`: {fault}",
            span.file, span.line, span.text
        ))
    });
    let faults: Vec<String> = faults.collect();
    assert!(
        faults.is_empty(),
        "{} names of nothing:\n{}",
        faults.len(),
        faults.join("\n")
    );
    assert!(
        spans.len() > 3000,
        "{} names: the rule must reach them",
        spans.len()
    );
}

/// A name of others is used, and is needed: our code does not have it.
#[test]
fn the_list_of_foreign_names_is_short() {
    let files = tree::texts();
    let spans: BTreeSet<String> = files
        .iter()
        .filter(|file| is_read(&file.name))
        .flat_map(spans)
        .map(|span| span.text)
        .collect();
    for (whose, names) in FOREIGN {
        for name in names {
            assert!(
                spans.contains(*name),
                "{name} ({whose}): no text names it any more"
            );
        }
    }
}

#[test]
fn names_of_nothing_are_found() {
    let names = Names::of(&tree::texts());
    let fault = |text: &str| {
        names.fault(&Span {
            file: "engine/src/front/fuse.rs".to_string(),
            line: 1,
            text: text.to_string(),
            is_drawn: true,
            is_listed: true,
        })
    };
    for text in [
        "Reader::wish",
        "front/nbd/lanes.rs",
        "lanes.rs",
        "lab/source",
        "MOST_THREADS",
        "NoSuchType",
        "no_such_call()",
        "foreread compares",
        "compare --polices",
        "--no-such-option",
    ] {
        assert!(fault(text).is_some(), "{text} is found");
    }
    for text in [
        "Reader::prefetch",
        "front/nbd.rs",
        "view.rs",
        "core/src",
        "MAX_EXTRA",
        "foreread::Engine",
        "std::mem::forget",
        "read(2)",
        "foreread compare --policy auto",
        "compare --on FILE",
        "foreread run -- make --jobs",
    ] {
        assert_eq!(fault(text), None, "{text}");
    }
}
