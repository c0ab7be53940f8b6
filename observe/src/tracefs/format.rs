//! The layout of an event, from its `format` file.
//!
//! ```text
//!   name: sys_exit_read
//!   ID: 841
//!   format:
//!       field:int common_pid;  offset:4;  size:4;  signed:1;
//!       field:long ret;        offset:16; size:8;  signed:1;
//! ```
//!
//! Never: a field read outside of the bytes of its event.

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    pub name: String,
    /// Where its bytes begin.
    pub offset: usize,
    pub size: usize,
    /// Whether its highest bit is a sign.
    pub signed: bool,
}

impl Field {
    /// Its value in the bytes of an event, if they hold it. A sign is carried on.
    pub fn value(&self, event: &[u8]) -> Option<u64> {
        let bytes = event.get(self.offset..self.offset.checked_add(self.size)?)?;
        let wide = |number: i64| number as u64;
        Some(match (bytes, self.signed) {
            ([a], false) => u64::from(*a),
            ([a], true) => wide(i64::from(*a as i8)),
            (&[a, b], false) => u64::from(u16::from_ne_bytes([a, b])),
            (&[a, b], true) => wide(i64::from(i16::from_ne_bytes([a, b]))),
            (&[a, b, c, d], false) => u64::from(u32::from_ne_bytes([a, b, c, d])),
            (&[a, b, c, d], true) => wide(i64::from(i32::from_ne_bytes([a, b, c, d]))),
            _ => u64::from_ne_bytes(bytes.try_into().ok()?),
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventFormat {
    /// What the first two bytes of each such event are.
    pub id: u16,
    /// Its fields, without the common ones.
    pub fields: Vec<Field>,
}

impl EventFormat {
    /// Reads a `format` file; nothing where it is not one.
    pub fn parse(text: &str) -> Option<EventFormat> {
        let id = text
            .lines()
            .find_map(|line| line.strip_prefix("ID: "))?
            .trim()
            .parse()
            .ok()?;
        let lines = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("field:"));
        let fields: Option<Vec<Field>> = lines.map(field).collect();
        let fields = fields?
            .into_iter()
            .filter(|field| !field.name.starts_with("common_"))
            .collect();
        Some(EventFormat { id, fields })
    }

    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }
}

/// `unsigned long fd;    offset:16;    size:8;    signed:0;`
fn field(text: &str) -> Option<Field> {
    let mut parts = text.split(';').map(str::trim);
    let declared = parts.next()?;
    let name = declared
        .rsplit(|c: char| c.is_whitespace() || c == '*')
        .next()?;
    let name = name.split('[').next()?.to_string();
    let (mut offset, mut size, mut signed) = (None, None, false);
    for part in parts {
        match part.split_once(':') {
            Some(("offset", value)) => offset = value.parse().ok(),
            Some(("size", value)) => size = value.parse().ok(),
            Some(("signed", value)) => signed = value == "1",
            _ => {}
        }
    }
    Some(Field {
        name,
        offset: offset?,
        size: size?,
        signed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "name: x\nID: 841\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \n\tfield:int __syscall_nr;\toffset:8;\tsize:4;\tsigned:1;\n\tfield:const char * filename;\toffset:16;\tsize:8;\t\
        signed:0;\n\tfield:char comm[16];\toffset:24;\tsize:16;\tsigned:0;\n\nprint fmt: \"field:%d\", REC->ret\n";

    #[test]
    fn a_format_is_read() {
        let format = EventFormat::parse(TEXT).expect("a format");
        let names: Vec<&str> = format.fields.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(
            (format.id, names),
            (841, vec!["__syscall_nr", "filename", "comm"])
        );
        assert_eq!(EventFormat::parse("ID: x"), None);
        assert_eq!(
            EventFormat::parse("ID: 1\n field:int a; offset:b; size:4;"),
            None
        );
    }

    #[test]
    fn values_keep_their_sign_and_their_bounds() {
        let bytes = [0xff_u8; 16];
        let of = |offset, size, signed| {
            Field {
                name: String::new(),
                offset,
                size,
                signed,
            }
            .value(&bytes)
        };
        assert_eq!(
            (of(0, 4, true), of(0, 4, false)),
            (Some(u64::MAX), Some(0xffff_ffff))
        );
        assert_eq!(
            (of(1, 2, true), of(1, 1, false), of(8, 8, false)),
            (Some(u64::MAX), Some(255), Some(u64::MAX))
        );
        assert_eq!(
            (of(9, 8, false), of(0, 3, false), of(usize::MAX, 8, false)),
            (None, None, None)
        );
    }
}
