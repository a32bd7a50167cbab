//! `trace.dat`, the file of `trace-cmd record`: versions 6 and 7, without compression.
//!
//! The file holds the kernel's format files and the pages of its trace buffers. So its events are decoded as a live session's
//! are. Version 6 has the format files one after the other, and then the place of each CPU's pages. Version 7 has sections,
//! which options point to. `perf.data` holds the part of version 6 before the pages.

use std::io::{Read, Seek};
use std::rc::Rc;

use super::ForeignError;
use super::source::{ITEMS_MAX, Source};
use crate::shown::shown;
use crate::tracefs::lost_events;

/// First bytes of the file.
pub(super) const MAGIC: &[u8; 10] = b"\x17\x08\x44tracing";

/// Options of both versions.
mod option {
    pub(super) const DONE: u16 = 0;
    pub(super) const CPU_STATISTICS: u16 = 2;
    pub(super) const BUFFER: u16 = 3;
    pub(super) const CLOCK: u16 = 4;
    pub(super) const UNAME: u16 = 5;
    pub(super) const CPU_COUNT: u16 = 8;
    pub(super) const HEADER_INFO: u16 = 16;
    pub(super) const FTRACE_FORMATS: u16 = 17;
    pub(super) const EVENT_FORMATS: u16 = 18;
    pub(super) const KALLSYMS: u16 = 19;
    pub(super) const CMDLINES: u16 = 21;
}

/// The recorded kernel's texts, by which its events are decoded.
#[derive(Debug, Default)]
pub(super) struct Texts {
    /// `events/header_page`.
    pub(super) header_page: String,
    /// System and text of each event's format file.
    pub(super) formats: Vec<(Rc<str>, String)>,
    /// `/proc/kallsyms`.
    pub(super) kallsyms: String,
    /// `saved_cmdlines`: a pid and a name a line.
    pub(super) cmdlines: String,
}

/// Pages of one CPU that were not read yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pages {
    pub(super) cpu: u32,
    offset: u64,
    bytes: u64,
}

impl Pages {
    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0
    }
}

/// A file whose formats were read.
#[derive(Debug)]
pub(super) struct TraceDat<F> {
    source: Source<F>,
    pub(super) texts: Texts,
    /// Name of the clock.
    pub(super) clock: Option<String>,
    /// System, host, release and machine, as `uname` prints them.
    pub(super) uname: Option<String>,
    /// Number of CPUs of the machine.
    pub(super) cpus: u64,
    /// Events that each CPU's buffer lost.
    pub(super) lost: Vec<(u32, u64)>,
    /// Pages of each buffer of each CPU.
    pub(super) pages: Vec<Pages>,
}

impl<F: Read + Seek> TraceDat<F> {
    /// Reads the formats and the places of pages. The magic was read.
    pub(super) fn open(mut source: Source<F>) -> Result<Self, ForeignError> {
        let version = read_version(&mut source)?;
        let mut dat = Self {
            source,
            texts: Texts::default(),
            clock: None,
            uname: None,
            cpus: 0,
            lost: Vec::new(),
            pages: Vec::new(),
        };
        match version.as_str() {
            "6" => dat.read_6()?,
            "7" => dat.read_7()?,
            _ => {
                let version = shown(&version);
                return Err(ForeignError::UnknownVersion { version });
            }
        }
        dat.pages.retain(|it| !it.is_empty());
        if dat.pages.is_empty() {
            return Err(ForeignError::Recorded {
                fault: "it has no events",
                remedy: "let `trace-cmd record` end by itself, and record while something happens"
                    .to_owned(),
            });
        }
        dat.check_places()?;
        Ok(dat)
    }

