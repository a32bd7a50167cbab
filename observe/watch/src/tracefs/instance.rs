//! A trace buffer of our own, beside that of other tools.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use super::janitor::remove_stale;
use super::owner::own_path;
use super::{Tracefs, Unavailable};
use crate::event::Wanted;
use crate::format::EventFormat;
use crate::page::PageLayout;

/// An instance, which is removed when it is dropped.
#[derive(Debug)]
pub struct Instance {
    path: PathBuf,
    /// Layout of the pages of its buffers.
    pub layout: PageLayout,
    files: Vec<(u32, File)>,
}

/// `ENODEV`.
const NO_DEVICE: i32 = 19;
/// Files that are open beside the buffers.
const OTHER_FILES: u64 = 64;

/// Stacks that are taken with an event.
#[derive(Clone, Copy, Debug)]
pub struct Trigger {
    /// Stop after this many.
    pub count: u32,
    /// Condition in the kernel's filter language.
    pub condition: &'static str,
}

impl Instance {
    /// Place of this process's instance, which need not exist. For its janitor.
    pub fn place(tracefs: &Tracefs) -> PathBuf {
        own_path(&tracefs.root().join("instances"))
    }

    /// Makes an instance that does not trace yet, with a buffer of this size for each CPU. Removes stale ones first.
    pub fn create(tracefs: &Tracefs, buffer_kb_per_cpu: u64) -> Result<Self, Unavailable> {
        let instances = tracefs.root().join("instances");
        fs::read_dir(&instances).map_err(|error| Unavailable::at(&instances, error))?;
        remove_stale(&instances);
        let path = Self::place(tracefs);
        fs::create_dir(&path).map_err(|error| Unavailable::at(&path, error))?;
        // From here on, dropping removes it.
        let mut instance = Self {
            layout: PageLayout::default(),
            path,
            files: Vec::new(),
        };
        instance.write("tracing_on", "0")?;
        instance.write("trace_clock", "mono")?;
        // Names of tasks are not needed, and to record them costs something at each switch of a task.
        let _ = instance.write("options/record-cmd", "0");
        instance.write("buffer_size_kb", &buffer_kb_per_cpu.to_string())?;
        let header = tracefs.root().join("events/header_page");
        let text = super::text::text(&header).map_err(|error| Unavailable::at(&header, error))?;
        let unknown = |error| Unavailable::File {
            path: header,
            error: io::Error::new(ErrorKind::InvalidData, format!("unknown layout: {error:?}")),
        };
        instance.layout = PageLayout::parse(&text).map_err(unknown)?;
        instance.files = instance.open_buffers()?;
        Ok(instance)
    }

    /// The format of an event. `None`: this kernel does not have it.
    pub fn format(&self, system: &str, name: &str) -> Option<EventFormat> {
        let text = super::text::text(&self.event(system, name).join("format")).ok()?;
        EventFormat::parse(&text).ok()
    }

    /// Enables an event with the first of these filters that the kernel takes. Without filters: all of its events.
    pub fn enable(
        &self,
        system: &str,
        name: &str,
        filters: impl Iterator<Item = String>,
    ) -> io::Result<()> {
        let event = self.event(system, name);
        let mut set = Ok(());
        for filter in filters {
            set = fs::write(event.join("filter"), filter);
            if set.is_ok() {
                break;
            }
        }
        set?;
        fs::write(event.join("enable"), "1")
    }

    /// Takes stacks with an event.
    pub fn trigger(&self, wanted: &Wanted, trigger: Trigger) -> io::Result<()> {
        let Trigger { count, condition } = trigger;
        let file = self.event(wanted.system, wanted.name).join("trigger");
        fs::write(file, format!("stacktrace:{count} if {condition}"))
    }

    /// Begins to trace.
    pub fn start(&self) -> Result<(), Unavailable> {
        self.write("tracing_on", "1")
    }

    /// Stops tracing. The content of the buffers can still be read.
    pub fn stop(&self) -> Result<(), Unavailable> {
        self.write("tracing_on", "0")
    }

    /// Calls `visit` with each page of each CPU's buffer, until they are empty. A page that is being filled counts.
    pub fn read(
        &mut self,
        mut visit: impl FnMut(&PageLayout, u32, &[u8]),
    ) -> Result<(), Unavailable> {
        let mut page = vec![0; self.layout.size];
        for (cpu, file) in &mut self.files {
            read_pages(file, &mut page, |page| visit(&self.layout, *cpu, page))
                .map_err(|error| Unavailable::at(&buffer(&self.path, *cpu), error))?;
        }
        Ok(())
    }

