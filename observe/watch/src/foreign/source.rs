//! A file whose lengths and counts are not trusted.

use std::io::{Read, Seek, SeekFrom};

use super::ForeignError;

/// Greatest length of all texts and names together.
const TEXTS_BYTES_MAX: u64 = 64 << 20;
/// Bytes that each text counts for, beside its length.
const TEXT_BYTES: u64 = 64;
/// Greatest number of items of a list.
pub(super) const ITEMS_MAX: u64 = 1 << 16;
/// Greatest length of a name.
const NAME_BYTES_MAX: usize = 4_096;

/// The file, the place in it, and bounds. Lengths are compared with the file's before memory is allocated.
#[derive(Debug)]
pub(super) struct Source<F> {
    file: F,
    at: u64,
    bytes: u64,
    /// Bytes of texts that may still be read. A hostile file may name one text many times.
    texts_left: u64,
}

impl<F: Read + Seek> Source<F> {
    pub(super) fn new(mut file: F) -> Result<Self, ForeignError> {
        let bytes = file.seek(SeekFrom::End(0))?;
        file.seek(SeekFrom::Start(0))?;
        Ok(Self {
            file,
            at: 0,
            bytes,
            texts_left: TEXTS_BYTES_MAX,
        })
    }

    /// The first bytes of the file, at most so many. The place in the file is behind them.
    pub(super) fn begin(&mut self, bytes_max: u64) -> Result<Vec<u8>, ForeignError> {
        let mut begin = vec![0; self.bytes.min(bytes_max) as usize];
        self.seek(0)?;
        self.fill(&mut begin)?;
        Ok(begin)
    }

    /// The place in the file.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    pub(super) fn damaged(&self, why: &'static str) -> ForeignError {
        ForeignError::Damaged {
            offset: self.at,
            why,
        }
    }

    /// Checks that the file has this part, and returns the part's end.
    pub(super) fn check(&self, offset: u64, bytes: u64) -> Result<u64, ForeignError> {
        let end = offset.saturating_add(bytes);
        match end <= self.bytes {
            true => Ok(end),
            false => Err(ForeignError::CutOff {
                bytes: self.bytes,
                needed: end,
            }),
        }
    }

    pub(super) fn seek(&mut self, offset: u64) -> Result<(), ForeignError> {
        if offset != self.at {
            self.at = self.check(offset, 0)?;
            self.file.seek(SeekFrom::Start(offset))?;
        }
        Ok(())
    }

    pub(super) fn skip(&mut self, bytes: u64) -> Result<(), ForeignError> {
        self.seek(self.check(self.at, bytes)?)
    }

    pub(super) fn fill(&mut self, bytes: &mut [u8]) -> Result<(), ForeignError> {
        let end = self.check(self.at, bytes.len() as u64)?;
        self.file.read_exact(bytes)?;
        self.at = end;
        Ok(())
    }

    pub(super) fn bytes<const N: usize>(&mut self) -> Result<[u8; N], ForeignError> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    pub(super) fn u16(&mut self) -> Result<u16, ForeignError> {
        Ok(u16::from_ne_bytes(self.bytes()?))
    }

    pub(super) fn u32(&mut self) -> Result<u32, ForeignError> {
        Ok(u32::from_ne_bytes(self.bytes()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, ForeignError> {
        Ok(u64::from_ne_bytes(self.bytes()?))
    }

    /// Reads the number of items of a list.
    pub(super) fn count(&mut self, why: &'static str) -> Result<u64, ForeignError> {
        match u64::from(self.u32()?) {
            count if count <= ITEMS_MAX => Ok(count),
            _ => Err(self.damaged(why)),
        }
    }

    /// Reads a text that ends in 0.
    pub(super) fn name(&mut self) -> Result<String, ForeignError> {
        let mut name = Vec::new();
        loop {
            match self.bytes()? {
                [0] => {
                    let name = String::from_utf8_lossy(&name).into_owned();
                    self.spend(name.len() as u64)?;
                    return Ok(name);
                }
                [_] if name.len() == NAME_BYTES_MAX => {
                    return Err(self.damaged("a name is too long"));
                }
                [byte] => name.push(byte),
            }
        }
    }

    /// Reads a text behind its length of 4 bytes.
    pub(super) fn text32(&mut self) -> Result<String, ForeignError> {
        let bytes = self.u32()?;
        self.text(bytes.into())
    }

    /// Reads a text behind its length of 8 bytes.
    pub(super) fn text64(&mut self) -> Result<String, ForeignError> {
        let bytes = self.u64()?;
        self.text(bytes)
    }

    /// Reads a text of that length, without the zeros at its end.
    pub(super) fn text(&mut self, bytes: u64) -> Result<String, ForeignError> {
        self.check(self.at, bytes)?;
        self.spend(bytes)?;
        let mut text = vec![0; bytes as usize];
        self.fill(&mut text)?;
        let text = String::from_utf8_lossy(&text);
        // Each byte that is not UTF-8 has become three.
        self.spend((text.len() as u64).saturating_sub(bytes))?;
        Ok(text.trim_end_matches('\0').to_owned())
    }

    fn spend(&mut self, bytes: u64) -> Result<(), ForeignError> {
        let left = self.texts_left.checked_sub(bytes + TEXT_BYTES);
        self.texts_left = left.ok_or_else(|| self.damaged("texts of more than 64 MiB"))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    /// Reads the same bytes as a text until it is refused; returns the length of all texts.
    fn text_bytes_max(byte: u8) -> u64 {
        let file = vec![byte; 1 << 20];
        let mut source = Source::new(Cursor::new(file)).expect("bytes");
        let mut read = 0;
        while let Ok(text) = source.seek(0).and_then(|()| source.text(1 << 20)) {
            read += text.len() as u64;
        }
        read
    }

    #[test]
    fn the_bound_of_texts_is_of_what_is_kept() {
        for byte in [b'a', 0xff] {
            let read = text_bytes_max(byte);
            assert!((TEXTS_BYTES_MAX / 2..=TEXTS_BYTES_MAX).contains(&read));
        }
    }
}
