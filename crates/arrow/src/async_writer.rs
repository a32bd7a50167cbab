//! The same for the asynchronous writer.

use arrow_array::RecordBatch;
use parquet::arrow::AsyncArrowWriter;
use parquet::arrow::async_writer::AsyncFileWriter;
use parquet::file::metadata::ParquetMetaData;

use crate::writer::{ChargedWriter, WriteError};

/// A row group is charged until the sink has taken it: the bytes of a flush that waits are still there.
#[cfg_attr(docsrs, doc(cfg(feature = "async")))]
impl<W: AsyncFileWriter> ChargedWriter<AsyncArrowWriter<W>> {
    /// Encodes a batch. Flushes the row group before it or after it by the rules above.
    ///
    /// # Errors
    /// As the method for [`ArrowWriter`](parquet::arrow::ArrowWriter). A future that is dropped before it is ready breaks the file, unless it never began.
    pub async fn write(&mut self, batch: &RecordBatch) -> Result<(), WriteError> {
        if let Err(refused) = self.charge_batch(batch) {
            if self.writer.in_progress_rows() == 0 {
                return Err(self.refused(refused));
            }
            self.flush().await?;
            if let Err(refused) = self.charge_batch(batch) {
                return Err(self.refused(refused));
            }
        }
        self.begin()?;
        self.writer.write(batch).await?;
        self.end();
        if self.settle(self.writer.memory_size()) {
            self.flush().await?;
        }
        Ok(())
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
