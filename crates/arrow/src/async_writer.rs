//! The same for the asynchronous writer.

use arrow_array::RecordBatch;
use parquet::arrow::AsyncArrowWriter;
use parquet::arrow::async_writer::AsyncFileWriter;
use parquet::file::metadata::ParquetMetaData;

use crate::writer::{Buffers, ChargedWriter, WriteError};

impl<W: AsyncFileWriter> Buffers for AsyncArrowWriter<W> {
    fn rows(&self) -> usize {
        self.in_progress_rows()
    }
    fn memory(&self) -> u64 {
        self.memory_size() as u64
    }
    fn encoded(&self) -> u64 {
        self.in_progress_size() as u64
    }
}

/// A row group is charged until the sink has taken it: the bytes of a flush that waits are still there.
#[cfg_attr(docsrs, doc(cfg(feature = "async")))]
impl<W: AsyncFileWriter> ChargedWriter<AsyncArrowWriter<W>> {
    /// Encodes a batch. If its charge is refused, the row group that is buffered is flushed, and the batch is tried once more. Afterwards the row group is
    /// flushed if [`flushes_early`](crate::flushes_early) says so.
    ///
    /// # Errors
    /// As the method for [`ArrowWriter`](parquet::arrow::ArrowWriter). A future that is dropped while it writes breaks the file.
    pub async fn write(&mut self, batch: &RecordBatch) -> Result<(), WriteError> {
        let is_refused = match self.encode(batch).await {
            Err(WriteError::Refused(_)) if self.writer.rows() > 0 => {
                self.flush().await?;
                self.encode(batch).await?
            }
            outcome => outcome?,
        };
        match self.must_flush(is_refused) {
            true => self.flush().await,
            false => Ok(()),
        }
    }

    /// Encodes a batch, but leaves it to the caller to flush when the group is full.
    ///
    /// # Errors
    /// As [`Self::write`]. A refusal changes nothing.
    pub async fn try_write(&mut self, batch: &RecordBatch) -> Result<(), WriteError> {
        self.encode(batch).await?;
        Ok(())
    }

    async fn encode(&mut self, batch: &RecordBatch) -> Result<bool, WriteError> {
        let opened = self.begin_batch(batch)?;
        self.writer.write(batch).await?;
        Ok(self.end_batch(opened))
    }

    /// Writes the row group that is buffered, and returns its bytes.
    ///
    /// # Errors
    /// The sink's or the encoder's. The file is broken then.
    pub async fn flush(&mut self) -> Result<(), WriteError> {
        self.begin()?;
        self.writer.flush().await?;
        self.end();
        self.settle_flushed();
        Ok(())
    }

    /// Writes what is buffered, and the footer, and completes the sink.
    ///
    /// # Errors
    /// The sink's or the encoder's, or [`WriteError::Broken`] after an earlier one.
    pub async fn finish(mut self) -> Result<ParquetMetaData, WriteError> {
        self.begin()?;
        Ok(self.writer.finish().await?)
    }
}
