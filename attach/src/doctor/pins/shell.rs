//! Finds the readahead that a script, or a command in a systemd unit or udev rule, sets for a disk. The script is parsed, but never run.
//!
//! ```text
//!   for d in /sys/block/sd?; do echo 4096 > $d/queue/read_ahead_kb; done      d is /sys/block/sd?: sda has 4096
//!   blockdev --setra 8192 /dev/$(basename $x)                                  x is unknown, so it may be any disk
//! ```
//! An unknown part of a word becomes `*`. Every condition in the script is assumed to be true. A variable that is set again under a
//! condition has both values. If the value of a setting is not a single number, the value is unknown. The commands blockdev and hdparm
//! count in sectors of 512 bytes.

use super::pattern::{DiskNames, MAX_WORDS, braces};
use super::words::{Piece, Token, of_command, of_script};
use std::collections::BTreeMap;

/// Most words and operators that are interpreted, and how deep functions and scripts may call each other.
const MAX_STEPS: usize = 20_000;
const MAX_DEPTH: usize = 16;
/// Commands that run the rest of their line.
const RUNNERS: [&str; 14] = [
    "sudo",
    "env",
    "exec",
    "command",
    "builtin",
    "nice",
    "ionice",
    "nohup",
    "time",
    "timeout",
    "chronic",
    "eval",
    "setsid",
    "systemd-run",
];
const FOLLOWED: [&str; 10] = [
    "echo", "printf", "tee", "blockdev", "hdparm", "sh", "bash", "dash", "xargs", "ksh",
];

/// Returns the readahead that a script sets: `None` if it sets none, `Some(None)` if the value is unknown, otherwise the value in KiB.
pub type SetValue = Option<Option<u64>>;

/// Returns the readahead that a script sets if it is called with these arguments.
#[must_use]
pub fn script(
    text: &str,
    arguments: &[&str],
    names: &DiskNames,
    scripts: &BTreeMap<String, String>,
) -> SetValue {
    let mut shell = Shell::new(names, scripts);
    shell.arguments = arguments
        .iter()
        .map(|word| vec![word.to_string()])
        .collect();
    shell.run(&of_script(text));
    shell.found
}

/// Returns the readahead that a command without a shell sets.
#[must_use]
pub fn command(text: &str, names: &DiskNames, scripts: &BTreeMap<String, String>) -> SetValue {
    let mut shell = Shell::new(names, scripts);
    let mut words = Vec::new();
    for token in of_command(text) {
        let Token::Word { pieces, .. } = token else {
            continue;
        };
        let word = shell.word(&pieces);
        // In systemd, a word `;` begins another command.
        if word == [";"] {
            shell.simple(&std::mem::take(&mut words), &[]);
        } else {
            words.push(word);
        }
    }
    shell.simple(&words, &[]);
    shell.found
}

/// All possible texts of a word.
type Texts = Vec<String>;

struct Shell<'a> {
    names: &'a DiskNames,
    scripts: &'a BTreeMap<String, String>,
    variables: BTreeMap<String, Texts>,
    functions: BTreeMap<String, Vec<Token>>,
    /// The arguments `$1`, `$2`, ...
    arguments: Vec<Texts>,
    folder: String,
    /// The output of the previous command in a pipe, and its words.
    piped: Option<(Texts, String)>,
    found: SetValue,
    steps: usize,
    depth: usize,
    has_ended: bool,
}

