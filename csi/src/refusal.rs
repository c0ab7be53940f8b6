//! Answers that refuse a call: a code of gRPC and one line, which never has a value of a secret.

use foreread_os::secrets;
use tonic::{Code, Status};

/// Bytes of a line, at most.
const MAX_LINE: usize = 1024;

/// A text as one line: what another program or a user wrote has no line breaks, no control characters and no secrets of names then.
pub fn one_line(text: &str) -> String {
    let text = secrets::shown_message(text.trim());
    let letters = text.chars();
    let shown = letters.map(|c| if c.is_control() { '?' } else { c });
    let mut line = String::new();
    for letter in shown {
        if line.len() + letter.len_utf8() > MAX_LINE {
            line.push_str("...");
            break;
        }
        line.push(letter);
    }
    line
}

/// The call asks for what cannot be. `remedy` says what to write.
pub fn invalid(what: &str, remedy: &str) -> Status {
    refused(Code::InvalidArgument, what, remedy)
}

pub fn refused(code: Code, what: &str, remedy: &str) -> Status {
    Status::new(code, one_line(&format!("{what}: {remedy}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_line_and_short() {
        let line = one_line("a\nb\x1b[31m\u{0}c");
        assert_eq!(line, "a?b?[31m?c");
        assert_eq!(one_line(&"é".repeat(2000)).len(), MAX_LINE + 3);
        for name in [
            "S3://K:canary@b",
            "HTTPS://u:canary@h/x",
            "nbd://u:canary@h",
            "az://c?sig=canary",
        ] {
            let status = invalid(
                &format!("'{name}' is no source of a volume"),
                "write another",
            );
            assert!(!status.message().contains("canary"), "{}", status.message());
        }
    }
}
