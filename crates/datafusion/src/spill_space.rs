//! Spill files whose bytes are charged to a group.

use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bursar::{Charge, Group};
use bytes::Bytes;
use datafusion_common::Result;
use datafusion_execution::disk_manager::DiskManager;
use datafusion_execution::disk_manager::DiskManagerBuilder;
use datafusion_execution::{SpillFile, SpillWriter, TempFileFactory};
use futures_core::Stream;

use crate::refusal::no_space;

/// Disk space for the spill files of a tenant, or of a query: a group whose bytes are bytes on disk.
///
/// The group belongs to a second [`bursar::Memory`], a tree of disk space, beside the tree of memory. So a limit, a peak, a snapshot or a
/// reading of it is about disk. Each write is charged before it is done. Above a limit it fails, and so does the query. A file's bytes
/// return when the file is deleted, which is when its last user drops it.
///
/// ```
/// use std::sync::Arc;
/// use bursar::{Limits, Memory};
/// use bursar_datafusion::SpillSpace;
/// use datafusion_execution::disk_manager::DiskManagerBuilder;
/// use datafusion_execution::runtime_env::RuntimeEnvBuilder;
///
/// let disk = Memory::builder().max(100 << 30).build()?;                   // all spill files together
/// let tenant = disk.root().child("tenant-a", Limits::max(10 << 30))?;     // those of a tenant
/// let files = Arc::new(DiskManagerBuilder::default().build()?);           // where files are made: one for all
/// let runtime = RuntimeEnvBuilder::new()
///     .with_disk_manager_builder(SpillSpace::new(tenant, files).into_builder())
///     .build_arc()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SpillSpace {
    group: Group,
    files: Arc<DiskManager>,
}

impl fmt::Debug for SpillSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SpillSpace").field(&self.group).finish()
    }
}

impl SpillSpace {
    /// Makes the space of a group. `files` makes the files, in its directories; its own limit
    /// (`datafusion.runtime.max_temp_directory_size`) holds for all who use it.
    pub fn new(group: Group, files: Arc<DiskManager>) -> Self {
        Self { group, files }
    }

    /// The settings of a disk manager that makes its files here.
    pub fn into_builder(self) -> DiskManagerBuilder {
        DiskManager::builder().with_temp_file_factory(Arc::new(self))
    }
}

impl TempFileFactory for SpillSpace {
    fn create_temp_file(&self, description: &str) -> Result<Arc<dyn SpillFile>> {
        let charge = self.group.charge(0);
        Ok(Arc::new(File {
            inner: self.files.create_tmp_file(description)?,
            charge: Arc::new(Mutex::new(charge)),
        }))
    }
}

/// A file, and the charge of its bytes.
struct File {
    // Before the charge: the file is deleted first.
    inner: Arc<dyn SpillFile>,
    charge: Arc<Mutex<Charge>>,
}

impl SpillFile for File {
    fn path(&self) -> Option<&Path> {
        self.inner.path()
    }

    fn size(&self) -> Option<u64> {
        self.inner.size()
    }

    fn read_stream(&self) -> Result<Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>> {
        self.inner.read_stream()
    }

    fn open_writer(&self) -> Result<Box<dyn SpillWriter>> {
        Ok(Box::new(Writer {
            inner: self.inner.open_writer()?,
            charge: self.charge.clone(),
        }))
    }
}

/// Appends to a file.
struct Writer {
    inner: Box<dyn SpillWriter>,
    charge: Arc<Mutex<Charge>>,
}

fn lock(charge: &Mutex<Charge>) -> MutexGuard<'_, Charge> {
    charge.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut charge = lock(&self.charge);
        let before = charge.bytes();
        let wanted = before + bytes.len() as u64;
        charge
            .resize(wanted)
            .map_err(|refusal| io::Error::new(io::ErrorKind::StorageFull, no_space(&refusal)))?;
        let written = self.inner.write(bytes);
        let length = before + *written.as_ref().unwrap_or(&0) as u64;
        // Smaller, so it succeeds.
        let _ = charge.resize(length);
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl SpillWriter for Writer {
    fn finish(&mut self) -> Result<()> {
        self.inner.finish()
    }
}