    /// Reads the next page of `pages` into `page`, whose size is the kernel's; the last page may be shorter.
    pub(super) fn next_page<'a>(
        &mut self,
        pages: &mut Pages,
        page: &'a mut [u8],
    ) -> Result<&'a [u8], ForeignError> {
        let used = pages.bytes.min(page.len() as u64);
        let page = &mut page[..used as usize];
        self.source.seek(pages.offset)?;
        self.source.fill(page)?;
        pages.offset += used;
        pages.bytes -= used;
        Ok(page)
    }

    fn read_6(&mut self) -> Result<(), ForeignError> {
        let source = &mut self.source;
        self.texts = Texts::read(source)?;
        self.cpus = source.count("too many CPUs")?;
        let mut what: [u8; 10] = source.bytes()?;
        if &what == b"options  \0" {
            self.read_options_6()?;
            what = self.source.bytes()?;
        }
        match &what {
            b"flyrecord\0" => {}
            b"latency  \0" => {
                return Err(ForeignError::Recorded {
                    fault: "it has text in place of binary pages",
                    remedy: "record without a tracer of latencies".to_owned(),
                });
            }
            _ => return Err(self.source.damaged("neither pages nor text follow")),
        }
        for cpu in 0..self.cpus as u32 {
            let (offset, bytes) = (self.source.u64()?, self.source.u64()?);
            self.pages.push(Pages { cpu, offset, bytes });
        }
        Ok(())
    }

    fn read_options_6(&mut self) -> Result<(), ForeignError> {
        for _ in 0..ITEMS_MAX {
            let id = self.source.u16()?;
            if id == option::DONE {
                return Ok(());
            }
            let bytes = self.source.u32()?.into();
            self.read_option(id, bytes)?;
        }
        Err(self.source.damaged("too many options"))
    }

    /// Reads an option that both versions have, or passes over it.
    fn read_option(&mut self, id: u16, bytes: u64) -> Result<(), ForeignError> {
        let end = self.source.check(self.source.at(), bytes)?;
        match id {
            option::CLOCK => {
                let clocks = self.source.text(bytes)?;
                self.clock = chosen(&clocks).or(self.clock.take());
            }
            option::UNAME => self.uname = Some(self.source.text(bytes)?),
            option::CPU_COUNT => self.cpus = self.source.count("too many CPUs")?,
            option::CPU_STATISTICS => {
                let text = self.source.text(bytes)?;
                let cpu = text.lines().find_map(|it| it.strip_prefix("CPU:"));
                if let (Some(cpu), lost @ 1..) = (cpu, lost_events(&text)) {
                    self.lost.push((cpu.trim().parse().unwrap_or(0), lost));
                }
            }
            _ => {}
        }
        self.source.seek(end)
    }

    fn read_7(&mut self) -> Result<(), ForeignError> {
        let by = self.source.name()?;
        let _version = self.source.name()?;
        let mut next = self.source.u64()?;
        let mut sections = Vec::new();
        while next != 0 {
            if next < self.source.at() {
                return Err(self.source.damaged("options that lead back"));
            }
            section(&mut self.source, next, option::DONE, &by)?;
            next = self.read_options_7(&mut sections)?;
        }
        let Self { source, texts, .. } = self;
        for (id, offset) in sections {
            section(source, offset, id, &by)?;
            match id {
                option::HEADER_INFO => texts.read_header_info(source)?,
                option::FTRACE_FORMATS => texts.read_formats_of(source, "ftrace")?,
                option::EVENT_FORMATS => texts.read_formats(source)?,
                option::KALLSYMS => texts.kallsyms = source.text32()?,
                _ => texts.cmdlines = source.text64()?,
            }
        }
        Ok(())
    }

    /// Reads a section of options; returns the place of the next one, or 0.
    fn read_options_7(&mut self, sections: &mut Vec<(u16, u64)>) -> Result<u64, ForeignError> {
        for _ in 0..ITEMS_MAX {
            let id = self.source.u16()?;
            let bytes: u64 = self.source.u32()?.into();
            let end = self.source.check(self.source.at(), bytes)?;
            match id {
                option::DONE => return self.source.u64(),
                option::HEADER_INFO
                | option::FTRACE_FORMATS
                | option::EVENT_FORMATS
                | option::KALLSYMS
                | option::CMDLINES => sections.push((id, self.source.u64()?)),
                option::BUFFER => self.read_buffer()?,
                _ => self.read_option(id, bytes)?,
            }
            self.source.seek(end)?;
        }
        Err(self.source.damaged("too many options"))
    }

    /// Reads the places of the pages of one buffer. Buffers of further instances add to those of the first.
    fn read_buffer(&mut self) -> Result<(), ForeignError> {
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
            if self.pages.len() as u64 >= ITEMS_MAX {
                return Err(self.source.damaged("too many buffers"));
            }
            self.pages.push(Pages { cpu, offset, bytes });
        }
        Ok(())
    }

    /// Refuses pages that are not in the file, or that several CPUs share.
    fn check_places(&self) -> Result<(), ForeignError> {
        let mut places = self.pages.clone();
        places.sort_by_key(|it| it.offset);
        let mut end = 0;
        for Pages { offset, bytes, .. } in places {
            if offset < end {
                return Err(ForeignError::Damaged {
                    offset,
                    why: "pages of two CPUs are at the same place",
                });
            }
            end = self.source.check(offset, bytes)?;
        }
        Ok(())
    }
}