impl<'a> Shell<'a> {
    fn new(names: &'a DiskNames, scripts: &'a BTreeMap<String, String>) -> Shell<'a> {
        Shell {
            names,
            scripts,
            variables: BTreeMap::new(),
            functions: BTreeMap::new(),
            arguments: Vec::new(),
            folder: String::new(),
            piped: None,
            found: None,
            steps: 0,
            depth: 0,
            has_ended: false,
        }
    }

    fn run(&mut self, tokens: &[Token]) {
        if self.depth == MAX_DEPTH {
            return;
        }
        self.depth += 1;
        Run::new(self, tokens).all();
        self.depth -= 1;
    }

    /// Interprets a script or a function with these arguments.
    fn call(&mut self, tokens: &[Token], arguments: &[Texts]) {
        let before = std::mem::replace(&mut self.arguments, arguments.to_vec());
        self.run(tokens);
        self.arguments = before;
        self.has_ended = self.steps > MAX_STEPS;
    }

    fn set(&mut self, value: Option<u64>) {
        self.found = Some(value);
    }

    /// Interprets a command with its words and the files to which its output goes.
    fn simple(&mut self, words: &[Texts], outputs: &[Texts]) {
        let piped = self.piped.take();
        let Some(name) = words.first().and_then(|texts| texts.first()).cloned() else {
            return;
        };
        let base = name.rsplit('/').next().unwrap_or_default().to_string();
        let rest = &words[1..];
        let all = |words: &[Texts]| words.iter().flatten().cloned().collect::<Texts>();
        let written = match base.as_str() {
            "echo" | "printf" => rest.last().cloned().unwrap_or_default(),
            _ => Vec::new(),
        };
        let is_output = |texts: &Texts| texts.iter().any(|text| self.is_setting(text));
        if outputs.iter().any(is_output) {
            self.set(number(&written));
        }
        let line = all(words).join(" ");
        if let Some(tokens) = self.functions.get(&name).cloned() {
            self.call(&tokens, rest);
        } else if let Some(text) = self.scripts.get(&name) {
            self.call(&of_script(text), rest);
        } else if RUNNERS.contains(&base.as_str()) {
            self.runner(rest, outputs, piped.clone());
        } else {
            self.known(&base, rest, piped.as_ref());
        }
        self.piped = Some((written, line));
    }

    fn runner(&mut self, rest: &[Texts], outputs: &[Texts], piped: Option<(Texts, String)>) {
        let is_known = |texts: &Texts| {
            texts.iter().any(|text| {
                let base = text.rsplit('/').next().unwrap_or_default();
                FOLLOWED.contains(&base)
                    || self.scripts.contains_key(text)
                    || self.functions.contains_key(text)
            })
        };
        if let Some(at) = rest.iter().position(is_known) {
            self.piped = piped;
            self.simple(&rest[at..], outputs);
        }
    }

    /// Interprets a command whose meaning is known.
    fn known(&mut self, base: &str, rest: &[Texts], piped: Option<&(Texts, String)>) {
        let is_option = |texts: &Texts| texts.iter().any(|text| text.starts_with('-'));
        let first = rest.first().and_then(|texts| texts.first());
        match base {
            "tee" => {
                let files = rest.iter().filter(|texts| !is_option(texts)).flatten();
                let piped = piped.cloned();
                if files.into_iter().any(|file| self.is_setting(file)) {
                    self.set(piped.and_then(|(texts, _)| number(&texts)));
                }
            }
            "blockdev" => self.sectors(rest, &["--setra", "--setfra"]),
            "hdparm" => self.sectors(rest, &["-a"]),
            "sh" | "bash" | "dash" | "ksh" => {
                let is_text = |texts: &Texts| {
                    texts
                        .iter()
                        .any(|text| text.starts_with('-') && text.ends_with('c'))
                };
                if let Some(at) = rest.iter().position(is_text) {
                    let Some(text) = rest.get(at + 1).and_then(|texts| texts.first()) else {
                        return;
                    };
                    // The word after the text is the script's name.
                    let arguments = rest.get(at + 3..).unwrap_or_default();
                    self.call(&of_script(text), arguments);
                } else if let Some(at) = rest.iter().position(|texts| !is_option(texts)) {
                    self.source(&rest[at..]);
                }
            }
            "." | "source" => self.source(rest),
            "cd" | "pushd" => self.folder = first.cloned().unwrap_or_default(),
            "read" => {
                let of_pipe = piped.is_some_and(|(_, line)| line.contains("read_ahead_kb"));
                let value = if of_pipe { "*read_ahead_kb" } else { "*" };
                for name in rest.iter().filter(|texts| !is_option(texts)).flatten() {
                    self.variables.insert(name.clone(), vec![value.to_string()]);
                }
            }
            "xargs" | "find" => {
                let of_pipe = piped.is_some_and(|(_, line)| line.contains("read_ahead_kb"))
                    || rest.iter().flatten().any(|text| text == "read_ahead_kb");
                let value = if of_pipe { "*read_ahead_kb" } else { "*" };
                let filled = |texts: &Texts| -> Texts {
                    texts.iter().map(|text| text.replace("{}", value)).collect()
                };
                let mut words: Vec<Texts> = rest.iter().map(filled).collect();
                words.push(vec![value.to_string()]);
                self.runner(&words, &[], None);
            }
            _ => {}
        }
    }

    fn source(&mut self, words: &[Texts]) {
        let path = words.first().and_then(|texts| texts.first());
        if let Some(text) = path.and_then(|path| self.scripts.get(path)) {
            self.call(&of_script(text), &words[1..]);
        }
    }

    /// `--setra 512 /dev/sda /dev/sdb`, `-a512 /dev/sda`
    fn sectors(&mut self, words: &[Texts], options: &[&str]) {
        let mut value = None;
        let mut is_ours = false;
        let mut at = 0;
        while let Some(texts) = words.get(at) {
            at += 1;
            let joined = |option: &&str| {
                let rest = texts.first()?.strip_prefix(*option)?;
                let rest = rest.strip_prefix('=').unwrap_or(rest);
                (rest.is_empty()
                    || rest.starts_with(|letter: char| letter.is_ascii_digit() || letter == '*'))
                .then(|| rest.to_string())
            };
            match options.iter().find_map(joined) {
                Some(rest) if rest.is_empty() => {
                    value = words.get(at).cloned();
                    at += 1;
                }
                Some(rest) => value = Some(vec![rest]),
                None => {
                    is_ours |= texts
                        .iter()
                        .any(|text| !text.starts_with('-') && self.names.has_node(text))
                }
            }
        }
        if let Some(value) = value.filter(|_| is_ours) {
            self.set(number(&value).map(|sectors| sectors / 2));
        }
    }

    /// Whether the path of an output is this disk's setting.
    fn is_setting(&self, path: &str) -> bool {
        if path.starts_with('/') || path.starts_with('*') {
            return self.names.has_setting(path);
        }
        self.names.has_setting(&format!("{}/{path}", self.folder))
    }

    /// All possible texts of a word.
    fn word(&self, pieces: &[Piece]) -> Texts {
        let mut found = vec![String::new()];
        for piece in pieces {
            let texts = match piece {
                Piece::Text(text) => braces(text),
                Piece::Variable(text) => self.variable(text),
                Piece::Command(text) => self.output(text),
            };
            let joined = found
                .iter()
                .flat_map(|begin| texts.iter().map(move |text| format!("{begin}{text}")));
            found = joined.take(MAX_WORDS).collect();
        }
        found
    }

    /// `d`, `d##*/`, `1`, `d:-sda`
    fn variable(&self, text: &str) -> Texts {
        let unknown = || vec!["*".to_string()];
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let end = text.find(|letter| !is_name(letter)).unwrap_or(text.len());
        let (name, change) = match text {
            "@" | "*" => return self.arguments.iter().flatten().cloned().collect(),
            _ => text.split_at(end),
        };
        let value = match name.parse::<usize>() {
            Ok(0) => return unknown(),
            Ok(n) => self.arguments.get(n - 1).cloned(),
            Err(_) => self.variables.get(name).cloned(),
        };
        let otherwise = change.strip_prefix(':').unwrap_or(change);
        if let Some(text) = otherwise.strip_prefix(['-', '=']) {
            return value.unwrap_or_else(|| vec![text.to_string()]);
        }
        let Some(value) = value else { return unknown() };
        let each =
            |change: &dyn Fn(&str) -> String| value.iter().map(|text| change(text)).collect();
        match change {
            "" => value,
            "##*/" => each(&|text| last(text).to_string()),
            "%/*" => each(&|text| {
                text.rsplit_once('/')
                    .map_or(text, |(begin, _)| begin)
                    .to_string()
            }),
            _ if change.starts_with('[') => value,
            _ => match change
                .strip_prefix('#')
                .filter(|begin| !begin.contains(['*', '?', '[', '#']))
            {
                Some(begin) => each(&|text| text.strip_prefix(begin).unwrap_or(text).to_string()),
                None => unknown(),
            },
        }
    }

    /// The output of a command substitution, if it is known.
    fn output(&self, text: &str) -> Texts {
        let unknown = || vec!["*".to_string()];
        let tokens = of_script(text);
        let mut words: Vec<Texts> = Vec::new();
        let mut tokens = tokens.iter();
        for token in tokens.by_ref() {
            match token {
                Token::Word { pieces, .. }
                    if pieces
                        .iter()
                        .all(|piece| !matches!(piece, Piece::Command(_))) =>
                {
                    words.push(self.word(pieces));
                }
                Token::Word { .. } => words.push(unknown()),
                Token::Operator(_) => break,
            }
        }
        let filter: Vec<&Token> = tokens.collect();
        if let Some(pattern) = filtered(&filter) {
            return vec![pattern];
        }
        let base = words
            .first()
            .and_then(|texts| texts.first())
            .map(|name| last(name).to_string());
        let rest = words.get(1..).unwrap_or_default();
        let plain: Texts = rest
            .iter()
            .flatten()
            .filter(|text| !text.starts_with('-'))
            .cloned()
            .collect();
        match base.as_deref() {
            Some("basename") => plain
                .first()
                .map_or_else(unknown, |text| vec![last(text).to_string()]),
            Some("readlink" | "realpath") if !plain.is_empty() => plain,
            Some("echo" | "printf") if filter.is_empty() => plain,
            Some("ls") if plain.iter().any(|text| text.contains(['*', '?', '['])) => plain,
            _ => unknown(),
        }
    }
}

