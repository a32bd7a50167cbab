//! `trace.dat`, the file of `trace-cmd record`: versions 6 and 7, without compression.
//!
//! The file holds the kernel's format files and the pages of its trace buffers. So its events are decoded as a live session's
//! are. Version 6 has the format files one after the other, and then the place of each CPU's pages. Version 7 has sections,
//! which options point to.
//!
//! # Invariant
//! Lengths are compared with the length of the file before memory is allocated, and texts are at most 64 MiB together.

use std::fmt;
use std::io::{self, Read, Seek, SeekFrom};

/// First bytes of the file.
const MAGIC: &[u8; 10] = b"\x17\x08\x44tracing";

/// Greatest length of all texts together.
const TEXTS_BYTES_MAX: u64 = 64 << 20;
/// Greatest number of event systems, of events of each, of CPUs, and of options.
const ITEMS_MAX: u64 = 1 << 16;
/// Greatest length of a name.
const NAME_BYTES_MAX: usize = 4_096;
/// Greatest size of a page.
const PAGE_BYTES_MAX: usize = 1 << 20;

/// Options of both versions.
mod option {
    pub(super) const DONE: u16 = 0;
    pub(super) const BUFFER: u16 = 3;
    pub(super) const CLOCK: u16 = 4;
    pub(super) const UNAME: u16 = 5;
    pub(super) const HEADER_INFO: u16 = 16;
    pub(super) const EVENT_FORMATS: u16 = 18;
    pub(super) const CMDLINES: u16 = 21;
}

/// Reason why a file is not read.
#[derive(Debug)]
#[non_exhaustive]
pub enum TraceDatError {
    /// The file cannot be read.
    Io(io::Error),
    /// It does not begin as such files do.
    NotTraceDat,
    /// It is of a version other than 6 and 7.
    UnknownVersion {
        /// The version, as the file has it.
        version: String,
    },
    /// It is of a machine with another order of bytes.
    OtherByteOrder,
    /// It is compressed.
    Compressed {
        /// By what.
        by: String,
    },
    /// It has text in place of pages.
    Text,
    /// It is cut off.
    CutOff,
    /// It has no pages: `trace-cmd` did not finish.
    NoPages,
    /// Its contents are not what the format says.
    Damaged {
        /// Place in the file.
        offset: u64,
        /// The fault.
        why: &'static str,
    },
}

impl fmt::Display for TraceDatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::NotTraceDat => f.write_str("it is no trace.dat"),
            Self::UnknownVersion { version } => {
                write!(
                    f,
                    "it is a trace.dat of version {version}; versions 6 and 7 can be read"
                )
            }
            Self::OtherByteOrder => f.write_str(
                "it is of a machine with another order of bytes; read it on such a machine",
            ),
            Self::Compressed { by } => write!(
                f,
                "it is compressed by {by}; `trace-cmd convert --compression none -i FILE -o OTHER` makes a file that can be read"
            ),
            Self::Text => f.write_str(
                "it has text in place of binary pages; record without a tracer of latencies",
            ),
            Self::CutOff => f.write_str("it is cut off"),
            Self::NoPages => {
                f.write_str("it has no pages of events: the program that wrote it did not finish")
            }
            Self::Damaged { offset, why } => write!(f, "at byte {offset}: {why}"),
        }
    }
}

impl std::error::Error for TraceDatError {}

impl From<io::Error> for TraceDatError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::CutOff,
            _ => Self::Io(error),
        }
    }
}

/// Place of a CPU's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OfCpu {
    cpu: u32,
    offset: u64,
    bytes: u64,
}

/// A file whose formats were read.
#[derive(Debug)]
pub struct TraceDat<F: Read + Seek> {
    source: Source<F>,
    /// Text of `events/header_page`.
    pub header_page: String,
    /// System and text of each event's format file.
    pub formats: Vec<(String, String)>,
    /// Text of `saved_cmdlines`: a pid and a name a line.
    pub cmdlines: String,
    /// Text of `trace_clock`, in which the clock that was used has brackets; of version 7 its name.
    pub clock: Option<String>,
    /// System, host, release and machine, as `uname` prints them.
    pub uname: Option<String>,
    cpus: Vec<OfCpu>,
}