    /// CPUs that lost events, with their numbers.
    pub fn lost(&self) -> Vec<(u32, u64)> {
        let lost = self.files.iter().filter_map(|(cpu, _)| {
            let stats = buffer(&self.path, *cpu).with_file_name("stats");
            let count = lost_events(&super::text::text(&stats).ok()?);
            (count > 0).then_some((*cpu, count))
        });
        lost.collect()
    }

    /// Buffers of all CPUs that this machine may have, so that those that come later are seen, too.
    fn open_buffers(&self) -> Result<Vec<(u32, File)>, Unavailable> {
        let directory = self.path.join("per_cpu");
        let entries =
            fs::read_dir(&directory).map_err(|error| Unavailable::at(&directory, error))?;
        let names = entries.flatten().map(|entry| entry.file_name());
        let mut cpus: Vec<u32> = names
            .filter_map(|name| name.to_str()?.strip_prefix("cpu")?.parse().ok())
            .collect();
        cpus.sort_unstable();
        crate::process::allow_open_files(cpus.len() as u64 + OTHER_FILES);
        let open = |cpu| {
            let path = buffer(&self.path, cpu);
            let file = open_now(&path).map_err(|error| Unavailable::at(&path, error))?;
            Ok((cpu, file))
        };
        cpus.into_iter().map(open).collect()
    }

    fn event(&self, system: &str, name: &str) -> PathBuf {
        self.path.join("events").join(system).join(name)
    }

    fn write(&self, file: &str, text: &str) -> Result<(), Unavailable> {
        let path = self.path.join(file);
        fs::write(&path, text).map_err(|error| Unavailable::at(&path, error))
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.stop();
        // An instance with open files is busy.
        self.files.clear();
        let _ = fs::remove_dir(&self.path);
    }
}

fn buffer(instance: &Path, cpu: u32) -> PathBuf {
    instance.join(format!("per_cpu/cpu{cpu}/trace_pipe_raw"))
}

/// Calls `visit` with each page of a buffer, until it is empty.
fn read_pages(
    file: &mut impl Read,
    page: &mut [u8],
    mut visit: impl FnMut(&[u8]),
) -> io::Result<()> {
    loop {
        match file.read(page) {
            Ok(0) => return Ok(()),
            Ok(length) => visit(&page[..length]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // A CPU that has not been online yet has no buffer.
            Err(error) if error.raw_os_error() == Some(NO_DEVICE) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// A file whose reads do not wait.
fn open_now(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32);
    }
    options.open(path)
}

/// Events that were overwritten or dropped, in a text of a `stats` file.
pub(crate) fn lost_events(stats: &str) -> u64 {
    let counts = stats.lines().filter_map(|line| {
        let (name, count) = line.split_once(':')?;
        let is_loss = ["overrun", "commit overrun", "dropped events"].contains(&name);
        is_loss.then(|| count.trim().parse::<u64>().ok())?
    });
    counts.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers of a file's reads, the last one first: a page of so many bytes, or an error.
    struct Answers(Vec<Result<usize, io::Error>>);

    impl Read for Answers {
        fn read(&mut self, page: &mut [u8]) -> io::Result<usize> {
            let length = self.0.pop().expect("an answer for each read")?;
            page[..length].fill(7);
            Ok(length)
        }
    }

    #[test]
    fn a_buffer_is_read_until_it_is_empty_or_has_no_cpu() {
        const NOT_PERMITTED: i32 = 1;
        let read = |last: Result<usize, io::Error>| {
            let interrupted = io::Error::from(ErrorKind::Interrupted);
            let mut file = Answers(vec![last, Ok(3), Err(interrupted), Ok(4)]);
            let mut seen = Vec::new();
            let result = read_pages(&mut file, &mut [0; 4], |page| seen.push(page.to_vec()));
            assert_eq!(seen, [vec![7; 4], vec![7; 3]]);
            result.map_err(|error| error.raw_os_error())
        };
        assert_eq!(read(Ok(0)), Ok(()));
        assert_eq!(read(Err(ErrorKind::WouldBlock.into())), Ok(()));
        let of_number = |number| Err(io::Error::from_raw_os_error(number));
        assert_eq!(read(of_number(NO_DEVICE)), Ok(()));
        assert_eq!(read(of_number(NOT_PERMITTED)), Err(Some(NOT_PERMITTED)));
    }

    #[test]
    fn all_kinds_of_losses_count() {
        let stats = "entries: 23\noverrun: 5\ncommit overrun: 2\nbytes: 1084\ndropped events: 1\nread events: 9\n";
        assert_eq!(super::lost_events(stats), 8);
    }
}