/// The names that `| grep ^sd` lets through, as a pattern.
fn filtered(tokens: &[&Token]) -> Option<String> {
    let mut words = tokens.iter().filter_map(|token| match token {
        Token::Word { pieces, .. } => match &pieces[..] {
            [Piece::Text(text)] => Some(text.as_str()),
            _ => None,
        },
        Token::Operator(_) => None,
    });
    words.find(|word| matches!(*word, "grep" | "egrep"))?;
    let mut pattern = None;
    for word in words {
        match word.strip_prefix('-') {
            Some(options) if options.contains('v') => return None,
            Some(_) => {}
            None => {
                pattern = Some(word);
                break;
            }
        }
    }
    let pattern = pattern?;
    let inner = pattern.trim_start_matches('^').trim_end_matches('$');
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_[]".contains(letter);
    inner.chars().all(is_plain).then(|| {
        let begin = if pattern.starts_with('^') { "" } else { "*" };
        let end = if pattern.ends_with('$') { "" } else { "*" };
        format!("{begin}{inner}{end}")
    })
}

fn last(path: &str) -> &str {
    path.trim_end_matches('/')
        .rsplit('/')
        .next()
        .unwrap_or_default()
}

/// The number in a word, if it is a number.
fn number(texts: &[String]) -> Option<u64> {
    match texts {
        [text] => text.trim_end_matches("\\n").trim().parse().ok(),
        _ => None,
    }
}