/// The file, and bounds.
#[derive(Debug)]
struct Source<F> {
    file: F,
    length: u64,
    /// Bytes of texts that may still be read.
    texts_left: u64,
}

impl<F: Read + Seek> TraceDat<F> {
    /// Reads the formats and the places of pages.
    ///
    /// # Errors
    /// [`TraceDatError`] says why the file cannot be read.
    pub fn open(mut file: F) -> Result<Self, TraceDatError> {
        let length = file.seek(SeekFrom::End(0))?;
        file.seek(SeekFrom::Start(0))?;
        let mut source = Source {
            file,
            length,
            texts_left: TEXTS_BYTES_MAX,
        };
        let mut magic = [0; MAGIC.len()];
        let begins = source.file.read_exact(&mut magic);
        if begins.is_err() || magic != *MAGIC {
            return Err(TraceDatError::NotTraceDat);
        }
        let version = source.name()?;
        if !["6", "7"].contains(&version.as_str()) {
            return Err(TraceDatError::UnknownVersion { version });
        }
        let [is_big, _long_bytes] = source.bytes()?;
        if (is_big == 1) != cfg!(target_endian = "big") {
            return Err(TraceDatError::OtherByteOrder);
        }
        let _page_bytes = source.u32()?;
        let mut dat = Self {
            source,
            header_page: String::new(),
            formats: Vec::new(),
            cmdlines: String::new(),
            clock: None,
            uname: None,
            cpus: Vec::new(),
        };
        match version.as_str() {
            "6" => dat.read_6()?,
            _ => dat.read_7()?,
        }
        if dat.cpus.is_empty() {
            return Err(TraceDatError::NoPages);
        }
        dat.check_places()?;
        Ok(dat)
    }

    /// CPUs that have pages.
    pub fn cpus(&self) -> impl Iterator<Item = u32> {
        self.cpus.iter().filter(|it| it.bytes > 0).map(|it| it.cpu)
    }

    /// Calls `visit` with each page of a CPU, of `page_bytes` as `header_page` states; the last one may be shorter.
    ///
    /// # Errors
    /// The file cannot be read, or pages have no size.
    pub fn pages(
        &mut self,
        cpu: u32,
        page_bytes: usize,
        mut visit: impl FnMut(&[u8]),
    ) -> Result<(), TraceDatError> {
        if page_bytes == 0 || page_bytes > PAGE_BYTES_MAX {
            return Err(self.source.damaged("pages of no possible size"));
        }
        let mut page = vec![0; page_bytes];
        for place in self.cpus.clone().into_iter().filter(|it| it.cpu == cpu) {
            self.source.seek(place.offset)?;
            let mut left = place.bytes;
            while left > 0 {
                let used = left.min(page_bytes as u64) as usize;
                self.source.file.read_exact(&mut page[..used])?;
                visit(&page[..used]);
                left -= used as u64;
            }
        }
        Ok(())
    }

    fn read_6(&mut self) -> Result<(), TraceDatError> {
        self.read_header_info()?;
        let ftrace = self.source.count("too many events of ftrace")?;
        for _ in 0..ftrace {
            let text = self.source.text64()?;
            self.formats.push(("ftrace".to_owned(), text));
        }
        self.read_formats()?;
        // Addresses of functions, and formats of `trace_printk`.
        for _ in 0..2 {
            let bytes = self.source.u32()?;
            self.source.skip(bytes.into())?;
        }
        self.cmdlines = self.source.text64()?;
        let cpus = self.source.count("too many CPUs")?;
        let mut what: [u8; 10] = self.source.bytes()?;
        if &what == b"options  \0" {
            self.read_options_6()?;
            what = self.source.bytes()?;
        }
        match &what {
            b"flyrecord\0" => {}
            b"latency  \0" => return Err(TraceDatError::Text),
            _ => return Err(self.source.damaged("neither pages nor text follow")),
        }
        for cpu in 0..cpus as u32 {
            let (offset, bytes) = (self.source.u64()?, self.source.u64()?);
            self.cpus.push(OfCpu { cpu, offset, bytes });
        }
        Ok(())
    }

