//! Layout of an event, as its `format` file states it.
//!
//! The kernel promises no fixed layout. Offsets, sizes and signs differ between versions and processors, so every field is
//! found by its name at run time.

/// An event and its fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventFormat {
    /// Name without its system.
    pub name: String,
    /// Number in the first two bytes of a record.
    pub id: u16,
    /// Fields in the order of the file, common ones first.
    pub fields: Vec<Field>,
}

/// A field of a record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Field {
    /// Name without type and array length.
    pub name: String,
    /// Offset in the record.
    pub offset: usize,
    /// Size in bytes.
    pub size: usize,
    /// Whether the number has a sign.
    pub signed: bool,
    /// Place of the content.
    pub location: Location,
}

/// Place of a field's content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Location {
    /// In the field itself.
    #[default]
    Inline,
    /// At an offset from the record's start: `__data_loc`.
    Data,
    /// At an offset from the field's end: `__rel_loc`.
    Relative,
}

/// A `format` file that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatError {
    /// The line.
    pub line: String,
}

impl EventFormat {
    /// Parses the text of a `format` file.
    pub fn parse(text: &str) -> Result<Self, FormatError> {
        let mut format = Self {
            name: String::new(),
            id: 0,
            fields: Vec::new(),
        };
        let mut has_id = false;
        for line in text.lines().map(str::trim) {
            let wrong = || FormatError {
                line: line.to_owned(),
            };
            if let Some(name) = line.strip_prefix("name:") {
                format.name = name.trim().to_owned();
            } else if let Some(id) = line.strip_prefix("ID:") {
                format.id = id.trim().parse().map_err(|_| wrong())?;
                has_id = true;
            } else if line.starts_with("field:") {
                format.fields.push(field(line).ok_or_else(wrong)?);
            } else if line.starts_with("print fmt:") {
                break;
            }
        }
        match has_id {
            true => Ok(format),
            false => Err(FormatError {
                line: "no line `ID:`".to_owned(),
            }),
        }
    }

    /// The field of this name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }
}

/// `field:TYPE NAME;\toffset:N;\tsize:N;\tsigned:N;`
pub(crate) fn field(line: &str) -> Option<Field> {
    let mut parts = line.split(';').map(str::trim);
    let declaration = parts.next()?.strip_prefix("field:")?.trim();
    let mut number = |key: &str| -> Option<usize> {
        let value = parts.next()?.strip_prefix(key)?;
        value.parse().ok()
    };
    let [offset, size] = [number("offset:")?, number("size:")?];
    // The file of a page's header has no sign in old kernels.
    let signed = number("signed:").unwrap_or(0);
    let location = match declaration {
        text if text.starts_with("__data_loc") => Location::Data,
        text if text.starts_with("__rel_loc") => Location::Relative,
        _ => Location::Inline,
    };
    let name = declaration.split_whitespace().next_back()?;
    let name = name.split('[').next()?.trim_start_matches('*');
    (!name.is_empty()).then(|| Field {
        name: name.to_owned(),
        offset,
        size,
        signed: signed != 0,
        location,
    })
}

impl Field {
    /// Number in this field, with its sign extended. `None` if the record is too short or the field holds no number.
    pub fn number(&self, record: &[u8]) -> Option<u64> {
        let bytes = record.get(self.offset..self.offset.checked_add(self.size)?)?;
        let bits = match *bytes {
            [a] => return Some(extended(u64::from(a), 8, self.signed)),
            [a, b] => u64::from(u16::from_ne_bytes([a, b])),
            [a, b, c, d] => u64::from(u32::from_ne_bytes([a, b, c, d])),
            [a, b, c, d, e, f, g, h] => u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
            _ => return None,
        };
        Some(extended(bits, 8 * bytes.len() as u32, self.signed))
    }

    /// Content of this field, wherever it is.
    pub fn bytes<'a>(&self, record: &'a [u8]) -> Option<&'a [u8]> {
        let end = self.offset.checked_add(self.size)?;
        let inline = record.get(self.offset..end)?;
        let from = match self.location {
            Location::Inline => return Some(inline),
            Location::Data => 0,
            Location::Relative => end,
        };
        let word = u32::from_ne_bytes(inline.try_into().ok()?);
        let offset = from.checked_add((word & 0xffff) as usize)?;
        record.get(offset..offset.checked_add((word >> 16) as usize)?)
    }
}

fn extended(bits: u64, width: u32, signed: bool) -> u64 {
    match signed {
        true => {
            let unused = 64 - width;
            (((bits << unused) as i64) >> unused) as u64
        }
        false => bits,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "name: sample\nID: 77\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:__data_loc char[] name;\toffset:8;\tsize:4;\tsigned:1;\n\
        \tfield:__rel_loc char[] other;\toffset:12;\tsize:4;\tsigned:1;\n\
        \tfield:unsigned long caller[8];\toffset:16;\tsize:64;\tsigned:0;\n\
        \tfield:void * work;\toffset:80;\tsize:8;\tsigned:0;\n\n\
        print fmt: \"field:nothing\"\n";

    #[test]
    fn names_lose_types_and_lengths() {
        let format = EventFormat::parse(TEXT).expect("a format");
        let names: Vec<_> = format.fields.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "common_type",
                "common_pid",
                "name",
                "other",
                "caller",
                "work"
            ]
        );
        assert_eq!((format.name.as_str(), format.id), ("sample", 77));
        assert_eq!(format.field("caller").map(|it| it.size), Some(64));
        assert_eq!(format.field("absent"), None);
    }

    #[test]
    fn numbers_have_their_sign_and_contents_their_place() {
        let format = EventFormat::parse(TEXT).expect("a format");
        let mut record = vec![0; 16];
        record[4..8].copy_from_slice(&(-5_i32).to_ne_bytes());
        record[8..12].copy_from_slice(&(16_u32 | 2 << 16).to_ne_bytes());
        record[12..16].copy_from_slice(&(2_u32 | 3 << 16).to_ne_bytes());
        record.extend_from_slice(b"abcde");
        let field = |name| format.field(name).expect(name);
        assert_eq!(field("common_pid").number(&record), Some(-5_i64 as u64));
        assert_eq!(field("name").bytes(&record), Some(&b"ab"[..]));
        assert_eq!(field("other").bytes(&record), Some(&b"cde"[..]));
        assert_eq!(field("work").number(&record), None);
        assert_eq!(field("caller").bytes(&record), None);
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(EventFormat::parse("name: x\n").is_err());
        assert!(EventFormat::parse("ID: x\n").is_err());
        assert!(EventFormat::parse("ID: 70000\n").is_err());
        assert!(
            EventFormat::parse("ID: 1\nfield:int x;\toffset:a;\tsize:4;\tsigned:1;\n").is_err()
        );
    }
}