/// Interprets the tokens of a text.
struct Run<'r, 'a> {
    shell: &'r mut Shell<'a>,
    tokens: &'r [Token],
    at: usize,
    /// How many of `if`, loops, `case` and braces are open.
    open: usize,
}

/// A command between two operators.
#[derive(Default)]
struct Simple {
    words: Vec<Texts>,
    outputs: Vec<Texts>,
}

impl<'r, 'a> Run<'r, 'a> {
    fn new(shell: &'r mut Shell<'a>, tokens: &'r [Token]) -> Run<'r, 'a> {
        Run {
            shell,
            tokens,
            at: 0,
            open: 0,
        }
    }

    fn all(mut self) {
        let mut before = "\n";
        let mut simple = Simple::default();
        while self.at < self.tokens.len() && !self.shell.has_ended {
            let token = &self.tokens[self.at];
            self.at += 1;
            self.shell.steps += 1;
            self.shell.has_ended = self.shell.steps > MAX_STEPS;
            match token {
                Token::Operator(">" | ">>" | ">|" | "&>" | "&>>") => {
                    simple.outputs.extend(self.next_word());
                }
                Token::Operator("<" | "<<<" | ">&" | "<&") => drop(self.next_word()),
                Token::Operator("(") if simple.words.len() == 1 && self.is_operator(")") => {
                    let name = simple.words.remove(0);
                    self.at += 1;
                    self.function(name.first().map_or("", String::as_str));
                }
                Token::Operator(operator) => {
                    self.end(&mut simple, before, operator);
                    before = operator;
                }
                Token::Word { pieces, splits } => {
                    let text = match &pieces[..] {
                        [Piece::Text(text)] => text.as_str(),
                        _ => "",
                    };
                    if !(simple.words.is_empty() && self.keyword(text, pieces)) {
                        let words = self.shell.word(pieces);
                        simple.words.extend(split(words, *splits));
                    }
                }
            }
        }
        self.end(&mut simple, before, "\n");
    }

    fn end(&mut self, simple: &mut Simple, before: &str, after: &str) {
        let Simple { words, outputs } = std::mem::take(simple);
        let is_sure = self.open == 0
            && !["&&", "||"].contains(&before)
            && !["&&", "||", "|"].contains(&after);
        if is_sure && words.first().is_some_and(|texts| *texts == ["exit"]) {
            self.shell.has_ended = true;
            return;
        }
        self.shell.simple(&words, &outputs);
        if after != "|" && after != "|&" {
            self.shell.piped = None;
        }
    }

