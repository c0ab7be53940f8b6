//! Error replies: a gRPC code and one line, which never contains a secret.

use foreread_os::secrets;
use tonic::{Code, Status};

const MAX_LINE: usize = 1024;

/// Converts text from users and other programs to one line without control characters, and removes secrets from the
/// names of sources in it.
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

/// Creates the error for an invalid request. `remedy` says what the user should write instead.
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
                &format!("'{name}' is not a source of a volume"),
                "write another",
            );
            assert!(!status.message().contains("canary"), "{}", status.message());
        }
    }
}
