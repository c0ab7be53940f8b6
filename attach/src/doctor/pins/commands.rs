//! Finds the readahead that commands set for a disk: those of a script, a systemd unit, a udev rule or a crontab. The commands are parsed,
//! but never run.
//!
//! ```text
//!   for d in /sys/block/sd?; do echo 4096 > $d/queue/read_ahead_kb; done      d is /sys/block/sd?: sda has 4096
//!   blockdev --setra 8192 /dev/$(basename $x)                                  x is unknown, so it may be any disk
//! ```
//! An unknown part of a word becomes `*`. Every condition in a script is assumed to be true. A variable that is set again under a condition
//! has both values. If the value of a setting is not a single number, the value is unknown. The commands blockdev and hdparm count in
//! sectors of 512 bytes. There are no errors: an unclosed quote or substitution ends at the end of the text.

use super::pattern::{DiskNames, MAX_WORDS, braces};
use std::collections::BTreeMap;

/// Most words and operators that are interpreted, and how deep functions and scripts may call each other.
const MAX_STEPS: usize = 20_000;
const MAX_DEPTH: usize = 16;
/// Commands that run the rest of their line.
const RUNNERS: &str =
    " sudo env exec command nice ionice nohup time timeout chronic eval setsid systemd-run ";
/// Commands of such a line that are interpreted.
const FOLLOWED: &str = " echo printf tee blockdev hdparm sh bash dash ksh xargs ";
/// Words of the shell before a command.
const SKIPPED: &str = " then else elif do ! time export readonly local declare ";
/// Longer operators come before their prefixes.
const OPERATORS: [&str; 21] = [
    "&>>", "<<<", "<<-", ";;", "&&", "||", "|&", ">>", ">|", ">&", "&>", "<<", "<&", "\n", ";",
    "|", "&", "(", ")", "<", ">",
];
/// A `$` that the shell does not expand.
const DOLLAR: &str = "\u{1}";

/// The readahead that a file or a command sets: `None` if it sets none, `Some(None)` if the value is unknown, otherwise the value in KiB.
pub type SetValue = Option<Option<u64>>;

/// All possible texts of a word.
type Texts = Vec<String>;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word {
        text: String,
        /// A part of it is in quotes, so that it stays one word.
        is_quoted: bool,
    },
    /// `;`, `|`, `&&`, `>`, a new line, ...
    Operator(&'static str),
}

/// Returns the readahead that a script sets if it is called with these arguments.
#[must_use]
pub fn script(
    text: &str,
    arguments: &[&str],
    names: &DiskNames,
    scripts: &BTreeMap<String, String>,
) -> SetValue {
    let mut shell = Shell::new(names, scripts);
    let arguments = arguments.iter().map(|word| vec![word.to_string()]);
    shell.arguments = arguments.collect();
    shell.run(&tokens(text, true));
    shell.found
}

/// Returns the readahead that a command without a shell sets. In systemd, a word `;` begins another command.
#[must_use]
pub fn command(text: &str, names: &DiskNames, scripts: &BTreeMap<String, String>) -> SetValue {
    let mut shell = Shell::new(names, scripts);
    for words in words(text).split(|word| word == ";") {
        let words: Vec<Texts> = words.iter().map(|word| braces(word)).collect();
        shell.simple(&words, &[]);
    }
    shell.found
}

/// The words of a line that no shell reads, without their quotes.
pub fn words(line: &str) -> Vec<String> {
    let word = |token| match token {
        Token::Word { text, .. } => Some(text),
        Token::Operator(_) => None,
    };
    tokens(line, false).into_iter().filter_map(word).collect()
}

/// Splits a text into words. In a script there are operators, comments and here-documents, and `$` begins a variable or a substitution,
/// which stays in the word; otherwise these are plain text.
fn tokens(text: &str, is_script: bool) -> Vec<Token> {
    let mut lexer = Lexer {
        rest: text,
        is_script,
        found: Vec::new(),
        word: None,
        is_quoted: false,
        here: Vec::new(),
    };
    while let Some(letter) = lexer.rest.chars().next() {
        lexer.step(letter);
    }
    lexer.end_word();
    lexer.found
}

struct Lexer<'a> {
    rest: &'a str,
    is_script: bool,
    found: Vec<Token>,
    word: Option<String>,
    is_quoted: bool,
    /// Delimiters of the here-documents that begin at the next line.
    here: Vec<String>,
}

