//! Splits shell text into words: quotes, variables, command substitutions, operators, comments, continued lines.
//!
//! ```text
//!   for d in /sys/block/sd?; do echo 4096 > $d/queue/read_ahead_kb; done   # a comment
//!   [for] [d] [in] [/sys/block/sd?] ; [do] [echo] [4096] > [{d} /queue/read_ahead_kb] ; [done]
//! ```
//! The parser returns no errors: an unclosed quote or substitution ends at the end of the text.

/// A part of a shell word: text, a variable, or a command substitution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    Text(String),
    /// `$d`, or the text between the braces of `${d##*/}`.
    Variable(String),
    /// `$(...)`
    Command(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token {
    Word {
        pieces: Vec<Piece>,
        /// Whether it contains an unquoted variable, so that its value may be several words.
        splits: bool,
    },
    /// `;`, `|`, `&&`, `>`, a new line, ...
    Operator(&'static str),
}

/// Longer operators come before their prefixes.
const OPERATORS: [&str; 21] = [
    "&>>", "<<<", "<<-", ";;", "&&", "||", "|&", ">>", ">|", ">&", "&>", "<<", "<&", "\n", ";",
    "|", "&", "(", ")", "<", ">",
];

/// Splits a script into words.
#[must_use]
pub fn of_script(text: &str) -> Vec<Token> {
    Reader::new(text, true).tokens()
}

/// Splits a command that is run without a shell, as in systemd units and udev rules: quotes are handled, operators and `$` are plain text.
#[must_use]
pub fn of_command(text: &str) -> Vec<Token> {
    Reader::new(text, false).tokens()
}

struct Reader<'a> {
    rest: &'a str,
    is_script: bool,
    found: Vec<Token>,
    pieces: Vec<Piece>,
    is_word: bool,
    splits: bool,
    /// Delimiters of the here-documents that begin at the next line.
    here: Vec<String>,
}

impl<'a> Reader<'a> {
    fn new(rest: &'a str, is_script: bool) -> Reader<'a> {
        Reader {
            rest,
            is_script,
            found: Vec::new(),
            pieces: Vec::new(),
            is_word: false,
            splits: false,
            here: Vec::new(),
        }
    }

    fn tokens(mut self) -> Vec<Token> {
        while let Some(letter) = self.rest.chars().next() {
            if let Some(rest) = self.rest.strip_prefix("\\\n") {
                self.rest = rest;
            } else if self.is_script && !self.is_word && letter == '#' {
                self.rest = &self.rest[self.rest.find('\n').unwrap_or(self.rest.len())..];
            } else if let Some(operator) = self.operator() {
                self.take_operator(operator);
            } else {
                self.rest = &self.rest[letter.len_utf8()..];
                match letter {
                    _ if letter.is_whitespace() => self.end_word(),
                    '\'' => {
                        let text = self.until('\'');
                        self.text(text);
                    }
                    '"' => self.quoted(),
                    '\\' => {
                        let next = self.rest.chars().next().unwrap_or_default();
                        self.rest = &self.rest[next.len_utf8().min(self.rest.len())..];
                        self.text(next.encode_utf8(&mut [0; 4]));
                    }
                    '$' if self.is_script => self.dollar(true),
                    '`' if self.is_script => {
                        let text = self.until('`').to_string();
                        self.piece(Piece::Command(text), true);
                    }
                    _ => self.text(letter.encode_utf8(&mut [0; 4])),
                }
            }
        }
        self.end_word();
        self.found
    }

    fn operator(&self) -> Option<&'static str> {
        let found = OPERATORS
            .iter()
            .find(|operator| self.rest.starts_with(**operator));
        found
            .copied()
            .filter(|operator| self.is_script || *operator == "\n")
    }

    fn take_operator(&mut self, operator: &'static str) {
        self.rest = &self.rest[operator.len()..];
        // `2>` redirects another stream than the output.
        let is_number = matches!(&self.pieces[..], [Piece::Text(text)] if text.len() == 1 && text.starts_with(|c: char| c.is_ascii_digit()));
        if operator.starts_with('>') && is_number && self.is_word {
            let is_output = self.pieces == [Piece::Text("1".to_string())];
            self.pieces.clear();
            self.is_word = false;
            self.found
                .push(Token::Operator(if is_output { operator } else { "<" }));
            return;
        }
        self.end_word();
        match operator {
            "<<" | "<<-" => {
                let line = self.rest.lines().next().unwrap_or_default().trim_start();
                let is_end = |letter: char| letter.is_whitespace() || ";|&)>".contains(letter);
                let word = line.split(is_end).next().unwrap_or_default();
                self.here.push(word.replace(['\'', '"', '\\'], ""));
                self.found.push(Token::Operator("<"));
            }
            "\n" => {
                for end in std::mem::take(&mut self.here) {
                    let mut at = 0;
                    let mut lines = self.rest.split_inclusive('\n');
                    for line in lines.by_ref() {
                        at += line.len();
                        if line.trim() == end {
                            break;
                        }
                    }
                    self.rest = &self.rest[at..];
                }
                self.found.push(Token::Operator("\n"));
            }
            _ => self.found.push(Token::Operator(operator)),
        }
    }

    fn end_word(&mut self) {
        if self.is_word {
            self.found.push(Token::Word {
                pieces: std::mem::take(&mut self.pieces),
                splits: self.splits,
            });
        }
        (self.is_word, self.splits) = (false, false);
    }

    fn text(&mut self, text: &str) {
        self.is_word = true;
        match self.pieces.last_mut() {
            Some(Piece::Text(before)) => before.push_str(text),
            _ => self.pieces.push(Piece::Text(text.to_string())),
        }
    }

    fn piece(&mut self, piece: Piece, splits: bool) {
        self.is_word = true;
        self.splits |= splits;
        self.pieces.push(piece);
    }

    /// The text before this character, which is skipped.
    fn until(&mut self, letter: char) -> &'a str {
        let (text, rest) = self.rest.split_once(letter).unwrap_or((self.rest, ""));
        self.rest = rest;
        text
    }

    /// Reads text between double quotes.
    fn quoted(&mut self) {
        self.text("");
        while let Some(letter) = self.rest.chars().next() {
            self.rest = &self.rest[letter.len_utf8()..];
            match letter {
                '"' => return,
                '\\' => {
                    let next = self.rest.chars().next().unwrap_or_default();
                    self.rest = &self.rest[next.len_utf8().min(self.rest.len())..];
                    if !self.is_script || "\"\\$`".contains(next) {
                        self.text(next.encode_utf8(&mut [0; 4]));
                    } else if next != '\n' {
                        self.text("\\");
                        self.text(next.encode_utf8(&mut [0; 4]));
                    }
                }
                '$' if self.is_script => self.dollar(false),
                '`' if self.is_script => {
                    let text = self.until('`').to_string();
                    self.piece(Piece::Command(text), false);
                }
                _ => self.text(letter.encode_utf8(&mut [0; 4])),
            }
        }
    }

    /// Reads what follows a `$`.
    fn dollar(&mut self, splits: bool) {
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let piece = match self.rest.chars().next() {
            Some('(') => Piece::Command(self.between('(', ')')),
            Some('{') => Piece::Variable(self.between('{', '}')),
            Some(letter) if letter.is_ascii_digit() || "@*#?$!-".contains(letter) => {
                self.rest = &self.rest[1..];
                Piece::Variable(letter.to_string())
            }
            Some(letter) if is_name(letter) => {
                let end = self.rest.find(|letter| !is_name(letter));
                let (name, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
                self.rest = rest;
                Piece::Variable(name.to_string())
            }
            _ => return self.text("$"),
        };
        self.piece(piece, splits);
    }

    /// The text between a pair of delimiters, including nested pairs.
    fn between(&mut self, open: char, close: char) -> String {
        let mut depth = 0_usize;
        for (at, letter) in self.rest.char_indices() {
            if letter == open {
                depth += 1;
            } else if letter == close {
                depth -= 1;
            }
            if depth == 0 {
                let text = self.rest[1..at].to_string();
                self.rest = &self.rest[at + 1..];
                return text;
            }
        }
        let text = self.rest[1..].to_string();
        self.rest = "";
        text
    }
}