/// Reads the version and the order of bytes.
fn read_version<F: Read + Seek>(source: &mut Source<F>) -> Result<String, ForeignError> {
    let version = source.name()?;
    let [is_big, _long_bytes] = source.bytes()?;
    if (is_big == 1) != cfg!(target_endian = "big") {
        return Err(ForeignError::OtherByteOrder);
    }
    let _page_bytes = source.u32()?;
    Ok(version)
}

/// The clock that has brackets, in a text of `trace_clock`.
fn chosen(clocks: &str) -> Option<String> {
    let (_, behind) = clocks.split_once('[')?;
    let (name, _) = behind.split_once(']')?;
    Some(name.to_owned())
}

/// Goes to the contents of a section of version 7.
fn section<F: Read + Seek>(
    source: &mut Source<F>,
    offset: u64,
    expected: u16,
    by: &str,
) -> Result<(), ForeignError> {
    const COMPRESSED: u16 = 1;
    source.seek(offset)?;
    let (id, flags) = (source.u16()?, source.u16()?);
    if id != expected {
        return Err(source.damaged("a section of another kind than its option says"));
    }
    if flags & COMPRESSED != 0 {
        return Err(ForeignError::Compressed {
            by: shown(by),
            remedy: "`trace-cmd convert --compression none -i FILE -o OTHER` makes a file that can be read, and so does \
                     `trace-cmd record --compression none`",
        });
    }
    let _description = source.u32()?;
    let _bytes = source.u64()?;
    Ok(())
}

impl Texts {
    /// Reads the section of `perf.data` that holds them, which begins as a `trace.dat` does.
    pub(super) fn of_perf<F: Read + Seek>(source: &mut Source<F>) -> Result<Self, ForeignError> {
        if source.bytes::<{ MAGIC.len() }>()? != *MAGIC {
            return Err(source.damaged("no formats of events"));
        }
        read_version(source)?;
        Self::read(source)
    }

    /// Reads them one after the other, as version 6 has them.
    fn read<F: Read + Seek>(source: &mut Source<F>) -> Result<Self, ForeignError> {
        let mut texts = Self::default();
        texts.read_header_info(source)?;
        texts.read_formats_of(source, "ftrace")?;
        texts.read_formats(source)?;
        texts.kallsyms = source.text32()?;
        // Formats of `trace_printk`.
        let bytes = source.u32()?;
        source.skip(bytes.into())?;
        texts.cmdlines = source.text64()?;
        Ok(texts)
    }

    fn read_header_info<F: Read + Seek>(
        &mut self,
        source: &mut Source<F>,
    ) -> Result<(), ForeignError> {
        let mut text = |name: &str| match source.name()? == name {
            true => source.text64(),
            false => Err(source.damaged("no header of pages or events")),
        };
        self.header_page = text("header_page")?;
        text("header_event")?;
        Ok(())
    }

    fn read_formats<F: Read + Seek>(&mut self, source: &mut Source<F>) -> Result<(), ForeignError> {
        for _ in 0..source.count("too many event systems")? {
            let system = source.name()?;
            self.read_formats_of(source, &system)?;
        }
        Ok(())
    }

    fn read_formats_of<F: Read + Seek>(
        &mut self,
        source: &mut Source<F>,
        system: &str,
    ) -> Result<(), ForeignError> {
        let system: Rc<str> = system.into();
        for _ in 0..source.count("too many events")? {
            self.formats.push((Rc::clone(&system), source.text64()?));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