impl<'a> Lexer<'a> {
    fn step(&mut self, letter: char) {
        if let Some(rest) = self.rest.strip_prefix("\\\n") {
            self.rest = rest;
            return;
        }
        if self.is_script && self.word.is_none() && letter == '#' {
            self.rest = &self.rest[self.rest.find('\n').unwrap_or(self.rest.len())..];
            return;
        }
        let mut operators = OPERATORS
            .iter()
            .filter(|_| self.is_script || letter == '\n');
        if let Some(operator) = operators.find(|operator| self.rest.starts_with(**operator)) {
            return self.operator(operator);
        }
        self.rest = &self.rest[letter.len_utf8()..];
        match letter {
            _ if letter.is_whitespace() => self.end_word(),
            '\'' => {
                self.is_quoted = true;
                let text = self.until('\'');
                let dollar = if self.is_script { DOLLAR } else { "$" };
                self.push(&text.replace('$', dollar));
            }
            '"' => {
                self.is_quoted = true;
                self.push("");
                while let Some(letter) = self.rest.chars().next() {
                    self.rest = &self.rest[letter.len_utf8()..];
                    if letter == '"' {
                        break;
                    }
                    self.plain(letter, true);
                }
            }
            _ => self.plain(letter, false),
        }
    }

    /// Reads a letter inside or outside of double quotes.
    fn plain(&mut self, letter: char, in_quotes: bool) {
        match letter {
            '\\' => {
                let next = self.rest.chars().next().unwrap_or_default();
                self.rest = &self.rest[next.len_utf8().min(self.rest.len())..];
                if in_quotes && self.is_script && !"\"\\$`\n".contains(next) {
                    self.push("\\");
                }
                match next {
                    '$' if self.is_script => self.push(DOLLAR),
                    '\n' => {}
                    _ => self.push(next.encode_utf8(&mut [0; 4])),
                }
            }
            '$' if self.is_script => {
                let (inner, rest) = self.rest.split_at(nested(self.rest));
                self.push("$");
                self.push(inner);
                self.rest = rest;
            }
            '`' if self.is_script => {
                let text = format!("$({})", self.until('`'));
                self.push(&text);
            }
            _ => self.push(letter.encode_utf8(&mut [0; 4])),
        }
    }

    fn operator(&mut self, operator: &'static str) {
        self.rest = &self.rest[operator.len()..];
        // `2>` redirects another stream than the output.
        let is_stream = |word: &String| word.len() == 1 && word.parse::<u8>().is_ok();
        if operator.starts_with('>')
            && let Some(stream) = self.word.take_if(|word| is_stream(word))
        {
            let operator = if stream == "1" { operator } else { "<" };
            return self.found.push(Token::Operator(operator));
        }
        self.end_word();
        if operator == "\n" {
            for end in std::mem::take(&mut self.here) {
                let lines = self.rest.split_inclusive('\n');
                let mut is_over = false;
                let text = lines.take_while(|line| {
                    let is_text = !is_over;
                    is_over |= line.trim() == end;
                    is_text
                });
                self.rest = &self.rest[text.map(str::len).sum()..];
            }
        }
        if matches!(operator, "<<" | "<<-") {
            let line = self.rest.lines().next().unwrap_or_default().trim_start();
            let is_end = |letter: char| letter.is_whitespace() || ";|&)>".contains(letter);
            let word = line.split(is_end).next().unwrap_or_default();
            self.here.push(word.replace(['\'', '"', '\\'], ""));
        }
        self.found.push(Token::Operator(operator));
    }

    fn end_word(&mut self) {
        let is_quoted = std::mem::take(&mut self.is_quoted);
        let word = self.word.take();
        self.found
            .extend(word.map(|text| Token::Word { text, is_quoted }));
    }

    fn push(&mut self, text: &str) {
        self.word.get_or_insert_default().push_str(text);
    }

    /// The text before this character, which is skipped.
    fn until(&mut self, letter: char) -> &'a str {
        let (text, rest) = self.rest.split_once(letter).unwrap_or((self.rest, ""));
        self.rest = rest;
        text
    }
}