    fn next_word(&mut self) -> Option<Texts> {
        match self.tokens.get(self.at) {
            Some(Token::Word { pieces, .. }) => {
                self.at += 1;
                Some(self.shell.word(pieces))
            }
            _ => None,
        }
    }

    fn is_operator(&self, wanted: &str) -> bool {
        matches!(self.tokens.get(self.at), Some(Token::Operator(operator)) if *operator == wanted)
    }

    /// Handles the first word of a command if it is a keyword of the shell. Returns whether it is one.
    fn keyword(&mut self, text: &str, pieces: &[Piece]) -> bool {
        match text {
            "then" | "else" | "elif" | "do" | "!" | "time" | "export" | "readonly" | "local"
            | "declare" => {}
            "if" | "while" | "until" | "{" => self.open += 1,
            "fi" | "done" | "esac" | "}" => self.open = self.open.saturating_sub(1),
            "case" => {
                self.open += 1;
                while let Some(word) = self.next_word() {
                    if word == ["in"] {
                        break;
                    }
                }
            }
            "for" | "select" => {
                self.open += 1;
                self.loop_over();
            }
            "function" => {
                let name = self.next_word().and_then(|texts| texts.into_iter().next());
                while self.is_operator("(") || self.is_operator(")") {
                    self.at += 1;
                }
                self.function(&name.unwrap_or_default());
            }
            _ => return self.assignment(pieces),
        }
        true
    }

    /// `d in sda sdb`
    fn loop_over(&mut self) {
        let name = self.next_word().and_then(|texts| texts.into_iter().next());
        let mut values = Texts::new();
        let mut is_first = true;
        while let Some(Token::Word { pieces, splits }) = self.tokens.get(self.at) {
            self.at += 1;
            let words = self.shell.word(pieces);
            if !(is_first && words == ["in"]) {
                values.extend(split(words, *splits).into_iter().flatten());
            }
            is_first = false;
        }
        values.truncate(MAX_WORDS);
        self.shell
            .variables
            .insert(name.unwrap_or_default(), values);
    }

    /// The body of a function: from its opening brace to the closing one.
    fn function(&mut self, name: &str) {
        let is = |token: &Token, wanted: &str| matches!(token, Token::Word { pieces, .. } if matches!(&pieces[..], [Piece::Text(text)] if text == wanted));
        let rest = &self.tokens[self.at..];
        let Some(begin) = rest.iter().position(|token| is(token, "{")) else {
            return;
        };
        let mut depth = 0_usize;
        let end = rest[begin..].iter().position(|token| {
            depth += usize::from(is(token, "{"));
            depth -= usize::from(is(token, "}"));
            depth == 0
        });
        let end = end.map_or(rest.len(), |end| begin + end);
        let body = rest[begin + 1..end].to_vec();
        self.shell.functions.insert(name.to_string(), body);
        self.at += (end + 1).min(rest.len());
    }

    /// `RA=4096`, `DISKS=(sda sdb)`
    fn assignment(&mut self, pieces: &[Piece]) -> bool {
        let Some(Piece::Text(first)) = pieces.first() else {
            return false;
        };
        let Some((name, rest)) = first.split_once('=') else {
            return false;
        };
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        if name.is_empty() || !name.chars().all(is_name) {
            return false;
        }
        let mut values = if pieces.len() == 1 && rest.is_empty() && self.is_operator("(") {
            self.at += 1;
            let mut list = Texts::new();
            while !self.is_operator(")") && self.at < self.tokens.len() {
                match self.next_word() {
                    Some(texts) => list.extend(texts),
                    None => self.at += 1,
                }
            }
            self.at += 1;
            list
        } else {
            let mut value = vec![Piece::Text(rest.to_string())];
            value.extend_from_slice(&pieces[1..]);
            self.shell.word(&value)
        };
        let earlier = self.shell.variables.get(name).filter(|_| self.open > 0);
        for text in earlier.into_iter().flatten() {
            if !values.contains(text) {
                values.push(text.clone());
            }
        }
        values.truncate(MAX_WORDS);
        self.shell.variables.insert(name.to_string(), values);
        true
    }
}

/// An unquoted value with blanks becomes several words.
fn split(texts: Texts, splits: bool) -> Vec<Texts> {
    if !splits || !texts.iter().any(|text| text.contains(char::is_whitespace)) {
        return vec![texts];
    }
    texts
        .iter()
        .flat_map(|text| text.split_whitespace().map(|word| vec![word.to_string()]))
        .take(MAX_WORDS)
        .collect()
}