    fn read_options_6(&mut self) -> Result<(), TraceDatError> {
        for _ in 0..ITEMS_MAX {
            let id = self.source.u16()?;
            if id == option::DONE {
                return Ok(());
            }
            let bytes = self.source.u32()?.into();
            match id {
                option::CLOCK => self.clock = Some(self.source.text(bytes)?),
                option::UNAME => self.uname = Some(self.source.text(bytes)?),
                _ => self.source.skip(bytes)?,
            }
        }
        Err(self.source.damaged("too many options"))
    }

    fn read_7(&mut self) -> Result<(), TraceDatError> {
        let by = self.source.name()?;
        let _version = self.source.name()?;
        let mut next = self.source.u64()?;
        let mut sections = Vec::new();
        for _ in 0..ITEMS_MAX {
            if next == 0 {
                break;
            }
            self.source.section(next, option::DONE, &by)?;
            next = self.read_options_7(&mut sections)?;
        }
        for (id, offset) in sections {
            self.source.section(offset, id, &by)?;
            match id {
                option::HEADER_INFO => self.read_header_info()?,
                option::EVENT_FORMATS => self.read_formats()?,
                _ => self.cmdlines = self.source.text64()?,
            }
        }
        Ok(())
    }

    /// Reads a section of options; returns the place of the next one, or 0.
    fn read_options_7(&mut self, sections: &mut Vec<(u16, u64)>) -> Result<u64, TraceDatError> {
        for _ in 0..ITEMS_MAX {
            let id = self.source.u16()?;
            let bytes: u64 = self.source.u32()?.into();
            let begin = self.source.at()?;
            match id {
                option::DONE => return self.source.u64(),
                option::CLOCK => self.clock = Some(self.source.text(bytes)?),
                option::UNAME => self.uname = Some(self.source.text(bytes)?),
                option::HEADER_INFO | option::EVENT_FORMATS | option::CMDLINES => {
                    sections.push((id, self.source.u64()?));
                }
                option::BUFFER => self.read_buffer()?,
                _ => {}
            }
            let end = begin.checked_add(bytes);
            let end = end.ok_or_else(|| self.source.damaged("an option is too long"))?;
            self.source.seek(end)?;
        }
        Err(self.source.damaged("too many options"))
    }

    /// Reads the places of the pages of one buffer. Buffers of further instances add to those of the first.
    fn read_buffer(&mut self) -> Result<(), TraceDatError> {
        let _section = self.source.u64()?;
        let _instance = self.source.name()?;
        let clock = self.source.name()?;
        if !clock.is_empty() {
            self.clock = Some(clock);
        }
        let _page_bytes = self.source.u32()?;
        for _ in 0..self.source.count("too many CPUs")? {
            let cpu = self.source.u32()?;
            let (offset, bytes) = (self.source.u64()?, self.source.u64()?);
            if self.cpus.len() as u64 >= ITEMS_MAX {
                return Err(self.source.damaged("too many buffers"));
            }
            self.cpus.push(OfCpu { cpu, offset, bytes });
        }
        Ok(())
    }

    fn read_header_info(&mut self) -> Result<(), TraceDatError> {
        for name in [&b"header_page\0"[..], b"header_event\0"] {
            let mut found = vec![0; name.len()];
            self.source.file.read_exact(&mut found)?;
            if found != name {
                return Err(self.source.damaged("no header of pages or events"));
            }
            let text = self.source.text64()?;
            if self.header_page.is_empty() {
                self.header_page = text;
            }
        }
        Ok(())
    }

