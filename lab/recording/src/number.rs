//! Numbers and texts in bytes.

use crate::TIME_NS_MAX;

/// Greatest length of a text, bytes.
pub(crate) const TEXT_BYTES_MAX: usize = 4_096;

/// Appends a number in groups of 7 bits, the lowest first; all bytes but the last have their highest bit set.
pub(crate) fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Appends the way from one number to another. The sign is the lowest bit.
pub(crate) fn put_step(out: &mut Vec<u8>, from: u64, to: u64) {
    let step = to.wrapping_sub(from) as i64;
    put(out, (step << 1 ^ step >> 63) as u64);
}

/// Appends a text, cut at a character's beginning to [`TEXT_BYTES_MAX`].
pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    let mut length = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(length) {
        length -= 1;
    }
    put(out, length as u64);
    out.extend_from_slice(&text.as_bytes()[..length]);
}

/// Contents of a block that are not what the format says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bad(pub(crate) &'static str);

/// The contents of a block that are still to be read.
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> Result<u8, Bad> {
        let (first, rest) = self.0.split_first().ok_or(Bad("it ends in a number"))?;
        self.0 = rest;
        Ok(*first)
    }

    /// Takes any number.
    fn raw(&mut self) -> Result<u64, Bad> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                break;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Bad("a number is too long"))
    }

    /// Takes a number that is at most `most`.
    pub(crate) fn at_most(&mut self, most: u64, what: &'static str) -> Result<u64, Bad> {
        let number = self.raw()?;
        if number > most {
            return Err(Bad(what));
        }
        Ok(number)
    }

    /// Takes a count, size or time.
    pub(crate) fn number(&mut self) -> Result<u64, Bad> {
        self.at_most(TIME_NS_MAX, "a number is too large")
    }

    /// Takes a number of any value up to 64 bits, such as an inode's.
    pub(crate) fn any(&mut self) -> Result<u64, Bad> {
        self.raw()
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Bad> {
        let number = self.at_most(u32::MAX.into(), "a number has more than 32 bits")?;
        Ok(number as u32)
    }

    /// Takes the way from a number to another, and returns that.
    pub(crate) fn step(&mut self, from: u64) -> Result<u64, Bad> {
        let to = self.any_step(from)?;
        if to > TIME_NS_MAX {
            return Err(Bad("a time is out of range"));
        }
        Ok(to)
    }

    /// Likewise; numbers of any value.
    pub(crate) fn any_step(&mut self, from: u64) -> Result<u64, Bad> {
        let code = self.raw()?;
        let step = (code >> 1) as i64 ^ -((code & 1) as i64);
        Ok(from.wrapping_add(step as u64))
    }

    /// Takes a text. Control characters become U+FFFD, and so do bytes that are no UTF-8.
    pub(crate) fn text(&mut self) -> Result<String, Bad> {
        let length = self.at_most(TEXT_BYTES_MAX as u64, "a text is too long")? as usize;
        let (text, rest) = self
            .0
            .split_at_checked(length)
            .ok_or(Bad("it ends in a text"))?;
        self.0 = rest;
        Ok(sanitized(&String::from_utf8_lossy(text)))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Returns the text without characters that change a terminal's state or the direction of its lines.
fn sanitized(text: &str) -> String {
    let harmless = |letter: char| match letter {
        '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        letter if letter.is_control() => '\u{fffd}',
        letter => letter,
    };
    text.chars().map(harmless).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        for number in [0, 1, 127, 128, 300, TIME_NS_MAX] {
            let mut out = Vec::new();
            put(&mut out, number);
            assert_eq!(Input(&out).number(), Ok(number));
        }
        let mut out = Vec::new();
        put(&mut out, u64::MAX);
        assert_eq!(Input(&out).any(), Ok(u64::MAX));
        assert!(Input(&out).number().is_err());
    }

    #[test]
    fn steps_come_back() {
        for (from, to) in [(0, 5), (5, 0), (7, 7), (u64::MAX, 3), (3, u64::MAX)] {
            let mut out = Vec::new();
            put_step(&mut out, from, to);
            assert_eq!(Input(&out).any_step(from), Ok(to), "{from} {to}");
        }
    }

    #[test]
    fn numbers_of_more_than_64_bits_are_refused() {
        let endless = [0xff; 11];
        assert!(Input(&endless).any().is_err());
        // A 65th bit.
        let mut long = [0x80; 10];
        long[9] = 2;
        assert!(Input(&long).any().is_err());
        assert!(Input(&[0x80]).any().is_err());
    }

    #[test]
    fn texts_lose_what_a_terminal_would_obey() {
        let mut out = Vec::new();
        put_text(&mut out, "a\x1b[31m\u{202e}b");
        assert_eq!(
            Input(&out).text().expect("a text"),
            "a\u{fffd}[31m\u{fffd}b"
        );
        let mut out = Vec::new();
        put_text(&mut out, &"é".repeat(TEXT_BYTES_MAX));
        assert_eq!(Input(&out).text().expect("a text").len(), TEXT_BYTES_MAX);
    }
}