/// The length of the `(...)` or `{...}` with which a text begins, including nested pairs; 0 if it begins with neither.
fn nested(text: &str) -> usize {
    let pair = match text.chars().next() {
        Some('(') => ['(', ')'],
        Some('{') => ['{', '}'],
        _ => return 0,
    };
    let mut depth = 0_usize;
    let end = text.char_indices().find(|(_, letter)| {
        depth += usize::from(*letter == pair[0]);
        depth -= usize::from(*letter == pair[1]);
        depth == 0
    });
    end.map_or(text.len(), |(at, _)| at + 1)
}

fn is_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

fn is_in(list: &str, word: &str) -> bool {
    list.contains(&format!(" {word} "))
}

fn unknown() -> Texts {
    vec!["*".to_string()]
}

fn last(path: &str) -> &str {
    let path = path.trim_end_matches('/');
    path.rsplit('/').next().unwrap_or_default()
}

/// The number in a word, if it is a number.
fn number(texts: &[String]) -> Option<u64> {
    match texts {
        [text] => text.trim_end_matches("\\n").trim().parse().ok(),
        _ => None,
    }
}

struct Shell<'a> {
    names: &'a DiskNames,
    scripts: &'a BTreeMap<String, String>,
    variables: BTreeMap<String, Texts>,
    functions: BTreeMap<String, Vec<Token>>,
    /// The arguments `$1`, `$2`, ...
    arguments: Vec<Texts>,
    folder: String,
    /// The output of the previous command in a pipe, and whether its words name a setting.
    piped: Option<(Texts, bool)>,
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
        let (mut at, mut before) = (0, "\n");
        // How many of `if`, loops, `case` and braces are open.
        let mut open = 0_usize;
        let (mut words, mut outputs): (Vec<Texts>, Vec<Texts>) = (Vec::new(), Vec::new());
        while let Some(token) = tokens.get(at).filter(|_| !self.has_ended) {
            at += 1;
            self.steps += 1;
            self.has_ended = self.steps > MAX_STEPS;
            match token {
                Token::Operator(">" | ">>" | ">|" | "&>" | "&>>") => {
                    outputs.extend(tokens.get(at).map(|token| self.texts_of(token)));
                    at += 1;
                }
                Token::Operator("<" | "<<" | "<<-" | "<<<" | ">&" | "<&") => at += 1,
                Token::Operator("(")
                    if words.len() == 1 && tokens.get(at) == Some(&Token::Operator(")")) =>
                {
                    let name = words.remove(0).remove(0);
                    at = self.define(name, tokens, at);
                }
                Token::Operator(operator) => {
                    let is_sure = open == 0
                        && !["&&", "||"].contains(&before)
                        && !["&&", "||", "|"].contains(operator);
                    if is_sure && words.first().is_some_and(|texts| *texts == ["exit"]) {
                        self.has_ended = true;
                        break;
                    }
                    self.simple(&std::mem::take(&mut words), &std::mem::take(&mut outputs));
                    if !["|", "|&"].contains(operator) {
                        self.piped = None;
                    }
                    before = operator;
                }
                Token::Word { text, .. } if words.is_empty() => match text.as_str() {
                    word if is_in(SKIPPED, word) => {}
                    "if" | "while" | "until" | "{" => open += 1,
                    "fi" | "done" | "esac" | "}" => open = open.saturating_sub(1),
                    "case" => {
                        open += 1;
                        at += 2;
                    }
                    "for" => {
                        open += 1;
                        at = self.for_loop(tokens, at);
                    }
                    text => match self.assigned(text, tokens, at, open > 0) {
                        Some(end) => at = end,
                        None => words.extend(self.split(token)),
                    },
                },
                Token::Word { .. } => words.extend(self.split(token)),
            }
        }
        self.simple(&words, &outputs);
        self.piped = None;
        self.depth -= 1;
    }

    /// Interprets a script or a function with these arguments.
    fn call(&mut self, tokens: &[Token], arguments: &[Texts]) {
        let before = std::mem::replace(&mut self.arguments, arguments.to_vec());
        self.run(tokens);
        self.arguments = before;
        self.has_ended = self.steps > MAX_STEPS;
    }

    /// Keeps the body of a function, from its opening brace to the closing one; returns where it ends.
    fn define(&mut self, name: String, tokens: &[Token], at: usize) -> usize {
        let is = |token: &Token, wanted: &str| matches!(token, Token::Word { text, .. } if text == wanted);
        let Some(begin) = tokens[at..].iter().position(|token| is(token, "{")) else {
            return at;
        };
        let begin = at + begin;
        let mut depth = 0_usize;
        let end = tokens[begin..].iter().position(|token| {
            depth += usize::from(is(token, "{"));
            depth -= usize::from(is(token, "}"));
            depth == 0
        });
        let end = end.map_or(tokens.len(), |end| begin + end);
        self.functions.insert(name, tokens[begin + 1..end].to_vec());
        end + 1
    }

    /// `d in sda sdb`; returns where the list ends.
    fn for_loop(&mut self, tokens: &[Token], at: usize) -> usize {
        let list = tokens[at..].split(|token| matches!(token, Token::Operator(_)));
        let list = list.into_iter().next().unwrap_or_default();
        if let [Token::Word { text, .. }, _, values @ ..] = list {
            let values = values.iter().flat_map(|token| self.split(token)).flatten();
            let values = values.take(MAX_WORDS).collect();
            self.variables.insert(text.clone(), values);
        }
        at + list.len()
    }

    /// `RA=4096`, `DISKS=(sda sdb)`: returns where it ends, or `None` if the word is something else.
    fn assigned(
        &mut self,
        text: &str,
        tokens: &[Token],
        at: usize,
        is_open: bool,
    ) -> Option<usize> {
        let (name, value) = text.split_once('=')?;
        if name.is_empty() || !name.chars().all(is_name) {
            return None;
        }
        let mut end = at;
        let mut values = self.texts(value);
        if value.is_empty() && tokens.get(at) == Some(&Token::Operator("(")) {
            let list = tokens[at + 1..].split(|token| *token == Token::Operator(")"));
            let list = list.into_iter().next().unwrap_or_default();
            values = list.iter().flat_map(|token| self.texts_of(token)).collect();
            end = at + list.len() + 2;
        }
        let earlier = self.variables.get(name).filter(|_| is_open);
        for text in earlier.into_iter().flatten() {
            if !values.contains(text) {
                values.push(text.clone());
            }
        }
        values.truncate(MAX_WORDS);
        self.variables.insert(name.to_string(), values);
        Some(end)
    }

    /// Interprets a command with its words and the files to which its output goes.
    fn simple(&mut self, words: &[Texts], outputs: &[Texts]) {
        let piped = self.piped.take();
        let Some(name) = words.first().and_then(|texts| texts.first()) else {
            return;
        };
        let (base, rest) = (last(name), &words[1..]);
        let written = match base {
            "echo" | "printf" => rest.last().cloned().unwrap_or_default(),
            _ => Vec::new(),
        };
        if outputs.iter().flatten().any(|path| self.is_setting(path)) {
            self.found = Some(number(&written));
        }
        if let Some(tokens) = self.functions.get(name).cloned() {
            self.call(&tokens, rest);
        } else if let Some(text) = self.scripts.get(name) {
            self.call(&tokens(text, true), rest);
        } else if is_in(RUNNERS, base) {
            self.piped = piped;
            self.followed(rest, outputs);
        } else {
            self.known(base, rest, piped);
        }
        let names_setting = |text: &String| text.contains("read_ahead_kb");
        self.piped = Some((written, words.iter().flatten().any(names_setting)));
    }

    /// Interprets the first command of a line that has a meaning here.
    fn followed(&mut self, words: &[Texts], outputs: &[Texts]) {
        let is_known = |text: &String| {
            is_in(FOLLOWED, last(text))
                || self.scripts.contains_key(text)
                || self.functions.contains_key(text)
        };
        if let Some(at) = words.iter().position(|texts| texts.iter().any(is_known)) {
            self.simple(&words[at..], outputs);
        }
    }

    fn known(&mut self, base: &str, rest: &[Texts], piped: Option<(Texts, bool)>) {
        let is_option = |texts: &&Texts| texts.iter().any(|text| text.starts_with('-'));
        let first = rest.first().and_then(|texts| texts.first());
        let (text, is_of_settings) = piped.unwrap_or_default();
        let item = match is_of_settings || rest.iter().any(|texts| *texts == ["read_ahead_kb"]) {
            true => "*read_ahead_kb",
            false => "*",
        };
        match base {
            "tee" => {
                let mut files = rest.iter().filter(|texts| !is_option(texts)).flatten();
                if files.any(|file| self.is_setting(file)) {
                    self.found = Some(number(&text));
                }
            }
            "blockdev" => self.sectors(rest, &["--setra", "--setfra"]),
            "hdparm" => self.sectors(rest, &["-a"]),
            "sh" | "bash" | "dash" | "ksh" => {
                let is_text =
                    |texts: &Texts| texts.iter().any(|t| t.starts_with('-') && t.ends_with('c'));
                if let Some(at) = rest.iter().position(is_text) {
                    // The word after the text is the script's name.
                    let text = rest.get(at + 1).and_then(|texts| texts.first());
                    let arguments = rest.get(at + 3..).unwrap_or_default();
                    text.into_iter()
                        .for_each(|text| self.call(&tokens(text, true), arguments));
                } else if let Some(at) = rest.iter().position(|texts| !is_option(&texts)) {
                    self.source(&rest[at..]);
                }
            }
            "." | "source" => self.source(rest),
            "cd" | "pushd" => self.folder = first.cloned().unwrap_or_default(),
            "read" => {
                let names = rest.iter().filter(|texts| !is_option(texts)).flatten();
                let pairs = names.map(|name| (name.clone(), vec![item.to_string()]));
                self.variables.extend(pairs);
            }
            "xargs" | "find" => {
                let filled = |texts: &Texts| texts.iter().map(|t| t.replace("{}", item)).collect();
                let mut words: Vec<Texts> = rest.iter().map(filled).collect();
                words.push(vec![item.to_string()]);
                self.followed(&words, &[]);
            }
            _ => {}
        }
    }

    fn source(&mut self, words: &[Texts]) {
        let path = words.first().and_then(|texts| texts.first());
        if let Some(text) = path.and_then(|path| self.scripts.get(path)) {
            self.call(&tokens(text, true), &words[1..]);
        }
    }

    /// `--setra 512 /dev/sda /dev/sdb`, `-a512 /dev/sda`
    fn sectors(&mut self, words: &[Texts], options: &[&str]) {
        let (mut value, mut is_ours) = (None, false);
        let mut words = words.iter();
        while let Some(texts) = words.next() {
            let is_value = |text: &str| {
                text.starts_with(|letter: char| letter.is_ascii_digit() || letter == '*')
            };
            let joined = options.iter().find_map(|option| {
                let rest = texts.first()?.strip_prefix(option)?;
                let rest = rest.strip_prefix('=').unwrap_or(rest);
                (rest.is_empty() || is_value(rest)).then_some(rest)
            });
            match joined {
                Some("") => value = words.next().cloned(),
                Some(rest) => value = Some(vec![rest.to_string()]),
                None => {
                    let is_its =
                        |text: &String| !text.starts_with('-') && self.names.has_node(text);
                    is_ours |= texts.iter().any(is_its);
                }
            }
        }
        if let Some(value) = value.filter(|_| is_ours) {
            self.found = Some(number(&value).map(|sectors| sectors / 2));
        }
    }

    /// Whether the path of an output is this disk's setting.
    fn is_setting(&self, path: &str) -> bool {
        match path.starts_with(['/', '*']) {
            true => self.names.has_setting(path),
            false => self.names.has_setting(&format!("{}/{path}", self.folder)),
        }
    }

    fn texts_of(&self, token: &Token) -> Texts {
        match token {
            Token::Word { text, .. } => self.texts(text),
            Token::Operator(_) => Texts::new(),
        }
    }

    /// A word; an unquoted value with blanks becomes several words.
    fn split(&self, token: &Token) -> Vec<Texts> {
        let texts = self.texts_of(token);
        let is_split = matches!(
            token,
            Token::Word {
                is_quoted: false,
                ..
            }
        ) && texts.iter().any(|text| text.contains(char::is_whitespace));
        if !is_split {
            return vec![texts];
        }
        let words = texts.iter().flat_map(|text| text.split_whitespace());
        let words = words.map(|word| vec![word.to_string()]);
        words.take(MAX_WORDS).collect()
    }

    /// All possible texts of a word.
    fn texts(&self, word: &str) -> Texts {
        let mut found = vec![String::new()];
        let mut add = |texts: Texts| {
            let all = found
                .iter()
                .flat_map(|begin| texts.iter().map(move |text| format!("{begin}{text}")));
            found = all.take(MAX_WORDS).collect();
        };
        let mut rest = word;
        while let Some((head, tail)) = rest.split_once('$') {
            add(braces(head));
            let of_name = match tail.chars().next() {
                Some(letter) if letter.is_ascii_digit() || "@*#?$!-".contains(letter) => 1,
                _ => tail.find(|letter| !is_name(letter)).unwrap_or(tail.len()),
            };
            let (name, end) = tail.split_at(nested(tail).max(of_name));
            add(match name.as_bytes().first() {
                Some(b'(') => self.output(name[1..].trim_end_matches(')')),
                Some(b'{') => self.variable(name[1..].trim_end_matches('}')),
                Some(_) => self.variable(name),
                None => vec!["$".to_string()],
            });
            rest = end;
        }
        add(braces(rest));
        found.iter().map(|text| text.replace(DOLLAR, "$")).collect()
    }

    /// `d`, `d##*/`, `1`, `d:-sda`
    fn variable(&self, text: &str) -> Texts {
        if ["@", "*"].contains(&text) {
            return self.arguments.iter().flatten().cloned().collect();
        }
        let end = text.find(|letter| !is_name(letter)).unwrap_or(text.len());
        let (name, change) = text.split_at(end);
        let value = match name.parse::<usize>() {
            Ok(n) => n.checked_sub(1).and_then(|n| self.arguments.get(n)),
            Err(_) => self.variables.get(name),
        };
        let otherwise = change.strip_prefix(':').unwrap_or(change);
        if let Some(text) = otherwise.strip_prefix(['-', '=']) {
            return value.cloned().unwrap_or_else(|| vec![text.to_string()]);
        }
        let Some(value) = value else { return unknown() };
        let each =
            |change: &dyn Fn(&str) -> String| value.iter().map(|text| change(text)).collect();
        match (change, change.strip_prefix('#')) {
            ("", _) => value.clone(),
            (index, _) if index.starts_with('[') => value.clone(),
            ("##*/", _) => each(&|text| last(text).to_string()),
            ("%/*", _) => each(&|text| text.rsplit_once('/').map_or(text, |(head, _)| head).into()),
            (_, Some(head)) if !head.contains(['*', '?', '[', '#']) => {
                each(&|text| text.strip_prefix(head).unwrap_or(text).to_string())
            }
            _ => unknown(),
        }
    }

    /// The output of a command substitution, if it is known.
    fn output(&self, text: &str) -> Texts {
        let tokens = tokens(text, true);
        let is_operator = |token: &Token| matches!(token, Token::Operator(_));
        let end = tokens.iter().position(is_operator).unwrap_or(tokens.len());
        if let Some(pattern) = filtered(&tokens[end..]) {
            return vec![pattern];
        }
        // Substitutions inside of a substitution are not followed.
        let text_of = |token: &Token| match token {
            Token::Word { text, .. } if text.contains("$(") => unknown(),
            token => self.texts_of(token),
        };
        let words: Vec<Texts> = tokens[..end].iter().map(text_of).collect();
        let base = words.first().and_then(|texts| texts.first());
        let is_plain = |text: &&String| !text.starts_with('-');
        let plain: Texts = words
            .iter()
            .skip(1)
            .flatten()
            .filter(is_plain)
            .cloned()
            .collect();
        match base.map(|base| last(base)) {
            Some("basename") if !plain.is_empty() => vec![last(&plain[0]).to_string()],
            Some("readlink" | "realpath") if !plain.is_empty() => plain,
            Some("echo" | "printf") if end == tokens.len() => plain,
            Some("ls") if plain.iter().any(|text| text.contains(['*', '?', '['])) => plain,
            _ => unknown(),
        }
    }
}

/// The names that `| grep ^sd` lets through, as a pattern.
fn filtered(tokens: &[Token]) -> Option<String> {
    let mut words = tokens.iter().filter_map(|token| match token {
        Token::Word { text, .. } => Some(text.as_str()),
        Token::Operator(_) => None,
    });
    words.find(|word| matches!(*word, "grep" | "egrep"))?;
    let is_option = |word: &&str| word.starts_with('-');
    let mut words = words.skip_while(|word| is_option(word) && !word.contains('v'));
    let pattern = words.next().filter(|word| !is_option(word))?;
    let inner = pattern.trim_start_matches('^').trim_end_matches('$');
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_[]".contains(letter);
    inner.chars().all(is_plain).then(|| {
        let begin = if pattern.starts_with('^') { "" } else { "*" };
        let end = if pattern.ends_with('$') { "" } else { "*" };
        format!("{begin}{inner}{end}")
    })
}