    fn read_formats(&mut self) -> Result<(), TraceDatError> {
        for _ in 0..self.source.count("too many event systems")? {
            let system = self.source.name()?;
            for _ in 0..self.source.count("too many events")? {
                let text = self.source.text64()?;
                self.formats.push((system.clone(), text));
            }
        }
        Ok(())
    }

    /// Refuses pages that are not in the file.
    fn check_places(&self) -> Result<(), TraceDatError> {
        let ends = |it: &OfCpu| it.offset.checked_add(it.bytes);
        let is_inside = |it: &OfCpu| ends(it).is_some_and(|end| end <= self.source.length);
        match self.cpus.iter().all(|it| it.bytes == 0 || is_inside(it)) {
            true => Ok(()),
            false => Err(TraceDatError::CutOff),
        }
    }
}

impl<F: Read + Seek> Source<F> {
    fn damaged(&mut self, why: &'static str) -> TraceDatError {
        let offset = self.file.stream_position().unwrap_or(0);
        TraceDatError::Damaged { offset, why }
    }

    fn at(&mut self) -> Result<u64, TraceDatError> {
        Ok(self.file.stream_position()?)
    }

    fn seek(&mut self, offset: u64) -> Result<(), TraceDatError> {
        if offset > self.length {
            return Err(TraceDatError::CutOff);
        }
        self.file.seek(SeekFrom::Start(offset))?;
        Ok(())
    }

    fn skip(&mut self, bytes: u64) -> Result<(), TraceDatError> {
        let end = self.at()?.checked_add(bytes).ok_or(TraceDatError::CutOff)?;
        self.seek(end)
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], TraceDatError> {
        let mut bytes = [0; N];
        self.file.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn u16(&mut self) -> Result<u16, TraceDatError> {
        Ok(u16::from_ne_bytes(self.bytes()?))
    }

    fn u32(&mut self) -> Result<u32, TraceDatError> {
        Ok(u32::from_ne_bytes(self.bytes()?))
    }

    fn u64(&mut self) -> Result<u64, TraceDatError> {
        Ok(u64::from_ne_bytes(self.bytes()?))
    }

    fn count(&mut self, why: &'static str) -> Result<u64, TraceDatError> {
        match u64::from(self.u32()?) {
            count if count <= ITEMS_MAX => Ok(count),
            _ => Err(self.damaged(why)),
        }
    }

    /// Reads a text that ends in 0.
    fn name(&mut self) -> Result<String, TraceDatError> {
        let mut name = Vec::new();
        loop {
            match self.bytes()? {
                [0] => return Ok(String::from_utf8_lossy(&name).into_owned()),
                [_] if name.len() == NAME_BYTES_MAX => {
                    return Err(self.damaged("a name is too long"));
                }
                [byte] => name.push(byte),
            }
        }
    }

    /// Reads a text behind its length.
    fn text64(&mut self) -> Result<String, TraceDatError> {
        let bytes = self.u64()?;
        self.text(bytes)
    }

    /// Reads a text of that length, without the zeros at its end.
    fn text(&mut self, bytes: u64) -> Result<String, TraceDatError> {
        if bytes > self.length {
            return Err(TraceDatError::CutOff);
        }
        let left = self.texts_left.checked_sub(bytes);
        self.texts_left = left.ok_or_else(|| self.damaged("texts of more than 64 MiB"))?;
        let mut text = vec![0; bytes as usize];
        self.file.read_exact(&mut text)?;
        let text = String::from_utf8_lossy(&text);
        Ok(text.trim_end_matches('\0').to_owned())
    }

    /// Goes to the contents of a section of version 7.
    fn section(&mut self, offset: u64, expected: u16, by: &str) -> Result<(), TraceDatError> {
        const COMPRESSED: u16 = 1;
        self.seek(offset)?;
        let (id, flags) = (self.u16()?, self.u16()?);
        if id != expected {
            return Err(self.damaged("a section of another kind than its option says"));
        }
        if flags & COMPRESSED != 0 {
            return Err(TraceDatError::Compressed { by: by.to_owned() });
        }
        let _description = self.u32()?;
        let _bytes = self.u64()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
